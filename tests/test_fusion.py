"""Fusion, recomputation and placing: the same values as one equation after another, and the graphs they should give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from cpu_graphs import evaluate

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, tree
from funcgrad.ir import Aval, Graph, check_graph
from funcgrad.passes.fuse import FusedRows, fuse
from funcgrad.passes.inline import inline
from funcgrad.passes.masks import masks
from funcgrad.passes.pipeline import prepare
from funcgrad.passes.place import Placed, place
from funcgrad.passes.recompute import recompute
from funcgrad.passes.simplify import dead_code, simplify
from funcgrad.runtime import device, ggml
from funcgrad.trace import trace
from funcgrad.transforms.flat import FlatFunction

F32 = np.float32
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 1.0], F32)


def graph_of(fun: Callable[..., Any], *args: Any) -> Graph:
    avals = [Aval(a.shape, a.dtype) for a in args]
    flat = FlatFunction(fun, tree.structure(tuple(args)), "test")
    return dead_code(inline(simplify(inline(dead_code(trace(flat, avals).graph)))))


def on_cpu(graph: Graph, values: Sequence[Any]) -> list[Any]:
    cpu: Any = device.get("cpu")
    outs = cpu.build(graph, frozenset()).run([cpu.put(v) for v in values])
    return [np.array(cpu.get(b, a.aval)) for b, a in zip(outs, graph.outputs, strict=True)]


def same(got: Sequence[Any], want: Sequence[Any]) -> None:
    """Equal to the bit but for NaNs, which are all alike."""
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        nan = np.isnan(w) if w.dtype.kind == "f" else np.zeros(w.shape, bool)
        np.testing.assert_array_equal(np.isnan(g) if g.dtype.kind == "f" else nan, nan)
        assert np.where(nan, np.zeros((), w.dtype), g).tobytes() == np.where(nan, np.zeros((), w.dtype), w).tobytes()


def layer_norm(x: Any, g: Any) -> Any:
    c = x - x.mean(-1, keepdims=True)
    return c * lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * g


def two_results(x: Any, g: Any) -> Any:
    total = fnp.sum(x * x, -1, keepdims=True)
    return total + x, fnp.sum(x * x, -1), fnp.max(x * g, -1) + 1


def spread_twice(x: Any, g: Any) -> Any:
    top = fnp.min(x, -1, keepdims=True)
    return (x - top) * g, fnp.broadcast_to(top, x.shape)


ROWS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x, g: fg.nn.softmax(x * g),
    "log_softmax": lambda x, g: fg.nn.log_softmax(x),
    "layer_norm": layer_norm,
    "rms_norm": lambda x, g: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g,
    "logsumexp": lambda x, g: fg.nn.logsumexp(x, axis=-1),
    "two_results": two_results,
    "spread_twice": spread_twice,
    "total": lambda x, g: fnp.sum(fnp.exp(x) * g),
    "total_of_leading": lambda x, g: fnp.sum(x * g, axis=(0, -1)),
}
SHAPES = [(3, 9), (4, 7, 65), (33, 128), (2, 3, 4, 31), (5, 4000), (16, 2), (1, 40)]


def arguments(shape: Sequence[int], seed: int = 0) -> list[Any]:
    r = np.random.default_rng([seed, *shape])
    return [r.normal(size=shape).astype(F32), r.normal(size=shape[-1]).astype(F32)]


def gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    return fg.grad(lambda *a: sum(fnp.sum(fnp.sin(0.1 * v)) for v in tree.leaves(fun(*a))), argnums=(0, 1))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_passes_keep_values(name: str, shape: tuple[int, ...]) -> None:
    """By numpy, every equation for itself: fused and unfused graphs agree to the bit."""
    xs = arguments(shape)
    for fun in (ROWS[name], gradient(ROWS[name])):
        flat = graph_of(fun, *xs)
        made = recompute(fuse(place(flat)))
        check_graph(made)
        same(evaluate(made, xs), evaluate(flat, xs))


@pytest.mark.ggml
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_rows_on_the_cpu(name: str, shape: tuple[int, ...]) -> None:
    """Against numpy in float64 as far as the function allows it."""
    xs = arguments(shape)
    for fun in (ROWS[name], gradient(ROWS[name])):
        flat = graph_of(fun, *xs)
        wide = evaluate(flat, xs)
        for got, want in zip(on_cpu(prepare(flat), xs), wide, strict=True):
            scale = np.abs(want).max() if want.size else 0.0
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5 * scale + 1e-7)


def test_normalisations_are_one_equation() -> None:
    for name in ("softmax", "log_softmax", "layer_norm", "rms_norm"):
        eqns = prepare(graph_of(ROWS[name], *arguments((64, 32)))).eqns
        assert sum(isinstance(e.prim, FusedRows) for e in eqns) == 1
        assert sum(e.prim.name not in ("broadcast", "reshape") for e in eqns) == 1


@pytest.mark.ggml
@pytest.mark.parametrize("columns", [16, 20])
def test_special_values_in_rows(columns: int) -> None:
    """Rows with NaN, infinities, zeros of both signs and denormals, fused and not."""
    x = np.resize(SPECIAL, (len(SPECIAL), columns)).astype(F32)
    x[1] = 1.0
    g = np.linspace(-1, 1, columns, dtype=F32)
    for name in ("softmax", "two_results", "spread_twice", "log_softmax"):
        flat = graph_of(ROWS[name], x, g)
        for got, want in zip(on_cpu(prepare(flat), [x, g]), on_cpu(flat, [x, g]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-37)


@pytest.mark.ggml
def test_rows_do_not_depend_on_threads() -> None:
    lib = ggml.load().lib
    xs = arguments((700, 131))
    results = []
    try:
        for n in (1, 2, 5):
            lib.fg_set_threads(n)
            results.append([on_cpu(prepare(graph_of(gradient(f), *xs)), xs) for f in ROWS.values()])
    finally:
        lib.fg_set_threads(0)
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            same(got, want)


@pytest.mark.ggml
def test_half_precision_rows_are_rounded_at_every_step() -> None:
    x = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float16)
    fun = lambda x: fg.nn.softmax(x)
    flat = graph_of(fun, x)
    for got, want in zip(on_cpu(prepare(flat), [x]), on_cpu(flat, [x]), strict=True):
        same([got], [want])


# -- recompute ---------------------------------------------------------------------------------------------------
def test_cheap_values_are_not_kept() -> None:
    """Of tanh's gelu only its argument, the tanh and the result outlive the forward pass."""
    x, b, w = np.ones((64, 128), F32), np.ones(128, F32), np.ones((128, 16), F32)

    def loss(x: Any, b: Any, w: Any) -> Any:
        return fnp.sum(fg.nn.gelu(x @ fnp.ones((128, 128)) + b, approximate=True) @ w)

    graph = prepare(graph_of(fg.grad(loss, argnums=(1, 2)), x, b, w))
    (eqn,) = [e for e in graph.eqns if "tanh" in str(getattr(e.prim, "graph", ""))]
    assert len(eqn.outputs) == 2


