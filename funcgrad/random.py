"""Random numbers from explicit keys: the same key gives the same numbers on every device, under jit, vmap and
checkpoint.

A key is a uint32 array of shape (2,).  Bits are Threefry-2x32 (Salmon et al., SC 2011) of the key and the element's
64-bit position, its two output words combined by exclusive or: equal, bit for bit, to JAX's with
``jax_threefry_partitionable=True``, its default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad import numpy as fnp
from funcgrad.array import as_value, asarray
from funcgrad.errors import DTypeError, ShapeError, message
from funcgrad.ir import Literal
from funcgrad.primitive import apply
from funcgrad.prims import layout, logic

__all__ = [
    "PRNGKey",
    "bernoulli",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "key_data",
    "laplace",
    "logistic",
    "normal",
    "permutation",
    "rademacher",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
    "wrap_key_data",
]

Shape = Sequence[int]


def key(seed: Any) -> Any:
    """Return the key for an integer seed: its upper and lower 32 bits.

    >>> key(7)
    Array([0, 7], dtype=uint32)
    """
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        n = int(seed)
        words = [(n >> 32) & 0xFFFFFFFF if n >= 0 else 0, n & 0xFFFFFFFF]
        return asarray(np.array(words, np.uint32))
    value = as_value(seed)
    if value.aval.shape or not dtypes.is_int(value.aval.dtype):
        raise DTypeError(message("random.key", "an integer seed is required", f"{seed!r}"))
    low = layout.reshape(fnp.astype(value, dtypes.uint32), (1,))
    return layout.concatenate([layout.broadcast(Literal(0, dtypes.uint32), (1,), ()), low], 0)


PRNGKey = key


def key_data(keys: Any) -> Any:
    """Return the words of a key: it is its own data."""
    return as_value(keys)


def wrap_key_data(data: Any) -> Any:
    """Return a key for two uint32 words."""
    return as_value(data)


def _words(keys: Any, what: str) -> tuple[Any, Any]:
    k = as_value(keys)
    if k.aval.shape != (2,) or k.aval.dtype != dtypes.uint32:
        way_out = "make one with random.key(seed); map over many with vmap"
        raise DTypeError(message(f"random.{what}", "a key is a uint32 array of shape (2,)", str(k.aval), way_out))
    return tuple([layout.reshape(layout.slice_along(k, 0, i, i + 1), ()) for i in range(2)])  # type: ignore[return-value]


def _shape(shape: Any, what: str) -> tuple[int, ...]:
    try:
        return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple([int(n) for n in shape])
    except TypeError:
        raise ShapeError(
            message(f"random.{what}", "a shape must be integers known when tracing", repr(shape))
        ) from None


def _random_words(keys: Any, shape: tuple[int, ...], word: int, what: str) -> Any:
    k0, k1 = _words(keys, what)
    size = math.prod(shape)
    low = layout.iota((size,), 0, dtypes.uint32)
    drawn = logic.threefry(k0, k1, Literal(0, dtypes.uint32), low, word)
    return layout.reshape(drawn, shape)


def bits(key: Any, shape: Shape = (), dtype: Any = dtypes.uint32) -> Any:
    """Return uniform random uint32 values.

    >>> bits(PRNGKey(0), (2,)).dtype
    dtype('uint32')
    """
    if dtypes.as_dtype(dtype) != dtypes.uint32:
        raise DTypeError(message("random.bits", "bits are uint32", str(dtype)))
    return _random_words(key, _shape(shape, "bits"), 2, "bits")


def split(key: Any, num: int | Shape = 2) -> Any:
    """Return ``num`` new keys, stacked: shape (num, 2).

    >>> split(PRNGKey(0)).shape
    (2, 2)
    """
    shape = _shape(num, "split")
    words = [layout.expand(_random_words(key, shape, w, "split"), len(shape)) for w in (0, 1)]
    return layout.concatenate(words, len(shape))


def fold_in(key: Any, data: Any) -> Any:
    """Return a new key that depends on ``data``, an integer of 32 bits, which may be traced.

    >>> fold_in(PRNGKey(0), 3).shape
    (2,)
    """
    k0, k1 = _words(key, "fold_in")
    value = as_value(data & 0xFFFFFFFF if isinstance(data, int) and not isinstance(data, bool) else data, dtypes.uint32)
    if value.aval.shape or not dtypes.is_int(value.aval.dtype):
        raise DTypeError(message("random.fold_in", "an integer scalar is required", str(value.aval)))
    low = fnp.astype(value, dtypes.uint32)
    words = [layout.reshape(logic.threefry(k0, k1, Literal(0, dtypes.uint32), low, w), (1,)) for w in (0, 1)]
    return layout.concatenate(words, 0)


def _float_dtype(dtype: Any, what: str) -> Any:
    d = dtypes.as_dtype(dtype)
    if d not in dtypes.FLOATS:
        raise DTypeError(message(f"random.{what}", "a float dtype is required", str(dtype)))
    return d


def uniform(key: Any, shape: Shape = (), dtype: Any = float, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Return values uniform in [minval, maxval): 23 random bits become the mantissa of a float in [1, 2).

    >>> u = uniform(PRNGKey(0), (1000,))
    >>> bool((u >= 0).all() & (u < 1).all())
    True
    """
    d = _float_dtype(dtype, "uniform")
    drawn = apply("shift_right_logical", bits(key, _shape(shape, "uniform")), 9)
    ones = logic.bitcast(logic.logical_or(drawn, 0x3F800000), dtypes.float32)
    unit = fnp.astype(fnp.subtract(ones, 1.0), d)
    if isinstance(minval, float) and isinstance(maxval, float) and minval == 0.0 and maxval == 1.0:
        return unit
    low, high = fnp.astype(as_value(minval, d), d), fnp.astype(as_value(maxval, d), d)
    return fnp.maximum(low, fnp.add(fnp.multiply(unit, fnp.subtract(high, low)), low))


