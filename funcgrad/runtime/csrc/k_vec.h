/* Float vectors of the width of the CPU variant that a k_*.c file is compiled for. */
#ifndef FG_K_VEC_H
#define FG_K_VEC_H
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define VW 16
#elif defined(__AVX2__)
#define VW 8
#else
#define VW 4
#endif
#define VB (VW * 4)

#define FG_INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(VB)));
typedef int32_t vi __attribute__((vector_size(VB)));
/* the same with no demand on alignment, and allowed to alias any type */
typedef float vf_any __attribute__((vector_size(VB), aligned(1), may_alias));
typedef float float_any __attribute__((aligned(1), may_alias));
typedef int32_t int32_any __attribute__((aligned(1), may_alias));
typedef uint32_t uint32_any __attribute__((aligned(1), may_alias));
typedef uint16_t uint16_any __attribute__((aligned(1), may_alias));

FG_INLINE vf vf_load(const void *p) { return *(const vf_any *)p; }
FG_INLINE void vf_store(void *p, vf x) { *(vf_any *)p = x; }
FG_INLINE vf vf_set(float x) { return x - (vf){0}; }

/* a * b + c, in one rounding where the CPU variant has such an instruction. */
FG_INLINE vf vf_fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* The first n <= VW lanes of a vector in memory, without touching what follows (x86 only). */
#if defined(__AVX512F__)
typedef __mmask16 vf_mask;
FG_INLINE vf_mask vf_first(int64_t n) { return (vf_mask)(0xffffu >> (VW - n)); }
FG_INLINE vf vf_load_mask(const void *p, vf_mask m) { return (vf)_mm512_maskz_loadu_ps(m, p); }
FG_INLINE void vf_store_mask(void *p, vf_mask m, vf x) { _mm512_mask_storeu_ps(p, m, (__m512)x); }
#elif defined(__AVX2__)
typedef __m256i vf_mask;
FG_INLINE vf_mask vf_first(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
FG_INLINE vf vf_load_mask(const void *p, vf_mask m) { return (vf)_mm256_maskload_ps((const float *)p, m); }
FG_INLINE void vf_store_mask(void *p, vf_mask m, vf x) { _mm256_maskstore_ps((float *)p, m, (__m256)x); }
#endif

FG_INLINE vf vf_select(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }

/* The larger (smaller) of a and x; NaN when either is. On x86 the instruction gives its second operand when either is
 * NaN, so that one in a stays and only one in x has to be brought in. */
#if defined(__AVX512F__)
FG_INLINE vf vf_keep_nan(vf r, vf x) {
    return (vf)_mm512_mask_mov_ps((__m512)r, _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q), (__m512)x);
}
FG_INLINE vf vf_max(vf a, vf x) { return vf_keep_nan((vf)_mm512_max_ps((__m512)x, (__m512)a), x); }
FG_INLINE vf vf_min(vf a, vf x) { return vf_keep_nan((vf)_mm512_min_ps((__m512)x, (__m512)a), x); }
#elif defined(__AVX2__)
FG_INLINE vf vf_keep_nan(vf r, vf x) {
    return (vf)_mm256_blendv_ps((__m256)r, (__m256)x, _mm256_cmp_ps((__m256)x, (__m256)x, _CMP_UNORD_Q));
}
FG_INLINE vf vf_max(vf a, vf x) { return vf_keep_nan((vf)_mm256_max_ps((__m256)x, (__m256)a), x); }
FG_INLINE vf vf_min(vf a, vf x) { return vf_keep_nan((vf)_mm256_min_ps((__m256)x, (__m256)a), x); }
#elif defined(__aarch64__)
FG_INLINE vf vf_max(vf a, vf x) { return (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)x); }
FG_INLINE vf vf_min(vf a, vf x) { return (vf)vminq_f32((float32x4_t)a, (float32x4_t)x); }
#else
FG_INLINE vf vf_max(vf a, vf x) { return vf_select((x > a) | (x != x), x, a); }
FG_INLINE vf vf_min(vf a, vf x) { return vf_select((x < a) | (x != x), x, a); }
#endif

/* Lane i gets lane i ^ w, where w is a power of two below VW. */
FG_INLINE vf vf_swap(vf x, int w) {
#if defined(__AVX512F__)
    __m512 y = (__m512)x;
    return (vf)(w == 8   ? _mm512_shuffle_f32x4(y, y, 0x4e)
                : w == 4 ? _mm512_shuffle_f32x4(y, y, 0xb1)
                : w == 2 ? _mm512_permute_ps(y, 0x4e)
                         : _mm512_permute_ps(y, 0xb1));
#elif defined(__AVX2__)
    __m256 y = (__m256)x;
    return (vf)(w == 4   ? _mm256_permute2f128_ps(y, y, 1)
                : w == 2 ? _mm256_permute_ps(y, 0x4e)
                         : _mm256_permute_ps(y, 0xb1));
#elif defined(__x86_64__)
    __m128 y = (__m128)x;
    return (vf)(w == 2 ? _mm_shuffle_ps(y, y, 0x4e) : _mm_shuffle_ps(y, y, 0xb1));
#else
    vf y = x;
    for (int i = 0; i < VW; i++) y[i] = x[i ^ w];
    return y;
#endif
}

/* The sum of the lanes, in a fixed order. */
FG_INLINE float vf_sum(vf x) {
    for (int w = VW / 2; w > 0; w /= 2) x += vf_swap(x, w);
    return x[0];
}

#endif
