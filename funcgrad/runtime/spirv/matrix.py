"""Products of float32 on a device's matrix units, which multiply float16 and add in float32.

Rows (of the left operand) and columns (of the right one) are scaled by powers of two so that float16 holds them
(``ranges``), and the results are scaled back.  For "tensorfloat32" one float16 stands for each element: it has as many
bits as TensorFloat-32, and no shorter a range within a row.  For "float32" it is two, and three products: of the first
parts, and of each first with the other's second part, which is kept 2^11 times as large so that it is not denormal.
The sums of the first go on in ordinary float32 arithmetic after every 16 products, since matrix units round toward
zero (H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
theoretical peak performance", IJHPCA 36, 2022).  Blocks where this is not exact enough are computed again (``repair``).
For the precision "float16" elements go as they are.

The instructions are those of SPV_KHR_cooperative_matrix; a subgroup of 32 works on matrices of 16x16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from funcgrad.runtime.spirv.elements import F32
from funcgrad.runtime.spirv.kernel import WORKGROUP, Dispatch, Kernel, Memory, Quads, Target, Value
from funcgrad.runtime.spirv.product import Blocks, Piece, Product, Speed, View, along, join, offset, sum_of
from funcgrad.runtime.spirv.ranges import Ranges
from funcgrad.runtime.spirv.repair import Repair
from funcgrad.runtime.spirv.tiles import TILES as BLOCKS
from funcgrad.runtime.spirv.tiles import tiles
from funcgrad.runtime.spirv.words import Lowered, coordinates

__all__ = ["best_units", "lower_matrix", "matrix_seconds"]

SUBGROUP, SIDE = 32, 16
SPLITS = (1, 2, 4, 8, 16)
ROW, COLUMN = 0, 1  # layouts
PADDING = 8  # halves behind a row in shared memory, so that banks differ
SECOND = 2048.0  # how much larger the second part is kept


class Tile(NamedTuple):
    """A block of m times n for a group of subgroups, ``down`` below one another times ``across``.

    ``depth`` is how far a step goes along the summed axis, ``unroll`` whether a compiler may unroll the steps.
    """

    m: int
    n: int
    down: int
    across: int
    depth: int
    speed: Speed
    unroll: bool | None = None

    @property
    def threads(self) -> int:
        """Invocations of a group."""
        return SUBGROUP * self.down * self.across

    def fits(self, p: Product, target: Target) -> bool:
        """Whether blocks of it make up the result, on a device that can run such a group."""
        parts = 2 if p.precision == 0 else 1
        row = 2 * parts * (self.depth + PADDING) + 8  # bytes: its elements, its scale, the inverse
        shared = (self.m + self.n) * row + 16  # and the mark
        enough = shared <= target.shared_bytes and self.threads <= target.most_invocations
        return enough and p.m % self.m == 0 and p.n % self.n == 0


# Measured on an H200 with 4096^3 and smaller ones; the ratios between tiles are what matters.
TILES = (
    Tile(256, 128, 4, 2, 32, Speed(225e12, 132, 0.9e-6, 5e-6)),
    Tile(128, 128, 2, 2, 32, Speed(200e12, 264, 0.9e-6, 5e-6)),
    Tile(128, 64, 2, 2, 32, Speed(140e12, 400, 0.9e-6, 5e-6)),
    Tile(64, 64, 2, 2, 32, Speed(90e12, 600, 0.9e-6, 5e-6)),
)
DOUBLE = (  # for elements in two parts
    Tile(128, 128, 4, 4, 32, Speed(70e12, 132, 1.75e-6, 8e-6)),
    Tile(64, 64, 2, 4, 32, Speed(52e12, 396, 1.15e-6, 2e-6), unroll=False),
)


def _choices(p: Product, target: Target) -> list[tuple[Tile, int]]:
    if p.dtype != F32 or not all(_fits(v, p.batch) for v in (p.a, p.b)) or p.k >= 1 << 24:
        return []
    if p.c.dtype != F32 or 1 not in p.c.strides[-2:] or p.c.offset % 16 or any(s % 4 for s in p.c.strides if s != 1):
        return []
    fitting = [t for t in (TILES if p.precision else DOUBLE) if t.fits(p, target)]
    return [(t, s) for t in fitting for s in SPLITS if p.k % (s * t.depth) == 0]


def _fits(v: View, batch: tuple[int, ...]) -> bool:
    """Whether four elements can be read at a time."""
    return (
        v.dtype == F32
        and 1 in v.strides[-2:]
        and v.offset % 16 == 0
        and all(s > 0 and s % 4 == 0 for s in v.strides if s != 1)
    )


def _seconds(p: Product, tile: Tile, splits: int) -> float:
    """An estimate of the time; the ranges must be found first, unless they are known, and blocks checked."""
    part = p.k // splits
    read = 4 * math.prod(p.batch) * (p.m + p.n) * p.k / 3e12 + 12e-6 if p.precision < 2 else 0.0
    return tile.speed.seconds(Blocks(p, tile.m, tile.n, splits), part, part // tile.depth) + read


def best_units(p: Product, target: Target) -> tuple[Tile, int] | None:
    """The tile, and the number of parts of the summed axis, that should take the least time; None if none fits."""
    return min(_choices(p, target), key=lambda c: _seconds(p, *c), default=None)


def matrix_seconds(p: Product, target: Target) -> float:
    """An estimate of the time, infinite where the matrix units cannot be used."""
    if not target.cooperative or target.subgroup != SUBGROUP or not (p.precision == 2 or target.halves):
        return math.inf
    best = best_units(p, target)
    return _seconds(p, *best) if best else math.inf


def lower_matrix(p: Product, target: Target) -> Lowered:
    """The launches of a product, and the bytes of scratch that they need: partial results, and two operands' ranges."""
    best = best_units(p, target)
    assert best is not None, "lower_matrix: a product that fits is required"
    tile, splits = best
    partial = 4 * math.prod(p.batch) * p.m * p.n * splits if splits > 1 else 4
    joining = [join(p, splits, target)] if splits > 1 else []
    if p.precision == 2:
        return Lowered([_product(p, tile, splits, None, target), *joining], [partial])
    ranges, cut = (Ranges(p, 0), Ranges(p, 1)), Blocks(p, tile.m, tile.n, splits)
    finding = [r.dispatch(1 + i, target) for i, r in enumerate(ranges)]
    guard = Repair(cut, ranges, (1, 2, 3))
    block = next(t for t in BLOCKS if tile.m % t.m == 0 and tile.n % t.n == 0)  # each within one that has a mark
    launches = [_product(p, tile, splits, ranges, target), tiles(p, block, splits, target, guard), *joining]
    scratch = [partial, *[r.nbytes for r in ranges], 4 * cut.total]
    return Lowered([*finding, *launches], scratch, tuple([r.peak(i, 1 + i) for i, r in enumerate(ranges)]))


