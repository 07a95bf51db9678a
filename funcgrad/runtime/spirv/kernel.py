"""One compute kernel, written as Python expressions over :class:`Value`.

A kernel gets, as its push constant, the address of a table of 64-bit addresses: one for each operand.  ``operand(k,
type)`` is the memory at the k-th of them.  Values are typed by a letter: f float32, i int32, u uint32, b truth value;
memory also has h (16 bits, as uint32 in registers), c (a byte, as uint32), and q (a vector of four float32).  Sums and
products of floats are never contracted; ``fma`` is one rounding where the device has it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from funcgrad.runtime.spirv.assembler import EXT, Assembler
from funcgrad.runtime.spirv.values import NUMBER, PHYSICAL, SIZES, Memory, Quads, Shared, Value, Variable

__all__ = ["Dispatch", "Kernel", "Memory", "Quads", "Shared", "Target", "Value", "Variable", "spread_groups"]

UNIFORM_PUSH, FUNCTION, WORKGROUP, INPUT = 9, 7, 4, 1


class Target(NamedTuple):
    """What kernels need to know of a device."""

    subgroup: int = 32
    most_invocations: int = 1024
    shared_bytes: int = 32768
    most_groups: tuple[int, int, int] = (65535, 65535, 65535)
    denorm: bool = True  # float32 denormals can be kept
    special: bool = True  # signed zeros, infinities and NaN can be kept
    subgroup_arithmetic: bool = True
    cooperative: bool = False  # matrices of 16x16x16 in float16 with float32 sums
    software: bool = False
    fused: bool = True  # Fma rounds once
    exact: bool = False  # division and square root are correctly rounded
    halves: bool = False  # the conversions from and to float16 keep denormals and round to even


class Dispatch(NamedTuple):
    """One launch of a kernel: its module, its groups, and where its operands are.

    ``table`` has (slot, byte offset) for each address that the kernel reads; slot ``~i`` is the node's i-th scratch.
    """

    code: bytes
    groups: tuple[int, int, int]
    table: tuple[tuple[int, int], ...]
    subgroup: int = 0  # the size that the kernel relies on, 0 for any


class Kernel:
    """Builds one module.  Groups have ``local`` invocations."""

    def __init__(self, target: Target, local: tuple[int, int, int] = (256, 1, 1)):
        self.target, self.local = target, local
        self.a = a = Assembler()
        for c in (1, 5347):  # Shader, PhysicalStorageBufferAddresses
            a.capability(c)
        a.modes.append([17, *local])
        if target.denorm:
            a.capability(4464)
            a.modes.append([4459, 32])
        if target.special:
            a.capability(4466)
            a.modes.append([4461, 32])
        self._inputs: dict[int, int] = {}
        self._locals: list[int] = []
        self._label = a.id()
        self._table: int | None = None
        self._memories: dict[tuple[int, str], Memory] = {}

    # -- types and constants -------------------------------------------------------------------------------------
    def type(self, t: str) -> int:
        """The id of a type in registers."""
        a = self.a
        if t == "f":
            return a.type("TypeFloat", 32)
        if t == "b":
            return a.type("TypeBool")
        if t == "q":
            return a.type("TypeVector", a.type("TypeFloat", 32), 4)
        return a.type("TypeInt", 32, int(t == "i"))

    def memory_type(self, t: str) -> int:
        """The id of a type in memory."""
        a = self.a
        if t == "h":
            a.capability(22)
            a.capability(4433)
            return a.type("TypeInt", 16, 0)
        if t == "c":
            a.capability(39)
            a.capability(4448)
            return a.type("TypeInt", 8, 0)
        return self.type(t)

    def const(self, x: Any, t: str) -> Value:
        """A constant."""
        a, kind = self.a, self.type(t)
        if t == "b":
            return Value(self, a.constant("ConstantTrue" if x else "ConstantFalse", kind), t, bool(x))
        if t == "f":
            try:
                word = struct.unpack("<I", struct.pack("<f", x))[0]
            except OverflowError:
                word = 0x7F800000 if x > 0 else 0xFF800000
            return Value(self, a.constant("Constant", kind, word), t, float(x))
        word = int(x) & 0xFFFFFFFF
        if t == "i" and word >= 1 << 31:
            return Value(self, a.constant("Constant", kind, word), t, word - (1 << 32))
        return Value(self, a.constant("Constant", kind, word), t, word)

    def bits_const(self, word: int, t: str) -> Value:
        """The constant of type t with these 32 bits."""
        value = Value(self, self.a.constant("Constant", self.type(t), word & 0xFFFFFFFF), t)
        if t != "f":
            value.const = self.const(word, t).const
        return value

    def value(self, x: Value | NUMBER, t: str) -> Value:
        """x itself, or the constant of type t that it is."""
        if isinstance(x, Value):
            if x.t == t:
                return x
            if x.t in "iu" and t in "iu":
                return self.bitcast(x, t)
            raise AssertionError(f"a value of type {t} is required, got {x.t}")
        return self.const(x, t)

    # -- instructions --------------------------------------------------------------------------------------------
    def unary(self, name: str, x: Value, t: str) -> Value:
        """An instruction of one operand."""
        return Value(self, self.a.result(name, self.type(t), x.id), t)

    def binary(self, name: str, x: Value, y: Value | NUMBER, t: str) -> Value:
        """An instruction of two operands of one type."""
        return Value(self, self.a.result(name, self.type(t), x.id, self.value(y, x.t).id), t)

    def arithmetic(self, name: str, x: Value, y: Value | NUMBER) -> Value:
        """A sum, difference or product; of integers it is folded where it can be."""
        y = self.value(y, x.t)
        if x.t != "f":
            folded = self._fold(name, x, y)
            if folded is not None:
                return folded
        out = self.binary(("F" if x.t == "f" else "I") + name, x, y, x.t)
        if x.t == "f":
            self.a.decorate(out.id, 42)  # NoContraction
        return out

    def _fold(self, name: str, x: Value, y: Value) -> Value | None:
        a: Any = x.const
        b: Any = y.const
        if a is not None and b is not None:
            return self.const(a + b if name == "Add" else a - b if name == "Sub" else a * b, x.t)
        if b == 0 and name in ("Add", "Sub"):
            return x
        if a == 0 and name == "Add":
            return y
        if name == "Mul" and (a == 0 or b == 0):
            return self.const(0, x.t)
        if name == "Mul" and (a == 1 or b == 1):
            return y if a == 1 else x
        if name == "Mul" and b is not None and b > 0 and b & (b - 1) == 0:
            return x << (int(b).bit_length() - 1)
        return None

    def unsigned(self, name: str, x: Value, y: Value | NUMBER) -> Value:
        """A quotient or remainder of unsigned integers."""
        y = self.value(y, x.t)
        if y.const == 1:
            return x if name == "UDiv" else self.const(0, x.t)
        if x.const is not None and y.const:
            return self.const(x.const // y.const if name == "UDiv" else x.const % y.const, x.t)
        if y.const is not None and y.const & (y.const - 1) == 0:
            return x >> (int(y.const).bit_length() - 1) if name == "UDiv" else x & (int(y.const) - 1)
        return self.binary(name, x, y, x.t)

    def compare(self, name: str, x: Value, y: Value | NUMBER) -> Value:
        """An ordered comparison."""
        return self.binary({"f": "FOrd", "i": "S", "u": "U"}[x.t] + name, x, y, "b")

    def select(self, mask: Value, x: Value | NUMBER, y: Value | NUMBER) -> Value:
        """x where mask is true, else y; one of them is a Value."""
        t = x.t if isinstance(x, Value) else y.t  # type: ignore[union-attr]
        ids = [mask.id, self.value(x, t).id, self.value(y, t).id]
        return Value(self, self.a.result("Select", self.type(t), *ids), t)

    def bitcast(self, x: Value, t: str) -> Value:
        """The same bits as another type of 32 bits."""
        if x.t == t:
            return x
        if x.const is not None and x.t != "f" and t != "f":
            return self.const(x.const, t)
        return self.unary("Bitcast", x, t)

    def ext(self, name: str, t: str, *xs: Value) -> Value:
        """An instruction of GLSL.std.450."""
        ids = [x.id for x in xs]
        return Value(self, self.a.result("ExtInst", self.type(t), self.a.ext_import, EXT[name], *ids), t)

    def fma(self, x: Value, y: Value | NUMBER, z: Value | NUMBER) -> Value:
        """x * y + z, rounded once where the device can."""
        out = self.ext("Fma", "f", x, self.value(y, "f"), self.value(z, "f"))
        self.a.decorate(out.id, 42)
        return out

    def multiply_wide(self, x: Value, y: Value) -> tuple[Value, Value]:
        """The low and the high half of the product of two uint32."""
        pair = self.a.type("TypeStruct", self.type("u"), self.type("u"))
        both = self.a.result("UMulExtended", pair, x.id, y.id)
        return self.component(both, 0, "u"), self.component(both, 1, "u")

    def component(self, whole: int, number: int, t: str) -> Value:
        """A component, of type t, of a vector or a structure."""
        return Value(self, self.a.result("CompositeExtract", self.type(t), whole, number), t)

    def unpack_half(self, x: Value) -> Value:
        """The float32 of the float16 in the low bits of a uint32, by the device's conversion."""
        pair = self.a.type("TypeVector", self.type("f"), 2)
        both = self.a.result("ExtInst", pair, self.a.ext_import, EXT["UnpackHalf2x16"], x.id)
        return self.component(both, 0, "f")

    def pack_half(self, x: Value) -> Value:
        """The float16 of a float32, in the low bits of a uint32, by the device's conversion."""
        pair = self.a.type("TypeVector", self.type("f"), 2)
        both = self.a.result("CompositeConstruct", pair, x.id, self.const(0.0, "f").id)
        return self.ext("PackHalf2x16", "u", Value(self, both, "f"))

    # -- where an invocation is ----------------------------------------------------------------------------------
    def _input(self, builtin: int, component: int) -> Value:
        a, vector = self.a, self.a.type("TypeVector", self.type("u"), 3)
        if builtin not in self._inputs:
            self._inputs[builtin] = a.variable(a.type("TypePointer", INPUT, vector), INPUT)
            a.decorate(self._inputs[builtin], 11, builtin)
        whole = a.result("Load", vector, self._inputs[builtin])
        return self.component(whole, component, "u")

    def group(self, axis: int = 0) -> Value:
        """The number of this group along an axis."""
        return self._input(26, axis)

    def thread(self, axis: int = 0) -> Value:
        """The number of this invocation in its group along an axis."""
        return self._input(27, axis)

    # -- memory --------------------------------------------------------------------------------------------------
    def operand(self, k: int, t: str) -> Memory:
        """The memory of the k-th address of the table; call it before any branch."""
        found = self._memories.get((k, t))
        if found is None:
            a, block = self.a, self._block(t)
            address = self.address_pair(k)
            base = a.result("Bitcast", a.type("TypePointer", PHYSICAL, block), address)
            found = self._memories[k, t] = Memory(self, base, t)
        return found

    def _block(self, t: str) -> int:
        """A struct of a run-time array."""
        a = self.a
        kind, key = self.memory_type(t), (-2, ord(t))
        if key not in a._known:
            array = a.type("TypeRuntimeArray", kind)
            a.decorate(array, 6, SIZES[t])
            a._known[key] = block = a.type("TypeStruct", array)
            a.decorate(block, 2)
            a.decorate_member(block, 0, 35, 0)
        return a._known[key]

    def address_pair(self, k: int) -> int:
        """The k-th address as two uint32."""
        a, pair = self.a, self.a.type("TypeVector", self.type("u"), 2)
        if self._table is None:
            array = a.type("TypeRuntimeArray", pair)
            a.decorate(array, 6, 8)
            table = a.type("TypeStruct", array)
            a.decorate(table, 2)
            a.decorate_member(table, 0, 35, 0)
            pointer = a.type("TypePointer", PHYSICAL, table)
            push = a.type("TypeStruct", pointer)
            a.decorate(push, 2)
            a.decorate_member(push, 0, 35, 0)
            variable = a.variable(a.type("TypePointer", UNIFORM_PUSH, push), UNIFORM_PUSH)
            where = a.result(
                "AccessChain", a.type("TypePointer", UNIFORM_PUSH, pointer), variable, self.const(0, "u").id
            )
            self._table = a.result("Load", pointer, where)
        ids = [self.const(n, "u").id for n in (0, k)]
        at = a.result("AccessChain", a.type("TypePointer", PHYSICAL, pair), self._table, *ids)
        return a.result("Load", pair, at, 2, 8)

    def variable(self, value: Value | NUMBER, t: str | None = None) -> Variable:
        """A new local with a first value."""
        kind = value.t if isinstance(value, Value) else t
        assert kind is not None
        out = Variable(self, self.allocate(self.type(kind)), kind)
        out.set(value)
        return out

    def allocate(self, kind: int) -> int:
        """A new local of a type, as an id."""
        pointer, found = self.a.type("TypePointer", FUNCTION, kind), self.a.id()
        self._locals += [4 << 16 | 59, pointer, found, FUNCTION]
        return found

    def shared(self, t: str, count: int) -> Shared:
        """An array shared by the group."""
        a = self.a
        array = a.type("TypeArray", self.type(t), self.const(count, "u").id)
        found = a.variable(a.type("TypePointer", WORKGROUP, array), WORKGROUP)
        return Shared(self, found, t, a.type("TypePointer", WORKGROUP, self.type(t)))

    def quads(self, t: str, count: int) -> Quads:
        """An array of vectors of four, shared by the group."""
        a, vector = self.a, self.a.type("TypeVector", self.type(t), 4)
        array = a.type("TypeArray", vector, self.const(count, "u").id)
        found = a.variable(a.type("TypePointer", WORKGROUP, array), WORKGROUP)
        kinds = a.type("TypePointer", WORKGROUP, self.type(t)), a.type("TypePointer", WORKGROUP, vector)
        return Quads(self, found, t, kinds)

    def barrier(self) -> None:
        """Wait for all invocations of the group; what they wrote to shared arrays is seen."""
        ids = [self.const(n, "u").id for n in (2, 2, 0x108)]  # workgroup scope, acquire-release of workgroup memory
        self.a.emit("ControlBarrier", *ids)

    # -- subgroups -----------------------------------------------------------------------------------------------
    def shuffle_xor(self, x: Value, mask: int) -> Value:
        """The value of the invocation whose number in the subgroup differs in the bits of ``mask``."""
        self.a.capability(61)
        self.a.capability(65)
        scope = self.const(3, "u").id
        made = self.a.result("GroupNonUniformShuffleXor", self.type(x.t), scope, x.id, self.const(mask, "u").id)
        return Value(self, made, x.t)

    # -- control flow --------------------------------------------------------------------------------------------
    def _start(self, label: int) -> None:
        self.a.emit("Label", label)

    @contextmanager
    def if_(self, mask: Value, rare: bool = False) -> Iterator[None]:
        """What follows runs where ``mask`` is true; ``rare`` asks for a real branch."""
        a = self.a
        inside, behind = a.id(), a.id()
        a.emit("SelectionMerge", behind, 2 if rare else 0)
        a.emit("BranchConditional", mask.id, inside, behind)
        self._start(inside)
        yield
        a.emit("Branch", behind)
        self._start(behind)

    @contextmanager
    def loop(
        self, stop: Value | int, start: Value | int = 0, step: Value | int = 1, unroll: bool | None = None
    ) -> Iterator[Value]:
        """For i (uint32) from ``start`` below ``stop``; ``unroll`` asks the compiler to unroll it, or not to."""
        counter = self.variable(self.value(start, "u"))
        limit, step = self.value(stop, "u"), self.value(step, "u")
        a = self.a
        header, test, body, next_, behind = (a.id() for _ in range(5))
        a.emit("Branch", header)
        self._start(header)
        a.emit("LoopMerge", behind, next_, {None: 0, True: 1, False: 2}[unroll])
        a.emit("Branch", test)
        self._start(test)
        i = counter.get()
        a.emit("BranchConditional", (i < limit).id, body, behind)
        self._start(body)
        yield i
        a.emit("Branch", next_)
        self._start(next_)
        counter.set(i + step)
        a.emit("Branch", header)
        self._start(behind)

    @contextmanager
    def while_(self, condition: Any) -> Iterator[None]:
        """While ``condition()``, a function that makes a truth value, holds."""
        a = self.a
        header, test, body, next_, behind = (a.id() for _ in range(5))
        a.emit("Branch", header)
        self._start(header)
        a.emit("LoopMerge", behind, next_, 0)
        a.emit("Branch", test)
        self._start(test)
        a.emit("BranchConditional", condition().id, body, behind)
        self._start(body)
        yield
        a.emit("Branch", next_)
        self._start(next_)
        a.emit("Branch", header)
        self._start(behind)

    def repeat(self, condition: Callable[[], Value], body: Callable[[], None]) -> None:
        """Run what ``body`` makes while ``condition()`` holds."""
        with self.while_(condition):
            body()

    # -- the end -------------------------------------------------------------------------------------------------
    def code(self) -> bytes:
        """The finished module."""
        return self.a.words(self._locals, self._label)


def spread_groups(count: int, target: Target) -> tuple[int, int, int]:
    """Groups for ``count`` of them along x, or x and y where one axis is too short; a kernel checks its bounds."""
    most = min(target.most_groups[0], 65535 * 256)
    if count <= most:
        return count, 1, 1
    rows = math.ceil(count / most)
    return math.ceil(count / rows), rows, 1
