/* Included by k_dot.c: reading a product's words, and how it is cut into tiles. */
#ifndef FG_K_DOT_PLAN_H
#define FG_K_DOT_PLAN_H
#include "k_gemm.h"

#define DOT_TASK ((int64_t)1 << 18) /* multiply-adds that are worth a task */
#define DOT_TASKS 8                 /* tasks to aim at */
#define DOT_TILE 512                /* the largest tile */
#define DOT_STACK 4096              /* floats of scratch kept on the stack */
#define DOT_ROWS 3                  /* rows that the kernel for contiguous k takes */
#define DOT_BLAS_MIN 48             /* smallest extent for which a BLAS is called */

/* Kernels of a tile */
enum { DOT_GEMM, DOT_ALONG_K, DOT_BLAS, DOT_INT };

typedef struct {
    int32_t slot, dtype;
    int64_t offset, rs, cs, batch[FG_MAX_DIMS];
} dot_operand;

typedef struct {
    fg_kernel base;
    int nb, how;
    int64_t batch[FG_MAX_DIMS], n_batch, m, n, k;
    dot_operand a, b, c;
    int64_t tm, tn, tk, nm, nn, nk; /* sizes and numbers of the tiles */
    int64_t units_per_task, n_tasks;
    gemm_plan plan;
    fg_sgemm sgemm;  /* of DOT_BLAS: the one registered at creation */
    int c_in_place;  /* the result is written straight to c; otherwise a tile in scratch is copied to c */
    int64_t scratch; /* floats */
} fg_dot;

static void dot_read_operand(fg_reader *r, const char *what, int nb, const int64_t *dim, int64_t es, dot_operand *o) {
    fg_operand v;
    fg_read_operand(r, what, 0, nb + 2, dim, &v);
    *o = (dot_operand){.slot = v.slot, .dtype = v.dtype, .offset = v.offset};
    memcpy(o->batch, v.stride, sizeof(int64_t) * (size_t)nb);
    /* the stride of an extent of one is never used: make it the one that suits the kernels */
    o->rs = dim[nb] == 1 ? es : v.stride[nb];
    o->cs = dim[nb + 1] == 1 ? es : v.stride[nb + 1];
}

static void dot_check_types(fg_reader *r, int dtype, const fg_dot *d) {
    const dot_operand *o[3] = {&d->a, &d->b, &d->c};
    if (dtype != FG_F32 && dtype != FG_I32 && dtype != FG_U32)
        fg_fail(r, "dtype must be that of F32, I32 or U32, got %d", dtype);
    for (int i = 0; i < 3; i++) {
        int t = o[i]->dtype, ok = dtype == FG_F32 ? t == FG_F32 || t == FG_F16 || t == FG_BF16 : t == dtype;
        if (!ok) fg_fail(r, "operand %d has dtype %d, which does not go with arithmetic of dtype %d", i, t, dtype);
    }
}

static void dot_read(fg_reader *r, fg_dot *d) {
    int64_t da[FG_MAX_DIMS], db[FG_MAX_DIMS], dc[FG_MAX_DIMS];
    int dtype = (int)fg_read(r, "dtype", FG_F32, FG_U32);
    int nb = (int)fg_read(r, "the number of batch dimensions", 0, FG_MAX_DIMS - 2);
    d->nb = nb;
    d->n_batch = fg_read_dims(r, "batch", nb, d->batch);
    memcpy(da, d->batch, sizeof da), memcpy(db, d->batch, sizeof db), memcpy(dc, d->batch, sizeof dc);
    da[nb] = dc[nb] = d->m = fg_read(r, "m", 0, FG_LIMIT);
    db[nb + 1] = dc[nb + 1] = d->n = fg_read(r, "n", 0, FG_LIMIT);
    da[nb + 1] = db[nb] = d->k = fg_read(r, "k", 0, FG_LIMIT);
    fg_read_product(r, "a's size", d->n_batch, fg_read_product(r, "a's size", d->m, d->k));
    fg_read_product(r, "b's size", d->n_batch, fg_read_product(r, "b's size", d->k, d->n));
    fg_read_product(r, "c's size", d->n_batch, fg_read_product(r, "c's size", d->m, d->n));
    if (r->failed) return;
    dot_read_operand(r, "a", nb, da, 4, &d->a);
    dot_read_operand(r, "b", nb, db, 4, &d->b);
    dot_read_operand(r, "c", nb, dc, 4, &d->c);
    dot_check_types(r, dtype, d);
    int same = (d->m > 1 && d->c.rs == 0) || (d->n > 1 && d->c.cs == 0);
    for (int i = 0; i < nb; i++) same |= d->batch[i] > 1 && d->c.batch[i] == 0;
    if (same && d->n_batch * d->m * d->n > 0) fg_fail(r, "c must not have a zero stride");
    d->how = dtype == FG_F32 ? DOT_GEMM : DOT_INT;
}

