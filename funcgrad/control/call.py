"""Call (a jitted function inside another), Checkpoint, and names for its policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Equation, Graph, Literal, Var
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.forward import jvp_graph
from funcgrad.passes.inline import inline
from funcgrad.passes.residuals import as_late, value_half
from funcgrad.passes.reverse import Halves, split, vjp_graph
from funcgrad.passes.simplify import eliminate, simplify
from funcgrad.primitive import Primitive, apply, broadcast_leading, dataclass, zeros
from funcgrad.trace import bind_all, replay, trace

Policy = Callable[[Equation], bool]


def eval_graph(graph: Graph, *xs: Any) -> list[Any]:
    """Run a graph on numpy arrays by its primitives' references."""
    pairs = zip(graph.inputs, xs, strict=True)
    # What calls this has widened halves to float32 for its own arithmetic; the equations inside want their own types.
    env: dict[Any, Any] = {v: dtypes.narrow(x, v.aval.dtype) if v.aval.dtype in dtypes.HALVES else x for v, x in pairs}
    for eqn in graph.eqns:
        outs = eqn.prim.evaluate(*[a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs])
        env.update(zip(eqn.outputs, outs, strict=True))
    return [a.value if isinstance(a, Literal) else env[a] for a in graph.outputs]


def check_operands(prim: Primitive, graph: Graph, avals: Sequence[Aval]) -> None:
    """Raise ShapeError unless the operands have the types of the graph's inputs."""
    if tuple(avals) != graph.in_avals:
        raise prim.shape_error("operands must have the types of the graph's inputs", *avals)


