"""Special functions with the names of ``jax.scipy.special``; integers count as float32, and all have derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from funcgrad import dtypes, lax
from funcgrad import numpy as fnp
from funcgrad.errors import message
from funcgrad.numpy import i0, logsumexp
from funcgrad.numpy.promotion import floating_arrays
from funcgrad.transforms import custom_jvp

__all__ = [
    "beta",
    "betainc",
    "betaln",
    "boxcox",
    "boxcox1p",
    "comb",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "expit",
    "factorial",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "poch",
    "polygamma",
    "rel_entr",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]

SQRT_2, LOG_2PI = math.sqrt(2), math.log(2 * math.pi)


def _floats(name: str, *xs: Any) -> list[Any]:
    """The operands as float arrays of one dtype and one shape."""
    return list(fnp.broadcast_arrays(*floating_arrays(name, *xs)))


# -- error functions and the normal distribution -------------------------------------------------------------------
def erf(x: Any) -> Any:
    """Return the error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.

    >>> from funcgrad.scipy import special
    >>> special.erf(fnp.asarray([0.0, 1.0]))
    Array([0.       , 0.8427008], dtype=float32)
    """
    return lax.erf(_floats("erf", x)[0])


def erfc(x: Any) -> Any:
    """Return 1 - erf(x), exact where that is small.

    >>> from funcgrad.scipy import special
    >>> special.erfc(fnp.asarray([0.0, 4.0]))
    Array([1.0000000e+00, 1.5417259e-08], dtype=float32)
    """
    return lax.erfc(_floats("erfc", x)[0])


def erfinv(x: Any) -> Any:
    """Return the inverse of :func:`erf` on [-1, 1].

    >>> from funcgrad.scipy import special
    >>> special.erfinv(fnp.asarray([0.0, 1.0]))
    Array([ 0., inf], dtype=float32)
    """
    return lax.erf_inv(_floats("erfinv", x)[0])


def ndtr(x: Any) -> Any:
    """Return the distribution function of the standard normal distribution.

    >>> from funcgrad.scipy import special
    >>> special.ndtr(fnp.asarray([0.0, 2.0]))
    Array([0.5      , 0.9772499], dtype=float32)
    """
    (v,) = _floats("ndtr", x)
    return 0.5 * lax.erfc(-v / SQRT_2)


# 1 - 1/x^2 + 3/x^4 - 15/x^6 + ...: 2k - 1 double factorial with alternating signs.
_TAIL = [(-1.0) ** k * float(np.prod(np.arange(1, 2 * k, 2))) for k in range(9)]


def _tail(x: Any) -> Any:
    """-x times Mills' ratio at x, for x far below 0 (Abramowitz and Stegun 26.2.12)."""
    u, total = 1 / fnp.square(x), fnp.zeros_like(x)
    for c in reversed(_TAIL):
        total = total * u + c
    return total


def _far(x: Any) -> Any:
    """Whether the expansion of the tail is exact to rounding (erfc itself is far from its underflow there)."""
    return x < (-20.0 if x.dtype == dtypes.float64 else -10.0)


@custom_jvp
def _log_ndtr(x: Any) -> Any:
    far = _far(x)
    low = fnp.where(far, x, -30.0)
    tail = -0.5 * fnp.square(low) - 0.5 * LOG_2PI - fnp.log(-low) + fnp.log(_tail(low))
    near = fnp.where(far, 0.0, x)
    half = 0.5 * lax.erfc(fnp.abs(near) / SQRT_2)
    return fnp.where(far, tail, fnp.where(x > 0, fnp.log1p(-half), fnp.log(half)))


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals: Any, tangents: Any) -> Any:
    """phi / Phi: in the tail -x over the expansion, where the difference of logarithms would cancel."""
    (x,), (t,) = primals, tangents
    out, far = _log_ndtr(x), _far(x)
    low, near = fnp.where(far, x, -30.0), fnp.where(far, 0.0, x)
    slope = fnp.where(
        far, -low / _tail(low), fnp.exp(-0.5 * fnp.square(near) - 0.5 * LOG_2PI - fnp.where(far, 0.0, out))
    )
    return out, t * slope


