"""Libraries that funcgrad can use and does not need."""

from __future__ import annotations

import importlib
from typing import Any

from funcgrad.errors import message

__all__ = ["optional_module"]


def optional_module(name: str, what: str) -> Any:
    """Return a module; ImportError says how to get it.

    >>> optional_module("json", "example").dumps([1])
    '[1]'
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise ImportError(message(what, f"{package} is required", "none", f"pip install {package}")) from None
