"""A plan as launches: which kernels run in which order, on which addresses, and what the host has to do in between.

Addresses are symbolic while a program is made: a number that stands for an argument, a result, the workspace, the
scratch memory of kernels, or a captured array, and bytes from there.  A loop whose body is all launches is written out,
if that is not too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad.runtime.emit_control import HostCall
from funcgrad.runtime.kinds import COND, DOT, DOT_MAP, HOST, LOOP, MAP, MAP_REDUCE, REDUCE, ROWS, WHILE
from funcgrad.runtime.plan import Buf, Node, Plan
from funcgrad.runtime.program import CODES
from funcgrad.runtime.spirv.instructions import SIZES
from funcgrad.runtime.spirv.lower import Lowered
from funcgrad.runtime.spirv.product import parse
from funcgrad.runtime.spirv.reduce import read
from funcgrad.runtime.spirv.words import read_program
from funcgrad.runtime.vulkan.launches import Launches, Symbol
from funcgrad.runtime.vulkan.peaks import Peaks
from funcgrad.runtime.vulkan.schedule import Schedule, Touch, strided

__all__ = ["Branch", "Call", "HostLoop", "Program", "WhileLoop"]

LONGEST = 1 << 15  # launches of a loop that is written out
ROTATE = 64 << 20  # bytes of scratch that are handed out one after another, so that kernels need not wait
ALIGN = 256


class Call(NamedTuple):
    """A Python function of the host: where its operands and its results are."""

    call: HostCall
    inputs: tuple[Symbol, ...]
    outputs: tuple[Symbol, ...]
    site: Any


class Carry(NamedTuple):
    """What a loop hands from step to step."""

    init: Symbol
    result: Symbol
    spare: Symbol
    nbytes: int
    in_place: bool
    dtype: int

    @property
    def moves(self) -> bool:
        """Whether it must be copied before the first step: what is updated in place starts in the result."""
        return self.in_place and self.init != self.result and self.nbytes > 0

    @property
    def start(self) -> Symbol:
        """Where it is before the first step."""
        return self.result if self.in_place else self.init

    def after(self, to_result: bool) -> Symbol:
        """Where a step puts it; what is not updated in place alternates."""
        return self.result if self.in_place or to_result else self.spare


class Moving(NamedTuple):
    """Rows of an array that a loop goes through."""

    start: Symbol
    step: int


class HostLoop(NamedTuple):
    """A loop that the host drives."""

    length: int
    consts: tuple[Symbol, ...]
    carries: tuple[Carry, ...]
    moving: tuple[Moving, ...]
    n_xs: int
    workspace: Symbol
    body: Program

    def steps(self) -> Iterator[list[Symbol]]:
        """For each step what the body's arguments and results are."""
        now = [c.start for c in self.carries]
        for step in range(self.length):
            after = [c.after((self.length - step) % 2 == 1) for c in self.carries]
            moved = [Symbol(m.start.number, m.start.offset + m.step * step) for m in self.moving]
            yield [*self.consts, *now, *moved[: self.n_xs], *after, *moved[self.n_xs :]]
            now = after


class WhileLoop(NamedTuple):
    """A loop whose condition the host reads."""

    cond_consts: tuple[Symbol, ...]
    consts: tuple[Symbol, ...]
    carries: tuple[Carry, ...]
    flag: Symbol
    workspace: Symbol
    cond: Program
    body: Program


class Branch(NamedTuple):
    """A choice that the host reads."""

    choice: Symbol
    operands: tuple[Symbol, ...]
    workspace: Symbol
    parts: tuple[Program, ...]


