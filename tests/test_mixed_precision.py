"""Mixed precision: policies, the scale of a float16 loss, and both inside the captured step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import debug, dtypes, optim, training
from funcgrad.errors import NonFiniteError
from funcgrad.training import DynamicLossScale, Policy, StaticLossScale, get_policy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 8)).astype(np.float32)
Y = (X @ RNG.normal(size=(8, 1)).astype(np.float32)).astype(np.float32)


def start() -> dict[str, np.ndarray]:
    return {"w": np.full((8, 1), 0.25, np.float32), "b": np.zeros(1, np.float32)}


def loss(p: Any, batch: Any) -> Any:
    return ((batch["x"] @ p["w"] + p["b"] - batch["y"]) ** 2).mean() * batch["times"]


def batch(times: float = 1.0) -> dict[str, Any]:
    return {"x": X, "y": Y, "times": np.float32(times)}


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in fg.tree.leaves(tree)]


# -- policies ----------------------------------------------------------------------------------------------------
def test_a_policy_casts_floats_only(device: str) -> None:
    policy = Policy(params="float32", compute="bfloat16", output="float16")
    values = {"f": fnp.ones(2), "h": fnp.ones(2, "float16"), "i": fnp.arange(2), "b": fnp.asarray([True]), "n": None}
    for cast, dtype in (
        (policy.cast_to_param, dtypes.float32),
        (policy.cast_to_compute, dtypes.bfloat16),
        (policy.cast_to_output, dtypes.float16),
    ):
        got = cast(values)
        assert [got[k].dtype for k in "fhib"] == [dtype, dtype, dtypes.int32, dtypes.bool_] and got["n"] is None


def test_policies_by_name() -> None:
    assert get_policy(None) is None
    assert get_policy("float16") == Policy("float32", "float16", "float32")
    text = "params=bfloat16,compute=float16,output=bfloat16"
    assert get_policy(text) == Policy("bfloat16", "float16", "bfloat16") and str(get_policy(text)) == text
    for bad in ("params=float32,params=float16", "weights=float32", "compute=int32", "float8", 7):
        with pytest.raises(ValueError, match=r"policy|Policy"):
            get_policy(bad)
    with pytest.raises(ValueError, match="output must be the name of a float dtype"):
        Policy(output="int32")


# -- the arithmetic of the scale ---------------------------------------------------------------------------------
def reference(finite: list[bool], s: DynamicLossScale) -> list[tuple[float, int]]:
    """The rule in Micikevicius et al. 2018, section 3.3, and PyTorch's documentation, in Python's own numbers."""
    scale, good, out = s.init_scale, 0, []
    for ok in finite:
        good = good + 1 if ok else 0
        if not ok:
            scale = max(scale * s.backoff_factor, s.min_scale)
        elif good == s.growth_interval:
            scale, good = (scale * s.growth_factor if scale * s.growth_factor < 2.0**128 else scale), 0
        out.append((scale, good))
    return out


@pytest.mark.parametrize("interval", [1, 2, 5])
@pytest.mark.parametrize("first", [1.0, 2.0**15, 2.0**125])
def test_the_scale_grows_and_backs_off(device: str, interval: int, first: float) -> None:
    scaling = DynamicLossScale(init_scale=first, growth_interval=interval)
    rng = np.random.default_rng(interval)
    finite = [bool(b) for b in rng.random(60) < 0.7]
    step = fg.jit(scaling.update)
    state, got = scaling.init(), []
    for ok in finite:
        state = step(state, ok)
        got.append((float(state.scale), int(state.growth_tracker)))
    assert got == reference(finite, scaling)


def test_bad_scales() -> None:
    for kwargs in (
        {"init_scale": 0.0},
        {"init_scale": math.inf},
        {"growth_factor": 1.0},
        {"backoff_factor": 1.0},
        {"growth_interval": 0},
        {"min_scale": 0.0},
    ):
        with pytest.raises(ValueError, match=next(iter(kwargs))):
            DynamicLossScale(**kwargs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive and finite"):
        StaticLossScale(math.nan)
    with pytest.raises(TypeError, match="loss_scale must be a loss scale"):
        fg.make_train_step(loss, optim.sgd(0.1), loss_scale=1024.0)  # type: ignore[arg-type]


# -- in the step -------------------------------------------------------------------------------------------------
def test_scaling_saves_what_float16_cannot_hold(device: str) -> None:
    """The cotangent of each of 65536 terms of a mean is 1.5e-5 / 2^12 = 3.7e-9: below float16's smallest number."""

    def tiny(w: Any, x: Any) -> Any:
        return (w * x * 2.0**-12).mean()

    x, want = np.ones(65536, np.float32), 2.0**-12  # d loss / d w
    grads = {}
    for scale in (1.0, 2.0**14):
        ts = fg.make_train_step(tiny, optim.sgd(1.0), precision="float16", loss_scale=StaticLossScale(scale))
        state, metrics = ts.step(ts.init(np.float32(0)), x)
        grads[scale] = -float(state.params)
        assert float(metrics["loss_scale"]) == scale
    assert grads[1.0] == 0.0
    assert grads[2.0**14] == pytest.approx(want, rel=2e-3)  # eleven bits


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_training_follows_float32(device: str, precision: str) -> None:
    scaling = DynamicLossScale(init_scale=2.0**10) if precision == "float16" else None
    narrow = fg.make_train_step(loss, optim.adam(0.05), precision=precision, loss_scale=scaling, max_grad_norm=10.0)
    wide = fg.make_train_step(loss, optim.adam(0.05), max_grad_norm=10.0)
    state, other = narrow.init(start()), wide.init(start())
    for _ in range(200):
        state, metrics = narrow.step(state, batch())
        other, exact = wide.step(other, batch())
    assert {x.dtype for x in fg.tree.leaves((state.params, state.opt_state))} <= {dtypes.float32, dtypes.int32}
    assert metrics["loss"].dtype == metrics["grad_norm"].dtype == dtypes.float32
    eps = 2.0**-10 if precision == "float16" else 2.0**-7
    for name in ("w", "b"):
        np.testing.assert_allclose(state.params[name], other.params[name], atol=4 * eps)
    assert float(exact["loss"]) < 0.05 and int(state.skipped) == 0
    assert (state.loss_scale is None) == (precision == "bfloat16")


