"""Products that write where their results are wanted: fewer kernels, the same values as numpy's in float64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.errors import DeviceError
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime.vulkan.emitter import VulkanEmitter

pytestmark = pytest.mark.ggml
Array = Any
RNG = np.random.default_rng(5)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def kinds(f: Callable[..., Any], *args: Any) -> Counter[str]:
    """How many nodes of each kind the plan for a Vulkan device has; a product that goes on is a product and a map."""
    graph = fg.make_graph(f)(*args)
    plan = VulkanEmitter(prepare).lower(prepare(getattr(graph, "graph", graph)))
    names = [node.name.replace("dot_map", "dot map").split() for node in plan.nodes if not node.elided]
    return Counter(name for several in names for name in several)


def check(f: Callable[..., Any], reference: Callable[..., Any], *args: Array) -> None:
    """Compare with numpy in float64 on a Vulkan device, if there is one, and on the CPU."""
    devices = fg.devices("cpu")[:1]
    with suppress(DeviceError):
        devices += fg.devices("vulkan")[:1]
    wants = reference(*[a.astype(np.float64) if a.dtype == np.float32 else a for a in args])
    for device in devices:
        outs = fg.jit(f, device=device)(*args)
        for got, want in zip(outs, wants, strict=True):
            np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-5)


def heads_forward(x: Any, w: Any, p: Any, np_: Any) -> Any:
    b, t, d = x.shape
    q, k, v = [a.reshape(b, t, 4, d // 4) for a in np_.split(x @ w, 3, -1)]
    s = np_.einsum("bqhd,bkhd->bhqk", q, k)
    return np_.einsum("bhqk,bkhd->bqhd", s, v).reshape(b, t, d) @ p


def test_heads_are_not_copied() -> None:
    x, w, p = normal(2, 8, 16) * 0.3, normal(16, 48) * 0.3, normal(16, 16) * 0.3
    got = kinds(lambda x, w, p: heads_forward(x, w, p, fnp), x, w, p)
    assert got == {"dot": 4}
    check(lambda x, w, p: [heads_forward(x, w, p, fnp)], lambda x, w, p: [heads_forward(x, w, p, np)], x, w, p)


def test_parts_of_the_gradient_of_heads_are_written_in_place() -> None:
    x, w, p, c = normal(2, 8, 16) * 0.5, normal(16, 48) * 0.5, normal(16, 16) * 0.5, normal(2, 8, 16)

    def loss(x: Any, w: Any, p: Any, c: Any) -> Any:
        return fnp.sum(heads_forward(x, w, p, fnp) * c)

    def reference(x: Array, w: Array, p: Array, c: Array) -> list[Array]:
        b, t, d = x.shape
        q, k, v = [a.reshape(b, t, 4, d // 4) for a in np.split(x @ w, 3, -1)]
        s = np.einsum("bqhd,bkhd->bhqk", q, k)
        o = np.einsum("bhqk,bkhd->bqhd", s, v).reshape(b, t, d)
        do = (c @ p.T).reshape(b, t, 4, d // 4)
        ds, dv = np.einsum("bqhd,bkhd->bhqk", do, v), np.einsum("bhqk,bqhd->bkhd", s, do)
        dq, dk = np.einsum("bhqk,bkhd->bqhd", ds, k), np.einsum("bhqk,bqhd->bkhd", ds, q)
        dh = np.concatenate([a.reshape(b, t, d) for a in (dq, dk, dv)], -1)
        return [dh @ w.T, np.einsum("btd,bte->de", x, dh), np.einsum("btd,bte->de", o, c)]

    grad = fg.grad(loss, argnums=(0, 1, 2))
    assert kinds(grad, x, w, p, c) == {"dot": 3 + 1 + 4 + 3, "map": 1}  # the cotangent of the product with c
    check(grad, reference, x, w, p, c)


def test_a_transposed_result_is_written_transposed() -> None:
    a, b = normal(3, 5, 7), normal(3, 7, 6)
    f = lambda a, b: [(fnp.transpose(a @ b, (2, 0, 1))).reshape(18, 5)]
    assert kinds(f, a, b) == {"dot": 1}
    check(f, lambda a, b: [np.transpose(a @ b, (2, 0, 1)).reshape(18, 5)], a, b)


def test_a_result_with_two_readers_is_copied() -> None:
    a, b = normal(3, 5, 7), normal(3, 7, 6)

    def f(np_: Any) -> Callable[..., Any]:
        def of(a: Any, b: Any) -> Any:
            y = a @ b
            return [np_.transpose(y, (2, 0, 1)).reshape(18, 5), y * 2.0]

        return of

    assert kinds(f(fnp), a, b)["map"] == 2
    check(f(fnp), f(np), a, b)


@pytest.mark.parametrize("gap", [0, 2])
def test_gradients_of_slices_that_leave_a_gap(gap: int) -> None:
    """With a gap zeros are written first, and the pieces behind them."""
    x, w = normal(4, 6 + gap), normal(3, 3)

    def f(x: Any, w: Any) -> Any:
        return fnp.sum((x[:, :3] @ w) ** 2) + fnp.sum((x[:, 3 + gap :] @ w) ** 2)

    def reference(x: Array, w: Array) -> list[Array]:
        out = np.zeros(x.shape)
        for part in (slice(0, 3), slice(3 + gap, None)):
            out[:, part] = 2.0 * (x[:, part] @ w) @ w.T
        return [out]

    grad = lambda x, w: [fg.grad(f)(x, w)]
    assert kinds(grad, x, w) == ({"dot": 4, "map": 2} if not gap else {"dot": 4, "map": 2 + 3})
    check(grad, reference, x, w)


def test_steps_between_the_elements_of_pieces() -> None:
    x, w = normal(6, 8), normal(6, 5)

    def f(x: Any, w: Any) -> Any:
        return fnp.sum((x[:, 0::2].T @ w) ** 2) + fnp.sum((x[:, 1::2].T @ w) ** 3)

    def reference(x: Array, w: Array) -> list[Array]:
        out = np.zeros(x.shape)
        out[:, 0::2] = (2.0 * (x[:, 0::2].T @ w) @ w.T).T
        out[:, 1::2] = (3.0 * (x[:, 1::2].T @ w) ** 2 @ w.T).T
        return [out]

    check(lambda x, w: [fg.grad(f)(x, w)], reference, x, w)


def test_products_over_nothing_are_zeros() -> None:
    a, b = np.zeros((3, 5, 0), np.float32), np.zeros((3, 0, 6), np.float32)
    f = lambda a, b: [fnp.transpose(a @ b, (2, 0, 1)).reshape(18, 5) + 1.0]
    check(f, lambda a, b: [np.ones((18, 5))], a, b)


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_the_gradient_of_one_element_a_row_takes_no_scatter(mode: str) -> None:
    """Out of range nothing was read in mode "fill", in mode "clip" the nearest."""
    x, c = normal(5, 7), normal(5, 1)
    index = np.array([[0], [6], [3], [-9], [9]], np.int32)

    def f(x: Any) -> Any:
        return fnp.nansum(fnp.take_along_axis(x, index, 1, mode=mode) * c)

    want = np.zeros(x.shape)
    for row, at in enumerate(index[:, 0]):
        if mode == "clip" or 0 <= at < 7:
            want[row, min(max(at, 0), 6)] = c[row, 0]
    grad = lambda x: [fg.grad(f)(x)]
    check(grad, lambda x: [want], x)
    assert "scatter" not in kinds(grad, x)
    several = lambda x: fnp.nansum(fnp.take_along_axis(x, np.repeat(index, 2, 1), 1, mode=mode))
    assert kinds(fg.grad(several), x)["scatter"] == 1


def test_a_group_of_constants_takes_no_kernel() -> None:
    x = normal(4, 6)

    def f(x: Any) -> Any:
        return fnp.mean(x) * 3.0

    grad = lambda x: [fg.grad(f)(x)]
    assert kinds(grad, x) == {"map": 1}  # the one that writes the result
    check(grad, lambda x: [np.full(x.shape, 3.0 / 24)], x)


def test_parts_of_a_gradient_that_a_group_computes_are_one_kernel() -> None:
    """As in a recurrent cell; a part's -0 becomes 0, as in a sum with a padding's 0."""
    x, c = normal(6, 12), normal(6, 4)
    x[0, :4] = 0.0

    def f(x: Any, c: Any) -> Any:
        i, g, o = fnp.split(x, 3, 1)
        return fnp.sum(fnp.tanh(i) * fnp.tanh(g) * o * c)

    def reference(x: Array, c: Array) -> list[Array]:
        i, g, o = np.split(x, 3, 1)
        s, t = np.tanh(i), np.tanh(g)
        return [np.concatenate([(1 - s**2) * t * o * c, s * (1 - t**2) * o * c, s * t * c], 1)]

    grad = lambda x, c: [fg.grad(f)(x, c)]
    assert kinds(grad, x, c) == {"map": 1}
    check(grad, reference, x, c)
    with suppress(DeviceError):
        (vulkan,) = fg.jit(grad, device=fg.devices("vulkan")[0])(x, -np.abs(c))
        (cpu,) = fg.jit(grad, device="cpu")(x, -np.abs(c))
        assert not np.signbit(np.asarray(vulkan))[np.asarray(cpu) == 0].any()
        assert not np.signbit(np.asarray(cpu))[np.asarray(cpu) == 0].any()


def test_products_and_sums_are_written_into_the_vector_of_them_all() -> None:
    x, w, b = normal(6, 5), normal(5, 7), normal(7)

    def f(x: Any, w: Any, b: Any) -> Any:
        y = x @ w + b
        g = [x.T @ y, fnp.sum(y, 0), fnp.sum(w @ w.T, 0)]
        whole = fnp.concatenate([fnp.ravel(a) for a in g])
        return [fnp.max(whole), g[0] * 2.0, g[1] + 1.0, g[2] - 1.0]

    def reference(x: Array, w: Array, b: Array) -> list[Array]:
        y = x @ w + b
        g = [x.T @ y, np.sum(y, 0), np.sum(w @ w.T, 0)]
        return [np.concatenate([a.ravel() for a in g]).max(), g[0] * 2.0, g[1] + 1.0, g[2] - 1.0]

    check(f, reference, x, w, b)
    got = kinds(f, x, w, b)
    assert got["map"] == 1 + 3  # the sum with b, and the last three results: no copies into the vector


def test_a_part_that_is_there_twice_or_is_a_result_too() -> None:
    a, b = normal(4, 3), normal(3, 5)

    def f(np_: Any) -> Callable[..., Any]:
        def of(a: Any, b: Any) -> Any:
            y, s = a @ b, np_.sum(b, 0)
            whole = np_.concatenate([s, np_.ravel(y), s, np_.ravel(y), np_.ravel(np_.transpose(y))])
            return [whole * 3.0, y, np_.concatenate([s, s]), s - 1.0]

        return of

    check(f(fnp), f(np), a, b)
