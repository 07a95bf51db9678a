"""Repeating, shifting, padding, inserting and deleting elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.array import asarray, concrete
from funcgrad.errors import ConcretizationTypeError, ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.indexing import getitem
from funcgrad.numpy.manipulation import broadcast_to, concatenate
from funcgrad.numpy.promotion import array_of, as_int, axis_index, cast, dense, operand, promote_args, shape_tuple
from funcgrad.numpy.updates import update
from funcgrad.primitive import apply
from funcgrad.prims import index, layout, logic, pointwise
from funcgrad.trace import Value


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
    counts = broadcast_to(cast(array_of("repeat", repeats), dtypes.int32), (n,))
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
        return [shift[i] for i in range(n)] if shift.ndim else [shift] * n
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


# -- padding -----------------------------------------------------------------------------------------------------
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """Return the array with elements added at both ends of each axis, in any of numpy's modes.

    ``pad_width`` is a number, a pair, pairs for each axis, or a dict of axis to number or pair.  ``mode`` is "constant"
    (``constant_values``), "edge", "reflect" or "symmetric" (``reflect_type`` "even" or "odd"), "wrap", "linear_ramp"
    (``end_values``), "maximum", "minimum", "mean" or "median" (``stat_length``), "empty", or a function.

    >>> fnp.pad(fnp.asarray([1, 2]), (1, 2), constant_values=9)
    Array([9, 1, 2, 9, 9], dtype=int32)
    """
    x = array_of("pad", array)
    widths = _pairs("pad", pad_width, x.aval.ndim)
    if any(w < 0 for pair in widths for w in pair):
        raise ShapeError(message("pad", "widths must not be negative", str(widths)))
    if callable(mode):
        return _pad_by_function(x, widths, mode, kwargs)
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, kwargs.get("constant_values", 0))
    if mode == "linear_ramp":
        return _pad_ramp(x, widths, kwargs.get("end_values", 0))
    if mode in ("maximum", "minimum", "mean", "median"):
        return _pad_statistic(x, widths, mode, kwargs.get("stat_length"))
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise ValueError(message("pad", "the mode must be one of numpy's", repr(mode)))
    odd = kwargs.get("reflect_type", "even") == "odd"
    for d, (low, high) in enumerate(widths):
        x = _pad_by_index(x, d, low, high, mode, odd and mode in ("reflect", "symmetric"))
    return x


def _pairs(name: str, given: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(given, dict):
        pairs = [(0, 0)] * ndim
        for d, w in given.items():
            pairs[axis_index(name, d, ndim)] = (w, w) if isinstance(w, int) else tuple(w)
        return pairs
    a = known(name, given, "widths")
    try:
        return [(int(p), int(q)) for p, q in np.broadcast_to(a, (ndim, 2))]
    except ValueError:
        raise ShapeError(message(name, f"a number, a pair, or {ndim} pairs are required", str(given))) from None


def _value_pairs(given: Any, x: Any) -> list[list[Any]]:
    """Values before and behind for each axis, as scalars of x's dtype."""
    ndim = x.aval.ndim
    if isinstance(given, Value):
        wide = broadcast_to(cast(given, x.aval.dtype), (ndim, 2))
        return [[wide[d, k] for k in (0, 1)] for d in range(ndim)]
    if isinstance(given, (tuple, list)) and any(isinstance(v, Value) for v in given):
        return [[cast(operand("pad", v), x.aval.dtype) for v in (given if len(given) == 2 else [given[0]] * 2)]] * ndim
    wide = np.broadcast_to(np.asarray(given), (ndim, 2))
    return [[Literal(v.item(), x.aval.dtype) for v in pair] for pair in wide]


def _pad_constant(x: Any, widths: Sequence[tuple[int, int]], given: Any) -> Any:
    n = x.aval.ndim
    values = _value_pairs(given, x)
    literals = [v for pair in values for v in pair]
    if literals and all(isinstance(v, Literal) and v == literals[0] for v in literals):
        return layout.pad(x, literals[0], [a for a, _ in widths], [b for _, b in widths], [0] * n)
    for d, ((low, high), (before, behind)) in enumerate(zip(widths, values, strict=True)):
        x = layout.pad(x, before, _one(n, d, low), [0] * n, [0] * n)
        x = layout.pad(x, behind, [0] * n, _one(n, d, high), [0] * n)
    return x


def _one(n: int, d: int, value: int) -> list[int]:
    return [value if i == d else 0 for i in range(n)]


def _pad_by_index(x: Any, d: int, low: int, high: int, mode: str, odd: bool) -> Any:
    """Every element of the padded axis is one of the axis: numpy's own padding of 0, 1, ..., n - 1 says which."""
    n = x.aval.shape[d]
    if not low and not high:
        return x
    if not n:
        raise ShapeError(message("pad", f'mode "{mode}" needs an element to repeat', f"{x.aval} at axis {d}"))
    if not odd:
        source = np.pad(np.arange(n), (low, high), mode=mode)
        return index.take(x, asarray(source.astype(np.int32)), d)
    return _odd_reflection(x, d, low, high, mode)


