"""Running reductions and sorting as Vulkan kernels, along the middle of [A, N, B]."""

from __future__ import annotations

import math
from collections.abc import Sequence

from funcgrad.runtime.spirv.elements import BOOL, I32, U32, letter, load, memory, store
from funcgrad.runtime.spirv.folds import Fold, make_fold
from funcgrad.runtime.spirv.index import LONGEST, Lists, each
from funcgrad.runtime.spirv.kernel import Dispatch, Kernel, Memory, Target, Value
from funcgrad.runtime.spirv.words import coordinates

__all__ = ["lower_cumulative", "lower_sort"]

ROWS = 2048  # rows from which on one invocation a row is enough
LONG = 256  # elements of a row that one invocation goes through
BLOCK = 1024  # elements that a group sorts in shared memory


class _Shape:
    """What the kernels of one CUMULATIVE node have in common."""

    def __init__(self, words: Sequence[int]):
        self.op, self.dtype, self.a, self.n, self.b, self.reverse, *pointers = words
        self.x, self.out = (pointers[0], pointers[1]), (pointers[2], pointers[3])
        self.fold = make_fold(self.op, self.dtype)
        rows = self.a * self.b
        whole = self.n <= (LONGEST if rows >= ROWS else LONG)
        self.chunks = 1 if whole else math.ceil(self.n / max(64, math.isqrt(self.n)))
        self.length = math.ceil(self.n / self.chunks)

    def element(self, row: Value, at: Value) -> Value:
        """The number of an element in the order of the scan."""
        a, b = coordinates(row, (self.a, self.b))
        place = at if not self.reverse else at.k.const(self.n - 1, "u") - at
        return (a * self.n + place) * self.b + b


def lower_cumulative(words: Sequence[int], target: Target) -> Lists:
    """The launches of a CUMULATIVE node: one invocation a row, or for few long rows one a chunk, in three launches."""
    s = _Shape(words)
    if s.chunks == 1:
        return [_scan(s, False, target)], []
    return [_totals(s, target), _starts(s, target), _scan(s, True, target)], [
        4 * len(s.fold.types) * s.a * s.b * s.chunks
    ]


class _State:
    """What a fold keeps, as variables, and as words of scratch memory from a place on."""

    def __init__(self, k: Kernel, fold: Fold, first: Sequence[Value]):
        self.k, self.fold, self.held = k, fold, [k.variable(v) for v in first]

    def get(self) -> list[Value]:
        """The values now."""
        return [v.get() for v in self.held]

    def set(self, values: Sequence[Value]) -> None:
        """Change them."""
        for v, new in zip(self.held, values, strict=True):
            v.set(new)

    def store(self, scratch: Memory, number: Value) -> None:
        """Write the values of a number of the table."""
        for j, v in enumerate(self.get()):
            scratch.store(number * len(self.held) + j, v.bits())


def _stored(fold: Fold, scratch: Memory, number: Value) -> list[Value]:
    """The values that ``store`` wrote."""
    n = len(fold.types)
    return [scratch.load(number * n + j).bits(t) for j, t in enumerate(fold.types)]


def _bounds(s: _Shape, chunk: Value) -> tuple[Value, Value]:
    start = chunk * s.length
    stop = start + s.length
    return start, start.k.select(stop < s.n, stop, s.n)


def _totals(s: _Shape, target: Target) -> Dispatch:
    k = Kernel(target, (64, 1, 1))
    x, totals = memory(k, 0, s.dtype), k.operand(1, "u")
    number, inside, groups = each(k, s.a * s.b * s.chunks, target)
    with k.if_(inside):
        row, chunk = coordinates(number, (s.a * s.b, s.chunks))
        state = _State(k, s.fold, s.fold.empty(k))
        start, stop = _bounds(s, chunk)
        with k.loop(stop, start) as i:
            state.set(s.fold.take(state.get(), load(x, s.element(row, i)), i))
        state.store(totals, number)
    return Dispatch(k.code(), groups, (s.x, (~0, 0)))


