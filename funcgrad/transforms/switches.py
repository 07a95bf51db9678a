"""Whether jit does anything, for each thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["disable_jit", "inline_jit", "jit_is_disabled", "jit_is_off"]

_enabled = threading.local()


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Inside, jitted functions run as plain Python, operation by operation.

    >>> with disable_jit():
    ...     float(fg.jit(lambda x: x + 1.0)(1.0))
    2.0
    """
    saved = getattr(_enabled, "off", False)
    _enabled.off = bool(disable)
    try:
        yield
    finally:
        _enabled.off = saved


@contextmanager
def inline_jit() -> Iterator[None]:
    """Inside, jitted functions are traced as a part of their caller, and remember nothing of it; loops stay loops."""
    saved = getattr(_enabled, "off", False)
    _enabled.off = "inline"
    try:
        yield
    finally:
        _enabled.off = saved


def jit_is_off() -> bool:
    """Whether jitted functions run or are traced as plain Python in this thread."""
    return bool(getattr(_enabled, "off", False))


def jit_is_disabled() -> bool:
    """Whether a ``disable_jit`` is in force in this thread."""
    return getattr(_enabled, "off", False) is True
