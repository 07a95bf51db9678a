"""What has been found out about operands: once, for all kernels that want it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from funcgrad.runtime.spirv.words import Peak
from funcgrad.runtime.vulkan.launches import Symbol

__all__ = ["Peaks"]


class _Known(NamedTuple):
    """Where something known lies in scratch memory, and the region of memory that it is about."""

    place: Symbol
    size: int
    region: Symbol
    nbytes: int


class Peaks:
    """What is known about regions of memory, as long as nobody writes to them or to where it is kept."""

    def __init__(self) -> None:
        self._known: dict[tuple[Symbol, Any], _Known] = {}

    def find(self, places: Sequence[tuple[Symbol, Peak]]) -> dict[int, Symbol]:
        """By the number of a peak among a node's, where it is already."""
        found = [self._known.get((where, p.layout)) for where, p in places]
        return {i: known.place for i, known in enumerate(found) if known is not None}

    def learn(self, where: Symbol, p: Peak, place: Symbol, size: int) -> None:
        """Note what a node's kernel has found, ``size`` bytes at ``place``."""
        self._known[where, p.layout] = _Known(place, size, where, p.nbytes)

    def forget(self, touched: Sequence[tuple[Symbol, int, bool]]) -> None:
        """What is written (place, bytes, whether it is written) is not known any more."""
        for where, nbytes, written in touched:
            if written:
                self._known = {
                    key: k
                    for key, k in self._known.items()
                    if not (_overlap(k.region, k.nbytes, where, nbytes) or _overlap(k.place, k.size, where, nbytes))
                }

    def forget_all(self) -> None:
        """Anything may have been written."""
        self._known.clear()


def _overlap(a: Symbol, size: int, b: Symbol, nbytes: int) -> bool:
    return a.number == b.number and a.offset < b.offset + nbytes and b.offset < a.offset + size
