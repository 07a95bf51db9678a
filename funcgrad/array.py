"""Array: an immutable value on a device; what eager operations take and give.

Memory belongs to the device's storage; ``np.asarray`` reads it without a copy where the device shares memory with the
host.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from funcgrad import dtypes, tree
from funcgrad.errors import (
    DeviceError,
    DonationError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    TreeError,
    UnexpectedTracerError,
    message,
)
from funcgrad.host import SCALARS, check_range, is_data, scalar_dtype, to_host
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import Primitive
from funcgrad.prims.pointwise import Convert
from funcgrad.runtime import device as _device
from funcgrad.runtime.ledger import LEDGER
from funcgrad.trace import Tracer, Value, arguments_of, bind, check_alive, no_operand, set_evaluator

__all__ = [
    "Array",
    "as_value",
    "asarray",
    "block_until_ready",
    "default_device",
    "device_get",
    "device_put",
    "is_array",
    "is_data",
    "SCALARS",
    "to_host",
]


class Array(Value):
    """An immutable array on a device.

    >>> asarray([1.0, 2.0])
    Array([1., 2.], dtype=float32)
    """

    __slots__ = ("_read", "_storage", "aval", "device")
    device: Any
    _storage: Any
    _read: Read | None

    @property
    def storage(self) -> Any:
        """The device memory; raises DonationError or DeviceError when it was given away or deleted."""
        s = self._storage
        if type(s) is Gone:
            raise s.error()
        return s

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the values on the host; bfloat16 becomes float32."""
        return dtypes.widen(self._host()) if self.aval.dtype == dtypes.bfloat16 else self._host()

    def only(self) -> Any:
        """Return the one element of an array of one."""
        value = self.device.item(self.storage, self.aval)
        if self._read is not None:
            self._read.count(self.aval.nbytes)
            self._read = None
        return value

    def _host(self) -> np.ndarray[Any, Any]:
        host: np.ndarray[Any, Any] = self.device.get(self.storage, self.aval)
        if self._read is not None:
            self._read.count(host.nbytes)
            self._read = None
        return host

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        host = self.numpy()
        if dtype is not None and host.dtype != dtype:
            return host.astype(dtype)
        return host.copy() if copy else host

    def __repr__(self) -> str:
        if type(self._storage) is Gone:
            return f"Array({self.aval}, {self._storage.why})"
        if not self.aval.size and self.aval.shape != (0,):
            return f"Array([], shape={self.aval.shape}, dtype={dtypes.NAMES[self.aval.dtype]})"
        text = np.array2string(self.numpy(), separator=", ", prefix="Array(", max_line_width=100)
        return f"Array({text}, dtype={dtypes.NAMES[self.aval.dtype]})"

    def __str__(self) -> str:
        return str(self.numpy())

    def __reduce__(self) -> Any:
        return _rebuild, (self._host(), self.aval)

    def delete(self) -> None:
        """Free the memory now; using the array afterwards is an error."""
        self._storage = Gone("deleted", "delete() was called on it")
        for key in [k for k in _copies if k[0] == id(self)]:
            del _copies[key]

    def adopt(self, other: Array) -> None:
        """Take the memory of another array of the same type, for an array whose own was given away."""
        assert self.aval == other.aval and self.is_deleted()
        self._storage = other._storage

    def is_deleted(self) -> bool:
        """Return whether the memory was given away or freed."""
        return type(self._storage) is Gone

    def block_until_ready(self) -> Array:
        """Wait for the device; return self."""
        self.device.synchronize()
        return self


def new_arrays(storages: Iterable[Any], avals: Iterable[Aval], device: Any, read: Read | None = None) -> list[Array]:
    """Arrays of device memory; ``read`` counts when one of them is read."""
    # Array has no __init__, and the slots are set here: a step of hundreds of leaves makes as many at every call.
    out = []
    for storage, aval in zip(storages, avals):  # noqa: B905 (faster)
        x = Array()
        x._storage = storage
        x.aval = aval
        x.device = device
        x._read = read
        out.append(x)
    return out


# Arrays that were sent to a second device, by identity of both: kept for as long as the array lives, and never changed.
_copies: dict[tuple[int, int], Any] = {}


def copy_on(x: Array, device: Any) -> tuple[Any, bool]:
    """The memory of a copy of an array on another device, and whether it had to be sent: that happens once."""
    key = (id(x), id(device))
    _ = x.storage  # raises for an array that is gone
    found = _copies.get(key)
    if found is not None:
        return found, False
    made = _copies[key] = device.wrap(to_host(x._host(), None, device.float64))
    weakref.finalize(x, _copies.pop, key, None).atexit = False
    return made, True


