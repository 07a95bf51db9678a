"""Place: a sum of arrays, each padded with zeros to where the others have none, becomes one array written in pieces.

In: ``p = pad(low=0, high=2) a 0; q = pad(low=2, high=0) b 0; r = add p q``, as the gradients of slices come.  Out:
``r = placed a b``.  To the bit: what is added to a padding's 0 is written as ``x + 0``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Equation, Graph, Literal, Var, count_uses
from funcgrad.passes.simplify import dead_code
from funcgrad.primitive import Primitive, dataclass
from funcgrad.prims.layout import Pad
from funcgrad.prims.pointwise import Add

__all__ = ["Placed", "place"]

Ints = tuple[int, ...]
MOST = 64  # pieces; every two are compared


class Box(NamedTuple):
    """Where a piece lies: along each axis its first index, the distance of its elements, and their number."""

    start: Ints
    step: Ints
    size: Ints

    @property
    def slices(self) -> tuple[slice, ...]:
        """As an index."""
        return tuple(
            [slice(a, a + (n - 1) * s + 1, s) for a, s, n in zip(self.start, self.step, self.size, strict=True)]
        )

    def apart(self, other: Box) -> bool:
        """Whether no element lies in both."""
        for a, s, n, b, t, m in zip(*self, *other, strict=True):
            if a + (n - 1) * s < b or b + (m - 1) * t < a or (s == t and (a - b) % s):
                return True
        return False


@dataclass(frozen=True)
class Placed(Primitive):
    """Arrays at their boxes of an array of zeros; the boxes have no element in common."""

    shape: Ints
    boxes: tuple[Box, ...]
    name = "placed"

    def infer(self, *avals: Aval) -> Aval:
        if [a.shape for a in avals] != [b.size for b in self.boxes]:
            raise self.shape_error("operands must have the sizes of the boxes", *avals)
        return Aval(self.shape, avals[0].dtype)

    def eval(self, *xs: Any) -> Any:
        out = np.zeros(self.shape, xs[0].dtype)
        for x, box in zip(xs, self.boxes, strict=True):
            out[box.slices] = x + x.dtype.type(0)
        return out

    def lower(self, g: Any, *xs: Any) -> Any:
        aval = Aval(self.shape, xs[0].aval.dtype)
        limits = [tuple([s.stop for s in b.slices]) for b in self.boxes]
        return g.place(xs, [(b.start, e, b.step) for b, e in zip(self.boxes, limits, strict=True)], aval)


class _Sums:
    """The sums of pads found so far."""

    def __init__(self, graph: Graph):
        self.uses = count_uses(graph.eqns, graph.outputs)
        self.pieces: dict[Any, list[tuple[Box, Any]]] = {}  # of pads and of their sums

    def note(self, eqn: Equation) -> bool:
        """Remember what an equation is made of; True when it is a sum of pieces."""
        prim, out = eqn.prim, eqn.outputs[0]
        if isinstance(prim, Pad):
            box = _box(prim, eqn)
            if box is not None:
                self.pieces[out] = [(box, eqn.inputs[0])]
        elif isinstance(prim, Add) and out.aval.dtype != dtypes.bool_:
            left, right = [self.pieces.get(a, []) if self.uses.get(a) == 1 else [] for a in eqn.inputs]
            few = left and right and len(left) + len(right) <= MOST
            if few and all(b.apart(c) for b, _ in left for c, _ in right):
                self.pieces[out] = left + right
                return True
        return False


def _box(pad: Pad, eqn: Equation) -> Box | None:
    """Where a pad with zeros keeps its operand; None for another pad."""
    x, fill = eqn.inputs
    zero = isinstance(fill, Literal) and fill.item() == 0 and not np.signbit(dtypes.widen(fill.value))
    if not zero or not x.aval.size or min((*pad.low, *pad.high), default=0) < 0:
        return None
    return Box(tuple(pad.low), tuple([n + 1 for n in pad.interior]), x.aval.shape)


def place(graph: Graph) -> Graph:
    """Return the graph with its sums of disjoint pads as single equations."""
    if sum(isinstance(e.prim, Pad) for e in graph.eqns) < 2:
        return graph
    sums = _Sums(graph)
    found = {e.outputs[0] for e in graph.eqns if sums.note(e)}
    if not found:
        return graph
    eqns: list[Equation] = []
    for eqn in graph.eqns:
        out: Var = eqn.outputs[0] if eqn.outputs else Var(Aval((), dtypes.bool_))
        if out in found:
            pieces = sums.pieces[out]
            prim = Placed(out.aval.shape, tuple([b for b, _ in pieces]))
            eqn = Equation(prim, [a for _, a in pieces], [out], eqn.site)
        eqns.append(eqn)
    return dead_code(Graph(graph.inputs, eqns, graph.outputs, graph.name))
