"""vmap: a leading axis on the mapped values.

In: ``{ x: f32[3] . y }``.  Out: ``{ x: f32[B,3] . y: f32[B,...] }``.  Equations on unmapped values stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from funcgrad.ir import Aval, Graph, Literal, Var
from funcgrad.trace import Builder, at_site, building

__all__ = ["batch_graph"]


def batch_graph(
    graph: Graph, size: int, mapped: Sequence[bool], axis_name: Any = None
) -> tuple[Graph, tuple[bool, ...]]:
    """Return the graph with a leading axis of ``size`` on the marked inputs, and which outputs carry that axis.

    A collective over ``axis_name`` inside becomes a reduction over the leading axis.
    """
    key = ("batch", size, tuple(mapped), axis_name)
    if key not in graph.memo:
        graph.memo[key] = _batch_graph(graph, size, mapped, axis_name)
    found: tuple[Graph, tuple[bool, ...]] = graph.memo[key]
    return found


def _batch_graph(graph: Graph, size: int, mapped: Sequence[bool], axis_name: Any) -> tuple[Graph, tuple[bool, ...]]:
    builder = Builder(f"vmap({graph.name})")
    with building(builder):
        env: dict[Var, Any] = {}
        is_mapped: dict[Any, bool] = {}
        inputs = []
        for v, m in zip(graph.inputs, mapped, strict=True):
            t = builder.input(Aval((size, *v.aval.shape), v.aval.dtype)) if m else builder.tracer(v)
            env[v], is_mapped[v] = t, m
            inputs.append(t.variable)
        for eqn in graph.eqns:
            xs = [a if isinstance(a, Literal) else env[a] for a in eqn.inputs]
            ms = [not isinstance(a, Literal) and is_mapped[a] for a in eqn.inputs]
            with at_site(eqn.site):
                outs, marks = _batch_equation(builder, eqn, size, ms, xs, axis_name)
            env.update(zip(eqn.outputs, outs, strict=True))
            is_mapped.update(zip(eqn.outputs, marks, strict=True))
        atoms = [a if isinstance(a, Literal) else builder.atom(env[a]) for a in graph.outputs]
    marks = [not isinstance(a, Literal) and is_mapped[a] for a in graph.outputs]
    return builder.graph(inputs, atoms), tuple(marks)


def _batch_equation(
    builder: Builder, eqn: Any, size: int, ms: list[bool], xs: list[Any], axis_name: Any
) -> tuple[list[Any], list[bool]]:
    if axis_name is not None:
        named = getattr(eqn.prim, "batch_named", None)
        result = named(size, ms, axis_name, *xs) if named is not None else None
        if result is not None:
            return list(result[0]), list(result[1])
    if not any(ms):
        builder.adopt(eqn) if all(_same(a, x) for a, x in zip(eqn.inputs, xs, strict=True)) else None
        if builder.eqns and builder.eqns[-1] is eqn:
            return [builder.tracer(v) for v in eqn.outputs], [False] * len(eqn.outputs)
        outs = builder.emit(eqn.prim, xs)
        return outs, [False] * len(outs)
    outs, marks = eqn.prim.batch(size, ms, *xs)
    if eqn.prim.multiple:
        return list(outs), list(marks)
    return [outs], [marks]


def _same(atom: Any, x: Any) -> bool:
    return x is atom or getattr(x, "var", None) is atom
