"""Initialisers with ``jax.nn.initializers``' names: each returns ``init(key, shape, dtype=float32)``.

Equal to JAX's for the same key.  Sources: Glorot and Bengio (2010), He et al. (2015), LeCun et al. (1998), Saxe et al.
(2014).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import numpy as fnp
from funcgrad import random
from funcgrad.errors import ShapeError, message

__all__ = [
    "Initializer",
    "constant",
    "delta_orthogonal",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]

Initializer = Callable[..., Any]
Axis = int | Sequence[int]
# The standard deviation of a standard normal value given that it lies in (-2, 2).
TRUNCATED_STD = 0.87962566103423978


def zeros(key: Any, shape: Sequence[int], dtype: Any = float) -> Any:
    """Return zeros; the key is not used.

    >>> zeros(random.key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    return fnp.zeros(shape, dtype)


def ones(key: Any, shape: Sequence[int], dtype: Any = float) -> Any:
    """Return ones; the key is not used.

    >>> ones(random.key(0), (2,))
    Array([1., 1.], dtype=float32)
    """
    return fnp.ones(shape, dtype)


def constant(value: Any, dtype: Any = float) -> Initializer:
    """Return an initialiser that gives ``value`` everywhere.

    >>> constant(0.5)(None, (2,))
    Array([0.5, 0.5], dtype=float32)
    """
    default = dtype

    def init(key: Any, shape: Sequence[int], dtype: Any = default) -> Any:
        return fnp.full(shape, value, dtype)

    return init


def uniform(scale: Any = 1e-2, dtype: Any = float) -> Initializer:
    """Return an initialiser that draws uniformly from [0, scale).

    >>> w = uniform(0.5)(random.key(0), (200, 100))
    >>> 0.0 <= float(w.min()) < float(w.max()) < 0.5
    True
    """
    default = dtype

    def init(key: Any, shape: Sequence[int], dtype: Any = default) -> Any:
        return random.uniform(key, shape, dtype) * scale

    return init


def normal(stddev: Any = 1e-2, dtype: Any = float) -> Initializer:
    """Return an initialiser that draws normal values of standard deviation ``stddev``.

    >>> w = normal(0.5)(random.key(0), (200, 100))
    >>> abs(float(w.std()) - 0.5) < 0.02
    True
    """
    default = dtype

    def init(key: Any, shape: Sequence[int], dtype: Any = default) -> Any:
        return random.normal(key, shape, dtype) * stddev

    return init


def truncated_normal(stddev: Any = 1e-2, dtype: Any = float, lower: float = -2.0, upper: float = 2.0) -> Initializer:
    """Return an initialiser that draws normal values in (lower, upper) standard deviations, times ``stddev``.

    >>> w = truncated_normal(0.5)(random.key(0), (200, 100))
    >>> float(fnp.abs(w).max()) <= 1.0
    True
    """
    default = dtype

    def init(key: Any, shape: Sequence[int], dtype: Any = default) -> Any:
        return random.truncated_normal(key, lower, upper, shape, dtype) * stddev

    return init


def fans(shape: Sequence[int], in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = ()) -> tuple[float, float]:
    """Return the number of inputs and outputs of one element of a kernel; axes that are none of the three are the
    receptive field.

    >>> fans((3, 3, 16, 32))
    (144.0, 288.0)
    """
    if len(shape) < 2:
        raise ShapeError(
            message("initializer", "a kernel needs at least two axes", str(tuple(shape)), "use normal or uniform")
        )

    def size(axis: Axis) -> float:
        return math.prod([shape[a] for a in ([axis] if isinstance(axis, int) else axis)])

    field = math.prod(shape) / size(in_axis) / size(out_axis) / size(batch_axis) if math.prod(shape) else 0.0
    return size(in_axis) * field, size(out_axis) * field


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: Axis = -2,
    out_axis: Axis = -1,
    batch_axis: Axis = (),
    dtype: Any = float,
) -> Initializer:
    """Return an initialiser of variance ``scale / n``, n being fan_in, fan_out, fan_avg or fan_geo_avg (``mode``).

    ``distribution`` is "normal", "truncated_normal" (two standard deviations) or "uniform".

    >>> variance_scaling(1.0, "fan_in", "uniform")(random.key(0), (300, 2)).std().item()
    0.058
    """
    modes: dict[str, Callable[[float, float], float]] = {
        "fan_in": lambda i, o: i,
        "fan_out": lambda i, o: o,
        "fan_avg": lambda i, o: (i + o) / 2,
        "fan_geo_avg": lambda i, o: math.sqrt(i * o),
    }
    if mode not in modes or distribution not in ("normal", "truncated_normal", "uniform"):
        raise ValueError(
            message("variance_scaling", "mode and distribution must be known", f"{mode!r}, {distribution!r}")
        )
    default = dtype

    def init(key: Any, shape: Sequence[int], dtype: Any = default) -> Any:
        variance = scale / max(1.0, modes[mode](*fans(shape, in_axis, out_axis, batch_axis)))
        if distribution == "normal":
            return random.normal(key, shape, dtype) * math.sqrt(variance)
        if distribution == "uniform":
            return random.uniform(key, shape, dtype, -1.0, 1.0) * math.sqrt(3 * variance)
        return random.truncated_normal(key, -2.0, 2.0, shape, dtype) * (math.sqrt(variance) / TRUNCATED_STD)

    return init


