"""Solutions of linear systems and roots as functions of what the equations depend on: implicit derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from funcgrad import dtypes, tree
from funcgrad.control.linear_solve import LinearSolve, transposed
from funcgrad.errors import DTypeError, TreeError, message
from funcgrad.ir import Graph, Var
from funcgrad.lax.elementwise import stop_gradient
from funcgrad.prims.pointwise import neg
from funcgrad.trace import Traced, bind_all, current_builder, replay, trace
from funcgrad.transforms import closure_convert, custom_jvp, jvp
from funcgrad.transforms.flat import FlatFunction, materialize, name_of, values_of

__all__ = ["custom_linear_solve", "custom_root"]

MatVec = Callable[[Any], Any]


class _System:
    """The graphs of one solve, over one list of values that they close over."""

    def __init__(self, matvec: MatVec, b: Any, what: str):
        self.what, self.matvec = what, matvec
        self.values, self.treedef = values_of((b,), what)
        self.avals = [v.aval for v in self.values]
        if not all(dtypes.is_float(a.dtype) for a in self.avals):
            raise DTypeError(message(what, "b must be floats", ", ".join(map(str, self.avals)), "use astype(float)"))
        self.closed: list[Any] = []
        self.product = self.traced(matvec, "matvec")

    def traced(self, fun: Callable[[Any], Any], role: str) -> Graph:
        """The graph of a function from trees like b to trees like b; learns what it closes over."""
        flat = FlatFunction(fun, self.treedef, f"{self.what}: {role}")
        traced: Traced = trace(flat, self.avals, name=f"{self.what}: {role}", closed=self.closed)
        out = (flat.out_tree, list(traced.graph.out_avals))
        if out != (self.treedef.children[0], self.avals):
            want = f"{', '.join(map(str, self.avals))} in {self.treedef.children[0]}"
            got = f"{', '.join(map(str, out[1]))} in {out[0]}"
            raise TreeError(message(self.what, f"{role} must return what b is: {want}", got))
        self.closed = list(traced.captured)
        return traced.graph

    def widened(self, graph: Graph) -> Graph:
        """The graph with inputs for all that any of the graphs closes over."""
        known = len(graph.inputs) - len(self.avals)
        more = [Var(v.aval) for v in self.closed[known:]]
        inputs = [*graph.inputs[:known], *more, *graph.inputs[known:]]
        return Graph(inputs, graph.eqns, graph.outputs, graph.name)

    def vecmat(self) -> MatVec:
        """The product with the transpose, as a function of trees."""
        closed = self.closed[: len(self.product.inputs) - len(self.avals)]
        graph = transposed(self.product, len(closed))

        def product(x: Any) -> Any:
            values, _ = values_of((x,), f"{self.what}: vecmat")
            return tree.unflatten(self.treedef.children[0], replay(graph, [*closed, *values]))

        return product


def custom_linear_solve(
    matvec: MatVec,
    b: Any,
    solve: Callable[[MatVec, Any], Any],
    transpose_solve: Callable[[MatVec, Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Return ``solve(matvec, b)``, the x with ``matvec(x) = b``, and its derivatives, not those of the solver's steps.

    ``matvec`` is linear and closes over what the system depends on; b and x are trees of float arrays of the same
    structure.  ``transpose_solve(vecmat, b)`` solves the transpose, which reverse mode needs; with ``symmetric=True``
    that is ``solve`` itself.  ``solve`` may loop without a bound (``while_loop``) or be any other function; derivatives
    of every order are further solves.  ``has_aux`` is not supported.

    >>> def solve_by_steps(matvec, b):
    ...     return lax.while_loop(lambda x: abs(matvec(x) - b) > 1e-6, lambda x: x - 0.1 * (matvec(x) - b), 0.0 * b)
    >>> f = lambda a: lax.custom_linear_solve(lambda x: a * x, 6.0, solve_by_steps, symmetric=True)
    >>> f(2.0), grad(f)(2.0), grad(grad(f))(2.0)
    (Array(3.0000, dtype=float32), Array(-1.5000, dtype=float32), Array(1.5000, dtype=float32))
    """
    what = "custom_linear_solve"
    if has_aux:
        raise NotImplementedError(message(what, "has_aux must be False", "True", "solve twice, or return a tree"))
    if current_builder() is None:
        return solve(matvec, b)
    system = _System(matvec, b, what)
    forward = system.traced(lambda v: solve(matvec, v), "solve")
    backward: Graph | None = None
    if symmetric:
        backward = forward
    elif transpose_solve is not None:
        vecmat = system.vecmat()
        backward = system.traced(lambda v: transpose_solve(vecmat, v), "transpose_solve")
    graph, product = system.widened(forward), system.widened(system.product)
    back = graph if symmetric else None if backward is None else system.widened(backward)
    prim = LinearSolve(graph, name_of(matvec), product, back, len(system.closed))
    outs = bind_all(prim, *system.closed, *system.values)
    return tree.unflatten(system.treedef.children[0], [materialize(o) for o in outs])


def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    tangent_solve: Callable[[MatVec, Any], Any],
    has_aux: bool = False,
) -> Any:
    """Return the root x of f that ``solve(f, initial_guess)`` finds, with the derivatives that f(x) = 0 implies.

    f closes over what the root depends on; ``initial_guess`` has no gradient.  ``tangent_solve(g, y)`` solves the
    linear g(x) = y, for scalars ``lambda g, y: y / g(1.0)``; reverse mode transposes it, so that an iterative one goes
    through :func:`custom_linear_solve`.  ``has_aux`` is not supported.

    >>> def newton(f, x):
    ...     return lax.fori_loop(0, 20, lambda i, x: x - f(x) / grad(f)(x), x)
    >>> sqrt = lambda a: lax.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> sqrt(4.0), grad(sqrt)(4.0)
    (Array(2., dtype=float32), Array(0.25, dtype=float32))
    """
    if has_aux:
        raise NotImplementedError(message("custom_root", "has_aux must be False", "True", "call f again at the root"))
    if current_builder() is None:
        return solve(f, initial_guess)
    initial_guess = tree.map(stop_gradient, initial_guess)
    converted, consts = closure_convert(f, initial_guess)

    @custom_jvp
    def root(guess: Any, *closed: Any) -> Any:
        return solve(lambda x: converted(x, *closed), guess)

    @root.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        x, closed = root(*primals), primals[1:]
        if not closed:  # a root of nothing that could change
            return x, tree.map(lambda v: 0 * v, x)
        _, moved = jvp(lambda *c: converted(x, *c), closed, tangents[1:])

        def linear(v: Any) -> Any:
            return jvp(lambda y: converted(y, *closed), (x,), (v,))[1]

        return x, tree.map(neg, tangent_solve(linear, moved))

    return root(initial_guess, *consts)
