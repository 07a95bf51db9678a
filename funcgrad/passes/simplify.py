"""Simplify: drop what nobody reads, write equal equations once, undo what undoes itself.

Runs before ``inline``: equations of a checkpointed body live in a graph of their own and are never merged with the
outside, or the recomputation would be gone.  Values are kept bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Atom, Equation, Graph, Literal, Var, subgraphs
from funcgrad.prims.layout import Broadcast, Reshape, Transpose
from funcgrad.prims.pointwise import Convert, Div, Mul, MulNz, Neg, Sub

__all__ = ["dead_code", "eliminate", "has_effects", "simplify"]


def dead_code(graph: Graph) -> Graph:
    """Return the graph without equations whose results nobody reads."""
    eqns = eliminate(graph.eqns, graph.outputs)
    same = len(eqns) == len(graph.eqns) and all(a is b for a, b in zip(eqns, graph.eqns, strict=True))
    return graph if same else Graph(graph.inputs, eqns, graph.outputs, graph.name)


def eliminate(eqns: Sequence[Equation], outputs: Sequence[Atom], given: Sequence[Var] = ()) -> list[Equation]:
    """Return the equations that ``outputs`` need when the variables ``given`` are there already."""
    there = set(given)
    needed: set[Any] = {a for a in outputs if isinstance(a, Var)} - there
    kept = []
    for eqn in reversed(eqns):
        if any(v in needed for v in eqn.outputs) or has_effect(eqn):
            eqn = _pruned(eqn, needed)
            kept.append(eqn)
            needed.update(a for a in eqn.inputs if isinstance(a, Var) and a not in there)
    return kept[::-1]


def _pruned(eqn: Equation, needed: set[Any]) -> Equation:
    """The equation without the results that nobody reads, where its primitive can do without making them."""
    prune = getattr(eqn.prim, "prune", None)
    if prune is None or eqn.prim.effectful:
        return eqn
    found = prune(tuple([v in needed for v in eqn.outputs]))
    if found is None:
        return eqn
    prim, inputs, outputs = found
    return Equation(prim, [eqn.inputs[i] for i in inputs], [eqn.outputs[i] for i in outputs], eqn.site)


def has_effect(eqn: Equation) -> bool:
    """Whether an equation does something besides giving results, itself or in a graph that it holds."""
    if eqn.prim.effectful or not eqn.prim.multiple:
        return eqn.prim.effectful
    return any(has_effects(g) for g in subgraphs(eqn))


def has_effects(graph: Graph) -> bool:
    """Whether a graph does something besides giving results."""
    if "effects" not in graph.memo:
        graph.memo["effects"] = any(has_effect(e) for e in graph.eqns)
    found: bool = graph.memo["effects"]
    return found


def simplify(graph: Graph) -> Graph:
    """Return an equivalent graph with fewer equations."""
    found: Graph | None = graph.memo.get("simplify")
    if found is None:
        found = graph.memo["simplify"] = _simplify(dead_code(graph))
        found.memo["simplify"] = found
    return found


def _simplify(graph: Graph) -> Graph:
    renamed: dict[Var, Atom] = {}
    producer: dict[Var, Equation] = {}
    seen: dict[Any, Equation] = {}
    eqns: list[Equation] = []

    def now(a: Atom) -> Atom:
        return renamed.get(a, a) if isinstance(a, Var) else a

    for eqn in graph.eqns:
        inputs = [now(a) for a in eqn.inputs]
        if any(a is not b for a, b in zip(inputs, eqn.inputs, strict=True)):
            eqn = Equation(eqn.prim, inputs, eqn.outputs, eqn.site)
        same = _identity(eqn, producer)
        if same is not None:
            renamed[eqn.outputs[0]] = same
            continue
        eqn = _shorter(eqn, producer)
        key = _key(eqn)
        twin = seen.get(key) if key is not None else None
        if twin is not None:
            renamed.update(zip(eqn.outputs, twin.outputs, strict=True))
            continue
        if key is not None:
            seen[key] = eqn
        eqns.append(eqn)
        producer.update(dict.fromkeys(eqn.outputs, eqn))
    outputs = [now(a) for a in graph.outputs]
    return dead_code(Graph(graph.inputs, eqns, outputs, graph.name))


def _key(eqn: Equation) -> Any:
    """What two equations must share to give the same values; None for what must not be merged."""
    if eqn.prim.effectful or any(isinstance(v, Graph) for v in vars(eqn.prim).values()):
        return None
    ids = tuple([a.key() if isinstance(a, Literal) else id(a) for a in eqn.inputs])
    try:
        return hash(eqn.prim), eqn.prim, ids
    except TypeError:
        return None


def _literal(a: Atom, value: float) -> bool:
    return isinstance(a, Literal) and a.item() == value and not (value == 0 and np.signbit(dtypes.widen(a.value)))


def _identity(eqn: Equation, producer: dict[Var, Equation]) -> Atom | None:
    """The atom that the equation's result equals bit for bit, if there is one of the same type."""
    rule = _IDENTITIES.get(type(eqn.prim))
    found = rule(eqn, producer) if rule is not None else None
    return found if found is not None and found.aval == eqn.outputs[0].aval else None


