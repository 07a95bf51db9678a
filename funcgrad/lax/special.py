"""Special functions by series, continued fractions and asymptotic expansions, written in other operations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad import numpy as fnp
from funcgrad.errors import DTypeError, message
from funcgrad.lax.control_flow import fori_loop, while_loop
from funcgrad.lax.elementwise import digamma, lgamma
from funcgrad.transforms import custom_jvp

__all__ = [
    "bessel_i0e",
    "bessel_i1e",
    "betainc",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "random_gamma_grad",
    "zeta",
]

# B_2j / (2j)!, for Euler and Maclaurin's sum.
_BERNOULLI = [1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600]


def _floats(what: str, *args: Any) -> list[Any]:
    values = fnp.broadcast_arrays(*map(fnp.asarray, args))
    found = fnp.result_type(*values)
    if found not in dtypes.FLOATS:
        raise DTypeError(message(what, "float operands are required", str(found), "convert with astype"))
    return [fnp.astype(v, found) for v in values]


# -- Bessel functions --------------------------------------------------------------------------------------------
def _bessel(what: str, order: int, x: Any) -> Any:
    """exp(-|x|) I_order(x): the power series up to |x| = 20, Hankel's expansion beyond (DLMF 10.25.2, 10.40.1)."""
    (v,) = _floats(what, x)
    wide = fnp.astype(v, fnp.float32) if v.dtype in dtypes.HALVES else v
    size = fnp.abs(wide)
    near, far = fnp.minimum(size, 20.0), fnp.maximum(size, 20.0)
    q, total = fnp.square(0.5 * near), fnp.ones_like(near)
    for k in range(60, 0, -1):
        total = 1.0 + total * q / (k * (k + order))
    series = total * fnp.exp(-near) * (0.5 * near if order else 1.0)
    tail = fnp.ones_like(far)
    for k in range(24, 0, -1):
        tail = 1.0 - tail * (4.0 * order * order - (2 * k - 1) ** 2) / (8.0 * k) / far
    out = fnp.where(size <= 20.0, series, tail / fnp.sqrt(2 * math.pi * far))
    return fnp.astype(fnp.copysign(out, wide) if order else out, v.dtype)


@custom_jvp
def _i0e(x: Any) -> Any:
    return _bessel("bessel_i0e", 0, x)


@_i0e.defjvp
def _i0e_jvp(primals: Any, tangents: Any) -> Any:
    """I_0' = I_1 (DLMF 10.29.3), less what the factor exp(-|x|) adds."""
    (x,), (t,) = primals, tangents
    out = _i0e(x)
    return out, t * (_i1e(x) - fnp.sign(x) * out)


def bessel_i0e(x: Any) -> Any:
    """Return ``exp(-|x|)`` times the modified Bessel function of the first kind of order 0.

    >>> lax.bessel_i0e(fnp.asarray([0.0, 1.0]))
    Array([1.   , 0.4658], dtype=float32)
    """
    return _i0e(_floats("bessel_i0e", x)[0])


@custom_jvp
def _i1e(x: Any) -> Any:
    return _bessel("bessel_i1e", 1, x)


@_i1e.defjvp
def _i1e_jvp(primals: Any, tangents: Any) -> Any:
    """I_1' = I_0 - I_1 / x (DLMF 10.29.2); at 0 it is 1/2."""
    (x,), (t,) = primals, tangents
    out = _i1e(x)
    ratio = fnp.where(x == 0, 0.5, out / fnp.where(x == 0, 1.0, x))
    return out, t * (bessel_i0e(x) - ratio - fnp.sign(x) * out)


def bessel_i1e(x: Any) -> Any:
    """Return ``exp(-|x|)`` times the modified Bessel function of the first kind of order 1.

    >>> lax.bessel_i1e(fnp.asarray([0.0, 1.0]))
    Array([0.   , 0.2079], dtype=float32)
    """
    return _i1e(_floats("bessel_i1e", x)[0])


# -- Hurwitz' zeta function --------------------------------------------------------------------------------------
def zeta(x: Any, q: Any) -> Any:
    """Return sum over k >= 0 of (q + k)^-x for x > 1 and q > 0, by Euler and Maclaurin's formula (DLMF 25.11.7).

    Outside it is infinite at x = 1 and NaN elsewhere.

    >>> lax.zeta(fnp.asarray([2.0]), fnp.asarray([1.0]))
    Array([1.645], dtype=float32)
    """
    s, start = _floats("zeta", x, q)
    inside = (s > 1) & (start > 0)
    s, start = fnp.where(inside, s, 2.0), fnp.where(inside, start, 1.0)
    total = fnp.zeros_like(s)
    for k in range(12):
        total = total + (start + k) ** -s
    end = start + 12.0
    power = end**-s
    total = total + power * end / (s - 1) + 0.5 * power
    factor = s * power / end
    for j, b in enumerate(_BERNOULLI):
        total = total + b * factor
        factor = factor * (s + 2 * j + 1) * (s + 2 * j + 2) / fnp.square(end)
    return fnp.where(inside, total, fnp.where(fnp.asarray(x) == 1, fnp.inf, fnp.nan))


