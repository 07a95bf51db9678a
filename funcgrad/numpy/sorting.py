"""Sorting and searching: NaN is the largest, equal elements keep their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.promotion import array_of, axis_index, dense, is_floating, operand_as, promote_args
from funcgrad.primitive import apply
from funcgrad.prims import index, layout, logic, pointwise

__all__ = ["argpartition", "argsort", "digitize", "lexsort", "partition", "searchsorted", "sort"]


def _along(name: str, a: Any, axis: int | None) -> tuple[Any, int]:
    x = array_of(name, a)
    if axis is None:
        return layout.reshape(x, (x.aval.size,)), 0
    return x, axis_index(name, axis, x.aval.ndim)


def sort(
    a: Any,
    axis: int | None = -1,
    kind: None = None,
    order: None = None,
    *,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """Return the elements in ascending order along an axis (None: flattened); NaN comes last.

    >>> fnp.sort(fnp.asarray([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    x, d = _along("sort", a, axis)
    if not descending:
        return apply("sort", x, axis=d)
    return index.take_along(x, _descending_order(x, d), d)


def _descending_order(x: Any, d: int) -> Any:
    """The stable descending order: the ascending one of the reversed array, read backwards."""
    order = apply("argsort", layout.reverse(x, (d,)), axis=d)
    return pointwise.sub(x.aval.shape[d] - 1, layout.reverse(order, (d,)))


def argsort(
    a: Any,
    axis: int | None = -1,
    kind: None = None,
    order: None = None,
    *,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """Return the indices that sort along an axis; the order of equal elements is kept.

    >>> fnp.argsort(fnp.asarray([3, 1, 2]))
    Array([1, 2, 0], dtype=int32)
    """
    x, d = _along("argsort", a, axis)
    return _descending_order(x, d) if descending else apply("argsort", x, axis=d)


def lexsort(keys: Sequence[Any], axis: int = -1) -> Any:
    """Return the indices that sort by the last key, then the one before it, and so on.

    >>> fnp.lexsort([fnp.asarray([2, 1, 0]), fnp.asarray([0, 0, 1])])
    Array([1, 0, 2], dtype=int32)
    """
    xs = [array_of("lexsort", k) for k in keys]
    if not xs or any(x.aval.shape != xs[0].aval.shape for x in xs):
        raise ShapeError(message("lexsort", "keys of one shape are required", ", ".join(str(x.aval) for x in xs)))
    d = axis_index("lexsort", axis, xs[0].aval.ndim)
    order = apply("argsort", xs[0], axis=d)
    for x in xs[1:]:
        order = index.take_along(order, apply("argsort", index.take_along(x, order, d), axis=d), d)
    return order


def partition(a: Any, kth: int, axis: int = -1) -> Any:
    """Return the elements with the kth in its sorted place: here, sorted.

    >>> fnp.partition(fnp.asarray([3, 1, 2]), 1)
    Array([1, 2, 3], dtype=int32)
    """
    x, d = _along("partition", a, axis)
    axis_index("partition: kth", kth, x.aval.shape[d])
    return apply("sort", x, axis=d)


def argpartition(a: Any, kth: int, axis: int = -1) -> Any:
    """Return indices that put the kth element in its sorted place: here, those that sort.

    >>> fnp.argpartition(fnp.asarray([3, 1, 2]), 1)
    Array([1, 2, 0], dtype=int32)
    """
    x, d = _along("argpartition", a, axis)
    axis_index("argpartition: kth", kth, x.aval.shape[d])
    return apply("argsort", x, axis=d)


# -- searching ---------------------------------------------------------------------------------------------------
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Any:
    """Return where in the sorted vector a the values v would be inserted, before ("left") or behind ("right") equals.

    >>> fnp.searchsorted(fnp.asarray([1, 3, 5]), fnp.asarray([0, 3, 9]))
    Array([0, 1, 3], dtype=int32)
    """
    if side not in ("left", "right"):
        raise ValueError(message("searchsorted", 'side must be "left" or "right"', repr(side)))
    row, x = [dense(w) for w in promote_args("searchsorted", a, v)]
    if row.aval.ndim != 1:
        raise ShapeError(message("searchsorted", "a must be a vector", str(row.aval)))
    if sorter is not None:
        row = index.take(row, operand_as("searchsorted", sorter, dtypes.int32), 0)
    if method == "compare_all" or row.aval.size <= 32:
        return _count_below(row, x, side)
    return _bisect(row, x, side)


def _below(a: Any, x: Any, side: str) -> Any:
    """Whether a's element lies before the insertion point of x; NaN is the largest."""
    plain = logic.compare("lt" if side == "left" else "le", a, x)
    if not is_floating(a):
        return plain
    if side == "left":
        return logic.logical_or(plain, logic.logical_and(logic.isnan(x), logic.logical_not(logic.isnan(a))))
    return logic.logical_or(plain, logic.isnan(x))


def _count_below(row: Any, x: Any, side: str) -> Any:
    full = (*x.aval.shape, row.aval.size)
    a = layout.broadcast(row, full, (x.aval.ndim,))
    b = layout.broadcast(x, full, range(x.aval.ndim))
    return layout.reduce_sum(pointwise.convert(_below(a, b, side), dtypes.int32), (x.aval.ndim,))


def _bisect(row: Any, x: Any, side: str) -> Any:
    """The answer's bits from the highest down: add a power of two wherever the element before still lies below."""
    n = row.aval.size
    found: Any = None
    for k in range(n.bit_length() - 1, -1, -1):
        step = 1 << k
        tried = pointwise.add(found, step) if found is not None else layout.broadcast(_int(step), x.aval.shape, ())
        inside = logic.compare("le", tried, n)
        below = _below(index.take(row, pointwise.minimum(pointwise.sub(tried, 1), n - 1), 0), x, side)
        ok = logic.logical_and(inside, below)
        found = pointwise.select(ok, tried, found if found is not None else 0)
    return found


def _int(value: int) -> Any:
    return dense(promote_args("searchsorted", value)[0])


def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Any:
    """Return the number of the bin that each value falls into; bins ascend or descend.

    >>> fnp.digitize(fnp.asarray([0.5, 2.5]), fnp.asarray([0.0, 1.0, 2.0]))
    Array([1, 3], dtype=int32)
    """
    values, edges = [dense(w) for w in promote_args("digitize", x, bins)]
    if edges.aval.ndim != 1:
        raise ShapeError(message("digitize", "bins must be a vector", str(edges.aval)))
    side = "left" if right else "right"
    n = edges.aval.size
    if n < 2:
        return searchsorted(edges, values, side)
    first, last = layout.slice_along(edges, 0, 0, 1), layout.slice_along(edges, 0, n - 1, n)
    rising = layout.reshape(logic.compare("le", first, last), ())
    up = searchsorted(edges, values, side)
    down = pointwise.sub(n, searchsorted(layout.reverse(edges, (0,)), values, "right" if right else "left"))
    return pointwise.select(rising, up, down)
