"""A neural ordinary differential equation with its adjoint (Chen et al. 2018), by Runge and Kutta's fixed steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, optim


def rk4(f: Callable[[Any], Any], y: Any, time: float, steps: int) -> Any:
    """Integrate dy/dt = f(y) of a tree y over a time, which may be negative."""
    h = time / steps
    add = lambda a, b, s: fg.tree.map(lambda p, q: p + s * q, a, b)

    def step(y: Any, _: Any) -> Any:
        k1 = f(y)
        k2 = f(add(y, k1, h / 2))
        k3 = f(add(y, k2, h / 2))
        k4 = f(add(y, k3, h))
        rise = fg.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, k1, k2, k3, k4)
        return add(y, rise, h), None

    return lax.scan(step, y, None, length=steps)[0]


@partial(fg.custom_vjp, nondiff_argnums=(0, 3, 4))
def odeint(f: Callable[..., Any], params: Any, y: Any, time: float, steps: int) -> Any:
    """y(time) of dy/dt = f(params, y), with constant memory: its gradient integrates the adjoint backwards."""
    return rk4(lambda y: f(params, y), y, time, steps)


def odeint_forward(f: Any, params: Any, y: Any, time: float, steps: int) -> Any:
    out = odeint(f, params, y, time, steps)
    return out, (params, out)


def odeint_backward(f: Any, time: float, steps: int, saved: Any, ct: Any) -> Any:
    """da/dt = -a df/dy and dg/dt = -a df/dparams, from the end to the start, beside y itself."""
    params, end = saved

    def field(state: Any) -> Any:
        y, a, _ = state
        dy, pull = fg.vjp(f, params, y)
        g_params, g_y = pull(a)
        return dy, -g_y, fg.tree.map(lambda g: -g, g_params)

    _, a, g = rk4(field, (end, ct, fg.tree.map(fnp.zeros_like, params)), -time, steps)
    return g, a


odeint.defvjp(odeint_forward, odeint_backward)


def linear(a: Any, y: Any) -> Any:
    return y @ a.T


def network(p: Any, y: Any) -> Any:
    return fnp.tanh(y @ p["w1"] + p["b1"]) @ p["w2"]


def exponential(a: Any) -> Any:
    """exp(A) in float64: a Taylor series of A / 2^12, squared 12 times."""
    scaled, term, total = a / 4096, np.eye(len(a)), np.eye(len(a))
    for n in range(1, 12):
        term = term @ scaled / n
        total = total + term
    return np.linalg.matrix_power(total, 4096)


A = np.array([[-0.2, 2.0], [-2.0, -0.1]])
Y = np.array([[1.0, 0.5], [-0.3, 1.2], [0.8, -0.6]])


def test_solution_and_adjoint_of_a_linear_equation(device: str) -> None:
    a, y = [fnp.asarray(v) for v in (A, Y)]
    c = np.array([[0.3, -1.0], [0.6, 0.2], [1.0, 1.0]])
    out, pull = fg.vjp(lambda a, y: odeint(linear, a, y, 1.5, 60), a, y)
    flow = exponential(1.5 * A)
    np.testing.assert_allclose(out, Y @ flow.T, rtol=2e-5, atol=2e-6)
    g_a, g_y = pull(fnp.asarray(c))
    np.testing.assert_allclose(g_y, c @ flow, rtol=2e-5, atol=2e-6)
    # d/dA_ij of exp(A): the upper right block of exp [[A, E_ij], [0, A]] (Van Loan 1978).
    slopes = np.zeros((2, 2))
    for i, j in np.ndindex(2, 2):
        block = np.block([[A, np.eye(2)[:, [i]] * np.eye(2)[[j]]], [np.zeros((2, 2)), A]])
        slopes[i, j] = np.sum(c * (Y @ exponential(1.5 * block)[:2, 2:].T))
    np.testing.assert_allclose(g_a, slopes, rtol=5e-5, atol=1e-5)


def test_adjoint_is_the_gradient_through_the_solver(device: str) -> None:
    rng = np.random.default_rng(0)
    shapes = {"w1": (2, 8), "b1": (8,), "w2": (8, 2)}
    params = {k: fnp.asarray(rng.normal(size=s)) * 0.5 for k, s in shapes.items()}
    y = fnp.asarray(Y)
    adjoint = fg.jit(fg.grad(lambda p: fnp.sum(odeint(network, p, y, 1.0, 40) ** 2)))(params)
    direct = fg.jit(fg.grad(lambda p: fnp.sum(rk4(lambda v: network(p, v), y, 1.0, 40) ** 2)))(params)
    for name in params:
        np.testing.assert_allclose(adjoint[name], direct[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_learning_finds_the_matrix(device: str) -> None:
    y = fnp.asarray(Y)
    target = fnp.asarray(Y @ exponential(0.5 * A).T)
    loss = lambda a: fnp.mean((odeint(linear, a, y, 0.5, 10) - target) ** 2)
    tx = optim.adam(0.1)

    @fg.jit
    def step(a: Any, state: Any) -> Any:
        updates, state = tx.update(fg.grad(loss)(a), state, a)
        return optim.apply_updates(a, updates), state

    a = fnp.zeros((2, 2))
    state = tx.init(a)
    for _ in range(300):
        a, state = step(a, state)
    np.testing.assert_allclose(a, A, atol=5e-3)
