/* Transposing matrices of 32-bit words: square blocks as wide as a vector, in registers. */
#ifndef FG_K_TRANSPOSE_H
#define FG_K_TRANSPOSE_H
#include <stdint.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef uint32_t word_any __attribute__((may_alias, aligned(1)));

typedef uint32_t quad __attribute__((vector_size(16)));
typedef uint32_t quad_any __attribute__((vector_size(16), may_alias, aligned(1)));
#if defined(__clang__) || __GNUC__ >= 12
#define FG_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define FG_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad){i, j, k, l})
#endif
static inline __attribute__((always_inline)) void transpose_quad(char *d, int64_t ds, const char *s, int64_t ss) {
    quad a = *(const quad_any *)s, b = *(const quad_any *)(s + ss);
    quad c = *(const quad_any *)(s + 2 * ss), e = *(const quad_any *)(s + 3 * ss);
    quad ab0 = FG_SHUFFLE(a, b, 0, 4, 1, 5), ab1 = FG_SHUFFLE(a, b, 2, 6, 3, 7);
    quad ce0 = FG_SHUFFLE(c, e, 0, 4, 1, 5), ce1 = FG_SHUFFLE(c, e, 2, 6, 3, 7);
    *(quad_any *)d = FG_SHUFFLE(ab0, ce0, 0, 1, 4, 5);
    *(quad_any *)(d + ds) = FG_SHUFFLE(ab0, ce0, 2, 3, 6, 7);
    *(quad_any *)(d + 2 * ds) = FG_SHUFFLE(ab1, ce1, 0, 1, 4, 5);
    *(quad_any *)(d + 3 * ds) = FG_SHUFFLE(ab1, ce1, 2, 3, 6, 7);
}

#if defined(__AVX512F__)
#define TRANSPOSE_SIDE 16
/* Four rounds: pairs of words, pairs of pairs, then 128-bit quarters twice. */
static inline __attribute__((always_inline)) void transpose_block(char *d, int64_t ds, const char *s, int64_t ss) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(s + i * ss);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    for (int i = 0; i < 4; i++) { /* a[4 q + i] holds columns i, i + 4, i + 8, i + 12 of rows 4 q .. 4 q + 3 */
        b[i] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
        b[i + 8] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(d + i * ds, _mm512_shuffle_i32x4(b[i], b[i + 8], 0x88));
        _mm512_storeu_si512(d + (i + 4) * ds, _mm512_shuffle_i32x4(b[i + 4], b[i + 12], 0x88));
        _mm512_storeu_si512(d + (i + 8) * ds, _mm512_shuffle_i32x4(b[i], b[i + 8], 0xdd));
        _mm512_storeu_si512(d + (i + 12) * ds, _mm512_shuffle_i32x4(b[i + 4], b[i + 12], 0xdd));
    }
}
#elif defined(__AVX2__)
#define TRANSPOSE_SIDE 8
static inline __attribute__((always_inline)) void transpose_block(char *d, int64_t ds, const char *s, int64_t ss) {
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_si256((const __m256i *)(s + i * ss));
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_si256((__m256i *)(d + i * ds), _mm256_permute2x128_si256(a[i], a[i + 4], 0x20));
        _mm256_storeu_si256((__m256i *)(d + (i + 4) * ds), _mm256_permute2x128_si256(a[i], a[i + 4], 0x31));
    }
}
#else
#define TRANSPOSE_SIDE 4
#define transpose_block transpose_quad
#endif

static inline void transpose_edge(char *d, int64_t ds, const char *s, int64_t ss, int64_t rows, int64_t cols) {
    int64_t i = 0, full_cols = cols & -4;
    for (; i + 4 <= rows; i += 4, d += 4 * ds, s += 16) {
        for (int64_t j = 0; j < full_cols; j += 4) transpose_quad(d + j * 4, ds, s + j * ss, ss);
        for (int64_t j = full_cols; j < cols; j++) {
            for (int q = 0; q < 4; q++) *(word_any *)(d + q * ds + j * 4) = *(const word_any *)(s + j * ss + q * 4);
        }
    }
    for (; i < rows; i++, d += ds, s += 4) {
        for (int64_t j = 0; j < cols; j++) *(word_any *)(d + j * 4) = *(const word_any *)(s + j * ss);
    }
}

/* d[i * ds + j * 4] = s[j * ss + i * 4] for i < rows, j < cols; strides in bytes. */
static void transpose_words(char *d, int64_t ds, const char *s, int64_t ss, int64_t rows, int64_t cols) {
    int64_t i = 0, full_cols = cols & -TRANSPOSE_SIDE;
    for (; i + TRANSPOSE_SIDE <= rows; i += TRANSPOSE_SIDE, d += TRANSPOSE_SIDE * ds, s += TRANSPOSE_SIDE * 4) {
        for (int64_t j = 0; j < full_cols; j += TRANSPOSE_SIDE) transpose_block(d + j * 4, ds, s + j * ss, ss);
        if (full_cols < cols) transpose_edge(d + full_cols * 4, ds, s + full_cols * ss, ss, TRANSPOSE_SIDE, cols - full_cols);
    }
    if (i < rows) transpose_edge(d, ds, s, ss, rows - i, cols);
}

#endif
