"""Operations over a named axis of vmap: psum, pmax, pmin, axis_index, all_gather, psum_scatter, ppermute.

Inside the mapped function such an axis has no position: each lane holds its own value.  ``batch_graph`` with the
axis's name calls ``batch_named``, which turns the operation into one over the leading axis.  As linear maps of all
lanes together, psum and ppermute are transposed by psum and the inverse permutation, and all_gather by psum_scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from funcgrad import dtypes
from funcgrad.errors import message
from funcgrad.ir import Aval
from funcgrad.primitive import Primitive, apply, broadcast_leading, dataclass, zeros
from funcgrad.prims.layout import concatenate, iota, reduce_sum, slice_along, transpose
from funcgrad.prims.pointwise import convert, div_nz, mul
from funcgrad.trace import axis_size, bind, current_builder

Batched = tuple[list[Any], list[bool]]


def unbound(operation: str, name: Any) -> NameError:
    """The error for an axis name that no surrounding vmap binds."""
    way_out = f"call it inside a function mapped by vmap(..., axis_name={name!r})"
    return NameError(message(operation, "the axis must be named by an enclosing vmap", repr(name), way_out))


def collect(prim: Collective, *xs: Any) -> Any:
    """Apply a collective: always recorded, because its value differs between the lanes being mapped."""
    axis_size(prim.axis_name)
    builder = current_builder()
    if builder is None:
        raise unbound(prim.name, prim.axis_name)
    return builder.emit(prim, xs)[0]


class Collective(Primitive):
    """Base: combines the lanes along ``axis_name``; the same elementwise operation under a vmap over another axis."""

    axis_name: Any
    collective: ClassVar[bool] = True  # no value of its own: recorded even where all operands are concrete

    def eval(self, *xs: Any) -> Any:
        raise unbound(self.name, self.axis_name)

    def lower(self, g: Any, *xs: Any) -> Any:
        raise unbound(self.name, self.axis_name)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return bind(self, *xs), True

    def batch_named(self, size: int, mapped: Sequence[bool], axis_name: Any, *xs: Any) -> Batched | None:
        """Combine over the leading axis if this is the axis meant."""
        return self.combine(size, mapped, *xs) if axis_name == self.axis_name else None

    def combine(self, size: int, mapped: Sequence[bool], *xs: Any) -> Batched:
        """The operation over the leading axis of the mapped operands."""
        raise NotImplementedError

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return bind(self, ts[0])


@dataclass(frozen=True)
class PSum(Collective):
    """The sum over all lanes."""

    axis_name: Any
    name = "psum"

    def infer(self, *avals: Aval) -> Aval:
        if avals[0].dtype == dtypes.bool_:
            raise self.dtype_error("numbers are required", avals[0], way_out="convert with astype(int)")
        return avals[0]

    def combine(self, size: int, mapped: Sequence[bool], *xs: Any) -> Batched:
        return [reduce_sum(xs[0], (0,)) if mapped[0] else mul(xs[0], size)], [False]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: bind(self, ct)]


class Extremum(Collective):
    """The largest or smallest over all lanes; ties share the gradient equally."""

    op: ClassVar[str]

    def infer(self, *avals: Aval) -> Aval:
        return avals[0]

    def combine(self, size: int, mapped: Sequence[bool], *xs: Any) -> Batched:
        return [apply(self.op, xs[0], axes=(0,)) if mapped[0] else xs[0]], [False]

    def _share(self, x: Any, out: Any) -> Any:
        """This lane's part of the derivative: 1 over the number of lanes that attain the extremum, or 0."""
        here = convert(apply("eq", x, out), x.aval.dtype)
        return div_nz(here, bind(PSum(self.axis_name), here))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: mul(bind(PSum(self.axis_name), ct), self._share(xs[0], out))]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return bind(PSum(self.axis_name), mul(ts[0], self._share(xs[0], out)))


@dataclass(frozen=True)
class PMax(Extremum):
    """The largest over all lanes."""

    axis_name: Any
    name = "pmax"
    op = "reduce_max"


