"""Reading and choosing elements by index arrays and conditions; finding where conditions hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad.array import asarray
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.choices import select_where
from funcgrad.numpy.indexing import checked_index
from funcgrad.numpy.manipulation import broadcast_to
from funcgrad.numpy.positions import nonzero
from funcgrad.numpy.promotion import array_of, axis_index, broadcast_shapes, dense, expand_to, operand_as, promote_args
from funcgrad.numpy.rearrange import known
from funcgrad.numpy.updates import update
from funcgrad.prims import index, layout
from funcgrad.trace import Value

__all__ = [
    "choose",
    "compress",
    "extract",
    "piecewise",
    "put",
    "put_along_axis",
    "select",
    "take",
    "take_along_axis",
    "where",
]


def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return x where the condition holds, else y: exact, forward and backward, whatever the choice not taken holds.

    With the condition alone, the indices where it holds, as ``nonzero`` gives them.

    >>> fnp.where(fnp.asarray([True, False]), fnp.asarray([1.0, 2.0]), 0.0)
    Array([1., 0.], dtype=float32)
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ValueError(message("where", "either both or neither of x and y must be given"))
    return select_where("where", condition, x, y)


# -- reading -----------------------------------------------------------------------------------------------------
def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Any:
    """Return the elements at indices along an axis (of the flattened array by default).

    ``mode``: "clip" takes the nearest element (negative indices become 0), "fill" gives ``fill_value`` (NaN, for
    integers the smallest) out of range, "wrap" counts around.  By default negative indices count from the end, host
    indices out of range raise IndexError, and values out of range give the fill value.

    >>> fnp.take(fnp.asarray([1.0, 2.0, 3.0]), fnp.asarray([0, 2]))
    Array([1., 3.], dtype=float32)
    """
    x = array_of("take", a)
    if axis is None:
        x, axis = layout.reshape(x, (x.aval.size,)), 0
    d = axis_index("take", axis, x.aval.ndim)
    at, kind = checked_index(
        "take", indices, x.aval.shape[d], "fill" if mode is None and fill_value is not None else mode
    )
    return index.take(x, at, d, kind, fill_value)


def take_along_axis(
    arr: Any, indices: Any, axis: int | None = -1, mode: str | None = None, fill_value: Any = None
) -> Any:
    """Return elements along an axis, each index at its own place on the other axes (which broadcast).

    >>> fnp.take_along_axis(fnp.asarray([[1, 2], [3, 4]]), fnp.asarray([[1], [0]]), axis=1)
    Array([[2],
           [3]], dtype=int32)
    """
    x = array_of("take_along_axis", arr)
    if axis is None:
        x, axis = layout.reshape(x, (x.aval.size,)), 0
    d = axis_index("take_along_axis", axis, x.aval.ndim)
    at, kind = checked_index(
        "take_along_axis", indices, x.aval.shape[d], "fill" if mode is None and fill_value is not None else mode
    )
    x, at = _aligned("take_along_axis", x, at, d)
    return index.take_along(x, at, d, kind, fill_value)


def _aligned(name: str, x: Any, at: Any, d: int) -> tuple[Any, Any]:
    """Array and indices broadcast against each other on all axes but one."""
    if x.aval.ndim != at.aval.ndim:
        way_out = "add axes to the indices with expand_dims"
        raise ShapeError(message(name, "array and indices must have one rank", f"{x.aval} and {at.aval}", way_out))
    shape = list(broadcast_shapes(*[_without(v.aval.shape, d) for v in (x, at)], name=name))
    out = []
    for v in (x, at):
        full = [*shape[:d], v.aval.shape[d], *shape[d:]]
        out.append(layout.broadcast(v, full, range(len(full))))
    return out[0], out[1]


def _without(shape: Sequence[int], d: int) -> tuple[int, ...]:
    return (*shape[:d], *shape[d + 1 :])


def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None = -1, inplace: bool = False, *, mode: str | None = None
) -> Any:
    """Return the array with values put at indices along an axis; arrays are immutable, so ``inplace`` is False.

    >>> fnp.put_along_axis(fnp.zeros((1, 3)), fnp.asarray([[1]]), 5.0, axis=1, inplace=False)
    Array([[0., 5., 0.]], dtype=float32)
    """
    if inplace:
        raise ValueError(message("put_along_axis", "inplace must be False: arrays are immutable"))
    x = array_of("put_along_axis", arr)
    if axis is None:
        flat = layout.reshape(x, (x.aval.size,))
        out = update("set", flat, (indices if isinstance(indices, Value) else np.asarray(indices),), values, mode)
        return layout.reshape(out, x.aval.shape)
    d = axis_index("put_along_axis", axis, x.aval.ndim)
    at = array_of("put_along_axis", indices)
    shape = broadcast_shapes(_without(x.aval.shape, d), _without(at.aval.shape, d), name="put_along_axis")
    full = (*shape[:d], at.aval.shape[d], *shape[d:])
    at = broadcast_to(at, full)
    grid = [np.arange(n).reshape([n if i == k else 1 for i in range(len(full))]) for k, n in enumerate(full)]
    idx = tuple([at if k == d else g for k, g in enumerate(grid)])
    return update("set", x, idx, broadcast_to(operand_as("put_along_axis", values, x.aval.dtype), full), mode)


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = False) -> Any:
    """Return the array with values (repeated as needed) put at indices of its flattened elements; ``inplace`` is False.

    >>> fnp.put(fnp.zeros(3), fnp.asarray([0, 2]), 1.0, inplace=False)
    Array([1., 0., 1.], dtype=float32)
    """
    if inplace:
        raise ValueError(message("put", "inplace must be False: arrays are immutable"))
    x = array_of("put", a)
    at = layout.reshape(ind, (ind.size,)) if isinstance(ind, Value) else np.asarray(ind).reshape(-1)
    values = array_of("put", v)
    values = layout.reshape(values, (values.aval.size,))
    if values.aval.size not in (1, at.size):
        values = index.take(values, asarray((np.arange(at.size) % values.aval.size).astype(np.int32)), 0)
    out = update("set", layout.reshape(x, (x.aval.size,)), at, values, mode)
    return layout.reshape(out, x.aval.shape)


# -- choosing ----------------------------------------------------------------------------------------------------
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """Return for each place the choice of the first condition that holds, else the default.

    >>> x = fnp.arange(4)
    >>> fnp.select([x < 1, x > 2], [x, 10 * x], -1)
    Array([ 0, -1, -1, 30], dtype=int32)
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        got = f"{len(condlist)} and {len(choicelist)}"
        raise ValueError(message("select", "as many conditions as choices, and at least one, are required", got))
    choices = promote_args("select", *choicelist, default)
    out = choices[-1]
    for c, v in zip(list(condlist)[::-1], choices[-2::-1], strict=True):
        out = select_where("select", c, v, out)
    return out


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """Return for each place the element of the choice that ``a`` numbers; out of range by ``mode`` "clip" or "wrap".

    >>> fnp.choose(fnp.asarray([1, 0]), [fnp.asarray([1, 2]), fnp.asarray([3, 4])])
    Array([3, 2], dtype=int32)
    """
    xs = [dense(x) for x in promote_args("choose", *choices)]
    which = array_of("choose", a)
    if mode == "raise":
        host = known("choose", which, 'the index with mode "raise"')
        if ((host < 0) | (host >= len(xs))).any():
            raise ValueError(message("choose", f"indices must be in [0, {len(xs)})", str(host.reshape(-1)[:8])))
    at, _ = checked_index("choose", which, len(xs), "wrap" if mode == "wrap" else "clip")
    shape = broadcast_shapes(which.aval.shape, *[x.aval.shape for x in xs], name="choose")
    rows = layout.concatenate([layout.expand(expand_to(x, shape), 0) for x in xs], 0)
    out_rows = index.take_along(rows, layout.expand(expand_to(at, shape), 0), 0)
    return layout.reshape(out_rows, shape)


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """Return per element the function (or number) of the last condition that holds; one more function is the default.

    >>> fnp.piecewise(fnp.asarray([-1.0, 2.0]), [fnp.asarray([True, False])], [lambda v: -v, lambda v: 10 * v])
    Array([ 1., 20.], dtype=float32)
    """
    a = array_of("piecewise", x)
    conditions = [condlist] if isinstance(condlist, Value) and condlist.shape == a.aval.shape else list(condlist)
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        got = f"{len(conditions)} conditions and {len(functions)} functions"
        raise ValueError(message("piecewise", "one function per condition, and at most one more, are required", got))
    has_default = len(functions) > len(conditions)
    values = [f(a, *args, **kw) if callable(f) else f for f in functions]
    out: Any = values[-1] if has_default else 0
    out = broadcast_to(operand_as("piecewise", out, a.aval.dtype), a.aval.shape)
    for c, v in zip(conditions, values, strict=False):
        out = select_where("piecewise", c, operand_as("piecewise", v, a.aval.dtype), out)
    return out


def compress(
    condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0, out: None = None
) -> Any:
    """Return the slices along an axis where a vector of conditions, known in Python unless ``size`` is given, holds.

    >>> fnp.compress(fnp.asarray([True, False, True]), fnp.asarray([1, 2, 3]))
    Array([1, 3], dtype=int32)
    """
    x, c = array_of("compress", a), array_of("compress", condition)
    if axis is None:
        x, axis = layout.reshape(x, (x.aval.size,)), 0
    d = axis_index("compress", axis, x.aval.ndim)
    (at,) = nonzero(c, size=size, fill_value=x.aval.shape[d])
    return index.take(x, at, d, "clip" if size is None else "fill", None if size is None else fill_value)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """Return the elements where a condition, known in Python unless ``size`` is given, holds.

    >>> fnp.extract(fnp.asarray([True, False]), fnp.asarray([1, 2]))
    Array([1], dtype=int32)
    """
    c = array_of("extract", condition)
    return compress(layout.reshape(c, (c.aval.size,)), arr, size=size, fill_value=fill_value)
