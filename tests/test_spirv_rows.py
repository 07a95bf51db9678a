"""ROWS kernels for Vulkan devices against numpy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from map_kernels import Array, Bf16, Iota, program_words
from spirv_device import as_gpu, device, run_program, validate

from funcgrad.runtime.spirv.lower import Unsupported, lower

SPREAD, SUM, MAX, MIN = -1, -2, -3, -4
LENGTHS = [1, 2, 3, 7, 8, 31, 32, 33, 100, 128, 129, 768, 1000, 4097]
WIDE, NARROW = 1, 0


@pytest.fixture(autouse=True)
def needs_device() -> None:
    device()


def bits(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def softmax_program() -> tuple[list[tuple[Any, ...]], list[int]]:
    code = [(MAX, 1, 0), (SPREAD, 2, 1), ("sub_f", 2, 0, 2), ("exp_f", 2, 2), (SUM, 3, 2), (SPREAD, 4, 3)]
    return [*code, ("div_f", 2, 2, 4)], [WIDE, NARROW, WIDE, NARROW, WIDE]


def softmax(x: Array) -> Array:
    e = np.exp((x - x.max(-1, keepdims=True)).astype(np.float64))  # the difference rounded as in float32
    return np.asarray(e / e.sum(-1, keepdims=True))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("n", LENGTHS)
def test_softmax_in_place(n: int, large: bool) -> None:
    x = (np.random.default_rng(n).normal(size=(5, n)) * 4).astype(np.float32)
    out = x.copy()
    code, widths = softmax_program()
    run_program(x.shape, [out], [(2, out)], code, 5, widths, as_gpu() if large else None)
    np.testing.assert_allclose(out, softmax(x), rtol=5e-7, atol=1e-30)


def test_softmax_of_long_rows() -> None:
    """Rows that do not stay in registers are read again, and written only the last time."""
    x = (np.random.default_rng(0).normal(size=(2, 100_003)) * 4).astype(np.float32)
    out = x.copy()
    code, widths = softmax_program()
    run_program(x.shape, [out], [(2, out)], code, 5, widths)
    np.testing.assert_allclose(out, softmax(x), rtol=5e-7, atol=1e-30)


@pytest.mark.parametrize("n", [1, 5, 64, 600, 5000])
def test_normalisation_with_scale_and_statistics(n: int) -> None:
    """Three outputs: the normalised rows, and over a value of rows that is read too, their means and variances."""
    rng = np.random.default_rng(n)
    x, scale, shift = (rng.normal(size=s).astype(np.float32) for s in ((3, 4, n), (n,), (3, 4, 1)))
    wide, mean, variance = np.empty_like(x), shift[..., 0].copy(), np.empty((3, 4), np.float32)
    code: list[tuple[Any, ...]] = [("const", 3, bits(1 / n)), ("const", 4, bits(1e-5))]
    code += [(SUM, 5, 0), ("mul_f", 5, 5, 3), (SPREAD, 6, 5), ("sub_f", 6, 0, 6), ("square_f", 7, 6), (SUM, 8, 7)]
    code += [("mul_f", 8, 8, 3), ("add_f", 9, 8, 4), ("rsqrt_f", 9, 9), (SPREAD, 7, 9), ("mul_f", 6, 6, 7)]
    code += [("mul_f", 6, 6, 1), (SPREAD, 7, 2), ("add_f", 6, 6, 7), ("add_f", 5, 5, 2)]
    widths = [WIDE, WIDE, NARROW, WIDE, WIDE, NARROW, WIDE, WIDE, NARROW, NARROW]
    narrow = [np.lib.stride_tricks.as_strided(v, (3, 4, n), (*v.strides, 0)) for v in (mean, variance)]
    inputs = [x, np.broadcast_to(scale, x.shape), narrow[0]]
    words, _ = program_words(x.shape, inputs, [(6, wide), (5, narrow[0]), (8, narrow[1])], code, 10, widths)
    for at, slot in zip(_slots(words, 3, 3), (0, 1, 2, 3, 2, 4), strict=True):
        words[at] = slot
    lowered = lower(9, words, device().target)
    validate(lowered)
    device().run(lowered, [x, scale, mean, wide, variance], [wide, mean, variance])
    y = x.astype(np.float64)
    m, v = y.mean(-1), y.var(-1)
    want = (y - m[..., None]) / np.sqrt(v[..., None] + 1e-5) * scale + shift
    np.testing.assert_allclose(wide, want, rtol=1e-4 if n == 1 else 5e-6, atol=2e-4 if n == 1 else 5e-6)
    np.testing.assert_allclose(mean, m + shift[..., 0], rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(variance, v, rtol=2e-6, atol=1e-12)


def _slots(words: list[int], n_in: int, n_out: int) -> list[int]:
    """Where the slots of the operands of three dimensions stand."""
    at = 1 + 3 + 4 + words[6]
    return [at + 6 * n for n in range(n_in)] + [at + 6 * n_in + 7 * n + 1 for n in range(n_out)]


FOLDS: dict[int, Callable[..., Any]] = {SUM: np.sum, MAX: np.max, MIN: np.min}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, "bf16", np.int32, np.bool_])
@pytest.mark.parametrize("n", [3, 77, 1025])
def test_folds_of_every_dtype(dtype: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.integers(0, 2 if dtype is np.bool_ else 9, (6, n))
    given: Any = x.astype(np.float32 if dtype == "bf16" else dtype)
    operand = Bf16((given.view(np.uint32) >> 16).astype(np.uint16)) if dtype == "bf16" else given
    code: list[tuple[Any, ...]] = [("i2f", 1, 0) if dtype in (np.int32, np.bool_) else ("mov", 1, 0)]
    outs = [np.empty(6, np.float32) for _ in FOLDS]
    for reg, op in enumerate(FOLDS, 2):
        code.append((op, reg, 1))
    views = [np.lib.stride_tricks.as_strided(v, (6, n), (4, 0)) for v in outs]
    words, _ = program_words(x.shape, [operand], list(zip((2, 3, 4), views, strict=True)), code, 5, [1, 1, 0, 0, 0])
    array = operand.bits if isinstance(operand, Bf16) else operand
    device().run(lower(9, words, device().target), [array, *outs], outs)
    for out, f in zip(outs, FOLDS.values(), strict=True):
        np.testing.assert_array_equal(out, f(x, -1))


def test_nan_and_infinities() -> None:
    x = np.ones((7, 300), np.float32)
    x[1, 255], x[2, 3], x[3, 299], x[4, :2] = np.nan, np.inf, -np.inf, (np.inf, -np.inf)
    outs = [np.empty(7, np.float32) for _ in FOLDS]
    views = [np.lib.stride_tricks.as_strided(v, x.shape, (4, 0)) for v in outs]
    outputs, code = list(zip((1, 2, 3), views, strict=True)), [(op, r, 0) for r, op in enumerate(FOLDS, 1)]
    words, _ = program_words(x.shape, [x], outputs, code, 4, [1, 0, 0, 0])
    device().run(lower(9, words, device().target), [x, *outs], outs)
    with np.errstate(all="ignore"):
        for out, f in zip(outs, FOLDS.values(), strict=True):
            np.testing.assert_array_equal(out, f(x, -1))


def test_strides_and_iota() -> None:
    """Reversed and transposed rows, and a position that is spread over rows."""
    x = np.random.default_rng(0).integers(-9, 9, (40, 6)).astype(np.float32)
    view = x.T[::-1, ::-1]
    out = np.empty((40, 12), np.float32)[:, ::2].T
    code: list[tuple[Any, ...]] = [("i2f", 2, 1), ("mul_f", 2, 2, 0), (SUM, 3, 2), (SPREAD, 4, 3), ("sub_f", 4, 2, 4)]
    run_program(view.shape, [view, Iota(3, (100, -1))], [(4, out)], code, 5, [1, 1, 1, 0, 1])
    i, j = np.indices(view.shape)
    y = view * (3 + 100 * i - j)
    np.testing.assert_array_equal(out, y - y.sum(-1, keepdims=True))


Code = list[tuple[Any, ...]]


def random_program(rng: np.random.Generator, xs: list[Array]) -> tuple[Code, list[int], dict[int, Array]]:
    """Instructions on small whole numbers, which float32 computes exactly, and what is in each register."""
    values: dict[int, Array] = dict(enumerate(xs))
    widths = [1] * len(xs)
    code: list[tuple[Any, ...]] = [("const", len(xs), bits(61.0))]
    widths.append(1)
    modulus = len(xs)
    for _ in range(int(rng.integers(2, 14))):
        wide = [r for r, w in enumerate(widths) if w and r != modulus]
        narrow = [r for r, w in enumerate(widths) if not w]
        dst, kind = len(widths), rng.random()
        if kind < 0.3 or (kind < 0.5 and not narrow):
            op, a = int(rng.choice(list(FOLDS))), int(rng.choice(wide))
            code += [(op, dst, a), ("rem_f", dst, dst, modulus)]
            widths.append(0)
            values[dst] = np.fmod(FOLDS[op](values[a].astype(np.float64), -1, keepdims=True), 61)
        elif kind < 0.5:
            a = int(rng.choice(narrow))
            code.append((SPREAD, dst, a))
            widths.append(1)
            values[dst] = np.broadcast_to(values[a], xs[0].shape)
        else:
            pool = narrow if narrow and rng.random() < 0.3 else wide
            a, b = (int(r) for r in rng.choice(pool, 2))
            name = str(rng.choice(["add_f", "sub_f", "max_f"]))
            f = {"add_f": np.add, "sub_f": np.subtract, "max_f": np.maximum}[name]
            code += [(name, dst, a, b), ("rem_f", dst, dst, modulus)]
            widths.append(widths[a])
            values[dst] = np.fmod(f(values[a], values[b]), 61)
    return code, widths, values


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 20)), int(rng.choice([1, 2, 5, 16, 40, 130, 700, 3000])))
    xs = [rng.integers(-30, 30, shape).astype(np.float32) for _ in range(int(rng.integers(1, 4)))]
    given = [x.copy() for x in xs]
    code, widths, values = random_program(rng, xs)
    chosen = [int(r) for r in rng.choice(len(widths) - len(xs) - 1, 2) + len(xs) + 1]
    outs, views = [], []
    for n, r in enumerate(chosen):
        over = widths[r] and n < len(given)
        outs.append(given[n] if over else np.empty(shape if widths[r] else shape[0], np.float32))
        views.append(outs[n] if widths[r] else np.lib.stride_tricks.as_strided(outs[n], shape, (4, 0)))
    words, _ = program_words(shape, given, list(zip(chosen, views, strict=True)), code, len(widths), widths)
    lowered = lower(9, words, as_gpu() if seed % 2 else device().target)
    device().run(lowered, [*given, *outs], outs)
    for out, r in zip(outs, chosen, strict=True):
        want = values[r] if widths[r] else values[r][:, 0]
        np.testing.assert_array_equal(out, np.broadcast_to(want, out.shape))


@pytest.mark.parametrize("arithmetic", [True, False])
@pytest.mark.parametrize("n", [20, 900])
def test_with_and_without_shuffles(arithmetic: bool, n: int) -> None:
    target = as_gpu()._replace(subgroup_arithmetic=arithmetic)
    x = np.random.default_rng(n).normal(size=(9, n)).astype(np.float32)
    out = np.empty_like(x)
    code, widths = softmax_program()
    run_program(x.shape, [x], [(2, out)], code, 5, widths, target)
    np.testing.assert_allclose(out, softmax(x), rtol=5e-7)


def test_a_value_of_a_row_needs_a_fold() -> None:
    x = np.ones((2, 3), np.float32)
    view = np.lib.stride_tricks.as_strided(np.empty(2, np.float32), (2, 3), (4, 0))
    words, _ = program_words(x.shape, [x], [(1, view)], [("neg_f", 1, 0)], 2, [1, 0])
    with pytest.raises(Unsupported, match="rows: a value of a row"):
        lower(9, words, device().target)


@pytest.mark.parametrize("n", [8, 128, 3000])
@pytest.mark.parametrize("name", ["div_f", "div_nz_f"])
def test_quotients_by_a_value_of_the_row_are_rounded_correctly(name: str, n: int) -> None:
    """Two quotients by one value; zeros, infinities and NaN as IEEE 754 says, or 0 where a numerator is 0."""
    rng = np.random.default_rng(n)
    x = (rng.normal(size=(24, n)) * 10.0 ** rng.integers(-12, 12, (24, n))).astype(np.float32)
    x[:, :3] = [0.0, np.inf, -np.inf]
    x[::2, 3] = np.nan
    y = (rng.normal(size=(24, 1)) * 10.0 ** rng.integers(-12, 12, (24, 1))).astype(np.float32)
    y[:4, 0] = [0.0, np.inf, -np.inf, np.nan]
    by, first, second = np.broadcast_to(y, x.shape), np.empty_like(x), np.empty_like(x)
    # wide numerators, and one of the row
    code = [(MAX, 2, 0), (SPREAD, 3, 1), (SPREAD, 5, 2), (name, 4, 0, 3), (name, 6, 5, 3)]
    widths = [WIDE, NARROW, NARROW, WIDE, WIDE, WIDE, WIDE]
    run_program(x.shape, [x, by], [(4, first), (6, second)], code, 7, widths, as_gpu())
    with np.errstate(all="ignore"):
        largest = np.broadcast_to(x.max(-1, keepdims=True), x.shape)
        for numerator, got in ((x, first), (largest, second)):
            want = numerator / by
            if name == "div_nz_f":
                want = np.where(numerator == 0, np.float32(0), want)
            normal = ~((np.abs(want) < 2.0**-126) & (want != 0))  # denormal quotients may be flushed
            np.testing.assert_array_equal(got[normal], want[normal])