def dense(ct: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """The cotangents of the float outputs, zeros where there is none."""
    pairs = zip(ct, outs, strict=True)
    return [zeros(o.aval) if c is None else c for c, o in pairs if dtypes.is_float(o.aval.dtype)]


def spread(grads: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """One gradient per operand, None for those not in ``mask``."""
    it = iter(grads)
    return [next(it) if m else None for m in mask]


def float_mask(avals: Sequence[Aval], mask: Sequence[bool]) -> tuple[bool, ...]:
    """``mask`` restricted to floats."""
    return tuple([m and dtypes.is_float(a.dtype) for m, a in zip(mask, avals, strict=True)])


def tangents_of(graph: Graph, ts: Sequence[Any]) -> tuple[tuple[bool, ...], list[Any]]:
    """Which inputs have a tangent, and those tangents."""
    mask = tuple([t is not None and dtypes.is_float(v.aval.dtype) for t, v in zip(ts, graph.inputs, strict=True)])
    return mask, [t for t, m in zip(ts, mask, strict=True) if m]


def spread_tangents(graph: Graph, known: Sequence[bool], ts: Sequence[Any]) -> list[Any]:
    """One tangent per output, None for integers and for those that are zero."""
    it = iter(zip(ts, known, strict=True))
    out: list[Any] = []
    for a in graph.outputs:
        t, live = next(it) if dtypes.is_float(a.aval.dtype) else (None, False)
        out.append(t if live else None)
    return out


@dataclass(frozen=True, eq=False)
class Call(Primitive):
    """A jitted function called inside another function."""

    graph: Graph
    label: str = ""
    name = "call"
    multiple = True

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        check_operands(self, self.graph, avals)
        return self.graph.out_avals

    def eval(self, *xs: Any) -> Any:
        return eval_graph(self.graph, *xs)

    def with_graph(self, graph: Graph) -> Call:
        """The same kind of call to another graph."""
        return type(self)(graph, self.label)

    def halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., Any]]:
        """The call that also gives residuals, and the backward half: a function of cotangents, its results and
        operands."""
        mask = float_mask(self.graph.in_avals, mask)
        key = ("halves", mask)
        if key not in self.graph.memo:
            joint = simplify(vjp_graph(self.graph, mask))
            num_ct = len(joint.inputs) - len(self.graph.inputs)
            parts = split(joint, num_ct, len(self.graph.outputs))
            self.graph.memo[key] = (parts, self.with_graph(parts.early), self.with_graph(parts.late))
        parts, forward, late = self.graph.memo[key]
        n = len(self.graph.outputs)

        def backward(ct: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
            cts = dense(ct, self.graph.outputs)
            return spread(bind_all(late, *crossing_values(self.graph, parts, outs[n:], xs), *cts), mask)

        return forward, backward

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        raise AssertionError("reverse mode takes the halves of a call")

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        mask, tangents = tangents_of(self.graph, ts)
        graph, known = jvp_graph(self.graph, mask)
        n = len(self.graph.outputs)
        only_tangents = self.graph.memo.setdefault(
            ("jvp only", mask),
            Graph(graph.inputs, eliminate(graph.eqns, graph.outputs[n:]), graph.outputs[n:], graph.name),
        )
        return spread_tangents(self.graph, known, bind_all(self.with_graph(only_tangents), *xs, *tangents))

    def jvp_joint(self, ts: Sequence[Any], *xs: Any) -> tuple[list[Any], list[Any]]:
        """Results and their tangents from one call."""
        mask, tangents = tangents_of(self.graph, ts)
        graph, known = jvp_graph(self.graph, mask)
        outs = bind_all(self.with_graph(graph), *xs, *tangents)
        n = len(self.graph.outputs)
        return outs[:n], spread_tangents(self.graph, known, outs[n:])

    def linear_halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., list[Any]]]:
        """The call that also gives residuals, and the tangents: a function of tangents, its results and operands."""
        mask = float_mask(self.graph.in_avals, mask)
        key, n = ("linear halves", mask), len(self.graph.outputs)
        if key not in self.graph.memo:
            graph, known = jvp_graph(self.graph, mask, joint=False)
            parts = split(graph, sum(mask), n)
            self.graph.memo[key] = (parts, known, self.with_graph(parts.early), self.with_graph(parts.late))
        parts, known, forward, late = self.graph.memo[key]

        def push(ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
            tangents = [t for t, m in zip(ts, mask, strict=True) if m]
            pushed = bind_all(late, *crossing_values(self.graph, parts, outs[n:], xs), *tangents)
            return spread_tangents(self.graph, known, pushed)

        return forward, push

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        graph, marks = batch_graph(self.graph, size, mapped)
        return bind_all(self.with_graph(graph), *xs), marks

    def batch_named(self, size: int, mapped: Sequence[bool], axis_name: Any, *xs: Any) -> tuple[Any, Any]:
        """``batch`` where collectives over ``axis_name`` inside are meant."""
        graph, marks = batch_graph(self.graph, size, mapped, axis_name)
        return bind_all(self.with_graph(graph), *xs), marks

    def inlined(self) -> Graph:
        """What the call stands for."""
        return self.graph

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.call(self.graph, xs)


def crossing_values(graph: Graph, parts: Halves, residuals: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
    """The values that the late half reads: operands and residuals, in its order."""
    at: dict[Var, Any] = dict(zip(graph.inputs, xs, strict=True))
    at.update(zip(parts.residuals, residuals, strict=True))
    return [at[v] for v in parts.crossing]


@dataclass(frozen=True, eq=False)
class Checkpoint(Call):
    """A call whose values are computed again for its vjp, but for those that ``policy`` keeps.

    The vjp is the vjp of the body, called again on the operands: nothing inside is kept from forward to backward.
    """

    policy: Policy | None = None
    name = "checkpoint"
    linear_halves = None  # type: ignore[assignment]  # nothing is kept

    def with_graph(self, graph: Graph) -> Checkpoint:
        return Checkpoint(graph, self.label, self.policy)

    def halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., Any]]:
        mask = float_mask(self.graph.in_avals, mask)
        key = ("checkpoint halves", mask, self.policy, getattr(self.policy, "state", None))
        if key not in self.graph.memo:
            self.graph.memo[key] = self._halves(mask)
        forward, again = self.graph.memo[key]

        n = len(self.graph.outputs)

        def backward(ct: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
            return spread(bind_all(again, *outs[n:], *xs, *dense(ct, self.graph.outputs)), mask)

        return forward, backward

    def _halves(self, mask: Sequence[bool]) -> tuple[Primitive, Primitive]:
        body = inline(self.graph, only=("call",))
        if hasattr(self.policy, "choose"):
            body = self._into_scans(body)
        joint = vjp_graph(body, mask)
        choose = getattr(self.policy, "choose", None)
        if choose is not None:
            values, residuals = value_half(body, joint)
            early: Sequence[Equation] = values.eqns
            saved = choose(values, residuals, lambda vs: _pair(body, early, joint, vs))
        else:
            early = body.eqns
            kept = [e for e in early if self.policy is not None and self.policy(e)]
            saved = [v for e in kept for v in e.outputs if v not in body.outputs]
            saved += [v for e in kept for v in e.outputs if v in body.outputs]
            saved += _decisions(body, joint, saved)
        forward, again = _pair(body, early, joint, saved)
        return self.with_graph(forward), self.with_graph(again)

    def _into_scans(self, body: Graph) -> Graph:
        """The graph with the bodies of its scans checkpointed by the same policy, which chooses there as well."""
        eqns = []
        for eqn in body.eqns:
            if eqn.prim.name == "scan":
                step: Graph = vars(eqn.prim)["body"]
                inputs, outs = [Var(a) for a in step.in_avals], [Var(a) for a in step.out_avals]
                again = Graph(inputs, [Equation(self.with_graph(step), inputs, outs, eqn.site)], outs, step.name)
                eqn = Equation(replace(cast("Any", eqn.prim), body=again), eqn.inputs, eqn.outputs, eqn.site)
            eqns.append(eqn)
        return Graph(body.inputs, eqns, body.outputs, body.name)


def _decisions(body: Graph, joint: Graph, saved: Sequence[Var]) -> list[Var]:
    """Which branches were taken: kept under every policy, because a sum that is rounded otherwise may decide otherwise
    the second time."""
    made = {v for e in body.eqns for v in e.outputs} - set(saved)
    reads = {e.inputs[0] for e in joint.eqns if e.prim.name == "cond"}
    return [v for v in value_half(body, joint)[1] if v in made and v in reads]


def _pair(body: Graph, early: Sequence[Equation], joint: Graph, saved: Sequence[Var]) -> tuple[Graph, Graph]:
    """The graph that also gives ``saved``, and the one from those, the operands and cotangents to the gradients."""
    grads = joint.outputs[len(body.outputs) :]
    eqns = [_again(e) for e in _without(eliminate(joint.eqns, grads, given=saved), set(saved))]
    again = simplify(Graph([*saved, *joint.inputs], eqns, grads, body.name))
    outs = [*body.outputs, *saved]
    forward = Graph(body.inputs, eliminate(early, outs), outs, body.name)
    return forward, as_late(again, len(joint.inputs) - len(body.inputs))


def _again(eqn: Equation) -> Equation:
    """An equation of a forward half as a backward half computes it again."""
    if eqn.site is None or eqn.site.phase:
        return eqn
    return Equation(eqn.prim, eqn.inputs, eqn.outputs, eqn.site.during("recomputed"))


def _without(eqns: Sequence[Equation], saved: set[Var]) -> list[Equation]:
    """The equations, writing elsewhere what is there already: one that gives other results too is computed again."""
    out = []
    for e in eqns:
        if saved.intersection(e.outputs):
            e = Equation(e.prim, e.inputs, [Var(v.aval) if v in saved else v for v in e.outputs], e.site)
        out.append(e)
    return out


def with_marks(graph: Graph, size: int, have: Sequence[bool], want: Sequence[bool]) -> Graph:
    """Return a batched graph whose outputs carry the leading axis exactly where wanted: repeated, or summed away."""
    if list(have) == list(want):
        return graph

    def fixed(*xs: Any) -> list[Any]:
        outs = replay(graph, xs)
        return [_with_mark(o, size, h, w) for o, h, w in zip(outs, have, want, strict=True)]

    return trace(fixed, graph.in_avals, name=graph.name).graph


def _with_mark(x: Any, size: int, have: bool, want: bool) -> Any:
    if have == want:
        return x
    return broadcast_leading(x, size) if want else apply("reduce_sum", x, axes=(0,))


@dataclass(frozen=True)
class Name(Primitive):
    """x itself, under a name that checkpoint policies can refer to."""

    label: str
    name = "name"

    def infer(self, *avals: Aval) -> Aval:
        return avals[0]

    def eval(self, *xs: Any) -> Any:
        return np.asarray(xs[0])

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [ct]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return bind_all(self, ts[0])[0]

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return bind_all(self, xs[0])[0], True

    def lower(self, g: Any, *xs: Any) -> Any:
        return xs[0]
