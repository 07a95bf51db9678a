"""Extrema, selection, signs and conversions: pointwise primitives that pass numbers on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.primitive import Arg, Pointwise, apply, dataclass, example, sum_to_shape
from funcgrad.prims.arithmetic import FLOATS, INT_PAIRS, NUMBERS, both
from funcgrad.prims.operations import (
    add,
    convert,
    div_nz,
    equal,
    like,
    neg,
    select,
    sign,
    square,
)


def _max_share(x: Any, y: Any, out: Any) -> Any:
    return select(equal(x, y), like(out, 0.5), select(equal(x, out), like(out, 1), like(out, 0)))


@dataclass(frozen=True)
class Maximum(Pointwise):
    """The larger of x and y; NaN wins; ties share the gradient equally."""

    name = "max"
    bounded = True
    examples = [*both(), *INT_PAIRS]

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
    examples = [*both(), *INT_PAIRS]

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
    examples = both(low=0.3)

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
            lambda: sum_to_shape(select(c, ct, like(ct, 0)), x.aval),
            lambda: sum_to_shape(select(c, like(ct, 0), ct), y.aval),
        )

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        _, tx, ty = ts
        zero = like(out, 0)
        t = select(xs[0], zero if tx is None else tx, zero if ty is None else ty)
        return t if t.aval.shape == out.aval.shape else apply("broadcast", t, shape=out.aval.shape, dims=())


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
