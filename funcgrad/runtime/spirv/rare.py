"""The rarer functions of float32 for kernels: powers, roots, inverse trigonometric and hyperbolic functions.

The CPU computes them in float64 (``math_f32_rare.h``); here the same formulas run on pairs of float32 where digits
would be lost, which leaves errors below an ulp and a half.
"""

from __future__ import annotations

import math
import struct

from funcgrad.runtime.spirv.kernel import Kernel, Value
from funcgrad.runtime.spirv.math import (
    EXP_TAIL,
    LN2_HIGH,
    LN2_LOW,
    LOG2E,
    MAGIC,
    angle,
    numbers,
    scale,
)
from funcgrad.runtime.spirv.pairs import (
    INF,
    MAGNITUDE,
    NAN,
    SIGN,
    Pair,
    absolute,
    copysign,
    divide,
    fast_two_sum,
    fma,
    horner,
    mad,
    pair_add,
    pair_divide,
    pair_multiply,
    pair_sqrt,
    split,
    two_product,
    two_sum,
)

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "cosh",
    "exp_pair",
    "choose",
    "constant",
    "log_pair",
    "minus",
    "nan",
    "pair_horner",
    "power",
    "sin_pair",
    "cos_pair",
    "sinh",
    "tan",
]

LOG = numbers(
    "0x1.58e437317cc6ep-3 0x1.732626f0ad459p-3 0x1.c72286e1b1f42p-3 0x1.249241ad82a9bp-2 0x1.999999a18f245p-2"
)
TWO_THIRDS = numbers("0x1.555556p-1 -0x1.555556p-26")
LN2_A, LN2_B = numbers("0x1.62e4p-1 0x1.7f7d1cp-20")
ASIN = numbers("0x1.2ead68p-5 0x1.e7dc18p-7 0x1.037708p-5 0x1.6cd654p-5 0x1.33373ap-4 0x1.55555p-3")
ATAN = numbers(
    "-0x1.64692e3df5e2fp-11 0x1.3de0d6ca2ce4ap-8 -0x1.0921aff0e7fc5p-6 0x1.19ea2739ce66fp-5 -0x1.bee4a56aac2f9p-5"
    " 0x1.29a50612a530ep-4 -0x1.703afe94139a6p-4 0x1.c67dbb84d66f5p-4 -0x1.248b7de44a3efp-3 0x1.99995344b0626p-3"
    " -0x1.555554e7625c5p-2"
)
SIN = numbers(
    "0x1.5d863cb7ef1c8p-33 -0x1.ae5e4845ca2efp-26 0x1.71de356a7d8fep-19 -0x1.a01a019c2b7p-13 0x1.111111110fb2bp-7"
    " -0x1.555555555554cp-3"
)
COS = numbers(
    "0x1.1c05587ca0c65p-29 -0x1.27e105f5438d6p-22 0x1.a019fcd49d0b2p-16 -0x1.6c16c169ab52ep-10 0x1.5555555554a15p-5"
)
SINH = (1 / 39916800, 1 / 362880, 1 / 5040, 1 / 120, 1 / 6)


def constant(like: Value, x: float) -> Pair:
    """A float64 number as a pair."""
    high = like.k.const(x, "f")
    nearest: float = struct.unpack("<f", struct.pack("<f", x))[0]
    return high, like.k.const(x - nearest, "f")


def pair_horner(x: Pair, coefficients: tuple[float, ...], steps: int = 1) -> Pair:
    """A polynomial, the highest power first, with the last few steps in pairs."""
    n = len(coefficients) - steps
    q = (horner(x[0], coefficients[:n]), x[0].k.const(0.0, "f"))
    for c in coefficients[n:]:
        p, e = two_product(x[0], q[0])
        last = constant(p, c)
        s, f = two_sum(last[0], p)
        q = fast_two_sum(s, f + (e + (x[1] * q[0] + (x[0] * q[1] + last[1]))))
    return q


def minus(x: Pair) -> Pair:
    """The negative."""
    return -x[0], -x[1]


def choose(mask: Value, x: Pair, y: Pair) -> Pair:
    """x where the mask is true, else y."""
    return mask.k.select(mask, x[0], y[0]), mask.k.select(mask, x[1], y[1])


def nan(k: Kernel) -> Value:
    """NaN."""
    return k.bits_const(NAN, "f")


# -- logarithm and exponential


