"""Where trees meet graphs: a function of trees as a function of flat values, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import tree
from funcgrad.array import SCALARS, as_value, asarray, is_data, leaf_value, to_host
from funcgrad.errors import ShapeError, TreeError, message
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import apply
from funcgrad.trace import Tracer, Value, current_builder


def name_of(fun: Any) -> str:
    """A short name for a function, for messages and graphs."""
    return getattr(fun, "__name__", None) or type(fun).__name__


def values_of(args: Any, what: str) -> tuple[list[Any], tree.TreeDef]:
    """Flatten arguments to values, naming the path of a leaf that is no number and no array."""
    leaves, treedef = tree.flatten(args)
    if all(isinstance(x, Value) for x in leaves):
        return leaves, treedef
    paths = tree.leaves_with_path(args)
    return [leaf_value(x, tree.keystr(p) or "the root", what) for p, x in paths], treedef


class FlatFunction:
    """``fun(*args)`` as a function of the flat values of ``args``; remembers the structure of the result."""

    def __init__(self, fun: Callable[..., Any], treedef: tree.TreeDef, what: str):
        self.fun, self.treedef, self.what = fun, treedef, what
        self.out_tree: tree.TreeDef

    def __call__(self, *flat: Any) -> list[Any]:
        out = self.fun(*tree.unflatten(self.treedef, list(flat)))
        leaves, self.out_tree = tree.flatten(out)
        return [x if isinstance(x, (Value, Literal)) else result_leaf(x, out, self.what) for x in leaves]


def result_leaf(x: Any, out: Any, what: str) -> Any:
    """Return a value for a leaf of a result that is no value yet."""
    if is_data(x):
        return as_value(x)
    path = next(tree.keystr(p) for p, y in tree.leaves_with_path(out) if y is x)
    where = f"{type(x).__name__} at {path or 'the root'} of the result"
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
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """Return the arguments at ``argnums`` and a function that puts others in their place."""
    fixed = positions(argnums, len(args), option, what)

    def put(chosen: Sequence[Any]) -> list[Any]:
        full = list(args)
        for n, x in zip(fixed, chosen, strict=True):
            full[n] = x
        return full

    return [args[n] for n in fixed], put


def without_static(
    args: Sequence[Any], static: int | Sequence[int], what: str, option: str = "static_argnums"
) -> tuple[tuple[Any, ...], Callable[[Sequence[Any]], list[Any]]]:
    """Return the arguments that are not static and a function that puts others in their place."""
    fixed = set(positions(static, len(args), option, what))
    nums = [i for i in range(len(args)) if i not in fixed]
    chosen, put = split_args(args, nums, what)
    return tuple(chosen), put


def abstract_leaves(args: Any, what: str) -> tuple[list[Aval], tree.TreeDef]:
    """Flatten arguments, arrays or ShapeDtypeStructs, to types."""
    pairs, treedef = tree.flatten_with_path(args)
    leaves = [x if isinstance(x, Aval) else leaf_value(x, tree.keystr(p) or "the root", what).aval for p, x in pairs]
    return leaves, treedef


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
        raise ShapeError(message(what, f"the type must be {aval}", str(v.aval)))
    return v


def avals_of(values: Sequence[Any]) -> list[Aval]:
    """The types of values."""
    return [v.aval for v in values]


def is_traced(values: Sequence[Any]) -> bool:
    """Whether any of the values is traced."""
    return any(isinstance(v, Tracer) for v in values)
