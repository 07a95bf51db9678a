"""A new float has one dtype, whatever makes it: float32 on a device, float64 on the numpy device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, nn, random

MAKERS: dict[str, Callable[[], Any]] = {
    "scalar": lambda: fnp.asarray(0.5),
    "list": lambda: fnp.asarray([0.5, 1]),
    "float type": lambda: fnp.zeros(2, float),
    "zeros": lambda: fnp.zeros(2),
    "eye": lambda: fnp.eye(2),
    "linspace": lambda: fnp.linspace(0, 1, 3),
    "full": lambda: fnp.full(2, 0.5),
    "sine of a number": lambda: fnp.sin(0.5),
    "mean of integers": lambda: fnp.arange(3).mean(),
    "quotient of integers": lambda: fnp.arange(3) / 2,
    "argument of jit": lambda: fg.jit(lambda x: x)(0.5),
    "argument of grad": lambda: fg.grad(lambda x: x * x)(0.5),
    "carry": lambda: lax.scan(lambda c, _: (c + 1, None), 0.5, None, length=2)[0],
    "normal": lambda: random.normal(random.key(0), (2,)),
    "uniform": lambda: random.uniform(random.key(0), (2,), minval=-1.0),
    "exponential": lambda: random.exponential(random.key(0)),
    "initial weights": lambda: nn.initializers.glorot_uniform()(random.key(0), (2, 3)),
    "initial bias": lambda: nn.Linear(2, 3, key=random.key(0)).bias,
    "one-hot": lambda: nn.one_hot(fnp.arange(2), 3),
}


@pytest.mark.parametrize("name", MAKERS)
def test_default_float(name: str, device: str) -> None:
    assert MAKERS[name]().dtype == (np.float64 if device == "numpy" else np.float32)


def test_the_same_numbers_in_both_precisions(device: str) -> None:
    """A draw does not depend on the dtype, rounding apart."""
    wide, narrow = [random.normal(random.key(1), (50,), dtype=d) for d in (float, np.float32)]
    np.testing.assert_allclose(wide, narrow, rtol=1e-6)
