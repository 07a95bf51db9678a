"""What a jitted function has to say: why it was traced again, what was not donated, which numbers are frozen."""

from __future__ import annotations

import dis
import inspect
import types
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad import tree
from funcgrad.errors import (
    CapturedConstantError,
    DeviceError,
    DonationError,
    RetraceError,
    Site,
    caller_site,
    file_label,
    is_own_file,
    message,
)
from funcgrad.ir import Aval
from funcgrad.transforms.flat import argument_path

BRIEF = 160  # characters of an argument's types in a message


class RetraceWarning(UserWarning):
    """A jitted function was traced for a second signature; shown once per function."""


class Signature(NamedTuple):
    """What decides which trace a call uses."""

    treedef: tree.TreeDef
    avals: tuple[Aval, ...]
    static: tuple[tuple[Any, Any, type], ...]
    device: Any
    donated: frozenset[int]
    context: tuple[Any, ...]

    def __str__(self) -> str:
        args, kwargs = tree.unflatten(self.treedef, list(self.avals))
        shown = [_brief(a) for a in args] + [f"{k}={_brief(v)}" for k, v in kwargs.items()]
        shown += [f"static {k}={v!r}" for k, v, _ in self.static]
        return f"({', '.join(shown)}) on {self.device.name}"


def _brief(arg: Any) -> str:
    """An argument's types, or how many there are when they would fill lines."""
    text, leaves = str(arg), tree.leaves(arg)
    return text if len(text) <= BRIEF or len(leaves) < 2 else f"{type(arg).__name__} of {len(leaves)} arrays"


def differences(old: Signature, new: Signature) -> list[str]:
    """Return one line per difference between two signatures, by tree path."""
    lines = []
    if old.device is not new.device:
        lines.append(f"the device changed from {old.device.name} to {new.device.name}")
    before, after = [{k: (v, t) for k, v, t in s.static} for s in (old, new)]
    for key in sorted(before.keys() | after.keys(), key=str):
        pair = before.get(key), after.get(key)
        if pair[0] != pair[1]:
            shown = ["absent" if x is None else repr(x[0]) for x in pair]
            lines.append(f"static argument {key!r} changed from {shown[0]} to {shown[1]}")
    if old.context != new.context:
        names = ("the named axes", "the precision of matrix products")
        pairs = zip(names, old.context, new.context, strict=True)
        lines += [f"{name} changed from {a} to {b}" for name, a, b in pairs if a != b]
    if old.donated != new.donated:
        lines.append("other leaves are donated")
    if old.treedef != new.treedef:
        lines.append(f"the structure changed from {old.treedef} to {new.treedef}")
        return lines
    for path, a, b in zip(leaf_paths(new), old.avals, new.avals, strict=True):
        if a != b:
            what = "dtype" if a.shape == b.shape else "shape"
            lines.append(f"the {what} of {path} changed from {a} to {b}")
    return lines


def leaf_paths(signature: Signature) -> list[str]:
    """Name each leaf of a call as a user would."""
    args = tree.unflatten(signature.treedef, list(signature.avals))
    return [argument_path(p) for p, _ in tree.leaves_with_path(args)]


def report_retrace(fun: Any, new: Signature, known: Sequence[Signature]) -> None:
    """Raise RetraceError past ``max_traces``; without one warn, once per function."""
    if not known:
        return
    closest = min(known, key=lambda s: len(differences(s, new)))
    lines = "\n    ".join(differences(closest, new))
    text = f"    {lines}\n    known: {closest}\n    new:   {new}"
    if fun.max_traces is not None and fun.stats.traces >= fun.max_traces:
        raise RetraceError(
            message(f"jit of {fun.name}", f"at most max_traces={fun.max_traces} traces are allowed; because\n{text}\n")
        )
    if fun.max_traces is None and not fun.stats.explained:  # who gives a bound expects traces within it
        fun.stats.explained = True
        warn_user(f"{fun.name} is traced again, because\n{text}", RetraceWarning)


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn at the user's own line, however deep inside the library this is."""
    site = caller_site() or Site("<unknown>", 1, "")
    warnings.warn_explicit(text, category, site.file, site.line)


class DonationWarning(UserWarning):
    """The memory of a donated argument could not be used again."""


