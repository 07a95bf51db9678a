// The Vulkan loader, the devices that can be used, and opening one.
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "vk_internal.h"

namespace fgv {
namespace {

std::atomic<bool> forked{false};

uint32_t version(uint32_t major, uint32_t minor) { return major << 22 | minor << 12; }

const char *result_name(VkResult result) {
    switch (result) {
    case VK_ERROR_INITIALIZATION_FAILED: return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_EXTENSION_NOT_PRESENT: return "VK_ERROR_EXTENSION_NOT_PRESENT";
    case VK_ERROR_FEATURE_NOT_PRESENT: return "VK_ERROR_FEATURE_NOT_PRESENT";
    case VK_ERROR_INCOMPATIBLE_DRIVER: return "VK_ERROR_INCOMPATIBLE_DRIVER";
    case VK_ERROR_TOO_MANY_OBJECTS: return "VK_ERROR_TOO_MANY_OBJECTS";
    default: return nullptr;
    }
}

[[noreturn]] void fail(VkResult result, const char *call) {
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY) throw std::bad_alloc();
    const char *name = result_name(result);
    throw std::runtime_error(std::string(call) + " failed: " + (name ? name : "VkResult " + std::to_string(result)));
}

template <typename T, typename F>
std::vector<T> listed(F fill) {
    uint32_t n = 0;
    std::vector<T> items;
    VkResult result = fill(&n, nullptr);
    while (result == VK_SUCCESS) { // the number may grow between the calls
        items.assign(n, T{});
        result = fill(&n, items.data());
        if (result == VK_SUCCESS) break;
        if (result == VK_INCOMPLETE) result = fill(&n, nullptr);
    }
    if (result != VK_SUCCESS) fail(result, "listing what Vulkan has");
    items.resize(n);
    return items;
}

bool contains(const std::vector<VkExtensionProperties> &all, const char *name) {
    return std::any_of(all.begin(), all.end(), [&](const VkExtensionProperties &e) { return !strcmp(e.extensionName, name); });
}

PFN_vkGetInstanceProcAddr load_library() {
#ifdef __APPLE__
    const char *names[] = {"libvulkan.1.dylib", "libvulkan.dylib", "libMoltenVK.dylib"};
#else
    const char *names[] = {"libvulkan.so.1", "libvulkan.so"};
#endif
    for (const char *name : names) {
        if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
            if (void *f = dlsym(library, "vkGetInstanceProcAddr")) return reinterpret_cast<PFN_vkGetInstanceProcAddr>(f);
            dlclose(library);
        }
    }
    throw std::runtime_error(std::string("no Vulkan loader was found: install ") + names[0] + " (Debian, Ubuntu: apt install libvulkan1) and a driver");
}

template <typename F>
void resolve(F &to, PFN_vkVoidFunction found, const char *name) {
    if (!found) throw std::runtime_error(std::string("the Vulkan driver has no ") + name);
    to = reinterpret_cast<F>(found);
}

VkInstance new_instance(PFN_vkGetInstanceProcAddr get) {
#define FGV_LOAD(result, name, parameters) PFN_##name name; resolve(name, get(nullptr, #name), #name);
    FGV_GLOBAL_FUNCTIONS(FGV_LOAD)
#undef FGV_LOAD
    uint32_t api = 0;
    if (vkEnumerateInstanceVersion(&api) != VK_SUCCESS || api < version(1, 2)) {
        throw std::runtime_error("the Vulkan loader is too old: 1.2 is required");
    }
    const auto extensions = listed<VkExtensionProperties>(
        [&](uint32_t *n, VkExtensionProperties *p) { return vkEnumerateInstanceExtensionProperties(nullptr, n, p); });
    const char *portability = "VK_KHR_portability_enumeration"; // else the loader hides such devices
    VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "funcgrad", 0, "funcgrad", 0, version(1, 3)};
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    if (contains(extensions, portability)) {
        info.flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
        info.enabledExtensionCount = 1;
        info.ppEnabledExtensionNames = &portability;
    }
    VkInstance handle = nullptr;
    const VkResult result = vkCreateInstance(&info, nullptr, &handle);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER) throw std::runtime_error("no Vulkan driver was found");
    if (result != VK_SUCCESS) fail(result, "vkCreateInstance");
    return handle;
}

// What features a device has; the same structures, cut down to what is wanted, enable them.
struct Features {
    VkPhysicalDeviceFeatures2 core{};
    VkPhysicalDeviceVulkan11Features v11{};
    VkPhysicalDeviceVulkan12Features v12{};
    VkPhysicalDeviceSubgroupSizeControlFeatures size{};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix{};
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV matrix2{};
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16{};

