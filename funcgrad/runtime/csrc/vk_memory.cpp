// Device memory: blocks of the driver, and pieces of blocks.
//
// All work of a device is in one order, so memory that is released can be given out again at once: what uses it next
// runs later. Released memory is therefore kept by size; the driver gets it back when there is none left.
#include <algorithm>
#include <iterator>

#include "vk_internal.h"

namespace fgv {
namespace {

constexpr int64_t ALIGNMENT = 256;
constexpr int64_t SMALL = int64_t(1) << 20;   // up to here, pieces of shared blocks
constexpr int64_t SHARED = int64_t(16) << 20; // bytes of a shared block
constexpr int64_t COARSEST = int64_t(16) << 20;

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

Block &block_of(fgv_device *d, uint64_t address) { return std::prev(d->blocks.upper_bound(address))->second; }

// Gives the driver the blocks that nothing lives in; true when there were any.
bool trim(fgv_device *d) {
    flush(d);
    for (auto &[size, addresses] : d->unused) {
        const auto gone = [&](uint64_t address) { return block_of(d, address).live == 0; };
        const auto kept = std::remove_if(addresses.begin(), addresses.end(), gone);
        d->cached -= size * (addresses.end() - kept);
        addresses.erase(kept, addresses.end());
    }
    bool any = !d->dying.empty();
    for (auto it = d->blocks.begin(); it != d->blocks.end();) {
        if (it->second.live == 0) {
            d->dying.push_back({d->submitted, it->second.buffer, nullptr, nullptr});
            if (it->first == d->carving) d->carving = 0; // another block may get its address
            it = d->blocks.erase(it);
            any = true;
        } else {
            ++it;
        }
    }
    wait_for(d, d->submitted);
    collect(d);
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
        block_of(d, address).live += it->first;
        it->second.pop_back();
        d->cached -= it->first;
        return address;
    }
    const uint64_t address = size <= SMALL ? carve(d, size) : name_of(d, new_block(d, size));
    d->live.emplace(address, size);
    block_of(d, address).live += size;
    return address;
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
        const VkFlags fewer = properties & ~VkFlags(VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
        if (type < 0) type = memory_type(d, needs.memoryTypeBits, fewer);
        if (type < 0) throw std::runtime_error("the device has no memory of a kind that is needed");
        VkMemoryAllocateFlagsInfo flags{
            VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, nullptr, VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
        VkMemoryAllocateInfo allocation{
            VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, addressed ? &flags : nullptr, needs.size, uint32_t(type)};
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

// The buffer that holds an address, and where; throws unless n bytes from there are one allocation's.
std::pair<VkBuffer, VkDeviceSize> find(fgv_device *d, uint64_t address, int64_t n) {
    auto live = d->live.upper_bound(address);
    auto block = d->blocks.upper_bound(address);
    if (n < 0 || live == d->live.begin() || block == d->blocks.begin())
        throw std::runtime_error("the address is not allocated");
    --live;
    --block;
    const uint64_t offset = address - live->first;
    if (offset > uint64_t(live->second) || uint64_t(n) > uint64_t(live->second) - offset) {
        throw std::runtime_error("the addresses are not in one allocation");
    }
    return {block->second.buffer.handle, address - block->second.buffer.base};
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
        if (gone.queries) d->vkDestroyQueryPool(d->handle, gone.queries, nullptr);
        delete gone.commands;
    }
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
        const int64_t most = d->limits[12] - ALIGNMENT; // a buffer has this much more, to begin where it is aligned
        if (n_bytes > most) throw std::bad_alloc();
        const int64_t size = std::min(rounded(n_bytes), most);
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
        block_of(d, address).live -= found->second;
        d->live.erase(found);
        return 0;
    });
}

void fgv_trim(fgv_device *d) {
    guarded<int>(-1, nullptr, 0, [&] {
        const Lock lock = locked(d);
        trim(d);
        return 0;
    });
}
