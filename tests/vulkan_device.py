"""An open device of the Vulkan runtime with Python's errors, and a sum that it computes; for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from vulkan_kernels import LOCAL, add_kernel

from funcgrad.runtime import ggml

N_LIMITS = 23
HEAP, LARGEST = 6, 12


class Runtime:
    """One open device, with Python's errors."""

    def __init__(self) -> None:
        library = ggml.load()
        self.ffi, self.lib = library.ffi, library.lib
        self.err = self.ffi.new("char[]", 512)
        if self.lib.fgv_count(self.err, 512) <= 0:
            pytest.skip(self.text())
        self.device = self.checked(self.lib.fgv_open(0, self.err, 512))

    def text(self) -> str:
        return self.ffi.string(self.err).decode()

    def checked(self, result: Any) -> Any:
        failed = result < 0 if isinstance(result, int) else not result
        if failed:
            raise RuntimeError(self.text())
        return result

    def alloc(self, n_bytes: int) -> int:
        address = self.lib.fgv_alloc(self.device, n_bytes, self.err, 512)
        if not address:
            raise RuntimeError(self.text())
        return int(address)

    def release(self, *addresses: int) -> None:
        for address in addresses:
            self.lib.fgv_release(self.device, address)

    def write(self, address: int, data: np.ndarray[Any, Any]) -> None:
        err = self.ffi.new("char[]", 512)
        if self.lib.fgv_write(self.device, address, self.ffi.from_buffer(data), data.nbytes, err, 512):
            raise RuntimeError(self.ffi.string(err).decode())

    def read(self, address: int, n: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
        data = np.empty(n, dtype)
        err = self.ffi.new("char[]", 512)
        to = self.ffi.new("void *[]", [self.ffi.from_buffer(data)])
        if self.lib.fgv_read_many(self.device, 1, [address], to, [data.nbytes], err, 512):
            raise RuntimeError(self.ffi.string(err).decode())
        return data

    def put(self, data: np.ndarray[Any, Any]) -> int:
        address = self.alloc(data.nbytes)
        self.write(address, data)
        return address

    def pipeline(self, code: bytes, subgroup: int = 0) -> Any:
        err = self.ffi.new("char[]", 512)
        words = self.ffi.new("uint32_t[]", struct.unpack(f"<{len(code) // 4}I", code))
        made = self.lib.fgv_pipeline_new(self.device, words, len(code) // 4, subgroup, err, 512)
        if not made:
            raise RuntimeError(self.ffi.string(err).decode())
        return made

    def commands(self, dispatches: Sequence[tuple[Any, int, tuple[int, int, int], bool]]) -> Any:
        new, n = self.ffi.new, len(dispatches)
        pipelines = new("fgv_pipeline *[]", [p for p, _, _, _ in dispatches])
        tables = new("uint64_t[]", [t for _, t, _, _ in dispatches])
        groups = new("uint32_t[]", [g for _, _, three, _ in dispatches for g in three])
        barrier = new("uint8_t[]", [b for _, _, _, b in dispatches])
        made = self.lib.fgv_commands_new(self.device, n, pipelines, tables, groups, barrier, self.err, 512)
        return self.checked(made)

    def submit(self, commands: Any) -> int:
        return int(self.checked(self.lib.fgv_submit(self.device, commands, self.err, 512)))

    def wait(self, ticket: int) -> None:
        self.checked(self.lib.fgv_wait(self.device, ticket, self.err, 512))

    def limits(self) -> list[int]:
        out = self.ffi.new(f"int64_t[{N_LIMITS}]")
        assert self.lib.fgv_limits(self.device, out, N_LIMITS) == N_LIMITS
        return list(out)

    def budget(self) -> int:
        return int(self.lib.fgv_budget(self.device))


class Adder:
    """out = a + b in whole groups, with its own memory; a and out may be one array."""

    def __init__(self, vk: Runtime, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], in_place: bool = False) -> None:
        self.vk, self.n = vk, a.size
        assert a.size % LOCAL == 0 and a.dtype == b.dtype == np.float32
        self.a, self.b = vk.put(a), vk.put(b)
        self.out = self.a if in_place else vk.alloc(a.nbytes)
        self.table = vk.put(np.array([self.a, self.b, self.out], np.uint64))
        self.pipeline = vk.pipeline(add_kernel())
        self.dispatch = (self.pipeline, self.table, (a.size // LOCAL, 1, 1), True)

    def free(self) -> None:
        self.vk.release(*{self.a, self.b, self.out, self.table})
        self.vk.lib.fgv_pipeline_free(self.pipeline)


def random(n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)