@pytest.mark.parametrize("on_nonfinite", ["raise", "skip"])
def test_an_overflow_skips_the_update_and_halves_the_scale(device: str, on_nonfinite: Any) -> None:
    scaling = DynamicLossScale(init_scale=2.0**12, growth_interval=3)
    ts = fg.make_train_step(
        loss, optim.adam(0.05), precision="float16", loss_scale=scaling, on_nonfinite=on_nonfinite, max_grad_norm=1.0
    )
    state = ts.init(start())
    # The loss stays within float16, but not its gradient times 4096: |dloss/dw| is some 1e2 then.
    sequence = [1.0, 1.0, 1.0, 300.0, 1.0, 300.0, 1.0, 1.0, 1.0, 1.0]
    seen, finite = [], []
    for times in sequence:
        before = bits((state.params, state.opt_state, state.step))
        scale, skipped, made = float(state.loss_scale.scale), int(state.skipped), int(state.step)
        state, metrics = ts.step(state, batch(times))
        ok = bool(metrics["finite"])
        assert math.isfinite(float(metrics["loss"])) and float(metrics["loss_scale"]) == scale
        assert (before == bits((state.params, state.opt_state, state.step))) == (not ok)
        assert int(state.skipped) == int(metrics["skipped"]) == skipped + (not ok) and int(state.step) == made + ok
        finite.append(ok)
        seen.append((float(state.loss_scale.scale), int(state.loss_scale.growth_tracker)))
    assert seen == reference(finite, scaling)
    assert finite == [times == 1.0 for times in sequence]
    assert ts.step.captured.stats.traces == 1  # type: ignore[attr-defined]


def test_a_loss_that_is_not_finite_raises_and_changes_nothing(device: str) -> None:
    scaling = DynamicLossScale(init_scale=2.0**10)
    ts = fg.make_train_step(loss, optim.adam(0.05), precision="float16", loss_scale=scaling)
    state, _ = ts.step(ts.init(start()), batch())
    before = bits(state)
    for bad in (np.nan, np.inf, 1e30):
        with pytest.raises(NonFiniteError, match="loss ="):
            ts.step(state, batch(bad))
        assert bits(state) == before
    state, metrics = ts.step(state, batch())
    assert bool(metrics["finite"]) and int(state.step) == 2


def test_the_smallest_scale_does_not_try_again(device: str) -> None:
    for scaling in (DynamicLossScale(init_scale=2.0, min_scale=1.0), StaticLossScale(1.0)):
        ts = fg.make_train_step(
            lambda w, x: ((w * x).sum() * 300.0) / 300.0 * 300.0,
            optim.sgd(0.1),
            precision="float16",
            loss_scale=scaling,
        )
        state = ts.init(np.zeros(1, np.float32))
        if isinstance(scaling, DynamicLossScale):
            state, metrics = ts.step(state, np.full(1, 300.0, np.float32))
            assert not bool(metrics["finite"]) and float(state.loss_scale.scale) == 1.0
        before = bits(state)
        with pytest.raises(NonFiniteError, match="gradient of params"):
            ts.step(state, np.full(1, 300.0, np.float32))
        assert bits(state) == before


def test_a_skipped_nan_halves_the_scale_and_keeps_the_rest(device: str) -> None:
    scaling = DynamicLossScale(init_scale=2.0**10)
    ts = fg.make_train_step(
        loss, optim.adam(0.05), precision="float16", loss_scale=scaling, on_nonfinite="skip", has_aux=False
    )
    state, _ = ts.step(ts.init(start()), batch())
    before, scale = bits((state.params, state.opt_state, state.step)), float(state.loss_scale.scale)
    state, metrics = ts.step(state, batch(np.nan))
    assert bits((state.params, state.opt_state, state.step)) == before and int(metrics["skipped"]) == 1
    assert (float(state.loss_scale.scale), int(state.loss_scale.growth_tracker)) == (scale / 2, 0)


