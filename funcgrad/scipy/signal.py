"""Convolutions and detrending with the names of ``jax.scipy.signal``: of one to three dimensions, computed directly."""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad import lax
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.promotion import floating_arrays

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "detrend", "fftconvolve"]

MODES = ("full", "same", "valid")


def _convolved(
    name: str, in1: Any, in2: Any, mode: str, flip: bool, precision: Any, low: int = 1, high: int = 3
) -> Any:
    """The correlation of in1 with in2 (``flip``: the convolution), both of ``low`` to ``high`` dimensions."""
    if mode not in MODES:
        raise ValueError(message(name, f"mode must be one of {', '.join(MODES)}", repr(mode)))
    x, k = floating_arrays(name, in1, in2)
    if x.ndim != k.ndim or not low <= x.ndim <= high:
        dims = f"{low}" if low == high else f"{low} to {high}"
        raise ShapeError(message(name, f"operands of the same {dims} dimensions are required", f"{x.shape}, {k.shape}"))
    if not x.size or not k.size:
        raise ShapeError(message(name, "operands must not be empty", f"{x.shape} and {k.shape}"))
    swapped = False
    if mode == "valid":
        inside = [a >= b for a, b in zip(x.shape, k.shape, strict=True)]
        if not all(inside):
            if not all(a <= b for a, b in zip(x.shape, k.shape, strict=True)):
                requirement = "for mode valid one operand must be at least as large in every dimension"
                raise ShapeError(message(name, requirement, f"{x.shape} and {k.shape}"))
            x, k, swapped = k, x, True
    every = tuple(range(x.ndim))
    kernel = fnp.flip(k, every) if flip else k
    pads = [(0, 0) if mode == "valid" else (n - 1, n - 1) for n in k.shape]
    if mode == "same":  # the middle of the full result
        after = [
            n // 2 if low == 2 and not flip else (n - 1) // 2 for n in k.shape
        ]  # scipy's correlate2d: the later one
        pads = [(n - 1 - m, m) for n, m in zip(k.shape, after, strict=True)]
    out = lax.conv_general_dilated(x[None, None], kernel[None, None], (1,) * x.ndim, pads, precision=precision)[0, 0]
    # Correlating the other way round gives the result backwards.
    return fnp.flip(out, every) if swapped and not flip else out


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Any:
    """Return the convolution: all of it ("full"), the middle of in1's size ("same") or where both overlap ("valid").

    ``method`` is accepted for JAX's sake: there is no Fourier transform, so large kernels cost their full size.

    >>> from funcgrad.scipy import signal
    >>> signal.convolve(fnp.asarray([1.0, 2.0]), fnp.asarray([1.0, 10.0]))
    Array([ 1., 12., 20.], dtype=float32)
    """
    return _convolved("convolve", in1, in2, mode, True, precision)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """Return :func:`convolve` over all axes, which is not computed by Fourier transforms here.

    >>> from funcgrad.scipy import signal
    >>> signal.fftconvolve(fnp.asarray([1.0, 2.0]), fnp.asarray([1.0, 10.0]), mode="same")
    Array([ 1., 12.], dtype=float32)
    """
    if axes is not None:
        raise NotImplementedError(message("fftconvolve", "axes must be None", repr(axes), "vmap over the other axes"))
    return _convolved("fftconvolve", in1, in2, mode, True, None)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Any:
    """Return the cross-correlation: like :func:`convolve` without turning in2 around.

    >>> from funcgrad.scipy import signal
    >>> signal.correlate(fnp.asarray([1.0, 2.0]), fnp.asarray([1.0, 10.0]))
    Array([10., 21.,  2.], dtype=float32)
    """
    return _convolved("correlate", in1, in2, mode, False, precision)


def _filled(name: str, boundary: str, fillvalue: Any) -> None:
    if boundary != "fill" or fillvalue != 0:
        got, way_out = f"boundary={boundary!r}, fillvalue={fillvalue}", "pad first, then mode='valid'"
        raise NotImplementedError(message(name, "only zeros outside are supported", got, way_out))


def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Any:
    """Return :func:`convolve` of matrices, with zeros outside.

    >>> from funcgrad.scipy import signal
    >>> signal.convolve2d(fnp.ones((2, 2)), fnp.ones((2, 2)), mode="valid")
    Array([[4.]], dtype=float32)
    """
    _filled("convolve2d", boundary, fillvalue)
    return _convolved("convolve2d", in1, in2, mode, True, precision, 2, 2)


def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Any:
    """Return :func:`correlate` of matrices, with zeros outside.

    >>> from funcgrad.scipy import signal
    >>> signal.correlate2d(fnp.ones((2, 2)), fnp.ones((2, 2)), mode="valid")
    Array([[4.]], dtype=float32)
    """
    _filled("correlate2d", boundary, fillvalue)
    return _convolved("correlate2d", in1, in2, mode, False, precision, 2, 2)


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: int = 0, overwrite_data: None = None) -> Any:
    """Return data minus its mean ("constant") or its least-squares line ("linear") along an axis.

    ``bp`` (breakpoints) must be 0.

    >>> from funcgrad.scipy import signal
    >>> signal.detrend(fnp.asarray([1.0, 2.0, 4.0]), type="constant").sum()
    Array(0., dtype=float32)
    """
    if type not in ("linear", "constant"):
        raise ValueError(message("detrend", 'type must be "linear" or "constant"', repr(type)))
    if np.ndim(bp) or bp:
        raise NotImplementedError(message("detrend", "bp must be 0", repr(bp), "detrend the pieces one by one"))
    (x,) = floating_arrays("detrend", data)
    x = fnp.moveaxis(x, axis, -1)
    x = x - x.mean(-1, keepdims=True)
    if type == "linear" and x.shape[-1] > 1:
        t = np.arange(x.shape[-1]) - (x.shape[-1] - 1) / 2
        t = fnp.asarray(t / np.sqrt((t * t).sum()), dtype=x.dtype)
        x = x - (x @ t)[..., None] * t
    return fnp.moveaxis(x, -1, axis)
