"""A graph as a notebook shows it: parsed as HTML, columns, sizes, shares, halves, folds, escapes."""

from __future__ import annotations

import time
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, optim
from funcgrad.graph_html import graph_html, phases, weight

X = np.ones((8, 4), np.float32)
W = np.ones((4, 4), np.float32)
VOID = {"br", "hr", "img", "meta", "link", "input"}


class Page(HTMLParser):
    """Checks that every tag is closed in order; collects the cells of each row with the depth of its folds."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.rows: list[tuple[int, list[str]]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.summaries: list[str] = []
        self.text = ""
        self._rows: list[tuple[int, list[str]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in VOID:
            return
        self.open.append(tag)
        if tag == "tr":
            self._rows.append((self.open.count("details"), []))
        elif tag in ("td", "th"):
            self._rows[-1][1].append("")
        elif tag == "summary":
            self.summaries.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "tr":
            self.rows.append(self._rows.pop())

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.text += data
        if self.open and self.open[-1] == "summary":
            self.summaries[-1] += data
        if self._rows:
            self._rows[-1][1][-1] += data

    def heads(self) -> list[list[str]]:
        return [cells for _, cells in self.rows if cells[0] == "name"]

    def equations(self, depth: int = 0) -> list[list[str]]:
        rows = [cells for d, cells in self.rows if d == depth and len(cells) > 3 and cells[0] != "name"]
        return [cells for cells in rows if cells[1] != "input"]


def page(graph: Any, **kwargs: Any) -> Page:
    return Page(graph_html(graph, **kwargs))


def layer(x: Any, w: Any) -> Any:
    return fnp.tanh(x @ w)


def loss(ws: Any, x: Any, wrap: Any = lambda f: f) -> Any:
    for w in ws:
        x = wrap(layer)(x, w)
    return (x**2).sum()


# -- columns -----------------------------------------------------------------------------------------------------
def test_columns_and_sizes_are_those_of_the_arrays() -> None:
    graph = fg.make_graph(lambda x, w: (layer(x, w) + 1, fnp.argmax(x, axis=1), x.astype("float16")))(X, W)
    got = page(graph)
    assert got.heads() == [["name", "operation", "type", "bytes", "time, estimated", "source"]]
    inputs = [cells for _, cells in got.rows if cells[1] == "input"]
    found = [(c[0], c[2], int(c[3].replace(",", ""))) for c in inputs]
    assert found == [("a", "f32[8,4]", X.nbytes), ("b", "f32[4,4]", W.nbytes)]
    rows = got.equations()
    assert len(rows) == len(graph.eqns)
    for cells, eqn in zip(rows, graph.eqns, strict=True):
        assert cells[1].startswith(eqn.prim.name) and cells[2] == str(eqn.outputs[0].aval)
        made = eqn.prim.evaluate(*[np.zeros(a.aval.shape, a.aval.dtype) for a in eqn.inputs])
        assert int(cells[3].replace(",", "")) == sum(np.asarray(m).nbytes for m in made)
        assert cells[-1].startswith("test_graph_html.py:")


def test_estimated_shares_add_up_and_order_by_work() -> None:
    graph = fg.make_graph(lambda x: fnp.exp(x @ x).sum())(np.ones((512, 512), np.float32))
    shares = [float(c[4].rstrip("%")) for c in page(graph).equations()]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    dot = 2 * 512**3 / 8  # 2 n^3 operations, eight of which take as long as a byte
    moved = [2 * 4 * 512**2, 4 * 512**2 + 4]
    assert [weight(e) for e in graph.eqns] == [dot, *moved]
    assert shares == pytest.approx([100 * w / (dot + sum(moved)) for w in (dot, *moved)], abs=0.06)


def test_a_loop_counts_its_iterations() -> None:
    graph = fg.make_graph(lambda x: lax.scan(lambda c, _: (c * 2.0, None), x, None, length=7)[0])(X)
    assert weight(graph.eqns[0]) == 7 * (2 * X.nbytes + 4)  # one multiplication reads and writes x, and reads a scalar
    got = page(graph)
    assert got.summaries == ["scan: 1 operation, 7 times"]
    assert len(got.equations(1)) == 1 and got.equations(1)[0][4] == "100.0%"


def test_measured_times_take_the_place_of_estimates() -> None:
    graph = fg.make_graph(lambda x: fnp.exp(x @ x).sum())(np.ones((8, 8), np.float32))
    got = page(graph, seconds=dict(zip(graph.eqns, (1e-3, 2e-3, 1e-3), strict=True)))
    assert got.heads()[0][4] == "time, measured" and "4.000 ms measured" in got.text
    assert [c[4] for c in got.equations()] == ["25.0%", "50.0%", "25.0%"]
    loop = fg.make_graph(lambda x: lax.fori_loop(0, 5, lambda i, c: c * 2.0, x))(X)
    inner = page(loop, seconds={loop.eqns[-1]: 1e-3})
    assert inner.heads()[1][4] == "time, estimated"
    assert all(c[4].startswith("≈ ") for c in inner.equations(1))


# -- halves ------------------------------------------------------------------------------------------------------
def test_saved_and_backward() -> None:
    """d tanh(x) = 1 - tanh(x)^2 reads the result of tanh; x**2 reads its operand; the sum's result is read by none."""
    graph = fg.make_graph(fg.value_and_grad(loss))([W, W], X)
    got = page(graph)
    assert got.heads()[0] == ["name", "operation", "type", "bytes", "time, estimated", "pass", "source"]
    by_name = [(c[1].split()[0], c[5]) for c in got.equations()]
    assert [p for n, p in by_name if n == "tanh"] == ["forward, saved"] * 2
    assert [p for n, p in by_name if n == "reduce_sum"] == ["forward"]
    assert [p for n, p in by_name if n == "dot_general"] == ["forward"] * 2 + ["backward"] * 3
    saved = {str(v.aval) for e, p in phases(graph).items() if p == "forward, saved" for v in e.outputs}
    assert saved == {str(r.aval) for r in fg.debug.saved_residuals(loss, [W, W], X)} - {"f32[4,4]"}


