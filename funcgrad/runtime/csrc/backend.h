/* A ggml backend that lives in a library of its own (Vulkan), behind error codes.
 *
 * ggml's Vulkan backend throws C++ exceptions through its C interface (a lost device, a bad index) and ends the process
 * where an assertion fails; from these functions both come back as a message in err.
 */
#ifndef FG_BACKEND_H
#define FG_BACKEND_H
#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the library of a backend and returns the number of its devices, or -1 with a message. Once is enough. */
int fg_backend_load(const char *path, char *err, int err_size);
/* Opens device `index` of the library that was loaded; NULL with a message. */
struct ggml_backend *fg_backend_open(int index, char *err, int err_size);
void fg_backend_close(struct ggml_backend *backend);
/* Memory of the device; NULL with a message when there is none left. */
struct ggml_backend_buffer *fg_backend_alloc(struct ggml_backend *backend, int64_t n_bytes, char *err, int err_size);
void fg_backend_release(struct ggml_backend_buffer *buffer);
/* The allocator of a graph's own tensors, with their memory; NULL with a message. */
struct ggml_gallocr *fg_backend_plan(struct ggml_backend *backend, struct ggml_cgraph *graph, char *err, int err_size);
/* Runs a graph to its end; 0, or -1 with a message. */
int fg_backend_run(struct ggml_backend *backend, struct ggml_cgraph *graph, char *err, int err_size);
/* Copies n_bytes between the host and the beginning of a tensor; 0, or -1 with a message. */
int fg_backend_put(struct ggml_tensor *to, const void *data, int64_t n_bytes, char *err, int err_size);
int fg_backend_get(const struct ggml_tensor *from, void *data, int64_t n_bytes, char *err, int err_size);

#ifdef __cplusplus
}
#endif
#endif
