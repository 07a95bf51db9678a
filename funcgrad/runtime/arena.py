"""The workspace as it is laid out: blocks are taken and given back, best fit, joined with their neighbours."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

__all__ = ["ALIGN", "Arena"]

ALIGN = 64


class Arena:
    """Free blocks of the workspace, by size and by place.

    Of what was given back last, ``slack`` bytes are not taken again: who takes memory must wait for its last user.
    """

    def __init__(self, slack: int = 0) -> None:
        self.size, self.slack = 0, slack
        self._late: deque[tuple[int, int]] = deque()  # (offset, size) of what is not to be taken yet
        self._late_size = 0
        self._by_size: list[tuple[int, int]] = []  # (size, offset), sorted
        self._starts: dict[int, int] = {}  # offset: size
        self._ends: dict[int, int] = {}  # end: offset

    def _remove(self, offset: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, offset))]
        del self._starts[offset], self._ends[offset + size]

    def _add(self, offset: int, size: int) -> None:
        insort(self._by_size, (size, offset))
        self._starts[offset] = size
        self._ends[offset + size] = offset

    def take(self, nbytes: int) -> int:
        """The offset of a block: the smallest free one that fits, else new memory at the end."""
        need = -(-nbytes // ALIGN) * ALIGN
        k = bisect_left(self._by_size, (need, -1))
        if k < len(self._by_size):
            size, offset = self._by_size[k]
            self._remove(offset, size)
            if size > need:
                self._add(offset + need, size - need)
            return offset
        offset = self._ends.get(self.size, self.size)
        if offset < self.size:
            self._remove(offset, self.size - offset)
        self.size = offset + need
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        """Return a block."""
        size = -(-nbytes // ALIGN) * ALIGN
        if size:
            self._late.append((offset, size))
            self._late_size += size
        while self._late_size > self.slack:
            offset, size = self._late.popleft()
            self._late_size -= size
            self._join(offset, size)

    def _join(self, offset: int, size: int) -> None:
        """Add a block, joined with its free neighbours."""
        after = self._starts.get(offset + size)
        if after is not None:
            self._remove(offset + size, after)
            size += after
        before = self._ends.get(offset)
        if before is not None:
            self._remove(before, offset - before)
            offset, size = before, size + offset - before
        self._add(offset, size)
