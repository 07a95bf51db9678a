"""associative_scan: all prefix combinations in a logarithmic number of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import tree
from funcgrad.errors import DTypeError, ShapeError, message
from funcgrad.lax.staging import flat_operands, texts
from funcgrad.prims.layout import concatenate, expand, reshape, slice_, slice_along
from funcgrad.prims.layout import reverse as flip
from funcgrad.transforms.flat import materialize, name_of

__all__ = ["associative_scan"]


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Return all prefix combinations of ``elems`` under an associative ``fn``, in a logarithmic number of steps.

    ``elems`` is a tree of arrays of one size along ``axis``; ``fn(a, b)`` combines two such trees element by element
    along that axis (it gets many at once).  Element i of the result combines elements 0 to i, or with ``reverse`` i
    to the last.

    The work-efficient algorithm of Ladner and Fischer (1980), "Parallel prefix computation".

    >>> lax.associative_scan(lambda a, b: a + b, fnp.asarray([1.0, 2.0, 3.0, 4.0]))
    Array([ 1.,  3.,  6., 10.], dtype=float32)
    """
    what = f"associative_scan of {name_of(fn)}"
    if not callable(fn):
        raise TypeError(message(what, "fn must be a function", type(fn).__name__))
    leaves, treedef = flat_operands(elems, what)
    leaves = [materialize(x) for x in leaves]
    for x in leaves:
        if not -x.aval.ndim <= axis < x.aval.ndim:
            raise ShapeError(message(what, "axis must be one of every leaf", f"axis {axis} of {x.aval}"))
    axes = [axis % x.aval.ndim for x in leaves]
    sizes = {x.aval.shape[a] for x, a in zip(leaves, axes, strict=True)}
    if len(sizes) > 1:
        raise ShapeError(
            message(what, f"all leaves must have one size along axis {axis}", texts([x.aval for x in leaves]))
        )

    def combine(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        out, out_def = flat_operands(fn(tree.unflatten(treedef, list(a)), tree.unflatten(treedef, list(b))), what)
        if out_def != treedef or [o.aval for o in out] != [x.aval for x in a]:
            got = f"{texts([o.aval for o in out])} for {texts([x.aval for x in a])}"
            raise DTypeError(message(what, "fn must return the types that it takes", got))
        return out

    if reverse:
        leaves = [flip(x, (a,)) for x, a in zip(leaves, axes, strict=True)]
    outs = _prefixes(combine, leaves, axes)
    if reverse:
        outs = [flip(x, (a,)) for x, a in zip(outs, axes, strict=True)]
    return tree.unflatten(treedef, outs)


def _prefixes(combine: Callable[..., list[Any]], xs: list[Any], axes: Sequence[int]) -> list[Any]:
    """Combine neighbours, solve the half-sized problem, and fill in the elements between."""
    n = xs[0].aval.shape[axes[0]] if xs else 0
    if n < 2:
        return xs

    def part(values: Sequence[Any], start: int, stop: int, step: int = 1) -> list[Any]:
        return [_strided(x, a, start, stop, step) for x, a in zip(values, axes, strict=True)]

    half = n // 2
    odd = _prefixes(combine, combine(part(xs, 0, 2 * half, 2), part(xs, 1, 2 * half, 2)), axes)
    first = part(xs, 0, 1)
    if n == 2:
        return [concatenate(pair, a) for *pair, a in zip(first, odd, axes, strict=True)]
    left = (n - 1) // 2
    later = combine(part(odd, 0, left), part(xs, 2, n, 2))
    even = [concatenate(pair, a) for *pair, a in zip(first, later, axes, strict=True)]
    return [_interleaved(e, o, a) for e, o, a in zip(even, odd, axes, strict=True)]


def _strided(x: Any, axis: int, start: int, stop: int, step: int) -> Any:
    low, high, strides = [0] * x.aval.ndim, list(x.aval.shape), [1] * x.aval.ndim
    low[axis], high[axis], strides[axis] = start, stop, step
    return slice_(x, low, high, strides)


def _interleaved(even: Any, odd: Any, axis: int) -> Any:
    """Elements of ``even`` and ``odd`` in turns; ``even`` may have one more."""
    m = odd.aval.shape[axis]
    pairs = concatenate([expand(slice_along(even, axis, 0, m), axis + 1), expand(odd, axis + 1)], axis + 1)
    shape = odd.aval.shape
    out = reshape(pairs, (*shape[:axis], 2 * m, *shape[axis + 1 :]))
    return concatenate([out, slice_along(even, axis, m, m + 1)], axis) if even.aval.shape[axis] > m else out
