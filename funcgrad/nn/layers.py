"""Layers: Linear, Embedding, normalisation, Dropout, convolution, Sequential.  Keys are explicit; there is no hidden
mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import lax, random
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.nn import initializers
from funcgrad.nn.module import fill, module, static

__all__ = [
    "BatchNorm",
    "BatchNormState",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "Sequential",
]

Init = initializers.Initializer


@module
class Linear:
    """``x @ kernel + bias`` over the last axis: shape (..., in) to (..., out).

    >>> Linear(2, 3, key=random.key(0))(fnp.ones((5, 2))).shape
    (5, 3)
    """

    kernel: Any
    bias: Any

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        key: Any,
        use_bias: bool = True,
        kernel_init: Init | None = None,
        bias_init: Init = initializers.zeros,
        dtype: Any = float,
    ):
        k1, k2 = random.split(key)
        init = kernel_init or initializers.lecun_normal()
        bias = bias_init(k2, (out_features,), dtype) if use_bias else None
        fill(self, kernel=init(k1, (in_features, out_features), dtype), bias=bias)

    def __call__(self, x: Any) -> Any:
        if x.shape[-1] != self.kernel.shape[0]:
            raise ShapeError(
                message("Linear", f"the last axis must have {self.kernel.shape[0]} features", str(tuple(x.shape)))
            )
        y = x @ self.kernel
        return y if self.bias is None else y + self.bias


@module
class Embedding:
    """Rows of a table by integer index: shape (...) to (..., features).

    >>> Embedding(10, 4, key=random.key(0))(fnp.asarray([1, 2])).shape
    (2, 4)
    """

    table: Any

    def __init__(self, vocab: int, features: int, *, key: Any, init: Init | None = None, dtype: Any = float):
        scale = 1.0 / math.sqrt(features)
        fill(self, table=(init or initializers.normal(scale))(key, (vocab, features), dtype))

    def __call__(self, ids: Any) -> Any:
        return fnp.take(self.table, ids, axis=0, mode="clip")

    def attend(self, x: Any) -> Any:
        """Return the products of ``x`` with every row: tied output weights."""
        return x @ self.table.T


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
        return _affine(_normalize(x, -1, self.eps), self.scale, self.bias)


def _normalize(x: Any, axis: Any, eps: float) -> Any:
    mean = fnp.mean(x, axis=axis, keepdims=True)
    centred = x - mean
    variance = fnp.mean(fnp.square(centred), axis=axis, keepdims=True)
    return centred * lax.rsqrt(variance + eps)


def _affine(y: Any, scale: Any, bias: Any) -> Any:
    y = y if scale is None else y * scale
    return y if bias is None else y + bias


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
        return x * lax.rsqrt(fnp.mean(fnp.square(x), axis=-1, keepdims=True) + self.eps) * self.scale


@module
class GroupNorm:
    """Normalises groups of channels together with all positions: shape (batch, ..., channels) (Wu and He, 2018)."""

    scale: Any
    bias: Any
    groups: int = static(default=32)
    eps: float = static(default=1e-5)

    def __init__(self, channels: int, groups: int = 32, *, eps: float = 1e-5, dtype: Any = float):
        if channels % groups:
            raise ShapeError(message("GroupNorm", "groups must divide channels", f"{groups} and {channels}"))
        fill(self, scale=fnp.ones(channels, dtype), bias=fnp.zeros(channels, dtype), groups=groups, eps=eps)

    def __call__(self, x: Any) -> Any:
        shape = x.shape
        split = x.reshape((shape[0], math.prod(shape[1:-1]), self.groups, shape[-1] // self.groups))
        return _affine(_normalize(split, (1, 3), self.eps).reshape(shape), self.scale, self.bias)


@module
class BatchNormState:
    """The running statistics of a BatchNorm."""

    mean: Any
    variance: Any


@module
class BatchNorm:
    """Normalises over all axes but the last: with the batch's statistics in training, running ones otherwise.

    ``y, new_state = bn(x, state, train=True)``.  ``momentum`` is the weight of the new batch; the biased variance is
    used for both.
    The gradient goes through the batch statistics (Ioffe and Szegedy, 2015).

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

    def __call__(self, x: Any, state: BatchNormState, *, train: bool) -> tuple[Any, BatchNormState]:
        if train:
            axes = tuple(range(x.ndim - 1))
            mean = fnp.mean(x, axis=axes)
            centred = x - mean
            variance = fnp.mean(fnp.square(centred), axis=axes)
            m = self.momentum
            new_mean = (1 - m) * state.mean + m * lax.stop_gradient(mean)
            state = BatchNormState(new_mean, (1 - m) * state.variance + m * lax.stop_gradient(variance))
        else:
            centred, variance = x - state.mean, state.variance
        return _affine(centred * lax.rsqrt(variance + self.eps), self.scale, self.bias), state


