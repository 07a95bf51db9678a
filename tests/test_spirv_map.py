"""MAP kernels for Vulkan devices: layouts, dtypes, aliasing and programs, against numpy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from map_kernels import Array, Bf16, Iota
from spirv_device import apply, as_gpu, device, program_words, run_program, validate
from test_kernels_map import random_program

from funcgrad.runtime.spirv.instructions import INSTRUCTIONS
from funcgrad.runtime.spirv.kernel import Target
from funcgrad.runtime.spirv.lower import Unsupported, lower

GPU = Target()  # a kernel as for a GPU, several elements for each invocation, runs on a software driver too


@pytest.fixture(autouse=True)
def needs_device() -> None:
    device()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint32, np.bool_])
def test_every_dtype_moves_unchanged(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2 if dtype == np.bool_ else 100, (70, 50)).astype(dtype)
    for view in (x, x.T, x[::2, ::-1], x[3:4, :], np.broadcast_to(x[:, :1], x.shape), x[::-1], x[5, 5]):
        out = np.zeros(view.shape, dtype)
        run_program(view.shape, [view], [(0, out)], [], 1)
        np.testing.assert_array_equal(out, view)


def test_bfloat16_is_widened_and_rounded_to_even() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    wide = np.zeros(65536, np.float32)
    run_program((65536,), [Bf16(bits)], [(0, wide)], [], 1)
    np.testing.assert_array_equal(wide.view(np.uint32), bits.astype(np.uint32) << 16)
    x = np.random.default_rng(0).integers(0, 2**32, 200000, dtype=np.uint32).view(np.float32)
    x[:3] = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF], np.uint32).view(np.float32)  # two ties, and overflow to inf
    narrow = np.zeros(x.shape, np.uint16)
    run_program(x.shape, [x], [(0, Bf16(narrow))], [], 1)
    wide = (narrow.astype(np.uint32) << 16).view(np.float32)
    ordinary = np.isfinite(x) & np.isfinite(wide)
    got, exact = wide[ordinary].astype(np.float64), x[ordinary].astype(np.float64)
    spacing = np.spacing(np.abs(wide[ordinary])).astype(np.float64) * 2**16
    assert np.all(np.abs(got - exact) <= spacing / 2)
    assert list(narrow[:3]) == [0x3F80, 0x3F82, 0x7F80]
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(x))
    number = ~np.isnan(x)
    np.testing.assert_array_equal(apply("round_bf16", x)[number].view(np.uint32), wide[number].view(np.uint32))


@pytest.mark.parametrize("halves", [False, True])
def test_float16_is_that_of_numpy(halves: bool) -> None:
    """By integer arithmetic, and by the device's own conversions where these are exact."""
    if halves and not device().target.halves:
        pytest.skip("the device's conversions are not exact")
    target = device().target._replace(halves=halves)
    bits = np.arange(65536, dtype=np.uint16)
    wide = np.zeros(65536, np.float32)
    run_program((65536,), [bits.view(np.float16)], [(0, wide)], [], 1, target=target)
    np.testing.assert_array_equal(wide, bits.view(np.float16).astype(np.float32))
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.integers(0, 2**32, 200000, dtype=np.uint32).view(np.float32), wide, np.nextafter(wide, 0)])
    ties = (wide[:-1].astype(np.float64) + wide[1:].astype(np.float64)) / 2  # halfway between neighbours
    with np.errstate(all="ignore"):
        x = np.concatenate([x, ties.astype(np.float32)])
        want = x.astype(np.float16)
    narrow = np.zeros(x.shape, np.float16)
    run_program(x.shape, [x], [(0, narrow)], [], 1, target=target)
    np.testing.assert_array_equal(narrow, want)
    np.testing.assert_array_equal(apply("round_f16", x, target=target), want.astype(np.float32))


def test_iota_and_scalars() -> None:
    shape = (7, 65, 31)
    i, j, k = np.indices(shape)
    x = np.array(2.5, np.float32)
    out, scaled = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    program = [("i2f", 2, 0), ("mul_f", 2, 2, 1)]
    inputs = [Iota(-5, (3, -2, 10)), np.broadcast_to(x, shape)]
    run_program(shape, inputs, [(0, out), (2, scaled)], program, 3)
    np.testing.assert_array_equal(out, -5 + 3 * i - 2 * j + 10 * k)
    np.testing.assert_array_equal(scaled, out.astype(np.float32) * np.float32(2.5))
    run_program(shape, [Iota(7, (0, 0, 0))], [(0, out)], [], 1)
    assert np.all(out == 7)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 4), (0, 0)])
def test_zero_sizes_run_nothing(shape: tuple[int, ...]) -> None:
    x, out = np.empty(shape, np.float32), np.empty(shape, np.float32)
    words, _ = program_words(shape, [x], [(1, out)], [("exp_f", 1, 0)], 2)
    assert lower(0, words, device().target)[:2] == ([], [])


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000, 100003])
def test_in_place(n: int) -> None:
    """Outputs over inputs: also when the first output is written while the second still needs its input."""
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    y = x[::-1].copy()
    a, b = x.copy(), y.copy()
    run_program((n,), [a, b], [(2, a), (3, b)], [("add_f", 2, 0, 1), ("sub_f", 3, 0, 1)], 4)
    np.testing.assert_array_equal(a, x + y)
    np.testing.assert_array_equal(b, x - y)
    a, b = x.copy(), y.copy()
    run_program((n,), [a, b], [(1, a), (0, b)], [], 2)  # a swap
    np.testing.assert_array_equal(a, y)
    np.testing.assert_array_equal(b, x)


def test_many_operands() -> None:
    rng = np.random.default_rng(4)
    xs = [rng.standard_normal(301).astype(np.float32) for _ in range(128)]
    outs = [np.empty(301, np.float32) for _ in range(128)]
    program = [("add_f", 128 + i, i, (i + 1) % 128) for i in range(128)]
    run_program((301,), xs, [(128 + i, outs[i]) for i in range(128)], program, 256)
    for i in range(128):
        np.testing.assert_array_equal(outs[i], xs[i] + xs[(i + 1) % 128])


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_in_place(seed: int) -> None:
    """Random register programs whose outputs lie over inputs."""
    rng = np.random.default_rng(seed)
    shape = [(int(rng.integers(1, 3000)),), (40, 50), (17, 64)][seed % 3]
    memory = [rng.integers(-50, 50, shape).astype(np.int32) for _ in range(int(rng.integers(1, 4)))]
    if seed % 5 == 0 and len(shape) == 2:
        memory[0] = np.ascontiguousarray(memory[0].T).T
    inputs = [m.copy(order="K") for m in memory]
    program, regs = random_program(rng, inputs, len(inputs) + int(rng.integers(0, 4)))
    n_regs = max(len(inputs), *(int(p[1]) + 1 for p in program), 1) if program else len(inputs)
    written = [int(r) for r in rng.choice(list(regs), int(rng.integers(1, 4)))]
    over = rng.permutation(len(memory))[: len(written)]
    targets = [memory[i] for i in over] + [np.empty(shape, np.int32) for _ in written[len(over) :]]
    run_program(shape, memory, list(zip(written, targets, strict=True)), program, n_regs, target=as_gpu())
    for reg, target in zip(written, targets, strict=True):
        np.testing.assert_array_equal(target, regs[reg])


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
