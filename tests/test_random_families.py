"""The gamma and count families against distribution functions in closed form or summed in float64."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, lgamma
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import random

N = 20_000
# A Kolmogorov-Smirnov statistic exceeds this once in 2e7 samples: 2 exp(-2 D^2 N).
LIMIT = 3.0 / np.sqrt(N)


def normal_cdf(x: Any) -> Any:
    return np.array([0.5 * (1 + erf(v / np.sqrt(2))) for v in np.ravel(x)])


def summed(log_density: Callable[[Any], Any], low: float, high: float) -> Callable[[Any], Any]:
    """A distribution function by the trapezoidal rule on 400,000 points."""
    grid = np.linspace(low, high, 400_001)[1:-1]
    with np.errstate(all="ignore"):
        mass = np.exp(log_density(grid))
    steps = np.concatenate([[0.0], np.cumsum(0.5 * (mass[1:] + mass[:-1]))])
    return lambda x: np.interp(x, grid, steps / steps[-1])


def gamma_cdf(a: float) -> Callable[[Any], Any]:
    """With x = exp(s) the density exp(a s - exp(s)) is smooth for every a."""
    cdf = summed(lambda s: a * s - np.exp(s) - lgamma(a), -40 / min(a, 1.0), np.log(a + 60 + 12 * np.sqrt(a)))
    return lambda x: cdf(np.log(np.maximum(x, 1e-300)))


def wald_cdf(m: float) -> Callable[[Any], Any]:
    return lambda x: (
        normal_cdf(np.sqrt(1 / x) * (x / m - 1)) + np.exp(2 / m) * normal_cdf(-np.sqrt(1 / x) * (x / m + 1))
    )


def k() -> Any:
    """A key on the device of the test."""
    return random.key(3)


CONTINUOUS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    **{f"gamma {a}": (lambda a=a: random.gamma(k(), a, (N,)), gamma_cdf(a)) for a in (0.15, 0.7, 1.0, 4.5, 300.0)},
    "beta a 1": (lambda: random.beta(k(), 0.4, 1.0, (N,)), lambda x: x**0.4),
    "beta 1 b": (lambda: random.beta(k(), 1.0, 3.0, (N,)), lambda x: 1 - (1 - x) ** 3),
    "beta 2 3": (lambda: random.beta(k(), 2.0, 3.0, (N,)), lambda x: x**2 * (6 - 8 * x + 3 * x**2)),
    "chisquare": (lambda: random.chisquare(k(), 2.0, (N,)), lambda x: 1 - np.exp(-x / 2)),
    "t 1": (lambda: random.t(k(), 1.0, (N,)), lambda x: 0.5 + np.arctan(x) / np.pi),
    "t 2": (lambda: random.t(k(), 2.0, (N,)), lambda x: 0.5 + x / (2 * np.sqrt(2 + x * x))),
    "f": (lambda: random.f(k(), 2.0, 5.0, (N,)), lambda x: 1 - (1 + 0.4 * x) ** -2.5),
    "generalized 2": (lambda: random.generalized_normal(k(), 2.0, (N,)), lambda x: normal_cdf(x * np.sqrt(2))),
    "generalized 1": (
        lambda: random.generalized_normal(k(), 1.0, (N,)),
        lambda x: np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0)), 1 - 0.5 * np.exp(-np.maximum(x, 0))),
    ),
    "ball radius": (lambda: fnp.linalg.norm(random.ball(k(), 3, shape=(N,)), axis=1), lambda r: r**3),
    "ball of the 1-norm": (lambda: fnp.abs(random.ball(k(), 2, 1.0, (N,))).sum(1), lambda r: r**2),
    "double-sided maxwell": (
        lambda: fnp.abs(random.double_sided_maxwell(k(), 1.0, 2.0, (N,)) - 1.0) / 2,
        lambda x: 2 * normal_cdf(x) - 1 - np.sqrt(2 / np.pi) * x * np.exp(-x * x / 2),
    ),
    "wald": (lambda: random.wald(k(), 1.5, (N,)), wald_cdf(1.5)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_distribution_function(name: str, device: str) -> None:
    draw, cdf = CONTINUOUS[name]
    x = np.sort(np.asarray(fg.jit(draw)(), np.float64))
    assert np.all(np.isfinite(x))
    p = cdf(x)
    at = np.arange(N)
    assert np.max(np.maximum(p - at / N, (at + 1) / N - p)) < LIMIT


def poisson_mass(lam: float, k: int) -> float:
    return float(np.exp(k * np.log(lam) - lam - lgamma(k + 1)))


def binomial_mass(n: int, p: float, k: int) -> float:
    return float(np.exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * np.log(p) + (n - k) * np.log1p(-p)))


def thirds(outcome: int) -> Any:
    return random.multinomial(k(), 9, fnp.asarray([0.2, 0.5, 0.3]), shape=(N,))[:, outcome]


# A draw, the mass of a count, and the greatest count (-1 without one).
COUNTS: dict[str, tuple[Callable[[], Any], Callable[[int], float], int]] = {}
for m in (0.3, 4.0, 10.0, 85.0):
    COUNTS[f"poisson {m}"] = (lambda m=m: random.poisson(k(), m, (N,))), (lambda c, m=m: poisson_mass(m, c)), -1
for n, p in ((5, 0.3), (12, 0.9), (60, 0.25), (200, 0.7)):
    draw = lambda n=n, p=p: random.binomial(k(), n, p, (N,))
    COUNTS[f"binomial {n} {p}"] = draw, (lambda c, n=n, p=p: binomial_mass(n, p, c)), n
COUNTS["multinomial"] = (lambda: thirds(1)), (lambda c: binomial_mass(9, 0.5, c)), 9
COUNTS["multinomial's last"] = (lambda: thirds(2)), (lambda c: binomial_mass(9, 0.3, c)), 9


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str, device: str) -> None:
    """Every count's share, within five deviations of its mass; the distribution function as well."""
    draw, mass, most = COUNTS[name]
    x = np.asarray(fg.jit(draw)(), np.float64)
    assert np.all(x == np.floor(x)) and x.min() >= 0 and (most < 0 or x.max() <= most)
    counts = range(int(x.max()) + 1)
    p, share = np.array([mass(c) for c in counts]), np.array([np.mean(x == c) for c in counts])
    assert np.all(np.abs(share - p) < 5 * np.sqrt(p * (1 - p) / N) + 1e-4)
    assert np.max(np.abs(np.cumsum(share) - np.cumsum(p))) < LIMIT


