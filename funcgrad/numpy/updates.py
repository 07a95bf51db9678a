"""``x.at[idx].set(v)`` and its kin: an updated copy, which under a donated jit is written in place.

Writes out of range are dropped.  A box known in Python is one update of a slice; everything else one scatter of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.array import asarray
from funcgrad.errors import message
from funcgrad.ir import Literal
from funcgrad.numpy import arithmetic
from funcgrad.numpy.indexing import Plan, flat_index, getitem, parse
from funcgrad.numpy.manipulation import broadcast_to
from funcgrad.numpy.promotion import array_of, cast, filled, is_bool, operand_as
from funcgrad.prims import dynamic, index, layout, logic, pointwise
from funcgrad.trace import Value


class At:
    """``x.at``: index it to name the elements to update or to read."""

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array = array

    def __getitem__(self, idx: Any) -> AtIndex:
        return AtIndex(self.array, idx)


class AtIndex:
    """``x.at[idx]``: its methods return a copy of x with those elements updated, or read them.

    ``mode`` is "drop" (the default: writes out of range are left out), "clip", "wrap" or "promise_in_bounds";
    ``indices_are_sorted`` and ``unique_indices`` are accepted for JAX's sake.

    >>> fnp.zeros(3).at[1].set(5.0)
    Array([0., 5., 0.], dtype=float32)
    """

    __slots__ = ("array", "idx")

    def __init__(self, array: Any, idx: Any):
        self.array, self.idx = array, idx

    def set(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """Return the array with the elements replaced; of several writes to one element the last wins.

        >>> fnp.zeros(3).at[1:].set(5.0)
        Array([0., 5., 5.], dtype=float32)
        """
        return update("set", self.array, self.idx, values, mode)

    def add(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """Return the array with values added; an index that occurs twice adds twice.

        >>> fnp.zeros(3).at[fnp.asarray([0, 0])].add(1.0)
        Array([2., 0., 0.], dtype=float32)
        """
        return update("add", self.array, self.idx, values, mode)

    def subtract(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """Return the array with values subtracted.

        >>> fnp.ones(2).at[0].subtract(3.0)
        Array([-2.,  1.], dtype=float32)
        """
        return update("add", self.array, self.idx, arithmetic.negative(values), mode)

    def multiply(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """Return the array with elements multiplied.

        >>> fnp.ones(2).at[0].multiply(3.0)
        Array([3., 1.], dtype=float32)
        """
        return update("mul", self.array, self.idx, values, mode)

    mul = multiply

    def divide(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """Return the array with elements divided.

        >>> fnp.ones(2).at[0].divide(4.0)
        Array([0.25, 1.  ], dtype=float32)
        """
        x = self.array
        divisor = update("mul", filled(x.aval.shape, 1, x.aval.dtype), self.idx, values, mode)
        return cast(arithmetic.divide(x, divisor), x.aval.dtype)

    def power(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """Return the array with elements raised to powers.

        >>> fnp.full(2, 3.0).at[0].power(2.0)
        Array([9., 3.], dtype=float32)
        """
        x = self.array
        exponent = update("mul", filled(x.aval.shape, 1, x.aval.dtype), self.idx, values, mode)
        return arithmetic.power(x, exponent)

    def min(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """Return the array with elements replaced by the smaller of both.

        >>> fnp.ones(2).at[0].min(-3.0)
        Array([-3.,  1.], dtype=float32)
        """
        return update("min", self.array, self.idx, values, mode)

    def max(
        self, values: Any, *, mode: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False
    ) -> Any:
        """Return the array with elements replaced by the larger of both.

        >>> fnp.ones(2).at[0].max(3.0)
        Array([3., 1.], dtype=float32)
        """
        return update("max", self.array, self.idx, values, mode)

    def apply(self, ufunc: Callable[[Any], Any], *, mode: Any = None, **kwargs: Any) -> Any:
        """Return the array with a function applied to the elements.

        >>> fnp.full(2, 3.0).at[0].apply(lambda v: v * v)
        Array([9., 3.], dtype=float32)
        """
        return update("set", self.array, self.idx, ufunc(getitem(self.array, self.idx, mode="clip")), mode)

    def get(
        self,
        *,
        mode: Any = None,
        fill_value: Any = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """Return the elements; out of range "clip" gives the nearest, "fill" the fill value (NaN by default).

        >>> fnp.ones(2).at[fnp.asarray([0, 9])].get(mode="fill", fill_value=0.0)
        Array([1., 0.], dtype=float32)
        """
        if mode is None and fill_value is not None:
            mode = "fill"
        return getitem(self.array, self.idx, "clip" if mode is None else mode, fill_value)


# -- the update --------------------------------------------------------------------------------------------------
def update(op: str, x: Any, idx: Any, values: Any, mode: Any = None) -> Any:
    """Return x with the elements at ``idx`` set to or combined with values, which broadcast to ``x[idx]``."""
    v = operand_as("at", values, x.aval.dtype)
    if is_bool(x) and op != "set":
        raise TypeError(message(f"at[].{op}", "numbers are required", str(x.aval), "use set with & or |"))
    if _is_lone_mask(idx) and v.aval.ndim <= x.aval.ndim - idx.ndim:
        return _at_mask(op, x, idx, v)
    bounds = _write_bounds(mode)
    rows = _traced_slice(idx)
    if rows is not None:
        return _at_traced_slice(op, x, rows, v, idx[1:] if isinstance(idx, tuple) else ())
    plan = parse(x.aval.shape, idx, bounds)
    if bounds == "clip":
        plan.arrays = {d: _clipped(a, x.aval.shape[d]) for d, a in plan.arrays.items()}
    if "empty" in plan.dims or any(s.count == 0 for s in plan.spans):
        return x
    if not plan.arrays:
        if any(s.start < 0 for s in plan.spans):
            return x
        if all(abs(s.step) == 1 for s in plan.spans):
            return _at_box(op, x, plan, v)
    return _at_rows(op, x, plan, v)


def _write_bounds(mode: Any) -> str:
    name = getattr(mode, "name", mode)
    known = {None: "drop", "drop": "drop", "fill_or_drop": "drop", "fill": "drop", "clip": "clip", "wrap": "wrap"}
    known["promise_in_bounds"] = "drop"
    key = name.lower() if isinstance(name, str) else name
    if key not in known:
        raise ValueError(message("at", 'mode must be "drop", "clip", "wrap" or "promise_in_bounds"', repr(mode)))
    return known[key]


def _clipped(a: Any, n: int) -> Any:
    return a if isinstance(a, np.ndarray) else pointwise.maximum(pointwise.minimum(a, n - 1), 0)


def combine(op: str, x: Any, v: Any) -> Any:
    """One element and one value by an operation's name."""
    functions = {"add": pointwise.add, "mul": pointwise.mul, "min": pointwise.minimum, "max": pointwise.maximum}
    return v if op == "set" else functions[op](x, v)


