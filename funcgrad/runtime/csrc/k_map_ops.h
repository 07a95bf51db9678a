/* One loop for each instruction of MAP. Registers hold a multiple of 16 elements, so every loop is whole vectors and an
 * element's result does not depend on its position. The destination may be the same memory as a source. */
#ifndef FG_K_MAP_OPS_H
#define FG_K_MAP_OPS_H
#include "map_ops.h"
#include "math_f32.h"
#include "math_f32_rare.h"
#if defined(__AVX512F__)
#include "math_avx512.h"
#endif

typedef float f32_any __attribute__((may_alias));
typedef int32_t i32_any __attribute__((may_alias));
typedef uint32_t u32_any __attribute__((may_alias));

#if defined(__clang__)
#define FG_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define FG_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

#define FG_LANES 16 /* registers are padded to a multiple of this */

typedef void (*map_function)(void *dst, const void *const *src, int64_t n);

#define OP_LOOP(name, TD, T, reads, expression)                                                                       \
    static void op_##name(void *dst, const void *const *src, int64_t n) {                                             \
        TD *d = dst;                                                                                                  \
        n &= -FG_LANES;                                                                                               \
        reads;                                                                                                        \
        FG_VECTOR_LOOP                                                                                                \
        for (int64_t i = 0; i < n; i++) d[i] = expression;                                                            \
    }
#define READ1(T) const T *pa = src[0]
#define READ2(T) const T *pa = src[0], *pb = src[1]
#define A pa[i]
#define B pb[i]
#define FF1(name, expression) OP_LOOP(name, f32_any, f32_any, READ1(f32_any), expression)
#define FF2(name, expression) OP_LOOP(name, f32_any, f32_any, READ2(f32_any), expression)
#define BF1(name, expression) OP_LOOP(name, i32_any, f32_any, READ1(f32_any), expression)
#define BF2(name, expression) OP_LOOP(name, i32_any, f32_any, READ2(f32_any), expression)
#define II1(name, expression) OP_LOOP(name, i32_any, i32_any, READ1(i32_any), expression)
#define II2(name, expression) OP_LOOP(name, i32_any, i32_any, READ2(i32_any), expression)
#define UU1(name, expression) OP_LOOP(name, u32_any, u32_any, READ1(u32_any), expression)
#define UU2(name, expression) OP_LOOP(name, u32_any, u32_any, READ2(u32_any), expression)

/* Functions that have a version of their own for AVX-512. */
#if defined(__AVX512F__)
#define FUNCTION(name)                                                                                                \
    static void op_##name##_f(void *dst, const void *const *src, int64_t n) {                                         \
        float *d = dst;                                                                                               \
        const float *x = src[0];                                                                                      \
        for (int64_t i = 0; i + 16 <= n; i += 16) _mm512_storeu_ps(d + i, fgv_##name(_mm512_loadu_ps(x + i)));        \
    }
#else
#define FUNCTION(name) FF1(name##_f, fgm_##name(A))
#endif

