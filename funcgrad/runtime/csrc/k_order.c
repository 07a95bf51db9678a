/* CUMULATIVE and SORT along the middle of [A, N, B]. */
#include <math.h>

#include "k_fold.h"
#include "k_sort.h"

#define ORDER_TASK 16384 /* elements that are worth a task */
#define ORDER_COLUMNS 64
#define ORDER_CHUNK 65536 /* of one long row */
#define ORDER_CHUNKS 16

static inline int64_t order_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t order_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

static fg_kernel *order_finish(fg_reader *r, const void *k, size_t size) {
    void *out = malloc(size);
    if (!out) return fg_fail(r, "out of memory");
    memcpy(out, k, size);
    return out;
}

static void order_read_shape(fg_reader *r, int64_t *A, int64_t *N, int64_t *B) {
    *A = fg_read(r, "A", 0, FG_LIMIT);
    *N = fg_read(r, "N", 0, FG_LIMIT);
    *B = fg_read(r, "B", 0, FG_LIMIT);
    fg_read_product(r, "the size", fg_read_product(r, "A x N", *A, *N), fg_read_product(r, "4 x B", *B, 4));
}

/* ---- CUMULATIVE ---- */

typedef struct {
    fg_kernel base;
    int op, dtype, reverse;
    int64_t A, N, B, es, panels, per_task, n_tasks, chunk, chunks;
    fg_operand x, out;
} fg_cumulative;

typedef struct {
    const fg_cumulative *k;
    const char *x;
    char *out;
    fg_total *start; /* of each chunk of a single row, or NULL */
} cumulative_run;

/* log(sum(exp)) so far is m + log(s). Infinities: equal ones count as one each, and -inf never makes a difference. */
FG_INLINE double cumulative_lse(double *m, double *s, double v) {
    if (v != v || *m != *m) *m = NAN;
    else if (v == *m) *s += 1;
    else if (v < *m) *s += exp(v - *m);
    else *s = (*m == -INFINITY ? 0 : *s * exp(*m - v)) + 1, *m = v;
    return *m + log(*s);
}

/* Floats: sums and products are kept in double. `start` is where one column begins, or NULL. */
FG_INLINE void cumulative_floats(int op, int dtype, const char *x, char *out, int64_t n, int64_t step, int64_t cols,
                                 const fg_total *start) {
    const int64_t es = dtype == FG_F32 ? 4 : 2;
    double s[ORDER_COLUMNS], m[ORDER_COLUMNS];
    for (int64_t c = 0; c < cols; c++) {
        s[c] = op == FG_PROD ? 1 : op == FG_MAX ? -INFINITY : op == FG_MIN ? INFINITY : 0;
        m[c] = -INFINITY;
        if (start) s[c] = start->d;
    }
    for (; n > 0; n--, x += step, out += step)
        for (int64_t c = 0; c < cols; c++) {
            double v = fg_load_f32(x + c * es, dtype), y;
            if (op == FG_SUM) y = s[c] += v;
            else if (op == FG_PROD) y = s[c] *= v;
            else if (op == FG_MAX) y = s[c] = v > s[c] || v != v ? v : s[c];
            else if (op == FG_MIN) y = s[c] = v < s[c] || v != v ? v : s[c];
            else y = cumulative_lse(&m[c], &s[c], v);
            fg_store_f32(out + c * es, dtype, (float)y);
        }
}

