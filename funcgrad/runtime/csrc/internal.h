/* What the kernel files share.
 *
 * Files named k_*.c are compiled once per CPU variant (-DFG_VARIANT=base, avx2 or avx512); each external symbol that they
 * define goes through FG_NAME so that the variants can be linked together, and dispatch.c picks one by cpuid.  For every
 * kind such a file defines
 *
 *     fg_kernel *FG_NAME(fg_<kind>_new)(fg_reader *r);
 *
 * which reads and checks all the words, calls fg_read_end, and returns a malloc'ed struct whose FIRST member is an
 * fg_kernel with `run` set (and `destroy` when more than free() is needed), or NULL after fg_fail.  Nothing is executed
 * at creation: all addresses come with each run.
 */
#ifndef FG_INTERNAL_H
#define FG_INTERNAL_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fg.h"

#ifndef FG_VARIANT
#define FG_VARIANT base
#endif
#define FG_PASTE2(a, b) a##_##b
#define FG_PASTE(a, b) FG_PASTE2(a, b)
#define FG_NAME(x) FG_PASTE(x, FG_VARIANT)

/* Sizes, offsets and strides beyond this many bytes or elements are refused, so that sums of a few never overflow. */
#define FG_LIMIT ((int64_t)1 << 46)
#define FG_MAX_SLOT ((int64_t)1 << 24)

struct fg_kernel {
    void (*run)(const fg_kernel *k, void *const *base);
    void (*destroy)(fg_kernel *k); /* NULL means free(k) */
    int32_t kind;
    int64_t once, each, tasks; /* bytes that a run takes from fg_alloc: once, and for each of so many tasks while it runs */
};

typedef struct {
    int32_t slot, dtype;
    int64_t offset; /* bytes */
    int64_t stride[FG_MAX_DIMS]; /* bytes */
} fg_operand;

static inline char *fg_address(const fg_operand *o, void *const *base) { return (char *)base[o->slot] + o->offset; }

/* ---- reading words (kernel.c) ----
 * After the first failure every read gives `lo` (0 or the smallest legal value) without touching memory, so a parser may
 * read on and test r->failed once before it allocates by a count it has read.  Never index by a value before that test
 * unless its bounds were given to fg_read. */
typedef struct {
    const int64_t *word;
    int64_t n, pos;
    char *err;
    int err_size, failed;
    const char *kind; /* name for messages, e.g. "map" */
} fg_reader;

/* Records "<kind>: <message>"; the first failure stays. Always returns NULL. */
void *fg_fail(fg_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The next word, checked to be in [lo, hi]. */
int64_t fg_read(fg_reader *r, const char *what, int64_t lo, int64_t hi);
/* n dims >= 0 whose product (and product without zeros) is at most FG_LIMIT; returns the product. n <= FG_MAX_DIMS. */
int64_t fg_read_dims(fg_reader *r, const char *what, int n, int64_t *dim);
/* slot, dtype, offset, stride[0..n). min_slot is 0, or -1 where "no memory" is legal. Checks that the span of bytes
 * addressed over dim[0..n) stays within FG_LIMIT. */
void fg_read_operand(fg_reader *r, const char *what, int min_slot, int n, const int64_t *dim, fg_operand *o);
/* slot, offset, stride[0..n) for the kinds that give an element size instead of a dtype (o->dtype = -1). */
void fg_read_view(fg_reader *r, const char *what, int min_slot, int n, const int64_t *dim, fg_operand *o);
/* slot, offset. */
void fg_read_pointer(fg_reader *r, const char *what, int min_slot, fg_operand *o);
/* All words must have been read. Returns 1 when nothing failed. */
int fg_read_end(fg_reader *r);
/* a * b, or a failure when either is negative or the product is beyond FG_LIMIT. */
int64_t fg_read_product(fg_reader *r, const char *what, int64_t a, int64_t b);

/* ---- element types ---- */
static inline int64_t fg_dtype_size(int dtype) {
    return dtype == FG_BOOL ? 1 : dtype == FG_F16 || dtype == FG_BF16 ? 2 : 4;
}

static inline uint32_t fg_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float fg_float(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* float32 <-> bfloat16 and IEEE half, round to nearest even, NaN stays (quiet) NaN, denormals kept. Free of branches so
 * that loops over them vectorise. */
static inline float fg_bf16_to_f32(uint16_t h) { return fg_float((uint32_t)h << 16); }

static inline uint16_t fg_f32_to_bf16(float x) {
    uint32_t u = fg_bits(x), rounded = u + 0x7fffu + ((u >> 16) & 1u), nan = u | 0x00400000u;
    return (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded) >> 16);
}

static inline float fg_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h & 0x7c00u, m = (uint32_t)(h & 0x7fffu) << 13;
    /* a denormal is the integer h & 0x3ff times 2^-24: exact in float32 */
    uint32_t small = fg_bits((float)(int32_t)(h & 0x3ffu) * 0x1p-24f);
    uint32_t bits = e == 0 ? small : e == 0x7c00u ? m + 0x70000000u : m + 0x38000000u;
    bits |= (e == 0x7c00u && (h & 0x3ffu)) ? 0x00400000u : 0u;
    return fg_float(bits | sign);
}

