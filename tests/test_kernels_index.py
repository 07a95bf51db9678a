"""TAKE, SCATTER, DYNAMIC_SLICE, DYNAMIC_UPDATE and SORT kernels against numpy loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from kernel_arrays import (
    BF16,
    BOOL,
    DYNAMIC_SLICE,
    DYNAMIC_UPDATE,
    F16,
    F32,
    FLOATS,
    I32,
    NUMPY,
    SCATTER,
    SORT,
    TAKE,
    U32,
    decode,
    encode,
    random_layout,
    random_numbers,
    refuse_garbage,
    run,
)
from map_kernels import Array, new_kernel

pytestmark = [pytest.mark.ggml, pytest.mark.usefixtures("restore_threads")]

DTYPES = [F32, F16, BF16, I32, U32, BOOL]
SET, ADD, MUL, LEAST, MOST = range(5)
WILD = [-1, -(2**31), 2**31 - 1, -7]


def random_indices(rng: np.random.Generator, shape: tuple[int, ...], n: int) -> Array:
    """Mostly in range; some at the edges and some far outside."""
    idx = rng.integers(0, max(n, 1), shape)
    wild = rng.random(shape) < 0.2
    return np.where(wild, rng.choice([*WILD, n, n - 1, 0], shape), idx).astype(np.int32)


def raw(x: Array) -> Array:
    """The bit patterns, so that NaN compare equal."""
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


# -- TAKE


def taken(x: Array, idx: Array, mode: int, fill: Array) -> Array:
    """x [A, N, B] at idx [A, I], element by element."""
    a, n, b = x.shape
    out = np.empty((a, idx.shape[1], b), x.dtype)
    for i in range(a):
        for j, at in enumerate(idx[i].tolist()):
            if mode == 1 and not 0 <= at < n:
                out[i, j] = fill
            else:
                out[i, j] = x[i, min(max(at, 0), n - 1)]
    return out


@pytest.mark.parametrize("seed", range(150))
def test_take(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype, mode, batched = int(rng.choice(DTYPES)), int(rng.integers(2)), int(rng.integers(2))
    a, n, b, i = (int(rng.choice([0, 1, 2, 3, 5, 16, 65, 130])) for _ in range(4))
    if seed % 10 == 0:
        a, i, b = min(a, 2), 3000, int(rng.choice([1, 128]))
    n = n or mode ^ 1
    x = random_numbers(rng, (a, n, b), dtype)
    idx = random_indices(rng, (a, i) if batched else (i,), n)
    fill = encode(np.array(1), dtype)
    words = [x.itemsize, a, n, b, i, batched, mode, int(raw(fill).item()), 0, 0, 1, 0, 2, 0]
    out = np.empty((a, i, b), x.dtype)
    run(TAKE, words, [x, idx], [out])
    want = taken(x, idx if batched else np.broadcast_to(idx, (a, i)), mode, fill)
    np.testing.assert_array_equal(raw(out), raw(want))


def test_take_fills_nan() -> None:
    x, idx = np.arange(3, dtype=np.float32), np.array([2, 3, -1, 0], np.int32)
    out = np.empty(4, np.float32)
    nan = int(np.float32(np.nan).view(np.uint32))
    run(TAKE, [4, 1, 3, 1, 4, 0, 1, nan, 0, 0, 1, 0, 2, 0], [x, idx], [out])
    np.testing.assert_array_equal(out, [2, np.nan, np.nan, 0])


def test_an_empty_axis_cannot_be_clamped_to() -> None:
    words = [4, 1, 0, 1, 4, 0, 0, 0, 0, 0, 1, 0, 2, 0]
    with pytest.raises(ValueError, match="take: an empty axis"):
        new_kernel(words, TAKE)
    words[6] = 1
    out = np.empty(4, np.float32)
    run(TAKE, words, [np.empty(0, np.float32), np.zeros(4, np.int32)], [out])
    np.testing.assert_array_equal(out, 0)


# -- SCATTER


def combined(op: int, old: Array, update: Array, dtype: int) -> Array:
    """One step: halves through float32, rounded each time."""
    if op == SET:
        return update
    if dtype == BOOL:
        return old | update if op in (ADD, MOST) else old & update
    ufunc: Any = {ADD: np.add, MUL: np.multiply, LEAST: np.minimum, MOST: np.maximum}[op]
    with np.errstate(all="ignore"):
        return encode(ufunc(decode(old, dtype).astype(wide(dtype)), decode(update, dtype).astype(wide(dtype))), dtype)


def wide(dtype: int) -> Any:
    return np.float32 if dtype in FLOATS else NUMPY[dtype]


@pytest.mark.parametrize("seed", range(250))
def test_scatter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    op, dtype, batched = int(rng.integers(5)), int(rng.choice(DTYPES)), int(rng.integers(2))
    a, n, b, i = (int(rng.choice([0, 1, 2, 3, 5, 16, 33, 65])) for _ in range(4))
    if seed % 10 == 0:
        a, n, i, b = 1, int(rng.choice([65, 5000])), 3000, int(rng.choice([1, 40, 128]))
    x, updates = random_numbers(rng, (a, n, b), dtype), random_numbers(rng, (a, i, b), dtype)
    idx = random_indices(rng, (a, i) if batched else (i,), n)
    out = x.copy()
    run(SCATTER, [op, dtype, a, n, b, i, batched, 2, 0, 0, 0, 1, 0], [idx, updates], [out])
    want = x.copy()
    for k in range(a):
        for j, at in enumerate((idx[k] if batched else idx).tolist()):
            if 0 <= at < n:
                want[k, at] = combined(op, want[k, at], updates[k, j], dtype)
    if dtype in FLOATS:
        np.testing.assert_array_equal(decode(out, dtype), decode(want, dtype))
    else:
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("n", [65, 50_000])
def test_embedding_gradient(n: int) -> None:
    rng = np.random.default_rng(n)
    updates, idx = rng.normal(size=(2048, 128)).astype(np.float32), rng.integers(0, n, 2048).astype(np.int32)
    out = np.zeros((n, 128), np.float32)
    run(SCATTER, [ADD, F32, 1, n, 128, 2048, 0, 2, 0, 0, 0, 1, 0], [idx, updates], [out])
    want = np.zeros((n, 128))
    np.add.at(want, idx, updates.astype(np.float64))
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


def test_histogram() -> None:
    """One column, many duplicates: split by ranges of the destination."""
    rng = np.random.default_rng(0)
    idx = random_indices(rng, (400_000,), 1000)
    out = np.zeros(1000, np.float32)
    run(SCATTER, [ADD, F32, 1, 1000, 1, idx.size, 0, 2, 0, 0, 0, 1, 0], [idx, np.ones(idx.size, np.float32)], [out])
    np.testing.assert_array_equal(out, np.bincount(idx[(idx >= 0) & (idx < 1000)], minlength=1000))


# -- DYNAMIC_SLICE and DYNAMIC_UPDATE


def random_block(rng: np.random.Generator) -> tuple[list[int], list[int], list[int]]:
    """Sizes, extents and starts; the starts may be anywhere."""
    nd = int(rng.integers(0, 5))
    xdim = [int(rng.choice([1, 2, 3, 7, 20])) for _ in range(nd)]
    if rng.random() < 0.1 and nd:
        xdim[int(rng.integers(nd))] = 30_000
    size = [int(rng.integers(0 if rng.random() < 0.1 else 1, n + 1)) for n in xdim]
    starts = [int(rng.choice([*WILD, *range(n + 1)])) if n < 100 else int(rng.integers(-5, n + 5)) for n in xdim]
    return size, xdim, starts


def block(size: list[int], xdim: list[int], starts: list[int]) -> tuple[slice, ...]:
    clamped = [min(max(s, 0), n - k) for s, n, k in zip(starts, xdim, size, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(clamped, size, strict=True))


def start_words(rng: np.random.Generator, starts: list[int], slot: int) -> list[int]:
    """Each start as a constant, or in memory at 4 times its number."""
    words = []
    for i, s in enumerate(starts):
        words += [-1, s] if rng.random() < 0.5 else [slot, 4 * i]
    return words


@pytest.mark.parametrize("seed", range(150))
def test_dynamic_slice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, xdim, starts = random_block(rng)
    while math.prod(xdim) > 2_000_000:
        size, xdim, starts = random_block(rng)
    dtype = int(rng.choice([F32, F16, BOOL]))
    x = random_layout(rng, xdim, dtype, True)
    x[...] = random_numbers(rng, xdim, dtype)
    out, memory = np.empty(size, x.dtype), np.array([*starts, 0], np.int32)
    words = [x.itemsize, len(size), *size, *xdim, 0, 0, *x.strides, *start_words(rng, starts, 1), 2, 0]
    run(DYNAMIC_SLICE, words, [x, memory], [out])
    np.testing.assert_array_equal(raw(out), raw(x[block(size, xdim, starts)]))


@pytest.mark.parametrize("seed", range(150))
def test_dynamic_update(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, xdim, starts = random_block(rng)
    while math.prod(xdim) > 2_000_000:
        size, xdim, starts = random_block(rng)
    dtype = int(rng.choice([F32, F16, BOOL]))
    update, out = random_layout(rng, size, dtype, True), random_layout(rng, xdim, dtype, False)
    update[...], out[...] = random_numbers(rng, size, dtype), random_numbers(rng, xdim, dtype)
    want = np.ascontiguousarray(out)
    want[block(size, xdim, starts)] = update
    memory = np.array([*starts, 0], np.int32)
    words = [out.itemsize, len(size), *size, *xdim, 2, 0, *out.strides, *start_words(rng, starts, 1)]
    words += [0, 0, *update.strides]
    run(DYNAMIC_UPDATE, words, [update, memory], [out])
    np.testing.assert_array_equal(raw(out), raw(want))


def test_a_slice_larger_than_its_operand_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dynamic_slice: size\[1\] must be at most 3, got 4"):
        new_kernel([4, 2, 2, 4, 2, 3, 0, 0, 12, 4, -1, 0, -1, 0, 1, 0], DYNAMIC_SLICE)


# -- SORT


def sorted_order(x: Array, dtype: int) -> Array:
    """Stable order along axis 1; numpy, too, puts NaN last and takes -0 as equal to 0."""
    return np.argsort(decode(x, dtype), axis=1, kind="stable")


def check_sort(x: Array, dtype: int, wanted: str) -> None:
    values, indices = np.empty_like(x), np.empty(x.shape, np.int32)
    outputs = [o for o, name in ((values, "values"), (indices, "indices")) if name in wanted]
    slots = [1 if "values" in wanted else -1, len(outputs) if "indices" in wanted else -1]
    run(SORT, [dtype, *x.shape, 0, 0, slots[0], 0, slots[1], 0], [x], outputs)
    order = sorted_order(x, dtype)
    if "values" in wanted:
        np.testing.assert_array_equal(raw(values), raw(np.take_along_axis(x, order, 1)))
    if "indices" in wanted:
        np.testing.assert_array_equal(indices, order)


@pytest.mark.parametrize("wanted", ["values", "indices", "values indices"])
@pytest.mark.parametrize("seed", range(60))
def test_sort(seed: int, wanted: str) -> None:
    rng = np.random.default_rng(seed)
    dtype = DTYPES[seed % 6]
    n = int(rng.choice([0, 1, 2, 3, 10, 31, 32, 33, 100, 500, 1024, 1025, 3000]))
    a, b = (int(rng.choice([0, 1, 1, 2, 3, 20])) for _ in range(2))
    check_sort(random_numbers(rng, (a, n, b), dtype), dtype, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["random", "ascending", "descending", "equal", "few"])
def test_sort_of_one_long_row(dtype: int, kind: str) -> None:
    rng = np.random.default_rng(1)
    n = 300_000
    if kind == "random":
        x = random_numbers(rng, (n,), dtype)
    elif kind in ("ascending", "descending"):
        x = encode(np.linspace(-60_000, 60_000, n)[:: 1 if kind == "ascending" else -1], dtype)
    else:
        x = encode(rng.integers(0, 3 if kind == "few" else 1, n), dtype)
    check_sort(x.reshape(1, n, 1), dtype, "values indices")


def test_sort_of_special_values() -> None:
    x = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, -np.nan, 0.0, -0.0, 1.0], np.float32)
    for repeat in (1, 5, 200):
        check_sort(np.tile(x, repeat).reshape(1, -1, 1), F32, "values indices")


# -- all of them


@pytest.mark.parametrize(
    ("kind", "legal"),
    [
        (TAKE, [4, 2, 3, 4, 5, 1, 1, 0, 0, 0, 1, 0, 2, 0]),
        (SCATTER, [ADD, F32, 2, 3, 4, 5, 0, 0, 0, 1, 0, 2, 0]),
        (DYNAMIC_SLICE, [4, 2, 2, 3, 5, 6, 0, 0, 24, 4, 1, 0, -1, 2, 2, 0]),
        (DYNAMIC_UPDATE, [4, 2, 2, 3, 5, 6, 0, 0, 24, 4, 1, 0, -1, 2, 2, 0, 12, 4]),
        (SORT, [F32, 2, 3, 4, 0, 0, 1, 0, 2, 0]),
    ],
)
def test_illegal_words_are_refused(kind: int, legal: list[int]) -> None:
    assert refuse_garbage(kind, legal, np.random.default_rng(kind)) > 100
