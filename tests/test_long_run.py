"""A hundred thousand captured steps: no retrace, no growth, the mathematics of a numpy loop."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
from funcgrad import optim

SIZES = (4, 16, 3)
STEPS = 100_000
LR = 1e-3


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1.5, (3, 4))
    y = rng.integers(0, 3, (16, 32)).astype(np.int32)
    return (centres[y] + rng.normal(0, 0.7, (16, 32, 4))).astype(np.float32), y


def init() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    out: list[np.ndarray] = []
    for n, m in itertools.pairwise(SIZES):
        out += [rng.normal(0, n**-0.5, (n, m)).astype(np.float32), np.zeros(m, np.float32)]
    return out


def loss(p: Any, x: Any, y: Any) -> Any:
    h = fg.nn.relu(x @ p[0] + p[1])
    return fg.losses.softmax_cross_entropy_with_integer_labels(h @ p[2] + p[3], y).mean()


def numpy_step(p: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """One step of gradient descent in float32, by hand."""
    h = np.maximum(x @ p[0] + p[1], 0)
    z = h @ p[2] + p[3]
    e = np.exp(z - z.max(1, keepdims=True))
    s = e / e.sum(1, keepdims=True)
    value = -np.log(s[np.arange(len(y)), y]).mean()
    d = s.copy()
    d[np.arange(len(y)), y] -= 1
    d /= np.float32(len(y))
    dh = (d @ p[2].T) * (h > 0)
    grads = [x.T @ dh, dh.sum(0), h.T @ d, d.sum(0)]
    return float(value), [w - np.float32(LR) * g for w, g in zip(p, grads, strict=True)]


def resident() -> int:
    """Bytes of resident memory."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


@pytest.mark.ggml
def test_a_hundred_thousand_steps() -> None:
    xs, ys = data()
    optimizer = optim.sgd(LR)

    @fg.jit(donate_argnums=(0, 1))
    def step(p: Any, s: Any, x: Any, y: Any) -> Any:
        value, grads = fg.value_and_grad(loss)(p, x, y)
        updates, s = optimizer.update(grads, s, p)
        return optim.apply_updates(p, updates), s, value

    with fg.default_device("cpu"):
        params: Any = init()
        state = optimizer.init(params)
        held: list[np.ndarray] = init()
        for i in range(2000):
            params, state, value = step(params, state, xs[i % 16], ys[i % 16])
            expected, held = numpy_step(held, xs[i % 16], ys[i % 16])
            if i % 100 == 0:
                assert float(value) == pytest.approx(expected, rel=1e-4, abs=1e-6)
        gc.collect()
        before = resident()
        for i in range(2000, STEPS):
            params, state, value = step(params, state, xs[i % 16], ys[i % 16])
        gc.collect()
        assert resident() - before < 2**20
    assert step.stats.traces == 1 and step.stats.calls == STEPS
    for i in range(2000, STEPS):
        expected, held = numpy_step(held, xs[i % 16], ys[i % 16])
    assert float(value) == pytest.approx(expected, rel=1e-2, abs=1e-4)
    for a, b in zip(params, held, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=2e-2, atol=2e-2)