# -- incomplete gamma functions ----------------------------------------------------------------------------------
def _log_density(a: Any, x: Any) -> Any:
    """log of x^a exp(-x) / Gamma(a); for large a by Stirling's formula around x = a, where the terms cancel."""
    large = fnp.maximum(a, 12.0)
    u, v = (x - large) / large, 1 / fnp.square(large)
    rest = (1 / 12 - v * (1 / 360 - v * (1 / 1260 - v * (1 / 1680 - v / 1188)))) / large
    stirling = large * (fnp.log1p(u) - u) + 0.5 * fnp.log(large / (2 * math.pi)) - rest
    return fnp.where(a > 12, stirling, a * fnp.log(x) - x - lgamma(a))


def _series(a: Any, x: Any, active: Any) -> tuple[Any, Any]:
    """sum of x^n / ((a + 1) ... (a + n)) and its derivative by a (DLMF 8.7.1)."""
    eps = float(np.finfo(a.dtype).eps)

    def more(state: Any) -> Any:
        n, _, term, dterm, total, dtotal = state
        small = (term <= eps * total) & (fnp.abs(dterm) <= eps * fnp.abs(dtotal))
        return (n < 2000) & fnp.any(active & ~small)

    def step(state: Any) -> Any:
        n, r, term, dterm, total, dtotal = state
        r = r + 1
        new = term * x / r
        dnew = dterm * x / r - new / r
        return n + 1, r, new, dnew, total + new, dtotal + dnew

    one, none = fnp.ones_like(a), fnp.zeros_like(a)
    first = step((fnp.asarray(0), a, one, none, one, none))
    return while_loop(more, step, first)[4:]  # type: ignore[no-any-return]


def _fraction(a: Any, x: Any, active: Any) -> tuple[Any, Any]:
    """The continued fraction of Gamma(a, x) x^-a exp(x), and its derivative by a (DLMF 8.9.2), by its convergents."""
    eps, big = float(np.finfo(a.dtype).eps), 1e12

    def step(state: Any) -> Any:
        n, (p0, q0, p1, q1), (dp0, dq0, dp1, dq1), (out, dout), going = state
        k = fnp.astype(n, a.dtype)
        y = k * (1 - a + k)
        z = x + 2 * k + 2 - a
        p2, q2 = p1 * z - p0 * y, q1 * z - q0 * y
        dp2, dq2 = dp1 * z - p1 - dp0 * y + p0 * k, dq1 * z - q1 - dq0 * y + q0 * k
        new = p2 / q2
        dnew = (dp2 - new * dq2) / q2
        # Up to a few roundings, that of the difference in dnew included: convergents may alternate between neighbours.
        near, spread = 4 * eps * fnp.abs(new), 4 * eps * fnp.abs(dp2 / q2)
        moving = (fnp.abs(new - out) > near) | (fnp.abs(dnew - dout) > near + spread)
        s = fnp.where(fnp.abs(p2) > big, 1 / big, 1.0)
        values, slopes = [tuple([v * s for v in vs]) for vs in ((p1, q1, p2, q2), (dp1, dq1, dp2, dq2))]
        return n + 1, values, slopes, (new, dnew), going & moving

    one, none = fnp.ones_like(a), fnp.zeros_like(a)
    q1 = (x + 2 - a) * x
    out, dout = (x + 1) / q1, (x + 1) * x / fnp.square(q1)
    start = (fnp.asarray(1), (one, x, x + 1, q1), (none, none, none, -x), (out, dout), active)
    return while_loop(lambda s: (s[0] < 2000) & fnp.any(s[4]), step, start)[3]  # type: ignore[no-any-return]


def _parts(a: Any, x: Any) -> tuple[Any, Any, Any]:
    """Where P is small and a series is used; the series or the fraction; its derivative by a."""
    valid = (a > 0) & (x > 0) & (x < fnp.inf) & (a < fnp.inf)
    low = (x < 1) | (x < a)
    sa, sx = fnp.where(valid & low, a, 1.0), fnp.where(valid & low, x, 0.5)
    fa, fx = fnp.where(valid & ~low, a, 1.0), fnp.where(valid & ~low, x, 2.0)
    (s, ds), (f, df) = _series(sa, sx, valid & low), _fraction(fa, fx, valid & ~low)
    return low, fnp.where(low, s, f), fnp.where(low, ds, df)


def _regularized(a: Any, x: Any, upper: bool) -> Any:
    low, value, _ = _parts(a, x)
    density = fnp.exp(_log_density(a, fnp.where(x > 0, x, 1.0)))
    part = density * value / fnp.where(low, a, 1.0)
    out = fnp.where(low != upper, part, 1 - part)
    out = fnp.where(x == 0, 1.0 if upper else 0.0, fnp.where(x == fnp.inf, 0.0 if upper else 1.0, out))
    return fnp.where((a > 0) & (x >= 0), out, fnp.nan)


