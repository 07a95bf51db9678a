// Opening a device: what is enabled, what it can do, and the objects that live as long as it does.
#include <algorithm>

#include "vk_features.h"

namespace fgv {
namespace {

struct Properties {
    VkPhysicalDeviceProperties2 core{};
    VkPhysicalDeviceVulkan11Properties v11{};
    VkPhysicalDeviceVulkan12Properties v12{};
    VkPhysicalDeviceSubgroupSizeControlProperties size{};
    VkPhysicalDeviceMaintenance4Properties largest{};

    Properties(const Instance &in, const Candidate &device, bool size_control) {
        core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
        v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES;
        v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES;
        size.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES;
        largest.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES;
        core.pNext = &v11;
        v11.pNext = &v12;
        if (size_control) v12.pNext = &size;
        if (device.properties.apiVersion >= version(1, 3)) v11.pNext = &largest;
        largest.pNext = &v12;
        in.vkGetPhysicalDeviceProperties2(device.handle, &core);
        if (!size_control || !(size.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT)) {
            size.minSubgroupSize = size.maxSubgroupSize = v11.subgroupSize;
        }
    }
    Properties(const Properties &) = delete;
};

// Whether subgroups multiply 16x16 matrices of a type into float32.
bool multiplies(const Instance &in, VkPhysicalDevice device, VkComponentTypeKHR type) {
    if (!in.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR) return false;
    uint32_t n = 0;
    if (in.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(device, &n, nullptr) != VK_SUCCESS) return false;
    VkCooperativeMatrixPropertiesKHR blank{};
    blank.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    std::vector<VkCooperativeMatrixPropertiesKHR> all(n, blank);
    if (in.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(device, &n, all.data()) < 0) return false;
    all.resize(n);
    return std::any_of(all.begin(), all.end(), [&](const VkCooperativeMatrixPropertiesKHR &p) {
        return p.MSize == 16 && p.NSize == 16 && p.KSize == 16 && p.AType == type && p.BType == type &&
            p.CType == VK_COMPONENT_TYPE_FLOAT32_KHR && p.ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
            p.scope == VK_SCOPE_SUBGROUP_KHR;
    });
}

int64_t heap_bytes(const VkPhysicalDeviceMemoryProperties &memory) {
    VkDeviceSize most = 0;
    for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
        if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            most = std::max(most, memory.memoryHeaps[i].size);
    }
    return int64_t(most);
}

void fill_limits(fgv_device *d, const Instance &in, const Features &f) {
    const Properties p(in, *d->candidate, d->size_control);
    const VkPhysicalDeviceLimits &l = p.core.properties.limits;
    const int64_t heap = heap_bytes(d->memory);
    const bool matrix = f.matrix.cooperativeMatrix;
    // maxMemoryAllocationSize is what surely works; drivers allow more where they can, up to the size of a buffer.
    const uint64_t largest = p.largest.maxBufferSize ? p.largest.maxBufferSize : p.v11.maxMemoryAllocationSize;
    const int64_t one = int64_t(std::min<uint64_t>(largest, uint64_t(heap)));
    const bool arithmetic = p.v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT &&
        p.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    d->limits = {p.v11.subgroupSize, l.maxComputeWorkGroupInvocations, l.maxComputeSharedMemorySize,
        l.maxComputeWorkGroupCount[0], l.maxComputeWorkGroupCount[1], l.maxComputeWorkGroupCount[2], heap,
        software(*d->candidate), f.core.features.shaderInt64 != 0, f.v12.shaderFloat16 != 0,
        matrix && multiplies(in, d->candidate->handle, VK_COMPONENT_TYPE_FLOAT16_KHR), p.core.properties.vendorID, one,
        int64_t(double(l.timestampPeriod) * 1e6), p.v12.shaderDenormPreserveFloat32 != 0,
        p.v12.shaderSignedZeroInfNanPreserveFloat32 != 0, p.size.minSubgroupSize, p.size.maxSubgroupSize,
        f.v12.vulkanMemoryModel != 0,
        matrix && f.bfloat16.shaderBFloat16CooperativeMatrix &&
            multiplies(in, d->candidate->handle, VK_COMPONENT_TYPE_BFLOAT16_KHR),
        std::any_of(f.matrix2.all, f.matrix2.all + 7, [](VkBool32 b) { return b != 0; }), l.maxPushConstantsSize,
        arithmetic};
    d->description = std::string(p.core.properties.deviceName) + " (" + p.v12.driverName + " " + p.v12.driverInfo + ")";
}

void create_device(fgv_device *d, const Instance &in, const Features &f, const std::vector<const char *> &extensions) {
    const float priority = 1;
    VkDeviceQueueCreateInfo queue{
        VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, d->candidate->family, 1, &priority};
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.pNext = &f.core;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    info.enabledExtensionCount = uint32_t(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    check(d, in.vkCreateDevice(d->candidate->handle, &info, nullptr, &d->handle), "vkCreateDevice");
#define FGV_LOAD(result, name, parameters) resolve(d->name, in.vkGetDeviceProcAddr(d->handle, #name), #name);
    FGV_DEVICE_FUNCTIONS(FGV_LOAD)
#undef FGV_LOAD
    d->vkGetDeviceQueue(d->handle, d->candidate->family, 0, &d->queue);
}

void create_objects(fgv_device *d) {
    VkSemaphoreTypeCreateInfo type{
        VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr, VK_SEMAPHORE_TYPE_TIMELINE, 0};
    VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
    check(d, d->vkCreateSemaphore(d->handle, &semaphore, nullptr, &d->timeline), "vkCreateSemaphore");
    VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(uint64_t)};
    VkPipelineLayoutCreateInfo layout{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, nullptr, 0, 0, nullptr, 1, &range};
    check(d, d->vkCreatePipelineLayout(d->handle, &layout, nullptr, &d->layout), "vkCreatePipelineLayout");
    VkPipelineCacheCreateInfo cache{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, nullptr, 0, 0, nullptr};
    check(d, d->vkCreatePipelineCache(d->handle, &cache, nullptr, &d->cache), "vkCreatePipelineCache");
    VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
        VK_COMMAND_POOL_CREATE_TRANSIENT_BIT | VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, d->candidate->family};
    check(d, d->vkCreateCommandPool(d->handle, &pool, nullptr, &d->pool), "vkCreateCommandPool");
}

