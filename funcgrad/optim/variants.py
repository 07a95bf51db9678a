"""The less common optimizers by name; see ``aliases`` for what their arguments share."""

from __future__ import annotations

from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.optim.accumulators import ema, scale_by_adan, scale_by_novograd
from funcgrad.optim.base import (
    EmptyState,
    Optimizer,
    OptimizerExtraArgs,
    Scalar,
    ScalarOrSchedule,
    State,
    Tree,
    require,
    require_params,
    safe_increment,
    scaled,
    tree_vdot,
    zero_count,
    zeros_like,
)
from funcgrad.optim.combine import chain
from funcgrad.optim.moments import scale_by_adamax, scale_by_amsgrad, scale_by_belief, scale_by_yogi
from funcgrad.optim.scaling import (
    add_decayed_weights,
    add_noise,
    scale_by_learning_rate,
    scale_by_sign,
    scale_by_trust_ratio,
)

__all__ = [
    "ScaleByOptimisticGradientState",
    "adabelief",
    "adamaxw",
    "adan",
    "amsgrad",
    "fromage",
    "noisy_sgd",
    "novograd",
    "optimistic_gradient_descent",
    "polyak_sgd",
    "scale_by_optimistic_gradient",
    "scale_by_polyak",
    "sign_sgd",
    "signum",
    "yogi",
]


def adamaxw(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    weight_decay: ScalarOrSchedule = 1e-4,
    mask: Any = None,
) -> Optimizer:
    """``adamax`` with decoupled weight decay.

    >>> opt = adamaxw(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)), fnp.zeros(1))
    >>> round(float(updates[0]), 4)
    -0.5
    """
    decay = add_decayed_weights(weight_decay, mask)
    return chain(scale_by_adamax(b1, b2, eps), decay, scale_by_learning_rate(learning_rate))


def amsgrad(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> Optimizer:
    """Adam with the largest second moment so far (Reddi et al. 2018, arXiv:1904.09237).

    >>> opt = amsgrad(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    -0.5
    """
    moments = scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype, bias_correction_mu, bias_correction_nu)
    return chain(moments, scale_by_learning_rate(learning_rate))


