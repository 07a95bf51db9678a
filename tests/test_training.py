"""fit: epochs, steps, history, callbacks, progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import data, io, optim, random, training

X = np.random.default_rng(0).normal(size=(20, 3)).astype("f")
Y = (X @ np.float32([1, -2, 3])).astype("f")


def loss(w: Any, batch: Any) -> Any:
    return ((batch["x"] @ w - batch["y"]) ** 2).mean()


TS = fg.make_train_step(loss, optim.inject_hyperparams(optim.adam)(learning_rate=0.1))


def start() -> Any:
    return TS.init(fnp.zeros(3))


def rows(**kwargs: Any) -> data.Batches:
    return data.batches({"x": X, "y": Y}, 4, key=random.key(5), **kwargs)


def leaves(state: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in fg.tree.leaves(state)]


def by_hand(epochs: int) -> tuple[Any, list[float]]:
    """The same run as a plain loop."""
    state, losses = start(), []
    for batch in rows(epochs=epochs):
        state, metrics = TS.step(state, batch)
        losses.append(float(metrics["loss"]))
    return state, losses


def test_fit_is_the_plain_loop() -> None:
    want, losses = by_hand(3)
    state, history = training.fit(TS, start(), rows(), epochs=3, progress=False)
    assert leaves(state) == leaves(want)
    assert history.steps["loss"].tolist() == losses and len(losses) == 15
    assert history.steps["step"].tolist() == list(range(1, 16))
    np.testing.assert_allclose(history["loss"], np.reshape(losses, (3, 5)).mean(1), rtol=1e-12)
    assert history.epochs["epoch"].tolist() == [0, 1, 2] and history.epochs["step"].tolist() == [5, 10, 15]


def test_prefetched_batches_are_the_same() -> None:
    state, _ = training.fit(TS, start(), rows(), epochs=3, progress=False, prefetch=3)
    assert leaves(state) == leaves(by_hand(3)[0])


def test_the_callers_batches_stay_where_they_are() -> None:
    batches = rows()
    next(batches)
    before = str(batches.state())
    _, history = training.fit(TS, start(), batches, epochs=1, progress=False)
    assert len(history.steps) == 4 and str(batches.state()) == before


@pytest.mark.parametrize(("steps", "epochs", "want", "ended"), [(7, None, 7, 1), (10, 5, 10, 2), (100, 2, 10, 2)])
def test_steps_and_epochs(steps: int, epochs: int | None, want: int, ended: int) -> None:
    _, history = training.fit(TS, start(), rows(), steps=steps, epochs=epochs, progress=False)
    assert len(history.steps) == want and len(history.epochs) == ended


def test_lists_functions_and_generators() -> None:
    items = list(rows())
    state, history = training.fit(TS, start(), items, epochs=2, progress=False)
    seen = []

    def of_epoch(epoch: int) -> Iterator[Any]:
        seen.append(epoch)
        return iter(items)

    same, _ = training.fit(TS, start(), of_epoch, epochs=2, progress=False)
    assert leaves(same) == leaves(state) and seen == [0, 1] and len(history.steps) == 10
    with pytest.raises(ValueError, match=r"an epoch must have a batch, got none in epoch 1[\s\S]*a function"):
        training.fit(TS, start(), iter(items), epochs=2, progress=False)
    with pytest.raises(ValueError, match="none in epoch 0"):
        training.fit(TS, start(), [], epochs=2, progress=False)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="epochs or steps is required"):
        training.fit(TS, start(), rows())
    with pytest.raises(ValueError, match="checkpoint_every needs a checkpoint"):
        training.fit(TS, start(), rows(), epochs=1, checkpoint_every=3)
    for bad in ({"patience": 0}, {"mode": "up"}, {"min_delta": -1.0}, {"min_delta": float("nan")}):
        with pytest.raises(ValueError, match="EarlyStopping"):
            training.EarlyStopping("loss", **bad)  # type: ignore[arg-type]
    for bad in ({"factor": 1.0}, {"min_lr": -1.0}, {"patience": 0}):
        with pytest.raises(ValueError, match="ReduceOnPlateau"):
            training.ReduceOnPlateau("loss", **bad)  # type: ignore[arg-type]


def test_evaluation_is_recorded_and_history_prints() -> None:
    _, history = training.fit(
        TS, start(), rows(), epochs=2, progress=False, evaluate=lambda s: {"loss": loss(s.params, {"x": X, "y": Y})}
    )
    assert history["val_loss"][1] < history["val_loss"][0]
    lines = str(history).splitlines()
    assert lines[0].split()[:3] == ["epoch", "step", "loss"] and len(lines) == 3 and repr(history) == str(history)
    assert repr(history.epochs).startswith("Table(2 rows of epoch, step, loss, val_loss")
    assert history._repr_html_().startswith("<table><tr><td>epoch</td><td>step</td><td>loss</td>")
    with pytest.raises(KeyError, match="names are epoch, step, loss"):
        history.epochs["nothing"]


def fake(values: list[float]) -> Any:
    """A step whose loss in epoch i is values[i]; its state counts."""
    return lambda state, batch: (state + 1, {"loss": values[int(state) // 2]})


def test_columns_that_say_nothing_are_not_printed() -> None:
    """Whether every loss was finite and how many steps were skipped: only where some were not, or were."""
    _, history = training.fit(TS, start(), rows(), epochs=2, progress=False)
    assert history.epochs["finite"].tolist() == [1, 1] and history.epochs["skipped"].tolist() == [0, 0]
    assert str(history).splitlines()[0].split() == ["epoch", "step", "loss", "grad_norm"]
    assert "finite" not in history._repr_html_() and "skipped" not in history._repr_html_()
    history.epochs.append({"epoch": 2, "step": 15, "loss": 1.0, "finite": 0.8, "skipped": 1.0})
    assert str(history).splitlines()[0].split() == ["epoch", "step", "loss", "finite", "grad_norm", "skipped"]
    assert "<td>finite</td>" in history._repr_html_()


def test_early_stopping() -> None:
    values = [3.0, 2.0, 2.5, float("nan"), 1.95, 2.0, 2.0, 2.0, 1.0]
    for delta, want in ((0.0, 8), (0.1, 5)):  # 1.95 is an improvement on 2.0, but not by 0.1
        stop = training.EarlyStopping("loss", patience=3, min_delta=delta)
        _, history = training.fit(fake(values), 0, [1, 2], epochs=9, callbacks=[stop], progress=False)
        assert len(history.epochs) == want
    stop = training.EarlyStopping("loss", patience=1, mode="max")
    _, history = training.fit(fake([1.0, 2.0, 1.5, 3.0]), 0, [1, 2], epochs=4, callbacks=[stop], progress=False)
    assert len(history.epochs) == 3 and stop.best_value == 2.0 and stop.best_epoch == 1


def test_reduce_on_plateau_lowers_the_rate_without_a_retrace() -> None:
    ts = fg.make_train_step(lambda w, b: (w * 0 + 1.0).sum(), optim.inject_hyperparams(optim.sgd)(learning_rate=1.0))
    rates = []

    def note(run: training.Run) -> None:
        rates.append(float(run.state.opt_state.hyperparams["learning_rate"]))

    reduce = training.ReduceOnPlateau("loss", factor=0.5, patience=2, min_lr=0.2)
    training.fit(ts, ts.init(fnp.ones(2)), [0.0], epochs=9, callbacks=[reduce, note], progress=False)
    assert rates == pytest.approx([1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2])
    assert ts.step.captured.stats.traces == 1  # type: ignore[attr-defined]
    plain = fg.make_train_step(lambda w, b: (w * 0 + 1.0).sum(), optim.sgd(1.0))
    with pytest.raises(ValueError, match="inject_hyperparams"):
        training.fit(plain, plain.init(fnp.ones(2)), [0.0], epochs=9, callbacks=[reduce], progress=False)


def test_save_best(tmp_path: Path) -> None:
    best = training.SaveBest(tmp_path / "best", "loss")
    training.fit(fake([3.0, 1.0, 2.0]), 0, [1, 2], epochs=3, callbacks=[best], progress=False)
    assert int(io.load(tmp_path / "best", like=0)) == 4
    assert io.metadata(tmp_path / "best") == {"epoch": "1", "loss": "1.0"}


def test_a_callback_may_stop_in_mid_epoch() -> None:
    class Stop(training.Callback):
        def on_step(self, run: training.Run) -> None:
            if run.step == 7:
                run.stop = "enough"

    _, history = training.fit(TS, start(), rows(), epochs=9, callbacks=[Stop()], progress=False)
    assert len(history.steps) == 7 and len(history.epochs) == 1


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    _, history = training.fit(TS, start(), rows(), epochs=2, progress=False, evaluate=lambda s: {"loss": 1.0})
    figure = history.plot(tmp_path / "loss.png")
    labels = [line.get_label() for line in figure.axes[0].lines]
    assert labels == ["loss of each step", "loss", "val_loss"]
    assert (tmp_path / "loss.png").read_bytes()[:4] == b"\x89PNG"
    shown: list[Any] = []
    training.fit(TS, start(), rows(), epochs=3, progress=False, callbacks=[training.LivePlot(2, shown.append)])
    assert len(shown) == 1


def test_a_metric_of_aux_is_drawn_with_its_twin() -> None:
    pytest.importorskip("matplotlib")
    ts = fg.make_train_step(
        lambda w, b: (loss(w, b), {"error": fnp.abs(w).sum(), "b": w[0]}), optim.sgd(0.1), has_aux=True
    )
    found = {"loss": 1.0, "error": 2.0}
    _, history = training.fit(ts, ts.init(fnp.zeros(3)), rows(), epochs=2, progress=False, evaluate=lambda s: found)
    figure = history.plot()
    drawn = {a.get_ylabel(): [line.get_label() for line in a.lines] for a in figure.axes if a.axison}
    assert drawn == {
        "loss": ["loss of each step", "loss", "val_loss"],
        "aux.error": ["aux.error of each step", "aux.error", "val_error"],
    }
    history.epochs.append({"epoch": 2, "step": 15, "error": 0.5})  # a metric of that name is nearer
    drawn = {a.get_ylabel(): [line.get_label() for line in a.lines] for a in history.plot().axes if a.axison}
    assert drawn == {"loss": ["loss of each step", "loss", "val_loss"], "error": ["error", "val_error"]}


def test_plots_of_what_is_not_there() -> None:
    """Gaps are bridged, empty charts say so, an epoch's rows without steps are drawn over epochs."""
    pytest.importorskip("matplotlib")
    history = training.History()
    assert history.plot().axes[0].texts[0].get_text() == "no finite loss yet"
    for i in range(6):
        history.epochs.append({"epoch": i, "loss": 1.0 / (i + 1), **({"val_loss": 0.5} if i % 3 == 2 else {})})
    axes = history.plot().axes[0]
    assert axes.get_xlabel() == "epoch"
    assert [line.get_xdata().tolist() for line in axes.lines] == [[0, 1, 2, 3, 4, 5], [2, 5]]
    many = history.plot(names=["loss", "val_loss", "a", "b", "c"])
    assert many.get_size_inches().tolist() == [6.4 * 3, 8.0] and not many.axes[5].axison
    assert [len(a.texts) for a in many.axes] == [0, 0, 1, 1, 1, 0]


