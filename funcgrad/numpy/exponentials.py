"""Sums of exponentials that neither overflow nor make NaN."""

from __future__ import annotations

import math
from typing import Any

from funcgrad.ir import Literal
from funcgrad.numpy.choices import select_where
from funcgrad.numpy.promotion import (
    axis_tuple,
    broadcast_args,
    dense,
    expand_to,
    floating_arrays,
    kept_shape,
    promote_args,
)
from funcgrad.numpy.reductions import max as _max
from funcgrad.primitive import apply
from funcgrad.prims import layout, logic, pointwise

__all__ = ["logsumexp"]


def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None
) -> Any:
    """Return log(sum(b * exp(a))) along axes without overflow; -inf, with gradient 0, where every term is 0.

    With ``return_sign`` returns the logarithm of the absolute value, and the sign; without, a negative sum gives NaN.

    >>> fnp.logsumexp(fnp.asarray([1000.0, 1000.0]))
    Array(1000.693, dtype=float32)
    """
    (x,) = floating_arrays("logsumexp", a)
    scale: Any = None
    if b is not None:
        x, scale = [dense(v) for v in broadcast_args("logsumexp", *promote_args("logsumexp", x, b))]
        x, scale = expand_to(x, _shape(x, scale)), expand_to(scale, _shape(x, scale))
        x = select_where("logsumexp", logic.compare("ne", scale, 0), x, -math.inf)
    if where is not None:
        x = select_where("logsumexp", where, x, -math.inf)
    axes = axis_tuple("logsumexp", axis, x.aval.ndim)
    top = pointwise.stop_gradient(_max(x, axes, None, True, -math.inf))
    safe = pointwise.select(logic.isfinite(top), top, Literal(0, x.aval.dtype))
    terms = apply("exp", pointwise.sub(*broadcast_args("logsumexp", x, safe)))
    total = layout.reduce_sum(terms if scale is None else pointwise.mul(terms, scale), axes)
    shape = kept_shape(x.aval.shape, axes) if keepdims else total.aval.shape
    total, safe = layout.reshape(total, shape), layout.reshape(safe, shape)
    sign = apply("sign", total)
    size = pointwise.abs(total) if return_sign else total
    # The cotangent of log is divided by the sum: a sum of 0 is left out, so that its gradient is 0 and not NaN.
    some = logic.compare("ne", size, 0)
    inner = pointwise.add(apply("log", pointwise.select(some, size, Literal(1, x.aval.dtype))), safe)
    out = pointwise.select(some, inner, Literal(-math.inf, x.aval.dtype))
    return (out, sign) if return_sign else out


def _shape(x: Any, y: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = x.aval.shape if x.aval.ndim else y.aval.shape
    return shape
