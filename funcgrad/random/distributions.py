"""Distributions beyond the common ones, each by a closed formula of uniform or normal numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad import numpy as fnp
from funcgrad.array import as_value
from funcgrad.errors import ShapeError, message
from funcgrad.random.draws import bernoulli, float_dtype, normal, uniform
from funcgrad.random.keys import Shape, shape_of

__all__ = [
    "cauchy",
    "exponential",
    "geometric",
    "laplace",
    "logistic",
    "lognormal",
    "maxwell",
    "multivariate_normal",
    "orthogonal",
    "pareto",
    "rademacher",
    "rayleigh",
    "triangular",
    "weibull_min",
]


def exponential(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return values of density exp(-x): -log1p(-u).

    >>> x = exponential(fg.random.key(0), (10000,))
    >>> abs(float(x.mean()) - 1.0) < 0.05, bool((x >= 0).all())
    (True, True)
    """
    u = uniform(key, shape, float_dtype(dtype, "exponential"))
    return fnp.negative(fnp.log1p(fnp.negative(u)))


def laplace(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return values of density ``exp(-|x|) / 2``.

    >>> x = laplace(fg.random.key(0), (10000,))
    >>> abs(float(fnp.abs(x).mean()) - 1.0) < 0.05
    True
    """
    d = float_dtype(dtype, "laplace")
    u = uniform(key, shape, d, -1.0 + float(np.finfo(np.float32).epsneg), 1.0)
    return fnp.multiply(fnp.sign(u), fnp.log1p(fnp.negative(fnp.abs(u))))


def logistic(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return values with the logistic function as their distribution: log(u / (1 - u)).

    >>> x = logistic(fg.random.key(0), (10000,))
    >>> abs(float(x.std()) - np.pi / 3**0.5) < 0.05
    True
    """
    d = float_dtype(dtype, "logistic")
    u = uniform(key, shape, d, float(np.finfo(np.float32).tiny), 1.0)
    return fnp.subtract(fnp.log(u), fnp.log1p(fnp.negative(u)))


def cauchy(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return standard Cauchy values: tan(pi (u - 1/2)).

    >>> x = cauchy(fg.random.key(0), (1000,))
    >>> abs(float(fnp.median(x))) < 0.2
    True
    """
    d = float_dtype(dtype, "cauchy")
    u = uniform(key, shape, d, float(np.finfo(np.float32).eps), 1.0)
    return fnp.tan(fnp.multiply(fnp.subtract(u, 0.5), math.pi))


def rademacher(key: Any, shape: Shape = (), dtype: Any = int) -> Any:
    """Return -1 or 1 with equal probability.

    >>> x = rademacher(fg.random.key(0), (100,))
    >>> sorted(set(x.tolist()))
    [-1, 1]
    """
    up = bernoulli(key, 0.5, shape)
    return fnp.astype(fnp.subtract(fnp.multiply(fnp.astype(up, dtypes.int32), 2), 1), dtypes.as_dtype(dtype))


def parameters(what: str, shape: Shape | None, *params: Any) -> tuple[tuple[int, ...], list[Any]]:
    """The shape of the result and the parameters as float values; ShapeError unless they broadcast to it."""
    values = [_as_float(p, what) for p in params]
    own = fnp.broadcast_shapes(*[v.aval.shape for v in values])
    full = own if shape is None else shape_of(shape, what)
    if fnp.broadcast_shapes(own, full) != full:
        requirement = f"the parameters must broadcast to shape {full}"
        raise ShapeError(message(f"random.{what}", requirement, str(own), "enlarge shape"))
    return full, values


def array_parameters(what: str, shape: Shape | None, *params: Any) -> tuple[tuple[int, ...], list[Any]]:
    """The same with arrays, for formulas written with operators."""
    full, values = parameters(what, shape, *params)
    return full, [fnp.asarray(v) for v in values]


def _as_float(p: Any, what: str) -> Any:
    v = as_value(p)
    return v if v.aval.dtype in dtypes.FLOATS else fnp.astype(v, float_dtype(float, what))


def lognormal(key: Any, sigma: Any = 1.0, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return exp(sigma z) with z standard normal.

    >>> x = lognormal(fg.random.key(0), 0.5, (10000,))
    >>> abs(float(fnp.log(x).std()) - 0.5) < 0.02
    True
    """
    full, [s] = parameters("lognormal", shape, sigma)
    d = float_dtype(dtype, "lognormal")
    return fnp.exp(fnp.multiply(normal(key, full, d), fnp.astype(s, d)))


def maxwell(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return the norm of three standard normal values.

    >>> x = maxwell(fg.random.key(0), (10000,))
    >>> abs(float((x**2).mean()) - 3.0) < 0.1
    True
    """
    z = normal(key, (*shape_of(shape, "maxwell"), 3), float_dtype(dtype, "maxwell"))
    return fnp.sqrt(fnp.sum(fnp.square(z), axis=-1))


def pareto(key: Any, b: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return values of density b x^(-b - 1) for x at least 1: exp(e / b) with e exponential.

    >>> x = pareto(fg.random.key(0), 3.0, (10000,))
    >>> abs(float(x.mean()) - 3 / 2) < 0.05
    True
    """
    full, [p] = parameters("pareto", shape, b)
    d = float_dtype(dtype, "pareto")
    return fnp.exp(fnp.divide(exponential(key, full, d), fnp.astype(p, d)))


def rayleigh(key: Any, scale: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return values of density x / s^2 exp(-x^2 / (2 s^2)) with s the scale: s sqrt(-2 log u).

    >>> x = rayleigh(fg.random.key(0), 2.0, (10000,))
    >>> abs(float((x**2).mean()) - 8.0) < 0.3
    True
    """
    full, [s] = parameters("rayleigh", shape, scale)
    d = float_dtype(dtype, "rayleigh")
    return fnp.multiply(fnp.astype(s, d), fnp.sqrt(fnp.multiply(fnp.log(uniform(key, full, d)), -2.0)))


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return scale (-log(1 - u))^(1 / concentration), which has the Weibull distribution.

    >>> x = weibull_min(fg.random.key(0), 2.0, 1.0, (10000,))
    >>> abs(float(x.mean()) - 2.0) < 0.1
    True
    """
    full, [s, c] = parameters("weibull_min", shape, scale, concentration)
    d = float_dtype(dtype, "weibull_min")
    e = fnp.negative(fnp.log1p(fnp.negative(uniform(key, full, d))))
    return fnp.multiply(fnp.power(e, fnp.divide(1.0, fnp.astype(c, d))), fnp.astype(s, d))


def geometric(key: Any, p: Any, shape: Shape | None = None, dtype: Any = int) -> Any:
    """Return the number of trials up to the first success, of probability ``p`` each: floor(log u / log(1 - p)) + 1.

    >>> int(geometric(fg.random.key(0), 1.0))
    1
    """
    full, [prob] = parameters("geometric", shape, p)
    u = uniform(key, full, prob.aval.dtype)
    log_u = fnp.log(fnp.where(fnp.equal(u, 0.0), 1.0, u))
    trials = fnp.add(fnp.floor(fnp.divide(log_u, fnp.log1p(fnp.negative(prob)))), 1.0)
    return fnp.astype(trials, dtypes.as_dtype(dtype))


def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return values whose density rises linearly from ``left`` to ``mode`` and falls to ``right``.

    >>> x = triangular(fg.random.key(0), 0.0, 1.0, 2.0, (10000,))
    >>> abs(float(x.mean()) - 1.0) < 0.02
    True
    """
    full, params = parameters("triangular", shape, left, mode, right)
    d = float_dtype(dtype, "triangular")
    a, c, b = [fnp.broadcast_to(fnp.astype(v, d), full) for v in params]
    u = uniform(key, full, d)
    width = fnp.subtract(b, a)
    up = fnp.add(a, fnp.sqrt(fnp.multiply(fnp.multiply(u, width), fnp.subtract(c, a))))
    down = fnp.subtract(b, fnp.sqrt(fnp.multiply(fnp.multiply(fnp.subtract(1.0, u), width), fnp.subtract(b, c))))
    return fnp.where(fnp.less(u, fnp.divide(fnp.subtract(c, a), width)), up, down)


def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return mean + L z with z standard normal and L L' = cov (Cholesky), shape ``(*shape, n)``.

    ``mean`` is [..., n] and ``cov`` [..., n, n], symmetric and positive definite.

    >>> cov = asarray([[1.0, 0.8], [0.8, 1.0]])
    >>> x = multivariate_normal(fg.random.key(0), fnp.zeros(2), cov, (10000,))
    >>> bool(fnp.allclose(fnp.cov(x.T), cov, atol=0.05))
    True
    """
    d = float_dtype(dtype, "multivariate_normal")
    m, c = [fnp.astype(as_value(v), d) for v in (mean, cov)]
    n = m.aval.shape[-1] if m.aval.ndim else 0
    if m.aval.ndim < 1 or c.aval.shape[-2:] != (n, n):
        requirement = "mean must be [..., n] and cov [..., n, n]"
        raise ShapeError(message("random.multivariate_normal", requirement, f"{m.aval.shape} and {c.aval.shape}"))
    lead = fnp.broadcast_shapes(m.aval.shape[:-1], c.aval.shape[:-2])
    full = lead if shape is None else shape_of(shape, "multivariate_normal")
    z = normal(key, (*full, n), d)
    return fnp.add(m, fnp.einsum("...ij,...j->...i", fnp.linalg.cholesky(c), z))


def orthogonal(key: Any, n: int, shape: Shape = (), dtype: Any = float, m: int | None = None) -> Any:
    """Return matrices uniform among those with orthonormal rows or columns, whichever are fewer: ``(*shape, n, m)``.

    The orthogonal factor of a normal matrix, with the signs that make the triangular factor's diagonal positive
    (Mezzadri, 2007).

    >>> q = orthogonal(fg.random.key(0), 3)
    >>> bool(fnp.allclose(q @ q.T, fnp.eye(3), atol=1e-5))
    True
    """
    rows, columns = n, n if m is None else m
    size = (*shape_of(shape, "orthogonal"), max(rows, columns), min(rows, columns))
    q, r = fnp.linalg.qr(normal(key, size, float_dtype(dtype, "orthogonal")))
    signs = fnp.sign(fnp.diagonal(r, axis1=-2, axis2=-1))
    out = fnp.multiply(q, fnp.expand_dims(signs, -2))
    return fnp.matrix_transpose(out) if rows < columns else out