class Read:
    """What the results of one call share: the first that is read counts as the call's download."""

    __slots__ = ("first", "stats")

    def __init__(self, stats: Any = None):
        self.first, self.stats = True, stats

    def count(self, nbytes: int) -> None:
        """Note in the ledger, and in the function's own, that a result was read."""
        LEDGER.downloaded(nbytes, self.first)
        if self.stats is not None:
            self.stats.downloads += self.first
            self.stats.bytes_downloaded += nbytes
        self.first = False


class Gone:
    """Stands in for memory that an array no longer has."""

    __slots__ = ("reason", "why")

    def __init__(self, why: str, reason: str):
        self.why, self.reason = why, reason

    def error(self) -> Exception:
        """What to raise when the array is used."""
        if self.why == "donated":
            way_out = "use the array that the call returned, or leave it out of donate_argnums"
            return DonationError(message("array", "its memory was donated", self.reason, way_out))
        return DeviceError(message("array", "its memory was freed", self.reason))


def _rebuild(host: np.ndarray[Any, Any], aval: Aval) -> Array:
    return _put(dtypes.narrow(host, aval.dtype), _device.default())


def _put(host: np.ndarray[Any, Any], device: Any) -> Array:
    return new_arrays([device.put(host)], [Aval(host.shape, host.dtype)], device)[0]


def is_array(x: Any) -> bool:
    """Return whether ``x`` is an array of funcgrad's (or a tracer), or of numpy's."""
    return isinstance(x, (Value, np.ndarray))


