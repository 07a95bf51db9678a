"""Choosing and limiting values, and rounding them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from funcgrad import dtypes
from funcgrad.numpy.promotion import (
    array_of,
    binary,
    broadcast_args,
    cast,
    dense,
    is_bool,
    is_floating,
    operand,
    promote_args,
)
from funcgrad.primitive import apply
from funcgrad.prims import logic, pointwise

__all__ = [
    "around",
    "ceil",
    "clip",
    "fix",
    "floor",
    "fmax",
    "fmin",
    "maximum",
    "minimum",
    "nan_to_num",
    "rint",
    "round",
    "trunc",
]


# -- choices -----------------------------------------------------------------------------------------------------
def maximum(x1: Any, x2: Any, /) -> Any:
    """Return the larger of x1 and x2; NaN wins; ties share the gradient.

    >>> fnp.maximum(fnp.asarray([1.0, 5.0]), 3)
    Array([3., 5.], dtype=float32)
    """
    return binary("maximum", pointwise.maximum, x1, x2)


def minimum(x1: Any, x2: Any, /) -> Any:
    """Return the smaller of x1 and x2; NaN wins; ties share the gradient.

    >>> fnp.minimum(fnp.asarray([1.0, 5.0]), 3)
    Array([1., 3.], dtype=float32)
    """
    return binary("minimum", pointwise.minimum, x1, x2)


def fmax(x1: Any, x2: Any, /) -> Any:
    """Return the larger of x1 and x2, the other one where one is NaN.

    >>> fnp.fmax(fnp.asarray([1.0, float("nan")]), 0.5)
    Array([1. , 0.5], dtype=float32)
    """
    return _ignoring_nan("fmax", pointwise.maximum, x1, x2)


def fmin(x1: Any, x2: Any, /) -> Any:
    """Return the smaller of x1 and x2, the other one where one is NaN.

    >>> fnp.fmin(fnp.asarray([1.0, float("nan")]), 0.5)
    Array([0.5, 0.5], dtype=float32)
    """
    return _ignoring_nan("fmin", pointwise.minimum, x1, x2)


def _ignoring_nan(name: str, prim: Callable[[Any, Any], Any], x1: Any, x2: Any) -> Any:
    a, b = broadcast_args(name, *promote_args(name, x1, x2))
    out = prim(a, b)
    if not is_floating(out):
        return out
    return pointwise.select(logic.isnan(a), b, pointwise.select(logic.isnan(b), a, out))


def clip(arr: Any, /, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Any:
    """Return arr limited to [min, max]; the gradient by arr is 0 on and outside the bounds.

    ``a_min`` and ``a_max`` are numpy's older names of the bounds.

    >>> fnp.clip(fnp.asarray([-1.0, 0.5, 9.0]), 0, 1)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    min, max = a_min if min is None else min, a_max if max is None else max
    given = [b for b in (min, max) if b is not None]
    if not given:
        return array_of("clip", arr)
    x, *bounds = broadcast_args("clip", *promote_args("clip", arr, *given))
    smooth = is_floating(x)
    limited = pointwise.stop_gradient(x) if smooth else x
    inside: Any = None
    if min is not None:
        limited = pointwise.maximum(limited, bounds[0])
        inside = logic.compare("gt", x, bounds[0])
    if max is not None:
        limited = pointwise.minimum(limited, bounds[-1])
        below = logic.compare("lt", x, bounds[-1])
        inside = below if inside is None else logic.logical_and(*broadcast_args("clip", inside, below))
    return pointwise.select(inside, x, limited) if smooth else limited


def select_where(name: str, condition: Any, x: Any, y: Any) -> Any:
    """``where`` with three arguments."""
    c = operand(name, condition)
    c = c if is_bool(c) else logic.compare("ne", c, 0)
    a, b = promote_args(name, x, y)
    c, a, b = broadcast_args(name, c, a, b)
    return pointwise.select(c, a, b)


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Return x with NaN and infinities replaced by numbers, by default 0 and the largest finite ones.

    >>> fnp.nan_to_num(fnp.asarray([float("nan"), 1.0]))
    Array([0., 1.], dtype=float32)
    """
    a = array_of("nan_to_num", x)
    if not is_floating(a):
        return a
    top = dtypes_largest(a.aval.dtype)
    out = select_where("nan_to_num", logic.isnan(a), nan, a)
    out = select_where("nan_to_num", logic.compare("eq", a, float("inf")), top if posinf is None else posinf, out)
    return select_where("nan_to_num", logic.compare("eq", a, float("-inf")), -top if neginf is None else neginf, out)


def dtypes_largest(dtype: Any) -> float:
    """The largest finite number of a float dtype."""
    return {
        dtypes.float16: 65504.0,
        dtypes.bfloat16: 3.3895313892515355e38,
        dtypes.float64: 1.7976931348623157e308,
    }.get(dtype, 3.4028234663852886e38)


# -- rounding ----------------------------------------------------------------------------------------------------
def _rounded(name: str, prim: str, x: Any) -> Any:
    a = operand(name, x)
    return apply(prim, a) if is_floating(a) else dense(a)


def floor(x: Any, /) -> Any:
    """Return the largest integer not above x, as x's dtype.

    >>> fnp.floor(fnp.asarray([1.7, -0.2]))
    Array([ 1., -1.], dtype=float32)
    """
    return _rounded("floor", "floor", x)


def ceil(x: Any, /) -> Any:
    """Return the smallest integer not below x, as x's dtype.

    >>> fnp.ceil(fnp.asarray([1.2, -1.2]))
    Array([ 2., -1.], dtype=float32)
    """
    return _rounded("ceil", "ceil", x)


def trunc(x: Any, /) -> Any:
    """Return x rounded towards zero.

    >>> fnp.trunc(fnp.asarray([1.7, -1.7]))
    Array([ 1., -1.], dtype=float32)
    """
    return _rounded("trunc", "trunc", x)


fix = trunc


def rint(x: Any, /) -> Any:
    """Return x rounded to the nearest integer, halves to even.

    >>> fnp.rint(fnp.asarray([0.5, 1.5]))
    Array([0., 2.], dtype=float32)
    """
    return _rounded("rint", "round", x)


def round(a: Any, decimals: int = 0) -> Any:
    """Return a rounded to ``decimals``, halves to even.

    >>> fnp.round(fnp.asarray([0.5, 1.5, 2.345]), 1)
    Array([0.5, 1.5, 2.3], dtype=float32)
    """
    x = operand("round", a)
    if not is_floating(x):
        if decimals >= 0:
            return dense(x)
        scaled = apply("round", pointwise.div(cast(x, dtypes.float32), 10.0**-decimals))
        return pointwise.convert(pointwise.mul(scaled, 10.0**-decimals), x.aval.dtype)
    if decimals == 0:
        return apply("round", x)
    factor = 10.0**decimals
    return pointwise.div(apply("round", pointwise.mul(x, factor)), factor)


around = round
