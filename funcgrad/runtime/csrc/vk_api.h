/* The part of Vulkan that vk_*.cpp use: handles, constants, structures and function types, by the public specification.
 *
 * Written for this project, so that no SDK is needed to build; tests/test_vulkan_api.py compares each layout and
 * constant with the real header where there is one. Members that nothing here reads are spare arrays of their total size.
 * Non-dispatchable handles are pointers, as on every 64-bit platform (other platforms report no devices).
 */
#ifndef FG_VK_API_H
#define FG_VK_API_H
#include <stddef.h>
#include <stdint.h>

#define FGV_HANDLE(name) typedef struct name##_T *name;
FGV_HANDLE(VkInstance)
FGV_HANDLE(VkPhysicalDevice)
FGV_HANDLE(VkDevice)
FGV_HANDLE(VkQueue)
FGV_HANDLE(VkCommandBuffer)
FGV_HANDLE(VkCommandPool)
FGV_HANDLE(VkSemaphore)
FGV_HANDLE(VkFence)
FGV_HANDLE(VkDeviceMemory)
FGV_HANDLE(VkBuffer)
FGV_HANDLE(VkQueryPool)
FGV_HANDLE(VkShaderModule)
FGV_HANDLE(VkPipelineCache)
FGV_HANDLE(VkPipelineLayout)
FGV_HANDLE(VkPipeline)
#undef FGV_HANDLE

typedef uint32_t VkBool32;
typedef uint32_t VkFlags;
typedef uint64_t VkDeviceSize;
typedef uint64_t VkDeviceAddress;

enum VkResult : int32_t {
    VK_SUCCESS = 0,
    VK_NOT_READY = 1,
    VK_TIMEOUT = 2,
    VK_INCOMPLETE = 5,
    VK_ERROR_OUT_OF_HOST_MEMORY = -1,
    VK_ERROR_OUT_OF_DEVICE_MEMORY = -2,
    VK_ERROR_INITIALIZATION_FAILED = -3,
    VK_ERROR_DEVICE_LOST = -4,
    VK_ERROR_EXTENSION_NOT_PRESENT = -7,
    VK_ERROR_FEATURE_NOT_PRESENT = -8,
    VK_ERROR_INCOMPATIBLE_DRIVER = -9,
    VK_ERROR_TOO_MANY_OBJECTS = -10,
};

enum VkStructureType : int32_t {
    VK_STRUCTURE_TYPE_APPLICATION_INFO = 0,
    VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO = 1,
    VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO = 2,
    VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO = 3,
    VK_STRUCTURE_TYPE_SUBMIT_INFO = 4,
    VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO = 5,
    VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO = 9,
    VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO = 11,
    VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO = 12,
    VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO = 16,
    VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO = 17,
    VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO = 18,
    VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO = 29,
    VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO = 30,
    VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO = 39,
    VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO = 40,
    VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO = 42,
    VK_STRUCTURE_TYPE_MEMORY_BARRIER = 46,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES = 49,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES = 50,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES = 51,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES = 52,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2 = 1000059000,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2 = 1000059001,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2 = 1000059006,
    VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO = 1000060000,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR = 1000141000,
    VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO = 1000207002,
    VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO = 1000207003,
    VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO = 1000207004,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES = 1000225000,
    VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO = 1000225001,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES = 1000225002,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT = 1000237000,
    VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO = 1000244001,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES = 1000413001,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR = 1000506000,
    VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR = 1000506001,
    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV = 1000593000,
};

