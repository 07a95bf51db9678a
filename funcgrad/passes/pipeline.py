"""The order of the passes between a traced graph and one that a device lowers."""

from __future__ import annotations

from funcgrad.ir import Graph
from funcgrad.passes.fuse import fuse
from funcgrad.passes.inline import inline
from funcgrad.passes.masks import masks
from funcgrad.passes.place import place
from funcgrad.passes.recompute import recompute
from funcgrad.passes.simplify import dead_code, simplify

__all__ = ["prepare", "stages"]

# What merely groups equations: looked through before simplifying.  A checkpoint is not: its recomputation must stay
# apart.
TRANSPARENT = ("call", "custom_jvp", "custom_vjp", "custom_vmap", "linear_solve")


def stages(graph: Graph) -> dict[str, Graph]:
    """The graph after each pass, by what the pass does, in order; the first is the graph itself, the last what is
    lowered."""
    opened = inline(graph, only=TRANSPARENT)
    simplified = simplify(opened)
    flat = dead_code(inline(simplified))
    masked = masks(flat)
    placed = place(masked)
    fused = fuse(placed)
    return {
        "trace": graph,
        "open calls": opened,
        "simplify": simplified,
        "inline": flat,
        "masks": masked,
        "place": placed,
        "fuse": fused,
        "recompute": recompute(fused),
    }


def prepare(graph: Graph, fused: bool = True) -> Graph:
    """Simplify, inline and fuse: what every device lowers.  Graphs inside loops and branches are prepared when
    lowered."""
    key = ("prepare", fused)
    if key not in graph.memo:
        passes = stages(graph)
        graph.memo["prepare", True], graph.memo["prepare", False] = passes["recompute"], passes["inline"]
    found: Graph = graph.memo[key]
    return found
