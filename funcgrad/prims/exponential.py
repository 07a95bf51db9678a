"""Exponentials, logarithms, roots and the square."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.primitive import dataclass, example
from funcgrad.prims.operations import add, div_nz, mul, square, sub
from funcgrad.prims.unary import Reciprocal, Unary, points


@dataclass(frozen=True)
class Exp(Unary):
    """e to the power x."""

    name = "exp"
    fn = np.exp
    examples = points()

    def derivative(self, out: Any, x: Any) -> Any:
        return out


@dataclass(frozen=True)
class Exp2(Unary):
    """2 to the power x."""

    name = "exp2"
    fn = np.exp2
    examples = points()

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(out, math.log(2))


@dataclass(frozen=True)
class Expm1(Unary):
    """exp(x) - 1, exact near 0."""

    name = "expm1"
    fn = np.expm1
    examples = points()

    def derivative(self, out: Any, x: Any) -> Any:
        return add(out, 1)


@dataclass(frozen=True)
class Log(Reciprocal):
    """The natural logarithm."""

    name = "log"
    fn = np.log
    examples = points(0.2)

    def denominator(self, out: Any, x: Any) -> Any:
        return x


@dataclass(frozen=True)
class Log2(Reciprocal):
    """The logarithm to base 2."""

    name = "log2"
    fn = np.log2
    examples = points(0.2)

    def denominator(self, out: Any, x: Any) -> Any:
        return mul(x, math.log(2))


@dataclass(frozen=True)
class Log1p(Reciprocal):
    """log(1 + x), exact near 0."""

    name = "log1p"
    fn = np.log1p
    examples = points(-0.7)

    def denominator(self, out: Any, x: Any) -> Any:
        return add(x, 1)


@dataclass(frozen=True)
class Logistic(Unary):
    """1 / (1 + exp(-x))."""

    name = "logistic"
    bounded = True
    examples = points()

    def eval(self, *xs: Any) -> Any:
        e = np.exp(-np.abs(xs[0]))
        one = np.ones((), e.dtype)
        return np.where(xs[0] >= 0, one, e) / (one + e)

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(out, sub(1.0, out))


@dataclass(frozen=True)
class Sqrt(Reciprocal):
    """The square root; its derivative at 0 is infinite."""

    name = "sqrt"
    fn = np.sqrt
    examples = points(0.2)

    def denominator(self, out: Any, x: Any) -> Any:
        return mul(out, 2)


@dataclass(frozen=True)
class Rsqrt(Unary):
    """1 / sqrt(x)."""

    name = "rsqrt"
    examples = points(0.2)

    def eval(self, *xs: Any) -> Any:
        return np.ones((), xs[0].dtype) / np.sqrt(xs[0])

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(div_nz(out, x), -0.5)


@dataclass(frozen=True)
class Cbrt(Reciprocal):
    """The real cube root."""

    name = "cbrt"
    fn = np.cbrt
    examples = points(0.2)

    def denominator(self, out: Any, x: Any) -> Any:
        return mul(square(out), 3)


@dataclass(frozen=True)
class Square(Unary):
    """x * x."""

    name = "square"
    accepts = dtypes.FLOATS | dtypes.INTS
    fn = np.square
    examples = [*points(), example("i32[3]", smooth=False)]

    def derivative(self, out: Any, x: Any) -> Any:
        return mul(x, 2)
