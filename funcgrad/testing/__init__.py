"""Checks for functions and for the library itself: derivatives against differences, primitives, random graphs.

:func:`check_grads` compares a function's derivatives with central differences.  :func:`check_primitive` runs every
generic check of a primitive.  :func:`random_function` draws a random function of arrays, for properties that must hold
for every program.
"""

from funcgrad.testing.gradients import check_grads
from funcgrad.testing.primitives import PrimitiveReport, check_primitive
from funcgrad.testing.programs import RandomFunction, random_function

__all__ = ["PrimitiveReport", "RandomFunction", "check_grads", "check_primitive", "random_function"]
