"""The garbage collector, put off while a graph is recorded, rewritten and planned.

A graph is many small objects that live until it is done: every collection meanwhile walks through all of them and frees
nothing.  Measured on the train step of a 24-layer transformer, a third of the time went there.
"""

from __future__ import annotations

import gc
import threading
import weakref
from types import TracebackType

__all__ = ["CollectorOff"]


class CollectorOff:
    """A context, made anew for each use: the last to leave switches the collector on, if the first found it on.

    Those inside are the ones that are alive: an interrupt may come between entering and what is done inside, so that
    nothing is left, but it cannot keep the object alive.
    """

    _lock = threading.Lock()
    _inside: weakref.WeakSet[CollectorOff] = weakref.WeakSet()
    _was_on = False  # before the first entered; kept until the last has left

    def __enter__(self) -> None:
        with self._lock:
            if not self._others():
                CollectorOff._was_on |= gc.isenabled()
            self._inside.add(self)
            gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if not self._others() and self._was_on:
                gc.enable()
                CollectorOff._was_on = False
            self._inside.discard(self)

    def _others(self) -> bool:
        """Whether others are inside."""
        return any(x is not self for x in self._inside)
