"""Schedules: pure functions of the step that give a hyperparameter's value.

A schedule takes the step as a Python number, an int32 or a float32 scalar, traced or not, and gives a float32 scalar
(or the plain number it was made from, when it is constant). Steps count from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import funcgrad.numpy as fnp
from funcgrad.optim.base import Scalar, Schedule, cast, require, require_int

__all__ = [
    "constant",
    "constant_schedule",
    "cosine_decay_schedule",
    "exponential_decay",
    "join_schedules",
    "linear",
    "linear_schedule",
    "piecewise",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "polynomial",
    "polynomial_schedule",
    "sgdr_schedule",
    "step_decay",
    "warmup_constant",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay",
    "warmup_exponential_decay_schedule",
]


def as_float(x: Any) -> Any:
    """The step as a float32 scalar."""
    return cast(fnp.asarray(x), fnp.float32)


def constant(value: Scalar) -> Schedule:
    """The same value at every step.

    >>> constant(0.1)(1000)
    0.1
    """
    return lambda step: value


def polynomial(
    init_value: Scalar, end_value: Scalar, power: Scalar, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From ``init_value`` to ``end_value`` along ``(1 - s / transition_steps) ** power``, constant before and after.

    ``s`` is the step minus ``transition_begin``. With ``transition_steps`` of 0 or less the value is ``init_value``
    throughout, as in optax.

    >>> float(polynomial(1.0, 0.0, 2, 10)(5))
    0.25
    """
    require("polynomial", "(-inf, inf)", init_value=init_value, end_value=end_value)
    if transition_steps <= 0:
        return constant(init_value)
    begin = max(transition_begin, 0)

    def schedule(step: Any) -> Any:
        passed = fnp.clip(fnp.asarray(step) - begin, 0, transition_steps)
        left = as_float(transition_steps - passed) / transition_steps  # never below 0, where a power would be NaN
        weight = left if power == 1 else left**power
        return init_value * weight + end_value * (1.0 - weight)  # exact at both ends

    return schedule


def linear(init_value: Scalar, end_value: Scalar, transition_steps: int, transition_begin: int = 0) -> Schedule:
    """A straight line from ``init_value`` to ``end_value`` over ``transition_steps``, constant before and after.

    >>> [float(linear(0.0, 1.0, 4)(t)) for t in range(6)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """
    return polynomial(init_value, end_value, 1, transition_steps, transition_begin)


def exponential_decay(
    init_value: Scalar,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: Scalar | None = None,
) -> Schedule:
    """``init_value * decay_rate ** (s / transition_steps)`` with ``s`` the step minus ``transition_begin``.

    With ``staircase`` the exponent is rounded down. ``end_value`` bounds the result: from below when ``decay_rate``
    is under 1, from above otherwise. A ``decay_rate`` of 0 or ``transition_steps`` of 0 or less give a constant, as
    in optax.

    >>> float(exponential_decay(1.0, 10, 0.25)(5))
    0.5
    """
    require("exponential_decay", "[0, inf)", decay_rate=decay_rate)
    if transition_steps <= 0 or decay_rate == 0:
        return constant(init_value)
    begin = max(transition_begin, 0)

    def schedule(step: Any) -> Any:
        since = fnp.asarray(step) - begin
        exponent = as_float(since) / transition_steps
        exponent = fnp.floor(exponent) if staircase else exponent
        value = init_value * fnp.power(decay_rate, exponent)
        value = fnp.where(since <= 0, init_value, value)
        if end_value is None:
            return value
        return fnp.maximum(value, end_value) if decay_rate < 1.0 else fnp.minimum(value, end_value)

    return schedule


