"""Loop-invariant code motion: what a loop's body computes from its consts alone is computed once, before the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from funcgrad.ir import Atom, Equation, Graph, Var
from funcgrad.passes.simplify import eliminate

LAYOUT = frozenset({"reshape", "transpose", "broadcast", "slice", "reverse", "iota", "copy", "name"})
# What costs no more than writing its result to memory and reading it back.
CHEAP = LAYOUT | frozenset(
    {"add", "sub", "mul", "mul_nz", "neg", "abs", "sign", "square", "max", "min", "select", "convert", "stop_gradient"}
    | {"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "isfinite", "isnan"}
)


def reads_of(eqns: Iterable[Equation]) -> list[Var]:
    """The variables that equations read, in order."""
    return [a for e in eqns for a in e.inputs if isinstance(a, Var)]


def free_variables(eqns: Sequence[Equation], outputs: Sequence[Atom], given: Sequence[Var]) -> list[Var]:
    """The variables that the equations and outputs read and nobody here writes, once each."""
    written = {v for e in eqns for v in e.outputs} | set(given)
    reads = [*reads_of(eqns), *[a for a in outputs if isinstance(a, Var)]]
    return [v for v in dict.fromkeys(reads) if v not in written]


def hoist(body: Graph, num_consts: int) -> tuple[Graph, Graph]:
    """Return the invariant part as a graph of the consts, and the body that takes its results behind the consts.

    In: ``{ w, c . d = exp w; e = mul c d; return e }`` with one const.  Out: ``{ w . d = exp w; return d }`` and
    ``{ w, d, c . e = mul c d; return e }``.  What only moves elements or comes from literals stays where it is read: it
    costs nothing there.
    """
    consts, rest = body.inputs[:num_consts], body.inputs[num_consts:]
    fixed: set[Any] = set(consts)
    literal: set[Any] = set()
    invariant, stay = [], []
    for eqn in body.eqns:
        reads = reads_of([eqn])
        if eqn.prim.effectful or not all(a in fixed for a in reads):
            stay.append(eqn)
            continue
        fixed.update(eqn.outputs)
        invariant.append(eqn)
        from_literals = eqn.prim.name in CHEAP and all(a in literal for a in reads)
        if from_literals:
            literal.update(eqn.outputs)
        if from_literals or eqn.prim.name in LAYOUT:
            stay.append(eqn)
    eqns = eliminate(stay, body.outputs)
    found = free_variables(eqns, body.outputs, body.inputs)
    before = Graph(consts, eliminate(invariant, found), found, body.name)
    return before, Graph([*consts, *found, *rest], eqns, body.outputs, body.name)
