"""What the control-flow functions share: operands as flat values, a loop's body as a flat function, scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes, tree
from funcgrad.array import SCALARS, as_value, leaf_value
from funcgrad.errors import DTypeError, TreeError, message
from funcgrad.ir import Aval, Literal
from funcgrad.trace import Traced, Tracer, Value, is_staging, trace

# Python's kinds of numbers from the smallest: a Python scalar takes the dtype of a larger kind.
_KIND = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2}


def flat_operands(args: Any, what: str) -> tuple[list[Any], tree.TreeDef]:
    """Flatten a tree to values; Python scalars become literals."""
    leaves, treedef = tree.flatten(args)
    if all(isinstance(x, Value) for x in leaves):
        return leaves, treedef
    pairs = tree.leaves_with_path(args)
    return [
        as_value(x) if _is_scalar(x) else leaf_value(x, tree.keystr(p) or "the root", what) for p, x in pairs
    ], treedef


def _is_scalar(x: Any) -> bool:
    return isinstance(x, SCALARS) and not isinstance(x, np.generic)


def promoted(x: Any, dtype: Any) -> Any:
    """A Python scalar, as a literal, in the dtype of what stands in its place later, if that can hold its kind."""
    if isinstance(x, Literal) and not x.aval.shape and _KIND[x.aval.dtype.kind] <= _KIND[dtype.kind]:
        return Literal(x.item(), dtype)
    return x


def check_structure(got: Any, got_def: tree.TreeDef, want: tree.TreeDef, what: str) -> None:
    if got_def == want:
        return
    want.flatten_up_to(got, what)  # names the first difference by its path, unless it lies below a leaf
    way_out = "compare with fg.tree.structure"
    raise TreeError(message(what, "the structure must not change", f"{got_def} for {want}", way_out))


class Step:
    """A loop's body as a function of flat values; scalars among the carry that it returns take the carry's dtypes."""

    def __init__(self, body: Callable[..., tuple[Any, Any]], carry: tree.TreeDef, rows: tree.TreeDef, what: str):
        self.body, self.carry, self.rows, self.what = body, carry, rows, what
        self.out_tree: tree.TreeDef

    def traced(self, init: Sequence[Any], rows: Sequence[Aval]) -> tuple[Traced, list[Any]]:
        """Trace; Python scalars in ``init`` are promoted to the types that the body returns for them."""
        init = self.start(init, rows)
        for _ in range(len(init) + 1):
            traced = trace(self, [*[x.aval for x in init], *rows], name=self.what)
            outs = [a.dtype for a in traced.graph.out_avals]
            more = [promoted(x, d) for x, d in zip(init, outs, strict=False)]
            if all(a.aval == b.aval for a, b in zip(more, init, strict=True)):
                break
            init = more
        self.check_types([x.aval for x in init], traced.graph.out_avals)
        return traced, init

    def start(self, init: Sequence[Any], rows: Sequence[Aval]) -> list[Any]:
        """The initial carry; Python floats are float64 where some operand is."""
        if not any(a.dtype == dtypes.float64 for a in (*[x.aval for x in init], *rows)):
            return list(init)
        return [promoted(x, dtypes.float64) if dtypes.is_float(x.aval.dtype) else x for x in init]

    def __call__(self, *flat: Any) -> list[Any]:
        k = self.carry.num_leaves
        carry, y = self.body(tree.unflatten(self.carry, list(flat[:k])), tree.unflatten(self.rows, list(flat[k:])))
        leaves, carry_def = tree.flatten(carry)
        check_structure(carry, carry_def, self.carry, f"{self.what}: the carry that the body returns")
        outs = [_typed_like(x, old.aval, self.what) for x, old in zip(leaves, flat, strict=False)]
        ys, self.out_tree = flat_operands(y, f"{self.what}: result of the body")
        return [*outs, *ys]

    def check_types(self, before: Sequence[Aval], after: Sequence[Aval]) -> None:
        """Raise DTypeError unless the carry has the same types before and after a step."""
        if all(a == b for a, b in zip(before, after, strict=False)):
            return
        paths = [tree.keystr(p) for p, _ in tree.leaves_with_path(tree.unflatten(self.carry, [0] * len(before)))]
        wrong = [f"{b} for {a} at carry{p}" for p, a, b in zip(paths, before, after, strict=False) if a != b]
        way_out = "convert the initial value or what the body returns, e.g. with astype or broadcast_to"
        requirement = "the body must return a carry of the same types that it takes"
        raise DTypeError(message(self.what, requirement, "; ".join(wrong), way_out))


def _typed_like(x: Any, aval: Aval, what: str) -> Any:
    if isinstance(x, (Value, Literal)):
        return x
    if _is_scalar(x):
        return promoted(as_value(x), aval.dtype)
    return leaf_value(x, "the carry", what)


def scalar_operand(x: Any, role: str, what: str) -> Any:
    """A scalar operand that decides: a value or a literal."""
    try:
        (value,), _ = flat_operands((x,), what)
    except ValueError:
        value = None
    if value is None or value.aval.shape:
        got = "a tree" if value is None else str(value.aval)
        way_out = "reduce it with .any() or .all(), or use where or vmap for a choice per element"
        raise DTypeError(message(what, f"{role} must be a scalar", got, way_out))
    return value


def known_int(x: Any) -> int | None:
    """The value of an integer scalar where Python may act on it: outside ``jit``, and not mapped."""
    if isinstance(x, Literal):
        return int(x.item())
    if is_staging():
        return None
    while isinstance(x, Tracer):
        x = x.concrete()
    return None if x is None else int(np.asarray(x))


def texts(xs: Sequence[Any]) -> str:
    """Each as text, with commas between."""
    return ", ".join([str(x) for x in xs])