def step_decay(init_value: Scalar, step_size: int, gamma: float = 0.1) -> Schedule:
    """``init_value * gamma ** floor(step / step_size)``: the value drops every ``step_size`` steps.

    This is ggmlR's ``lr_scheduler_step`` and PyTorch's ``StepLR``.

    >>> [round(float(step_decay(1.0, 2, 0.5)(t)), 3) for t in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    require_int("step_decay", 1, step_size=step_size)
    require("step_decay", "(0, inf)", gamma=gamma)

    def schedule(step: Any) -> Any:
        return init_value * fnp.power(gamma, as_float(fnp.asarray(step) // step_size))

    return schedule


def piecewise(init_value: Scalar, boundaries_and_scales: Mapping[int, float] | None = None) -> Schedule:
    """A constant that is multiplied by a scale from each boundary on.

    >>> s = piecewise(1.0, {2: 0.5, 4: 0.1})
    >>> [round(float(s(t)), 3) for t in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.05, 0.05]
    """
    steps = sorted((boundaries_and_scales or {}).items())
    for boundary, scale in steps:
        require("piecewise", "[0, inf)", **{f"scale at {boundary}": scale})

    def schedule(step: Any) -> Any:
        now, value, out = fnp.asarray(step), init_value, init_value
        for boundary, scale in steps:
            value = value * scale
            out = fnp.where(now >= boundary, value, out)
        return out

    return schedule


def piecewise_interpolate_schedule(
    interpolate_type: str, init_value: Scalar, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """Interpolation between ``init_value`` and its products with the scales, reached at the boundaries.

    ``interpolate_type`` is "linear" or "cosine". After the last boundary the value stays.

    >>> s = piecewise_interpolate_schedule("linear", 1.0, {2: 3.0, 4: 0.0})
    >>> [float(s(t)) for t in range(6)]
    [1.0, 2.0, 3.0, 1.5, 0.0, 0.0]
    """
    op = "piecewise_interpolate_schedule"
    if interpolate_type not in ("linear", "cosine"):
        raise ValueError(f"{op}: interpolate_type must be 'linear' or 'cosine', got {interpolate_type!r}")
    points: list[tuple[int, Scalar]] = [(0, init_value)]
    for boundary, scale in sorted((boundaries_and_scales or {}).items()):
        require(op, "[0, inf)", **{f"scale at {boundary}": scale})
        points.append((boundary, points[-1][1] * scale))
    return interpolate(interpolate_type, points)


def interpolate(kind: str, points: Sequence[tuple[int, Scalar]]) -> Schedule:
    """A curve through ``(step, value)`` points, sorted by step, constant after the last."""

    def schedule(step: Any) -> Any:
        now, out = fnp.asarray(step), points[0][1]
        for (begin, start), (end, stop) in pairwise(points):
            width = max(end - begin, 1)
            part = fnp.clip(as_float(now - begin) / width, 0.0, 1.0)
            if kind == "cosine":
                part = 0.5 * (1.0 - fnp.cos(math.pi * part))
            piece = start * (1.0 - part) + stop * part
            out = piece if begin <= 0 else fnp.where(now < begin, out, piece)
            out = fnp.where(now < end, out, stop)
        return out

    return schedule


def cosine_decay_schedule(
    init_value: Scalar, decay_steps: int, alpha: Scalar = 0.0, exponent: Scalar = 1.0
) -> Schedule:
    """``init_value * ((1 - alpha) * (0.5 * (1 + cos(pi * t / decay_steps))) ** exponent + alpha)``, then constant.

    ``t`` is the step, at most ``decay_steps`` (Loshchilov and Hutter 2016, arXiv:1608.03983). ggmlR's
    ``lr_scheduler_cosine(T_max, lr_min)`` has the same curve with ``alpha = lr_min / init_value``, but its t is one
    less than the number of calls and stops at ``T_max - 1``, so it never reaches ``lr_min``; write
    ``lambda t: cosine(fnp.minimum(t, T_max - 1))`` for it.

    >>> [round(float(cosine_decay_schedule(1.0, 4)(t)), 4) for t in range(6)]
    [1.0, 0.8536, 0.5, 0.1464, 0.0, 0.0]
    """
    require("cosine_decay_schedule", "(0, inf)", decay_steps=decay_steps)

    def schedule(step: Any) -> Any:
        part = fnp.minimum(as_float(step), float(decay_steps)) / float(decay_steps)
        curve = 0.5 * (1.0 + fnp.cos(math.pi * part))
        curve = curve if isinstance(exponent, int | float) and exponent == 1 else curve**exponent
        return init_value * ((1.0 - alpha) * curve + alpha)

    return schedule


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after another: the next begins at each boundary and counts its own steps from there.

    >>> s = join_schedules([constant(1.0), linear(0.5, 0.0, 2)], [2])
    >>> [float(s(t)) for t in range(5)]
    [1.0, 1.0, 0.5, 0.25, 0.0]
    """
    if len(schedules) != len(boundaries) + 1:
        raise ValueError(
            "join_schedules: one boundary between each two schedules is required, "
            f"got {len(schedules)} schedules and {len(boundaries)} boundaries"
        )
    if list(boundaries) != sorted(boundaries):
        raise ValueError(f"join_schedules: boundaries must not decrease, got {list(boundaries)}")

    def schedule(step: Any) -> Any:
        now, out = fnp.asarray(step), schedules[0](step)
        for boundary, following in zip(boundaries, schedules[1:], strict=True):
            out = fnp.where(now < boundary, out, following(now - boundary))
        return out

    return schedule


