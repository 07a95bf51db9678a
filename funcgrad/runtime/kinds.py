"""The numbers that csrc/fg.h and csrc/program.h give to kinds of nodes and to what a reduction or a scatter does.

Nodes of the kinds MAP_REDUCE and DOT_MAP are for Vulkan devices alone.
"""

from __future__ import annotations

__all__ = [
    "COND",
    "CUMULATIVE",
    "DOT",
    "DOT_MAP",
    "DYNAMIC_SLICE",
    "DYNAMIC_UPDATE",
    "HOST",
    "LOOP",
    "MAP",
    "MAP_REDUCE",
    "MATRIX",
    "REDUCE",
    "REDUCTIONS",
    "ROWS",
    "SCATTER",
    "SCATTERS",
    "SORT",
    "TAKE",
    "TILES",
    "WHILE",
]

MAP, REDUCE, DOT, TAKE, SCATTER, DYNAMIC_SLICE, DYNAMIC_UPDATE, CUMULATIVE, SORT, ROWS, TILES, MATRIX = range(12)
MAP_REDUCE, DOT_MAP = 12, 13  # on Vulkan devices only: no kernel of the CPU has these numbers
LOOP, WHILE, COND, HOST = range(100, 104)
REDUCTIONS = {"sum": 0, "max": 1, "min": 2, "prod": 3, "argmax": 4, "argmin": 5, "any": 6, "all": 7, "logsumexp": 8}
SCATTERS = {"set": 0, "add": 1, "mul": 2, "min": 3, "max": 4}
