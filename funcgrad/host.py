"""Host data: what may be a leaf, and how it becomes what a device can hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import DTypeError, TracerArrayConversionError, message
from funcgrad.trace import Tracer, Value

__all__ = ["SCALARS", "check_range", "is_data", "scalar_dtype", "to_host"]

SCALARS = (bool, int, float, np.bool_, np.integer, np.floating)


def is_data(x: Any) -> bool:
    """Return whether ``x`` may be a leaf: a number or an array of any library, and no text."""
    if isinstance(x, (str, bytes, np.str_, np.bytes_)):
        return False
    return isinstance(x, (Value, *SCALARS)) or hasattr(x, "__array__") or hasattr(x, "__dlpack__")


def to_host(x: Any, dtype: Any = None, keep_float64: bool = False) -> np.ndarray[Any, Any]:
    """Return host data in a dtype that a device can hold; OverflowError for integers that do not fit."""
    implicit = dtype is None
    if dtype is None and isinstance(x, SCALARS) and not isinstance(x, np.generic):
        dtype = scalar_dtype(x, keep_float64)
    a = _host_array(x)
    target = dtypes.as_dtype(dtype) if dtype is not None else dtypes.host_dtype(a.dtype, keep_float64)
    if target == dtypes.float64 and not keep_float64:
        target = dtypes.float32
    if a.dtype.name == "bfloat16":
        a = a.astype(np.float32)
    if a.dtype.kind in "iu" and a.dtype.itemsize == 8 and (implicit or not isinstance(x, np.ndarray)):
        check_range(a, target)
    return dtypes.narrow(dtypes.widen(a) if a.dtype == dtypes.bfloat16 and target != a.dtype else a, target)


def scalar_dtype(x: Any, keep_float64: bool) -> Any:
    """The dtype of a number that stands alone: floats are float64 where that is kept."""
    found = dtypes.scalar_dtype(x)
    return dtypes.float64 if keep_float64 and found == dtypes.float32 else found


def check_range(a: np.ndarray[Any, Any], dtype: Any) -> None:
    """Raise OverflowError when integers do not fit the integer dtype that they are about to become."""
    if dtype in dtypes.INTS and a.size:
        low, high = int(a.min()), int(a.max())
        if low < np.iinfo(dtype).min or high > np.iinfo(dtype).max:
            got = str(low if low < np.iinfo(dtype).min else high)
            raise OverflowError(
                message("asarray", f"integers must fit {dtypes.NAMES[dtype]}", got, "convert to float32 first")
            )


def _host_array(x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (list, tuple)):
        x = _lists_of_values(x)
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        return np.from_dlpack(x)
    try:
        a = np.asarray(x)
    except (ValueError, TypeError) as e:
        if isinstance(e, TracerArrayConversionError):
            raise
        got = f"{type(x).__name__}: {e}"
        raise DTypeError(
            message("asarray", "array-like data is required", got, "give nested lists of one length")
        ) from None
    if a.dtype == np.object_ and a.size and all(isinstance(v, int) for v in a.flat):
        raise OverflowError(message("asarray", "integers must fit int32", f"{max(a.flat, key=abs)}", "use float(x)"))
    if a.dtype.kind in "OUSV" and a.dtype != dtypes.bfloat16:
        got = f"{type(x).__name__} {str(x)[:60]!r}"
        raise DTypeError(message("asarray", "numbers are required", got, "convert it, or keep it out of the tree"))
    return a


def _lists_of_values(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_lists_of_values(v) for v in x]
    if isinstance(x, Value) and not isinstance(x, Tracer):
        array: Any = x
        return array.numpy()
    return x
