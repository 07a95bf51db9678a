"""Slices whose start is a value: reading one, writing one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad.ir import Aval, Literal
from funcgrad.primitive import Arg, Linear, Primitive, dataclass, example, map_all, zeros
from funcgrad.prims.index import INT, check_index, scatter, take
from funcgrad.prims.layout import Ints, broadcast, iota, reshape
from funcgrad.prims.pointwise import add, maximum, minimum, mul
from funcgrad.trace import bind


def _check_starts(prim: Primitive, x: Aval, sizes: Ints, starts: Sequence[Aval]) -> None:
    check_index(prim, *starts)
    if len(starts) != x.ndim or any(s.shape for s in starts):
        raise prim.shape_error(
            f"{x.ndim} scalar starts are required", list(starts), way_out="give one start for each axis"
        )
    if len(sizes) != x.ndim or any(not 0 <= s <= n for s, n in zip(sizes, x.shape, strict=False)):
        raise prim.shape_error("the slice must fit into x", f"{sizes} for {x}", way_out="take fewer elements")


def _box(shape: Ints, sizes: Ints, starts: Sequence[Any]) -> tuple[slice, ...]:
    at = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)]
    return tuple([slice(a, a + k) for a, k in zip(at, sizes, strict=True)])


def _box_rows(size: int, shape: Ints, sizes: Ints, starts: Sequence[Any], per_row: bool) -> tuple[Any, int]:
    """The rows that mapped slices cover, as flat indices [size, *sizes[:k]] into the first k axes, and k.

    The axes from k on are covered whole.  With ``per_row`` the array itself has the leading axis, merged with the rest.
    """
    k = max([d + 1 for d, (n, s) in enumerate(zip(shape, sizes, strict=True)) if s < n], default=0)
    full = (size, *sizes[:k])
    index = mul(iota(full, 0, INT), math.prod(shape[:k]) if per_row else 0)
    for d in range(k):
        start = maximum(minimum(starts[d], shape[d] - sizes[d]), 0)
        at = add(broadcast(start, full, (0,) if start.aval.ndim else ()), iota(full, d + 1, INT))
        index = add(index, mul(at, math.prod(shape[d + 1 : k])))
    return index, k


_STARTS = [Arg("i32[]", values=v) for v in (1, 0, 2, 1)]
_FAR_STARTS = [Arg("i32[]", values=v) for v in (9, -3)]


@dataclass(frozen=True)
class DynamicSlice(Linear):
    """``sizes`` elements of x from the starts, one scalar for each axis, moved so that the slice fits."""

    sizes: Ints
    name = "dynamic_slice"
    examples = [
        example("f32[5]", _STARTS[0], sizes=(3,)),
        example("f32[3,4]", *_FAR_STARTS, sizes=(2, 2)),
        example("f32[3,4]", *_STARTS[:2], sizes=(1, 4)),
        example("f32[2,3]", *_STARTS[:2], sizes=(2, 3)),
        example("f32[2,3,3,2]", *_STARTS, sizes=(1, 3, 1, 2)),
        example("f32[3]", _STARTS[0], sizes=(0,)),
        example("f32[0,3]", *_STARTS[:2], sizes=(0, 2)),
        example("f32[]", sizes=()),
        example("i32[4]", _STARTS[0], sizes=(2,), smooth=False),
        example(Arg("bool[4]", 0, 1), _STARTS[0], sizes=(2,), smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x, *starts = avals
        _check_starts(self, x, self.sizes, starts)
        return Aval(self.sizes, x.dtype)

    def eval(self, *xs: Any) -> Any:
        return xs[0][_box(xs[0].shape, self.sizes, xs[1:])]

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        x, *starts = xs
        return [lambda: dynamic_update_slice(zeros(x.aval), ct, starts), *[None] * len(starts)]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        x, *starts = xs
        if not any(mapped[1:]):
            return dynamic_slice(x, [Literal(0, INT), *starts], (size, *self.sizes)), True
        shape = x.aval.shape[mapped[0] :]
        index, k = _box_rows(size, shape, self.sizes, starts, mapped[0])
        rows = reshape(x, ((size if mapped[0] else 1) * math.prod(shape[:k]), *shape[k:]))
        return take(rows, index, 0), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.dynamic_slice(xs[0], xs[1:], self.sizes)


@dataclass(frozen=True)
class DynamicUpdateSlice(Linear):
    """x with the update written from the starts, one scalar for each axis, moved so that the update fits."""

    name = "dynamic_update_slice"
    linear = (0, 1)
    examples = [
        example("f32[5]", "f32[3]", _STARTS[0]),
        example("f32[3,4]", "f32[2,2]", *_FAR_STARTS),
        example("f32[3,4]", "f32[1,4]", *_STARTS[:2]),
        example("f32[2,3]", "f32[2,3]", *_STARTS[:2]),
        example("f32[2,3,3,2]", "f32[1,3,1,2]", *_STARTS),
        example("f32[3]", "f32[0]", _STARTS[0]),
        example("f32[0,3]", "f32[0,2]", *_STARTS[:2]),
        example("f32[]", "f32[]"),
        example("i32[4]", "i32[2]", _STARTS[0], smooth=False),
        example(Arg("bool[4]", 0, 1), Arg("bool[2]", 0, 1), _STARTS[0], smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x, update, *starts = avals
        if x.dtype != update.dtype:
            raise self.dtype_error("x and the update must have one dtype", x, update, way_out="convert with astype")
        _check_starts(self, x, update.shape, starts)
        return x

    def eval(self, *xs: Any) -> Any:
        x, update, *starts = xs
        out = np.array(x)
        out[_box(x.shape, update.shape, starts)] = update
        return out

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        _, update, *starts = xs
        outside = lambda: dynamic_update_slice(ct, zeros(update.aval), starts)
        return [outside, lambda: dynamic_slice(ct, starts, update.aval.shape), *[None] * len(starts)]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        starts = xs[2:]
        x, update = map_all(size, mapped[:2], xs[:2])
        if not any(mapped[2:]):
            return dynamic_update_slice(x, update, [Literal(0, INT), *starts]), True
        shape = x.aval.shape[1:]
        index, k = _box_rows(size, shape, update.aval.shape[1:], starts, True)
        rows = reshape(x, (size * math.prod(shape[:k]), *shape[k:]))
        at = reshape(index, (index.aval.size,))
        return reshape(scatter("set", rows, at, reshape(update, (index.aval.size, *shape[k:]))), x.aval.shape), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.dynamic_update_slice(xs[0], xs[1], xs[2:])


# -- the operations as functions ---------------------------------------------------------------------------------
def dynamic_slice(x: Any, starts: Sequence[Any], sizes: Ints) -> Any:
    """A slice of x that begins at values."""
    return bind(DynamicSlice(tuple(sizes)), x, *starts)


def dynamic_update_slice(x: Any, update: Any, starts: Sequence[Any]) -> Any:
    """x with a slice replaced, which begins at values."""
    return bind(DynamicUpdateSlice(), x, update, *starts)
