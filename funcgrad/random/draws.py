"""Distributions of the numbers that programs draw most: uniform, normal, discrete; permutations and choices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad import numpy as fnp
from funcgrad.array import as_value
from funcgrad.errors import DTypeError, ShapeError, message
from funcgrad.numpy.promotion import default_float
from funcgrad.primitive import apply
from funcgrad.prims import layout, logic
from funcgrad.random.keys import Shape, bits, shape_of, split

__all__ = [
    "bernoulli",
    "categorical",
    "choice",
    "float_dtype",
    "gumbel",
    "normal",
    "permutation",
    "randint",
    "truncated_normal",
    "uniform",
]


def float_dtype(dtype: Any, what: str) -> Any:
    d = default_float() if dtype is float else dtypes.as_dtype(dtype)
    if d not in dtypes.FLOATS:
        raise DTypeError(message(f"random.{what}", "a float dtype is required", str(dtype)))
    return d


def uniform(key: Any, shape: Shape = (), dtype: Any = float, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Return values uniform in [minval, maxval): 23 random bits become the mantissa of a float in [1, 2).

    >>> u = uniform(fg.random.key(0), (1000,))
    >>> bool((u >= 0).all() & (u < 1).all())
    True
    """
    d = float_dtype(dtype, "uniform")
    drawn = apply("shift_right_logical", bits(key, shape_of(shape, "uniform")), 9)
    ones = logic.bitcast(logic.logical_or(drawn, 0x3F800000), dtypes.float32)
    unit = fnp.astype(fnp.subtract(ones, 1.0), d)
    if isinstance(minval, float) and isinstance(maxval, float) and minval == 0.0 and maxval == 1.0:
        return unit
    low, high = fnp.astype(as_value(minval, d), d), fnp.astype(as_value(maxval, d), d)
    return fnp.maximum(low, fnp.add(fnp.multiply(unit, fnp.subtract(high, low)), low))


