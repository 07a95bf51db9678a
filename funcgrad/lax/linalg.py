"""lax's linear algebra: decompositions of stacks of matrices."""

from __future__ import annotations

from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.numpy import linalg as _linalg
from funcgrad.numpy.promotion import array_of, cast
from funcgrad.prims import layout, linalg

__all__ = ["cholesky", "eigh", "qr", "svd", "triangular_solve"]


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """Return L with L L^T = x for symmetric positive definite matrices.

    >>> lax.linalg.cholesky(fnp.asarray([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 0.],
           [1., 1.]], dtype=float32)
    """
    return _linalg.cholesky(x)


def eigh(
    x: Any, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True
) -> tuple[Any, Any]:
    """Return eigenvectors (columns) and eigenvalues in ascending order of symmetric matrices, in this order.

    >>> lax.linalg.eigh(fnp.asarray([[2.0, 1.0], [1.0, 2.0]]))[1]
    Array([1., 3.], dtype=float32)
    """
    w, v = _linalg.eigh(x, "L" if lower else "U", symmetrize_input)
    return v, w


def qr(x: Any, *, full_matrices: bool = True) -> tuple[Any, Any]:
    """Return Q with orthonormal columns and an upper triangle R with Q R = x.

    >>> fnp.abs(lax.linalg.qr(fnp.asarray([[3.0], [4.0]]), full_matrices=False)[1])
    Array([[5.]], dtype=float32)
    """
    q, r = _linalg.qr(x, "complete" if full_matrices else "reduced")
    return q, r


def svd(x: Any, *, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Return U, the singular values in descending order, and V^T.

    >>> lax.linalg.svd(fnp.diag(fnp.asarray([3.0, 4.0])), compute_uv=False)
    Array([4., 3.], dtype=float32)
    """
    out = _linalg.svd(x, full_matrices, compute_uv)
    return tuple(out) if compute_uv else out


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """Return x with A x = b (``left_side``) or x A = b, A the lower or upper triangle of a, transposed if asked.

    >>> a, b = fnp.asarray([[2.0, 0.0], [1.0, 1.0]]), fnp.asarray([[2.0], [2.0]])
    >>> lax.linalg.triangular_solve(a, b, left_side=True, lower=True)
    Array([[1.],
           [1.]], dtype=float32)
    """
    x, y = array_of("triangular_solve", a), array_of("triangular_solve", b)
    dtype = x.aval.dtype
    if dtype in dtypes.HALVES:
        x, y = [cast(v, dtypes.float32) for v in (x, y)]
    vector = y.aval.ndim == x.aval.ndim - 1 and y.aval.ndim >= 1
    if vector:
        y = linalg.column(y) if left_side else layout.expand(y, y.aval.ndim - 1)
    if x.aval.ndim < 2 or y.aval.ndim != x.aval.ndim:
        raise ShapeError(
            message("triangular_solve", "matrices over the same leading axes are required", f"{x.aval} and {y.aval}")
        )
    if left_side:
        out = linalg.triangular_solve(x, y, lower, transpose_a, unit_diagonal)
    else:  # x A = b is A^T x^T = b^T
        out = linalg.turned(linalg.triangular_solve(x, linalg.turned(y), lower, not transpose_a, unit_diagonal))
    out = layout.reshape(out, array_of("triangular_solve", b).aval.shape) if vector else out
    return cast(out, dtype)
