"""Lists of launches as arrays, with symbolic addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad.runtime.spirv.kernel import Dispatch

__all__ = ["Launches", "Symbol"]


class Symbol(NamedTuple):
    """A place in memory: a number in the program's table of addresses, and bytes from there."""

    number: int
    offset: int


class Launches:
    """Kernels that run one after another without the host; ``which`` and ``offset`` are their tables of addresses."""

    def __init__(self) -> None:
        self.codes: list[bytes] = []  # by kernel
        self.subgroups: list[int] = []
        self._known: dict[tuple[bytes, int], int] = {}
        self._blocks: list[_Arrays] = []
        self._open = _Block()

    def add(self, d: Dispatch, entries: Sequence[Symbol], barrier: bool, node: int) -> None:
        """Append one launch."""
        b = self._open
        b.kernels.append(self._kernel(d.code, d.subgroup))
        b.groups.append(d.groups)
        b.sizes.append(len(entries))
        b.which += [e.number for e in entries]
        b.offset += [e.offset for e in entries]
        b.barrier.append(barrier)
        b.nodes.append(node)

    def _kernel(self, code: bytes, subgroup: int) -> int:
        found = self._known.get((code, subgroup))
        if found is None:
            found = self._known[code, subgroup] = len(self.codes)
            self.codes.append(code)
            self.subgroups.append(subgroup)
        return found

    def repeat(self, body: Launches, numbers: Any, offsets: Any, node: int) -> None:
        """Append another's launches once for each row of two tables: what its numbers stand for here."""
        whole = body.whole()
        if not whole.kernels.size:
            return
        times = len(numbers)
        local, bound = whole.which >= 0, np.maximum(whole.which, 0)
        kernel = np.array([self._kernel(c, s) for c, s in zip(body.codes, body.subgroups, strict=True)])
        barrier = whole.barrier.copy()
        barrier[0] = True
        self._blocks.append(self._open.arrays())
        self._blocks.append(
            _Arrays(
                np.tile(kernel[whole.kernels], times),
                np.tile(whole.groups, (times, 1)),
                np.tile(whole.sizes, times),
                np.where(local, numbers[:, bound], whole.which).reshape(-1),
                (np.where(local, offsets[:, bound], 0) + whole.offset).reshape(-1),
                np.tile(barrier, times),
                np.full(len(whole.kernels) * times, node),
            )
        )
        self._open = _Block()

    def whole(self) -> _Arrays:
        """All launches as arrays."""
        self._blocks = [_joined([*self._blocks, self._open.arrays()])]
        self._open = _Block()
        return self._blocks[0]

    @property
    def count(self) -> int:
        """How many launches there are."""
        return sum([len(b.kernels) for b in self._blocks]) + len(self._open.kernels)


class _Arrays(NamedTuple):
    """Launches as arrays: their kernels' numbers, groups, sizes of their tables, the tables, and more."""

    kernels: Any
    groups: Any
    sizes: Any
    which: Any
    offset: Any
    barrier: Any
    nodes: Any


class _Block:
    """Launches as lists."""

    def __init__(self) -> None:
        self.kernels: list[int] = []
        self.groups: list[tuple[int, int, int]] = []
        self.sizes: list[int] = []
        self.which: list[int] = []
        self.offset: list[int] = []
        self.barrier: list[bool] = []
        self.nodes: list[int] = []

    def arrays(self) -> _Arrays:
        """The same as arrays."""
        return _Arrays(
            np.array(self.kernels, np.int64),
            np.array(self.groups, np.uint32).reshape(-1, 3),
            np.array(self.sizes, np.int64),
            np.array(self.which, np.int64),
            np.array(self.offset, np.int64),
            np.array(self.barrier, np.uint8),
            np.array(self.nodes, np.int64),
        )


def _joined(blocks: Sequence[_Arrays]) -> _Arrays:
    return _Arrays(*[np.concatenate(columns) for columns in zip(*blocks, strict=True)])
