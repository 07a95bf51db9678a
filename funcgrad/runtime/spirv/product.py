"""The words of a product, and what the makers of its kernels share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from funcgrad.runtime.spirv.elements import SIZES, load, memory, store
from funcgrad.runtime.spirv.kernel import Dispatch, Kernel, Target, Value, spread_groups
from funcgrad.runtime.spirv.words import coordinates, group_number

__all__ = [
    "Blocks",
    "Piece",
    "Product",
    "Speed",
    "View",
    "along",
    "join",
    "lowest",
    "offset",
    "parse",
    "smaller",
    "sum_of",
]

START = 3e-6  # seconds that a launch takes in any case


class View(NamedTuple):
    """An operand: where it is, and strides in elements along the batch axes and its two matrix axes."""

    slot: int
    dtype: int
    offset: int
    strides: tuple[int, ...]


class Product(NamedTuple):
    """The words of a DOT node."""

    dtype: int
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: View
    b: View
    c: View
    precision: int = 0  # 0 float32, 1 as TensorFloat-32 or better, 2 float16


def parse(words: Sequence[int]) -> Product:
    """Read the words of a DOT node."""
    dtype, nb = words[0], words[1]
    batch = tuple(words[2 : 2 + nb])
    at = 2 + nb
    m, n, k = words[at : at + 3]
    at += 3
    views = []
    for _ in range(3):
        slot, kind, offset = words[at : at + 3]
        size = SIZES[kind]
        views.append(View(slot, kind, offset, tuple([s // size for s in words[at + 3 : at + 5 + nb]])))
        at += 5 + nb
    a, b, c = views
    return Product(dtype, batch, m, n, k, a, b, c, words[at] if at < len(words) else 0)


def lowest(v: View, dims: Sequence[int]) -> tuple[View, int]:
    """The view with its lowest address as its offset, and the index of its first element from there."""
    base = sum([-s * (d - 1) for s, d in zip(v.strides, dims, strict=True) if s < 0])
    return v._replace(offset=v.offset - base * SIZES[v.dtype]), base


class Blocks(NamedTuple):
    """How a product is cut into blocks of m times n, for each matrix of the batch and each part of the summed axis."""

    p: Product
    m: int
    n: int
    splits: int

    @property
    def columns(self) -> int:
        """Blocks side by side."""
        return math.ceil(self.p.n / self.n)

    @property
    def each(self) -> int:
        """Blocks of one matrix."""
        return math.ceil(self.p.m / self.m) * self.columns

    @property
    def results(self) -> int:
        """Elements of the result."""
        return math.prod(self.p.batch) * self.p.m * self.p.n

    @property
    def total(self) -> int:
        """Blocks of all."""
        return self.each * math.prod(self.p.batch) * self.splits

    def here(self, k: Kernel) -> tuple[Piece, tuple[int, int, int]]:
        """The block of this group, and the groups that have to be launched."""
        groups = spread_groups(self.total, k.target)
        # Where there are more groups than work, the last of them do the last piece again.
        return self.piece(smaller(group_number(k, groups), self.total - 1)), groups

    def piece(self, block: Value) -> Piece:
        """A block by its number."""
        corner = block % self.each
        return Piece(block, block // self.each, [corner // self.columns * self.m, corner % self.columns * self.n])

    def holding(self, piece: Piece) -> Value:
        """The number of the block that holds another, of a finer cut."""
        row, column = piece.starts[0] // self.m, piece.starts[1] // self.n
        return piece.number * self.each + row * self.columns + column


class Piece(NamedTuple):
    """A block: ``number`` counts parts, each a whole batch; ``starts`` is the block's first row and column."""

    block: Value
    number: Value
    starts: list[Value]


