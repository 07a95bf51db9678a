"""vmap: a function of one example as a function of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import tree
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Aval
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.simplify import dead_code
from funcgrad.primitive import broadcast_leading
from funcgrad.prims import layout
from funcgrad.trace import named_axis, replay, trace
from funcgrad.transforms.flat import FlatFunction, argument_path, label, materialize, values_of

__all__ = ["vmap"]


def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
) -> Callable[..., Any]:
    """Return ``fun`` mapped over an axis of its arguments.

    ``in_axes`` gives per argument the mapped axis, None for none, or a tree prefix of these; ``out_axes`` where the
    axis goes in the results.  Collectives such as ``lax.psum`` may name the axis by ``axis_name``.

    Raises ShapeError when the mapped sizes differ or nothing is mapped (then give ``axis_size``).

    >>> vmap(lambda x: x.sum())(asarray([[1.0, 2.0], [3.0, 4.0]]))
    Array([3., 7.], dtype=float32)
    """
    what = label("vmap", fun)

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes_prefix = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        if isinstance(axes_prefix, tuple) and len(axes_prefix) != len(args):
            raise ValueError(message(what, f"in_axes must have one entry per argument ({len(args)})", str(in_axes)))
        values, treedef = values_of((args, kwargs), what, argument_path)
        axes = [*broadcast_prefix(axes_prefix, args, f"{what}: in_axes"), *[0] * len(tree.leaves(kwargs))]
        axes = [_normal(a, v, what) for a, v in zip(axes, values, strict=True)]
        size = _size(values, axes, axis_size, what)
        rows = [v if a is None else move_axis(v, a, 0) for v, a in zip(values, axes, strict=True)]
        marks = [a is not None for a in axes]
        avals = [Aval(r.aval.shape[1:], r.aval.dtype) if m else r.aval for r, m in zip(rows, marks, strict=True)]
        known = [None if m else r for r, m in zip(rows, marks, strict=True)]
        flat = FlatFunction(lambda a, k: fun(*a, **k), treedef, what, argument_path)
        with named_axis(axis_name, size):
            traced = trace(flat, avals, known, name=what)
            graph = dead_code(traced.graph)
            batched, out_marks = batch_graph(graph, size, [False] * len(traced.captured) + marks, axis_name)
        outs = [materialize(r) for r in replay(batched, [*traced.captured, *rows])]
        result = tree.unflatten(flat.out_tree, outs)
        out_spec = broadcast_prefix(out_axes, result, f"{what}: out_axes")
        placed = [_place(o, m, a, size, what) for o, m, a in zip(outs, out_marks, out_spec, strict=True)]
        return tree.unflatten(flat.out_tree, placed)

    return mapped


def broadcast_prefix(prefix: Any, full: Any, what: str) -> list[Any]:
    """Return one entry of a tree prefix per leaf of ``full``; None in the prefix is an entry."""
    out: list[Any] = []

    def is_entry(x: Any) -> bool:
        return x is None or isinstance(x, int)

    leaves, treedef = tree.flatten(prefix, is_leaf=is_entry)
    for entry, sub in zip(leaves, treedef.flatten_up_to(full, what), strict=True):
        if not is_entry(entry):
            raise TypeError(message(what, "entries must be integers or None", repr(entry)))
        out += [entry] * len(tree.leaves(sub))
    return out


def _normal(axis: int | None, value: Any, what: str) -> int | None:
    if axis is None:
        return None
    if not -value.aval.ndim <= axis < value.aval.ndim:
        raise ShapeError(
            message(
                what, "the mapped axis must exist", f"axis {axis} of {value.aval}", "map it with None, or add an axis"
            )
        )
    return int(axis % value.aval.ndim)


def _size(values: Sequence[Any], axes: Sequence[int | None], given: int | None, what: str) -> int:
    sizes = {v.aval.shape[a] for v, a in zip(values, axes, strict=True) if a is not None}
    sizes |= {given} if given is not None else set()
    if not sizes:
        raise ShapeError(
            message(what, "at least one argument must be mapped", f"in_axes {list(axes)}", "give axis_size")
        )
    if len(sizes) > 1:
        got = ", ".join(f"{v.aval} on axis {a}" for v, a in zip(values, axes, strict=True) if a is not None)
        raise ShapeError(message(what, "mapped axes must have one size", got))
    return int(sizes.pop())


def move_axis(x: Any, source: int, destination: int) -> Any:
    """Move one axis of a value to another place."""
    if source == destination:
        return x
    perm = [i for i in range(x.aval.ndim) if i != source]
    perm.insert(destination, source)
    return layout.transpose(x, perm)


def _place(out: Any, mapped: bool, axis: int | None, size: int, what: str) -> Any:
    if axis is None:
        if mapped:
            raise ValueError(
                message(what, "out_axes=None needs a result that does not depend on mapped values", str(out.aval))
            )
        return out
    full = out if mapped else broadcast_leading(out, size)
    if not -full.aval.ndim <= axis < full.aval.ndim:
        raise ShapeError(message(what, "out_axes must be an axis of the result", f"{axis} for {full.aval}"))
    return move_axis(full, 0, axis % full.aval.ndim)
