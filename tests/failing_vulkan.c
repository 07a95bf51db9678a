/* A Vulkan loader for tests: the real one, but calls fail when they are told to, and what is made is counted.
 *
 * Arguments and results of Vulkan's functions are integers and pointers here, so that one signature passes all through.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef intptr_t word;
typedef void (*function)(void);
typedef word (*any)(word, word, word, word, word, word, word, word);
typedef function (*get_proc)(void *, const char *);

static int countdown, result_then; /* the call that fails, counted down from now, and with what */
static const char *only;           /* or any of them when NULL */
static int forever;                /* whether all calls after it fail too */
static int live[16];

void failing_set(int calls, int result, const char *name, int for_ever) {
    countdown = calls;
    result_then = result;
    only = name && *name ? strdup(name) : NULL;
    forever = for_ever;
}
int failing_left(void) { return countdown; } /* > 0: that many calls did not happen */
int failing_live(int kind) { return live[kind]; }

static int fails(const char *name) {
    if ((only && strcmp(only, name)) || countdown == 0) return 0;
    if (countdown > 1) {
        --countdown;
        return 0;
    }
    if (!forever) countdown = 0;
    return 1;
}

#define ARGUMENTS word a, word b, word c, word d, word e, word f, word g, word h
#define WRAP(name, change)                                              \
    static any real_##name;                                             \
    static word my_##name(ARGUMENTS) {                                  \
        if (fails(#name)) return result_then;                           \
        const int result = (int)real_##name(a, b, c, d, e, f, g, h);    \
        if (result == 0) { change; }                                    \
        return result;                                                  \
    }
#define UNMAKE(name, kind)                                              \
    static any real_##name;                                             \
    static word my_##name(ARGUMENTS) {                                  \
        if ((void *)b || kind == 0) --live[kind];                       \
        return real_##name(a, b, c, d, e, f, g, h);                     \
    }
#define CALLS(X)                                                                                                  \
    X(vkQueueSubmit, ) X(vkGetSemaphoreCounterValue, ) X(vkWaitSemaphores, ) X(vkMapMemory, )                     \
    X(vkBindBufferMemory, ) X(vkAllocateCommandBuffers, ) X(vkBeginCommandBuffer, ) X(vkEndCommandBuffer, )       \
    X(vkGetQueryPoolResults, )                                                                                    \
    X(vkCreateDevice, ++live[0]) X(vkCreateSemaphore, ++live[1]) X(vkCreateBuffer, ++live[2])                     \
    X(vkAllocateMemory, ++live[3]) X(vkCreateShaderModule, ++live[4]) X(vkCreatePipelineCache, ++live[5])         \
    X(vkCreatePipelineLayout, ++live[6]) X(vkCreateComputePipelines, ++live[7]) X(vkCreateCommandPool, ++live[8]) \
    X(vkCreateQueryPool, ++live[9])
#define UNMADE(X)                                                                                  \
    X(vkDestroyDevice, 0) X(vkDestroySemaphore, 1) X(vkDestroyBuffer, 2) X(vkFreeMemory, 3)        \
    X(vkDestroyShaderModule, 4) X(vkDestroyPipelineCache, 5) X(vkDestroyPipelineLayout, 6)         \
    X(vkDestroyPipeline, 7) X(vkDestroyCommandPool, 8) X(vkDestroyQueryPool, 9)
CALLS(WRAP)
UNMADE(UNMAKE)

static get_proc real_device, real_instance;

static function wrapped(const char *name, function real) {
#define CHOOSE(wanted, rest)             \
    if (!strcmp(name, #wanted)) {        \
        real_##wanted = (any)real;       \
        return (function)my_##wanted;    \
    }
    if (!real) return NULL;
    CALLS(CHOOSE)
    UNMADE(CHOOSE)
    return real;
}

static function my_device_proc(void *device, const char *name) { return wrapped(name, real_device(device, name)); }

function vkGetInstanceProcAddr(void *instance, const char *name) {
    if (!real_instance) {
        void *library = dlopen(getenv("REAL_VULKAN_LOADER"), RTLD_NOW | RTLD_LOCAL);
        if (!library) return NULL;
        real_instance = (get_proc)dlsym(library, "vkGetInstanceProcAddr");
    }
    function real = real_instance(instance, name);
    if (!strcmp(name, "vkGetDeviceProcAddr")) {
        real_device = (get_proc)real;
        return (function)my_device_proc;
    }
    return wrapped(name, real);
}
