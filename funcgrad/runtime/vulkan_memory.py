"""The Vulkan library, its devices' memory in slices, and arrays that lie on the device, on the host, or on both.

The library is opened when a device is first asked for.  ggml reads its settings from the environment as it opens a
device: unless they are set already, half-precision and matrix-unit shaders are switched off, for with them products of
float32 operands keep 10 bits.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import DeviceError, message
from funcgrad.ir import Aval
from funcgrad.runtime import ggml

__all__ = ["HELD", "Memory", "Slice", "VulkanArray", "count_devices"]

SETTINGS = ("GGML_VK_DISABLE_F16", "GGML_VK_DISABLE_COOPMAT", "GGML_VK_DISABLE_COOPMAT2")
ALIGN = 256  # no device asks for more
CHUNK = 16 << 20  # small slices are cut from allocations of this size, whose number drivers limit
LARGE = 1 << 20  # from here on a slice is an allocation of its own
CACHED = 1 << 30  # bytes of free allocations that are kept
HELD = frozenset({dtypes.float32, dtypes.int32, dtypes.bool_})  # what device code computes with; bool as 0.0 and 1.0


def count_devices() -> int:
    """Open the library once and return how many devices it finds; DeviceError says what is missing."""
    path = Path(ggml.__file__).with_name("libggml-vulkan.so")
    if not path.exists():
        way_out = "run `FUNCGRAD_VULKAN=1 python build_ffi.py` in the source tree"
        raise DeviceError(message("vulkan", "libggml-vulkan.so beside the extension is required", "none", way_out))
    library = ggml.load()
    for name in SETTINGS:
        os.environ.setdefault(name, "1")
    err = library.new_message()
    found = library.lib.fg_backend_load(os.fsencode(path), err, ggml.MESSAGE)
    way_out = "install the loader libvulkan.so.1 and a driver; GGML_VK_VISIBLE_DEVICES=0 admits a software driver"
    if found < 0:
        raise DeviceError(message("vulkan", "a Vulkan loader and driver are required", library.text(err), way_out))
    if not found:
        raise DeviceError(message("vulkan", "a device is required", "none", way_out))
    return int(found)


class Slice:
    """A piece of device memory; it goes back when the last reference to it goes."""

    __slots__ = ("__weakref__", "address", "buffer", "memory", "room")

    def __init__(self, memory: Memory, buffer: Any, address: int, room: int):
        self.memory, self.buffer, self.address, self.room = memory, buffer, address, room

    def __del__(self) -> None:
        memory = self.memory
        if memory is not None:
            memory.give(self.buffer, self.address, self.room)


class Memory:
    """The memory of one device, and the backend that runs its graphs; ``lock`` guards both."""

    def __init__(self, index: int):
        self.library = ggml.load()
        err = self.library.new_message()
        self.backend = self.library.lib.fg_backend_open(index, err, ggml.MESSAGE)
        if self.backend == self.library.ffi.NULL:
            raise DeviceError(message(f"vulkan:{index}", "the device must open", self.library.text(err)))
        self.name = f"vulkan:{index}"
        # Mesa's software driver (22.3) follows pointers to buffers that are gone when it writes descriptors: there
        # no memory is given back to the driver.
        self.forgetful = "llvmpipe" in self.description
        self.lock = threading.RLock()
        self.in_use = 0
        self.uploads = self.downloads = self.bytes_up = self.bytes_down = 0
        self._free: dict[int, list[tuple[Any, int]]] = {}
        self._cached = 0
        self._context = self._new_context(64)
        self._probe = self.library.lib.ggml_new_tensor_1d(self._context, self.library.lib.GGML_TYPE_I32, 1)

    @property
    def description(self) -> str:
        """What the driver calls the device."""
        lib = self.library.lib
        text = lib.ggml_backend_dev_description(lib.ggml_backend_get_device(self.backend))
        return str(self.library.ffi.string(text).decode("utf-8", "replace"))

    def _new_context(self, tensors: int) -> Any:
        ffi, lib = self.library.ffi, self.library.lib
        params = ffi.new("struct ggml_init_params *")
        params.mem_size, params.mem_buffer, params.no_alloc = tensors * lib.ggml_tensor_overhead(), ffi.NULL, True
        return ffi.gc(lib.ggml_init(params[0]), lib.ggml_free)

    def take(self, nbytes: int) -> Slice:
        """Return memory for ``nbytes``; DeviceError when there is none left."""
        room = _room(nbytes)
        with self.lock:
            if not self._free.get(room):
                self._refill(room, nbytes)
            buffer, address = self._free[room].pop()
            if room >= LARGE:
                self._cached -= room
            self.in_use += room
        return Slice(self, buffer, address, room)

    def _refill(self, room: int, nbytes: int) -> None:
        base, buffer = self._allocate(max(room, CHUNK if room < LARGE else room), nbytes)
        pieces = self._free.setdefault(room, [])
        if room >= LARGE:
            self._cached += room
            pieces.append((buffer, base))
        else:
            pieces += [(buffer, base + at) for at in range(0, CHUNK, room)]

    def _allocate(self, size: int, nbytes: int) -> tuple[int, Any]:
        ffi, lib = self.library.ffi, self.library.lib
        err = self.library.new_message()
        buffer = lib.fg_backend_alloc(self.backend, size, err, ggml.MESSAGE)
        if buffer == ffi.NULL:
            self.trim()
            buffer = lib.fg_backend_alloc(self.backend, size, err, ggml.MESSAGE)
        if buffer == ffi.NULL:
            raise self.out_of_memory(nbytes)
        return int(ffi.cast("intptr_t", lib.ggml_backend_buffer_get_base(buffer))), buffer

    def out_of_memory(self, nbytes: int) -> DeviceError:
        """What to raise when ``nbytes`` cannot be had."""
        way_out = "use a smaller batch, donate arguments, or checkpoint parts of the function"
        return DeviceError(
            message(self.name, "out of memory", f"{nbytes:,} bytes asked for, {self.in_use:,} in use", way_out)
        )

    def give(self, buffer: Any, address: int, room: int) -> None:
        """Take a slice's memory back."""
        with self.lock:
            self.in_use -= room
            if room >= LARGE and self._cached + room > CACHED and not self.forgetful:
                self.library.lib.fg_backend_release(buffer)
                return
            if room >= LARGE:
                self._cached += room
            self._free.setdefault(room, []).append((buffer, address))

    def trim(self) -> None:
        """Give free large allocations back to the driver."""
        if self.forgetful:
            return
        with self.lock:
            for room in [r for r in self._free if r >= LARGE]:
                for buffer, _ in self._free.pop(room):
                    self.library.lib.fg_backend_release(buffer)
            self._cached = 0

    # -- transfers -----------------------------------------------------------------------------------------------
    def _whole(self, piece: Slice, nbytes: int) -> Any:
        t = self._probe
        t.buffer, t.data = piece.buffer, self.library.ffi.cast("void *", piece.address)
        t.ne[0] = nbytes // 4
        t.nb[1] = t.nb[2] = t.nb[3] = nbytes
        return t

    def upload(self, host: np.ndarray[Any, Any]) -> Slice:
        """Copy contiguous data of four-byte elements to the device."""
        piece = self.take(host.nbytes)
        if host.nbytes:
            lib, err = self.library.lib, self.library.new_message()
            data = self.library.ffi.from_buffer(host.reshape(-1).view(np.uint8))
            with self.lock:
                self.uploads, self.bytes_up = self.uploads + 1, self.bytes_up + host.nbytes
                self.check(lib.fg_backend_put(self._whole(piece, host.nbytes), data, host.nbytes, err, 512), err)
        return piece

    def download(self, piece: Slice, count: int, dtype: Any) -> np.ndarray[Any, Any]:
        """Copy ``count`` four-byte elements to the host."""
        out = np.empty(count, dtype)
        if out.nbytes:
            lib, err = self.library.lib, self.library.new_message()
            data = self.library.ffi.from_buffer(out.view(np.uint8), require_writable=True)
            with self.lock:
                self.downloads, self.bytes_down = self.downloads + 1, self.bytes_down + out.nbytes
                self.check(lib.fg_backend_get(self._whole(piece, out.nbytes), data, out.nbytes, err, 512), err)
        return out

    def check(self, failed: int, err: Any) -> None:
        """Raise DeviceError for an error of the backend."""
        if failed:
            text = self.library.text(err)
            if text == "out of memory":
                raise self.out_of_memory(0)
            raise DeviceError(message(self.name, "the device must answer", text, "arrays on it may be lost"))


