"""The gamma distribution, and those made of it: beta, Dirichlet, chi-square, Student's t, F, generalized normal.

Draws are exact for every parameter and differentiable by it; their bits are this library's own, not JAX's.
"""

from __future__ import annotations

from typing import Any

from funcgrad import dtypes, lax
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.random.distributions import array_parameters, exponential, maxwell, rademacher
from funcgrad.random.draws import float_dtype, normal, uniform
from funcgrad.random.keys import Shape, shape_of, split
from funcgrad.transforms import custom_jvp

__all__ = [
    "ball",
    "beta",
    "chisquare",
    "dirichlet",
    "double_sided_maxwell",
    "f",
    "gamma",
    "generalized_normal",
    "loggamma",
    "t",
    "wald",
]


def _marsaglia(key: Any, a: Any) -> Any:
    """log of a draw for each a >= 1, by rejection from a cubed normal (Marsaglia and Tsang, 2000)."""
    d = a - 1 / 3
    c = 1 / fnp.sqrt(9 * d)

    def step(state: Any) -> Any:
        key, done, out = state
        key, k1, k2 = split(key, 3)
        z, u = normal(k1, a.shape, a.dtype), uniform(k2, a.shape, a.dtype)
        root = 1 + c * z
        inside = root > 0
        log_v = 3 * fnp.log(fnp.where(inside, root, 1.0))
        bound = 0.5 * z * z + d * (1 - fnp.exp(log_v) + log_v)
        accept = inside & (fnp.log(fnp.maximum(u, 1e-37)) < bound)
        return key, done | accept, fnp.where(accept & ~done, log_v, out)

    start = (key, fnp.zeros(a.shape, bool), fnp.zeros_like(a))
    return fnp.log(d) + lax.while_loop(lambda s: ~fnp.all(s[1]), step, start)[2]


@custom_jvp
def _log_draw(key: Any, a: Any) -> Any:
    """A draw for a + 1 times u^(1/a) is one for a, where a < 1; in logarithms nothing underflows."""
    k1, k2 = split(key)
    valid = a > 0
    small = valid & (a < 1)
    base = _marsaglia(k1, fnp.where(valid, fnp.where(small, a + 1, a), 1.0))
    log_u = -exponential(k2, a.shape, a.dtype)
    return fnp.where(valid, base + fnp.where(small, log_u / fnp.where(valid, a, 1.0), 0.0), fnp.nan)


@_log_draw.defjvp
def _log_draw_jvp(primals: Any, tangents: Any) -> Any:
    """d log x / da at a fixed quantile; for x below a float's range P(a, x) is x^a / Gamma(a + 1)."""
    (key, a), (_, ta) = primals, tangents
    log_x = _log_draw(key, a)
    tiny = log_x < -60.0
    x = fnp.exp(fnp.where(tiny, 0.0, log_x))
    slope = fnp.where(tiny, (lax.digamma(a + 1) - log_x) / a, lax.random_gamma_grad(a, x) / x)
    return log_x, ta * slope


