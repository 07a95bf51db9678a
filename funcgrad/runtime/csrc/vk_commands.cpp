// Recorded lists of dispatches, and the one queue that everything goes through.
#include <algorithm>
#include <chrono>

#include "vk_internal.h"

namespace fgv {
namespace {

constexpr uint64_t SLICE = 100'000'000; // ns of one wait: a lost device is noticed in between
constexpr int SPIN = 300; // microseconds
constexpr uint32_t PROFILED = 1024;     // dispatches in one query pool
constexpr size_t MOST_TRANSIENTS = 1024;
constexpr VkFlags STAGES = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkFlags WRITES = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkFlags READS = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

void check_groups(const fgv_device *d, const fgv_commands &c) {
    for (size_t i = 0; i < c.groups.size(); ++i) {
        if (int64_t(c.groups[i]) > d->limits[3 + i % 3]) {
            throw std::runtime_error("dispatch " + std::to_string(i / 3) + " has " + std::to_string(c.groups[i]) +
                " groups on an axis where the device allows " + std::to_string(d->limits[3 + i % 3]));
        }
    }
}

void take_dispatches(fgv_commands &c, int64_t n, fgv_pipeline *const *pipelines, const uint64_t *tables,
    const uint32_t *groups, const uint8_t *barriers) {
    std::map<fgv_pipeline *, uint32_t> known;
    c.which.reserve(size_t(n));
    for (int64_t i = 0; i < n; ++i) {
        if (!pipelines[i] || pipelines[i]->shared->device != c.device)
            throw std::runtime_error("dispatch " + std::to_string(i) + " has no pipeline of this device");
        const auto [it, added] = known.emplace(pipelines[i], uint32_t(c.pipelines.size()));
        if (added) c.pipelines.push_back(pipelines[i]->shared);
        c.which.push_back(it->second);
    }
    c.tables.assign(tables, tables + n);
    c.groups.assign(groups, groups + 3 * n);
    c.barriers.assign(barriers, barriers + n);
}

void begin(fgv_device *d, VkCommandBuffer buffer, VkFlags usage) {
    VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr, usage, nullptr};
    check(d, d->vkBeginCommandBuffer(buffer, &info), "vkBeginCommandBuffer");
}

VkCommandBuffer new_buffer_of(fgv_device *d, VkCommandPool pool) {
    VkCommandBufferAllocateInfo info{
        VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    VkCommandBuffer buffer = nullptr;
    check(d, d->vkAllocateCommandBuffers(d->handle, &info, &buffer), "vkAllocateCommandBuffers");
    return buffer;
}

void record_dispatch(fgv_device *d, VkCommandBuffer buffer, const fgv_commands &c, size_t i, bool bind) {
    if (bind) d->vkCmdBindPipeline(buffer, VK_PIPELINE_BIND_POINT_COMPUTE, c.pipelines[c.which[i]]->handle);
    d->vkCmdPushConstants(buffer, d->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(uint64_t), &c.tables[i]);
    d->vkCmdDispatch(buffer, c.groups[3 * i], c.groups[3 * i + 1], c.groups[3 * i + 2]);
}

void record(fgv_commands &c) {
    fgv_device *d = c.device;
    VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, d->candidate->family};
    check(d, d->vkCreateCommandPool(d->handle, &pool, nullptr, &c.pool), "vkCreateCommandPool");
    c.buffer = new_buffer_of(d, c.pool);
    begin(d, c.buffer, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
    barrier(d, c.buffer);
    for (size_t i = 0; i < c.which.size(); ++i) {
        if (i > 0 && c.barriers[i]) barrier(d, c.buffer);
        record_dispatch(d, c.buffer, c, i, i == 0 || c.which[i] != c.which[i - 1]);
    }
    check(d, d->vkEndCommandBuffer(c.buffer), "vkEndCommandBuffer");
}

// A pool that outlives the commands that write to it, also where waiting for them fails.
struct Queries {
    fgv_device *d;
    VkQueryPool pool = nullptr;
    explicit Queries(fgv_device *device) : d(device) {
        VkQueryPoolCreateInfo info{
            VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, nullptr, 0, VK_QUERY_TYPE_TIMESTAMP, PROFILED + 1, 0};
        check(d, d->vkCreateQueryPool(d->handle, &info, nullptr, &pool), "vkCreateQueryPool");
    }
    Queries(const Queries &) = delete;
    ~Queries() {
        guarded<int>(-1, nullptr, 0, [&] {
            d->dying.push_back({d->submitted, Buffer(), nullptr, pool});
            collect(d);
            return 0;
        });
    }
};

// Runs dispatches first to first + n - 1 with a timestamp before the first and after each.
void profile_some(fgv_device *d, fgv_commands &c, VkQueryPool pool, size_t first, uint32_t n, int64_t *ns) {
    VkCommandBuffer buffer = begin_transient(d);
    uint64_t ticket = 0;
    try {
        d->vkCmdResetQueryPool(buffer, pool, 0, n + 1);
        barrier(d, buffer);
        d->vkCmdWriteTimestamp(buffer, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool, 0);
        for (uint32_t i = 0; i < n; ++i) {
            record_dispatch(d, buffer, c, first + i, true);
            barrier(d, buffer);
            d->vkCmdWriteTimestamp(buffer, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool, i + 1);
        }
        check(d, d->vkEndCommandBuffer(buffer), "vkEndCommandBuffer");
        ticket = submit(d, &buffer, 1);
    } catch (...) {
        end_transient(d, buffer, 0);
        throw;
    }
    end_transient(d, buffer, ticket);
    c.ticket = ticket;
    wait_for(d, ticket);
    std::vector<uint64_t> stamps(n + 1);
    check(d,
        d->vkGetQueryPoolResults(d->handle, pool, 0, n + 1, stamps.size() * 8, stamps.data(), 8,
            VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
        "vkGetQueryPoolResults");
    const uint32_t bits = d->candidate->timestamp_bits;
    const uint64_t mask = bits >= 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1;
    const double unit = double(d->candidate->properties.limits.timestampPeriod);
    for (uint32_t i = 0; i < n; ++i) ns[first + i] = int64_t(double((stamps[i + 1] - stamps[i]) & mask) * unit);
}

} // namespace

Lock locked(fgv_device *d) {
    alive(d); // before the lock: in a forked child nobody may ever open it
    Lock lock(d->mutex);
    alive(d);
    return lock;
}

VkCommandBuffer begin_transient(fgv_device *d) {
    VkCommandBuffer buffer = nullptr;
    if (!d->transients.empty() && d->transients.front().first > d->completed) {
        if (d->transients.size() >= MOST_TRANSIENTS) wait_for(d, d->transients.front().first);
        else poll(d);
    }
    if (!d->transients.empty() && d->transients.front().first <= d->completed) {
        buffer = d->transients.front().second;
        d->transients.pop_front();
    } else {
        buffer = new_buffer_of(d, d->pool);
    }
    try {
        begin(d, buffer, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT); // which resets it
    } catch (...) {
        end_transient(d, buffer, 0);
        throw;
    }
    return buffer;
}

void end_transient(fgv_device *d, VkCommandBuffer buffer, uint64_t ticket) {
    if (ticket) d->transients.emplace_back(ticket, buffer);
    else d->transients.emplace_front(0, buffer);
}

void barrier(fgv_device *d, VkCommandBuffer buffer) {
    VkMemoryBarrier all{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, WRITES, READS | WRITES};
    d->vkCmdPipelineBarrier(buffer, STAGES, STAGES, 0, 1, &all, 0, nullptr, 0, nullptr);
}

uint64_t submit(fgv_device *d, const VkCommandBuffer *buffers, uint32_t n) {
    const uint64_t ticket = d->submitted + 1;
    VkTimelineSemaphoreSubmitInfo values{
        VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, nullptr, 0, nullptr, 1, &ticket};
    VkSubmitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    info.pNext = &values;
    info.commandBufferCount = n;
    info.pCommandBuffers = buffers;
    info.signalSemaphoreCount = 1;
    info.pSignalSemaphores = &d->timeline;
    check(d, d->vkQueueSubmit(d->queue, 1, &info, nullptr), "vkQueueSubmit");
    d->submitted = ticket;
    return ticket;
}

static void reached(fgv_device *d, uint64_t value) {
    uint64_t before = d->completed;
    while (before < value && !d->completed.compare_exchange_weak(before, value)) {
    }
}

void poll(fgv_device *d) {
    uint64_t value = 0;
    check(d, d->vkGetSemaphoreCounterValue(d->handle, d->timeline, &value), "vkGetSemaphoreCounterValue");
    if (value == ~uint64_t(0)) { // what the specification lets a lost device say
        d->lost = true;
        alive(d);
    }
    reached(d, value);
}

void wait_for(fgv_device *d, uint64_t ticket) {
    // A GPU's short work is done sooner than a sleeping thread would be woken.
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(d->limits[7] ? 0 : SPIN);
    while (d->completed < ticket && std::chrono::steady_clock::now() < until) poll(d);
    while (d->completed < ticket) {
        alive(d);
        VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &d->timeline, &ticket};
        const VkResult result = d->vkWaitSemaphores(d->handle, &info, SLICE);
        if (result == VK_SUCCESS) reached(d, ticket);
        else if (result == VK_TIMEOUT) poll(d);
        else check(d, result, "vkWaitSemaphores");
    }
    alive(d);
}

} // namespace fgv

