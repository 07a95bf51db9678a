"""Memory planning: where every buffer of a lowered graph lies, which share memory, and what the peak is.  Pure Python.

In: nodes in the order in which they run, the buffers they read and write, and which buffers are the caller's.  Out:
offsets in one workspace, chosen by liveness (best fit, one pass), exact sizes, and what became of each donated
argument.

A result may take over an operand's memory where the node allows it and nothing reads the operand afterwards.  Values
on the way to a result live in the result's own memory where that is free.  A donated argument's memory is written
only by a node after its last read (or by the node of that read, element by element); otherwise the result goes
through the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from funcgrad.errors import Site
from funcgrad.ir import Aval
from funcgrad.runtime.arena import ALIGN, Arena
from funcgrad.runtime.kinds import LOOP
from funcgrad.runtime.levels import Levels
from funcgrad.runtime.release import COMMIT, RELEASE, Event

__all__ = ["ALIGN", "Buf", "Node", "Plan", "Row", "make_plan"]


class Buf:
    """A piece of memory in a lowered graph; ``kind`` is input, output, temp, or constant (its array: ``value``)."""

    __slots__ = ("aval", "index", "kind", "nbytes", "site", "storage", "value")

    def __init__(self, aval: Aval, kind: str = "temp", index: int = -1, site: Site | None = None, nbytes: int = -1):
        self.aval, self.kind, self.index, self.site = aval, kind, index, site
        self.nbytes = aval.nbytes if nbytes < 0 else nbytes
        self.storage: Storage | None = None
        self.value: Any = None


class Node:
    """One kernel call: its operands by slot, which slots it writes, and which pairs (read, written) may share memory.

    ``copies`` says that it does nothing when slots 0 and 1 share memory.  ``keep`` keeps it although no result is read.
    """

    __slots__ = (
        "copies",
        "elided",
        "keep",
        "kind",
        "operands",
        "optional",
        "parts",
        "reuse",
        "site",
        "words",
        "writes",
    )

    def __init__(
        self,
        kind: int,
        words: list[int],
        operands: Sequence[Buf],
        writes: Sequence[int],
        reuse: Sequence[tuple[int, int]] = (),
        copies: bool = False,
    ):
        self.kind, self.words, self.operands, self.writes, self.reuse = kind, words, operands, writes, reuse
        self.copies, self.elided, self.keep = copies, False, False
        self.site: Site | None = None
        self.parts: Sequence[Any] = ()
        self.optional: dict[int, int] = {}  # results (by slot) that need not be written: where in words the slot stands

    def leave_out(self, needed: Sequence[bool]) -> None:
        """Do not write the optional results that nobody needs; later operands move up."""
        for slot in sorted(self.optional, reverse=True):
            if needed[slot]:
                continue
            self.words[self.optional.pop(slot)] = -1
            for later in sorted(t for t in self.optional if t > slot):
                self.words[self.optional[later]] = later - 1
                self.optional[later - 1] = self.optional.pop(later)
            self.operands = [b for k, b in enumerate(self.operands) if k != slot]
            self.writes = [w - (w > slot) for w in self.writes if w != slot]

    @property
    def name(self) -> str:
        """What kind of kernel it is."""
        return KINDS[self.kind] if self.kind < len(KINDS) else CONTROL[self.kind - LOOP]


KINDS: tuple[str, ...] = (
    "map",
    "reduce",
    "dot",
    "take",
    "scatter",
    "dynamic_slice",
    "dynamic_update",
    "cumulative",
    "sort",
    "rows",
    "tiles",
    "matrix",
    "map_reduce",
    "dot_map",
)
CONTROL = ("loop", "while", "cond", "host")


class Storage:
    """Memory that one buffer after another lives in; ``bound`` is the argument's or result's number, or -1."""

    __slots__ = ("bound", "first", "last", "nbytes", "occupant", "offset", "read")

    def __init__(
        self, nbytes: int, first: int, last: int, occupant: Buf | None = None, bound: int = -1, read: int = -1
    ):
        self.nbytes, self.first, self.last, self.occupant = nbytes, first, last, occupant
        self.bound, self.offset = bound, -1
        self.read = read  # the last node that reads the donated argument whose memory this is


class Row(NamedTuple):
    """One buffer in the plan's table; it lives from node ``first`` to node ``last``, both included."""

    aval: Aval
    kind: str
    nbytes: int
    first: int
    last: int
    offset: int
    site: Site | None