    Features() {
        core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
        v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
        v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
        size.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
        matrix.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
        matrix2.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV;
        bfloat16.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR;
        core.pNext = &v11;
        v11.pNext = &v12;
    }
    Features(const Features &) = delete;
    template <typename T>
    void chain(T &more) {
        more.pNext = v12.pNext;
        v12.pNext = &more;
    }
    bool enough() const {
        return core.features.shaderInt16 && v11.storageBuffer16BitAccess && v12.storageBuffer8BitAccess && v12.shaderInt8 &&
            v12.timelineSemaphore && v12.bufferDeviceAddress;
    }
    // Clears what was not asked for, so that nothing is enabled that costs speed (robust access, capture and replay).
    void keep_wanted() {
        VkPhysicalDeviceFeatures f{};
        f.shaderInt64 = core.features.shaderInt64;
        f.shaderInt16 = core.features.shaderInt16;
        core.features = f;
        memset(v11.spare, 0, sizeof v11.spare);
        for (auto *spare : {v12.spare0, v12.spare3, v12.spare4, v12.spare5}) memset(spare, 0, 2 * sizeof(VkBool32));
        memset(v12.spare1, 0, sizeof v12.spare1);
        memset(v12.spare2, 0, sizeof v12.spare2);
        memset(v12.spare6, 0, sizeof v12.spare6);
        matrix.cooperativeMatrixRobustBufferAccess = 0;
    }
};

Candidate examine(const Instance &in, VkPhysicalDevice handle) {
    Candidate c;
    c.handle = handle;
    in.vkGetPhysicalDeviceProperties(handle, &c.properties);
    if (c.properties.apiVersion < version(1, 2)) {
        c.unusable = "it has no Vulkan 1.2";
        return c;
    }
    Features features;
    in.vkGetPhysicalDeviceFeatures2(handle, &features.core);
    const auto families = listed<VkQueueFamilyProperties>([&](uint32_t *n, VkQueueFamilyProperties *p) {
        in.vkGetPhysicalDeviceQueueFamilyProperties(handle, n, p);
        return VK_SUCCESS;
    });
    int best = -1; // one without graphics if there is one: it is not disturbed by a screen. Compute implies transfer.
    for (size_t i = 0; i < families.size(); ++i) {
        const bool compute = families[i].queueFlags & VK_QUEUE_COMPUTE_BIT && families[i].queueCount;
        if (compute && (best < 0 || !(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT))) {
            best = int(i);
            if (!(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT)) break;
        }
    }
    if (best < 0) c.unusable = "it has no compute queue";
    else if (!features.enough()) c.unusable = "it lacks 8 or 16 bit integers, buffer addresses or timeline semaphores";
    c.family = uint32_t(std::max(best, 0));
    c.timestamp_bits = best < 0 ? 0 : families[size_t(best)].timestampValidBits;
    return c;
}

int rank(const Candidate &c) {
    switch (c.properties.deviceType) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return 4;
    default: return 3;
    }
}

std::unique_ptr<Instance> make_instance() {
    if (sizeof(void *) != 8) throw std::runtime_error("Vulkan is used on 64-bit platforms only");
    auto in = std::make_unique<Instance>();
    const PFN_vkGetInstanceProcAddr get = load_library();
    in->handle = new_instance(get);
#define FGV_LOAD(result, name, parameters) resolve(in->name, get(in->handle, #name), #name);
    FGV_INSTANCE_FUNCTIONS(FGV_LOAD)
#undef FGV_LOAD
    in->vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR =
        reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
            get(in->handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
    for (VkPhysicalDevice handle : listed<VkPhysicalDevice>([&](uint32_t *n, VkPhysicalDevice *p) {
             return in->vkEnumeratePhysicalDevices(in->handle, n, p);
         })) {
        Candidate c = examine(*in, handle);
        if (c.unusable.empty()) in->devices.push_back(c);
        else in->left_out += (in->left_out.empty() ? "" : "; ") + std::string(c.properties.deviceName) + ": " + c.unusable;
    }
    std::stable_sort(in->devices.begin(), in->devices.end(), [](auto &a, auto &b) { return rank(a) < rank(b); });
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return in;
}

bool software(const Candidate &c) { return c.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU; }

bool software_wanted() {
    const char *ours = getenv("FUNCGRAD_VULKAN_SOFTWARE"), *ggml = getenv("GGML_VK_VISIBLE_DEVICES");
    return (ours && !strcmp(ours, "1")) || (ggml && *ggml);
}

std::vector<const Candidate *> usable(const Instance &in) {
    std::vector<const Candidate *> found;
    for (const Candidate &c : in.devices) {
        if (!software(c) || software_wanted()) found.push_back(&c);
    }
    return found;
}

struct Properties {
    VkPhysicalDeviceProperties2 core{};
    VkPhysicalDeviceVulkan11Properties v11{};
    VkPhysicalDeviceVulkan12Properties v12{};
    VkPhysicalDeviceSubgroupSizeControlProperties size{};

    Properties(const Instance &in, VkPhysicalDevice device, bool size_control) {
        core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
        v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES;
        v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES;
        size.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES;
        core.pNext = &v11;
        v11.pNext = &v12;
        if (size_control) v12.pNext = &size;
        in.vkGetPhysicalDeviceProperties2(device, &core);
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
            p.CType == VK_COMPONENT_TYPE_FLOAT32_KHR && p.ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR && p.scope == VK_SCOPE_SUBGROUP_KHR;
    });
}

