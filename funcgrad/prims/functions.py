"""Elementary and special functions of one float operand, with their derivatives, and rounding."""

from __future__ import annotations

from typing import Any

from funcgrad.primitive import apply
from funcgrad.prims.circular import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Cos,
    Cosh,
    Sin,
    Sinh,
    Tan,
    Tanh,
)
from funcgrad.prims.exponential import (
    Cbrt,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log1p,
    Log2,
    Logistic,
    Rsqrt,
    Sqrt,
    Square,
)
from funcgrad.prims.rounding import (
    Ceil,
    Floor,
    Round,
    Sign,
    Trunc,
)
from funcgrad.prims.special import (
    Digamma,
    Erf,
    Erfc,
    ErfInv,
    Lgamma,
    Polygamma,
)
from funcgrad.prims.unary import (
    Reciprocal,
    Step,
    Unary,
)

__all__ = [
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cbrt",
    "Ceil",
    "Cos",
    "Cosh",
    "Digamma",
    "Erf",
    "ErfInv",
    "Erfc",
    "Exp",
    "Exp2",
    "Expm1",
    "Floor",
    "Lgamma",
    "Log",
    "Log1p",
    "Log2",
    "Logistic",
    "Polygamma",
    "Reciprocal",
    "Round",
    "Rsqrt",
    "Sign",
    "Sin",
    "Sinh",
    "Sqrt",
    "Square",
    "Step",
    "Tan",
    "Tanh",
    "Trunc",
    "Unary",
    "unary",
]


def unary(name: str, x: Any) -> Any:
    """Apply the function ``name`` of this module."""
    return apply(name, x)
