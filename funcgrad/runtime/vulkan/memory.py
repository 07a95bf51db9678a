"""A device's memory in slices, and arrays that lie on the device, on the host, or on both.

Everything that a device is told to do happens in the order in which it was told, copies too.  So memory that is given
back may have a new owner at once: what its last owner still has the device do with it comes before.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad.errors import DeviceError, message
from funcgrad.ir import Aval
from funcgrad.runtime import ggml
from funcgrad.runtime.spirv.kernel import Target

__all__ = ["Memory", "MemoryFull", "Slice", "VulkanArray", "count_devices", "read_together"]

SMALL = 64  # bytes up to which a result is read with others of its call
LIMITS = 23
HEAP = 6  # the limit that is the device's memory in bytes


class MemoryFull(DeviceError):
    """A device has too little memory left; nothing was changed."""


def count_devices() -> int:
    """Return how many devices the Vulkan loader finds; DeviceError says what is missing."""
    library = ggml.load()
    err = library.new_message()
    found = library.lib.fgv_count(err, ggml.MESSAGE)
    way_out = "install the loader (libvulkan.so.1) and a driver; FUNCGRAD_VULKAN_SOFTWARE=1 admits a software driver"
    if found < 0:
        raise DeviceError(message("vulkan", "a Vulkan loader and driver are required", library.text(err), way_out))
    if not found:
        raise DeviceError(message("vulkan", "a device with Vulkan 1.2 is required", "none", way_out))
    return int(found)


class Slice:
    """A piece of device memory; it goes back when the last reference to it goes."""

    __slots__ = ("__weakref__", "address", "memory", "nbytes")

    def __init__(self, memory: Memory, address: int, nbytes: int):
        self.memory, self.address, self.nbytes = memory, address, nbytes

    def __del__(self) -> None:
        try:
            memory, address, nbytes = self.memory, self.address, self.nbytes
        except AttributeError:  # interrupted while it was made
            return
        memory.give(address, nbytes)


class Memory:
    """The memory of one device."""

    def __init__(self, index: int):
        self.library = ggml.load()
        self.name = f"vulkan:{index}"
        err = self.library.new_message()
        self.handle = self.library.lib.fgv_open(index, err, ggml.MESSAGE)
        if self.handle == self.library.ffi.NULL:
            raise DeviceError(message(self.name, "the device must open", self.library.text(err)))
        self.limits = self._limits()
        self.target = _target(self.limits)
        self.in_use = 0
        self.limit = _chosen_limit(self.limits[HEAP])
        lib = self.library.lib
        self._err, self._alloc, self._release, self._submit = err, lib.fgv_alloc, lib.fgv_release, lib.fgv_submit
        self._ticket = 0  # of the latest commands
        self._reached = 0  # the latest that were waited for

    def _limits(self) -> list[int]:
        numbers = self.library.ffi.new("int64_t[]", LIMITS)
        self.library.lib.fgv_limits(self.handle, numbers, LIMITS)
        return list(numbers)

    @property
    def description(self) -> str:
        """What the driver calls the device."""
        text = self.library.lib.fgv_description(self.handle)
        return str(self.library.ffi.string(text).decode("utf-8", "replace"))

    # -- slices --------------------------------------------------------------------------------------------------
    def take(self, nbytes: int) -> Slice:
        """Return memory for ``nbytes``; DeviceError when there is none left."""
        err = self._err
        if self.in_use + nbytes > self.limit:
            raise self.full(f"{nbytes:,} bytes asked for")
        address = self._alloc(self.handle, max(nbytes, 4), err, ggml.MESSAGE)
        if not address:
            self.check(-1, err, nbytes)
        self.in_use += nbytes
        return Slice(self, address, nbytes)

    def full(self, wanted: str) -> MemoryFull:
        """What to raise when ``wanted`` cannot be had."""
        way_out = "use a smaller batch, donate arguments, delete arrays, or checkpoint parts of the function"
        free = max(min(self.available(), self.limit - self.in_use), 0)
        got = f"{wanted}, {self.in_use:,} in use, {free:,} available of {self.limit:,}"
        return MemoryFull(message(self.name, "out of memory", got, way_out))

    def available(self) -> int:
        """Bytes that can still be had."""
        return int(self.library.lib.fgv_budget(self.handle))

    def give(self, address: int, nbytes: int) -> None:
        """Take a slice's memory back."""
        self.in_use -= nbytes
        self._release(self.handle, address)

    # -- transfers -----------------------------------------------------------------------------------------------
    def write(self, address: int, host: np.ndarray[Any, Any]) -> None:
        """Copy contiguous host data to an address; it may be changed afterwards."""
        if host.nbytes:
            err = self.library.new_message()
            data = self.library.ffi.from_buffer(host.reshape(-1).view(np.uint8))
            self.check(self.library.lib.fgv_write(self.handle, address, data, host.nbytes, err, ggml.MESSAGE), err)

    def upload(self, host: np.ndarray[Any, Any]) -> Slice:
        """Copy contiguous host data to new memory."""
        piece = self.take(host.nbytes)
        self.write(piece.address, host)
        return piece

    def read(self, addresses: Sequence[int], avals: Sequence[Aval]) -> list[np.ndarray[Any, Any]]:
        """Copy values to the host, in one go."""
        ffi, lib = self.library.ffi, self.library.lib
        raw = [np.empty(a.nbytes, np.uint8) for a in avals]
        wanted = [i for i, a in enumerate(avals) if a.nbytes]
        if wanted:
            err = self.library.new_message()
            pointers = ffi.new("void *[]", [ffi.from_buffer(raw[i], require_writable=True) for i in wanted])
            where, sizes = [addresses[i] for i in wanted], [avals[i].nbytes for i in wanted]
            failed = lib.fgv_read_many(self.handle, len(wanted), where, pointers, sizes, err, ggml.MESSAGE)
            self.check(failed, err)
        return [r.view(a.dtype).reshape(a.shape) for r, a in zip(raw, avals, strict=True)]

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy on the device, between places that do not overlap."""
        if nbytes:
            err = self.library.new_message()
            self.check(self.library.lib.fgv_copy(self.handle, to, source, nbytes, err, ggml.MESSAGE), err)

    def trim(self) -> None:
        """Give memory that is kept for later back to the driver."""
        self.library.lib.fgv_trim(self.handle)

    def is_idle(self) -> bool:
        """Whether all commands are done."""
        return not self._ticket or bool(self.library.lib.fgv_done(self.handle, self._ticket) == 1)

    def submit(self, commands: Any) -> None:
        """Have the device run recorded commands; returns at once."""
        ticket = self._submit(self.handle, commands, self._err, ggml.MESSAGE)
        if ticket < 0:
            self.check(-1, self._err)
        self._ticket = ticket

    def synchronize(self) -> None:
        """Wait until all commands are done."""
        ticket = self._ticket
        if ticket > self._reached:
            err = self.library.new_message()
            self.check(self.library.lib.fgv_wait(self.handle, ticket, err, ggml.MESSAGE), err)
            self._reached = ticket

    def check(self, failed: int, err: Any, nbytes: int = 0) -> None:
        """Raise DeviceError for an error of the device."""
        if failed < 0:
            text = self.library.text(err)
            if text == "out of memory":
                raise self.full(f"{nbytes:,} bytes asked for")
            way_out = "arrays on it are lost: start again, or use another device"
            if "parent process" in text:
                way_out = "multiprocessing.get_context('spawn'), or the cpu device in children"
            raise DeviceError(message(self.name, "the device must answer", text, way_out))


def _chosen_limit(heap: int) -> int:
    """Bytes that this process may use of a device: FUNCGRAD_VULKAN_MEMORY, or all that there is."""
    text = os.environ.get("FUNCGRAD_VULKAN_MEMORY", "")
    if not text:
        return heap
    if not text.isdecimal() or not int(text):
        raise DeviceError(message("FUNCGRAD_VULKAN_MEMORY", "a positive number of bytes is required", repr(text)))
    return min(int(text), heap)


def _target(limits: Sequence[int]) -> Target:
    return Target(
        subgroup=limits[0],
        most_invocations=limits[1],
        shared_bytes=limits[2],
        most_groups=(limits[3], limits[4], limits[5]),
        software=bool(limits[7]),
        cooperative=bool(limits[10] and limits[18]),
        denorm=bool(limits[14]),
        special=bool(limits[15]),
        subgroup_arithmetic=bool(limits[22]),
    )


class VulkanArray:
    """Storage of the device: values on the device (``piece``), on the host, or on both; they never change."""

    __slots__ = ("__weakref__", "aval", "group", "host", "memory", "piece")

    def __init__(
        self, memory: Memory, aval: Aval, host: np.ndarray[Any, Any] | None = None, piece: Slice | None = None
    ):
        self.memory, self.aval, self.host, self.piece = memory, aval, host, piece
        self.group: Sequence[weakref.ref[VulkanArray]] = ()  # small results of one call, which are read in one go

    @property
    def nbytes(self) -> int:
        """The size of the values."""
        return self.aval.nbytes

    def on_device(self) -> Slice:
        """The values on the device."""
        if self.piece is None:
            assert self.host is not None
            self.piece = self.memory.upload(np.ascontiguousarray(self.host))
        return self.piece

    def on_host(self) -> np.ndarray[Any, Any]:
        """The values as a numpy array that must not be written; they are copied once."""
        if self.host is None:
            others = [a for a in [ref() for ref in self.group] if a is not None and a is not self and a.host is None]
            arrays = [self, *others]
            pieces = [a.on_device() for a in arrays]
            hosts = self.memory.read([p.address for p in pieces], [a.aval for a in arrays])
            for a, host in zip(arrays, hosts, strict=True):
                host.flags.writeable = False
                a.host = host
            self.group = ()
        assert self.host is not None
        return self.host


def read_together(arrays: Sequence[VulkanArray]) -> None:
    """Let the small ones among the results of a call come to the host when the first of them is read."""
    small = [weakref.ref(a) for a in arrays if a.aval.nbytes <= SMALL]
    for ref in small:
        found = ref()
        assert found is not None
        found.group = small
