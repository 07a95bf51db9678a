"""Loops as plain Python, for ``disable_jit``: the body sees values, and may print them or stop in a debugger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad.lax.staging import Step, promoted
from funcgrad.prims.layout import concatenate, expand, reshape, slice_along
from funcgrad.transforms.flat import materialize


def row_of(x: Any, i: int) -> Any:
    """Row i of an array."""
    return reshape(slice_along(x, 0, i, i + 1), x.aval.shape[1:])


def stack_rows(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """One array per result from the results of all steps."""
    return [concatenate([expand(materialize(y), 0) for y in column], 0) for column in zip(*rows, strict=True)]


def scan_in_python(
    step: Step, init: Sequence[Any], seqs: Sequence[Any], length: int, backwards: bool
) -> tuple[list[Any], list[Any]]:
    """The final carry and the stacked outputs of a scan, with the same checks in each step."""
    k = len(init)
    carry = step.start(init, [x.aval for x in seqs])
    rows: list[list[Any]] = [[] for _ in range(length)]
    for i in range(length)[:: -1 if backwards else 1]:
        x = [row_of(s, i) for s in seqs]
        outs = step(*[materialize(c) for c in carry], *x)
        wider = [promoted(c, o.aval.dtype) for c, o in zip(carry, outs, strict=False)]
        if any(a.aval != b.aval for a, b in zip(wider, carry, strict=True)):
            # The first step gave a Python scalar's place another type: the step starts again with that.
            outs = step(*[materialize(c) for c in wider], *x)
        step.check_types([c.aval for c in wider], [o.aval for o in outs[:k]])
        carry, rows[i] = outs[:k], outs[k:]
    return [materialize(x) for x in carry], stack_rows(rows)


def while_in_python(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], val: Any) -> Any:
    """The value after the loop."""
    while cond_fun(val):
        val = body_fun(val)
    return val
