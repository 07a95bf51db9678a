"""The ranges of a product's operands: for each row along the summed axis its largest magnitude, and what is far below.

A row is scaled by a power of two that brings its largest finite element to about 2^14, so that float16 holds it; two
float16, of which the second holds 2^11 times what the first lacks, then hold 22 bits of an element that is at least
2^-27 of the largest.  What is smaller loses bits: such elements are counted, so that a product can tell where they
matter.  Whatever scaling does not help (infinities, NaN, rows whose largest magnitude is outside 2^-73 to 2^73) counts
as ``HUGE`` elements.

A long row is looked at in parts, each of which knows only its own largest element; so it counts three times, what is
below the limit if the whole row's largest element is up to 2^6, 2^12 or 2^18 times as large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from funcgrad.runtime.spirv.kernel import Dispatch, Kernel, Memory, Target, Value, spread_groups
from funcgrad.runtime.spirv.product import Product, offset, smaller, sum_of
from funcgrad.runtime.spirv.words import Peak, coordinates, group_number

__all__ = ["HUGE", "TOP", "Ranges", "Scale"]

TOP = 14  # the largest element becomes about 2^TOP
DEPTH = 27  # powers of two below the largest element, where bits begin to be lost
HUGE = 1 << 24
LOWEST, HIGHEST = 54, 200  # exponents, as float32 keeps them, of largest elements that scaling helps
SLACKS, BITS = (6, 12, 18), 10  # of the counts of a part, and the bits that each has in a word
THREADS, HELD, PART = 256, 16, 512  # PART: the most elements of a part, fewer than 2^BITS
NONFINITE = 1 << 31
AHEAD = 8  # parts that are read at a time
INFINITE = 0x7F800000


class Scale(NamedTuple):
    """A row's scale, its inverse (0 for a row of zeros), and how many of its elements lose bits."""

    scale: Value
    inverse: Value
    lost: Value


