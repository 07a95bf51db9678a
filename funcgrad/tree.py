"""Pytrees: nested containers of leaves, with paths.  Standard library only.

Containers are tuple, list, dict, NamedTuple, None, dataclasses and what ``register_pytree_node`` adds; anything else
is a leaf.  Dict entries are visited in sorted key order.  Names and meaning follow ``jax.tree`` and ``jax.tree_util``.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from funcgrad.errors import TreeError, message

__all__ = [
    "DictKey",
    "GetAttrKey",
    "SequenceKey",
    "TreeDef",
    "all",
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
    "structure",
    "transpose",
    "unflatten",
]

C = TypeVar("C", bound=type)
_all, _map = all, map


class SequenceKey(NamedTuple):
    """The position of a child in a tuple or a list."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


class DictKey(NamedTuple):
    """The key of a child in a dict."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class GetAttrKey(NamedTuple):
    """The attribute name of a child in a NamedTuple or a dataclass."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


Key = SequenceKey | DictKey | GetAttrKey
Path = tuple[Key, ...]


def keystr(path: Path) -> str:
    """Return a path as Python would write the access.

    >>> keystr((DictKey("w"), SequenceKey(0)))
    "['w'][0]"
    """
    return "".join(_map(str, path))


class _Kind(NamedTuple):
    """How one container type comes apart and together: children and static data, child keys, and back."""

    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    unflatten: Callable[[Hashable, Sequence[Any]], Any]
    keys: Callable[[Any, Hashable, int], Sequence[Key]]


_LEAF = object()


class TreeDef:
    """The structure of a tree: immutable, hashable, comparable.

    >>> structure({"a": 1, "b": (2, None)})
    TreeDef({'a': *, 'b': (*, None)})
    """

    __slots__ = ("_hash", "children", "kind", "meta", "num_leaves")

    def __init__(self, kind: Any, meta: Hashable, children: tuple[TreeDef, ...]):
        self.kind, self.meta, self.children = kind, meta, children
        self.num_leaves: int = 1 if kind is _LEAF else sum(c.num_leaves for c in children)
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


_leafdef = TreeDef(_LEAF, None, ())
_nonedef = TreeDef(type(None), None, ())


def _dict_flatten(d: dict[Any, Any]) -> tuple[Sequence[Any], Hashable]:
    try:
        keys = sorted(d)
    except TypeError:
        requirement, way_out = "the keys of a dict must be of one sortable type", "use str for all keys"
        raise TreeError(message("tree.flatten", requirement, repr(list(d)), way_out)) from None
    return [d[k] for k in keys], tuple(keys)


def _dict_keys(_: Any, meta: Any, n: int) -> Sequence[Key]:
    return [DictKey(k) for k in meta]


def _sequence_keys(_: Any, meta: Any, n: int) -> Sequence[Key]:
    return [SequenceKey(i) for i in range(n)]


def _defaultdict_flatten(d: Any) -> tuple[Sequence[Any], Hashable]:
    children, keys = _dict_flatten(d)
    return children, (d.default_factory, keys)


_registry: dict[type, _Kind] = {
    tuple: _Kind(lambda t: (t, None), lambda meta, xs: tuple(xs), _sequence_keys),
    list: _Kind(lambda t: (t, None), lambda meta, xs: list(xs), _sequence_keys),
    dict: _Kind(_dict_flatten, lambda meta, xs: dict(zip(meta, xs, strict=True)), _dict_keys),  # type: ignore[call-overload]
    OrderedDict: _Kind(
        lambda d: (list(d.values()), tuple(d)),
        lambda meta, xs: OrderedDict(zip(meta, xs, strict=True)),  # type: ignore[call-overload]
        _dict_keys,
    ),
    defaultdict: _Kind(
        _defaultdict_flatten,
        lambda meta, xs: defaultdict(meta[0], zip(meta[1], xs, strict=True)),  # type: ignore[index]
        lambda x, meta, n: [DictKey(k) for k in meta[1]],  # type: ignore[index]
    ),
}
_leaf_types: set[type] = {int, float, bool, complex, str, bytes}


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten_func: Callable[[Any, Sequence[Any]], Any],
) -> None:
    """Make ``nodetype`` a container.

    ``flatten_func(x) -> (children, static)``, ``unflatten_func(static, children) -> x``.
    """

    def flatten_kind(x: Any) -> tuple[Sequence[Any], Hashable]:
        children, meta = flatten_func(x)
        return list(children), meta

    _registry[nodetype] = _Kind(flatten_kind, unflatten_func, _sequence_keys)
    _leaf_types.discard(nodetype)


def register_pytree_node_class(cls: C) -> C:
    """Class decorator: ``cls`` has ``tree_flatten(self)`` and a classmethod ``tree_unflatten(static, children)``."""
    node: Any = cls
    register_pytree_node(cls, lambda x: x.tree_flatten(), node.tree_unflatten)
    return cls


