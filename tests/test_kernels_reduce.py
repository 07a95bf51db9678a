"""REDUCE and CUMULATIVE kernels against numpy in float64 and in exact integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from kernel_arrays import (
    BF16,
    BOOL,
    CUMULATIVE,
    F16,
    F32,
    FLOATS,
    I32,
    NUMPY,
    REDUCE,
    U32,
    allocated,
    decode,
    encode,
    random_layout,
    random_numbers,
    refuse_garbage,
    run,
)
from map_kernels import Array, address, ffi, lib, new_kernel
from reduce_checks import (
    ALL,
    ANY,
    ARGMAX,
    ARGMIN,
    BOUNDS,
    LOGSUMEXP,
    MAX,
    MIN,
    PROD,
    SUM,
    check_first_of_equals,
    check_floats,
    check_long_sums,
    check_nan_wins,
    check_random_reduction,
    reduce_words,
)

pytestmark = [pytest.mark.ggml, pytest.mark.usefixtures("restore_threads")]


@pytest.mark.parametrize("seed", range(400))
def test_reduce(seed: int) -> None:
    check_random_reduction(run, np.random.default_rng(seed), random_layout)


@pytest.mark.parametrize("gap", [0, 1])
@pytest.mark.parametrize("groups", [1, 2, 3, 9, 200])
@pytest.mark.parametrize("channels", [1, 2, 3, 6, 15, 16, 31, 64, 65])
def test_groups_of_channels(channels: int, groups: int, gap: int) -> None:
    """Reductions over space and the channels of a group, as group norms do: results lie between reduced elements."""
    rng = np.random.default_rng(channels)
    width = groups * channels
    for batch, high, wide in ((3, 5, 7), (2, 1, 70), (1, 40, 60_000 // width // 40 + 2)):
        rows = rng.normal(size=(batch, high, wide + gap, width + gap)).astype(np.float32)[:, :, :wide, :width]
        parts = [rows[..., g * channels : (g + 1) * channels] for g in range(groups)]
        strides = (*rows.strides[:3], channels * 4, 4)
        split = np.lib.stride_tricks.as_strided(rows, (batch, high, wide, groups, channels), strides)
        x = split.transpose(0, 3, 1, 2, 4)
        out, top = np.empty((batch, groups), np.float32), np.empty((groups, batch), np.float32).T
        run(REDUCE, reduce_words(SUM, x, 2, F32, out, F32), [x], [out])
        want, scale = np.zeros((batch, groups)), np.zeros((batch, groups))
        for g, part in enumerate(parts):
            want[:, g], scale[:, g] = (
                part.astype(np.float64).sum((1, 2, 3)),
                np.abs(part.astype(np.float64)).sum((1, 2, 3)),
            )
        assert (np.abs(out - want) <= 1e-6 * scale).all()
        run(REDUCE, reduce_words(MAX, x, 2, F32, top, F32), [x], [top])
        np.testing.assert_array_equal(top, np.stack([part.max((1, 2, 3)) for part in parts], 1))
        whole, total = x.view(np.int32), np.empty((batch, groups), np.int32)
        run(REDUCE, reduce_words(SUM, whole, 2, I32, total, I32), [whole], [total])
        sums = [part.view(np.int32).sum((1, 2, 3), dtype=np.int32) for part in parts]
        np.testing.assert_array_equal(total, np.stack(sums, 1))


@pytest.mark.parametrize("dtype", [F32, I32, U32, BOOL])
@pytest.mark.parametrize("op", [SUM, MAX, MIN, PROD])
def test_empty(op: int, dtype: int) -> None:
    out_dtype = I32 if dtype == BOOL and op in (SUM, PROD) else dtype
    x, out = np.empty((3, 0), NUMPY[dtype]), np.empty(3, NUMPY[out_dtype])
    run(REDUCE, reduce_words(op, x, 1, dtype, out, out_dtype), [x], [out])
    low, high = BOUNDS[dtype]
    np.testing.assert_array_equal(out, {SUM: 0, PROD: 1, MAX: low, MIN: high}[op])


@pytest.mark.parametrize("op", [ARGMAX, ARGMIN])
def test_position_of_nothing_is_refused(op: int) -> None:
    x, out = np.empty((3, 0), np.float32), np.empty(3, np.int32)
    with pytest.raises(ValueError, match="reduce: a position needs"):
        new_kernel(reduce_words(op, x, 1, F32, out, I32), REDUCE)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(1 << 20, 4), (1 << 14, 300), (16, 1 << 18), (1 << 22, 1)])
def test_long_sums_keep_their_precision(shape: tuple[int, int], axes: tuple[int, ...]) -> None:
    check_long_sums(run, shape, axes)


def test_sum_of_a_constant() -> None:
    """2^26 times 0.1: a plain float32 loop stops at 2^21."""
    x = np.lib.stride_tricks.as_strided(np.full(1, 0.1, np.float32), (1 << 26,), (0,))
    out = np.empty((), np.float32)
    run(REDUCE, reduce_words(SUM, x, 0, F32, out, F32), [x], [out])
    assert abs(float(out) - float(x[0]) * 2**26) <= 2 * np.spacing(out)


@pytest.mark.parametrize("place", [0, 1, 15, 16, 500, 1023, 1024, 40_000, 99_999])
@pytest.mark.parametrize("op", [MAX, MIN, ARGMAX, ARGMIN])
@pytest.mark.parametrize("by_columns", [False, True])
def test_nan_wins(op: int, place: int, by_columns: bool) -> None:
    check_nan_wins(run, op, place, by_columns)


def test_first_of_equals_across_segments() -> None:
    check_first_of_equals(run)


def test_reduce_frees_its_memory() -> None:
    x, out = np.ones((100_000, 700), np.float32), np.empty(700, np.float32)
    assert allocated(lambda: run(REDUCE, reduce_words(SUM, x.T, 1, F32, out, F32), [x], [out])) == 0
    np.testing.assert_array_equal(out, 100_000)


@pytest.mark.parametrize(
    ("op", "dtype", "out_dtype"),
    [(SUM, F32, I32), (SUM, I32, F32), (MAX, I32, U32), (ANY, F32, F32), (ALL, BOOL, I32), (ARGMAX, F32, F32)],
)
def test_types_that_do_not_go_together(op: int, dtype: int, out_dtype: int) -> None:
    x, out = np.zeros((2, 3), NUMPY[dtype]), np.zeros(2, NUMPY[out_dtype])
    with pytest.raises(ValueError, match="does not take dtype"):
        new_kernel(reduce_words(op, x, 1, dtype, out, out_dtype), REDUCE)


def test_illegal_words_are_refused() -> None:
    rng = np.random.default_rng(0)
    x, out = np.zeros((2, 3, 4), np.float32), np.zeros((2, 3), np.float32)
    assert refuse_garbage(REDUCE, reduce_words(SUM, x, 2, F32, out, F32), rng) > 200
    assert refuse_garbage(CUMULATIVE, [SUM, F32, 2, 3, 4, 0, 0, 0, 1, 0], rng) > 150


# -- CUMULATIVE


def running(op: int, x: Array) -> Array:
    """Along axis 1, in float64 for floats."""
    if op == LOGSUMEXP:
        return np.logaddexp.accumulate(x.astype(np.float64), axis=1)
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    ufunc: Any = {SUM: np.add, PROD: np.multiply, MAX: np.maximum, MIN: np.minimum}[op]
    with np.errstate(all="ignore"):
        return np.asarray(ufunc.accumulate(wide, axis=1, dtype=wide.dtype))


@pytest.mark.parametrize("seed", range(200))
def test_cumulative(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = int(rng.choice([F32, F32, F16, BF16, I32, U32, BOOL]))
    ops = [SUM, PROD, MAX, MIN, LOGSUMEXP] if dtype in FLOATS else [MAX, MIN, PROD]
    op = int(rng.choice(ops if dtype in (*FLOATS, BOOL) else [*ops, SUM]))
    shape = [int(rng.choice([0, 1, 2, 3, 17, 64, 65, 130])) for _ in range(3)]
    if rng.random() < 0.2:
        shape = [1, int(rng.integers(200_000, 600_000)), 1]
    x = random_numbers(rng, shape, dtype)
    if op == PROD and dtype in FLOATS:
        x = encode(1 + 0.1 * rng.normal(size=shape) / math.sqrt(shape[1] + 1), dtype)
    out, reverse = np.empty_like(x), int(rng.integers(2))
    run(CUMULATIVE, [op, dtype, *shape, reverse, 0, 0, 1, 0], [x], [out])
    flip = (slice(None), slice(None, None, -1)) if reverse else ()
    numbers = decode(x, dtype)[flip]
    want, got = running(op, numbers)[flip], decode(out, dtype)
    if dtype not in FLOATS:
        np.testing.assert_array_equal(got, want)
        return
    scale = np.abs(want)
    if op == SUM:
        scale = running(SUM, np.abs(numbers))[flip]
    elif op == LOGSUMEXP:
        scale = 1 + np.abs(want)
    check_floats(got, want, scale, dtype)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([-np.inf, -np.inf, 0.0, np.inf, 1.0], [-np.inf, -np.inf, 0.0, np.inf, np.inf]),
        ([1000.0, 1000.0, -1000.0], [1000.0, 1000 + math.log(2), 1000 + math.log(2)]),
        ([np.inf, np.inf, np.nan, 0.0], [np.inf, np.inf, np.nan, np.nan]),
        ([0.0, np.nan, 5.0, np.inf], [0.0, np.nan, np.nan, np.nan]),
    ],
)
def test_running_logsumexp_of_special_values(values: list[float], want: list[float]) -> None:
    x = np.array(values, np.float32)
    out = np.empty_like(x)
    run(CUMULATIVE, [LOGSUMEXP, F32, 1, x.size, 1, 0, 0, 0, 1, 0], [x], [out])
    np.testing.assert_allclose(out, want, rtol=1e-7)


def test_cumulative_in_place() -> None:
    x = np.random.default_rng(0).normal(size=500_000).astype(np.float32)
    memory = x.copy()
    base = ffi.new("void *[]", [ffi.cast("void *", address(memory))])
    lib.fg_kernel_run(new_kernel([SUM, F32, 1, x.size, 1, 1, 0, 0, 0, 0], CUMULATIVE), base)
    want, scale = (np.cumsum(a[::-1].astype(np.float64))[::-1] for a in (x, np.abs(x)))
    check_floats(memory, want, scale, F32)


@pytest.mark.parametrize("words", [[ARGMAX, F32], [LOGSUMEXP, I32], [SUM, BOOL], [SUM, 6]])
def test_cumulative_of_unfit_types(words: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^cumulative: "):
        new_kernel([*words, 2, 3, 4, 0, 0, 0, 1, 0], CUMULATIVE)
