"""Where conditions hold, and arithmetic of indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.array import asarray
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.choices import select_where
from funcgrad.numpy.indexing import checked_index
from funcgrad.numpy.logical import as_bool
from funcgrad.numpy.promotion import (
    array_as,
    array_of,
    as_int,
    broadcast_args,
    filled,
    is_bool,
    operand_as,
    shape_tuple,
)
from funcgrad.numpy.rearrange import known
from funcgrad.primitive import apply
from funcgrad.prims import index, layout, logic, pointwise
from funcgrad.trace import Value

__all__ = [
    "argwhere",
    "diag_indices",
    "diag_indices_from",
    "flatnonzero",
    "ix_",
    "mask_indices",
    "nonzero",
    "ravel_multi_index",
    "tril_indices",
    "tril_indices_from",
    "triu_indices",
    "triu_indices_from",
    "unravel_index",
]


# -- finding -----------------------------------------------------------------------------------------------------
def first_places(mask: Any, size: int) -> Any:
    """The flat places of the first ``size`` True elements of a vector, in order, -1 where there are fewer."""
    n = mask.aval.size
    none = filled((size,), -1, dtypes.int32)
    if not n or not size:
        return none
    rank = pointwise.sub(apply("cumsum", pointwise.convert(mask, dtypes.int32), axis=0, reverse=False), 1)
    return index.scatter("set", none, pointwise.select(mask, rank, -1), layout.iota((n,), 0, dtypes.int32))


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Any, ...]:
    """Return the indices of the elements that are not 0, one array per axis, in row-major order.

    Without ``size`` the values must be known in Python.  With it the result is cut to that length, or filled with
    ``fill_value`` (0, or one per axis), and works under jit.

    >>> fnp.nonzero(fnp.asarray([0, 3, 0, 4]))
    (Array([1, 3], dtype=int32),)
    """
    x = array_of("nonzero", a)
    if not x.aval.ndim:
        raise ShapeError(message("nonzero", "at least one axis is required", str(x.aval), "use atleast_1d"))
    if size is None:
        places = np.nonzero(known("nonzero", x, "the array without size="))
        return tuple([asarray(p.astype(np.int32)) for p in places])
    n = as_int("nonzero", size, "size")
    flat = first_places(layout.reshape(as_bool("nonzero", x), (x.aval.size,)), n)
    found = unravel_index(pointwise.maximum(flat, 0), x.aval.shape) if x.aval.size else (flat,) * x.aval.ndim
    fills = fill_value if isinstance(fill_value, tuple) else (0 if fill_value is None else fill_value,) * x.aval.ndim
    none = logic.compare("lt", flat, 0)
    return tuple(
        [
            select_where("nonzero", none, operand_as("nonzero", f, dtypes.int32), i)
            for f, i in zip(fills, found, strict=True)
        ]
    )


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the indices of the elements of the flattened array that are not 0.

    >>> fnp.flatnonzero(fnp.asarray([[0, 3], [0, 4]]))
    Array([1, 3], dtype=int32)
    """
    x = array_of("flatnonzero", a)
    return nonzero(layout.reshape(x, (x.aval.size,)), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the indices of the elements that are not 0 as rows.

    >>> fnp.argwhere(fnp.asarray([[0, 3], [0, 4]]))
    Array([[0, 1],
           [1, 1]], dtype=int32)
    """
    x = array_of("argwhere", a)
    places = nonzero(x if x.aval.ndim else layout.reshape(x, (1,)), size=size, fill_value=fill_value)
    rows = layout.concatenate([layout.expand(p, 1) for p in places], 1)
    return rows if x.aval.ndim else layout.slice_along(rows, 1, 0, 0)


# -- index arithmetic --------------------------------------------------------------------------------------------
def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Return the index on each axis for places in the flattened array; out of range is clamped.

    >>> fnp.unravel_index(fnp.asarray([1, 5]), (2, 3))
    (Array([0, 1], dtype=int32), Array([1, 2], dtype=int32))
    """
    dims = shape_tuple("unravel_index", shape)
    total = math.prod(dims)
    at = array_as("unravel_index", indices, dtypes.int32)
    at = pointwise.select(logic.compare("lt", at, 0), pointwise.add(at, total), at)
    at = pointwise.maximum(pointwise.minimum(at, max(total - 1, 0)), 0)
    out = []
    for k in range(len(dims)):
        behind = math.prod(dims[k + 1 :])
        part = pointwise.div(at, behind) if behind != 1 else at
        out.append(pointwise.rem(part, dims[k]) if k else part)
    return tuple(out)


def ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Any:
    """Return places in the flattened array for an index on each axis; out of range by ``mode``.

    >>> fnp.ravel_multi_index((fnp.asarray([0, 1]), fnp.asarray([1, 2])), (2, 3))
    Array([1, 5], dtype=int32)
    """
    shape = shape_tuple("ravel_multi_index", dims)
    parts = [array_as("ravel_multi_index", i, dtypes.int32) for i in multi_index]
    if len(parts) != len(shape):
        raise ShapeError(message("ravel_multi_index", f"{len(shape)} index arrays are required", str(len(parts))))
    if order == "F":
        shape, parts = shape[::-1], parts[::-1]
    if mode == "raise":
        for p, n in zip(parts, shape, strict=True):
            host = known("ravel_multi_index", p, 'indices with mode "raise"')
            if ((host < 0) | (host >= n)).any():
                raise ValueError(message("ravel_multi_index", f"indices must be in [0, {n})", str(host)))
    total: Any = None
    for p, n in zip(parts, shape, strict=True):
        at, _ = checked_index("ravel_multi_index", p, n, "wrap" if mode == "wrap" else "clip")
        at = pointwise.maximum(pointwise.minimum(at, n - 1), 0)
        total = (
            at if total is None else pointwise.add(*broadcast_args("ravel_multi_index", pointwise.mul(total, n), at))
        )
    return total


def ix_(*args: Any) -> tuple[Any, ...]:
    """Return vectors as index arrays of an open grid: ``x[ix_(rows, columns)]`` is a block.

    >>> fnp.arange(6).reshape(2, 3)[fnp.ix_([0, 1], [2])]
    Array([[2],
           [5]], dtype=int32)
    """
    out = []
    for k, a in enumerate(args):
        x = array_of("ix_", a) if not isinstance(a, np.ndarray) and not isinstance(a, (list, tuple)) else np.asarray(a)
        if x.ndim != 1:
            raise ShapeError(message("ix_", "vectors are required", str(x.shape)))
        if x.dtype == bool or (isinstance(x, Value) and is_bool(x)):
            x = np.flatnonzero(known("ix_", x, "a mask"))
        x = array_of("ix_", x.astype(np.int32) if isinstance(x, np.ndarray) else x)
        out.append(layout.reshape(x, [x.aval.size if d == k else 1 for d in range(len(args))]))
    return tuple(out)


def _host_indices(places: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([asarray(p.astype(np.int32)) for p in places])


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """Return the indices of the main diagonal of an array with ``ndim`` axes of size n.

    >>> fnp.diag_indices(2)
    (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    return (layout.iota((as_int("diag_indices", n, "n"),), 0, dtypes.int32),) * ndim


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """Return the indices of an array's main diagonal.

    >>> fnp.diag_indices_from(fnp.eye(2))[0]
    Array([0, 1], dtype=int32)
    """
    x = array_of("diag_indices_from", arr)
    if x.aval.ndim < 2 or len(set(x.aval.shape)) != 1:
        raise ShapeError(message("diag_indices_from", "at least two axes of one size are required", str(x.aval)))
    return diag_indices(x.aval.shape[0], x.aval.ndim)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Return the indices of the lower triangle of an n by m matrix.

    >>> fnp.tril_indices(2)
    (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return _host_indices(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Return the indices of the upper triangle of an n by m matrix.

    >>> fnp.triu_indices(2)
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    return _host_indices(np.triu_indices(n, k, m))


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """Return the indices of a matrix's lower triangle.

    >>> fnp.tril_indices_from(fnp.eye(2))[1]
    Array([0, 0, 1], dtype=int32)
    """
    n, m = array_of("tril_indices_from", arr).aval.shape
    return tril_indices(n, k, m)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """Return the indices of a matrix's upper triangle.

    >>> fnp.triu_indices_from(fnp.eye(2))[1]
    Array([0, 1, 1], dtype=int32)
    """
    n, m = array_of("triu_indices_from", arr).aval.shape
    return triu_indices(n, k, m)


def mask_indices(n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None) -> tuple[Any, ...]:
    """Return the indices where a function such as ``triu`` keeps elements of an n by n matrix.

    >>> fnp.mask_indices(2, fnp.triu)[1]
    Array([0, 1, 1], dtype=int32)
    """
    ones = filled((n, n), 1, dtypes.float32)
    return nonzero(mask_func(ones, k), size=size)
