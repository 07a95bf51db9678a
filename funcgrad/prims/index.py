"""Indexing: take and its transpose scatter, take along an axis.

Indices are int32 and count from 0.  Reads out of range take the nearest element ("clip") or a fill value ("fill");
writes out of range are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import (
    Arg,
    Example,
    Linear,
    Primitive,
    accumulate,
    example,
    map_all,
    zeros,
)
from funcgrad.prims.cumulative import NUMBERS, check_axis, widen_sums
from funcgrad.prims.layout import Ints, broadcast, iota, reshape, transpose
from funcgrad.prims.logic import compare, logical_and
from funcgrad.prims.pointwise import add, convert, div, div_nz, maximum, minimum, mul, mul_nz, select
from funcgrad.trace import bind

INT = dtypes.int32


def check_index(prim: Primitive, *indices: Aval) -> None:
    """Raise DTypeError unless all are int32."""
    for a in indices:
        if a.dtype != INT:
            raise prim.dtype_error("indices must be int32", a, way_out="convert them with astype(int)")


def fill_value(fill: float | None, dtype: Any) -> Any:
    """What a read out of range gives: ``fill``, or NaN, the smallest int32, the largest uint32, True."""
    if fill is not None:
        return fill
    if dtype in dtypes.FLOATS:
        return np.nan
    return True if dtype == dtypes.bool_ else np.iinfo(dtype).min if dtype == INT else np.iinfo(dtype).max


def positions(index: Any, n: int, lead: int, mode: str, trail: int = 0) -> Any:
    """Indices into an axis of size n as indices into all axes merged, row-major, in one flat list.

    The first ``lead`` and last ``trail`` axes of the index stand for axes of the array before and behind its own.
    Out of range is -1 in mode "fill", clipped in mode "clip".
    """
    shape = index.aval.shape
    before, behind = math.prod(shape[:lead]), math.prod(shape[len(shape) - trail :])
    full = (before, math.prod(shape[lead : len(shape) - trail]), behind)
    index = reshape(index, full)
    inside = None
    if mode == "clip":
        index = maximum(minimum(index, n - 1), 0)
    else:
        inside = logical_and(compare("ge", index, 0), compare("lt", index, n))
    if before > 1:
        index = add(index, mul(iota(full, 0, INT), n))
    if behind > 1:
        index = add(mul(index, behind), iota(full, 2, INT))
    return reshape(index if inside is None else select(inside, index, -1), (math.prod(full),))


@dataclass(frozen=True)
class Read(Linear):
    """Reads along ``axis`` at indices; linear in x, its transpose adds to what was read."""

    axis: int
    mode: str
    fill: float | None = None

    def check(self, x: Aval, index: Aval, out: Ints) -> None:
        """Raise unless the axis, the indices and the mode are fit, and there is something to read."""
        check_axis(self, self.axis, x)
        check_index(self, index)
        if self.mode not in ("clip", "fill"):
            raise self.shape_error('mode must be "clip" or "fill"', repr(self.mode))
        if self.mode == "clip" and not x.shape[self.axis] and 0 not in out:
            way_out = 'test the size before, or use mode="fill"'
            raise self.shape_error("the axis must have an element to read", f"{x} at axis {self.axis}", way_out=way_out)

    def filled(self, out: Any, inside: Any) -> Any:
        """numpy data with the fill value where an index was out of range."""
        if self.mode == "clip":
            return out
        return np.where(inside, out, np.asarray(fill_value(self.fill, out.dtype)).astype(out.dtype))

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        # A fill value is a constant: its tangent is 0.
        return None if ts[0] is None else bind(replace(self, fill=0.0), ts[0], xs[1])


def _reads(*pairs: tuple[str, Any], **params: Any) -> list[Example]:
    return [example(x, i, smooth=x.startswith("f32"), **params) for x, i in pairs]


_FAR = Arg("i32[5]", values=[0, 2, -1, 7, 2])


@dataclass(frozen=True)
class Take(Read):
    """Elements of x along ``axis`` at indices of any shape, whose axes replace that axis."""

    name = "take"
    examples = [
        *_reads(("f32[3]", Arg("i32[]", values=1)), ("f32[3,2]", _FAR), axis=0, mode="clip"),
        *_reads(("f32[3]", _FAR), ("f32[3,0]", _FAR), ("f32[0,2]", Arg("i32[2]", 0, 1)), axis=0, mode="fill"),
        *_reads(("f32[2,3]", Arg("i32[2,2]", -2, 5)), ("f32[2,3,2]", Arg("i32[]", 0, 3)), axis=1, mode="fill"),
        *_reads(
            ("f32[2,3,2,2]", Arg("i32[2,1]", -2, 5)),
            ("f32[2,3]", "i32[0]"),
            ("f32[2,0]", "i32[0]"),
            axis=1,
            mode="clip",
        ),
        *_reads(("f32[3]", _FAR), axis=0, mode="fill", fill=2.5),
        *_reads(("i32[3]", _FAR), ("u32[3]", _FAR), ("bool[3]", _FAR), ("f16[3]", _FAR), axis=0, mode="fill"),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x, index = avals
        shape = (*x.shape[: self.axis], *index.shape, *x.shape[self.axis + 1 :])
        self.check(x, index, shape)
        return Aval(shape, x.dtype)

    def eval(self, *xs: Any) -> Any:
        x, index = xs
        n, behind = x.shape[self.axis], x.ndim - self.axis - 1
        if not n:
            shape = (*x.shape[: self.axis], *index.shape, *x.shape[self.axis + 1 :])
            return self.filled(np.zeros(shape, x.dtype), False)
        out = np.take(x, np.clip(index, 0, n - 1), self.axis)
        return self.filled(out, ((index >= 0) & (index < n)).reshape((*index.shape, *(1,) * behind)))

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        (shape, axis), index = (xs[0].aval.shape, self.axis), xs[1]
        if not ct.aval.size or not xs[0].aval.size:
            return [None, None]

        def make() -> Any:
            before, behind = math.prod(shape[:axis]), shape[axis + 1 :]
            lead = shape[:axis] if before > 1 else ()
            spread = broadcast(index, (*lead, *index.aval.shape), range(len(lead), len(lead) + index.aval.ndim))
            at = positions(spread, shape[axis], len(lead), self.mode)
            to = zeros(Aval((before * shape[axis], *behind), ct.aval.dtype))
            return reshape(scatter("add", to, at, reshape(ct, (at.aval.size, *behind))), shape)

        return [make, None]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        x, index = xs
        if not mapped[1]:
            return bind(replace(self, axis=self.axis + 1), x, index), True
        if not mapped[0]:
            out = bind(self, x, index)
            return transpose(out, (self.axis, *[d for d in range(out.aval.ndim) if d != self.axis])), True
        (_, *shape), axis = x.aval.shape, self.axis
        lead, behind, inner = shape[:axis], shape[axis + 1 :], index.aval.shape[1:]
        spread = broadcast(index, (size, *lead, *inner), (0, *range(1 + axis, 1 + axis + len(inner))))
        at = positions(spread, shape[axis], 1 + axis, self.mode)
        rows = reshape(x, (size * math.prod(shape[: axis + 1]), *behind))
        return reshape(bind(replace(self, axis=0), rows, at), (size, *lead, *inner, *behind)), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.take(*xs, self.axis, self.mode, fill_value(self.fill, xs[0].dtype))


@dataclass(frozen=True)
class TakeAlong(Read):
    """Elements of x along ``axis`` at indices of x's rank, each at its own place on the other axes."""

    name = "take_along"
    examples = [
        *_reads(("f32[3]", _FAR), ("f32[3,2]", Arg("i32[4,2]", -2, 5)), axis=0, mode="clip"),
        *_reads(("f32[2,3]", Arg("i32[2,1]", 0, 3)), ("f32[2,3,2,2]", Arg("i32[2,4,2,2]", -2, 5)), axis=1, mode="fill"),
        *_reads(("f32[2,0]", Arg("i32[2,2]", 0, 1)), ("f32[0,3]", "i32[0,2]"), axis=1, mode="fill"),
        *_reads(("f32[2,3]", Arg("i32[2,2]", 3, 5)), axis=1, mode="fill", fill=-1.0),
        *_reads(("f32[2,0]", "i32[2,0]"), axis=1, mode="clip"),
        *_reads(("i32[3]", _FAR), ("u32[3]", _FAR), ("bool[3]", _FAR), ("bf16[3]", _FAR), axis=0, mode="fill"),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x, index = avals
        self.check(x, index, index.shape)
        a, b = x.shape, index.shape
        if len(a) != len(b) or a[: self.axis] != b[: self.axis] or a[self.axis + 1 :] != b[self.axis + 1 :]:
            raise self.shape_error(
                f"shapes must agree but on axis {self.axis}", x, index, way_out="broadcast the indices"
            )
        return Aval(index.shape, x.dtype)

    def eval(self, *xs: Any) -> Any:
        x, index = xs
        n = x.shape[self.axis]
        if not n:
            return self.filled(np.zeros(index.shape, x.dtype), False)
        out = np.take_along_axis(x, np.clip(index, 0, n - 1), self.axis)
        return self.filled(out, (index >= 0) & (index < n))

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        (x, index), axis = xs, self.axis
        if not ct.aval.size or not x.aval.size:
            return [None, None]

        def make() -> Any:
            if index.aval.shape[axis] == 1:
                return self._one_of_each(ct, x.aval, index)
            at = positions(index, x.aval.shape[axis], axis, self.mode, x.aval.ndim - axis - 1)
            to = zeros(Aval((x.aval.size,), ct.aval.dtype))
            return reshape(scatter("add", to, at, reshape(ct, (ct.aval.size,))), x.aval.shape)

        return [make, None]

    def _one_of_each(self, ct: Any, x: Aval, index: Any) -> Any:
        """The cotangent of x where one element was read along the axis: ct there, 0 elsewhere.

        Unlike a scatter it is one more pointwise operation for what comes next.
        """
        if self.mode == "clip":
            index = maximum(minimum(index, x.shape[self.axis] - 1), 0)
        dims = tuple(range(x.ndim))
        here = compare("eq", iota(x.shape, self.axis, INT), broadcast(index, x.shape, dims))
        return select(here, broadcast(ct, x.shape, dims), 0.0)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return bind(replace(self, axis=self.axis + 1), *map_all(size, mapped, xs)), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.take_along(*xs, self.axis, self.mode, fill_value(self.fill, xs[0].dtype))


# -- writing -----------------------------------------------------------------------------------------------------
def _writes(op: str) -> list[Example]:
    some = Arg("i32[4]", values=[1, 0, 2, 5])
    twice = Arg("i32[4]", values=[1, 1, -1, 1])
    shapes = [("[3]", some, "[4]"), ("[3,2]", twice, "[4,2]"), ("[3,1,2,2]", some, "[4,1,2,2]")]
    shapes += [("[0,2]", twice, "[4,2]"), ("[3,0]", twice, "[4,0]"), ("[3]", Arg("i32[0]"), "[0]")]
    out = [example("f32" + x, i, "f32" + u, op=op) for x, i, u in shapes]
    dtypes_ = ("i32", "u32", "f16") + (("bool",) if op == "set" else ())
    return out + [example(Arg(d + "[3]", 0, 2), twice, Arg(d + "[4]", 0, 2), op=op, smooth=False) for d in dtypes_]


@dataclass(frozen=True)
class Scatter(Primitive):
    """The operand with row ``index[i]`` set to, or combined with, row i of the updates by ``op``; the last write wins.

    ``op`` is set, add, mul, min or max.  The cotangent of a set goes to the row that was written last; a min or max
    shares it equally among all that attain the result; mul by rows with the same index is exact to first order.
    """

    op: str
    name = "scatter"
    examples = [
        *[e for op in ("set", "add", "mul", "min", "max") for e in _writes(op)],
        example("f32[2]", Arg("i32[3]", values=[1, 1, 0]), Arg("f32[3]", values=[0, 3, 0]), op="mul", smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x, index, updates = avals
        check_index(self, index)
        if self.op not in _COMBINE:
            raise self.shape_error(f"op must be one of {', '.join(_COMBINE)}", repr(self.op))
        if x.dtype != updates.dtype or (self.op != "set" and x.dtype not in NUMBERS):
            raise self.dtype_error("operand and updates must be numbers of one dtype", x, updates, way_out="use astype")
        if not x.ndim or index.ndim != 1 or updates.shape != (*index.shape, *x.shape[1:]):
            need = "shapes must be (n, *rest), (k,) and (k, *rest)"
            raise self.shape_error(need, x, index, updates, way_out="reshape or broadcast the updates")
        return x

    def eval(self, *xs: Any) -> Any:
        x, index, updates = widen_sums(xs[0]), xs[1], widen_sums(xs[2])
        out = np.array(x)
        inside = (index >= 0) & (index < x.shape[0])
        if self.op == "set":
            out[index[inside]] = updates[inside]
        else:
            _COMBINE[self.op].at(out, index[inside], updates[inside])
        return out

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        x, index, updates = xs
        zero = zeros(updates.aval)
        if self.op == "add":
            return [ct, None, lambda: _rows(ct, index)]
        if self.op == "set":
            return [lambda: scatter("set", ct, index, zero), None, lambda: _if_rows(_last(x, index), _rows(ct, index))]
        if self.op == "mul":
            by_x = lambda: mul_nz(ct, _product(x, index, updates))
            return [by_x, None, lambda: mul_nz(_rows(mul_nz(ct, x), index), _other_rows(x, index, updates))]
        share, mine, rows = _shares(out, x, index, updates)
        return [
            lambda: select(mine, mul_nz(ct, share), 0),
            None,
            lambda: select(rows, _rows(mul_nz(ct, share), index), 0),
        ]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        x, index, updates = xs
        tx, _, tu = ts
        if self.op in ("add", "set"):
            tx, tu = [zeros(v.aval) if t is None else t for t, v in ((tx, x), (tu, updates))]
            return bind(self, tx, index, tu)
        left = right = None
        if self.op == "mul":
            if tx is not None:
                left = mul_nz(tx, _product(x, index, updates))
            if tu is not None:
                right = mul_nz(x, _add_rows(x, index, mul_nz(tu, _other_rows(x, index, updates))))
            return accumulate(left, right)
        share, mine, rows = _shares(out, x, index, updates)
        if tx is not None:
            left = select(mine, tx, 0)
        if tu is not None:
            right = _add_rows(x, index, select(rows, tu, 0))
        return mul_nz(share, accumulate(left, right))

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        x, index, updates = map_all(size, mapped, xs)
        n, *rest = x.aval.shape[1:]
        at = positions(index, n, 1, "fill")
        out = bind(self, reshape(x, (size * n, *rest)), at, reshape(updates, (at.aval.size, *rest)))
        return reshape(out, x.aval.shape), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.scatter(self.op, *xs)


_COMBINE: dict[str, Any] = {"set": None, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _rows(x: Any, index: Any, fill: float = 0) -> Any:
    return take(x, index, 0, "fill", fill)


def _add_rows(x: Any, index: Any, rows: Any) -> Any:
    return scatter("add", zeros(x.aval), index, rows)


def _if_rows(mask: Any, rows: Any) -> Any:
    return select(broadcast(mask, rows.aval.shape, (0,)), rows, 0)


def _last(x: Any, index: Any) -> Any:
    """For each update whether no later one wrote its row."""
    order = iota(index.aval.shape, 0, INT)
    none = broadcast(Literal(-1, INT), x.aval.shape[:1], ())
    return compare("eq", _rows(scatter("set", none, index, order), index, -1), order)


def _product(x: Any, index: Any, updates: Any) -> Any:
    return scatter("mul", broadcast(Literal(1, x.aval.dtype), x.aval.shape, ()), index, updates)


def _other_rows(x: Any, index: Any, updates: Any) -> Any:
    """For each update the product of the other updates of its row, with care for zeros among them."""
    is_zero = compare("eq", updates, 0)
    zero_count = _rows(_add_rows(x, index, convert(is_zero, x.aval.dtype)), index)
    safe = select(is_zero, 1, updates)
    nonzero = _rows(_product(x, index, safe), index)
    if_zero = select(compare("eq", zero_count, 1), nonzero, 0)
    return select(is_zero, if_zero, select(compare("eq", zero_count, 0), div(nonzero, safe), 0))


def _shares(out: Any, x: Any, index: Any, updates: Any) -> tuple[Any, Any, Any]:
    """One over the number of elements that attain the result, and which do, in the operand and in the updates."""
    mine, rows = compare("eq", x, out), compare("eq", updates, _rows(out, index))
    count = add(convert(mine, x.aval.dtype), _add_rows(x, index, convert(rows, x.aval.dtype)))
    return div_nz(convert(compare("gt", count, 0), x.aval.dtype), count), mine, rows


# -- the operations as functions ---------------------------------------------------------------------------------
def take(x: Any, index: Any, axis: int, mode: str = "clip", fill: float | None = None) -> Any:
    """Elements of x along an axis."""
    return bind(Take(axis, mode, fill), x, index)


def take_along(x: Any, index: Any, axis: int, mode: str = "clip", fill: float | None = None) -> Any:
    """Elements of x along an axis, each index at its own place."""
    return bind(TakeAlong(axis, mode, fill), x, index)


def scatter(op: str, x: Any, index: Any, updates: Any) -> Any:
    """x with rows set, added, multiplied, or replaced by the smaller or larger."""
    return bind(Scatter(op), x, index, updates)
