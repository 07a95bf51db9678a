"""Indexing as Vulkan kernels: TAKE, SCATTER, and slices whose place is in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from funcgrad.runtime.spirv.elements import BF16, BOOL, F16, F32, SIZES, U32, load, memory, rounded, widened
from funcgrad.runtime.spirv.kernel import Dispatch, Kernel, Memory, Target, Value, spread_groups
from funcgrad.runtime.spirv.math import maximum, minimum
from funcgrad.runtime.spirv.product import View, lowest, offset, smaller, sum_of
from funcgrad.runtime.spirv.words import coordinates, group_number

__all__ = ["lower_dynamic_slice", "lower_dynamic_update", "lower_scatter", "lower_take"]

GROUP = 256
LINKED = 8  # indices whose links one group finds
PART = range(32, 257)  # indices of one part of a sum
BUSY = 512  # groups that keep a device busy
AT_ONCE = 8  # updates that are on their way to an invocation
MOST_PARTS = 1 << 22  # elements of all parts' results together
# Steps that the loops of one invocation may take together: Mesa's software driver stops silently after 65,535.
LONGEST = 1 << 15
LETTERS = {1: "c", 2: "h", 4: "u"}
Lists = tuple[list[Dispatch], list[int]]
Places = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]  # of the operand, the indices and the updates


def each(k: Kernel, count: int, target: Target) -> tuple[Value, Value, tuple[int, int, int]]:
    """The number of this invocation among ``count``, whether it is one of them, and the groups."""
    size = k.local[0]
    groups = spread_groups(-(-count // size), target)
    number = group_number(k, groups) * size + k.thread()
    return number, number < count, groups


def lower_take(words: Sequence[int], target: Target) -> Lists:
    """The launch of a TAKE node."""
    size, a, n, b, count, batched, mode, bits, *pointers = words
    places = [(pointers[i], pointers[i + 1]) for i in (0, 2, 4)]
    k = Kernel(target, (GROUP, 1, 1))
    x, index, out = k.operand(0, LETTERS[size]), k.operand(1, "i"), k.operand(2, LETTERS[size])
    number, inside, groups = each(k, a * count * b, target)
    with k.if_(inside):
        ia, ii, ib = coordinates(number, (a, count, b))
        at = index.load(ia * count + ii if batched else ii)
        row = clamp(at, n)
        value = x.load((ia * n + row) * b + ib)
        if mode == 1:
            value = k.select(at.bits() < n, value, k.const(bits & ((1 << 8 * size) - 1), "u"))
        out.store(number, value)
    return [Dispatch(k.code(), groups, tuple(places))], []


def clamp(i: Value, n: int) -> Value:
    """An int32 moved into [0, n), as uint32."""
    k = i.k
    low = k.select(i < 0, k.const(0, "i"), i)
    return k.select(low < n - 1, low, k.const(n - 1, "i")).bits()


# -- dynamic slices ----------------------------------------------------------------------------------------------
class _Starts:
    """Reads the starts of a slice: constants, or operands behind the first ones."""

    def __init__(self, k: Kernel, words: Sequence[int], first: int):
        self.k, self.words = k, words
        self.table = [(s, o) for s, o in zip(words[::2], words[1::2], strict=True) if s >= 0]
        memories = iter([k.operand(first + i, "i") for i in range(len(self.table))])
        self.memories: list[Memory | None] = [next(memories) if s >= 0 else None for s in words[::2]]

    def load(self, sizes: Sequence[int], dims: Sequence[int]) -> list[Value]:
        """The starts, moved so that the slice fits."""
        out = []
        for m, constant, size, n in zip(self.memories, self.words[1::2], sizes, dims, strict=True):
            start = self.k.const(constant, "i") if m is None else m.load(0)
            out.append(clamp(start, n - size + 1))
        return out


class _Slice:
    """The beginning of the words of both kinds: sizes, an operand (x, or what is updated) and the starts in it."""

    def __init__(self, words: Sequence[int], target: Target):
        self.size, nd = words[:2]
        self.sizes, self.dims = words[2 : 2 + nd], words[2 + nd : 2 + 2 * nd]
        at = 2 + 2 * nd
        self.view, self.first = self.operand(words[at : at + 2 + nd], self.dims)
        at += 2 + nd
        self.k = Kernel(target, (GROUP, 1, 1))
        self.memories = [self.k.operand(i, LETTERS[self.size]) for i in (0, 1)]
        self.starts = _Starts(self.k, words[at : at + 2 * nd], 2)
        self.rest = words[at + 2 * nd :]

    def operand(self, words: Sequence[int], dims: Sequence[int]) -> tuple[View, int]:
        """A view and the index of its first element: slot, offset, strides in bytes."""
        dtype = {4: U32, 2: F16, 1: BOOL}[self.size]
        return lowest(View(words[0], dtype, words[1], tuple([s // self.size for s in words[2:]])), dims)

    def place(self, index: Sequence[Value]) -> Value:
        """Where in the operand an element of the slice is."""
        moved = [i + s for i, s in zip(index, self.starts.load(self.sizes, self.dims), strict=True)]
        return place(self.k, self.view, self.first, moved)

    def launch(self, to: tuple[int, int], groups: tuple[int, int, int]) -> Lists:
        """The finished kernel."""
        return [Dispatch(self.k.code(), groups, ((self.view.slot, self.view.offset), to, *self.starts.table))], []


def place(k: Kernel, v: View, first: int, index: Sequence[Value]) -> Value:
    """An element's number in a view."""
    return sum_of(k, [offset(i, s) for i, s in zip(index, v.strides, strict=True)], first)


