/* A float32 matrix product over one tile: c[m, n] (+)= sum_k a[m, k] * b[k, n].
 *
 * a and b may have any strides and any float type; c is float32 with unit stride in n.  The inner kernel holds MR x NR
 * sums in vector registers, reads a by broadcast and b by vectors.  Both are read in place where their layout and the
 * amount of reuse allow it, and otherwise from panels packed into scratch memory: [k][MR] and [k][NR].
 */
#ifndef FG_K_GEMM_H
#define FG_K_GEMM_H
#include "internal.h"
#include "k_vec.h"

/* Registers: MR * NV sums, NV vectors of b and one broadcast of a. */
#if defined(__AVX512F__)
#define MR 12
#define NV 2
#elif defined(__aarch64__)
#define MR 8
#define NV 2
#else
#define MR 4
#define NV 3
#endif
#define NR (NV * VW)
/* A packed panel of b (KC x NR) fits the first-level cache, a block of a (MC x KC) and a few panels the second. */
#define GEMM_KC 256
#define GEMM_MC (MR == 12 ? 96 : 64)
/* Measured: up to so many rows of the tile, reading b in place beats packing it; up to so many columns, reading a in
 * place does although its columns are contiguous (a contiguous row always is read in place). */
#define GEMM_B_IN_PLACE (MR == 12 ? 192 : 96)
#define GEMM_B_ASKEW (3 * MR) /* the same when b's rows are not all aligned to a vector */
#define GEMM_A_IN_PLACE (MR == 12 ? 512 : 96)

typedef struct {
    const char *p;
    int64_t rs, cs; /* bytes from one row and from one column to the next */
    int dtype;
} fg_matrix;

static inline int64_t gemm_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t gemm_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Writes the first n lanes of x to c, or adds them. */
FG_INLINE void gemm_store_part(char *c, int64_t n, vf x, int add) {
#if VW >= 8
    vf_mask first = vf_first(n);
    vf_store_mask(c, first, add ? vf_load_mask(c, first) + x : x);
#else
    float_any *q = (float_any *)c;
    for (int64_t i = 0; i < VW; i++)
        if (i < n) q[i] = add ? q[i] + x[i] : x[i];
#endif
}

#if defined(__clang__)
#define GEMM_UNROLL _Pragma("unroll")
#else
#define GEMM_UNROLL _Pragma("GCC unroll 12")
#endif

/* Hides the value from the optimiser, which would otherwise turn each address below into a pointer of its own and
 * spill them. */
#define GEMM_OPAQUE(p) __asm__("" : "+r"(p))

FG_INLINE void gemm_row(int nv, vf *acc, const char *a, const vf *b) {
    vf x = vf_set(*(const float_any *)a);
    for (int v = 0; v < nv; v++) acc[v] = vf_fma(x, b[v], acc[v]);
}

FG_INLINE void gemm_store(int mr, int nv, int part, vf (*acc)[NV], char *c, int64_t cm, int64_t last, int add) {
    GEMM_UNROLL
    for (int i = 0; i < mr; i++, c += cm) {
        GEMM_UNROLL
        for (int v = 0; v < nv; v++) {
            char *q = c + v * VB;
            if (part && v == nv - 1) gemm_store_part(q, last, acc[i][v], add);
            else vf_store(q, add ? vf_load(q) + acc[i][v] : acc[i][v]);
        }
    }
}

/* One block of mr x nr results in nv vectors; mr, nv and `part` (the last vector is not whole) are compile-time
 * constants after inlining. Strides in bytes. Whole vectors of b are read. */
FG_INLINE void gemm_micro(int mr, int nv, int part, int64_t nr, int64_t k, const char *a, int64_t am, int64_t ak,
                          const char *b, int64_t bk, char *c, int64_t cm, int add) {
    vf acc[MR][NV], bv[NV];
    const char *a0 = a, *a4 = a + 4 * am, *a8 = a + 8 * am;
    const int64_t am3 = 3 * am;
    const int64_t last = nr - (nv - 1) * VW;
    for (int i = 0; i < mr; i++)
        for (int v = 0; v < nv; v++) acc[i][v] = (vf){0};
    for (; k > 0; k--) {
        for (int v = 0; v < nv; v++) bv[v] = vf_load(b + v * VB);
        for (int i = 0; i < mr; i++) {
            const char *q = i < 4 ? a0 : i < 8 ? a4 : a8;
            gemm_row(nv, acc[i], q + (i % 4 == 0 ? 0 : i % 4 == 1 ? am : i % 4 == 2 ? 2 * am : am3), bv);
        }
        a0 += ak, a4 += ak, a8 += ak, b += bk;
        GEMM_OPAQUE(a0);
        if (mr > 4) GEMM_OPAQUE(a4);
        if (mr > 8) GEMM_OPAQUE(a8);
    }
    if (add) gemm_store(mr, nv, part, acc, c, cm, last, 1);
    else gemm_store(mr, nv, part, acc, c, cm, last, 0);
}

