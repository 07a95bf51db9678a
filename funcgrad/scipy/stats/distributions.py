"""The distributions on the line, each from its standard form (Johnson, Kotz and Balakrishnan 1994)."""

from __future__ import annotations

import math
from typing import Any

from funcgrad import numpy as fnp
from funcgrad.nn import log_sigmoid, softplus
from funcgrad.scipy import special
from funcgrad.scipy.special import betaln, gammaln, log_ndtr, ndtr, ndtri, xlog1py, xlogy
from funcgrad.scipy.stats.build import continuous, discrete

__all__ = [
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "expon",
    "gamma",
    "gennorm",
    "geom",
    "gumbel_l",
    "gumbel_r",
    "laplace",
    "logistic",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "wrapcauchy",
]

LOG_2PI, PI = math.log(2 * math.pi), math.pi


def _inside(condition: Any, value: Any, other: Any = -math.inf) -> Any:
    return fnp.where(condition, value, other)


def _norm_logpdf(z: Any) -> Any:
    return -0.5 * (fnp.square(z) + LOG_2PI)


norm = continuous(
    "norm",
    "the normal distribution",
    logpdf=_norm_logpdf,
    cdf=ndtr,
    sf=lambda z: ndtr(-z),
    logcdf=log_ndtr,
    logsf=lambda z: log_ndtr(-z),
    ppf=ndtri,
    isf=lambda q: -ndtri(q),
)

uniform = continuous(
    "uniform",
    "the uniform distribution on [loc, loc + scale]",
    logpdf=lambda z: _inside((z >= 0) & (z <= 1), fnp.zeros_like(z)),
    cdf=lambda z: fnp.clip(z, 0, 1),
    ppf=lambda q: _inside((q >= 0) & (q <= 1), q, math.nan),
)

expon = continuous(
    "expon",
    "the exponential distribution",
    logpdf=lambda z: _inside(z >= 0, -z),
    cdf=lambda z: _inside(z >= 0, -fnp.expm1(-z), 0.0),
    sf=lambda z: _inside(z >= 0, fnp.exp(-z), 1.0),
    logsf=lambda z: _inside(z >= 0, -z, 0.0),
    ppf=lambda q: -fnp.log1p(-q),
)

laplace = continuous(
    "laplace",
    "the Laplace distribution",
    logpdf=lambda z: -fnp.abs(z) - math.log(2),
    cdf=lambda z: fnp.where(z < 0, 0.5 * fnp.exp(fnp.minimum(z, 0)), 1 - 0.5 * fnp.exp(-fnp.maximum(z, 0))),
    sf=lambda z: fnp.where(z > 0, 0.5 * fnp.exp(-fnp.maximum(z, 0)), 1 - 0.5 * fnp.exp(fnp.minimum(z, 0))),
)

logistic = continuous(
    "logistic",
    "the logistic distribution",
    logpdf=lambda z: -z - 2 * softplus(-z),
    cdf=special.expit,
    sf=lambda z: special.expit(-z),
    logcdf=log_sigmoid,
    logsf=lambda z: log_sigmoid(-z),
    ppf=special.logit,
    isf=lambda q: -special.logit(q),
)

cauchy = continuous(
    "cauchy",
    "the Cauchy distribution",
    logpdf=lambda z: -math.log(PI) - fnp.log1p(fnp.square(z)),
    cdf=lambda z: fnp.atan2(fnp.ones_like(z), -z) / PI,
    sf=lambda z: fnp.atan2(fnp.ones_like(z), z) / PI,
    ppf=lambda q: fnp.tan(PI * (q - 0.5)),
    isf=lambda q: fnp.tan(PI * (0.5 - q)),
)

gumbel_r = continuous(
    "gumbel_r",
    "the right-skewed Gumbel distribution",
    logpdf=lambda z: -z - fnp.exp(-z),
    logcdf=lambda z: -fnp.exp(-z),
    sf=lambda z: -fnp.expm1(-fnp.exp(-z)),
    ppf=lambda q: -fnp.log(-fnp.log(q)),
)

gumbel_l = continuous(
    "gumbel_l",
    "the left-skewed Gumbel distribution",
    logpdf=lambda z: z - fnp.exp(z),
    cdf=lambda z: -fnp.expm1(-fnp.exp(z)),
    sf=lambda z: fnp.exp(-fnp.exp(z)),
    logsf=lambda z: -fnp.exp(z),
    ppf=lambda q: fnp.log(-fnp.log1p(-q)),
)


