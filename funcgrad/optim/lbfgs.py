"""The limited-memory BFGS method."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import lax, tree
from funcgrad.optim.base import (
    Optimizer,
    ScalarOrSchedule,
    State,
    Tree,
    cast,
    identity,
    require_int,
    require_params,
    safe_increment,
    split_like,
    wide_dtype,
    zero_count,
)
from funcgrad.optim.combine import chain
from funcgrad.optim.linesearch import (
    ScaleByBacktrackingLinesearchState,
    ScaleByZoomLinesearchState,
    scale_by_zoom_linesearch,
)
from funcgrad.optim.scaling import scale, scale_by_learning_rate
from funcgrad.transforms import value_and_grad

__all__ = ["ScaleByLBFGSState", "lbfgs", "scale_by_lbfgs", "value_and_grad_from_state"]


class ScaleByLBFGSState(NamedTuple):
    """Count of updates (int32) and, for n parameters in all, vectors (n,) and memories (memory_size, n), oldest first.

    ``params`` and ``updates`` are those of the last call; ``weights_memory`` holds ``1 / (dw . du)``.
    """

    count: Any
    params: Any
    updates: Any
    diff_params_memory: Any
    diff_updates_memory: Any
    weights_memory: Any


def _vector(values: Tree) -> Any:
    dtype = wide_dtype(values)
    leaves = [cast(fnp.reshape(x, (-1,)), dtype) for x in tree.leaves(values)]
    return fnp.concatenate(leaves) if leaves else fnp.zeros((0,))


def _append(memory: Any, row: Any) -> Any:
    return fnp.concatenate([memory[1:], row[None]])


def scale_by_lbfgs(memory_size: int = 10, scale_init_precond: bool = True) -> Optimizer:
    """The gradient times an approximate inverse Hessian made from the last ``memory_size`` steps.

    The two-loop recursion of Nocedal and Wright, Numerical Optimization, algorithm 7.4. With ``scale_init_precond``
    it starts from ``(dw . du) / (du . du)`` times the identity, and at the first step from ``min(1, 1 / |g|)``.
    ``update`` needs the parameters.

    >>> opt = scale_by_lbfgs()
    >>> params = fnp.asarray([1.0, 2.0])
    >>> updates, state = opt.update(fnp.asarray([3.0, 4.0]), opt.init(params), params)
    >>> [round(float(u), 4) for u in updates]
    [0.6, 0.8]
    """
    require_int("scale_by_lbfgs", 1, memory_size=memory_size)

    def init(params: Tree) -> State:
        size = sum(math.prod(x.shape) for x in tree.leaves(params))
        # every leaf its own array, so that each can be donated
        shapes = ((size,), (size,), (memory_size, size), (memory_size, size), (memory_size,))
        w, g, dw, du, weights = (fnp.zeros(shape, dtype=wide_dtype(params)) for shape in shapes)
        return ScaleByLBFGSState(zero_count(), w, g, dw, du, weights)

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        require_params("scale_by_lbfgs", params)
        w, g = _vector(params), _vector(grads)
        later = state.count > 0
        dw, du = fnp.where(later, w - state.params, 0.0), fnp.where(later, g - state.updates, 0.0)
        product = fnp.sum(dw * du)
        weight = fnp.where(product == 0.0, 0.0, 1.0 / fnp.where(product == 0.0, 1.0, product))
        new_state = ScaleByLBFGSState(
            safe_increment(state.count),
            w,
            g,
            _append(state.diff_params_memory, dw),
            _append(state.diff_updates_memory, du),
            _append(state.weights_memory, weight),
        )
        start = _first_scale(later, product, du, g) if scale_init_precond else 1.0
        return split_like(_two_loops(g, new_state, start, memory_size), grads), new_state

    return Optimizer(init, update)


def _first_scale(later: Any, product: Any, du: Any, g: Any) -> Any:
    square = fnp.sum(fnp.square(du))
    ratio = fnp.where(square > 0.0, product / fnp.where(square > 0.0, square, 1.0), 1.0)
    norm = fnp.sqrt(fnp.sum(fnp.square(g)))
    return fnp.where(later, ratio, fnp.minimum(1.0, 1.0 / fnp.where(norm > 0.0, norm, 1.0)))


def _two_loops(vector: Any, state: ScaleByLBFGSState, start: Any, size: int) -> Any:
    rows = [(state.diff_params_memory[i], state.diff_updates_memory[i], state.weights_memory[i]) for i in range(size)]
    alphas = []
    for dw, du, weight in reversed(rows):
        alphas.append(weight * fnp.sum(dw * vector))
        vector = vector - alphas[-1] * du
    vector = start * vector
    for (dw, du, weight), alpha in zip(rows, reversed(alphas), strict=True):
        vector = vector + (alpha - weight * fnp.sum(du * vector)) * dw
    return vector


_DEFAULT_LINESEARCH = scale_by_zoom_linesearch(max_linesearch_steps=20, initial_guess_strategy="one")


def lbfgs(
    learning_rate: ScalarOrSchedule | None = None,
    memory_size: int = 10,
    scale_init_precond: bool = True,
    linesearch: Optimizer | None = _DEFAULT_LINESEARCH,
) -> Optimizer:
    """L-BFGS with a line search that satisfies the strong Wolfe conditions (Liu and Nocedal 1989).

    With a line search ``update`` needs the value, the gradient and the function at the current parameters:
    ``update(grad, state, params, value=value, grad=grad, value_fn=f)``; ``value_and_grad_from_state`` takes the
    first two from the state, where the search left them. ``linesearch=None`` takes full steps, or steps of
    ``learning_rate``.

    >>> from funcgrad import value_and_grad
    >>> f = lambda x: fnp.sum((x - 1.0) ** 2 * fnp.asarray([1.0, 10.0]))
    >>> opt = lbfgs()
    >>> params = fnp.zeros(2)
    >>> state = opt.init(params)
    >>> for _ in range(8):
    ...     value, grad = value_and_grad(f)(params)
    ...     updates, state = opt.update(grad, state, params, value=value, grad=grad, value_fn=f)
    ...     params = params + updates
    >>> [round(float(x), 3) for x in params]
    [1.0, 1.0]
    """
    steps = scale(-1.0) if learning_rate is None else scale_by_learning_rate(learning_rate)
    return chain(
        scale_by_lbfgs(memory_size, scale_init_precond), steps, identity() if linesearch is None else linesearch
    )


def value_and_grad_from_state(value_fn: Callable[..., Any]) -> Callable[..., tuple[Any, Tree]]:
    """``value_and_grad`` that takes both from the optimizer's state when a line search left them there.

    Call the result as ``f(params, *args, state=state, **kwargs)``; at the first step, when the state holds no finite
    value, the function is evaluated.

    >>> f = lambda x: fnp.sum(x ** 2)
    >>> opt = scale_by_zoom_linesearch(20)
    >>> x = fnp.asarray([3.0])
    >>> value, grad = value_and_grad_from_state(f)(x, state=opt.init(x))
    >>> float(value), float(grad[0])
    (9.0, 6.0)
    """

    def stored(params: Tree, *args: Any, state: State, **kwargs: Any) -> tuple[Any, Tree]:
        part = _find(state)
        if part is None or part.grad is None:
            raise ValueError(
                "value_and_grad_from_state: the state must hold a value and a gradient; "
                "use scale_by_zoom_linesearch, or scale_by_backtracking_linesearch with store_grad=True"
            )

        def anew(p: Tree) -> tuple[Any, Tree]:
            value, grad = value_and_grad(value_fn)(p, *args, **kwargs)
            return cast(value, part.value.dtype), grad

        value, grad = lax.cond(fnp.isfinite(part.value), lambda p: (part.value, part.grad), anew, params)
        return value, grad

    return stored


def _find(state: State) -> Any:
    """The state of a line search, somewhere in the state of a chain."""
    if isinstance(state, ScaleByZoomLinesearchState | ScaleByBacktrackingLinesearchState):
        return state
    children = state.values() if isinstance(state, dict) else state if isinstance(state, tuple | list) else ()
    return next((found for child in children if (found := _find(child)) is not None), None)
