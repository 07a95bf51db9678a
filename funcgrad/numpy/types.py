"""Dtypes as numpy shows them: names, limits, promotion, and what this namespace says about itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import DTypeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.promotion import default_float, operand
from funcgrad.runtime import device as _device
from funcgrad.trace import Value

__all__ = [
    "__array_namespace_info__",
    "bfloat16",
    "bool_",
    "can_cast",
    "complexfloating",
    "double",
    "dtype",
    "e",
    "euler_gamma",
    "finfo",
    "float16",
    "float32",
    "float64",
    "float_",
    "floating",
    "generic",
    "iinfo",
    "inexact",
    "inf",
    "int16",
    "int32",
    "int64",
    "int8",
    "int_",
    "integer",
    "iscomplexobj",
    "isdtype",
    "isrealobj",
    "isscalar",
    "issubdtype",
    "iterable",
    "nan",
    "ndim",
    "newaxis",
    "number",
    "pi",
    "promote_types",
    "result_type",
    "shape",
    "signedinteger",
    "single",
    "size",
    "uint",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unsignedinteger",
]

# numpy's scalar types: they are dtypes where one is wanted, and callable.
float16, float32, float64 = np.float16, np.float32, np.float64
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
bool_ = np.bool_
bfloat16 = dtypes.bfloat16
single, double, int_, uint, float_ = np.float32, np.float64, np.int32, np.uint32, np.float32
dtype = np.dtype
generic, number, integer, inexact, floating = np.generic, np.number, np.integer, np.inexact, np.floating
signedinteger, unsignedinteger, complexfloating = np.signedinteger, np.unsignedinteger, np.complexfloating
pi, e, euler_gamma, inf, nan, newaxis = np.pi, np.e, np.euler_gamma, np.inf, np.nan, None


class _BFloat16Info:
    """The limits of bfloat16: 8 bits of exponent and 7 of fraction."""

    bits = 16
    eps = 2.0**-7
    epsneg = 2.0**-8
    max = float.fromhex("0x1.fep127")
    min = -max
    tiny = smallest_normal = 2.0**-126
    smallest_subnormal = 2.0**-133
    nexp, nmant, machep, negep, minexp, maxexp, precision = 8, 7, -7, -8, -126, 128, 2
    resolution = 0.01
    dtype = dtypes.bfloat16


class _FloatInfo:
    """numpy's limits of a float dtype, as Python floats: those take the dtype of the array beside them."""

    floats = ("eps", "epsneg", "max", "min", "tiny", "smallest_normal", "smallest_subnormal", "resolution")
    integers = ("bits", "iexp", "machep", "maxexp", "minexp", "negep", "nexp", "nmant", "precision")

    def __init__(self, dtype: Any):
        info, self.dtype = np.finfo(dtype), dtype
        vars(self).update({name: float(getattr(info, name)) for name in self.floats})
        vars(self).update({name: int(getattr(info, name)) for name in self.integers})

    def __repr__(self) -> str:
        limits = ", ".join([f"{n}={vars(self)[n]!r}" for n in ("eps", "min", "max", "smallest_normal")])
        return f"finfo({self.dtype}, {limits})"


def finfo(dtype: Any) -> Any:
    """Return the limits of a float dtype: numpy's ``finfo``, with Python floats.

    >>> fnp.finfo("float32").bits, fnp.finfo("bfloat16").eps
    (32, 0.0078125)
    """
    d = _dtype_of(dtype)
    if d == dtypes.bfloat16:
        return _BFloat16Info()
    if d not in dtypes.FLOATS:
        raise ValueError(message("finfo", "a float dtype is required", str(d), "use iinfo for integers"))
    return _FloatInfo(d)


def iinfo(int_type: Any) -> Any:
    """Return the limits of an integer dtype, as numpy's ``iinfo``.

    >>> fnp.iinfo("int32").max
    2147483647
    """
    return np.iinfo(int_type.dtype if isinstance(int_type, (Value, np.ndarray)) else int_type)


def _dtype_of(x: Any) -> Any:
    if isinstance(x, (Value, Literal)):
        return x.aval.dtype
    if isinstance(x, np.ndarray):
        return dtypes.host_dtype(x.dtype, True)
    return dtypes.as_dtype(x)


def result_type(*arrays_and_dtypes: Any) -> Any:
    """Return the dtype of an operation on arrays, dtypes and Python numbers (which take the others' dtype).

    >>> fnp.result_type(fnp.int32, fnp.float16)
    dtype('float16')
    """
    scalars = [x for x in arrays_and_dtypes if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic)]
    given = [
        _dtype_of(operand("result_type", x) if isinstance(x, (np.generic, list, tuple)) else x)
        for x in arrays_and_dtypes
        if not any(x is s for s in scalars)
    ]
    if not given and not scalars:
        raise ValueError(message("result_type", "at least one array or dtype is required"))
    found = dtypes.promote(*given) if given else None
    for s in scalars:
        wanted = dtypes.scalar_dtype(s, found)
        found = wanted if found is None else dtypes.promote(found, wanted)
    return found


def promote_types(a: Any, b: Any) -> Any:
    """Return the dtype that an operation on two dtypes gives.

    >>> fnp.promote_types("int32", "bool")
    dtype('int32')
    """
    return dtypes.promote(dtypes.as_dtype(a), dtypes.as_dtype(b))