def log_ndtr(x: Any, series_order: int = 3) -> Any:
    """Return the logarithm of :func:`ndtr`, exact far into the lower tail.

    ``series_order`` is accepted for JAX's sake: the tail's expansion is always as long as float32 can see.

    >>> from funcgrad.scipy import special
    >>> special.log_ndtr(-40.0)
    Array(-804.60846, dtype=float32)
    """
    return _log_ndtr(_floats("log_ndtr", x)[0])


@custom_jvp
def _ndtri(p: Any) -> Any:
    """The middle by erfinv; a tail by Abramowitz and Stegun 26.2.23 and Newton's steps on the logarithm."""
    q = fnp.minimum(p, 1 - p)
    small = q < 0.1
    u = fnp.where(small & (q > 0), q, 0.05)
    y = fnp.sqrt(-2 * fnp.log(u))
    x = ((0.010328 * y + 0.802853) * y + 2.515517) / (((0.001308 * y + 0.189269) * y + 1.432788) * y + 1) - y
    for _ in range(3):
        value = _log_ndtr(x)
        x = x - (value - fnp.log(u)) * fnp.where(
            _far(x), _tail(x) / -x, fnp.exp(value + 0.5 * fnp.square(x) + 0.5 * LOG_2PI)
        )
    middle = SQRT_2 * lax.erf_inv(fnp.where(small, 0.0, 2 * p - 1))
    out = fnp.where(small, fnp.where(q == 0, -fnp.inf, x) * fnp.where(p > 0.5, -1.0, 1.0), middle)
    return fnp.where((p >= 0) & (p <= 1), out, fnp.nan)


@_ndtri.defjvp
def _ndtri_jvp(primals: Any, tangents: Any) -> Any:
    out = _ndtri(*primals)
    return out, tangents[0] * fnp.exp(0.5 * fnp.square(out) + 0.5 * LOG_2PI)


def ndtri(p: Any) -> Any:
    """Return the inverse of :func:`ndtr`; NaN outside [0, 1].

    >>> from funcgrad.scipy import special
    >>> special.ndtri(fnp.asarray([0.0, 0.5, 0.975]))
    Array([    -inf, 0.      , 1.959964], dtype=float32)
    """
    return _ndtri(_floats("ndtri", p)[0])


# -- gamma and beta functions --------------------------------------------------------------------------------------
def gammaln(x: Any) -> Any:
    """Return the logarithm of the absolute value of the gamma function.

    >>> from funcgrad.scipy import special
    >>> special.gammaln(5.0)
    Array(3.1780539, dtype=float32)
    """
    return lax.lgamma(_floats("gammaln", x)[0])


loggamma = gammaln


def gammasgn(x: Any) -> Any:
    """Return the sign of the gamma function: 1 for x > 0, alternating between its poles below, where it is NaN.

    >>> from funcgrad.scipy import special
    >>> special.gammasgn(fnp.asarray([2.5, -0.5, -1.5]))
    Array([ 1., -1.,  1.], dtype=float32)
    """
    (v,) = _floats("gammasgn", x)
    low = fnp.floor(v)
    below = fnp.where(low == v, fnp.nan, fnp.where(fnp.mod(low, 2) == 0, 1.0, -1.0))
    return fnp.astype(fnp.where(v > 0, 1.0, fnp.where(v == 0, fnp.copysign(1.0, v), below)), v.dtype)


def gamma(x: Any) -> Any:
    """Return the gamma function; infinite at 0, NaN at negative integers.

    >>> from funcgrad.scipy import special
    >>> special.gamma(fnp.asarray([0.5, 5.0]))
    Array([ 1.7724539, 24.      ], dtype=float32)
    """
    (v,) = _floats("gamma", x)
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
    (v,) = _floats("factorial", n)
    inside = v >= 0
    return fnp.where(inside, _whole(fnp.exp(lax.lgamma(fnp.where(inside, v, 0.0) + 1)), v), 0.0)


