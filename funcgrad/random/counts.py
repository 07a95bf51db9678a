"""Counts: Poisson, binomial, multinomial.  Draws are exact; their bits are this library's own, not JAX's."""

from __future__ import annotations

from typing import Any

from funcgrad import dtypes, lax
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.random.distributions import array_parameters, exponential
from funcgrad.random.draws import float_dtype, uniform
from funcgrad.random.keys import Shape, shape_of, split

__all__ = ["binomial", "multinomial", "poisson"]


def _waiting(key: Any, gap: Any, limit: Any, active: Any) -> Any:
    """How many waiting times fit in ``limit``; ``gap(key)`` draws one for each place."""

    def step(state: Any) -> Any:
        key, time, count = state
        key, now = split(key)
        time = time + gap(now)
        return key, time, count + fnp.astype(time <= limit, count.dtype)

    start = (key, fnp.zeros_like(limit), fnp.zeros_like(limit))
    return lax.while_loop(lambda s: fnp.any(active & (s[1] <= limit)), step, start)[2]


def _rejected(key: Any, center: Any, b: Any, a: Any, quick: Any, accepts: Any, active: Any) -> Any:
    """Draws by transformed rejection from a table mountain of width b (Hörmann, 1993)."""

    def step(state: Any) -> Any:
        key, done, out = state
        key, k1, k2 = split(key, 3)
        u, v = uniform(k1, b.shape, b.dtype) - 0.5, uniform(k2, b.shape, b.dtype)
        near = 0.5 - fnp.abs(u)
        safe = fnp.maximum(near, 1e-7)
        k = fnp.floor((2 * a / safe + b) * u + center)
        inner = (near >= 0.07) & (v <= quick)
        accept = inner | (~((near < 0.013) & (v > near)) & accepts(k, v / (a / (safe * safe) + b)))
        return key, done | accept, fnp.where(accept & ~done, k, out)

    start = (key, ~active, fnp.zeros_like(b))
    return lax.while_loop(lambda s: ~fnp.all(s[1]), step, start)[2]


def poisson(key: Any, lam: Any, shape: Shape | None = None, dtype: Any = int) -> Any:
    """Return counts of a Poisson distribution of mean ``lam``; -1 where lam is NaN or negative, as JAX does.

    Up to a mean of 10 by counting waiting times, beyond by Hörmann's transformed rejection.

    >>> n = poisson(fg.random.key(0), 4.0, (5000,))
    >>> abs(float(n.mean()) - 4) < 0.2
    True
    """
    full, [p] = array_parameters("poisson", shape, lam)
    mean = fnp.broadcast_to(fnp.astype(p, fnp.float32), full)
    valid = mean >= 0
    small = valid & (mean < 10)
    k1, k2 = split(key)
    few = _waiting(k1, lambda k: exponential(k, full, fnp.float32), fnp.where(small, mean, 0.0), small)
    m = fnp.where(valid & ~small, fnp.minimum(mean, 2.0**30), 10.0)
    b = 0.931 + 2.53 * fnp.sqrt(m)
    a, scale = -0.059 + 0.02483 * b, 1.1239 + 1.1328 / (b - 3.4)

    def accepts(k: Any, height: Any) -> Any:
        log_mass = k * fnp.log(m) - m - lax.lgamma(fnp.maximum(k, 0.0) + 1)
        return (k >= 0) & (fnp.log(fnp.maximum(height, 1e-37) * scale) <= log_mass)

    many = _rejected(k2, m + 0.43, b, a, 0.9277 - 3.6224 / (b - 2), accepts, valid & ~small)
    out = fnp.where(valid, fnp.where(small, few, many), -1.0)
    return fnp.astype(out, dtypes.as_dtype(dtype))


def binomial(key: Any, n: Any, p: Any, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return how many of ``n`` trials succeed, each with probability ``p``, as floats; NaN for impossible parameters.

    Up to a mean of 10 by waiting times between successes, beyond by Hörmann's transformed rejection.

    >>> float(binomial(fg.random.key(0), 7, 1.0))
    7.0
    """
    full, [count, chance] = array_parameters("binomial", shape, n, p)
    d = float_dtype(dtype, "binomial")
    total, prob = [fnp.broadcast_to(fnp.astype(v, fnp.float32), full) for v in (count, chance)]
    valid = (total >= 0) & (prob >= 0) & (prob <= 1)
    total, rare = fnp.where(valid, fnp.floor(total), 0.0), fnp.where(valid, fnp.minimum(prob, 1 - prob), 0.0)
    small = total * rare < 10
    k1, k2 = split(key)
    few = _few_successes(k1, total, fnp.where(small, rare, 0.0), small)
    many = _many_successes(k2, fnp.where(small, 40.0, total), fnp.where(small, 0.5, rare), ~small)
    out = fnp.where(small, few, many)
    return fnp.astype(fnp.where(valid, fnp.where(prob > 0.5, total - out, out), fnp.nan), d)


def _few_successes(key: Any, total: Any, prob: Any, active: Any) -> Any:
    """Between successes lie geometric numbers of trials."""
    possible = active & (prob > 0)
    log_miss = fnp.log1p(-fnp.where(possible, prob, 0.5))

    def gap(key: Any) -> Any:
        return fnp.ceil(-exponential(key, total.shape, fnp.float32) / log_miss)

    return fnp.where(possible, _waiting(key, gap, total, possible), 0.0)


def _many_successes(key: Any, n: Any, p: Any, active: Any) -> Any:
    spread = fnp.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a, scale = -0.0873 + 0.0248 * b + 0.01 * p, (2.83 + 5.1 / b) * spread
    mode, log_odds = fnp.floor((n + 1) * p), fnp.log(p) - fnp.log1p(-p)
    peak = lax.lgamma(mode + 1) + lax.lgamma(n - mode + 1)

    def accepts(k: Any, height: Any) -> Any:
        inside = (k >= 0) & (k <= n)
        safe = fnp.clip(k, 0.0, n)
        ratio = peak - lax.lgamma(safe + 1) - lax.lgamma(n - safe + 1) + (safe - mode) * log_odds
        return inside & (fnp.log(fnp.maximum(height, 1e-37) * scale) <= ratio)

    return _rejected(key, n * p + 0.5, b, a, 0.92 - 4.2 / b, accepts, active)


def multinomial(key: Any, n: Any, p: Any, *, shape: Shape | None = None, dtype: Any = float) -> Any:
    """Return how many of ``n`` trials give each of the outcomes of probabilities ``p`` (last axis): ``(*shape, k)``.

    >>> float(multinomial(fg.random.key(0), 20, fnp.asarray([0.2, 0.3, 0.5])).sum())
    20.0
    """
    probs = fnp.astype(fnp.asarray(p), fnp.float32)
    if not probs.ndim:
        raise ShapeError(message("random.multinomial", "p must be a vector or a stack of vectors", str(probs.aval)))
    total = fnp.astype(fnp.asarray(n), fnp.float32)
    lead = fnp.broadcast_shapes(total.shape, probs.shape[:-1]) if shape is None else shape_of(shape, "multinomial")
    left, kinds = fnp.broadcast_to(total, lead), probs.shape[-1]
    keys, found = split(key, max(kinds, 2)), []
    for k in range(kinds - 1):
        rest = fnp.sum(probs[..., k:], axis=-1)
        share = fnp.clip(probs[..., k] / fnp.where(rest > 0, rest, 1.0), 0.0, 1.0)
        found.append(binomial(keys[k], left, share, lead, fnp.float32))
        left = left - found[-1]
    return fnp.astype(fnp.stack([*found, left], axis=-1), float_dtype(dtype, "multinomial"))
