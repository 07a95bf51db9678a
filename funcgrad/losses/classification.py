"""Losses between class scores and labels."""

from __future__ import annotations

import math

import funcgrad.numpy as fnp
from funcgrad import nn
from funcgrad.losses.common import (
    Array,
    Axis,
    floating,
    joined_last,
    like,
    log_softmax,
    mask_of,
    same_shape,
    shifted,
    weighted,
)


def softmax_cross_entropy(logits: Array, labels: Array, axis: Axis = -1, where: Array | None = None) -> Array:
    """``-sum(labels * log_softmax(logits))`` along ``axis``, for labels that are probabilities (or one-hot).

    Shapes ``(..., classes)`` and ``(..., classes)`` give ``(...)``. A class with label 0 contributes 0 even where its
    logit is minus infinity. ggmlR floors the probability at 1e-7 in the value, so its loss stops near 16.1; here it
    is exact.

    >>> loss = softmax_cross_entropy(fnp.asarray([[0.0, 0.0]]), fnp.asarray([[1.0, 0.0]]))
    >>> round(float(loss[0]), 4)
    0.6931
    """
    logits = floating("softmax_cross_entropy", logits=logits)
    labels, where = like(labels, logits), mask_of(where, logits, axis)
    same_shape("softmax_cross_entropy", logits, labels)
    return -fnp.sum(weighted(labels, log_softmax(logits, axis, where), where), axis=axis)


def safe_softmax_cross_entropy(logits: Array, labels: Array) -> Array:
    """``softmax_cross_entropy``, which is safe here; the name is optax's.

    >>> loss = safe_softmax_cross_entropy(fnp.asarray([0.0, float("-inf")]), fnp.asarray([1.0, 0.0]))
    >>> abs(float(loss))
    0.0
    """
    return softmax_cross_entropy(logits, labels)


def softmax_cross_entropy_with_integer_labels(
    logits: Array, labels: Array, axis: int | tuple[int, ...] = -1, where: Array | None = None
) -> Array:
    """``-log_softmax(logits)[label]`` along ``axis``, for labels that count classes from 0.

    Shapes ``(..., classes)`` and ``(...)`` give ``(...)``. With a tuple of axes a label counts positions of these
    axes in row-major order.

    >>> loss = softmax_cross_entropy_with_integer_labels(fnp.asarray([[0.0, 0.0, 1e4]]), fnp.asarray([2]))
    >>> abs(float(loss[0]))
    0.0
    """
    op = "softmax_cross_entropy_with_integer_labels"
    logits, labels = floating(op, logits=logits), fnp.asarray(labels)
    if not fnp.issubdtype(labels.dtype, fnp.integer):
        raise TypeError(f"{op}: integer labels are required, got {labels.dtype}; see softmax_cross_entropy")
    where = mask_of(where, logits, axis)
    if isinstance(axis, tuple):
        where = None if where is None else joined_last(fnp.broadcast_to(where, logits.shape), axis)
        logits = joined_last(logits, axis)
    at = logits.ndim - 1 if isinstance(axis, tuple) else axis % logits.ndim
    shape = logits.shape[:at] + logits.shape[at + 1 :]
    if labels.shape != shape:
        raise ValueError(f"{op}: labels of shape {shape} are required for logits {logits.shape}, got {labels.shape}")
    scores, log_total = shifted(logits, at, where)
    loss = log_total - fnp.take_along_axis(scores, fnp.expand_dims(labels, at), axis=at)
    if where is not None:
        loss = fnp.where(fnp.any(where, axis=at, keepdims=True), loss, 0.0)
    return fnp.squeeze(loss, axis=at)


