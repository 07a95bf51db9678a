"""Modules are frozen dataclasses and pytrees; this is what works on any of them: summary, filters, surgery by path."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes, tree
from funcgrad.errors import TreeError, message
from funcgrad.host import SCALARS
from funcgrad.trace import Value

__all__ = [
    "combine",
    "count_parameters",
    "is_array",
    "is_inexact_array",
    "module",
    "partition",
    "replace_at",
    "static",
    "summary",
]


def static(**kwargs: Any) -> Any:
    """Declare a dataclass field that is part of the structure, not a leaf.

    >>> @module
    ... class Power:
    ...     base: Any
    ...     exponent: int = static(default=2)
    >>> tree.leaves(Power(3.0))
    [3.0]
    """
    return dataclasses.field(metadata={"static": True}, **kwargs)


def module(cls: type) -> Any:
    """Class decorator: a frozen dataclass that is a pytree and prints its leaves as types.

    The class may define ``__init__``, which sets fields through ``object.__setattr__`` (see :func:`fill`).
    ``dataclasses.replace`` works all the same: what is given all the fields, by name, has them set as they are.

    >>> @module
    ... class Scale:
    ...     factor: Any
    ...     def __call__(self, x):
    ...         return self.factor * x
    >>> Scale(fg.numpy.asarray(2.0))
    Scale(factor=f32[])
    """
    made: Any = dataclasses.dataclass(frozen=True, init="__init__" not in cls.__dict__, repr=False, eq=False)(cls)
    if "__init__" in cls.__dict__:
        made.__init__ = _also_from_fields(made)
    if "__repr__" not in cls.__dict__:
        made.__repr__ = _repr
    tree.register_dataclass(made)
    return made


def _also_from_fields(cls: Any) -> Callable[..., None]:
    """The ``__init__`` of a class, which takes all fields by name as well, as ``dataclasses.replace`` gives them."""
    init: Callable[..., None] = cls.__init__
    names = {f.name for f in dataclasses.fields(cls)}
    try:
        inspect.signature(init).bind(None, **dict.fromkeys(names))
    except TypeError:

        @functools.wraps(init)
        def from_fields(self: Any, *args: Any, **kwargs: Any) -> None:
            if not args and kwargs.keys() == names:
                fill(self, **kwargs)
            else:
                init(self, *args, **kwargs)

        return from_fields
    return init  # its parameters are the fields


def fill(self: Any, **fields: Any) -> None:
    """Set the fields of a frozen dataclass inside its ``__init__``."""
    for name, value in fields.items():
        object.__setattr__(self, name, value)


def _repr(self: Any) -> str:
    parts = []
    for f in dataclasses.fields(self):
        parts.append(f"{f.name}={shown(getattr(self, f.name))}")
    return f"{type(self).__name__}({', '.join(parts)})"


def shown(x: Any) -> str:
    """A field as a module prints it: an array as its type, a function as its name."""
    if isinstance(x, Value):
        return str(x.aval)
    if isinstance(x, functools.partial):
        given = [*map(shown, x.args), *[f"{k}={shown(v)}" for k, v in x.keywords.items()]]
        return f"partial({', '.join([shown(x.func), *given])})"
    return getattr(x, "__name__", repr(x)) if callable(x) and not dataclasses.is_dataclass(x) else repr(x)


# -- filters -----------------------------------------------------------------------------------------------------
def is_array(x: Any) -> bool:
    """Return whether a leaf is an array (funcgrad's, traced, or numpy's).

    >>> is_array(np.ones(2)), is_array(1.0), is_array("name")
    (True, False, False)
    """
    return isinstance(x, (Value, np.ndarray))


def is_inexact_array(x: Any) -> bool:
    """Return whether a leaf is a float array, that is, one that has a gradient.

    >>> is_inexact_array(np.ones(2)), is_inexact_array(np.arange(2))
    (True, False)
    """
    return is_array(x) and (x.dtype in dtypes.FLOATS or x.dtype.kind == "f")


class _Absent:
    def __repr__(self) -> str:
        return "-"


ABSENT = _Absent()
tree.register_pytree_node(_Absent, lambda x: ((), None), lambda meta, children: ABSENT)


def partition(pytree: Any, keep: Callable[[Any], bool] | str | Any = is_inexact_array) -> tuple[Any, Any]:
    """Return two trees of the same structure: the leaves that ``keep`` says, and the others, each absent from the other
    tree.

    ``keep`` is a function of a leaf, a tree of bools, or a path as :func:`funcgrad.tree.keystr` writes it: of a leaf or
    of a subtree, to freeze it.  :func:`combine` puts the two together again.

    Raises TreeError for a path that is not there.

    >>> params, rest = partition({"w": np.ones(2, np.float32), "name": "layer"})
    >>> rest
    {'name': 'layer', 'w': -}
    >>> partition({"body": {"w": 1.0, "b": 2.0}, "head": 3.0}, "['body']")[1]
    {'body': {'b': -, 'w': -}, 'head': 3.0}
    """
    leaves, treedef = tree.flatten(pytree)
    if isinstance(keep, str):
        flags = [_is_under(tree.keystr(p), keep) for p, _ in tree.leaves_with_path(pytree)]
        if not any(flags):
            raise _no_such_path("partition", keep, pytree)
    elif callable(keep) and tree.leaves(keep) == [keep]:  # a module that holds bools may be callable, too
        flags = [bool(keep(x)) for x in leaves]
    else:
        flags = treedef.flatten_up_to(keep, "partition")
    first = [x if f else ABSENT for x, f in zip(leaves, flags, strict=True)]
    second = [ABSENT if f else x for x, f in zip(leaves, flags, strict=True)]
    return tree.unflatten(treedef, first), tree.unflatten(treedef, second)


def _is_absent(x: Any) -> bool:
    return x is ABSENT


def combine(*trees: Any) -> Any:
    """Return the tree whose leaves are each the first one that is present among the trees.

    >>> combine(*partition({"a": 1.0, "b": "x"}, lambda x: isinstance(x, float)))
    {'a': 1.0, 'b': 'x'}
    """

    def first(*xs: Any) -> Any:
        return next((x for x in xs if x is not ABSENT), ABSENT)

    return tree.map(first, *trees, is_leaf=_is_absent)


# -- surgery -----------------------------------------------------------------------------------------------------
def _is_under(name: str, path: str) -> bool:
    """Whether a leaf's path is this path or below it."""
    return name == path or (name.startswith(path) and name[len(path)] in ".[")


