"""Minimisation inside jit, with the names of ``jax.scipy.optimize``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from funcgrad import lax
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.transforms import value_and_grad

__all__ = ["OptimizeResults", "minimize"]


class OptimizeResults(NamedTuple):
    """The solution and how it was found; ``status`` is 0, 1 after ``maxiter`` steps, 2 where no step decreased fun."""

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


class _State(NamedTuple):
    x: Any
    f: Any
    g: Any
    h: Any
    count: Any
    steps: Any
    stuck: Any


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """Return a local minimum of ``fun(x, *args)``, a scalar function of a vector, from ``x0`` on.

    ``method`` is "BFGS": Nocedal and Wright (2006), algorithm 6.1, with a backtracking line search (the decrease of
    equation 3.4), and updates where the curvature is positive.  ``options`` are ``gtol`` (1e-5, the largest element of
    the gradient), ``norm`` (inf), ``maxiter`` (200 times the size) and ``line_search_maxiter`` (30).  Has no reverse
    mode; ``optim.lbfgs`` minimises functions of trees.

    >>> from funcgrad.scipy.optimize import minimize
    >>> minimize(lambda x: ((x - 1.0) ** 2).sum(), fnp.zeros(2), method="BFGS").x
    Array([1., 1.], dtype=float32)
    """
    if method.lower() != "bfgs":
        raise ValueError(message("minimize", 'method must be "BFGS"', repr(method), "optim.lbfgs, in a loop"))
    given = dict(options or {})
    gtol, norm = given.pop("gtol", 1e-5 if tol is None else tol), given.pop("norm", fnp.inf)
    x = fnp.asarray(x0, dtype=fnp.result_type(x0, fnp.float32))
    if x.ndim != 1:
        raise ShapeError(message("minimize", "x0 must be a vector", str(x.shape), "flatten_util.ravel_pytree"))
    limit, trials = given.pop("maxiter", None), given.pop("line_search_maxiter", 30)
    limit = 200 * x.size if limit is None else limit
    if given:
        raise ValueError(message("minimize", "options are gtol, norm, maxiter, line_search_maxiter", str(list(given))))
    both = value_and_grad(lambda v: fun(v, *args))

    def size(g: Any) -> Any:
        return fnp.linalg.norm(g, ord=norm)

    def step(s: _State) -> _State:
        p = -(s.h @ s.g)
        slope = fnp.vdot(p, s.g)
        # A direction that is not one of descent (rounding) starts again from the gradient.
        p, h = fnp.where(slope < 0, p, -s.g), fnp.where(slope < 0, s.h, fnp.eye(x.size, dtype=x.dtype))
        slope = fnp.where(slope < 0, slope, -fnp.vdot(s.g, s.g))
        # The first step has no scale yet.
        first = fnp.where(s.count == 0, fnp.minimum(1.0, 1.0 / fnp.maximum(size(s.g), 1e-30)), 1.0)

        def decreases(t: Any) -> Any:
            f = fun(s.x + t * p, *args)
            return (f <= s.f + 1e-4 * t * slope) & fnp.isfinite(f)

        t, tried = lax.while_loop(
            lambda c: ~decreases(c[0]) & (c[1] < trials), lambda c: (0.5 * c[0], c[1] + 1), (first.astype(x.dtype), 0)
        )
        stuck = tried >= trials
        new = fnp.where(stuck, s.x, s.x + t * p)
        f, g = both(new)
        d, y = new - s.x, g - s.g
        curvature = fnp.vdot(d, y)
        good = curvature > 1e-10 * fnp.linalg.norm(d) * fnp.linalg.norm(y)
        rho = fnp.where(good, 1.0 / fnp.where(good, curvature, 1.0), 0.0)
        scale = fnp.where(s.count == 0, fnp.where(good, curvature / fnp.maximum(fnp.vdot(y, y), 1e-30), 1.0), 1.0)
        h = h * fnp.where(good, scale, 1.0)
        hy = h @ y
        update = (1 + rho * fnp.vdot(y, hy)) * rho * fnp.outer(d, d) - rho * (fnp.outer(hy, d) + fnp.outer(d, hy))
        return _State(new, f, g, h + fnp.where(good, update, 0.0), s.count + 1, s.steps + tried + 2, stuck)

    f, g = both(x)
    start = _State(x, f, g, fnp.eye(x.size, dtype=x.dtype), 0, 1, fnp.asarray(False))
    end = lax.while_loop(lambda s: (size(s.g) > gtol) & (s.count < limit) & ~s.stuck, step, start)
    done = size(end.g) <= gtol
    status = fnp.where(done, 0, fnp.where(end.stuck, 2, 1))
    return OptimizeResults(end.x, done, status, end.f, end.g, end.h, end.steps, end.count + 1, end.count)
