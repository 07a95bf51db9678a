"""Turn: matrices that every step of a loop multiplies few rows by, along their rows, are transposed before the loop.

In: a body with ``y = dot_general(rhs_contract=(1,)) x w`` and w among its consts.  Out: ``dot_general
(rhs_contract=(0,)) x u`` where u is w transposed.  A product packs such a matrix by moving its elements one by one; for
few rows that takes half as long as the product, in every step.  The derivative of ``x @ w`` is such a product.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from funcgrad.ir import Aval, Equation, Graph, Var

__all__ = ["LEAST_STEPS", "turned"]

LEAST_STEPS = 8
SIZES = range(1 << 10, 1 << 22)  # of a matrix: a smaller one is not packed, a larger one is not in the cache
MOST_ROWS = 64


def turned(body: Graph, num_consts: int) -> tuple[Graph, list[int]]:
    """The body with such consts transposed, and their numbers."""
    key = ("turned", num_consts)
    if key not in body.memo:
        body.memo[key] = _turned(body, num_consts)
    found: tuple[Graph, list[int]] = body.memo[key]
    return found


def _turned(body: Graph, num_consts: int) -> tuple[Graph, list[int]]:
    wanted = {v for v in body.inputs[:num_consts] if v.aval.ndim == 2 and v.aval.size in SIZES}
    wanted -= set(body.outputs)
    used: set[Any] = set()
    for eqn in body.eqns:
        for k, a in enumerate(eqn.inputs):
            if a in wanted:
                used.add(a)
                if not _is_along_rows(eqn, k):
                    wanted.discard(a)
    wanted &= used
    if not wanted:
        return body, []
    new = {v: Var(Aval(v.aval.shape[::-1], v.aval.dtype)) for v in body.inputs[:num_consts] if v in wanted}
    eqns = [_with(eqn, new) if any(a in new for a in eqn.inputs) else eqn for eqn in body.eqns]
    inputs = [new.get(v, v) for v in body.inputs]
    return Graph(inputs, eqns, body.outputs, body.name), [i for i, v in enumerate(body.inputs) if v in new]


def _is_along_rows(eqn: Equation, k: int) -> bool:
    """Whether the equation is a product that sums over the last axis of operand k, for few rows of the other."""
    if eqn.prim.name != "dot_general" or eqn.inputs[0] is eqn.inputs[1]:
        return False
    p = vars(eqn.prim)
    mine, other = ("lhs", "rhs") if k == 0 else ("rhs", "lhs")
    if p[f"{mine}_contract"] != (1,) or p[f"{mine}_batch"]:
        return False
    shape = eqn.inputs[1 - k].aval.shape
    return math.prod([n for d, n in enumerate(shape) if d not in p[f"{other}_contract"]]) <= MOST_ROWS


def _with(eqn: Equation, new: dict[Var, Var]) -> Equation:
    prim: Any = eqn.prim
    for a, contract in zip(eqn.inputs, ("lhs_contract", "rhs_contract"), strict=True):
        if a in new:
            prim = replace(prim, **{contract: (0,)})
    return Equation(prim, [new.get(a, a) if isinstance(a, Var) else a for a in eqn.inputs], eqn.outputs, eqn.site)
