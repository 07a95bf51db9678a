"""The instruction set of MAP (``csrc/map_ops.h``) as functions of kernel values, bit for bit where the CPU is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from funcgrad.runtime.spirv import erf, gamma, math, rare
from funcgrad.runtime.spirv.kernel import Memory, Value
from funcgrad.runtime.spirv.pairs import INF, MAGNITUDE, absolute, divide, inverse_sqrt, sqrt

__all__ = ["INSTRUCTIONS", "NUMBERS", "SIZES", "Instruction", "Unsupported", "load", "narrow", "store", "widen"]

SIGN = 0x80000000
F32, F16, BF16, I32, U32, BOOL = range(6)
SIZES = {F32: 4, F16: 2, BF16: 2, I32: 4, U32: 4, BOOL: 1}
MEMORY = {F32: "f", F16: "h", BF16: "h", I32: "i", U32: "u", BOOL: "c"}


class Unsupported(Exception):
    """A node that no kernel is made for; the message says why."""


class Instruction(NamedTuple):
    """One instruction: the types of its sources, what makes it, and its cost in additions."""

    name: str
    sources: str
    make: Callable[..., Value]
    cost: int


# -- elements in memory


def f16_to_f32(h: Value) -> Value:
    """IEEE half, as uint32, to float32."""
    return h.k.unpack_half(h) if h.k.target.halves else widen_half(h)


def f32_to_f16(x: Value) -> Value:
    """To the nearest, ties to even; NaN stays NaN."""
    return x.k.pack_half(x) if x.k.target.halves else narrow_half(x)


def widen_half(h: Value) -> Value:
    """The same by integer arithmetic."""
    k = h.k
    sign, e, m = (h & 0x8000) << 16, h & 0x7C00, (h & 0x7FFF) << 13
    small = (k.unary("ConvertUToF", h & 0x3FF, "f") * 2.0**-24).bits()
    full = e.eq(0x7C00)
    bits = k.select(e.eq(0), small, k.select(full, m + 0x70000000, m + 0x38000000))
    quiet = k.select(full & (h & 0x3FF).ne(0), k.const(0x00400000, "u"), 0)
    return (bits | quiet | sign).bits("f")


def narrow_half(x: Value) -> Value:
    """The same by integer arithmetic."""
    k = x.k
    u = x.bits()
    sign, a = (u >> 16) & 0x8000, u & MAGNITUDE
    normal = (a - (0x38000000 - 0xFFF) + ((a >> 13) & 1)) >> 13
    small = (a.bits("f") + 0.5).bits() - 0x3F000000
    r = k.select(a < 0x38800000, small, k.select(a >= 0x477FF000, k.const(0x7C00, "u"), normal))
    return k.select(a > INF, ((a >> 13) & 0x3FF) | 0x7E00, r) | sign


def f32_to_bf16(x: Value) -> Value:
    """To the nearest, ties to even; NaN stays NaN."""
    k = x.k
    u = x.bits()
    return k.select((u & MAGNITUDE) > INF, u | 0x00400000, u + 0x7FFF + ((u >> 16) & 1)) >> 16


def widen(raw: Value, dtype: int) -> Value:
    """An element as it is in memory, as MAP's registers hold it."""
    if dtype == F16:
        return f16_to_f32(raw)
    if dtype == BF16:
        return (raw << 16).bits("f")
    return raw.k.select(raw.ne(0), raw.k.const(1, "i"), 0) if dtype == BOOL else raw


def narrow(value: Value, dtype: int) -> Value:
    """What a register holds, as an element in memory."""
    if dtype == F16:
        return f32_to_f16(value.bits("f"))
    if dtype == BF16:
        return f32_to_bf16(value.bits("f"))
    if dtype == BOOL:
        return value.k.select(value.bits().ne(0), value.k.const(1, "u"), 0)
    return value.bits(MEMORY[dtype])


def load(memory: Memory, index: Value, dtype: int) -> Value:
    """An element, widened."""
    return widen(memory.load(index), dtype)


def store(memory: Memory, index: Value, value: Value, dtype: int) -> None:
    """Write an element, narrowed."""
    memory.store(index, narrow(value, dtype))


# -- parts


def _bits(f: Callable[..., Value]) -> Callable[..., Value]:
    """A truth value as int32 0 or 1."""

    def make(*xs: Value) -> Value:
        return xs[0].k.select(f(*xs), xs[0].k.const(1, "i"), 0)

    return make


def _ext(name: str) -> Callable[[Value], Value]:
    return lambda x: x.k.ext(name, "f", x)


def _or_zero(zero: Value, x: Value) -> Value:
    return x.k.select(zero, x.k.const(0.0, "f"), x)


def _quotient_i(a: Value, b: Value) -> Value:
    k = a.k
    one = b.eq(0) | b.eq(-1)
    q = k.binary("SDiv", a, k.select(one, k.const(1, "i"), b), "i")
    q = k.select(b.eq(-1), k.const(0, "i") - a, q)
    return k.select(b.eq(0), k.const(-1, "i"), q)


