"""Joining arrays, and splitting them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from funcgrad.errors import ShapeError, message
from funcgrad.numpy.manipulation import atleast_1d, atleast_2d, atleast_3d, ravel
from funcgrad.numpy.promotion import array_of, as_int, axis_index, cast, dense, promote_args, result_dtype
from funcgrad.prims import layout
from funcgrad.trace import Value

__all__ = [
    "array_split",
    "block",
    "column_stack",
    "concat",
    "concatenate",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "split",
    "stack",
    "unstack",
    "vsplit",
    "vstack",
]


# -- joining -----------------------------------------------------------------------------------------------------
def _operands(name: str, arrays: Any, dtype: Any = None) -> list[Any]:
    if isinstance(arrays, Value):
        given: list[Any] = unstack(arrays)
    else:
        given = list(arrays)
    if not given:
        raise ValueError(message(name, "at least one array is required", "none"))
    xs = [dense(x) for x in promote_args(name, *given)]
    return xs if dtype is None else [cast(x, result_dtype(dtype, None)) for x in xs]


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
    """Return the arrays one after another along an axis (None: flattened); dtypes are promoted.

    >>> fnp.concatenate([fnp.asarray([1, 2]), fnp.asarray([3])])
    Array([1, 2, 3], dtype=int32)
    """
    xs = _operands("concatenate", arrays, dtype)
    if axis is None:
        return layout.concatenate([ravel(x) for x in xs], 0)
    return layout.concatenate(xs, axis_index("concatenate", axis, xs[0].aval.ndim))


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Return the arrays one after another along an axis.

    >>> fnp.concat([fnp.asarray([1, 2]), fnp.asarray([3])])
    Array([1, 2, 3], dtype=int32)
    """
    return concatenate(arrays, axis)