@dataclass(frozen=True)
class PMin(Extremum):
    """The smallest over all lanes."""

    axis_name: Any
    name = "pmin"
    op = "reduce_min"


@dataclass(frozen=True)
class AxisIndex(Collective):
    """The number of this lane, an int32 scalar."""

    axis_name: Any
    name = "axis_index"

    def infer(self, *avals: Aval) -> Aval:
        return Aval((), dtypes.int32)

    def combine(self, size: int, mapped: Sequence[bool], *xs: Any) -> Batched:
        return [iota((size,), 0, dtypes.int32)], [True]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return bind(self), False


@dataclass(frozen=True)
class AllGather(Collective):
    """The values of all ``size`` lanes along a new leading axis."""

    axis_name: Any
    size: int
    name = "all_gather"

    def infer(self, *avals: Aval) -> Aval:
        return Aval((self.size, *avals[0].shape), avals[0].dtype)

    def combine(self, size: int, mapped: Sequence[bool], *xs: Any) -> Batched:
        return [xs[0] if mapped[0] else broadcast_leading(xs[0], size)], [False]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        out = bind(self, xs[0])
        return transpose(out, (1, 0, *range(2, out.aval.ndim))), True

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: bind(PSumScatter(self.axis_name, self.size), ct)]


@dataclass(frozen=True)
class PSumScatter(Collective):
    """Row i of the sum over all lanes, for lane i of ``size``."""

    axis_name: Any
    size: int
    name = "psum_scatter"

    def infer(self, *avals: Aval) -> Aval:
        x = avals[0]
        if not x.ndim or x.shape[0] != self.size:
            raise self.shape_error(f"axis 0 must have the size {self.size} of the mapped axis", x)
        return Aval(x.shape[1:], x.dtype)

    def combine(self, size: int, mapped: Sequence[bool], *xs: Any) -> Batched:
        return [reduce_sum(xs[0], (0,)) if mapped[0] else mul(xs[0], size)], [True]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return bind(self, transpose(xs[0], (1, 0, *range(2, xs[0].aval.ndim)))), True

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: bind(AllGather(self.axis_name, self.size), ct)]


@dataclass(frozen=True)
class PPermute(Collective):
    """For each pair (source, destination) the source's value at the destination; zeros where no pair arrives."""

    axis_name: Any
    perm: tuple[tuple[int, int], ...]
    name = "ppermute"

    def infer(self, *avals: Aval) -> Aval:
        for side in zip(*self.perm, strict=True):
            if len(set(side)) != len(side):
                raise self.shape_error("sources and destinations must each be distinct", self.perm)
        return avals[0]

    def combine(self, size: int, mapped: Sequence[bool], *xs: Any) -> Batched:
        x = xs[0] if mapped[0] else broadcast_leading(xs[0], size)
        source = {d: s for s, d in self.perm}
        if any(not 0 <= i < size for pair in self.perm for i in pair):
            raise self.shape_error(f"lanes must be between 0 and {size - 1}", self.perm)
        pieces = [_rows(x, a, n) for a, n in _runs([source.get(i) for i in range(size)])]
        return [concatenate(pieces, 0)], [True]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: bind(PPermute(self.axis_name, tuple([(d, s) for s, d in self.perm])), ct)]


def _runs(rows: Sequence[int | None]) -> list[tuple[int | None, int]]:
    """Consecutive rows, and stretches without one, as (first row, count)."""
    out: list[tuple[int | None, int]] = []
    for r in rows:
        if out:
            first, n = out[-1]
            if (first is None and r is None) or (first is not None and r == first + n):
                out[-1] = (first, n + 1)
                continue
        out.append((r, 1))
    return out


def _rows(x: Any, first: int | None, count: int) -> Any:
    if first is None:
        return zeros(Aval((count, *x.aval.shape[1:]), x.aval.dtype))
    return slice_along(x, 0, first, first + count)


# -- the operations as functions of one value --------------------------------------------------------------------
def psum(x: Any, axis_name: Any) -> Any:
    """The sum over all lanes of a named axis; bools count as int32."""
    x = convert(x, dtypes.int32) if x.aval.dtype == dtypes.bool_ else x
    return collect(PSum(axis_name), x)
