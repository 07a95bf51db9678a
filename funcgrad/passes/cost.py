"""Cost: floating-point operations and bytes moved, by operation, before anything runs."""

from __future__ import annotations

import math
from typing import NamedTuple

from funcgrad.errors import Site
from funcgrad.ir import Equation, Graph, subgraphs
from funcgrad.passes.fuse import Fused
from funcgrad.prims.contract import Conv, DotGeneral

__all__ = ["Cost", "cost_of", "costs"]

# What costs nothing on a device: strides and names.
VIEWS = frozenset({"reshape", "transpose", "broadcast", "slice", "reverse", "iota", "name", "constant"})


class Cost(NamedTuple):
    """One equation's cost: its operation, how many floating-point operations, bytes read and written, and its source
    line."""

    operation: str
    flops: int
    bytes: int
    site: Site | None


def costs(graph: Graph) -> list[Cost]:
    """Return the cost of each equation of a prepared graph that does work; loops count all their iterations."""
    out = []
    for eqn in graph.eqns:
        if eqn.prim.name in VIEWS:
            continue
        moved = sum(a.aval.nbytes for a in (*eqn.inputs, *eqn.outputs))
        out.append(Cost(label(eqn), flops_of(eqn), moved, eqn.site))
    return out


def cost_of(graph: Graph) -> dict[str, float]:
    """Return the totals under the names that JAX uses: ``flops`` and ``bytes accessed``."""
    rows = costs(graph)
    return {"flops": float(sum(r.flops for r in rows)), "bytes accessed": float(sum(r.bytes for r in rows))}


def label(eqn: Equation) -> str:
    """A short name for an equation: a fused one lists what is in it."""
    if isinstance(eqn.prim, Fused):
        names = [e.prim.name for e in eqn.prim.graph.eqns if e.prim.name not in VIEWS]
        shown = "+".join(names[:5]) + (f"+{len(names) - 5} more" if len(names) > 5 else "")
        return f"fused({shown})"
    return eqn.prim.name


def flops_of(eqn: Equation) -> int:
    """Floating-point operations of one equation: an addition, a product or a function counts one."""
    prim = eqn.prim
    if not eqn.outputs:  # an effect: a callback
        return 0
    out = eqn.outputs[0].aval
    if isinstance(prim, DotGeneral):
        left = eqn.inputs[0].aval.shape
        return 2 * out.size * math.prod([left[d] for d in prim.lhs_contract])
    if isinstance(prim, Conv):
        kernel = eqn.inputs[1].aval.shape
        return 2 * out.size * math.prod(kernel[:-1])
    if isinstance(prim, Fused):
        return sum(e.outputs[0].aval.size for e in prim.graph.eqns if e.prim.name not in VIEWS)
    bodies = list(subgraphs(eqn))
    if bodies:
        times = int(prim.params().get("length", 1))
        return times * sum(flops_of(e) for g in bodies for e in g.eqns)
    if prim.name.startswith(("reduce", "cum")):
        return eqn.inputs[0].aval.size
    return 0 if prim.name in VIEWS else out.size
