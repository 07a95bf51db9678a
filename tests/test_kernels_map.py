"""MAP kernels against numpy: layouts, dtypes, aliasing, integers, threads, refused words."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from map_kernels import NO_SLOT, OPS, Array, Bf16, Iota, Kernel, apply, lib, new_kernel

pytestmark = pytest.mark.ggml


@pytest.fixture(autouse=True)
def restore_threads() -> Any:
    before = lib.fg_get_threads()
    yield
    lib.fg_set_threads(before)


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


DTYPES = [np.float32, np.float16, np.int32, np.uint32, np.bool_]


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
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2 if dtype == np.bool_ else 100, (70, 50)).astype(dtype)
    for view in (x, x.T, x[::2, ::-1], x[3:4, :], np.broadcast_to(x[:, :1], x.shape)):
        out = np.zeros(view.shape, dtype)
        Kernel(view.shape, [view], [(0, out)], [], 1).run()
        np.testing.assert_array_equal(out, view)


def test_bfloat16_is_widened_and_rounded_to_even() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    wide = np.zeros(65536, np.float32)
    Kernel((65536,), [Bf16(bits)], [(0, wide)], [], 1).run()
    np.testing.assert_array_equal(wide.view(np.uint32), bits.astype(np.uint32) << 16)
    x = np.random.default_rng(0).integers(0, 2**32, 200000, dtype=np.uint32).view(np.float32)
    x[:3] = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF], np.uint32).view(np.float32)  # two ties, and overflow to inf
    narrow = np.zeros(x.shape, np.uint16)
    Kernel(x.shape, [x], [(0, Bf16(narrow))], [], 1).run()
    wide = (narrow.astype(np.uint32) << 16).view(np.float32)
    ordinary = np.isfinite(x) & np.isfinite(wide)
    got, exact = wide[ordinary].astype(np.float64), x[ordinary].astype(np.float64)
    spacing = np.spacing(np.abs(wide[ordinary])).astype(np.float64) * 2**16
    assert np.all(np.abs(got - exact) <= spacing / 2)
    assert list(narrow[:3]) == [0x3F80, 0x3F82, 0x7F80]
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(x))
    number = ~np.isnan(x)
    np.testing.assert_array_equal(apply("round_bf16", x)[number].view(np.uint32), wide[number].view(np.uint32))


def test_float16_is_that_of_numpy() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    wide = np.zeros(65536, np.float32)
    Kernel((65536,), [bits.view(np.float16)], [(0, wide)], [], 1).run()
    np.testing.assert_array_equal(wide, bits.view(np.float16).astype(np.float32))
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.integers(0, 2**32, 200000, dtype=np.uint32).view(np.float32), wide, np.nextafter(wide, 0)])
    ties = (wide[:-1].astype(np.float64) + wide[1:].astype(np.float64)) / 2  # halfway between neighbours
    with np.errstate(all="ignore"):
        x = np.concatenate([x, ties.astype(np.float32)])
        want = x.astype(np.float16)
    narrow = np.zeros(x.shape, np.float16)
    Kernel(x.shape, [x], [(0, narrow)], [], 1).run()
    np.testing.assert_array_equal(narrow, want)
    np.testing.assert_array_equal(apply("round_f16", x), want.astype(np.float32))


def test_iota_and_scalars() -> None:
    shape = (7, 65, 31)
    i, j, k = np.indices(shape)
    x = np.array(2.5, np.float32)
    out, scaled = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    program = [("i2f", 2, 0), ("mul_f", 2, 2, 1)]
    inputs = [Iota(-5, (3, -2, 10)), np.broadcast_to(x, shape)]
    Kernel(shape, inputs, [(0, out), (2, scaled)], program, 3).run()
    np.testing.assert_array_equal(out, -5 + 3 * i - 2 * j + 10 * k)
    np.testing.assert_array_equal(scaled, out.astype(np.float32) * np.float32(2.5))
    Kernel(shape, [Iota(7, (0, 0, 0))], [(0, out)], [], 1).run()
    assert np.all(out == 7)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 4), (0, 0)])
def test_zero_sizes_touch_nothing(shape: tuple[int, ...]) -> None:
    x, out = np.empty(shape, np.float32), np.empty(shape, np.float32)
    Kernel(shape, [x], [(1, out)], [("exp_f", 1, 0)], 2).run()


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 1000, 1024, 1025, 100003])
def test_in_place(n: int) -> None:
    """Outputs over inputs: also when the first output is written while the second still needs its input."""
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    y = x[::-1].copy()
    a, b = x.copy(), y.copy()
    program = [("add_f", 2, 0, 1), ("sub_f", 3, 0, 1)]
    Kernel((n,), [a, b], [(2, a), (3, b)], program, 4).run()
    np.testing.assert_array_equal(a, x + y)
    np.testing.assert_array_equal(b, x - y)
    a, b = x.copy(), y.copy()
    Kernel((n,), [a, b], [(1, a), (0, b)], [], 2).run()  # a swap
    np.testing.assert_array_equal(a, y)
    np.testing.assert_array_equal(b, x)
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
    rng = np.random.default_rng(4)
    xs = [rng.standard_normal(3001).astype(np.float32) for _ in range(100)]
    outs = [np.empty(3001, np.float32) for _ in range(100)]
    program = [("add_f", 100 + i, i, (i + 1) % 100) for i in range(100)]
    Kernel((3001,), xs, [(100 + i, outs[i]) for i in range(100)], program, 200).run()
    for i in range(100):
        np.testing.assert_array_equal(outs[i], xs[i] + xs[(i + 1) % 100])


INTEGER_OPS = {
    "add_i": np.add,
    "sub_i": np.subtract,
    "mul_i": np.multiply,
    "xor": np.bitwise_xor,
    "and": np.bitwise_and,
}


def random_program(rng: np.random.Generator, inputs: list[Array], n_regs: int) -> tuple[list[Any], dict[int, Array]]:
    """Instructions that reuse registers at random, and what numpy leaves in each register."""
    regs = dict(enumerate(inputs))
    program: list[tuple[Any, ...]] = []
    for _ in range(int(rng.integers(0, 12))):
        dst, name = int(rng.integers(n_regs)), str(rng.choice([*INTEGER_OPS, "select", "mov", "const"]))
        a, b, c = (int(r) for r in rng.choice(list(regs), 3))
        if name == "const":
            value = int(rng.integers(-100, 100))
            program.append((name, dst, value))
            regs[dst] = np.full(inputs[0].shape, value, np.int32)
        elif name == "select":
            program.append((name, dst, a, b, c))
            regs[dst] = np.where(regs[a] != 0, regs[b], regs[c])
        elif name == "mov":
            program.append((name, dst, a))
            regs[dst] = regs[a]
        else:
            program.append((name, dst, a, b))
            regs[dst] = INTEGER_OPS[name](regs[a], regs[b])
    return program, regs


@pytest.mark.parametrize("seed", range(300))
def test_random_programs_in_place(seed: int) -> None:
    """Random register programs whose outputs lie over inputs: no value may be overwritten before its last use."""
    rng = np.random.default_rng(seed)
    shape = [(int(rng.integers(1, 3000)),), (40, 50), (17, 64)][seed % 3]
    memory = [rng.integers(-50, 50, shape).astype(np.int32) for _ in range(int(rng.integers(1, 4)))]
    if seed % 5 == 0 and len(shape) == 2:
        memory[0] = np.ascontiguousarray(memory[0].T).T  # one operand transposed: tiles
    inputs = [m.copy(order="K") for m in memory]
    program, regs = random_program(rng, inputs, len(inputs) + int(rng.integers(0, 4)))
    n_regs = max(len(inputs), *(int(p[1]) + 1 for p in program), 1) if program else len(inputs)
    written = [int(r) for r in rng.choice(list(regs), int(rng.integers(1, 4)))]
    over = rng.permutation(len(memory))[: len(written)]
    targets = [memory[i] for i in over] + [np.empty(shape, np.int32) for _ in written[len(over) :]]
    Kernel(shape, memory, list(zip(written, targets, strict=True)), program, n_regs).run()
    for reg, target in zip(written, targets, strict=True):
        np.testing.assert_array_equal(target, regs[reg])


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


def integer_pairs(dtype: Any) -> tuple[Array, Array]:
    info = np.iinfo(dtype)
    edge = np.array([0, 1, 2, 3, 7, 31, 32, 33, info.max, info.max - 1, info.min, info.min + 1, 2**30], dtype)
    edge = np.concatenate([edge, (0 - edge.astype(np.int64)).astype(np.uint64).astype(np.uint32).astype(dtype)])
    a, b = (m.ravel() for m in np.meshgrid(edge, edge))
    rng = np.random.default_rng(6)
    wild = rng.integers(info.min, info.max, (2, 50000), dtype, endpoint=True)
    close = rng.integers(1, 300, (2, 50000)).astype(dtype)
    return np.concatenate([a, wild[0], wild[0], close[0]]), np.concatenate([b, wild[1], close[1], close[1]])


def truncated(a: Array, b: Array, dtype: Any) -> tuple[Array, Array]:
    """Quotient and remainder of C, by Python's integers of 64 bits; division by zero as XLA has it."""
    x, y = a.astype(np.int64), b.astype(np.int64)
    safe = np.where(y == 0, 1, y)
    q = np.sign(x) * np.sign(safe) * (np.abs(x) // np.abs(safe))
    quotient = np.where(y == 0, -1, q)
    return quotient.astype(np.uint64).astype(np.uint32).astype(dtype), np.where(y == 0, x, x - safe * q).astype(dtype)


def test_signed_integers() -> None:
    a, b = integer_pairs(np.int32)
    q, r = truncated(a, b, np.int32)
    wrap = {"add_i": np.add, "sub_i": np.subtract, "mul_i": np.multiply, "max_i": np.maximum, "min_i": np.minimum}
    want: dict[str, Array] = {k: f(a, b) for k, f in wrap.items()} | {"div_i": q, "rem_i": r}
    compare = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
    want |= {f"{k}_i": f(a, b) for k, f in (compare | {"ge": np.greater_equal}).items()}
    shift = np.where((b >= 0) & (b < 32), b, 31)
    want |= {"shr_i": a >> shift, "and": a & b, "or": a | b, "xor": a ^ b}
    for name, expected in want.items():
        np.testing.assert_array_equal(apply(name, a, b, dtype=np.int32), expected, name)
    negative = np.subtract(0, a, dtype=np.int32)
    unary: dict[str, Array] = {"neg_i": negative, "abs_i": np.where(a < 0, negative, a), "sign_i": np.sign(a)}
    unary |= {"not": ~a, "i2b": a != 0, "not_b": a == 0, "mov": a}
    for name, expected in unary.items():
        np.testing.assert_array_equal(apply(name, a, dtype=np.int32), expected, name)
    np.testing.assert_array_equal(apply("i2f", a), a.astype(np.float32))


def test_unsigned_integers() -> None:
    a, b = integer_pairs(np.uint32)
    q, r = truncated(a, b, np.uint32)
    small = b < 32
    want: dict[str, Array] = {"div_u": q, "rem_u": r, "max_u": np.maximum(a, b), "min_u": np.minimum(a, b)}
    want |= {"lt_u": a < b, "le_u": a <= b, "gt_u": a > b, "ge_u": a >= b}
    want |= {"shl": np.where(small, a << (b & 31), 0), "shr_u": np.where(small, a >> (b & 31), 0)}
    for name, expected in want.items():
        np.testing.assert_array_equal(apply(name, a, b, dtype=np.uint32), expected, name)
    bits = np.unpackbits(a.view(np.uint8).reshape(-1, 4)[:, ::-1], axis=1)
    np.testing.assert_array_equal(apply("popcount", a, dtype=np.uint32), bits.sum(axis=1))
    leading = np.where(a == 0, 32, bits.argmax(axis=1))
    np.testing.assert_array_equal(apply("clz", a, dtype=np.uint32), leading)
    np.testing.assert_array_equal(apply("u2f", a), a.astype(np.float32))


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(key: tuple[int, int], counter: tuple[int, int], words: tuple[int, int]) -> None:
    """The vectors of the Random123 library for Threefry-2x32 with 20 rounds."""
    inputs = [np.full(5, v, np.uint32) for v in (*key, *counter)]
    assert np.all(apply("threefry", *inputs, dtype=np.uint32) == words[0])
    assert np.all(apply("threefry1", *inputs, dtype=np.uint32) == words[1])
    assert np.all(apply("threefryx", *inputs, dtype=np.uint32) == words[0] ^ words[1])


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
