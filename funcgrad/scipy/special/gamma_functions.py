"""Gamma, beta, zeta and Bessel functions."""

from __future__ import annotations

import math
from typing import Any

from funcgrad import lax
from funcgrad import numpy as fnp
from funcgrad.errors import message
from funcgrad.scipy.special.operands import floats

__all__ = [
    "beta",
    "betainc",
    "betaln",
    "comb",
    "digamma",
    "factorial",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "i0e",
    "i1",
    "i1e",
    "loggamma",
    "multigammaln",
    "poch",
    "polygamma",
    "zeta",
]


def gammaln(x: Any) -> Any:
    """Return the logarithm of the absolute value of the gamma function.

    >>> from funcgrad.scipy import special
    >>> special.gammaln(5.0)
    Array(3.1780539, dtype=float32)
    """
    return lax.lgamma(floats("gammaln", x)[0])


loggamma = gammaln


def gammasgn(x: Any) -> Any:
    """Return the sign of the gamma function: 1 for x > 0, alternating between its poles below, where it is NaN.

    >>> from funcgrad.scipy import special
    >>> special.gammasgn(fnp.asarray([2.5, -0.5, -1.5]))
    Array([ 1., -1.,  1.], dtype=float32)
    """
    (v,) = floats("gammasgn", x)
    low = fnp.floor(v)
    below = fnp.where(low == v, fnp.nan, fnp.where(fnp.mod(low, 2) == 0, 1.0, -1.0))
    return fnp.astype(fnp.where(v > 0, 1.0, fnp.where(v == 0, fnp.copysign(1.0, v), below)), v.dtype)


def gamma(x: Any) -> Any:
    """Return the gamma function; infinite at 0, NaN at negative integers.

    >>> from funcgrad.scipy import special
    >>> special.gamma(fnp.asarray([0.5, 5.0]))
    Array([ 1.7724539, 24.      ], dtype=float32)
    """
    (v,) = floats("gamma", x)
    return gammasgn(v) * fnp.exp(lax.lgamma(v))


def _whole(out: Any, *xs: Any) -> Any:
    """Round a count of whole numbers, where float32 holds it exactly; the derivative stays that of ``out``."""
    exact = fnp.abs(out) < 2.0**20
    for x in xs:
        exact = exact & (x == fnp.floor(x))
    return out + lax.stop_gradient(fnp.where(exact, fnp.round(out) - out, 0.0))


def factorial(n: Any, exact: bool = False) -> Any:
    """Return n! as a float, 0 for negative n; ``exact=True`` (integers of any size) does not exist here.

    >>> from funcgrad.scipy import special
    >>> special.factorial(fnp.asarray([0, 3, 5]))
    Array([  1.,   6., 120.], dtype=float32)
    """
    if exact:
        raise NotImplementedError(message("factorial", "exact must be False", "True", "use math.factorial"))
    (v,) = floats("factorial", n)
    inside = v >= 0
    return fnp.where(inside, _whole(fnp.exp(lax.lgamma(fnp.where(inside, v, 0.0) + 1)), v), 0.0)


def comb(N: Any, k: Any, *, repetition: bool = False) -> Any:
    """Return the number of ways to choose k of N, with ``repetition`` if asked; 0 where k < 0 or k > N.

    >>> from funcgrad.scipy import special
    >>> special.comb(5, fnp.asarray([0, 2, 6]))
    Array([ 1., 10.,  0.], dtype=float32)
    """
    n, v = floats("comb", N, k)
    if repetition:
        n = n + v - 1
    inside = (v >= 0) & (v <= n)
    n, v = fnp.where(inside, n, 1.0), fnp.where(inside, v, 1.0)
    ways = fnp.exp(lax.lgamma(n + 1) - lax.lgamma(v + 1) - lax.lgamma(n - v + 1))
    return fnp.where(inside, _whole(ways, n, v), 0.0)


def poch(z: Any, m: Any) -> Any:
    """Return Pochhammer's symbol, gamma(z + m) / gamma(z).

    >>> from funcgrad.scipy import special
    >>> special.poch(3.0, 2.0)
    Array(12., dtype=float32)
    """
    u, v = floats("poch", z, m)
    sign = gammasgn(u + v) * gammasgn(u)
    return fnp.where(v == 0, 1.0, sign * fnp.exp(lax.lgamma(u + v) - lax.lgamma(u)))