def _odd_reflection(x: Any, d: int, low: int, high: int, mode: str) -> Any:
    """Reflection about the edge's value is linear in x: its matrix is numpy's padding of the unit vectors."""
    n = x.aval.shape[d]
    columns = [np.pad(np.eye(n)[k], (low, high), mode=mode, reflect_type="odd") for k in range(n)]
    matrix = asarray(np.stack(columns, 1), x.aval.dtype)
    rest = [i for i in range(x.aval.ndim) if i != d]
    product = apply("dot_general", matrix, x, lhs_contract=(1,), rhs_contract=(d,), lhs_batch=(), rhs_batch=())
    return layout.transpose(product, np.argsort([d, *rest]).tolist())


def _pad_ramp(x: Any, widths: Sequence[tuple[int, int]], given: Any) -> Any:
    values = _value_pairs(given, x)
    for d, ((low, high), (before, behind)) in enumerate(zip(widths, values, strict=True)):
        n = x.aval.shape[d]
        parts = [_ramp(layout.slice_along(x, d, 0, 1), d, low, before, False)] if low else []
        parts.append(x)
        parts += [_ramp(layout.slice_along(x, d, n - 1, n), d, high, behind, True)] if high else []
        x = layout.concatenate(parts, d)
    return x


def _ramp(edge: Any, d: int, width: int, end: Any, up: bool) -> Any:
    """``width`` elements from the end value (included) towards the edge (excluded), turned around behind the array."""
    steps = np.arange(width) / width if not up else np.arange(1, width + 1) / width
    weight = steps if not up else 1 - steps  # of the edge
    shape = [width if i == d else n for i, n in enumerate(edge.aval.shape)]
    kind = edge.aval.dtype if edge.aval.dtype in dtypes.FLOATS else dtypes.float32
    w = layout.broadcast(asarray(weight, kind), shape, (d,))
    e = layout.broadcast(cast(edge, kind), shape, range(len(shape)))
    out = pointwise.add(pointwise.mul(e, w), pointwise.mul(pointwise.sub(1.0, w), cast(end, kind)))
    if kind != edge.aval.dtype:
        out = apply("floor", pointwise.add(out, 1e-5)) if kind in dtypes.FLOATS else out
    return cast(out, edge.aval.dtype)


def _pad_statistic(x: Any, widths: Sequence[tuple[int, int]], mode: str, stat_length: Any) -> Any:
    lengths = None if stat_length is None else _pairs("pad", stat_length, x.aval.ndim)
    for d, (low, high) in enumerate(widths):
        n = x.aval.shape[d]
        first, last = (n, n) if lengths is None else [min(k, n) for k in lengths[d]]
        parts = [x]
        if low:
            parts.insert(0, _statistic(layout.slice_along(x, d, 0, first), d, low, mode))
        if high:
            parts.append(_statistic(layout.slice_along(x, d, n - last, n), d, high, mode))
        x = layout.concatenate(parts, d)
    return x


def _statistic(part: Any, d: int, width: int, mode: str) -> Any:
    n, whole = part.aval.shape[d], part.aval.dtype not in dtypes.FLOATS
    if mode in ("maximum", "minimum"):
        value = apply("reduce_max" if mode == "maximum" else "reduce_min", part, axes=(d,))
    elif mode == "mean":
        total = layout.reduce_sum(cast(part, dtypes.float32) if whole else part, (d,))
        value = pointwise.mul(total, 1.0 / n)
    else:
        ordered = apply("sort", cast(part, dtypes.float32) if whole else part, axis=d)
        pair = [layout.slice_along(ordered, d, k, k + 1) for k in ((n - 1) // 2, n // 2)]
        value = layout.reduce_sum(pointwise.mul(pointwise.add(*pair), 0.5), (d,))
    if whole and value.aval.dtype in dtypes.FLOATS:
        value = cast(apply("round", value), part.aval.dtype)
    shape = [width if i == d else m for i, m in enumerate(part.aval.shape)]
    return layout.broadcast(value, shape, [i for i in range(len(shape)) if i != d])


def _pad_by_function(x: Any, widths: Sequence[tuple[int, int]], mode: Callable[..., Any], kwargs: Any) -> Any:
    """numpy's protocol: ``function(vector, widths, axis, kwargs)`` gives each padded vector (or writes into numpy data)."""
    host = known("pad", x, "an array padded by a function")
    return asarray(np.pad(host, widths, mode, **kwargs), x.aval.dtype)  # type: ignore[call-overload]


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
    v = cast(array_of("insert", values), x.aval.dtype)
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
    out = layout.broadcast(Literal(0, x.aval.dtype), shape, ())
    out = update("set", out, (*index_of, old), x)
    return update("set", out, (*index_of, places), v)


def _move(source: int, to: int, n: int) -> list[int]:
    perm = [i for i in range(n) if i != source]
    perm.insert(to, source)
    return perm


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Any:
    """Return the array without the elements at the given indices (an integer, a slice, several, or a mask), known in Python.

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
    """Return the array with its main diagonal (of all axes) set to a value; arrays are immutable, so ``inplace`` is False.

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
