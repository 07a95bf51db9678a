"""Running reductions and sorting as Vulkan kernels, along the middle of [A, N, B]."""

from __future__ import annotations

import math
from collections.abc import Sequence

from funcgrad.runtime.spirv.elements import BOOL, I32, U32, letter, load, memory, store
from funcgrad.runtime.spirv.index import Lists, each, split
from funcgrad.runtime.spirv.kernel import Dispatch, Kernel, Memory, Target, Value, Variable
from funcgrad.runtime.spirv.math import exp, log
from funcgrad.runtime.spirv.pairs import two_product

__all__ = ["lower_cumulative", "lower_sort"]

SUM, MAX, MIN, PROD, LOGSUMEXP = 0, 1, 2, 3, 8
ROWS = 2048  # rows from which on one invocation a row is enough
LONG = 256  # elements of a row that one invocation goes through
BLOCK = 1024  # elements that a group sorts in shared memory


class _Running:
    """A running reduction: its state is two numbers, of which the second is what the first has lost, or a sum."""

    def __init__(self, k: Kernel, op: int, dtype: int):
        self.k, self.op, self.dtype, self.t = k, op, dtype, letter(dtype)

    def empty(self) -> tuple[Value, Value]:
        """The state of nothing."""
        k, t, low, high = self.k, self.t, -math.inf, math.inf
        if t != "f":
            low, high = (
                (-(1 << 31), (1 << 31) - 1) if self.dtype == I32 else (0, 1 if self.dtype == BOOL else 0xFFFFFFFF)
            )
        first = {SUM: 0, PROD: 1, MAX: low, MIN: high, LOGSUMEXP: low}[self.op]
        return k.const(first, t), k.const(0, t)

    def push(self, s: Value, low: Value, x: Value) -> tuple[Value, Value]:
        """The state with one more element."""
        if self.op == LOGSUMEXP:
            return self._join_exponentials(s, low, x, self.k.const(1, "f"))
        return self.merge(s, low, x, self.k.const(0, self.t))

    def merge(self, s: Value, low: Value, x: Value, rest: Value) -> tuple[Value, Value]:
        """Two states as one, the second behind the first."""
        k = self.k
        if self.op == LOGSUMEXP:
            return self._join_exponentials(s, low, x, rest)
        if self.op in (MAX, MIN):
            better = x > s if self.op == MAX else x < s
            return k.select(better | x.ne(x) if self.t == "f" else better, x, s), low
        if self.t != "f":
            total = s + x if self.op == SUM else s * x
            return (k.select(total.ne(0), k.const(1, "u"), total) if self.dtype == BOOL else total), low
        if self.op == SUM:
            total = s + x
            part = total - s
            return total, low + ((s - (total - part)) + (x - part)) + rest
        total, lost = two_product(s, x)
        return total, lost + (low * x + rest * s)

    def _join_exponentials(self, m: Value, s: Value, x: Value, count: Value) -> tuple[Value, Value]:
        """log(sum(exp)) is m + log(s); equal infinities count as one each."""
        k = self.k
        top = k.select(x > m, x, m)
        one, zero = k.const(1, "f"), k.const(0, "f")
        left = k.select(m.eq(top), one, k.select(m.eq(-math.inf), zero, exp(m - top)))
        right = k.select(x.eq(top), one, k.select(x.eq(-math.inf), zero, exp(x - top)))
        odd = x.ne(x) | m.ne(m)
        return k.select(odd, k.const(math.nan, "f"), top), s * left + count * right

    def result(self, s: Value, low: Value) -> Value:
        """The value of a state."""
        if self.op == LOGSUMEXP:
            out = s + log(low)
            return self.k.select(s.eq(-math.inf), s, out)
        if self.t != "f" or self.op in (MAX, MIN):
            return s
        both = s + low
        return self.k.select(both.ne(both) | low.eq(0), s, both)


