"""The emitter for Vulkan devices: that of the CPU, without what is done for its caches."""

from __future__ import annotations

from typing import Any

from funcgrad.runtime.emit import Emitter
from funcgrad.runtime.plan import Node

__all__ = ["VulkanEmitter"]

DOT = 2
Ints = tuple[int, ...]
PRECISIONS = {None: 0, "default": 0, "highest": 0, "float32": 0, "high": 1, "tensorfloat32": 1, "float16": 2}


class VulkanEmitter(Emitter):
    """Lowers for devices without caches to care for; a product's words end with its precision."""

    tiled = False
    columns = 1 << 28
    precision: str | None = None

    def dot(
        self, x: Any, y: Any, lc: Ints, rc: Ints, lb: Ints = (), rb: Ints = (), precision: str | None = None
    ) -> Any:
        self.precision = precision
        try:
            return super().dot(x, y, lc, rc, lb, rb)
        finally:
            self.precision = None

    def node(self, kind: int, words: list[int], *args: Any, **kwargs: Any) -> Node:
        if kind == DOT:
            words.append(PRECISIONS.get(self.precision, 0))
        return super().node(kind, words, *args, **kwargs)
