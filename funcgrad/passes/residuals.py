"""Residuals: what a checkpoint could keep, what each costs to compute again, where its graph is narrow; and the order
of a recomputation.

In: the forward half of a vjp and the values that its backward half reads.  Out: sets of variables to keep, by two
numbers: into how many ``pieces`` the graph is cut (what crosses the cuts is kept), and a ``level`` that says how much
is kept besides, what costs most to compute again for each byte first.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Sequence

from funcgrad.ir import Equation, Graph, Var
from funcgrad.passes.cost import flops_of
from funcgrad.passes.simplify import has_effect, has_effects

__all__ = ["LEVELS", "Offer", "as_late", "choices", "pieces_by_estimate", "value_half"]

LEVELS = 32
MOST_PIECES = 64


def value_half(graph: Graph, joint: Graph) -> tuple[Graph, list[Var]]:
    """The equations of a graph's vjp that the graph's outputs need, as a graph, and what all others read of them."""
    num_outputs = len(graph.outputs)
    needed: set[object] = set(joint.outputs[:num_outputs])
    values: list[Equation] = []
    others: list[Equation] = []
    for eqn in reversed(joint.eqns):
        mine = has_effect(eqn) or any([v in needed for v in eqn.outputs])  # noqa: C419 (faster)
        (values if mine else others).append(eqn)
        if mine:
            needed.update(eqn.inputs)
    made = {v for e in values for v in e.outputs}
    reads = [a for e in reversed(others) for a in e.inputs] + list(joint.outputs[num_outputs:])
    residuals = list(dict.fromkeys([a for a in reads if isinstance(a, Var) and a in made]))
    return Graph(joint.inputs, values[::-1], joint.outputs[:num_outputs], graph.name), residuals


class Offer:
    """What one checkpoint could keep: ``residuals`` are what its backward half reads of the graph of its values.

    Kept in any case is what is a result, and single elements: which branch was taken must not be decided once more, by
    sums that are rounded otherwise.
    """

    def __init__(self, values: Graph, residuals: Sequence[Var]):
        self.eqns = values.eqns
        there = set(values.outputs)
        self.free = [v for v in residuals if v in there or v.aval.size == 1]
        self.wanted = set(residuals) - set(self.free)
        self.place = {v: i for i, e in enumerate(self.eqns) for v in e.outputs}
        self.amount = self._amounts()
        self.width, self.crossing = self._widths()
        self._cuts: dict[int, tuple[list[Var], int]] = {}

    def _amounts(self) -> list[int]:
        """Bytes of the residuals made up to and with each equation."""
        out, total = [], 0
        for eqn in self.eqns:
            total += sum([v.aval.nbytes for v in eqn.outputs if v in self.wanted])
            out.append(total)
        return out

    def _widths(self) -> tuple[list[int], Callable[[int], list[Var]]]:
        """Bytes made before and read after each equation, and which variables those are."""
        last: dict[Var, int] = {}
        for i, eqn in enumerate(self.eqns):
            last.update([(a, i) for a in eqn.inputs if isinstance(a, Var) and a in self.place])
        change = [0] * (len(self.eqns) + 1)
        for v, end in last.items():
            change[self.place[v]] += v.aval.nbytes
            change[end] -= v.aval.nbytes
        width, total = [], 0
        for c in change[:-1]:
            total += c
            width.append(total)
        rows = list(last.items())
        return width, functools.cache(lambda i: [v for v, end in rows if self.place[v] <= i < end])

    def cuts(self, pieces: int) -> tuple[list[Var], int]:
        """What crosses the cuts between so many pieces, and the bytes of the residuals in the largest piece."""
        if pieces not in self._cuts:
            self._cuts[pieces] = self._find_cuts(pieces)
        return self._cuts[pieces]

    def _find_cuts(self, pieces: int) -> tuple[list[Var], int]:
        total = self.amount[-1] if self.amount else 0
        found: dict[Var, None] = {}
        before = largest = 0
        for k in range(1, pieces if total else 1):
            low, high = (2 * k - 1) * total / (2 * pieces), (2 * k + 1) * total / (2 * pieces)
            near = range(bisect_left(self.amount, low), bisect_left(self.amount, high))
            if near:
                at = min(near, key=lambda i: (self.width[i], abs(self.amount[i] * pieces - k * total)))
                found.update(dict.fromkeys(self.crossing(at)))
                largest, before = max(largest, self.amount[at] - before), self.amount[at]
        return list(found), max(largest, total - before)

    def groups(self) -> list[tuple[float, int, list[Var]]]:
        """The residuals by the equation that makes them: operations per byte to make them again from others, bytes."""
        out = []
        for eqn in self.eqns:
            vs = [v for v in eqn.outputs if v in self.wanted]
            size = sum([v.aval.nbytes for v in vs])
            if vs:
                out.append((self._work(eqn) / max(size, 1), size, vs))
        return out

    def _work(self, eqn: Equation) -> int:
        """Operations of an equation and of those before it, back to inputs and other residuals."""
        seen: set[Equation] = set()
        stack = [eqn]
        while stack:
            e = stack.pop()
            if e not in seen:
                seen.add(e)
                inputs = [a for a in e.inputs if isinstance(a, Var) and a in self.place and a not in self.wanted]
                stack += [self.eqns[self.place[a]] for a in inputs]
        return sum([flops_of(e) for e in seen])


def pieces_by_estimate(offers: Sequence[Offer]) -> list[int]:
    """Numbers of pieces worth trying, the one with the smallest estimated peak first.

    The estimate is Chen et al.'s (Training deep nets with sublinear memory cost, arXiv:1604.06174, section 4.2): all
    that crosses the cuts, and the values of the largest piece.
    """

    def estimate(pieces: int) -> int:
        found = [o.cuts(pieces) for o in offers]
        kept = sum([v.aval.nbytes for vs, _ in found for v in vs])
        return kept + max([largest for _, largest in found], default=0)

    best = min(range(1, MOST_PIECES + 1), key=lambda m: (estimate(m), m))
    near = dict.fromkeys([best, max(best // 2, 1), min(2 * best, MOST_PIECES), 1])
    return [m for m in near if estimate(m) <= 1.3 * estimate(best)]


def choices(offers: Sequence[Offer]) -> list[list[tuple[int, int]]]:
    """For each level the groups kept, as (offer, group); level 0 keeps none, the last one all."""
    rows = [
        (-work, -n, k, size) for n, o in enumerate(offers) for k, (work, size, _) in enumerate(o.groups())
    ]  # of equals those of the last offer first: theirs are needed for the shortest time
    rows.sort()
    total = sum([size for _, _, _, size in rows])
    levels: list[list[tuple[int, int]]] = []
    for level in range(LEVELS + 1):
        kept, used = [], 0
        for _, n, k, size in rows:
            used += size
            if used * LEVELS > total * level:
                break
            kept.append((-n, k))
        levels.append(kept)
    return levels


def as_late(graph: Graph, num_late: int) -> Graph:
    """Return the graph with what does not depend on its last ``num_late`` inputs moved to just before its first use.

    So a recomputation is done piece by piece, as the backward half comes to need it.
    """
    if has_effects(graph):
        return graph
    dependent = set(graph.inputs[len(graph.inputs) - num_late :])
    waiting: dict[Var, int] = {}
    eqns: list[Equation] = []
    done: set[int] = set()

    def need(atoms: Sequence[object]) -> None:
        found: set[int] = set()
        stack = [waiting[a] for a in atoms if isinstance(a, Var) and a in waiting]
        while stack:
            i = stack.pop()
            if i not in done:
                done.add(i)
                found.add(i)
                stack += [waiting[a] for a in graph.eqns[i].inputs if isinstance(a, Var) and a in waiting]
        eqns.extend([graph.eqns[i] for i in sorted(found)])

    for i, eqn in enumerate(graph.eqns):
        if any([isinstance(a, Var) and a in dependent for a in eqn.inputs]):  # noqa: C419 (faster)
            dependent.update(eqn.outputs)
            need(eqn.inputs)
            eqns.append(eqn)
        else:
            waiting.update(dict.fromkeys(eqn.outputs, i))
    need(graph.outputs)
    return Graph(graph.inputs, eqns, graph.outputs, graph.name)
