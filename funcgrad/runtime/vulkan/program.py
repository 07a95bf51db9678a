"""A plan as launches: which kernels run in which order, on which addresses, and what the host has to do in between.

Addresses are symbolic while a program is made: a number that stands for an argument, a result, the workspace, the
scratch memory of kernels, or a captured array, and bytes from there.  A loop whose body is all launches is written out,
if that is not too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad.runtime.emit import Emitter
from funcgrad.runtime.emit_control import COND, HOST, LOOP, WHILE, HostCall
from funcgrad.runtime.plan import Buf, Node, Plan
from funcgrad.runtime.program import CODES
from funcgrad.runtime.spirv.kernel import Dispatch
from funcgrad.runtime.spirv.lower import Lowered
from funcgrad.runtime.spirv.words import Peak

__all__ = ["Branch", "Call", "HostLoop", "Launches", "Program", "Symbol", "VulkanEmitter", "WhileLoop"]

LONGEST = 1 << 15  # launches of a loop that is written out
MOST_PEAKS = 1 << 14  # largest magnitudes of operands that a program keeps, at the front of the scratch memory
ROTATE = 64 << 20  # bytes of scratch that are handed out one after another, so that kernels need not wait
ALIGN = 256
MAP, DOT = 0, 2
CONST = 1  # MAP's instruction for a constant
ITEM = (4, 2, 2, 4, 4, 1)  # bytes of an element by the dtype's code
Ints = tuple[int, ...]
PRECISIONS = {None: 0, "default": 0, "highest": 0, "float32": 0, "high": 1, "tensorfloat32": 1, "float16": 2}


class VulkanEmitter(Emitter):
    """Lowers for devices without caches to care for; a product's words end with its precision."""

    tiled = False
    columns = 1 << 28
    precision: str | None = None

    def dot(
        self, x: Any, y: Any, lc: Ints, rc: Ints, lb: Ints = (), rb: Ints = (), precision: str | None = None
    ) -> Any:
        self.precision = precision
        try:
            return super().dot(x, y, lc, rc, lb, rb)
        finally:
            self.precision = None

    def node(self, kind: int, words: list[int], *args: Any, **kwargs: Any) -> Node:
        if kind == DOT:
            words.append(PRECISIONS.get(self.precision, 0))
        return super().node(kind, words, *args, **kwargs)


class Symbol(NamedTuple):
    """A place in memory: a number in the program's table of addresses, and bytes from there."""

    number: int
    offset: int


class Launches:
    """Kernels that run one after another without the host; ``which`` and ``offset`` are their tables of addresses."""

    def __init__(self) -> None:
        self.codes: list[bytes] = []  # by kernel
        self.subgroups: list[int] = []
        self._known: dict[tuple[bytes, int], int] = {}
        self._blocks: list[_Arrays] = []
        self._open = _Block()

    def add(self, d: Dispatch, entries: Sequence[Symbol], barrier: bool, node: int) -> None:
        """Append one launch."""
        b = self._open
        b.kernels.append(self._kernel(d.code, d.subgroup))
        b.groups.append(d.groups)
        b.sizes.append(len(entries))
        b.which += [e.number for e in entries]
        b.offset += [e.offset for e in entries]
        b.barrier.append(barrier)
        b.nodes.append(node)

    def _kernel(self, code: bytes, subgroup: int) -> int:
        found = self._known.get((code, subgroup))
        if found is None:
            found = self._known[code, subgroup] = len(self.codes)
            self.codes.append(code)
            self.subgroups.append(subgroup)
        return found

    def repeat(self, body: Launches, numbers: Any, offsets: Any, node: int) -> None:
        """Append another's launches once for each row of two tables: what its numbers stand for here."""
        whole = body.whole()
        if not whole.kernels.size:
            return
        times = len(numbers)
        local, bound = whole.which >= 0, np.maximum(whole.which, 0)
        kernel = np.array([self._kernel(c, s) for c, s in zip(body.codes, body.subgroups, strict=True)])
        barrier = whole.barrier.copy()
        barrier[0] = True
        self._blocks.append(self._open.arrays())
        self._blocks.append(
            _Arrays(
                np.tile(kernel[whole.kernels], times),
                np.tile(whole.groups, (times, 1)),
                np.tile(whole.sizes, times),
                np.where(local, numbers[:, bound], whole.which).reshape(-1),
                (np.where(local, offsets[:, bound], 0) + whole.offset).reshape(-1),
                np.tile(barrier, times),
                np.full(len(whole.kernels) * times, node),
            )
        )
        self._open = _Block()

    def whole(self) -> _Arrays:
        """All launches as arrays."""
        self._blocks = [_joined([*self._blocks, self._open.arrays()])]
        self._open = _Block()
        return self._blocks[0]

    @property
    def count(self) -> int:
        """How many launches there are."""
        return sum([len(b.kernels) for b in self._blocks]) + len(self._open.kernels)


