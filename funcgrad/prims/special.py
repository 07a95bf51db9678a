"""The error function, the gamma function, and their kin.

Truth outside numpy: the C library's through :mod:`math` in float64, and the series named in the docstrings.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from funcgrad.primitive import Arg, dataclass, example
from funcgrad.prims.exponential import Exp
from funcgrad.prims.operations import mul, neg, square
from funcgrad.prims.unary import Unary, points, vectorize
from funcgrad.trace import bind

SQRT_PI = math.sqrt(math.pi)


@dataclass(frozen=True)
class Erf(Unary):
    """The error function: 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x."""

    name = "erf"
    fn = vectorize(math.erf)
    bounded = True
    examples = points()

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(bind(Exp(), neg(square(x))), 2 / SQRT_PI)


@dataclass(frozen=True)
class Erfc(Unary):
    """1 - erf(x), exact for large x."""

    name = "erfc"
    fn = vectorize(math.erfc)
    bounded = True
    examples = points()

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
    fn = vectorize(_erf_inv)
    examples = points(-0.9, 0.9)

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
    fn = vectorize(_lgamma)
    examples = points(0.4, 4.0)

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Digamma(), x)


def _polygamma(n: int, x: float) -> float:
    """psi^(n)(x) for n >= 0: by reflection to positive x, recurrence to x >= 20, and the asymptotic series.

    NIST DLMF 5.5.4 (differentiated n times), 5.5.2, 5.11.2, 5.15.8-9.
    """
    x, sign = np.float64(x), -1.0 if n % 2 == 0 else 1.0
    if np.isinf(x):
        return (math.inf if n == 0 else 0.0) if x > 0 else math.nan
    if x < 0:
        part = x - np.round(x)
        if part == 0:
            return math.nan
        cotangent = np.cos(np.pi * part) / np.sin(np.pi * part)
        return float(-sign * _polygamma(n, 1 - x) - np.pi ** (n + 1) * np.polyval(_cotangent_derivative(n), cotangent))
    total, factorial = np.float64(0), math.factorial(n)
    while x < 20:
        total += factorial / x ** (n + 1)
        x += 1
    powers = range(1, len(_BERNOULLI) + 1)
    if n == 0:
        series = np.log(x) - 0.5 / x - sum(b / (2 * k * x ** (2 * k)) for k, b in zip(powers, _BERNOULLI, strict=True))
        return float(series - total)
    series = math.factorial(n - 1) / x**n + factorial / (2 * x ** (n + 1))
    for k, b in zip(powers, _BERNOULLI, strict=True):
        series += b * math.factorial(2 * k + n - 1) / (math.factorial(2 * k) * x ** (2 * k + n))
    return float(sign * (total + series))


def _cotangent_derivative(n: int) -> list[float]:
    """The polynomial p, highest power first, with d^n/dx^n cot x = p(cot x): each derivative is -(1 + c^2) p'(c)."""
    p = np.poly1d([1.0, 0.0])
    for _ in range(n):
        p = np.poly1d([-1.0, 0.0, -1.0]) * p.deriv()
    return [float(c) for c in p.coeffs]


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


@dataclass(frozen=True)
class Digamma(Unary):
    """The derivative of the logarithm of the gamma function."""

    name = "digamma"
    fn = vectorize(lambda x: _polygamma(0, x))
    examples = [*points(0.4, 4.0), example(Arg("f32[4]", values=[-0.4, -1.7, -2.3, 0.2]))]

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Polygamma(1), x)


@dataclass(frozen=True)
class Polygamma(Unary):
    """The derivative of order ``n`` >= 1 of the digamma function."""

    n: int
    name = "polygamma"
    examples = [
        example(Arg("f32[2,3]", 0.4, 4.0), n=1),
        example(Arg("f32[3]", 0.5, 4.0), n=2),
        example(Arg("f32[4]", values=[-0.4, -1.7, -2.3, 0.2]), n=1),
        example(Arg("f32[4]", values=[-0.4, -1.7, -2.3, 0.2]), n=2),
    ]

    def eval(self, *xs: Any) -> Any:
        return vectorize(lambda x: _polygamma(self.n, x))(xs[0])

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Polygamma(self.n + 1), x)

    def lower(self, g: Any, *xs: Any) -> Any:
        return polygamma_program(g, self.n, xs[0])


def polygamma_program(g: Any, n: int, x: Any) -> Any:
    """Polygamma as instructions: negative x by reflection, as in the reference."""

    def const(value: float) -> Any:
        return g.const(value, x.dtype)

    negative = g.op("lt", x, const(0.0))
    value = _positive_program(g, n, g.op("select", negative, g.op("sub", const(1.0), x), x))
    part = g.op("mul", g.op("sub", x, g.op("round", x)), const(math.pi))
    sine = g.op("sin", part)
    cotangent = g.op("div", g.op("cos", part), sine)
    first, *rest = _cotangent_derivative(n)
    p = const(first)
    for c in rest:
        p = g.op("add", g.op("mul", p, cotangent), const(c))
    value_here = value if n % 2 == 0 else g.op("neg", value)
    reflected = g.op("sub", value_here, g.op("mul", p, const(math.pi ** (n + 1))))
    reflected = g.op("select", g.op("eq", sine, const(0.0)), const(math.nan), reflected)
    return g.op("select", negative, reflected, value)


def _positive_program(g: Any, n: int, x: Any) -> Any:
    """Polygamma for x >= 0: eight steps of the recurrence, then the asymptotic series."""
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
    half = g.op("mul", inverse, g.const(factorial / 2, x.dtype))
    head = g.op("add", g.const(float(math.factorial(n - 1)), x.dtype), half)
    series = g.op("mul", g.op("add", head, tail), _power(g, inverse, n))
    return g.op("mul", g.op("add", total, series), g.const(sign, x.dtype))


def _power(g: Any, x: Any, n: int) -> Any:
    out = x
    for _ in range(n - 1):
        out = g.op("mul", out, x)
    return out
