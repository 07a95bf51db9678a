"""The common elementary functions of float32 for kernels: those of the CPU's ``math_f32.h``, polynomial by polynomial.

Where the CPU has float64 (angles) there are pairs of float32 (see ``pairs``).  Everything is free of branches but what
is rare and long: huge angles and remainders of far exponents.
"""

from __future__ import annotations

from funcgrad.runtime.spirv.kernel import Value
from funcgrad.runtime.spirv.pairs import (
    INF,
    MAGNITUDE,
    NAN,
    Pair,
    absolute,
    copysign,
    fast_two_sum,
    fma,
    horner,
    mad,
    two_product,
    two_sum,
)

__all__ = [
    "angle",
    "cos",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "logistic",
    "maximum",
    "minimum",
    "nextafter",
    "numbers",
    "remainder",
    "scale",
    "sign",
    "sin",
    "sin_or_cos",
    "tanh",
]


def numbers(text: str) -> tuple[float, ...]:
    """Numbers in hexadecimal."""
    return tuple(float.fromhex(x) for x in text.split())


MAGIC = 1.5 * 2.0**23  # adding it rounds to an integer, which is then in the low bits
LOG2E, LN2_HIGH, LN2_LOW = numbers("0x1.715476p+0 0x1.62e43p-1 0x1.05c61p-29")  # ln 2 = LN2_HIGH - LN2_LOW
EXP_TAIL = numbers("0x1.6a6c6cp-10 0x1.123852p-7 0x1.55589ap-5 0x1.555494p-3 0x1.fffffcp-2")
EXP2 = numbers("0x1.470b48p-13 0x1.5f7274p-10 0x1.3b270ep-7 0x1.c6ae72p-5 0x1.ebfbe2p-3 0x1.62e432p-1")
EXPM1 = numbers("0x1.9d9c9cp-13 0x1.6d2854p-10 0x1.111316p-7 0x1.5554f4p-5 0x1.555554p-3 0x1p-1")
TANH = numbers("-0x1.846ee4p-8 0x1.553780p-6 -0x1.b8ae2cp-5 0x1.110a6ap-3 -0x1.555542p-2")
LOG_TAIL = numbers(
    "0x1.1c063ep-4 -0x1.e53286p-4 0x1.e6feb6p-4 -0x1.fafd9ep-4 0x1.232a5p-3 -0x1.556408p-3 0x1.99a514p-3"
    " -0x1.ffffeap-3 0x1.555548p-2"
)
SIN = numbers("0x1.7e605p-19 -0x1.a061e6p-13 0x1.11117cp-7 -0x1.555556p-3")
COS = numbers("-0x1.443e18p-22 0x1.a0acaap-16 -0x1.6c179ap-10 0x1.555556p-5")
ERF_NEAR = numbers(
    "0x1.4771fcp-14 -0x1.a3515ep-11 0x1.53f224p-8 -0x1.b7f71ap-6 0x1.ce2ce6p-4 -0x1.81273ep-2 0x1.06eba8p-3"
)
ERF_FAR = numbers(
    "0x1.4299dep-18 -0x1.2ebc84p-14 0x1.52a106p-11 -0x1.2b92b8p-8 0x1.9ef182p-6 -0x1.b978f6p-4 -0x1.44c5f2p-1"
    " -0x1.20fb54p+0"
)
TWO_OVER_PI, HALF_PI_HIGH, HALF_PI_MIDDLE, HALF_PI_LOW = numbers(
    "0x1.45f306p-1 0x1.921fbp+0 0x1.5110b4p-22 0x1.84698ap-48"
)
HALF_PI = numbers("0x1.921fb6p+0 -0x1.777a5cp-25")  # as a pair
TWO_OVER_PI_BITS = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)


def power(n: Value, bias: int) -> Value:
    """2^(n + bias - 127), n being the low bits of a number plus MAGIC."""
    return ((n.bits() << 23) + (bias << 23)).bits("f")


# -- exponentials


def scale(p: Value, t: Value, positive: Value) -> Value:
    """p 2^n in two steps, so that only the second overflows or rounds to a denormal."""
    k = p.k
    s = ((t.bits() << 23) + k.select(positive, k.const(125 << 23, "u"), 207 << 23)).bits("f")
    return p * s * k.select(positive, k.const(4.0, "f"), 2.0**-80)


def reduce_exponent(x: Value) -> Pair:
    """n + MAGIC and r where x = n ln 2 + r."""
    t = mad(x, LOG2E, MAGIC)
    n = t - MAGIC
    return t, mad(n, LN2_LOW, fma(n, -LN2_HIGH, x))


