"""What a jitted function keeps for one signature, and how a leaf of a call is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import tree
from funcgrad.array import Array, asarray, is_data, to_host
from funcgrad.ir import Aval, Graph, Literal
from funcgrad.trace import Tracer
from funcgrad.transforms.signature import Signature

__all__ = ["Entry", "upload"]


class Entry:
    """One signature of a jitted function: its graph, what the graph closes over, and what runs it."""

    __slots__ = (
        "again",
        "avals",
        "build",
        "captured",
        "context",
        "device",
        "devices",
        "donated",
        "executable",
        "graph",
        "host",
        "match",
        "out_avals",
        "out_tree",
        "signature",
        "used",
    )

    def __init__(self, signature: Signature, graph: Graph, captured: Sequence[Any], out_tree: tree.TreeDef):
        self.signature, self.graph, self.out_tree = signature, graph, out_tree
        self.avals, self.out_avals = list(signature.avals), graph.out_avals
        self.match, self.build = tree.matcher(signature.treedef), tree.builder(out_tree)
        self.device = dev = signature.device
        self.context = signature.context
        self.devices = [dev] * len(self.avals)
        self.host: tuple[int, ...] = ()  # the leaves that were host data at the last call
        self.captured = [c if isinstance(c, Tracer) or c.device is dev else asarray(c, device=dev) for c in captured]
        self.donated = tuple(sorted(signature.donated))
        self.executable: Any = None
        self.again: Callable[[], Entry] | None = None  # traces once more; where checkpoints fit a budget
        self.used = 0  # larger for what was looked up later

    @property
    def nbytes(self) -> int:
        """Memory that the entry keeps: arrays closed over, constants, and an estimate of what describes the graph."""
        plan = getattr(self.executable, "plan", None)
        arrays: dict[int, int] = {id(c): c.aval.nbytes for c in self.captured}
        for eqn in self.graph.eqns:
            arrays.update({id(a): a.aval.nbytes for a in eqn.inputs if isinstance(a, Literal)})
        return sum(arrays.values()) + 1024 * (len(self.graph.eqns) + (0 if plan is None else len(plan.nodes)))


def upload(x: Any, aval: Aval, dev: Any) -> Any:
    """Host data as storage for one call; None when it has another type."""
    if type(x) is np.ndarray and x.dtype == aval.dtype and x.shape == aval.shape:
        return dev.wrap(x)
    if isinstance(x, Tracer) or not is_data(x):
        return None
    if isinstance(x, Array) and x.device is dev:
        return x.storage if x.aval == aval else None
    host = to_host(x._host() if isinstance(x, Array) else x, None, dev.float64)
    return dev.wrap(host) if host.shape == aval.shape and host.dtype == aval.dtype else None
