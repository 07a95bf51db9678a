"""Arithmetic of two operands, rounding, choices: broadcasting, promotion, then one primitive."""

from __future__ import annotations

from typing import Any

from funcgrad import dtypes
from funcgrad.errors import DTypeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.promotion import (
    array_of,
    binary,
    broadcast_args,
    cast,
    dense,
    floating,
    is_bool,
    is_floating,
    numbers,
    operand,
    promote_args,
    same_kind_pair,
)
from funcgrad.primitive import apply
from funcgrad.prims import logic, pointwise

__all__ = [
    "abs",
    "absolute",
    "add",
    "copysign",
    "divide",
    "divmod",
    "fabs",
    "float_power",
    "floor_divide",
    "fmod",
    "mod",
    "multiply",
    "negative",
    "positive",
    "pow",
    "power",
    "reciprocal",
    "remainder",
    "sign",
    "signbit",
    "square",
    "subtract",
    "true_divide",
]


# -- sums, products, quotients -----------------------------------------------------------------------------------
def add(x1: Any, x2: Any, /) -> Any:
    """Return x1 + x2; ``or`` for bools.

    >>> fnp.add(fnp.asarray([1, 2]), 1)
    Array([2, 3], dtype=int32)
    """
    return binary("add", _add, x1, x2)


def _add(a: Any, b: Any) -> Any:
    return logic.logical_or(a, b) if is_bool(a) else pointwise.add(a, b)


def subtract(x1: Any, x2: Any, /) -> Any:
    """Return x1 - x2; DTypeError for bools.

    >>> fnp.subtract(fnp.asarray([1.0, 2.0]), 1)
    Array([0., 1.], dtype=float32)
    """
    return binary("subtract", _sub, x1, x2)


def _sub(a: Any, b: Any) -> Any:
    if is_bool(a):
        raise DTypeError(message("subtract", "numbers are required", "bool", "use logical_xor, or convert with astype"))
    return pointwise.sub(a, b)


def multiply(x1: Any, x2: Any, /) -> Any:
    """Return x1 * x2; ``and`` for bools.

    >>> fnp.multiply(fnp.asarray([1, 2]), fnp.asarray([3, 4]))
    Array([3, 8], dtype=int32)
    """
    return binary("multiply", _mul, x1, x2)


def _mul(a: Any, b: Any) -> Any:
    return logic.logical_and(a, b) if is_bool(a) else pointwise.mul(a, b)


def divide(x1: Any, x2: Any, /) -> Any:
    """Return x1 / x2 as floats.

    >>> fnp.divide(fnp.asarray([1, 2]), 2)
    Array([0.5, 1. ], dtype=float32)
    """
    pair = same_kind_pair(x1, x2)
    if pair is not None and pair[0].aval.dtype in dtypes.FLOATS:
        return pointwise.div(*pair)
    a, b = broadcast_args("divide", *floating("divide", x1, x2))
    return pointwise.div(a, b)


true_divide = divide


def floor_divide(x1: Any, x2: Any, /) -> Any:
    """Return the quotient rounded down.

    >>> fnp.floor_divide(fnp.asarray([7, -7]), 2)
    Array([ 3, -4], dtype=int32)
    """
    a, b = broadcast_args("floor_divide", *numbers("floor_divide", x1, x2))
    if is_floating(a):
        return _floor_quotient(a, b)
    q = pointwise.div(a, b)
    if a.aval.dtype == dtypes.uint32:
        return q
    r = pointwise.rem(a, b)
    return pointwise.select(_other_sign(r, b), pointwise.sub(q, 1), q)


def _floor_quotient(a: Any, b: Any) -> Any:
    """The floor of a / b without the error that rounding a / b first would make: (a - mod(a, b)) / b is whole."""
    r = pointwise.rem(a, b)
    whole = apply("round", pointwise.div(pointwise.sub(a, r), b))
    q = pointwise.select(_other_sign(r, b), pointwise.sub(whole, 1), whole)
    return pointwise.select(logic.compare("ne", b, 0), q, pointwise.div(a, b))


