"""Shapes and axes: reshape, transpose, joining, splitting, repeating, reversing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.promotion import (
    array_of,
    as_int,
    axis_index,
    axis_tuple,
    broadcast_shapes,
    cast,
    expand_to,
    shape_tuple,
)
from funcgrad.prims import layout

__all__ = [
    "astype",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_arrays",
    "broadcast_to",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "ravel",
    "reshape",
    "resize",
    "rollaxis",
    "rot90",
    "squeeze",
    "swapaxes",
    "transpose",
]


# -- shapes ------------------------------------------------------------------------------------------------------
def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """Return the elements under another shape, one dimension of which may be -1.

    ``order="F"`` reads and writes them with the first axis running fastest.

    >>> fnp.reshape(fnp.arange(6), (2, -1)).shape
    (2, 3)
    """
    x = array_of("reshape", a)
    target = _full_shape(x.aval, shape)
    if order in ("C", "A", "K"):
        return layout.reshape(x, target)
    if order != "F":
        raise ValueError(message("reshape", 'order must be "C", "F" or "A"', repr(order)))
    return _reversed_axes(layout.reshape(_reversed_axes(x), target[::-1]))


def _reversed_axes(x: Any) -> Any:
    return layout.transpose(x, tuple(range(x.aval.ndim))[::-1])


def _full_shape(aval: Any, shape: Any) -> tuple[int, ...]:
    many = hasattr(shape, "__iter__") and getattr(shape, "shape", True) != ()
    dims = [as_int("reshape", d, "each dimension") for d in (shape if many else (shape,))]
    if dims.count(-1) > 1 or any(d < -1 for d in dims):
        raise ShapeError(
            message("reshape", "one dimension may be -1, the others must not be negative", str(tuple(dims)))
        )
    known = math.prod(d for d in dims if d != -1)
    if -1 in dims:
        if known == 0 or aval.size % known:
            got = f"{aval.shape} to {tuple(dims)}"
            way_out = "the other dimensions must divide the size"
            raise ShapeError(message("reshape", f"{aval.size} elements must fill the new shape", got, way_out))
        dims[dims.index(-1)] = aval.size // known
    return tuple(dims)


def ravel(a: Any, order: str = "C") -> Any:
    """Return the elements as a vector.

    >>> fnp.ravel(fnp.eye(2))
    Array([1., 0., 0., 1.], dtype=float32)
    """
    return reshape(a, (-1,), order) if array_of("ravel", a).aval.size else reshape(a, (0,))


def squeeze(a: Any, axis: Any = None) -> Any:
    """Return the array without the axes of size 1 (or without the given ones, which must have size 1).

    >>> fnp.squeeze(fnp.zeros((1, 3, 1))).shape
    (3,)
    """
    x = array_of("squeeze", a)
    shape = x.aval.shape
    axes = [d for d, n in enumerate(shape) if n == 1] if axis is None else axis_tuple("squeeze", axis, len(shape))
    if any(shape[d] != 1 for d in axes):
        raise ShapeError(
            message("squeeze", "the axes must have size 1", f"axes {tuple(axes)} of {shape}", "index or reduce them")
        )
    return layout.reshape(x, [n for d, n in enumerate(shape) if d not in axes])


def expand_dims(a: Any, axis: Any) -> Any:
    """Return the array with new axes of size 1 at the given places of the result.

    >>> fnp.expand_dims(fnp.zeros(3), (0, 2)).shape
    (1, 3, 1)
    """
    x = array_of("expand_dims", a)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = axis_tuple("expand_dims", given, x.aval.ndim + len(given))
    rest = iter(x.aval.shape)
    return layout.reshape(x, [1 if d in axes else next(rest) for d in range(x.aval.ndim + len(axes))])


def broadcast_to(array: Any, shape: Any) -> Any:
    """Return the array repeated to ``shape`` by numpy's rules.

    >>> fnp.broadcast_to(fnp.asarray([1, 2]), (2, 2))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    x = array_of("broadcast_to", array)
    target = shape_tuple("broadcast_to", shape)
    if broadcast_shapes(x.aval.shape, target, name="broadcast_to") != target:
        raise ShapeError(message("broadcast_to", f"the shape must fit {target}", str(x.aval.shape)))
    return expand_to(x, target)


def broadcast_arrays(*args: Any) -> list[Any]:
    """Return the arrays repeated to their common shape.

    >>> [x.shape for x in fnp.broadcast_arrays(fnp.zeros((2, 1)), fnp.zeros(3))]
    [(2, 3), (2, 3)]
    """
    xs = [array_of("broadcast_arrays", a) for a in args]
    shape = broadcast_shapes(*[x.aval.shape for x in xs], name="broadcast_arrays")
    return [expand_to(x, shape) for x in xs]


