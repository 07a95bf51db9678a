"""Transformations that keep moving averages of the gradients: Adam and its kin.

Each is a short chain of elementwise operations per leaf; bias corrections are scalars, computed once per step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad.optim.base import (
    Optimizer,
    Scalar,
    State,
    Tree,
    bias_correction,
    cast,
    full_like,
    is_number,
    moment,
    require,
    safe_increment,
    scaled,
    unzip_map,
    wide_dtype,
    zero_count,
    zeros_like,
)

__all__ = [
    "ScaleByAdamState",
    "ScaleByAmsgradState",
    "ScaleByLionState",
    "scale_by_adam",
    "scale_by_adamax",
    "scale_by_amsgrad",
    "scale_by_belief",
    "scale_by_lion",
    "scale_by_radam",
    "scale_by_yogi",
]


class ScaleByAdamState(NamedTuple):
    """``count`` of updates (int32), first moment ``mu`` and second moment ``nu``, shaped like the parameters."""

    count: Any
    mu: Tree
    nu: Tree


def _first(nesterov: bool, b1: Scalar, count: Any, grads: Tree) -> Any:
    """A function of ``(mu, grad)`` that gives the corrected first moment."""
    if not nesterov:
        correction = bias_correction(b1, count, grads)
        return lambda mu, g: scaled(correction, mu)
    # Dozat 2016: the average one step ahead, whose bias is that of the next step.
    ahead, now = b1 * bias_correction(b1, count + 1, grads), (1.0 - b1) * bias_correction(b1, count, grads)
    return lambda mu, g: scaled(ahead, mu) + scaled(now, g)


def _adam_init(mu_dtype: Any = None) -> Any:
    return lambda params: ScaleByAdamState(zero_count(), zeros_like(params, mu_dtype), zeros_like(params))


def scale_by_adam(
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """``mhat / (sqrt(nhat + eps_root) + eps)`` with the bias-corrected moments (Kingma and Ba 2014, arXiv:1412.6980).

    ``mu_dtype`` stores the first moment in another dtype. With ``nesterov`` the first moment looks one step ahead
    (Dozat 2016).

    >>> opt = scale_by_adam()
    >>> updates, state = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4), int(state.count)
    (1.0, 1)
    """
    require("scale_by_adam", "[0, 1)", b1=b1, b2=b2)
    require("scale_by_adam", "[0, inf)", eps=eps, eps_root=eps_root)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count = safe_increment(state.count)
        first, correction = _first(nesterov, b1, count, grads), bias_correction(b2, count, grads)

        def leaf(g: Any, mu: Any, nu: Any) -> tuple[Any, Any, Any]:
            m = moment(b1, g, cast(mu, g.dtype))
            n = moment(b2, fnp.square(g), nu)
            return first(m, g) / root(scaled(correction, n), eps, eps_root), cast(m, mu.dtype), cast(n, nu.dtype)

        updates, mu, nu = unzip_map("scale_by_adam", leaf, grads, state.mu, state.nu)
        return updates, ScaleByAdamState(count, mu, nu)

    return Optimizer(_adam_init(mu_dtype), update)


def plus(x: Any, small: Scalar) -> Any:
    """``x + small`` in the dtype of ``x``, without an operation when ``small`` is the number 0."""
    if is_number(small):
        return x if small == 0 else x + float(small)
    return x + cast(fnp.asarray(small), x.dtype)


def root(nu: Any, eps: Scalar, eps_root: Scalar) -> Any:
    """``sqrt(nu + eps_root) + eps``."""
    return plus(fnp.sqrt(plus(nu, eps_root)), eps)


class ScaleByAmsgradState(NamedTuple):
    """Adam's state and ``nu_max``, the largest second moment so far."""

    count: Any
    mu: Tree
    nu: Tree
    nu_max: Tree


