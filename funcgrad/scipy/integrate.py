"""Integrals of samples, with the names of ``jax.scipy.integrate``."""

from funcgrad.numpy import trapezoid

__all__ = ["trapezoid"]
