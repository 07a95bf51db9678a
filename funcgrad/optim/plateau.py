"""A scale that falls when the loss stops improving."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.optim.base import (
    Optimizer,
    OptimizerExtraArgs,
    Scalar,
    State,
    Tree,
    cast,
    is_number,
    require,
    scaled,
    zero_count,
)

__all__ = ["ReduceLROnPlateauState", "reduce_on_plateau"]


class ReduceLROnPlateauState(NamedTuple):
    """Scale and best value (float32), counts (int32), and the mean of the values since the last comparison."""

    scale: Any
    best_value: Any
    plateau_count: Any
    cooldown_count: Any
    count: Any
    avg_value: Any


def reduce_on_plateau(
    factor: float = 0.1,
    patience: Scalar = 10,
    rtol: float = 1e-4,
    atol: float = 0.0,
    cooldown: Scalar = 0,
    accumulation_size: Scalar = 1,
    min_scale: Scalar = 0.0,
) -> Optimizer:
    """Multiply updates by a scale that falls by ``factor`` when ``value`` has not improved for ``patience`` checks.

    Put it last in a chain and give ``update(grads, state, params, value=loss)``. A check compares the mean of
    ``accumulation_size`` values with the best so far: an improvement is ``mean < (1 - rtol) * best - atol``. After a
    reduction ``cooldown`` checks are not counted. The scale never falls below ``min_scale``.

    >>> opt = reduce_on_plateau(0.5, patience=2)
    >>> state = opt.init(fnp.zeros(()))
    >>> for loss in (1.0, 1.0, 1.0):
    ...     updates, state = opt.update(fnp.ones(()), state, None, value=fnp.asarray(loss))
    >>> float(updates)
    0.5
    """
    op = "reduce_on_plateau"
    require(op, "(0, 1)", factor=factor)
    require(op, "[0, 1]", rtol=rtol)
    require(op, "[0, inf)", atol=atol, cooldown=cooldown, min_scale=min_scale)
    require(op, "[1, inf)", patience=patience, accumulation_size=accumulation_size)
    if is_number(rtol) and is_number(atol) and rtol == 0.0 and atol == 0.0:
        raise ValueError(f"{op}: rtol or atol must be positive, got {rtol} and {atol}")

    def init(params: Tree) -> State:
        one, best = fnp.ones((), dtype=fnp.float32), fnp.full((), math.inf, dtype=fnp.float32)
        return ReduceLROnPlateauState(
            one, best, zero_count(), zero_count(), zero_count(), fnp.zeros((), dtype=fnp.float32)
        )

    def update(grads: Tree, state: State, params: Tree = None, *, value: Any, **extra: Any) -> tuple[Tree, State]:
        count = state.count + 1
        seen = cast(count, fnp.float32)
        mean = (state.avg_value * (seen - 1.0) + cast(fnp.asarray(value), fnp.float32)) / seen
        due = count == accumulation_size
        better = mean < (1.0 - rtol) * state.best_value - atol
        waited = fnp.where(better, 0, state.plateau_count + 1)
        cooling = state.cooldown_count > 0
        reduce_now = fnp.logical_and(waited >= patience, fnp.logical_not(cooling))
        lower = fnp.maximum(fnp.where(reduce_now, state.scale * factor, state.scale), min_scale)
        cooled = fnp.where(cooling, state.cooldown_count - 1, fnp.where(reduce_now, cooldown, 0))
        kept = fnp.where(fnp.logical_or(cooling, reduce_now), 0, waited)
        new = ReduceLROnPlateauState(
            scale=fnp.where(due, fnp.where(cooling, state.scale, lower), state.scale),
            best_value=fnp.where(fnp.logical_and(due, better), mean, state.best_value),
            plateau_count=cast(fnp.where(due, kept, state.plateau_count), fnp.int32),
            cooldown_count=cast(fnp.where(due, cooled, state.cooldown_count), fnp.int32),
            count=cast(fnp.where(due, 0, count), fnp.int32),
            avg_value=fnp.where(due, 0.0, mean),
        )
        return tree.map(lambda g: scaled(new.scale, g), grads), new

    return OptimizerExtraArgs(init, update)
