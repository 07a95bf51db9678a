"""Recompute: let a fused equation compute again what costs little, instead of another one writing it for it to read.

In: ``c, l = fused { c = add a b; t = tanh c; l = mul c t } a b`` and later ``g = fused { .. c .. } c x``.  Out: the
first gives ``l`` alone and the second starts with ``add a b``: an array less is written, kept and read.  It never makes
more bytes be kept: what a consumer reads instead is there already, or no larger than what it replaces.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from funcgrad.ir import Atom, Equation, Graph, Literal, Var
from funcgrad.passes.fuse import Fused, FusedRows
from funcgrad.passes.simplify import eliminate
from funcgrad.primitive import Pointwise
from funcgrad.prims.layout import Broadcast

__all__ = ["recompute"]

ARITHMETIC = ("add", "sub", "mul", "mul_nz", "div", "div_nz", "neg", "square", "abs", "max", "min")
CHOICES = ("select", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "convert", "stop_gradient")
CHEAP = frozenset(ARITHMETIC + CHOICES)
MOST = 4  # equations that are worth an array


class _Chain(NamedTuple):
    """How a value is computed again: equations over values of the producer's graph, and what those are outside."""

    eqns: list[Equation]
    leaves: dict[Any, Any]  # inner variable: outer atom, or None where it is the broadcast of a value of rows


class _Producer:
    """A fused equation while its results are examined."""

    def __init__(self, eqn: Equation):
        assert isinstance(eqn.prim, Fused)
        self.eqn, self.body = eqn, eqn.prim.graph
        self.made = {e.outputs[0]: e for e in self.body.eqns}
        self.outside: dict[Any, Atom] = dict(zip(self.body.inputs, eqn.inputs, strict=True))
        self.outside.update(zip(self.body.outputs, eqn.outputs, strict=True))
        self.results = dict(zip(self.body.outputs, eqn.outputs, strict=True))  # what remains

    def chain(self, v: Any) -> _Chain | None:
        """How to compute a result from what stays there, or None when that is not cheap."""
        eqns: dict[int, Equation] = {}
        leaves: dict[Any, Any] = {}
        stack: list[Any] = [v]
        while stack:
            a = stack.pop()
            if isinstance(a, Literal) or a in leaves:
                continue
            if a is not v and (a in self.results or a not in self.made):
                leaves[a] = self.outside[a]
                continue
            eqn = self.made[a]
            if eqn.prim.name == "broadcast":
                leaves[a] = None
                continue
            if eqn.prim.name not in CHEAP:
                return None
            eqns[id(eqn)] = eqn
            if len(eqns) > MOST:
                return None
            stack += eqn.inputs
        return _Chain([e for e in self.body.eqns if id(e) in eqns], leaves)

    def shrunk(self, extra: dict[Any, Var]) -> Equation:
        """The equation without the results that are gone, and with further ones."""
        outs = {**self.results, **extra}
        eqns = eliminate(self.body.eqns, list(outs))
        read = {a for e in eqns for a in e.inputs}
        inputs = [v for v in self.body.inputs if v in read]
        prim = self.eqn.prim
        body = Graph(inputs, eqns, list(outs))
        made = FusedRows(body, prim.shape) if isinstance(prim, FusedRows) else Fused(body)
        return Equation(made, [self.outside[v] for v in inputs], list(outs.values()), self.eqn.site)


