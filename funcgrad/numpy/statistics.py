"""Medians, quantiles, correlation."""

from __future__ import annotations

import math
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.products import matmul
from funcgrad.numpy.promotion import array_as, axis_tuple, cast, floating_arrays, kept_shape
from funcgrad.numpy.reductions import no_out, spread
from funcgrad.primitive import apply
from funcgrad.prims import index, layout, linalg, logic, pointwise

__all__ = ["corrcoef", "cov", "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]

METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _rows(x: Any, axes: tuple[int, ...]) -> Any:
    """x with the reduced axes merged into one, last."""
    rest = [d for d in range(x.aval.ndim) if d not in axes]
    moved = layout.transpose(x, (*rest, *axes))
    return layout.reshape(moved, (*[x.aval.shape[d] for d in rest], math.prod([x.aval.shape[d] for d in axes])))


def _quantile(name: str, a: Any, q: Any, axis: Any, method: str, keepdims: bool, skip_nan: bool, scale: float) -> Any:
    if method not in METHODS:
        raise ValueError(message(name, f"the method must be one of {', '.join(METHODS)}", repr(method)))
    (x,) = floating_arrays(name, a)
    kind = x.aval.dtype
    x = cast(x, dtypes.float32) if kind in dtypes.HALVES else x
    axes = axis_tuple(name, axis, x.aval.ndim)
    rows = _rows(x, axes)
    n, d = rows.aval.shape[-1], rows.aval.ndim - 1
    if not n:
        raise ShapeError(message(name, "there must be an element", f"{x.aval} along {axes}"))
    ordered = apply("sort", rows, axis=d)
    wanted = array_as(name, q, x.aval.dtype)
    if wanted.aval.ndim > 1:
        raise ShapeError(message(name, "q must be a number or a vector", str(wanted.aval)))
    flat = layout.reshape(wanted, (wanted.aval.size,))
    flat = pointwise.mul(flat, 1.0 / scale) if scale != 1 else flat
    full = (*rows.aval.shape[:-1], flat.aval.size)
    flat = layout.broadcast(flat, full, (d,))
    missing = layout.reduce_sum(pointwise.convert(logic.isnan(rows), x.aval.dtype), (d,))
    count: Any = n - 1.0
    if skip_nan:
        count = layout.broadcast(pointwise.sub(n - 1.0, missing), full, range(d))
    place = pointwise.mul(flat, count)
    out = _between(ordered, place, d, method)
    if not skip_nan:
        bad = layout.broadcast(logic.compare("gt", missing, 0), full, range(d))
        out = pointwise.select(bad, Literal(math.nan, x.aval.dtype), out)
    # The axis of q leads; reduced axes come back with size 1.
    out = layout.transpose(out, (d, *range(d)))
    kept = kept_shape(x.aval.shape, axes) if keepdims else rows.aval.shape[:-1]
    return cast(layout.reshape(out, (*wanted.aval.shape, *kept)), kind)


def _between(ordered: Any, place: Any, d: int, method: str) -> Any:
    """The elements around a place in sorted rows, combined."""

    def at(where: Any) -> Any:
        return index.take_along(ordered, pointwise.convert(where, dtypes.int32), d)

    low = apply("floor", place)
    if method == "nearest":
        return at(apply("round", place))
    if method == "lower":
        return at(low)
    high = apply("ceil", place)
    if method == "higher":
        return at(high)
    if method == "midpoint":
        return pointwise.mul(pointwise.add(at(low), at(high)), 0.5)
    weight = pointwise.sub(place, low)
    below = pointwise.mul_nz(at(low), pointwise.sub(1.0, weight))
    return pointwise.add(below, pointwise.mul_nz(at(high), weight))


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Return the values below which a share q in [0, 1] of the elements along axes lies; NaN where one is NaN.

    ``method`` is "linear", "lower", "higher", "midpoint" or "nearest".

    >>> fnp.quantile(fnp.asarray([1.0, 2.0, 4.0]), 0.75)
    Array(3., dtype=float32)
    """
    no_out("quantile", out)
    return _quantile("quantile", a, q, axis, method, keepdims, False, 1)


def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Return quantiles of the elements that are not NaN.

    >>> fnp.nanquantile(fnp.asarray([1.0, float("nan"), 3.0]), 0.5)
    Array(2., dtype=float32)
    """
    no_out("nanquantile", out)
    return _quantile("nanquantile", a, q, axis, method, keepdims, True, 1)


def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Return the values below which q percent of the elements along axes lie.

    >>> fnp.percentile(fnp.asarray([1.0, 2.0, 4.0]), 75)
    Array(3., dtype=float32)
    """
    no_out("percentile", out)
    return _quantile("percentile", a, q, axis, method, keepdims, False, 100)


def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Return percentiles of the elements that are not NaN.

    >>> fnp.nanpercentile(fnp.asarray([1.0, float("nan"), 3.0]), 50)
    Array(2., dtype=float32)
    """
    no_out("nanpercentile", out)
    return _quantile("nanpercentile", a, q, axis, method, keepdims, True, 100)


def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """Return the middle value along axes, the mean of the two middle ones for an even number; NaN where one is NaN.

    >>> fnp.median(fnp.asarray([3.0, 1.0, 2.0]))
    Array(2., dtype=float32)
    """
    no_out("median", out)
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, False, 1)