class Program:
    """The items of a plan: launches, and what the host does between them.

    The table of addresses has the arguments, the results, the workspace, the scratch memory, and from its end on,
    backwards, the captured arrays, which a program and its parts have in common.
    """

    def __init__(
        self,
        plan: Plan,
        lower: Callable[[int, list[int]], Lowered],
        constants: dict[int, tuple[int, Any]] | None = None,
    ):
        self.plan, self.lower = plan, lower
        self.workspace = len(plan.inputs) + len(plan.outputs)
        self.scratch = self.workspace + 1
        self.scratch_bytes = 0
        self.constants = {} if constants is None else constants  # by identity: the number and the array
        self.items: list[Any] = []
        self._rotation = 0
        self._schedule = Schedule()
        self._peaks = Peaks()
        for n, node in enumerate(plan.nodes):
            if not node.elided:
                self._node(n, node)
        self._launch()

    @property
    def is_pure(self) -> bool:
        """Whether the host has nothing to do."""
        return all(isinstance(i, Launches) for i in self.items)

    @property
    def count(self) -> int:
        """Launches of one run, those of loops that the host drives counted once."""
        return sum([i.count for i in self.items if isinstance(i, Launches)]) + sum([p.count for p in self.parts()])

    def parts(self) -> list[Program]:
        """The programs of loops and branches that the host drives."""
        found: list[Program] = []
        for i in self.items:
            found += [i.body] if isinstance(i, HostLoop) else []
            found += [i.cond, i.body] if isinstance(i, WhileLoop) else []
            found += i.parts if isinstance(i, Branch) else []
        return found

    # -- places --------------------------------------------------------------------------------------------------
    def _where(self, b: Buf) -> Symbol:
        if b.kind == "constant":
            return Symbol(self._constant(b.value), 0)
        storage = b.storage
        if storage is None:
            return Symbol(self.workspace, 0)
        return Symbol(storage.bound, 0) if storage.bound >= 0 else Symbol(self.workspace, max(storage.offset, 0))

    def _constant(self, value: Any) -> int:
        found = self.constants.get(id(value))
        if found is None:
            found = self.constants[id(value)] = -1 - len(self.constants), value
        return found[0]

    def _at(self, node: Node, slot: int, offset: int) -> Symbol:
        if slot < 0:
            return Symbol(self.workspace, 0)
        where = self._where(node.operands[slot])
        return Symbol(where.number, where.offset + offset)

    def _make_room(self, sizes: Sequence[int]) -> None:
        """Go back to the start of the scratch memory if these do not fit behind those of earlier kernels."""
        if self._rotation + sum(map(_aligned, sizes)) > ROTATE:
            self._rotation = 0
            self._peaks.forget_all()

    def _take_scratch(self, sizes: Sequence[int], kept: dict[int, Symbol]) -> list[Symbol]:
        """Places in the scratch memory; ``kept`` has those that are there already."""
        out = []
        for i, n in enumerate(sizes):
            out.append(kept.get(i, Symbol(self.scratch, self._rotation)))
            self._rotation += 0 if i in kept else _aligned(n)
        self.scratch_bytes = max(self.scratch_bytes, self._rotation)
        return out

    # -- nodes ---------------------------------------------------------------------------------------------------
    def _launches(self) -> Launches:
        if not self.items or not isinstance(self.items[-1], Launches):
            self.items.append(Launches())
        last: Launches = self.items[-1]
        return last

    def _launch(self) -> None:
        """Append the launches that were taken so far."""
        if not self._schedule.is_empty:
            self._schedule.launch(self._launches())

    def _append(self, item: Any) -> None:
        """Append what the host does, behind the launches so far."""
        self._launch()
        self.items.append(item)

    def _node(self, n: int, node: Node) -> None:
        verbs = {LOOP: self._loop, WHILE: self._while, COND: self._cond, HOST: self._host}
        if node.kind in verbs:
            verbs[node.kind](n, node)
            self._peaks.forget_all()
            return
        made = self.lower(node.kind, node.words)
        self._make_room(made.scratch)
        places = [(self._at(node, p.slot, p.offset), p) for p in made.peaks]
        known = self._peaks.find(places)
        done = {made.peaks[i].find for i in known}
        kept = {made.peaks[i].scratch: place for i, place in known.items()}
        scratch = self._take_scratch(made.scratch, kept)
        touched = self._touched(node)
        finder = {p.scratch: p.find for p in made.peaks}
        for k, d in enumerate(made.dispatches):
            if k in done:
                continue
            entries = [scratch[~slot] if slot < 0 else self._at(node, slot, 0) for slot, _ in d.table]
            placed = [Symbol(e.number, e.offset + off) for e, (_, off) in zip(entries, d.table, strict=True)]
            used = {slot for slot, _ in d.table}
            own = [Touch(s, made.scratch[i], finder.get(i, k) == k) for i, s in enumerate(scratch) if ~i in used]
            parts = [t for slot, t in touched if slot in used] + own
            self._schedule.add(d, placed, parts, n, _work(node, used))
            self._peaks.forget([t[:3] for t in parts])
        for i, (where, p) in enumerate(places):
            if i not in known:
                self._peaks.learn(where, p, scratch[p.scratch], made.scratch[p.scratch])

    def _touched(self, node: Node) -> list[tuple[int, Touch]]:
        """What a node reads and writes, by slot.  MAP and ROWS nodes may touch parts of a buffer."""
        if node.kind == DOT:
            return _touched_by_product(node.words, [self._where(b) for b in node.operands])
        if node.kind in (REDUCE, MAP_REDUCE):
            return _touched_by_reduction(node, [self._where(b) for b in node.operands])
        if node.kind == DOT_MAP:
            n = node.words[0]
            both = _touched_by_product(node.words[2 : 2 + n], [self._where(b) for b in node.operands])[:2]
            return both + self._touched_by_program(node, node.words[2 + n :], False)
        if node.kind not in (MAP, ROWS):
            return [(i, Touch(self._where(b), b.nbytes, i in node.writes)) for i, b in enumerate(node.operands)]
        return self._touched_by_program(node, node.words, node.kind == ROWS)

    def _touched_by_program(self, node: Node, words: list[int], rows: bool) -> list[tuple[int, Touch]]:
        """What the program of a MAP or ROWS node reads and writes, by slot."""
        p, out = read_program(words, rows), []
        for written, operands in ((False, p.inputs), (True, [o for _, o in p.outputs])):
            for o in [o for o in operands if o.slot >= 0]:
                base = self._at(node, o.slot, o.offset)
                out.append((o.slot, strided(base, p.dims, o.strides, SIZES[o.dtype], written)))
        return out

    def _copy(self, n: int, source: Symbol, to: Symbol, nbytes: int, dtype: int) -> None:
        """Append a copy."""
        size = SIZES[dtype]
        words = [1, nbytes // size, 1, 1, 1, 0, 0, dtype, 0, size, 0, 1, dtype, 0, size]
        touched = [Touch(source, nbytes, False), Touch(to, nbytes, True)]
        for d in self.lower(MAP, words).dispatches:
            places = [(source, to)[slot] for slot, _ in d.table]
            entries = [Symbol(p.number, p.offset + off) for p, (_, off) in zip(places, d.table, strict=True)]
            self._schedule.add(d, entries, touched, n)

    # -- control flow --------------------------------------------------------------------------------------------
    def _loop(self, n: int, node: Node) -> None:
        words = _Words(node.words)
        length, n_const, n_carry, n_xs, n_ys = words.take(5)
        workspace = self._at(node, *words.take(2))
        consts = tuple([self._at(node, *words.take(2)) for _ in range(n_const)])
        carries = self._carries(node, words, n_carry)
        moving = tuple([Moving(self._at(node, *words.take(2)), words.take(1)[0]) for _ in range(n_xs + n_ys)])
        body = Program(node.parts[0], self.lower, self.constants)
        loop = HostLoop(length, consts, carries, moving, n_xs, workspace, body)
        if not body.is_pure or body.count * length > LONGEST:
            self._join(body)
            self._append(loop)
            return
        self._begin(n, carries)
        if body.items:
            numbers, offsets = self._bindings(loop)
            self._launch()
            self._launches().repeat(body.items[0], numbers, offsets, n)
        self.scratch_bytes = max(self.scratch_bytes, body.scratch_bytes)

    def _begin(self, n: int, carries: Sequence[Carry]) -> None:
        for c in carries:
            if c.moves:
                self._copy(n, c.init, c.result, c.nbytes, c.dtype)

    def _bindings(self, loop: HostLoop) -> tuple[Any, Any]:
        """For each step, what the numbers of the body's table stand for."""
        table = np.array(list(loop.steps()), np.int64).reshape(loop.length, -1, 2)
        fixed = [loop.workspace, Symbol(self.scratch, 0)]
        rest = np.tile(np.array(fixed, np.int64), (loop.length, 1, 1))
        whole = np.concatenate([table, rest], 1)
        return whole[:, :, 0], whole[:, :, 1]

    def _carries(self, node: Node, words: _Words, count: int) -> tuple[Carry, ...]:
        found = []
        for _ in range(count):
            slots = [words.take(2) for _ in range(3)]
            nbytes, in_place = words.take(2)
            slot = slots[1][0]
            dtype = CODES[node.operands[slot].aval.dtype] if slot >= 0 else 0
            init, result, spare = [self._at(node, *s) for s in slots]
            found.append(Carry(init, result, spare, nbytes, bool(in_place), dtype))
        return tuple(found)

    def _while(self, n: int, node: Node) -> None:
        words = _Words(node.words)
        n_cond, n_const, n_carry = words.take(3)
        workspace, flag = [self._at(node, *words.take(2)) for _ in range(2)]
        cond_consts = tuple([self._at(node, *words.take(2)) for _ in range(n_cond)])
        consts = tuple([self._at(node, *words.take(2)) for _ in range(n_const)])
        carries = self._carries(node, words, n_carry)
        cond, body = [self._join(Program(p, self.lower, self.constants)) for p in node.parts]
        self._append(WhileLoop(cond_consts, consts, carries, flag, workspace, cond, body))

    def _cond(self, n: int, node: Node) -> None:
        words = _Words(node.words)
        n_in, n_out = words.take(2)
        workspace, index = [self._at(node, *words.take(2)) for _ in range(2)]
        operands = tuple([self._at(node, *words.take(2)) for _ in range(n_in + n_out)])
        parts = tuple([self._join(Program(p, self.lower, self.constants)) for p in node.parts])
        self._append(Branch(index, operands, workspace, parts))

    def _host(self, n: int, node: Node) -> None:
        words = _Words(node.words)
        call: HostCall = node.parts[0]
        words.take(2)
        places = [self._at(node, *words.take(2)) for _ in range(len(call.inputs) + len(call.outputs))]
        k = len(call.inputs)
        self._append(Call(call, tuple(places[:k]), tuple(places[k:]), node.site))

    def _join(self, part: Program) -> Program:
        """A part that the host runs: it uses this program's scratch memory."""
        self.scratch_bytes = max(self.scratch_bytes, part.scratch_bytes)
        return part


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def _touched_by_product(words: Sequence[int], places: Sequence[Symbol]) -> list[tuple[int, Touch]]:
    """What a product reads and writes, by slot."""
    p, out = parse(words), []
    for v, sizes in ((p.a, (p.m, p.k)), (p.b, (p.k, p.n)), (p.c, (p.m, p.n))):
        size = SIZES[v.dtype]
        base = Symbol(places[v.slot].number, places[v.slot].offset + v.offset)
        out.append((v.slot, strided(base, (*p.batch, *sizes), [s * size for s in v.strides], size, v is p.c)))
    return out


def _touched_by_reduction(node: Node, places: Sequence[Symbol]) -> list[tuple[int, Touch]]:
    """What a reduction reads and writes, by slot."""
    r = read(node.words if node.kind == REDUCE else node.words[1 + node.words[0] :])
    out = [(i, Touch(places[i], b.nbytes, False)) for i, b in enumerate(node.operands) if i not in node.writes]
    base = Symbol(places[r.out.slot].number, places[r.out.slot].offset + r.out.offset)
    return [*out, (r.out.slot, strided(base, r.keep, r.out.strides, SIZES[r.out.dtype], True))]


def _work(node: Node, used: set[int]) -> int:
    """The multiplications of the launch of a product that reads both operands; 0 for others."""
    if node.kind not in (DOT, DOT_MAP):
        return 0
    p = parse(node.words if node.kind == DOT else node.words[2 : 2 + node.words[0]])
    return math.prod(p.batch) * p.m * p.n * p.k if {p.a.slot, p.b.slot} <= used else 0


class _Words:
    """Reads the words of a node."""

    def __init__(self, words: Sequence[int]):
        self.words, self.next = words, 0

    def take(self, count: int) -> Sequence[int]:
        """The next words."""
        start = self.next
        self.next += count
        return self.words[start : self.next]
