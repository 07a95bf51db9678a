"""linearize of Scan: its jvp in two halves, a scan of values that saves what the tangents need, and a scan of tangents.

In: ``carry, ys = scan(body, consts, carry, xs)``.  Out: the same scan with residuals stacked behind ``ys``, and a scan
in the same direction whose carry is the tangent of the carry.  What is saved is chosen as in reverse mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from funcgrad import dtypes
from funcgrad.control.hoist import free_variables, reads_of
from funcgrad.control.scan_reverse import kept_rows, sources
from funcgrad.ir import Atom, Equation, Graph, Var
from funcgrad.passes.forward import jvp_graph
from funcgrad.passes.reverse import split
from funcgrad.passes.simplify import eliminate, simplify
from funcgrad.primitive import zeros
from funcgrad.trace import bind_all, replay

if TYPE_CHECKING:
    from funcgrad.control.loops import Scan


def moving_inputs(scan: Scan, mask: Sequence[bool], joint: bool = True) -> tuple[tuple[bool, ...], list[bool], Graph]:
    """Which inputs of the body have a tangent in some step, which of its outputs, and the body's jvp.

    ``mask`` marks the operands with a tangent.
    """
    body, first, k = scan.body, scan.num_consts, scan.num_carry
    marks = [m and dtypes.is_float(v.aval.dtype) for m, v in zip(mask, body.inputs, strict=True)]
    while True:
        graph, known = jvp_graph(body, marks, joint)
        it = iter(known)
        moves = [next(it) if dtypes.is_float(a.aval.dtype) else False for a in body.outputs]
        more = [a or b for a, b in zip(marks[first : first + k], moves[:k], strict=True)]
        if more == marks[first : first + k]:
            return tuple(marks), moves, graph
        marks[first : first + k] = more


@dataclass(frozen=True, eq=False)
class Plan:
    """The two halves, and which values are the operands of the scan of tangents, in order."""

    forward: Graph
    body: Graph
    marks: tuple[bool, ...]
    rows: list[bool]
    invariant: Graph
    consts: list[Var]
    saved: list[Var]
    kept: dict[Var, int]


def linear_halves(scan: Scan, mask: Sequence[bool]) -> tuple[Scan, Callable[..., list[Any]]]:
    """The scan that also stacks residuals, and the tangents as a function of tangents, its results and operands."""
    memo = scan.body.memo
    key = ("scan linear halves", scan.num_consts, scan.num_carry, tuple(mask))
    if key not in memo:
        memo[key] = _plan(scan, mask)
    plan: Plan = memo[key]

    def push(ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        return _push(scan, plan, ts, outs, xs)

    return replace(scan, body=plan.forward), push


def _plan(scan: Scan, mask: Sequence[bool]) -> Plan:
    body, first, k = scan.body, scan.num_consts, scan.num_carry
    marks, moves, graph = moving_inputs(scan, mask, joint=False)
    graph = simplify(graph)
    n, num_in = len(body.outputs), len(body.inputs)
    parts = split(graph, sum(marks), n)
    rows = {a: i for i, a in enumerate(parts.early.outputs[:n]) if i >= k and isinstance(a, Var)}
    invariant, again, saved = sources(parts.early, first, k, parts.crossing, rows)
    outs = [*parts.early.outputs[:n], *saved]
    forward = Graph(body.inputs, eliminate(parts.early.eqns, outs), outs, body.name)
    kept = kept_rows(body, first, k, invariant, rows, saved)
    ts = dict(zip([i for i, m in enumerate(marks) if m], graph.inputs[num_in:], strict=True))
    it = iter(graph.outputs[n:])
    t_outs = [next(it) if dtypes.is_float(a.aval.dtype) else None for a in body.outputs]
    wanted = [*marks[first : first + k], *moves[k:]]
    late: list[Atom] = [t for t, w in zip(t_outs, wanted, strict=True) if w and t is not None]
    late_eqns = eliminate(parts.late.eqns, late)
    used = eliminate(again, [*reads_of(late_eqns), *late], given=list(kept))
    eqns: list[Equation] = [*used, *late_eqns]
    reads = free_variables(eqns, late, list(ts.values()))
    own, seqs = set(body.inputs[:first]), set(body.inputs[first + k :])
    consts, stacked = [v for v in reads if v in own], [v for v in reads if v in kept or v in seqs]
    hoisted = [v for v in reads if v not in own and v not in kept and v not in seqs]
    before = Graph(body.inputs[:first], eliminate(invariant, hoisted), hoisted, body.name)
    t_in = [[t for i, t in ts.items() if a <= i < b] for a, b in ((0, first), (first, first + k), (first + k, num_in))]
    inputs = [*consts, *hoisted, *t_in[0], *t_in[1], *stacked, *t_in[2]]
    linear = simplify(Graph(inputs, eqns, late, f"linear({body.name})"))
    return Plan(forward, linear, marks, moves[k:], before, consts, stacked, kept)


def _push(scan: Scan, plan: Plan, ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
    first, k = scan.num_consts, scan.num_carry
    at: dict[Any, Any] = dict(zip(scan.body.inputs, xs, strict=True))
    at.update([(v, outs[i]) for v, i in plan.kept.items()])
    triples = zip(ts, xs, plan.marks, strict=True)
    dense = [None if not m else zeros(x.aval) if t is None else t for t, x, m in triples]
    t_in = [[t for t in dense[a:b] if t is not None] for a, b in ((0, first), (first, first + k), (first + k, None))]
    consts = [*[at[v] for v in plan.consts], *replay(plan.invariant, xs[:first]), *t_in[0]]
    seqs = [*[at[v] for v in plan.saved], *t_in[2]]
    prim = replace(scan, body=plan.body, num_consts=len(consts), num_carry=len(t_in[1]))
    it = iter(bind_all(prim, *consts, *t_in[1], *seqs))
    return [next(it) if m else None for m in (*plan.marks[first : first + k], *plan.rows)]