#define CUMULATIVE_INTS(T, ANY, LEAST, MOST)                                                                           \
    FG_INLINE void cumulative_##T(int op, const char *x, char *out, int64_t n, int64_t step, int64_t cols,             \
                                  const fg_total *start) {                                                             \
        T s[ORDER_COLUMNS];                                                                                            \
        for (int64_t c = 0; c < cols; c++) {                                                                           \
            s[c] = op == FG_PROD ? 1 : op == FG_MAX ? LEAST : op == FG_MIN ? MOST : 0;                                 \
            if (start) s[c] = (T)start->i;                                                                             \
        }                                                                                                              \
        for (; n > 0; n--, x += step, out += step)                                                                     \
            for (int64_t c = 0; c < cols; c++) {                                                                       \
                T v = ((const ANY *)x)[c];                                                                             \
                if (op == FG_SUM) s[c] = (T)((uint32_t)s[c] + (uint32_t)v);                                            \
                else if (op == FG_PROD) s[c] = (T)((uint32_t)s[c] * (uint32_t)v);                                      \
                else if (op == FG_MAX) s[c] = v > s[c] ? v : s[c];                                                     \
                else s[c] = v < s[c] ? v : s[c];                                                                       \
                ((ANY *)out)[c] = s[c];                                                                                \
            }                                                                                                          \
    }
CUMULATIVE_INTS(int32_t, int32_any, INT32_MIN, INT32_MAX)
CUMULATIVE_INTS(uint32_t, uint32_any, 0, UINT32_MAX)
CUMULATIVE_INTS(uint8_t, uint8_t, 0, 1)

FG_INLINE void cumulative_op(int op, int dtype, const char *x, char *out, int64_t n, int64_t step, int64_t cols,
                             const fg_total *start) {
    if (dtype == FG_F32) cumulative_floats(op, FG_F32, x, out, n, step, cols, start);
    else if (dtype == FG_F16 || dtype == FG_BF16) cumulative_floats(op, dtype, x, out, n, step, cols, start);
    else if (dtype == FG_I32) cumulative_int32_t(op, x, out, n, step, cols, start);
    else if (dtype == FG_U32) cumulative_uint32_t(op, x, out, n, step, cols, start);
    else cumulative_uint8_t(op, x, out, n, step, cols, start);
}

FG_INLINE void cumulative_columns(int op, int dtype, const char *x, char *out, int64_t n, int64_t step, int64_t cols,
                                  const fg_total *start) {
    if (cols == 1) cumulative_op(op, dtype, x, out, n, step, 1, start);
    else cumulative_op(op, dtype, x, out, n, step, cols, NULL);
}

static void cumulative_part(const fg_cumulative *k, const char *x, char *out, int64_t n, int64_t cols,
                            const fg_total *start) {
    const int64_t row = k->B * k->es, step = k->reverse ? -row : row, first = k->reverse ? (n - 1) * row : 0;
    x += first, out += first;
    switch (k->op) {
    case FG_SUM: cumulative_columns(FG_SUM, k->dtype, x, out, n, step, cols, start); break;
    case FG_PROD: cumulative_columns(FG_PROD, k->dtype, x, out, n, step, cols, start); break;
    case FG_MAX: cumulative_columns(FG_MAX, k->dtype, x, out, n, step, cols, start); break;
    case FG_MIN: cumulative_columns(FG_MIN, k->dtype, x, out, n, step, cols, start); break;
    default: cumulative_columns(FG_LOGSUMEXP, k->dtype, x, out, n, step, cols, start); break;
    }
}

/* unit = a * panels + panel of columns */
static void cumulative_task(void *ctx, int64_t task) {
    const cumulative_run *r = ctx;
    const fg_cumulative *k = r->k;
    int64_t u = task * k->per_task, last = order_min(k->A * k->panels, u + k->per_task);
    for (; u < last; u++) {
        int64_t b = u % k->panels * ORDER_COLUMNS, at = (u / k->panels * k->N * k->B + b) * k->es;
        cumulative_part(k, r->x + at, r->out + at, k->N, order_min(k->B - b, ORDER_COLUMNS), NULL);
    }
}

static const fg_fold *cumulative_fold(const fg_cumulative *k) {
    if (k->dtype == FG_F32) return k->op == FG_SUM ? &fold_f_sum : k->op == FG_MAX ? &fold_f_max : &fold_f_min;
    if (k->op == FG_SUM) return &fold_u_sum;
    if (k->dtype == FG_U32) return k->op == FG_MAX ? &fold_u_max : &fold_u_min;
    return k->op == FG_MAX ? &fold_i_max : &fold_i_min;
}