def normal(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return standard normal values: sqrt(2) erf_inv(u) with u uniform in (-1, 1).

    >>> z = normal(PRNGKey(0), (10000,))
    >>> abs(float(z.mean())) < 0.05
    True
    """
    d = _float_dtype(dtype, "normal")
    low = float(np.nextafter(np.float32(-1), np.float32(0)))
    u = uniform(key, shape, dtypes.float32, low, 1.0)
    return fnp.astype(fnp.multiply(apply("erf_inv", u), math.sqrt(2)), d)


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return standard normal values given that they lie in (lower, upper).

    >>> t = truncated_normal(PRNGKey(0), -1.0, 1.0, (1000,))
    >>> bool((abs(t) < 1).all())
    True
    """
    d = _float_dtype(dtype, "truncated_normal")
    low, high = [fnp.astype(as_value(x, dtypes.float32), dtypes.float32) for x in (lower, upper)]
    full = fnp.broadcast_shapes(low.aval.shape, high.aval.shape) if shape is None else _shape(shape, "truncated_normal")
    a, b = [apply("erf", fnp.divide(x, math.sqrt(2))) for x in (low, high)]
    u = uniform(key, full, dtypes.float32, a, b)
    out = fnp.multiply(apply("erf_inv", u), math.sqrt(2))
    inside_low, inside_high = fnp.nextafter(low, math.inf), fnp.nextafter(high, -math.inf)
    return fnp.astype(fnp.minimum(fnp.maximum(out, inside_low), inside_high), d)


def bernoulli(key: Any, p: Any = 0.5, shape: Shape | None = None) -> Any:
    """Return True with probability ``p``.

    >>> bernoulli(PRNGKey(0), 0.3, (4,)).dtype
    dtype('bool')
    """
    prob = fnp.astype(as_value(p, dtypes.float32), dtypes.float32)
    full = prob.aval.shape if shape is None else _shape(shape, "bernoulli")
    return fnp.less(uniform(key, full), prob)


def gumbel(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return standard Gumbel values: -log(-log(u))."""
    d = _float_dtype(dtype, "gumbel")
    u = uniform(key, shape, dtypes.float32, float(np.finfo(np.float32).tiny), 1.0)
    return fnp.astype(fnp.negative(fnp.log(fnp.negative(fnp.log(u)))), d)


def categorical(key: Any, logits: Any, axis: int = -1, shape: Shape | None = None) -> Any:
    """Return indices along ``axis`` drawn with probabilities softmax(logits), as int32, by the Gumbel-max method.

    ``shape`` must end in the shape of ``logits`` without ``axis``; its leading axes are independent draws.

    >>> int(categorical(PRNGKey(0), asarray([0.0, 50.0])))
    1
    """
    x = as_value(logits)
    at = axis % x.aval.ndim
    rest = x.aval.shape[:at] + x.aval.shape[at + 1 :]
    full = rest if shape is None else _shape(shape, "categorical")
    lead = full[: len(full) - len(rest)]
    if full[len(lead) :] != rest:
        raise ShapeError(message("random.categorical", f"shape must end in {rest}", str(full)))
    noise = gumbel(key, (*lead, *x.aval.shape), x.aval.dtype)
    return fnp.argmax(fnp.add(noise, x), axis=at + len(lead))


def randint(key: Any, shape: Shape, minval: Any, maxval: Any, dtype: Any = int) -> Any:
    """Return integers uniform in [minval, maxval): two draws of 32 bits reduced to the span, as JAX does.

    >>> r = randint(PRNGKey(0), (100,), 3, 6)
    >>> int(r.min()), int(r.max())
    (3, 5)
    """
    d = dtypes.as_dtype(dtype)
    if not dtypes.is_int(d):
        raise DTypeError(message("random.randint", "an integer dtype is required", str(dtype)))
    full = _shape(shape, "randint")
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

    >>> sorted(permutation(PRNGKey(0), 5).tolist())
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

    >>> choice(PRNGKey(0), 10, (3,), replace=False).shape
    (3,)
    """
    full = _shape(shape, "choice")
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


# -- further distributions ---------------------------------------------------------------------------------------
def exponential(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return values of density exp(-x): -log1p(-u)."""
    u = uniform(key, shape, _float_dtype(dtype, "exponential"))
    return fnp.negative(fnp.log1p(fnp.negative(u)))


def laplace(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return values of density exp(-|x|) / 2."""
    d = _float_dtype(dtype, "laplace")
    u = uniform(key, shape, d, -1.0 + float(np.finfo(np.float32).epsneg), 1.0)
    return fnp.multiply(fnp.sign(u), fnp.log1p(fnp.negative(fnp.abs(u))))


def logistic(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return values with the logistic function as their distribution: log(u / (1 - u))."""
    d = _float_dtype(dtype, "logistic")
    u = uniform(key, shape, d, float(np.finfo(np.float32).tiny), 1.0)
    return fnp.subtract(fnp.log(u), fnp.log1p(fnp.negative(u)))


def cauchy(key: Any, shape: Shape = (), dtype: Any = float) -> Any:
    """Return standard Cauchy values: tan(pi (u - 1/2))."""
    d = _float_dtype(dtype, "cauchy")
    u = uniform(key, shape, d, float(np.finfo(np.float32).eps), 1.0)
    return fnp.tan(fnp.multiply(fnp.subtract(u, 0.5), math.pi))


def rademacher(key: Any, shape: Shape = (), dtype: Any = int) -> Any:
    """Return -1 or 1 with equal probability."""
    up = bernoulli(key, 0.5, shape)
    return fnp.astype(fnp.subtract(fnp.multiply(fnp.astype(up, dtypes.int32), 2), 1), dtypes.as_dtype(dtype))
