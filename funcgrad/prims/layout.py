"""Where elements lie: all primitives that move them, and the operations as functions."""

from __future__ import annotations

from funcgrad.prims.axes import (
    Broadcast,
    Ints,
    Iota,
    ReduceSum,
    Reshape,
    Transpose,
    broadcast,
    expand,
    iota,
    kept_shape,
    reduce_sum,
    reshape,
    transpose,
)
from funcgrad.prims.pieces import (
    Concatenate,
    Pad,
    Reverse,
    Slice,
    concatenate,
    pad,
    reverse,
    slice_,
    slice_along,
)

__all__ = [
    "Broadcast",
    "Concatenate",
    "Ints",
    "Iota",
    "Pad",
    "ReduceSum",
    "Reshape",
    "Reverse",
    "Slice",
    "Transpose",
    "broadcast",
    "concatenate",
    "expand",
    "iota",
    "kept_shape",
    "pad",
    "reduce_sum",
    "reshape",
    "reverse",
    "slice_",
    "slice_along",
    "transpose",
]
