"""Convolutions, sampling, minimisation and differential equations, against scipy and JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.ndimage
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.signal
from jax.experimental.ode import odeint as jax_odeint

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.experimental.ode import odeint
from funcgrad.scipy import integrate, ndimage, optimize, signal

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("name", ["convolve", "correlate", "fftconvolve"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions(name: str, ndim: int, mode: str) -> None:
    for _ in range(12):
        a, b = (tuple(RNG.integers(1, 7, ndim)) for _ in "ab")
        if mode == "valid" and not (np.greater_equal(a, b).all() or np.less_equal(a, b).all()):
            with pytest.raises(fg.errors.ShapeError, match="at least as large in every dimension"):
                getattr(signal, name)(np.ones(a, np.float32), np.ones(b, np.float32), mode)
            continue
        x, k = RNG.normal(size=a), RNG.normal(size=b)
        got = np.asarray(getattr(signal, name)(x.astype(np.float32), k.astype(np.float32), mode))
        np.testing.assert_allclose(got, getattr(scipy.signal, name)(x, k, mode), atol=1e-5)


def test_convolutions_of_matrices_and_trends() -> None:
    x, k = RNG.normal(size=(5, 6)).astype(np.float32), RNG.normal(size=(3, 2)).astype(np.float32)
    for mode in ("full", "same", "valid"):
        for f in ("convolve2d", "correlate2d"):
            np.testing.assert_allclose(
                np.asarray(getattr(signal, f)(x, k, mode)), getattr(scipy.signal, f)(x, k, mode), atol=1e-5
            )
    for kind in ("linear", "constant"):
        for axis in (0, 1):
            got = np.asarray(signal.detrend(x, axis, kind))
            np.testing.assert_allclose(got, scipy.signal.detrend(x, axis, kind), atol=1e-5)
    with pytest.raises(NotImplementedError, match="only zeros outside are supported"):
        signal.convolve2d(x, k, boundary="wrap")
    np.testing.assert_allclose(
        float(integrate.trapezoid(x[0], dx=0.5)), scipy.integrate.trapezoid(x[0], dx=0.5), rtol=1e-5
    )


@pytest.mark.parametrize("mode", ["constant", "nearest", "wrap", "mirror", "reflect"])
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates(mode: str, order: int) -> None:
    x = RNG.normal(size=(4, 5)).astype(np.float32)
    at = [RNG.uniform(-3, 8, (3, 7)).astype(np.float32) for _ in range(2)]
    got = np.asarray(ndimage.map_coordinates(x, at, order, mode, cval=2.0))
    want = np.asarray(jax.scipy.ndimage.map_coordinates(x, at, order, mode, cval=2.0))
    np.testing.assert_allclose(got, want, atol=1e-5)
    if order:
        total = lambda f: lambda x, u, v: (f(x, [u, v], order, mode, cval=2.0) ** 2).sum()
        ours = fg.jit(fg.grad(total(ndimage.map_coordinates), (0, 1, 2)))(x, *at)
        theirs = jax.grad(total(jax.scipy.ndimage.map_coordinates), (0, 1, 2))(x, *at)
        for g, w in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), atol=2e-4)


def rosenbrock(np_: Any) -> Any:
    return lambda x: np_.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def test_minimisation_finds_scipys_minimum() -> None:
    start = np.array([-1.2, 1.0, 0.5, -0.3], np.float32)
    want = scipy.optimize.minimize(rosenbrock(np), start.astype(float), method="BFGS")
    run = fg.jit(lambda x: optimize.minimize(rosenbrock(fnp), x, method="BFGS", options={"gtol": 1e-3}))
    got = run(start)
    assert bool(got.success) and int(got.status) == 0 and float(got.fun) < 1e-6
    np.testing.assert_allclose(np.asarray(got.x), want.x, atol=2e-3)
    assert int(got.nit) < 120 and int(got.nfev) >= int(got.nit)
    scale = fnp.asarray([1.0, 50.0, 0.02])
    found = optimize.minimize(lambda x, s: (s * (x - 3.0) ** 2).sum(), fnp.zeros(3), (scale,), method="BFGS")
    np.testing.assert_allclose(np.asarray(found.x), 3.0, atol=2e-3)
    np.testing.assert_allclose(np.asarray(found.hess_inv).diagonal(), 0.5 / np.asarray(scale), rtol=0.3)
    few = optimize.minimize(rosenbrock(fnp), start, method="BFGS", options={"maxiter": 2})
    assert not bool(few.success) and int(few.status) == 1 and int(few.nit) == 2
    with pytest.raises(ValueError, match='method must be "BFGS"'):
        optimize.minimize(rosenbrock(fnp), start, method="Newton-CG")


# -- differential equations --------------------------------------------------------------------------------------
def pendulum(np_: Any) -> Any:
    return lambda y, t, mass, drive: {"q": y["p"] / mass, "p": -np_.sin(y["q"]) + drive * np_.cos(t)}


TIMES = np.array([0.0, 0.4, 1.1, 1.2, 3.0], np.float32)
START = {"q": np.float32([0.3, 1.0]), "p": np.float32([0.1, -0.4])}
OPTIONS = dict(rtol=1e-6, atol=1e-7)


def test_solutions_are_scipys() -> None:
    got = fg.jit(lambda y: odeint(pendulum(fnp), y, TIMES, 2.0, 0.5, **OPTIONS))(START)
    flat = lambda t, y: np.concatenate([y[2:] / 2.0, -np.sin(y[:2]) + 0.5 * np.cos(t)])
    y0 = np.concatenate([START["q"], START["p"]]).astype(float)
    want = scipy.integrate.solve_ivp(flat, (0, 3), y0, t_eval=TIMES.astype(float), rtol=1e-10, atol=1e-12).y.T
    np.testing.assert_allclose(np.concatenate([got["q"], got["p"]], axis=1), want, atol=2e-5)


def test_gradients_are_jaxs() -> None:
    def total(solve: Any, np_: Any) -> Any:
        def loss(y0: Any, t: Any, mass: Any, drive: Any) -> Any:
            ys = solve(pendulum(np_), y0, t, mass, drive, **OPTIONS)
            return (ys["q"] ** 2).sum() + np_.sin(ys["p"]).sum()

        return loss

    args = (START, TIMES, np.float32(2.0), np.float32(0.5))
    ours = fg.jit(fg.grad(total(odeint, fnp), (0, 1, 2, 3)))(*args)
    theirs = jax.jit(jax.grad(total(jax_odeint, jnp), (0, 1, 2, 3)))(*args)
    for g, w in zip(fg.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-3, atol=2e-4)


def test_a_field_that_closes_over_parameters_under_vmap() -> None:
    """y' = -k y: the gradient by k of y(1) is -exp(-k), for many k at once; with the default tolerances too."""
    f = lambda k: odeint(lambda y, t: -k * y, fnp.asarray(1.0), fnp.asarray([0.0, 1.0]))[-1]
    k = np.array([0.5, 2.0, 9.0], np.float32)
    np.testing.assert_allclose(np.asarray(fg.jit(fg.vmap(f))(k)), np.exp(-k), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(fg.jit(fg.vmap(fg.grad(f)))(k)), -np.exp(-k), rtol=1e-4, atol=1e-7)
    with fg.default_device("numpy"):
        wide = odeint(lambda y, t: -y, fnp.asarray(1.0, dtype="float64"), fnp.asarray([0.0, 2.0], dtype="float64"))
        assert abs(float(wide[-1]) - np.exp(-2.0)) < 1e-8


def test_too_many_steps_are_nan_and_bad_arguments_say_so() -> None:
    out = odeint(lambda y, t: -100.0 * y, fnp.asarray(1.0), fnp.asarray([0.0, 0.0, 5.0]), mxstep=3)
    assert float(out[1]) == 1.0 and np.isnan(float(out[2]))
    with pytest.raises(fg.errors.ShapeError, match="t must be a vector of at least one float"):
        odeint(lambda y, t: -y, 1.0, 2.0)
    with pytest.raises(fg.errors.ShapeError, match="func must return y's structure"):
        odeint(lambda y, t: (y, y), 1.0, fnp.asarray([0.0, 1.0]))
