"""Emitter verbs for control flow: a loop, a branch or a host function is one node, whose parts are programs.

A part gets its operands' memory as it is, and one piece of the workspace as its own workspace.  A carry that the part
can update in place lies in the result from the start; any other alternates between the result and spare memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.ir import Aval, Graph
from funcgrad.passes.turn import LEAST_STEPS, turned
from funcgrad.runtime.emit_core import Core
from funcgrad.runtime.emit_index import Slots
from funcgrad.runtime.kinds import COND, HOST, LOOP, WHILE
from funcgrad.runtime.plan import Buf, Node, Plan
from funcgrad.runtime.views import View

__all__ = ["Control", "HostCall"]

NOWHERE = (-1, 0)


class HostCall(NamedTuple):
    """A Python function of numpy arrays as a node: it takes read-only views, and gives the results."""

    fn: Callable[..., Any]
    inputs: tuple[Aval, ...]
    outputs: tuple[Aval, ...]

    def results(self, xs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Call it; the results have the declared dtypes, and ShapeError tells of a shape that was not declared."""
        found = [dtypes.narrow(np.asarray(v), a.dtype) for v, a in zip(self.fn(*xs), self.outputs, strict=True)]
        for host, aval in zip(found, self.outputs, strict=True):
            if host.shape != aval.shape:
                requirement, way_out = f"the result must have shape {aval.shape}", "return an array of that shape"
                raise ShapeError(message("callback", requirement, str(host.shape), way_out))
        return found


class Control(Core):
    """The part of the emitter for nodes that hold graphs or functions."""

    def scan(
        self,
        body: Graph,
        consts: Sequence[View],
        carry: Sequence[View],
        xs: Sequence[View],
        length: int,
        reverse: bool,
    ) -> tuple[list[View], list[View]]:
        """Run the body ``length`` times: (consts, carry, slice of xs) to (carry, slice of ys)."""
        n_const, n_carry = len(consts), len(carry)
        ys = [self.new(Aval((length, *a.aval.shape), a.aval.dtype)) for a in body.outputs[n_carry:]]
        if not length:
            return list(carry), ys
        if length >= LEAST_STEPS:
            body, over = turned(body, n_const)
            consts = [c.transpose((1, 0)) if j in over else c for j, c in enumerate(consts)]
        part = self.part(body, {j: n_const + j for j in range(n_carry)})
        node = _ControlNode(self, [part])
        words = [length, n_const, n_carry, len(xs), len(ys), *node.scratch()]
        words += node.reads([self.dense(c) for c in consts])
        moving = [(x, True) for x in map(self._rows, xs)] + [(y, False) for y in ys]
        results, more = node.carries([self.dense(c) for c in carry], part, n_const, length > 1)
        words += more
        for v, is_read in moving:
            slot, offset = node.reads([v]) if is_read else node.writes(v)
            step = v.strides[0] if v.aval.nbytes else 0
            words += (slot, offset + (length - 1) * step, -step) if reverse and slot >= 0 else (slot, offset, step)
        node.append(LOOP, words)
        return results, ys

    def _rows(self, x: View) -> View:
        """x itself if each of its rows is contiguous in memory, else a copy."""
        inner = x.with_layout(x.aval.shape[1:], x.offset, x.strides[1:])
        return x if inner.contiguous else self.dense(x)

    def while_loop(
        self,
        cond_graph: Graph,
        cond_consts: Sequence[View],
        body_graph: Graph,
        body_consts: Sequence[View],
        carry: Sequence[View],
    ) -> list[View]:
        """Run the body on the carry for as long as the condition holds."""
        n = len(body_consts)
        cond, body = self.part(cond_graph), self.part(body_graph, {j: n + j for j in range(len(carry))})
        node = _ControlNode(self, [cond, body])
        flag = self.new(Aval((), dtypes.bool_))
        words = [len(cond_consts), n, len(carry), *node.scratch(), *node.writes(flag)]
        words += node.reads([self.dense(c) for c in (*cond_consts, *body_consts)])
        results, more = node.carries([self.dense(c) for c in carry], body, n, True)
        node.append(WHILE, words + more)
        return results

    def cond(self, index: View, branches: Sequence[Graph], xs: Sequence[View]) -> list[View]:
        """Run the branch that the int32 ``index`` names, clamped to those there are."""
        node = _ControlNode(self, [self.part(b) for b in branches])
        outs = [self.new(a.aval) for a in branches[0].outputs]
        words = [len(xs), len(outs), *node.scratch(), *node.reads([self.dense(index)])]
        words += node.reads([self.dense(x) for x in xs])
        for out in outs:
            words += node.writes(out)
        node.append(COND, words)
        return outs

    def host(self, fn: Callable[..., Any], xs: Sequence[View], out_avals: Sequence[Aval]) -> list[View]:
        """Call a Python function on numpy arrays when the node runs; it is called even if no result is read."""
        node = _ControlNode(self, [HostCall(fn, tuple([x.aval for x in xs]), tuple(out_avals))])
        outs = [self.new(a) for a in out_avals]
        words = [0, len(xs) + len(outs), *node.reads([self.dense(x) for x in xs])]
        for out in outs:
            words += node.writes(out)
        node.append(HOST, words, keep=True)
        return outs


