"""A stand-in for the kernel builder that computes with numpy at once, so that the functions of kernels can be tested
without a device, as on one whose division and square root are a few ulp off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from funcgrad.runtime.spirv.kernel import Kernel, Target, Value

TYPES: dict[str, Any] = {"f": np.float32, "i": np.int32, "u": np.uint32, "b": np.bool_}
BINARY: dict[str, Any] = {
    "FAdd": np.add, "FSub": np.subtract, "FMul": np.multiply, "IAdd": np.add, "ISub": np.subtract, "IMul": np.multiply,
    "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
    "LogicalAnd": np.logical_and, "LogicalOr": np.logical_or, "LogicalNotEqual": np.not_equal,
    "LogicalEqual": np.equal, "FOrdEqual": np.equal, "IEqual": np.equal, "INotEqual": np.not_equal,
    "FUnordNotEqual": np.not_equal,
    "UMod": lambda a, b: a % np.maximum(b, 1), "UDiv": lambda a, b: a // np.maximum(b, 1),
}  # fmt: skip
for _prefix in ("FOrd", "S", "U"):
    BINARY[_prefix + "LessThan"], BINARY[_prefix + "LessThanEqual"] = np.less, np.less_equal
    BINARY[_prefix + "GreaterThan"], BINARY[_prefix + "GreaterThanEqual"] = np.greater, np.greater_equal


PLAIN = Target()


class EagerVariable:
    def __init__(self, k: Eager, value: Any, t: str) -> None:
        self.k, self.x, self.t = k, value, t

    def get(self) -> Value:
        return self.k.made(self.x, self.t)

    def set(self, value: Any) -> None:
        new = self.k.value(value, self.t).id
        for mask in self.k.masks:
            new = np.where(mask, new, self.x)
        self.x = new


class Eager(Kernel):
    """Values hold arrays in place of ids; ``off`` perturbs what a device may round wrongly, in ulp."""

    def __init__(self, target: Target = PLAIN, off: int = 2) -> None:
        self.target, self.off, self.masks = target, off, []
        self.rng = np.random.default_rng(0)

    def made(self, x: Any, t: str) -> Value:
        return Value(self, np.asarray(x).astype(TYPES[t], copy=False), t)

    def type(self, t: str) -> Any:
        return t

    def const(self, x: Any, t: str) -> Value:
        if t in "iu":
            x = np.uint32(int(x) & 0xFFFFFFFF).astype(TYPES[t])
        return Value(self, TYPES[t](x), t, x if t != "i" else int(x))

    def bits_const(self, word: int, t: str) -> Value:
        return Value(self, np.uint32(word & 0xFFFFFFFF).view(TYPES[t]), t)

    def _near(self, x: Any) -> Any:
        step = self.rng.integers(-self.off, self.off + 1, np.shape(x)).astype(np.int32)
        x = np.asarray(x, np.float32)
        safe = np.isfinite(x) & (np.abs(x) > 1e-37) & (np.abs(x) < 1e38)
        return np.where(safe, (x.view(np.int32) + step).view(np.float32), x)

    def unary(self, name: str, x: Value, t: str) -> Value:
        v = x.id
        if name == "Bitcast":
            return self.made(np.asarray(v).view(TYPES[t]), t)
        if name == "FNegate":
            return self.made((np.asarray(v).view(np.uint32) ^ np.uint32(1 << 31)).view(np.float32), t)
        if name in ("ConvertFToS", "ConvertFToU"):
            return self.made(np.asarray(v, np.float64).astype(np.int64), t)
        if name == "BitCount":
            bits = np.unpackbits(np.asarray(v)[..., None].view(np.uint8), axis=-1)
            return self.made(bits.sum(-1), t)
        f = {"Not": np.invert, "LogicalNot": np.logical_not, "SNegate": np.negative}.get(name, np.asarray)
        return self.made(f(v), t)

    def binary(self, name: str, x: Value, y: Any, t: str) -> Value:
        y = self.value(y, x.t)
        a, b = x.id, y.id
        with np.errstate(all="ignore"):
            if name == "FDiv":
                exact = np.divide(a, b)
                return self.made(exact if self.target.exact else self._near(exact), t)
            if name.startswith("Shift"):
                assert np.all(np.asarray(b).astype(np.uint32) < 32), "a shift by 32 or more has no meaning"
                f = np.left_shift if name == "ShiftLeftLogical" else np.right_shift
                a = np.asarray(a).view(np.uint32) if name == "ShiftRightLogical" else np.asarray(a)
                return self.made(f(a, np.asarray(b).astype(a.dtype)), t)
            if name == "SDiv":
                return self.made(np.trunc(a.astype(np.float64) / b), t)
            return self.made(BINARY[name](a, b), t)

    def arithmetic(self, name: str, x: Value, y: Any) -> Value:
        return self.binary(("F" if x.t == "f" else "I") + name, x, y, x.t)

    def unsigned(self, name: str, x: Value, y: Any) -> Value:
        return self.binary(name, x, y, x.t)

    def bitcast(self, x: Value, t: str) -> Value:
        return x if x.t == t else self.unary("Bitcast", x, t)

    def select(self, mask: Value, x: Any, y: Any) -> Value:
        t = x.t if isinstance(x, Value) else y.t
        return self.made(np.where(mask.id, self.value(x, t).id, self.value(y, t).id), t)

    def ext(self, name: str, t: str, *xs: Value) -> Value:
        with np.errstate(all="ignore"):
            if name == "Sqrt":
                return self.made(np.sqrt(xs[0].id), t)
            if name == "InverseSqrt":
                return self.made(self._near((1 / np.sqrt(xs[0].id.astype(np.float64))).astype(np.float32)), t)
            if name == "FindUMsb":
                return self.made(np.where(xs[0].id == 0, -1, np.frexp(xs[0].id.astype(np.float64))[1] - 1), t)
            f = {"RoundEven": np.rint, "Floor": np.floor, "Ceil": np.ceil, "Trunc": np.trunc, "FAbs": np.abs}[name]
            return self.made(f(xs[0].id), t)

    def fma(self, x: Value, y: Any, z: Any) -> Value:
        with np.errstate(all="ignore"):
            a, b, c = (self.value(v, "f").id.astype(np.float64) for v in (x, y, z))
            if not self.target.fused:
                return self.made((a * b).astype(np.float32) + c.astype(np.float32), "f")
            p = a * b  # exact; the sum is rounded to odd, so that rounding it once more is as good as rounding once
            s = p + c
            v = s - p
            e = (p - (s - v)) + (c - v)
            odd = np.isfinite(s) & (e != 0) & (np.asarray(s).view(np.int64) & 1 == 0)
            s = np.where(odd, np.nextafter(s, np.where(e > 0, np.inf, -np.inf)), s)
            return self.made(s, "f")

    def multiply_wide(self, x: Value, y: Value) -> tuple[Value, Value]:
        p = x.id.astype(np.uint64) * y.id.astype(np.uint64)
        return self.made(p & 0xFFFFFFFF, "u"), self.made(p >> np.uint64(32), "u")

    def variable(self, value: Any, t: str | None = None) -> Any:
        kind = value.t if isinstance(value, Value) else t
        return EagerVariable(self, self.value(value, kind).id, kind)  # type: ignore[arg-type]

    @contextmanager
    def if_(self, mask: Value, rare: bool = False) -> Iterator[None]:
        self.masks.append(mask.id)
        with np.errstate(all="ignore"):
            yield
        self.masks.pop()

    def repeat(self, condition: Any, body: Any) -> None:
        while np.any(mask := condition().id):
            self.masks.append(mask)
            body()
            self.masks.pop()
