"""Emitter verbs for contractions: matrix products, convolutions and sums over windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.runtime.emit_core import Core
from funcgrad.runtime.kinds import DOT
from funcgrad.runtime.program import CODES
from funcgrad.runtime.views import IOTA, View, coalesce

__all__ = ["Contractions"]

Ints = tuple[int, ...]


class Contractions(Core):
    """The part of the emitter for products summed over axes."""

    columns = 1 << 20  # elements of one block of unfolded windows, which stay in the cache between copy and product

    def dot(
        self, x: View, y: View, lc: Ints, rc: Ints, lb: Ints = (), rb: Ints = (), precision: str | None = None
    ) -> View:
        """x times y, summed over ``lc`` and ``rc`` for each index of ``lb`` and ``rb``.

        The CPU has one precision, so a cheaper one that is asked for changes nothing.
        """
        shape = [x.aval.shape[d] for d in lb]
        shape += [n for d, n in enumerate(x.aval.shape) if d not in lc and d not in lb]
        shape += [n for d, n in enumerate(y.aval.shape) if d not in rc and d not in rb]
        aval = Aval(shape, x.aval.dtype)
        if not math.prod([x.aval.shape[d] for d in lc]):
            return self.full(0, aval)
        aimed, out = bool(self.aims), self.aimed_or_new(aval)
        nb, k = len(lb), x.aval.ndim - len(lc)  # where the axes of x and those of y begin
        if aimed and _is_turned(out, nb, k):
            turned = out.transpose((*range(nb), *range(k, len(shape)), *range(nb, k)))
            self.dot_into(y, x, (rc, lc, rb, lb), turned, precision)
        else:
            self.dot_into(x, y, (lc, rc, lb, rb), out, precision)
        return out

    def precision_words(self, precision: str | None) -> list[int]:
        """What the words of a product say of its precision: on the CPU nothing."""
        return []

    def dot_into(
        self, x: View, y: View, axes: tuple[Ints, Ints, Ints, Ints], out: View, precision: str | None = None
    ) -> None:
        """Append the node of a product that ``out`` takes; operands whose summed axes do not merge are copied."""
        lc, rc, lb, rb = axes
        x = self.dense(x) if x.buf is IOTA else x
        y = self.dense(y) if y.buf is IOTA else y
        x, y, k, (xk, yk) = self._merge(x, y, lc, rc)
        nb, xs, ys, to = len(lb), x.strides, y.strides, out.strides
        free = [d for d in range(x.aval.ndim) if d not in lc and d not in lb]
        other = [d for d in range(y.aval.ndim) if d not in rc and d not in rb]
        batch = [(x.aval.shape[d], xs[d], ys[e], to[i]) for i, (d, e) in enumerate(zip(lb, rb, strict=True))]
        m, xm, om, more = _matrix_axis([x.aval.shape[d] for d in free], [xs[d] for d in free], to[nb : nb + len(free)])
        batch += [(n, s, 0, t) for n, s, t in more]
        n, yn, on, more = _matrix_axis([y.aval.shape[d] for d in other], [ys[d] for d in other], to[nb + len(free) :])
        batch += [(c, 0, s, t) for c, s, t in more]
        words = [_arithmetic(x.aval.dtype), len(batch), *[b[0] for b in batch], m, n, k]
        operands = list(dict.fromkeys((x.buf, y.buf, out.buf)))
        for v, which, strides in ((x, 1, (xm, xk)), (y, 2, (yk, yn)), (out, 3, (om, on))):
            words += (operands.index(v.buf), CODES[v.aval.dtype], v.offset, *[b[which] for b in batch], *strides)
        words += self.precision_words(precision)
        self.node(DOT, words, operands, (len(operands) - 1,))

    def _merge(self, x: View, y: View, lc: Ints, rc: Ints) -> tuple[View, View, int, tuple[int, int]]:
        """The operands, the extent of the summed axes as one, and its stride in each."""
        for order in (_by_stride(x, lc), _by_stride(y, rc)):
            merged = _one_axis(x, y, [lc[i] for i in order], [rc[i] for i in order])
            if merged is not None:
                return x, y, *merged
        by_x, by_y = _by_stride(x, lc), _by_stride(y, rc)
        x_merges = _one_axis(x, x, [lc[i] for i in by_x], [lc[i] for i in by_x]) is not None
        y_merges = _one_axis(y, y, [rc[i] for i in by_y], [rc[i] for i in by_y]) is not None
        order = by_y if y_merges and (x.aval.size <= y.aval.size or not x_merges) else by_x
        if order is by_y or not x_merges:
            x = self._summed_last(x, [lc[i] for i in order])
        if order is by_x:
            y = self._summed_last(y, [rc[i] for i in order])
        merged = _one_axis(x, y, [lc[i] for i in order], [rc[i] for i in order])
        assert merged is not None
        return x, y, *merged

    def _summed_last(self, x: View, axes: Sequence[int]) -> View:
        """A copy of x with the given axes innermost, in their order, or outermost where that copies longer runs; axes
        keep their numbers."""
        rest = [d for d in range(x.aval.ndim) if d not in axes]
        perm = [*axes, *rest] if _run(x, rest) >= 4 * _run(x, axes) else [*rest, *axes]
        back = sorted(range(x.aval.ndim), key=perm.__getitem__)
        moved = x.transpose(tuple(perm))
        copied = self.new(moved.aval)
        self.copy(moved, copied)
        return copied.transpose(tuple(back))

    # -- windows -------------------------------------------------------------------------------------------------
    def windows(
        self,
        x: View,
        window: Ints,
        strides: Ints,
        padding: Sequence[Ints],
        base: Ints,
        dilation: Ints,
        fill: Any,
    ) -> View:
        """A view of x, padded, with axes (positions, window elements)."""
        low, high = tuple([p[0] for p in padding]), tuple([p[1] for p in padding])
        if any(low) or any(high) or any(b != 1 for b in base):
            x = self.pad(x, self.full(fill, Aval((), x.aval.dtype)), low, high, tuple([b - 1 for b in base]))
        if x.buf is IOTA:
            x = self.dense(x)
        spans = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
        counts = [max(0, (n - k) // s + 1) for n, k, s in zip(x.aval.shape, spans, strides, strict=True)]
        outer = [s * t for s, t in zip(x.strides, strides, strict=True)]
        inner = [s * t for s, t in zip(x.strides, dilation, strict=True)]
        return x.with_layout((*counts, *window), x.offset, (*outer, *inner))

    def reduce_window(self, op: str, x: View, p: Any) -> View:
        """Sum, max or min over each window that the primitive ``p`` describes."""
        dtype = x.aval.dtype
        fill: Any = 0
        if op != "sum":
            bounds = (-np.inf, np.inf) if dtype in dtypes.FLOATS else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            fill = bounds[op == "min"]
        view = self.windows(x, p.window, p.strides, p.padding, p.base_dilation, p.window_dilation, fill)
        return self.reduce(op, view, tuple(range(x.aval.ndim, 2 * x.aval.ndim)))

    def conv(self, x: View, kernel: View, p: Any) -> View:
        """Cross-correlation as products of unfolded windows with the kernel, block by block."""
        (*window, ci, o), d = kernel.aval.shape, kernel.aval.ndim - 2
        blocks = p.groups * p.batch_groups
        view = self.windows(
            x,
            (1, *window, 1),
            (1, *p.strides, 1),
            ((0, 0), *p.padding, (0, 0)),
            (1, *p.lhs_dilation, 1),
            (1, *p.rhs_dilation, 1),
            0,
        )
        n, spatial = x.aval.shape[0] // p.batch_groups, view.aval.shape[1 : d + 1]
        aval = Aval((n, *spatial, o), x.aval.dtype)
        if not view.aval.size or not kernel.aval.size:
            return self.full(0, aval)
        # [N, *spatial, C, 1, *window, 1] to [block, N, *spatial, *window, C of a block]
        view = view.reshape_exactly((p.batch_groups, n, *spatial, p.groups, ci, *window))
        order = (0, d + 2, *range(1, d + 2), *range(d + 4, 2 * d + 4), d + 3)
        view = view.transpose(order)
        view = view.drop(0) if p.batch_groups == 1 else view.drop(1)
        weights = self.dense(kernel).reshape_exactly((*window, ci, blocks, o // blocks))
        out = self.new(aval)
        to = out.reshape_exactly((n, *spatial, blocks, o // blocks)).transpose((d + 1, *range(d + 1), d + 2))
        self._conv_blocks(view, weights, to, d, p.precision)
        return out

    def _conv_blocks(self, view: View, weights: View, to: View, d: int, precision: str | None) -> None:
        """Products [block, N, *spatial, *window, C] by [*window, C, block, O], as much at a time as the cache holds."""
        summed = tuple(range(d + 2, 2 * d + 3))
        axes = (summed, tuple(range(d + 1)), (0,), (d + 1,))
        merges = _one_axis(view, weights, summed, axes[1]) is not None
        whole = [((0,) * (d + 2), view.aval.shape[: d + 2])]
        for start, limit in whole if merges else _boxes(view.aval.shape, d + 2, self.columns):
            steps = (1,) * view.aval.ndim
            part = view.slice((*start, *(0,) * (d + 1)), (*limit, *view.aval.shape[d + 2 :]), steps)
            place = to.slice((*start, 0), (*limit, to.aval.shape[-1]), (1,) * (d + 3))
            self.dot_into(part, weights, axes, place, precision)


def _is_turned(out: View, m: int, n: int) -> bool:
    """Whether elements lie side by side along one of the axes from m to n, and not along a later one."""
    near = [d for d in range(m, out.aval.ndim) if out.aval.shape[d] > 1 and out.strides[d] == out.aval.dtype.itemsize]
    return bool(near) and near[-1] < n


def _boxes(shape: Ints, rank: int, columns: int) -> Iterator[tuple[Ints, Ints]]:
    """Cut the first ``rank`` axes into boxes of about ``columns`` elements, outer axes first."""
    sizes = list(shape[:rank])
    total = math.prod(shape)
    for d in range(rank):
        parts = min(sizes[d], -(-total // columns))
        sizes[d] = -(-sizes[d] // parts)
        total = -(-total // parts)
    for start in itertools.product(*[range(0, n, s) for n, s in zip(shape, sizes, strict=False)]):
        yield start, tuple([min(a + s, n) for a, s, n in zip(start, sizes, shape, strict=False)])


def _run(x: View, axes: Sequence[int]) -> int:
    """How many elements lie one behind another along the last of the axes that has several."""
    last = next((d for d in reversed(axes) if x.aval.shape[d] > 1), None)
    return x.aval.shape[last] if last is not None and x.strides[last] == x.aval.dtype.itemsize else 1


def _arithmetic(dtype: Any) -> int:
    return CODES[dtypes.float32 if dtype in dtypes.FLOATS else dtype]


def _by_stride(x: View, axes: Ints) -> list[int]:
    """Positions in ``axes``, the largest stride first."""
    return sorted(range(len(axes)), key=lambda i: -abs(x.strides[axes[i]]))


def _one_axis(x: View, y: View, lc: Sequence[int], rc: Sequence[int]) -> tuple[int, tuple[int, int]] | None:
    """The extent and strides of the summed axes as one axis, if both operands allow it."""
    rows = ([x.strides[d] for d in lc], [y.strides[d] for d in rc])
    dims, (xs, ys) = coalesce([x.aval.shape[d] for d in lc], rows)
    if len(dims) > 1:
        return None
    return (dims[0], (xs[0], ys[0])) if dims else (1, (x.aval.dtype.itemsize, y.aval.dtype.itemsize))


def _matrix_axis(
    sizes: Sequence[int], strides: Sequence[int], to: Sequence[int]
) -> tuple[int, int, int, list[tuple[int, int, int]]]:
    """Of an operand's free axes the longest merged one, and the others, which become batch axes."""
    dims, (xs, ts) = coalesce(sizes, (strides, to))
    rest = list(zip(dims, xs, ts, strict=True))
    if not rest:
        return 1, 4, 4, []
    best = max(range(len(rest)), key=lambda i: rest[i][0])
    n, s, t = rest.pop(best)
    return n, s, t, rest
