"""numpy's operators and methods on values, for arrays and tracers alike; importing this module attaches them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import funcgrad.numpy as fnp
from funcgrad import dtypes
from funcgrad.array import (
    SCALARS,
    Array,
    asarray,
    concrete,
    to_bool,
    to_index,
    to_scalar,
    tracer_to_numpy,
)
from funcgrad.errors import TracerArrayConversionError, message
from funcgrad.ir import Literal
from funcgrad.numpy import arithmetic, logical, products
from funcgrad.numpy.indexing import getitem
from funcgrad.numpy.joining import unstack
from funcgrad.numpy.manipulation import reshape, swapaxes, transpose
from funcgrad.numpy.updates import At
from funcgrad.prims import logic
from funcgrad.trace import Tracer, Value

__all__: list[str] = []

_OPERANDS = (Value, Literal, np.ndarray, *SCALARS)


def _known(other: Any) -> bool:
    return isinstance(other, _OPERANDS) or hasattr(other, "__fg_array__") or hasattr(other, "__array__")


def _operator(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return fn(self, other) if _known(other) else NotImplemented

    method.__doc__ = fn.__doc__
    return method


def _reflected(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return fn(other, self) if _known(other) else NotImplemented

    method.__doc__ = fn.__doc__
    return method


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": arithmetic.add,
    "sub": arithmetic.subtract,
    "mul": arithmetic.multiply,
    "truediv": arithmetic.divide,
    "floordiv": arithmetic.floor_divide,
    "mod": arithmetic.remainder,
    "divmod": arithmetic.divmod,
    "pow": arithmetic.power,
    "matmul": products.matmul,
    "and": logical.bitwise_and,
    "or": logical.bitwise_or,
    "xor": logical.bitwise_xor,
    "lshift": logical.bitwise_left_shift,
    "rshift": logical.bitwise_right_shift,
}
_COMPARISONS = {
    "eq": logical.equal,
    "ne": logical.not_equal,
    "lt": logical.less,
    "le": logical.less_equal,
    "gt": logical.greater,
    "ge": logical.greater_equal,
}


# -- containers --------------------------------------------------------------------------------------------------
def _setitem(self: Any, idx: Any, value: Any) -> None:
    way_out = (
        "x = x.at[i].set(v) makes an updated copy (in place under a donated jit); also .add, .multiply, .min, .max"
    )
    raise TypeError(message("x[i] = v", "arrays are immutable", way_out=way_out))


def _getitem(self: Any, idx: Any) -> Any:
    return getitem(self, idx)


def _len(self: Any) -> int:
    return len(self.aval)


def _iter(self: Any) -> Iterator[Any]:
    if not self.aval.ndim:
        raise TypeError(
            message("iter", "an array of rank 0 has no elements to iterate over", str(self.aval), "x.reshape(1)")
        )
    return iter(unstack(self))


def _contains(self: Any, value: Any) -> bool:
    return to_bool(fnp.any(logical.equal(self, value)))


# -- to Python ---------------------------------------------------------------------------------------------------
def _int(self: Any) -> int:
    return int(to_scalar(self, int, "int"))


def _float(self: Any) -> float:
    return builtins.float(to_scalar(self, builtins.float, "float"))


def _complex(self: Any) -> complex:
    return complex(to_scalar(self, builtins.float, "complex"))


def _format(self: Any, spec: str) -> str:
    if not spec:
        return str(self)
    return format(item(self), spec)


def item(self: Any, *args: int) -> Any:
    """Return one element as a Python number; the only one, or the one at a flat or full index."""
    host = concrete(self, TracerArrayConversionError, "item").numpy()
    return host.item(*args)


def tolist(self: Any) -> Any:
    """Return the values as nested lists of Python numbers."""
    return concrete(self, TracerArrayConversionError, "tolist").numpy().tolist()


def _dlpack(
    self: Any, /, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """Lend the memory itself where it is the host's (the cpu and numpy devices), else a copy; bfloat16 becomes float32.

    Importers that speak DLPack 1 are told that it is read-only; the others must not write to it.  While it is lent, a
    donation takes a copy.  With ``copy`` the importer may write.
    """
    if dl_device is not None and tuple(dl_device) != (1, 0):
        raise BufferError(message("__dlpack__", "data is exported in host memory, device (1, 0)", str(dl_device)))
    value = concrete(self, TracerArrayConversionError, "__dlpack__")
    shared = value.device.name in ("cpu", "numpy") and value.dtype != dtypes.bfloat16
    if copy is False and not shared:
        raise BufferError(
            message("__dlpack__", "the data must be in host memory as it is", f"{value.aval}, copy=False")
        )
    host = value.numpy()
    versioned = VERSIONED and max_version is not None and tuple(max_version) >= (1, 0)
    lent = np.array(host) if copy or not shared else host if versioned else np.asarray(_Lent(host))
    return lent.__dlpack__(stream=stream, **({"max_version": max_version} if versioned else {}))


# Whether numpy can say that what it exports is read-only.
VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


class _Lent:
    """The memory of a read-only array for importers that cannot be told so, and would refuse it."""

    def __init__(self, host: np.ndarray[Any, Any]):
        self.host = host
        self.__array_interface__ = {**host.__array_interface__, "data": (host.__array_interface__["data"][0], False)}


def _dlpack_device(self: Any) -> tuple[int, int]:
    return 1, 0


def _namespace(self: Any, /, *, api_version: str | None = None) -> Any:
    if api_version is not None and api_version not in ("2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(
            message("__array_namespace__", "a version from 2021.12 to 2024.12 is required", repr(api_version))
        )
    return fnp


# -- methods that are not functions of the same name ---------------------------------------------------------------
def _reshape(self: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
    """Return the elements under another shape, given as a tuple or as several integers; one may be -1."""
    return reshape(self, shape[0] if len(shape) == 1 else shape, order)


def _transpose(self: Any, *axes: Any) -> Any:
    """Return the array with its axes permuted, reversed by default."""
    return transpose(self, (axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes) if axes else None)


def _flatten(self: Any, order: str = "C") -> Any:
    """Return the elements as a vector."""
    return fnp.ravel(self, order)


def _view(self: Any, dtype: Any = None) -> Any:
    """Return the same bits as another dtype of the same width (float32, int32, uint32)."""
    if dtype is None:
        return self
    kind = dtypes.as_dtype(dtype)
    if kind.itemsize != self.aval.dtype.itemsize or kind.itemsize != 4:
        got = f"{dtypes.NAMES[self.aval.dtype]} as {dtypes.NAMES[kind]}"
        raise TypeError(message("view", "both dtypes must be 32 bits wide", got, "use astype to convert values"))
    return logic.bitcast(self, kind)


def _to_device(self: Any, device: Any, /, *, stream: Any = None) -> Any:
    """Return the array on a device."""
    return asarray(self, device=device)


def _round(self: Any, n: int | None = None) -> Any:
    return int(fnp.rint(self)) if n is None and not self.aval.ndim else fnp.round(self, n or 0)


def _clip(self: Any, min: Any = None, max: Any = None) -> Any:
    """Return the array limited to [min, max]."""
    return fnp.clip(self, min, max)


def _same(self: Any) -> Any:
    """Return the array itself."""
    return self


_FUNCTIONS = (
    *("sum", "mean", "var", "std", "max", "min", "argmax", "argmin", "prod", "any", "all", "ptp", "cumsum", "cumprod"),
    *(
        "ravel",
        "astype",
        "squeeze",
        "round",
        "dot",
        "sort",
        "argsort",
        "argpartition",
        "take",
        "repeat",
        "copy",
        "conj",
        "conjugate",
    ),
    *("nonzero", "diagonal", "trace", "searchsorted", "choose", "compress"),
)
_METHODS: dict[str, Any] = {
    "__setitem__": _setitem,
    "__getitem__": _getitem,
    "__len__": _len,
    "__iter__": _iter,
    "__contains__": _contains,
    "__bool__": to_bool,
    "__int__": _int,
    "__float__": _float,
    "__complex__": _complex,
    "__index__": to_index,
    "__format__": _format,
    "__round__": _round,
    "__hash__": None,
    "__array_priority__": 100,
    "__array_namespace__": _namespace,
    "__dlpack__": _dlpack,
    "__dlpack_device__": _dlpack_device,
    "__neg__": arithmetic.negative,
    "__pos__": arithmetic.positive,
    "__abs__": arithmetic.absolute,
    "__invert__": logical.bitwise_invert,
    "item": item,
    "tolist": tolist,
    "reshape": _reshape,
    "transpose": _transpose,
    "permute_dims": _transpose,
    "swapaxes": swapaxes,
    "flatten": _flatten,
    "view": _view,
    "to_device": _to_device,
    "clip": _clip,
    "T": property(transpose, doc="The array with its axes reversed."),
    "mT": property(fnp.matrix_transpose, doc="The array with its last two axes swapped."),
    "at": property(At, doc="x.at[i].set(v) and its kin make updated copies."),
    "real": property(_same, doc="The array itself."),
    "imag": property(fnp.zeros_like, doc="Zeros."),
    "nbytes": property(lambda self: self.aval.nbytes, doc="The number of bytes."),
    "itemsize": property(lambda self: self.aval.dtype.itemsize, doc="The bytes of one element."),
}


def _attach() -> None:
    """Give the operators and methods to the base class of arrays and tracers."""
    for name, fn in _BINARY.items():
        setattr(Value, f"__{name}__", _operator(fn))
        setattr(Value, f"__r{name}__", _reflected(fn))
    for name, fn in _COMPARISONS.items():
        setattr(Value, f"__{name}__", _operator(fn))
    for name in _FUNCTIONS:
        setattr(Value, name, getattr(fnp, name))
    for name, member in _METHODS.items():
        setattr(Value, name, member)
    Tracer.__array__ = tracer_to_numpy  # type: ignore[attr-defined]
    Tracer.block_until_ready = _same  # type: ignore[attr-defined]


_attach()
assert "__array__" in vars(Array)