class _Pass:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.eqns: list[list[Equation]] = [[e] for e in graph.eqns]  # each with views appended
        self.fixed: set[Any] = {*graph.outputs}
        self.given: set[Any] = {*graph.inputs}
        self.readers: dict[Any, dict[int, None]] = {}
        self.free: set[Any] = set()  # views of something smaller
        for i, eqn in enumerate(graph.eqns):
            for a in eqn.inputs:
                self.readers.setdefault(a, {})[i] = None
            if eqn.prim.name == "broadcast":
                self.free.add(eqn.outputs[0])

    def run(self) -> Graph:
        for i, eqn in enumerate(self.graph.eqns):
            if isinstance(eqn.prim, Fused):
                self._producer(i)
        return Graph(self.graph.inputs, [e for es in self.eqns for e in es], self.graph.outputs, self.graph.name)

    def _producer(self, i: int) -> None:
        producer = _Producer(self.eqns[i][0])
        extra: dict[Any, Var] = {}
        views: dict[Any, Equation] = {}
        before = len(producer.results)
        for v, o in list(producer.results.items()):
            readers = list(self.readers.get(o, ()))
            if o in self.fixed or not readers or not all(_computes(self.eqns[r][0]) for r in readers):
                continue
            chain = producer.chain(v)
            if chain is None or not self._worth(o, chain, readers):
                continue
            del producer.results[v]
            names = {
                a: b if b is not None else self._spread(producer, a, extra, views) for a, b in chain.leaves.items()
            }
            for r in readers:
                self._rewrite(r, o, v, chain.eqns, names)
        if len(producer.results) < before:
            self.eqns[i] = [producer.shrunk(extra), *views.values(), *self.eqns[i][1:]]

    def _worth(self, o: Any, chain: _Chain, readers: list[int]) -> bool:
        """Whether no more bytes are kept than before."""
        new = 0
        for a in {b for b in chain.leaves.values() if isinstance(b, Var) and b not in self.free and b.aval.shape}:
            if all(a in self.eqns[r][0].inputs for r in readers):
                continue
            if a in self.given:  # perhaps donated: to be read no longer than now
                return False
            new += a.aval.nbytes
        return new <= int(o.aval.nbytes)

    def _spread(self, p: _Producer, v: Any, extra: dict[Any, Var], views: dict[Any, Equation]) -> Var:
        """Outside, the broadcast of a value of rows, which becomes a result."""
        if v not in views:
            root: Any = p.made[v].inputs[0]
            while root in p.made and p.made[root].prim.name == "reshape":
                root = p.made[root].inputs[0]
            source: Any = p.results.get(root) or extra.get(root)
            if root not in p.made:
                source = p.outside[root]
            elif source is None:
                source = extra[root] = Var(root.aval)
            prim = Broadcast(v.aval.shape, tuple(range(root.aval.ndim)))
            views[v] = Equation(prim, [source], [Var(v.aval)], p.eqn.site)
            self.free.add(views[v].outputs[0])
        return views[v].outputs[0]

    def _rewrite(self, r: int, o: Any, v: Any, chain: list[Equation], names: dict[Any, Any]) -> None:
        """Let equation number r begin with the chain instead of reading ``o``."""
        eqn = self.eqns[r][0]
        if isinstance(eqn.prim, Fused):
            body, shape = eqn.prim.graph, eqn.prim.shape if isinstance(eqn.prim, FusedRows) else None
            inner: dict[Any, Any] = dict(zip(eqn.inputs, body.inputs, strict=True))
            eqns, outs = list(body.eqns), list(body.outputs)
        else:
            inner = {a: Var(a.aval) for a in eqn.inputs if isinstance(a, Var)}
            made = Var(eqn.outputs[0].aval)
            outs, shape = [made], None
            eqns = [Equation(eqn.prim, [inner.get(a, a) for a in eqn.inputs], [made], eqn.site)]
        target = inner.pop(o)
        renamed: dict[Any, Any] = {v: target}
        for a, b in names.items():
            if isinstance(b, Var):
                renamed[a] = inner.setdefault(b, Var(b.aval))
                self.readers.setdefault(b, {})[r] = None
            else:
                renamed[a] = b
        start = []
        for e in chain:
            out = renamed.setdefault(e.outputs[0], Var(e.outputs[0].aval))
            start.append(Equation(e.prim, [renamed.get(a, a) for a in e.inputs], [out], e.site))
        graph = Graph(list(inner.values()), start + eqns, outs)
        prim = Fused(graph) if shape is None else FusedRows(graph, shape)
        self.eqns[r][0] = Equation(prim, list(inner), eqn.outputs, eqn.site)


def _computes(eqn: Equation) -> bool:
    return isinstance(eqn.prim, (Fused, Pointwise))


def recompute(graph: Graph) -> Graph:
    """Return a fused graph in which cheap values are computed where they are read."""
    return _Pass(graph).run()