def test_recompute_does_not_extend_larger_values() -> None:
    """A mask of bytes is kept rather than the floats that it is made of."""
    x, w = np.ones((64, 64), F32), np.ones((64, 64), F32)
    graph = prepare(graph_of(fg.grad(lambda x, w: fnp.sum(fnp.sin(fg.nn.relu(x @ w) @ w))), x, w))
    kept = [v.aval for e in graph.eqns for v in e.outputs if v.aval.dtype == np.bool_]
    assert kept == [Aval((64, 64), np.dtype(bool))]


# -- place -------------------------------------------------------------------------------------------------------
def split_and_join(x: Any) -> Any:
    a, b, c = fnp.split(x, 3, -1)
    return fnp.sum(fnp.sin(a) * b + c * c * b)


def pooled(x: Any) -> Any:
    return fnp.sum(fnp.sin(lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")))


@pytest.mark.ggml
@pytest.mark.parametrize(
    ("fun", "shape"),
    [(split_and_join, (5, 12)), (pooled, (2, 6, 8, 3)), (pooled, (2, 7, 5, 3))],
    ids=["split", "pool", "pool-rest"],
)
def test_gradients_of_slices_are_placed(fun: Callable[..., Any], shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype(F32)
    x.flat[::5] = -0.0
    flat = graph_of(fg.grad(fun), x)
    made = place(flat)
    assert any(isinstance(e.prim, Placed) for e in made.eqns)
    assert not any(e.prim.name == "pad" for e in made.eqns)
    same(evaluate(made, [x]), evaluate(flat, [x]))
    same(on_cpu(made, [x]), on_cpu(flat, [x]))


def test_overlapping_pads_are_added() -> None:
    x = np.arange(6, dtype=F32)
    flat = graph_of(fg.grad(lambda x: fnp.sum(x[:4] * 2) + fnp.sum(x[2:] * 3)), x)
    assert not any(isinstance(e.prim, Placed) for e in place(flat).eqns)
    (got,) = evaluate(place(flat), [x])
    np.testing.assert_array_equal(got, [2, 2, 5, 5, 3, 3])


# -- masks -------------------------------------------------------------------------------------------------------
def rectified(x: Any, *ws: Any) -> Any:
    for w in ws:
        x = fg.nn.relu(x @ w)
    return fnp.sum(x * x)


def kept_masks(graph: Graph) -> list[Aval]:
    return [v.aval for e in graph.eqns for v in e.outputs if v.aval.dtype == np.bool_]


def test_a_mask_is_made_again_from_a_result_that_is_kept() -> None:
    args = [np.ones((64, 64), F32)] * 5
    graph = prepare(graph_of(fg.grad(rectified, argnums=(1, 2, 3, 4)), *args))
    assert kept_masks(graph) == []


def test_a_mask_is_kept_where_the_result_is_not() -> None:
    args = [np.ones((64, 64), F32)] * 5
    graph = prepare(graph_of(fg.grad(rectified), *args))
    assert len(kept_masks(graph)) >= 3


def test_a_mask_that_is_read_before_the_result_is_not_made_from_it() -> None:
    x, n = np.linspace(-1, 1, 12, dtype=F32), np.arange(12, dtype=F32)

    def fun(x: Any, n: Any) -> Any:
        (slope,) = fg.vjp(fg.nn.relu, x)[1](n)  # the rectifier itself is not needed here
        return fnp.sin(slope), fg.nn.relu(x), fg.vjp(fg.nn.relu, x)[1](2 * n)[0]

    graph = simplify(graph_of(fun, x, n))
    check_graph(masks(graph))
    want = [np.sin(np.where(x > 0, n, 0)), np.maximum(x, 0), np.where(x > 0, 2 * n, 0)]
    for got, w in zip(fg.jit(fun)(x, n), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), w, rtol=1e-6)


def test_masks_made_again_are_the_same() -> None:
    x = np.resize(SPECIAL, (4, 30))
    n = np.random.default_rng(0).normal(size=(4, 30)).astype(F32)

    def fun(x: Any, n: Any) -> Any:
        r = fg.nn.relu(x)
        out, vjp = fg.vjp(fg.nn.relu, x)
        return out, r.T @ r, vjp(n)[0], r

    graph = simplify(graph_of(fun, x, n))
    again = masks(graph)
    assert again is not graph
    check_graph(again)
    same(evaluate(again, [x, n]), evaluate(graph, [x, n]))
    want = np.where(x <= 0, F32(0), n)
    np.testing.assert_array_equal(evaluate(again, [x, n])[2], want)