def can_cast(from_: Any, to: Any, /, casting: str = "safe") -> bool:
    """Return whether promotion turns one dtype into another.

    >>> fnp.can_cast("int32", "float32"), fnp.can_cast("float32", "int32")
    (True, False)
    """
    source, target = _dtype_of(from_), dtypes.as_dtype(to)
    if casting == "unsafe":
        return True
    if casting in ("no", "equiv"):
        return bool(source == target)
    if casting == "same_kind":
        return _kind(source) <= _kind(target)
    return bool(dtypes.promote(source, target) == target)


def _kind(d: Any) -> int:
    return 0 if d == dtypes.bool_ else 1 if d in dtypes.INTS else 2


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Return whether a dtype belongs to a kind (``fnp.floating``, ``fnp.integer``, ...) or equals a dtype.

    >>> fnp.issubdtype(fnp.bfloat16, fnp.floating)
    True
    """
    first, second = [dtypes.bfloat16 if _is_bfloat16(x) else x for x in (arg1, arg2)]
    if isinstance(second, np.dtype) and second == dtypes.bfloat16:
        return isinstance(first, np.dtype) and first == second
    if isinstance(first, np.dtype) and first == dtypes.bfloat16:
        return second in (np.floating, np.inexact, np.number, np.generic)
    return bool(np.issubdtype(first, second))


def _is_bfloat16(x: Any) -> bool:
    return isinstance(x, str) and x == "bfloat16"


_KINDS: dict[str, Any] = {
    "bool": frozenset({dtypes.bool_}),
    "signed integer": frozenset({dtypes.int32}),
    "unsigned integer": frozenset({dtypes.uint32}),
    "integral": dtypes.INTS,
    "real floating": dtypes.FLOATS,
    "complex floating": frozenset(),
    "numeric": dtypes.INTS | dtypes.FLOATS,
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is of a kind ("bool", "integral", "real floating", ...), a dtype, or one of several.

    >>> fnp.isdtype(fnp.float32, "real floating")
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    d = dtypes.as_dtype(dtype)
    if isinstance(kind, str) and kind in _KINDS:
        return d in _KINDS[kind]
    try:
        return bool(np.dtype(kind) == np.dtype(dtype))
    except TypeError:
        raise DTypeError(message("isdtype", f"the kind must be one of {', '.join(_KINDS)}", repr(kind))) from None


class _Info:
    """What the Python array API's inspection functions answer."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing works outside jit; shapes that depend on data do not work under jit."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 16}

    def default_device(self) -> Any:
        """The device of new arrays."""
        return _device.default()

    def devices(self) -> list[Any]:
        """The devices usable here."""
        return list(_device.devices())

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of new arrays without ``dtype=``."""
        real = default_float() if device is None else dtypes.float64 if _device.get(device).float64 else dtypes.float32
        return {"real floating": real, "integral": dtypes.int32, "indexing": dtypes.int32}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes of the array API that exist here, by name."""
        chosen = _device.default() if device is None else _device.get(device)
        found = {"bool": dtypes.bool_, "int32": dtypes.int32, "uint32": dtypes.uint32, "float32": dtypes.float32}
        found |= {"float64": dtypes.float64} if chosen.float64 else {}
        return found if kind is None else {n: d for n, d in found.items() if isdtype(d, kind)}


def __array_namespace_info__() -> _Info:
    """Return what this namespace can do, by the Python array API's inspection functions.

    >>> fnp.__array_namespace_info__().default_dtypes()["integral"]
    dtype('int32')
    """
    return _Info()


def iscomplexobj(x: Any) -> bool:
    """Return False: arrays are real.

    >>> fnp.iscomplexobj(fnp.ones(1))
    False
    """
    return isinstance(x, complex) or (isinstance(x, np.ndarray) and x.dtype.kind == "c")


def isrealobj(x: Any) -> bool:
    """Return whether x holds real numbers: True for arrays.

    >>> fnp.isrealobj(fnp.ones(1))
    True
    """
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Return whether x is a number or an array of rank 0.

    >>> fnp.isscalar(3.0)
    True
    """
    return np.isscalar(element) or getattr(element, "ndim", None) == 0


def iterable(y: Any) -> bool:
    """Return whether x can be iterated over.

    >>> fnp.iterable(fnp.ones(2)), fnp.iterable(fnp.asarray(1))
    (True, False)
    """
    return y.ndim > 0 if isinstance(y, Value) else np.iterable(y)


def ndim(a: Any) -> int:
    """Return the number of axes.

    >>> fnp.ndim(fnp.ones((2, 3)))
    2
    """
    return int(operand("ndim", a).aval.ndim)


def shape(a: Any) -> tuple[int, ...]:
    """Return the shape.

    >>> fnp.shape([[1, 2, 3]])
    (1, 3)
    """
    return tuple(operand("shape", a).aval.shape)


def size(a: Any, axis: int | None = None) -> int:
    """Return the number of elements, in all or along an axis.

    >>> fnp.size(fnp.ones((2, 3))), fnp.size(fnp.ones((2, 3)), 1)
    (6, 3)
    """
    aval = operand("size", a).aval
    return int(aval.size if axis is None else aval.shape[axis])
