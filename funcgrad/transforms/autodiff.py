"""Derivatives: grad, value_and_grad, vjp, jvp, linearize, linear_transpose.

Names, argument order and meaning follow JAX.  Outside ``jit`` Python may branch on values inside the function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import dtypes, tree
from funcgrad.array import as_value
from funcgrad.errors import DTypeError, ShapeError, TreeError, message
from funcgrad.ir import Literal
from funcgrad.passes.forward import jvp_graph
from funcgrad.passes.reverse import split, vjp_graph
from funcgrad.passes.simplify import dead_code
from funcgrad.primitive import zeros
from funcgrad.trace import Traced, replay, trace
from funcgrad.transforms.flat import (
    FlatFunction,
    Naming,
    abstract_leaves,
    auxiliary,
    avals_of,
    label,
    materialize,
    split_args,
    typed,
    values_of,
)

__all__ = ["grad", "linear_transpose", "linearize", "value_and_grad", "vjp", "jvp"]


def check_floats(values: Sequence[Any], args: Any, what: str, naming: Naming) -> None:
    """Raise DTypeError unless all leaves can be differentiated."""
    for i, v in enumerate(values):
        if not dtypes.is_float(v.aval.dtype):
            got = f"{v.aval} at {naming(tree.leaves_with_path(args)[i][0])}"
            way_out = "convert it with astype(float), or leave it out of argnums"
            raise DTypeError(message(what, "differentiated leaves must be floats", got, way_out))


def check_real(holomorphic: bool, what: str) -> None:
    """Raise NotImplementedError for a derivative by complex numbers."""
    if holomorphic:
        raise NotImplementedError(message(what, "holomorphic must be False: there are no complex numbers", "True"))


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """Return a function that gives ``fun``'s value and its gradient by the arguments at ``argnums``.

    ``fun`` returns a float scalar, or with ``has_aux`` a pair of it and any tree, which is passed through: the result
    is then ``((value, aux), grad)``.  The gradient has the structure, shapes and dtypes of the arguments.

    Raises ShapeError for a value that is no scalar, DTypeError for integer leaves (``allow_int`` gives them zeros);
    ``holomorphic`` must be False.

    >>> value_and_grad(lambda x: x * x)(3.0)
    (Array(9., dtype=float32), Array(6., dtype=float32))
    """
    what = label("grad", fun)
    check_real(holomorphic, what)

    @functools.wraps(fun)
    def value_and_grad_of(*args: Any, **kwargs: Any) -> Any:
        args_in, put, naming = split_args(args, argnums, what)
        values, treedef = values_of(args_in, what, naming)
        if not allow_int:
            check_floats(values, args_in, what, naming)
        flat = FlatFunction(lambda *xs: _loss_first(fun(*put(xs), **kwargs), has_aux, what), treedef, what, naming)
        traced = trace(flat, avals_of(values), values, name=what)
        wrt = [dtypes.is_float(v.aval.dtype) for v in values]
        outs, grads = _value_and_grads(traced, values, wrt)
        it = iter(grads)
        full = [next(it) if w else zeros(v.aval) for v, w in zip(values, wrt, strict=True)]
        gradient = tree.unflatten(treedef, full)
        value = tree.unflatten(flat.out_tree, outs)
        result = gradient[0] if isinstance(argnums, int) else gradient
        return (value if has_aux else value[0]), result

    return value_and_grad_of


def _loss_first(out: Any, has_aux: bool, what: str) -> Any:
    if has_aux and not (isinstance(out, tuple) and len(out) == 2):
        raise TreeError(message(what, "has_aux=True needs a pair (value, aux)", type(out).__name__))
    loss, aux = out if has_aux else (out, None)
    try:
        value = as_value(loss)
    except (TypeError, ValueError):
        got = f"{type(loss).__name__}"
        raise TreeError(
            message(what, "the function must return a scalar", got, "has_aux=True for more results")
        ) from None
    if value.aval.shape:
        way_out = "reduce it with .mean() or .sum(), or use jacrev"
        raise ShapeError(message(what, "the function must return a scalar", str(value.aval), way_out))
    if not dtypes.is_float(value.aval.dtype):
        raise DTypeError(message(what, "the function must return a float", str(value.aval)))
    return (value, auxiliary(aux))


def _value_and_grads(traced: Traced, values: Sequence[Any], wrt: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """The outputs, the first of which is a scalar to be differentiated, and the gradients by the marked arguments."""
    graph = traced.graph
    n = len(graph.outputs)
    full = [False] * len(traced.captured) + list(wrt)
    joint = dead_code(vjp_graph(graph, full, [True] + [False] * (n - 1)))
    one = Literal(1, graph.outputs[0].aval.dtype)
    results = [materialize(r) for r in replay(joint, [*traced.captured, *values, one], traced.known)]
    return results[:n], results[n:]


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """Return a function that gives ``fun``'s gradient; with ``has_aux`` the pair (gradient, aux).

    See :func:`value_and_grad` for the arguments and errors.

    >>> grad(lambda x: x**3)(2.0)
    Array(12., dtype=float32)
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @functools.wraps(fun)
    def grad_of(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return grad_of


# -- vjp ---------------------------------------------------------------------------------------------------------
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return ``fun(*primals)`` and a function from a cotangent of the result to the cotangents of the primals.

    The forward values that the backward half needs are computed once and kept.  With ``has_aux`` returns (value, vjp
    function, aux).

    >>> y, pull = vjp(lambda x: x * x, 3.0)
    >>> pull(1.0)
    (Array(6., dtype=float32),)
    """
    what = label("vjp", fun)
    values, treedef = values_of(primals, what)
    flat = FlatFunction(lambda *xs: _with_aux(fun(*xs), has_aux, what), treedef, what)
    traced = trace(flat, avals_of(values), values, name=what)
    graph = traced.graph
    out_def, aux_def = flat.out_tree.children
    num_out = out_def.num_leaves
    wrt = [dtypes.is_float(v.aval.dtype) for v in values]
    with_ct = [i < num_out and dtypes.is_float(a.dtype) for i, a in enumerate(graph.out_avals)]
    joint = dead_code(vjp_graph(graph, [False] * len(traced.captured) + wrt, with_ct))
    parts = split(joint, sum(with_ct), len(graph.outputs))
    args = [*traced.captured, *values]
    results = replay(parts.early, args, traced.known)
    outs = [materialize(r) for r in results[: len(graph.outputs)]]
    at = dict(zip(parts.early.inputs, args, strict=True)) | dict(
        zip(parts.residuals, results[len(graph.outputs) :], strict=True)
    )
    crossing = [at[v] for v in parts.crossing]
    in_avals, out_avals, late = avals_of(values), graph.out_avals[:num_out], parts.late

    # What is returned holds no more than what crosses: neither the primals nor the trace.
    def vjp_function(ct: Any) -> tuple[Any, ...]:
        cts = _cotangents(ct, out_def, out_avals, what)
        grads = iter([materialize(g) for g in replay(late, [*crossing, *cts])])
        full = [next(grads) if w else zeros(a) for a, w in zip(in_avals, wrt, strict=True)]
        result: tuple[Any, ...] = tree.unflatten(treedef, full)
        return result

    value = tree.unflatten(out_def, outs[:num_out])
    if has_aux:
        return value, vjp_function, tree.unflatten(aux_def, outs[num_out:])
    return value, vjp_function


def _with_aux(out: Any, has_aux: bool, what: str) -> tuple[Any, Any]:
    if not has_aux:
        return out, None
    if not (isinstance(out, tuple) and len(out) == 2):
        raise TreeError(message(what, "has_aux=True needs a pair (value, aux)", type(out).__name__))
    return out[0], auxiliary(out[1])


def _cotangents(ct: Any, out_def: tree.TreeDef, avals: Sequence[Any], what: str) -> list[Any]:
    cts = []
    for leaf, aval in zip(out_def.flatten_up_to(ct, what), avals, strict=True):
        if dtypes.is_float(aval.dtype):
            cts.append(typed(leaf, aval, f"{what}: cotangent"))
    return cts


# -- jvp ---------------------------------------------------------------------------------------------------------
def _push_graph(fun: Callable[..., Any], primals: Sequence[Any], has_aux: bool, what: str, joint: bool) -> Any:
    values, treedef = values_of(tuple(primals), what)
    flat = FlatFunction(lambda *xs: _with_aux(fun(*xs), has_aux, what), treedef, what)
    traced = trace(flat, avals_of(values), values, name=what)
    wrt = [dtypes.is_float(v.aval.dtype) for v in values]
    graph, _ = jvp_graph(traced.graph, [False] * len(traced.captured) + wrt, joint)
    return values, treedef, flat.out_tree, traced, wrt, graph


def _tangents(
    tangents: Sequence[Any], avals: Sequence[Any], treedef: tree.TreeDef, wrt: Sequence[bool], what: str
) -> list[Any]:
    leaves = treedef.flatten_up_to(tuple(tangents), what)
    return [typed(t, a, f"{what}: tangent") for t, a, w in zip(leaves, avals, wrt, strict=True) if w]


def _spread_tangents(avals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """One tangent per result; zeros for integers."""
    it = iter(tangents)
    return [next(it) if dtypes.is_float(a.dtype) else zeros(a) for a in avals]


def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """Return ``fun(*primals)`` and the derivative in the direction ``tangents``; with ``has_aux`` the aux result too.

    Integer primals have no tangent; whatever stands there is ignored.

    >>> jvp(lambda x: x * x, (3.0,), (1.0,))
    (Array(9., dtype=float32), Array(6., dtype=float32))
    """
    what = label("jvp", fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            message(
                what,
                "primals and tangents must be tuples or lists",
                f"{type(primals).__name__} and {type(tangents).__name__}",
            )
        )
    values, treedef, out_tree, traced, wrt, graph = _push_graph(fun, primals, has_aux, what, joint=True)
    ts = _tangents(tangents, avals_of(values), treedef, wrt, what)
    results = [materialize(r) for r in replay(dead_code(graph), [*traced.captured, *values, *ts], traced.known)]
    n = len(traced.graph.outputs)
    out_def, aux_def = out_tree.children
    k = out_def.num_leaves
    value = tree.unflatten(out_def, results[:k])
    tangent = tree.unflatten(out_def, _spread_tangents(traced.graph.out_avals[:k], results[n:]))
    return (value, tangent, tree.unflatten(aux_def, results[k:n])) if has_aux else (value, tangent)


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return ``fun(*primals)`` and its linear approximation there as a function of tangents, evaluated without ``fun``.

    >>> y, push = linearize(lambda x: x * x, 3.0)
    >>> push(2.0)
    Array(12., dtype=float32)
    """
    what = label("linearize", fun)
    values, treedef, out_tree, traced, wrt, graph = _push_graph(fun, primals, has_aux, what, joint=False)
    n = len(traced.graph.outputs)
    parts = split(dead_code(graph), sum(wrt), n)
    args = [*traced.captured, *values]
    results = replay(parts.early, args, traced.known)
    at = dict(zip(parts.early.inputs, args, strict=True)) | dict(zip(parts.residuals, results[n:], strict=True))
    crossing = [at[v] for v in parts.crossing]
    outs = [materialize(r) for r in results[:n]]
    out_def, aux_def = out_tree.children
    k = out_def.num_leaves

    in_avals, out_avals, late = avals_of(values), traced.graph.out_avals[:k], parts.late

    def linear(*tangents: Any) -> Any:  # holds no more than what crosses
        ts = _tangents(tangents, in_avals, treedef, wrt, what)
        pushed = [materialize(r) for r in replay(late, [*crossing, *ts])]
        return tree.unflatten(out_def, _spread_tangents(out_avals, pushed))

    value = tree.unflatten(out_def, outs[:k])
    return (value, linear, tree.unflatten(aux_def, outs[k:])) if has_aux else (value, linear)


def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return the transpose of a linear function, as a function of a cotangent; only the types of ``primals`` matter.

    >>> linear_transpose(lambda x: 3.0 * x, 0.0)(2.0)
    (Array(6., dtype=float32),)
    """
    avals, treedef = abstract_leaves(tuple(primals), label("linear_transpose", fun))
    at_zero = tree.unflatten(treedef, [zeros(a) for a in avals])
    pull: Callable[[Any], tuple[Any, ...]] = vjp(fun, *at_zero)[1]
    return pull