@module
class Dropout:
    """Zeroes elements with probability ``rate`` and scales the others by 1 / (1 - rate); nothing when
    ``deterministic``.

    >>> Dropout(0.5)(fnp.ones(3), deterministic=True)
    Array([1., 1., 1.], dtype=float32)
    """

    rate: float = static()

    def __init__(self, rate: float):
        if not 0.0 <= rate < 1.0:
            raise ValueError(message("Dropout", "the rate must be in [0, 1)", repr(rate)))
        fill(self, rate=rate)

    def __call__(self, x: Any, *, key: Any = None, deterministic: bool = False) -> Any:
        if deterministic or self.rate == 0.0:
            return x
        if key is None:
            way_out = "pass key=, or deterministic=True for evaluation"
            raise ValueError(message("Dropout", "a key is required in training", "None", way_out))
        keep = random.bernoulli(key, 1.0 - self.rate, x.shape)
        return fnp.where(keep, x * (1.0 / (1.0 - self.rate)), 0.0)


class _Conv:
    """What Conv1d and Conv2d share: NWC or NHWC data, kernels (*window, in / groups, out)."""

    spatial = 0
    layout = ("", "", "")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        window: int | Sequence[int],
        *,
        key: Any,
        strides: int | Sequence[int] = 1,
        padding: Any = "SAME",
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        use_bias: bool = True,
        kernel_init: Init | None = None,
        dtype: Any = float,
    ):
        if in_channels % groups or out_channels % groups:
            got = f"{groups} for {in_channels} and {out_channels} channels"
            raise ShapeError(message(type(self).__name__, "groups must divide both numbers of channels", got))
        n = self.spatial
        shape = (*_each(window, n), in_channels // groups, out_channels)
        kernel = (kernel_init or initializers.lecun_normal())(key, shape, dtype)
        bias = fnp.zeros(out_channels, dtype) if use_bias else None
        pads = (
            padding
            if isinstance(padding, str)
            else tuple([(p, p) if isinstance(p, int) else tuple(p) for p in _each(padding, n)])
        )
        fill(
            self,
            kernel=kernel,
            bias=bias,
            strides=_each(strides, n),
            padding=pads,
            dilation=_each(dilation, n),
            groups=groups,
        )

    def __call__(self, x: Any) -> Any:
        me: Any = self
        if x.ndim != self.spatial + 2:
            raise ShapeError(
                message(
                    type(self).__name__,
                    f"rank {self.spatial + 2} (batch, *space, channels) is required",
                    str(tuple(x.shape)),
                )
            )
        y = lax.conv_general_dilated(
            x,
            me.kernel,
            me.strides,
            me.padding,
            rhs_dilation=me.dilation,
            dimension_numbers=self.layout,
            feature_group_count=me.groups,
        )
        return y if me.bias is None else y + me.bias


def _each(value: Any, n: int) -> tuple[Any, ...]:
    return (value,) * n if isinstance(value, int) else tuple(value)


@module
class Conv1d(_Conv):
    """A convolution over sequences: shape (batch, length, in) to (batch, length', out).

    >>> Conv1d(2, 3, 5, key=random.key(0))(fnp.ones((1, 8, 2))).shape
    (1, 8, 3)
    """

    kernel: Any
    bias: Any
    strides: Any = static()
    padding: Any = static()
    dilation: Any = static()
    groups: int = static()
    spatial = 1
    layout = ("NWC", "WIO", "NWC")
    __init__ = _Conv.__init__


@module
class Conv2d(_Conv):
    """A convolution over images: shape (batch, height, width, in) to (batch, height', width', out).

    >>> Conv2d(1, 4, 3, key=random.key(0), strides=2)(fnp.ones((1, 8, 8, 1))).shape
    (1, 4, 4, 4)
    """

    kernel: Any
    bias: Any
    strides: Any = static()
    padding: Any = static()
    dilation: Any = static()
    groups: int = static()
    spatial = 2
    layout = ("NHWC", "HWIO", "NHWC")
    __init__ = _Conv.__init__


@module
class Sequential:
    """Functions and modules one after another; a Dropout among them gets its own key.

    >>> Sequential([Linear(2, 3, key=random.key(0)), fnp.tanh])(fnp.ones((1, 2))).shape
    (1, 3)
    """

    layers: tuple[Any, ...]
    functions: tuple[Any, ...] = static()

    def __init__(self, layers: Sequence[Callable[..., Any]]):
        kinds = [None if hasattr(type(f), "__dataclass_fields__") else f for f in layers]
        held = tuple([f if k is None else () for f, k in zip(layers, kinds, strict=True)])
        fill(self, layers=held, functions=tuple(kinds))

    def __call__(self, x: Any, *, key: Any = None, deterministic: bool = False) -> Any:
        for i, (layer, function) in enumerate(zip(self.layers, self.functions, strict=True)):
            if isinstance(layer, Dropout):
                own = None if key is None else random.fold_in(key, i)
                x = layer(x, key=own, deterministic=deterministic)
            else:
                x = layer(x) if function is None else function(x)
        return x