enum : uint32_t {
    VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR = 0x1,
    VK_QUEUE_GRAPHICS_BIT = 0x1,
    VK_QUEUE_COMPUTE_BIT = 0x2,
    VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT = 0x1,
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT = 0x2,
    VK_MEMORY_PROPERTY_HOST_COHERENT_BIT = 0x4,
    VK_MEMORY_PROPERTY_HOST_CACHED_BIT = 0x8,
    VK_MEMORY_HEAP_DEVICE_LOCAL_BIT = 0x1,
    VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT = 0x2,
    VK_BUFFER_USAGE_TRANSFER_SRC_BIT = 0x1,
    VK_BUFFER_USAGE_TRANSFER_DST_BIT = 0x2,
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT = 0x20,
    VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT = 0x20000,
    VK_SHADER_STAGE_COMPUTE_BIT = 0x20,
    VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT = 0x2,
    VK_SUBGROUP_FEATURE_ARITHMETIC_BIT = 0x4,
    VK_COMMAND_POOL_CREATE_TRANSIENT_BIT = 0x1,
    VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT = 0x2,
    VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT = 0x1,
    VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT = 0x4,
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT = 0x800,
    VK_PIPELINE_STAGE_TRANSFER_BIT = 0x1000,
    VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT = 0x2000,
    VK_PIPELINE_STAGE_HOST_BIT = 0x4000,
    VK_ACCESS_SHADER_READ_BIT = 0x20,
    VK_ACCESS_SHADER_WRITE_BIT = 0x40,
    VK_ACCESS_TRANSFER_READ_BIT = 0x800,
    VK_ACCESS_TRANSFER_WRITE_BIT = 0x1000,
    VK_ACCESS_HOST_READ_BIT = 0x2000,
    VK_QUERY_RESULT_64_BIT = 0x1,
    VK_QUERY_RESULT_WAIT_BIT = 0x2,
};
enum VkPhysicalDeviceType : int32_t {
    VK_PHYSICAL_DEVICE_TYPE_OTHER = 0,
    VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU = 1,
    VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU = 2,
    VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU = 3,
    VK_PHYSICAL_DEVICE_TYPE_CPU = 4,
};
enum VkSharingMode : int32_t { VK_SHARING_MODE_EXCLUSIVE = 0 };
enum VkQueryType : int32_t { VK_QUERY_TYPE_TIMESTAMP = 2 };
enum VkPipelineBindPoint : int32_t { VK_PIPELINE_BIND_POINT_COMPUTE = 1 };
enum VkCommandBufferLevel : int32_t { VK_COMMAND_BUFFER_LEVEL_PRIMARY = 0 };
enum VkSemaphoreType : int32_t { VK_SEMAPHORE_TYPE_TIMELINE = 1 };
enum VkScopeKHR : int32_t { VK_SCOPE_SUBGROUP_KHR = 3 };
enum VkComponentTypeKHR : int32_t {
    VK_COMPONENT_TYPE_FLOAT16_KHR = 0,
    VK_COMPONENT_TYPE_FLOAT32_KHR = 1,
    VK_COMPONENT_TYPE_BFLOAT16_KHR = 1000141000,
};

#define FGV_HEAD(type)          \
    VkStructureType sType;      \
    type *pNext;

struct VkApplicationInfo {
    FGV_HEAD(const void)
    const char *pApplicationName;
    uint32_t applicationVersion;
    const char *pEngineName;
    uint32_t engineVersion;
    uint32_t apiVersion;
};
struct VkInstanceCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    const VkApplicationInfo *pApplicationInfo;
    uint32_t enabledLayerCount;
    const char *const *ppEnabledLayerNames;
    uint32_t enabledExtensionCount;
    const char *const *ppEnabledExtensionNames;
};
struct VkExtensionProperties {
    char extensionName[256];
    uint32_t specVersion;
};
struct VkQueueFamilyProperties {
    VkFlags queueFlags;
    uint32_t queueCount;
    uint32_t timestampValidBits;
    uint32_t minImageTransferGranularity[3];
};

