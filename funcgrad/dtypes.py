"""Dtypes: which there are, how they combine, and what host data becomes.

A dtype is a ``numpy.dtype``.  Device dtypes are float32, float16, bfloat16, int32, uint32 and bool; the numpy device
has float64 too.  numpy has no bfloat16, so it is a two-byte record dtype of our own, converted by :func:`widen` and
:func:`narrow`.

Promotion, in one table (symmetric; Python scalars take the other operand's dtype when they fit its kind)::

    bool < int32 = uint32 -> int32 < float16, bfloat16 < float32 < float64
    float16 + bfloat16 -> float32;  integer + float16 -> float16
"""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad.errors import DTypeError, message

__all__ = ["bfloat16", "bool_", "float16", "float32", "float64", "int32", "uint32"]

float32 = np.dtype(np.float32)
float16 = np.dtype(np.float16)
bfloat16 = np.dtype([("bfloat16", "<u2")])
float64 = np.dtype(np.float64)
int32 = np.dtype(np.int32)
uint32 = np.dtype(np.uint32)
bool_ = np.dtype(np.bool_)

DType = np.dtype[Any]
FLOATS: frozenset[DType] = frozenset({float32, float16, bfloat16, float64})
INTS: frozenset[DType] = frozenset({int32, uint32})
HALVES: frozenset[DType] = frozenset({float16, bfloat16})
ALL: frozenset[DType] = FLOATS | INTS | {bool_}
NAMES: dict[DType, str] = {d: d.name for d in ALL - {bfloat16}} | {bfloat16: "bfloat16"}
SHORT: dict[DType, str] = {float32: "f32", float16: "f16", bfloat16: "bf16", float64: "f64"}
SHORT |= {int32: "i32", uint32: "u32", bool_: "bool"}
_RANK: dict[DType, int] = {bool_: 0, uint32: 1, int32: 2, float16: 3, bfloat16: 3, float32: 4, float64: 5}

# What host dtypes become.  Narrow integers widen to int32: there is no 8- or 16-bit arithmetic on a device.
_HOST: dict[DType, DType] = {np.dtype(n): int32 for n in ("int8", "int16", "int32", "int64", "uint8", "uint16")}
_HOST |= {np.dtype(n): uint32 for n in ("uint32", "uint64")}
_HOST |= {d: d for d in (float16, bfloat16, float32, bool_)} | {float64: float32}


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether ``dtype`` is one of the floating-point dtypes."""
    return dtype in FLOATS


def is_int(dtype: np.dtype[Any]) -> bool:
    """Return whether ``dtype`` is int32 or uint32."""
    return dtype in INTS


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the numpy dtype for a dtype, a type or a name ("bfloat16" too); float64 stays float64.

    >>> as_dtype(float), as_dtype("int64"), as_dtype(bool)
    (dtype('float32'), dtype('int32'), dtype('bool'))
    """
    if dtype is float:
        return float32
    if dtype is int:
        return int32
    if dtype == "bfloat16" or getattr(dtype, "__name__", "") == "bfloat16":
        return bfloat16
    try:
        d = np.dtype(dtype)
    except TypeError:
        raise DTypeError(message("dtype", "a numeric dtype is required", repr(dtype), _KNOWN)) from None
    if d == float64:
        return float64
    if d.name == "bfloat16":
        return bfloat16
    return host_dtype(d)


_KNOWN = "use float32, float16, bfloat16, int32, uint32 or bool"


def host_dtype(dtype: np.dtype[Any], keep_float64: bool = False) -> np.dtype[Any]:
    """Return the device dtype for host data of ``dtype``: 64 bits become 32, narrow integers int32.

    >>> host_dtype(np.dtype("int64")), host_dtype(np.dtype(">f8"))
    (dtype('int32'), dtype('float32'))
    """
    d = dtype if dtype.isnative or dtype == bfloat16 else dtype.newbyteorder("=")
    if keep_float64 and d == float64:
        return float64
    found = _HOST.get(d)
    if found is None:
        raise DTypeError(message("asarray", "a real numeric or bool dtype is required", str(dtype), _KNOWN))
    return found


def promote(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that an operation on these dtypes gives.

    >>> promote(int32, float16), promote(uint32, int32)
    (dtype('float16'), dtype('int32'))
    """
    top = max(dtypes, key=_RANK.__getitem__)
    if top in HALVES and any(d in HALVES and d != top for d in dtypes):
        return float32
    return top


def scalar_dtype(value: Any, other: np.dtype[Any] | None = None) -> np.dtype[Any]:
    """Return the dtype of a Python scalar beside an operand of dtype ``other``: that, unless its kind is too small."""
    if isinstance(value, (bool, np.bool_)):
        return other or bool_
    if isinstance(value, (int, np.integer)):
        return int32 if other is None or other == bool_ else other
    return float32 if other is None or other not in FLOATS else other


def widen(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return half-precision data as float32; other data unchanged."""
    if x.dtype == bfloat16:
        bits = x["bfloat16"].astype(np.uint32) << np.uint32(16)
        return np.asarray(bits).view(np.float32)
    return x.astype(np.float32) if x.dtype == float16 else x


def narrow(x: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return data converted to ``dtype``; bfloat16 rounds to nearest, ties to even.

    >>> widen(narrow(np.float32(1.01), bfloat16)).item()
    1.0078125
    """
    if dtype != bfloat16:
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(dtype, copy=False)
    a = np.asarray(x)
    if a.dtype == bfloat16:
        return a
    u = np.ascontiguousarray(a, np.float32).reshape(a.shape).view(np.uint32)
    rounded = (u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (u >> np.uint32(16)) | np.uint32(0x40)
    bits = np.where((u & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000), quiet, rounded).astype(np.uint16)
    out = np.empty(a.shape, bfloat16)
    out["bfloat16"] = bits
    return out
