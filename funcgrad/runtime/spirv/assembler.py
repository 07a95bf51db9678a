"""A SPIR-V assembler: types, constants and instructions as words, in the order that a module needs.

The numbers are those of the SPIR-V specification, version 1.6 (Khronos Group), section 3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

__all__ = ["EXT", "OP", "Assembler"]

# fmt: off
OP = {
    "Extension": 10, "ExtInstImport": 11, "ExtInst": 12, "MemoryModel": 14, "EntryPoint": 15, "ExecutionMode": 16,
    "Capability": 17, "TypeVoid": 19, "TypeBool": 20, "TypeInt": 21, "TypeFloat": 22, "TypeVector": 23,
    "TypeArray": 28, "TypeRuntimeArray": 29, "TypeStruct": 30, "TypePointer": 32, "TypeFunction": 33,
    "ConstantTrue": 41, "ConstantFalse": 42, "Constant": 43, "ConstantComposite": 44, "ConstantNull": 46,
    "Function": 54, "FunctionEnd": 56, "Variable": 59, "Load": 61, "Store": 62, "AccessChain": 65,
    "Decorate": 71, "MemberDecorate": 72, "CompositeConstruct": 80, "CompositeExtract": 81,
    "ConvertFToU": 109, "ConvertFToS": 110, "ConvertSToF": 111, "ConvertUToF": 112, "UConvert": 113, "SConvert": 114,
    "FConvert": 115, "Bitcast": 124, "SNegate": 126, "FNegate": 127, "IAdd": 128, "FAdd": 129, "ISub": 130,
    "FSub": 131, "IMul": 132, "FMul": 133, "UDiv": 134, "SDiv": 135, "FDiv": 136, "UMod": 137, "SRem": 138,
    "VectorTimesScalar": 142, "MatrixTimesScalar": 143, "UMulExtended": 151, "SMulExtended": 152,
    "LogicalEqual": 164, "LogicalNotEqual": 165, "LogicalOr": 166, "LogicalAnd": 167, "LogicalNot": 168,
    "Select": 169, "IEqual": 170, "INotEqual": 171, "UGreaterThan": 172, "SGreaterThan": 173,
    "UGreaterThanEqual": 174, "SGreaterThanEqual": 175, "ULessThan": 176, "SLessThan": 177, "ULessThanEqual": 178,
    "SLessThanEqual": 179, "FOrdEqual": 180, "FUnordEqual": 181, "FOrdNotEqual": 182, "FUnordNotEqual": 183,
    "FOrdLessThan": 184, "FOrdGreaterThan": 186, "FOrdLessThanEqual": 188, "FOrdGreaterThanEqual": 190,
    "ShiftRightLogical": 194, "ShiftRightArithmetic": 195, "ShiftLeftLogical": 196, "BitwiseOr": 197,
    "BitwiseXor": 198, "BitwiseAnd": 199, "Not": 200, "BitReverse": 204, "BitCount": 205,
    "ControlBarrier": 224, "MemoryBarrier": 225, "AtomicIAdd": 234, "AtomicCompareExchange": 230, "AtomicExchange": 229,
    "AtomicSMin": 236, "AtomicUMin": 237, "AtomicSMax": 238, "AtomicUMax": 239, "AtomicAnd": 240, "AtomicOr": 241,
    "LoopMerge": 246, "SelectionMerge": 247, "Label": 248, "Branch": 249, "BranchConditional": 250, "Return": 253,
    "GroupNonUniformShuffleXor": 346, "GroupNonUniformIAdd": 349, "GroupNonUniformFAdd": 350,
    "TypeCooperativeMatrixKHR": 4456, "CooperativeMatrixLoadKHR": 4457, "CooperativeMatrixStoreKHR": 4458,
    "CooperativeMatrixMulAddKHR": 4459,
}
EXT = {  # of GLSL.std.450
    "RoundEven": 2, "Trunc": 3, "FAbs": 4, "Floor": 8, "Ceil": 9, "Exp2": 29, "Log2": 30, "Sqrt": 31,
    "InverseSqrt": 32, "Fma": 50, "Ldexp": 53, "PackHalf2x16": 58, "UnpackHalf2x16": 62, "FindUMsb": 75,
}
# fmt: on
MAGIC, VERSION = 0x07230203, 0x00010500


def _string(text: str) -> list[int]:
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % 4)
    return list(struct.unpack(f"<{len(data) // 4}I", data))


class Assembler:
    """Collects the sections of one module with one entry point, ``main``."""

    def __init__(self) -> None:
        self.next_id = 1
        self.capabilities: dict[int, None] = {}
        self.extensions: dict[str, None] = {}
        self.modes: list[list[int]] = []
        self.decorations: list[int] = []
        self.globals: list[int] = []  # types, constants, variables
        self.code: list[int] = []
        self.interface: list[int] = []
        self.vulkan_memory_model = False
        self._known: dict[tuple[int, ...], int] = {}
        self.ext_import = self.id()
        self.main = self.id()

    def id(self) -> int:
        """A new result id."""
        found = self.next_id
        self.next_id = found + 1
        return found

    # -- sections ------------------------------------------------------------------------------------------------
    def capability(self, number: int) -> None:
        """Declare a capability, once."""
        self.capabilities[number] = None

    def extension(self, name: str) -> None:
        """Declare an extension, once."""
        self.extensions[name] = None

    def decorate(self, target: int, decoration: int, *values: int) -> None:
        """Decorate an id."""
        self.decorations += [(3 + len(values)) << 16 | OP["Decorate"], target, decoration, *values]

    def decorate_member(self, target: int, member: int, decoration: int, *values: int) -> None:
        """Decorate a member of a struct."""
        self.decorations += [(4 + len(values)) << 16 | OP["MemberDecorate"], target, member, decoration, *values]

    def type(self, name: str, *operands: int) -> int:
        """A type, declared once for the same operands."""
        key = (OP[name], -1, *operands)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.id()
            self.globals += [(2 + len(operands)) << 16 | OP[name], found, *operands]
        return found

    def constant(self, name: str, type_: int, *operands: int) -> int:
        """A constant, declared once for the same type and words."""
        key = (OP[name], type_, *operands)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.id()
            self.globals += [(3 + len(operands)) << 16 | OP[name], type_, found, *operands]
        return found

    def variable(self, type_: int, storage: int) -> int:
        """A module-scope variable of a pointer type."""
        found = self.id()
        self.globals += [4 << 16 | OP["Variable"], type_, found, storage]
        self.interface.append(found)
        return found

    # -- the function --------------------------------------------------------------------------------------------
    def emit(self, name: str, *operands: int) -> None:
        """An instruction without a result."""
        self.code += [(1 + len(operands)) << 16 | OP[name], *operands]

    def result(self, name: str, type_: int, *operands: int) -> int:
        """An instruction with a result."""
        found = self.id()
        self.code += [(3 + len(operands)) << 16 | OP[name], type_, found, *operands]
        return found

    def words(self, locals_: Sequence[int], label: int) -> bytes:
        """The module; ``locals_`` are the words of the function's variables, ``label`` the id of its first block."""
        void = self.type("TypeVoid")
        function = self.type("TypeFunction", void)
        out = [MAGIC, VERSION, 0, 0, 0]
        for c in self.capabilities:
            out += [2 << 16 | OP["Capability"], c]
        for e in self.extensions:
            s = _string(e)
            out += [(1 + len(s)) << 16 | OP["Extension"], *s]
        s = _string("GLSL.std.450")
        out += [(2 + len(s)) << 16 | OP["ExtInstImport"], self.ext_import, *s]
        out += [3 << 16 | OP["MemoryModel"], 5348, 3 if self.vulkan_memory_model else 1]
        s = _string("main")
        out += [(3 + len(s) + len(self.interface)) << 16 | OP["EntryPoint"], 5, self.main, *s, *self.interface]
        for mode in self.modes:
            out += [(2 + len(mode)) << 16 | OP["ExecutionMode"], self.main, *mode]
        out += self.decorations
        out += self.globals
        out += [5 << 16 | OP["Function"], void, self.main, 0, function]
        out += [2 << 16 | OP["Label"], label, *locals_, *self.code]
        out += [1 << 16 | OP["Return"], 1 << 16 | OP["FunctionEnd"]]
        out[3] = self.next_id
        return struct.pack(f"<{len(out)}I", *out)
