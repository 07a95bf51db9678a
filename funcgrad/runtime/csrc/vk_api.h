/* The part of Vulkan that vk_*.cpp use, by the public specification: constants, structures, and here the functions.
 *
 * Written for this project, so that no SDK is needed to build; tests/test_vulkan_api.py compares each layout and
 * constant with the real header where there is one.
 */
#ifndef FG_VK_API_H
#define FG_VK_API_H
#include "vk_structs.h"

/* X(result, name, parameters); the const void * are allocators, which stay NULL. */
#define FGV_GLOBAL_FUNCTIONS(X)                                                                                        \
    X(VkResult, vkEnumerateInstanceVersion, (uint32_t *))                                                              \
    X(VkResult, vkEnumerateInstanceExtensionProperties, (const char *, uint32_t *, VkExtensionProperties *))           \
    X(VkResult, vkCreateInstance, (const VkInstanceCreateInfo *, const void *, VkInstance *))

#define FGV_INSTANCE_FUNCTIONS(X)                                                                                      \
    X(void, vkDestroyInstance, (VkInstance, const void *))                                                             \
    X(VkResult, vkEnumeratePhysicalDevices, (VkInstance, uint32_t *, VkPhysicalDevice *))                              \
    X(void, vkGetPhysicalDeviceProperties, (VkPhysicalDevice, VkPhysicalDeviceProperties *))                           \
    X(void, vkGetPhysicalDeviceProperties2, (VkPhysicalDevice, VkPhysicalDeviceProperties2 *))                         \
    X(void, vkGetPhysicalDeviceFeatures2, (VkPhysicalDevice, VkPhysicalDeviceFeatures2 *))                             \
    X(void, vkGetPhysicalDeviceMemoryProperties2, (VkPhysicalDevice, VkPhysicalDeviceMemoryProperties2 *))             \
    X(void, vkGetPhysicalDeviceQueueFamilyProperties, (VkPhysicalDevice, uint32_t *, VkQueueFamilyProperties *))       \
    X(VkResult, vkEnumerateDeviceExtensionProperties,                                                                  \
        (VkPhysicalDevice, const char *, uint32_t *, VkExtensionProperties *))                                         \
    X(VkResult, vkCreateDevice, (VkPhysicalDevice, const VkDeviceCreateInfo *, const void *, VkDevice *))              \
    X(PFN_vkVoidFunction, vkGetDeviceProcAddr, (VkDevice, const char *))

