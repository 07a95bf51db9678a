"""DOT kernels against numpy products in float64 and in integers modulo 2^32."""

from __future__ import annotations

import ctypes
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from kernel_arrays import (
    BF16,
    BOOL,
    DOT,
    F16,
    F32,
    FLOATS,
    I32,
    NUMPY,
    U32,
    allocated,
    decode,
    encode,
    operand,
    random_layout,
    refuse_garbage,
    run,
)
from map_kernels import Array, ffi, lib, new_kernel

pytestmark = [pytest.mark.ggml, pytest.mark.usefixtures("restore_threads")]

# relative to the sum of the magnitudes of the products
ROUNDING = {F32: 4e-6, F16: 6e-4, BF16: 5e-3}


def dot_words(dtype: int, a: Array, b: Array, c: Array, dtypes: tuple[int, int, int]) -> list[int]:
    *batch, m, k = a.shape
    words = [dtype, len(batch), *batch, m, c.shape[-1], k]
    for slot, (x, t) in enumerate(zip((a, b, c), dtypes, strict=True)):
        words += operand(slot, x, t)
    return words


def check(a: Array, b: Array, c: Array, dtypes: tuple[int, int, int]) -> None:
    """Run c = a @ b and compare with float64."""
    run(DOT, dot_words(F32, a, b, c, dtypes), [a, b], [c])
    x, y, z = (decode(v, t).astype(np.float64) for v, t in zip((a, b, c), dtypes, strict=True))
    assert (np.abs(z - x @ y) <= ROUNDING[dtypes[2]] * (np.abs(x) @ np.abs(y)) + 1e-6).all()


def normal(rng: np.random.Generator, x: Array, dtype: int) -> Array:
    x[...] = encode(rng.normal(size=x.shape), dtype)
    return x


def extent(rng: np.random.Generator, large: bool) -> int:
    sizes = [0, 1, 1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17, 31, 32, 33, 48, 64, 65, 96, 100]
    return int(rng.choice([*sizes, 127, 128, 200, 257, 300, 513] if large else sizes))


@pytest.mark.parametrize("seed", range(300))
def test_dot(seed: int) -> None:
    """Any layouts, any float types, with and without batches."""
    rng = np.random.default_rng(seed)
    large = rng.random() < 0.3
    batch = [int(rng.choice([1, 2, 3, 5])) for _ in range(rng.integers(0, 2 if large else 4))]
    m, n, k = extent(rng, large), extent(rng, large), extent(rng, large)
    if rng.random() < 0.05:
        m, n, k = min(m, 65), min(n, 65), int(rng.integers(2048, 9000))
    plain = rng.random() < 0.5
    dtypes: Any = (F32, F32, F32) if plain else tuple(int(t) for t in rng.choice(FLOATS, 3))
    shapes = [*batch, m, k], [*batch, k, n], [*batch, m, n]
    a, b, c = (random_layout(rng, s, t, i < 2) for i, (s, t) in enumerate(zip(shapes, dtypes, strict=True)))
    check(normal(rng, a, dtypes[0]), normal(rng, b, dtypes[1]), c, dtypes)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("dtype", [I32, U32])
def test_integers_wrap(seed: int, dtype: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (extent(rng, seed < 4) for _ in range(3))
    a, b = random_layout(rng, [2, m, k], dtype, True), random_layout(rng, [2, k, n], dtype, True)
    c = random_layout(rng, [2, m, n], dtype, False)
    a[...], b[...] = (rng.integers(0, 2**32, x.shape, dtype=np.uint32).astype(NUMPY[dtype]) for x in (a, b))
    run(DOT, dot_words(dtype, a, b, c, (dtype,) * 3), [a, b], [c])
    want = a.astype(np.uint32).astype(np.uint64) @ b.astype(np.uint32).astype(np.uint64)
    np.testing.assert_array_equal(c.astype(np.uint32), want.astype(np.uint32))


LAYOUTS = ["NN", "NT", "TN", "TT"]


def stored(rng: np.random.Generator, rows: int, cols: int, transposed: bool) -> Array:
    x = rng.normal(size=(cols, rows) if transposed else (rows, cols)).astype(np.float32)
    return x.T if transposed else x


@pytest.mark.parametrize("result_by_columns", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        *[(32, 64, 4), (32, 32, 64), (32, 3, 32), (4, 64, 32), (64, 32, 32)],  # a small network
        *[(128, 512, 784), (128, 10, 512), (512, 10, 128), (784, 512, 128)],  # a network for images
        *[(512, 64, 512), (512, 512, 64), (32, 512, 128), (2048, 65, 128), (2048, 384, 128)],
        *[(1, 600, 700), (600, 1, 700), (2, 300, 200), (3, 300, 200), (1, 1, 5000), (700, 500, 1)],
    ],
)
def test_layouts_of_real_shapes(m: int, n: int, k: int, layout: str, result_by_columns: bool) -> None:
    rng = np.random.default_rng(m * n * k)
    a, b = stored(rng, m, k, layout[0] == "T"), stored(rng, k, n, layout[1] == "T")
    c = np.full((n, m), np.nan, np.float32).T if result_by_columns else np.full((m, n), np.nan, np.float32)
    check(a, b, c, (F32, F32, F32))


