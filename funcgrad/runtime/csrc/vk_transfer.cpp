// Copies: from the host through a ring, to the host through two halves of a buffer, and on the device.
#include <algorithm>
#include <cstring>

#include "vk_internal.h"

namespace fgv {
namespace {

constexpr int64_t RING = int64_t(32) << 20;
constexpr int64_t PIECE = int64_t(4) << 20; // large writes go in pieces, so that copying and moving overlap
constexpr size_t MOST_PENDING = 256;
constexpr int64_t READBACK = int64_t(16) << 20; // two halves: one is filled while the other is read

bool overlap(uint64_t a, uint64_t b, uint64_t n, uint64_t m) { return a < b + m && b < a + n; }

void add_copy(fgv_device *d, Copy copy) {
    const uint64_t n = copy.region.size;
    for (auto it = d->pending.rbegin(); it != d->pending.rend() && !copy.barrier; ++it) {
        const uint64_t m = it->region.size;
        copy.barrier = overlap(copy.to_address, it->to_address, n, m) ||
            (copy.from_address && overlap(copy.from_address, it->to_address, n, m)) ||
            (it->from_address && overlap(copy.to_address, it->from_address, n, m));
        if (it->barrier) break;
    }
    d->pending.push_back(copy);
    d->pending_bytes += int64_t(n);
    if (d->pending.size() >= MOST_PENDING || d->pending_bytes >= PIECE) flush(d);
}

void ring_collect(fgv_device *d) {
    poll(d);
    while (!d->ring.in_flight.empty() && d->ring.in_flight.front().first <= d->completed) {
        d->ring.tail = d->ring.in_flight.front().second;
        d->ring.in_flight.pop_front();
    }
}

// The offset of n free bytes of the ring. The lock is given up while it waits for some.
uint64_t ring_take(fgv_device *d, Lock &lock, uint64_t n) {
    Ring &ring = d->ring;
    if (!ring.buffer.handle) {
        ring.buffer = new_buffer(d, RING, VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
            VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
    }
    for (bool collected = false;; collected = true) {
        uint64_t start = (ring.head + 15) / 16 * 16;
        if (start % RING + n > RING) start = (start / RING + 1) * RING;
        if (start + n - ring.tail <= RING) {
            ring.head = start + n;
            return start % RING;
        }
        if (!collected) {
            ring_collect(d);
            continue;
        }
        flush(d);
        if (ring.in_flight.empty()) {
            ring.tail = ring.head = (ring.head / RING + 1) * RING;
            continue;
        }
        const uint64_t ticket = ring.in_flight.front().first;
        lock.unlock();
        wait_for(d, ticket);
        lock.lock();
        ring_collect(d);
    }
}

struct Part {
    VkBuffer from;
    VkBufferCopy region;
    char *to;
};
struct Half {
    uint64_t ticket = 0;
    int64_t filled = 0;
    std::vector<Part> parts;
};

void start_reading(fgv_device *d, Half &half) {
    flush(d);
    VkCommandBuffer buffer = begin_transient(d);
    try {
        barrier(d, buffer);
        for (const Part &part : half.parts) d->vkCmdCopyBuffer(buffer, part.from, d->readback.handle, 1, &part.region);
        VkMemoryBarrier host{
            VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_TRANSFER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT};
        d->vkCmdPipelineBarrier(
            buffer, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &host, 0, nullptr, 0, nullptr);
        check(d, d->vkEndCommandBuffer(buffer), "vkEndCommandBuffer");
        half.ticket = submit(d, &buffer, 1);
    } catch (...) {
        end_transient(d, buffer, 0);
        throw;
    }
    end_transient(d, buffer, half.ticket);
}

void finish_reading(fgv_device *d, Half &half) {
    if (half.ticket) {
        wait_for(d, half.ticket);
        for (const Part &part : half.parts) {
            memcpy(part.to, d->readback.mapped + part.region.dstOffset, size_t(part.region.size));
        }
    }
    half = Half();
}

void read_parts(fgv_device *d, int count, const uint64_t *address, void *const *data, const int64_t *n) {
    alive(d);
    const std::lock_guard<std::mutex> reading(d->read_mutex);
    Lock lock = locked(d);
    for (int i = 0; i < count; ++i) find(d, address[i], n[i]);
    const VkFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    if (!d->readback.handle) {
        d->readback =
            new_buffer(d, READBACK, VK_BUFFER_USAGE_TRANSFER_DST_BIT, host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
    }
    Half halves[2];
    int now = 0;
    auto turn = [&] {
        start_reading(d, halves[now]);
        now = 1 - now;
        lock.unlock();
        finish_reading(d, halves[now]);
        lock.lock();
    };
    for (int i = 0; i < count; ++i) {
        for (int64_t done = 0; done < n[i];) {
            Half &half = halves[now];
            const int64_t m = std::min(n[i] - done, READBACK / 2 - half.filled);
            const auto [from, offset] = find(d, address[i] + uint64_t(done), m);
            const VkDeviceSize to = VkDeviceSize(now * (READBACK / 2) + half.filled);
            half.parts.push_back({from, {offset, to, VkDeviceSize(m)}, static_cast<char *>(data[i]) + done});
            half.filled = std::min((half.filled + m + 15) / 16 * 16, READBACK / 2);
            done += m;
            if (half.filled >= READBACK / 2) turn();
        }
    }
    if (halves[now].filled) turn();
    lock.unlock();
    finish_reading(d, halves[1 - now]);
}

} // namespace

VkCommandBuffer record_pending(fgv_device *d) {
    if (d->pending.empty()) return nullptr;
    VkCommandBuffer buffer = begin_transient(d);
    try {
        barrier(d, buffer);
        std::vector<VkBufferCopy> regions;
        for (size_t i = 0; i < d->pending.size();) {
            const Copy &first = d->pending[i];
            if (first.barrier) barrier(d, buffer);
            regions.clear();
            do regions.push_back(d->pending[i++].region);
            while (i < d->pending.size() && d->pending[i].from == first.from && d->pending[i].to == first.to &&
                !d->pending[i].barrier);
            d->vkCmdCopyBuffer(buffer, first.from, first.to, uint32_t(regions.size()), regions.data());
        }
        check(d, d->vkEndCommandBuffer(buffer), "vkEndCommandBuffer");
    } catch (...) {
        end_transient(d, buffer, 0);
        throw;
    }
    return buffer;
}

void pending_submitted(fgv_device *d, VkCommandBuffer buffer, uint64_t ticket) {
    if (!buffer) return;
    end_transient(d, buffer, ticket);
    if (!ticket) return;
    d->ring.in_flight.emplace_back(ticket, d->ring.head);
    d->pending.clear();
    d->pending_bytes = 0;
}

uint64_t flush(fgv_device *d) {
    VkCommandBuffer buffer = record_pending(d);
    if (!buffer) return d->submitted;
    uint64_t ticket = 0;
    try {
        ticket = submit(d, &buffer, 1);
    } catch (...) {
        pending_submitted(d, buffer, 0);
        throw;
    }
    pending_submitted(d, buffer, ticket);
    return ticket;
}

} // namespace fgv

using namespace fgv;

int fgv_write(fgv_device *d, uint64_t address, const void *data, int64_t n, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        Lock lock = locked(d);
        find(d, address, n);
        for (int64_t done = 0; done < n;) {
            const int64_t m = std::min(n - done, PIECE);
            const uint64_t offset = ring_take(d, lock, uint64_t(m)); // may have given the lock up
            memcpy(d->ring.buffer.mapped + offset, static_cast<const char *>(data) + done, size_t(m));
            const auto [to, at] = find(d, address + uint64_t(done), m);
            add_copy(d, {d->ring.buffer.handle, to, {offset, at, VkDeviceSize(m)}, 0, address + uint64_t(done), false});
            done += m;
        }
        return 0;
    });
}

int fgv_copy(fgv_device *d, uint64_t to, uint64_t from, int64_t n, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        const Lock lock = locked(d);
        const auto source = find(d, from, n);
        const auto target = find(d, to, n);
        if (n > 0 && overlap(to, from, uint64_t(n), uint64_t(n))) throw std::runtime_error("the copy overlaps itself");
        const VkBufferCopy region{source.second, target.second, VkDeviceSize(n)};
        if (n > 0) add_copy(d, {source.first, target.first, region, from, to, false});
        return 0;
    });
}

int fgv_read_many(
    fgv_device *d, int count, const uint64_t *address, void *const *data, const int64_t *n, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        read_parts(d, count, address, data, n);
        return 0;
    });
}
