"""The logarithm of the gamma function and its derivative for kernels, in pairs of float32.

Arguments are shifted to at least 8 by the recurrence, then Stirling's series; those below 1/2 are reflected.
(Abramowitz and Stegun, 6.1.15, 6.1.17, 6.1.41 and 6.3.5, 6.3.7, 6.3.18)
"""

from __future__ import annotations

import math

from funcgrad.runtime.spirv.kernel import Value
from funcgrad.runtime.spirv.pairs import (
    INF,
    MAGNITUDE,
    NAN,
    Pair,
    absolute,
    copysign,
    divide,
    fast_two_sum,
    horner,
    pair_add,
    pair_divide,
    pair_multiply,
    two_sum,
)
from funcgrad.runtime.spirv.rare import choose, constant, cos_pair, log_pair, minus, sin_pair

__all__ = ["digamma", "lgamma"]

STIRLING = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
DIGAMMA = (1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)


def _argument(x: Value) -> tuple[Value, Pair]:
    """Whether x is to be reflected, and x or 1 - x."""
    k = x.k
    below = x < 0.5
    return below, choose(below, two_sum(k.const(1.0, "f"), -x), (x, k.const(0.0, "f")))


def _fraction(x: Value) -> tuple[Value, Pair]:
    """x less the nearest integer, and pi times its magnitude."""
    k = x.k
    u = k.select(absolute(x) < 2.0**23, x - k.ext("RoundEven", "f", x), k.const(0.0, "f"))
    return u, pair_multiply((absolute(u), k.const(0.0, "f")), constant(x, math.pi))


def lgamma(x: Value) -> Value:
    """log |gamma x|."""
    k = x.k
    zero, one, inf = k.const(0.0, "f"), k.const(1.0, "f"), k.bits_const(INF, "f")
    below, z = _argument(x)
    z = choose(z[0] < 1e38, z, (k.const(1e38, "f"), zero))
    product = (one, zero)
    for _ in range(8):
        small = z[0] < 8.0
        product = choose(small, pair_multiply(product, z), product)
        s, e = two_sum(z[0], one)
        z = choose(small, fast_two_sum(s, e + z[1]), z)
    i = one / z[0]
    log = log_pair(z)
    main = pair_multiply(z, pair_add(log, (k.const(-1.0, "f"), zero)))  # (z - 1/2) log z - z
    huge = main[0].bits().eq(INF)
    main = pair_add(main, (log[0] * -0.5, log[1] * -0.5))
    main = pair_add(pair_add(main, constant(x, 0.9189385332046727)), (i * horner(i * i, STIRLING), zero))
    main = pair_add(main, minus(log_pair(product)))
    u, a = _fraction(x)
    steep = a[0] > math.pi / 4
    sine = choose(steep, cos_pair(pair_add(constant(x, math.pi / 2), minus(a))), sin_pair(a))
    sine = choose(u.eq(0.0), (one, zero), sine)
    tiny = (absolute(u) < 2.0**-60) & u.ne(0.0)  # then it is pi |u|, at a scale that has no denormals
    many = pair_multiply((absolute(u) * 2.0**64, zero), constant(x, math.pi))
    slope = log_pair(choose(tiny, many, sine), k.select(tiny, k.const(-64.0, "f"), zero))
    reflected = pair_add(pair_add(constant(x, math.log(math.pi)), minus(slope)), minus(main))
    r = k.select(below, reflected[0], k.select(huge, inf, main[0]))
    pole = (x <= 0.0) & u.eq(0.0)
    r = k.select(pole | (x.bits() & MAGNITUDE).eq(INF), inf, r)
    return k.select(x.ne(x), x, r)


def digamma(x: Value) -> Value:
    """The derivative of lgamma; at the poles NaN, at +-0 the limit -+inf."""
    k = x.k
    zero, one = k.const(0.0, "f"), k.const(1.0, "f")
    below, z = _argument(x)
    z = choose(z[0] < 1e38, z, (k.const(1e38, "f"), zero))
    total = (zero, zero)
    for _ in range(4):  # two steps at a time: 1/z + 1/(z + 1) = (2 z + 1) / (z (z + 1))
        small = z[0] < 8.0
        near = choose(small, z, (one, zero))
        next_ = pair_add(near, (one, zero))
        two = pair_divide(pair_add(near, next_), pair_multiply(near, next_))
        total = choose(small, pair_add(total, two), total)
        z = choose(small, pair_add(z, (k.const(2.0, "f"), zero)), z)
    far = z[0] > 2.0**40
    i = pair_divide((one, zero), choose(far, (k.const(2.0**40, "f"), zero), z))
    square = i[0] * i[0]
    s = pair_add(log_pair(z), (i[0] * -0.5, i[1] * -0.5))
    s = pair_add(s, (-(square * horner(square, DIGAMMA)), zero))
    s = pair_add(s, minus(total))
    u, a = _fraction(x)
    steep = a[0] > math.pi / 4
    b = choose(steep, pair_add(constant(x, math.pi / 2), minus(a)), a)
    sine, cosine = sin_pair(b), cos_pair(b)
    least = absolute(u) < 2.0**-40  # pi / tan(pi u) is 1 / u there
    n, d = choose(steep, sine, cosine), choose(steep, cosine, sine)
    d = choose(least | u.eq(0.0), (one, zero), d)
    cotangent = pair_multiply(pair_divide(n, d), constant(x, math.pi))
    inverse = divide(one, k.select(u.eq(0.0), one, absolute(u)))
    cotangent = choose(least, (inverse, zero), cotangent)
    negative = u < 0.0
    cotangent = choose(negative, cotangent, minus(cotangent))
    r = k.select(below, pair_add(s, cotangent)[0], s[0])
    inf = k.bits_const(INF, "f")
    r = k.select(absolute(r) < float("inf"), r, k.select(x < 0.5, -copysign(inf, x), r))
    r = k.select((x < 0.0) & u.eq(0.0), k.bits_const(NAN, "f"), r)
    r = k.select(x.eq(0.0), -copysign(inf, x), r)
    r = k.select(x.bits().eq(INF), x, r)
    return k.select(x.ne(x) | x.bits().eq(INF | 1 << 31), k.bits_const(NAN, "f"), r)
