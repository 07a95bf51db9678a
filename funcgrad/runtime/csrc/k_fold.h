/* The inner loops of REDUCE over 4-byte elements: a contiguous row to one total, and rows of columns to one total each.
 *
 * A float sum is kept in float32 for a block of a row (a few elements in each lane of eight vectors) or 32 rows of a
 * column (eight at a time, as a tree), and the blocks are added up in double: the error stays at a few ulp of the sum
 * of the magnitudes, however many elements there are. */
#ifndef FG_K_FOLD_H
#define FG_K_FOLD_H
#include "internal.h"
#include "k_vec.h"

#define FOLD_BLOCK (64 * VW) /* elements of a row: eight to a lane */
#define FOLD_ROWS 32         /* rows of a column */
#define FOLD_PANEL 1024      /* columns */
#define FOLD_SHORT 16        /* rows that `few` takes */

typedef union {
    double d;
    int64_t i;
} fg_total;

typedef struct {
    fg_total first; /* of nothing */
    void (*row)(fg_total *t, const char *p, int64_t n);
    /* rows of at most FOLD_PANEL contiguous columns, rs bytes apart */
    void (*columns)(fg_total *t, const char *p, int64_t rs, int64_t rows, int64_t cols);
    void (*join)(fg_total *t, const fg_total *x, int64_t n);
    /* at most FOLD_SHORT rows at the given offsets, straight to contiguous 4-byte results; may be NULL */
    void (*few)(char *out, const char *p, const int64_t *row, int rows, int64_t cols);
} fg_fold;

typedef uint32_t vu __attribute__((vector_size(VB)));

/* A vector whose first n < VW lanes come from memory and the others from `rest`. */
FG_INLINE vi fold_load_part(const char *p, int64_t n, vi rest) {
#if defined(__AVX512F__)
    return (vi)_mm512_mask_loadu_epi32((__m512i)rest, vf_first(n), p);
#elif defined(__AVX2__)
    __m256i first = vf_first(n);
    return (vi)_mm256_blendv_epi8((__m256i)rest, _mm256_maskload_epi32((const int *)p, first), first);
#else
    memcpy(&rest, p, (size_t)n * 4);
    return rest;
#endif
}

/* OP(a, x): one step on vectors; J(t, x) on totals. */
#define FOLD_ADD(a, x) ((a) + (x))
#define FOLD_MUL(a, x) ((a) * (x))
#define FOLD_PICK(V, take, a, x) ((V)(((take) & (vi)(x)) | (~(take) & (vi)(a))))
#define FOLD_IMAX(a, x) FOLD_PICK(vi, (x) > (a), a, x)
#define FOLD_IMIN(a, x) FOLD_PICK(vi, (x) < (a), a, x)
#define FOLD_UMAX(a, x) FOLD_PICK(vu, (vi)((x) > (a)), a, x)
#define FOLD_UMIN(a, x) FOLD_PICK(vu, (vi)((x) < (a)), a, x)
#define FOLD_J_ADD(a, x) ((a) + (x))
#define FOLD_J_MAX(a, x) ((x) > (a) || (x) != (x) ? (x) : (a))
#define FOLD_J_MIN(a, x) ((x) < (a) || (x) != (x) ? (x) : (a))
#define FOLD_J_IADD(a, x) ((int64_t)((uint64_t)(a) + (uint64_t)(x)))
#define FOLD_J_IMUL(a, x) ((int64_t)((uint64_t)(a) * (uint64_t)(x)))

