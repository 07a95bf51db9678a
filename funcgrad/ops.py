"""Reductions over segments, with the names of ``jax.ops``: each row goes to the result that its id names.

Ids out of range are left out; a segment without rows has the operation's identity (0, 1, the largest or the least
value of the dtype).  Every one has a derivative; ``segment_max`` and ``segment_min`` share ties equally.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad import numpy as fnp
from funcgrad.errors import DTypeError, ShapeError, message
from funcgrad.numpy.rearrange import known

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def _count(name: str, ids: Any, num_segments: int | None) -> int:
    if num_segments is not None:
        if num_segments < 0:
            raise ShapeError(message(name, "num_segments must be at least 0", str(num_segments)))
        return int(num_segments)
    return int(known(name, ids, "num_segments=n is required where the ids are traced; segment_ids").max(initial=-1)) + 1


def _identity(op: str, dtype: Any) -> Any:
    if op in ("add", "mul"):
        return int(op == "mul")
    if dtype == dtypes.bool_:
        return op == "min"
    if dtype in dtypes.FLOATS:
        return np.inf if op == "min" else -np.inf
    info = np.iinfo(np.dtype(dtype))
    return info.max if op == "min" else info.min


def _segment(op: str, name: str, data: Any, segment_ids: Any, num_segments: int | None, mode: Any) -> Any:
    x, ids = fnp.asarray(data), fnp.asarray(segment_ids)
    if not fnp.issubdtype(ids.dtype, fnp.integer):
        raise DTypeError(message(name, "segment_ids must be integers", str(ids.dtype), "convert with astype"))
    if x.shape[: ids.ndim] != ids.shape:
        requirement = "segment_ids must have the shape of data's leading axes"
        raise ShapeError(message(name, requirement, f"ids of shape {ids.shape} and data of shape {x.shape}"))
    count = _count(name, ids, num_segments)
    # Out of range to the left is left out as well: JAX's ids do not count from the end.
    ids = fnp.where(ids < 0, count, ids)
    start = fnp.full((count, *x.shape[ids.ndim :]), _identity(op, x.dtype), x.dtype)
    return getattr(start.at[ids], op)(x, mode=mode)


def segment_sum(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
) -> Any:
    """Return the sums of the rows of ``data`` with equal ids: shape ``(num_segments, *data.shape[ids.ndim:])``.

    ``num_segments`` defaults to the largest id and one more, where the ids are known.  ``indices_are_sorted``,
    ``unique_indices`` and ``bucket_size`` are accepted for JAX's sake.

    >>> from funcgrad import ops
    >>> ops.segment_sum(fnp.asarray([1.0, 2.0, 3.0]), fnp.asarray([0, 0, 2]), num_segments=3)
    Array([3., 0., 3.], dtype=float32)
    """
    return _segment("add", "segment_sum", data, segment_ids, num_segments, mode)


def segment_prod(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
) -> Any:
    """Return the products of the rows with equal ids; parameters as of :func:`segment_sum`.

    >>> from funcgrad import ops
    >>> ops.segment_prod(fnp.asarray([2.0, 3.0, 4.0]), fnp.asarray([0, 0, 2]))
    Array([6., 1., 4.], dtype=float32)
    """
    return _segment("mul", "segment_prod", data, segment_ids, num_segments, mode)


def segment_max(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
) -> Any:
    """Return the maxima of the rows with equal ids, -inf where there are none; parameters as of :func:`segment_sum`.

    >>> from funcgrad import ops
    >>> ops.segment_max(fnp.asarray([2.0, 3.0, 4.0]), fnp.asarray([0, 0, 1]))
    Array([3., 4.], dtype=float32)
    """
    return _segment("max", "segment_max", data, segment_ids, num_segments, mode)


def segment_min(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
) -> Any:
    """Return the minima of the rows with equal ids, inf where there are none; parameters as of :func:`segment_sum`.

    >>> from funcgrad import ops
    >>> ops.segment_min(fnp.asarray([2.0, 3.0, 4.0]), fnp.asarray([0, 0, 1]))
    Array([2., 4.], dtype=float32)
    """
    return _segment("min", "segment_min", data, segment_ids, num_segments, mode)
