"""Pytrees: nested containers of leaves, with paths.  Standard library only.

Containers are tuple, list, dict, NamedTuple, None, dataclasses and what ``register_pytree_node`` adds; anything else
is a leaf.  Dict entries are visited in sorted key order.  Names and meaning follow ``jax.tree`` and ``jax.tree_util``.
"""

from funcgrad.tree.compiled import builder, matcher
from funcgrad.tree.core import (
    TreeDef,
    all,
    broadcast,
    flatten,
    flatten_with_path,
    leaves,
    leaves_with_path,
    map,
    map_with_path,
    reduce,
    structure,
    transpose,
    unflatten,
)
from funcgrad.tree.kinds import (
    DictKey,
    GetAttrKey,
    Path,
    SequenceKey,
    keystr,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)

__all__ = [
    "DictKey",
    "GetAttrKey",
    "Path",
    "SequenceKey",
    "TreeDef",
    "all",
    "broadcast",
    "builder",
    "flatten",
    "flatten_with_path",
    "keystr",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "matcher",
    "reduce",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "structure",
    "transpose",
    "unflatten",
]
