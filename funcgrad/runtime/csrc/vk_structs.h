/* Structures of Vulkan (vk_api.h). Members that nothing here reads are spare arrays of their total size. */
#ifndef FG_VK_STRUCTS_H
#define FG_VK_STRUCTS_H
#include "vk_constants.h"

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

#endif
