"""What is done to a product's results before they are written: a MAP program, for each of them where it is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from funcgrad.runtime.spirv.instructions import INSTRUCTIONS, MEMORY, load, store
from funcgrad.runtime.spirv.kernel import Kernel, Memory, Value
from funcgrad.runtime.spirv.pointwise import Registers, iota, run_code
from funcgrad.runtime.spirv.product import Product
from funcgrad.runtime.spirv.words import Operand, Place, Program, Table, coordinates

__all__ = ["Epilogue"]

MOST_COST = 3000  # additions that the program may take for all results of an invocation


class Epilogue:
    """A program whose input ``which`` is the result of a product, in the order in which that would be in memory."""

    def __init__(self, p: Program, which: int, product: Product) -> None:
        self.p, self.which = p, which
        self.columns = product.n
        m, n = product.m, product.n
        rows = [math.prod(product.batch[d + 1 :]) * m * n for d in range(len(product.batch))]
        self.by_rows = product.c.strides == (*rows, n, 1)
        self.cost = sum([INSTRUCTIONS[x[0]].cost for x in p.code]) + len(p.inputs) + len(p.outputs)

    def fits(self, results: int) -> bool:
        """Whether an invocation can do this for so many results."""
        return self.cost * results <= MOST_COST

    def open(self, k: Kernel, first: int) -> list[tuple[int, int]]:
        """Get addresses, before any branch; return them as the table's rows from ``first`` on."""
        self.k, self.zero, table = k, k.const(0, "u"), Table()

        def at(x: Operand) -> tuple[Place, Memory]:
            place = table.place(x, self.p.dims, x.strides)
            return place, k.operand(first + place.number, MEMORY[x.dtype])

        self.ins = [at(x) if x.slot >= 0 and n != self.which else None for n, x in enumerate(self.p.inputs)]
        self.outs = [at(x) for _, x in self.p.outputs]
        return table.rows

    def coordinates(self, where: Value, row: Value, column: Value) -> list[Value]:
        """A result's coordinates in the program, from its number, and its row (of all matrices) and column."""
        dims = self.p.dims
        if len(dims) == 2 and dims[1] == self.columns and self.by_rows:
            return [row, column]
        return coordinates(where, dims)

    def write(self, results: Sequence[Value], at: Sequence[list[Value]]) -> None:
        """Run the program for some results at their coordinates; all loads come before the first store."""
        several = [self._loaded(x, c) for x, c in zip(results, at, strict=True)]
        for regs in several:
            run_code(regs, self.p.code)
        for regs, c in zip(several, at, strict=True):
            for (reg, x), (place, memory) in zip(self.p.outputs, self.outs, strict=True):
                t = {"f": "f", "h": "f", "i": "i"}.get(MEMORY[x.dtype], "u")
                store(memory, place.element(c, self.zero), regs.get(reg, t), x.dtype)

    def _loaded(self, result: Value, at: list[Value]) -> Registers:
        regs = Registers(self.k, len(self.p.widths))
        for n, (x, where) in enumerate(zip(self.p.inputs, self.ins, strict=True)):
            if n == self.which:
                regs.set(n, result)
            elif where is None:
                regs.set(n, iota(x, at, self.zero))
            else:
                regs.set(n, load(where[1], where[0].element(at, self.zero), x.dtype))
        return regs