def warmup_constant(init_value: Scalar, peak_value: Scalar, warmup_steps: int) -> Schedule:
    """A straight line from ``init_value`` to ``peak_value`` over ``warmup_steps``, then constant.

    >>> [float(warmup_constant(0.0, 1.0, 2)(t)) for t in range(4)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return linear(init_value, peak_value, warmup_steps)


def warmup_cosine_decay_schedule(
    init_value: Scalar,
    peak_value: Scalar,
    warmup_steps: int,
    decay_steps: int,
    end_value: Scalar = 0.0,
    exponent: Scalar = 1.0,
) -> Schedule:
    """A straight line up to ``peak_value``, then a cosine down to ``end_value``.

    ``decay_steps`` counts the warm-up steps too, as in optax. ggmlR's ``lr_scheduler_warmup_cosine(warmup_steps,
    total_steps, lr_min, warmup_start_lr)`` is ``warmup_cosine_decay_schedule(warmup_start_lr, lr, warmup_steps,
    total_steps, lr_min)``.

    >>> [round(float(warmup_cosine_decay_schedule(0.0, 1.0, 2, 6)(t)), 4) for t in range(7)]
    [0.0, 0.5, 1.0, 0.8536, 0.5, 0.1464, 0.0]
    """
    op = "warmup_cosine_decay_schedule"
    if not decay_steps > warmup_steps:
        raise ValueError(f"{op}: decay_steps must be more than warmup_steps, got {decay_steps} and {warmup_steps}")
    no_peak = isinstance(peak_value, int | float) and peak_value == 0.0
    alpha = 0.0 if no_peak else end_value / peak_value
    decay = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return join_schedules([linear(init_value, peak_value, warmup_steps), decay], [warmup_steps])


def warmup_exponential_decay(
    init_value: Scalar,
    peak_value: Scalar,
    warmup_steps: int,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: Scalar | None = None,
) -> Schedule:
    """A straight line up to ``peak_value`` over ``warmup_steps``, then ``exponential_decay`` from there.

    >>> [round(float(warmup_exponential_decay(0.0, 1.0, 2, 1, 0.5)(t)), 4) for t in range(5)]
    [0.0, 0.5, 1.0, 0.5, 0.25]
    """
    decay = exponential_decay(peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value)
    return join_schedules([linear(init_value, peak_value, warmup_steps), decay], [warmup_steps])


def sgdr_schedule(cosine_kwargs: Iterable[Mapping[str, Any]]) -> Schedule:
    """Cycles of ``warmup_cosine_decay_schedule``, one after another, each with its own arguments.

    Stochastic gradient descent with warm restarts (Loshchilov and Hutter 2016, arXiv:1608.03983).

    >>> cycle = dict(init_value=0.0, peak_value=1.0, warmup_steps=1, decay_steps=3)
    >>> [round(float(sgdr_schedule([cycle, cycle])(t)), 4) for t in range(7)]
    [0.0, 1.0, 0.5, 0.0, 1.0, 0.5, 0.0]
    """
    cycles = list(cosine_kwargs)
    if not cycles:
        raise ValueError("sgdr_schedule: at least one cycle is required, got none")
    ends = [sum(cycle["decay_steps"] for cycle in cycles[: i + 1]) for i in range(len(cycles) - 1)]
    return join_schedules([warmup_cosine_decay_schedule(**cycle) for cycle in cycles], ends)


constant_schedule = constant
polynomial_schedule = polynomial
linear_schedule = linear
piecewise_constant_schedule = piecewise
warmup_constant_schedule = warmup_constant
warmup_exponential_decay_schedule = warmup_exponential_decay
