/* Moving boxes of rows x cols elements between strided memory and registers (row-major, packed). */
#ifndef FG_K_MAP_BOX_H
#define FG_K_MAP_BOX_H
#include "k_map_ops.h"

typedef uint16_t u16_any __attribute__((may_alias, aligned(1)));
typedef uint32_t word_any __attribute__((may_alias, aligned(1)));
typedef uint32_t quad __attribute__((vector_size(16)));
typedef uint32_t quad_any __attribute__((vector_size(16), may_alias, aligned(1)));

typedef struct {
    int64_t rows, cols, row_stride, col_stride; /* strides in bytes */
} box;

/* ---- words: 32-bit elements ---- */

/* A short row is moved by hand: a call of memcpy would cost more than the row. */
FGM void copy_words(void *dst, const void *src, int64_t n) {
    if (n > 64) {
        memcpy(dst, src, (size_t)n * 4);
        return;
    }
    word_any *d = dst;
    const word_any *s = src;
    FG_VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) d[i] = s[i];
}

#if defined(__clang__) || __GNUC__ >= 12
#define FG_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define FG_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad){i, j, k, l})
#endif

/* d[4 rows of stride ds] = transpose of s[4 rows of stride ss] (bytes). */
FGM void transpose4(char *d, int64_t ds, const char *s, int64_t ss) {
    quad a = *(const quad_any *)s, b = *(const quad_any *)(s + ss);
    quad c = *(const quad_any *)(s + 2 * ss), e = *(const quad_any *)(s + 3 * ss);
    quad ab0 = FG_SHUFFLE(a, b, 0, 4, 1, 5), ab1 = FG_SHUFFLE(a, b, 2, 6, 3, 7);
    quad ce0 = FG_SHUFFLE(c, e, 0, 4, 1, 5), ce1 = FG_SHUFFLE(c, e, 2, 6, 3, 7);
    *(quad_any *)d = FG_SHUFFLE(ab0, ce0, 0, 1, 4, 5);
    *(quad_any *)(d + ds) = FG_SHUFFLE(ab0, ce0, 2, 3, 6, 7);
    *(quad_any *)(d + 2 * ds) = FG_SHUFFLE(ab1, ce1, 0, 1, 4, 5);
    *(quad_any *)(d + 3 * ds) = FG_SHUFFLE(ab1, ce1, 2, 3, 6, 7);
}

/* d[i * ds + j * 4] = s[j * ss + i * 4] for i < rows, j < cols. */
static void transpose_words(char *d, int64_t ds, const char *s, int64_t ss, int64_t rows, int64_t cols) {
    int64_t full_rows = rows & -4, full_cols = cols & -4;
    for (int64_t j = 0; j < full_cols; j += 4) {
        for (int64_t i = 0; i < full_rows; i += 4) transpose4(d + i * ds + j * 4, ds, s + j * ss + i * 4, ss);
        for (int64_t i = full_rows; i < rows; i++) {
            for (int64_t q = j; q < j + 4; q++) *(word_any *)(d + i * ds + q * 4) = *(const word_any *)(s + q * ss + i * 4);
        }
    }
    for (int64_t j = full_cols; j < cols; j++) {
        for (int64_t i = 0; i < rows; i++) *(word_any *)(d + i * ds + j * 4) = *(const word_any *)(s + j * ss + i * 4);
    }
}

static void load_words(uint32_t *dst, const char *p, box b) {
    if (b.row_stride == 4 && b.rows > 3 && b.cols > 3 && b.col_stride != 4) {
        transpose_words((char *)dst, b.cols * 4, p, b.col_stride, b.rows, b.cols);
        return;
    }
    for (int64_t r = 0; r < b.rows; r++, dst += b.cols, p += b.row_stride) {
        if (b.col_stride == 4) {
            copy_words(dst, p, b.cols);
        } else if (b.col_stride == 0) {
            uint32_t v = *(const word_any *)p;
            FG_VECTOR_LOOP
            for (int64_t c = 0; c < b.cols; c++) dst[c] = v;
        } else {
            const char *q = p;
            for (int64_t c = 0; c < b.cols; c++, q += b.col_stride) dst[c] = *(const word_any *)q;
        }
    }
}

static void store_words(const uint32_t *src, char *p, box b) {
    if (b.row_stride == 4 && b.rows > 3 && b.cols > 3 && b.col_stride != 4) {
        transpose_words(p, b.col_stride, (const char *)src, b.cols * 4, b.cols, b.rows);
        return;
    }
    for (int64_t r = 0; r < b.rows; r++, src += b.cols, p += b.row_stride) {
        if (b.col_stride == 4) {
            copy_words(p, src, b.cols);
        } else {
            char *q = p;
            for (int64_t c = 0; c < b.cols; c++, q += b.col_stride) *(word_any *)q = src[c];
        }
    }
}

