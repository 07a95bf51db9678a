"""REDUCE kernels for Vulkan devices against numpy in float64 and in exact integers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from kernel_arrays import (
    BF16,
    BOOL,
    F16,
    F32,
    FLOATS,
    I32,
    NUMPY,
    REDUCE,
    U32,
    decode,
    encode,
    random_layout,
    random_numbers,
)
from map_kernels import Array, address
from spirv_device import as_gpu, device, root, run
from test_kernels_reduce import (
    ARGMAX,
    ARGMIN,
    BOUNDS,
    LOGSUMEXP,
    MAX,
    MIN,
    PROD,
    SUM,
    check_reduced,
    exact,
    random_shape,
    reduce_words,
    result_dtype,
)

from funcgrad.runtime.spirv.lower import Unsupported, lower


@pytest.fixture(autouse=True)
def needs_device() -> None:
    device()


def aligned(rng: np.random.Generator, shape: Sequence[int], dtype: int, repeats: bool) -> Array:
    """Any layout whose elements begin at multiples of their size, which GPUs require."""
    while True:
        x = random_layout(rng, shape, dtype, repeats)
        if (address(x) - address(root(x))) % x.itemsize == 0:
            return x


@pytest.mark.parametrize("seed", range(90))
def test_reduce(seed: int) -> None:
    rng = np.random.default_rng(seed)
    op, dtype = int(rng.integers(8)), int(rng.choice([F32, F32, F16, BF16, I32, U32, BOOL]))
    dtype = BOOL if op in (6, 7) else dtype
    keep, red = random_shape(rng)
    while math.prod([n or 1 for n in keep + red]) > 1_000_000:
        keep, red = random_shape(rng)
    if (op == PROD and math.prod(red) > 1000) or (op in (ARGMAX, ARGMIN) and math.prod(red) == 0):
        red = [100]
        keep = keep[:1]
    out_dtype = result_dtype(rng, op, dtype)
    x, out = aligned(rng, keep + red, dtype, True), aligned(rng, keep, out_dtype, False)
    x[...] = random_numbers(rng, keep + red, dtype)
    if op == PROD and dtype in FLOATS:
        x[...] = encode(1 + 0.1 * rng.normal(size=x.shape), dtype)
    run(REDUCE, reduce_words(op, x, len(keep), dtype, out, out_dtype), [x], [out], seed < 30, seed % 2 == 0)
    check_reduced(op, np.ascontiguousarray(decode(x, dtype)).reshape(*keep, math.prod(red)), dtype, out, out_dtype)


@pytest.mark.parametrize("dtype", [F32, I32, U32, BOOL])
@pytest.mark.parametrize("op", [SUM, MAX, MIN, PROD])
def test_empty(op: int, dtype: int) -> None:
    out_dtype = I32 if dtype == BOOL and op in (SUM, PROD) else dtype
    x, out = np.empty((3, 0), NUMPY[dtype]), np.empty(3, NUMPY[out_dtype])
    words = reduce_words(op, x, 1, dtype, out, out_dtype)
    run(REDUCE, words, [np.zeros(1, NUMPY[dtype])], [out])
    low, high = BOUNDS[dtype]
    np.testing.assert_array_equal(out, {SUM: 0, PROD: 1, MAX: low, MIN: high}[op])


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(1 << 20, 4), (1 << 14, 300), (16, 1 << 18)])
def test_long_sums_keep_their_precision(shape: tuple[int, int], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).uniform(0, 1, shape).astype(np.float32)
    view = x if axes != (0,) else x.T
    out = np.empty(view.shape[: 2 - len(axes)], np.float32)
    run(REDUCE, reduce_words(SUM, view, 2 - len(axes), F32, out, F32), [view], [out], large=shape[0] > 16)
    want = x.astype(np.float64).sum(axes)
    ulp = np.spacing(want.astype(np.float32)).astype(np.float64)
    assert (np.abs(out - want) <= 3 * ulp).all()


def test_sum_of_a_constant() -> None:
    """2^26 times 0.1, from one element: a plain float32 loop stops at 2^21."""
    x, out = np.full(1, 0.1, np.float32), np.empty((), np.float32)
    run(REDUCE, [SUM, 0, 1, 1 << 26, 0, F32, 0, 0, 1, F32, 0], [x], [out])
    assert abs(float(out) - float(x[0]) * 2**26) <= 2 * np.spacing(out)


def test_product_whose_parts_overflow() -> None:
    """Half of the factors are large and half are small, in either order; and a product of denormals' size."""
    x = np.concatenate([np.full(500, 1e30), np.full(500, 1e-30)]).astype(np.float32)
    x = np.stack([x, x[::-1], np.where(np.arange(1000) < 2, 1e-19, 1).astype(np.float32)])
    out = np.empty(3, np.float32)
    run(REDUCE, reduce_words(PROD, x, 1, F32, out, F32), [x], [out])
    want = np.exp(np.log(x.astype(np.float64)).sum(1))
    np.testing.assert_allclose(out[:2], want[:2], rtol=1e-6)
    np.testing.assert_allclose(out[2], want[2], rtol=1e-6, atol=0 if device().target.denorm else 1e-37)


