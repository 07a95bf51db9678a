"""What a training run measured: one row of numbers for each step and for each epoch."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from funcgrad import tree
from funcgrad.errors import message
from funcgrad.host import is_data
from funcgrad.io import dotted
from funcgrad.optional import new_figure

__all__ = ["History", "Table", "numbers_of"]


FIRST = ["epoch", "step", "loss", "val_loss"]
ACROSS = 3  # charts side by side
USUAL = {"finite": 1.0, "skipped": 0.0}  # columns that say something only when they differ from this
STEPS: dict[str, Any] = {"linewidth": 0.8, "alpha": 0.5}
EPOCHS: dict[str, Any] = {"marker": "o", "markersize": 4}


class Table:
    """Columns of float64 numbers by name; a number that a row lacks is NaN.

    >>> table = Table()
    >>> table.append({"loss": 1.0})
    >>> table.append({"loss": 0.5, "accuracy": 0.75})
    >>> table["accuracy"]
    array([ nan, 0.75])
    """

    def __init__(self) -> None:
        self._columns: dict[str, list[float]] = {}
        self._length = 0

    def append(self, row: Mapping[str, float]) -> None:
        """Add a row."""
        for name, value in row.items():
            self._columns.setdefault(name, [math.nan] * self._length).append(float(value))
        self._length += 1
        for column in self._columns.values():
            column += [math.nan] * (self._length - len(column))

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"Table({self._length} rows of {', '.join(self.names) or 'nothing'})"

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._columns:
            known = ", ".join(self.names) or "none yet"
            raise KeyError(message("history", "a recorded name is required", repr(name), f"names are {known}"))
        return np.array(self._columns[name])

    @property
    def names(self) -> list[str]:
        """The columns: epoch, step and losses first, then by name."""
        return sorted(self._columns, key=lambda n: (FIRST.index(n) if n in FIRST else len(FIRST), n))

    def last(self) -> dict[str, float]:
        """The last row."""
        return {n: self._columns[n][-1] for n in self.names} if self._length else {}

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the columns as arrays, to be saved."""
        return {name: np.array(column, np.float64) for name, column in self._columns.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Table:
        """Return the table of :meth:`to_arrays`."""
        table = cls()
        table._columns = {name: [float(v) for v in column] for name, column in arrays.items()}
        table._length = max([len(c) for c in table._columns.values()], default=0)
        return table


class History:
    """``steps``, a row for each step (step, epoch, and the metrics that are scalars), and ``epochs``, one for each
    epoch (the means of its steps, and what ``evaluate`` gave).

    >>> history = History()
    >>> history.epochs.append({"epoch": 0, "loss": 2.0, "val_loss": 2.5})
    >>> print(history)
    epoch    loss  val_loss
        0       2       2.5
    """

    def __init__(self) -> None:
        self.steps, self.epochs = Table(), Table()

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """The values by epoch, or by step for what only steps have."""
        return self.epochs[name] if name in self.epochs else self.steps[name]

    def _shown(self) -> list[str]:
        """The columns that are printed: not those that only say that every step was as it should be."""
        return [n for n in self.epochs.names if n not in USUAL or (self.epochs[n] != USUAL[n]).any()]

    def __str__(self) -> str:
        names = self._shown()
        if not names:
            return "no epochs"
        columns = [[name, *[f"{v:.6g}" for v in self.epochs[name]]] for name in names]
        widths = [max(7 if i else 0, *[len(cell) for cell in c]) for i, c in enumerate(columns)]
        rows = zip(*columns, strict=True)
        return "\n".join("  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names = self._shown()
        rows = [names, *[[f"{v:.6g}" for v in row] for row in zip(*[self.epochs[n] for n in names], strict=True)]]
        cells = ["".join(f"<td>{escape(c)}</td>" for c in row) for row in rows]
        return f"<table>{''.join(f'<tr>{c}</tr>' for c in cells)}</table>"

    def plot(self, path: str | os.PathLike[str] | None = None, names: Sequence[str] | None = None) -> Any:
        """Draw metrics over steps (thin) and epochs (dots), each with its ``val_`` twin; return matplotlib's figure.

        ``names`` are "loss" and what else has a ``val_`` twin, by default; that of ``aux.accuracy``, from a loss with
        ``has_aux``, is ``val_accuracy``.  With ``path`` the figure is written there.  Raises ImportError without
        matplotlib.
        """
        if names is None:
            names = [n for n in self.epochs.names if n == "loss" or self._twin(n) in self.epochs] or ["loss"]
        columns = min(len(names), ACROSS)
        rows = -(-len(names) // ACROSS)
        figure = new_figure("History.plot", 6.4 * columns, 4.0 * rows)
        grid = np.atleast_1d(figure.subplots(rows, columns)).ravel()
        for axes, name in zip(grid, names, strict=False):
            self._draw(axes, name)
        for axes in grid[len(names) :]:
            axes.set_axis_off()
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _twin(self, name: str) -> str:
        """What ``evaluate`` calls a metric of the steps."""
        bare = name.removeprefix("aux.")
        return f"val_{name}" if f"val_{name}" in self.epochs or bare in self.epochs else f"val_{bare}"

    def _draw(self, axes: Any, name: str) -> None:
        place = "step" if "step" in self.epochs or not len(self.epochs) else "epoch"
        drawn = [place == "step" and _line(axes, self.steps, place, name, f"{name} of each step", STEPS)]
        drawn += [_line(axes, self.epochs, place, series, series, EPOCHS) for series in (name, self._twin(name))]
        axes.set_xlabel(place)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
        if any(drawn):
            axes.legend()
        else:
            axes.text(0.5, 0.5, f"no finite {name} yet", ha="center", va="center", transform=axes.transAxes)


def _line(axes: Any, table: Table, place: str, name: str, label: str, style: dict[str, Any]) -> bool:
    """Draw a column where it is finite; return whether there was anything."""
    if name not in table or not len(table):
        return False
    y = table[name]
    x = table[place] if place in table else np.arange(len(table))
    seen = np.isfinite(y) & np.isfinite(x)
    if seen.any():
        axes.plot(x[seen], y[seen], label=label, **style)
    return bool(seen.any())


def numbers_of(metrics: Any) -> dict[str, float]:
    """Return the scalars of a tree of metrics by dotted name; what is no single number is left out.

    >>> numbers_of({"loss": fnp.asarray(0.5), "aux": {"hits": 3, "logits": np.zeros(4)}})
    {'aux.hits': 3.0, 'loss': 0.5}
    """
    found = {}
    for path, leaf in tree.leaves_with_path(metrics):
        if is_data(leaf) and np.size(leaf) == 1:
            found[dotted(path)] = float(np.asarray(leaf).reshape(()))
    return found
