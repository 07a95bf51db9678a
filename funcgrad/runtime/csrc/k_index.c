/* TAKE and SCATTER. */
#include "k_index.h"

/* A, N, B, I as both TAKE and SCATTER have them. */
typedef struct {
    int64_t A, N, B, I, es;
    int batched;
} index_shape;

static void index_read_shape(fg_reader *r, index_shape *s) {
    s->A = fg_read(r, "A", 0, FG_LIMIT);
    s->N = fg_read(r, "N", 0, FG_LIMIT);
    s->B = fg_read(r, "B", 0, FG_LIMIT);
    s->I = fg_read(r, "I", 0, FG_LIMIT);
    s->batched = (int)fg_read(r, "idx_batched", 0, 1);
    int64_t row = fg_read_product(r, "B", s->B, s->es);
    fg_read_product(r, "the operand's size", fg_read_product(r, "A x N", s->A, s->N), row);
    fg_read_product(r, "the size of the indexed rows", fg_read_product(r, "A x I", s->A, s->I), row);
}

/* ---- TAKE ---- */

typedef struct {
    fg_kernel base;
    index_shape s;
    int fill;
    uint64_t fill_bits;
    fg_operand x, idx, out;
    int64_t n_tasks;
} fg_take;

typedef struct {
    const fg_take *k;
    const char *x, *idx;
    char *out;
} take_run;

/* The row to copy, or -1 for the fill value. */
FG_INLINE int64_t take_row(int64_t i, int64_t n, int fill) {
    if (fill) return (uint64_t)i < (uint64_t)n ? i : -1;
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

#define TAKE_ELEMENTS(T)                                                                                               \
    FG_INLINE void take_##T(const char *x, const char *idx, char *out, int64_t n, int64_t count, int fill,             \
                            uint64_t bits) {                                                                           \
        typedef T any __attribute__((aligned(1), may_alias));                                                          \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            int64_t row = take_row(index_load(idx, i), n, fill);                                                       \
            ((any *)out)[i] = row < 0 ? (T)bits : ((const any *)x)[row];                                               \
        }                                                                                                              \
    }
TAKE_ELEMENTS(uint8_t)
TAKE_ELEMENTS(uint16_t)
TAKE_ELEMENTS(uint32_t)
TAKE_ELEMENTS(uint64_t)

static void take_elements(const fg_take *k, const char *x, const char *idx, char *out, int64_t count) {
    const int64_t n = k->s.N;
    if (k->s.es == 4) {
        if (k->fill) take_uint32_t(x, idx, out, n, count, 1, k->fill_bits);
        else take_uint32_t(x, idx, out, n, count, 0, 0);
    } else if (k->s.es == 2) {
        take_uint16_t(x, idx, out, n, count, k->fill, k->fill_bits);
    } else if (k->s.es == 1) {
        take_uint8_t(x, idx, out, n, count, k->fill, k->fill_bits);
    } else {
        take_uint64_t(x, idx, out, n, count, k->fill, k->fill_bits);
    }
}

static void take_fill(const fg_take *k, char *out) {
    for (int64_t b = 0; b < k->s.B; b++) memcpy(out + b * k->s.es, &k->fill_bits, (size_t)k->s.es); /* little endian */
}

/* Rows [first, last) of all A * I. */
static void take_rows(const take_run *r, int64_t first, int64_t last) {
    const fg_take *k = r->k;
    const index_shape *s = &k->s;
    const int64_t size = s->B * s->es;
    while (first < last) {
        int64_t a = first / s->I, i = first - a * s->I, count = index_min(s->I - i, last - first);
        const char *x = r->x + a * s->N * size, *idx = r->idx + ((s->batched ? a * s->I : 0) + i) * 4;
        char *out = r->out + first * size;
        first += count;
        if (s->B == 1) {
            take_elements(k, x, idx, out, count);
            continue;
        }
        for (int64_t j = 0; j < count; j++, out += size) {
            int64_t row = take_row(index_load(idx, j), s->N, k->fill);
            if (row < 0) take_fill(k, out);
            else memcpy(out, x + row * size, (size_t)size);
        }
    }
}

static void take_task(void *ctx, int64_t task) {
    const take_run *r = ctx;
    int64_t rows = r->k->s.A * r->k->s.I, per = index_ceil(rows, r->k->n_tasks);
    take_rows(r, index_min(rows, task * per), index_min(rows, (task + 1) * per));
}

static void take_run_kernel(const fg_kernel *kernel, void *const *base) {
    const fg_take *k = (const fg_take *)kernel;
    if (k->n_tasks == 0) return;
    take_run r = {k, fg_address(&k->x, base), fg_address(&k->idx, base), fg_address(&k->out, base)};
    fg_parallel_for(k->n_tasks, take_task, &r);
}

