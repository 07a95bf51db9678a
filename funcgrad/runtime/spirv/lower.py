"""From a node of a plan to what a Vulkan device runs for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from funcgrad.runtime.kinds import (
    CUMULATIVE,
    DOT,
    DOT_MAP,
    DYNAMIC_SLICE,
    DYNAMIC_UPDATE,
    MAP,
    MAP_REDUCE,
    REDUCE,
    ROWS,
    SCATTER,
    SORT,
    TAKE,
)
from funcgrad.runtime.spirv.dot import lower_dot, lower_dot_map
from funcgrad.runtime.spirv.index import lower_dynamic_slice, lower_dynamic_update, lower_scatter, lower_take
from funcgrad.runtime.spirv.instructions import Unsupported
from funcgrad.runtime.spirv.kernel import Dispatch, Target
from funcgrad.runtime.spirv.order import lower_cumulative, lower_sort
from funcgrad.runtime.spirv.pointwise import lower_map
from funcgrad.runtime.spirv.reduce import lower_map_reduce, lower_reduce
from funcgrad.runtime.spirv.rows import lower_rows
from funcgrad.runtime.spirv.words import Lowered

__all__ = ["LOWERINGS", "Dispatch", "Lowered", "Unsupported", "lower"]

# From words to dispatches and the bytes of each scratch.
LOWERINGS: dict[int, Callable[[Sequence[int], Target], Lowered | tuple[list[Dispatch], list[int]]]] = {
    MAP: lower_map,
    REDUCE: lower_reduce,
    DOT: lower_dot,
    TAKE: lower_take,
    SCATTER: lower_scatter,
    DYNAMIC_SLICE: lower_dynamic_slice,
    DYNAMIC_UPDATE: lower_dynamic_update,
    CUMULATIVE: lower_cumulative,
    SORT: lower_sort,
    ROWS: lower_rows,
    MAP_REDUCE: lower_map_reduce,
    DOT_MAP: lower_dot_map,
}


@lru_cache(maxsize=1024)
def _lower(kind: int, words: tuple[int, ...], target: Target) -> Lowered:
    return Lowered(*LOWERINGS[kind](words, target))


def lower(kind: int, words: Sequence[int], target: Target) -> Lowered:
    """The dispatches of a node, from its kind and words; the same words give the same object again.

    Raises ``Unsupported`` for a node that no kernel is made for.
    """
    if kind not in LOWERINGS:
        raise Unsupported(f"kernels of kind {kind} are not made for Vulkan devices")
    return _lower(kind, tuple(words), target)
