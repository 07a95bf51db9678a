"""The CPU device: graphs run as ggml graphs of our kernels, in this process's memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Graph, Literal
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime import device, ggml
from funcgrad.runtime.buffers import Buffer, host_view, new_buffer
from funcgrad.runtime.emit import Emitter
from funcgrad.runtime.emit_matrix import Matrices
from funcgrad.runtime.execute import Executable
from funcgrad.runtime.plan import Plan

__all__ = ["CpuDevice"]


class CpuEmitter(Matrices, Emitter):
    """The emitter with what only the CPU has kernels for."""


class CpuDevice(device.CompilingDevice):
    """Runs on the cores that this process may use."""

    name = "cpu"
    float64 = False

    def __init__(self) -> None:
        super().__init__()
        self._library = ggml.load()
        self._literals: OrderedDict[Any, Buffer] = OrderedDict()

    def put(self, host: np.ndarray[Any, Any]) -> Buffer:
        """Copy host data into new memory."""
        if host.dtype == dtypes.bool_:
            host = device.zero_or_one(host)
        buffer = new_buffer(host.nbytes)
        if host.nbytes:
            data = np.ascontiguousarray(host).reshape(-1).view(np.uint8)
            ffi = self._library.ffi
            ffi.memmove(ffi.cast("void *", buffer.ptr), ffi.from_buffer(data), host.nbytes)
        return buffer

    def wrap(self, host: np.ndarray[Any, Any]) -> Buffer:
        """Use the memory of a contiguous numpy array as it is; it must not be written while the buffer lives."""
        host = np.asarray(host)  # a numpy scalar's own address is gone as soon as it is asked for
        if not host.flags.c_contiguous or host.dtype not in ON_DEVICE:
            return self.put(host)
        if host.dtype == dtypes.bool_ and host.size and host.view(np.uint8).max() > 1:
            return self.put(host)
        ffi = self._library.ffi
        return Buffer(int(ffi.cast("intptr_t", ffi.from_buffer(host))), host.nbytes, guard=host)

    def get(self, storage: Any, aval: Aval) -> np.ndarray[Any, Any]:
        """Return the memory itself as a read-only array."""
        return host_view(storage, aval)

    def item(self, storage: Any, aval: Aval) -> Any:
        """Read the one element where it lies."""
        pointer = POINTERS.get(aval.dtype)
        if pointer is None:
            return super().item(storage, aval)
        return self._library.ffi.cast(pointer, storage.ptr)[0]

    def compile(self, graph: Graph, donate: frozenset[int] = frozenset()) -> Executable:
        """Optimise, lower and plan a graph."""
        return Executable(self.plan(graph, donate), self._fixed)

    def plan(self, graph: Graph, donate: frozenset[int] = frozenset()) -> Plan:
        """Optimise and lower a graph and plan its memory."""
        return CpuEmitter(prepare).lower(prepare(graph), donate)

    def build(self, graph: Graph, donate: frozenset[int] = frozenset()) -> Executable:
        """Lower and plan a graph as it is."""
        return Executable(CpuEmitter().lower(graph, donate), self._fixed)

    def _fixed(self, value: Any) -> Buffer:
        """The memory of a captured array."""
        if getattr(value, "device", None) is self:
            storage: Buffer = value.storage
            return storage
        return self.put(dtypes.narrow(np.asarray(value), value.aval.dtype))

    def literal(self, x: Literal) -> Buffer:
        """The memory of a literal, kept for the next time."""
        key = x.key()
        found = self._literals.get(key)
        if found is None:
            found = self.put(x.value)
            self.remember(self._literals, key, found)
        return found

    def clear_cache(self) -> None:
        """Forget the executables of single primitives and give cached memory back to the system."""
        super().clear_cache()
        with self._lock:
            self._literals.clear()
        self._library.lib.fg_alloc_trim()

    @property
    def bytes_in_use(self) -> int:
        """Memory of all living arrays on this device."""
        return int(self._library.lib.fg_alloc_in_use())


POINTERS = {
    dtypes.float32: "float *",
    dtypes.int32: "int32_t *",
    dtypes.uint32: "uint32_t *",
    dtypes.bool_: "_Bool *",
}
ON_DEVICE = dtypes.ALL - {dtypes.float64}

device.register("cpu", lambda: [CpuDevice()])