/* One long row: the total of each chunk, what comes before each, and then each by itself. */
static int64_t cumulative_chunk(const fg_cumulative *k, int64_t i, int64_t *n) {
    *n = order_min(k->chunk, k->N - i * k->chunk);
    return (k->reverse ? k->N - i * k->chunk - *n : i * k->chunk) * k->es;
}

static void cumulative_total(void *ctx, int64_t i) {
    const cumulative_run *r = ctx;
    int64_t n, at = cumulative_chunk(r->k, i, &n);
    cumulative_fold(r->k)->row(&r->start[i + 1], r->x + at, n);
}

static void cumulative_one(void *ctx, int64_t i) {
    const cumulative_run *r = ctx;
    int64_t n, at = cumulative_chunk(r->k, i, &n);
    cumulative_part(r->k, r->x + at, r->out + at, n, 1, &r->start[i]);
}

static void cumulative_long(cumulative_run *r) {
    const fg_cumulative *k = r->k;
    const fg_fold *fold = cumulative_fold(k);
    fg_total start[ORDER_CHUNKS + 1];
    for (int64_t i = 0; i <= k->chunks; i++) start[i] = fold->first;
    r->start = start;
    fg_parallel_for(k->chunks - 1, cumulative_total, r);
    for (int64_t i = 1; i < k->chunks; i++) fold->join(&start[i], &start[i - 1], 1);
    fg_parallel_for(k->chunks, cumulative_one, r);
}

static void cumulative_run_kernel(const fg_kernel *kernel, void *const *base) {
    const fg_cumulative *k = (const fg_cumulative *)kernel;
    if (k->n_tasks == 0) return;
    cumulative_run r = {k, fg_address(&k->x, base), fg_address(&k->out, base), NULL};
    if (k->chunks > 1) cumulative_long(&r);
    else fg_parallel_for(k->n_tasks, cumulative_task, &r);
}

static void cumulative_plan(fg_cumulative *k) {
    const int64_t total = k->A * k->N * k->B, cost = k->op == FG_LOGSUMEXP ? 16 : 1;
    if (total == 0) return;
    k->panels = order_ceil(k->B, ORDER_COLUMNS);
    int64_t units = k->A * k->panels, unit = k->N * order_min(k->B, ORDER_COLUMNS) * cost;
    k->per_task = total * cost < 2 * ORDER_TASK ? units : order_ceil(ORDER_TASK, unit);
    k->n_tasks = order_ceil(units, k->per_task);
    /* products are left in one piece: a chunk's alone may overflow */
    int splits = (k->op == FG_SUM || k->op == FG_MAX || k->op == FG_MIN) && k->es == 4;
    if (units == 1 && k->B == 1 && splits && k->N >= 4 * ORDER_CHUNK) {
        k->chunk = order_ceil(k->N, order_min(ORDER_CHUNKS, k->N / ORDER_CHUNK));
        k->chunks = order_ceil(k->N, k->chunk);
    }
}

fg_kernel *FG_NAME(fg_cumulative_new)(fg_reader *r) {
    fg_cumulative k;
    memset(&k, 0, sizeof k);
    k.base.run = cumulative_run_kernel;
    k.op = (int)fg_read(r, "op", FG_SUM, FG_LOGSUMEXP);
    k.dtype = (int)fg_read(r, "dtype", FG_F32, FG_BOOL);
    order_read_shape(r, &k.A, &k.N, &k.B);
    k.reverse = (int)fg_read(r, "reverse", 0, 1);
    fg_read_pointer(r, "x", 0, &k.x);
    fg_read_pointer(r, "out", 0, &k.out);
    if (k.op > FG_PROD && k.op < FG_LOGSUMEXP) fg_fail(r, "op must be sum, max, min, prod or logsumexp, got %d", k.op);
    if (k.op == FG_LOGSUMEXP && k.dtype > FG_BF16) fg_fail(r, "logsumexp takes floats, got dtype %d", k.dtype);
    if (k.dtype == FG_BOOL && k.op == FG_SUM) fg_fail(r, "the running sum of BOOL is not BOOL");
    if (!fg_read_end(r)) return NULL;
    k.es = fg_dtype_size(k.dtype);
    cumulative_plan(&k);
    return order_finish(r, &k, sizeof k);
}

