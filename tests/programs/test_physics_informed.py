"""A physics-informed network (Raissi et al. 2019) for the soliton of Korteweg and de Vries: a third derivative.

A wave u(x - c t) of u_t + 6 u u_x + u_xxx = 0 satisfies -c u' + 6 u u' + u''' = 0; with u(0) = c / 2, u'(0) = 0 and
u''(0) = -c^2 / 4 it is c / 2 sech^2(sqrt(c) x / 2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, random
from funcgrad.flatten_util import ravel_pytree

SPEED = 1.5


def init(key: Any, width: int = 20) -> dict[str, Any]:
    k1, k2, k3 = random.split(key, 3)
    return {
        "in": 1.5 * random.normal(k1, (width,)),
        "bias": random.normal(k2, (width,)),
        "out": 0.2 * random.normal(k3, (width,)),
    }


def wave(params: Any, x: Any) -> Any:
    return fnp.tanh(x * params["in"] + params["bias"]) @ params["out"]


def residuals(params: Any, points: Any) -> Any:
    """The equation at the points, and the three conditions at the crest."""
    u = lambda x: wave(params, x)
    du, ddu, dddu = fg.grad(u), fg.grad(fg.grad(u)), fg.grad(fg.grad(fg.grad(u)))
    equation = fg.vmap(lambda x: (6 * u(x) - SPEED) * du(x) + dddu(x))(points)
    zero = fnp.asarray(0.0)
    crest = fnp.stack([u(zero) - SPEED / 2, du(zero), ddu(zero) + SPEED**2 / 4])
    return fnp.concatenate([equation / fnp.sqrt(len(points)), crest])


@fg.jit
def fit(params: Any, points: Any) -> Any:
    """Levenberg and Marquardt: (J^T J + damping I) step = -J^T r, the damping by whether the step helped."""
    flat, unravel = ravel_pytree(params)
    f = lambda v: residuals(unravel(v), points)

    def step(carry: Any, _: Any) -> Any:
        v, damping = carry
        r, jacobian = f(v), fg.jacfwd(f)(v)
        square = jacobian.T @ jacobian + damping * fnp.eye(len(v))
        new = v - fnp.linalg.solve(square, jacobian.T @ r)
        better = fnp.sum(f(new) ** 2) < fnp.sum(r**2)
        return (fnp.where(better, new, v), fnp.where(better, 0.5 * damping, 4 * damping)), fnp.sum(r**2)

    (flat, _), values = lax.scan(step, (flat, fnp.asarray(0.1)), None, length=150)
    return unravel(flat), values


def soliton(x: Any) -> Any:
    return SPEED / 2 / np.cosh(np.sqrt(SPEED) * x / 2) ** 2


def test_network_finds_the_soliton(device: str) -> None:
    params, values = fit(init(random.key(0)), fnp.linspace(-3, 3, 40))
    assert float(values[-1]) < 1e-5 < 1e-2 < float(values[0])
    x = np.linspace(-3, 3, 101)
    got = fg.vmap(lambda v: wave(params, v))(fnp.asarray(x))
    np.testing.assert_allclose(got, soliton(x), atol=1e-2)


def test_third_derivative_of_the_network(device: str) -> None:
    """tanh''' = -2 sech^2 (1 - 3 tanh^2), by hand in float64."""
    params = init(random.key(1))
    host = {k: np.asarray(v, np.float64) for k, v in params.items()}
    x = np.linspace(-2, 2, 9)
    t = np.tanh(x[:, None] * host["in"] + host["bias"])
    want = (-2 * (1 - t**2) * (1 - 3 * t**2) * host["in"] ** 3) @ host["out"]
    third = fg.grad(fg.grad(fg.grad(lambda v: wave(params, v))))
    got = fg.jit(fg.vmap(third))(fnp.asarray(x))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    forward = lambda f: lambda v: fg.jvp(f, (v,), (fnp.asarray(1.0),))[1]
    mixed = fg.vmap(forward(fg.grad(forward(lambda v: wave(params, v)))))(fnp.asarray(x))
    np.testing.assert_allclose(mixed, want, rtol=1e-4, atol=1e-4)


def test_residuals_vanish_at_the_solution() -> None:
    """The equation as the program states it, on the exact wave, in float64."""
    with fg.default_device("numpy"):
        u = lambda x: SPEED / 2 / fnp.cosh(fnp.sqrt(SPEED) * x / 2) ** 2
        third = fg.grad(fg.grad(fg.grad(u)))
        x = fnp.asarray(np.linspace(-3, 3, 31), dtype="float64")
        left = fg.vmap(lambda v: (6 * u(v) - SPEED) * fg.grad(u)(v) + third(v))(x)
        np.testing.assert_allclose(left, 0, atol=1e-13)
