"""Transformations that scale, decay, disturb or repair updates, with little or no state."""

from __future__ import annotations

from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import random, tree
from funcgrad.optim.base import (
    EmptyState,
    Optimizer,
    Scalar,
    ScalarOrSchedule,
    Schedule,
    State,
    Tree,
    cast,
    identity,
    is_number,
    require,
    require_params,
    safe_increment,
    scaled,
    stateless,
    zero_count,
)
from funcgrad.optim.clipping import global_norm
from funcgrad.optim.combine import masked

__all__ = [
    "AddNoiseState",
    "ScaleByScheduleState",
    "WeightDecaySchedule",
    "ZeroNansState",
    "add_decayed_weights",
    "add_noise",
    "centralize",
    "keep_params_nonnegative",
    "normalize_by_update_norm",
    "scale",
    "scale_by_learning_rate",
    "scale_by_param_block_norm",
    "scale_by_param_block_rms",
    "scale_by_schedule",
    "scale_by_sign",
    "scale_by_trust_ratio",
    "zero_nans",
]


def scale(step_size: Scalar) -> Optimizer:
    """Multiply every update by a number or by an array of shape ().

    >>> float(scale(-0.5).update(fnp.ones(()), ())[0])
    -0.5
    """
    require("scale", "(-inf, inf)", step_size=step_size)
    return stateless(lambda grads, params: tree.map(lambda g: scaled(step_size, g), grads))


class ScaleByScheduleState(NamedTuple):
    """The count of updates, an int32 scalar, which is the step given to the schedule."""

    count: Any


def scale_by_schedule(step_size_fn: Schedule) -> Optimizer:
    """Multiply every update by ``step_size_fn(count)``, where count is 0 at the first update.

    >>> opt = scale_by_schedule(lambda count: 0.5 ** (count + 1.0))
    >>> updates, state = opt.update(fnp.ones(()), opt.init(None))
    >>> float(updates), int(state.count)
    (0.5, 1)
    """
    if not callable(step_size_fn):
        raise TypeError(f"scale_by_schedule: a function of the step is required, got {step_size_fn!r}; see scale")

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        size = step_size_fn(state.count)
        return tree.map(lambda g: scaled(size, g), grads), ScaleByScheduleState(safe_increment(state.count))

    return Optimizer(lambda params: ScaleByScheduleState(zero_count()), update)


def scale_by_learning_rate(learning_rate: ScalarOrSchedule | None, *, flip_sign: bool = True) -> Optimizer:
    """Multiply every update by minus the learning rate: a number, a schedule, or an array that can change per call.

    None leaves the updates as they are. Raises ValueError for a number that is negative, infinite or NaN.

    >>> float(scale_by_learning_rate(0.1).update(fnp.ones(()), ())[0]) < 0
    True
    """
    if learning_rate is None:
        return identity()
    require("scale_by_learning_rate", "[0, inf)", learning_rate=learning_rate)
    sign = -1.0 if flip_sign else 1.0
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * learning_rate(count))
    return scale(sign * learning_rate)


def scale_by_sign() -> Optimizer:
    """Replace every update by its sign.

    >>> [float(u) for u in scale_by_sign().update(fnp.asarray([-3.0, 2.0]), ())[0]]
    [-1.0, 1.0]
    """
    return stateless(lambda grads, params: tree.map(fnp.sign, grads))


def _norm(x: Any, least: Scalar) -> Any:
    return fnp.maximum(fnp.sqrt(fnp.sum(fnp.square(x))), least)


def scale_by_trust_ratio(min_norm: Scalar = 0.0, trust_coefficient: Scalar = 1.0, eps: Scalar = 0.0) -> Optimizer:
    """Scale each leaf by ``trust_coefficient * |param| / (|update| + eps)``, by 1 where either norm is zero.

    You et al. 2019, LAMB, arXiv:1904.00962. Norms are at least ``min_norm``. ``update`` needs the parameters.

    >>> updates, _ = scale_by_trust_ratio().update(fnp.asarray([4.0]), (), fnp.asarray([2.0]))
    >>> float(updates[0])
    2.0
    """
    require("scale_by_trust_ratio", "[0, inf)", min_norm=min_norm, trust_coefficient=trust_coefficient, eps=eps)

    def leaf(update: Any, param: Any) -> Any:
        of_param, of_update = _norm(param, min_norm), _norm(update, min_norm)
        still = fnp.logical_or(of_param == 0.0, of_update == 0.0)
        ratio = fnp.where(still, 1.0, trust_coefficient * of_param / (of_update + eps))
        return scaled(ratio, update)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        require_params("scale_by_trust_ratio", params)
        return tree.map(leaf, grads, params), state

    return Optimizer(identity().init, update)


def scale_by_param_block_norm(min_scale: Scalar = 1e-3) -> Optimizer:
    """Multiply each leaf by the norm of its parameter, at least ``min_scale``.

    >>> updates, _ = scale_by_param_block_norm().update(fnp.ones(2), (), fnp.asarray([3.0, 4.0]))
    >>> float(updates[0])
    5.0
    """
    require("scale_by_param_block_norm", "[0, inf)", min_scale=min_scale)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        require_params("scale_by_param_block_norm", params)
        return tree.map(lambda g, p: scaled(_norm(p, min_scale), g), grads, params), state

    return Optimizer(identity().init, update)


def scale_by_param_block_rms(min_scale: Scalar = 1e-3) -> Optimizer:
    """Multiply each leaf by the root mean square of its parameter, at least ``min_scale`` (Adafactor).

    >>> updates, _ = scale_by_param_block_rms().update(fnp.ones(2), (), fnp.asarray([2.0, 2.0]))
    >>> float(updates[0])
    2.0
    """
    require("scale_by_param_block_rms", "[0, inf)", min_scale=min_scale)

    def leaf(grad: Any, param: Any) -> Any:
        return scaled(fnp.maximum(fnp.sqrt(fnp.mean(fnp.square(param))), min_scale), grad)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        require_params("scale_by_param_block_rms", params)
        return tree.map(leaf, grads, params), state

    return Optimizer(identity().init, update)