def comb(N: Any, k: Any, *, repetition: bool = False) -> Any:
    """Return the number of ways to choose k of N, with ``repetition`` if asked; 0 where k < 0 or k > N.

    >>> from funcgrad.scipy import special
    >>> special.comb(5, fnp.asarray([0, 2, 6]))
    Array([ 1., 10.,  0.], dtype=float32)
    """
    n, v = _floats("comb", N, k)
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
    u, v = _floats("poch", z, m)
    sign = gammasgn(u + v) * gammasgn(u)
    return fnp.where(v == 0, 1.0, sign * fnp.exp(lax.lgamma(u + v) - lax.lgamma(u)))


def multigammaln(a: Any, d: int) -> Any:
    """Return the logarithm of the multivariate gamma function of dimension d, for a > (d - 1) / 2.

    >>> from funcgrad.scipy import special
    >>> special.multigammaln(fnp.asarray(3.0), 2)
    Array(1.550195, dtype=float32)
    """
    (v,) = _floats("multigammaln", a)
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
    u, v = _floats("betaln", a, b)
    return lax.lgamma(u) + lax.lgamma(v) - lax.lgamma(u + v)


def beta(a: Any, b: Any) -> Any:
    """Return the beta function, gamma(a) gamma(b) / gamma(a + b).

    >>> from funcgrad.scipy import special
    >>> special.beta(2.0, 3.0)
    Array(0.08333333, dtype=float32)
    """
    u, v = _floats("beta", a, b)
    return gammasgn(u) * gammasgn(v) * gammasgn(u + v) * fnp.exp(betaln(u, v))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Return the regularised incomplete beta function.

    >>> from funcgrad.scipy import special
    >>> special.betainc(1.0, 2.0, 0.5)
    Array(0.75, dtype=float32)
    """
    return lax.betainc(*_floats("betainc", a, b, x))


def gammainc(a: Any, x: Any) -> Any:
    """Return the regularised lower incomplete gamma function.

    >>> from funcgrad.scipy import special
    >>> special.gammainc(1.0, 2.0)
    Array(0.8646647, dtype=float32)
    """
    return lax.igamma(*_floats("gammainc", a, x))


def gammaincc(a: Any, x: Any) -> Any:
    """Return the regularised upper incomplete gamma function.

    >>> from funcgrad.scipy import special
    >>> special.gammaincc(1.0, 2.0)
    Array(0.1353353, dtype=float32)
    """
    return lax.igammac(*_floats("gammaincc", a, x))


def digamma(x: Any) -> Any:
    """Return the derivative of :func:`gammaln`.

    >>> from funcgrad.scipy import special
    >>> special.digamma(1.0)
    Array(-0.5772157, dtype=float32)
    """
    return lax.digamma(_floats("digamma", x)[0])


def polygamma(n: Any, x: Any) -> Any:
    """Return the n-th derivative of :func:`digamma`.

    >>> from funcgrad.scipy import special
    >>> special.polygamma(1, 1.0)
    Array(1.644934, dtype=float32)
    """
    return lax.polygamma(n, _floats("polygamma", x)[0])


def zeta(x: Any, q: Any = 1.0) -> Any:
    """Return Hurwitz' zeta function, the sum over k >= 0 of (q + k)^-x; Riemann's where q is 1.

    >>> from funcgrad.scipy import special
    >>> special.zeta(2.0)
    Array(1.644934, dtype=float32)
    """
    return lax.zeta(*_floats("zeta", x, 1.0 if q is None else q))


# -- Bessel functions ----------------------------------------------------------------------------------------------
def i0e(x: Any) -> Any:
    """Return exp(-|x|) times the modified Bessel function of the first kind of order 0.

    >>> from funcgrad.scipy import special
    >>> special.i0e(1.0)
    Array(0.4657596, dtype=float32)
    """
    return lax.bessel_i0e(_floats("i0e", x)[0])


def i1e(x: Any) -> Any:
    """Return exp(-|x|) times the modified Bessel function of the first kind of order 1.

    >>> from funcgrad.scipy import special
    >>> special.i1e(1.0)
    Array(0.2079104, dtype=float32)
    """
    return lax.bessel_i1e(_floats("i1e", x)[0])


def i1(x: Any) -> Any:
    """Return the modified Bessel function of the first kind of order 1.

    >>> from funcgrad.scipy import special
    >>> special.i1(1.0)
    Array(0.5651591, dtype=float32)
    """
    (v,) = _floats("i1", x)
    return fnp.exp(fnp.abs(v)) * lax.bessel_i1e(v)


# -- entropies and transformations ---------------------------------------------------------------------------------
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
    return _xlogy(*_floats("xlogy", x, y))


def xlog1py(x: Any, y: Any) -> Any:
    """Return x log(1 + y), which is 0 where x is 0; exact for small y.

    >>> from funcgrad.scipy import special
    >>> special.xlog1py(fnp.asarray([0.0, 2.0]), fnp.asarray([-1.0, 0.0]))
    Array([0., 0.], dtype=float32)
    """
    u, v = _floats("xlog1py", x, y)
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
    (v,) = _floats("entr", x)
    return fnp.where(v < 0, -fnp.inf, -_xlogy(v, fnp.where(v < 0, 1.0, v)))


def rel_entr(p: Any, q: Any) -> Any:
    """Return p log(p / q): 0 where p = 0 and q >= 0, inf outside p > 0, q > 0 otherwise.

    >>> from funcgrad.scipy import special
    >>> special.rel_entr(fnp.asarray([0.0, 1.0, 1.0]), fnp.asarray([1.0, 1.0, 0.0]))
    Array([ 0.,  0., inf], dtype=float32)
    """
    u, v = _floats("rel_entr", p, q)
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
    u, v = _floats("kl_div", p, q)
    return rel_entr(u, v) - u + v


def expit(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), the inverse of :func:`logit`.

    >>> from funcgrad.scipy import special
    >>> special.expit(0.0)
    Array(0.5, dtype=float32)
    """
    return lax.logistic(_floats("expit", x)[0])


