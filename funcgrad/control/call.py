"""Call (a jitted function inside another), Checkpoint, and the custom derivative rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import FuncgradError, MissingRule, message
from funcgrad.ir import Aval, Equation, Graph, Literal, Var
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.forward import jvp_graph
from funcgrad.passes.inline import inline
from funcgrad.passes.reverse import Halves, split, vjp_graph
from funcgrad.passes.simplify import eliminate, simplify
from funcgrad.primitive import Primitive, apply, broadcast_leading, zeros
from funcgrad.trace import bind_all, replay, trace

Policy = Callable[[Equation], bool]


def eval_graph(graph: Graph, *xs: Any) -> list[Any]:
    """Run a graph on numpy arrays by its primitives' references."""
    env: dict[Any, Any] = dict(zip(graph.inputs, xs, strict=True))
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
        """The call that also gives residuals, and the backward half as a function of cotangents, residuals and operands."""
        mask = float_mask(self.graph.in_avals, mask)
        key = ("halves", mask)
        if key not in self.graph.memo:
            joint = simplify(vjp_graph(self.graph, mask))
            num_ct = len(joint.inputs) - len(self.graph.inputs)
            parts = split(joint, num_ct, len(self.graph.outputs))
            self.graph.memo[key] = (parts, self.with_graph(parts.early), self.with_graph(parts.late))
        parts, forward, late = self.graph.memo[key]

        def backward(ct: Sequence[Any], residuals: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
            cts = dense(ct, self.graph.outputs)
            return spread(bind_all(late, *crossing_values(self.graph, parts, residuals, xs), *cts), mask)

        return forward, backward

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        raise AssertionError("reverse mode takes the halves of a call")

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        mask, tangents = tangents_of(self.graph, ts)
        graph, known = jvp_graph(self.graph, mask)
        n = len(self.graph.outputs)
        only_tangents = self.graph.memo.setdefault(
            ("jvp only", mask), Graph(graph.inputs, eliminate(graph.eqns, graph.outputs[n:]), graph.outputs[n:], graph.name)
        )
        return spread_tangents(self.graph, known, bind_all(self.with_graph(only_tangents), *xs, *tangents))

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

    def with_graph(self, graph: Graph) -> Checkpoint:
        return Checkpoint(graph, self.label, self.policy)

    def halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., Any]]:
        mask = float_mask(self.graph.in_avals, mask)
        key = ("checkpoint halves", mask, self.policy)
        if key not in self.graph.memo:
            self.graph.memo[key] = self._halves(mask)
        forward, again = self.graph.memo[key]

        def backward(ct: Sequence[Any], saved: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
            return spread(bind_all(again, *saved, *xs, *dense(ct, self.graph.outputs)), mask)

        return forward, backward

    def _halves(self, mask: Sequence[bool]) -> tuple[Primitive, Primitive]:
        body = inline(self.graph, only=("call",))
        kept = [e for e in body.eqns if self.policy is not None and self.policy(e)]
        saved = [v for e in kept for v in e.outputs if v not in body.outputs]
        saved += [v for e in kept for v in e.outputs if v in body.outputs]
        joint = vjp_graph(body, mask)
        grads = joint.outputs[len(body.outputs) :]
        eqns = eliminate(joint.eqns, grads, given=saved)
        again = Graph([*saved, *joint.inputs], eqns, grads, body.name)
        forward = Graph(body.inputs, body.eqns, [*body.outputs, *saved], body.name)
        return self.with_graph(forward), Checkpoint(simplify(again), self.label, self.policy)


@dataclass(frozen=True, eq=False)
class CustomJVP(Call):
    """A function with its own tangent: ``tangent`` maps primals and tangents to outputs and their tangents.

    Reverse mode transposes it: the vjp of ``tangent`` by its tangents, in which it is linear.
    """

    tangent: Graph | None = None
    name = "custom_jvp"

    def halves(self, mask: Sequence[bool]) -> Any:
        return None

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        assert self.tangent is not None
        full = [zeros(x.aval) if t is None else t for t, x in zip(ts, xs, strict=True) if dtypes.is_float(x.aval.dtype)]
        n = len(self.graph.outputs)
        results = replay(self.tangent, [*xs, *full])[n:]
        return spread_tangents(self.graph, [True] * len(results), results)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        assert self.tangent is not None
        floats = tuple([dtypes.is_float(x.aval.dtype) for x in xs])
        n, m = len(self.graph.outputs), len(self.tangent.outputs)
        wrt = [False] * len(xs) + [True] * sum(floats)
        joint = vjp_graph(self.tangent, wrt, [False] * n + [True] * (m - n))
        at_zero = [zeros(x.aval) for x, f in zip(xs, floats, strict=True) if f]
        grads = Graph(joint.inputs, eliminate(joint.eqns, joint.outputs[m:]), joint.outputs[m:])
        return spread(replay(grads, [*xs, *at_zero, *dense(ct, out)]), floats)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        assert self.tangent is not None
        graph, marks = batch_graph(self.graph, size, mapped)
        floats = [m for v, m in zip(self.graph.inputs, mapped, strict=True) if dtypes.is_float(v.aval.dtype)]
        tangent, t_marks = batch_graph(self.tangent, size, [*mapped, *floats])
        want = [*marks, *[m for a, m in zip(self.graph.outputs, marks, strict=True) if dtypes.is_float(a.aval.dtype)]]
        tangent = with_marks(tangent, size, t_marks, want)
        graph = with_marks(graph, size, marks, [m or t for m, t in zip(marks, t_marks, strict=False)])
        marks = tuple([m or t for m, t in zip(marks, t_marks, strict=False)])
        return bind_all(CustomJVP(graph, self.label, tangent), *xs), marks


@dataclass(frozen=True, eq=False)
class CustomVJP(Call):
    """A function with its own cotangent: ``fwd`` gives outputs and residuals, ``bwd`` maps residuals and cotangents to gradients.

    The first ``num_closed`` operands are values that the function closes over; they have no gradient rule.
    """

    fwd: Graph | None = None
    bwd: Graph | None = None
    num_closed: int = 0
    name = "custom_vjp"

    def halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., Any]]:
        assert self.fwd is not None and self.bwd is not None
        if any(mask[: self.num_closed]):
            requirement = "the function closes over a value that is being differentiated"
            raise FuncgradError(message(f"custom_vjp {self.label}", requirement, way_out="pass the value as an argument"))
        bwd, num_closed = self.bwd, self.num_closed

        def backward(ct: Sequence[Any], residuals: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
            grads = bind_all(Call(bwd, self.label), *xs[:num_closed], *residuals, *dense(ct, self.graph.outputs))
            floats = [dtypes.is_float(x.aval.dtype) for x in xs[num_closed:]]
            return [None] * num_closed + spread(grads, floats)

        return Call(self.fwd, self.label), backward

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        way_out = "use reverse mode (grad, vjp), or define the rule with custom_jvp"
        raise MissingRule(message(f"custom_vjp {self.label}", "has a reverse rule only; no forward mode", "", way_out))

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        assert self.fwd is not None and self.bwd is not None
        n = len(self.graph.outputs)
        graph, marks = batch_graph(self.graph, size, mapped)
        fwd, fwd_marks = batch_graph(self.fwd, size, mapped)
        marks = tuple([a or b for a, b in zip(marks, fwd_marks[:n], strict=True)])
        graph = with_marks(graph, size, batch_graph(self.graph, size, mapped)[1], marks)
        fwd = with_marks(fwd, size, fwd_marks, [*marks, *fwd_marks[n:]])
        ct_marks = [m for m, a in zip(marks, self.graph.outputs, strict=True) if dtypes.is_float(a.aval.dtype)]
        bwd, g_marks = batch_graph(self.bwd, size, [*mapped[: self.num_closed], *fwd_marks[n:], *ct_marks])
        args = zip(self.graph.in_avals[self.num_closed :], mapped[self.num_closed :], strict=True)
        want = [m for a, m in args if dtypes.is_float(a.dtype)]
        bwd = with_marks(bwd, size, g_marks, want)
        return bind_all(CustomVJP(graph, self.label, fwd, bwd, self.num_closed), *xs), marks


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
