"""Repeating, shifting, padding, inserting and deleting elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.array import asarray, concrete
from funcgrad.errors import ConcretizationTypeError, ShapeError, message
from funcgrad.numpy.indexing import getitem
from funcgrad.numpy.joining import concatenate, unstack
from funcgrad.numpy.manipulation import broadcast_to
from funcgrad.numpy.promotion import (
    array_as,
    array_of,
    as_int,
    axis_index,
    cast,
    dense,
    filled,
    promote_args,
    shape_tuple,
)
from funcgrad.numpy.updates import update
from funcgrad.primitive import apply
from funcgrad.prims import index, layout, logic, pointwise
from funcgrad.trace import Value

__all__ = ["append", "delete", "fill_diagonal", "insert", "repeat", "roll", "tile", "trim_zeros"]


def known(name: str, x: Any, what: str) -> np.ndarray[Any, Any]:
    """Return values that must be known in Python as numpy data."""
    if isinstance(x, Value):
        return np.asarray(concrete(x, ConcretizationTypeError, f"{name}: {what}").numpy())
    return np.asarray(x)


# -- repeating ---------------------------------------------------------------------------------------------------
def repeat(a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None) -> Any:
    """Return the elements repeated, each as often as ``repeats`` says (one number, or one per element along the axis).

    With ``total_repeat_length`` the repeats may be traced: the result is cut or filled with the last element.

    >>> fnp.repeat(fnp.asarray([1, 2]), 2)
    Array([1, 1, 2, 2], dtype=int32)
    """
    x = array_of("repeat", a)
    if axis is None:
        x, axis = layout.reshape(x, (x.aval.size,)), 0
    d = axis_index("repeat", axis, x.aval.ndim)
    n = x.aval.shape[d]
    if total_repeat_length is not None:
        return _repeat_to(x, repeats, d, as_int("repeat", total_repeat_length, "total_repeat_length"))
    counts = known("repeat", repeats, "repeats")
    if counts.size == 1:
        r = int(counts.reshape(()))
        shape = x.aval.shape
        wide = (*shape[: d + 1], r, *shape[d + 1 :])
        dims = [*range(d + 1), *range(d + 2, len(wide))]
        return layout.reshape(layout.broadcast(x, wide, dims), (*shape[:d], n * r, *shape[d + 1 :]))
    if counts.shape != (n,):
        raise ShapeError(message("repeat", f"repeats must be one number or {n}", str(counts.shape)))
    return index.take(x, asarray(np.repeat(np.arange(n, dtype=np.int32), counts)), d)


def _repeat_to(x: Any, repeats: Any, d: int, total: int) -> Any:
    n = x.aval.shape[d]
    counts = broadcast_to(array_as("repeat", repeats, dtypes.int32), (n,))
    ends = apply("cumsum", counts, axis=0, reverse=False)
    # The source of each result is the number of runs that end at or before it.
    full = (total, n)
    passed = logic.compare("ge", layout.iota(full, 0, dtypes.int32), layout.broadcast(ends, full, (1,)))
    source = layout.reduce_sum(pointwise.convert(passed, dtypes.int32), (1,))
    return index.take(x, source, d)


def tile(A: Any, reps: Any) -> Any:
    """Return the array repeated as a whole along its axes.

    >>> fnp.tile(fnp.asarray([1, 2]), 2)
    Array([1, 2, 1, 2], dtype=int32)
    """
    x = array_of("tile", A)
    counts = shape_tuple("tile", reps)
    n = max(len(counts), x.aval.ndim)
    counts = (*(1,) * (n - len(counts)), *counts)
    shape = (*(1,) * (n - x.aval.ndim), *x.aval.shape)
    full = [k for pair in zip(counts, shape, strict=True) for k in pair]
    wide = layout.broadcast(layout.reshape(x, shape), full, range(1, 2 * n, 2))
    return layout.reshape(wide, [r * k for r, k in zip(counts, shape, strict=True)])


# -- shifting ----------------------------------------------------------------------------------------------------
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Return the elements shifted along axes, those that leave at one end entering at the other; shifts may be traced.

    >>> fnp.roll(fnp.arange(4), 1)
    Array([3, 0, 1, 2], dtype=int32)
    """
    x = array_of("roll", a)
    if axis is None:
        flat = layout.reshape(x, (x.aval.size,))
        return layout.reshape(roll(flat, shift, 0), x.aval.shape) if x.aval.size else x
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = _shifts(shift, len(axes))
    for s, d in zip(shifts, axes, strict=True):
        x = _roll(x, s, axis_index("roll", d, x.aval.ndim))
    return x


def _shifts(shift: Any, n: int) -> Sequence[Any]:
    if isinstance(shift, (Value, np.ndarray)):
        values = array_of("roll", shift)
        return unstack(values) if values.aval.ndim else [values] * n
    found = list(shift) if isinstance(shift, (tuple, list)) else [shift]
    found = found * n if len(found) == 1 else found
    if len(found) != n:
        raise ShapeError(message("roll", f"{n} shifts are required, one for each axis", str(len(found))))
    return found


def _roll(x: Any, shift: Any, d: int) -> Any:
    n = x.aval.shape[d]
    if not n:
        return x
    if isinstance(shift, Value):
        at = pointwise.sub(layout.iota((n,), 0, dtypes.int32), cast(shift, dtypes.int32))
        r = pointwise.rem(at, n)
        return index.take(x, pointwise.select(logic.compare("lt", r, 0), pointwise.add(r, n), r), d)
    s = as_int("roll", shift, "the shift") % n
    if not s:
        return x
    return layout.concatenate([layout.slice_along(x, d, n - s, n), layout.slice_along(x, d, 0, n - s)], d)


