"""Emitter verbs for indexing, dynamic slices, running reductions and sorting: kernels over contiguous data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.runtime.emit_core import Core
from funcgrad.runtime.kinds import (
    CUMULATIVE,
    DYNAMIC_SLICE,
    DYNAMIC_UPDATE,
    REDUCTIONS,
    SCATTER,
    SCATTERS,
    SORT,
    TAKE,
)
from funcgrad.runtime.plan import Buf
from funcgrad.runtime.program import CODES, Const
from funcgrad.runtime.views import IOTA, View

__all__ = ["Indexing"]

Ints = tuple[int, ...]
RUNNING = {name: REDUCTIONS[name] for name in ("sum", "max", "min", "prod", "logsumexp")}


class Slots:
    """Numbers the buffers of one node in the order in which they are met."""

    def __init__(self, *views: View):
        self.bufs: dict[Buf, int] = {}
        for v in views:
            self[v]

    def __getitem__(self, v: View) -> int:
        return self.bufs.setdefault(v.buf, len(self.bufs))

    def pointer(self, v: View) -> tuple[int, int]:
        """Slot and offset."""
        return self[v], v.offset


def _around(shape: Ints, axis: int) -> tuple[int, int, int]:
    """The number of elements before an axis, along it, and behind it."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


class Indexing(Core):
    """The part of the emitter that reads and writes at indices."""

    def take(self, x: View, index: View, axis: int, mode: str, fill: Any) -> View:
        """Elements of x along an axis at int32 indices, whose axes replace that axis."""
        shape = x.aval.shape
        aval = Aval((*shape[:axis], *index.aval.shape, *shape[axis + 1 :]), x.aval.dtype)
        return self._take(x, index, aval, _around(shape, axis), False, mode, fill)

    def take_along(self, x: View, index: View, axis: int, mode: str, fill: Any) -> View:
        """Elements of x along an axis, each at its own place on the other axes."""
        n, last = x.aval.ndim, x.aval.ndim - 1
        perm = (*[d for d in range(n) if d != axis], axis)
        moved, at = x.transpose(perm), index.transpose(perm)
        aval = Aval(at.aval.shape, x.aval.dtype)
        out = self._take(moved, at, aval, _around(moved.aval.shape, last), True, mode, fill)
        return out.transpose((*range(axis), last, *range(axis, last)))

    def _take(
        self,
        x: View,
        index: View,
        aval: Aval,
        around: tuple[int, int, int],
        batched: bool,
        mode: str,
        fill: Any,
    ) -> View:
        a, n, b = around
        if not n:
            return self.full(fill, aval)
        x, index, out = self.dense(x), self.dense(index), self.new(aval)
        slots = Slots(x, index, out)
        bits = int.from_bytes(Const(fill, aval.dtype).value.tobytes(), "little") if mode == "fill" else 0
        count = index.aval.size // a if batched else index.aval.size
        words = [aval.dtype.itemsize, a, n, b, count, int(batched), int(mode == "fill"), bits]
        words += (*slots.pointer(x), *slots.pointer(index), *slots.pointer(out))
        self.node(TAKE, words, list(slots.bufs), (slots[out],))
        return out

    def scatter(self, op: str, x: View, index: View, updates: View) -> View:
        """x with rows of ``updates`` combined into its rows at ``index``, in order; out of range is dropped."""
        if not updates.aval.size:
            return x
        index, updates = self.dense(index), self.dense(updates)
        out = self.new(x.aval)
        self.copy(x, out)
        slots = Slots(index, updates, out)
        _, n, b = _around(x.aval.shape, 0)
        words = [SCATTERS[op], CODES[x.aval.dtype], 1, n, b, index.aval.size, 0]
        words += (*slots.pointer(out), *slots.pointer(index), *slots.pointer(updates))
        self.node(SCATTER, words, list(slots.bufs), (slots[out],))
        return out

    def dynamic_slice(self, x: View, starts: Sequence[View], sizes: Ints) -> View:
        """``sizes`` elements of x from starts in memory, moved so that the slice fits."""
        if sizes == x.aval.shape:
            return x
        x = self.dense(x) if x.buf is IOTA else x
        out = self.new(Aval(sizes, x.aval.dtype))
        slots = Slots(x)
        words = [x.aval.dtype.itemsize, len(sizes), *sizes, *x.aval.shape, slots[x], x.offset, *x.strides]
        words += self._starts(slots, starts)
        words += slots.pointer(out)
        self.node(DYNAMIC_SLICE, words, list(slots.bufs), (slots[out],))
        return out

    def dynamic_update_slice(self, x: View, update: View, starts: Sequence[View]) -> View:
        """x with ``update`` written from the starts; in x's own memory when nothing reads x afterwards."""
        if update.aval.shape == x.aval.shape:
            return update
        if not update.aval.size:
            return x
        update = self.dense(update) if update.buf is IOTA else update
        out = self.new(x.aval)
        sizes = update.aval.shape
        slots = Slots(update)
        places = self._starts(slots, starts)
        self.copy(x, out)
        words = [x.aval.dtype.itemsize, len(sizes), *sizes, *x.aval.shape, slots[out], 0, *out.strides]
        words += (*places, slots[update], update.offset, *update.strides)
        self.node(DYNAMIC_UPDATE, words, list(slots.bufs), (slots[out],))
        return out

    def _starts(self, slots: Slots, starts: Sequence[View]) -> list[int]:
        words: list[int] = []
        for s in starts:
            if type(s.value) is Const:
                words += (-1, s.value.bits)
            else:
                words += slots.pointer(self.dense(s))
        return words

    def cumulative(self, op: str, x: View, axis: int, reverse: bool) -> View:
        """The running sum, max, min, prod or logsumexp along an axis."""
        x = self.dense(x)
        out = self.new(x.aval)
        words = [RUNNING[op], CODES[x.aval.dtype], *_around(x.aval.shape, axis), int(reverse), 0, x.offset, 1, 0]
        self.node(CUMULATIVE, words, (x.buf, out.buf), (1,))
        return out

    def sort(self, x: View, axis: int) -> tuple[View, View]:
        """x sorted along an axis (ascending, stable, NaN last), and where each element was."""
        x = self.dense(x)
        values, order = self.new(x.aval), self.new(Aval(x.aval.shape, dtypes.int32))
        words = [CODES[x.aval.dtype], *_around(x.aval.shape, axis), 0, x.offset, 1, 0, 2, 0]
        node = self.node(SORT, words, (x.buf, values.buf, order.buf), (1, 2))
        node.optional = {1: 6, 2: 8}
        return values, order
