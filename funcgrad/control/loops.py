"""Loops: Scan takes a known number of steps and has both modes of derivative; While runs until its condition fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.control.call import eval_graph, spread_tangents, tangents_of, with_marks
from funcgrad.control.prune import Pruned, prune_scan, prune_while
from funcgrad.control.scan_linear import linear_halves, moving_inputs
from funcgrad.control.scan_reverse import active_operands, halves
from funcgrad.errors import MissingRule, message
from funcgrad.ir import Aval, Graph, Literal, Var
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.forward import jvp_graph
from funcgrad.passes.simplify import simplify
from funcgrad.primitive import Primitive, apply, broadcast_leading
from funcgrad.prims.layout import broadcast, transpose
from funcgrad.prims.pointwise import select
from funcgrad.trace import bind_all, replay, trace


def stacked(aval: Aval, length: int) -> Aval:
    """The type of ``length`` values one behind another."""
    return Aval((length, *aval.shape), aval.dtype)


def inherit_traits(prim: Primitive, graphs: Sequence[Graph]) -> None:
    """Make a primitive effectful, or a collective, when an equation inside is; start its memo of pruned forms."""
    inside = [e.prim for g in graphs for e in g.eqns]
    object.__setattr__(prim, "effectful", any(p.effectful for p in inside))
    object.__setattr__(prim, "collective", any(getattr(p, "collective", False) for p in inside))
    object.__setattr__(prim, "pruned", {})


def swap_leading(x: Any) -> Any:
    """x with its first two axes exchanged: steps and lanes."""
    return transpose(x, (1, 0, *range(2, x.aval.ndim)))


@dataclass(frozen=True, eq=False)
class Scan(Primitive):
    """``length`` steps of ``body``, which maps [consts, carry, a row of each xs] to [carry, a row of each ys].

    Operands are [consts, initial carry, xs], results [final carry, ys]; steps lie along axis 0 of xs and ys.
    ``reverse`` runs from the last row to the first.
    """

    body: Graph
    num_consts: int
    num_carry: int
    length: int
    reverse: bool = False
    name = "scan"
    multiple = True

    def __post_init__(self) -> None:
        inherit_traits(self, [self.body])

    def parts(self, xs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Consts, carry, and the rest."""
        first, last = self.num_consts, self.num_consts + self.num_carry
        return list(xs[:first]), list(xs[first:last]), list(xs[last:])

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        consts, carry, rows = self.parts(self.body.in_avals)
        if tuple(avals) != (*consts, *carry, *[stacked(a, self.length) for a in rows]):
            raise self.shape_error("operands must have the types of the body's inputs, xs stacked", *avals)
        outs = self.body.out_avals
        if outs[: self.num_carry] != tuple(carry):
            raise self.shape_error("the body must return a carry of the type that it takes", *outs)
        return (*carry, *[stacked(a, self.length) for a in outs[self.num_carry :]])

    def eval(self, *xs: Any) -> Any:
        consts, carry, seqs = self.parts(xs)
        avals = self.body.out_avals[self.num_carry :]
        ys = [np.empty((self.length, *a.shape), a.dtype) for a in avals]
        for i in range(self.length)[:: -1 if self.reverse else 1]:
            outs = eval_graph(self.body, *consts, *carry, *[s[i, ...] for s in seqs])
            carry = outs[: self.num_carry]
            for y, row in zip(ys, outs[self.num_carry :], strict=True):
                y[i] = row
        return (*carry, *[dtypes.widen(y) for y in ys])

    def iterations(self, *xs: Any) -> Iterator[tuple[str, Graph, list[Any]]]:
        """Each step as it is run: its name, the body, and the arrays that the body is given."""
        consts, carry, seqs = self.parts(xs)
        for i in range(self.length)[:: -1 if self.reverse else 1]:
            args = [*consts, *carry, *[s[i, ...] for s in seqs]]
            yield f"iteration {i} of scan", self.body, args
            carry = eval_graph(self.body, *args)[: self.num_carry]

    def halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., list[Any]]]:
        """The scan that also stacks residuals, and the backward half: a scan in the opposite direction."""
        return halves(self, mask)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        raise AssertionError("reverse mode takes the halves of a scan")

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return self.jvp_joint(ts, *xs)[1]

    def jvp_joint(self, ts: Sequence[Any], *xs: Any) -> tuple[list[Any], list[Any]]:
        """Results and their tangents from one scan that carries both."""
        first, last = self.num_consts, self.num_consts + self.num_carry
        marks, moves, graph = moving_inputs(self, [t is not None for t in ts])
        n, m, k = len(self.body.inputs), len(self.body.outputs), self.num_carry
        t_in = spread_inputs(graph.inputs[n:], marks)
        t_out = refill(graph.outputs[m:], [dtypes.is_float(a.dtype) for a in self.body.out_avals])
        t_out = [t if move else None for t, move in zip(t_out, moves, strict=True)]
        t_carry = spread_carry(self.body, graph.outputs[m:], marks[first:last])
        body = Graph(
            interleave(self.parts(graph.inputs[:n]), self.parts(t_in)),
            graph.eqns,
            [*graph.outputs[:k], *t_carry, *graph.outputs[k:m], *present(t_out[k:])],
            graph.name,
        )
        consts, carry, seqs = self.parts(xs)
        dense = [tangent_or_zeros(t, x, m) for t, x, m in zip(ts, xs, marks, strict=True)]
        t_consts, t_init, t_seqs = [present(p) for p in self.parts(dense)]
        prim = replace(self, body=simplify(body), num_consts=first + len(t_consts), num_carry=k + len(t_init))
        outs = bind_all(prim, *consts, *t_consts, *carry, *t_init, *seqs, *t_seqs)
        at, rows = k + len(t_init), m - k
        primals = [*outs[:k], *outs[at : at + rows]]
        tangents = [
            *refill(outs[k:at], marks[first:last]),
            *refill(outs[at + rows :], [t is not None for t in t_out[k:]]),
        ]
        return primals, tangents

    def linear_halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., list[Any]]]:
        """The scan that also stacks what its tangents need, and the tangents: a scan in the same direction."""
        return linear_halves(self, mask)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return self.batch_named(size, mapped, None, *xs)

    def batch_named(self, size: int, mapped: Sequence[bool], axis_name: Any, *xs: Any) -> tuple[Any, Any]:
        """``batch`` where collectives over ``axis_name`` inside are meant."""
        k = self.num_carry
        m_consts, m_carry, m_seqs = self.parts(mapped)
        while True:
            graph, marks = batch_graph(self.body, size, [*m_consts, *m_carry, *m_seqs], axis_name)
            more = [a or b for a, b in zip(m_carry, marks[:k], strict=True)]
            if more == m_carry:
                break
            m_carry = more
        m_out = (*m_carry, *marks[k:])
        prim = replace(self, body=with_marks(graph, size, marks, m_out))
        consts, carry, seqs = self.parts(xs)
        init = [
            broadcast_leading(x, size) if m and not was else x
            for x, m, was in zip(carry, m_carry, self.parts(mapped)[1], strict=True)
        ]
        outs = bind_all(prim, *consts, *init, *[swap_leading(x) if m else x for x, m in zip(seqs, m_seqs, strict=True)])
        ys = [swap_leading(y) if m else y for y, m in zip(outs[k:], m_out[k:], strict=True)]
        return [*outs[:k], *ys], m_out

    def prune(self, used: Sequence[bool]) -> Pruned:
        """The scan without the results that are not marked."""
        return prune_scan(self, used)

    def lower(self, g: Any, *xs: Any) -> Any:
        consts, carry, seqs = self.parts(xs)
        final, ys = g.scan(self.body, consts, carry, seqs, self.length, self.reverse)
        return [*final, *ys]


