"""Derivatives of functions against central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import numpy as fnp
from funcgrad import tree
from funcgrad.array import default_device
from funcgrad.errors import message
from funcgrad.transforms import jvp, vjp

__all__ = ["check_grads"]


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 1,
    modes: Sequence[str] = ("fwd", "rev"),
    eps: float = 1e-4,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    seed: int = 0,
) -> None:
    """Compare derivatives of ``f`` with central differences in float64, along random directions.

    Raises AssertionError when they differ.  Runs on the numpy device.  ``args`` are trees; their integer leaves are
    held fixed.  ``order=2`` also checks the derivatives of the derivative, in every combination of ``modes``.

    >>> check_grads(lambda x: fnp.sin(x) * x, [np.ones(3)], order=2)
    """
    if not 1 <= order <= 3:
        raise ValueError(message("check_grads", "order must be 1, 2 or 3", str(order)))
    with default_device("numpy"):
        args = tree.map(_as_double, tuple(args))
        rng = np.random.default_rng(seed)
        _check(f, args, order, modes, (eps, rtol, atol), rng)


def _as_double(x: Any) -> Any:
    a = np.asarray(x)
    return fnp.asarray(a.astype(np.float64)) if a.dtype.kind == "f" else fnp.asarray(a)


def _noise(rng: np.random.Generator, like: Any) -> Any:
    """A tree of random directions; zero for integers."""

    def leaf(x: Any) -> Any:
        a = np.asarray(x)
        return (
            fnp.asarray(rng.normal(size=a.shape)) if a.dtype == np.float64 else fnp.asarray(np.zeros(a.shape, a.dtype))
        )

    return tree.map(leaf, like)


def _dot(a: Any, b: Any) -> float:
    pairs = zip(tree.leaves(a), tree.leaves(b), strict=True)
    return sum(float(np.sum(np.asarray(x) * np.asarray(y))) for x, y in pairs if np.asarray(x).dtype == np.float64)


def _check(
    f: Callable[..., Any], args: Any, order: int, modes: Sequence[str], tolerance: Any, rng: np.random.Generator
) -> None:
    eps, rtol, atol = tolerance
    t = _noise(rng, args)
    out, pushed = jvp(f, args, t)
    ct = _noise(rng, out)

    def moved(h: float) -> Any:
        return f(*tree.map(lambda x, d: x + h * d if x.dtype == np.float64 else x, args, t))

    # A difference of fourth order, so that its own error is far below the tolerance.
    at = {k: _dot(ct, moved(k * eps)) for k in (-2, -1, 1, 2)}
    want = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * eps)
    _, pull = vjp(f, *args)
    got = {"fwd": _dot(ct, pushed), "rev": _dot(pull(ct), t)}
    for mode in modes:
        close = abs(got[mode] - want) <= atol + rtol * max(abs(want), abs(got[mode]))
        assert close, f"check_grads: {mode} gives {got[mode]}, differences {want}, order {order}"
    if order > 1:
        steps: dict[str, Callable[..., Any]] = {
            "fwd": lambda *xs: jvp(f, xs, t)[1],
            "rev": lambda *xs: vjp(f, *xs)[1](ct),
        }
        for mode in modes:
            _check(steps[mode], args, order - 1, modes, tolerance, rng)
