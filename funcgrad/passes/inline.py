"""Inline: replace calls by the equations of the graphs they call, each body simplified on its own.

``inline`` runs last, on everything that only groups equations (jit calls, checkpoints, custom rules); nothing merges
equations afterwards.  ``only`` restricts it, for passes that look through jit calls but keep checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from funcgrad.ir import Atom, Equation, Graph, Var
from funcgrad.passes.simplify import simplify

__all__ = ["inline"]


def inline(graph: Graph, only: Sequence[str] | None = None) -> Graph:
    """Return the graph with the calls inlined, all the way down; a primitive says by ``inlined()`` what it stands
    for."""
    key = ("inline", None if only is None else tuple(only))
    if key not in graph.memo:
        eqns: list[Equation] = []
        env: dict[Var, Atom] = {}
        _expand(graph, env, eqns, only, fresh=False)
        same = len(eqns) == len(graph.eqns) and all(a is b for a, b in zip(eqns, graph.eqns, strict=True))
        outputs = [_now(env, a) for a in graph.outputs]
        graph.memo[key] = graph if same else Graph(graph.inputs, eqns, outputs, graph.name)
    found: Graph = graph.memo[key]
    return found


def _now(env: dict[Var, Atom], a: Atom) -> Atom:
    return env.get(a, a) if isinstance(a, Var) else a


def _expand(graph: Graph, env: dict[Var, Atom], out: list[Equation], only: Any, fresh: bool) -> None:
    """Append the equations of ``graph`` with variables renamed by ``env``; ``fresh`` makes new result variables."""
    for eqn in graph.eqns:
        body = _body(eqn.prim, only)
        if body is not None:
            inner: dict[Var, Atom] = dict(zip(body.inputs, [_now(env, a) for a in eqn.inputs], strict=True))
            _expand(body, inner, out, only, fresh=True)
            env.update(zip(eqn.outputs, [_now(inner, a) for a in body.outputs], strict=True))
            continue
        inputs = [_now(env, a) for a in eqn.inputs]
        if not fresh and all(a is b for a, b in zip(inputs, eqn.inputs, strict=True)):
            out.append(eqn)
            continue
        outputs: Sequence[Var] = eqn.outputs
        if fresh:
            outputs = [Var(v.aval) for v in eqn.outputs]
            env.update(zip(eqn.outputs, outputs, strict=True))
        out.append(Equation(eqn.prim, inputs, outputs, eqn.site))


def _body(prim: Any, only: Any) -> Graph | None:
    inlined = getattr(prim, "inlined", None)
    if inlined is None or (only is not None and prim.name not in only):
        return None
    return simplify(inlined())
