"""Muon: momentum whose matrices are made orthogonal by a Newton-Schulz iteration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.optim.aliases import adamw
from funcgrad.optim.base import (
    Optimizer,
    Scalar,
    ScalarOrSchedule,
    State,
    Tree,
    bias_correction,
    cast,
    moment,
    require,
    require_int,
    safe_increment,
    scaled,
    stateless,
    unzip_map,
    zero_count,
    zeros_like,
)
from funcgrad.optim.combine import MaskedNode, chain, is_function, partition
from funcgrad.optim.scaling import add_decayed_weights, scale_by_learning_rate

__all__ = ["MuonDimensionNumbers", "MuonState", "muon", "orthogonalize_via_newton_schulz", "scale_by_muon"]

# Jordan et al. 2024, Muon; the second set is that of Dion (Ahn et al. 2025, arXiv:2504.05295).
_COEFFICIENTS: dict[str, Any] = {
    "standard": (3.4445, -4.7750, 2.0315),
    "dion": (
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
}
_PRECONDITIONINGS = ("frobenius", "spectral", "aol", "schatten")


class MuonDimensionNumbers(NamedTuple):
    """Which axes of a weight are its inputs and its outputs; the others are a batch of matrices.

    >>> MuonDimensionNumbers()
    MuonDimensionNumbers(reduction_axis=0, output_axis=1)
    """

    reduction_axis: Sequence[int] | int = 0
    output_axis: Sequence[int] | int = 1


class MuonState(NamedTuple):
    """Count of updates (int32) and the momentum."""

    count: Any
    mu: Tree


def _axes(x: Any, numbers: MuonDimensionNumbers) -> tuple[tuple[int, ...], tuple[int, ...]]:
    def normal(axis: Sequence[int] | int) -> tuple[int, ...]:
        return tuple(a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis))

    reduction, output = normal(numbers.reduction_axis), normal(numbers.output_axis)
    if set(reduction) & set(output):
        raise ValueError(f"muon: reduction and output axes must differ, got {numbers} for shape {x.shape}")
    return reduction, output


def _sizes(x: Any, numbers: MuonDimensionNumbers) -> tuple[int, int]:
    reduction, output = _axes(x, numbers)
    return math.prod(x.shape[a] for a in reduction), math.prod(x.shape[a] for a in output)


def _transposed(x: Any) -> Any:
    return fnp.swapaxes(x, -1, -2)


def _step(x: Any, coefficients: Sequence[float], preconditioning: str, eps: Scalar) -> Any:
    """One step ``a x + (b A + c A A) x`` with ``A = x x'``, after a first rescaling when one is asked for."""
    a, b, c = coefficients
    gram = x @ _transposed(x)
    if preconditioning in ("aol", "schatten"):
        if preconditioning == "aol":
            size = fnp.sum(fnp.abs(gram), axis=-1, keepdims=True)
        else:
            size = fnp.sqrt(fnp.sum(fnp.square(gram), axis=(-2, -1), keepdims=True))
        scale = 1.0 / fnp.sqrt(fnp.maximum(size, eps))
        x, gram = x * scale, gram * scale * _transposed(scale)
    return a * x + (b * gram + c * (gram @ gram)) @ x


def orthogonalize_via_newton_schulz(
    x: Any,
    ns_coeffs: Any = _COEFFICIENTS["standard"],
    ns_steps: int = 5,
    preconditioning: str = "frobenius",
    eps: Scalar = 1e-8,
    dimension_numbers: MuonDimensionNumbers | None = None,
) -> Any:
    """A matrix with nearly the singular vectors of ``x`` and singular values near 1.

    ``ns_coeffs`` are three numbers, or three for each step. The matrix is first divided by its Frobenius norm
    ("frobenius"), its largest singular value ("spectral"), or rescaled in the first step by the row sums ("aol") or
    the norm ("schatten") of its Gram matrix.

    >>> y = orthogonalize_via_newton_schulz(fnp.asarray([[3.0, 0.0], [0.0, 0.5]]))
    >>> bool(0.6 < float(y[1, 1]) < 1.3)
    True
    """
    if preconditioning not in _PRECONDITIONINGS:
        raise ValueError(f"muon: preconditioning must be one of {_PRECONDITIONINGS}, got {preconditioning!r}")
    if dimension_numbers is None:
        if x.ndim != 2:
            raise ValueError(f"muon: a matrix or dimension_numbers are required, got shape {x.shape}")
        dimension_numbers = MuonDimensionNumbers()
    reduction, output = _axes(x, dimension_numbers)
    batch = tuple(a for a in range(x.ndim) if a not in reduction + output)
    order = batch + reduction + output
    shape = tuple(x.shape[a] for a in order)
    fan_in, fan_out = _sizes(x, dimension_numbers)
    y = fnp.reshape(fnp.transpose(x, order), (math.prod(shape[: len(batch)]), fan_in, fan_out))
    y = _transposed(y) if fan_in > fan_out else y
    if preconditioning == "frobenius":
        y = y / (fnp.sqrt(fnp.sum(fnp.square(y), axis=(-2, -1), keepdims=True)) + eps)
    elif preconditioning == "spectral":
        y = y / (fnp.linalg.norm(y, ord=2, axis=(-2, -1), keepdims=True) + eps)
    for i, coefficients in enumerate(_rows(ns_coeffs, ns_steps)):
        y = _step(y, coefficients, preconditioning if i == 0 else "none", eps)
    y = _transposed(y) if fan_in > fan_out else y
    return fnp.transpose(fnp.reshape(y, shape), tuple(sorted(range(x.ndim), key=lambda a: order[a])))


