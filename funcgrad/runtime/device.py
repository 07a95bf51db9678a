"""Devices by name, the default one, and the numpy device, which is the reference for all others.

A device has: ``name``; ``float64`` (whether it keeps float64); ``put(host) -> storage`` (a copy), ``get(storage,
aval) -> numpy array``; ``run_primitive(prim, operands, in_avals, out_avals) -> storages`` (operands are storages or
literals); ``compile(graph, donate) -> Executable``; ``synchronize()``.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import DeviceError, message
from funcgrad.ir import Aval, Equation, Graph, Literal, Var
from funcgrad.primitive import Primitive

__all__ = [
    "CompilingDevice",
    "Device",
    "NumpyDevice",
    "clear_caches",
    "default",
    "devices",
    "get",
    "register",
    "set_default",
    "zero_or_one",
]

KEPT = 2048  # one-equation executables, and literals


class Device:
    """Base of all devices."""

    name = ""
    float64 = False

    @property
    def platform(self) -> str:
        """The name without the number: "numpy", "cpu" or "vulkan"."""
        return self.name.partition(":")[0]

    @property
    def device_kind(self) -> str:
        """What the driver calls the device, or the platform where there is no driver."""
        return self.platform

    def put(self, host: np.ndarray[Any, Any]) -> Any:
        """Return device memory holding a copy of host data, which has a dtype of :mod:`funcgrad.dtypes`."""
        raise NotImplementedError(f"{type(self).__name__}.put")

    def wrap(self, host: np.ndarray[Any, Any]) -> Any:
        """Return storage for one call, of memory that the caller keeps: without a copy where possible."""
        return self.put(host)

    def get(self, storage: Any, aval: Aval) -> np.ndarray[Any, Any]:
        """Return the values as a numpy array that must not be written."""
        raise NotImplementedError(f"{type(self).__name__}.get")

    def item(self, storage: Any, aval: Aval) -> Any:
        """Return the one element of an array of one, as a number."""
        return dtypes.widen(self.get(storage, aval)).reshape(())[()]

    def run_primitive(
        self, prim: Primitive, operands: Sequence[Any], in_avals: Sequence[Aval], out_avals: Sequence[Aval]
    ) -> list[Any]:
        """Run one primitive now."""
        raise NotImplementedError(f"{type(self).__name__}.run_primitive")

    def compile(self, graph: Graph, donate: frozenset[int] = frozenset()) -> Any:
        """Return what runs the graph: ``run(storages) -> storages``.

        ``run`` looks at an attribute of each storage before it starts: AttributeError for one that is gone.
        """
        raise NotImplementedError(f"{type(self).__name__}.compile")

    def synchronize(self) -> None:
        """Wait until everything asked for is done."""

    def clear_cache(self) -> None:
        """Forget what was compiled for single primitives, and give memory kept for later back."""

    def __repr__(self) -> str:
        kind = "" if self.device_kind == self.platform else f", {self.device_kind!r}"
        return f"Device({self.name!r}{kind})"


class CompilingDevice(Device):
    """A device that runs single primitives as graphs of one equation, of which it keeps the latest."""

    def __init__(self) -> None:
        self._eager: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()

    def literal(self, x: Literal) -> Any:
        """Storage that holds a literal."""
        raise NotImplementedError(f"{type(self).__name__}.literal")

    def run_primitive(
        self, prim: Primitive, operands: Sequence[Any], in_avals: Sequence[Aval], out_avals: Sequence[Aval]
    ) -> list[Any]:
        """Run one primitive; literals are operands like others, so that their values do not matter to the cache."""
        key = (type(prim), prim, tuple(in_avals))
        found = self._eager.get(key)
        if found is None:
            inputs, outputs = [Var(a) for a in in_avals], [Var(a) for a in out_avals]
            found = self.compile(Graph(inputs, [Equation(prim, inputs, outputs)], outputs, prim.name))
            self.remember(self._eager, key, found)
        results: list[Any] = found.run([self.literal(x) if isinstance(x, Literal) else x for x in operands])
        return results

    def remember(self, cache: OrderedDict[Any, Any], key: Any, value: Any) -> None:
        """Put something into a cache, and out what is there longest when it is full."""
        with self._lock:
            cache[key] = value
            if len(cache) > KEPT:
                cache.popitem(last=False)

    def clear_cache(self) -> None:
        """Forget the executables of single primitives."""
        with self._lock:
            self._eager.clear()


def zero_or_one(host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Truth values as bytes that are 0 or 1: numpy takes any byte that is not 0 for true, the kernels only 1."""
    clean: np.ndarray[Any, Any] = host.view(np.uint8) != 0 if host.flags.c_contiguous else host != 0
    return clean


