"""lax's special functions against integrals and sums in float64, and their derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from math import gamma
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax

NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)


def integral(f: Callable[[Any], Any], low: float, high: float) -> float:
    """Gauss and Legendre's rule with 200 nodes."""
    half = 0.5 * (high - low)
    return float(half * np.sum(WEIGHTS * f(low + half * (NODES + 1))))


def igamma(a: float, x: float) -> float:
    """The integral of t^(a - 1) exp(-t) / Gamma(a), with t = s^40 so that the integrand is smooth at 0."""
    return integral(lambda s: 40 * s ** (40 * a - 1) * np.exp(-(s**40)), 0, x**0.025) / gamma(a)


def betainc(a: float, b: float, x: float) -> float:
    whole = gamma(a) * gamma(b) / gamma(a + b)
    return integral(lambda s: 4 * s ** (4 * a - 1) * (1 - s**4) ** (b - 1), 0, x**0.25) / whole


def bessel(order: int, x: float) -> float:
    """exp(-|x|) I_n(x) = 1 / pi integral of exp(x cos t - |x|) cos(n t) (DLMF 10.32.3)."""
    return integral(lambda t: np.exp(x * np.cos(t) - abs(x)) * np.cos(order * t), 0, np.pi) / np.pi


def zeta(s: float, q: float) -> float:
    """A long sum, and the integral of the rest."""
    k = np.arange(100_000.0)
    end = q + 100_000.0
    return float(np.sum((q + k) ** -s)) + end ** (1 - s) / (s - 1) + 0.5 * end**-s


CASES: dict[str, tuple[Callable[..., Any], Callable[..., float], list[tuple[float, ...]]]] = {
    "igamma": (
        lax.igamma,
        igamma,
        [(0.3, 0.1), (0.7, 3.0), (1.0, 1.0), (5.0, 2.0), (5.0, 9.0), (40.0, 35.0), (9.5, 20.0)],
    ),
    "igammac": (lax.igammac, lambda a, x: 1 - igamma(a, x), [(0.5, 0.2), (2.0, 1.5), (13.0, 15.0), (30.0, 30.0)]),
    "betainc": (
        lax.betainc,
        betainc,
        [(0.5, 2.0, 0.1), (2.0, 3.0, 0.5), (5.0, 1.5, 0.9), (20.0, 30.0, 0.4), (3.0, 7.0, 0.8)],
    ),
    "bessel_i0e": (lax.bessel_i0e, lambda x: bessel(0, x), [(0.0,), (0.5,), (-3.0,), (19.0,), (25.0,), (400.0,)]),
    "bessel_i1e": (lax.bessel_i1e, lambda x: bessel(1, x), [(0.0,), (0.5,), (-3.0,), (19.0,), (25.0,), (400.0,)]),
    "zeta": (lax.zeta, zeta, [(2.0, 1.0), (1.5, 0.3), (4.0, 7.5), (3.0, 200.0)]),
}
POINTS = [(name, point) for name, (_, _, points) in CASES.items() for point in points]


@pytest.mark.parametrize(("name", "point"), POINTS)
def test_values(name: str, point: tuple[float, ...], device: str) -> None:
    function, reference, _ = CASES[name]
    args = [fnp.asarray([v]) for v in point]
    tolerance = 1e-8 if device == "numpy" else 4e-5
    want = reference(*[float(np.asarray(a)[0]) for a in args])
    np.testing.assert_allclose(function(*args), want, rtol=tolerance, atol=1e-12)
    np.testing.assert_allclose(fg.jit(function)(*args), want, rtol=tolerance, atol=1e-12)


@pytest.mark.parametrize(("name", "point"), POINTS)
def test_derivatives_by_every_argument(name: str, point: tuple[float, ...], reference: None) -> None:
    function = CASES[name][0]
    if name == "bessel_i1e" and point == (0.0,):
        pytest.skip("exp(-|x|) has a kink at 0, which differences see")
    at = tuple(map(float, point))
    grads = fg.grad(lambda *v: function(*v).sum(), tuple(range(len(at))))(*map(fnp.asarray, at))
    for k, g in enumerate(grads):
        ends = []
        for h in (1e-4, -1e-4, 2e-4, -2e-4):
            moved = [fnp.asarray(v + h * (i == k)) for i, v in enumerate(at)]
            ends.append(float(function(*moved)))
        slope = (8 * (ends[0] - ends[1]) - (ends[2] - ends[3])) / 12e-4
        np.testing.assert_allclose(g, slope, rtol=1e-6, atol=1e-9)


def test_gamma_quantile_derivative(reference: None) -> None:
    """The draw at a fixed quantile moves so that P stays: for a = 1 the quantile is -log(1 - p)."""
    for a, x in ((1.0, 0.7), (3.5, 2.0), (3.5, 9.0), (0.2, 0.01), (60.0, 55.0)):
        h = 1e-5
        slope = -(float(lax.igamma(a + h, x)) - float(lax.igamma(a - h, x))) / (
            float(lax.igamma(a, x + h * x)) - float(lax.igamma(a, x - h * x))
        )
        np.testing.assert_allclose(lax.random_gamma_grad(a, x), slope * x, rtol=1e-6)


def test_outside_of_the_domain(device: str) -> None:
    nan, inf = np.nan, np.inf
    outside = [
        (lax.igamma, [(-1.0, 1.0), (1.0, -1.0), (2.0, 0.0), (2.0, inf)], [nan, nan, 0, 1]),
        (lax.igammac, [(0.0, 1.0), (2.0, 0.0), (2.0, inf)], [nan, 1, 0]),
        (lax.betainc, [(1.0, 2.0, 0.0), (1.0, 2.0, 1.0), (-1.0, 2.0, 0.5), (1.0, 2.0, 2.0)], [0, 1, nan, nan]),
        (lax.zeta, [(1.0, 1.0), (0.5, 1.0), (2.0, -1.0)], [inf, nan, nan]),
    ]
    for function, points, want in outside:
        np.testing.assert_array_equal(function(*[fnp.asarray(list(v)) for v in zip(*points, strict=True)]), want)
    with pytest.raises(TypeError, match="float"):
        lax.igamma(1, 2)