def _rows(ns_coeffs: Any, ns_steps: int) -> list[Sequence[float]]:
    """The three coefficients of each step."""
    require_int("muon", 1, ns_steps=ns_steps)
    if isinstance(ns_coeffs, str):
        if ns_coeffs not in _COEFFICIENTS:
            raise ValueError(f"muon: ns_coeffs must be one of {sorted(_COEFFICIENTS)}, got {ns_coeffs!r}")
        ns_coeffs = _COEFFICIENTS[ns_coeffs]
    rows = [ns_coeffs] * ns_steps if not hasattr(ns_coeffs[0], "__len__") else list(ns_coeffs)
    if any(len(row) != 3 for row in rows):
        raise ValueError(f"muon: ns_coeffs must have three numbers, or three for each step, got {ns_coeffs!r}")
    if len(rows) < ns_steps:
        raise ValueError(f"muon: ns_coeffs must have a row for each of {ns_steps} steps, got {len(rows)}")
    return rows[-ns_steps:]


def scale_by_muon(
    ns_coeffs: Any = _COEFFICIENTS["standard"],
    ns_steps: int = 5,
    beta: Scalar = 0.95,
    eps: Scalar = 1e-8,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
    adaptive: bool = False,
    preconditioning: str = "frobenius",
    weight_dimension_numbers: Any = None,
) -> Optimizer:
    """Momentum, made orthogonal (Jordan et al. 2024, Muon).

    With ``adaptive`` the result is multiplied by its inner product with the momentum (arXiv:2409.20325).

    >>> opt = scale_by_muon()
    >>> updates, state = opt.update(fnp.ones((2, 3)), opt.init(fnp.zeros((2, 3))))
    >>> updates.shape, int(state.count)
    ((2, 3), 1)
    """
    require("scale_by_muon", "[0, 1)", beta=beta)
    rows = _rows(ns_coeffs, ns_steps)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        count = safe_increment(state.count)
        now, ahead = bias_correction(beta, count, grads), bias_correction(beta, count + 1, grads)

        def leaf(g: Any, mu: Any) -> tuple[Any, Any]:
            m = moment(beta, g, cast(mu, g.dtype))
            hat = scaled(beta * ahead, m) + scaled((1.0 - beta) * now, g) if nesterov else scaled(now, m)
            return hat, cast(m, mu.dtype)

        def direction(numbers: Any, hat: Any) -> Any:
            if isinstance(numbers, MaskedNode):
                return hat
            step = orthogonalize_via_newton_schulz(hat, rows, ns_steps, preconditioning, eps, numbers)
            return scaled(fnp.sum(hat * step), step) if adaptive else step

        hats, mu = unzip_map("scale_by_muon", leaf, grads, state.mu)
        numbers = _numbers_tree(weight_dimension_numbers, grads)
        return tree.map(direction, numbers, hats, is_leaf=_is_numbers), MuonState(count, mu)

    return Optimizer(lambda params: MuonState(zero_count(), zeros_like(params, mu_dtype)), update)


def _is_numbers(x: Any) -> bool:
    return isinstance(x, MuonDimensionNumbers | MaskedNode)


