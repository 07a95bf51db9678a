"""The numbers that csrc/fg.h and csrc/program.h give to kinds of nodes and to what a reduction or a scatter does.

Nodes of kind MAP_REDUCE are for Vulkan devices alone.
"""

from __future__ import annotations

__all__ = [
    "COND",
    "CUMULATIVE",
    "DOT",
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
MAP_REDUCE = 12  # on Vulkan devices only: no kernel of the CPU has this number
LOOP, WHILE, COND, HOST = range(100, 104)
REDUCTIONS = {"sum": 0, "max": 1, "min": 2, "prod": 3, "argmax": 4, "argmin": 5, "any": 6, "all": 7, "logsumexp": 8}
SCATTERS = {"set": 0, "add": 1, "mul": 2, "min": 3, "max": 4}
