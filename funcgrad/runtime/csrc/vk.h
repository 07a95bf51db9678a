/* A thin layer over Vulkan: devices, memory named by addresses, compute pipelines, and recorded lists of dispatches.
 *
 * The loader is opened when it is first asked for; nothing is linked. A kernel is a SPIR-V module with one compute
 * entry point "main" and one push constant of 8 bytes, an address: what else a kernel needs it reads from memory.
 * What a device is asked to do happens in the order of the calls, whatever the thread: each list of dispatches, each
 * write, read and copy waits for those before it. So memory may be released and allocated again while work that uses
 * it is still running. Every function may be called from any thread; the objects that are passed must not be freed
 * meanwhile. Functions with err return what is said and a sentence in err. A child of fork() cannot use the devices of
 * its parent: the functions say so.
 */
#ifndef FG_VK_H
#define FG_VK_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fgv_device fgv_device;
typedef struct fgv_pipeline fgv_pipeline;
typedef struct fgv_commands fgv_commands;

/* The number of usable devices: Vulkan 1.2, a compute queue, buffer device addresses, 8 and 16 bit integers and
 * storage, timeline semaphores. GPUs come first; software devices are there only when FUNCGRAD_VULKAN_SOFTWARE=1 is
 * set. -1 where there is no loader or no driver. With 0, err says which were left out.
 */
int fgv_count(char *err, int err_size);
/* Opens device `index`; it is never closed. NULL with a message. */
fgv_device *fgv_open(int index, char *err, int err_size);
/* The name of the device and of its driver. */
const char *fgv_description(fgv_device *device);
/* Fills out[0] to out[n - 1], as far as these exist, and returns how many do:
 * 0 subgroup size, 1 invocations per group, 2 bytes of shared memory, 3 to 5 groups along x, y, z, 6 bytes of the
 * device's heap, 7 whether it is software, 8 shaderInt64, 9 shaderFloat16, 10 whether subgroups multiply 16x16x16
 * float16 matrices into float32 (VK_KHR_cooperative_matrix), 11 vendor, 12 bytes that one allocation may have at most,
 * 13 femtoseconds of a timestamp's unit, 14 denormal float32 kept, 15 signed zeros, infinities and NaN of float32 kept,
 * 16 smallest and 17 largest subgroup size, 18 vulkanMemoryModel, 19 bfloat16 matrices as in 10,
 * 20 VK_NV_cooperative_matrix2, 21 bytes of push constants, 22 subgroup arithmetic in compute kernels.
 */
int fgv_limits(fgv_device *device, int64_t *out, int n);
/* Bytes that can still be allocated, as far as the driver tells. */
int64_t fgv_budget(fgv_device *device);

/* n bytes of device memory; the address, a multiple of 256, is its name. 0 with a message, which is "out of memory"
 * where there is none left. */
uint64_t fgv_alloc(fgv_device *device, int64_t n_bytes, char *err, int err_size);
/* Gives memory back; work that was submitted before may still use it. */
void fgv_release(fgv_device *device, uint64_t address);
/* Gives the driver back what was released and kept for later; waits for the work that may use it. */
void fgv_trim(fgv_device *device);
/* Copies host memory to any address; returns as soon as `data` was copied, before the device has it. */
int fgv_write(fgv_device *device, uint64_t address, const void *data, int64_t n, char *err, int err_size);
/* Copies from several addresses to host memory; returns when all of it is there. */
int fgv_read_many(fgv_device *device, int count, const uint64_t *address, void *const *data, const int64_t *n,
    char *err, int err_size);
/* Copies from address to address on the device, without waiting; the two must not overlap. */
int fgv_copy(fgv_device *device, uint64_t to, uint64_t from, int64_t n, char *err, int err_size);

/* Compiles a kernel. subgroup > 0 asks for that size and for full subgroups. NULL with a message. */
fgv_pipeline *fgv_pipeline_new(fgv_device *device, const uint32_t *spirv, int64_t n_words, int subgroup,
    char *err, int err_size);
/* Lists of dispatches that hold the pipeline keep it. */
void fgv_pipeline_free(fgv_pipeline *pipeline);
/* Records n dispatches: pipelines[i] gets the address tables[i] and runs in groups[3 * i] to groups[3 * i + 2] groups,
 * after all before it have finished where barrier[i] is not 0. To be submitted any number of times. NULL with a
 * message.
 */
fgv_commands *fgv_commands_new(fgv_device *device, int64_t n, fgv_pipeline *const *pipelines, const uint64_t *tables,
    const uint32_t *groups, const uint8_t *barrier, char *err, int err_size);
void fgv_commands_free(fgv_commands *commands);
/* Starts a list of dispatches; returns its ticket, which is positive and grows, or -1 with a message. */
int64_t fgv_submit(fgv_device *device, fgv_commands *commands, char *err, int err_size);
/* Waits until everything up to a ticket is done: 0, or -1 with a message. */
int fgv_wait(fgv_device *device, int64_t ticket, char *err, int err_size);
/* 1 when everything up to a ticket is done, 0 when not, -1 when the device was lost. */
int fgv_done(fgv_device *device, int64_t ticket);
/* Runs a list of dispatches once, one dispatch after another, and waits; ns gets the nanoseconds of each. */
int fgv_profile(fgv_device *device, fgv_commands *commands, int64_t *ns, char *err, int err_size);

#ifdef __cplusplus
}
#endif
#endif
