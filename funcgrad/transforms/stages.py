"""A jitted function ahead of time: traced, lowered, compiled; and its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from funcgrad import tree
from funcgrad.ir import Graph, format_graph

__all__ = ["Compiled", "JitStats", "Lowered", "Traced"]


@dataclass
class JitStats:
    """What a jitted function has done so far."""

    traces: int = 0
    calls: int = 0
    launches: int = 0
    uploads: int = 0
    bytes_uploaded: int = 0
    downloads: int = 0
    bytes_downloaded: int = 0
    nodes: int = 0
    explained: bool = field(default=False, repr=False)


@dataclass
class Traced:
    """A function traced for one signature."""

    graph: Graph
    out_tree: tree.TreeDef
    name: str
    device: Any
    donated: frozenset[int]
    entry: Any

    def lower(self) -> Lowered:
        """Get ready to compile for the device."""
        return Lowered(self)


@dataclass
class Lowered:
    """A traced function and the device that it will be compiled for."""

    traced: Traced

    def as_text(self, sites: bool = False) -> str:
        """The graph as text; ``sites`` adds source lines."""
        return format_graph(self.traced.graph, sites=sites)

    def compile(self) -> Compiled:
        """Compile."""
        entry = self.traced.entry
        k = len(entry.captured)
        executable = entry.executable or self.traced.device.compile(
            self.traced.graph, frozenset(k + i for i in self.traced.donated)
        )
        return Compiled(self.traced, executable)


@dataclass
class Compiled:
    """A function compiled for one signature; call it with arguments of that signature."""

    traced: Traced
    executable: Any

    def as_text(self, sites: bool = False) -> str:
        """The graph as text."""
        return format_graph(self.traced.graph, sites=sites)
