"""Forward mode: tangents beside values.

In: ``{ x . y }``.  Out: ``{ x, t_x . y, t_y }``.  An operand without tangent has None, which is never computed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad.ir import Graph, Literal, Var
from funcgrad.primitive import zeros
from funcgrad.trace import Builder, at_site, building

__all__ = ["jvp_graph"]


def jvp_graph(graph: Graph, wrt: Sequence[bool], joint: bool = True) -> tuple[Graph, tuple[bool, ...]]:
    """Return the graph that also gives tangents of its float outputs, and which outputs have a tangent that may be
    nonzero.

    Its inputs are the graph's, then a tangent for each input marked in ``wrt``; its outputs are the graph's, then a
    tangent for each float output.  With ``joint`` an equation that holds a graph computes values and tangents together;
    without, as ``linearize`` needs it, no value of the graph comes to depend on tangents.
    """
    key = ("jvp", tuple(wrt), joint)
    if key not in graph.memo:
        graph.memo[key] = _jvp_graph(graph, wrt, joint)
    found: tuple[Graph, tuple[bool, ...]] = graph.memo[key]
    return found


def _jvp_graph(graph: Graph, wrt: Sequence[bool], joint: bool) -> tuple[Graph, tuple[bool, ...]]:
    builder = Builder(f"jvp({graph.name})")
    with building(builder):
        seeds = [builder.input(v.aval) for v, w in zip(graph.inputs, wrt, strict=True) if w]
        marked = [v for v, w in zip(graph.inputs, wrt, strict=True) if w]
        tangents: dict[Any, Any] = dict(zip(marked, seeds, strict=True))
        for eqn in graph.eqns:
            ts = [tangents.get(a) if isinstance(a, Var) else None for a in eqn.inputs]
            moves = any(t is not None for t in ts) and any(dtypes.is_float(v.aval.dtype) for v in eqn.outputs)
            together = moves and joint and getattr(eqn.prim, "jvp_joint", None) is not None
            apart = moves and not joint and getattr(eqn.prim, "linear_halves", None) is not None
            if not (together or apart):
                builder.adopt(eqn)
            if moves:
                with at_site(eqn.site):
                    push = _push_joint if together else _push_halves if apart else _push
                    push(builder, eqn, ts, tangents)
        outs = [a for a in graph.outputs if dtypes.is_float(a.aval.dtype)]
        ts_out = [None if isinstance(a, Literal) else tangents.get(a) for a in outs]
        atoms = [builder.atom(zeros(a.aval) if t is None else t) for a, t in zip(outs, ts_out, strict=True)]
    out = builder.graph([*graph.inputs, *[s.variable for s in seeds]], [*graph.outputs, *atoms])
    return out, tuple([t is not None for t in ts_out])


def _push(builder: Builder, eqn: Any, ts: list[Any], tangents: dict[Any, Any]) -> None:
    xs = [builder.tracer(a) for a in eqn.inputs]
    outs = [builder.tracer(v) for v in eqn.outputs]
    if eqn.prim.multiple:
        t_outs = eqn.prim.jvp(ts, outs, *xs)
    else:
        t_outs = [eqn.prim.jvp(ts, outs[0], *xs)]
    _record(eqn, t_outs, tangents)


def _push_joint(builder: Builder, eqn: Any, ts: list[Any], tangents: dict[Any, Any]) -> None:
    """One equation for values and tangents; the values keep their variables."""
    outs, t_outs = eqn.prim.jvp_joint(ts, *[builder.tracer(a) for a in eqn.inputs])
    made = builder.eqns[-1]
    old = {o.variable: v for o, v in zip(outs, eqn.outputs, strict=True)}
    made.outputs = tuple([old.get(v, v) for v in made.outputs])
    _record(eqn, t_outs, tangents)


def _push_halves(builder: Builder, eqn: Any, ts: list[Any], tangents: dict[Any, Any]) -> None:
    """One equation for the values that also gives what the tangents need, others for the tangents."""
    xs = [builder.tracer(a) for a in eqn.inputs]
    forward, push = eqn.prim.linear_halves(tuple([t is not None for t in ts]))
    outs = builder.emit(forward, xs)
    made, n = builder.eqns[-1], len(eqn.outputs)
    made.outputs = (*eqn.outputs, *made.outputs[n:])
    _record(eqn, push(ts, [*[builder.tracer(v) for v in eqn.outputs], *outs[n:]], xs), tangents)


def _record(eqn: Any, t_outs: Sequence[Any], tangents: dict[Any, Any]) -> None:
    for v, t in zip(eqn.outputs, t_outs, strict=True):
        if t is not None and dtypes.is_float(v.aval.dtype):
            tangents[v] = t
