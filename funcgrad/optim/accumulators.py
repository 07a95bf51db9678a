"""Transformations that accumulate gradients or their squares: momentum, RMSProp, AdaGrad, AdaDelta and others."""

from __future__ import annotations

from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import lax, tree
from funcgrad.optim.base import (
    Optimizer,
    Scalar,
    State,
    Tree,
    bias_correction,
    cast,
    cast_tree,
    full_like,
    is_number,
    moment,
    require,
    require_params,
    safe_increment,
    scaled,
    unzip_map,
    zero_count,
    zeros_like,
)
from funcgrad.optim.moments import ScaleByAdamState, plus, root

__all__ = [
    "EmaState",
    "ScaleByAdaDeltaState",
    "ScaleByAdanState",
    "ScaleByRStdDevState",
    "ScaleByRStdDevWithCountState",
    "ScaleByRmsState",
    "ScaleByRmsWithCountState",
    "ScaleByRssState",
    "TraceState",
    "ema",
    "scale_by_adadelta",
    "scale_by_adan",
    "scale_by_novograd",
    "scale_by_rms",
    "scale_by_rss",
    "scale_by_stddev",
    "trace",
]


class TraceState(NamedTuple):
    """The accumulated gradients."""

    trace: Tree


def trace(decay: Scalar, nesterov: bool = False, accumulator_dtype: Any = None) -> Optimizer:
    """Momentum: the trace becomes ``g + decay * trace`` and is the update (Sutskever et al. 2013).

    With ``nesterov`` the update is ``g + decay * trace`` of the new trace.

    >>> opt = trace(0.5)
    >>> updates, state = opt.update(fnp.ones(1), opt.init(fnp.zeros(1)))
    >>> updates, state = opt.update(fnp.ones(1), state)
    >>> float(updates[0])
    1.5
    """
    require("trace", "[0, 1]", decay=decay)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        def leaf(g: Any, old: Any) -> tuple[Any, Any]:
            new = g + scaled(decay, cast(old, g.dtype))
            return (g + scaled(decay, new) if nesterov else new), cast(new, old.dtype)

        updates, new = unzip_map("trace", leaf, grads, state.trace)
        return updates, TraceState(new)

    return Optimizer(lambda params: TraceState(zeros_like(params, accumulator_dtype)), update)


class EmaState(NamedTuple):
    """``count`` of updates (int32) and the moving average ``ema``."""

    count: Any
    ema: Tree


def ema(decay: Scalar, debias: bool = True, accumulator_dtype: Any = None) -> Optimizer:
    """The exponential moving average of the gradients, divided by ``1 - decay**count`` when ``debias``.

    >>> opt = ema(0.9)
    >>> updates, state = opt.update(fnp.ones(1), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4), round(float(state.ema[0]), 4)
    (1.0, 0.1)
    """
    require("ema", "[0, 1)", decay=decay)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count = safe_increment(state.count)
        correction = bias_correction(decay, count, grads) if debias else None

        def leaf(g: Any, old: Any) -> tuple[Any, Any]:
            new = moment(decay, g, cast(old, g.dtype))
            return (new if correction is None else scaled(correction, new)), cast(new, old.dtype)

        updates, new = unzip_map("ema", leaf, grads, state.ema)
        return updates, EmaState(count, new)

    return Optimizer(lambda params: EmaState(zero_count(), zeros_like(params, accumulator_dtype)), update)


class ScaleByRmsState(NamedTuple):
    """The moving average of squared gradients."""

    nu: Tree


class ScaleByRmsWithCountState(NamedTuple):
    """``count`` of updates (int32) and the moving average of squared gradients."""

    count: Any
    nu: Tree


