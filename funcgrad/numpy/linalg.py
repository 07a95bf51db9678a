"""numpy's linear algebra on stacks of matrices on the last two axes; what no kernel computes runs on the host (LAPACK).

Half-precision operands are computed in float32.  A matrix that an operation cannot take (singular, not positive
definite) gives NaN instead of an error, because values are not known when tracing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.contraction import Term, contract_terms
from funcgrad.numpy.diagonals import diagonal as _diagonal
from funcgrad.numpy.diagonals import trace as _trace
from funcgrad.numpy.manipulation import broadcast_to, matrix_transpose, moveaxis
from funcgrad.numpy.norms import cond, matrix_norm, norm, safe_norm, vector_norm
from funcgrad.numpy.precision import resolve_precision
from funcgrad.numpy.products import cross as _cross
from funcgrad.numpy.products import matmul, outer, tensordot, vecdot
from funcgrad.numpy.promotion import array_of, as_int, broadcast_shapes, cast, floating_arrays, numbers
from funcgrad.prims import determinants, layout, linalg, logic, pointwise, spectral
from funcgrad.trace import bind, bind_all

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "safe_norm",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]


class EighResult(NamedTuple):
    """Eigenvalues in ascending order and eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """The factors of a QR decomposition."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """The factors of a singular value decomposition."""

    U: Any
    S: Any
    Vh: Any


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its absolute value."""

    sign: Any
    logabsdet: Any


def matrices(name: str, a: Any, square: bool = False) -> tuple[Any, Any]:
    """A stack of float32 or float64 matrices, and the dtype that results shall have."""
    (x,) = floating_arrays(name, a)
    if x.aval.ndim < 2:
        raise ShapeError(message(name, "at least two axes are required", str(x.aval)))
    if square and x.aval.shape[-1] != x.aval.shape[-2]:
        raise ShapeError(message(name, "square matrices are required", str(x.aval)))
    dtype = x.aval.dtype
    return (cast(x, dtypes.float32) if dtype in dtypes.HALVES else x), dtype


# -- products ----------------------------------------------------------------------------------------------------
def matrix_power(a: Any, n: int) -> Any:
    """Return the n-th power of square matrices by repeated squaring; of the inverse for negative n.

    >>> fnp.linalg.matrix_power(fnp.asarray([[1.0, 1.0], [0.0, 1.0]]), 3)
    Array([[1., 3.],
           [0., 1.]], dtype=float32)
    """
    (x,) = [array_of("matrix_power", v) for v in numbers("matrix_power", a)]
    if x.aval.ndim < 2 or x.aval.shape[-1] != x.aval.shape[-2]:
        raise ShapeError(message("matrix_power", "square matrices are required", str(x.aval)))
    k = as_int("matrix_power", n, "the power")
    if k < 0:
        x, k = inv(x), -k
    out: Any = None
    while k:
        if k & 1:
            out = x if out is None else matmul(out, x)
        k >>= 1
        x = matmul(x, x) if k else x
    return linalg.identity_like(x) if out is None else out