def _exp_clamped(x: Value, positive: Value) -> Value:
    t, r = reduce_exponent(x)
    return scale(mad(r * r, horner(r, EXP_TAIL), r) + 1.0, t, positive)


def _clamp(x: Value, low: float, high: float) -> Value:
    """NaN stays."""
    k = x.k
    x = k.select(x > high, k.const(high, "f"), x)
    return k.select(x < low, k.const(low, "f"), x)


def exp(x: Value) -> Value:
    """e^x."""
    x = _clamp(x, -104.0, 89.0)
    return _exp_clamped(x, x > 0.0)


def exp2(x: Value) -> Value:
    """2^x."""
    x = _clamp(x, -151.0, 129.0)
    t = x + MAGIC
    r = x - (t - MAGIC)
    return scale(fma(horner(r, EXP2), r, 1.0), t, x > 0.0)


def expm1(x: Value) -> Value:
    """e^x - 1 = 2^n p + (2^n - 1), at half the scale because 2^128 is no float32."""
    k = x.k
    t, r = reduce_exponent(_clamp(x, -25.0, 89.0))
    p = mad(r * r, horner(r, EXPM1), r)
    s = power(t, 126)
    y = fma(s, p, s - 0.5) * 2.0
    return copysign(k.select((t - MAGIC).eq(0.0), p, y), x)


def logistic(x: Value) -> Value:
    """1 / (1 + e^-x); one Newton step takes back the roundings of 1 + z and of the division."""
    k = x.k
    a = absolute(x)
    z = _exp_clamped(k.select(a > 104.0, k.const(-104.0, "f"), -a), k.const(False, "b"))
    d = z + 1.0
    low, one = z - (d - 1.0), k.select(x >= 0.0, k.const(1.0, "f"), z)
    r = k.const(1.0, "f") / d
    q = one * r
    return fma(fma(-q, low, fma(-q, d, one)), r, q)


def tanh(x: Value) -> Value:
    """1 - 2 / (e^(2 |x|) + 1), and a polynomial for small arguments."""
    k = x.k
    a = absolute(x)
    z = a * a
    t, r = reduce_exponent(k.select(a > 10.0, k.const(20.0, "f"), a * 2.0))
    s = power(t, 127)
    e = fma(s, mad(r * r, horner(r, EXP_TAIL), r), s)
    d = e + 1.0
    q = k.const(2.0, "f") / d
    q = mad(fma(-q, d, 2.0), q * 0.5, q)  # the device's division may be off by a few ulp
    return copysign(k.select(a < 0.6, mad(a * z, horner(z, TANH), a), k.const(1.0, "f") - q), x)


# -- logarithms


def _log_tail(f: Value) -> Value:
    """log(1 + f) - f."""
    z = f * f
    return mad(horner(f, LOG_TAIL) * f, z, z * -0.5)


def _split(x: Value) -> Pair:
    """e and f where x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for a positive finite x."""
    k = x.k
    bits = x.bits()
    tiny = bits < 0x00800000
    u = k.select(tiny, k.unary("ConvertUToF", bits, "f").bits(), bits)
    e = (u - 0x3F3504F3).bits("i") >> 23
    f = (u - (e << 23).bits("u")).bits("f") - 1.0
    e = e - k.select(tiny, k.const(149, "i"), 0)
    return k.unary("ConvertSToF", e, "f"), f


def _log_special(x: Value, r: Value) -> Value:
    k = x.k
    r = k.select(x.bits().eq(INF), x, r)
    r = k.select((x.bits() << 1).eq(0), k.bits_const(INF | 1 << 31, "f"), r)
    return k.select((x < 0.0) | x.ne(x), k.bits_const(NAN, "f"), r)


def log(x: Value) -> Value:
    """The natural logarithm."""
    e, f = _split(x)
    y = mad(e, -LN2_LOW, _log_tail(f))
    return _log_special(x, fma(e, LN2_HIGH, f + y))


def log2(x: Value) -> Value:
    """The logarithm to base 2."""
    high, low = numbers("0x1.715476p+0 0x1.4ae0cp-26")
    e, f = _split(x)
    p, rest = two_product(f, f.k.const(high, "f"))
    rest = rest + mad(f, low, _log_tail(f) * high)
    return _log_special(x, e + (p + rest))


