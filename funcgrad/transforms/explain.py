"""Why a jitted function was traced again: which leaf changed, and from what to what."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from funcgrad import tree
from funcgrad.errors import RetraceError, message
from funcgrad.ir import Aval


class RetraceWarning(UserWarning):
    """A jitted function was traced for a second signature; shown once per function."""


class Signature(NamedTuple):
    """What decides which trace a call uses."""

    treedef: tree.TreeDef
    avals: tuple[Aval, ...]
    static: tuple[tuple[Any, Any], ...]
    device: Any
    donated: frozenset[int]

    def __str__(self) -> str:
        args, kwargs = tree.unflatten(self.treedef, list(self.avals))
        shown = [str(a) for a in args] + [f"{k}={v}" for k, v in kwargs.items()]
        shown += [f"static {k}={v!r}" for k, v in self.static]
        return f"({', '.join(shown)}) on {self.device.name}"


def differences(old: Signature, new: Signature) -> list[str]:
    """Return one line per difference between two signatures, by tree path."""
    lines = []
    if old.device is not new.device:
        lines.append(f"the device changed from {old.device.name} to {new.device.name}")
    before, after = dict(old.static), dict(new.static)
    for key in sorted(before.keys() | after.keys(), key=str):
        if before.get(key) != after.get(key) or key not in before or key not in after:
            lines.append(f"static argument {key!r} changed from {before.get(key)!r} to {after.get(key)!r}")
    if old.treedef != new.treedef:
        lines.append(f"the structure changed from {old.treedef} to {new.treedef}")
        return lines
    paths = [p for p, _ in tree.leaves_with_path(tree.unflatten(new.treedef, list(new.avals)))]
    for path, a, b in zip(paths, old.avals, new.avals, strict=True):
        if a != b:
            what = "dtype" if a.shape == b.shape else "shape"
            lines.append(f"the {what} of {argument_path(path)} changed from {a} to {b}")
    return lines


def argument_path(path: tree.Path) -> str:
    """Name a leaf of ``(args, kwargs)`` as a user would: the position or the keyword, then the path inside."""
    kind, which, *rest = path
    inside = tree.keystr(tuple(rest))
    if isinstance(kind, tree.SequenceKey) and kind.idx == 0 and isinstance(which, tree.SequenceKey):
        return f"argument {which.idx}{inside}"
    return f"keyword {getattr(which, 'key', which)}{inside}"


def report_retrace(fun: Any, new: Signature, known: Sequence[Signature]) -> None:
    """Raise RetraceError past ``max_traces``; otherwise warn, once per function."""
    if not known:
        return
    closest = min(known, key=lambda s: len(differences(s, new)))
    lines = "\n    ".join(differences(closest, new))
    text = f"    {lines}\n    known: {closest}\n    new:   {new}"
    if fun.max_traces is not None and fun.stats.traces >= fun.max_traces:
        raise RetraceError(message(f"jit of {fun.name}", f"at most max_traces={fun.max_traces} traces are allowed; because\n{text}\n"))
    if not fun.stats.explained:
        fun.stats.explained = True
        warnings.warn(f"{fun.name} is traced again, because\n{text}", RetraceWarning, stacklevel=6)
