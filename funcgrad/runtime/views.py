"""Strided views: what a value is while a graph is being lowered, and the arithmetic of strides.

A view is a buffer, an offset and one stride per axis, both in bytes; reshape, transpose, broadcast, slice and reverse
only make another view.  Two kinds of view have no buffer of memory: a constant (``value`` is set) and an iota, whose
buffer is ``IOTA`` and whose element is ``offset + sum(index * stride)``, an int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from funcgrad import dtypes
from funcgrad.ir import Aval, Literal
from funcgrad.runtime.plan import Buf

__all__ = ["IOTA", "View", "coalesce", "is_row_major", "reshape_strides", "row_major"]

Ints = tuple[int, ...]
IOTA = Buf(Aval((), dtypes.int32))


@lru_cache(maxsize=8192)
def row_major(shape: Ints, itemsize: int) -> Ints:
    """Return the byte strides of contiguous data.

    >>> row_major((2, 3), 4)
    (12, 4)
    """
    out, step = [], itemsize
    for n in reversed(shape):
        out.append(step)
        step *= n or 1
    return tuple(reversed(out))


def is_row_major(shape: Ints, strides: Ints, itemsize: int) -> bool:
    """Return whether the elements lie one after another; the stride of an axis of size 1 does not matter.

    >>> is_row_major((2, 1, 3), (12, 99, 4), 4), is_row_major((3, 2), (4, 12), 4)
    (True, False)
    """
    step = itemsize
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return True


def reshape_strides(shape: Ints, strides: Ints, new: Ints) -> Ints | None:
    """Return the strides under a new shape, or None when a copy is needed.

    >>> reshape_strides((2, 3, 4), (48, 16, 4), (6, 2, 2))
    (16, 8, 4)
    >>> reshape_strides((2, 3), (4, 8), (6,)) is None
    True
    """
    dims, (steps,) = coalesce(shape, (strides,))
    out: list[int] = []
    i, left, step = len(dims) - 1, 1, 0
    for n in reversed(new):
        if n == 1:
            out.append(0)
            continue
        if left == 1:
            if i < 0:
                return None
            left, step, i = dims[i], steps[i], i - 1
        if left % n:
            return None
        out.append(step)
        left, step = left // n, step * n
    return tuple(reversed(out)) if left == 1 and i < 0 else None


def coalesce(shape: Sequence[int], rows: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Merge neighbouring axes that every row of strides runs through evenly, and drop axes of size 1.

    >>> coalesce((2, 3, 1, 4), [(48, 16, 5, 4), (0, 0, 0, 4)])
    ([6, 4], [[16, 4], [0, 4]])
    """
    dims: list[int] = []
    out: list[list[int]] = [[] for _ in rows]
    for axis in range(len(shape) - 1, -1, -1):
        n = shape[axis]
        if n == 1:
            continue
        if dims:
            inner = dims[-1]
            for row, steps in zip(rows, out, strict=True):
                if row[axis] != steps[-1] * inner:
                    break
            else:
                dims[-1] = inner * n
                continue
        dims.append(n)
        for row, steps in zip(rows, out, strict=True):
            steps.append(row[axis])
    dims.reverse()
    for steps in out:
        steps.reverse()
    return dims, out


class View:
    """A value while a graph is lowered: a strided piece of a buffer, a constant, or an iota."""

    __slots__ = ("aval", "buf", "contiguous", "dense", "offset", "strides", "value")
    aval: Aval
    buf: Buf
    offset: int
    strides: Ints
    contiguous: bool  # in memory, row-major
    value: Literal | None  # of a constant
    dense: View | None  # a contiguous copy, once one was made

    def __init__(
        self, aval: Aval, buf: Buf, offset: int, strides: Ints, contiguous: bool, value: Literal | None = None
    ):
        self.aval, self.buf, self.offset, self.strides = aval, buf, offset, strides
        self.contiguous, self.value, self.dense = contiguous, value, None

    @property
    def dtype(self) -> Any:
        """The dtype."""
        return self.aval.dtype

    @property
    def whole(self) -> bool:
        """Whether this is a buffer from its first byte to its last, in order."""
        return self.contiguous and self.offset == 0 and self.aval.nbytes == self.buf.nbytes

    def with_layout(self, shape: Ints, offset: int, strides: Ints) -> View:
        """The same memory under another shape, offset and strides."""
        aval = Aval(shape, self.aval.dtype)
        if self.value is not None:
            return View(aval, self.buf, 0, (0,) * len(shape), False, self.value)
        contiguous = self.buf is not IOTA and is_row_major(shape, strides, aval.dtype.itemsize)
        return View(aval, self.buf, offset, strides, contiguous)

    def reshape(self, shape: Ints) -> View | None:
        """The elements in row-major order under another shape, or None when that takes a copy."""
        if self.contiguous:
            aval = Aval(shape, self.aval.dtype)
            return View(aval, self.buf, self.offset, row_major(shape, aval.dtype.itemsize), True)
        strides = (
            (0,) * len(shape)
            if self.value is not None or not self.aval.size
            else reshape_strides(self.aval.shape, self.strides, shape)
        )
        return None if strides is None else self.with_layout(shape, self.offset, strides)

    def reshape_exactly(self, shape: Ints) -> View:
        """``reshape`` where it is known to take no copy."""
        out = self.reshape(shape)
        assert out is not None, f"{self} cannot be viewed as {shape}"
        return out

    def drop(self, axis: int) -> View:
        """Without an axis of size 1."""
        shape, strides = self.aval.shape, self.strides
        return self.with_layout(shape[:axis] + shape[axis + 1 :], self.offset, strides[:axis] + strides[axis + 1 :])

    def transpose(self, perm: Ints) -> View:
        """Axis i of the result is axis perm[i]."""
        shape, strides = self.aval.shape, self.strides
        return self.with_layout(tuple([shape[i] for i in perm]), self.offset, tuple([strides[i] for i in perm]))

    def broadcast(self, shape: Ints, dims: Ints) -> View:
        """Repeated to ``shape``; axis i becomes axis dims[i]."""
        strides = [0] * len(shape)
        for i, d in enumerate(dims):
            if self.aval.shape[i] != 1:
                strides[d] = self.strides[i]
        return self.with_layout(shape, self.offset, tuple(strides))

    def slice(self, start: Ints, limit: Ints, steps: Ints) -> View:
        """Elements start, start + step, ... below limit along each axis."""
        shape = tuple([max(0, -(-(b - a) // s)) for a, b, s in zip(start, limit, steps, strict=True)])
        offset = self.offset
        for n, a, st in zip(shape, start, self.strides, strict=True):
            offset += a * st if n else 0
        return self.with_layout(shape, offset, tuple([st * s for st, s in zip(self.strides, steps, strict=True)]))

    def reverse(self, axes: Ints) -> View:
        """Backwards along ``axes``."""
        offset, strides = self.offset, list(self.strides)
        for a in axes:
            offset += max(0, self.aval.shape[a] - 1) * strides[a]
            strides[a] = -strides[a]
        return self.with_layout(self.aval.shape, offset, tuple(strides))

    def __repr__(self) -> str:
        what = "constant" if self.value is not None else "iota" if self.buf is IOTA else f"buffer {self.buf.index}"
        return f"View({self.aval}, {what}, offset={self.offset}, strides={self.strides})"
