"""Devices, and how a graph runs on them: lower, plan, execute."""

import importlib
from typing import Any

from funcgrad.runtime import cpu, device

__all__ = ["cpu", "device"]


def _vulkan() -> Any:
    """The Vulkan devices; what they need is imported when one is first asked for."""
    return importlib.import_module("funcgrad.runtime.vulkan").found()


device.register("vulkan", _vulkan)
