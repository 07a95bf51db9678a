"""Reductions that compute their elements: a MAP node whose one result only a REDUCE node reads becomes part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from funcgrad import dtypes
from funcgrad.runtime.kinds import MAP, MAP_REDUCE, REDUCE
from funcgrad.runtime.plan import Buf, Node
from funcgrad.runtime.program import CODES
from funcgrad.runtime.spirv.instructions import INSTRUCTIONS
from funcgrad.runtime.spirv.words import Program, read_program
from funcgrad.runtime.views import row_major

__all__ = ["join_reductions"]

F32 = CODES[dtypes.float32]
MOST_INPUTS = 6
MOST_COST = 80  # additions that one element may take


def join_reductions(nodes: Sequence[Node], results: Sequence[Buf]) -> list[Node]:
    """The nodes in their order, with such pairs as one node in the reduction's place."""
    reads = Counter([b for node in nodes for i, b in enumerate(node.operands) if i not in node.writes])
    reads.update(results)
    writers = Counter([node.operands[w] for node in nodes for w in node.writes])
    maps = {node.operands[node.writes[0]]: node for node in nodes if node.kind == MAP and len(node.writes) == 1}
    out: list[Node] = []
    gone: set[Node] = set()
    for node in nodes:
        made = maps.get(node.operands[0]) if node.kind == REDUCE else None
        b = node.operands[0]
        if made is not None and b.kind == "temp" and reads[b] == 1 == writers[b] and _fits(made, node):
            gone.add(made)
            node = _joined(made, node)
        out.append(node)
    return [node for node in out if node not in gone]


def _fits(made: Node, reduction: Node) -> bool:
    """Whether a reduction may compute the elements: few operands, read along their rows, and not much to do."""
    p = read_program(made.words, rows=False)
    (result,) = [x for _, x in p.outputs]
    b = reduction.operands[0]
    whole = result.strides == row_major(p.dims, 4) and not result.offset and b.nbytes == b.aval.size * 4
    cost = sum([INSTRUCTIONS[x[0]].cost for x in p.code])
    if not whole or result.dtype != F32 or len(p.inputs) > MOST_INPUTS or cost > MOST_COST or 0 in p.dims:
        return False
    return all(s >= 0 for s in _read_steps(reduction)) and _by_rows(p)


def _read_steps(reduction: Node) -> list[int]:
    """The offset and the strides with which a reduction reads."""
    w = reduction.words
    n_keep = w[1]
    n_gone = w[2 + n_keep]
    at = 3 + n_keep + n_gone  # of the operand: slot, dtype, offset, strides
    return w[at + 2 : at + 3 + n_keep + n_gone]


def _by_rows(p: Program) -> bool:
    """Whether neighbours among the elements are neighbours in all that is read, or one element."""
    return all(abs(x.strides[-1]) <= 4 for x in p.inputs if x.slot >= 0)


def _joined(made: Node, reduction: Node) -> Node:
    """One node: the words of both behind the number of the first's words."""
    inputs = list(made.operands[: made.writes[0]])
    words = list(reduction.words)
    at = 3 + words[1] + words[2 + words[1]]
    n_strides = words[1] + words[2 + words[1]]
    words[at], words[at + 3 + n_strides] = -1, len(inputs)
    node = Node(MAP_REDUCE, [len(made.words), *made.words, *words], [*inputs, reduction.operands[1]], (len(inputs),))
    node.site = reduction.site
    return node
