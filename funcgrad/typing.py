"""Types for annotations, under the names of ``jax.typing``.

>>> from funcgrad.typing import ArrayLike
>>> def norm(x: ArrayLike) -> fg.Array:
...     return fnp.linalg.norm(fnp.asarray(x))
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from funcgrad.array import Array

__all__ = ["ArrayLike", "DTypeLike"]

ArrayLike: TypeAlias = Array | np.ndarray[Any, Any] | np.bool_ | np.number[Any] | bool | int | float
DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any]
