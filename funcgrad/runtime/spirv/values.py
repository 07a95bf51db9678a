"""What a kernel computes with: values, variables, and memory of the device or of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from funcgrad.runtime.spirv.kernel import Kernel

__all__ = ["NUMBER", "PHYSICAL", "SIZES", "Memory", "Quads", "Shared", "Value", "Variable"]

PHYSICAL = 5349  # the storage class of memory behind an address
SIZES = {"f": 4, "i": 4, "u": 4, "h": 2, "c": 1, "q": 16}
NUMBER = int | float | bool


class Value:
    """A value in a kernel; operators make more of them.  ``const`` is its number where that is known."""

    __slots__ = ("const", "id", "k", "t")

    def __init__(self, k: Kernel, id: int, t: str, const: Any = None):
        self.k, self.id, self.t, self.const = k, id, t, const

    # arithmetic; for unsigned and signed integers alike it wraps
    def __add__(self, y: Value | NUMBER) -> Value:
        return self.k.arithmetic("Add", self, y)

    def __radd__(self, y: NUMBER) -> Value:
        return self.k.arithmetic("Add", self.k.const(y, self.t), self)

    def __sub__(self, y: Value | NUMBER) -> Value:
        return self.k.arithmetic("Sub", self, y)

    def __rsub__(self, y: NUMBER) -> Value:
        return self.k.arithmetic("Sub", self.k.const(y, self.t), self)

    def __mul__(self, y: Value | NUMBER) -> Value:
        return self.k.arithmetic("Mul", self, y)

    def __rmul__(self, y: NUMBER) -> Value:
        return self.k.arithmetic("Mul", self.k.const(y, self.t), self)

    def __truediv__(self, y: Value | NUMBER) -> Value:
        """The device's own division of floats, which may be off by 2.5 ulp."""
        return self.k.binary("FDiv", self, y, self.t)

    def __floordiv__(self, y: Value | NUMBER) -> Value:
        """Of unsigned integers."""
        return self.k.unsigned("UDiv", self, y)

    def __mod__(self, y: Value | NUMBER) -> Value:
        """Of unsigned integers."""
        return self.k.unsigned("UMod", self, y)

    def __neg__(self) -> Value:
        return self.k.unary("FNegate" if self.t == "f" else "SNegate", self, self.t)

    # bits, or truth values
    def __and__(self, y: Value | NUMBER) -> Value:
        return self.k.binary("LogicalAnd" if self.t == "b" else "BitwiseAnd", self, y, self.t)

    def __or__(self, y: Value | NUMBER) -> Value:
        return self.k.binary("LogicalOr" if self.t == "b" else "BitwiseOr", self, y, self.t)

    def __xor__(self, y: Value | NUMBER) -> Value:
        return self.k.binary("LogicalNotEqual" if self.t == "b" else "BitwiseXor", self, y, self.t)

    def __invert__(self) -> Value:
        return self.k.unary("LogicalNot" if self.t == "b" else "Not", self, self.t)

    def __lshift__(self, y: Value | NUMBER) -> Value:
        return self.k.binary("ShiftLeftLogical", self, y, self.t)

    def __rshift__(self, y: Value | NUMBER) -> Value:
        """Arithmetic for signed, logical for unsigned integers."""
        return self.k.binary("ShiftRightArithmetic" if self.t == "i" else "ShiftRightLogical", self, y, self.t)

    # comparisons: false where an operand is NaN, but for ``ne``
    def __lt__(self, y: Value | NUMBER) -> Value:
        return self.k.compare("LessThan", self, y)

    def __le__(self, y: Value | NUMBER) -> Value:
        return self.k.compare("LessThanEqual", self, y)

    def __gt__(self, y: Value | NUMBER) -> Value:
        return self.k.compare("GreaterThan", self, y)

    def __ge__(self, y: Value | NUMBER) -> Value:
        return self.k.compare("GreaterThanEqual", self, y)

    def eq(self, y: Value | NUMBER) -> Value:
        """Whether both are equal."""
        return self.k.binary({"f": "FOrdEqual", "b": "LogicalEqual"}.get(self.t, "IEqual"), self, y, "b")

    def ne(self, y: Value | NUMBER) -> Value:
        """Whether they differ, or one is NaN."""
        return self.k.binary({"f": "FUnordNotEqual", "b": "LogicalNotEqual"}.get(self.t, "INotEqual"), self, y, "b")

    def bits(self, t: str = "u") -> Value:
        """The same 32 bits as another type."""
        return self.k.bitcast(self, t)