def glorot_uniform(in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: Any = float) -> Initializer:
    """Return Glorot's uniform initialiser: variance 2 / (fan_in + fan_out).

    >>> w = glorot_uniform()(random.key(0), (200, 100))
    >>> float(fnp.abs(w).max()) <= (6 / 300) ** 0.5
    True
    """
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: Any = float) -> Initializer:
    """Return Glorot's (truncated) normal initialiser.

    >>> w = glorot_normal()(random.key(0), (200, 100))
    >>> abs(float(w.std()) - (2 / 300) ** 0.5) < 0.003
    True
    """
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def lecun_uniform(in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: Any = float) -> Initializer:
    """Return LeCun's uniform initialiser: variance 1 / fan_in.

    >>> w = lecun_uniform()(random.key(0), (200, 100))
    >>> float(fnp.abs(w).max()) <= (3 / 200) ** 0.5
    True
    """
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: Any = float) -> Initializer:
    """Return LeCun's (truncated) normal initialiser.

    >>> w = lecun_normal()(random.key(0), (200, 100))
    >>> abs(float(w.std()) - (1 / 200) ** 0.5) < 0.003
    True
    """
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: Any = float) -> Initializer:
    """Return He's uniform initialiser: variance 2 / fan_in.

    >>> w = he_uniform()(random.key(0), (200, 100))
    >>> float(fnp.abs(w).max()) <= (6 / 200) ** 0.5
    True
    """
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: Any = float) -> Initializer:
    """Return He's (truncated) normal initialiser.

    >>> w = he_normal()(random.key(0), (200, 100))
    >>> abs(float(w.std()) - (2 / 200) ** 0.5) < 0.003
    True
    """
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


def orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: Any = float) -> Initializer:
    """Return an initialiser of orthonormal columns (or rows), times ``scale``: the Q of a normal matrix, signs fixed.

    >>> q = orthogonal()(random.key(0), (3, 3))
    >>> bool(abs(q @ q.T - fnp.eye(3)).max() < 1e-5)
    True
    """
    default = dtype

    def init(key: Any, shape: Sequence[int], dtype: Any = default) -> Any:
        if len(shape) < 2:
            raise ShapeError(message("orthogonal", "at least two axes are required", str(tuple(shape))))
        columns = shape[column_axis]
        rows = math.prod(shape) // columns
        wide = (columns, rows) if rows < columns else (rows, columns)
        q, r = fnp.linalg.qr(random.normal(key, wide, dtype))
        q = q * fnp.sign(fnp.diagonal(r))[None, :]
        q = q.T if rows < columns else q
        rest = [n for i, n in enumerate(shape) if i != column_axis % len(shape)]
        return scale * fnp.moveaxis(q.reshape((*rest, columns)), -1, column_axis)

    return init


def delta_orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: Any = float) -> Initializer:
    """Return an initialiser of convolution kernels ``(*window, in, out)``: orthogonal at the centre, 0 elsewhere
    (Xiao et al., 2018).

    >>> delta_orthogonal()(random.key(0), (3, 1, 1)).ravel()
    Array([0., 1., 0.], dtype=float32)
    """
    default = dtype

    def init(key: Any, shape: Sequence[int], dtype: Any = default) -> Any:
        if not 3 <= len(shape) <= 5 or shape[-1] < shape[-2]:
            requirement = "3 to 5 axes (*window, in, out) with out at least in are required"
            raise ShapeError(message("delta_orthogonal", requirement, str(tuple(shape))))
        centre = orthogonal(scale, column_axis, dtype)(key, tuple(shape[-2:]))
        at = tuple([(k - 1) // 2 for k in shape[:-2]])
        return fnp.zeros(shape, dtype).at[at].set(centre)

    return init
