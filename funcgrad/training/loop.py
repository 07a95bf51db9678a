"""fit: the loop over batches, with evaluation, history, callbacks, and checkpoints that lose nothing."""

from __future__ import annotations

import copy
import importlib
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from funcgrad import data, tree
from funcgrad.array import Array
from funcgrad.data import Batches
from funcgrad.errors import message
from funcgrad.io import remove_leftovers
from funcgrad.io.names import host_leaves
from funcgrad.training.callbacks import Callback, Run
from funcgrad.training.checkpoint import read_checkpoint, write_checkpoint
from funcgrad.training.history import History, numbers_of

__all__ = ["fit"]


def fit(
    train_step: Any,
    state: Any,
    batches: Any,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    evaluate: Callable[[Any], dict[str, Any]] | None = None,
    callbacks: Sequence[Callback | Callable[[Run], None]] = (),
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = True,
    prefetch: int = 0,
) -> tuple[Any, History]:
    """Call a train step over batches until there were ``epochs`` or ``steps`` in all; return the state and the history.

    ``train_step`` is what ``make_train_step`` returns, or any function (state, batch) -> (state, metrics).  ``batches``
    is a :func:`funcgrad.data.batches` (its position and key are the start; its own ``epochs`` does not count), a
    function from an epoch's number to an iterable, or an iterable that gives the same batches again.

    ``evaluate(state)`` returns metrics after each epoch, recorded with ``val_`` before their names.  ``callbacks`` are
    :class:`Callback` objects or functions of the :class:`Run`.  ``progress`` shows a bar where tqdm is installed:
    in a notebook a widget, where ipywidgets is there too, or a line of the cell's output.
    ``prefetch`` batches are made ahead in a thread.

    With ``checkpoint``, a path, everything is written there after each epoch, after every ``checkpoint_every`` steps,
    at the end, and on Ctrl-C.  When the file is there and ``resume``, the run goes on from it, and ends bit for bit as
    if it had not stopped, at whatever moment it was killed; a run that was complete returns at once.  The state given
    is then only a model of the structure.

    Raises TreeError, before the first step, when a checkpoint of the state cannot be written or the file is of another
    structure; ValueError for batches that run dry.

    >>> from funcgrad import data, optim, random
    >>> ts = fg.make_train_step(lambda w, batch: ((w - batch) ** 2).mean(), optim.sgd(0.25))
    >>> rows = data.batches(np.ones((8, 1), np.float32), 4, key=random.key(0))
    >>> state, history = fit(ts, ts.init(fnp.asarray(0.0)), rows, epochs=2, progress=False)
    >>> float(state.params), history["loss"].tolist()
    (0.9375, [0.625, 0.0390625])
    """
    if epochs is None and steps is None:
        raise ValueError(message("fit", "epochs or steps is required", "neither", "say when to stop"))
    if checkpoint_every is not None and (checkpoint is None or checkpoint_every < 1):
        got = f"checkpoint_every={checkpoint_every}, checkpoint={checkpoint}"
        raise ValueError(message("fit", "checkpoint_every needs a checkpoint path and at least 1 step", got))
    loop = _Loop(train_step, state, batches, evaluate, callbacks, checkpoint, checkpoint_every)
    loop.prefetch = prefetch
    loop.start(resume)
    loop.run_until(math.inf if epochs is None else epochs, math.inf if steps is None else steps, progress)
    return loop.run.state, loop.run.history


class _Function(Callback):
    """A plain function as a callback."""

    def __init__(self, function: Callable[[Run], None]):
        self.function = function

    def on_epoch(self, run: Run) -> None:
        self.function(run)


