"""Optimizers around an optimizer: accumulation over calls, refusal of bad gradients, conditions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.optim.base import (
    Optimizer,
    OptimizerExtraArgs,
    Scalar,
    Schedule,
    State,
    Tree,
    all_finite,
    cast,
    require_int,
    safe_increment,
    scaled,
    select,
    tree_vdot,
    with_extra_args_support,
    zero_count,
    zeros_like,
)

__all__ = [
    "ApplyIfFiniteState",
    "ConditionallyTransformState",
    "MultiSteps",
    "MultiStepsState",
    "apply_if_finite",
    "conditionally_mask",
    "conditionally_transform",
    "skip_large_updates",
    "skip_not_finite",
]


class ApplyIfFiniteState(NamedTuple):
    """Counts of refused updates (in a row, in all; int32), whether the last was finite, and the inner state."""

    notfinite_count: Any
    last_finite: Any
    total_notfinite: Any
    inner_state: State


def apply_if_finite(inner: Optimizer, max_consecutive_errors: int) -> Optimizer:
    """Refuse updates with a NaN or an infinity: zero updates, and the inner state stays exactly as it was.

    After ``max_consecutive_errors`` refusals in a row the next one is applied, so that a lost run shows. Everything
    is selected on the device with ``where``; nothing is read back.

    >>> from funcgrad.optim.aliases import sgd
    >>> opt = apply_if_finite(sgd(1.0), 5)
    >>> updates, state = opt.update(fnp.asarray([float("nan"), 1.0]), opt.init(fnp.zeros(2)))
    >>> [float(u) for u in updates], int(state.notfinite_count)
    ([0.0, 0.0], 1)
    """
    require_int("apply_if_finite", 0, max_consecutive_errors=max_consecutive_errors)
    inner = with_extra_args_support(inner)

    def init(params: Tree) -> State:
        return ApplyIfFiniteState(zero_count(), fnp.asarray(True), zero_count(), inner.init(params))

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        finite = all_finite(grads)
        in_a_row = fnp.where(finite, 0, safe_increment(state.notfinite_count))
        in_all = fnp.where(finite, state.total_notfinite, safe_increment(state.total_notfinite))
        accept = fnp.logical_or(finite, in_a_row > max_consecutive_errors)
        updates, inner_state = inner.update(grads, state.inner_state, params, **extra)
        updates = select(accept, updates, zeros_like(updates))
        inner_state = select(accept, inner_state, state.inner_state)
        return updates, ApplyIfFiniteState(cast(in_a_row, fnp.int32), finite, cast(in_all, fnp.int32), inner_state)

    return OptimizerExtraArgs(init, update)


class ConditionallyTransformState(NamedTuple):
    """The inner state and the count of calls (int32)."""

    inner_state: State
    step: Any


def conditionally_transform(
    inner: Optimizer, should_transform_fn: Callable[..., Any], forward_extra_args: bool = False
) -> Optimizer:
    """Apply an optimizer where ``should_transform_fn(step)`` is true and pass updates through unchanged elsewhere.

    The function gets the keyword arguments of ``update`` too with ``forward_extra_args``. The inner state moves only
    where the optimizer is applied.

    >>> from funcgrad.optim.scaling import scale
    >>> opt = conditionally_transform(scale(0.5), lambda step: step > 0)
    >>> updates, state = opt.update(fnp.ones(()), opt.init(fnp.ones(())))
    >>> float(updates), float(opt.update(fnp.ones(()), state)[0])
    (1.0, 0.5)
    """
    return _conditional(inner, should_transform_fn, forward_extra_args, lambda grads: grads)


def conditionally_mask(
    inner: Optimizer, should_transform_fn: Callable[..., Any], forward_extra_args: bool = False
) -> Optimizer:
    """Apply an optimizer where ``should_transform_fn(step)`` is true and give zero updates elsewhere.

    >>> from funcgrad.optim.scaling import scale
    >>> opt = conditionally_mask(scale(0.5), lambda step: step > 0)
    >>> updates, state = opt.update(fnp.ones(()), opt.init(fnp.ones(())))
    >>> float(updates), float(opt.update(fnp.ones(()), state)[0])
    (0.0, 0.5)
    """
    return _conditional(inner, should_transform_fn, forward_extra_args, zeros_like)


def _conditional(
    inner: Optimizer, condition: Callable[..., Any], forward: bool, otherwise: Callable[[Tree], Tree]
) -> Optimizer:
    inner = with_extra_args_support(inner)

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        now = condition(state.step, **(extra if forward else {}))
        updates, inner_state = inner.update(grads, state.inner_state, params, **extra)
        new = ConditionallyTransformState(select(now, inner_state, state.inner_state), safe_increment(state.step))
        return select(now, updates, otherwise(grads)), new

    return OptimizerExtraArgs(lambda params: ConditionallyTransformState(inner.init(params), zero_count()), update)


class MultiStepsState(NamedTuple):
    """Mini steps since the last update, updates so far (int32), the inner state and the accumulated gradients."""

    mini_step: Any
    gradient_step: Any
    inner_opt_state: State
    acc_grads: Tree
    skip_state: Any = ()


class MultiSteps:
    """Accumulate the gradients of k calls and apply the inner optimizer to their mean (or sum) at the k-th.

    The other calls return zero updates, and the inner state (with its count and schedules) advances at real updates
    only. ``every_k_schedule`` is k or a function of the number of updates so far. ``should_skip_update_fn(grads,
    gradient_step, params) -> (bool scalar, info)`` can drop a call's gradients as if it had not been made; see
    ``skip_not_finite``.

    >>> from funcgrad.optim.aliases import sgd
    >>> opt = MultiSteps(sgd(1.0), 2)
    >>> state = opt.init(fnp.zeros(1))
    >>> for g in (1.0, 3.0):
    ...     updates, state = opt.update(fnp.asarray([g]), state)
    >>> float(updates[0]), int(state.gradient_step), bool(opt.has_updated(state))
    (-2.0, 1, True)
    """

    def __init__(
        self,
        opt: Optimizer,
        every_k_schedule: int | Schedule,
        use_grad_mean: bool = True,
        should_skip_update_fn: Callable[..., tuple[Any, Any]] | None = None,
        accumulator_dtype: Any = fnp.float32,
    ) -> None:
        if not callable(every_k_schedule):
            require_int("MultiSteps", 1, every_k_schedule=every_k_schedule)
        self.inner_opt = with_extra_args_support(opt)
        self._every_k = every_k_schedule
        self._mean = use_grad_mean
        self._skip = should_skip_update_fn
        self._dtype = accumulator_dtype

    def __repr__(self) -> str:
        k = getattr(self._every_k, "__name__", self._every_k)
        return f"MultiSteps({self.inner_opt!r}, {k})"

    def init(self, params: Tree) -> MultiStepsState:
        """The state before the first call."""
        info = () if self._skip is None else self._skip(zeros_like(params), zero_count(), params)[1]
        zeros = zeros_like(params, self._dtype)
        return MultiStepsState(zero_count(), zero_count(), self.inner_opt.init(params), zeros, info)

    def update(
        self, grads: Tree, state: MultiStepsState, params: Tree = None, **extra: Any
    ) -> tuple[Tree, MultiStepsState]:
        """Zero updates, or at every k-th call those of the inner optimizer; and the new state."""
        k = self._every_k(state.gradient_step) if callable(self._every_k) else self._every_k
        emit = state.mini_step == k - 1
        total = self._accumulate(grads, state)
        sent = tree.map(lambda t, g: cast(t, g.dtype), total, grads)
        updates, inner = self.inner_opt.update(sent, state.inner_opt_state, params, **extra)
        new_state = MultiStepsState(
            cast(fnp.where(emit, 0, state.mini_step + 1), fnp.int32),
            cast(fnp.where(emit, safe_increment(state.gradient_step), state.gradient_step), fnp.int32),
            select(emit, inner, state.inner_opt_state),
            select(emit, zeros_like(total), total),
        )
        if self._skip is None:
            return select(emit, updates, zeros_like(updates)), new_state
        skip, info = self._skip(grads, state.gradient_step, params)
        new_state = select(skip, state._replace(skip_state=()), new_state)
        emit = fnp.logical_and(emit, fnp.logical_not(skip))
        return select(emit, updates, zeros_like(updates)), new_state._replace(skip_state=info)

    def _accumulate(self, grads: Tree, state: MultiStepsState) -> Tree:
        if not self._mean:
            return tree.map(lambda g, t: t + cast(g, t.dtype), grads, state.acc_grads)
        # The running mean never exceeds the gradients, as their sum in float16 could.
        part = 1.0 / (cast(state.mini_step, fnp.float32) + 1.0)
        return tree.map(lambda g, t: t + scaled(part, cast(g, t.dtype) - t), grads, state.acc_grads)

    def has_updated(self, state: MultiStepsState) -> Any:
        """A bool scalar: whether the last call was a real update."""
        return fnp.logical_and(state.mini_step == 0, state.gradient_step > 0)

    def gradient_transformation(self) -> Optimizer:
        """This object as a plain pair of functions."""
        return OptimizerExtraArgs(self.init, self.update)


def skip_not_finite(updates: Tree, gradient_step: Any, params: Tree) -> tuple[Any, dict[str, Any]]:
    """For ``MultiSteps``: skip gradients that have a NaN or an infinity, and count such elements.

    >>> skip, info = skip_not_finite(fnp.asarray([1.0, float("inf")]), 0, None)
    >>> bool(skip), int(info["num_not_finite"])
    (True, 1)
    """
    bad = [fnp.sum(cast(fnp.logical_not(fnp.isfinite(x)), fnp.int32)) for x in tree.leaves(updates)]
    count = cast(functools.reduce(fnp.add, bad, zero_count()), fnp.int32)
    return count > 0, {"should_skip": count > 0, "num_not_finite": count}


def skip_large_updates(
    updates: Tree, gradient_step: Any, params: Tree, max_squared_norm: Scalar
) -> tuple[Any, dict[str, Any]]:
    """For ``MultiSteps``: skip gradients whose squared norm is not below a limit (a NaN is not).

    >>> skip, info = skip_large_updates(fnp.asarray([3.0, 4.0]), 0, None, 20.0)
    >>> bool(skip), float(info["norm_squared"])
    (True, 25.0)
    """
    square = tree_vdot(updates, updates)
    skip = fnp.logical_not(square < max_squared_norm)
    return skip, {"should_skip": skip, "norm_squared": square}
