"""Running REDUCE, DOT, index and order kernels on numpy arrays of any layout, for the tests of the C kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from map_kernels import BF16, Array, address, ffi, lib, new_kernel

from funcgrad.runtime.kinds import (
    CUMULATIVE,
    DOT,
    DYNAMIC_SLICE,
    DYNAMIC_UPDATE,
    REDUCE,
    SCATTER,
    SORT,
    TAKE,
)

F32, F16, I32, U32, BOOL = 0, 1, 3, 4, 5
NUMPY: dict[int, Any] = {
    F32: np.float32,
    F16: np.float16,
    BF16: np.uint16,
    I32: np.int32,
    U32: np.uint32,
    BOOL: np.bool_,
}
FLOATS = (F32, F16, BF16)


def to_bf16(x: Array) -> Array:
    """The bit patterns of the nearest bfloat16 numbers, ties to even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded).reshape(np.shape(x))


def from_bf16(bits: Array) -> Array:
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32).reshape(bits.shape)


def encode(x: Array, dtype: int) -> Array:
    """Numbers as they are stored in this dtype."""
    with np.errstate(over="ignore"):
        return to_bf16(x) if dtype == BF16 else np.asarray(x).astype(NUMPY[dtype])


def decode(x: Array, dtype: int) -> Array:
    """Stored numbers, as float32 where they are bfloat16."""
    return from_bf16(x) if dtype == BF16 else x


def random_numbers(rng: np.random.Generator, shape: Sequence[int], dtype: int) -> Array:
    """Stored random numbers: many equal ones in some arrays, special floats in some."""
    if dtype == BOOL:
        return rng.random(shape) < rng.choice([0.0, 0.1, 0.9, 1.0])
    if dtype in (I32, U32):
        few = rng.random() < 0.3
        return rng.integers(0, 5 if few else 2**32, shape, dtype=np.uint32).astype(NUMPY[dtype])
    x = np.array(rng.normal(size=shape), np.float32)
    if rng.random() < 0.3:
        x = np.array(np.round(x * 2) / 2)
    if rng.random() < 0.2 and x.size:
        x[rng.random(shape) < 2 / x.size] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    return encode(x, dtype)


def random_layout(rng: np.random.Generator, shape: Sequence[int], dtype: int, repeats: bool) -> Array:
    """Memory for an array of this shape: any order of dimensions, steps, gaps, reversals, some repeated, misaligned."""
    itemsize = np.dtype(NUMPY[dtype]).itemsize
    plain = rng.random() < 0.4
    order = list(reversed(range(len(shape)))) if plain else [int(d) for d in rng.permutation(len(shape))]
    strides, size = [0] * len(shape), itemsize
    for d in order:
        if repeats and not plain and rng.random() < 0.1:
            continue
        strides[d] = size * (1 if plain or rng.random() < 0.85 else 2)
        size = strides[d] * max(shape[d], 1) + (0 if plain or rng.random() < 0.8 else itemsize)
    offset = int(rng.integers(0, 4)) if rng.random() < 0.2 else 0
    for d, n in enumerate(shape):
        if rng.random() < 0.1 and n:
            offset += strides[d] * (n - 1)
            strides[d] = -strides[d]
    memory = np.full(size + 8, 0xA5, np.uint8)
    return np.ndarray(tuple(shape), NUMPY[dtype], memory, offset, tuple(strides))


def operand(slot: int, x: Array, dtype: int, offset: int = 0) -> list[int]:
    return [slot, dtype, offset, *x.strides]


def run(kind: int, words: Sequence[int], inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Run with one, two and three threads; slots number the inputs and then the outputs.

    The memory around and between the elements of an output must stay as it is, and the bits must not depend on the
    number of threads.
    """
    kernel = new_kernel([int(w) for w in words], kind)
    memory = [_memory(x) for x in outputs]
    before = [m.copy() for m in memory]
    base = ffi.new("void *[]", [ffi.cast("void *", address(x)) for x in (*inputs, *outputs)])
    results: list[list[Array]] = []
    for threads in (1, 2, 3):
        lib.fg_set_threads(threads)
        for m, old in zip(memory, before, strict=True):
            m[...] = old
        lib.fg_kernel_run(kernel, base)
        results.append([m.copy() for m in memory])
    for result in results[1:]:
        for a, b in zip(results[0], result, strict=True):
            np.testing.assert_array_equal(a, b)
    for x, m, old in zip(outputs, memory, before, strict=True):
        _check_untouched(x, m, old)


def _memory(x: Array) -> Array:
    """All the bytes of the memory in which a view lies."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x.reshape(-1).view(np.uint8)


def _check_untouched(x: Array, memory: Array, old: Array) -> None:
    """Only the bytes of the view's elements may have changed."""
    changed = memory != old
    mask = np.zeros(memory.size, np.uint8)
    start = address(x) - address(memory)
    shadow = np.ndarray((*x.shape, x.itemsize), np.uint8, mask, start, (*x.strides, 1))
    shadow[...] = 1
    assert not (changed & (mask == 0)).any()


def refuse_garbage(kind: int, legal: Sequence[int], rng: np.random.Generator, rounds: int = 400) -> int:
    """Corrupt a legal list of words in many ways; return how often it was refused. Nothing is run."""
    new_kernel(list(legal), kind)
    refused = 0
    values = [-1, -2, 2**31, 2**46, 2**46 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63), 17, 1000]
    for _ in range(rounds):
        words = list(legal)
        for _ in range(int(rng.integers(1, 3))):
            words[int(rng.integers(len(words)))] = int(rng.choice(np.array(values, np.int64)))
        cut = int(rng.integers(0, len(words) + 1)) if rng.random() < 0.3 else len(words)
        words = words[:cut] + [0] * int(rng.integers(0, 2))
        try:
            new_kernel(words, kind)
        except ValueError as error:
            assert str(error).split(":")[0] in legal_names[kind]
            refused += 1
    return refused


legal_names = {
    REDUCE: "reduce",
    DOT: "dot",
    TAKE: "take",
    SCATTER: "scatter",
    DYNAMIC_SLICE: "dynamic_slice",
    DYNAMIC_UPDATE: "dynamic_update",
    CUMULATIVE: "cumulative",
    SORT: "sort",
}


def allocated(f: Callable[[], None]) -> int:
    """Bytes of kernel memory still in use after a call."""
    before = lib.fg_alloc_in_use()
    f()
    return int(lib.fg_alloc_in_use() - before)
