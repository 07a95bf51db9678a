/* The CPU kernels of funcgrad: few, general, and free of ggml and of Python.
 *
 * A kernel is made once from a list of 64-bit words (the formats are below) and run many times on a table of base
 * addresses.  Every kernel splits its work by shape alone, never by the number of threads, so that a result does not
 * depend on how many threads ran it.
 *
 * An operand is a strided view: address = base[slot] + offset + sum_d index[d] * stride[d].  Offsets and strides are in
 * bytes; strides may be zero (broadcast) or negative (reversed).  Nothing need be aligned to more than its element.
 */
#ifndef FG_H
#define FG_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FG_MAX_DIMS 16
#define FG_MAP_MAX_OPERANDS 256 /* inputs of a MAP, and outputs */
#define FG_MAP_MAX_VALUES 512 /* registers written, different constants, and inputs of a MAP together */

/* Element types. BOOL is one byte, 0 or 1. F16 and BF16 are storage only: arithmetic is in float32. */
enum fg_dtype { FG_F32 = 0, FG_F16 = 1, FG_BF16 = 2, FG_I32 = 3, FG_U32 = 4, FG_BOOL = 5 };

/* Word formats.  OPERAND(n) stands for: slot, dtype, offset, stride[0..n).   POINTER stands for: slot, offset
 * (contiguous data).
 *
 * MAP     ndim, dim[ndim], n_in, n_out, n_regs, n_instr,
 *         n_in x OPERAND(ndim), n_out x (reg, OPERAND(ndim)), n_instr x (op, dst, a, b, c, d)
 *         A small program over 32-bit registers, run for every index.  Registers 0..n_in-1 hold the inputs (F16 and BF16
 *         widened to float32, BOOL widened to int32 0 or 1); an instruction writes register dst; unused sources are 0.
 *         Slot -1 is no memory but the int32 value  offset + sum_d index[d] * stride[d]  (an iota).
 *         An output may share its memory with an input that has the same strides and the same element size.
 * REDUCE  op, nk, keep[nk], nr, red[nr], in OPERAND(nk + nr), out OPERAND(nk)
 *         Sums accumulate float32 data with an error of a few ulp whatever the length; integers wrap.
 * DOT     dtype, nb, batch[nb], m, n, k, a OPERAND(nb + 2), b OPERAND(nb + 2), c OPERAND(nb + 2)
 *         c[..., m, n] = sum_k a[..., m, k] * b[..., k, n]; any strides (one of the last two equal to the element size
 *         is the fast case).  dtype is that of the arithmetic: F32, I32 or U32.
 * TAKE    elem_size, A, N, B, I, idx_batched, mode, fill_bits, x POINTER, idx POINTER, out POINTER
 *         out[a, i, b] = x[a, idx[i], b], or idx[a, i] when idx_batched.  mode 0 clamps the index, 1 writes fill_bits
 *         (an element's bit pattern) where it is out of range.
 * SCATTER op, dtype, A, N, B, I, idx_batched, out POINTER, idx POINTER, upd POINTER
 *         out[a, idx[i], b] op= upd[a, i, b] in the order of i; out-of-range indices are dropped. out holds the operand.
 * DYNAMIC_SLICE   elem_size, nd, size[nd], xdim[nd], x (slot, offset, stride[nd]), nd x start (slot, offset), out POINTER
 *         start is an int32 in memory, clamped to [0, xdim - size]; slot -1 means the constant `offset`.
 * DYNAMIC_UPDATE  elem_size, nd, size[nd], xdim[nd], out (slot, offset, stride[nd]), nd x start (slot, offset),
 *         upd (slot, offset, stride[nd])
 * CUMULATIVE  op, dtype, A, N, B, reverse, x POINTER, out POINTER
 *         along N; op as in REDUCE (sum, max, min, prod) or LOGSUMEXP
 * SORT    dtype, A, N, B, x POINTER, values POINTER, indices POINTER
 *         along N, ascending, stable, NaN last, -0 equal to 0; an output with slot -1 is not wanted
 * ROWS    ndim, dim[ndim], n_in, n_out, n_regs, n_instr, width[n_regs],
 *         n_in x OPERAND(ndim), n_out x (reg, OPERAND(ndim)), n_instr x (op, dst, a, b, c, d)
 *         Like MAP, over rows of dim[ndim - 1] elements: a register of width 1 holds a value for each element, one of
 *         width 0 a value for each row (its operand's last stride is 0). Besides MAP's instructions, of one width:
 *         -1 spreads a value over its row, -2 sums a row of float32, -3 and -4 take its maximum and minimum (as REDUCE
 *         does). Registers 0..n_in-1 are only read, a constant's only by its `const`, which makes it of width 1.
 *         A register of width 1 may be read for width 0 where it is a constant or the same everywhere.
 * TILES   nt, dim[nt], n_scratch, bytes[n_scratch], n, n x (kind, n_op, n_op x (slot, step[nt]), n_words, words)
 *         Runs n kernels for every index of dim, in any order and at once. A kernel's base address number j is that of
 *         its operand j: base[slot] + sum_d index[d] * step[d], or for slot ~i a piece of scratch of bytes[i], which is
 *         the index's own. Kernels may read what earlier ones wrote for the same index only.
 * MATRIX  op, flags, A, n, m, a POINTER, b POINTER, out POINTER, second POINTER
 *         A float32 matrices a of n x n, in double. op 0 the lower Cholesky factor of the symmetric part; 1 the solution of
 *         a triangular system for b of n x m (flags: 1 lower triangle, 2 transposed, 4 ones on its diagonal); 2 the solution
 *         of a general system; 3 the sign and, in second, the logarithm of the determinant's absolute value; 4 the
 *         determinant. NaN where a is not positive definite (0) or has a pivot 0 (2). Unused operands have slot -1.
 */
