"""LinearSolve: a solver as one operation whose derivatives are further solves, never those of the solver's steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad.control.call import Call, dense, spread, with_marks
from funcgrad.errors import MissingRule, message
from funcgrad.ir import Graph
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.forward import jvp_graph
from funcgrad.passes.reverse import vjp_graph
from funcgrad.passes.simplify import eliminate
from funcgrad.primitive import Primitive, accumulate, broadcast_leading, dataclass, zeros
from funcgrad.prims.pointwise import neg
from funcgrad.trace import bind_all, replay, trace

__all__ = ["LinearSolve", "transposed"]


def transposed(matvec: Graph, num_closed: int) -> Graph:
    """The graph of the transpose: what ``matvec`` closes over and a cotangent in, the product with it out."""
    n = len(matvec.inputs) - num_closed
    joint = vjp_graph(matvec, [False] * num_closed + [True] * n)

    def run(*xs: Any) -> list[Any]:
        at = [zeros(a) for a in matvec.in_avals[num_closed:]]
        m = len(matvec.outputs)
        grads = Graph(joint.inputs, eliminate(joint.eqns, joint.outputs[m:]), joint.outputs[m:])
        return replay(grads, [*xs[:num_closed], *at, *xs[num_closed:]])

    return trace(run, [*matvec.in_avals[:num_closed], *matvec.out_avals], name=f"transpose({matvec.name})").graph


@dataclass(frozen=True, eq=False)
class LinearSolve(Call):
    """``graph`` maps what is closed over and b to x with ``matvec`` (closed over, x) = b; ``back`` solves the
    transpose.

    From A x = b follows A dx = db - dA x: the tangent is a solve, and the cotangent of b is y with A^T y = ct, that of
    A the cotangent of A x for -y.
    """

    matvec: Graph | None = None
    back: Graph | None = None
    num_closed: int = 0
    name = "linear_solve"
    jvp_joint = linear_halves = None  # type: ignore[assignment]  # the tangent is a solve of its own

    def _product(self) -> Graph:
        assert self.matvec is not None
        return self.matvec

    def turned(self) -> LinearSolve:
        """The solve with the transpose."""
        if self.back is None:
            way_out = "pass transpose_solve, or symmetric=True where the operator is its own transpose"
            raise MissingRule(message(f"custom_linear_solve of {self.label}", "has no reverse mode", "", way_out))
        k = self.num_closed
        return LinearSolve(self.back, self.label, transposed(self._product(), k), self.graph, k)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        k, product = self.num_closed, self._product()
        rhs = [zeros(x.aval) if t is None else t for t, x in zip(ts[k:], xs[k:], strict=True)]
        mask = [t is not None and dtypes.is_float(x.aval.dtype) for t, x in zip(ts[:k], xs[:k], strict=True)]
        if any(mask):
            graph, _ = jvp_graph(product, [*mask, *[False] * (len(xs) - k)])
            n = len(product.outputs)
            pushed = Graph(graph.inputs, eliminate(graph.eqns, graph.outputs[n:]), graph.outputs[n:])
            tangents = [t for t, m in zip(ts[:k], mask, strict=True) if m]
            moved = replay(pushed, [*xs[:k], *out, *tangents])
            rhs = [accumulate(r, neg(m)) for r, m in zip(rhs, moved, strict=True)]
        return bind_all(self, *xs[:k], *rhs)

    def halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., Any]]:
        k, product, back = self.num_closed, self._product(), self.turned()
        wrt = [m and dtypes.is_float(a.dtype) for m, a in zip(mask, self.graph.in_avals, strict=True)]

        def backward(ct: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
            y = bind_all(back, *xs[:k], *dense(ct, self.graph.outputs))
            grads = [v if m else None for v, m in zip(y, wrt[k:], strict=True)]
            if not any(wrt[:k]):
                return [*[None] * k, *grads]
            joint = vjp_graph(product, [*wrt[:k], *[False] * len(y)])
            n = len(product.outputs)
            pulled = Graph(joint.inputs, eliminate(joint.eqns, joint.outputs[n:]), joint.outputs[n:])
            found = replay(pulled, [*xs[:k], *outs[: len(self.graph.outputs)], *map(neg, y)])
            return [*spread(found, wrt[:k]), *grads]

        return self, backward

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return self.batch_named(size, mapped, None, *xs)

    def batch_named(self, size: int, mapped: Sequence[bool], axis_name: Any, *xs: Any) -> tuple[Any, Any]:
        k = self.num_closed
        marks = [*mapped[:k], *[True] * (len(xs) - k)]

        def batched(graph: Graph | None) -> Graph | None:
            if graph is None:
                return None
            many, have = batch_graph(graph, size, marks, axis_name)
            return with_marks(many, size, have, [True] * len(have))

        graph = batched(self.graph)
        assert graph is not None
        prim = LinearSolve(graph, self.label, batched(self.matvec), batched(self.back), k)
        full = [x if m else broadcast_leading(x, size) for x, m in zip(xs[k:], mapped[k:], strict=True)]
        return bind_all(prim, *xs[:k], *full), [True] * len(self.graph.outputs)
