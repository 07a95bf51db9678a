/* REDUCE: plans and their loops over k_fold.h; k_argreduce.h has the position of the largest and the smallest.
 *
 * At creation the dimensions are sorted by stride and merged. A result is then a run of contiguous elements folded by
 * rows (the reduced dimension is the contiguous one), by columns (a kept one is) or, for a handful of rows, at once.
 * Data that are not 4-byte elements side by side are first converted, a block at a time. When there are few results,
 * the reduced range is cut into fixed segments, whose totals a second stage joins in their order. */
#include "k_reduce_plan.h"

typedef struct {
    const fg_reduce *k;
    const char *in;
    char *out;
    fg_total *totals; /* [segments][n_out] when there are segments */
} reduce_run;

/* ---- elements ---- */

FG_INLINE void reduce_convert_by(char *out, const char *p, int64_t s, int64_t n, int dtype) {
    uint32_any *u = (uint32_any *)out;
    if (dtype == FG_F16) {
        for (int64_t i = 0; i < n; i++) u[i] = fg_bits(fg_f16_to_f32(*(const uint16_any *)(p + i * s)));
    } else if (dtype == FG_BF16) {
        for (int64_t i = 0; i < n; i++) u[i] = (uint32_t)*(const uint16_any *)(p + i * s) << 16;
    } else if (dtype == FG_BOOL) {
        for (int64_t i = 0; i < n; i++) u[i] = p[i * s] != 0;
    } else {
        for (int64_t i = 0; i < n; i++) u[i] = *(const uint32_any *)(p + i * s);
    }
}

/* n elements, s bytes apart, as float32 or 32-bit integers side by side. */
static void reduce_convert(char *out, const char *p, int64_t s, int64_t n, int dtype) {
    if (s == 1 && dtype == FG_BOOL) reduce_convert_by(out, p, 1, n, FG_BOOL);
    else if (s == 2 && dtype == FG_F16) reduce_convert_by(out, p, 2, n, FG_F16);
    else if (s == 2 && dtype == FG_BF16) reduce_convert_by(out, p, 2, n, FG_BF16);
    else reduce_convert_by(out, p, s, n, dtype);
}

#include "k_argreduce.h"

static void reduce_store(const fg_reduce *k, char *p, fg_total t) {
    if (k->how == REDUCE_ARG) {
        int32_t at = reduce_unpack(t).at;
        memcpy(p, &at, 4);
    } else if (reduce_is_float(k->in_type)) {
        fg_store_f32(p, k->out_type, (float)t.d);
    } else if (k->out_type == FG_BOOL) {
        *p = t.i != 0;
    } else if (reduce_is_float(k->out_type)) {
        fg_store_f32(p, k->out_type, (float)t.i);
    } else {
        uint32_t u = (uint32_t)(uint64_t)t.i;
        memcpy(p, &u, 4);
    }
}

/* ---- by rows ---- */

static void reduce_row(const fg_reduce *k, fg_total *t, const char *p, int64_t n) {
    const int64_t s = k->red[k->nr - 1].in;
    char block[FOLD_BLOCK * 4];
    if (k->direct) {
        k->fold->row(t, p, n);
        return;
    }
    for (; n > 0; n -= FOLD_BLOCK, p += FOLD_BLOCK * s) {
        int64_t part = reduce_min(n, FOLD_BLOCK);
        reduce_convert(block, p, s, part, k->in_type);
        k->fold->row(t, block, part);
    }
}

/* The total of the reduced elements [first, last). */
static fg_total reduce_range(const fg_reduce *k, const char *p, int64_t first, int64_t last) {
    const reduce_dim d = k->red[k->nr - 1];
    fg_total t = k->fold->first;
    while (first < last) {
        int64_t q = first / d.n, i = first - q * d.n, n = reduce_min(d.n - i, last - first);
        reduce_row(k, &t, p + reduce_outer(k, q) + i * d.in, n);
        first += n;
    }
    return t;
}

