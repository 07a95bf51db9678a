"""Arithmetic on trees of arrays, leaf by leaf, under optax's names."""

from __future__ import annotations

import math
from typing import Any

import funcgrad.numpy as fnp
from funcgrad import random, tree
from funcgrad.optim.base import Scalar, Tree, add_all, cast_tree, scaled, zeros_like
from funcgrad.optim.base import tree_vdot as _tree_vdot
from funcgrad.optim.clipping import global_norm


def tree_add(tree_x: Tree, tree_y: Tree) -> Tree:
    """``x + y``.

    >>> float(tree_add({"a": fnp.asarray(1.0)}, {"a": fnp.asarray(2.0)})["a"])
    3.0
    """
    return tree.map(fnp.add, tree_x, tree_y)


def tree_sub(tree_x: Tree, tree_y: Tree) -> Tree:
    """``x - y``.

    >>> float(tree_sub({"a": fnp.asarray(1.0)}, {"a": fnp.asarray(2.0)})["a"])
    -1.0
    """
    return tree.map(fnp.subtract, tree_x, tree_y)


def tree_mul(tree_x: Tree, tree_y: Tree) -> Tree:
    """``x * y``.

    >>> float(tree_mul({"a": fnp.asarray(3.0)}, {"a": fnp.asarray(2.0)})["a"])
    6.0
    """
    return tree.map(fnp.multiply, tree_x, tree_y)


def tree_scale(scalar: Scalar, values: Tree) -> Tree:
    """``scalar * x``, in the dtype of each leaf.

    >>> float(tree_scale(0.5, {"a": fnp.asarray(3.0)})["a"])
    1.5
    """
    return tree.map(lambda x: scaled(scalar, x), values)


def tree_add_scale(tree_x: Tree, scalar: Scalar, tree_y: Tree) -> Tree:
    """``x + scalar * y``.

    >>> float(tree_add_scale({"a": fnp.asarray(1.0)}, 2.0, {"a": fnp.asarray(3.0)})["a"])
    7.0
    """
    return tree.map(lambda x, y: x + scaled(scalar, y), tree_x, tree_y)


def tree_vdot(tree_x: Tree, tree_y: Tree) -> Any:
    """The inner product of two trees, a float32 scalar.

    >>> float(tree_vdot({"a": fnp.ones(3)}, {"a": fnp.full(3, 2.0)}))
    6.0
    """
    return _tree_vdot(tree_x, tree_y)


def tree_sum(values: Tree) -> Any:
    """The sum of all elements of all leaves.

    >>> float(tree_sum({"a": fnp.ones(3), "b": fnp.asarray(2.0)}))
    5.0
    """
    return add_all([fnp.sum(x) for x in tree.leaves(values)])


def tree_norm(values: Tree, squared: bool = False) -> Any:
    """The Euclidean norm of all leaves together, or its square; see ``global_norm``.

    >>> float(tree_norm({"a": fnp.asarray([3.0, 4.0])}))
    5.0
    """
    return _tree_vdot(values, values) if squared else global_norm(values)


def tree_zeros_like(values: Tree, dtype: Any = None) -> Tree:
    """Zeros with the shapes of the leaves.

    >>> float(tree_zeros_like({"a": fnp.ones(())})["a"])
    0.0
    """
    return zeros_like(values, dtype)


def tree_ones_like(values: Tree, dtype: Any = None) -> Tree:
    """Ones with the shapes of the leaves.

    >>> float(tree_ones_like({"a": fnp.zeros(())})["a"])
    1.0
    """
    return tree.map(lambda x: fnp.ones_like(x, dtype=dtype), values)


def tree_cast(values: Tree, dtype: Any) -> Tree:
    """Every leaf in ``dtype``; unchanged when it is None.

    >>> tree_cast({"a": fnp.ones(2)}, fnp.int32)["a"].dtype == fnp.int32
    True
    """
    return cast_tree(values, dtype)


def tree_get(state: Any, key: str, default: Any = None) -> Any:
    """The value of the field or dict key of that name in an optimizer's state, ``default`` when there is none.

    Raises KeyError when several parts of the state have one.

    >>> from funcgrad.optim.aliases import adam
    >>> int(tree_get(adam(0.1).init(fnp.zeros(2)), "count"))
    0
    """
    found = _find(state, key)
    if len(found) > 1:
        raise KeyError(f"tree_get: one value named {key!r} is required, got {len(found)}; take it from its part")
    return found[0] if found else default