def along(
    k: Kernel,
    begin: Value,
    count: Value | int,
    depth: int,
    fetch: Callable[[Value], list[list[Value]]],
    keep: Sequence[Callable[[Sequence[Value]], None]],
    add: Callable[[], None],
    unroll: bool | None = None,
) -> None:
    """Go along the summed axis in steps of ``depth``: what comes next is on its way while this is multiplied.

    ``fetch`` reads both operands' parts from a depth on, ``keep`` writes each to shared memory, ``add`` adds the
    products of what is there.  A ``count`` that is known lets the compiler see the last step.
    """
    held = [[k.variable(x) for x in xs] for xs in fetch(begin)]
    with k.loop(count, step=depth, unroll=unroll) as at:
        for put, xs in zip(keep, held, strict=True):
            put([x.get() for x in xs])
        k.barrier()
        with k.if_(at + depth < count):
            for xs, new in zip(held, fetch(begin + at + depth), strict=True):
                for x, y in zip(xs, new, strict=True):
                    x.set(y)
        add()
        k.barrier()


class Finish(Protocol):
    """What becomes of a product's results, if they are not just written."""

    def open(self, k: Kernel, first: int) -> list[tuple[int, int]]:
        """Get addresses, before any branch; return them as the table's rows from ``first`` on."""

    def coordinates(self, where: Value, row: Value, column: Value) -> list[Value]:
        """What ``write`` is to know of a result: its number, its row (of all matrices) and its column."""

    def write(self, results: Sequence[Value], at: Sequence[list[Value]]) -> None:
        """Take some results."""


def join(p: Product, splits: int, target: Target, finish: Finish | None = None) -> Dispatch:
    """The launch that adds the parts of a split product."""
    k, count = Kernel(target, (128, 1, 1)), math.prod(p.batch) * p.m * p.n
    c, first = lowest(p.c, (*p.batch, p.m, p.n))
    parts, out = memory(k, 0, p.dtype), None if finish else memory(k, 1, c.dtype)
    table = finish.open(k, 1) if finish else [(c.slot, c.offset)]
    groups = spread_groups(math.ceil(count / 128), target)
    i = group_number(k, groups) * 128 + k.thread()
    with k.if_(i < count):
        total = load(parts, i)
        for s in range(1, splits):
            total = total + load(parts, i + s * count)
        n, rest = i % p.n, i // p.n
        index = [*coordinates(rest // p.m, p.batch), rest % p.m, n]
        where = sum_of(k, [offset(x, s) for x, s in zip(index, c.strides, strict=True)], first)
        if finish:
            finish.write([total], [finish.coordinates(where, rest, n)])
        elif out is not None:
            store(out, where, total)
    return Dispatch(k.code(), groups, ((~0, 0), *table))


class Speed(NamedTuple):
    """What groups of a kind of tile take; ``rate`` is what a large device does when it is full of them, in operations a
    second, ``resident`` how many fill it, ``step`` the seconds of one step along the summed axis of a group alone, and
    ``setup`` those before and after.
    """

    rate: float
    resident: int
    step: float
    setup: float

    def seconds(self, cut: Blocks, part: int, steps: int) -> float:
        """An estimate for a product, each part of whose summed axis is ``part`` long and takes so many steps.

        Groups come in waves, a step has a latency, and parts must be added.
        """
        full = cut.total / self.resident
        waves = math.ceil(full)
        work = (waves if full > 1 else full) * self.resident * 2 * cut.m * cut.n * part / self.rate
        joining = 3.5e-6 + 4 * cut.results * (cut.splits + 2) / 2.5e12 if cut.splits > 1 else 0.0
        return START + waves * self.setup + max(work, waves * steps * self.step) + joining


def smaller(x: Value, limit: int) -> Value:
    """The minimum of an index and a constant."""
    return x.k.select(x < limit, x, limit)


def offset(x: Value, stride: int) -> Value:
    """x * stride; negative strides wrap."""
    return x * (stride & 0xFFFFFFFF)


def sum_of(k: Kernel, xs: Sequence[Value], first: int) -> Value:
    """The sum of indices and a constant."""
    total = k.const(first, "u")
    for x in xs:
        total = total + x
    return total
