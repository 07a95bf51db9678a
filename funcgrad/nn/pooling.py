"""Pooling over windows of (batch, *space, channels) data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from funcgrad import lax
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message

__all__ = ["avg_pool", "max_pool", "min_pool"]

Padding = str | Sequence[tuple[int, int]]


def _window(
    name: str, x: Any, window: Sequence[int], strides: Sequence[int] | None, padding: Padding
) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    for what, sizes in (("window", window), ("strides", strides)):
        if sizes is not None and not hasattr(sizes, "__len__"):
            raise ShapeError(message(name, f"the {what} must have one size per axis of space, as (2, 2)", repr(sizes)))
    if x.ndim != len(window) + 2:
        got = f"{tuple(x.shape)} with window {tuple(window)}"
        raise ShapeError(
            message(name, "data must be (batch, *space, channels), one window size per axis of space", got)
        )
    steps = tuple(strides) if strides is not None else tuple(window)
    pads = padding if isinstance(padding, str) else [(0, 0), *padding, (0, 0)]
    return (1, *window, 1), (1, *steps, 1), pads


def max_pool(x: Any, window: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "VALID") -> Any:
    """Return the largest element of each window; the strides are the window by default.

    >>> max_pool(fnp.arange(4.0).reshape((1, 4, 1)), (2,)).ravel()
    Array([1., 3.], dtype=float32)
    """
    return lax.reduce_window(x, -math.inf, lax.max, *_window("max_pool", x, window, strides, padding))


def min_pool(x: Any, window: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "VALID") -> Any:
    """Return the smallest element of each window.

    >>> min_pool(fnp.arange(4.0).reshape(1, 4, 1), (2,), (2,)).ravel()
    Array([0., 2.], dtype=float32)
    """
    return lax.reduce_window(x, math.inf, lax.min, *_window("min_pool", x, window, strides, padding))


def avg_pool(
    x: Any,
    window: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Padding = "VALID",
    count_include_pad: bool = True,
) -> Any:
    """Return the mean of each window; padding counts as zeros unless ``count_include_pad`` is False.

    >>> avg_pool(fnp.arange(4.0).reshape((1, 4, 1)), (2,)).ravel()
    Array([0.5, 2.5], dtype=float32)
    """
    shapes = _window("avg_pool", x, window, strides, padding)
    total = lax.reduce_window(x, 0.0, lax.add, *shapes)
    if count_include_pad:
        return total / float(math.prod(window))
    ones = fnp.ones((1, *x.shape[1:-1], 1), x.dtype)
    return total / lax.reduce_window(ones, 0.0, lax.add, *shapes)
