"""Exact float32 arithmetic in kernels: fused multiply-add, correctly rounded division and square root, and numbers held
as the sum of two float32 (a pair), for what float64 would do where the device has it.

The algorithms are the classical ones: J.-M. Muller et al., "Handbook of Floating-Point Arithmetic", 2nd ed., 2018,
chapters 4 and 14 (error-free transformations, division and square root by Newton's iteration with FMA).
"""

from __future__ import annotations

from collections.abc import Sequence

from funcgrad.runtime.spirv.kernel import Value

__all__ = [
    "Divisor",
    "Pair",
    "absolute",
    "copysign",
    "divide",
    "fast_two_sum",
    "fma",
    "horner",
    "inverse_sqrt",
    "mad",
    "pair_add",
    "pair_divide",
    "pair_multiply",
    "pair_sqrt",
    "split",
    "sqrt",
    "two_product",
    "two_sum",
]

Pair = tuple[Value, Value]  # the value rounded to float32, and the rest
SIGN, MAGNITUDE, ONE, INF, NAN = 0x80000000, 0x7FFFFFFF, 0x3F800000, 0x7F800000, 0x7FC00000


def absolute(x: Value) -> Value:
    """|x|, of NaN too."""
    return (x.bits() & MAGNITUDE).bits("f")


def copysign(x: Value, sign: Value) -> Value:
    """|x| with the sign of another number."""
    return ((x.bits() & MAGNITUDE) | (sign.bits() & SIGN)).bits("f")


# -- error-free transformations


def two_sum(x: Value, y: Value) -> Pair:
    """x + y and its rounding error."""
    s = x + y
    v = s - x
    return s, (x - (s - v)) + (y - v)


def fast_two_sum(x: Value, y: Value) -> Pair:
    """The same where |x| >= |y|, or x is 0."""
    s = x + y
    return s, y - (s - x)


def _halves(x: Value) -> Pair:
    """x as the sum of two numbers of 12 bits."""
    high = (x.bits() & 0xFFFFF000).bits("f")
    return high, x - high


def two_product(x: Value, y: Value) -> Pair:
    """x * y and its rounding error."""
    k = x.k
    p = x * y
    if k.target.fused:
        return p, k.fma(x, y, -p)
    (a, b), (c, d) = _halves(x), _halves(y)
    return p, ((a * c - p) + a * d + b * c) + b * d


def fma(x: Value, y: Value | float, z: Value | float) -> Value:
    """x * y + z, rounded once (to nearly always the same where the device's Fma rounds twice)."""
    k = x.k
    if k.target.fused:
        return k.fma(x, y, z)
    p, e = two_product(x, k.value(y, "f"))
    s, t = two_sum(p, k.value(z, "f"))
    r = s + (t + e)
    return k.select(r.eq(r), r, s)


def mad(x: Value, y: Value | float, z: Value | float) -> Value:
    """x * y + z where two roundings are as good as one."""
    return x.k.fma(x, y, z)


