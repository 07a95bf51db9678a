/* DOT: batched matrix products, split over threads by fixed tiles.
 *
 * At creation the batch dimensions are merged, those that only one operand has become rows (or columns), and the
 * problem is transposed as a whole when its mirror image is cheaper.  Then it is cut into tiles of m and n, and into
 * slices of k when m and n alone give too little to share; slices are added up in their order by a second stage. */
#include "k_dot_plan.h"

/* ---- one tile ---- */

/* Sums along k for at most DOT_ROWS contiguous rows of a and four columns of b, which are contiguous too. */
FG_INLINE void dot_along_k_block(int rows, int cols, int64_t k, const char *a, int64_t am, const char *b, int64_t bn,
                                 char *c, int64_t cm) {
    vf acc[DOT_ROWS][4], y[4];
    int64_t p = 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) acc[i][j] = (vf){0};
    for (; p + VW <= k; p += VW) {
        for (int j = 0; j < cols; j++) y[j] = vf_load(b + j * bn + p * 4);
        for (int i = 0; i < rows; i++) {
            vf x = vf_load(a + i * am + p * 4);
            for (int j = 0; j < cols; j++) acc[i][j] = vf_fma(x, y[j], acc[i][j]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float s = vf_sum(acc[i][j]);
            for (int64_t q = p; q < k; q++)
                s += ((const float_any *)(a + i * am))[q] * ((const float_any *)(b + j * bn))[q];
            *(float_any *)(c + i * cm + j * 4) = s;
        }
}

#define DOT_ALONG_K_ROWS(rows)                                                                                         \
    static void dot_along_k_##rows(int64_t n, int64_t k, const fg_matrix *a, const fg_matrix *b, char *c,              \
                                   int64_t cm) {                                                                       \
        int64_t j = 0;                                                                                                 \
        for (; j + 4 <= n; j += 4) dot_along_k_block(rows, 4, k, a->p, a->rs, b->p + j * b->cs, b->cs, c + j * 4, cm); \
        for (; j < n; j++) dot_along_k_block(rows, 1, k, a->p, a->rs, b->p + j * b->cs, b->cs, c + j * 4, cm);         \
    }
DOT_ALONG_K_ROWS(1)
DOT_ALONG_K_ROWS(2)
DOT_ALONG_K_ROWS(3)

static void dot_along_k(int64_t m, int64_t n, int64_t k, const fg_matrix *a, const fg_matrix *b, char *c, int64_t cm) {
    if (m == 1) dot_along_k_1(n, k, a, b, c, cm);
    else if (m == 2) dot_along_k_2(n, k, a, b, c, cm);
    else if (m == 3) dot_along_k_3(n, k, a, b, c, cm);
}

#if VW < 16
static void dot_blas(fg_sgemm f, int64_t m, int64_t n, int64_t k, const fg_matrix *a, const fg_matrix *b, char *c,
                     int64_t cm) {
    int ta = a->cs != 4, tb = b->cs != 4; /* 111: as stored by rows, 112: transposed */
    f(101, 111 + ta, 111 + tb, (int)m, (int)n, (int)k, 1.0f, (const float *)a->p, (int)((ta ? a->cs : a->rs) / 4),
      (const float *)b->p, (int)((tb ? b->cs : b->rs) / 4), 0.0f, (float *)c, (int)(cm / 4));
}
#endif

/* The least demanding way: any strides, no memory. Used when the system has no scratch left. */
static void dot_plain(int64_t m, int64_t n, int64_t k, const fg_matrix *a, const fg_matrix *b, char *c, int64_t cm,
                      int64_t cn, int c_dtype) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = 0;
            for (int64_t p = 0; p < k; p++)
                s += (double)fg_load_f32(a->p + i * a->rs + p * a->cs, a->dtype) *
                     fg_load_f32(b->p + p * b->rs + j * b->cs, b->dtype);
            fg_store_f32(c + i * cm + j * cn, c_dtype, (float)s);
        }
}

FG_INLINE void dot_int_row(int64_t n, int64_t k, const char *a, int64_t ak, const char *b, int64_t bk, int64_t bn,
                           char *c, int64_t cn) {
    uint32_t acc[64];
    for (int64_t j = 0; j < n; j++) acc[j] = 0;
    for (int64_t p = 0; p < k; p++) {
        uint32_t x = *(const uint32_any *)(a + p * ak);
        for (int64_t j = 0; j < n; j++) acc[j] += x * *(const uint32_any *)(b + p * bk + j * bn);
    }
    for (int64_t j = 0; j < n; j++) *(uint32_any *)(c + j * cn) = acc[j];
}

