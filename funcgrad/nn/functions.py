"""Activation functions, the softmax family, normalisation and one-hot coding; names and meaning of ``jax.nn``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from funcgrad import numpy as fnp
from funcgrad.array import as_value
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Literal
from funcgrad.numpy.exponentials import logsumexp
from funcgrad.numpy.promotion import broadcast_args, floating, promote_args, result_dtype
from funcgrad.primitive import apply
from funcgrad.prims import layout, logic, pointwise

__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "identity",
    "leaky_relu",
    "log1mexp",
    "log_sigmoid",
    "log_softmax",
    "logmeanexp",
    "logsumexp",
    "mish",
    "one_hot",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "standardize",
    "swish",
    "tanh",
]

Axis = int | Sequence[int] | None


def relu(x: Any) -> Any:
    """Return max(x, 0); the derivative at 0 is 0, and NaN stays NaN.

    >>> relu(asarray([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    (a,) = promote_args("relu", x)
    zero = Literal(0, a.aval.dtype)
    return pointwise.select(logic.compare("le", a, zero), zero, a)


def relu6(x: Any) -> Any:
    """Return min(max(x, 0), 6).

    >>> relu6(asarray([-1.0, 7.0]))
    Array([0., 6.], dtype=float32)
    """
    return fnp.clip(x, 0, 6)


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)).

    >>> sigmoid(asarray([0.0]))
    Array([0.5], dtype=float32)
    """
    (a,) = floating("sigmoid", x)
    return apply("logistic", a)


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent.

    >>> tanh(fnp.asarray([0.0, 20.0]))
    Array([0., 1.], dtype=float32)
    """
    return fnp.tanh(x)


def silu(x: Any) -> Any:
    """Return x * sigmoid(x).

    >>> silu(asarray([0.0]))
    Array([0.], dtype=float32)
    """
    (a,) = floating("silu", x)
    return pointwise.mul(a, apply("logistic", a))


swish = silu


def gelu(x: Any, approximate: bool = True) -> Any:
    """Return x times the normal distribution function of x, or its tanh approximation (Hendrycks and Gimpel, 2016).

    >>> gelu(asarray([0.0]))
    Array([0.], dtype=float32)
    """
    (a,) = floating("gelu", x)
    if approximate:
        cubic = pointwise.mul(pointwise.mul(apply("square", a), a), 0.044715)
        cdf = pointwise.add(apply("tanh", pointwise.mul(pointwise.add(a, cubic), math.sqrt(2 / math.pi))), 1.0)
        return pointwise.mul(pointwise.mul(a, 0.5), cdf)
    return pointwise.mul(pointwise.mul(a, 0.5), apply("erfc", pointwise.mul(a, -math.sqrt(0.5))))


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)) without overflow.

    >>> softplus(asarray([0.0, 1000.0]))
    Array([6.931472e-01, 1.000000e+03], dtype=float32)
    """
    (a,) = floating("softplus", x)
    return fnp.logaddexp(a, 0.0)


def log_sigmoid(x: Any) -> Any:
    """Return log(sigmoid(x)) without overflow: -softplus(-x).

    >>> log_sigmoid(asarray([-1000.0]))
    Array([-1000.], dtype=float32)
    """
    return pointwise.neg(softplus(pointwise.neg(floating("log_sigmoid", x)[0])))


def soft_sign(x: Any) -> Any:
    """Return ``x / (1 + |x|)``.

    >>> soft_sign(fnp.asarray([-1.0, 3.0]))
    Array([-0.5 ,  0.75], dtype=float32)
    """
    (a,) = floating("soft_sign", x)
    return pointwise.div(a, pointwise.add(pointwise.abs(a), 1.0))


def _choose_positive(a: Any, negative: Any) -> Any:
    return pointwise.select(logic.compare("gt", a, 0), a, negative)


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """Return x where positive, else alpha * (exp(x) - 1).

    >>> elu(asarray([0.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    a, scale = broadcast_args("elu", *promote_args("elu", floating("elu", x)[0], alpha))
    return _choose_positive(a, pointwise.mul(apply("expm1", a), scale))


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """Return x where positive, else alpha * (exp(x / alpha) - 1).

    >>> celu(fnp.asarray([-1.0, 2.0]))
    Array([-0.632...,  2.        ], dtype=float32)
    """
    a, scale = broadcast_args("celu", *promote_args("celu", floating("celu", x)[0], alpha))
    return _choose_positive(a, pointwise.mul(apply("expm1", pointwise.div(a, scale)), scale))


def selu(x: Any) -> Any:
    """Return the scaled elu that keeps mean 0 and variance 1 (Klambauer et al., 2017).

    >>> selu(fnp.asarray([0.0, 1.0]))
    Array([0.       , 1.0507...], dtype=float32)
    """
    return pointwise.mul(elu(x, 1.6732632423543772848170429916717), 1.0507009873554804934193349852946)


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """Return x where not negative, else negative_slope * x.

    >>> leaky_relu(asarray([-1.0, 2.0]))
    Array([-0.01,  2.  ], dtype=float32)
    """
    a, slope = broadcast_args("leaky_relu", *promote_args("leaky_relu", floating("leaky_relu", x)[0], negative_slope))
    return pointwise.select(logic.compare("ge", a, 0), a, pointwise.mul(a, slope))


def hard_tanh(x: Any) -> Any:
    """Return x limited to [-1, 1].

    >>> hard_tanh(fnp.asarray([-2.0, 0.5, 2.0]))
    Array([-1. ,  0.5,  1. ], dtype=float32)
    """
    return fnp.clip(x, -1, 1)


def hard_sigmoid(x: Any) -> Any:
    """Return relu6(x + 3) / 6.

    >>> hard_sigmoid(fnp.asarray([-4.0, 0.0, 4.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return pointwise.div(relu6(pointwise.add(floating("hard_sigmoid", x)[0], 3.0)), 6.0)


def hard_swish(x: Any) -> Any:
    """Return x * hard_sigmoid(x).

    >>> hard_swish(fnp.asarray([-4.0, 1.5, 4.0]))
    Array([-0.   ,  1.125,  4.   ], dtype=float32)
    """
    return pointwise.mul(floating("hard_swish", x)[0], hard_sigmoid(x))


hard_silu = hard_swish


def identity(x: Any) -> Any:
    """Return x, as a float or integer array.

    >>> identity(fnp.asarray([1.0, 2.0]))
    Array([1., 2.], dtype=float32)
    """
    return fnp.asarray(x)


def log1mexp(x: Any) -> Any:
    """Return log(1 - exp(-x)) for positive x, exactly for small and for large x (Maechler, 2012).

    >>> log1mexp(asarray([1e-6, 50.0]))
    Array([-1.381551e+01, -1.928750e-22], dtype=float32)
    """
    (a,) = floating("log1mexp", x)
    small = logic.compare("lt", a, math.log(2.0))
    # Each branch sees an argument that suits it, so that the one not taken has no infinite derivative.
    one = Literal(1, a.aval.dtype)
    near = fnp.log(pointwise.neg(apply("expm1", pointwise.neg(pointwise.select(small, a, one)))))
    far = apply("log1p", pointwise.neg(apply("exp", pointwise.neg(pointwise.select(small, one, a)))))
    return pointwise.select(small, near, far)


def sparse_plus(x: Any) -> Any:
    """Return 0 up to -1, (x + 1)**2 / 4 between -1 and 1, and x from 1 on.

    >>> sparse_plus(asarray([-2.0, 0.0, 2.0]))
    Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    (a,) = floating("sparse_plus", x)
    middle = pointwise.mul(apply("square", pointwise.add(a, 1.0)), 0.25)
    return fnp.where(logic.compare("le", a, -1.0), 0.0, fnp.where(logic.compare("ge", a, 1.0), a, middle))


def sparse_sigmoid(x: Any) -> Any:
    """Return the derivative of sparse_plus: (x + 1) / 2, limited to [0, 1].

    >>> sparse_sigmoid(fnp.asarray([-2.0, 0.0, 2.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    (a,) = floating("sparse_sigmoid", x)
    middle = pointwise.mul(pointwise.add(a, 1.0), 0.5)
    return fnp.where(logic.compare("le", a, -1.0), 0.0, fnp.where(logic.compare("ge", a, 1.0), 1.0, middle))


def mish(x: Any) -> Any:
    """Return x * tanh(softplus(x)) (Misra, 2019).

    >>> mish(fnp.asarray([0.0, 1.0]))
    Array([0.       , 0.865...], dtype=float32)
    """
    (a,) = floating("mish", x)
    return pointwise.mul(a, apply("tanh", softplus(a)))


def squareplus(x: Any, b: Any = 4.0) -> Any:
    """Return (x + sqrt(x**2 + b)) / 2 (Barron, 2021).

    >>> squareplus(fnp.asarray([0.0, 1.5]))
    Array([1., 2.], dtype=float32)
    """
    (a,) = floating("squareplus", x)
    return pointwise.mul(pointwise.add(a, apply("sqrt", pointwise.add(apply("square", a), b))), 0.5)


def glu(x: Any, axis: int = -1) -> Any:
    """Return the first half along ``axis`` times the sigmoid of the second half.

    >>> glu(asarray([2.0, 0.0]))
    Array([1.], dtype=float32)
    """
    (a,) = floating("glu", x)
    at = axis % a.aval.ndim
    n = a.aval.shape[at]
    if n % 2:
        raise ShapeError(message("glu", "the size along the axis must be even", f"{n} in {a.aval}"))
    first, second = layout.slice_along(a, at, 0, n // 2), layout.slice_along(a, at, n // 2, n)
    return pointwise.mul(first, apply("logistic", second))


# -- the softmax family ------------------------------------------------------------------------------------------
def _masked(name: str, x: Any, where: Any) -> Any:
    (a,) = floating(name, x)
    return a if where is None else fnp.where(where, a, -math.inf)


def _shifted(a: Any, axis: Axis) -> tuple[Any, Any]:
    """Subtract the largest element, taken as a constant; 0 in place of an infinite one, so that nothing becomes NaN."""
    top = pointwise.stop_gradient(fnp.max(a, axis=axis, keepdims=True, initial=-math.inf))
    safe = pointwise.select(logic.isfinite(top), top, Literal(0, a.aval.dtype))
    return fnp.subtract(a, safe), safe


def softmax(x: Any, axis: Axis = -1, where: Any = None) -> Any:
    """Return exp(x) normalised to sum 1 along ``axis``; where a mask is False the result is 0, also in rows that are
    all False.

    >>> softmax(asarray([0.0, 0.0]))
    Array([0.5, 0.5], dtype=float32)
    """
    a = _masked("softmax", x, where)
    shifted, _ = _shifted(a, axis)
    e = apply("exp", shifted)
    total = fnp.sum(e, axis=axis, keepdims=True)
    if where is None:
        return fnp.divide(e, total)
    some = logic.compare("gt", total, 0)
    return fnp.divide(e, fnp.where(some, total, 1.0))


def log_softmax(x: Any, axis: Axis = -1, where: Any = None) -> Any:
    """Return log(softmax(x)) without overflow; -inf where a mask is False.

    >>> log_softmax(asarray([0.0, 0.0]))
    Array([-0.6931472, -0.6931472], dtype=float32)
    """
    a = _masked("log_softmax", x, where)
    shifted, _ = _shifted(a, axis)
    total = fnp.sum(apply("exp", shifted), axis=axis, keepdims=True)
    if where is not None:
        total = fnp.where(logic.compare("gt", total, 0), total, 1.0)
    return fnp.subtract(shifted, fnp.log(total))


def logmeanexp(x: Any, axis: Axis = None, where: Any = None, keepdims: bool = False) -> Any:
    """Return log(mean(exp(x))) without overflow, over the elements where ``where`` is True.

    >>> logmeanexp(asarray([1000.0, 1000.0]))
    Array(1000., dtype=float32)
    """
    (a,) = floating("logmeanexp", x)
    ones = fnp.ones(a.aval.shape, a.aval.dtype) if where is None else fnp.where(where, fnp.ones_like(a), 0.0)
    count = fnp.sum(ones, axis=axis, keepdims=keepdims)
    return fnp.subtract(logsumexp(a, axis, keepdims=keepdims, where=where), fnp.log(count))


def standardize(x: Any, axis: Axis = -1, epsilon: Any = 1e-5, where: Any = None) -> Any:
    """Return x less its mean, over the square root of its (biased) variance plus ``epsilon``, along ``axis``.

    >>> standardize(asarray([1.0, 3.0]), epsilon=0.0)
    Array([-1.,  1.], dtype=float32)
    """
    (a,) = floating("standardize", x)
    mean = fnp.mean(a, axis=axis, keepdims=True, where=where)
    centred = fnp.subtract(a, mean)
    variance = fnp.mean(fnp.square(centred), axis=axis, keepdims=True, where=where)
    return fnp.multiply(centred, apply("rsqrt", fnp.add(variance, epsilon)))


def one_hot(x: Any, num_classes: int, *, dtype: Any = float, axis: int = -1) -> Any:
    """Return 1 at the index and 0 elsewhere along a new ``axis`` of size ``num_classes``; all 0 for an index out of
    range.

    >>> one_hot(asarray([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    ids = as_value(x)
    rank = ids.aval.ndim + 1
    at = axis % rank
    shape = (*ids.aval.shape[:at], num_classes, *ids.aval.shape[at:])
    wide = layout.broadcast(ids, shape, tuple([d for d in range(rank) if d != at]))
    classes = layout.iota(shape, at, ids.aval.dtype)
    return fnp.astype(logic.compare("eq", wide, classes), result_dtype(dtype, None))