@pytest.mark.parametrize(("m", "n"), [(128, 10), (10, 128), (64, 64), (1, 1), (3, 100), (100, 1)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_few_results_of_many_products(m: int, n: int, layout: str) -> None:
    """k is cut into slices that are added up by a second stage."""
    rng = np.random.default_rng(7)
    a, b = stored(rng, m, 20000, layout[0] == "T"), stored(rng, 20000, n, layout[1] == "T")
    c = np.full((m, n), np.nan, np.float32)
    assert allocated(lambda: check(a, b, c, (F32, F32, F32))) == 0


@pytest.mark.parametrize("n", [0, 5])
def test_nothing_to_sum_gives_zeros(n: int) -> None:
    a, b, c = np.empty((2, 3, 0), np.float32), np.empty((2, 0, n), np.float32), np.full((2, 3, n), np.nan, np.float32)
    run(DOT, dot_words(F32, a, b, c, (F32, F32, F32)), [a, b], [c])
    np.testing.assert_array_equal(c, 0)


def test_one_row_does_not_disturb_another() -> None:
    """NaN and infinity stay in the rows and columns that they belong to, although whole vectors are read."""
    rng = np.random.default_rng(0)
    for m, n, k in [(13, 21, 9), (5, 3, 300), (50, 70, 33)]:
        a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
        a[1, 2], b[3, n - 1] = np.nan, np.inf
        c = np.empty((m, n), np.float32)
        run(DOT, dot_words(F32, a, b, c, (F32, F32, F32)), [a, b], [c])
        with np.errstate(invalid="ignore"):
            want = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-4)


def test_a_matrix_at_the_end_of_readable_memory() -> None:
    """Nothing past the last element is read: the page after it may not be touched."""
    size = 16384
    memory = mmap.mmap(-1, 2 * size)
    guard = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + size)
    mprotect = ctypes.CDLL(None).mprotect
    assert mprotect(guard, size, 0) == 0
    try:
        for k, n in [(7, 3), (5, 17), (300, 10), (9, 33), (64, 1), (1, 50)]:
            b: Array = np.frombuffer(memory, np.float32, k * n, size - 4 * k * n).reshape(k, n)
            b[...] = 1
            for m in (1, 2, 5, 40):
                a, c = np.ones((m, k), np.float32), np.empty((m, n), np.float32)
                run(DOT, dot_words(F32, a, b, c, (F32, F32, F32)), [a, b], [c])
                np.testing.assert_array_equal(c, k)
                turned = np.empty((n, m), np.float32)
                run(DOT, dot_words(F32, b.T, a.T, turned, (F32, F32, F32)), [b, a], [turned])
                np.testing.assert_array_equal(turned, k)
    finally:
        assert mprotect(guard, size, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def openblas() -> tuple[Any, Any]:
    """An OpenBLAS that runs on the calling thread, and its cblas_sgemm as a pointer."""
    package = pytest.importorskip("scipy_openblas32")
    blas = ctypes.CDLL(str(Path(package.get_lib_dir()) / package.get_library(fullname=True)))
    blas.scipy_openblas_set_num_threads(1)
    return blas, ffi.cast("fg_sgemm", ctypes.cast(blas.scipy_cblas_sgemm, ctypes.c_void_p).value)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("m", "n", "k"), [(100, 70, 90), (512, 600, 300), (48, 48, 48), (1030, 64, 2050)])
def test_with_a_blas(m: int, n: int, k: int, layout: str) -> None:
    """The same products when a BLAS is registered, whether or not this CPU's kernels call it."""
    blas, sgemm = openblas()
    rng = np.random.default_rng(m)
    a, b = stored(rng, m, k, layout[0] == "T"), stored(rng, k, n, layout[1] == "T")
    c, turned = np.full((m, n), np.nan, np.float32), np.full((n, m), np.nan, np.float32).T
    part = np.full((m, 2 * n), np.nan, np.float32)[:, ::2]
    lib.fg_set_sgemm(sgemm)
    try:
        for out in (c, turned, part):
            check(a, b, out, (F32, F32, F32))
    finally:
        lib.fg_set_sgemm(ffi.NULL)
    assert blas is not None


@pytest.mark.parametrize("dtypes", [(F32, F32, I32), (BOOL, F32, F32), (F16, I32, F32), (F32, U32, BF16)])
def test_types_that_do_not_go_together(dtypes: tuple[int, int, int]) -> None:
    a, b, c = (np.zeros((4, 4), NUMPY[t]) for t in dtypes)
    with pytest.raises(ValueError, match="does not go with arithmetic"):
        new_kernel(dot_words(F32, a, b, c, dtypes), DOT)


def test_a_result_may_not_be_repeated() -> None:
    a, b = np.zeros((4, 5), np.float32), np.zeros((5, 6), np.float32)
    c = np.lib.stride_tricks.as_strided(np.zeros(6, np.float32), (4, 6), (0, 4))
    with pytest.raises(ValueError, match="dot: c must not have a zero stride"):
        new_kernel(dot_words(F32, a, b, c, (F32, F32, F32)), DOT)


def test_illegal_words_are_refused() -> None:
    a, b, c = np.zeros((2, 4, 5), np.float32), np.zeros((2, 5, 6), np.float32), np.zeros((2, 4, 6), np.float32)
    words = dot_words(F32, a, b, c, (F32, F32, F32))
    assert refuse_garbage(DOT, words, np.random.default_rng(0)) > 200
    for m in (2**46, 2**45):
        with pytest.raises(ValueError, match=r"^dot: "):
            new_kernel([F32, 0, m, m, 1, *[0, F32, 0, 4, 4], *[1, F32, 0, 4, 4], *[2, F32, 0, 4, 4]], DOT)
    assert math.prod(a.shape) == 40
