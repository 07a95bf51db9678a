"""Kalman filter and Rauch-Tung-Striebel smoother by scan, learned by gradients of the marginal likelihood."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve

N, M, T, B = 4, 2, 60, 16
rng = np.random.default_rng(7)
TRUE_A = np.kron(np.eye(2), np.array([[1.0, 0.2], [-0.2, 0.95]]))
H = jnp.asarray(np.array([[1.0, 0, 0, 0], [0, 0, 1.0, 0]]), jnp.float32)
ys = np.zeros((B, T, M))
for b in range(B):
    x = rng.normal(size=N)
    for t in range(T):
        x = TRUE_A @ x + 0.1 * rng.normal(size=N)
        ys[b, t] = np.asarray(H) @ x + 0.3 * rng.normal(size=M)
YS = jnp.asarray(ys, jnp.float32)


def unpack(p):
    L = jnp.tril(p["q"], -1) + jnp.diag(jnp.exp(jnp.diagonal(p["q"])))
    return p["A"], L @ L.T + 1e-4 * jnp.eye(N), jnp.diag(jnp.exp(p["r"]))


def filter_one(p, y):
    A, Q, R = unpack(p)

    def body(carry, yt):
        m, P = carry
        mp, Pp = A @ m, A @ P @ A.T + Q
        S = H @ Pp @ H.T + R
        c = cho_factor(S, lower=True)
        K = cho_solve(c, H @ Pp).T
        v = yt - H @ mp
        ll = -0.5 * (v @ cho_solve(c, v) + jnp.linalg.slogdet(2 * jnp.pi * S)[1])
        m = mp + K @ v
        I_KH = jnp.eye(N) - K @ H
        P = I_KH @ Pp @ I_KH.T + K @ R @ K.T
        return (m, P), (m, P, mp, Pp, ll)

    _, out = lax.scan(body, (jnp.zeros(N), jnp.eye(N)), y)
    return out


def smooth_one(p, y):
    A, _Q, _R = unpack(p)
    m, P, mp, Pp, _ = filter_one(p, y)

    def body(carry, inp):
        ms, Ps = carry
        m, P, mp1, Pp1 = inp
        G = jnp.linalg.solve(Pp1, A @ P).T
        ms = m + G @ (ms - mp1)
        Ps = P + G @ (Ps - Pp1) @ G.T
        return (ms, Ps), (ms, Ps)

    _, (ms, Ps) = lax.scan(body, (m[-1], P[-1]), (m[:-1], P[:-1], mp[1:], Pp[1:]), reverse=True)
    return jnp.concatenate([ms, m[-1:]]), jnp.concatenate([Ps, P[-1:]])


def loss_fn(p):
    return -jax.vmap(lambda y: filter_one(p, y)[-1].sum())(YS).mean()


opt = optax.adam(3e-2)


def init():
    p = {"A": jnp.eye(N) * 0.9, "q": jnp.eye(N) * -1.0, "r": jnp.zeros(M)}
    return p, opt.init(p)


@jax.jit
def step(state, i):
    p, s = state
    loss, g = jax.value_and_grad(loss_fn)(p)
    up, s = opt.update(g, s)
    return (optax.apply_updates(p, up), s), (loss, g["A"])


def extra(state):
    ms, Ps = jax.jit(jax.vmap(smooth_one, in_axes=(None, 0)))(state[0], YS)
    return ms, Ps
