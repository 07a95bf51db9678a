"""Comparisons, tests, logical and bitwise operations, random bits: pointwise, without derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from funcgrad import dtypes
from funcgrad.primitive import Arg, Pointwise, dataclass, example, operands
from funcgrad.trace import bind

BITS = dtypes.INTS | {dtypes.bool_}


class Discrete(Pointwise):
    """A pointwise operation whose derivative is 0 everywhere."""

    fn: ClassVar[Callable[..., Any]]

    def eval(self, *xs: Any) -> Any:
        return type(self).fn(*xs)

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return [None] * len(xs)


class Comparison(Discrete):
    """Compares two operands; NaN compares unequal to everything."""

    examples = [
        example(
            Arg("f32[7]", values=[0, -0.0, 1, np.nan, np.inf, -np.inf, 2]),
            Arg("f32[7]", values=[-0.0, 1, 1, np.nan, np.inf, 0, -2]),
            smooth=False,
        ),
        example("i32[2,3]", "i32[]", smooth=False),
        example(Arg("u32[2]", values=[2**32 - 1, 1]), Arg("u32[2]", values=[1, 2**32 - 1]), smooth=False),
        example(Arg("bool[4]", 0, 1), Arg("bool[4]", 0, 1), smooth=False),
        example("f32[0]", "f32[0]", smooth=False),
    ]

    def result_dtype(self, dtype: Any) -> Any:
        return dtypes.bool_


@dataclass(frozen=True)
class Eq(Comparison):
    """x == y."""

    name = "eq"
    fn = np.equal


@dataclass(frozen=True)
class Ne(Comparison):
    """x != y."""

    name = "ne"
    fn = np.not_equal


@dataclass(frozen=True)
class Lt(Comparison):
    """x < y."""

    name = "lt"
    fn = np.less


@dataclass(frozen=True)
class Le(Comparison):
    """x <= y."""

    name = "le"
    fn = np.less_equal


@dataclass(frozen=True)
class Gt(Comparison):
    """x > y."""

    name = "gt"
    fn = np.greater


@dataclass(frozen=True)
class Ge(Comparison):
    """x >= y."""

    name = "ge"
    fn = np.greater_equal


class FloatTest(Discrete):
    """A question about one float."""

    accepts = dtypes.FLOATS
    examples = [example(Arg("f32[5]", values=[0, 1, np.nan, np.inf, -np.inf]), smooth=False)]

    def result_dtype(self, dtype: Any) -> Any:
        return dtypes.bool_


@dataclass(frozen=True)
class IsFinite(FloatTest):
    """Whether x is neither NaN nor infinite."""

    name = "isfinite"
    fn = np.isfinite


@dataclass(frozen=True)
class IsNan(FloatTest):
    """Whether x is NaN."""

    name = "isnan"
    fn = np.isnan


class Bitwise(Discrete):
    """Bit by bit for integers, logical for bool."""

    accepts = BITS
    examples = [
        example("i32[2,3]", "i32[2,3]", smooth=False),
        example(Arg("u32[3]", 0, 99), Arg("u32[]", 0, 99), smooth=False),
        example(Arg("bool[4]", 0, 1), Arg("bool[4]", 0, 1), smooth=False),
    ]


@dataclass(frozen=True)
class And(Bitwise):
    """x & y."""

    name = "and"
    fn = np.bitwise_and


@dataclass(frozen=True)
class Or(Bitwise):
    """x | y."""

    name = "or"
    fn = np.bitwise_or


@dataclass(frozen=True)
class Xor(Bitwise):
    """x ^ y."""

    name = "xor"
    fn = np.bitwise_xor


@dataclass(frozen=True)
class Not(Bitwise):
    """~x."""

    name = "not"
    fn = np.invert
    examples = [example("i32[3]", smooth=False), example(Arg("bool[4]", 0, 1), smooth=False)]


class Shift(Discrete):
    """Shifts by 32 or more push every bit out."""

    accepts = dtypes.INTS
    examples = [
        example("i32[4]", Arg("i32[4]", values=[0, 3, 31, 32]), smooth=False),
        example(Arg("u32[4]", 0, 99999), Arg("u32[4]", values=[0, 3, 31, 32]), smooth=False),
    ]


def _shift(x: Any, n: Any, left: bool, arithmetic: bool = False) -> Any:
    bits = x.view(np.uint32) if x.dtype == np.int32 and not arithmetic else x
    far = (n.astype(np.int64) >= 32) | (n.astype(np.int64) < 0)
    by = np.where(far, 31 if arithmetic else 0, n).astype(bits.dtype)
    out = np.left_shift(bits, by) if left else np.right_shift(bits, by)
    return (out if arithmetic else np.where(far, np.zeros((), bits.dtype), out)).astype(bits.dtype).view(x.dtype)


@dataclass(frozen=True)
class ShiftLeft(Shift):
    """x << n."""

    name = "shift_left"
    op = "shl"

    def eval(self, *xs: Any) -> Any:
        x, n = np.broadcast_arrays(*xs)
        return _shift(x, n, left=True)


@dataclass(frozen=True)
class ShiftRightLogical(Shift):
    """x >> n, filling with zeros."""

    name = "shift_right_logical"
    op = "shr_u"

    def eval(self, *xs: Any) -> Any:
        x, n = np.broadcast_arrays(*xs)
        return _shift(x, n, left=False)


@dataclass(frozen=True)
class ShiftRightArithmetic(Shift):
    """x >> n, filling with the sign."""

    name = "shift_right_arithmetic"
    op = "shr_i"

    def eval(self, *xs: Any) -> Any:
        x, n = np.broadcast_arrays(*xs)
        return _shift(x.view(np.int32), n, left=False, arithmetic=True).view(x.dtype)


@dataclass(frozen=True)
class PopulationCount(Discrete):
    """The number of bits set."""

    name = "population_count"
    op = "popcount"
    accepts = dtypes.INTS
    examples = [example(Arg("u32[4]", values=[0, 1, 255, 2**32 - 1]), smooth=False), example("i32[3]", smooth=False)]

    def eval(self, *xs: Any) -> Any:
        octets = np.ascontiguousarray(xs[0]).reshape(-1, 1).view(np.uint8)
        return np.unpackbits(octets, axis=-1).sum(-1).reshape(xs[0].shape).astype(xs[0].dtype)


@dataclass(frozen=True)
class Clz(Discrete):
    """The number of leading zero bits."""

    name = "clz"
    accepts = dtypes.INTS
    examples = [example(Arg("u32[4]", values=[0, 1, 255, 2**32 - 1]), smooth=False)]

    def eval(self, *xs: Any) -> Any:
        u = np.ascontiguousarray(xs[0]).view(np.uint32).astype(np.float64).reshape(xs[0].shape)
        return (32 - np.where(u > 0, np.floor(np.log2(np.maximum(u, 1))) + 1, 0)).astype(xs[0].dtype)


@dataclass(frozen=True)
class Bitcast(Discrete):
    """The same 32 bits as another dtype."""

    to: np.dtype[Any]
    name = "bitcast"
    accepts = frozenset({dtypes.float32, dtypes.int32, dtypes.uint32})
    examples = [
        example("f32[2,3]", to=dtypes.uint32, smooth=False),
        example(Arg("u32[3]", 0, 9), to=dtypes.float32, smooth=False),
        example("i32[3]", to=dtypes.uint32, smooth=False),
    ]

    def result_dtype(self, dtype: Any) -> Any:
        return self.to

    def eval(self, *xs: Any) -> Any:
        return np.ascontiguousarray(xs[0]).view(self.to).reshape(xs[0].shape)

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.bitcast(xs[0], self.to)


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
        x0, x1 = x0 + keys[(i + 1) % 3], x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1


@dataclass(frozen=True)
class Threefry(Discrete):
    """Threefry-2x32 of key words (k0, k1) and counter words (x0, x1): word 0, word 1, or (2) both by exclusive or."""

    word: int
    name = "threefry"
    accepts = frozenset({dtypes.uint32})
    examples = [
        example(
            Arg("u32[]", 0, 9e8),
            Arg("u32[]", 0, 9e8),
            Arg("u32[5]", 0, 9e8),
            Arg("u32[5]", 0, 9e8),
            word=w,
            smooth=False,
        )
        for w in (0, 1, 2)
    ]

    def eval(self, *xs: Any) -> Any:
        a, b = _threefry(*np.broadcast_arrays(*xs))
        return (a, b, a ^ b)[self.word]

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.op(("threefry", "threefry1", "threefryx")[self.word], *xs)


# -- the operations as functions ---------------------------------------------------------------------------------
def compare(name: str, x: Any, y: Any) -> Any:
    """One of eq, ne, lt, le, gt, ge."""
    return bind(_COMPARISONS[name](), *operands(x, y))


_COMPARISONS: dict[str, Callable[[], Comparison]] = {"eq": Eq, "ne": Ne, "lt": Lt, "le": Le, "gt": Gt, "ge": Ge}


def logical_and(x: Any, y: Any) -> Any:
    """x & y."""
    return bind(And(), *operands(x, y))


def logical_or(x: Any, y: Any) -> Any:
    """x | y."""
    return bind(Or(), *operands(x, y))


def logical_not(x: Any) -> Any:
    """~x."""
    return bind(Not(), x)


def isfinite(x: Any) -> Any:
    """Whether x is finite."""
    return bind(IsFinite(), x)


def isnan(x: Any) -> Any:
    """Whether x is NaN."""
    return bind(IsNan(), x)


def bitcast(x: Any, dtype: Any) -> Any:
    """The bits of x as another dtype."""
    return x if x.aval.dtype == dtype else bind(Bitcast(dtype), x)


def threefry(k0: Any, k1: Any, x0: Any, x1: Any, word: int) -> Any:
    """Random bits of a key and a counter."""
    return bind(Threefry(word), k0, k1, x0, x1)
