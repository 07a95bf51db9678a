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

/* The larger (smaller) of a and x; NaN when either is. */
FG_INLINE vf vf_select(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
FG_INLINE vf vf_max(vf a, vf x) { return vf_select((x > a) | (x != x), x, a); }
FG_INLINE vf vf_min(vf a, vf x) { return vf_select((x < a) | (x != x), x, a); }

/* The sum of the lanes, in a fixed order. */
FG_INLINE float vf_sum(vf x) {
    float t[VW];
    memcpy(t, &x, sizeof t);
    for (int w = VW / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    return t[0];
}

#endif
