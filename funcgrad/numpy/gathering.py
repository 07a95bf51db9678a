"""Reading and choosing elements by index arrays and conditions; finding where conditions hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.array import asarray
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.arithmetic import select_where
from funcgrad.numpy.indexing import wrap
from funcgrad.numpy.logical import as_bool
from funcgrad.numpy.manipulation import broadcast_to
from funcgrad.numpy.promotion import (
    array_of,
    as_int,
    axis_index,
    broadcast_args,
    broadcast_shapes,
    cast,
    dense,
    expand_to,
    is_bool,
    operand,
    promote_args,
    shape_tuple,
)
from funcgrad.numpy.rearrange import known
from funcgrad.numpy.updates import update
from funcgrad.primitive import apply
from funcgrad.prims import index, layout, logic, pointwise
from funcgrad.trace import Value


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
def _index(name: str, indices: Any, n: int, mode: Any) -> tuple[Any, str]:
    """An int32 index value with negative ones wrapped, and the mode of the read."""
    host = not isinstance(indices, Value)
    at: Any = np.asarray(indices) if host and not _has_values(indices) else array_of(name, indices)
    if at.size == 0 and isinstance(at, np.ndarray):
        at = at.astype(np.int32)
    if at.dtype.kind not in "iu":
        raise TypeError(message(name, "indices must be integers", str(at.dtype), "convert with astype(int)"))
    if mode not in (None, "fill", "clip", "wrap", "raise", "promise_in_bounds"):
        raise ValueError(message(name, 'mode must be "clip", "fill" or "wrap"', repr(mode)))
    if isinstance(at, np.ndarray):
        if mode in (None, "raise") and ((at < -n) | (at >= n)).any():
            raise IndexError(message(name, f"indices must be in [{-n}, {n})", str(at[(at < -n) | (at >= n)].reshape(-1)[0])))
        wide = at.astype(np.int64)
        wide = wide % max(n, 1) if mode == "wrap" else np.where(wide < 0, wide + (n if mode != "clip" else 0), wide)
        at = asarray(np.clip(wide, -1, 2**31 - 1).astype(np.int32))
    elif mode == "wrap":
        r = pointwise.rem(cast(at, dtypes.int32), n)
        at = pointwise.select(logic.compare("lt", r, 0), pointwise.add(r, n), r)
    elif mode == "clip":  # numpy's rule: negative indices become 0
        at = cast(at, dtypes.int32)
    else:
        at = wrap(at, n)
    return at, "fill" if mode == "fill" or (mode is None and not host) else "clip"


def _has_values(x: Any) -> bool:
    return any(_has_values(v) for v in x) if isinstance(x, (list, tuple)) else isinstance(x, Value)


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

    ``mode``: "clip" takes the nearest element (negative indices become 0), "fill" gives ``fill_value`` (NaN, for integers
    the smallest) out of range, "wrap" counts around.  By default negative indices count from the end, host indices out of
    range raise IndexError, and values out of range give the fill value.

    >>> fnp.take(fnp.asarray([1.0, 2.0, 3.0]), fnp.asarray([0, 2]))
    Array([1., 3.], dtype=float32)
    """
    x = array_of("take", a)
    if axis is None:
        x, axis = layout.reshape(x, (x.aval.size,)), 0
    d = axis_index("take", axis, x.aval.ndim)
    at, kind = _index("take", indices, x.aval.shape[d], "fill" if mode is None and fill_value is not None else mode)
    return index.take(x, at, d, kind, fill_value)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1, mode: str | None = None, fill_value: Any = None) -> Any:
    """Return elements along an axis, each index at its own place on the other axes (which broadcast).

    >>> fnp.take_along_axis(fnp.asarray([[1, 2], [3, 4]]), fnp.asarray([[1], [0]]), axis=1)
    Array([[2],
           [3]], dtype=int32)
    """
    x = array_of("take_along_axis", arr)
    if axis is None:
        x, axis = layout.reshape(x, (x.aval.size,)), 0
    d = axis_index("take_along_axis", axis, x.aval.ndim)
    at, kind = _index("take_along_axis", indices, x.aval.shape[d], "fill" if mode is None and fill_value is not None else mode)
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


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None = -1, inplace: bool = False, *, mode: str | None = None) -> Any:
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
    return update("set", x, idx, broadcast_to(cast(operand("put_along_axis", values), x.aval.dtype), full), mode)


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = False) -> Any:
    """Return the array with values (repeated as needed) put at indices of its flattened elements; ``inplace`` is False.

    >>> fnp.put(fnp.zeros(3), fnp.asarray([0, 2]), 1.0, inplace=False)
    Array([1., 0., 1.], dtype=float32)
    """
    if inplace:
        raise ValueError(message("put", "inplace must be False: arrays are immutable"))
    x = array_of("put", a)
    at = ind if isinstance(ind, Value) else np.asarray(ind)
    at = at.reshape(-1)
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
    at, _ = _index("choose", which, len(xs), "wrap" if mode == "wrap" else "clip")
    shape = broadcast_shapes(which.aval.shape, *[x.aval.shape for x in xs], name="choose")
    rows = layout.concatenate([layout.expand(expand_to(x, shape), 0) for x in xs], 0)
    out_rows = index.take_along(rows, layout.expand(expand_to(at, shape), 0), 0)
    return layout.reshape(out_rows, shape)


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """Return for each element the function (or number) of the last condition that holds; one more function is the default.

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
    out = broadcast_to(cast(operand("piecewise", out), a.aval.dtype), a.aval.shape)
    for c, v in zip(conditions, values, strict=False):
        out = select_where("piecewise", c, cast(operand("piecewise", v), a.aval.dtype), out)
    return out


def compress(condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0, out: None = None) -> Any:
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


# -- finding -----------------------------------------------------------------------------------------------------
def first_places(mask: Any, size: int) -> Any:
    """The flat places of the first ``size`` True elements of a vector, in order, -1 where there are fewer."""
    n = mask.aval.size
    none = layout.broadcast(Literal(-1, dtypes.int32), (size,), ())
    if not n or not size:
        return none
    rank = pointwise.sub(apply("cumsum", pointwise.convert(mask, dtypes.int32), axis=0, reverse=False), 1)
    return index.scatter("set", none, pointwise.select(mask, rank, -1), layout.iota((n,), 0, dtypes.int32))


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Any, ...]:
    """Return the indices of the elements that are not 0, one array per axis, in row-major order.

    Without ``size`` the values must be known in Python.  With it the result is cut to that length, or filled with
    ``fill_value`` (0, or one per axis), and works under jit.

    >>> fnp.nonzero(fnp.asarray([0, 3, 0, 4]))
    (Array([1, 3], dtype=int32),)
    """
    x = array_of("nonzero", a)
    if not x.aval.ndim:
        raise ShapeError(message("nonzero", "at least one axis is required", str(x.aval), "use atleast_1d"))
    if size is None:
        places = np.nonzero(known("nonzero", x, "the array without size="))
        return tuple([asarray(p.astype(np.int32)) for p in places])
    n = as_int("nonzero", size, "size")
    flat = first_places(layout.reshape(as_bool("nonzero", x), (x.aval.size,)), n)
    found = unravel_index(pointwise.maximum(flat, 0), x.aval.shape) if x.aval.size else (flat,) * x.aval.ndim
    fills = fill_value if isinstance(fill_value, tuple) else (0 if fill_value is None else fill_value,) * x.aval.ndim
    none = logic.compare("lt", flat, 0)
    return tuple([select_where("nonzero", none, cast(operand("nonzero", f), dtypes.int32), i) for f, i in zip(fills, found, strict=True)])


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the indices of the elements of the flattened array that are not 0.

    >>> fnp.flatnonzero(fnp.asarray([[0, 3], [0, 4]]))
    Array([1, 3], dtype=int32)
    """
    x = array_of("flatnonzero", a)
    return nonzero(layout.reshape(x, (x.aval.size,)), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the indices of the elements that are not 0 as rows.

    >>> fnp.argwhere(fnp.asarray([[0, 3], [0, 4]]))
    Array([[0, 1],
           [1, 1]], dtype=int32)
    """
    x = array_of("argwhere", a)
    places = nonzero(x if x.aval.ndim else layout.reshape(x, (1,)), size=size, fill_value=fill_value)
    rows = layout.concatenate([layout.expand(p, 1) for p in places], 1)
    return rows if x.aval.ndim else layout.slice_along(rows, 1, 0, 0)


# -- index arithmetic --------------------------------------------------------------------------------------------
def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Return the index on each axis for places in the flattened array; out of range is clamped.

    >>> fnp.unravel_index(fnp.asarray([1, 5]), (2, 3))
    (Array([0, 1], dtype=int32), Array([1, 2], dtype=int32))
    """
    dims = shape_tuple("unravel_index", shape)
    total = math.prod(dims)
    at = cast(array_of("unravel_index", indices), dtypes.int32)
    at = pointwise.select(logic.compare("lt", at, 0), pointwise.add(at, total), at)
    at = pointwise.maximum(pointwise.minimum(at, max(total - 1, 0)), 0)
    out = []
    for k in range(len(dims)):
        behind = math.prod(dims[k + 1 :])
        part = pointwise.div(at, behind) if behind != 1 else at
        out.append(pointwise.rem(part, dims[k]) if k else part)
    return tuple(out)


def ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Any:
    """Return places in the flattened array for an index on each axis; out of range by ``mode``.

    >>> fnp.ravel_multi_index((fnp.asarray([0, 1]), fnp.asarray([1, 2])), (2, 3))
    Array([1, 5], dtype=int32)
    """
    shape = shape_tuple("ravel_multi_index", dims)
    parts = [cast(array_of("ravel_multi_index", i), dtypes.int32) for i in multi_index]
    if len(parts) != len(shape):
        raise ShapeError(message("ravel_multi_index", f"{len(shape)} index arrays are required", str(len(parts))))
    if order == "F":
        shape, parts = shape[::-1], parts[::-1]
    if mode == "raise":
        for p, n in zip(parts, shape, strict=True):
            host = known("ravel_multi_index", p, 'indices with mode "raise"')
            if ((host < 0) | (host >= n)).any():
                raise ValueError(message("ravel_multi_index", f"indices must be in [0, {n})", str(host)))
    total: Any = None
    for p, n in zip(parts, shape, strict=True):
        at, _ = _index("ravel_multi_index", p, n, "wrap" if mode == "wrap" else "clip")
        at = pointwise.maximum(pointwise.minimum(at, n - 1), 0)
        total = at if total is None else pointwise.add(*broadcast_args("ravel_multi_index", pointwise.mul(total, n), at))
    return total


def ix_(*args: Any) -> tuple[Any, ...]:
    """Return vectors as index arrays of an open grid: ``x[ix_(rows, columns)]`` is a block.

    >>> fnp.arange(6).reshape(2, 3)[fnp.ix_([0, 1], [2])]
    Array([[2],
           [5]], dtype=int32)
    """
    out = []
    for k, a in enumerate(args):
        x = array_of("ix_", a) if not isinstance(a, np.ndarray) and not isinstance(a, (list, tuple)) else np.asarray(a)
        if x.ndim != 1:
            raise ShapeError(message("ix_", "vectors are required", str(x.shape)))
        if x.dtype == bool or (isinstance(x, Value) and is_bool(x)):
            x = np.flatnonzero(known("ix_", x, "a mask"))
        x = array_of("ix_", x.astype(np.int32) if isinstance(x, np.ndarray) else x)
        out.append(layout.reshape(x, [x.aval.size if d == k else 1 for d in range(len(args))]))
    return tuple(out)


def _host_indices(places: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([asarray(p.astype(np.int32)) for p in places])


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """Return the indices of the main diagonal of an array with ``ndim`` axes of size n.

    >>> fnp.diag_indices(2)
    (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    return (layout.iota((as_int("diag_indices", n, "n"),), 0, dtypes.int32),) * ndim


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """Return the indices of an array's main diagonal.

    >>> fnp.diag_indices_from(fnp.eye(2))[0]
    Array([0, 1], dtype=int32)
    """
    x = array_of("diag_indices_from", arr)
    if x.aval.ndim < 2 or len(set(x.aval.shape)) != 1:
        raise ShapeError(message("diag_indices_from", "at least two axes of one size are required", str(x.aval)))
    return diag_indices(x.aval.shape[0], x.aval.ndim)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Return the indices of the lower triangle of an n by m matrix.

    >>> fnp.tril_indices(2)
    (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return _host_indices(np.tril_indices(n, k, m))  # type: ignore[return-value]


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Return the indices of the upper triangle of an n by m matrix.

    >>> fnp.triu_indices(2)
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    return _host_indices(np.triu_indices(n, k, m))  # type: ignore[return-value]


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """Return the indices of a matrix's lower triangle.

    >>> fnp.tril_indices_from(fnp.eye(2))[1]
    Array([0, 0, 1], dtype=int32)
    """
    n, m = array_of("tril_indices_from", arr).aval.shape
    return tril_indices(n, k, m)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """Return the indices of a matrix's upper triangle.

    >>> fnp.triu_indices_from(fnp.eye(2))[1]
    Array([0, 1, 1], dtype=int32)
    """
    n, m = array_of("triu_indices_from", arr).aval.shape
    return triu_indices(n, k, m)


def mask_indices(n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None) -> tuple[Any, ...]:
    """Return the indices where a function such as ``triu`` keeps elements of an n by n matrix.

    >>> fnp.mask_indices(2, fnp.triu)[1]
    Array([0, 1, 1], dtype=int32)
    """
    ones = layout.broadcast(Literal(1, dtypes.float32), (n, n), ())
    return nonzero(mask_func(ones, k), size=size)