def log_pair(x: Pair, more: Value | None = None) -> Pair:
    """log x, plus ``more`` times log 2, for a positive normal x = 2^e m: log m = 2 atanh((m - 1) / (m + 1))."""
    k = x[0].k
    u = x[0].bits()
    e = (u - 0x3F3504F3).bits("i") >> 23
    m = (u - (e << 23).bits("u")).bits("f")
    low = x[1] * ((k.const(127, "i") - k.select(e > 127, k.const(127, "i"), e)) << 23).bits("f")
    d, f = two_sum(m, k.const(1.0, "f"))
    s = pair_divide(fast_two_sum(m - 1.0, low), fast_two_sum(d, f + low))
    z = pair_multiply(s, s)
    third = k.const(TWO_THIRDS[0], "f")
    q = fast_two_sum(third, mad(horner(z[0], LOG), z[0], TWO_THIRDS[1]))
    r = pair_add((s[0] * 2.0, s[1] * 2.0), pair_multiply(pair_multiply(z, q), s))
    n = k.unary("ConvertSToF", e, "f")
    n = n if more is None else n + more
    high, rest = two_sum(n * LN2_A, r[0])
    return fast_two_sum(high, rest + mad(n, LN2_B, r[1]))


def exp_pair(x: Pair) -> tuple[Pair, Value]:
    """p and n + MAGIC where e^x = 2^n p, for |x| < 200."""
    k = x[0].k
    t = mad(x[0], LOG2E, MAGIC)
    n = t - MAGIC
    p, e = two_product(n, k.const(LN2_LOW, "f"))
    s, f = two_sum(fma(n, -LN2_HIGH, x[0]), p)
    high, low = fast_two_sum(s, f + e + x[1])
    s, e = fast_two_sum(k.const(1.0, "f"), high)
    s, f = fast_two_sum(s, high * high * horner(high, EXP_TAIL))
    return fast_two_sum(s, e + f + mad(low, high, low)), t


# -- powers and roots