def adabelief(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-16,
    eps_root: Scalar = 1e-16,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """AdaBelief (Zhuang et al. 2020, arXiv:2010.07468): the second moment is that of ``g - mu``.

    >>> opt = adabelief(0.9)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    -1.0
    """
    moments = scale_by_belief(b1, b2, eps, eps_root, nesterov=nesterov)
    return chain(moments, scale_by_learning_rate(learning_rate))


def yogi(learning_rate: ScalarOrSchedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-3) -> Optimizer:
    """Yogi (Zaheer et al. 2018): Adam whose second moment moves by bounded steps.

    >>> opt = yogi(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 3)
    -0.5
    """
    return chain(scale_by_yogi(b1, b2, eps), scale_by_learning_rate(learning_rate))


def novograd(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.25,
    eps: Scalar = 1e-6,
    eps_root: Scalar = 0.0,
    weight_decay: Scalar = 0.0,
) -> Optimizer:
    """NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286): one second moment per leaf.

    >>> opt = novograd(0.5)
    >>> updates, _ = opt.update(fnp.asarray([3.0, 4.0]), opt.init(fnp.zeros(2)), fnp.zeros(2))
    >>> [round(float(u), 4) for u in updates]
    [-0.3, -0.4]
    """
    moments = scale_by_novograd(b1, b2, eps, eps_root, weight_decay)
    return chain(moments, scale_by_learning_rate(learning_rate))


def adan(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.98,
    b2: Scalar = 0.92,
    b3: Scalar = 0.99,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 1e-8,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: Any = None,
) -> Optimizer:
    """Adaptive Nesterov momentum (Xie et al. 2022, arXiv:2208.06677) with decoupled weight decay.

    >>> opt = adan(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)), fnp.zeros(1))
    >>> round(float(updates[0]), 4)
    -0.5
    """
    decay = add_decayed_weights(weight_decay, mask)
    return chain(scale_by_adan(b1, b2, b3, eps, eps_root), decay, scale_by_learning_rate(learning_rate))


def sign_sgd(learning_rate: ScalarOrSchedule) -> Optimizer:
    """Steps by the sign of the gradient (Bernstein et al. 2018, arXiv:1802.04434).

    >>> opt = sign_sgd(0.5)
    >>> float(opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))[0][0])
    -0.5
    """
    return chain(scale_by_sign(), scale_by_learning_rate(learning_rate))


def signum(learning_rate: ScalarOrSchedule, beta: Scalar = 0.9, accumulator_dtype: Any = None) -> Optimizer:
    """Steps by the sign of a moving average of the gradients (Bernstein et al. 2018, arXiv:1802.04434).

    >>> opt = signum(0.5)
    >>> float(opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))[0][0])
    -0.5
    """
    average = ema(beta, debias=False, accumulator_dtype=accumulator_dtype)
    return chain(average, scale_by_sign(), scale_by_learning_rate(learning_rate))


def noisy_sgd(learning_rate: ScalarOrSchedule, eta: Scalar = 0.01, gamma: Scalar = 0.55, key: Any = 0) -> Optimizer:
    """SGD with decaying normal noise on the gradients (Neelakantan et al. 2015, arXiv:1511.06807).

    >>> opt = noisy_sgd(0.5, eta=0.0)
    >>> float(opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))[0][0])
    -2.0
    """
    return chain(add_noise(eta, gamma, key), scale_by_learning_rate(learning_rate))


class ScaleByOptimisticGradientState(NamedTuple):
    """Whether no update was made yet, and the gradient of the last one."""

    is_initial_step: Any
    previous_gradient: Tree


def scale_by_optimistic_gradient(alpha: Scalar = 1.0, beta: Scalar = 1.0) -> Optimizer:
    """``(alpha + beta) * g - beta * previous g``, where the first update takes g for the previous one.

    >>> opt = scale_by_optimistic_gradient()
    >>> updates, state = opt.update(fnp.asarray(1.0), opt.init(fnp.zeros(())))
    >>> float(opt.update(fnp.asarray(3.0), state)[0])
    5.0
    """
    require("scale_by_optimistic_gradient", "(-inf, inf)", alpha=alpha, beta=beta)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        def leaf(g: Any, last: Any) -> Any:
            last = fnp.where(state.is_initial_step, g, last)
            return scaled(alpha + beta, g) - scaled(beta, last)

        new = tree.map(leaf, grads, state.previous_gradient)
        return new, ScaleByOptimisticGradientState(fnp.asarray(False), grads)

    return Optimizer(lambda params: ScaleByOptimisticGradientState(fnp.asarray(True), zeros_like(params)), update)


def optimistic_gradient_descent(learning_rate: ScalarOrSchedule, alpha: Scalar = 1.0, beta: Scalar = 1.0) -> Optimizer:
    """Gradient descent with a guess of the next gradient, for games (Mokhtari et al. 2019, arXiv:1901.08511).

    >>> opt = optimistic_gradient_descent(0.5)
    >>> float(opt.update(fnp.asarray(1.0), opt.init(fnp.zeros(())))[0])
    -0.5
    """
    return chain(scale_by_optimistic_gradient(alpha, beta), scale_by_learning_rate(learning_rate))


def fromage(learning_rate: ScalarOrSchedule, min_norm: Scalar = 1e-6) -> Optimizer:
    """Steps relative to each leaf's norm, then shrunk (Bernstein et al. 2020, arXiv:2002.03432).

    >>> opt = fromage(1.0)
    >>> params = fnp.asarray([2.0])
    >>> updates, _ = opt.update(fnp.asarray([5.0]), opt.init(params), params)
    >>> round(float((params + updates)[0]), 4)
    0.0
    """
    require("fromage", "[0, inf)", learning_rate=learning_rate, min_norm=min_norm)

    def factor(rate: Scalar) -> Scalar:
        return (1.0 + rate**2) ** -0.5

    if callable(learning_rate):
        schedule = learning_rate
        rates: Any = lambda count: factor(schedule(count)) * schedule(count)
        shrink: Any = lambda count: factor(schedule(count)) - 1.0
    else:
        rates, shrink = factor(learning_rate) * learning_rate, factor(learning_rate) - 1.0
    return chain(scale_by_trust_ratio(min_norm), scale_by_learning_rate(rates), _add_scaled_params(shrink))


def _add_scaled_params(factor: ScalarOrSchedule) -> Optimizer:
    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        require_params("fromage", params)
        value = factor(state) if callable(factor) else factor
        return tree.map(lambda g, p: g + scaled(value, p), grads, params), safe_increment(state)

    return Optimizer(lambda params: zero_count(), update)


def scale_by_polyak(
    f_min: Scalar = 0.0, max_learning_rate: Scalar = 1.0, eps: Scalar = 0.0, variant: str = "sps"
) -> Optimizer:
    """Polyak's step size: ``min((value - f_min) / (|g|**2 + eps), max_learning_rate)``.

    ``update`` needs ``value=``, the function at the parameters. "sps+" takes a negative gap for 0 (Loizou et al.
    2021, arXiv:2002.10542).

    >>> opt = scale_by_polyak()
    >>> float(opt.update(fnp.asarray(4.0), opt.init(None), None, value=fnp.asarray(8.0))[0])
    2.0
    """
    require("scale_by_polyak", "(-inf, inf)", f_min=f_min)
    require("scale_by_polyak", "[0, inf)", max_learning_rate=max_learning_rate, eps=eps)
    if variant not in ("sps", "sps+"):
        raise ValueError(f"scale_by_polyak: variant must be 'sps' or 'sps+', got {variant!r}")

    def update(grads: Tree, state: State, params: Tree = None, *, value: Any, **extra: Any) -> tuple[Tree, State]:
        square, gap = tree_vdot(grads, grads) + eps, value - f_min
        gap = fnp.maximum(gap, 0.0) if variant == "sps+" else gap
        flat = square <= 2.0**-23
        size = fnp.where(flat, 0.0, fnp.minimum(gap / fnp.where(flat, 1.0, square), max_learning_rate))
        return tree.map(lambda g: scaled(size, g), grads), state

    return OptimizerExtraArgs(lambda params: EmptyState(), update)


def polyak_sgd(
    max_learning_rate: Scalar = 1.0,
    scaling: ScalarOrSchedule = 1.0,
    f_min: Scalar = 0.0,
    eps: Scalar = 0.0,
    variant: str = "sps",
) -> Optimizer:
    """SGD with Polyak's step size; ``update`` needs ``value=``. See ``scale_by_polyak``.

    >>> opt = polyak_sgd()
    >>> state = opt.init(fnp.zeros(()))
    >>> float(opt.update(fnp.asarray(4.0), state, None, value=fnp.asarray(8.0))[0])
    -2.0
    """
    return chain(scale_by_learning_rate(scaling), scale_by_polyak(f_min, max_learning_rate, eps, variant))
