"""Matrices of ones and zeros, triangles, and grids of coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.creation import on_named_device, placed, zeros
from funcgrad.numpy.promotion import array_of, as_int, default_float, expand_to, numbers, result_dtype, shape_tuple
from funcgrad.prims import layout, logic, pointwise

__all__ = ["eye", "fromfunction", "identity", "indices", "meshgrid", "tri", "tril", "triu", "vander"]


# -- matrices ----------------------------------------------------------------------------------------------------
@on_named_device
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an N by M matrix with ones on diagonal k.

    >>> fnp.eye(2, 3, 1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    shape = shape_tuple("eye", (N, N if M is None else M))
    on = logic.compare("eq", *_row_and_column(shape, k))
    return placed(pointwise.convert(on, result_dtype(dtype, default_float())), device)


def _row_and_column(shape: tuple[int, ...], k: int) -> tuple[Any, Any]:
    """The row index plus k and the column index at every place of the last two axes."""
    n = len(shape)
    row = layout.iota(shape, n - 2, dtypes.int32)
    return (pointwise.add(row, k) if k else row), layout.iota(shape, n - 1, dtypes.int32)


def identity(n: int, dtype: Any = None) -> Any:
    """Return the n by n identity matrix.

    >>> fnp.identity(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Return an N by M matrix with ones on and below diagonal k.

    >>> fnp.tri(2, 3)
    Array([[1., 0., 0.],
           [1., 1., 0.]], dtype=float32)
    """
    shape = shape_tuple("tri", (N, N if M is None else M))
    return pointwise.convert(logic.compare("ge", *_row_and_column(shape, k)), result_dtype(dtype, default_float()))


def _triangle(name: str, m: Any, comparison: str, k: int) -> Any:
    x = array_of(name, m)
    if x.aval.ndim < 2:
        raise ShapeError(message(name, "at least two axes are required", str(x.aval), "use tri, or reshape"))
    keep = logic.compare(comparison, *_row_and_column(x.aval.shape[-2:], k))
    return pointwise.select(expand_to(keep, x.aval.shape), x, Literal(0, x.aval.dtype))


def tril(m: Any, k: int = 0) -> Any:
    """Return the lower triangles of matrices on the last two axes: 0 above diagonal k.

    >>> fnp.tril(fnp.ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    return _triangle("tril", m, "ge", k)


def triu(m: Any, k: int = 0) -> Any:
    """Return the upper triangles of matrices on the last two axes: 0 below diagonal k.

    >>> fnp.triu(fnp.ones((2, 2)))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    return _triangle("triu", m, "le", k)


# -- grids -------------------------------------------------------------------------------------------------------
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """Return coordinate arrays for coordinate vectors; "xy" has the second coordinate along the first axis.

    >>> x, y = fnp.meshgrid(fnp.arange(2), fnp.arange(3))
    >>> x.shape, y[2, 0]
    ((3, 2), Array(2, dtype=int32))
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(message("meshgrid", 'indexing must be "xy" or "ij"', repr(indexing)))
    xs = [array_of("meshgrid", x) for x in xi]
    if any(x.aval.ndim > 1 for x in xs):
        raise ShapeError(message("meshgrid", "vectors are required", ", ".join(str(x.aval) for x in xs)))
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) >= 2:
        order[0], order[1] = 1, 0
    sizes = [xs[i].aval.size for i in order]
    out = []
    for i, x in enumerate(xs):
        at = order.index(i)
        if sparse:
            out.append(layout.reshape(x, [n if d == at else 1 for d, n in enumerate(sizes)]))
        else:
            out.append(layout.broadcast(layout.reshape(x, (x.aval.size,)), sizes, (at,)))
    return out


def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """Return the index along each axis of a grid, stacked (or a tuple of small arrays when ``sparse``).

    >>> fnp.indices((2, 2))[1]
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    shape = shape_tuple("indices", dimensions)
    kind = result_dtype(dtype, dtypes.int32)
    if sparse:
        rows = [[n if d == i else 1 for d in range(len(shape))] for i, n in enumerate(shape)]
        return tuple([layout.iota(row, i, kind) for i, row in enumerate(rows)])
    if not shape:
        return zeros((0,), kind)
    return layout.concatenate([layout.iota((1, *shape), d + 1, kind) for d in range(len(shape))], 0)


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = None, **kwargs: Any) -> Any:
    """Return ``function`` called with the index arrays of a grid (float by default, as in numpy).

    >>> fnp.fromfunction(lambda i, j: i + j, (2, 2), dtype=int)
    Array([[0, 1],
           [1, 2]], dtype=int32)
    """
    dims = shape_tuple("fromfunction", shape)
    kind = result_dtype(dtype, default_float())
    return function(*[layout.iota(dims, d, kind) for d in range(len(dims))], **kwargs)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Return the powers of a vector as columns, the highest first unless ``increasing``.

    >>> fnp.vander(fnp.asarray([2, 3]), 3)
    Array([[4, 2, 1],
           [9, 3, 1]], dtype=int32)
    """
    (v,) = numbers("vander", x)
    if v.aval.ndim != 1:
        raise ShapeError(message("vander", "a vector is required", str(v.aval)))
    n = v.aval.size if N is None else as_int("vander", N, "N")
    powers: Sequence[int] = range(n) if increasing else range(n - 1, -1, -1)
    columns = [pointwise.integer_pow(v, p) if p != 1 else v for p in powers]
    if not columns:
        return zeros((v.aval.size, 0), v.aval.dtype)
    return layout.concatenate([layout.reshape(c, (v.aval.size, 1)) for c in columns], 1)
