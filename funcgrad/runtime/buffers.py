"""Memory of the CPU device: taken from the extension's allocator, and lent to numpy."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import DeviceError, message
from funcgrad.ir import Aval
from funcgrad.runtime import ggml, memory

__all__ = [
    "Buffer",
    "check_room",
    "copy_buffer",
    "free_with",
    "host_copy",
    "host_view",
    "new_buffer",
    "out_of_memory",
]


class Buffer:
    """Memory of the CPU device.

    ``guard`` says whether others may look at it: None, the array whose memory it is, or a weak reference to a numpy
    view.
    """

    __slots__ = ("__weakref__", "guard", "nbytes", "ptr")

    def __init__(self, ptr: int, nbytes: int, guard: Any = None):
        self.ptr, self.nbytes, self.guard = ptr, nbytes, guard

    def __del__(self, weak: type = weakref.ref) -> None:
        # While the interpreter ends, this module's names are None, and the process gives its memory back anyway.
        if _free is not None and (self.guard is None or type(self.guard) is weak):
            _free(self.ptr)

    def __repr__(self) -> str:
        return f"Buffer({self.nbytes} bytes)"


def _free(ptr: int) -> None:
    """Give memory back; replaced by the extension's function when it is loaded."""


def free_with(library: ggml.Library) -> None:
    """Buffers are given back to this library from now on."""
    global _free
    _free = library.lib.fg_give_address


def new_buffer(nbytes: int) -> Buffer:
    """Allocate memory; DeviceError when there is none."""
    global _free
    lib = ggml.load().lib
    _free = lib.fg_give_address
    if nbytes >= memory.LARGE:
        check_room(nbytes)
    ptr = lib.fg_take_address(nbytes)
    if not ptr:
        raise out_of_memory(nbytes)
    return Buffer(ptr, nbytes)


def out_of_memory(nbytes: int, room: int | None = None) -> DeviceError:
    """The error for so many bytes, of which ``room`` are available."""
    used = ggml.load().lib.fg_alloc_in_use()
    way_out = "use a smaller batch, donate arguments, or checkpoint parts of the function"
    got = f"{nbytes:,} bytes asked for, {used:,} in use" + ("" if room is None else f", {room:,} available")
    return DeviceError(message("cpu", "out of memory", got, way_out))


def check_room(nbytes: int) -> None:
    """Raise DeviceError when the system has not so much memory: it would be granted, and end the process later."""
    room = memory.available()
    if room is not None and room < nbytes:
        ggml.load().lib.fg_alloc_trim()  # what was freed, but kept for reuse
        room = memory.available()
        if room is not None and room < nbytes:
            raise out_of_memory(nbytes, room)


def copy_buffer(b: Buffer, library: ggml.Library) -> Buffer:
    """A buffer of its own with the same bytes."""
    copy = new_buffer(b.nbytes)
    library.ffi.memmove(library.ffi.cast("void *", copy.ptr), library.ffi.cast("void *", b.ptr), b.nbytes)
    return copy


class _Exported:
    """Lends a buffer's memory to numpy, and keeps the buffer for as long as the array lives."""

    __slots__ = ("__array_interface__", "__weakref__", "kept")

    def __init__(self, buffer: Buffer, aval: Aval):
        code = "|V2" if aval.dtype == dtypes.bfloat16 else aval.dtype.str
        self.kept: Any = buffer
        self.__array_interface__ = {"data": (buffer.ptr, True), "shape": aval.shape, "typestr": code, "version": 3}


def host_view(buffer: Buffer, aval: Aval) -> np.ndarray[Any, Any]:
    """Return a buffer's memory as a read-only numpy array.

    While the array lives, donating the buffer takes a copy.
    """
    if type(buffer.guard) is np.ndarray:
        base: np.ndarray[Any, Any] = buffer.guard
        view = base.view()
    else:
        exported = _Exported(buffer, aval)
        view = np.asarray(exported)
        if buffer.guard is None or buffer.guard() is None:
            buffer.guard = weakref.ref(exported)
        else:
            _share_guard(buffer, exported)
    view = view.view(aval.dtype) if view.dtype != aval.dtype else view
    view.flags.writeable = False
    shaped: np.ndarray[Any, Any] = view.reshape(aval.shape)
    return shaped


def _share_guard(buffer: Buffer, exported: _Exported) -> None:
    """Let an earlier view live for as long as the new one, so that one weak reference speaks for both."""
    exported.kept = buffer, buffer.guard()


def host_copy(address: int, aval: Aval) -> np.ndarray[Any, Any]:
    """An argument of a host function: a copy, bfloat16 as float32."""
    if not aval.nbytes:
        return np.empty(aval.shape, aval.dtype)
    view = np.asarray(_Exported(Buffer(address, aval.nbytes, guard=aval), aval)).view(aval.dtype)
    return dtypes.widen(view) if aval.dtype == dtypes.bfloat16 else view.copy()