def _starts(s: _Shape, target: Target) -> Dispatch:
    """Replace each chunk's total by that of all before it."""
    k = Kernel(target, (64, 1, 1))
    totals = k.operand(0, "u")
    row, inside, groups = each(k, s.a * s.b, target)
    with k.if_(inside):
        state = _State(k, s.fold, s.fold.empty(k))
        with k.loop(s.chunks) as i:
            at = row * s.chunks + i
            here = _stored(s.fold, totals, at)
            state.store(totals, at)
            state.set(s.fold.join(state.get(), here))
    return Dispatch(k.code(), groups, ((~0, 0),))


def _scan(s: _Shape, chunked: bool, target: Target) -> Dispatch:
    k = Kernel(target, (64, 1, 1))
    x, out = memory(k, 0, s.dtype), memory(k, 1, s.dtype)
    totals: Memory | None = k.operand(2, "u") if chunked else None
    number, inside, groups = each(k, s.a * s.b * s.chunks, target)
    with k.if_(inside):
        row, chunk = coordinates(number, (s.a * s.b, s.chunks))
        state = _State(k, s.fold, s.fold.empty(k) if totals is None else _stored(s.fold, totals, number))
        start, stop = _bounds(s, chunk)
        with k.loop(stop, start) as i:
            where = s.element(row, i)
            state.set(s.fold.take(state.get(), load(x, where), i))
            store(out, where, s.fold.finish(state.get()).bits(letter(s.dtype)))
    return Dispatch(k.code(), groups, (s.x, s.out, (~0, 0)) if chunked else (s.x, s.out))


# -- sorting -----------------------------------------------------------------------------------------------------
class _Sort:
    """The words of a SORT node; rows are padded to a power of two."""

    def __init__(self, words: Sequence[int]):
        self.dtype, self.a, self.n, self.b, *pointers = words
        self.x, self.values, self.order = [(pointers[i], pointers[i + 1]) for i in (0, 2, 4)]
        self.padded = max(2, 1 << (self.n - 1).bit_length())
        self.rows = self.a * self.b

    def element(self, row: Value, at: Value) -> Value:
        """The number of an element of a row."""
        a, b = coordinates(row, (self.a, self.b))
        return (a * self.n + at) * self.b + b


def sort_key(x: Value, dtype: int) -> Value:
    """A uint32 in the same order: NaN last, both zeros alike."""
    k = x.k
    if dtype in (U32, BOOL):
        return x
    u = x.bits()
    if dtype == I32:
        return u ^ 0x80000000
    u = k.select(x.eq(0), k.const(0, "u"), u)
    flipped = k.select(u >= 0x80000000, ~u, u | 0x80000000)
    return k.select(x.ne(x), k.const(0xFFFFFFFF, "u"), flipped)


def lower_sort(words: Sequence[int], target: Target) -> Lists:
    """The launches of a SORT node: a bitonic network on keys and places, in shared memory as far as a row fits.

    K. E. Batcher, "Sorting networks and their applications", 1968.  Equal keys are ordered by place, so it is stable.
    """
    s = _Sort(words)
    block = min(BLOCK, s.padded)
    launches = [_fill(s, target)]
    launches.append(_inside(s, block, 2, block, target))
    span = 2 * block
    while span <= s.padded:
        distance = span // 2
        while distance >= block:
            launches.append(_apart(s, span, distance, target))
            distance //= 2
        launches.append(_inside(s, block, span, span, target))
        span *= 2
    launches.append(_deliver(s, target))
    return launches, [8 * s.rows * s.padded]


def _fill(s: _Sort, target: Target) -> Dispatch:
    k = Kernel(target)
    x, pairs = memory(k, 0, s.dtype), k.operand(1, "u")
    number, inside, groups = each(k, s.rows * s.padded, target)
    with k.if_(inside):
        row, at = coordinates(number, (s.rows, s.padded))
        real = at < s.n
        key = sort_key(load(x, s.element(row, k.select(real, at, k.const(0, "u")))), s.dtype)
        pairs.store(number * 2, k.select(real, key, k.const(0xFFFFFFFF, "u")))
        pairs.store(number * 2 + 1, at)
    return Dispatch(k.code(), groups, (s.x, (~0, 0)))


