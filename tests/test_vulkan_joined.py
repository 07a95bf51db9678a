"""Reductions that compute their elements: what the two nodes give that they are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from spirv_device import as_gpu, device, validate

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime.emit import Emitter
from funcgrad.runtime.plan import Node, Plan
from funcgrad.runtime.spirv.lower import lower
from funcgrad.runtime.vulkan.emitter import VulkanEmitter
from funcgrad.runtime.vulkan.joined import join_reductions

pytestmark = pytest.mark.ggml
Array = Any
RNG = np.random.default_rng(11)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def planned(f: Callable[..., Any], *args: Array) -> Plan:
    graph = fg.make_graph(f)(*args)
    return VulkanEmitter(prepare).lower(prepare(getattr(graph, "graph", graph)))


def nodes(f: Callable[..., Any], *args: Array) -> Counter[str]:
    return Counter(n.name for n in planned(f, *args).nodes if not n.elided)


def run(node: Node, xs: list[Array], gpu: bool) -> Array:
    """Run one node whose last operand is its result, split as on a GPU or not."""
    lowered = lower(node.kind, node.words, as_gpu() if gpu else device().target)
    validate(lowered)
    out = np.zeros(node.operands[-1].aval.shape, node.operands[-1].aval.dtype)
    device().run(lowered, [*xs, out], [out])
    return out


CASES: list[tuple[Callable[..., Any], Callable[..., Any], tuple[Array, ...]]] = [
    (lambda x: fnp.max(fnp.abs(x)), lambda x: np.abs(x).max(), (normal(70_001),)),
    (lambda x: fnp.sum((x * 0.5) ** 2), lambda x: ((x * 0.5) ** 2).sum(), (normal(4, 9001),)),
    (lambda x, y: fnp.sum(x / y[2], 0), lambda x, y: (x / y[2]).sum(0), (normal(300, 40), normal(3))),
    (lambda x, y: fnp.sum(x * y, 0), lambda x, y: (x * y).sum(0), (normal(300, 40), normal(300, 40))),
    (lambda x, m: fnp.sum(x - m[:, None], 0), lambda x, m: (x - m[:, None]).sum(0), (normal(64, 30), normal(64))),
    (lambda x, y: fnp.sum(x * y, (0, 1)), lambda x, y: (x * y).sum((0, 1)), (normal(9, 57, 33), normal(9, 57, 33))),
    (lambda x, y: fnp.min(x * y[0], 1), lambda x, y: (x * y[0]).min(1), (normal(5, 4, 9), normal(3))),
    (lambda x, y: fnp.argmax(x - y, 1), lambda x, y: (x - y).argmax(1), (normal(50, 6), normal(50, 6))),
]


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_one_node_gives_what_two_give(case: int, gpu: bool) -> None:
    f, reference, args = CASES[case]
    graph = fg.make_graph(f)(*args)
    graph = prepare(getattr(graph, "graph", graph))
    emitter = VulkanEmitter(prepare)
    plan = emitter.lower(graph)
    (node,) = plan.nodes
    assert node.name == "map_reduce"
    order = [plan.inputs.index(b) for b in node.operands[:-1]]
    got = run(node, [args[i] for i in order], gpu)
    np.testing.assert_allclose(got, reference(*[a.astype(np.float64) for a in args]), rtol=1e-5, atol=2e-5)
    made, reduction = emitter.nodes
    assert (made.name, reduction.name) == ("map", "reduce")
    between = run(made, [args[plan.inputs.index(b)] for b in made.operands[:-1]], gpu)
    np.testing.assert_allclose(got, run(reduction, [between], gpu), rtol=2e-6, atol=2e-6)  # in other segments


def test_what_others_read_stays_a_node_of_its_own() -> None:
    x = normal(40, 8)
    assert nodes(lambda x: fnp.sum(fnp.exp(x), 0), x) == {"map_reduce": 1}
    assert nodes(lambda x: (fnp.exp(x), fnp.sum(fnp.exp(x), 0)), x) == {"map": 1, "reduce": 1}
    assert nodes(lambda x: (lambda y: (fnp.sum(y, 0), y @ y.T))(fnp.exp(x)), x) == {"map": 1, "reduce": 1, "dot": 1}


def test_elements_of_other_types_and_orders_stay_nodes_of_their_own() -> None:
    x = normal(40, 8)
    assert nodes(lambda x: fnp.sum((x > 0).astype(fnp.int32), 0), x) == {"map": 1, "reduce": 1}
    assert nodes(lambda x, y: fnp.sum(x * y.T, 0), x, normal(8, 40)) == {"map": 1, "reduce": 1}
    many = [normal(40, 8) for _ in range(9)]
    assert nodes(lambda *xs: fnp.sum(sum(xs[1:], xs[0]), 0), *many) == {"map": 1, "reduce": 1}
    assert nodes(lambda x: fnp.sum(fnp.concatenate([x, x], 1), 0), x) == {"map": 2, "reduce": 1}


def test_the_cpu_has_two_nodes() -> None:
    graph = fg.make_graph(lambda x: fnp.sum(fnp.exp(x), 0))(normal(40, 8))
    graph = prepare(getattr(graph, "graph", graph))
    assert Counter(n.name for n in Emitter(prepare).lower(graph).nodes) == {"map": 1, "reduce": 1}
    assert join_reductions([], []) == []
