"""numpy's indexing: what an index means, and reading by it.

Integers and slices known in Python become one slice; scalars that are values become a dynamic slice; integer arrays
become one ``take`` on the merged axes.  Host indices out of range raise IndexError; values out of range are clamped.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.array import asarray, concrete
from funcgrad.errors import ConcretizationTypeError, TracerIntegerConversionError, message
from funcgrad.ir import Literal
from funcgrad.numpy.promotion import array_of, cast, filled, stack_nested
from funcgrad.prims import dynamic, index, layout, logic, pointwise
from funcgrad.trace import Value

Index = Any  # a numpy array of checked, non-negative int32, or an int32 value


EMPTY = slice(0, 0)  # stands for a scalar mask that is False: a new axis without elements


@dataclass
class Span:
    """A static slice of one axis: ``count`` elements from ``start`` in steps of ``step`` (which may be negative)."""

    start: int
    step: int
    count: int

    def full(self, n: int) -> bool:
        """Whether it is the whole axis in order."""
        return self.start == 0 and self.step == 1 and self.count == n


@dataclass
class Plan:
    """What an index means for a shape.

    ``spans`` has the slice of each axis (of one element for an integer, whole for an indexed axis), ``arrays`` the
    index arrays by axis, ``dims`` the result's axes in order: an axis number, "new" (of size 1), "empty" (of size 0),
    or "arrays" for those of the index arrays.
    """

    spans: list[Span]
    arrays: dict[int, Index] = field(default_factory=dict)
    dims: list[Any] = field(default_factory=list)

    def array_shape(self) -> tuple[int, ...]:
        """The common shape of the index arrays."""
        try:
            return np.broadcast_shapes(*[a.shape for a in self.arrays.values()])
        except ValueError:
            got = ", ".join(str(a.shape) for a in self.arrays.values())
            raise IndexError(message("index", "index arrays must broadcast to one shape", got)) from None


# -- what an index means -----------------------------------------------------------------------------------------
def parse(shape: Sequence[int], idx: Any, bounds: str) -> Plan:
    """Return the plan for an index; ``bounds`` tells what a host index out of range is: raise, clip, wrap, or -1."""
    items = _expand(shape, [_normal(i) for i in (idx if isinstance(idx, tuple) else (idx,))])
    plan = Plan([Span(0, 1, n) for n in shape])
    several = any(isinstance(i, (np.ndarray, Value)) and i.ndim > 0 for i in items)
    seen: list[int] = []  # places among the items of what numpy calls advanced indices
    axis = 0
    for place, item in enumerate(items):
        if item is None or item is EMPTY:
            plan.dims.append("new" if item is None else "empty")
            continue
        n = shape[axis]
        if isinstance(item, slice):
            plan.spans[axis] = _span(item, n)
            plan.dims.append(axis)
        elif isinstance(item, int):
            plan.spans[axis] = Span(_checked(item, n, axis, bounds), 1, 1)
            seen.append(place)
        else:
            plan.arrays[axis] = _index_array(item, n, axis, bounds)
            seen.append(place)
        if several and seen and seen[-1] == place and "arrays" not in plan.dims:
            plan.dims.append("arrays")
        axis += 1
    if several and seen[-1] - seen[0] >= len(seen):
        plan.dims.remove("arrays")
        plan.dims.insert(0, "arrays")
    return plan


def _normal(item: Any) -> Any:
    """One part of an index as None, Ellipsis, a slice, an int, a numpy array or a value."""
    if item is None or item is Ellipsis or isinstance(item, (slice, Value)):
        return item
    if isinstance(item, (bool, np.bool_)):
        return np.asarray(item)
    if isinstance(item, (list, tuple)):
        stacked = stack_nested("index", item) if _has_value(item) else np.asarray(item)
        return stacked.astype(np.int32) if isinstance(stacked, np.ndarray) and not stacked.size else stacked
    if isinstance(item, np.ndarray) or hasattr(item, "__array__"):
        a = np.asarray(item)
        return int(a) if a.ndim == 0 and a.dtype.kind in "iu" else a
    try:
        return operator.index(item)
    except TypeError:
        way_out = "use integers, slices, None, ..., or arrays of integers or bools"
        raise TypeError(message("index", "this type cannot be an index", type(item).__name__, way_out)) from None


def _has_value(x: Any) -> bool:
    return any(_has_value(v) for v in x) if isinstance(x, (list, tuple)) else isinstance(x, Value)


def _is_mask(item: Any) -> bool:
    return isinstance(item, (np.ndarray, Value)) and bool(item.dtype == dtypes.bool_)


def _expand(shape: Sequence[int], items: list[Any]) -> list[Any]:
    """Replace masks by their indices, and the ellipsis by slices."""
    used = sum(0 if i is None or i is Ellipsis else i.ndim if _is_mask(i) else 1 for i in items)
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    if used > len(shape) or len(dots) > 1:
        got = f"{used} for shape {tuple(shape)}" if used > len(shape) else "several"
        raise IndexError(
            message("index", f"at most {len(shape)} indices and one ellipsis are allowed", got, "None adds an axis")
        )
    fill = [slice(None)] * (len(shape) - used)
    at = dots[0] if dots else len(items)
    items = [*items[:at], *fill, *items[at + 1 :]]
    out: list[Any] = []
    axis = 0
    for item in items:
        if _is_mask(item):
            out += _mask_indices(item, shape[axis : axis + item.ndim])
            axis += item.ndim
        else:
            out.append(item)
            axis += item is not None and item is not EMPTY
    return out


def _mask_indices(mask: Any, shape: Sequence[int]) -> list[Any]:
    """The indices of the True elements of a mask, one array per axis; its values must be known."""
    if isinstance(mask, Value):
        ways = "use where(mask, x, other), or nonzero(mask, size=n)"
        try:
            mask = np.asarray(concrete(mask, ConcretizationTypeError, "index").numpy())
        except ConcretizationTypeError:
            requirement = "a boolean index must be known when tracing: it decides the result's shape"
            raise ConcretizationTypeError(message("index", requirement, str(mask.aval), ways)) from None
    if not mask.ndim:
        # A scalar mask adds an axis of one or no element.
        return [None if mask else EMPTY]
    # A mask without elements selects nothing along an axis of any size, as in numpy.
    if len(mask.shape) != len(shape) or any(m not in (n, 0) for m, n in zip(mask.shape, shape, strict=True)):
        raise IndexError(message("index", f"a boolean index must have shape {tuple(shape)}", str(mask.shape)))
    return [i.astype(np.int32) for i in np.nonzero(mask)]


def _span(item: slice, n: int) -> Span:
    try:
        start, stop, step = item.indices(n)
    except TypeError as e:
        way_out = "use lax.dynamic_slice_in_dim(x, start, size), whose size is static"
        got = f"{item.start}:{item.stop}:{item.step}"
        error = TracerIntegerConversionError if isinstance(e, TracerIntegerConversionError) else TypeError
        raise error(message("index", "slice bounds must be integers known when tracing", got, way_out)) from None
    return Span(start, step, len(range(start, stop, step)))


def _checked(i: int, n: int, axis: int, bounds: str) -> int:
    return int(_host_index(np.asarray(i, np.int64), n, axis, bounds))


def _host_index(i: Any, n: int, axis: int, bounds: str) -> Any:
    """Host indices as non-negative int32."""
    if bounds == "wrap" and n:
        return (i % n).astype(np.int32)
    inside = (i >= -n) & (i < n)
    if bounds == "raise" and not inside.all():
        bad = i[~inside].reshape(-1)[0]
        raise IndexError(
            message("index", f"must be in [{-n}, {n}) on axis {axis}", str(bad), 'take(..., mode="clip") or "fill"')
        )
    counted = np.where(i < 0, i + n, i)
    if bounds == "clip":
        return np.clip(counted, 0, max(n - 1, 0)).astype(np.int32)
    return np.where(inside, counted, -1).astype(np.int32)


def _index_array(item: Any, n: int, axis: int, bounds: str) -> Index:
    if item.dtype.kind not in "iu":
        got = str(item.dtype)
        raise TypeError(message("index", "index arrays must hold integers or bools", got, "convert with astype(int)"))
    if isinstance(item, np.ndarray):
        return _host_index(item.astype(np.int64), n, axis, bounds)
    if bounds == "wrap":
        r = pointwise.rem(pointwise.convert(item, dtypes.int32), n)
        return pointwise.select(logic.compare("lt", r, 0), pointwise.add(r, n), r)
    return wrap(item, n)


def wrap(i: Any, n: int) -> Any:
    """An int32 index value with negative ones counted from the end."""
    if i.aval.dtype == dtypes.uint32:
        return pointwise.convert(i, dtypes.int32)
    return pointwise.select(logic.compare("lt", i, 0), pointwise.add(i, n), i)


# -- reading -----------------------------------------------------------------------------------------------------
def getitem(x: Any, idx: Any, mode: str | None = None, fill: Any = None) -> Any:
    """``x[idx]``; mode "clip" (the default for values), "fill", "wrap" or "promise_in_bounds"."""
    kind = _read_mode(mode, fill)
    plan = parse(x.aval.shape, idx, "raise" if mode is None and kind == "clip" else "drop" if kind == "fill" else kind)
    kind = "clip" if kind == "wrap" else kind
    if "empty" in plan.dims or any(s.start < 0 for s in plan.spans if s.step > 0):
        return _all_filled(x, plan, fill)
    out = _static_part(x, plan)
    if not plan.arrays:
        return layout.reshape(out, _final_shape(plan, ()))
    if "arrays" not in plan.dims and kind == "clip":
        out = _at_scalars(out, plan)
        return layout.reshape(out, _final_shape(plan, ()))
    return _at_arrays(out, plan, kind, fill)


def _read_mode(mode: Any, fill: Any) -> str:
    name = getattr(mode, "name", mode)
    name = name.lower() if isinstance(name, str) else name
    known = {None: "clip" if fill is None else "fill", "clip": "clip", "fill": "fill", "drop": "fill", "wrap": "wrap"}
    known |= {"promise_in_bounds": "clip", "fill_or_drop": "fill"}
    if name not in known:
        raise ValueError(message("index", 'mode must be "clip", "fill", "wrap" or "promise_in_bounds"', repr(mode)))
    return known[name]


def _all_filled(x: Any, plan: Plan, fill: Any) -> Any:
    """What a read at an integer out of range gives."""
    shape = _final_shape(plan, plan.array_shape() if plan.arrays else ())
    return filled(shape, index.fill_value(fill, x.aval.dtype), x.aval.dtype)


def _static_part(x: Any, plan: Plan) -> Any:
    """Apply the slices and integers; all axes stay."""
    low, high, steps, back = [], [], [], []
    for d, s in enumerate(plan.spans):
        start = min(max(s.start, 0), max(x.aval.shape[d] - 1, 0)) if s.count else 0
        last = start + (s.count - 1) * s.step
        low.append(min(start, last) if s.count else 0)
        high.append(max(start, last) + 1 if s.count else 0)
        steps.append(abs(s.step))
        if s.step < 0 and s.count > 1:
            back.append(d)
    return layout.reverse(layout.slice_(x, low, high, steps), tuple(back))


def _final_shape(plan: Plan, array_shape: Sequence[int]) -> list[int]:
    shape: list[int] = []
    for d in plan.dims:
        if d == "arrays":
            shape += array_shape
        else:
            shape.append({"new": 1, "empty": 0}[d] if isinstance(d, str) else plan.spans[d].count)
    return shape


def _at_scalars(x: Any, plan: Plan) -> Any:
    """Read at scalars that are values: a slice of one element from a start that is clamped."""
    starts = [_as_value(plan.arrays[d]) if d in plan.arrays else Literal(0, dtypes.int32) for d in range(x.aval.ndim)]
    sizes = tuple([1 if d in plan.arrays else n for d, n in enumerate(x.aval.shape)])
    return dynamic.dynamic_slice(x, starts, sizes)


def _as_value(a: Index) -> Any:
    return asarray(a) if isinstance(a, np.ndarray) else a


def _at_arrays(x: Any, plan: Plan, mode: str, fill: Any) -> Any:
    """Read at index arrays: merge the indexed axes, take once, put the new axes in their place."""
    axes = sorted(plan.arrays)
    shape = plan.array_shape()
    # An integer's axis goes, so that indexed axes with only integers between them become neighbours.
    kept = [d for d in range(x.aval.ndim) if d in plan.dims or d in plan.arrays]
    x = layout.reshape(x, [x.aval.shape[d] for d in kept])
    places = [kept.index(d) for d in axes]
    first = places[0]
    if places != list(range(first, first + len(places))):
        x = layout.transpose(x, (*range(first), *places, *[d for d in range(first, x.aval.ndim) if d not in places]))
    sizes = x.aval.shape[first : first + len(axes)]
    at = flat_index([plan.arrays[d] for d in axes], sizes, mode)
    x = layout.reshape(x, (*x.aval.shape[:first], int(np.prod(sizes)), *x.aval.shape[first + len(axes) :]))
    out = index.take(x, _as_value(at), first, "fill" if mode == "fill" else "clip", fill)
    # Now the axes are: slices before, those of the index arrays, slices behind.
    target: list[Any] = []
    for d in [v for v in plan.dims if v != "new"]:
        target += ["arrays"] * len(shape) if d == "arrays" else [d]
    here = target.index("arrays") if shape else 0
    if shape and here != first:
        block = tuple(range(first, first + len(shape)))
        rest = [d for d in range(out.aval.ndim) if d not in block]
        out = layout.transpose(out, (*rest[:here], *block, *rest[here:]))
    return layout.reshape(out, _final_shape(plan, shape))


def flat_index(arrays: Sequence[Index], sizes: Sequence[int], mode: str) -> Index:
    """One index into the merged axes for an index into each; out of range it is clamped, or -1 in mode "fill"."""
    if len(arrays) == 1:
        return arrays[0]
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    if all(isinstance(a, np.ndarray) for a in arrays):
        bad = np.logical_or.reduce(
            np.broadcast_arrays(*[(a < 0) | (a >= n) for a, n in zip(arrays, sizes, strict=True)])
        )
        flat = (
            np.ravel_multi_index(np.broadcast_arrays(*arrays), tuple(map(int, sizes)), mode="clip")
            if 0 not in sizes
            else np.zeros(shape)
        )
        return np.where(bad, -1, flat).astype(np.int32)
    total: Any = None
    inside: Any = None
    for a, n in zip(arrays, sizes, strict=True):
        value = _as_value(a)
        if mode == "clip":
            value = pointwise.maximum(pointwise.minimum(value, n - 1), 0)
        else:
            ok = logic.logical_and(logic.compare("ge", value, 0), logic.compare("lt", value, n))
            ok = _broadcast(ok, shape)
            inside = ok if inside is None else logic.logical_and(inside, ok)
        value = _broadcast(value, shape)
        total = value if total is None else pointwise.add(pointwise.mul(total, int(n)), value)
    return total if inside is None else pointwise.select(inside, total, -1)


def _broadcast(x: Any, shape: Sequence[int]) -> Any:
    return layout.broadcast(x, shape, range(len(shape) - x.aval.ndim, len(shape)))


# -- indices of take and its kin ----------------------------------------------------------------------------------
def checked_index(name: str, indices: Any, n: int, mode: Any) -> tuple[Any, str]:
    """An int32 index value with negative ones wrapped, and the mode of the read."""
    host = not isinstance(indices, Value)
    at: Any = np.asarray(indices) if host and not _has_value(indices) else array_of(name, indices)
    if at.size == 0 and isinstance(at, np.ndarray):
        at = at.astype(np.int32)
    if at.dtype.kind not in "iu":
        raise TypeError(message(name, "indices must be integers", str(at.dtype), "convert with astype(int)"))
    if mode not in (None, "fill", "clip", "wrap", "raise", "promise_in_bounds"):
        raise ValueError(message(name, 'mode must be "clip", "fill" or "wrap"', repr(mode)))
    if isinstance(at, np.ndarray):
        if mode in (None, "raise") and ((at < -n) | (at >= n)).any():
            raise IndexError(
                message(name, f"indices must be in [{-n}, {n})", str(at[(at < -n) | (at >= n)].reshape(-1)[0]))
            )
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
