"""A jitted function ahead of time: traced, lowered, compiled; and its ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from funcgrad import tree
from funcgrad.errors import message
from funcgrad.graph_html import graph_html
from funcgrad.ir import Graph, format_graph
from funcgrad.passes.cost import Cost, cost_of, costs
from funcgrad.passes.pipeline import prepare, stages
from funcgrad.transforms.flat import in_result

__all__ = ["Compiled", "JitStats", "Lowered", "MemoryAnalysis", "Traced"]


LISTED = 20  # arguments and results that memory_text names


@dataclass
class JitStats:
    """What a jitted function has done so far.

    ``uploads`` counts calls that sent host data, ``nodes`` the last graph's nodes, ``fallbacks`` those of its
    operations that the CPU computes for the device.  ``device_time`` is the time in
    seconds that calls spent running graphs, ``host_time`` what they spent besides: tracing, compiling, Python.
    """

    traces: int = 0
    calls: int = 0
    launches: int = 0
    uploads: int = 0
    bytes_uploaded: int = 0
    downloads: int = 0
    bytes_downloaded: int = 0
    nodes: int = 0
    fallbacks: int = 0
    host_time: float = 0.0
    device_time: float = 0.0
    explained: bool = field(default=False, repr=False)


class MemoryAnalysis(NamedTuple):
    """Bytes that one call takes, exactly, under JAX's names; ``peak_size_in_bytes`` is the most at any time."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    peak_size_in_bytes: int


@dataclass
class Traced:
    """A function traced for one signature: ``graph``, and the structure of its result."""

    graph: Graph
    out_tree: tree.TreeDef
    name: str
    device: Any
    call: Callable[..., Any] = field(repr=False)
    get_executable: Callable[[], Any] = field(repr=False)
    arg_names: Sequence[str] = field(repr=False, default=())

    def _repr_html_(self) -> str:
        return graph_html(self.graph)

    @property
    def out_info(self) -> Any:
        """The types of the result, in its structure."""
        return tree.unflatten(self.out_tree, list(self.graph.out_avals))

    def lower(self) -> Lowered:
        """Get ready to compile for the device."""
        return Lowered(self)


@dataclass
class Lowered:
    """A traced function and the device that it will be compiled for."""

    traced: Traced

    @property
    def prepared(self) -> Graph:
        """The graph as the device lowers it: simplified, inlined, fused."""
        return prepare(self.traced.graph)

    def passes(self) -> dict[str, Graph]:
        """The graph after each pass by its name, from "trace" to what the device lowers.

        >>> from funcgrad import jit
        >>> passes = jit(lambda x: fnp.exp(x) * 2.0).lower(1.0).passes()
        >>> list(passes)
        ['trace', 'open calls', 'simplify', 'inline', 'masks', 'place', 'fuse', 'recompute']
        >>> [eqn.prim.name for eqn in passes["simplify"].eqns], [eqn.prim.name for eqn in passes["fuse"].eqns]
        (['exp', 'mul'], ['fused'])
        """
        return stages(self.traced.graph)

    def as_text(self, sites: bool = False) -> str:
        """The prepared graph as text; ``sites`` adds the user's source lines."""
        return format_graph(self.prepared, sites=sites)

    def _repr_html_(self) -> str:
        return graph_html(self.prepared)

    def cost_analysis(self) -> dict[str, float]:
        """Floating-point operations and bytes moved in all."""
        return cost_of(self.prepared)

    def costs(self) -> list[Cost]:
        """Floating-point operations and bytes moved by each operation, with its source line."""
        return costs(self.prepared)

    def compile(self) -> Compiled:
        """Plan and build what runs."""
        return Compiled(self, self.traced.get_executable())


@dataclass
class Compiled:
    """A function compiled for one signature; call it with arguments of that signature."""

    lowered: Lowered
    executable: Any = field(repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.lowered.traced.call(*args, **kwargs)

    def as_text(self, sites: bool = False) -> str:
        """What runs, as text: the device's own listing where it has one."""
        listing = getattr(self.executable, "as_text", None)
        return listing() if listing is not None and not sites else self.lowered.as_text(sites)

    def _repr_html_(self) -> str:
        return graph_html(self.lowered.prepared)

    def cost_analysis(self) -> dict[str, float]:
        """Floating-point operations and bytes moved in all."""
        return self.lowered.cost_analysis()

    def costs(self) -> list[Cost]:
        """Floating-point operations and bytes moved by each operation, with its source line."""
        return self.lowered.costs()

    def memory_analysis(self) -> MemoryAnalysis:
        """The exact memory of one call, from the plan; the numpy device has none."""
        plan = self._plan()
        sizes = (plan.argument_bytes, plan.output_bytes, plan.alias_bytes)
        return MemoryAnalysis(*sizes, plan.temp_bytes + plan.scratch_bytes, plan.peak_bytes)

    def memory_table(self) -> list[Any]:
        """Every buffer of the plan: type, kind, bytes, first and last node, place, source line."""
        return list(self._plan().rows)

    def live_bytes(self) -> list[int]:
        """Bytes in use while each node runs."""
        return list(self._plan().live_at())

    def memory_text(self) -> str:
        """The memory of one call as text: totals, arguments and results by tree path, the workspace by source line.

        For what a gradient keeps between its halves see :func:`funcgrad.debug.saved_residuals`.
        """
        plan, sizes = self._plan(), self.memory_analysis()
        live = plan.live_at()
        node = live.index(max(live)) if live else 0
        lines = [f"{name:<24} {size:>14,} bytes" for name, size in zip(sizes._fields, sizes, strict=True)]
        traced = self.lowered.traced
        results = [in_result(p) for p, _ in tree.leaves_with_path(traced.out_info)]
        for what, names, avals in (
            ("arguments", traced.arg_names, traced.graph.in_avals),
            ("results", results, traced.graph.out_avals),
        ):
            rows = sorted(zip(names, avals, strict=True), key=lambda row: -row[1].nbytes)
            lines.append(f"{what}, the largest first:")
            lines += [f"{aval.nbytes:>14,} bytes {aval} {name}" for name, aval in rows[:LISTED]]
            lines += [f"{sum(a.nbytes for _, a in rows[LISTED:]):>14,} bytes in {len(rows) - LISTED} more"] * (
                len(rows) > LISTED
            )
        places = {r.offset: r for r in plan.rows if r.kind == "temp" and r.offset >= 0 and r.first <= node <= r.last}
        by_line: dict[str, list[int]] = {}
        for row in places.values():  # where a value takes over another's place, the later one
            by_line.setdefault(str(row.site or "no line"), []).append(row.nbytes)
        lines.append(f"workspace at node {node} of {len(plan.nodes)}:")
        for site, parts in sorted(by_line.items(), key=lambda item: -sum(item[1])):
            lines.append(f"{sum(parts):>14,} bytes in {len(parts)} at {site}")
        return "\n".join(lines)

    def _plan(self) -> Any:
        plan = getattr(self.executable, "plan", None)
        if plan is None:
            name = self.lowered.traced.device.name
            raise NotImplementedError(
                message("memory_analysis", "the device must plan memory", name, "use the cpu device")
            )
        return plan
