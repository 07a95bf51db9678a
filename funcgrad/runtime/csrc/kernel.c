/* Making kernels from words: the checked reader, and the dispatch by kind and CPU variant. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#define FG_FLOAT_MODE 0x1f80u /* round to nearest, denormals kept, no traps */
#endif

fg_sgemm fg_blas_sgemm = NULL;

void fg_set_sgemm(fg_sgemm f) { fg_blas_sgemm = f; }

/* ---- the reader ---- */

void *fg_fail(fg_reader *r, const char *format, ...) {
    if (r->failed) return NULL;
    r->failed = 1;
    if (!r->err || r->err_size <= 0) return NULL;
    int n = snprintf(r->err, (size_t)r->err_size, "%s: ", r->kind);
    if (n < 0 || n >= r->err_size) return NULL;
    va_list args;
    va_start(args, format);
    vsnprintf(r->err + n, (size_t)(r->err_size - n), format, args);
    va_end(args);
    return NULL;
}

int64_t fg_read(fg_reader *r, const char *what, int64_t lo, int64_t hi) {
    if (r->failed) return lo;
    if (r->pos >= r->n) {
        fg_fail(r, "%s is missing: the list ends after %" PRId64 " words", what, r->n);
        return lo;
    }
    int64_t v = r->word[r->pos];
    if (v < lo || v > hi) {
        fg_fail(r, "%s must be in [%" PRId64 ", %" PRId64 "], got %" PRId64 " in word %" PRId64, what, lo, hi, v, r->pos);
        return lo;
    }
    r->pos++;
    return v;
}

int64_t fg_read_product(fg_reader *r, const char *what, int64_t a, int64_t b) {
    if (r->failed) return 0;
    if (a < 0 || b < 0 || (b > 0 && a > FG_LIMIT / b)) {
        fg_fail(r, "%s must be at most %" PRId64 ", got %" PRId64 " x %" PRId64, what, FG_LIMIT, a, b);
        return 0;
    }
    return a * b;
}

int64_t fg_read_dims(fg_reader *r, const char *what, int n, int64_t *dim) {
    int64_t total = 1, nonzero = 1;
    for (int i = 0; i < n; i++) {
        dim[i] = fg_read(r, what, 0, FG_LIMIT);
        nonzero = fg_read_product(r, what, nonzero, dim[i] ? dim[i] : 1);
        total *= dim[i] ? 1 : 0;
    }
    return total ? nonzero : 0;
}

/* The bytes that a view spans in either direction must stay far from overflow. */
static void check_span(fg_reader *r, const char *what, int n, const int64_t *dim, const fg_operand *o) {
    int64_t span = 0;
    for (int i = 0; i < n && !r->failed; i++) {
        int64_t stride = o->stride[i] < 0 ? -o->stride[i] : o->stride[i];
        int64_t part = dim[i] > 1 ? fg_read_product(r, what, dim[i] - 1, stride) : 0;
        span += part;
        if (span > FG_LIMIT) fg_fail(r, "%s must span at most %" PRId64 " bytes", what, FG_LIMIT);
    }
}

static void read_strides(fg_reader *r, const char *what, int n, const int64_t *dim, fg_operand *o) {
    o->offset = fg_read(r, what, -FG_LIMIT, FG_LIMIT);
    for (int i = 0; i < n; i++) o->stride[i] = fg_read(r, what, -FG_LIMIT, FG_LIMIT);
    check_span(r, what, n, dim, o);
}

void fg_read_operand(fg_reader *r, const char *what, int min_slot, int n, const int64_t *dim, fg_operand *o) {
    memset(o, 0, sizeof *o);
    o->slot = (int32_t)fg_read(r, what, min_slot, FG_MAX_SLOT);
    o->dtype = (int32_t)fg_read(r, what, FG_F32, FG_BOOL);
    read_strides(r, what, n, dim, o);
}

void fg_read_view(fg_reader *r, const char *what, int min_slot, int n, const int64_t *dim, fg_operand *o) {
    memset(o, 0, sizeof *o);
    o->slot = (int32_t)fg_read(r, what, min_slot, FG_MAX_SLOT);
    o->dtype = -1;
    read_strides(r, what, n, dim, o);
}

void fg_read_pointer(fg_reader *r, const char *what, int min_slot, fg_operand *o) {
    fg_read_view(r, what, min_slot, 0, NULL, o);
}

int fg_read_end(fg_reader *r) {
    if (!r->failed && r->pos != r->n) {
        fg_fail(r, "%" PRId64 " words were expected, got %" PRId64, r->pos, r->n);
    }
    return !r->failed;
}

/* ---- kernels ---- */

static const char *const kind_name[FG_N_KINDS] = {
    "map", "reduce", "dot", "take", "scatter", "dynamic_slice", "dynamic_update", "cumulative", "sort", "rows", "tiles",
    "matrix",
};

fg_kernel *fg_kernel_new(int kind, const int64_t *words, int64_t n_words, char *err, int err_size) {
    int known = kind >= 0 && kind < FG_N_KINDS;
    fg_reader r = {words, words ? n_words : 0, 0, err, err_size, 0, known ? kind_name[kind] : "kernel"};
    if (err && err_size > 0) err[0] = 0;
    if (!known) return fg_fail(&r, "kind must be in [0, %d], got %d", FG_N_KINDS - 1, kind);
    if (n_words < 0) return fg_fail(&r, "the number of words must not be negative, got %" PRId64, n_words);
    fg_kernel *k = kind == FG_TILES ? fg_tiles_new(&r) : fg_pick_variant()->kind[kind](&r);
    if (!k) return fg_fail(&r, "out of memory");
    k->kind = kind;
    return k;
}

int64_t fg_kernel_scratch(int kind, const int64_t *words, int64_t n_words) {
    fg_kernel *k = fg_kernel_new(kind, words, n_words, NULL, 0);
    if (!k) return -1;
    const int64_t threads = fg_get_threads(), bytes = k->once + k->each * (k->tasks < threads ? k->tasks : threads);
    fg_kernel_free(k);
    return bytes;
}

void fg_kernel_free(fg_kernel *k) {
    if (!k) return;
    if (k->destroy) {
        k->destroy(k);
    } else {
        free(k);
    }
}

/* A library that was linked with -ffast-math sets "flush denormals to zero" in the thread that loads it. Results must not
 * depend on that, nor on which thread computes them, so every kernel runs in the default floating-point mode. */
void fg_kernel_run(const fg_kernel *k, void *const *base) {
#if defined(__SSE__)
    unsigned mode = _mm_getcsr(), raised = 0x3fu;
    int plain = (mode & ~raised) == FG_FLOAT_MODE;
    if (!plain) _mm_setcsr(FG_FLOAT_MODE);
    k->run(k, base);
    if (!plain) _mm_setcsr(mode);
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(mode));
    if (mode) __asm__ __volatile__("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    k->run(k, base);
    if (mode) __asm__ __volatile__("msr fpcr, %0" : : "r"(mode) : "memory");
#else
    k->run(k, base);
#endif
}
