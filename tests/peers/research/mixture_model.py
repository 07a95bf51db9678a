"""k-means++ and EM of a Gaussian mixture: choice with probabilities, segment_sum, cholesky, logsumexp, while_loop."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jla
import numpy as np
from jax import lax, ops, random
from jax.scipy.special import logsumexp
from jax.scipy.stats import multivariate_normal

K, D, N = 6, 4, 1500
rng = np.random.default_rng(12)
MU = rng.normal(size=(K, D)) * 3
X = jnp.asarray(MU[rng.integers(0, K, N)] + rng.normal(size=(N, D)) * 0.7, jnp.float32)


def plus_plus(key, x):
    k0, key = random.split(key)
    c = jnp.zeros((K, D)).at[0].set(x[random.randint(k0, (), 0, N)])

    def body(i, carry):
        c, key = carry
        key, sub = random.split(key)
        d = jnp.min(jnp.where(jnp.arange(K) < i, jnp.sum((x[:, None] - c) ** 2, -1), jnp.inf), axis=1)
        j = random.choice(sub, N, p=d / d.sum())
        return c.at[i].set(x[j]), key

    return lax.fori_loop(1, K, body, (c, key))[0]


def kmeans(x, c):
    def cond(s):
        c, prev, i, _ = s
        return jnp.any(jnp.abs(c - prev) > 1e-4) & (i < 100)

    def body(s):
        c, _, i, _ = s
        a = jnp.argmin(jnp.sum((x[:, None] - c[None]) ** 2, -1), 1)
        n = ops.segment_sum(jnp.ones(N), a, K)
        new = ops.segment_sum(x, a, K) / jnp.maximum(n, 1)[:, None]
        return jnp.where(n[:, None] > 0, new, c), c, i + 1, a

    return lax.while_loop(cond, body, (c, c + 1.0, 0, jnp.zeros(N, jnp.int32)))


def log_resp(pi, mu, cov):
    def one(m, c):
        L = jnp.linalg.cholesky(c)
        z = jla.solve_triangular(L, (X - m).T, lower=True)
        return -0.5 * jnp.sum(z**2, 0) - jnp.log(jnp.diagonal(L)).sum() - 0.5 * D * jnp.log(2 * jnp.pi)

    lp = jnp.log(pi)[None] + jax.vmap(one, out_axes=1)(mu, cov)
    total = logsumexp(lp, axis=1, keepdims=True)
    return lp - total, total.mean()


def init():
    c = plus_plus(random.PRNGKey(1), X)
    c, _, _n, a = jax.jit(kmeans)(X, c)
    r = jax.nn.one_hot(a, K)
    return m_step(r)


def m_step(r):
    n = r.sum(0) + 1e-6
    mu = (r.T @ X) / n[:, None]
    xc = X[:, None] - mu
    cov = jnp.einsum("nk,nkd,nke->kde", r, xc, xc) / n[:, None, None] + 1e-3 * jnp.eye(D)
    return n / N, mu, cov


@jax.jit
def step(state, i):
    lr, ll = log_resp(*state)
    r = jnp.exp(lr)
    ent = -jnp.sum(jax.scipy.special.xlogy(r, r), axis=-1).mean()
    return m_step(r), (ll, ent)


def extra(state):
    _pi, mu, cov = state
    direct = jax.vmap(lambda m, c: multivariate_normal.logpdf(X[:50], m, c))(mu, cov)
    labels = jnp.argmax(direct, 0)
    return (
        direct,
        ops.segment_max(X[:50, 0], labels, num_segments=K),
        ops.segment_min(X[:50, 1], labels, K),
        ops.segment_prod(jnp.abs(X[:50, 2]), labels, K),
    )
