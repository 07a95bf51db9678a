"""Optimizers that keep a second copy of the parameters: lookahead and schedule-free averaging."""

from __future__ import annotations

from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.optim.accumulators import scale_by_rms
from funcgrad.optim.aliases import sgd
from funcgrad.optim.base import (
    Optimizer,
    OptimizerExtraArgs,
    Scalar,
    ScalarOrSchedule,
    State,
    Tree,
    apply_updates,
    cast,
    cast_tree,
    require,
    require_int,
    require_params,
    safe_increment,
    scaled,
    select,
    wide_dtype,
    with_extra_args_support,
    zero_count,
)
from funcgrad.optim.combine import chain
from funcgrad.optim.curves import warmup_constant
from funcgrad.optim.scaling import add_decayed_weights, scale_by_learning_rate

__all__ = [
    "LookaheadParams",
    "LookaheadState",
    "ScheduleFreeState",
    "lookahead",
    "schedule_free",
    "schedule_free_adamw",
    "schedule_free_eval_params",
    "schedule_free_sgd",
]


class LookaheadState(NamedTuple):
    """The state of the fast optimizer, and the steps since the last synchronisation (int32)."""

    fast_state: State
    steps_since_sync: Any


class LookaheadParams(NamedTuple):
    """The parameters that lookahead trains: ``fast`` ones that move every step and ``slow`` ones that follow.

    >>> params = LookaheadParams.init_synced(fnp.ones(()))
    >>> float(params.fast), float(params.slow)
    (1.0, 1.0)
    """

    fast: Tree
    slow: Tree

    @classmethod
    def init_synced(cls, params: Tree) -> LookaheadParams:
        """Fast and slow parameters that start equal."""
        return cls(fast=params, slow=tree.map(lambda p: fnp.array(p), params))  # a copy, so that both can be donated


def lookahead(
    fast_optimizer: Optimizer, sync_period: int, slow_step_size: Scalar, reset_state: bool = False
) -> Optimizer:
    """Every ``sync_period`` steps move the slow parameters towards the fast ones and set the fast ones back to them.

    Zhang et al. 2019, arXiv:1907.08610. ``params`` is a ``LookaheadParams``, ``grads`` are those of its fast part,
    and the updates are a ``LookaheadParams`` too. ``reset_state`` starts the fast optimizer anew at each
    synchronisation.

    >>> from funcgrad.optim.aliases import sgd
    >>> opt = lookahead(sgd(1.0), 1, 0.5)
    >>> params = LookaheadParams.init_synced(fnp.ones(()))
    >>> updates, state = opt.update(fnp.ones(()), opt.init(params), params)
    >>> float(apply_updates(params, updates).slow)
    0.5
    """
    require_int("lookahead", 1, sync_period=sync_period)
    require("lookahead", "[0, 1]", slow_step_size=slow_step_size)
    fast_optimizer = with_extra_args_support(fast_optimizer)

    def init(params: Tree) -> State:
        fast = params.fast if isinstance(params, LookaheadParams) else params
        return LookaheadState(fast_optimizer.init(fast), zero_count())

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        if not isinstance(params, LookaheadParams):
            raise TypeError(
                f"lookahead: params must be LookaheadParams, got {type(params).__name__}; "
                "use LookaheadParams.init_synced(params)"
            )
        updates, fast_state = fast_optimizer.update(grads, state.fast_state, params.fast, **extra)
        sync = state.steps_since_sync == sync_period - 1
        gap = tree.map(lambda f, u, s: fnp.where(sync, f + u - s, 0.0), params.fast, updates, params.slow)
        slow = tree.map(lambda d: scaled(slow_step_size, d), gap)
        fast = tree.map(lambda u, d: u - scaled(1.0 - slow_step_size, d), updates, gap)
        if reset_state:
            fast_state = select(sync, fast_optimizer.init(params.fast), fast_state)
        steps = cast(fnp.where(sync, 0, state.steps_since_sync + 1), fnp.int32)
        return LookaheadParams(fast=fast, slow=slow), LookaheadState(fast_state, steps)

    return OptimizerExtraArgs(init, update)


class ScheduleFreeState(NamedTuple):
    """Interpolation ``b1``, sum of weights, next step (int32, from 1), largest rate, inner state, and iterate ``z``."""

    b1: Any
    weight_sum: Any
    step_count: Any
    max_lr: Any
    base_optimizer_state: State
    z: Tree


def schedule_free_eval_params(state: ScheduleFreeState, params: Tree) -> Tree:
    """The averaged parameters, to evaluate with: ``(params - (1 - b1) * z) / b1``.

    >>> opt = schedule_free_sgd(0.5)
    >>> params = fnp.ones(())
    >>> float(schedule_free_eval_params(opt.init(params), params))
    1.0
    """
    if not isinstance(state, ScheduleFreeState):
        raise TypeError(f"schedule_free_eval_params: a ScheduleFreeState is required, got {type(state).__name__}")
    return _average(params, state.z, state.b1)