class _Loop:
    """One run, and where its parts come from."""

    def __init__(
        self,
        train_step: Any,
        state: Any,
        batches: Any,
        evaluate: Callable[[Any], dict[str, Any]] | None,
        callbacks: Sequence[Any],
        checkpoint: Any,
        every: int | None,
    ):
        self.step = getattr(train_step, "step", train_step)
        self.run = Run(state)
        self.batches = batches
        if isinstance(batches, Batches):  # a position of our own: the caller's stays where it is
            self.batches = copy.copy(batches)
            self.run.epoch, self.run.index = batches.epoch, batches.index
        self.evaluate = evaluate
        self.callbacks = [c if isinstance(c, Callback) else _Function(c) for c in callbacks]
        self.path, self.every = checkpoint, every
        self.prefetch = 0
        self.between = True  # whether the run is between two steps, and so whole

    def start(self, resume: bool) -> None:
        """Go on from the checkpoint where there is one."""
        if self.path is None:
            return
        host_leaves(self.run.state, "fit checkpoint")  # now rather than after an hour
        remove_leftovers(self.path)
        if resume and os.path.exists(self.path):
            key = read_checkpoint(self.path, self.run, self.callbacks)
            if key is not None and isinstance(self.batches, Batches):
                self.batches.restore({"epoch": self.run.epoch, "index": self.run.index, "key": key})

    def save(self) -> None:
        """Write the checkpoint, if there is to be one."""
        if self.path is not None:
            key = self.batches.state()["key"] if isinstance(self.batches, Batches) else None
            write_checkpoint(self.path, self.run, self.callbacks, key)

    def run_until(self, epochs: float, steps: float, progress: bool) -> None:
        """The loop."""
        run = self.run
        with _Bar(progress, run, self._total(epochs, steps)) as bar:
            try:
                while run.epoch < epochs and run.step < steps and not run.stop:
                    self._epoch(steps, bar)
            except KeyboardInterrupt:
                if self.between and not any(isinstance(x, Array) and x.is_deleted() for x in tree.leaves(run.state)):
                    self.save()  # else the last checkpoint stands
                raise
        self.save()

    def _epoch(self, steps: float, bar: _Bar) -> None:
        """The rest of the present epoch; its end, unless the run ends before."""
        run = self.run
        for batch in self._remaining():
            state, metrics = self.step(run.state, batch)
            self.between = False
            run.state, run.metrics = state, numbers_of(metrics)
            run.step, run.index = run.step + 1, run.index + 1
            run.history.steps.append({"step": run.step, "epoch": run.epoch, **run.metrics})
            for c in self.callbacks:
                c.on_step(run)
            self.between = True
            bar.advance(run)
            if self.every is not None and run.step % self.every == 0:
                self.save()
            if (run.step >= steps and not self._complete()) or run.stop:
                return
        if run.index == 0:
            way_out = "give fg.data.batches, a list, or a function from the epoch's number to an iterable"
            raise ValueError(message("fit", "an epoch must have a batch", f"none in epoch {run.epoch}", way_out))
        self._end_of_epoch(bar)

    def _complete(self) -> bool:
        """Whether the epoch is known to have no further batch."""
        return hasattr(self.batches, "__len__") and self.run.index >= len(self.batches)

    def _end_of_epoch(self, bar: _Bar) -> None:
        run = self.run
        self.between = False
        inside = run.history.steps["epoch"] == run.epoch
        names = [n for n in run.history.steps.names if n not in ("step", "epoch")]
        row = {n: float(np.mean(run.history.steps[n][inside])) for n in names}
        if self.evaluate is not None:
            found = numbers_of(self.evaluate(run.state))
            row |= {n if n.startswith("val_") else f"val_{n}": v for n, v in found.items()}
        run.history.epochs.append({"epoch": run.epoch, "step": run.step, **row})
        for c in self.callbacks:
            c.on_epoch(run)
        bar.show(row)
        run.epoch, run.index = run.epoch + 1, 0
        self.between = True
        if self.path is not None and not run.stop:
            self.save()

    def _remaining(self) -> Iterable[Any]:
        """The batches of the present epoch from the present index on."""
        run = self.run
        if isinstance(self.batches, Batches):
            key = self.batches.state()["key"]
            it: Iterator[Any] = _rows(self.batches, {"epoch": run.epoch, "index": run.index, "key": key})
        else:
            whole = self.batches(run.epoch) if callable(self.batches) else self.batches
            it = islice(iter(whole), run.index, None)
        return data.prefetch(it, self.prefetch) if self.prefetch else it

    def _total(self, epochs: float, steps: float) -> int | None:
        """The number of steps of the whole run, where it is known."""
        if hasattr(self.batches, "__len__") and epochs < math.inf:
            steps = min(steps, epochs * len(self.batches))
        return int(steps) if steps < math.inf else None


def _rows(batches: Batches, position: dict[str, Any]) -> Iterator[Any]:
    """The batches of one epoch from a position on."""
    it = copy.copy(batches).restore(position)
    it.epochs = None
    for _ in range(len(it) - it.index):
        yield next(it)


def _in_notebook() -> bool:
    """Whether a kernel of Jupyter's runs this, where stderr looks like an error."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", ())


class _Bar:
    """A progress bar of tqdm's, or nothing."""

    def __init__(self, wanted: bool, run: Run, total: int | None):
        self.bar: Any = None
        if wanted:
            try:
                with warnings.catch_warnings():  # a notebook without ipywidgets has a line in place of the widget
                    warnings.filterwarnings("ignore", message="IProgress not found")
                    module = importlib.import_module("tqdm.auto")
            except ImportError:
                return
            file = sys.stdout if _in_notebook() else sys.stderr
            self.bar = module.tqdm(total=total, initial=run.step, unit="step", dynamic_ncols=True, file=file)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def advance(self, run: Run) -> None:
        """One more step."""
        if self.bar is not None:
            self.bar.set_postfix(
                {"epoch": run.epoch, "loss": f"{run.metrics.get('loss', math.nan):.4g}"}, refresh=False
            )
            self.bar.update()

    def show(self, row: dict[str, float]) -> None:
        """The means of an epoch."""
        if self.bar is not None:
            self.bar.set_postfix({n: f"{v:.4g}" for n, v in row.items() if n.endswith("loss")})
