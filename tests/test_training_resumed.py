"""fit from checkpoints: a run that is killed again and again goes on bit for bit."""

from __future__ import annotations

import os
import random as python_random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_training import TS, X, Y, by_hand, fake, leaves, rows, start

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import data, io, random, training
from funcgrad.errors import FileFormatError, TreeError


class Fall(Exception):
    """The power fails."""


class FallAt(training.Callback):
    """Raises at a step, once."""

    def __init__(self, step: int):
        self.at = step

    def on_step(self, run: training.Run) -> None:
        if run.step == self.at:
            raise Fall


@pytest.mark.parametrize("every", [None, 1, 2, 3, 5])
@pytest.mark.parametrize("at", [1, 4, 5, 6, 10, 13])
def test_resumed_at_any_step(every: int | None, at: int, tmp_path: Path) -> None:
    want, whole = training.fit(TS, start(), rows(), epochs=3, progress=False)
    how: Any = dict(epochs=3, progress=False, checkpoint=tmp_path / "c", checkpoint_every=every)
    with pytest.raises(Fall):
        training.fit(TS, start(), rows(), callbacks=[FallAt(at)], **how)
    state, history = training.fit(TS, start(), rows(), callbacks=[FallAt(-1)], **how)
    assert leaves(state) == leaves(want)
    for name in ("steps", "epochs"):
        got, expected = getattr(history, name), getattr(whole, name)
        assert got.names == expected.names
        assert all(np.array_equal(got[n], expected[n], equal_nan=True) for n in got.names)
    again, _ = training.fit(TS, start(), rows(), callbacks=[FallAt(at)], **how)  # complete: nothing is run
    assert leaves(again) == leaves(want)


def test_the_checkpoint_holds_the_datas_key(tmp_path: Path) -> None:
    how: Any = dict(progress=False, checkpoint=tmp_path / "c")
    training.fit(TS, start(), rows(), steps=7, **how)
    other = data.batches({"x": X, "y": Y}, 4, key=random.key(99))
    state, _ = training.fit(TS, start(), other, epochs=3, **how)
    assert leaves(state) == leaves(by_hand(3)[0])


def test_resume_from_lists_and_callbacks_state(tmp_path: Path) -> None:
    values = [3.0, 2.0, 2.5, 2.6, 2.7, 1.0]
    how: Any = dict(progress=False, checkpoint=tmp_path / "c")
    training.fit(fake(values), 0, [1, 2], epochs=3, callbacks=[training.EarlyStopping("loss", 3)], **how)
    stop = training.EarlyStopping("loss", 3)
    state, history = training.fit(fake(values), 0, [1, 2], epochs=6, callbacks=[stop], **how)
    assert len(history.epochs) == 5 and state == 10 and stop.best_value == 2.0
    state, history = training.fit(fake(values), 0, [1, 2], epochs=9, callbacks=[stop], **how)
    assert state == 10  # it had stopped, and stays so


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    for name in (".c.123.0a1b2c3d.tmp", ".c2.123.0a1b2c3d.tmp", ".c.tmp", "x.c.1.0a1b2c3d.tmp"):
        (tmp_path / name).write_bytes(b"half")
    training.fit(TS, start(), rows(), epochs=1, progress=False, checkpoint=tmp_path / "c")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".c.tmp", ".c2.123.0a1b2c3d.tmp", "c", "x.c.1.0a1b2c3d.tmp"]


def test_resume_false_begins_again(tmp_path: Path) -> None:
    how: Any = dict(epochs=1, progress=False, checkpoint=tmp_path / "c")
    training.fit(TS, start(), rows(), **how)
    _, history = training.fit(TS, start(), rows(), resume=False, **how)
    assert history.steps["step"].tolist() == [1, 2, 3, 4, 5]


def test_checkpoints_of_something_else_are_refused(tmp_path: Path) -> None:
    how: Any = dict(epochs=1, progress=False, checkpoint=tmp_path / "c")
    training.fit(TS, start(), rows(), **how)
    wider = TS.init(fnp.zeros(4))
    with pytest.raises(TreeError, match=r"state.params: shape \(3,\) in the file, \(4,\) in like"):
        training.fit(TS, wider, rows(), **how)
    with pytest.raises(ValueError, match="callbacks must be those of the checkpoint"):
        training.fit(TS, start(), rows(), callbacks=[training.EarlyStopping("loss")], **how)
    io.save(tmp_path / "c", {"w": np.zeros(1)})
    with pytest.raises(FileFormatError, match="a checkpoint of fit"):
        training.fit(TS, start(), rows(), **how)
    with pytest.raises(TreeError, match="str at name"):
        training.fit(lambda s, b: (s, {}), {"name": "x"}, rows(), epochs=1, checkpoint=tmp_path / "d", progress=False)


