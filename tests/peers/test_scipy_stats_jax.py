"""``funcgrad.scipy.stats``: values against scipy's in float64, gradients against JAX's, signatures as JAX's."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import jax
import jax.scipy.stats as theirs
import numpy as np
import pytest
import scipy.stats as truth

import funcgrad as fg
from funcgrad.scipy import stats as ours

RNG = np.random.default_rng(0)
N = 60
SHAPES: dict[str, tuple[Any, ...]] = {
    "beta": (RNG.uniform(0.5, 4, N), RNG.uniform(0.5, 4, N)),
    "chi2": (RNG.uniform(1, 9, N),),
    "gamma": (RNG.uniform(0.5, 5, N),),
    "gennorm": (RNG.uniform(0.8, 3, N),),
    "pareto": (RNG.uniform(0.5, 4, N),),
    "t": (RNG.uniform(1, 9, N),),
    "truncnorm": (RNG.uniform(-3, -0.5, N), RNG.uniform(0.5, 3, N)),
    "vonmises": (RNG.uniform(0.1, 4, N),),
    "wrapcauchy": (RNG.uniform(0.1, 0.9, N),),
    "bernoulli": (RNG.uniform(0.1, 0.9, N),),
    "betabinom": (np.full(N, 9.0), RNG.uniform(0.5, 4, N), RNG.uniform(0.5, 4, N)),
    "binom": (np.full(N, 9.0), RNG.uniform(0.1, 0.9, N)),
    "geom": (RNG.uniform(0.1, 0.9, N),),
    "nbinom": (RNG.uniform(1, 9, N), RNG.uniform(0.1, 0.9, N)),
    "poisson": (RNG.uniform(0.5, 9, N),),
}
NAMES = """beta cauchy chi2 expon gamma gennorm gumbel_l gumbel_r laplace logistic norm pareto t truncnorm uniform
vonmises wrapcauchy bernoulli betabinom binom geom nbinom poisson"""
LINE = sorted(NAMES.split())
CASES = [(d, f) for d in LINE for f in vars(getattr(ours, d))]
HARD = {("betabinom", "logpmf"), ("betabinom", "pmf")}  # differences of large logarithms


def arguments(name: str, function: str) -> list[Any]:
    """Points in and out of the support, shape parameters, loc and scale."""
    shapes = SHAPES.get(name, ())
    if hasattr(getattr(ours, name), "logpmf"):
        first = RNG.uniform(0, 1, N) if function == "ppf" else RNG.integers(-1, 11, N)
        return [first, *shapes, np.ones(N)]
    low, high = {"beta": (-0.2, 1.2), "uniform": (-0.5, 1.5), "wrapcauchy": (-0.5, 7)}.get(name, (-3, 4))
    loc, scale = RNG.normal(size=N), RNG.uniform(0.5, 2, N)
    z = RNG.uniform(low, high, N)
    first = RNG.uniform(0.02, 0.98, N) if function in ("ppf", "isf") else z * scale + loc
    return [first, *shapes, loc, scale]


@pytest.mark.parametrize("name,function", CASES)
def test_values_are_scipys(name: str, function: str) -> None:
    args = [np.float32(a) for a in arguments(name, function)]
    with np.errstate(all="ignore"):
        want = getattr(getattr(truth, name), function)(*[np.float64(a) for a in args])
    got = np.asarray(getattr(getattr(ours, name), function)(*args))
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    finite = np.isfinite(want)
    assert finite.sum() > N // 8
    np.testing.assert_allclose(got[finite], want[finite], rtol=2e-4 if (name, function) in HARD else 2e-5, atol=2e-6)


# JAX's own gumbel_l and gumbel_r cannot be differentiated; their closed form is below.
@pytest.mark.parametrize("name", [n for n in LINE if not n.startswith("gumbel")])
def test_gradients_are_jaxs(name: str) -> None:
    function = "logpmf" if hasattr(getattr(ours, name), "logpmf") else "logpdf"
    args = [np.float32(a) for a in arguments(name, function)]
    floats = tuple(range(1 if function == "logpmf" else 0, len(args)))
    parameters = [i for i in floats if not (name in ("binom", "betabinom") and i == 1)]
    # JAX's wrapcauchy has no loc and scale; and the loc of a distribution of whole numbers has no gradient.
    parameters = [
        i for i in parameters if i < len(inspect.signature(getattr(getattr(theirs, name), function)).parameters)
    ]
    parameters = [i for i in parameters if not (function == "logpmf" and i == len(args) - 1)]
    count = len(inspect.signature(getattr(getattr(theirs, name), function)).parameters)
    if count < len(args):
        args = [args[0] * 0.2 + 1.0, *args[1:count]]

    def total(module: Any, library: Any) -> Any:
        f = getattr(getattr(module, name), function)

        def run(*values: Any) -> Any:
            out = f(*values)
            return library.numpy.where(out > -30.0, out, 0.0).sum()

        return library.grad(run, argnums=tuple(parameters))(*args)

    for got, want in zip(total(ours, fg), total(theirs, jax), strict=True):
        ok = np.isfinite(np.asarray(want))
        np.testing.assert_allclose(np.asarray(got)[ok], np.asarray(want)[ok], rtol=3e-4, atol=3e-4)


def test_slopes_of_the_gumbel_densities() -> None:
    x = np.linspace(-2, 3, 9).astype(np.float32)
    for module, want in ((ours.gumbel_r, np.exp(-(x - 0.5) / 2) - 1), (ours.gumbel_l, 1 - np.exp((x - 0.5) / 2))):
        got = fg.grad(lambda v, m=module: m.logpdf(v, 0.5, 2.0).sum())(x)
        np.testing.assert_allclose(np.asarray(got), want / 2, rtol=1e-5, atol=1e-6)


def test_signatures_are_jaxs() -> None:
    wrong = []
    for name in [n for n in dir(ours) if hasattr(theirs, n) and hasattr(getattr(ours, n), "__dict__")]:
        for function, f in vars(getattr(ours, name)).items():
            other = getattr(getattr(theirs, name), function, None)
            if other is None or not callable(f) or function.startswith("_"):
                continue
            if function in ("ppf", "isf"):  # "q" or "p" in JAX: ours is scipy's
                continue
            a, b = list(inspect.signature(other).parameters), list(inspect.signature(f).parameters)
            if a != b[: len(a)]:
                wrong.append((name, function, a, b))
    assert wrong == []


def test_the_tails_of_the_normal_distribution() -> None:
    x = np.array([-200.0, -50.0, -20.0, -10.5, -9.5, -3.0, 0.0, 3.0, 9.0], np.float32)
    want = truth.norm.logcdf(x.astype(float))
    np.testing.assert_allclose(np.asarray(ours.norm.logcdf(x)), want, rtol=1e-6, atol=1e-12)
    slope = np.exp(truth.norm.logpdf(x.astype(float)) - want)
    np.testing.assert_allclose(np.asarray(fg.vmap(fg.grad(ours.norm.logcdf))(x)), slope, rtol=3e-5)
    p = np.array([1e-30, 1e-10, 1e-3, 0.1, 0.5, 0.9, 0.999], np.float32)
    np.testing.assert_allclose(np.asarray(ours.norm.ppf(p)), truth.norm.ppf(p.astype(float)), rtol=2e-6, atol=1e-7)


def test_truncation_far_in_a_tail() -> None:
    a, b, x = np.float32(20.0), np.float32(21.0), np.linspace(20.01, 20.9, 9).astype(np.float32)
    for f in ("logpdf", "logcdf", "logsf"):
        want = getattr(truth.truncnorm, f)(x.astype(float), 20.0, 21.0)
        np.testing.assert_allclose(np.asarray(getattr(ours.truncnorm, f)(x, a, b)), want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("lead,cov_lead", [((), ()), ((7,), ()), ((7,), (7,)), ((3, 7), (7,))])
def test_multivariate_normal(lead: tuple[int, ...], cov_lead: tuple[int, ...]) -> None:
    x, mean = RNG.normal(size=(*lead, 3)).astype(np.float32), RNG.normal(size=3).astype(np.float32)
    half = RNG.normal(size=(*cov_lead, 3, 3))
    cov = (half @ np.swapaxes(half, -1, -2) + np.eye(3)).astype(np.float32)
    got = np.asarray(ours.multivariate_normal.logpdf(x, mean, cov))
    flat_x, flat_c = x.reshape(-1, 3), np.broadcast_to(cov, (*lead, 3, 3)).reshape(-1, 3, 3)
    want = [truth.multivariate_normal.logpdf(v, mean, c) for v, c in zip(flat_x, flat_c, strict=True)]
    assert got.shape == lead
    np.testing.assert_allclose(got.ravel(), want, rtol=2e-5)
    grads = [
        lib.grad(lambda m, c, f=f: f(x, m, c).sum(), argnums=(0, 1))(mean, cov)
        for lib, f in ((fg, ours.multivariate_normal.logpdf), (jax, theirs.multivariate_normal.logpdf))
    ]
    # A gradient by a symmetric matrix is only defined up to its symmetric part.
    np.testing.assert_allclose(np.asarray(grads[0][0]), np.asarray(grads[1][0]), rtol=1e-4, atol=1e-5)
    a, b = (np.asarray(g[1]) + np.swapaxes(np.asarray(g[1]), -1, -2) for g in grads)
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_dirichlet_and_multinomial() -> None:
    alpha, p = np.array([0.5, 2.0, 3.0], np.float32), np.array([0.2, 0.3, 0.5], np.float32)
    x = RNG.dirichlet(alpha, size=6).astype(np.float32).T
    x /= x.sum(0)
    want = [truth.dirichlet.logpdf(c.astype(float) / c.astype(float).sum(), alpha) for c in x.T]
    np.testing.assert_allclose(np.asarray(ours.dirichlet.logpdf(x, alpha)), want, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(ours.dirichlet.logpdf(x[:2], alpha)), want, rtol=1e-3)
    assert float(ours.dirichlet.logpdf(x[:, 0] * 2, alpha)) == -np.inf
    k, exact = RNG.multinomial(9, [0.2, 0.3, 0.5], size=5), [0.2, 0.3, 0.5]
    np.testing.assert_allclose(
        np.asarray(ours.multinomial.logpmf(k, 9, p)), truth.multinomial.logpmf(k, 9, exact), rtol=1e-5
    )
    assert float(ours.multinomial.logpmf(k[0], 8, p)) == -np.inf


def test_the_examples_of_the_made_functions() -> None:
    runner, finder = doctest.DocTestRunner(), doctest.DocTestParser()
    for name in LINE:
        for function, f in vars(getattr(ours, name)).items():
            runner.run(finder.get_doctest(f.__doc__, {"fnp": fg.numpy}, f"{name}.{function}", None, None))
    assert runner.tries > 200 and not runner.failures
