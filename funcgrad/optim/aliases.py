"""The optimizers by name. Each is a chain of the transformations of this package.

``learning_rate`` is a number, a schedule (a function of the int32 count of updates) or an array of shape (), which
can be an argument of a jitted step. Defaults and results are optax's, to float32 rounding.
"""

from __future__ import annotations

from typing import Any

import funcgrad.numpy as fnp
from funcgrad.optim.accumulators import (
    ema,
    scale_by_adadelta,
    scale_by_rms,
    scale_by_rss,
    scale_by_stddev,
    trace,
)
from funcgrad.optim.base import Optimizer, Scalar, ScalarOrSchedule, identity
from funcgrad.optim.clipping import clip_by_block_rms
from funcgrad.optim.combine import chain, masked
from funcgrad.optim.factored import scale_by_factored_rms
from funcgrad.optim.moments import (
    scale_by_adam,
    scale_by_adamax,
    scale_by_lion,
    scale_by_radam,
)
from funcgrad.optim.scaling import (
    add_decayed_weights,
    scale,
    scale_by_learning_rate,
    scale_by_param_block_rms,
    scale_by_trust_ratio,
)

__all__ = [
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "lamb",
    "lars",
    "lion",
    "nadam",
    "nadamw",
    "radam",
    "rmsprop",
    "sgd",
]


def sgd(
    learning_rate: ScalarOrSchedule,
    momentum: Scalar | None = None,
    nesterov: bool = False,
    accumulator_dtype: Any = None,
) -> Optimizer:
    """Stochastic gradient descent: ``v = g + momentum * v``, ``w -= learning_rate * v``.

    With ``nesterov`` the step is ``g + momentum * v`` (Sutskever et al. 2013).

    >>> opt = sgd(0.5)
    >>> updates, _ = opt.update(fnp.ones(()), opt.init(fnp.zeros(())))
    >>> float(updates)
    -0.5
    """
    first = identity() if momentum is None else trace(momentum, nesterov, accumulator_dtype)
    return chain(first, scale_by_learning_rate(learning_rate))


