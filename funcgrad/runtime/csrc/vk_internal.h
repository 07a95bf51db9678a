/* What the vk_*.cpp files share. */
#ifndef FG_VK_INTERNAL_H
#define FG_VK_INTERNAL_H
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "internal_guard.h"
#include "vk.h"
#include "vk_api.h"

namespace fgv {

using Lock = std::unique_lock<std::mutex>;

struct InstanceFunctions {
#define FGV_MEMBER(result, name, parameters) PFN_##name name = nullptr;
    FGV_INSTANCE_FUNCTIONS(FGV_MEMBER)
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR = nullptr;
};
struct DeviceFunctions {
    FGV_DEVICE_FUNCTIONS(FGV_MEMBER)
#undef FGV_MEMBER
};

// A physical device with all that is needed, and what else it can do.
struct Candidate {
    VkPhysicalDevice handle = nullptr;
    VkPhysicalDeviceProperties properties{};
    uint32_t family = 0, timestamp_bits = 0;
    std::string unusable; // why, or empty
};

struct Instance : InstanceFunctions {
    Instance() = default;
    Instance(const Instance &) = delete;
    VkInstance handle = nullptr;
    std::vector<Candidate> devices; // the usable ones, in order
    std::string left_out;           // names the others

    ~Instance() { // only where something failed: once it is in use it stays until the process ends
        if (handle && vkDestroyInstance) vkDestroyInstance(handle, nullptr);
    }
};
const Instance &instance();
bool in_forked_child();

struct Buffer {
    VkBuffer handle = nullptr;
    VkDeviceMemory memory = nullptr;
    int64_t size = 0;
    uint64_t base = 0, address = 0; // of its beginning; rounded up to what is used
    char *mapped = nullptr;
};

// One memory allocation of the driver: one large piece, or many small ones.
struct Block {
    Buffer buffer;
    int64_t carved = 0; // bytes handed out from the beginning, when they are small pieces
    int64_t live = 0;   // bytes that are allocated now
};

struct Copy {
    VkBuffer from, to;
    VkBufferCopy region;
    uint64_t from_address, to_address; // from_address 0: the staging ring
    bool barrier;                      // it must wait for those before it
};

// Host memory that writes go through. Positions grow; the place in the buffer is their remainder.
struct Ring {
    Buffer buffer;
    uint64_t head = 0, tail = 0;
    std::deque<std::pair<uint64_t, uint64_t>> in_flight; // ticket, head
};

// Something to destroy once a ticket is reached.
struct Dying {
    uint64_t ticket;
    Buffer buffer;
    fgv_commands *commands;
    VkQueryPool queries;
};

} // namespace fgv

struct fgv_device : fgv::DeviceFunctions {
    const fgv::Candidate *candidate = nullptr;
    std::string description;
    std::vector<int64_t> limits;
    VkPhysicalDeviceMemoryProperties memory{};
    bool has_budget = false, size_control = false, full_subgroups = false;
    VkDevice handle = nullptr;
    VkQueue queue = nullptr;
    VkSemaphore timeline = nullptr;
    VkPipelineLayout layout = nullptr;
    VkPipelineCache cache = nullptr; // Vulkan synchronises its users

    std::mutex mutex; // guards what follows, and the queue
    std::atomic<bool> lost{false};
    std::atomic<uint64_t> submitted{0}, completed{0};
    VkCommandPool pool = nullptr;
    std::deque<std::pair<uint64_t, VkCommandBuffer>> transients; // ticket, command buffer of copies; oldest first
    std::map<uint64_t, fgv::Block> blocks;                       // by address
    std::map<uint64_t, int64_t> live;                            // what is allocated: address, bytes
    std::map<int64_t, std::vector<uint64_t>> unused;             // what was released: bytes, addresses
    uint64_t carving = 0;                                        // the block that small pieces come from
    int64_t allocated = 0, cached = 0;
    std::vector<fgv::Copy> pending; // not submitted yet
    int64_t pending_bytes = 0;
    fgv::Ring ring;
    std::deque<fgv::Dying> dying;

    std::mutex read_mutex; // taken before mutex; guards readback
    fgv::Buffer readback;

    ~fgv_device();
};

namespace fgv {

struct Pipeline {
    fgv_device *device;
    VkPipeline handle = nullptr;
    explicit Pipeline(fgv_device *d) : device(d) {}
    Pipeline(const Pipeline &) = delete;
    ~Pipeline() {
        if (handle) device->vkDestroyPipeline(device->handle, handle, nullptr);
    }
};

// vk_device.cpp
void check(fgv_device *d, VkResult result, const char *call); // throws unless it is VK_SUCCESS
void alive(const fgv_device *d);                              // throws when the device cannot be used any more

// vk_memory.cpp
Buffer new_buffer(fgv_device *d, int64_t size, VkFlags usage, VkFlags properties);
void destroy(fgv_device *d, Buffer &buffer);
void collect(fgv_device *d); // really frees what is not in use any more
// The buffer that holds an address, and where; throws unless n bytes from there are one allocation's.
std::pair<VkBuffer, VkDeviceSize> find(fgv_device *d, uint64_t address, int64_t n);

// vk_transfer.cpp
uint64_t flush(fgv_device *d);                 // submits the pending copies; returns the last ticket
VkCommandBuffer record_pending(fgv_device *d); // nullptr when there are none
void pending_submitted(fgv_device *d, VkCommandBuffer buffer, uint64_t ticket);

// vk_commands.cpp
Lock locked(fgv_device *d); // the mutex of a device that is alive
VkCommandBuffer begin_transient(fgv_device *d);
void end_transient(fgv_device *d, VkCommandBuffer buffer, uint64_t ticket); // 0: it was not submitted
void barrier(fgv_device *d, VkCommandBuffer buffer);
uint64_t submit(fgv_device *d, const VkCommandBuffer *buffers, uint32_t n);
void poll(fgv_device *d);                      // brings d->completed up to date
void wait_for(fgv_device *d, uint64_t ticket); // the mutex need not be held

} // namespace fgv

struct fgv_pipeline {
    std::shared_ptr<fgv::Pipeline> shared;
};

struct fgv_commands {
    fgv_device *device;
    VkCommandPool pool = nullptr;
    VkCommandBuffer buffer = nullptr;
    uint64_t ticket = 0; // of the last submission
    std::vector<std::shared_ptr<fgv::Pipeline>> pipelines;
    std::vector<uint32_t> which; // of pipelines, for each dispatch
    std::vector<uint64_t> tables;
    std::vector<uint32_t> groups;
    std::vector<uint8_t> barriers;
    explicit fgv_commands(fgv_device *d) : device(d) {}
    fgv_commands(const fgv_commands &) = delete;
    ~fgv_commands() {
        if (pool) device->vkDestroyCommandPool(device->handle, pool, nullptr);
    }
};
#endif
