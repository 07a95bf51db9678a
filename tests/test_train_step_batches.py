"""make_train_step: short batches, checkpointed segments, dropout, and the precision of the computation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import optim
from funcgrad.errors import RetraceError

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 4)).astype(np.float32)
Y = RNG.normal(size=(20, 1)).astype(np.float32)


def start() -> dict[str, np.ndarray]:
    return {"w": np.full((4, 1), 0.1, np.float32), "b": np.zeros(1, np.float32)}


def errors(p: Any, x: Any, y: Any) -> Any:
    return ((x @ p["w"] + p["b"] - y) ** 2)[:, 0]


def loss(p: Any, batch: Any) -> Any:
    return errors(p, *batch).mean()


def numpy_epoch(sizes: list[int], rate: float) -> np.ndarray:
    """Gradient descent over consecutive batches of these sizes, in float64."""
    w, b, at = np.full((4, 1), 0.1), np.zeros(1), 0
    for n in sizes:
        x, y = X[at : at + n].astype(np.float64), Y[at : at + n].astype(np.float64)
        r = x @ w + b - y
        w, b, at = w - rate * 2 * x.T @ r / n, b - rate * 2 * r.sum(0) / n, at + n
    return np.concatenate([b, w.ravel()])


def flat(params: Any) -> np.ndarray:
    return np.concatenate([np.asarray(params["b"]), np.asarray(params["w"]).ravel()])


# -- a short last batch ------------------------------------------------------------------------------------------
def test_a_short_batch_is_traced_again_and_explained() -> None:
    ts = fg.make_train_step(loss, optim.sgd(0.1))
    state = ts.init(start())
    it = iter(fg.data.batches((X, Y), 8, shuffle=False, drop_last=False))
    state, _ = ts.step(state, next(it))
    state, _ = ts.step(state, next(it))
    with pytest.warns(fg.RetraceWarning, match=r"the shape of argument 1\[0\] changed from f32\[8,4\] to f32\[4,4\]"):
        state, _ = ts.step(state, next(it))
    np.testing.assert_allclose(flat(state.params), numpy_epoch([8, 8, 4], 0.1), rtol=2e-5, atol=1e-6)


def test_a_padded_batch_with_a_mask_is_the_same_mathematics() -> None:
    def masked(p: Any, item: Any) -> Any:
        (x, y), mask = item
        return fnp.average(errors(p, x, y), weights=fnp.astype(mask, fnp.float32))

    ts = fg.make_train_step(masked, optim.sgd(0.1), max_traces=1)
    state = ts.init(start())
    for item in fg.data.batches((X, Y), 8, shuffle=False, pad_last=True):
        state, _ = ts.step(state, item)
    np.testing.assert_allclose(flat(state.params), numpy_epoch([8, 8, 4], 0.1), rtol=2e-5, atol=1e-6)


def test_a_short_batch_is_an_error_when_asked() -> None:
    ts = fg.make_train_step(loss, optim.sgd(0.1), max_traces=1)
    state = ts.init(start())
    state, _ = ts.step(state, (X[:8], Y[:8]))
    with pytest.raises(RetraceError, match="at most max_traces=1"):
        ts.step(state, (X[:4], Y[:4]))
    state, _ = ts.step(state, (X[8:16], Y[8:16]))  # the refused batch took nothing
    np.testing.assert_allclose(flat(state.params), numpy_epoch([8, 8], 0.1), rtol=2e-5, atol=1e-6)


# -- checkpointed segments ---------------------------------------------------------------------------------------
def test_segments_that_close_over_a_loop_variable() -> None:
    """Each segment is its own layer, and all layers get gradients."""
    layers = [RNG.normal(size=(4, 4)).astype(np.float32) * 0.5 for _ in range(5)]

    def make(wrap: Any) -> Any:
        def net(p: Any, x: Any) -> Any:
            for i in range(5):
                x = wrap(lambda x: fnp.tanh(x @ p[i]))(x)  # noqa: B023 (called at once, and that is the point)
            return (x**2).mean()

        return net

    plain = fg.make_train_step(make(lambda f: f), optim.adam(1e-2))
    segmented = fg.make_train_step(make(fg.checkpoint), optim.adam(1e-2))
    a, b = plain.init(layers), segmented.init(layers)
    for _ in range(5):
        a, _ = plain.step(a, X)
        b, _ = segmented.step(b, X)
    for u, v, before in zip(a.params, b.params, layers, strict=True):
        np.testing.assert_allclose(np.asarray(u), np.asarray(v), rtol=1e-5, atol=1e-6)
        assert np.abs(np.asarray(v) - before).max() > 1e-3


# -- keys --------------------------------------------------------------------------------------------------------
def masks_of_steps(wrap: Any, steps: int) -> tuple[list[np.ndarray], Any]:
    def net(p: Any, x: Any, key: Any) -> Any:
        h = wrap(lambda p, x: fg.nn.Dropout(0.5)(x * p, key=key))(p, x)
        return (h**2).mean(), h

    ts = fg.make_train_step(net, optim.sgd(0.05), has_aux=True, max_traces=1)
    state, seen = ts.init(np.ones(64, np.float32), key=fg.random.key(3)), []
    for _ in range(steps):
        state, metrics = ts.step(state, np.ones((8, 64), np.float32))
        seen.append(np.asarray(metrics["aux"]) != 0)
    return seen, state


def test_dropout_differs_every_step_and_replays_under_checkpoint() -> None:
    plain, state = masks_of_steps(lambda f: f, 4)
    replayed, other = masks_of_steps(fg.checkpoint, 4)
    for i in range(4):
        assert 0.3 < plain[i].mean() < 0.7
        np.testing.assert_array_equal(plain[i], replayed[i])
        assert all((plain[i] != plain[j]).any() for j in range(i))
    # Were another mask drawn in the backward half, the gradients, and so the parameters, would differ.
    np.testing.assert_allclose(np.asarray(state.params), np.asarray(other.params), rtol=1e-6)
    again, _ = masks_of_steps(lambda f: f, 4)
    assert all((a == b).all() for a, b in zip(plain, again, strict=True))


# -- precision ---------------------------------------------------------------------------------------------------
def test_bfloat16_computes_narrow_and_keeps_float32() -> None:
    seen: list[Any] = []

    def watched(p: Any, batch: Any) -> Any:
        seen.extend([p["w"].dtype, batch[0].dtype])
        return loss(p, batch)

    ts = fg.make_train_step(watched, optim.adam(1e-2), precision="bfloat16")
    wide = fg.make_train_step(loss, optim.adam(1e-2))
    state, other = ts.init(start()), wide.init(start())
    for _ in range(30):
        state, metrics = ts.step(state, (X, Y))
        other, exact = wide.step(other, (X, Y))
    assert set(seen) == {fg.dtypes.bfloat16}
    float32 = {"w", "b"}
    assert {k for k, v in state.params.items() if v.dtype == np.float32} == float32
    assert metrics["loss"].dtype == np.float32 and metrics["grad_norm"].dtype == np.float32
    assert float(metrics["loss"]) == pytest.approx(float(exact["loss"]), rel=3e-2)
    assert float(metrics["loss"]) != float(exact["loss"])
    with pytest.raises(ValueError, match="compute must be the name of a float dtype"):
        fg.make_train_step(loss, optim.sgd(0.1), precision="float8")


# -- accumulation, refusal and model state together --------------------------------------------------------------
def bits(state: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in fg.tree.leaves(state)]


@pytest.mark.parametrize("on", ["raise", "skip"])
def test_a_bad_batch_between_accumulated_ones_leaves_no_trace(on: Any) -> None:
    def normed(p: Any, running: Any, batch: Any) -> Any:
        mean = batch[0].mean(0)
        return errors(p, batch[0] - running, batch[1]).mean(), 0.9 * running + 0.1 * mean

    def run(bad: set[int]) -> Any:
        ts = fg.make_train_step(normed, optim.adam(1e-2), accumulate=3, max_grad_norm=1.0, on_nonfinite=on)
        state = ts.init(start(), model_state=np.zeros(4, np.float32))
        for i in range(7):
            if i in bad:
                broken = Y[:8].copy()
                broken[2] = np.inf
                if on == "raise":
                    with pytest.raises(fg.errors.NonFiniteError):
                        ts.step(state, (X[:8], broken))
                else:
                    state, metrics = ts.step(state, (X[:8], broken))
                    assert not bool(metrics["finite"]) and not bool(metrics["updated"])
            state, metrics = ts.step(state, (X[i : i + 8], Y[i : i + 8]))
            assert bool(metrics["updated"]) == (i % 3 == 2)
        assert int(state.step) == 2 and int(state.micro) == 1
        assert int(state.skipped) == (len(bad) if on == "skip" else 0)
        return state

    with_bad, without = run({1, 2, 6}), run(set())
    keep = lambda s: (s.params, s.opt_state, s.model_state, s.grad_sum, s.step, s.micro)
    assert bits(keep(with_bad)) == bits(keep(without))


def test_a_schedule_advances_on_real_updates_only() -> None:
    """Constant gradients of 1: the parameter moves by the learning rates of updates 0, 1 and 2."""
    rate = optim.polynomial_schedule(1.0, 0.0, 1, 4)  # 1, 0.75, 0.5, 0.25
    ts = fg.make_train_step(lambda p, b: p * b, optim.sgd(rate), accumulate=4)
    state, seen = ts.init(np.float32(0.0)), []
    for _ in range(12):
        state, _ = ts.step(state, np.float32(1.0))
        seen.append(float(state.params))
    want = np.repeat([0.0, -1.0, -1.75, -2.25], 4)[1:13]
    np.testing.assert_allclose(seen, want, rtol=1e-6)


def test_metrics_are_of_the_old_parameters_before_clipping() -> None:
    ts = fg.make_train_step(lambda p, b: (p * p).sum() * b, optim.sgd(0.5), max_grad_norm=1e-3)
    state = ts.init(np.array([3.0, 4.0], np.float32))
    _, metrics = ts.step(state, np.float32(1.0))
    assert float(metrics["loss"]) == 25.0 and float(metrics["grad_norm"]) == pytest.approx(10.0, rel=1e-6)
