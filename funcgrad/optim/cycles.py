"""Schedules that rise and fall again: one cycle, many cycles, warm restarts."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import funcgrad.numpy as fnp
from funcgrad.optim.base import INT32_MAX, Scalar, Schedule, cast, require, require_int
from funcgrad.optim.curves import as_float, interpolate

__all__ = ["cosine_onecycle_schedule", "cosine_restarts", "cyclic_schedule", "linear_onecycle_schedule"]


def cosine_onecycle_schedule(
    transition_steps: int,
    peak_value: Scalar,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """One cycle: a cosine from ``peak_value / div_factor`` up to the peak, then down to nearly nothing.

    The rise takes ``int(pct_start * transition_steps)`` steps and the end value is
    ``peak_value / (div_factor * final_div_factor)``, as in optax and PyTorch (Smith and Topin 2017,
    arXiv:1708.07120). ggmlR's ``lr_scheduler_onecycle`` ends at ``max_lr / final_div_factor`` instead: pass
    ``final_div_factor / div_factor`` for it. It also moves the momentum (or Adam's beta1) the other way, which is
    ``piecewise_interpolate_schedule("cosine", 0.95, {rise: 0.85 / 0.95, total: 0.95 / 0.85})`` given to
    ``inject_hyperparams`` as ``momentum`` or ``b1``.

    >>> s = cosine_onecycle_schedule(10, 1.0)
    >>> [round(float(s(t)), 4) for t in (0, 3, 10, 20)]
    [0.04, 1.0, 0.0, 0.0]
    """
    _check_onecycle("cosine_onecycle_schedule", transition_steps, pct_start, div_factor, final_div_factor)
    start, end = peak_value / div_factor, peak_value / (div_factor * final_div_factor)
    return interpolate("cosine", [(0, start), (int(pct_start * transition_steps), peak_value), (transition_steps, end)])


def linear_onecycle_schedule(
    transition_steps: int,
    peak_value: Scalar,
    pct_start: float = 0.3,
    pct_final: float = 0.85,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """One cycle in straight lines: up to the peak, back to the start at ``pct_final``, then to nearly nothing.

    The values at 0, ``pct_start``, ``pct_final`` and the end are ``peak_value / div_factor``, ``peak_value``,
    ``peak_value / div_factor`` and ``peak_value / (div_factor * final_div_factor)``. ggmlR's linear one cycle has
    two lines instead of three: ``piecewise_interpolate_schedule("linear", max_lr / div_factor,
    {rise: div_factor, total: 1 / final_div_factor})``.

    >>> s = linear_onecycle_schedule(100, 1.0)
    >>> [round(float(s(t)), 4) for t in (0, 15, 30, 85, 100)]
    [0.04, 0.52, 1.0, 0.04, 0.0]
    """
    op = "linear_onecycle_schedule"
    _check_onecycle(op, transition_steps, pct_start, div_factor, final_div_factor)
    require(op, "[0, 1]", pct_final=pct_final)
    if pct_final < pct_start:
        raise ValueError(f"{op}: pct_final must not be less than pct_start, got {pct_final} and {pct_start}")
    start, end = peak_value / div_factor, peak_value / (div_factor * final_div_factor)
    rise, fall = int(pct_start * transition_steps), int(pct_final * transition_steps)
    return interpolate("linear", [(0, start), (rise, peak_value), (fall, start), (transition_steps, end)])


def _check_onecycle(op: str, steps: int, pct_start: float, div_factor: float, final_div_factor: float) -> None:
    require_int(op, 1, transition_steps=steps)
    require(op, "[0, 1]", pct_start=pct_start)
    require(op, "(0, inf)", div_factor=div_factor, final_div_factor=final_div_factor)


def cyclic_schedule(
    base_value: Scalar,
    max_value: Scalar,
    step_size_up: int = 2000,
    step_size_down: int | None = None,
    mode: str = "triangular",
    gamma: float = 1.0,
) -> Schedule:
    """Straight lines up from ``base_value`` to ``max_value`` and down again, for ever (Smith 2015, arXiv:1506.01186).

    The amplitude is constant with ``mode`` "triangular", halves every cycle with "triangular2" and is
    ``gamma ** step`` with "exp_range", as in ggmlR's ``lr_scheduler_cyclic`` and PyTorch's ``CyclicLR``.
    ``step_size_down`` is ``step_size_up`` when it is not given.

    >>> [float(cyclic_schedule(0.0, 1.0, 2, mode="triangular2")(t)) for t in range(9)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.25, 0.5, 0.25, 0.0]
    """
    op = "cyclic_schedule"
    down = step_size_up if step_size_down is None else step_size_down
    require_int(op, 1, step_size_up=step_size_up, step_size_down=down)
    require(op, "(0, inf)", gamma=gamma)
    if mode not in ("triangular", "triangular2", "exp_range"):
        raise ValueError(f"{op}: mode must be 'triangular', 'triangular2' or 'exp_range', got {mode!r}")

    def schedule(step: Any) -> Any:
        now = fnp.asarray(step)
        cycle = now // (step_size_up + down)
        place = as_float(now - cycle * (step_size_up + down))
        rise = fnp.minimum(place / step_size_up, 1.0 - (place - step_size_up) / down)
        if mode == "triangular2":
            rise = rise * fnp.power(0.5, as_float(cycle))
        elif mode == "exp_range":
            rise = rise * fnp.power(gamma, as_float(now))
        return base_value + (max_value - base_value) * rise

    return schedule


def cosine_restarts(init_value: Scalar, first_decay_steps: int, t_mult: float = 1.0, alpha: Scalar = 0.0) -> Schedule:
    """Cosine decay that starts anew: a first period of ``first_decay_steps``, each next one ``t_mult`` times as long.

    Within a period of length T the value is ``init_value * ((1 - alpha) * 0.5 * (1 + cos(pi * t / T)) + alpha)`` for
    t from 0 to T - 1 (Loshchilov and Hutter 2016, arXiv:1608.03983). Periods are rounded to whole steps, as in
    ggmlR's ``lr_scheduler_cosine(restart = TRUE)``, whose ``lr_min`` is ``alpha * init_value``.

    >>> [round(float(cosine_restarts(1.0, 2, 2.0)(t)), 4) for t in range(7)]
    [1.0, 0.5, 1.0, 0.8536, 0.5, 0.1464, 1.0]
    """
    require_int("cosine_restarts", 1, first_decay_steps=first_decay_steps)
    require("cosine_restarts", "[1, inf)", t_mult=t_mult)
    periods, repeats = _periods(first_decay_steps, t_mult)
    ends = [sum(periods[: i + 1]) for i in range(len(periods) - 1)]
    growths = [float(after - before) for before, after in pairwise(periods)]

    def schedule(step: Any) -> Any:
        place, length = fnp.asarray(step), float(first_decay_steps)
        if ends:
            over = place >= fnp.asarray(ends, dtype=place.dtype)
            begun = fnp.sum(fnp.where(over, fnp.asarray(periods[:-1], dtype=place.dtype), 0))
            length = length + fnp.sum(fnp.where(over, fnp.asarray(growths, dtype=fnp.float32), 0.0))
            place = place - cast(begun, place.dtype)
        place = place % periods[-1] if repeats else place  # the earlier periods are shorter, so it leaves them alone
        curve = 0.5 * (1.0 + fnp.cos(math.pi * (as_float(place) / length)))
        return init_value * ((1.0 - alpha) * curve + alpha)

    return schedule


def _periods(first: int, t_mult: float) -> tuple[list[int], bool]:
    """Lengths of the periods that begin before the last int32 step, and whether the last one repeats for ever."""
    periods, begin = [first], first
    while begin <= INT32_MAX:
        following = round(periods[-1] * t_mult)
        if following == periods[-1]:
            return periods, True
        periods.append(following)
        begin += following
    return periods, False
