"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad.primitive import dataclass
from funcgrad.prims.exponential import Sqrt
from funcgrad.prims.operations import add, mul, neg, square, sub
from funcgrad.prims.unary import Reciprocal, Unary, points
from funcgrad.trace import bind


@dataclass(frozen=True)
class Sin(Unary):
    """The sine of an angle in radians."""

    name = "sin"
    fn = np.sin
    bounded = True
    examples = points()

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Cos(), x)


@dataclass(frozen=True)
class Cos(Unary):
    """The cosine of an angle in radians."""

    name = "cos"
    fn = np.cos
    bounded = True
    examples = points()

    def derivative(self, out: Any, x: Any) -> Any:
        return neg(bind(Sin(), x))


@dataclass(frozen=True)
class Tan(Unary):
    """The tangent of an angle in radians."""

    name = "tan"
    fn = np.tan
    examples = points(-1.2, 1.2)

    def derivative(self, out: Any, x: Any) -> Any:
        return add(square(out), 1)


@dataclass(frozen=True)
class Asin(Reciprocal):
    """The angle whose sine is x."""

    name = "asin"
    fn = np.arcsin
    examples = points(-0.8, 0.8)

    def denominator(self, out: Any, x: Any) -> Any:
        return bind(Sqrt(), _one_minus_square(x))


@dataclass(frozen=True)
class Acos(Reciprocal):
    """The angle whose cosine is x."""

    name = "acos"
    fn = np.arccos
    examples = points(-0.8, 0.8)

    def denominator(self, out: Any, x: Any) -> Any:
        return neg(bind(Sqrt(), _one_minus_square(x)))


@dataclass(frozen=True)
class Atan(Reciprocal):
    """The angle whose tangent is x."""

    name = "atan"
    fn = np.arctan
    examples = points()

    def denominator(self, out: Any, x: Any) -> Any:
        return add(square(x), 1)


@dataclass(frozen=True)
class Sinh(Unary):
    """The hyperbolic sine."""

    name = "sinh"
    fn = np.sinh
    examples = points()

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Cosh(), x)


@dataclass(frozen=True)
class Cosh(Unary):
    """The hyperbolic cosine."""

    name = "cosh"
    fn = np.cosh
    examples = points()

    def derivative(self, out: Any, x: Any) -> Any:
        return bind(Sinh(), x)


@dataclass(frozen=True)
class Tanh(Unary):
    """The hyperbolic tangent."""

    name = "tanh"
    fn = np.tanh
    bounded = True
    examples = points()

    def derivative(self, out: Any, x: Any) -> Any:
        return sub(1.0, square(out))


@dataclass(frozen=True)
class Asinh(Reciprocal):
    """The inverse hyperbolic sine."""

    name = "asinh"
    fn = np.arcsinh
    examples = points()

    def denominator(self, out: Any, x: Any) -> Any:
        return bind(Sqrt(), add(square(x), 1))


@dataclass(frozen=True)
class Acosh(Reciprocal):
    """The inverse hyperbolic cosine."""

    name = "acosh"
    fn = np.arccosh
    examples = points(1.3, 3.0)

    def denominator(self, out: Any, x: Any) -> Any:
        return bind(Sqrt(), mul(sub(x, 1.0), add(x, 1)))


@dataclass(frozen=True)
class Atanh(Reciprocal):
    """The inverse hyperbolic tangent."""

    name = "atanh"
    fn = np.arctanh
    examples = points(-0.8, 0.8)

    def denominator(self, out: Any, x: Any) -> Any:
        return _one_minus_square(x)


def _one_minus_square(x: Any) -> Any:
    return mul(sub(1.0, x), add(x, 1))
