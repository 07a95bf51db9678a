"""Arithmetic: the pointwise primitives whose result is a number, and their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import Arg, Pointwise, accumulate, apply, example, operands, sum_to_shape
from funcgrad.trace import bind

FLOATS = dtypes.FLOATS
NUMBERS = dtypes.FLOATS | dtypes.INTS


def _both(dtype: str = "f32", low: float = -2.0, high: float = 2.0) -> list[Any]:
    """Two operands of one shape, an array beside a scalar, scalars, and empty arrays."""
    shapes = [("[2,3]", "[2,3]"), ("[2,3]", "[]"), ("[]", "[4]"), ("[]", "[]"), ("[0,3]", "[0,3]")]
    return [example(Arg(dtype + a, low, high), Arg(dtype + b, low, high)) for a, b in shapes]


INT_PAIRS = [
    example("i32[2,3]", "i32[2,3]", smooth=False),
    example(Arg("u32[5]", 0, 9), Arg("u32[]", 1, 9), smooth=False),
]


# -- two operands ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Add(Pointwise):
    """x + y."""

    name = "add"
    accepts = NUMBERS
    bounded = True
    examples = [*_both(), *INT_PAIRS]

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
    examples = [*_both(), *INT_PAIRS]

    def eval(self, *xs: Any) -> Any:
        return np.subtract(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return 1, -1


@dataclass(frozen=True)
class Mul(Pointwise):
    """x * y."""

    name = "mul"
    accepts = NUMBERS
    examples = [*_both(), *INT_PAIRS]

    def eval(self, *xs: Any) -> Any:
        return np.multiply(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return xs[1], xs[0]


@dataclass(frozen=True)
class MulNz(Pointwise):
    """x * y, but 0 where either is 0, whatever the other is: the product of the chain rule."""

    name = "mul_nz"
    accepts = FLOATS
    examples = _both(low=0.2)

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
    examples = [*_both(low=0.5), example("i32[6]", Arg("i32[6]", values=[0, 1, -1, 2, 3, -3]), smooth=False)]

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
    examples = _both(low=0.5)

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
    examples = [*_both(low=0.7), example("i32[6]", Arg("i32[6]", values=[0, 1, -1, 2, 3, -3]), smooth=False)]

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
    examples = _both(low=0.3)

    def eval(self, *xs: Any) -> Any:
        return np.power(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        x, y = xs

        def by_x() -> Any:
            return mul_nz(y, pow(x, select(_eq(y, 0), _like(y, 1), sub(y, 1))))

        def by_y() -> Any:
            return mul_nz(log(select(_eq(x, 0), _like(x, 1), x)), out)

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
            return g.op("add", g.op("mul", g.op("mov", xs[0]), g.const(0, xs[0].dtype)), g.const(1, xs[0].dtype))
        square, power, n = xs[0], None, self._size()
        while n:
            if n & 1:
                power = square if power is None else g.op("mul", power, square)
            n >>= 1
            square = g.op("mul", square, square) if n else square
        return g.op("recip", power) if self.n < 0 else g.op("mov", power)


def _max_share(x: Any, y: Any, out: Any) -> Any:
    return select(_eq(x, y), _like(out, 0.5), select(_eq(x, out), _like(out, 1), _like(out, 0)))


@dataclass(frozen=True)
class Maximum(Pointwise):
    """The larger of x and y; NaN wins; ties share the gradient equally."""

    name = "max"
    bounded = True
    examples = [*_both(), *INT_PAIRS]

    def eval(self, *xs: Any) -> Any:
        return np.maximum(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        x, y = xs
        return lambda: _max_share(x, y, out), lambda: _max_share(y, x, out)


@dataclass(frozen=True)
class Minimum(Pointwise):
    """The smaller of x and y; NaN wins; ties share the gradient equally."""

    name = "min"
    bounded = True
    examples = [*_both(), *INT_PAIRS]

    def eval(self, *xs: Any) -> Any:
        return np.minimum(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        x, y = xs
        return lambda: _max_share(x, y, out), lambda: _max_share(y, x, out)


@dataclass(frozen=True)
class Atan2(Pointwise):
    """The angle of the point (y, x)."""

    name = "atan2"
    accepts = FLOATS
    examples = _both(low=0.3)

    def eval(self, *xs: Any) -> Any:
        return np.arctan2(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        y, x = xs
        return lambda: div_nz(x, add(square(x), square(y))), lambda: neg(div_nz(y, add(square(x), square(y))))


@dataclass(frozen=True)
class NextAfter(Pointwise):
    """The float next to x in the direction of y."""

    name = "nextafter"
    accepts = FLOATS
    examples = [example("f32[2,3]", "f32[2,3]", smooth=False)]

    def eval(self, *xs: Any) -> Any:
        return np.nextafter(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return 1, None


# -- a choice ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Select(Pointwise):
    """x where the condition holds, else y; exact forward and backward."""

    name = "select"
    bounded = True
    examples = [
        example(Arg("bool[2,3]", 0, 1), "f32[2,3]", "f32[2,3]"),
        example(Arg("bool[2,3]", 0, 1), "f32[]", "f32[2,3]"),
        example(Arg("bool[]", 0, 1), "f32[2,3]", "f32[2,3]"),
        example(Arg("bool[0]", 0, 1), "f32[0]", "f32[0]"),
        example(Arg("bool[4]", 0, 1), "i32[4]", "i32[]", smooth=False),
        example(Arg("bool[4]", 0, 1), Arg("bool[4]", 0, 1), Arg("bool[4]", 0, 1), smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        c, x, y = avals
        if c.dtype != dtypes.bool_:
            raise self.dtype_error("the condition must be bool", *avals, way_out="compare, e.g. c != 0")
        if x.dtype != y.dtype:
            raise self.dtype_error("both choices must have one dtype", *avals, way_out="convert with astype")
        return Aval(self.join(avals), x.dtype)

    def eval(self, *xs: Any) -> Any:
        return np.where(*xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        c, x, y = xs
        return (
            None,
            lambda: sum_to_shape(select(c, ct, _like(ct, 0)), x.aval),
            lambda: sum_to_shape(select(c, _like(ct, 0), ct), y.aval),
        )

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        _, tx, ty = ts
        zero = _like(out, 0)
        t = select(xs[0], zero if tx is None else tx, zero if ty is None else ty)
        return t if t.aval.shape == out.aval.shape else apply("broadcast", t, shape=out.aval.shape, dims=())


# -- one operand -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Neg(Pointwise):
    """-x; wraps for uint32."""

    name = "neg"
    accepts = NUMBERS
    bounded = True
    examples = [example("f32[2,3]"), example("f32[]"), example("f32[0,2]"), example("i32[3]", smooth=False)]

    def eval(self, *xs: Any) -> Any:
        return np.negative(xs[0])

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return [-1]


@dataclass(frozen=True)
class Abs(Pointwise):
    """The absolute value; its derivative at 0 is 0."""

    name = "abs"
    accepts = NUMBERS
    bounded = True
    examples = [example("f32[2,3]"), example("f32[]"), example("i32[3]", smooth=False)]

    def eval(self, *xs: Any) -> Any:
        return np.abs(xs[0])

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: sign(xs[0])]


@dataclass(frozen=True)
class Copy(Pointwise):
    """x itself, in memory of its own."""

    name = "copy"
    op = "mov"
    bounded = True
    examples = [example("f32[2,3]"), example("i32[2]", smooth=False), example(Arg("bool[3]", 0, 1), smooth=False)]

    def eval(self, *xs: Any) -> Any:
        return np.array(xs[0])

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return [1]


@dataclass(frozen=True)
class StopGradient(Pointwise):
    """x itself, with derivative 0."""

    name = "stop_gradient"
    op = "mov"
    examples = [example("f32[2,3]", smooth=False)]

    def eval(self, *xs: Any) -> Any:
        return np.array(xs[0])

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return [None]


@dataclass(frozen=True)
class Convert(Pointwise):
    """x in another dtype: floats truncate towards zero and saturate as integers, NaN becomes 0; bool means not 0."""

    to: np.dtype[Any]
    name = "convert"
    bounded = True
    examples = [
        example("f32[2,3]", to=dtypes.float16, smooth=False),
        example("f16[2,3]", to=dtypes.float32, smooth=False),
        example("f32[2,3]", to=dtypes.bfloat16, smooth=False),
        example(Arg("f32[5]", values=[1.5, -2.7, 3e9, -3e9, np.nan]), to=dtypes.int32, smooth=False),
        example(Arg("f32[3]", 0, 9), to=dtypes.uint32, smooth=False),
        example("i32[2,3]", to=dtypes.float32, smooth=False),
        example(Arg("i32[2]", values=[-1, 7]), to=dtypes.uint32, smooth=False),
        example(Arg("u32[2]", values=[2**32 - 1, 7]), to=dtypes.float32, smooth=False),
        example("f32[2,3]", to=dtypes.bool_, smooth=False),
        example(Arg("bool[4]", 0, 1), to=dtypes.float32, smooth=False),
        example("i32[0]", to=dtypes.bool_, smooth=False),
    ]

    def result_dtype(self, dtype: Any) -> Any:
        return self.to

    def eval(self, *xs: Any) -> Any:
        x = xs[0]
        if x.dtype.kind == "f" and self.to in dtypes.INTS:
            info = np.iinfo(self.to)
            whole = np.where(np.isnan(x), 0, np.trunc(x.astype(np.float64)))
            return np.clip(whole, info.min, info.max).astype(self.to)
        return dtypes.narrow(x, self.to)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        from_dtype = xs[0].aval.dtype
        return [(lambda: convert(ct, from_dtype)) if from_dtype in FLOATS and self.to in FLOATS else None]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return convert(ts[0], self.to) if self.to in FLOATS else None

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.convert(xs[0], self.to)


def _like(x: Any, value: float) -> Literal:
    return Literal(value, x.aval.dtype)


def _eq(x: Any, y: Any) -> Any:
    return apply("eq", x, y)


# -- the operations as functions ---------------------------------------------------------------------------------
def add(x: Any, y: Any) -> Any:
    """x + y for operands of one dtype and one shape (or scalars)."""
    return bind(Add(), *operands(x, y))


def sub(x: Any, y: Any) -> Any:
    """x - y."""
    return bind(Sub(), *operands(x, y))


def mul(x: Any, y: Any) -> Any:
    """x * y."""
    return bind(Mul(), *operands(x, y))


def mul_nz(x: Any, y: Any) -> Any:
    """x * y, 0 where either is 0."""
    return bind(MulNz(), *operands(x, y))


def div(x: Any, y: Any) -> Any:
    """x / y, truncated for integers."""
    return bind(Div(), *operands(x, y))


def div_nz(x: Any, y: Any) -> Any:
    """x / y, 0 where x is 0."""
    return bind(DivNz(), *operands(x, y))


def rem(x: Any, y: Any) -> Any:
    """The remainder of truncated division."""
    return bind(Rem(), *operands(x, y))


def pow(x: Any, y: Any) -> Any:
    """x to the power y."""
    return bind(Pow(), *operands(x, y))


def integer_pow(x: Any, n: int) -> Any:
    """x to the integer power n."""
    return bind(IntegerPow(n), x)


def maximum(x: Any, y: Any) -> Any:
    """The larger of x and y."""
    return bind(Maximum(), *operands(x, y))


def minimum(x: Any, y: Any) -> Any:
    """The smaller of x and y."""
    return bind(Minimum(), *operands(x, y))


def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (y, x)."""
    return bind(Atan2(), *operands(y, x))


def nextafter(x: Any, y: Any) -> Any:
    """The float next to x towards y."""
    return bind(NextAfter(), *operands(x, y))


def select(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y."""
    return bind(Select(), condition, *operands(x, y))


def neg(x: Any) -> Any:
    """-x."""
    return bind(Neg(), x)


def abs(x: Any) -> Any:
    """The absolute value."""
    return bind(Abs(), x)


def copy(x: Any) -> Any:
    """x in memory of its own."""
    return bind(Copy(), x)


def stop_gradient(x: Any) -> Any:
    """x with derivative 0."""
    return bind(StopGradient(), x)


def convert(x: Any, dtype: Any) -> Any:
    """x in another dtype."""
    return x if x.aval.dtype == dtype else bind(Convert(dtype), x)


def sign(x: Any) -> Any:
    """-1, 0 or 1."""
    return apply("sign", x)


def square(x: Any) -> Any:
    """x * x."""
    return apply("square", x)


def log(x: Any) -> Any:
    """The natural logarithm."""
    return apply("log", x)


def trunc(x: Any) -> Any:
    """x rounded towards zero."""
    return apply("trunc", x)
