"""Hamiltonian Monte Carlo (Neal 2011) on a Bayesian linear regression, whose posterior has a closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, random


def log_posterior(w: Any, x: Any, y: Any) -> Any:
    """N(y; x w, 0.5^2) with the prior N(0, 1), up to a constant."""
    return -0.5 * fnp.sum(((y - x @ w) / 0.5) ** 2) - 0.5 * fnp.sum(w**2)


def leapfrog(potential: Callable[[Any], Any], q: Any, p: Any, size: Any, steps: int) -> tuple[Any, Any]:
    """Half a step of momentum, full steps of position and momentum in turn, half a step of momentum."""
    force = fg.grad(potential)

    def body(state: Any) -> Any:
        i, q, p = state
        p = p - 0.5 * size * force(q)
        q = q + size * p
        return i + 1, q, p - 0.5 * size * force(q)

    return lax.while_loop(lambda s: s[0] < steps, body, (fnp.asarray(0), q, p))[1:]


def hmc(log_density: Callable[[Any], Any], q: Any, key: Any, draws: int, size: float, steps: int) -> Any:
    """Draws of one chain, and how often its proposals were accepted."""
    potential = lambda v: -log_density(v)

    def step(q: Any, key: Any) -> Any:
        k1, k2, k3 = random.split(key, 3)
        p = random.normal(k1, q.shape)
        jitter = size * random.uniform(k3, (), minval=0.8, maxval=1.2)
        new_q, new_p = leapfrog(potential, q, p, jitter, steps)
        change = potential(q) + 0.5 * p @ p - potential(new_q) - 0.5 * new_p @ new_p
        accept = fnp.log(random.uniform(k2)) < change
        q = fnp.where(accept, new_q, q)
        return q, (q, accept, change)

    return lax.scan(step, q, random.split(key, draws))[1]


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 3)) @ np.array([[1, 0.6, 0], [0, 1, 0.4], [0, 0, 1]])
    return x, (x @ np.array([1.0, -2.0, 0.5]) + 0.5 * rng.normal(size=12))


def test_draws_have_the_posterior_moments(device: str) -> None:
    x, y = data()
    wide, chains, draws = x.astype(np.float64), 32, 220
    cov = np.linalg.inv(wide.T @ wide / 0.25 + np.eye(3))
    mean = cov @ wide.T @ y / 0.25
    start = fnp.asarray(np.random.default_rng(1).normal(size=(chains, 3)))
    xs, ys = fnp.asarray(x), fnp.asarray(y)
    sample = lambda q, k: hmc(lambda w: log_posterior(w, xs, ys), q, k, draws, 0.08, 12)
    found, accepted, _ = fg.jit(fg.vmap(sample))(start, random.split(random.key(0), chains))
    assert 0.8 < float(accepted.mean()) < 1.0
    kept = np.asarray(found, np.float64)[:, 20:]
    # The error of a mean from the spread of the chains' own means: five of them, for three coordinates.
    error = kept.mean(1).std(0, ddof=1) / np.sqrt(chains)
    assert np.all(error < 0.02)
    assert np.all(np.abs(kept.mean((0, 1)) - mean) < 5 * error + 1e-4)
    got = np.cov(kept.reshape(-1, 3).T)
    np.testing.assert_allclose(got, cov, atol=0.1 * np.max(cov))


def test_leapfrog_of_a_harmonic_oscillator(device: str) -> None:
    """Energy is kept to second order in the step, the map is reversible, and its Jacobian has determinant one."""
    potential = lambda q: 0.5 * fnp.sum(q**2)
    q, p = fnp.asarray([1.0, -0.5]), fnp.asarray([0.2, 0.7])
    new_q, new_p = fg.jit(lambda q, p: leapfrog(potential, q, p, 0.01, 100))(q, p)
    np.testing.assert_allclose(new_q, np.asarray(q) * np.cos(1) + np.asarray(p) * np.sin(1), atol=5e-5)
    np.testing.assert_allclose(new_p, np.asarray(p) * np.cos(1) - np.asarray(q) * np.sin(1), atol=5e-5)
    back_q, back_p = leapfrog(potential, new_q, -new_p, 0.01, 100)
    np.testing.assert_allclose(back_q, q, atol=1e-5)
    np.testing.assert_allclose(-back_p, p, atol=1e-5)
    both = lambda v: fnp.concatenate(leapfrog(potential, v[:2], v[2:], 0.1, 20))
    np.testing.assert_allclose(fnp.linalg.det(fg.jacfwd(both)(fnp.concatenate([q, p]))), 1.0, atol=1e-5)
