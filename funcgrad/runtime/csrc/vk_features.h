// What vk_instance.cpp and vk_device.cpp share: asking a physical device what it can do.
#ifndef FG_VK_FEATURES_H
#define FG_VK_FEATURES_H
#include <algorithm>
#include <cstring>

#include "vk_internal.h"

namespace fgv {

constexpr uint32_t version(uint32_t major, uint32_t minor) { return major << 22 | minor << 12; }

[[noreturn]] void fail(VkResult result, const char *call);

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

inline bool contains(const std::vector<VkExtensionProperties> &all, const char *name) {
    return std::any_of(
        all.begin(), all.end(), [&](const VkExtensionProperties &e) { return !strcmp(e.extensionName, name); });
}

template <typename F>
void resolve(F &to, PFN_vkVoidFunction found, const char *name) {
    if (!found) throw std::runtime_error(std::string("the Vulkan driver has no ") + name);
    to = reinterpret_cast<F>(found);
}

inline bool software(const Candidate &c) { return c.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU; }

std::vector<const Candidate *> usable(const Instance &in); // those that may be used now

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
        return core.features.shaderInt16 && v11.storageBuffer16BitAccess && v12.storageBuffer8BitAccess &&
            v12.shaderInt8 && v12.timelineSemaphore && v12.bufferDeviceAddress;
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

} // namespace fgv
#endif
