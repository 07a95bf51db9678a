"""Dead code inside loops and branches: results that nobody reads, and the operands that only they need."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from funcgrad.control.hoist import free_variables
from funcgrad.ir import Graph, Var
from funcgrad.passes.simplify import eliminate

if TYPE_CHECKING:
    from funcgrad.control.branch import Cond
    from funcgrad.control.loops import Scan, While

# A primitive, and the positions of the operands and results that it keeps; None when there is nothing to drop.
Pruned = tuple[Any, list[int], list[int]] | None


def live_inputs(graph: Graph, used: Sequence[bool]) -> tuple[Graph, list[bool]]:
    """The graph with the marked outputs only, and which of its inputs it still reads."""
    outs = [a for a, u in zip(graph.outputs, used, strict=True) if u]
    eqns = eliminate(graph.eqns, outs)
    reads = set(free_variables(eqns, outs, ()))
    return Graph(graph.inputs, eqns, outs, graph.name), [v in reads for v in graph.inputs]


def restrict(graph: Graph, keep: Sequence[bool]) -> Graph:
    """The graph without the inputs that are not marked, which it does not read."""
    inputs: list[Var] = [v for v, k in zip(graph.inputs, keep, strict=True) if k]
    return Graph(inputs, graph.eqns, graph.outputs, graph.name)


def positions(marks: Sequence[bool]) -> list[int]:
    """Where the marks are."""
    return [i for i, m in enumerate(marks) if m]


def remember(prune: Callable[[Any, Sequence[bool]], Pruned]) -> Callable[[Any, Sequence[bool]], Pruned]:
    """Prune each primitive once per choice of results."""

    @functools.wraps(prune)
    def remembered(prim: Any, used: Sequence[bool]) -> Pruned:
        memo: dict[tuple[bool, ...], Pruned] = prim.pruned
        key = tuple(used)
        if key not in memo:
            memo[key] = prune(prim, key)
        return memo[key]

    return remembered


@remember
def prune_scan(scan: Scan, used: Sequence[bool]) -> Pruned:
    """A scan that makes the marked results only; a carry stays if a result of some step needs it."""
    first, k = scan.num_consts, scan.num_carry
    live = list(used[:k])
    while True:
        body, reads = live_inputs(scan.body, [*live, *used[k:]])
        more = [a or b for a, b in zip(live, reads[first : first + k], strict=True)]
        if more == live:
            break
        live = more
    keep = [*reads[:first], *live, *reads[first + k :]]
    outs = positions([*live, *used[k:]])
    if all(keep) and len(outs) == len(used):
        return None
    prim = replace(scan, body=restrict(body, keep), num_consts=sum(keep[:first]), num_carry=sum(live))
    return prim, positions(keep), outs


@remember
def prune_while(loop: While, used: Sequence[bool]) -> Pruned:
    """A loop that carries only what its condition and the marked results need."""
    n_cond, n_body = loop.cond_nconsts, loop.body_nconsts
    cond, tests = live_inputs(loop.cond, [True])
    live = [a or b for a, b in zip(used, tests[n_cond:], strict=True)]
    while True:
        body, reads = live_inputs(loop.body, live)
        more = [a or b for a, b in zip(live, reads[n_body:], strict=True)]
        if more == live:
            break
        live = more
    consts = [*tests[:n_cond], *reads[:n_body]]
    if all(consts) and all(live):
        return None
    cond, body = restrict(cond, [*tests[:n_cond], *live]), restrict(body, [*reads[:n_body], *live])
    prim = replace(loop, cond=cond, body=body, cond_nconsts=sum(tests[:n_cond]), body_nconsts=sum(reads[:n_body]))
    return prim, positions([*consts, *live]), positions(live)


@remember
def prune_cond(branch: Cond, used: Sequence[bool]) -> Pruned:
    """A cond that makes the marked results only, from the operands that some branch needs for them."""
    pairs = [live_inputs(b, used) for b in branch.branches]
    keep = [any(marks) for marks in zip(*[reads for _, reads in pairs], strict=True)]
    if all(keep) and all(used):
        return None
    prim = replace(branch, branches=tuple([restrict(g, keep) for g, _ in pairs]))
    return prim, positions([True, *keep]), positions(used)
