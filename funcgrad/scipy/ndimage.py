"""Sampling between the elements of an array, with the names of ``jax.scipy.ndimage``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message

__all__ = ["map_coordinates"]


def _mirrored(i: Any, n: int) -> Any:
    """Positions of an axis continued by its mirror image, the ends not repeated."""
    period = max(2 * (n - 1), 1)
    j = fnp.mod(i, period)
    return fnp.where(j < n, j, period - j)


def _reflected(i: Any, n: int) -> Any:
    """Positions of an axis continued by its mirror image, the ends repeated."""
    j = fnp.mod(i, 2 * n)
    return fnp.where(j < n, j, 2 * n - 1 - j)


WRAPPED: dict[str, Callable[[Any, int], Any]] = {
    "nearest": lambda i, n: fnp.clip(i, 0, n - 1),
    "wrap": lambda i, n: fnp.mod(i, n),
    "mirror": _mirrored,
    "reflect": _reflected,
    "constant": lambda i, n: fnp.clip(i, 0, n - 1),
}


def map_coordinates(input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0) -> Any:
    """Return the values of an array at positions between its elements: shape that of each of ``coordinates``.

    ``coordinates`` has one array per axis of ``input``.  ``order`` 0 takes the nearest element, 1 interpolates
    linearly; ``mode`` says what lies outside: "constant" (``cval``), "nearest", "wrap", "mirror" or "reflect".  With
    order 1 the coordinates have gradients.

    >>> from funcgrad.scipy.ndimage import map_coordinates
    >>> map_coordinates(fnp.asarray([0.0, 10.0, 40.0]), [fnp.asarray([0.5, 1.5])], order=1)
    Array([ 5., 25.], dtype=float32)
    """
    name = "map_coordinates"
    x = fnp.asarray(input)
    if order not in (0, 1):
        raise NotImplementedError(message(name, "order must be 0 or 1", repr(order)))
    if mode not in WRAPPED:
        raise ValueError(message(name, f"mode must be one of {', '.join(WRAPPED)}", repr(mode)))
    if len(coordinates) != x.ndim:
        raise ShapeError(
            message(name, "one array of coordinates per axis is required", f"{len(coordinates)} for {x.shape}")
        )
    at = fnp.broadcast_arrays(*[fnp.asarray(c, dtype=fnp.result_type(c, fnp.float32)) for c in coordinates])
    corners = [_corners(c, order) for c in at]
    total: Any = 0.0
    for choice in itertools.product(*corners):
        index, weight, inside = [], 1.0, True
        for (i, w), n in zip(choice, x.shape, strict=True):
            index.append(WRAPPED[mode](i, n))
            weight, inside = weight * w, inside & (i >= 0) & (i < n)
        value = x[tuple(index)]
        value = fnp.where(inside, value, cval) if mode == "constant" else value
        total = total + value * weight
    if x.dtype in dtypes.FLOATS:
        return fnp.astype(total, x.dtype)
    return fnp.astype(fnp.round(total), x.dtype)


def _corners(c: Any, order: int) -> list[tuple[Any, Any]]:
    """The elements around positions on an axis, and their weights."""
    if order == 0:
        return [(fnp.astype(fnp.floor(c + 0.5), fnp.int32), 1.0)]
    low = fnp.floor(c)
    high = c - low
    i = fnp.astype(low, fnp.int32)
    return [(i, 1 - high), (i + 1, high)]
