"""The demo: its first steps against float64 numpy, its accuracy, its picture; every transformation on its loss."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
from funcgrad import optim

demo = pytest.importorskip("funcgrad.demo", reason="needs scikit-learn, matplotlib and tqdm")


def float64_steps(params: list[np.ndarray], batches: list[Any], lr: float) -> list[float]:
    """Adam (Kingma and Ba, 2015) on the demo's network, written out in float64 numpy; the loss of each step."""
    m = [np.zeros_like(p) for p in params]
    v = [np.zeros_like(p) for p in params]
    losses = []
    for t, (x, y) in enumerate(batches, 1):
        layers = [x.astype(np.float64)]
        for i in range(0, len(params) - 2, 2):
            layers.append(np.maximum(layers[-1] @ params[i] + params[i + 1], 0))
        z = layers[-1] @ params[-2] + params[-1]
        e = np.exp(z - z.max(1, keepdims=True))
        p = e / e.sum(1, keepdims=True)
        losses.append(float(-np.log(p[np.arange(len(y)), y]).mean()))
        d = p
        d[np.arange(len(y)), y] -= 1
        d /= len(y)
        grads: list[Any] = [None] * len(params)
        for i in range(len(params) - 2, -1, -2):
            h = layers[i // 2]
            grads[i], grads[i + 1] = h.T @ d, d.sum(0)
            d = (d @ params[i].T) * (h > 0)
        m = [0.9 * a + 0.1 * g for a, g in zip(m, grads, strict=True)]
        v = [0.999 * a + 0.001 * g * g for a, g in zip(v, grads, strict=True)]
        params = [
            w - lr * (a / (1 - 0.9**t)) / (np.sqrt(b / (1 - 0.999**t)) + 1e-8)
            for w, a, b in zip(params, m, v, strict=True)
        ]
    return losses


@pytest.mark.ggml
def test_the_first_ten_losses_equal_float64_numpy() -> None:
    with fg.default_device("cpu"):
        x, y, _, _ = demo.load(0)
        params = demo.init(fg.random.key(0))
        start = [np.asarray(layer[k], np.float64) for layer in params for k in ("w", "b")]
        rows = list(demo.batches(len(x), 1, 0))[:10]
        expected = float64_steps(start, [(x[r], y[r]) for r in rows], 2e-3)
        optimizer = optim.adam(2e-3)
        state, step, got = optimizer.init(params), demo.make_step(optimizer), []
        for r in rows:
            params, state, loss = step(params, state, x[r], y[r])
            got.append(float(loss))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.ggml
def test_the_demo_learns_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "digits.png"
    result = demo.main(["--out", str(picture)])
    assert result["accuracy"] >= 0.97 and result["traces"] == 1
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000
    shown = capsys.readouterr().out
    for part in (
        "device              cpu",
        "time to first step",
        "steps per second",
        "held-out accuracy",
        str(picture),
    ):
        assert part in shown


def test_transformations_compose_on_the_demos_loss(device: str) -> None:
    """grad, value_and_grad, vjp, jvp, vmap, checkpoint, jit and make_graph, in several nestings, agree."""
    x, y, _, _ = demo.load(0)
    x, y = x[:8], y[:8]
    params = demo.init(fg.random.key(1))
    loss = demo.loss_fn
    plain = fg.grad(loss)(params, x, y)
    checkpointed = fg.checkpoint(loss)
    ones = fg.tree.map(lambda p: fg.numpy.ones_like(p), params)
    ways = [
        fg.jit(fg.grad(loss))(params, x, y),
        fg.grad(fg.jit(loss))(params, x, y),
        fg.value_and_grad(checkpointed)(params, x, y)[1],
        fg.jit(fg.grad(fg.checkpoint(fg.jit(loss))))(params, x, y),
        fg.vjp(lambda p: checkpointed(p, x, y), params)[1](1.0)[0],
        fg.tree.map(
            lambda g: g.mean(0),
            fg.jit(fg.vmap(fg.grad(lambda p, a, b: loss(p, a[None], b[None])), in_axes=(None, 0, 0)))(params, x, y),
        ),
    ]
    for way in ways:
        for a, b in zip(fg.tree.leaves(way), fg.tree.leaves(plain), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=1e-6)
    pushed = fg.jit(lambda p, t: fg.jvp(lambda q: checkpointed(q, x, y), (p,), (t,))[1])(params, ones)
    total = sum(float(g.sum()) for g in fg.tree.leaves(plain))
    assert float(pushed) == pytest.approx(total, rel=1e-3)
    graph = fg.make_graph(fg.jit(fg.grad(loss)))(params, x, y)
    assert len(graph.inputs) == 8 and len(graph.outputs) == 6


@pytest.mark.ggml
def test_checkpoint_halves_the_peak_of_a_deep_network() -> None:
    """A 12-layer MLP gradient: the planner's peak, and bit-identical values."""
    rng = np.random.default_rng(0)
    width, batch = 64, 2048
    sizes = [8] + [width] * 12
    weights = [rng.normal(0, n**-0.5, (n, m)).astype(np.float32) for n, m in itertools.pairwise(sizes)]
    x = rng.normal(size=(batch, 8)).astype(np.float32)

    def segment(h: Any, ws: Any) -> Any:
        for w in ws:
            h = fg.numpy.tanh(h @ w)
        return h

    def loss(ws: Any, h: Any, wrap: Any) -> Any:
        for i, n in ((0, 5), (5, 4), (9, 3)):  # the later a segment, the more is kept beside it
            h = wrap(segment)(h, ws[i : i + n])
        return (h * h).mean()

    with fg.default_device("cpu"):
        plain = fg.jit(fg.grad(lambda ws, h: loss(ws, h, lambda f: f)))
        saved = fg.jit(fg.grad(lambda ws, h: loss(ws, h, fg.checkpoint)))
        temps = [f.trace(weights, x).lower().compile().memory_analysis().temp_size_in_bytes for f in (plain, saved)]
        assert temps[1] <= temps[0] / 2, temps
        for a, b in zip(plain(weights, x), saved(weights, x), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