typedef void (*gemm_micro_fn)(int64_t nr, int64_t k, const char *a, int64_t am, int64_t ak, const char *b, int64_t bk,
                              char *c, int64_t cm, int add);
#define GEMM_MICRO_PART(mr, nv, part)                                                                                  \
    static void gemm_micro_##mr##_##nv##_##part(int64_t nr, int64_t k, const char *a, int64_t am, int64_t ak,          \
                                                const char *b, int64_t bk, char *c, int64_t cm, int add) {             \
        gemm_micro(mr, nv, part, nr, k, a, am, ak, b, bk, c, cm, add);                                                 \
    }
#define GEMM_MICRO(mr, nv) GEMM_MICRO_PART(mr, nv, 0) GEMM_MICRO_PART(mr, nv, 1)
#define GEMM_MICROS_4(nv) GEMM_MICRO(1, nv) GEMM_MICRO(2, nv) GEMM_MICRO(3, nv) GEMM_MICRO(4, nv)
#define GEMM_MICROS_8(nv) GEMM_MICRO(5, nv) GEMM_MICRO(6, nv) GEMM_MICRO(7, nv) GEMM_MICRO(8, nv)
#define GEMM_MICROS_12(nv) GEMM_MICRO(9, nv) GEMM_MICRO(10, nv) GEMM_MICRO(11, nv) GEMM_MICRO(12, nv)
#define GEMM_NAMES_4(nv, part)                                                                                         \
    gemm_micro_1_##nv##_##part, gemm_micro_2_##nv##_##part, gemm_micro_3_##nv##_##part, gemm_micro_4_##nv##_##part
#define GEMM_NAMES_8(nv, part)                                                                                         \
    gemm_micro_5_##nv##_##part, gemm_micro_6_##nv##_##part, gemm_micro_7_##nv##_##part, gemm_micro_8_##nv##_##part
#define GEMM_NAMES_12(nv, part)                                                                                        \
    gemm_micro_9_##nv##_##part, gemm_micro_10_##nv##_##part, gemm_micro_11_##nv##_##part, gemm_micro_12_##nv##_##part
#if MR == 12
#define GEMM_MICROS(nv) GEMM_MICROS_4(nv) GEMM_MICROS_8(nv) GEMM_MICROS_12(nv)
#define GEMM_NAMES(nv, part) {GEMM_NAMES_4(nv, part), GEMM_NAMES_8(nv, part), GEMM_NAMES_12(nv, part)}
#elif MR == 8
#define GEMM_MICROS(nv) GEMM_MICROS_4(nv) GEMM_MICROS_8(nv)
#define GEMM_NAMES(nv, part) {GEMM_NAMES_4(nv, part), GEMM_NAMES_8(nv, part)}
#else
#define GEMM_MICROS(nv) GEMM_MICROS_4(nv)
#define GEMM_NAMES(nv, part) {GEMM_NAMES_4(nv, part)}
#endif
GEMM_MICROS(1)
GEMM_MICROS(2)
#if NV == 3
GEMM_MICROS(3)
#define GEMM_TABLE(part) {GEMM_NAMES(1, part), GEMM_NAMES(2, part), GEMM_NAMES(3, part)}
#else
#define GEMM_TABLE(part) {GEMM_NAMES(1, part), GEMM_NAMES(2, part)}
#endif
static const gemm_micro_fn gemm_micros[2][NV][MR] = {GEMM_TABLE(0), GEMM_TABLE(1)};

/* For one to three rows and b in place: more vectors of b at a time, so that the additions do not wait for each other.
 */
