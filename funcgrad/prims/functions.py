"""Elementary and special functions of one float operand, with their derivatives, and rounding.

Truth for special functions outside numpy: the C library's through :mod:`math` in float64, and the series named in the docstrings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from funcgrad import dtypes
from funcgrad.primitive import Arg, Pointwise, apply, example
from funcgrad.prims.pointwise import add, div, div_nz, mul, mul_nz, neg, square, sub
from funcgrad.trace import bind

SQRT_PI = math.sqrt(math.pi)


def _points(low: float = -2.0, high: float = 2.0, smooth: bool = True) -> list[Any]:
    shapes = ("f32[2,3]", "f32[]", "f32[0,3]")
    return [example(Arg(s, low, high), smooth=smooth) for s in shapes] + [example(Arg("f16[4]", low, high), smooth=False)]


class Unary(Pointwise):
    """A function of one float; ``fn`` is its numpy reference and ``derivative(out, x)`` its derivative."""

    accepts = dtypes.FLOATS
    fn: ClassVar[Callable[..., Any]]

    def eval(self, *xs: Any) -> Any:
        return type(self).fn(xs[0])

    def derivative(self, out: Any, x: Any) -> Any:
        """The derivative at x, given out = f(x)."""
        raise self._missing("derivative")

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: self.derivative(out, xs[0])]


class Reciprocal(Unary):
    """A function whose derivative is 1 / ``denominator``: the cotangent is divided, 0 staying 0."""

    def denominator(self, out: Any, x: Any) -> Any:
        """What to divide by."""
        raise self._missing("denominator")

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: div_nz(ct, self.denominator(out, xs[0]))]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return div_nz(ts[0], self.denominator(out, xs[0]))


class Step(Unary):
    """A piecewise constant function: its derivative is 0."""

    accepts = dtypes.FLOATS

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return [None]


def _vectorize(fn: Callable[[float], float], dtype_out: Any = None) -> Callable[..., Any]:
    wide = np.vectorize(fn, otypes=[np.float64])

    def apply_fn(x: Any) -> Any:
        return wide(np.asarray(x, np.float64)).astype(x.dtype) if np.size(x) else np.zeros_like(x)

    return apply_fn


# -- exponentials ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Exp(Unary):
    """e to the power x."""

    name = "exp"
    fn = np.exp
    examples = _points()

    def derivative(self, out: Any, x: Any) -> Any:
        return out


@dataclass(frozen=True)
class Exp2(Unary):
    """2 to the power x."""

    name = "exp2"
    fn = np.exp2
    examples = _points()

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(out, math.log(2))


@dataclass(frozen=True)
class Expm1(Unary):
    """exp(x) - 1, exact near 0."""

    name = "expm1"
    fn = np.expm1
    examples = _points()

    def derivative(self, out: Any, x: Any) -> Any:
        return add(out, 1)


@dataclass(frozen=True)
class Log(Reciprocal):
    """The natural logarithm."""

    name = "log"
    fn = np.log
    examples = _points(0.2)

    def denominator(self, out: Any, x: Any) -> Any:
        return x


@dataclass(frozen=True)
class Log2(Reciprocal):
    """The logarithm to base 2."""

    name = "log2"
    fn = np.log2
    examples = _points(0.2)

    def denominator(self, out: Any, x: Any) -> Any:
        return mul(x, math.log(2))


@dataclass(frozen=True)
class Log1p(Reciprocal):
    """log(1 + x), exact near 0."""

    name = "log1p"
    fn = np.log1p
    examples = _points(-0.7)

    def denominator(self, out: Any, x: Any) -> Any:
        return add(x, 1)


@dataclass(frozen=True)
class Logistic(Unary):
    """1 / (1 + exp(-x))."""

    name = "logistic"
    bounded = True
    examples = _points()

    def eval(self, *xs: Any) -> Any:
        e = np.exp(-np.abs(xs[0]))
        one = np.ones((), e.dtype)
        return np.where(xs[0] >= 0, one, e) / (one + e)

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(out, sub(1.0, out))


# -- powers ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sqrt(Reciprocal):
    """The square root; its derivative at 0 is infinite."""

    name = "sqrt"
    fn = np.sqrt
    examples = _points(0.2)

    def denominator(self, out: Any, x: Any) -> Any:
        return mul(out, 2)


@dataclass(frozen=True)
class Rsqrt(Unary):
    """1 / sqrt(x)."""

    name = "rsqrt"
    examples = _points(0.2)

    def eval(self, *xs: Any) -> Any:
        return np.ones((), xs[0].dtype) / np.sqrt(xs[0])

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(div_nz(out, x), -0.5)


@dataclass(frozen=True)
class Cbrt(Reciprocal):
    """The real cube root."""

    name = "cbrt"
    fn = np.cbrt
    examples = _points(0.2)

    def denominator(self, out: Any, x: Any) -> Any:
        return mul(square(out), 3)


@dataclass(frozen=True)
class Square(Unary):
    """x * x."""

    name = "square"
    accepts = dtypes.FLOATS | dtypes.INTS
    fn = np.square
    examples = [*_points(), example("i32[3]", smooth=False)]

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(x, 2)


# -- circular ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sin(Unary):
    """The sine of an angle in radians."""

    name = "sin"
    fn = np.sin
    bounded = True
    examples = _points()

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Cos(), x)


@dataclass(frozen=True)
class Cos(Unary):
    """The cosine of an angle in radians."""

    name = "cos"
    fn = np.cos
    bounded = True
    examples = _points()

    def derivative(self, out: Any, x: Any) -> Any:
        return neg(bind(Sin(), x))


@dataclass(frozen=True)
class Tan(Unary):
    """The tangent of an angle in radians."""

    name = "tan"
    fn = np.tan
    examples = _points(-1.2, 1.2)

    def derivative(self, out: Any, x: Any) -> Any:
        return add(square(out), 1)


@dataclass(frozen=True)
class Asin(Reciprocal):
    """The angle whose sine is x."""

    name = "asin"
    fn = np.arcsin
    examples = _points(-0.8, 0.8)

    def denominator(self, out: Any, x: Any) -> Any:
        return bind(Sqrt(), _one_minus_square(x))


@dataclass(frozen=True)
class Acos(Reciprocal):
    """The angle whose cosine is x."""

    name = "acos"
    fn = np.arccos
    examples = _points(-0.8, 0.8)

    def denominator(self, out: Any, x: Any) -> Any:
        return neg(bind(Sqrt(), _one_minus_square(x)))


@dataclass(frozen=True)
class Atan(Reciprocal):
    """The angle whose tangent is x."""

    name = "atan"
    fn = np.arctan
    examples = _points()

    def denominator(self, out: Any, x: Any) -> Any:
        return add(square(x), 1)


# -- hyperbolic --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sinh(Unary):
    """The hyperbolic sine."""

    name = "sinh"
    fn = np.sinh
    examples = _points()

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Cosh(), x)


@dataclass(frozen=True)
class Cosh(Unary):
    """The hyperbolic cosine."""

    name = "cosh"
    fn = np.cosh
    examples = _points()

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Sinh(), x)


@dataclass(frozen=True)
class Tanh(Unary):
    """The hyperbolic tangent."""

    name = "tanh"
    fn = np.tanh
    bounded = True
    examples = _points()

    def derivative(self, out: Any, x: Any) -> Any:
        return sub(1.0, square(out))


@dataclass(frozen=True)
class Asinh(Reciprocal):
    """The inverse hyperbolic sine."""

    name = "asinh"
    fn = np.arcsinh
    examples = _points()

    def denominator(self, out: Any, x: Any) -> Any:
        return bind(Sqrt(), add(square(x), 1))


@dataclass(frozen=True)
class Acosh(Reciprocal):
    """The inverse hyperbolic cosine."""

    name = "acosh"
    fn = np.arccosh
    examples = _points(1.3, 3.0)

    def denominator(self, out: Any, x: Any) -> Any:
        return bind(Sqrt(), mul(sub(x, 1.0), add(x, 1)))


@dataclass(frozen=True)
class Atanh(Reciprocal):
    """The inverse hyperbolic tangent."""

    name = "atanh"
    fn = np.arctanh
    examples = _points(-0.8, 0.8)

    def denominator(self, out: Any, x: Any) -> Any:
        return _one_minus_square(x)


def _one_minus_square(x: Any) -> Any:
    return mul(sub(1.0, x), add(x, 1))


# -- error function and gamma ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Erf(Unary):
    """The error function: 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x."""

    name = "erf"
    fn = _vectorize(math.erf)
    bounded = True
    examples = _points()

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(bind(Exp(), neg(square(x))), 2 / SQRT_PI)


@dataclass(frozen=True)
class Erfc(Unary):
    """1 - erf(x), exact for large x."""

    name = "erfc"
    fn = _vectorize(math.erfc)
    bounded = True
    examples = _points()

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(bind(Exp(), neg(square(x))), -2 / SQRT_PI)


def _erf_inv(y: float) -> float:
    """Newton's method on erf from Winitzki's approximation (2008, "A handy approximation for the error function")."""
    if not -1 < y < 1:
        return math.copysign(math.inf, y) if abs(y) == 1 else math.nan
    if y == 0 or math.isnan(y):
        return y
    a, ln = 0.147, math.log1p(-y * y)
    b = 2 / (math.pi * a) + ln / 2
    x = math.copysign(math.sqrt(math.sqrt(b * b - ln / a) - b), y) if ln else y * SQRT_PI / 2
    for _ in range(4):
        error = math.erf(x) - y if abs(y) < 0.9 else math.copysign(math.erfc(-x if y < 0 else x) - (1 - abs(y)), -y)
        error = error if abs(y) < 0.9 else (1 - abs(y) - math.erfc(abs(x))) * math.copysign(1, y)
        slope = 2 / SQRT_PI * math.exp(-x * x)
        x -= error / slope if slope else 0.0
    return x


@dataclass(frozen=True)
class ErfInv(Unary):
    """The inverse of the error function on [-1, 1]."""

    name = "erf_inv"
    fn = _vectorize(_erf_inv)
    examples = _points(-0.9, 0.9)

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(bind(Exp(), square(out)), SQRT_PI / 2)


def _lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.nan if math.isnan(x) else math.lgamma(x)


@dataclass(frozen=True)
class Lgamma(Unary):
    """The logarithm of the absolute value of the gamma function."""

    name = "lgamma"
    fn = _vectorize(_lgamma)
    examples = _points(0.4, 4.0)

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Digamma(), x)


def _polygamma(n: int, x: float) -> float:
    """psi^(n)(x) for n >= 0: upward recurrence to x >= 20, then the asymptotic series (NIST DLMF 5.11.2, 5.15.8-9)."""
    if math.isnan(x) or (x <= 0 and x == math.floor(x)):
        return math.nan
    if math.isinf(x):
        return (math.inf if n == 0 else 0.0) if x > 0 else math.nan
    total, factorial = 0.0, math.factorial(n)
    while x < 20:
        total -= (-1) ** n * factorial / x ** (n + 1)
        x += 1
    if n == 0:
        series = math.log(x) - 0.5 / x - sum(b / (2 * k * x ** (2 * k)) for k, b in enumerate(_BERNOULLI, 1))
        return total + series
    sign = (-1) ** (n + 1)
    series = math.factorial(n - 1) / x**n + factorial / (2 * x ** (n + 1))
    for k, b in enumerate(_BERNOULLI, 1):
        series += b * math.factorial(2 * k + n - 1) / (math.factorial(2 * k) * x ** (2 * k + n))
    return total + sign * series


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


@dataclass(frozen=True)
class Digamma(Unary):
    """The derivative of the logarithm of the gamma function."""

    name = "digamma"
    fn = _vectorize(lambda x: _polygamma(0, x))
    examples = _points(0.4, 4.0)

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Polygamma(1), x)


@dataclass(frozen=True)
class Polygamma(Unary):
    """The derivative of order ``n`` >= 1 of the digamma function."""

    n: int
    name = "polygamma"
    examples = [example(Arg("f32[2,3]", 0.4, 4.0), n=1), example(Arg("f32[3]", 0.5, 4.0), n=2)]

    def eval(self, *xs: Any) -> Any:
        return _vectorize(lambda x: _polygamma(self.n, x))(xs[0])

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Polygamma(self.n + 1), x)

    def lower(self, g: Any, *xs: Any) -> Any:
        return polygamma_program(g, self.n, xs[0])


def polygamma_program(g: Any, n: int, x: Any) -> Any:
    """Polygamma for x > 0 as instructions: eight steps of the recurrence, then the asymptotic series."""
    total: Any = None
    factorial = float(math.factorial(n))
    sign = -1.0 if n % 2 == 0 else 1.0
    for _ in range(8):
        term = g.op("div", g.const(factorial, x.dtype), _power(g, x, n + 1))
        total = term if total is None else g.op("add", total, term)
        x = g.op("add", x, g.const(1.0, x.dtype))
    inverse = g.op("div", g.const(1.0, x.dtype), x)
    square_inverse = g.op("mul", inverse, inverse)
    tail = g.const(0.0, x.dtype)
    for k in range(len(_BERNOULLI), 0, -1):
        c = _BERNOULLI[k - 1] * math.factorial(2 * k + n - 1) / math.factorial(2 * k)
        tail = g.op("mul", g.op("add", tail, g.const(c, x.dtype)), square_inverse)
    head = g.op("add", g.const(float(math.factorial(n - 1)), x.dtype), g.op("mul", inverse, g.const(factorial / 2, x.dtype)))
    series = g.op("mul", g.op("add", head, tail), _power(g, inverse, n))
    return g.op("mul", g.op("add", total, series), g.const(sign, x.dtype))


def _power(g: Any, x: Any, n: int) -> Any:
    out = x
    for _ in range(n - 1):
        out = g.op("mul", out, x)
    return out


# -- rounding and signs ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Floor(Step):
    """The largest integer not above x."""

    name = "floor"
    fn = np.floor
    examples = _points(smooth=False)


@dataclass(frozen=True)
class Ceil(Step):
    """The smallest integer not below x."""

    name = "ceil"
    fn = np.ceil
    examples = _points(smooth=False)


@dataclass(frozen=True)
class Trunc(Step):
    """x rounded towards zero."""

    name = "trunc"
    fn = np.trunc
    examples = _points(smooth=False)


@dataclass(frozen=True)
class Round(Step):
    """x rounded to the nearest integer, halves to even."""

    name = "round"
    fn = np.rint
    examples = [example(Arg("f32[6]", values=[0.5, 1.5, -0.5, 2.5, -2.6, 1e9]), smooth=False), *_points(smooth=False)]


@dataclass(frozen=True)
class Sign(Step):
    """-1, 0 or 1; NaN stays NaN and a zero keeps its sign."""

    name = "sign"
    accepts = dtypes.FLOATS | dtypes.INTS
    examples = [*_points(smooth=False), example("i32[3]", smooth=False), example(Arg("u32[3]", 0, 2), smooth=False)]

    def eval(self, *xs: Any) -> Any:
        x = xs[0]
        return np.where(x == 0, x, np.sign(x)).astype(x.dtype)


# -- the operations as functions ---------------------------------------------------------------------------------
def unary(name: str, x: Any) -> Any:
    """Apply the function ``name`` of this module."""
    return apply(name, x)
