/* Included by k_reduce.c: reading a reduction's words, and choosing how it is done. */
#ifndef FG_K_REDUCE_PLAN_H
#define FG_K_REDUCE_PLAN_H
#include "k_fold.h"

#define REDUCE_TASK 32768  /* elements that are worth a task */
#define REDUCE_TASKS 16    /* tasks at most */
#define REDUCE_CONVERT 256 /* columns converted at a time */
#define REDUCE_NARROW 256  /* rows of fewer columns are read several at a time, as one */
#define REDUCE_INNER 64    /* elements that a row needs more of to be folded on its own */

enum { REDUCE_FILL, REDUCE_FEW, REDUCE_BY_ROWS, REDUCE_BY_COLUMNS, REDUCE_ARG, REDUCE_ARG_COLUMNS };

/* One loop: its length, and the bytes of a step in the input and in the output. */
typedef struct {
    int64_t n, in, out;
} reduce_dim;

typedef struct {
    fg_kernel base;
    int how, op, in_type, out_type, in_slot, out_slot, nk, nr, direct;
    int64_t in_offset, out_offset, n_out, n_red;
    reduce_dim keep[FG_MAX_DIMS], red[FG_MAX_DIMS];
    const fg_fold *fold;
    int64_t segments, segment; /* number and elements (by columns: rows) of one */
    int64_t panel, panels;     /* columns of one, and panels of a run of columns */
    int64_t group;             /* rows of narrow columns read as one */
    int64_t inner;             /* by columns: side by side columns of one result */
    int64_t few[FOLD_SHORT];
    int64_t units, per_task, n_tasks;
} fg_reduce;

static inline int64_t reduce_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t reduce_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int reduce_is_float(int dtype) { return dtype == FG_F32 || dtype == FG_F16 || dtype == FG_BF16; }

/* Where the m-th result is, in the loops keep[0..n). */
static void reduce_place(const fg_reduce *k, int n, int64_t m, int64_t *in, int64_t *out) {
    *in = *out = 0;
    for (int i = n - 1; i >= 0; i--) {
        int64_t x = m % k->keep[i].n;
        m /= k->keep[i].n;
        *in += x * k->keep[i].in, *out += x * k->keep[i].out;
    }
}

/* The offset of the q-th run of the reduced loops but the innermost. */
static int64_t reduce_outer(const fg_reduce *k, int64_t q) {
    int64_t in = 0;
    for (int i = k->nr - 2; i >= 0; i--) in += q % k->red[i].n * k->red[i].in, q /= k->red[i].n;
    return in;
}

static const fg_fold *reduce_find_fold(int op, int in) {
    if (reduce_is_float(in))
        return op == FG_SUM ? &fold_f_sum : op == FG_PROD ? &fold_f_prod : op == FG_MAX ? &fold_f_max : &fold_f_min;
    if (op == FG_SUM) return &fold_u_sum;
    if (op == FG_PROD) return &fold_u_prod;
    if (in == FG_BOOL) return op == FG_MAX || op == FG_ANY ? &fold_u_max : &fold_u_min;
    if (in == FG_U32) return op == FG_MAX ? &fold_u_max : &fold_u_min;
    return op == FG_MAX ? &fold_i_max : &fold_i_min;
}

static void reduce_check_types(fg_reader *r, int op, int in, int out) {
    int ok, arithmetic = op == FG_SUM || op == FG_PROD;
    if (op == FG_ARGMAX || op == FG_ARGMIN) ok = out == FG_I32;
    else if (op == FG_ANY || op == FG_ALL) ok = in == FG_BOOL && out == FG_BOOL;
    else if (reduce_is_float(in)) ok = reduce_is_float(out);
    else if (in == FG_BOOL) ok = arithmetic ? out != FG_BOOL : out == FG_BOOL;
    else ok = in == out;
    if (!ok) fg_fail(r, "op %d does not take dtype %d to dtype %d", op, in, out);
}

