"""What ``jax.experimental`` has and programs use: the integration of ordinary differential equations."""

from funcgrad.experimental import ode

__all__ = ["ode"]