#define GEMM_WIDE_ROWS 3
#define GEMM_WIDE_1 (NV == 2 ? 8 : 9) /* vectors for one row, two, three: multiples of NV */
#define GEMM_WIDE_2 6
#define GEMM_WIDE_3 (NV == 2 ? 4 : 3)
static const int gemm_wide_nv[GEMM_WIDE_ROWS] = {GEMM_WIDE_1, GEMM_WIDE_2, GEMM_WIDE_3};

FG_INLINE void gemm_wide_block(int mr, int nv, int64_t k, const char *a, int64_t am, int64_t ak, const char *b,
                               int64_t bk, char *c, int64_t cm, int add) {
    vf acc[GEMM_WIDE_ROWS][GEMM_WIDE_1];
    for (int i = 0; i < mr; i++)
        for (int v = 0; v < nv; v++) acc[i][v] = (vf){0};
    for (; k > 0; k--, a += ak, b += bk) {
        vf x[GEMM_WIDE_ROWS];
        for (int i = 0; i < mr; i++) x[i] = vf_set(*(const float_any *)(a + i * am));
        for (int v = 0; v < nv; v++) {
            vf y = vf_load(b + v * VB);
            for (int i = 0; i < mr; i++) acc[i][v] = vf_fma(x[i], y, acc[i][v]);
        }
    }
    for (int i = 0; i < mr; i++)
        for (int v = 0; v < nv; v++) {
            char *q = c + i * cm + v * VB;
            vf_store(q, add ? vf_load(q) + acc[i][v] : acc[i][v]);
        }
}

static void gemm_wide(int64_t m, int64_t k, const fg_matrix *a, const char *b, int64_t bk, char *c, int64_t cm,
                      int add) {
    if (m == 1) gemm_wide_block(1, GEMM_WIDE_1, k, a->p, a->rs, a->cs, b, bk, c, cm, add);
    else if (m == 2) gemm_wide_block(2, GEMM_WIDE_2, k, a->p, a->rs, a->cs, b, bk, c, cm, add);
    else gemm_wide_block(3, GEMM_WIDE_3, k, a->p, a->rs, a->cs, b, bk, c, cm, add);
}

typedef float v4 __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(1), may_alias));
#if defined(__clang__)
#define V4_MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define V4_MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (v4i){i, j, k, l})
#endif

/* Four rows of four floats, s bytes apart, to the columns of dst, whose rows are w floats apart. */
FG_INLINE void pack_transpose4(float *dst, int w, const char *p, int64_t s) {
    v4 a = *(const v4_any *)p, b = *(const v4_any *)(p + s);
    v4 c = *(const v4_any *)(p + 2 * s), d = *(const v4_any *)(p + 3 * s);
    v4 ab = V4_MIX(a, b, 0, 4, 1, 5), cd = V4_MIX(c, d, 0, 4, 1, 5);
    v4 AB = V4_MIX(a, b, 2, 6, 3, 7), CD = V4_MIX(c, d, 2, 6, 3, 7);
    *(v4_any *)dst = V4_MIX(ab, cd, 0, 1, 4, 5);
    *(v4_any *)(dst + w) = V4_MIX(ab, cd, 2, 3, 6, 7);
    *(v4_any *)(dst + 2 * w) = V4_MIX(AB, CD, 0, 1, 4, 5);
    *(v4_any *)(dst + 3 * w) = V4_MIX(AB, CD, 2, 3, 6, 7);
}

/* dst[k][w] = src at k * sk + j * sw for j0 <= j < n; the columns from n to w are set to 0. */
static void pack_any(int w, float *dst, const char *p, int64_t sw, int64_t sk, int dtype, int64_t j0, int64_t n,
                     int64_t k) {
    for (int64_t i = 0; i < k; i++, p += sk, dst += w) {
        const char *q = p + j0 * sw;
        int64_t j = j0;
        for (; j < n; j++, q += sw) dst[j] = fg_load_f32(q, dtype);
        for (; j < w; j++) dst[j] = 0;
    }
}

/* Contiguous along w, row by row; w is a multiple of 4. Where a row is shorter than w, whole vectors are read as long
 * as they stay within the matrix. */
FG_INLINE void pack_rows(int w, float *dst, const char *p, int64_t sk, int64_t n, int64_t k) {
    int64_t whole = n;
    if (n < w) {
        int64_t room = (k - 1) * sk + n * 4 - w * 4;
        int64_t easy = sk <= 0 || room < 0 ? 0 : gemm_min(k, room / sk + 1);
        pack_any(w, dst + easy * w, p + easy * sk, 4, sk, FG_F32, 0, n, k - easy);
        k = easy, whole = w;
    }
    for (int64_t i = 0; i < k; i++, p += sk, dst += w)
        for (int64_t j = 0; j < whole; j += 4) *(v4_any *)(dst + j) = *(const v4_any *)(p + j * 4);
}

