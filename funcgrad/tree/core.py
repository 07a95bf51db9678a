"""Structures: flatten, unflatten, map and their kin."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from funcgrad.errors import TreeError, message
from funcgrad.tree.kinds import LEAF, REGISTRY, Path, keystr, kind_of

__all__ = [
    "TreeDef",
    "all",
    "broadcast",
    "flatten",
    "flatten_with_path",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "reduce",
    "structure",
    "transpose",
    "unflatten",
]

_all = all


class TreeDef:
    """The structure of a tree: immutable, hashable, comparable.

    >>> structure({"a": 1, "b": (2, None)})
    TreeDef({'a': *, 'b': (*, None)})
    """

    __slots__ = ("_hash", "children", "kind", "meta", "num_leaves")

    def __init__(self, kind: Any, meta: Hashable, children: tuple[TreeDef, ...]):
        self.kind, self.meta, self.children = kind, meta, children
        self.num_leaves: int = 1 if kind is LEAF else sum(c.num_leaves for c in children)
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, TreeDef)
            and self.kind is other.kind
            and self.num_leaves == other.num_leaves
            and self.meta == other.meta
            and self.children == other.children
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((id(self.kind), self.meta, self.children))
        return self._hash

    def __repr__(self) -> str:
        return f"TreeDef({unflatten(self, [_Star()] * self.num_leaves)!r})"

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Build a tree of this structure from its leaves."""
        return unflatten(self, leaves)

    def flatten_up_to(self, tree: Any, name: str = "flatten_up_to") -> list[Any]:
        """Flatten ``tree`` down to the leaves of this structure, which may be subtrees there."""
        out: list[Any] = []
        _flatten_up_to(self, tree, out, (), name)
        return out


class _Star:
    def __repr__(self) -> str:
        return "*"


_leafdef = TreeDef(LEAF, None, ())
_nonedef = TreeDef(type(None), None, ())


def _flatten(tree: Any, out: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeDef:
    if is_leaf is not None and is_leaf(tree):
        out.append(tree)
        return _leafdef
    if tree is None:
        return _nonedef
    kind = REGISTRY.get(type(tree)) or kind_of(tree)
    if kind is None:
        out.append(tree)
        return _leafdef
    children, meta = kind.flatten(tree)
    return TreeDef(type(tree), meta, tuple([_flatten(c, out, is_leaf) for c in children]))


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeDef]:
    """Return the leaves of a tree and its structure.

    >>> flatten({"b": 2, "a": [1, None]})
    ([1, 2], TreeDef({'a': [*, None], 'b': *}))
    """
    out: list[Any] = []
    treedef = _flatten(tree, out, is_leaf)
    return out, treedef


def _unflatten(treedef: TreeDef, it: Any) -> Any:
    kind = treedef.kind
    if kind is LEAF:
        return next(it)
    if kind is tuple:
        return tuple([_unflatten(c, it) for c in treedef.children])
    if kind is type(None):
        return None
    children = [_unflatten(c, it) for c in treedef.children]
    return REGISTRY[kind].unflatten(treedef.meta, children)


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """Build a tree from its structure and its leaves; the inverse of :func:`flatten`.

    >>> unflatten(structure({"a": 0, "b": [0]}), [1, 2])
    {'a': 1, 'b': [2]}
    """
    xs = leaves if isinstance(leaves, list) else list(leaves)
    if len(xs) != treedef.num_leaves:
        raise TreeError(message("tree.unflatten", f"the structure has {treedef.num_leaves} leaves", str(len(xs))))
    return _unflatten(treedef, iter(xs))


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """Return the leaves of a tree in order.

    >>> leaves({"b": 2, "a": (1, None)})
    [1, 2]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeDef:
    """Return the structure of a tree.

    >>> structure([1, 2]) == structure(["a", "b"])
    True
    """
    return flatten(tree, is_leaf)[1]


def _flatten_with_path(tree: Any, path: Path, out: list[tuple[Path, Any]], is_leaf: Any) -> None:
    if is_leaf is not None and is_leaf(tree):
        out.append((path, tree))
        return
    if tree is None:
        return
    kind = kind_of(tree)
    if kind is None:
        out.append((path, tree))
        return
    children, meta = kind.flatten(tree)
    for key, child in zip(kind.keys(tree, meta, len(children)), children, strict=True):
        _flatten_with_path(child, (*path, key), out, is_leaf)


def leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[Path, Any]]:
    """Return (path, leaf) pairs in order.

    >>> [(keystr(p), x) for p, x in leaves_with_path({"w": (1, 2)})]
    [("['w'][0]", 1), ("['w'][1]", 2)]
    """
    out: list[tuple[Path, Any]] = []
    _flatten_with_path(tree, (), out, is_leaf)
    return out


def flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[Path, Any]], TreeDef]:
    """Return (path, leaf) pairs and the structure.

    >>> pairs, treedef = flatten_with_path({"a": [1, 2]})
    >>> [(keystr(path), leaf) for path, leaf in pairs]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    return leaves_with_path(tree, is_leaf), structure(tree, is_leaf)