def nanmedian(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """Return the median of the elements that are not NaN.

    >>> fnp.nanmedian(fnp.asarray([3.0, float("nan"), 1.0]))
    Array(2., dtype=float32)
    """
    no_out("nanmedian", out)
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, True, 1)


# -- correlation -------------------------------------------------------------------------------------------------
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
) -> Any:
    """Return the covariance matrix of variables (rows, or columns when not ``rowvar``) over observations.

    >>> fnp.cov(fnp.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    parts = [_variables(v, rowvar) for v in floating_arrays("cov", *([m] if y is None else [m, y]))]
    x = layout.concatenate(parts, 0)
    n = x.aval.shape[1]
    less = ddof if ddof is not None else 0 if bias else 1
    f, a = [None if w is None else array_as("cov", w, x.aval.dtype) for w in (fweights, aweights)]
    w = f if a is None else a if f is None else pointwise.mul(f, a)
    if w is None:
        d = pointwise.sub(x, spread(pointwise.mul(layout.reduce_sum(x, (1,)), 1.0 / max(n, 1)), x.aval.shape, (1,)))
        c = pointwise.mul(matmul(d, linalg.turned(d)), 1.0 / (n - less) if n > less else math.nan)
    else:
        c = _weighted_covariance(x, w, a, less)
    return layout.reshape(c, ()) if c.aval.size == 1 else c


def _weighted_covariance(x: Any, w: Any, a: Any, less: int) -> Any:
    total = layout.reduce_sum(w, (0,))
    wide = layout.broadcast(w, x.aval.shape, (1,))
    m = pointwise.div(layout.reduce_sum(pointwise.mul(x, wide), (1,)), total)
    d = pointwise.sub(x, spread(m, x.aval.shape, (1,)))
    if a is None:
        divisor = pointwise.sub(total, float(less))
    else:
        spent = pointwise.div(layout.reduce_sum(pointwise.mul(w, a), (0,)), total)
        divisor = pointwise.sub(total, pointwise.mul(spent, float(less)))
    return pointwise.div(matmul(pointwise.mul(d, wide), linalg.turned(d)), divisor)


def _variables(x: Any, rowvar: bool) -> Any:
    if x.aval.ndim > 2:
        raise ShapeError(message("cov", "a vector or a matrix is required", str(x.aval)))
    if x.aval.ndim < 2:
        return layout.reshape(x, (1, x.aval.size))
    return x if rowvar or x.aval.shape[0] == 1 else linalg.turned(x)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    """Return the correlation coefficients of variables, limited to [-1, 1].

    >>> fnp.corrcoef(fnp.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    c = cov(x, y, rowvar)
    if not c.aval.ndim:
        return pointwise.div(c, c)
    root = apply("sqrt", linalg.diagonal_of(c))
    n = root.aval.size
    scaled = pointwise.div(c, layout.broadcast(root, (n, n), (0,)))
    scaled = pointwise.div(scaled, layout.broadcast(root, (n, n), (1,)))
    return pointwise.maximum(pointwise.minimum(scaled, 1.0), -1.0)