def test_accumulated_gradients_are_unscaled_and_lose_no_good_batch(device: str) -> None:
    """Three batches that count make one update of their mean, whatever overflows between them."""
    scaling = DynamicLossScale(init_scale=2.0**12)
    ts = fg.make_train_step(loss, optim.sgd(0.1), precision="float16", loss_scale=scaling, accumulate=3)
    state = ts.init(start())
    for times in (1.0, 300.0, 2.0, 3.0):
        state, metrics = ts.step(state, batch(times))
        assert bool(metrics["updated"]) == (times == 3.0)
    p = {k: v.astype(np.float64) for k, v in start().items()}
    error = X.astype(np.float64) @ p["w"] + p["b"] - Y
    slope = 2 * X.T.astype(np.float64) @ error / len(X)
    np.testing.assert_allclose(state.params["w"], p["w"] - 0.1 * slope * (1 + 2 + 3) / 3, atol=3e-3)
    assert int(state.step) == 1 and int(state.skipped) == 1


@pytest.mark.ggml
def test_one_upload_one_launch_one_download() -> None:
    with fg.default_device("cpu"):
        ts = fg.make_train_step(loss, optim.adam(0.05), precision="float16", max_grad_norm=1.0)
        state, _ = ts.step(ts.init(start()), batch())
        step = ts.step.captured  # type: ignore[attr-defined]
        before = step.stats.launches, step.stats.uploads, step.stats.traces
        for times in (1.0, 1e3, 1.0):
            with debug.expect(launches=1):
                state, _ = ts.step(state, batch(times))
        assert (step.stats.launches, step.stats.uploads, step.stats.traces) == (before[0] + 3, before[1] + 3, before[2])
        with debug.expect(launches=1, downloads=1):  # whether it was finite
            ts.step(state, batch())


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_networks_with_usual_activations(device: str, precision: str) -> None:
    def net(p: Any, b: Any) -> Any:
        h = fg.nn.relu(b["x"] @ p["w1"])
        h = fg.nn.gelu(fg.nn.LayerNorm(8)(h @ p["w2"]))
        return (fg.nn.log_softmax(h) ** 2).mean() + fg.nn.softmax(h).max() + (fg.nn.silu(h) * fg.nn.tanh(h)).mean()

    start = {"w1": RNG.normal(size=(8, 8)).astype("f") / 3, "w2": RNG.normal(size=(8, 8)).astype("f") / 3}
    results = []
    for p in (precision, None):
        ts = fg.make_train_step(net, optim.sgd(0.1), precision=p)
        state = ts.init(start)
        for _ in range(5):
            state, metrics = ts.step(state, batch())
        assert int(state.step) == 5
        results.append((float(metrics["loss"]), np.asarray(state.params["w1"]), np.asarray(state.params["w2"])))
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, atol=0.1 if precision == "bfloat16" else 0.02)


def test_parameters_may_be_narrow_too(device: str) -> None:
    ts = fg.make_train_step(loss, optim.adam(0.05), precision=Policy(params="bfloat16", compute="bfloat16"))
    state, metrics = ts.step(ts.init(start()), batch())
    assert {x.dtype for x in fg.tree.leaves((state.params, state.opt_state))} <= {dtypes.bfloat16, dtypes.int32}
    assert metrics["loss"].dtype == dtypes.float32


def test_aux_has_the_output_dtype(device: str) -> None:
    def with_aux(p: Any, b: Any) -> Any:
        out = b["x"] @ p["w"]
        return (out**2).mean(), {"out": out, "n": fnp.arange(2)}

    for policy, want in ((Policy(compute="bfloat16"), dtypes.float32), (Policy(output="float16"), dtypes.float16)):
        ts = fg.make_train_step(with_aux, optim.sgd(0.1), precision=policy, has_aux=True)
        aux = ts.step(ts.init(start()), batch())[1]["aux"]
        assert aux["out"].dtype == want and aux["n"].dtype == dtypes.int32


def test_fit_resumes_with_its_scale(device: str, tmp_path: Path) -> None:
    scaling = DynamicLossScale(init_scale=2.0**12, growth_interval=3)
    ts = fg.make_train_step(loss, optim.adam(0.05), precision="float16", loss_scale=scaling)
    rows = [batch(t) for t in (1.0, 300.0, 1.0, 1.0, 1.0, 300.0)]
    whole, history = training.fit(ts, ts.init(start()), rows, epochs=2, progress=False)
    path = tmp_path / "run.safetensors"
    training.fit(ts, ts.init(start()), rows, steps=4, progress=False, checkpoint=path)
    again, resumed = training.fit(ts, ts.init(start()), rows, epochs=2, progress=False, checkpoint=path)
    assert bits(again) == bits(whole)
    assert resumed.steps["loss_scale"].tolist() == history.steps["loss_scale"].tolist()
    finite = [b["times"] == 1.0 for b in rows * 2]
    before = [scaling.init_scale, *[s for s, _ in reference(finite, scaling)][:-1]]
    assert history.steps["loss_scale"].tolist() == before and int(whole.skipped) == 4
