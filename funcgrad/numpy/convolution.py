"""Convolution and correlation of vectors."""

from __future__ import annotations

from typing import Any

from funcgrad.errors import ShapeError, message
from funcgrad.numpy.precision import resolve_precision
from funcgrad.numpy.promotion import cast, floating_arrays, result_dtype
from funcgrad.prims import contract, layout

__all__ = ["convolve", "correlate"]


def _convolve(name: str, x: Any, kernel: Any, mode: str, precision: Any) -> Any:
    """Sliding products of x with a kernel that is no longer than x, as numpy's modes cut them."""
    n, k = x.aval.size, kernel.aval.size
    if mode not in ("full", "same", "valid"):
        raise ValueError(message(name, 'mode must be "full", "same" or "valid"', repr(mode)))
    pads = {"full": (k - 1, k - 1), "valid": (0, 0), "same": (k // 2, k - 1 - k // 2)}
    prim = contract.Conv((1,), (pads[mode],), (1,), (1,), precision=resolve_precision(name, precision))
    out = contract.conv(layout.reshape(x, (1, n, 1)), layout.reshape(kernel, (k, 1, 1)), prim)
    return layout.reshape(out, (out.aval.size,))


def _vectors(name: str, a: Any, v: Any) -> list[Any]:
    xs = floating_arrays(name, a, v)
    if any(x.aval.ndim != 1 or not x.aval.size for x in xs):
        raise ShapeError(message(name, "two vectors with elements are required", f"{xs[0].aval} and {xs[1].aval}"))
    return xs


def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return two vectors convolved, as floats: "full", "same" (as long as the longer) or "valid" (full overlap).

    >>> fnp.convolve(fnp.asarray([1.0, 2.0]), fnp.asarray([1.0, 1.0]))
    Array([1., 3., 2.], dtype=float32)
    """
    x, kernel = _vectors("convolve", a, v)
    if x.aval.size < kernel.aval.size:
        x, kernel = kernel, x
    out = _convolve("convolve", x, layout.reverse(kernel, (0,)), mode, precision)
    return out if preferred_element_type is None else cast(out, result_dtype(preferred_element_type, None))


def correlate(a: Any, v: Any, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the sliding products of a with v, as floats: the element for shift k is sum(a[n + k] * v[n]).

    >>> fnp.correlate(fnp.asarray([1.0, 2.0, 3.0]), fnp.asarray([0.0, 1.0]))
    Array([2., 3.], dtype=float32)
    """
    x, kernel = _vectors("correlate", a, v)
    swap = x.aval.size < kernel.aval.size
    out = (
        _convolve("correlate", kernel, x, mode, precision)
        if swap
        else _convolve("correlate", x, kernel, mode, precision)
    )
    out = layout.reverse(out, (0,)) if swap else out
    return out if preferred_element_type is None else cast(out, result_dtype(preferred_element_type, None))
