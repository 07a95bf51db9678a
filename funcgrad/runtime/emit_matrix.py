"""Emitter verb for factors and solutions of small matrices; Vulkan devices leave them to the host."""

from __future__ import annotations

import math
from collections.abc import Sequence

from funcgrad.ir import Aval
from funcgrad.runtime.emit_core import Core
from funcgrad.runtime.emit_index import Slots
from funcgrad.runtime.kinds import MATRIX
from funcgrad.runtime.views import View

__all__ = ["Matrices"]

OPERATIONS = {"cholesky": 0, "triangular_solve": 1, "solve": 2, "slogdet": 3, "det": 4}
# LAPACK is faster for larger ones, whose time is far above that of a call to the host.
LARGEST = {"cholesky": 512, "triangular_solve": 1 << 12, "solve": 160, "slogdet": 192, "det": 192}


class Matrices(Core):
    """The part of the CPU's emitter that computes with stacks of matrices."""

    def matrix(self, op: str, flags: int, xs: Sequence[View], avals: Sequence[Aval]) -> list[View] | None:
        """Results of an operation on stacks of square matrices (and right-hand sides); None leaves it to the host."""
        shape = xs[0].aval.shape
        if shape[-1] > LARGEST[op] or any(a.dtype != xs[0].aval.dtype for a in avals):
            return None
        xs, outs = [self.dense(x) for x in xs], [self.new(a) for a in avals]
        slots = Slots(*xs, *outs)
        m = xs[1].aval.shape[-1] if len(xs) > 1 else 1
        words = [OPERATIONS[op], flags, math.prod(shape[:-2]), shape[-1], m]
        for view in (xs[0], xs[1] if len(xs) > 1 else None, outs[0], outs[1] if len(outs) > 1 else None):
            words += (-1, 0) if view is None else slots.pointer(view)
        self.node(MATRIX, words, list(slots.bufs), [slots[o] for o in outs])
        return outs