/* ---- SORT ---- */

typedef struct {
    fg_kernel base;
    int dtype, digits;
    int64_t A, N, B, es, per_task, n_tasks, chunk, chunks;
    fg_operand x, values, indices;
} fg_sort;

typedef struct {
    const fg_sort *k;
    const char *x;
    char *values, *indices;
    uint64_t *a, *b;        /* one long row */
    uint32_t (*count)[256]; /* per chunk */
    int shift;
} sort_run;

/* Places [first, last) of a sorted row that starts at element `at`. */
static void sort_store(const sort_run *r, int64_t at, const uint64_t *a, int64_t first, int64_t last) {
    const fg_sort *k = r->k;
    const int64_t B = k->B, es = k->es;
    const char *x = r->x + at * es;
    char *v = r->values ? r->values + at * es : NULL, *p = r->indices ? r->indices + at * 4 : NULL;
    for (int64_t i = first; i < last && v; i++) {
        const char *q = x + (int64_t)(uint32_t)a[i] * B * es;
        char *w = v + i * B * es;
        if (es == 4) *(uint32_any *)w = *(const uint32_any *)q;
        else if (es == 2) *(uint16_any *)w = *(const uint16_any *)q;
        else *w = *q;
    }
    for (int64_t i = first; i < last && p; i++) *(uint32_any *)(p + i * B * 4) = (uint32_t)a[i];
}

static void sort_plain(const sort_run *r, int64_t at) {
    const fg_sort *k = r->k;
    sort_heap h = {.x = r->x + at * k->es,
                   .values = r->values ? r->values + at * k->es : NULL,
                   .indices = r->indices ? r->indices + at * 4 : NULL,
                   .n = k->N,
                   .step = k->B * k->es,
                   .index_step = k->B * 4,
                   .dtype = k->dtype};
    sort_in_place(&h);
}

static void sort_task(void *ctx, int64_t task) {
    const sort_run *r = ctx;
    const fg_sort *k = r->k;
    uint64_t stack[2 * SORT_MERGE];
    uint64_t *a = k->N <= SORT_MERGE ? stack : fg_alloc(k->N * 16);
    int64_t row = task * k->per_task, last = order_min(k->A * k->B, row + k->per_task);
    for (; row < last; row++) {
        int64_t at = row / k->B * k->N * k->B + row % k->B;
        if (!a) {
            sort_plain(r, at);
            continue;
        }
        sort_load(a, r->x + at * k->es, k->B * k->es, k->dtype, 0, k->N);
        sort_store(r, at, sort_row(a, a + k->N, k->N, k->digits), 0, k->N);
    }
    if (a != stack) fg_free(a);
}

/* One long row, in chunks: each pass counts the digits of every chunk, and then every chunk knows where its elements
 * go. */
static int64_t sort_chunk(const fg_sort *k, int64_t i, int64_t *last) {
    *last = order_min(k->N, (i + 1) * k->chunk);
    return i * k->chunk;
}

static void sort_load_chunk(void *ctx, int64_t i) {
    const sort_run *r = ctx;
    int64_t last, first = sort_chunk(r->k, i, &last);
    sort_load(r->a, r->x, r->k->es, r->k->dtype, first, last);
}

static void sort_count_chunk(void *ctx, int64_t i) {
    const sort_run *r = ctx;
    int64_t last, first = sort_chunk(r->k, i, &last);
    memset(r->count[i], 0, sizeof r->count[i]);
    for (int64_t j = first; j < last; j++) r->count[i][r->a[j] >> r->shift & 255]++;
}

