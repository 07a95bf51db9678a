"""Random programs of all dtypes, with views, order, places that are values, loops in loops: devices and numpy agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from wide_programs import wide_function

import funcgrad as fg
from funcgrad import dtypes
from funcgrad.errors import DeviceError

pytestmark = pytest.mark.ggml


def check(seed: int, device: Any) -> None:
    fun, args, _ = wide_function(seed)
    want = fg.jit(fun, device="numpy")(*args)
    for got, w in zip(fg.jit(fun, device=device)(*args), want, strict=True):
        assert got.shape == np.asarray(got).shape == w.shape
        np.testing.assert_array_equal(dtypes.widen(np.asarray(got)), dtypes.widen(np.asarray(w)))


@pytest.mark.parametrize("seed", range(60))
def test_cpu(seed: int) -> None:
    check(seed, "cpu")


@pytest.mark.vulkan
@pytest.mark.parametrize("seed", range(1000, 1024))
def test_vulkan(seed: int) -> None:
    try:
        device = fg.devices("vulkan")[0]
    except DeviceError as error:
        pytest.skip(str(error).splitlines()[0])
    check(seed, device)


@pytest.mark.parametrize("seed", range(2000, 2010))
def test_equation_by_equation_is_the_same(seed: int) -> None:
    """Without ``jit`` every operation runs alone."""
    fun, args, _ = wide_function(seed, size=12)
    with fg.default_device("cpu"):
        one_by_one, whole = fun(*args), fg.jit(fun)(*args)
    for got, w in zip(one_by_one, whole, strict=True):
        np.testing.assert_array_equal(dtypes.widen(np.asarray(got)), dtypes.widen(np.asarray(w)))
