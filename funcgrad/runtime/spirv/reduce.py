"""REDUCE nodes as kernels: a few invocations, side by side or one above the other, for each result.

Where the reduced elements are neighbours, so are the invocations that share a result ("rows"); where the kept ones are,
neighbouring invocations have neighbouring results ("columns").  When there are too few results to keep a device busy,
the reduced range is cut into segments, whose states a second kernel joins in their order.  Everything is split by shape
alone, so results are the same each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from funcgrad.runtime.spirv.folds import ARGMAX, ARGMIN, FLOATS, Fold, GroupFold, State, make_fold
from funcgrad.runtime.spirv.index import LONGEST
from funcgrad.runtime.spirv.instructions import MEMORY, SIZES, load, narrow
from funcgrad.runtime.spirv.kernel import Dispatch, Kernel, Memory, Target, Value, Variable, spread_groups
from funcgrad.runtime.spirv.pairs import Divisor
from funcgrad.runtime.spirv.pointwise import DIVIDE, DIVIDE_NZ, Registers, iota, run_code
from funcgrad.runtime.spirv.words import (
    Lowered,
    Operand,
    Program,
    Table,
    coordinates,
    count,
    group_number,
    read_operand,
    read_program,
)
from funcgrad.runtime.views import coalesce

__all__ = ["lower_reduce"]

AT_ONCE = 8  # elements that an invocation loads before it uses them
BUSY = 1024  # groups that keep a device busy


class Reduction(NamedTuple):
    """The words of a REDUCE node."""

    op: int
    keep: list[int]
    red: list[int]
    given: Operand  # with strides for the kept and then the reduced dimensions
    out: Operand


def read(words: Sequence[int]) -> Reduction:
    """The parts of a node, with dimensions merged; the order of reduced ones stays only where it counts."""
    op, nk = words[0], words[1]
    keep = list(words[2 : 2 + nk])
    at = 2 + nk
    nr = words[at]
    red = list(words[at + 1 : at + 1 + nr])
    at += 1 + nr
    given, out = read_operand(words, at, nk + nr), read_operand(words, at + 3 + nk + nr, nk)
    order = sorted(range(nk), key=lambda d: -abs(given.strides[d]))
    keep, (kept, written) = coalesce(
        [keep[d] for d in order], [[given.strides[d] for d in order], [out.strides[d] for d in order]]
    )
    steps = list(given.strides[nk:])
    if op not in (ARGMAX, ARGMIN):
        order = sorted(range(nr), key=lambda d: -abs(steps[d]))
        red, steps = [red[d] for d in order], [steps[d] for d in order]
    red, (reduced,) = coalesce(red, [steps])
    return Reduction(op, keep, red, given._replace(strides=(*kept, *reduced)), out._replace(strides=tuple(written)))


class Shape(NamedTuple):
    """How the work is split: invocations for a result, results of a group, and segments."""

    members: int
    results: int
    segments: int
    segment: int
    rows: bool


def power_of_two(n: int, most: int) -> int:
    """The smallest power of two that is at least n, but at most ``most``."""
    return min(1 << max(n - 1, 0).bit_length(), most)


def widest(target: Target, most: int) -> int:
    """The invocations of a group, a power of two: on a processor one subgroup, because barriers are slow there."""
    return min(most, 1 << ((target.subgroup if target.software else target.most_invocations).bit_length() - 1))


def split(n_out: int, n_red: int, rows: bool, target: Target, least: int = 2 * AT_ONCE) -> Shape:
    """The split by shape alone; an invocation has ``least`` elements of a segment."""
    local = widest(target, 256)
    if rows:
        members = power_of_two(-(-n_red // AT_ONCE), local)
        if n_red >= 32:
            members = max(members, min(32, local))
    elif n_red <= 2 * AT_ONCE or n_out >= local * BUSY:
        members = 1
    else:
        members = local // power_of_two(n_out, min(32, local))
    results = local // members
    groups = -(-n_out // results)
    segments = 1
    busy = BUSY // 16 if target.software else BUSY
    if groups < busy // 2:
        segments = max(1, min(busy // groups, n_red // (members * least), target.most_groups[2]))
    segments = max(segments, -(-n_red // (members * AT_ONCE * LONGEST)))
    segment = -(-n_red // segments)
    return Shape(members, results, -(-n_red // max(segment, 1)) or 1, segment, rows)


class _Source:
    """Where a kernel's elements come from: memory, or the states of segments."""

    def open(self, k: Kernel, table: Table) -> None:
        """Get addresses, before any branch."""
        raise NotImplementedError

    def start(self, result: Value) -> None:
        """Say which result's elements will be asked for."""
        raise NotImplementedError

    def get(self, at: Value) -> list[Value]:
        """One element, as memory has it."""
        raise NotImplementedError

    def fold(
        self, state: State, loaded: Sequence[list[Value]], at: Sequence[Value], there: Sequence[Value] | None = None
    ) -> State:
        """Take elements in, those that are there."""
        raise NotImplementedError


