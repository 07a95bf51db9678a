"""Products on ordinary arithmetic: tiles in shared memory, a block of sums for each invocation, long sums split."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from funcgrad.runtime.spirv.elements import F32, I32, U32, Elements, load, memory, store
from funcgrad.runtime.spirv.epilogue import Epilogue
from funcgrad.runtime.spirv.index import LONGEST
from funcgrad.runtime.spirv.kernel import Dispatch, Kernel, Target, Value, Variable
from funcgrad.runtime.spirv.product import (
    Blocks,
    Piece,
    Product,
    Speed,
    View,
    along,
    lowest,
    offset,
    smaller,
    sum_of,
)
from funcgrad.runtime.spirv.words import coordinates

__all__ = ["TILES", "Guard", "Results", "Tile", "best_tile", "part_of", "tile_seconds", "tiles"]

DEPTH = 16  # of a tile: elements along the summed axis


class Tile(NamedTuple):
    """How a group computes: a block of m times n, of which each invocation has rows times columns."""

    m: int
    n: int
    rows: int
    columns: int
    speed: Speed

    @property
    def threads(self) -> int:
        """Invocations of a group."""
        return self.m // self.rows * (self.n // self.columns)


# Fitted to products of 1 to 140 billion operations on an H200; what matters is how tiles compare.
TILES = (
    Tile(128, 128, 8, 8, Speed(41e12, 264, 1.5e-6, 8e-6)),
    Tile(64, 64, 8, 8, Speed(38e12, 660, 0.95e-6, 2e-6)),
    Tile(32, 32, 4, 4, Speed(27e12, 1320, 0.4e-6, 1.3e-6)),
)
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


class Guard(Protocol):
    """Says which blocks have to be computed at all."""

    def table(self) -> list[tuple[int, int]]:
        """The addresses that it reads, which come behind those of the operands and the result."""

    def groups(self, cut: Blocks) -> int:
        """How many groups are launched."""

    def wanted(self, cut: Blocks, tile: Tile, out: Elements) -> AbstractContextManager[Results]:
        """What follows runs for each block that this group has to compute; all of a group agree."""


def best_tile(p: Product, target: Target) -> tuple[Tile, int]:
    """The tile, and the number of parts of the summed axis, that should take the least time."""
    if target.software:
        return TILES[-1], max(1, math.ceil(p.k / LONGEST))  # a step for each element, where loops are not unrolled
    choices = [(t, s) for t in TILES for s in SPLITS if s == 1 or s <= p.k // (2 * DEPTH)]
    return min(choices, key=lambda c: tile_seconds(p, *c))


def tile_seconds(p: Product, tile: Tile, splits: int) -> float:
    """An estimate of the time of a product."""
    part = part_of(p, splits)
    return tile.speed.seconds(Blocks(p, tile.m, tile.n, splits), part, part // DEPTH)


def part_of(p: Product, splits: int) -> int:
    """How far along the summed axis each part of a split product goes."""
    return -(-math.ceil(p.k / splits) // DEPTH) * DEPTH


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
        self.quads = k.quads(t, DEPTH * self.row // 4)
        # Whether neighbours along the summed axis are next to each other, or the closer ones; a stride may be 0.
        self.deep = self.inner == 1 or (self.outer != 1 and abs(self.inner) <= abs(self.outer))
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
                    self.quads.store((deep + c) * self.row + row, self.k.component(x.id, c, "f"))

    def read(self, depth: Value, first: Value, count: int) -> list[Value]:
        """The elements of some rows at a depth: quads that lie ``width / quads`` apart."""
        out: list[Value] = []
        quads = count // 4
        for q in range(quads):
            out += self.quads.load(depth * (self.row // 4) + first + q * (self.width // quads // 4))
        return out


class Results:
    """Where a block's results go: into the result, or with ``splits`` into scratch, one part after another."""

    def __init__(self, cut: Blocks, piece: Piece, tile: Tile, out: Elements | Epilogue):
        self.k, self.p, self.tile, self.splits, self.piece, self.out = out.k, cut.p, tile, cut.splits, piece, out
        p, k, across = cut.p, out.k, tile.n // tile.columns
        self.batch = piece.number if cut.splits == 1 else piece.number % math.prod(p.batch)
        self.index = coordinates(self.batch, p.batch)
        if cut.splits == 1:
            c, first = lowest(p.c, (*p.batch, p.m, p.n))
            self.base = sum_of(k, [offset(i, s) for i, s in zip(self.index, c.strides, strict=False)], first)
            self.steps = c.strides[-2:]
        else:
            self.base, self.steps = piece.number * (p.m * p.n), (p.n, 1)
        self.at = k.thread() // across, k.thread() % across

    def rows(self, axis: int) -> list[Value]:
        """Where in the block an invocation's rows (``axis`` 0) or columns (1) are: quads that lie apart."""
        size, count = ((self.tile.m, self.tile.rows), (self.tile.n, self.tile.columns))[axis]
        return [self.at[axis] * 4 + (i // 4 * (size // (count // 4)) + i % 4) for i in range(count)]

    @property
    def memory(self) -> Elements:
        """Where results are written as they are."""
        assert isinstance(self.out, Elements)
        return self.out

    def write(self, some: Sequence[tuple[int, int, Value]], sums: list[list[Variable]]) -> None:
        """Write some of an invocation's sums: the row and column of each, and its index."""
        if not isinstance(self.out, Epilogue):
            for i, j, where in some:
                store(self.memory, where, sums[i][j].get())
            return
        (m, n), rows, columns = self.piece.starts, self.rows(0), self.rows(1)
        m = self.batch * self.p.m + m
        at = [self.out.coordinates(where, m + rows[i], n + columns[j]) for i, j, where in some]
        self.out.write([sums[i][j].get() for i, j, _ in some], at)

    def places(self) -> Iterator[tuple[int, int, Value, list[Value]]]:
        """Of each of an invocation's sums: its row and column, its index, and what must hold that it is a result."""
        p, tile, (m, n) = self.p, self.tile, self.piece.starts
        rows, columns = [m + x for x in self.rows(0)], [n + x for x in self.rows(1)]
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                where = self.base + offset(row, self.steps[0]) + offset(column, self.steps[1])
                masks = [row < p.m] if p.m % tile.m else []
                masks += [column < p.n] if p.n % tile.n else []
                yield i, j, where, masks


def tiles(
    p: Product, tile: Tile, splits: int, target: Target, guard: Guard | None = None, epilogue: Epilogue | None = None
) -> Dispatch:
    """The launch that computes the blocks; with ``splits`` into scratch, one result after another.

    An ``epilogue`` takes the results of a product that is not split.
    """
    k, cut = Kernel(target, (tile.threads, 1, 1)), Blocks(p, tile.m, tile.n, splits)
    t = {F32: "f", I32: "i", U32: "u"}[p.dtype]
    sides = _Side(k, p, p.a, 0, p.m, tile.m, tile, t), _Side(k, p, p.b, 1, p.n, tile.n, tile, t)
    dtype, entry = (p.c.dtype, (lowest(p.c, (*p.batch, p.m, p.n))[0].offset)) if splits == 1 else (p.dtype, 0)
    table = [(s.view.slot, s.view.offset) for s in sides]
    if epilogue is not None:
        table += epilogue.open(k, 2)
        piece, groups = cut.here(k)
        _compute(k, sides, Results(cut, piece, tile, epilogue), t, unroll=not target.software)
        return Dispatch(k.code(), groups, tuple(table))
    out = memory(k, 2, dtype)
    table.append((p.c.slot if splits == 1 else ~0, entry))
    if guard is None:
        piece, groups = cut.here(k)
        _compute(k, sides, Results(cut, piece, tile, out), t, unroll=not target.software)
    else:
        groups = (guard.groups(cut), 1, 1)
        with guard.wanted(cut, tile, out) as results:
            _compute(k, sides, results, t, unroll=False)  # rarely run, but always compiled
    return Dispatch(k.code(), groups, (*table, *(guard.table() if guard else [])))


def _compute(k: Kernel, sides: tuple[_Side, _Side], results: Results, t: str, unroll: bool) -> None:
    """Compute a block and write it."""
    p, tile, splits, piece = results.p, results.tile, results.splits, results.piece
    part = part_of(p, splits)
    begin = k.const(0, "u") if splits == 1 else piece.number // math.prod(p.batch) * part
    stop = k.const(p.k, "u") if splits == 1 else smaller(begin + part, p.k)
    whole = p.k % (part if splits > 1 else DEPTH) == 0
    count = (part if splits > 1 else p.k) if whole else stop - begin
    bases = [
        sum_of(k, [offset(i, s) for i, s in zip(results.index, v.view.strides, strict=False)], v.first) for v in sides
    ]
    sums = [[k.variable(0, t) for _ in range(tile.columns)] for _ in range(tile.rows)]

    def fetch(depth: Value) -> list[list[Value]]:
        return [
            side.fetch(base, start, depth, stop, whole)
            for side, base, start in zip(sides, bases, piece.starts, strict=True)
        ]

    def add() -> None:
        with k.loop(DEPTH, unroll=unroll) as d:
            left, right = [
                side.read(d, at, n) for side, at, n in zip(sides, results.at, (tile.rows, tile.columns), strict=True)
            ]
            for u, row in zip(left, sums, strict=True):
                for v, total in zip(right, row, strict=True):
                    total.set(multiply_add(k, u, v, total.get()))

    along(k, begin, count, DEPTH, fetch, [side.keep for side in sides], add)
    together: list[tuple[int, int, Value]] = []
    for i, j, where, masks in results.places():
        together.append((i, j, where))
        if not masks:  # a row at a time
            if j == tile.columns - 1:
                results.write(together, sums)
                together = []
            continue
        with k.if_(masks[0] if len(masks) == 1 else masks[0] & masks[1]):
            results.write(together, sums)
        together = []


def multiply_add(k: Kernel, x: Value, y: Value, z: Value) -> Value:
    """x * y + z."""
    return k.ext("Fma", "f", x, y, z) if x.t == "f" else x * y + z
