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
    operand,
    random_layout,
    random_numbers,
    refuse_garbage,
    restore_threads,  # noqa: F401
    run,
)
from map_kernels import Array, address, ffi, lib, new_kernel

pytestmark = pytest.mark.ggml

SUM, MAX, MIN, PROD, ARGMAX, ARGMIN, ANY, ALL, LOGSUMEXP = range(9)
ROUNDING = {F32: 2e-7, F16: 6e-4, BF16: 5e-3}
LARGEST = {F32: 3.4e38, F16: 65504.0, BF16: 3.38e38}
BOUNDS: dict[int, tuple[Any, Any]] = {
    I32: (-(2**31), 2**31 - 1),
    U32: (0, 2**32 - 1),
    BOOL: (False, True),
    F32: (-math.inf, math.inf),
}


def result_dtype(rng: np.random.Generator, op: int, dtype: int) -> int:
    if op in (ARGMAX, ARGMIN):
        return I32
    if dtype in FLOATS:
        return int(rng.choice(FLOATS))
    if dtype == BOOL and op in (SUM, PROD):
        return int(rng.choice([I32, U32, F32]))
    return dtype


def exact(op: int, x: Array, dtype: int) -> Array:
    """The reduction of the last axis, in float64 or modulo 2^32."""
    low, high = BOUNDS[F32 if dtype in FLOATS else dtype]
    wide = x.astype(np.float64 if dtype in FLOATS else np.uint64) if op in (SUM, PROD) else x
    with np.errstate(all="ignore"):
        if op == SUM:
            return wide.sum(-1)
        if op == PROD:
            return wide.prod(-1)
        if op in (MAX, ANY):
            return x.max(-1, initial=low)
        if op in (MIN, ALL):
            return x.min(-1, initial=high)
        return x.argmax(-1) if op == ARGMAX else x.argmin(-1)


def check_floats(got: Array, want: Array, scale: Array, dtype: int) -> None:
    """Finite results to rounding, relative to ``scale``; the others exactly."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want) & (np.abs(want) < 0.999 * LARGEST[dtype])
    special = ~np.isfinite(want)
    np.testing.assert_array_equal(got[special], want[special])
    tiny = 1e-7 if dtype == F16 else 1e-40
    assert (np.abs(got[finite] - want[finite]) <= ROUNDING[dtype] * scale[finite] + tiny).all()


def reduce_words(op: int, x: Array, n_keep: int, dtype: int, out: Array, out_dtype: int) -> list[int]:
    shape = x.shape
    head = [op, n_keep, *shape[:n_keep], len(shape) - n_keep, *shape[n_keep:]]
    return head + operand(0, x, dtype) + operand(1, out, out_dtype)


def random_shape(rng: np.random.Generator) -> tuple[list[int], list[int]]:
    small = [0, 1, 2, 3, 5, 8, 17, 33, 64, 100] if rng.random() < 0.3 else [1, 2, 3, 4, 10, 30]
    keep = [int(rng.choice(small)) for _ in range(rng.integers(0, 4))]
    red = [int(rng.choice(small)) for _ in range(rng.integers(0, 4))]
    if rng.random() < 0.3:
        part = keep if keep and (rng.random() < 0.5 or not red) else red
        if part:
            part[int(rng.integers(len(part)))] = int(rng.integers(300, 40000))
    return keep, red


def check_reduced(op: int, flat: Array, dtype: int, out: Array, out_dtype: int) -> None:
    """What a reduction of the last axis of ``flat`` must give, within what its type can hold."""
    want, got = exact(op, flat, dtype), decode(out, out_dtype)
    if dtype in FLOATS and op not in (ARGMAX, ARGMIN):
        scale = np.abs(want).astype(np.float64)
        if op == SUM:
            scale = np.abs(flat.astype(np.float64)).sum(-1)
        elif op in (MAX, MIN) and dtype == out_dtype:
            scale = np.zeros_like(scale)
        check_floats(got, want, scale, out_dtype)
    elif op in (SUM, PROD):
        modulo = want.astype(np.uint32)
        np.testing.assert_array_equal(got, modulo.astype(np.float32) if out_dtype == F32 else modulo.astype(got.dtype))
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(400))
def test_reduce(seed: int) -> None:
    rng = np.random.default_rng(seed)
    op, dtype = int(rng.integers(8)), int(rng.choice([F32, F32, F16, BF16, I32, U32, BOOL]))
    dtype = BOOL if op in (ANY, ALL) else dtype
    keep, red = random_shape(rng)
    while math.prod([n or 1 for n in keep + red]) > 1_000_000:
        keep, red = random_shape(rng)
    if (op == PROD and math.prod(red) > 1000) or (op in (ARGMAX, ARGMIN) and math.prod(red) == 0):
        red = [100]
        keep = keep[:1]
    out_dtype = result_dtype(rng, op, dtype)
    x, out = random_layout(rng, keep + red, dtype, True), random_layout(rng, keep, out_dtype, False)
    x[...] = random_numbers(rng, keep + red, dtype)
    if op == PROD and dtype in FLOATS:
        x[...] = encode(1 + 0.1 * rng.normal(size=x.shape), dtype)
    run(REDUCE, reduce_words(op, x, len(keep), dtype, out, out_dtype), [x], [out])
    check_reduced(op, np.ascontiguousarray(decode(x, dtype)).reshape(*keep, math.prod(red)), dtype, out, out_dtype)


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
    """All of one sign, so that the error is that of the sum itself; math.fsum would round once."""
    x = np.random.default_rng(1).uniform(0, 1, shape).astype(np.float32)
    view = x if axes != (0,) else x.T
    n_keep = 2 - len(axes)
    out = np.empty(view.shape[:n_keep], np.float32)
    run(REDUCE, reduce_words(SUM, view, n_keep, F32, out, F32), [view], [out])
    want = x.astype(np.float64).sum(axes)
    ulp = np.spacing(want.astype(np.float32)).astype(np.float64)
    assert (np.abs(out - want) <= 3 * ulp).all()


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
    x = np.random.default_rng(place).normal(size=(100_000, 3)).astype(np.float32)
    x[place, 1] = np.nan
    x[99_999, 1] = np.nan
    view = x.T if by_columns else np.ascontiguousarray(x.T)
    out = np.empty(3, np.int32 if op in (ARGMAX, ARGMIN) else np.float32)
    run(REDUCE, reduce_words(op, view, 1, F32, out, I32 if op in (ARGMAX, ARGMIN) else F32), [view], [out])
    np.testing.assert_array_equal(out, exact(op, np.ascontiguousarray(view), F32))
    assert out[1] == place if op in (ARGMAX, ARGMIN) else np.isnan(out[1])


def test_first_of_equals_across_segments() -> None:
    x = np.zeros(1_000_000, np.float32)
    x[[700_000, 300_000, 999_999]] = 5
    out = np.empty((), np.int32)
    run(REDUCE, reduce_words(ARGMAX, x, 0, F32, out, I32), [x], [out])
    assert out == 300_000


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