/* Loops of one step go, the others are sorted by their input stride (those of stride 0 outermost) and merged. */
static int reduce_coalesce(reduce_dim *d, int n, int sort) {
    int m = 0;
    for (int i = 0; i < n; i++)
        if (d[i].n != 1) d[m++] = d[i];
    for (int i = 1; i < m && sort; i++)
        for (int j = i; j > 0; j--) {
            uint64_t a = (uint64_t)llabs(d[j - 1].in) - 1,
                     b = (uint64_t)llabs(d[j].in) - 1; /* 0 wraps to the largest */
            if (a >= b) break;
            reduce_dim t = d[j];
            d[j] = d[j - 1], d[j - 1] = t;
        }
    for (int i = m - 2; i >= 0; i--) {
        if (d[i].in != d[i + 1].in * d[i + 1].n || d[i].out != d[i + 1].out * d[i + 1].n) continue;
        d[i].n *= d[i + 1].n, d[i].in = d[i + 1].in, d[i].out = d[i + 1].out;
        for (int j = i + 1; j + 1 < m; j++) d[j] = d[j + 1];
        m--;
    }
    return m;
}

static void reduce_read(fg_reader *r, fg_reduce *k) {
    int64_t dim[FG_MAX_DIMS];
    fg_operand in, out;
    k->op = (int)fg_read(r, "op", FG_SUM, FG_ALL);
    k->nk = (int)fg_read(r, "the number of kept dimensions", 0, FG_MAX_DIMS);
    k->n_out = fg_read_dims(r, "a kept dimension", k->nk, dim);
    k->nr = (int)fg_read(r, "the number of reduced dimensions", 0, FG_MAX_DIMS - k->nk);
    if (r->failed) return;
    k->n_red = fg_read_dims(r, "a reduced dimension", k->nr, dim + k->nk);
    fg_read_product(r, "the number of elements", k->n_out, k->n_red);
    fg_read_operand(r, "the input", 0, k->nk + k->nr, dim, &in);
    fg_read_operand(r, "the output", 0, k->nk, dim, &out);
    reduce_check_types(r, k->op, in.dtype, out.dtype);
    if (k->op == FG_ARGMAX || k->op == FG_ARGMIN) {
        if (k->n_red == 0 || k->n_red > INT32_MAX)
            fg_fail(r, "a position needs 1 to 2^31 - 1 elements, got %lld", (long long)k->n_red);
    }
    for (int i = 0; i < k->nk; i++) {
        if (k->n_out > 0 && dim[i] > 1 && out.stride[i] == 0) fg_fail(r, "the output must not have a zero stride");
        k->keep[i] = (reduce_dim){dim[i], in.stride[i], out.stride[i]};
    }
    for (int i = 0; i < k->nr; i++) k->red[i] = (reduce_dim){dim[k->nk + i], in.stride[k->nk + i], 0};
    k->in_slot = in.slot, k->in_type = in.dtype, k->in_offset = in.offset;
    k->out_slot = out.slot, k->out_type = out.dtype, k->out_offset = out.offset;
}

/* Reversed loops are turned round, except the reduced ones of a position, whose order counts. */
static void reduce_turn(fg_reduce *k) {
    for (int i = 0; i < k->nk; i++) {
        reduce_dim *d = &k->keep[i];
        if (d->in >= 0) continue;
        k->in_offset += (d->n - 1) * d->in, k->out_offset += (d->n - 1) * d->out;
        d->in = -d->in, d->out = -d->out;
    }
    for (int i = 0; i < k->nr && k->how != REDUCE_ARG; i++) {
        reduce_dim *d = &k->red[i];
        if (d->in >= 0) continue;
        k->in_offset += (d->n - 1) * d->in;
        d->in = -d->in;
    }
}

/* Where a few reduced elements and then the results' own loop lie side by side, as a group's channels and the groups do
 * in a group norm: all of them are columns, and the columns of a result are joined at the end. */
static int reduce_has_inner(const fg_reduce *k) {
    if (k->how == REDUCE_ARG || k->nk == 0 || k->nr < 2 || fg_dtype_size(k->in_type) != 4) return 0;
    const reduce_dim row = k->red[k->nr - 1], col = k->keep[k->nk - 1];
    return row.in == 4 && row.n <= REDUCE_INNER && col.in == row.n * 4;
}