def _other_sign(r: Any, b: Any) -> Any:
    """Where a remainder is not 0 and its sign is not the divisor's."""
    other = logic.compare("ne", logic.compare("lt", r, 0), logic.compare("lt", b, 0))
    return logic.logical_and(logic.compare("ne", r, 0), other)


def remainder(x1: Any, x2: Any, /) -> Any:
    """Return x1 - floor_divide(x1, x2) * x2, which has the sign of x2.

    >>> fnp.remainder(fnp.asarray([7, -7]), 3)
    Array([1, 2], dtype=int32)
    """
    a, b = broadcast_args("remainder", *numbers("remainder", x1, x2))
    r = pointwise.rem(a, b)
    if a.aval.dtype == dtypes.uint32:
        return r
    r = pointwise.select(_other_sign(r, b), pointwise.add(r, b), r)
    if not dtypes.is_float(a.aval.dtype):
        return r
    # A zero has the divisor's sign as well; adding 0, unlike choosing a 0, keeps the derivative.
    below = pointwise.neg(pointwise.add(pointwise.neg(r), 0))
    return pointwise.select(logic.compare("lt", b, 0), below, pointwise.add(r, 0))


mod = remainder


def fmod(x1: Any, x2: Any, /) -> Any:
    """Return the remainder of truncated division, which has the sign of x1.

    >>> fnp.fmod(fnp.asarray([7, -7]), 3)
    Array([ 1, -1], dtype=int32)
    """
    a, b = broadcast_args("fmod", *numbers("fmod", x1, x2))
    return pointwise.rem(a, b)


def divmod(x1: Any, x2: Any, /) -> tuple[Any, Any]:
    """Return (floor_divide(x1, x2), remainder(x1, x2)).

    >>> fnp.divmod(fnp.asarray([7]), 2)
    (Array([3], dtype=int32), Array([1], dtype=int32))
    """
    return floor_divide(x1, x2), remainder(x1, x2)


# -- powers ------------------------------------------------------------------------------------------------------
def power(x1: Any, x2: Any, /) -> Any:
    """Return x1 to the power x2; a Python integer exponent is repeated multiplication.

    >>> fnp.power(fnp.asarray([2.0, 3.0]), 2)
    Array([4., 9.], dtype=float32)
    """
    if isinstance(x2, int) and not isinstance(x2, bool):
        base = dense(numbers("power", x1)[0])
        if x2 < 0 and not is_floating(base):
            way_out = "use float_power, or convert with astype(float)"
            raise ValueError(message("power", "integers to a negative power are not integers", str(x2), way_out))
        return _integer_exponent(base, x2)
    args = promote_args("power", x1, x2)
    if args[0].aval.dtype not in dtypes.FLOATS:
        return _integer_power(*broadcast_args("power", *args))
    a, b = broadcast_args("power", *args)
    if isinstance(b, Literal) and b.item() == 0.5:
        return pointwise.pow(a, b) if isinstance(a, Literal) else apply("sqrt", a)
    return pointwise.pow(a, b)


pow = power


def _integer_exponent(base: Any, n: int) -> Any:
    if n == 1:
        return base
    return apply("square", base) if n == 2 else pointwise.integer_pow(base, n)


def _integer_power(base: Any, exponent: Any) -> Any:
    """Binary powers for 32-bit exponents; a negative exponent gives what truncation of the fraction gives."""
    base, exponent = [cast(v, dtypes.int32) if is_bool(v) else v for v in (base, exponent)]
    dtype = base.aval.dtype
    result: Any = Literal(1, dtype)
    square, left = base, exponent
    for _ in range(32):
        odd = logic.compare("ne", logic.logical_and(left, 1), 0)
        result = pointwise.select(odd, pointwise.mul(result, square), result)
        left = apply("shift_right_logical", left, 1)
        square = pointwise.mul(square, square)
    if dtype == dtypes.uint32:
        return result
    one, minus = logic.compare("eq", base, 1), logic.compare("eq", base, -1)
    even = logic.compare("eq", logic.logical_and(exponent, 1), 0)
    sign = pointwise.select(even, Literal(1, dtype), Literal(-1, dtype))
    fraction = pointwise.select(one, Literal(1, dtype), pointwise.select(minus, sign, Literal(0, dtype)))
    return pointwise.select(logic.compare("lt", exponent, 0), fraction, result)


