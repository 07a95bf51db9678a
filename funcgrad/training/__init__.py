"""Training runs: ``fit``, its callbacks, its history, and checkpoints from which a run goes on bit for bit."""

from funcgrad.training.callbacks import Callback, EarlyStopping, LivePlot, ReduceOnPlateau, Run, SaveBest
from funcgrad.training.history import History, Table
from funcgrad.training.loop import fit

__all__ = ["Callback", "EarlyStopping", "History", "LivePlot", "ReduceOnPlateau", "Run", "SaveBest", "Table", "fit"]
