"""MATRIX kernels (factors, solutions, determinants of stacks) against numpy in float64, and where jit uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_arrays import legal_names, refuse_garbage, run

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax
from funcgrad.runtime.kinds import MATRIX

pytestmark = pytest.mark.ggml
CHOLESKY, TRIANGULAR, SOLVE, SLOGDET, DET = range(5)
LOWER, TRANSPOSED, UNIT = 1, 2, 4
SIZES = [0, 1, 2, 3, 5, 16, 31, 33, 70]
legal_names[MATRIX] = "matrix"


def general(count: int, n: int, seed: int = 0) -> Any:
    """Well-conditioned matrices whose largest pivots are not on the diagonal."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.normal(size=(count, n, n)))[0] if n else np.zeros((count, 0, 0))
    return (q * rng.uniform(0.5, 2, (count, 1, n))).astype(np.float32)


def definite(count: int, n: int) -> Any:
    """Positive definite ones, not symmetric: their symmetric part counts."""
    half = general(count, n)
    skew = np.random.default_rng(1).normal(size=(count, n, n)) * 0.1
    return (half @ half.swapaxes(-1, -2) + skew - skew.swapaxes(-1, -2)).astype(np.float32)


def words(op: int, a: Any, b: Any = None, flags: int = 0, second: bool = False) -> list[int]:
    count, n = a.shape[:2]
    m, out = (b.shape[-1], 2) if b is not None else (1, 1)
    return [
        op,
        flags,
        count,
        n,
        m,
        0,
        0,
        *((1, 0) if b is not None else (-1, 0)),
        out,
        0,
        *((2, 0) if second else (-1, 0)),
    ]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("count", [0, 1, 3, 40])
