"""Linear algebra with the names and defaults of ``jax.scipy.linalg``, on stacks of matrices.

``overwrite_a``, ``overwrite_b`` and ``check_finite`` are accepted for its sake and have no effect.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from funcgrad import lax
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.numpy import linalg as _linalg
from funcgrad.numpy.promotion import floating_arrays

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "circulant",
    "det",
    "eigh",
    "eigh_tridiagonal",
    "expm",
    "hankel",
    "hilbert",
    "inv",
    "polar",
    "qr",
    "solve",
    "solve_triangular",
    "svd",
    "toeplitz",
]


def _square(name: str, a: Any) -> Any:
    (x,) = floating_arrays(name, a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(message(name, "square matrices are required", str(x.shape)))
    return x


def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Any:
    """Return x with A x = b, A the upper (``lower``: the lower) triangle of a; ``trans`` 1, "T" or "C" transposes A.

    ``b`` is one vector per matrix or a matrix of columns.

    >>> from funcgrad.scipy import linalg
    >>> linalg.solve_triangular(fnp.asarray([[2.0, 0.0], [1.0, 1.0]]), fnp.asarray([2.0, 3.0]), lower=True)
    Array([1., 2.], dtype=float32)
    """
    if trans not in (0, "N", 1, "T", 2, "C"):
        raise ValueError(message("solve_triangular", 'trans must be 0, 1, 2, "N", "T" or "C"', repr(trans)))
    x, y = floating_arrays("solve_triangular", a, b)
    x, y, vector = _stacked("solve_triangular", x, y)
    turned = trans not in (0, "N")
    out = lax.linalg.triangular_solve(
        x, y, left_side=True, lower=lower, transpose_a=turned, unit_diagonal=unit_diagonal
    )
    return out[..., 0] if vector else out


def _stacked(name: str, a: Any, b: Any) -> tuple[Any, Any, bool]:
    """A and columns b over the same leading axes, and whether b was a vector."""
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or b.ndim < 1:
        raise ShapeError(
            message(name, "a square matrix and a vector or a matrix are required", f"{a.shape}, {b.shape}")
        )
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    y = b[..., None] if vector else b
    if y.shape[-2] != a.shape[-1]:
        raise ShapeError(message(name, "b must have as many rows as a", f"shapes {a.shape} and {b.shape}"))
    lead = fnp.broadcast_shapes(a.shape[:-2], y.shape[:-2])
    return fnp.broadcast_to(a, (*lead, *a.shape[-2:])), fnp.broadcast_to(y, (*lead, *y.shape[-2:])), vector


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the Cholesky factor of a symmetric positive definite matrix: U with U^T U = a, or L with L L^T = a.

    >>> from funcgrad.scipy import linalg
    >>> linalg.cholesky(fnp.asarray([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 1.],
           [0., 1.]], dtype=float32)
    """
    return _linalg.cholesky(a, upper=not lower)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, bool]:
    """Return the Cholesky factor and ``lower``, for :func:`cho_solve`.

    >>> from funcgrad.scipy import linalg
    >>> factor = linalg.cho_factor(fnp.asarray([[4.0, 2.0], [2.0, 2.0]]))
    >>> linalg.cho_solve(factor, fnp.asarray([2.0, 2.0]))
    Array([0., 1.], dtype=float32)
    """
    return cholesky(a, lower), lower


def cho_solve(c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """Return x with A x = b from the Cholesky factor of A that :func:`cho_factor` gives.

    >>> from funcgrad.scipy import linalg
    >>> linalg.cho_solve((fnp.asarray([[2.0]]), True), fnp.asarray([8.0]))
    Array([2.], dtype=float32)
    """
    c, lower = c_and_lower
    # A jitted function that took the pair as data holds a traced flag, which cannot choose.
    lower = bool(lower)
    first = solve_triangular(c, b, trans=0 if lower else 1, lower=lower)
    return solve_triangular(c, first, trans=1 if lower else 0, lower=lower)


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Any:
    """Return x with a x = b; ``assume_a="pos"`` takes Cholesky's way with the triangle that ``lower`` says.

    ``assume_a`` may also be "gen", "sym" or "her", which are solved as general matrices.

    >>> from funcgrad.scipy import linalg
    >>> linalg.solve(fnp.asarray([[4.0, 2.0], [2.0, 2.0]]), fnp.asarray([2.0, 2.0]), assume_a="pos")
    Array([0., 1.], dtype=float32)
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ValueError(message("solve", 'assume_a must be "gen", "sym", "her" or "pos"', repr(assume_a)))
    if assume_a == "pos":
        x = _square("solve", a)
        half = fnp.tril(x) if lower else fnp.triu(x)
        whole = half + fnp.matrix_transpose(half - half * fnp.eye(x.shape[-1], dtype=x.dtype))
        return cho_solve(cho_factor(whole, lower=True), b)
    x, y = floating_arrays("solve", a, b)
    x, y, vector = _stacked("solve", x, y)
    out = _linalg.solve(x, y)
    return out[..., 0] if vector else out


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the inverse of a square matrix.

    >>> from funcgrad.scipy import linalg
    >>> linalg.inv(fnp.asarray([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    return _linalg.inv(a)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the determinant of a square matrix.

    >>> from funcgrad.scipy import linalg
    >>> linalg.det(fnp.asarray([[2.0, 1.0], [0.0, 4.0]]))
    Array(8., dtype=float32)
    """
    return _linalg.det(a)


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
    """Return (Q, R) with Q R = a; ``mode`` is "full", "economic" or "r" (a tuple of R alone).

    >>> from funcgrad.scipy import linalg
    >>> fnp.abs(linalg.qr(fnp.asarray([[3.0], [4.0]]), mode="economic")[1])
    Array([[5.]], dtype=float32)
    """
    if pivoting:
        raise NotImplementedError(message("qr", "pivoting must be False", "True"))
    if mode not in ("full", "economic", "r"):
        raise ValueError(message("qr", 'mode must be "full", "economic" or "r"', repr(mode)))
    if mode == "r":
        return (_linalg.qr(a, "r"),)
    return tuple(_linalg.qr(a, "complete" if mode == "full" else "reduced"))


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """Return U, the singular values in descending order, and V^T; or the singular values alone.

    >>> from funcgrad.scipy import linalg
    >>> linalg.svd(fnp.diag(fnp.asarray([3.0, 4.0])), compute_uv=False)
    Array([4., 3.], dtype=float32)
    """
    return lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)


