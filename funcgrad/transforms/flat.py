"""Where trees meet graphs: a function of trees as a function of flat values, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import tree
from funcgrad.array import SCALARS, as_value, asarray, leaf_value
from funcgrad.errors import TreeError, message
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
    if isinstance(x, SCALARS) or hasattr(x, "__array__") or hasattr(x, "__dlpack__"):
        return as_value(x)
    path = next(tree.keystr(p) for p, y in tree.leaves_with_path(out) if y is x)
    where = f"{type(x).__name__} at {path or 'the root'} of the result"
    raise TreeError(message(what, "every leaf of the result must be a number or an array", where, "return arrays only"))


def materialize(x: Any) -> Any:
    """Return a value for the caller: literals become arrays."""
    if not isinstance(x, Literal):
        return x
    return apply("copy", x) if current_builder() is not None else asarray(x.value)


def split_args(
    args: Sequence[Any], argnums: int | Sequence[int], what: str
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """Return the arguments at ``argnums`` and a function that puts others in their place."""
    nums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    fixed = []
    for n in nums:
        if not -len(args) <= n < len(args):
            got = f"{n} with {len(args)} positional arguments"
            raise ValueError(message(what, "argnums must name positional arguments of the call", got))
        fixed.append(n % len(args))

    def put(chosen: Sequence[Any]) -> list[Any]:
        full = list(args)
        for n, x in zip(fixed, chosen, strict=True):
            full[n] = x
        return full

    return [args[n] for n in fixed], put


def avals_of(values: Sequence[Any]) -> list[Aval]:
    """The types of values."""
    return [v.aval for v in values]


def is_traced(values: Sequence[Any]) -> bool:
    """Whether any of the values is traced."""
    return any(isinstance(v, Tracer) for v in values)
