"""Aims: where the result of a product is wanted, so that it is written there and not copied afterwards.

In: ``y = dot_general a b; t = transpose y; r = reshape t``, which takes a copy of ``t``.  The product's aim is memory
in which ``t`` lies in order.  Where ``r`` is a piece of a ``placed`` array, the aim is the piece.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from funcgrad.ir import Equation, Graph, count_uses
from funcgrad.passes.place import Box, Placed
from funcgrad.prims.layout import Reshape, Transpose
from funcgrad.runtime.views import View

__all__ = ["Aim", "backwards", "find_aims"]


class Aim(NamedTuple):
    """The views that are made of a result, in order, and the placed array and the box that it then becomes."""

    steps: tuple[Equation, ...]
    placed: Equation | None
    box: Box | None


def find_aims(graph: Graph) -> dict[Any, Aim]:
    """The aims of the products of a graph that have one."""
    uses = count_uses(graph.eqns, graph.outputs)
    reader = {a: eqn for eqn in graph.eqns for a in eqn.inputs if uses[a] == 1}
    found: dict[Any, Aim] = {}
    for eqn in graph.eqns:
        if eqn.prim.name == "dot_general":
            aim = _aim_of(eqn.outputs[0], reader)
            if aim is not None:
                found[eqn.outputs[0]] = aim
    return found


def _aim_of(v: Any, reader: dict[Any, Equation]) -> Aim | None:
    """Follow the only readers of a result."""
    steps: list[Equation] = []
    now = reader.get(v)
    while now is not None and isinstance(now.prim, Transpose | Reshape):
        steps.append(now)
        v = now.outputs[0]
        now = reader.get(v)
    if now is not None and isinstance(now.prim, Placed):
        prim = now.prim
        boxes = dict(zip(now.inputs, prim.boxes, strict=True))
        if sum([math.prod(b.size) for b in prim.boxes]) == math.prod(prim.shape):  # nothing is left to be filled
            return Aim(tuple(steps), now, boxes[v])
    turned = [i for i, e in enumerate(steps[:-1]) if isinstance(e.prim, Transpose)]
    return Aim(tuple(steps[: turned[-1] + 1]), None, None) if turned else None


def backwards(view: View, steps: tuple[Equation, ...]) -> View | None:
    """The view of which ``steps`` make this one; None where there is none."""
    now: View | None = view
    for eqn in reversed(steps):
        if now is None:
            break
        if isinstance(eqn.prim, Transpose):
            perm = eqn.prim.perm
            now = now.transpose(tuple(sorted(range(len(perm)), key=perm.__getitem__)))
        else:
            now = now.reshape(eqn.inputs[0].aval.shape)
    return now
