"""What MAP kernels of every kind must do; each check takes how to run a program, or one instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from map_kernels import Array, Bf16, Iota, apply_with

DTYPES = [np.float32, np.float16, np.int32, np.uint32, np.bool_]


class Run(Protocol):
    """Runs a program on arrays: its instructions over registers, of which the first hold the inputs."""

    def __call__(
        self,
        shape: Sequence[int],
        inputs: Sequence[Array | Iota | Bf16],
        outputs: Sequence[tuple[int, Array | Bf16]],
        program: Sequence[tuple[Any, ...]],
        n_regs: int,
    ) -> None: ...


Apply = Callable[..., Array]  # one instruction: its name, whole arrays, and the dtype of the result


# ---- storage ----


def check_unchanged(run: Run, dtype: Any) -> None:
    """Every layout of a dtype moves bit for bit."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2 if dtype == np.bool_ else 100, (70, 50)).astype(dtype)
    for view in (x, x.T, x[::2, ::-1], x[3:4, :], np.broadcast_to(x[:, :1], x.shape), x[::-1], x[5, 5]):
        out = np.zeros(view.shape, dtype)
        run(view.shape, [view], [(0, out)], [], 1)
        np.testing.assert_array_equal(out, view)


def check_bfloat16(run: Run) -> None:
    """bfloat16 is widened, and rounded to the nearest, ties to even."""
    bits = np.arange(65536, dtype=np.uint16)
    wide = np.zeros(65536, np.float32)
    run((65536,), [Bf16(bits)], [(0, wide)], [], 1)
    np.testing.assert_array_equal(wide.view(np.uint32), bits.astype(np.uint32) << 16)
    x = np.random.default_rng(0).integers(0, 2**32, 200000, dtype=np.uint32).view(np.float32)
    x[:3] = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF], np.uint32).view(np.float32)  # two ties, and overflow to inf
    narrow = np.zeros(x.shape, np.uint16)
    run(x.shape, [x], [(0, Bf16(narrow))], [], 1)
    wide = (narrow.astype(np.uint32) << 16).view(np.float32)
    ordinary = np.isfinite(x) & np.isfinite(wide)
    got, exact = wide[ordinary].astype(np.float64), x[ordinary].astype(np.float64)
    spacing = np.spacing(np.abs(wide[ordinary])).astype(np.float64) * 2**16
    assert np.all(np.abs(got - exact) <= spacing / 2)
    assert list(narrow[:3]) == [0x3F80, 0x3F82, 0x7F80]
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(x))
    number = ~np.isnan(x)
    np.testing.assert_array_equal(
        apply_with(run, "round_bf16", x)[number].view(np.uint32), wide[number].view(np.uint32)
    )


def check_float16(run: Run) -> None:
    """float16 is numpy's: every number, neighbours' middles, overflow."""
    bits = np.arange(65536, dtype=np.uint16)
    wide = np.zeros(65536, np.float32)
    run((65536,), [bits.view(np.float16)], [(0, wide)], [], 1)
    np.testing.assert_array_equal(wide, bits.view(np.float16).astype(np.float32))
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.integers(0, 2**32, 200000, dtype=np.uint32).view(np.float32), wide, np.nextafter(wide, 0)])
    ties = (wide[:-1].astype(np.float64) + wide[1:].astype(np.float64)) / 2  # halfway between neighbours
    with np.errstate(all="ignore"):
        x = np.concatenate([x, ties.astype(np.float32)])
        want = x.astype(np.float16)
    narrow = np.zeros(x.shape, np.float16)
    run(x.shape, [x], [(0, narrow)], [], 1)
    np.testing.assert_array_equal(narrow, want)
    np.testing.assert_array_equal(apply_with(run, "round_f16", x), want.astype(np.float32))


# ---- programs ----


