"""numpy's functions on funcgrad arrays, traceable and differentiable: ``import funcgrad.numpy as fnp``.

Names, arguments and meaning are numpy's and ``jax.numpy``'s.  Differences: floats are float32 by default and float64
only on the numpy device; there are no complex numbers; Python scalars take the dtype of the array beside them; arrays
are immutable (``x.at[i].set(v)`` makes an updated copy).

>>> fnp.linspace(0, 1, 3) @ fnp.ones(3)
Array(1.5, dtype=float32)
"""

# ruff: noqa: F403 (each module says in __all__ what is public)
from typing import Any

from funcgrad.numpy import (
    arithmetic,
    choices,
    contraction,
    convolution,
    counting,
    creation,
    cumulative,
    diagonals,
    exponentials,
    functions,
    gathering,
    grid_objects,
    grids,
    joining,
    linalg,
    logical,
    manipulation,
    mapping,
    nanreductions,
    norms,
    padding,
    polynomials,
    positions,
    precision,
    products,
    promotion,
    ranges,
    rearrange,
    reductions,
    sets,
    sorting,
    statistics,
    types,
)
from funcgrad.numpy.arithmetic import *
from funcgrad.numpy.choices import *
from funcgrad.numpy.contraction import *
from funcgrad.numpy.convolution import *
from funcgrad.numpy.counting import *
from funcgrad.numpy.creation import *
from funcgrad.numpy.cumulative import *
from funcgrad.numpy.diagonals import *
from funcgrad.numpy.exponentials import *
from funcgrad.numpy.functions import *
from funcgrad.numpy.gathering import *
from funcgrad.numpy.grid_objects import *
from funcgrad.numpy.grids import *
from funcgrad.numpy.joining import *
from funcgrad.numpy.logical import *
from funcgrad.numpy.manipulation import *
from funcgrad.numpy.mapping import *
from funcgrad.numpy.nanreductions import *
from funcgrad.numpy.norms import *
from funcgrad.numpy.padding import *
from funcgrad.numpy.polynomials import *
from funcgrad.numpy.positions import *
from funcgrad.numpy.precision import *
from funcgrad.numpy.products import *
from funcgrad.numpy.promotion import *
from funcgrad.numpy.ranges import *
from funcgrad.numpy.rearrange import *
from funcgrad.numpy.reductions import *
from funcgrad.numpy.sets import *
from funcgrad.numpy.sorting import *
from funcgrad.numpy.statistics import *
from funcgrad.numpy.types import *
from funcgrad.numpy.types import bool_
from funcgrad.trace import Value

ndarray = Value  # arrays and traced values alike, as isinstance(x, jax.numpy.ndarray) has it
bool = bool_
__array_api_version__ = "2024.12"

__all__ = ["bool", "linalg", "ndarray"]
__all__ += arithmetic.__all__
__all__ += choices.__all__
__all__ += contraction.__all__
__all__ += convolution.__all__
__all__ += counting.__all__
__all__ += creation.__all__
__all__ += cumulative.__all__
__all__ += diagonals.__all__
__all__ += exponentials.__all__
__all__ += functions.__all__
__all__ += gathering.__all__
__all__ += grid_objects.__all__
__all__ += grids.__all__
__all__ += joining.__all__
__all__ += logical.__all__
__all__ += manipulation.__all__
__all__ += mapping.__all__
__all__ += nanreductions.__all__
__all__ += norms.__all__
__all__ += padding.__all__
__all__ += polynomials.__all__
__all__ += positions.__all__
__all__ += precision.__all__
__all__ += products.__all__
__all__ += promotion.__all__
__all__ += ranges.__all__
__all__ += rearrange.__all__
__all__ += reductions.__all__
__all__ += sets.__all__
__all__ += sorting.__all__
__all__ += statistics.__all__
__all__ += types.__all__

# JAX's names that are not here, and what a program does instead.
_REAL = "there are no complex numbers: keep real and imaginary parts as two arrays"
_INSTEAD = {
    **dict.fromkeys(("complex64", "complex128", "complex_", "csingle", "cdouble", "roots", "sort_complex"), _REAL),
    "fft": "there are no complex numbers: scipy.signal.convolve for convolutions, numpy.fft through pure_callback",
    **dict.fromkeys(("frompyfunc", "ufunc"), "vectorize"),
    "place": "where, or .at[mask].set: arrays are immutable",
    "fromfile": "read with numpy, then asarray",
}


def __getattr__(name: str) -> Any:
    way_out = f"\n  way out: {_INSTEAD[name]}" if name in _INSTEAD else ""
    raise AttributeError(f"module 'funcgrad.numpy' has no attribute {name!r}{way_out}")
