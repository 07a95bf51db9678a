"""Time by operation and memory over a step."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import debug, lax, optim
from funcgrad.errors import DeviceError

pytestmark = [pytest.mark.ggml, pytest.mark.usefixtures("on_cpu")]


def layers(ws: Any, x: Any, wrap: Any = lambda f: f) -> Any:
    for w in ws:
        x = wrap(lambda w, x: fnp.tanh(fnp.tanh(x @ w) @ w))(w, x)
    return (x**2).sum()


WS = [fnp.asarray(np.random.default_rng(i).normal(0, 0.1, (64, 64)).astype("f")) for i in range(6)]
X = fnp.ones((256, 64))


def test_profile_times_each_operation_and_names_its_line() -> None:
    big = fnp.ones((400, 400))
    table = debug.profile(lambda a, b: fnp.tanh(a @ b @ b) + a, big, big, repeat=3)
    assert table.rows[0].type == "f32[400,400]" and "test_profiling.py" in table.rows[0].site
    assert sum(r.share for r in table.rows) == pytest.approx(1.0)
    assert [r.seconds for r in table.rows] == sorted([r.seconds for r in table.rows], reverse=True)
    assert table.rows[0].operation in next(iter(table.by_operation()))
    text = str(table).splitlines()
    assert text[1].split() == ["operation", "type", "ms", "share", "line"] and len(text) == 2 + len(table.rows)
    assert "<table>" in table._repr_html_() and "&lt;lambda&gt;" in table._repr_html_()


def test_profile_of_a_train_step_leaves_its_state_alone() -> None:
    ts = fg.make_train_step(lambda w, x: layers(w, x), optim.adam(0.01))
    state = ts.init(WS)
    before = [np.asarray(leaf).tobytes() for leaf in fg.tree.leaves(state)]
    table = debug.profile(ts.step, state, X, repeat=2)
    assert table.seconds > 0 and len(table.rows) > 12
    assert [np.asarray(leaf).tobytes() for leaf in fg.tree.leaves(state)] == before
    ts.step(state, X)


def test_profile_has_the_time_of_each_equation() -> None:
    ts = fg.make_train_step(lambda w, x: layers(w, x, fg.checkpoint), optim.adam(0.01), max_grad_norm=1.0)
    table = debug.profile(ts.step, ts.init(WS), X, repeat=2)
    assert table.graph is not None and list(table.times) == list(table.graph.eqns)
    assert sum(table.times.values()) == pytest.approx(table.seconds, rel=0.02)  # what is left copies results
    dots = [t for e, t in table.times.items() if e.prim.name == "dot_general"]
    rows = [r for r in table.rows if r.operation == "dot"]
    assert len(dots) == len(rows) > 12 and sum(dots) == pytest.approx(sum(r.seconds for r in rows))
    assert all(t == 0.0 for e, t in table.times.items() if e.prim.name == "broadcast")
    html = table._repr_html_()
    assert "time, measured" in html and "recomputed" in html and ">update<" in html


def test_profile_of_a_loop_counts_its_inside_once() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, _: (fnp.tanh(c @ c), None), x, None, length=50)[0]

    table = debug.profile(f, fnp.ones((32, 32)), repeat=2)
    assert any(r.operation.startswith("inner ") for r in table.rows)
    assert table.seconds == pytest.approx(sum(r.seconds for r in table.rows if not r.operation.startswith("inner ")))


def test_profile_where_it_cannot_be() -> None:
    with fg.default_device("numpy"), pytest.raises(DeviceError, match="times its operations"):
        debug.profile(lambda x: x + 1, fnp.ones(3))
    with pytest.raises(ValueError, match="repeat"):
        debug.profile(lambda x: x + 1, fnp.ones(3), repeat=0)


def test_memory_with_and_without_checkpoint() -> None:
    plain = fg.grad(layers)
    saving = fg.grad(lambda ws, x: layers(ws, x, fg.checkpoint))
    found = debug.memory_over_time(saving, WS, X)
    assert found.without_checkpoint is not None
    assert max(found.live) < max(found.without_checkpoint)
    assert found.without_checkpoint == debug.memory_over_time(plain, WS, X).live
    assert debug.memory_over_time(plain, WS, X).without_checkpoint is None
    analysis = fg.jit(saving).lower(WS, X).compile().memory_analysis()
    assert max(found.live) == analysis.peak_size_in_bytes


def test_looking_without_checkpoint_changes_no_jitted_function() -> None:
    inner = fg.jit(lambda ws, x: layers(ws, x, fg.checkpoint))
    f = fg.jit(fg.grad(inner))
    first = debug.memory_over_time(f, WS, X)
    assert first.without_checkpoint is not None
    assert debug.memory_over_time(fg.jit(fg.grad(inner)), WS, X) == first
    assert max(fg.jit(fg.grad(inner)).lower(WS, X).compile().live_bytes()) == max(first.live)


def test_a_train_step_and_a_loop_with_checkpoint() -> None:
    def loss(w: Any, x: Any) -> Any:
        body = fg.checkpoint(lambda c, w: (fnp.tanh(fnp.tanh(c @ w) @ w), None))
        return (lax.scan(body, x, w)[0] ** 2).sum()

    ts = fg.make_train_step(loss, optim.sgd(0.01))
    found = debug.memory_over_time(ts.step, ts.init(fnp.stack(WS)), X)
    assert found.without_checkpoint is not None and max(found.live) < max(found.without_checkpoint)


def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    saving = fg.grad(lambda ws, x: layers(ws, x, fg.checkpoint))
    figure = debug.plot_memory(saving, WS, X, path=tmp_path / "memory.png")
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels[0].startswith("with checkpoint: at most") and labels[1].startswith("without checkpoint: at most")
    one = debug.plot_memory(fg.grad(layers), WS, X)
    assert [t.get_text()[:8] for t in one.axes[0].get_legend().get_texts()] == ["as it is"]
    debug.profile(saving, WS, X, repeat=1).plot(tmp_path / "time.png")
    assert all((tmp_path / n).read_bytes()[:4] == b"\x89PNG" for n in ("memory.png", "time.png"))


def test_a_chart_of_many_long_names_is_legible() -> None:
    pytest.importorskip("matplotlib")
    rows = [debug.OperationTime(f"inner {'long_name_' * 8}{i}", "f32[3]", 2.0**-i, 0.1, "") for i in range(59)]
    rows.append(debug.OperationTime("dot", "f32[3]", 4.0, 0.9, ""))
    figure = debug.Profile("module." * 20, rows).plot()
    figure.draw_without_rendering()
    axes, frame = figure.axes[0], figure.bbox
    labels = axes.get_yticklabels()
    assert [labels[0].get_text(), labels[-1].get_text()] == ["dot", "40 other kinds"] and len(labels) == 21
    boxes = [t.get_window_extent() for t in [*labels, figure.texts[0], axes.xaxis.label, *axes.texts]]
    assert all(b.x0 >= frame.x0 and b.x1 <= frame.x1 and b.y0 >= frame.y0 and b.y1 <= frame.y1 for b in boxes)
    heights = sorted((t.get_window_extent().y0, t.get_window_extent().y1) for t in labels)
    assert all(below[1] <= above[0] for below, above in itertools.pairwise(heights))
    assert axes.bbox.width > 0.4 * frame.width and axes.get_xlabel().startswith("seconds")
    assert [t.get_text() for t in axes.texts][:2] == ["100%", "25%"] and axes.texts[-1].get_text() == "<1%"
    short = debug.Profile("f", [debug.OperationTime("map", "f32[]", 3e-7, 1.0, "")]).plot()
    assert short.axes[0].get_xlabel() == "microseconds" and short.texts[0].get_text() == "f: 0.3 microseconds"


def test_without_matplotlib_the_tables_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    table = debug.profile(lambda x: fnp.exp(x), fnp.ones(8), repeat=1)
    assert "exp" in str(table) or "map" in str(table)
    history = fg.training.History()
    history.epochs.append({"epoch": 0, "loss": 1.0})
    assert "loss" in str(history) and "<td>loss</td>" in history._repr_html_() and "<table" in table._repr_html_()
    assert debug.memory_over_time(lambda x: x + 1, fnp.ones(3)).live
    for draw in (table.plot, history.plot, lambda: debug.plot_memory(lambda x: x + 1, fnp.ones(3))):
        with pytest.raises(ImportError, match="pip install matplotlib"):
            draw()


def test_figures_show_in_a_notebook_without_pyplot() -> None:
    pytest.importorskip("matplotlib")
    figure = debug.plot_memory(lambda x: fnp.exp(x) @ x, fnp.ones((40, 40)))
    assert figure._repr_png_().startswith(b"\x89PNG")
    again = pickle.loads(pickle.dumps(figure))
    assert again.axes[0].get_title() == figure.axes[0].get_title() and again._repr_png_().startswith(b"\x89PNG")


def test_a_profile_prints_as_its_table() -> None:
    table = debug.profile(lambda x: fnp.exp(x), fnp.ones((40, 40)), repeat=1)
    assert repr(table) == str(table) and repr(table).splitlines()[1].split()[0] == "operation"
