"""Tiling: products over a batch and what is computed between them run one piece of the batch after another.

In: nodes ``s = q k; p = rows(s); o = p v``, each over a whole batch.  Out: one TILES node that does all three for one
element of the batch at a time, so that ``s`` and ``p`` are pieces that stay in the cache: attention, forward and
backward, never has its whole matrix of scores in memory unless somebody reads it later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from funcgrad.runtime.kinds import DOT, MAP, ROWS, TILES
from funcgrad.runtime.plan import Buf, Node

__all__ = ["tile"]

LEAST_TILES = 8
LEAST_BYTES = 1 << 20  # of what passes between the nodes: less is in the cache anyway
MOST_NODES, MOST_MOVED = 60, 8
MOST_PIECE = 1 << 22  # bytes of one piece
WIDTH = (4, 2, 2, 4, 4, 1)  # bytes, by the number of a dtype in the words


class _Operand(NamedTuple):
    """One operand of a tiled node: its buffer, the bytes of a step along each tile dimension."""

    buf: Buf
    steps: tuple[int, ...]
    within: bool  # its piece lies in the tile's share of the buffer
    written: bool


class _Piece(NamedTuple):
    """A node for one tile; its words number the operands in their order."""

    node: Node
    words: list[int]
    operands: list[_Operand]


class _Reader:
    """Takes words apart."""

    def __init__(self, words: Sequence[int]):
        self.words, self.at = words, 0

    def take(self, n: int) -> list[int]:
        """The next n words."""
        self.at += n
        return list(self.words[self.at - n : self.at])


class _Raw(NamedTuple):
    """An operand as the words give it: what stands before it, slot, dtype, offset, strides, whether it is written."""

    before: list[int]
    slot: int
    code: int
    offset: int
    strides: list[int]
    written: bool


def _parse(node: Node) -> tuple[list[int], list[int], list[_Raw], list[int]] | None:
    """A node's words: the head without dimensions, the dimensions, the operands, the tail; None for other nodes."""
    r = _Reader(node.words)
    if node.optional or node.parts or node.kind not in (MAP, DOT, ROWS):
        return None
    if node.kind == DOT:
        dtype, nb = r.take(2)
        dims, matrix = r.take(nb), r.take(3)
        raw = []
        for k in range(3):
            slot, code, offset = r.take(3)
            raw.append(_Raw([], slot, code, offset, r.take(nb + 2), k == 2))
        return [dtype, *matrix], dims, raw, []
    (nd,) = r.take(1)
    dims = r.take(nd)
    head = r.take(4)
    n_in, n_out, registers, _ = head
    widths = r.take(registers) if node.kind == ROWS else []
    raw = []
    for k in range(n_in + n_out):
        before = r.take(1) if k >= n_in else []
        slot, code, offset = r.take(3)
        raw.append(_Raw(before, slot, code, offset, r.take(nd), k >= n_in))
    return head + widths, dims, raw, r.take(len(node.words) - r.at)


def _steps(dims: list[int], tiles: Sequence[int], fixed: int) -> tuple[int, list[tuple[int, int, int]]] | None:
    """How tile dimensions come off the front of ``dims``: how many dims go entirely, and for each tile dimension
    (dim, factor of its stride, what is left of dim); None when they do not. The last ``fixed`` dims must stay whole."""
    out: list[tuple[int, int, int]] = []
    d, left = 0, dims[0] if dims else 1
    for n in tiles:
        while left == 1 and d + 1 < len(dims) - fixed:
            d += 1
            left = dims[d]
        if d >= len(dims) - fixed or left % n:
            return None
        left //= n
        out.append((d, left, left))
    return d, out


def _piece(node: Node, tiles: Sequence[int]) -> _Piece | None:
    """A node cut into tiles along its first dimensions."""
    parsed = _parse(node)
    if parsed is None:
        return None
    head, dims, raw, tail = parsed
    fixed = 1 if node.kind == ROWS else 0
    found = _steps(dims, tiles, fixed)
    if found is None:
        return None
    d, cuts = found
    left = cuts[-1][1]
    kept = [left, *dims[d + 1 :]] if left > 1 else dims[d + 1 :]
    from_ = d if left > 1 else d + 1
    if node.kind == DOT:
        words = [head[0], len(kept), *kept, *head[1:]]
        inner = [*kept, 0, 0]
    else:
        if not kept:
            return None
        words = [len(kept), *kept, *head]
        inner = kept
    operands: list[_Operand] = []
    count = math.prod(tiles)
    for x in raw:
        steps = tuple([x.strides[c] * factor for c, factor, _ in cuts])
        strides = x.strides[from_:]
        if x.slot < 0:
            if any(steps):
                return None
            words += (*x.before, -1, x.code, x.offset, *strides)
            continue
        buf = node.operands[x.slot]
        sizes = _sizes(node, inner, head, x, len(operands)) if node.kind == DOT else inner
        words += (*x.before, len(operands), x.code, x.offset, *strides)
        operands.append(_Operand(buf, steps, _within(buf, count, tiles, steps, x, sizes, strides), x.written))
    return _Piece(node, words + tail, operands)


def _sizes(node: Node, inner: list[int], head: list[int], x: _Raw, which: int) -> list[int]:
    m, n, k = head[1:4]
    return [*inner[:-2], *((m, k), (k, n), (m, n))[which]]