static void dot_drop_batch(fg_dot *d, int i) {
    dot_operand *o[3] = {&d->a, &d->b, &d->c};
    for (int j = i + 1; j < d->nb; j++) {
        d->batch[j - 1] = d->batch[j];
        for (int t = 0; t < 3; t++) o[t]->batch[j - 1] = o[t]->batch[j];
    }
    d->nb--;
}

/* A batch dimension over which b is constant and whose steps continue a's and c's rows is more rows. */
static int dot_fold_batch(fg_dot *d, int i, int64_t *m, dot_operand *a, const dot_operand *b, int64_t *a_step,
                          int64_t *c_step) {
    int64_t sa = a->batch[i], sc = d->c.batch[i];
    if (b->batch[i] != 0 || (*m != 1 && (sa != *m * *a_step || sc != *m * *c_step))) return 0;
    if (*m == 1) *a_step = sa, *c_step = sc;
    *m *= d->batch[i];
    dot_drop_batch(d, i);
    return 1;
}

static int dot_merge_batch(fg_dot *d, int i) {
    const int64_t inner = d->batch[i + 1];
    const dot_operand *o[3] = {&d->a, &d->b, &d->c};
    for (int t = 0; t < 3; t++)
        if (o[t]->batch[i] != inner * o[t]->batch[i + 1]) return 0;
    d->batch[i + 1] *= d->batch[i];
    dot_drop_batch(d, i);
    return 1;
}

static void dot_coalesce(fg_dot *d) {
    for (int i = d->nb - 1; i >= 0; i--)
        if (d->batch[i] == 1) dot_drop_batch(d, i);
    for (int i = d->nb - 2; i >= 0; i--) dot_merge_batch(d, i);
    for (int i = d->nb - 1; i >= 0; i--) {
        if (dot_fold_batch(d, i, &d->m, &d->a, &d->b, &d->a.rs, &d->c.rs)) continue;
        dot_fold_batch(d, i, &d->n, &d->b, &d->a, &d->b.cs, &d->c.cs);
    }
}

static void dot_transpose(fg_dot *d) {
    dot_operand a = d->a;
    int64_t m = d->m, t;
    d->a = d->b, d->b = a;
    d->m = d->n, d->n = m;
    dot_operand *o[3] = {&d->a, &d->b, &d->c};
    for (int i = 0; i < 3; i++) t = o[i]->rs, o[i]->rs = o[i]->cs, o[i]->cs = t;
}

static fg_matrix dot_layout(const dot_operand *o) { return (fg_matrix){NULL, o->rs, o->cs, o->dtype}; }

static int dot_is_along_k(const fg_dot *d) {
    return d->m <= DOT_ROWS && d->a.dtype == FG_F32 && d->b.dtype == FG_F32 && d->b.rs == 4 && d->a.cs == 4;
}

static int64_t dot_tiles(const fg_dot *d) { return d->nm * d->nn * d->n_batch; }

static gemm_plan dot_gemm_plan(const fg_dot *d) {
    fg_matrix a = dot_layout(&d->a), b = dot_layout(&d->b);
    return gemm_plan_tile(d->tm, d->tn, d->tk, d->n % VW || (d->nn > 1 && d->tn % VW), &a, &b);
}

/* Halves m or n until there are `wanted` tiles or the next would be below `least`. An operand that is packed is packed
 * again for each tile of the other extent, so it is its own that is cut. */
static void dot_halve(fg_dot *d, int64_t wanted, int64_t least_m, int64_t least_n) {
    while (dot_tiles(d) < wanted) {
        gemm_plan g = dot_gemm_plan(d);
        int can_n = d->tn >= 2 * least_n, can_m = d->tm >= 2 * least_m;
        int n_first = g.pack_a == g.pack_b ? d->tn >= d->tm : g.pack_b;
        if (can_n && (n_first || !can_m)) {
            d->tn = gemm_ceil(gemm_ceil(d->n, 2 * d->nn), VW) * VW;
            d->nn = gemm_ceil(d->n, d->tn);
        } else if (can_m) {
            d->tm = gemm_ceil(gemm_ceil(d->m, 2 * d->nm), 4) * 4;
            d->nm = gemm_ceil(d->m, d->tm);
        } else {
            return;
        }
    }
}

