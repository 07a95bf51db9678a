"""Fuse: gather chains of pointwise equations of one shape into single equations.

In: ``c = mul a b; d = exp c; e = add d a``.  Out: ``e = fused { ... } a b``.  A fused equation is one pass over memory.

A group stays open while only its own members read what it computes, and runs where something else first needs a result;
equations only ever move later, so a checkpoint's recomputation stays where it is.  One linear pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from funcgrad.ir import Aval, Equation, Graph, Literal, Var
from funcgrad.primitive import Pointwise, Primitive

__all__ = ["Fused", "fuse"]

# Registers of the block interpreter must stay in the first-level cache.
MAX_EQUATIONS = 48
MAX_OPERANDS = 24


@dataclass(frozen=True, eq=False)
class Fused(Primitive):
    """Pointwise equations as one; its graph's inputs are of one shape or scalars."""

    graph: Graph
    name = "fused"
    multiple = True

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        if tuple(avals) != self.graph.in_avals:
            raise self.shape_error("operands must have the types of the graph's inputs", *avals)
        return self.graph.out_avals

    def eval(self, *xs: Any) -> Any:
        env: dict[Any, Any] = dict(zip(self.graph.inputs, xs, strict=True))
        for eqn in self.graph.eqns:
            outs = eqn.prim.evaluate(*[a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs])
            env.update(zip(eqn.outputs, outs, strict=True))
        return [a.value if isinstance(a, Literal) else env[a] for a in self.graph.outputs]


class _Group:
    """Pointwise equations of one shape that will run together."""

    __slots__ = ("eqns", "made", "open", "read", "shape")

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape
        self.eqns: list[Equation] = []
        self.made: set[Any] = set()
        self.read: set[Any] = set()
        self.open = True


class _Fuser:
    """The groups so far, and the equations already placed."""

    def __init__(self, graph: Graph):
        self.out: list[Equation] = []
        self.group_of: dict[Any, _Group] = {}
        self.order: dict[_Group, None] = {}  # open groups, oldest first
        self.uses: dict[Any, int] = {}
        for eqn in graph.eqns:
            for a in eqn.inputs:
                self.uses[a] = self.uses.get(a, 0) + 1
        for a in graph.outputs:
            self.uses[a] = self.uses.get(a, 0) + 1

    def add(self, eqn: Equation) -> None:
        """Put a pointwise equation into the group of its operands, merging theirs, or into a new one."""
        shape = eqn.outputs[0].aval.shape
        target: _Group | None = None
        for a in eqn.inputs:
            group = self.group_of.get(a)
            if group is None or not group.open or group is target:
                continue
            if group.shape == shape and self._fits(target, group):
                target = group if target is None else self._merge(target, group)
            else:
                self.close(group)
        if target is not None and not (target.open and self._fits(target, None)):
            self.close(target)
            target = None
        if target is None:
            target = _Group(shape)
            self.order[target] = None
        target.eqns.append(eqn)
        target.made.add(eqn.outputs[0])
        target.read.update(a for a in eqn.inputs if isinstance(a, Var))
        self.group_of[eqn.outputs[0]] = target

    def _fits(self, a: _Group | None, b: _Group | None) -> bool:
        groups = [g for g in (a, b) if g is not None]
        reads = sum(len(g.read) for g in groups)
        return (
            sum(len(g.eqns) for g in groups) < MAX_EQUATIONS and reads - sum(len(g.made) for g in groups) < MAX_OPERANDS
        )

    def _merge(self, a: _Group, b: _Group) -> _Group:
        """Both are open, so neither needs the other's results; their equations keep their order of appearance."""
        big, small = (a, b) if len(a.eqns) >= len(b.eqns) else (b, a)
        big.eqns += small.eqns
        big.made |= small.made
        big.read |= small.read
        for v in small.made:
            self.group_of[v] = big
        small.open = False
        del self.order[small]
        return big

    def place(self, eqn: Equation) -> None:
        """Append another equation after the groups that it reads."""
        for a in eqn.inputs:
            group = self.group_of.get(a)
            if group is not None and group.open:
                self.close(group)
        self.out.append(eqn)

    def close(self, group: _Group) -> None:
        """Append a group as one equation."""
        group.open = False
        del self.order[group]
        self.out.append(_as_equation(group, self.uses))


def _as_equation(group: _Group, uses: dict[Any, int]) -> Equation:
    if len(group.eqns) == 1:
        return group.eqns[0]
    inside: dict[Any, int] = {}
    for eqn in group.eqns:
        for a in eqn.inputs:
            inside[a] = inside.get(a, 0) + 1
    outs = [v for e in group.eqns for v in e.outputs if uses.get(v, 0) > inside.get(v, 0)]
    inputs: dict[Var, None] = {}
    for eqn in group.eqns:
        inputs.update(dict.fromkeys([a for a in eqn.inputs if isinstance(a, Var) and a not in group.made]))
    body = Graph(list(inputs), group.eqns, outs)
    return Equation(Fused(body), list(inputs), outs, group.eqns[-1].site)


def fusible(eqn: Equation) -> bool:
    """Whether an equation may be part of a group."""
    return isinstance(eqn.prim, Pointwise) and eqn.outputs[0].aval.size > 0


def fuse(graph: Graph) -> Graph:
    """Return the graph with its chains of pointwise equations fused; needs an inlined graph without dead equations."""
    if "fuse" not in graph.memo:
        fuser = _Fuser(graph)
        for eqn in graph.eqns:
            if fusible(eqn):
                fuser.add(eqn)
            else:
                fuser.place(eqn)
        for group in list(fuser.order):
            fuser.close(group)
        graph.memo["fuse"] = Graph(graph.inputs, fuser.out, graph.outputs, graph.name)
    found: Graph = graph.memo["fuse"]
    return found


def unfuse(eqns: Sequence[Equation]) -> list[Equation]:
    """Return the equations with the fused ones taken apart, for reports by operation."""
    out: list[Equation] = []
    for eqn in eqns:
        out += list(eqn.prim.graph.eqns) if isinstance(eqn.prim, Fused) else [eqn]
    return out