/* ---- float32 ---- */
FF2(add_f, A + B)
FF2(sub_f, A - B)
FF2(mul_f, A *B)
FF2(div_f, A / B)
UU1(neg_f, A ^ 0x80000000u)
UU1(abs_f, A & 0x7fffffffu)
FF1(sign_f, fgm_sign(A))
FF2(max_f, fgm_max(A, B))
FF2(min_f, fgm_min(A, B))
FF2(pow_f, fgm_pow(A, B))
FF2(atan2_f, fgm_atan2(A, B))
FUNCTION(exp)
FF1(exp2_f, fgm_exp2(A))
FF1(expm1_f, fgm_expm1(A))
FUNCTION(log)
FF1(log2_f, fgm_log2(A))
FUNCTION(log1p)
FF1(sqrt_f, __builtin_sqrtf(A))
FF1(rsqrt_f, 1.0f / __builtin_sqrtf(A))
FF1(cbrt_f, fgm_cbrt(A))
FF1(asin_f, fgm_asin(A))
FF1(acos_f, fgm_acos(A))
FF1(atan_f, fgm_atan(A))
FF1(sinh_f, fgm_sinh(A))
FF1(cosh_f, fgm_cosh(A))
FF1(tanh_f, fgm_tanh(A))
FF1(asinh_f, fgm_asinh(A))
FF1(acosh_f, fgm_acosh(A))
FF1(atanh_f, fgm_atanh(A))
FUNCTION(logistic)
FF1(erf_f, fgm_erf(A))
FF1(erfc_f, fgm_erfc(A))
FF1(erf_inv_f, fgm_erf_inv(A))
FF1(lgamma_f, fgm_lgamma(A))
FF1(digamma_f, fgm_digamma(A))
FF1(floor_f, fgm_floor(A))
FF1(ceil_f, fgm_ceil(A))
FF1(trunc_f, fgm_trunc(A))
FF1(round_f, fgm_round(A))
BF1(isfinite_f, fgm_abs(A) < FGM_INF)
BF1(isnan_f, A != A)
FF2(nextafter_f, fgm_nextafter(A, B))
FF1(square_f, A *A)
FF1(recip_f, 1.0f / A)
BF2(eq_f, A == B)
BF2(ne_f, A != B)
BF2(lt_f, A < B)
BF2(le_f, A <= B)
BF2(gt_f, A > B)
BF2(ge_f, A >= B)
/* 0 where either factor, or the dividend, is 0: cotangents */
FF2(mul_nz_f, (A == 0.0f) | (B == 0.0f) ? 0.0f : A * B)
FF2(div_nz_f, A == 0.0f ? 0.0f : A / B)
/* Two operations in one pass, each rounded. */
#define FF3(name, expression)                                                                                         \
    OP_LOOP(name, f32_any, f32_any, const f32_any *pa = src[0]; const f32_any *pb = src[1]; const f32_any *pc = src[2], \
            expression)
#define C pc[i]
FF3(muladd_f, A *B + C)
FF3(mulsub_f, A *B - C)
FF3(submul_f, C - A * B)
FF3(mulmul_f, A *B *C)
FF3(addadd_f, A + B + C)
#undef C
FF1(round_f16, fg_f16_to_f32(fg_f32_to_f16(A)))
FF1(round_bf16, fg_bf16_to_f32(fg_f32_to_bf16(A)))

/* Arguments that the vector code cannot do are rare: when a chunk has one, the vector code runs all the same and those
 * elements are done again, so that the others do not notice. */
