"""Iterative solvers, in :mod:`funcgrad.scipy.sparse.linalg`."""

from funcgrad.scipy.sparse import linalg

__all__ = ["linalg"]
