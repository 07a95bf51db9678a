"""The part of ``jax.scipy`` that programs use: special functions, linear algebra, densities, solvers, convolutions."""

from funcgrad.scipy import integrate, linalg, ndimage, optimize, signal, sparse, special, stats

__all__ = ["integrate", "linalg", "ndimage", "optimize", "signal", "sparse", "special", "stats"]
