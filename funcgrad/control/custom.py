"""Functions with derivative rules of the user's: CustomJVP and CustomVJP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.control.call import Call, dense, spread, spread_tangents, with_marks
from funcgrad.errors import FuncgradError, MissingRule, message
from funcgrad.ir import Aval, Equation, Graph, Var
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.reverse import vjp_graph
from funcgrad.passes.simplify import eliminate, simplify
from funcgrad.primitive import Primitive, dataclass, zeros
from funcgrad.trace import Tracer, at_site, bind_all, replay, trace

Rule = Callable[[], Graph]


@dataclass(frozen=True)
class Constant(Primitive):
    """A concrete array inside a graph; ``jit`` makes it an input."""

    value: Any
    name = "constant"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __str__(self) -> str:
        return f"constant({self.value.aval})"

    def infer(self, *avals: Aval) -> Aval:
        aval: Aval = self.value.aval
        return aval

    def eval(self, *xs: Any) -> Any:
        return np.asarray(self.value)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return bind_all(self)[0], False

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.constant(self.value)


def trace_rule(
    fun: Callable[..., Any],
    avals: Sequence[Aval],
    closed: Sequence[Any],
    what: str,
    values: Sequence[Any] | None = None,
) -> Graph:
    """Trace a user's rule after the function itself; ``closed`` are the values that the function closes over, inputs in
    front.

    Other arrays become constants; another traced value is an error.  ``values`` are arguments that Python may look at.
    """
    with at_site(None):  # the user's own lines again
        traced = trace(fun, avals, values, name=what, closed=closed)
    extra = traced.captured[len(closed) :]
    if any(isinstance(x, Tracer) for x in extra):
        way_out = "pass the value to the function as an argument"
        raise FuncgradError(
            message(what, "the rule closes over a traced value that the function itself does not use", "", way_out)
        )
    n = len(closed)
    inputs, consts = traced.graph.inputs[n : n + len(extra)], extra
    made = [Equation(Constant(c), (), (v,)) for v, c in zip(inputs, consts, strict=True)]
    kept = [*traced.graph.inputs[:n], *traced.graph.inputs[n + len(extra) :]]
    return simplify(Graph(kept, [*made, *traced.graph.eqns], traced.graph.outputs, what))


def check_closed(prim: Any, active: Sequence[bool]) -> None:
    """Raise FuncgradError when what a function with a custom rule closes over is being differentiated."""
    if any(active[: prim.num_closed]):
        requirement = "the function closes over a value that is being differentiated"
        raise FuncgradError(
            message(f"{prim.name} of {prim.label}", requirement, way_out="pass the value as an argument")
        )


@dataclass(frozen=True, eq=False)
class CustomJVP(Call):
    """A function with its own tangent: ``rule()`` maps primals and tangents of floats to outputs and tangents of float
    outputs.

    The first ``num_closed`` operands are what the function closes over.  Reverse mode transposes the rule: it is the
    vjp by the tangents, in which the rule is linear.  The rule is traced when it is first needed.
    """

    rule: Rule | None = None
    num_closed: int = 0
    name = "custom_jvp"
    jvp_joint = linear_halves = None  # type: ignore[assignment]  # the user's rule gives the tangent

    def halves(self, mask: Sequence[bool]) -> Any:
        check_closed(self, mask)
        return None

    def tangent(self) -> Graph:
        """The rule's graph, with tangents (unused) for float values closed over too."""
        if "tangent" not in self.graph.memo:
            assert self.rule is not None
            rule = self.rule()
            k, n = self.num_closed, len(self.graph.inputs)
            extra = [Var(v.aval) for v in self.graph.inputs[:k] if dtypes.is_float(v.aval.dtype)]
            inputs = [*rule.inputs[:n], *extra, *rule.inputs[n:]]
            self.graph.memo["tangent"] = Graph(inputs, rule.eqns, rule.outputs, rule.name)
        found: Graph = self.graph.memo["tangent"]
        return found

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        check_closed(self, [t is not None for t in ts])
        full = [zeros(x.aval) if t is None else t for t, x in zip(ts, xs, strict=True) if dtypes.is_float(x.aval.dtype)]
        n = len(self.graph.outputs)
        rule = self.tangent()
        results = replay(Graph(rule.inputs, eliminate(rule.eqns, rule.outputs[n:]), rule.outputs[n:]), [*xs, *full])
        return spread_tangents(self.graph, [True] * len(results), results)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        floats = tuple([dtypes.is_float(x.aval.dtype) for x in xs])
        rule = self.tangent()
        n, m = len(self.graph.outputs), len(rule.outputs)
        wrt = [False] * len(xs) + [True] * sum(floats)
        joint = vjp_graph(rule, wrt, [False] * n + [True] * (m - n))
        at_zero = [zeros(x.aval) for x, f in zip(xs, floats, strict=True) if f]
        grads = Graph(joint.inputs, eliminate(joint.eqns, joint.outputs[m:]), joint.outputs[m:])
        return spread(replay(grads, [*xs, *at_zero, *dense(ct, out)]), floats)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        graph, marks = batch_graph(self.graph, size, mapped)
        every = (True,) * len(marks)

        def rule() -> Graph:
            floats = [m for v, m in zip(self.graph.inputs, mapped, strict=True) if dtypes.is_float(v.aval.dtype)]
            whole = self.tangent()
            batched, t_marks = batch_graph(whole, size, [*mapped, *floats])
            fixed = with_marks(batched, size, t_marks, [True] * len(t_marks))
            n, k = (
                len(self.graph.inputs),
                sum(dtypes.is_float(v.aval.dtype) for v in self.graph.inputs[: self.num_closed]),
            )
            return Graph([*fixed.inputs[:n], *fixed.inputs[n + k :]], fixed.eqns, fixed.outputs, fixed.name)

        prim = CustomJVP(with_marks(graph, size, marks, every), self.label, rule, self.num_closed)
        return bind_all(prim, *xs), every


