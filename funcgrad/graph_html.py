"""A graph as an HTML table for a notebook: operation, type, bytes, share of time, saved or recomputed, source line.

The style is part of the table, takes the notebook's own colours (light or dark) and loads nothing from anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from funcgrad.errors import message
from funcgrad.ir import Atom, Equation, Graph, Names, Var, subgraphs
from funcgrad.passes.cost import VIEWS, flops_of
from funcgrad.passes.fuse import Fused

__all__ = ["graph_html", "phases", "weight"]

BALANCE = 8  # floating-point operations that take as long as moving one byte: for estimates only
FIRST, LIMIT = 40, 2000  # rows before the fold, and rows in all
SHOWN = 6  # operands, results and types of one operation
CHUNK, LONGEST = 500, 90  # rows of a fold, letters of an operation's parameters
COLUMNS = (("name", 7), ("operation", 0), ("type", 13), ("bytes", 9), ("time", 11), ("pass", 12), ("source", 18))
UNSET = re.compile(r"\w+=(?:None|\(\))(?:, |(?=\)))")  # parameters that say nothing
STYLE = """<style>
.fg-graph{font-size:12px;color:inherit;max-width:1200px}
.fg-graph table.fg{table-layout:fixed;width:100%;border-collapse:collapse;margin:0;color:inherit;background:none}
.fg-graph table.fg th,.fg-graph table.fg td{text-align:left;vertical-align:top;padding:2px 6px;border:0;
border-bottom:1px solid rgba(128,128,128,.25);overflow-wrap:anywhere;white-space:normal;max-width:none}
.fg-graph table.fg th{border-bottom:1px solid rgba(128,128,128,.7)}
.fg-graph table.fg tr{background:none}
.fg-graph table.fg td.n,.fg-graph table.fg th.n{text-align:right;font-variant-numeric:tabular-nums}
.fg-graph table.fg td.c{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}
.fg-graph table.fg td.body{padding:0 0 4px 16px}
.fg-graph i,.fg-graph .p{opacity:.65}
.fg-graph summary{cursor:pointer;padding:2px 0}
</style>"""


def graph_html(
    graph: Graph, seconds: Mapping[Equation, float] | None = None, *, first: int = FIRST, limit: int = LIMIT
) -> str:
    """Return a graph as an HTML table, its first rows open, the rest and the bodies of calls and loops folded.

    ``seconds`` are measured times by equation; without them, and inside bodies, shares are estimated from
    floating-point operations and bytes moved, and marked so.  At most ``limit`` rows are written.

    >>> from funcgrad import make_graph
    >>> "estimated" in graph_html(make_graph(lambda x: x * 2.0)(1.0))
    True
    """
    if first < 1 or limit < 1:
        raise ValueError(message("graph_html", "first and limit must be at least 1", f"{first} and {limit}"))
    return f'<div class="fg-graph">{STYLE}{_Writer(graph, seconds, first, limit).all()}</div>'


def weight(eqn: Equation) -> float:
    """An estimate of an equation's time, in bytes moved: the larger of its traffic and its arithmetic.

    >>> from funcgrad import make_graph
    >>> [weight(e) for e in make_graph(lambda x: x * 2.0)(np.ones(8, "float32")).eqns]
    [68.0]
    """
    prim = eqn.prim
    if prim.name in VIEWS:
        return 0.0
    bodies = [] if isinstance(prim, Fused) else list(subgraphs(prim))
    if bodies:
        parts = [_body_weight(g) for g in bodies]
        return max(parts) if prim.name == "cond" else int(prim.params().get("length", 1)) * sum(parts)
    moved = sum([a.aval.nbytes for a in eqn.inputs]) + sum([v.aval.nbytes for v in eqn.outputs])
    return float(max(moved, flops_of(eqn) / BALANCE))


def _body_weight(graph: Graph) -> float:
    if "weight" not in graph.memo:
        graph.memo["weight"] = sum([weight(e) for e in graph.eqns])
    found: float = graph.memo["weight"]
    return found


# -- forward, saved, backward, recomputed ------------------------------------------------------------------------
def phases(graph: Graph) -> dict[Equation, str]:
    """Say for each equation of a graph with a backward half which half it is of; an empty dict when there is none.

    One that reads gradients and leads to no further ones is "update"; a result that the backward half reads makes its
    equation "forward, saved".
    """
    own = {e: _own_phases(e) for e in graph.eqns}
    if not any(own.values()):
        return {}
    wanted: set[Any] = set()  # what leads to a further equation of the backward half
    for e in reversed(graph.eqns):
        if "backward" in own[e] or any(v in wanted for v in e.outputs):
            wanted.update(e.inputs)
    late: set[Any] = set()  # what depends on the backward half
    found: dict[Equation, str] = {}
    for e in graph.eqns:
        found[e] = _phase(own[e])
        if not own[e]:
            depends = any(a in late for a in e.inputs)
            after = "backward" if any(v in wanted for v in e.outputs) else "update"
            found[e] = after if depends else "forward"
        if found[e] != "forward" and found[e] != "recomputed":
            late.update(e.outputs)
    read = {a for e in graph.eqns if found[e] != "forward" and found[e] != "update" for a in e.inputs}
    saved = [e for e in graph.eqns if found[e] == "forward" and any(v in read for v in e.outputs)]
    return {**found, **dict.fromkeys(saved, "forward, saved")}


def _own_phases(eqn: Equation) -> set[str]:
    """The phases that the sites of an equation, or of what is fused in it, name."""
    if isinstance(eqn.prim, Fused):
        return {s.phase for e in eqn.prim.graph.eqns if (s := e.site) is not None and e.prim.name not in VIEWS} - {""}
    return {eqn.site.phase} - {""} if eqn.site is not None else set()


def _phase(own: set[str]) -> str:
    if len(own) > 1:
        return "backward, recomputes"
    return next(iter(own), "forward")


# -- writing -----------------------------------------------------------------------------------------------------
class _Writer:
    """Writes one graph and the graphs in it, and counts the rows."""

    def __init__(self, graph: Graph, seconds: Mapping[Equation, float] | None, first: int, limit: int):
        self.graph, self.first, self.left = graph, first, limit
        self.seconds = dict(seconds or {})
        self.measured = sum(self.seconds.values())
        self.shown: dict[int, str] = {}  # graphs written already: the name of the place

    def all(self) -> str:
        """The headline and the graph."""
        graph = self.graph
        made = sum([v.aval.nbytes for e in graph.eqns for v in e.outputs if e.prim.name not in VIEWS])
        how = f"{self.measured * 1e3:.3f} ms measured" if self.measured else "time estimated from operations and bytes"
        head = f"<b>{_escape(graph.name or 'graph')}</b>: {_operations(len(graph.eqns))}, {made:,} bytes made, {how}"
        return f"<div>{head}</div>{self.body(graph, 1.0, top=True)}"

    def body(self, graph: Graph, share: float, top: bool = False) -> str:
        """A graph's inputs, its equations and its results; ``share`` is its part of all time."""
        names, halves = Names(), phases(graph)
        columns = [c for c in COLUMNS if c[0] != "pass" or halves]
        inputs = [_input_row(names, v, len(columns)) for v in graph.inputs]
        total, rows = _body_weight(graph) or 1.0, []
        for eqn in graph.eqns[: self.left]:
            self.left -= 1
            part, about = share * weight(eqn) / total, "≈ " if self.measured else ""
            if top and self.measured:
                part, about = self.seconds.get(eqn, 0.0) / self.measured, ""
            rows.append(self.row(eqn, names, halves.get(eqn) if halves else None, part, about))
        rest = len(graph.eqns) - len(rows)
        tail = f"<div><i>and {rest:,} more operations; print the graph to see all</i></div>" if rest else ""
        title = "time, measured" if top and self.measured else "time, estimated"
        return f"{self.tables(inputs, rows, columns, title)}{tail}<div>return {_atoms(names, graph.outputs)}</div>"

    def tables(self, inputs: list[str], rows: list[str], columns: Sequence[tuple[str, int]], title: str) -> str:
        """Many inputs folded in front, the first rows open, the others folded."""
        before = ""
        if len(inputs) > SHOWN:
            before, inputs = _fold(f"{len(inputs):,} inputs", _table(inputs, columns, title)), []
        count = len(rows) if len(rows) <= self.first + SHOWN else self.first
        opened = _table(inputs + rows[:count], columns, title)
        chunks = [(i, rows[i : i + CHUNK]) for i in range(count, len(rows), CHUNK)]
        folds = [
            _fold(f"operations {i + 1:,} to {i + len(chunk):,} of {len(rows):,}", _table(chunk, columns, title))
            for i, chunk in chunks
        ]
        return before + opened + "".join(folds)

    def row(self, eqn: Equation, names: Names, half: str | None, share: float, about: str) -> str:
        """One equation, and the graphs in it below it."""
        outs = [names[v] for v in eqn.outputs]
        size = sum([v.aval.nbytes for v in eqn.outputs])
        what = f"<b>{_escape(eqn.prim.name)}</b> {_atoms(names, eqn.inputs)}{_params(eqn)}"
        bar = f"linear-gradient(90deg,rgba(66,133,244,.35) {share:.1%},transparent {share:.1%})"
        middle = "" if half is None else f"<td>{half}</td>"
        return (
            f"<tr><td class=c>{_some(outs, ', ')}</td><td class=c>{what}</td>"
            f"<td class=c>{_some([str(v.aval) for v in eqn.outputs], '<br>')}</td><td class=n>{size:,}</td>"
            f'<td class=n style="background:{bar}">{about}{share:.1%}</td>{middle}'
            f"<td>{_escape(str(eqn.site or ''))}</td></tr>{self.inside(eqn, share, outs, half is not None)}"
        )

    def inside(self, eqn: Equation, share: float, outs: Sequence[str], wide: bool) -> str:
        """The graphs that an equation holds, folded; one that was written before is only named."""
        parts = []
        for graph in subgraphs(eqn):
            place = self.shown.get(id(graph))
            if place is not None:
                parts.append(f"<div><i>the graph of {place}, above</i></div>")
                continue
            self.shown[id(graph)] = f"{eqn.prim.name} {_some(outs, ', ')}"
            times = eqn.prim.params().get("length")
            label = f"{eqn.prim.name}: {_operations(len(graph.eqns))}" + (f", {times:,} times" if times else "")
            parts.append(_fold(_escape(label), self.body(graph, share)))
        span = len(COLUMNS) - (not wide)
        return f"<tr><td class=body colspan={span}>{''.join(parts)}</td></tr>" if parts else ""


