"""lax's reductions, running results, sorting, and reductions over windows."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.lax import elementwise
from funcgrad.lax.convolution import padtype_to_pads
from funcgrad.numpy import arithmetic, choices, logical
from funcgrad.numpy.promotion import array_of, as_int, axis_index, axis_tuple, cast, dense, operand_as, result_dtype
from funcgrad.numpy.sorting import _descending_order
from funcgrad.primitive import apply
from funcgrad.prims import index, layout, logic, pointwise, window
from funcgrad.prims.order import Sort
from funcgrad.trace import bind_all

__all__ = [
    "argmax",
    "argmin",
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "reduce",
    "reduce_and",
    "reduce_max",
    "reduce_min",
    "reduce_or",
    "reduce_prod",
    "reduce_sum",
    "reduce_window",
    "sort",
    "sort_key_val",
    "top_k",
]


# -- reductions --------------------------------------------------------------------------------------------------
def _reduction(name: str, prim: str, what: str, example: str) -> Callable[..., Any]:
    call, _, result = example.partition(" -> ")

    def function(operand: Any, axes: Sequence[int]) -> Any:
        x = array_of(name, operand)
        found = axis_tuple(name, tuple(axes), x.aval.ndim)
        return apply(prim, x, axes=found) if found else x

    function.__name__ = function.__qualname__ = name
    text = f">>> lax.{name}(fnp.asarray({call}), (0,))\n    Array({result})"
    function.__doc__ = f"Return {what} along axes, which vanish.\n\n    {text}\n    "
    return function


reduce_sum = _reduction("reduce_sum", "reduce_sum", "the sum", "[1.0, 2.0] -> 3., dtype=float32")
reduce_prod = _reduction("reduce_prod", "reduce_prod", "the product", "[3.0, 2.0] -> 6., dtype=float32")
reduce_max = _reduction("reduce_max", "reduce_max", "the largest element", "[3.0, 2.0] -> 3., dtype=float32")
reduce_min = _reduction("reduce_min", "reduce_min", "the smallest element", "[3.0, 2.0] -> 2., dtype=float32")
reduce_and = _reduction("reduce_and", "reduce_all", "whether all are true", "[True, False] -> False, dtype=bool")
reduce_or = _reduction("reduce_or", "reduce_any", "whether any is true", "[True, False] -> True, dtype=bool")

_MONOIDS: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("sum", pointwise.add, (elementwise.add, arithmetic.add, pointwise.add)),
    ("prod", pointwise.mul, (elementwise.mul, arithmetic.multiply, pointwise.mul)),
    ("max", pointwise.maximum, (elementwise.max, choices.maximum, pointwise.maximum, builtins.max)),
    ("min", pointwise.minimum, (elementwise.min, choices.minimum, pointwise.minimum, builtins.min)),
    ("all", logic.logical_and, (elementwise.bitwise_and, logical.logical_and, logical.bitwise_and)),
    ("any", logic.logical_or, (elementwise.bitwise_or, logical.logical_or, logical.bitwise_or)),
]


def _monoid(name: str, computation: Any) -> tuple[str, Any]:
    for op, combine, functions in _MONOIDS:
        if any(computation is f for f in functions):
            return op, combine
    way_out = "use lax.add, mul, max, min, bitwise_and or bitwise_or, or lax.associative_scan"
    raise NotImplementedError(message(name, "the computation must be one of lax's", repr(computation), way_out))


def reduce(operands: Any, init_values: Any, computation: Callable[[Any, Any], Any], dimensions: Sequence[int]) -> Any:
    """Return a reduction by lax.add, mul, max, min, bitwise_and or bitwise_or along axes, starting from a value.

    >>> lax.reduce(fnp.asarray([1.0, 2.0]), 0.0, lax.add, (0,))
    Array(3., dtype=float32)
    """
    op, combine = _monoid("reduce", computation)
    x = array_of("reduce", operands)
    axes = axis_tuple("reduce", tuple(dimensions), x.aval.ndim)
    start = operand_as("reduce", init_values, x.aval.dtype)
    if op in ("max", "min") and any(x.aval.shape[d] == 0 for d in axes):
        return dense(layout.broadcast(start, [n for d, n in enumerate(x.aval.shape) if d not in axes], ()))
    return combine(apply(f"reduce_{op}", x, axes=axes) if axes else x, start)


def argmax(operand: Any, axis: int, index_dtype: Any = dtypes.int32) -> Any:
    """Return the index of the first largest element along an axis.

    >>> lax.argmax(fnp.asarray([1.0, 3.0, 2.0]), 0)
    Array(1, dtype=int32)
    """
    x = array_of("argmax", operand)
    return cast(apply("argmax", x, axis=axis_index("argmax", axis, x.aval.ndim)), result_dtype(index_dtype, None))


def argmin(operand: Any, axis: int, index_dtype: Any = dtypes.int32) -> Any:
    """Return the index of the first smallest element along an axis.

    >>> lax.argmin(fnp.asarray([1.0, 3.0, 2.0]), 0)
    Array(0, dtype=int32)
    """
    x = array_of("argmin", operand)
    return cast(apply("argmin", x, axis=axis_index("argmin", axis, x.aval.ndim)), result_dtype(index_dtype, None))


def _running(name: str, what: str, example: str) -> Callable[..., Any]:
    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        x = array_of(name, operand)
        return apply(name, x, axis=axis_index(name, axis, x.aval.ndim), reverse=bool(reverse))

    function.__name__ = function.__qualname__ = name
    call, _, result = example.partition(" -> ")
    text = f">>> lax.{name}(fnp.asarray({call}))\n    Array({result}, dtype=float32)"
    first = f"Return the running {what} along an axis, from the other end when ``reverse``."
    function.__doc__ = f"{first}\n\n    {text}\n    "
    return function


cumsum = _running("cumsum", "sum", "[1.0, 2.0, 3.0] -> [1., 3., 6.]")
cumprod = _running("cumprod", "product", "[1.0, 2.0, 3.0] -> [1., 2., 6.]")
cummax = _running("cummax", "maximum", "[1.0, 3.0, 2.0] -> [1., 3., 3.]")
cummin = _running("cummin", "minimum", "[3.0, 1.0, 2.0] -> [3., 1., 1.]")
cumlogsumexp = _running("cumlogsumexp", "log of the sum of exponentials", "[0.0, 0.0] -> [0. , 0.693]")


# -- sorting -----------------------------------------------------------------------------------------------------
def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Return an array in ascending order along an axis, or several in the order of the first ``num_keys``.

    >>> lax.sort(fnp.asarray([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    if not isinstance(operand, (tuple, list)):
        x = array_of("sort", operand)
        return apply("sort", x, axis=axis_index("sort", dimension, x.aval.ndim))
    xs = [array_of("sort", x) for x in operand]
    d = axis_index("sort", dimension, xs[0].aval.ndim)
    if num_keys == 1:
        return tuple(bind_all(Sort(d), *xs))
    order = apply("argsort", xs[num_keys - 1], axis=d)
    for key in xs[num_keys - 2 :: -1] if num_keys > 1 else []:
        order = index.take_along(order, apply("argsort", index.take_along(key, order, d), axis=d), d)
    return tuple([index.take_along(x, order, d) for x in xs])


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Any, Any]:
    """Return keys in ascending order along an axis, and the values in the same order.

    >>> lax.sort_key_val(fnp.asarray([2, 1]), fnp.asarray([20, 10]))
    (Array([1, 2], dtype=int32), Array([10, 20], dtype=int32))
    """
    k, v = sort((keys, values), dimension, is_stable)
    return k, v


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Any, Any]:
    """Return the k largest elements along an axis, largest first, and their indices; of equals the first comes first.

    >>> lax.top_k(fnp.asarray([1.0, 3.0, 2.0]), 2)
    (Array([3., 2.], dtype=float32), Array([1, 2], dtype=int32))
    """
    x = array_of("top_k", operand)
    d = axis_index("top_k", axis, x.aval.ndim)
    n, count = x.aval.shape[d], as_int("top_k", k, "k")
    if not 0 <= count <= n:
        raise ShapeError(message("top_k", f"k must be in [0, {n}]", str(count)))
    at = layout.slice_along(_descending_order(x, d), d, 0, count)
    return index.take_along(x, at, d), at


# -- windows -----------------------------------------------------------------------------------------------------
def reduce_window(
    operand_: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Return a reduction (lax.add, max or min) of each window of the array, starting from a value.

    ``padding`` is "VALID", "SAME", "SAME_LOWER" or a pair for each axis.

    >>> lax.reduce_window(fnp.arange(4.0), 0.0, lax.add, (2,), (2,))
    Array([1., 5.], dtype=float32)
    """
    x = array_of("reduce_window", operand_)
    op, combine = _monoid("reduce_window", computation)
    if op not in ("sum", "max", "min"):
        raise NotImplementedError(message("reduce_window", "the computation must be lax.add, max or min", op))
    given = {"window_dimensions": window_dimensions, "window_strides": window_strides}
    given |= {"base_dilation": base_dilation, "window_dilation": window_dilation}
    size, strides, base, inner = [_per_axis("reduce_window", k, v, x.aval.ndim) for k, v in given.items()]
    pads = padding
    if isinstance(padding, str):
        spread = [window.dilated(n, b) for n, b in zip(x.aval.shape, base, strict=True)]
        covered = [window.dilated(k, w) for k, w in zip(size, inner, strict=True)]
        pads = padtype_to_pads(spread, covered, strides, padding)
    elif not hasattr(padding, "__len__") or not all(hasattr(p, "__len__") and len(p) == 2 for p in padding):
        raise ShapeError(message("reduce_window", "padding must be a name or a pair for each axis", repr(padding)))
    out = window.reduce_window(op, x, size, strides, tuple([tuple(p) for p in pads]), base, inner)
    start = operand_as("reduce_window", init_value, x.aval.dtype)
    return out if isinstance(start, Literal) and _neutral(op, start) else combine(out, start)


def _per_axis(name: str, what: str, sizes: Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """One size for each axis, 1 where there are none."""
    if sizes is None:
        return (1,) * ndim
    if not hasattr(sizes, "__len__") or len(sizes) != ndim:
        raise ShapeError(message(name, f"{what} must have one size for each of the {ndim} axes", repr(sizes)))
    return tuple([as_int(name, n, what) for n in sizes])


def _neutral(op: str, start: Literal) -> bool:
    value, dtype = start.item(), start.aval.dtype
    if op == "sum":
        return value == 0
    limits = (-np.inf, np.inf) if dtype in dtypes.FLOATS else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(value == limits[0 if op == "max" else 1])
