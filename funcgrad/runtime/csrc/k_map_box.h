/* Moving boxes of rows x cols elements between strided memory and registers (row-major, packed). */
#ifndef FG_K_MAP_BOX_H
#define FG_K_MAP_BOX_H
#include "k_map_ops.h"
#include "k_transpose.h"

typedef uint16_t u16_any __attribute__((may_alias, aligned(1)));

#define SHORT_ROW 16 /* words at most */

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

/* Memory whose short stride is along the rows of the box. */
static int is_transposed(box b) {
    return b.row_stride == 4 && b.col_stride != 4 && b.col_stride != 0 && b.rows > 3 && b.cols > 3;
}

/* Many short rows: column by column, so that the inner loop is long. */
static int is_narrow(box b) { return b.cols <= 8 && b.rows >= 8; }

/* Rows that are all the same: the first is there, copy what is filled until all is. */
static void repeat_row(uint32_t *dst, box b) {
    int64_t all = b.rows * b.cols;
    for (int64_t n = b.cols; n < all; n *= 2) memcpy(dst + n, dst, (size_t)(n < all - n ? n : all - n) * 4);
}

/* Rows of a few words, their number known to the compiler: each is a move or two. */
FGM void short_rows(uint32_t *dst, const char *p, box b, const int64_t cols) {
    for (int64_t r = 0; r < b.rows; r++) memcpy(dst + r * cols, p + r * b.row_stride, (size_t)cols * 4);
}

FGM void short_splats(uint32_t *dst, const char *p, box b, const int64_t cols) {
    for (int64_t r = 0; r < b.rows; r++) {
        uint32_t v = *(const word_any *)(p + r * b.row_stride), row[SHORT_ROW];
        for (int64_t c = 0; c < cols; c++) row[c] = v;
        memcpy(dst + r * cols, row, (size_t)cols * 4);
    }
}

#define SHORT_CASES(F) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(12) F(16)

/* Many equal rows are left to repeat_row. */
static int is_short(box b) {
    return b.cols <= SHORT_ROW && b.rows > 1 && (b.row_stride != 0 || b.rows * b.cols <= 256);
}

/* Whether a box of short rows is loaded now: not when they have steps of their own, or a width without a case. */
static __attribute__((noinline)) int load_short(uint32_t *dst, const char *p, box b) {
#define ROWS_OF(n) case n: short_rows(dst, p, b, n); return 1;
#define SPLATS_OF(n) case n: short_splats(dst, p, b, n); return 1;
    if (b.col_stride == 4) {
        switch (b.cols) { SHORT_CASES(ROWS_OF) }
    } else if (b.col_stride == 0) {
        switch (b.cols) { SHORT_CASES(SPLATS_OF) }
    }
#undef ROWS_OF
#undef SPLATS_OF
    return 0;
}

static void load_words(uint32_t *dst, const char *p, box b) {
    if (is_short(b) && load_short(dst, p, b)) return;
    if (is_transposed(b)) {
        transpose_words((char *)dst, b.cols * 4, p, b.col_stride, b.rows, b.cols);
        return;
    }
    if (b.row_stride == 0 && b.rows > 1) {
        box first = {1, b.cols, 0, b.col_stride};
        load_words(dst, p, first);
        repeat_row(dst, b);
        return;
    }
    if (is_narrow(b)) {
        for (int64_t c = 0; c < b.cols; c++) {
            const char *q = p + c * b.col_stride;
            for (int64_t r = 0; r < b.rows; r++) dst[r * b.cols + c] = *(const word_any *)(q + r * b.row_stride);
        }
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
    if (is_transposed(b)) {
        transpose_words(p, b.col_stride, (const char *)src, b.cols * 4, b.cols, b.rows);
        return;
    }
    if (is_narrow(b)) {
        for (int64_t c = 0; c < b.cols; c++) {
            char *q = p + c * b.col_stride;
            for (int64_t r = 0; r < b.rows; r++) *(word_any *)(q + r * b.row_stride) = src[r * b.cols + c];
        }
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

/* ---- narrower elements, converted on the way; along the rows when those are contiguous or columns are few ---- */
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
        if ((b.row_stride == size && b.col_stride > size) || is_narrow(b)) {                                                           \
            for (int64_t c = 0; c < b.cols; c++) load_row_##name(dst + c, b.cols, p + c * b.col_stride, b.row_stride, b.rows); \
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
        if ((b.row_stride == size && b.col_stride > size) || is_narrow(b)) {                                                           \
            for (int64_t c = 0; c < b.cols; c++) store_row_##name(src + c, b.cols, p + c * b.col_stride, b.row_stride, b.rows); \
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
