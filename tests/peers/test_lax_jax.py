"""lax against JAX under randomly drawn parameters: gather, scatter, convolutions, windows, slices; with gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import funcgrad as fg
from funcgrad import lax


def f32(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def agree(ours: Any, theirs: Any, *args: Any, tolerance: float = 2e-5) -> None:
    """Equal values, and equal gradients of a weighted sum by all float arguments."""
    want = np.asarray(jax.jit(theirs)(*args))
    np.testing.assert_allclose(fg.jit(ours)(*args), want, rtol=tolerance, atol=tolerance)
    weights = f32(*want.shape, seed=99)
    floats = [i for i, a in enumerate(args) if a.dtype == np.float32]
    by_jax = jax.jit(jax.grad(lambda *a: jnp.nansum(theirs(*a) * weights), floats))(*args)
    by_us = fg.jit(fg.grad(lambda *a: (ours(*a) * weights).sum(), tuple(floats)))(*args)
    for got, grad in zip(by_us, by_jax, strict=True):
        np.testing.assert_allclose(got, grad, rtol=tolerance, atol=tolerance)


# -- gather and scatter ------------------------------------------------------------------------------------------
def draw(seed: int) -> tuple[Any, ...]:
    """An operand's shape, slice sizes, which axes are indexed and which collapse, and indices partly out of range."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape = tuple(int(n) for n in rng.integers(2, 5, rank))
    sizes = tuple(int(rng.integers(1, n + 1)) for n in shape)
    collapsed = tuple(d for d in range(rank) if sizes[d] == 1 and rng.random() < 0.7)
    mapped = tuple(int(d) for d in rng.permutation(rank)[: rng.integers(1, rank + 1)])
    lead = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 3)))
    indices = rng.integers(-1, 5, (*lead, len(mapped))).astype(np.int32)
    window = [s for d, s in enumerate(sizes) if d not in collapsed]
    out_rank = len(lead) + len(window)
    offset = tuple(sorted(int(d) for d in rng.permutation(out_rank)[: len(window)]))
    return shape, sizes, collapsed, mapped, lead, indices, offset, window


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_gather(seed: int, mode: str) -> None:
    shape, sizes, collapsed, mapped, _, indices, offset, _ = draw(seed)
    ours, theirs = [n(offset, collapsed, mapped) for n in (lax.GatherDimensionNumbers, jax.lax.GatherDimensionNumbers)]
    options = {"mode": mode, "fill_value": 7.0 if mode == "fill" else None}
    agree(
        lambda x, i: lax.gather(x, i, ours, sizes, **options),
        lambda x, i: jax.lax.gather(x, i, theirs, sizes, **options),
        f32(*shape, seed=seed),
        indices,
    )


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("name", ["scatter_add", "scatter_sub", "scatter_max", "scatter_min"])
def test_scatter(seed: int, name: str) -> None:
    shape, _, collapsed, mapped, lead, indices, offset, window = draw(seed)
    numbers = [lax.ScatterDimensionNumbers, jax.lax.ScatterDimensionNumbers]
    ours, theirs = [n(offset, collapsed, mapped) for n in numbers]
    axes = iter(lead)
    inner = iter(window)
    full = [next(inner) if d in offset else next(axes) for d in range(len(lead) + len(window))]
    # JAX's gradient of scatter_max with "clip" and a window out of range is infinite where differences are finite.
    mode = "clip" if seed % 2 and name in ("scatter_add", "scatter_sub") else None
    agree(
        lambda x, i, u: getattr(lax, name)(x, i, u, ours, mode=mode),
        lambda x, i, u: getattr(jax.lax, name)(x, i, u, theirs, mode=mode),
        f32(*shape, seed=seed),
        indices,
        f32(*full, seed=seed + 1),
    )


def test_gather_and_scatter_with_batch_axes() -> None:
    x, at = f32(3, 5, 2), np.array([[1], [4], [0]], np.int32)
    ours = lax.GatherDimensionNumbers((1,), (1,), (1,), (0,), (0,))
    theirs = jax.lax.GatherDimensionNumbers((1,), (1,), (1,), (0,), (0,))
    agree(lambda a, i: lax.gather(a, i, ours, (1, 1, 2)), lambda a, i: jax.lax.gather(a, i, theirs, (1, 1, 2)), x, at)
    to = lax.ScatterDimensionNumbers((1,), (1,), (1,), (0,), (0,))
    there = jax.lax.ScatterDimensionNumbers((1,), (1,), (1,), (0,), (0,))
    agree(
        lambda a, i, u: lax.scatter_add(a, i, u, to),
        lambda a, i, u: jax.lax.scatter_add(a, i, u, there),
        x,
        at,
        f32(3, 2, seed=1),
    )


