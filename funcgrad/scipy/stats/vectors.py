"""Distributions of vectors: multivariate normal, Dirichlet, multinomial."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from funcgrad import lax
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.promotion import floating_arrays
from funcgrad.scipy.special import gammaln, xlogy

__all__ = ["dirichlet", "multinomial", "multivariate_normal"]


def _normal_logpdf(x: Any, mean: Any, cov: Any, allow_singular: Any = None) -> Any:
    """Return the logarithm of the density of the multivariate normal distribution at vectors on the last axis.

    ``mean`` is a vector per point, ``cov`` a positive definite matrix per point, or a scalar (one dimension, or the
    variance of each).  ``allow_singular`` is not supported.

    >>> from funcgrad.scipy.stats import multivariate_normal
    >>> multivariate_normal.logpdf(fnp.zeros(2), fnp.zeros(2), fnp.eye(2))
    Array(-1.837877, dtype=float32)
    """
    name = "multivariate_normal.logpdf"
    if allow_singular:
        raise NotImplementedError(message(name, "allow_singular must be None or False", repr(allow_singular)))
    v, m, c = floating_arrays(name, x, mean, cov)
    if not m.ndim:
        z = (v - m) if not c.ndim else None
        if z is None:
            raise ShapeError(message(name, "a scalar mean needs a scalar cov", str(c.shape)))
        return -0.5 * (fnp.square(z) / c + math.log(2 * math.pi) + fnp.log(c))
    n = m.shape[-1]
    if not c.ndim:
        z = v - m
        return -0.5 * (fnp.square(z).sum(-1) / c + n * (math.log(2 * math.pi) + fnp.log(c)))
    if c.ndim < 2 or c.shape[-2:] != (n, n):
        raise ShapeError(message(name, f"cov must be {n} x {n} matrices, as mean has {n} elements", str(c.shape)))
    factor = fnp.linalg.cholesky(c)
    z = v - m
    lead = fnp.broadcast_shapes(z.shape[:-1], c.shape[:-2])
    if c.ndim == 2:  # one factor for all points
        columns = fnp.moveaxis(z, -1, 0).reshape(n, -1)
        y = lax.linalg.triangular_solve(factor, columns, left_side=True, lower=True)
        square = fnp.square(y).sum(0).reshape(lead)
    else:
        wide = fnp.broadcast_to(factor, (*lead, n, n))
        column = fnp.broadcast_to(z, (*lead, n))[..., None]
        square = fnp.square(lax.linalg.triangular_solve(wide, column, left_side=True, lower=True)).sum((-1, -2))
    logdet = fnp.log(fnp.diagonal(factor, axis1=-1, axis2=-2)).sum(-1)
    return -0.5 * (square + n * math.log(2 * math.pi)) - logdet


def _normal_pdf(x: Any, mean: Any, cov: Any, allow_singular: Any = None) -> Any:
    """Return the density of the multivariate normal distribution; see ``multivariate_normal.logpdf``.

    >>> from funcgrad.scipy.stats import multivariate_normal
    >>> multivariate_normal.pdf(fnp.zeros(2), fnp.zeros(2), fnp.eye(2))
    Array(0.1591549, dtype=float32)
    """
    return fnp.exp(_normal_logpdf(x, mean, cov, allow_singular))


def _dirichlet_logpdf(x: Any, alpha: Any) -> Any:
    """Return the logarithm of the Dirichlet density of probabilities on the first axis of x, -inf off the simplex.

    x may leave out the last probability.  ``alpha`` is a vector.

    >>> from funcgrad.scipy.stats import dirichlet
    >>> dirichlet.logpdf(fnp.asarray([0.3, 0.7]), fnp.asarray([1.0, 1.0]))
    Array(0., dtype=float32)
    """
    v, a = floating_arrays("dirichlet.logpdf", x, alpha)
    if a.ndim != 1 or not v.ndim or v.shape[0] not in (a.size, a.size - 1):
        requirement = "alpha must be a vector, and x's first axis as long or one shorter"
        raise ShapeError(message("dirichlet.logpdf", requirement, f"{a.shape} and {v.shape}"))
    if v.shape[0] == a.size - 1:
        v = fnp.concatenate([v, 1 - v.sum(0, keepdims=True)])
    inside = (v > 0).all(0) & (fnp.abs(v.sum(0) - 1) < 1e-5)
    shape = a.reshape((-1,) + (1,) * (v.ndim - 1))
    value = xlogy(shape - 1, fnp.where(inside, v, 1.0)).sum(0) - gammaln(a).sum() + gammaln(a.sum())
    return fnp.where(inside, value, -fnp.inf)


def _dirichlet_pdf(x: Any, alpha: Any) -> Any:
    """Return the Dirichlet density; see ``dirichlet.logpdf``.

    >>> from funcgrad.scipy.stats import dirichlet
    >>> dirichlet.pdf(fnp.asarray([0.3, 0.7]), fnp.asarray([2.0, 1.0]))
    Array(0.6, dtype=float32)
    """
    return fnp.exp(_dirichlet_logpdf(x, alpha))


def _multinomial_logpmf(x: Any, n: Any, p: Any) -> Any:
    """Return the logarithm of the multinomial probability of the counts on the last axis of x.

    -inf unless they sum to n.

    >>> from funcgrad.scipy.stats import multinomial
    >>> multinomial.logpmf(fnp.asarray([1, 1]), 2, fnp.asarray([0.5, 0.5]))
    Array(-0.6931472, dtype=float32)
    """
    k, count, q = floating_arrays("multinomial.logpmf", x, n, p)
    value = gammaln(count + 1) + (xlogy(k, q) - gammaln(k + 1)).sum(-1)
    return fnp.where(k.sum(-1) == count, value, -fnp.inf)


def _multinomial_pmf(x: Any, n: Any, p: Any) -> Any:
    """Return the multinomial probability of counts; see ``multinomial.logpmf``.

    >>> from funcgrad.scipy.stats import multinomial
    >>> multinomial.pmf(fnp.asarray([1, 1]), 2, fnp.asarray([0.5, 0.5]))
    Array(0.5, dtype=float32)
    """
    return fnp.exp(_multinomial_logpmf(x, n, p))


multivariate_normal = SimpleNamespace(logpdf=_normal_logpdf, pdf=_normal_pdf)
dirichlet = SimpleNamespace(logpdf=_dirichlet_logpdf, pdf=_dirichlet_pdf)
multinomial = SimpleNamespace(logpmf=_multinomial_logpmf, pmf=_multinomial_pmf)