def cross_entropy_from_probs(p: Array, y: Array, eps: float = 1e-7, axis: Axis = -1) -> Array:
    """``-sum(y * log(p))`` along ``axis`` with the probabilities clamped to ``[eps, 1 - eps]``, as ggmlR's.

    The gradient is ``-y / p`` inside the bounds and 0 on and outside them (ggmlR's uses the clamped p there).
    Prefer ``softmax_cross_entropy`` on logits, which loses nothing.

    >>> round(float(cross_entropy_from_probs(fnp.asarray([0.5, 0.5]), fnp.asarray([1.0, 0.0]))), 4)
    0.6931
    """
    if isinstance(eps, int | float) and not 0.0 < eps < 0.5:
        raise ValueError(f"cross_entropy_from_probs: eps must be in (0, 0.5), got {eps!r}")
    p = floating("cross_entropy_from_probs", p=p)
    same_shape("cross_entropy_from_probs", p, fnp.asarray(y))
    return -fnp.sum(like(y, p) * fnp.log(fnp.clip(p, eps, 1.0 - eps)), axis=axis)


def sigmoid_binary_cross_entropy(logits: Array, labels: Array) -> Array:
    """``-labels * log(sigmoid(logits)) - (1 - labels) * log(1 - sigmoid(logits))`` per element.

    Computed as ``labels * softplus(-logits) + (1 - labels) * softplus(logits)``, which keeps its relative precision
    for logits of any size. Labels may lie between 0 and 1.

    >>> [round(float(x), 4) for x in sigmoid_binary_cross_entropy(fnp.asarray([0.0, 1e4]), fnp.asarray([1.0, 1.0]))]
    [0.6931, 0.0]
    """
    logits = floating("sigmoid_binary_cross_entropy", logits=logits)
    labels = like(labels, logits)
    return labels * nn.softplus(-logits) + (1.0 - labels) * nn.softplus(logits)


def sigmoid_focal_loss(logits: Array, labels: Array, *, alpha: float | None = None, gamma: float = 2.0) -> Array:
    """Binary cross entropy times ``(1 - p_t) ** gamma``, which discounts easy examples (Lin et al. 2017).

    ``p_t`` is the probability of the label (arXiv:1708.02002). ``alpha`` weighs label 1, ``1 - alpha`` label 0.

    >>> round(float(sigmoid_focal_loss(fnp.asarray(0.0), fnp.asarray(1.0))), 4)
    0.1733
    """
    logits = floating("sigmoid_focal_loss", logits=logits)
    labels = like(labels, logits)
    # 1 - p_t is a mixture of two probabilities, so it needs no logarithm of a difference
    miss = labels * nn.sigmoid(-logits) + (1.0 - labels) * nn.sigmoid(logits)
    loss = sigmoid_binary_cross_entropy(logits, labels) * miss**gamma
    return loss if alpha is None else (alpha * labels + (1.0 - alpha) * (1.0 - labels)) * loss


def hinge_loss(predictor_outputs: Array, targets: Array) -> Array:
    """``max(0, 1 - output * target)`` per element, for targets -1 and 1.

    >>> [float(x) for x in hinge_loss(fnp.asarray([2.0, 0.5]), fnp.asarray([1.0, -1.0]))]
    [0.0, 1.5]
    """
    return fnp.maximum(1.0 - predictor_outputs * targets, 0.0)


def perceptron_loss(predictor_outputs: Array, targets: Array) -> Array:
    """``max(0, -output * target)`` per element, for targets -1 and 1.

    >>> [float(x) for x in perceptron_loss(fnp.asarray([2.0, 0.5]), fnp.asarray([1.0, -1.0]))]
    [0.0, 0.5]
    """
    return fnp.maximum(-predictor_outputs * targets, 0.0)


def multiclass_hinge_loss(scores: Array, labels: Array) -> Array:
    """``max(scores + 1 - one_hot) - scores[label]`` over the last axis (Crammer and Singer 2001).

    >>> float(multiclass_hinge_loss(fnp.asarray([1.0, 0.5]), fnp.asarray(0)))
    0.5
    """
    scores = floating("multiclass_hinge_loss", scores=scores)
    one_hot = nn.one_hot(labels, scores.shape[-1], dtype=scores.dtype)
    return fnp.max(scores + 1.0 - one_hot, axis=-1) - fnp.sum(scores * one_hot, axis=-1)