def _average(params: Tree, z: Tree, b1: Scalar) -> Tree:
    return tree.map(lambda y, zi: scaled(1.0 / b1, y - scaled(1.0 - b1, cast(zi, y.dtype))), params, z)


def schedule_free(
    base_optimizer: Optimizer,
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    weight_lr_power: Scalar = 2.0,
    state_dtype: Any = None,
) -> Optimizer:
    """Averaging in place of a schedule (Defazio et al. 2024, arXiv:2405.15682).

    With the base optimizer's iterate z and the weighted average x, gradients are taken at the parameters
    ``y = b1 * x + (1 - b1) * z``; weights are ``max_lr ** weight_lr_power``. ``learning_rate`` is the one that the
    base optimizer uses, and the base optimizer has no momentum. ``update`` needs the parameters. Evaluate with
    ``schedule_free_eval_params``.

    >>> from funcgrad.optim.aliases import sgd
    >>> opt = schedule_free(sgd(0.5), 0.5)
    >>> y = fnp.ones(())
    >>> updates, state = opt.update(fnp.ones(()), opt.init(y), y)
    >>> round(float(y + updates), 4), float(state.z)
    (0.5, 0.5)
    """
    require("schedule_free", "(0, 1]", b1=b1)
    require("schedule_free", "[0, inf)", learning_rate=learning_rate, weight_lr_power=weight_lr_power)
    base_optimizer = with_extra_args_support(base_optimizer)

    def init(params: Tree) -> State:
        dtype = wide_dtype(params)
        rate, total, largest = cast(fnp.asarray(b1), dtype), fnp.zeros((), dtype=dtype), fnp.zeros((), dtype=dtype)
        z = tree.map(lambda p: fnp.array(p), cast_tree(params, state_dtype))  # a copy, so that both can be donated
        start = fnp.ones((), dtype=fnp.int32)
        return ScheduleFreeState(rate, total, start, largest, base_optimizer.init(params), z)

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        require_params("schedule_free", params)
        rate = learning_rate(state.step_count) if callable(learning_rate) else learning_rate
        max_lr = fnp.maximum(state.max_lr, cast(fnp.asarray(rate), state.max_lr.dtype))
        weight = max_lr**weight_lr_power
        total = state.weight_sum + weight
        part = fnp.where(total == 0.0, 0.0, weight / total)  # the first steps of a warm-up from 0 have no weight
        steps, inner = base_optimizer.update(grads, state.base_optimizer_state, params, **extra)
        z = apply_updates(state.z, steps)
        # y = b1 * x + (1 - b1) * z, so its change needs no difference of two nearly equal parameters
        updates = tree.map(
            lambda x, new, step: scaled(b1 * part, cast(new, x.dtype) - x) + scaled(1.0 - b1, cast(step, x.dtype)),
            _average(params, state.z, b1),
            z,
            steps,
        )
        return updates, ScheduleFreeState(state.b1, total, safe_increment(state.step_count), max_lr, inner, z)

    return OptimizerExtraArgs(init, update)


def _warmed(learning_rate: Scalar, warmup_steps: int | None) -> ScalarOrSchedule:
    return learning_rate if warmup_steps is None else warmup_constant(0.0, learning_rate, warmup_steps)


def schedule_free_sgd(
    learning_rate: Scalar = 1.0,
    warmup_steps: int | None = None,
    b1: Scalar = 0.9,
    weight_decay: Scalar | None = None,
    weight_lr_power: Scalar = 2.0,
    state_dtype: Any = None,
) -> Optimizer:
    """``schedule_free`` around plain SGD, with an optional linear warm-up and weight decay.

    >>> opt = schedule_free_sgd(0.5)
    >>> float(opt.init(fnp.ones(())).max_lr)
    0.0
    """
    rate = _warmed(learning_rate, warmup_steps)
    base = sgd(rate) if weight_decay is None else chain(add_decayed_weights(weight_decay), sgd(rate))
    return schedule_free(base, rate, b1, weight_lr_power, state_dtype)


def schedule_free_adamw(
    learning_rate: Scalar = 0.0025,
    warmup_steps: int | None = None,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    weight_decay: Scalar = 0.0,
    weight_lr_power: Scalar = 2.0,
    state_dtype: Any = None,
) -> Optimizer:
    """``schedule_free`` around AdamW without its momentum, which the averaging replaces.

    >>> opt = schedule_free_adamw()
    >>> round(float(opt.init(fnp.ones(())).b1), 4)
    0.9
    """
    rate = _warmed(learning_rate, warmup_steps)
    base = chain(
        scale_by_rms(b2, eps, eps_in_sqrt=False, bias_correction=True),
        add_decayed_weights(weight_decay),
        scale_by_learning_rate(rate),
    )
    return schedule_free(base, rate, b1, weight_lr_power, state_dtype)