def logit(x: Any) -> Any:
    """Return log(x / (1 - x)).

    >>> from funcgrad.scipy import special
    >>> special.logit(fnp.asarray([0.0, 0.5, 1.0]))
    Array([-inf,   0.,  inf], dtype=float32)
    """
    (v,) = _floats("logit", x)
    return fnp.log(v) - fnp.log1p(-v)


def boxcox(x: Any, lmbda: Any) -> Any:
    """Return (x^lmbda - 1) / lmbda, log(x) where lmbda is 0.

    >>> from funcgrad.scipy import special
    >>> special.boxcox(2.0, fnp.asarray([0.0, 1.0]))
    Array([0.6931472, 1.       ], dtype=float32)
    """
    u, v = _floats("boxcox", x, lmbda)
    return _boxcox(fnp.log(u), v)


def boxcox1p(x: Any, lmbda: Any) -> Any:
    """Return :func:`boxcox` of 1 + x, exact for small x.

    >>> from funcgrad.scipy import special
    >>> special.boxcox1p(1.0, fnp.asarray([0.0, 1.0]))
    Array([0.6931472, 1.       ], dtype=float32)
    """
    u, v = _floats("boxcox1p", x, lmbda)
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
    (v,) = _floats("softmax", x)
    return fnp.exp(v - logsumexp(v, axis=axis, keepdims=True))


def log_softmax(x: Any, /, *, axis: Any = None) -> Any:
    """Return x minus its :func:`logsumexp` along axes, all of them by default.

    >>> from funcgrad.scipy import special
    >>> special.log_softmax(fnp.zeros(2))
    Array([-0.6931472, -0.6931472], dtype=float32)
    """
    (v,) = _floats("log_softmax", x)
    return v - logsumexp(v, axis=axis, keepdims=True)