def poly_loss_cross_entropy(
    logits: Array, labels: Array, *, epsilon: float = 2.0, axis: Axis = -1, where: Array | None = None
) -> Array:
    """Cross entropy plus ``epsilon * sum(labels * (1 - softmax(logits)))`` (Leng et al. 2022, arXiv:2204.12511).

    >>> round(float(poly_loss_cross_entropy(fnp.zeros(2), fnp.asarray([1.0, 0.0]))), 4)
    1.6931
    """
    logits = floating("poly_loss_cross_entropy", logits=logits)
    labels, mask = like(labels, logits), mask_of(where, logits, axis)
    log_p = log_softmax(logits, axis, mask)
    entropy, miss = weighted(labels, log_p, mask), weighted(labels, 1.0 - fnp.exp(log_p), mask)
    return fnp.sum(epsilon * miss - entropy, axis=axis)


poly_loss = poly_loss_cross_entropy


def kl_divergence(log_predictions: Array, targets: Array, axis: Axis = -1, where: Array | None = None) -> Array:
    """``sum(targets * (log(targets) - log_predictions))`` along ``axis``; a target of 0 contributes 0.

    >>> round(float(kl_divergence(fnp.log(fnp.asarray([0.5, 0.5])), fnp.asarray([1.0, 0.0]))), 4)
    0.6931
    """
    log_predictions = floating("kl_divergence", log_predictions=log_predictions)
    targets = like(targets, log_predictions)
    log_targets = fnp.log(fnp.where(targets == 0, 1.0, targets))
    return fnp.sum(weighted(targets, log_targets - log_predictions, where), axis=axis)


def kl_divergence_with_log_targets(
    log_predictions: Array, log_targets: Array, axis: Axis = -1, where: Array | None = None
) -> Array:
    """``sum(exp(log_targets) * (log_targets - log_predictions))`` along ``axis``; minus infinity contributes 0.

    >>> float(kl_divergence_with_log_targets(fnp.log(fnp.full(2, 0.5)), fnp.log(fnp.full(2, 0.5))))
    0.0
    """
    log_predictions = floating("kl_divergence_with_log_targets", log_predictions=log_predictions)
    log_targets = like(log_targets, log_predictions)
    gap = fnp.where(log_targets == -math.inf, 0.0, log_targets) - log_predictions
    return fnp.sum(weighted(fnp.exp(log_targets), gap, where), axis=axis)


def generalized_kl_divergence(
    log_predictions: Array, targets: Array, axis: Axis = -1, where: Array | None = None
) -> Array:
    """``kl_divergence`` plus ``sum(exp(log_predictions) - targets)``, for measures that do not sum to 1.

    >>> round(float(generalized_kl_divergence(fnp.log(fnp.full(2, 0.5)), fnp.asarray([0.5, 0.5]))), 4)
    0.0
    """
    excess = fnp.exp(log_predictions) - like(targets, log_predictions)
    excess = excess if where is None else fnp.where(where, excess, 0.0)
    return kl_divergence(log_predictions, targets, axis, where) + fnp.sum(excess, axis=axis)


def smooth_labels(labels: Array, alpha: float, *, axis: Axis = -1, where: Array | None = None) -> Array:
    """``(1 - alpha) * labels + alpha / classes`` (Müller et al. 2019, arXiv:1906.02629).

    >>> [round(float(x), 4) for x in smooth_labels(fnp.asarray([1.0, 0.0]), 0.1)]
    [0.95, 0.05]
    """
    if isinstance(alpha, int | float) and not 0.0 <= alpha <= 1.0:
        raise ValueError(f"smooth_labels: alpha must be in [0, 1], got {alpha!r}")
    labels = floating("smooth_labels", labels=labels)
    if where is None:
        axes = range(labels.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        return (1.0 - alpha) * labels + alpha / math.prod(labels.shape[a] for a in axes)
    count = fnp.sum(like(where, labels), axis=axis, keepdims=True)
    return (1.0 - alpha) * labels + alpha / count