def _remainder_i(a: Value, b: Value) -> Value:
    return a.k.select(b.eq(0), a, a - b * _quotient_i(a, b))


def _quotient_u(a: Value, b: Value) -> Value:
    k = a.k
    q = a // k.select(b.eq(0), k.const(1, "u"), b)
    return k.select(b.eq(0), k.const(0xFFFFFFFF, "u"), q)


def _remainder_u(a: Value, b: Value) -> Value:
    k = a.k
    return k.select(b.eq(0), a, a % k.select(b.eq(0), k.const(1, "u"), b))


def _shift_left(a: Value, b: Value) -> Value:
    return a.k.select(b < 32, a << (b & 31), a.k.const(0, "u"))


def _shift_right_u(a: Value, b: Value) -> Value:
    return a.k.select(b < 32, a >> (b & 31), a.k.const(0, "u"))


def _shift_right_i(a: Value, b: Value) -> Value:
    u = b.bits()
    return a >> a.k.select(u < 32, u & 31, a.k.const(31, "u")).bits("i")


def _to_i32(x: Value) -> Value:
    k = x.k
    safe = k.select(absolute(x) < 2.0**31, x, k.const(0.0, "f"))
    r = k.unary("ConvertFToS", safe, "i")
    r = k.select(x >= 2.0**31, k.const(0x7FFFFFFF, "i"), r)
    return k.select(x <= -(2.0**31), k.const(-(2**31), "i"), r)


def _to_u32(x: Value) -> Value:
    k = x.k
    safe = k.select((x >= 0.0) & (x < 2.0**32), x, k.const(0.0, "f"))
    return k.select(x >= 2.0**32, k.const(0xFFFFFFFF, "u"), k.unary("ConvertFToU", safe, "u"))


def _threefry(word: int) -> Callable[..., Value]:
    """Threefry-2x32-20 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011)."""

    def make(k0: Value, k1: Value, x0: Value, x1: Value) -> Value:
        keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
        x0, x1 = x0 + k0, x1 + k1
        for n in range(5):
            for r in ((13, 15, 26, 6), (17, 29, 16, 24))[n % 2]:
                x0 = x0 + x1
                x1 = ((x1 << r) | (x1 >> (32 - r))) ^ x0
            x0, x1 = x0 + keys[(n + 1) % 3], x1 + keys[(n + 2) % 3] + (n + 1)
        return (x0, x1)[word] if word < 2 else x0 ^ x1

    return make


def _leading_zeros(x: Value) -> Value:
    return x.k.const(31, "u") - x.k.ext("FindUMsb", "u", x)


def _pick(mask: str) -> Callable[[Value, Value], Value]:
    return lambda a, b: a.k.select(a.k.compare(mask, a, b), a, b)


def _add(a: Value, b: Value) -> Value:
    return a + b


def _sub(a: Value, b: Value) -> Value:
    return a - b


def _mul(a: Value, b: Value) -> Value:
    return a * b


def _compare(name: str) -> Callable[..., Value]:
    return _bits(lambda a, b: a.k.compare(name, a, b))


def _sign_i(x: Value) -> Value:
    k = x.k
    return k.select(x > 0, k.const(1, "i"), 0) - k.select(x < 0, k.const(1, "i"), 0)


