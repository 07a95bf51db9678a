"""Line searches: how far to go along a direction, by values and slopes of the function itself."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import lax, tree
from funcgrad.optim.base import (
    Optimizer,
    OptimizerExtraArgs,
    Scalar,
    State,
    Tree,
    cast,
    require,
    require_int,
    require_params,
    scaled,
    select,
    tree_vdot,
    wide_dtype,
    zero_count,
    zeros_like,
)
from funcgrad.transforms import value_and_grad

__all__ = [
    "BacktrackingLinesearchInfo",
    "ScaleByBacktrackingLinesearchState",
    "ScaleByZoomLinesearchState",
    "ZoomLinesearchInfo",
    "scale_by_backtracking_linesearch",
    "scale_by_zoom_linesearch",
]


def _along(params: Tree, stepsize: Any, updates: Tree) -> Tree:
    return tree.map(lambda p, u: p + cast(scaled(stepsize, u), p.dtype), params, updates)


def _bind(op: str, value_fn: Callable[..., Any], extra: dict[str, Any]) -> Callable[[Tree], Any]:
    """The function of the parameters alone; TypeError for keyword arguments that it does not take."""
    unknown = sorted(set(extra) - set(inspect.signature(value_fn).parameters))
    if unknown:
        raise TypeError(f"{op}: keyword arguments of update must be parameters of value_fn, got {unknown}")
    return partial(value_fn, **extra)


def _float(value: Any, like: Tree) -> Any:
    return cast(fnp.asarray(value), wide_dtype(like))


def _violation(error: Any) -> Any:
    """How far a condition is from being met: 0 when it is, infinity for a NaN."""
    return fnp.where(fnp.isnan(error), math.inf, fnp.maximum(error, 0.0))


class BacktrackingLinesearchInfo(NamedTuple):
    """Evaluations of the last search (int32) and by how much its step misses the decrease condition."""

    num_linesearch_steps: Any
    decrease_error: Any


class ScaleByBacktrackingLinesearchState(NamedTuple):
    """Step size, value and gradient (None unless stored) that the last search ended with."""

    learning_rate: Any
    value: Any
    grad: Tree
    info: BacktrackingLinesearchInfo


class _Back(NamedTuple):
    learning_rate: Any
    value: Any
    error: Any
    count: Any


def scale_by_backtracking_linesearch(
    max_backtracking_steps: int,
    slope_rtol: Scalar = 1e-4,
    decrease_factor: Scalar = 0.8,
    increase_factor: Scalar = 1.5,
    max_learning_rate: Scalar = 1.0,
    atol: Scalar = 0.0,
    rtol: Scalar = 0.0,
    store_grad: bool = False,
) -> Optimizer:
    """Shrink the step until the function falls enough: Armijo's condition (Nocedal and Wright, algorithm 3.1).

    The condition is ``f(w + s u) <= (1 + rtol) f(w) + s * slope_rtol * slope + atol``. Put it last in a chain and
    give ``update(grads, state, params, value=value, grad=grad, value_fn=f)``; ``grad`` is the gradient at the
    parameters. With ``store_grad`` the gradient at the new parameters is kept for the next call. A step that only
    meets NaNs is 0.

    >>> f = lambda x: fnp.sum(x ** 2)
    >>> opt = scale_by_backtracking_linesearch(20, decrease_factor=0.5)
    >>> x = fnp.asarray([1.0])
    >>> updates, state = opt.update(fnp.asarray([-4.0]), opt.init(x), x, value=f(x), grad=2.0 * x, value_fn=f)
    >>> float(updates[0])
    -1.0
    """
    op = "scale_by_backtracking_linesearch"
    require_int(op, 1, max_backtracking_steps=max_backtracking_steps)
    require(op, "(0, 1)", slope_rtol=slope_rtol, decrease_factor=decrease_factor)
    require(op, "[1, inf)", increase_factor=increase_factor)
    require(op, "(0, inf)", max_learning_rate=max_learning_rate)
    require(op, "[0, inf)", atol=atol, rtol=rtol)

    def init(params: Tree) -> State:
        info = BacktrackingLinesearchInfo(zero_count(), _float(math.inf, params))
        grad = zeros_like(params) if store_grad else None
        return ScaleByBacktrackingLinesearchState(_float(1.0, params), _float(math.inf, params), grad, info)

    def update(
        grads: Tree, state: State, params: Tree = None, *, value: Any, grad: Tree, value_fn: Any, **extra: Any
    ) -> tuple[Tree, State]:
        require_params(op, params)
        function, value = _bind(op, value_fn, extra), _float(value, params)
        slope = tree_vdot(grads, grad)

        def unfinished(search: _Back) -> Any:
            missed = fnp.logical_not(search.error <= atol)
            return fnp.logical_and(missed, search.count <= max_backtracking_steps)

        def shrink(search: _Back) -> _Back:
            size = fnp.where(search.count > 0, decrease_factor * search.learning_rate, search.learning_rate)
            new = _float(function(_along(params, size, grads)), params)
            error = _violation(new - (1.0 + rtol) * value - size * slope_rtol * slope)
            return _Back(size, new, error, search.count + 1)

        first = fnp.minimum(increase_factor * state.learning_rate, max_learning_rate)
        end = lax.while_loop(unfinished, shrink, _Back(first, value, _float(math.inf, params), zero_count()))
        size = fnp.where(fnp.isinf(end.error), 0.0, end.learning_rate)
        new_grad = value_and_grad(function)(_along(params, size, grads))[1] if store_grad else None
        info = BacktrackingLinesearchInfo(end.count, end.error)
        new_state = ScaleByBacktrackingLinesearchState(size, end.value, new_grad, info)
        return tree.map(lambda u: scaled(size, u), grads), new_state

    return OptimizerExtraArgs(init, update)


class ZoomLinesearchInfo(NamedTuple):
    """Evaluations of the last search (int32) and by how much its step misses the two conditions."""

    num_linesearch_steps: Any
    decrease_error: Any
    curvature_error: Any


class ScaleByZoomLinesearchState(NamedTuple):
    """Step size, value and gradient that the last search ended with."""

    learning_rate: Any
    value: Any
    grad: Tree
    info: ZoomLinesearchInfo


class _Point(NamedTuple):
    """A step size, and the value and the slope of the function along the direction there."""

    size: Any
    value: Any
    slope: Any


class _Zoom(NamedTuple):
    count: Any
    point: _Point
    grad: Tree
    decrease_error: Any
    curvature_error: Any
    found: Any  # an interval is known to hold a good step; from then on it shrinks
    done: Any
    failed: Any
    low: _Point
    high: _Point
    reference: _Point  # a third point for the cubic
    safe: _Point  # the best step that at least decreases enough
    safe_grad: Tree


class _Rules(NamedTuple):
    max_steps: int
    max_size: Scalar | None
    tol: Scalar
    increase: Scalar
    slope_rtol: Scalar
    curv_rtol: Scalar
    approx_dec_rtol: Scalar | None
    precision: Scalar


def scale_by_zoom_linesearch(
    max_linesearch_steps: int,
    max_learning_rate: Scalar | None = None,
    tol: Scalar = 0.0,
    increase_factor: Scalar = 2.0,
    slope_rtol: Scalar = 1e-4,
    curv_rtol: Scalar = 0.9,
    approx_dec_rtol: Scalar | None = 1e-6,
    stepsize_precision: Scalar = 1e-5,
    initial_guess_strategy: str = "keep",
) -> Optimizer:
    """Find a step that satisfies the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6).

    The step grows by ``increase_factor`` until an interval is known to hold a good one, which then shrinks by cubic
    and quadratic interpolation and bisection. Near a minimum, where values no longer tell, Hager and Zhang's
    approximate decrease condition counts as well. After ``max_linesearch_steps`` the best step that decreases enough
    is taken. "keep" starts from the last step size, "one" from 1.

    Put it last in a chain and give ``update(grads, state, params, value=value, grad=grad, value_fn=f)``.

    >>> f = lambda x: fnp.sum(x ** 2)
    >>> opt = scale_by_zoom_linesearch(20)
    >>> x = fnp.asarray([1.0])
    >>> updates, state = opt.update(fnp.asarray([-4.0]), opt.init(x), x, value=f(x), grad=2.0 * x, value_fn=f)
    >>> round(float(updates[0]), 4), int(state.info.num_linesearch_steps)
    (-1.0, 2)
    """
    op = "scale_by_zoom_linesearch"
    require_int(op, 1, max_linesearch_steps=max_linesearch_steps)
    require(op, "(0, 1)", slope_rtol=slope_rtol, curv_rtol=curv_rtol)
    require(op, "(1, inf)", increase_factor=increase_factor)
    require(op, "[0, inf)", tol=tol, stepsize_precision=stepsize_precision)
    if initial_guess_strategy not in ("keep", "one"):
        raise ValueError(f"{op}: initial_guess_strategy must be 'keep' or 'one', got {initial_guess_strategy!r}")
    rules = _Rules(
        max_linesearch_steps,
        max_learning_rate,
        tol,
        increase_factor,
        slope_rtol,
        curv_rtol,
        approx_dec_rtol,
        stepsize_precision,
    )

    def init(params: Tree) -> State:
        info = ZoomLinesearchInfo(zero_count(), _float(math.inf, params), _float(math.inf, params))
        return ScaleByZoomLinesearchState(_float(1.0, params), _float(math.inf, params), zeros_like(params), info)

    def update(
        grads: Tree, state: State, params: Tree = None, *, value: Any, grad: Tree, value_fn: Any, **extra: Any
    ) -> tuple[Tree, State]:
        require_params(op, params)
        function = value_and_grad(_bind(op, value_fn, extra))

        def evaluate(size: Any) -> tuple[_Point, Tree]:
            new, new_grad = function(_along(params, size, grads))
            return _Point(size, _float(new, params), tree_vdot(new_grad, grads)), new_grad

        guess = _float(1.0, params) if initial_guess_strategy == "one" else state.learning_rate
        origin = _Point(_float(0.0, params), _float(value, params), tree_vdot(grads, grad))
        end = _search(rules, evaluate, origin, grad, guess)
        info = ZoomLinesearchInfo(end.count, end.decrease_error, end.curvature_error)
        new_state = ScaleByZoomLinesearchState(end.point.size, end.point.value, end.grad, info)
        return tree.map(lambda u: scaled(end.point.size, u), grads), new_state

    return OptimizerExtraArgs(init, update)


def _search(rules: _Rules, evaluate: Any, origin: _Point, grad: Tree, guess: Any) -> _Zoom:
    """Run the search; both phases evaluate the function once, at a step chosen by either."""
    no, inf = fnp.asarray(False), _float(math.inf, grad)
    start = _Zoom(zero_count(), origin, grad, inf, inf, no, no, no, origin, origin, origin, origin, grad)

    def unfinished(search: _Zoom) -> Any:
        return fnp.logical_not(fnp.logical_or(search.done, search.failed))

    def step(search: _Zoom) -> _Zoom:
        size, maxed = _grow(rules, search, guess)
        size = fnp.where(search.found, _shrink(search), size)
        point, new_grad = evaluate(size)
        decrease, curvature = _errors(rules, origin, point)
        good = fnp.maximum(decrease, curvature) <= rules.tol
        safe = fnp.logical_and(
            decrease <= rules.tol,
            fnp.logical_or(fnp.logical_not(search.found), point.value < search.safe.value),
        )
        kept, kept_grad = select(safe, (point, new_grad), (search.safe, search.safe_grad))
        new = search._replace(
            count=search.count + 1,
            point=point,
            grad=new_grad,
            decrease_error=decrease,
            curvature_error=curvature,
            safe=kept,
            safe_grad=kept_grad,
        )
        growing = _after_growing(rules, search, new, good, maxed)
        chosen: _Zoom = select(search.found, _after_shrinking(rules, search, new, good), growing)
        return chosen

    end = lax.while_loop(unfinished, step, start)
    use_safe = fnp.logical_and(end.failed, fnp.logical_or(end.safe.size > 0.0, fnp.isinf(end.decrease_error)))
    point, new_grad = select(use_safe, (end.safe, end.safe_grad), (end.point, end.grad))
    result: _Zoom = end._replace(point=point, grad=new_grad)
    return result


def _errors(rules: _Rules, origin: _Point, point: _Point) -> tuple[Any, Any]:
    """By how much a point misses the decrease and the curvature condition."""
    decrease = point.value - origin.value - rules.slope_rtol * point.size * origin.slope
    if rules.approx_dec_rtol is not None:
        # Hager and Zhang 2006, equations 23, 26 and 27
        slopes = point.slope - (2.0 * rules.slope_rtol - 1.0) * origin.slope
        near = point.value - origin.value - rules.approx_dec_rtol * fnp.abs(origin.value)
        decrease = fnp.minimum(fnp.maximum(slopes, near), decrease)
    return _violation(decrease), _violation(fnp.abs(point.slope) - rules.curv_rtol * fnp.abs(origin.slope))


def _grow(rules: _Rules, search: _Zoom, guess: Any) -> tuple[Any, Any]:
    size = fnp.where(search.count == 0, guess, rules.increase * search.point.size)
    if rules.max_size is None:
        return size, fnp.asarray(False)
    return fnp.minimum(size, rules.max_size), size >= rules.max_size


def _after_growing(rules: _Rules, old: _Zoom, new: _Zoom, good: Any, maxed: Any) -> _Zoom:
    point, before = new.point, old.point
    rising = fnp.logical_and(point.value >= before.value, old.count > 0)
    is_high = fnp.logical_or(new.decrease_error > 0.0, rising)
    is_low = fnp.logical_and(point.slope >= 0.0, fnp.logical_not(is_high))
    found = fnp.logical_or(fnp.logical_or(is_high, is_low), good)
    done = fnp.logical_or(good, fnp.logical_and(maxed, fnp.logical_not(found)))
    failed = fnp.logical_and(new.count >= rules.max_steps, fnp.logical_not(done))
    low, high = select(is_low, (point, before), (before, point))
    return new._replace(found=found, done=done, failed=failed, low=low, high=high, reference=low)


def _after_shrinking(rules: _Rules, old: _Zoom, new: _Zoom, good: Any) -> _Zoom:
    point, low, high = new.point, old.low, old.high
    is_high = fnp.logical_or(new.decrease_error > 0.0, point.value >= low.value)
    flip = fnp.logical_and(point.slope * (high.size - low.size) >= 0.0, fnp.logical_not(is_high))
    small = fnp.logical_and(fnp.abs(high.size - low.size) <= rules.precision, new.safe.size > 0.0)
    failed = fnp.logical_and(fnp.logical_or(new.count >= rules.max_steps, small), fnp.logical_not(good))
    return new._replace(
        found=old.found,
        done=good,
        failed=failed,
        low=select(is_high, low, point),
        high=select(is_high, point, select(flip, low, high)),
        reference=select(fnp.logical_or(is_high, flip), high, low),
    )


def _shrink(search: _Zoom) -> Any:
    """A step inside the interval: the minimum of a cubic, else of a parabola, else the middle."""
    low, high, third = search.low, search.high, search.reference
    width = fnp.abs(high.size - low.size)
    left, right = fnp.minimum(high.size, low.size), fnp.maximum(high.size, low.size)
    db, dc = high.size - low.size, third.size - low.size
    fb, fc = high.value - low.value - low.slope * db, third.value - low.value - low.slope * dc
    # low + slope d + b d^2 + a d^3 through the other two points; bad divisions give NaN, which fails the tests below
    denominator = fnp.square(db * dc) * (db - dc)
    a = (fnp.square(dc) * fb - fnp.square(db) * fc) / denominator
    b = (db * fnp.square(db) * fc - dc * fnp.square(dc) * fb) / denominator
    cubic = low.size + (fnp.sqrt(fnp.square(b) - 3.0 * a * low.slope) - b) / (3.0 * a)
    parabola = low.size - low.slope * fnp.square(db) / (2.0 * fb)
    middle = 0.5 * (low.size + high.size)
    size = fnp.where(_inside(parabola, left, right, 0.1 * width), parabola, middle)
    return fnp.where(_inside(cubic, left, right, 0.2 * width), cubic, size)


def _inside(x: Any, left: Any, right: Any, margin: Any) -> Any:
    return fnp.logical_and(x > left + margin, x < right - margin)
