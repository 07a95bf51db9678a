"""Matrix products as Vulkan kernels: on the device's matrix units where they are exact enough and faster."""

from __future__ import annotations

import math
from collections.abc import Sequence

from funcgrad.runtime.spirv.epilogue import Epilogue
from funcgrad.runtime.spirv.kernel import Target
from funcgrad.runtime.spirv.matrix import lower_matrix, matrix_seconds
from funcgrad.runtime.spirv.pointwise import lower_program
from funcgrad.runtime.spirv.product import Product, join, parse
from funcgrad.runtime.spirv.tiles import best_tile, part_of, tile_seconds, tiles
from funcgrad.runtime.spirv.words import Lowered, read_program

__all__ = ["lower_dot", "lower_dot_map"]


HELD = 1 << 20  # stands for the slot of a product's result that only a program reads


def lower_dot(words: Sequence[int], target: Target) -> Lowered:
    """Return the launches of a DOT node, and the bytes of scratch that they need."""
    return _lower(parse(words), target)


def _lower(p: Product, target: Target, epilogue: Epilogue | None = None) -> Lowered:
    """The launches of a product; an ``epilogue`` is part of them."""
    tile, splits = best_tile(p, target)
    if matrix_seconds(p, target) < tile_seconds(p, tile, splits):
        return _apart(p, target, epilogue) if epilogue else lower_matrix(p, target)
    splits = math.ceil(p.k / part_of(p, splits))
    if epilogue and not epilogue.fits(tile.rows * tile.columns if splits == 1 else 1):
        return _apart(p, target, epilogue)
    if splits == 1:
        return Lowered([tiles(p, tile, 1, target, epilogue=epilogue)], [])
    count = math.prod(p.batch) * p.m * p.n
    return Lowered([tiles(p, tile, splits, target), join(p, splits, target, epilogue)], [4 * count * splits])


def _apart(p: Product, target: Target, epilogue: Epilogue) -> Lowered:
    """A product into scratch, and a launch of the program."""
    made = _lower(p._replace(c=p.c._replace(slot=HELD)), target)
    inputs = list(epilogue.p.inputs)
    inputs[epilogue.which] = inputs[epilogue.which]._replace(slot=HELD)
    program = lower_program(epilogue.p._replace(inputs=inputs), target)
    held = ~len(made.scratch)
    dispatches = [
        d._replace(table=tuple([(held if slot == HELD else slot, at) for slot, at in d.table]))
        for d in (*made.dispatches, *program.dispatches)
    ]
    size = 4 * math.prod(p.batch) * p.m * p.n
    return Lowered(dispatches, [*made.scratch, size], made.peaks)


def lower_dot_map(words: Sequence[int], target: Target) -> Lowered:
    """The launches of a DOT node and of a MAP node that reads its result: the number of the DOT's words, which input of
    the MAP is the result, the DOT's words, and the MAP's."""
    n, which = words[:2]
    p = parse(words[2 : 2 + n])
    return _lower(p, target, Epilogue(read_program(words[2 + n :], rows=False), which, p))
