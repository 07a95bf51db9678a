"""Functions of one or two floats: exponentials, logarithms, circular and hyperbolic ones; integers become float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import DTypeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.promotion import array_of, broadcast_args, filled, floating, is_floating, numbers
from funcgrad.primitive import apply
from funcgrad.prims import layout, logic, pointwise

__all__ = [
    "acos",
    "acosh",
    "angle",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "conj",
    "conjugate",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "exp",
    "exp2",
    "expm1",
    "frexp",
    "heaviside",
    "hypot",
    "i0",
    "imag",
    "iscomplex",
    "isreal",
    "ldexp",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logaddexp2",
    "modf",
    "nextafter",
    "rad2deg",
    "radians",
    "real",
    "sin",
    "sinc",
    "sinh",
    "spacing",
    "sqrt",
    "tan",
    "tanh",
]


def _function(name: str, doc: str, example: str, prim: str = "") -> Callable[[Any], Any]:
    primitive = prim or name

    def function(x: Any, /) -> Any:
        (a,) = floating(name, x)
        return apply(primitive, a)

    function.__name__ = function.__qualname__ = name
    call, _, result = example.partition(" -> ")
    function.__doc__ = f"{doc}\n\n    >>> fnp.{name}(fnp.asarray({call}))\n    Array({result}, dtype=float32)\n    "
    return function


exp = _function("exp", "Return e to the power x.", "[0.0, 1.0] -> [1. , 2.718]")
exp2 = _function("exp2", "Return 2 to the power x.", "[0.0, 3.0] -> [1., 8.]")
expm1 = _function("expm1", "Return exp(x) - 1, exact near 0.", "[0.0, 1.0] -> [0. , 1.718]")
log = _function("log", "Return the natural logarithm; -inf at 0, NaN below.", "[1.0, 0.0] -> [  0., -inf]")
log2 = _function("log2", "Return the logarithm to base 2.", "[1.0, 8.0] -> [0., 3.]")
log1p = _function("log1p", "Return log(1 + x), exact near 0.", "[0.0, 1.0] -> [0. , 0.693]")
sqrt = _function("sqrt", "Return the square root; its derivative at 0 is infinite.", "[4.0, 9.0] -> [2., 3.]")
cbrt = _function("cbrt", "Return the real cube root.", "[8.0, -8.0] -> [ 2., -2.]")
sin = _function("sin", "Return the sine of an angle in radians.", "[0.0, 1.0] -> [0. , 0.841]")
cos = _function("cos", "Return the cosine of an angle in radians.", "[0.0, 1.0] -> [1. , 0.540]")
tan = _function("tan", "Return the tangent of an angle in radians.", "[0.0, 1.0] -> [0. , 1.557]")
asin = _function("asin", "Return the angle in radians whose sine is x.", "[0.0, 1.0] -> [0. , 1.571]")
acos = _function("acos", "Return the angle in radians whose cosine is x.", "[1.0, 0.0] -> [0. , 1.571]")
atan = _function("atan", "Return the angle in radians whose tangent is x.", "[0.0, 1.0] -> [0. , 0.785]")
sinh = _function("sinh", "Return the hyperbolic sine.", "[0.0, 1.0] -> [0. , 1.175]")
cosh = _function("cosh", "Return the hyperbolic cosine.", "[0.0, 1.0] -> [1. , 1.543]")
tanh = _function("tanh", "Return the hyperbolic tangent.", "[0.0, 1.0] -> [0. , 0.762]")
asinh = _function("asinh", "Return the inverse hyperbolic sine.", "[0.0, 1.0] -> [0. , 0.881]")
acosh = _function("acosh", "Return the inverse hyperbolic cosine.", "[1.0, 2.0] -> [0. , 1.317]")
atanh = _function("atanh", "Return the inverse hyperbolic tangent.", "[0.0, 0.5] -> [0. , 0.549]")
arcsin, arccos, arctan, arcsinh, arccosh, arctanh = asin, acos, atan, asinh, acosh, atanh


def log10(x: Any, /) -> Any:
    """Return the logarithm to base 10.

    >>> fnp.log10(fnp.asarray([100.0, 1.0]))
    Array([2., 0.], dtype=float32)
    """
    return pointwise.mul(log2(x), math.log10(2))


def atan2(x1: Any, x2: Any, /) -> Any:
    """Return the angle in radians of the point (x2, x1).

    >>> fnp.atan2(fnp.asarray([0.0, 1.0]), 1.0)
    Array([0. , 0.785], dtype=float32)
    """
    a, b = broadcast_args("atan2", *floating("atan2", x1, x2))
    return pointwise.atan2(a, b)


arctan2 = atan2


def angle(z: Any, deg: bool = False) -> Any:
    """Return the angle of real numbers: 0, or pi for negative ones, in radians unless ``deg``.

    >>> fnp.angle(fnp.asarray([1.0, -1.0]), deg=True)
    Array([  0., 180.], dtype=float32)
    """
    (a,) = floating("angle", z)
    return pointwise.select(
        logic.isnan(a),
        a,
        pointwise.mul(pointwise.convert(logic.compare("lt", a, 0), a.aval.dtype), 180.0 if deg else math.pi),
    )


def nextafter(x1: Any, x2: Any, /) -> Any:
    """Return the float next to x1 in the direction of x2.

    >>> fnp.nextafter(fnp.asarray([1.0]), 2.0) > 1.0
    Array([ True], dtype=bool)
    """
    a, b = broadcast_args("nextafter", *floating("nextafter", x1, x2))
    return pointwise.nextafter(a, b)


def spacing(x: Any, /) -> Any:
    """Return the distance to the next float away from 0.

    >>> fnp.spacing(fnp.asarray([1.0])) == 2.0**-23
    Array([ True], dtype=bool)
    """
    (a,) = floating("spacing", x)
    away = pointwise.select(
        logic.compare("lt", a, 0), Literal(-math.inf, a.aval.dtype), Literal(math.inf, a.aval.dtype)
    )
    return pointwise.sub(pointwise.nextafter(a, away), a)


def hypot(x1: Any, x2: Any, /) -> Any:
    """Return sqrt(x1**2 + x2**2) without overflow.

    >>> fnp.hypot(fnp.asarray([3.0]), 4.0)
    Array([5.], dtype=float32)
    """
    a, b = broadcast_args("hypot", *floating("hypot", x1, x2))
    a, b = pointwise.abs(a), pointwise.abs(b)
    big, small = pointwise.maximum(a, b), pointwise.minimum(a, b)
    finite = logic.logical_and(logic.compare("gt", big, 0), logic.isfinite(big))
    ratio = pointwise.div(small, pointwise.select(finite, big, Literal(1, big.aval.dtype)))
    length = pointwise.mul(big, apply("sqrt", pointwise.add(apply("square", ratio), 1)))
    endless = logic.logical_or(logic.compare("eq", a, math.inf), logic.compare("eq", b, math.inf))
    other = pointwise.select(endless, Literal(math.inf, big.aval.dtype), pointwise.add(big, small))
    return pointwise.select(finite, length, other)


def _gap(low: Any, high: Any) -> Any:
    """low - high, 0 for two equal infinities."""
    usual = logic.logical_or(logic.isfinite(high), logic.compare("ne", low, high))
    return pointwise.select(usual, pointwise.sub(low, high), Literal(0, high.aval.dtype))


def logaddexp(x1: Any, x2: Any, /) -> Any:
    """Return log(exp(x1) + exp(x2)), stable and with full relative precision near 0; gradients are never NaN.

    >>> fnp.logaddexp(fnp.asarray([0.0]), 0.0)
    Array([0.693], dtype=float32)
    """
    a, b = broadcast_args("logaddexp", *floating("logaddexp", x1, x2))
    # The order is chosen by select, not maximum and abs: both sides then agree in all derivatives where a equals b.
    order = logic.compare("ge", a, b)
    high, low = pointwise.select(order, a, b), pointwise.select(order, b, a)
    gap = _gap(low, high)
    return pointwise.add(high, apply("log1p", apply("exp", gap)))


def logaddexp2(x1: Any, x2: Any, /) -> Any:
    """Return log2(2**x1 + 2**x2), stable.

    >>> fnp.logaddexp2(fnp.asarray([1.0]), 1.0)
    Array([2.], dtype=float32)
    """
    a, b = broadcast_args("logaddexp2", *floating("logaddexp2", x1, x2))
    order = logic.compare("ge", a, b)
    high, low = pointwise.select(order, a, b), pointwise.select(order, b, a)
    gap = _gap(low, high)
    return pointwise.add(high, pointwise.mul(apply("log1p", apply("exp2", gap)), 1 / math.log(2)))


def deg2rad(x: Any, /) -> Any:
    """Return degrees as radians.

    >>> fnp.deg2rad(fnp.asarray([180.0]))
    Array([3.142], dtype=float32)
    """
    return pointwise.mul(floating("deg2rad", x)[0], math.pi / 180)


def rad2deg(x: Any, /) -> Any:
    """Return radians as degrees.

    >>> fnp.rad2deg(fnp.asarray([3.1415927]))
    Array([180.], dtype=float32)
    """
    return pointwise.mul(floating("rad2deg", x)[0], 180 / math.pi)


radians, degrees = deg2rad, rad2deg


def sinc(x: Any, /) -> Any:
    """Return sin(pi x) / (pi x), 1 at 0.

    >>> fnp.sinc(fnp.asarray([0.0, 0.5]))
    Array([1. , 0.637], dtype=float32)
    """
    (a,) = floating("sinc", x)
    at_zero = logic.compare("eq", a, 0)
    angle = pointwise.mul(pointwise.select(at_zero, Literal(1, a.aval.dtype), a), math.pi)
    # At 0 the series 1 - (pi x)^2 / 6 has the same value, slope and curvature.
    near = pointwise.sub(1.0, apply("square", pointwise.mul(a, math.pi / math.sqrt(6))))
    return pointwise.select(at_zero, near, pointwise.div(apply("sin", angle), angle))


def heaviside(x1: Any, x2: Any, /) -> Any:
    """Return 0 below zero, 1 above, x2 at zero.

    >>> fnp.heaviside(fnp.asarray([-1.0, 0.0, 2.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    a, b = broadcast_args("heaviside", *floating("heaviside", x1, x2))
    step = pointwise.convert(logic.compare("gt", a, 0), a.aval.dtype)
    step = pointwise.select(logic.isnan(a), pointwise.stop_gradient(a), step)
    return pointwise.select(logic.compare("eq", a, 0), b, step)


def modf(x: Any, /) -> tuple[Any, Any]:
    """Return the fractional and the whole part, both with the sign of x.

    >>> fnp.modf(fnp.asarray([1.5, -2.25]))
    (Array([ 0.5 , -0.25], dtype=float32), Array([ 1., -2.], dtype=float32))
    """
    (a,) = floating("modf", x)
    whole = apply("trunc", a)
    fraction = pointwise.sub(a, whole)
    return pointwise.select(
        logic.compare("eq", pointwise.abs(a), math.inf), pointwise.mul(apply("sign", a), 0.0), fraction
    ), whole


def frexp(x: Any, /) -> tuple[Any, Any]:
    """Return m in [0.5, 1) with the sign of x and an int32 exponent e, x = m * 2**e; x itself and 0 for 0, inf, NaN.

    >>> fnp.frexp(fnp.asarray([8.0]))
    (Array([0.5], dtype=float32), Array([4], dtype=int32))
    """
    (a,) = floating("frexp", x)
    usual = logic.logical_and(logic.compare("ne", a, 0), logic.isfinite(a))
    size = pointwise.select(usual, pointwise.abs(a), Literal(1, a.aval.dtype))
    e = pointwise.add(apply("floor", apply("log2", size)), 1)
    m = _times_power_of_two(a, pointwise.neg(e))
    # log2 rounds: correct by one where m left [0.5, 1)
    high, low = logic.compare("ge", pointwise.abs(m), 1), logic.compare("lt", pointwise.abs(m), 0.5)
    e = pointwise.add(e, pointwise.sub(pointwise.convert(high, e.aval.dtype), pointwise.convert(low, e.aval.dtype)))
    m = pointwise.select(usual, _times_power_of_two(a, pointwise.neg(e)), a)
    whole = pointwise.select(usual, pointwise.stop_gradient(e), Literal(0, e.aval.dtype))
    return m, pointwise.convert(whole, dtypes.int32)


def _times_power_of_two(x: Any, e: Any) -> Any:
    """x * 2**e in three steps, so that no power overflows where the product does not."""
    part = apply("trunc", pointwise.div(pointwise.stop_gradient(e), 3.0))
    power = apply("exp2", part)
    rest = apply("exp2", pointwise.sub(pointwise.stop_gradient(e), pointwise.mul(part, 2.0)))
    return pointwise.mul(pointwise.mul(pointwise.mul(x, power), power), rest)


def ldexp(x1: Any, x2: Any, /) -> Any:
    """Return x1 * 2**x2 for integers x2.

    >>> fnp.ldexp(fnp.asarray([0.5]), 4)
    Array([8.], dtype=float32)
    """
    (a,), (n,) = floating("ldexp", x1), numbers("ldexp", x2)
    if is_floating(n):
        raise DTypeError(message("ldexp", "the exponent must be an integer", str(n.aval), "convert with astype(int)"))
    a, e = broadcast_args("ldexp", a, pointwise.convert(n, a.aval.dtype))
    return _times_power_of_two(a, e)


def i0(x: Any, /) -> Any:
    """Return the modified Bessel function of the first kind, order 0; it exceeds float32 beyond abs(x) = 91.

    Below 15 by its power series, sum((x/2)^(2k) / (k!)^2), whose terms are positive; above by the asymptotic series
    (NIST DLMF 10.25.2 and 10.40.1), whose 21st term is below 2e-13 there.

    >>> fnp.i0(fnp.asarray([0.0, 1.0]))
    Array([1. , 1.266], dtype=float32)
    """
    (a,) = floating("i0", x)
    size = pointwise.abs(a)
    near = logic.compare("lt", size, 15)
    q = apply("square", pointwise.mul(pointwise.select(near, a, Literal(0, a.aval.dtype)), 0.5))
    series: Any = Literal(1, a.aval.dtype)
    for k in range(40, 0, -1):
        series = pointwise.add(pointwise.mul(pointwise.mul(series, q), 1.0 / (k * k)), 1.0)
    far = pointwise.select(near, Literal(15, a.aval.dtype), size)
    t = pointwise.div(0.125, far)
    tail: Any = Literal(1, a.aval.dtype)
    for k in range(20, 0, -1):
        tail = pointwise.add(pointwise.mul(pointwise.mul(tail, t), (2 * k - 1) ** 2 / k), 1.0)
    # Half of the exponential on either side, so that it overflows no earlier than the result.
    root = apply("exp", pointwise.mul(far, 0.5))
    tail = pointwise.mul(pointwise.mul(root, pointwise.div(tail, apply("sqrt", pointwise.mul(far, 2 * math.pi)))), root)
    return pointwise.select(near, series, pointwise.select(logic.isfinite(a), tail, size))


# -- real numbers as complex ones --------------------------------------------------------------------------------
def real(val: Any, /) -> Any:
    """Return the real part: the array itself.

    >>> fnp.real(fnp.asarray([1, 2]))
    Array([1, 2], dtype=int32)
    """
    return array_of("real", val)


def imag(val: Any, /) -> Any:
    """Return the imaginary part: zeros.

    >>> fnp.imag(fnp.asarray([1, 2]))
    Array([0, 0], dtype=int32)
    """
    a = array_of("imag", val)
    return filled(a.aval.shape, 0, a.aval.dtype) if a.aval.shape else pointwise.mul(a, 0)


def conj(x: Any, /) -> Any:
    """Return the complex conjugate: the array itself.

    >>> fnp.conj(fnp.asarray([1, 2]))
    Array([1, 2], dtype=int32)
    """
    return array_of("conj", x)


conjugate = conj


def _constant(value: bool, x: Any) -> Any:
    shape = array_of("isreal", x).aval.shape
    literal = Literal(value, dtypes.bool_)
    return layout.broadcast(literal, shape, ()) if shape else apply("copy", literal)


def isreal(x: Any, /) -> Any:
    """Return whether each element is real: True.

    >>> fnp.isreal(fnp.asarray([1, 2]))
    Array([ True,  True], dtype=bool)
    """
    return _constant(True, x)


def iscomplex(x: Any, /) -> Any:
    """Return whether each element is complex: False.

    >>> fnp.iscomplex(fnp.asarray([1, 2]))
    Array([False, False], dtype=bool)
    """
    return _constant(False, x)
