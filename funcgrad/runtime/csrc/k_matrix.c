/* MATRIX: factors and solutions of stacks of float32 matrices, computed in double. */
#include <math.h>

#include "internal.h"

#define MATRIX_NEAR 1024 /* doubles of scratch that need no allocation */

enum { MATRIX_CHOLESKY = 0, MATRIX_TRIANGULAR = 1, MATRIX_SOLVE = 2, MATRIX_SLOGDET = 3, MATRIX_DET = 4, MATRIX_OPS };
enum { MATRIX_LOWER = 1, MATRIX_TRANSPOSED = 2, MATRIX_UNIT = 4 };

typedef struct {
    fg_kernel base;
    int op, flags;
    int64_t A, n, m, per_task, n_tasks, scratch; /* scratch in doubles, of one task */
    fg_operand a, b, out, second;
} fg_matrix;

typedef struct {
    const fg_matrix *k;
    const float *a, *b;
    float *out, *second;
} matrix_run;

static inline void matrix_nan(float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = NAN;
}

/* y -= f * x */
static inline void matrix_less(double *restrict y, const double *restrict x, double f, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] -= f * x[i];
}

/* The lower factor of the symmetric part. `w` is n rows, of which column k is gathered in `col` for the update of the
 * rows behind it. */
static void matrix_cholesky(const fg_matrix *k, const float *a, float *out, double *w) {
    const int64_t n = k->n;
    double *col = w + n * n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) w[i * n + j] = 0.5 * ((double)a[i * n + j] + (double)a[j * n + i]);
    for (int64_t p = 0; p < n; p++) {
        double pivot = w[p * n + p];
        if (!(pivot > 0)) { /* not positive definite, or NaN */
            matrix_nan(out, n * n);
            return;
        }
        w[p * n + p] = pivot = sqrt(pivot);
        for (int64_t i = p + 1; i < n; i++) col[i] = w[i * n + p] /= pivot;
        for (int64_t i = p + 1; i < n; i++) matrix_less(w + i * n + p + 1, col + p + 1, col[i], i - p);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) out[i * n + j] = j <= i ? (float)w[i * n + j] : 0;
}

/* One right-hand side at a time along columns of the triangle, which `w` holds as rows; or all of them together. */
static void matrix_triangular(const fg_matrix *k, const float *a, const float *b, float *out, double *w) {
    const int64_t n = k->n, m = k->m;
    const int lower = !!(k->flags & MATRIX_LOWER), turned = !!(k->flags & MATRIX_TRANSPOSED), unit = !!(k->flags & MATRIX_UNIT);
    const int forward = lower != turned, few = m < 4;
    double *x = w + n * n;
    /* row r of w: column r of the triangle where there are few right-hand sides, otherwise row r */
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) w[(turned != few ? j * n + i : i * n + j)] = a[i * n + j];
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < m; c++) x[few ? c * n + i : i * m + c] = b[i * m + c];
    for (int64_t s = 0; s < n; s++) {
        const int64_t i = forward ? s : n - 1 - s, from = forward ? i + 1 : 0, count = forward ? n - 1 - i : i;
        const double *row = w + i * n, pivot = unit ? 1 : row[i];
        if (few) {
            for (int64_t c = 0; c < m; c++) {
                double *xc = x + c * n;
                xc[i] /= pivot;
                matrix_less(xc + from, row + from, xc[i], count);
            }
        } else {
            const int64_t first = forward ? 0 : i + 1, last = forward ? i : n;
            for (int64_t j = first; j < last; j++) matrix_less(x + i * m, x + j * m, row[j], m);
            for (int64_t c = 0; c < m; c++) x[i * m + c] /= pivot;
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < m; c++) out[i * m + c] = (float)x[few ? c * n + i : i * m + c];
}

static inline void matrix_swap(double *x, double *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double t = x[i];
        x[i] = y[i], y[i] = t;
    }
}

/* Elimination with the largest pivot of each column, on `x` of m columns as well. The sign of the order of the rows; 0 where
 * a pivot is 0. */
static int matrix_eliminate(double *w, double *x, int64_t n, int64_t m) {
    int sign = 1;
    for (int64_t p = 0; p < n; p++) {
        int64_t best = p;
        for (int64_t i = p + 1; i < n; i++)
            if (fabs(w[i * n + p]) > fabs(w[best * n + p])) best = i;
        if (best != p) {
            matrix_swap(w + p * n + p, w + best * n + p, n - p);
            matrix_swap(x + p * m, x + best * m, m);
            sign = -sign;
        }
        const double pivot = w[p * n + p];
        if (pivot == 0) return 0;
        for (int64_t i = p + 1; i < n; i++) {
            const double f = w[i * n + p] / pivot;
            if (f == 0) continue;
            matrix_less(w + i * n + p + 1, w + p * n + p + 1, f, n - p - 1);
            matrix_less(x + i * m, x + p * m, f, m);
        }
    }
    return sign;
}

static void matrix_solve(const fg_matrix *k, const float *a, const float *b, float *out, double *w) {
    const int64_t n = k->n, m = k->m;
    double *x = w + n * n;
    for (int64_t i = 0; i < n * n; i++) w[i] = a[i];
    for (int64_t i = 0; i < n * m; i++) x[i] = b[i];
    if (!matrix_eliminate(w, x, n, m)) {
        matrix_nan(out, n * m);
        return;
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t j = i + 1; j < n; j++) matrix_less(x + i * m, x + j * m, w[i * n + j], m);
        for (int64_t c = 0; c < m; c++) x[i * m + c] /= w[i * n + i];
    }
    for (int64_t i = 0; i < n * m; i++) out[i] = (float)x[i];
}

