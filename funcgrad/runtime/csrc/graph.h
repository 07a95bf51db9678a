/* A ggml graph of our kernels, behind integer handles and error codes.
 *
 * ggml keeps the graph and walks its nodes on one thread; each node is a custom operation that runs one fg_kernel, which
 * spreads its work over our own pool.  (ggml's threads meet at a spinning barrier after every node, which costs
 * milliseconds as soon as another process holds one of the cores.)
 *
 * Every function that can fail returns a negative number (or NULL) and leaves a sentence in err.  A failed GGML_ASSERT and
 * a C++ exception come out the same way, as long as they happen on the calling thread.  A graph is not re-entrant: a call
 * of fg_graph_run during another on the same graph fails.
 */
#ifndef FG_GRAPH_H
#define FG_GRAPH_H
#include "fg.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fg_graph fg_graph;

/* Room for max_tensors, each fg_graph_tensor and each fg_graph_node counting as one. */
fg_graph *fg_graph_new(int64_t max_tensors, char *err, int err_size);
void fg_graph_free(fg_graph *g);

/* A one-dimensional tensor of an fg_dtype with no memory yet; returns its index: 0, 1, 2, ... */
int fg_graph_tensor(fg_graph *g, int dtype, int64_t n_elements, char *err, int err_size);

/* Appends the node that calls fg_kernel_run(k, base) with base[slot] = data of tensor operands[slot]; operands are the
 * kernel's inputs and outputs.  `out` is the operand (a tensor's index) that ggml takes for the node's result; it may not
 * be empty.  Nodes run in the order in which they were added.  The kernel is borrowed and must outlive the graph.
 * Returns the node's number. */
int fg_graph_node(fg_graph *g, const fg_kernel *k, const int32_t *operands, int n_operands, int32_t out, char *err, int err_size);

/* Gives a tensor its memory once and for all. */
int fg_graph_place(fg_graph *g, int tensor, void *data, char *err, int err_size);

/* Names the tensors whose memory comes with each run, in the order of `bound` below; replaces an earlier list. */
int fg_graph_declare_bound(fg_graph *g, const int32_t *tensors, int n, char *err, int err_size);

/* Runs every node once with the declared tensors at bound[0..n). Returns 0. */
int fg_graph_run(fg_graph *g, void *const *bound, char *err, int err_size);

/* For kernels: ends the innermost fg_graph_run on this thread, whose remaining nodes do nothing, with this message. */
void fg_graph_stop(const char *reason);

/* From now on every run adds each node's nanoseconds to ns[its number]; NULL ends that. */
void fg_graph_profile(fg_graph *g, int64_t *ns);

int fg_graph_n_nodes(const fg_graph *g);
/* A listing, one node a line, cut to size; returns the length that the whole listing has. */
int fg_graph_dump(const fg_graph *g, char *buf, int size);

/* Opens an OpenBLAS (the shared library of PyPI's scipy-openblas32, or any with the same functions), sets it to one
 * thread, for our pool calls it from each of its own, and registers its sgemm with fg_set_sgemm. */
int fg_load_blas(const char *path, char *err, int err_size);

#ifdef __cplusplus
}
#endif
#endif
