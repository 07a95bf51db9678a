"""Resampling of images, with the names of ``jax.image``: linear maps along each axis, so they have all derivatives."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.trace import Tracer

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """How samples between the pixels are made; :func:`resize` takes the names as text, too."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """Return the method of a name.

        >>> from funcgrad import image
        >>> image.ResizeMethod.from_string("bilinear").name
        'LINEAR'
        """
        if s not in _NAMES:
            raise ValueError(message("resize", f"method must be one of {', '.join(_NAMES)}", repr(s)))
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
}


def _triangle(m: Any, d: Any) -> Any:
    return m.maximum(0, 1 - d)


def _keys(m: Any, d: Any) -> Any:
    """Keys' cubic convolution with a = -1/2 (Keys 1981, equation 15)."""
    inner = ((1.5 * d - 2.5) * d) * d + 1
    outer = ((-0.5 * d + 2.5) * d - 4) * d + 2
    return m.where(d < 1, inner, m.where(d < 2, outer, 0))


def _lanczos(radius: float) -> Callable[[Any, Any], Any]:
    def kernel(m: Any, d: Any) -> Any:
        return m.where(d < radius, m.sinc(d) * m.sinc(d / radius), 0)

    return kernel


_KERNELS: dict[ResizeMethod, Callable[[Any, Any], Any]] = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _keys,
}


def _weights(m: Any, size: int, new: int, scale: Any, translation: Any, kernel: Any, antialias: bool) -> Any:
    """The matrix (size, new) that resamples an axis; ``m`` is numpy, or fnp where the scale is traced.

    Output pixel j has its centre at (j + 1/2 - translation) / scale in the input, whose pixel i has it at i + 1/2.
    Where the output is smaller the kernel is as wide as the output's pixels (antialiasing).  The weights of each
    output pixel sum to one; those with their centre outside the input are zero.
    """
    wide = m.float64 if m is np else fnp.float32
    centre = (m.arange(new, dtype=wide) + 0.5 - translation) / scale - 0.5
    width = m.maximum(1 / scale, 1.0) if antialias else 1.0
    distance = m.abs(centre[None, :] - m.arange(size, dtype=wide)[:, None]) / width
    w = kernel(m, distance)
    total = w.sum(axis=0, keepdims=True)
    ok = m.abs(total) > 1000 * float(np.finfo(np.float32).eps)
    w = m.where(ok, w / m.where(ok, total, 1), 0)
    return m.where((centre >= -0.5) & (centre <= size - 0.5), w, 0)


def _along(x: Any, axis: int, w: Any, precision: Any) -> Any:
    """Multiply an axis with a matrix (old, new)."""
    moved = fnp.moveaxis(x, axis, -1)
    return fnp.moveaxis(fnp.matmul(moved, fnp.asarray(w, dtype=x.dtype), precision=precision), -1, axis)


def _nearest(x: Any, axis: int, new: int) -> Any:
    size = x.shape[axis]
    if size and new % size == 0:
        return fnp.repeat(x, new // size, axis=axis)
    at = np.floor((np.arange(new) + 0.5) * size / new).astype(np.int32)
    return fnp.take(x, np.minimum(at, max(size - 1, 0)), axis=axis)


def _prepared(name: str, image: Any, shape: Sequence[int], method: Any) -> tuple[Any, tuple[int, ...], ResizeMethod]:
    x, new = fnp.asarray(image), tuple(int(n) for n in shape)
    if len(new) != x.ndim:
        raise ShapeError(message(name, "shape must have one size per axis of the image", f"{new} for {x.shape}"))
    if any(a < 1 or b < 1 for a, b in zip(x.shape, new, strict=True) if a != b):
        raise ShapeError(message(name, "resampled axes must not be empty", f"{x.shape} to {new}"))
    return x, new, ResizeMethod.from_string(method) if isinstance(method, str) else method


def _floating(x: Any) -> Any:
    return x if x.dtype in dtypes.FLOATS else fnp.astype(x, fnp.float32)


def resize(
    image: Any, shape: Sequence[int], method: str | ResizeMethod, antialias: bool = True, precision: Any = None
) -> Any:
    """Return an image of another shape; axes whose size stays the same are left alone.

    ``method`` is "nearest", "linear" ("bilinear", "trilinear", "triangle"), "cubic" (Keys 1981), "lanczos3" or
    "lanczos5".  With ``antialias`` the kernel is widened where an axis shrinks.  "nearest" keeps the dtype; the others
    turn integers into float32.

    >>> from funcgrad import image
    >>> image.resize(fnp.asarray([[0.0, 4.0]]), (1, 4), "linear")
    Array([[0., 1., 3., 4.]], dtype=float32)
    >>> image.resize(fnp.asarray([1, 2]), (4,), "nearest")
    Array([1, 1, 2, 2], dtype=int32)
    """
    x, new, how = _prepared("resize", image, shape, method)
    axes = [i for i, (a, b) in enumerate(zip(x.shape, new, strict=True)) if a != b]
    if how is ResizeMethod.NEAREST:
        for i in axes:
            x = _nearest(x, i, new[i])
        return x
    x = _floating(x)
    for i in axes:
        w = _weights(np, x.shape[i], new[i], new[i] / x.shape[i], 0.0, _KERNELS[how], antialias)
        x = _along(x, i, w, precision)
    return x


def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = None,
) -> Any:
    """Return an image of ``shape`` in which input position p is at ``p * scale + translation``, along ``spatial_dims``.

    ``scale`` and ``translation`` have one number per axis of ``spatial_dims``; they may be traced, and have gradients.
    What lies outside the input is 0.  Methods are those of :func:`resize` without "nearest".

    >>> from funcgrad import image
    >>> image.scale_and_translate(fnp.asarray([1.0, 2.0, 3.0]), (3,), (0,), [1.0], [1.0], "linear")
    Array([0., 1., 2.], dtype=float32)
    """
    x, new, how = _prepared("scale_and_translate", image, shape, method)
    if how is ResizeMethod.NEAREST:
        raise ValueError(message("scale_and_translate", "method must interpolate", "nearest", "use resize or take"))
    dims = [range(x.ndim)[d] for d in spatial_dims]
    scales, shifts = fnp.asarray(scale), fnp.asarray(translation)
    if scales.shape != (len(dims),) or shifts.shape != (len(dims),):
        requirement = f"scale and translation need one number for each of {len(dims)} spatial dims"
        raise ShapeError(message("scale_and_translate", requirement, f"{scales.shape} and {shifts.shape}"))
    rest = [i for i in range(x.ndim) if i not in dims and x.shape[i] != new[i]]
    if rest:
        raise ShapeError(message("scale_and_translate", "only spatial_dims may change", f"axes {rest} change as well"))
    x = _floating(x)
    known = not isinstance(scales, Tracer) and not isinstance(shifts, Tracer)
    m: Any = np if known else fnp
    for k, i in enumerate(dims):
        s, t = (float(scales[k]), float(shifts[k])) if known else (scales[k], shifts[k])
        if known and not (math.isfinite(s) and s > 0):
            raise ValueError(message("scale_and_translate", "scales must be positive and finite", str(s)))
        x = _along(x, i, _weights(m, x.shape[i], new[i], s, t, _KERNELS[how], antialias), precision)
    return x
