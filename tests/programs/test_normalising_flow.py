"""A normalising flow of coupling layers (Dinh et al. 2017), its log determinant taken from the Jacobian itself."""

from __future__ import annotations

from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, optim, random


def init(key: Any, layers: int, width: int) -> list[dict[str, Any]]:
    def layer(key: Any) -> dict[str, Any]:
        k1, k2 = random.split(key)
        return {
            "in": random.normal(k1, (width,)),
            "bias": random.normal(k2, (width,)),
            "out": fnp.zeros((width, 2)),
        }

    return [layer(k) for k in random.split(key, layers)]


def forward(params: Any, x: Any) -> Any:
    """Data of shape (2,) to noise: each layer scales and shifts one coordinate by functions of the other."""
    for i, p in enumerate(params):
        fixed, moved = x[i % 2], x[1 - i % 2]
        scale, shift = fnp.tanh(fixed * p["in"] + p["bias"]) @ p["out"]
        moved = moved * fnp.exp(scale) + shift
        x = fnp.stack([fixed, moved] if i % 2 == 0 else [moved, fixed])
    return x


def log_density(params: Any, x: Any) -> Any:
    """log N(f(x); 0, I) + log |det df/dx|."""
    z = forward(params, x)
    _, log_det = fnp.linalg.slogdet(fg.jacfwd(lambda v: forward(params, v))(x))
    return -0.5 * z @ z - fnp.log(2 * fnp.pi) + log_det


@fg.jit
def fit(params: Any, x: Any) -> Any:
    tx = optim.adam(0.02)

    def step(carry: Any, _: Any) -> Any:
        params, state = carry
        loss = lambda p: -fg.vmap(lambda v: log_density(p, v))(x).mean()
        value, g = fg.value_and_grad(loss)(params)
        updates, state = tx.update(g, state, params)
        return (optim.apply_updates(params, updates), state), value

    (params, _), values = lax.scan(step, (params, tx.init(params)), None, length=300)
    return params, values


def banana(seed: int, n: int) -> Any:
    """x0 = N(0, 1), x1 = x0^2 / 2 + N(0, 0.5^2)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return np.stack([x, x**2 / 2 + 0.5 * rng.normal(size=n)], 1)


ENTROPY = 2 * 0.5 * np.log(2 * np.pi * np.e) + np.log(0.5)


def test_flow_learns_the_density(device: str) -> None:
    params, values = fit(init(random.key(0), 3, 16), fnp.asarray(banana(0, 400)))
    held_out = -fg.jit(lambda p, x: fg.vmap(lambda v: log_density(p, v))(x).mean())(
        params, fnp.asarray(banana(1, 4000))
    )
    assert float(values[0]) > ENTROPY + 0.3
    assert ENTROPY - 0.06 < float(held_out) < ENTROPY + 0.12, (float(held_out), ENTROPY)
    # A density sums to one, whatever was learned.
    side = np.linspace(-7, 12, 240)
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    total = fnp.exp(fg.jit(fg.vmap(lambda v: log_density(params, v)))(fnp.asarray(grid))).sum()
    np.testing.assert_allclose(float(total) * float(side[1] - side[0]) ** 2, 1.0, atol=5e-3)


def test_jacobian_determinant_is_the_sum_of_scales(device: str) -> None:
    rng = np.random.default_rng(0)
    params = [{"in": rng.normal(size=4), "bias": rng.normal(size=4), "out": rng.normal(size=(4, 2))} for _ in range(3)]
    x, z, scales = rng.normal(size=2), None, 0.0
    z = x.copy()
    for i, p in enumerate(params):  # the determinant of a triangular Jacobian, in float64
        scale, shift = np.tanh(z[i % 2] * p["in"] + p["bias"]) @ p["out"]
        z[1 - i % 2] = z[1 - i % 2] * np.exp(scale) + shift
        scales += scale
    ours = fg.tree.map(lambda v: fnp.asarray(v), params)
    got = log_density(ours, fnp.asarray(x))
    np.testing.assert_allclose(got, -0.5 * z @ z - np.log(2 * np.pi) + scales, rtol=2e-5, atol=2e-5)
