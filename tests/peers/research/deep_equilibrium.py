"""A deep equilibrium model: Anderson acceleration in while_loop, and its vjp by the same solver backwards."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, nn, random

D, B, M = 32, 16, 5
rng = np.random.default_rng(33)
X = jnp.asarray(rng.normal(size=(B, 8)), jnp.float32)
Y = jnp.asarray(rng.normal(size=(B, 2)), jnp.float32)


def anderson(f, z0, tol=1e-4, maxiter=40, beta=1.0, lam=1e-4):
    n = z0.size
    flat = lambda z: z.reshape(-1)

    def cond(c):
        return (c["res"] > tol) & (c["k"] < maxiter)

    def body(c):
        Xs, Fs, k = c["X"], c["F"], c["k"]
        G = Fs - Xs
        valid = jnp.arange(M) < jnp.minimum(k, M)
        G = jnp.where(valid[:, None], G, 0.0)
        H = G @ G.T + lam * jnp.eye(M) + jnp.diag(jnp.where(valid, 0.0, 1e6))
        alpha = jnp.linalg.solve(H, jnp.ones(M))
        alpha = alpha / alpha.sum()
        z = beta * alpha @ Fs + (1 - beta) * alpha @ Xs
        fz = flat(f(z.reshape(z0.shape)))
        slot = jnp.mod(k, M)
        res = jnp.linalg.norm(fz - z) / (1e-5 + jnp.linalg.norm(fz))
        return {"X": Xs.at[slot].set(z), "F": Fs.at[slot].set(fz), "k": k + 1, "res": res, "z": fz}

    f0 = flat(f(z0))
    c = {"X": jnp.zeros((M, n)).at[0].set(flat(z0)), "F": jnp.zeros((M, n)).at[0].set(f0), "k": 1, "res": 1e3, "z": f0}
    c = lax.while_loop(cond, body, c)
    return c["z"].reshape(z0.shape), c["k"]


def cell(p, x, z):
    h = jnp.tanh(z @ p["w"] + x @ p["u"] + p["b"])
    return nn.relu(h) * 0.5 + 0.3 * jnp.tanh(z @ p["v"])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(f, p, x):
    z, _ = anderson(lambda z: f(p, x, z), jnp.zeros((x.shape[0], D)))
    return z


def fwd(f, p, x):
    z = fixed_point(f, p, x)
    return z, (p, x, z)


def bwd(f, res, ct):
    p, x, z = res
    _, vjp_z = jax.vjp(lambda z: f(p, x, z), z)
    u, _ = anderson(lambda u: vjp_z(u)[0] + ct, jnp.zeros_like(ct))
    _, vjp_px = jax.vjp(lambda p, x: f(p, x, z), p, x)
    return vjp_px(u)


fixed_point.defvjp(fwd, bwd)


def loss_fn(p):
    z = fixed_point(cell, p, X)
    return jnp.mean((z @ p["o"] - Y) ** 2), z


opt = optax.adabelief(3e-3)


def init():
    k = random.split(random.PRNGKey(0), 4)
    p = {
        "w": random.normal(k[0], (D, D)) * 0.1,
        "v": random.normal(k[1], (D, D)) * 0.1,
        "u": random.normal(k[2], (8, D)) * 0.5,
        "b": jnp.zeros(D),
        "o": random.normal(k[3], (D, 2)) * 0.3,
    }
    return p, opt.init(p)


@jax.jit
def step(state, i):
    p, s = state
    (loss, z), g = jax.value_and_grad(loss_fn, has_aux=True)(p)
    up, s = opt.update(g, s, p)
    return (optax.apply_updates(p, up), s), (loss, optax.global_norm(g), jnp.abs(cell(p, X, z) - z).max() < 1e-2)
