"""Reverse mode: one backward walk over a graph calling vjp rules.

In: ``{ x . y }``.  Out: ``{ x, ct_y . y, ct_x }``, whose first equations are the graph's own, unchanged.  A nested
``grad`` traces its function into a graph of its own, so there are no perturbations to confuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from funcgrad import dtypes
from funcgrad.ir import Equation, Graph, Var
from funcgrad.primitive import accumulate, zeros
from funcgrad.trace import Builder, Tracer, at_site, building

__all__ = ["Halves", "split", "vjp_graph"]


def vjp_graph(graph: Graph, wrt: Sequence[bool], with_ct: Sequence[bool] | None = None) -> Graph:
    """Return the graph that also gives the cotangents of the inputs marked in ``wrt``.

    Its inputs are the graph's, then a cotangent for each output marked in ``with_ct`` (by default each float output);
    its outputs are the graph's, then a cotangent for each marked input (zeros where there is no path).
    """
    with_ct = tuple(with_ct) if with_ct is not None else tuple([dtypes.is_float(a.dtype) for a in graph.out_avals])
    key = ("vjp", tuple(wrt), with_ct)
    if key not in graph.memo:
        graph.memo[key] = _vjp_graph(graph, wrt, with_ct)
    found: Graph = graph.memo[key]
    return found


def _vjp_graph(graph: Graph, wrt: Sequence[bool], with_ct: Sequence[bool]) -> Graph:
    active = active_variables(graph, wrt)
    builder = Builder(f"vjp({graph.name})")
    with building(builder):
        residuals = _forward(builder, graph, active)
        seeds = [builder.input(a.aval) for a, c in zip(graph.outputs, with_ct, strict=True) if c]
        cts: dict[Var, Any] = {}
        marked = [a for a, c in zip(graph.outputs, with_ct, strict=True) if c]
        for atom, seed in zip(marked, seeds, strict=True):
            if isinstance(atom, Var) and atom in active:
                cts[atom] = accumulate(cts.get(atom), seed)
        for eqn in reversed(graph.eqns):
            if any(v in cts for v in eqn.outputs):
                with at_site(eqn.site and eqn.site.during("backward")):
                    _backward(builder, eqn, cts, active, residuals.get(eqn))
        grads = [builder.atom(_or_zeros(cts.get(v), v)) for v, w in zip(graph.inputs, wrt, strict=True) if w]
    return builder.graph([*graph.inputs, *[s.variable for s in seeds]], [*graph.outputs, *grads])


def _or_zeros(ct: Any, v: Var) -> Any:
    return zeros(v.aval) if ct is None else ct


def active_variables(graph: Graph, wrt: Sequence[bool]) -> set[Any]:
    """The float variables that depend on the marked inputs; nothing does by way of a stop_gradient."""
    active: set[Any] = {v for v, w in zip(graph.inputs, wrt, strict=True) if w and dtypes.is_float(v.aval.dtype)}
    for eqn in graph.eqns:
        if any(a in active for a in eqn.inputs if isinstance(a, Var)) and eqn.prim.name != "stop_gradient":
            active.update(v for v in eqn.outputs if dtypes.is_float(v.aval.dtype))
    return active


def _forward(builder: Builder, graph: Graph, active: set[Any]) -> dict[Equation, tuple[Any, list[Tracer]]]:
    """Copy the equations; one that holds graphs may run as a form that also gives what its backward half needs."""
    residuals: dict[Equation, tuple[Any, list[Tracer]]] = {}
    for eqn in graph.eqns:
        halves = getattr(eqn.prim, "halves", None)
        mask = tuple([isinstance(a, Var) and a in active for a in eqn.inputs])
        pair = halves(mask) if halves is not None and any(mask) else None
        if pair is None:
            builder.adopt(eqn)
            continue
        forward, backward = pair
        with at_site(eqn.site):
            outs = builder.emit(forward, [builder.tracer(a) for a in eqn.inputs])
        # The outputs keep their variables: the new equation writes them directly.
        made = builder.eqns[-1]
        n = len(eqn.outputs)
        made.outputs = (*eqn.outputs, *made.outputs[n:])
        residuals[eqn] = (backward, outs[n:])
    return residuals


def _backward(builder: Builder, eqn: Equation, cts: dict[Var, Any], active: set[Any], half: Any) -> None:
    xs = [builder.tracer(a) for a in eqn.inputs]
    outs = [builder.tracer(v) for v in eqn.outputs]
    ct = [cts.pop(v, None) for v in eqn.outputs]
    if half is not None:
        backward, residuals = half
        grads = backward(ct, [*outs, *residuals], xs)
    elif eqn.prim.multiple:
        grads = eqn.prim.vjp(ct, outs, *xs)
    else:
        grads = eqn.prim.vjp(ct[0], outs[0], *xs)
    for a, g in zip(eqn.inputs, grads, strict=True):
        if g is not None and isinstance(a, Var) and a in active:
            g = g() if callable(g) else g
            cts[a] = accumulate(cts.get(a), g)


class Halves(NamedTuple):
    """A graph in two: ``early`` gives its outputs and ``residuals``; ``late`` maps [crossing values, late inputs] to
    the late outputs.

    ``crossing`` are variables: inputs of the graph, or residuals.
    """

    early: Graph
    late: Graph
    crossing: list[Var]
    residuals: list[Var]


def split(graph: Graph, num_late: int, num_early_outputs: int) -> Halves:
    """Split a graph whose last ``num_late`` inputs come later than the rest, by reachability from them.

    The first ``num_early_outputs`` outputs do not depend on the late inputs; all others are the late half's.
    """
    n = len(graph.inputs) - num_late
    inputs, late_inputs = graph.inputs[:n], graph.inputs[n:]
    dependent: set[Any] = set(late_inputs)
    early_eqns, late_eqns = [], []
    for eqn in graph.eqns:
        if any(a in dependent for a in eqn.inputs if isinstance(a, Var)):
            dependent.update(eqn.outputs)
            late_eqns.append(eqn)
        else:
            early_eqns.append(eqn)
    outs, late_outs = graph.outputs[:num_early_outputs], graph.outputs[num_early_outputs:]
    reads = [a for e in late_eqns for a in e.inputs] + list(late_outs)
    crossing = list(dict.fromkeys([a for a in reads if isinstance(a, Var) and a not in dependent]))
    given = set(inputs)
    residuals = [v for v in crossing if v not in given]
    early = Graph(inputs, early_eqns, [*outs, *residuals], graph.name)
    return Halves(early, Graph([*crossing, *late_inputs], late_eqns, late_outs, graph.name), crossing, residuals)