def resize(a: Any, new_shape: Any) -> Any:
    """Return an array of ``new_shape`` filled with a's elements, repeated as often as needed.

    >>> fnp.resize(fnp.asarray([1, 2, 3]), (2, 2))
    Array([[1, 2],
           [3, 1]], dtype=int32)
    """
    x, target = ravel(a), shape_tuple("resize", new_shape)
    n = math.prod(target)
    if not x.aval.size:
        raise ShapeError(message("resize", "there must be an element to repeat", str(x.aval)))
    if n > x.aval.size:
        x = layout.concatenate([x] * -(-n // x.aval.size), 0)
    return layout.reshape(layout.slice_along(x, 0, 0, n), target)


def _at_least(name: str, arys: Sequence[Any], grow: Any) -> Any:
    out = [grow(array_of(name, a)) for a in arys]
    return out[0] if len(out) == 1 else out


def atleast_1d(*arys: Any) -> Any:
    """Return the arrays with at least one axis.

    >>> fnp.atleast_1d(fnp.asarray(3.0))
    Array([3.], dtype=float32)
    """
    return _at_least("atleast_1d", arys, lambda x: x if x.aval.ndim else layout.reshape(x, (1,)))


def atleast_2d(*arys: Any) -> Any:
    """Return the arrays with at least two axes, new ones in front.

    >>> fnp.atleast_2d(fnp.asarray([1.0, 2.0])).shape
    (1, 2)
    """
    return _at_least(
        "atleast_2d", arys, lambda x: layout.reshape(x, ((1, 1, *x.aval.shape)[-2:])) if x.aval.ndim < 2 else x
    )


def atleast_3d(*arys: Any) -> Any:
    """Return the arrays with at least three axes; a vector becomes (1, n, 1), a matrix (m, n, 1).

    >>> fnp.atleast_3d(fnp.asarray([1.0, 2.0])).shape
    (1, 2, 1)
    """

    def grow(x: Any) -> Any:
        shape = x.aval.shape
        return layout.reshape(x, (1, *shape, 1)[-3:] if len(shape) == 1 else (*shape, *(1,) * (3 - len(shape))))

    return _at_least("atleast_3d", arys, grow)


# -- order of the axes -------------------------------------------------------------------------------------------
def transpose(a: Any, axes: Any = None) -> Any:
    """Return the array with its axes permuted, reversed by default.

    >>> fnp.transpose(fnp.zeros((2, 3, 4)), (1, 0, 2)).shape
    (3, 2, 4)
    """
    x = array_of("transpose", a)
    if axes is None:
        return _reversed_axes(x)
    perm = axis_tuple("transpose", tuple(axes), x.aval.ndim, sort=False)
    if len(perm) != x.aval.ndim:
        raise ShapeError(message("transpose", f"a permutation of {x.aval.ndim} axes is required", str(axes)))
    return layout.transpose(x, perm)


def permute_dims(a: Any, /, axes: Any) -> Any:
    """Return the array with its axes permuted.

    >>> fnp.permute_dims(fnp.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return transpose(a, axes)


def matrix_transpose(x: Any, /) -> Any:
    """Return the array with its last two axes swapped.

    >>> fnp.matrix_transpose(fnp.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    a = array_of("matrix_transpose", x)
    if a.aval.ndim < 2:
        raise ShapeError(message("matrix_transpose", "at least two axes are required", str(a.aval)))
    return swapaxes(a, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Return the array with two axes exchanged.

    >>> fnp.swapaxes(fnp.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = array_of("swapaxes", a)
    i, j = axis_index("swapaxes", axis1, x.aval.ndim), axis_index("swapaxes", axis2, x.aval.ndim)
    perm = list(range(x.aval.ndim))
    perm[i], perm[j] = j, i
    return layout.transpose(x, perm)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Return the array with axes moved, the others keeping their order.

    >>> fnp.moveaxis(fnp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = array_of("moveaxis", a)
    src = axis_tuple("moveaxis", source, x.aval.ndim, sort=False)
    dst = axis_tuple("moveaxis", destination, x.aval.ndim, sort=False)
    if len(src) != len(dst):
        raise ShapeError(
            message("moveaxis", "as many sources as destinations are required", f"{source} and {destination}")
        )
    perm = [d for d in range(x.aval.ndim) if d not in src]
    for to, frm in sorted(zip(dst, src, strict=True)):
        perm.insert(to, frm)
    return layout.transpose(x, perm)


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Return the array with an axis moved back until it lies before position ``start``.

    >>> fnp.rollaxis(fnp.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    x = array_of("rollaxis", a)
    i = axis_index("rollaxis", axis, x.aval.ndim)
    to = axis_index("rollaxis", start, x.aval.ndim + 1)
    return moveaxis(x, i, to - 1 if i < to else to)


def flip(m: Any, axis: Any = None) -> Any:
    """Return the array backwards along axes, all by default.

    >>> fnp.flip(fnp.arange(3))
    Array([2, 1, 0], dtype=int32)
    """
    x = array_of("flip", m)
    return layout.reverse(x, axis_tuple("flip", axis, x.aval.ndim))


def fliplr(m: Any) -> Any:
    """Return the array backwards along its second axis.

    >>> fnp.fliplr(fnp.eye(2))
    Array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """Return the array backwards along its first axis.

    >>> fnp.flipud(fnp.eye(2))
    Array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Return the array turned by k quarter turns from the first of the axes towards the second.

    >>> fnp.rot90(fnp.asarray([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    """
    x = array_of("rot90", m)
    i, j = axis_tuple("rot90", axes, x.aval.ndim, sort=False)
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, (i, j))
    return swapaxes(flip(x, j), i, j) if turns == 1 else flip(swapaxes(x, i, j), j)


# -- conversion --------------------------------------------------------------------------------------------------
def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """Return the array in another dtype; floats truncate towards zero as integers, NaN becomes 0.

    >>> fnp.astype(fnp.asarray([1.7, -1.7]), int)
    Array([ 1, -1], dtype=int32)
    """
    a = array_of("astype", x)
    return cast(a, dtypes.as_dtype(float if dtype is None else dtype))