/* Both signednesses: the low 32 bits of sums and products are the same. */
static void dot_int(int64_t m, int64_t n, int64_t k, const fg_matrix *a, const fg_matrix *b, char *c, int64_t cm,
                    int64_t cn) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j += 64) {
            int64_t w = gemm_min(n - j, 64);
            const char *ai = a->p + i * a->rs, *bj = b->p + j * b->cs;
            char *cj = c + i * cm + j * cn;
            if (b->cs == 4) dot_int_row(w, k, ai, a->cs, bj, b->rs, 4, cj, cn);
            else dot_int_row(w, k, ai, a->cs, bj, b->rs, b->cs, cj, cn);
        }
}

/* ---- running ---- */

typedef struct {
    const fg_dot *d;
    const char *a, *b;
    char *c;
    float *slices; /* [batch][nk][m][n], or NULL */
    int plain;     /* no memory for them */
} dot_run;

/* A tile to c, whatever its strides and type; in squares of four where c's columns are contiguous. */
static void dot_store(int64_t m, int64_t n, const float *t, char *c, int64_t cm, int64_t cn, int dtype) {
    int64_t whole_m = 0, whole_n = 0;
    if (dtype == FG_F32 && cm == 4 && cn % 4 == 0 && cn > 0 && cn <= INT32_MAX) {
        whole_m = m / 4 * 4, whole_n = n / 4 * 4;
        for (int64_t j = 0; j < whole_n; j += 4)
            for (int64_t i = 0; i < whole_m; i += 4)
                pack_transpose4((float *)(c + i * 4 + j * cn), (int)(cn / 4), (const char *)(t + i * n + j), n * 4);
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i < whole_m ? whole_n : 0; j < n; j++) fg_store_f32(c + i * cm + j * cn, dtype, t[i * n + j]);
}

static void dot_compute(const fg_dot *d, int64_t m, int64_t n, int64_t k, const fg_matrix *a, const fg_matrix *b,
                        char *c, int64_t cm, float *scratch) {
    if (d->how == DOT_ALONG_K) dot_along_k(m, n, k, a, b, c, cm);
#if VW < 16
    else if (d->how == DOT_BLAS) dot_blas(d->sgemm, m, n, k, a, b, c, cm);
#endif
    else gemm_tile(&d->plan, m, n, k, a, b, c, cm, scratch);
}

/* What one unit of work computes: unit = ((batch * nk + slice) * nm + row of tiles) * nn + column of tiles. */
typedef struct {
    int64_t i, j, m, n, k, slice;
    fg_matrix a, b;
    char *c;
} dot_part;

static dot_part dot_find(const dot_run *r, int64_t unit) {
    const fg_dot *d = r->d;
    dot_part u = {.j = unit % d->nn * d->tn, .i = unit / d->nn % d->nm * d->tm, .slice = unit / d->nn / d->nm};
    int64_t p = u.slice % d->nk * d->tk, batch = u.slice / d->nk;
    u.m = gemm_min(d->m - u.i, d->tm), u.n = gemm_min(d->n - u.j, d->tn), u.k = gemm_min(d->k - p, d->tk);
    u.a = dot_layout(&d->a), u.b = dot_layout(&d->b);
    u.a.p = r->a + u.i * u.a.rs + p * u.a.cs;
    u.b.p = r->b + p * u.b.rs + u.j * u.b.cs;
    u.c = r->c + u.i * d->c.rs + u.j * d->c.cs;
    for (int t = d->nb - 1; t >= 0; t--) {
        int64_t x = batch % d->batch[t];
        batch /= d->batch[t];
        u.a.p += x * d->a.batch[t], u.b.p += x * d->b.batch[t], u.c += x * d->c.batch[t];
    }
    return u;
}

static void dot_unit(const dot_run *r, int64_t unit, float *scratch) {
    const fg_dot *d = r->d;
    dot_part u = dot_find(r, unit);
    if (d->how == DOT_INT) {
        dot_int(u.m, u.n, u.k, &u.a, &u.b, u.c, d->c.rs, d->c.cs);
    } else if (r->plain || !scratch) {
        dot_plain(u.m, u.n, u.k, &u.a, &u.b, u.c, d->c.rs, d->c.cs, d->c.dtype);
    } else if (r->slices) {
        float *c = r->slices + (u.slice * d->m + u.i) * d->n + u.j;
        dot_compute(d, u.m, u.n, u.k, &u.a, &u.b, (char *)c, d->n * 4, scratch);
    } else if (d->c_in_place) {
        dot_compute(d, u.m, u.n, u.k, &u.a, &u.b, u.c, d->c.rs, scratch);
    } else {
        float *t = scratch + d->scratch - d->tm * d->tn;
        dot_compute(d, u.m, u.n, u.k, &u.a, &u.b, (char *)t, u.n * 4, scratch);
        dot_store(u.m, u.n, t, u.c, d->c.rs, d->c.cs, d->c.dtype);
    }
}