/* Contiguous along k: in squares of four, 16 steps of k at a time, so that whole cache lines are read. */
FG_INLINE void pack_columns(int w, float *dst, const char *p, int64_t sw, int64_t n, int64_t k) {
    int64_t whole = n / 4 * 4, i = 0;
    if (n < w) pack_any(w, dst, p, sw, 4, FG_F32, whole, n, k);
    for (; i + 16 <= k; i += 16)
        for (int64_t j = 0; j < whole; j += 4)
            for (int64_t x = i; x < i + 16; x += 4) pack_transpose4(dst + x * w + j, w, p + j * sw + x * 4, sw);
    for (; i + 4 <= k; i += 4)
        for (int64_t j = 0; j < whole; j += 4) pack_transpose4(dst + i * w + j, w, p + j * sw + i * 4, sw);
    for (; i < k; i++)
        for (int64_t j = 0; j < whole; j++) dst[i * w + j] = *(const float_any *)(p + j * sw + i * 4);
}

/* n halves side by side to float32. */
FG_INLINE void pack_halves_as(float *dst, const char *p, int64_t n, int dtype) {
    for (int64_t i = 0; i < n; i++) dst[i] = fg_load_f32(p + 2 * i, dtype);
}

static void pack_halves(float *dst, const char *p, int64_t n, int dtype) {
    if (dtype == FG_F16) pack_halves_as(dst, p, n, FG_F16);
    else pack_halves_as(dst, p, n, FG_BF16);
}

/* F16 and BF16, contiguous along w or along k (at most GEMM_KC of it). */
static void pack_half_panel(int w, float *dst, const char *p, int64_t sw, int64_t sk, int dtype, int64_t n, int64_t k) {
    float line[GEMM_KC];
    if (n < w) pack_any(w, dst, p, sw, sk, dtype, n, n, k);
    if (sw == 2) {
        for (int64_t i = 0; i < k; i++) pack_halves(dst + i * w, p + i * sk, n, dtype);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        pack_halves(line, p + j * sw, k, dtype);
        for (int64_t i = 0; i < k; i++) dst[i * w + j] = line[i];
    }
}

FG_INLINE void pack_panel(int w, float *dst, const char *p, int64_t sw, int64_t sk, int dtype, int64_t n, int64_t k) {
    if (dtype == FG_F32 && sw == 4) pack_rows(w, dst, p, sk, n, k);
    else if (dtype == FG_F32 && sk == 4) pack_columns(w, dst, p, sw, n, k);
    else if (dtype != FG_F32 && (sw == 2 || sk == 2)) pack_half_panel(w, dst, p, sw, sk, dtype, n, k);
    else pack_any(w, dst, p, sw, sk, dtype, 0, n, k);
}

static void pack_a(float *dst, const fg_matrix *a, int64_t n, int64_t k) {
    pack_panel(MR, dst, a->p, a->rs, a->cs, a->dtype, n, k);
}

/* The number of columns of a packed panel with nr columns of b: whole vectors. */
static inline int gemm_panel_width(int64_t nr) { return (int)((nr + VW - 1) / VW * VW); }

static void pack_b(float *dst, const fg_matrix *b, int64_t n, int64_t k) {
    if (n > NR - VW) pack_panel(NR, dst, b->p, b->cs, b->rs, b->dtype, n, k);
    else pack_panel(gemm_panel_width(n), dst, b->p, b->cs, b->rs, b->dtype, n, k);
}

/* How a tile's operands are read, and the floats of scratch that this takes. By shape and layout alone. */
typedef struct {
    int pack_a, pack_b;
    int64_t size_a, size_b;
} gemm_plan;

static int64_t gemm_kc(int64_t k) { return k ? gemm_ceil(k, gemm_ceil(k, GEMM_KC)) : 0; }

