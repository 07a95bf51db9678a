"""Reductions other than sums, and sorting.

Ties: a maximum or minimum shares its cotangent equally among the elements that attain it.  NaN wins and sorts last,
and the first NaN is what argmax and argmin find.  float16 and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.primitive import Arg, Example, Primitive, example
from funcgrad.prims.cumulative import INTS, NUMBERS, SPECIAL, TIES, UINTS, CumProd, check_axis, shift, widen_sums
from funcgrad.prims.index import take_along
from funcgrad.prims.layout import Ints, broadcast, kept_shape, reduce_sum, reshape, transpose
from funcgrad.prims.logic import compare
from funcgrad.prims.pointwise import convert, div, div_nz, mul, mul_nz, select
from funcgrad.trace import bind, bind_all


# -- reductions --------------------------------------------------------------------------------------------------
def _reductions(*more: Example) -> list[Example]:
    smooth = [
        example("f32[2,3]", axes=(0,)),
        example("f32[2,3]", axes=(1,)),
        example("f32[2,3,2,2]", axes=(1, 3)),
        example("f32[2,3]", axes=(0, 1)),
        example("f32[2,3]", axes=()),
        example("f32[]", axes=()),
        example("f32[0,3]", axes=(1,)),
    ]
    rest: list[tuple[Arg | str, Ints]] = [(TIES, (1,)), (SPECIAL, (1,)), (INTS, (1,)), (UINTS, (0,))]
    rest += [("f16[2,3]", (1,)), ("bf16[4]", (0,))]
    return [*smooth, *[example(a, axes=axes, smooth=False) for a, axes in rest], *more]


@dataclass(frozen=True)
class Reduction(Primitive):
    """One result for all elements along ``axes``, which vanish."""

    axes: Ints
    accepts: ClassVar[frozenset[Any]] = NUMBERS
    op: ClassVar[str] = ""

    def infer(self, *avals: Aval) -> Aval:
        x = avals[0]
        if x.dtype not in self.accepts:
            way_out = "use any and all for bool" if x.dtype == dtypes.bool_ else "compare first, e.g. x != 0"
            raise self.dtype_error(f"{_names(self.accepts)} is required", x, way_out=way_out)
        return Aval(kept_shape(self, x, self.axes), x.dtype)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return bind(replace(self, axes=tuple([a + 1 for a in self.axes])), xs[0]), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.reduce(self.op, xs[0], self.axes)

    def spread(self, y: Any, x: Any) -> Any:
        """A result repeated to the shape of x."""
        kept = [d for d in range(x.aval.ndim) if d not in self.axes]
        return broadcast(y, x.aval.shape, kept)


def _names(accepts: frozenset[Any]) -> str:
    return "bool" if accepts == {dtypes.bool_} else "a number"


def check_not_empty(prim: Primitive, x: Aval, axes: Ints, out: Sequence[int]) -> None:
    """Raise ShapeError when a result would be chosen among no elements."""
    if any(x.shape[a] == 0 for a in axes) and 0 not in out:
        way_out = "give an initial value, or test the size before"
        raise prim.shape_error("there must be an element to choose", f"{x} along {axes}", way_out=way_out)


class Extremum(Reduction):
    """A maximum or minimum."""

    fn: ClassVar[Callable[..., Any]]

    def infer(self, *avals: Aval) -> Aval:
        out = super().infer(*avals)
        check_not_empty(self, avals[0], self.axes, out.shape)
        return out

    def eval(self, *xs: Any) -> Any:
        return type(self).fn(xs[0], axis=self.axes)

    def _ties(self, out: Any, x: Any) -> tuple[Any, Any]:
        """Which elements attain the result, and how many do (none when the result is NaN)."""
        mask = compare("eq", x, self.spread(out, x))
        return mask, reduce_sum(convert(mask, x.aval.dtype), self.axes)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        x = xs[0]

        def make() -> Any:
            mask, count = self._ties(out, x)
            return select(mask, self.spread(div(ct, count), x), 0)

        return [make]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        mask, count = self._ties(out, xs[0])
        return div_nz(reduce_sum(select(mask, ts[0], 0), self.axes), count)


@dataclass(frozen=True)
class ReduceMax(Extremum):
    """The largest element along the axes."""

    name = "reduce_max"
    op = "max"
    fn = np.max
    examples = _reductions()


@dataclass(frozen=True)
class ReduceMin(Extremum):
    """The smallest element along the axes."""

    name = "reduce_min"
    op = "min"
    fn = np.min
    examples = _reductions()


@dataclass(frozen=True)
class ReduceProd(Reduction):
    """The product along the axes; the derivative by an element is the product of the others, so zeros need no care."""

    name = "reduce_prod"
    op = "prod"
    examples = _reductions(
        example(Arg("f32[3,3]", values=[[0, 2, 3], [0, 2, 0], [0, 0, 0]]), axes=(1,)),
        example(Arg("f32[2,2]", values=[[0, 2], [3, 4]]), axes=(0, 1)),
        example("f32[0,3]", axes=(0,)),
    )

    def eval(self, *xs: Any) -> Any:
        x = widen_sums(xs[0])
        return np.prod(x, axis=self.axes, dtype=x.dtype)

    def _others(self, x: Any) -> Any:
        """For each element the product of the others: running products of what is before and what is behind it."""
        shape, ndim = x.aval.shape, x.aval.ndim
        perm = (*[d for d in range(ndim) if d not in self.axes], *self.axes)
        moved = transpose(x, perm)
        last = ndim - len(self.axes)
        rows = reshape(moved, (*moved.aval.shape[:last], int(np.prod([shape[a] for a in self.axes]))))
        before = bind(CumProd(last, False), shift(rows, last, False, 1))
        behind = bind(CumProd(last, True), shift(rows, last, True, 1))
        inverse = sorted(range(ndim), key=perm.__getitem__)
        return transpose(reshape(mul(before, behind), moved.aval.shape), inverse)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        x = xs[0]
        if not self.axes or not x.aval.size:
            return [None if self.axes else ct]
        return [lambda: mul_nz(self.spread(ct, x), self._others(x))]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        if not self.axes or not xs[0].aval.size:
            return None if self.axes else ts[0]
        return reduce_sum(mul_nz(ts[0], self._others(xs[0])), self.axes)


class BoolReduction(Reduction):
    """A reduction of bools."""

    accepts = frozenset({dtypes.bool_})
    fn: ClassVar[Callable[..., Any]]
    examples = [
        example(Arg("bool[3,2]", values=[[True, True], [False, True], [False, False]]), axes=(1,), smooth=False),
        example(Arg("bool[2,2,2]", 0, 1), axes=(0, 2), smooth=False),
        example("bool[0,2]", axes=(0,), smooth=False),
        example("bool[0,2]", axes=(1,), smooth=False),
        example(Arg("bool[2]", 0, 1), axes=(), smooth=False),
    ]

    def eval(self, *xs: Any) -> Any:
        return type(self).fn(xs[0], axis=self.axes)


@dataclass(frozen=True)
class ReduceAny(BoolReduction):
    """Whether any element along the axes is true."""

    name = "reduce_any"
    op = "any"
    fn = np.any


@dataclass(frozen=True)
class ReduceAll(BoolReduction):
    """Whether all elements along the axes are true."""

    name = "reduce_all"
    op = "all"
    fn = np.all


@dataclass(frozen=True)
class ArgExtremum(Primitive):
    """The index along ``axis`` of the first largest or smallest element; a NaN is both."""

    axis: int
    op: ClassVar[str] = ""
    fn: ClassVar[Callable[..., Any]]
    examples = [
        *[
            example(a, axis=1, smooth=False)
            for a in ("f32[2,3]", "f32[2,3,4]", TIES, SPECIAL, INTS, "f32[0,2]", "f16[2,3]")
        ],
        *[example(a, axis=0, smooth=False) for a in ("f32[4]", "f32[3,0]", "f32[0,0]", UINTS, Arg("bool[4]", 0, 1))],
    ]

    def infer(self, *avals: Aval) -> Aval:
        x, axis = avals[0], self.axis
        check_axis(self, axis, x)
        out = (*x.shape[:axis], *x.shape[axis + 1 :])
        check_not_empty(self, x, (axis,), out)
        return Aval(out, dtypes.int32)

    def eval(self, *xs: Any) -> Any:
        x, axis = xs[0], self.axis
        if not x.size:
            return np.zeros((*x.shape[:axis], *x.shape[axis + 1 :]), np.int32)
        return type(self).fn(x, axis)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [None]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return None

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return bind(replace(self, axis=self.axis + 1), xs[0]), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.reduce(self.op, xs[0], (self.axis,))


@dataclass(frozen=True)
class Argmax(ArgExtremum):
    """The index of the first largest element along the axis."""

    name = "argmax"
    op = "argmax"
    fn = np.argmax


@dataclass(frozen=True)
class Argmin(ArgExtremum):
    """The index of the first smallest element along the axis."""

    name = "argmin"
    op = "argmin"
    fn = np.argmin


# -- sorting -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Argsort(Primitive):
    """The indices that sort x along ``axis``: ascending, stable, NaN last; -0 and 0 are equal."""

    axis: int
    name = "argsort"
    examples = [
        *[
            example(a, axis=1, smooth=False)
            for a in ("f32[2,5]", "f32[2,3,2]", TIES, SPECIAL, INTS, "f32[2,0]", "f16[2,4]")
        ],
        *[example(a, axis=0, smooth=False) for a in (UINTS, Arg("bool[5]", 0, 1), "f32[1]", "f32[4,2]")],
    ]

    def infer(self, *avals: Aval) -> Aval:
        check_axis(self, self.axis, avals[0])
        return Aval(avals[0].shape, dtypes.int32)

    def eval(self, *xs: Any) -> Any:
        return np.argsort(xs[0], self.axis, kind="stable")

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [None]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return None

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return argsort(xs[0], self.axis + 1), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.sort(xs[0], self.axis)[1]


@dataclass(frozen=True)
class Sort(Primitive):
    """The operands in the order that sorts the first along ``axis``: ascending, stable, NaN last."""

    axis: int
    name = "sort"
    multiple = True
    examples = [
        example("f32[5]", axis=0),
        example("f32[3,4]", "f32[3,4]", axis=0),
        example("f32[2,3,2]", "i32[2,3,2]", "f32[2,3,2]", axis=1),
        example("f32[0]", axis=0),
        example(TIES, Arg("i32[2,4]", 0, 9), axis=1, smooth=False),
        example(SPECIAL, axis=1, smooth=False),
        example(INTS, axis=1, smooth=False),
        example(Arg("bool[5]", 0, 1), "f32[5]", axis=0, smooth=False),
        example("bf16[5]", axis=0, smooth=False),
    ]

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        check_axis(self, self.axis, avals[0])
        if any(a.shape != avals[0].shape for a in avals):
            raise self.shape_error("operands must have one shape", *avals, way_out="broadcast them")
        return avals

    def eval(self, *xs: Any) -> Any:
        order = np.argsort(xs[0], self.axis, kind="stable")
        return [np.take_along_axis(x, order, self.axis) for x in xs]

    def _along(self, x: Any, index: Any) -> Any:
        return take_along(x, index, self.axis)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        index = argsort(argsort(xs[0], self.axis), self.axis)
        return [None if c is None else lambda c=c: self._along(c, index) for c in ct]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        index = argsort(xs[0], self.axis)
        return [None if t is None else self._along(t, index) for t in ts]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        full = (size, *xs[0].aval.shape[mapped[0] :])
        ys = [x if m else broadcast(x, full, range(1, len(full))) for m, x in zip(mapped, xs, strict=True)]
        return bind_all(Sort(self.axis + 1), *ys), [True] * len(xs)

    def lower(self, g: Any, *xs: Any) -> Any:
        values, index = g.sort(xs[0], self.axis)
        return [values, *[g.take_along(x, index, self.axis, "clip", 0) for x in xs[1:]]]


# -- the operations as functions ---------------------------------------------------------------------------------
def argsort(x: Any, axis: int) -> Any:
    """The indices that sort x along an axis."""
    return bind(Argsort(axis), x)
