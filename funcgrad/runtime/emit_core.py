"""The emitter's core: nodes over strided views, pointwise programs, constants, layout and reductions.

Layout verbs return views of the same memory; everything else appends nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Graph
from funcgrad.runtime.kinds import MAP, REDUCE, REDUCTIONS
from funcgrad.runtime.plan import Buf, Node, Plan
from funcgrad.runtime.program import CODES, Const, Program
from funcgrad.runtime.views import IOTA, View, coalesce, row_major

__all__ = ["Core", "plus_zero"]

Ints = tuple[int, ...]
Code = tuple[int, Sequence[int], Sequence[int]]
BORDER = 16384  # elements from which padding writes the border only, and not everything twice


class Core:
    """Collects the nodes of one program."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.site: Any = None
        self._literals: dict[int, tuple[Any, View]] = {}
        self.aims: list[View | None] = []  # where the results of what comes next are wanted
        self.begun: dict[Buf, View] = {}  # placed arrays of which pieces may be there

    def part(self, graph: Graph, pairs: dict[int, int] | None = None) -> Plan:
        """Lower a graph on its own; ``pairs`` says which result replaces which argument."""
        raise NotImplementedError

    # -- nodes ---------------------------------------------------------------------------------------------------
    def new(self, aval: Aval) -> View:
        """A contiguous view of a new buffer."""
        return View(aval, Buf(aval, site=self.site), 0, row_major(aval.shape, aval.dtype.itemsize), True)

    def empty(self, aval: Aval) -> View:
        """A value without elements."""
        return self.new(aval)

    def aimed_or_new(self, aval: Aval) -> View:
        """Where the one result of this equation is wanted, or a contiguous view of a new buffer."""
        aim = self.aims[0] if self.aims else None
        self.aims = []
        return self.new(aval) if aim is None or aim.aval != aval else aim

    def node(
        self,
        kind: int,
        words: list[int],
        operands: Sequence[Buf],
        writes: Sequence[int],
        reuse: Sequence[tuple[int, int]] = (),
        copies: bool = False,
    ) -> Node:
        """Append a node; ``words`` names operands by their position."""
        node = Node(kind, words, operands, writes, reuse, copies)
        node.site = self.site
        self.nodes.append(node)
        return node

    # -- programs ------------------------------------------------------------------------------------------------
    def map(self, g: Program, outs: Sequence[Any], avals: Sequence[Aval]) -> list[View]:
        """Append the MAP node of a program whose results go to new buffers."""
        results = [self.new(a) for a in avals]
        self._map(g.views, g.assemble(outs), results, avals[0].shape)
        return results

    def _map(self, views: Sequence[View], code: Code, results: Sequence[View], shape: Ints) -> None:
        """Append a MAP node: ``code`` is what ``Program.assemble`` gives."""
        registers, regs, instructions = code
        slots: dict[Buf, int] = {}
        reads: dict[Buf, int] = {}
        for x in views:
            if x.buf is not IOTA:
                slots.setdefault(x.buf, len(slots))
                reads[x.buf] = reads.get(x.buf, 0) + 1
        for r in results:
            slots.setdefault(r.buf, len(slots))
        dims, rows = _map_layout(views, results, shape)
        words = [len(dims), *dims, len(views), len(results), registers, len(instructions) // 6]
        for x, row in zip(views, rows, strict=False):
            code_of = CODES[x.aval.dtype] if x.buf is not IOTA else CODES[dtypes.int32]
            words += (slots.get(x.buf, -1), code_of, x.offset, *row)
        for k, r in enumerate(results):
            words += (regs[k], slots[r.buf], CODES[r.aval.dtype], r.offset, *rows[len(views) + k])
        words += instructions
        reuse = []
        for x in views:
            if x.whole and reads.get(x.buf) == 1:
                for r in results:
                    if r.whole and r.aval.dtype.itemsize == x.aval.dtype.itemsize and r.aval.size == x.aval.size:
                        reuse.append((slots[x.buf], slots[r.buf]))
        copies = not instructions and len(views) == 1 == len(reuse)
        self.node(MAP, words, list(slots), [slots[r.buf] for r in results], reuse, copies)

    def copy(self, x: View, to: View) -> None:
        """Append the node that writes x into a view of the same shape and dtype."""
        if x.aval.size:
            g = Program()
            out = g.load(x)
            self._map(g.views, g.assemble([out]), [to], x.aval.shape)

    def dense(self, x: View) -> View:
        """x itself when it is contiguous in memory, else a copy that is, made once."""
        if x.contiguous:
            return x
        if x.dense is None:
            x.dense = self.new(x.aval)
            self.copy(x, x.dense)
        return x.dense

    # -- constants -----------------------------------------------------------------------------------------------
    def full(self, value: Any, aval: Aval) -> View:
        """The same value everywhere, without memory."""
        return View(aval, IOTA, 0, (0,) * aval.ndim, False, Const(value, aval.dtype))

    def constant(self, value: Any) -> View:
        """A captured array: memory that is there when the program is made, or its value when it is one element."""
        aval = value.aval
        if aval.size <= 1:
            return self.full(dtypes.narrow(np.asarray(value), aval.dtype).reshape(-1)[0] if aval.size else 0, aval)
        buf = Buf(aval, "constant", site=self.site)
        buf.value = value
        return View(aval, buf, 0, row_major(aval.shape, aval.dtype.itemsize), True)

    def iota(self, aval: Aval, axis: int) -> View:
        """0, 1, 2, ... along an axis, without memory."""
        return View(aval, IOTA, 0, tuple([int(d == axis) for d in range(aval.ndim)]), False)

    # -- layout --------------------------------------------------------------------------------------------------
    def reshape(self, x: View, shape: Ints) -> View:
        """The elements in row-major order under another shape."""
        out = x.reshape(shape)
        if out is None:
            out = self.dense(x).reshape(shape)
            assert out is not None
        return out

    def transpose(self, x: View, perm: Ints) -> View:
        """Axis i of the result is axis perm[i] of x."""
        return x.transpose(perm)

    def broadcast(self, x: View, shape: Ints, dims: Ints) -> View:
        """x repeated to ``shape``; its axis i becomes axis dims[i]."""
        return x.broadcast(shape, dims)

    def slice(self, x: View, start: Ints, limit: Ints, strides: Ints) -> View:
        """Part of x along each axis."""
        return x.slice(start, limit, strides)

    def reverse(self, x: View, axes: Ints) -> View:
        """x backwards along ``axes``."""
        return x.reverse(axes)

    def pad(self, x: View, value: View, low: Ints, high: Ints, interior: Ints) -> View:
        """x with a scalar around it and between its elements; negative amounts cut."""
        n = x.aval.ndim
        shape = [
            max(0, (m + (m - 1) * g if m else 0) + a + b)
            for m, a, b, g in zip(x.aval.shape, low, high, interior, strict=True)
        ]
        start, limit, at = [0] * n, list(x.aval.shape), list(low)
        for d, (m, step) in enumerate(zip(shape, [g + 1 for g in interior], strict=True)):
            start[d] = max(0, -(low[d] // step)) if low[d] < 0 else 0
            at[d] = low[d] + start[d] * step
            limit[d] = max(start[d], min(limit[d], start[d] + -(-(m - at[d]) // step)))
        inside = x.slice(tuple(start), tuple(limit), (1,) * n)
        if inside.aval.shape == tuple(shape):
            return inside
        out = self.new(Aval(shape, x.aval.dtype))
        to = out.slice(tuple(at), out.aval.shape, tuple([g + 1 for g in interior])).slice(
            (0,) * n, inside.aval.shape, (1,) * n
        )
        if inside.aval.size >= BORDER and not any(interior):
            self._border(out, value, at, inside.aval.shape)
        else:
            self.copy(value.broadcast(out.aval.shape, ()), out)
        self.copy(inside, to)
        return out

    def _border(self, out: View, value: View, at: Sequence[int], inner: Ints) -> None:
        """Write the value around a box: two slabs an axis, each within the box along the axes before."""
        start, limit = [0] * out.aval.ndim, list(out.aval.shape)
        for d, n in enumerate(out.aval.shape):
            for a, b in ((0, at[d]), (at[d] + inner[d], n)):
                start[d], limit[d] = a, max(a, b)
                slab = out.slice(tuple(start), tuple(limit), (1,) * out.aval.ndim)
                self.copy(value.broadcast(slab.aval.shape, ()), slab)
            start[d], limit[d] = at[d], at[d] + inner[d]

    def concatenate(self, xs: Sequence[View], axis: int) -> View:
        """The operands one after another along an axis."""
        parts = [x for x in xs if x.aval.size] or [xs[0]]
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].aval.shape)
        shape[axis] = sum(x.aval.shape[axis] for x in parts)
        out = self._begun(parts, Aval(shape, parts[0].aval.dtype))
        start, limit = [0] * len(shape), list(shape)
        for x in parts:
            limit[axis] = start[axis] + x.aval.shape[axis]
            to = out.slice(tuple(start), tuple(limit), (1,) * len(shape))
            if not _is_at(x, to):
                self.copy(x, to)
            start[axis] = limit[axis]
        return out

    def _begun(self, parts: Sequence[View], aval: Aval) -> View:
        """The whole in which some of its parts are already, or a new one."""
        found = [self.begun[x.buf] for x in parts if x.buf in self.begun]
        return next((v for v in found if v.aval == aval), None) or self.new(aval)

    def place(self, xs: Sequence[View], boxes: Sequence[tuple[Ints, Ints, Ints]], aval: Aval) -> View:
        """x + 0 of each operand in its box (start, limit, steps) of an array of zeros; boxes are disjoint."""
        out = self._begun(xs, aval)
        if sum([x.aval.size for x in xs]) < aval.size:
            self.copy(self.full(0, aval), out)
        for x, box in zip(xs, boxes, strict=True):
            to = out.slice(*box)
            if _is_at(x, to):  # where it is wanted, a sum that began with 0
                continue
            g = Program()
            self._map(g.views, g.assemble([plus_zero(g, g.load(x), aval.dtype)]), [to], x.aval.shape)
        return out

    # -- reductions ----------------------------------------------------------------------------------------------
    def reduce(self, op: str, x: View, axes: Ints) -> View:
        """Sum, max, min, prod, argmax, argmin, any, all or logsumexp over axes, which vanish."""
        shape, dtype = x.aval.shape, x.aval.dtype
        kept = [d for d in range(len(shape)) if d not in axes]
        position = op in ("argmax", "argmin")
        aval = Aval([shape[d] for d in kept], dtypes.int32 if position else dtype)
        if dtype == dtypes.bool_:
            op = {"max": "any", "min": "all", "sum": "any", "prod": "all"}.get(op, op)
        if not x.aval.size:
            return self.full(_identity(op, dtype), aval)
        if all(shape[d] == 1 for d in axes):
            return self.full(0, aval) if position else self.reshape(x, aval.shape)
        if x.buf is IOTA:
            x = self.dense(x)
        out = self.aimed_or_new(aval)
        keep, (steps, to) = coalesce(aval.shape, ([x.strides[d] for d in kept], out.strides))
        gone, (inner,) = coalesce([shape[d] for d in axes], ([x.strides[d] for d in axes],))
        code = CODES[dtype]
        words = [REDUCTIONS[op], len(keep), *keep, len(gone), *gone, 0, code, x.offset, *steps, *inner]
        words += (1, CODES[aval.dtype], out.offset, *to)
        self.node(REDUCE, words, (x.buf, out.buf), (1,))
        return out


def plus_zero(g: Program, x: Any, dtype: Any) -> Any:
    """x + 0, as in a sum with an array of zeros: of floats -0 becomes 0."""
    return g.round(g.op("add", x, Const(0, dtype))) if dtype in dtypes.FLOATS else x


def _is_at(x: View, to: View) -> bool:
    """Whether two views of one shape are of the same memory."""
    steps = zip(x.strides, to.strides, x.aval.shape, strict=True)
    return x.buf is to.buf and x.offset == to.offset and all(a == b for a, b, n in steps if n != 1)


def _identity(op: str, dtype: Any) -> Any:
    """What a reduction of nothing gives."""
    if op in ("max", "min", "logsumexp"):
        low = op != "min"
        if dtype in dtypes.FLOATS:
            return -np.inf if low else np.inf
        return np.iinfo(dtype).min if low else np.iinfo(dtype).max
    return op in ("prod", "all")


def _map_layout(
    views: Sequence[View], results: Sequence[View], shape: Ints
) -> tuple[list[int], Sequence[Sequence[int]]]:
    """The dimensions that a MAP node loops over, and each operand's strides; one where all data is contiguous."""
    flat = []
    for x in (*views, *results):
        if x.contiguous and x.aval.shape == shape:
            flat.append((x.aval.dtype.itemsize,))
        elif not x.aval.shape:
            flat.append((0,))
        else:
            break
    else:
        return [results[0].aval.size], flat
    rows = []
    for x in (*views, *results):
        if x.aval.shape and x.aval.shape != shape:
            raise AssertionError(f"map: {x.aval} in a node of shape {shape}")
        rows.append(x.strides or (0,) * len(shape))
    dims, merged = coalesce(shape, rows)
    return (dims, merged) if dims else ([1], [[0]] * len(rows))