std::unique_ptr<fgv_device> open_device(const Instance &in, const Candidate *candidate) {
    auto d = std::make_unique<fgv_device>();
    d->candidate = candidate;
    VkPhysicalDeviceMemoryProperties2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    in.vkGetPhysicalDeviceMemoryProperties2(candidate->handle, &memory);
    d->memory = memory.memoryProperties;

    const auto present = listed<VkExtensionProperties>([&](uint32_t *n, VkExtensionProperties *p) {
        return in.vkEnumerateDeviceExtensionProperties(candidate->handle, nullptr, n, p);
    });
    std::vector<const char *> extensions;
    auto enable = [&](const char *name) {
        if (contains(present, name)) extensions.push_back(name);
        return contains(present, name);
    };
    Features f;
    d->has_budget = enable("VK_EXT_memory_budget");
    enable("VK_KHR_portability_subset"); // must be enabled where it is present
    const bool core_size_control = candidate->properties.apiVersion >= version(1, 3);
    if (core_size_control || enable("VK_EXT_subgroup_size_control")) f.chain(f.size);
    if (enable("VK_KHR_cooperative_matrix")) f.chain(f.matrix);
    if (enable("VK_NV_cooperative_matrix2")) f.chain(f.matrix2);
    if (enable("VK_KHR_shader_bfloat16")) f.chain(f.bfloat16);
    in.vkGetPhysicalDeviceFeatures2(candidate->handle, &f.core);
    f.keep_wanted();
    d->size_control = f.size.subgroupSizeControl;
    d->full_subgroups = f.size.computeFullSubgroups;
    create_device(d.get(), in, f, extensions);
    create_objects(d.get());
    fill_limits(d.get(), in, f);
    return d;
}

} // namespace

void alive(const fgv_device *d) {
    if (in_forked_child())
        throw std::runtime_error("the device belongs to the parent process: start the process by spawn, not by fork");
    if (d->lost) throw std::runtime_error("device lost");
}

void check(fgv_device *d, VkResult result, const char *call) {
    if (result == VK_SUCCESS) return;
    if (result == VK_ERROR_DEVICE_LOST) {
        d->lost = true;
        throw std::runtime_error("device lost");
    }
    fail(result, call);
}

} // namespace fgv

using namespace fgv;

// Only for a device that could not be opened: an open one stays until the process ends.
fgv_device::~fgv_device() {
    if (!handle || !vkDestroyDevice) return;
    if (pool) vkDestroyCommandPool(handle, pool, nullptr);
    if (cache) vkDestroyPipelineCache(handle, cache, nullptr);
    if (layout) vkDestroyPipelineLayout(handle, layout, nullptr);
    if (timeline) vkDestroySemaphore(handle, timeline, nullptr);
    vkDestroyDevice(handle, nullptr);
}

fgv_device *fgv_open(int index, char *err, int err_size) {
    return guarded<fgv_device *>(nullptr, err, err_size, [&] {
        const Instance &in = instance();
        const auto found = usable(in);
        if (index < 0 || size_t(index) >= found.size()) throw std::runtime_error("no such device");
        return open_device(in, found[size_t(index)]).release();
    });
}

const char *fgv_description(fgv_device *d) { return d->description.c_str(); }

int fgv_limits(fgv_device *d, int64_t *out, int n) {
    const int all = int(d->limits.size());
    std::copy_n(d->limits.begin(), std::max(0, std::min(n, all)), out);
    return all;
}