static void matrix_determinant(const fg_matrix *k, const float *a, float *out, float *second, double *w) {
    const int64_t n = k->n;
    for (int64_t i = 0; i < n * n; i++) w[i] = a[i];
    double sign = matrix_eliminate(w, w, n, 0), total = sign == 0 ? -INFINITY : 0, product = sign;
    for (int64_t i = 0; i < n && sign != 0; i++) {
        const double p = w[i * n + i];
        product *= p;
        sign = p != p ? p : p < 0 ? -sign : sign;
        total += log(fabs(p));
    }
    *out = (float)(k->op == MATRIX_DET ? product : sign);
    if (k->op == MATRIX_SLOGDET) *second = (float)total;
}

static void matrix_one(const matrix_run *r, int64_t i, double *w) {
    const fg_matrix *k = r->k;
    const int64_t square = k->n * k->n, wide = k->n * k->m;
    const float *a = r->a + i * square;
    if (k->op == MATRIX_CHOLESKY) matrix_cholesky(k, a, r->out + i * square, w);
    else if (k->op == MATRIX_TRIANGULAR) matrix_triangular(k, a, r->b + i * wide, r->out + i * wide, w);
    else if (k->op == MATRIX_SOLVE) matrix_solve(k, a, r->b + i * wide, r->out + i * wide, w);
    else matrix_determinant(k, a, r->out + i, r->second ? r->second + i : NULL, w);
}

static void matrix_task(void *ctx, int64_t task) {
    const matrix_run *r = ctx;
    const fg_matrix *k = r->k;
    double near[MATRIX_NEAR], *w = k->scratch <= MATRIX_NEAR ? near : fg_alloc(k->scratch * 8);
    int64_t i = task * k->per_task, last = i + k->per_task < k->A ? i + k->per_task : k->A;
    const int64_t size = k->op == MATRIX_CHOLESKY ? k->n * k->n : k->op <= MATRIX_SOLVE ? k->n * k->m : 1;
    for (; i < last; i++) {
        if (w) {
            matrix_one(r, i, w);
            continue;
        }
        matrix_nan(r->out + i * size, size); /* no memory: nothing that looks like a solution */
        if (r->second) matrix_nan(r->second + i, 1);
    }
    if (w && w != near) fg_free(w);
}

static void matrix_run_kernel(const fg_kernel *kernel, void *const *base) {
    const fg_matrix *k = (const fg_matrix *)kernel;
    if (k->n_tasks == 0) return;
    matrix_run r = {.k = k, .a = (const float *)fg_address(&k->a, base), .out = (float *)fg_address(&k->out, base)};
    if (k->b.slot >= 0) r.b = (const float *)fg_address(&k->b, base);
    if (k->second.slot >= 0) r.second = (float *)fg_address(&k->second, base);
    fg_parallel_for(k->n_tasks, matrix_task, &r);
}

fg_kernel *FG_NAME(fg_matrix_new)(fg_reader *r) {
    fg_matrix k;
    memset(&k, 0, sizeof k);
    k.base.run = matrix_run_kernel;
    k.op = (int)fg_read(r, "op", 0, MATRIX_OPS - 1);
    k.flags = (int)fg_read(r, "flags", 0, MATRIX_LOWER | MATRIX_TRANSPOSED | MATRIX_UNIT);
    k.A = fg_read(r, "A", 0, FG_LIMIT);
    k.n = fg_read(r, "n", 0, 1 << 15);
    k.m = fg_read(r, "m", 0, FG_LIMIT);
    const int solves = k.op == MATRIX_TRIANGULAR || k.op == MATRIX_SOLVE;
    fg_read_pointer(r, "a", 0, &k.a);
    fg_read_pointer(r, "b", solves ? 0 : -1, &k.b);
    fg_read_pointer(r, "out", 0, &k.out);
    fg_read_pointer(r, "second", k.op == MATRIX_SLOGDET ? 0 : -1, &k.second);
    if (!solves) k.m = 1;
    const int64_t cost = fg_read_product(r, "n x n x (n + m)", k.n * k.n, k.n + k.m);
    fg_read_product(r, "the size", k.A, fg_read_product(r, "4 x n x (n + m)", 4 * k.n, k.n + k.m));
    if (!fg_read_end(r)) return NULL;
    k.scratch = k.n * (k.n + (k.m > 1 ? k.m : 1));
    const int64_t wanted = k.op == MATRIX_CHOLESKY || k.op == MATRIX_DET || k.op == MATRIX_SLOGDET || k.m > 0 ? k.A : 0;
    k.per_task = cost < FG_SERIAL_WORK ? (FG_SERIAL_WORK + cost) / (cost + 1) : 1;
    k.n_tasks = (wanted + k.per_task - 1) / k.per_task;
    if (k.scratch > MATRIX_NEAR) k.base.each = k.scratch * 8, k.base.tasks = k.n_tasks;
    fg_matrix *out = malloc(sizeof k);
    if (!out) return fg_fail(r, "out of memory");
    memcpy(out, &k, sizeof k);
    return &out->base;
}
