"""What a jitted function keeps for one signature, and how the leaves of a call are looked at and sent."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes, tree
from funcgrad.array import Array, asarray, is_data, to_host
from funcgrad.errors import message
from funcgrad.ir import Aval, Graph, Literal
from funcgrad.trace import Tracer, Value
from funcgrad.transforms.explain import Signature
from funcgrad.transforms.flat import argument_path, values_of

__all__ = ["Entry", "aval_of", "check_hashable", "upload"]


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

    @property
    def nbytes(self) -> int:
        """Memory that the entry keeps: arrays closed over, constants, and an estimate of what describes the graph."""
        plan = getattr(self.executable, "plan", None)
        arrays: dict[int, int] = {id(c): c.aval.nbytes for c in self.captured}
        for eqn in self.graph.eqns:
            arrays.update({id(a): a.aval.nbytes for a in eqn.inputs if isinstance(a, Literal)})
        return sum(arrays.values()) + 1024 * (len(self.graph.eqns) + (0 if plan is None else len(plan.nodes)))


def check_hashable(key: Any, value: Hashable, what: str) -> None:
    try:
        hash(value)
    except TypeError:
        got = f"{type(value).__name__} for {key!r}"
        raise ValueError(
            message(what, "a static argument must be hashable", got, "pass a tuple, or make it dynamic")
        ) from None


def aval_of(x: Any, args: Any, what: str, dev: Any) -> Aval:
    """The type that a leaf will have on the device."""
    if isinstance(x, Array) and x.device is not dev:
        return Aval(x.aval.shape, dtypes.host_dtype(x.aval.dtype, dev.float64))
    if isinstance(x, Value):
        return x.aval
    if isinstance(x, Aval):
        return x
    if not is_data(x):
        values_of(args, what, argument_path)  # raises with the path
    host = to_host(x, None, dev.float64)
    return Aval(host.shape, host.dtype)


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