class Ranges:
    """The kernel that finds the ranges of one operand (``number`` 0 or 1), and how others read what it found.

    What it finds are two uint32 for each row, part after part: the bits of the largest finite magnitude, and the count
    or counts, with NONFINITE if there is an infinity or NaN.  An invocation has up to ``HELD`` vectors of four, which
    lie in one row, or side by side in four.
    """

    def __init__(self, p: Product, number: int):
        self.p, self.view, self.rows = p, (p.a, p.b)[number], (p.m, p.n)[number]
        self.free, self.summed = (-2, -1) if number == 0 else (-1, -2)
        self.deep = self.view.strides[self.summed] == 1
        self.width = 1 if self.deep else 4  # rows of an invocation
        self.depth = p.k // 4 if self.deep else p.k  # of a row, in vectors
        if self.deep:
            self.lanes = next((n for n in (4, 8, 16, 32, 64) if self.depth <= n * HELD), PART // (4 * HELD))
        else:
            self.lanes = PART // HELD
        self.across = THREADS // self.lanes
        self.held = min(HELD, -(-self.depth // self.lanes))
        self.parts = -(-self.depth // (self.held * self.lanes))

    @property
    def nbytes(self) -> int:
        """Of what is found."""
        return 8 * math.prod(self.p.batch) * self.rows * self.parts

    def peak(self, find: int, scratch: int) -> Peak:
        """What the kernel's result depends on."""
        v, p = self.view, self.p
        outer = tuple(zip(v.strides[:-2], p.batch, strict=True))
        layout = (*outer, (v.strides[self.free], self.rows), (v.strides[self.summed], p.k))
        nbytes = 4 * sum([s * (n - 1) for s, n in layout]) + 4
        return Peak(find, scratch, v.slot, v.offset, layout, nbytes)

    # -- finding -------------------------------------------------------------------------------------------------
    def dispatch(self, scratch: int, target: Target) -> Dispatch:
        """The launch."""
        k = Kernel(target, (THREADS, 1, 1))
        x, out = k.operand(0, "q"), k.operand(1, "u")
        units = math.prod(self.p.batch) * self.rows // self.width
        pieces = -(-units // self.across)
        groups = spread_groups(pieces * self.parts, target)
        group = smaller(group_number(k, groups), pieces * self.parts - 1)
        if self.deep:
            lane, column = k.thread() % self.lanes, k.thread() // self.lanes
        else:
            lane, column = k.thread() // self.across, k.thread() % self.across
        unit, part = group % pieces * self.across + column, group // pieces  # neighbours read what lies together
        inside = unit < units
        unit = smaller(unit, units - 1)
        quads = self._load(k, x, self._base(k, unit), part * (self.held * self.lanes) + lane)
        largest = self._fold(k, lane, column, self._largest(k, quads), _greater)
        counts = self._fold(k, lane, column, self._counts(k, quads, largest), _sum)
        first = (part * (units * self.width) + unit * self.width) * 2
        with k.if_(lane.eq(0) & inside):
            for c, (m, n) in enumerate(zip(largest, counts, strict=True)):
                out.store(first + 2 * c, m)
                out.store(first + 2 * c + 1, n)
        return Dispatch(k.code(), groups, ((self.view.slot, self.view.offset), (~scratch, 0)))

    def _base(self, k: Kernel, unit: Value) -> Value:
        """Where the unit begins, in vectors."""
        v, units = self.view, self.rows // self.width
        index = coordinates(unit // units, self.p.batch)
        step = v.strides[self.free] // 4 if self.deep else 1
        parts = [offset(i, s // 4) for i, s in zip(index, v.strides, strict=False)]
        return sum_of(k, [*parts, offset(unit % units, step)], 0)

    def _load(self, k: Kernel, x: Memory, base: Value, first: Value) -> list[list[Value]]:
        """For each of the rows of this invocation the bits of its magnitudes, 0 outside."""
        step = 1 if self.deep else self.view.strides[self.summed] // 4
        rows: list[list[Value]] = [[] for _ in range(self.width)]
        places = [first + e * self.lanes for e in range(self.held)]
        whole = self.parts * self.held * self.lanes == self.depth
        quads = [x.load(base + offset(at if whole else smaller(at, self.depth - 1), step)) for at in places]
        for at, quad in zip(places, quads, strict=True):
            for c in range(4):
                one = k.component(quad.id, c, "f").bits() & 0x7FFFFFFF
                rows[c % self.width].append(one if whole else k.select(at < self.depth, one, k.const(0, "u")))
        return rows

    def _largest(self, k: Kernel, rows: list[list[Value]]) -> list[Value]:
        out = []
        for row in rows:
            most = k.const(0, "u")
            for bits in row:
                most = _greater(k, k.select(bits < INFINITE, bits, k.const(0, "u")), most)
            out.append(most)
        return out

    def _counts(self, k: Kernel, rows: list[list[Value]], largest: list[Value]) -> list[Value]:
        none, nonfinite = k.const(0, "u"), k.const(NONFINITE, "u")
        slacks = SLACKS if self.parts > 1 else (0,)
        out = []
        for row, most in zip(rows, largest, strict=True):
            below = [DEPTH - s for s in slacks]
            limits = [k.select((most >> 23) > n, ((most >> 23) - n) << 23, none) for n in below]
            total, seen = none, none
            for bits in row:
                for i, limit in enumerate(limits):
                    small = (bits < limit) & bits.ne(0)
                    total = total + k.select(small, k.const(1 << BITS * i, "u"), none)
                seen = k.select(bits < INFINITE, seen, nonfinite)
            out.append(total | seen)
        return out

    def _fold(
        self, k: Kernel, lane: Value, column: Value, xs: list[Value], join: Callable[[Kernel, Value, Value], Value]
    ) -> list[Value]:
        """What all lanes have, joined."""
        shared = k.shared("u", THREADS * self.width)
        for c, x in enumerate(xs):
            shared.store((lane * self.across + column) * self.width + c, x)
        k.barrier()
        totals = [k.variable(0, "u") for _ in xs]
        with k.loop(self.lanes, step=4) as start:
            for i in range(4):
                at = ((start + i) * self.across + column) * self.width
                for c, total in enumerate(totals):
                    total.set(join(k, shared.load(at + c), total.get()))
        return [t.get() for t in totals]

    # -- reading -------------------------------------------------------------------------------------------------
    def read(self, k: Kernel, found: Memory, row: Value) -> Scale:
        """The scale of a row, by its number in the whole batch."""
        most, count = self._row(k, found, row * 2)
        exponent, zero = most >> 23, most.eq(0)
        helps = zero | ((exponent >= LOWEST) & (exponent <= HIGHEST))
        exponent = k.select(zero, k.const(127, "u"), _greater(k, exponent, k.const(TOP + 2, "u")))
        scale, inverse = (254 + TOP - exponent) << 23, (exponent - TOP) << 23
        return Scale(
            scale.bits("f"),
            k.select(zero, k.const(0, "u"), inverse).bits("f"),
            k.select(helps & (count < HUGE), count, k.const(HUGE, "u")),
        )

    def _row(self, k: Kernel, found: Memory, first: Value) -> tuple[Value, Value]:
        """The largest magnitude of a row, and its count, at least HUGE where it is not finite."""
        if self.parts == 1:
            return found.load(first), found.load(first + 1)
        most, count, none = k.variable(0, "u"), k.variable(0, "u"), k.const(0, "u")
        with k.loop(self.parts, step=AHEAD) as start:
            for m, _, _ in self._some(k, found, first, start):
                most.set(_greater(k, m, most.get()))
        exponent = most.get() >> 23
        with k.loop(self.parts, step=AHEAD) as start:
            for m, n, inside in self._some(k, found, first, start):
                lost = k.select(m.eq(0), none, k.const(PART, "u"))
                for i, slack in reversed(list(enumerate(SLACKS))):
                    counted = (n >> BITS * i) & ((1 << BITS) - 1)
                    lost = k.select((m >> 23) + slack >= exponent, counted, lost)
                lost = k.select(n < NONFINITE, lost, k.const(HUGE, "u"))
                count.set(smaller(count.get() + k.select(inside, lost, none), HUGE))
        return most.get(), count.get()

    def _some(self, k: Kernel, found: Memory, first: Value, start: Value) -> list[tuple[Value, Value, Value]]:
        """What was found in the next parts, and whether there are as many."""
        places = [start + i for i in range(AHEAD)]
        bounded = [smaller(at, self.parts - 1) for at in places]
        bounded = [at * (2 * math.prod(self.p.batch) * self.rows) for at in bounded]  # part after part
        return [
            (found.load(first + at), found.load(first + at + 1), place < self.parts)
            for at, place in zip(bounded, places, strict=True)
        ]


def _sum(k: Kernel, x: Value, y: Value) -> Value:
    """The sum of counts, which is not finite if one is not."""
    return ((x + y) & (NONFINITE - 1)) | ((x | y) & NONFINITE)


def _greater(k: Kernel, x: Value, y: Value) -> Value:
    return k.select(x > y, x, y)
