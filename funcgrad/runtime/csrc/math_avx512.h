/* The most used functions of math_f32.h by AVX-512's own instructions: scaling by a power of two is one of them
 * (vscalef), which saves the compiler's two-step scaling. The results are those of math_f32.h, to the bit.
 *
 * Lanes outside of a function's usual range are rare; when a vector has one, all of it goes through math_f32.h. */
#ifndef FG_MATH_AVX512_H
#define FG_MATH_AVX512_H
#include <immintrin.h>

#include "math_f32.h"

#define V(x) _mm512_set1_ps(x)
#define VFMA _mm512_fmadd_ps

FGM __m512 fgv_exp_tail(__m512 r) {
    __m512 q = V(0x1.6a6c6cp-10f);
    q = VFMA(q, r, V(0x1.123852p-7f));
    q = VFMA(q, r, V(0x1.55589ap-5f));
    q = VFMA(q, r, V(0x1.555494p-3f));
    return VFMA(q, r, V(0x1.fffffcp-2f));
}

/* e^x for -104 <= x <= 89. */
FGM __m512 fgv_exp_clamped(__m512 x) {
    __m512 n = _mm512_sub_ps(VFMA(x, V(0x1.715476p+0f), V(FGM_MAGIC)), V(FGM_MAGIC));
    __m512 r = VFMA(n, V(0x1.05c61p-29f), VFMA(n, V(-0x1.62e43p-1f), x));
    __m512 p = VFMA(_mm512_mul_ps(r, r), fgv_exp_tail(r), r);
    return _mm512_scalef_ps(_mm512_add_ps(p, V(1.0f)), n);
}

/* min and max give their second operand when one is NaN */
FGM __m512 fgv_exp(__m512 x) { return fgv_exp_clamped(_mm512_max_ps(V(-104.0f), _mm512_min_ps(V(89.0f), x))); }

FGM __m512 fgv_logistic(__m512 x) {
    __m512 z = fgv_exp_clamped(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_min_ps(V(104.0f), _mm512_abs_ps(x))));
    __mmask16 up = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ), down = (__mmask16)~up;
    __m512 d = _mm512_add_ps(V(1.0f), z), d_low = _mm512_sub_ps(z, _mm512_sub_ps(d, V(1.0f)));
    __m512 one = _mm512_mask_mov_ps(z, up, V(1.0f)), q = _mm512_div_ps(one, d);
    __m512 inverse = _mm512_mask_sub_ps(q, down, V(1.0f), q);
    __m512 rest = _mm512_fnmadd_ps(q, d_low, _mm512_fnmadd_ps(q, d, one));
    return VFMA(rest, inverse, q);
}

FGM __m512 fgv_log_tail(__m512 f) {
    __m512 q = V(0x1.1c063ep-4f), f2 = _mm512_mul_ps(f, f);
    q = VFMA(q, f, V(-0x1.e53286p-4f));
    q = VFMA(q, f, V(0x1.e6feb6p-4f));
    q = VFMA(q, f, V(-0x1.fafd9ep-4f));
    q = VFMA(q, f, V(0x1.232a5p-3f));
    q = VFMA(q, f, V(-0x1.556408p-3f));
    q = VFMA(q, f, V(0x1.99a514p-3f));
    q = VFMA(q, f, V(-0x1.ffffeap-3f));
    q = VFMA(q, f, V(0x1.555548p-2f));
    return VFMA(_mm512_mul_ps(q, f), f2, _mm512_mul_ps(V(-0.5f), f2));
}

/* The exponent k of u = 2^k (1 + f), 1 + f from sqrt(1/2) to sqrt(2). */
FGM __m512i fgv_exponent(__m512 u) {
    return _mm512_srai_epi32(_mm512_sub_epi32(_mm512_castps_si512(u), _mm512_set1_epi32(0x3f3504f3)), 23);
}

/* e ln(2) + log(1 + f) */
FGM __m512 fgv_log_sum(__m512 e, __m512 f) {
    __m512 y = VFMA(e, V(-0x1.05c61p-29f), fgv_log_tail(f));
    return VFMA(e, V(0x1.62e43p-1f), _mm512_add_ps(f, y));
}

FGM __mmask16 fgv_within(__m512 x, float above, float below) {
    return _mm512_cmp_ps_mask(x, V(above), _CMP_GT_OQ) & _mm512_cmp_ps_mask(x, V(below), _CMP_LT_OQ);
}

/* 16 elements by a function of math_f32.h. */
#define FGV_RARE(f, x)                                                                                                \
    __extension__({                                                                                                   \
        float a_[16], b_[16];                                                                                         \
        _mm512_storeu_ps(a_, x);                                                                                      \
        for (int i_ = 0; i_ < 16; i_++) b_[i_] = f(a_[i_]);                                                           \
        _mm512_loadu_ps(b_);                                                                                          \
    })

FGM __m512 fgv_log(__m512 x) {
    if (__builtin_expect(fgv_within(x, 0x1p-126f, FGM_INF) != 0xffff, 0)) return FGV_RARE(fgm_log, x);
    __m512i k = fgv_exponent(x);
    __m512 m = _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(k, 23)));
    return fgv_log_sum(_mm512_cvtepi32_ps(k), _mm512_sub_ps(m, V(1.0f)));
}

FGM __m512 fgv_log1p(__m512 x) {
    if (__builtin_expect(fgv_within(x, -1.0f, FGM_INF) != 0xffff, 0)) return FGV_RARE(fgm_log1p, x);
    __m512 e = _mm512_cvtepi32_ps(fgv_exponent(_mm512_add_ps(V(1.0f), x))), down = _mm512_sub_ps(_mm512_setzero_ps(), e);
    __m512 f = _mm512_add_ps(_mm512_scalef_ps(x, down), _mm512_sub_ps(_mm512_scalef_ps(V(1.0f), down), V(1.0f)));
    __m512i r = _mm512_castps_si512(fgv_log_sum(e, f));
    /* the sign of x */
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(r, _mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN), 0xd8));
}

#undef V
#undef VFMA
#endif