class _Shape:
    """What the kernels of one CUMULATIVE node have in common."""

    def __init__(self, words: Sequence[int]):
        self.op, self.dtype, self.a, self.n, self.b, self.reverse, *pointers = words
        self.x, self.out = (pointers[0], pointers[1]), (pointers[2], pointers[3])
        rows = self.a * self.b
        self.chunks = 1 if rows >= ROWS or self.n <= LONG else math.ceil(self.n / max(64, math.isqrt(self.n)))
        self.length = math.ceil(self.n / self.chunks)

    def element(self, row: Value, at: Value) -> Value:
        """The number of an element in the order of the scan."""
        a, b = split(row, (self.a, self.b))
        place = at if not self.reverse else at.k.const(self.n - 1, "u") - at
        return (a * self.n + place) * self.b + b


def lower_cumulative(words: Sequence[int], target: Target) -> Lists:
    """The launches of a CUMULATIVE node: one invocation a row, or for few long rows one a chunk, in three launches."""
    s = _Shape(words)
    if s.chunks == 1:
        return [_scan(s, False, target)], []
    return [_totals(s, target), _starts(s, target), _scan(s, True, target)], [8 * s.a * s.b * s.chunks]


def _advance(r: _Running, state: list[Variable], x: Value) -> None:
    for v, new in zip(state, r.push(state[0].get(), state[1].get(), x), strict=True):
        v.set(new)


def _bounds(s: _Shape, chunk: Value) -> tuple[Value, Value]:
    start = chunk * s.length
    stop = start + s.length
    return start, start.k.select(stop < s.n, stop, s.n)


def _totals(s: _Shape, target: Target) -> Dispatch:
    k = Kernel(target, (64, 1, 1))
    r, x, totals = _Running(k, s.op, s.dtype), memory(k, 0, s.dtype), k.operand(1, letter(s.dtype))
    number, inside, groups = each(k, s.a * s.b * s.chunks, target)
    with k.if_(inside):
        row, chunk = split(number, (s.a * s.b, s.chunks))
        state = [k.variable(v) for v in r.empty()]
        start, stop = _bounds(s, chunk)
        with k.loop(stop, start) as i:
            _advance(r, state, load(x, s.element(row, i)))
        for j, v in enumerate(state):
            totals.store(number * 2 + j, v.get())
    return Dispatch(k.code(), groups, (s.x, (~0, 0)))


def _starts(s: _Shape, target: Target) -> Dispatch:
    """Replace each chunk's total by that of all before it."""
    k = Kernel(target, (64, 1, 1))
    r, totals = _Running(k, s.op, s.dtype), k.operand(0, letter(s.dtype))
    row, inside, groups = each(k, s.a * s.b, target)
    with k.if_(inside):
        state = [k.variable(v) for v in r.empty()]
        with k.loop(s.chunks) as i:
            at = (row * s.chunks + i) * 2
            here = totals.load(at), totals.load(at + 1)
            for j, v in enumerate(state):
                totals.store(at + j, v.get())
            for v, new in zip(state, r.merge(state[0].get(), state[1].get(), *here), strict=True):
                v.set(new)
    return Dispatch(k.code(), groups, ((~0, 0),))


def _scan(s: _Shape, chunked: bool, target: Target) -> Dispatch:
    k = Kernel(target, (64, 1, 1))
    r, x, out = _Running(k, s.op, s.dtype), memory(k, 0, s.dtype), memory(k, 1, s.dtype)
    totals: Memory | None = k.operand(2, letter(s.dtype)) if chunked else None
    number, inside, groups = each(k, s.a * s.b * s.chunks, target)
    with k.if_(inside):
        row, chunk = split(number, (s.a * s.b, s.chunks))
        first = r.empty() if totals is None else (totals.load(number * 2), totals.load(number * 2 + 1))
        state = [k.variable(v) for v in first]
        start, stop = _bounds(s, chunk)
        with k.loop(stop, start) as i:
            where = s.element(row, i)
            _advance(r, state, load(x, where))
            store(out, where, r.result(state[0].get(), state[1].get()))
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
        a, b = split(row, (self.a, self.b))
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
        row, at = split(number, (s.rows, s.padded))
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
        row, at = split(number, (s.rows, s.n))
        place = pairs.load((row * s.padded + at) * 2 + 1)
        where = s.element(row, at)
        if values is not None:
            values.store(where, x.k.value(Memory.load(x, s.element(row, place)), "u" if x.t in "hc" else x.t))
        if order is not None:
            order.store(where, place)
    return Dispatch(k.code(), groups, tuple(table))
