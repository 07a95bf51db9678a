"""The CPU device: graphs run as ggml graphs of our kernels, in this process's memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Equation, Graph, Literal, Var
from funcgrad.passes.pipeline import prepare
from funcgrad.primitive import Primitive
from funcgrad.runtime import device, ggml
from funcgrad.runtime.emit import Emitter
from funcgrad.runtime.execute import Buffer, Executable, host_view, new_buffer
from funcgrad.runtime.plan import Plan

__all__ = ["CpuDevice"]

EAGER = 2048  # one-equation executables kept, and literals


class CpuDevice(device.Device):
    """Runs on the cores that this process may use."""

    name = "cpu"
    float64 = False

    def __init__(self) -> None:
        self._library = ggml.load()
        self._eager: OrderedDict[Any, Executable] = OrderedDict()
        self._literals: OrderedDict[Any, Buffer] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, host: np.ndarray[Any, Any]) -> Buffer:
        """Copy host data into new memory."""
        if host.dtype == dtypes.bool_:  # numpy takes any byte that is not 0 for true, the kernels only 1
            host = host.view(np.uint8) != 0 if host.flags.c_contiguous else host != 0
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
        return Emitter(prepare).lower(prepare(graph), donate)

    def build(self, graph: Graph, donate: frozenset[int] = frozenset()) -> Executable:
        """Lower and plan a graph as it is."""
        return Executable(Emitter().lower(graph, donate), self._fixed)

    def _fixed(self, value: Any) -> Buffer:
        """The memory of a captured array."""
        if getattr(value, "device", None) is self:
            storage: Buffer = value.storage
            return storage
        return self.put(dtypes.narrow(np.asarray(value), value.aval.dtype))

    # -- one primitive at a time ---------------------------------------------------------------------------------
    def run_primitive(
        self, prim: Primitive, operands: Sequence[Any], in_avals: Sequence[Aval], out_avals: Sequence[Aval]
    ) -> list[Any]:
        """Run one primitive; literals are operands like others, so that their values do not matter to the cache."""
        key = (type(prim), prim, tuple(in_avals))
        found = self._eager.get(key)
        if found is None:
            inputs, outputs = [Var(a) for a in in_avals], [Var(a) for a in out_avals]
            found = self.compile(Graph(inputs, [Equation(prim, inputs, outputs)], outputs, prim.name))
            self._remember(self._eager, key, found)
        return found.run([self._literal(x) if isinstance(x, Literal) else x for x in operands])

    def _literal(self, x: Literal) -> Buffer:
        key = x.key()
        found = self._literals.get(key)
        if found is None:
            found = self.put(x.value)
            self._remember(self._literals, key, found)
        return found

    def _remember(self, cache: OrderedDict[Any, Any], key: Any, value: Any) -> None:
        with self._lock:
            cache[key] = value
            if len(cache) > EAGER:
                cache.popitem(last=False)

    def clear_cache(self) -> None:
        """Forget the executables of single primitives and give cached memory back to the system."""
        with self._lock:
            self._eager.clear()
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
