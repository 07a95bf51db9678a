"""MAP kernels against numpy: layouts, dtypes, aliasing, integers, threads, refused words."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from map_checks import (
    DTYPES,
    check_bfloat16,
    check_float16,
    check_in_place,
    check_iota_and_scalars,
    check_many_operands,
    check_random_program,
    check_signed_integers,
    check_threefry,
    check_unchanged,
    check_unsigned_integers,
)
from map_kernels import NO_SLOT, OPS, Array, Iota, Kernel, apply, lib, new_kernel, run_kernel

pytestmark = [pytest.mark.ggml, pytest.mark.usefixtures("restore_threads")]


def random_view(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, broadcast: bool) -> Array:
    """An array of this shape with a random order of dimensions, steps, reversals and repeated dimensions."""
    order = rng.permutation(len(shape))
    repeated = [broadcast and rng.random() < 0.25 for _ in shape]
    steps = [int(rng.integers(1, 3)) for _ in shape]
    room = [1 if repeated[d] else shape[d] * steps[d] + int(rng.integers(0, 3)) for d in order]
    raw = rng.integers(0, 2, room) if dtype == np.bool_ else rng.uniform(-100, 100, room)
    view = raw.astype(dtype).transpose(np.argsort(order))
    cuts = []
    for d, n in enumerate(shape):
        cut = slice(0, 1) if repeated[d] else slice(0, n * steps[d], steps[d])
        cuts.append(cut)
    view = view[(..., *cuts)]
    flips = tuple(slice(None, None, -1 if rng.random() < 0.3 else 1) for _ in shape)
    return np.broadcast_to(view, shape)[(..., *flips)]


@pytest.mark.parametrize("seed", range(150))
def test_layouts(seed: int) -> None:
    """c = select(flag, a + b, b) and its half precision copy, every operand in a layout of its own."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(0, 6))
    top = [3000, 3000, 90, 24, 10, 6][rank]
    shape = tuple(int(rng.integers(1, top)) for _ in range(rank))
    a = random_view(rng, shape, np.float32, True)
    b = random_view(rng, shape, np.float16 if seed % 3 == 0 else np.float32, True)
    flag = random_view(rng, shape, np.bool_, True)
    out = random_view(rng, shape, np.float32, False)
    half = random_view(rng, shape, np.float16, False)
    inverse = random_view(rng, shape, np.bool_, False)
    program = [("add_f", 3, 0, 1), ("select", 3, 2, 3, 1), ("not_b", 4, 2)]
    Kernel(shape, [a, b, flag], [(3, out), (3, half), (4, inverse)], program, 5).run()
    want = np.where(flag, a + b.astype(np.float32), b.astype(np.float32))
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(half, want.astype(np.float16))
    np.testing.assert_array_equal(inverse, ~flag)


@pytest.mark.parametrize("rows", [1, 2, 6, 31])
@pytest.mark.parametrize("cols", [*range(1, 18), 40])
def test_short_rows_and_planes_that_repeat(cols: int, rows: int) -> None:
    """Blocks end within a row, within a plane and between planes; an operand may lack any of the dimensions."""
    rng = np.random.default_rng(cols)
    n = 3000 // (rows * cols) + 3
    for start in range(2):  # an even and an odd number of planes
        shape = (2, n + start, rows, cols)
        wide = rng.standard_normal((2, n + start, rows, cols + 3)).astype(np.float32)
        for missing in itertools.product([False, True], repeat=4):
            cut = tuple(slice(0, 1) if m else slice(None) for m in missing)
            x = np.broadcast_to(wide[..., 1 : cols + 1][cut], shape)
            steps = tuple(0 if m else s for m, s in zip(missing, (100000, 1000, 50, 1), strict=True))
            out, counted = np.zeros(shape, np.float32), np.zeros(shape, np.int32)
            inputs = [x, wide[..., :cols], Iota(7, steps)]
            Kernel(shape, inputs, [(3, out), (2, counted)], [("sub_f", 3, 1, 0)], 4).run()
            np.testing.assert_array_equal(out, wide[..., :cols] - x)
            places = np.indices(shape).reshape(4, -1)
            np.testing.assert_array_equal(counted.ravel(), 7 + np.array(steps) @ places)


@pytest.mark.parametrize("shape", [(37, 53), (256, 256), (5, 64, 100), (3, 4, 33, 9), (1, 1000), (1000, 3)])
def test_transposed_copies(shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.uint32).reshape(shape)
    for order in itertools.permutations(range(len(shape))):
        view = x.transpose(order)
        out = np.zeros(view.shape, np.uint32)
        Kernel(view.shape, [view], [(0, out)], [], 1).run()
        np.testing.assert_array_equal(out, view)
        back = np.zeros(shape, np.uint32)
        Kernel(view.shape, [out], [(0, back.transpose(order))], [], 1).run()
        np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_moves_unchanged(dtype: Any) -> None:
    check_unchanged(run_kernel, dtype)


def test_bfloat16_is_widened_and_rounded_to_even() -> None:
    check_bfloat16(run_kernel)


def test_float16_is_that_of_numpy() -> None:
    check_float16(run_kernel)


def test_iota_and_scalars() -> None:
    check_iota_and_scalars(run_kernel)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 4), (0, 0)])
