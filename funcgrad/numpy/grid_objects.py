"""Objects that are indexed to make arrays (mgrid, ogrid, r_, c_), printing, and files."""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad.array import asarray
from funcgrad.numpy.grids import meshgrid
from funcgrad.numpy.joining import concatenate
from funcgrad.numpy.manipulation import expand_dims
from funcgrad.numpy.promotion import array_of
from funcgrad.numpy.ranges import arange, linspace

__all__ = [
    "array_repr",
    "array_str",
    "c_",
    "get_printoptions",
    "index_exp",
    "load",
    "mgrid",
    "ogrid",
    "printoptions",
    "r_",
    "s_",
    "save",
    "savez",
    "set_printoptions",
]

index_exp, s_ = np.index_exp, np.s_
get_printoptions, set_printoptions, printoptions = np.get_printoptions, np.set_printoptions, np.printoptions


def _row(item: slice) -> Any:
    """The values of start:stop:step; an imaginary step is a number of values, ends included."""
    start = 0 if item.start is None else item.start
    if isinstance(item.step, complex):
        return linspace(start, item.stop, int(abs(item.step)))
    return arange(start, item.stop, 1 if item.step is None else item.step)


class _Grid:
    """``grid[0:2, 0:1:3j]``: coordinates over slices; an imaginary step is a number of points."""

    def __init__(self, sparse: bool):
        self._sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return _row(key)
        grids = meshgrid(*[_row(k) for k in key], indexing="ij", sparse=self._sparse)
        return tuple(grids) if self._sparse else concatenate([expand_dims(g, 0) for g in grids])


class _Joined:
    """``r_[1:4, 0, 4]``: slices, numbers and arrays one after another; ``c_`` makes them columns."""

    def __init__(self, columns: bool):
        self._columns = columns

    def __getitem__(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        parts = [_row(k) if isinstance(k, slice) else array_of("r_", k) for k in items]
        parts = [p.reshape(1) if not p.ndim else p for p in parts]
        if self._columns:
            parts = [p.reshape(-1, 1) if p.ndim == 1 else p for p in parts]
            return concatenate(parts, -1)
        return concatenate(parts, 0)


mgrid, ogrid, r_, c_ = _Grid(False), _Grid(True), _Joined(False), _Joined(True)


def array_repr(
    arr: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """Return how an array is shown.

    >>> fnp.array_repr(fnp.asarray([1, 2]))
    'Array([1, 2], dtype=int32)'
    """
    return repr(array_of("array_repr", arr))


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """Return how an array's values are printed.

    >>> fnp.array_str(fnp.asarray([1, 2]))
    '[1 2]'
    """
    return np.array_str(np.asarray(array_of("array_str", a)), max_line_width, precision, suppress_small)


def save(file: Any, arr: Any) -> None:
    """Write an array to a file in numpy's ``.npy`` format; see ``fg.save`` for trees.

    >>> import io
    >>> fnp.save(io.BytesIO(), fnp.ones(2))
    """
    np.save(file, np.asarray(array_of("save", arr)))


def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Write several arrays to a file in numpy's ``.npz`` format.

    >>> import io
    >>> fnp.savez(io.BytesIO(), x=fnp.ones(2))
    """
    named: dict[str, Any] = {k: np.asarray(array_of("savez", v)) for k, v in kwds.items()}
    np.savez(file, *[np.asarray(array_of("savez", a)) for a in args], **named)


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Read what ``save`` wrote as an array, or what ``savez`` wrote as a dict of arrays.

    >>> import io
    >>> buffer = io.BytesIO()
    >>> fnp.save(buffer, fnp.ones(2))
    >>> _ = buffer.seek(0)
    >>> fnp.load(buffer)
    Array([1., 1.], dtype=float32)
    """
    found = np.load(file, *args, **kwargs)
    return asarray(found) if isinstance(found, np.ndarray) else {k: asarray(found[k]) for k in found.files}