static void dot_task(void *ctx, int64_t task) {
    const dot_run *r = ctx;
    const fg_dot *d = r->d;
    _Alignas(64) float stack[DOT_STACK];
    float *scratch = d->scratch <= DOT_STACK ? stack : fg_alloc(d->scratch * 4);
    int64_t first = task * d->units_per_task, last = gemm_min(first + d->units_per_task, dot_tiles(d) * d->nk);
    for (int64_t u = first; u < last; u++) dot_unit(r, u, scratch);
    if (scratch != stack) fg_free(scratch);
}

/* Adds the slices of one row of c, in their order. */
static void dot_add_slices(const dot_run *r, int64_t row) {
    const fg_dot *d = r->d;
    int64_t i = row % d->m, batch = row / d->m;
    const float *s = r->slices + (batch * d->nk * d->m + i) * d->n;
    char *c = r->c + i * d->c.rs;
    for (int t = d->nb - 1; t >= 0; t--) c += batch % d->batch[t] * d->c.batch[t], batch /= d->batch[t];
    for (int64_t j = 0; j < d->n; j += 64) {
        double sum[64] = {0};
        int64_t w = gemm_min(d->n - j, 64);
        for (int64_t q = 0; q < d->nk; q++)
            for (int64_t x = 0; x < w; x++) sum[x] += s[q * d->m * d->n + j + x];
        for (int64_t x = 0; x < w; x++) fg_store_f32(c + (j + x) * d->c.cs, d->c.dtype, (float)sum[x]);
    }
}

static int64_t dot_add_tasks(const fg_dot *d) { return d->n_batch * d->m * d->n * d->nk < FG_SERIAL_WORK ? 1 : 8; }

static void dot_add_rows(void *ctx, int64_t task) {
    const fg_dot *d = ((const dot_run *)ctx)->d;
    int64_t rows = d->n_batch * d->m, per = gemm_ceil(rows, dot_add_tasks(d));
    for (int64_t i = task * per; i < gemm_min(rows, (task + 1) * per); i++) dot_add_slices(ctx, i);
}

/* Without memory for the slices: in one go. */
static void dot_run_plain(dot_run *r) {
    fg_dot whole = *r->d;
    whole.nk = whole.units_per_task = 1, whole.tk = whole.k, whole.scratch = 0;
    r->d = &whole, r->plain = 1;
    fg_parallel_for(dot_tiles(&whole), dot_task, r);
}

static void dot_run_kernel(const fg_kernel *kernel, void *const *base) {
    const fg_dot *d = (const fg_dot *)kernel;
    if (d->n_tasks == 0) return;
    dot_run r = {d,
                 (const char *)base[d->a.slot] + d->a.offset,
                 (const char *)base[d->b.slot] + d->b.offset,
                 (char *)base[d->c.slot] + d->c.offset,
                 NULL,
                 0};
    if (d->nk == 1) {
        fg_parallel_for(d->n_tasks, dot_task, &r);
    } else if ((r.slices = fg_alloc(d->n_batch * d->nk * d->m * d->n * 4)) == NULL) {
        dot_run_plain(&r);
    } else {
        fg_parallel_for(d->n_tasks, dot_task, &r);
        fg_parallel_for(dot_add_tasks(d), dot_add_rows, &r);
        fg_free(r.slices);
    }
}

fg_kernel *FG_NAME(fg_dot_new)(fg_reader *r) {
    fg_dot d;
    memset(&d, 0, sizeof d);
    dot_read(r, &d);
    if (!fg_read_end(r)) return NULL;
    d.base.run = dot_run_kernel;
    if (d.n_batch * d.m * d.n > 0) {
        dot_coalesce(&d);
        d.n_batch = 1;
        for (int i = 0; i < d.nb; i++) d.n_batch *= d.batch[i];
        dot_orient(&d);
        dot_plan(&d);
        d.base.once = d.nk > 1 ? d.n_batch * d.nk * d.m * d.n * 4 : 0;
        d.base.each = d.scratch > DOT_STACK ? d.scratch * 4 : 0, d.base.tasks = d.n_tasks;
    }
    fg_dot *out = malloc(sizeof d);
    if (out) *out = d;
    return out ? &out->base : fg_fail(r, "out of memory");
}
