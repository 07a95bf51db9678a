"""JAX's lax names: elementwise operations, shapes, reductions, contractions, control flow, collectives.

Stricter than ``funcgrad.numpy``: operands must have one dtype and one shape, Python scalars apart.

>>> lax.add(fnp.asarray([1.0, 2.0]), 1.0)
Array([2., 3.], dtype=float32)
"""

# ruff: noqa: F403 (each module says in __all__ what is public)
from funcgrad.lax import (
    control_flow,
    convolution,
    elementwise,
    extras,
    gathering,
    linalg,
    parallel,
    reductions,
    shapes,
    solvers,
    special,
)
from funcgrad.lax.control_flow import *
from funcgrad.lax.convolution import *
from funcgrad.lax.elementwise import *
from funcgrad.lax.extras import *
from funcgrad.lax.gathering import *
from funcgrad.lax.parallel import *
from funcgrad.lax.reductions import *
from funcgrad.lax.shapes import *
from funcgrad.lax.solvers import *
from funcgrad.lax.special import *
from funcgrad.numpy.promotion import broadcast_shapes

__all__ = ["broadcast_shapes", "linalg"]
__all__ += control_flow.__all__
__all__ += convolution.__all__
__all__ += elementwise.__all__
__all__ += extras.__all__
__all__ += gathering.__all__
__all__ += parallel.__all__
__all__ += reductions.__all__
__all__ += shapes.__all__
__all__ += solvers.__all__
__all__ += special.__all__
