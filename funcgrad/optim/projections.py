"""Projections of trees onto convex sets and spheres, for projected gradient methods, under optax's names.

A tree counts as one vector.  Each is differentiable almost everywhere.
"""

from __future__ import annotations

from typing import Any

import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.flatten_util import ravel_pytree
from funcgrad.nn import relu
from funcgrad.optim.base import Scalar, Tree

__all__ = [
    "projection_box",
    "projection_halfspace",
    "projection_hypercube",
    "projection_hyperplane",
    "projection_l1_ball",
    "projection_l1_sphere",
    "projection_l2_ball",
    "projection_l2_sphere",
    "projection_linf_ball",
    "projection_non_negative",
    "projection_simplex",
    "projection_vector",
]


def _like(bound: Any, values: Tree) -> Tree:
    """A bound for each leaf, from one number or a tree of them."""
    one = tree.structure(bound) == tree.structure(0)
    return tree.map(lambda _: bound, values) if one and tree.structure(values) != tree.structure(0) else bound


def projection_non_negative(values: Tree) -> Tree:
    """The nearest tree without negative elements.

    >>> projection_non_negative(fnp.asarray([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    return tree.map(relu, values)


def projection_box(values: Tree, lower: Any, upper: Any) -> Tree:
    """The nearest tree with elements in [lower, upper], numbers or trees.

    >>> projection_box(fnp.asarray([-1.0, 2.0]), 0.0, 1.0)
    Array([0., 1.], dtype=float32)
    """
    return tree.map(lambda x, a, b: fnp.clip(x, a, b), values, _like(lower, values), _like(upper, values))


def projection_hypercube(values: Tree, scale: Any = 1) -> Tree:
    """The nearest tree with elements in [0, scale].

    >>> projection_hypercube(fnp.asarray([-1.0, 0.5]))
    Array([0. , 0.5], dtype=float32)
    """
    return projection_box(values, 0, scale)


def projection_linf_ball(values: Tree, scale: Any = 1) -> Tree:
    """The nearest tree with elements in [-scale, scale].

    >>> projection_linf_ball(fnp.asarray([-3.0, 0.5]))
    Array([-1. ,  0.5], dtype=float32)
    """
    return projection_box(values, tree.map(lambda s: -s, scale), scale)


def _onto_simplex(x: Any, scale: Scalar) -> Any:
    """Held, Wolfe and Crowder (1974): what is subtracted follows from the elements that stay positive."""
    ranked = fnp.flip(fnp.sort(x))
    excess = (fnp.cumsum(ranked) - scale) / fnp.arange(1, x.size + 1, dtype=x.dtype)
    last = fnp.sum(ranked > excess) - 1
    return relu(x - excess[fnp.maximum(last, 0)])


def projection_simplex(values: Tree, scale: Scalar = 1) -> Tree:
    """The nearest tree whose elements are not negative and sum to ``scale``.

    >>> projection_simplex(fnp.asarray([0.5, 1.5]))
    Array([0., 1.], dtype=float32)
    """
    x, unravel = ravel_pytree(values)
    return unravel(_onto_simplex(x, scale))


def projection_l1_sphere(values: Tree, scale: Scalar = 1) -> Tree:
    """The nearest tree whose absolute values sum to ``scale``.

    >>> projection_l1_sphere(fnp.asarray([-2.0, 2.0]))
    Array([-0.5,  0.5], dtype=float32)
    """
    x, unravel = ravel_pytree(values)
    return unravel(fnp.sign(x) * _onto_simplex(fnp.abs(x), scale))


def projection_l1_ball(values: Tree, scale: Scalar = 1) -> Tree:
    """The nearest tree whose absolute values sum to at most ``scale``.

    >>> projection_l1_ball(fnp.asarray([0.1, 0.2]))
    Array([0.1, 0.2], dtype=float32)
    """
    x, unravel = ravel_pytree(values)
    return unravel(fnp.where(fnp.sum(fnp.abs(x)) <= scale, x, fnp.sign(x) * _onto_simplex(fnp.abs(x), scale)))


def projection_l2_sphere(values: Tree, scale: Scalar = 1) -> Tree:
    """The tree scaled to the norm ``scale``.

    >>> projection_l2_sphere(fnp.asarray([3.0, 4.0]))
    Array([0.6, 0.8], dtype=float32)
    """
    x, unravel = ravel_pytree(values)
    return unravel(x * (scale / fnp.linalg.norm(x)))


def projection_l2_ball(values: Tree, scale: Scalar = 1) -> Tree:
    """The nearest tree of norm at most ``scale``.

    >>> projection_l2_ball(fnp.asarray([3.0, 4.0]), 10.0)
    Array([3., 4.], dtype=float32)
    """
    x, unravel = ravel_pytree(values)
    norm = fnp.linalg.norm(x)
    inside = norm <= scale
    return unravel(fnp.where(inside, x, x * (scale / fnp.where(inside, 1.0, norm))))


def _flat_pair(x: Tree, a: Tree) -> tuple[Any, Any, Any]:
    v, unravel = ravel_pytree(x)
    return v, ravel_pytree(a)[0], unravel


def projection_hyperplane(x: Tree, a: Tree, b: Scalar) -> Tree:
    """The nearest tree with inner product ``b`` with ``a``.

    >>> projection_hyperplane(fnp.asarray([1.0, 2.0]), fnp.asarray([1.0, 0.0]), 3.0)
    Array([3., 2.], dtype=float32)
    """
    v, w, unravel = _flat_pair(x, a)
    return unravel(v - (fnp.vdot(w, v) - b) / fnp.vdot(w, w) * w)


def projection_halfspace(x: Tree, a: Tree, b: Scalar) -> Tree:
    """The nearest tree with an inner product of at most ``b`` with ``a``.

    >>> projection_halfspace(fnp.asarray([1.0, 2.0]), fnp.asarray([1.0, 0.0]), 3.0)
    Array([1., 2.], dtype=float32)
    """
    v, w, unravel = _flat_pair(x, a)
    return unravel(v - relu(fnp.vdot(w, v) - b) / fnp.vdot(w, w) * w)


def projection_vector(x: Tree, a: Tree) -> Tree:
    """The nearest multiple of ``a``.

    >>> projection_vector(fnp.asarray([1.0, 2.0]), fnp.asarray([2.0, 0.0]))
    Array([1., 0.], dtype=float32)
    """
    v, w, unravel = _flat_pair(x, a)
    return unravel(fnp.vdot(w, v) / fnp.vdot(w, w) * w)
