"""What the array API standard asks of manipulation, searching, sorting, sets, reductions and products.

Arrays and arguments are drawn by hypothesis; the references are Python's own numbers and lists, or numpy.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from test_array_api_values import FILLED, arrays, drawn, same, xps

import funcgrad.numpy as fnp


# -- manipulation ------------------------------------------------------------------------------------------------
@given(arrays(), st.integers(-8, 8))
@drawn
def test_expand_dims_and_squeeze(pair: Any, axis: int) -> None:
    x, host = pair
    if not -host.ndim - 1 <= axis <= host.ndim:
        with pytest.raises(IndexError):
            fnp.expand_dims(x, axis=axis)
        return
    y = fnp.expand_dims(x, axis=axis)
    same(y, np.expand_dims(host, axis))
    same(fnp.squeeze(y, axis), host)
    same(fnp.squeeze(y, (axis,)), host)
    if host.ndim and host.shape[0] != 1:
        with pytest.raises(ValueError):
            fnp.squeeze(x, 0)


@given(arrays(), st.data())
@drawn
def test_orders_of_axes_and_elements(pair: Any, data: Any) -> None:
    x, host = pair
    axes = data.draw(xps.valid_tuple_axes(host.ndim))
    same(fnp.flip(x), np.flip(host))
    same(fnp.flip(x, axis=axes), np.flip(host, axes))
    order = data.draw(st.permutations(range(host.ndim)))
    same(fnp.permute_dims(x, tuple(order)), host.transpose(order))
    shift = data.draw(st.integers(-(10**6), 10**6))
    same(fnp.roll(x, shift), np.roll(host, shift))
    if axes:
        shifts = tuple(data.draw(st.lists(st.integers(-9, 9), min_size=len(axes), max_size=len(axes))))
        same(fnp.roll(x, shifts, axis=axes), np.roll(host, shifts, axes))
        to = tuple(data.draw(st.permutations(axes)))
        same(fnp.moveaxis(x, axes, to), np.moveaxis(host, axes, to))
    same(fnp.reshape(x, (-1,)), host.reshape(-1) if host.size else host.reshape(0))
    same(fnp.reshape(x, host.shape, copy=True), host)
    if host.ndim >= 2:
        same(fnp.matrix_transpose(x), host.swapaxes(-1, -2))
        same(x.mT, host.swapaxes(-1, -2))


@given(arrays(shape=FILLED), st.data())
@drawn
def test_concat_stack_repeat_tile(pair: Any, data: Any) -> None:
    x, host = pair
    axis = data.draw(st.integers(-host.ndim, host.ndim - 1))
    other = np.repeat(host, 2, axis)
    same(fnp.concat([x, fnp.asarray(other)], axis=axis), np.concatenate([host, other], axis))
    same(fnp.concat((x, fnp.asarray(other)), axis=None), np.concatenate([host, other], None))
    same(fnp.stack([x, x], axis=axis), np.stack([host, host], axis))
    parts = fnp.unstack(x, axis=axis)
    assert isinstance(parts, tuple)
    for got, want in zip(parts, np.moveaxis(host, axis, 0), strict=True):
        same(got, want)
    times = data.draw(st.integers(0, 3))
    same(fnp.repeat(x, times), np.repeat(host, times))
    counts = data.draw(st.lists(st.integers(0, 3), min_size=host.shape[axis], max_size=host.shape[axis]))
    same(fnp.repeat(x, fnp.asarray(counts), axis=axis), np.repeat(host, counts, axis))
    tiles = tuple(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=host.ndim + 1)))
    same(fnp.tile(x, tiles), np.tile(host, tiles))


# -- searching, sorting, sets ------------------------------------------------------------------------------------
@given(arrays(shape=FILLED), st.data())
@drawn
def test_searching(pair: Any, data: Any) -> None:
    x, host = pair
    axis = data.draw(st.none() | st.integers(-host.ndim, host.ndim - 1))
    keep = data.draw(st.booleans())
    for name in ("argmax", "argmin"):
        want = getattr(np, name)(host, axis=axis, keepdims=keep)
        same(getattr(fnp, name)(x, axis=axis, keepdims=keep), want, fnp.int32)
    same(fnp.count_nonzero(x, axis=axis, keepdims=keep), np.count_nonzero(host, axis=axis, keepdims=keep), fnp.int32)
    for got, places in zip(fnp.nonzero(x), np.nonzero(host), strict=True):
        same(got, places, fnp.int32)
    with pytest.raises(ValueError):
        fnp.nonzero(fnp.asarray(host.ravel()[0]))


@given(arrays(shape=(7,), names=("int32", "float32")), arrays(names=("int32", "float32")))
@drawn
def test_searchsorted(edges: Any, points: Any) -> None:
    (x, a), (y, b) = edges, points
    order = np.argsort(a, kind="stable")
    for side in ("left", "right"):
        want = np.searchsorted(a, b, side=side, sorter=order)
        same(fnp.searchsorted(x, y, side=side, sorter=fnp.asarray(order)), want, fnp.int32)
        same(fnp.searchsorted(fnp.sort(x), y, side=side), want, fnp.int32)


@given(arrays(shape=FILLED, names=("int32", "float32")), st.booleans(), st.booleans(), st.data())
@drawn
def test_sorting(pair: Any, descending: bool, stable: bool, data: Any) -> None:
    x, host = pair
    axis = data.draw(st.integers(-host.ndim, host.ndim - 1))
    order = np.argsort(-host.astype(np.float64) if descending else host, axis, kind="stable")
    want = np.take_along_axis(host, order, axis)
    same(fnp.sort(x, axis=axis, descending=descending, stable=stable), want)
    places = fnp.argsort(x, axis=axis, descending=descending, stable=stable)
    assert places.dtype == fnp.int32
    np.testing.assert_array_equal(np.take_along_axis(host, np.asarray(places), axis), want)
    if stable:
        np.testing.assert_array_equal(np.asarray(places), order)


@given(arrays(low=-3, high=3), st.booleans())
@drawn
def test_sets(pair: Any, nans: bool) -> None:
    x, host = pair
    if nans and host.dtype == np.float32:
        host = np.where(host > 1, np.float32(np.nan), host)
        x = fnp.asarray(host)
    found = fnp.unique_all(x)
    flat = host.ravel().tolist()
    counts = Counter(v for v in flat if v == v)
    values = np.asarray(found.values).tolist()
    assert found.values.dtype == x.dtype and sum(v != v for v in values) == sum(v != v for v in flat)
    assert Counter(v for v in values if v == v) == Counter(counts.keys())
    for v, i, c in zip(values, np.asarray(found.indices), np.asarray(found.counts), strict=True):
        assert (flat[i] != flat[i] and c == 1) if v != v else (flat.index(v) == i and counts[v] == c)
    assert found.inverse_indices.shape == host.shape
    np.testing.assert_array_equal(np.asarray(found.values)[np.asarray(found.inverse_indices)].reshape(host.shape), host)
    assert {found.indices.dtype, found.inverse_indices.dtype, found.counts.dtype} == {np.dtype("int32")}
    np.testing.assert_array_equal(np.asarray(fnp.unique_values(x)), values)
    np.testing.assert_array_equal(np.asarray(fnp.unique_counts(x).counts), np.asarray(found.counts))
    same(fnp.unique_inverse(x).inverse_indices, np.asarray(found.inverse_indices))


# -- reductions --------------------------------------------------------------------------------------------------
@given(arrays(), st.booleans(), st.data())
@drawn
def test_reductions(pair: Any, keep: bool, data: Any) -> None:
    x, host = pair
    axis = data.draw(st.none() | xps.valid_tuple_axes(host.ndim))
    options = {"axis": axis, "keepdims": keep}
    same(fnp.all(x, **options), np.all(host, **options))
    same(fnp.any(x, **options), np.any(host, **options))
    if host.dtype == np.bool_:
        return
    assume(host.size < 12)
    wide = host.astype(np.float64 if host.dtype == np.float32 else np.int64)
    rtol = 1e-4
    for name in ("sum", "prod"):
        want = getattr(np, name)(wide, **options)
        if np.all(np.abs(want) < (2**31 if host.dtype == np.int32 else 1e30)):
            same(getattr(fnp, name)(x, **options), want, x.dtype, rtol)
            same(getattr(fnp, name)(x, dtype=fnp.float32, **options), want, fnp.float32, rtol)
    if not host.size:
        return
    same(fnp.max(x, **options), host.max(**options))
    same(fnp.min(x, **options), host.min(**options))
    if host.dtype == np.float32:
        same(fnp.mean(x, **options), wide.mean(**options), fnp.float32, rtol)
        same(fnp.var(x, correction=0, **options), wide.var(**options), fnp.float32, 1e-3)
        same(fnp.std(x, correction=0.0, **options), wide.std(**options), fnp.float32, 1e-3)


@given(arrays(shape=FILLED, names=("int32", "float32"), low=-9, high=9), st.booleans(), st.data())
@drawn
def test_cumulative_and_differences(pair: Any, initial: bool, data: Any) -> None:
    x, host = pair
    axis = data.draw(st.integers(-host.ndim, host.ndim - 1))
    for name, reference in (("cumulative_sum", np.cumsum), ("cumulative_prod", np.cumprod)):
        want = reference(host, axis)
        if initial:
            edge = np.full_like(np.take(want, [0], axis), name == "cumulative_prod")
            want = np.concatenate([edge, want], axis)
        got = getattr(fnp, name)(x, axis=axis, include_initial=initial)
        same(got, want.astype(host.dtype), x.dtype, 1e-3)
    n = data.draw(st.integers(0, 3))
    same(fnp.diff(x, axis=axis, n=n), np.diff(host, n, axis))
    same(fnp.diff(x, axis=axis, prepend=x, append=x), np.diff(host, 1, axis, host, host))
    with pytest.raises(ValueError):
        fnp.cumulative_sum(fnp.asarray(host.ravel()[0]))


# -- products ----------------------------------------------------------------------------------------------------
@given(st.sampled_from(("int32", "float32")), st.data())
@drawn
def test_products(name: str, data: Any) -> None:
    stack = data.draw(xps.mutually_broadcastable_shapes(2, max_dims=2, max_side=3, min_side=1)).input_shapes
    n, k, m = (data.draw(st.integers(0, 4)) for _ in range(3))
    limits = {"low": -30, "high": 30}
    x, a = data.draw(arrays(shape=(*stack[0], n, k), names=(name,), **limits))
    y, b = data.draw(arrays(shape=(*stack[1], k, m), names=(name,), **limits))
    wide = [v.astype(np.float64) for v in (a, b)]
    for got in (fnp.matmul(x, y), x @ y, fnp.linalg.matmul(x, y)):
        np.testing.assert_allclose(np.asarray(got), np.matmul(*wide), rtol=1e-4, atol=1e-3)
        assert got.dtype == x.dtype
    u, v = data.draw(arrays(shape=(k,), names=(name,), **limits))
    np.testing.assert_allclose(np.asarray(fnp.matmul(x, u)), np.matmul(wide[0], v), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(np.asarray(fnp.vecdot(x, u)), (wide[0] * v).sum(-1), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(np.asarray(fnp.tensordot(x, u, axes=1)), wide[0] @ v, rtol=1e-4, atol=1e-3)
    same(fnp.linalg.outer(u, u), np.outer(v, v), rtol=1e-4)
    for bad in ((fnp.asarray(1), x), (x, fnp.ones((k + 1, 2), dtype=x.dtype))):
        with pytest.raises((TypeError, ValueError)):
            fnp.matmul(*bad)


@given(arrays(shape=xps.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=4)), st.integers(-6, 6))
@drawn
def test_diagonals(pair: Any, offset: int) -> None:
    x, host = pair
    same(fnp.linalg.diagonal(x, offset=offset), np.diagonal(host, offset, -2, -1))
    if host.dtype != np.bool_:
        same(fnp.linalg.trace(x, offset=offset), np.trace(host, offset, -2, -1).astype(host.dtype), rtol=1e-4)


@given(st.integers(1, 4), st.integers(0, 3), st.data())
@drawn
def test_linear_algebra(n: int, stacked: int, data: Any) -> None:
    """Stacks of well-conditioned matrices; every result has the operand's dtype and reproduces it."""
    lead = (stacked,) if stacked else ()
    _, noise = data.draw(arrays(shape=(*lead, n, n), names=("float32",), low=-1, high=1))
    a = (noise / (4 * n) + np.eye(n)).astype(np.float32)
    s = (a @ a.swapaxes(-1, -2)).astype(np.float32)
    x, y, linalg = fnp.asarray(a), fnp.asarray(s), fnp.linalg
    eye = np.broadcast_to(np.eye(n), a.shape)
    near: Any = {"rtol": 1e-3, "atol": 1e-4}
    for upper in (False, True):
        c = np.asarray(linalg.cholesky(y, upper=upper))
        product = c.swapaxes(-1, -2) @ c if upper else c @ c.swapaxes(-1, -2)
        np.testing.assert_allclose(product, s, **near)
    np.testing.assert_allclose(np.asarray(linalg.inv(x)) @ a, eye, **near)
    np.testing.assert_allclose(np.asarray(linalg.pinv(x)) @ a, eye, **near)
    np.testing.assert_allclose(np.asarray(linalg.solve(x, y)), np.linalg.solve(a, s), **near)
    np.testing.assert_allclose(np.asarray(linalg.det(x)), np.linalg.det(a), **near)
    sign, logabs = linalg.slogdet(x)
    np.testing.assert_allclose(np.asarray(sign) * np.exp(np.asarray(logabs)), np.linalg.det(a), **near)
    w, v = (np.asarray(r) for r in linalg.eigh(y))
    np.testing.assert_allclose((v * w[..., None, :]) @ v.swapaxes(-1, -2), s, **near)
    np.testing.assert_allclose(np.asarray(linalg.eigvalsh(y)), w, **near)
    for mode in ("reduced", "complete"):
        q, r = (np.asarray(p) for p in linalg.qr(x, mode=mode))
        np.testing.assert_allclose(q @ r, a, **near)
    for full in (True, False):
        u, sv, vh = (np.asarray(p) for p in linalg.svd(x, full_matrices=full))
        np.testing.assert_allclose((u * sv[..., None, :]) @ vh, a, **near)
    np.testing.assert_allclose(np.asarray(linalg.svdvals(x)), np.linalg.svd(a, compute_uv=False), **near)
    for power in (-2, 0, 3):
        np.testing.assert_allclose(np.asarray(linalg.matrix_power(x, power)), np.linalg.matrix_power(a, power), **near)
    assert np.asarray(linalg.matrix_rank(x)).tolist() == np.full(lead, n).tolist()
    for order in (-np.inf, -2, -1, 1, 2, np.inf, "fro", "nuc"):
        want = np.linalg.norm(a, order, (-2, -1), keepdims=True)
        np.testing.assert_allclose(np.asarray(linalg.matrix_norm(x, ord=order, keepdims=True)), want, **near)
    for order in (0, 1, 2, 2.5, np.inf, -np.inf):
        want = np.linalg.norm(a, order, -1)
        np.testing.assert_allclose(np.asarray(linalg.vector_norm(x, axis=-1, ord=order)), want, **near)
    for result in (linalg.inv(x), linalg.det(x), linalg.eigh(y)[0], linalg.qr(x)[0], linalg.svdvals(x)):
        assert result.dtype == fnp.float32


@given(arrays(shape=(2, 3), names=("int32", "float32"), low=-30, high=30), st.data())
@drawn
def test_cross(pair: Any, data: Any) -> None:
    x, a = pair
    y, b = data.draw(arrays(shape=(3,), names=(a.dtype.name,), low=-30, high=30))
    same(fnp.linalg.cross(x, y), np.cross(a, b), x.dtype, 1e-4)
    with pytest.raises(ValueError):
        fnp.linalg.cross(x[:, :2], y)
