"""GGUF files, byte by byte."""

from __future__ import annotations

import struct


def gguf(tensors: bytes = b"", n_tensors: int = 0, kv: bytes = b"", n_kv: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_kv) + kv + tensors


def text(s: bytes) -> bytes:
    return struct.pack("<Q", len(s)) + s


def tensor(name: bytes, dims: list[int], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
