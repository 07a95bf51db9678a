"""What REDUCE kernels of every kind must do, and the truth: numpy in float64 and in exact integers.

Each check takes how to run a kernel: its kind, words, inputs and outputs, whose slots follow one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from kernel_arrays import (
    BF16,
    BOOL,
    F16,
    F32,
    FLOATS,
    I32,
    REDUCE,
    U32,
    decode,
    encode,
    operand,
    random_numbers,
)
from map_kernels import Array

Run = Callable[[int, Sequence[int], Sequence[Array], Sequence[Array]], None]

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


def check_random_reduction(run: Run, rng: np.random.Generator, layout: Callable[..., Array]) -> None:
    """Any operation on any shape and dtype; ``layout`` makes memory, as ``random_layout`` does."""
    op, dtype = int(rng.integers(8)), int(rng.choice([F32, F32, F16, BF16, I32, U32, BOOL]))
    dtype = BOOL if op in (ANY, ALL) else dtype
    keep, red = random_shape(rng)
    while math.prod([n or 1 for n in keep + red]) > 1_000_000:
        keep, red = random_shape(rng)
    if (op == PROD and math.prod(red) > 1000) or (op in (ARGMAX, ARGMIN) and math.prod(red) == 0):
        red = [100]
        keep = keep[:1]
    out_dtype = result_dtype(rng, op, dtype)
    x, out = layout(rng, keep + red, dtype, True), layout(rng, keep, out_dtype, False)
    x[...] = random_numbers(rng, keep + red, dtype)
    if op == PROD and dtype in FLOATS:
        x[...] = encode(1 + 0.1 * rng.normal(size=x.shape), dtype)
    run(REDUCE, reduce_words(op, x, len(keep), dtype, out, out_dtype), [x], [out])
    check_reduced(op, np.ascontiguousarray(decode(x, dtype)).reshape(*keep, math.prod(red)), dtype, out, out_dtype)


def check_long_sums(run: Run, shape: tuple[int, int], axes: tuple[int, ...]) -> None:
    """All of one sign, so that the error is that of the sum itself; math.fsum would round once."""
    x = np.random.default_rng(1).uniform(0, 1, shape).astype(np.float32)
    view = x if axes != (0,) else x.T
    n_keep = 2 - len(axes)
    out = np.empty(view.shape[:n_keep], np.float32)
    run(REDUCE, reduce_words(SUM, view, n_keep, F32, out, F32), [view], [out])
    want = x.astype(np.float64).sum(axes)
    ulp = np.spacing(want.astype(np.float32)).astype(np.float64)
    assert (np.abs(out - want) <= 3 * ulp).all()


def check_nan_wins(run: Run, op: int, place: int, by_columns: bool) -> None:
    """The first of two NaN is what a maximum, a minimum and their positions give."""
    x = np.random.default_rng(place).normal(size=(100_000, 3)).astype(np.float32)
    x[place, 1] = np.nan
    x[99_999, 1] = np.nan
    view = x.T if by_columns else np.ascontiguousarray(x.T)
    out = np.empty(3, np.int32 if op in (ARGMAX, ARGMIN) else np.float32)
    run(REDUCE, reduce_words(op, view, 1, F32, out, I32 if op in (ARGMAX, ARGMIN) else F32), [view], [out])
    np.testing.assert_array_equal(out, exact(op, np.ascontiguousarray(view), F32))
    assert out[1] == place if op in (ARGMAX, ARGMIN) else np.isnan(out[1])


def check_first_of_equals(run: Run) -> None:
    """Also where the work is cut into segments."""
    x = np.zeros(1_000_000, np.float32)
    x[[700_000, 300_000, 999_999]] = 5
    out = np.empty((), np.int32)
    run(REDUCE, reduce_words(ARGMAX, x, 0, F32, out, I32), [x], [out])
    assert out == 300_000