/* ---- what a device can do ---- */
struct VkPhysicalDeviceLimits {
    uint32_t spare0[8];
    uint32_t maxPushConstantsSize;
    uint32_t maxMemoryAllocationCount;
    uint64_t spare1[22];
    uint32_t maxComputeSharedMemorySize;
    uint32_t maxComputeWorkGroupCount[3];
    uint32_t maxComputeWorkGroupInvocations;
    uint32_t maxComputeWorkGroupSize[3];
    uint32_t spare2[43];
    VkBool32 timestampComputeAndGraphics;
    float timestampPeriod;
    uint32_t spare3[5];
    uint64_t spare4[7];
};
struct VkPhysicalDeviceProperties {
    uint32_t apiVersion;
    uint32_t driverVersion;
    uint32_t vendorID;
    uint32_t deviceID;
    VkPhysicalDeviceType deviceType;
    char deviceName[256];
    uint8_t pipelineCacheUUID[16];
    VkPhysicalDeviceLimits limits;
    VkBool32 sparseProperties[5];
};
struct VkPhysicalDeviceProperties2 {
    FGV_HEAD(void)
    VkPhysicalDeviceProperties properties;
};
struct VkPhysicalDeviceVulkan11Properties {
    FGV_HEAD(void)
    uint8_t deviceUUID[16];
    uint8_t driverUUID[16];
    uint8_t deviceLUID[8];
    uint32_t deviceNodeMask;
    VkBool32 deviceLUIDValid;
    uint32_t subgroupSize;
    VkFlags subgroupSupportedStages;
    VkFlags subgroupSupportedOperations;
    uint32_t spare[6];
    VkDeviceSize maxMemoryAllocationSize;
};
struct VkPhysicalDeviceVulkan12Properties {
    FGV_HEAD(void)
    int32_t driverID;
    char driverName[256];
    char driverInfo[256];
    uint8_t conformanceVersion[4];
    int32_t denormBehaviorIndependence;
    int32_t roundingModeIndependence;
    VkBool32 shaderSignedZeroInfNanPreserveFloat16;
    VkBool32 shaderSignedZeroInfNanPreserveFloat32;
    VkBool32 shaderSignedZeroInfNanPreserveFloat64;
    VkBool32 shaderDenormPreserveFloat16;
    VkBool32 shaderDenormPreserveFloat32;
    VkBool32 shaderDenormPreserveFloat64;
    uint32_t spare0[38];
    uint64_t spare1[2];
};
struct VkPhysicalDeviceSubgroupSizeControlProperties {
    FGV_HEAD(void)
    uint32_t minSubgroupSize;
    uint32_t maxSubgroupSize;
    uint32_t maxComputeWorkgroupSubgroups;
    VkFlags requiredSubgroupSizeStages;
};
struct VkPhysicalDeviceMaintenance4Properties {
    FGV_HEAD(void)
    VkDeviceSize maxBufferSize;
};
struct VkPhysicalDeviceFeatures {
    VkBool32 spare0[40];
    VkBool32 shaderInt64;
    VkBool32 shaderInt16;
    VkBool32 spare1[13];
};
struct VkPhysicalDeviceFeatures2 {
    FGV_HEAD(void)
    VkPhysicalDeviceFeatures features;
};
struct VkPhysicalDeviceVulkan11Features {
    FGV_HEAD(void)
    VkBool32 storageBuffer16BitAccess;
    VkBool32 uniformAndStorageBuffer16BitAccess;
    VkBool32 spare[10];
};
struct VkPhysicalDeviceVulkan12Features {
    FGV_HEAD(void)
    VkBool32 spare0[2];
    VkBool32 storageBuffer8BitAccess;
    VkBool32 uniformAndStorageBuffer8BitAccess;
    VkBool32 spare1[3];
    VkBool32 shaderFloat16;
    VkBool32 shaderInt8;
    VkBool32 spare2[22];
    VkBool32 scalarBlockLayout;
    VkBool32 spare3[2];
    VkBool32 shaderSubgroupExtendedTypes;
    VkBool32 spare4[2];
    VkBool32 timelineSemaphore;
    VkBool32 bufferDeviceAddress;
    VkBool32 spare5[2];
    VkBool32 vulkanMemoryModel;
    VkBool32 vulkanMemoryModelDeviceScope;
    VkBool32 spare6[4];
};
struct VkPhysicalDeviceSubgroupSizeControlFeatures {
    FGV_HEAD(void)
    VkBool32 subgroupSizeControl;
    VkBool32 computeFullSubgroups;
};
struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
    FGV_HEAD(void)
    VkBool32 cooperativeMatrix;
    VkBool32 cooperativeMatrixRobustBufferAccess;
};
struct VkPhysicalDeviceCooperativeMatrix2FeaturesNV {
    FGV_HEAD(void)
    VkBool32 all[7];
};
struct VkPhysicalDeviceShaderBfloat16FeaturesKHR {
    FGV_HEAD(void)
    VkBool32 shaderBFloat16Type;
    VkBool32 shaderBFloat16DotProduct;
    VkBool32 shaderBFloat16CooperativeMatrix;
};
struct VkCooperativeMatrixPropertiesKHR {
    FGV_HEAD(void)
    uint32_t MSize;
    uint32_t NSize;
    uint32_t KSize;
    VkComponentTypeKHR AType;
    VkComponentTypeKHR BType;
    VkComponentTypeKHR CType;
    VkComponentTypeKHR ResultType;
    VkBool32 saturatingAccumulation;
    VkScopeKHR scope;
};