def _ordered(k: Kernel, a: tuple[Value, Value], b: tuple[Value, Value], up: Value) -> tuple[list[Value], list[Value]]:
    """Two pairs of key and place in ascending order if ``up``, else descending."""
    later = (a[0] > b[0]) | (a[0].eq(b[0]) & (a[1] > b[1]))
    swap = later.k.select(up, later, ~later)
    low = [k.select(swap, y, x) for x, y in zip(a, b, strict=True)]
    high = [k.select(swap, x, y) for x, y in zip(a, b, strict=True)]
    return low, high


def _apart(s: _Sort, span: int, distance: int, target: Target) -> Dispatch:
    """One step of the network between elements that are far apart."""
    k = Kernel(target)
    pairs = k.operand(0, "u")
    number, inside, groups = each(k, s.rows * s.padded // 2, target)
    with k.if_(inside):
        left = (number // distance) * (2 * distance) + number % distance
        right = left + distance
        up = ((left % s.padded) & span).eq(0)
        a, b = [(pairs.load(i * 2), pairs.load(i * 2 + 1)) for i in (left, right)]
        for where, values in zip((left, right), _ordered(k, a, b, up), strict=True):
            for j, v in enumerate(values):
                pairs.store(where * 2 + j, v)
    return Dispatch(k.code(), groups, ((~0, 0),))


def _inside(s: _Sort, block: int, first: int, last: int, target: Target) -> Dispatch:
    """The steps of the network for spans from ``first`` to ``last`` between elements of one block."""
    threads = block // 2
    k = Kernel(target, (threads, 1, 1))
    pairs = k.operand(0, "u")
    keys, places = k.shared("u", block), k.shared("u", block)
    blocks = s.rows * s.padded // block
    wide = min(blocks, target.most_groups[0], 1 << 24)
    group = k.group(0) + k.group(1) * wide
    base = k.select(group < blocks, group, k.const(blocks - 1, "u")) * block
    for i in (k.thread(), k.thread() + threads):
        keys.store(i, pairs.load((base + i) * 2))
        places.store(i, pairs.load((base + i) * 2 + 1))
    span = first
    while span <= last:
        distance = min(span, block) // 2
        while distance:
            k.barrier()
            left = (k.thread() // distance) * (2 * distance) + k.thread() % distance
            right = left + distance
            up = (((base + left) % s.padded) & span).eq(0) if span < s.padded else k.const(True, "b")
            a, b = [(keys.load(i), places.load(i)) for i in (left, right)]
            for where, (key, place) in zip((left, right), _ordered(k, a, b, up), strict=True):
                keys.store(where, key)
                places.store(where, place)
            distance //= 2
        span *= 2
    k.barrier()
    for i in (k.thread(), k.thread() + threads):
        pairs.store((base + i) * 2, keys.load(i))
        pairs.store((base + i) * 2 + 1, places.load(i))
    return Dispatch(k.code(), (wide, math.ceil(blocks / wide), 1), ((~0, 0),))


def _deliver(s: _Sort, target: Target) -> Dispatch:
    k = Kernel(target)
    table = [s.x, (~0, 0)]
    x, pairs = memory(k, 0, s.dtype), k.operand(1, "u")
    values = order = None
    if s.values[0] >= 0:
        values = k.operand(len(table), x.t)
        table.append(s.values)
    if s.order[0] >= 0:
        order = k.operand(len(table), "u")
        table.append(s.order)
    number, inside, groups = each(k, s.rows * s.n, target)
    with k.if_(inside):
        row, at = coordinates(number, (s.rows, s.n))
        place = pairs.load((row * s.padded + at) * 2 + 1)
        where = s.element(row, at)
        if values is not None:
            values.store(where, x.k.value(Memory.load(x, s.element(row, place)), "u" if x.t in "hc" else x.t))
        if order is not None:
            order.store(where, place)
    return Dispatch(k.code(), groups, tuple(table))