def cbrt(x: Value) -> Value:
    """The cube root: two steps of Halley's from a guess by the bits, and one of Newton's with an exact remainder."""
    k = x.k
    a, e = split(x)
    e = e + (3 * 64 - 127)  # now positive, and a multiple of 3 is one of the true exponent
    third = (e + 150).bits("u") // 3
    left = (e + 150).bits("u") - third * 3
    m = (a.bits() + (left << 23)).bits("f")
    y = (m.bits() // 3 + 0x2A5137A0).bits("f")
    for _ in range(2):
        cube = y * y * y
        y = y * ((cube + m * 2.0) / (cube * 2.0 + m))
    p, e2 = two_product(y, y)
    q, f = two_product(p, y)
    y = y + (((m - q) - f) - e2 * y) / (p * 3.0)
    out = (y.bits() + ((third - (64 + 50)) << 23)).bits("f")
    plain = ((x.bits() << 1).eq(0)) | ((x.bits() & MAGNITUDE) >= INF)
    return k.select(plain, x, copysign(out, x))


def power(x: Value, y: Value) -> Value:
    """x^y = e^(y log |x|), with the sign of an odd power, and what C says of special values."""
    k = x.k
    ax, ay = absolute(x), absolute(y)
    tiny = ax.bits() < 0x00800000
    normal = k.select(tiny, k.unary("ConvertUToF", ax.bits(), "f"), ax)
    high, low = log_pair((normal, k.const(0.0, "f")), k.select(tiny, k.const(-149.0, "f"), 0.0))
    zero, infinite = ax.eq(0.0), ax.bits().eq(INF)
    inf = k.bits_const(INF, "f")
    high = k.select(zero, -inf, k.select(infinite, inf, high))
    p, e = two_product(y, high)
    e = e + y * low
    far = ~((p < 89.0) & (p > -104.0))
    p, e = k.select(p >= 89.0, k.const(89.0, "f"), p), k.select(far, k.const(0.0, "f"), e)
    p = k.select(p <= -104.0, k.const(-104.0, "f"), p)
    (r, _), t = exp_pair((p, e))
    r = scale(r, t, p > 0.0)
    r = k.select(ax.eq(1.0), k.const(1.0, "f"), r)
    whole = k.ext("Floor", "f", ay).eq(ay)
    half = ay * 0.5
    odd = whole & k.ext("Floor", "f", half).ne(half) & (ay < 2.0**24)
    sign = k.select(odd, x.bits() & SIGN, k.const(0, "u"))
    wrong = ((x < 0.0) & ~infinite & ~whole) | x.ne(x) | y.ne(y)
    r = k.select(wrong, k.const(NAN, "u"), r.bits() | sign).bits("f")
    return k.select(x.eq(1.0) | y.eq(0.0), k.const(1.0, "f"), r)


# -- trigonometric


def sin_pair(x: Pair) -> Pair:
    """sin of a pair in [-pi/4, pi/4]."""
    return _odd(x, SIN, x[1] * mad(x[0] * x[0], -0.5, 1.0))  # the rest times the cosine


def _odd(x: Pair, coefficients: tuple[float, ...], rest: Value) -> Pair:
    """x + x^3 Q(x^2) + rest for |x| <= 1, the sum at most a third from x."""
    z = two_product(x[0], x[0])
    p = pair_multiply(z, pair_horner(z, coefficients, 2))
    y, f = two_product(x[0], p[0])
    s, g = fast_two_sum(x[0], y)
    return fast_two_sum(s, g + (f + mad(x[0], p[1], rest)))


def cos_pair(x: Pair) -> Pair:
    """cos of a pair in [-pi/4, pi/4]."""
    z, e = two_product(x[0], x[0])
    s, f = fast_two_sum(x[0].k.const(1.0, "f"), z * -0.5)
    rest = mad(e, -0.5, mad(z * z, horner(z, COS), -x[0] * x[1] * mad(z, -1 / 6, 1.0)))
    return fast_two_sum(s, f + rest)


def tan(x: Value) -> Value:
    """The tangent."""
    k = x.k
    high, low, n = angle(x)
    s, c = sin_pair((high, low)), cos_pair((high, low))
    odd = (n & 1).ne(0)
    y = pair_divide(choose(odd, minus(c), s), choose(odd, s, c))[0]
    return k.select(absolute(x) < 2.0**-12, mad(x * x * x, 1 / 3, x), y)


def _asin(a: Value) -> Pair:
    """asin a for a <= 1/2, else half of pi/2 - asin a, which is asin sqrt((1 - a)/2)."""
    k = a.k
    big = a > 0.5
    z = k.select(big, (k.const(1.0, "f") - a) * 0.5, a * a)
    s, low = choose(big, pair_sqrt((z, k.const(0.0, "f"))), (a, k.const(0.0, "f")))
    return fast_two_sum(s, mad(s * z, horner(z, ASIN), low))


def asin(x: Value) -> Value:
    """The inverse sine."""
    k = x.k
    a = absolute(x)
    p = _asin(a)
    q = pair_add(constant(x, math.pi / 2), (p[0] * -2.0, p[1] * -2.0))
    r = copysign(k.select(a > 0.5, q[0], p[0]), x)
    return k.select(a <= 1.0, r, nan(k))


def acos(x: Value) -> Value:
    """The inverse cosine."""
    k = x.k
    a, below = absolute(x), x < 0.0
    p = _asin(a)
    twice = (p[0] * 2.0, p[1] * 2.0)
    middle = pair_add(constant(x, math.pi / 2), choose(below, p, minus(p)))
    end = choose(below, pair_add(constant(x, math.pi), minus(twice)), twice)
    return k.select(a <= 1.0, k.select(a > 0.5, end[0], middle[0]), nan(k))


def _atan(t: Pair) -> Pair:
    """atan of a pair in [0, 1]."""
    return _odd(t, ATAN, t[1] / (t[0] * t[0] + 1.0))


def atan(x: Value) -> Value:
    """The inverse tangent."""
    k = x.k
    a = absolute(x)
    a = k.select(a > 2.0**40, k.const(2.0**40, "f"), a)
    big, zero, one = a > 1.0, k.const(0.0, "f"), k.const(1.0, "f")
    r = _atan(choose(big, pair_divide((one, zero), (k.select(big, a, one), zero)), (a, zero)))
    q = pair_add(constant(x, math.pi / 2), minus(r))
    return copysign(k.select(big, q[0], r[0]), x)


def atan2(y: Value, x: Value) -> Value:
    """The angle of the point (x, y)."""
    k = x.k
    ay, ax = absolute(y), absolute(x)
    steep = ay > ax
    n, d = k.select(steep, ax, ay), k.select(steep, ay, ax)
    t = divide(n, d)
    size = k.select(d > 2.0**64, k.const(2.0**-64, "f"), k.select(d < 2.0**-64, k.const(2.0**64, "f"), 1.0))
    p, e = two_product(t, d * size)
    low = k.select(t > 2.0**-30, ((n * size - p) - e) / (d * size), k.const(0.0, "f"))
    both = n.bits().eq(INF)  # then d is infinite too
    t, low = k.select(both, k.const(1.0, "f"), t), k.select(both, k.const(0.0, "f"), low)
    nothing = (d.bits() << 1).eq(0)
    r = _atan((k.select(nothing, k.const(0.0, "f"), t), k.select(nothing, k.const(0.0, "f"), low)))
    r = choose(steep, pair_add(constant(x, math.pi / 2), minus(r)), r)
    r = choose(x.bits() >= SIGN, pair_add(constant(x, math.pi), minus(r)), r)
    return k.select(x.ne(x) | y.ne(y), nan(k), copysign(r[0], y))


# -- hyperbolic


def _two_exponentials(a: Value) -> tuple[Pair, Pair]:
    """e^a / 4 and e^-a / 4; the second is 0 where it no longer counts."""
    k = a.k
    zero = k.const(0.0, "f")
    (p, low), t = exp_pair((k.select(a > 89.5, k.const(89.5, "f"), a), zero))
    q = pair_divide((k.const(1.0, "f"), zero), (p, low))
    u = t.bits() << 23
    s = (u + (125 << 23)).bits("f")
    f = k.select(a > 20.0, zero, (k.const(125 << 23, "u") - u).bits("f"))
    return (p * s, low * s), (q[0] * f, q[1] * f)


def cosh(x: Value) -> Value:
    """The hyperbolic cosine."""
    big, small = _two_exponentials(absolute(x))
    s, e = fast_two_sum(big[0], small[0])
    return (s + (e + (big[1] + small[1]))) * 2.0


def sinh(x: Value) -> Value:
    """The hyperbolic sine; below 1/2 its series."""
    a = absolute(x)
    big, small = _two_exponentials(a)
    s, e = fast_two_sum(big[0], -small[0])
    z = a * a
    near = mad(a * z, horner(z, SINH), a)
    return copysign(x.k.select(a < 0.5, near, (s + (e + (big[1] - small[1]))) * 2.0), x)


def asinh(x: Value) -> Value:
    """log(a + sqrt(a^2 + 1)); below 1e-3 its series, above 2^30 log 2a."""
    k = x.k
    a, zero = absolute(x), k.const(0.0, "f")
    far = a > 2.0**30
    b = k.select(far, k.const(1.0, "f"), a)
    root = pair_sqrt(pair_add(two_product(b, b), (k.const(1.0, "f"), zero)))
    y = choose(far, (a, zero), pair_add(root, (b, zero)))
    r = log_pair(y, k.select(far, k.const(1.0, "f"), 0.0))[0]
    r = k.select(a < 1e-3, mad(a * a * a, -1 / 6, a), r)
    return k.select(a < float("inf"), copysign(r, x), x)


def acosh(x: Value) -> Value:
    """log(x + sqrt(x^2 - 1)); above 2^30 log 2x."""
    k = x.k
    zero, far = k.const(0.0, "f"), x > 2.0**30
    b = k.select(far | ~(x >= 1.0), k.const(1.0, "f"), x)
    product = pair_multiply((b - 1.0, zero), two_sum(b, k.const(1.0, "f")))
    y = choose(far, (x, zero), pair_add((b, zero), pair_sqrt(product)))
    r = log_pair(y, k.select(far, k.const(1.0, "f"), 0.0))[0]
    return k.select(x >= 1.0, k.select(x.bits().eq(INF), x, r), nan(k))


def atanh(x: Value) -> Value:
    """log((1 + a) / (1 - a)) / 2; below 1e-3 its series."""
    k = x.k
    a, one = absolute(x), k.const(1.0, "f")
    b = k.select(a < 1.0, a, k.const(0.0, "f"))
    r = log_pair(pair_divide(two_sum(one, b), two_sum(one, -b)))[0] * 0.5
    r = k.select(a < 1e-3, mad(a * a * a, 1 / 3, a), r)
    r = k.select(a < 1.0, r, k.select(a.eq(1.0), k.bits_const(INF, "f"), nan(k)))
    return copysign(r, x)
