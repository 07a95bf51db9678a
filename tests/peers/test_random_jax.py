"""The same seeds give the same numbers as in JAX: bit for bit, or within the rounding of logarithms and erf_inv."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import funcgrad as fg  # noqa: E402
from funcgrad import random  # noqa: E402

jr = jax.random
pytestmark = pytest.mark.usefixtures("device")

LOGITS = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
WEIGHTS = (np.arange(1, 11) / 55).astype(np.float32)
COV = np.array([[2.0, 0.6], [0.6, 1.0]], np.float32)
F32 = np.float32

# The same call on both sides; f32 where the numpy device would choose float64.
EXACT: dict[str, Any] = {
    "bits": lambda r, k: r.bits(k, (3, 5)),
    "bits of a scalar": lambda r, k: r.bits(k),
    "uniform": lambda r, k: r.uniform(k, (1000,), F32),
    "uniform in a range": lambda r, k: r.uniform(k, (1000,), F32, -3.0, 5.0),
    "uniform with an array": lambda r, k: r.uniform(k, (4, 3), F32, ROWS, ROWS + 2),
    "randint": lambda r, k: r.randint(k, (1000,), -7, 1000),
    "randint of the whole range": lambda r, k: r.randint(k, (1000,), -(2**31), 2**31 - 1),
    "randint of nothing": lambda r, k: r.randint(k, (10,), 5, 5),
    "permutation": lambda r, k: r.permutation(k, 100),
    "permutation of many": lambda r, k: r.permutation(k, 5000),
    "permutation of rows": lambda r, k: r.permutation(k, ROWS),
    "permutation of columns": lambda r, k: r.permutation(k, ROWS, 1),
    "independent permutation": lambda r, k: r.permutation(k, ROWS, 1, independent=True),
    "categorical": lambda r, k: r.categorical(k, LOGITS),
    "categorical on axis 0": lambda r, k: r.categorical(k, LOGITS, 0, (3, 7)),
    "bernoulli": lambda r, k: r.bernoulli(k, 0.3, (1000,)),
    "bernoulli with an array": lambda r, k: r.bernoulli(k, WEIGHTS),
    "choice": lambda r, k: r.choice(k, 10, (5,)),
    "choice without replacement": lambda r, k: r.choice(k, 10, (5,), replace=False),
    "choice by weights": lambda r, k: r.choice(k, 10, (50,), p=WEIGHTS),
    "choice of few by weights": lambda r, k: r.choice(k, 10, (5,), replace=False, p=WEIGHTS),
    "choice of columns": lambda r, k: r.choice(k, ROWS, (5,), axis=1),
    "rademacher": lambda r, k: r.rademacher(k, (1000,)),
    "geometric": lambda r, k: r.geometric(k, 0.2, (1000,)),
}

# Relative to the largest magnitude of JAX's result: its erf_inv is a polynomial good to some 1e-5 in the tails.
ROUNDED: dict[str, tuple[Any, float]] = {
    "normal": (lambda r, k: r.normal(k, (10000,), F32), 1e-5),
    "truncated_normal": (lambda r, k: r.truncated_normal(k, -1.0, 2.0, (10000,), F32), 1e-6),
    "gumbel": (lambda r, k: r.gumbel(k, (10000,), F32), 1e-6),
    "exponential": (lambda r, k: r.exponential(k, (10000,), F32), 1e-6),
    "laplace": (lambda r, k: r.laplace(k, (10000,), F32), 1e-6),
    "logistic": (lambda r, k: r.logistic(k, (10000,), F32), 1e-6),
    "cauchy": (lambda r, k: r.cauchy(k, (10000,), F32), 1e-6),
    "lognormal": (lambda r, k: r.lognormal(k, 0.5, (10000,), F32), 1e-5),
    "maxwell": (lambda r, k: r.maxwell(k, (10000,), F32), 1e-5),
    "pareto": (lambda r, k: r.pareto(k, 3.0, (10000,), F32), 1e-6),
    "rayleigh": (lambda r, k: r.rayleigh(k, 2.0, (10000,), F32), 1e-6),
    "weibull_min": (lambda r, k: r.weibull_min(k, 2.0, 3.0, (10000,), F32), 1e-6),
    "triangular": (lambda r, k: r.triangular(k, -1.0, 0.5, 2.0, (10000,), F32), 1e-6),
    "multivariate_normal": (lambda r, k: r.multivariate_normal(k, np.float32([1, -1]), COV, (1000,), F32), 1e-5),
    "orthogonal": (lambda r, k: r.orthogonal(k, 5, (2,), F32), 1e-5),
}


@pytest.mark.parametrize("seed", [0, 42, 2**31 + 5, -3, 12345678901])
def test_keys(seed: int) -> None:
    key, theirs = random.key(seed), jr.key(seed)
    np.testing.assert_array_equal(np.asarray(key), jr.key_data(theirs))
    for mine, other in [
        (random.split(key), jr.split(theirs)),
        (random.split(key, 5), jr.split(theirs, 5)),
        (random.split(key, (2, 3)), jr.split(theirs, (2, 3))),
        (random.fold_in(key, 77), jr.fold_in(theirs, 77)),
        (fg.vmap(random.fold_in, (None, 0))(key, np.arange(5)), jax.vmap(jr.fold_in, (None, 0))(theirs, np.arange(5))),
        (fg.vmap(random.split)(random.split(key)), jax.vmap(jr.split)(jr.split(theirs))),
    ]:
        np.testing.assert_array_equal(np.asarray(mine), jr.key_data(other))


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("name", EXACT)
def test_equal_to_the_bit(name: str, seed: int) -> None:
    draw = EXACT[name]
    want = np.asarray(draw(jr, jr.key(seed)))
    for f in (draw, lambda r, k: fg.jit(lambda k: draw(r, k))(k)):
        got = np.asarray(f(random, random.key(seed)))
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("name", ROUNDED)
def test_equal_within_rounding(name: str, seed: int) -> None:
    draw, tolerance = ROUNDED[name]
    want = np.asarray(draw(jr, jr.key(seed)))
    for f in (draw, lambda r, k: fg.jit(lambda k: draw(r, k))(k)):
        got = np.asarray(f(random, random.key(seed)))
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