def log1p(x: Value) -> Value:
    """log(1 + x): 1 + x gives the exponent only, f = (1 + x) 2^-e - 1 is one FMA away from exact."""
    k = x.k
    e = ((x + 1.0).bits() - 0x3F3504F3).bits("i") >> 23
    far = e > 126
    scaled = k.select(far, x * 0.25, x)
    s = (k.select(far, k.const(129 << 23, "i"), 127 << 23) - (e << 23)).bits("f")  # 2^-127 would be denormal
    f = fma(scaled, s, k.select(far, k.const(-1.0, "f"), s - 1.0))
    n = k.unary("ConvertSToF", e, "f")
    r = copysign(fma(n, LN2_HIGH, f + mad(n, -LN2_LOW, _log_tail(f))), x)
    r = k.select(x.bits().eq(INF), x, r)
    r = k.select(x.eq(-1.0), k.bits_const(INF | 1 << 31, "f"), r)
    return k.select((x < -1.0) | x.ne(x), k.bits_const(NAN, "f"), r)


# -- angles


def _near_angle(x: Value) -> tuple[Value, Value, Value]:
    """x = n pi/2 + (high + low) for |x| < 65536, pi/2 in three parts; n mod 2^22 as uint32."""
    t = mad(x, TWO_OVER_PI, MAGIC)
    n = t - MAGIC
    r = fma(n, -HALF_PI_HIGH, x)
    p, e = two_product(n, n.k.const(-HALF_PI_MIDDLE, "f"))
    s, f = two_sum(r, p)
    high, low = fast_two_sum(s, mad(n, -HALF_PI_LOW, e) + f)
    return high, low, t.bits()


def _window(x: Value) -> list[Value]:
    """Three words of 2/pi; the bits before them are, times x, whole multiples of 4."""
    k = x.k
    first = ((x.bits() >> 23) & 255) - 120
    word, shift = first >> 5, first & 31
    words = []
    for n in range(4):
        w = k.const(TWO_OVER_PI_BITS[n], "u")
        for m in range(1, 5):
            w = k.select(word.eq(m), k.const(TWO_OVER_PI_BITS[n + m], "u"), w)
        words.append(w)
    right = k.const(31, "u") - shift  # a shift by 32 has no meaning: by 1 and then by this
    return [(words[n] << shift) | ((words[n + 1] >> 1) >> right) for n in range(3)]


def _far_angle(x: Value) -> tuple[Value, Value, Value]:
    """The same for 2^16 <= |x| < inf (Payne and Hanek, 1983), in 96 bits."""
    k = x.k
    m = (x.bits() & 0x007FFFFF) | 0x00800000
    w = _window(x)
    (low, a), (b, c) = k.multiply_wide(w[2], m), k.multiply_wide(w[1], m)
    middle = a + b
    high = w[0] * m + c + k.select(middle < a, k.const(1, "u"), 0)
    n = high >> 30
    top, next_ = (high << 2) | (middle >> 30), (middle << 2) | (low >> 30)
    negative = top >= 0x80000000  # to nearest: the fraction of a quarter turn lies in [-1/2, 1/2)
    n = n + k.select(negative, k.const(1, "u"), 0)
    next_ = k.select(negative, ~next_, next_)  # one unit of 2^-64 less than the negation, which is nothing
    top = k.select(negative, ~top, top)
    shift = k.const(31, "u") - k.ext("FindUMsb", "u", top | 1)
    top, next_ = (top << shift) | ((next_ >> 1) >> (k.const(31, "u") - shift)), next_ << shift
    one = k.unary("ConvertUToF", top >> 8, "f") * 2.0**-24
    two = k.unary("ConvertUToF", ((top & 255) << 16) | (next_ >> 16), "f") * 2.0**-48
    p, e = two_product(one, k.const(HALF_PI[0], "f"))
    r, rest = fast_two_sum(p, e + mad(one, HALF_PI[1], two * HALF_PI[0]))
    scale = ((k.const(127, "u") - shift) << 23).bits("f")
    flip = k.select(negative, k.const(1 << 31, "u"), 0) ^ (x.bits() & (1 << 31))
    r, rest = [((v * scale).bits() ^ flip).bits("f") for v in (r, rest)]
    return r, rest, k.select(x < 0.0, k.const(0, "u") - n, n)


def angle(x: Value) -> tuple[Value, Value, Value]:
    """x = n pi/2 + (high + low) with |high| < 0.8, and n modulo 4; of infinities and NaN it is NaN."""
    k = x.k
    near = _near_angle(x)
    out = [k.variable(v) for v in near]
    with k.if_((x.bits() & MAGNITUDE) > 0x47800000, rare=True):
        for variable, v in zip(out, _far_angle(x), strict=True):
            variable.set(v)
    high, low, n = (v.get() for v in out)
    return k.select(absolute(x) < float("inf"), high, k.bits_const(NAN, "f")), low, n


