"""Exception types, the user's source line, and how a message is made.

Every message reads ``<operation>: <requirement>, got <values>``, then one way out, then the user's own line.
Each type derives from the builtin that a user would catch.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import NamedTuple

__all__ = [
    "AxisError",
    "CapturedConstantError",
    "ConcretizationTypeError",
    "DTypeError",
    "DeviceError",
    "DonationError",
    "FileFormatError",
    "FuncgradError",
    "MemoryBudgetError",
    "MissingRule",
    "NonFiniteError",
    "RetraceError",
    "ShapeError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TreeError",
    "UnexpectedTracerError",
]

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Programs that ship inside the package but are written as a user would write them.
_USER_FILES = frozenset({_PACKAGE + "demo.py"})
# Between a user's call and the package's code there may be frames of these.
_BETWEEN = frozenset({"contextlib", "functools", "numpy"})


def file_label(file: str) -> str:
    """Return how a source file is named in messages: its last part, or the number of a notebook's cell, ``In[3]``.

    >>> file_label("folder/model.py")
    'model.py'
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cell = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)(file)
    return str(cell[1]) if cell else os.path.basename(file)


class Site(NamedTuple):
    """A place in the user's program: file, line and function; ``phase`` says why its operation runs there once more.

    The phase of what reverse mode adds is "backward", that of what a checkpoint computes again "recomputed".
    """

    file: str
    line: int
    function: str
    phase: str = ""

    def during(self, phase: str) -> Site:
        """The same place in a phase."""
        return self if self.phase == phase else Site(self.file, self.line, self.function, phase)

    def __str__(self) -> str:
        return f"{file_label(self.file)}:{self.line} ({self.function})"


class _Origin(threading.local):
    """Per thread: the line that the operation at hand comes from, while a rule or a replay stands for the user."""

    site: Site | None = None
    scope: str = ""  # the names of named_scope, each followed by a slash


origin = _Origin()


def is_own_file(file: str) -> bool:
    """Return whether a source file is funcgrad's own, rather than a user's."""
    return file.startswith(_PACKAGE) and file not in _USER_FILES


def caller_site() -> Site | None:
    """Return the innermost frame that is not funcgrad's own, or None.

    >>> caller_site().function
    '<module>'
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if not is_own_file(file) and str(frame.f_globals.get("__name__")).partition(".")[0] not in _BETWEEN:
            return Site(file, frame.f_lineno, origin.scope + code.co_name)
        frame = frame.f_back
    return None


def message(operation: str, requirement: str, got: str = "", way_out: str = "", site: Site | None = None) -> str:
    """Compose an error message; the user's line is found when ``site`` is not given: that of the operation at hand.

    >>> print(message("add", "shapes must match", "(2,) and (3,)", "reshape one of them").splitlines()[0])
    add: shapes must match, got (2,) and (3,)
    """
    text = f"{operation}: {requirement}" + (f", got {got}" if got else "")
    if way_out:
        text += f"\n  way out: {way_out}"
    site = site or origin.site or caller_site()
    if site is not None:
        text += f"\n  at {site}"
    return text


class FuncgradError(Exception):
    """Base of every error that funcgrad raises on purpose."""


class ShapeError(FuncgradError, ValueError):
    """Shapes, axes or sizes that do not fit the operation."""


class AxisError(ShapeError, IndexError):
    """An axis that the array does not have; a ValueError and an IndexError, as numpy's."""


class DTypeError(FuncgradError, TypeError):
    """A dtype that the operation cannot take."""


class TreeError(FuncgradError, TypeError):
    """A tree of the wrong structure, or a leaf that is no array."""


class ConcretizationTypeError(FuncgradError, TypeError):
    """A value was needed in Python where only its shape and dtype are known."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used as a Python bool."""


class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced value was used as a Python integer, an index or a shape."""


class TracerArrayConversionError(ConcretizationTypeError):
    """A traced value was handed to numpy."""


class UnexpectedTracerError(FuncgradError, RuntimeError):
    """A traced value was used after its trace had ended, or in another thread."""


class CapturedConstantError(FuncgradError, ValueError):
    """``jit(strict=True)`` met a Python value that would be frozen into the graph."""


class RetraceError(FuncgradError, RuntimeError):
    """``jit(max_traces=n)`` would have traced once more."""


class NonFiniteError(FuncgradError, FloatingPointError, ValueError):
    """A NaN or an infinity where a finite value is required."""


class DonationError(FuncgradError, RuntimeError):
    """A donated array was used again, or a donation could not be honoured."""


class DeviceError(FuncgradError, RuntimeError):
    """An unknown device, one that cannot run an operation, or one that ran out of memory."""


class MemoryBudgetError(FuncgradError, ValueError):
    """A budget of memory that no choice of what checkpoints keep can meet."""


class FileFormatError(FuncgradError, ValueError):
    """A file that does not follow its format: truncated, damaged, or made to do harm."""


class MissingRule(FuncgradError, NotImplementedError):
    """A primitive lacks the rule that a transformation needs."""
