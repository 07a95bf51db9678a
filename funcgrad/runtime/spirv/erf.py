"""The complementary and the inverse error function of float32 for kernels, in pairs of float32 (see ``rare``)."""

from __future__ import annotations

from funcgrad.runtime.spirv.kernel import Value
from funcgrad.runtime.spirv.math import numbers, scale
from funcgrad.runtime.spirv.pairs import (
    INF,
    absolute,
    copysign,
    fast_two_sum,
    pair_add,
    pair_divide,
    pair_multiply,
    pair_sqrt,
    two_product,
    two_sum,
)
from funcgrad.runtime.spirv.rare import choose, exp_pair, log_pair, minus, nan, pair_horner

__all__ = ["erf_inv", "erfc"]

ERFC = numbers(
    "-0x1.459b0dfead8dp-18 -0x1.4897a7336500cp-16 0x1.26d85fd00d17cp-17 0x1.096b595dd0dc7p-13 -0x1.be57de9741528p-14"
    " -0x1.994984d4ce0b5p-11 0x1.ef273f5fb8142p-10 0x1.4b8e60a9ad05dp-9 -0x1.8574cab53657p-6 0x1.17ca2372e3c9fp-4"
    " -0x1.e88b80553a5c2p-4 0x1.098366c25c37cp-3 -0x1.85a15c55b0f2p-5 -0x1.15c084bbfe05dp-3 0x1.40c522d7e47c5p+0"
)
ERF_INV_NEAR = numbers(
    "0x1.716c3d5831a52p-32 -0x1.2d66aef0fe45ep-27 0x1.35c73b5f04969p-26 0x1.f43c6ad4a2596p-22 -0x1.ccfb8506427d8p-19"
    " -0x1.4cfc3d3d2a253p-18 0x1.c9c59303f8981p-13 -0x1.4866467ac6278p-10 -0x1.11c4200c31b43p-8 0x1.f91e8b0aef6e7p-3"
    " 0x1.805c5d073edcfp+0"
)
ERF_INV_FAR = numbers(
    "-0x1.b5d43382fb4cfp-16 0x1.4c4ceb7a9bbd8p-13 -0x1.291081307ba31p-12 -0x1.ec568f13fda49p-14 0x1.83a3eb4459616p-10"
    " -0x1.d3aef6080ee06p-9 0x1.74afcf764c819p-8 -0x1.f4de1336306a7p-8 0x1.3581ae7f72969p-7 0x1.006dc9c15b8a2p+0"
    " 0x1.6a9efbd99cb03p+1"
)


def erfc(x: Value) -> Value:
    """erfc a = e^(-a^2) G(t) / (1 + 2 a) with t = (a - 3) / (a + 3)."""
    k = x.k
    a = absolute(x)
    a = k.select(a > 10.2, k.const(10.2, "f"), a)
    t = pair_divide(two_sum(a, k.const(-3.0, "f")), two_sum(a, k.const(3.0, "f")))
    e, n = exp_pair(minus(two_product(a, a)))
    r = pair_divide(pair_multiply(e, pair_horner(t, ERFC, 7)), two_sum(k.const(1.0, "f"), a * 2.0))
    high, low = scale(r[0], n, k.const(False, "b")), scale(r[1], n, k.const(False, "b"))
    s, f = fast_two_sum(k.const(2.0, "f"), -high)
    return k.select(x < 0.0, s + (f - low), high)


def erf_inv(x: Value) -> Value:
    """x P(w), w = -log(1 - x^2); above w = 5 a polynomial in sqrt(w) (the form is that of M. Giles, 2010)."""
    k = x.k
    a, zero, one = absolute(x), k.const(0.0, "f"), k.const(1.0, "f")
    b = k.select(a < 1.0, a, zero)
    p, e = two_product(b, b)
    w = minus(log_pair(pair_add((one, zero), (-p, -e))))
    near = pair_horner(pair_add(w, (k.const(-2.5, "f"), zero)), ERF_INV_NEAR, 3)
    far = pair_horner(
        pair_add(pair_sqrt(choose(w[0] < 5.0, (one, zero), w)), (k.const(-3.0, "f"), zero)), ERF_INV_FAR, 2
    )
    q = choose(w[0] < 5.0, near, far)
    tiny = a < 2.0**-100  # at a scale that has no denormals
    y = k.select(tiny, x * 2.0**64, x)
    p, e = two_product(y, q[0])
    r = (p + (e + y * q[1])) * k.select(tiny, k.const(2.0**-64, "f"), 1.0)
    r = k.select(a.eq(1.0), k.bits_const(INF, "f"), r)
    return k.select(a <= 1.0, copysign(r, x), nan(k))
