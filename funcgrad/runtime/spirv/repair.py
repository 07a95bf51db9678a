"""Which blocks of a product on the matrix units have to be computed again, in float32.

The error that elements far below the largest of their row bring is at most 2^-36 for each of them (2^-25 where one
float16 stands for an element), times the largest element of the other operand, below 2^15, all scaled.  So it is below
2^-22 (2^-11) of a result that is at least twice their number; a block with a smaller result may be wrong, and one with
infinities, NaN or the like is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from funcgrad.runtime.spirv.elements import Elements
from funcgrad.runtime.spirv.kernel import Kernel, Memory, Shared, Value
from funcgrad.runtime.spirv.product import Blocks
from funcgrad.runtime.spirv.ranges import HUGE, Ranges
from funcgrad.runtime.spirv.tiles import Results, Tile

__all__ = ["Repair"]

OPERAND = 3  # behind the operands and the result
GROUPS = 128


class Repair:
    """A guard of ``tiles``: it looks at the blocks, which are there already.

    ``marks`` are the product's own blocks, each of which has told whether a row of it loses bits; ``ranges`` are those
    of the operands; ``scratch`` has the numbers of what the ranges' kernels found, and of the marks.
    """

    def __init__(self, marks: Blocks, ranges: tuple[Ranges, Ranges], scratch: tuple[int, int, int]):
        self.marks, self.ranges, self.scratch = marks, ranges, scratch

    def table(self) -> list[tuple[int, int]]:
        """The addresses of what the kernels before have found."""
        return [(~s, 0) for s in self.scratch]

    def groups(self, cut: Blocks) -> int:
        """Few: most have nothing to do, and each has to be started."""
        assert self.marks.m % cut.m == 0 and self.marks.n % cut.n == 0, "each block lies in one that has a mark"
        return min(cut.total, GROUPS)

    @contextmanager
    def wanted(self, cut: Blocks, tile: Tile, out: Elements) -> Iterator[Results]:
        """What follows runs for each block of this group in which a result may be wrong."""
        k = out.k
        found, marks = [k.operand(OPERAND + i, "u") for i in (0, 1)], k.operand(OPERAND + 2, "u")
        least, inverse = [k.shared("f", tile.m + tile.n) for _ in range(2)]
        wrong, marked = k.shared("u", 1), k.shared("u", 1)
        first, groups = k.group(), self.groups(cut)
        with k.if_(k.thread().eq(0)):
            marked.store(0, 0)
        k.barrier()
        with (
            k.loop(cut.total, first + k.thread() * groups, groups * tile.threads) as block,
            k.if_(marks.load(self.marks.holding(cut.piece(block))).ne(0)),
        ):
            marked.store(0, 1)
        k.barrier()
        with k.if_(marked.load(0).ne(0), rare=True), k.loop(cut.total, first, groups) as block:
            piece = cut.piece(block)
            with k.if_(marks.load(self.marks.holding(piece)).ne(0), rare=True):
                results = Results(cut, piece, tile, out)
                with k.if_(k.thread().eq(0)):
                    wrong.store(0, 0)
                for i, width in enumerate((tile.m, tile.n)):
                    self._rows(results, i, width, found[i], least, inverse)
                k.barrier()
                with k.if_(self._wrong(results, least, inverse)):
                    wrong.store(0, 1)
                k.barrier()
                with k.if_(wrong.load(0).ne(0)):
                    yield results
                k.barrier()

    def _rows(self, results: Results, number: int, width: int, found: Memory, least: Shared, inverse: Shared) -> None:
        """Put into shared memory, for each row (or column) of the block, what a result must reach, and its scale."""
        k, threads, extent = results.k, results.tile.threads, self.ranges[number].rows
        start = results.piece.starts[number]
        for e in range(-(-width // threads)):
            row = k.thread() + e * threads
            with k.if_((row < width) & (start + row < extent)):
                scale = self.ranges[number].read(k, found, results.batch * extent + start + row)
                at = row + number * results.tile.m
                least.store(at, self._count(k, scale.lost))
                inverse.store(at, scale.inverse)

    def _count(self, k: Kernel, count: Value) -> Value:
        """Twice a count, as a float, infinite if it is huge."""
        return k.select(count < HUGE, k.unary("ConvertUToF", count, "f") * 2.0, k.const(float("inf"), "f"))

    def _wrong(self, results: Results, least: Shared, inverse: Shared) -> Value:
        """Whether one of this invocation's results may be wrong."""
        k, m = results.k, results.tile.m
        rows = [(least.load(row), inverse.load(row)) for row in results.rows(0)]
        columns = [(least.load(column + m), inverse.load(column + m)) for column in results.rows(1)]
        wrong = k.const(False, "b")
        for i, j, where, masks in results.places():
            (n0, s0), (n1, s1) = rows[i], columns[j]
            x = results.memory.load(where).bits() & 0x7FFFFFFF
            bad = ~(x.bits("f") >= (n0 + n1) * s0 * s1)
            for mask in masks:
                bad = bad & mask
            wrong = wrong | bad
        return wrong
