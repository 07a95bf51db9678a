"""Products that go on with their results before they write them: to the bit what two kernels give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from spirv_device import as_gpu, device, validate

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime.plan import Node, Plan
from funcgrad.runtime.spirv import epilogue
from funcgrad.runtime.spirv.dot import HELD
from funcgrad.runtime.spirv.kernel import Target
from funcgrad.runtime.spirv.lower import _lower, lower
from funcgrad.runtime.vulkan.emitter import VulkanEmitter
from funcgrad.runtime.vulkan.joined import join_products

pytestmark = pytest.mark.ggml
Array = Any
RNG = np.random.default_rng(12)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def lowered(f: Callable[..., Any], *args: Array, donate: frozenset[int] = frozenset()) -> tuple[VulkanEmitter, Plan]:
    graph = fg.make_graph(f)(*args)
    emitter = VulkanEmitter(prepare)
    return emitter, emitter.lower(prepare(getattr(graph, "graph", graph)), donate)


def kinds(f: Callable[..., Any], *args: Array, donate: frozenset[int] = frozenset()) -> Counter[str]:
    return Counter(n.name for n in lowered(f, *args, donate=donate)[1].nodes if not n.elided)


def run(node: Node, known: dict[Any, Array], target: Target) -> None:
    """Run a node on what is known of its operands; its results become known."""
    made = lower(node.kind, node.words, target)
    validate(made)
    written = [node.operands[w] for w in node.writes]
    for b in written:
        known[b] = np.zeros(b.aval.shape, b.aval.dtype)
    device().run(made, [known[b] for b in node.operands], [known[b] for b in written])


def chain(x: Any, y: Any) -> list[Any]:
    a = x + y
    b = a * y
    return [a, b, b > y]


CASES: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "bias": (lambda x, w, b: x @ w + b, (normal(70, 33), normal(33, 50), normal(50))),
    "relu": (lambda x, w, b: fnp.maximum(x @ w + b, 0.0), (normal(64, 32), normal(32, 64), normal(64))),
    "residual": (lambda x, w, y, s: (x @ w) * s + y, (normal(40, 9), normal(9, 130), normal(40, 130), normal(1)[0])),
    "split": (lambda x, w, b: fnp.maximum(x @ w, 0.0) * b, (normal(20, 6000), normal(6000, 10), normal(10))),
    "batch": (lambda x, w, y: x @ w - y, (normal(3, 17, 12), normal(3, 12, 19), normal(3, 17, 19))),
    "rows": (lambda x, w, y: (x @ w) * y[:, None], (normal(36, 20), normal(20, 40), normal(36))),
    "three results": (lambda x, w, y: chain(x @ w, y), (normal(33, 8), normal(8, 35), normal(33, 35))),
    "position": (lambda x, w: x @ w + lax.broadcasted_iota(np.int32, (33, 35), 1), (normal(33, 8), normal(8, 35))),
    "operand": (lambda x, w: x @ w + x, (normal(40, 40), normal(40, 40))),
}


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_one_node_gives_what_two_give(case: str, apart: bool, gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epilogue, "MOST_COST", 0 if apart else 1 << 30)
    _lower.cache_clear()  # what was lowered under another limit
    f, args = CASES[case]
    emitter, plan = lowered(f, *args)
    assert [n.name for n in plan.nodes] == ["dot_map"]
    target = as_gpu() if gpu else device().target
    known = dict(zip(plan.inputs, args, strict=True))
    run(plan.nodes[0], known, target)
    two = dict(zip(plan.inputs, args, strict=True))
    for node in emitter.nodes:
        run(node, two, target)
    with np.errstate(all="ignore"):
        wants = numpy_of(f, args)
    for b, want in zip(plan.outputs, wants, strict=True):
        np.testing.assert_array_equal(known[b], two[b])
        if want.dtype == bool:
            assert np.mean(known[b] == want) > 0.99
        else:
            np.testing.assert_allclose(known[b], want, rtol=2e-4, atol=2e-4)
    _lower.cache_clear()


def numpy_of(f: Callable[..., Any], args: tuple[Array, ...]) -> list[Array]:
    """The function's values by the reference evaluation of its graph on float64."""
    x, w, *rest = [np.asarray(a, np.float64) for a in args]
    y = x @ w
    made: dict[int, Callable[[], Any]] = {
        id(CASES["bias"][0]): lambda: y + rest[0],
        id(CASES["relu"][0]): lambda: np.maximum(y + rest[0], 0),
        id(CASES["residual"][0]): lambda: y * rest[1] + rest[0],
        id(CASES["split"][0]): lambda: np.maximum(y, 0) * rest[0],
        id(CASES["batch"][0]): lambda: y - rest[0],
        id(CASES["rows"][0]): lambda: y * rest[0][:, None],
        id(CASES["three results"][0]): lambda: chain(y, rest[0]),
        id(CASES["position"][0]): lambda: y + np.arange(35.0),
        id(CASES["operand"][0]): lambda: y + x,
    }
    out = made[id(f)]()
    return out if isinstance(out, list) else [out]