def check_iota_and_scalars(run: Run) -> None:
    """Inputs without memory, and one number for all."""
    shape = (7, 65, 31)
    i, j, k = np.indices(shape)
    x = np.array(2.5, np.float32)
    out, scaled = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    program = [("i2f", 2, 0), ("mul_f", 2, 2, 1)]
    inputs = [Iota(-5, (3, -2, 10)), np.broadcast_to(x, shape)]
    run(shape, inputs, [(0, out), (2, scaled)], program, 3)
    np.testing.assert_array_equal(out, -5 + 3 * i - 2 * j + 10 * k)
    np.testing.assert_array_equal(scaled, out.astype(np.float32) * np.float32(2.5))
    run(shape, [Iota(7, (0, 0, 0))], [(0, out)], [], 1)
    assert np.all(out == 7)


def check_in_place(run: Run, n: int) -> None:
    """Outputs over inputs: also when the first output is written while the second still needs its input."""
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    y = x[::-1].copy()
    a, b = x.copy(), y.copy()
    run((n,), [a, b], [(2, a), (3, b)], [("add_f", 2, 0, 1), ("sub_f", 3, 0, 1)], 4)
    np.testing.assert_array_equal(a, x + y)
    np.testing.assert_array_equal(b, x - y)
    a, b = x.copy(), y.copy()
    run((n,), [a, b], [(1, a), (0, b)], [], 2)  # a swap
    np.testing.assert_array_equal(a, y)
    np.testing.assert_array_equal(b, x)


def check_many_operands(run: Run, count: int, size: int) -> None:
    """As many inputs as outputs: sums of neighbours."""
    rng = np.random.default_rng(4)
    xs = [rng.standard_normal(size).astype(np.float32) for _ in range(count)]
    outs = [np.empty(size, np.float32) for _ in range(count)]
    program = [("add_f", count + i, i, (i + 1) % count) for i in range(count)]
    run((size,), xs, [(count + i, outs[i]) for i in range(count)], program, 2 * count)
    for i in range(count):
        np.testing.assert_array_equal(outs[i], xs[i] + xs[(i + 1) % count])


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


def check_random_program(run: Run, seed: int) -> None:
    """A random register program whose outputs lie over inputs: no value may be overwritten before its last use."""
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
    run(shape, memory, list(zip(written, targets, strict=True)), program, n_regs)
    for reg, target in zip(written, targets, strict=True):
        np.testing.assert_array_equal(target, regs[reg])


# ---- single instructions ----


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


def check_signed_integers(apply: Apply) -> None:
    """int32 wraps, shifts and divides as in C."""
    a, b = integer_pairs(np.int32)
    q, r = truncated(a, b, np.int32)
    wrap = {"add_i": np.add, "sub_i": np.subtract, "mul_i": np.multiply, "max_i": np.maximum, "min_i": np.minimum}
    want: dict[str, Array] = {k: f(a, b) for k, f in wrap.items()} | {"div_i": q, "rem_i": r}
    compare = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
    want |= {f"{k}_i": f(a, b) for k, f in (compare | {"ge": np.greater_equal}).items()}
    want |= {"shr_i": a >> np.where((b >= 0) & (b < 32), b, 31), "and": a & b, "or": a | b, "xor": a ^ b}
    for name, expected in want.items():
        np.testing.assert_array_equal(apply(name, a, b, dtype=np.int32), expected, name)
    negative = np.subtract(0, a, dtype=np.int32)
    unary: dict[str, Array] = {"neg_i": negative, "abs_i": np.where(a < 0, negative, a), "sign_i": np.sign(a)}
    unary |= {"not": ~a, "i2b": a != 0, "not_b": a == 0, "mov": a}
    for name, expected in unary.items():
        np.testing.assert_array_equal(apply(name, a, dtype=np.int32), expected, name)
    np.testing.assert_array_equal(apply("i2f", a), a.astype(np.float32))


