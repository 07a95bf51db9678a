"""Primitives against JAX in float64: values and gradients under randomly drawn parameters, ties and special values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from funcgrad import dtypes
from funcgrad.ir import Aval, Literal
from funcgrad.passes.reverse import vjp_graph
from funcgrad.primitive import Primitive
from funcgrad.prims.contract import Conv, DotGeneral
from funcgrad.prims.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum
from funcgrad.prims.dynamic import DynamicSlice, DynamicUpdateSlice
from funcgrad.prims.index import Scatter, Take, TakeAlong
from funcgrad.prims.order import Argmax, Argmin, Argsort, ReduceMax, ReduceMin, ReduceProd, Sort
from funcgrad.prims.window import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum
from funcgrad.trace import bind_all, trace

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """JAX in float64, for this file only."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def evaluate(graph: Any, values: Sequence[Any]) -> list[Any]:
    env = dict(zip(graph.inputs, values, strict=True))
    for eqn in graph.eqns:
        outs = eqn.prim.evaluate(*[a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs])
        env.update(zip(eqn.outputs, outs, strict=True))
    return [a.value if isinstance(a, Literal) else env[a] for a in graph.outputs]


def agree(prim: Primitive, reference: Any, *values: Any, grads: bool = True, seed: int = 0) -> None:
    """Compare results, and cotangents of the float operands for a random cotangent of the float results."""
    values = tuple(np.asarray(v) for v in values)
    graph = trace(lambda *xs: bind_all(prim, *xs), [Aval(v.shape, v.dtype) for v in values]).graph
    want = reference(*map(jnp.asarray, values))
    wants = list(want) if isinstance(want, (tuple, list)) else [want]
    outs = evaluate(graph, values)
    for got, w in zip(outs, wants, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-12, atol=1e-12, err_msg=str(prim))
    if not grads:
        return
    floats = [i for i, v in enumerate(values) if dtypes.is_float(v.dtype)]

    def of_floats(*xs: Any) -> list[Any]:
        full = [jnp.asarray(v) for v in values]
        for i, x in zip(floats, xs, strict=True):
            full[i] = x
        out = reference(*full)
        every = list(out) if isinstance(out, (tuple, list)) else [out]
        return [o for o in every if jnp.issubdtype(o.dtype, jnp.floating)]

    rng = np.random.default_rng(seed)
    cts = [rng.uniform(-1, 1, o.shape) for o in outs if dtypes.is_float(o.dtype)]
    _, pull = jax.vjp(of_floats, *[jnp.asarray(values[i]) for i in floats])
    backward = vjp_graph(graph, [dtypes.is_float(v.dtype) for v in values])
    ours = evaluate(backward, [*values, *cts])[len(outs) :]
    for got, w in zip(ours, pull([jnp.asarray(c) for c in cts]), strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-10, atol=1e-11, err_msg=f"gradient of {prim}")


def seeds(n: int) -> Any:
    return pytest.mark.parametrize("seed", range(n))


