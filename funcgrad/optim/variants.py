"""The less common optimizers by name; see ``aliases`` for what their arguments share."""

from __future__ import annotations

from typing import Any

from funcgrad.optim.accumulators import ema, scale_by_adan, scale_by_novograd
from funcgrad.optim.base import Optimizer, Scalar, ScalarOrSchedule
from funcgrad.optim.combine import chain
from funcgrad.optim.moments import scale_by_adamax, scale_by_amsgrad, scale_by_belief, scale_by_yogi
from funcgrad.optim.scaling import add_decayed_weights, add_noise, scale_by_learning_rate, scale_by_sign


def adamaxw(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    weight_decay: ScalarOrSchedule = 1e-4,
    mask: Any = None,
) -> Optimizer:
    """``adamax`` with decoupled weight decay.

    >>> import funcgrad.numpy as fnp
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

    >>> import funcgrad.numpy as fnp
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

    >>> import funcgrad.numpy as fnp
    >>> opt = adabelief(0.9)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    -1.0
    """
    moments = scale_by_belief(b1, b2, eps, eps_root, nesterov=nesterov)
    return chain(moments, scale_by_learning_rate(learning_rate))


def yogi(learning_rate: ScalarOrSchedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-3) -> Optimizer:
    """Yogi (Zaheer et al. 2018): Adam whose second moment moves by bounded steps.

    >>> import funcgrad.numpy as fnp
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

    >>> import funcgrad.numpy as fnp
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

    >>> import funcgrad.numpy as fnp
    >>> opt = adan(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)), fnp.zeros(1))
    >>> round(float(updates[0]), 4)
    -0.5
    """
    decay = add_decayed_weights(weight_decay, mask)
    return chain(scale_by_adan(b1, b2, b3, eps, eps_root), decay, scale_by_learning_rate(learning_rate))


def sign_sgd(learning_rate: ScalarOrSchedule) -> Optimizer:
    """Steps by the sign of the gradient (Bernstein et al. 2018, arXiv:1802.04434).

    >>> import funcgrad.numpy as fnp
    >>> opt = sign_sgd(0.5)
    >>> float(opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))[0][0])
    -0.5
    """
    return chain(scale_by_sign(), scale_by_learning_rate(learning_rate))


def signum(learning_rate: ScalarOrSchedule, beta: Scalar = 0.9, accumulator_dtype: Any = None) -> Optimizer:
    """Steps by the sign of a moving average of the gradients (Bernstein et al. 2018, arXiv:1802.04434).

    >>> import funcgrad.numpy as fnp
    >>> opt = signum(0.5)
    >>> float(opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))[0][0])
    -0.5
    """
    average = ema(beta, debias=False, accumulator_dtype=accumulator_dtype)
    return chain(average, scale_by_sign(), scale_by_learning_rate(learning_rate))


def noisy_sgd(learning_rate: ScalarOrSchedule, eta: Scalar = 0.01, gamma: Scalar = 0.55, key: Any = 0) -> Optimizer:
    """SGD with decaying normal noise on the gradients (Neelakantan et al. 2015, arXiv:1511.06807).

    >>> import funcgrad.numpy as fnp
    >>> opt = noisy_sgd(0.5, eta=0.0)
    >>> float(opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))[0][0])
    -2.0
    """
    return chain(add_noise(eta, gamma, key), scale_by_learning_rate(learning_rate))
