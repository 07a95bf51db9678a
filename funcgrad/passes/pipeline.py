"""The order of the passes between a traced graph and one that a device lowers."""

from __future__ import annotations

from funcgrad.ir import Graph
from funcgrad.passes.fuse import fuse
from funcgrad.passes.inline import inline
from funcgrad.passes.place import place
from funcgrad.passes.recompute import recompute
from funcgrad.passes.simplify import dead_code, simplify

__all__ = ["prepare"]

# What merely groups equations: looked through before simplifying.  A checkpoint is not: its recomputation must stay
# apart.
TRANSPARENT = ("call", "custom_jvp", "custom_vjp")


def prepare(graph: Graph, fused: bool = True) -> Graph:
    """Simplify, inline and fuse: what every device lowers.  Graphs inside loops and branches are prepared when
    lowered."""
    key = ("prepare", fused)
    if key not in graph.memo:
        flat = dead_code(inline(simplify(inline(graph, only=TRANSPARENT))))
        graph.memo[key] = recompute(fuse(place(flat))) if fused else flat
    found: Graph = graph.memo[key]
    return found
