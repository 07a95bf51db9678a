"""Matrix products on a device's matrix units: float32 operands as float16, sums in float32.

Float16 has as many bits as TensorFloat-32, but a short range.  So both operands are scaled by powers of two that bring
their largest finite elements to about 2^14, and the result is scaled back: what is lost is below 2^-11 of an element,
or 2^-38 of the largest.  For the precision "float16" elements go as they are.

The instructions are those of SPV_KHR_cooperative_matrix; a subgroup of 32 works on matrices of 16x16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from funcgrad.runtime.spirv.elements import F32
from funcgrad.runtime.spirv.kernel import FUNCTION, WORKGROUP, Dispatch, Kernel, Memory, Target, Value, spread_groups
from funcgrad.runtime.spirv.product import Piece, Product, View, along, join, join_seconds, offset, sum_of
from funcgrad.runtime.spirv.words import Lowered, Peak, coordinates

__all__ = ["lower_matrix", "matrix_seconds"]

SUBGROUP, THREADS, SIDE = 32, 256, 16
SPLITS = (1, 2, 4, 8, 16)
TOP = 14  # the largest element becomes about 2^TOP
ROW, COLUMN = 0, 1  # layouts
STEP, SETUP, START = 0.9e-6, 5e-6, 3e-6  # seconds of a step along the summed axis, of a wave of groups, of a launch


class Tile(NamedTuple):
    """A block of m times n for a group of subgroups, ``down`` below one another times ``across``.

    ``depth`` is how far a step goes along the summed axis.
    """

    m: int
    n: int
    down: int
    across: int
    depth: int
    rate: float
    resident: int

    @property
    def threads(self) -> int:
        """Invocations of a group."""
        return SUBGROUP * self.down * self.across


# Measured on an H200 with 4096^3; the ratios between tiles are what matters.
TILES = (
    Tile(256, 128, 4, 2, 32, 225e12, 132),
    Tile(128, 128, 2, 2, 32, 200e12, 264),
    Tile(128, 64, 2, 2, 32, 140e12, 400),
    Tile(64, 64, 2, 2, 32, 90e12, 600),
)


def _choices(p: Product) -> list[tuple[Tile, int]]:
    if p.dtype != F32 or not all(_fits(v, p.batch) for v in (p.a, p.b)):
        return []
    if p.c.dtype != F32 or 1 not in p.c.strides[-2:] or p.c.offset % 16 or any(s % 4 for s in p.c.strides if s != 1):
        return []
    tiles = [t for t in TILES if p.m % t.m == 0 and p.n % t.n == 0]
    return [(t, s) for t in tiles for s in SPLITS if p.k % (s * t.depth) == 0]


def _fits(v: View, batch: tuple[int, ...]) -> bool:
    """Whether four elements can be read at a time."""
    return (
        v.dtype == F32
        and 1 in v.strides[-2:]
        and v.offset % 16 == 0
        and all(s > 0 and s % 4 == 0 for s in v.strides if s != 1)
    )


def _seconds(p: Product, tile: Tile, splits: int) -> float:
    """An estimate, as for the tiles of ``dot``; the largest magnitudes must be found first, unless they are known."""
    groups = p.m // tile.m * (p.n // tile.n) * math.prod(p.batch) * splits
    depth, full = p.k // splits, groups / tile.resident
    waves = math.ceil(full)
    work = (waves if full > 1 else full) * tile.resident * 2 * tile.m * tile.n * depth / tile.rate
    latency = waves * depth / tile.depth * STEP
    read = 4 * math.prod(p.batch) * (p.m + p.n) * p.k / 3e12 + 6e-6 if p.precision == 1 else 0.0
    return START + waves * SETUP + max(work, latency) + read + (join_seconds(p, splits) if splits > 1 else 0.0)


def matrix_seconds(p: Product, target: Target) -> float:
    """An estimate of the time, infinite where the matrix units cannot be used."""
    if not target.cooperative or target.subgroup != SUBGROUP or not p.precision:
        return math.inf
    return min([_seconds(p, *c) for c in _choices(p)], default=math.inf)


def lower_matrix(p: Product, target: Target) -> Lowered:
    """The launches of a product, and the bytes of scratch that they need: partial results, and two maxima."""
    tile, splits = min(_choices(p), key=lambda c: _seconds(p, *c))
    launches, peaks = [], []
    if p.precision == 1:
        launches = [_clear(0, target), _clear(1, target), _largest(p, 0, target), _largest(p, 1, target)]
        peaks = [_peak(p, i) for i in (0, 1)]
    launches.append(_product(p, tile, splits, p.precision == 1, target))
    if splits > 1:
        launches.append(join(p, splits, target))
    partial = 4 * math.prod(p.batch) * p.m * p.n * splits if splits > 1 else 4
    return Lowered(launches, [partial, 4, 4], tuple(peaks))


# -- the scales --------------------------------------------------------------------------------------------------
def _peak(p: Product, number: int) -> Peak:
    v, dims = (p.a, (*p.batch, p.m, p.k)) if number == 0 else (p.b, (*p.batch, p.k, p.n))
    layout = sorted([(4 * s, d) for s, d in zip(v.strides, dims, strict=True) if d > 1])
    return Peak(number, 2 + number, 1 + number, v.slot, v.offset, tuple(layout))


def _clear(number: int, target: Target) -> Dispatch:
    k = Kernel(target, (1, 1, 1))
    k.operand(0, "u").store(0, k.const(0, "u"))
    return Dispatch(k.code(), (1, 1, 1), ((~(1 + number), 0),), free=True)


def _largest(p: Product, number: int, target: Target) -> Dispatch:
    """The bits of the largest finite magnitude of an operand, by atomic maxima, whose order does not matter."""
    k = Kernel(target, (THREADS, 1, 1))
    v, extent = (p.a, p.m) if number == 0 else (p.b, p.n)
    free, summed = (-2, -1) if number == 0 else (-1, -2)
    deep = v.strides[summed] == 1
    fast, slow = (p.k, extent) if deep else (extent, p.k)
    step = v.strides[free] if deep else v.strides[summed]
    x, out = k.operand(0, "q"), k.operand(1, "u")
    count = math.prod(p.batch) * extent * p.k // 4
    each = 8
    groups = spread_groups(-(-count // (THREADS * each)), target)
    base = (k.group(0) + k.group(1) * groups[0]) * (THREADS * each) + k.thread()
    most = k.variable(0, "u")
    for e in range(each):
        i = base + e * THREADS
        i = k.select(i < count, i, k.const(count - 1, "u"))
        inner, rest = i % (fast // 4), i // (fast // 4)
        index = coordinates(rest // slow, p.batch)
        where = sum_of(k, [offset(b, s // 4) for b, s in zip(index, v.strides, strict=False)], 0)
        quad = x.load(where + offset(rest % slow, step // 4) + inner)
        for c in range(4):
            bits = Value(k, k.a.result("CompositeExtract", k.type("f"), quad.id, c), "f").bits() & 0x7FFFFFFF
            bits = k.select(bits < 0x7F800000, bits, k.const(0, "u"))
            most.set(k.select(bits > most.get(), bits, most.get()))
    for mask in (16, 8, 4, 2, 1):
        other = k.shuffle_xor(most.get(), mask)
        most.set(k.select(other > most.get(), other, most.get()))
    with k.if_((k.thread() % SUBGROUP).eq(0)):
        ids = [k.const(n, "u").id for n in (1, 0)]  # device scope, relaxed
        k.a.result("AtomicUMax", k.type("u"), out.pointer(0), *ids, most.get().id)
    table = ((v.slot, v.offset), (~(1 + number), 0))
    return Dispatch(k.code(), groups, table, SUBGROUP, free=number == 1)


def _scale(k: Kernel, bits: Value) -> tuple[Value, Value]:
    """The power of two that brings a magnitude to about 2^TOP, and its inverse."""
    exponent = bits >> 23  # biased
    low, high = k.const(TOP + 2, "u"), k.const(252, "u")
    exponent = k.select(exponent < low, low, k.select(exponent > high, high, exponent))
    exponent = k.select(bits.eq(0), k.const(127 + TOP, "u"), exponent)
    return ((254 + TOP - exponent) << 23).bits("f"), ((exponent - TOP) << 23).bits("f")


# -- the product -------------------------------------------------------------------------------------------------
class _Side:
    """One operand's way into shared memory, where it lies as it does in memory, in float16."""

    def __init__(self, k: Kernel, p: Product, number: int, tile: Tile, scale: Value | None):
        self.k, self.number, self.scale, self.threads, a = k, number, scale, tile.threads, k.a
        width = tile.m if number == 0 else tile.n
        v, free, summed = (p.a, -2, -1) if number == 0 else (p.b, -1, -2)
        self.view, self.deep = v, v.strides[summed] == 1
        self.fast, self.slow = (tile.depth, width) if self.deep else (width, tile.depth)
        self.step = v.strides[free] if self.deep else v.strides[summed]
        self.memory = k.operand(number, "q")
        self.stride = self.fast + 8  # halves from row to row in shared memory
        a.capability(9)
        self.half = a.type("TypeFloat", 16)
        self.vector = a.type("TypeVector", self.half, 4)
        array = a.type("TypeArray", self.vector, k.const(self.slow * self.stride // 4, "u").id)
        self.shared = a.variable(a.type("TypePointer", WORKGROUP, array), WORKGROUP)
        self.pointer = a.type("TypePointer", WORKGROUP, self.vector)

    def place(self, e: int) -> tuple[Value, Value]:
        """Row and quad of this invocation's e-th quad."""
        number = self.k.thread() + e * self.threads
        return number // (self.fast // 4), number % (self.fast // 4)

    def fetch(self, base: Value, start: Value, depth: Value) -> list[Value]:
        """This invocation's quads of the block; ``base`` and ``start`` (of the free axis) in elements."""
        out = []
        for e in range(self.fast * self.slow // 4 // self.threads):
            row, quad = self.place(e)
            along, across = (depth, start) if self.deep else (start, depth)
            where = (base >> 2) + offset(across + row, self.step // 4) + (along >> 2) + quad
            out.append(self.memory.load(where))
        return out

    def keep(self, quads: Sequence[Value]) -> None:
        """Scale and narrow the quads, and write them to shared memory."""
        a, k = self.k.a, self.k
        for e, x in enumerate(quads):
            row, quad = self.place(e)
            value = x.id
            if self.scale is not None:
                value = a.result("VectorTimesScalar", k.type("q"), value, self.scale.id)
            value = a.result("FConvert", self.vector, value)
            at = row * (self.stride // 4) + quad
            a.emit("Store", a.result("AccessChain", self.pointer, self.shared, at.id), value)

    def read(self, first: Value, depth: int, kind: int) -> int:
        """The 16x16 matrix from an element of the free axis (a multiple of 4) and a depth on."""
        a, k = self.k.a, self.k
        at = first * (self.stride // 4) + depth // 4 if self.deep else (first >> 2) + depth * (self.stride // 4)
        layout = ROW if self.deep == (self.number == 0) else COLUMN
        where = a.result("AccessChain", self.pointer, self.shared, at.id)
        return a.result(
            "CooperativeMatrixLoadKHR", kind, where, k.const(layout, "u").id, k.const(self.stride // 4, "u").id
        )


def _matrix_type(k: Kernel, component: int, use: int) -> int:
    k.a.capability(6022)
    k.a.extension("SPV_KHR_cooperative_matrix")
    numbers = [k.const(n, "u").id for n in (3, SIDE, SIDE, use)]  # subgroup scope, rows, columns, use
    return k.a.type("TypeCooperativeMatrixKHR", component, *numbers)


def _product(p: Product, tile: Tile, splits: int, scaled: bool, target: Target) -> Dispatch:
    k = Kernel(target, (tile.threads, 1, 1))
    table = [(p.a.slot, p.a.offset), (p.b.slot, p.b.offset), (p.c.slot, p.c.offset) if splits == 1 else (~0, 0)]
    scales: list[Value | None] = [None, None]
    inverse: Value | None = None
    if scaled:
        table += [(~1, 0), (~2, 0)]
        found = [_scale(k, k.operand(3 + i, "u").load(0)) for i in (0, 1)]
        scales, inverse = [s for s, _ in found], found[0][1] * found[1][1]
    sides = [_Side(k, p, i, tile, scales[i]) for i in (0, 1)]
    piece = Piece(k, p, tile.m, tile.n, splits)
    index, part = coordinates(piece.number % math.prod(p.batch), p.batch), p.k // splits
    bases = [sum_of(k, [offset(i, s) for i, s in zip(index, d.view.strides, strict=False)], 0) for d in sides]
    begin = piece.number // math.prod(p.batch) * part
    sums = _Sums(k, tile)

    def fetch(depth: Value) -> list[list[Value]]:
        return [d.fetch(b, s, depth) for d, b, s in zip(sides, bases, piece.starts, strict=True)]

    along(k, (begin, begin + part, tile.depth), fetch, [d.keep for d in sides], lambda: sums.add(sides))
    c = p.c if splits == 1 else View(0, F32, 0, (0,) * len(p.batch) + (p.n, 1))
    base = sum_of(k, [offset(i, s) for i, s in zip(index, c.strides, strict=False)], 0)
    base = base if splits == 1 else piece.number * (p.m * p.n)
    sums.store(k.operand(2, "f"), base, piece.starts, c.strides[-2:], inverse)
    return Dispatch(k.code(), piece.groups, tuple(table), SUBGROUP)


class _Sums:
    """A subgroup's part of the result as matrices."""

    def __init__(self, k: Kernel, tile: Tile):
        self.k, a = k, k.a
        half, single = a.type("TypeFloat", 16), k.type("f")
        a.capability(9)
        self.types = [_matrix_type(k, half, 0), _matrix_type(k, half, 1), _matrix_type(k, single, 2)]
        across, self.depth = tile.across, tile.depth
        self.rows, self.columns = tile.m // tile.down // SIDE, tile.n // across // SIDE
        subgroup = k.thread() // SUBGROUP
        self.first = [subgroup // across * (self.rows * SIDE), subgroup % across * (self.columns * SIDE)]
        zero = a.constant("ConstantNull", self.types[2])
        pointer = a.type("TypePointer", FUNCTION, self.types[2])
        self.variables = []
        for _ in range(self.rows * self.columns):
            found = a.id()
            k._locals += [4 << 16 | 59, pointer, found, FUNCTION]
            a.emit("Store", found, zero)
            self.variables.append(found)

    def add(self, sides: list[_Side]) -> None:
        """Add the products of what is in shared memory."""
        a = self.k.a
        for depth in range(0, self.depth, SIDE):
            left, right = [
                [side.read(first + i * SIDE, depth, kind) for i in range(count)]
                for side, first, kind, count in zip(
                    sides, self.first, self.types, (self.rows, self.columns), strict=False
                )
            ]
            for n, where in enumerate(self.variables):
                old = a.result("Load", self.types[2], where)
                x, y = left[n // self.columns], right[n % self.columns]
                a.emit("Store", where, a.result("CooperativeMatrixMulAddKHR", self.types[2], x, y, old))

    def store(
        self, out: Memory, base: Value, starts: list[Value], steps: tuple[int, ...], inverse: Value | None
    ) -> None:
        """Write the result, scaled back."""
        a, k = self.k.a, self.k
        layout, stride = (ROW, steps[0]) if steps[1] == 1 else (COLUMN, steps[1])
        for n, where in enumerate(self.variables):
            value = a.result("Load", self.types[2], where)
            if inverse is not None:
                value = a.result("MatrixTimesScalar", self.types[2], value, inverse.id)
            row = starts[0] + self.first[0] + n // self.columns * SIDE
            column = starts[1] + self.first[1] + n % self.columns * SIDE
            at = out.pointer(base + offset(row, steps[0]) + offset(column, steps[1]))
            a.emit("CooperativeMatrixStoreKHR", at, value, k.const(layout, "u").id, k.const(stride, "u").id, 2, 16)
