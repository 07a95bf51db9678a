"""Matrix products as Vulkan kernels: on the device's matrix units where they are exact enough and faster."""

from __future__ import annotations

import math
from collections.abc import Sequence

from funcgrad.runtime.spirv.kernel import Target
from funcgrad.runtime.spirv.matrix import lower_matrix, matrix_seconds
from funcgrad.runtime.spirv.product import join, parse
from funcgrad.runtime.spirv.tiles import best_tile, part_of, tile_seconds, tiles
from funcgrad.runtime.spirv.words import Lowered

__all__ = ["lower_dot"]


def lower_dot(words: Sequence[int], target: Target) -> Lowered:
    """Return the launches of a DOT node, and the bytes of scratch that they need."""
    p = parse(words)
    tile, splits = best_tile(p, target)
    if matrix_seconds(p, target) < tile_seconds(p, tile, splits):
        return lower_matrix(p, target)
    splits = math.ceil(p.k / part_of(p, splits))
    if splits == 1:
        return Lowered([tiles(p, tile, 1, target)], [])
    count = math.prod(p.batch) * p.m * p.n
    return Lowered([tiles(p, tile, splits, target), join(p, splits, target)], [4 * count * splits])
