"""Reverse mode of Scan: the body's vjp in halves, one for a forward scan that saves residuals, one for a scan back.

In: ``carry, ys = scan(body, consts, carry, xs)``.  Out: the same scan with residuals stacked behind ``ys``, and a scan
in the opposite direction whose carry is the cotangent of the carry and the sum of the cotangents of ``consts``.  A
value that the way back reads comes from where it costs least:

- a row of ``xs`` or ``ys``: from the stacked array, which exists already
- what depends on consts only: computed once more, outside the loop
- what cheap operations make of the above and of saved values: computed again in each step
- everything else: saved, one row per step
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from funcgrad import dtypes
from funcgrad.control.hoist import CHEAP, LAYOUT, free_variables, reads_of
from funcgrad.control.scan_products import Product, combine, products
from funcgrad.ir import Atom, Aval, Equation, Graph, Literal, Var
from funcgrad.passes.reverse import active_variables, split, vjp_graph
from funcgrad.passes.simplify import eliminate, simplify
from funcgrad.primitive import zeros
from funcgrad.prims.layout import Broadcast
from funcgrad.prims.pointwise import Add, Convert, convert
from funcgrad.trace import bind_all, replay

if TYPE_CHECKING:
    from funcgrad.control.loops import Scan


def active_operands(scan: Scan, mask: Sequence[bool]) -> tuple[bool, ...]:
    """``mask`` with the carries that come to depend on marked operands in some step marked as well."""
    body, first, last = scan.body, scan.num_consts, scan.num_consts + scan.num_carry
    marks = list(mask)
    while True:
        active = active_variables(body, marks)
        more = [m or a in active for m, a in zip(marks[first:last], body.outputs, strict=False)]
        if more == marks[first:last]:
            return tuple([m and dtypes.is_float(v.aval.dtype) for m, v in zip(marks, body.inputs, strict=True)])
        marks[first:last] = more


@dataclass(frozen=True, eq=False)
class Plan:
    """How one scan runs backward with respect to the inputs of its body marked in ``wrt``.

    ``kept`` are the variables there is a row of per step, and which of ``forward``'s outputs it is; ``invariant``
    makes what depends on consts only, ``again`` what is computed again per step, ``late`` the gradients ``grads``
    from the cotangents ``ct_carry`` and ``ct_rows`` (by output position).
    """

    wrt: tuple[bool, ...]
    forward: Graph
    kept: dict[Var, int]
    invariant: list[Equation]
    again: list[Equation]
    late: list[Equation]
    grads: dict[Var, Atom]
    ct_carry: dict[int, Var]
    ct_rows: dict[int, Var]


def halves(scan: Scan, mask: Sequence[bool]) -> tuple[Scan, Callable[..., list[Any]]]:
    """The scan that also stacks residuals, and the way back: a function of cotangents, its results and operands."""
    memo = scan.body.memo
    key = ("scan halves", scan.num_consts, scan.num_carry, tuple(mask))
    if key not in memo:
        memo[key] = _plan(scan, mask)
    plan: Plan = memo[key]

    def backward(ct: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        return _run_backward(scan, plan, mask, ct, outs, xs)

    return replace(scan, body=plan.forward), backward


def _plan(scan: Scan, mask: Sequence[bool]) -> Plan:
    body, first, k = scan.body, scan.num_consts, scan.num_carry
    wrt = active_operands(scan, mask)
    active = active_variables(body, wrt)
    with_ct = [*wrt[first : first + k], *[a in active for a in body.outputs[k:]]]
    joint = simplify(vjp_graph(body, wrt, with_ct))
    n = len(body.outputs)
    parts = split(joint, sum(with_ct), n)
    rows = {a: i for i, a in enumerate(parts.early.outputs[:n]) if i >= k and isinstance(a, Var)}
    invariant, again, saved = sources(parts.early, first, k, parts.crossing, rows)
    outs = [*parts.early.outputs[:n], *saved]
    kept = kept_rows(body, first, k, invariant, rows, saved)
    forward = Graph(body.inputs, eliminate(parts.early.eqns, outs), outs, body.name)
    marked = [v for v, w in zip(body.inputs, wrt, strict=True) if w]
    cts = dict(zip([i for i, c in enumerate(with_ct) if c], joint.inputs[len(body.inputs) :], strict=True))
    return Plan(
        wrt,
        forward,
        kept,
        invariant,
        again,
        list(parts.late.eqns),
        dict(zip(marked, joint.outputs[n:], strict=True)),
        {i: v for i, v in cts.items() if i < k},
        {i: v for i, v in cts.items() if i >= k},
    )


def sources(
    early: Graph, num_consts: int, num_carry: int, crossing: Sequence[Var], rows: Collection[Var]
) -> tuple[list[Equation], list[Equation], list[Var]]:
    """Sort the early equations: those of consts only, those cheap enough to run again; and the variables to save.

    ``rows`` are stacked anyway: they are results of the scan.
    """
    carry = set(early.inputs[num_consts : num_consts + num_carry])
    fixed: set[Any] = set(early.inputs[:num_consts])
    saved = [v for v in crossing if v in carry and v not in rows]
    there = set(early.inputs) - carry | set(saved) | set(rows)
    wanted = set(crossing) - set(rows)
    invariant, again = [], []
    for eqn in early.eqns:
        reads = reads_of([eqn])
        cheap = eqn.prim.name in CHEAP
        if all(a in fixed for a in reads):
            invariant.append(eqn)
            fixed.update(eqn.outputs)
            if eqn.prim.name in LAYOUT or (cheap and not reads):
                again.append(eqn)
        elif cheap and all(a in there for a in reads):
            again.append(eqn)
        else:
            saved += [v for v in eqn.outputs if v in wanted]
            there.update(v for v in eqn.outputs if v in wanted)
            continue
        there.update(eqn.outputs)
    return invariant, again, saved


def kept_rows(
    body: Graph, first: int, k: int, invariant: Sequence[Equation], rows: dict[Var, int], saved: Sequence[Var]
) -> dict[Var, int]:
    """The variables there is a row of per step, and which output that is: of the body, or saved behind those."""
    elsewhere = {v for e in invariant for v in e.outputs} | {*body.inputs[:first], *body.inputs[first + k :]}
    n = len(body.outputs)
    return {v: i for v, i in rows.items() if v not in elsewhere} | {v: n + i for i, v in enumerate(saved)}


@dataclass(frozen=True, eq=False)
class Backward:
    """A scan back for one pattern of cotangents: its body, and which values are its operands and results, in order."""

    body: Graph
    invariant: Graph
    consts: list[Var]
    carry: list[int]
    sums: list[Var]
    saved: list[Var]
    ct_rows: list[int]
    rows: list[Var]
    products: dict[Var, list[Product]]  # gradients that are made behind the loop, of rows of ``stacked`` and others
    stacked: list[Var]
    row_values: dict[Var, Atom]  # what the rows are inside the loop


def _run_backward(
    scan: Scan, plan: Plan, mask: Sequence[bool], ct: Sequence[Any], results: Sequence[Any], xs: Sequence[Any]
) -> list[Any]:
    carry = tuple([i for i in plan.ct_carry if ct[i] is not None])
    rows = tuple([i for i in plan.ct_rows if ct[i] is not None])
    if not carry and not rows:
        return [None] * len(xs)
    key = ("scan backward", id(plan), carry, rows)
    memo = scan.body.memo
    if key not in memo:
        memo[key] = _backward(scan, plan, carry, rows)
    back: Backward = memo[key]
    at: dict[Any, Any] = dict(zip(scan.body.inputs, xs, strict=True))
    invariant = replay(back.invariant, xs[: scan.num_consts])
    consts = [*[at[v] for v in back.consts], *invariant]
    at.update([(v, results[i]) for v, i in plan.kept.items()])
    init = [zeros(plan.ct_carry[i].aval) if ct[i] is None else ct[i] for i in back.carry]
    init += [zeros(_sum_aval(v.aval)) for v in back.sums]
    seqs = [*[at[v] for v in back.saved], *[ct[i] for i in back.ct_rows]]
    prim = replace(scan, body=back.body, num_consts=len(consts), num_carry=len(init), reverse=not scan.reverse)
    outs = bind_all(prim, *consts, *init, *seqs)
    first = scan.num_consts
    names = [*[scan.body.inputs[first + i] for i in back.carry], *back.sums, *back.rows]
    grads = dict(zip(names, outs, strict=False))
    at.update(zip(back.stacked, outs[len(names) :], strict=True))
    at.update([(plan.ct_rows[i], ct[i]) for i in back.ct_rows])
    at.update([(a, grads[v]) for v, a in back.row_values.items()])
    grads.update({v: combine(terms, at, _sum_aval(v.aval)) for v, terms in back.products.items()})
    found = [grads.get(v) if m else None for v, m in zip(scan.body.inputs, mask, strict=True)]
    return [None if g is None else convert(g, x.aval.dtype) for g, x in zip(found, xs, strict=True)]


def _backward(scan: Scan, plan: Plan, carry: Sequence[int], rows: Sequence[int]) -> Backward:
    body, first, k = scan.body, scan.num_consts, scan.num_carry
    live, eqns, grads = _nonzero(scan, plan, carry, rows)
    sums = [v for v in body.inputs[:first] if grads.get(v) is not None]
    out_rows = [v for v in body.inputs[first + k :] if grads.get(v) is not None]
    later, stacked = _later(scan, plan, eqns, grads, live, rows)
    sums = [v for v in sums if v not in later]
    grads = {v: a for v, a in grads.items() if v not in later}
    eqns = eliminate(eqns, [*grads.values(), *stacked])
    again = eliminate(plan.again, [*reads_of(eqns), *grads.values(), *stacked], given=list(plan.kept))
    ct_inputs = [*[plan.ct_carry[i] for i in live], *[plan.ct_rows[i] for i in rows]]
    reads = free_variables([*again, *eqns], [*grads.values(), *stacked], ct_inputs)
    consts = [v for v in reads if v in set(body.inputs[:first])]
    kept, seqs = set(plan.kept), set(body.inputs[first + k :])
    saved = [v for v in reads if v in kept or v in seqs]
    hoisted = [v for v in reads if v not in set(consts) | kept | seqs]
    invariant = Graph(body.inputs[:first], eliminate(plan.invariant, hoisted), hoisted, body.name)
    ends: list[Equation] = []
    totals = [Var(_sum_aval(v.aval)) for v in sums]
    out: list[Atom] = [_or_zeros(grads.get(body.inputs[first + i]), plan.ct_carry[i].aval, ends) for i in live]
    out += [_accumulate(t, grads[v], ends) for t, v in zip(totals, sums, strict=True)]
    out += [*[grads[v] for v in out_rows], *stacked]
    inputs = [*consts, *hoisted, *[plan.ct_carry[i] for i in live], *totals, *saved, *[plan.ct_rows[i] for i in rows]]
    graph = Graph(inputs, [*again, *eqns, *ends], out, f"vjp({body.name})")
    values = {v: grads[v] for v in out_rows}
    return Backward(
        simplify(graph), invariant, consts, list(live), sums, saved, list(rows), out_rows, later, stacked, values
    )


def _later(
    scan: Scan, plan: Plan, eqns: Sequence[Equation], grads: dict[Var, Atom], live: Sequence[int], rows: Sequence[int]
) -> tuple[dict[Var, list[Product]], list[Var]]:
    """The gradients of consts that are products of rows, made behind the loop, and the rows to stack for them."""
    first, last = scan.num_consts, scan.num_consts + scan.num_carry
    seqs = scan.body.inputs[last:]
    stacks = {*seqs, *plan.kept, *[plan.ct_rows[i] for i in rows]}
    results = {a for v in seqs if isinstance(a := grads.get(v), Var)}
    room = sum([v.aval.nbytes for v in stacks | results])
    sums = [v for v in scan.body.inputs[:first] if grads.get(v) is not None]
    return products(grads, [*plan.again, *eqns], sums, stacks | results, [plan.ct_carry[i] for i in live], room)


def _sum_aval(aval: Aval) -> Aval:
    """The type in which cotangents of a const are added up over the steps: at least float32."""
    return Aval(aval.shape, dtypes.float32) if aval.dtype in dtypes.HALVES else aval


def _accumulate(total: Var, grad: Atom, eqns: list[Equation]) -> Var:
    if grad.aval != total.aval:
        wide = Var(total.aval)
        eqns.append(Equation(Convert(total.aval.dtype), [grad], [wide]))
        grad = wide
    out = Var(total.aval)
    eqns.append(Equation(Add(), [total, grad], [out]))
    return out


def _or_zeros(grad: Atom | None, aval: Aval, eqns: list[Equation]) -> Atom:
    if grad is not None:
        return grad
    if not aval.shape:
        return Literal(0, aval.dtype)
    out = Var(aval)
    eqns.append(Equation(Broadcast(aval.shape, ()), [Literal(0, aval.dtype)], [out]))
    return out


# -- cotangents that are zero ------------------------------------------------------------------------------------
def _nonzero(
    scan: Scan, plan: Plan, carry: Sequence[int], rows: Sequence[int]
) -> tuple[list[int], list[Equation], dict[Var, Atom]]:
    """The carries with a cotangent in some step, and the late equations without those whose results are always zero."""
    first = scan.num_consts
    live = list(carry)
    while True:
        zero = {v for i, v in plan.ct_carry.items() if i not in live}
        zero |= {v for i, v in plan.ct_rows.items() if i not in rows}
        eqns, grads = drop_zeros(plan.late, plan.grads, [*plan.ct_carry.values(), *plan.ct_rows.values()], zero)
        grown = [i for i in plan.ct_carry if i in live or scan.body.inputs[first + i] in grads]
        if grown == live:
            return live, eliminate(eqns, list(grads.values())), grads
        live = grown


def drop_zeros(
    eqns: Sequence[Equation], outputs: dict[Var, Atom], cts: Sequence[Var], zero: Iterable[Var]
) -> tuple[list[Equation], dict[Var, Atom]]:
    """Return equations that are linear in ``cts`` without those that give zero, and the outputs that may be nonzero.

    In: ``{ d = mul ct_a w; e = add d ct_b; return e }`` with ``ct_a`` zero.  Out: ``{ return ct_b }``.
    """
    zeros_, depends = set(zero), set(cts)
    same: dict[Var, Atom] = {}
    out: list[Equation] = []
    for eqn in eqns:
        inputs = [same.get(a, a) if isinstance(a, Var) else a for a in eqn.inputs]
        empty = [a for a in inputs if isinstance(a, Var) and a in zeros_]
        full = [a for a in inputs if isinstance(a, Var) and a in depends and a not in zeros_]
        depends.update(eqn.outputs)
        if not full and not eqn.prim.effectful:
            zeros_.update(eqn.outputs)
        elif empty and isinstance(eqn.prim, Add) and len(full) == 1 and full[0].aval == eqn.outputs[0].aval:
            same[eqn.outputs[0]] = full[0]
        else:
            inputs = [_or_zeros(None, a.aval, out) if a in empty else a for a in inputs]
            unchanged = all(a is b for a, b in zip(inputs, eqn.inputs, strict=True))
            out.append(eqn if unchanged else Equation(eqn.prim, inputs, eqn.outputs, eqn.site))
    left = {v: same.get(a, a) for v, a in outputs.items() if isinstance(a, Var) and a in depends and a not in zeros_}
    return out, left
