"""Ordinary differential equations with adaptive steps and the adjoint method, as ``jax.experimental.ode`` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from funcgrad import dtypes, lax, tree
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.flatten_util import ravel_pytree
from funcgrad.transforms import closure_convert, custom_vjp, vjp

__all__ = ["odeint"]

# Dormand and Prince (1980), table 2: the method of order 5 with an error estimate of order 4.
NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

Field = Callable[[Any, Any], Any]


def _combined(h: Any, weights: Any, ks: Any) -> Any:
    return h * sum(w * k for w, k in zip(weights, ks, strict=True) if w)


def _to(f: Field, y: Any, t: Any, h: Any, end: Any, rtol: float, atol: float, mxstep: float, hmax: float) -> Any:
    """y at ``end`` from y at t, with the step that the next stretch may start with; NaN after ``mxstep`` steps."""

    def go_on(s: Any) -> Any:
        return (s[1] < end) & (s[4] < mxstep)

    def step(s: Any) -> Any:
        y, t, h, k, n = s
        rest = end - t
        last = h >= rest
        now = fnp.where(last, rest, h)
        ks = [k]
        for node, weights in zip(NODES, STAGES, strict=True):
            ks.append(f(y + _combined(now, weights, ks), t + node * now))
        new = y + _combined(now, STAGES[-1], ks[:-1])
        scale = atol + rtol * fnp.maximum(fnp.abs(y), fnp.abs(new))
        ratio = fnp.sqrt(fnp.mean(fnp.square(_combined(now, ERROR, ks) / scale)))
        good = ratio <= 1
        factor = fnp.clip(0.9 * fnp.where(ratio > 0, ratio, 1e-10) ** -0.2, 0.2, 10.0)
        # A step that was cut short to end here says little about the next.
        h = fnp.where(last & good, fnp.maximum(h, now * factor), now * factor)
        h = fnp.minimum(fnp.where(fnp.isfinite(h), h, 0.1 * now), hmax)
        t = fnp.where(good, fnp.where(last, end, t + now), t)
        return fnp.where(good, new, y), t, h, fnp.where(good, ks[-1], k), n + 1

    y, t, h, _, _ = lax.while_loop(go_on, step, (y, t, h, f(y, t), 0))
    return fnp.where(t < end, fnp.nan, y), h


def _first_step(f: Field, y: Any, t: Any, rtol: float, atol: float) -> Any:
    """Hairer, Norsett and Wanner (1993), section II.4."""
    scale = atol + rtol * fnp.abs(y)
    k = f(y, t)

    def norm(v: Any) -> Any:
        return fnp.sqrt(fnp.mean(fnp.square(v / scale)))

    d0, d1 = norm(y), norm(k)
    h0 = fnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / fnp.where(d1 > 0, d1, 1.0))
    d2 = norm(f(y + h0 * k, t + h0) - k) / h0
    most = fnp.maximum(d1, d2)
    h1 = fnp.where(most <= 1e-15, fnp.maximum(1e-6, h0 * 1e-3), (0.01 / fnp.maximum(most, 1e-15)) ** 0.2)
    return fnp.minimum(100.0 * h0, h1)


def _through(f: Field, y: Any, ts: Any, options: Any) -> Any:
    """A flat y at all times, a row each."""
    h = fnp.minimum(_first_step(f, y, ts[0], *options[:2]), options[3]).astype(y.dtype)

    def stretch(carry: Any, pair: Any) -> Any:
        y, h = carry
        y, h = _to(f, y, pair[0], h, pair[1], *options)
        return (y, h), y

    _, rows = lax.scan(stretch, (y, h), (ts[:-1], ts[1:]))
    return fnp.concatenate([y[None], rows])


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = np.inf,
    hmax: float = np.inf,
) -> Any:
    """Return the solution of dy/dt = ``func(y, t, *args)`` with y = y0 at t[0], at all times of an increasing t.

    y0 and args are trees of float arrays; the result has y0's structure with an axis for time in front.  Steps are
    Dormand and Prince's (1980), of a length that keeps the estimated error below ``atol + rtol * |y|`` (but not below
    ten roundings of y); after ``mxstep`` steps between two times the result is NaN.  Gradients by y0, t, args and the
    float arrays that ``func`` closes over come from the adjoint equation, solved backwards (Chen et al. 2018), so that
    they need no memory per step; there is no forward mode.

    >>> from funcgrad.experimental.ode import odeint
    >>> float(odeint(lambda y, t: -y, fnp.asarray(1.0), fnp.asarray([0.0, 1.0]))[1])
    0.367879
    """
    times = fnp.asarray(t)
    if times.ndim != 1 or not times.size or times.dtype not in dtypes.FLOATS:
        raise ShapeError(message("odeint", "t must be a vector of at least one float", f"{times.dtype}{times.shape}"))
    start = tree.map(lambda v: fnp.asarray(v, dtype=fnp.result_type(v, times.dtype)), y0)
    out = tree.structure(func(start, times[0], *args))
    if out != tree.structure(start):
        raise ShapeError(message("odeint", f"func must return y's structure {tree.structure(start)}", str(out)))
    field, closed = closure_convert(func, start, times[0], *args)
    least = 10 * float(np.finfo(np.float64 if times.dtype == dtypes.float64 else np.float32).eps)
    options = (max(float(rtol), least), float(atol), mxstep, hmax)
    return _odeint(field, options, start, times, *args, *closed)


def _solve(field: Callable[..., Any], options: Any, y0: Any, ts: Any, args: Any) -> Any:
    flat, unravel = ravel_pytree(y0)
    rows = _through(lambda y, t: ravel_pytree(field(unravel(y), t, *args))[0], flat, ts, options)
    leaves, treedef = tree.flatten(y0)
    out, at = [], 0
    for v in leaves:
        out.append(rows[:, at : at + v.size].reshape(-1, *v.shape))
        at += v.size
    return tree.unflatten(treedef, out)


def _odeint(field: Callable[..., Any], options: Any, y0: Any, ts: Any, *args: Any) -> Any:
    @custom_vjp
    def solution(y0: Any, ts: Any, args: Any) -> Any:
        return _solve(field, options, y0, ts, args)

    def forward(y0: Any, ts: Any, args: Any) -> Any:
        ys = solution(y0, ts, args)
        return ys, (ys, ts, args)

    def backward(saved: tuple[Any, Any, Any], ct: Any) -> tuple[Any, Any, Any]:
        return _adjoint(field, options, saved[0], saved[1], saved[2], ct)

    solution.defvjp(forward, backward)
    return solution(y0, ts, args)


def _rows(x: Any, at: Any) -> Any:
    return tree.map(lambda v: v[at], x)


def _inner(a: Any, b: Any) -> Any:
    return sum(fnp.vdot(u, v) for u, v in zip(tree.leaves(a), tree.leaves(b), strict=True))


def _adjoint(field: Callable[..., Any], options: Any, ys: Any, ts: Any, args: Any, ct: Any) -> tuple[Any, Any, Any]:
    """From the last time to the first: y again, its cotangent, that of t and those of args."""
    state = (_rows(ys, -1), _rows(ct, -1), fnp.zeros((), ts.dtype), tree.map(fnp.zeros_like, args))
    _, unravel = ravel_pytree(state)

    def dynamics(flat: Any, back: Any) -> Any:
        """Along minus t; what is wanted by t needs no derivative of its own."""
        y, a, _, _ = unravel(flat)
        dy, pull = vjp(lambda y, t, args: field(y, t, *args), y, -back, args)
        by_y, by_t, by_args = pull(a)
        return ravel_pytree((tree.map(lambda v: -v, dy), by_y, by_t, by_args))[0]

    def stretch(carry: Any, at: Any) -> Any:
        a, by_t, by_args, h = carry
        y, before, t1, t0, g = at
        here = _inner(field(y, t1, *args), g)
        flat, _ = ravel_pytree((y, a, by_t - here, by_args))
        h = fnp.where(h > 0, h, _first_step(dynamics, flat, -t1, *options[:2])).astype(flat.dtype)
        flat, h = _to(dynamics, flat, -t1, h, -t0, *options)
        _, a, by_t, by_args = unravel(flat)
        return (tree.map(lambda u, v: u + v, a, before), by_t, by_args, h), here

    later = slice(1, None)
    xs = (_rows(ys, later), _rows(ct, slice(0, -1)), ts[1:], ts[:-1], _rows(ct, later))
    start = (state[1], state[2], state[3], fnp.zeros((), ts.dtype))
    (a, by_t, by_args, _), there = lax.scan(stretch, start, xs, reverse=True)
    return a, fnp.concatenate([by_t[None], there]), by_args