def asarray(x: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an Array for numbers, nested lists, numpy arrays, anything with ``__array__`` or ``__dlpack__``.

    Host data is copied.  64-bit data becomes 32-bit on a device, narrow integers become int32.

    >>> asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if isinstance(x, Tracer) or (isinstance(x, Value) and device is None):
        return x if dtype is None else convert_to(x, dtypes.as_dtype(dtype))
    dev = _device.get(device) if device is not None else _device.default()
    if isinstance(x, Array):
        moved = x if x.device is dev else _put(to_host(x._host(), None, dev.float64), dev)
        return moved if dtype is None else convert_to(moved, dtypes.as_dtype(dtype))
    return _put(to_host(x, dtype, dev.float64), dev)


def convert_to(x: Any, dtype: Any) -> Any:
    """Return the value in another dtype; float64 becomes float32 unless the value lives on the numpy device."""
    from_device = isinstance(x, Array) and x.device.float64
    if dtype == dtypes.float64 and not (from_device or _device.default().float64):
        dtype = dtypes.float32
    return x if x.aval.dtype == dtype else bind(Convert(dtype), x)


def as_value(x: Any, dtype: Any = None) -> Any:
    """Return what operations take for any operand: scalars become literals, data arrays, and values stay."""
    if isinstance(x, (Value, Literal)):
        return x
    if isinstance(x, SCALARS):
        if dtype is None and isinstance(x, np.generic):
            dtype = dtypes.host_dtype(x.dtype, _device.default().float64)
        dtype = dtype or scalar_dtype(x, _device.default().float64)
        if isinstance(x, (int, np.integer)) and dtype in dtypes.INTS:
            check_range(np.asarray(x), dtype)
        return Literal(x, dtype)
    if hasattr(x, "__fg_array__"):
        return x.__fg_array__()
    return asarray(x)


# -- conversions of traced values --------------------------------------------------------------------------------
def concrete(x: Any, error: type[Exception], what: str) -> Array:
    """Return the concrete array behind a value, or raise ``error`` for a traced one that has none."""
    if isinstance(x, Tracer):
        known = x.concrete()
        if known is None:
            check_alive(x)
            raise error(
                message(
                    what,
                    "a value is required, and a traced one has only shape and dtype",
                    _origin(x),
                    _WAYS.get(error, _WAYS[TracerIntegerConversionError]),
                )
            )
        return concrete(known, error, what)
    assert isinstance(x, Array)
    return x


def _origin(x: Tracer) -> str:
    """Where a traced value comes from: the function, and the arguments that it depends on."""
    names = arguments_of(x)
    return f"{x.aval} traced in {x.builder.name or 'a function'}" + (
        f", depending on {', '.join(names)}" if names else ""
    )


_WAYS: dict[type[Exception], str] = {
    TracerBoolConversionError: "fg.numpy.where or fg.lax.cond instead of if; fg.lax.while_loop instead of while; "
    "static_argnums for an argument that decides Python control flow",
    TracerIntegerConversionError: "static_argnums for an argument that decides a shape, a length or a list's index; "
    "fg.lax.fori_loop instead of for; fg.numpy.take or lax.dynamic_slice for a traced index",
    TracerArrayConversionError: "functions of fg.numpy instead of numpy's and math's; return the value and look at it "
    "outside; fg.debug.print to see it at run time",
}


def to_bool(x: Any) -> bool:
    """``bool(x)``."""
    if x.aval.size != 1:
        ways = "use .any() or .all()"
        raise ValueError(message("bool", "exactly one element is required", str(x.aval), ways))
    return bool(concrete(x, TracerBoolConversionError, "bool").only())


def to_scalar(x: Any, kind: type, what: str) -> Any:
    """``int(x)``, ``float(x)``: one element as a Python number."""
    error = TracerIntegerConversionError if kind is int else TracerArrayConversionError
    if x.aval.size != 1:
        raise TypeError(message(what, "exactly one element is required", str(x.aval), "index or reduce it first"))
    return kind(concrete(x, error, what).only())


def to_index(x: Any) -> int:
    """``operator.index(x)``, for ``range``, shapes and Python lists."""
    if x.aval.shape or not dtypes.is_int(x.aval.dtype):
        raise TypeError(message("index", "an integer scalar is required", str(x.aval)))
    return int(concrete(x, TracerIntegerConversionError, "index").numpy())


def tracer_to_numpy(x: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """``np.asarray(x)`` of a traced value."""
    return concrete(x, TracerArrayConversionError, "np.asarray").__array__(dtype, copy)


# -- devices -----------------------------------------------------------------------------------------------------
@contextmanager
def default_device(device: Any) -> Iterator[Any]:
    """Make ``device`` ("cpu", "numpy", "vulkan:0") the one that new arrays and computations use, for this thread.

    >>> with default_device("numpy"):
    ...     asarray(np.ones(2)).dtype
    dtype('float64')
    """
    dev = _device.get(device)
    saved = _device.set_default(dev)
    try:
        yield dev
    finally:
        _device.set_default(saved)


def device_put(x: Any, device: Any = None) -> Any:
    """Return a tree with its leaves as arrays on a device, copying what is elsewhere.

    >>> device_put({"a": np.ones(2, np.float32)}, "numpy")["a"].device
    Device('numpy')
    """
    where = device or _device.default()
    return tree.map(lambda leaf: asarray(leaf, device=where), x)


def device_get(x: Any) -> Any:
    """Return a tree with its leaves as numpy arrays of the caller's own.

    >>> device_get({"a": asarray([1.0, 2.0])})
    {'a': array([1., 2.], dtype=float32)}
    """
    return tree.map(np.array, x)


def block_until_ready(x: Any) -> Any:
    """Wait until every array of a tree is computed; return the tree.

    >>> block_until_ready({"a": asarray(1.0)})
    {'a': Array(1., dtype=float32)}
    """
    for device in {leaf.device for leaf in tree.leaves(x) if isinstance(leaf, Array)}:
        device.synchronize()
    return x


def common_device(xs: Sequence[Any]) -> Any:
    """The one device of the arrays among ``xs``; the default device when there is none."""
    found = None
    for x in xs:
        if type(x) is Array:
            if found is None:
                found = x.device
            elif found is not x.device:
                got = f"{found.name} and {x.device.name}"
                raise DeviceError(
                    message("operation", "all arrays must be on one device", got, "move one with fg.device_put")
                )
    return found or _device.default()


def evaluate(prim: Primitive, xs: Sequence[Any]) -> list[Any]:
    """Run one primitive on arrays and literals now, on the device where they are."""
    for x in xs:
        if isinstance(x, Tracer):
            raise UnexpectedTracerError(message(prim.name, "a traced value was used outside its trace", str(x.aval)))
        if not isinstance(x, (Value, Literal)):
            raise no_operand(prim.name, x)
    device = common_device(xs)
    avals = prim.infer_all(*[x.aval for x in xs])
    operands = [x if isinstance(x, Literal) else x.storage for x in xs]
    stored = device.run_primitive(prim, operands, [x.aval for x in xs], avals)
    return new_arrays(stored, avals, device, Read())


set_evaluator(evaluate)


def leaf_value(x: Any, path: str, what: str) -> Any:
    """Return an operand for a leaf of a user's tree, or raise TreeError naming its path."""
    if isinstance(x, Value):
        return x
    if not is_data(x):
        ways = "pass it by static_argnums, or keep it outside and close over it"
        raise TreeError(message(what, "every leaf must be a number or an array", f"{type(x).__name__} at {path}", ways))
    return asarray(x)