def test_ctrl_c_writes_a_checkpoint(tmp_path: Path) -> None:
    class Press(training.Callback):
        presses = 0

        def on_step(self, run: training.Run) -> None:
            if run.step == 7 and not Press.presses:
                Press.presses += 1
                signal.raise_signal(signal.SIGINT)

    def calm(state: Any, batch: Any) -> Any:
        if Press.presses == 0 and calls.append(1) is None and len(calls) == 4:
            raise KeyboardInterrupt
        return TS.step(state, batch)

    calls: list[int] = []
    how: Any = dict(epochs=3, progress=False, checkpoint=tmp_path / "c")
    with pytest.raises(KeyboardInterrupt):  # between two steps: the checkpoint holds all three that were made
        training.fit(calm, start(), rows(), callbacks=[Press()], **how)
    assert '"step": 3' in io.metadata(tmp_path / "c")["run"]
    with pytest.raises(KeyboardInterrupt):  # in the middle of a step's callbacks: the last checkpoint stands
        training.fit(calm, start(), rows(), callbacks=[Press()], **how)
    assert '"step": 5' in io.metadata(tmp_path / "c")["run"]
    state, _ = training.fit(calm, start(), rows(), callbacks=[Press()], **how)
    assert leaves(state) == leaves(by_hand(3)[0])


PROGRAM = textwrap.dedent(
    """
    import sys, time
    import numpy as np
    import funcgrad as fg
    import funcgrad.numpy as fnp
    from funcgrad import data, losses, nn, optim, random, training
    from funcgrad.nn.module import fill

    @nn.module
    class Transformer:
        embed: object
        attention: object
        norm: object
        dropout: object
        head: object

        def __init__(self, key):
            k = random.split(key, 3)
            fill(self, embed=nn.Embedding(11, 8, key=k[0]), attention=nn.MultiHeadAttention(8, 2, key=k[1]),
                norm=nn.LayerNorm(8), dropout=nn.Dropout(0.2), head=nn.Linear(8, 11, key=k[2]))

        def __call__(self, ids, key):
            x = nn.rope(self.embed(ids)[:, :, None, :])[:, :, 0]
            x = x + self.dropout(self.attention(self.norm(x), is_causal=True), key=key)
            return self.head(x)

    def loss(model, ids, key):
        logits = model(ids[:, :-1], key)
        return losses.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]).mean()

    class Slow(training.Callback):
        def on_step(self, run):
            print("step", run.step, flush=True)
            time.sleep(float(sys.argv[2]))

    rng = np.random.default_rng(0)
    ids = (np.arange(9)[None] * rng.integers(1, 4, (40, 1)) + rng.integers(0, 11, (40, 1))).astype("int32") % 11
    ts = fg.make_train_step(loss, optim.adamw(optim.cosine_decay_schedule(0.01, 60)), max_grad_norm=1.0)
    state = ts.init(Transformer(random.key(0)), key=random.key(1))
    state, history = training.fit(ts, state, data.batches(ids, 8, key=random.key(2)), epochs=12, progress=False,
        checkpoint=sys.argv[1], checkpoint_every=2, callbacks=[Slow()])
    print("loss", *history["loss"][[0, -1]])
    """
)


def child(folder: Path, name: str, pause: float) -> subprocess.Popen[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(Path(fg.__file__).parent.parent)}
    arguments = [sys.executable, str(program), str(folder / name), str(pause)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.slow
@pytest.mark.ggml
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_transformer_killed_twenty_times(tmp_path: Path) -> None:
    unbroken = child(tmp_path, "whole", 0.0)
    said, _ = unbroken.communicate(timeout=300)
    assert unbroken.returncode == 0
    first, last = map(float, said.splitlines()[-1].split()[1:])
    assert last < first - 0.3
    rng = python_random.Random(0)
    kills = 0
    while kills < 20:
        run = child(tmp_path, "killed", 0.02)
        assert run.stdout is not None
        if rng.random() < 0.8:  # in mid training, else at any moment, the start included
            run.stdout.readline()
        time.sleep(rng.random() * 0.15)
        if run.poll() is not None:
            break
        run.kill()
        run.communicate()
        kills += 1
    final = child(tmp_path, "killed", 0.0)
    said, _ = final.communicate(timeout=300)
    assert final.returncode == 0 and kills == 20
    whole, killed = (
        {n: np.asarray(a).tobytes() for n, a in io.load(tmp_path / f).items() if n.startswith("state.")}
        for f in ("whole", "killed")
    )
    assert whole == killed and "state.params.attention.query.kernel" in whole
    assert first > 0 and [p.name for p in tmp_path.iterdir() if "killed" in p.name] == ["killed"]
