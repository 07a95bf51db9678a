"""The emitter for Vulkan devices: that of the CPU, without what is done for its caches."""

from __future__ import annotations

from collections.abc import Sequence

from funcgrad.runtime.emit import Emitter
from funcgrad.runtime.plan import Buf, Node, needed_nodes
from funcgrad.runtime.vulkan.joined import join_products, join_reductions

__all__ = ["VulkanEmitter"]

PRECISIONS = {None: 0, "default": 0, "highest": 0, "float32": 0, "high": 1, "tensorfloat32": 1, "float16": 2}


class VulkanEmitter(Emitter):
    """Lowers for devices without caches to care for; a product's words end with its precision."""

    tiled = False
    columns = 1 << 28
    aimed = True
    slack = 4 << 20  # kernels of small values need not wait for each other

    def arranged(self, results: Sequence[Buf]) -> list[Node]:
        """The nodes as the device runs them."""
        return join_products(join_reductions(needed_nodes(self.nodes, results), results), results)

    def precision_words(self, precision: str | None) -> list[int]:
        """The precision as a number: 0 float32, 1 TensorFloat-32 or better, 2 float16."""
        return [PRECISIONS.get(precision, 0)]
