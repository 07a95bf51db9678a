"""Clipping, masks, accumulation, hyperparameters in the state and the other wrappers, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import optim, tree

PARAMS = {"w": np.array([[1.0, -2.0], [0.5, 3.0]], np.float32), "b": np.array([0.1, -0.2], np.float32)}


def arrays(values):
    return tree.map(fnp.asarray, values)


def make_grads(seed):
    r = np.random.default_rng(seed)
    return {"w": r.normal(0, 1, (2, 2)).astype(np.float32), "b": r.normal(0, 1, 2).astype(np.float32)}


def signature(values):
    return tree.structure(values), [(x.shape, str(x.dtype)) for x in tree.leaves(values)]


def run(opt, steps, params=PARAMS, jit=True):
    params = arrays(params)
    state = opt.init(params)
    types, step = signature(state), (fg.jit if jit else lambda f: f)(opt.update)
    out = []
    for i in range(steps):
        updates, state = step(arrays(make_grads(i)), state, params)
        assert signature(state) == types
        params = optim.apply_updates(params, updates)
        out.append({k: np.asarray(v) for k, v in updates.items()})
    return out, state


def norm64(values):
    return np.sqrt(sum(np.sum(np.asarray(x, np.float64) ** 2) for x in tree.leaves(values)))


@pytest.mark.parametrize("size", [1e-37, 1e-30, 1e-20, 1e-6, 1.0, 1e6, 1e20, 1e30, 1e38])
def test_global_norm_of_any_size(size):
    values = {"a": np.array([3.0, -4.0], np.float32) * np.float32(size / 13), "b": np.float32(12.0 * size / 13)}
    got = float(fg.jit(optim.global_norm)(arrays(values)))
    assert got == pytest.approx(norm64(values), rel=2e-6)


def test_global_norm_of_what_is_not_finite():
    assert float(optim.global_norm({})) == 0.0
    assert float(optim.global_norm(arrays({"a": np.zeros(3, np.float32)}))) == 0.0
    assert float(optim.global_norm(fnp.asarray([1.0, float("inf")]))) == float("inf")
    assert np.isnan(float(optim.global_norm(fnp.asarray([1.0, float("nan")]))))
    assert np.isnan(float(optim.global_norm(fnp.asarray([float("inf"), float("nan")]))))


@pytest.mark.parametrize("size", [1e-37, 1e-9, 1e-3, 1.0, 1e10, 1e30, 1e36])
@pytest.mark.parametrize("limit", [0.1, 1.0, 50.0])
def test_clip_by_global_norm(size, limit):
    """min(1, limit / (norm + 1e-6)) in float64, also where float32 cannot hold the norm."""
    values = {"a": np.full((3, 3), size, np.float32), "b": np.array([-size, 0.5 * size], np.float32)}
    updates, _ = fg.jit(optim.clip_by_global_norm(limit).update)(arrays(values), optim.EmptyState())
    factor = min(1.0, limit / (norm64(values) + 1e-6))
    for key in values:
        np.testing.assert_allclose(np.asarray(updates[key]), values[key] * factor, rtol=3e-6)


def test_clip_adds_its_epsilon_to_the_norm():
    values = np.array([3e-5, -4e-5], np.float32)
    updates, _ = optim.clip_by_global_norm(1e-5).update(fnp.asarray(values), ())
    np.testing.assert_allclose(np.asarray(updates), values * 1e-5 / 5.1e-5, rtol=1e-5)


def test_clip_where_float32_cannot_hold_the_norm():
    """Twelve elements of 1e38 have the norm 3.5e38; the factor is still right, to the digits of a small number."""
    values = np.full((3, 4), 1e38, np.float32)
    updates, _ = optim.clip_by_global_norm(1e3).update(fnp.asarray(values), ())
    np.testing.assert_allclose(np.asarray(updates), np.full((3, 4), 1e3 / np.sqrt(12)), rtol=1e-5)


def test_clip_leaves_small_gradients_bitwise_alone():
    values = make_grads(0)
    updates, _ = optim.clip_by_global_norm(100.0).update(arrays(values), ())
    for key in values:
        np.testing.assert_array_equal(np.asarray(updates[key]), values[key])


def test_clip_limit_can_be_an_array():
    clipped, norm = fg.jit(optim.clip_with_norm)(fnp.asarray([3.0, 4.0]), fnp.asarray(2.5))
    np.testing.assert_allclose(np.asarray(clipped), [1.5, 2.0], rtol=1e-6)
    assert float(norm) == 5.0


@pytest.mark.parametrize("limit", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["clip", "clip_by_global_norm", "clip_by_block_rms", "adaptive_grad_clip"])
def test_clip_limits_must_be_positive_and_finite(name, limit):
    with pytest.raises(ValueError, match="must be in"):
        getattr(optim, name)(limit)


def test_clip_keeps_nan_and_clamps_infinity():
    updates, _ = optim.clip(0.5).update(fnp.asarray([float("nan"), float("inf"), -3.0, 0.2]), ())
    np.testing.assert_array_equal(np.asarray(updates), np.array([np.nan, 0.5, -0.5, 0.2], np.float32))


def test_per_example_clip():
    grads = {"a": np.random.default_rng(0).normal(0, 1, (5, 3)), "b": np.random.default_rng(1).normal(0, 1, 5)}
    norms = np.sqrt(np.sum(grads["a"] ** 2, axis=1) + grads["b"] ** 2)
    factors = np.minimum(1.0, 1.2 / norms)
    total, count = optim.per_example_global_norm_clip(arrays(tree.map(np.float32, grads)), 1.2)
    np.testing.assert_allclose(np.asarray(total["a"]), factors @ grads["a"], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(total["b"]), factors @ grads["b"], rtol=1e-5)
    assert int(count) == np.sum(norms > 1.2)
    with pytest.raises(ValueError, match="same number of examples"):
        optim.per_example_global_norm_clip({"a": fnp.ones((2, 3)), "b": fnp.ones(3)}, 1.0)


def test_accumulation_equals_one_update_with_the_mean():
    """Adam after two groups of three calls is Adam after two calls with the means; other calls change nothing."""
    for mean in (True, False):
        got, state = run(optim.MultiSteps(optim.adam(0.1), 3, use_grad_mean=mean).gradient_transformation(), 6)
        opt = optim.adam(0.1)
        plain = opt.init(arrays(PARAMS))
        for i in range(2):
            group = [make_grads(3 * i + j) for j in range(3)]
            total = {k: np.sum([g[k] for g in group], axis=0) / (3 if mean else 1) for k in PARAMS}
            want, plain = opt.update(arrays(total), plain)
            for key in PARAMS:
                np.testing.assert_array_equal(got[3 * i][key], 0.0)
                np.testing.assert_array_equal(got[3 * i + 1][key], 0.0)
                np.testing.assert_allclose(got[3 * i + 2][key], np.asarray(want[key]), rtol=1e-5)
        assert (int(state.mini_step), int(state.gradient_step), int(state.inner_opt_state[0].count)) == (0, 2, 2)


def test_accumulation_can_skip_bad_gradients():
    opt = optim.MultiSteps(optim.sgd(1.0), 2, should_skip_update_fn=optim.skip_not_finite)
    params = fnp.zeros(2)
    state = opt.init(params)
    step = fg.jit(opt.update)
    for row in ([1.0, 2.0], [float("nan"), 1.0], [3.0, 4.0]):
        updates, state = step(fnp.asarray(row), state, params)
    np.testing.assert_allclose(np.asarray(updates), [-2.0, -3.0])
    assert int(state.gradient_step) == 1
    assert not bool(state.skip_state["should_skip"])


def test_accumulation_over_a_growing_number_of_calls():
    opt = optim.MultiSteps(optim.sgd(1.0), lambda count: 1 + count)
    state, step, emitted = opt.init(fnp.zeros(1)), fg.jit(opt.update), []
    for _ in range(10):
        updates, state = step(fnp.ones(1), state, None)
        emitted.append(float(updates[0]) != 0.0)
    assert emitted == [True, False, True, False, False, True, False, False, False, True]


def test_apply_if_finite_refuses_and_then_gives_up():
    opt = optim.apply_if_finite(optim.adam(0.1), 2)
    good, bad = fnp.asarray([1.0, 2.0]), fnp.asarray([1.0, float("nan")])
    step = fg.jit(opt.update)
    _, before = step(good, opt.init(good), None)
    state = before
    for i in range(2):
        updates, state = step(bad, state, None)
        np.testing.assert_array_equal(np.asarray(updates), 0.0)
        assert (int(state.notfinite_count), bool(state.last_finite)) == (i + 1, False)
        for old, new in zip(tree.leaves(before.inner_state), tree.leaves(state.inner_state), strict=True):
            np.testing.assert_array_equal(np.asarray(old), np.asarray(new))
    updates, healed = step(good, state, None)
    want, _ = step(good, before, None)
    np.testing.assert_array_equal(np.asarray(updates), np.asarray(want))
    assert (int(healed.notfinite_count), int(healed.total_notfinite)) == (0, 2)
    updates, state = step(bad, state, None)
    assert np.isnan(np.asarray(updates)).any()


def test_hyperparameters_are_leaves_of_the_state():
    opt = optim.inject_hyperparams(optim.adamw)(0.1, b1=0.5, weight_decay=optim.linear(0.0, 0.1, 10))
    params = arrays(PARAMS)
    state = opt.init(params)
    names = ["b1", "b2", "eps", "eps_root", "learning_rate", "weight_decay"]
    assert sorted(state.hyperparams) == names
    assert {(x.shape, str(x.dtype)) for x in state.hyperparams.values()} == {((), "float32")}
    step, types = fg.jit(opt.update), signature(state)
    for i, rate in enumerate((0.1, 0.01, 1.0)):
        state.hyperparams["learning_rate"] = fnp.asarray(np.float32(rate))
        plain = optim.adamw(rate, b1=0.5, weight_decay=0.01 * i)
        want, _ = plain.update(arrays(make_grads(i)), state.inner_state, params)
        updates, state = step(arrays(make_grads(i)), state, params)
        assert signature(state) == types
        assert float(state.hyperparams["weight_decay"]) == pytest.approx(0.01 * i, abs=1e-7)
        for key in PARAMS:
            # b2 = 0.999 as a float32 leaves 1 - b2 four digits
            np.testing.assert_allclose(np.asarray(updates[key]), np.asarray(want[key]), rtol=5e-5)


def test_inject_hyperparams_keeps_sizes_and_checks_values():
    opt = optim.inject_hyperparams(optim.muon)(0.1)
    params = arrays(PARAMS)
    state = opt.init(params)
    assert "ns_steps" not in state.hyperparams and "beta" in state.hyperparams
    updates, _ = opt.update(params, state, params)
    assert signature(updates) == signature(params)
    with pytest.raises(ValueError, match="b1 must be in"):
        optim.inject_hyperparams(optim.adam)(0.1, b1=2.0)
    with pytest.raises(ValueError, match="static_args must be parameters"):
        optim.inject_hyperparams(optim.adam, static_args="beta")
    fixed = optim.inject_hyperparams(optim.adam, static_args=("b1", "b2"))(0.1)
    assert sorted(fixed.init(params).hyperparams) == ["eps", "eps_root", "learning_rate"]


def test_masks_and_labels():
    halves = {"w": "a", "b": "b"}
    got, state = run(optim.partition({"a": optim.sgd(1.0, momentum=0.9), "b": optim.set_to_zero()}, halves), 3)
    alone, _ = run(optim.sgd(1.0, momentum=0.9), 3)
    for a, b in zip(got, alone, strict=True):
        np.testing.assert_array_equal(a["w"], b["w"])
        np.testing.assert_array_equal(a["b"], 0.0)
    assert [x.shape for x in tree.leaves(state)] == [(2, 2)]
    by_function = optim.partition(
        {"matrix": optim.sgd(1.0), "vector": optim.sgd(0.5)},
        lambda params: tree.map(lambda x: "matrix" if x.ndim == 2 else "vector", params),
    )
    got, _ = run(by_function, 1)
    np.testing.assert_array_equal(got[0]["w"], -make_grads(0)["w"])
    np.testing.assert_array_equal(got[0]["b"], -0.5 * make_grads(0)["b"])
    with pytest.raises(ValueError, match="every label needs an optimizer"):
        optim.partition({"a": optim.sgd(1.0)}, halves).init(arrays(PARAMS))


def test_upper_part_of_a_tree_as_mask():
    params = {"encoder": {"w": fnp.ones(2), "b": fnp.ones(2)}, "head": fnp.ones(2)}
    opt = optim.chain(optim.sgd(1.0), optim.freeze({"encoder": True, "head": False}))
    updates, _ = opt.update(params, opt.init(params), params)
    assert [float(x[0]) for x in (updates["encoder"]["w"], updates["encoder"]["b"], updates["head"])] == [0, 0, -1]


def test_weight_decay_mask():
    opt = optim.add_decayed_weights(0.5, {"w": True, "b": False})
    updates, _ = opt.update(arrays(make_grads(0)), opt.init(arrays(PARAMS)), arrays(PARAMS))
    np.testing.assert_allclose(np.asarray(updates["w"]), make_grads(0)["w"] + 0.5 * PARAMS["w"], rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(updates["b"]), make_grads(0)["b"])


def test_flattened_optimizer_gives_the_same_updates():
    joined, state = run(optim.flatten(optim.adamw(0.1)), 5)
    apart, _ = run(optim.adamw(0.1), 5)
    for a, b in zip(joined, apart, strict=True):
        for key in PARAMS:
            np.testing.assert_allclose(a[key], b[key], rtol=1e-6)
    assert [x.shape for x in tree.leaves(state)] == [(), (6,), (6,)]
    with pytest.raises(ValueError, match="one dtype"):
        optim.flatten(optim.sgd(0.1)).init({"a": fnp.ones(2), "b": fnp.ones(2, dtype=fnp.float16)})


def test_reduce_on_plateau():
    opt = optim.reduce_on_plateau(0.5, patience=2, cooldown=1, min_scale=0.2)
    state = opt.init(None)
    types, step, scales = signature(state), fg.jit(opt.update), []
    for value in (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5):
        updates, state = step(fnp.ones(()), state, None, value=fnp.asarray(value))
        assert signature(state) == types
        scales.append(float(updates))
    # by hand: two checks without improvement reduce, the next is not counted, and so on; never below 0.2
    assert scales == pytest.approx([1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2, 0.2, 0.2, 0.2, 0.2])
    with pytest.raises(ValueError, match="factor must be in"):
        optim.reduce_on_plateau(1.5)
    with pytest.raises(ValueError, match="rtol or atol"):
        optim.reduce_on_plateau(rtol=0.0)


def test_lookahead_by_hand():
    opt = optim.lookahead(optim.sgd(1.0), 2, 0.5)
    params = optim.LookaheadParams.init_synced(fnp.asarray(1.0))
    state, fast, slow = opt.init(params), 1.0, 1.0
    for i in range(6):
        updates, state = opt.update(fnp.asarray(0.25 * (i + 1)), state, params)
        params = optim.apply_updates(params, updates)
        fast -= 0.25 * (i + 1)
        if i % 2 == 1:
            slow += 0.5 * (fast - slow)
            fast = slow
        assert (float(params.fast), float(params.slow)) == pytest.approx((fast, slow))
    with pytest.raises(TypeError, match="LookaheadParams"):
        opt.update(fnp.asarray(1.0), state, fnp.asarray(1.0))


def test_averages_and_decay_schedules():
    got, _ = run(optim.ema(0.8), 4)
    average = np.zeros((2, 2))
    for i in range(4):
        average = 0.8 * average + 0.2 * make_grads(i)["w"].astype(np.float64)
        np.testing.assert_allclose(got[i]["w"], average / (1 - 0.8 ** (i + 1)), rtol=2e-6, atol=1e-7)
    opt = optim.add_decayed_weights(optim.linear(0.0, 1.0, 4))
    params, state = fnp.ones(()), optim.add_decayed_weights(optim.linear(0.0, 1.0, 4)).init(None)
    decays = []
    for _ in range(5):
        updates, state = opt.update(fnp.zeros(()), state, params)
        decays.append(float(updates))
    assert decays == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_noise_has_the_promised_variance_and_does_not_repeat():
    opt = optim.add_noise(0.5, 1.0, 3)
    zeros = {"a": fnp.zeros(20000), "b": fnp.zeros(20000)}
    state = opt.init(zeros)
    first, state = opt.update(zeros, state)
    second, state = opt.update(zeros, state)
    a, b, c = (np.asarray(x, np.float64) for x in (first["a"], first["b"], second["a"]))
    assert np.var(a) == pytest.approx(0.5, rel=0.05) and np.var(c) == pytest.approx(0.25, rel=0.05)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.03 and abs(np.corrcoef(a, c)[0, 1]) < 0.03


def test_users_own_transformations_work_in_a_chain():
    def update(grads, state, params=None):
        return tree.map(lambda g: 3.0 * g, grads), state

    def noisy(grads, state, params=None, *, factor, **extra):
        return tree.map(lambda g: factor * g, grads), state

    own = optim.GradientTransformation(lambda params: (), update)
    extra = optim.GradientTransformationExtraArgs(lambda params: (), noisy)
    opt = optim.chain(own, extra, optim.scale(-1.0))
    updates, _ = opt.update(fnp.ones(()), opt.init(fnp.ones(())), None, factor=2.0)
    assert float(updates) == -6.0
    with pytest.raises(ValueError, match="call init first"):
        opt.update(fnp.ones(()), (), None, factor=2.0)


def test_counts_stop_at_the_largest_int32():
    opt = optim.adam(0.1)
    state = opt.init(fnp.ones(1))
    state = (state[0]._replace(count=fnp.asarray(2**31 - 1, dtype=fnp.int32)), *state[1:])
    updates, state = opt.update(fnp.ones(1), state)
    assert int(state[0].count) == 2**31 - 1
    assert np.isfinite(np.asarray(updates)).all()


def test_hyperparameters_change_without_a_retrace():
    opt = optim.chain(optim.clip(10.0), optim.inject_hyperparams(optim.sgd)(0.5, momentum=0.0))
    step = fg.jit(opt.update, max_traces=1)
    grads, state = fnp.ones(2), opt.init(fnp.ones(2))
    for rate in (0.5, 0.25, 2.0):
        state = optim.with_hyperparams(state, learning_rate=rate)
        updates, state = step(grads, state, None)
        np.testing.assert_array_equal(np.asarray(updates), -rate)
    with pytest.raises(ValueError, match="must hold the hyperparameters"):
        optim.with_hyperparams(state, rate=1.0)
    with pytest.raises(ValueError, match=r"shape \(\) is required"):
        optim.with_hyperparams(state, learning_rate=fnp.ones(2))


def test_hyperparameters_of_a_train_step():
    ts = fg.make_train_step(lambda w, batch: fnp.sum(w * batch), optim.inject_hyperparams(optim.sgd)(0.5))
    state = ts.init(fnp.zeros(2))
    for rate in (0.5, 0.125):
        before = np.asarray(state.params)
        state, _ = ts.step(optim.with_hyperparams(state, learning_rate=rate), fnp.ones(2))
        np.testing.assert_allclose(np.asarray(state.params), before - rate)


def test_multi_steps_prints_what_it_accumulates() -> None:
    def growing(count):
        return 1 + count

    assert (
        repr(optim.MultiSteps(optim.sgd(1.0), 4)) == f"MultiSteps({optim.with_extra_args_support(optim.sgd(1.0))!r}, 4)"
    )
    assert repr(optim.MultiSteps(optim.adam(1.0), growing)).endswith(", growing)")
