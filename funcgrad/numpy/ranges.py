"""Ranges: equally spaced numbers, on a plain or a logarithmic scale."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.array import SCALARS
from funcgrad.errors import message
from funcgrad.ir import Literal
from funcgrad.numpy.creation import asarray, on_named_device, placed
from funcgrad.numpy.promotion import (
    as_int,
    broadcast_args,
    default_float,
    dense,
    expand_to,
    floating,
    result_dtype,
)
from funcgrad.primitive import apply
from funcgrad.prims import layout, pointwise
from funcgrad.trace import Value

__all__ = ["arange", "geomspace", "linspace", "logspace"]


@on_named_device
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None) -> Any:
    """Return start, start + step, ... below stop; the bounds must be known when tracing.

    >>> fnp.arange(2, 8, 3)
    Array([2, 5], dtype=int32)
    """
    given = [_known("arange", v) for v in (start, stop, step) if v is not None]
    if stop is None:
        low, high = type(given[0])(0), given[0]
    else:
        low, high = given[0], given[1]
    by = _known("arange", step) if step is not None else 1
    if by == 0:
        raise ValueError(message("arange", "the step must not be 0"))
    whole = all(isinstance(v, int) for v in (low, high, by))
    kind = result_dtype(dtype, dtypes.int32 if whole else default_float())
    n = max(0, -((low - high) // by)) if whole else max(0, math.ceil((high - low) / by))
    if whole and kind != dtypes.bool_ and (not dtypes.is_int(kind) or n == 0 or _fits(low, low + (n - 1) * by, kind)):
        return placed(_whole_range(int(n), low, by, kind), device)
    return asarray(np.arange(n, dtype=np.float64) * by + low, kind, device=device)


def _known(name: str, x: Any) -> Any:
    """A Python number for a bound."""
    if isinstance(x, (bool, int, np.integer)):
        return int(x)
    if isinstance(x, (float, np.floating)):
        return float(x)
    if isinstance(x, (Value, np.ndarray)):
        whole = dtypes.is_int(dtypes.as_dtype(x.dtype))
        return operator.index(x) if whole else float(x)  # type: ignore[arg-type]  # raises where x is no one number
    raise TypeError(message(name, "numbers are required", type(x).__name__))


def _fits(first: int, last: int, dtype: Any) -> bool:
    info = np.iinfo(dtype)
    if all(info.min <= v <= info.max for v in (first, last)):
        return True
    raise OverflowError(message("arange", f"the values must fit {dtypes.NAMES[dtype]}", f"{first} to {last}"))


def _whole_range(n: int, low: int, by: int, dtype: Any) -> Any:
    half = dtype in dtypes.HALVES
    out = layout.iota((n,), 0, dtypes.float32 if half else dtype)
    if by != 1:
        out = pointwise.mul(out, by)
    if low:
        out = pointwise.add(out, low)
    return pointwise.convert(out, dtype)


@on_named_device
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """Return ``num`` values from start to stop, equally spaced; start and stop may be arrays or traced.

    >>> fnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    n = as_int("linspace", num, "num")
    if n < 0:
        raise ValueError(message("linspace", "num must not be negative", str(n)))
    gaps = n - 1 if endpoint else n
    a, b = floating("linspace", start, stop)
    plain = isinstance(a, Literal) and isinstance(b, Literal)
    kind = result_dtype(dtype, default_float() if plain else a.aval.dtype)
    if plain:
        row, step = np.linspace(float(start), float(stop), n, endpoint, retstep=True)
        whole = np.floor(row) if dtypes.is_int(kind) else row
        out = asarray(whole, kind, device=device)
        return (out, asarray(step, default_float())) if retstep else out
    a, b = [dense(v) for v in (a, b)]
    shape = _common_shape(a, b)
    a, b = expand_to(a, shape), expand_to(b, shape)
    at = axis % (len(shape) + 1)
    full_shape = (*shape[:at], n, *shape[at:])
    dims = tuple([d for d in range(len(full_shape)) if d != at])
    t = pointwise.div(layout.iota(full_shape, at, a.aval.dtype), float(max(gaps, 1)))
    lo, hi = layout.broadcast(a, full_shape, dims), layout.broadcast(b, full_shape, dims)
    # Both ends are exact: lo * (1 - t) + hi * t.
    out = pointwise.add(pointwise.mul(lo, pointwise.sub(1.0, t)), pointwise.mul(hi, t))
    out = pointwise.convert(apply("floor", out) if dtypes.is_int(kind) else out, kind)
    return (out, pointwise.div(pointwise.sub(b, a), float(max(gaps, 1)))) if retstep else out


def _common_shape(*xs: Any) -> tuple[int, ...]:
    """The common shape of operands."""
    return np.broadcast_shapes(*[x.aval.shape for x in xs])


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    """Return ``num`` values from base**start to base**stop, equally spaced on a logarithmic scale.

    >>> fnp.logspace(0, 2, 3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    if all(isinstance(v, SCALARS) for v in (start, stop, base)):
        return asarray(np.logspace(start, stop, num, endpoint, base), result_dtype(dtype, default_float()))
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    b, e = broadcast_args("logspace", *floating("logspace", base, exponents))
    out = pointwise.pow(b, e)
    return pointwise.convert(out, result_dtype(dtype, out.aval.dtype))


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """Return ``num`` values from start to stop in geometric progression; both must have the same sign.

    >>> fnp.geomspace(1, 8, 4)
    Array([1., 2., 4., 8.], dtype=float32)
    """
    if all(isinstance(v, SCALARS) for v in (start, stop)):
        return asarray(np.geomspace(start, stop, num, endpoint), result_dtype(dtype, default_float()))
    a, b = [dense(v) for v in floating("geomspace", start, stop)]
    sign = apply("sign", a)
    logs = linspace(apply("log", pointwise.abs(a)), apply("log", pointwise.abs(b)), num, endpoint, axis=axis)
    shape = sign.aval.shape
    at = axis % (len(shape) + 1)
    out = apply("exp", logs)
    sign = layout.reshape(sign, (*shape[:at], 1, *shape[at:]))
    out = pointwise.mul(out, expand_to(sign, out.aval.shape))
    return pointwise.convert(out, result_dtype(dtype, out.aval.dtype))
