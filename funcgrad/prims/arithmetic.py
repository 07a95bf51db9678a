"""Arithmetic of two numbers, and powers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import Arg, Pointwise, accumulate, apply, dataclass, example, sum_to_shape
from funcgrad.prims.operations import (
    div,
    div_nz,
    equal,
    integer_pow,
    like,
    log,
    mul,
    mul_nz,
    neg,
    pow,
    select,
    sub,
    trunc,
)

FLOATS = dtypes.FLOATS
NUMBERS = dtypes.FLOATS | dtypes.INTS


def both(dtype: str = "f32", low: float = -2.0, high: float = 2.0) -> list[Any]:
    """Two operands of one shape, an array beside a scalar, scalars, and empty arrays."""
    shapes = [("[2,3]", "[2,3]"), ("[2,3]", "[]"), ("[]", "[4]"), ("[]", "[]"), ("[0,3]", "[0,3]")]
    return [example(Arg(dtype + a, low, high), Arg(dtype + b, low, high)) for a, b in shapes]


INT_PAIRS = [
    example("i32[2,3]", "i32[2,3]", smooth=False),
    example(Arg("u32[5]", 0, 9), Arg("u32[]", 1, 9), smooth=False),
]


@dataclass(frozen=True)
class Add(Pointwise):
    """x + y."""

    name = "add"
    accepts = NUMBERS
    bounded = True
    examples = [*both(), *INT_PAIRS]

    def eval(self, *xs: Any) -> Any:
        return np.add(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return 1, 1


@dataclass(frozen=True)
class Sub(Pointwise):
    """x - y."""

    name = "sub"
    accepts = NUMBERS
    bounded = True
    examples = [*both(), *INT_PAIRS]

    def eval(self, *xs: Any) -> Any:
        return np.subtract(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return 1, -1


@dataclass(frozen=True)
class Mul(Pointwise):
    """x * y."""

    name = "mul"
    accepts = NUMBERS
    examples = [*both(), *INT_PAIRS]

    def eval(self, *xs: Any) -> Any:
        return np.multiply(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return xs[1], xs[0]


@dataclass(frozen=True)
class MulNz(Pointwise):
    """x * y, but 0 where either is 0, whatever the other is: the product of the chain rule."""

    name = "mul_nz"
    accepts = FLOATS
    examples = both(low=0.2)

    def eval(self, *xs: Any) -> Any:
        x, y = xs
        return np.where((x == 0) | (y == 0), np.zeros((), x.dtype), x * y)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return xs[1], xs[0]

    def lower(self, g: Any, *xs: Any) -> Any:
        x, y = xs
        if any(isinstance(v, Literal) and np.isfinite(v.item()) and v.item() != 0 for v in xs):
            return g.op("mul", x, y)
        return g.op("mul_nz", x, y)


@dataclass(frozen=True)
class Div(Pointwise):
    """x / y for floats; truncated towards zero for integers (by zero: -1, or all ones for uint32)."""

    name = "div"
    accepts = NUMBERS
    examples = [*both(low=0.5), example("i32[6]", Arg("i32[6]", values=[0, 1, -1, 2, 3, -3]), smooth=False)]

    def eval(self, *xs: Any) -> Any:
        x, y = xs
        return np.divide(x, y) if x.dtype.kind == "f" else _int_divide(x, y)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return _div_vjp(ct, out, *xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return _div_jvp(ts, out, *xs)


@dataclass(frozen=True)
class DivNz(Pointwise):
    """x / y, but 0 where x is 0, whatever y is: the quotient of the chain rule."""

    name = "div_nz"
    accepts = FLOATS
    examples = both(low=0.5)

    def eval(self, *xs: Any) -> Any:
        x, y = xs
        return np.where(x == 0, np.zeros((), x.dtype), x / y)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return _div_vjp(ct, out, *xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return _div_jvp(ts, out, *xs)

    def lower(self, g: Any, *xs: Any) -> Any:
        x, y = xs
        if isinstance(y, Literal) and np.isfinite(y.item()) and y.item() != 0:
            return g.op("div", x, y)
        return g.op("div_nz", x, y)


def _div_vjp(ct: Any, out: Any, x: Any, y: Any) -> Sequence[Any]:
    return (
        lambda: sum_to_shape(div_nz(ct, y), x.aval),
        lambda: sum_to_shape(mul_nz(ct, neg(div_nz(out, y))), y.aval),
    )


def _div_jvp(ts: Sequence[Any], out: Any, x: Any, y: Any) -> Any:
    tx, ty = ts
    total = accumulate(
        None if tx is None else div_nz(tx, y),
        None if ty is None else mul_nz(ty, neg(div_nz(out, y))),
    )
    return total if total.aval.shape == out.aval.shape else apply("broadcast", total, shape=out.aval.shape, dims=())


def _int_divide(x: Any, y: Any) -> Any:
    """Truncating division with XLA's results for a zero divisor and for the one overflow."""
    x, y = np.broadcast_arrays(x, y)
    safe = np.where(y == 0, np.ones((), y.dtype), y)
    wide = x.astype(np.int64), safe.astype(np.int64)
    q = np.abs(wide[0]) // np.abs(wide[1]) * np.sign(wide[0]) * np.sign(wide[1])
    return np.where(y == 0, np.array(-1, np.int64), q).astype(x.dtype)


