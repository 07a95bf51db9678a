"""MAP nodes that become part of others: of a REDUCE node that alone reads the one result, and computes its elements; of
a product whose result it is the first to read, to be done where that is computed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from funcgrad import dtypes
from funcgrad.runtime.kinds import DOT, DOT_MAP, MAP, MAP_REDUCE, REDUCE
from funcgrad.runtime.plan import Buf, Node
from funcgrad.runtime.program import CODES
from funcgrad.runtime.spirv.instructions import INSTRUCTIONS
from funcgrad.runtime.spirv.product import parse
from funcgrad.runtime.spirv.words import Program, read_program
from funcgrad.runtime.views import row_major

__all__ = ["join_products", "join_reductions"]

F32 = CODES[dtypes.float32]
MOST_INPUTS = 6
MOST_COST = 80  # additions that one element may take
SHORT = 25  # additions that a program may take which an invocation runs for each of its results of a product
MOST_OPERANDS = 6  # of such a program: they are read and written in pieces of a tile
MOST_BYTES = 8 << 20  # of a product's result: for a larger one another pass over memory matters less than the units


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
    at, ndim = _operand_at(reduction)
    return reduction.words[at + 2 : at + 3 + ndim]


def _operand_at(reduction: Node) -> tuple[int, int]:
    """Where the operand is among a reduction's words (slot, dtype, offset, strides), and how many axes it has."""
    n_keep = reduction.words[1]
    ndim = n_keep + reduction.words[2 + n_keep]
    return 3 + ndim, ndim


def _by_rows(p: Program) -> bool:
    """Whether neighbours among the elements are neighbours in all that is read, or one element."""
    return all(abs(x.strides[-1]) <= 4 for x in p.inputs if x.slot >= 0)


def _joined(made: Node, reduction: Node) -> Node:
    """One node: the words of both behind the number of the first's words."""
    inputs = list(made.operands[: made.writes[0]])
    words, (at, ndim) = list(reduction.words), _operand_at(reduction)
    words[at], words[at + 3 + ndim] = -1, len(inputs)
    node = Node(MAP_REDUCE, [len(made.words), *made.words, *words], [*inputs, reduction.operands[1]], (len(inputs),))
    node.site = reduction.site
    return node


def join_products(nodes: Sequence[Node], results: Sequence[Buf]) -> list[Node]:
    """The nodes in their order, with such pairs as one node in the MAP node's place."""
    readers: dict[Buf, list[Node]] = {}
    for node in nodes:
        for b in dict.fromkeys([b for i, b in enumerate(node.operands) if i not in node.writes]):
            readers.setdefault(b, []).append(node)
    writers = Counter([node.operands[w] for node in nodes for w in node.writes])
    kept = set(results)
    product_of: dict[Node, Node] = {}  # of several the last, so that there is nothing left to wait for
    for node in nodes:
        b = node.operands[node.writes[0]]
        if node.kind != DOT or b in kept or b.kind != "temp" or writers[b] != 1 or b not in readers:
            continue
        if readers[b][0].kind == MAP and _is_finish(node, readers[b][0], b):
            product_of[readers[b][0]] = node
    gone = set(product_of.values())
    out: list[Node] = []
    for node in nodes:
        product = product_of.get(node)
        if product is not None:
            b = product.operands[product.writes[0]]
            out.append(_finished(product, node, b, len(readers[b]) > 1))
        elif node not in gone:
            out.append(node)
    return out


def _is_finish(product: Node, made: Node, b: Buf) -> bool:
    """Whether a MAP node's program can run on a product's results one by one, in the order of memory."""
    d, p = parse(product.words), read_program(made.words, rows=False)
    read = [x for x in p.inputs if x.slot >= 0 and made.operands[x.slot] is b]
    if len(read) != 1 or read[0].dtype != F32 or d.dtype != F32 or d.c.dtype != F32 or b.nbytes > MOST_BYTES:
        return False
    count = math.prod(d.batch) * d.m * d.n
    whole = 4 * count == b.nbytes and not d.c.offset and all(s > 0 for s in d.c.strides)
    in_order = not read[0].offset and read[0].strides == row_major(p.dims, 4) and math.prod(p.dims) == count
    few = len(p.inputs) + len(p.outputs) <= MOST_OPERANDS and sum([INSTRUCTIONS[x[0]].cost for x in p.code]) <= SHORT
    return whole and in_order and few and d.k > 0


def _finished(product: Node, made: Node, b: Buf, also: bool) -> Node:
    """One node: how many words the product has, which input of the program its result is, and the words of both.

    Where ``also`` others read the result, it is a result of the program too.
    """
    outputs = [*([b] if also else []), *[made.operands[w] for w in made.writes]]
    inputs = [x for x in (*product.operands, *made.operands) if x is not b and x not in outputs]
    operands = list(dict.fromkeys([*inputs, *outputs]))
    slot = {x: n for n, x in enumerate(operands)}
    p = read_program(made.words, rows=False)
    nd, words, which = len(p.dims), list(made.words), -1
    at = 5 + nd
    for n, x in enumerate(p.inputs):
        if x.slot >= 0 and made.operands[x.slot] is b:
            words[at], which = -1, n
        elif x.slot >= 0:
            words[at] = slot[made.operands[x.slot]]
        at += 3 + nd
    for _, x in p.outputs:
        words[at + 1] = slot[made.operands[x.slot]]
        at += 4 + nd
    if also:
        words[2 + nd] += 1
        words[at:at] = [which, slot[b], F32, 0, *row_major(p.dims, 4)]
    dot = _with_slots(product, {**slot, b: -1})
    reuse = [
        (slot[made.operands[s]], slot[made.operands[d]])
        for s, d in made.reuse
        if made.operands[s] is not b and made.operands[s] not in product.operands
    ]
    writes = [slot[x] for x in dict.fromkeys(outputs)]
    node = Node(DOT_MAP, [len(dot), which, *dot, *words], operands, writes, reuse)
    node.site = made.site
    return node


def _with_slots(product: Node, slot: dict[Buf, int]) -> list[int]:
    """A product's words with other numbers for its operands."""
    words = list(product.words)
    nb = words[1]
    for at in [5 + nb + n * (5 + nb) for n in range(3)]:
        words[at] = slot[product.operands[words[at]]]
    return words