# -- the product -------------------------------------------------------------------------------------------------
class _Side:
    """One operand's way into shared memory, where it lies as it does in memory, in float16."""

    def __init__(self, k: Kernel, p: Product, number: int, tile: Tile, double: bool):
        self.k, self.number, self.threads, self.double, a = k, number, tile.threads, double, k.a
        width = tile.m if number == 0 else tile.n
        v, free, summed = (p.a, -2, -1) if number == 0 else (p.b, -1, -2)
        self.view, self.deep = v, v.strides[summed] == 1
        self.fast, self.slow = (tile.depth, width) if self.deep else (width, tile.depth)
        self.step = v.strides[free] if self.deep else v.strides[summed]
        self.memory = k.operand(number, "q")
        self.stride = self.fast + PADDING  # halves from row to row in shared memory
        a.capability(9)
        self.half = a.type("TypeFloat", 16)
        self.vector, self.wide = a.type("TypeVector", self.half, 4), k.type("q")
        array = a.type("TypeArray", self.vector, k.const(self.slow * self.stride // 4, "u").id)
        kind = a.type("TypePointer", WORKGROUP, array)
        self.shared = [a.variable(kind, WORKGROUP) for _ in range(1 + double)]  # the parts
        self.pointer = a.type("TypePointer", WORKGROUP, self.vector)
        self.scales: list[int] = []  # by quad

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

    def scale(self, scales: Quads) -> None:
        """Take the scales of this invocation's quads, one or four each, from those of the block's rows."""
        k = self.k
        for e in range(self.fast * self.slow // 4 // self.threads):
            row, quad = self.place(e)
            if self.deep:
                self.scales.append(scales.load_element(row).id)
            elif e and self.threads % (self.fast // 4) == 0:
                self.scales.append(self.scales[0])  # the same four rows
            else:
                self.scales.append(k.a.result("Load", self.wide, scales.vector_pointer(quad)))

    def keep(self, quads: Sequence[Value]) -> None:
        """Scale and narrow the quads, and write their parts to shared memory."""
        a = self.k.a
        for e, x in enumerate(quads):
            row, quad = self.place(e)
            at, value = row * (self.stride // 4) + quad, x.id
            if self.scales:
                value = a.result("VectorTimesScalar" if self.deep else "FMul", self.wide, value, self.scales[e])
            for shared, part in zip(self.shared, self._parts(value) if self.double else [value], strict=True):
                narrow = a.result("FConvert", self.vector, part)
                a.emit("Store", a.result("AccessChain", self.pointer, shared, at.id), narrow)

    def _parts(self, value: int) -> list[int]:
        """Vectors that float16 can hold: the nearest of it, and what is missing, SECOND times as large.

        It is rounded here, since a compiler may take the conversion to float16 and back for nothing: to 11 bits by
        integers, and where float16 is denormal to a multiple of 2^-24 by adding what has that for its last bit.
        """
        a, k, wide = self.k.a, self.k, self.wide
        whole, truth = a.type("TypeVector", k.type("u"), 4), a.type("TypeVector", k.type("b"), 4)

        def four(x: float, t: str) -> int:
            return a.constant("ConstantComposite", whole if t == "u" else wide, *[k.const(x, t).id] * 4)

        def precise(name: str, x: int, y: int) -> int:
            found = a.result(name, wide, x, y)
            a.decorate(found, 42)
            return found

        bits = a.result("Bitcast", whole, value)
        rounded = a.result("BitwiseAnd", whole, a.result("IAdd", whole, bits, four(0x1000, "u")), four(0xFFFFE000, "u"))
        magnitude = a.result("BitwiseAnd", whole, bits, four(0x7FFFFFFF, "u"))
        denormal = a.result("ULessThan", truth, magnitude, four((127 - 14) << 23, "u"))
        fixed = precise("FSub", precise("FAdd", value, four(0.75, "f")), four(0.75, "f"))
        first = a.result("Select", wide, denormal, fixed, a.result("Bitcast", wide, rounded))
        missing = precise("FSub", value, first)
        return [first, a.result("VectorTimesScalar", wide, missing, k.const(SECOND, "f").id)]

    def read(self, first: Value, depth: int, kind: int, part: int) -> int:
        """The 16x16 matrix of a part from an element of the free axis (a multiple of 4) and a depth on."""
        a, k = self.k.a, self.k
        at = first * (self.stride // 4) + depth // 4 if self.deep else (first >> 2) + depth * (self.stride // 4)
        layout = ROW if self.deep == (self.number == 0) else COLUMN
        where = a.result("AccessChain", self.pointer, self.shared[part], at.id)
        return a.result(
            "CooperativeMatrixLoadKHR", kind, where, k.const(layout, "u").id, k.const(self.stride // 4, "u").id
        )


def _matrix_type(k: Kernel, component: int, use: int) -> int:
    k.a.capability(6022)
    k.a.extension("SPV_KHR_cooperative_matrix")
    numbers = [k.const(n, "u").id for n in (3, SIDE, SIDE, use)]  # subgroup scope, rows, columns, use
    return k.a.type("TypeCooperativeMatrixKHR", component, *numbers)


def _product(p: Product, tile: Tile, splits: int, ranges: tuple[Ranges, Ranges] | None, target: Target) -> Dispatch:
    k, double = Kernel(target, (tile.threads, 1, 1)), p.precision == 0
    table = [(p.a.slot, p.a.offset), (p.b.slot, p.b.offset), (p.c.slot, p.c.offset) if splits == 1 else (~0, 0)]
    sides = [_Side(k, p, i, tile, double) for i in (0, 1)]
    piece, groups = Blocks(p, tile.m, tile.n, splits).here(k)
    batches = math.prod(p.batch)
    index, part = coordinates(piece.number % batches, p.batch), p.k // splits
    bases = [sum_of(k, [offset(i, s) for i, s in zip(index, d.view.strides, strict=False)], 0) for d in sides]
    begin = piece.number // batches * part
    inverses = []
    if ranges is not None:
        table += [(~1, 0), (~2, 0), (~3, 0)]
        zero = k.const(0, "u")
        # Matrices are loaded from multiples of 16 bytes, so all that groups share has such a size.
        mark = k.quads("u", 1)
        with k.if_(k.thread().eq(0)):
            mark.store(zero, zero)
        k.barrier()
        inverses = [_scales(side, r, piece, batches, mark) for side, r in zip(sides, ranges, strict=True)]
        with k.if_(k.thread().eq(0)):
            k.operand(5, "u").store(piece.block, mark.load_element(zero))
    sums = _Sums(k, tile, double)

    def fetch(depth: Value) -> list[list[Value]]:
        return [d.fetch(b, s, depth) for d, b, s in zip(sides, bases, piece.starts, strict=True)]

    along(k, begin, part, tile.depth, fetch, [d.keep for d in sides], lambda: sums.add(sides), tile.unroll)
    c = p.c if splits == 1 else View(0, F32, 0, (0,) * len(p.batch) + (p.n, 1))
    base = sum_of(k, [offset(i, s) for i, s in zip(index, c.strides, strict=False)], 0)
    base = base if splits == 1 else piece.number * (p.m * p.n)
    sums.store(k.operand(2, "f"), base, piece.starts, c.strides[-2:], inverses)
    return Dispatch(k.code(), groups, tuple(table), SUBGROUP)


def _scales(side: _Side, ranges: Ranges, piece: Piece, batches: int, mark: Quads) -> Quads:
    """Give a side its scales; return their inverses, by row of the block.  Rows that lose bits set the mark."""
    k, width = side.k, side.slow if side.deep else side.fast
    found, scales, inverses = k.operand(3 + side.number, "u"), k.quads("f", width // 4), k.quads("f", width // 4)
    first = piece.number % batches * ranges.rows + piece.starts[side.number]
    for e in range(-(-width // side.threads)):
        row = k.thread() + e * side.threads
        with k.if_(row < width):
            scale = ranges.read(k, found, first + row)
            scales.store(row, scale.scale)
            inverses.store(row, scale.inverse)
            with k.if_(scale.lost.ne(0)):
                mark.store(k.const(0, "u"), k.const(1, "u"))
    k.barrier()
    side.scale(scales)
    return inverses


class _Sums:
    """A subgroup's part of the result as matrices; where elements have two parts, ``seconds`` has what these add."""

    def __init__(self, k: Kernel, tile: Tile, double: bool):
        self.k, self.double, a = k, double, k.a
        half, single = a.type("TypeFloat", 16), k.type("f")
        a.capability(9)
        self.types = [_matrix_type(k, half, 0), _matrix_type(k, half, 1), _matrix_type(k, single, 2)]
        across, self.depth = tile.across, tile.depth
        self.rows, self.columns = tile.m // tile.down // SIDE, tile.n // across // SIDE
        subgroup = k.thread() // SUBGROUP
        self.first = [subgroup // across * (self.rows * SIDE), subgroup % across * (self.columns * SIDE)]
        self.zero = a.constant("ConstantNull", self.types[2])
        count = self.rows * self.columns
        self.firsts = [self._variable() for _ in range(count)]
        self.seconds = [self._variable() for _ in range(count if double else 0)]

    def _variable(self) -> int:
        found = self.k.allocate(self.types[2])
        self.k.a.emit("Store", found, self.zero)
        return found

    def add(self, sides: list[_Side]) -> None:
        """Add the products of what is in shared memory."""
        for depth in range(0, self.depth, SIDE):
            left, right = [
                [
                    [side.read(first + i * SIDE, depth, kind, part) for i in range(count)]
                    for part in range(1 + self.double)
                ]
                for side, first, kind, count in zip(
                    sides, self.first, self.types, (self.rows, self.columns), strict=False
                )
            ]
            for n in range(self.rows * self.columns):
                i, j = n // self.columns, n % self.columns
                if self.double:
                    self._multiply(left[0][i], right[1][j], self.seconds[n])
                    self._multiply(left[1][i], right[0][j], self.seconds[n])
                    self._multiply_apart(left[0][i], right[0][j], self.firsts[n])
                else:
                    self._multiply(left[0][i], right[0][j], self.firsts[n])

    def _multiply(self, x: int, y: int, where: int) -> None:
        a, kind = self.k.a, self.types[2]
        old = a.result("Load", kind, where)
        a.emit("Store", where, a.result("CooperativeMatrixMulAddKHR", kind, x, y, old))

    def _multiply_apart(self, x: int, y: int, where: int) -> None:
        """Multiply on the matrix units, add on others."""
        a, kind = self.k.a, self.types[2]
        product = a.result("CooperativeMatrixMulAddKHR", kind, x, y, self.zero)
        a.emit("Store", where, a.result("FAdd", kind, a.result("Load", kind, where), product))

    def store(
        self, out: Memory, base: Value, starts: list[Value], steps: tuple[int, ...], inverses: list[Quads]
    ) -> None:
        """Write the result, scaled back."""
        a, k, kind = self.k.a, self.k, self.types[2]
        layout, stride = (ROW, steps[0]) if steps[1] == 1 else (COLUMN, steps[1])
        for n, where in enumerate(self.firsts):
            i, j = n // self.columns * SIDE, n % self.columns * SIDE
            value = a.result("Load", kind, where)
            if self.double:
                second = a.result("Load", kind, self.seconds[n])
                second = a.result("MatrixTimesScalar", kind, second, k.const(1 / SECOND, "f").id)
                value = a.result("FAdd", kind, value, second)
            # a column (row) of scales again and again, by a stride of 0
            places = self.first[0] + i, self.first[1] + j
            for quads, first, order in zip(inverses, places, (COLUMN, ROW), strict=False):
                ids = [k.const(x, "u").id for x in (order, 0)]
                scales = a.result("CooperativeMatrixLoadKHR", kind, quads.vector_pointer(first >> 2), *ids)
                value = a.result("FMul", kind, value, scales)
            row, column = starts[0] + self.first[0] + i, starts[1] + self.first[1] + j
            at = out.pointer(base + offset(row, steps[0]) + offset(column, steps[1]))
            a.emit("CooperativeMatrixStoreKHR", at, value, k.const(layout, "u").id, k.const(stride, "u").id, 2, 16)
