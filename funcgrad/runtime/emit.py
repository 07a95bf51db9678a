"""The emitter: a graph becomes kernel nodes with a memory plan.

``Emitter`` is the ``g`` of every primitive's ``lower``.  Pointwise primitives go through :class:`Program`: one MAP
kernel for each equation or, with a ``fused`` primitive, for a whole group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad.ir import Aval, Equation, Graph, Var
from funcgrad.primitive import Pointwise, Primitive
from funcgrad.runtime import ggml
from funcgrad.runtime.aims import Aim, backwards, find_aims
from funcgrad.runtime.emit_contract import Contractions
from funcgrad.runtime.emit_control import Control
from funcgrad.runtime.emit_core import plus_zero
from funcgrad.runtime.emit_index import Indexing
from funcgrad.runtime.emit_rows import RowProgram, Rows
from funcgrad.runtime.plan import Buf, Node, Plan, make_plan
from funcgrad.runtime.program import Const, Program, Reg
from funcgrad.runtime.release import released
from funcgrad.runtime.tiling import tile
from funcgrad.runtime.views import IOTA, View, row_major

__all__ = ["Emitter"]


class Emitter(Contractions, Indexing, Control, Rows):
    """Lowers one graph; its verbs are what primitives' ``lower`` may call.

    ``prepare`` is applied to the graphs of loops and branches before they are lowered.
    """

    tiled = True  # whether chains of nodes run in pieces that a cache holds
    slack = 0  # bytes of the workspace that are not used again at once
    aimed = False  # whether products write their results where they are wanted

    def __init__(self, prepare: Callable[[Graph], Graph] | None = None) -> None:
        super().__init__()
        self.prepare = prepare
        self._programs: dict[Any, Any] = {}  # assembled programs of single equations

    def lower(self, graph: Graph, donate: frozenset[int] = frozenset(), pairs: dict[int, int] | None = None) -> Plan:
        """Lower a whole graph and plan its memory.

        ``donate`` numbers the arguments whose memory results may take.  For a part of a loop ``pairs`` says instead
        which result (by number) replaces which argument.
        """
        inputs = [Buf(v.aval, "input", i) for i, v in enumerate(graph.inputs)]
        views = [View(b.aval, b, 0, row_major(b.aval.shape, b.aval.dtype.itemsize), True) for b in inputs]
        outs = self.call(graph, views)
        self.site = None
        claimed: set[Buf] = set()
        bufs = [self._result(j, v, claimed, donate, pairs) for j, v in enumerate(outs)]
        plan = make_plan(self.arranged(bufs), inputs, bufs, donate, pairs, self._copy_node, self.slack)
        if self.tiled:
            plan.measure = ggml.load().scratch_bytes
            plan.events = released(plan) if pairs is None else []
        return plan

    def arranged(self, results: Sequence[Buf]) -> list[Node]:
        """The nodes as the device runs them."""
        return tile(self.nodes)

    def _result(self, j: int, v: View, claimed: set[Buf], donate: frozenset[int], pairs: dict[int, int] | None) -> Buf:
        """The buffer of a result: the one it is in, if that is nobody else's, or else a copy."""
        b = v.buf
        if v.whole and b is not IOTA and b not in claimed:
            donated = b.index in donate if pairs is None else pairs.get(j, -1) == b.index
            if b.kind == "temp" or donated:
                claimed.add(b)
                if b.kind == "temp":
                    b.kind, b.index, b.aval = "output", j, v.aval
                return b
        out = self.new(v.aval)
        self.copy(v, out)
        out.buf.kind, out.buf.index = "output", j
        claimed.add(out.buf)
        return out.buf

    def _copy_node(self, src: Buf, dst: Buf) -> Node:
        views = [View(b.aval, b, 0, row_major(b.aval.shape, b.aval.dtype.itemsize), True) for b in (src, dst)]
        self.copy(*views)
        return self.nodes.pop()

    def part(self, graph: Graph, pairs: dict[int, int] | None = None) -> Plan:
        return type(self)(self.prepare).lower(self.prepare(graph) if self.prepare else graph, pairs=pairs or {})

    # -- walking a graph -----------------------------------------------------------------------------------------
    def call(self, graph: Graph, xs: Sequence[View]) -> list[View]:
        """Lower the equations of a graph in order; return its outputs."""
        env: dict[Any, View] = dict(zip(graph.inputs, xs, strict=True))
        aims = find_aims(graph) if self.aimed else {}
        begun: dict[Any, View] = {}
        for eqn in graph.eqns:
            outs = eqn.outputs
            if eqn.site is not None:
                self.site = eqn.site
            if not eqn.prim.effectful and not any([v.aval.size for v in outs]):  # noqa: C419 (faster)
                for v in outs:
                    env[v] = self.empty(v.aval)
                continue
            args = [env[a] if type(a) is Var else self.literal(a) for a in eqn.inputs]
            if isinstance(eqn.prim, Pointwise):
                env[outs[0]] = self.pointwise(eqn.prim, args, outs[0].aval)
            else:
                self.aims = [self._target(aims[v], begun) if v in aims else None for v in outs] if aims else []
                self._lower(eqn, args, env)
                self.aims = []
        return [env[a] if type(a) is Var else self.literal(a) for a in graph.outputs]

    def _lower(self, eqn: Equation, args: list[View], env: dict[Any, View]) -> None:
        prim = eqn.prim
        if prim.name == "fused":
            results = self.fused(vars(prim)["graph"], args)
        elif prim.name == "fused_rows":
            results = self.fused_rows(vars(prim)["graph"], vars(prim)["shape"], args)
        else:
            made = prim.lower(self, *args)
            results = list(made) if prim.multiple else [made]
        for v, r in zip(eqn.outputs, results, strict=True):
            if r.aval is not v.aval and r.aval != v.aval:
                raise AssertionError(f"{prim.name}: lowered to {r.aval}, inferred {v.aval}")
            env[v] = r

    def _target(self, aim: Aim, begun: dict[Any, View]) -> View | None:
        """A view for a result, in new memory or in a whole of which it is a part; ``begun`` has those so far."""
        if aim.whole is None or aim.box is None:
            return backwards(self.new(aim.steps[-1].outputs[0].aval), aim.steps)
        out = aim.whole.outputs[0]
        whole = begun.get(out)
        if whole is None:
            whole = begun[out] = self.new(out.aval)
            self.begun[whole.buf] = whole
        limit = tuple([s.stop for s in aim.box.slices])
        return backwards(whole.slice(aim.box.start, limit, aim.box.step), aim.steps)

    def literal(self, a: Any) -> View:
        """A literal as a constant view."""
        found = self._literals.get(id(a))
        if found is None:
            found = self._literals[id(a)] = a, self.full(a.value, a.aval)  # with a, so that its id stays its own
        return found[1]

    # -- pointwise -----------------------------------------------------------------------------------------------
    def pointwise(self, prim: Primitive, xs: Sequence[View], aval: Aval) -> View:
        """One MAP node for one pointwise primitive; nothing for the identity, a constant where all operands are."""
        key = (type(prim), prim, *[x.aval.dtype if x.value is None else x.value.key() for x in xs])
        known = self._programs.get(key)
        if known is not None and _is_plain(xs):
            out = self.new(aval)
            self._map([x for x in xs if x.value is None], known, [out], aval.shape)
            return out
        g = Program()
        args = [g.load(x) for x in xs]
        if not g.views:
            return self.full(_fold(prim, args), aval)
        made = prim.lower(g, *args)
        if not g.code and type(made) is Reg and g.views[~made.id].aval is aval:
            return g.views[~made.id]
        out, code = self.new(aval), g.assemble([made])
        if _is_plain(xs):
            self._programs[key] = code
        self._map(g.views, code, [out], aval.shape)
        return out

    def fused(self, graph: Graph, xs: Sequence[View]) -> list[View]:
        """One MAP node for a group of pointwise equations; layout equations among them only move inputs' strides."""
        g = Program()
        env: dict[Any, Any] = dict(zip(graph.inputs, xs, strict=True))
        for eqn in graph.eqns:
            args = [env[a] if type(a) is Var else self.literal(a) for a in eqn.inputs]
            if isinstance(eqn.prim, Pointwise):
                regs = [g.load(a) if type(a) is View else a for a in args]
                if all(type(r) is Const for r in regs):
                    env[eqn.outputs[0]] = self.full(_fold(eqn.prim, regs), eqn.outputs[0].aval)
                else:
                    env[eqn.outputs[0]] = g.round(eqn.prim.lower(g, *regs))
            elif len(args) == 1 and type(args[0]) is Reg:
                if eqn.inputs[0].aval.size != 1:
                    raise AssertionError(f"fused: {eqn.prim.name} of a computed value")
                env[eqn.outputs[0]] = args[0]
            else:
                env[eqn.outputs[0]] = eqn.prim.lower(self, *args)
        outs = [env[a] if type(a) is Var else self.literal(a) for a in graph.outputs]
        computed = [i for i, o in enumerate(outs) if not (type(o) is View and o.value is not None)]
        if computed:
            regs = [g.load(outs[i]) if type(outs[i]) is View else outs[i] for i in computed]
            for i, made in zip(computed, self._aimed(g, regs, graph, computed), strict=True):
                outs[i] = made
        return outs

    def _aimed(self, g: Program, regs: list[Any], graph: Graph, computed: Sequence[int]) -> list[View]:
        """Append the MAP node of a group; results that are pieces of a placed array are written there, as x + 0."""
        targets = [self.aims[i] if self.aims else None for i in computed]
        self.aims = []
        avals = [graph.outputs[i].aval for i in computed]
        if not any(t is not None for t in targets):
            return self.map(g, regs, avals)
        for n, (t, aval) in enumerate(zip(targets, avals, strict=True)):
            if t is not None:
                regs[n] = plus_zero(g, regs[n], aval.dtype)
        results = [self.new(aval) if t is None else t for t, aval in zip(targets, avals, strict=True)]
        self._map(g.views, g.assemble(regs), results, avals[0].shape)
        return results

    def fused_rows(self, graph: Graph, shape: tuple[int, ...], xs: Sequence[View]) -> list[View]:
        """One ROWS node for pointwise equations of a shape, folds of its last axis and what is computed of these."""
        g = RowProgram(shape)
        deep: dict[Any, tuple[str, tuple[int, ...]]] = {}  # folds of more axes: the rest is another node's
        env: dict[Any, Any] = dict(zip(graph.inputs, xs, strict=True))
        for eqn in graph.eqns:
            prim, out = eqn.prim, eqn.outputs[0]
            args = [env[a] if type(a) is Var else self.literal(a) for a in eqn.inputs]
            regs = [g.load(a) if type(a) is View else a for a in args]
            g.wide = out.aval.shape in (shape, ())  # a scalar is computed for each element, as it is read
            if isinstance(prim, Pointwise):
                constant = all(type(r) is Const for r in regs)
                env[out] = self.full(_fold(prim, regs), out.aval) if constant else g.round(prim.lower(g, *regs))
            elif prim.name == "reshape":
                env[out] = regs[0]
            elif prim.name == "broadcast":
                env[out] = g.spread(regs[0])
            else:
                env[out] = g.fold(prim.name.removeprefix("reduce_"), regs[0])
                axes = tuple([d for d in vars(prim)["axes"] if d < len(shape) - 1])
                if axes:
                    deep[out] = prim.name.removeprefix("reduce_"), axes
        outs = [env[a] if type(a) is Var else self.literal(a) for a in graph.outputs]
        avals = [Aval(shape[:-1], a.aval.dtype) if a in deep else a.aval for a in graph.outputs]
        results = self.rows(g, [g.load(o) if type(o) is View else o for o in outs], avals)
        return [
            self.reduce(deep[a][0], r, deep[a][1]) if a in deep else r
            for a, r in zip(graph.outputs, results, strict=True)
        ]


def _is_plain(xs: Sequence[View]) -> bool:
    """Whether a program depends on the operands' types alone: no iota, and none of them twice."""
    views = [id(x) for x in xs if x.value is None and x.buf is not IOTA]
    return len(set(views)) == sum([x.value is None for x in xs])


def _fold(prim: Primitive, args: Sequence[Any]) -> Any:
    """The value of a pointwise primitive on constants."""
    return prim.evaluate(*[a.value for a in args])[0]
