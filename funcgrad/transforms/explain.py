"""What a jitted function has to say: why it was traced again, what was not donated, which numbers are frozen."""

from __future__ import annotations

import dis
import inspect
import types
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

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
from funcgrad.transforms.signature import Signature, differences, leaf_paths


class RetraceWarning(UserWarning):
    """A jitted function was traced for a second signature; shown once per function."""


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
