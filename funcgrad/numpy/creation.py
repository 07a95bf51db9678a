"""New arrays: constants, and arrays from host data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar
from typing import cast as typed

import numpy as np

from funcgrad import dtypes
from funcgrad.array import SCALARS, default_device, new_arrays
from funcgrad.array import asarray as _asarray
from funcgrad.errors import message
from funcgrad.ir import Aval, Literal
from funcgrad.numpy.promotion import (
    array_of,
    broadcast_args,
    cast,
    default_float,
    dense,
    expand_to,
    filled,
    operand,
    operand_as,
    result_dtype,
    shape_tuple,
    stack_nested,
)
from funcgrad.primitive import apply
from funcgrad.prims import layout
from funcgrad.runtime import device as _device
from funcgrad.trace import Value, current_builder

__all__ = [
    "array",
    "asarray",
    "copy",
    "empty",
    "empty_like",
    "from_dlpack",
    "frombuffer",
    "fromiter",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]


# -- from data ---------------------------------------------------------------------------------------------------
Function = TypeVar("Function", bound=Callable[..., Any])


def on_named_device(function: Function) -> Function:
    """Run ``function`` on the device that its ``device`` names: that one's dtypes hold, not the default device's."""

    @functools.wraps(function)
    def run(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        given = any(isinstance(x, Value) for x in (*args, *kwargs.values()))
        if device is None or given or current_builder() is not None:
            return function(*args, device=device, **kwargs)
        with default_device(device):
            return function(*args, device=device, **kwargs)

    return typed(Function, run)


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, device: Any = None
) -> Any:
    """Return an array for numbers, nested lists, numpy arrays, and what has ``__array__`` or ``__dlpack__``.

    Host data is copied.  64-bit data becomes 32-bit on a device, narrow integers become int32.  A Python complex number
    without an imaginary part is its real part.  ``order`` is accepted for numpy's sake; arrays are row-major.

    >>> fnp.asarray([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    if isinstance(a, (list, tuple)) and _has_value(a):
        out = stack_nested("asarray", a)
        return out if dtype is None else cast(out, result_dtype(dtype, None))
    if isinstance(a, Literal):
        a = dense(a)
    if type(a) is complex and a.imag == 0:
        a = a.real
    if copy is False and not isinstance(a, Value):
        raise ValueError(message("asarray", "host data is always copied to the device", "copy=False", "leave copy out"))
    out = _asarray(a, dtype, device=device)
    return apply("copy", out) if copy and out is a else out


def _has_value(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(_has_value(v) for v in x)
    return isinstance(x, (Value, Literal))


def array(
    object: Any, dtype: Any = None, copy: bool = True, order: str | None = "K", ndmin: int = 0, *, device: Any = None
) -> Any:
    """Return a new array for array-like data, with at least ``ndmin`` axes.

    >>> fnp.array([1.0, 2.0], ndmin=2)
    Array([[1., 2.]], dtype=float32)
    """
    out = asarray(object, dtype, copy=True if copy and isinstance(object, Value) else None, device=device)
    lead = ndmin - out.aval.ndim
    return layout.reshape(out, (*(1,) * lead, *out.aval.shape)) if lead > 0 else out


def copy(a: Any, order: str | None = None) -> Any:
    """Return the array in memory of its own.

    >>> fnp.copy(fnp.asarray([1, 2]))
    Array([1, 2], dtype=int32)
    """
    return apply("copy", array_of("copy", a))


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """Return an array of the numbers in a bytes-like object.

    >>> fnp.frombuffer(b"\\x01\\x02", dtype="uint8")
    Array([1, 2], dtype=int32)
    """
    wire = np.float32 if dtype is float else np.int32 if dtype is int else dtype
    return asarray(np.frombuffer(buffer, wire, count, offset))


def fromiter(iterable: Any, dtype: Any = float, count: int = -1) -> Any:
    """Return an array of the numbers that an iterable yields.

    >>> fnp.fromiter(range(3), dtype=int)
    Array([0, 1, 2], dtype=int32)
    """
    return asarray(np.fromiter(iterable, np.float64 if dtype is float else np.dtype(dtype), count), dtype)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return an array with the data of an object of another library that speaks DLPack.

    On the cpu device it is the same memory, without a copy, where the data is contiguous and of a dtype that stays as
    it is: then it must not be written to while the array lives.  ``copy=True`` copies, ``copy=False`` raises
    BufferError rather than copy.

    >>> fnp.from_dlpack(np.arange(3, dtype=np.float32))
    Array([0., 1., 2.], dtype=float32)
    """
    if isinstance(x, Value):
        return asarray(x, copy=copy, device=device)
    host = x if isinstance(x, np.ndarray) else np.from_dlpack(x)
    dev = _device.get(device) if device is not None else _device.default()
    fits = host.dtype in dtypes.ALL and (host.dtype != dtypes.float64 or dev.float64)
    if dev.name == "cpu" and not copy and fits and host.size and host.flags.c_contiguous and host.flags.aligned:
        return new_arrays([dev.wrap(host)], [Aval(host.shape, host.dtype)], dev)[0]
    if copy is False:
        requirement = "contiguous data of a dtype that the cpu device holds is required with copy=False"
        raise BufferError(message("from_dlpack", requirement, f"{host.dtype}{list(host.shape)} for {dev.name}"))
    return asarray(host, device=dev)


# -- constants ---------------------------------------------------------------------------------------------------
@on_named_device
def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array filled with a value that may be traced or an array that broadcasts.

    >>> fnp.full((2, 2), 7)
    Array([[7, 7],
           [7, 7]], dtype=int32)
    """
    target = shape_tuple("full", shape)
    value = operand("full", fill_value)
    if dtype is None and isinstance(fill_value, float):
        dtype = default_float()
    value = cast(value, result_dtype(dtype, value.aval.dtype))
    return placed(_filled(value, target), device)


def _filled(value: Any, shape: tuple[int, ...]) -> Any:
    if not value.aval.shape:
        return layout.broadcast(value, shape, ()) if shape else dense(value)
    return expand_to(broadcast_args("full", value, filled(shape, 0, value.aval.dtype))[0], shape)


def placed(x: Any, device: Any) -> Any:
    """The array on a device, where one is named."""
    return x if device is None else _asarray(x, device=device)


@on_named_device
def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of zeros.

    >>> fnp.zeros(3)
    Array([0., 0., 0.], dtype=float32)
    """
    return placed(_filled(Literal(0, result_dtype(dtype, default_float())), shape_tuple("zeros", shape)), device)


@on_named_device
def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of ones.

    >>> fnp.ones((1, 2), dtype=int)
    Array([[1, 1]], dtype=int32)
    """
    return placed(_filled(Literal(1, result_dtype(dtype, default_float())), shape_tuple("ones", shape)), device)


@on_named_device
def empty(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array to be written later: of zeros, because arrays are immutable.

    >>> fnp.empty(2)
    Array([0., 0.], dtype=float32)
    """
    return zeros(shape, dtype, device=device)


def _like(name: str, a: Any, shape: Any, dtype: Any) -> tuple[tuple[int, ...], Any]:
    x = a if hasattr(a, "shape") and hasattr(a, "dtype") else array_of(name, a)
    kind = x.aval.dtype if isinstance(x, Value) else dtypes.as_dtype(x.dtype)
    return shape_tuple(name, x.shape if shape is None else shape), result_dtype(dtype, kind)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Return zeros with the shape and dtype of an array (or anything with ``shape`` and ``dtype``).

    >>> fnp.zeros_like(fnp.asarray([1, 2]))
    Array([0, 0], dtype=int32)
    """
    return full_like(a, 0, dtype, shape, device=device)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Return ones with the shape and dtype of an array.

    >>> fnp.ones_like(fnp.asarray([1, 2]))
    Array([1, 1], dtype=int32)
    """
    return full_like(a, 1, dtype, shape, device=device)


def empty_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Return zeros with the shape and dtype of an array.

    >>> fnp.empty_like(fnp.asarray([1, 2]))
    Array([0, 0], dtype=int32)
    """
    return full_like(a, 0, dtype, shape, device=device)


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Return an array with the shape and dtype of another, filled with a value.

    >>> fnp.full_like(fnp.asarray([1.0, 2.0]), 7)
    Array([7., 7.], dtype=float32)
    """
    target, kind = _like("full_like", a, shape, dtype)
    value = fill_value if isinstance(fill_value, (Value, Literal)) or not isinstance(fill_value, SCALARS) else None
    value = Literal(fill_value, kind) if value is None else operand_as("full_like", value, kind)
    return placed(_filled(value, target), device)
