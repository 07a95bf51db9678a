"""Functions of vectors or scalars applied along axes: apply_along_axis, apply_over_axes, vectorize."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad.errors import ShapeError, message
from funcgrad.ir import Aval
from funcgrad.numpy.manipulation import expand_dims, moveaxis
from funcgrad.numpy.promotion import array_of, axis_index, axis_tuple, broadcast_shapes, expand_to
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.simplify import dead_code
from funcgrad.primitive import broadcast_leading
from funcgrad.prims import layout
from funcgrad.trace import replay, trace

__all__ = ["apply_along_axis", "apply_over_axes", "vectorize"]


def map_rows(name: str, fun: Callable[..., Any], xs: Sequence[Any]) -> tuple[list[Any], bool]:
    """Call a function on row after row of arrays of one length; stack its results (several when it gives a tuple)."""
    size = xs[0].aval.shape[0]
    several = False

    def flat(*rows: Any) -> list[Any]:
        nonlocal several
        out = fun(*rows)
        several = isinstance(out, (tuple, list))
        return [array_of(name, o) for o in (out if several else (out,))]

    traced = trace(flat, [Aval(x.aval.shape[1:], x.aval.dtype) for x in xs], name=name)
    graph = dead_code(traced.graph)
    batched, marks = batch_graph(graph, size, [False] * len(traced.captured) + [True] * len(xs))
    outs = replay(batched, [*traced.captured, *xs])
    rows = [array_of(name, o) for o in outs]
    return [o if m else broadcast_leading(o, size) for o, m in zip(rows, marks, strict=True)], several


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the results of a function of a vector for every vector along an axis; its result's axes replace that axis.

    >>> fnp.apply_along_axis(lambda v: v.sum(), 1, fnp.asarray([[1, 2], [3, 4]]))
    Array([3, 7], dtype=int32)
    """
    x = array_of("apply_along_axis", arr)
    d = axis_index("apply_along_axis", axis, x.aval.ndim)
    rest = [n for i, n in enumerate(x.aval.shape) if i != d]
    moved = moveaxis(x, d, -1)
    rows = layout.reshape(moved, (moved.aval.size // max(x.aval.shape[d], 1), x.aval.shape[d]))
    (out,), _ = map_rows("apply_along_axis", lambda v: func1d(v, *args, **kwargs), [rows])
    inner = out.aval.shape[1:]
    out = layout.reshape(out, (*rest, *inner))
    return (
        moveaxis(out, tuple(range(len(rest), len(rest) + len(inner))), tuple(range(d, d + len(inner))))
        if inner
        else out
    )


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Any) -> Any:
    """Return the array after ``func(array, axis)`` for one axis after another, keeping its rank.

    >>> fnp.apply_over_axes(fnp.sum, fnp.ones((2, 3)), [0, 1])
    Array([[6.]], dtype=float32)
    """
    x = array_of("apply_over_axes", a)
    for d in axis_tuple(
        "apply_over_axes", axes if not isinstance(axes, list) else tuple(axes), x.aval.ndim, sort=False
    ):
        out = array_of("apply_over_axes", func(x, d))
        out = expand_dims(out, d) if out.aval.ndim == x.aval.ndim - 1 else out
        if out.aval.ndim != x.aval.ndim:
            raise ShapeError(
                message("apply_over_axes", "the function must keep the rank, or drop the axis", str(out.aval))
            )
        x = out
    return x


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Any = frozenset(), signature: str | None = None
) -> Callable[..., Any]:
    """Return a function of scalars as a function that broadcasts; ``signature`` such as "(n),(n)->()" names core axes.

    >>> fnp.vectorize(lambda a, b: a * b)(fnp.asarray([1, 2]), 3)
    Array([3, 6], dtype=int32)
    """
    cores, count = _signature(signature)

    @functools.wraps(pyfunc)
    def vectorized(*args: Any) -> Any:
        at = [i for i in range(len(args)) if i not in excluded]
        xs = [array_of("vectorize", args[i]) for i in at]
        ranks = cores if cores is not None else [0] * len(xs)
        if len(ranks) != len(xs):
            raise TypeError(message("vectorize", f"{len(ranks)} arguments are required by {signature}", str(len(xs))))
        if any(x.aval.ndim < r for x, r in zip(xs, ranks, strict=True)):
            raise ShapeError(
                message("vectorize", f"the axes of {signature} are required", ", ".join(str(x.aval) for x in xs))
            )
        leads = [x.aval.shape[: x.aval.ndim - r] for x, r in zip(xs, ranks, strict=True)]
        lead = broadcast_shapes(*leads, name="vectorize")
        size = 1
        for n in lead:
            size *= n
        rows = [_rows(x, r, lead, size) for x, r in zip(xs, ranks, strict=True)]

        def one(*values: Any) -> Any:
            full = list(args)
            for i, v in zip(at, values, strict=True):
                full[i] = v
            return pyfunc(*full)

        outs, several = map_rows("vectorize", one, rows)
        if count is not None and count != len(outs):
            raise TypeError(message("vectorize", f"{count} results are required by {signature}", str(len(outs))))
        shaped = [layout.reshape(o, (*lead, *o.aval.shape[1:])) for o in outs]
        return tuple(shaped) if several else shaped[0]

    return vectorized


def _rows(x: Any, core: int, lead: Sequence[int], size: int) -> Any:
    inner = x.aval.shape[x.aval.ndim - core :]
    return layout.reshape(expand_to(x, (*lead, *inner)), (size, *inner))


def _signature(text: str | None) -> tuple[list[int] | None, int | None]:
    """The number of core axes of each argument, and the number of results."""
    if text is None:
        return None, None
    core = r"\((?:\w+(?:,\w+)*)?\)"
    compact = text.replace(" ", "")
    if not re.fullmatch(f"{core}(?:,{core})*->{core}(?:,{core})*", compact):
        raise ValueError(message("vectorize", 'the signature must look like "(m,n),(n)->(m)"', repr(text)))
    left, right = compact.split("->")
    return [len([n for n in part.split(",") if n]) for part in re.findall(r"\(([^)]*)\)", left)], right.count("(")