def test_zero_sizes_touch_nothing(shape: tuple[int, ...]) -> None:
    x, out = np.empty(shape, np.float32), np.empty(shape, np.float32)
    Kernel(shape, [x], [(1, out)], [("exp_f", 1, 0)], 2).run()


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 1000, 1024, 1025, 100003])
def test_in_place(n: int) -> None:
    check_in_place(run_kernel, n)


def test_in_place_of_a_transposed_operand() -> None:
    square = np.arange(30 * 40, dtype=np.float32).reshape(30, 40)
    want = square.T + 1
    one = np.broadcast_to(np.float32(1), (40, 30))
    Kernel((40, 30), [square.T, one], [(0, square.T)], [("add_f", 0, 0, 1)], 2).run()
    np.testing.assert_array_equal(square.T, want)


def test_registers_may_be_reused() -> None:
    x = np.random.default_rng(3).standard_normal(5000).astype(np.float32)
    two = np.float32(2).view(np.uint32).item()
    out, copy = np.empty_like(x), np.empty_like(x)
    program = [("mul_f", 1, 0, 0), ("const", 0, two), ("mul_f", 1, 1, 0), ("add_f", 0, 1, 0), ("mov", 1, 0)]
    Kernel(x.shape, [x], [(0, out), (1, copy)], program, 2).run()
    np.testing.assert_array_equal(out, x * x * 2 + 2)
    np.testing.assert_array_equal(copy, out)


def test_many_registers_and_operands() -> None:
    check_many_operands(run_kernel, 100, 3001)


@pytest.mark.parametrize("seed", range(300))
def test_random_programs_in_place(seed: int) -> None:
    check_random_program(run_kernel, seed)


CHAIN = [("tanh_f", 1, 0), ("logistic_f", 2, 0), ("mul_f", 1, 1, 2), ("sin_f", 2, 0), ("log1p_f", 3, 1)]
CHAIN += [("sub_f", 1, 2, 3)]


@pytest.mark.parametrize("shape", [(300007,), (511, 700)])
def test_results_do_not_depend_on_threads_or_position(shape: tuple[int, ...]) -> None:
    x = (np.random.default_rng(5).standard_normal(shape) * 30).astype(np.float32)
    results = []
    for threads, view in itertools.product((1, 2, 5), (x, x.T)):
        lib.fg_set_threads(threads)
        out = np.empty(view.shape, np.float32)
        Kernel(view.shape, [view], [(1, out)], CHAIN, 4).run()
        results.append((out if view is x else out.T).copy())
    for r in results[1:]:
        np.testing.assert_array_equal(r.view(np.uint32), results[0].view(np.uint32))
    flat = x.ravel()
    for start, n in ((1, 1), (5, 17), (1000, 1030), (77, 3)):
        out = np.empty(n, np.float32)
        Kernel((n,), [flat[start : start + n]], [(1, out)], CHAIN, 4).run()
        np.testing.assert_array_equal(out.view(np.uint32), results[0].ravel()[start : start + n].view(np.uint32))


def test_signed_integers() -> None:
    check_signed_integers(apply)


def test_unsigned_integers() -> None:
    check_unsigned_integers(apply)


def test_threefry_known_answers() -> None:
    check_threefry(apply)


def good_words() -> list[int]:
    return [2, 3, 4, 1, 1, 2, 1, *(0, 0, 0, 16, 4), 1, *(1, 0, 0, 16, 4), OPS["add_f"], 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("word", "value", "message"),
    [
        (0, 17, "ndim"), (0, -1, "ndim"), (1, -3, "dimension"), (1, 2**50, "dimension"), (3, 300, "n_in"),
        (4, 0, "n_out"), (5, 0, "n_regs"), (6, -1, "n_instr"), (7, -2, "slot"), (7, NO_SLOT, "without memory"),
        (8, 6, "dtype"), (9, 2**60, "offset"), (10, 2**45, "at most"), (12, 2, "register"), (13, -1, "slot"),
        (16, 0, "stride 0"), (18, 10**6, "instruction"), (19, 2, "destination"), (20, 2, "source"), (21, 1, "written"),
        (22, 1, "unused"),
    ],
)  # fmt: skip
def test_illegal_words_are_refused(word: int, value: int, message: str) -> None:
    words = good_words()
    new_kernel(words)
    words[word] = value
    with pytest.raises(ValueError, match=f"^map: .*{message}"):
        new_kernel(words)


def test_truncated_and_random_words_are_refused_or_made() -> None:
    words = good_words()
    for n in range(len(words)):
        with pytest.raises(ValueError, match="missing"):
            new_kernel(words[:n])
    with pytest.raises(ValueError, match="expected"):
        new_kernel([*words, 0])
    with pytest.raises(ValueError, match="kind"):
        new_kernel(words, kind=99)
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(20000):
        mutated = list(words)
        for _ in range(int(rng.integers(1, 5))):
            mutated[int(rng.integers(len(words)))] = int(rng.choice([-1, 0, 1, 2, 5, 40, 2**31, 2**46, -(2**63)]))
        try:
            new_kernel(mutated)
        except ValueError:
            refused += 1
    assert refused > 1000


def test_too_many_values_for_one_kernel_are_refused() -> None:
    words = [1, 4, 1, 1, 2, 1000, *(0, 0, 0, 4), *(1, 1, 0, 0, 4)]
    for i in range(1000):
        words += [OPS["const"], 1, i, 0, 0, 0]
    with pytest.raises(ValueError, match="at most 512"):
        new_kernel(words)