def scale_by_rms(
    decay: Scalar = 0.9,
    eps: Scalar = 1e-8,
    initial_scale: Scalar = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> Optimizer:
    """Division by the root of a moving average of squared gradients (Hinton 2012, RMSProp).

    The divisor is ``sqrt(nu + eps)``, or ``sqrt(nu) + eps`` without ``eps_in_sqrt``.

    >>> opt = scale_by_rms(0.75)
    >>> updates, state = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    2.0
    """
    _require_rms("scale_by_rms", decay, eps, initial_scale)

    def init(params: Tree) -> State:
        nu = full_like(params, initial_scale)
        return ScaleByRmsWithCountState(zero_count(), nu) if bias_correction else ScaleByRmsState(nu)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count, correction = _corrected(state, decay, bias_correction, grads)

        def leaf(g: Any, nu: Any) -> tuple[Any, Any]:
            n = moment(decay, fnp.square(g), nu)
            return g * _inverse_root(scaled(correction, n) if bias_correction else n, eps, eps_in_sqrt), n

        updates, nu = unzip_map("scale_by_rms", leaf, grads, state.nu)
        return updates, ScaleByRmsWithCountState(count, nu) if bias_correction else ScaleByRmsState(nu)

    return Optimizer(init, update)


def _require_rms(op: str, decay: Scalar, eps: Scalar, initial_scale: Scalar) -> None:
    require(op, "[0, 1)", decay=decay)
    require(op, "[0, inf)", eps=eps, initial_scale=initial_scale)


def _corrected(state: State, decay: Scalar, wanted: bool, grads: Tree) -> tuple[Any, Scalar]:
    if not wanted:
        return None, 1.0
    count = safe_increment(state.count)
    return count, bias_correction(decay, count, grads)


def _inverse_root(nu: Any, eps: Scalar, eps_in_sqrt: bool) -> Any:
    return lax.rsqrt(plus(nu, eps)) if eps_in_sqrt else 1.0 / plus(fnp.sqrt(nu), eps)


class ScaleByRStdDevState(NamedTuple):
    """Moving averages of the gradients and of their squares."""

    mu: Tree
    nu: Tree


class ScaleByRStdDevWithCountState(NamedTuple):
    """``count`` of updates (int32) and moving averages of the gradients and of their squares."""

    count: Any
    mu: Tree
    nu: Tree


def scale_by_stddev(
    decay: Scalar = 0.9,
    eps: Scalar = 1e-8,
    initial_scale: Scalar = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> Optimizer:
    """Division by a running standard deviation, ``sqrt(nu - mu**2 + eps)`` (Graves 2013, centred RMSProp).

    >>> opt = scale_by_stddev(0.5)
    >>> updates, state = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    2.0
    """
    _require_rms("scale_by_stddev", decay, eps, initial_scale)
    kind: Any = ScaleByRStdDevWithCountState if bias_correction else ScaleByRStdDevState

    def init(params: Tree) -> State:
        moments = (zeros_like(params), full_like(params, initial_scale))
        return kind(zero_count(), *moments) if bias_correction else kind(*moments)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count, correction = _corrected(state, decay, bias_correction, grads)

        def leaf(g: Any, mu: Any, nu: Any) -> tuple[Any, Any, Any]:
            m, n = moment(decay, g, mu), moment(decay, fnp.square(g), nu)
            mean, square = (scaled(correction, m), scaled(correction, n)) if bias_correction else (m, n)
            return g * _inverse_root(square - fnp.square(mean), eps, eps_in_sqrt), m, n

        updates, *moments = unzip_map("scale_by_stddev", leaf, grads, state.mu, state.nu)
        return updates, kind(count, *moments) if bias_correction else kind(*moments)

    return Optimizer(init, update)


class ScaleByRssState(NamedTuple):
    """The sum of squared gradients so far."""

    sum_of_squares: Tree


def scale_by_rss(initial_accumulator_value: Scalar = 0.1, eps: Scalar = 1e-7) -> Optimizer:
    """Division by ``sqrt(sum of squared gradients + eps)`` (Duchi et al. 2011, AdaGrad); zero where the sum is zero.

    >>> opt = scale_by_rss(0.0)
    >>> updates, state = opt.update(fnp.asarray([4.0, 0.0]), opt.init(fnp.zeros(2)))
    >>> [round(float(u), 4) for u in updates]
    [1.0, 0.0]
    """
    require("scale_by_rss", "[0, inf)", initial_accumulator_value=initial_accumulator_value, eps=eps)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        def leaf(g: Any, old: Any) -> tuple[Any, Any]:
            total = fnp.square(g) + old
            return g * fnp.where(total > 0, lax.rsqrt(plus(total, eps)), 0.0), total

        updates, total = unzip_map("scale_by_rss", leaf, grads, state.sum_of_squares)
        return updates, ScaleByRssState(total)

    return Optimizer(lambda params: ScaleByRssState(full_like(params, initial_accumulator_value)), update)


class ScaleByAdaDeltaState(NamedTuple):
    """Moving averages of squared gradients ``e_g`` and of squared updates ``e_x``."""

    e_g: Tree
    e_x: Tree


def scale_by_adadelta(rho: Scalar = 0.9, eps: Scalar = 1e-6) -> Optimizer:
    """The ratio of the root mean squares of past updates and gradients as step size (Zeiler 2012, arXiv:1212.5701).

    >>> opt = scale_by_adadelta(0.75, 1.0)
    >>> updates, state = opt.update(fnp.asarray([0.0]), opt.init(fnp.zeros(1)))
    >>> float(updates[0])
    0.0
    """
    require("scale_by_adadelta", "[0, 1)", rho=rho)
    require("scale_by_adadelta", "(0, inf)", eps=eps)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        def leaf(g: Any, e_g: Any, e_x: Any) -> tuple[Any, Any, Any]:
            new_g = moment(rho, fnp.square(g), e_g)
            step = fnp.sqrt(plus(e_x, eps)) / fnp.sqrt(plus(new_g, eps)) * g
            return step, new_g, moment(rho, fnp.square(step), e_x)

        updates, *averages = unzip_map("scale_by_adadelta", leaf, grads, state.e_g, state.e_x)
        return updates, ScaleByAdaDeltaState(*averages)

    return Optimizer(lambda params: ScaleByAdaDeltaState(zeros_like(params), zeros_like(params)), update)


class ScaleByAdanState(NamedTuple):
    """Averages of gradients (m), differences (v) and squares (n); the last gradient (g); the count of updates (t)."""

    m: Tree
    v: Tree
    n: Tree
    g: Tree
    t: Any


def scale_by_adan(
    b1: Scalar = 0.98, b2: Scalar = 0.92, b3: Scalar = 0.99, eps: Scalar = 1e-8, eps_root: Scalar = 0.0
) -> Optimizer:
    """Adaptive Nesterov momentum (Xie et al. 2022, arXiv:2208.06677).

    >>> opt = scale_by_adan()
    >>> updates, state = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    1.0
    """
    require("scale_by_adan", "[0, 1)", b1=b1, b2=b2, b3=b3)
    require("scale_by_adan", "[0, inf)", eps=eps, eps_root=eps_root)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count = safe_increment(state.t)
        c1, c2, c3 = (bias_correction(b, count, grads) for b in (b1, b2, b3))

        def leaf(g: Any, m: Any, v: Any, n: Any, last: Any) -> tuple[Any, ...]:
            change = fnp.where(state.t == 0, 0.0, g - last)
            m, v = moment(b1, g, m), moment(b2, change, v)
            n = moment(b3, fnp.square(g + scaled(1.0 - b2, change)), n)
            ahead = scaled(c1, m) + scaled((1.0 - b2) * c2, v)
            return ahead / root(scaled(c3, n), eps, eps_root), m, v, n, g

        updates, m, v, n, g = unzip_map("scale_by_adan", leaf, grads, state.m, state.v, state.n, state.g)
        return updates, ScaleByAdanState(m, v, n, g, count)

    def init(params: Tree) -> State:
        m, v, n, g = (zeros_like(params) for _ in range(4))
        return ScaleByAdanState(m, v, n, g, zero_count())

    return Optimizer(init, update)


def scale_by_novograd(
    b1: Scalar = 0.9,
    b2: Scalar = 0.25,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    weight_decay: Scalar = 0.0,
    mu_dtype: Any = None,
) -> Optimizer:
    """Momentum of gradients divided by a moving average of each leaf's norm (Ginsburg et al. 2019, arXiv:1905.11286).

    ``update`` needs the parameters.

    >>> opt = scale_by_novograd()
    >>> updates, state = opt.update(fnp.asarray([3.0, 4.0]), opt.init(fnp.zeros(2)), fnp.zeros(2))
    >>> [round(float(u), 4) for u in updates]
    [0.6, 0.8]
    """
    require("scale_by_novograd", "[0, 1)", b1=b1, b2=b2)
    require("scale_by_novograd", "[0, inf)", eps=eps, eps_root=eps_root, weight_decay=weight_decay)

    def init(params: Tree) -> State:
        norms = tree.map(lambda p: fnp.zeros((), dtype=p.dtype), params)
        return ScaleByAdamState(zero_count(), zeros_like(params, mu_dtype), norms)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        require_params("scale_by_novograd", params)
        first = state.count == 0

        def leaf(g: Any, p: Any, mu: Any, nu: Any) -> tuple[Any, Any]:
            square = fnp.sum(fnp.square(g))
            n = cast(fnp.where(first, square, moment(b2, square, nu)), nu.dtype)
            step = g / root(n, eps, eps_root)
            step = step if is_number(weight_decay) and weight_decay == 0 else step + scaled(weight_decay, p)
            # mu is zero before the first step, so the sum needs no case for it.
            return scaled(b1, cast(mu, g.dtype)) + step, n

        mu, nu = unzip_map("scale_by_novograd", leaf, grads, params, state.mu, state.nu, width=2)
        return mu, ScaleByAdamState(safe_increment(state.count), cast_tree(mu, mu_dtype), nu)

    return Optimizer(init, update)
