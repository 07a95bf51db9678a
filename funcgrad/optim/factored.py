"""Adafactor's second moment, kept as a row and a column instead of a matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad.optim.base import (
    Optimizer,
    Scalar,
    State,
    Tree,
    cast,
    require,
    require_int,
    require_params,
    safe_increment,
    scaled,
    unzip_map,
    wide_dtype,
    zero_count,
)

__all__ = ["FactoredState", "scale_by_factored_rms"]


class FactoredState(NamedTuple):
    """Count of updates (int32); row and column means for factored leaves, the whole average ``v`` for the others.

    A part that a leaf does not use is an array of one zero.
    """

    count: Any
    v_row: Tree
    v_col: Tree
    v: Tree


def _factored_axes(shape: tuple[int, ...], factored: bool, least: int) -> tuple[int, int] | None:
    """The second largest and the largest axis, when the leaf is worth factoring."""
    if not factored or len(shape) < 2:
        return None
    order = sorted(range(len(shape)), key=lambda axis: shape[axis])
    return None if shape[order[-2]] < least else (order[-2], order[-1])


def scale_by_factored_rms(
    factored: bool = True,
    decay_rate: Scalar = 0.8,
    step_offset: int = 0,
    min_dim_size_to_factor: int = 128,
    epsilon: Scalar = 1e-30,
) -> Optimizer:
    """Division by the root of a second moment that is an outer product (Shazeer and Stern 2018, arXiv:1804.04235).

    The average's decay is ``1 - t**-decay_rate`` at update t. A leaf is factored over its two largest axes when the
    smaller of them has ``min_dim_size_to_factor`` entries. ``update`` needs the parameters.

    >>> opt = scale_by_factored_rms(min_dim_size_to_factor=2)
    >>> params = fnp.ones((2, 3))
    >>> state = opt.init(params)
    >>> state.v_row.shape, state.v_col.shape, state.v.shape
    ((2,), (3,), (1,))
    """
    op = "scale_by_factored_rms"
    require(op, "(0, 1]", decay_rate=decay_rate)
    require(op, "[0, inf)", epsilon=epsilon)
    require_int(op, 1, min_dim_size_to_factor=min_dim_size_to_factor)

    def init_leaf(p: Any) -> tuple[Any, Any, Any]:
        axes = _factored_axes(p.shape, factored, min_dim_size_to_factor)
        if axes is None:
            shapes = ((1,), (1,), p.shape)
        else:
            row, col = (tuple(n for i, n in enumerate(p.shape) if i != axis) for axis in (axes[1], axes[0]))
            shapes = (row, col, (1,))
        row_mean, col_mean, full = (fnp.zeros(shape, dtype=p.dtype) for shape in shapes)
        return row_mean, col_mean, full

    def init(params: Tree) -> State:
        return FactoredState(zero_count(), *unzip_map(op, init_leaf, params, width=3))

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        require_params(op, params)
        t = cast(state.count - step_offset, wide_dtype(grads)) + 1.0
        fresh = t ** (-decay_rate)

        def blend(old: Any, new: Any) -> Any:
            return scaled(1.0 - fresh, old) + scaled(fresh, new)

        def leaf(g: Any, p: Any, row: Any, col: Any, v: Any) -> tuple[Any, Any, Any, Any]:
            square = fnp.square(g) + epsilon
            axes = _factored_axes(p.shape, factored, min_dim_size_to_factor)
            if axes is None:
                v = blend(v, square)
                return g / fnp.sqrt(v), row, col, v
            second, first = axes
            row, col = blend(row, fnp.mean(square, axis=first)), blend(col, fnp.mean(square, axis=second))
            # The row means have lost the largest axis, which shifts the second one when it comes later.
            mean = fnp.mean(row, axis=second - 1 if second > first else second, keepdims=True)
            step = g / fnp.expand_dims(fnp.sqrt(row / mean), first)
            return step / fnp.expand_dims(fnp.sqrt(col), second), row, col, v

        updates, *moments = unzip_map(op, leaf, grads, params, state.v_row, state.v_col, state.v, width=4)
        return updates, FactoredState(safe_increment(state.count), *moments)

    return Optimizer(init, update)