# -- contractions ------------------------------------------------------------------------------------------------
@seeds(24)
def test_dot_general(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, contract, left, right = [list(rng.integers(1, 4, rng.integers(0, 3))) for _ in range(4)]

    def axes(kinds: list[list[int]]) -> tuple[list[int], list[tuple[int, ...]]]:
        sizes = [s for k in kinds for s in k]
        order = rng.permutation(len(sizes))
        where = np.argsort(order)
        ends = np.cumsum([0, *map(len, kinds)])
        return [sizes[i] for i in order], [tuple(map(int, where[a:b])) for a, b in itertools.pairwise(ends)]

    x_shape, (lb, lc, _) = axes([batch, contract, left])
    y_shape, (rb, rc, _) = axes([batch, contract, right])
    x, y = rng.normal(size=x_shape), rng.normal(size=y_shape)
    agree(DotGeneral(lc, rc, lb, rb), lambda a, b: lax.dot_general(a, b, ((lc, rc), (lb, rb))), x, y)


@seeds(36)
def test_conv(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    pick = lambda high: tuple(map(int, rng.integers(1, high, d)))
    blocks = int(rng.integers(1, 4))
    kind = seed % 3
    groups, batch_groups = (1, 1) if kind == 0 else (blocks, 1) if kind == 1 else (1, blocks)
    n, c, o = int(rng.integers(1, 3)) * batch_groups, int(rng.integers(1, 3)) * groups, int(rng.integers(1, 3)) * blocks
    window, strides, base, dilation = pick(4), pick(4), pick(3), pick(3)
    spatial = pick(7 if d < 3 else 5)
    padding = tuple((int(a), int(b)) for a, b in rng.integers(-1, 4, (d, 2)))
    if any((s - 1) * b + 1 + lo + hi < 0 for s, b, (lo, hi) in zip(spatial, base, padding, strict=True)):
        padding = ((0, 0),) * d
    x, k = rng.normal(size=(n, *spatial, c)), rng.normal(size=(*window, c // groups, o))
    names = "DHW"[:d]
    numbers = (f"N{names}C", f"{names}IO", f"N{names}C")

    def reference(a: Any, b: Any) -> Any:
        return lax.conv_general_dilated(
            a, b, strides, padding, base, dilation, numbers, groups, batch_groups, precision="highest"
        )

    prim = Conv(strides, padding, base, dilation, groups, batch_groups)
    agree(prim, reference, x, k, grads=0 not in reference(x, k).shape)


# -- windows -----------------------------------------------------------------------------------------------------
@seeds(30)
def test_reduce_window(seed: int) -> None:
    """Small integers as floats, so that ties are frequent: the first maximum, row by row, takes the cotangent."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    pick = lambda high: tuple(map(int, rng.integers(1, high, d)))
    which = seed % 3
    prim_type = (ReduceWindowSum, ReduceWindowMax, ReduceWindowMin)[which]
    op, init = ((lax.add, 0.0), (lax.max, -np.inf), (lax.min, np.inf))[which]
    window, strides, dilation, shape = pick(4), pick(4), pick(3), pick(7)
    base = pick(3) if which == 0 else (1,) * d
    padding = tuple((int(a), int(b)) for a, b in rng.integers(0, 2, (d, 2)))
    if which:
        # JAX's gradient of a maximum knows no dilation.
        dilation = (1,) * d
    x = rng.integers(0, 4, shape).astype(np.float64)

    def reference(a: Any) -> Any:
        return lax.reduce_window(a, init, op, window, strides, padding, base, dilation)

    prim = prim_type(window, strides, padding, base, dilation)
    agree(prim, reference, x, grads=0 not in reference(x).shape)


@seeds(8)
def test_reduce_window_dilated_maximum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    window, strides, base, dilation, shape = [tuple(map(int, rng.integers(1, 4, 2))) for _ in range(5)]
    padding = tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (2, 2)))
    x = rng.normal(size=shape)

    def reference(a: Any) -> Any:
        return lax.reduce_window(a, -jnp.inf, lax.max, window, strides, padding, base, dilation)

    agree(ReduceWindowMax(window, strides, padding, base, dilation), reference, x, grads=False)


# -- order -------------------------------------------------------------------------------------------------------
SPECIAL = np.array([[1, np.nan, 2, np.nan], [np.inf, -np.inf, 0, np.inf], [-0.0, 0.0, -np.inf, -np.inf], [3, 3, 3, 1]])


@pytest.mark.parametrize("axis", [0, 1])
def test_special_values(axis: int) -> None:
    x = SPECIAL
    agree(Argmax(axis), lambda a: jnp.argmax(a, axis), x, grads=False)
    agree(Argmin(axis), lambda a: jnp.argmin(a, axis), x, grads=False)
    agree(ReduceMax((axis,)), lambda a: jnp.max(a, axis), x, grads=False)
    agree(ReduceMin((axis,)), lambda a: jnp.min(a, axis), x, grads=False)
    agree(Argsort(axis), lambda a: jnp.argsort(a, axis), x, grads=False)
    agree(Sort(axis), lambda a: lax.sort([a], dimension=axis), x, grads=False)
    for reverse in (False, True):
        agree(CumMax(axis, reverse), lambda a, r=reverse: lax.cummax(a, axis, r), x, grads=False)
        agree(CumMin(axis, reverse), lambda a, r=reverse: lax.cummin(a, axis, r), x, grads=False)
        agree(CumSum(axis, reverse), lambda a, r=reverse: lax.cumsum(a, axis, r), x, grads=False)
        # JAX's gradient after two -inf is NaN.
        finite = np.where(np.isfinite(x), x, 5.0)
        agree(CumLogSumExp(axis, reverse), lambda a, r=reverse: lax.cumlogsumexp(a, axis, r), finite)


@seeds(4)
def test_reductions(seed: int) -> None:
    """Ties share equally; products with zeros are exact."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-1, 3, (3, 4, 2)).astype(np.float64)
    for axes in ((0,), (1,), (0, 2), (0, 1, 2)):
        agree(ReduceMax(axes), lambda a, ax=axes: jnp.max(a, ax), x, seed=seed)
        agree(ReduceMin(axes), lambda a, ax=axes: jnp.min(a, ax), x, seed=seed)
        agree(ReduceProd(axes), lambda a, ax=axes: jnp.prod(a, ax), x, seed=seed)


@seeds(4)
def test_cumulative(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis, reverse = seed % 2, seed % 4 > 1
    x = rng.permutation(35).reshape(5, 7) / 7 - 2
    agree(CumSum(axis, reverse), lambda a: lax.cumsum(a, axis, reverse), x)
    agree(CumMax(axis, reverse), lambda a: lax.cummax(a, axis, reverse), x)
    agree(CumMin(axis, reverse), lambda a: lax.cummin(a, axis, reverse), x)
    agree(CumLogSumExp(axis, reverse), lambda a: lax.cumlogsumexp(a, axis, reverse), 40 * x)
    agree(CumProd(axis, reverse), lambda a: lax.cumprod(a, axis, reverse), rng.integers(-1, 3, (5, 7)) / 1.0)


@seeds(6)
def test_sort(seed: int) -> None:
    rng = np.random.default_rng(seed)
    key, other = rng.integers(0, 4, (4, 6)).astype(np.float64), rng.normal(size=(4, 6))
    index = rng.integers(0, 99, (4, 6)).astype(np.int32)
    axis = seed % 2
    agree(
        Sort(axis), lambda a, b, c: lax.sort([a, b, c], dimension=axis, num_keys=1, is_stable=True), key, other, index
    )
    agree(Sort(axis), lambda a, b: lax.sort([a, b], dimension=axis, num_keys=1, is_stable=True), index, other)


# -- indexing ----------------------------------------------------------------------------------------------------
@seeds(6)
def test_take(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, 4, 2))
    index = rng.integers(0, 6, rng.integers(1, 4, seed % 3)).astype(np.int32)
    axis, mode = seed % 3, ("clip", "fill")[seed % 2]
    agree(Take(axis, mode), lambda a, i: jnp.take(a, i, axis, mode=mode), x, index)
    shape = list(x.shape)
    shape[axis] = 5
    along = rng.integers(0, 6, shape).astype(np.int32)
    agree(TakeAlong(axis, mode), lambda a, i: jnp.take_along_axis(a, i, axis, mode=mode), x, along)


def test_take_fills_as_jax_does() -> None:
    index = np.array([0, 9], np.int32)
    for dtype in (np.float32, np.int32, np.uint32, np.bool_):
        x = np.ones(3, dtype)
        [got] = Take(0, "fill").evaluate(x, index)
        np.testing.assert_array_equal(got, jnp.take(jnp.asarray(x), index, 0, mode="fill"))


@seeds(4)
@pytest.mark.parametrize("op", ["set", "add", "mul", "min", "max"])
def test_scatter(op: str, seed: int) -> None:
    """Values with repeated and far indices; gradients, where JAX has them, for indices that differ."""
    rng = np.random.default_rng(seed)
    x, updates = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))

    def reference(mode: str) -> Any:
        name = {"mul": "multiply"}.get(op, op)
        return lambda a, i, u: getattr(a.at[i], name)(u, mode=mode, unique_indices=mode == "drop" and op == "mul")

    apart = rng.permutation(7)[:4].astype(np.int32)
    agree(Scatter(op), reference("drop"), x, apart, updates, grads=op not in ("min", "max"))
    again = rng.integers(0, 3, 4).astype(np.int32)
    name = {"mul": "multiply"}.get(op, op)
    grads = op in ("add", "set")
    agree(Scatter(op), lambda a, i, u: getattr(a.at[i], name)(u, mode="drop"), x, again, updates, grads=grads)


@seeds(4)
def test_dynamic_slices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, starts = rng.normal(size=(4, 5, 3)), rng.integers(-2, 6, 3).astype(np.int32)
    # JAX counts negative starts from the end before it clamps; here they are clamped.
    starts = np.abs(starts)
    sizes = tuple(map(int, rng.integers(1, 4, 3)))
    agree(DynamicSlice(sizes), lambda a, *s: lax.dynamic_slice(a, s, sizes), x, *starts)
    update = rng.normal(size=sizes)
    agree(DynamicUpdateSlice(), lambda a, u, *s: lax.dynamic_update_slice(a, u, s), x, update, *starts)