def lower_dynamic_slice(words: Sequence[int], target: Target) -> Lists:
    """The launch of a DYNAMIC_SLICE node."""
    s = _Slice(words, target)
    x, out = s.memories
    number, inside, groups = each(s.k, math.prod(s.sizes), target)
    with s.k.if_(inside):
        out.store(number, x.load(s.place(coordinates(number, s.sizes))))
    return s.launch((s.rest[0], s.rest[1]), groups)


def lower_dynamic_update(words: Sequence[int], target: Target) -> Lists:
    """The launch of a DYNAMIC_UPDATE node."""
    s = _Slice(words, target)
    out, update = s.memories
    source, first = s.operand(s.rest, s.sizes)
    number, inside, groups = each(s.k, math.prod(s.sizes), target)
    with s.k.if_(inside):
        index = coordinates(number, s.sizes)
        out.store(s.place(index), update.load(place(s.k, source, first, index)))
    return s.launch((source.slot, source.offset), groups)


# -- scatter -----------------------------------------------------------------------------------------------------
def combine(op: int, dtype: int, old: Value, new: Value) -> Value:
    """What an element becomes: set, add, mul, min, max in the order of fg_scatter_op."""
    if op == 0:
        return new
    if dtype == BOOL:
        return old | new if op in (1, 4) else old & new
    if op in (1, 2):
        return old + new if op == 1 else old * new
    if old.t == "f":
        return minimum(old, new) if op == 3 else maximum(old, new)
    return old.k.select(new < old if op == 3 else new > old, new, old)


def lower_scatter(words: Sequence[int], target: Target) -> Lists:
    """The launches of a SCATTER node: updates of one row are applied in order, by one invocation.

    More than LONGEST updates are applied some at a time, in order.
    """
    op, dtype, a, n, b, count, batched, *pointers = words
    assert a == 1 and not batched
    out, index, updates = [(pointers[i], pointers[i + 1]) for i in (0, 2, 4)]
    step = max(1, count if count <= LONGEST * _parts(op, dtype, n, b, count, target) else LONGEST)
    dispatches, scratch = [], 0
    for start in range(0, count, step):
        some = index[0], index[1] + start * 4
        new = updates[0], updates[1] + start * b * SIZES[dtype]
        made, nbytes = _scatter(op, dtype, n, b, min(step, count - start), (out, some, new), target)
        dispatches += made
        scratch = max(scratch, nbytes)
    return dispatches, [scratch] if scratch else []


