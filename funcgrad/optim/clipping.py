"""Clipping and norms of gradients."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.optim.base import (
    Optimizer,
    Scalar,
    State,
    Tree,
    add_all,
    cast,
    identity,
    require,
    require_params,
    scaled,
    stateless,
    wide_dtype,
)

__all__ = [
    "adaptive_grad_clip",
    "clip",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "clip_with_norm",
    "global_norm",
    "per_example_global_norm_clip",
    "unitwise_norm",
]

# Bounds of what gradients are divided by before squaring: dividing an ordinary limit by less would overflow, and the
# reciprocal of more would be subnormal, which devices flush to 0. Squares still fit for every float32 in between.
_TINY, _HUGE = 1e-30, 1e37
_SMALL = 1 << 16  # elements of a leaf that is worth a copy


def clip(max_delta: Scalar) -> Optimizer:
    """Clamp every element of the gradients to ``[-max_delta, max_delta]``; a NaN stays a NaN.

    Raises ValueError unless ``max_delta`` is positive and finite.

    >>> updates, _ = clip(1.0).update(fnp.asarray([-3.0, 0.5, 2.0]), ())
    >>> [float(u) for u in updates]
    [-1.0, 0.5, 1.0]
    """
    require("clip", "(0, inf)", max_delta=max_delta)

    def bounded(x: Any) -> Any:
        limit = scaled(max_delta, fnp.ones((), dtype=x.dtype)) if hasattr(max_delta, "dtype") else max_delta
        return fnp.clip(x, -limit, limit)

    return stateless(lambda grads, params: tree.map(bounded, grads))


class ScaledNorm(NamedTuple):
    """A global norm as the product of ``scale`` and ``relative``, either of which every float32 can hold.

    ``peaks`` are the largest magnitudes of the leaves, one for each.
    """

    scale: Any
    relative: Any
    peaks: Any

    @property
    def value(self) -> Any:
        """The norm itself; infinite when float32 cannot hold it."""
        return self.scale * self.relative

    def factor(self, max_norm: Scalar) -> Any:
        """``min(1, max_norm / (norm + 1e-6))``, exact also where the norm itself overflows."""
        return fnp.minimum(1.0, max_norm / self.scale / (self.relative + 1e-6 / self.scale))


def scaled_norm(grads: Tree, each: bool = True) -> ScaledNorm:
    """The norm over all leaves without overflow or underflow: each is divided by the largest magnitude of all before it
    is squared.  Not finite exactly when an element is not.

    Without ``each`` small leaves are taken together, which costs less, and ``peaks`` are not one for each leaf.

    >>> norm = scaled_norm({"a": fnp.asarray([3e30]), "b": fnp.asarray([-4e30])})
    >>> float(norm.relative), float(norm.scale), norm.peaks.tolist()
    (1.25, 4e+30, [3e+30, 4e+30])
    """
    leaves = tree.leaves(grads)
    if not leaves:
        return ScaledNorm(fnp.ones(()), fnp.zeros(()), fnp.zeros(0))
    dtype = wide_dtype(leaves)
    wide = [cast(fnp.asarray(x), dtype) for x in leaves]
    wide = wide if each else _together(wide)
    peaks = fnp.stack([fnp.max(fnp.abs(x)) if math.prod(x.shape) else fnp.zeros((), dtype) for x in wide])
    top = fnp.max(peaks)
    scale = fnp.where(top < math.inf, fnp.clip(top, _TINY, _HUGE), 1.0)  # 1, so that what is not finite shows
    return ScaledNorm(scale, fnp.sqrt(_sum_of([fnp.sum(fnp.square(x / scale)) for x in wide])), peaks)


def _together(leaves: list[Any]) -> list[Any]:
    """Small leaves one behind another in one array, and the large ones: fewer operations, for one copy."""
    small = [x for x in leaves if math.prod(x.shape) <= _SMALL]
    if len(small) < 3:
        return leaves
    large = [x for x in leaves if math.prod(x.shape) > _SMALL]
    return [fnp.concatenate([x.reshape(-1) for x in small]), *large]


def _sum_of(scalars: list[Any]) -> Any:
    """The sum of scalars by halves: a few fused nodes, where stacking them first takes one for each."""
    if len(scalars) == 1:
        return scalars[0]
    middle = len(scalars) // 2
    return _sum_of(scalars[:middle]) + _sum_of(scalars[middle:])


def global_norm(updates: Tree) -> Any:
    """The Euclidean norm of all leaves together, a float32 scalar; 0.0 for an empty tree.

    Squares are summed after a division by the largest magnitude, so that neither 1e30 nor 1e-30 is lost.

    >>> float(global_norm({"a": fnp.asarray([3.0]), "b": fnp.asarray([4.0])}))
    5.0
    """
    return scaled_norm(updates, each=False).value


def clip_with_norm(grads: Tree, max_norm: Scalar) -> tuple[Tree, Any]:
    """The gradients times ``min(1, max_norm / (norm + 1e-6))``, and their global norm before that.

    The factor is exact also where the norm itself overflows float32. ``max_norm`` may be an array, so that it can be
    changed without a retrace.

    >>> clipped, norm = clip_with_norm(fnp.asarray([3.0, 4.0]), 1.0)
    >>> float(norm), round(float(clipped[0]), 4)
    (5.0, 0.6)
    """
    require("clip_with_norm", "(0, inf)", max_norm=max_norm)
    norm = scaled_norm(grads, each=False)
    factor = norm.factor(max_norm)
    return tree.map(lambda x: scaled(factor, x), grads), norm.value


def clip_by_global_norm(max_norm: Scalar) -> Optimizer:
    """Scale all gradients by ``min(1, max_norm / (norm + 1e-6))`` with ``norm`` their ``global_norm``.

    That is ggmlR's and PyTorch's factor. optax has ``max_norm / norm`` when the norm is larger and no 1e-6; the two
    differ by a relative 1e-6 / norm. Raises ValueError unless ``max_norm`` is positive and finite.

    >>> updates, _ = clip_by_global_norm(1.0).update(fnp.asarray([3.0, 4.0]), ())
    >>> [round(float(u), 4) for u in updates]
    [0.6, 0.8]
    """
    require("clip_by_global_norm", "(0, inf)", max_norm=max_norm)
    return stateless(lambda grads, params: clip_with_norm(grads, max_norm)[0])


def clip_by_block_rms(threshold: Scalar) -> Optimizer:
    """Divide each leaf by ``max(1, rms / threshold)`` with ``rms`` its root mean square.

    Part of Adafactor (Shazeer and Stern 2018, arXiv:1804.04235).

    >>> updates, _ = clip_by_block_rms(1.0).update(fnp.asarray([2.0, 2.0]), ())
    >>> [float(u) for u in updates]
    [1.0, 1.0]
    """
    require("clip_by_block_rms", "(0, inf)", threshold=threshold)

    def clipped(x: Any) -> Any:
        rms = fnp.sqrt(fnp.mean(fnp.square(x)))
        return x / cast(fnp.maximum(1.0, rms / threshold), x.dtype)

    return stateless(lambda grads, params: tree.map(clipped, grads))


def unitwise_norm(x: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """The norm of each output unit, with the reduced axes kept as 1.

    Scalars and vectors have one norm; matrices and three axes reduce the first, convolution kernels (spatial axes,
    inputs, outputs) all but the last. ``axis`` overrides that.

    >>> unitwise_norm(fnp.ones((4, 2))).shape
    (1, 2)
    """
    if axis is None:
        rank = sum(size != 1 for size in x.shape)
        if rank > 1 and not 2 <= x.ndim <= 5:
            raise ValueError(f"unitwise_norm: at most 5 axes are known, got shape {x.shape}; pass axis")
        axis = None if rank <= 1 else (0,) if x.ndim <= 3 else tuple(range(x.ndim - 1))
    return fnp.sqrt(fnp.sum(fnp.square(x), axis=axis, keepdims=True))


def adaptive_grad_clip(clipping: Scalar, eps: Scalar = 1e-3, axis: int | tuple[int, ...] | None = None) -> Optimizer:
    """Scale each unit's gradient down to ``clipping * max(norm of the unit's weights, eps)``.

    Brock et al. 2021, arXiv:2102.06171. ``update`` needs the parameters.

    >>> opt = adaptive_grad_clip(0.5)
    >>> updates, _ = opt.update(fnp.asarray([3.0, 4.0]), (), fnp.asarray([2.0, 0.0]))
    >>> [round(float(u), 4) for u in updates]
    [0.6, 0.8]
    """
    require("adaptive_grad_clip", "(0, inf)", clipping=clipping)
    require("adaptive_grad_clip", "[0, inf)", eps=eps)

    def clipped(grad: Any, param: Any) -> Any:
        norm = unitwise_norm(grad, axis)
        limit = clipping * fnp.maximum(unitwise_norm(param, axis), eps)
        factor = fnp.where(norm < limit, 1.0, limit / fnp.maximum(norm, 1e-6))
        return grad * cast(factor, grad.dtype)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        require_params("adaptive_grad_clip", params)
        return tree.map(clipped, grads, params), state

    return Optimizer(identity().init, update)


def per_example_global_norm_clip(grads: Tree, l2_norm_clip: Scalar) -> tuple[Tree, Any]:
    """Clip each example's gradient to a global norm and add them up; also the number that were clipped.

    Every leaf has the examples along axis 0, as ``vmap(grad(loss), (None, 0))`` gives them. The factor of an example
    is ``min(1, l2_norm_clip / norm)``. Differentially private training adds noise to the sum (Abadi et al. 2016,
    arXiv:1607.00133).

    >>> total, count = per_example_global_norm_clip(fnp.asarray([[3.0, 4.0], [0.1, 0.0]]), 1.0)
    >>> [round(float(x), 4) for x in total], int(count)
    ([0.7, 0.8], 1)
    """
    require("per_example_global_norm_clip", "(0, inf)", l2_norm_clip=l2_norm_clip)
    shapes = [x.shape for x in tree.leaves(grads)]
    if not shapes or any(len(shape) < 1 or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(
            "per_example_global_norm_clip: every leaf needs the same number of examples along axis 0, "
            f"got shapes {shapes}; take per-example gradients with vmap"
        )
    flat = [fnp.reshape(x, (x.shape[0], math.prod(x.shape[1:]))) for x in tree.leaves(grads)]
    scale = reduce(fnp.maximum, [fnp.max(fnp.abs(x), axis=1) for x in flat])
    scale = fnp.where(scale < math.inf, fnp.clip(scale, _TINY, _HUGE), 1.0)
    norm = fnp.sqrt(add_all([fnp.sum(fnp.square(x / scale[:, None]), axis=1) for x in flat]))
    ratio = l2_norm_clip / scale / fnp.maximum(norm, _TINY)
    factor = fnp.minimum(1.0, ratio)
    total = tree.map(lambda x: fnp.tensordot(cast(factor, x.dtype), x, axes=1), grads)
    return total, fnp.sum(cast(ratio < 1.0, fnp.int32))