def normal(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return standard normal values: sqrt(2) erf_inv(u) with u uniform in (-1, 1).

    >>> z = normal(fg.random.key(0), (10000,))
    >>> abs(float(z.mean())) < 0.05
    True
    """
    d = float_dtype(dtype, "normal")
    low = float(np.nextafter(np.float32(-1), np.float32(0)))
    u = uniform(key, shape, dtypes.float32, low, 1.0)
    return fnp.astype(fnp.multiply(apply("erf_inv", u), math.sqrt(2)), d)


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return standard normal values given that they lie in (lower, upper).

    >>> t = truncated_normal(fg.random.key(0), -1.0, 1.0, (1000,))
    >>> bool((abs(t) < 1).all())
    True
    """
    d = float_dtype(dtype, "truncated_normal")
    low, high = [fnp.astype(as_value(x, dtypes.float32), dtypes.float32) for x in (lower, upper)]
    own = fnp.broadcast_shapes(low.aval.shape, high.aval.shape)
    full = own if shape is None else shape_of(shape, "truncated_normal")
    a, b = [apply("erf", fnp.divide(x, math.sqrt(2))) for x in (low, high)]
    u = uniform(key, full, dtypes.float32, a, b)
    out = fnp.multiply(apply("erf_inv", u), math.sqrt(2))
    inside_low, inside_high = fnp.nextafter(low, math.inf), fnp.nextafter(high, -math.inf)
    return fnp.astype(fnp.minimum(fnp.maximum(out, inside_low), inside_high), d)


def bernoulli(key: Any, p: Any = 0.5, shape: Shape | None = None) -> Any:
    """Return True with probability ``p``.

    >>> bernoulli(fg.random.key(0), 0.3, (4,)).dtype
    dtype('bool')
    """
    prob = fnp.astype(as_value(p, dtypes.float32), dtypes.float32)
    full = prob.aval.shape if shape is None else shape_of(shape, "bernoulli")
    return fnp.less(uniform(key, full), prob)


def gumbel(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return standard Gumbel values: -log(-log(u)).

    >>> x = gumbel(fg.random.key(0), (10000,))
    >>> abs(float(x.mean()) - fnp.euler_gamma) < 0.05
    True
    """
    d = float_dtype(dtype, "gumbel")
    u = uniform(key, shape, dtypes.float32, float(np.finfo(np.float32).tiny), 1.0)
    return fnp.astype(fnp.negative(fnp.log(fnp.negative(fnp.log(u)))), d)


def categorical(key: Any, logits: Any, axis: int = -1, shape: Shape | None = None) -> Any:
    """Return indices along ``axis`` drawn with probabilities softmax(logits), as int32, by the Gumbel-max method.

    ``shape`` must end in the shape of ``logits`` without ``axis``; its leading axes are independent draws.

    >>> int(categorical(fg.random.key(0), asarray([0.0, 50.0])))
    1
    """
    x = as_value(logits)
    at = axis % x.aval.ndim
    rest = x.aval.shape[:at] + x.aval.shape[at + 1 :]
    full = rest if shape is None else shape_of(shape, "categorical")
    lead = full[: len(full) - len(rest)]
    if full[len(lead) :] != rest:
        raise ShapeError(message("random.categorical", f"shape must end in {rest}", str(full)))
    noise = gumbel(key, (*lead, *x.aval.shape), x.aval.dtype)
    return fnp.argmax(fnp.add(noise, x), axis=at + len(lead))


def randint(key: Any, shape: Shape, minval: Any, maxval: Any, dtype: Any = int) -> Any:
    """Return integers uniform in [minval, maxval): two draws of 32 bits reduced to the span, as JAX does.

    >>> r = randint(fg.random.key(0), (100,), 3, 6)
    >>> int(r.min()), int(r.max())
    (3, 5)
    """
    d = dtypes.as_dtype(dtype)
    if not dtypes.is_int(d):
        raise DTypeError(message("random.randint", "an integer dtype is required", str(dtype)))
    full = shape_of(shape, "randint")
    low, high = [fnp.astype(as_value(x, d), d) for x in (minval, maxval)]
    keys = split(key)
    upper, lower = [bits(keys[i], full) for i in (0, 1)]
    span = fnp.astype(fnp.subtract(high, low), dtypes.uint32)
    span = fnp.where(fnp.greater(high, low), span, fnp.asarray(1, dtypes.uint32))
    multiplier = fnp.remainder(fnp.asarray(2**16, dtypes.uint32), span)
    multiplier = fnp.remainder(fnp.multiply(multiplier, multiplier), span)
    offset = fnp.remainder(
        fnp.add(fnp.multiply(fnp.remainder(upper, span), multiplier), fnp.remainder(lower, span)), span
    )
    return fnp.add(low, fnp.astype(offset, d))


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Any:
    """Return a random permutation of ``range(x)``, or of the slices of an array along ``axis``.

    Sorts by random bits, in as many rounds as make equal bits unlikely, as JAX does.  ``independent`` shuffles each
    vector along ``axis`` on its own.

    >>> sorted(permutation(fg.random.key(0), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    if isinstance(x, (int, np.integer)):
        return _shuffle(key, fnp.arange(int(x)), 0)
    value = as_value(x)
    at = axis % value.aval.ndim
    if independent or value.aval.ndim == 1:
        return _shuffle(key, value, at)
    order = _shuffle(key, fnp.arange(value.aval.shape[at]), 0)
    return fnp.take(value, order, axis=at)


def _shuffle(key: Any, x: Any, axis: int) -> Any:
    rounds = math.ceil(3 * math.log(max(1, x.aval.size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        keys = split(key)
        key = keys[0]
        order = fnp.argsort(bits(keys[1], x.aval.shape), axis=axis)
        x = fnp.take_along_axis(x, order, axis=axis)
    return x


def choice(key: Any, a: Any, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0) -> Any:
    """Return draws from ``range(a)`` or from the slices of an array along ``axis``, with probabilities ``p``.

    Without ``replace`` no element is drawn twice.

    >>> choice(fg.random.key(0), 10, (3,), replace=False).shape
    (3,)
    """
    full = shape_of(shape, "choice")
    source = None if isinstance(a, (int, np.integer)) else as_value(a)
    n = int(a) if source is None else source.aval.shape[axis]
    count = math.prod(full)
    if n == 0 or (not replace and count > n):
        raise ValueError(
            message("random.choice", f"at most {n} distinct draws are possible", f"shape {full}", "use replace=True")
        )
    index = _choose(key, n, count, replace, p)
    if source is None:
        return layout.reshape(index, full)
    at = axis % source.aval.ndim
    drawn = fnp.take(source, index, axis=at)
    return layout.reshape(drawn, (*source.aval.shape[:at], *full, *source.aval.shape[at + 1 :]))


def _choose(key: Any, n: int, count: int, replace: bool, p: Any) -> Any:
    if p is None:
        return randint(key, (count,), 0, n) if replace else permutation(key, n)[:count]
    weights = fnp.astype(as_value(p), dtypes.float32)
    if weights.aval.shape != (n,):
        raise ShapeError(message("random.choice", f"p must have shape ({n},)", str(weights.aval)))
    if replace:
        total = fnp.cumsum(weights)
        r = fnp.multiply(total[-1], fnp.subtract(1.0, uniform(key, (count,))))
        return fnp.astype(fnp.searchsorted(total, r), dtypes.int32)
    scores = fnp.add(fnp.negative(gumbel(key, (n,))), fnp.negative(fnp.log(weights)))
    return fnp.argsort(scores)[:count]
