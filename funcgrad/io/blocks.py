"""ggml's block-quantised types, as they are in GGUF files: each block of elements with its own scale, to float32.

A block is read as a row of bytes; the layouts are those of ggml's public headers (``ggml-common.h``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["BLOCKS", "Block"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float32]]


class Block(NamedTuple):
    """A quantised type: its name, elements and bytes in a block, and the function from (blocks, bytes) to float32."""

    name: str
    elements: int
    nbytes: int
    decode: Callable[[Bytes], Floats]


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at a byte of each block, as a column."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """Low halves of all bytes, then the high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _bits32(blocks: Bytes, at: int) -> Bytes:
    """The 32 bits of a little-endian word of each block, lowest first."""
    return np.unpackbits(np.ascontiguousarray(blocks[:, at : at + 4]), axis=1, bitorder="little")


def _q4_0(b: Bytes) -> Floats:
    return _half(b, 0) * (_nibbles(b[:, 2:18]).astype(np.float32) - 8)


def _q4_1(b: Bytes) -> Floats:
    return _half(b, 0) * _nibbles(b[:, 4:20]) + _half(b, 2)


def _q5_0(b: Bytes) -> Floats:
    q = _nibbles(b[:, 6:22]) | (_bits32(b, 2) << 4)
    return _half(b, 0) * (q.astype(np.float32) - 16)


def _q5_1(b: Bytes) -> Floats:
    q = _nibbles(b[:, 8:24]) | (_bits32(b, 4) << 4)
    return _half(b, 0) * q + _half(b, 2)


def _q8_0(b: Bytes) -> Floats:
    return _half(b, 0) * b[:, 2:34].view(np.int8)


# -- blocks of 256: eight or sixteen groups, whose scales are quantised themselves -------------------------------
def _scales_and_minima(packed: Bytes) -> tuple[Floats, Floats]:
    """The eight 6-bit scales and eight 6-bit minima in 12 bytes."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6) << 4], axis=1)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 6) << 4], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _grouped_nibbles(packed: Bytes) -> Bytes:
    """(blocks, 128) bytes to (blocks, 8, 32): each 32 bytes hold a group in their low halves and one in their high."""
    by_pair = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([by_pair & 15, by_pair >> 4], axis=2).reshape(-1, 8, 32)


def _affine_groups(b: Bytes, q: Bytes) -> Floats:
    scales, minima = _scales_and_minima(b[:, 4:16])
    step, low = _half(b, 0) * scales, _half(b, 2) * minima
    out: Floats = (step[:, :, None] * q - low[:, :, None]).reshape(len(b), 256)
    return out


def _q4_k(b: Bytes) -> Floats:
    return _affine_groups(b, _grouped_nibbles(b[:, 16:144]))


def _q5_k(b: Bytes) -> Floats:
    high = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
    return _affine_groups(b, _grouped_nibbles(b[:, 48:176]) | (high << 4).astype(np.uint8))


def _q6_k(b: Bytes) -> Floats:
    low = b[:, 0:128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    high = b[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & 3
    q = (low | high << 4).reshape(-1, 16, 16).astype(np.float32) - 32
    step = _half(b, 208) * b[:, 192:208].view(np.int8)
    out: Floats = (step[:, :, None] * q).reshape(len(b), 256)
    return out


# By the number of the type in a file.
BLOCKS = {
    2: Block("Q4_0", 32, 18, _q4_0),
    3: Block("Q4_1", 32, 20, _q4_1),
    6: Block("Q5_0", 32, 22, _q5_0),
    7: Block("Q5_1", 32, 24, _q5_1),
    8: Block("Q8_0", 32, 34, _q8_0),
    12: Block("Q4_K", 256, 144, _q4_k),
    13: Block("Q5_K", 256, 176, _q5_k),
    14: Block("Q6_K", 256, 210, _q6_k),
}