/* ---- narrower elements, converted on the way; `walk` goes along the rows when that is the short stride ---- */
#define NARROW_BOX(name, T, size, widen, narrow)                                                                      \
    FGM void load_row_##name(uint32_t *d, int64_t step, const char *p, int64_t stride, int64_t n) {                   \
        if (stride == size && step == 1) {                                                                            \
            const T *s = (const T *)p;                                                                                \
            FG_VECTOR_LOOP                                                                                            \
            for (int64_t i = 0; i < n; i++) {                                                                         \
                T x = s[i];                                                                                           \
                d[i] = widen;                                                                                         \
            }                                                                                                         \
            return;                                                                                                   \
        }                                                                                                             \
        for (int64_t i = 0; i < n; i++, p += stride, d += step) {                                                     \
            T x = *(const T *)p;                                                                                      \
            *d = widen;                                                                                               \
        }                                                                                                             \
    }                                                                                                                 \
    static void load_##name(uint32_t *dst, const char *p, box b) {                                                    \
        if (b.row_stride == size && b.col_stride != size) {                                                           \
            for (int64_t c = 0; c < b.cols; c++) load_row_##name(dst + c, b.cols, p + c * b.col_stride, size, b.rows); \
            return;                                                                                                   \
        }                                                                                                             \
        for (int64_t r = 0; r < b.rows; r++)                                                                          \
            load_row_##name(dst + r * b.cols, 1, p + r * b.row_stride, b.col_stride, b.cols);                         \
    }                                                                                                                 \
    FGM void store_row_##name(const uint32_t *s, int64_t step, char *p, int64_t stride, int64_t n) {                  \
        if (stride == size && step == 1) {                                                                            \
            T *d = (T *)p;                                                                                            \
            FG_VECTOR_LOOP                                                                                            \
            for (int64_t i = 0; i < n; i++) {                                                                         \
                uint32_t x = s[i];                                                                                    \
                d[i] = (T)(narrow);                                                                                   \
            }                                                                                                         \
            return;                                                                                                   \
        }                                                                                                             \
        for (int64_t i = 0; i < n; i++, p += stride, s += step) {                                                     \
            uint32_t x = *s;                                                                                          \
            *(T *)p = (T)(narrow);                                                                                    \
        }                                                                                                             \
    }                                                                                                                 \
    static void store_##name(const uint32_t *src, char *p, box b) {                                                   \
        if (b.row_stride == size && b.col_stride != size) {                                                           \
            for (int64_t c = 0; c < b.cols; c++) store_row_##name(src + c, b.cols, p + c * b.col_stride, size, b.rows); \
            return;                                                                                                   \
        }                                                                                                             \
        for (int64_t r = 0; r < b.rows; r++)                                                                          \
            store_row_##name(src + r * b.cols, 1, p + r * b.row_stride, b.col_stride, b.cols);                        \
    }

NARROW_BOX(f16, u16_any, 2, fg_bits(fg_f16_to_f32(x)), fg_f32_to_f16(fg_float(x)))
NARROW_BOX(bf16, u16_any, 2, fg_bits(fg_bf16_to_f32(x)), fg_f32_to_bf16(fg_float(x)))
NARROW_BOX(bool, uint8_t, 1, x != 0, x != 0)

static void load_box(uint32_t *dst, const char *p, int dtype, box b) {
    if (dtype == FG_BOOL) load_bool(dst, p, b);
    else if (dtype == FG_F16) load_f16(dst, p, b);
    else if (dtype == FG_BF16) load_bf16(dst, p, b);
    else load_words(dst, p, b);
}

static void store_box(const uint32_t *src, char *p, int dtype, box b) {
    if (dtype == FG_BOOL) store_bool(src, p, b);
    else if (dtype == FG_F16) store_f16(src, p, b);
    else if (dtype == FG_BF16) store_bf16(src, p, b);
    else store_words(src, p, b);
}

/* An iota: no memory, the value is start + row * row_stride + col * col_stride. */
static void iota_box(uint32_t *dst, uint32_t start, box b) {
    uint32_t step = (uint32_t)b.col_stride;
    for (int64_t r = 0; r < b.rows; r++, dst += b.cols, start += (uint32_t)b.row_stride) {
        FG_VECTOR_LOOP
        for (int64_t c = 0; c < b.cols; c++) dst[c] = start + step * (uint32_t)c;
    }
}

#endif
