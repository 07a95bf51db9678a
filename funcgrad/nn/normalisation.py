"""Normalisation: LayerNorm, RMSNorm, GroupNorm, InstanceNorm, BatchNorm; those over positions honour a mask.

float16 and bfloat16 are normalised in float32 and rounded at the end: the derivative of 1 / sqrt(variance) of small
activations does not fit float16.
"""

from __future__ import annotations

import math
from typing import Any

from funcgrad import dtypes, lax
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.nn.module import fill, module, static

__all__ = ["BatchNorm", "BatchNormState", "GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm", "masked_mean"]


def masked_mean(x: Any, mask: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the mean of the elements where ``mask`` is True: 0, with gradient 0, where there are none.

    What is left out may be anything, NaN included.  The mask broadcasts to x, and a mask of fewer axes is taken for the
    first axes of x: (batch, length) for x of (batch, length, features).

    >>> masked_mean(fnp.asarray([1.0, 3.0, np.nan]), fnp.asarray([True, True, False]))
    Array(2., dtype=float32)
    """
    if mask is None:
        return fnp.mean(x, axis=axis, keepdims=keepdims)
    x = fnp.asarray(x)
    mask = fnp.broadcast_to(leading(mask, x.ndim), x.shape)
    total = fnp.sum(fnp.where(mask, x, 0.0), axis=axis, keepdims=keepdims)
    count = fnp.sum(fnp.astype(mask, total.dtype), axis=axis, keepdims=keepdims)
    return total / fnp.maximum(count, 1.0)


def leading(mask: Any, ndim: int) -> Any:
    """The mask with axes of size 1 added at the end, up to a rank."""
    mask = fnp.asarray(mask, bool)
    return mask.reshape((*mask.shape, *[1] * max(0, ndim - mask.ndim)))


@module
class LayerNorm:
    """(x - mean) / sqrt(variance + eps) over the last axis, times a scale, plus a bias (Ba et al., 2016).

    >>> LayerNorm(2, eps=0.0)(fnp.asarray([[1.0, 3.0]]))
    Array([[-1.,  1.]], dtype=float32)
    """

    scale: Any
    bias: Any
    eps: float = static(default=1e-5)

    def __init__(
        self, features: int, *, eps: float = 1e-5, use_scale: bool = True, use_bias: bool = True, dtype: Any = float
    ):
        scale = fnp.ones(features, dtype) if use_scale else None
        fill(self, scale=scale, bias=fnp.zeros(features, dtype) if use_bias else None, eps=eps)

    def __call__(self, x: Any) -> Any:
        _check_features("LayerNorm", x, self.scale if self.scale is not None else self.bias)
        return _affine(_normalize(_wide(x), -1, self.eps), self.scale, self.bias, x)


def _check_features(name: str, x: Any, parameter: Any) -> None:
    """Broadcasting must not hide a wrong number of features."""
    if not x.ndim or (parameter is not None and x.shape[-1] != parameter.shape[0]):
        n = parameter.shape[0] if parameter is not None else "some"
        raise ShapeError(message(name, f"the last axis must have {n} features", str(tuple(x.shape))))


def _normalize(x: Any, axis: Any, eps: float, mask: Any = None) -> Any:
    x = x if mask is None else fnp.where(mask, x, 0.0)
    centred = x - masked_mean(x, mask, axis, keepdims=True)
    variance = masked_mean(fnp.square(centred), mask, axis, keepdims=True)
    return centred * lax.rsqrt(variance + eps)


def _wide(x: Any) -> Any:
    """Half floats as float32."""
    return fnp.astype(x, dtypes.float32) if x.dtype in dtypes.HALVES else x


def _affine(y: Any, scale: Any, bias: Any, x: Any) -> Any:
    """Scale and shift what ``x`` was normalised to; for a half float x, in the dtype that x and the parameters have."""
    parameters = [p for p in (scale, bias) if p is not None]
    y = y if scale is None else y * scale
    y = y if bias is None else y + bias
    return fnp.astype(y, fnp.result_type(x, *parameters)) if x.dtype in dtypes.HALVES else y


@module
class RMSNorm:
    """x / sqrt(mean(x**2) + eps) over the last axis, times a scale (Zhang and Sennrich, 2019).

    >>> RMSNorm(2, eps=0.0)(fnp.asarray([3.0, 3.0]))
    Array([1., 1.], dtype=float32)
    """

    scale: Any
    eps: float = static(default=1e-6)

    def __init__(self, features: int, *, eps: float = 1e-6, dtype: Any = float):
        fill(self, scale=fnp.ones(features, dtype), eps=eps)

    def __call__(self, x: Any) -> Any:
        _check_features("RMSNorm", x, self.scale)
        wide = _wide(x)
        y = wide * lax.rsqrt(fnp.mean(fnp.square(wide), axis=-1, keepdims=True) + self.eps)
        return _affine(y, self.scale, None, x)


@module
class GroupNorm:
    """Normalises groups of channels together with all positions: shape (batch, ..., channels) (Wu and He, 2018).

    ``mask`` (batch, ...) says which positions count; the others get what the statistics make of 0.

    >>> GroupNorm(4, 2, eps=0.0)(fnp.asarray([[1.0, 3.0, 5.0, 5.5]]))
    Array([[-1.,  1., -1.,  1.]], dtype=float32)
    """

    scale: Any
    bias: Any
    groups: int = static(default=32)
    eps: float = static(default=1e-5)

    def __init__(self, channels: int, groups: int = 32, *, eps: float = 1e-5, affine: bool = True, dtype: Any = float):
        if groups < 1 or channels % groups:
            raise ShapeError(message("GroupNorm", "groups must divide channels", f"{groups} and {channels}"))
        scale, bias = (fnp.ones(channels, dtype), fnp.zeros(channels, dtype)) if affine else (None, None)
        fill(self, scale=scale, bias=bias, groups=groups, eps=eps)

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        shape = x.shape
        if x.ndim < 2 or shape[-1] % self.groups:
            requirement = f"shape (batch, ..., channels) with a multiple of {self.groups} channels is required"
            raise ShapeError(message("GroupNorm", requirement, str(tuple(shape))))
        split = _wide(x).reshape((shape[0], math.prod(shape[1:-1]), self.groups, shape[-1] // self.groups))
        if mask is not None:
            mask = fnp.broadcast_to(fnp.asarray(mask, bool), shape[:-1]).reshape((*split.shape[:2], 1, 1))
        return _affine(_normalize(split, (1, 3), self.eps, mask).reshape(shape), self.scale, self.bias, x)


@module
class InstanceNorm:
    """Normalises each channel of each example over its positions: shape (batch, ..., channels) (Ulyanov et al., 2016).

    ``mask`` (batch, ...) says which positions count.

    >>> InstanceNorm(1, eps=0.0)(fnp.asarray([[[1.0], [3.0]]])).ravel()
    Array([-1.,  1.], dtype=float32)
    """

    scale: Any
    bias: Any
    eps: float = static(default=1e-5)

    def __init__(self, channels: int, *, eps: float = 1e-5, affine: bool = True, dtype: Any = float):
        scale, bias = (fnp.ones(channels, dtype), fnp.zeros(channels, dtype)) if affine else (None, None)
        fill(self, scale=scale, bias=bias, eps=eps)

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        if x.ndim < 3:
            raise ShapeError(message("InstanceNorm", "shape (batch, ..., channels) is required", str(tuple(x.shape))))
        mask = None if mask is None else leading(mask, x.ndim)
        return _affine(_normalize(_wide(x), tuple(range(1, x.ndim - 1)), self.eps, mask), self.scale, self.bias, x)


@module
class BatchNormState:
    """The running statistics of a BatchNorm."""

    mean: Any
    variance: Any

    def __init__(self, mean: Any, variance: Any):
        fill(self, mean=mean, variance=variance)


@module
class BatchNorm:
    """Normalises over all axes but the last: with the batch's statistics in training, running ones otherwise.

    ``y, new_state = bn(x, state, train=True)``.  ``momentum`` is the weight of the new batch; the biased variance is
    used for both.
    The gradient goes through the batch statistics (Ioffe and Szegedy, 2015).
    ``mask`` (batch, ...) says which rows count for the statistics; without any the running ones stay as they are.

    >>> bn = BatchNorm(3)
    >>> y, state = bn(fnp.ones((4, 3)), bn.init_state(), train=True)
    >>> state.mean
    Array([0.1, 0.1, 0.1], dtype=float32)
    """

    scale: Any
    bias: Any
    momentum: float = static(default=0.1)
    eps: float = static(default=1e-5)

    def __init__(self, features: int, *, momentum: float = 0.1, eps: float = 1e-5, dtype: Any = float):
        fill(self, scale=fnp.ones(features, dtype), bias=fnp.zeros(features, dtype), momentum=momentum, eps=eps)

    def init_state(self) -> BatchNormState:
        """Return running statistics of mean 0 and variance 1."""
        return BatchNormState(fnp.zeros_like(self.scale), fnp.ones_like(self.scale))

    def __call__(self, x: Any, state: BatchNormState, *, train: bool, mask: Any = None) -> tuple[Any, BatchNormState]:
        if x.ndim < 2 or x.shape[-1] != self.scale.shape[0]:
            requirement = f"shape (batch, ..., {self.scale.shape[0]}) is required"
            raise ShapeError(message("BatchNorm", requirement, str(tuple(x.shape))))
        given, x = x, _wide(x)
        if not train:
            y = (x - state.mean) * lax.rsqrt(state.variance + self.eps)
            return _affine(y, self.scale, self.bias, given), state
        axes = tuple(range(x.ndim - 1))
        if mask is not None:
            mask = leading(fnp.broadcast_to(leading(mask, x.ndim - 1), x.shape[:-1]), x.ndim)
            x = fnp.where(mask, x, 0.0)
        mean = masked_mean(x, mask, axes)
        centred = x - mean
        variance = masked_mean(fnp.square(centred), mask, axes)
        m = self.momentum if mask is None else fnp.where(fnp.any(mask), self.momentum, 0.0)
        new_mean = (1 - m) * state.mean + m * lax.stop_gradient(mean)
        state = BatchNormState(new_mean, (1 - m) * state.variance + m * lax.stop_gradient(variance))
        return _affine(centred * lax.rsqrt(variance + self.eps), self.scale, self.bias, given), state