@dataclass(frozen=True)
class Rem(Pointwise):
    """The remainder of truncated division; it has the sign of x."""

    name = "rem"
    accepts = NUMBERS
    examples = [*both(low=0.7), example("i32[6]", Arg("i32[6]", values=[0, 1, -1, 2, 3, -3]), smooth=False)]

    def eval(self, *xs: Any) -> Any:
        x, y = xs
        if x.dtype.kind == "f":
            return np.fmod(x, y)
        return np.where(y == 0, x, x - _int_divide(x, y) * y).astype(x.dtype)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        x, y = xs
        return 1, lambda: neg(trunc(div(x, y)))


@dataclass(frozen=True)
class Pow(Pointwise):
    """x to the power y, for floats; the derivative by y takes 0 * log 0 as 0."""

    name = "pow"
    accepts = FLOATS
    examples = both(low=0.3)

    def eval(self, *xs: Any) -> Any:
        return np.power(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        x, y = xs

        def by_x() -> Any:
            return mul_nz(y, pow(x, select(equal(y, 0), like(y, 1), sub(y, 1))))

        def by_y() -> Any:
            return mul_nz(log(select(equal(x, 0), like(x, 1), x)), out)

        return by_x, by_y


@dataclass(frozen=True)
class IntegerPow(Pointwise):
    """x to an integer power known when tracing."""

    n: int
    name = "integer_pow"
    accepts = NUMBERS
    examples = [
        example(Arg("f32[2,3]", 0.4), n=3),
        example(Arg("f32[2,3]", 0.4), n=-2),
        example("f32[]", n=2),
        example("f32[3]", n=0),
        example("f32[0]", n=5),
        example("i32[4]", n=3, smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        if self.n < 0 and avals[0].dtype not in FLOATS:
            raise self.dtype_error("a negative power needs floats", *avals, way_out="convert with astype(float)")
        return super().infer(*avals)

    def eval(self, *xs: Any) -> Any:
        x = xs[0]
        y = np.ones_like(x)
        for _ in range(self._size()):
            y = y * x
        return y if self.n >= 0 else np.ones((), x.dtype) / y

    def _size(self) -> int:
        return self.n if self.n >= 0 else -self.n

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        x, n = xs[0], self.n
        return [None if n == 0 else 1 if n == 1 else lambda: mul(integer_pow(x, n - 1), n)]

    def lower(self, g: Any, *xs: Any) -> Any:
        if self.n == 0:
            one = g.const(
                1, xs[0].dtype
            )  # chosen by a comparison of x, so that the result has its shape, and NaN^0 is 1
            return g.op("select", g.op("eq", xs[0], xs[0]), one, one)
        square, power, n = xs[0], None, self._size()
        while n:
            if n & 1:
                power = square if power is None else g.op("mul", power, square)
            n >>= 1
            square = g.op("mul", square, square) if n else square
        return g.op("recip", power) if self.n < 0 else g.op("mov", power)
