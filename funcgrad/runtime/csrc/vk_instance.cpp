// The Vulkan loader, and the devices that can be used.
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "vk_features.h"

namespace fgv {
namespace {

std::atomic<bool> forked{false};

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

PFN_vkGetInstanceProcAddr load_library() {
#ifdef __APPLE__
    const char *names[] = {"libvulkan.1.dylib", "libvulkan.dylib", "libMoltenVK.dylib"};
#else
    const char *names[] = {"libvulkan.so.1", "libvulkan.so"};
#endif
    for (const char *name : names) {
        if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
            if (void *f = dlsym(library, "vkGetInstanceProcAddr"))
                return reinterpret_cast<PFN_vkGetInstanceProcAddr>(f);
            dlclose(library);
        }
    }
    throw std::runtime_error(std::string("no Vulkan loader was found: install ") + names[0] +
        " (Debian, Ubuntu: apt install libvulkan1) and a driver");
}

VkInstance new_instance(PFN_vkGetInstanceProcAddr get) {
#define FGV_LOAD(result, name, parameters)                                                                             \
    PFN_##name name;                                                                                                   \
    resolve(name, get(nullptr, #name), #name);
    FGV_GLOBAL_FUNCTIONS(FGV_LOAD)
#undef FGV_LOAD
    uint32_t api = 0;
    if (vkEnumerateInstanceVersion(&api) != VK_SUCCESS || api < version(1, 2)) {
        throw std::runtime_error("the Vulkan loader is too old: 1.2 is required");
    }
    const auto extensions = listed<VkExtensionProperties>(
        [&](uint32_t *n, VkExtensionProperties *p) { return vkEnumerateInstanceExtensionProperties(nullptr, n, p); });
    const char *portability = "VK_KHR_portability_enumeration"; // else the loader hides such devices
    VkApplicationInfo application{
        VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "funcgrad", 0, "funcgrad", 0, version(1, 3)};
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
    for (VkPhysicalDevice handle : listed<VkPhysicalDevice>(
             [&](uint32_t *n, VkPhysicalDevice *p) { return in->vkEnumeratePhysicalDevices(in->handle, n, p); })) {
        Candidate c = examine(*in, handle);
        const std::string why = std::string(c.properties.deviceName) + ": " + c.unusable;
        if (c.unusable.empty()) in->devices.push_back(c);
        else in->left_out += (in->left_out.empty() ? "" : "; ") + why;
    }
    std::stable_sort(in->devices.begin(), in->devices.end(), [](auto &a, auto &b) { return rank(a) < rank(b); });
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return in;
}

bool software_wanted() {
    const char *wanted = getenv("FUNCGRAD_VULKAN_SOFTWARE");
    return wanted && !strcmp(wanted, "1");
}

} // namespace

void fail(VkResult result, const char *call) {
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY) throw std::bad_alloc();
    const char *name = result_name(result);
    throw std::runtime_error(std::string(call) + " failed: " + (name ? name : "VkResult " + std::to_string(result)));
}

std::vector<const Candidate *> usable(const Instance &in) {
    std::vector<const Candidate *> found;
    for (const Candidate &c : in.devices) {
        if (!software(c) || software_wanted()) found.push_back(&c);
    }
    return found;
}

bool in_forked_child() { return forked; }

const Instance &instance() {
    static std::mutex mutex;
    static Instance *made = nullptr;
    if (forked) throw std::runtime_error("the parent process uses Vulkan: start the process by spawn, not by fork");
    const std::lock_guard<std::mutex> lock(mutex);
    if (!made) made = make_instance().release();
    return *made;
}

} // namespace fgv

using namespace fgv;

int fgv_count(char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        const Instance &in = instance();
        const int n = int(usable(in).size());
        if (n == 0 && err && err_size > 0) {
            std::string text = in.left_out;
            for (const Candidate &c : in.devices) {
                text += (text.empty() ? "" : "; ") + std::string(c.properties.deviceName) +
                    ": it is software, which FUNCGRAD_VULKAN_SOFTWARE=1 admits";
            }
            snprintf(err, size_t(err_size), "%s", text.empty() ? "there is no Vulkan device" : text.c_str());
        }
        return n;
    });
}