class Variable:
    """A value that can change: a local of one invocation."""

    __slots__ = ("id", "k", "t")

    def __init__(self, k: Kernel, id: int, t: str):
        self.k, self.id, self.t = k, id, t

    def get(self) -> Value:
        """The value now."""
        return Value(self.k, self.k.a.result("Load", self.k.type(self.t), self.id), self.t)

    def set(self, value: Value | NUMBER) -> None:
        """Change it."""
        self.k.a.emit("Store", self.id, self.k.value(value, self.t).id)


class Shared:
    """An array that the invocations of a group share."""

    def __init__(self, k: Kernel, id: int, t: str, pointer: int):
        self.k, self.id, self.t, self.pointer = k, id, t, pointer

    def pointer_to(self, index: Value | int) -> int:
        """The address of an element, as an id."""
        return self.k.a.result("AccessChain", self.pointer, self.id, self.k.value(index, "u").id)

    def load(self, index: Value | int) -> Value:
        """One element."""
        return Value(self.k, self.k.a.result("Load", self.k.type(self.t), self.pointer_to(index)), self.t)

    def store(self, index: Value | int, value: Value | NUMBER) -> None:
        """Write one element."""
        self.k.a.emit("Store", self.pointer_to(index), self.k.value(value, self.t).id)


class Quads:
    """An array of vectors of four that a group shares, so aligned to 16 bytes."""

    def __init__(self, k: Kernel, id: int, t: str, pointers: tuple[int, int]):
        self.k, self.id, self.t, self.pointers = k, id, t, pointers  # the types of pointers to elements, to vectors

    def vector_pointer(self, index: Value) -> int:
        """The address of a vector, as an id."""
        return self.k.a.result("AccessChain", self.pointers[1], self.id, index.id)

    def _element_pointer(self, index: Value) -> int:
        return self.k.a.result("AccessChain", self.pointers[0], self.id, (index >> 2).id, (index & 3).id)

    def store(self, index: Value, x: Value) -> None:
        """Write one element."""
        self.k.a.emit("Store", self._element_pointer(index), x.id)

    def store_vector(self, index: Value, x: Value) -> None:
        """Write a vector; the index counts vectors."""
        self.k.a.emit("Store", self.vector_pointer(index), x.id)

    def load_element(self, index: Value) -> Value:
        """Read one element."""
        return Value(self.k, self.k.a.result("Load", self.k.type(self.t), self._element_pointer(index)), self.t)

    def load(self, index: Value) -> list[Value]:
        """Read a vector; the index counts vectors."""
        k = self.k
        whole = k.a.result("Load", k.a.type("TypeVector", k.type(self.t), 4), self.vector_pointer(index))
        return [k.component(whole, i, self.t) for i in range(4)]


class Memory:
    """An operand: elements of one type from an address on."""

    def __init__(self, k: Kernel, base: int, t: str):
        self.k, self.base, self.t = k, base, t

    def pointer(self, index: Value | int) -> int:
        """The address of an element (a uint32 index), as an id."""
        k = self.k
        kind = k.a.type("TypePointer", PHYSICAL, k.memory_type(self.t))
        return k.a.result("AccessChain", kind, self.base, k.const(0, "u").id, k.value(index, "u").id)

    def load(self, index: Value | int) -> Value:
        """One element; 16 bits and bytes as uint32."""
        k = self.k
        raw = k.a.result("Load", k.memory_type(self.t), self.pointer(index), 2, SIZES[self.t])
        if self.t in "hc":
            return Value(k, k.a.result("UConvert", k.type("u"), raw), "u")
        return Value(k, raw, self.t)

    def store(self, index: Value | int, value: Value | NUMBER) -> None:
        """Write one element; 16 bits and bytes from the low bits of a uint32."""
        k = self.k
        x = k.value(value, "u" if self.t in "hc" else self.t).id
        if self.t in "hc":
            x = k.a.result("UConvert", k.memory_type(self.t), x)
        k.a.emit("Store", self.pointer(index), x, 2, SIZES[self.t])
