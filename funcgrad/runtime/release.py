"""Releases: workspace that nothing needs any more goes back to the system while large results are still to be written.

In: a plan whose results, written late, would exist beside a workspace that is mostly dead by then, as the gradients of
many layers do beside the layers' values.  Out: events at nodes: a result counts from the node that first writes it, and
a range of the workspace is given back after the node that last uses it.  The peak is then what exists at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from funcgrad.runtime.plan import Plan, Storage

__all__ = ["COMMIT", "RELEASE", "Event", "released"]

COMMIT, RELEASE = 0, 1
LEAST = 1 << 20  # bytes of a result or a range: less is not worth a call of the system
LEAST_GAIN = 1 << 25


class Event(NamedTuple):
    """At ``node``: before it a result (``number``) begins to count, or after it a range of the workspace ends to."""

    node: int
    what: int
    number: int  # of the result; or where the range begins
    nbytes: int


def released(plan: Plan) -> list[Event]:
    """The events that make a plan's peak smaller, in the order of their nodes; none where that gains little."""
    late = [
        j for j, b in enumerate(plan.outputs) if j not in plan.alias and b.nbytes >= LEAST and _begins_late(plan, j)
    ]
    nbytes = sum([plan.outputs[j].nbytes for j in late])
    if nbytes < LEAST_GAIN or plan.temp_bytes < LEAST_GAIN or nbytes + plan.temp_bytes < plan.peak_bytes // 8:
        return []
    events = [Event(n, RELEASE, start, end - start) for n, start, end in _dead(plan.storages)]
    if not events:
        return []
    for j in late:
        st = plan.outputs[j].storage
        assert st is not None
        events.append(Event(st.first, COMMIT, j, plan.outputs[j].nbytes))
    return sorted(_on_nodes(plan, events))


def _begins_late(plan: Plan, j: int) -> bool:
    st = plan.outputs[j].storage
    return st is not None and 0 < st.first < len(plan.nodes)


def _on_nodes(plan: Plan, events: Sequence[Event]) -> list[Event]:
    """Events at nodes that run: results may begin earlier, ranges end later."""
    runs = [n for n, node in enumerate(plan.nodes) if not node.elided]
    out = []
    for e in events:
        k = bisect_left(runs, e.node)
        if e.what == RELEASE and k < len(runs):
            out.append(e._replace(node=runs[k]))
        elif e.what == COMMIT:
            k -= k == len(runs) or runs[k] != e.node
            out.append(e._replace(node=runs[max(k, 0)]))
    return out


def _dead(storages: Sequence[Storage]) -> list[tuple[int, int, int]]:
    """Ranges of the workspace that nothing uses after a node: (node, start, end)."""
    found = []
    used = _Union()
    for st in sorted(storages, key=lambda s: -s.last):
        for start, end in used.add(st.offset, st.offset + st.nbytes):
            if end - start >= LEAST:
                found.append((st.last, start, end))
    return found


class _Union:
    """Disjoint ranges, sorted."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Add a range; return the parts of it that are new."""
        first = bisect_left(self.ends, start)
        last, new, at = first, [], start
        while last < len(self.starts) and self.starts[last] <= end:
            if at < self.starts[last]:
                new.append((at, self.starts[last]))
            at = max(at, self.ends[last])
            last += 1
        if at < end:
            new.append((at, end))
        if first < last:
            start, end = min(start, self.starts[first]), max(end, self.ends[last - 1])
        self.starts[first:last], self.ends[first:last] = [start], [end]
        return new
