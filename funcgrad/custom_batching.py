"""Functions with a rule of the user's for vmap, under the names of ``jax.custom_batching``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import lax, tree
from funcgrad.control.custom import CustomVMap
from funcgrad.errors import MissingRule, ShapeError, TreeError, message
from funcgrad.passes.simplify import dead_code
from funcgrad.trace import bind_all, current_builder, trace
from funcgrad.transforms.flat import FlatFunction, avals_of, label, materialize, name_of, values_of

__all__ = ["custom_vmap", "sequential_vmap"]


class custom_vmap:
    """A function whose rule for vmap the user defines with ``f.def_vmap(rule)``.

    ``rule(axis_size, in_batched, *args) -> (out, out_batched)``: arguments that are mapped, as ``in_batched`` (a list
    of trees of bools) says, have the axis in front; so has what ``out_batched`` marks of the result.  Derivatives are
    those of the function itself.

    >>> @custom_vmap
    ... def f(x):
    ...     return 2.0 * x
    >>> @f.def_vmap
    ... def rule(axis_size, in_batched, x):
    ...     return 20.0 * x, in_batched[0]
    >>> f(1.0), vmap(f)(fnp.ones(2))
    (2.0, Array([20., 20.], dtype=float32))
    """

    def __init__(self, fun: Callable[..., Any]):
        self.fun = fun
        self.what = label("custom_vmap", fun)
        self.rule: Callable[..., Any] | None = None
        functools.update_wrapper(self, fun, updated=())

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; usable as a decorator."""
        self.rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any) -> Any:
        if self.rule is None:
            raise MissingRule(message(self.what, "has no rule; call def_vmap(rule) first"))
        if current_builder() is None:
            return self.fun(*args)
        values, treedef = values_of(args, self.what)
        flat = FlatFunction(self.fun, treedef, self.what)
        traced = trace(flat, avals_of(values), values, name=self.what)
        out_tree, closed = flat.out_tree, traced.captured

        def batching(size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> tuple[list[Any], list[bool]]:
            return self._mapped(size, treedef, out_tree, mapped, xs)

        prim = CustomVMap(dead_code(traced.graph), name_of(self.fun), batching, len(closed))
        outs = bind_all(prim, *closed, *values)
        return tree.unflatten(out_tree, [materialize(o) for o in outs])

    def _mapped(
        self, size: int, treedef: tree.TreeDef, out_tree: tree.TreeDef, mapped: Sequence[bool], xs: Sequence[Any]
    ) -> tuple[list[Any], list[bool]]:
        assert self.rule is not None
        marks, args = list(tree.unflatten(treedef, list(mapped))), tree.unflatten(treedef, list(xs))
        result = self.rule(size, marks, *args)
        if not (isinstance(result, tuple) and len(result) == 2):
            got = type(result).__name__
            raise TreeError(message(f"{self.what}: rule", "a pair (out, out_batched) is required", got))
        outs, found = values_of(result[0], self.what)
        if found != out_tree:
            raise TreeError(message(f"{self.what}: rule", f"out must have the structure {out_tree}", str(found)))
        have = [bool(m) for m in tree.leaves(tree.broadcast(result[1], result[0]))]
        for out, mark in zip(outs, have, strict=True):
            if mark and out.aval.shape[:1] != (size,):
                requirement = f"what out_batched marks must have an axis of size {size} in front"
                raise ShapeError(message(f"{self.what}: rule", requirement, str(out.aval)))
        return outs, have


def sequential_vmap(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return f, which vmap calls for one example after another, in a loop.

    >>> vmap(sequential_vmap(lambda x: x * x))(fnp.asarray([1.0, 2.0]))
    Array([1., 4.], dtype=float32)
    """
    one = custom_vmap(f)

    @one.def_vmap
    def rule(axis_size: int, in_batched: list[Any], *args: Any) -> tuple[Any, Any]:
        leaves, treedef = tree.flatten(args)
        marks = tree.leaves(tuple(in_batched))
        rows = [x for x, m in zip(leaves, marks, strict=True) if m]

        def call(row: list[Any]) -> Any:
            it = iter(row)
            return f(*tree.unflatten(treedef, [next(it) if m else x for x, m in zip(leaves, marks, strict=True)]))

        return lax.map(call, rows), True

    return one
