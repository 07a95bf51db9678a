"""Running sums and products, differences, numerical derivatives and integrals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.promotion import (
    array_as,
    array_of,
    axis_index,
    axis_tuple,
    broadcast_args,
    cast,
    dense,
    floating_arrays,
    is_bool,
    numbers,
    operand,
    operand_as,
    promote_args,
    result_dtype,
)
from funcgrad.numpy.reductions import no_out, reduce
from funcgrad.primitive import apply
from funcgrad.prims import layout, logic, pointwise

__all__ = [
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "ediff1d",
    "gradient",
    "nancumprod",
    "nancumsum",
    "trapezoid",
    "unwrap",
]


def _cumulative(name: str, prim: str, a: Any, axis: int | None, dtype: Any, reverse: bool = False) -> Any:
    x = array_of(name, a)
    x = cast(x, result_dtype(dtype, dtypes.int32 if is_bool(x) else x.aval.dtype))
    if axis is None:
        x, axis = layout.reshape(x, (x.aval.size,)), 0
    return apply(prim, x, axis=axis_index(name, axis, x.aval.ndim), reverse=reverse)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running sum along an axis (of the flattened array by default).

    >>> fnp.cumsum(fnp.asarray([1, 2, 3]))
    Array([1, 3, 6], dtype=int32)
    """
    no_out("cumsum", out)
    return _cumulative("cumsum", "cumsum", a, axis, dtype)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running product along an axis (of the flattened array by default).

    >>> fnp.cumprod(fnp.asarray([1, 2, 3]))
    Array([1, 2, 6], dtype=int32)
    """
    no_out("cumprod", out)
    return _cumulative("cumprod", "cumprod", a, axis, dtype)


def _cumulative_standard(name: str, prim: str, start: int, x: Any, axis: int | None, dtype: Any, initial: bool) -> Any:
    a = array_of(name, x)
    if axis is None:
        if a.aval.ndim != 1:
            raise ValueError(message(name, "axis must be given unless the array is a vector", str(a.aval)))
        axis = 0
    out = _cumulative(name, prim, a, axis, dtype)
    if not initial:
        return out
    low = [0] * out.aval.ndim
    low[axis_index(name, axis, out.aval.ndim)] = 1
    return layout.pad(out, start, low, [0] * out.aval.ndim, [0] * out.aval.ndim)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Return the running sum along an axis, with a leading 0 when ``include_initial``.

    >>> fnp.cumulative_sum(fnp.asarray([1, 2]), include_initial=True)
    Array([0, 1, 3], dtype=int32)
    """
    return _cumulative_standard("cumulative_sum", "cumsum", 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Return the running product along an axis, with a leading 1 when ``include_initial``.

    >>> fnp.cumulative_prod(fnp.asarray([2, 3]), include_initial=True)
    Array([1, 2, 6], dtype=int32)
    """
    return _cumulative_standard("cumulative_prod", "cumprod", 1, x, axis, dtype, include_initial)


def _without_nan(name: str, a: Any, neutral: float) -> Any:
    x = array_of(name, a)
    if x.aval.dtype not in dtypes.FLOATS:
        return x
    return pointwise.select(logic.isnan(x), Literal(neutral, x.aval.dtype), x)


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running sum along an axis, NaN counting as 0.

    >>> fnp.nancumsum(fnp.asarray([1.0, float("nan"), 3.0]))
    Array([1., 1., 4.], dtype=float32)
    """
    return cumsum(_without_nan("nancumsum", a, 0), axis, dtype, out)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running product along an axis, NaN counting as 1.

    >>> fnp.nancumprod(fnp.asarray([2.0, float("nan"), 3.0]))
    Array([2., 2., 6.], dtype=float32)
    """
    return cumprod(_without_nan("nancumprod", a, 1), axis, dtype, out)


# -- differences -------------------------------------------------------------------------------------------------
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Return the n-th difference of neighbours along an axis.

    >>> fnp.diff(fnp.asarray([1, 4, 9]))
    Array([3, 5], dtype=int32)
    """
    x = array_of("diff", a)
    if n < 0:
        raise ValueError(message("diff", "n must not be negative", str(n)))
    if not x.aval.ndim:
        raise ShapeError(message("diff", "at least one axis is required", str(x.aval)))
    d = axis_index("diff", axis, x.aval.ndim)
    edges = [_edge(x, e, d) for e in (prepend, append) if e is not None]
    if edges:
        parts = [*edges[:1], x, *edges[1:]] if prepend is not None else [x, *edges]
        x = layout.concatenate([dense(p) for p in promote_args("diff", *parts)], d)
    for _ in range(n):
        m = x.aval.shape[d]
        later, earlier = layout.slice_along(x, d, min(1, m), m), layout.slice_along(x, d, 0, max(m - 1, 0))
        x = logic.compare("ne", later, earlier) if is_bool(x) else pointwise.sub(later, earlier)
    return x


def _edge(x: Any, e: Any, d: int) -> Any:
    value = operand("diff", e)
    if value.aval.ndim:
        return value
    shape = [1 if i == d else n for i, n in enumerate(x.aval.shape)]
    return layout.broadcast(cast(value, x.aval.dtype), shape, ()) if shape else dense(value)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Return the differences of the flattened array, between optional first and last values.

    >>> fnp.ediff1d(fnp.asarray([1, 4, 9]), to_begin=0)
    Array([0, 3, 5], dtype=int32)
    """
    x = array_of("ediff1d", ary)
    middle = diff(layout.reshape(x, (x.aval.size,)))
    parts = [p for p in (to_begin, middle, to_end) if p is not None]
    flat = [array_as("ediff1d", p, middle.aval.dtype) for p in parts]
    return layout.concatenate([layout.reshape(p, (p.aval.size,)) for p in flat], 0)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Return the derivative along axes by central differences, one-sided of first order at the ends.

    The spacing is a number, one per axis, or coordinates along each axis.

    >>> fnp.gradient(fnp.asarray([0.0, 1.0, 4.0]))
    Array([1., 2., 3.], dtype=float32)
    """
    if edge_order not in (None, 1):
        raise NotImplementedError(message("gradient", "edge_order must be 1", str(edge_order)))
    (x,) = floating_arrays("gradient", f)
    axes = axis_tuple("gradient", axis, x.aval.ndim, sort=False)
    steps = varargs * len(axes) if len(varargs) == 1 else varargs or (1.0,) * len(axes)
    if len(steps) != len(axes):
        raise TypeError(message("gradient", f"1 or {len(axes)} spacings are required", str(len(steps))))
    out = [_derivative(x, d, h) for d, h in zip(axes, steps, strict=True)]
    return out[0] if len(out) == 1 else out


def _derivative(x: Any, d: int, step: Any) -> Any:
    n = x.aval.shape[d]
    if n < 2:
        raise ShapeError(
            message("gradient", "at least two elements are required along the axis", f"{x.aval} at axis {d}")
        )
    part: Callable[[Any, int, int], Any] = lambda v, a, b: layout.slice_along(v, d, a, b)
    h = operand_as("gradient", step, x.aval.dtype)
    if not h.aval.ndim:
        ends = [pointwise.sub(part(x, 1, 2), part(x, 0, 1)), pointwise.sub(part(x, n - 1, n), part(x, n - 2, n - 1))]
        inner = pointwise.mul(pointwise.sub(part(x, 2, n), part(x, 0, n - 2)), 0.5)
        return pointwise.div(layout.concatenate([ends[0], inner, ends[1]], d), h)
    if h.aval.shape != (n,):
        raise ShapeError(message("gradient", f"coordinates must have shape ({n},)", str(h.aval)))
    gaps = layout.broadcast(diff(h), [n - 1 if i == d else m for i, m in enumerate(x.aval.shape)], (d,))
    slopes = pointwise.div(diff(x, axis=d), gaps)
    before, behind = part(gaps, 0, n - 2), part(gaps, 1, n - 1)
    # The parabola through three points: the slopes weighted by the opposite gaps.
    weighted = pointwise.add(
        pointwise.mul(part(slopes, 0, n - 2), behind), pointwise.mul(part(slopes, 1, n - 1), before)
    )
    inner = pointwise.div(weighted, pointwise.add(before, behind))
    return layout.concatenate([part(slopes, 0, 1), inner, part(slopes, n - 2, n - 1)], d)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Return the integral along an axis by the trapezoidal rule, at coordinates x or in steps of dx.

    >>> fnp.trapezoid(fnp.asarray([1.0, 2.0, 3.0]))
    Array(4., dtype=float32)
    """
    if x is None:
        v, h = floating_arrays("trapezoid", y, dx)
    else:
        v, h = floating_arrays("trapezoid", y, x)
        h = diff(h, axis=axis if h.aval.ndim > 1 else -1)
    d = axis_index("trapezoid", axis, v.aval.ndim)
    n = v.aval.shape[d]
    pairs = pointwise.add(layout.slice_along(v, d, min(1, n), n), layout.slice_along(v, d, 0, max(n - 1, 0)))
    if h.aval.ndim == 1 and v.aval.ndim > 1:
        h = layout.broadcast(h, pairs.aval.shape, (d,))
    areas = pointwise.mul(*broadcast_args("trapezoid", pairs, h))
    return pointwise.mul(reduce("reduce_sum", areas, (d,), False), 0.5)


def unwrap(p: Any, discont: Any = None, axis: int = -1, period: float = 6.283185307179586) -> Any:
    """Return angles with jumps of more than half a period removed by adding multiples of the period.

    >>> fnp.unwrap(fnp.asarray([0.0, 3.0, -3.0]))
    Array([0. , 3. , 3.283], dtype=float32)
    """
    (x,) = numbers("unwrap", dense(floating_arrays("unwrap", p)[0]))
    d = axis_index("unwrap", axis, x.aval.ndim)
    steps = pointwise.stop_gradient(diff(x, axis=d))
    half = period / 2
    turns = apply("floor", pointwise.div(pointwise.add(steps, half), period))
    turned = pointwise.sub(steps, pointwise.mul(turns, period))
    edge = logic.logical_and(logic.compare("eq", turned, -half), logic.compare("gt", steps, 0))
    turned = pointwise.select(edge, Literal(half, x.aval.dtype), turned)
    correct = pointwise.sub(turned, steps)
    limit = half if discont is None else discont
    correct = pointwise.select(logic.compare("lt", pointwise.abs(steps), limit), Literal(0, x.aval.dtype), correct)
    total = apply("cumsum", correct, axis=d, reverse=False)
    low = [1 if i == d else 0 for i in range(x.aval.ndim)]
    return pointwise.add(x, layout.pad(total, 0, low, [0] * x.aval.ndim, [0] * x.aval.ndim))