class Plan:
    """The outcome of planning; all sizes in bytes."""

    def __init__(self, nodes: list[Node], inputs: Sequence[Buf], outputs: Sequence[Buf]):
        self.nodes, self.inputs, self.outputs = nodes, list(inputs), list(outputs)
        self.alias: dict[int, int] = {}  # result number: number of the argument whose memory it gets
        self.donation: dict[int, str] = {}  # number of a donated argument: "", or why it was not honoured
        self.temp_bytes = 0
        self.events: list[Event] = []
        self.measure: Callable[[int, Sequence[int]], int] | None = None  # bytes that a kernel takes for itself
        self.rows: list[Row] = []
        self.storages: list[Storage] = []

    @property
    def argument_bytes(self) -> int:
        """Memory of the arguments."""
        return sum(b.nbytes for b in self.inputs)

    @property
    def output_bytes(self) -> int:
        """Memory of the results, donated arguments' included."""
        return sum(b.nbytes for b in self.outputs)

    @property
    def alias_bytes(self) -> int:
        """Memory of the results that lie in donated arguments."""
        return sum(self.outputs[j].nbytes for j in self.alias)

    @cached_property
    def scratch(self) -> list[int]:
        """What the kernel of each node takes for itself while it runs, where every thread has a share."""
        out = []
        for node in self.nodes:
            if node.kind >= LOOP:
                out.append(max([p.scratch_bytes for p in node.parts if isinstance(p, Plan)], default=0))
            else:
                out.append(self.measure(node.kind, node.words) if self.measure and not node.elided else 0)
        return out

    @property
    def scratch_bytes(self) -> int:
        """The most that a kernel takes for itself."""
        return max(self.scratch, default=0)

    @property
    def peak_bytes(self) -> int:
        """The most that exists at a time: arguments, results, the workspace, and what a kernel takes for itself."""
        change = self._late_results()
        for e in self.events:
            if e.what == RELEASE:
                change[e.node + 1] -= e.nbytes
        total, most = change[0] + self.temp_bytes, change[0] + self.temp_bytes
        for c, own in zip(change[1:], [*self.scratch, 0], strict=True):
            most = max(most, total + own)
            total += c
        return most

    def _late_results(self) -> list[int]:
        """By which amount arguments and results change before each node, and after the last; all at first but for
        events."""
        late = [e for e in self.events if e.what == COMMIT]
        change = [0] * (len(self.nodes) + 2)
        change[0] = self.argument_bytes + self.output_bytes - self.alias_bytes - sum([e.nbytes for e in late])
        for e in late:
            change[e.node] += e.nbytes
        return change

    def live_at(self) -> list[int]:
        """Bytes in use during each node: arguments, results, and the temporaries alive then."""
        change = self._late_results()
        for s in self.storages:
            change[s.first] += s.nbytes
            change[s.last + 1] -= s.nbytes
        total, out = 0, []
        for c in change[: len(self.nodes)]:
            total += c
            out.append(total)
        return out


def make_plan(
    nodes: list[Node],
    inputs: Sequence[Buf],
    outputs: Sequence[Buf],
    donate: frozenset[int] = frozenset(),
    pairs: dict[int, int] | None = None,
    make_copy: Callable[[Buf, Buf], Node] | None = None,
    slack: int = 0,
) -> Plan:
    """Place every buffer.

    ``outputs`` are distinct buffers; one that is a donated input stays where it is.  ``make_copy`` makes the node
    that a donation through the workspace needs.  ``pairs`` donates to certain results (by number), and only where
    that needs no copy.  Nodes that nothing depends on are dropped.  ``slack`` bytes of the workspace are not used
    again at once, for devices whose kernels then need not wait.
    """
    nodes = needed_nodes(nodes, outputs)
    spans = _Spans(nodes, inputs, outputs)
    plan = Plan(nodes, inputs, outputs)
    if pairs is not None:
        plan.alias = {j: i for j, i in pairs.items() if inputs[i].aval == outputs[j].aval}
    elif donate:
        _pair_donations(plan, donate)
    _order_donations(plan, spans, make_copy if pairs is None else None)
    _place_results(plan, spans)
    _place_temporaries(plan, spans, slack)
    for node in nodes:
        node.elided = node.copies and node.operands[0].storage is node.operands[1].storage
    _fill_table(plan, spans)
    return plan


def needed_nodes(nodes: Sequence[Node], outputs: Sequence[Buf]) -> list[Node]:
    """Drop the nodes that write nothing a later node, or the caller, reads."""
    needed = set(map(id, outputs))
    out = []
    for node in reversed(nodes):
        ops = node.operands
        if node.keep or any(id(ops[w]) in needed for w in node.writes):
            if node.optional:
                node.leave_out([id(b) in needed for b in ops])
            needed.update(map(id, node.operands))
            out.append(node)
    out.reverse()
    return out


class _Spans:
    """First write and last use of every buffer, by identity; arguments are written at -1."""

    def __init__(self, nodes: Sequence[Node], inputs: Sequence[Buf], outputs: Sequence[Buf]):
        self.first: dict[Buf, int] = dict.fromkeys(inputs, -1)
        self.last: dict[Buf, int] = dict.fromkeys(inputs, -1)
        first, last = self.first, self.last
        for n, node in enumerate(nodes):
            for b in node.operands:
                if b not in first:
                    first[b] = n
                last[b] = n
        self.results = set(outputs)

    def shares(self, nodes: Sequence[Node], n: int, src: Buf, dst: Buf) -> bool:
        """Whether node n may write dst over src."""
        ops = nodes[n].operands
        return any(ops[s] is src and ops[d] is dst for s, d in nodes[n].reuse)