# -- inserting and deleting --------------------------------------------------------------------------------------
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Return the array with values behind it, along an axis or flattened.

    >>> fnp.append(fnp.asarray([1, 2]), 3)
    Array([1, 2, 3], dtype=int32)
    """
    x, v = [dense(w) for w in promote_args("append", arr, values)]
    return concatenate([x, v], axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """Return the array with values inserted before the given indices (an integer, a slice, or several).

    >>> fnp.insert(fnp.asarray([1, 3]), 1, 2)
    Array([1, 2, 3], dtype=int32)
    """
    x = array_of("insert", arr)
    v = array_as("insert", values, x.aval.dtype)
    if axis is None:
        x, axis = layout.reshape(x, (x.aval.size,)), 0
    d = axis_index("insert", axis, x.aval.ndim)
    n = x.aval.shape[d]
    at = np.arange(n)[obj] if isinstance(obj, slice) else known("insert", obj, "indices")
    at = np.flatnonzero(at) if at.dtype == bool else at
    if ((at < -n) | (at > n)).any():
        raise IndexError(message("insert", f"indices must be in [{-n}, {n}]", str(at)))
    at = np.where(at < 0, at + n, at)
    if at.ndim == 0:
        # One place takes all the values; numpy puts their first axis along the insertion axis.
        shape = list(x.aval.shape)
        wide = layout.reshape(v, (*(1,) * (x.aval.ndim - v.aval.ndim), *v.aval.shape))
        front = layout.transpose(wide, _move(0, d, wide.aval.ndim))
        shape[d] = front.aval.shape[d]
        part = broadcast_to(front, shape)
        cut = int(at)
        return layout.concatenate([layout.slice_along(x, d, 0, cut), part, layout.slice_along(x, d, cut, n)], d)
    order = np.argsort(at, kind="stable")
    places = np.empty(at.size, np.int64)
    places[order] = at[order] + np.arange(at.size)
    total = n + at.size
    old = np.setdiff1d(np.arange(total), places)
    index_of = (slice(None),) * d
    shape = [total if i == d else m for i, m in enumerate(x.aval.shape)]
    out = filled(shape, 0, x.aval.dtype)
    out = update("set", out, (*index_of, old), x)
    return update("set", out, (*index_of, places), v)


def _move(source: int, to: int, n: int) -> list[int]:
    perm = [i for i in range(n) if i != source]
    perm.insert(to, source)
    return perm


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Any:
    """Return the array without the elements at indices (an integer, a slice, several, or a mask), known in Python.

    >>> fnp.delete(fnp.asarray([1, 2, 3]), 1)
    Array([1, 3], dtype=int32)
    """
    x = array_of("delete", arr)
    if axis is None:
        x, axis = layout.reshape(x, (x.aval.size,)), 0
    d = axis_index("delete", axis, x.aval.ndim)
    n = x.aval.shape[d]
    gone = obj if isinstance(obj, slice) else known("delete", obj, "indices")
    if not isinstance(gone, slice) and gone.dtype != bool and ((gone < -n) | (gone >= n)).any():
        raise IndexError(message("delete", f"indices must be in [{-n}, {n})", str(obj)))
    if not isinstance(gone, slice) and not gone.size:
        gone = gone.astype(np.int64)
    kept = np.delete(np.arange(n), gone)
    return getitem(x, (*(slice(None),) * d, kept))


def trim_zeros(filt: Any, trim: str = "fb") -> Any:
    """Return a vector without the zeros at its front ("f") and back ("b"); its values must be known in Python.

    >>> fnp.trim_zeros(fnp.asarray([0, 1, 0, 2, 0]))
    Array([1, 0, 2], dtype=int32)
    """
    x = array_of("trim_zeros", filt)
    places = np.flatnonzero(known("trim_zeros", x, "the vector"))
    first, last = (places[0], places[-1] + 1) if places.size else (x.aval.size, x.aval.size)
    low = int(first) if "f" in trim.lower() else 0
    return layout.slice_along(x, 0, low, max(low, int(last) if "b" in trim.lower() else x.aval.size))


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = False) -> Any:
    """Return the array with its main diagonal (of all axes) set; arrays are immutable, so ``inplace`` is False.

    >>> fnp.fill_diagonal(fnp.zeros((2, 2)), 1.0)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if inplace:
        raise NotImplementedError(message("fill_diagonal", "inplace must be False: arrays are immutable"))
    x = array_of("fill_diagonal", a)
    shape = x.aval.shape
    if x.aval.ndim < 2 or (x.aval.ndim > 2 and len(set(shape)) > 1):
        raise ShapeError(message("fill_diagonal", "a matrix, or axes of one size, are required", str(x.aval)))
    step = shape[1] + 1 if len(shape) == 2 else int(sum(np.cumprod((1, *shape[:0:-1]))))
    stop = None if wrap or len(shape) > 2 else shape[1] * shape[1]
    flat = layout.reshape(x, (x.aval.size,))
    count = len(range(*slice(None, stop, step).indices(x.aval.size)))
    v = array_of("fill_diagonal", val)
    v = layout.reshape(v, (v.aval.size,))
    v = index.take(v, asarray((np.arange(count) % max(v.aval.size, 1)).astype(np.int32)), 0) if v.aval.size != 1 else v
    return layout.reshape(update("set", flat, slice(None, stop, step), v), shape)