static inline uint16_t fg_f32_to_f16(float x) {
    uint32_t u = fg_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13; /* carries into the exponent by itself */
    /* below 2^-14 the addition of 0.5 rounds at the denormal's last place (2^-24), to even */
    uint32_t small = fg_bits(fg_float(a) + 0.5f) - 0x3f000000u;
    uint32_t r = a < 0x38800000u ? small : a >= 0x477ff000u ? 0x7c00u : normal;
    r = a > 0x7f800000u ? (0x7e00u | ((a >> 13) & 0x3ffu)) : r;
    return (uint16_t)(r | sign);
}

/* One element of an F32, F16 or BF16 array as float32. */
static inline float fg_load_f32(const void *p, int dtype) {
    uint16_t h;
    float x;
    if (dtype == FG_F32) {
        memcpy(&x, p, 4);
        return x;
    }
    memcpy(&h, p, 2);
    return dtype == FG_F16 ? fg_f16_to_f32(h) : fg_bf16_to_f32(h);
}

static inline void fg_store_f32(void *p, int dtype, float x) {
    uint16_t h;
    if (dtype == FG_F32) {
        memcpy(p, &x, 4);
        return;
    }
    h = dtype == FG_F16 ? fg_f32_to_f16(x) : fg_f32_to_bf16(x);
    memcpy(p, &h, 2);
}

/* ---- MAP operations: X(name, number of sources) ---- in map_ops.h; shared functions of one register in math_f32.h */

/* ---- the kinds ---- */
typedef fg_kernel *(*fg_new_function)(fg_reader *r);
typedef struct {
    fg_new_function kind[FG_N_KINDS];
} fg_variant;
/* Made of kernels of the other kinds (tiles.c). */
fg_kernel *fg_tiles_new(fg_reader *r);
/* The table of the best variant that this CPU runs (dispatch.c). Environment FUNCGRAD_CPU=base|avx2|avx512 asks for a lower one. */
const fg_variant *fg_pick_variant(void);

#define FG_DECLARE_KINDS(v)                                                                                           \
    fg_kernel *fg_map_new_##v(fg_reader *r);                                                                          \
    fg_kernel *fg_reduce_new_##v(fg_reader *r);                                                                       \
    fg_kernel *fg_dot_new_##v(fg_reader *r);                                                                          \
    fg_kernel *fg_take_new_##v(fg_reader *r);                                                                         \
    fg_kernel *fg_scatter_new_##v(fg_reader *r);                                                                      \
    fg_kernel *fg_dynamic_slice_new_##v(fg_reader *r);                                                                \
    fg_kernel *fg_dynamic_update_new_##v(fg_reader *r);                                                               \
    fg_kernel *fg_cumulative_new_##v(fg_reader *r);                                                                   \
    fg_kernel *fg_sort_new_##v(fg_reader *r);                                                                         \
    fg_kernel *fg_rows_new_##v(fg_reader *r);                                                                         \
    fg_kernel *fg_matrix_new_##v(fg_reader *r);
FG_DECLARE_KINDS(base)
#if defined(__x86_64__) && !defined(FG_BASE_ONLY)
#define FG_HAVE_X86_VARIANTS 1
FG_DECLARE_KINDS(avx2)
FG_DECLARE_KINDS(avx512)
#endif

/* The registered sgemm, or NULL (kernel.c). */
extern fg_sgemm fg_blas_sgemm;

/* Number of tasks worth making for `work` units (element-instructions or multiply-adds) is by shape alone: helpers may use
 * this as the size below which one task is right. */
#define FG_SERIAL_WORK 32768

#endif
