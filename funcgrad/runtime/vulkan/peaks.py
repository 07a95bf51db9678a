"""The largest magnitudes of operands: found once, for all kernels that want them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from funcgrad.runtime.spirv.words import Peak
from funcgrad.runtime.vulkan.launches import Symbol

__all__ = ["PEAK_BYTES", "Peaks"]

PEAK_BYTES = 1 << 16  # at the front of the scratch memory


class Peaks:
    """Where the largest magnitude of a region of memory is kept, as long as nobody writes to the region.

    Every peak has a word of its own, which a first launch sets to 0; so the launches that clear one are not needed.
    """

    def __init__(self, scratch: int):
        self.scratch, self.count = scratch, 0
        self._known: dict[tuple[Symbol, Any], tuple[Symbol, int]] = {}  # by region: the word, and the region's bytes

    def find(self, peaks: Sequence[tuple[Symbol, Peak]], scratch: list[Symbol]) -> frozenset[int]:
        """Let a node's ``scratch`` be where its peaks are kept; return those of its dispatches that are not needed."""
        done: set[int] = set()
        for where, p in peaks:
            found = self._known.get((where, p.layout))
            if found is not None:
                done |= {p.clear, p.find}
            elif 4 * self.count < PEAK_BYTES:
                found = self._known[where, p.layout] = Symbol(self.scratch, 4 * self.count), p.nbytes
                self.count += 1
                done.add(p.clear)
            else:
                continue
            scratch[p.scratch] = found[0]
        return frozenset(done)

    def forget(self, touched: Sequence[tuple[Symbol, int, bool]]) -> None:
        """What is written (place, bytes, whether it is written) has another peak now."""
        for where, nbytes, written in touched:
            if not written:
                continue
            for key in [k for k, (_, size) in self._known.items() if _overlap(k[0], size, where, nbytes)]:
                del self._known[key]

    def forget_all(self) -> None:
        """Anything may have been written."""
        self._known.clear()


def _overlap(a: Symbol, size: int, b: Symbol, nbytes: int) -> bool:
    return a.number == b.number and a.offset < b.offset + nbytes and b.offset < a.offset + size
