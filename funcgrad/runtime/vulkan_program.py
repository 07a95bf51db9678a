"""Pointwise operations of the Vulkan emitter, composed of ggml's so that special values come out as on the CPU.

ggml's own step, relu, sgn and clamp lose NaN, its tanh loses small numbers, and it has no comparison or selection.
What cannot be composed exactly is Unsupported and runs on the CPU.  The sign of a zero may be lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.runtime.program import Const
from funcgrad.runtime.vulkan_memory import HELD
from funcgrad.runtime.vulkan_tape import EXACT, Tape, Unsupported, Val

__all__ = ["VulkanProgram", "VulkanReg"]

LARGEST = float(np.finfo(np.float32).max)
DIRECT = {"neg": "NEG", "abs": "ABS", "exp": "EXP", "floor": "FLOOR", "ceil": "CEIL", "trunc": "TRUNC",
          "logistic": "SIGMOID", "expm1": "EXPM1"}  # fmt: skip


class VulkanReg:
    """A flat float32 tensor of one element or of all, the dtype that it stands for, and a bound if that is int32."""

    __slots__ = ("bound", "dtype", "tensor")

    def __init__(self, tensor: Any, dtype: Any, bound: int | None = None):
        self.tensor, self.dtype, self.bound = tensor, dtype, bound


class VulkanProgram:
    """The emitter ``g`` that pointwise primitives see: each ``op`` appends ggml nodes for ``size`` elements."""

    def __init__(self, tape: Tape, size: int):
        self.tape, self.size = tape, size

    # -- what primitives call ------------------------------------------------------------------------------------
    def op(self, name: str, *xs: Any) -> Any:
        """Apply an operation of the CPU's instruction set."""
        made: Callable[..., Any] | None = getattr(self, f"op_{name}", None)
        if made is not None:
            return made(*xs)
        if name not in DIRECT or (xs[0].dtype == dtypes.int32 and name not in ("neg", "abs")):
            raise Unsupported(name)
        return VulkanReg(self.tape.unary(DIRECT[name], self.t(xs[0])), xs[0].dtype, bound(xs[0]))

    def const(self, value: Any, dtype: Any) -> Const:
        """A constant of a dtype."""
        return Const(value, dtype)

    def convert(self, x: Any, dtype: Any) -> Any:
        """x in another dtype."""
        if x.dtype == dtype:
            return x
        if x.dtype not in HELD or dtype not in HELD:
            raise Unsupported(f"{x.dtype} to {dtype}")
        if dtype == dtypes.bool_:
            return self.op_ne(x, Const(0, x.dtype))
        if dtype == dtypes.int32 and x.dtype != dtypes.bool_:
            raise Unsupported("float to integer")  # out of range the device and the CPU differ
        return VulkanReg(self.t(x), dtype, 1 if dtype == dtypes.int32 else None)

    def bitcast(self, x: Any, dtype: Any) -> Any:
        """The bits as another dtype: not on this device."""
        raise Unsupported("bitcast")

    # -- operands ------------------------------------------------------------------------------------------------
    def load(self, x: Val) -> Any:
        """A value as a register, or the constant that it is."""
        if x.dtype not in HELD:
            raise Unsupported(f"dtype {x.dtype}")
        if x.const is not None:
            return x.const
        found = self.tape.floats(x)
        return VulkanReg(self.tape.shaped(found.tensor, x.aval.size), x.dtype, x.bound)

    def t(self, x: Any, full: bool = False) -> Any:
        """The tensor of an operand, all its elements if ``full``."""
        t = self.tape.scalar(self.tape.number(x)) if isinstance(x, Const) else x.tensor
        return self.tape.repeat(t, self.size) if full and not self.is_full(t) else t

    def is_full(self, t: Any) -> bool:
        """Whether a tensor has all elements."""
        return int(t.ne[0]) == self.size

    def binary(self, name: str, x: Any, y: Any) -> Any:
        """One of ggml's functions of two operands, the first of which has all elements."""
        a, b = self.t(x), self.t(y)
        if not self.is_full(a) and self.is_full(b):
            if name in ("add", "mul"):
                a, b = b, a
            else:
                a = self.tape.repeat(a, self.size)
        return self.tape.node(name, a, b)

    def affine(self, t: Any, scale: float, bias: float) -> Any:
        """scale * t + bias."""
        return self.tape.node("scale_bias", t, scale, bias)

    # -- arithmetic ----------------------------------------------------------------------------------------------
    def arithmetic(self, name: str, x: Any, y: Any, limit: Callable[[int, int], int]) -> VulkanReg:
        """A sum or product; of integers only where it is known to be exact."""
        most = None
        if x.dtype == dtypes.int32:
            a, b = bound(x), bound(y)
            most = None if a is None or b is None else limit(a, b)
            if most is None or most > EXACT:
                raise Unsupported("integers that may be large")
        elif x.dtype != dtypes.float32:
            raise Unsupported(f"{name} of {x.dtype}")
        return VulkanReg(self.binary(name, x, y), x.dtype, most)

    def op_add(self, x: Any, y: Any) -> Any:
        return self.arithmetic("add", x, y, lambda a, b: a + b)

    def op_sub(self, x: Any, y: Any) -> Any:
        return self.arithmetic("sub", x, y, lambda a, b: a + b)

    def op_mul(self, x: Any, y: Any) -> Any:
        return self.arithmetic("mul", x, y, lambda a, b: a * b)

    def op_div(self, x: Any, y: Any) -> Any:
        if x.dtype != dtypes.float32:
            raise Unsupported("integer division")
        return VulkanReg(self.binary("div", x, y), x.dtype)

    def op_square(self, x: Any) -> Any:
        return self.op_mul(x, x)

    def op_mul_nz(self, x: Any, y: Any) -> Any:
        both = self.op_and(self.op_ne(x, Const(0, x.dtype)), self.op_ne(y, Const(0, y.dtype)))
        return self.op_select(both, self.op_mul(x, y), Const(0, x.dtype))

    def op_div_nz(self, x: Any, y: Any) -> Any:
        return self.op_select(self.op_ne(x, Const(0, x.dtype)), self.op_div(x, y), Const(0, x.dtype))

    def op_mov(self, x: Any) -> Any:
        return x

    def op_sqrt(self, x: Any) -> Any:
        return VulkanReg(self.tape.node("sqrt", self.t(x)), x.dtype)

    def op_rsqrt(self, x: Any) -> Any:
        return self.op_div(Const(1, x.dtype), self.op_sqrt(x))

    def op_log(self, x: Any) -> Any:
        return VulkanReg(self.tape.node("log", self.t(x)), x.dtype)

    def op_tanh(self, x: Any) -> Any:
        """-sign(x) e / (e + 2) with e = expm1(-2 |x|), which neither overflows nor cancels."""
        tape, t = self.tape, self.t(x)
        e = tape.unary("EXPM1", self.affine(tape.unary("ABS", t), -2.0, 0.0))
        size = tape.node("div", e, self.affine(e, 1.0, 2.0))
        return VulkanReg(tape.node("mul", size, tape.unary("SGN", tape.unary("NEG", t))), x.dtype)

    def op_sign(self, x: Any) -> Any:
        if x.dtype == dtypes.int32:
            return VulkanReg(self.tape.unary("SGN", self.t(x)), x.dtype, 1)
        return VulkanReg(self.with_nan(self.tape.unary("SGN", self.t(x)), self.ordered(x)), x.dtype)

    def op_max(self, x: Any, y: Any) -> Any:
        """By a pool over pairs, which starts at the lowest finite number and passes over NaN: both are mended."""
        self.same_kind(x, y)
        tape, n = self.tape, self.size
        most = None if bound(x) is None or bound(y) is None else max(bound(x) or 0, bound(y) or 0)
        if x.dtype == dtypes.int32 and most is None:
            raise Unsupported("integers that may be large")
        for a, b in ((x, y), (y, x)):
            if isinstance(b, Const) and float(b.value) == 0.0 and not isinstance(a, Const):
                return VulkanReg(self.with_nan(tape.unary("RELU", self.t(a)), self.ordered(a)), x.dtype, most)
        pair = [tape.shaped(self.t(v, full=True), 1, n) for v in (x, y)]
        both = tape.node("concat", pair[0], pair[1], 0)
        top = tape.shaped(tape.node("pool_1d", both, tape.lib.GGML_OP_POOL_MAX, 2, 2, 0), n)
        if x.dtype == dtypes.float32:
            if not any(isinstance(v, Const) and math.isfinite(float(v.value)) for v in (x, y)):
                over = [tape.unary("STEP", self.affine(self.t(v), 0.5, LARGEST)) for v in (x, y)]
                some = tape.unary("STEP", self.binary("add", *[VulkanReg(o, x.dtype) for o in over]))
                top = self.binary("add", VulkanReg(top, x.dtype), VulkanReg(tape.node("log", some), x.dtype))
            top = self.with_nan(top, self.ordered(x, y))
        return VulkanReg(top, x.dtype, most)

    def op_min(self, x: Any, y: Any) -> Any:
        return self.op("neg", self.op_max(self.negated(x), self.negated(y)))

    def negated(self, x: Any) -> Any:
        return Const(-x.value, x.dtype) if isinstance(x, Const) else self.op("neg", x)

    # -- special values ------------------------------------------------------------------------------------------
    def ordered(self, *xs: Any) -> Any:
        """A tensor of 1 where no operand is NaN and 0 elsewhere; None when that is known."""
        total = None
        for x in xs:
            if isinstance(x, Const):
                if math.isnan(float(x.value)):
                    return self.tape.scalar(0.0)
            elif x.dtype == dtypes.float32:
                square = self.tape.node("sqr", x.tensor)
                total = (
                    square
                    if total is None
                    else self.binary("add", VulkanReg(total, x.dtype), VulkanReg(square, x.dtype))
                )
        return None if total is None else self.tape.unary("STEP", self.affine(total, 1.0, 1.0))

    def with_nan(self, t: Any, ordered: Any) -> Any:
        """t, NaN where ``ordered`` is 0: plus 0 / ordered."""
        if ordered is None:
            return t
        gap = self.tape.node("div", self.affine(ordered, 0.0, 0.0), ordered)
        return self.binary("add", VulkanReg(t, dtypes.float32), VulkanReg(gap, dtypes.float32))

    def finite(self, t: Any) -> Any:
        """1 where t is finite: half its size is below the largest number."""
        return self.tape.unary("STEP", self.affine(self.tape.unary("ABS", t), -0.5, LARGEST))

    def op_isfinite(self, x: Any) -> Any:
        return VulkanReg(self.finite(self.t(x)), dtypes.bool_)

    def op_isnan(self, x: Any) -> Any:
        ordered = self.ordered(x)
        return VulkanReg(self.affine(ordered, -1.0, 1.0), dtypes.bool_)

    def op_select(self, mask: Any, x: Any, y: Any) -> Any:
        """mask * x + (1 - mask) * y over finite stand-ins, then the infinities and NaN of what was selected."""
        if x.dtype == dtypes.int32 and (bound(x) is None or bound(y) is None):
            raise Unsupported("integers that may be large")
        m = self.t(mask)
        no = self.affine(m, -1.0, 1.0)
        a, b = self.selected(m, x), self.selected(no, y)
        most = max(bound(x) or 0, bound(y) or 0) if x.dtype == dtypes.int32 else None
        if a is None or b is None:
            t = a if a is not None else b if b is not None else self.affine(m, 0.0, 0.0)
            return VulkanReg(t, x.dtype, most)
        return VulkanReg(self.binary("add", VulkanReg(a, x.dtype), VulkanReg(b, x.dtype)), x.dtype, most)

    def selected(self, mask: Any, x: Any) -> Any:
        """x where mask is 1 and 0 elsewhere; None for zero everywhere."""
        f = dtypes.float32
        if isinstance(x, Const) and math.isfinite(float(x.value)):
            value = self.tape.number(x)
            return None if value == 0 else self.affine(mask, value, 0.0)
        if x.dtype != f:
            return self.binary("mul", VulkanReg(mask, f), x)
        tape, t = self.tape, self.t(x)
        rest = tape.node("sub", tape.unary("RELU", t), tape.unary("RELU", tape.unary("NEG", t)))  # NaN becomes 0
        finite = tape.node("clamp", rest, -LARGEST, LARGEST)
        kept = self.binary("mul", VulkanReg(mask, f), VulkanReg(finite, f))
        odd = self.affine(self.finite(t), -1.0, 1.0)
        gate = self.binary("mul", VulkanReg(mask, f), VulkanReg(odd, f))
        sign = self.binary("mul", VulkanReg(gate, f), VulkanReg(tape.unary("SGN", t), f))
        # sign / (1 - gate): 0 where the gate is shut, else an infinity, or NaN as 0 / 0.
        return tape.node("add", kept, tape.node("div", sign, self.affine(gate, -1.0, 1.0)))

    # -- comparisons ---------------------------------------------------------------------------------------------
    def same_kind(self, x: Any, y: Any) -> None:
        """Integers compare as float32 if one of them is small: rounding the other keeps the order."""
        if x.dtype not in HELD or (x.dtype == dtypes.int32 and bound(x) is None and bound(y) is None):
            raise Unsupported(f"comparison of {x.dtype}")

    def less(self, x: Any, y: Any) -> Any:
        self.same_kind(x, y)
        return self.tape.unary("STEP", self.binary("sub", y, x))

    def op_lt(self, x: Any, y: Any) -> Any:
        return VulkanReg(self.less(x, y), dtypes.bool_)

    def op_gt(self, x: Any, y: Any) -> Any:
        return VulkanReg(self.less(y, x), dtypes.bool_)

    def op_le(self, x: Any, y: Any) -> Any:
        return self.unless(self.less(y, x), x, y)

    def op_ge(self, x: Any, y: Any) -> Any:
        return self.unless(self.less(x, y), x, y)

    def op_eq(self, x: Any, y: Any) -> Any:
        return self.unless(self.apart(x, y), x, y)

    def op_ne(self, x: Any, y: Any) -> Any:
        return self.op_not(self.op_eq(x, y))

    def apart(self, x: Any, y: Any) -> Any:
        """1 where the difference is not 0; equal infinities have none."""
        self.same_kind(x, y)
        return self.tape.unary("STEP", self.tape.unary("ABS", self.binary("sub", x, y)))

    def unless(self, t: Any, x: Any, y: Any) -> VulkanReg:
        """1 - t, 0 where an operand is NaN."""
        flipped = self.affine(t, -1.0, 1.0)
        ordered = self.ordered(x, y)
        if ordered is not None:
            flipped = self.binary("mul", VulkanReg(flipped, dtypes.bool_), VulkanReg(ordered, dtypes.bool_))
        return VulkanReg(flipped, dtypes.bool_)

    # -- truth values --------------------------------------------------------------------------------------------
    def truth(self, *xs: Any) -> None:
        if any(x.dtype != dtypes.bool_ for x in xs):
            raise Unsupported("bits of integers")

    def op_and(self, x: Any, y: Any) -> Any:
        self.truth(x, y)
        return VulkanReg(self.binary("mul", x, y), dtypes.bool_)

    def op_or(self, x: Any, y: Any) -> Any:
        self.truth(x, y)
        return VulkanReg(self.tape.unary("STEP", self.binary("add", x, y)), dtypes.bool_)

    def op_xor(self, x: Any, y: Any) -> Any:
        self.truth(x, y)
        return VulkanReg(self.tape.unary("ABS", self.binary("sub", x, y)), dtypes.bool_)

    def op_not(self, x: Any) -> Any:
        self.truth(x)
        return VulkanReg(self.affine(self.t(x), -1.0, 1.0), dtypes.bool_)


def bound(x: Any) -> int | None:
    """How large an operand of int32 may be, or None."""
    if isinstance(x, Const):
        return abs(int(x.value)) if x.dtype == dtypes.int32 and abs(int(x.value)) <= EXACT else None
    found: int | None = x.bound
    return found