/* ---- devices and memory ---- */
struct VkDeviceQueueCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    uint32_t queueFamilyIndex;
    uint32_t queueCount;
    const float *pQueuePriorities;
};
struct VkDeviceCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    uint32_t queueCreateInfoCount;
    const VkDeviceQueueCreateInfo *pQueueCreateInfos;
    uint32_t enabledLayerCount;
    const char *const *ppEnabledLayerNames;
    uint32_t enabledExtensionCount;
    const char *const *ppEnabledExtensionNames;
    const VkPhysicalDeviceFeatures *pEnabledFeatures;
};
struct VkMemoryType {
    VkFlags propertyFlags;
    uint32_t heapIndex;
};
struct VkMemoryHeap {
    VkDeviceSize size;
    VkFlags flags;
};
struct VkPhysicalDeviceMemoryProperties {
    uint32_t memoryTypeCount;
    VkMemoryType memoryTypes[32];
    uint32_t memoryHeapCount;
    VkMemoryHeap memoryHeaps[16];
};
struct VkPhysicalDeviceMemoryProperties2 {
    FGV_HEAD(void)
    VkPhysicalDeviceMemoryProperties memoryProperties;
};
struct VkPhysicalDeviceMemoryBudgetPropertiesEXT {
    FGV_HEAD(void)
    VkDeviceSize heapBudget[16];
    VkDeviceSize heapUsage[16];
};
struct VkBufferCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    VkDeviceSize size;
    VkFlags usage;
    VkSharingMode sharingMode;
    uint32_t queueFamilyIndexCount;
    const uint32_t *pQueueFamilyIndices;
};
struct VkMemoryRequirements {
    VkDeviceSize size;
    VkDeviceSize alignment;
    uint32_t memoryTypeBits;
};
struct VkMemoryAllocateFlagsInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    uint32_t deviceMask;
};
struct VkMemoryAllocateInfo {
    FGV_HEAD(const void)
    VkDeviceSize allocationSize;
    uint32_t memoryTypeIndex;
};
struct VkBufferDeviceAddressInfo {
    FGV_HEAD(const void)
    VkBuffer buffer;
};

/* ---- pipelines ---- */
struct VkShaderModuleCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    size_t codeSize;
    const uint32_t *pCode;
};
struct VkPipelineCacheCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    size_t initialDataSize;
    const void *pInitialData;
};
struct VkPushConstantRange {
    VkFlags stageFlags;
    uint32_t offset;
    uint32_t size;
};
struct VkPipelineLayoutCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    uint32_t setLayoutCount;
    const void *pSetLayouts;
    uint32_t pushConstantRangeCount;
    const VkPushConstantRange *pPushConstantRanges;
};
struct VkPipelineShaderStageRequiredSubgroupSizeCreateInfo {
    FGV_HEAD(void)
    uint32_t requiredSubgroupSize;
};
struct VkPipelineShaderStageCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    uint32_t stage;
    VkShaderModule module;
    const char *pName;
    const void *pSpecializationInfo;
};
struct VkComputePipelineCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    VkPipelineShaderStageCreateInfo stage;
    VkPipelineLayout layout;
    VkPipeline basePipelineHandle;
    int32_t basePipelineIndex;
};

/* ---- commands ---- */
struct VkCommandPoolCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    uint32_t queueFamilyIndex;
};
struct VkCommandBufferAllocateInfo {
    FGV_HEAD(const void)
    VkCommandPool commandPool;
    VkCommandBufferLevel level;
    uint32_t commandBufferCount;
};
struct VkCommandBufferBeginInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    const void *pInheritanceInfo;
};
struct VkMemoryBarrier {
    FGV_HEAD(const void)
    VkFlags srcAccessMask;
    VkFlags dstAccessMask;
};
struct VkBufferCopy {
    VkDeviceSize srcOffset;
    VkDeviceSize dstOffset;
    VkDeviceSize size;
};
struct VkQueryPoolCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    VkQueryType queryType;
    uint32_t queryCount;
    VkFlags pipelineStatistics;
};
struct VkSemaphoreCreateInfo {
    FGV_HEAD(const void)
    VkFlags flags;
};
struct VkSemaphoreTypeCreateInfo {
    FGV_HEAD(const void)
    VkSemaphoreType semaphoreType;
    uint64_t initialValue;
};
struct VkTimelineSemaphoreSubmitInfo {
    FGV_HEAD(const void)
    uint32_t waitSemaphoreValueCount;
    const uint64_t *pWaitSemaphoreValues;
    uint32_t signalSemaphoreValueCount;
    const uint64_t *pSignalSemaphoreValues;
};
struct VkSemaphoreWaitInfo {
    FGV_HEAD(const void)
    VkFlags flags;
    uint32_t semaphoreCount;
    const VkSemaphore *pSemaphores;
    const uint64_t *pValues;
};
struct VkSubmitInfo {
    FGV_HEAD(const void)
    uint32_t waitSemaphoreCount;
    const VkSemaphore *pWaitSemaphores;
    const VkFlags *pWaitDstStageMask;
    uint32_t commandBufferCount;
    const VkCommandBuffer *pCommandBuffers;
    uint32_t signalSemaphoreCount;
    const VkSemaphore *pSignalSemaphores;
};
#undef FGV_HEAD

/* ---- functions: X(result, name, parameters); the const void * are allocators, which stay NULL ---- */
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
    X(VkResult, vkDeviceWaitIdle, (VkDevice))                                                                          \
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
