"""Which kernels must wait for earlier ones."""

from __future__ import annotations

from collections.abc import Sequence

from funcgrad.runtime.vulkan.launches import Symbol

__all__ = ["Hazards"]


class Hazards:
    """What kernels since the last barrier read and wrote."""

    def __init__(self) -> None:
        self._touched: dict[int, list[tuple[int, int, bool]]] = {}

    def wait(self) -> None:
        """A barrier comes before whatever is next."""
        self._touched = {-1: []}

    def meets(self, touched: Sequence[tuple[Symbol, int, bool]]) -> bool:
        """Note what a kernel touches (place, bytes, whether it is written); return whether it must wait."""
        must = -1 in self._touched or any(self._conflicts(*t) for t in touched)
        if must:
            self._touched = {}
        for where, nbytes, written in touched:
            piece = (where.offset, where.offset + nbytes, written)
            self._touched.setdefault(where.number, []).append(piece)
        return must

    def _conflicts(self, where: Symbol, nbytes: int, written: bool) -> bool:
        start, stop = where.offset, where.offset + nbytes
        return any((written or w) and start < b and a < stop for a, b, w in self._touched.get(where.number, ()))
