/* Included by k_order.c: sorting one row. An element becomes the 64-bit number (key << 32 | position), where the keys
 * of a dtype are ordered as its values are; as no two are equal, any way of sorting them is stable. */
#ifndef FG_K_SORT_H
#define FG_K_SORT_H
#include "internal.h"
#include "k_vec.h"

#define SORT_INSERTION 32
#define SORT_MERGE 128 /* rows up to this length are merged, longer ones go by digits of eight bits */
#define SORT_RUN 16

/* Sign and magnitude to ordered; -0 to 0; NaN (above `inf` without its sign) to the largest. */
static inline uint32_t sort_float_key(uint32_t u, uint32_t sign, uint32_t inf) {
    uint32_t magnitude = u & (sign - 1);
    if (magnitude > inf) return 2 * sign - 1;
    return (u & sign) && magnitude ? sign - magnitude : sign + magnitude;
}

FG_INLINE uint32_t sort_key(const char *p, int dtype) {
    if (dtype == FG_BOOL) return *p != 0;
    if (dtype == FG_F16 || dtype == FG_BF16)
        return sort_float_key(*(const uint16_any *)p, 0x8000u, dtype == FG_F16 ? 0x7c00u : 0x7f80u);
    uint32_t u = *(const uint32_any *)p;
    return dtype == FG_F32 ? sort_float_key(u, 0x80000000u, 0x7f800000u) : dtype == FG_I32 ? u ^ 0x80000000u : u;
}

FG_INLINE void sort_load_as(uint64_t *a, const char *x, int64_t step, int dtype, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) a[i] = (uint64_t)sort_key(x + i * step, dtype) << 32 | (uint64_t)i;
}

static void sort_load(uint64_t *a, const char *x, int64_t step, int dtype, int64_t first, int64_t last) {
    if (dtype == FG_F32) sort_load_as(a, x, step, FG_F32, first, last);
    else if (dtype == FG_I32) sort_load_as(a, x, step, FG_I32, first, last);
    else sort_load_as(a, x, step, dtype, first, last);
}

/* Bytes of a key that can differ. */
static inline int sort_digits(int dtype) { return dtype == FG_BOOL ? 1 : dtype == FG_F16 || dtype == FG_BF16 ? 2 : 4; }

static void sort_insertion(uint64_t *a, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        uint64_t x = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1] > x; j--) a[j] = a[j - 1];
        a[j] = x;
    }
}

static void sort_merge_two(uint64_t *out, const uint64_t *a, int64_t na, const uint64_t *b, int64_t nb) {
    const uint64_t *a_end = a + na, *b_end = b + nb;
    while (a < a_end && b < b_end) {
        int second = *b < *a;
        *out++ = second ? *b : *a;
        b += second, a += !second;
    }
    memcpy(out, a, (size_t)(a_end - a) * 8), out += a_end - a;
    memcpy(out, b, (size_t)(b_end - b) * 8);
}

/* Sorts a with room for as many in b; returns which of the two holds the result. */
static uint64_t *sort_merge(uint64_t *a, uint64_t *b, int64_t n) {
    for (int64_t i = 0; i < n; i += SORT_RUN) sort_insertion(a + i, n - i < SORT_RUN ? n - i : SORT_RUN);
    for (int64_t w = SORT_RUN; w < n; w *= 2) {
        for (int64_t i = 0; i < n; i += 2 * w) {
            int64_t na = n - i < w ? n - i : w, nb = n - i - na < w ? n - i - na : w;
            sort_merge_two(b + i, a + i, na, a + i + na, nb);
        }
        uint64_t *t = a;
        a = b, b = t;
    }
    return a;
}

static uint64_t *sort_radix(uint64_t *a, uint64_t *b, int64_t n, int digits) {
    uint32_t count[4][256];
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < digits; d++) count[d][a[i] >> (32 + 8 * d) & 255]++;
    for (int d = 0; d < digits; d++) {
        const int shift = 32 + 8 * d;
        uint32_t sum = 0, *c = count[d];
        if (c[a[0] >> shift & 255] == n) continue; /* all the same */
        for (int v = 0; v < 256; v++) {
            uint32_t x = c[v];
            c[v] = sum, sum += x;
        }
        for (int64_t i = 0; i < n; i++) b[c[a[i] >> shift & 255]++] = a[i];
        uint64_t *t = a;
        a = b, b = t;
    }
    return a;
}

static uint64_t *sort_row(uint64_t *a, uint64_t *b, int64_t n, int digits) {
    if (n > SORT_MERGE) return sort_radix(a, b, n, digits);
    if (n > SORT_INSERTION) return sort_merge(a, b, n);
    sort_insertion(a, n);
    return a;
}

/* ---- without memory: heapsort of the positions in the output, or else of the values there ---- */

typedef struct {
    const char *x;
    char *values, *indices; /* indices may be NULL, or else values */
    int64_t n, step, index_step;
    int dtype;
} sort_heap;

static uint64_t heap_at(const sort_heap *h, int64_t i) {
    if (!h->indices) return sort_key(h->values + i * h->step, h->dtype);
    uint32_t at = *(const uint32_any *)(h->indices + i * h->index_step);
    return (uint64_t)sort_key(h->x + at * h->step, h->dtype) << 32 | at;
}

static void heap_swap(const sort_heap *h, int64_t i, int64_t j) {
    int64_t s = h->indices ? h->index_step : h->step, es = h->indices ? 4 : fg_dtype_size(h->dtype);
    char t[4], *p = (h->indices ? h->indices : h->values) + i * s, *q = (h->indices ? h->indices : h->values) + j * s;
    memcpy(t, p, (size_t)es), memcpy(p, q, (size_t)es), memcpy(q, t, (size_t)es);
}

static void heap_sink(const sort_heap *h, int64_t i, int64_t n) {
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap_at(h, child + 1) > heap_at(h, child)) child++;
        if (heap_at(h, child) <= heap_at(h, i)) return;
        heap_swap(h, i, child);
    }
}

static void sort_in_place(const sort_heap *h) {
    const size_t es = (size_t)fg_dtype_size(h->dtype);
    for (int64_t i = 0; i < h->n; i++) {
        if (h->indices) *(uint32_any *)(h->indices + i * h->index_step) = (uint32_t)i;
        else memcpy(h->values + i * h->step, h->x + i * h->step, es);
    }
    for (int64_t i = h->n / 2 - 1; i >= 0; i--) heap_sink(h, i, h->n);
    for (int64_t n = h->n - 1; n > 0; n--) heap_swap(h, 0, n), heap_sink(h, 0, n);
    for (int64_t i = 0; i < h->n && h->indices && h->values; i++)
        memcpy(h->values + i * h->step, h->x + *(const uint32_any *)(h->indices + i * h->index_step) * h->step, es);
}

#endif
