"""What a Vulkan program is made of, without a device: barriers, peaks of operands, estimates of products."""

from __future__ import annotations

import math
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
UNITS = Target(cooperative=True, shared_bytes=49152)


def test_a_peak_is_found_once_until_the_region_is_written() -> None:
    peaks, where = Peaks(7), Symbol(3, 256)
    p = Peak(clear=0, find=2, scratch=1, slot=0, offset=0, layout=((4, 16), (64, 8)))
    assert p.nbytes == 4 * 16 * 8
    scratch = [Symbol(7, 0), Symbol(9, 9)]
    assert peaks.find([(where, p)], scratch) == {0} and scratch[1] == Symbol(7, 0)
    assert peaks.find([(where, p)], scratch) == {0, 2}
    peaks.forget([(Symbol(3, 0), 256, True), (where, 512, False), (Symbol(4, 256), 512, True)])
    assert peaks.find([(where, p)], scratch) == {0, 2}
    peaks.forget([(Symbol(3, 256 + 508), 4, True)])
    assert peaks.find([(where, p)], scratch) == {0} and scratch[1] == Symbol(7, 4)


def program(fun: Any, *args: Any, target: Target = UNITS) -> Program:
    graph = fg.make_graph(fun)(*args)
    graph = getattr(graph, "graph", graph)
    return Program(VulkanEmitter(prepare).lower(prepare(graph)), lambda kind, words: lower(kind, words, target))


def launches(p: Program) -> int:
    return sum([i.count for i in p.items if isinstance(i, Launches)])


def test_products_of_one_operand_share_its_peak() -> None:
    x, w = np.zeros((2048, 1024), np.float32), np.zeros((1024, 1024), np.float32)

    def chain(x: Any, w: Any) -> Any:
        with fg.default_matmul_precision("tensorfloat32"):
            return x @ w, x @ w.T, (x @ w).T @ x

    p = program(chain, x, w)
    assert p._peaks.count == 3  # of x, of w, and of x @ w
    exact = program(lambda x, w: (x @ w, x @ w.T, (x @ w).T @ x), x, w)
    assert exact._peaks.count == 0 and launches(exact) < launches(p)


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


def test_matrix_units_only_where_a_cheaper_precision_is_asked_for() -> None:
    exact, cheap = [lower_dot(dot(4096, 4096, 4096, p), UNITS) for p in (0, 2)]
    odd = lower_dot(dot(4095, 4096, 4096, 2), UNITS)
    assert not exact.dispatches[0].subgroup and cheap.dispatches[0].subgroup == 32
    assert not odd.dispatches[0].subgroup


def test_a_loop_of_kernels_is_written_out_and_reads_its_rows() -> None:
    x = np.zeros((5, 8), np.float32)
    p = program(lambda x: fg.lax.scan(lambda c, row: (fnp.tanh(c + row), c), x[0], x), x)
    assert p.is_pure
    whole = p.items[-1].whole()
    rows = sorted({int(o) for w, o in zip(whole.which, whole.offset, strict=True) if w == 0})
    assert rows == [4 * math.prod(Aval((8,), np.float32).shape) * i for i in range(5)]
