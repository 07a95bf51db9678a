"""Cond: one of several graphs, chosen by an index when it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from funcgrad import dtypes
from funcgrad.control.call import eval_graph, float_mask, spread, spread_tangents, tangents_of, with_marks
from funcgrad.control.loops import inherit_traits
from funcgrad.control.prune import Pruned, prune_cond
from funcgrad.ir import Aval, Graph
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.forward import jvp_graph
from funcgrad.passes.reverse import active_variables, vjp_graph
from funcgrad.passes.simplify import eliminate, simplify
from funcgrad.primitive import Primitive, accumulate, apply, broadcast_leading, dataclass
from funcgrad.prims.layout import broadcast
from funcgrad.prims.pointwise import maximum, minimum, select
from funcgrad.trace import bind_all, replay

INDEX = Aval((), dtypes.int32)


@dataclass(frozen=True, eq=False)
class Cond(Primitive):
    """``branches[index]`` of the operands; the index, an int32 scalar, is clamped to the branches there are.

    Only the branch taken is computed.  Its vjp computes that branch again, so nothing is saved for those not taken.
    """

    branches: tuple[Graph, ...]
    collective: ClassVar[bool]
    name = "cond"
    multiple = True

    def __post_init__(self) -> None:
        inherit_traits(self, self.branches)

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        if avals[0] != INDEX:
            raise self.shape_error("the index must be an int32 scalar", avals[0])
        for b in self.branches:
            if b.in_avals != avals[1:]:
                raise self.shape_error("operands must have the types of the branches' inputs", *avals[1:])
            if b.out_avals != self.branches[0].out_avals:
                raise self.shape_error(
                    "all branches must return the same types", self.branches[0].out_avals, b.out_avals
                )
        return self.branches[0].out_avals

    def eval(self, *xs: Any) -> Any:
        index = int(np.clip(xs[0], 0, len(self.branches) - 1))
        return [dtypes.widen(np.asarray(y)) for y in eval_graph(self.branches[index], *xs[1:])]

    def iterations(self, *xs: Any) -> Iterator[tuple[str, Graph, list[Any]]]:
        """The branch that is taken: its name, its graph, and the arrays that it is given."""
        index = int(np.clip(xs[0], 0, len(self.branches) - 1))
        yield f"branch {index} of cond", self.branches[index], list(xs[1:])

    def halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., list[Any]]]:
        """Cond itself, and as the backward half a Cond of the branches' vjps."""
        mask = float_mask(self.branches[0].in_avals, mask[1:])

        def backward(ct: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
            pairs = zip(ct, self.branches[0].outputs, strict=True)
            with_ct = tuple([c is not None and dtypes.is_float(a.aval.dtype) for c, a in pairs])
            reached = [_reached(b, mask, with_ct) for b in self.branches]
            wrt = tuple([any(marks) for marks in zip(*reached, strict=True)])
            if not any(wrt):
                return [None] * len(xs)
            branches = [_pullback(b, wrt, with_ct) for b in self.branches]
            cts = [c for c, w in zip(ct, with_ct, strict=True) if w]
            if self.collective:
                return [None, *spread(_sum_of_pullbacks(branches, xs, cts), wrt)]
            return [None, *spread(bind_all(Cond(tuple(branches)), *xs, *cts), wrt)]

        return self, backward

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        raise AssertionError("reverse mode takes the halves of a cond")

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return self.jvp_joint(ts, *xs)[1]

    def jvp_joint(self, ts: Sequence[Any], *xs: Any) -> tuple[list[Any], list[Any]]:
        """Results and their tangents from one Cond of the branches' jvps."""
        mask, tangents = tangents_of(self.branches[0], ts[1:])
        pairs = [jvp_graph(b, mask) for b in self.branches]
        outs = bind_all(Cond(tuple([simplify(g) for g, _ in pairs])), *xs, *tangents)
        n = len(self.branches[0].outputs)
        known = [any(marks) for marks in zip(*[k for _, k in pairs], strict=True)]
        return outs[:n], spread_tangents(self.branches[0], known, outs[n:])

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return self.batch_named(size, mapped, None, *xs)

    def batch_named(self, size: int, mapped: Sequence[bool], axis_name: Any, *xs: Any) -> tuple[Any, Any]:
        """``batch`` where collectives over ``axis_name`` inside are meant.

        When the index differs between lanes, all branches are computed and each lane selects its own.
        """
        pairs = [batch_graph(b, size, mapped[1:], axis_name) for b in self.branches]
        marks = [mapped[0] or any(m) for m in zip(*[m for _, m in pairs], strict=True)]
        if not mapped[0]:
            branches = tuple([with_marks(g, size, m, marks) for g, m in pairs])
            return bind_all(Cond(branches), *xs), marks
        index = _clamped(xs[0], len(self.branches))
        outs: list[Any] = []
        for i, (graph, m) in enumerate(pairs):
            here = [y if b else broadcast_leading(y, size) for y, b in zip(replay(graph, xs[1:]), m, strict=True)]
            outs = [_where(apply("eq", index, i), y, o) for y, o in zip(here, outs, strict=True)] if i else here
        return outs, marks

    def prune(self, used: Sequence[bool]) -> Pruned:
        """The cond without the results that are not marked."""
        return prune_cond(self, used)

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.cond(xs[0], self.branches, xs[1:])


def _clamped(index: Any, count: int) -> Any:
    return minimum(maximum(index, 0), count - 1)


def _sum_of_pullbacks(pullbacks: Sequence[Graph], xs: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """The gradients of branches with collectives inside, under a vmap that may map the index.

    There a lane has a part in the branches that other lanes take.  So each branch is pulled back with the cotangents of
    the lanes that took it, zero in the others, and all count.
    """
    index = _clamped(xs[0], len(pullbacks))
    total: list[Any] = [None] * len(pullbacks[0].outputs)
    for i, pullback in enumerate(pullbacks):
        here = apply("eq", index, i)
        grads = replay(pullback, [*xs[1:], *[select(here, ct, 0) for ct in cts]])
        total = [accumulate(t, g) for t, g in zip(total, grads, strict=True)]
    return total


def _where(mask: Any, x: Any, y: Any) -> Any:
    return select(mask if x.aval.ndim == 1 else broadcast(mask, x.aval.shape, (0,)), x, y)


def _reached(graph: Graph, mask: Sequence[bool], with_ct: Sequence[bool]) -> list[bool]:
    """Which marked inputs have a path to an output with a cotangent."""
    active = active_variables(graph, mask)
    need = {a for a, c in zip(graph.outputs, with_ct, strict=True) if c and a in active}
    for eqn in reversed(graph.eqns):
        if any(v in need for v in eqn.outputs):
            need.update([a for a in eqn.inputs if a in active])
    return [v in need for v in graph.inputs]


def _pullback(graph: Graph, wrt: Sequence[bool], with_ct: Sequence[bool]) -> Graph:
    """The vjp of a branch alone: [operands, cotangents] to gradients."""
    key = ("pullback", tuple(wrt), tuple(with_ct))
    if key not in graph.memo:
        joint = vjp_graph(graph, wrt, with_ct)
        grads = joint.outputs[len(graph.outputs) :]
        graph.memo[key] = simplify(Graph(joint.inputs, eliminate(joint.eqns, grads), grads, joint.name))
    found: Graph = graph.memo[key]
    return found
