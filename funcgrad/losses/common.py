"""What the losses share: checks of their arguments, masks, and a stable logarithm of the softmax."""

from __future__ import annotations

import math
from typing import Any

import funcgrad.numpy as fnp
from funcgrad import lax

Array = Any
Axis = int | tuple[int, ...] | None


def floating(op: str, **values: Any) -> Array:
    """The one value given by name, as an array; TypeError unless it is floating point."""
    ((name, value),) = values.items()
    x = fnp.asarray(value)
    if not fnp.issubdtype(x.dtype, fnp.floating):
        raise TypeError(f"{op}: {name} must be floating point, got {x.dtype}; convert with .astype(float32)")
    return x


def same_shape(op: str, x: Array, y: Array) -> None:
    """Raise ValueError when two arrays would broadcast: ``(n,)`` against ``(n, 1)`` is nearly always a mistake."""
    if x.shape != y.shape:
        raise ValueError(f"{op}: shapes must be equal, got {x.shape} and {y.shape}; reshape one of them")


def errors(op: str, predictions: Array, targets: Array | None) -> Array:
    """``predictions - targets``, checked."""
    predictions = floating(op, predictions=predictions)
    if targets is None:
        return predictions
    targets = fnp.asarray(targets)
    same_shape(op, predictions, targets)
    return predictions - like(targets, predictions)


def like(values: Any, other: Array) -> Array:
    """The values as an array of the other's dtype."""
    x = fnp.asarray(values)
    return x if x.dtype == other.dtype else x.astype(other.dtype)


def mask_of(where: Any, logits: Array, axis: Axis) -> Array | None:
    """The mask with the axes of the logits; one without the class axis masks whole examples."""
    if where is None:
        return None
    where = fnp.asarray(where)
    return where if where.ndim == logits.ndim or axis is None else fnp.expand_dims(where, axis)


def shifted(logits: Array, axis: Axis, where: Array | None) -> tuple[Array, Array]:
    """Logits minus their largest, and the logarithm of the sum of their exponentials, with the axes kept.

    Subtracting the largest first keeps every digit of a difference between two logits of 1e4.
    """
    if where is None:
        scores = logits - lax.stop_gradient(fnp.max(logits, axis=axis, keepdims=True))
        return scores, fnp.log(fnp.sum(fnp.exp(scores), axis=axis, keepdims=True))
    counted = fnp.where(where, logits, -math.inf)
    top = lax.stop_gradient(fnp.max(counted, axis=axis, keepdims=True))
    top = fnp.where(fnp.isfinite(top), top, 0.0)
    total = fnp.sum(fnp.exp(counted - top), axis=axis, keepdims=True)
    return logits - top, fnp.log(fnp.where(total > 0.0, total, 1.0))  # nothing counts: any finite value will do


def log_softmax(logits: Array, axis: Axis, where: Array | None) -> Array:
    """The logarithm of the softmax over the classes that count; the others hold anything."""
    scores, log_total = shifted(logits, axis, where)
    return scores - log_total


def weighted(labels: Array, values: Array, where: Array | None) -> Array:
    """``labels * values``, 0 where masked out and where a label of 0 meets an infinite value."""
    counts = fnp.logical_or(labels != 0, fnp.logical_not(fnp.isinf(values)))
    if where is None:
        return labels * fnp.where(counts, values, 0.0)
    counts = fnp.logical_and(counts, where)
    return fnp.where(counts, labels, 0.0) * fnp.where(counts, values, 0.0)


def joined_last(x: Array, axes: tuple[int, ...]) -> Array:
    """The array with some axes moved to the end and joined into one."""
    chosen = tuple(a % x.ndim for a in axes)
    kept = tuple(a for a in range(x.ndim) if a not in chosen)
    shape = tuple(x.shape[a] for a in kept)
    return fnp.reshape(fnp.transpose(x, kept + chosen), (*shape, math.prod(x.shape[a] for a in chosen)))