def adam(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """Adam (Kingma and Ba 2014, arXiv:1412.6980): ``w -= learning_rate * mhat / (sqrt(nhat + eps_root) + eps)``.

    >>> opt = adam(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    -0.5
    """
    moments = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return chain(moments, scale_by_learning_rate(learning_rate))


def adamw(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 1e-4,
    mask: Any = None,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """Adam with decoupled weight decay (arXiv:1711.05101): ``w -= learning_rate * (adam step + weight_decay * w)``.

    ``mask`` is a tree of booleans, or a function of the parameters that gives one: only leaves under True decay.

    >>> opt = adamw(0.5, weight_decay=0.0)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)), fnp.zeros(1))
    >>> round(float(updates[0]), 4)
    -0.5
    """
    moments = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return chain(moments, add_decayed_weights(weight_decay, mask), scale_by_learning_rate(learning_rate))


def nadam(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
) -> Optimizer:
    """Adam with Nesterov's look ahead (Dozat 2016).

    >>> opt = nadam(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    -0.7368
    """
    return adam(learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)


def nadamw(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 1e-4,
    mask: Any = None,
    *,
    nesterov: bool = True,
) -> Optimizer:
    """AdamW with Nesterov's look ahead.

    >>> opt = nadamw(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)), fnp.zeros(1))
    >>> round(float(updates[0]), 4)
    -0.7368
    """
    return adamw(learning_rate, b1, b2, eps, eps_root, mu_dtype, weight_decay, mask, nesterov=nesterov)


def radam(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    threshold: Scalar = 5.0,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """Rectified Adam (Liu et al. 2019, arXiv:1908.03265); see ``scale_by_radam``.

    >>> opt = radam(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    -2.0
    """
    moments = scale_by_radam(b1, b2, eps, eps_root, threshold, nesterov=nesterov)
    return chain(moments, scale_by_learning_rate(learning_rate))


def rmsprop(
    learning_rate: ScalarOrSchedule,
    decay: Scalar = 0.9,
    eps: Scalar = 1e-8,
    initial_scale: Scalar = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: Scalar | None = None,
    nesterov: bool = False,
    bias_correction: bool = False,
) -> Optimizer:
    """RMSProp (Hinton 2012), or its centred form (Graves 2013), with optional momentum after the learning rate.

    >>> opt = rmsprop(0.5, decay=0.75)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    -1.0
    """
    scaling = scale_by_stddev if centered else scale_by_rms
    first = scaling(decay, eps, initial_scale, eps_in_sqrt, bias_correction)
    last = identity() if momentum is None else trace(momentum, nesterov)
    return chain(first, scale_by_learning_rate(learning_rate), last)


def adagrad(learning_rate: ScalarOrSchedule, initial_accumulator_value: Scalar = 0.1, eps: Scalar = 1e-7) -> Optimizer:
    """AdaGrad (Duchi et al. 2011): steps divided by the root of the sum of squared gradients.

    >>> opt = adagrad(0.5, initial_accumulator_value=0.0)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    -0.5
    """
    return chain(scale_by_rss(initial_accumulator_value, eps), scale_by_learning_rate(learning_rate))


def adadelta(
    learning_rate: ScalarOrSchedule | None = None,
    rho: Scalar = 0.9,
    eps: Scalar = 1e-6,
    weight_decay: ScalarOrSchedule = 0.0,
    weight_decay_mask: Any = None,
) -> Optimizer:
    """AdaDelta (Zeiler 2012, arXiv:1212.5701). Without a learning rate updates keep the gradient's sign, as in optax.

    >>> opt = adadelta(1.0, rho=0.75, eps=1.0)
    >>> updates, _ = opt.update(fnp.asarray([0.0]), opt.init(fnp.zeros(1)), fnp.zeros(1))
    >>> float(updates[0]) == 0.0
    True
    """
    decay = add_decayed_weights(weight_decay, weight_decay_mask)
    return chain(decay, scale_by_adadelta(rho, eps), scale_by_learning_rate(learning_rate))


def adafactor(
    learning_rate: ScalarOrSchedule | None = None,
    min_dim_size_to_factor: int = 128,
    decay_rate: Scalar = 0.8,
    decay_offset: int = 0,
    multiply_by_parameter_scale: bool = True,
    clipping_threshold: Scalar | None = 1.0,
    momentum: Scalar | None = None,
    dtype_momentum: Any = fnp.float32,
    weight_decay_rate: ScalarOrSchedule | None = None,
    eps: Scalar = 1e-30,
    factored: bool = True,
    weight_decay_mask: Any = None,
) -> Optimizer:
    """Adafactor (Shazeer and Stern 2018, arXiv:1804.04235): memory for the rows and columns of a matrix only.

    >>> opt = adafactor(0.5)
    >>> params = fnp.ones((4,))
    >>> updates, _ = opt.update(fnp.ones((4,)), opt.init(params), params)
    >>> round(float(updates[0]), 4)
    -0.5
    """
    parts = [scale_by_factored_rms(factored, decay_rate, decay_offset, min_dim_size_to_factor, eps)]
    if clipping_threshold is not None:
        parts.append(clip_by_block_rms(clipping_threshold))
    if learning_rate is not None:
        parts.append(scale_by_learning_rate(learning_rate, flip_sign=False))
    if multiply_by_parameter_scale:
        parts.append(scale_by_param_block_rms())
    if momentum is not None:
        parts.append(ema(momentum, debias=False, accumulator_dtype=dtype_momentum))
    if weight_decay_rate is not None:
        parts.append(add_decayed_weights(weight_decay_rate, weight_decay_mask))
    return chain(*parts, scale(-1.0))


def lamb(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-6,
    eps_root: Scalar = 0.0,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: Any = None,
) -> Optimizer:
    """Adam with each leaf's step scaled to the norm of its parameter (You et al. 2019, arXiv:1904.00962).

    >>> opt = lamb(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.ones(1)), fnp.ones(1))
    >>> round(float(updates[0]), 4)
    -0.5
    """
    moments, decay = scale_by_adam(b1, b2, eps, eps_root), add_decayed_weights(weight_decay, mask)
    return chain(moments, decay, scale_by_trust_ratio(), scale_by_learning_rate(learning_rate))


def lars(
    learning_rate: ScalarOrSchedule,
    weight_decay: ScalarOrSchedule = 0.0,
    weight_decay_mask: Any = True,
    trust_coefficient: Scalar = 0.001,
    eps: Scalar = 0.0,
    trust_ratio_mask: Any = True,
    momentum: Scalar = 0.9,
    nesterov: bool = False,
) -> Optimizer:
    """Momentum with each leaf's step scaled to the norm of its parameter (You et al. 2017, arXiv:1708.03888).

    >>> opt = lars(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.ones(1)), fnp.ones(1))
    >>> round(float(updates[0]), 6)
    -0.0005
    """
    ratio = masked(scale_by_trust_ratio(trust_coefficient=trust_coefficient, eps=eps), trust_ratio_mask)
    decay = add_decayed_weights(weight_decay, weight_decay_mask)
    return chain(decay, ratio, scale_by_learning_rate(learning_rate), trace(momentum, nesterov))


def lion(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.99,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 1e-3,
    mask: Any = None,
) -> Optimizer:
    """Lion (Chen et al. 2023, arXiv:2302.06675): the sign of a momentum, with decoupled weight decay.

    >>> opt = lion(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)), fnp.zeros(1))
    >>> float(updates[0])
    -0.5
    """
    decay = add_decayed_weights(weight_decay, mask)
    return chain(scale_by_lion(b1, b2, mu_dtype), decay, scale_by_learning_rate(learning_rate))


def adamax(learning_rate: ScalarOrSchedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8) -> Optimizer:
    """Adam with a maximum in place of the second moment (arXiv:1412.6980, section 7.1).

    >>> opt = adamax(0.5)
    >>> updates, _ = opt.update(fnp.asarray([4.0]), opt.init(fnp.zeros(1)))
    >>> round(float(updates[0]), 4)
    -0.5
    """
    return chain(scale_by_adamax(b1, b2, eps), scale_by_learning_rate(learning_rate))