def _room(nbytes: int) -> int:
    """The size class: powers of two for small slices, whole mebibytes for large ones.

    >>> _room(5), _room(3000), _room((1 << 20) + 1) >> 20
    (256, 4096, 2)
    """
    if nbytes > LARGE // 2:
        return -(-nbytes // LARGE) * LARGE
    return max(ALIGN, 1 << (nbytes - 1).bit_length()) if nbytes > 1 else ALIGN


class VulkanArray:
    """Storage of the device: values on the device (``piece``), on the host, or on both; they never change."""

    __slots__ = ("__weakref__", "aval", "host", "memory", "piece")

    def __init__(
        self, memory: Memory, aval: Aval, host: np.ndarray[Any, Any] | None = None, piece: Slice | None = None
    ):
        self.memory, self.aval, self.host, self.piece = memory, aval, host, piece

    @property
    def nbytes(self) -> int:
        """The size of the values."""
        return self.aval.nbytes

    def on_device(self) -> Slice:
        """The values on the device; bool as float32."""
        if self.piece is None:
            assert self.host is not None and self.aval.dtype in HELD
            wide = self.host.astype(np.float32) if self.aval.dtype == dtypes.bool_ else self.host
            self.piece = self.memory.upload(np.ascontiguousarray(wide))
        return self.piece

    def on_host(self) -> np.ndarray[Any, Any]:
        """The values as a numpy array that must not be written."""
        if self.host is None:
            assert self.piece is not None
            wide = self.memory.download(self.piece, self.aval.size, _wide(self.aval.dtype))
            host = (wide != 0 if self.aval.dtype == dtypes.bool_ else wide).reshape(self.aval.shape)
            host.flags.writeable = False
            self.host = host
        return self.host


def _wide(dtype: Any) -> Any:
    return np.dtype(np.int32) if dtype == dtypes.int32 else np.dtype(np.float32)