def _entries() -> list[Instruction]:
    """In the order of ``map_ops.h``."""
    out: list[Instruction] = []
    f: Callable[..., Value]

    def one(name: str, sources: str, make: Callable[..., Value], cost: int = 1) -> None:
        out.append(Instruction(name, sources, make, cost))

    one("mov", "u", lambda x: x)
    one("const", "", lambda: None, 0)  # type: ignore[arg-type, return-value]
    for name, f, cost in (("add_f", _add, 1), ("sub_f", _sub, 1), ("mul_f", _mul, 1), ("div_f", divide, 20)):
        one(name, "ff", f, cost)
    one("neg_f", "u", lambda x: x ^ SIGN)
    one("abs_f", "u", lambda x: x & MAGNITUDE)
    one("sign_f", "f", math.sign, 4)
    one("max_f", "ff", math.maximum, 6)
    one("min_f", "ff", math.minimum, 6)
    one("pow_f", "ff", rare.power, 200)
    one("atan2_f", "ff", rare.atan2, 90)
    one("rem_f", "ff", math.remainder, 60)
    for name, f, cost in (
        ("exp", math.exp, 16), ("exp2", math.exp2, 14), ("expm1", math.expm1, 20), ("log", math.log, 24),
        ("log2", math.log2, 26), ("log1p", math.log1p, 30), ("sqrt", sqrt, 20), ("rsqrt", inverse_sqrt, 20),
        ("cbrt", rare.cbrt, 60), ("sin", math.sin, 40), ("cos", math.cos, 40), ("tan", rare.tan, 80),
        ("asin", rare.asin, 60), ("acos", rare.acos, 60), ("atan", rare.atan, 60), ("sinh", rare.sinh, 80),
        ("cosh", rare.cosh, 60), ("tanh", math.tanh, 30), ("asinh", rare.asinh, 150), ("acosh", rare.acosh, 150),
        ("atanh", rare.atanh, 150), ("logistic", math.logistic, 26), ("erf", math.erf, 30), ("erfc", erf.erfc, 100),
        ("erf_inv", erf.erf_inv, 150), ("lgamma", gamma.lgamma, 500), ("digamma", gamma.digamma, 500),
        ("floor", _ext("Floor"), 1), ("ceil", _ext("Ceil"), 1), ("trunc", _ext("Trunc"), 1),
        ("round", _ext("RoundEven"), 1),
    ):  # fmt: skip
        one(name + "_f", "f", f, cost)
    one("isfinite_f", "f", _bits(lambda x: absolute(x) < float("inf")))
    one("isnan_f", "f", _bits(lambda x: x.ne(x)))
    one("nextafter_f", "ff", math.nextafter, 10)
    one("square_f", "f", lambda x: x * x)
    one("recip_f", "f", lambda x: divide(x.k.const(1.0, "f"), x), 20)
    comparisons = (("lt", "LessThan"), ("le", "LessThanEqual"), ("gt", "GreaterThan"), ("ge", "GreaterThanEqual"))
    equal = (("eq", _bits(lambda a, b: a.eq(b))), ("ne", _bits(lambda a, b: a.ne(b))))
    for kind in "fi":
        if kind == "i":
            for name, f in (("add", _add), ("sub", _sub), ("mul", _mul)):
                one(name + "_i", "uu", f)
            one("div_i", "ii", _quotient_i, 25)
            one("rem_i", "ii", _remainder_i, 27)
            one("neg_i", "u", lambda x: x.k.const(0, "u") - x)
            one("abs_i", "u", lambda x: x.k.select(x >= SIGN, x.k.const(0, "u") - x, x))
            one("sign_i", "i", _sign_i)
            one("max_i", "ii", _pick("GreaterThan"))
            one("min_i", "ii", _pick("LessThan"))
        for name, f in equal:
            one(f"{name}_{kind}", kind * 2, f)
        for name, which in comparisons:
            one(f"{name}_{kind}", kind * 2, _compare(which))
    one("div_u", "uu", _quotient_u, 25)
    one("rem_u", "uu", _remainder_u, 27)
    one("max_u", "uu", _pick("GreaterThan"))
    one("min_u", "uu", _pick("LessThan"))
    for name, which in comparisons:
        one(f"{name}_u", "uu", _compare(which))
    one("and", "uu", lambda a, b: a & b)
    one("or", "uu", lambda a, b: a | b)
    one("xor", "uu", lambda a, b: a ^ b)
    one("not", "u", lambda x: ~x)
    one("not_b", "u", _bits(lambda x: x.eq(0)))
    one("shl", "uu", _shift_left)
    one("shr_i", "ii", _shift_right_i)
    one("shr_u", "uu", _shift_right_u)
    one("popcount", "u", lambda x: x.k.unary("BitCount", x, "u"))
    one("clz", "u", _leading_zeros)
    one("select", "uuu", lambda m, a, b: a.k.select(m.ne(0), a, b))
    one("f2i", "f", _to_i32)
    one("f2u", "f", _to_u32)
    one("u2f", "u", lambda x: x.k.unary("ConvertUToF", x, "f"))
    one("i2f", "i", lambda x: x.k.unary("ConvertSToF", x, "f"))
    one("f2b", "u", _bits(lambda x: (x & MAGNITUDE).ne(0)))
    one("i2b", "u", _bits(lambda x: x.ne(0)))
    # a device might leave out its own conversions there and back
    one("round_f16", "f", lambda x: widen_half(f32_to_f16(x)), 20)
    one("round_bf16", "f", lambda x: (f32_to_bf16(x) << 16).bits("f"), 6)
    one("mul_nz_f", "ff", lambda a, b: _or_zero(a.eq(0.0) | b.eq(0.0), a * b))
    one("div_nz_f", "ff", lambda a, b: _or_zero(a.eq(0.0), divide(a, b)), 20)
    one("muladd_f", "fff", lambda a, b, c: a * b + c)
    one("mulsub_f", "fff", lambda a, b, c: a * b - c)
    one("submul_f", "fff", lambda a, b, c: c - a * b)
    one("mulmul_f", "fff", lambda a, b, c: a * b * c)
    one("addadd_f", "fff", lambda a, b, c: a + b + c)
    for n, name in enumerate(("threefry", "threefry1", "threefryx")):
        one(name, "uuuu", _threefry(n), 80)
    return out


INSTRUCTIONS: tuple[Instruction, ...] = tuple(_entries())
NUMBERS: dict[str, int] = {x.name: n for n, x in enumerate(INSTRUCTIONS)}