def _is_lone_mask(idx: Any) -> bool:
    return isinstance(idx, (np.ndarray, Value)) and bool(idx.dtype == dtypes.bool_) and idx.ndim > 0


def _at_mask(op: str, x: Any, mask: Any, v: Any) -> Any:
    """A mask beside values that do not depend on how many elements it selects: a choice, so the mask may be traced."""
    m = array_of("at", mask)
    if m.aval.shape != x.aval.shape[: m.aval.ndim]:
        got = f"{m.aval.shape} for {x.aval.shape}"
        raise IndexError(message("at", "a boolean index must have the shape of the leading axes", got))
    m = layout.broadcast(m, x.aval.shape, range(m.aval.ndim))
    v = broadcast_to(v, x.aval.shape) if v.aval.ndim else v
    return pointwise.select(m, combine(op, x, v), x)


def _traced_slice(idx: Any) -> slice | None:
    """The first index if it is a slice whose bounds are values, so that the rows written tell its length."""
    first = idx[0] if isinstance(idx, tuple) and idx else idx
    if isinstance(first, slice) and any(isinstance(b, Value) for b in (first.start, first.stop)):
        return first
    return None


def _at_traced_slice(op: str, x: Any, rows: slice, v: Any, rest: Sequence[Any]) -> Any:
    """Write rows from a start that is a value; those from ``stop`` on are dropped."""
    if rows.step not in (None, 1) or any(r is not Ellipsis and r != slice(None) for r in rest) or not v.aval.ndim:
        way_out = "write an array of rows, x.at[start:stop].set(rows), or use lax.dynamic_update_slice"
        raise TypeError(
            message("at", "a slice with traced bounds must be the only index and have step 1", way_out=way_out)
        )
    n = v.aval.shape[0] if v.aval.ndim == x.aval.ndim else 1
    v = broadcast_to(v, (n, *x.aval.shape[1:]))
    size = x.aval.shape[0]
    start = _bound(rows.start, 0, size)
    at = pointwise.add(layout.iota((n,), 0, dtypes.int32), start)
    if rows.stop is not None:
        at = pointwise.select(logic.compare("lt", at, _bound(rows.stop, size, size)), at, -1)
    return index.scatter(op, x, at, v)


