"""Small functions that optimizers of one's own are made of, and types for annotations, under optax's names."""

from __future__ import annotations

from typing import Any

import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.optim.base import Tree, safe_increment
from funcgrad.optim.tree_utils import (
    tree_bias_correction,
    tree_update_infinity_moment,
    tree_update_moment,
    tree_update_moment_per_elem_norm,
)
from funcgrad.transforms import custom_vjp

__all__ = [
    "OptState",
    "Params",
    "Updates",
    "bias_correction",
    "safe_int32_increment",
    "safe_norm",
    "safe_root_mean_squares",
    "scale_gradient",
    "update_infinity_moment",
    "update_moment",
    "update_moment_per_elem_norm",
]

Params = Updates = OptState = Any
bias_correction = tree_bias_correction
safe_int32_increment = safe_increment
update_infinity_moment = tree_update_infinity_moment
update_moment = tree_update_moment
update_moment_per_elem_norm = tree_update_moment_per_elem_norm


def safe_norm(x: Any, min_norm: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the norm, but at least ``min_norm``, with gradient 0 where it is less.

    >>> from funcgrad import grad
    >>> safe_norm(fnp.asarray([3.0, 4.0]), 1.0), grad(safe_norm)(fnp.zeros(2), 1e-3)
    (Array(5., dtype=float32), Array([0., 0.], dtype=float32))
    """
    v = fnp.asarray(x)
    small = fnp.linalg.norm(v, ord=ord, axis=axis, keepdims=True) <= min_norm
    kept = fnp.where(small, fnp.ones_like(v), v)
    norm = fnp.linalg.norm(kept, ord=ord, axis=axis, keepdims=keepdims)
    return fnp.where(small if keepdims else fnp.squeeze(small, axis=axis), min_norm, norm)


def safe_root_mean_squares(x: Any, min_rms: Any) -> Any:
    """Return the root of the mean square, but at least ``min_rms``, with gradient 0 where it is less.

    >>> safe_root_mean_squares(fnp.asarray([3.0, -3.0]), 1.0)
    Array(3., dtype=float32)
    """
    v = fnp.asarray(x)
    small = fnp.sqrt(fnp.mean(fnp.square(v))) <= min_rms
    kept = fnp.where(small, fnp.ones_like(v), v)
    return fnp.where(small, min_rms, fnp.sqrt(fnp.mean(fnp.square(kept))))


@custom_vjp
def _scaled(inputs: Tree, scale: Any) -> Tree:
    return inputs


def _forward(inputs: Tree, scale: Any) -> tuple[Tree, Any]:
    return inputs, scale


def _backward(scale: Any, ct: Tree) -> tuple[Tree, None]:
    return tree.map(lambda g: g * scale, ct), None


_scaled.defvjp(_forward, _backward)


def scale_gradient(inputs: Tree, scale: Any) -> Tree:
    """Return the inputs, whose gradients are multiplied by ``scale``.

    >>> from funcgrad import grad
    >>> grad(lambda x: scale_gradient(x, 0.5) ** 2)(3.0)
    Array(3., dtype=float32)
    """
    return _scaled(inputs, scale)