def float_power(x1: Any, x2: Any, /) -> Any:
    """Return x1 to the power x2, as floats.

    >>> fnp.float_power(fnp.asarray([4]), 0.5)
    Array([2.], dtype=float32)
    """
    a, b = broadcast_args("float_power", *floating("float_power", x1, x2))
    return pointwise.pow(a, b)


# -- signs -------------------------------------------------------------------------------------------------------
def negative(x: Any, /) -> Any:
    """Return -x.

    >>> fnp.negative(fnp.asarray([1, -2]))
    Array([-1,  2], dtype=int32)
    """
    a = operand("negative", x)
    if is_bool(a):
        raise DTypeError(message("negative", "numbers are required", "bool", "use logical_not"))
    return pointwise.neg(a)


def positive(x: Any, /) -> Any:
    """Return +x.

    >>> fnp.positive(fnp.asarray([1, -2]))
    Array([ 1, -2], dtype=int32)
    """
    a = array_of("positive", x)
    if is_bool(a):
        raise DTypeError(message("positive", "numbers are required", "bool", "convert with astype(int)"))
    return a


def absolute(x: Any, /) -> Any:
    """Return the absolute value; the derivative at 0 is 0.

    >>> fnp.absolute(fnp.asarray([-1.5, 2.0]))
    Array([1.5, 2. ], dtype=float32)
    """
    a = operand("absolute", x)
    return dense(a) if is_bool(a) or a.aval.dtype == dtypes.uint32 else pointwise.abs(a)


abs = absolute


def fabs(x: Any, /) -> Any:
    """Return the absolute value as a float.

    >>> fnp.fabs(fnp.asarray([-1, 2]))
    Array([1., 2.], dtype=float32)
    """
    return pointwise.abs(floating("fabs", x)[0])


def sign(x: Any, /) -> Any:
    """Return -1, 0 or 1.

    >>> fnp.sign(fnp.asarray([-1.5, 0.0, 2.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    return apply("sign", numbers("sign", x)[0])


def square(x: Any, /) -> Any:
    """Return x * x.

    >>> fnp.square(fnp.asarray([-3, 2]))
    Array([9, 4], dtype=int32)
    """
    return apply("square", numbers("square", x)[0])


def reciprocal(x: Any, /) -> Any:
    """Return 1 / x as floats.

    >>> fnp.reciprocal(fnp.asarray([2.0, 4.0]))
    Array([0.5 , 0.25], dtype=float32)
    """
    (a,) = floating("reciprocal", x)
    return pointwise.div(1.0, a)


def copysign(x1: Any, x2: Any, /) -> Any:
    """Return x1 with the sign of x2, signed zeros included.

    >>> fnp.copysign(fnp.asarray([1.0, 2.0]), -0.0)
    Array([-1., -2.], dtype=float32)
    """
    a, b = broadcast_args("copysign", *floating("copysign", x1, x2))
    size = pointwise.abs(a)
    return pointwise.select(signbit(b), pointwise.neg(size), size)


def signbit(x: Any, /) -> Any:
    """Return whether the sign bit is set, for -0.0 too.

    >>> fnp.signbit(fnp.asarray([-0.0, 1.0]))
    Array([ True, False], dtype=bool)
    """
    a = dense(numbers("signbit", x)[0])
    if not is_floating(a):
        return logic.compare("lt", a, 0)
    if a.aval.dtype == dtypes.float64:  # bits are 32 wide: 1 / x carries the sign of a zero to an infinity
        below = logic.compare("lt", a, 0)
        return logic.logical_or(below, logic.compare("eq", pointwise.div(1.0, a), float("-inf")))
    return logic.compare("lt", logic.bitcast(cast(a, dtypes.float32), dtypes.int32), 0)
