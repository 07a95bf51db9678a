// Device memory: blocks of the driver, pieces of blocks, and copies from and to the host.
//
// All work of a device is in one order, so memory that is released can be given out again at once: what uses it next runs
// later. Released memory is therefore kept by size; the driver gets it back when there is none left.
#include <algorithm>
#include <cstring>

#include "vk_internal.h"

namespace fgv {
namespace {

constexpr int64_t ALIGNMENT = 256;
constexpr int64_t SMALL = int64_t(1) << 20;   // up to here, pieces of shared blocks
constexpr int64_t SHARED = int64_t(16) << 20; // bytes of a shared block
constexpr int64_t COARSEST = int64_t(16) << 20;
constexpr int64_t RING = int64_t(32) << 20;
constexpr int64_t PIECE = int64_t(4) << 20; // large writes go in pieces, so that copying and moving overlap
constexpr size_t MOST_PENDING = 256;
constexpr int64_t READBACK = int64_t(16) << 20; // two halves: one is filled while the other is read

constexpr VkFlags COPIED = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
constexpr VkFlags ADDRESSED = COPIED | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;

int memory_type(const fgv_device *d, uint32_t allowed, VkFlags properties) {
    for (uint32_t i = 0; i < d->memory.memoryTypeCount; ++i) {
        const bool fits = (d->memory.memoryTypes[i].propertyFlags & properties) == properties;
        if (fits && allowed >> i & 1) return int(i);
    }
    return -1;
}

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Few different sizes, so that what was released fits again; at most an eighth more than was asked for.
int64_t rounded(int64_t n) {
    int64_t power = ALIGNMENT;
    while (power <= n / 2) power *= 2;
    return round_up(std::max<int64_t>(n, 1), std::clamp(power / 8, ALIGNMENT, COARSEST));
}

uint64_t name_of(fgv_device *d, Block block) {
    const uint64_t address = block.buffer.address;
    try {
        d->blocks.emplace(address, block);
    } catch (...) {
        destroy(d, block.buffer);
        throw;
    }
    return address;
}

int64_t free_bytes(fgv_device *d) {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{};
    budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
    VkPhysicalDeviceMemoryProperties2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    memory.pNext = &budget;
    const int64_t heap = d->limits[6];
    if (!d->has_budget) return heap - d->allocated;
    instance().vkGetPhysicalDeviceMemoryProperties2(d->candidate->handle, &memory);
    const int type = memory_type(d, ~0u, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    const uint32_t i = d->memory.memoryTypes[std::max(type, 0)].heapIndex;
    if (budget.heapBudget[i] == 0) return heap - d->allocated;
    return int64_t(budget.heapBudget[i]) - int64_t(budget.heapUsage[i]);
}

Block new_block(fgv_device *d, int64_t size) {
    // A software driver's memory is the process's, which the system promises without having it: ask before.
    if (size > free_bytes(d)) throw std::bad_alloc();
    Block block;
    block.buffer = new_buffer(d, size + ALIGNMENT, ADDRESSED, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    block.buffer.size = size;
    d->allocated += size;
    return block;
}

// Gives what is cached back to the driver; true when that was anything.
bool trim(fgv_device *d) {
    flush(d);
    bool any = false;
    for (auto &[size, addresses] : d->unused) {
        for (size_t i = 0; i < addresses.size();) {
            const auto block = d->blocks.find(addresses[i]);
            if (block == d->blocks.end() || !block->second.whole) {
                ++i;
                continue;
            }
            d->dying.push_back({d->submitted, block->second.buffer, nullptr});
            d->blocks.erase(block);
            addresses[i] = addresses.back();
            addresses.pop_back();
            d->cached -= size;
            any = true;
        }
    }
    if (any || !d->dying.empty()) {
        wait_for(d, d->submitted);
        any = any || !d->dying.empty();
        collect(d);
    }
    return any;
}

uint64_t carve(fgv_device *d, int64_t size) {
    auto shared = d->blocks.find(d->carving);
    if (shared == d->blocks.end() || shared->second.carved + size > shared->second.buffer.size) {
        d->carving = name_of(d, new_block(d, SHARED));
        shared = d->blocks.find(d->carving);
    }
    shared->second.carved += size;
    return shared->first + uint64_t(shared->second.carved - size);
}

uint64_t take(fgv_device *d, int64_t size) {
    const auto kept = d->unused.lower_bound(size);
    const int64_t most = size <= SMALL ? size : size + size / 8;
    for (auto it = kept; it != d->unused.end() && it->first <= most; ++it) {
        if (it->second.empty()) continue;
        const uint64_t address = it->second.back();
        d->live.emplace(address, it->first);
        it->second.pop_back();
        d->cached -= it->first;
        return address;
    }
    uint64_t address = 0;
    if (size <= SMALL) {
        address = carve(d, size);
    } else {
        Block block = new_block(d, size);
        block.whole = true;
        block.carved = size;
        address = name_of(d, block);
    }
    d->live.emplace(address, size);
    return address;
}

// The buffer that holds an address, and where; throws unless n bytes from there are one allocation's.
std::pair<VkBuffer, VkDeviceSize> find(fgv_device *d, uint64_t address, int64_t n) {
    auto live = d->live.upper_bound(address);
    auto block = d->blocks.upper_bound(address);
    if (n < 0 || live == d->live.begin() || block == d->blocks.begin()) throw std::runtime_error("the address is not allocated");
    --live;
    --block;
    const uint64_t offset = address - live->first;
    if (offset > uint64_t(live->second) || uint64_t(n) > uint64_t(live->second) - offset) {
        throw std::runtime_error("the addresses are not in one allocation");
    }
    return {block->second.buffer.handle, address - block->second.buffer.base};
}

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
        ring.buffer = new_buffer(d, RING, VK_BUFFER_USAGE_TRANSFER_SRC_BIT, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
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
        VkMemoryBarrier host{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_TRANSFER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT};
        d->vkCmdPipelineBarrier(buffer, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &host, 0, nullptr, 0, nullptr);
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
        for (const Part &part : half.parts) memcpy(part.to, d->readback.mapped + part.region.dstOffset, size_t(part.region.size));
    }
    half = Half();
}

void read_parts(fgv_device *d, int count, const uint64_t *address, void *const *data, const int64_t *n) {
    alive(d);
    const std::lock_guard<std::mutex> reading(d->read_mutex);
    Lock lock = locked(d);
    for (int i = 0; i < count; ++i) find(d, address[i], n[i]);
    const VkFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    if (!d->readback.handle) d->readback = new_buffer(d, READBACK, VK_BUFFER_USAGE_TRANSFER_DST_BIT, host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
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
            half.filled = std::min(round_up(half.filled + m, 16), READBACK / 2);
            done += m;
            if (half.filled >= READBACK / 2) turn();
        }
    }
    if (halves[now].filled) turn();
    lock.unlock();
    finish_reading(d, halves[1 - now]);
}

} // namespace

Buffer new_buffer(fgv_device *d, int64_t size, VkFlags usage, VkFlags properties) {
    const bool addressed = usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = VkDeviceSize(size);
    info.usage = usage;
    Buffer buffer;
    try {
        check(d, d->vkCreateBuffer(d->handle, &info, nullptr, &buffer.handle), "vkCreateBuffer");
        VkMemoryRequirements needs{};
        d->vkGetBufferMemoryRequirements(d->handle, buffer.handle, &needs);
        int type = memory_type(d, needs.memoryTypeBits, properties);
        if (type < 0) type = memory_type(d, needs.memoryTypeBits, properties & ~VkFlags(VK_MEMORY_PROPERTY_HOST_CACHED_BIT));
        if (type < 0) throw std::runtime_error("the device has no memory of a kind that is needed");
        VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, nullptr, VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
        VkMemoryAllocateInfo allocation{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, addressed ? &flags : nullptr, needs.size, uint32_t(type)};
        const VkResult result = d->vkAllocateMemory(d->handle, &allocation, nullptr, &buffer.memory);
        if (result == VK_ERROR_TOO_MANY_OBJECTS) throw std::bad_alloc(); // as many allocations as the driver allows
        check(d, result, "vkAllocateMemory");
        check(d, d->vkBindBufferMemory(d->handle, buffer.handle, buffer.memory, 0), "vkBindBufferMemory");
        if (addressed) {
            VkBufferDeviceAddressInfo which{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, buffer.handle};
            buffer.base = d->vkGetBufferDeviceAddress(d->handle, &which);
            buffer.address = (buffer.base + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
        if (properties & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) {
            void *mapped = nullptr;
            check(d, d->vkMapMemory(d->handle, buffer.memory, 0, VkDeviceSize(size), 0, &mapped), "vkMapMemory");
            buffer.mapped = static_cast<char *>(mapped);
        }
    } catch (...) {
        destroy(d, buffer);
        throw;
    }
    buffer.size = size;
    return buffer;
}

void destroy(fgv_device *d, Buffer &buffer) {
    if (buffer.handle) d->vkDestroyBuffer(d->handle, buffer.handle, nullptr);
    if (buffer.memory) d->vkFreeMemory(d->handle, buffer.memory, nullptr); // which unmaps it
    buffer = Buffer();
}

void collect(fgv_device *d) {
    if (d->dying.empty()) return;
    poll(d);
    while (!d->dying.empty() && d->dying.front().ticket <= d->completed) {
        Dying gone = d->dying.front();
        d->dying.pop_front();
        if (gone.buffer.handle) d->allocated -= gone.buffer.size;
        destroy(d, gone.buffer);
        delete gone.commands;
    }
}

VkCommandBuffer record_pending(fgv_device *d) {
    if (d->pending.empty()) return nullptr;
    VkCommandBuffer buffer = begin_transient(d);
    barrier(d, buffer);
    std::vector<VkBufferCopy> regions;
    for (size_t i = 0; i < d->pending.size();) {
        const Copy &first = d->pending[i];
        if (first.barrier) barrier(d, buffer);
        regions.clear();
        do regions.push_back(d->pending[i++].region);
        while (i < d->pending.size() && d->pending[i].from == first.from && d->pending[i].to == first.to && !d->pending[i].barrier);
        d->vkCmdCopyBuffer(buffer, first.from, first.to, uint32_t(regions.size()), regions.data());
    }
    const VkResult result = d->vkEndCommandBuffer(buffer);
    if (result != VK_SUCCESS) {
        end_transient(d, buffer, 0);
        check(d, result, "vkEndCommandBuffer");
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

int64_t fgv_budget(fgv_device *d) {
    return guarded<int64_t>(0, nullptr, 0, [&] {
        const Lock lock = locked(d);
        collect(d);
        return std::max<int64_t>(0, free_bytes(d)) + d->cached;
    });
}

uint64_t fgv_alloc(fgv_device *d, int64_t n_bytes, char *err, int err_size) {
    return guarded<uint64_t>(0, err, err_size, [&] {
        const Lock lock = locked(d);
        if (n_bytes < 0) throw std::runtime_error("the number of bytes is negative");
        if (n_bytes > d->limits[12] - ALIGNMENT) {
            throw std::runtime_error("out of memory: the device allows " + std::to_string(d->limits[12] - ALIGNMENT) + " bytes in one allocation");
        }
        const int64_t size = std::max(n_bytes, std::min(rounded(n_bytes), (d->limits[12] - ALIGNMENT) / ALIGNMENT * ALIGNMENT));
        collect(d);
        try {
            return take(d, size);
        } catch (const std::bad_alloc &) {
            if (!trim(d)) throw;
        }
        return take(d, size);
    });
}

void fgv_release(fgv_device *d, uint64_t address) {
    guarded<int>(-1, nullptr, 0, [&] {
        const Lock lock = locked(d);
        const auto found = d->live.find(address);
        if (found == d->live.end()) return -1;
        d->unused[found->second].push_back(address);
        d->cached += found->second;
        d->live.erase(found);
        return 0;
    });
}

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
        if (n > 0) add_copy(d, {source.first, target.first, {source.second, target.second, VkDeviceSize(n)}, from, to, false});
        return 0;
    });
}

int fgv_read(fgv_device *d, uint64_t address, void *data, int64_t n, char *err, int err_size) {
    return fgv_read_many(d, 1, &address, &data, &n, err, err_size);
}

int fgv_read_many(fgv_device *d, int count, const uint64_t *address, void *const *data, const int64_t *n, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        read_parts(d, count, address, data, n);
        return 0;
    });
}