def _no_such_path(what: str, path: str, pytree: Any) -> TreeError:
    known = [tree.keystr(p) for p, _ in tree.leaves_with_path(pytree)]
    more = " ..." * (len(known) > 8)
    return TreeError(message(what, "the path must exist", repr(path), f"paths are {', '.join(known[:8])}{more}"))


def replace_at(pytree: Any, path: str, value: Any) -> Any:
    """Return the tree with the leaf or leaves under ``path`` (as :func:`funcgrad.tree.keystr` writes it) replaced.

    ``value`` is an array for one leaf, or a function of the old leaf.

    >>> replace_at({"w": [1.0, 2.0]}, "['w'][1]", 5.0)
    {'w': [1.0, 5.0]}
    """
    found = False

    def new(p: tree.Path, leaf: Any) -> Any:
        nonlocal found
        name = tree.keystr(p)
        if _is_under(name, path):
            found = True
            return value(leaf) if callable(value) else value
        return leaf

    out = tree.map_with_path(new, pytree)
    if not found:
        raise _no_such_path("replace_at", path, pytree)
    return out


def count_parameters(pytree: Any) -> int:
    """Return the number of elements in all float arrays of a tree.

    >>> count_parameters({"w": np.ones((2, 3), np.float32)})
    6
    """
    return sum(int(np.prod(x.shape)) for x in tree.leaves(pytree) if is_inexact_array(x))


def summary(pytree: Any) -> str:
    """Return a table of the leaves by path: shape, dtype, elements, bytes, with totals.

    >>> print(summary({"b": np.ones(3, np.float32)}).splitlines()[1])
    ['b']  float32[3]         3      12
    """
    rows: list[Sequence[str]] = [("leaf", "type", "elements", "bytes")]
    elements = size = 0
    for path, x in tree.leaves_with_path(pytree):
        if not is_array(x) and not isinstance(x, SCALARS):
            rows.append((tree.keystr(path), repr(x), "", ""))
            continue
        n, width = int(np.prod(np.shape(x))), getattr(x, "dtype", np.dtype(np.float32)).itemsize
        dtype = getattr(x, "dtype", type(x).__name__)
        elements, size = elements + n, size + n * width
        rows.append((tree.keystr(path), f"{dtype}{list(np.shape(x))}", f"{n:,}", f"{n * width:,}"))
    rows.append(("total", "", f"{elements:,}", f"{size:,}"))
    widths = [max(len(r[i]) for r in rows) for i in range(4)]
    return "\n".join(
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}".rstrip() for a, b, c, d in rows
    )