#define CHUNK 64
#define OP_WITH_FAR_ARGUMENTS(name, sources, far, near_result, far_result)                                            \
    static void op_##name(void *dst, const void *const *src, int64_t n) {                                             \
        float x[CHUNK], y[CHUNK];                                                                                     \
        f32_any *d = dst;                                                                                             \
        const f32_any *pa = src[0], *pb = sources > 1 ? src[1] : src[0];                                              \
        n &= -FG_LANES;                                                                                               \
        for (int64_t s = 0; s < n; s += CHUNK) {                                                                      \
            int64_t m = n - s < CHUNK ? n - s : CHUNK;                                                                \
            int32_t any = 0;                                                                                          \
            m &= -FG_LANES;                                                                                           \
            (void)y;                                                                                                  \
            FG_VECTOR_LOOP                                                                                            \
            for (int64_t i = 0; i < m; i++) {                                                                         \
                x[i] = pa[s + i];                                                                                     \
                y[i] = pb[s + i];                                                                                     \
                any |= far;                                                                                           \
            }                                                                                                         \
            FG_VECTOR_LOOP                                                                                            \
            for (int64_t i = 0; i < m; i++) d[s + i] = near_result;                                                   \
            if (any) {                                                                                                \
                for (int64_t i = 0; i < m; i++) {                                                                     \
                    if (far) d[s + i] = far_result;                                                                   \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

static float far_sin(float x, uint32_t turn) {
    uint32_t n;
    if (!(fgm_abs(x) < FGM_INF)) return FGM_NAN;
    double r = fgm_reduce_huge(x, &n);
    return fgm_sin_cos((float)r, n + turn);
}
static float far_tan(float x) {
    uint32_t n;
    if (!(fgm_abs(x) < FGM_INF)) return FGM_NAN;
    double r = fgm_reduce_huge(x, &n);
    return fgm_tan_reduced(r, n);
}
#define FAR_ANGLE (fgm_abs(x[i]) >= FGM_TRIG_LIMIT)
OP_WITH_FAR_ARGUMENTS(sin_f, 1, FAR_ANGLE, fgm_sin(x[i]), far_sin(x[i], 0))
OP_WITH_FAR_ARGUMENTS(cos_f, 1, FAR_ANGLE, fgm_cos(x[i]), far_sin(x[i], 1))
OP_WITH_FAR_ARGUMENTS(tan_f, 1, FAR_ANGLE, fgm_tan(x[i]), far_tan(x[i]))
OP_WITH_FAR_ARGUMENTS(rem_f, 2, fgm_rem_far(x[i], y[i]), fgm_rem(x[i], y[i]), fmodf(x[i], y[i]))

/* ---- integers ---- */
UU2(add_i, A + B)
UU2(sub_i, A - B)
UU2(mul_i, A *B)
UU1(neg_i, 0u - A)
UU1(abs_i, (int32_t)A < 0 ? 0u - A : A)
II1(sign_i, (A > 0) - (A < 0))
II2(max_i, A > B ? A : B)
II2(min_i, A < B ? A : B)
II2(eq_i, A == B)
II2(ne_i, A != B)
II2(lt_i, A < B)
II2(le_i, A <= B)
II2(gt_i, A > B)
II2(ge_i, A >= B)
UU2(max_u, A > B ? A : B)
UU2(min_u, A < B ? A : B)
UU2(lt_u, A < B)
UU2(le_u, A <= B)
UU2(gt_u, A > B)
UU2(ge_u, A >= B)

/* Quotients of 32-bit integers are exact in float64 after truncation. */
FGM int32_t quotient_i(int32_t a, int32_t b) {
    int32_t safe = b == 0 || b == -1 ? 1 : b;
    int32_t q = (int32_t)((double)a / (double)safe);
    q = b == -1 ? (int32_t)(0u - (uint32_t)a) : q;
    return b == 0 ? -1 : q;
}
FGM double from_u32(uint32_t a) { return (double)(int32_t)(a ^ 0x80000000u) + 0x1p31; }
FGM uint32_t quotient_u(uint32_t a, uint32_t b) {
    double x = from_u32(a), y = from_u32(b == 0u ? 1u : b), t = x / y;
    double q = (t + 0x1p52) - 0x1p52; /* to nearest; one too many when its product exceeds x */
    q = q * y > x ? q - 1.0 : q;
    uint32_t r = (uint32_t)fgm_dbits(q + 0x1p52);
    return b == 0u ? 0xffffffffu : r;
}
II2(div_i, quotient_i(A, B))
II2(rem_i, B == 0 ? A : (int32_t)((uint32_t)A - (uint32_t)B * (uint32_t)quotient_i(A, B)))
UU2(div_u, quotient_u(A, B))
UU2(rem_u, B == 0u ? A : A - B * quotient_u(A, B))

FGM uint32_t popcount_u(uint32_t x) {
    x = x - ((x >> 1) & 0x55555555u);
    x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0fu;
    return (x * 0x01010101u) >> 24;
}
FGM uint32_t leading_zeros(uint32_t x) { return x ? (uint32_t)__builtin_clz(x) : 32u; }
UU2(and, A &B)
UU2(or, A | B)
UU2(xor, A ^ B)
UU1(not, ~A)
UU1(not_b, A == 0u)
UU2(shl, B < 32u ? A << (B & 31u) : 0u)
UU2(shr_u, B < 32u ? A >> (B & 31u) : 0u)
II2(shr_i, A >> ((uint32_t)B < 32u ? B : 31))
UU1(popcount, popcount_u(A))
UU1(clz, leading_zeros(A))

/* ---- selection and conversion ---- */
UU1(mov, A)
OP_LOOP(select, u32_any, u32_any, const u32_any *pa = src[0]; const u32_any *pb = src[1]; const u32_any *pc = src[2],
        A ? B : pc[i])

FGM int32_t to_i32(float x) {
    float safe = fgm_abs(x) < 0x1p31f ? x : 0.0f;
    int32_t r = (int32_t)safe;
    r = x >= 0x1p31f ? INT32_MAX : r;
    return x <= -0x1p31f ? INT32_MIN : r;
}
FGM uint32_t to_u32(float x) {
    float low = x >= 0.0f && x < 0x1p31f ? x : 0.0f, high = x >= 0x1p31f && x < 0x1p32f ? x - 0x1p31f : 0.0f;
    uint32_t r = x >= 0x1p31f ? (uint32_t)(int32_t)high | 0x80000000u : (uint32_t)(int32_t)low;
    return x >= 0x1p32f ? 0xffffffffu : r;
}
BF1(f2i, to_i32(A))
BF1(f2u, (int32_t)to_u32(A))
OP_LOOP(u2f, f32_any, u32_any, READ1(u32_any), (float)A)
OP_LOOP(i2f, f32_any, i32_any, READ1(i32_any), (float)A)
UU1(f2b, (A & 0x7fffffffu) != 0u)
UU1(i2b, A != 0u)

/* ---- Threefry-2x32-20 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011) ---- */
#define FG_ROTATE(x, r) ((x) << (r) | (x) >> (32 - (r)))
#define FG_ROUND(r) x0 += x1, x1 = FG_ROTATE(x1, r) ^ x0
#define FG_FOUR_ROUNDS(r0, r1, r2, r3) FG_ROUND(r0), FG_ROUND(r1), FG_ROUND(r2), FG_ROUND(r3)
FGM uint32_t threefry(uint32_t k0, uint32_t k1, uint32_t x0, uint32_t x1, int word) {
    uint32_t k2 = k0 ^ k1 ^ 0x1bd11bdau;
    x0 += k0, x1 += k1;
    FG_FOUR_ROUNDS(13, 15, 26, 6), x0 += k1, x1 += k2 + 1u;
    FG_FOUR_ROUNDS(17, 29, 16, 24), x0 += k2, x1 += k0 + 2u;
    FG_FOUR_ROUNDS(13, 15, 26, 6), x0 += k0, x1 += k1 + 3u;
    FG_FOUR_ROUNDS(17, 29, 16, 24), x0 += k1, x1 += k2 + 4u;
    FG_FOUR_ROUNDS(13, 15, 26, 6), x0 += k2, x1 += k0 + 5u;
    return word == 0 ? x0 : word == 1 ? x1 : x0 ^ x1;
}
#define THREEFRY(name, word)                                                                                          \
    OP_LOOP(name, u32_any, u32_any, const u32_any *pa = src[0]; const u32_any *pb = src[1]; const u32_any *pc = src[2]; \
            const u32_any *pd = src[3], threefry(A, B, pc[i], pd[i], word))
THREEFRY(threefry, 0)
THREEFRY(threefry1, 1)
THREEFRY(threefryx, 2)

/* Constants are filled in once for all blocks of a task, so this one is never run. */
static void op_const(void *dst, const void *const *src, int64_t n) { (void)dst, (void)src, (void)n; }

static const map_function map_functions[FG_N_OPS] = {
#define X(name, n, cost) op_##name,
    FG_MAP_OPS(X)
#undef X
};
static const uint8_t map_sources[FG_N_OPS] = {
#define X(name, n, cost) n,
    FG_MAP_OPS(X)
#undef X
};
static const uint8_t map_costs[FG_N_OPS] = {
#define X(name, n, cost) cost,
    FG_MAP_OPS(X)
#undef X
};

#undef A
#undef B
#endif
