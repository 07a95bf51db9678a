"""Comparison, logic, bits, and tests of floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import DTypeError, message
from funcgrad.numpy.promotion import binary, broadcast_args, floating, is_bool, is_floating, operand, promote_args
from funcgrad.primitive import apply
from funcgrad.prims import logic, pointwise

__all__ = [
    "bitwise_and",
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "gcd",
    "greater",
    "greater_equal",
    "invert",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "lcm",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "right_shift",
]


def _comparison(name: str, prim: str, sign: str, result: str) -> Callable[[Any, Any], Any]:
    def prim_of(a: Any, b: Any) -> Any:
        return logic.compare(prim, a, b)

    def function(x1: Any, x2: Any, /) -> Any:
        return binary(name, prim_of, x1, x2)

    function.__name__ = function.__qualname__ = name
    example = f">>> fnp.{name}(fnp.asarray([1, 2, 3]), 2)\n    Array([{result}], dtype=bool)"
    function.__doc__ = f"Return x1 {sign} x2 as bools; NaN is unequal to everything.\n\n    {example}\n    "
    return function


equal = _comparison("equal", "eq", "==", "False,  True, False")
not_equal = _comparison("not_equal", "ne", "!=", " True, False,  True")
less = _comparison("less", "lt", "<", " True, False, False")
less_equal = _comparison("less_equal", "le", "<=", " True,  True, False")
greater = _comparison("greater", "gt", ">", "False, False,  True")
greater_equal = _comparison("greater_equal", "ge", ">=", "False,  True,  True")


def as_bool(name: str, x: Any) -> Any:
    """Return x != 0."""
    a = operand(name, x)
    return a if is_bool(a) else logic.compare("ne", a, 0)


def logical_and(x1: Any, x2: Any, /) -> Any:
    """Return whether both are true (not 0).

    >>> fnp.logical_and(fnp.asarray([1, 0]), True)
    Array([ True, False], dtype=bool)
    """
    return logic.logical_and(*broadcast_args("logical_and", as_bool("logical_and", x1), as_bool("logical_and", x2)))


def logical_or(x1: Any, x2: Any, /) -> Any:
    """Return whether either is true (not 0).

    >>> fnp.logical_or(fnp.asarray([1, 0]), False)
    Array([ True, False], dtype=bool)
    """
    return logic.logical_or(*broadcast_args("logical_or", as_bool("logical_or", x1), as_bool("logical_or", x2)))


def logical_xor(x1: Any, x2: Any, /) -> Any:
    """Return whether exactly one is true (not 0).

    >>> fnp.logical_xor(fnp.asarray([1, 0]), True)
    Array([False,  True], dtype=bool)
    """
    a, b = broadcast_args("logical_xor", as_bool("logical_xor", x1), as_bool("logical_xor", x2))
    return logic.compare("ne", a, b)


def logical_not(x: Any, /) -> Any:
    """Return whether x is false (0).

    >>> fnp.logical_not(fnp.asarray([1, 0]))
    Array([False,  True], dtype=bool)
    """
    return logic.logical_not(as_bool("logical_not", x))


def _bits(name: str, prim: str, sign: str, result: int) -> Callable[[Any, Any], Any]:
    def prim_of(a: Any, b: Any) -> Any:
        return apply(prim, a, b)

    def function(x1: Any, x2: Any, /) -> Any:
        return binary(name, prim_of, x1, x2)

    function.__name__ = function.__qualname__ = name
    example = f">>> fnp.{name}(fnp.asarray([6]), 3)\n    Array([{result}], dtype=int32)"
    function.__doc__ = (
        f"Return x1 {sign} x2, for integers{'' if 'shift' in name else ' or bools'}.\n\n    {example}\n    "
    )
    return function


bitwise_and = _bits("bitwise_and", "and", "&", 2)
bitwise_or = _bits("bitwise_or", "or", "|", 7)
bitwise_xor = _bits("bitwise_xor", "xor", "^", 5)
bitwise_left_shift = _bits("bitwise_left_shift", "shift_left", "<<", 48)
left_shift = bitwise_left_shift


def bitwise_right_shift(x1: Any, x2: Any, /) -> Any:
    """Return x1 >> x2, filling with the sign for int32 and with zeros for uint32.

    >>> fnp.bitwise_right_shift(fnp.asarray([-8]), 1)
    Array([-4], dtype=int32)
    """
    a, b = broadcast_args("bitwise_right_shift", *promote_args("bitwise_right_shift", x1, x2))
    unsigned = a.aval.dtype == dtypes.uint32
    return apply("shift_right_logical" if unsigned else "shift_right_arithmetic", a, b)


right_shift = bitwise_right_shift


def bitwise_invert(x: Any, /) -> Any:
    """Return ~x, for integers or bools.

    >>> fnp.bitwise_invert(fnp.asarray([0, 5]))
    Array([-1, -6], dtype=int32)
    """
    return apply("not", operand("bitwise_invert", x))


bitwise_not = invert = bitwise_invert


def bitwise_count(x: Any, /) -> Any:
    """Return the number of bits set in the absolute value, as x's dtype.

    >>> fnp.bitwise_count(fnp.asarray([7, -1]))
    Array([3, 1], dtype=int32)
    """
    a = operand("bitwise_count", x)
    return apply("population_count", pointwise.abs(a) if a.aval.dtype == dtypes.int32 else a)


def gcd(x1: Any, x2: Any, /) -> Any:
    """Return the greatest common divisor of integers, by 47 steps of Euclid's algorithm (enough for 32 bits).

    >>> fnp.gcd(fnp.asarray([12, -8]), 18)
    Array([6, 2], dtype=int32)
    """
    a, b = broadcast_args("gcd", *promote_args("gcd", x1, x2))
    if is_floating(a) or is_bool(a):
        raise DTypeError(message("gcd", "integers are required", str(a.aval), "convert with astype(int)"))
    if a.aval.dtype == dtypes.int32:
        a, b = pointwise.abs(a), pointwise.abs(b)
    for _ in range(47):
        done = logic.compare("eq", b, 0)
        # An integer's remainder by 0 is the integer itself, so a stays once b is 0.
        a, b = pointwise.select(done, a, b), pointwise.select(done, b, pointwise.rem(a, b))
    return a


def lcm(x1: Any, x2: Any, /) -> Any:
    """Return the least common multiple of integers.

    >>> fnp.lcm(fnp.asarray([4, 0]), 6)
    Array([12,  0], dtype=int32)
    """
    a, b = broadcast_args("lcm", *promote_args("lcm", x1, x2))
    d = gcd(a, b)
    whole = pointwise.mul(pointwise.div(a, pointwise.maximum(d, 1)), b)
    return pointwise.abs(whole) if whole.aval.dtype == dtypes.int32 else whole


# -- tests of floats ---------------------------------------------------------------------------------------------
def isnan(x: Any, /) -> Any:
    """Return whether x is NaN.

    >>> fnp.isnan(fnp.asarray([1.0, float("nan")]))
    Array([False,  True], dtype=bool)
    """
    return logic.isnan(floating("isnan", x)[0])


def isfinite(x: Any, /) -> Any:
    """Return whether x is neither NaN nor infinite.

    >>> fnp.isfinite(fnp.asarray([1.0, float("inf")]))
    Array([ True, False], dtype=bool)
    """
    return logic.isfinite(floating("isfinite", x)[0])


def isinf(x: Any, /) -> Any:
    """Return whether x is an infinity.

    >>> fnp.isinf(fnp.asarray([1.0, float("-inf")]))
    Array([False,  True], dtype=bool)
    """
    (a,) = floating("isinf", x)
    return logic.compare("eq", pointwise.abs(a), math.inf)


def isposinf(x: Any, /) -> Any:
    """Return whether x is positive infinity.

    >>> fnp.isposinf(fnp.asarray([1.0, float("inf")]))
    Array([False,  True], dtype=bool)
    """
    return logic.compare("eq", floating("isposinf", x)[0], math.inf)


def isneginf(x: Any, /) -> Any:
    """Return whether x is negative infinity.

    >>> fnp.isneginf(fnp.asarray([1.0, float("-inf")]))
    Array([False,  True], dtype=bool)
    """
    return logic.compare("eq", floating("isneginf", x)[0], -math.inf)


def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether abs(a - b) <= atol + rtol * abs(b); equal infinities are close.

    >>> fnp.isclose(fnp.asarray([1.0, 1.1]), 1.0)
    Array([ True, False], dtype=bool)
    """
    x, y, r, t = broadcast_args("isclose", *floating("isclose", a, b, rtol, atol))
    limit = pointwise.add(t, pointwise.mul(r, pointwise.abs(y)))
    near = logic.compare("le", pointwise.abs(pointwise.sub(x, y)), limit)
    both_finite = logic.logical_and(logic.isfinite(x), logic.isfinite(y))
    close = pointwise.select(both_finite, near, logic.compare("eq", x, y))
    if equal_nan:
        close = logic.logical_or(close, logic.logical_and(logic.isnan(x), logic.isnan(y)))
    return close
