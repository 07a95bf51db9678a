"""Programs over rows: groups of equations with sums along the last axis, lowered to ROWS kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.runtime.emit_core import Core
from funcgrad.runtime.kinds import ROWS
from funcgrad.runtime.plan import Buf
from funcgrad.runtime.program import CODES, Const, Program, Reg
from funcgrad.runtime.views import IOTA, View, coalesce

__all__ = ["RowProgram", "Rows"]

Ints = tuple[int, ...]
SPREAD = -1
FOLDS = {"sum": -2, "max": -3, "min": -4}


class RowProgram(Program):
    """A program whose values are wide, one for each element of a row, or one for each row.

    ``wide`` is set for what comes next.
    """

    __slots__ = ("input_widths", "shape", "wide", "widths")

    def __init__(self, shape: Ints) -> None:
        super().__init__()
        self.shape = shape
        self.wide = True
        self.widths: list[bool] = []  # of the values in the code
        self.input_widths: list[bool] = []

    def load(self, view: View) -> Any:
        """Return a view's elements as a register; a scalar is wide, which either width may read."""
        known, before = len(self.views), self.wide
        self.wide = not view.aval.shape or view.aval.shape == self.shape
        reg = super().load(view)
        self.input_widths += [self.wide] * (len(self.views) - known)
        self.wide = before
        return reg

    def _append(self, number: int, dtype: np.dtype[Any], *xs: Any) -> Reg:
        self.widths.append(self.wide)
        return super()._append(number, dtype, *xs)

    def fold(self, op: str, x: Any) -> Reg:
        """The sum, maximum or minimum of each row of a float value."""
        self.wide = False
        reg: Reg = self.round(self._append(FOLDS[op], x.dtype, x))
        return reg

    def spread(self, x: Any) -> Any:
        """One value a row, for each of its elements."""
        self.wide = True
        return x if type(x) is Const else self._append(SPREAD, x.dtype, x)

    def assemble_rows(self, outs: Sequence[Any]) -> tuple[list[int], list[int], list[int]]:
        """Return the width of each register, the register of each output, and the instructions as words."""
        return self.place(outs, [int(w) for w in self.input_widths], self.widths)


class Rows(Core):
    """The part of the emitter for programs over rows."""

    def rows(self, g: RowProgram, outs: Sequence[Any], avals: Sequence[Aval]) -> list[View]:
        """Append the ROWS node of a program whose results go to new buffers."""
        results = [self.new(a) for a in avals]
        widths, regs, instructions = g.assemble_rows(outs)
        slots: dict[Buf, int] = {}
        reads: dict[Buf, int] = {}
        for x in g.views:
            if x.buf is not IOTA:
                slots.setdefault(x.buf, len(slots))
                reads[x.buf] = reads.get(x.buf, 0) + 1
        for r in results:
            slots.setdefault(r.buf, len(slots))
        dims, steps = _layout([*g.views, *results], g.shape)
        words = [len(dims), *dims, len(g.views), len(results), max(1, len(widths)), len(instructions) // 6]
        words += widths or [1]
        for x, row in zip(g.views, steps, strict=False):
            words += (slots.get(x.buf, -1), CODES[x.aval.dtype if x.buf is not IOTA else dtypes.int32], x.offset, *row)
        for k, r in enumerate(results):
            words += (regs[k], slots[r.buf], CODES[r.aval.dtype], r.offset, *steps[len(g.views) + k])
        words += instructions
        reuse = []
        for x in g.views:
            if x.whole and reads.get(x.buf) == 1:
                for r in results:
                    if r.aval.dtype.itemsize == x.aval.dtype.itemsize and r.aval.size == x.aval.size:
                        reuse.append((slots[x.buf], slots[r.buf]))
        self.node(ROWS, words, list(slots), [slots[r.buf] for r in results], reuse)
        return results


def _layout(views: Sequence[View], shape: Ints) -> tuple[list[int], list[list[int]]]:
    """The dimensions of the rows, merged where all operands allow, and the length of a row; each operand's strides."""
    n = len(shape) - 1
    outer, inner = [], []
    for v in views:
        wide = v.aval.shape == shape
        outer.append(v.strides[:n] if v.aval.shape else (0,) * n)
        inner.append(v.strides[n] if wide and v.aval.shape else 0)
    dims, merged = coalesce(shape[:n], outer)
    return [*dims, shape[n]], [[*m, s] for m, s in zip(merged, inner, strict=True)]
