"""The functions of :mod:`funcgrad.tree` under the names of ``jax.tree_util``, and ``Partial``.

>>> from funcgrad.tree_util import tree_leaves, tree_map
>>> tree_leaves(tree_map(lambda x: 2 * x, {"a": 1, "b": (2, 3)}))
[2, 4, 6]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from funcgrad.tree import (
    DictKey,
    GetAttrKey,
    SequenceKey,
    TreeDef,
    flatten,
    keystr,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)
from funcgrad.tree import all as tree_all
from funcgrad.tree import broadcast as tree_broadcast
from funcgrad.tree import flatten as tree_flatten
from funcgrad.tree import flatten_with_path as tree_flatten_with_path
from funcgrad.tree import leaves as tree_leaves
from funcgrad.tree import leaves_with_path as tree_leaves_with_path
from funcgrad.tree import map as tree_map
from funcgrad.tree import map_with_path as tree_map_with_path
from funcgrad.tree import reduce as tree_reduce
from funcgrad.tree import structure as tree_structure
from funcgrad.tree import transpose as tree_transpose
from funcgrad.tree import unflatten as tree_unflatten

__all__ = [
    "DictKey",
    "GetAttrKey",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all_leaves",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
]

PyTreeDef = TreeDef


class Partial(functools.partial[Any]):
    """``functools.partial`` as a container: its arguments are children, its function is static.

    So a function with arrays in it goes through jit, scan and the other transformations as data.

    >>> scale = Partial(lambda factor, x: factor * x, fnp.asarray(3.0))
    >>> jit(lambda f, x: f(x))(scale, 2.0)
    Array(6., dtype=float32)
    """


def _partial_flatten(p: Partial) -> tuple[tuple[Any, ...], Any]:
    return (p.args, p.keywords), p.func


register_pytree_with_keys(
    Partial,
    lambda p: (((GetAttrKey("args"), p.args), (GetAttrKey("keywords"), p.keywords)), p.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
    _partial_flatten,
)


def all_leaves(iterable: Iterable[Any], is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Return whether every element is a leaf.

    >>> all_leaves([1, 2.0]), all_leaves([1, (2,)])
    (True, False)
    """
    return all(treedef_is_leaf(flatten(x, is_leaf)[1]) for x in iterable)


def treedef_children(treedef: TreeDef) -> list[TreeDef]:
    """Return the structures of the children.

    >>> treedef_children(tree_structure([1, (2, 3)]))
    [TreeDef(*), TreeDef((*, *))]
    """
    return list(treedef.children)


def treedef_is_leaf(treedef: TreeDef) -> bool:
    """Return whether a structure is that of one leaf.

    >>> treedef_is_leaf(tree_structure(1)), treedef_is_leaf(tree_structure((1,)))
    (True, False)
    """
    return treedef.num_leaves == 1 and treedef.kind is tree_structure(0).kind