/* For tiles of at most m x n x k; `partial` tells whether some have a number of columns that is no multiple of VW. */
static gemm_plan gemm_plan_tile(int64_t m, int64_t n, int64_t k, int partial, const fg_matrix *a, const fg_matrix *b) {
    gemm_plan g;
    int64_t kc = gemm_min(k, GEMM_KC);
    int rows_close = a->cs >= -16 && a->cs <= 16;
    g.pack_a = a->dtype != FG_F32 || (!rows_close && n > (a->rs == 4 ? GEMM_A_IN_PLACE : 2 * NR));
    g.pack_b = b->dtype != FG_F32 || b->cs != 4 || m > (b->rs % VB ? GEMM_B_ASKEW : GEMM_B_IN_PLACE);
    g.size_a = g.pack_a ? kc * MR * gemm_ceil(gemm_min(m, GEMM_MC), MR) : 0;
    g.size_b = g.pack_b ? kc * NR * gemm_ceil(n, NR) : partial ? kc * NR : 0;
    return g;
}

/* One column panel of at most NR columns against mc rows. */
static void gemm_panel(int64_t mc, int64_t nr, int64_t k, const fg_matrix *a, int64_t a_panel, const char *b,
                       int64_t bk, char *c, int64_t cm, int add) {
    const gemm_micro_fn *micro = gemm_micros[nr % VW != 0][(nr + VW - 1) / VW - 1];
    for (int64_t i = 0; i < mc; i += MR)
        micro[gemm_min(mc - i, MR) - 1](nr, k, a->p + i / MR * a_panel, a->rs, a->cs, b, bk, c + i * cm, cm, add);
}

/* Rows [0, mc) of one block of k. */
static void gemm_rows(const gemm_plan *g, int64_t mc, int64_t n, int64_t kc, fg_matrix a, const fg_matrix *b, float *as,
                      const float *bs, char *c, int64_t cm, int add) {
    int64_t a_panel = MR * a.rs;
    if (g->pack_a) {
        for (int64_t i = 0; i < mc; i += MR) {
            fg_matrix s = a;
            s.p += i * a.rs;
            pack_a(as + i * kc, &s, gemm_min(mc - i, MR), kc);
        }
        a = (fg_matrix){(const char *)as, 4, MR * 4, FG_F32};
        a_panel = MR * kc * 4;
    }
    int64_t j = 0;
    if (mc <= GEMM_WIDE_ROWS && !g->pack_b) {
        int64_t w = gemm_wide_nv[mc - 1] * VW;
        for (; j + w <= n; j += w) gemm_wide(mc, kc, &a, b->p + j * 4, b->rs, c + j * 4, cm, add);
    }
    for (; j < n; j += NR) {
        int64_t nr = gemm_min(n - j, NR);
        int packed = g->pack_b || (nr % VW);
        const char *bj = packed ? (const char *)(bs + (g->pack_b ? j * kc : 0)) : b->p + j * 4;
        gemm_panel(mc, nr, kc, &a, a_panel, bj, packed ? gemm_panel_width(nr) * 4 : b->rs, c + j * 4, cm, add);
    }
}

/* The tile; scratch has room for g->size_a + g->size_b floats. k may be 0. */
static void gemm_tile(const gemm_plan *g, int64_t m, int64_t n, int64_t k, const fg_matrix *a, const fg_matrix *b,
                      char *c, int64_t cm, float *scratch) {
    float *as = scratch, *bs = scratch + g->size_a;
    const int64_t step = gemm_kc(k);
    if (k == 0)
        for (int64_t i = 0; i < m; i++) memset(c + i * cm, 0, (size_t)n * 4);
    for (int64_t p = 0; p < k; p += step) {
        int64_t kc = gemm_min(k - p, step);
        fg_matrix bp = *b;
        bp.p += p * b->rs;
        for (int64_t j = g->pack_b ? 0 : n % VW ? n - n % NR : n; j < n; j += NR) {
            fg_matrix s = bp;
            s.p += j * b->cs;
            pack_b(bs + (g->pack_b ? j * kc : 0), &s, gemm_min(n - j, NR), kc);
        }
        const int64_t mc =
            kc * n <= 8192 ? MR : GEMM_MC; /* with all of b in the first-level cache, c is written by rows */
        for (int64_t i = 0; i < m; i += mc) {
            fg_matrix ap = *a;
            ap.p += i * a->rs + p * a->cs;
            gemm_rows(g, gemm_min(m - i, mc), n, kc, ap, &bp, as, bs, c + i * cm, cm, p > 0);
        }
    }
}

#endif
