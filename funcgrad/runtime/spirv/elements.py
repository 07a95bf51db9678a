"""Elements of every dtype, between memory and registers."""

from __future__ import annotations

from funcgrad.runtime.spirv.instructions import (
    BF16,
    BOOL,
    F16,
    F32,
    I32,
    SIZES,
    U32,
    f16_to_f32,
    f32_to_bf16,
    f32_to_f16,
)
from funcgrad.runtime.spirv.kernel import Kernel, Memory, Value

__all__ = [
    "BF16",
    "BOOL",
    "F16",
    "F32",
    "I32",
    "SIZES",
    "U32",
    "Elements",
    "letter",
    "load",
    "memory",
    "rounded",
    "store",
    "widened",
]


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
    return widened(m.dtype, m.load(index))


def widened(dtype: int, x: Value) -> Value:
    """What is in memory of a dtype, in a register."""
    if dtype == BF16:
        return (x << 16).bits("f")
    return f16_to_f32(x) if dtype == F16 else x


def store(m: Elements, index: Value, x: Value) -> None:
    """Write an element, rounded to its type."""
    m.store(index, rounded(m.dtype, x))


def rounded(dtype: int, x: Value) -> Value:
    """What memory of a dtype gets of a value in a register."""
    if dtype == BF16:
        return f32_to_bf16(x)
    return f32_to_f16(x) if dtype == F16 else x