class _Elements(_Source):
    def __init__(self, r: Reduction, fold: Fold) -> None:
        self.r, self.kind = r, fold

    def open(self, k: Kernel, table: Table) -> None:
        r = self.r
        self.place = table.place(r.given, (*r.keep, *r.red), r.given.strides)
        self.memory = k.operand(self.place.number, MEMORY[r.given.dtype])

    def start(self, result: Value) -> None:
        zero = result.k.const(0, "u")
        kept = [*coordinates(result, self.r.keep), *[zero] * len(self.r.red)]
        self.base = self.place.element(kept, zero)

    def get(self, at: Value) -> list[Value]:
        index = self.base
        for x, step in zip(coordinates(at, self.r.red), self.place.steps[len(self.r.keep) :], strict=True):
            index = index + x * step
        return [load(self.memory, index, self.r.given.dtype)]

    def fold(
        self, state: State, loaded: Sequence[list[Value]], at: Sequence[Value], there: Sequence[Value] | None = None
    ) -> State:
        t = self.kind.types[0]
        xs = [x[0].bits(t) for x in loaded]
        return self.kind.several(state, xs, at) if there is None else self.kind.some(state, xs, at, there)


class _Computed(_Elements):
    """Elements that a MAP program computes, in the order of its result, which would be contiguous."""

    def __init__(self, r: Reduction, fold: Fold, p: Program) -> None:
        super().__init__(r, fold)
        self.p = p

    def open(self, k: Kernel, table: Table) -> None:
        self.zero, self.ins = k.const(0, "u"), []
        for x in self.p.inputs:
            place = table.place(x, self.p.dims, x.strides) if x.slot >= 0 else None
            self.ins.append(place and (place, k.operand(place.number, MEMORY[x.dtype])))

    def start(self, result: Value) -> None:
        kept, n = coordinates(result, self.r.keep), len(self.r.keep)
        self.base = result.k.const(self.r.given.offset // 4, "u")
        for x, step in zip(kept, self.r.given.strides[:n], strict=True):
            self.base = self.base + x * (step // 4)
        self.same = {n: self._load(n, []) for n, x in enumerate(self.p.inputs) if x.slot >= 0 and not any(x.strides)}
        quotients = {x[3] for x in self.p.code if x[0] in (DIVIDE, DIVIDE_NZ)}  # inputs keep their registers
        self.divisors = {n: Divisor(self.same[n]) for n in sorted(quotients & set(self.same))}

    def _load(self, n: int, at: Sequence[Value]) -> Value:
        """An input for an element; at none, if it is the same everywhere."""
        x, where = self.p.inputs[n], self.ins[n]
        if where is None:
            return iota(x, at, self.zero)
        place, memory = where
        return load(memory, place.element(at, self.zero) if at else self.zero + place.first, x.dtype)

    def get(self, at: Value) -> list[Value]:
        index = self.base
        steps = self.r.given.strides[len(self.r.keep) :]
        for x, step in zip(coordinates(at, self.r.red), steps, strict=True):
            index = index + x * (step // 4)
        where = coordinates(index, self.p.dims)
        regs = Registers(at.k, len(self.p.widths))
        for n in range(len(self.p.inputs)):
            regs.set(n, self.same[n] if n in self.same else self._load(n, where))
        run_code(regs, self.p.code, self.divisors)
        return [regs.get(self.p.outputs[0][0], "f")]


class _States(_Source):
    """Planes in scratch: one for each value of a state, segment by segment."""

    def __init__(self, fold: Fold, n_out: int, segments: int) -> None:
        self.kind, self.n_out, self.segments = fold, n_out, segments

    def open(self, k: Kernel, table: Table) -> None:
        self.planes: list[Memory] = []
        for n, t in enumerate(self.kind.types):
            number = table.number(~0, n * self.n_out * self.segments * 4)
            self.planes.append(k.operand(number, t))

    def start(self, result: Value) -> None:
        self.result = result

    def get(self, at: Value) -> list[Value]:
        return [p.load(at * self.n_out + self.result) for p in self.planes]

    def fold(
        self, state: State, loaded: Sequence[list[Value]], at: Sequence[Value], there: Sequence[Value] | None = None
    ) -> State:
        for j, x in enumerate(loaded):
            new = self.kind.join(state, x)
            if there is not None:
                new = [a.k.select(there[j], a, b) for a, b in zip(new, state, strict=True)]
            state = new
        return state


class _Stage:
    """One kernel: the states of all results, or of all segments of them."""

    def __init__(self, fold: Fold, source: _Source, n_out: int, n_red: int, shape: Shape, target: Target) -> None:
        self.fold, self.source, self.n_out, self.n_red, self.shape = fold, source, n_out, n_red, shape
        self.groups = spread_groups(-(-n_out // shape.results), target)
        self.k = k = Kernel(target, (shape.members * shape.results, 1, 1))
        self.table = Table()
        source.open(k, self.table)
        t = k.thread()
        if shape.rows:
            self.member, result = t & (shape.members - 1), t // shape.members
        else:
            self.member, result = t // shape.results, t & (shape.results - 1)
        self.group = GroupFold(k, shape.members, shape.results, shape.rows, self.member, result)
        self.result = group_number(k, self.groups) * shape.results + result
        self.inside = self.result < n_out

    def state(self) -> State:
        """The state of a result's segment, in every invocation of that result."""
        k, shape = self.k, self.shape
        self.source.start(k.select(self.inside, self.result, k.const(self.n_out - 1, "u")))
        first, end = self.member, k.const(self.n_red, "u")
        if shape.segments > 1:
            start = k.group(2) * shape.segment
            stop = start + shape.segment
            first, end = first + start, k.select(stop < self.n_red, stop, end)
        at = k.variable(first)
        kept = [k.variable(v) for v in self.fold.empty(k)]
        step = shape.members
        most = -(-shape.segment // step)
        if most >= AT_ONCE:
            ahead = (AT_ONCE - 1) * step
            last = k.select(end > ahead, end - ahead, k.const(0, "u"))
            with k.while_(lambda: at.get() < last):
                self._take(kept, [at.get() + j * step for j in range(AT_ONCE)])
                at.set(at.get() + AT_ONCE * step)
        state = [v.get() for v in kept]
        if shape.segments > 1 or shape.segment % (AT_ONCE * step):
            state = self._rest(state, at.get(), end, min(most, AT_ONCE))
        return self.group(self.fold, state)

    def _take(self, kept: list[Variable], at: list[Value]) -> None:
        loaded = [self.source.get(i) for i in at]
        for variable, value in zip(kept, self.source.fold([v.get() for v in kept], loaded, at), strict=True):
            variable.set(value)

    def _rest(self, state: State, first: Value, end: Value, most: int) -> State:
        """The last few elements, of which some may not be there, with all their loads under way at a time."""
        k = self.k
        if not self.n_red:
            return state
        at = [first + j * self.shape.members for j in range(most)]
        there = [i < end for i in at]
        last = k.const(self.n_red - 1, "u")
        loaded = [self.source.get(k.select(mask, i, last)) for i, mask in zip(at, there, strict=True)]
        return self.source.fold(state, loaded, at, there)

    def writes(self) -> Value:
        """Whether an invocation writes its result."""
        return self.inside & self.member.eq(0) if self.shape.members > 1 else self.inside

    def dispatch(self) -> Dispatch:
        """The finished dispatch."""
        groups = (self.groups[0], self.groups[1], self.shape.segments)
        return Dispatch(self.k.code(), groups, tuple(self.table.rows), self.group.subgroup)


def _segments(stage: _Stage) -> Dispatch:
    """States to scratch."""
    k, shape = stage.k, stage.shape
    planes = [
        k.operand(stage.table.number(~0, n * stage.n_out * shape.segments * 4), t)
        for n, t in enumerate(stage.fold.types)
    ]
    state = stage.state()
    with k.if_(stage.writes()):
        for p, v in zip(planes, state, strict=True):
            p.store(k.group(2) * stage.n_out + stage.result, v)
    return stage.dispatch()


def _results(stage: _Stage, r: Reduction) -> Dispatch:
    """Results to where they belong."""
    k = stage.k
    place = stage.table.place(r.out, r.keep, r.out.strides)
    memory = k.operand(place.number, MEMORY[r.out.dtype])
    x = converted(stage.fold.finish(stage.state()), r)
    with k.if_(stage.writes()):
        memory.store(place.element(coordinates(stage.result, r.keep), k.const(0, "u")), x)
    return stage.dispatch()


def converted(x: Value, r: Reduction) -> Value:
    """A result as its memory has it; sums of truth values may be floats."""
    if r.out.dtype in FLOATS and x.t != "f":
        x = x.k.unary("ConvertSToF" if x.t == "i" else "ConvertUToF", x, "f")
    return narrow(x, r.out.dtype)


def by_rows(r: Reduction) -> bool:
    """Whether the reduced elements are the closer ones."""
    size, nk = SIZES[r.given.dtype], len(r.keep)
    if not nk:
        return True
    if not r.red:
        return False
    row, column = abs(r.given.strides[-1]), abs(r.given.strides[nk - 1])
    if row == size and r.red[-1] >= 4:
        return True
    return column != size and r.red[-1] >= r.keep[-1]


def lower_map_reduce(words: Sequence[int], target: Target) -> Lowered:
    """The dispatches of a REDUCE node whose elements a MAP program computes: the number of its words, they, and the
    words of the reduction."""
    n = words[0]
    return lower_reduce(words[1 + n :], target, read_program(words[1 : 1 + n], rows=False))


def lower_reduce(words: Sequence[int], target: Target, elements: Program | None = None) -> Lowered:
    """The dispatches of a REDUCE node: one, or one for segments and one that joins them."""
    r = read(words)
    n_out, n_red = count(r.keep), count(r.red)
    if not n_out:
        return Lowered([], [])
    fold = make_fold(r.op, r.given.dtype)
    shape = split(n_out, n_red, by_rows(r), target, 2 * AT_ONCE if elements is None else AT_ONCE)
    source = _Elements(r, fold) if elements is None else _Computed(r, fold, elements)
    first = _Stage(fold, source, n_out, n_red, shape, target)
    if shape.segments == 1:
        return Lowered([_results(first, r)], [])
    again = split(n_out, shape.segments, n_out == 1, target)._replace(segments=1, segment=shape.segments)
    second = _Stage(fold, _States(fold, n_out, shape.segments), n_out, shape.segments, again, target)
    size = len(fold.types) * n_out * shape.segments * 4
    return Lowered([_segments(first), _results(second, r)], [size])
