"""Reductions that leave NaN out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from funcgrad.ir import Literal
from funcgrad.numpy import reductions
from funcgrad.numpy.logical import as_bool
from funcgrad.numpy.promotion import array_of, axis_tuple, broadcast_args, is_floating
from funcgrad.numpy.reductions import reduce
from funcgrad.prims import logic, pointwise

__all__ = ["nanargmax", "nanargmin", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar"]


def _without_nan(name: str, a: Any, neutral: float) -> tuple[Any, Any]:
    """The array with NaN replaced, and where it was (None for integers)."""
    x = array_of(name, a)
    if not is_floating(x):
        return x, None
    missing = logic.isnan(x)
    return pointwise.select(missing, Literal(neutral, x.aval.dtype), x), missing


def _nan_where_empty(out: Any, missing: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """NaN where every element was missing."""
    if missing is None:
        return out
    empty = reduce("reduce_all", missing, axes, keepdims)
    return pointwise.select(empty, Literal(math.nan, out.aval.dtype), out)


def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Return the sum of the elements that are not NaN.

    >>> fnp.nansum(fnp.asarray([1.0, float("nan")]))
    Array(1., dtype=float32)
    """
    x, _ = _without_nan("nansum", a, 0)
    return reductions.sum(x, axis, dtype, out, keepdims, initial, where)


def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Return the product of the elements that are not NaN.

    >>> fnp.nanprod(fnp.asarray([2.0, float("nan")]))
    Array(2., dtype=float32)
    """
    x, _ = _without_nan("nanprod", a, 1)
    return reductions.prod(x, axis, dtype, out, keepdims, initial, where)


def _extremum(
    name: str,
    reduction: Callable[..., Any],
    neutral: float,
    a: Any,
    axis: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
) -> Any:
    x, missing = _without_nan(name, a, neutral)
    result = reduction(x, axis, None, keepdims, initial, where)
    if initial is not None:
        return result
    return _nan_where_empty(result, missing, axis_tuple(name, axis, x.aval.ndim), keepdims)


def nanmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """Return the largest of the elements that are not NaN; NaN where there is none.

    >>> fnp.nanmax(fnp.asarray([1.0, float("nan")]))
    Array(1., dtype=float32)
    """
    return _extremum("nanmax", reductions.max, -math.inf, a, axis, keepdims, initial, where)


def nanmin(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """Return the smallest of the elements that are not NaN; NaN where there is none.

    >>> fnp.nanmin(fnp.asarray([1.0, float("nan")]))
    Array(1., dtype=float32)
    """
    return _extremum("nanmin", reductions.min, math.inf, a, axis, keepdims, initial, where)


def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Any:
    """Return the index of the first largest element that is not NaN; -1 where all are NaN.

    >>> fnp.nanargmax(fnp.asarray([float("nan"), 1.0, 3.0]))
    Array(2, dtype=int32)
    """
    return _arg("nanargmax", reductions.argmax, -math.inf, a, axis, keepdims)


def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Any:
    """Return the index of the first smallest element that is not NaN; -1 where all are NaN.

    >>> fnp.nanargmin(fnp.asarray([float("nan"), 1.0, 3.0]))
    Array(1, dtype=int32)
    """
    return _arg("nanargmin", reductions.argmin, math.inf, a, axis, keepdims)


def _arg(name: str, find: Callable[..., Any], neutral: float, a: Any, axis: int | None, keepdims: bool) -> Any:
    x, missing = _without_nan(name, a, neutral)
    at = find(x, axis, None, keepdims)
    if missing is None:
        return at
    empty = reduce("reduce_all", missing, axis_tuple(name, axis, x.aval.ndim), keepdims)
    return pointwise.select(empty, Literal(-1, at.aval.dtype), at)


def _present(name: str, a: Any, where: Any) -> Any:
    """Which elements count."""
    x = array_of(name, a)
    here = logic.logical_not(logic.isnan(x)) if is_floating(x) else None
    if where is None or here is None:
        return here if where is None else where
    return logic.logical_and(*broadcast_args(name, as_bool(name, array_of(name, where)), here))


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None
) -> Any:
    """Return the mean of the elements that are not NaN; NaN where there is none.

    >>> fnp.nanmean(fnp.asarray([1.0, float("nan"), 3.0]))
    Array(2., dtype=float32)
    """
    return reductions.mean(a, axis, dtype, out, keepdims, where=_present("nanmean", a, where))


def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = None,
) -> Any:
    """Return the variance of the elements that are not NaN.

    >>> fnp.nanvar(fnp.asarray([1.0, float("nan"), 3.0]))
    Array(1., dtype=float32)
    """
    return reductions.var(a, axis, dtype, out, ddof, keepdims, where=_present("nanvar", a, where))


def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = None,
) -> Any:
    """Return the standard deviation of the elements that are not NaN.

    >>> fnp.nanstd(fnp.asarray([1.0, float("nan"), 3.0]))
    Array(1., dtype=float32)
    """
    return reductions.std(a, axis, dtype, out, ddof, keepdims, where=_present("nanstd", a, where))
