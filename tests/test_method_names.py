"""Every method and property of an array is one of a traced value too, and gives the same."""

# ruff: noqa: SIM905 (words in a line read better than a list of strings)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.trace import Tracer

METHODS = (
    "sum mean var std max min argmax argmin prod any all ptp cumsum cumprod ravel flatten round conj conjugate copy "
    "sort argsort squeeze transpose trace diagonal"
).split()
PROPERTIES = "T mT size ndim shape dtype real imag nbytes itemsize".split()
VALUES = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def test_no_slot_hides_a_method() -> None:
    for name in Tracer.__slots__:
        assert name in ("aval", "builder", "variable") and not hasattr(np.ndarray, name)


@pytest.mark.parametrize("name", METHODS)
def test_method(name: str, device: str) -> None:
    want = getattr(fnp.asarray(VALUES), name)()
    got = fg.jit(lambda x: getattr(x, name)())(VALUES)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)
    if name not in ("sort", "ptp"):  # numpy 2 sorts in place, and has no ptp
        np.testing.assert_allclose(np.asarray(got), getattr(VALUES, name)(), rtol=1e-5, atol=1e-6)
    if name in ("sum", "mean", "var", "std", "prod", "trace"):
        grad = fg.jit(fg.grad(lambda x: getattr(x, name)()))(VALUES)
        step = np.random.default_rng(1).normal(size=VALUES.shape)
        up, down = [getattr(VALUES.astype(np.float64) + s * 1e-6 * step, name)() for s in (1, -1)]
        assert float((np.asarray(grad) * step).sum()) == pytest.approx((up - down) / 2e-6, rel=1e-4)


@pytest.mark.parametrize("name", PROPERTIES)
def test_property(name: str) -> None:
    want = getattr(fnp.asarray(VALUES), name)
    found = []

    def f(x: Any) -> Any:
        found.append(getattr(x, name))
        return found[0] if name in ("T", "mT", "real", "imag") else 0.0

    got = fg.jit(f)(VALUES)
    if name in ("T", "mT", "real", "imag"):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    else:
        assert found[0] == want
