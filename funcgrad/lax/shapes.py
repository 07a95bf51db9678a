"""lax's operations on shapes: broadcasting, reshaping, slicing, padding, and reading or writing slices at values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.creation import full_like as _full_like
from funcgrad.numpy.joining import unstack
from funcgrad.numpy.promotion import array_of, as_int, axis_index, axis_tuple, cast, operand, result_dtype, shape_tuple
from funcgrad.prims import dynamic, layout, logic, pointwise
from funcgrad.trace import Value

__all__ = [
    "broadcast",
    "broadcast_in_dim",
    "broadcast_to_rank",
    "broadcasted_iota",
    "collapse",
    "concatenate",
    "dynamic_index_in_dim",
    "dynamic_slice",
    "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim",
    "dynamic_update_slice",
    "dynamic_update_slice_in_dim",
    "expand_dims",
    "full",
    "full_like",
    "index_in_dim",
    "iota",
    "pad",
    "reshape",
    "rev",
    "slice",
    "slice_in_dim",
    "split",
    "squeeze",
    "transpose",
]


# -- shapes ------------------------------------------------------------------------------------------------------
def broadcast(operand: Any, sizes: Sequence[int]) -> Any:
    """Return the array repeated along new leading axes.

    >>> lax.broadcast(fnp.asarray([1, 2]), (2,)).shape
    (2, 2)
    """
    x = array_of("broadcast", operand)
    lead = shape_tuple("broadcast", sizes)
    return layout.broadcast(x, (*lead, *x.aval.shape), range(len(lead), len(lead) + x.aval.ndim))


def broadcast_in_dim(operand: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Any:
    """Return the array repeated to ``shape``, its axis i becoming axis ``broadcast_dimensions[i]``.

    >>> lax.broadcast_in_dim(fnp.asarray([1, 2]), (2, 3), (0,))[1]
    Array([2, 2, 2], dtype=int32)
    """
    x = array_of("broadcast_in_dim", operand)
    dims = tuple([as_int("broadcast_in_dim", d, "each dimension") for d in broadcast_dimensions])
    return layout.broadcast(x, shape_tuple("broadcast_in_dim", shape), dims)


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """Return the array with leading axes of size 1 up to ``rank`` axes.

    >>> lax.broadcast_to_rank(fnp.asarray([1, 2]), 3).shape
    (1, 1, 2)
    """
    a = array_of("broadcast_to_rank", x)
    return layout.reshape(a, (*(1,) * (rank - a.aval.ndim), *a.aval.shape))


def reshape(operand: Any, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> Any:
    """Return the elements under another shape, after a permutation of the axes if given.

    >>> lax.reshape(fnp.arange(4), (2, 2)).shape
    (2, 2)
    """
    x = array_of("reshape", operand)
    x = x if dimensions is None else transpose(x, dimensions)
    return layout.reshape(x, shape_tuple("reshape", new_sizes))


def transpose(operand: Any, permutation: Sequence[int]) -> Any:
    """Return the array with its axes permuted.

    >>> lax.transpose(fnp.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    x = array_of("transpose", operand)
    return layout.transpose(x, [axis_index("transpose", d, x.aval.ndim) for d in permutation])


def expand_dims(array: Any, dimensions: Sequence[int]) -> Any:
    """Return the array with axes of size 1 at the given places of the result.

    >>> lax.expand_dims(fnp.zeros(3), (0,)).shape
    (1, 3)
    """
    x = array_of("expand_dims", array)
    axes = axis_tuple("expand_dims", tuple(dimensions), x.aval.ndim + len(tuple(dimensions)))
    rest = iter(x.aval.shape)
    return layout.reshape(x, [1 if d in axes else next(rest) for d in range(x.aval.ndim + len(axes))])


def squeeze(array: Any, dimensions: Sequence[int]) -> Any:
    """Return the array without axes of size 1.

    >>> lax.squeeze(fnp.zeros((1, 3)), (0,)).shape
    (3,)
    """
    x = array_of("squeeze", array)
    axes = axis_tuple("squeeze", tuple(dimensions), x.aval.ndim)
    if any(x.aval.shape[d] != 1 for d in axes):
        raise ShapeError(message("squeeze", "the axes must have size 1", f"axes {axes} of {x.aval.shape}"))
    return layout.reshape(x, [n for d, n in enumerate(x.aval.shape) if d not in axes])


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """Return the array with neighbouring axes merged into one.

    >>> lax.collapse(fnp.zeros((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    x = array_of("collapse", operand)
    low, high, _ = slice_bounds(start_dimension, stop_dimension, x.aval.ndim)
    shape = x.aval.shape
    return layout.reshape(x, (*shape[:low], math.prod(shape[low:high]), *shape[high:]))


def slice_bounds(start: int | None, stop: int | None, n: int) -> tuple[int, int, int]:
    """Bounds counted from 0, as Python's slices count them."""
    return _Slice(start, stop).indices(n)


_Slice = slice  # the builtin: ``slice`` is lax's function below


def rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """Return the array backwards along axes.

    >>> lax.rev(fnp.arange(3), (0,))
    Array([2, 1, 0], dtype=int32)
    """
    x = array_of("rev", operand)
    return layout.reverse(x, axis_tuple("rev", tuple(dimensions), x.aval.ndim))


def concatenate(operands: Sequence[Any], dimension: int) -> Any:
    """Return the arrays one after another along an axis.

    >>> lax.concatenate([fnp.asarray([1]), fnp.asarray([2, 3])], 0)
    Array([1, 2, 3], dtype=int32)
    """
    xs = [array_of("concatenate", x) for x in operands]
    if not xs:
        raise ValueError(message("concatenate", "at least one array is required"))
    return layout.concatenate(xs, axis_index("concatenate", dimension, xs[0].aval.ndim))


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    """Return the array with a value around and between its elements: (low, high, interior) per axis; negative cuts.

    >>> lax.pad(fnp.asarray([1, 2]), 0, [(1, 0, 1)])
    Array([0, 1, 0, 2], dtype=int32)
    """
    x = array_of("pad", operand)
    config = [tuple(c) for c in padding_config]
    if len(config) != x.aval.ndim:
        raise ShapeError(message("pad", f"{x.aval.ndim} triples (low, high, interior) are required", str(config)))
    value = padding_value if isinstance(padding_value, (Value, Literal)) else Literal(padding_value, x.aval.dtype)
    low, high, interior = [[c[i] for c in config] for i in range(3)]
    return layout.pad(x, value, low, high, interior)


def iota(dtype: Any, size: int) -> Any:
    """Return 0, 1, ..., size - 1.

    >>> lax.iota(fnp.int32, 3)
    Array([0, 1, 2], dtype=int32)
    """
    return layout.iota((as_int("iota", size, "the size"),), 0, result_dtype(dtype, None))


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int) -> Any:
    """Return the index along one axis at every place of a shape.

    >>> lax.broadcasted_iota(fnp.int32, (2, 2), 0)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    return layout.iota(shape_tuple("broadcasted_iota", shape), dimension, result_dtype(dtype, None))


def full(shape: Sequence[int], fill_value: Any, dtype: Any = None) -> Any:
    """Return an array filled with a scalar.

    >>> lax.full((2,), 1.5)
    Array([1.5, 1.5], dtype=float32)
    """
    value = operand("full", fill_value)
    value = value if dtype is None else cast(value, result_dtype(dtype, None))
    if value.aval.shape:
        raise ShapeError(message("full", "the value must be a scalar", str(value.aval)))
    dims = shape_tuple("full", shape)
    return layout.broadcast(value, dims, ()) if dims else array_of("full", value)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Return an array with the shape and dtype of another, filled with a scalar.

    >>> lax.full_like(fnp.asarray([1, 2]), 7)
    Array([7, 7], dtype=int32)
    """
    return _full_like(x, fill_value, dtype, shape)