@dataclass(frozen=True, eq=False)
class CustomVJP(Call):
    """A function with its own cotangent: ``fwd()`` gives outputs and residuals, ``bwd()`` maps what the function closes
    over, residuals and cotangents of float outputs to gradients of float arguments.

    The first ``num_closed`` operands are what the function closes over; they have no gradient.  The rules are traced
    when they are first needed, so that they may call the function itself.
    """

    fwd: Rule | None = None
    bwd: Rule | None = None
    num_closed: int = 0
    name = "custom_vjp"
    jvp_joint = linear_halves = None  # type: ignore[assignment]  # the user's rule gives the tangent

    def rules(self) -> tuple[Graph, Graph]:
        """The two graphs."""
        if "rules" not in self.graph.memo:
            assert self.fwd is not None and self.bwd is not None
            self.graph.memo["rules"] = (self.fwd(), self.bwd())
        found: tuple[Graph, Graph] = self.graph.memo["rules"]
        return found

    def halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., Any]]:
        check_closed(self, mask)
        fwd, bwd = self.rules()
        n, num_closed = len(self.graph.outputs), self.num_closed

        def backward(ct: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
            grads = bind_all(Call(bwd, self.label), *xs[:num_closed], *outs[n:], *dense(ct, self.graph.outputs))
            floats = [dtypes.is_float(x.aval.dtype) for x in xs[num_closed:]]
            return [None] * num_closed + spread(grads, floats)

        return Call(fwd, self.label), backward

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        way_out = "use reverse mode (grad, vjp), or define the rule with custom_jvp"
        raise MissingRule(
            message(f"custom_vjp of {self.label}", "has a reverse rule only; no forward mode", "", way_out)
        )

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        k = self.num_closed
        graph, marks = batch_graph(self.graph, size, mapped)
        every = (True,) * len(marks)

        def fwd() -> Graph:
            batched, f_marks = batch_graph(self.rules()[0], size, mapped)
            return with_marks(batched, size, f_marks, [True] * len(f_marks))

        def bwd() -> Graph:
            rest = len(self.rules()[1].inputs) - k
            batched, g_marks = batch_graph(self.rules()[1], size, [*mapped[:k], *[True] * rest])
            args = zip(self.graph.in_avals[k:], mapped[k:], strict=True)
            return with_marks(batched, size, g_marks, [m for a, m in args if dtypes.is_float(a.dtype)])

        return bind_all(CustomVJP(with_marks(graph, size, marks, every), self.label, fwd, bwd, k), *xs), every


@dataclass(frozen=True, eq=False)
class CustomVMap(Call):
    """A function with its own rule for vmap: ``batching(size, mapped, xs)`` gives outputs and which of them are mapped.

    The first ``num_closed`` operands are what the function closes over.  Derivatives are those of the function's body,
    which is mapped in the ordinary way where the derivative is taken first.
    """

    batching: Callable[[int, Sequence[bool], Sequence[Any]], tuple[list[Any], list[bool]]] | None = None
    num_closed: int = 0
    name = "custom_vmap"

    def with_graph(self, graph: Graph) -> Call:
        return Call(graph, self.label)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        k = self.num_closed
        if any(mapped[:k]):
            way_out = "pass the value to the function as an argument"
            requirement = "the function closes over a value that is being mapped"
            raise FuncgradError(message(f"{self.name} of {self.label}", requirement, way_out=way_out))
        assert self.batching is not None
        return self.batching(size, mapped[k:], xs[k:])

    def batch_named(self, size: int, mapped: Sequence[bool], axis_name: Any, *xs: Any) -> tuple[Any, Any]:
        return self.batch(size, mapped, *xs)