def test_cholesky(n: int, count: int) -> None:
    a = definite(count, n)
    out = np.empty_like(a)
    run(MATRIX, words(CHOLESKY, a), [a], [out])
    wide = a.astype(np.float64)
    want = np.linalg.cholesky((wide + wide.swapaxes(-1, -2)) / 2) if n else wide
    np.testing.assert_allclose(out, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("flags", range(8))
def test_triangular_systems(n: int, m: int, flags: int) -> None:
    rng = np.random.default_rng(n)
    a = (rng.normal(size=(3, n, n)) / max(n, 1) + 2 * np.eye(n)).astype(np.float32)
    b, out = rng.normal(size=(3, n, m)).astype(np.float32), np.full((3, n, m), 7, np.float32)
    run(MATRIX, words(TRIANGULAR, a, b, flags), [a, b], [out])
    t = np.tril(a) if flags & LOWER else np.triu(a)
    t = t.astype(np.float64)
    if flags & UNIT and n:
        t[:, np.arange(n), np.arange(n)] = 1
    t = t.swapaxes(-1, -2) if flags & TRANSPOSED else t
    np.testing.assert_allclose(t @ out, b, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", [0, 1, 3, 9])
def test_general_systems(n: int, m: int) -> None:
    a, rng = general(5, n), np.random.default_rng(n)
    b, out = rng.normal(size=(5, n, m)).astype(np.float32), np.full((5, n, m), 7, np.float32)
    run(MATRIX, words(SOLVE, a, b), [a, b], [out])
    want = np.linalg.solve(a.astype(np.float64), b.astype(np.float64)) if n else b
    np.testing.assert_allclose(out, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", SIZES)
def test_determinants(n: int) -> None:
    a = general(5, n, seed=n)
    sign, log, det = (np.empty(5, np.float32) for _ in range(3))
    run(MATRIX, words(SLOGDET, a, second=True), [a], [sign, log])
    run(MATRIX, words(DET, a), [a], [det])
    want = np.linalg.slogdet(a.astype(np.float64))
    np.testing.assert_array_equal(sign, want[0])
    np.testing.assert_allclose(log, want[1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(det, np.linalg.det(a.astype(np.float64)), rtol=1e-5)


def test_what_has_no_solution_is_nan_and_leaves_the_others_alone() -> None:
    good, singular = np.eye(3, dtype=np.float32) * 2, np.ones((3, 3), np.float32)
    a = np.stack([good, singular, good, np.full((3, 3), np.nan, np.float32)])
    b, out = np.ones((4, 3, 2), np.float32), np.empty((4, 3, 2), np.float32)
    run(MATRIX, words(SOLVE, a, b), [a, b], [out])
    np.testing.assert_array_equal(out[[0, 2]], np.full((2, 3, 2), 0.5))
    assert np.isnan(out[[1, 3]]).all()
    indefinite = np.stack([good, np.diag([1, -1, 1]).astype(np.float32), good])
    factor = np.empty_like(indefinite)
    run(MATRIX, words(CHOLESKY, indefinite), [indefinite], [factor])
    np.testing.assert_allclose(factor[[0, 2]], np.sqrt(indefinite[[0, 2]]))
    assert np.isnan(factor[1]).all()
    sign, log = np.empty(4, np.float32), np.empty(4, np.float32)
    run(MATRIX, words(SLOGDET, a, second=True), [a], [sign, log])
    np.testing.assert_array_equal(sign, [1, 0, 1, np.nan])
    np.testing.assert_allclose(log, [np.log(8), -np.inf, np.log(8), np.nan], rtol=1e-6)


@pytest.mark.parametrize("op", [CHOLESKY, TRIANGULAR, SOLVE, SLOGDET])
def test_illegal_words_are_refused(op: int) -> None:
    a, b = general(2, 3), np.ones((2, 3, 2), np.float32)
    legal = words(op, a, b if op in (TRIANGULAR, SOLVE) else None, second=op == SLOGDET)
    assert refuse_garbage(MATRIX, legal, np.random.default_rng(op)) > 100


# -- where jit uses them -----------------------------------------------------------------------------------------
def nodes(f: Callable[..., Any], *args: Any) -> set[str]:
    """The kinds of nodes of the compiled function."""
    text = fg.jit(f, device="cpu").trace(*args).lower().compile().as_text()
    return {line.split()[0] for line in text.splitlines() if line.strip()}


CASES: dict[str, Callable[..., Any]] = {
    "cholesky": lambda a, b: fnp.linalg.cholesky(a).sum(),
    "solve": lambda a, b: fnp.linalg.solve(a, b).sum(),
    "inv": lambda a, b: fnp.linalg.inv(a).sum(),
    "slogdet": lambda a, b: fnp.linalg.slogdet(a)[1].sum(),
    "det": lambda a, b: fnp.linalg.det(a).sum(),
    "triangular": lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True).sum(),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_in_a_loop_under_vmap(name: str) -> None:
    """The same numbers from the kernels, in scan and vmap, as from numpy in float64."""
    a, b = definite(4, 3), np.random.default_rng(0).normal(size=(4, 3, 2)).astype(np.float32)

    def total(a: Any, b: Any) -> Any:
        step = lambda c, _: (c + CASES[name](a * (1 + 0.1 * c), b), None)
        return lax.scan(step, fnp.zeros((), a.dtype), None, length=3)[0]

    f = fg.vmap(fg.value_and_grad(total, argnums=(0, 1)))
    got = fg.tree.leaves(fg.jit(f, device="cpu")(a, b))
    with fg.default_device("numpy"):
        want = fg.tree.leaves(f(fnp.asarray(a, dtype="float64"), fnp.asarray(b, dtype="float64")))
        want = [np.asarray(w) for w in want]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), w, rtol=2e-3, atol=2e-4 * max(1, np.abs(w).max()))


@pytest.mark.parametrize("name", CASES)
def test_large_matrices_are_lapacks(name: str) -> None:
    a, b = definite(1, 3)[0], np.ones((3, 1), np.float32)
    assert "matrix" in nodes(CASES[name], a, b) and "host" not in nodes(CASES[name], a, b)
    if name != "triangular":
        a, b = definite(1, 600)[0], np.ones((600, 1), np.float32)
        assert "host" in nodes(CASES[name], a, b)
