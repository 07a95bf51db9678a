"""custom_vjp and custom_jvp: functions with derivative rules of the user's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import dtypes, tree
from funcgrad.array import as_value
from funcgrad.control.call import CustomJVP, CustomVJP
from funcgrad.errors import MissingRule, ShapeError, TreeError, message
from funcgrad.ir import Aval, Graph
from funcgrad.passes.simplify import dead_code
from funcgrad.primitive import accumulate, zeros
from funcgrad.trace import Traced, bind_all, current_builder, trace
from funcgrad.transforms.flat import FlatFunction, avals_of, materialize, name_of, values_of

__all__ = ["custom_jvp", "custom_vjp"]


class _Custom:
    """What both have in common: static arguments and calling the plain function when nothing is being traced."""

    kind = ""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()):
        self.fun = fun
        self.nondiff = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        functools.update_wrapper(self, fun)
        self.what = f"{self.kind} {name_of(fun)}"

    def _split(self, args: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...], Callable[[Sequence[Any]], list[Any]]]:
        """Static arguments, the others, and how to put the others back among the static ones."""
        fixed = {n % len(args) for n in self.nondiff}
        static = [args[n % len(args)] for n in self.nondiff]
        others = tuple([a for i, a in enumerate(args) if i not in fixed])

        def put(xs: Sequence[Any]) -> list[Any]:
            it = iter(xs)
            return [a if i in fixed else next(it) for i, a in enumerate(args)]

        return static, others, put


def _shared(traces: Sequence[Traced]) -> tuple[list[Any], list[Graph]]:
    """Give several graphs the same captured inputs in front."""
    values: dict[int, Any] = {id(x): x for t in traces for x in t.captured}
    graphs = []
    for t in traces:
        own = dict(zip([id(x) for x in t.captured], t.graph.inputs, strict=False))
        front = [own[k] if k in own else _unused(v.aval) for k, v in values.items()]
        rest = t.graph.inputs[len(t.captured) :]
        graphs.append(dead_code(Graph([*front, *rest], t.graph.eqns, t.graph.outputs, t.graph.name)))
    return list(values.values()), graphs


def _unused(aval: Aval) -> Any:
    return trace(lambda x: [], [aval]).graph.inputs[0]


class custom_vjp(_Custom):  # noqa: N801 (JAX's name)
    """A function whose reverse-mode rule the user defines.

    ``f.defvjp(fwd, bwd)``: ``fwd(*args) -> (out, residuals)`` and ``bwd(residuals, ct) -> tuple of cotangents``, one per argument (None
    for zero).  Arguments at ``nondiff_argnums`` are static: ``fwd`` gets them in place, ``bwd`` first.

    >>> @custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda _, ct: (fnp.clip(ct, -1, 1),))
    >>> grad(lambda x: 5.0 * clipped(x))(2.0)
    Array(1., dtype=float32)
    """

    kind = "custom_vjp"
    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the rule."""
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.fwd is None or self.bwd is None:
            raise MissingRule(message(self.what, "has no rule; call defvjp(fwd, bwd) first"))
        if current_builder() is None:
            return self.fun(*args, **kwargs)
        static, others, put = self._split(args)
        values, treedef = values_of(others, self.what)
        avals = avals_of(values)
        flat = FlatFunction(lambda *xs: self.fun(*put(xs), **kwargs), treedef, self.what)
        primal = trace(flat, avals, values, name=self.what)
        flat_fwd = FlatFunction(lambda *xs: self._forward(put(xs), kwargs), treedef, f"{self.what}: fwd")
        forward = trace(flat_fwd, avals, name=f"{self.what}: fwd", abstract=True)
        out_tree = flat_fwd.out_tree.children[0]
        if out_tree != flat.out_tree or forward.graph.out_avals[: out_tree.num_leaves] != primal.graph.out_avals:
            got = f"{out_tree} {forward.graph.out_avals} and {flat.out_tree} {primal.graph.out_avals}"
            raise TreeError(message(self.what, "fwd must return (out, residuals) with out as the function's", got))
        backward = self._backward(static, flat_fwd.out_tree, forward.graph.out_avals, out_tree.num_leaves, others, values)
        closed, graphs = _shared([primal, forward, backward])
        prim = CustomVJP(graphs[0], name_of(self.fun), graphs[1], graphs[2], len(closed))
        outs = bind_all(prim, *closed, *values)
        return tree.unflatten(flat.out_tree, [materialize(o) for o in outs])

    def _forward(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        assert self.fwd is not None
        out = self.fwd(*args, **kwargs)
        if not (isinstance(out, tuple) and len(out) == 2):
            raise TreeError(message(f"{self.what}: fwd", "a pair (out, residuals) is required", type(out).__name__))
        return out

    def _backward(
        self, static: Sequence[Any], fwd_tree: Any, avals: Sequence[Aval], num_out: int, args: Any, values: Sequence[Any]
    ) -> Traced:
        """The graph of ``bwd``: residuals and cotangents of float outputs in, gradients of float arguments out."""
        out_tree, res_tree = fwd_tree.children
        out_avals, res_avals = avals[:num_out], avals[num_out:]

        def run(*flat: Any) -> list[Any]:
            assert self.bwd is not None
            residuals = tree.unflatten(res_tree, list(flat[: len(res_avals)]))
            it = iter(flat[len(res_avals) :])
            cts = [next(it) if dtypes.is_float(a.dtype) else zeros(a) for a in out_avals]
            grads = self.bwd(*static, residuals, tree.unflatten(out_tree, cts))
            return self._gradients(grads, args, values)

        ct_avals = [a for a in out_avals if dtypes.is_float(a.dtype)]
        return trace(run, [*res_avals, *ct_avals], name=f"{self.what}: bwd")

    def _gradients(self, grads: Any, args: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        grads = tuple(grads) if isinstance(grads, list) else grads
        if not isinstance(grads, tuple) or len(grads) != len(args):
            got = f"{len(grads)} entries" if isinstance(grads, tuple) else type(grads).__name__
            raise TreeError(message(f"{self.what}: bwd", f"a tuple of {len(args)} cotangents is required", got))
        out: list[Any] = []
        it = iter(values)
        for g, arg in zip(grads, args, strict=True):
            leaves, treedef = tree.flatten(arg)
            subs = [None] * len(leaves) if g is None else _up_to(treedef, g, f"{self.what}: bwd")
            for sub in subs:
                v = next(it)
                if dtypes.is_float(v.aval.dtype):
                    out.append(zeros(v.aval) if sub is None else self._checked(sub, v.aval))
        return out

    def _checked(self, g: Any, aval: Aval) -> Any:
        x = as_value(g, aval.dtype)
        if x.aval != aval:
            raise ShapeError(message(f"{self.what}: bwd", f"the cotangent must have the argument's type {aval}", str(x.aval)))
        return x


def _up_to(treedef: tree.TreeDef, g: Any, what: str) -> list[Any]:
    if treedef.num_leaves == 1 and g is None:
        return [None]
    return treedef.flatten_up_to(g, what)


class custom_jvp(_Custom):  # noqa: N801 (JAX's name)
    """A function whose forward-mode rule the user defines; reverse mode follows by transposition.

    ``f.defjvp(rule)``: ``rule(primals, tangents) -> (out, tangent_out)``, linear in the tangents; ``f.defjvps(*rules)``: per
    argument ``rule(t, out, *primals)`` or None.  Arguments at ``nondiff_argnums`` are static and come first in ``rule``.

    >>> @custom_jvp
    ... def f(x):
    ...     return x * x
    >>> f.defjvp(lambda primals, tangents: (f(*primals), 10.0 * tangents[0]))
    >>> grad(f)(3.0)
    Array(10., dtype=float32)
    """

    kind = "custom_jvp"
    rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; usable as a decorator."""
        self.rule = rule
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Set one rule per argument."""

        def rule(*args: Any) -> Any:
            primals, tangents = args[-2:]
            static = args[:-2]
            out = self(*self._join(static, primals))
            total = None
            for r, t in zip(rules, tangents, strict=True):
                if r is not None:
                    total = accumulate(total, r(t, out, *self._join(static, primals)))
            return out, tree.map(lambda o: zeros(o.aval), out) if total is None else total

        self.rule = rule

    def _join(self, static: Sequence[Any], primals: Sequence[Any]) -> list[Any]:
        n = len(static) + len(primals)
        fixed = {k % n: s for k, s in zip(self.nondiff, static, strict=True)}
        it = iter(primals)
        return [fixed[i] if i in fixed else next(it) for i in range(n)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.rule is None:
            raise MissingRule(message(self.what, "has no rule; call defjvp(rule) first"))
        if current_builder() is None:
            return self.fun(*args, **kwargs)
        static, others, put = self._split(args)
        values, treedef = values_of(others, self.what)
        avals = avals_of(values)
        flat = FlatFunction(lambda *xs: self.fun(*put(xs), **kwargs), treedef, self.what)
        primal = trace(flat, avals, values, name=self.what)
        tangent = self._tangent(static, treedef, avals, primal.graph.out_avals, flat.out_tree)
        closed, graphs = _shared([primal, tangent])
        prim = CustomJVP(graphs[0], name_of(self.fun), _with_closed_tangents(graphs[1], closed, len(values)))
        return tree.unflatten(flat.out_tree, [materialize(o) for o in bind_all(prim, *closed, *values)])

    def _tangent(
        self, static: Sequence[Any], treedef: Any, avals: Sequence[Aval], out_avals: Sequence[Aval], out_tree: Any
    ) -> Traced:
        """The graph of the rule: primals and tangents of the float ones in, outputs and tangents of the float ones out."""

        def run(*flat: Any) -> list[Any]:
            assert self.rule is not None
            primals = tree.unflatten(treedef, list(flat[: len(avals)]))
            it = iter(flat[len(avals) :])
            ts = [next(it) if dtypes.is_float(a.dtype) else zeros(a) for a in avals]
            result = self.rule(*static, primals, tree.unflatten(treedef, ts))
            if not (isinstance(result, tuple) and len(result) == 2):
                raise TreeError(message(f"{self.what}: rule", "a pair (out, tangent) is required", type(result).__name__))
            outs = out_tree.flatten_up_to(result[0], self.what)
            touts = out_tree.flatten_up_to(result[1], self.what)
            tangents = [self._checked(t, a) for t, a in zip(touts, out_avals, strict=True) if dtypes.is_float(a.dtype)]
            return [*[as_value(o) for o in outs], *tangents]

        return trace(run, [*avals, *[a for a in avals if dtypes.is_float(a.dtype)]], name=f"{self.what}: rule")

    def _checked(self, t: Any, aval: Aval) -> Any:
        x = as_value(t, aval.dtype)
        if x.aval != aval:
            raise ShapeError(message(f"{self.what}: rule", f"the tangent must have the output's type {aval}", str(x.aval)))
        return x


def _with_closed_tangents(graph: Graph, closed: Sequence[Any], num_args: int) -> Graph:
    """Add unused tangent inputs for the float values that the function closes over: they count as constants."""
    n = len(closed) + num_args
    extra = [_unused(x.aval) for x in closed if dtypes.is_float(x.aval.dtype)]
    return Graph([*graph.inputs[:n], *extra, *graph.inputs[n:]], graph.eqns, graph.outputs, graph.name)
