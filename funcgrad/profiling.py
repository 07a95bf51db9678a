"""Time by operation and memory over a step: tables in a terminal, HTML in a notebook, charts with matplotlib."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from funcgrad.array import common_device
from funcgrad.errors import DeviceError, Site, message
from funcgrad.graph_html import graph_html
from funcgrad.ir import Equation, Graph
from funcgrad.optional import new_figure
from funcgrad.passes.pipeline import prepare
from funcgrad.passes.simplify import dead_code
from funcgrad.trace import trace
from funcgrad.transforms.flat import FlatFunction, avals_of, name_of, values_of
from funcgrad.transforms.jit import jit
from funcgrad.transforms.remat import without_checkpoint
from funcgrad.transforms.switches import inline_jit

__all__ = ["MemoryOverTime", "OperationTime", "Profile", "memory_over_time", "plot_memory", "profile"]

Path = str | os.PathLike[str]
NOWHERE = Site("no line", 0, "")
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))
TIME_UNITS = (("seconds", 1.0), ("milliseconds", 1e-3), ("microseconds", 1e-6))
LONGEST_NAME, LONGEST_TITLE = 32, 44  # letters in a chart


class OperationTime(NamedTuple):
    """One kernel call: its kind, the type of its result, seconds, its share of all, and the user's line."""

    operation: str
    type: str
    seconds: float
    share: float
    site: str


