"""What a Vulkan program is made of, without a device: barriers, peaks of operands, estimates of products."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.ir import Aval
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime.spirv.dot import lower_dot
from funcgrad.runtime.spirv.kernel import Target
from funcgrad.runtime.spirv.lower import lower
from funcgrad.runtime.spirv.words import Peak
from funcgrad.runtime.vulkan.emitter import VulkanEmitter
from funcgrad.runtime.vulkan.launches import Launches, Symbol
from funcgrad.runtime.vulkan.peaks import Peaks
from funcgrad.runtime.vulkan.program import Program

pytestmark = pytest.mark.ggml
UNITS = Target(cooperative=True, halves=True, shared_bytes=49152)


def test_what_is_known_of_a_region_is_known_until_it_or_its_place_is_written() -> None:
    where, place = Symbol(3, 256), Symbol(9, 64)
    p = Peak(find=2, scratch=1, slot=0, offset=0, layout=((4, 16), (64, 8)), nbytes=512)
    for writes, known in [
        ((Symbol(3, 0), 256, True), True),
        ((where, 512, False), True),
        ((Symbol(4, 256), 512, True), True),
        ((Symbol(3, 256 + 508), 4, True), False),
        ((Symbol(9, 0), 64, True), True),
        ((Symbol(9, 64 + 31), 1, True), False),
    ]:
        peaks = Peaks()
        assert peaks.find([(where, p)]) == {}
        peaks.learn(where, p, place, 32)
        peaks.forget([writes])
        assert peaks.find([(where, p)]) == ({0: place} if known else {})
    assert peaks.find([(where, p._replace(layout=((64, 8), (4, 16))))]) == {}


def program(fun: Any, *args: Any, target: Target = UNITS) -> Program:
    graph = fg.make_graph(fun)(*args)
    graph = getattr(graph, "graph", graph)
    return Program(VulkanEmitter(prepare).lower(prepare(graph)), lambda kind, words: lower(kind, words, target))


def launches(p: Program) -> int:
    return sum([i.count for i in p.items if isinstance(i, Launches)])


@pytest.mark.parametrize("precision", ["float32", "tensorfloat32"])
def test_products_of_one_operand_share_what_is_known_of_it(precision: str) -> None:
    x, w = np.zeros((2048, 1024), np.float32), np.zeros((1024, 1024), np.float32)
    with fg.default_matmul_precision(precision):
        apart = [launches(program(f, x, w)) for f in (lambda x, w: x @ w, lambda x, w: x @ w.T)]
        both = launches(program(lambda x, w: (x @ w, x @ w.T), x, w))
        other = launches(program(lambda x, w: (x @ w, x.T @ x), x, w))
        alone = launches(program(lambda x, w: x.T @ x, x, w))
    assert both == sum(apart) - 1  # the rows of x
    assert other == apart[0] + alone  # the columns are something else


def dot(m: int, n: int, k: int, precision: int) -> list[int]:
    a, b, c = [(0, 0, 0, 4 * k, 4), (1, 0, 0, 4 * n, 4), (2, 0, 0, 4 * n, 4)]
    return [0, 0, m, n, k, *a, *b, *c, precision]


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (128, 512, 784), (768, 768, 16384), (1, 1, 1), (65, 3, 100000)])
def test_groups_and_scratch_of_products(shape: tuple[int, int, int]) -> None:
    for target in (Target(), UNITS, Target(most_groups=(300, 300, 300))):
        for precision in (0, 1, 2):
            made = lower_dot(dot(*shape, precision), target)
            assert all(
                0 < n <= most for d in made.dispatches for n, most in zip(d.groups, target.most_groups, strict=True)
            )
            used = {~slot for d in made.dispatches for slot, _ in d.table if slot < 0}
            assert used <= set(range(len(made.scratch)))


def test_matrix_units_where_they_are_exact_enough_and_fit() -> None:
    def on_units(m: int, precision: int, target: Target) -> bool:
        return any(d.subgroup == 32 for d in lower_dot(dot(m, 4096, 4096, precision), target).dispatches)

    for precision in (0, 1, 2):
        assert on_units(4096, precision, UNITS)
        assert not on_units(4095, precision, UNITS)
        assert not on_units(4096, precision, UNITS._replace(cooperative=False))
    # float32 and TensorFloat-32 count on float16 with denormals
    rough = UNITS._replace(halves=False)
    assert [on_units(4096, p, rough) for p in (0, 1, 2)] == [False, False, True]


def test_a_loop_of_kernels_is_written_out_and_reads_its_rows() -> None:
    x = np.zeros((5, 8), np.float32)
    p = program(lambda x: fg.lax.scan(lambda c, row: (fnp.tanh(c + row), c), x[0], x), x)
    assert p.is_pure
    whole = p.items[-1].whole()
    rows = sorted({int(o) for w, o in zip(whole.which, whole.offset, strict=True) if w == 0})
    assert rows == [4 * math.prod(Aval((8,), np.float32).shape) * i for i in range(5)]


def shared_bytes(code: bytes) -> int:
    """What the variables that a group shares take, by the types that a module declares."""
    words, at = struct.unpack(f"<{len(code) // 4}I", code), 5
    sizes: dict[int, int] = {}
    numbers: dict[int, int] = {}
    total = 0
    while at < len(words):
        code_of, (length, op) = words[at : at + (words[at] >> 16)], (words[at] >> 16, words[at] & 0xFFFF)
        if op in (21, 22):  # an integer or a float of so many bits
            sizes[code_of[1]] = code_of[2] // 8
        elif op == 23:  # a vector
            sizes[code_of[1]] = sizes.get(code_of[2], 0) * code_of[3]
        elif op == 28:  # an array
            sizes[code_of[1]] = sizes.get(code_of[2], 0) * numbers[code_of[3]]
        elif op == 32:  # a pointer
            sizes[code_of[1]] = sizes.get(code_of[3], 0)
        elif op == 43 and length == 4:  # a constant
            numbers[code_of[2]] = code_of[3]
        elif op == 59 and code_of[3] == 4:  # a variable that a group shares
            total += sizes[code_of[1]]
        at += length
    return total


@pytest.mark.parametrize("precision", [0, 1, 2])
def test_groups_on_matrix_units_fit_the_device(precision: int) -> None:
    most = 0
    for nbytes in (49152, 32768, 16384, 4096):
        target = UNITS._replace(shared_bytes=nbytes)
        used = [
            shared_bytes(d.code) for d in lower_dot(dot(4096, 4096, 4096, precision), target).dispatches if d.subgroup
        ]
        assert all(n <= nbytes for n in used) and (used or nbytes < 32768)
        most = max([most, *used])
    assert most > 16384
    small = lower_dot(dot(4096, 4096, 4096, 0), UNITS._replace(most_invocations=128))
    assert not any(d.subgroup for d in small.dispatches)