fg_kernel *FG_NAME(fg_take_new)(fg_reader *r) {
    fg_take k;
    memset(&k, 0, sizeof k);
    k.base.run = take_run_kernel;
    k.s.es = index_elem_size(r);
    index_read_shape(r, &k.s);
    k.fill = (int)fg_read(r, "mode", 0, 1);
    k.fill_bits = (uint64_t)fg_read(r, "fill_bits", INT64_MIN, INT64_MAX);
    fg_read_pointer(r, "x", 0, &k.x);
    fg_read_pointer(r, "idx", 0, &k.idx);
    fg_read_pointer(r, "out", 0, &k.out);
    if (!fg_read_end(r)) return NULL;
    const int64_t bytes = k.s.A * k.s.I * k.s.B * k.s.es;
    if (k.s.N == 0 && bytes > 0 && !k.fill) return fg_fail(r, "an empty axis has no element to clamp to");
    int64_t work = bytes + 4 * k.s.A * k.s.I;
    k.n_tasks = bytes == 0              ? 0
                : work < 2 * INDEX_TASK ? 1
                                        : index_min(index_min(work / INDEX_TASK, INDEX_TASKS), k.s.A * k.s.I);
    return index_finish(r, &k, sizeof k);
}

/* ---- SCATTER ---- */

typedef struct {
    fg_kernel base;
    index_shape s;
    int op, dtype;
    fg_operand out, idx, upd;
    int64_t columns, panels; /* of one panel of B; their number */
    int64_t per_task, n_tasks;
} fg_scatter;

typedef struct {
    const fg_scatter *k;
    const char *idx, *upd;
    char *out;
} scatter_run;

typedef void (*scatter_fn)(char *out, const char *upd, int64_t n);

#define SCATTER_OP(NAME, T, EXPR)                                                                                      \
    static void scatter_##NAME(char *out, const char *upd, int64_t n) {                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T o = ((const T##_any *)out)[i], u = ((const T##_any *)upd)[i];                                            \
            ((T##_any *)out)[i] = EXPR;                                                                                \
        }                                                                                                              \
    }
/* NaN wins, as everywhere */
#define SCATTER_FMIN ((u < o) | (u != u)) ? u : o
#define SCATTER_FMAX ((u > o) | (u != u)) ? u : o
typedef uint8_t uint8_t_any;
typedef int32_any int32_t_any;
typedef uint32_any uint32_t_any;
SCATTER_OP(f32_add, float, o + u)
SCATTER_OP(f32_mul, float, o * u)
SCATTER_OP(f32_min, float, SCATTER_FMIN)
SCATTER_OP(f32_max, float, SCATTER_FMAX)
SCATTER_OP(i32_add, uint32_t, o + u)
SCATTER_OP(i32_mul, uint32_t, o * u)
SCATTER_OP(i32_min, int32_t, u < o ? u : o)
SCATTER_OP(i32_max, int32_t, u > o ? u : o)
SCATTER_OP(u32_min, uint32_t, u < o ? u : o)
SCATTER_OP(u32_max, uint32_t, u > o ? u : o)
SCATTER_OP(bool_or, uint8_t, (uint8_t)((o | u) != 0))
SCATTER_OP(bool_and, uint8_t, (uint8_t)(o && u))

#define SCATTER_HALF(NAME, TYPE, EXPR)                                                                                 \
    static void scatter_##NAME(char *out, const char *upd, int64_t n) {                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            float o = fg_load_f32(out + 2 * i, TYPE), u = fg_load_f32(upd + 2 * i, TYPE);                              \
            fg_store_f32(out + 2 * i, TYPE, EXPR);                                                                     \
        }                                                                                                              \
    }
