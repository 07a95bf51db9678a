"""Where elements lie: reshape, transpose, broadcast with reduce_sum, slice with pad, concatenate, reverse, iota.

Each linear operation stands next to its transpose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import Arg, Linear, Primitive, apply, example, map_all
from funcgrad.trace import bind

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Reshape(Linear):
    """The elements in row-major order under another shape."""

    shape: Ints
    name = "reshape"
    examples = [
        example("f32[2,3]", shape=(3, 2)),
        example("f32[6]", shape=(1, 2, 3, 1)),
        example("f32[]", shape=(1, 1)),
        example("f32[1]", shape=()),
        example("f32[0,3]", shape=(3, 0, 2)),
        example("i32[4]", shape=(2, 2), smooth=False),
        example(Arg("bool[4]", 0, 1), shape=(2, 2), smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x = avals[0]
        if math.prod(self.shape) != x.size or any(d < 0 for d in self.shape):
            raise self.shape_error(
                f"{x.size} elements must fill the new shape",
                f"{x.shape} to {self.shape}",
                way_out="-1 for one dimension infers it",
            )
        return Aval(self.shape, x.dtype)

    def eval(self, *xs: Any) -> Any:
        return np.reshape(xs[0], self.shape)

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: reshape(ct, xs[0].aval.shape)]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return reshape(xs[0], (size, *self.shape)), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.reshape(xs[0], self.shape)


@dataclass(frozen=True)
class Transpose(Linear):
    """Axis i of the result is axis ``perm[i]`` of x."""

    perm: Ints
    name = "transpose"
    examples = [
        example("f32[2,3]", perm=(1, 0)),
        example("f32[2,3,4]", perm=(2, 0, 1)),
        example("f32[2,1,3,2,2]", perm=(4, 2, 0, 3, 1)),
        example("f32[0,3]", perm=(1, 0)),
        example("i32[2,3]", perm=(1, 0), smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x = avals[0]
        if sorted(self.perm) != list(range(x.ndim)):
            raise self.shape_error(f"axes must be a permutation of 0..{x.ndim - 1}", f"{self.perm} for {x}")
        return Aval([x.shape[i] for i in self.perm], x.dtype)

    def eval(self, *xs: Any) -> Any:
        return np.transpose(xs[0], self.perm)

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        inverse = tuple(sorted(range(len(self.perm)), key=self.perm.__getitem__))
        return [lambda: transpose(ct, inverse)]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return transpose(xs[0], (0, *[p + 1 for p in self.perm])), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.transpose(xs[0], self.perm)


@dataclass(frozen=True)
class Broadcast(Linear):
    """x repeated to ``shape``: axis i of x is axis ``dims[i]`` of the result, of equal size or of size 1 in x."""

    shape: Ints
    dims: Ints
    name = "broadcast"
    examples = [
        example("f32[3]", shape=(2, 3), dims=(1,)),
        example("f32[]", shape=(2, 3), dims=()),
        example("f32[2,1]", shape=(2, 3), dims=(0, 1)),
        example("f32[2]", shape=(2, 3, 4), dims=(0,)),
        example("f32[1]", shape=(0, 1), dims=(1,)),
        example("i32[3]", shape=(2, 3), dims=(1,), smooth=False),
        example(Arg("bool[3]", 0, 1), shape=(3, 2), dims=(0,), smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x = avals[0]
        increasing = list(self.dims) == sorted(set(self.dims)) and all(0 <= d < len(self.shape) for d in self.dims)
        fits = len(self.dims) == x.ndim and increasing
        if not fits or any(n not in (1, self.shape[d]) for n, d in zip(x.shape, self.dims, strict=True)):
            raise self.shape_error("each axis must be 1 or equal", f"{x.shape} to {self.shape} at axes {self.dims}")
        return Aval(self.shape, x.dtype)

    def eval(self, *xs: Any) -> Any:
        x = xs[0]
        wide = [1] * len(self.shape)
        for n, d in zip(x.shape, self.dims, strict=True):
            wide[d] = n
        return np.broadcast_to(np.reshape(x, wide), self.shape)

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        x = xs[0].aval
        kept = [d for n, d in zip(x.shape, self.dims, strict=True) if n == self.shape[d]]
        axes = tuple([d for d in range(len(self.shape)) if d not in kept])
        return [lambda: reshape(reduce_sum(ct, axes), x.shape)]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return broadcast(xs[0], (size, *self.shape), (0, *[d + 1 for d in self.dims])), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.broadcast(xs[0], self.shape, self.dims)


@dataclass(frozen=True)
class ReduceSum(Linear):
    """The sum over ``axes``, which vanish; float16 and bfloat16 accumulate in float32."""

    axes: Ints
    name = "reduce_sum"
    examples = [
        example("f32[2,3]", axes=(0,)),
        example("f32[2,3]", axes=(1,)),
        example("f32[2,3,4]", axes=(0, 2)),
        example("f32[2,3]", axes=(0, 1)),
        example("f32[2,3]", axes=()),
        example("f32[0,3]", axes=(0,)),
        example("f32[]", axes=()),
        example("i32[2,3]", axes=(1,), smooth=False),
        example("f16[2,3]", axes=(1,), smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x = avals[0]
        if x.dtype == dtypes.bool_:
            raise self.dtype_error("numbers are required", x, way_out="convert with astype(int)")
        return Aval(kept_shape(self, x, self.axes), x.dtype)

    def eval(self, *xs: Any) -> Any:
        x = xs[0]
        wide = np.float64 if x.dtype.kind == "f" else x.dtype
        return np.sum(x, axis=self.axes, dtype=wide).astype(x.dtype)

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        shape = xs[0].aval.shape
        kept = tuple([d for d in range(len(shape)) if d not in self.axes])
        return [lambda: broadcast(ct, shape, kept)]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return reduce_sum(xs[0], tuple([a + 1 for a in self.axes])), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.reduce("sum", xs[0], self.axes)


def kept_shape(prim: Primitive, x: Aval, axes: Ints) -> Ints:
    """The shape without ``axes``, which must be distinct axes of x in increasing order."""
    if list(axes) != sorted(set(axes)) or any(not 0 <= a < x.ndim for a in axes):
        raise prim.shape_error(f"axes must be distinct and below {x.ndim}", f"{axes} for {x}")
    return tuple([n for d, n in enumerate(x.shape) if d not in axes])


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
        out[tuple([slice(max(a, 0), max(a, 0) + n * (i + 1) - i if n else max(a, 0), i + 1) for n, a, _, i in axes])] = x
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
            if a.shape[:axis] != first.shape[:axis] or a.shape[axis + 1 :] != first.shape[axis + 1 :] or a.ndim != first.ndim:
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


@dataclass(frozen=True)
class Iota(Primitive):
    """0, 1, 2, ... along ``axis``, the same along the others."""

    shape: Ints
    axis: int
    dtype: np.dtype[Any]
    name = "iota"
    examples = [
        example(shape=(4,), axis=0, dtype=dtypes.int32, smooth=False),
        example(shape=(2, 3), axis=1, dtype=dtypes.float32, smooth=False),
        example(shape=(2, 3), axis=0, dtype=dtypes.uint32, smooth=False),
        example(shape=(0,), axis=0, dtype=dtypes.int32, smooth=False),
        example(shape=(3,), axis=0, dtype=dtypes.float16, smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        if not 0 <= self.axis < len(self.shape):
            raise self.shape_error(f"axis must be below {len(self.shape)}", f"{self.axis} for shape {self.shape}")
        if self.dtype == dtypes.bool_:
            raise self.dtype_error("a number dtype is required", dtypes.NAMES[self.dtype])
        return Aval(self.shape, self.dtype)

    def eval(self, *xs: Any) -> Any:
        wide = [1] * len(self.shape)
        wide[self.axis] = self.shape[self.axis]
        row = dtypes.narrow(np.arange(self.shape[self.axis], dtype=np.int64), self.dtype)
        return np.broadcast_to(row.reshape(wide), self.shape)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return bind(self), False

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.iota(Aval(self.shape, self.dtype), self.axis)


# -- the operations as functions ---------------------------------------------------------------------------------
def reshape(x: Any, shape: Sequence[int]) -> Any:
    """The elements of x under another shape."""
    return x if x.aval.shape == tuple(shape) else bind(Reshape(tuple(shape)), x)


def transpose(x: Any, perm: Sequence[int]) -> Any:
    """x with its axes permuted."""
    return x if tuple(perm) == tuple(range(x.aval.ndim)) else bind(Transpose(tuple(perm)), x)


def broadcast(x: Any, shape: Sequence[int], dims: Sequence[int]) -> Any:
    """x repeated to a shape, its axis i at ``dims[i]``."""
    shape, dims = tuple(shape), tuple(dims)
    return x if x.aval.shape == shape else bind(Broadcast(shape, dims), x)


def reduce_sum(x: Any, axes: Sequence[int]) -> Any:
    """The sum over axes."""
    return bind(ReduceSum(tuple(axes)), x) if axes else x


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


def iota(shape: Sequence[int], axis: int, dtype: Any) -> Any:
    """0, 1, 2, ... along an axis."""
    return bind(Iota(tuple(shape), axis, dtype))


def expand(x: Any, axis: int) -> Any:
    """x with a new axis of size 1."""
    shape = x.aval.shape
    return reshape(x, (*shape[:axis], 1, *shape[axis:]))
