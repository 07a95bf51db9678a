"""Aims: where a result is wanted, so that it is written there and not copied afterwards.

In: ``y = dot_general a b; t = transpose y; r = reshape t``, which takes a copy of ``t``.  The product's aim is memory
in which ``t`` lies in order.  Where ``r`` is a piece of a ``placed`` array, the aim is the piece; what a group of
pointwise equations computes may have such an aim too.  A vector that is put together of products and sums, like that of
all gradients for their norm, is their aim, whoever else reads them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from funcgrad.ir import Equation, Graph, count_uses
from funcgrad.passes.place import Box, Placed
from funcgrad.prims.layout import Concatenate, Reshape, Transpose
from funcgrad.runtime.views import View

__all__ = ["Aim", "backwards", "find_aims"]


class Aim(NamedTuple):
    """The views that are made of a result, in order, and the whole that it then becomes a box of."""

    steps: tuple[Equation, ...]
    whole: Equation | None
    box: Box | None


def find_aims(graph: Graph) -> dict[Any, Aim]:
    """The aims of the results of a graph's products and groups that have one."""
    uses = count_uses(graph.eqns, graph.outputs)
    reader = {a: eqn for eqn in graph.eqns for a in eqn.inputs if uses[a] == 1}
    found = _parts_of_vectors(graph, reader)
    for eqn in graph.eqns:
        if eqn.prim.name in ("dot_general", "fused"):
            for v in eqn.outputs:
                aim = _aim_of(v, reader)
                if aim is not None and (aim.whole is not None or eqn.prim.name == "dot_general"):
                    found[v] = aim
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


def _parts_of_vectors(graph: Graph, reader: dict[Any, Equation]) -> dict[Any, Aim]:
    """The aims of products and sums that are parts of concatenated vectors, as they are or reshaped."""
    made = {v for e in graph.eqns if e.prim.name in ("dot_general", "reduce_sum") for v in e.outputs}
    made -= set(graph.outputs)
    reshaped: dict[Any, Equation] = {
        e.outputs[0]: e for e in graph.eqns if isinstance(e.prim, Reshape) and e.outputs[0] in reader
    }
    found: dict[Any, Aim] = {}
    for eqn in graph.eqns:
        if not isinstance(eqn.prim, Concatenate) or eqn.outputs[0].aval.ndim != 1:
            continue
        start = 0
        for a in eqn.inputs:
            step = reshaped.get(a)
            v = a if step is None else step.inputs[0]
            if v in made and v not in found and a.aval.size:
                box = Box((start,), (1,), (a.aval.size,))
                found[v] = Aim(() if step is None else (step,), eqn, box)
            start += a.aval.size
    return found


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