def test_a_result_that_others_read_later_is_written_too() -> None:
    x, w, v = normal(40, 24), normal(24, 36), normal(36, 8)

    def f(x: Any, w: Any, v: Any) -> Any:
        y = x @ w
        return fnp.abs(y) @ v, fnp.sum(y, 0)

    _, plan = lowered(f, x, w, v)
    assert Counter(n.name for n in plan.nodes) == {"dot_map": 1, "dot": 1, "reduce": 1}
    known = dict(zip(plan.inputs, (x, w, v), strict=True))
    for node in plan.nodes:
        run(node, known, device().target)
    y = x.astype(np.float64) @ w
    np.testing.assert_allclose(known[plan.outputs[0]], np.abs(y) @ v, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(known[plan.outputs[1]], y.sum(0), rtol=1e-4, atol=1e-4)


def test_a_parameter_is_updated_in_place() -> None:
    p, x, g = normal(30, 20), normal(64, 30), normal(64, 20)
    _, plan = lowered(lambda p, x, g: p - 0.1 * (x.T @ g), p, x, g, donate=frozenset({0}))
    assert [n.name for n in plan.nodes] == ["dot_map"] and plan.alias == {0: 0}
    assert plan.outputs[0].storage is plan.inputs[0].storage and plan.temp_bytes == 0
    # not where the product itself reads the parameter
    _, plan = lowered(lambda p, x: p - 0.1 * (x.T @ (x @ p)), p, x, donate=frozenset({0}))
    run_all = [n.name for n in plan.nodes if not n.elided]
    assert run_all.count("dot_map") == 1 and plan.alias == {0: 0}
    _, plan = lowered(lambda p: p - 0.1 * (p @ p), normal(20, 20), donate=frozenset({0}))
    assert [n.name for n in plan.nodes if not n.elided] == ["dot_map", "map"]  # through the workspace


def test_what_stays_two_nodes() -> None:
    x, w = normal(40, 24), normal(24, 36)
    assert kinds(lambda x, w: (x @ w, x @ w + 1.0), x, w)["dot"] == 1  # a result is not only a step
    assert kinds(lambda x, w: (x @ w).T + fnp.ones((36, 40)) * x[0, 0], x, w) == {"dot": 1, "map": 1}  # another order
    assert kinds(lambda x, w: (x @ w)[:10] * 2.0, x, w) == {"dot": 1, "map": 1}  # not all of it
    wide = np.zeros((2048, 8), np.float32), np.zeros((8, 2048), np.float32)
    assert kinds(lambda x, w: x @ w + 1.0, *wide) == {"dot": 1, "map": 1}  # large
    assert kinds(lambda x, w: fnp.arctan2(x @ w, 2.0), x, w) == {"dot": 1, "map": 1}  # much to do
    many = [normal(40, 36) for _ in range(6)]
    assert kinds(lambda x, w, *ys: sum(ys, x @ w), x, w, *many) == {"dot": 1, "map": 1}  # much to read
    ints = np.zeros((4, 4), np.int32)
    assert kinds(lambda x: x @ x + 1, ints) == {"dot": 1, "map": 1}
    assert join_products([], []) == []


def test_on_matrix_units_the_result_goes_through_scratch_memory() -> None:
    x, w, b = normal(2048, 1024), normal(1024, 1024), normal(1024)

    def f(x: Any, w: Any, b: Any) -> Any:
        with fg.default_matmul_precision("tensorfloat32"):
            return x @ w + b

    _, plan = lowered(f, x, w, b)
    (node,) = plan.nodes
    units = lower(node.kind, node.words, Target(cooperative=True, halves=True, shared_bytes=49152))
    slots = {slot for d in units.dispatches for slot, _ in d.table}
    assert HELD not in slots and min(slots) == -len(units.scratch)
    assert units.scratch[-1] == 4 * 2048 * 1024
    assert len(lower(node.kind, node.words, Target()).dispatches) == 1