class _ControlNode:
    """Collects the operands of one node: what it reads, what it writes, and who may share memory."""

    def __init__(self, g: Core, parts: Sequence[Any]):
        self.g, self.parts = g, parts
        self.slots = Slots()
        self.read: list[int] = []
        self.written: list[int] = []
        self.reuse: list[tuple[int, int]] = []

    def scratch(self) -> tuple[int, int]:
        """A workspace for the parts, of which one runs at a time."""
        need = max([p.temp_bytes for p in self.parts])
        return self.memory(need, dtypes.bool_) if need else NOWHERE

    def memory(self, nbytes: int, dtype: Any) -> tuple[int, int]:
        """Memory that only this node uses."""
        buf = Buf(Aval((), dtype), site=self.g.site, nbytes=nbytes)
        slot = self.slots.bufs.setdefault(buf, len(self.slots.bufs))
        self.written.append(slot)
        return slot, 0

    def reads(self, views: Sequence[View]) -> list[int]:
        """Slot and offset of each operand; nothing for an empty one."""
        words: list[int] = []
        for v in views:
            if v.aval.nbytes:
                words += self.slots.pointer(v)
                self.read.append(self.slots[v])
            else:
                words += NOWHERE
        return words

    def writes(self, v: View) -> list[int]:
        """Slot and offset of a result."""
        if not v.aval.nbytes:
            return list(NOWHERE)
        self.written.append(self.slots[v])
        return [*self.slots.pointer(v)]

    def carries(self, init: Sequence[View], part: Plan, first: int, spare: bool) -> tuple[list[View], list[int]]:
        """The results of a loop's carries, and the words that describe the carries."""
        results: list[View] = []
        words: list[int] = []
        for j, x in enumerate(init):
            out = self.g.new(x.aval)
            in_place = part.alias.get(j, -1) == first + j
            start, to = self.reads([x]), self.writes(out)
            other = NOWHERE if in_place or not spare or not x.aval.nbytes else self.memory(x.aval.nbytes, x.aval.dtype)
            words += (*start, *to, *other, x.aval.nbytes, int(in_place))
            if in_place and x.whole and x.aval.nbytes:
                self.reuse.append((start[0], to[0]))
            results.append(out)
        return results, words

    def append(self, kind: int, words: list[int], keep: bool = False) -> None:
        """Append the node."""
        if not self.written:
            self.memory(1, dtypes.bool_)
        reuse = [(s, d) for s, d in self.reuse if self.read.count(s) == 1]
        node: Node = self.g.node(kind, words, list(self.slots.bufs), self.written, reuse)
        node.parts = self.parts
        node.keep = keep or any(n.keep for p in self.parts if isinstance(p, Plan) for n in p.nodes)