# -- static slices -----------------------------------------------------------------------------------------------
def slice(
    operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Any:
    """Return a box of the array: from start to limit (excluded) in steps of strides, on every axis.

    >>> lax.slice(fnp.arange(6), (1,), (6,), (2,))
    Array([1, 3, 5], dtype=int32)
    """
    return layout.slice_(array_of("slice", operand), start_indices, limit_indices, strides)


def slice_in_dim(operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0) -> Any:
    """Return a slice along one axis; negative bounds count from the end.

    >>> lax.slice_in_dim(fnp.arange(5), 1, -1)
    Array([1, 2, 3], dtype=int32)
    """
    x = array_of("slice_in_dim", operand)
    d = axis_index("slice_in_dim", axis, x.aval.ndim)
    low, high, _ = slice_bounds(start_index, limit_index, x.aval.shape[d])
    start, limit, step = [0] * x.aval.ndim, list(x.aval.shape), [1] * x.aval.ndim
    start[d], limit[d], step[d] = low, max_int(low, high), as_int("slice_in_dim", stride, "the stride")
    return layout.slice_(x, start, limit, step)


def max_int(a: int, b: int) -> int:
    """The larger of two integers."""
    return a if a > b else b


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """Return the elements at one index of an axis.

    >>> lax.index_in_dim(fnp.arange(5), -1, keepdims=False)
    Array(4, dtype=int32)
    """
    x = array_of("index_in_dim", operand)
    d = axis_index("index_in_dim", axis, x.aval.ndim)
    n, i = x.aval.shape[d], as_int("index_in_dim", index, "the index")
    if not -n <= i < n:
        raise IndexError(message("index_in_dim", f"the index must be in [{-n}, {n})", str(i)))
    out = layout.slice_along(x, d, i % n, i % n + 1)
    return out if keepdims else squeeze(out, (d,))


# -- slices at values --------------------------------------------------------------------------------------------
def _start(name: str, index: Any, n: int) -> Any:
    """A start as an int32 scalar, negative ones counted from the end."""
    if isinstance(index, Value):
        if index.aval.shape:
            raise ShapeError(message(name, "each start must be a scalar", str(index.aval)))
        i = pointwise.convert(index, dtypes.int32)
        if index.aval.dtype == dtypes.uint32:
            return i
        return pointwise.select(logic.compare("lt", i, 0), pointwise.add(i, n), i)
    i = as_int(name, index, "each start")
    return Literal(i + n if i < 0 else i, dtypes.int32)


def _starts(name: str, indices: Any, shape: Sequence[int]) -> list[Any]:
    given = list(unstack(indices)) if isinstance(indices, Value) else list(indices)
    if len(given) != len(shape):
        raise ShapeError(message(name, f"{len(shape)} starts are required, one for each axis", str(len(given))))
    return [_start(name, i, n) for i, n in zip(given, shape, strict=True)]


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Sequence[int]) -> Any:
    """Return a slice of static size from starts that may be traced; they move so that the slice fits.

    >>> lax.dynamic_slice(fnp.arange(5), (fnp.asarray(4),), (2,))
    Array([3, 4], dtype=int32)
    """
    x = array_of("dynamic_slice", operand)
    sizes = shape_tuple("dynamic_slice", slice_sizes)
    return dynamic.dynamic_slice(x, _starts("dynamic_slice", start_indices, x.aval.shape), sizes)


