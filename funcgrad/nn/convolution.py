"""Convolution layers: channels last, kernels (*window, in / groups, out)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from funcgrad import lax
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.nn import initializers
from funcgrad.nn.module import fill, module, static
from funcgrad.numpy.promotion import promote_args

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d"]

Init = initializers.Initializer
base = dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)  # what modules inherit fields from


@base
class _Conv:
    """What the convolutions share."""

    kernel: Any
    bias: Any
    strides: Any = static()
    padding: Any = static()
    dilation: Any = static()
    groups: int = static()
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
        if x.ndim != self.spatial + 2 or x.shape[-1] != self.kernel.shape[-2] * self.groups:
            raise ShapeError(
                message(
                    type(self).__name__,
                    f"rank {self.spatial + 2} with {self.kernel.shape[-2] * self.groups} channels last is required",
                    str(tuple(x.shape)),
                )
            )
        x, kernel = promote_args(type(self).__name__, x, self.kernel)
        y = lax.conv_general_dilated(
            x,
            kernel,
            self.strides,
            self.padding,
            rhs_dilation=self.dilation,
            dimension_numbers=self.layout,
            feature_group_count=self.groups,
        )
        return y if self.bias is None else y + self.bias


def _each(value: Any, n: int) -> tuple[Any, ...]:
    """A value for each axis of space, from one for all or from as many."""
    each = (value,) * n if isinstance(value, int) else tuple(value)
    if len(each) != n:
        raise ShapeError(message("convolution", f"one value or {n} are required", repr(value)))
    return each


@module
class Conv1d(_Conv):
    """A convolution over sequences: shape (batch, length, in) to (batch, length', out).

    >>> Conv1d(2, 3, 5, key=fg.random.key(0))(fnp.ones((1, 8, 2))).shape
    (1, 8, 3)
    """

    spatial = 1
    layout = ("NWC", "WIO", "NWC")
    __init__ = _Conv.__init__


@module
class Conv2d(_Conv):
    """A convolution over images: shape (batch, height, width, in) to (batch, height', width', out).

    >>> Conv2d(1, 4, 3, key=fg.random.key(0), strides=2)(fnp.ones((1, 8, 8, 1))).shape
    (1, 4, 4, 4)
    """

    spatial = 2
    layout = ("NHWC", "HWIO", "NHWC")
    __init__ = _Conv.__init__


@module
class Conv3d(_Conv):
    """A convolution over volumes: shape (batch, depth, height, width, in) to (batch, depth', height', width', out).

    >>> Conv3d(1, 2, 3, key=fg.random.key(0), padding="VALID")(fnp.ones((1, 4, 4, 4, 1))).shape
    (1, 2, 2, 2, 2)
    """

    spatial = 3
    layout = ("NDHWC", "DHWIO", "NDHWC")
    __init__ = _Conv.__init__


@base
class _ConvTranspose:
    """What the transposed convolutions share: the data is spread by the strides, then convolved."""

    kernel: Any
    bias: Any
    strides: Any = static()
    padding: Any = static()
    dilation: Any = static()
    spatial = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        window: int | Sequence[int],
        *,
        key: Any,
        strides: int | Sequence[int] = 1,
        padding: Any = "SAME",
        output_padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        use_bias: bool = True,
        kernel_init: Init | None = None,
        dtype: Any = float,
    ):
        n = self.spatial
        sizes, inner = _each(window, n), _each(dilation, n)
        kernel = (kernel_init or initializers.lecun_normal())(key, (*sizes, in_channels, out_channels), dtype)
        pads = padding
        if not isinstance(padding, str):
            widths, more = [(k - 1) * d for k, d in zip(sizes, inner, strict=True)], _each(output_padding, n)
            pads = tuple([(w - p, w - p + o) for w, p, o in zip(widths, _each(padding, n), more, strict=True)])
        elif output_padding not in (0, (0,) * n):
            got = f"{output_padding} with {padding!r}"
            raise ValueError(message(type(self).__name__, "output_padding needs padding in numbers", got))
        bias = fnp.zeros(out_channels, dtype) if use_bias else None
        fill(self, kernel=kernel, bias=bias, strides=_each(strides, n), padding=pads, dilation=inner)

    def __call__(self, x: Any) -> Any:
        if x.ndim != self.spatial + 2 or x.shape[-1] != self.kernel.shape[-2]:
            requirement = f"rank {self.spatial + 2} with {self.kernel.shape[-2]} channels last is required"
            raise ShapeError(message(type(self).__name__, requirement, str(tuple(x.shape))))
        x, kernel = promote_args(type(self).__name__, x, self.kernel)
        y = lax.conv_transpose(x, kernel, self.strides, self.padding, self.dilation)
        return y if self.bias is None else y + self.bias


@module
class ConvTranspose1d(_ConvTranspose):
    """A transposed convolution over sequences: shape (batch, length, in) to (batch, length * stride, out) with "SAME".

    With ``padding`` in numbers the sizes are PyTorch's, (length - 1) * stride - 2 * padding + dilation * (window - 1)
    + output_padding + 1; a PyTorch weight (in, out, window) is this kernel reversed along the window.

    >>> ConvTranspose1d(2, 3, 4, key=fg.random.key(0), strides=2, padding=1)(fnp.ones((1, 8, 2))).shape
    (1, 16, 3)
    """

    spatial = 1
    __init__ = _ConvTranspose.__init__


@module
class ConvTranspose2d(_ConvTranspose):
    """A transposed convolution over images: (batch, height, width, in) to (batch, height', width', out).

    Sizes are as in :class:`ConvTranspose1d`.

    >>> ConvTranspose2d(2, 3, 3, key=fg.random.key(0), strides=2)(fnp.ones((1, 4, 5, 2))).shape
    (1, 8, 10, 3)
    """

    spatial = 2
    __init__ = _ConvTranspose.__init__
