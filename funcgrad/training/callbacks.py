"""Callbacks of ``fit``: stop early, lower the learning rate, keep the best parameters, draw the loss while it falls."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from funcgrad import tree
from funcgrad.errors import message
from funcgrad.io import save
from funcgrad.optim import with_hyperparams
from funcgrad.optional import optional_module, picture
from funcgrad.training.history import History

__all__ = ["Callback", "EarlyStopping", "LivePlot", "ReduceOnPlateau", "Run", "SaveBest"]

Mode = Literal["min", "max"]


@dataclass
class Run:
    """What callbacks see of a run: they may replace ``state`` and set ``stop`` to a reason.

    ``step`` counts all steps, ``epoch`` is the number of the present one, ``index`` counts its batches; ``metrics`` are
    the last step's numbers.
    """

    state: Any
    history: History = field(default_factory=History)
    step: int = 0
    epoch: int = 0
    index: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    stop: str = ""


class Callback:
    """Base of callbacks; a plain function of the run is one, too, called at the end of each epoch."""

    def on_step(self, run: Run) -> None:
        """After each step."""

    def on_epoch(self, run: Run) -> None:
        """After each epoch, its evaluation and its row in the history."""

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold of this callback: numbers, text, lists and dicts of these."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""


class _Monitor(Callback):
    """Follows the best value of a metric over epochs."""

    def __init__(self, monitor: str, mode: Mode, min_delta: float):
        if mode not in ("min", "max"):
            raise ValueError(message(type(self).__name__, "mode must be 'min' or 'max'", repr(mode)))
        if not (math.isfinite(min_delta) and min_delta >= 0):
            raise ValueError(message(type(self).__name__, "min_delta must be at least 0", repr(min_delta)))
        self.monitor, self.sign, self.min_delta = monitor, 1.0 if mode == "min" else -1.0, min_delta
        self.best, self.best_epoch, self.wait = math.inf, -1, 0

    def improved(self, run: Run) -> bool:
        """Note the epoch's value; return whether it is better than the best by more than ``min_delta``."""
        value = self.sign * float(run.history.epochs[self.monitor][-1])
        if value < self.best - self.min_delta or (self.best == math.inf and value < math.inf):
            self.best, self.best_epoch, self.wait = value, run.epoch, 0
            return True
        self.wait += 1
        return False

    @property
    def best_value(self) -> float:
        """The best value so far; infinite before the first."""
        return self.sign * self.best

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "best_epoch": self.best_epoch, "wait": self.wait}

    def restore(self, state: dict[str, Any]) -> None:
        self.best, self.best_epoch, self.wait = float(state["best"]), int(state["best_epoch"]), int(state["wait"])


def _checked_patience(name: str, patience: int) -> int:
    if patience < 1:
        raise ValueError(message(name, "patience must be at least 1 epoch", repr(patience)))
    return patience


class EarlyStopping(_Monitor):
    """Stops when ``monitor`` has not improved by more than ``min_delta`` for ``patience`` epochs; NaN improves nothing.

    >>> stopping = EarlyStopping("loss", patience=2)
    >>> run = Run(state=None)
    >>> for loss in (1.0, 2.0, 1.5):
    ...     run.history.epochs.append({"loss": loss})
    ...     stopping.on_epoch(run)
    >>> run.stop
    'loss has not improved for 2 epochs; its best was 1'
    """

    def __init__(self, monitor: str = "val_loss", patience: int = 10, min_delta: float = 0.0, mode: Mode = "min"):
        super().__init__(monitor, mode, min_delta)
        self.patience = _checked_patience("EarlyStopping", patience)

    def on_epoch(self, run: Run) -> None:
        if not self.improved(run) and self.wait >= self.patience:
            best = f"its best was {self.best_value:.6g}"
            run.stop = f"{self.monitor} has not improved for {self.wait} epochs; {best}"


class ReduceOnPlateau(_Monitor):
    """Multiplies a hyperparameter by ``factor`` when ``monitor`` has not improved for ``patience`` epochs, down to
    ``min_lr``; without a retrace.

    The optimizer must be made with :func:`funcgrad.optim.inject_hyperparams`.

    >>> from funcgrad import optim
    >>> state = optim.inject_hyperparams(optim.sgd)(learning_rate=1.0).init(fnp.zeros(1))
    >>> run, reduce = Run(state), ReduceOnPlateau("loss", factor=0.5, patience=1)
    >>> for loss in (1.0, 1.0):
    ...     run.history.epochs.append({"loss": loss})
    ...     reduce.on_epoch(run)
    >>> float(run.state.hyperparams["learning_rate"])
    0.5
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        min_lr: float = 0.0,
        min_delta: float = 1e-4,
        mode: Mode = "min",
        name: str = "learning_rate",
    ):
        super().__init__(monitor, mode, min_delta)
        if not 0.0 < factor < 1.0:
            raise ValueError(message("ReduceOnPlateau", "factor must be in (0, 1)", repr(factor)))
        if not min_lr >= 0.0:
            raise ValueError(message("ReduceOnPlateau", "min_lr must be at least 0", repr(min_lr)))
        self.patience = _checked_patience("ReduceOnPlateau", patience)
        self.factor, self.min_lr, self.name = factor, min_lr, name

    def on_epoch(self, run: Run) -> None:
        if self.improved(run) or self.wait < self.patience:
            return
        self.wait = 0
        now = self._value(run.state)
        lower = max(now * self.factor, self.min_lr)
        if lower < now:
            run.state = with_hyperparams(run.state, **{self.name: lower})

    def _value(self, state: Any) -> float:
        """The hyperparameter in the state, of whichever optimizer holds it first."""
        tail = f"hyperparams['{self.name}']"
        for path, leaf in tree.leaves_with_path(state):
            if tree.keystr(path).endswith(tail):
                return float(leaf)
        requirement = f"the state must hold {self.name}"
        way_out = "make the optimizer with optim.inject_hyperparams(factory)(...)"
        raise ValueError(message("ReduceOnPlateau", requirement, type(state).__name__, way_out))


class SaveBest(_Monitor):
    """Writes the parameters (``state.params``, or the state) to a file whenever ``monitor`` is better than ever.

    Read them with ``fg.load(path, like=params)``.
    """

    def __init__(
        self, path: str | os.PathLike[str], monitor: str = "val_loss", mode: Mode = "min", min_delta: float = 0.0
    ):
        super().__init__(monitor, mode, min_delta)
        self.path = path

    def on_epoch(self, run: Run) -> None:
        if self.improved(run):
            about = {"epoch": str(run.epoch), self.monitor: repr(self.best_value)}
            save(self.path, getattr(run.state, "params", run.state), about)


class LivePlot(Callback):
    """Draws the history in a notebook, again after every ``every`` epochs, in the place of the picture before.

    Needs IPython and matplotlib, and raises ImportError without them.  ``show`` may take the figure instead.
    """

    def __init__(self, every: int = 1, show: Callable[[Any], None] | None = None):
        if every < 1:
            raise ValueError(message("LivePlot", "every must be at least 1 epoch", repr(every)))
        self.every = every
        self._handle: Any = None
        self._show = show

    def on_epoch(self, run: Run) -> None:
        if (run.epoch + 1) % self.every:
            return
        figure = run.history.plot()
        if self._show is not None:
            self._show(figure)
            return
        display = optional_module("IPython.display", "LivePlot")
        image = display.Image(data=picture(figure))  # what a display id can replace
        if self._handle is None:
            self._handle = display.display(image, display_id=True)
        else:
            self._handle.update(image)
