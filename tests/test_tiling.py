"""Tiling of batched products: the same bits as one node after another, and what is and is not tiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from test_fusion import F32, graph_of, on_cpu, same

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime import emit, ggml
from funcgrad.runtime.emit import Emitter

pytestmark = pytest.mark.ggml


def attention(q: Any, k: Any, v: Any) -> Any:
    t = q.aval.shape[2] if hasattr(q, "aval") else q.shape[2]
    s = fnp.einsum("bhqd,bhkd->bhqk", q, k) * np.float32(0.125)
    s = fnp.where(fnp.tril(fnp.ones((t, t), bool)), s, -np.inf)
    return fg.nn.softmax(s) @ v


def packed(x: Any, w: Any) -> Any:
    """The operands are slices of one array, heads lie inside, the mask is as long as the batch."""
    b, t, d = 4, 160, 16
    q, k, v = [a.reshape(b, t, 4, d // 4) for a in fnp.split(x @ w, 3, -1)]
    s = fnp.einsum("bqhd,bkhd->bhqk", q, k)
    s = fnp.where(fnp.sum(x, -1)[:, None, None, :] > 0, s, -1e9)
    return fnp.einsum("bhqk,bkhd->bqhd", fg.nn.softmax(s), v).reshape(b, t, d)


def shared_result(q: Any, k: Any, v: Any) -> Any:
    """The scores are a result too."""
    s = fnp.einsum("bhqd,bhkd->bhqk", q, k)
    return s, fg.nn.softmax(s) @ v


def across_the_batch(q: Any, k: Any, v: Any) -> Any:
    """What follows the product mixes the elements of the batch."""
    s = fnp.einsum("bhqd,bhkd->bhqk", q, k)
    return (s - s.mean(0, keepdims=True)) @ v


def reversed_batch(q: Any, k: Any, v: Any) -> Any:
    s = fnp.einsum("bhqd,bhkd->bhqk", q, k)
    return fnp.tanh(s[::-1]) @ v


def heads(seed: int = 0, t: int = 96) -> list[Any]:
    r = np.random.default_rng(seed)
    return [r.normal(size=(4, 4, t, 16)).astype(F32) for _ in range(3)]


def words(seed: int = 0) -> list[Any]:
    r = np.random.default_rng(seed)
    return [r.normal(size=(4, 160, 16)).astype(F32), r.normal(size=(16, 48)).astype(F32)]


CASES: list[tuple[Callable[..., Any], Callable[..., list[Any]], bool]] = [
    (attention, heads, True),
    (packed, words, True),
    (shared_result, heads, True),
    (across_the_batch, heads, False),
    (reversed_batch, heads, False),
]


def kinds(graph: Any) -> list[str]:
    plan = Emitter(prepare).lower(graph)
    return [n.name for n in plan.nodes]


def untiled(monkeypatch: pytest.MonkeyPatch, graph: Any, xs: Sequence[Any]) -> list[Any]:
    with monkeypatch.context() as m:
        m.setattr(emit, "tile", lambda nodes: nodes)
        return on_cpu(graph, xs)


@pytest.mark.parametrize(("fun", "make", "tiled"), CASES, ids=lambda c: getattr(c, "__name__", ""))
def test_tiles_give_the_same_bits(
    fun: Callable[..., Any], make: Callable[..., list[Any]], tiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    xs = make()
    graph = prepare(graph_of(fun, *xs))
    assert ("tiles" in kinds(graph)) == tiled
    same(on_cpu(graph, xs), untiled(monkeypatch, graph, xs))


@pytest.mark.parametrize(("fun", "make"), [c[:2] for c in CASES], ids=[c[0].__name__ for c in CASES])
def test_gradients(fun: Callable[..., Any], make: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    xs = make(1)
    loss = lambda *a: sum(fnp.sum(fnp.sin(v)) for v in fg.tree.leaves(fun(*a)))
    graph = prepare(graph_of(fg.grad(loss, argnums=tuple(range(len(xs)))), *xs))
    same(on_cpu(graph, xs), untiled(monkeypatch, graph, xs))


def test_against_float64() -> None:
    q, k, v = [x.astype(np.float64) for x in heads(2)]
    s = np.where(np.tril(np.ones((96, 96), bool)), q @ k.swapaxes(-1, -2) * 0.125, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    (got,) = on_cpu(prepare(graph_of(attention, *heads(2))), heads(2))
    np.testing.assert_allclose(got, p / p.sum(-1, keepdims=True) @ v, rtol=2e-5, atol=2e-6)


def test_bits_do_not_depend_on_threads() -> None:
    lib = ggml.load().lib
    graph = prepare(graph_of(fg.grad(lambda *a: fnp.sum(fnp.sin(attention(*a))), argnums=(0, 1, 2)), *heads()))
    results = []
    try:
        for n in (1, 2, 5):
            lib.fg_set_threads(n)
            results.append(on_cpu(graph, heads()))
    finally:
        lib.fg_set_threads(0)
    same(results[1], results[0])
    same(results[2], results[0])


def test_small_products_stay_apart() -> None:
    assert "tiles" not in kinds(prepare(graph_of(attention, *heads(t=8))))


def test_the_scores_are_in_no_plan() -> None:
    plan = Emitter(prepare).lower(prepare(graph_of(attention, *heads())))
    assert plan.temp_bytes < 4 * 4 * 96 * 96 * 4 / 2


def test_words_that_lie_are_refused() -> None:
    library = ggml.load()
    good = [1, 8, 0, 1, 0, 1, 0, 4, 11, 1, 1, 1, 1, 1, 0, 0, 0, 0, 4]
    for cut in range(len(good)):
        err = library.new_message()
        data = library.ffi.new("int64_t[]", good[:cut] or [0])
        assert library.lib.fg_kernel_new(10, data, cut, err, 256) == library.ffi.NULL
        assert library.text(err)
