"""Losses between predictions and targets that are numbers or vectors."""

from __future__ import annotations

import math

import funcgrad.numpy as fnp
from funcgrad import nn
from funcgrad.losses.common import Array, Axis, errors, floating, like, shifted


def squared_error(predictions: Array, targets: Array | None = None) -> Array:
    """``(predictions - targets) ** 2`` per element; the targets are 0 when not given. ggmlR's MSE is its mean.

    Raises ValueError when the shapes differ: ``(n,)`` against ``(n, 1)`` would broadcast to ``(n, n)``.

    >>> [float(x) for x in squared_error(fnp.asarray([1.0, 3.0]), fnp.asarray([0.0, 1.0]))]
    [1.0, 4.0]
    """
    return fnp.square(errors("squared_error", predictions, targets))


def l2_loss(predictions: Array, targets: Array | None = None) -> Array:
    """``0.5 * (predictions - targets) ** 2`` per element.

    >>> float(l2_loss(fnp.asarray(3.0), fnp.asarray(1.0)))
    2.0
    """
    return 0.5 * fnp.square(errors("l2_loss", predictions, targets))


def huber_loss(predictions: Array, targets: Array | None = None, *, delta: float = 1.0) -> Array:
    """Half the squared error up to ``delta`` and a straight line beyond (Huber 1964).

    >>> [float(x) for x in huber_loss(fnp.asarray([0.5, 3.0]), fnp.zeros(2))]
    [0.125, 2.5]
    """
    if isinstance(delta, int | float) and not 0.0 < delta < math.inf:
        raise ValueError(f"huber_loss: delta must be positive and finite, got {delta!r}")
    size = fnp.abs(errors("huber_loss", predictions, targets))
    near = fnp.minimum(size, delta)
    return 0.5 * fnp.square(near) + delta * (size - near)


def log_cosh(predictions: Array, targets: Array | None = None) -> Array:
    """``log(cosh(predictions - targets))`` per element: quadratic near 0, linear far out.

    Computed as ``|x| + log1p(exp(-2 |x|)) - log(2)``, which does not overflow.

    >>> round(float(log_cosh(fnp.asarray(100.0), fnp.asarray(0.0))), 4)
    99.3069
    """
    size = fnp.abs(errors("log_cosh", predictions, targets))
    # near 0 the sum cancels; log(cosh(x)) = log1p(expm1(|x|)**2 exp(-|x|) / 2) does not
    small = fnp.minimum(size, 1.0)
    near = fnp.log1p(0.5 * fnp.square(fnp.expm1(small)) * fnp.exp(-small))
    return fnp.where(size < 1.0, near, size + fnp.log1p(fnp.exp(-2.0 * size)) - math.log(2.0))


def cosine_similarity(
    predictions: Array, targets: Array, *, epsilon: float = 0.0, axis: Axis = -1, where: Array | None = None
) -> Array:
    """The cosine of the angle between two vectors along ``axis``.

    Squared norms are at least ``epsilon``, so a positive one gives a vector of zeros the similarity 0 (NaN without).

    >>> round(float(cosine_similarity(fnp.asarray([1.0, 0.0]), fnp.asarray([1.0, 1.0]))), 4)
    0.7071
    """
    a, b = floating("cosine_similarity", predictions=predictions), floating("cosine_similarity", targets=targets)
    if where is not None:
        a, b = fnp.where(where, a, 0.0), fnp.where(where, b, 0.0)

    def unit(x: Array) -> Array:
        return x / fnp.sqrt(fnp.maximum(fnp.sum(fnp.square(x), axis=axis, keepdims=True), epsilon))

    return fnp.sum(unit(a) * unit(b), axis=axis)


def cosine_distance(
    predictions: Array, targets: Array, *, epsilon: float = 0.0, axis: Axis = -1, where: Array | None = None
) -> Array:
    """``1 - cosine_similarity(predictions, targets)``.

    >>> float(cosine_distance(fnp.asarray([1.0, 0.0]), fnp.asarray([0.0, 1.0])))
    1.0
    """
    return 1.0 - cosine_similarity(predictions, targets, epsilon=epsilon, axis=axis, where=where)


def triplet_margin_loss(
    anchors: Array,
    positives: Array,
    negatives: Array,
    axis: int = -1,
    norm_degree: float = 2,
    margin: float = 1.0,
    eps: float = 1e-6,
) -> Array:
    """``max(d(anchor, positive) - d(anchor, negative) + margin, 0)`` along ``axis`` (Schroff et al. 2015).

    The distance is ``(sum |a - b| ** norm_degree + eps) ** (1 / norm_degree)`` (arXiv:1503.03832).

    >>> a, b = fnp.zeros((1, 2)), fnp.asarray([[3.0, 4.0]])
    >>> float(triplet_margin_loss(a, a, b, eps=0.0)[0])
    0.0
    """
    if isinstance(norm_degree, int | float) and not norm_degree > 0:
        raise ValueError(f"triplet_margin_loss: norm_degree must be positive, got {norm_degree!r}")

    def distance(other: Array) -> Array:
        gap = fnp.abs(errors("triplet_margin_loss", anchors, other))
        if norm_degree == 2:
            return fnp.sqrt(fnp.sum(fnp.square(gap), axis=axis) + eps)
        return (fnp.sum(gap**norm_degree, axis=axis) + eps) ** (1.0 / norm_degree)

    return fnp.maximum(distance(positives) - distance(negatives) + margin, 0.0)


def ntxent(embeddings: Array, labels: Array, temperature: float = 0.07) -> Array:
    """The normalised temperature-scaled cross entropy of a batch, a scalar (Chen et al. 2020, arXiv:2002.05709).

    Every pair of rows with equal labels is a positive pair, against all rows with other labels: the mean over
    positive pairs of ``log(1 + sum_k exp(s_ik - s_ij))``, with s the cosine similarity over the temperature. 0 when
    there is no positive pair. Embeddings are ``(n, features)``, labels ``(n,)``.

    >>> x = fnp.asarray([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(float(ntxent(x, fnp.asarray([0, 0, 1, 1]), temperature=1.0)), 4)
    0.5514
    """
    x, labels = floating("ntxent", embeddings=embeddings), fnp.asarray(labels)
    if x.ndim != 2 or labels.shape != x.shape[:1]:
        raise ValueError(f"ntxent: shapes (n, features) and (n,) are required, got {x.shape} and {labels.shape}")
    if isinstance(temperature, int | float) and not temperature > 0.0:
        raise ValueError(f"ntxent: temperature must be positive, got {temperature!r}")
    score = cosine_similarity(x[None, :, :], x[:, None, :], epsilon=2.0**-23) / temperature
    equal = labels[:, None] == labels[None, :]
    index = fnp.arange(x.shape[0])
    positive = fnp.logical_and(equal, index[:, None] != index[None, :])
    # log(1 + sum_k exp(s_ik - s_ij)) is the softplus of log(sum_k exp(s_ik)) - s_ij; a row without others adds 0
    others = fnp.logical_not(equal)
    scores, log_total = shifted(score, 1, others)
    counts = fnp.logical_and(positive, fnp.any(others, axis=1, keepdims=True))
    terms = fnp.where(counts, nn.softplus(log_total - scores), 0.0)
    return fnp.sum(terms) / fnp.maximum(fnp.sum(like(positive, x)), 1.0)