def _positive(z: Any) -> tuple[Any, Any]:
    """Whether z >= 0, and z with 1 elsewhere."""
    inside = z >= 0
    return inside, fnp.where(inside, z, 1.0)


def _gamma_logpdf(z: Any, a: Any) -> Any:
    inside, x = _positive(z)
    return _inside(inside, xlogy(a - 1, x) - x - gammaln(a))


def _gamma_cdf(z: Any, a: Any) -> Any:
    inside, x = _positive(z)
    return _inside(inside, special.gammainc(a, x), 0.0)


def _gamma_sf(z: Any, a: Any) -> Any:
    inside, x = _positive(z)
    return _inside(inside, special.gammaincc(a, x), 1.0)


gamma = continuous("gamma", "the gamma distribution", "a", "2.0", logpdf=_gamma_logpdf, cdf=_gamma_cdf, sf=_gamma_sf)

chi2 = continuous(
    "chi2",
    "the chi-squared distribution",
    "df",
    "3.0",
    logpdf=lambda z, df: _gamma_logpdf(z / 2, df / 2) - math.log(2),
    cdf=lambda z, df: _gamma_cdf(z / 2, df / 2),
    sf=lambda z, df: _gamma_sf(z / 2, df / 2),
)


def _beta_logpdf(z: Any, a: Any, b: Any) -> Any:
    inside = (z >= 0) & (z <= 1)
    x = fnp.where(inside, z, 0.5)
    return _inside(inside, xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b))


beta = continuous(
    "beta",
    "the beta distribution",
    "a b",
    "0.5 2.0",
    logpdf=_beta_logpdf,
    cdf=lambda z, a, b: special.betainc(a, b, fnp.clip(z, 0, 1)),
    sf=lambda z, a, b: special.betainc(b, a, 1 - fnp.clip(z, 0, 1)),
)

t = continuous(
    "t",
    "Student's t distribution",
    "df",
    "3.0",
    logpdf=lambda z, df: (
        gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * fnp.log(PI * df) - 0.5 * (df + 1) * fnp.log1p(z * z / df)
    ),
)


def _pareto_logpdf(z: Any, b: Any) -> Any:
    inside = z >= 1
    return _inside(inside, fnp.log(b) - (b + 1) * fnp.log(fnp.where(inside, z, 1.0)))


pareto = continuous(
    "pareto",
    "the Pareto distribution",
    "b",
    "2.0",
    logpdf=_pareto_logpdf,
    cdf=lambda z, b: _inside(z >= 1, -fnp.expm1(-b * fnp.log(fnp.maximum(z, 1))), 0.0),
    sf=lambda z, b: _inside(z >= 1, fnp.exp(-b * fnp.log(fnp.maximum(z, 1))), 1.0),
    logsf=lambda z, b: _inside(z >= 1, -b * fnp.log(fnp.maximum(z, 1)), 0.0),
    ppf=lambda q, b: fnp.exp(-fnp.log1p(-q) / b),
)


def _gennorm_cdf(z: Any, p: Any) -> Any:
    power = fnp.abs(z) ** p
    return 0.5 * fnp.where(z < 0, special.gammaincc(1 / p, power), 1 + special.gammainc(1 / p, power))


gennorm = continuous(
    "gennorm",
    "the generalised normal distribution",
    "beta",
    "2.0",
    logpdf=lambda z, p: fnp.log(0.5 * p) - gammaln(1 / p) - fnp.abs(z) ** p,
    cdf=_gennorm_cdf,
    sf=lambda z, p: _gennorm_cdf(-z, p),
)

vonmises = continuous(
    "vonmises",
    "the von Mises distribution on the circle",
    "kappa",
    "2.0",
    logpdf=lambda z, kappa: kappa * (fnp.cos(z) - 1) - LOG_2PI - fnp.log(special.i0e(kappa)),
)


def _wrapcauchy_logpdf(z: Any, c: Any) -> Any:
    value = fnp.log1p(-fnp.square(c)) - LOG_2PI - fnp.log(1 + fnp.square(c) - 2 * c * fnp.cos(z))
    return _inside((z >= 0) & (z <= 2 * PI), value)


wrapcauchy = continuous(
    "wrapcauchy", "the wrapped Cauchy distribution on [0, 2 pi]", "c", "0.5", logpdf=_wrapcauchy_logpdf
)


# -- the truncated normal distribution -----------------------------------------------------------------------------
def _log_minus(x: Any, y: Any) -> Any:
    """log(exp(x) - exp(y)) for x >= y."""
    return x + fnp.log(-fnp.expm1(fnp.minimum(y - x, 0.0)))


