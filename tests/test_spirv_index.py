"""Sums at indices as Vulkan kernels, split as on a GPU, against float64 numpy."""

from __future__ import annotations

import numpy as np
import pytest
from spirv_device import run

pytestmark = pytest.mark.ggml
SCATTER, ADD, F32 = 4, 1, 0


@pytest.mark.parametrize("n, b, count", [(65, 128, 2048), (65, 40, 2000), (7, 100, 513), (90, 33, 300), (3, 64, 5000)])
def test_sums_of_rows_into_a_small_table(n: int, b: int, count: int) -> None:
    rng = np.random.default_rng(n + count)
    updates = rng.normal(size=(count, b)).astype(np.float32)
    index = rng.integers(-2, n + 2, count).astype(np.int32)  # what is out of range is dropped
    start = rng.normal(size=(n, b)).astype(np.float32)
    out = start.copy()
    run(SCATTER, [ADD, F32, 1, n, b, count, 0, 2, 0, 0, 0, 1, 0], [index, updates], [out], check=True, large=True)
    want = start.astype(np.float64)
    inside = (index >= 0) & (index < n)
    np.add.at(want, index[inside], updates[inside].astype(np.float64))
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=2e-5)
    untouched = np.setdiff1d(np.arange(n), index)
    np.testing.assert_array_equal(out[untouched], start[untouched])


def test_every_update_counts_once() -> None:
    """Whole numbers: sums are exact in any order."""
    rng = np.random.default_rng(3)
    index = rng.integers(0, 65, 2049).astype(np.int32)
    out = np.zeros((65, 64), np.float32)
    updates = rng.integers(-8, 9, (2049, 64)).astype(np.float32)
    run(SCATTER, [ADD, F32, 1, 65, 64, 2049, 0, 2, 0, 0, 0, 1, 0], [index, updates], [out], large=True)
    want = np.zeros((65, 64))
    np.add.at(want, index, updates)
    np.testing.assert_array_equal(out, want)
