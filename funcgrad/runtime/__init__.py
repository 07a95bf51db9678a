"""Devices, and how a graph runs on them: lower, plan, execute."""

from funcgrad.runtime import cpu, device, vulkan

__all__ = ["cpu", "device", "vulkan"]