def _input_row(names: Names, v: Var, columns: int) -> str:
    blank = "<td></td>" * (columns - 4)
    return (
        f"<tr><td class=c>{names[v]}</td><td class=c><i>input</i></td><td class=c>{v.aval}</td>"
        f"<td class=n>{v.aval.nbytes:,}</td>{blank}</tr>"
    )


def _table(rows: Sequence[str], columns: Sequence[tuple[str, int]], title: str) -> str:
    heads = []
    for name, width in columns:
        kind = " class=n" if name in ("bytes", "time") else ""
        size = f' style="width:{width}%"' if width else ""
        heads.append(f"<th{kind}{size}>{title if name == 'time' else name}</th>")
    return f"<table class=fg><thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _operations(n: int) -> str:
    return f"{n:,} operation{'s' * (n != 1)}"


def _fold(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>{content}</details>"


def _atoms(names: Names, atoms: Sequence[Atom]) -> str:
    return _some([_escape(names[a]) for a in atoms], " ")


def _some(texts: Sequence[str], between: str) -> str:
    """The first few texts, already escaped, and how many more there are."""
    more = [f"<i>and {len(texts) - SHOWN} more</i>"] if len(texts) > SHOWN + 1 else []
    return between.join([*(texts[:SHOWN] if more else texts), *more])


def _params(eqn: Equation) -> str:
    """The static parameters of an operation, dim and not too long."""
    text = UNSET.sub("", str(eqn.prim)[len(eqn.prim.name) :]).replace(", )", ")")
    if len(text) <= len("()"):
        return ""
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return f" <span class=p>{_escape(text)}</span>"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _repr_html(graph: Graph) -> str:
    """What a notebook shows of a graph."""
    return graph_html(graph)


Graph._repr_html_ = _repr_html  # type: ignore[attr-defined]
