"""Losses of whole sequences and of segmented images."""

from __future__ import annotations

from typing import Any

import funcgrad.numpy as fnp
from funcgrad import lax, nn
from funcgrad.losses.common import Array, floating, like, log_softmax, same_shape


def ctc_loss(
    logits: Array,
    logit_paddings: Array,
    labels: Array,
    label_paddings: Array,
    *,
    blank_id: int = 0,
    log_epsilon: float = -1e5,
) -> Array:
    """Connectionist temporal classification (Graves et al. 2006): minus the log probability of a labelling.

    ``logits`` are ``(batch, frames, classes)``, ``labels`` ``(batch, length)`` integers; both are padded at the right
    and have paddings of the same shape (without classes), 1 where there is padding and 0 elsewhere. Gives
    ``(batch,)``. ``log_epsilon`` stands for the logarithm of 0: a labelling that does not fit into its frames has a
    loss of about its size.

    >>> logits = fnp.zeros((1, 2, 2))
    >>> loss = ctc_loss(logits, fnp.zeros((1, 2)), fnp.asarray([[1]]), fnp.zeros((1, 1)))
    >>> round(float(loss[0]), 4)  # three of four paths spell the label
    0.2877
    """
    logits = _check_ctc(logits, logit_paddings, labels, label_paddings)
    batch, frames, _ = logits.shape
    labels = fnp.asarray(labels)
    length = labels.shape[1]
    # states: a blank, the first label, a blank, the second label, ..., a blank
    blanks = fnp.full((batch, length + 1), blank_id, dtype=labels.dtype)
    pairs = fnp.stack([blanks[:, :-1], labels], axis=2)
    states = fnp.concatenate([fnp.reshape(pairs, (batch, 2 * length)), blanks[:, -1:]], axis=1)
    # a path may jump over a blank between two different labels; blanks are equal, so none of them is jumped to
    skip = fnp.concatenate([fnp.full((batch, 2), False), states[:, 2:] != states[:, :-2]], axis=1)[:, : 2 * length + 1]
    index = fnp.broadcast_to(states[:, None, :], (batch, frames, 2 * length + 1))
    emit = fnp.take_along_axis(log_softmax(logits, -1, None), index, axis=2)
    padding = like(logit_paddings, logits)
    alpha = _ctc_forward(fnp.transpose(emit, (1, 0, 2)), fnp.transpose(padding, (1, 0)), skip, log_epsilon)
    sizes = length - fnp.sum(fnp.asarray(label_paddings).astype(fnp.int32), axis=1).astype(fnp.int32)
    last = fnp.take_along_axis(alpha, 2 * sizes[:, None], axis=1)[:, 0]
    label = fnp.take_along_axis(alpha, fnp.maximum(2 * sizes - 1, 0)[:, None], axis=1)[:, 0]
    return -fnp.logaddexp(last, fnp.where(sizes > 0, label, log_epsilon))


def _check_ctc(logits: Array, logit_paddings: Array, labels: Array, label_paddings: Array) -> Array:
    logits = floating("ctc_loss", logits=logits)
    labels, frames, ends = (fnp.asarray(x) for x in (labels, logit_paddings, label_paddings))
    if logits.ndim != 3 or labels.ndim != 2 or logits.shape[0] != labels.shape[0]:
        raise ValueError(
            "ctc_loss: logits (batch, frames, classes) and labels (batch, length) are required, "
            f"got {logits.shape} and {labels.shape}"
        )
    if not fnp.issubdtype(labels.dtype, fnp.integer):
        raise TypeError(f"ctc_loss: integer labels are required, got {labels.dtype}")
    if frames.shape != logits.shape[:2]:
        raise ValueError(f"ctc_loss: logit_paddings of shape {logits.shape[:2]} are required, got {frames.shape}")
    same_shape("ctc_loss", labels, ends)
    return logits