def register_dataclass(
    nodetype: C, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] | None = None
) -> C:
    """Make a dataclass a container whose ``data_fields`` are children and whose ``meta_fields`` are static.

    By default every field is a child but those declared with ``metadata={"static": True}``.  A dataclass that was not
    registered is treated so when it is first met.

    >>> @register_dataclass
    ... @dataclasses.dataclass(frozen=True)
    ... class Point:
    ...     x: float
    ...     y: float
    >>> leaves(Point(1.0, 2.0))
    [1.0, 2.0]
    """
    fields: Sequence[Any] = dataclasses.fields(nodetype)
    if meta_fields is None:
        meta_fields = [
            f.name for f in fields if f.metadata.get("static") or (data_fields and f.name not in data_fields)
        ]
    if data_fields is None:
        data_fields = [f.name for f in fields if f.name not in meta_fields]
    data, meta = tuple(data_fields), tuple(meta_fields)

    def flatten_fields(x: Any) -> tuple[Sequence[Any], Hashable]:
        return [getattr(x, n) for n in data], tuple([getattr(x, n) for n in meta])

    def unflatten_fields(values: Any, xs: Sequence[Any]) -> Any:
        # Not through __init__: a transformation may put anything into the children.
        new: Any = object.__new__(nodetype)
        for n, v in zip(data + meta, (*xs, *values), strict=True):
            object.__setattr__(new, n, v)
        return new

    _registry[nodetype] = _Kind(flatten_fields, unflatten_fields, lambda x, m, n: [GetAttrKey(k) for k in data])
    _leaf_types.discard(nodetype)
    return nodetype


def _register_namedtuple(cls: Any) -> _Kind:
    kind = _Kind(lambda t: (t, None), lambda meta, xs: cls(*xs), lambda x, m, n: [GetAttrKey(k) for k in cls._fields])
    _registry[cls] = kind
    return kind


def _kind_of(x: Any) -> _Kind | None:
    """The container kind of ``x``; None for a leaf.  Learns new types when it meets them."""
    cls = type(x)
    kind = _registry.get(cls)
    if kind is not None or cls in _leaf_types:
        return kind
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _register_namedtuple(cls)
    if dataclasses.is_dataclass(cls):
        register_dataclass(cls)
        return _registry[cls]
    _leaf_types.add(cls)
    return None


