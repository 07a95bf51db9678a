"""Norms of vectors and matrices, and condition numbers."""

from __future__ import annotations

import math
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.promotion import axis_tuple, floating_arrays, kept_shape
from funcgrad.numpy.reductions import reduce
from funcgrad.primitive import apply
from funcgrad.prims import layout, linalg, logic, pointwise, spectral
from funcgrad.trace import bind_all

__all__ = ["safe_norm"]


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return a norm: of vectors along one axis, of matrices over two, of all elements (2-norm) by default.

    For vectors ``ord`` is any number, inf or -inf; for matrices "fro", "nuc", 1, -1, 2, -2, inf or -inf.  The gradient
    at 0 is not finite; ``safe_norm`` has gradient 0 there.

    >>> fnp.linalg.norm(fnp.asarray([3.0, 4.0]))
    Array(5., dtype=float32)
    """
    (a,) = floating_arrays("norm", x)
    ndim = a.aval.ndim
    if axis is None and ord is None:
        return _vector(a, 2, tuple(range(ndim)), keepdims)
    if axis is None and ndim not in (1, 2):
        way_out = "give axis, or leave ord out"
        raise ShapeError(
            message("norm", "a vector or a matrix is required with ord and without axis", str(a.aval), way_out)
        )
    axes = axis_tuple("norm", axis, ndim, sort=False)
    if len(axes) == 1:
        return _vector(a, 2 if ord is None else ord, axes, keepdims)
    if len(axes) != 2:
        raise ShapeError(message("norm", "one or two axes are required", str(axis)))
    return _matrix(a, "fro" if ord is None else ord, axes, keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Return the norm of vectors along axes (all elements by default).

    >>> fnp.linalg.vector_norm(fnp.asarray([3.0, -4.0]), ord=1)
    Array(7., dtype=float32)
    """
    (a,) = floating_arrays("vector_norm", x)
    return _vector(a, ord, axis_tuple("vector_norm", axis, a.aval.ndim), keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Return the norm of matrices on the last two axes.

    >>> fnp.linalg.matrix_norm(fnp.eye(4))
    Array(2., dtype=float32)
    """
    (a,) = floating_arrays("matrix_norm", x)
    if a.aval.ndim < 2:
        raise ShapeError(message("matrix_norm", "at least two axes are required", str(a.aval)))
    return _matrix(a, ord, (a.aval.ndim - 2, a.aval.ndim - 1), keepdims)


def _vector(a: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    axes = tuple(sorted(axes))
    if isinstance(ord, str):
        raise ValueError(message("norm", "a vector norm needs a number as ord", repr(ord)))
    if ord == 2:
        return apply("sqrt", reduce("reduce_sum", apply("square", a), axes, keepdims))
    if ord == 0:
        nonzero = pointwise.convert(logic.compare("ne", a, 0), a.aval.dtype)
        return reduce("reduce_sum", nonzero, axes, keepdims)
    size = pointwise.abs(a)
    if ord in (math.inf, -math.inf):
        return reduce("reduce_max" if ord > 0 else "reduce_min", size, axes, keepdims)
    if ord == 1:
        return reduce("reduce_sum", size, axes, keepdims)
    whole = isinstance(ord, int)
    powers = pointwise.integer_pow(size, ord) if whole else pointwise.pow(size, float(ord))
    return pointwise.pow(reduce("reduce_sum", powers, axes, keepdims), 1.0 / ord)


def _matrix(a: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    shape = kept_shape(a.aval.shape, axes)
    if ord == "fro":
        return apply("sqrt", reduce("reduce_sum", apply("square", a), sorted(axes), keepdims))
    rest = [d for d in range(a.aval.ndim) if d not in axes]
    x = layout.transpose(a, (*rest, *axes))
    n = x.aval.ndim
    if ord in (1, -1, math.inf, -math.inf):
        summed, kept = (n - 2, n - 2) if ord in (1, -1) else (n - 1, n - 2)
        sums = layout.reduce_sum(pointwise.abs(x), (summed,))
        out = apply("reduce_max" if ord > 0 else "reduce_min", sums, axes=(kept,))
    elif ord in (2, -2, "nuc"):
        s = _singular_values(x)
        prim = {2: "reduce_max", -2: "reduce_min", "nuc": "reduce_sum"}[ord]
        out = apply(prim, s, axes=(s.aval.ndim - 1,))
    else:
        raise ValueError(message("norm", 'a matrix norm is "fro", "nuc", 1, -1, 2, -2, inf or -inf', repr(ord)))
    return layout.reshape(out, shape) if keepdims else out


def _singular_values(x: Any) -> Any:
    wide = pointwise.convert(x, dtypes.float32) if x.aval.dtype in dtypes.HALVES else x
    return pointwise.convert(bind_all(spectral.SVD(False), wide)[1], x.aval.dtype)


def safe_norm(x: Any, axis: Any = None, keepdims: bool = False, *, min_norm: float = 0.0) -> Any:
    """Return the 2-norm with gradient 0 where it is 0, at least ``min_norm`` (with gradient 0 below it).

    >>> fg.grad(fnp.safe_norm)(fnp.zeros(2))
    Array([0., 0.], dtype=float32)
    """
    (a,) = floating_arrays("safe_norm", x)
    axes = axis_tuple("safe_norm", axis, a.aval.ndim)
    total = reduce("reduce_sum", apply("square", a), axes, keepdims)
    above = logic.compare("gt", total, min_norm * min_norm)
    root = apply("sqrt", pointwise.select(above, total, Literal(1, a.aval.dtype)))
    return pointwise.select(above, root, Literal(min_norm, a.aval.dtype))


def cond(x: Any, p: Any = None) -> Any:
    """Return the condition number of matrices: the largest over the smallest singular value, or norms by ``p``.

    >>> fnp.linalg.cond(fnp.diag(fnp.asarray([1.0, 4.0])))
    Array(4., dtype=float32)
    """
    (a,) = floating_arrays("cond", x)
    if a.aval.ndim < 2:
        raise ShapeError(message("cond", "at least two axes are required", str(a.aval)))
    if p in (None, 2, -2):
        s = _singular_values(a)
        d = s.aval.ndim - 1
        ends = [layout.reduce_sum(layout.slice_along(s, d, k, k + 1), (d,)) for k in (0, s.aval.shape[d] - 1)]
        return pointwise.div(ends[1], ends[0]) if p == -2 else pointwise.div(ends[0], ends[1])
    wide = pointwise.convert(a, dtypes.float32) if a.aval.dtype in dtypes.HALVES else a
    axes = (a.aval.ndim - 2, a.aval.ndim - 1)
    return pointwise.mul(_matrix(wide, p, axes, False), _matrix(linalg.inverse(wide), p, axes, False))
