"""lax's enumerations, and small operations that are others under another name."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from funcgrad import dtypes, tree
from funcgrad.errors import message
from funcgrad.lax.convolution import conv_dimension_numbers, padtype_to_pads
from funcgrad.lax.reductions import top_k
from funcgrad.numpy.creation import zeros
from funcgrad.numpy.functions import imag
from funcgrad.numpy.joining import stack, unstack
from funcgrad.numpy.promotion import array_of, axis_tuple
from funcgrad.numpy.rearrange import tile
from funcgrad.prims import layout, logic, operations
from funcgrad.prims.window import dilated, window_counts

__all__ = [
    "GatherScatterMode",
    "Precision",
    "RoundingMethod",
    "approx_max_k",
    "approx_min_k",
    "broadcast_like",
    "conv_general_shape_tuple",
    "conv_shape_tuple",
    "conv_transpose_shape_tuple",
    "dtype",
    "empty",
    "optimization_barrier",
    "reduce_window_shape_tuple",
    "reduce_xor",
    "imag",
    "stack",
    "tile",
    "unstack",
]


class Precision(enum.Enum):
    """JAX's names for the precision of products; here all of them are float32."""

    DEFAULT = "default"
    HIGH = "high"
    HIGHEST = "highest"


class RoundingMethod(enum.IntEnum):
    """How ``lax.round`` treats halves."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


class GatherScatterMode(enum.Enum):
    """What an index out of range means, for the ``mode=`` arguments of indexing."""

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"


def dtype(x: Any) -> Any:
    """Return the dtype of a value.

    >>> lax.dtype(1.0)
    dtype('float32')
    """
    return array_of("dtype", x).aval.dtype


def empty(shape: Sequence[int], dtype: Any = None) -> Any:
    """Return an array to be written later: of zeros.

    >>> lax.empty((2,), fnp.float32)
    Array([0., 0.], dtype=float32)
    """
    return zeros(shape, dtype)


def broadcast_like(x: Any, like: Any) -> Any:
    """Return an array repeated to the shape of another, by numpy's rules.

    >>> lax.broadcast_like(fnp.ones(2), fnp.zeros((2, 2)))
    Array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    a, shape = array_of("broadcast_like", x), array_of("broadcast_like", like).aval.shape
    return layout.broadcast(a, shape, range(len(shape) - a.aval.ndim, len(shape))) if shape != a.aval.shape else a


def reduce_xor(operand: Any, axes: Sequence[int]) -> Any:
    """Return the exclusive or of integers or bools along axes, which vanish.

    >>> lax.reduce_xor(fnp.asarray([6, 3]), (0,))
    Array(5, dtype=int32)
    """
    x = array_of("reduce_xor", operand)
    found = axis_tuple("reduce_xor", tuple(axes), x.aval.ndim)
    if x.aval.dtype not in logic.BITS:
        raise TypeError(message("reduce_xor", "integers or bools are required", str(x.aval)))
    if x.aval.dtype == dtypes.bool_:
        count = layout.reduce_sum(operations.convert(x, dtypes.int32), found)
        return logic.compare("ne", logic.logical_and(count, 1), 0)
    # Bit by bit: the parity of how many elements have it.
    total: Any = None
    for bit in range(32):
        ones = logic.logical_and(_shifted(x, bit), 1)
        parity = _lifted(logic.logical_and(layout.reduce_sum(ones, found), 1), bit)
        total = parity if total is None else logic.logical_or(total, parity)
    return total


def _shifted(x: Any, bit: int) -> Any:
    return x >> bit


def _lifted(x: Any, bit: int) -> Any:
    return x << bit


def approx_max_k(operand: Any, k: int, reduction_dimension: int = -1, **options: Any) -> tuple[Any, Any]:
    """Return the k largest elements along an axis and their indices: here, exactly.

    >>> lax.approx_max_k(fnp.asarray([1.0, 3.0, 2.0]), 1)[0]
    Array([3.], dtype=float32)
    """
    return top_k(operand, k, axis=reduction_dimension)


def approx_min_k(operand: Any, k: int, reduction_dimension: int = -1, **options: Any) -> tuple[Any, Any]:
    """Return the k smallest elements along an axis and their indices: here, exactly.

    >>> lax.approx_min_k(fnp.asarray([1.0, 3.0, 2.0]), 1)[0]
    Array([1.], dtype=float32)
    """
    values, at = top_k(operations.neg(array_of("approx_min_k", operand)), k, axis=reduction_dimension)
    return operations.neg(values), at


def optimization_barrier(operand: Any) -> Any:
    """Return a tree of values as it is: passes here keep values bit for bit.

    >>> lax.optimization_barrier(fnp.asarray([1.0]))
    Array([1.], dtype=float32)
    """
    return tree.map(lambda x: x, operand)


# -- shapes of results -------------------------------------------------------------------------------------------
def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    dimension_numbers: Any,
) -> tuple[int, ...]:
    """Return the shape of a convolution.

    >>> lax.conv_general_shape_tuple((1, 8, 8, 3), (3, 3, 3, 4), (1, 1), "SAME", ("NHWC", "HWIO", "NHWC"))
    (1, 8, 8, 4)
    """
    spec = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    sizes, window = [lhs_shape[a] for a in spec.lhs_spec[2:]], tuple([rhs_shape[a] for a in spec.rhs_spec[2:]])
    pads = padtype_to_pads(sizes, window, window_strides, padding) if isinstance(padding, str) else padding
    one = (1,) * len(window)
    counts = window_counts(sizes, window, tuple(window_strides), tuple([tuple(p) for p in pads]), one, one)
    found = (lhs_shape[spec.lhs_spec[0]], rhs_shape[spec.rhs_spec[0]], *counts)
    out = [0] * len(found)
    for place, n in zip(spec.out_spec, found, strict=True):
        out[place] = n
    return tuple(out)


def conv_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int], pads: Any, batch_group_count: int = 1
) -> tuple[int, ...]:
    """Return the shape of a convolution in the layouts NC*, OI*, NC*.

    >>> lax.conv_shape_tuple((1, 3, 8), (4, 3, 3), (1,), [(0, 0)])
    (1, 4, 6)
    """
    n, *rest = conv_general_shape_tuple(lhs_shape, rhs_shape, strides, pads, None)
    return n // batch_group_count, *rest


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    dimension_numbers: Any,
) -> tuple[int, ...]:
    """Return the shape of a transposed convolution.

    >>> lax.conv_transpose_shape_tuple((1, 4, 3), (2, 3, 5), (2,), [(1, 1)], ("NHC", "HIO", "NHC"))
    (1, 8, 5)
    """
    spec = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    spread = list(lhs_shape)
    for a, s in zip(spec.lhs_spec[2:], window_strides, strict=True):
        spread[a] = dilated(lhs_shape[a], s)
    return conv_general_shape_tuple(spread, rhs_shape, (1,) * len(window_strides), padding, spec)


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Return the shape of a reduction over windows.

    >>> lax.reduce_window_shape_tuple((6,), (3,), (2,), [(0, 1)])
    (3,)
    """
    one = (1,) * len(tuple(window_dimensions))
    pads = tuple([tuple(p) for p in padding])
    inner = tuple(base_dilation or one), tuple(window_dilation or one)
    return window_counts(operand_shape, tuple(window_dimensions), tuple(window_strides), pads, *inner)
