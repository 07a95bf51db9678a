"""Diagonals and traces."""

from __future__ import annotations

import math
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.promotion import axis_index, cast, dense, is_bool, promote_args, result_dtype
from funcgrad.prims import layout

__all__ = ["diag", "diagflat", "diagonal", "trace"]


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    """Return the sum along a diagonal of two axes.

    >>> fnp.trace(fnp.asarray([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    d = diagonal(a, offset, axis1, axis2)
    d = cast(d, result_dtype(dtype, dtypes.int32 if is_bool(d) else d.aval.dtype))
    return layout.reduce_sum(d, (d.aval.ndim - 1,))


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the elements on a diagonal of two axes, along a new last axis.

    >>> fnp.diagonal(fnp.asarray([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    (x,) = [dense(v) for v in promote_args("diagonal", a)]
    ndim = x.aval.ndim
    if ndim < 2:
        raise ShapeError(message("diagonal", "at least two axes are required", str(x.aval)))
    i, j = axis_index("diagonal", axis1, ndim), axis_index("diagonal", axis2, ndim)
    if i == j:
        raise ShapeError(message("diagonal", "the axes must be different", f"{axis1} and {axis2}"))
    rest = [d for d in range(ndim) if d not in (i, j)]
    x = layout.transpose(x, (*rest, i, j))
    *lead, m, n = x.aval.shape
    size = max(0, min(m + min(offset, 0), n - max(offset, 0)))
    if not size:
        return layout.reshape(layout.slice_along(layout.reshape(x, (*lead, m * n)), len(lead), 0, 0), (*lead, 0))
    start = offset if offset >= 0 else -offset * n
    flat = layout.reshape(x, (*lead, m * n))
    low, high = [0] * len(lead) + [start], [*lead, start + (size - 1) * (n + 1) + 1]
    return layout.slice_(flat, low, high, [1] * len(lead) + [n + 1])


def diag(v: Any, k: int = 0) -> Any:
    """Return a matrix with a vector on diagonal k, or that diagonal of a matrix.

    >>> fnp.diag(fnp.asarray([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    (x,) = [dense(w) for w in promote_args("diag", v)]
    if x.aval.ndim == 2:
        return diagonal(x, k)
    if x.aval.ndim != 1:
        raise ShapeError(message("diag", "a vector or a matrix is required", str(x.aval)))
    n = x.aval.size
    if not n:
        side = abs(k)
        return layout.broadcast(cast(dense(promote_args("diag", 0)[0]), x.aval.dtype), (side, side), ())
    # n elements with n gaps between neighbours fill the diagonal of an n by n matrix, row by row.
    square = layout.reshape(layout.pad(x, 0, (0,), (0,), (n,)), (n, n))
    return layout.pad(square, 0, (max(-k, 0), max(k, 0)), (max(k, 0), max(-k, 0)), (0, 0))


def diagflat(v: Any, k: int = 0) -> Any:
    """Return a matrix with the flattened array on diagonal k.

    >>> fnp.diagflat(fnp.asarray([[1, 2]]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    (x,) = [dense(w) for w in promote_args("diagflat", v)]
    return diag(layout.reshape(x, (math.prod(x.aval.shape),)), k)
