"""The ledger: what crossed between host and device, and how often functions were traced and graphs launched, in this
process."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field, fields

__all__ = ["LEDGER", "Counts", "Ledger"]


@dataclass
class Counts:
    """Transfers, launches, and traces of jitted functions.  All host data of one call count as one upload; results of
    one call read count as one download."""

    uploads: int = 0
    bytes_uploaded: int = 0
    downloads: int = 0
    bytes_downloaded: int = 0
    launches: int = 0
    traces: int = 0

    def __sub__(self, other: Counts) -> Counts:
        a, b = asdict(self), asdict(other)
        return Counts(**{k: a[k] - b[k] for k in a})


@dataclass
class Ledger(Counts):
    """Running totals; additions are made under a lock, since threads share it."""

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def uploaded(self, nbytes: int) -> None:
        """Note that host data went to a device."""
        with self._lock:
            self.uploads += 1
            self.bytes_uploaded += nbytes

    def downloaded(self, nbytes: int, first: bool = True) -> None:
        """Note that results were read; ``first`` for the first of a call's results."""
        with self._lock:
            self.downloads += first
            self.bytes_downloaded += nbytes

    def counts(self) -> Counts:
        """A copy of the totals."""
        return Counts(**{f.name: getattr(self, f.name) for f in fields(Counts)})


# The one ledger of the process: a cache of no results, only of counts, read by fg.debug.expect.
LEDGER = Ledger()