def _flatten(tree: Any, out: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeDef:
    if is_leaf is not None and is_leaf(tree):
        out.append(tree)
        return _leafdef
    if tree is None:
        return _nonedef
    kind = _registry.get(type(tree)) or _kind_of(tree)
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
    if kind is _LEAF:
        return next(it)
    if kind is tuple:
        return tuple([_unflatten(c, it) for c in treedef.children])
    if kind is type(None):
        return None
    children = [_unflatten(c, it) for c in treedef.children]
    return _registry[kind].unflatten(treedef.meta, children)


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """Build a tree from its structure and its leaves; the inverse of :func:`flatten`."""
    xs = leaves if isinstance(leaves, list) else list(leaves)
    if len(xs) != treedef.num_leaves:
        raise TreeError(message("tree.unflatten", f"the structure has {treedef.num_leaves} leaves", str(len(xs))))
    return _unflatten(treedef, iter(xs))


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """Return the leaves of a tree in order."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeDef:
    """Return the structure of a tree."""
    return flatten(tree, is_leaf)[1]


def _flatten_with_path(tree: Any, path: Path, out: list[tuple[Path, Any]], is_leaf: Any) -> None:
    if is_leaf is not None and is_leaf(tree):
        out.append((path, tree))
        return
    if tree is None:
        return
    kind = _kind_of(tree)
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
    """Return (path, leaf) pairs and the structure."""
    return leaves_with_path(tree, is_leaf), structure(tree, is_leaf)


def _flatten_up_to(treedef: TreeDef, tree: Any, out: list[Any], path: Path, name: str) -> None:
    if treedef.kind is _LEAF:
        out.append(tree)
        return
    if treedef.kind is type(None):
        if tree is not None:
            raise _differ(name, path, "None", _brief(tree))
        return
    if type(tree) is not treedef.kind:
        raise _differ(name, path, treedef.kind.__name__, _brief(tree))
    kind = _registry[treedef.kind]
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
    """Apply ``f(path, leaf, *others)`` to the corresponding leaves of one or more trees."""
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


def transpose(outer_treedef: TreeDef, inner_treedef: TreeDef, pytree_to_transpose: Any) -> Any:
    """Turn a tree of trees inside out: outer structure of inner structures becomes inner of outer.

    >>> transpose(structure([0, 0]), structure({"a": 0}), [{"a": 1}, {"a": 2}])
    {'a': [1, 2]}
    """
    rows = [inner_treedef.flatten_up_to(t) for t in outer_treedef.flatten_up_to(pytree_to_transpose)]
    columns = zip(*rows, strict=True) if rows else [()] * inner_treedef.num_leaves
    return unflatten(inner_treedef, [unflatten(outer_treedef, list(c)) for c in columns])


def matcher(treedef: TreeDef) -> Callable[[Any], list[Any] | None]:
    """Return a function that flattens trees of exactly this structure fast, and gives None for any other tree.

    The structure is unrolled into straight Python code once.

    >>> match = matcher(structure({"a": 0, "b": (0, 0)}))
    >>> match({"a": 1, "b": (2, 3)}), match({"a": 1})
    ([1, 2, 3], None)
    """
    code = _MatcherCode()
    code.visit(treedef, "t")
    source = "\n".join(
        ["def match(t):", *[f"    {line}" for line in code.lines], f"    return [{', '.join(code.leaves)}]"]
    )
    scope = code.scope
    exec(source, scope)
    match: Callable[[Any], list[Any] | None] = scope["match"]
    return match


class _MatcherCode:
    """The lines of a matcher: tests of type and size, then names for the children."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves: list[str] = []
        self.scope: dict[str, Any] = {}
        self.count = 0

    def constant(self, value: Any) -> str:
        """A name for a value in the generated code."""
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name

    def visit(self, treedef: TreeDef, at: str) -> None:
        """Emit what takes the tree named ``at`` apart."""
        kind = treedef.kind
        if kind is _LEAF:
            self.leaves.append(at)
            return
        if kind is type(None):
            self.lines.append(f"if {at} is not None: return None")
            return
        n = len(treedef.children)
        names = [f"t{self.count + i}" for i in range(n)]
        self.count += n
        self.lines.append(f"if type({at}) is not {self.constant(kind)}: return None")
        if kind in (tuple, list) or issubclass(kind, tuple):
            self.lines.append(f"if len({at}) != {n}: return None")
            self.lines += [f"{', '.join(names)}, = {at}"] if n else []
        elif kind is dict:
            self.lines.append(f"if len({at}) != {n}: return None")
            keys = [self.constant(k) for k in treedef.meta]  # type: ignore[attr-defined]
            body = "; ".join(f"{t} = {at}[{k}]" for t, k in zip(names, keys, strict=True)) or "pass"
            self.lines += [f"try: {body}", "except KeyError: return None"]
        else:
            flat, meta = self.constant(_registry[kind].flatten), self.constant(treedef.meta)
            self.lines += [f"children, meta = {flat}({at})", f"if meta != {meta} or len(children) != {n}: return None"]
            self.lines += [f"{', '.join(names)}, = children"] if n else []
        for child, name in zip(treedef.children, names, strict=True):
            self.visit(child, name)


def builder(treedef: TreeDef) -> Callable[[Sequence[Any]], Any]:
    """Return a function that builds trees of this structure from their leaves fast: :func:`unflatten` as straight code.

    >>> builder(structure({"a": 0, "b": (0, None)}))([1, 2])
    {'a': 1, 'b': (2, None)}
    """
    code = _BuilderCode()
    root = code.visit(treedef)
    leaves = "".join([f"x{i}, " for i in range(code.leaves)])
    unpack = [f"{leaves}= xs"] if leaves else []
    source = "\n".join(["def build(xs):", *[f"    {line}" for line in (*unpack, *code.lines, f"return {root}")]])
    exec(source, code.scope)
    build: Callable[[Sequence[Any]], Any] = code.scope["build"]
    return build


class _BuilderCode:
    """The lines of a builder: one assignment per container, children first."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves = 0
        self.scope: dict[str, Any] = {}

    def constant(self, value: Any) -> str:
        """A name for a value in the generated code."""
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name

    def visit(self, treedef: TreeDef) -> str:
        """Emit what builds a tree; return its name."""
        kind = treedef.kind
        if kind is _LEAF:
            self.leaves += 1
            return f"x{self.leaves - 1}"
        if kind is type(None):
            return "None"
        children = [self.visit(c) for c in treedef.children]
        listed = "".join([f"{c}, " for c in children])
        if kind is tuple:
            expression = f"({listed})"
        elif kind is list:
            expression = f"[{listed}]"
        elif kind is dict:
            keys = [self.constant(k) for k in treedef.meta]  # type: ignore[attr-defined]
            expression = "{" + "".join([f"{k}: {c}, " for k, c in zip(keys, children, strict=True)]) + "}"
        else:
            unflatten_kind, meta = self.constant(_registry[kind].unflatten), self.constant(treedef.meta)
            expression = f"{unflatten_kind}({meta}, [{listed}])"
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name