def _bound(b: Any, default: int, n: int) -> Any:
    if b is None:
        return default
    if not isinstance(b, Value):
        return b + n if b < 0 else b
    i = pointwise.convert(b, dtypes.int32)
    return pointwise.select(logic.compare("lt", i, 0), pointwise.add(i, n), i)


def _at_box(op: str, x: Any, plan: Plan, v: Any) -> Any:
    """A box known in Python, axes possibly backwards."""
    shape = [s.count for s in plan.spans]
    target = [1 if d == "new" else plan.spans[d].count for d in plan.dims]
    v = layout.reshape(broadcast_to(v, target), shape)
    v = layout.reverse(v, tuple([d for d, s in enumerate(plan.spans) if s.step < 0 and s.count > 1]))
    low = [s.start if s.step > 0 else s.start - s.count + 1 for s in plan.spans]
    if op != "set":
        high = [a + n for a, n in zip(low, shape, strict=True)]
        v = combine(op, layout.slice_(x, low, high), v)
    if tuple(shape) == x.aval.shape:
        return v
    return dynamic.dynamic_update_slice(x, v, [Literal(a, dtypes.int32) for a in low])


def _at_rows(op: str, x: Any, plan: Plan, v: Any) -> Any:
    """Any other index: merge the indexed axes in front, scatter rows, and move the axes back."""
    shape = x.aval.shape
    axes = [d for d, s in enumerate(plan.spans) if d in plan.arrays or not s.full(shape[d])]
    others = [d for d in range(len(shape)) if d not in axes]
    arrays = plan.array_shape() if plan.arrays else ()
    sliced = [d for d in axes if d not in plan.arrays and d in plan.dims]
    block = len(arrays) + len(sliced)  # the indices' axes: those of the arrays, then one for each slice
    indices = []
    for d in axes:
        if d in plan.arrays:
            indices.append(_with_axes(plan.arrays[d], len(sliced), block))
        else:
            s = plan.spans[d]
            row = (np.arange(s.count) * s.step + s.start if s.start >= 0 else np.full(1, -1)).astype(np.int32)
            at = len(arrays) + sliced.index(d) if d in sliced else None
            indices.append(row.reshape([s.count if k == at else 1 for k in range(block)]))
    full = (*arrays, *[plan.spans[d].count for d in sliced])
    sizes = [shape[d] for d in axes]
    flat = flat_index(indices, sizes, "fill")
    flat = np.broadcast_to(flat, full).reshape(-1) if isinstance(flat, np.ndarray) else _flattened(flat, full)
    v = _values(plan, v, arrays, sliced, others)
    rows = layout.transpose(x, (*axes, *others))
    rest = [shape[d] for d in others]
    rows = layout.reshape(rows, (int(np.prod(sizes)), *rest))
    flat = asarray(flat) if isinstance(flat, np.ndarray) else flat
    out = index.scatter(op, rows, flat, layout.reshape(v, (flat.aval.size, *rest)))
    out = layout.reshape(out, (*sizes, *rest))
    return layout.transpose(out, np.argsort((*axes, *others)).tolist())


def _with_axes(a: Any, trail: int, block: int) -> Any:
    """An index array with axes of size 1 behind it for the slices, and in front up to ``block`` axes."""
    new = (*(1,) * (block - trail - a.ndim), *a.shape, *(1,) * trail)
    return a.reshape(new) if isinstance(a, np.ndarray) else layout.reshape(a, new)


def _flattened(a: Any, full: Sequence[int]) -> Any:
    wide = layout.broadcast(a, full, range(len(full) - a.aval.ndim, len(full)))
    return layout.reshape(wide, (wide.aval.size,))


def _values(plan: Plan, v: Any, arrays: Sequence[int], sliced: Sequence[int], others: Sequence[int]) -> Any:
    """Values broadcast to the shape of ``x[idx]``, their axes in the order: index arrays, slices, untouched axes."""
    target: list[int] = []
    names: list[Any] = []
    for d in plan.dims:
        if d == "arrays":
            target += arrays
            names += [("arrays", k) for k in range(len(arrays))]
        else:
            target.append(1 if d == "new" else plan.spans[d].count)
            names += [] if d == "new" else [d]
    v = broadcast_to(v, target)
    v = layout.reshape(v, [n for n, d in zip(target, _with_new(plan, arrays), strict=True) if d != "new"])
    order = [*[("arrays", k) for k in range(len(arrays))], *sliced, *others]
    return layout.transpose(v, [names.index(d) for d in order])


def _with_new(plan: Plan, arrays: Sequence[int]) -> list[Any]:
    out: list[Any] = []
    for d in plan.dims:
        out += ["arrays"] * len(arrays) if d == "arrays" else [d]
    return out