class NumpyExecutable:
    """Runs a graph equation by equation through the primitives' numpy references."""

    donated: frozenset[int] = frozenset()

    def __init__(self, graph: Graph):
        self.graph = graph

    def run(self, storages: Sequence[Any]) -> list[Any]:
        """Return the outputs for the inputs; AttributeError when one of them is no memory any more."""
        _ = [s.shape for s in storages]
        env: dict[Any, Any] = dict(zip(self.graph.inputs, storages, strict=True))
        for eqn in self.graph.eqns:
            xs = [a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs]
            env.update(zip(eqn.outputs, eqn.prim.evaluate(*xs), strict=True))
        return [a.value if isinstance(a, Literal) else env[a] for a in self.graph.outputs]


class NumpyDevice(Device):
    """The reference: every primitive by numpy, in the dtype given, float64 included."""

    name = "numpy"
    float64 = True

    def put(self, host: np.ndarray[Any, Any]) -> Any:
        copy = np.array(host)
        copy.flags.writeable = False
        return copy

    def get(self, storage: Any, aval: Aval) -> np.ndarray[Any, Any]:
        view: np.ndarray[Any, Any] = storage.view()
        view.flags.writeable = False
        return view

    def run_primitive(
        self, prim: Primitive, operands: Sequence[Any], in_avals: Sequence[Aval], out_avals: Sequence[Aval]
    ) -> list[Any]:
        return list(prim.evaluate(*[x.value if isinstance(x, Literal) else x for x in operands]))

    def compile(self, graph: Graph, donate: frozenset[int] = frozenset()) -> NumpyExecutable:
        return NumpyExecutable(graph)


_factories: dict[str, Callable[[], list[Device]]] = {"numpy": lambda: [NumpyDevice()]}
_made: dict[str, list[Device]] = {}
_making = threading.RLock()  # a platform's devices are made once, whoever asks first
_local = threading.local()


def register(platform: str, factory: Callable[[], list[Device]]) -> None:
    """Add a platform: ``factory`` gives its devices, or raises DeviceError saying why there are none."""
    _factories[platform] = factory


def _platform(name: str) -> list[Device]:
    found = _made.get(name)
    if found is None:
        with _making:
            found = _made.get(name)
            if found is None:
                found = _made[name] = _factories[name]()
    return found


def devices(platform: str | None = None) -> list[Device]:
    """Return the devices of a platform, or all that are usable here.

    >>> devices("numpy")
    [Device('numpy')]
    """
    if platform is not None:
        return list(_platform(platform))
    found = []
    for name in _factories:
        try:
            found += _platform(name)
        except DeviceError:
            continue
    return found


def clear_caches() -> None:
    """Have every device that was asked for forget what it keeps for later."""
    for found in list(_made.values()):
        for d in found:
            d.clear_cache()


def get(device: Any) -> Device:
    """Return the device for a name ("cpu", "vulkan:0", "numpy") or a Device."""
    if isinstance(device, Device):
        return device
    platform, _, number = str(device).partition(":")
    if platform in _factories and (not number or number.isdigit()):
        found = _platform(platform)
        if int(number or 0) < len(found):
            return found[int(number or 0)]
        raise DeviceError(message("device", f"there are {len(found)} devices of {platform}", repr(device)))
    known = ", ".join(d.name for d in devices())
    way_out = "fg.devices() lists what is usable here"
    if platform == "auto":
        way_out = 'device="auto" is for jit and make_train_step, which have something to time'
    raise DeviceError(message("device", f"a name among {known} is required", repr(device), way_out))


def default() -> Device:
    """Return this thread's default device: set by ``default_device``, else by FUNCGRAD_PLATFORMS, else "cpu"."""
    found: Device | None = getattr(_local, "device", None)
    if found is None:
        _local.device = found = get(os.environ.get("FUNCGRAD_PLATFORMS", "cpu").split(",")[0])
    return found


def set_default(device: Device) -> Device:
    """Make a device this thread's default; return the one before."""
    before = default() if getattr(_local, "device", None) is not None else None
    _local.device = device
    return before  # type: ignore[return-value]
