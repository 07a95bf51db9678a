"""ROWS nodes as kernels: a few invocations for each row, which fold it together.

A short row is read once and its values stay in registers, a few elements for each invocation.  A longer one (or a long
program) is gone through once for each fold that waits for another, and what is needed of it is computed again; results
are written while going through it the last time, each element by the invocation that has just read it, because they may
lie over the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from funcgrad.runtime.spirv.folds import Extreme, FloatSum, Fold, GroupFold, PlainSum, join_all
from funcgrad.runtime.spirv.instructions import INSTRUCTIONS, MEMORY, NUMBERS, Unsupported, load, store
from funcgrad.runtime.spirv.kernel import Dispatch, Kernel, Memory, Target, Value, spread_groups
from funcgrad.runtime.spirv.pairs import Divisor
from funcgrad.runtime.spirv.pointwise import iota, typed
from funcgrad.runtime.spirv.reduce import power_of_two, widest
from funcgrad.runtime.spirv.words import (
    Lowered,
    Operand,
    Place,
    Program,
    Table,
    coordinates,
    count,
    group_number,
    read_program,
)
from funcgrad.runtime.views import coalesce

__all__ = ["lower_rows"]

INPUT, CONST, SPREAD, SUM, MAX, MIN = -9, NUMBERS["const"], -1, -2, -3, -4
FOLDS = (SUM, MAX, MIN)
DIVIDE, DIVIDE_NZ = NUMBERS["div_f"], NUMBERS["div_nz_f"]
IN_REGISTERS = 8  # elements of a row for each invocation that may stay in registers
LONG = 2500  # additions of the program for these elements, from which on they do not
Cell = dict[str, Value]  # one value, as the types it was asked for


class Step(NamedTuple):
    """An instruction, or an input, in single assignment: sources are numbers of steps (a constant's is its bits)."""

    op: int
    sources: tuple[int, ...]
    wide: bool
    single: bool  # one value for the row, although it may be wide
    level: int  # how many folds one after another it waits for


def steps_of(p: Program) -> tuple[list[Step], list[int]]:
    """The program in single assignment, and the step of each output."""
    steps: list[Step] = []
    at: dict[int, int] = {}
    for n, x in enumerate(p.inputs):
        single = not p.widths[n] or x.strides[-1] == 0
        steps.append(Step(INPUT, (n,), bool(p.widths[n]), single, 0))
        at[n] = n
    for op, dst, *words in p.code:
        wide = bool(p.widths[dst])
        if op == CONST:
            step = Step(op, (words[0],), True, True, 0)
        else:
            n = 1 if op < 0 else len(INSTRUCTIONS[op].sources)
            sources = tuple(at[r] for r in words[:n])
            from_ = [steps[s] for s in sources]
            single = not wide or all(s.single for s in from_)
            if not wide and op not in FOLDS and not all(s.single for s in from_):
                raise Unsupported("rows: a value of a row must not be made from its elements but by a fold")
            level = max((s.level for s in from_), default=0) + (op in FOLDS)
            step = Step(op, sources, wide, single, level)
        at[dst] = len(steps)
        steps.append(step)
    return steps, [at[r] for r, _ in p.outputs]


class Shape(NamedTuple):
    """Invocations for a row, rows of a group, elements that an invocation takes at a time, and whether that is all."""

    members: int
    rows: int
    each: int
    whole: bool


def shape_of(steps: Sequence[Step], columns: int, target: Target) -> Shape:
    """The split, by the program and the length of a row."""
    cost = sum(2 if s.op < 0 else INSTRUCTIONS[s.op].cost for s in steps if not s.single)
    local = widest(target, 1024)
    members = power_of_two(-(-columns // (4 if columns <= 128 else 8)), min(256, local))
    while members < local and -(-columns // members) > 8:
        members *= 2
    each = -(-columns // members)
    whole = each == 1 or (each <= IN_REGISTERS and each * cost <= LONG)
    if not whole:
        each = 4 if cost * 4 <= LONG else 1
    return Shape(members, max(1, min(256, local) // members), each, whole)


class _Rows:
    """The kernel of a ROWS node while it is made."""

    def __init__(self, p: Program, target: Target) -> None:
        self.p, self.columns = p, p.dims[-1]
        self.steps, self.results = steps_of(p)
        self.shape = shape = shape_of(self.steps, self.columns, target)
        self.count = count(p.dims[:-1])
        self.groups = spread_groups(-(-self.count // shape.rows), target)
        self.k = k = Kernel(target, (shape.members * shape.rows, 1, 1))
        self.zero, self.table = k.const(0, "u"), Table()
        self.ins = [self._place(x) if x.slot >= 0 else None for x in p.inputs]
        self.outs = [self._place(x) for _, x in p.outputs]
        t = k.thread()
        self.member, number = t & (shape.members - 1), t // shape.members
        self.fold = GroupFold(k, shape.members, shape.rows, True, self.member, number)
        row = group_number(k, self.groups) * shape.rows + number
        self.every_row = self.groups[0] * self.groups[1] * shape.rows == self.count
        self.inside = None if self.every_row else row < self.count
        if self.inside is not None:
            row = k.select(self.inside, row, k.const(self.count - 1, "u"))
        self.row = coordinates(row, p.dims[:-1])
        self.bases = [w and w[0].element([*self.row, self.zero], self.zero) for w in self.ins]
        self.singles: dict[int, Cell] = {}
        self.divisors: dict[int, Divisor] = {}

    def _place(self, x: Operand) -> tuple[Place, Memory]:
        place = self.table.place(x, self.p.dims, x.strides)
        return place, self.k.operand(place.number, MEMORY[x.dtype])

    # -- values

    def _input(self, n: int, column: Value) -> Cell:
        x, where, base = self.p.inputs[n], self.ins[n], self.bases[n]
        if where is None:
            value = iota(x, [*self.row, column], self.zero)
        else:
            assert base is not None
            step = where[0].steps[-1]
            value = load(where[1], base + column * step if step else base, x.dtype)
        return {value.t: value}

    def _run(self, step: Step, cells: Sequence[Cell]) -> Cell:
        if step.op == SPREAD:
            return cells[0]
        x = INSTRUCTIONS[step.op]
        value = x.make(*[typed(c, t) for c, t in zip(cells, x.sources, strict=True)])
        return {value.t: value}

    def _settle(self, level: int) -> None:
        """Compute the values of the row that wait for no more folds than this."""
        for n, s in enumerate(self.steps):
            if n in self.singles or not s.single or s.level > level or s.op in FOLDS:
                continue
            if s.op == INPUT:
                self.singles[n] = self._input(s.sources[0], self.zero)
            elif s.op == CONST:
                self.singles[n] = {"u": self.k.const(s.sources[0], "u")}
            else:
                self.singles[n] = self._run(s, [self.singles[m] for m in s.sources])

    def _elements(self, wanted: Sequence[int], columns: Sequence[Value], known: dict[int, list[Cell]]) -> None:
        """Compute steps for some columns, and what they need; ``known`` gets them."""
        needed, queue = set(), list(wanted)
        while queue:
            n = queue.pop()
            if n in needed or n in known or self.steps[n].single:
                continue
            needed.add(n)
            if self.steps[n].op != INPUT:
                queue += self.steps[n].sources
        for n in sorted(needed):
            s = self.steps[n]
            if s.op == INPUT:
                known[n] = [self._input(s.sources[0], c) for c in columns]
            elif s.op in (DIVIDE, DIVIDE_NZ) and self.steps[s.sources[1]].single:
                xs = [typed(c, "f") for c in self._cells(s.sources[0], known, len(columns))]
                known[n] = [{"f": q} for q in self._quotients(xs, s.sources[1], s.op == DIVIDE_NZ)]
            else:
                known[n] = [
                    self._run(s, [self.singles[m] if self.steps[m].single else known[m][j] for m in s.sources])
                    for j in range(len(columns))
                ]

    def _quotients(self, xs: Sequence[Value], by: int, zeros: bool) -> list[Value]:
        """Values divided by one of the row; with ``zeros`` 0 stays 0."""
        divisor = self.divisors.get(by) or Divisor(typed(self.singles[by], "f"))
        if self.shape.whole:  # without loops: it is known from here on
            self.divisors[by] = divisor
        out = [divisor.divide(x) for x in xs]
        return [self.k.select(x.eq(0.0), 0.0, q) for x, q in zip(xs, out, strict=True)] if zeros else out

    def _cells(self, n: int, known: dict[int, list[Cell]], each: int) -> list[Cell]:
        return [self.singles[n]] * each if self.steps[n].single else known[n]

    # -- going through the rows

    def _columns(self, first: Value, each: int) -> tuple[list[Value], list[Value | None]]:
        """Columns of an invocation, and which are there at all (None: it is)."""
        k, shape = self.k, self.shape
        at = [first + j * shape.members if j else first for j in range(each)]
        sure = self.columns % (shape.members * each) == 0
        certain = self.columns // shape.members if shape.whole else 1  # a loop's first column is there
        there = [None if sure or j < certain else c < self.columns for j, c in enumerate(at)]
        last = k.const(self.columns - 1, "u")
        return [c if t is None else k.select(t, c, last) for c, t in zip(at, there, strict=True)], there

    def _kinds(self, level: int) -> list[tuple[int, Fold]]:
        """The folds of a level."""
        total: Fold = PlainSum() if self.shape.whole else FloatSum()
        made = {SUM: total, MAX: Extreme("f", False), MIN: Extreme("f", True)}
        return [(n, made[s.op]) for n, s in enumerate(self.steps) if s.op in FOLDS and s.level == level]

    def _masked(self, cells: Sequence[Cell], there: Sequence[Value | None], fold: Fold) -> list[Value]:
        nothing = fold.empty(self.k)[0]
        return [typed(c, "f") if t is None else self.k.select(t, typed(c, "f"), nothing)
                for c, t in zip(cells, there, strict=True)]  # fmt: skip

    def _finish(self, n: int, fold: Fold, state: list[Value]) -> None:
        value = fold.finish(self.fold(fold, state))
        self.singles[n] = {value.t: value}

    def at_once(self) -> None:
        """A row whose values stay in registers."""
        each = self.shape.each
        columns, there = self._columns(self.member, each)
        known: dict[int, list[Cell]] = {}
        self._settle(0)
        self._elements([n for n, s in enumerate(self.steps) if s.op == INPUT and not s.single], columns, known)
        for level in range(1, self._levels() + 1):
            for n, fold in self._kinds(level):
                source = self.steps[n].sources[0]
                self._elements([source], columns, known)
                parts = [[v] for v in self._masked(self._cells(source, known, each), there, fold)]
                self._finish(n, fold, join_all(fold, parts))
            self._settle(level)
        self._elements(self.results, columns, known)
        self._store(known, columns, there)

    def again_and_again(self) -> None:
        """A long row."""
        k, each = self.k, self.shape.each
        self._settle(0)
        for level in range(1, self._levels() + 1):
            folds = self._kinds(level)
            kept = [[k.variable(v) for v in fold.empty(k)] for _, fold in folds]
            with k.loop(self.columns, self.member, self.shape.members * each) as first:
                columns, there = self._columns(first, each)
                known: dict[int, list[Cell]] = {}
                self._elements([self.steps[n].sources[0] for n, _ in folds], columns, known)
                for (n, fold), variables in zip(folds, kept, strict=True):
                    values = self._masked(self._cells(self.steps[n].sources[0], known, each), there, fold)
                    state = fold.several([v.get() for v in variables], values, columns)
                    for variable, v in zip(variables, state, strict=True):
                        variable.set(v)
            for (n, fold), variables in zip(folds, kept, strict=True):
                self._finish(n, fold, [v.get() for v in variables])
            self._settle(level)
        with k.loop(self.columns, self.member, self.shape.members * each) as first:
            columns, there = self._columns(first, each)
            known = {}
            self._elements(self.results, columns, known)
            self._store(known, columns, there)

    def _levels(self) -> int:
        return max(s.level for s in self.steps)

    # -- results

    def _store(self, known: dict[int, list[Cell]], columns: Sequence[Value], there: Sequence[Value | None]) -> None:
        """Write the results for each element."""
        for j, (column, here) in enumerate(zip(columns, there, strict=True)):
            masks = [m for m in (here, self.inside) if m is not None]
            if len(masks) == 2:
                masks = [masks[0] & masks[1]]
            if masks:
                with self.k.if_(masks[0]):
                    self._store_wide(known, j, column)
            else:
                self._store_wide(known, j, column)

    def _store_wide(self, known: dict[int, list[Cell]], j: int, column: Value) -> None:
        for (reg, x), (place, memory), n in zip(self.p.outputs, self.outs, self.results, strict=True):
            if self.p.widths[reg]:
                self._store_one(x, place, memory, self._cells(n, known, self.shape.each)[j], column)

    def _store_one(self, x: Operand, place: Place, memory: Memory, cell: Cell, column: Value) -> None:
        t = {"f": "f", "h": "f", "i": "i"}.get(MEMORY[x.dtype], "u")
        store(memory, place.element([*self.row, column], self.zero), typed(cell, t), x.dtype)

    def _store_narrow(self) -> None:
        """Write the results for the row, once all of the group have read the values of rows that they may lie over."""
        narrow = [n for n, (reg, _) in enumerate(self.p.outputs) if not self.p.widths[reg]]
        if not narrow:
            return
        if self.shape.members > 1 and any(s.op == INPUT and s.single for s in self.steps):
            self.k.barrier()
        mask = self.member.eq(0)
        with self.k.if_(mask if self.inside is None else mask & self.inside):
            for n in narrow:
                place, memory = self.outs[n]
                self._store_one(self.p.outputs[n][1], place, memory, self.singles[self.results[n]], self.zero)

    def make(self) -> Dispatch:
        """The finished dispatch."""
        if self.shape.whole:
            self.at_once()
        else:
            self.again_and_again()
        self._store_narrow()
        return Dispatch(self.k.code(), self.groups, tuple(self.table.rows), self.fold.subgroup)


def _merged(p: Program) -> Program:
    """The dimensions of rows merged where all operands allow."""
    strides = [x.strides for x in p.inputs] + [x.strides for _, x in p.outputs]
    dims, outer = coalesce(p.dims[:-1], [s[:-1] for s in strides])
    merged = [(*o, s[-1]) for o, s in zip(outer, strides, strict=True)]
    inputs = [x._replace(strides=s) for x, s in zip(p.inputs, merged, strict=False)]
    outputs = [(r, x._replace(strides=s)) for (r, x), s in zip(p.outputs, merged[len(inputs) :], strict=True)]
    return Program((*dims, p.dims[-1]), inputs, outputs, p.widths, p.code)


def lower_rows(words: Sequence[int], target: Target) -> Lowered:
    """The dispatch of a ROWS node."""
    p = read_program(words, rows=True)
    if 0 in p.dims:
        return Lowered([], [])
    return Lowered([_Rows(_merged(p), target).make()], [])