def _flatten_up_to(treedef: TreeDef, tree: Any, out: list[Any], path: Path, name: str) -> None:
    if treedef.kind is LEAF:
        out.append(tree)
        return
    if treedef.kind is type(None):
        if tree is not None:
            raise _differ(name, path, "None", _brief(tree))
        return
    if type(tree) is not treedef.kind:
        raise _differ(name, path, treedef.kind.__name__, _brief(tree))
    kind = REGISTRY[treedef.kind]
    children, meta = kind.flatten(tree)
    if meta != treedef.meta or len(children) != len(treedef.children):
        want = f"{len(treedef.children)} children {treedef.meta or ''}".strip()
        got = f"{len(children)} children {meta or ''}".strip()
        raise _differ(name, path, want, got)
    keys = kind.keys(tree, meta, len(children))
    for sub, child, key in zip(treedef.children, children, keys, strict=True):
        _flatten_up_to(sub, child, out, (*path, key), name)


def _differ(name: str, path: Path, want: str, got: str) -> TreeError:
    way_out = "compare the two with fg.tree.structure"
    return TreeError(message(name, f"the trees differ at {keystr(path) or 'the root'}: {want} there", got, way_out))


def _brief(x: Any) -> str:
    text = f"{type(x).__name__} {x!r}" if not hasattr(x, "shape") else f"an array of shape {tuple(x.shape)}"
    return text if len(text) < 80 else text[:77] + "..."


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Apply ``f`` to the corresponding leaves of one or more trees.

    >>> map(lambda x, y: x + y, {"a": 1}, {"a": 10})
    {'a': 11}
    """
    xs, treedef = flatten(tree, is_leaf)
    others = [treedef.flatten_up_to(r, "tree.map") for r in rest]
    return unflatten(treedef, [f(*args) for args in zip(xs, *others, strict=True)])


def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Apply ``f(path, leaf, *others)`` to the corresponding leaves of one or more trees.

    >>> map_with_path(lambda path, leaf: f"{keystr(path)} is {leaf}", [1, {"a": 2}])
    ['[0] is 1', {'a': "[1]['a'] is 2"}]
    """
    pairs, treedef = flatten_with_path(tree, is_leaf)
    others = [treedef.flatten_up_to(r, "tree.map_with_path") for r in rest]
    return unflatten(treedef, [f(*pair, *args) for pair, *args in zip(pairs, *others, strict=True)])


_MISSING = object()


def reduce(f: Callable[[Any, Any], Any], tree: Any, initializer: Any = _MISSING, is_leaf: Any = None) -> Any:
    """Fold the leaves of a tree with ``f``.

    >>> reduce(lambda x, y: x + y, {"a": 1, "b": 2}, 0)
    3
    """
    xs = leaves(tree, is_leaf)
    if initializer is _MISSING:
        if not xs:
            raise TreeError(message("tree.reduce", "a tree without leaves needs an initializer"))
        initializer, *xs = xs
    for x in xs:
        initializer = f(initializer, x)
    return initializer


def all(tree: Any, *, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Return whether every leaf is true.

    >>> all({"a": True, "b": [True, False]})
    False
    """
    return _all(leaves(tree, is_leaf))


def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Return a tree with the structure of ``full_tree`` in which each leaf of a prefix of it is repeated.

    >>> broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": {"c": 0}})
    {'a': [1, 1], 'b': {'c': 2}}
    """
    xs, treedef = flatten(prefix_tree, is_leaf)
    subtrees = treedef.flatten_up_to(full_tree, "tree.broadcast")
    return unflatten(treedef, [map(lambda _, x=x: x, sub) for x, sub in zip(xs, subtrees, strict=True)])


def transpose(outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: Any) -> Any:
    """Turn a tree of trees inside out: outer structure of inner structures becomes inner of outer.

    Without ``inner_treedef`` it is the structure of the first inner tree.

    >>> transpose(structure([0, 0]), structure({"a": 0}), [{"a": 1}, {"a": 2}])
    {'a': [1, 2]}
    """
    inner = outer_treedef.flatten_up_to(pytree_to_transpose)
    if inner_treedef is None:
        if not inner:
            raise TreeError(message("tree.transpose", "an outer tree without leaves needs inner_treedef"))
        inner_treedef = structure(inner[0])
    rows = [inner_treedef.flatten_up_to(t) for t in inner]
    columns = zip(*rows, strict=True) if rows else [()] * inner_treedef.num_leaves
    return unflatten(inner_treedef, [unflatten(outer_treedef, list(c)) for c in columns])
