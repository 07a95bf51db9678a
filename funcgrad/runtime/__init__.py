"""Devices, and how a graph runs on them: lower, plan, execute."""

from funcgrad.runtime import cpu, device

__all__ = ["cpu", "device"]