enum fg_kind {
    FG_MAP = 0, FG_REDUCE = 1, FG_DOT = 2, FG_TAKE = 3, FG_SCATTER = 4, FG_DYNAMIC_SLICE = 5, FG_DYNAMIC_UPDATE = 6,
    FG_CUMULATIVE = 7, FG_SORT = 8, FG_ROWS = 9, FG_TILES = 10, FG_MATRIX = 11,
    FG_N_KINDS
};

/* NaN wins in MAX and MIN; ARGMAX and ARGMIN give the first of equals, and the first NaN, as a row-major int32 index over
 * the reduced axes.  ANY and ALL read BOOL and write BOOL. */
enum fg_reduce_op {
    FG_SUM = 0, FG_MAX = 1, FG_MIN = 2, FG_PROD = 3, FG_ARGMAX = 4, FG_ARGMIN = 5, FG_ANY = 6, FG_ALL = 7, FG_LOGSUMEXP = 8
};
enum fg_scatter_op { FG_SET = 0, FG_SCATTER_ADD = 1, FG_SCATTER_MUL = 2, FG_SCATTER_MIN = 3, FG_SCATTER_MAX = 4 };

typedef struct fg_kernel fg_kernel;

/* NULL and a message in err when the words are not a legal kernel.  The words are copied. */
fg_kernel *fg_kernel_new(int kind, const int64_t *words, int64_t n_words, char *err, int err_size);
void fg_kernel_free(fg_kernel *k);
void fg_kernel_run(const fg_kernel *k, void *const *base);
/* The most bytes that a run of such a kernel takes from fg_alloc at a time, with the threads there are now; -1 when illegal. */
int64_t fg_kernel_scratch(int kind, const int64_t *words, int64_t n_words);

/* The instruction set of MAP: names for 0 <= op < fg_n_ops(). */
int fg_n_ops(void);
const char *fg_op_name(int op);

/* Threads.  fg_parallel_for calls fn(ctx, task) for every task in [0, n), in any order, on the calling thread and the
 * pool's.  A call from a second thread while the pool is busy runs all its tasks on the calling thread.  Between
 * fg_run_begin and fg_run_end the workers stay awake. */
void fg_set_threads(int n);
int fg_get_threads(void);
void fg_parallel_for(int64_t n, void (*fn)(void *ctx, int64_t task), void *ctx);
void fg_run_begin(void);
void fg_run_end(void);

/* cblas_sgemm of a BLAS with 32-bit integers that runs on the calling thread; NULL (the default) uses a plain kernel. */
typedef void (*fg_sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);
void fg_set_sgemm(fg_sgemm f);

/* Device memory of the CPU: 64-byte aligned, cached by size class, NULL when the system has none. */
void *fg_alloc(int64_t n_bytes);
void fg_free(void *p);
void *fg_reserve(int64_t n_bytes);                             /* counts as in use from fg_commit on: not written before */
void fg_commit(void *p, int64_t n_bytes);
void fg_release(void *p, int64_t offset, int64_t n_bytes);     /* part of a block that is not needed any more */
int64_t fg_alloc_in_use(void);
int64_t fg_alloc_cached(void);
int64_t fg_alloc_peak(void); /* the most in use at a time since the last call of this */
void fg_alloc_trim(void);

#ifdef __cplusplus
}
#endif
#endif