def eigh(
    a: Any,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Return eigenvalues in ascending order and eigenvectors (columns) of a symmetric matrix.

    With ``b`` (symmetric positive definite) those of a v = w b v, normalised so that v^T b v = 1.

    >>> from funcgrad.scipy import linalg
    >>> linalg.eigh(fnp.asarray([[2.0, 1.0], [1.0, 2.0]]), eigvals_only=True)
    Array([1., 3.], dtype=float32)
    """
    if type != 1 or eigvals is not None:
        got = f"type={type}, eigvals={eigvals}"
        raise NotImplementedError(message("eigh", "type must be 1 and eigvals None", got, "take a part of the result"))
    if b is None:
        w, v = _linalg.eigh(a, "L" if lower else "U")
        return w if eigvals_only else (w, v)
    c = cholesky(b, lower=True)
    half = solve_triangular(c, _square("eigh", a), lower=True)
    w, v = _linalg.eigh(solve_triangular(c, fnp.matrix_transpose(half), lower=True), "L")
    return w if eigvals_only else (w, solve_triangular(c, v, trans=1, lower=True))


def eigh_tridiagonal(d: Any, e: Any, *, eigvals_only: bool = False) -> Any:
    """Return eigenvalues (and eigenvectors) of the symmetric matrix with diagonal d and off-diagonals e.

    The matrix is made whole: the cost is that of :func:`eigh`.

    >>> from funcgrad.scipy import linalg
    >>> linalg.eigh_tridiagonal(fnp.asarray([2.0, 2.0]), fnp.asarray([1.0]), eigvals_only=True)
    Array([1., 3.], dtype=float32)
    """
    x, y = floating_arrays("eigh_tridiagonal", d, e)
    if x.ndim != 1 or y.shape != (x.size - 1,):
        requirement = "d must be a vector of length n and e one of length n - 1"
        raise ShapeError(message("eigh_tridiagonal", requirement, f"{x.shape} and {y.shape}"))
    return eigh(fnp.diag(x) + fnp.diag(y, 1) + fnp.diag(y, -1), eigvals_only=eigvals_only)


# -- functions of matrices -----------------------------------------------------------------------------------------
# Pade's approximant of exp of degree 7 (Higham 2005, table 2.3), and the norm up to which it is exact in float32, or
# of degree 13 in float64.
_PADE7 = [17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0]
_PADE13 = [
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
]


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:
    """Return the matrix exponential of square matrices, by scaling, Pade's approximant and squaring (Higham 2005).

    NaN where more than ``max_squarings`` squarings would be needed.  ``upper_triangular`` is accepted for JAX's sake.

    >>> from funcgrad.scipy import linalg
    >>> linalg.expm(fnp.asarray([[0.0, 1.0], [0.0, 0.0]]))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    x = _square("expm", A)
    double = x.dtype == fnp.dtype("float64")
    coefficients, bound = (_PADE13, 5.371920351148152) if double else (_PADE7, 3.925724783138660)
    norm = lax.stop_gradient(fnp.abs(x).sum(-2).max(-1) if x.shape[-1] else fnp.zeros(x.shape[:-2], x.dtype))
    count = fnp.maximum(0, fnp.ceil(fnp.log2(fnp.maximum(norm, bound) / bound)))
    scaled = x / fnp.exp2(count)[..., None, None]
    one = fnp.broadcast_to(fnp.eye(x.shape[-1], dtype=x.dtype), x.shape)
    power, even, odd = one, coefficients[0] * one, coefficients[1] * one
    square = scaled @ scaled
    for k in range(2, len(coefficients), 2):
        power = power @ square
        even, odd = even + coefficients[k] * power, odd + coefficients[k + 1] * power
    u = scaled @ odd
    out = _linalg.solve(even - u, even + u)

    def squared(i: Any, r: Any) -> Any:
        return fnp.where((i < count)[..., None, None], r @ r, r)

    out = lax.fori_loop(0, max_squarings, squared, out)
    return fnp.where((count > max_squarings)[..., None, None], fnp.nan, out)


def polar(a: Any, side: str = "right", *, method: str = "svd", eps: Any = None, max_iterations: Any = None) -> Any:
    """Return the polar factors: (U, P) with a = U P, or with ``side="left"`` a = P U.

    They come from the singular value decomposition; ``method``, ``eps`` and ``max_iterations`` are accepted for JAX's
    sake.

    >>> from funcgrad.scipy import linalg
    >>> linalg.polar(fnp.asarray([[0.0, -2.0], [2.0, 0.0]]))[0]
    Array([[ 0., -1.],
           [ 1.,  0.]], dtype=float32)
    """
    if side not in ("right", "left"):
        raise ValueError(message("polar", 'side must be "right" or "left"', repr(side)))
    (x,) = floating_arrays("polar", a)
    u, s, vt = _linalg.svd(x, full_matrices=False)
    v = fnp.matrix_transpose(vt)
    base = v if side == "right" else u
    return u @ vt, (base * s[..., None, :]) @ fnp.matrix_transpose(base)


# -- matrices of a pattern -----------------------------------------------------------------------------------------
def block_diag(*arrs: Any) -> Any:
    """Return the matrix with the given matrices (vectors are rows) along its diagonal.

    >>> from funcgrad.scipy import linalg
    >>> linalg.block_diag(fnp.ones((1, 2)), fnp.asarray([[3.0]]))
    Array([[1., 1., 0.],
           [0., 0., 3.]], dtype=float32)
    """
    blocks = [fnp.atleast_2d(a) for a in arrs] or [fnp.zeros((1, 0))]
    if any(b.ndim != 2 for b in blocks):
        raise ShapeError(message("block_diag", "matrices are required", str([b.shape for b in blocks])))
    dtype, width = fnp.result_type(*blocks), sum(b.shape[1] for b in blocks)
    rows, at = [], 0
    for b in blocks:
        rows.append(fnp.pad(b.astype(dtype), ((0, 0), (at, width - at - b.shape[1]))))
        at += b.shape[1]
    return fnp.concatenate(rows)


def toeplitz(c: Any, r: Any = None) -> Any:
    """Return the matrix with first column c and first row r (c by default), constant along its diagonals.

    >>> from funcgrad.scipy import linalg
    >>> linalg.toeplitz(fnp.asarray([1, 2, 3]), fnp.asarray([1, 4]))
    Array([[1, 4],
           [2, 1],
           [3, 2]], dtype=int32)
    """
    column = fnp.ravel(fnp.asarray(c))
    row = column if r is None else fnp.ravel(fnp.asarray(r))
    n, m = column.size, row.size
    if not n or not m:
        return fnp.zeros((n, m), fnp.result_type(column, row))
    values = fnp.concatenate([fnp.flip(column), row[1:]])
    return values[np.arange(n - 1, -1, -1)[:, None] + np.arange(m)[None, :]]


def circulant(c: Any) -> Any:
    """Return the matrix whose columns are c, rolled by one more each.

    >>> from funcgrad.scipy import linalg
    >>> linalg.circulant(fnp.asarray([1, 2, 3]))
    Array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]], dtype=int32)
    """
    column = fnp.ravel(fnp.asarray(c))
    n = column.size
    return column[(np.arange(n)[:, None] - np.arange(n)[None, :]) % max(n, 1)]


def hankel(c: Any, r: Any = None) -> Any:
    """Return the matrix with first column c and last row r (zeros by default), constant along its antidiagonals.

    >>> from funcgrad.scipy import linalg
    >>> linalg.hankel(fnp.asarray([1, 2, 3]), fnp.asarray([3, 4]))
    Array([[1, 2],
           [2, 3],
           [3, 4]], dtype=int32)
    """
    column = fnp.ravel(fnp.asarray(c))
    row = fnp.zeros_like(column) if r is None else fnp.ravel(fnp.asarray(r))
    values = fnp.concatenate([column, row[1:]])
    return values[np.arange(column.size)[:, None] + np.arange(row.size)[None, :]]


def hilbert(n: int) -> Any:
    """Return the matrix of 1 / (i + j + 1).

    >>> from funcgrad.scipy import linalg
    >>> linalg.hilbert(2)
    Array([[1.       , 0.5      ],
           [0.5      , 0.3333333]], dtype=float32)
    """
    i = np.arange(math.floor(n), dtype=np.float64)
    return fnp.asarray(1 / (i[:, None] + i[None, :] + 1), dtype=fnp.float32)
