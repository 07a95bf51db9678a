"""custom_vjp and custom_jvp: functions with derivative rules of the user's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from funcgrad import dtypes, tree
from funcgrad.control.custom import CustomJVP, CustomVJP, trace_rule
from funcgrad.errors import MissingRule, TreeError, message
from funcgrad.ir import Aval, Graph
from funcgrad.passes.simplify import dead_code
from funcgrad.primitive import accumulate, zeros
from funcgrad.trace import bind_all, current_builder, trace
from funcgrad.transforms.flat import (
    FlatFunction,
    avals_of,
    label,
    materialize,
    name_of,
    positions,
    split_args,
    typed,
    values_of,
    without_static,
)

__all__ = ["custom_jvp", "custom_vjp"]


class _Call(NamedTuple):
    """One call, traced: what is static, how to ``put`` the rest back among it, the rest as values, and the result."""

    static: list[Any]
    put: Callable[[Sequence[Any]], list[Any]]
    kwargs: dict[str, Any]
    treedef: tree.TreeDef
    values: Sequence[Any]
    out_tree: tree.TreeDef
    out_avals: tuple[Aval, ...]
    closed: Sequence[Any]  # what the function closes over

    @property
    def avals(self) -> list[Aval]:
        return avals_of(self.values)


class _Custom:
    """What both have in common: static arguments and calling the plain function when nothing is being traced."""

    kind = ""

    def __init__(
        self,
        fun: Callable[..., Any],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ):
        self.fun = fun
        self.nondiff = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        functools.update_wrapper(self, fun, updated=())  # type: ignore[arg-type]
        self.what = label(self.kind, fun)
        try:
            self.signature: inspect.Signature | None = inspect.signature(fun)
        except (TypeError, ValueError):  # some builtins have none
            self.signature = None
        names = (nondiff_argnames,) if isinstance(nondiff_argnames, str) else tuple(nondiff_argnames)
        self.nondiff = tuple(dict.fromkeys((*self.nondiff, *[self._position(n) for n in names])))

    def _position(self, name: str) -> int:
        """Where a parameter stands that can be given by position."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        known = [] if self.signature is None else [n for n, p in self.signature.parameters.items() if p.kind in kinds]
        if name not in known:
            requirement = f"nondiff_argnames must be among the parameters {', '.join(known) or '(none)'}"
            raise ValueError(message(self.what, requirement, repr(name), "use nondiff_argnums"))
        return known.index(name)

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments given by keyword, and defaults, as positional ones, so that each has a cotangent or tangent."""
        if self.signature is None:
            return args, kwargs
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def _split(self, args: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...], Callable[[Sequence[Any]], list[Any]]]:
        """Static arguments, the others, and how to put the others back among the static ones."""
        static, *_ = split_args(args, self.nondiff, self.what, "nondiff_argnums")
        return list(static), *without_static(args, self.nondiff, self.what, "nondiff_argnums")

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Graph, _Call]:
        """The function's own graph, and what the call was."""
        args, kwargs = self._positional(args, kwargs)
        static, others, put = self._split(args)
        values, treedef = values_of(others, self.what)
        flat = FlatFunction(lambda *xs: self.fun(*put(xs), **kwargs), treedef, self.what)
        primal = trace(flat, avals_of(values), values, name=self.what)
        result = flat.out_tree, tuple(primal.graph.out_avals)
        return dead_code(primal.graph), _Call(static, put, kwargs, treedef, values, *result, primal.captured)


def _bound(prim: Any, call: _Call) -> Any:
    """The result of a call, as the primitive that holds the rule."""
    outs = bind_all(prim, *call.closed, *call.values)
    return tree.unflatten(call.out_tree, [materialize(o) for o in outs])


class custom_vjp(_Custom):
    """A function whose reverse-mode rule the user defines.

    ``f.defvjp(fwd, bwd)``: ``fwd(*args) -> (out, residuals)`` and ``bwd(residuals, ct) -> tuple of cotangents``, one
    per argument (None for zero).  Arguments at ``nondiff_argnums`` or named in
    ``nondiff_argnames`` are static: ``fwd`` gets them in place, ``bwd``
    first.

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

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the rule; ``symbolic_zeros=True`` is not supported, ``optimize_remat`` is accepted for JAX's sake."""
        if symbolic_zeros:
            way_out = "write fwd for plain values: what nothing reads of bwd's result is not computed"
            raise NotImplementedError(message(f"{self.what}: defvjp", "symbolic_zeros must be False", "True", way_out))
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.fwd is None or self.bwd is None:
            raise MissingRule(message(self.what, "has no rule; call defvjp(fwd, bwd) first"))
        if current_builder() is None:
            return self.fun(*args, **kwargs)
        graph, call = self._trace(args, kwargs)
        rules = _VJPRules(self, call)
        return _bound(CustomVJP(graph, name_of(self.fun), rules.fwd, rules.bwd, len(call.closed)), call)


class _Once:
    """Makes a rule's graph when it is first needed, and lets go of what it is made from."""

    def __init__(self, make: Callable[[], Graph]):
        self.make = make

    def __call__(self) -> Graph:
        graph = self.make()
        del self.make
        return graph