def multigammaln(a: Any, d: int) -> Any:
    """Return the logarithm of the multivariate gamma function of dimension d, for a > (d - 1) / 2.

    >>> from funcgrad.scipy import special
    >>> special.multigammaln(fnp.asarray(3.0), 2)
    Array(1.550195, dtype=float32)
    """
    (v,) = floats("multigammaln", a)
    if int(d) != d or d < 1:
        raise ValueError(message("multigammaln", "d must be a positive integer", repr(d)))
    terms = lax.lgamma(v[..., None] - fnp.arange(int(d), dtype=v.dtype) / 2).sum(-1)
    return terms + 0.25 * d * (d - 1) * math.log(math.pi)


def betaln(a: Any, b: Any) -> Any:
    """Return the logarithm of the beta function.

    >>> from funcgrad.scipy import special
    >>> special.betaln(2.0, 3.0)
    Array(-2.484907, dtype=float32)
    """
    u, v = floats("betaln", a, b)
    return lax.lgamma(u) + lax.lgamma(v) - lax.lgamma(u + v)


def beta(a: Any, b: Any) -> Any:
    """Return the beta function, gamma(a) gamma(b) / gamma(a + b).

    >>> from funcgrad.scipy import special
    >>> special.beta(2.0, 3.0)
    Array(0.08333333, dtype=float32)
    """
    u, v = floats("beta", a, b)
    return gammasgn(u) * gammasgn(v) * gammasgn(u + v) * fnp.exp(betaln(u, v))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Return the regularised incomplete beta function.

    >>> from funcgrad.scipy import special
    >>> special.betainc(1.0, 2.0, 0.5)
    Array(0.75, dtype=float32)
    """
    return lax.betainc(*floats("betainc", a, b, x))


def gammainc(a: Any, x: Any) -> Any:
    """Return the regularised lower incomplete gamma function.

    >>> from funcgrad.scipy import special
    >>> special.gammainc(1.0, 2.0)
    Array(0.8646647, dtype=float32)
    """
    return lax.igamma(*floats("gammainc", a, x))


def gammaincc(a: Any, x: Any) -> Any:
    """Return the regularised upper incomplete gamma function.

    >>> from funcgrad.scipy import special
    >>> special.gammaincc(1.0, 2.0)
    Array(0.1353353, dtype=float32)
    """
    return lax.igammac(*floats("gammaincc", a, x))


def digamma(x: Any) -> Any:
    """Return the derivative of :func:`gammaln`.

    >>> from funcgrad.scipy import special
    >>> special.digamma(1.0)
    Array(-0.5772157, dtype=float32)
    """
    return lax.digamma(floats("digamma", x)[0])


def polygamma(n: Any, x: Any) -> Any:
    """Return the n-th derivative of :func:`digamma`.

    >>> from funcgrad.scipy import special
    >>> special.polygamma(1, 1.0)
    Array(1.644934, dtype=float32)
    """
    return lax.polygamma(n, floats("polygamma", x)[0])


def zeta(x: Any, q: Any = 1.0) -> Any:
    """Return Hurwitz' zeta function, the sum over k >= 0 of (q + k)^-x; Riemann's where q is 1.

    >>> from funcgrad.scipy import special
    >>> special.zeta(2.0)
    Array(1.644934, dtype=float32)
    """
    return lax.zeta(*floats("zeta", x, 1.0 if q is None else q))


def i0e(x: Any) -> Any:
    """Return ``exp(-|x|)`` times the modified Bessel function of the first kind of order 0.

    >>> from funcgrad.scipy import special
    >>> special.i0e(1.0)
    Array(0.4657596, dtype=float32)
    """
    return lax.bessel_i0e(floats("i0e", x)[0])


def i1e(x: Any) -> Any:
    """Return ``exp(-|x|)`` times the modified Bessel function of the first kind of order 1.

    >>> from funcgrad.scipy import special
    >>> special.i1e(1.0)
    Array(0.2079104, dtype=float32)
    """
    return lax.bessel_i1e(floats("i1e", x)[0])


def i1(x: Any) -> Any:
    """Return the modified Bessel function of the first kind of order 1.

    >>> from funcgrad.scipy import special
    >>> special.i1(1.0)
    Array(0.5651591, dtype=float32)
    """
    (v,) = floats("i1", x)
    return fnp.exp(fnp.abs(v)) * lax.bessel_i1e(v)
