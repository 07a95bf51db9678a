"""What a device does itself and what it leaves to the CPU, and how far two devices' results are apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes, tree
from funcgrad.errors import DeviceError
from funcgrad.ir import Graph, Literal
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime import device as devices
from funcgrad.transforms.inspect import make_graph

__all__ = ["Coverage", "Difference", "compare", "coverage"]


class Coverage(NamedTuple):
    """How a device runs a function: its nodes, the parts in which it alternates with the CPU, and what the CPU does.

    ``fallbacks`` counts (primitive, reason) pairs; it is empty when the device does everything.  ``nbytes`` says for
    each how many bytes cross the bus because of it at every call, an iteration of a while loop counted once.
    """

    device: str
    nodes: int
    steps: str
    fallbacks: dict[tuple[str, str], int]
    nbytes: dict[tuple[str, str], int]

    def __str__(self) -> str:
        lines = [f"{self.device}: {self.nodes} nodes, {sum(self.fallbacks.values())} equations on the CPU"]
        for key, n in sorted(self.fallbacks.items()):
            lines.append(f"  {n} x {key[0]}: {key[1]}; {self.nbytes[key]:,} bytes over the bus a call")
        return "\n".join([*lines, self.steps])


class Difference(NamedTuple):
    """The worst relative error of one primitive's results, and which results."""

    primitive: str
    error: float
    result: str


def coverage(fun: Callable[..., Any], *args: Any, device: Any = None) -> Coverage:
    """Return what the device would do itself of ``fun(*args)`` and what it would leave to the CPU, without running it.

    ``device`` is the first Vulkan device by default, or the default device where there is none.

    >>> coverage(lambda x: x * 2.0, 1.0, device="cpu").fallbacks
    {}
    """
    where = _first_vulkan() if device is None else devices.get(device)
    executable = where.compile(make_graph(fun)(*args))
    fallbacks = getattr(executable, "fallbacks", ())
    found = Counter((f.primitive, f.reason) for f in fallbacks)
    nbytes = {key: sum([f.nbytes for f in fallbacks if (f.primitive, f.reason) == key]) for key in found}
    text = executable.as_text() if hasattr(executable, "as_text") else ""
    return Coverage(where.name, getattr(executable, "n_nodes", 0), text, dict(found), nbytes)


def _first_vulkan() -> devices.Device:
    """The first Vulkan device, or the default device where there is none."""
    try:
        return devices.get("vulkan:0")
    except DeviceError:
        return devices.default()


def compare(fun: Callable[..., Any], *args: Any, devices: Sequence[Any] = ("cpu", "vulkan:0")) -> list[Difference]:
    """Print and return the worst relative error of each primitive on the second device against the first.

    Each equation of ``fun(*args)`` gets the first device's operands on both, so that errors do not add up.  The error
    is relative to the largest finite element of the result.  A function that closes over arrays is refused.

    >>> worst = compare(lambda x: x * 2.0, 3.0, devices=("numpy", "cpu"))
    mul                  0.0e+00  f32[]
    """
    first, second = [_device(d) for d in devices]
    graph: Graph = prepare(make_graph(fun)(*args), fused=False)
    leaves = tree.leaves(args)
    if len(leaves) != len(graph.inputs):
        raise ValueError(
            f"compare: the function must not close over arrays, got {len(graph.inputs) - len(leaves)} more"
        )
    env: dict[Any, Any] = {
        v: dtypes.narrow(np.asarray(x), v.aval.dtype) for v, x in zip(graph.inputs, leaves, strict=True)
    }
    worst: dict[str, Difference] = {}
    for eqn in graph.eqns:
        xs = [a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs]
        ins, outs = [a.aval for a in eqn.inputs], [v.aval for v in eqn.outputs]
        both = []
        for d in (first, second):
            got = d.run_primitive(eqn.prim, [d.put(np.asarray(x)) for x in xs], ins, outs)
            both.append([np.array(d.get(g, a)) for g, a in zip(got, outs, strict=True)])
        env.update(zip(eqn.outputs, both[0], strict=True))
        for want, have, aval in zip(*both, outs, strict=True):
            found = Difference(eqn.prim.name, _error(have, want), str(aval))
            if found.error >= worst.get(eqn.prim.name, found).error:
                worst[eqn.prim.name] = found
    result = sorted(worst.values(), key=lambda w: -w.error)
    for w in result:
        print(f"{w.primitive:20} {w.error:.1e}  {w.result}")
    return result


def _device(name: Any) -> Any:
    return devices.get(name)


def _error(have: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> float:
    """The largest difference relative to the largest finite element; infinite where only one is finite or NaN."""
    a, b = [dtypes.widen(v).astype(np.float64) for v in (have, want)]
    odd = ~(np.isfinite(a) & np.isfinite(b))
    if not np.array_equal(a[odd], b[odd], equal_nan=True):
        return float("inf")
    scale = np.abs(b[~odd]).max(initial=0.0)
    return float(np.abs(a - b)[~odd].max(initial=0.0) / scale) if scale else 0.0
