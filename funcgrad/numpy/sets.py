"""Sets: unique elements, membership, union, intersection, difference; equality of whole arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad.array import asarray
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.choices import select_where
from funcgrad.numpy.logical import equal, isclose
from funcgrad.numpy.positions import first_places
from funcgrad.numpy.promotion import (
    array_of,
    as_int,
    axis_index,
    broadcast_shapes,
    dense,
    filled,
    is_floating,
    operand_as,
    promote_args,
)
from funcgrad.numpy.rearrange import known
from funcgrad.numpy.reductions import all as _all
from funcgrad.numpy.sorting import searchsorted
from funcgrad.primitive import apply
from funcgrad.prims import index, layout, logic, pointwise

__all__ = [
    "allclose",
    "array_equal",
    "array_equiv",
    "intersect1d",
    "isin",
    "setdiff1d",
    "setxor1d",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]


# -- equality ----------------------------------------------------------------------------------------------------
def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether all elements are close: abs(a - b) <= atol + rtol * abs(b).

    >>> fnp.allclose(fnp.ones(2), 1.0)
    Array(True, dtype=bool)
    """
    return _all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Return whether two arrays have one shape and equal elements.

    >>> fnp.array_equal(fnp.ones(2), fnp.ones(3))
    Array(False, dtype=bool)
    """
    x, y = array_of("array_equal", a1), array_of("array_equal", a2)
    if x.aval.shape != y.aval.shape:
        return apply("copy", Literal(False, dtypes.bool_))
    same = equal(x, y)
    if equal_nan and is_floating(x) and is_floating(y):
        same = logic.logical_or(same, logic.logical_and(logic.isnan(x), logic.isnan(y)))
    return _all(same)


def array_equiv(a1: Any, a2: Any) -> Any:
    """Return whether two arrays broadcast to equal elements.

    >>> fnp.array_equiv(fnp.ones((2, 2)), fnp.ones(2))
    Array(True, dtype=bool)
    """
    x, y = array_of("array_equiv", a1), array_of("array_equiv", a2)
    try:
        broadcast_shapes(x.aval.shape, y.aval.shape)
    except ShapeError:
        return apply("copy", Literal(False, dtypes.bool_))
    return _all(equal(x, y))


# -- unique ------------------------------------------------------------------------------------------------------
class UniqueAll(NamedTuple):
    """Unique values, where each first occurs, which one each element is, and how often each occurs."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Unique values and how often each occurs."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Unique values and which one each element is."""

    values: Any
    inverse_indices: Any


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """Return the different elements in ascending order (of the flattened array, or slices along an axis).

    Optionally also where each first occurs, which one each element is, and how often each occurs.  Without ``size`` the
    values must be known in Python; with it the result is cut to that length or filled with ``fill_value`` (by default
    the smallest element), and works under jit.

    >>> fnp.unique(fnp.asarray([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    x = array_of("unique", ar)
    parts = (
        _unique_known(x, axis, equal_nan)
        if size is None
        else _unique_sized(x, axis, equal_nan, as_int("unique", size, "size"), fill_value)
    )
    chosen = [parts[0]] + [
        p for p, on in zip(parts[1:], (return_index, return_inverse, return_counts), strict=True) if on
    ]
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


def _unique_known(x: Any, axis: int | None, equal_nan: bool) -> tuple[Any, Any, Any, Any]:
    """By numpy, on values known in Python; the values are read from x, so that they have gradients."""
    host = known("unique", x, "the array without size=")
    d = None if axis is None else axis_index("unique", axis, x.aval.ndim)
    _, first, inverse, counts = np.unique(host, True, True, True, axis=d, equal_nan=equal_nan)
    at = asarray(first.astype(np.int32))
    values = index.take(layout.reshape(x, (x.aval.size,)), at, 0) if d is None else index.take(x, at, d)
    shape = host.shape if d is None else (host.shape[d],)
    return values, at, asarray(inverse.reshape(shape).astype(np.int32)), asarray(counts.astype(np.int32))


def _unique_sized(x: Any, axis: int | None, equal_nan: bool, size: int, fill: Any) -> tuple[Any, Any, Any, Any]:
    if axis is not None and x.aval.ndim != 1:
        raise NotImplementedError(message("unique", "size= needs axis=None, or a vector", f"axis={axis} of {x.aval}"))
    flat = layout.reshape(x, (x.aval.size,))
    n = flat.aval.size
    if not n:
        raise ShapeError(message("unique", "there must be an element with size=", str(x.aval)))
    order = apply("argsort", flat, axis=0)
    row = index.take(flat, order, 0)
    later, earlier = layout.slice_along(row, 0, 1, n), layout.slice_along(row, 0, 0, n - 1)
    new = logic.compare("ne", later, earlier)
    if equal_nan and is_floating(x):
        new = logic.logical_and(new, logic.logical_not(logic.isnan(earlier)))
    new = layout.pad(new, True, (1,), (0,), (0,))
    places = first_places(new, size)
    none = logic.compare("lt", places, 0)
    at = pointwise.maximum(places, 0)
    values = index.take(row, at, 0)
    if fill is not None:
        values = select_where("unique", none, operand_as("unique", fill, x.aval.dtype), values)
    first = index.take(order, at, 0)
    rank = pointwise.sub(apply("cumsum", pointwise.convert(new, dtypes.int32), axis=0, reverse=False), 1)
    inverse = index.scatter("set", filled((n,), 0, dtypes.int32), order, rank)
    zero = filled((size,), 0, dtypes.int32)
    counts = index.scatter("add", zero, rank, filled((n,), 1, dtypes.int32))
    return values, first, layout.reshape(inverse, x.aval.shape), counts


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """Return the different elements, where each first occurs, which one each element is, and how often each occurs.

    >>> fnp.unique_all(fnp.asarray([3, 1, 3])).counts
    Array([1, 2], dtype=int32)
    """
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """Return the different elements and how often each occurs.

    >>> fnp.unique_counts(fnp.asarray([3, 1, 3])).values
    Array([1, 3], dtype=int32)
    """
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """Return the different elements and which one each element is.

    >>> fnp.unique_inverse(fnp.asarray([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int32)
    """
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the different elements in ascending order.

    >>> fnp.unique_values(fnp.asarray([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# -- sets --------------------------------------------------------------------------------------------------------
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"
) -> Any:
    """Return whether each element is among the test elements.

    >>> fnp.isin(fnp.asarray([1, 2, 3]), fnp.asarray([2, 9]))
    Array([False,  True, False], dtype=bool)
    """
    x, tests = [dense(v) for v in promote_args("isin", element, test_elements)]
    n = tests.aval.size
    if not n:
        return filled(x.aval.shape, invert, dtypes.bool_)
    row = apply("sort", layout.reshape(tests, (n,)), axis=0)
    at = pointwise.minimum(searchsorted(row, x), n - 1)
    return logic.compare("ne" if invert else "eq", index.take(row, at, 0), x)


def _flat(name: str, *xs: Any) -> list[Any]:
    values = [dense(v) for v in promote_args(name, *xs)]
    return [layout.reshape(v, (v.aval.size,)) for v in values]


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the different elements of both arrays in ascending order.

    >>> fnp.union1d(fnp.asarray([1, 2]), fnp.asarray([2, 3]))
    Array([1, 2, 3], dtype=int32)
    """
    return unique(layout.concatenate(_flat("union1d", ar1, ar2), 0), size=size, fill_value=fill_value)


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """Return the different elements of the first array that are not in the second.

    >>> fnp.setdiff1d(fnp.asarray([1, 2, 3]), fnp.asarray([2]))
    Array([1, 3], dtype=int32)
    """
    x, y = _flat("setdiff1d", ar1, ar2)
    return _kept(x, isin(x, y, invert=True), assume_unique and size is None, size, fill_value)


def _kept(x: Any, mask: Any, as_is: bool, size: int | None, fill: Any) -> Any:
    """The different elements of x where a mask holds."""
    if size is None:
        at = np.flatnonzero(known("set operation", mask, "the arrays without size="))
        chosen = index.take(x, asarray(at.astype(np.int32)), 0)
        return chosen if as_is else unique(chosen)
    if not x.aval.size:
        raise ShapeError(message("set operation", "there must be an element with size=", str(x.aval)))
    # Sort what is kept in front, count it as unique, and fill behind.
    hidden = pointwise.convert(logic.logical_not(mask), dtypes.int32)
    by_value = apply("argsort", x, axis=0)
    order = index.take(by_value, apply("argsort", index.take(hidden, by_value, 0), axis=0), 0)
    row, shown = index.take(x, order, 0), index.take(mask, order, 0)
    n = row.aval.size
    new = logic.compare("ne", layout.slice_along(row, 0, 1, n), layout.slice_along(row, 0, 0, n - 1))
    places = first_places(logic.logical_and(layout.pad(new, True, (1,), (0,), (0,)), shown), size)
    values = index.take(row, pointwise.maximum(places, 0), 0)
    filler = operand_as("set operation", 0 if fill is None else fill, x.aval.dtype)
    return select_where("set operation", logic.compare("lt", places, 0), filler, values)


def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return the different elements that are in both arrays, optionally with where each first occurs in them.

    >>> fnp.intersect1d(fnp.asarray([1, 2, 3]), fnp.asarray([2, 3, 4]))
    Array([2, 3], dtype=int32)
    """
    x, y = _flat("intersect1d", ar1, ar2)
    common = _kept(x, isin(x, y), False, size, fill_value)
    if not return_indices:
        return common
    if size is not None:
        raise NotImplementedError(message("intersect1d", "return_indices needs size=None", str(size)))
    left, right = [known("intersect1d", v, "arrays for return_indices") for v in (x, y)]
    _, first, second = np.intersect1d(left, right, return_indices=True)
    return common, asarray(first.astype(np.int32)), asarray(second.astype(np.int32))


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """Return the different elements that are in exactly one of the arrays.

    >>> fnp.setxor1d(fnp.asarray([1, 2]), fnp.asarray([2, 3]))
    Array([1, 3], dtype=int32)
    """
    x, y = _flat("setxor1d", ar1, ar2)
    both = layout.concatenate([x, y], 0)
    alone = layout.concatenate([isin(x, y, invert=True), isin(y, x, invert=True)], 0)
    return _kept(both, alone, False, size, fill_value)
