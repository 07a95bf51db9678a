"""A variational autoencoder (Kingma and Welling 2014) whose best possible bound is known.

With a linear decoder and Gaussian noise the exact likelihood is that of probabilistic PCA, whose maximum has a closed
form (Tipping and Bishop 1999, equations 7 and 8); a linear encoder can make the bound tight (Lucas et al. 2019).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, optim, random


def init(key: Any, d: int, latent: int) -> dict[str, Any]:
    k1, k2 = random.split(key)
    return {
        "encode": 0.1 * random.normal(k1, (d, latent)),
        "spread": fnp.zeros((latent, latent)),
        "decode": 0.1 * random.normal(k2, (latent, d)),
        "mean": fnp.zeros(d),
        "log_noise": fnp.asarray(0.0),
    }


def bound(params: Any, x: Any, key: Any) -> Any:
    """The evidence lower bound of one example: E_q log p(x | z) - KL(q(z | x) || N(0, I)), by one sample of z."""
    center, log_std = (x - params["mean"]) @ params["encode"], fnp.diag(params["spread"])
    root = fnp.tril(params["spread"], -1) + fnp.diag(fnp.exp(log_std))  # of the covariance of q
    z = center + root @ random.normal(key, center.shape)
    error = (x - params["mean"] - z @ params["decode"]) * fnp.exp(-params["log_noise"])
    likelihood = -0.5 * fnp.sum(error**2) - len(x) * (params["log_noise"] + 0.5 * fnp.log(2 * fnp.pi))
    return likelihood - 0.5 * (fnp.sum(center**2) + fnp.sum(root**2) - len(center)) + fnp.sum(log_std)


def mean_bound(params: Any, x: Any, key: Any) -> Any:
    return fg.vmap(bound, (None, 0, 0))(params, x, random.split(key, len(x))).mean()


@fg.jit
def fit(params: Any, x: Any, key: Any) -> Any:
    tx = optim.chain(optim.scale_by_adam(), optim.scale_by_schedule(lambda t: -0.02 * 0.996**t))

    def step(carry: Any, key: Any) -> Any:
        params, state = carry
        value, g = fg.value_and_grad(lambda p: -mean_bound(p, x, key))(params)
        updates, state = tx.update(g, state, params)
        return (optim.apply_updates(params, updates), state), value

    (params, _), values = lax.scan(step, (params, tx.init(params)), random.split(key, 1200))
    return params, values


def data(n: int = 150, d: int = 5) -> Any:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + 0.3 * rng.normal(size=(n, d)) + 1.0


def best_likelihood(x: Any, latent: int) -> float:
    """The maximal mean log likelihood of probabilistic PCA, in float64."""
    values = np.linalg.eigvalsh(np.cov(x.T.astype(np.float64), bias=True))[::-1]
    noise, d = values[latent:].mean(), len(values)
    log_det = np.log(values[:latent]).sum() + (d - latent) * np.log(noise)
    return float(-0.5 * (d * np.log(2 * np.pi) + log_det + d))


def test_bound_reaches_the_exact_likelihood(device: str) -> None:
    x = data()
    params, _ = fit(init(random.key(0), 5, 2), fnp.asarray(x), random.key(1))
    many = fnp.tile(fnp.asarray(x), (100, 1))
    reached, best = float(fg.jit(mean_bound)(params, many, random.key(2))), best_likelihood(x, 2)
    assert best - 0.06 < reached < best + 0.02, (reached, best)
    noise = np.linalg.eigvalsh(np.cov(x.T.astype(np.float64), bias=True))[:3].mean()
    np.testing.assert_allclose(np.exp(2 * float(params["log_noise"])), noise, rtol=0.15)


def test_reparametrised_gradient_is_unbiased(device: str) -> None:
    """The sampled gradient's mean is the gradient of the bound with its expectation worked out."""
    x, params = fnp.asarray(data(4)), init(random.key(3), 5, 2)

    def exact(p: Any, v: Any) -> Any:
        center, log_std = (v - p["mean"]) @ p["encode"], fnp.diag(p["spread"])
        spread = fnp.exp(2 * log_std)
        squared = fnp.sum((v - p["mean"] - center @ p["decode"]) ** 2) + spread @ fnp.sum(p["decode"] ** 2, axis=1)
        likelihood = -0.5 * squared * fnp.exp(-2 * p["log_noise"]) - 5 * (p["log_noise"] + 0.5 * np.log(2 * np.pi))
        return likelihood - fnp.sum(0.5 * (center**2 + spread - 1) - log_std)

    want = fg.grad(lambda p: fg.vmap(lambda v: exact(p, v))(x).mean())(params)
    keys = random.split(random.key(4), 4000)
    got = fg.jit(fg.grad(lambda p: fg.vmap(lambda k: mean_bound(p, x, k))(keys).mean()))(params)
    for name in params:
        np.testing.assert_allclose(got[name], want[name], atol=0.08, err_msg=name)