@dataclass(frozen=True, repr=False)
class Profile:
    """The time of each operation of a function, the longest first; prints as a table, in a notebook as HTML.

    ``graph`` is the graph that ran, after all passes, and ``times`` has the seconds of its equations.
    """

    name: str
    rows: Sequence[OperationTime]
    top: int = 20
    graph: Graph | None = field(default=None, repr=False)
    times: Mapping[Equation, float] = field(default_factory=dict, repr=False)

    @property
    def seconds(self) -> float:
        """All operations together; those inside loops count in their loop."""
        return sum([r.seconds for r in self.rows if not r.operation.startswith("inner ")])

    def by_operation(self) -> dict[str, float]:
        """Return seconds by kind of operation, the longest first."""
        total: dict[str, float] = {}
        for r in self.rows:
            total[r.operation] = total.get(r.operation, 0.0) + r.seconds
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (r.operation, r.type, f"{r.seconds * 1e3:.3f}", f"{r.share:.1%}", r.site) for r in self.rows[: self.top]
        ]

    def __str__(self) -> str:
        cells = [("operation", "type", "ms", "share", "line"), *self._cells()]
        widths = [max(len(row[i]) for row in cells) for i in range(5)]
        sides = "<<>><"
        lines = ["  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, widths, strict=True)).rstrip() for row in cells]
        more = len(self.rows) - self.top
        lines += [f"and {more} more"] if more > 0 else []
        return "\n".join([f"{self.name}: {self.seconds * 1e3:.3f} ms in {len(self.rows)} operations", *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{t}</th>" for t in ("operation", "type", "ms", "share", "line"))
        rows = ["".join(f"<td>{escape(c)}</td>" for c in cells) for cells in self._cells()]
        body = "".join(f"<tr>{r}</tr>" for r in rows)
        table = f"<p>{escape(self.name)}: {self.seconds * 1e3:.3f} ms</p><table><tr>{head}</tr>{body}</table>"
        if self.graph is None:
            return table
        return f"{table}<details><summary>in order</summary>{graph_html(self.graph, self.times)}</details>"

    def plot(self, path: Path | None = None) -> Any:
        """Draw the kinds of operation as bars; return matplotlib's figure.  Raises ImportError without matplotlib."""
        kinds = list(self.by_operation().items())
        times = kinds[: self.top]
        if len(kinds) > self.top:
            times.append((f"{len(kinds) - self.top} other kinds", sum([t for _, t in kinds[self.top :]])))
        unit, size = _unit(TIME_UNITS, max([t for _, t in times], default=0.0))
        figure = new_figure("Profile.plot", 7.0, 1.4 + 0.3 * max(len(times), 2))
        axes = figure.subplots()
        colors = ["tab:blue" if not name.startswith("inner ") else "tab:gray" for name, _ in times]
        bars = axes.barh(range(len(times)), [t / size for _, t in times], color=colors)
        axes.set_yticks(range(len(times)), [_shortened(name, LONGEST_NAME) for name, _ in times])
        axes.bar_label(bars, [_percent(t / max(self.seconds, 1e-12)) for _, t in times], padding=3)
        axes.margins(x=0.12)
        axes.set_ylim(max(len(times), 2) - 0.4, -0.6)
        axes.set_xlabel(unit + (" (gray: part of a loop's time)" if "tab:gray" in colors else ""))
        whole, scale = _unit(TIME_UNITS, self.seconds)
        figure.suptitle(f"{_shortened(self.name, LONGEST_TITLE)}: {self.seconds / scale:.3g} {whole}")
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


def _unit(units: Sequence[tuple[str, float]], top: float) -> tuple[str, float]:
    """The largest unit that is not larger than ``top``, or the smallest one."""
    return next((u for u in units if top >= u[1]), units[-1])


def _percent(share: float) -> str:
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def _shortened(text: str, most: int) -> str:
    """The text, its middle left out where it is too long for a chart."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"


def profile(fun: Callable[..., Any], *args: Any, repeat: int = 10, **kwargs: Any) -> Profile:
    """Time the operations of ``fun(*args)`` as one compiled graph; the mean of ``repeat`` runs.

    The step of ``make_train_step`` may be given too; no argument is donated.  Callbacks in the function run each time.
    Rows whose operation begins with "inner" are those of a loop's body, whose time is also in the loop's own row.  On
    Vulkan a scan is unrolled and has no such rows: its operations are rows like any other.

    Raises DeviceError on a device that cannot time its operations, and on Vulkan where the host takes part.

    >>> table = profile(lambda a, b: fnp.tanh(a @ b), fnp.ones((64, 64)), fnp.ones((64, 64)))
    >>> len(table.rows), sum(r.share for r in table.rows)
    (2, 1.0)
    """
    if repeat < 1:
        raise ValueError(message("profile", "repeat must be at least 1", repr(repeat)))
    fun = getattr(fun, "captured", fun)
    values, treedef = values_of((args, kwargs), f"profile {name_of(fun)}")
    flat = FlatFunction(lambda xs, kw: fun(*xs, **kw), treedef, "profile")
    traced = trace(flat, avals_of(values), name=name_of(fun))
    inputs = [*traced.captured, *values]
    device = common_device(inputs)
    graph = _marked(prepare(dead_code(traced.graph)))
    executable = device.compile(graph)
    if not hasattr(executable, "profile"):
        raise DeviceError(message("profile", "a device that times its operations is required", device.name, "use cpu"))
    times = executable.profile([x.storage for x in inputs], repeat)
    total = sum([t.seconds for t in times if not t.kind.startswith("inner ")]) or 1.0
    rows = [OperationTime(t.kind, str(t.aval), t.seconds, t.seconds / total, str(t.site or "")) for t in times]
    by_site = {id(e.site): e for e in graph.eqns}
    spent: dict[Equation, float] = dict.fromkeys(graph.eqns, 0.0)
    for t in times:
        if id(t.site) in by_site and not t.kind.startswith("inner "):
            spent[by_site[id(t.site)]] += t.seconds
    return Profile(name_of(fun), rows, graph=graph, times=spent)


def _marked(graph: Graph) -> Graph:
    """A prepared graph each equation of which has a site object of its own, by which its kernels are known."""
    eqns = [Equation(e.prim, e.inputs, e.outputs, Site(*(e.site or NOWHERE))) for e in graph.eqns]
    made = Graph(graph.inputs, eqns, graph.outputs, graph.name)
    made.memo["prepare", True] = made  # it is prepared already
    return made


class MemoryOverTime(NamedTuple):
    """Bytes in use while each operation of a function runs; ``without_checkpoint`` is None where that is the same."""

    live: list[int]
    without_checkpoint: list[int] | None


def memory_over_time(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> MemoryOverTime:
    """Return the bytes in use during each operation of ``fun(*args)``, from the plan; nothing is run.

    The function is planned a second time as if nothing in it were checkpointed.

    >>> memory_over_time(lambda x: fnp.exp(x) @ x, fnp.ones((4, 4))).without_checkpoint is None
    True
    """
    fun = getattr(fun, "captured", fun)
    own = fun if hasattr(fun, "lower") else jit(fun)
    live = own.lower(*args, **kwargs).compile().live_bytes()

    met: list[str] = []

    def plain(*args: Any, **kwargs: Any) -> Any:
        # Without the jit inside, which would remember this way of tracing.
        with inline_jit(), without_checkpoint() as found:
            out = fun(*args, **kwargs)
            met.extend(found)
            return out

    static, donated = (getattr(getattr(own, kind, None), "nums", ()) for kind in ("static", "donate"))
    other = jit(plain, static_argnums=static, donate_argnums=donated).lower(*args, **kwargs).compile()
    return MemoryOverTime(live, other.live_bytes() if met else None)


def plot_memory(fun: Callable[..., Any], *args: Any, path: Path | None = None, **kwargs: Any) -> Any:
    """Draw bytes in use over the operations of ``fun(*args)``, with and without its checkpoints; return the figure.

    With ``path`` the figure is written there.  Raises ImportError without matplotlib; the numbers are in
    :func:`memory_over_time`.
    """
    figure = new_figure("plot_memory", 7.0, 4.0)
    found = memory_over_time(fun, *args, **kwargs)
    lines = {"as it is" if found.without_checkpoint is None else "with checkpoint": found.live}
    if found.without_checkpoint is not None:
        lines["without checkpoint"] = found.without_checkpoint
    top = max([max(line, default=0) for line in lines.values()])
    unit, size = _unit(UNITS, top)
    axes = figure.subplots()
    for name, line in lines.items():
        at = np.arange(len(line))
        shade = axes.fill_between(at, np.array(line) / size, step="mid", alpha=0.25)
        label = f"{name}: at most {max(line, default=0) / size:.3g} {unit}"
        axes.step(at, np.array(line) / size, where="mid", label=label, color=shade.get_facecolor()[0, :3])
    axes.set(xlabel="operation, in the order in which they run", ylabel=f"{unit} in use")
    axes.set_ylim(
        0, max(top / size, 1.0 if unit == "bytes" else 0.0) * (1.1 + 0.08 * len(lines))
    )  # room for the legend
    axes.set_title(_shortened(name_of(getattr(fun, "captured", fun)), LONGEST_TITLE))
    axes.legend(loc="upper right")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