def _pair_donations(plan: Plan, donate: frozenset[int]) -> None:
    """Give each donated argument to the first result of its type that has none."""
    inputs, outputs = plan.inputs, plan.outputs
    number = {b: i for i, b in enumerate(inputs)}
    waiting: dict[Any, list[int]] = {}
    for j, b in enumerate(outputs):
        i = number.get(b)
        if i is not None:
            plan.alias[j] = i
            plan.donation[i] = ""
        else:
            waiting.setdefault(b.aval, []).append(j)
    queues = {aval: iter(js) for aval, js in waiting.items()}
    for k in sorted(donate):
        if k in plan.donation:
            continue
        aval = inputs[k].aval
        to = next(queues.get(aval, iter(())), None)
        if to is not None:
            plan.alias[to], plan.donation[k] = k, ""
        elif aval in waiting:
            plan.donation[k] = f"every result of type {aval} got the memory of another donated argument"
        else:
            plan.donation[k] = f"no result has its type {aval}"


def _order_donations(plan: Plan, spans: _Spans, make_copy: Callable[[Buf, Buf], Node] | None) -> None:
    """Where a result would be written before the last read of its donated argument, write it to the workspace and copy.

    Without ``make_copy`` such a donation is given up.
    """
    nodes = plan.nodes
    for j, i in list(plan.alias.items()):
        src, dst = plan.inputs[i], plan.outputs[j]
        if src is dst:
            continue
        read, write = spans.last[src], spans.first.get(dst, len(nodes))
        if write > read or (write == read and spans.shares(nodes, write, src, dst)):
            continue
        if make_copy is None:
            del plan.alias[j]
            continue
        dst.kind = "temp"
        final = Buf(dst.aval, "output", dst.index, dst.site)
        spans.results.discard(dst)
        spans.results.add(final)
        nodes.append(make_copy(dst, final))
        spans.last[dst] = spans.first[final] = spans.last[final] = len(nodes) - 1
        plan.outputs[j] = final


def _place_results(plan: Plan, spans: _Spans) -> None:
    """Give arguments and results their storage; backwards, let values on the way to a result live in it already."""
    first, last, nodes = spans.first, spans.last, plan.nodes
    end, n_in = len(nodes), len(plan.inputs)
    for i, b in enumerate(plan.inputs):
        b.storage = Storage(b.nbytes, -1, end, b, i)
    for j, b in enumerate(plan.outputs):
        i = plan.alias.get(j, -1)
        if i >= 0:
            donated = plan.inputs[i]
            if donated is not b:
                b.storage = donated.storage
                assert b.storage is not None
                b.storage.read, b.storage.first = last[donated], first.get(b, end)
        else:
            b.storage = Storage(b.nbytes, first.get(b, end), end, b, n_in + j)
    for n in range(end - 1, -1, -1):
        ops = nodes[n].operands
        for s, d in nodes[n].reuse:
            src, dst = ops[s], ops[d]
            to = dst.storage
            if to is None or first[dst] != n or last[src] != n or src.storage is not None or src.kind != "temp":
                continue
            m = first[src]
            if to.first != n or src.nbytes != to.nbytes or m < to.read:
                continue
            if m == to.read and not (to.bound < n_in and spans.shares(nodes, m, plan.inputs[to.bound], src)):
                continue
            src.storage, to.first = to, m


def _place_temporaries(plan: Plan, spans: _Spans, slack: int) -> None:
    """Walk the nodes once: take over an operand's memory or the best free block, give back what dies."""
    last = spans.last
    arena, order = Arena(slack), Levels(slack)
    for n, node in enumerate(plan.nodes):
        ops = node.operands
        order.come(node)
        for w in node.writes:
            b = ops[w]
            if b.storage is not None:
                continue
            for s, d in node.reuse:
                src = ops[s]
                old = src.storage
                if (
                    d == w
                    and old is not None
                    and old.bound < 0
                    and last[src] == n
                    and old.occupant is src
                    and old.nbytes == b.nbytes
                    and order.is_behind_readers(src)
                ):
                    b.storage, old.occupant, old.last = old, b, last[b]
                    break
            else:
                new = b.storage = Storage(b.nbytes, n, last[b], b)
                new.offset = arena.take(b.nbytes)
                plan.storages.append(new)
        for b in ops:
            st = b.storage
            if last[b] == n and st is not None and st.bound < 0 and st.occupant is b:
                arena.give(st.offset, st.nbytes)
                st.occupant = None
    plan.temp_bytes = arena.size


def _fill_table(plan: Plan, spans: _Spans) -> None:
    end = len(plan.nodes)
    for b, start in spans.first.items():
        st = b.storage
        if st is not None:
            last = end if b in spans.results or b.kind == "input" else spans.last[b]
            plan.rows.append(Row(b.aval, b.kind, b.nbytes, start, last, st.offset, b.site))