class _VJPRules:
    """Traces ``fwd`` and ``bwd`` of one call when they are first needed; then lets go of what it was called with.

    The call's equation holds the rules, and its arguments hold the equation: a circle, to be cut.
    """

    def __init__(self, owner: Any, call: _Call):
        self.owner, self.call, self.what = owner, call, owner.what
        self.res_tree: tree.TreeDef
        self.res_avals: tuple[Aval, ...]

    def fwd(self) -> Graph:
        """Outputs and residuals."""
        call = self.call
        flat = FlatFunction(self._forward, call.treedef, f"{self.what}: fwd")
        graph = trace_rule(flat, call.avals, call.closed, f"{self.what}: fwd", call.values)
        out_tree, self.res_tree = flat.out_tree.children
        n = out_tree.num_leaves
        if out_tree != call.out_tree or graph.out_avals[:n] != call.out_avals:
            got = f"{out_tree} {graph.out_avals[:n]} and {call.out_tree} {call.out_avals}"
            raise TreeError(message(self.what, "fwd must return (out, residuals) with out as the function's", got))
        self.res_avals = graph.out_avals[n:]
        return graph

    def _forward(self, *args: Any) -> Any:
        out = self.owner.fwd(*self.call.put(args), **self.call.kwargs)
        if not (isinstance(out, tuple) and len(out) == 2):
            raise TreeError(message(f"{self.what}: fwd", "a pair (out, residuals) is required", type(out).__name__))
        return out

    def bwd(self) -> Graph:
        """Residuals and cotangents of float outputs in, gradients of float arguments out."""
        call = self.call

        def run(*flat: Any) -> list[Any]:
            residuals = tree.unflatten(self.res_tree, list(flat[: len(self.res_avals)]))
            it = iter(flat[len(self.res_avals) :])
            cts = [next(it) if dtypes.is_float(a.dtype) else zeros(a) for a in call.out_avals]
            return self._gradients(self.owner.bwd(*call.static, residuals, tree.unflatten(call.out_tree, cts)))

        ct_avals = [a for a in call.out_avals if dtypes.is_float(a.dtype)]
        graph = trace_rule(run, [*self.res_avals, *ct_avals], call.closed, f"{self.what}: bwd")
        self.__dict__.clear()
        return graph

    def _gradients(self, grads: Any) -> list[Any]:
        grads = tuple(grads) if isinstance(grads, list) else grads
        args = self.call.treedef.children
        if not isinstance(grads, tuple) or len(grads) != len(args):
            got = f"{len(grads)} entries" if isinstance(grads, tuple) else type(grads).__name__
            raise TreeError(message(f"{self.what}: bwd", f"a tuple of {len(args)} cotangents is required", got))
        out: list[Any] = []
        it = iter(self.call.avals)
        for g, arg in zip(grads, args, strict=True):
            for sub in [None] * arg.num_leaves if g is None else arg.flatten_up_to(g, f"{self.what}: bwd"):
                aval = next(it)
                if dtypes.is_float(aval.dtype):
                    out.append(zeros(aval) if sub is None else typed(sub, aval, f"{self.what}: bwd: a cotangent"))
        return out


class custom_jvp(_Custom):
    """A function whose forward-mode rule the user defines; reverse mode follows by transposition.

    ``f.defjvp(rule)``: ``rule(primals, tangents) -> (out, tangent_out)``, linear in the tangents;
    ``f.defjvps(*rules)``: per argument ``rule(t, out, *primals)`` or None.  Arguments at ``nondiff_argnums`` are
    static and come first in ``rule``.

    >>> @custom_jvp
    ... def f(x):
    ...     return x * x
    >>> _ = f.defjvp(lambda primals, tangents: (f(*primals), 10.0 * tangents[0]))
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
        fixed = dict(zip(positions(self.nondiff, n, "nondiff_argnums", self.what), static, strict=True))
        it = iter(primals)
        return [fixed[i] if i in fixed else next(it) for i in range(n)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.rule is None:
            raise MissingRule(message(self.what, "has no rule; call defjvp(rule) first"))
        if current_builder() is None:
            return self.fun(*args, **kwargs)
        graph, call = self._trace(args, kwargs)
        rule = _Once(lambda: self._tangent(call))
        return _bound(CustomJVP(graph, name_of(self.fun), rule, len(call.closed)), call)

    def _tangent(self, call: _Call) -> Graph:
        """The graph of the rule: primals and tangents of floats in, outputs and tangents of floats out."""
        avals = call.avals

        def run(*flat: Any) -> list[Any]:
            assert self.rule is not None
            primals = tree.unflatten(call.treedef, list(flat[: len(avals)]))
            it = iter(flat[len(avals) :])
            ts = [next(it) if dtypes.is_float(a.dtype) else zeros(a) for a in avals]
            result = self.rule(*call.static, primals, tree.unflatten(call.treedef, ts))
            if not (isinstance(result, tuple) and len(result) == 2):
                raise TreeError(
                    message(f"{self.what}: rule", "a pair (out, tangent) is required", type(result).__name__)
                )
            outs, touts = [call.out_tree.flatten_up_to(r, f"{self.what}: rule") for r in result]
            outs = [typed(o, a, f"{self.what}: rule: a result") for o, a in zip(outs, call.out_avals, strict=True)]
            pairs = [(t, a) for t, a in zip(touts, call.out_avals, strict=True) if dtypes.is_float(a.dtype)]
            return [*outs, *[typed(t, a, f"{self.what}: rule: a tangent") for t, a in pairs]]

        ts_avals = [a for a in avals if dtypes.is_float(a.dtype)]
        known = [*call.values, *[None] * len(ts_avals)]
        return trace_rule(run, [*avals, *ts_avals], call.closed, f"{self.what}: rule", known)
