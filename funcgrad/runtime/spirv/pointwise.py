"""MAP nodes as kernels: each invocation runs the program for a few elements, a group's width apart.

All loads come before the first store, so that an output may lie over an input of the same strides, and so that many
loads are on their way at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from funcgrad.runtime.spirv.instructions import INSTRUCTIONS, MEMORY, NUMBERS, load, store
from funcgrad.runtime.spirv.kernel import Dispatch, Kernel, Memory, Target, Value, spread_groups
from funcgrad.runtime.spirv.pairs import Divisor
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

__all__ = ["DIVIDE", "DIVIDE_NZ", "Registers", "iota", "lower_map", "lower_program", "run_code", "typed"]

CONST = NUMBERS["const"]
MOV = NUMBERS["mov"]
DIVIDE, DIVIDE_NZ = NUMBERS["div_f"], NUMBERS["div_nz_f"]
TILE = 32  # rows and columns of a square that is turned round
LEAST = 8  # of a dimension that is worth it
MOST_CROSSED = 6
FEW_GROUPS = 2048  # below so many groups an invocation takes one element


class Registers:
    """The registers of a program: values without a type of their own, with those that were asked for."""

    def __init__(self, k: Kernel, n: int) -> None:
        self.k = k
        self.values: list[dict[str, Value]] = [{} for _ in range(n)]

    def set(self, reg: int, value: Value) -> None:
        """Write a register."""
        self.values[reg] = {value.t: value}

    def get(self, reg: int, t: str) -> Value:
        """Read a register as a type."""
        return typed(self.values[reg], t)


def typed(known: dict[str, Value], t: str) -> Value:
    """A value as a type, from what is known of it so far."""
    found = known.get(t)
    if found is None:
        value = next(iter(known.values()))
        if t == "f" and value.const is not None:
            found = _literal(value.k, value.const)
        else:
            found = value.bits(t)
        known[t] = found
    return found


def _literal(k: Kernel, word: int) -> Value:
    """A float32 of the user's with these bits.

    Mesa's software driver takes products, sums and quotients with a constant 0 for 0, the other operand and an
    undefined value.  There a 0 is a bit of an address that is never set, so that no compiler knows it.
    """
    if word & 0x7FFFFFFF or not k.target.software:
        return k.bits_const(word, "f")
    return ((k.component(k.address_pair(0), 1, "u") >> 31) | word).bits("f")


def run_code(regs: Registers, code: Sequence[Sequence[int]], divisors: Mapping[int, Divisor] | None = None) -> None:
    """Run instructions of MAP; ``divisors`` has inputs, by their registers, that are the same for many elements."""
    for op, dst, *sources in code:
        if op == CONST:
            regs.set(dst, regs.k.const(sources[0], "u"))
        elif op == MOV:
            regs.values[dst] = regs.values[sources[0]]
        elif divisors and op in (DIVIDE, DIVIDE_NZ) and sources[1] in divisors:
            x = regs.get(sources[0], "f")
            q = divisors[sources[1]].divide(x)
            regs.set(dst, q if op == DIVIDE else regs.k.select(x.eq(0.0), 0.0, q))
        else:
            made = INSTRUCTIONS[op]
            regs.set(dst, made.make(*[regs.get(r, t) for r, t in zip(sources, made.sources, strict=False)]))


def _ordered(p: Program) -> Program:
    """The dimensions by the first output's strides, so that neighbours write neighbours; then merged."""
    strides = [x.strides for x in p.inputs] + [x.strides for _, x in p.outputs]
    lead = p.outputs[0][1].strides
    order = sorted(range(len(p.dims)), key=lambda d: -abs(lead[d]))
    dims, strides_ = coalesce([p.dims[d] for d in order], [[s[d] for d in order] for s in strides])
    inputs = [x._replace(strides=tuple(s)) for x, s in zip(p.inputs, strides_, strict=False)]
    rest = strides_[len(inputs) :]
    outputs = [(r, x._replace(strides=tuple(s))) for (r, x), s in zip(p.outputs, rest, strict=True)]
    return Program(tuple(dims), inputs, outputs, p.widths, p.code)


