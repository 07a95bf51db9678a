"""A language model with a gated recurrent unit (Cho et al. 2014) over a source of known entropy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, losses, nn, optim, random


def init(key: Any, vocabulary: int, width: int) -> dict[str, Any]:
    keys = random.split(key, 4)
    glorot = nn.initializers.glorot_uniform()
    return {
        "embed": 0.5 * random.normal(keys[0], (vocabulary, width)),
        "input": glorot(keys[1], (width, 3 * width)),
        "hidden": glorot(keys[2], (width, 3 * width)),
        "bias": fnp.zeros(3 * width),
        "read": glorot(keys[3], (width, vocabulary)),
    }


def cell(params: Any, h: Any, x: Any) -> Any:
    """r and z gate; n = tanh(x W + r (h U)); h <- (1 - z) n + z h."""
    xr, xz, xn = fnp.split(x @ params["input"] + params["bias"], 3, axis=-1)
    hr, hz, hn = fnp.split(h @ params["hidden"], 3, axis=-1)
    r, z = nn.sigmoid(xr + hr), nn.sigmoid(xz + hz)
    return (1 - z) * fnp.tanh(xn + r * hn) + z * h


def loss(params: Any, tokens: Any) -> Any:
    """Nats per token of the next token, for tokens of shape (batch, time)."""
    inputs, targets = tokens[:, :-1].T, tokens[:, 1:].T

    def step(h: Any, xs: Any) -> Any:
        token, target = xs
        h = cell(params, h, params["embed"][token])
        return h, losses.softmax_cross_entropy_with_integer_labels(h @ params["read"], target).mean()

    h = fnp.zeros((tokens.shape[0], params["hidden"].shape[0]))
    return lax.scan(step, h, (inputs, targets))[1].mean()


def train(params: Any, stream: Iterable[Any]) -> tuple[Any, list[float]]:
    tx = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(0.02))

    @fg.jit
    def step(params: Any, state: Any, tokens: Any) -> Any:
        value, g = fg.value_and_grad(loss)(params, tokens)
        updates, state = tx.update(g, state, params)
        return optim.apply_updates(params, updates), state, value

    state, values = tx.init(params), []
    for tokens in stream:
        params, state, value = step(params, state, tokens)
        values.append(float(value))
    return params, values


def source(seed: int, batch: int = 16, length: int = 17) -> Any:
    """Tokens 0 to 2: the next is one more than that two places back, or (one time in ten) another."""
    rng = np.random.default_rng(seed)
    rows = list(rng.integers(0, 3, (2, batch)))
    while len(rows) < length:
        slip = np.where(rng.random(batch) < 0.1, rng.integers(1, 3, batch), 0)
        rows.append((rows[-2] + 1 + slip) % 3)
    return np.stack(rows, 1).astype(np.int32)


ENTROPY = -(0.9 * np.log(0.9) + 0.1 * np.log(0.1 / 2))


def loss_in_numpy(params: dict[str, Any], tokens: Any) -> float:
    h, total = np.zeros((len(tokens), params["hidden"].shape[0])), 0.0
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    for t in range(tokens.shape[1] - 1):
        a = np.split(params["embed"][tokens[:, t]] @ params["input"] + params["bias"], 3, 1)
        b = np.split(h @ params["hidden"], 3, 1)
        r, z = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
        h = (1 - z) * np.tanh(a[2] + r * b[2]) + z * h
        logits = h @ params["read"]
        total += np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(h)), tokens[:, t + 1]])
    return float(total / (tokens.shape[1] - 1))


def test_loss_and_gradient_against_numpy(device: str) -> None:
    params, tokens = init(random.key(0), 3, 6), source(0, 5, 12)
    value, grads = fg.jit(fg.value_and_grad(loss))(params, fnp.asarray(tokens))
    host = {k: np.asarray(v, np.float64) for k, v in params.items()}
    np.testing.assert_allclose(value, loss_in_numpy(host, tokens), rtol=1e-6)
    rng = np.random.default_rng(1)
    for name, p in host.items():
        along = rng.normal(size=p.shape)
        ends = [loss_in_numpy({**host, name: p + h * along}, tokens) for h in (1e-5, -1e-5)]
        slope = np.sum(np.asarray(grads[name], np.float64) * along)
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-6, err_msg=name)


def test_training_reaches_the_entropy_of_the_source(device: str) -> None:
    params, values = train(init(random.key(0), 3, 12), map(fnp.asarray, map(source, range(150))))
    assert values[0] > 1.0  # log 3 is 1.099
    # The first target of a row has one token before it, so nothing tells it: log 3 instead of the entropy.
    best = (15 * ENTROPY + np.log(3)) / 16
    held_out = float(loss(params, fnp.asarray(source(1000, 1000))))
    assert best - 0.03 < held_out < best + 0.12, (held_out, best)
