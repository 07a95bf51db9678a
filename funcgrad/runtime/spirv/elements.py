"""Elements of every dtype, between memory and registers."""

from __future__ import annotations

from funcgrad.runtime.spirv.kernel import Kernel, Memory, Value

__all__ = ["BF16", "BOOL", "F16", "F32", "I32", "SIZES", "U32", "Elements", "letter", "load", "memory", "store"]

F32, F16, BF16, I32, U32, BOOL = range(6)
SIZES = (4, 2, 2, 4, 4, 1)


def letter(dtype: int) -> str:
    """The type of a dtype's elements in registers: bool as uint32."""
    return {I32: "i", U32: "u", BOOL: "u"}.get(dtype, "f")


class Elements(Memory):
    """Memory whose elements are those of a dtype."""

    dtype: int


def memory(k: Kernel, number: int, dtype: int) -> Elements:
    """The memory of the k-th operand."""
    raw = k.operand(number, {F16: "h", BF16: "h", BOOL: "c"}.get(dtype, letter(dtype)))
    found = Elements(k, raw.base, raw.t)
    found.dtype = dtype
    return found


def load(m: Elements, index: Value) -> Value:
    """An element as float32, or an integer."""
    x = m.load(index)
    if m.dtype == BF16:
        return (x << 16).bits("f")
    return half_to_float(x) if m.dtype == F16 else x


def store(m: Elements, index: Value, x: Value) -> None:
    """Write an element, rounded to its type."""
    m.store(index, rounded(m.dtype, x))


def rounded(dtype: int, x: Value) -> Value:
    """What memory of a dtype gets of a value in a register."""
    if dtype == BF16:
        return float_to_bfloat(x)
    return float_to_half(x) if dtype == F16 else x


def half_to_float(x: Value) -> Value:
    """float16 bits as float32, denormals included."""
    k = x.k
    sign, rest = (x & 0x8000) << 16, x & 0x7FFF
    normal = ((rest << 13) + (112 << 23)).bits("f")
    special = (rest << 13) | 0x7F800000
    small = k.unary("ConvertUToF", rest, "f") * 2.0**-24
    body = k.select(rest < 0x400, small, k.select(rest >= 0x7C00, special.bits("f"), normal))
    return (body.bits() | sign).bits("f")


def float_to_half(x: Value) -> Value:
    """float32 rounded to float16 bits, to nearest even."""
    k = x.k
    u = x.bits()
    sign, a = (u >> 16) & 0x8000, u & 0x7FFFFFFF
    normal = (a + 0xFFF + ((a >> 13) & 1) - (112 << 23)) >> 13
    # Below 2^-14 the sum with 0.5 has the rounded result in its low bits.
    small = (a.bits("f") + 0.5).bits() - 0x3F000000
    body = k.select(a < 0x38800000, small, normal)
    body = k.select(a >= 0x477FF000, k.const(0x7C00, "u"), body)
    body = k.select(a > 0x7F800000, k.const(0x7E00, "u"), body)
    return body | sign


def float_to_bfloat(x: Value) -> Value:
    """float32 rounded to bfloat16 bits, to nearest even."""
    u = x.bits()
    rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16
    return x.k.select((u & 0x7FFFFFFF) > 0x7F800000, (u >> 16) | 0x40, rounded)
