"""MAP kernels for Vulkan devices: layouts, dtypes, aliasing and programs, against numpy."""

from __future__ import annotations

import itertools
from functools import partial
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
    check_unchanged,
)
from map_kernels import Array, Iota, program_words
from spirv_device import as_gpu, device, run_program, validate

from funcgrad.runtime.spirv.instructions import INSTRUCTIONS
from funcgrad.runtime.spirv.kernel import Target
from funcgrad.runtime.spirv.lower import Unsupported, lower

GPU = Target()  # a kernel as for a GPU, several elements for each invocation, runs on a software driver too


@pytest.fixture(autouse=True)
def needs_device() -> None:
    device()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_moves_unchanged(dtype: Any) -> None:
    check_unchanged(run_program, dtype)


def test_bfloat16_is_widened_and_rounded_to_even() -> None:
    check_bfloat16(run_program)


@pytest.mark.parametrize("halves", [False, True])
def test_float16_is_that_of_numpy(halves: bool) -> None:
    """By integer arithmetic, and by the device's own conversions where these are exact."""
    if halves and not device().target.halves:
        pytest.skip("the device's conversions are not exact")
    check_float16(partial(run_program, target=device().target._replace(halves=halves)))


def test_iota_and_scalars() -> None:
    check_iota_and_scalars(run_program)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 4), (0, 0)])
def test_zero_sizes_run_nothing(shape: tuple[int, ...]) -> None:
    x, out = np.empty(shape, np.float32), np.empty(shape, np.float32)
    words, _ = program_words(shape, [x], [(1, out)], [("exp_f", 1, 0)], 2)
    assert lower(0, words, device().target)[:2] == ([], [])


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000, 100003])
def test_in_place(n: int) -> None:
    check_in_place(run_program, n)


def test_many_operands() -> None:
    check_many_operands(run_program, 128, 301)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_in_place(seed: int) -> None:
    check_random_program(partial(run_program, target=as_gpu()), seed)


def random_view(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Elements of any order of dimensions, some reversed, some repeated, some with gaps."""
    order = [int(d) for d in rng.permutation(len(shape))]
    x = rng.integers(-99, 99, [2 * shape[d] for d in order]).astype(np.int32)
    x = x[tuple(slice(0, shape[d]) if rng.random() < 0.6 else slice(None, None, 2) for d in order)]
    x = x.transpose(np.argsort(order))
    x = x[tuple(slice(None, None, -1) if rng.random() < 0.3 else slice(None) for _ in shape)]
    repeated = [d for d in range(len(shape)) if rng.random() < 0.2]
    return np.broadcast_to(x[tuple(slice(0, 1) if d in repeated else slice(None) for d in range(len(shape)))], shape)


@pytest.mark.parametrize("seed", range(25))
def test_random_layouts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 5, 8, 20], int(rng.integers(1, 6))))
    xs = [random_view(rng, shape) for _ in range(3)]
    order = [int(d) for d in rng.permutation(len(shape))]
    out = np.zeros([shape[d] for d in order], np.int32).transpose(np.argsort(order))
    steps = tuple(int(s) for s in rng.integers(-5, 5, len(shape)))
    program = [("mul_i", 4, 0, 1), ("add_i", 4, 4, 2), ("sub_i", 4, 4, 3)]
    run_program(shape, [*xs, Iota(1, steps)], [(4, out)], program, 5)
    iota = 1 + sum(s * i for s, i in zip(steps, np.indices(shape), strict=True))
    np.testing.assert_array_equal(out, xs[0] * xs[1] + xs[2] - iota)


@pytest.mark.parametrize("shape", [(64, 128), (37, 153), (5, 64, 100), (3, 9, 33, 9), (700, 11)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.bool_])
def test_transposed_operands(shape: tuple[int, ...], dtype: Any) -> None:
    """Squares are turned round in shared memory, on a GPU; results lie over a transposed and over a plain operand."""
    rng = np.random.default_rng(0)
    orders = [o for o in itertools.permutations(range(len(shape))) if o[-1] != len(shape) - 1][:4]
    for order in orders:
        x = rng.integers(0, 2 if dtype == np.bool_ else 99, shape).astype(dtype)
        view = x.transpose(order)
        y = np.ascontiguousarray(rng.integers(0, 99, view.shape).astype(np.int32))
        copy, out, over = np.zeros(view.shape, dtype), np.zeros(view.shape, np.int32), y.copy()
        program = [("mov", 2, 1) if dtype == np.bool_ else ("f2i", 2, 0), ("add_i", 3, 2, 1)]
        run_program(view.shape, [view, over], [(0, copy), (3, over), (2, out)], program, 4, target=as_gpu())
        np.testing.assert_array_equal(copy, view)
        number = y if dtype == np.bool_ else view.astype(np.int32)
        np.testing.assert_array_equal(out, number)
        np.testing.assert_array_equal(over, number + y)


@pytest.mark.parametrize("n", [(1 << 21) + 5, 1 << 22])
def test_several_elements_for_an_invocation(n: int) -> None:
    """As on a GPU, with a tail and without; and in groups along two axes."""
    x = np.arange(n, dtype=np.int32)
    for target in (as_gpu(), as_gpu()._replace(most_groups=(1000, 65535, 65535))):
        out = np.zeros(n + 100, np.int32)
        run_program((n,), [x, np.broadcast_to(np.int32(3), n)], [(2, out[:n])], [("mul_i", 2, 0, 1)], 3, target=target)
        np.testing.assert_array_equal(out[:n], x * 3)
        assert not out[n:].any()


def test_modules_are_valid() -> None:
    """Each instruction alone, for three kinds of devices."""
    corrected = Target(exact=False, fused=False, denorm=False, special=False)
    for target, (number, x) in itertools.product((GPU, corrected), enumerate(INSTRUCTIONS)):
        if number % 4 == (target is corrected):  # a quarter for each, to save time
            m = len(x.sources)
            words = [1, 1000, m, 1, m + 1, 1, *(w for s in range(m) for w in (s, 0, 0, 4)), m, m, 0, 0, 4]
            validate(lower(0, [*words, number, m, *range(m), *[0] * (4 - m)], target))


def test_what_has_no_kernel_is_refused() -> None:
    target = device().target
    with pytest.raises(Unsupported, match="multiples of 4 bytes"):
        lower(0, [1, 5, 1, 1, 1, 0, 0, 0, 2, 4, 0, 1, 0, 0, 4], target)
    with pytest.raises(Unsupported, match=r"2\^31"):
        lower(0, [1, 1 << 31, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 4], target)
    with pytest.raises(Unsupported, match=r"between its ends"):
        lower(0, [1, 2, 1, 1, 1, 0, 0, 0, 0, 1 << 40, 0, 1, 0, 0, 4], target)
