"""Masks: where a rectifier's mask is read later, as its derivative does, it is made again from the result.

In: ``m = le a 0; r = select m 0 a; ...; g = select m 0 ct`` where ``r`` is read late too, by the product of a weight's
gradient.  Out: ``n = le r 0; g = select n 0 ct``: nothing is kept for the derivative alone.  ``r`` is not above 0
exactly where ``a`` is not, whatever a is, so values are the same to the bit.
"""

from __future__ import annotations

import math
from typing import Any

from funcgrad.ir import Equation, Graph, Literal, Var
from funcgrad.prims.logic import Le

__all__ = ["masks"]


def masks(graph: Graph) -> Graph:
    """Return the graph with masks made again where that keeps fewer bytes for fewer equations; one linear pass."""
    eqns = graph.eqns
    rectified = _rectified(graph)
    if not rectified:
        return graph
    uses: dict[Any, list[int]] = {}
    for n, eqn in enumerate(eqns):
        for a in eqn.inputs:
            if isinstance(a, Var):
                uses.setdefault(a, []).append(n)
    kept = set(graph.outputs)
    again: dict[Var, tuple[int, Var]] = {}  # mask: the result that it is made from, and where that is computed
    for mask, (made, at, result) in rectified.items():
        late = [n for n in uses[mask] if n > at]
        if not late or mask in kept:
            continue
        end = late[-1] if result in kept else max(uses.get(result, [at]))
        if result.aval.nbytes * max(0, late[-1] - end) < mask.aval.nbytes * (late[-1] - made):
            again[mask] = at, result
    return _remade(graph, again) if again else graph


def _rectified(graph: Graph) -> dict[Var, tuple[int, int, Var]]:
    """Masks of rectifiers: where each is made, where it is read for the result, and that result."""
    tests: dict[Any, tuple[int, Any]] = {}
    found: dict[Var, tuple[int, int, Var]] = {}
    for n, eqn in enumerate(graph.eqns):
        if eqn.prim.name == "le" and _is_zero(eqn.inputs[1]):
            tests[eqn.outputs[0]] = n, eqn.inputs[0]
        elif eqn.prim.name == "select":
            mask, x, y = eqn.inputs
            made, operand = tests.get(mask, (0, None))
            if isinstance(mask, Var) and operand is y and isinstance(y, Var) and mask not in found and _is_zero(x):
                found[mask] = made, n, eqn.outputs[0]
    return found


def _is_zero(a: Any) -> bool:
    return isinstance(a, Literal) and a.item() == 0 and math.copysign(1.0, a.item()) > 0


def _remade(graph: Graph, again: dict[Var, tuple[int, Var]]) -> Graph:
    """The graph with these masks made again before they are read, once the result itself has been computed."""
    fresh: dict[Any, Var] = {}
    out: list[Equation] = []
    for n, eqn in enumerate(graph.eqns):
        masks_here = [a for a in eqn.inputs if isinstance(a, Var) and a in again and n > again[a][0]]
        if not masks_here:
            out.append(eqn)
            continue
        for a in masks_here:
            if a not in fresh:
                result = again[a][1]
                fresh[a] = Var(a.aval)
                out.append(Equation(Le(), [result, Literal(0, result.aval.dtype)], [fresh[a]], eqn.site))
        out.append(Equation(eqn.prim, [fresh.get(a, a) for a in eqn.inputs], eqn.outputs, eqn.site))
    return Graph(graph.inputs, out, graph.outputs, graph.name)
