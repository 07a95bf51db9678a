"""Neural ODE, Dormand and Prince with an adaptive step in while_loop; adjoint by custom_vjp with nondiff_argnums."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, random
from jax.flatten_util import ravel_pytree

A = [
    [1 / 5],
    [3 / 40, 9 / 40],
    [44 / 45, -56 / 15, 32 / 9],
    [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
    [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
    [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
]
C = [1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0]
B = np.array([35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0], np.float32)
E = B - np.array([5179 / 57600, 0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40], np.float32)


class Carry(NamedTuple):
    t: jnp.ndarray
    y: jnp.ndarray
    h: jnp.ndarray
    n: jnp.ndarray


def odeint_raw(f, y0, t0, t1, rtol=1e-3, atol=1e-4):
    """Works on a flat state."""

    def cond(c):
        return (c.t < t1) & (c.n < 500)

    def body(c):
        h = jnp.minimum(c.h, t1 - c.t)
        ks = [f(c.t, c.y)]
        for a, ci in zip(A, C, strict=False):
            yi = c.y + h * sum(aj * k for aj, k in zip(a, ks, strict=False))
            ks.append(f(c.t + ci * h, yi))
        k = jnp.stack(ks)
        y1 = c.y + h * jnp.tensordot(B, k, axes=1)
        err = h * jnp.tensordot(E, k, axes=1)
        scale = atol + rtol * jnp.maximum(jnp.abs(c.y), jnp.abs(y1))
        ratio = jnp.sqrt(jnp.mean((err / scale) ** 2))
        ok = ratio <= 1.0
        factor = jnp.clip(0.9 * ratio**-0.2, 0.2, 5.0)
        return Carry(jnp.where(ok, c.t + h, c.t), jnp.where(ok, y1, c.y), h * factor, c.n + 1)

    out = lax.while_loop(cond, body, Carry(jnp.asarray(t0, jnp.float32), y0, jnp.asarray(0.1), jnp.array(0)))
    return out.y, out.n


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def odeint(f, params, y0, t1):
    flat, unravel = ravel_pytree(y0)
    out, _n = odeint_raw(lambda t, y: ravel_pytree(f(params, t, unravel(y)))[0], flat, 0.0, t1)
    return unravel(out)


def fwd(f, params, y0, t1):
    y = odeint(f, params, y0, t1)
    return y, (params, y, t1)


def bwd(f, res, ct):
    params, y1, t1 = res
    aug0 = (y1, ct, jax.tree_util.tree_map(jnp.zeros_like, params))
    flat, unravel = ravel_pytree(aug0)

    def dynamics(s, aug):
        y, a, _ = unravel(aug)
        dy, pull = jax.vjp(lambda p, y: f(p, t1 - s, y), params, y)
        gp, ga = pull(a)
        return ravel_pytree((jax.tree_util.tree_map(jnp.negative, dy), ga, gp))[0]

    out, _ = odeint_raw(dynamics, flat, 0.0, t1)
    _, g_y0, g_p = unravel(out)
    dt1 = jnp.vdot(f(params, t1, y1), ct)
    return g_p, g_y0, dt1


odeint.defvjp(fwd, bwd)


def field(params, t, y):
    h = y
    for w, b in params[:-1]:
        h = jnp.tanh(h @ w + b + t)
    w, b = params[-1]
    return h @ w + b


rng = np.random.default_rng(1)
y0 = jnp.asarray(rng.normal(size=(32, 2)), jnp.float32)
R = np.array([[np.cos(1.5), -np.sin(1.5)], [np.sin(1.5), np.cos(1.5)]])
target = jnp.asarray(np.asarray(y0) @ R * 0.7, jnp.float32)
opt = optax.adam(1e-2)


def init():
    keys = random.split(random.PRNGKey(0), 3)
    sizes = [(2, 32), (32, 32), (32, 2)]
    params = [(random.normal(k, s) / np.sqrt(s[0]), jnp.zeros(s[1])) for k, s in zip(keys, sizes, strict=False)]
    return params, opt.init(params)


def loss_fn(params):
    y1 = odeint(field, params, y0, 1.0)
    return jnp.mean((y1 - target) ** 2)


@jax.jit
def step(state, i):
    params, s = state
    loss, g = jax.value_and_grad(loss_fn)(params)
    up, s = opt.update(g, s)
    return (optax.apply_updates(params, up), s), (loss, optax.global_norm(g))


def extra(state):
    return jax.grad(lambda t: jnp.sum(odeint(field, state[0], y0, t)))(0.7)
