"""Reductions along axes: sums, products, extrema, tests, means and variances.

All take ``axis`` (an integer, a tuple, None for all), ``keepdims``, and where numpy has them ``dtype``, ``initial`` and
``where``.  ``out`` is accepted for numpy's sake and must be None: arrays are immutable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.choices import select_where
from funcgrad.numpy.logical import as_bool
from funcgrad.numpy.promotion import (
    array_of,
    axis_index,
    axis_tuple,
    broadcast_args,
    cast,
    dense,
    filled,
    floating_arrays,
    is_bool,
    kept_shape,
    operand_as,
    result_dtype,
)
from funcgrad.primitive import apply
from funcgrad.prims import layout, logic, pointwise

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "average",
    "count_nonzero",
    "max",
    "mean",
    "min",
    "prod",
    "ptp",
    "std",
    "sum",
    "var",
]


def no_out(name: str, out: Any) -> None:
    """Raise NotImplementedError for an ``out=`` argument."""
    if out is not None:
        raise NotImplementedError(message(name, "out must be None: arrays are immutable", way_out="assign the result"))


def reduce(prim: str, x: Any, axes: Sequence[int], keepdims: bool) -> Any:
    """Reduce by a primitive; put axes of size 1 back when asked."""
    out = apply(prim, x, axes=tuple(axes)) if axes else x
    return layout.reshape(out, kept_shape(x.aval.shape, axes)) if keepdims else out


def spread(y: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
    """Repeat a result over the axes that were reduced."""
    return layout.broadcast(y, shape, [d for d in range(len(shape)) if d not in axes])


def _masked(name: str, x: Any, where: Any, neutral: Any) -> Any:
    return x if where is None else select_where(name, where, x, Literal(neutral, x.aval.dtype))


def _summand(name: str, a: Any, dtype: Any) -> Any:
    x = array_of(name, a)
    if dtype is not None:
        return cast(x, result_dtype(dtype, None))
    return cast(x, dtypes.int32) if is_bool(x) else x


def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Return the sum along axes; bools count as integers, float16 and bfloat16 accumulate in float32.

    >>> fnp.sum(fnp.asarray([[1, 2], [3, 4]]), axis=0)
    Array([4, 6], dtype=int32)
    """
    no_out("sum", out)
    x = _masked("sum", _summand("sum", a, dtype), where, 0)
    total = reduce("reduce_sum", x, axis_tuple("sum", axis, x.aval.ndim), keepdims)
    return total if initial is None else pointwise.add(total, operand_as("sum", initial, total.aval.dtype))