def _along(x: Any, axis: int, start: Any, name: str) -> list[Any]:
    d = axis_index(name, axis, x.aval.ndim)
    zero = Literal(0, dtypes.int32)
    return [_start(name, start, n) if i == d else zero for i, n in enumerate(x.aval.shape)]


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0) -> Any:
    """Return a slice of static size along one axis from a start that may be traced; it moves so that the slice fits.

    >>> lax.dynamic_slice_in_dim(fnp.arange(5), 1, 2)
    Array([1, 2], dtype=int32)
    """
    x = array_of("dynamic_slice_in_dim", operand)
    sizes = list(x.aval.shape)
    sizes[axis_index("dynamic_slice_in_dim", axis, x.aval.ndim)] = as_int(
        "dynamic_slice_in_dim", slice_size, "the size"
    )
    return dynamic.dynamic_slice(x, _along(x, axis, start_index, "dynamic_slice_in_dim"), tuple(sizes))


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Any:
    """Return the elements at one index of an axis, which may be traced and is clamped.

    >>> lax.dynamic_index_in_dim(fnp.arange(5), fnp.asarray(2), keepdims=False)
    Array(2, dtype=int32)
    """
    out = dynamic_slice_in_dim(operand, index, 1, axis)
    return out if keepdims else squeeze(out, (axis,))


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any) -> Any:
    """Return the array with a box replaced from starts that may be traced; they move so that the update fits.

    >>> lax.dynamic_update_slice(fnp.zeros(4), fnp.ones(2), (fnp.asarray(1),))
    Array([0., 1., 1., 0.], dtype=float32)
    """
    x, u = array_of("dynamic_update_slice", operand), array_of("dynamic_update_slice", update)
    return dynamic.dynamic_update_slice(x, u, _starts("dynamic_update_slice", start_indices, x.aval.shape))


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int) -> Any:
    """Return the array with a slice along one axis replaced from a start that may be traced.

    >>> lax.dynamic_update_slice_in_dim(fnp.zeros(4), fnp.ones(2), 2, 0)
    Array([0., 0., 1., 1.], dtype=float32)
    """
    x, u = array_of("dynamic_update_slice_in_dim", operand), array_of("dynamic_update_slice_in_dim", update)
    return dynamic.dynamic_update_slice(x, u, _along(x, axis, start_index, "dynamic_update_slice_in_dim"))


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int) -> Any:
    """Return the array with the elements at one index of an axis replaced; the update may lack that axis.

    >>> lax.dynamic_update_index_in_dim(fnp.zeros(3), 5.0, fnp.asarray(1), 0)
    Array([0., 5., 0.], dtype=float32)
    """
    x = array_of("dynamic_update_index_in_dim", operand)
    u = (
        update
        if isinstance(update, Value)
        else Literal(update, x.aval.dtype)
        if isinstance(update, (int, float))
        else update
    )
    u = array_of("dynamic_update_index_in_dim", u)
    u = (
        u
        if u.aval.ndim == x.aval.ndim
        else layout.expand(u, axis_index("dynamic_update_index_in_dim", axis, x.aval.ndim))
    )
    return dynamic_update_slice_in_dim(x, u, index, axis)


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Any]:
    """Return parts of the given sizes along an axis.

    >>> lax.split(fnp.arange(3), (1, 2))
    [Array([0], dtype=int32), Array([1, 2], dtype=int32)]
    """
    x = array_of("split", operand)
    d = axis_index("split", axis, x.aval.ndim)
    if sum(sizes) != x.aval.shape[d]:
        raise ShapeError(message("split", f"the sizes must add up to {x.aval.shape[d]}", str(tuple(sizes))))
    out, at = [], 0
    for n in sizes:
        out.append(layout.slice_along(x, d, at, at + n))
        at += n
    return out