@custom_jvp
def _lower(a: Any, x: Any) -> Any:
    return _regularized(a, x, False)


@custom_jvp
def _upper(a: Any, x: Any) -> Any:
    return _regularized(a, x, True)


def _slope(a: Any, x: Any, ta: Any, tx: Any) -> Any:
    inside = x > 0
    density = fnp.exp(_log_density(a, fnp.where(inside, x, 1.0)))
    at_zero = fnp.where(a > 1, 0.0, fnp.where(a == 1, 1.0, fnp.inf))
    return ta * igamma_grad_a(a, x) + tx * fnp.where(inside, density / fnp.where(inside, x, 1.0), at_zero)


_lower.defjvp(lambda p, t: (_lower(*p), _slope(*p, *t)))
_upper.defjvp(lambda p, t: (_upper(*p), -_slope(*p, *t)))


def igamma(a: Any, x: Any) -> Any:
    """Return the regularized lower incomplete gamma function P(a, x), differentiable by both.

    >>> lax.igamma(fnp.asarray([1.0]), fnp.asarray([1.0]))
    Array([0.6321], dtype=float32)
    """
    return _lower(*_floats("igamma", a, x))


def igammac(a: Any, x: Any) -> Any:
    """Return the regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x) without its cancellation.

    >>> lax.igammac(fnp.asarray([1.0]), fnp.asarray([20.0])) * 1e9
    Array([2.061], dtype=float32)
    """
    return _upper(*_floats("igammac", a, x))


def igamma_grad_a(a: Any, x: Any) -> Any:
    """Return the derivative of igamma by a.

    >>> lax.igamma_grad_a(fnp.asarray([1.0]), fnp.asarray([1.0]))
    Array([-0.4317], dtype=float32)
    """
    b, y = _floats("igamma_grad_a", a, x)
    inside = (b > 0) & (y > 0) & (y < fnp.inf)
    b, y = fnp.where(inside, b, 1.0), fnp.where(inside, y, 1.0)
    return fnp.where(inside, -fnp.exp(_log_density(b, y)) / y * random_gamma_grad(b, y), 0.0)


def random_gamma_grad(a: Any, x: Any) -> Any:
    """Return the derivative by a of a draw x of the gamma distribution at a fixed quantile: -(dP/da) / (dP/dx).

    >>> lax.random_gamma_grad(fnp.asarray([1.0]), fnp.asarray([1.0]))
    Array([1.1736], dtype=float32)
    """
    b, y = _floats("random_gamma_grad", a, x)
    low, value, slope = _parts(b, y)
    log_y = fnp.log(y)
    below = -(y / b) * (slope + value * (log_y - digamma(b + 1)))
    above = y * (slope + value * (log_y - digamma(b)))
    return fnp.where(low, below, above)


# -- the incomplete beta function --------------------------------------------------------------------------------
def _beta_fraction(a: Any, b: Any, x: Any, count: int = 120) -> Any:
    """Lentz' evaluation of the continued fraction DLMF 8.17.22."""
    tiny = float(np.finfo(a.dtype).tiny) * 1e3

    def guard(v: Any) -> Any:
        return fnp.where(fnp.abs(v) < tiny, tiny, v)

    def turn(n: Any, state: Any) -> Any:
        h, c, d = state
        m = fnp.astype(n, a.dtype)
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / guard(1 + factor * d)
            c = guard(1 + factor / c)
            h = h * c * d
        return h, c, d

    d = 1 / guard(1 - (a + b) * x / (a + 1))
    return fori_loop(1, count, turn, (d, fnp.ones_like(a), d))[0]


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Return the regularized incomplete beta function I_x(a, b), differentiable by all three.

    >>> lax.betainc(fnp.asarray([2.0]), fnp.asarray([3.0]), fnp.asarray([0.5]))
    Array([0.6875], dtype=float32)
    """
    p, q, y = _floats("betainc", a, b, x)
    valid = (p > 0) & (q > 0) & (y >= 0) & (y <= 1)
    inside = valid & (y > 0) & (y < 1)
    p, q, y0 = fnp.where(valid, p, 1.0), fnp.where(valid, q, 1.0), fnp.where(inside, y, 0.5)
    swap = y0 > (p + 1) / (p + q + 2)
    s, t = fnp.where(swap, q, p), fnp.where(swap, p, q)
    z = fnp.where(swap, 1 - y0, y0)
    log_front = p * fnp.log(y0) + q * fnp.log1p(-y0) + lgamma(p + q) - lgamma(p) - lgamma(q)
    part = fnp.exp(log_front) * _beta_fraction(s, t, z) / s
    out = fnp.where(swap, 1 - part, part)
    return fnp.where(inside, out, fnp.where(valid, fnp.where(y == 0, 0.0, 1.0), fnp.nan))
