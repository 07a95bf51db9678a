"""Counting: histograms, bins, sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.cumulative import diff
from funcgrad.numpy.promotion import array_as, array_of, as_int, cast, dense, filled, floating_arrays
from funcgrad.numpy.ranges import linspace
from funcgrad.numpy.rearrange import known
from funcgrad.numpy.reductions import max as _max
from funcgrad.numpy.reductions import min as _min
from funcgrad.numpy.sorting import searchsorted
from funcgrad.prims import index, layout, logic, pointwise

__all__ = ["bincount", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """Return how often each number 0, 1, ... occurs in a vector of integers, or the sums of their weights.

    Without ``length`` the largest number must be known in Python.  Negative numbers count as 0; numbers from ``length``
    on are left out.

    >>> fnp.bincount(fnp.asarray([0, 2, 2]))
    Array([1, 0, 2], dtype=int32)
    """
    v = array_of("bincount", x)
    if v.aval.ndim != 1 or not (dtypes.is_int(v.aval.dtype) or v.aval.dtype == dtypes.bool_):
        raise TypeError(message("bincount", "a vector of integers is required", str(v.aval)))
    v = pointwise.maximum(cast(v, dtypes.int32), 0)
    if length is None:
        top = int(known("bincount", v, "the vector without length=").max(initial=-1))
        n = max(top + 1, as_int("bincount", minlength, "minlength"))
    else:
        n = max(as_int("bincount", length, "length"), 0)
    w = filled(v.aval.shape, 1, dtypes.int32) if weights is None else array_of("bincount", weights)
    if w.aval.shape != v.aval.shape:
        raise ShapeError(message("bincount", "weights must have the vector's shape", f"{w.aval} for {v.aval}"))
    return index.scatter("add", filled((n,), 0, w.aval.dtype), v, w)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """Return the edges of equal bins over the data's range, or the given edges.

    >>> fnp.histogram_bin_edges(fnp.asarray([0.0, 4.0]), 2)
    Array([0., 2., 4.], dtype=float32)
    """
    if isinstance(bins, str):
        raise NotImplementedError(message("histogram_bin_edges", "bins must be a number or edges", repr(bins)))
    x, *_ = floating_arrays("histogram_bin_edges", a)
    if isinstance(bins, (list, tuple)) or getattr(bins, "ndim", 0) == 1:
        return array_as("histogram_bin_edges", bins, x.aval.dtype)
    n = as_int("histogram_bin_edges", bins, "the number of bins")
    if range is None:
        low, high = (_min(x), _max(x)) if x.aval.size else (Literal(0, x.aval.dtype), Literal(1, x.aval.dtype))
    else:
        low, high = floating_arrays("histogram_bin_edges", *range)
    low, high = dense(low), dense(high)
    point = logic.compare("eq", low, high)
    low, high = (
        pointwise.select(point, pointwise.sub(low, 0.5), low),
        pointwise.select(point, pointwise.add(high, 0.5), high),
    )
    return linspace(cast(low, x.aval.dtype), cast(high, x.aval.dtype), n + 1)


def _bin_numbers(x: Any, edges: Any) -> Any:
    """The bin of each value, -1 outside; the last bin includes its right edge."""
    n = edges.aval.size
    at = pointwise.sub(searchsorted(edges, x, "right"), 1)
    last = layout.reshape(layout.slice_along(edges, 0, n - 1, n), ())
    at = pointwise.select(logic.compare("eq", x, last), n - 2, at)
    inside = logic.logical_and(logic.compare("ge", at, 0), logic.compare("le", x, last))
    return pointwise.select(inside, at, -1)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, Any]:
    """Return the number of values (or the sum of weights) in each bin, as floats, and the edges of the bins.

    >>> fnp.histogram(fnp.asarray([1.0, 2.0, 1.0]), fnp.asarray([0.0, 1.5, 3.0]))[0]
    Array([2., 1.], dtype=float32)
    """
    counts, (edges,) = histogramdd(
        _columns("histogram", a), [bins], None if range is None else [range], weights, density
    )
    # One axis gives floats, several give integers, as JAX does.
    return (cast(counts, edges.aval.dtype) if weights is None else counts), edges


def _columns(name: str, *xs: Any) -> Any:
    flat = [layout.reshape(x, (x.aval.size, 1)) for x in floating_arrays(name, *xs)]
    return layout.concatenate(flat, 1)


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, Any, Any]:
    """Return the number of points in each cell of a grid, and the edges along both axes.

    >>> fnp.histogram2d(fnp.asarray([0.0, 1.0]), fnp.asarray([0.0, 1.0]), 2)[0]
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    pair = bins if isinstance(bins, (list, tuple)) and len(bins) == 2 else [bins, bins]
    counts, (first, second) = histogramdd(_columns("histogram2d", x, y), pair, range, weights, density)
    return counts, first, second


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, list[Any]]:
    """Return the number of points (rows of ``sample``) in each cell of a grid, and the edges along each axis.

    >>> fnp.histogramdd(fnp.zeros((3, 2)), (1, 1))[0]
    Array([[3]], dtype=int32)
    """
    x = (
        _columns("histogramdd", *sample)
        if isinstance(sample, (list, tuple))
        else floating_arrays("histogramdd", sample)[0]
    )
    n, d = x.aval.shape
    per_axis = list(bins) if isinstance(bins, (list, tuple)) else [bins] * d
    limits = [None] * d if range is None else list(range)
    columns = [layout.reshape(layout.slice_along(x, 1, k, k + 1), (n,)) for k in _count(d)]
    edges = [histogram_bin_edges(c, b, r) for c, b, r in zip(columns, per_axis, limits, strict=True)]
    sizes = [e.aval.size - 1 for e in edges]
    flat, total = None, 1
    for c, e, m in zip(columns, edges, sizes, strict=True):
        at = _bin_numbers(c, e)
        merged = at if flat is None else pointwise.add(pointwise.mul(flat, m), at)
        outside = logic.compare("lt", at, 0)
        if flat is not None:
            outside = logic.logical_or(outside, logic.compare("lt", flat, 0))
        flat = pointwise.select(outside, -1, merged)
        total *= m
    w = filled((n,), 1, dtypes.int32) if weights is None else array_of("histogramdd", weights)
    w = layout.reshape(w, (n,))
    counts = index.scatter("add", filled((total,), 0, w.aval.dtype), flat, w)
    counts = layout.reshape(counts, sizes)
    return (_density(counts, edges) if density else counts), edges


def _count(n: int) -> list[int]:
    return list(np.arange(n))


def _density(counts: Any, edges: Sequence[Any]) -> Any:
    kind = edges[0].aval.dtype
    out = cast(counts, kind)
    whole = layout.reduce_sum(out, tuple(_count(out.aval.ndim)))
    for k, e in enumerate(edges):
        out = pointwise.div(out, layout.broadcast(diff(e), out.aval.shape, (k,)))
    return pointwise.div(out, whole)
