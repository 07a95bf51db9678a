"""Fuse: gather pointwise equations of one shape, and what folds and spreads their rows, into single equations.

In: ``c = mul a b; d = exp c; e = add d a``.  Out: ``e = fused { ... } a b``.  A fused equation is one pass over memory.
A group may also hold sums, maxima and minima along the last axis, what is computed of those, and their broadcasts back:
softmax, normalisations and their derivatives become single equations, whatever they are called (``fused_rows``).

A group stays open while only its own members read what it computes, and runs where something else first needs a result;
equations only ever move later, so a checkpoint's recomputation stays where it is.  One linear pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad.ir import Aval, Equation, Graph, Literal, Var, count_uses
from funcgrad.primitive import Pointwise, Primitive, dataclass
from funcgrad.prims.layout import Broadcast, Reshape

__all__ = ["Fused", "FusedRows", "fuse"]

# Registers of the block interpreter must stay in the first-level cache.
MAX_EQUATIONS = 48
MAX_OPERANDS = 24
# Rows that ROWS kernels take; short ones only where there are few, because a fold costs the same for any short row.
COLUMNS = range(8, 8193)
SMALL = 32768
FOLDS = frozenset({"reduce_sum", "reduce_max", "reduce_min"})
VIEWS = frozenset({"reshape", "broadcast"})

Ints = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Fused(Primitive):
    """Pointwise equations as one; its graph's inputs are of one shape or scalars."""

    graph: Graph
    name = "fused"
    multiple = True

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        if tuple(avals) != self.graph.in_avals:
            raise self.shape_error("operands must have the types of the graph's inputs", *avals)
        return self.graph.out_avals

    def eval(self, *xs: Any) -> Any:
        env: dict[Any, Any] = dict(zip(self.graph.inputs, xs, strict=True))
        for eqn in self.graph.eqns:
            outs = eqn.prim.evaluate(*[a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs])
            env.update(zip(eqn.outputs, outs, strict=True))
        return [a.value if isinstance(a, Literal) else env[a] for a in self.graph.outputs]


@dataclass(frozen=True, eq=False)
class FusedRows(Fused):
    """Equations over arrays of ``shape`` and over one value for each of their rows (the last axis).

    Sums over further axes may be among its results; they are finished by a second kernel.
    """

    shape: Ints
    name = "fused_rows"


class _Group:
    """Equations that will run together."""

    __slots__ = ("deep", "eqns", "made", "open", "read", "rows", "shape")

    def __init__(self, shape: Ints):
        self.shape = shape
        self.eqns: list[Equation] = []
        self.made: set[Any] = set()
        self.read: set[Any] = set()
        self.deep: set[Any] = set()  # results of sums over more than rows, which no member can read
        self.open = True
        self.rows = False  # whether rows are folded

    def holds(self, shape: Ints) -> bool:
        """Whether values of a shape may be computed here."""
        return shape == self.shape or (self.rows and self.is_row(shape))

    def is_row(self, shape: Ints) -> bool:
        """Whether this is the shape of one value for each row."""
        outer = self.shape[:-1]
        return bool(outer) and self.shape[-1] != 1 and shape in (outer, (*outer, 1))

    def takes(self, other: _Group) -> bool:
        """Whether the other group's equations may move here."""
        return other.shape == self.shape or (self.rows and not other.rows and self.is_row(other.shape))


