"""Vulkan devices: one GPU each, opened when it is first asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Graph, Literal
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime import device
from funcgrad.runtime.plan import Plan
from funcgrad.runtime.vulkan.emitter import VulkanEmitter
from funcgrad.runtime.vulkan.executable import Executable, Pipelines
from funcgrad.runtime.vulkan.memory import Memory, Slice, VulkanArray, count_devices
from funcgrad.runtime.vulkan.probe import probe

__all__ = ["VulkanDevice", "found"]

AT_ONCE = 1 << 16  # bytes from which on an array that is put goes to the device at once


class VulkanDevice(device.CompilingDevice):
    """One GPU; it runs the same plans as the CPU, in every dtype of the library."""

    float64 = False

    def __init__(self, index: int) -> None:
        super().__init__()
        self.name = f"vulkan:{index}"
        self.memory = Memory(index)
        self.memory.target = probe(self.memory)
        self.pipelines = Pipelines(self.memory)

    @property
    def device_kind(self) -> str:
        """What the driver calls the device."""
        return self.memory.description

    def put(self, host: np.ndarray[Any, Any]) -> VulkanArray:
        """Copy host data: large arrays to the device at once, small ones when they are first needed there."""
        if host.dtype == dtypes.bool_:
            host = device.zero_or_one(host)
        copy = np.array(host, order="C")
        copy.flags.writeable = False
        array = VulkanArray(self.memory, Aval(copy.shape, copy.dtype), host=copy)
        if copy.nbytes >= AT_ONCE:
            array.on_device()
            array.host = None
        return array

    def wrap(self, host: np.ndarray[Any, Any]) -> VulkanArray:
        """Use host memory for one call."""
        host = np.asarray(host)
        if host.dtype == dtypes.bool_:
            return self.put(host)
        return VulkanArray(self.memory, Aval(host.shape, host.dtype), host=host)

    def get(self, storage: Any, aval: Aval) -> np.ndarray[Any, Any]:
        """Return the values; they are copied from the device once.

        A result that takes the memory of an argument may have another shape than that.
        """
        view: np.ndarray[Any, Any] = storage.on_host().view(aval.dtype).reshape(aval.shape)
        view.flags.writeable = False
        return view

    def compile(self, graph: Graph, donate: frozenset[int] = frozenset()) -> Executable:
        """Optimise, lower and plan a graph."""
        return Executable(self.plan(graph, donate), self.pipelines, self._fixed)

    def plan(self, graph: Graph, donate: frozenset[int] = frozenset()) -> Plan:
        """Optimise and lower a graph and plan its memory."""
        return VulkanEmitter(prepare).lower(prepare(graph), donate)

    def build(self, graph: Graph, donate: frozenset[int] = frozenset()) -> Executable:
        """Lower and plan a graph as it is."""
        return Executable(VulkanEmitter().lower(graph, donate), self.pipelines, self._fixed)

    def _fixed(self, value: Any) -> Slice:
        """The memory of a captured array."""
        if getattr(value, "device", None) is self:
            storage: VulkanArray = value.storage
            return storage.on_device()
        return self.memory.upload(np.ascontiguousarray(dtypes.narrow(np.asarray(value), value.aval.dtype)))

    def literal(self, x: Literal) -> VulkanArray:
        """A literal, on the host until it is needed."""
        return VulkanArray(self.memory, x.aval, host=x.value)

    def synchronize(self) -> None:
        """Wait until everything asked for is done."""
        self.memory.synchronize()

    def clear_cache(self) -> None:
        """Forget the executables of single primitives and give free memory back."""
        super().clear_cache()
        self.pipelines.clear()
        self.memory.trim()

    @property
    def bytes_in_use(self) -> int:
        """Memory of all living arrays on this device."""
        return self.memory.in_use


def found() -> list[device.Device]:
    """All devices that the Vulkan loader finds; DeviceError when there is none."""
    return [VulkanDevice(i) for i in range(count_devices())]
