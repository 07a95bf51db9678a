"""lax's general gather and scatter: windows of static size read from, or written to, places that are values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.indexing import wrap
from funcgrad.numpy.promotion import array_as, array_of
from funcgrad.prims import index, layout, logic, operations
from funcgrad.trace import Value

__all__ = [
    "GatherDimensionNumbers",
    "ScatterDimensionNumbers",
    "gather",
    "index_take",
    "scatter",
    "scatter_add",
    "scatter_apply",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_sub",
]


class GatherDimensionNumbers(NamedTuple):
    """Which axes of the result are the windows', and which of the operand vanish, are indexed, or are batch axes."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """Which axes of the updates are the windows', and which of the operand they lack, are indexed or are batch axes."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


def _mode(name: str, mode: Any, default: str) -> str:
    key = str(getattr(mode, "name", mode)).lower() if mode is not None else default
    known = {"clip": "clip", "fill": "fill", "fill_or_drop": "fill", "drop": "fill", "promise_in_bounds": "clip"}
    if key not in known:
        raise ValueError(message(name, 'mode must be "clip", "fill" or "promise_in_bounds"', repr(mode)))
    return known[key]


def _places(
    name: str, shape: Sequence[int], indices: Any, sizes: Sequence[int], mapped: Any, batching: Any, mode: str
) -> tuple[Any, tuple[int, ...]]:
    """Flat places in the operand, [*batch axes of the indices, *window axes], -1 for windows that do not fit."""
    lead, rank = indices.aval.shape[:-1], len(shape)
    if indices.aval.shape[-1] != len(mapped):
        raise ShapeError(message(name, f"the last axis of the indices must have size {len(mapped)}", str(indices.aval)))
    full = (*lead, *sizes)
    n = len(lead)
    total: Any = None
    inside: Any = None
    batch = dict(zip(*batching, strict=True))
    for d in range(rank):
        at = layout.iota(full, n + d, dtypes.int32) if sizes[d] > 1 else None
        if d in batch:
            start = layout.iota(lead, batch[d], dtypes.int32)
        elif d in mapped:
            k = mapped.index(d)
            start = layout.reshape(layout.slice_along(indices, n, k, k + 1), lead)
            last = shape[d] - sizes[d]
            if mode == "clip":
                start = operations.maximum(operations.minimum(start, last), 0)
            else:
                ok = logic.logical_and(logic.compare("ge", start, 0), logic.compare("le", start, last))
                inside = ok if inside is None else logic.logical_and(inside, ok)
        else:
            start = None
        if start is not None:
            wide = layout.broadcast(start, full, range(n))
            at = wide if at is None else operations.add(wide, at)
        stride = math.prod(shape[d + 1 :])
        if at is not None:
            part = operations.mul(at, stride) if stride != 1 else at
            total = part if total is None else operations.add(total, part)
    if total is None:
        total = layout.broadcast(Literal(0, dtypes.int32), full, ())
    if inside is not None:
        total = operations.select(layout.broadcast(inside, full, range(n)), total, -1)
    return total, full


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> Any:
    """Return windows of ``slice_sizes`` from the places that rows of the indices (on their last axis) name.

    A window that does not fit is moved ("clip") or gives ``fill_value`` ("fill", the default).

    >>> numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> lax.gather(fnp.arange(6).reshape(3, 2), fnp.asarray([[2], [0]]), numbers, (1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    x, at = array_of("gather", operand), array_as("gather", start_indices, dtypes.int32)
    kind, numbers, sizes = _mode("gather", mode, "fill"), dimension_numbers, tuple(slice_sizes)
    if len(sizes) != x.aval.ndim or any(not 0 <= s <= n for s, n in zip(sizes, x.aval.shape, strict=True)):
        raise ShapeError(message("gather", f"slice sizes must fit {x.aval.shape}", str(sizes)))
    batching = (numbers.operand_batching_dims, numbers.start_indices_batching_dims)
    flat, full = _places("gather", x.aval.shape, at, sizes, tuple(numbers.start_index_map), batching, kind)
    out = index.take(layout.reshape(x, (x.aval.size,)), flat, 0, kind, fill_value)
    n = at.aval.ndim - 1
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [d for d in range(x.aval.ndim) if d not in gone]
    out = layout.reshape(out, (*full[:n], *[sizes[d] for d in kept]))
    order: list[int] = []
    batch, window = iter(range(n)), iter(range(n, out.aval.ndim))
    for d in range(out.aval.ndim):
        order.append(next(window if d in numbers.offset_dims else batch))
    return layout.transpose(out, order)


def _scatter(
    name: str, op: str, operand: Any, indices: Any, updates: Any, numbers: ScatterDimensionNumbers, mode: Any
) -> Any:
    x, at = array_of(name, operand), array_as(name, indices, dtypes.int32)
    u = array_as(name, updates, x.aval.dtype)
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = iter([u.aval.shape[d] for d in numbers.update_window_dims])
    sizes = tuple([1 if d in gone else next(window) for d in range(x.aval.ndim)])
    kind = _mode(name, mode, "fill")
    batching = (numbers.operand_batching_dims, numbers.scatter_indices_batching_dims)
    flat, full = _places(name, x.aval.shape, at, sizes, tuple(numbers.scatter_dims_to_operand_dims), batching, kind)
    outer = [d for d in range(u.aval.ndim) if d not in numbers.update_window_dims]
    u = layout.transpose(u, (*outer, *numbers.update_window_dims))
    if u.aval.size != math.prod(full):
        raise ShapeError(
            message(name, "the updates must have the indices' axes and those of the windows", f"{u.aval} for {full}")
        )
    rows = layout.reshape(x, (x.aval.size,))
    out = index.scatter(op, rows, layout.reshape(flat, (u.aval.size,)), layout.reshape(u, (u.aval.size,)))
    return layout.reshape(out, x.aval.shape)


def _scatter_function(name: str, op: str, what: str, result: str) -> Callable[..., Any]:
    def function(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
    ) -> Any:
        return _scatter(name, op, operand, scatter_indices, updates, dimension_numbers, mode)

    function.__name__ = function.__qualname__ = name
    call = "fnp.asarray([5.0, 2.0]), fnp.asarray([[1]]), fnp.asarray([3.0])"
    function.__doc__ = f"""Return the operand with windows at the places that the indices name {what} the updates.

    A window that does not fit is left out ("fill", the default) or moved ("clip").

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.{name}({call}, numbers)
    Array([{result}], dtype=float32)
    """
    return function


scatter = _scatter_function("scatter", "set", "replaced by", "5., 3.")
scatter_add = _scatter_function("scatter_add", "add", "increased by", "5., 5.")
scatter_mul = _scatter_function("scatter_mul", "mul", "multiplied by", "5., 6.")
scatter_min = _scatter_function("scatter_min", "min", "limited from above by", "5., 2.")
scatter_max = _scatter_function("scatter_max", "max", "limited from below by", "5., 3.")


def scatter_sub(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Any:
    """Return the operand with windows at the places that the indices name decreased by the updates.

    >>> lax.scatter_sub(fnp.ones(2), fnp.asarray([[1]]), fnp.ones(1), lax.ScatterDimensionNumbers((), (0,), (0,)))
    Array([1., 0.], dtype=float32)
    """
    negative = operations.neg(array_of("scatter_sub", updates))
    return _scatter("scatter_sub", "add", operand, scatter_indices, negative, dimension_numbers, mode)


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Any:
    """Return the operand with a function applied to the elements of windows, each once.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_apply(fnp.ones(2), fnp.asarray([[1]]), lambda v: v * 7, numbers, update_shape=(1,))
    Array([1., 7.], dtype=float32)
    """
    x = array_of("scatter_apply", operand)
    marks = layout.broadcast(Literal(1, dtypes.float32), tuple(update_shape), ())
    none = layout.broadcast(Literal(0, dtypes.float32), x.aval.shape, ())
    chosen = _scatter("scatter_apply", "max", none, scatter_indices, marks, dimension_numbers, mode)
    return operations.select(logic.compare("gt", chosen, 0), array_as("scatter_apply", func(x), x.aval.dtype), x)


def index_take(src: Any, idxs: Any, axes: Sequence[int]) -> Any:
    """Return the slices of an array at index vectors, one for each of ``axes``; negative indices count from the end.

    >>> lax.index_take(fnp.arange(6).reshape(3, 2), (fnp.asarray([2, 0]),), (0,))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    x = array_of("index_take", src)
    columns = [wrap(_vector(i), x.aval.shape[d]) for i, d in zip(idxs, axes, strict=True)]
    at = layout.concatenate([layout.expand(c, 1) for c in columns], 1)
    sizes = [1 if d in axes else n for d, n in enumerate(x.aval.shape)]
    offset = tuple(range(1, x.aval.ndim - len(tuple(axes)) + 1))
    return gather(x, at, GatherDimensionNumbers(offset, tuple(axes), tuple(axes)), sizes, mode="clip")


def _vector(i: Any) -> Any:
    x = array_of("index_take", i if isinstance(i, Value) else np.asarray(i))
    if x.aval.ndim != 1:
        raise ShapeError(message("index_take", "index vectors are required", str(x.aval)))
    return x