/* By rows unless a run of kept elements is closer together, or longer at the same distance. */
static void reduce_choose(fg_reduce *k) {
    const int64_t es = fg_dtype_size(k->in_type);
    k->inner = 1;
    if (reduce_has_inner(k)) {
        k->inner = k->red[--k->nr].n;
        k->n_red /= k->inner;
        k->how = REDUCE_BY_COLUMNS, k->direct = 1;
        return;
    }
    if (k->nr == 0) k->red[k->nr++] = (reduce_dim){1, es, 0};
    const reduce_dim row = k->red[k->nr - 1], col = k->nk ? k->keep[k->nk - 1] : (reduce_dim){1, 0, 0};
    int by_rows = k->nk == 0 || (row.in == es && row.n >= 16) || (col.in != es && row.n >= col.n);
    if (k->how == REDUCE_ARG) k->how = by_rows ? REDUCE_ARG : REDUCE_ARG_COLUMNS;
    else k->how = by_rows ? REDUCE_BY_ROWS : REDUCE_BY_COLUMNS;
    k->direct = es == 4 && (by_rows ? row.in == es : col.in == es);
    if (k->how != REDUCE_BY_COLUMNS || k->n_red > FOLD_SHORT || !k->fold->few) return;
    if (es != 4 || col.out != 4 || k->out_type != k->in_type) return;
    k->how = REDUCE_FEW;
    for (int64_t i = 0; i < k->n_red; i++) k->few[i] = reduce_outer(k, i / row.n) + i % row.n * row.in;
}

static void reduce_cut(fg_reduce *k) {
    const int64_t work = k->n_out * k->n_red * k->inner;
    const int64_t tasks = reduce_min(REDUCE_TASKS, work / REDUCE_TASK ? work / REDUCE_TASK : 1);
    int64_t units = k->n_out, least = FOLD_BLOCK;
    k->segments = k->panels = k->group = 1;
    const int by_columns = k->how == REDUCE_FEW || k->how == REDUCE_BY_COLUMNS || k->how == REDUCE_ARG_COLUMNS;
    if (by_columns) {
        const reduce_dim run = k->keep[k->nk - 1], d = k->red[k->nr - 1];
        k->panel = !k->direct || k->how == REDUCE_ARG_COLUMNS ? REDUCE_CONVERT
                   : k->how == REDUCE_FEW                     ? 4 * FOLD_PANEL
                                                              : FOLD_PANEL / k->inner * k->inner;
        const int64_t width = run.n * k->inner; /* whose bytes are run.n * run.in, with an inner loop too */
        k->panels = reduce_ceil(width, k->panel);
        if (width < REDUCE_NARROW / 2 && d.in == run.n * run.in) k->group = reduce_min(REDUCE_NARROW / width, d.n);
        units = k->n_out / run.n * k->panels, least = 2 * FOLD_ROWS * k->group;
    }
    if (k->how != REDUCE_FEW && k->how != REDUCE_ARG_COLUMNS && units < reduce_min(tasks, 8)) {
        k->segments = reduce_min(reduce_ceil(tasks, units), reduce_ceil(k->n_red, least));
    }
    k->segment = reduce_ceil(k->n_red, k->segments);
    k->segments = reduce_ceil(k->n_red, k->segment);
    k->units = units * k->segments;
    k->per_task = reduce_ceil(k->units, k->segments > 1 ? k->units : tasks);
    k->n_tasks = reduce_ceil(k->units, k->per_task);
}

static void reduce_plan(fg_reduce *k) {
    if (k->op == FG_ARGMAX || k->op == FG_ARGMIN) k->how = REDUCE_ARG;
    k->fold = reduce_find_fold(k->op == FG_ARGMAX ? FG_MAX : k->op == FG_ARGMIN ? FG_MIN : k->op, k->in_type);
    reduce_turn(k);
    k->nk = reduce_coalesce(k->keep, k->nk, 1);
    if (k->n_red == 0) {
        k->how = REDUCE_FILL, k->segments = 1;
        k->units = k->n_out, k->per_task = REDUCE_TASK, k->n_tasks = reduce_ceil(k->units, k->per_task);
        return;
    }
    k->nr = reduce_coalesce(k->red, k->nr, k->how != REDUCE_ARG);
    reduce_choose(k);
    reduce_cut(k);
}

#endif
