"""Per-example gradient clipping (Abadi et al. 2016): every example's gradient is bounded before the sum is noised."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import losses, nn, optim, random


def init(key: Any, widths: tuple[int, ...]) -> list[dict[str, Any]]:
    keys = random.split(key, len(widths))
    glorot = nn.initializers.glorot_normal()
    pairs = itertools.pairwise(widths)
    return [{"w": glorot(k, (a, b)), "b": fnp.zeros(b)} for k, (a, b) in zip(keys, pairs, strict=False)]


def loss(params: Any, x: Any, label: Any) -> Any:
    """The cross entropy of one example."""
    for p in params[:-1]:
        x = nn.relu(x @ p["w"] + p["b"])
    logits = x @ params[-1]["w"] + params[-1]["b"]
    return losses.softmax_cross_entropy_with_integer_labels(logits, label)


def private_gradient(params: Any, x: Any, labels: Any, key: Any, limit: float, noise: float) -> Any:
    """(sum_i g_i min(1, limit / |g_i|) + N(0, (noise limit)^2)) / n."""

    def clipped(x: Any, label: Any) -> Any:
        g = fg.grad(loss)(params, x, label)
        scale = fnp.minimum(1.0, limit / fnp.maximum(optim.global_norm(g), 1e-12))
        return fg.tree.map(lambda v: v * scale, g), optim.global_norm(g)

    grads, norms = fg.vmap(clipped)(x, labels)
    leaves, structure = fg.tree.flatten(grads)
    keys = random.split(key, len(leaves))
    noised = [
        (g.sum(0) + noise * limit * random.normal(k, g.shape[1:])) / len(x) for g, k in zip(leaves, keys, strict=True)
    ]
    return fg.tree.unflatten(structure, noised), norms


def data(n: int = 200) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 4))
    return x, ((x[:, 0] > 0) + 2 * (x[:, 1] > 0)).astype(np.int32)


def by_hand(params: Any, x: Any, label: int) -> list[dict[str, Any]]:
    """One example's gradient by backpropagation in float64."""
    inputs = [x.astype(np.float64)]
    for p in params[:-1]:
        inputs.append(np.maximum(inputs[-1] @ p["w"] + p["b"], 0))
    logits = inputs[-1] @ params[-1]["w"] + params[-1]["b"]
    back = np.exp(logits - logits.max())
    back = back / back.sum() - np.eye(len(logits))[label]
    grads: list[dict[str, Any]] = []
    for p, h in zip(params[::-1], inputs[::-1], strict=True):
        grads.insert(0, {"w": np.outer(h, back), "b": back})
        back = (p["w"] @ back) * (h > 0)
    return grads


def test_clipped_mean_against_a_loop(device: str) -> None:
    x, labels = data(40)
    params = init(random.key(1), (4, 16, 8, 4))
    host = fg.tree.map(lambda v: np.asarray(v, np.float64), params)
    each = [by_hand(host, a, b) for a, b in zip(x, labels, strict=True)]
    sizes = np.array([np.sqrt(sum(np.sum(v**2) for g in one for v in g.values())) for one in each])
    limit = float(np.median(sizes))
    got, norms = fg.jit(private_gradient, static_argnums=(4, 5))(
        params, fnp.asarray(x), fnp.asarray(labels), random.key(0), limit, 0.0
    )
    np.testing.assert_allclose(norms, sizes, rtol=2e-5)
    scales = np.minimum(1, limit / sizes)
    for layer, result in enumerate(got):
        for name, value in result.items():
            want = sum(s * one[layer][name] for s, one in zip(scales, each, strict=True)) / len(x)
            np.testing.assert_allclose(value, want, rtol=2e-4, atol=2e-6, err_msg=f"{layer} {name}")


def test_noise_has_the_deviation_asked_for(device: str) -> None:
    x, labels = data(10)
    params = init(random.key(1), (4, 64, 4))
    step = lambda k, noise: private_gradient(params, fnp.asarray(x), fnp.asarray(labels), k, 0.5, noise)[0]
    keys = random.split(random.key(2), 50)
    with_noise = fg.jit(fg.vmap(lambda k: step(k, 2.0)))(keys)
    without = step(keys[0], 0.0)
    differences = [np.asarray(a - b).ravel() for a, b in zip(*map(fg.tree.leaves, (with_noise, without)), strict=True)]
    spread = np.concatenate(differences).std()
    np.testing.assert_allclose(spread, 2.0 * 0.5 / 10, rtol=0.02)


def test_training_with_noise_learns(device: str) -> None:
    x, labels = [fnp.asarray(v) for v in data()]
    params, tx = init(random.key(1), (4, 32, 4)), optim.adam(0.02)

    @fg.jit
    def step(params: Any, state: Any, key: Any) -> Any:
        g, _ = private_gradient(params, x, labels, key, 1.0, 1.0)
        updates, state = tx.update(g, state, params)
        return optim.apply_updates(params, updates), state

    state = tx.init(params)
    for key in random.split(random.key(3), 80):
        params, state = step(params, state, key)
    hidden = nn.relu(x @ params[0]["w"] + params[0]["b"])
    guess = fnp.argmax(hidden @ params[1]["w"] + params[1]["b"], axis=1)
    assert float(fnp.mean(guess == labels)) > 0.85