def _find(state: Any, key: str) -> list[Any]:
    if isinstance(state, dict):
        items = list(state.items())
    elif isinstance(state, tuple | list):
        names = getattr(state, "_fields", (None,) * len(state))
        items = list(zip(names, state, strict=True))
    else:
        return []
    return [found for name, value in items for found in ([value] if name == key else _find(value, key))]


def tree_set(state: Any, **values: Any) -> Any:
    """The state with the named fields or dict keys replaced wherever they occur; KeyError for a name that does not.

    See ``with_hyperparams`` for one that keeps dtypes and shapes.

    >>> from funcgrad.optim.aliases import adam
    >>> state = tree_set(adam(0.1).init(fnp.zeros(2)), count=fnp.asarray(7))
    >>> int(tree_get(state, "count"))
    7
    """
    for name in values:
        if not _find(state, name):
            raise KeyError(f"tree_set: a part named {name!r} is required, got none in the state")
    return _set(state, values)


def _set(state: Any, values: dict[str, Any]) -> Any:
    if isinstance(state, dict):
        return {key: values[key] if key in values else _set(part, values) for key, part in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        named = zip(state._fields, state, strict=True)
        return type(state)(*(values[name] if name in values else _set(part, values) for name, part in named))
    return type(state)(_set(part, values) for part in state) if isinstance(state, tuple | list) else state


# -- more of optax's ------------------------------------------------------------------------------------------------
def tree_div(tree_x: Tree, tree_y: Tree) -> Tree:
    """``x / y``.

    >>> float(tree_div({"a": fnp.asarray(3.0)}, {"a": fnp.asarray(2.0)})["a"])
    1.5
    """
    return tree.map(fnp.divide, tree_x, tree_y)


def tree_where(condition: Any, tree_x: Tree, tree_y: Tree) -> Tree:
    """``where(condition, x, y)``; the condition is an array or a tree of them.

    >>> float(tree_where(fnp.asarray(False), {"a": fnp.asarray(1.0)}, {"a": fnp.asarray(2.0)})["a"])
    2.0
    """
    if tree.structure(condition) == tree.structure(0):
        return tree.map(lambda x, y: fnp.where(condition, x, y), tree_x, tree_y)
    return tree.map(fnp.where, condition, tree_x, tree_y)


def tree_clip(values: Tree, min_value: Any = None, max_value: Any = None) -> Tree:
    """Every element within [min_value, max_value]; None is no bound.

    >>> float(tree_clip({"a": fnp.asarray(3.0)}, max_value=1.0)["a"])
    1.0
    """
    return tree.map(lambda x: fnp.clip(x, min_value, max_value), values)


def tree_full_like(values: Tree, fill_value: Any, dtype: Any = None) -> Tree:
    """``fill_value`` in the shapes of the leaves.

    >>> float(tree_full_like({"a": fnp.zeros(())}, 7.0)["a"])
    7.0
    """
    return tree.map(lambda x: fnp.full_like(x, fill_value, dtype=dtype), values)


def tree_cast_like(values: Tree, other_tree: Tree) -> Tree:
    """Every leaf in the dtype of the other tree's leaf.

    >>> tree_cast_like({"a": fnp.ones(2)}, {"a": fnp.zeros(2, dtype=fnp.int32)})["a"].dtype == fnp.int32
    True
    """
    return tree.map(lambda x, y: fnp.asarray(x).astype(fnp.asarray(y).dtype), values, other_tree)


def tree_max(values: Tree) -> Any:
    """The largest element of all leaves.

    >>> float(tree_max({"a": fnp.ones(3), "b": fnp.asarray(2.0)}))
    2.0
    """
    return fnp.max(fnp.stack([fnp.max(x) for x in tree.leaves(values)]))


def tree_min(values: Tree) -> Any:
    """The smallest element of all leaves.

    >>> float(tree_min({"a": fnp.ones(3), "b": fnp.asarray(2.0)}))
    1.0
    """
    return fnp.min(fnp.stack([fnp.min(x) for x in tree.leaves(values)]))


def tree_size(values: Tree) -> int:
    """The number of elements of all leaves.

    >>> tree_size({"a": fnp.ones(3), "b": 2.0})
    4
    """
    return sum(math.prod(fnp.shape(x)) for x in tree.leaves(values))


def tree_allclose(a: Tree, b: Tree, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Whether two trees of one structure are equal within tolerances; see ``numpy.allclose``.

    >>> bool(tree_allclose({"a": fnp.ones(3)}, {"a": fnp.ones(3) + 1e-7}))
    True
    """
    close = tree.map(lambda x, y: fnp.allclose(x, y, rtol, atol, equal_nan), a, b)
    return fnp.all(fnp.stack([fnp.asarray(c) for c in tree.leaves(close)] or [fnp.asarray(True)]))


def tree_batch_shape(values: Tree, shape: tuple[int, ...] = ()) -> Tree:
    """Every leaf repeated over new leading axes.

    >>> tree_batch_shape({"a": fnp.ones(3)}, (2,))["a"].shape
    (2, 3)
    """
    return tree.map(lambda x: fnp.broadcast_to(x, (*shape, *fnp.shape(x))), values)


def tree_split_key_like(rng_key: Any, target_tree: Tree) -> Tree:
    """A key for each leaf.

    >>> from funcgrad import random
    >>> len(tree.leaves(tree_split_key_like(random.key(0), {"a": 1.0, "b": 2.0})))
    2
    """
    treedef = tree.structure(target_tree)
    return tree.unflatten(treedef, list(random.split(rng_key, treedef.num_leaves)))


def tree_random_like(rng_key: Any, target_tree: Tree, sampler: Any = random.normal, dtype: Any = None) -> Tree:
    """Draws of ``sampler(key, shape, dtype)`` in the shapes (and dtypes) of the leaves.

    >>> from funcgrad import random
    >>> tree_random_like(random.key(0), {"a": fnp.ones((2, 3))})["a"].shape
    (2, 3)
    """
    keys = tree_split_key_like(rng_key, target_tree)

    def draw(x: Any, key: Any) -> Any:
        like = fnp.asarray(x)
        return sampler(key, like.shape, like.dtype if dtype is None else dtype)

    return tree.map(draw, target_tree, keys)


def tree_update_moment(updates: Tree, moments: Tree, decay: Scalar, order: int) -> Tree:
    """``decay * m + (1 - decay) * g ** order``.

    >>> float(tree_update_moment({"a": fnp.asarray(2.0)}, {"a": fnp.asarray(0.0)}, 0.5, 2)["a"])
    2.0
    """
    return tree.map(lambda g, m: (1 - decay) * (g**order) + decay * m, updates, moments)


def tree_update_moment_per_elem_norm(updates: Tree, moments: Tree, decay: Scalar, order: int) -> Tree:
    """``tree_update_moment``: the two differ for complex numbers only.

    >>> float(tree_update_moment_per_elem_norm({"a": fnp.asarray(-2.0)}, {"a": fnp.asarray(0.0)}, 0.5, 2)["a"])
    2.0
    """
    return tree_update_moment(updates, moments, decay, order)


def tree_update_infinity_moment(updates: Tree, moments: Tree, decay: Scalar, eps: Scalar) -> Tree:
    """``max(abs(g) + eps, decay * m)``.

    >>> float(tree_update_infinity_moment({"a": fnp.asarray(-2.0)}, {"a": fnp.asarray(6.0)}, 0.5, 0.0)["a"])
    3.0
    """
    return tree.map(lambda g, m: fnp.maximum(fnp.abs(g) + eps, decay * m), updates, moments)


def tree_bias_correction(moment: Tree, decay: Scalar, count: Any) -> Tree:
    """``m / (1 - decay ** count)``, in the dtype of each leaf.

    >>> float(tree_bias_correction({"a": fnp.asarray(1.0)}, 0.5, 1)["a"])
    2.0
    """
    correction = 1 - fnp.asarray(decay) ** count
    return tree.map(lambda m: m / correction.astype(m.dtype), moment)


tree_l2_norm = tree_norm
tree_scalar_mul = tree_scale
tree_add_scalar_mul = tree_add_scale