def test_dirichlet(device: str) -> None:
    alpha = np.array([0.5, 2.0, 3.5])
    x = np.asarray(random.dirichlet(k(), fnp.asarray(alpha), (N,)), np.float64)
    np.testing.assert_allclose(x.sum(1), 1, atol=1e-6)
    mean = alpha / 6
    np.testing.assert_allclose(x.mean(0), mean, atol=0.01)
    np.testing.assert_allclose(np.cov(x.T), (np.diag(mean) - np.outer(mean, mean)) / 7, atol=0.002)
    assert np.all(np.isfinite(np.asarray(random.dirichlet(k(), fnp.full(3, 1e-4), (50,)))))


def test_multinomial_counts_every_trial(device: str) -> None:
    x = random.multinomial(k(), fnp.asarray([3, 50]), fnp.asarray([[0.1, 0.9, 0.0], [0.3, 0.3, 0.4]]))
    np.testing.assert_array_equal(x.sum(-1), [3, 50])
    assert float(x[0, 2]) == 0


@pytest.mark.parametrize("a", [0.2, 1.0, 6.0])
def test_gradients_by_the_parameter(a: float, device: str) -> None:
    """d E[x] / da = 1, d E[x^2] / da = 2 a + 1, and d E[log x] / da is the trigamma function."""
    f = lambda b, g: g(random.loggamma(k(), b, (4000,))).mean()
    moments = [(fnp.exp, 1.0), (lambda v: fnp.exp(2 * v), 2 * a + 1)]
    trigamma = sum(1 / (a + k) ** 2 for k in range(20_000)) + 1 / (a + 20_000)
    for g, want in [*moments, (lambda v: v, trigamma)]:
        got = float(fg.jit(fg.grad(lambda b, g=g: f(b, g)))(fnp.asarray(a)))
        np.testing.assert_allclose(got, want, rtol=0.12)
    assert np.isfinite(float(fg.grad(lambda b: random.beta(k(), b, 2.0, (100,)).mean())(fnp.asarray(a))))


def test_impossible_parameters(device: str) -> None:
    assert np.isnan(np.asarray(random.gamma(k(), -1.0)))
    assert int(random.poisson(k(), -1.0)) == -1 and int(random.poisson(k(), 0.0)) == 0
    assert np.isnan(float(random.binomial(k(), 3, 1.5))) and float(random.binomial(k(), 0, 0.5)) == 0
    assert (float(random.binomial(k(), 500, 0.0)), float(random.binomial(k(), 500, 1.0))) == (0, 500)
    with pytest.raises(ValueError, match="broadcast"):
        random.gamma(k(), fnp.ones(3), (2,))


def test_under_vmap_and_jit_the_same(device: str) -> None:
    keys, a = random.split(k(), 4), fnp.asarray([0.3, 1.0, 2.0, 9.0])
    each = [float(random.gamma(k, v)) for k, v in zip(keys, a, strict=True)]
    np.testing.assert_allclose(fg.jit(fg.vmap(random.gamma))(keys, a), each, rtol=1e-5)
    each = [int(random.poisson(k, 5 * v)) for k, v in zip(keys, a, strict=True)]
    np.testing.assert_array_equal(fg.vmap(random.poisson)(keys, 5 * a), each)