class _Fuser:
    """The groups so far, and the equations already placed."""

    def __init__(self, graph: Graph):
        self.out: list[Equation] = []
        self.group_of: dict[Any, _Group] = {}
        self.order: dict[_Group, None] = {}  # open groups, oldest first
        self.uses = count_uses(graph.eqns, graph.outputs)

    def take(self, eqn: Equation) -> None:
        """Put an equation where it belongs."""
        prim = eqn.prim
        if isinstance(prim, Pointwise) and eqn.outputs[0].aval.size > 0:
            self.add(eqn)
        elif not ((prim.name in FOLDS and self.fold(eqn)) or (prim.name in VIEWS and self.view(eqn))):
            self.place(eqn)

    def _open_group(self, a: Any) -> _Group | None:
        """The open group that makes a value which its members can read."""
        group = self.group_of.get(a)
        return group if group is not None and group.open and a not in group.deep else None

    def add(self, eqn: Equation) -> None:
        """Put a pointwise equation into the group of its operands, merging theirs, or into a new one."""
        shape = eqn.outputs[0].aval.shape
        target: _Group | None = None
        for a in eqn.inputs:
            group = self.group_of.get(a)
            if group is None or not group.open or (group is target and a not in group.deep):
                continue
            if a in group.deep or not group.holds(shape) or not self._fits(target, group):
                self.close(group)
                target = None if target is group else target
            elif target is None:
                target = group
            elif target.takes(group):
                target = self._merge(target, group)
            elif group.takes(target):
                target = self._merge(group, target)
            else:
                self.close(group)
        if target is not None and not self._fits(target, None):
            self.close(target)
            target = None
        self._join(target or self._new(shape), eqn)

    def fold(self, eqn: Equation) -> bool:
        """Put a reduction of rows into the group of its operand, or into a new one; False when it is none."""
        x, axes = eqn.inputs[0], vars(eqn.prim)["axes"]
        aval = x.aval
        last = aval.ndim - 1
        if last < 1 or last not in axes or aval.dtype not in dtypes.FLOATS or not aval.size:
            return False
        if not (aval.shape[last] in COLUMNS or (aval.shape[last] > 1 and aval.size <= SMALL)):
            return False
        group = self._open_group(x)
        if group is None or group.shape != aval.shape or not self._fits(group, None):
            if len(axes) > 1:
                return False
            if group is not None:
                self.close(group)
            group = self._new(aval.shape)
        elif len(axes) > 1 and aval.dtype != dtypes.float32:
            return False
        group.rows = True
        self._join(group, eqn)
        if len(axes) > 1:
            group.deep.add(eqn.outputs[0])
        return True

    def view(self, eqn: Equation) -> bool:
        """Keep a reshape or broadcast of values of rows in their group; False when it is something else."""
        x, out = eqn.inputs[0], eqn.outputs[0].aval.shape
        group = self._open_group(x)
        if group is None or not group.rows or not group.is_row(x.aval.shape) or not self._fits(group, None):
            return False
        if eqn.prim.name == "reshape":
            if not group.is_row(out):
                return False
        elif out != group.shape or vars(eqn.prim)["dims"] != tuple(range(x.aval.ndim)):
            return False
        self._join(group, eqn)
        return True

    def _new(self, shape: Ints) -> _Group:
        group = _Group(shape)
        self.order[group] = None
        return group

    def _join(self, group: _Group, eqn: Equation) -> None:
        group.eqns.append(eqn)
        group.made.add(eqn.outputs[0])
        group.read.update(a for a in eqn.inputs if isinstance(a, Var))
        self.group_of[eqn.outputs[0]] = group

    def _fits(self, a: _Group | None, b: _Group | None) -> bool:
        groups = [g for g in (a, b) if g is not None]
        reads = sum(len(g.read) for g in groups)
        return (
            sum(len(g.eqns) for g in groups) < MAX_EQUATIONS and reads - sum(len(g.made) for g in groups) < MAX_OPERANDS
        )

    def _merge(self, a: _Group, b: _Group) -> _Group:
        """Both are open, so neither needs the other's results; their equations keep their order of appearance."""
        same = a.shape == b.shape
        big, small = (b, a) if same and len(b.eqns) > len(a.eqns) else (a, b)
        big.eqns += small.eqns
        big.made |= small.made
        big.read |= small.read
        big.deep |= small.deep
        big.rows = big.rows or small.rows
        for v in small.made:
            self.group_of[v] = big
        small.open = False
        del self.order[small]
        return big

    def place(self, eqn: Equation) -> None:
        """Append another equation after the groups that it reads."""
        for a in eqn.inputs:
            group = self.group_of.get(a)
            if group is not None and group.open:
                self.close(group)
        self.out.append(eqn)

    def close(self, group: _Group) -> None:
        """Append a group as one equation."""
        group.open = False
        del self.order[group]
        self.out += _as_equations(group, self.uses)


def _as_equations(group: _Group, uses: dict[Any, int]) -> list[Equation]:
    """The group as one equation, and the views of its results that others read."""
    if sum(e.prim.name not in VIEWS for e in group.eqns) == 1:
        return group.eqns
    inside: dict[Any, int] = {}
    for eqn in group.eqns:
        for a in eqn.inputs:
            inside[a] = inside.get(a, 0) + 1
    outer = {v for e in group.eqns for v in e.outputs if uses.get(v, 0) > inside.get(v, 0)}
    eqns, views = _views_apart(group.eqns, outer) if group.rows else (group.eqns, [])
    wanted = (outer | {a for v in views for a in v.inputs}) - {v.outputs[0] for v in views}
    outs = [v for e in eqns for v in e.outputs if v in wanted]
    made = {v for e in eqns for v in e.outputs}
    inputs: dict[Var, None] = {}
    for eqn in eqns:
        inputs.update(dict.fromkeys([a for a in eqn.inputs if isinstance(a, Var) and a not in made]))
    body = Graph(list(inputs), eqns, outs)
    prim = FusedRows(body, group.shape) if group.rows else Fused(body)
    return [Equation(prim, list(inputs), outs, group.eqns[-1].site), *views]


def _views_apart(group: Sequence[Equation], outer: set[Any]) -> tuple[list[Equation], list[Equation]]:
    """The equations that stay inside, and views that others read, made again outside of what the group computes."""
    root: dict[Any, Any] = {}
    twins: dict[Any, Var] = {}
    outside = []
    for e in group:
        out = e.outputs[0]
        if e.prim.name in VIEWS:
            root[out] = x = root.get(e.inputs[0], e.inputs[0])
            if out in outer:
                twins[out] = Var(out.aval)
                outside.append(Equation(_view(e.prim, x.aval, out.aval), [x], [out], e.site))
    needed = (outer - set(twins)) | {a for e in outside for a in e.inputs}
    inside = []
    for e in reversed(group):
        out = twins.get(e.outputs[0], e.outputs[0])
        if out in needed or e.prim.name not in VIEWS:
            inputs = [twins.get(a, a) for a in e.inputs]
            needed.update(inputs)
            inside.append(Equation(e.prim, inputs, [out], e.site))
    return inside[::-1], outside


def _view(prim: Primitive, x: Aval, out: Aval) -> Primitive:
    """The view of a value of rows that gives what ``prim`` gives of another view of it."""
    return Reshape(out.shape) if prim.name == "reshape" else Broadcast(out.shape, tuple(range(x.ndim)))


def fuse(graph: Graph) -> Graph:
    """Return the graph with its chains of equations fused; needs an inlined graph without dead equations."""
    if "fuse" not in graph.memo:
        fuser = _Fuser(graph)
        for eqn in graph.eqns:
            fuser.take(eqn)
        for group in list(fuser.order):
            fuser.close(group)
        graph.memo["fuse"] = Graph(graph.inputs, fuser.out, graph.outputs, graph.name)
    found: Graph = graph.memo["fuse"]
    return found