static void sort_move_chunk(void *ctx, int64_t i) {
    const sort_run *r = ctx;
    int64_t last, first = sort_chunk(r->k, i, &last);
    uint32_t *c = r->count[i];
    for (int64_t j = first; j < last; j++) r->b[c[r->a[j] >> r->shift & 255]++] = r->a[j];
}

static void sort_store_chunk(void *ctx, int64_t i) {
    const sort_run *r = ctx;
    int64_t last, first = sort_chunk(r->k, i, &last);
    sort_store(r, 0, r->a, first, last);
}

/* Counts to first places; 0 when all elements share the digit. */
static int sort_places(const sort_run *r) {
    const fg_sort *k = r->k;
    uint32_t sum = 0;
    for (int v = 0; v < 256; v++) {
        uint32_t before = sum;
        for (int64_t i = 0; i < k->chunks; i++) {
            uint32_t x = r->count[i][v];
            r->count[i][v] = sum, sum += x;
        }
        if ((int64_t)(sum - before) == k->N) return 0;
    }
    return 1;
}

static void sort_long(sort_run *r) {
    const fg_sort *k = r->k;
    uint32_t count[ORDER_CHUNKS][256];
    uint64_t *scratch = fg_alloc(k->N * 16);
    if (!scratch) {
        sort_plain(r, 0);
        return;
    }
    r->a = scratch, r->b = scratch + k->N, r->count = count;
    fg_parallel_for(k->chunks, sort_load_chunk, r);
    for (int d = 0; d < k->digits; d++) {
        r->shift = 32 + 8 * d;
        fg_parallel_for(k->chunks, sort_count_chunk, r);
        if (!sort_places(r)) continue;
        fg_parallel_for(k->chunks, sort_move_chunk, r);
        uint64_t *t = r->a;
        r->a = r->b, r->b = t;
    }
    fg_parallel_for(k->chunks, sort_store_chunk, r);
    fg_free(scratch);
}

static void sort_run_kernel(const fg_kernel *kernel, void *const *base) {
    const fg_sort *k = (const fg_sort *)kernel;
    if (k->n_tasks == 0) return;
    sort_run r = {.k = k, .x = fg_address(&k->x, base)};
    if (k->values.slot >= 0) r.values = fg_address(&k->values, base);
    if (k->indices.slot >= 0) r.indices = fg_address(&k->indices, base);
    if (k->chunks > 1) sort_long(&r);
    else fg_parallel_for(k->n_tasks, sort_task, &r);
}

fg_kernel *FG_NAME(fg_sort_new)(fg_reader *r) {
    fg_sort k;
    memset(&k, 0, sizeof k);
    k.base.run = sort_run_kernel;
    k.dtype = (int)fg_read(r, "dtype", FG_F32, FG_BOOL);
    order_read_shape(r, &k.A, &k.N, &k.B);
    fg_read_pointer(r, "x", 0, &k.x);
    fg_read_pointer(r, "values", -1, &k.values);
    fg_read_pointer(r, "indices", -1, &k.indices);
    if (k.N > INT32_MAX) fg_fail(r, "N must be below 2^31, got %lld", (long long)k.N);
    if (!fg_read_end(r)) return NULL;
    k.es = fg_dtype_size(k.dtype), k.digits = sort_digits(k.dtype);
    const int64_t rows = k.A * k.B, total = rows * k.N;
    if (total > 0 && (k.values.slot >= 0 || k.indices.slot >= 0)) {
        k.per_task = total < ORDER_TASK ? rows : order_ceil(ORDER_TASK / 4, k.N);
        k.n_tasks = order_ceil(rows, k.per_task);
        if (rows == 1 && k.N >= 2 * ORDER_CHUNK) {
            k.chunk = order_ceil(k.N, order_min(ORDER_CHUNKS, k.N / ORDER_CHUNK));
            k.chunks = order_ceil(k.N, k.chunk);
        }
        if (k.chunks > 1) k.base.once = k.N * 16;
        else if (k.N > SORT_MERGE) k.base.each = k.N * 16, k.base.tasks = k.n_tasks;
    }
    return order_finish(r, &k, sizeof k);
}