def _log_mass(a: Any, b: Any) -> Any:
    """The logarithm of the standard normal's mass between a and b, by the tail that both are in, if any."""
    right = a > 0
    low, high = fnp.where(right, -b, a), fnp.where(right, -a, b)
    return _log_minus(log_ndtr(high), log_ndtr(low))


def _truncnorm_logcdf(z: Any, a: Any, b: Any) -> Any:
    x = fnp.clip(z, a, b)
    value = fnp.where(x > a, _log_mass(a, fnp.where(x > a, x, b)) - _log_mass(a, b), -math.inf)
    return fnp.where(z >= b, 0.0, value)


def _truncnorm_logsf(z: Any, a: Any, b: Any) -> Any:
    return _truncnorm_logcdf(-z, -b, -a)


truncnorm = continuous(
    "truncnorm",
    "the normal distribution truncated to [a, b] (before loc and scale)",
    "a b",
    "0.5 2.0",
    logpdf=lambda z, a, b: _inside((z >= a) & (z <= b), _norm_logpdf(z) - _log_mass(a, b)),
    logcdf=_truncnorm_logcdf,
    logsf=_truncnorm_logsf,
    sf=lambda z, a, b: fnp.exp(_truncnorm_logsf(z, a, b)),
)


# -- whole numbers -------------------------------------------------------------------------------------------------
def _whole(k: Any, low: Any = 0.0, high: Any = math.inf) -> tuple[Any, Any]:
    """Whether k is a whole number in a range, and k with the lower end elsewhere."""
    inside = (k >= low) & (k <= high) & (k == fnp.floor(k))
    return inside, fnp.where(inside, k, low)


def _bernoulli_logpmf(k: Any, p: Any) -> Any:
    return _inside((k == 0) | (k == 1), fnp.where(k == 1, xlogy(1.0, p), xlog1py(1.0, -p)))


bernoulli = discrete(
    "bernoulli",
    "the Bernoulli distribution",
    "p",
    "0.5",
    logpmf=_bernoulli_logpmf,
    cdf=lambda k, p: fnp.where(k < 0, 0.0, fnp.where(k < 1, 1 - p, 1.0)),
    ppf=lambda q, p: fnp.where((q >= 0) & (q <= 1) & (p >= 0) & (p <= 1), fnp.where(q <= 1 - p, 0.0, 1.0), math.nan),
)


def _poisson_logpmf(k: Any, mu: Any) -> Any:
    inside, x = _whole(k)
    return _inside(inside, xlogy(x, mu) - gammaln(x + 1) - mu)


poisson = discrete(
    "poisson",
    "the Poisson distribution",
    "mu",
    "2.0",
    logpmf=_poisson_logpmf,
    cdf=lambda k, mu: _inside(k >= 0, special.gammaincc(fnp.floor(fnp.maximum(k, 0)) + 1, mu), 0.0),
)


def _log_choose(n: Any, k: Any) -> Any:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _binom_logpmf(k: Any, n: Any, p: Any) -> Any:
    inside, x = _whole(k, 0.0, n)
    return _inside(inside, _log_choose(n, x) + xlogy(x, p) + xlog1py(n - x, -p))


binom = discrete("binom", "the binomial distribution", "n p", "4.0 0.5", logpmf=_binom_logpmf)


def _nbinom_logpmf(k: Any, n: Any, p: Any) -> Any:
    inside, x = _whole(k)
    return _inside(inside, gammaln(n + x) - gammaln(n) - gammaln(x + 1) + xlogy(n, p) + xlog1py(x, -p))


nbinom = discrete("nbinom", "the negative binomial distribution", "n p", "4.0 0.5", logpmf=_nbinom_logpmf)


def _geom_logpmf(k: Any, p: Any) -> Any:
    inside, x = _whole(k, 1.0)
    return _inside(inside, fnp.log(p) + xlog1py(x - 1, -p))


geom = discrete("geom", "the geometric distribution, from 1", "p", "0.5", logpmf=_geom_logpmf)


def _betabinom_logpmf(k: Any, n: Any, a: Any, b: Any) -> Any:
    inside, x = _whole(k, 0.0, n)
    return _inside(inside, _log_choose(n, x) + betaln(x + a, n - x + b) - betaln(a, b))


betabinom = discrete("betabinom", "the beta-binomial distribution", "n a b", "4.0 0.5 2.0", logpmf=_betabinom_logpmf)
