"""Matrix products as Vulkan kernels: tiles in shared memory, a block of sums for each invocation, long sums split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from funcgrad.runtime.spirv.elements import F32, I32, U32, load, memory, store
from funcgrad.runtime.spirv.kernel import WORKGROUP, Dispatch, Kernel, Target, Value, Variable
from funcgrad.runtime.spirv.matrix import lower_matrix, matrix_seconds
from funcgrad.runtime.spirv.product import (
    Piece,
    Product,
    View,
    along,
    join,
    join_seconds,
    lowest,
    offset,
    parse,
    smaller,
    sum_of,
)
from funcgrad.runtime.spirv.words import Lowered, coordinates

__all__ = ["lower_dot"]

DEPTH = 16  # of a tile: elements along the summed axis


class Tile(NamedTuple):
    """How a group computes: a block of m times n, of which each invocation has rows times columns.

    ``rate`` is what a large device does when it is full of such groups, in operations a second, ``resident`` how many
    fill it, ``step`` the seconds of one step along the summed axis of a group alone, and ``setup`` those before and
    after (fitted to products of 1 to 140 billion operations on an H200; what matters is how tiles compare).
    """

    m: int
    n: int
    rows: int
    columns: int
    rate: float
    resident: int
    step: float
    setup: float

    @property
    def threads(self) -> int:
        """Invocations of a group."""
        return self.m // self.rows * (self.n // self.columns)


TILES = (
    Tile(128, 128, 8, 8, 41e12, 264, 1.5e-6, 8e-6),
    Tile(64, 64, 8, 8, 38e12, 660, 0.95e-6, 2e-6),
    Tile(32, 32, 4, 4, 27e12, 1320, 0.4e-6, 1.3e-6),
)
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
START = 3e-6  # seconds that a launch takes in any case


def lower_dot(words: Sequence[int], target: Target) -> Lowered:
    """Return the launches of a DOT node, and the bytes of scratch that they need."""
    p = parse(words)
    tile, splits = _choose(p, target)
    if matrix_seconds(p, target) < _seconds(p, tile, splits):
        return lower_matrix(p, target)
    splits = math.ceil(p.k / _part(p, splits))
    if splits == 1:
        return Lowered([_tiles(p, tile, 1, target)], [])
    count = math.prod(p.batch) * p.m * p.n
    return Lowered([_tiles(p, tile, splits, target), join(p, splits, target)], [4 * count * splits])


def _choose(p: Product, target: Target) -> tuple[Tile, int]:
    """The tile, and the number of parts of the summed axis, that should take the least time."""
    if target.software:
        return TILES[-1], 1
    choices = [(t, s) for t in TILES for s in SPLITS if s == 1 or s <= p.k // (2 * DEPTH)]
    return min(choices, key=lambda c: _seconds(p, *c))


def _seconds(p: Product, tile: Tile, splits: int) -> float:
    """An estimate: groups come in waves, a step along the summed axis has a latency, and parts must be added."""
    groups = math.ceil(p.m / tile.m) * math.ceil(p.n / tile.n) * math.prod(p.batch) * splits
    depth, full = _part(p, splits), groups / tile.resident
    waves = math.ceil(full)
    work = (waves if full > 1 else full) * tile.resident * 2 * tile.m * tile.n * depth / tile.rate
    latency = waves * math.ceil(depth / DEPTH) * tile.step
    return START + waves * tile.setup + max(work, latency) + (join_seconds(p, splits) if splits > 1 else 0.0)


def _part(p: Product, splits: int) -> int:
    """How far along the summed axis each part of a split product goes."""
    return -(-math.ceil(p.k / splits) // DEPTH) * DEPTH


class _Quads:
    """A shared array of four-element vectors, written by element and read by vector."""

    def __init__(self, k: Kernel, t: str, count: int):
        a = self.a = k.a
        self.k, self.t = k, t
        self.vector = a.type("TypeVector", k.type(t), 4)
        array = a.type("TypeArray", self.vector, k.const(count, "u").id)
        self.id = a.variable(a.type("TypePointer", WORKGROUP, array), WORKGROUP)
        self.pointers = a.type("TypePointer", WORKGROUP, self.vector), a.type("TypePointer", WORKGROUP, k.type(t))

    def store(self, index: Value, x: Value) -> None:
        """Write one element."""
        where = self.a.result("AccessChain", self.pointers[1], self.id, (index >> 2).id, (index & 3).id)
        self.a.emit("Store", where, x.id)

    def store_vector(self, index: Value, x: Value) -> None:
        """Write a vector; the index counts vectors."""
        self.a.emit("Store", self.a.result("AccessChain", self.pointers[0], self.id, index.id), x.id)

    def load(self, index: Value) -> list[Value]:
        """Read a vector."""
        where = self.a.result("AccessChain", self.pointers[0], self.id, index.id)
        whole = self.a.result("Load", self.vector, where)
        kind = self.k.type(self.t)
        return [Value(self.k, self.a.result("CompositeExtract", kind, whole, i), self.t) for i in range(4)]


class _Side:
    """One operand's way into shared memory: a block of ``width`` rows (or columns) by DEPTH."""

    def __init__(self, k: Kernel, p: Product, v: View, number: int, extent: int, width: int, tile: Tile, t: str):
        self.k, self.p, self.extent, self.width, self.threads, self.t = k, p, extent, width, tile.threads, t
        outer, inner = (-2, -1) if number == 0 else (-1, -2)  # the free axis, the summed axis
        dims = [*p.batch, 0, 0]
        dims[outer], dims[inner] = extent, p.k
        self.view, self.first = lowest(v, dims)
        self.outer, self.inner = v.strides[outer], v.strides[inner]
        self.memory = memory(k, number, v.dtype)
        self.row = width + 4  # of the shared array, so that banks differ
        self.quads = _Quads(k, t, DEPTH * self.row // 4)
        self.deep = abs(self.inner) <= abs(self.outer)  # neighbours along the summed axis are close in memory
        self.step = 4 if self._in_quads(v) else 1  # elements that are read at a time
        if self.step == 4:
            self.memory.t = "q"
            self.memory.base = k.operand(number, "q").base

    def _in_quads(self, v: View) -> bool:
        """Whether four neighbours can be read as a vector, and no block goes over an edge."""
        even = all(s >= 0 and s % 4 == 0 for s in v.strides if s != 1) and v.strides.count(1) == 1
        whole = self.p.k % DEPTH == 0 and self.extent % self.width == 0
        return even and whole and v.dtype == F32 and v.offset % 16 == 0 and 1 in v.strides[-2:]

    def place(self, e: int) -> tuple[Value, Value]:
        """The row and the depth of this invocation's e-th element, or of the first of its e-th quad."""
        number = self.k.thread() + e * self.threads
        if self.deep:
            each = DEPTH // self.step
            return number // each, number % each * self.step
        each = self.width // self.step
        return number % each * self.step, number // each

    def fetch(self, base: Value, start: Value, depth: Value, stop: Value, whole: bool) -> list[Value]:
        """This invocation's elements of the block from ``start`` and ``depth``, 0 from ``stop`` on."""
        out = []
        for e in range(self.width * DEPTH // self.threads // self.step):
            row, deep = self.place(e)
            at, d = start + row, depth + deep
            if self.step == 4:
                out.append(self.memory.load((base + offset(at, self.outer) + offset(d, self.inner)) >> 2))
                continue
            if self.extent % self.width:
                at = smaller(at, self.extent - 1)
            inside = d < stop
            if not whole:
                d = smaller(d, self.p.k - 1)
            x = load(self.memory, base + offset(at, self.outer) + offset(d, self.inner))
            out.append(x if whole else self.k.select(inside, x, self.k.const(0, self.t)))
        return out

    def keep(self, values: Sequence[Value]) -> None:
        """Write the elements to shared memory."""
        for e, x in enumerate(values):
            row, deep = self.place(e)
            if self.step == 1:
                self.quads.store(deep * self.row + row, x)
            elif not self.deep:
                self.quads.store_vector((deep * self.row + row) >> 2, x)
            else:
                for c in range(4):
                    one = Value(self.k, self.k.a.result("CompositeExtract", self.k.type("f"), x.id, c), "f")
                    self.quads.store((deep + c) * self.row + row, one)

    def read(self, depth: Value, first: Value, count: int) -> list[Value]:
        """The elements of some rows at a depth: quads that lie ``width / quads`` apart."""
        out: list[Value] = []
        quads = count // 4
        for q in range(quads):
            out += self.quads.load(depth * (self.row // 4) + first + q * (self.width // quads // 4))
        return out


def _tiles(p: Product, tile: Tile, splits: int, target: Target) -> Dispatch:
    """The launch that computes the blocks; with ``splits`` into scratch, one result after another."""
    k = Kernel(target, (tile.threads, 1, 1))
    t = {F32: "f", I32: "i", U32: "u"}[p.dtype]
    a = _Side(k, p, p.a, 0, p.m, tile.m, tile, t)
    b = _Side(k, p, p.b, 1, p.n, tile.n, tile, t)
    across = tile.n // tile.columns
    tx, ty = k.thread() % across, k.thread() // across
    piece, batches, part = Piece(k, p, tile.m, tile.n, splits), math.prod(p.batch), _part(p, splits)
    number = piece.number
    index = coordinates(number if splits == 1 else number % batches, p.batch)
    begin = k.const(0, "u") if splits == 1 else number // batches * part
    stop = k.const(p.k, "u") if splits == 1 else smaller(begin + part, p.k)
    whole = p.k % (part if splits > 1 else DEPTH) == 0
    bases = [sum_of(k, [offset(i, s) for i, s in zip(index, v.view.strides, strict=False)], v.first) for v in (a, b)]
    sums = [[k.variable(0, t) for _ in range(tile.columns)] for _ in range(tile.rows)]

    def fetch(depth: Value) -> list[list[Value]]:
        return [
            side.fetch(base, start, depth, stop, whole)
            for side, base, start in zip((a, b), bases, piece.starts, strict=True)
        ]

    def add() -> None:
        with k.loop(DEPTH, unroll=not target.software) as d:
            left, right = a.read(d, ty, tile.rows), b.read(d, tx, tile.columns)
            for u, row in zip(left, sums, strict=True):
                for v, total in zip(right, row, strict=True):
                    total.set(multiply_add(k, u, v, total.get()))

    along(k, (begin, stop, DEPTH), fetch, (a.keep, b.keep), add)
    table = [(v.slot, v.offset) for v in (a.view, b.view)]
    _store(k, p, tile, splits, (piece.starts[0], piece.starts[1]), (ty, tx), sums, (number, index), table)
    return Dispatch(k.code(), piece.groups, tuple(table))


def _store(
    k: Kernel, p: Product, tile: Tile, splits: int, start: tuple[Value, Value], at: tuple[Value, Value],
    sums: list[list[Variable]], place: tuple[Value, list[Value]], table: list[tuple[int, int]],
) -> None:  # fmt: skip
    """Write an invocation's sums where they are within the result."""
    number, index = place
    if splits == 1:
        c, first = lowest(p.c, (*p.batch, p.m, p.n))
        base = sum_of(k, [offset(i, s) for i, s in zip(index, c.strides, strict=False)], first)
        steps, dtype, entry = c.strides[-2:], c.dtype, (c.slot, c.offset)
    else:
        base, steps, dtype, entry = number * (p.m * p.n), (p.n, 1), p.dtype, (~0, 0)
    table.append(entry)
    out = memory(k, 2, dtype)
    exact = p.m % tile.m == 0, p.n % tile.n == 0

    def quad(n: int, position: Value, i: int, count: int) -> Value:
        return position * 4 + (i // 4 * (n // (count // 4)) + i % 4)

    for i, row in enumerate(sums):
        m = start[0] + quad(tile.m, at[0], i, tile.rows)
        for j, total in enumerate(row):
            n = start[1] + quad(tile.n, at[1], j, tile.columns)
            where = base + offset(m, steps[0]) + offset(n, steps[1])
            masks = [x < e for x, e, known in zip((m, n), (p.m, p.n), exact, strict=True) if not known]
            if not masks:
                store(out, where, total.get())
                continue
            with k.if_(masks[0] if len(masks) == 1 else masks[0] & masks[1]):
                store(out, where, total.get())


def multiply_add(k: Kernel, x: Value, y: Value, z: Value) -> Value:
    """x * y + z."""
    return k.ext("Fma", "f", x, y, z) if x.t == "f" else x * y + z