def _ctc_forward(emit: Array, padding: Array, skip: Array, log_epsilon: float) -> Array:
    """The logarithm of the probability of being in each state after the last frame, ``(batch, states)``."""
    _, batch, states = emit.shape
    none = fnp.full((batch, 2), log_epsilon, dtype=emit.dtype)
    start = fnp.concatenate([fnp.zeros((batch, 1), dtype=emit.dtype)] + [none[:, :1]] * (states - 1), axis=1)

    def frame(alpha: Array, xs: tuple[Array, Array]) -> tuple[Array, None]:
        log_p, pad = xs
        before = fnp.concatenate([none, alpha], axis=1)
        jump = fnp.where(skip, before[:, :states], log_epsilon)
        moved = fnp.logaddexp(fnp.logaddexp(alpha, before[:, 1 : states + 1]), jump) + log_p
        return fnp.where(pad[:, None] > 0.0, alpha, moved), None

    alpha, _ = lax.scan(frame, start, (emit, padding))
    return alpha


def dice_loss(
    predictions: Array,
    targets: Array,
    *,
    class_weights: Array | None = None,
    smooth: float = 1.0,
    alpha: float = 0.5,
    beta: float = 0.5,
    apply_softmax: bool = True,
    reduction: str = "mean",
    ignore_background: bool = False,
    axis: int | tuple[int, ...] | None = None,
) -> Array:
    """``1 - (overlap + smooth) / (overlap + alpha * false positives + beta * false negatives + smooth)`` per class.

    ``predictions`` and ``targets`` are ``(batch, ..., classes)``; sums run over the axes between, or over ``axis``.
    With one class the softmax is a sigmoid. ``reduction`` over the classes is "mean", "sum" or "none";
    ``ignore_background`` leaves out class 0. alpha = beta = 0.5 is the Dice coefficient (Milletari et al. 2016,
    arXiv:1606.04797), other values Tversky's index.

    >>> float(dice_loss(fnp.asarray([[[1.0, 0.0]]]), fnp.asarray([[[1.0, 0.0]]]), apply_softmax=False)[0])
    0.0
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"dice_loss: reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    p, targets = floating("dice_loss", predictions=predictions), fnp.asarray(targets)
    p = p[..., None] if p.ndim == targets.ndim - 1 else p
    targets = targets[..., None] if targets.ndim == p.ndim - 1 else targets
    same_shape("dice_loss", p, targets)
    targets = like(targets, p)
    if apply_softmax:
        p = nn.sigmoid(p) if p.shape[-1] == 1 else nn.softmax(p, axis=-1)
    axes: Any = tuple(range(1, p.ndim - 1)) if axis is None else axis
    overlap = fnp.sum(p * targets, axis=axes)
    extra, missed = fnp.sum(p, axis=axes) - overlap, fnp.sum(targets, axis=axes) - overlap
    loss = 1.0 - (overlap + smooth) / (overlap + alpha * extra + beta * missed + smooth)
    loss = loss if class_weights is None else loss * class_weights
    loss = loss[..., 1:] if ignore_background and p.shape[-1] > 1 else loss
    if reduction == "none":
        return loss
    return fnp.mean(loss, axis=-1) if reduction == "mean" else fnp.sum(loss, axis=-1)


def binary_dice_loss(predictions: Array, targets: Array, *, smooth: float = 1.0, apply_sigmoid: bool = True) -> Array:
    """``dice_loss`` with one class; ``(batch, ...)`` or ``(batch, ..., 1)``.

    >>> float(binary_dice_loss(fnp.asarray([[1.0, 0.0]]), fnp.asarray([[1.0, 0.0]]), apply_sigmoid=False)[0])
    0.0
    """
    p, targets = floating("binary_dice_loss", predictions=predictions), fnp.asarray(targets)
    if p.ndim == targets.ndim and p.shape[-1] != 1:
        p, targets = p[..., None], targets[..., None]
    return dice_loss(p, targets, smooth=smooth, apply_softmax=apply_sigmoid)