def test_a_checkpoint_computes_again() -> None:
    graph = fg.make_graph(fg.grad(lambda ws, x: loss(ws, x, fg.checkpoint)))([W, W], X)
    forward, backward = (
        [e for e in graph.eqns if e.prim.name == "checkpoint" and phases(graph)[e].startswith(half)]
        for half in ("forward", "backward")
    )
    assert len(forward) == len(backward) == 2
    again = [list(phases(e.prim.graph).values()) for e in backward]
    assert [a[:2] for a in again] == [["recomputed"] * 2] * 2
    assert all(p == "backward" for a in again for p in a[2:])
    lowered = fg.jit(fg.grad(lambda ws, x: loss(ws, x, fg.checkpoint))).lower([W, W], X)
    found = Page(lowered._repr_html_()).equations()
    assert [c[5] for c in found if c[1].startswith("dot_general")].count("recomputed") == 2
    fused = [c[5] for c in found if c[1].startswith("fused")]
    assert fused and all(c in ("backward, recomputes", "backward") for c in fused)
    plain = Page(fg.jit(fg.grad(loss)).lower([W, W], X)._repr_html_())
    assert "recompute" not in plain.text


def test_what_reads_gradients_is_the_update() -> None:
    ts = fg.make_train_step(lambda p, x: loss(p, x), optim.sgd(0.1))
    lowered = ts.step.captured.lower(ts.init([W, W]), X)  # type: ignore[attr-defined]
    found = {c[5] for c in Page(lowered._repr_html_()).equations()}
    assert "update" in found and "forward, saved" in found and "backward" in found


def test_a_custom_rule_is_part_of_the_backward_half() -> None:
    @fg.custom_vjp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (ct * fnp.cos(x) * 3.0,))
    graph = fg.make_graph(fg.grad(lambda w: fnp.tanh(f(fnp.tanh(w))).sum()))(X)
    found = phases(graph)
    names = [(e.prim.name, found[e]) for e in graph.eqns]
    assert not [n for n in names if n[1] == "update"]


# -- folds and escapes -------------------------------------------------------------------------------------------
def chain(n: int) -> Any:
    def f(x: Any) -> Any:
        for _ in range(n):
            x = fnp.sin(x)
        return x

    return fg.make_graph(f)(X)


def test_long_graphs_are_folded() -> None:
    got = page(chain(1200), first=30, limit=1000)
    assert len(got.equations(0)) == 30 and len(got.equations(1)) == 970
    assert got.summaries == ["operations 31 to 530 of 1,000", "operations 531 to 1,000 of 1,000"]
    assert "and 200 more operations" in got.text
    assert len(page(chain(30)).equations(0)) == 30 and page(chain(30)).summaries == []
    with pytest.raises(ValueError, match="first and limit"):
        graph_html(chain(1), first=0)


def test_many_operands_and_inputs_are_folded() -> None:
    graph = fg.make_graph(lambda xs: fnp.concatenate(xs))([X] * 20)
    got = page(graph)
    assert got.summaries == ["20 inputs"] and "and 14 more" in got.equations()[0][1]


def test_a_body_is_written_once() -> None:
    inner = fg.jit(layer)
    graph = fg.make_graph(lambda x, w: inner(inner(x, w), w))(X, W)
    got = page(graph)
    assert got.summaries == ["call: 2 operations"] and "the graph of call c, above" in got.text


def test_names_are_escaped_and_nothing_is_loaded() -> None:
    def evil(x: Any) -> Any:
        with fg.named_scope("<script>alert('&')</script>"):
            return fg.jit(lambda y: y * 2.0)(x)

    evil.__name__ = 'a"<img src=x>'
    text = fg.make_graph(evil)(X)._repr_html_()
    got = Page(text)
    assert "label=<lambda>" in got.text and "<script>alert('&')</script>" in got.text
    tags = {tag for tag, _ in got.tags}
    assert tags <= {
        "div",
        "style",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "b",
        "i",
        "span",
        "br",
        "details",
        "summary",
    }
    assert {a for _, attrs in got.tags for a in attrs} <= {"class", "style", "colspan"}
    assert "http" not in text and "url(" not in text and "@import" not in text


def test_every_stage_shows_a_table() -> None:
    traced = fg.jit(layer).trace(X, W)
    lowered = traced.lower()
    assert traced._repr_html_() == traced.graph._repr_html_()
    assert lowered._repr_html_() == lowered.compile()._repr_html_() == graph_html(lowered.prepared)


def test_empty_graphs() -> None:
    assert page(fg.make_graph(lambda: None)()).equations() == []
    assert page(fg.make_graph(lambda x: x)(X)).equations() == []
    assert page(fg.make_graph(lambda x: x + 1)(np.zeros((0, 3), np.float32))).equations()[0][3] == "0"


def test_twelve_thousand_equations_are_quick() -> None:
    graph = chain(12_000)
    start = time.perf_counter()
    text = graph._repr_html_()
    assert time.perf_counter() - start < 3.0  # 0.04 s alone on one core
    assert len(text) < 1_000_000