#define SCATTER_HALVES(T, TYPE)                                                                                        \
    SCATTER_HALF(T##_add, TYPE, o + u)                                                                                 \
    SCATTER_HALF(T##_mul, TYPE, o * u)                                                                                  \
    SCATTER_HALF(T##_min, TYPE, SCATTER_FMIN)                                                                          \
    SCATTER_HALF(T##_max, TYPE, SCATTER_FMAX)
SCATTER_HALVES(f16, FG_F16)
SCATTER_HALVES(bf16, FG_BF16)

/* [dtype][op - 1] */
static const scatter_fn scatter_fns[6][4] = {
    {scatter_f32_add, scatter_f32_mul, scatter_f32_min, scatter_f32_max},
    {scatter_f16_add, scatter_f16_mul, scatter_f16_min, scatter_f16_max},
    {scatter_bf16_add, scatter_bf16_mul, scatter_bf16_min, scatter_bf16_max},
    {scatter_i32_add, scatter_i32_mul, scatter_i32_min, scatter_i32_max},
    {scatter_i32_add, scatter_i32_mul, scatter_u32_min, scatter_u32_max},
    {scatter_bool_or, scatter_bool_and, scatter_bool_and, scatter_bool_or},
};

/* One float added per index: the commonest case of a single column, without a call for each. */
static void scatter_add_singles(char *out, const char *idx, const char *upd, int64_t count, int64_t n) {
    for (int64_t i = 0; i < count; i++) {
        uint64_t row = (uint64_t)index_load(idx, i);
        if (row < (uint64_t)n) ((float_any *)out)[row] += ((const float_any *)upd)[i];
    }
}

/* Columns [b, b + n) of the updates of one a, in their order. */
static void scatter_columns(const scatter_run *r, int64_t a, int64_t b, int64_t n) {
    const fg_scatter *k = r->k;
    const int64_t size = k->s.B * k->s.es, bytes = n * k->s.es;
    const char *idx = r->idx + (k->s.batched ? a * k->s.I * 4 : 0), *upd = r->upd + a * k->s.I * size + b * k->s.es;
    char *out = r->out + a * k->s.N * size + b * k->s.es;
    if (size == 4 && k->dtype == FG_F32 && k->op == FG_SCATTER_ADD) {
        scatter_add_singles(out, idx, upd, k->s.I, k->s.N);
        return;
    }
    scatter_fn f = k->op == FG_SET ? NULL : scatter_fns[k->dtype][k->op - 1];
    for (int64_t i = 0; i < k->s.I; i++, upd += size) {
        int64_t row = index_load(idx, i);
        if (row < 0 || row >= k->s.N) continue;
        if (f) f(out + row * size, upd, n);
        else memcpy(out + row * size, upd, (size_t)bytes);
    }
}

/* unit = a * panels + panel: no two write the same element. */
static void scatter_task(void *ctx, int64_t task) {
    const scatter_run *r = ctx;
    const fg_scatter *k = r->k;
    int64_t u = task * k->per_task, last = index_min(k->s.A * k->panels, u + k->per_task);
    for (; u < last; u++) {
        int64_t b = u % k->panels * k->columns;
        scatter_columns(r, u / k->panels, b, index_min(k->columns, k->s.B - b));
    }
}

static void scatter_run_kernel(const fg_kernel *kernel, void *const *base) {
    const fg_scatter *k = (const fg_scatter *)kernel;
    if (k->n_tasks == 0) return;
    scatter_run r = {k, fg_address(&k->idx, base), fg_address(&k->upd, base), fg_address(&k->out, base)};
    fg_parallel_for(k->n_tasks, scatter_task, &r);
}

/* Split by a, then by columns: two cache lines at least, so that tasks share none and rows keep some length. A single
 * column is not split: each task would have to read all the indices, which costs more than the additions. */
static void scatter_plan(fg_scatter *k) {
    const index_shape *s = &k->s;
    const int64_t work = s->A * s->I * s->B * s->es, line = 128 / s->es;
    if (work == 0 || s->N == 0) return;
    int64_t tasks = work < 2 * INDEX_TASK ? 1 : index_min(work / INDEX_TASK, INDEX_TASKS);
    k->columns = s->B, k->panels = 1;
    if (s->A < tasks) {
        int64_t per = index_ceil(s->B, index_ceil(tasks, s->A));
        k->columns = index_min(s->B, index_ceil(per, line) * line);
        k->panels = index_ceil(s->B, k->columns);
    }
    k->per_task = index_ceil(s->A * k->panels, tasks);
    k->n_tasks = index_ceil(s->A * k->panels, k->per_task);
}

fg_kernel *FG_NAME(fg_scatter_new)(fg_reader *r) {
    fg_scatter k;
    memset(&k, 0, sizeof k);
    k.base.run = scatter_run_kernel;
    k.op = (int)fg_read(r, "op", FG_SET, FG_SCATTER_MAX);
    k.dtype = (int)fg_read(r, "dtype", FG_F32, FG_BOOL);
    k.s.es = fg_dtype_size(k.dtype);
    index_read_shape(r, &k.s);
    fg_read_pointer(r, "out", 0, &k.out);
    fg_read_pointer(r, "idx", 0, &k.idx);
    fg_read_pointer(r, "upd", 0, &k.upd);
    if (!fg_read_end(r)) return NULL;
    scatter_plan(&k);
    return index_finish(r, &k, sizeof k);
}
