"""Parts of arrays: slice beside its transpose pad, concatenate, reverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import Arg, Linear, apply, dataclass, example, map_all
from funcgrad.prims.axes import Ints, broadcast, kept_shape, reduce_sum
from funcgrad.trace import bind


@dataclass(frozen=True)
class Slice(Linear):
    """Elements ``start[i]``, ``start[i] + strides[i]``, ... below ``limit[i]`` along each axis."""

    start: Ints
    limit: Ints
    strides: Ints
    name = "slice"
    examples = [
        example("f32[4,5]", start=(1, 0), limit=(3, 5), strides=(1, 1)),
        example("f32[4,5]", start=(0, 1), limit=(4, 5), strides=(2, 3)),
        example("f32[4]", start=(2,), limit=(2,), strides=(1,)),
        example("f32[2,0]", start=(0, 0), limit=(1, 0), strides=(1, 1)),
        example("i32[4]", start=(1,), limit=(4,), strides=(2,), smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x = avals[0]
        if not len(self.start) == len(self.limit) == len(self.strides) == x.ndim:
            raise self.shape_error(f"start, limit and strides must have {x.ndim} entries", self)
        shape = []
        for a, b, s, n in zip(self.start, self.limit, self.strides, x.shape, strict=True):
            if not (0 <= a <= b <= n and s >= 1):
                raise self.shape_error("0 <= start <= limit <= size and stride >= 1 on each axis", f"{self} for {x}")
            shape.append(-(-(b - a) // s))
        return Aval(shape, x.dtype)

    def eval(self, *xs: Any) -> Any:
        return xs[0][tuple(map(slice, self.start, self.limit, self.strides))]

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        x = xs[0].aval
        high = []
        for a, s, n, m in zip(self.start, self.strides, x.shape, ct.aval.shape, strict=True):
            high.append(n - a - (1 + (m - 1) * s if m else 0))
        interior = tuple([s - 1 for s in self.strides])
        return [lambda: pad(ct, 0, self.start, tuple(high), interior)]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return slice_(xs[0], (0, *self.start), (size, *self.limit), (1, *self.strides)), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.slice(xs[0], self.start, self.limit, self.strides)


@dataclass(frozen=True)
class Pad(Linear):
    """x with ``value`` around it and between its elements; a negative ``low`` or ``high`` cuts."""

    low: Ints
    high: Ints
    interior: Ints
    name = "pad"
    linear = (0, 1)
    examples = [
        example("f32[2,3]", "f32[]", low=(1, 0), high=(0, 2), interior=(0, 0)),
        example("f32[3]", "f32[]", low=(1,), high=(2,), interior=(1,)),
        example("f32[4]", "f32[]", low=(-1,), high=(-1,), interior=(0,)),
        example("f32[4]", "f32[]", low=(-2,), high=(3,), interior=(2,)),
        example("f32[0]", "f32[]", low=(1,), high=(1,), interior=(0,)),
        example("f32[]", "f32[]", low=(), high=(), interior=()),
        example("i32[2]", "i32[]", low=(1,), high=(1,), interior=(0,), smooth=False),
        example(Arg("bool[2]", 0, 1), Arg("bool[]", 0, 1), low=(1,), high=(1,), interior=(0,), smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x, value = avals
        if value.shape or value.dtype != x.dtype:
            raise self.shape_error("the value must be a scalar of x's dtype", x, value)
        if not len(self.low) == len(self.high) == len(self.interior) == x.ndim:
            raise self.shape_error(f"low, high and interior must have {x.ndim} entries", f"{self} for {x}")
        shape = []
        for n, a, b, i in zip(x.shape, self.low, self.high, self.interior, strict=True):
            m = n + max(n - 1, 0) * i + a + b
            if m < 0 or i < 0:
                raise self.shape_error("padding must not cut more than there is", f"{self} for {x}")
            shape.append(m)
        return Aval(shape, x.dtype)

    def eval(self, *xs: Any) -> Any:
        x, value = xs
        shape = [n + max(n - 1, 0) * i + max(a, 0) + max(b, 0) for n, a, b, i in self._axes(x.shape)]
        out = np.full(shape, value, x.dtype)
        axes = self._axes(x.shape)
        out[
            tuple([slice(max(a, 0), max(a, 0) + n * (i + 1) - i if n else max(a, 0), i + 1) for n, a, _, i in axes])
        ] = x
        return out[tuple([slice(max(-a, 0), m - max(-b, 0)) for m, (_, a, b, _) in zip(shape, axes, strict=True)])]

    def _axes(self, shape: Ints) -> list[tuple[int, int, int, int]]:
        return list(zip(shape, self.low, self.high, self.interior, strict=True))

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        x = xs[0].aval

        def inner() -> Any:
            neg_low, neg_high = tuple([-a for a in self.low]), tuple([-b for b in self.high])
            whole = pad(ct, 0, neg_low, neg_high, (0,) * x.ndim)
            if not x.size:
                return slice_(whole, (0,) * x.ndim, x.shape, (1,) * x.ndim)
            return slice_(whole, (0,) * x.ndim, whole.aval.shape, tuple([i + 1 for i in self.interior]))

        def outside() -> Any:
            axes = tuple(range(x.ndim))
            zero = broadcast(Literal(0, x.dtype), x.shape, ())
            ones = pad(zero, 1, self.low, self.high, self.interior)
            return reduce_sum(apply("mul", ct, ones), axes)

        return [inner, outside]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        x, value = xs
        x = x if mapped[0] else map_all(size, [False], [x])[0]
        low, high, interior = (0, *self.low), (0, *self.high), (0, *self.interior)
        if not mapped[1]:
            return pad(x, value, low, high, interior), True
        aval = self.infer(Aval(x.aval.shape[1:], x.aval.dtype), Aval((), x.aval.dtype))
        inside = pad(broadcast(Literal(True, dtypes.bool_), x.aval.shape, ()), False, low, high, interior)
        filled = broadcast(value, (size, *aval.shape), (0,))
        return apply("select", inside, pad(x, 0, low, high, interior), filled), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.pad(xs[0], xs[1], self.low, self.high, self.interior)


@dataclass(frozen=True)
class Concatenate(Linear):
    """The operands one after another along ``axis``."""

    axis: int
    name = "concatenate"
    examples = [
        example("f32[2,3]", "f32[1,3]", axis=0),
        example("f32[2,3]", "f32[2,1]", "f32[2,2]", axis=1),
        example("f32[2]", axis=0),
        example("f32[0]", "f32[2]", axis=0),
        example("i32[2]", "i32[3]", axis=0, smooth=False),
        example(Arg("bool[2]", 0, 1), Arg("bool[1]", 0, 1), axis=0, smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        first, axis = avals[0], self.axis
        if not 0 <= axis < first.ndim:
            raise self.shape_error(f"axis must be below {first.ndim}", f"{axis} for {first}")
        for a in avals[1:]:
            if (
                a.shape[:axis] != first.shape[:axis]
                or a.shape[axis + 1 :] != first.shape[axis + 1 :]
                or a.ndim != first.ndim
            ):
                raise self.shape_error(
                    f"shapes must agree but on axis {axis}", *avals, way_out="pad or slice one, or join another axis"
                )
            if a.dtype != first.dtype:
                raise self.dtype_error("operands must have one dtype", *avals, way_out="convert with astype")
        total = sum(a.shape[axis] for a in avals)
        return Aval((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)

    def linear_operands(self, n: int) -> Sequence[int]:
        return range(n)

    def eval(self, *xs: Any) -> Any:
        return np.concatenate(xs, self.axis)

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        out, at = [], 0
        for x in xs:
            n = x.aval.shape[self.axis]
            out.append(lambda a=at, b=at + n: slice_along(ct, self.axis, a, b))
            at += n
        return out

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return concatenate(map_all(size, mapped, xs), self.axis + 1), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.concatenate(xs, self.axis)


@dataclass(frozen=True)
class Reverse(Linear):
    """x backwards along ``axes``."""

    axes: Ints
    name = "reverse"
    examples = [
        example("f32[2,3]", axes=(0,)),
        example("f32[2,3]", axes=(0, 1)),
        example("f32[3]", axes=()),
        example("f32[0,2]", axes=(0,)),
        example("i32[3]", axes=(0,), smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        kept_shape(self, avals[0], self.axes)
        return avals[0]

    def eval(self, *xs: Any) -> Any:
        return np.flip(xs[0], self.axes)

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: reverse(ct, self.axes)]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return reverse(xs[0], tuple([a + 1 for a in self.axes])), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.reverse(xs[0], self.axes)


def slice_(x: Any, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None) -> Any:
    """A box of x."""
    start, limit, strides = tuple(start), tuple(limit), tuple(strides or (1,) * x.aval.ndim)
    if limit == x.aval.shape and not any(start) and all(s == 1 for s in strides):
        return x
    return bind(Slice(start, limit, strides), x)


def slice_along(x: Any, axis: int, start: int, limit: int) -> Any:
    """x from ``start`` to ``limit`` along one axis, whole along the others."""
    shape = x.aval.shape
    low = [0] * len(shape)
    high = list(shape)
    low[axis], high[axis] = start, limit
    return slice_(x, low, high)


def pad(x: Any, value: Any, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Any:
    """x with a value around it and between its elements."""
    if not (any(low) or any(high) or any(interior)):
        return x
    value = value if hasattr(value, "aval") else Literal(value, x.aval.dtype)
    return bind(Pad(tuple(low), tuple(high), tuple(interior)), x, value)


def concatenate(xs: Sequence[Any], axis: int) -> Any:
    """The operands one after another."""
    return xs[0] if len(xs) == 1 else bind(Concatenate(axis), *xs)


def reverse(x: Any, axes: Sequence[int]) -> Any:
    """x backwards along axes."""
    return bind(Reverse(tuple(axes)), x) if axes else x
