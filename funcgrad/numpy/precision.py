"""How exactly matrix products are computed: float32-accurate by default, cheaper when asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from funcgrad.errors import message

__all__ = ["default_matmul_precision"]

_default: ContextVar[str | None] = ContextVar("matmul_precision", default=None)
_FROM_MOST_EXACT = (None, "tensorfloat32", "float16")  # None is float32
# JAX's names that promise less than float32 get float32 here: cheaper products are asked for by the number format.
_KNOWN: dict[Any, str | None] = {None: None, "float32": None, "highest": None, "high": None, "default": None}
_KNOWN |= {"tensorfloat32": "tensorfloat32", "float16": "float16"}


def _checked(name: str, precision: Any) -> str | None:
    key = str(getattr(precision, "name", precision)).lower() if precision is not None else None
    if key not in _KNOWN:
        way_out = 'use "float32", "tensorfloat32" or "float16"'
        raise ValueError(message(name, "the precision must be known", repr(precision), way_out))
    return _KNOWN[key]


def resolve_precision(name: str, precision: Any) -> str | None:
    """Return the precision of a product: the argument's, else the context's.

    A pair names one for each operand, as in JAX; the more exact of the two holds for both.
    """
    pair = tuple(precision) if isinstance(precision, (tuple, list)) else (precision, precision)
    if len(pair) != 2:
        raise ValueError(message(name, "the precision must be one, or one for each of the two operands", repr(pair)))
    chosen = [_default.get() if p is None else _checked(name, p) for p in pair]
    return next(p for p in _FROM_MOST_EXACT if p in chosen)


def default_precision() -> str | None:
    """The precision in force for products that name none."""
    return _default.get()


@contextmanager
def default_matmul_precision(precision: str | None) -> Iterator[None]:
    """Make matrix products and convolutions inside use "float32" (exact to rounding), "tensorfloat32" or "float16"
    operands.

    >>> with fg.default_matmul_precision("float32"):
    ...     fnp.dot(fnp.ones(2), fnp.ones(2))
    Array(2., dtype=float32)
    """
    token = _default.set(_checked("default_matmul_precision", precision))
    try:
        yield
    finally:
        _default.reset(token)