def check_unsigned_integers(apply: Apply) -> None:
    """uint32 arithmetic, shifts by any number, and counts of bits."""
    a, b = integer_pairs(np.uint32)
    q, r = truncated(a, b, np.uint32)
    small = b < 32
    want: dict[str, Array] = {"div_u": q, "rem_u": r, "max_u": np.maximum(a, b), "min_u": np.minimum(a, b)}
    want |= {"lt_u": a < b, "le_u": a <= b, "gt_u": a > b, "ge_u": a >= b}
    want |= {"shl": np.where(small, a << (b & 31), 0), "shr_u": np.where(small, a >> (b & 31), 0)}
    for name, expected in want.items():
        if name[0] in "lg" and name[1] in "te":  # comparisons make int32
            np.testing.assert_array_equal(apply(name, a, b, dtype=np.int32), expected, name)
        else:
            np.testing.assert_array_equal(apply(name, a, b, dtype=np.uint32), expected, name)
    bits = np.unpackbits(a.view(np.uint8).reshape(-1, 4)[:, ::-1], axis=1)
    np.testing.assert_array_equal(apply("popcount", a, dtype=np.uint32), bits.sum(axis=1))
    np.testing.assert_array_equal(apply("clz", a, dtype=np.uint32), np.where(a == 0, 32, bits.argmax(axis=1)))
    np.testing.assert_array_equal(apply("u2f", a), a.astype(np.float32))


def check_comparisons(apply: Apply, a: Array, b: Array) -> None:
    """Comparisons of floats, and predicates, as int32."""
    compare = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
    for name, f in (compare | {"ge": np.greater_equal}).items():
        np.testing.assert_array_equal(apply(f"{name}_f", a, b, dtype=np.int32), f(a, b), name)
    np.testing.assert_array_equal(apply("isfinite_f", a, dtype=np.int32), np.isfinite(a))
    np.testing.assert_array_equal(apply("isnan_f", a, dtype=np.int32), np.isnan(a))
    np.testing.assert_array_equal(apply("f2b", a, dtype=np.int32), a != 0)


def check_conversions_to_integers(apply: Apply, a: Array) -> None:
    """Floats are cut towards 0 and saturate; NaN becomes 0."""
    limits = [2147483648, 2147483520, -2147483648, -2147483904, 4294967296, 4294967040, -0.9, 0.9]
    a = np.concatenate([a, np.array(limits, np.float32)])
    wide = np.trunc(np.where(np.isnan(a), 0, a).astype(np.float64))
    signed, unsigned = np.clip(wide, -(2**31), 2**31 - 1), np.clip(wide, 0, 2**32 - 1)
    np.testing.assert_array_equal(apply("f2i", a, dtype=np.int32), signed.astype(np.int64).astype(np.int32))
    np.testing.assert_array_equal(apply("f2u", a, dtype=np.uint32), unsigned.astype(np.uint64).astype(np.uint32))


def check_select(apply: Apply) -> None:
    """A choice keeps every bit, also of NaN."""
    bits = np.random.default_rng(2).integers(0, 2**32, (2, 4099), dtype=np.uint32)
    flag = np.arange(4099, dtype=np.int32) % 3
    got = apply("select", flag, bits[0].view(np.float32), bits[1].view(np.float32))
    np.testing.assert_array_equal(got.view(np.uint32), np.where(flag != 0, bits[0], bits[1]))


# Key, counter and random words: the vectors of the Random123 library for Threefry-2x32 with 20 rounds.
THREEFRY = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


def check_threefry(apply: Apply) -> None:
    """Known answers of the random bits."""
    for key, counter, words in THREEFRY:
        inputs = [np.full(5, v, np.uint32) for v in (*key, *counter)]
        assert np.all(apply("threefry", *inputs, dtype=np.uint32) == words[0])
        assert np.all(apply("threefry1", *inputs, dtype=np.uint32) == words[1])
        assert np.all(apply("threefryx", *inputs, dtype=np.uint32) == words[0] ^ words[1])
