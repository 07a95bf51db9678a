"""Training runs: ``fit``, its callbacks, its history, and checkpoints from which a run goes on bit for bit."""

from funcgrad.mixed_precision import DynamicLossScale, LossScaleState, Policy, StaticLossScale, get_policy
from funcgrad.training.callbacks import Callback, EarlyStopping, LivePlot, ReduceOnPlateau, Run, SaveBest
from funcgrad.training.history import History, Table
from funcgrad.training.loop import fit

__all__ = [
    "Callback",
    "DynamicLossScale",
    "EarlyStopping",
    "History",
    "LivePlot",
    "LossScaleState",
    "Policy",
    "ReduceOnPlateau",
    "Run",
    "SaveBest",
    "StaticLossScale",
    "Table",
    "fit",
    "get_policy",
]
