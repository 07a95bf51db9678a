"""A Gaussian process, its kernel learned by the marginal likelihood (Rasmussen and Williams 2006, algorithm 2.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, optim


def kernel(theta: Any, a: Any, b: Any) -> Any:
    """amplitude^2 exp(-|a - b|^2 / (2 length^2)), parameters as logarithms."""
    squared = fnp.sum((a[:, None] - b[None]) ** 2 * fnp.exp(-2 * theta["length"]), axis=-1)
    return fnp.exp(2 * theta["amplitude"] - 0.5 * squared)


def factor(theta: Any, x: Any, y: Any) -> tuple[Any, Any]:
    noisy = kernel(theta, x, x) + fnp.exp(2 * theta["noise"]) * fnp.eye(len(x))
    lower = fnp.linalg.cholesky(noisy)
    half = lax.linalg.triangular_solve(lower, y[:, None], left_side=True, lower=True)
    return lower, half[:, 0]


def negative_log_likelihood(theta: Any, x: Any, y: Any) -> Any:
    lower, half = factor(theta, x, y)
    return 0.5 * half @ half + fnp.sum(fnp.log(fnp.diag(lower))) + 0.5 * len(x) * fnp.log(2 * fnp.pi)


def predict(theta: Any, x: Any, y: Any, at: Any) -> tuple[Any, Any]:
    """The posterior's mean and variance without noise."""
    lower, half = factor(theta, x, y)
    v = lax.linalg.triangular_solve(lower, kernel(theta, x, at), left_side=True, lower=True)
    return v.T @ half, fnp.exp(2 * theta["amplitude"]) - fnp.sum(v * v, axis=0)


@fg.jit
def fit(theta: Any, x: Any, y: Any) -> Any:
    tx = optim.adam(0.05)

    def step(carry: Any, _: Any) -> Any:
        theta, state = carry
        value, g = fg.value_and_grad(negative_log_likelihood)(theta, x, y)
        updates, state = tx.update(g, state, theta)
        return (optim.apply_updates(theta, updates), state), value

    (theta, _), values = lax.scan(step, (theta, tx.init(theta)), None, length=250)
    return theta, values


def start() -> dict[str, Any]:
    return {"length": fnp.zeros(2), "amplitude": fnp.asarray(0.0), "noise": fnp.asarray(-1.0)}


def data() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    x, at = rng.uniform(-2, 2, (40, 2)), rng.uniform(-2, 2, (15, 2))
    return x, (np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.normal(size=40)), at


def by_hand(theta: Any, x: Any, y: Any) -> tuple[float, dict[str, Any], Any]:
    """The value, its gradient tr((K^-1 - a a^T) dK) / 2 with a = K^-1 y, and a, in float64 (equation 5.9)."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    length, amplitude, noise = [np.exp(np.asarray(theta[k], np.float64)) for k in ("length", "amplitude", "noise")]
    apart = (x[:, None] - x[None]) ** 2 / length**2
    smooth = amplitude**2 * np.exp(-0.5 * apart.sum(-1))
    full = smooth + noise**2 * np.eye(len(x))
    inverse = np.linalg.inv(full)
    a = inverse @ y
    slope = lambda change: 0.5 * np.sum((inverse - np.outer(a, a)) * change)
    grads = {
        "length": np.array([slope(smooth * apart[..., k]) for k in range(2)]),
        "amplitude": slope(2 * smooth),
        "noise": slope(2 * noise**2 * np.eye(len(x))),
    }
    value = 0.5 * y @ a + 0.5 * np.linalg.slogdet(full)[1] + 0.5 * len(x) * np.log(2 * np.pi)
    return float(value), grads, a


def test_marginal_likelihood_and_its_gradient(device: str) -> None:
    x, y, _ = data()
    value, grads = fg.jit(fg.value_and_grad(negative_log_likelihood))(start(), fnp.asarray(x), fnp.asarray(y))
    want, slopes, _ = by_hand(start(), x, y)
    np.testing.assert_allclose(value, want, rtol=1e-5)
    for name, slope in slopes.items():
        np.testing.assert_allclose(grads[name], slope, rtol=2e-4, atol=2e-4, err_msg=name)


def test_learned_kernel_and_posterior(device: str) -> None:
    x, y, at = data()
    theta, values = fit(start(), fnp.asarray(x), fnp.asarray(y))
    host = {k: np.asarray(v) for k, v in theta.items()}
    value, slopes, a = by_hand(host, x, y)
    assert value < float(values[0]) - 10
    assert all(np.max(np.abs(s)) < 0.5 for s in slopes.values())  # stationary, by the gradient written by hand
    mean, variance = predict(theta, fnp.asarray(x), fnp.asarray(y), fnp.asarray(at))
    apart = np.sum((x[:, None] - at[None]).astype(np.float64) ** 2 / np.exp(2 * host["length"].astype(np.float64)), -1)
    cross = np.exp(2 * np.float64(host["amplitude"]) - 0.5 * apart)
    np.testing.assert_allclose(mean, cross.T @ a, atol=5e-3)
    assert np.all(np.asarray(variance) > 0)
    assert np.max(np.abs(mean - (np.sin(2 * at[:, 0]) + 0.3 * at[:, 1]))) < 0.4