def _within(
    buf: Buf, count: int, tiles: Sequence[int], steps: Sequence[int], x: _Raw, sizes: Sequence[int], strides: list[int]
) -> bool:
    """Whether the piece of tile i lies in the i-th part of the buffer."""
    if buf.nbytes % count or x.offset or any(s < 0 for s in strides):
        return False
    part = buf.nbytes // count
    for n, s in zip(reversed(tiles), reversed(steps), strict=True):
        if s != part:
            return False
        part *= n
    span = sum([(n - 1) * s for n, s in zip(sizes, strides, strict=True)]) + WIDTH[x.code]
    return bool(span <= buf.nbytes // count)


class _Run:
    """Nodes that follow each other and can run tile by tile."""

    def __init__(self, tiles: Sequence[int]):
        self.tiles = tiles
        self.pieces: list[_Piece] = []
        self.moved: list[Node] = []  # nodes between that need nothing of these: they run before
        self.between: list[int] = []  # how many of them precede each piece
        self.written: set[Buf] = set()
        self.read: set[Buf] = set()

    def add(self, node: Node) -> bool:
        """Append a node if its tiles need nothing but the same tiles of those before."""
        piece = _piece(node, self.tiles)
        if piece is None:
            return False
        for o in piece.operands:
            touched = o.buf in self.written or (o.written and o.buf in self.read)
            if touched and (o.written or not o.within):
                return False
            if o.written and not o.within:
                return False
        self.pieces.append(piece)
        self.between.append(len(self.moved))
        for o in piece.operands:
            (self.written if o.written else self.read).add(o.buf)
        return True

    def take(self, node: Node) -> bool:
        """Append a node or move it; what is small and needs nothing of these is better moved, whole."""
        small = sum([node.operands[w].nbytes for w in node.writes]) < LEAST_BYTES // 4
        return (small and self.move(node)) or self.add(node) or self.move(node)

    def move(self, node: Node) -> bool:
        """Let a node run before all of these, if it has nothing to do with them."""
        writes = {node.operands[w] for w in node.writes}
        free = not self.written.intersection(node.operands) and not self.read.intersection(writes)
        if not self.pieces or not free or len(self.moved) == MOST_MOVED or node.keep:
            return False
        self.moved.append(node)
        return True

    def trimmed(self) -> None:
        """Leave out nodes at the end that read nothing of the others."""
        while self.pieces:
            last = self.pieces[-1]
            before = {o.buf for p in self.pieces[:-1] for o in p.operands if o.written}
            if any(o.buf in before for o in last.operands if not o.written):
                return
            self.pieces.pop()
            self.between.pop()

    @property
    def length(self) -> int:
        """How many nodes it replaces or moves."""
        return len(self.pieces) + (self.between[-1] if self.between else 0)

    def node(self, readers: dict[Buf, int]) -> Node | None:
        """The TILES node, or None when it gains nothing."""
        self.trimmed()
        count = math.prod(self.tiles)
        uses: dict[Buf, int] = {}
        for p in self.pieces:
            for b in dict.fromkeys([o.buf for o in p.operands]):
                uses[b] = uses.get(b, 0) + 1
        written = {o.buf: None for p in self.pieces for o in p.operands if o.written}
        own = [b for b in written if b.kind == "temp" and readers[b] == uses[b]]
        passed = sum([b.nbytes for b in written if uses[b] > 1])
        if len(self.pieces) < 2 or passed < LEAST_BYTES or any(b.nbytes // count > MOST_PIECE for b in own):
            return None
        scratch = {b: i for i, b in enumerate(own)}
        operands: dict[Buf, int] = {}
        words = [len(self.tiles), *self.tiles, len(own), *[b.nbytes // count for b in own], len(self.pieces)]
        for p in self.pieces:
            words += (p.node.kind, len(p.operands))
            for o in p.operands:
                if o.buf in scratch:
                    words += (~scratch[o.buf], *[0] * len(self.tiles))
                else:
                    words += (operands.setdefault(o.buf, len(operands)), *o.steps)
            words += (len(p.words), *p.words)
        made = Node(TILES, words, list(operands), [operands[b] for b in written if b not in scratch])
        made.site = self.pieces[0].node.site
        return made


def tile(nodes: list[Node]) -> list[Node]:
    """Return the nodes with batched products and what is between them tiled."""
    readers: dict[Buf, int] = {}
    for node in nodes:
        for b in dict.fromkeys(node.operands):
            readers[b] = readers.get(b, 0) + 1
    out: list[Node] = []
    i = 0
    while i < len(nodes):
        found = _run_at(nodes, i)
        made = found.node(readers) if found is not None else None
        if made is None or found is None:
            out.append(nodes[i])
            i += 1
        else:
            out += [*found.moved[: found.between[-1]], made]
            i += found.length
    return out


def _run_at(nodes: list[Node], i: int) -> _Run | None:
    """The longest run that begins with a batched product."""
    parsed = _parse(nodes[i]) if nodes[i].kind == DOT else None
    if parsed is None:
        return None
    tiles = [n for n in parsed[1] if n > 1]
    if math.prod(tiles) < LEAST_TILES or len(tiles) != len(parsed[1]):
        return None
    run = _Run(tiles)
    for node in nodes[i:]:
        if len(run.pieces) == MOST_NODES or not run.take(node):
            break
    return run
