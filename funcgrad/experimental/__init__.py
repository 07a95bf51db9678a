"""What ``jax.experimental`` has and programs use: differential equations, callbacks with side effects and results."""

from funcgrad.debug import io_callback
from funcgrad.experimental import ode

__all__ = ["io_callback", "ode"]
