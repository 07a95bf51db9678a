"""Arrays to test with, and the comparison of results: shapes always count."""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad import tree


def f32(*shape: int, seed: int = 0) -> Any:
    """Normal numbers in float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def close(got: Any, want: Any, tol: float = 2e-6) -> None:
    """One shape, and values that differ by ``tol``, absolutely or relatively."""
    assert np.shape(got) == np.shape(want), (np.shape(got), np.shape(want))
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=tol, atol=tol)


def close_trees(got: Any, want: Any, tol: float = 1e-10) -> None:
    """One structure, and leaves of the same dtypes, shapes and values."""
    assert tree.structure(got) == tree.structure(want)
    for x, y in zip(tree.leaves(got), tree.leaves(want), strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        close(x, y, tol)
