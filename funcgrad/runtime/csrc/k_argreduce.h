/* Included by k_reduce.c: the position of the largest or smallest element, the first NaN before all.
 *
 * A total holds the position in its upper half and the element's bits in the lower; reduce_store writes the position.
 */
typedef struct {
    uint32_t bits;
    int32_t at; /* -1: nothing yet */
} reduce_best;

/* Whether x comes before the best so far, which came earlier. */
static int reduce_better(const fg_reduce *k, uint32_t x, uint32_t best) {
    int least = k->op == FG_ARGMIN;
    if (reduce_is_float(k->in_type)) {
        float a = fg_float(x), b = fg_float(best);
        if (b != b) return 0;
        return a != a || (least ? a < b : a > b);
    }
    if (k->in_type == FG_I32) return least ? (int32_t)x<(int32_t)best : (int32_t)x>(int32_t) best;
    return least ? x < best : x > best;
}

/* The first place among n elements side by side that holds the same value as x (for NaN: any NaN). */
static int64_t reduce_find(const fg_reduce *k, const char *p, int64_t n, uint32_t x) {
    const uint32_any *u = (const uint32_any *)p;
    int64_t i = 0;
    if (!reduce_is_float(k->in_type)) {
        while (i < n - 1 && u[i] != x) i++;
        return i;
    }
    float v = fg_float(x);
    while (i < n - 1 && !(v != v ? fg_float(u[i]) != fg_float(u[i]) : fg_float(u[i]) == v)) i++;
    return i;
}

/* Elements at positions at, at + 1, ... */
static void reduce_arg_block(const fg_reduce *k, reduce_best *best, const char *p, int64_t n, int64_t at) {
    fg_total t = k->fold->first;
    for (int64_t i = 0; n < 32 && i < n; i++) {
        uint32_t x = ((const uint32_any *)p)[i];
        if (best->at < 0 || reduce_better(k, x, best->bits)) *best = (reduce_best){x, (int32_t)(at + i)};
    }
    if (n < 32) return;
    k->fold->row(&t, p, n);
    uint32_t bits = reduce_is_float(k->in_type) ? fg_bits((float)t.d) : (uint32_t)(uint64_t)t.i;
    if (best->at >= 0 && !reduce_better(k, bits, best->bits)) return;
    best->bits = bits;
    best->at = (int32_t)(at + reduce_find(k, p, n, bits));
}

static fg_total reduce_pack(reduce_best b) {
    return (fg_total){.i = (int64_t)(((uint64_t)(uint32_t)b.at << 32) | b.bits)};
}
static reduce_best reduce_unpack(fg_total t) {
    return (reduce_best){(uint32_t)(uint64_t)t.i, (int32_t)(uint32_t)((uint64_t)t.i >> 32)};
}

/* The best of the reduced elements [first, last), with its position in all of them. */
static fg_total reduce_arg(const fg_reduce *k, const char *p, int64_t first, int64_t last) {
    const reduce_dim d = k->red[k->nr - 1];
    reduce_best best = {0, -1};
    char block[FOLD_BLOCK * 4];
    while (first < last) {
        int64_t q = first / d.n, i = first - q * d.n, n = reduce_min(reduce_min(d.n - i, last - first), FOLD_BLOCK);
        const char *a = p + reduce_outer(k, q) + i * d.in;
        if (!k->direct) reduce_convert(block, a, d.in, n, k->in_type), a = block;
        reduce_arg_block(k, &best, a, n, first);
        first += n;
    }
    return reduce_pack(best);
}

static void reduce_arg_join(const fg_reduce *k, fg_total *t, const fg_total *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (reduce_better(k, reduce_unpack(x[i]).bits, reduce_unpack(t[i]).bits)) t[i] = x[i];
}

/* One row of columns against the best so far of each, where `before` tells that x comes before b. */
#define REDUCE_ARG_ROW(T, ANY, before)                                                                                 \
    for (int64_t c = 0; c < cols; c++) {                                                                               \
        T x = ((const ANY *)p)[c], b = ((T *)best)[c];                                                                 \
        int take = before;                                                                                             \
        ((T *)best)[c] = take ? x : b;                                                                                 \
        at[c] = take ? row : at[c];                                                                                    \
    }

static void reduce_arg_row(const fg_reduce *k, void *best, int32_t *at, const char *p, int64_t cols, int32_t row) {
    int least = k->op == FG_ARGMIN;
    if (reduce_is_float(k->in_type)) {
        if (least) REDUCE_ARG_ROW(float, float_any, (x < b) | ((x != x) & (b == b)))
        else REDUCE_ARG_ROW(float, float_any, (x > b) | ((x != x) & (b == b)))
    } else if (k->in_type == FG_I32) {
        if (least) REDUCE_ARG_ROW(int32_t, int32_any, x < b)
        else REDUCE_ARG_ROW(int32_t, int32_any, x > b)
    } else {
        if (least) REDUCE_ARG_ROW(uint32_t, uint32_any, x < b)
        else REDUCE_ARG_ROW(uint32_t, uint32_any, x > b)
    }
}

/* A panel of columns, all rows; in and out are where they begin. */
static void reduce_arg_columns(const fg_reduce *k, const char *in, char *out, int64_t cols) {
    const reduce_dim run = k->keep[k->nk - 1], d = k->red[k->nr - 1];
    char block[REDUCE_CONVERT * 4];
    _Alignas(64) uint32_t best[REDUCE_CONVERT];
    int32_t at[REDUCE_CONVERT] = {0};
    reduce_convert((char *)best, in, run.in, cols, k->in_type);
    for (int64_t i = 1; i < k->n_red; i++) {
        const char *p = in + reduce_outer(k, i / d.n) + i % d.n * d.in;
        if (!k->direct) reduce_convert(block, p, run.in, cols, k->in_type), p = block;
        reduce_arg_row(k, best, at, p, cols, (int32_t)i);
    }
    for (int64_t c = 0; c < cols; c++) memcpy(out + c * run.out, &at[c], 4);
}
