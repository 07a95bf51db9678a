"""Functions that close over values: those made arguments, gradients given by a closure, constants computed now."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from funcgrad import dtypes, tree
from funcgrad.passes.simplify import dead_code
from funcgrad.trace import paused, replay, trace
from funcgrad.transforms.custom import custom_vjp
from funcgrad.transforms.flat import FlatFunction, abstract_leaves, materialize, values_of

__all__ = ["closure_convert", "custom_gradient", "ensure_compile_time_eval"]


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function without closure and the float arrays that ``fun`` closes over, to be given as last arguments.

    The function takes arguments of the types of the examples.  Other arrays that ``fun`` closes over stay in it.

    >>> w = fnp.asarray(3.0)
    >>> f, closed = fg.closure_convert(lambda x: w * x, 1.0)
    >>> f(2.0, *closed), f(2.0, 10.0)
    (Array(6., dtype=float32), Array(20., dtype=float32))
    """
    what = "closure_convert"
    avals, treedef = abstract_leaves(example_args, what)
    flat = FlatFunction(fun, treedef, what)
    traced = trace(flat, avals, name=what)
    graph, captured = dead_code(traced.graph), list(traced.captured)
    lifted = [i for i, x in enumerate(captured) if dtypes.is_float(x.aval.dtype)]

    def converted(*args: Any) -> Any:
        own, closed = args[: len(example_args)], args[len(example_args) :]
        values, found = values_of(own, what)
        if found != treedef or len(closed) != len(lifted):
            raise TypeError(f"closure_convert: {len(example_args)} arguments of the examples' structure are required")
        full = list(captured)
        for i, x in zip(lifted, values_of(tuple(closed), what)[0], strict=True):
            full[i] = x
        outs = replay(graph, [*full, *values])
        return tree.unflatten(flat.out_tree, [materialize(x) for x in outs])

    return converted, [captured[i] for i in lifted]


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function its own gradient: ``fun(*args)`` returns the result and a function from cotangent to cotangents.

    The second function may close over the arguments and what was computed from them; the forward half is computed
    again where the gradient is.  With one argument it returns one cotangent, otherwise a tuple.

    >>> @fg.custom_gradient
    ... def f(x):
    ...     return x**2, lambda ct: ct * 10 * x
    >>> f(3.0), fg.grad(f)(3.0)
    (9.0, Array(30., dtype=float32))
    """

    @custom_vjp
    def primal(*args: Any) -> Any:
        return fun(*args)[0]

    def backward(args: tuple[Any, ...], ct: Any) -> Sequence[Any]:
        out = fun(*args)[1](ct)
        return (out,) if len(args) == 1 else tuple(out)

    primal.defvjp(lambda *args: (fun(*args)[0], args), backward)
    return functools.wraps(fun)(lambda *args: primal(*args))


def ensure_compile_time_eval() -> AbstractContextManager[None]:
    """Return a context in which operations on known values are computed now, also while a function is being traced.

    Its results can decide shapes and branches of the traced function.

    >>> @fg.jit
    ... def f(x):
    ...     with fg.ensure_compile_time_eval():
    ...         n = int(fnp.sum(fnp.ones(3)))
    ...     return fnp.full(n, x)
    >>> f(2.0)
    Array([2., 2., 2.], dtype=float32)
    """
    return paused()
