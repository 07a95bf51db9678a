"""How soon the nodes of a plan can run on a device that runs them side by side."""

from __future__ import annotations

from typing import Any

from funcgrad.runtime.kinds import DOT, DOT_MAP, MAP, MAP_REDUCE, REDUCE, ROWS

__all__ = ["Levels"]

# Which do not read what they write; several may write parts of a buffer.
WRITERS = (MAP, REDUCE, DOT, ROWS, MAP_REDUCE, DOT_MAP)
WINDOW = 4  # levels by which a node may come before the latest one


class Levels:
    """Puts nodes into levels, in order: each behind those whose results it reads, wherever these lie in memory.

    Who takes over an operand's memory must also wait for its other readers.  With ``slack`` that is to be done only
    where it makes no difference, or for an operand of more bytes than the slack.
    """

    def __init__(self, slack: int):
        self.slack, self.level, self.latest = slack, 0, 0
        self._written: dict[Any, int] = {}
        self._read: dict[Any, int] = {}
        self._before: dict[Any, int] = {}  # of this node's operands: the latest level that read them before

    def come(self, node: Any) -> None:
        """The next node."""
        if not self.slack:
            return
        written = [node.operands[w] for w in node.writes]
        read = [b for i, b in enumerate(node.operands) if i not in node.writes]
        behind = read if node.kind in WRITERS else node.operands
        level = 1 + max([self._written.get(b, 0) for b in behind], default=0)
        self.level = level = max(level, self.latest - WINDOW)
        self.latest = max(self.latest, level)
        self._before = {b: self._read.get(b, 0) for b in read}
        for b in read:
            self._read[b] = max(self._before[b], level)
        for b in written:
            self._written[b] = max(self._written.get(b, 0), level)

    def is_behind_readers(self, b: Any) -> bool:
        """Whether this node runs behind all others that read an operand anyway."""
        return not self.slack or b.nbytes > self.slack or self._before.get(b, 0) < self.level
