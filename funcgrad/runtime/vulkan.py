"""Vulkan devices: ggml's Vulkan backend for what it does exactly, the CPU for the rest.

The library is looked for when a Vulkan device is asked for, not on import.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Equation, Graph, Literal, Var
from funcgrad.primitive import Primitive
from funcgrad.runtime import device
from funcgrad.runtime.vulkan_execute import VulkanExecutable
from funcgrad.runtime.vulkan_memory import HELD, Memory, VulkanArray, count_devices
from funcgrad.runtime.vulkan_segment import Verdicts

__all__ = ["VulkanDevice"]

EAGER = 2048  # one-equation executables kept
AT_ONCE = 1 << 16  # bytes from which on an array that is put goes to the device at once


class VulkanDevice(device.Device):
    """One GPU; float32 and bool live there, and int32 where it is only moved or used as an index."""

    float64 = False

    def __init__(self, index: int) -> None:
        self.name = f"vulkan:{index}"
        self.memory = Memory(index)
        self.verdicts = Verdicts(self.memory)
        self._eager: OrderedDict[Any, VulkanExecutable] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def cpu(self) -> Any:
        """The device that does what this one cannot."""
        return device.get("cpu")

    def put(self, host: np.ndarray[Any, Any]) -> VulkanArray:
        """Copy host data: large arrays to the device at once, small ones when they are first needed there."""
        if host.dtype == dtypes.bool_:
            host = host.view(np.uint8) != 0 if host.flags.c_contiguous else host != 0
        copy = np.array(host, order="C")
        copy.flags.writeable = False
        array = VulkanArray(self.memory, Aval(copy.shape, copy.dtype), host=copy)
        if copy.dtype in HELD and copy.nbytes >= AT_ONCE:
            array.on_device()
            if copy.dtype != dtypes.int32:  # integers are computed with on the host
                array.host = None
        return array

    def wrap(self, host: np.ndarray[Any, Any]) -> VulkanArray:
        """Use host memory for one call."""
        host = np.asarray(host)
        if host.dtype == dtypes.bool_:
            return self.put(host)
        return VulkanArray(self.memory, Aval(host.shape, host.dtype), host=host)

    def get(self, storage: Any, aval: Aval) -> np.ndarray[Any, Any]:
        """Return the values; they are copied from the device once."""
        view: np.ndarray[Any, Any] = storage.on_host().view()
        view.flags.writeable = False
        return view

    def compile(self, graph: Graph, donate: frozenset[int] = frozenset()) -> VulkanExecutable:
        """Split a graph into what the device does and what the CPU does, and lower both."""
        return VulkanExecutable(graph, self.memory, self.cpu, self.verdicts)

    def run_primitive(
        self, prim: Primitive, operands: Sequence[Any], in_avals: Sequence[Aval], out_avals: Sequence[Aval]
    ) -> list[Any]:
        """Run one primitive; literals are operands like others."""
        key = (type(prim), prim, tuple(in_avals))
        found = self._eager.get(key)
        if found is None:
            inputs, outputs = [Var(a) for a in in_avals], [Var(a) for a in out_avals]
            found = self.compile(Graph(inputs, [Equation(prim, inputs, outputs)], outputs, prim.name))
            with self._lock:
                self._eager[key] = found
                if len(self._eager) > EAGER:
                    self._eager.popitem(last=False)
        xs = [VulkanArray(self.memory, x.aval, host=x.value) if isinstance(x, Literal) else x for x in operands]
        return list(found.run(xs))

    def clear_cache(self) -> None:
        """Forget the executables of single primitives and give free memory back."""
        with self._lock:
            self._eager.clear()
        self.memory.trim()

    @property
    def bytes_in_use(self) -> int:
        """Memory of all living arrays on this device."""
        return self.memory.in_use


def _found() -> list[device.Device]:
    return [VulkanDevice(i) for i in range(count_devices())]


device.register("vulkan", _found)