def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Return the product along axes; the gradient is exact with any number of zeros.

    >>> fnp.prod(fnp.asarray([2.0, 3.0]))
    Array(6., dtype=float32)
    """
    no_out("prod", out)
    x = _masked("prod", _summand("prod", a, dtype), where, 1)
    total = reduce("reduce_prod", x, axis_tuple("prod", axis, x.aval.ndim), keepdims)
    return total if initial is None else pointwise.mul(total, operand_as("prod", initial, total.aval.dtype))


# -- extrema -----------------------------------------------------------------------------------------------------
def lowest(dtype: Any) -> Any:
    """The smallest value of a dtype: what a maximum of nothing is."""
    return -math.inf if dtype in dtypes.FLOATS else False if dtype == dtypes.bool_ else int(np.iinfo(dtype).min)


def highest(dtype: Any) -> Any:
    """The largest value of a dtype."""
    return math.inf if dtype in dtypes.FLOATS else True if dtype == dtypes.bool_ else int(np.iinfo(dtype).max)


def _extremum(name: str, a: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    x = array_of(name, a)
    largest = name == "max"
    neutral = (lowest if largest else highest)(x.aval.dtype)
    axes = axis_tuple(name, axis, x.aval.ndim)
    if where is not None and initial is None:
        raise ValueError(message(name, "where needs an initial value", way_out="give initial="))
    x = _masked(name, x, where, neutral)
    if initial is not None and 0 in [x.aval.shape[d] for d in axes]:
        shape = kept_shape(x.aval.shape, axes) if keepdims else [n for d, n in enumerate(x.aval.shape) if d not in axes]
        return dense(layout.broadcast(operand_as(name, initial, x.aval.dtype), shape, ()))
    if is_bool(x):
        out = reduce("reduce_any" if largest else "reduce_all", x, axes, keepdims)
    else:
        out = reduce("reduce_max" if largest else "reduce_min", x, axes, keepdims)
    if initial is None:
        return out
    start = operand_as(name, initial, out.aval.dtype)
    if is_bool(out):
        return (logic.logical_or if largest else logic.logical_and)(out, start)
    return (pointwise.maximum if largest else pointwise.minimum)(out, start)


def max(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """Return the largest element along axes; NaN wins; ties share the gradient equally.

    >>> fnp.max(fnp.asarray([[1, 2], [3, 0]]), axis=1)
    Array([2, 3], dtype=int32)
    """
    no_out("max", out)
    return _extremum("max", a, axis, keepdims, initial, where)


def min(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """Return the smallest element along axes; NaN wins; ties share the gradient equally.

    >>> fnp.min(fnp.asarray([[1, 2], [3, 0]]), axis=1)
    Array([1, 0], dtype=int32)
    """
    no_out("min", out)
    return _extremum("min", a, axis, keepdims, initial, where)


amax, amin = max, min


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Return the largest minus the smallest element along axes.

    >>> fnp.ptp(fnp.asarray([1, 5, 2]))
    Array(4, dtype=int32)
    """
    no_out("ptp", out)
    return pointwise.sub(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def _arg(name: str, a: Any, axis: Any, keepdims: bool) -> Any:
    x = array_of(name, a)
    shape = x.aval.shape
    if axis is None:
        flat = layout.reshape(x, (x.aval.size,))
        out = apply(name, flat, axis=0)
        return layout.reshape(out, (1,) * len(shape)) if keepdims else out
    d = axis_index(name, axis, len(shape))
    out = apply(name, x, axis=d)
    return layout.reshape(out, kept_shape(shape, (d,))) if keepdims else out


def argmax(a: Any, axis: int | None = None, out: Any = None, keepdims: bool = False) -> Any:
    """Return the index of the first largest element along an axis (of all by default); NaN is largest.

    >>> fnp.argmax(fnp.asarray([[1, 7], [3, 0]]), axis=1)
    Array([1, 0], dtype=int32)
    """
    no_out("argmax", out)
    return _arg("argmax", a, axis, bool(keepdims))


def argmin(a: Any, axis: int | None = None, out: Any = None, keepdims: bool = False) -> Any:
    """Return the index of the first smallest element along an axis (of all by default); NaN is smallest.

    >>> fnp.argmin(fnp.asarray([[1, 7], [3, 0]]), axis=1)
    Array([0, 1], dtype=int32)
    """
    no_out("argmin", out)
    return _arg("argmin", a, axis, bool(keepdims))


# -- tests -------------------------------------------------------------------------------------------------------
def any(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """Return whether any element along axes is true (not 0).

    >>> fnp.any(fnp.asarray([[0, 1], [0, 0]]), axis=1)
    Array([ True, False], dtype=bool)
    """
    no_out("any", out)
    x = _masked("any", as_bool("any", array_of("any", a)), where, False)
    return reduce("reduce_any", x, axis_tuple("any", axis, x.aval.ndim), keepdims)


def all(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """Return whether all elements along axes are true (not 0).

    >>> fnp.all(fnp.asarray([[0, 1], [1, 1]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    no_out("all", out)
    x = _masked("all", as_bool("all", array_of("all", a)), where, True)
    return reduce("reduce_all", x, axis_tuple("all", axis, x.aval.ndim), keepdims)


def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the number of elements that are not 0.

    >>> fnp.count_nonzero(fnp.asarray([0, 3, 4]))
    Array(2, dtype=int32)
    """
    return sum(as_bool("count_nonzero", array_of("count_nonzero", a)), axis, keepdims=keepdims)


# -- moments -----------------------------------------------------------------------------------------------------
def _real(name: str, a: Any, dtype: Any) -> tuple[Any, Any]:
    """The operand in the dtype to compute in (float32 for halves), and the dtype of the result."""
    (x,) = floating_arrays(name, a)
    kind = result_dtype(dtype, x.aval.dtype)
    wide = dtypes.float32 if kind in dtypes.HALVES else kind
    return cast(x, wide if wide in dtypes.FLOATS else dtypes.float32), kind


def count_of(shape: Sequence[int], axes: Sequence[int]) -> int:
    """The number of elements along axes."""
    return math.prod([shape[d] for d in axes])


def average_over(x: Any, axes: Sequence[int], count: float) -> Any:
    """The sum along axes times one over a count that is known; NaN for nothing."""
    return pointwise.mul(reduce("reduce_sum", x, axes, False), 1.0 / count if count else math.nan)


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    """Return the mean along axes, as a float; float16 and bfloat16 are summed in float32.

    >>> fnp.mean(fnp.asarray([[1, 2], [3, 4]]), axis=1)
    Array([1.5, 3.5], dtype=float32)
    """
    no_out("mean", out)
    x, kind = _real("mean", a, dtype)
    axes = axis_tuple("mean", axis, x.aval.ndim)
    if where is None:
        m = average_over(x, axes, count_of(x.aval.shape, axes))
    else:
        x, w = _with_mask("mean", x, where)
        m = pointwise.div(reduce("reduce_sum", pointwise.select(w, x, 0.0), axes, False), _count(w, axes, x.aval.dtype))
    m = cast(m, kind)
    return layout.reshape(m, kept_shape(x.aval.shape, axes)) if keepdims else m


def _with_mask(name: str, x: Any, where: Any) -> tuple[Any, Any]:
    """The operand and the mask in one shape."""
    x, w = broadcast_args(name, x, as_bool(name, array_of(name, where)))
    return x, (layout.broadcast(w, x.aval.shape, ()) if w.aval.shape != x.aval.shape else w)


def _count(mask: Any, axes: Sequence[int], dtype: Any) -> Any:
    return reduce("reduce_sum", pointwise.convert(mask, dtype), axes, False)


def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    """Return the variance along axes, in two passes; the divisor is n - ddof (``correction`` is another name for ddof).

    >>> fnp.var(fnp.asarray([1.0, 2.0, 3.0, 4.0]), ddof=1)
    Array(1.6666666, dtype=float32)
    """
    no_out("var", out)
    x, kind = _real("var", a, dtype)
    axes = axis_tuple("var", axis, x.aval.ndim)
    less = ddof if correction is None else correction
    w = None
    if where is not None:
        x, w = _with_mask("var", x, where)
        x = pointwise.select(w, x, 0.0)
    n: Any = count_of(x.aval.shape, axes) if w is None else _count(w, axes, x.aval.dtype)
    if mean is None:
        m = average_over(x, axes, n) if w is None else pointwise.div(reduce("reduce_sum", x, axes, False), n)
        d = pointwise.sub(x, spread(m, x.aval.shape, axes))
    else:
        d = pointwise.sub(*broadcast_args("var", x, operand_as("var", mean, x.aval.dtype)))
    d = d if w is None else pointwise.select(w, d, 0.0)
    squares = apply("square", d)
    if w is None:
        v = (
            average_over(squares, axes, n - less)
            if n > less
            else pointwise.div(reduce("reduce_sum", squares, axes, False), float(n - less))
        )
    else:
        v = pointwise.div(reduce("reduce_sum", squares, axes, False), pointwise.sub(n, float(less)))
    v = cast(v, kind)
    return layout.reshape(v, kept_shape(x.aval.shape, axes)) if keepdims else v


def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    """Return the standard deviation along axes; its gradient at 0 is not finite.

    >>> fnp.std(fnp.asarray([1.0, 3.0]))
    Array(1., dtype=float32)
    """
    no_out("std", out)
    return apply("sqrt", var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """Return the mean along axes weighted by ``weights`` (of a's shape, or a vector along the axis).

    >>> fnp.average(fnp.asarray([1.0, 4.0]), weights=fnp.asarray([2.0, 1.0]))
    Array(2., dtype=float32)
    """
    if weights is None:
        m = mean(a, axis, keepdims=keepdims)
        x = array_of("average", a)
        n = count_of(x.aval.shape, axis_tuple("average", axis, x.aval.ndim))
        return (m, filled(m.aval.shape, n, m.aval.dtype)) if returned else m
    x, w = floating_arrays("average", a, weights)
    if w.aval.shape != x.aval.shape:
        if axis is None or isinstance(axis, tuple) or w.aval.ndim != 1:
            raise ShapeError(
                message(
                    "average", "weights must have a's shape, or be a vector along one axis", f"{w.aval} for {x.aval}"
                )
            )
        d = axis_index("average", axis, x.aval.ndim)
        if w.aval.size != x.aval.shape[d]:
            raise ShapeError(
                message("average", "weights must have the length of the axis", f"{w.aval} for {x.aval} at axis {d}")
            )
        w = layout.broadcast(w, x.aval.shape, (d,))
    axes = axis_tuple("average", axis, x.aval.ndim)
    total = reduce("reduce_sum", w, axes, keepdims)
    m = pointwise.div(reduce("reduce_sum", pointwise.mul(x, w), axes, keepdims), total)
    return (m, total) if returned else m
