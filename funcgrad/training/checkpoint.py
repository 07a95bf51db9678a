"""Checkpoints of a run: state, position in the data, history and callbacks, in one safetensors file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad.errors import FileFormatError, message
from funcgrad.io import inspect, load, metadata, save
from funcgrad.training.callbacks import Callback, Run
from funcgrad.training.history import Table

__all__ = ["read_checkpoint", "write_checkpoint"]

FORMAT = "funcgrad.training/1"


def write_checkpoint(path: str | os.PathLike[str], run: Run, callbacks: Sequence[Callback], data_key: Any) -> None:
    """Write all that a run needs to go on as if it had never stopped; atomically."""
    about = {
        "step": run.step,
        "epoch": run.epoch,
        "index": run.index,
        "stop": run.stop,
        "callbacks": [{"type": type(c).__name__, **c.state()} for c in callbacks],
    }
    tables = {"steps": run.history.steps.to_arrays(), "epochs": run.history.epochs.to_arrays()}
    content = {"state": run.state, "data_key": data_key, "history": tables}
    save(path, content, {"format": FORMAT, "run": json.dumps(about)})


def read_checkpoint(path: str | os.PathLike[str], run: Run, callbacks: Sequence[Callback]) -> Any:
    """Set a run and its callbacks to what a checkpoint says; return the data's key, or None.

    Nothing is changed when the file is damaged, or is of another model, optimizer or list of callbacks.
    """
    found = metadata(path)
    if found.get("format") != FORMAT:
        raise FileFormatError(message("fit", f"{path} must be a checkpoint of fit", str(found)[:80]))
    about = json.loads(found["run"])
    kinds, saved = [type(c).__name__ for c in callbacks], [c["type"] for c in about["callbacks"]]
    if kinds != saved:
        way_out = "give the callbacks of the first run, or resume=False"
        raise ValueError(message("fit", f"the callbacks must be those of the checkpoint, {saved}", str(kinds), way_out))
    names = list(inspect(path))
    like: dict[str, Any] = {"state": run.state}
    if "data_key" in names:
        like["data_key"] = np.zeros(2, np.uint32)
    history = {n: np.zeros(0) for n in names if n.startswith("history.")}
    got = load(path, like=like, strict=False)
    columns = _columns(path, history)
    run.state = got["state"]
    run.step, run.epoch, run.index, run.stop = about["step"], about["epoch"], about["index"], about["stop"]
    run.history.steps, run.history.epochs = columns["steps"], columns["epochs"]
    for c, s in zip(callbacks, about["callbacks"], strict=True):
        c.restore(s)
    return got.get("data_key")


def _columns(path: str | os.PathLike[str], names: Any) -> dict[str, Table]:
    """The tables of the history, whose columns only the file knows."""
    shapes = inspect(path)
    like = {n: np.zeros(shapes[n].shape, np.float64) for n in names}
    data = load(path, like=like, paths=list(like)) if like else {}
    out = {}
    for kind in ("steps", "epochs"):
        head = f"history.{kind}."
        out[kind] = Table.from_arrays({n[len(head) :]: a for n, a in data.items() if n.startswith(head)})
    return out