def stack(arrays: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Return arrays of one shape joined along a new axis.

    >>> fnp.stack([fnp.asarray([1, 2]), fnp.asarray([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    xs = _operands("stack", arrays, dtype)
    shape = xs[0].aval.shape
    if any(x.aval.shape != shape for x in xs):
        got = ", ".join(str(x.aval.shape) for x in xs)
        raise ShapeError(message("stack", "all arrays must have one shape", got, "use concatenate"))
    at = axis_index("stack", axis, len(shape) + 1)
    return layout.concatenate([layout.expand(x, at) for x in xs], at)


def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """Return the arrays along an axis, as a tuple; the opposite of stack.

    >>> fnp.unstack(fnp.asarray([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    a = array_of("unstack", x)
    at = axis_index("unstack", axis, a.aval.ndim)
    shape = a.aval.shape[:at] + a.aval.shape[at + 1 :]
    return tuple([layout.reshape(layout.slice_along(a, at, i, i + 1), shape) for i in range(a.aval.shape[at])])


def vstack(tup: Any, dtype: Any = None) -> Any:
    """Return the arrays one below another; vectors are rows.

    >>> fnp.vstack([fnp.asarray([1, 2]), fnp.asarray([3, 4])]).shape
    (2, 2)
    """
    return layout.concatenate([atleast_2d(x) for x in _operands("vstack", tup, dtype)], 0)


def hstack(tup: Any, dtype: Any = None) -> Any:
    """Return the arrays side by side: along the first axis for vectors, else along the second.

    >>> fnp.hstack([fnp.asarray([1, 2]), fnp.asarray([3])])
    Array([1, 2, 3], dtype=int32)
    """
    xs = [atleast_1d(x) for x in _operands("hstack", tup, dtype)]
    return layout.concatenate(xs, 0 if xs[0].aval.ndim == 1 else 1)


def dstack(tup: Any, dtype: Any = None) -> Any:
    """Return the arrays joined along a third axis.

    >>> fnp.dstack([fnp.asarray([1, 2]), fnp.asarray([3, 4])]).shape
    (1, 2, 2)
    """
    return layout.concatenate([atleast_3d(x) for x in _operands("dstack", tup, dtype)], 2)


def column_stack(tup: Any) -> Any:
    """Return the arrays side by side; vectors are columns.

    >>> fnp.column_stack([fnp.asarray([1, 2]), fnp.asarray([3, 4])])
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    xs = [x if x.aval.ndim > 1 else layout.reshape(x, (x.aval.size, 1)) for x in _operands("column_stack", tup)]
    return layout.concatenate(xs, 1)


def block(arrays: Any) -> Any:
    """Return an array assembled from nested lists of blocks, the innermost lists joined along the last axis.

    >>> fnp.block([[fnp.eye(1), fnp.zeros((1, 1))], [fnp.ones((1, 2))]])
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    depth = _depth(arrays)
    leaves = [dense(x) for x in promote_args("block", *_leaves(arrays))]
    rank = max([depth, *[x.aval.ndim for x in leaves]])
    return _join(arrays, iter(leaves), depth, rank)


def _depth(x: Any) -> int:
    if not isinstance(x, list):
        return 0
    depths = {_depth(v) for v in x}
    if len(depths) != 1:
        raise ValueError(
            message("block", "lists must not be empty and must have one depth", f"depths {sorted(depths)}")
        )
    return depths.pop() + 1


def _leaves(x: Any) -> list[Any]:
    return [leaf for v in x for leaf in _leaves(v)] if isinstance(x, list) else [x]


def _join(x: Any, leaves: Any, depth: int, rank: int) -> Any:
    if not isinstance(x, list):
        leaf = next(leaves)
        return layout.reshape(leaf, (*(1,) * (rank - leaf.aval.ndim), *leaf.aval.shape))
    return layout.concatenate([_join(v, leaves, depth - 1, rank) for v in x], rank - depth)


# -- splitting ---------------------------------------------------------------------------------------------------
def _split(name: str, ary: Any, at: Any, axis: int, even: bool) -> list[Any]:
    x = array_of(name, ary)
    d = axis_index(name, axis, x.aval.ndim)
    n = x.aval.shape[d]
    if np.ndim(at) if not isinstance(at, Value) else at.ndim:
        cuts = [slice(None, as_int(name, i, "each index")).indices(n)[1] for i in at]
    else:
        parts = as_int(name, at, "the number of parts")
        if parts < 1 or (even and n % parts):
            way_out = "use array_split for unequal parts"
            raise ShapeError(message(name, f"the number of parts must divide {n}", str(parts), way_out))
        small, larger = divmod(n, parts)
        cuts = [small * i + min(i, larger) for i in range(1, parts)]
    edges = [0, *cuts, n]
    return [layout.slice_along(x, d, a, max(a, b)) for a, b in itertools.pairwise(edges)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Return equal parts along an axis, or the parts between indices.

    >>> fnp.split(fnp.arange(4), 2)
    [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32)]
    """
    return _split("split", ary, indices_or_sections, axis, True)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Return parts along an axis whose sizes differ by at most one, or the parts between indices.

    >>> [p.size for p in fnp.array_split(fnp.arange(5), 2)]
    [3, 2]
    """
    return _split("array_split", ary, indices_or_sections, axis, False)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Return parts along the second axis (the first of a vector).

    >>> [p.shape for p in fnp.hsplit(fnp.zeros((2, 4)), 2)]
    [(2, 2), (2, 2)]
    """
    return _split("hsplit", ary, indices_or_sections, 1 if array_of("hsplit", ary).aval.ndim > 1 else 0, True)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Return parts along the first axis.

    >>> [p.shape for p in fnp.vsplit(fnp.zeros((2, 4)), 2)]
    [(1, 4), (1, 4)]
    """
    return _split("vsplit", ary, indices_or_sections, 0, True)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Return parts along the third axis.

    >>> [p.shape for p in fnp.dsplit(fnp.zeros((1, 2, 4)), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return _split("dsplit", ary, indices_or_sections, 2, True)