def iota(x: Operand, at: Sequence[Value], zero: Value) -> Value:
    """An operand without memory: its offset and the sum of coordinates times strides, modulo 2^32."""
    out = zero + (x.offset & 0xFFFFFFFF)
    for v, step in zip(at, x.strides, strict=True):
        out = out + v * (step & 0xFFFFFFFF)
    return out.bits("i")


def _elements(p: Program, n: int, target: Target, local: int) -> int:
    """How many elements an invocation takes: fewer for long programs, many operands, and few elements."""
    if target.software:
        return 1
    cost = sum(INSTRUCTIONS[x[0]].cost for x in p.code)
    most = 4 if cost <= 60 else 2 if cost <= 150 else 1
    if max(_size(x) for _, x in p.outputs) < 4 and cost <= 60:
        most = 8
    while most > 1 and (n < most * local * FEW_GROUPS or most * (len(p.inputs) + len(p.outputs)) > 32):
        most //= 2
    return most


def _size(x: Operand) -> int:
    return {"h": 2, "c": 1}.get(MEMORY[x.dtype], 4)


class _Map:
    """The kernel of a MAP node while it is made."""

    def __init__(self, p: Program, target: Target) -> None:
        self.p, self.n, self.table = p, count(p.dims), Table()
        self.turned: list[int] = []  # inputs that come another way
        self.local = min(256, target.most_invocations)
        self.each = _elements(p, self.n, target, self.local)
        self.groups = spread_groups(-(-self.n // (self.local * self.each)), target)
        self.whole = self.groups[0] * self.groups[1] * self.local * self.each == self.n
        self.k = Kernel(target, (self.local, 1, 1))
        self.zero = self.k.const(0, "u")
        self.ins = [self._place(x) if x.slot >= 0 else None for x in p.inputs]
        self.outs = [self._place(x) for _, x in p.outputs]

    def _place(self, x: Operand) -> tuple[Place, Memory]:
        place = self.table.place(x, self.p.dims, x.strides)
        return place, self.k.operand(place.number, MEMORY[x.dtype])

    def _load(self, at: list[list[Value]]) -> list[Registers]:
        """The inputs of each element; what is the same for all is loaded once."""
        p, regs = self.p, [Registers(self.k, len(self.p.widths)) for _ in at]
        for n, (x, where) in enumerate(zip(p.inputs, self.ins, strict=True)):
            same = None
            if n in self.turned:
                continue
            for r, c in zip(regs, at, strict=True):
                if where is None:
                    r.set(n, iota(x, c, self.zero))
                elif any(where[0].steps) or same is None:
                    same = load(where[1], where[0].element(c, self.zero), x.dtype)
                    r.set(n, same)
                else:
                    r.set(n, same)
        return regs

    def _store(self, regs: Registers, at: list[Value]) -> None:
        for (reg, x), (place, memory) in zip(self.p.outputs, self.outs, strict=True):
            t = {"f": "f", "h": "f", "i": "i"}.get(MEMORY[x.dtype], "u")
            store(memory, place.element(at, self.zero), regs.get(reg, t), x.dtype)

    def make(self) -> Dispatch:
        """The finished dispatch."""
        k, p = self.k, self.p
        start = group_number(k, self.groups) * (self.local * self.each) + k.thread()
        flat = [start + v * self.local for v in range(self.each)]
        inside = flat
        if not self.whole:
            inside = [k.select(i < self.n, i, k.const(self.n - 1, "u")) for i in flat]
        at = [coordinates(i, p.dims) for i in inside]
        regs = self._load(at)
        for r in regs:
            run_code(r, p.code)
        for r, i, c in zip(regs, flat, at, strict=True):
            if self.whole:
                self._store(r, c)
            else:
                with k.if_(i < self.n):
                    self._store(r, c)
        return Dispatch(k.code(), self.groups, tuple(self.table.rows))


def crossed(p: Program, target: Target) -> tuple[int, list[int]]:
    """The dimension along which some inputs are contiguous while the first output is not, and these inputs."""
    found: dict[int, list[int]] = {}
    if target.software or len(p.dims) < 2 or p.dims[-1] < LEAST or math.prod(p.dims) < TILE * TILE * 4:
        return 0, []
    for n, x in enumerate(p.inputs):
        if x.slot < 0 or x.strides[-1] == 0 or abs(x.strides[-1]) <= _size(x):
            continue
        near = [d for d, s in enumerate(x.strides[:-1]) if abs(s) == _size(x) and p.dims[d] >= LEAST]
        if near:
            found.setdefault(near[0], []).append(n)
    if not found:
        return 0, []
    most = max(found, key=lambda d: len(found[d]))
    return most, found[most][:MOST_CROSSED]


class _Tiled(_Map):
    """A MAP whose inputs include transposed ones: a group reads a square of them along their own contiguous dimension
    and turns it round in shared memory."""

    def __init__(self, p: Program, target: Target, across: int, turned: list[int]) -> None:
        super().__init__(p, target)
        self.across, self.turned = across, turned
        rest = [n for d, n in enumerate(p.dims[:-1]) if d != across]
        self.tiles = [*rest, -(-p.dims[across] // TILE), -(-p.dims[-1] // TILE)]
        self.groups = spread_groups(math.prod(self.tiles), target)

    def _at(self, rest: Sequence[Value], a: Value, b: Value) -> list[Value]:
        """An element's coordinates, moved inside where it is not."""
        k, p = self.k, self.p
        limits = ((a, p.dims[self.across]), (b, p.dims[-1]))
        a, b = [v if n % TILE == 0 else k.select(v < n, v, k.const(n - 1, "u")) for v, n in limits]
        return [*rest[: self.across], a, *rest[self.across :], b]

    def make(self) -> Dispatch:
        """The finished dispatch; groups have eight rows of 32 invocations."""
        k, p = self.k, self.p
        group = group_number(k, self.groups)
        if self.groups[1] > 1:
            group = k.select(group < math.prod(self.tiles), group, k.const(math.prod(self.tiles) - 1, "u"))
        *rest, a, b = coordinates(group, self.tiles)
        lane, row = k.thread() & (TILE - 1), k.thread() // TILE
        lines = [row + j * (self.local // TILE) for j in range(TILE * TILE // self.local)]
        squares = {n: k.shared("u", TILE * (TILE + 1)) for n in self.turned}
        along = [self._at(rest, a * TILE + lane, b * TILE + line) for line in lines]
        for n in self.turned:
            place, memory = self.ins[n] or (None, None)
            assert place is not None and memory is not None
            values = [load(memory, place.element(c, self.zero), p.inputs[n].dtype) for c in along]
            for line, value in zip(lines, values, strict=True):
                squares[n].store(line * (TILE + 1) + lane, value.bits())
        k.barrier()
        at = [self._at(rest, a * TILE + line, b * TILE + lane) for line in lines]
        regs = self._load(at)
        for line, r in zip(lines, regs, strict=True):
            for n, square in squares.items():
                r.set(n, square.load(lane * (TILE + 1) + line))
            run_code(r, p.code)
        for line, r, c in zip(lines, regs, at, strict=True):
            inside = (a * TILE + line < p.dims[self.across]) & (b * TILE + lane < p.dims[-1])
            with k.if_(inside):
                self._store(r, c)
        return Dispatch(k.code(), self.groups, tuple(self.table.rows))


def lower_map(words: Sequence[int], target: Target) -> Lowered:
    """The dispatch of a MAP node."""
    return lower_program(read_program(words, rows=False), target)


def lower_program(p: Program, target: Target) -> Lowered:
    """The dispatch of a MAP program."""
    if 0 in p.dims:
        return Lowered([], [])
    p = _ordered(p)
    across, turned = crossed(p, target)
    made = _Tiled(p, target, across, turned) if turned else _Map(p, target)
    return Lowered([made.make()], [])
