"""Loss functions, unreduced: one value per example, for the caller to average or to mask.

Names, argument order and results are optax's. Class scores lie along ``axis``, the last one by default. ``where``
is a mask of the classes (or elements) that count; what it leaves out contributes nothing to the value or to any
gradient, whatever it holds, and an example that is left out altogether has loss 0.

>>> import funcgrad.numpy as fnp
>>> float(fnp.mean(squared_error(fnp.asarray([3.0, 1.0]), fnp.asarray([1.0, 1.0]))))
2.0
"""

from funcgrad.losses.classification import (
    cross_entropy_from_probs,
    generalized_kl_divergence,
    hinge_loss,
    kl_divergence,
    kl_divergence_with_log_targets,
    multiclass_hinge_loss,
    perceptron_loss,
    poly_loss,
    poly_loss_cross_entropy,
    safe_softmax_cross_entropy,
    sigmoid_binary_cross_entropy,
    sigmoid_focal_loss,
    smooth_labels,
    softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels,
)
from funcgrad.losses.regression import (
    cosine_distance,
    cosine_similarity,
    huber_loss,
    l2_loss,
    log_cosh,
    ntxent,
    squared_error,
    triplet_margin_loss,
)
from funcgrad.losses.structured import (
    binary_dice_loss,
    ctc_loss,
    dice_loss,
)

__all__ = [
    "binary_dice_loss",
    "cosine_distance",
    "cosine_similarity",
    "cross_entropy_from_probs",
    "ctc_loss",
    "dice_loss",
    "generalized_kl_divergence",
    "hinge_loss",
    "huber_loss",
    "kl_divergence",
    "kl_divergence_with_log_targets",
    "l2_loss",
    "log_cosh",
    "multiclass_hinge_loss",
    "ntxent",
    "perceptron_loss",
    "poly_loss",
    "poly_loss_cross_entropy",
    "safe_softmax_cross_entropy",
    "sigmoid_binary_cross_entropy",
    "sigmoid_focal_loss",
    "smooth_labels",
    "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels",
    "squared_error",
    "triplet_margin_loss",
]
