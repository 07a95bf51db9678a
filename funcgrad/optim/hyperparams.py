"""Hyperparameters as leaves of the optimizer's state, read and replaced without a retrace."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad.optim.base import (
    Optimizer,
    OptimizerExtraArgs,
    Schedule,
    State,
    Tree,
    cast,
    is_number,
    safe_increment,
    with_extra_args_support,
    zero_count,
)

__all__ = ["InjectHyperparamsState", "inject_hyperparams", "inject_stateful_hyperparams", "with_hyperparams"]


class InjectHyperparamsState(NamedTuple):
    """The count of updates (int32), the hyperparameters by name (arrays), and the inner state."""

    count: Any
    hyperparams: dict[str, Any]
    inner_state: State


def inject_hyperparams(
    inner_factory: Callable[..., Optimizer], static_args: str | Iterable[str] = (), hyperparam_dtype: Any = None
) -> Callable[..., Optimizer]:
    """Make a factory whose optimizer keeps its numeric hyperparameters in the state, as float32 arrays.

    They can be read and replaced between two calls of a jitted step without a retrace, as ggmlR's ``opt$lr <- x``.
    A schedule is evaluated at every update and its value stored under the same name. Booleans, integers whose
    default is an integer (sizes and numbers of steps), and the names in ``static_args`` stay Python values.

    >>> from funcgrad.optim.aliases import sgd
    >>> opt = inject_hyperparams(sgd)(learning_rate=0.5)
    >>> state = opt.init(fnp.zeros(1))
    >>> state.hyperparams["learning_rate"] = fnp.asarray(2.0)
    >>> updates, state = opt.update(fnp.ones(1), state)
    >>> float(updates[0])
    -2.0
    """
    static = {static_args} if isinstance(static_args, str) else set(static_args)
    signature = inspect.signature(inner_factory)
    if not static <= set(signature.parameters):
        unknown = sorted(static - set(signature.parameters))
        raise ValueError(f"inject_hyperparams: static_args must be parameters of the factory, got {unknown}")
    dtype = fnp.float32 if hyperparam_dtype is None else hyperparam_dtype

    @functools.wraps(inner_factory)
    def factory(*args: Any, **kwargs: Any) -> Optimizer:
        inner_factory(*args, **kwargs)  # its checks see the plain numbers
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        fixed, numbers, schedules = _classify(signature, bound.arguments, static)
        return _injected(signature, inner_factory, fixed, numbers, schedules, dtype)

    return factory


inject_stateful_hyperparams = inject_hyperparams


def with_hyperparams(state: State, **values: Any) -> State:
    """The state with hyperparameters of ``inject_hyperparams`` replaced, for the next update to honour.

    ``state`` may be an optimizer's, a chain's or a train step's; every injected optimizer in it that has a
    hyperparameter of the name gets the value. Raises ValueError for a name that none has. A scheduled
    hyperparameter is overwritten by its schedule at the next update.

    >>> from funcgrad.optim.aliases import adam
    >>> state = inject_hyperparams(adam)(learning_rate=0.5).init(fnp.zeros(1))
    >>> float(with_hyperparams(state, learning_rate=0.25).hyperparams["learning_rate"])
    0.25
    """
    known: set[str] = set()
    new = _replace(state, values, known)
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(
            f"with_hyperparams: the state must hold the hyperparameters, got {unknown} and a state with "
            f"{sorted(known)}; make the optimizer with inject_hyperparams(factory)(...)"
        )
    return new


def _replace(state: Any, values: dict[str, Any], known: set[str]) -> Any:
    """Rebuild the containers of a state; ``known`` collects the names of all its hyperparameters."""
    if isinstance(state, InjectHyperparamsState):
        known.update(state.hyperparams)
        changed = {k: _leaf(values[k], old) if k in values else old for k, old in state.hyperparams.items()}
        return InjectHyperparamsState(state.count, changed, _replace(state.inner_state, values, known))
    if isinstance(state, tuple | list):
        parts = [_replace(part, values, known) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    if isinstance(state, dict):
        return {key: _replace(part, values, known) for key, part in state.items()}
    if dataclasses.is_dataclass(state) and not isinstance(state, type) and hasattr(state, "opt_state"):
        return dataclasses.replace(state, opt_state=_replace(state.opt_state, values, known))
    return state


def _leaf(value: Any, old: Any) -> Any:
    new = cast(fnp.asarray(value), old.dtype)
    if new.shape != old.shape:
        raise ValueError(f"with_hyperparams: a value of shape {old.shape} is required, got {new.shape}")
    return new


def _classify(
    signature: inspect.Signature, arguments: dict[str, Any], static: set[str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Schedule]]:
    fixed: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    schedules: dict[str, Schedule] = {}
    for name, value in arguments.items():
        parameter = signature.parameters[name]
        size = isinstance(value, int) and type(parameter.default) is int  # also True for booleans
        if parameter.kind is parameter.VAR_KEYWORD:
            fixed.update(value)
        elif name in static or size or isinstance(value, bool | Optimizer):
            fixed[name] = value
        elif is_number(value) or (hasattr(value, "dtype") and getattr(value, "shape", None) == ()):
            numbers[name] = value
        elif callable(value) and not any(word in name for word in ("mask", "label", "numbers", "_fn")):
            schedules[name] = value
        else:
            fixed[name] = value
    return fixed, numbers, schedules


def _injected(
    signature: inspect.Signature,
    inner_factory: Callable[..., Optimizer],
    fixed: dict[str, Any],
    numbers: dict[str, Any],
    schedules: dict[str, Schedule],
    dtype: Any,
) -> Optimizer:
    def leaf(value: Any) -> Any:
        return cast(fnp.asarray(value), dtype)

    def values(count: Any) -> dict[str, Any]:
        return {name: leaf(schedule(count)) for name, schedule in schedules.items()}

    def build(hyperparams: dict[str, Any]) -> OptimizerExtraArgs:
        return with_extra_args_support(inner_factory(**fixed, **hyperparams))

    def init(params: Tree) -> State:
        count = zero_count()
        hyperparams = {name: leaf(value) for name, value in numbers.items()} | values(count)
        return InjectHyperparamsState(count, hyperparams, build(hyperparams).init(params))

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        hyperparams = dict(state.hyperparams) | values(state.count)
        updates, inner_state = build(hyperparams).update(grads, state.inner_state, params, **extra)
        return updates, InjectHyperparamsState(safe_increment(state.count), hyperparams, inner_state)

    return OptimizerExtraArgs(init, update)