static void dot_tile(fg_dot *d) {
    int64_t cap = DOT_TILE;
    double work = (double)d->n_batch * (double)d->m * (double)d->n * (double)d->k;
    int64_t wanted =
        work<2.0 * DOT_TASK ? 1 : work>(double) DOT_TASKS * DOT_TASK ? DOT_TASKS : (int64_t)(work / DOT_TASK);
    d->nm = gemm_ceil(d->m, cap), d->nn = gemm_ceil(d->n, cap), d->nk = 1, d->tk = d->k;
    d->tm = gemm_min(d->m, gemm_ceil(gemm_ceil(d->m, d->nm), 4) * 4), d->nm = gemm_ceil(d->m, d->tm);
    d->tn = gemm_min(d->n, gemm_ceil(gemm_ceil(d->n, d->nn), NR) * NR), d->nn = gemm_ceil(d->n, d->tn);
    dot_halve(d, wanted, 4 * MR, 4 * VW);
    if (dot_tiles(d) < gemm_min(wanted, 8) && d->k >= 2048 && d->how != DOT_INT) {
        d->nk = gemm_min(gemm_ceil(wanted, dot_tiles(d)), d->k / 1024);
    }
    d->tk = gemm_ceil(d->k, d->nk);
    d->nk = d->k ? gemm_ceil(d->k, d->tk) : 1;
    dot_halve(d, gemm_ceil(wanted, d->nk), d->m > 2 * MR ? MR : 4, 2 * VW);
    double unit = (double)d->tm * (double)d->tn * (double)d->tk;
    int64_t units = dot_tiles(d) * d->nk;
    d->units_per_task = wanted == 1        ? units
                        : unit >= DOT_TASK ? 1
                                           : gemm_min(units, (int64_t)(DOT_TASK / (unit + 1)) + 1);
    d->n_tasks = gemm_ceil(units, d->units_per_task);
}

/* Cycles, roughly; only to choose between the problem and its transpose. */
static double dot_cost(const fg_dot *d) {
    double m = (double)d->m, n = (double)d->n, k = (double)d->k;
    double store = d->c.dtype == FG_F32 && d->c.cs == 4 ? 0 : d->c.dtype == FG_F32 && d->c.rs == 4 ? m * n : 4 * m * n;
    if (dot_is_along_k(d)) return m * n * (k / VW + 6) + store;
    gemm_plan g = dot_gemm_plan(d);
    double pack_b = d->b.dtype != FG_F32 ? 2 : d->b.cs == 4 ? 0.1 : d->b.rs == 4 ? 0.5 : 1;
    double pack_a = d->a.dtype != FG_F32 ? 2 : d->a.rs == 4 ? 0.1 : d->a.cs == 4 ? 0.5 : 1;
    double pack = (g.pack_a ? m * k * pack_a * (double)d->nn : 0) + (g.pack_b ? n * k * pack_b * (double)d->nm : 0);
    return m * (double)gemm_ceil(d->n, VW) * k / 2 + store + pack;
}

static void dot_orient(fg_dot *d) {
    fg_dot t = *d;
    dot_transpose(&t);
    dot_tile(d);
    dot_tile(&t);
    if (dot_cost(&t) < dot_cost(d)) *d = t;
}

#if VW < 16
/* Whether a BLAS takes this operand as it is: rows or columns contiguous, the other stride long enough. */
static int dot_blas_takes(const dot_operand *o, int64_t rows, int64_t cols) {
    int by_rows = o->cs == 4 && o->rs >= 4 * cols, by_cols = o->rs == 4 && o->cs >= 4 * rows;
    return o->dtype == FG_F32 && o->rs % 4 == 0 && o->cs % 4 == 0 && (by_rows || by_cols) &&
           o->rs < ((int64_t)1 << 32) && o->cs < ((int64_t)1 << 32);
}
#endif

/* With 512-bit vectors the kernels here are never slower than a BLAS, measured; with shorter ones a BLAS has an edge.
 */
static int dot_use_blas(const fg_dot *d) {
#if VW < 16
    int large = d->tm >= DOT_BLAS_MIN && d->tn >= DOT_BLAS_MIN && d->tk >= DOT_BLAS_MIN && d->tk < ((int64_t)1 << 30);
    return fg_blas_sgemm && large && dot_blas_takes(&d->a, d->m, d->k) && dot_blas_takes(&d->b, d->k, d->n) &&
           d->c_in_place && d->c.rs >= 4 * d->n && d->c.rs % 4 == 0 && d->c.rs < ((int64_t)1 << 32);
#else
    (void)d;
    return 0;
#endif
}

static void dot_plan(fg_dot *d) {
    if (d->how == DOT_INT) return;
    d->plan = dot_gemm_plan(d);
    d->c_in_place = d->nk == 1 && d->c.dtype == FG_F32 && d->c.cs == 4;
    if (dot_is_along_k(d)) d->how = DOT_ALONG_K;
    else if (dot_use_blas(d)) d->how = DOT_BLAS, d->sgemm = fg_blas_sgemm;
    if (d->how == DOT_GEMM) d->scratch = d->plan.size_a + d->plan.size_b;
    if (!d->c_in_place && d->nk == 1) d->scratch += d->tm * d->tn;
}

#endif
