"""The pointwise operations as functions of values and numbers; each binds the primitive of its name."""

from __future__ import annotations

from typing import Any

from funcgrad.ir import Literal
from funcgrad.primitive import apply, operands


def add(x: Any, y: Any) -> Any:
    """x + y for operands of one dtype and one shape (or scalars)."""
    return apply("add", x, y)


def sub(x: Any, y: Any) -> Any:
    """x - y."""
    return apply("sub", x, y)


def mul(x: Any, y: Any) -> Any:
    """x * y."""
    return apply("mul", x, y)


def mul_nz(x: Any, y: Any) -> Any:
    """x * y, 0 where either is 0."""
    return apply("mul_nz", x, y)


def div(x: Any, y: Any) -> Any:
    """x / y, truncated for integers."""
    return apply("div", x, y)


def div_nz(x: Any, y: Any) -> Any:
    """x / y, 0 where x is 0."""
    return apply("div_nz", x, y)


def rem(x: Any, y: Any) -> Any:
    """The remainder of truncated division."""
    return apply("rem", x, y)


def pow(x: Any, y: Any) -> Any:
    """x to the power y."""
    return apply("pow", x, y)


def integer_pow(x: Any, n: int) -> Any:
    """x to the integer power n."""
    return apply("integer_pow", x, n=n)


def maximum(x: Any, y: Any) -> Any:
    """The larger of x and y."""
    return apply("max", x, y)


def minimum(x: Any, y: Any) -> Any:
    """The smaller of x and y."""
    return apply("min", x, y)


def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (y, x)."""
    return apply("atan2", y, x)


def nextafter(x: Any, y: Any) -> Any:
    """The float next to x towards y."""
    return apply("nextafter", x, y)


def select(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y."""
    return apply("select", condition, *operands(x, y))


def neg(x: Any) -> Any:
    """-x."""
    return apply("neg", x)


def abs(x: Any) -> Any:
    """The absolute value."""
    return apply("abs", x)


def copy(x: Any) -> Any:
    """x in memory of its own."""
    return apply("copy", x)


def stop_gradient(x: Any) -> Any:
    """x with derivative 0."""
    return apply("stop_gradient", x)


def convert(x: Any, dtype: Any) -> Any:
    """x in another dtype."""
    return x if x.aval.dtype == dtype else apply("convert", x, to=dtype)


def sign(x: Any) -> Any:
    """-1, 0 or 1."""
    return apply("sign", x)


def square(x: Any) -> Any:
    """x * x."""
    return apply("square", x)


def log(x: Any) -> Any:
    """The natural logarithm."""
    return apply("log", x)


def trunc(x: Any) -> Any:
    """x rounded towards zero."""
    return apply("trunc", x)


def equal(x: Any, y: Any) -> Any:
    """Whether x and y are equal."""
    return apply("eq", x, y)


def like(x: Any, value: float) -> Literal:
    """A number in the dtype of x."""
    return Literal(value, x.aval.dtype)