using namespace fgv;

fgv_commands *fgv_commands_new(fgv_device *d, int64_t n, fgv_pipeline *const *pipelines, const uint64_t *tables,
    const uint32_t *groups, const uint8_t *barriers, char *err, int err_size) {
    return guarded<fgv_commands *>(nullptr, err, err_size, [&] {
        alive(d);
        if (n < 0) throw std::runtime_error("the number of dispatches is negative");
        auto commands = std::make_unique<fgv_commands>(d);
        take_dispatches(*commands, n, pipelines, tables, groups, barriers);
        check_groups(d, *commands);
        record(*commands);
        return commands.release();
    });
}

void fgv_commands_free(fgv_commands *commands) {
    if (!commands) return;
    guarded<int>(-1, nullptr, 0, [&] {
        fgv_device *d = commands->device;
        const Lock lock = locked(d);
        d->dying.push_back({commands->ticket, Buffer(), commands, nullptr});
        collect(d);
        return 0;
    });
}

int64_t fgv_submit(fgv_device *d, fgv_commands *commands, char *err, int err_size) {
    return guarded<int64_t>(-1, err, err_size, [&] {
        const Lock lock = locked(d);
        if (!commands || commands->device != d) throw std::runtime_error("the commands are not of this device");
        collect(d);
        VkCommandBuffer copies = record_pending(d);
        const VkCommandBuffer buffers[2] = {copies ? copies : commands->buffer, commands->buffer};
        uint64_t ticket = 0;
        try {
            ticket = submit(d, buffers, copies ? 2 : 1);
        } catch (...) {
            pending_submitted(d, copies, 0);
            throw;
        }
        commands->ticket = ticket;
        pending_submitted(d, copies, ticket);
        return int64_t(ticket);
    });
}

int fgv_wait(fgv_device *d, int64_t ticket, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        alive(d);
        if (ticket < 0 || uint64_t(ticket) > d->submitted) throw std::runtime_error("no such ticket");
        wait_for(d, uint64_t(ticket));
        return 0;
    });
}

int fgv_done(fgv_device *d, int64_t ticket) {
    return guarded<int>(-1, nullptr, 0, [&] {
        alive(d);
        if (uint64_t(ticket) > d->completed) poll(d);
        return uint64_t(ticket) <= d->completed ? 1 : 0;
    });
}

int fgv_profile(fgv_device *d, fgv_commands *commands, int64_t *ns, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        const Lock lock = locked(d);
        if (!commands || commands->device != d) throw std::runtime_error("the commands are not of this device");
        if (!d->candidate->timestamp_bits) throw std::runtime_error("the device has no timestamps");
        flush(d);
        const Queries queries(d);
        for (size_t first = 0; first < commands->which.size(); first += PROFILED) {
            profile_some(d, *commands, queries.pool, first,
                uint32_t(std::min<size_t>(PROFILED, commands->which.size() - first)), ns);
        }
        return 0;
    });
}
