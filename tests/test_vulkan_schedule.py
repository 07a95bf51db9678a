"""The order of a Vulkan program's launches, against what each touches byte by byte; memory that rests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime.arena import ALIGN, Arena
from funcgrad.runtime.levels import Levels
from funcgrad.runtime.plan import Buf, Node
from funcgrad.runtime.spirv.kernel import Dispatch, Target
from funcgrad.runtime.spirv.lower import lower
from funcgrad.runtime.vulkan.emitter import VulkanEmitter
from funcgrad.runtime.vulkan.launches import Launches, Symbol
from funcgrad.runtime.vulkan.program import Program
from funcgrad.runtime.vulkan.schedule import Schedule, Touch, strided

pytestmark = pytest.mark.ggml
Box = tuple[int, int, tuple[int, ...], tuple[int, ...], bool]  # memory, offset, dims, strides, written


def bytes_of(box: Box) -> set[tuple[int, int]]:
    """Every byte that a view of elements of 4 bytes has."""
    number, offset, dims, strides, _ = box
    elements = [
        offset + sum(i * s for i, s in zip(at, strides, strict=True)) for at in itertools.product(*map(range, dims))
    ]
    return {(number, e + k) for e in elements for k in range(4)}


def touch(box: Box) -> Touch:
    number, offset, dims, strides, written = box
    return strided(Symbol(number, offset), dims, strides, 4, written)


def random_box(rng: np.random.Generator) -> Box:
    dims = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 4)))
    strides = tuple(int(s) * 4 for s in rng.choice([-16, -4, -1, 0, 1, 2, 4, 8, 16, 24], len(dims)))
    low = sum((n - 1) * s for n, s in zip(dims, strides, strict=True) if s < 0)
    return int(rng.integers(2)), int(rng.integers(24)) * 4 - low, dims, strides, bool(rng.integers(2))


def levels(nodes: list[list[Box]], work: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """The nodes in the order in which they are launched, and how many barriers come before each."""
    schedule, launches = Schedule(), Launches()
    for n, boxes in enumerate(nodes):
        schedule.add(Dispatch(b"", (1, 1, 1), ()), [], [touch(b) for b in boxes], n, work[n] if work else 0)
    schedule.launch(launches)
    whole = launches.whole()
    return whole.nodes.tolist(), np.cumsum(whole.barrier).tolist()


@pytest.mark.parametrize("seed", range(40))
def test_kernels_that_share_bytes_keep_their_order_with_a_barrier_between(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = [[random_box(rng) for _ in range(rng.integers(1, 4))] for _ in range(30)]
    order, at = levels(nodes, rng.integers(0, 3, 30).tolist())
    assert sorted(order) == list(range(len(nodes)))
    interval = dict(zip(order, at, strict=True))
    for (i, first), (j, second) in itertools.combinations(enumerate(nodes), 2):
        for a, b in itertools.product(first, second):
            if (a[-1] or b[-1]) and bytes_of(a) & bytes_of(b):
                assert interval[i] < interval[j], (a, b)


def test_a_region_has_its_first_and_its_last_byte() -> None:
    t = strided(Symbol(3, 100), (2, 3), (-40, 8), 4, True)
    assert t[:3] == (Symbol(3, 60), 60, True)
    assert (t.pitch, t.width) == (40, 20)


def test_columns_of_one_array_are_written_side_by_side() -> None:
    parts: list[list[Box]] = [[(0, 32 * k, (8, 8), (96, 4), True)] for k in range(3)]
    assert levels(parts) == ([0, 1, 2], [1, 1, 1])
    assert levels([*parts, [(0, 0, (192,), (4,), False)]])[1] == [1, 1, 1, 2]
    overlapping: list[list[Box]] = [[(0, 28 * k, (8, 8), (96, 4), True)] for k in range(3)]
    assert levels(overlapping)[1] == [1, 2, 3]
    assert levels([parts[0], [(0, 32, (4, 8), (192, 4), True)]])[1] == [1, 2]  # another pitch: nobody looks closer


def test_a_kernel_moves_before_those_that_wait() -> None:
    a: Box = (0, 0, (16,), (4,), True)
    b: Box = (0, 64, (16,), (4,), True)
    chain: list[list[Box]] = [
        [a],
        [(0, 0, (16,), (4,), False), b],
        [(0, 64, (16,), (4,), False)],
        [(1, 0, (1,), (4,), True)],
    ]
    assert levels(chain) == ([0, 3, 1, 2], [1, 1, 2, 3])


@pytest.mark.parametrize("seed", range(10))
def test_there_are_no_more_barriers_than_the_longest_chain(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes: list[list[Box]] = [
        [(0, int(rng.integers(200)) * 4, (int(rng.integers(1, 20)),), (4,), bool(rng.integers(2))) for _ in range(2)]
        for _ in range(25)
    ]
    longest: list[int] = []
    for node in nodes:
        before = [
            length
            for length, other in zip(longest, nodes, strict=False)
            if any((a[-1] or b[-1]) and bytes_of(a) & bytes_of(b) for a, b in itertools.product(node, other))
        ]
        longest.append(1 + max(before, default=0))
    _, at = levels(nodes, rng.integers(0, 3, 25).tolist())
    assert max(at) == max(longest)


def test_what_nothing_waits_for_runs_beside_the_next_work() -> None:
    chain: list[list[Box]] = [[(0, 0, (8,), (4,), True)] for _ in range(4)]
    aside: list[list[Box]] = [[(1, 0, (8,), (4,), True)], [(1, 0, (8,), (4,), False), (2, 0, (8,), (4,), True)]]
    nodes = [chain[0], aside[0], aside[1], *chain[1:]]
    assert levels(nodes) == ([0, 1, 2, 3, 4, 5], [1, 1, 2, 2, 3, 4])
    order, at = levels(nodes, [0, 0, 0, 7, 0, 9])  # the second and the last of the chain have work
    assert order == [0, 3, 1, 4, 5, 2] and at == [1, 2, 2, 3, 4, 4]


def test_every_launch_of_a_program_is_there_and_waits_for_its_own_first_half() -> None:
    def f(x: fg.Array) -> fg.Array:
        return fnp.sum(x), fnp.sum(x, 0), fnp.max(x), x @ x.T

    graph = fg.make_graph(f)(np.ones((512, 512), np.float32))
    graph = getattr(graph, "graph", graph)
    plan = VulkanEmitter(prepare).lower(prepare(graph))
    p = Program(plan, lambda kind, words: lower(kind, words, Target()))
    (launches,) = p.items
    whole = launches.whole()
    interval = np.cumsum(whole.barrier)
    for n in set(whole.nodes.tolist()):
        mine = interval[whole.nodes == n].tolist()
        assert mine == list(range(1, len(mine) + 1))  # none waits for another's


def test_memory_that_was_given_back_rests_for_a_while() -> None:
    arena = Arena(slack=2 * ALIGN)
    a, b, c = [arena.take(ALIGN) for _ in range(3)]
    arena.give(a, ALIGN)
    arena.give(b, ALIGN)
    d = arena.take(ALIGN)
    assert d not in (a, b, c)
    arena.give(c, ALIGN)  # a's rest is over
    assert arena.take(ALIGN) == a
    assert arena.size == 4 * ALIGN


def test_an_operand_with_another_reader_is_not_written_over() -> None:
    """Two readers of one value, of which the second may take its memory: with slack they run side by side."""

    def f(x: fg.Array, w: fg.Array) -> fg.Array:
        y = fnp.cumsum(x, 0)
        return fnp.sum(fnp.where(y > x, 2, 1), 0), fnp.tanh(y) @ w

    x = np.ones((64, 64), np.float32)
    graph = fg.make_graph(f)(x, x)
    graph = prepare(getattr(graph, "graph", graph))
    plan = VulkanEmitter(prepare).lower(graph)
    (launches,) = Program(plan, lambda kind, words: lower(kind, words, Target())).items
    whole = launches.whole()
    interval = dict(zip(whole.nodes.tolist(), np.cumsum(whole.barrier).tolist(), strict=True))
    maps = [interval[n] for n, node in enumerate(plan.nodes) if node.name == "map"]
    assert len(maps) == 2 and maps[0] == maps[1]


def test_levels_follow_what_is_read_and_not_where_it_lies() -> None:
    values = [Buf(Aval((16,), dtypes.float32)) for _ in range(12)]
    levels = Levels(slack=1 << 10)

    def node(out: int, *xs: int) -> int:
        levels.come(Node(9, [], [values[k] for k in (*xs, out)], [len(xs)]))
        return levels.level

    assert [node(1, 0), node(2, 1), node(3, 1)] == [1, 2, 2]
    assert not levels.is_behind_readers(values[1])  # node 2 reads it, side by side
    assert node(4, 2, 1) == 3 and levels.is_behind_readers(values[1])
    assert [node(k + 1, k) for k in range(4, 10)] == [4, 5, 6, 7, 8, 9]
    assert node(11, 0) == 9 - 4  # far from its place it does not move: what it makes would live long
    assert Levels(slack=0).is_behind_readers(values[1]) and Levels(slack=8).is_behind_readers(values[1])
