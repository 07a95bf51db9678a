"""REDUCE kernels for Vulkan devices against numpy in float64 and in exact integers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from kernel_arrays import (
    BOOL,
    F32,
    I32,
    NUMPY,
    REDUCE,
    U32,
    random_layout,
)
from map_kernels import Array, address
from reduce_checks import (
    ARGMAX,
    ARGMIN,
    BOUNDS,
    LOGSUMEXP,
    MAX,
    MIN,
    PROD,
    SUM,
    check_first_of_equals,
    check_long_sums,
    check_nan_wins,
    check_random_reduction,
    reduce_words,
)
from spirv_device import as_gpu, device, root, run

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
    check_random_reduction(partial(run, check=seed < 30, large=seed % 2 == 0), np.random.default_rng(seed), aligned)


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
    check_long_sums(partial(run, large=shape[0] > 16), shape, axes)


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
    check_nan_wins(partial(run, large=place < 2), op, place, by_columns)


def test_first_of_equals_across_segments() -> None:
    check_first_of_equals(run)


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
