"""Ten training steps of W1 to W4: losses equal JAX's, and a step costs one upload, one launch and one download."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.optim as fg_optim

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
import fg_bench  # noqa: E402
import jax_bench  # noqa: E402
import workloads as wl  # noqa: E402

pytestmark = pytest.mark.ggml
STEPS = 10


def sgd(optim: Any) -> Any:
    return optim.sgd(wl.W4["lr"], momentum=wl.W4["momentum"])


CASES = {
    "W1": (wl.w1, "mlp_loss", lambda bench, optim: bench.adam()),
    "W2": (wl.w2, "mlp_loss", lambda bench, optim: bench.adam()),
    "W3": (wl.w3, "gpt_loss", lambda bench, optim: bench.gpt_tx()),
    "W4": (wl.w4, "cnn_loss", lambda bench, optim: sgd(optim)),
}


def jax_losses(loss: Any, optimizer: Any, params: Any, xs: Any, ys: Any) -> list[float]:
    @partial(jax.jit, donate_argnums=(0, 1))
    def step(p: Any, s: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, x, y)
        updates, s = optimizer.update(grads, s, p)
        return optax.apply_updates(p, updates), s, value

    params = jax.tree.map(jax.numpy.array, params)
    state, out = optimizer.init(params), []
    for i in range(STEPS):
        params, state, value = step(params, state, xs[i], ys[i])
        out.append(float(value))
    return out


@pytest.mark.parametrize("name", CASES)
def test_ten_steps(name: str) -> None:
    data, loss, make = CASES[name]
    params, xs, ys = data()
    want = jax_losses(getattr(jax_bench, loss), make(jax_bench, optax), params, xs, ys)
    fn = getattr(fg_bench, loss)
    with fg.default_device("cpu"):
        ts = fg.make_train_step(lambda p, batch: fn(p, *batch), make(fg_bench, fg_optim))
        state, got = ts.init(params), []
        for i in range(STEPS):
            # The refusal of bad batches reads metrics["finite"], so a step that is read has one download.
            with fg.debug.expect(uploads=1, launches=1, downloads=1) as seen:
                state, metrics = ts.step(state, (xs[i], ys[i]))
                got.append(float(metrics["loss"]))
            assert seen.bytes_uploaded == xs[i].nbytes + ys[i].nbytes
        assert ts.step.captured.stats.traces == 1  # type: ignore[attr-defined]
    np.testing.assert_allclose(got, want, rtol=1e-4)
    assert got[-1] < got[0]