int64_t heap_bytes(const VkPhysicalDeviceMemoryProperties &memory) {
    VkDeviceSize most = 0;
    for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
        if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) most = std::max(most, memory.memoryHeaps[i].size);
    }
    return int64_t(most);
}

void fill_limits(fgv_device *d, const Instance &in, const Features &f) {
    const Properties p(in, d->candidate->handle, d->size_control);
    const VkPhysicalDeviceLimits &l = p.core.properties.limits;
    const int64_t heap = heap_bytes(d->memory);
    const bool matrix = f.matrix.cooperativeMatrix;
    const int64_t one = int64_t(std::min<uint64_t>(p.v11.maxMemoryAllocationSize, uint64_t(heap)));
    const bool arithmetic = p.v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT &&
        p.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    d->limits = {p.v11.subgroupSize, l.maxComputeWorkGroupInvocations, l.maxComputeSharedMemorySize,
        l.maxComputeWorkGroupCount[0], l.maxComputeWorkGroupCount[1], l.maxComputeWorkGroupCount[2], heap,
        software(*d->candidate), f.core.features.shaderInt64 != 0, f.v12.shaderFloat16 != 0,
        matrix && multiplies(in, d->candidate->handle, VK_COMPONENT_TYPE_FLOAT16_KHR), p.core.properties.vendorID, one,
        int64_t(double(l.timestampPeriod) * 1e6), p.v12.shaderDenormPreserveFloat32 != 0,
        p.v12.shaderSignedZeroInfNanPreserveFloat32 != 0, p.size.minSubgroupSize, p.size.maxSubgroupSize,
        f.v12.vulkanMemoryModel != 0,
        matrix && f.bfloat16.shaderBFloat16CooperativeMatrix && multiplies(in, d->candidate->handle, VK_COMPONENT_TYPE_BFLOAT16_KHR),
        std::any_of(f.matrix2.all, f.matrix2.all + 7, [](VkBool32 b) { return b != 0; }),
        l.maxPushConstantsSize, arithmetic};
    d->description = std::string(p.core.properties.deviceName) + " (" + p.v12.driverName + " " + p.v12.driverInfo + ")";
}

void create_device(fgv_device *d, const Instance &in, const Features &f, const std::vector<const char *> &extensions) {
    const float priority = 1;
    VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, d->candidate->family, 1, &priority};
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
    VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr, VK_SEMAPHORE_TYPE_TIMELINE, 0};
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

bool in_forked_child() { return forked; }

const Instance &instance() {
    static std::mutex mutex;
    static std::unique_ptr<Instance> made;
    if (forked) throw std::runtime_error("Vulkan cannot be used in a forked process whose parent used it: start the process by spawn");
    const std::lock_guard<std::mutex> lock(mutex);
    if (!made) made = make_instance();
    return *made;
}

void alive(const fgv_device *d) {
    if (forked) throw std::runtime_error("the device belongs to the parent process: start the process by spawn, not by fork");
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

int fgv_count(char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        const Instance &in = instance();
        const int n = int(usable(in).size());
        if (n == 0 && err && err_size > 0) {
            std::string text = in.left_out;
            for (const Candidate &c : in.devices) {
                text += (text.empty() ? "" : "; ") + std::string(c.properties.deviceName) + ": it is software, which FUNCGRAD_VULKAN_SOFTWARE=1 admits";
            }
            snprintf(err, size_t(err_size), "%s", text.empty() ? "there is no Vulkan device" : text.c_str());
        }
        return n;
    });
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