def _columns(n: int, b: int, target: Target) -> int:
    """The columns of which one group can have the sums of all rows in shared memory; 0 where there are too many."""
    return next((c for c in (64, 32) if b >= c and 4 * n * c <= target.shared_bytes // 2), 0)


def _is_small(n: int, b: int, count: int) -> bool:
    """Whether going through all indices for every element is less work than comparing all indices."""
    return n * b * count <= count * count + 4 * count * b


def _parts(op: int, dtype: int, n: int, b: int, count: int, target: Target) -> int:
    """The parts in which sums are made."""
    if op != 1 or dtype != F32 or not (_is_small(n, b, count) or _columns(n, b, target)):
        return 1
    return max(1, min(-(-count // PART[-1]), MOST_PARTS // max(n * b, 1) + 1, LONGEST))


def _scatter(
    op: int, dtype: int, n: int, b: int, count: int, places: Places, target: Target
) -> tuple[list[Dispatch], int]:
    """The launches, and the bytes of scratch that they need.

    A first launch links each index with the next one that is equal, and marks the first of each; or, where the
    operand is small, every element of it looks through all indices.  Sums of float32 into a small operand are made in
    parts, each in order, which are then added in order.
    """
    parts, columns = _parts(op, dtype, n, b, count, target), _columns(n, b, target)
    if parts > 1:
        if columns and not target.software:
            parts = max(parts, min(-(-count // PART[0]), BUSY // -(-b // columns), MOST_PARTS // (n * b) + 1))
            first = _binned(n, b, count, places, target, parts, columns)
        else:
            first = _search(op, dtype, n, b, count, places, target, parts)
        return [first, _add(n * b, parts, places[0], target)], 4 * n * b * parts
    if n <= 64 or _is_small(n, b, count):
        return [_search(op, dtype, n, b, count, places, target)], 0
    link = _link(n, count, places[1], target)
    return [link, _follow(op, dtype, n, b, count, places, target)], 8 * count


def _search(
    op: int, dtype: int, n: int, b: int, count: int, places: Places, target: Target, parts: int = 1
) -> Dispatch:
    """Every element looks through all indices, or through one part of them, from 0, with a result in scratch."""
    k = Kernel(target, (GROUP, 1, 1))
    out, index, updates = memory(k, 0, dtype), k.operand(1, "i"), memory(k, 2, dtype)
    number, inside, groups = each(k, n * b * parts, target)
    with k.if_(inside):
        part, row, column = coordinates(number, (parts, n, b))
        length = -(-count // parts)
        start, stop = part * length, smaller(part * length + length, count)
        value = k.variable(load(out, number) if parts == 1 else k.const(0, "f"))
        with k.loop(stop, start) as i, k.if_(index.load(i).bits().eq(row)):
            value.set(kept(dtype, combine(op, dtype, value.get(), load(updates, i * b + column))))
        out.store(number, rounded(dtype, value.get()))
    return Dispatch(k.code(), groups, places if parts == 1 else ((~0, 0), *places[1:]))


def _binned(n: int, b: int, count: int, places: Places, target: Target, parts: int, columns: int) -> Dispatch:
    """Sums of one part of the updates for some columns, in shared memory; an invocation has a column."""
    k = Kernel(target, (columns, 1, 1))
    sums, index, updates = k.operand(0, "f"), k.operand(1, "i"), k.operand(2, "f")
    bins = k.shared("f", n * columns)
    blocks = -(-b // columns)
    groups = spread_groups(blocks * parts, target)
    group = smaller(group_number(k, groups), blocks * parts - 1)
    part, block = group // blocks, group % blocks
    me, column = k.thread(), block * columns + k.thread()
    here = smaller(column, b - 1)
    with k.loop(n) as row:
        bins.store(row * columns + me, 0.0)
    length = -(-count // parts)
    start = part * length
    stop = smaller(start + length, count)
    with k.loop(stop, start, AT_ONCE) as first:
        several = [first + j for j in range(AT_ONCE)]
        inside = [smaller(i, count - 1) for i in several]
        rows = [index.load(i).bits() for i in inside]
        values = [updates.load(i * b + here) for i in inside]
        for i, row, value in zip(several, rows, values, strict=True):
            with k.if_((row < n) & (i < stop)):
                at = row * columns + me
                bins.store(at, bins.load(at) + value)
    with k.if_(column < b), k.loop(n) as row:
        sums.store((part * n + row) * b + column, bins.load(row * columns + me))
    return Dispatch(k.code(), groups, ((~0, 0), *places[1:]))


def _add(count: int, parts: int, out: tuple[int, int], target: Target) -> Dispatch:
    """Add the parts to the operand, in order."""
    k = Kernel(target, (GROUP, 1, 1))
    total, sums = k.operand(0, "f"), k.operand(1, "f")
    number, inside, groups = each(k, count, target)
    with k.if_(inside):
        value = k.variable(total.load(number))
        whole = parts - parts % AT_ONCE
        with k.loop(whole, 0, AT_ONCE) as first:
            for x in [sums.load((first + j) * count + number) for j in range(AT_ONCE)]:
                value.set(value.get() + x)
        for i in range(whole, parts):
            value.set(value.get() + sums.load(number + i * count))
        total.store(number, value.get())
    return Dispatch(k.code(), groups, (out, (~0, 0)))


def kept(dtype: int, x: Value) -> Value:
    """x as memory of its dtype keeps it."""
    return widened(dtype, rounded(dtype, x)) if dtype in (F16, BF16) else x


def _link(n: int, count: int, index: tuple[int, int], target: Target) -> Dispatch:
    """For each index: 1 + the place of the next equal one or 0, and whether it is the first and in range.

    A group does LINKED of them; each is compared with all others by GROUP / LINKED invocations.
    """
    k = Kernel(target, (GROUP, 1, 1))
    at, links = k.operand(0, "i"), k.operand(1, "u")
    nearest, earlier = k.shared("u", GROUP), k.shared("u", GROUP)
    total = -(-count // LINKED)
    groups = spread_groups(total, target)
    team, me = k.thread() // LINKED, k.thread() % LINKED
    number = smaller(group_number(k, groups), total - 1) * LINKED + me
    mine = at.load(smaller(number, count - 1))
    next_, before = k.variable(count, "u"), k.variable(0, "u")
    with k.loop(count, team, GROUP // LINKED) as j:
        same = at.load(j).eq(mine)
        before.set(k.select(same & (j < number), k.const(1, "u"), before.get()))
        next_.set(k.select(same & (j > number) & (j < next_.get()), j, next_.get()))
    nearest.store(k.thread(), next_.get())
    earlier.store(k.thread(), before.get())
    k.barrier()
    with k.if_(team.eq(0) & (number < count)):
        low, some = nearest.load(me), earlier.load(me)
        for i in range(1, GROUP // LINKED):
            other = nearest.load(me + i * LINKED)
            low = k.select(other < low, other, low)
            some = some | earlier.load(me + i * LINKED)
        links.store(number * 2, k.select(low < count, low + 1, k.const(0, "u")))
        first = some.eq(0) & (mine.bits() < n)
        links.store(number * 2 + 1, k.select(first, k.const(1, "u"), k.const(0, "u")))
    return Dispatch(k.code(), groups, (index, (~0, 0)))


def _follow(op: int, dtype: int, n: int, b: int, count: int, places: Places, target: Target) -> Dispatch:
    k = Kernel(target, (GROUP, 1, 1))
    out, index, updates, links = memory(k, 0, dtype), k.operand(1, "i"), memory(k, 2, dtype), k.operand(3, "u")
    number, inside, groups = each(k, count * b, target)
    with k.if_(inside):
        i, column = coordinates(number, (count, b))
        with k.if_(links.load(i * 2 + 1).eq(1)):
            where = index.load(i).bits() * b + column
            value, now = k.variable(load(out, where)), k.variable(i + 1)
            with k.while_(lambda: now.get().ne(0)):
                here = now.get() - 1
                value.set(kept(dtype, combine(op, dtype, value.get(), load(updates, here * b + column))))
                now.set(links.load(here * 2))
            out.store(where, rounded(dtype, value.get()))
    return Dispatch(k.code(), groups, (*places, (~0, 0)))
