"""Products that a scan's backward half adds up over its steps, taken out of the loop: one product over all steps.

In: ``total + dot(x_t, g_t)`` in each step.  Out: ``dot(x, g)`` of the stacked rows behind the loop, summed over the
steps too: a weight's gradient is one large product instead of many small ones and their sums.  The rows are those saved
for the way back, results of the loop in any case, or stacked for this when they are no more than those.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from funcgrad.ir import Aval, Equation, Var, count_uses
from funcgrad.primitive import Primitive
from funcgrad.prims.pointwise import add, convert
from funcgrad.trace import bind_all

__all__ = ["Product", "combine", "products"]

MOST_SUMMED = 512  # products that sum over more in each step are large already: no rows are stacked for them


class Product(NamedTuple):
    """dot_general of two values of one step."""

    prim: Primitive
    xs: tuple[Var, Var]


def products(
    grads: Mapping[Var, Any],
    eqns: Sequence[Equation],
    sums: Sequence[Var],
    stacked: Collection[Var],
    given: Collection[Var],
    room: int,
) -> tuple[dict[Var, list[Product]], list[Var]]:
    """What to take out: for variables of ``sums`` the products that their gradients add up, and rows to stack for that.

    ``stacked`` are variables that have a row per step, ``given`` others that a step starts with; ``room`` bytes may be
    added to each step's rows.
    """
    made = {v: e for e in eqns for v in e.outputs}
    uses = count_uses(eqns, grads.values())
    found: dict[Var, list[Product]] = {}
    rows: dict[Var, None] = {}
    for v in sums:
        terms = _terms(grads[v], made, uses)
        if terms is None or any(not (x in made or x in stacked or x in given) for p in terms for x in p.xs):
            continue
        more = [x for p in terms for x in p.xs if x not in stacked and x not in rows]
        nbytes = sum(x.aval.nbytes for x in dict.fromkeys(more))
        if nbytes <= room and (not more or all(_summed(p) <= MOST_SUMMED for p in terms)):
            found[v] = terms
            rows.update(dict.fromkeys(more))
            room -= nbytes
    return found, list(rows)


def _terms(grad: Any, made: Mapping[Any, Equation], uses: Mapping[Any, int]) -> list[Product] | None:
    """A gradient as a sum of products, or None when it is something else."""
    eqn = made.get(grad)
    if eqn is None or uses[grad] != 1:
        return None
    if eqn.prim.name == "add" and all(a.aval == grad.aval for a in eqn.inputs):
        x, y = [_terms(a, made, uses) for a in eqn.inputs]
        return None if x is None or y is None else x + y
    if eqn.prim.name != "dot_general":
        return None
    a, b = eqn.inputs
    p = vars(eqn.prim)
    leading = all(sorted(d) == list(range(len(d))) for d in (p["lhs_contract"], p["rhs_contract"]))
    return [Product(eqn.prim, (a, b))] if leading and isinstance(a, Var) and isinstance(b, Var) else None


def _summed(p: Product) -> int:
    """Over how many elements a product sums in each step."""
    n = 1
    for d in vars(p.prim)["lhs_contract"]:
        n *= p.xs[0].aval.shape[d]
    return n


def combine(terms: Sequence[Product], stacks: Mapping[Var, Any], aval: Aval) -> Any:
    """The sum over all steps, from each variable's stacked rows."""
    total: Any = None
    for p in terms:
        moved = {k: tuple([d + 1 for d in v]) for k, v in vars(p.prim).items() if k.endswith(("_contract", "_batch"))}
        moved["lhs_contract"], moved["rhs_contract"] = (0, *moved["lhs_contract"]), (0, *moved["rhs_contract"])
        prim: Any = replace(p.prim, **moved)
        (made,) = bind_all(prim, *[stacks[x] for x in p.xs])
        made = convert(made, aval.dtype)
        total = made if total is None else add(total, made)
    return total
