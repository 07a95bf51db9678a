"""Schedules against their formulas in plain Python floats; ggmlR's five schedulers replayed call by call."""

from __future__ import annotations

import math

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import optim


def values(schedule, steps):
    """The schedule at steps 0, 1, ..., as a Python int; traced int32 and float32 steps must agree."""
    out = [float(schedule(t)) for t in range(steps)]
    for dtype in (fnp.int32, fnp.float32):
        jitted = fg.jit(lambda t: fnp.asarray(schedule(t), dtype=fnp.float32))
        for t in range(0, steps, max(1, steps // 7)):
            assert float(jitted(fnp.asarray(t, dtype=dtype))) == pytest.approx(out[t], rel=2e-6, abs=1e-7)
    return out


def check(schedule, formula, steps=60, tol=3e-6):
    np.testing.assert_allclose(values(schedule, steps), [formula(t) for t in range(steps)], rtol=tol, atol=1e-7)


def cosine(t, total):
    return 0.5 * (1 + math.cos(math.pi * min(t, total) / total))


def test_simple_schedules():
    check(optim.constant(0.3), lambda t: 0.3)
    check(optim.linear(1.0, 0.2, 20, 5), lambda t: 1 - 0.8 * min(max(t - 5, 0), 20) / 20)
    check(optim.polynomial(1.0, 0.2, 3, 20), lambda t: 0.2 + 0.8 * (1 - min(t, 20) / 20) ** 3)
    check(optim.polynomial(1.0, 0.2, 0.5, 20), lambda t: 0.2 + 0.8 * (1 - min(t, 20) / 20) ** 0.5)
    check(optim.exponential_decay(2.0, 10, 0.3), lambda t: 2 * 0.3 ** (t / 10))
    check(optim.exponential_decay(2.0, 10, 0.3, 7, True), lambda t: 2 * 0.3 ** max(0, (t - 7) // 10))
    check(optim.exponential_decay(2.0, 10, 0.3, end_value=0.1), lambda t: max(0.1, 2 * 0.3 ** (t / 10)))
    check(optim.exponential_decay(2.0, 10, 1.3, end_value=3.0), lambda t: min(3.0, 2 * 1.3 ** (t / 10)))
    check(optim.step_decay(2.0, 7, 0.5), lambda t: 2 * 0.5 ** (t // 7))
    check(optim.piecewise(2.0, {7: 0.5, 20: 0.1}), lambda t: 2.0 if t < 7 else 1.0 if t < 20 else 0.1)
    check(optim.cosine_decay_schedule(2.0, 30, 0.1, 2.0), lambda t: 2 * (0.9 * cosine(t, 30) ** 2 + 0.1))
    check(optim.warmup_constant(0.1, 1.0, 9), lambda t: 0.1 + 0.9 * min(t, 9) / 9)


def test_joined_schedules():
    check(
        optim.warmup_cosine_decay_schedule(0.1, 1.0, 10, 40, 0.05),
        lambda t: 0.1 + 0.9 * t / 10 if t < 10 else 0.05 + 0.95 * cosine(t - 10, 30),
    )
    check(
        optim.warmup_exponential_decay(0.1, 1.0, 10, 5, 0.5),
        lambda t: 0.1 + 0.9 * t / 10 if t < 10 else 0.5 ** ((t - 10) / 5),
    )
    cycle = {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 2, "decay_steps": 10}
    check(
        optim.sgdr_schedule([cycle, {**cycle, "peak_value": 0.5, "decay_steps": 20}]),
        lambda t: (
            (t / 2 if t < 2 else cosine(t - 2, 8)) if t < 10 else 0.5 * ((t - 10) / 2 if t < 12 else cosine(t - 12, 18))
        ),
    )
    check(
        optim.join_schedules([optim.constant(0.5), optim.linear(1.0, 0.0, 4), optim.constant(0.7)], [3, 9]),
        lambda t: 0.5 if t < 3 else max(0.0, 1 - (t - 3) / 4) if t < 9 else 0.7,
    )


def test_one_cycle():
    def curve(t):
        return 0.5 * (1 - math.cos(math.pi * t))

    check(
        optim.cosine_onecycle_schedule(40, 2.0, 0.25, 10.0, 100.0),
        lambda t: 0.2 + 1.8 * curve(t / 10) if t < 10 else 2 + (0.002 - 2) * curve(min(1, (t - 10) / 30)),
    )
    check(
        optim.linear_onecycle_schedule(40, 2.0, 0.25, 0.75, 10.0, 100.0),
        lambda t: (
            0.2 + 1.8 * t / 10
            if t < 10
            else 2 - 1.8 * (t - 10) / 20
            if t < 30
            else 0.2 + (0.002 - 0.2) * min(1, (t - 30) / 10)
        ),
    )


@pytest.mark.parametrize(("mode", "gamma"), [("triangular", 1.0), ("triangular2", 1.0), ("exp_range", 0.97)])
def test_cyclic(mode, gamma):
    up, down = 5, 8

    def formula(t):
        cycle, place = divmod(t, up + down)
        rise = place / up if place <= up else 1 - (place - up) / down
        return 0.1 + 0.9 * rise * {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": gamma**t}[mode]

    check(optim.cyclic_schedule(0.1, 1.0, up, down, mode, gamma), formula, 100)


def test_cyclic_stays_exact_after_many_steps():
    """Whole cycles are removed in integers: float32 has no odd steps past 2**24."""
    schedule = optim.cyclic_schedule(0.0, 1.0, 4)
    steps = [2**24 + i for i in range(9)]
    got = [float(schedule(fnp.asarray(t, dtype=fnp.int32))) for t in steps]
    assert got == [1 - abs(t % 8 - 4) / 4 for t in steps]


@pytest.mark.parametrize(("first", "t_mult"), [(5, 1.0), (5, 2.0), (7, 1.5), (10, 1.01), (3, 3.0)])
def test_restarts(first, t_mult):
    def formula(t):
        length = first
        while t >= length:
            t, length = t - length, round(length * t_mult)
        return 2 * (0.9 * 0.5 * (1 + math.cos(math.pi * t / length)) + 0.1)

    check(optim.cosine_restarts(2.0, first, t_mult, 0.1), formula, 200)


def test_restarts_near_the_last_int32_step():
    value = float(optim.cosine_restarts(1.0, 2, 2.0)(fnp.asarray(2**31 - 1, dtype=fnp.int32)))
    begin, length = 2**31 - 2, 2**31  # periods 2, 4, ..., 2**30 fill the first 2**31 - 2 steps
    assert value == pytest.approx(0.5 * (1 + math.cos(math.pi * (2**31 - 1 - begin) / length)), abs=1e-6)


class GgmlR:
    """ggmlR's schedulers as their documentation states them: objects whose ``step`` sets the rate."""

    @staticmethod
    def step(lr, size, gamma, calls):
        return [lr * gamma ** (i // size) for i in range(1, calls + 1)]

    @staticmethod
    def cosine(lr, t_max, lr_min, calls):
        return [lr_min + (lr - lr_min) / 2 * (1 + math.cos(math.pi * min(i, t_max - 1) / t_max)) for i in range(calls)]

    @staticmethod
    def onecycle(peak, total, start, div, final, i):
        rise = int(start * total)
        if i < rise:
            return peak / div + (peak - peak / div) * 0.5 * (1 - math.cos(math.pi * i / rise))
        part = (i - rise) / (total - rise)
        return peak + (peak / final - peak) * 0.5 * (1 - math.cos(math.pi * part))


def test_ggmlr_schedulers_are_expressible():
    step = optim.step_decay(0.1, 3, 0.5)
    np.testing.assert_allclose([float(step(t)) for t in range(1, 11)], GgmlR.step(0.1, 3, 0.5, 10), rtol=1e-6)

    lr, low, t_max = 0.1, 0.01, 8
    decay = optim.cosine_decay_schedule(lr, t_max, low / lr)
    mine = [float(decay(fnp.minimum(fnp.asarray(t), t_max - 1))) for t in range(12)]
    np.testing.assert_allclose(mine, GgmlR.cosine(lr, t_max, low, 12), rtol=2e-6)

    cycle = optim.cosine_onecycle_schedule(40, 0.1, 0.3, 25.0, 1e4 / 25.0)
    want = [GgmlR.onecycle(0.1, 40, 0.3, 25.0, 1e4, i) for i in range(41)]
    np.testing.assert_allclose([float(cycle(t)) for t in range(41)], want, rtol=1e-4, atol=1e-8)

    warm = optim.warmup_cosine_decay_schedule(0.001, 0.1, 5, 20, 0.01)
    want = [0.001 + 0.099 * t / 5 if t < 5 else 0.01 + 0.09 * cosine(t - 5, 15) for t in range(25)]
    np.testing.assert_allclose([float(warm(t)) for t in range(25)], want, rtol=2e-6)


def test_momentum_can_cycle_against_the_learning_rate():
    rise, total = 12, 40
    beta = optim.piecewise_interpolate_schedule("cosine", 0.95, {rise: 0.85 / 0.95, total: 0.95 / 0.85})
    opt = optim.inject_hyperparams(optim.adam)(optim.cosine_onecycle_schedule(total, 0.1), b1=beta)
    state, seen = opt.init(fnp.zeros(2)), {}
    for i in range(total + 1):
        _, state = opt.update(fnp.ones(2), state)
        seen[i] = (float(state.hyperparams["learning_rate"]), float(state.hyperparams["b1"]))
    assert seen[0] == pytest.approx((0.1 / 25, 0.95))
    assert seen[rise] == pytest.approx((0.1, 0.85))
    assert seen[total] == pytest.approx((0.1 / 25e4, 0.95), rel=1e-2)


def test_a_schedule_inside_a_jitted_loop_never_retraces():
    schedule = optim.warmup_cosine_decay_schedule(0.0, 1.0, 5, 20)
    traces = []

    @fg.jit
    def step(count):
        traces.append(1)
        return schedule(count), count + 1

    count = fnp.asarray(0, dtype=fnp.int32)
    for t in range(25):
        value, count = step(count)
        assert float(value) == pytest.approx(t / 5 if t < 5 else cosine(t - 5, 15), abs=1e-6)
    assert len(traces) == 1


def test_aliases_are_the_same_functions():
    for ours, theirs in (
        ("constant", "constant_schedule"),
        ("linear", "linear_schedule"),
        ("polynomial", "polynomial_schedule"),
        ("piecewise", "piecewise_constant_schedule"),
        ("warmup_constant", "warmup_constant_schedule"),
        ("warmup_exponential_decay", "warmup_exponential_decay_schedule"),
    ):
        assert getattr(optim, ours) is getattr(optim, theirs)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: optim.step_decay(0.1, 0), "step_size must be at least 1"),
        (lambda: optim.step_decay(0.1, 5, 0.0), "gamma must be in"),
        (lambda: optim.cosine_decay_schedule(0.1, 0), "decay_steps must be in"),
        (lambda: optim.cosine_restarts(0.1, 5, 0.5), "t_mult must be in"),
        (lambda: optim.cyclic_schedule(0.1, 1.0, mode="square"), "mode must be"),
        (lambda: optim.cyclic_schedule(0.1, 1.0, 0), "step_size_up must be at least 1"),
        (lambda: optim.cosine_onecycle_schedule(0, 0.1), "transition_steps must be at least 1"),
        (lambda: optim.linear_onecycle_schedule(10, 0.1, 0.9, 0.5), "pct_final must not be less"),
        (lambda: optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 10), "decay_steps must be more"),
        (lambda: optim.join_schedules([optim.constant(1.0)], [3]), "one boundary between"),
        (lambda: optim.join_schedules([optim.constant(1.0)] * 3, [5, 3]), "must not decrease"),
        (lambda: optim.piecewise(0.1, {5: -1.0}), "scale at 5 must be in"),
        (lambda: optim.piecewise_interpolate_schedule("square", 0.1, {5: 1.0}), "interpolate_type must be"),
        (lambda: optim.exponential_decay(0.1, 10, -0.5), "decay_rate must be in"),
        (lambda: optim.sgdr_schedule([]), "at least one cycle"),
    ],
)
def test_bad_arguments_are_value_errors(make, words):
    with pytest.raises(ValueError, match=words):
        make()
