"""Operands of special functions."""

from __future__ import annotations

from typing import Any

from funcgrad import numpy as fnp
from funcgrad.numpy.promotion import floating_arrays

__all__ = ["floats"]


def floats(name: str, *xs: Any) -> list[Any]:
    """The operands as float arrays of one dtype and one shape."""
    return list(fnp.broadcast_arrays(*floating_arrays(name, *xs)))
