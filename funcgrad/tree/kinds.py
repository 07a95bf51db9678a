"""Containers: how each type comes apart and together, and the names of its children."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from funcgrad.errors import TreeError, message

__all__ = [
    "DictKey",
    "GetAttrKey",
    "Kind",
    "LEAF",
    "Path",
    "REGISTRY",
    "SequenceKey",
    "keystr",
    "kind_of",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
]

C = TypeVar("C", bound=type)
LEAF = object()


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


def keystr(path: Path, *, simple: bool = False, separator: str = "") -> str:
    """Return a path as Python would write the access; with ``simple=True`` the bare keys, joined by ``separator``.

    >>> keystr((DictKey("w"), SequenceKey(0)))
    "['w'][0]"
    >>> keystr((DictKey("w"), SequenceKey(0)), simple=True, separator="/")
    'w/0'
    """
    # A key of the user's own (register_pytree_with_keys) has whatever text str gives.
    parts = [k[0] if simple and isinstance(k, (SequenceKey, DictKey, GetAttrKey)) else k for k in path]
    return separator.join(map(str, parts))


class Kind(NamedTuple):
    """How one container type comes apart and together: children and static data, child keys, and back."""

    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    unflatten: Callable[[Hashable, Sequence[Any]], Any]
    keys: Callable[[Any, Hashable, int], Sequence[Key]]


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


REGISTRY: dict[type, Kind] = {
    tuple: Kind(lambda t: (t, None), lambda meta, xs: tuple(xs), _sequence_keys),
    list: Kind(lambda t: (t, None), lambda meta, xs: list(xs), _sequence_keys),
    dict: Kind(_dict_flatten, lambda meta, xs: dict(zip(meta, xs, strict=True)), _dict_keys),  # type: ignore[call-overload]
    OrderedDict: Kind(
        lambda d: (list(d.values()), tuple(d)),
        lambda meta, xs: OrderedDict(zip(meta, xs, strict=True)),  # type: ignore[call-overload]
        _dict_keys,
    ),
    defaultdict: Kind(
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

    >>> from funcgrad import tree
    >>> class Pair:
    ...     def __init__(self, first, second):
    ...         self.first, self.second = first, second
    >>> register_pytree_node(Pair, lambda p: ((p.first, p.second), None), lambda static, children: Pair(*children))
    >>> tree.map(lambda x: 10 * x, Pair(1, 2)).second
    20
    """

    def flatten_kind(x: Any) -> tuple[Sequence[Any], Hashable]:
        children, meta = flatten_func(x)
        return list(children), meta

    REGISTRY[nodetype] = Kind(flatten_kind, unflatten_func, _sequence_keys)
    _leaf_types.discard(nodetype)


def register_pytree_node_class(cls: C) -> C:
    """Class decorator: ``cls`` has ``tree_flatten(self)`` and a classmethod ``tree_unflatten(static, children)``.

    >>> from funcgrad import tree
    >>> @register_pytree_node_class
    ... class Scaled:
    ...     def __init__(self, x, factor):
    ...         self.x, self.factor = x, factor
    ...     def tree_flatten(self):
    ...         return (self.x,), self.factor
    ...     @classmethod
    ...     def tree_unflatten(cls, static, children):
    ...         return cls(*children, static)
    >>> tree.leaves(Scaled(1.0, 3))
    [1.0]
    """
    node: Any = cls
    register_pytree_node(cls, lambda x: x.tree_flatten(), node.tree_unflatten)
    return cls


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Hashable]],
    unflatten_func: Callable[[Any, Sequence[Any]], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]] | None = None,
) -> None:
    """Make ``nodetype`` a container whose children have names in paths.

    ``flatten_with_keys(x) -> ((key, child) pairs, static)``; a key is a :class:`DictKey`, a :class:`GetAttrKey`, a
    :class:`SequenceKey` or anything that ``str`` makes readable.  ``flatten_func`` is a faster way to the children.

    >>> from funcgrad import tree
    >>> class Gate:
    ...     def __init__(self, low, high):
    ...         self.low, self.high = low, high
    >>> register_pytree_with_keys(
    ...     Gate,
    ...     lambda g: (((GetAttrKey("low"), g.low), (GetAttrKey("high"), g.high)), None),
    ...     lambda static, children: Gate(*children),
    ... )
    >>> [(keystr(path), leaf) for path, leaf in tree.leaves_with_path(Gate(1, 2))]
    [('.low', 1), ('.high', 2)]
    """

    def flatten_kind(x: Any) -> tuple[Sequence[Any], Hashable]:
        if flatten_func is not None:
            children, meta = flatten_func(x)
            return list(children), meta
        pairs, meta = flatten_with_keys(x)
        return [child for _, child in pairs], meta

    REGISTRY[nodetype] = Kind(flatten_kind, unflatten_func, lambda x, m, n: [k for k, _ in flatten_with_keys(x)[0]])
    _leaf_types.discard(nodetype)


def register_pytree_with_keys_class(cls: C) -> C:
    """Class decorator: like :func:`register_pytree_node_class`, with a method ``tree_flatten_with_keys(self)``.

    >>> from funcgrad import tree
    >>> @register_pytree_with_keys_class
    ... class Box:
    ...     def __init__(self, content):
    ...         self.content = content
    ...     def tree_flatten_with_keys(self):
    ...         return ((GetAttrKey("content"), self.content),), None
    ...     @classmethod
    ...     def tree_unflatten(cls, static, children):
    ...         return cls(*children)
    >>> tree.map_with_path(lambda path, leaf: keystr(path), Box(1.0)).content
    '.content'
    """
    node: Any = cls
    flatten_func = node.tree_flatten if hasattr(node, "tree_flatten") else None
    register_pytree_with_keys(cls, node.tree_flatten_with_keys, node.tree_unflatten, flatten_func)
    return cls


def register_static(cls: C) -> C:
    """Class decorator: an object of it is static data without leaves, compared by ``==`` and hashed by ``hash``.

    >>> from funcgrad import tree
    >>> @register_static
    ... @dataclasses.dataclass(frozen=True)
    ... class Mode:
    ...     name: str
    >>> tree.leaves([1.0, Mode("train")])
    [1.0]
    """
    REGISTRY[cls] = Kind(lambda x: ((), x), lambda meta, xs: meta, lambda x, m, n: [])
    _leaf_types.discard(cls)
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
    >>> fg.tree.leaves(Point(1.0, 2.0))
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

    REGISTRY[nodetype] = Kind(flatten_fields, unflatten_fields, lambda x, m, n: [GetAttrKey(k) for k in data])
    _leaf_types.discard(nodetype)
    return nodetype


def _register_namedtuple(cls: Any) -> Kind:
    kind = Kind(lambda t: (t, None), lambda meta, xs: cls(*xs), lambda x, m, n: [GetAttrKey(k) for k in cls._fields])
    REGISTRY[cls] = kind
    return kind


def kind_of(x: Any) -> Kind | None:
    """The container kind of ``x``; None for a leaf.  Learns new types when it meets them."""
    cls = type(x)
    kind = REGISTRY.get(cls)
    if kind is not None or cls in _leaf_types:
        return kind
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _register_namedtuple(cls)
    if dataclasses.is_dataclass(cls):
        register_dataclass(cls)
        return REGISTRY[cls]
    _leaf_types.add(cls)
    return None