def _times_one(eqn: Equation, producer: Any) -> Atom | None:
    x, y = eqn.inputs
    return x if _literal(y, 1) else y if _literal(x, 1) else None


def _over_one(eqn: Equation, producer: Any) -> Atom | None:
    return eqn.inputs[0] if _literal(eqn.inputs[1], 1) else None


def _minus_zero(eqn: Equation, producer: Any) -> Atom | None:
    return eqn.inputs[0] if _literal(eqn.inputs[1], 0) else None


def _same_type(eqn: Equation, producer: Any) -> Atom | None:
    return eqn.inputs[0]


def _undone(eqn: Equation, producer: dict[Var, Equation]) -> Atom | None:
    """neg neg x, and a reshape or transpose that undoes the one before."""
    before = producer.get(eqn.inputs[0]) if isinstance(eqn.inputs[0], Var) else None
    if before is None or type(before.prim) is not type(eqn.prim):
        return None
    if isinstance(eqn.prim, Transpose):
        assert isinstance(before.prim, Transpose)
        composed = [before.prim.perm[p] for p in eqn.prim.perm]
        return before.inputs[0] if composed == list(range(len(composed))) else None
    return before.inputs[0]


_IDENTITIES: dict[type, Callable[[Equation, dict[Var, Equation]], Atom | None]] = {
    Mul: _times_one,
    MulNz: _times_one,
    Div: _over_one,
    Sub: _minus_zero,
    Neg: _undone,
    Reshape: lambda e, p: e.inputs[0] if e.inputs[0].aval == e.outputs[0].aval else _undone(e, p),
    Transpose: _undone,
    Broadcast: _same_type,
    Convert: _same_type,
}


def _shorter(eqn: Equation, producer: dict[Var, Equation]) -> Equation:
    """Compose a layout equation with the one that made its operand."""
    before = producer.get(eqn.inputs[0]) if eqn.inputs and isinstance(eqn.inputs[0], Var) else None
    if before is None or type(before.prim) is not type(eqn.prim):
        return eqn
    prim, first = eqn.prim, before.prim
    if isinstance(prim, Transpose) and isinstance(first, Transpose):
        return Equation(Transpose(tuple([first.perm[p] for p in prim.perm])), before.inputs, eqn.outputs, eqn.site)
    if isinstance(prim, Broadcast) and isinstance(first, Broadcast):
        dims = tuple([prim.dims[d] for d in first.dims])
        sizes = [before.inputs[0].aval.shape[i] for i in range(len(dims))]
        if all(n in (1, prim.shape[d]) for n, d in zip(sizes, dims, strict=True)):
            return Equation(Broadcast(prim.shape, dims), before.inputs, eqn.outputs, eqn.site)
    if isinstance(prim, Reshape):
        return Equation(prim, before.inputs, eqn.outputs, eqn.site)
    return eqn
