"""Padding in all of numpy's modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.array import asarray
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.manipulation import broadcast_to
from funcgrad.numpy.promotion import array_of, axis_index, cast, operand_as
from funcgrad.numpy.rearrange import known
from funcgrad.primitive import apply
from funcgrad.prims import index, layout, pointwise
from funcgrad.trace import Value

__all__ = ["pad"]


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
        return [[operand_as("pad", v, x.aval.dtype) for v in (given if len(given) == 2 else [given[0]] * 2)]] * ndim
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


def _pad_by_index(x: Any, d: int, low: int, high: int, mode: Any, odd: bool) -> Any:
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


def _odd_reflection(x: Any, d: int, low: int, high: int, mode: Any) -> Any:
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


def _pad_by_function(x: Any, widths: Sequence[tuple[int, int]], mode: Any, kwargs: Any) -> Any:
    """numpy's protocol: ``function(vector, widths, axis, kwargs)`` writes into each padded vector, numpy data."""
    host = known("pad", x, "an array padded by a function")
    return asarray(np.pad(host, widths, mode, **kwargs), x.aval.dtype)
