"""lax's elementwise operations: operands of one dtype and one shape; scalars stand beside arrays of any shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from funcgrad import dtypes, tree
from funcgrad.errors import DTypeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.promotion import array_of, dense, operand, result_dtype
from funcgrad.primitive import apply, operands
from funcgrad.prims import logic, pointwise
from funcgrad.trace import Value

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitcast_convert_type",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cbrt",
    "ceil",
    "clamp",
    "clz",
    "conj",
    "convert_element_type",
    "cos",
    "cosh",
    "digamma",
    "div",
    "eq",
    "erf",
    "erf_inv",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "ge",
    "gt",
    "integer_pow",
    "is_finite",
    "le",
    "lgamma",
    "log",
    "log1p",
    "logistic",
    "lt",
    "max",
    "min",
    "mul",
    "ne",
    "neg",
    "nextafter",
    "polygamma",
    "population_count",
    "pow",
    "real",
    "reciprocal",
    "reduce_precision",
    "rem",
    "round",
    "rsqrt",
    "select",
    "select_n",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "stop_gradient",
    "sub",
    "tan",
    "tanh",
]


def _value(name: str, x: Any) -> Any:
    return x if isinstance(x, (Value, Literal, bool, int, float)) else operand(name, x)


def _operation(name: str, prim: str, arity: int, doc: str, example: str) -> Callable[..., Any]:
    call, _, result = example.partition(" -> ")
    if arity == 1:

        def function(x: Any) -> Any:
            return apply(prim, _value(name, x))
    else:

        def function(x: Any, y: Any) -> Any:  # type: ignore[misc]
            return apply(prim, _value(name, x), _value(name, y))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc}\n\n    >>> lax.{name}({call})\n    Array({result})\n    "
    return function


def _one(name: str, doc: str, example: str, prim: str = "") -> Callable[[Any], Any]:
    return _operation(name, prim or name, 1, doc, example)


def _two(name: str, doc: str, example: str, prim: str = "") -> Callable[[Any, Any], Any]:
    return _operation(name, prim or name, 2, doc, example)


F32 = "dtype=float32"
# -- one operand -------------------------------------------------------------------------------------------------
abs = _one("abs", "Return the absolute value.", f"-2.0 -> 2., {F32}")
neg = _one("neg", "Return -x.", f"2.0 -> -2., {F32}")
sign = _one("sign", "Return -1, 0 or 1.", f"-2.0 -> -1., {F32}")
exp = _one("exp", "Return e to the power x.", f"0.0 -> 1., {F32}")
exp2 = _one("exp2", "Return 2 to the power x.", f"3.0 -> 8., {F32}")
expm1 = _one("expm1", "Return exp(x) - 1, exact near 0.", f"0.0 -> 0., {F32}")
log = _one("log", "Return the natural logarithm.", f"1.0 -> 0., {F32}")
log1p = _one("log1p", "Return log(1 + x), exact near 0.", f"0.0 -> 0., {F32}")
logistic = _one("logistic", "Return 1 / (1 + exp(-x)).", f"0.0 -> 0.5, {F32}")
sqrt = _one("sqrt", "Return the square root.", f"9.0 -> 3., {F32}")
rsqrt = _one("rsqrt", "Return 1 / sqrt(x).", f"4.0 -> 0.5, {F32}")
cbrt = _one("cbrt", "Return the real cube root.", f"8.0 -> 2., {F32}")
square = _one("square", "Return x * x.", f"3.0 -> 9., {F32}")
sin = _one("sin", "Return the sine of an angle in radians.", f"0.0 -> 0., {F32}")
cos = _one("cos", "Return the cosine of an angle in radians.", f"0.0 -> 1., {F32}")
tan = _one("tan", "Return the tangent of an angle in radians.", f"0.0 -> 0., {F32}")
asin = _one("asin", "Return the angle in radians whose sine is x.", f"0.0 -> 0., {F32}")
acos = _one("acos", "Return the angle in radians whose cosine is x.", f"1.0 -> 0., {F32}")
atan = _one("atan", "Return the angle in radians whose tangent is x.", f"0.0 -> 0., {F32}")
sinh = _one("sinh", "Return the hyperbolic sine.", f"0.0 -> 0., {F32}")
cosh = _one("cosh", "Return the hyperbolic cosine.", f"0.0 -> 1., {F32}")
tanh = _one("tanh", "Return the hyperbolic tangent.", f"0.0 -> 0., {F32}")
asinh = _one("asinh", "Return the inverse hyperbolic sine.", f"0.0 -> 0., {F32}")
acosh = _one("acosh", "Return the inverse hyperbolic cosine.", f"1.0 -> 0., {F32}")
atanh = _one("atanh", "Return the inverse hyperbolic tangent.", f"0.0 -> 0., {F32}")
erf = _one("erf", "Return the error function.", f"0.0 -> 0., {F32}")
erfc = _one("erfc", "Return 1 - erf(x), exact for large x.", f"0.0 -> 1., {F32}")
erf_inv = _one("erf_inv", "Return the inverse of the error function.", f"0.0 -> 0., {F32}")
lgamma = _one("lgamma", "Return the logarithm of the absolute value of the gamma function.", f"1.0 -> 0., {F32}")
digamma = _one("digamma", "Return the derivative of lgamma.", f"1.0 -> -0.577, {F32}")
floor = _one("floor", "Return the largest integer not above x.", f"1.5 -> 1., {F32}")
ceil = _one("ceil", "Return the smallest integer not below x.", f"1.5 -> 2., {F32}")
is_finite = _one("is_finite", "Return whether x is neither NaN nor infinite.", "1.0 -> True, dtype=bool", "isfinite")
bitwise_not = _one("bitwise_not", "Return ~x.", "5 -> -6, dtype=int32", "not")
population_count = _one("population_count", "Return the number of bits set.", "7 -> 3, dtype=int32")
clz = _one("clz", "Return the number of leading zero bits.", "1 -> 31, dtype=int32")

# -- two operands ------------------------------------------------------------------------------------------------
add = _two("add", "Return x + y.", f"1.0, 2.0 -> 3., {F32}")
sub = _two("sub", "Return x - y.", f"1.0, 2.0 -> -1., {F32}")
mul = _two("mul", "Return x * y.", f"3.0, 2.0 -> 6., {F32}")
div = _two("div", "Return x / y; integers truncate towards zero.", "-7, 2 -> -3, dtype=int32")
rem = _two("rem", "Return the remainder of truncated division, with the sign of x.", "-7, 2 -> -1, dtype=int32")
max = _two("max", "Return the larger; NaN wins.", f"1.0, 2.0 -> 2., {F32}")
min = _two("min", "Return the smaller; NaN wins.", f"1.0, 2.0 -> 1., {F32}")
atan2 = _two("atan2", "Return the angle in radians of the point (y, x).", f"0.0, 1.0 -> 0., {F32}")
nextafter = _two("nextafter", "Return the float next to x towards y.", f"1.0, 2.0 -> 1.0000001, {F32}")
eq = _two("eq", "Return x == y.", "1, 2 -> False, dtype=bool")
ne = _two("ne", "Return x != y.", "1, 2 -> True, dtype=bool")
lt = _two("lt", "Return x < y.", "1, 2 -> True, dtype=bool")
le = _two("le", "Return x <= y.", "1, 2 -> True, dtype=bool")
gt = _two("gt", "Return x > y.", "1, 2 -> False, dtype=bool")
ge = _two("ge", "Return x >= y.", "1, 2 -> False, dtype=bool")
bitwise_and = _two("bitwise_and", "Return x & y, for integers or bools.", "6, 3 -> 2, dtype=int32", "and")
bitwise_or = _two("bitwise_or", "Return x | y, for integers or bools.", "6, 3 -> 7, dtype=int32", "or")
bitwise_xor = _two("bitwise_xor", "Return x ^ y, for integers or bools.", "6, 3 -> 5, dtype=int32", "xor")
shift_left = _two("shift_left", "Return x << y.", "1, 3 -> 8, dtype=int32")
shift_right_arithmetic = _two(
    "shift_right_arithmetic", "Return x >> y, filling with the sign.", "-8, 1 -> -4, dtype=int32"
)
shift_right_logical = _two("shift_right_logical", "Return x >> y, filling with zeros.", "8, 1 -> 4, dtype=int32")


def reciprocal(x: Any) -> Any:
    """Return 1 / x.

    >>> lax.reciprocal(4.0)
    Array(0.25, dtype=float32)
    """
    return pointwise.div(1.0, operand("reciprocal", x))


def round(x: Any, rounding_method: Any = 0) -> Any:
    """Return x rounded to the nearest integer, halves away from zero (0) or to even (1).

    >>> lax.round(2.5), lax.round(2.5, 1)
    (Array(3., dtype=float32), Array(2., dtype=float32))
    """
    a = operand("round", x)
    if int(getattr(rounding_method, "value", rounding_method)):
        return apply("round", a)
    whole = apply("trunc", a)
    far = logic.compare("ge", pointwise.abs(pointwise.sub(a, whole)), 0.5)
    return pointwise.add(whole, pointwise.select(far, apply("sign", a), Literal(0, a.aval.dtype)))


def pow(x: Any, y: Any) -> Any:
    """Return x to the power y; an integer array as y gives powers of the same dtype as x.

    >>> lax.pow(2.0, 3.0)
    Array(8., dtype=float32)
    """
    a, b = operands(_value("pow", x), _value("pow", y))
    return pointwise.pow(a, pointwise.convert(dense(b), a.aval.dtype) if dtypes.is_int(b.aval.dtype) else b)


def integer_pow(x: Any, y: int) -> Any:
    """Return x to an integer power known when tracing.

    >>> lax.integer_pow(fnp.asarray([2.0]), 3)
    Array([8.], dtype=float32)
    """
    return pointwise.integer_pow(array_of("integer_pow", x), y)


def polygamma(m: Any, x: Any) -> Any:
    """Return the derivative of order m >= 0 (a number known when tracing) of the digamma function.

    >>> lax.polygamma(1.0, fnp.asarray([1.0]))
    Array([1.645], dtype=float32)
    """
    order = int(m)
    if order < 0 or order != m:
        raise ValueError(message("polygamma", "the order must be a whole number from 0", str(m)))
    return apply("polygamma", operand("polygamma", x), n=order) if order else digamma(x)


def clamp(min: Any, x: Any, max: Any) -> Any:
    """Return x limited to [min, max], by a maximum and a minimum.

    >>> lax.clamp(0.0, fnp.asarray([-1.0, 0.5]), 1.0)
    Array([0. , 0.5], dtype=float32)
    """
    a = operand("clamp", x)
    return pointwise.minimum(pointwise.maximum(a, _value("clamp", min)), _value("clamp", max))


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """Return on_true where a bool array (or scalar) holds, else on_false; exact forward and backward.

    >>> lax.select(fnp.asarray([True, False]), fnp.asarray([1, 2]), fnp.asarray([3, 4]))
    Array([1, 4], dtype=int32)
    """
    return pointwise.select(operand("select", pred), *operands(_value("select", on_true), _value("select", on_false)))


def select_n(which: Any, *cases: Any) -> Any:
    """Return for each place the case that ``which`` (bool, or integers clamped to the cases) numbers.

    >>> lax.select_n(fnp.asarray([0, 1]), fnp.asarray([1, 2]), fnp.asarray([3, 4]))
    Array([1, 4], dtype=int32)
    """
    w = operand("select_n", which)
    if not cases or (w.aval.dtype == dtypes.bool_ and len(cases) > 2):
        raise ValueError(message("select_n", "at least one case is required, at most two for a bool", str(len(cases))))
    values = operands(*[_value("select_n", c) for c in cases])
    if w.aval.dtype == dtypes.bool_:
        return dense(values[0]) if len(values) == 1 else pointwise.select(w, values[1], values[0])
    out = values[-1]
    for k in range(len(values) - 2, -1, -1):
        out = pointwise.select(logic.compare("le", w, k), values[k], out)
    return dense(out)


def stop_gradient(x: Any) -> Any:
    """Return a tree of values with derivative 0.

    >>> fg.grad(lambda x: x * lax.stop_gradient(x))(3.0)
    Array(3., dtype=float32)
    """

    def stop(leaf: Any) -> Any:
        if not isinstance(leaf, (Value, Literal)):
            return leaf
        return pointwise.stop_gradient(leaf) if leaf.aval.dtype in dtypes.FLOATS else leaf

    return tree.map(stop, x)


def convert_element_type(operand_: Any, new_dtype: Any) -> Any:
    """Return the array in another dtype.

    >>> lax.convert_element_type(fnp.asarray([1.7]), fnp.int32)
    Array([1], dtype=int32)
    """
    x = array_of("convert_element_type", operand_)
    return pointwise.convert(x, result_dtype(new_dtype, None))


def bitcast_convert_type(operand_: Any, new_dtype: Any) -> Any:
    """Return the same 32 bits as another dtype (float32, int32, uint32).

    >>> lax.bitcast_convert_type(fnp.asarray([1.0]), fnp.int32)
    Array([1065353216], dtype=int32)
    """
    x, kind = array_of("bitcast_convert_type", operand_), dtypes.as_dtype(new_dtype)
    if x.aval.dtype.itemsize != 4 or kind.itemsize != 4:
        got = f"{x.aval} to {dtypes.NAMES[kind]}"
        raise DTypeError(message("bitcast_convert_type", "both dtypes must be 32 bits wide", got))
    return logic.bitcast(x, kind)


def reduce_precision(operand_: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Return x rounded to the precision of float16 (5, 10), bfloat16 (8, 7) or float32 (8, 23).

    >>> lax.reduce_precision(fnp.asarray([1.01]), 8, 7)
    Array([1.0078125], dtype=float32)
    """
    kinds = {(5, 10): dtypes.float16, (8, 7): dtypes.bfloat16, (8, 23): dtypes.float32}
    kind = kinds.get((exponent_bits, mantissa_bits))
    if kind is None:
        got = f"({exponent_bits}, {mantissa_bits})"
        raise NotImplementedError(
            message("reduce_precision", "the bits of float16, bfloat16 or float32 are required", got)
        )
    x = array_of("reduce_precision", operand_)
    return pointwise.convert(pointwise.convert(x, kind), x.aval.dtype)


def conj(x: Any) -> Any:
    """Return x: numbers are real.

    >>> lax.conj(fnp.asarray([1.0]))
    Array([1.], dtype=float32)
    """
    return array_of("conj", x)


real = conj