def horner(x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial, the highest power first."""
    q = x.k.const(coefficients[0], "f")
    for c in coefficients[1:]:
        q = mad(q, x, c)
    return q


# -- division and square root


def split(x: Value) -> Pair:
    """The mantissa of |x| in [1, 2), and the biased exponent (int32), of a finite number that is not 0; a denormal's is
    found by converting its bits, so that devices that flush denormals do it too."""
    k = x.k
    a = x.bits() & MAGNITUDE
    tiny = a < 0x00800000
    u = k.select(tiny, k.unary("ConvertUToF", a, "f").bits(), a)
    e = (u >> 23).bits("i") - k.select(tiny, k.const(149, "i"), 0)
    return ((u & 0x007FFFFF) | ONE).bits("f"), e


def _quotient(x: Value, y: Value) -> Pair:
    """x / y of moderate positive numbers, correctly rounded, and the remainder: of the two numbers next to it that with
    the smaller remainder (remainders are exact, and both are never equal)."""
    k = x.k
    r = k.const(1.0, "f") / y
    r = fma(r, fma(-y, r, 1.0), r)
    q = x * r
    q = fma(fma(-y, q, x), r, q)
    rest = fma(-y, q, x)
    next_ = (q.bits() + k.select(rest < 0.0, k.const(-1, "u"), 1)).bits("f")
    other = fma(-y, next_, x)
    nearer = absolute(other) < absolute(rest)
    return k.select(nearer, next_, q), k.select(nearer, other, rest)


def _divide_scaled(x: Value, y: Value) -> Value:
    """|x / y| for all numbers: mantissas and exponents on their own, denormals rounded as integers."""
    k = x.k
    (m, e), (n, f) = split(x), split(y)
    q, rest = _quotient(m, n)
    u = q.bits()
    e = (u >> 23).bits("i") + e - f
    normal = (u & 0x007FFFFF) | (e << 23).bits("u")
    whole = (((u & 0x007FFFFF) | 0x00800000) << 1).bits("i")  # the last bit tells on which side the remainder is
    whole = whole + k.select(rest > 0.0, k.const(1, "i"), 0) - k.select(rest < 0.0, k.const(1, "i"), 0)
    shift = k.select(e < -28, k.const(30, "i"), k.const(2, "i") - e)
    shift = k.select(e > 0, k.const(1, "i"), shift).bits("u")
    w = whole.bits("u")
    small = (w + ((k.const(1, "u") << (shift - 1)) - 1) + ((w >> shift) & 1)) >> shift
    out = k.select(e > 254, k.const(INF, "u"), k.select(e > 0, normal, small))
    a, b = x.bits() & MAGNITUDE, y.bits() & MAGNITUDE
    out = k.select(a.eq(0) | b.eq(INF), k.const(0, "u"), out)
    out = k.select(b.eq(0) | a.eq(INF), k.const(INF, "u"), out)
    nan = (a > INF) | (b > INF) | (a.eq(INF) & b.eq(INF)) | (a.eq(0) & b.eq(0))
    return k.select(nan, k.const(NAN, "u"), out).bits("f")


def divide(x: Value, y: Value) -> Value:
    """x / y, correctly rounded."""
    k = x.k
    if k.target.exact:
        return x / y
    u, v = x.bits(), y.bits()
    hard = ((v >> 23) & 255) - 66 > 122
    hard = hard | ((((u >> 23) & 255) - 66 > 122) & (u << 1).ne(0))
    out = k.variable(_quotient(absolute(x), absolute(y))[0])
    with k.if_(hard, rare=True):
        out.set(_divide_scaled(x, y))
    return ((out.get().bits() & MAGNITUDE) | ((u ^ v) & SIGN)).bits("f")


class Divisor:
    """Divides many numbers by one, without branches: what depends on it alone is computed once.

    With the correctly rounded reciprocal of the mantissa the last step is correctly rounded (Markstein), except
    that a denormal quotient is rounded twice.
    """

    def __init__(self, y: Value) -> None:
        self.y, k = y, y.k
        self.m, e = split(y)
        r = k.const(1.0, "f") / self.m
        r = fma(r, fma(-self.m, r, 1.0), r)
        rest = fma(-self.m, r, 1.0)
        next_ = (r.bits() + k.select(rest < 0.0, k.const(-1, "u"), 1)).bits("f")
        self.r = k.select(absolute(fma(-self.m, next_, 1.0)) < absolute(rest), next_, r)
        n = k.const(127, "i") - e
        half = n >> 1
        self.scales = [((v + 127) << 23).bits("f") for v in (half, n - half)]
        magnitude = y.bits() & MAGNITUDE
        self.special = magnitude.eq(0) | (magnitude >= INF)
        # the factor where y or x is 0, infinite or NaN
        self.factor = k.select(self.special, k.const(1.0, "f") / y, copysign(k.const(1.0, "f"), y))

    def divide(self, x: Value) -> Value:
        """x / y."""
        k, m, r = x.k, self.m, self.r
        if k.target.exact:
            return x / self.y
        a = absolute(x)
        large, small, one = a > 2.0**64, a < 2.0**-64, k.const(1.0, "f")
        b = a * k.select(large, k.const(2.0**-64, "f"), k.select(small, k.const(2.0**64, "f"), one))
        back = k.select(large, k.const(2.0**32, "f"), k.select(small, k.const(2.0**-32, "f"), one))
        q = b * r
        q = fma(fma(-m, q, b), r, q)
        q = fma(fma(-m, q, b), r, q)
        q = q * (self.scales[0] * back) * (self.scales[1] * back)  # two like steps: only the second leaves the range
        q = copysign(q, (x.bits() ^ self.y.bits()).bits("f"))
        return k.select(self.special | (a.bits() >= INF), x * self.factor, q)


def _even_split(x: Value) -> tuple[Value, Value]:
    """x = m 4^e for x > 0: m in [1, 4), and the word to add to the bits of a number to multiply it by 2^e."""
    m, e = split(x)
    odd = (e & 1) ^ 1  # the bias is odd
    m = (m.bits() + (odd << 23).bits("u")).bits("f")
    return m, ((e - 127 - odd) >> 1) << 23


def sqrt(x: Value) -> Value:
    """The square root, correctly rounded."""
    k = x.k
    if k.target.exact:
        return k.ext("Sqrt", "f", x)
    m, scale = _even_split(x)
    y = k.ext("InverseSqrt", "f", m)
    s, h = m * y, y * 0.5
    r = fma(-h, s, 0.5)
    s, h = fma(s, r, s), fma(h, r, h)
    s = fma(fma(-s, s, m), h, s)
    s = fma(fma(-s, s, m), h, s)
    return _root_special(x, (s.bits() + scale.bits("u")).bits("f"))


def _root_special(x: Value, root: Value) -> Value:
    k = x.k
    inf = k.bits_const(INF, "f")
    out = k.select(x.bits().eq(INF), inf, root)
    out = k.select((x.bits() << 1).eq(0), x, out)
    return k.select((x < 0.0) | x.ne(x), k.bits_const(NAN, "f"), out)


def inverse_sqrt(x: Value) -> Value:
    """1 / sqrt(x), within 0.6 ulp."""
    k = x.k
    m, scale = _even_split(x)
    y = k.ext("InverseSqrt", "f", m)
    p, e = two_product(m, y)
    y = fma(y * 0.5, fma(-p, y, 1.0) - e * y, y)
    out = (y.bits() - scale.bits("u")).bits("f")
    inf = k.bits_const(INF, "f")
    out = k.select(x.bits().eq(INF), k.const(0.0, "f"), out)
    out = k.select((x.bits() << 1).eq(0), copysign(inf, x), out)
    return k.select((x < 0.0) | x.ne(x), k.bits_const(NAN, "f"), out)


# -- pairs


def pair_add(x: Pair, y: Pair) -> Pair:
    """The sum of two pairs."""
    s, e = two_sum(x[0], y[0])
    return fast_two_sum(s, e + (x[1] + y[1]))


def pair_multiply(x: Pair, y: Pair) -> Pair:
    """The product of two pairs."""
    p, e = two_product(x[0], y[0])
    return fast_two_sum(p, e + (x[0] * y[1] + x[1] * y[0]))


def pair_divide(x: Pair, y: Pair) -> Pair:
    """The quotient of two pairs of moderate size."""
    r = x[0].k.const(1.0, "f") / y[0]
    q = x[0] * r
    p, e = two_product(q, y[0])
    return fast_two_sum(q, (((x[0] - p) - e) + (x[1] - q * y[1])) * r)


def pair_sqrt(x: Pair) -> Pair:
    """The square root of a pair that is positive and of moderate size; of 0 it is 0."""
    k = x[0].k
    y = k.ext("InverseSqrt", "f", k.select(x[0].eq(0.0), k.const(1.0, "f"), x[0]))
    s = x[0] * y
    p, e = two_product(s, s)
    return fast_two_sum(s, (((x[0] - p) - e) + x[1]) * (y * 0.5))