def sin_or_cos(high: Value, low: Value, n: Value) -> Value:
    """sin of n pi/2 + high + low: both polynomials, then the one that the quadrant asks for."""
    k = high.k
    z = high * high
    s = high + mad(high * z, horner(z, SIN), low)
    c = mad(horner(z, COS) * z, z, mad(z, -0.5, 1.0)) - high * low
    return (k.select((n & 1).ne(0), c, s).bits() ^ ((n & 2) << 30)).bits("f")


def sin(x: Value) -> Value:
    """The sine."""
    return x.k.select((x.bits() << 1).eq(0), x, sin_or_cos(*angle(x)))


def cos(x: Value) -> Value:
    """The cosine."""
    high, low, n = angle(x)
    return sin_or_cos(high, low, n + 1)


# -- error function


def erf(x: Value) -> Value:
    """|x| <= 1: x (1 + P(x^2)); beyond: 1 - e^(x Q(x))."""
    k = x.k
    a = absolute(x)
    small = mad(a, horner(a * a, ERF_NEAR), a)
    b = k.select(a > 4.0, k.const(4.0, "f"), a)
    t, r = reduce_exponent(horner(b, ERF_FAR) * b)
    e = (mad(r * r, horner(r, EXP_TAIL), r) + 1.0) * power(t, 127)
    return copysign(k.select(a > 1.0, k.const(1.0, "f") - e, small), x)


# -- comparisons and steps


def sign(x: Value) -> Value:
    """-1, 0 or 1; NaN stays."""
    k = x.k
    one = copysign(k.const(1.0, "f"), x)
    return k.select(x.ne(x), x, k.select((x.bits() << 1).eq(0), k.const(0.0, "f"), one))


def _extreme(greater: Value, less: Value, tie: Value, a: Value, b: Value) -> Value:
    k = a.k
    r = k.select(greater, a, k.select(less, b, tie))
    return k.select(a.ne(a) | b.ne(b), k.bits_const(NAN, "f"), r)


def maximum(a: Value, b: Value) -> Value:
    """NaN wins; of -0 and 0 it is 0."""
    return _extreme(a > b, a < b, (a.bits() & b.bits()).bits("f"), a, b)


def minimum(a: Value, b: Value) -> Value:
    """NaN wins; of -0 and 0 it is -0."""
    return _extreme(a < b, a > b, (a.bits() | b.bits()).bits("f"), a, b)


def nextafter(x: Value, y: Value) -> Value:
    """The float32 next to x towards y."""
    k = x.k
    u = x.bits()
    step = k.select((x < y).eq(x > 0.0), u + 1, u - 1)
    r = k.select((u << 1).eq(0), (y.bits() & (1 << 31)) | 1, step).bits("f")
    r = k.select(x.eq(y), y, r)
    return k.select(x.ne(x) | y.ne(y), k.bits_const(NAN, "f"), r)


def _whole(a: Value) -> Pair:
    """|x| = m 2^(e - 1) with integers m < 2^24 and e >= 0."""
    k = a.k
    e, m = a >> 23, a & 0x007FFFFF
    normal = e.ne(0)
    return k.select(normal, m | 0x00800000, m), k.select(normal, e - 1, k.const(0, "u"))


def remainder(x: Value, y: Value) -> Value:
    """x - y trunc(x / y), exactly: long division of the mantissas, eight bits at a time."""
    k = x.k
    a, b = x.bits() & MAGNITUDE, y.bits() & MAGNITUDE
    (m, e), (d, f) = _whole(a), _whole(k.select(b.eq(0), k.const(ONE_BITS, "u"), b))
    rest, left = (
        k.variable(k.select(e < f, k.const(0, "u"), m % d)),
        k.variable(k.select(e > f, e - f, k.const(0, "u"))),
    )

    def step() -> None:
        n = k.select(left.get() > 8, k.const(8, "u"), left.get())
        rest.set((rest.get() << n) % d)
        left.set(left.get() - n)

    k.repeat(lambda: left.get().ne(0), step)
    r = rest.get()
    zero = r.eq(0)
    lead = k.const(23, "u") - k.ext("FindUMsb", "u", r | 1)  # places that the mantissa can move up
    shift = k.select(lead < f, lead, f)
    moved = r << shift
    bits = k.select(moved >= 0x00800000, moved + ((f - shift) << 23), moved)
    bits = k.select(zero, k.const(0, "u"), bits)
    bits = k.select(a < b, a, bits)  # also for an infinite y
    out = copysign(bits.bits("f"), x)
    return k.select((a >= INF) | (b > INF) | b.eq(0), k.bits_const(NAN, "f"), out)


ONE_BITS = 0x3F800000
