"""The part of ``jax.scipy`` that programs use: special functions, linear algebra, densities, iterative solvers."""

from funcgrad.scipy import linalg, sparse, special, stats

__all__ = ["linalg", "sparse", "special", "stats"]
