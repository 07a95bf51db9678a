"""make_train_step: nothing is lost, nothing is silently changed; the ledger of a captured step."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import optim
from funcgrad.errors import NonFiniteError

Batch = dict[str, np.ndarray]


def make_batch(rng: np.random.Generator, bad: bool = False) -> Batch:
    x = rng.normal(size=(16, 4)).astype(np.float32)
    y = (x @ np.array([[1.0], [-2.0], [0.5], [3.0]], np.float32)) + 0.1
    if bad:  # in the target: dropout, which selects exactly, could leave a bad input out
        y = y.copy()
        y[3] = np.nan
    return {"x": x, "y": y}


def params() -> dict[str, np.ndarray]:
    return {"w": np.zeros((4, 1), np.float32), "b": np.zeros(1, np.float32)}


def loss(p: Any, batch: Any) -> Any:
    return ((batch["x"] @ p["w"] + p["b"] - batch["y"]) ** 2).mean()


def noisy_loss(p: Any, batch: Any, key: Any) -> Any:
    keep = fg.random.bernoulli(key, 0.8, batch["x"].shape)
    return ((fnp.where(keep, batch["x"] / 0.8, 0.0) @ p["w"] + p["b"] - batch["y"]) ** 2).mean()


def values(tree: Any) -> list[np.ndarray]:
    return [np.array(x) for x in fg.tree.leaves(tree)]


def same_bits(a: Any, b: Any) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(values(a), values(b), strict=True))


# -- the mathematics ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [3e38, 1e30, 1.0, 1e-30])
def test_clipping_is_exact_where_the_norm_overflows_or_its_squares_underflow(device: str, size: float) -> None:
    """An update is lr * g * min(1, limit / (norm + 1e-6)), worked out in float64."""
    slopes = {"a": np.array([size, -size], np.float32), "b": np.array([size / 2], np.float32)}

    def inner(p: Any, x: Any) -> Any:
        return (p["a"] * x["a"]).sum() + (p["b"] * x["b"]).sum()

    ts = fg.make_train_step(inner, optim.sgd(1.0), max_grad_norm=0.5)
    state, metrics = ts.step(ts.init({"a": np.zeros(2, "f"), "b": np.zeros(1, "f")}), slopes)
    norm = np.sqrt(sum((v.astype(np.float64) ** 2).sum() for v in slopes.values()))
    for name, v in slopes.items():
        want = -v.astype(np.float64) * min(1.0, 0.5 / (norm + 1e-6))
        np.testing.assert_allclose(np.asarray(state.params[name]), want, rtol=1e-6)
    assert bool(metrics["finite"])
    if norm < 3.4e38:
        assert float(metrics["grad_norm"]) == pytest.approx(norm, rel=1e-6)


def test_steps_equal_adam_in_float64(device: str) -> None:
    """Kingma and Ba (2015), with clipping min(1, limit / (norm + 1e-6)), written out in numpy."""
    ts = fg.make_train_step(loss, optim.adam(1e-2), max_grad_norm=1.5)
    state = ts.init(params())
    w = np.zeros(5)
    m, v = np.zeros(5), np.zeros(5)
    rng = np.random.default_rng(0)
    for t in range(1, 21):
        batch = make_batch(rng)
        x = np.concatenate([batch["x"], np.ones((16, 1))], 1).astype(np.float64)
        residual = x @ w[:, None] - batch["y"]
        g = (2 * x.T @ residual / 16).ravel()
        norm = np.sqrt((g**2).sum())
        state, metrics = ts.step(state, batch)
        assert float(metrics["loss"]) == pytest.approx(float((residual**2).mean()), rel=1e-5)
        assert float(metrics["grad_norm"]) == pytest.approx(norm, rel=1e-5)
        g = g * min(1.0, 1.5 / (norm + 1e-6))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 1e-2 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    got = np.concatenate([np.asarray(state.params["w"]).ravel(), np.asarray(state.params["b"])])
    np.testing.assert_allclose(got, w, rtol=2e-5, atol=1e-6)
    assert int(state.step) == 20


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_the_norm_of_huge_and_tiny_gradients(device: str, scale: float) -> None:
    ts = fg.make_train_step(lambda p, b: (p * b).sum(), optim.sgd(1.0), max_grad_norm=1.0)
    b = np.array([3.0, 4.0], np.float32) * np.float32(scale)
    state, metrics = ts.step(ts.init(np.zeros(2, np.float32)), b)
    assert float(metrics["grad_norm"]) == pytest.approx(5.0 * scale, rel=1e-5)
    moved = np.asarray(state.params).astype(np.float64)
    want = -b.astype(np.float64) * min(1.0, 1.0 / (5.0 * scale + 1e-6))
    np.testing.assert_allclose(moved, want, rtol=1e-4)


def test_accumulation_averages_and_counts_updates_only(device: str) -> None:
    """Three batches of equal size, accumulated, are one batch three times as large."""
    rng = np.random.default_rng(1)
    parts = [make_batch(rng) for _ in range(6)]
    ts = fg.make_train_step(loss, optim.adam(1e-2), accumulate=3)
    state = ts.init(params())
    updated = []
    for b in parts:
        state, metrics = ts.step(state, b)
        updated.append(bool(metrics["updated"]))
    assert updated == [False, False, True] * 2 and int(state.step) == 2
    whole = fg.make_train_step(loss, optim.adam(1e-2))
    other = whole.init(params())
    for i in (0, 3):
        big = {k: np.concatenate([p[k] for p in parts[i : i + 3]]) for k in ("x", "y")}
        other, _ = whole.step(other, big)
    for a, b in zip(values(state.params), values(other.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_model_state_and_aux(device: str) -> None:
    def fn(p: Any, running: Any, batch: Any) -> Any:
        mean = batch["x"].mean()
        return ((batch["x"] - p) ** 2).mean(), 0.9 * running + 0.1 * mean, {"mean": mean}

    ts = fg.make_train_step(fn, optim.sgd(0.1), has_aux=True)
    state = ts.init(np.float32(0.0), model_state=np.float32(1.0))
    batch = {"x": np.array([1.0, 3.0], np.float32)}
    state, metrics = ts.step(state, batch)
    assert float(state.model_state) == pytest.approx(1.1)
    assert float(metrics["aux"]["mean"]) == 2.0 and float(state.params) == pytest.approx(0.4)


# -- refusing ----------------------------------------------------------------------------------------------------
def run(steps: int, bad: set[int], on: Any, key: bool, keep_bad: bool = True) -> tuple[Any, list[str]]:
    fn: Callable[..., Any] = noisy_loss if key else loss
    ts = fg.make_train_step(fn, optim.adamw(1e-2), max_grad_norm=1.0, on_nonfinite=on)
    state = ts.init(params(), key=fg.random.key(7) if key else None)
    rng, errors = np.random.default_rng(2), []
    for i in range(steps):
        batch = make_batch(rng, i in bad)
        if i in bad and not keep_bad:
            continue
        try:
            state, _ = ts.step(state, batch)
        except NonFiniteError as e:
            errors.append(str(e))
    assert ts.step.captured.stats.traces == 1
    return state, errors


@pytest.mark.parametrize("key", [False, True])
def test_a_refused_batch_leaves_no_trace(device: str, key: bool) -> None:
    bad = {0, 3, 4, 11, 29}
    with_bad, errors = run(30, bad, "raise", key)
    without, none = run(30, bad, "raise", key, keep_bad=False)
    assert len(errors) == len(bad) and not none
    assert same_bits(with_bad, without)
    for part in (
        "train step 0",
        "loss = nan",
        "gradient of params['w']",
        "gradient of params['b']",
        "state is as it was",
    ):
        assert part in errors[0]


def test_skip_counts_and_is_otherwise_the_same(device: str) -> None:
    bad = {2, 5}
    skipped, _ = run(10, bad, "skip", False)
    clean, _ = run(10, bad, "raise", False, keep_bad=False)
    assert int(skipped.skipped) == 2 and int(clean.skipped) == 0
    assert same_bits((skipped.params, skipped.opt_state, skipped.step), (clean.params, clean.opt_state, clean.step))


def test_a_thousand_steps_with_bad_batches_at_random() -> None:
    bad = set(np.random.default_rng(5).choice(1000, 60, replace=False).tolist())
    assert same_bits(run(1000, bad, "raise", True)[0], run(1000, bad, "raise", True, keep_bad=False)[0])


def test_an_infinite_gradient_of_a_finite_loss_is_refused(device: str) -> None:
    ts = fg.make_train_step(lambda p, b: fnp.sqrt(p).sum() + b.sum(), optim.sgd(0.1))
    state = ts.init(np.array([1.0, 0.0], np.float32))
    before = values(state)
    with pytest.raises(NonFiniteError, match="gradient of params"):
        ts.step(state, np.zeros(1, np.float32))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(before, values(state), strict=True))


def test_the_state_is_donated(device: str) -> None:
    ts = fg.make_train_step(loss, optim.sgd(0.1))
    old = ts.init(params())
    ts.step(old, make_batch(np.random.default_rng(0)))
    with pytest.raises(fg.errors.DonationError, match="donated"):
        np.asarray(old.params["w"])


# -- limits as leaves --------------------------------------------------------------------------------------------
def test_the_limit_changes_without_a_retrace(device: str) -> None:
    ts = fg.make_train_step(lambda p, b: (p * b).sum(), optim.sgd(1.0), max_grad_norm=1.0)
    state = ts.init(np.zeros(2, np.float32))
    b = np.array([3.0, 4.0], np.float32)
    state, _ = ts.step(state, b)
    first = np.array(state.params)
    state, _ = ts.step(state.with_max_grad_norm(0.1), b)
    assert np.linalg.norm(first) == pytest.approx(1.0, rel=1e-5)
    assert np.linalg.norm(np.asarray(state.params) - first) == pytest.approx(0.1, rel=1e-5)
    assert ts.step.captured.stats.traces == 1


def test_the_learning_rate_is_a_leaf(device: str) -> None:
    ts = fg.make_train_step(lambda p, b: (p * b).sum(), optim.inject_hyperparams(optim.sgd)(learning_rate=1.0))
    state = ts.init(np.zeros(1, np.float32))
    one = np.ones(1, np.float32)
    state, _ = ts.step(state, one)
    state.opt_state.hyperparams["learning_rate"] = fnp.asarray(0.25, np.float32)
    state, _ = ts.step(state, one)
    assert float(state.params[0]) == pytest.approx(-1.25)
    assert ts.step.captured.stats.traces == 1


@pytest.mark.parametrize("limit", [0.0, -1.0, math.inf, math.nan])
def test_bad_limits(limit: float) -> None:
    with pytest.raises(ValueError, match="max_grad_norm must be positive and finite"):
        fg.make_train_step(loss, optim.sgd(0.1), max_grad_norm=limit)
    state = fg.make_train_step(loss, optim.sgd(0.1), max_grad_norm=1.0).init(params())
    with pytest.raises(ValueError, match="positive and finite"):
        state.with_max_grad_norm(limit)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="on_nonfinite"):
        fg.make_train_step(loss, optim.sgd(0.1), on_nonfinite="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="accumulate"):
        fg.make_train_step(loss, optim.sgd(0.1), accumulate=0)
    ts = fg.make_train_step(lambda p, b: (p.sum(), b), optim.sgd(0.1))
    with pytest.raises(TypeError, match=r"must return \(loss\), got 2 values"):
        ts.step(ts.init(np.zeros(1, np.float32)), np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="made without max_grad_norm"):
        fg.make_train_step(loss, optim.sgd(0.1)).init(params()).with_max_grad_norm(1.0)


# -- the ledger --------------------------------------------------------------------------------------------------
@pytest.mark.ggml
def test_one_upload_one_launch_one_download() -> None:
    with fg.default_device("cpu"):
        ts = fg.make_train_step(noisy_loss, optim.adam(1e-2), max_grad_norm=1.0)
        state = ts.init(params(), key=fg.random.key(0))
        rng = np.random.default_rng(0)
        state, _ = ts.step(state, make_batch(rng))
        batch = make_batch(rng)
        with fg.debug.expect(uploads=1, launches=1, downloads=1) as seen:
            state, metrics = ts.step(state, batch)
            float(metrics["loss"]), float(metrics["grad_norm"])
        assert seen.bytes_uploaded == batch["x"].nbytes + batch["y"].nbytes


@pytest.mark.ggml
def test_a_replay_buffer_stays_on_the_device() -> None:
    """A table of a million rows: only the new rows and the indices cross."""
    rows, width = 1_000_000, 8

    @fg.jit(donate_argnums=0)
    def write(table: Any, at: Any, new: Any) -> Any:
        return fg.lax.dynamic_update_slice(table, new, (at, 0))

    @fg.jit
    def read(table: Any, index: Any) -> Any:
        return fnp.take(table, index, axis=0)

    with fg.default_device("cpu"):
        table = fnp.zeros((rows, width))
        host = np.zeros((rows, width), np.float32)
        rng = np.random.default_rng(0)
        table = write(table, np.int32(0), np.zeros((4, width), np.float32))
        for _ in range(20):
            at, new = int(rng.integers(0, rows - 4)), rng.normal(size=(4, width)).astype(np.float32)
            host[at : at + 4] = new
            with fg.debug.expect(uploads=1, launches=1, downloads=0) as seen:
                table = write(table, np.int32(at), new)
            assert seen.bytes_uploaded == new.nbytes + 4
            index = rng.integers(0, rows, 32).astype(np.int32)
            index[:4] = at + np.arange(4)
            with fg.debug.expect(uploads=1, launches=1, downloads=1) as seen:
                got = np.asarray(read(table, index))
            assert seen.bytes_uploaded == index.nbytes and seen.bytes_downloaded == got.nbytes
            np.testing.assert_array_equal(got, host[index])


# -- interruptions -----------------------------------------------------------------------------------------------
def test_an_exception_in_a_callback_leaves_the_state_whole(device: str) -> None:
    def check(x: Any) -> None:
        if np.abs(x).max() > 50:
            raise RuntimeError("stop here")

    def watched(p: Any, batch: Any) -> Any:
        fg.debug.callback(check, batch["x"])
        return loss(p, batch)

    ts = fg.make_train_step(watched, optim.adam(1e-2))
    state = ts.init(params())
    rng = np.random.default_rng(0)
    state, _ = ts.step(state, make_batch(rng))
    before = values(state)
    far = make_batch(rng)
    with pytest.raises(RuntimeError, match="stop here"):
        ts.step(state, {"x": far["x"] * 1000, "y": far["y"]})
    assert all(a.tobytes() == b.tobytes() for a, b in zip(before, values(state), strict=True))
    state, metrics = ts.step(state, far)
    assert int(state.step) == 2 and bool(metrics["finite"])


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
import funcgrad as fg
from funcgrad import optim

rng = np.random.default_rng(3)
x = rng.normal(size=(16, 4)).astype(np.float32)
batch = {"x": x, "y": x.sum(1, keepdims=True)}
ts = fg.make_train_step(lambda p, b: ((b["x"] @ p["w"] - b["y"]) ** 2).mean(), optim.adam(1e-2), max_grad_norm=1.0)
start = {"w": np.zeros((4, 1), np.float32)}
bits = lambda s: b"".join(np.array(v).tobytes() for v in fg.tree.leaves(s))
state = ts.init(start)
known = {bits(state)}
for _ in range(400):
    state, _ = ts.step(state, batch)
    known.add(bits(state))
sys.unraisablehook = lambda *a: None
count, stop, state = 0, threading.Event(), ts.init(start)
main = threading.main_thread().ident
signal.signal(signal.SIGINT, signal.default_int_handler)
def interrupt():
    while not stop.wait(float(rng.uniform(0.0001, 0.003))):
        signal.pthread_kill(main, signal.SIGINT)
def quietly(f):
    while True:
        try:
            return f()
        except KeyboardInterrupt:
            pass
thread = threading.Thread(target=interrupt)
thread.start()
while count < 3:
    if quietly(lambda: int(state.step)) == 400:
        state = quietly(lambda: ts.init(start))
    try:
        state, _ = ts.step(state, batch)
    except KeyboardInterrupt:
        count += 1
    assert quietly(lambda: bits(state)) in known, "half a state"
stop.set()
quietly(thread.join)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("interrupted", count > 0)
"""


def test_an_interrupt_leaves_the_old_state_or_the_new_one() -> None:
    """Ctrl-C at random moments: what the caller holds always equals the state of some number of whole steps."""
    for _ in range(5):  # it may also end the program where no step is running, which says nothing
        done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
        assert "half a state" not in done.stderr, done.stderr
        if done.stdout.strip() == "interrupted True":
            return
    pytest.fail(f"no run came through: {done.stderr[-500:]}")