/* unit = segment * n_out + result */
static void reduce_by_rows(const reduce_run *r, int64_t unit) {
    const fg_reduce *k = r->k;
    int64_t m = unit % k->n_out, s = unit / k->n_out, in, out;
    reduce_place(k, k->nk, m, &in, &out);
    fg_total t;
    if (k->how == REDUCE_ARG) t = reduce_arg(k, r->in + in, s * k->segment, reduce_min(k->n_red, (s + 1) * k->segment));
    else t = reduce_range(k, r->in + in, s * k->segment, reduce_min(k->n_red, (s + 1) * k->segment));
    if (r->totals) r->totals[unit] = t;
    else reduce_store(k, r->out + out, t);
}

/* ---- by columns ---- */

static void reduce_rows_of_columns(const fg_reduce *k, fg_total *t, const char *p, int64_t rs, int64_t rows,
                                   int64_t cols) {
    const int64_t s = k->keep[k->nk - 1].in;
    char block[FOLD_ROWS * REDUCE_CONVERT * 4];
    if (k->direct) {
        k->fold->columns(t, p, rs, rows, cols);
        return;
    }
    for (; rows > 0; rows -= FOLD_ROWS, p += FOLD_ROWS * rs) {
        int64_t n = reduce_min(rows, FOLD_ROWS);
        for (int64_t i = 0; i < n; i++) reduce_convert(block + i * cols * 4, p + i * rs, s, cols, k->in_type);
        k->fold->columns(t, block, cols * 4, n, cols);
    }
}

/* Narrow columns whose rows follow each other: k->group rows are one. */
static void reduce_narrow(const fg_reduce *k, fg_total *t, const char *p, int64_t rs, int64_t rows, int64_t cols) {
    fg_total wide[FOLD_PANEL];
    const int64_t g = k->group;
    if (rows >= g) {
        for (int64_t c = 0; c < g * cols; c++) wide[c] = k->fold->first;
        reduce_rows_of_columns(k, wide, p, rs * g, rows / g, cols * g);
        for (int64_t i = 0; i < g; i++) k->fold->join(t, wide + i * cols, cols);
    }
    reduce_rows_of_columns(k, t, p + rows / g * g * rs, rs, rows % g, cols);
}

/* The columns t of n results, joined to one total each; total may be t. */
static void reduce_join_inner(const fg_reduce *k, fg_total *total, const fg_total *t, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        fg_total x = t[i * k->inner];
        for (int64_t j = 1; j < k->inner; j++) k->fold->join(&x, t + i * k->inner + j, 1);
        total[i] = x;
    }
}

/* unit = (segment * (results / run) + result / run) * panels + panel, where the run is the innermost kept loop */
static void reduce_by_columns(const reduce_run *r, int64_t unit) {
    const fg_reduce *k = r->k;
    const reduce_dim run = k->keep[k->nk - 1], d = k->red[k->nr - 1];
    fg_total local[FOLD_PANEL];
    int64_t panel = unit % k->panels, m = unit / k->panels % (k->n_out / run.n),
            s = unit / k->panels / (k->n_out / run.n);
    int64_t c = panel * k->panel, cols = reduce_min(run.n * k->inner - c, k->panel), in, out;
    int64_t first = s * k->segment, last = reduce_min(k->n_red, first + k->segment);
    const int64_t at = c / k->inner, results = cols / k->inner; /* the first one, and how many */
    reduce_place(k, k->nk - 1, m, &in, &out);
    fg_total *total = r->totals ? r->totals + s * k->n_out + m * run.n + at : local;
    fg_total *t = k->inner > 1 ? local : total;
    for (int64_t i = 0; i < cols; i++) t[i] = k->fold->first;
    while (first < last) {
        int64_t q = first / d.n, i = first - q * d.n, rows = reduce_min(d.n - i, last - first);
        const char *p = r->in + in + reduce_outer(k, q) + i * d.in + at * run.in;
        if (k->group > 1) reduce_narrow(k, t, p, d.in, rows, cols);
        else reduce_rows_of_columns(k, t, p, d.in, rows, cols);
        first += rows;
    }
    if (k->inner > 1) reduce_join_inner(k, total, t, results);
    if (r->totals) return;
    for (int64_t i = 0; i < results; i++) reduce_store(k, r->out + out + (at + i) * run.out, total[i]);
}

