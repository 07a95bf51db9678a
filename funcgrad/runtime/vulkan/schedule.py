"""The order in which kernels run: as early as the memory that they read and write allows, or beside a longer one.

Kernels between two barriers run side by side, and a barrier costs as much as a small kernel.  So kernels are put into
levels, each one behind the last level that has something which it must wait for; the levels are then run one after
another.  What must wait for what is told by addresses alone, so memory that is used again orders kernels too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from funcgrad.runtime.spirv.kernel import Dispatch
from funcgrad.runtime.vulkan.launches import Launches, Symbol

__all__ = ["Schedule", "Touch", "strided"]

MOST_COMBS = 8  # that a piece of memory keeps apart


class Touch(NamedTuple):
    """Memory that a kernel reads or writes: ``nbytes`` from ``where`` on.

    With a ``pitch`` it is a comb: only the first ``width`` bytes of every ``pitch`` are touched.
    """

    where: Symbol
    nbytes: int
    written: bool
    pitch: int = 0
    width: int = 0


def strided(base: Symbol, dims: Sequence[int], strides: Sequence[int], size: int, written: bool) -> Touch:
    """What a strided view of elements of ``size`` bytes touches; ``base`` is its element 0."""
    spans = [(abs(s), (n - 1) * abs(s)) for n, s in zip(dims, strides, strict=True) if n > 1 and s]
    low = sum([(n - 1) * s for n, s in zip(dims, strides, strict=True) if s < 0])
    pitch, width = 0, 0
    for p in {s for s, _ in spans}:
        tooth = sum([span for s, span in spans if s < p]) + size
        if tooth < p and all(s % p == 0 for s, _ in spans if s >= p) and (not pitch or tooth * pitch < width * p):
            pitch, width = p, tooth
    nbytes = sum([span for _, span in spans]) + size
    return Touch(Symbol(base.number, base.offset + low), nbytes, written, pitch, width)


class _Comb(NamedTuple):
    """The latest level that touches a piece of memory at the teeth of a comb."""

    pitch: int
    phase: int
    width: int
    written: bool
    level: int

    def meets(self, t: Touch) -> bool:
        """Whether one of the two must wait for the other."""
        if not (self.written or t.written):
            return False
        if t.pitch != self.pitch:
            return True
        ahead = (t.where.offset - self.phase) % self.pitch
        return ahead < self.width or self.pitch - ahead < t.width


class _Memory:
    """One address space in pieces: the latest level that writes each, the latest that touches it, and its combs."""

    def __init__(self) -> None:
        self.starts, self.writes, self.touches = [0], [-1], [-1]
        self.combs: list[tuple[_Comb, ...]] = [()]

    def _cut(self, at: int) -> int:
        """The number of the piece that starts there."""
        i = bisect_left(self.starts, at)
        if i == len(self.starts) or self.starts[i] != at:
            self.starts.insert(i, at)
            self.writes.insert(i, self.writes[i - 1])
            self.touches.insert(i, self.touches[i - 1])
            self.combs.insert(i, self.combs[i - 1])
        return i

    def _pieces(self, t: Touch) -> slice:
        first = self._cut(t.where.offset)
        return slice(first, self._cut(t.where.offset + t.nbytes))

    def latest(self, t: Touch) -> int:
        """The latest level that must come before; -1 when there is none."""
        pieces = self._pieces(t)
        level = max((self.touches if t.written else self.writes)[pieces])
        for combs in self.combs[pieces]:
            for c in combs:
                if c.level > level and c.meets(t):
                    level = c.level
        return level

    def note(self, t: Touch, level: int) -> None:
        """Remember that a kernel of this level touches the memory."""
        pieces = self._pieces(t)
        if t.written and not t.pitch:  # all before it is over: nothing else can come before this level any more
            self.starts[pieces], self.combs[pieces] = [t.where.offset], [()]
            self.writes[pieces] = self.touches[pieces] = [level]
            return
        for i in range(pieces.start, pieces.stop):
            if not t.pitch:
                self.touches[i] = max(self.touches[i], level)
            else:
                self._add_comb(i, _Comb(t.pitch, t.where.offset % t.pitch, t.width, t.written, level))

    def _add_comb(self, i: int, new: _Comb) -> None:
        """Add to a piece's combs; where there are too many, the oldest counts for the whole piece."""
        same = [c for c in self.combs[i] if c[:4] == new[:4]]
        kept = [c for c in self.combs[i] if c[:4] != new[:4]]
        kept.append(new._replace(level=max([new.level, *[c.level for c in same]])))
        if len(kept) > MOST_COMBS:
            oldest = kept.pop(0)
            self.touches[i] = max(self.touches[i], oldest.level)
            if oldest.written:
                self.writes[i] = max(self.writes[i], oldest.level)
        self.combs[i] = tuple(kept)


class _Waiting(NamedTuple):
    """A launch that is to come, and how much there is to do."""

    work: int
    touched: Sequence[Touch]
    dispatch: Dispatch
    entries: Sequence[Symbol]
    node: int


def _levels(
    all_touched: Iterable[Sequence[Touch]], wish: Callable[[int, int], int] = lambda n, level: level
) -> list[int]:
    """The level of each launch; ``wish`` may delay the n-th, which could come at a level."""
    memories: dict[int, _Memory] = {}
    out: list[int] = []
    for touched in all_touched:
        own = [memories.setdefault(t.where.number, _Memory()) for t in touched]
        level = wish(len(out), 1 + max([m.latest(t) for m, t in zip(own, touched, strict=True)], default=-1))
        for m, t in zip(own, touched, strict=True):
            m.note(t, level)
        out.append(level)
    return out


class Schedule:
    """Launches that are to come."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []

    def add(self, d: Dispatch, entries: Sequence[Symbol], touched: Sequence[Touch], node: int, work: int = 0) -> None:
        """Take a launch, what its table has, and what it touches.

        Those with more ``work`` come first in their level: the device has nothing else to do then, and spreads their
        groups evenly.
        """
        self._waiting.append(_Waiting(work, [t for t in touched if t.nbytes], d, entries, node))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to come."""
        return not self._waiting

    def launch(self, launches: Launches) -> None:
        """Append the launches, one level behind another; the first waits for whatever was before."""
        levels = self._levels()
        before = -1
        for n in sorted(range(len(levels)), key=lambda n: (levels[n], -self._waiting[n].work)):
            w = self._waiting[n]
            launches.add(w.dispatch, w.entries, levels[n] != before, w.node)
            before = levels[n]
        self._waiting = []

    def _levels(self) -> list[int]:
        """The level of each launch: the first that it can have, or if nothing waits for it, a later one with work.

        Beside a small kernel another costs as much again; beside a product it is done while the product runs.
        """
        touched = [w.touched for w in self._waiting]
        early = _levels(touched)
        latest = max(early, default=0)
        late = [latest - level for level in reversed(_levels(reversed(touched)))]
        busy = sorted({early[n] for n, w in enumerate(self._waiting) if w.work and early[n] == late[n]})

        def wish(n: int, level: int) -> int:
            k = bisect_left(busy, level)
            return busy[k] if not self._waiting[n].work and k < len(busy) and busy[k] <= late[n] else level

        return _levels(touched, wish)
