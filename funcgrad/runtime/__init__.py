"""Devices, and how a graph runs on them: lower, plan, execute."""