/* unit = result / run * panels + panel, like above */
static void reduce_few(const reduce_run *r, int64_t unit) {
    const fg_reduce *k = r->k;
    const reduce_dim run = k->keep[k->nk - 1];
    int64_t c = unit % k->panels * k->panel, n = reduce_min(run.n - c, k->panel), in, out, row[FOLD_SHORT];
    char block[FOLD_SHORT * REDUCE_CONVERT * 4];
    reduce_place(k, k->nk - 1, unit / k->panels, &in, &out);
    const char *p = r->in + in + c * run.in;
    char *q = r->out + out + c * run.out;
    if (k->how == REDUCE_ARG_COLUMNS) {
        reduce_arg_columns(k, p, q, n);
    } else if (k->direct) {
        k->fold->few(q, p, k->few, (int)k->n_red, n);
    } else {
        for (int64_t i = 0; i < k->n_red; i++) {
            row[i] = i * n * 4;
            reduce_convert(block + row[i], p + k->few[i], run.in, n, k->in_type);
        }
        k->fold->few(q, block, row, (int)k->n_red, n);
    }
}

/* ---- running ---- */

static void reduce_fill(const reduce_run *r, int64_t m) {
    int64_t in, out;
    reduce_place(r->k, r->k->nk, m, &in, &out);
    reduce_store(r->k, r->out + out, r->k->fold->first);
}

static void reduce_task(void *ctx, int64_t task) {
    const reduce_run *r = ctx;
    const fg_reduce *k = r->k;
    int64_t u = task * k->per_task, last = reduce_min(k->units, u + k->per_task);
    for (; u < last; u++) {
        if (k->how == REDUCE_FEW || k->how == REDUCE_ARG_COLUMNS) reduce_few(r, u);
        else if (k->how == REDUCE_BY_COLUMNS) reduce_by_columns(r, u);
        else if (k->how == REDUCE_FILL) reduce_fill(r, u);
        else reduce_by_rows(r, u);
    }
}

/* The second stage: the segments of each result, in their order. */
static void reduce_join(const reduce_run *r) {
    const fg_reduce *k = r->k;
    for (int64_t s = 1; s < k->segments; s++) {
        if (k->how == REDUCE_ARG) reduce_arg_join(k, r->totals, r->totals + s * k->n_out, k->n_out);
        else k->fold->join(r->totals, r->totals + s * k->n_out, k->n_out);
    }
    for (int64_t m = 0; m < k->n_out; m++) {
        int64_t in, out;
        reduce_place(k, k->nk, m, &in, &out);
        reduce_store(k, r->out + out, r->totals[m]);
    }
}

static void reduce_run_kernel(const fg_kernel *kernel, void *const *base) {
    const fg_reduce *k = (const fg_reduce *)kernel;
    fg_total stack[1024];
    if (k->n_tasks == 0) return;
    reduce_run r = {k, (const char *)base[k->in_slot] + k->in_offset, (char *)base[k->out_slot] + k->out_offset, NULL};
    if (k->segments == 1) {
        fg_parallel_for(k->n_tasks, reduce_task, &r);
        return;
    }
    const int64_t n = k->segments * k->n_out;
    r.totals = n <= 1024 ? stack : fg_alloc(n * (int64_t)sizeof(fg_total));
    if (r.totals) {
        fg_parallel_for(k->n_tasks, reduce_task, &r);
        reduce_join(&r);
        if (r.totals != stack) fg_free(r.totals);
    } else { /* no memory: in one segment */
        fg_reduce whole = *k;
        whole.units /= k->segments, whole.segments = 1, whole.segment = k->n_red;
        whole.per_task = 1, whole.n_tasks = whole.units;
        r.k = &whole;
        fg_parallel_for(whole.n_tasks, reduce_task, &r);
    }
}

fg_kernel *FG_NAME(fg_reduce_new)(fg_reader *r) {
    fg_reduce k;
    memset(&k, 0, sizeof k);
    reduce_read(r, &k);
    if (!fg_read_end(r)) return NULL;
    k.base.run = reduce_run_kernel;
    if (k.n_out > 0) reduce_plan(&k);
    if (k.segments > 1 && k.segments * k.n_out > 1024) k.base.once = k.segments * k.n_out * (int64_t)sizeof(fg_total);
    fg_reduce *out = malloc(sizeof k);
    if (out) *out = k;
    return out ? &out->base : fg_fail(r, "out of memory");
}
