"""Error functions and the normal distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from funcgrad import dtypes, lax
from funcgrad import numpy as fnp
from funcgrad.scipy.special.operands import floats
from funcgrad.transforms import custom_jvp

__all__ = [
    "erf",
    "erfc",
    "erfinv",
    "log_ndtr",
    "ndtr",
    "ndtri",
]

SQRT_2, LOG_2PI = math.sqrt(2), math.log(2 * math.pi)


def erf(x: Any) -> Any:
    """Return the error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.

    >>> from funcgrad.scipy import special
    >>> special.erf(fnp.asarray([0.0, 1.0]))
    Array([0.       , 0.8427008], dtype=float32)
    """
    return lax.erf(floats("erf", x)[0])


def erfc(x: Any) -> Any:
    """Return 1 - erf(x), exact where that is small.

    >>> from funcgrad.scipy import special
    >>> special.erfc(fnp.asarray([0.0, 4.0]))
    Array([1.0000000e+00, 1.5417259e-08], dtype=float32)
    """
    return lax.erfc(floats("erfc", x)[0])


def erfinv(x: Any) -> Any:
    """Return the inverse of :func:`erf` on [-1, 1].

    >>> from funcgrad.scipy import special
    >>> special.erfinv(fnp.asarray([0.0, 1.0]))
    Array([ 0., inf], dtype=float32)
    """
    return lax.erf_inv(floats("erfinv", x)[0])


def ndtr(x: Any) -> Any:
    """Return the distribution function of the standard normal distribution.

    >>> from funcgrad.scipy import special
    >>> special.ndtr(fnp.asarray([0.0, 2.0]))
    Array([0.5      , 0.9772499], dtype=float32)
    """
    (v,) = floats("ndtr", x)
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
    return _log_ndtr(floats("log_ndtr", x)[0])


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
    return _ndtri(floats("ndtri", p)[0])
