"""Where trees meet graphs: a function of trees as a function of flat values, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import tree
from funcgrad.array import SCALARS, as_value, asarray, is_data, leaf_value, to_host
from funcgrad.errors import ShapeError, TreeError, message
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import apply
from funcgrad.trace import Value, current_builder


def name_of(fun: Any) -> str:
    """A short name for a function, for messages and graphs."""
    return getattr(fun, "__name__", None) or type(fun).__name__


def label(transformation: str, fun: Any) -> str:
    """Name a transformed function for messages; TypeError when it cannot be called."""
    if not callable(fun):
        way_out = f"{transformation}(f)(x), not {transformation}(f(x))"
        raise TypeError(message(transformation, "a function is required", type(fun).__name__, way_out))
    return f"{transformation} of {name_of(fun)}"


Naming = Callable[[tree.Path], str]


def positional(path: tree.Path) -> str:
    """Name a leaf of a tuple of arguments: the position, then the path inside."""
    return f"argument {path[0].idx}{tree.keystr(path[1:])}"  # type: ignore[union-attr]


def chosen(positions: Sequence[int]) -> Naming:
    """Name the leaves of the arguments at ``positions`` by their own positions."""
    return lambda path: f"argument {positions[path[0].idx]}{tree.keystr(path[1:])}"  # type: ignore[union-attr]


def argument_path(path: tree.Path) -> str:
    """Name a leaf of ``(args, kwargs)`` as a user would: the position or the keyword, then the path inside."""
    kind, which, *rest = path
    inside = tree.keystr(tuple(rest))
    if isinstance(kind, tree.SequenceKey) and kind.idx == 0 and isinstance(which, tree.SequenceKey):
        return f"argument {which.idx}{inside}"
    return f"keyword {getattr(which, 'key', which)}{inside}"


class Opaque:
    """A container without leaves: what a function returns beside its result, and that is no number and no array."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


tree.register_pytree_node(Opaque, lambda o: ((), o), lambda o, _: o.value)


def auxiliary(aux: Any) -> Any:
    """Return an auxiliary result whose leaves that are no arrays come back as they are."""
    return tree.map(lambda x: x if is_data(x) or isinstance(x, Literal) else Opaque(x), aux)


def in_result(path: tree.Path) -> str:
    """Name a leaf of a function's result."""
    return f"{tree.keystr(path) or 'the root'} of the result"


def values_of(args: Any, what: str, naming: Naming = positional) -> tuple[list[Any], tree.TreeDef]:
    """Flatten arguments to values, naming a leaf that is no number and no array."""
    leaves, treedef = tree.flatten(args)
    if all(isinstance(x, Value) for x in leaves):
        return leaves, treedef
    return [leaf_value(x, naming(p), what) for p, x in tree.leaves_with_path(args)], treedef


class FlatFunction:
    """``fun(*args)`` as a function of the flat values of ``args``; remembers the structure of the result."""

    def __init__(self, fun: Callable[..., Any], treedef: tree.TreeDef, what: str, naming: Naming = positional):
        self.fun, self.treedef, self.what, self.naming = fun, treedef, what, naming
        self.out_tree: tree.TreeDef

    def argument_names(self) -> list[str]:
        """A name for each flat value, for messages."""
        paths = tree.leaves_with_path(tree.unflatten(self.treedef, range(self.treedef.num_leaves)))
        return [self.naming(path) for path, _ in paths]

    def __call__(self, *flat: Any) -> list[Any]:
        out = self.fun(*tree.unflatten(self.treedef, list(flat)))
        leaves, self.out_tree = tree.flatten(out)
        return [x if isinstance(x, (Value, Literal)) else result_leaf(x, out, self.what) for x in leaves]


def result_leaf(x: Any, out: Any, what: str) -> Any:
    """Return a value for a leaf of a result that is no value yet."""
    if is_data(x):
        return as_value(x)
    path = next(p for p, y in tree.leaves_with_path(out) if y is x)
    where = f"{type(x).__name__} at {in_result(path)}"
    raise TreeError(message(what, "every leaf of the result must be a number or an array", where, "return arrays only"))


def materialize(x: Any) -> Any:
    """Return a value for the caller: literals become arrays."""
    if not isinstance(x, Literal):
        return x
    return apply("copy", x) if current_builder() is not None else asarray(x.value)


def positions(nums: int | Sequence[int], count: int, option: str, what: str) -> list[int]:
    """Return the positions that ``nums`` names among ``count`` positional arguments, negative ones from the end."""
    wanted = [nums] if isinstance(nums, (int, str)) else list(nums)
    for n in wanted:
        if not isinstance(n, int) or not -count <= n < count:
            got = f"{n!r} with {count} positional arguments"
            error = ValueError if isinstance(n, int) else TypeError
            raise error(message(what, f"{option} must name positional arguments of the call", got))
    return [n % count for n in wanted]


def split_args(
    args: Sequence[Any], argnums: int | Sequence[int], what: str, option: str = "argnums"
) -> tuple[tuple[Any, ...], Callable[[Sequence[Any]], list[Any]], Naming]:
    """Return the arguments at ``argnums``, a function that puts others in their place, and their leaves' names."""
    fixed = positions(argnums, len(args), option, what)

    def put(chosen: Sequence[Any]) -> list[Any]:
        full = list(args)
        for n, x in zip(fixed, chosen, strict=True):
            full[n] = x
        return full

    return tuple([args[n] for n in fixed]), put, chosen(fixed)


def without_static(
    args: Sequence[Any], static: int | Sequence[int], what: str, option: str = "static_argnums"
) -> tuple[tuple[Any, ...], Callable[[Sequence[Any]], list[Any]]]:
    """Return the arguments that are not static and a function that puts others in their place."""
    fixed = set(positions(static, len(args), option, what))
    nums = [i for i in range(len(args)) if i not in fixed]
    dynamic, put, _ = split_args(args, nums, what)
    return dynamic, put


def abstract_leaves(args: Any, what: str, naming: Naming = positional) -> tuple[list[Aval], tree.TreeDef]:
    """Flatten arguments, arrays or ShapeDtypeStructs, to types."""
    pairs, treedef = tree.flatten_with_path(args)
    return [x if isinstance(x, Aval) else leaf_value(x, naming(p), what).aval for p, x in pairs], treedef


def typed(x: Any, aval: Aval, what: str) -> Any:
    """Return a value of exactly the type ``aval``, or raise ShapeError; numbers and host data take its dtype."""
    if isinstance(x, SCALARS):
        v: Any = Literal(x, aval.dtype)
    elif isinstance(x, (Value, Literal)):
        v = x
    elif is_data(x):
        v = asarray(to_host(x, aval.dtype, True))
    else:
        raise TreeError(message(what, "a number or an array is required", type(x).__name__))
    if v.aval != aval:
        raise ShapeError(message(what, f"the type must be {aval}", str(v.aval), "convert with astype or reshape"))
    return v


def avals_of(values: Sequence[Any]) -> list[Aval]:
    """The types of values."""
    return [v.aval for v in values]