def report_donation(fun: Any, signature: Signature, num_captured: int, donation: dict[int, str]) -> None:
    """Warn of donated leaves whose memory no result takes, with the reason that the device gives; raise when strict."""
    paths = leaf_paths(signature) if any(donation.values()) else []
    lines = [f"{paths[i - num_captured]}: {why}" for i, why in sorted(donation.items()) if why and i >= num_captured]
    if lines:
        text = "\n    ".join(lines)
        if fun.strict:
            way_out = "leave it out of donate_argnums, or return a value of its type"
            raise DonationError(
                message(f"jit of {fun.name}", "strict=True: donated memory must be used again", text, way_out)
            )
        warn_user(f"{fun.name}: donated memory cannot be used again\n    {text}", DonationWarning)


def report_fallbacks(fun: Any, device: Any, fallbacks: Sequence[Any]) -> int:
    """Return how many operations the CPU computes for the device, callbacks not counted; raise DeviceError when
    strict."""
    lacking = [f for f in fallbacks if not f.wanted]
    if lacking and fun.strict:
        lines = [f"{f.primitive} ({f.results}): {f.reason}" + (f", at {f.site}" if f.site else "") for f in lacking]
        way_out = 'use device="cpu", leave strict out, or jit the parts around these'
        requirement = f"strict=True: {device.name} must compute everything itself"
        raise DeviceError(message(f"jit of {fun.name}", requirement, "\n    ".join(["", *lines]), way_out))
    return len(lacking)


# -- Python numbers from outer scopes ----------------------------------------------------------------------------
class Frozen(NamedTuple):
    """A Python number that a function reads from an outer scope: its value is part of the graph."""

    name: str
    value: Any
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r} at {file_label(self.file)}:{self.line}"


def frozen_numbers(fun: Any) -> list[Frozen]:
    """Return the numbers that a function, and the Python functions that it reads from outer scopes, take from there.

    >>> rate = 0.1
    >>> [f.name for f in frozen_numbers(lambda x: x * rate)]
    ['rate']
    """
    found: dict[tuple[str, str, int], Frozen] = {}
    seen: set[Any] = set()
    todo = [fun]
    while todo:
        f = inspect.unwrap(todo.pop())
        code = getattr(f, "__code__", None)
        if code is None or code in seen or is_own_file(code.co_filename):
            continue
        seen.add(code)
        cells = dict(zip(code.co_freevars, f.__closure__ or (), strict=True))
        for name, line, inner in _reads(code):
            value = _outer_value(name, cells, f.__globals__)
            if isinstance(value, (int, float, complex, np.number)) and not isinstance(value, bool):
                found.setdefault((name, code.co_filename, line), Frozen(name, value, inner, line))
            elif isinstance(value, types.FunctionType):
                todo.append(value)
    return list(found.values())


def _reads(code: types.CodeType) -> list[tuple[str, int, str]]:
    """Names that code reads from outside, with the line, in the functions defined inside it too."""
    out, line = [], code.co_firstlineno
    for op in dis.get_instructions(code):
        started: Any = getattr(op, "line_number", op.starts_line)  # Python 3.13 has the former
        line = started or line
        if op.opname in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME"):
            out.append((str(op.argval), line, code.co_filename))
        elif isinstance(op.argval, types.CodeType):
            out += _reads(op.argval)
    return out


def _outer_value(name: str, cells: dict[str, Any], names: dict[str, Any]) -> Any:
    if name in cells:
        try:
            return cells[name].cell_contents
        except ValueError:  # not assigned yet
            return None
    return names.get(name)


def report_constants(fun: Any) -> None:
    """Raise CapturedConstantError when a number would be frozen into the graph."""
    found = frozen_numbers(fun.fun)
    if found:
        way_out = "pass it as an argument, traced or static; or make it an array, which is an input of the graph"
        got = ", ".join(map(str, found))
        raise CapturedConstantError(
            message(f"jit of {fun.name}", "strict=True allows no Python number from outside", got, way_out)
        )


def explain(fun: Any, known: Sequence[Signature]) -> str:
    """The report of ``f.explain()``."""
    lines = [f"{fun.name}: {fun.stats.traces} traces, {fun.stats.calls} calls"]
    for i, signature in enumerate(known):
        lines.append(f"  signature {i}: {signature}")
        lines += [f"    {d}" for d in differences(known[i - 1], signature)] if i else []
    frozen = frozen_numbers(fun.fun)
    lines += ["  Python numbers that are part of the graph:"] if frozen else []
    return "\n".join(lines + [f"    {f}" for f in frozen])