def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Any:
    """Return the product of several matrices, multiplied in the cheapest order; the first and last may be vectors.

    >>> fnp.linalg.multi_dot([fnp.ones((2, 3)), fnp.ones((3, 4)), fnp.ones(4)])
    Array([12., 12.], dtype=float32)
    """
    xs = [array_of("multi_dot", x) for x in numbers("multi_dot", *arrays)]
    ranks = [x.aval.ndim for x in xs]
    if len(xs) < 2 or any(r != 2 for r in ranks[1:-1]) or any(r not in (1, 2) for r in (ranks[0], ranks[-1])):
        got = ", ".join(str(x.aval) for x in xs)
        raise ShapeError(message("multi_dot", "matrices are required, at the ends also vectors, two or more", got))
    names = [[k, k + 1] for k in range(len(xs))]
    names[0] = names[0][-ranks[0] :]
    names[-1] = names[-1][: ranks[-1]]
    for x, y, k in zip(xs[:-1], xs[1:], range(len(xs)), strict=False):
        if x.aval.shape[-1] != y.aval.shape[0]:
            raise ShapeError(message("multi_dot", "neighbouring sizes must be equal", f"{x.aval} and {y.aval} at {k}"))
    out = [k for k in (0, len(xs)) if any(k in n for n in names)]
    terms = [Term(x, tuple(n)) for x, n in zip(xs, names, strict=True)]
    return contract_terms(terms, tuple(out), resolve_precision("multi_dot", precision))


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sums of the diagonals of matrices on the last two axes.

    >>> fnp.linalg.trace(fnp.eye(3))
    Array(3., dtype=float32)
    """
    return _trace(x, offset, -2, -1, dtype)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return the diagonals of matrices on the last two axes.

    >>> fnp.linalg.diagonal(fnp.eye(2))
    Array([1., 1.], dtype=float32)
    """
    return _diagonal(x, offset, -2, -1)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the cross product of vectors of 3 components.

    >>> fnp.linalg.cross(fnp.asarray([1, 0, 0]), fnp.asarray([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    if any(array_of("cross", x).aval.shape[axis] != 3 for x in (x1, x2)):
        raise ShapeError(message("cross", "vectors of 3 components are required", way_out="use fnp.cross for 2"))
    return _cross(x1, x2, axis=axis)


# -- solutions ---------------------------------------------------------------------------------------------------
def _stacks(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Matrices and right-hand sides over the same leading axes."""
    lead = broadcast_shapes(a.aval.shape[:-2], b.aval.shape[:-2], name=name)
    return tuple([broadcast_to(v, (*lead, *v.aval.shape[-2:])) for v in (a, b)])


def solve(a: Any, b: Any) -> Any:
    """Return x with a x = b, for square matrices a and right-hand sides b (a vector, or matrices of columns).

    >>> fnp.linalg.solve(fnp.asarray([[2.0, 0.0], [0.0, 4.0]]), fnp.asarray([2.0, 2.0]))
    Array([1. , 0.5], dtype=float32)
    """
    x, y = floating_arrays("solve", a, b)
    x, dtype = matrices("solve", x, square=True)
    y = cast(y, x.aval.dtype)
    vector = y.aval.ndim == 1
    y = linalg.column(y) if vector else y
    if x.aval.shape[-1] != y.aval.shape[-2]:
        raise ShapeError(message("solve", "b must have as many rows as a", f"{x.aval} and {y.aval}"))
    out = cast(bind(linalg.Solve(), *_stacks("solve", x, y)), dtype)
    return layout.reshape(out, out.aval.shape[:-1]) if vector else out


def inv(a: Any) -> Any:
    """Return the inverses of square matrices; not finite for singular ones.

    >>> fnp.linalg.inv(fnp.asarray([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    x, dtype = matrices("inv", a, square=True)
    return cast(linalg.inverse(x), dtype)


def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """Return the Moore-Penrose inverses; singular values up to rtol times the largest count as 0 (10 max(m, n) eps).

    >>> fnp.linalg.pinv(fnp.asarray([[2.0], [0.0]]))
    Array([[0.5, 0. ]], dtype=float32)
    """
    x, dtype = matrices("pinv", a)
    given = rtol if rtol is not None else rcond
    limit = 10.0 * max(x.aval.shape[-2:]) * float(np.finfo(x.aval.dtype).eps) if given is None else float(given)
    return cast(bind(determinants.Pinv(limit), x), dtype)


def lstsq(a: Any, b: Any, rcond: float | None = None, *, numpy_resid: bool = False) -> tuple[Any, Any, Any, Any]:
    """Return the least-squares solution of a x = b, the sums of squared residuals, the rank and the singular values.

    >>> x, *_ = fnp.linalg.lstsq(fnp.asarray([[1.0], [1.0]]), fnp.asarray([1.0, 3.0]))
    >>> x
    Array([2.], dtype=float32)
    """
    x, y = floating_arrays("lstsq", a, b)
    x, dtype = matrices("lstsq", x)
    y = cast(y, x.aval.dtype)
    if x.aval.ndim != 2 or y.aval.ndim not in (1, 2) or x.aval.shape[0] != y.aval.shape[0]:
        raise ShapeError(message("lstsq", "a matrix and as many rows in b are required", f"{x.aval} and {y.aval}"))
    vector = y.aval.ndim == 1
    columns = linalg.column(y) if vector else y
    eps = float(np.finfo(x.aval.dtype).eps)
    limit = eps * max(x.aval.shape) if rcond is None or rcond < 0 else float(rcond)
    solution = matmul(bind(determinants.Pinv(limit), x), columns)
    s = svdvals(x)
    top = pointwise.mul(layout.slice_along(s, 0, 0, 1), limit) if s.aval.size else s
    rank = layout.reduce_sum(
        pointwise.convert(logic.compare("gt", s, layout.broadcast(top, s.aval.shape, (0,))), dtypes.int32), (0,)
    )
    error = pointwise.sub(columns, matmul(x, solution))
    residuals = layout.reduce_sum(pointwise.square(error), (0,))
    solution = layout.reshape(solution, solution.aval.shape[:1]) if vector else solution
    return cast(solution, dtype), cast(residuals, dtype), rank, cast(s, dtype)


def tensorinv(a: Any, ind: int = 2) -> Any:
    """Return the inverse of a as a map from the last axes to the first ``ind`` axes.

    >>> fnp.linalg.tensorinv(fnp.eye(4).reshape(4, 2, 2), 1).shape
    (2, 2, 4)
    """
    x = array_of("tensorinv", a)
    first, last = x.aval.shape[:ind], x.aval.shape[ind:]
    n, m = int(np.prod(first)), int(np.prod(last))
    if ind <= 0 or n != m:
        raise ShapeError(
            message("tensorinv", "the first axes must have as many elements as the others", f"{x.aval}, {ind}")
        )
    return layout.reshape(inv(layout.reshape(x, (n, m))), (*last, *first))


def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Any:
    """Return x with tensordot(a, x, x.ndim) = b.

    >>> fnp.linalg.tensorsolve(fnp.eye(4).reshape(2, 2, 4), fnp.ones((2, 2))).shape
    (4,)
    """
    x, y = floating_arrays("tensorsolve", a, b)
    if axes is not None:
        x = moveaxis(x, tuple(axes), tuple(range(-len(axes), 0)))
    shape = x.aval.shape[y.aval.ndim :]
    n = int(np.prod(shape))
    if n != y.aval.size or x.aval.size != n * n:
        raise ShapeError(message("tensorsolve", "a must be square as a map", f"{x.aval} and {y.aval}"))
    return layout.reshape(solve(layout.reshape(x, (n, n)), layout.reshape(y, (n,))), shape)


# -- determinants ------------------------------------------------------------------------------------------------
def det(a: Any) -> Any:
    """Return the determinants of square matrices; the gradient is exact for singular ones too.

    >>> fnp.linalg.det(fnp.asarray([[2.0, 1.0], [1.0, 2.0]]))
    Array(3., dtype=float32)
    """
    x, dtype = matrices("det", a, square=True)
    return cast(bind(determinants.Det(), x), dtype)


def slogdet(a: Any) -> SlogdetResult:
    """Return the sign and the logarithm of the absolute value of determinants.

    >>> fnp.linalg.slogdet(fnp.eye(2) * 2.0).logabsdet
    Array(1.386, dtype=float32)
    """
    x, dtype = matrices("slogdet", a, square=True)
    return SlogdetResult(*[cast(v, dtype) for v in bind_all(determinants.SlogDet(), x)])


def matrix_rank(M: Any, rtol: Any = None, *, tol: Any = None) -> Any:
    """Return the number of singular values above rtol times the largest (by default max(m, n) eps).

    >>> fnp.linalg.matrix_rank(fnp.ones((2, 2)))
    Array(1, dtype=int32)
    """
    x, _ = matrices("matrix_rank", M)
    s = svdvals(x)
    given = rtol if rtol is not None else tol
    limit = max(x.aval.shape[-2:]) * float(np.finfo(x.aval.dtype).eps) if given is None else given
    top = layout.slice_along(s, s.aval.ndim - 1, 0, 1)
    edge = layout.broadcast(pointwise.mul(top, limit), s.aval.shape, range(s.aval.ndim))
    return layout.reduce_sum(pointwise.convert(logic.compare("gt", s, edge), dtypes.int32), (s.aval.ndim - 1,))


# -- decompositions ----------------------------------------------------------------------------------------------
def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """Return L with L L^T = a for symmetric positive definite matrices (or its transpose when ``upper``).

    Only the symmetric part of a counts.

    >>> fnp.linalg.cholesky(fnp.asarray([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 0.],
           [1., 1.]], dtype=float32)
    """
    x, dtype = matrices("cholesky", a, square=True)
    out = cast(bind(linalg.Cholesky(), x), dtype)
    return linalg.turned(out) if upper else out


def qr(a: Any, mode: str = "reduced") -> Any:
    """Return Q with orthonormal columns and an upper triangle R with Q R = a; only R for ``mode="r"``.

    >>> q, r = fnp.linalg.qr(fnp.asarray([[3.0, 1.0], [4.0, 2.0]]))
    >>> fnp.abs(r[0, 0])
    Array(5., dtype=float32)
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(message("qr", 'mode must be "reduced", "complete" or "r"', repr(mode)))
    x, dtype = matrices("qr", a)
    m, n = x.aval.shape[-2:]
    axis = x.aval.ndim - 1
    if m < n:  # R's other columns are Q^T times those of a, so that all derivatives exist
        q, left = bind_all(spectral.QR(False), layout.slice_along(x, axis, 0, m))
        r = layout.concatenate([left, matmul(linalg.turned(q), layout.slice_along(x, axis, m, n))], axis)
    else:
        q, r = bind_all(spectral.QR(mode == "complete" and m != n), x)
    return cast(r, dtype) if mode == "r" else QRResult(cast(q, dtype), cast(r, dtype))


def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Return the eigenvalues in ascending order and the eigenvectors (columns) of symmetric matrices.

    The symmetric part of a counts, or with ``symmetrize_input=False`` its lower ("L") or upper ("U") triangle.

    >>> fnp.linalg.eigh(fnp.asarray([[2.0, 1.0], [1.0, 2.0]])).eigenvalues
    Array([1., 3.], dtype=float32)
    """
    if UPLO not in (None, "L", "U"):
        raise ValueError(message("eigh", 'UPLO must be "L" or "U"', repr(UPLO)))
    x, dtype = matrices("eigh", a, square=True)
    if not symmetrize_input:
        half = linalg.keep(x, "lt" if UPLO == "U" else "gt")
        x = pointwise.add(pointwise.add(half, linalg.turned(half)), linalg.keep(x, "eq"))
    return EighResult(*[cast(v, dtype) for v in bind_all(spectral.Eigh(), x)])


def eigvalsh(a: Any, UPLO: str | None = None, *, symmetrize_input: bool = True) -> Any:
    """Return the eigenvalues of symmetric matrices in ascending order.

    >>> fnp.linalg.eigvalsh(fnp.asarray([[2.0, 1.0], [1.0, 2.0]]))
    Array([1., 3.], dtype=float32)
    """
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False, *, subset_by_index: Any = None
) -> Any:
    """Return U, the singular values in descending order, and V^T; only the values when not ``compute_uv``.

    >>> fnp.linalg.svd(fnp.diag(fnp.asarray([3.0, 4.0])), compute_uv=False)
    Array([4., 3.], dtype=float32)
    """
    x, dtype = matrices("svd", a)
    m, n = x.aval.shape[-2:]
    full = bool(full_matrices and compute_uv and m != n)
    u, s, vt = [cast(v, dtype) for v in bind_all(spectral.SVD(full), x)]
    if subset_by_index is not None:
        low, high = subset_by_index
        s = layout.slice_along(s, s.aval.ndim - 1, low, high)
        u = layout.slice_along(u, u.aval.ndim - 1, low, high)
        vt = layout.slice_along(vt, vt.aval.ndim - 2, low, high)
    return SVDResult(u, s, vt) if compute_uv else s


def svdvals(x: Any, /) -> Any:
    """Return the singular values of matrices in descending order.

    >>> fnp.linalg.svdvals(fnp.diag(fnp.asarray([3.0, 4.0])))
    Array([4., 3.], dtype=float32)
    """
    return svd(x, full_matrices=False, compute_uv=False)
