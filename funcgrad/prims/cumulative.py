"""Running results along an axis: sum, product, maximum, minimum, log of the sum of exponentials.

Their derivatives are linear recurrences, solved in log2(n) steps of library operations, so that they nest to any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import Arg, Example, Linear, Primitive, example
from funcgrad.prims.functions import Exp
from funcgrad.prims.layout import pad
from funcgrad.prims.logic import compare
from funcgrad.prims.pointwise import add, convert, div_nz, mul_nz, select, sub
from funcgrad.trace import bind

NUMBERS = dtypes.FLOATS | dtypes.INTS
TIES = Arg("f32[2,4]", values=[[1, 3, 3, 0], [-1, -1, -1, -1]])
SPECIAL = Arg("f32[3,3]", values=[[1, np.nan, 2], [np.inf, -np.inf, np.nan], [-0.0, 0.0, -np.inf]])
INTS = Arg("i32[2,3]", values=[[2**31 - 1, -5, -5], [0, -(2**31), 7]])
UINTS = Arg("u32[3]", values=[1, 2**32 - 1, 0])


def widen_sums(x: Any) -> Any:
    """float32 as float64, so that the reference rounds once."""
    return x.astype(np.float64) if x.dtype == np.float32 else x


def check_axis(prim: Primitive, axis: int, x: Aval) -> None:
    """Raise ShapeError unless x has that axis."""
    if not 0 <= axis < x.ndim:
        way_out = "count axes from 0" if x.ndim else "give the array an axis with reshape"
        raise prim.shape_error(f"axis must be one of {x.ndim} axes", f"{axis} for {x}", way_out=way_out)


def shift(x: Any, axis: int, reverse: bool, fill: Any, by: int = 1) -> Any:
    """At each place the element ``by`` places earlier (later when ``reverse``), ``fill`` where there is none."""
    low = [0] * x.aval.ndim
    low[axis] = -by if reverse else by
    return pad(x, fill, low, [-n for n in low], [0] * x.aval.ndim)


def recurrence(a: Any, b: Any, axis: int, reverse: bool) -> Any:
    """The solution of s[i] = b[i] + a[i] * s[i - 1] along an axis, in log2(n) steps that double the reach.

    After each step, s[i] = b[i] + a[i] * s[i - by]: Hillis and Steele, "Data parallel algorithms", 1986.
    """
    n, by = b.aval.shape[axis], 1
    while by < n:
        b = add(b, mul_nz(a, shift(b, axis, reverse, 0, by)))
        a = mul_nz(a, shift(a, axis, reverse, 0, by)) if 2 * by < n else a
        by *= 2
    return b


def _runs(*more: Example, ints: bool = True) -> list[Example]:
    out = [
        example("f32[5]", axis=0, reverse=False),
        example("f32[2,3]", axis=1, reverse=True),
        example("f32[3,2,2]", axis=0, reverse=False),
        example("f32[2,4,1,2]", axis=1, reverse=True),
        example("f32[0,3]", axis=0, reverse=False),
        example("f32[2,1]", axis=1, reverse=False),
        example(SPECIAL, axis=1, reverse=False, smooth=False),
        example("f16[5]", axis=0, reverse=True, smooth=False),
    ]
    if ints:
        out += [example(a, axis=0, reverse=False, smooth=False) for a in (INTS, UINTS)]
    return [*out, *more]


@dataclass(frozen=True)
class Cumulative(Primitive):
    """At each place along ``axis`` the result for all elements up to it (from it on when ``reverse``)."""

    axis: int
    reverse: bool
    accepts: ClassVar[frozenset[Any]] = NUMBERS
    op: ClassVar[str] = ""
    fn: ClassVar[Any]

    def infer(self, *avals: Aval) -> Aval:
        x = avals[0]
        if x.dtype not in self.accepts:
            raise self.dtype_error("dtype must be a number that this operation knows", x, way_out="convert with astype")
        check_axis(self, self.axis, x)
        return x

    def eval(self, *xs: Any) -> Any:
        x = widen_sums(xs[0])
        if not self.reverse:
            return type(self).fn.accumulate(x, self.axis, dtype=x.dtype)
        return np.flip(type(self).fn.accumulate(np.flip(x, self.axis), self.axis, dtype=x.dtype), self.axis)

    def before(self, x: Any, fill: Any) -> Any:
        """What was there one step earlier in the order of the scan."""
        return shift(x, self.axis, self.reverse, fill)

    def scan(self, a: Any, b: Any) -> Any:
        """s = b + a * (s one step earlier)."""
        return recurrence(a, b, self.axis, self.reverse)

    def scan_back(self, a: Any, b: Any) -> Any:
        """The transpose of ``scan`` in b: s = b + (a * s) one step later."""
        return recurrence(shift(a, self.axis, not self.reverse, 0), b, self.axis, not self.reverse)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return bind(replace(self, axis=self.axis + 1), xs[0]), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.cumulative(self.op, xs[0], self.axis, self.reverse)


@dataclass(frozen=True)
class CumSum(Cumulative, Linear):
    """The running sum; its transpose runs the other way."""

    name = "cumsum"
    op = "sum"
    fn = np.add
    examples = _runs()

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: bind(CumSum(self.axis, not self.reverse), ct)]


@dataclass(frozen=True)
class CumProd(Cumulative):
    """The running product; derivatives divide by nothing, so they are exact with any number of zeros."""

    name = "cumprod"
    op = "prod"
    fn = np.multiply
    examples = _runs(
        example(Arg("f32[2,5]", values=[[2, 0, 3, 4, 5], [1, 0, 2, 0, 3]]), axis=1, reverse=False),
        example(Arg("f32[4]", values=[0, 0, 2, 3]), axis=0, reverse=True),
    )

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: mul_nz(self.scan_back(xs[0], ct), self.before(out, 1))]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return self.scan(xs[0], mul_nz(ts[0], self.before(out, 1)))


class CumulativeExtremum(Cumulative):
    """A running maximum or minimum."""

    def _tied(self, out: Any, x: Any) -> tuple[Any, Any, Any]:
        """Which elements attain the result, whether it is that of the step before, and how many attain it so far."""
        dtype = x.aval.dtype
        mask = compare("eq", x, out)
        same = convert(compare("eq", out, self.before(out, np.nan)), dtype)
        return mask, same, self.scan(same, convert(mask, dtype))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        def make() -> Any:
            mask, same, count = self._tied(out, xs[0])
            return select(mask, self.scan_back(same, div_nz(ct, count)), 0)

        return [make]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        mask, same, count = self._tied(out, xs[0])
        return div_nz(self.scan(same, select(mask, ts[0], 0)), count)


_CUM_TIES = example(TIES, axis=1, reverse=False, smooth=False)


@dataclass(frozen=True)
class CumMax(CumulativeExtremum):
    """The running maximum; NaN stays."""

    name = "cummax"
    op = "max"
    fn = np.maximum
    examples = _runs(_CUM_TIES)


@dataclass(frozen=True)
class CumMin(CumulativeExtremum):
    """The running minimum; NaN stays."""

    name = "cummin"
    op = "min"
    fn = np.minimum
    examples = _runs(_CUM_TIES)


@dataclass(frozen=True)
class CumLogSumExp(Cumulative):
    """The running log of the sum of exponentials: y[i] = log(exp(y[i-1]) + exp(x[i])), which never overflows."""

    name = "cumlogsumexp"
    op = "logsumexp"
    accepts = dtypes.FLOATS
    fn = np.logaddexp
    examples = _runs(
        example(Arg("f32[4]", values=[-np.inf, -np.inf, 1, 900]), axis=0, reverse=False, smooth=False), ints=False
    )

    def _weights(self, out: Any, x: Any) -> tuple[Any, Any]:
        """The derivatives of y[i] by y[i-1] and by x[i]: exponentials of numbers that are at most 0."""
        low = Literal(-np.inf, x.aval.dtype)
        top = select(compare("eq", out, low), 0, out)
        return bind(Exp(), sub(self.before(out, low), top)), bind(Exp(), sub(x, top))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        def make() -> Any:
            carried, own = self._weights(out, xs[0])
            return mul_nz(self.scan_back(carried, ct), own)

        return [make]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        carried, own = self._weights(out, xs[0])
        return self.scan(carried, mul_nz(ts[0], own))