# -- convolution -------------------------------------------------------------------------------------------------
LAYOUTS = {1: ("NHC", "HIO", "NHC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}


@pytest.mark.parametrize("seed", range(20))
def test_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    some = lambda low, high: tuple(int(v) for v in rng.integers(low, high, n))
    groups, batch_groups = [(1, 1), (2, 1), (1, 2)][rng.integers(0, 3)]
    layout = None if rng.random() < 0.5 else LAYOUTS[n]
    spatial, window = some(3, 6), some(1, 4)
    x = (2 * batch_groups, 2 * groups, *spatial) if layout is None else (2 * batch_groups, *spatial, 2 * groups)
    k = (4, 2, *window) if layout is None else (*window, 2, 4)
    padding = ["SAME", "VALID", "SAME_LOWER", [(1, 2)] * n][rng.integers(0, 4)]
    options: dict[str, Any] = {
        "window_strides": some(1, 3),
        "padding": padding,
        "lhs_dilation": None if isinstance(padding, str) else some(1, 3),
        "rhs_dilation": some(1, 3),
        "dimension_numbers": layout,
        "feature_group_count": groups,
        "batch_group_count": batch_groups,
    }
    agree(
        lambda a, b: lax.conv_general_dilated(a, b, **options),
        lambda a, b: jax.lax.conv_general_dilated(a, b, **options),
        f32(*x, seed=seed),
        f32(*k, seed=seed + 1),
        tolerance=1e-4,
    )


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(2, 1), (0, 3)]])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3), (3, 1)])
@pytest.mark.parametrize("transpose_kernel", [False, True])
def test_transposed_convolution(padding: Any, strides: Any, transpose_kernel: bool) -> None:
    x, k = f32(2, 4, 3, 2), f32(2, 3, *((3, 2) if transpose_kernel else (2, 3)), seed=1)
    options = {"strides": strides, "padding": padding, "transpose_kernel": transpose_kernel}
    agree(
        lambda a, b: lax.conv_transpose(a, b, **options),
        lambda a, b: jax.lax.conv_transpose(a, b, **options),
        x,
        k,
        tolerance=1e-4,
    )


@pytest.mark.parametrize("layout", [None, ("NHWC", "HWIO", "NHWC")])
def test_patches(layout: Any) -> None:
    options: dict[str, Any] = {
        "filter_shape": (2, 3),
        "window_strides": (1, 2),
        "padding": "SAME",
        "dimension_numbers": layout,
    }
    agree(
        lambda a: lax.conv_general_dilated_patches(a, **options),
        lambda a: jax.lax.conv_general_dilated_patches(a, **options),
        f32(2, 4, 5, 3),
    )


# -- windows and order -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ["add", "max", "min"])
def test_reduce_window(seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    some = lambda low, high: tuple(int(v) for v in rng.integers(low, high, 2))
    start = {"add": 0.0, "max": -np.inf, "min": np.inf}[name]
    options = {
        "window_dimensions": some(1, 4),
        "window_strides": some(1, 3),
        "padding": ["SAME", "VALID", ((1, 0), (0, 2))][seed % 3],
        "window_dilation": some(1, 3) if name == "add" else None,
    }
    agree(
        lambda a: lax.reduce_window(a, start, getattr(lax, name), **options),
        lambda a: jax.lax.reduce_window(a, start, getattr(jax.lax, name), **options),
        f32(6, 7, seed=seed),
    )


@pytest.mark.parametrize("start", [-9, -1, 0, 2, 9])
def test_dynamic_slices(start: int) -> None:
    x, u, at = f32(5, 4), f32(2, 3, seed=1), np.int32(start)
    agree(
        lambda a, i: lax.dynamic_slice(a, (i, 1), (2, 3)), lambda a, i: jax.lax.dynamic_slice(a, (i, 1), (2, 3)), x, at
    )
    agree(
        lambda a, b, i: lax.dynamic_update_slice(a, b, (i, i)),
        lambda a, b, i: jax.lax.dynamic_update_slice(a, b, (i, i)),
        x,
        u,
        at,
    )


def test_order() -> None:
    x = f32(4, 9)
    agree(lambda a: lax.top_k(a, 4)[0], lambda a: jax.lax.top_k(a, 4)[0], x)
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        for reverse in (False, True):
            agree(
                lambda a, n=name, r=reverse: getattr(lax, n)(a, 1, r),
                lambda a, n=name, r=reverse: getattr(jax.lax, n)(a, 1, r),
                x,
            )
    agree(lambda a: lax.sort((a, a * a))[1], lambda a: jax.lax.sort((a, a * a))[1], x)
