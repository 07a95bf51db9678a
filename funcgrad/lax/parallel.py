"""Collectives over a named axis of ``vmap``: psum, pmean, pmax, pmin, axis_index, all_gather and their kin.

Each takes a tree of arrays, one value per lane, inside a function that ``vmap(..., axis_name=name)`` maps.  Outside
of one they raise NameError.  Names and meaning follow JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import dtypes, tree
from funcgrad import trace as _trace
from funcgrad.control import collectives as c
from funcgrad.errors import ShapeError, message
from funcgrad.lax.staging import flat_operands
from funcgrad.prims.layout import reshape, transpose
from funcgrad.prims.pointwise import convert, div
from funcgrad.transforms.flat import materialize

__all__ = ["all_gather", "axis_index", "axis_size", "pmax", "pmean", "pmin", "ppermute", "psum", "psum_scatter"]


def _each(what: str, f: Callable[[Any, Any], Any], x: Any, axis_name: Any) -> Any:
    """Apply ``f(leaf, name)`` to every leaf, for one axis name after another."""
    leaves, treedef = flat_operands(x, what)
    leaves = [materialize(v) for v in leaves]
    for name in axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,):
        leaves = [f(v, name) for v in leaves]
    return tree.unflatten(treedef, leaves)


def psum(x: Any, axis_name: Any) -> Any:
    """Return the sum of ``x`` over all lanes of ``axis_name``, a name or a tuple of names; bools are counted as int32.

    The sum of a Python number is a Python number: ``psum(1, name)`` is the size of the axis.

    >>> fg.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i")(fnp.asarray([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    if isinstance(x, (int, float)):
        for name in axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,):
            x = x * axis_size(name)
        return x
    return _each("psum", c.psum, x, axis_name)


def pmean(x: Any, axis_name: Any) -> Any:
    """Return the mean of ``x`` over all lanes; integers become float32.

    >>> fg.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")(fnp.asarray([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """

    def mean(v: Any, name: Any) -> Any:
        v = v if dtypes.is_float(v.aval.dtype) else convert(v, dtypes.float32)
        return div(c.psum(v, name), axis_size(name))

    return _each("pmean", mean, x, axis_name)


def pmax(x: Any, axis_name: Any) -> Any:
    """Return the largest of ``x`` over all lanes; lanes that share it share its gradient equally.

    >>> fg.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(fnp.asarray([1.0, 3.0]))
    Array([3., 3.], dtype=float32)
    """
    return _each("pmax", lambda v, name: c.collect(c.PMax(name), v), x, axis_name)


def pmin(x: Any, axis_name: Any) -> Any:
    """Return the smallest of ``x`` over all lanes; lanes that share it share its gradient equally.

    >>> fg.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(fnp.asarray([1.0, 3.0]))
    Array([1., 1.], dtype=float32)
    """
    return _each("pmin", lambda v, name: c.collect(c.PMin(name), v), x, axis_name)


def axis_index(axis_name: Any) -> Any:
    """Return the number of this lane, an int32 scalar.

    >>> fg.vmap(lambda x: x * lax.axis_index("i"), axis_name="i")(fnp.asarray([5, 5, 5]))
    Array([ 0,  5, 10], dtype=int32)
    """
    return c.collect(c.AxisIndex(axis_name))


def axis_size(axis_name: Any) -> int:
    """Return the number of lanes.

    >>> fg.vmap(lambda x: x + lax.axis_size("i"), axis_name="i")(fnp.asarray([1, 2]))
    Array([3, 4], dtype=int32)
    """
    return _trace.axis_size(axis_name)


def all_gather(x: Any, axis_name: Any, *, axis: int = 0, tiled: bool = False) -> Any:
    """Return the values of all lanes along a new ``axis``, or with ``tiled`` one after another along an existing one.

    >>> fg.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(fnp.asarray([1.0, 3.0]))
    Array([[1., 3.],
           [1., 3.]], dtype=float32)
    """

    def gather(v: Any, name: Any) -> Any:
        at = _axis("all_gather", axis, v.aval.ndim + (not tiled))
        out = c.collect(c.AllGather(name, axis_size(name)), v)
        out = transpose(out, [*range(1, at + 1), 0, *range(at + 1, out.aval.ndim)])
        shape = v.aval.shape
        return reshape(out, (*shape[:at], out.aval.shape[at] * shape[at], *shape[at + 1 :])) if tiled else out

    return _each("all_gather", gather, x, axis_name)


def psum_scatter(x: Any, axis_name: Any, *, scatter_dimension: int = 0, tiled: bool = False) -> Any:
    """Return this lane's part along ``scatter_dimension`` of the sum over all lanes.

    That dimension has the size of the axis and vanishes; with ``tiled`` its size is a multiple and is divided.

    >>> fg.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(fnp.asarray([[1.0, 2.0], [3.0, 4.0]]))
    Array([4., 6.], dtype=float32)
    """

    def scatter(v: Any, name: Any) -> Any:
        at, size, shape = _axis("psum_scatter", scatter_dimension, v.aval.ndim), axis_size(name), v.aval.shape
        if shape[at] % size or (shape[at] != size and not tiled):
            want = "a multiple of " if tiled else ""
            raise ShapeError(
                message("psum_scatter", f"axis {at} must have {want}the size {size} of {name!r}", str(v.aval))
            )
        split = reshape(v, (*shape[:at], size, shape[at] // size, *shape[at + 1 :])) if tiled else v
        out = transpose(split, [at, *[d for d in range(split.aval.ndim) if d != at]])
        return c.collect(c.PSumScatter(name, size), out)

    return _each("psum_scatter", scatter, x, axis_name)


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Return the value of the lane that ``perm``, pairs (source, destination), sends here; zeros where none does.

    >>> fg.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")(fnp.asarray([1.0, 2.0, 3.0]))
    Array([0., 1., 2.], dtype=float32)
    """
    pairs = tuple([(int(s), int(d)) for s, d in perm])
    return _each("ppermute", lambda v, name: c.collect(c.PPermute(name, pairs), v), x, axis_name)


def _axis(what: str, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ShapeError(message(what, f"the axis must be between {-rank} and {rank - 1}", str(axis)))
    return axis % rank
