/* What TAKE, SCATTER, DYNAMIC_SLICE and DYNAMIC_UPDATE share. Indices come from memory and are never trusted: each is
 * clamped to the extent, or compared with it, before it makes an address. */
#ifndef FG_K_INDEX_H
#define FG_K_INDEX_H
#include "internal.h"
#include "k_vec.h"

#define INDEX_TASK 65536 /* bytes that are worth a task */
#define INDEX_TASKS 16   /* tasks at most */

static inline int64_t index_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t index_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t index_load(const char *idx, int64_t i) { return ((const int32_any *)idx)[i]; }

static inline int64_t index_elem_size(fg_reader *r) {
    int64_t es = fg_read(r, "the element size", 1, 8);
    if (es != 1 && es != 2 && es != 4 && es != 8) fg_fail(r, "the element size must be 1, 2, 4 or 8, got %d", (int)es);
    return es;
}

static inline fg_kernel *index_finish(fg_reader *r, const void *k, size_t size) {
    void *out = malloc(size);
    if (!out) return fg_fail(r, "out of memory");
    memcpy(out, k, size);
    return out;
}

#endif