def _numbers_tree(numbers: Any, values: Tree) -> Tree:
    numbers = numbers(values) if is_function(numbers) else numbers
    if numbers is None or isinstance(numbers, MuonDimensionNumbers):
        return tree.map(lambda x: numbers or MuonDimensionNumbers(), values)
    return numbers


def _scale_by_shape(weight_dimension_numbers: Any, consistent_rms: Scalar | None) -> Optimizer:
    """Steps for layers of any width: ``sqrt(max(1, out / in))``, or ``sqrt(max(in, out)) * consistent_rms``."""

    def leaf(numbers: Any, x: Any) -> Any:
        if isinstance(numbers, MaskedNode):
            return x
        fan_in, fan_out = _sizes(x, numbers)
        if consistent_rms is None:
            return scaled(math.sqrt(max(1.0, fan_out / fan_in)), x)
        return scaled(math.sqrt(max(fan_in, fan_out)) * consistent_rms, x)

    def apply(grads: Tree, params: Tree) -> Tree:
        return tree.map(leaf, _numbers_tree(weight_dimension_numbers, grads), grads, is_leaf=_is_numbers)

    return stateless(apply)


def muon(
    learning_rate: ScalarOrSchedule,
    ns_coeffs: Any = _COEFFICIENTS["standard"],
    ns_steps: int = 5,
    beta: Scalar = 0.95,
    eps: Scalar = 1e-8,
    weight_decay: ScalarOrSchedule = 0.0,
    weight_decay_mask: Any = None,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
    adaptive: bool = False,
    preconditioning: str = "frobenius",
    adam_b1: Scalar = 0.9,
    adam_b2: Scalar = 0.999,
    adam_eps_root: Scalar = 0.0,
    adam_weight_decay: ScalarOrSchedule = 0.0,
    adam_learning_rate: ScalarOrSchedule | None = None,
    muon_weight_dimension_numbers: Tree | Callable[[Tree], Tree] | None = None,
    consistent_rms: Scalar | None = None,
) -> Optimizer:
    """Muon for matrices and AdamW for every other leaf (Jordan et al. 2024).

    ``muon_weight_dimension_numbers`` is a tree, or a function of the parameters that gives one, with
    ``MuonDimensionNumbers`` for the leaves that Muon takes and None for the others; without it Muon takes the leaves
    of two axes. The learning rate of AdamW is ``adam_learning_rate``, by default the same.

    >>> opt = muon(0.1)
    >>> params = {"w": fnp.ones((2, 3)), "b": fnp.ones(3)}
    >>> updates, _ = opt.update(params, opt.init(params), params)
    >>> round(float(updates["b"][0]), 2)
    -0.15
    """

    def numbers(params: Tree) -> Tree:
        given = muon_weight_dimension_numbers
        if given is None:
            return tree.map(lambda x: MuonDimensionNumbers() if _matrix(x) else MaskedNode(), params, is_leaf=_masked)
        given = given(params) if is_function(given) else given
        return tree.map(_spread, given, params, is_leaf=lambda x: x is None or _is_numbers(x))

    def labels(params: Tree) -> Tree:
        return tree.map(lambda n: "adam" if isinstance(n, MaskedNode) else "muon", numbers(params), is_leaf=_is_numbers)

    def matrices() -> Optimizer:
        return chain(
            scale_by_muon(
                ns_coeffs,
                ns_steps,
                beta,
                eps,
                mu_dtype,
                nesterov=nesterov,
                adaptive=adaptive,
                preconditioning=preconditioning,
                weight_dimension_numbers=numbers,
            ),
            _scale_by_shape(numbers, consistent_rms),
            add_decayed_weights(weight_decay, weight_decay_mask),
            scale_by_learning_rate(learning_rate),
        )

    rate = learning_rate if adam_learning_rate is None else adam_learning_rate
    others = adamw(rate, adam_b1, adam_b2, eps, adam_eps_root, mu_dtype, adam_weight_decay, nesterov=nesterov)
    return partition({"muon": matrices(), "adam": others}, labels)


def _masked(x: Any) -> bool:
    return isinstance(x, MaskedNode)


def _matrix(x: Any) -> bool:
    return not isinstance(x, MaskedNode) and len(x.shape) == 2


def _spread(numbers: Any, part: Tree) -> Tree:
    """The same numbers for every leaf of a part of the parameters; nothing where there are none."""
    return tree.map(lambda x: MaskedNode() if numbers is None or _masked(x) else numbers, part, is_leaf=_masked)