#define FGV_DEVICE_FUNCTIONS(X)                                                                                        \
    X(void, vkDestroyDevice, (VkDevice, const void *))                                                                 \
    X(void, vkGetDeviceQueue, (VkDevice, uint32_t, uint32_t, VkQueue *))                                               \
    X(VkResult, vkQueueSubmit, (VkQueue, uint32_t, const VkSubmitInfo *, VkFence))                                     \
    X(VkResult, vkCreateSemaphore, (VkDevice, const VkSemaphoreCreateInfo *, const void *, VkSemaphore *))             \
    X(void, vkDestroySemaphore, (VkDevice, VkSemaphore, const void *))                                                 \
    X(VkResult, vkGetSemaphoreCounterValue, (VkDevice, VkSemaphore, uint64_t *))                                       \
    X(VkResult, vkWaitSemaphores, (VkDevice, const VkSemaphoreWaitInfo *, uint64_t))                                   \
    X(VkResult, vkCreateBuffer, (VkDevice, const VkBufferCreateInfo *, const void *, VkBuffer *))                      \
    X(void, vkDestroyBuffer, (VkDevice, VkBuffer, const void *))                                                       \
    X(void, vkGetBufferMemoryRequirements, (VkDevice, VkBuffer, VkMemoryRequirements *))                               \
    X(VkResult, vkAllocateMemory, (VkDevice, const VkMemoryAllocateInfo *, const void *, VkDeviceMemory *))            \
    X(void, vkFreeMemory, (VkDevice, VkDeviceMemory, const void *))                                                    \
    X(VkResult, vkMapMemory, (VkDevice, VkDeviceMemory, VkDeviceSize, VkDeviceSize, VkFlags, void **))                 \
    X(VkResult, vkBindBufferMemory, (VkDevice, VkBuffer, VkDeviceMemory, VkDeviceSize))                                \
    X(VkDeviceAddress, vkGetBufferDeviceAddress, (VkDevice, const VkBufferDeviceAddressInfo *))                        \
    X(VkResult, vkCreateShaderModule, (VkDevice, const VkShaderModuleCreateInfo *, const void *, VkShaderModule *))    \
    X(void, vkDestroyShaderModule, (VkDevice, VkShaderModule, const void *))                                           \
    X(VkResult, vkCreatePipelineCache, (VkDevice, const VkPipelineCacheCreateInfo *, const void *, VkPipelineCache *)) \
    X(void, vkDestroyPipelineCache, (VkDevice, VkPipelineCache, const void *))                                         \
    X(VkResult, vkCreatePipelineLayout,                                                                                \
        (VkDevice, const VkPipelineLayoutCreateInfo *, const void *, VkPipelineLayout *))                              \
    X(void, vkDestroyPipelineLayout, (VkDevice, VkPipelineLayout, const void *))                                       \
    X(VkResult, vkCreateComputePipelines,                                                                              \
        (VkDevice, VkPipelineCache, uint32_t, const VkComputePipelineCreateInfo *, const void *, VkPipeline *))        \
    X(void, vkDestroyPipeline, (VkDevice, VkPipeline, const void *))                                                   \
    X(VkResult, vkCreateCommandPool, (VkDevice, const VkCommandPoolCreateInfo *, const void *, VkCommandPool *))       \
    X(void, vkDestroyCommandPool, (VkDevice, VkCommandPool, const void *))                                             \
    X(VkResult, vkAllocateCommandBuffers, (VkDevice, const VkCommandBufferAllocateInfo *, VkCommandBuffer *))          \
    X(VkResult, vkBeginCommandBuffer, (VkCommandBuffer, const VkCommandBufferBeginInfo *))                             \
    X(VkResult, vkEndCommandBuffer, (VkCommandBuffer))                                                                 \
    X(VkResult, vkCreateQueryPool, (VkDevice, const VkQueryPoolCreateInfo *, const void *, VkQueryPool *))             \
    X(void, vkDestroyQueryPool, (VkDevice, VkQueryPool, const void *))                                                 \
    X(VkResult, vkGetQueryPoolResults,                                                                                 \
        (VkDevice, VkQueryPool, uint32_t, uint32_t, size_t, void *, VkDeviceSize, VkFlags))                            \
    X(void, vkCmdResetQueryPool, (VkCommandBuffer, VkQueryPool, uint32_t, uint32_t))                                   \
    X(void, vkCmdWriteTimestamp, (VkCommandBuffer, VkPipelineStageFlagBits, VkQueryPool, uint32_t))                    \
    X(void, vkCmdBindPipeline, (VkCommandBuffer, VkPipelineBindPoint, VkPipeline))                                     \
    X(void, vkCmdPushConstants, (VkCommandBuffer, VkPipelineLayout, VkFlags, uint32_t, uint32_t, const void *))        \
    X(void, vkCmdDispatch, (VkCommandBuffer, uint32_t, uint32_t, uint32_t))                                            \
    X(void, vkCmdCopyBuffer, (VkCommandBuffer, VkBuffer, VkBuffer, uint32_t, const VkBufferCopy *))                    \
    X(void, vkCmdPipelineBarrier,                                                                                      \
        (VkCommandBuffer, VkFlags, VkFlags, VkFlags, uint32_t, const VkMemoryBarrier *, uint32_t, const void *,        \
            uint32_t, const void *))

typedef uint32_t VkPipelineStageFlagBits; /* one bit of the flags; an enum in the specification, of the same size */
typedef void (*PFN_vkVoidFunction)(void);
typedef PFN_vkVoidFunction (*PFN_vkGetInstanceProcAddr)(VkInstance, const char *);
#define FGV_TYPE(result, name, parameters) typedef result(*PFN_##name) parameters;
FGV_GLOBAL_FUNCTIONS(FGV_TYPE)
FGV_INSTANCE_FUNCTIONS(FGV_TYPE)
FGV_DEVICE_FUNCTIONS(FGV_TYPE)
FGV_TYPE(VkResult, vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR,
    (VkPhysicalDevice, uint32_t *, VkCooperativeMatrixPropertiesKHR *))
#undef FGV_TYPE
#endif
