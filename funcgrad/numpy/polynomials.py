"""Polynomials (coefficients from the highest power down), interpolation, and window functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.array import asarray
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.convolution import convolve
from funcgrad.numpy.grids import vander
from funcgrad.numpy.linalg import lstsq
from funcgrad.numpy.products import matmul
from funcgrad.numpy.promotion import (
    array_as,
    as_int,
    broadcast_args,
    cast,
    default_float,
    dense,
    expand_to,
    filled,
    floating,
    floating_arrays,
    numbers,
    promote_args,
)
from funcgrad.numpy.rearrange import known
from funcgrad.numpy.sorting import searchsorted
from funcgrad.primitive import apply
from funcgrad.prims import index, layout, linalg, logic, pointwise

__all__ = [
    "bartlett",
    "blackman",
    "hamming",
    "hanning",
    "interp",
    "kaiser",
    "poly",
    "polyadd",
    "polyder",
    "polydiv",
    "polyfit",
    "polyint",
    "polymul",
    "polysub",
    "polyval",
]


# -- polynomials -------------------------------------------------------------------------------------------------
def _coefficients(name: str, *ps: Any) -> list[Any]:
    xs = [dense(x) for x in numbers(name, *ps)]
    xs = [layout.reshape(x, (1,)) if not x.aval.ndim else x for x in xs]
    if any(x.aval.ndim != 1 for x in xs):
        raise ShapeError(message(name, "vectors of coefficients are required", ", ".join(str(x.aval) for x in xs)))
    return xs


def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    """Return the polynomial at x, by Horner's rule.

    >>> fnp.polyval(fnp.asarray([1.0, 0.0, -1.0]), fnp.asarray([2.0, 3.0]))
    Array([3., 8.], dtype=float32)
    """
    (c,) = _coefficients("polyval", p)
    c, v = [dense(w) for w in promote_args("polyval", c, x)]
    total: Any = None
    for k in range(c.aval.size):
        a = layout.reshape(layout.slice_along(c, 0, k, k + 1), ())
        total = a if total is None else pointwise.add(pointwise.mul(total, v), a)
    zero = filled(v.aval.shape, 0, v.aval.dtype)
    return zero if total is None else total if c.aval.size > 1 else pointwise.add(zero, total)


def polyadd(a1: Any, a2: Any) -> Any:
    """Return the sum of two polynomials.

    >>> fnp.polyadd(fnp.asarray([1, 2]), fnp.asarray([3]))
    Array([1, 5], dtype=int32)
    """
    x, y = _coefficients("polyadd", a1, a2)
    n = max(x.aval.size, y.aval.size)
    return pointwise.add(*[layout.pad(v, 0, (n - v.aval.size,), (0,), (0,)) for v in (x, y)])


def polysub(a1: Any, a2: Any) -> Any:
    """Return the difference of two polynomials.

    >>> fnp.polysub(fnp.asarray([1, 2]), fnp.asarray([3]))
    Array([ 1, -1], dtype=int32)
    """
    return polyadd(a1, pointwise.neg(_coefficients("polysub", a2)[0]))


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Any:
    """Return the product of two polynomials, as floats.

    >>> fnp.polymul(fnp.asarray([1, 1]), fnp.asarray([1, -1]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    x, y = _coefficients("polymul", a1, a2)
    return convolve(x, y)


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """Return quotient and remainder of two polynomials; the remainder keeps its leading zeros.

    >>> fnp.polydiv(fnp.asarray([1.0, 3.0, 2.0]), fnp.asarray([1.0, 1.0]))[0]
    Array([1., 2.], dtype=float32)
    """
    x, y = _coefficients("polydiv", *floating_arrays("polydiv", u, v))
    m, n = x.aval.size, y.aval.size
    if m < n:
        return filled((1,), 0, x.aval.dtype), x
    lead = layout.reshape(layout.slice_along(y, 0, 0, 1), ())
    quotient, rest = [], x
    for k in range(m - n + 1):
        q = pointwise.div(layout.slice_along(rest, 0, k, k + 1), lead)
        quotient.append(q)
        part = pointwise.mul(layout.broadcast(q, (n,), (0,)), y)
        rest = pointwise.sub(rest, layout.pad(part, 0, (k,), (m - n - k,), (0,)))
    return layout.concatenate(quotient, 0), rest


def polyder(p: Any, m: int = 1) -> Any:
    """Return the m-th derivative of a polynomial.

    >>> fnp.polyder(fnp.asarray([1, 2, 3]))
    Array([2, 2], dtype=int32)
    """
    (c,) = _coefficients("polyder", p)
    for _ in range(as_int("polyder", m, "the order")):
        n = c.aval.size
        powers = asarray(np.arange(n - 1, 0, -1), c.aval.dtype)
        c = pointwise.mul(layout.slice_along(c, 0, 0, max(n - 1, 0)), powers)
    return c


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """Return the m-th antiderivative of a polynomial, with constants of integration k (0 by default).

    >>> fnp.polyint(fnp.asarray([2.0, 2.0]))
    Array([1., 2., 0.], dtype=float32)
    """
    (c,) = _coefficients("polyint", floating("polyint", p)[0])
    order = as_int("polyint", m, "the order")
    given = (
        [0.0] * order
        if k is None
        else list(np.broadcast_to(np.asarray(known("polyint", k, "k")).reshape(-1), (order,)))
    )
    for constant in given:
        n = c.aval.size
        powers = asarray(np.arange(n, 0, -1), c.aval.dtype)
        c = layout.pad(pointwise.div(c, powers), float(constant), (0,), (1,), (0,))
    return c


def poly(seq_of_zeros: Any) -> Any:
    """Return the polynomial with the given real zeros, or the characteristic polynomial of a symmetric matrix.

    >>> fnp.poly(fnp.asarray([1.0, -1.0]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    (z,) = floating_arrays("poly", seq_of_zeros)
    if z.aval.ndim != 1:
        raise ShapeError(message("poly", "a vector of zeros is required", str(z.aval), "use eigvalsh for a matrix"))
    out = filled((1,), 1, z.aval.dtype)
    for i in range(z.aval.size):
        root = layout.slice_along(z, 0, i, i + 1)
        times = pointwise.mul(out, layout.broadcast(root, out.aval.shape, (0,)))
        out = pointwise.sub(layout.pad(out, 0, (0,), (1,), (0,)), layout.pad(times, 0, (1,), (0,), (0,)))
    return out


def polyfit(
    x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """Return the polynomial of degree ``deg`` that fits points best in the sense of (weighted) least squares.

    With ``full`` also residuals, rank, singular values and rcond; with ``cov`` also the covariance of the coefficients.

    >>> fnp.round(fnp.polyfit(fnp.asarray([0.0, 1.0, 2.0]), fnp.asarray([1.0, 3.0, 5.0]), 1), 4)
    Array([2., 1.], dtype=float32)
    """
    v, t = floating_arrays("polyfit", x, y)
    kind = v.aval.dtype
    if kind in dtypes.HALVES:
        v, t = cast(v, dtypes.float32), cast(t, dtypes.float32)
    n = as_int("polyfit", deg, "the degree") + 1
    if v.aval.ndim != 1 or t.aval.ndim not in (1, 2) or v.aval.size != t.aval.shape[0] or n < 1:
        raise ShapeError(message("polyfit", "a vector x and as many rows in y are required", f"{v.aval} and {t.aval}"))
    limit = v.aval.size * float(np.finfo(v.aval.dtype).eps) if rcond is None else rcond
    a = vander(v, n)
    if w is not None:
        weights = array_as("polyfit", w, v.aval.dtype)
        a = pointwise.mul(a, layout.broadcast(weights, a.aval.shape, (0,)))
        t = pointwise.mul(t, layout.broadcast(weights, t.aval.shape, (0,)))
    scale = apply("sqrt", layout.reduce_sum(pointwise.square(a), (0,)))
    a = pointwise.div(a, layout.broadcast(scale, a.aval.shape, (1,)))
    c, residuals, rank, s = lstsq(a, t, limit)
    c = cast(pointwise.div(c, layout.broadcast(scale, c.aval.shape, (0,))), kind)
    if full:
        return c, residuals, rank, s, limit
    if not cov:
        return c
    base = linalg.inverse(matmul(linalg.turned(a), a))
    base = pointwise.div(base, layout.broadcast(scale, base.aval.shape, (0,)))
    base = pointwise.div(base, layout.broadcast(scale, base.aval.shape, (1,)))
    if cov == "unscaled":
        return c, base
    if v.aval.size <= n:
        raise ValueError(message("polyfit", f"more than {n} points are required for the covariance", str(v.aval.size)))
    factor = pointwise.mul(residuals, 1.0 / (v.aval.size - n))
    if t.aval.ndim == 1:
        return c, pointwise.mul(base, layout.reshape(factor, ()))
    shape = (*base.aval.shape, factor.aval.size)
    return c, pointwise.mul(layout.broadcast(base, shape, (0, 1)), layout.broadcast(factor, shape, (2,)))


# -- interpolation -----------------------------------------------------------------------------------------------
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Return values at x of the line through points with ascending coordinates xp and values fp.

    Outside it is ``left`` and ``right``, by default the first and last value, or "extrapolate"; with ``period`` the
    coordinates are taken modulo it.

    >>> fnp.interp(fnp.asarray([0.5, 9.0]), fnp.asarray([0.0, 1.0]), fnp.asarray([0.0, 10.0]))
    Array([ 5., 10.], dtype=float32)
    """
    v, xs, ys = floating_arrays("interp", x, xp, fp)
    if xs.aval.ndim != 1 or ys.aval.shape != xs.aval.shape or not xs.aval.size:
        raise ShapeError(message("interp", "xp and fp must be vectors of one length", f"{xs.aval} and {ys.aval}"))
    if period is not None:
        v, xs, ys = _periodic(v, xs, ys, period)
        left = right = None
    n = xs.aval.size
    if n == 1:
        out = expand_to(layout.reshape(ys, ()), v.aval.shape) if v.aval.shape else layout.reshape(ys, ())
    else:
        i = pointwise.maximum(pointwise.minimum(searchsorted(xs, v, "right"), n - 1), 1)
        x0, x1, y0, y1 = [index.take(w, j, 0) for w in (xs, ys) for j in (pointwise.sub(i, 1), i)]
        gap = pointwise.sub(x1, x0)
        point = logic.compare("eq", gap, 0)
        slope = pointwise.div(pointwise.sub(y1, y0), pointwise.select(point, Literal(1, gap.aval.dtype), gap))
        out = pointwise.select(point, y1, pointwise.add(y0, pointwise.mul(slope, pointwise.sub(v, x0))))
    for end, at, side, beyond in ((0, xs, left, "lt"), (n - 1, xs, right, "gt")):
        if isinstance(side, str):
            if side != "extrapolate":
                raise ValueError(message("interp", 'left and right must be numbers or "extrapolate"', repr(side)))
            continue
        edge = layout.reshape(layout.slice_along(at, 0, end, end + 1), ())
        value = layout.reshape(layout.slice_along(ys, 0, end, end + 1), ()) if side is None else side
        value = array_as("interp", value, out.aval.dtype)
        out = pointwise.select(*broadcast_args("interp", logic.compare(beyond, v, edge), value, out))
    return out


def _periodic(v: Any, xs: Any, ys: Any, period: Any) -> tuple[Any, Any, Any]:
    """Coordinates modulo a period, in ascending order, with one point more at both ends."""
    length = abs(float(known("interp", period, "the period")))
    if not length:
        raise ValueError(message("interp", "the period must not be 0", str(period)))

    def wrapped(w: Any) -> Any:
        return pointwise.sub(w, pointwise.mul(apply("floor", pointwise.div(w, length)), length))

    v, xs = wrapped(v), wrapped(xs)
    order = apply("argsort", xs, axis=0)
    xs, ys = index.take(xs, order, 0), index.take(ys, order, 0)
    n = xs.aval.size
    ends = [[layout.slice_along(w, 0, k, k + 1) for k in (n - 1, 0)] for w in (xs, ys)]
    xs = layout.concatenate([pointwise.sub(ends[0][0], length), xs, pointwise.add(ends[0][1], length)], 0)
    return v, xs, layout.concatenate([ends[1][0], ys, ends[1][1]], 0)


# -- windows -----------------------------------------------------------------------------------------------------
def _window(values: Any) -> Any:
    return asarray(values, default_float())


def bartlett(M: int) -> Any:
    """Return the triangular window of M points.

    >>> fnp.bartlett(3)
    Array([0., 1., 0.], dtype=float32)
    """
    return _window(np.bartlett(M))


def blackman(M: int) -> Any:
    """Return the Blackman window of M points.

    >>> fnp.round(fnp.blackman(3), 3)
    Array([-0.,  1., -0.], dtype=float32)
    """
    return _window(np.blackman(M))


def hamming(M: int) -> Any:
    """Return the Hamming window of M points.

    >>> fnp.hamming(3)
    Array([0.08, 1. , 0.08], dtype=float32)
    """
    return _window(np.hamming(M))


def hanning(M: int) -> Any:
    """Return the Hann window of M points.

    >>> fnp.hanning(3)
    Array([0., 1., 0.], dtype=float32)
    """
    return _window(np.hanning(M))


def kaiser(M: int, beta: Any) -> Any:
    """Return the Kaiser window of M points with shape parameter beta, known in Python.

    >>> fnp.kaiser(3, 0.0)
    Array([1., 1., 1.], dtype=float32)
    """
    return _window(np.kaiser(M, float(beta)))