def loggamma(key: Any, a: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return logarithms of draws of the gamma distribution with shape parameter ``a``, exact where a draw underflows.

    >>> loggamma(fg.random.key(0), 1e-3).shape
    ()
    """
    full, [p] = array_parameters("loggamma", shape, a)
    d = float_dtype(dtype, "loggamma")
    wide = fnp.float32 if d in dtypes.HALVES else d
    return fnp.astype(_log_draw(key, fnp.broadcast_to(fnp.astype(p, wide), full)), d)


def gamma(key: Any, a: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return values of density x^(a - 1) exp(-x) / Gamma(a), differentiable by ``a``.

    >>> g = gamma(fg.random.key(0), 3.0, (5000,))
    >>> abs(float(g.mean()) - 3) < 0.1
    True
    """
    return fnp.exp(loggamma(key, a, shape, dtype))


def beta(key: Any, a: Any, b: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return values of density proportional to x^(a - 1) (1 - x)^(b - 1): the share of one gamma draw in two.

    >>> 0.0 <= float(beta(fg.random.key(0), 2.0, 3.0)) <= 1.0
    True
    """
    full, [p, q] = array_parameters("beta", shape, a, b)
    k1, k2 = split(key)
    x, y = loggamma(k1, p, full, dtype), loggamma(k2, q, full, dtype)
    return fnp.exp(x - fnp.logaddexp(x, y))


def dirichlet(key: Any, alpha: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return points of the simplex with density proportional to prod x_i^(alpha_i - 1): ``(*shape, n)``.

    >>> d = dirichlet(fg.random.key(0), fnp.ones(3))
    >>> round(float(d.sum()), 4)
    1.0
    """
    p = fnp.asarray(alpha)
    if not p.ndim:
        raise ShapeError(message("random.dirichlet", "alpha must be a vector or a stack of vectors", str(p.aval)))
    lead = p.shape[:-1] if shape is None else shape_of(shape, "dirichlet")
    x = loggamma(key, p, (*lead, p.shape[-1]), dtype)
    x = fnp.exp(x - lax.stop_gradient(fnp.max(x, axis=-1, keepdims=True)))
    return x / fnp.sum(x, axis=-1, keepdims=True)


def chisquare(key: Any, df: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return sums of ``df`` squared standard normal values, for any df above 0: twice a gamma draw for df / 2.

    >>> x = chisquare(fg.random.key(0), 3.0, (10000,))
    >>> abs(float(x.mean()) - 3.0) < 0.1
    True
    """
    full, [n] = array_parameters("chisquare", shape, df)
    return 2 * gamma(key, 0.5 * n, full, dtype)


def t(key: Any, df: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return Student's t with ``df`` degrees of freedom: a normal value over the root of a mean of squares.

    >>> x = t(fg.random.key(0), 5.0, (10000,))
    >>> abs(float((x**2).mean()) - 5 / 3) < 0.15
    True
    """
    full, [n] = array_parameters("t", shape or None, df)
    d = float_dtype(dtype, "t")
    k1, k2 = split(key)
    half = 0.5 * fnp.astype(n, d)
    return normal(k1, full, d) * fnp.sqrt(half / gamma(k2, half, full, d))


def f(key: Any, dfnum: Any, dfden: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return ratios of two mean squares, of ``dfnum`` and ``dfden`` degrees of freedom (Fisher's F).

    >>> x = f(fg.random.key(0), 5.0, 10.0, (10000,))
    >>> abs(float(x.mean()) - 10 / 8) < 0.1
    True
    """
    full, [m, n] = array_parameters("f", shape, dfnum, dfden)
    k1, k2 = split(key)
    return (chisquare(k1, m, full, dtype) / m) / (chisquare(k2, n, full, dtype) / n)


def generalized_normal(key: Any, p: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return values of density proportional to ``exp(-|x|^p)``: a signed root of a gamma draw for 1 / p.

    >>> generalized_normal(fg.random.key(0), 2.0, (3,)).shape
    (3,)
    """
    full, [q] = array_parameters("generalized_normal", shape, p)
    d = float_dtype(dtype, "generalized_normal")
    k1, k2 = split(key)
    power = fnp.astype(q, d)
    return rademacher(k2, full, d) * fnp.exp(loggamma(k1, 1 / power, full, d) / power)


def ball(key: Any, d: int, p: float = 2, shape: Shape = (), dtype: Any = float) -> Any:
    """Return points uniform in the unit ball of the p-norm in ``d`` dimensions, ``(*shape, d)`` (Barthe et al. 2005).

    >>> float(fnp.linalg.norm(ball(fg.random.key(0), 3))) <= 1.0
    True
    """
    full, kind = shape_of(shape, "ball"), float_dtype(dtype, "ball")
    k1, k2 = split(key)
    g, e = generalized_normal(k1, float(p), (*full, d), kind), exponential(k2, full, kind)
    return g / fnp.expand_dims((fnp.sum(fnp.abs(g) ** p, axis=-1) + e) ** (1 / p), -1)


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return loc + scale s m with s a random sign and m of Maxwell's distribution.

    >>> x = double_sided_maxwell(fg.random.key(0), 1.0, 2.0, (10000,))
    >>> abs(float(x.mean()) - 1.0) < 0.1
    True
    """
    full, [center, width] = array_parameters("double_sided_maxwell", shape or None, loc, scale)
    d = float_dtype(dtype, "double_sided_maxwell")
    k1, k2 = split(key)
    return fnp.astype(center, d) + fnp.astype(width, d) * rademacher(k2, full, d) * maxwell(k1, full, d)


def wald(key: Any, mean: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return values of the inverse Gaussian distribution of a mean and scale 1 (Michael, Schucany and Haas, 1976).

    >>> x = wald(fg.random.key(0), 2.0, (10000,))
    >>> abs(float(x.mean()) - 2.0) < 0.1
    True
    """
    full, [m] = array_parameters("wald", shape, mean)
    d = float_dtype(dtype, "wald")
    k1, k2 = split(key)
    mu = fnp.broadcast_to(fnp.astype(m, d), full)
    w = 0.5 * fnp.square(mu * normal(k1, full, d))
    # The smaller root of (x - mu)^2 = 2 w x, without the cancellation of its usual form.
    low = mu / (1 + (w + fnp.sqrt(w * (w + 2 * mu))) / mu)
    return fnp.where(uniform(k2, full, d) * (mu + low) <= mu, low, mu * (mu / low))
