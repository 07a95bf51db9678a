"""Entropies, and transformations of probabilities and of data."""

from __future__ import annotations

from typing import Any

from funcgrad import lax
from funcgrad import numpy as fnp
from funcgrad.numpy import logsumexp
from funcgrad.scipy.special.operands import floats
from funcgrad.transforms import custom_jvp

__all__ = [
    "boxcox",
    "boxcox1p",
    "entr",
    "expit",
    "kl_div",
    "log_softmax",
    "logit",
    "rel_entr",
    "softmax",
    "xlog1py",
    "xlogy",
]


@custom_jvp
def _xlogy(x: Any, y: Any) -> Any:
    zero = x == 0
    return fnp.where(zero, fnp.where(fnp.isnan(y), fnp.nan, 0.0), x * fnp.log(fnp.where(zero, 1.0, y)))


@_xlogy.defjvp
def _xlogy_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (tx, ty) = primals, tangents
    zero = x == 0
    return _xlogy(x, y), tx * fnp.log(y) + ty * fnp.where(zero, 0.0, x / fnp.where(zero, 1.0, y))


def xlogy(x: Any, y: Any) -> Any:
    """Return x log(y), which is 0 where x is 0, whatever y is.

    >>> from funcgrad.scipy import special
    >>> special.xlogy(fnp.asarray([0.0, 2.0]), fnp.asarray([0.0, 1.0]))
    Array([0., 0.], dtype=float32)
    """
    return _xlogy(*floats("xlogy", x, y))


def xlog1py(x: Any, y: Any) -> Any:
    """Return x log(1 + y), which is 0 where x is 0; exact for small y.

    >>> from funcgrad.scipy import special
    >>> special.xlog1py(fnp.asarray([0.0, 2.0]), fnp.asarray([-1.0, 0.0]))
    Array([0., 0.], dtype=float32)
    """
    u, v = floats("xlog1py", x, y)
    return _xlog1py(u, v)


@custom_jvp
def _xlog1py(x: Any, y: Any) -> Any:
    zero = x == 0
    return fnp.where(zero, fnp.where(fnp.isnan(y), fnp.nan, 0.0), x * fnp.log1p(fnp.where(zero, 0.0, y)))


@_xlog1py.defjvp
def _xlog1py_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (tx, ty) = primals, tangents
    zero = x == 0
    return _xlog1py(x, y), tx * fnp.log1p(y) + ty * fnp.where(zero, 0.0, x / fnp.where(zero, 1.0, 1 + y))


def entr(x: Any) -> Any:
    """Return -x log(x), 0 at 0 and -inf below.

    >>> from funcgrad.scipy import special
    >>> special.entr(fnp.asarray([-1.0, 0.0, 1.0]))
    Array([-inf,   0.,   0.], dtype=float32)
    """
    (v,) = floats("entr", x)
    return fnp.where(v < 0, -fnp.inf, -_xlogy(v, fnp.where(v < 0, 1.0, v)))


def rel_entr(p: Any, q: Any) -> Any:
    """Return p log(p / q): 0 where p = 0 and q >= 0, inf outside p > 0, q > 0 otherwise.

    >>> from funcgrad.scipy import special
    >>> special.rel_entr(fnp.asarray([0.0, 1.0, 1.0]), fnp.asarray([1.0, 1.0, 0.0]))
    Array([ 0.,  0., inf], dtype=float32)
    """
    u, v = floats("rel_entr", p, q)
    both = (u > 0) & (v > 0)
    a, b = fnp.where(both, u, 1.0), fnp.where(both, v, 1.0)
    value = a * (fnp.log(a) - fnp.log(b))
    missing = fnp.isnan(u) | fnp.isnan(v)
    other = fnp.where(missing, fnp.nan, fnp.where((u == 0) & (v >= 0), 0.0, fnp.inf))
    return fnp.where(both, value, other)


def kl_div(p: Any, q: Any) -> Any:
    """Return p log(p / q) - p + q elementwise, with the conventions of :func:`rel_entr`.

    >>> from funcgrad.scipy import special
    >>> special.kl_div(fnp.asarray([0.0, 2.0]), fnp.asarray([1.0, 2.0]))
    Array([1., 0.], dtype=float32)
    """
    u, v = floats("kl_div", p, q)
    return rel_entr(u, v) - u + v


def expit(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), the inverse of :func:`logit`.

    >>> from funcgrad.scipy import special
    >>> special.expit(0.0)
    Array(0.5, dtype=float32)
    """
    return lax.logistic(floats("expit", x)[0])


def logit(x: Any) -> Any:
    """Return log(x / (1 - x)).

    >>> from funcgrad.scipy import special
    >>> special.logit(fnp.asarray([0.0, 0.5, 1.0]))
    Array([-inf,   0.,  inf], dtype=float32)
    """
    (v,) = floats("logit", x)
    return fnp.log(v) - fnp.log1p(-v)


def boxcox(x: Any, lmbda: Any) -> Any:
    """Return (x^lmbda - 1) / lmbda, log(x) where lmbda is 0.

    >>> from funcgrad.scipy import special
    >>> special.boxcox(2.0, fnp.asarray([0.0, 1.0]))
    Array([0.6931472, 1.       ], dtype=float32)
    """
    u, v = floats("boxcox", x, lmbda)
    return _boxcox(fnp.log(u), v)


def boxcox1p(x: Any, lmbda: Any) -> Any:
    """Return :func:`boxcox` of 1 + x, exact for small x.

    >>> from funcgrad.scipy import special
    >>> special.boxcox1p(1.0, fnp.asarray([0.0, 1.0]))
    Array([0.6931472, 1.       ], dtype=float32)
    """
    u, v = floats("boxcox1p", x, lmbda)
    return _boxcox(fnp.log1p(u), v)


def _boxcox(log: Any, power: Any) -> Any:
    zero = power == 0
    return fnp.where(zero, log, fnp.expm1(power * log) / fnp.where(zero, 1.0, power))


def softmax(x: Any, /, *, axis: Any = None) -> Any:
    """Return exp(x) over its sum along axes, all of them by default (``nn.softmax`` takes the last).

    >>> from funcgrad.scipy import special
    >>> special.softmax(fnp.zeros((2, 2))).sum()
    Array(1., dtype=float32)
    """
    (v,) = floats("softmax", x)
    return fnp.exp(v - logsumexp(v, axis=axis, keepdims=True))


def log_softmax(x: Any, /, *, axis: Any = None) -> Any:
    """Return x minus its :func:`logsumexp` along axes, all of them by default.

    >>> from funcgrad.scipy import special
    >>> special.log_softmax(fnp.zeros(2))
    Array([-0.6931472, -0.6931472], dtype=float32)
    """
    (v,) = floats("log_softmax", x)
    return v - logsumexp(v, axis=axis, keepdims=True)