#define FOLD_DEFINE(NAME, T, V, FIRST, OP, MEMBER, J)                                                                  \
    typedef V NAME##_any __attribute__((aligned(1), may_alias));                                                       \
    FG_INLINE V NAME##_load(const char *p) { return *(const NAME##_any *)p; }                                          \
    FG_INLINE T NAME##_lanes(V x) {                                                                                    \
        for (int w = VW / 2; w > 0; w /= 2) x = OP(x, (V)vf_swap((vf)x, w));                                           \
        return x[0];                                                                                                   \
    }                                                                                                                  \
    FG_INLINE V NAME##_first(void) {                                                                                   \
        V x;                                                                                                           \
        for (int i = 0; i < VW; i++) x[i] = FIRST;                                                                     \
        return x;                                                                                                      \
    }                                                                                                                  \
    FG_INLINE T NAME##_block(const char *p, int64_t n) {                                                               \
        V a[8];                                                                                                        \
        const V first = NAME##_first();                                                                                \
        int64_t i = 0;                                                                                                 \
        a[0] = a[1] = first;                                                                                           \
        if (n >= 8 * VW) {                                                                                             \
            for (int v = 0; v < 8; v++) a[v] = NAME##_load(p + v * VB);                                                \
            for (i = 8 * VW; i + 8 * VW <= n; i += 8 * VW)                                                             \
                for (int v = 0; v < 8; v++) a[v] = OP(a[v], NAME##_load(p + i * 4 + v * VB));                          \
            for (int v = 0; v < 4; v++) a[v] = OP(a[v], a[v + 4]);                                                     \
            a[0] = OP(a[0], a[2]), a[1] = OP(a[1], a[3]);                                                              \
        }                                                                                                              \
        for (; i + VW <= n; i += VW) a[0] = OP(a[0], NAME##_load(p + i * 4));                                          \
        if (i < n) a[1] = OP(a[1], (V)fold_load_part(p + i * 4, n - i, (vi)first));                                    \
        return NAME##_lanes(OP(a[0], a[1]));                                                                           \
    }                                                                                                                  \
    static void NAME##_row(fg_total *t, const char *p, int64_t n) {                                                    \
        for (; n > FOLD_BLOCK; n -= FOLD_BLOCK, p += FOLD_BLOCK * 4)                                                   \
            t->MEMBER = J(t->MEMBER, NAME##_block(p, FOLD_BLOCK));                                                     \
        t->MEMBER = J(t->MEMBER, NAME##_block(p, n));                                                                  \
    }                                                                                                                  \
    FG_INLINE V NAME##_tree(V a, const char *p, int64_t rs) {                                                          \
        V x0 = NAME##_load(p), x1 = NAME##_load(p + rs), x2 = NAME##_load(p + 2 * rs), x3 = NAME##_load(p + 3 * rs);   \
        const char *q = p + 4 * rs;                                                                                    \
        V y0 = NAME##_load(q), y1 = NAME##_load(q + rs), y2 = NAME##_load(q + 2 * rs), y3 = NAME##_load(q + 3 * rs);   \
        x0 = OP(x0, x1), x2 = OP(x2, x3), y0 = OP(y0, y1), y2 = OP(y2, y3);                                            \
        x0 = OP(x0, x2), y0 = OP(y0, y2);                                                                              \
        x0 = OP(x0, y0);                                                                                               \
        return OP(a, x0);                                                                                              \
    }                                                                                                                  \
    /* at most FOLD_ROWS rows onto s, which has room for whole vectors */                                              \
    static void NAME##_part(T *s, const char *p, int64_t rs, int64_t rows, int64_t cols) {                             \
        const V first = NAME##_first();                                                                                \
        int64_t whole = cols / VW * VW;                                                                                \
        char *d = (char *)s;                                                                                           \
        for (int64_t c = 0; c < cols; c += VW) memcpy(s + c, &first, VB);                                              \
        for (; rows >= 8; rows -= 8, p += 8 * rs) {                                                                    \
            for (int64_t c = 0; c < whole * 4; c += VB)                                                                \
                *(NAME##_any *)(d + c) = NAME##_tree(NAME##_load(d + c), p + c, rs);                                   \
            for (int r = 0; r < 8 && whole < cols; r++) {                                                              \
                V x = (V)fold_load_part(p + r * rs + whole * 4, cols - whole, (vi)first);                              \
                *(NAME##_any *)(d + whole * 4) = OP(NAME##_load(d + whole * 4), x);                                    \
            }                                                                                                          \
        }                                                                                                              \
        for (; rows > 0; rows--, p += rs) {                                                                            \
            for (int64_t c = 0; c < whole * 4; c += VB)                                                                \
                *(NAME##_any *)(d + c) = OP(NAME##_load(d + c), NAME##_load(p + c));                                   \
            if (whole == cols) continue;                                                                               \
            V x = (V)fold_load_part(p + whole * 4, cols - whole, (vi)first);                                           \
            *(NAME##_any *)(d + whole * 4) = OP(NAME##_load(d + whole * 4), x);                                        \
        }                                                                                                              \
    }                                                                                                                  \
    static void NAME##_columns(fg_total *t, const char *p, int64_t rs, int64_t rows, int64_t cols) {                   \
        _Alignas(64) T s[FOLD_PANEL + VW];                                                                             \
        for (; rows > 0; rows -= FOLD_ROWS, p += FOLD_ROWS * rs) {                                                     \
            NAME##_part(s, p, rs, rows < FOLD_ROWS ? rows : FOLD_ROWS, cols);                                          \
            for (int64_t c = 0; c < cols; c++) t[c].MEMBER = J(t[c].MEMBER, s[c]);                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void NAME##_join(fg_total *t, const fg_total *x, int64_t n) {                                               \
        for (int64_t i = 0; i < n; i++) t[i].MEMBER = J(t[i].MEMBER, x[i].MEMBER);                                     \
    }                                                                                                                  \
    static void NAME##_few(char *out, const char *p, const int64_t *row, int rows, int64_t cols) {                     \
        int64_t c = 0;                                                                                                 \
        for (; c + VW <= cols; c += VW) {                                                                              \
            V a = NAME##_load(p + row[0] + c * 4), b = NAME##_first();                                                 \
            for (int r = 1; r + 1 < rows; r += 2) {                                                                    \
                a = OP(a, NAME##_load(p + row[r] + c * 4));                                                            \
                b = OP(b, NAME##_load(p + row[r + 1] + c * 4));                                                        \
            }                                                                                                          \
            if (rows % 2 == 0) b = OP(b, NAME##_load(p + row[rows - 1] + c * 4));                                      \
            *(NAME##_any *)(out + c * 4) = OP(a, b);                                                                   \
        }                                                                                                              \
        if (c == cols) return;                                                                                         \
        const V first = NAME##_first();                                                                                \
        V a = (V)fold_load_part(p + row[0] + c * 4, cols - c, (vi)first);                                              \
        for (int r = 1; r < rows; r++) a = OP(a, (V)fold_load_part(p + row[r] + c * 4, cols - c, (vi)first));          \
        memcpy(out + c * 4, &a, (size_t)(cols - c) * 4);                                                               \
    }                                                                                                                  \
    static const fg_fold fold_##NAME = {{.MEMBER = FIRST}, NAME##_row, NAME##_columns, NAME##_join, NAME##_few};

FOLD_DEFINE(f_sum, float, vf, 0.0f, FOLD_ADD, d, FOLD_J_ADD)
FOLD_DEFINE(f_max, float, vf, -__builtin_inff(), vf_max, d, FOLD_J_MAX)
FOLD_DEFINE(f_min, float, vf, __builtin_inff(), vf_min, d, FOLD_J_MIN)
FOLD_DEFINE(u_sum, uint32_t, vu, 0, FOLD_ADD, i, FOLD_J_IADD)
FOLD_DEFINE(u_prod, uint32_t, vu, 1, FOLD_MUL, i, FOLD_J_IMUL)
FOLD_DEFINE(u_max, uint32_t, vu, 0, FOLD_UMAX, i, FOLD_J_MAX)
FOLD_DEFINE(u_min, uint32_t, vu, UINT32_MAX, FOLD_UMIN, i, FOLD_J_MIN)
FOLD_DEFINE(i_max, int32_t, vi, INT32_MIN, FOLD_IMAX, i, FOLD_J_MAX)
FOLD_DEFINE(i_min, int32_t, vi, INT32_MAX, FOLD_IMIN, i, FOLD_J_MIN)

/* Float products are kept in double from the start: in float32 a part may overflow where the whole does not. */
static void f_prod_row(fg_total *t, const char *p, int64_t n) {
    const float_any *x = (const float_any *)p;
    double a[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int v = 0; v < 8; v++) a[v] *= x[i + v];
    for (; i < n; i++) a[0] *= x[i];
    t->d *= ((a[0] * a[1]) * (a[2] * a[3])) * ((a[4] * a[5]) * (a[6] * a[7]));
}

static void f_prod_columns(fg_total *t, const char *p, int64_t rs, int64_t rows, int64_t cols) {
    for (; rows > 0; rows--, p += rs)
        for (int64_t c = 0; c < cols; c++) t[c].d *= ((const float_any *)p)[c];
}

static void f_prod_join(fg_total *t, const fg_total *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) t[i].d *= x[i].d;
}
static const fg_fold fold_f_prod = {{.d = 1.0}, f_prod_row, f_prod_columns, f_prod_join, NULL};

#endif