# -- tangents in loops -------------------------------------------------------------------------------------------
def present(xs: Sequence[Any]) -> list[Any]:
    """Those that are not None."""
    return [x for x in xs if x is not None]


def refill(xs: Sequence[Any], marks: Sequence[bool]) -> list[Any]:
    """The inverse of ``present``: None where there is no mark."""
    it = iter(xs)
    return [next(it) if m else None for m in marks]


def spread_inputs(tangents: Sequence[Var], marks: Sequence[bool]) -> list[Any]:
    """One tangent input per input, None for those without."""
    return refill(tangents, marks)


def spread_carry(body: Graph, tangents: Sequence[Any], marks: Sequence[bool]) -> list[Any]:
    """The tangent outputs of the marked carries; ``tangents`` has one per float output of the body."""
    every = refill(tangents, [dtypes.is_float(a.dtype) for a in body.out_avals])
    return [t for t, m in zip(every, marks, strict=False) if m]


def tangent_or_zeros(t: Any, x: Any, mark: bool) -> Any:
    """The tangent of a marked operand, dense; None for others."""
    if not mark:
        return None
    return t if t is not None else broadcast(Literal(0, x.aval.dtype), x.aval.shape, ())


def interleave(xs: Sequence[Sequence[Any]], ts: Sequence[Sequence[Any]]) -> list[Any]:
    """Group by group the values, then their tangents."""
    return [v for group, t in zip(xs, ts, strict=True) for v in (*group, *present(t))]


