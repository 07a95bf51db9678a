/* TAKE, SCATTER, DYNAMIC_SLICE and DYNAMIC_UPDATE. Indices come from memory and are never trusted: each is clamped, or
 * compared with the extent as an unsigned number, before it makes an address. */
#include "k_vec.h"
#include "internal.h"

#define INDEX_TASK 65536 /* bytes that are worth a task */
#define INDEX_TASKS 16   /* tasks at most */

static inline int64_t index_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t index_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t index_elem_size(fg_reader *r) {
    int64_t es = fg_read(r, "the element size", 1, 8);
    if (es != 1 && es != 2 && es != 4 && es != 8) fg_fail(r, "the element size must be 1, 2, 4 or 8, got %d", (int)es);
    return es;
}

static inline int64_t index_load(const char *idx, int64_t i) { return ((const int32_any *)idx)[i]; }

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

static fg_kernel *index_finish(fg_reader *r, const void *k, size_t size) {
    void *out = malloc(size);
    if (!out) return fg_fail(r, "out of memory");
    memcpy(out, k, size);
    return out;
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

#define TAKE_ELEMENTS(T)                                                                                              \
    FG_INLINE void take_##T(const char *x, const char *idx, char *out, int64_t n, int64_t count, int fill, uint64_t bits) { \
        typedef T any __attribute__((aligned(1), may_alias));                                                         \
        for (int64_t i = 0; i < count; i++) {                                                                         \
            int64_t row = take_row(index_load(idx, i), n, fill);                                                      \
            ((any *)out)[i] = row < 0 ? (T)bits : ((const any *)x)[row];                                              \
        }                                                                                                             \
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
    k.n_tasks = bytes == 0 ? 0 : work < 2 * INDEX_TASK ? 1 : index_min(index_min(work / INDEX_TASK, INDEX_TASKS), k.s.A * k.s.I);
    return index_finish(r, &k, sizeof k);
}

/* ---- SCATTER ---- */

typedef struct {
    fg_kernel base;
    index_shape s;
    int op, dtype;
    fg_operand out, idx, upd;
    int64_t columns, panels; /* of B, per task */
    int64_t ranges, range;   /* of N, when there is but one column */
} fg_scatter;

typedef struct {
    const fg_scatter *k;
    const char *idx, *upd;
    char *out;
} scatter_run;

typedef void (*scatter_fn)(char *out, const char *upd, int64_t n);