def test_a_live_plot_updates_one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    seen: list[tuple[str, bytes]] = []

    class Handle:
        def update(self, image: bytes) -> None:
            seen.append(("update", image))

    def display(image: bytes, display_id: bool) -> Handle:
        seen.append(("display", image))
        return Handle()

    fake_module = SimpleNamespace(Image=lambda data: data, display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", fake_module)  # type: ignore[arg-type]
    training.fit(TS, start(), rows(), epochs=3, progress=False, callbacks=[training.LivePlot()])
    assert [kind for kind, _ in seen] == ["display", "update", "update"]
    assert all(image.startswith(b"\x89PNG") for _, image in seen)
    monkeypatch.setitem(sys.modules, "IPython.display", None)  # type: ignore[arg-type]
    with pytest.raises(ImportError, match="pip install IPython"):
        training.fit(TS, start(), rows(), epochs=1, progress=False, callbacks=[training.LivePlot()])


def test_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    training.fit(TS, start(), rows(), epochs=2)
    text = capsys.readouterr().err
    assert "10/10" in text and "loss=" in text


def test_progress_in_a_notebook_is_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ipywidgets a line of stdout, no warning (which would be an error here) and nothing on stderr."""
    tqdm = pytest.importorskip("tqdm")
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # type: ignore[arg-type]
    for name in ("auto", "autonotebook", "notebook"):  # which look when they are imported
        monkeypatch.delitem(sys.modules, f"tqdm.{name}", raising=False)
        monkeypatch.delattr(tqdm, name, raising=False)
    training.fit(TS, start(), rows(), epochs=2)
    out, err = capsys.readouterr()
    assert "10/10" in out and err == ""