class WeightDecaySchedule(NamedTuple):
    """The count of updates, an int32 scalar, for a scheduled weight decay."""

    count: Any


def add_decayed_weights(weight_decay: ScalarOrSchedule = 0.0, mask: Any = None) -> Optimizer:
    """Add ``weight_decay * param`` to each update (Loshchilov and Hutter 2017, arXiv:1711.05101).

    ``mask`` is a tree of booleans, or a function of the parameters that gives one: only leaves under True decay.
    ``update`` needs the parameters.

    >>> updates, _ = add_decayed_weights(0.5).update(fnp.ones(1), (), fnp.asarray([4.0]))
    >>> float(updates[0])
    3.0
    """
    require("add_decayed_weights", "[0, inf)", weight_decay=weight_decay)
    scheduled = callable(weight_decay)

    def init(params: Tree) -> State:
        return WeightDecaySchedule(zero_count()) if scheduled else EmptyState()

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        require_params("add_decayed_weights", params)
        if is_number(weight_decay) and weight_decay == 0:
            return grads, state
        decay = weight_decay(state.count) if scheduled else weight_decay
        new_state = WeightDecaySchedule(safe_increment(state.count)) if scheduled else state
        return tree.map(lambda g, p: g + cast(scaled(decay, p), g.dtype), grads, params), new_state

    opt = Optimizer(init, update)
    return opt if mask is None else masked(opt, mask)


class AddNoiseState(NamedTuple):
    """The count of updates (int32) and the random key of the next one."""

    count: Any
    rng_key: Any


def add_noise(eta: Scalar, gamma: Scalar, key: Any) -> Optimizer:
    """Add normal noise of variance ``eta / count**gamma`` (Neelakantan et al. 2015, arXiv:1511.06807).

    ``key`` is a random key or an integer seed.

    >>> opt = add_noise(0.01, 0.55, 0)
    >>> updates, state = opt.update(fnp.zeros(3), opt.init(fnp.zeros(3)))
    >>> updates.shape, int(state.count)
    ((3,), 1)
    """
    require("add_noise", "[0, inf)", eta=eta, gamma=gamma)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count = safe_increment(state.count)
        deviation = fnp.sqrt(eta / cast(count, fnp.float32) ** gamma)
        following, now = (k for k in random.split(state.rng_key))
        leaves, treedef = tree.flatten(grads)
        keys = random.split(now, len(leaves)) if leaves else ()
        noisy = [g + scaled(deviation, random.normal(k, g.shape, g.dtype)) for g, k in zip(leaves, keys, strict=True)]
        return tree.unflatten(treedef, noisy), AddNoiseState(count, following)

    def init(params: Tree) -> State:
        return AddNoiseState(zero_count(), random.key(key) if is_number(key) else fnp.asarray(key))

    return Optimizer(init, update)


def zero_nans() -> Optimizer:
    """Replace NaNs by zeros; the state is a tree of flags that say which leaves had any.

    >>> opt = zero_nans()
    >>> updates, state = opt.update(fnp.asarray([float("nan"), 1.0]), opt.init(fnp.zeros(2)))
    >>> [float(u) for u in updates], bool(state.found_nan)
    ([0.0, 1.0], True)
    """

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        found = tree.map(lambda g: fnp.any(fnp.isnan(g)), grads)
        return tree.map(lambda g: fnp.where(fnp.isnan(g), 0.0, g), grads), ZeroNansState(found)

    return Optimizer(lambda params: ZeroNansState(tree.map(lambda p: fnp.asarray(False), params)), update)


class ZeroNansState(NamedTuple):
    """For every leaf, whether its last update had a NaN."""

    found_nan: Tree


def centralize() -> Optimizer:
    """Subtract from each gradient of two or more axes its mean over all axes but the first (arXiv:2004.01461).

    >>> [float(u) for u in centralize().update(fnp.asarray([[1.0, 3.0]]), ())[0][0]]
    [-1.0, 1.0]
    """

    def leaf(g: Any) -> Any:
        return g - fnp.mean(g, axis=tuple(range(1, g.ndim)), keepdims=True) if g.ndim > 1 else g

    return stateless(lambda grads, params: tree.map(leaf, grads))


def normalize_by_update_norm(scale_factor: Scalar = 1.0, eps: Scalar = 1e-6) -> Optimizer:
    """Divide all updates by ``(norm + eps) / scale_factor`` with ``norm`` the norm of all leaves together.

    >>> round(float(normalize_by_update_norm().update(fnp.asarray([3.0, 4.0]), ())[0][0]), 4)
    0.6
    """
    require("normalize_by_update_norm", "(0, inf)", scale_factor=scale_factor, eps=eps)

    def divide(grads: Tree, params: Tree) -> Tree:
        factor = scale_factor / (global_norm(grads) + eps)
        return tree.map(lambda g: scaled(factor, g), grads)

    return stateless(divide)


def keep_params_nonnegative() -> Optimizer:
    """Limit each update so that no parameter that is not negative becomes negative. ``update`` needs the parameters.

    >>> updates, _ = keep_params_nonnegative().update(fnp.asarray([-3.0]), (), fnp.asarray([1.0]))
    >>> float(updates[0])
    -1.0
    """

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        require_params("keep_params_nonnegative", params)
        return tree.map(lambda u, p: fnp.where(p + u < 0.0, -p, u), grads, params), state

    return Optimizer(identity().init, update)