#define SCATTER_OP(NAME, T, EXPR)                                                                                     \
    static void scatter_##NAME(char *out, const char *upd, int64_t n) {                                               \
        for (int64_t i = 0; i < n; i++) {                                                                             \
            T o = ((const T##_any *)out)[i], u = ((const T##_any *)upd)[i];                                           \
            ((T##_any *)out)[i] = EXPR;                                                                               \
        }                                                                                                             \
    }
/* NaN wins, as everywhere */
#define SCATTER_FMIN ((u < o) | (u != u)) ? u : o
#define SCATTER_FMAX ((u > o) | (u != u)) ? u : o
typedef uint8_t uint8_t_any;
typedef int32_any int32_t_any;
typedef uint32_any uint32_t_any;
SCATTER_OP(f32_add, float, o + u)
SCATTER_OP(f32_mul, float, o *u)
SCATTER_OP(f32_min, float, SCATTER_FMIN)
SCATTER_OP(f32_max, float, SCATTER_FMAX)
SCATTER_OP(i32_add, uint32_t, o + u)
SCATTER_OP(i32_mul, uint32_t, o *u)
SCATTER_OP(i32_min, int32_t, u < o ? u : o)
SCATTER_OP(i32_max, int32_t, u > o ? u : o)
SCATTER_OP(u32_min, uint32_t, u < o ? u : o)
SCATTER_OP(u32_max, uint32_t, u > o ? u : o)
SCATTER_OP(bool_or, uint8_t, (uint8_t)((o | u) != 0))
SCATTER_OP(bool_and, uint8_t, (uint8_t)(o && u))

#define SCATTER_HALF(NAME, TYPE, EXPR)                                                                                \
    static void scatter_##NAME(char *out, const char *upd, int64_t n) {                                               \
        for (int64_t i = 0; i < n; i++) {                                                                             \
            float o = fg_load_f32(out + 2 * i, TYPE), u = fg_load_f32(upd + 2 * i, TYPE);                             \
            fg_store_f32(out + 2 * i, TYPE, EXPR);                                                                    \
        }                                                                                                             \
    }
#define SCATTER_HALVES(T, TYPE)                                                                                       \
    SCATTER_HALF(T##_add, TYPE, o + u)                                                                                \
    SCATTER_HALF(T##_mul, TYPE, o *u)                                                                                 \
    SCATTER_HALF(T##_min, TYPE, SCATTER_FMIN)                                                                         \
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
static void scatter_add_singles(char *out, const char *idx, const char *upd, int64_t count, int64_t lo, int64_t hi) {
    for (int64_t i = 0; i < count; i++) {
        int64_t n = index_load(idx, i);
        if (n >= lo && n < hi) ((float_any *)out)[n] += ((const float_any *)upd)[i];
    }
}

/* Columns [b, b + n) of every update of one a whose index is in [lo, hi). */
static void scatter_columns(const scatter_run *r, int64_t a, int64_t b, int64_t n, int64_t lo, int64_t hi) {
    const fg_scatter *k = r->k;
    const int64_t size = k->s.B * k->s.es, bytes = n * k->s.es;
    const char *idx = r->idx + (k->s.batched ? a * k->s.I * 4 : 0), *upd = r->upd + a * k->s.I * size + b * k->s.es;
    char *out = r->out + a * k->s.N * size + b * k->s.es;
    if (size == 4 && k->dtype == FG_F32 && k->op == FG_SCATTER_ADD) {
        scatter_add_singles(out, idx, upd, k->s.I, lo, hi);
        return;
    }
    scatter_fn f = k->op == FG_SET ? NULL : scatter_fns[k->dtype][k->op - 1];
    for (int64_t i = 0; i < k->s.I; i++, upd += size) {
        int64_t row = index_load(idx, i);
        if (row < lo || row >= hi) continue;
        if (f) f(out + row * size, upd, n);
        else memcpy(out + row * size, upd, (size_t)bytes);
    }
}

/* task = (a * panels + panel) * ranges + range: no two tasks write the same element. */
static void scatter_task(void *ctx, int64_t task) {
    const scatter_run *r = ctx;
    const fg_scatter *k = r->k;
    int64_t lo = task % k->ranges * k->range, b = task / k->ranges % k->panels * k->columns, a = task / k->ranges / k->panels;
    scatter_columns(r, a, b, index_min(k->columns, k->s.B - b), lo, index_min(k->s.N, lo + k->range));
}

static void scatter_run_kernel(const fg_kernel *kernel, void *const *base) {
    const fg_scatter *k = (const fg_scatter *)kernel;
    if (k->panels == 0) return;
    scatter_run r = {k, fg_address(&k->idx, base), fg_address(&k->upd, base), fg_address(&k->out, base)};
    fg_parallel_for(k->s.A * k->panels * k->ranges, scatter_task, &r);
}

/* Split by a, then by columns (64 bytes at least, so that tasks do not share cache lines), then by ranges of rows. */
static void scatter_plan(fg_scatter *k) {
    const index_shape *s = &k->s;
    const int64_t work = s->A * s->I * s->B * s->es, line = 64 / s->es;
    if (work == 0 || s->N == 0) return;
    int64_t tasks = work < 2 * INDEX_TASK ? 1 : index_min(work / INDEX_TASK, INDEX_TASKS);
    k->columns = s->B, k->panels = k->ranges = 1, k->range = s->N;
    if (s->A < tasks) {
        int64_t per = index_ceil(s->B, index_ceil(tasks, s->A));
        k->columns = index_min(s->B, index_ceil(per, line) * line);
        k->panels = index_ceil(s->B, k->columns);
    }
    if (s->A * k->panels == 1 && tasks > 1 && s->N >= 64) {
        k->range = index_ceil(s->N, 4);
        k->ranges = index_ceil(s->N, k->range);
    }
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

/* ---- DYNAMIC_SLICE and DYNAMIC_UPDATE: a copy of a block between two strided views ---- */

typedef struct {
    fg_kernel base;
    int64_t es, n_tasks, rows; /* rows: of the innermost run */
    int nd, moving_out, n_start; /* moving_out: the starts move the destination, not the source */
    int64_t size[FG_MAX_DIMS];   /* merged loops; nd >= 1 */
    fg_operand from, to;
    struct {
        int32_t slot;
        int64_t offset, most, stride; /* most: the largest legal start */
    } start[FG_MAX_DIMS];
} fg_block;

typedef struct {
    const fg_block *k;
    const char *from;
    char *to;
} block_run;

#define BLOCK_COPY(T)                                                                                                 \
    static void block_copy_##T(char *to, int64_t ts, const char *from, int64_t fs, int64_t n) {                       \
        typedef T any __attribute__((aligned(1), may_alias));                                                         \
        for (int64_t i = 0; i < n; i++) *(any *)(to + i * ts) = *(const any *)(from + i * fs);                        \
    }
BLOCK_COPY(uint8_t)
BLOCK_COPY(uint16_t)
BLOCK_COPY(uint32_t)
BLOCK_COPY(uint64_t)

static void block_row(int64_t es, char *to, int64_t ts, const char *from, int64_t fs, int64_t n) {
    if (ts == es && fs == es) memcpy(to, from, (size_t)(n * es));
    else if (es == 4) block_copy_uint32_t(to, ts, from, fs, n);
    else if (es == 2) block_copy_uint16_t(to, ts, from, fs, n);
    else if (es == 1) block_copy_uint8_t(to, ts, from, fs, n);
    else block_copy_uint64_t(to, ts, from, fs, n);
}

static void block_task(void *ctx, int64_t task) {
    const block_run *r = ctx;
    const fg_block *k = r->k;
    const int in = k->nd - 1;
    int64_t per = index_ceil(k->rows, k->n_tasks), last = index_min(k->rows, (task + 1) * per);
    for (int64_t i = task * per; i < last; i++) {
        int64_t q = i, f = 0, t = 0;
        for (int d = in - 1; d >= 0; d--) {
            int64_t x = q % k->size[d];
            q /= k->size[d];
            f += x * k->from.stride[d], t += x * k->to.stride[d];
        }
        block_row(k->es, r->to + t, k->to.stride[in], r->from + f, k->from.stride[in], k->size[in]);
    }
}

static void block_run_kernel(const fg_kernel *kernel, void *const *base) {
    const fg_block *k = (const fg_block *)kernel;
    int64_t move = 0;
    if (k->n_tasks == 0) return;
    for (int d = 0; d < k->n_start; d++) {
        int64_t i = k->start[d].offset;
        if (k->start[d].slot >= 0) i = index_load((const char *)base[k->start[d].slot] + i, 0);
        i = i < 0 ? 0 : i > k->start[d].most ? k->start[d].most : i;
        move += i * k->start[d].stride;
    }
    block_run r = {k, fg_address(&k->from, base) + (k->moving_out ? 0 : move), fg_address(&k->to, base) + (k->moving_out ? move : 0)};
    fg_parallel_for(k->n_tasks, block_task, &r);
}

static void block_read_starts(fg_reader *r, fg_block *k, const int64_t *size, const int64_t *xdim, const fg_operand *x) {
    for (int d = 0; d < k->nd; d++) {
        k->start[d].slot = (int32_t)fg_read(r, "a start's slot", -1, FG_MAX_SLOT);
        k->start[d].offset = fg_read(r, "a start's offset", -FG_LIMIT, FG_LIMIT);
        k->start[d].most = xdim[d] - size[d];
        k->start[d].stride = x->stride[d];
    }
    k->n_start = k->nd;
}

/* Loops of one step go, neighbours that continue each other in both views are merged. */
static void block_merge(fg_block *k) {
    int64_t *f = k->from.stride, *t = k->to.stride;
    int m = 0;
    for (int d = 0; d < k->nd; d++) {
        if (k->size[d] == 1) continue;
        if (m > 0 && f[m - 1] == f[d] * k->size[d] && t[m - 1] == t[d] * k->size[d]) {
            k->size[m - 1] *= k->size[d], f[m - 1] = f[d], t[m - 1] = t[d];
        } else {
            k->size[m] = k->size[d], f[m] = f[d], t[m] = t[d], m++;
        }
    }
    if (m == 0) k->size[0] = 1, f[0] = t[0] = k->es, m = 1;
    k->nd = m;
}

static fg_kernel *block_finish(fg_reader *r, fg_block *k) {
    if (!fg_read_end(r)) return NULL;
    int64_t n = 1;
    for (int d = 0; d < k->nd; d++) {
        n *= k->size[d];
        if (k->moving_out && k->size[d] > 1 && k->to.stride[d] == 0) return fg_fail(r, "out must not have a zero stride");
    }
    k->base.run = block_run_kernel;
    if (n > 0) {
        block_merge(k);
        k->rows = n / k->size[k->nd - 1];
        if (k->rows == 1 && n * k->es >= 4 * INDEX_TASK) { /* one long run: cut it in pieces */
            int64_t pieces = 2;
            while (pieces < INDEX_TASKS && k->size[0] % (2 * pieces) == 0) pieces *= 2;
            if (k->size[0] % pieces == 0) {
                k->size[1] = k->size[0] / pieces, k->size[0] = pieces;
                k->from.stride[1] = k->from.stride[0], k->to.stride[1] = k->to.stride[0];
                k->from.stride[0] *= k->size[1], k->to.stride[0] *= k->size[1];
                k->nd = 2, k->rows = pieces;
            }
        }
        k->n_tasks = n * k->es < 4 * INDEX_TASK ? 1 : index_min(k->rows, INDEX_TASKS);
    }
    return index_finish(r, k, sizeof *k);
}

static void block_read_sizes(fg_reader *r, fg_block *k, int64_t *xdim) {
    k->es = index_elem_size(r);
    k->nd = (int)fg_read(r, "the number of dimensions", 0, FG_MAX_DIMS);
    fg_read_dims(r, "size", k->nd, k->size);
    fg_read_dims(r, "xdim", k->nd, xdim);
    for (int d = 0; d < k->nd && !r->failed; d++)
        if (k->size[d] > xdim[d])
            fg_fail(r, "size[%d] must be at most %lld, got %lld", d, (long long)xdim[d], (long long)k->size[d]);
}

static void block_contiguous(const fg_block *k, fg_operand *o) {
    int64_t s = k->es;
    for (int d = k->nd - 1; d >= 0; d--) o->stride[d] = s, s *= k->size[d];
}

fg_kernel *FG_NAME(fg_dynamic_slice_new)(fg_reader *r) {
    fg_block k;
    int64_t xdim[FG_MAX_DIMS] = {0};
    memset(&k, 0, sizeof k);
    block_read_sizes(r, &k, xdim);
    fg_read_view(r, "x", 0, k.nd, xdim, &k.from);
    block_read_starts(r, &k, k.size, xdim, &k.from);
    fg_read_pointer(r, "out", 0, &k.to);
    if (r->failed) return NULL;
    block_contiguous(&k, &k.to);
    return block_finish(r, &k);
}

fg_kernel *FG_NAME(fg_dynamic_update_new)(fg_reader *r) {
    fg_block k;
    int64_t xdim[FG_MAX_DIMS] = {0};
    memset(&k, 0, sizeof k);
    k.moving_out = 1;
    block_read_sizes(r, &k, xdim);
    fg_read_view(r, "out", 0, k.nd, xdim, &k.to);
    block_read_starts(r, &k, k.size, xdim, &k.to);
    fg_read_view(r, "upd", 0, k.nd, k.size, &k.from);
    return block_finish(r, &k);
}