def scale_by_amsgrad(
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> Optimizer:
    """Adam with the largest second moment so far in place of the current one (Reddi et al. 2018, arXiv:1904.09237).

    >>> opt = scale_by_amsgrad()
    >>> updates, state = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    1.0
    """
    require("scale_by_amsgrad", "[0, 1)", b1=b1, b2=b2)
    require("scale_by_amsgrad", "[0, inf)", eps=eps, eps_root=eps_root)

    def init(params: Tree) -> State:
        zeros = zeros_like(params)
        return ScaleByAmsgradState(zero_count(), zeros_like(params, mu_dtype), zeros, zeros_like(params))

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count = safe_increment(state.count)
        first = bias_correction(b1, count, grads) if bias_correction_mu else 1.0
        second = bias_correction(b2, count, grads) if bias_correction_nu else 1.0

        def leaf(g: Any, mu: Any, nu: Any, top: Any) -> tuple[Any, ...]:
            m, n = moment(b1, g, cast(mu, g.dtype)), moment(b2, fnp.square(g), nu)
            top = fnp.maximum(top, scaled(second, n))
            return scaled(first, m) / root(top, eps, eps_root), cast(m, mu.dtype), n, top

        updates, *moments = unzip_map("scale_by_amsgrad", leaf, grads, state.mu, state.nu, state.nu_max)
        return updates, ScaleByAmsgradState(count, *moments)

    return Optimizer(init, update)


def scale_by_adamax(b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8) -> Optimizer:
    """Adam with the decayed maximum ``max(|g| + eps, b2 * nu)`` in place of the second moment (arXiv:1412.6980).

    >>> opt = scale_by_adamax()
    >>> updates, state = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    1.0
    """
    require("scale_by_adamax", "[0, 1)", b1=b1, b2=b2)
    require("scale_by_adamax", "[0, inf)", eps=eps)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count = safe_increment(state.count)
        correction = bias_correction(b1, count, grads)

        def leaf(g: Any, mu: Any, nu: Any) -> tuple[Any, Any, Any]:
            m, n = moment(b1, g, mu), fnp.maximum(plus(fnp.abs(g), eps), scaled(b2, nu))
            return scaled(correction, m) / n, m, n

        updates, mu, nu = unzip_map("scale_by_adamax", leaf, grads, state.mu, state.nu)
        return updates, ScaleByAdamState(count, mu, nu)

    return Optimizer(_adam_init(), update)


def scale_by_belief(
    b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-16, eps_root: Scalar = 1e-16, *, nesterov: bool = False
) -> Optimizer:
    """Adam with the variance around the first moment as second moment (Zhuang et al. 2020, arXiv:2010.07468).

    >>> opt = scale_by_belief()
    >>> updates, state = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    1.1111
    """
    require("scale_by_belief", "[0, 1)", b1=b1, b2=b2)
    require("scale_by_belief", "[0, inf)", eps=eps, eps_root=eps_root)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count = safe_increment(state.count)
        first, correction = _first(nesterov, b1, count, grads), bias_correction(b2, count, grads)

        def leaf(g: Any, mu: Any, nu: Any) -> tuple[Any, Any, Any]:
            m = moment(b1, g, mu)
            n = plus(moment(b2, fnp.square(g - m), nu), eps_root)
            return first(m, g) / plus(fnp.sqrt(scaled(correction, n)), eps), m, n

        updates, mu, nu = unzip_map("scale_by_belief", leaf, grads, state.mu, state.nu)
        return updates, ScaleByAdamState(count, mu, nu)

    return Optimizer(_adam_init(), update)


def scale_by_yogi(
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-3,
    eps_root: Scalar = 0.0,
    initial_accumulator_value: Scalar = 1e-6,
) -> Optimizer:
    """Adam whose second moment moves by ``(1 - b2) * sign(g**2 - nu) * g**2`` (Zaheer et al. 2018, Yogi).

    >>> opt = scale_by_yogi()
    >>> updates, state = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 3)
    1.0
    """
    require("scale_by_yogi", "[0, 1)", b1=b1, b2=b2)
    require("scale_by_yogi", "[0, inf)", eps=eps, eps_root=eps_root)

    def init(params: Tree) -> State:
        start = initial_accumulator_value
        return ScaleByAdamState(zero_count(), full_like(params, start), full_like(params, start))

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count = safe_increment(state.count)
        first, second = bias_correction(b1, count, grads), bias_correction(b2, count, grads)

        def leaf(g: Any, mu: Any, nu: Any) -> tuple[Any, Any, Any]:
            m, square = moment(b1, g, mu), fnp.square(g)
            n = nu - scaled(1.0 - b2, fnp.sign(nu - square) * square)
            return scaled(first, m) / root(scaled(second, n), eps, eps_root), m, n

        updates, mu, nu = unzip_map("scale_by_yogi", leaf, grads, state.mu, state.nu)
        return updates, ScaleByAdamState(count, mu, nu)

    return Optimizer(init, update)


def _sma_length(b2: Scalar, t: Any) -> Any:
    """``2 / (1 - b2) - 1 - 2 t b2**t / (1 - b2**t)`` to full precision.

    With ``u = -t log(b2)`` the last term is ``(2 t / u) * u / expm1(u)``. The difference is close to t for small u,
    where both sides are in the thousands, so 1 is taken out of ``u / expm1(u)`` and the rest expanded there.
    """
    rate = -math.log(b2) if is_number(b2) else -fnp.log(b2)
    u = t * rate
    series = u * (0.5 - u * (1.0 / 12.0 - fnp.square(u) * (1.0 / 720.0 - fnp.square(u) / 30240.0)))
    rest = fnp.where(u < 0.5, series, 1.0 - u / fnp.expm1(u))
    return (2.0 / (1.0 - b2) - 1.0 - 2.0 / rate) + (2.0 / rate) * rest


def scale_by_radam(
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    threshold: Scalar = 5.0,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """Adam with the variance of its step rectified, plain momentum until that is tractable (arXiv:1908.03265).

    With ``r_inf = 2 / (1 - b2) - 1`` and ``r = r_inf - 2 t b2**t / (1 - b2**t)`` the step is multiplied by
    ``sqrt((r - 4)(r - 2) r_inf / ((r_inf - 4)(r_inf - 2) r))`` when ``r >= threshold``.

    >>> opt = scale_by_radam()
    >>> updates, state = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    4.0
    """
    require("scale_by_radam", "[0, 1)", b1=b1)
    require("scale_by_radam", "(0, 1)", b2=b2)
    require("scale_by_radam", "[0, inf)", eps=eps, eps_root=eps_root)
    require("scale_by_radam", "[4, inf)", threshold=threshold)
    r_inf = 2.0 / (1.0 - b2) - 1.0

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count = safe_increment(state.count)
        first, correction = _first(nesterov, b1, count, grads), bias_correction(b2, count, grads)
        r = _sma_length(b2, cast(count, wide_dtype(grads)))
        known = r >= threshold
        safe = fnp.where(known, r, 5.0)
        factor = fnp.sqrt((safe - 4.0) * (safe - 2.0) / safe * (r_inf / ((r_inf - 4.0) * (r_inf - 2.0))))
        factor = fnp.where(known, factor, 1.0)

        def leaf(g: Any, mu: Any, nu: Any) -> tuple[Any, Any, Any]:
            m, n = moment(b1, g, mu), moment(b2, fnp.square(g), nu)
            divisor = fnp.where(known, root(scaled(correction, n), eps, eps_root), 1.0)
            return scaled(factor, first(m, g)) / cast(divisor, g.dtype), m, n

        updates, mu, nu = unzip_map("scale_by_radam", leaf, grads, state.mu, state.nu)
        return updates, ScaleByAdamState(count, mu, nu)

    return Optimizer(_adam_init(), update)


class ScaleByLionState(NamedTuple):
    """``count`` of updates (int32) and the momentum ``mu``."""

    count: Any
    mu: Tree


def scale_by_lion(b1: Scalar = 0.9, b2: Scalar = 0.99, mu_dtype: Any = None, *, mode: str = "hard") -> Optimizer:
    """The sign of an interpolation between momentum and gradient (Chen et al. 2023, arXiv:2302.06675).

    ``mode`` "hard" takes the sign, "smooth" the hyperbolic tangent, "refined" clamps to [-1, 1].

    >>> opt = scale_by_lion()
    >>> updates, state = opt.update(fnp.asarray([4.0, -0.1]), opt.init(fnp.zeros(2)))
    >>> [float(u) for u in updates]
    [1.0, -1.0]
    """
    require("scale_by_lion", "[0, 1]", b1=b1, b2=b2)
    signs: dict[str, Any] = {"hard": fnp.sign, "smooth": fnp.tanh, "refined": lambda x: fnp.clip(x, -1.0, 1.0)}
    if mode not in signs:
        raise ValueError(f"scale_by_lion: mode must be one of {sorted(signs)}, got {mode!r}")

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        def leaf(g: Any, mu: Any) -> tuple[Any, Any]:
            old = cast(mu, g.dtype)
            return signs[mode](moment(b1, g, old)), cast(moment(b2, g, old), mu.dtype)

        updates, mu = unzip_map("scale_by_lion", leaf, grads, state.mu)
        return updates, ScaleByLionState(safe_increment(state.count), mu)

    return Optimizer(lambda params: ScaleByLionState(zero_count(), zeros_like(params, mu_dtype)), update)
