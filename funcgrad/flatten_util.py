"""A tree of arrays as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from funcgrad import dtypes, tree
from funcgrad.array import as_value
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.prims import layout, pointwise

__all__ = ["ravel_pytree"]


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return all elements of a tree as one vector in the common dtype, and the function that builds the tree again.

    >>> vector, unravel = ravel_pytree({"a": asarray([1.0, 2.0]), "b": asarray(3.0)})
    >>> vector
    Array([1., 2., 3.], dtype=float32)
    >>> unravel(vector)["b"]
    Array(3., dtype=float32)
    """
    leaves, treedef = tree.flatten(pytree)
    values = [as_value(x) for x in leaves]
    avals = [v.aval for v in values]
    dtype = dtypes.promote(*[a.dtype for a in avals]) if avals else dtypes.float32
    flat = [layout.reshape(pointwise.convert(v, dtype), (v.aval.size,)) for v in values]
    vector = layout.concatenate(flat, 0) if flat else layout.broadcast(Literal(0, dtype), (0,), ())

    def unravel(v: Any) -> Any:
        x = as_value(v)
        total = sum(a.size for a in avals)
        if x.aval.shape != (total,):
            raise ShapeError(message("unravel", f"a vector of shape ({total},) is required", str(x.aval)))
        out, at = [], 0
        for a in avals:
            n = math.prod(a.shape)
            out.append(pointwise.convert(layout.reshape(layout.slice_along(x, 0, at, at + n), a.shape), a.dtype))
            at += n
        return tree.unflatten(treedef, out)

    return vector, unravel