@pytest.mark.parametrize("place", [0, 1, 1024, 99_999])
@pytest.mark.parametrize("op", [MAX, MIN, ARGMAX, ARGMIN])
@pytest.mark.parametrize("by_columns", [False, True])
def test_nan_wins(op: int, place: int, by_columns: bool) -> None:
    x = np.random.default_rng(place).normal(size=(100_000, 3)).astype(np.float32)
    x[place, 1] = x[99_999, 1] = np.nan
    view = x.T if by_columns else np.ascontiguousarray(x.T)
    out = np.empty(3, np.int32 if op in (ARGMAX, ARGMIN) else np.float32)
    run(
        REDUCE,
        reduce_words(op, view, 1, F32, out, I32 if op in (ARGMAX, ARGMIN) else F32),
        [view],
        [out],
        large=place < 2,
    )
    np.testing.assert_array_equal(out, exact(op, np.ascontiguousarray(view), F32))
    assert out[1] == place if op in (ARGMAX, ARGMIN) else np.isnan(out[1])


def test_first_of_equals_across_segments() -> None:
    x = np.zeros(1_000_000, np.float32)
    x[[700_000, 300_000, 999_999]] = 5
    out = np.empty((), np.int32)
    run(REDUCE, reduce_words(ARGMAX, x, 0, F32, out, I32), [x], [out])
    assert out == 300_000


@pytest.mark.parametrize("shape", [(33, 1000), (1, 300_000), (400, 7)])
def test_logsumexp(shape: tuple[int, int]) -> None:
    x = (np.random.default_rng(0).normal(size=shape) * 30).astype(np.float32)
    x[0, :3] = -np.inf
    out = np.empty(shape[0], np.float32)
    run(REDUCE, reduce_words(LOGSUMEXP, x, 1, F32, out, F32), [x], [out])
    y = x.astype(np.float64)
    top = y.max(1, keepdims=True)
    np.testing.assert_allclose(out, np.log(np.exp(y - top).sum(1)) + top[:, 0], rtol=3e-7, atol=5e-7)


@pytest.mark.parametrize(
    ("values", "want"),
    [([-np.inf, -np.inf], -np.inf), ([np.inf, 1.0], np.inf), ([np.nan, np.inf], np.nan), ([], -np.inf)],
)
def test_logsumexp_of_special_values(values: list[float], want: float) -> None:
    x, out = np.array(values, np.float32), np.empty((), np.float32)
    words = reduce_words(LOGSUMEXP, x, 0, F32, out, F32)
    run(REDUCE, words, [x if x.size else np.zeros(1, np.float32)], [out])
    np.testing.assert_array_equal(out, np.float32(want))


def test_what_has_no_kernel_is_refused() -> None:
    target = device().target
    with pytest.raises(Unsupported, match="reduce: operation 8"):
        lower(REDUCE, [LOGSUMEXP, 0, 1, 5, 0, I32, 0, 4, 1, I32, 0], target)
    with pytest.raises(Unsupported, match="multiples of 4 bytes"):
        lower(REDUCE, [SUM, 0, 1, 5, 0, F32, 2, 4, 1, F32, 0], target)
    with pytest.raises(Unsupported, match=r"2\^31"):
        lower(REDUCE, [SUM, 0, 1, 1 << 32, 0, F32, 0, 4, 1, F32, 0], target)
    with pytest.raises(Unsupported, match="kind 10"):
        lower(10, [], target)
    assert lower(REDUCE, [SUM, 1, 0, 1, 5, 0, F32, 0, 20, 4, 1, F32, 0, 4], target).dispatches == []


@pytest.mark.parametrize("arithmetic", [True, False])
def test_with_and_without_shuffles(arithmetic: bool) -> None:
    target = as_gpu()._replace(subgroup_arithmetic=arithmetic)
    x, out = np.random.default_rng(3).integers(0, 1 << 30, (3, 5000), np.int32), np.empty(3, np.int32)
    device().run(lower(REDUCE, reduce_words(ARGMIN, x, 1, I32, out, I32), target), [x, out], [out])
    np.testing.assert_array_equal(out, x.argmin(1))