# -- while -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class While(Primitive):
    """``body`` again and again while ``cond`` holds of the carry.

    ``cond`` maps [its consts, carry] to a bool scalar, ``body`` [its consts, carry] to a carry of the same types.
    Operands are [consts of cond, consts of body, initial carry], results the final carry.
    """

    cond: Graph
    body: Graph
    cond_nconsts: int
    body_nconsts: int
    name = "while"
    multiple = True

    def __post_init__(self) -> None:
        inherit_traits(self, [self.cond, self.body])

    def parts(self, xs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Consts of the condition, consts of the body, carry."""
        first, last = self.cond_nconsts, self.cond_nconsts + self.body_nconsts
        return list(xs[:first]), list(xs[first:last]), list(xs[last:])

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        cond_consts, body_consts, carry = self.parts(avals)
        if self.cond.in_avals != (*cond_consts, *carry) or self.body.in_avals != (*body_consts, *carry):
            raise self.shape_error("operands must have the types of the graphs' inputs", *avals)
        if self.cond.out_avals != (Aval((), dtypes.bool_),):
            raise self.shape_error("the condition must be a bool scalar", *self.cond.out_avals)
        if self.body.out_avals != tuple(carry):
            raise self.shape_error("the body must return a carry of the type that it takes", *self.body.out_avals)
        return tuple(carry)

    def eval(self, *xs: Any) -> Any:
        cond_consts, body_consts, carry = self.parts(xs)
        while eval_graph(self.cond, *cond_consts, *carry)[0]:
            carry = eval_graph(self.body, *body_consts, *carry)
        return tuple([dtypes.widen(x) for x in carry])

    def iterations(self, *xs: Any) -> Iterator[tuple[str, Graph, list[Any]]]:
        """Each step as it is run: its name, the body, and the arrays that the body is given."""
        cond_consts, body_consts, carry = self.parts(xs)
        i = 0
        while eval_graph(self.cond, *cond_consts, *carry)[0]:
            yield f"iteration {i} of while", self.body, [*body_consts, *carry]
            carry = eval_graph(self.body, *body_consts, *carry)
            i += 1

    def halves(self, mask: Sequence[bool]) -> tuple[Primitive, Callable[..., list[Any]]]:
        """The loop itself, and a backward half that raises when a cotangent reaches a result that matters."""
        _, m_body, m_carry = self.parts(mask)
        as_scan = Scan(self.body, self.body_nconsts, len(m_carry), 0)
        active = active_operands(as_scan, [*m_body, *m_carry])[self.body_nconsts :]

        def backward(ct: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
            if all(c is None or not a for c, a in zip(ct, active, strict=True)):
                return [None] * len(xs)
            why = "has no reverse mode: the number of steps is known only when it runs, and so is how much to save"
            way_out = (
                "use lax.scan, or lax.fori_loop with bounds that are Python integers (a fixed number of steps; "
                "fg.checkpoint around the body saves memory); or forward mode (fg.jvp, fg.jacfwd); or lax.stop_gradient"
            )
            raise MissingRule(message("while_loop", why, "", way_out))

        return self, backward

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        raise AssertionError("reverse mode takes the halves of a loop")

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return self.jvp_joint(ts, *xs)[1]

    def jvp_joint(self, ts: Sequence[Any], *xs: Any) -> tuple[list[Any], list[Any]]:
        """Results and their tangents from one loop that carries both."""
        cond_consts, body_consts, carry = self.parts(xs)
        n = self.body_nconsts
        t_operands = self.parts(ts)
        marks = list(tangents_of(self.body, [*t_operands[1], *t_operands[2]])[0])
        while True:
            graph, known = jvp_graph(self.body, marks)
            more = [m or bool(t) for m, t in zip(marks[n:], spread_tangents(self.body, known, known), strict=True)]
            if more == marks[n:]:
                break
            marks[n:] = more
        k = len(carry)
        t_in = spread_inputs(graph.inputs[n + k :], marks)
        inputs = [*graph.inputs[:n], *present(t_in[:n]), *graph.inputs[n : n + k], *present(t_in[n:])]
        body = Graph(
            inputs, graph.eqns, [*graph.outputs[:k], *spread_carry(self.body, graph.outputs[k:], marks[n:])], graph.name
        )
        blind = [Var(v.aval) for v in present(t_in[n:])]
        cond = Graph([*self.cond.inputs, *blind], self.cond.eqns, self.cond.outputs, self.cond.name)
        pairs = zip([*t_operands[1], *t_operands[2]], [*body_consts, *carry], marks, strict=True)
        dense = [tangent_or_zeros(t, x, m) for t, x, m in pairs]
        t_consts, t_carry = present(dense[:n]), present(dense[n:])
        prim = While(cond, simplify(body), self.cond_nconsts, n + len(t_consts))
        outs = bind_all(prim, *cond_consts, *body_consts, *t_consts, *carry, *t_carry)
        return outs[:k], refill(outs[k:], marks[n:])

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        return self.batch_named(size, mapped, None, *xs)

    def batch_named(self, size: int, mapped: Sequence[bool], axis_name: Any, *xs: Any) -> tuple[Any, Any]:
        """``batch`` where collectives over ``axis_name`` inside are meant.

        When the condition differs between lanes, the loop runs until it fails in all of them, and a lane that is done
        keeps its values.
        """
        m_cond, m_body, m_carry = self.parts(mapped)
        was = list(m_carry)
        while True:
            cond, (m_pred,) = batch_graph(self.cond, size, [*m_cond, *m_carry], axis_name)
            body, marks = batch_graph(self.body, size, [*m_body, *m_carry], axis_name)
            more = [m_pred or a or b for a, b in zip(m_carry, marks, strict=True)]
            if more == m_carry:
                break
            m_carry = more
        body = with_marks(body, size, marks, m_carry)
        cond_consts, body_consts, carry = self.parts(xs)
        init = [broadcast_leading(x, size) if m and not w else x for x, m, w in zip(carry, m_carry, was, strict=True)]
        if m_pred:
            outs = self._batch_mapped(size, cond, body, cond_consts, body_consts, init)
        else:
            outs = bind_all(replace(self, cond=cond, body=body), *cond_consts, *body_consts, *init)
        return outs, m_carry

    def _batch_mapped(
        self, size: int, cond: Graph, body: Graph, cond_consts: list[Any], body_consts: list[Any], init: list[Any]
    ) -> list[Any]:
        """The loop over all lanes; its first carry says which of them still run."""
        n_cond, n_body, k = self.cond_nconsts, self.body_nconsts, len(init)
        running = Aval((size,), dtypes.bool_)

        def any_runs(alive: Any, *carry: Any) -> list[Any]:
            return [apply("reduce_any", alive, axes=(0,))]

        def step(*args: Any) -> list[Any]:
            c_consts, b_consts = args[:n_cond], args[n_cond : n_cond + n_body]
            alive, *old = args[n_cond + n_body :]
            new = [_where_alive(alive, a, b) for a, b in zip(replay(body, [*b_consts, *old]), old, strict=True)]
            return [apply("and", alive, replay(cond, [*c_consts, *new])[0]), *new]

        avals = [x.aval for x in init]
        consts = [*cond_consts, *body_consts]
        new_cond = trace(any_runs, [running, *avals], name=cond.name).graph
        new_body = trace(step, [*[x.aval for x in consts], running, *avals], name=body.name).graph
        alive = replay(cond, [*cond_consts, *init])[0]
        prim = While(new_cond, new_body, 0, n_cond + n_body)
        return bind_all(prim, *consts, alive, *init)[1 : k + 1]

    def prune(self, used: Sequence[bool]) -> Pruned:
        """The loop without the results that are not marked."""
        return prune_while(self, used)

    def lower(self, g: Any, *xs: Any) -> Any:
        cond_consts, body_consts, carry = self.parts(xs)
        return g.while_loop(self.cond, cond_consts, self.body, body_consts, carry)


def _where_alive(alive: Any, new: Any, old: Any) -> Any:
    mask = alive if new.aval.ndim == 1 else broadcast(alive, new.aval.shape, (0,))
    return select(mask, new, old)