class _Arrays(NamedTuple):
    """Launches as arrays: their kernels' numbers, groups, sizes of their tables, the tables, and more."""

    kernels: Any
    groups: Any
    sizes: Any
    which: Any
    offset: Any
    barrier: Any
    nodes: Any


class _Block:
    """Launches as lists."""

    def __init__(self) -> None:
        self.kernels: list[int] = []
        self.groups: list[tuple[int, int, int]] = []
        self.sizes: list[int] = []
        self.which: list[int] = []
        self.offset: list[int] = []
        self.barrier: list[bool] = []
        self.nodes: list[int] = []

    def arrays(self) -> _Arrays:
        """The same as arrays."""
        return _Arrays(
            np.array(self.kernels, np.int64),
            np.array(self.groups, np.uint32).reshape(-1, 3),
            np.array(self.sizes, np.int64),
            np.array(self.which, np.int64),
            np.array(self.offset, np.int64),
            np.array(self.barrier, np.uint8),
            np.array(self.nodes, np.int64),
        )


def _joined(blocks: Sequence[_Arrays]) -> _Arrays:
    return _Arrays(*[np.concatenate(columns) for columns in zip(*blocks, strict=True)])


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
        self._rotation = 4 * MOST_PEAKS
        self._hazards = _Hazards()
        self.is_root = constants is None
        self._peaks: dict[tuple[Symbol, Any], tuple[Symbol, int]] = {}  # by region: where, and its bytes
        self._peak_count = 0
        for n, node in enumerate(plan.nodes):
            if not node.elided:
                self._node(n, node)
        if self._peak_count:
            self._clear_peaks()

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

    def _take_scratch(self, sizes: Sequence[int]) -> list[Symbol]:
        """Places in the scratch memory, behind those of earlier kernels."""
        sizes = [-(-n // ALIGN) * ALIGN for n in sizes]
        if self._rotation + sum(sizes) > ROTATE:
            self._rotation = 4 * MOST_PEAKS
        out = []
        for n in sizes:
            out.append(Symbol(self.scratch, self._rotation))
            self._rotation += n
        self.scratch_bytes = max(self.scratch_bytes, self._rotation)
        return out

    # -- nodes ---------------------------------------------------------------------------------------------------
    def _launches(self) -> Launches:
        if not self.items or not isinstance(self.items[-1], Launches):
            self.items.append(Launches())
            self._hazards.wait()
        last: Launches = self.items[-1]
        return last

    def _node(self, n: int, node: Node) -> None:
        verbs = {LOOP: self._loop, WHILE: self._while, COND: self._cond, HOST: self._host}
        if node.kind in verbs:
            verbs[node.kind](n, node)
            self._peaks.clear()
            return
        made = self.lower(node.kind, node.words)
        scratch = self._take_scratch(made.scratch)
        touched = self._touched(node)
        done = self._find_peaks(node, made.peaks, scratch) if self.is_root else frozenset()
        touched += [(s, size, True) for s, size in zip(scratch, made.scratch, strict=True)]
        launches = self._launches()
        barrier: bool | None = self._hazards.meets(touched)
        for k, d in enumerate(made.dispatches):
            if k in done:
                continue
            entries = [scratch[~slot] if slot < 0 else self._at(node, slot, 0) for slot, _ in d.table]
            placed = [Symbol(e.number, e.offset + off) for e, (_, off) in zip(entries, d.table, strict=True)]
            launches.add(d, placed, not d.free if barrier is None else barrier, n)
            barrier = None
        self._forget_peaks(touched)

    def _find_peaks(self, node: Node, peaks: Sequence[Peak], scratch: list[Symbol]) -> frozenset[int]:
        """Let ``scratch`` be where the peaks are kept; return the dispatches that are not needed."""
        done: set[int] = set()
        for p in peaks:
            where = self._at(node, p.slot, p.offset)
            found = self._peaks.get((where, p.layout))
            if found is None:
                if self._peak_count == MOST_PEAKS:
                    continue
                found = Symbol(self.scratch, 4 * self._peak_count), p.nbytes
                self._peak_count += 1
                self._peaks[where, p.layout] = found
                done.add(p.clear)  # a first launch clears them all
            else:
                done |= {p.clear, p.find}
            scratch[p.scratch] = found[0]
        return frozenset(done)

    def _forget_peaks(self, touched: Sequence[tuple[Symbol, int, bool]]) -> None:
        """Peaks of what is written are known no more."""
        if self._peaks:
            for where, nbytes, written in touched:
                if written:
                    gone = [
                        k for k, (_, size) in self._peaks.items()
                        if k[0].number == where.number
                        and k[0].offset < where.offset + nbytes and where.offset < k[0].offset + size
                    ]  # fmt: skip
                    for k in gone:
                        del self._peaks[k]

    def _clear_peaks(self) -> None:
        """Put a launch in front that sets all peaks to 0."""
        first, count = Launches(), self._peak_count
        # a MAP without operands: its one result is a constant
        words = [1, count, 0, 1, 1, 1, 0, 0, CODES[dtypes.uint32], 0, 4, CONST, 0, 0, 0, 0, 0]
        for d in self.lower(MAP, words).dispatches:
            first.add(d, [Symbol(self.scratch, offset) for _, offset in d.table], True, 0)
        self.items.insert(0, first)

    def _touched(self, node: Node) -> list[tuple[Symbol, int, bool]]:
        """What a node reads and writes: place, bytes, whether it is written.  MAP nodes may touch parts of a buffer."""
        if node.kind != MAP:
            return [(self._where(b), b.nbytes, i in node.writes) for i, b in enumerate(node.operands)]
        words, ndim = node.words, node.words[0]
        dims, (n_in, n_out) = words[1 : 1 + ndim], words[1 + ndim : 3 + ndim]
        out, at = [], 5 + ndim
        for k in range(n_in + n_out):
            at += k >= n_in  # the register
            slot, dtype, offset, *strides = words[at : at + 3 + ndim]
            at += 3 + ndim
            if slot < 0:
                continue
            ends = [s * (d - 1) for s, d in zip(strides, dims, strict=True)]
            low, high = sum([e for e in ends if e < 0]), sum([e for e in ends if e > 0])
            where = self._where(node.operands[slot])
            out.append((Symbol(where.number, where.offset + offset + low), high - low + ITEM[dtype], k >= n_in))
        return out

    def _copy(self, n: int, source: Symbol, to: Symbol, nbytes: int, dtype: int) -> None:
        """Append a copy."""
        size = ITEM[dtype]
        words = [1, nbytes // size, 1, 1, 1, 0, 0, dtype, 0, size, 0, 1, dtype, 0, size]
        launches = self._launches()
        for d in self.lower(MAP, words).dispatches:
            places = [(source, to)[slot] for slot, _ in d.table]
            entries = [Symbol(p.number, p.offset + off) for p, (_, off) in zip(places, d.table, strict=True)]
            launches.add(d, entries, True, n)
        self._hazards.wait()

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
            self.items.append(loop)
            return
        self._begin(n, carries)
        if body.items:
            numbers, offsets = self._bindings(loop)
            self._launches().repeat(body.items[0], numbers, offsets, n)
        self.scratch_bytes = max(self.scratch_bytes, body.scratch_bytes)
        self._hazards.wait()

    def _begin(self, n: int, carries: Sequence[Carry]) -> None:
        """What is updated in place starts in the result."""
        for c in carries:
            if c.in_place and c.init != c.result and c.nbytes:
                self._copy(n, c.init, c.result, c.nbytes, c.dtype)

    def _bindings(self, loop: HostLoop) -> tuple[Any, Any]:
        """For each step, what the numbers of the body's table stand for."""
        rows: list[list[Symbol]] = []
        now = [c.result if c.in_place else c.init for c in loop.carries]
        for step in range(loop.length):
            to_result = (loop.length - step) % 2 == 1
            after = [c.result if c.in_place or to_result else c.spare for c in loop.carries]
            moved = [Symbol(m.start.number, m.start.offset + m.step * step) for m in loop.moving]
            rows.append([*loop.consts, *now, *moved[: loop.n_xs], *after, *moved[loop.n_xs :]])
            now = after
        table = np.array(rows, np.int64).reshape(loop.length, -1, 2)
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
        self.items.append(WhileLoop(cond_consts, consts, carries, flag, workspace, cond, body))

    def _cond(self, n: int, node: Node) -> None:
        words = _Words(node.words)
        n_in, n_out = words.take(2)
        workspace, index = [self._at(node, *words.take(2)) for _ in range(2)]
        operands = tuple([self._at(node, *words.take(2)) for _ in range(n_in + n_out)])
        parts = tuple([self._join(Program(p, self.lower, self.constants)) for p in node.parts])
        self.items.append(Branch(index, operands, workspace, parts))

    def _host(self, n: int, node: Node) -> None:
        words = _Words(node.words)
        call: HostCall = node.parts[0]
        words.take(2)
        places = [self._at(node, *words.take(2)) for _ in range(len(call.inputs) + len(call.outputs))]
        k = len(call.inputs)
        self.items.append(Call(call, tuple(places[:k]), tuple(places[k:]), node.site))

    def _join(self, part: Program) -> Program:
        """A part that the host runs: it uses this program's scratch memory."""
        self.scratch_bytes = max(self.scratch_bytes, part.scratch_bytes)
        return part


class _Words:
    """Reads the words of a node."""

    def __init__(self, words: Sequence[int]):
        self.words, self.next = words, 0

    def take(self, count: int) -> Sequence[int]:
        """The next words."""
        start = self.next
        self.next += count
        return self.words[start : self.next]


class _Hazards:
    """What kernels since the last barrier read and wrote."""

    def __init__(self) -> None:
        self._touched: dict[int, list[tuple[int, int, bool]]] = {}

    def wait(self) -> None:
        """A barrier comes before whatever is next."""
        self._touched = {-1: []}

    def meets(self, touched: Sequence[tuple[Symbol, int, bool]]) -> bool:
        """Note what a kernel touches (place, bytes, whether it is written); return whether it must wait."""
        must = -1 in self._touched or any(self._conflicts(*t) for t in touched)
        if must:
            self._touched = {}
        for where, nbytes, written in touched:
            piece = (where.offset, where.offset + nbytes, written)
            self._touched.setdefault(where.number, []).append(piece)
        return must

    def _conflicts(self, where: Symbol, nbytes: int, written: bool) -> bool:
        start, stop = where.offset, where.offset + nbytes
        return any((written or w) and start < b and a < stop for a, b, w in self._touched.get(where.number, ()))
