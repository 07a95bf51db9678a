"""Shapes and axes: reshape, transpose, broadcast beside its transpose reduce_sum, iota."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.primitive import Arg, Linear, Primitive, dataclass, example
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


def iota(shape: Sequence[int], axis: int, dtype: Any) -> Any:
    """0, 1, 2, ... along an axis."""
    return bind(Iota(tuple(shape), axis, dtype))


def expand(x: Any, axis: int) -> Any:
    """x with a new axis of size 1."""
    shape = x.aval.shape
    return reshape(x, (*shape[:axis], 1, *shape[axis:]))
