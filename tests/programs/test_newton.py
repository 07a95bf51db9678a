"""Logistic regression by Newton's method: theta <- theta - H^-1 g, with the Hessian of the penalised loss."""

from __future__ import annotations

from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp


def loss(theta: Any, x: Any, y: Any, penalty: float) -> Any:
    """The negative log likelihood of labels 0 and 1, log(1 + exp(z)) - y z, and a ridge penalty."""
    z = x @ theta["weight"] + theta["bias"]
    return fnp.sum(fnp.logaddexp(z, 0.0) - y * z) + 0.5 * penalty * fnp.sum(theta["weight"] ** 2)


@fg.jit
def newton_step(flat: Any, x: Any, y: Any, penalty: float) -> Any:
    """One step on the parameters as a vector: weights, then the bias."""

    def f(v: Any) -> Any:
        return loss({"weight": v[:-1], "bias": v[-1]}, x, y, penalty)

    g, h = fg.grad(f)(flat), fg.hessian(f)(flat)
    return flat - fnp.linalg.solve(h, g), fnp.linalg.norm(g)


def fit(x: Any, y: Any, penalty: float, steps: int = 8) -> Any:
    flat = fnp.zeros(x.shape[1] + 1)
    norms = []
    for _ in range(steps):
        flat, norm = newton_step(flat, x, y, penalty)
        norms.append(float(norm))
    return flat, norms


def data(n: int = 300, d: int = 6) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    p = 1 / (1 + np.exp(-(x @ np.linspace(-2, 2, d) + 0.5)))
    return x, (rng.random(n) < p)


def irls(x: Any, y: Any, penalty: float, steps: int = 30) -> Any:
    """The same optimum in float64 by iteratively reweighted least squares, with derivatives written out by hand."""
    full = np.concatenate([x, np.ones((len(x), 1))], 1).astype(np.float64)
    ridge = penalty * np.diag([1.0] * x.shape[1] + [0.0])
    theta = np.zeros(full.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-full @ theta))
        theta -= np.linalg.solve(full.T * (p * (1 - p)) @ full + ridge, full.T @ (p - y) + ridge @ theta)
    return theta


def test_newton_reaches_the_optimum(device: str) -> None:
    x, y = data()
    theta, norms = fit(fnp.asarray(x), fnp.asarray(y), 0.1)
    np.testing.assert_allclose(theta, irls(x, y, 0.1), rtol=2e-5, atol=2e-5)
    # Quadratic convergence: near the optimum a step squares the gradient's size, until rounding.
    assert norms[4] < 0.15 * norms[3] and norms[5] < 0.02 * norms[4] and norms[6] < 0.005 * norms[5]


def test_one_step_is_one_step_of_irls(device: str) -> None:
    x, y = data()
    theta, _ = fit(fnp.asarray(x), fnp.asarray(y), 0.1, steps=1)
    np.testing.assert_allclose(theta, irls(x, y, 0.1, steps=1), rtol=1e-5, atol=1e-6)
