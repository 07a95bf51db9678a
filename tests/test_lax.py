"""lax: convolutions in every layout, slices at values, windows, sorting and the rest, against plain loops and numpy."""

from __future__ import annotations

import itertools
from typing import Any

import compare
import numpy as np
import pytest
from compare import f32

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax
from funcgrad.errors import DTypeError, ShapeError

pytestmark = pytest.mark.usefixtures("device")


def close(got: Any, want: Any, tol: float = 1e-5) -> None:
    compare.close(got, want, tol)


# -- convolution -------------------------------------------------------------------------------------------------
def spread(x: Any, axes: Any, dilation: Any) -> Any:
    """x with gaps between its elements."""
    shape = list(x.shape)
    at = [slice(None)] * x.ndim
    for a, d in zip(axes, dilation, strict=True):
        shape[a] = max(0, (x.shape[a] - 1) * d + 1)
        at[a] = slice(None, None, d)
    out = np.zeros(shape)
    out[tuple(at)] = x
    return out


def correlate(x: Any, k: Any, strides: Any, pads: Any, base: Any, inner: Any, groups: int) -> Any:
    """[N, C, *spatial] with [O, C / groups, *spatial], position by position."""
    n = len(strides)
    axes = range(2, 2 + n)
    x, k = spread(x, axes, base), spread(k, axes, inner)
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    counts = [max(0, (x.shape[a] - k.shape[a]) // s + 1) for a, s in zip(axes, strides, strict=True)]
    out = np.zeros((x.shape[0], k.shape[0], *counts))
    per, width = k.shape[0] // groups, k.shape[1]
    for place in itertools.product(*map(range, counts)):
        at = tuple([slice(p * s, p * s + k.shape[a]) for p, s, a in zip(place, strides, axes, strict=True)])
        for o in range(k.shape[0]):
            g = o // per
            part = x[(slice(None), slice(g * width, (g + 1) * width), *at)]
            out[(slice(None), o, *place)] = (part * k[o]).sum(tuple(range(1, n + 2)))
    return out


LAYOUTS = {1: [("NCH", "OIH", "NCH"), ("NHC", "HIO", "NHC"), ("CHN", "OHI", "HNC")]}
LAYOUTS[2] = [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("CWNH", "IWOH", "HNCW")]
LAYOUTS[3] = [("NCDHW", "OIDHW", "NCDHW"), ("NDHWC", "DHWIO", "NDHWC")]


def place(x: Any, spec: str, spatial: str, first: str) -> Any:
    """An array with axes (first two, *spatial) in the order of a layout."""
    names = first + spatial
    return np.transpose(x, [names.index(c) for c in spec])


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_convolution(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    draw = lambda low, high: [int(v) for v in rng.integers(low, high, n)]
    groups = int(rng.integers(1, 3))
    sizes, window, strides = draw(3, 6), draw(1, 4), draw(1, 3)
    base, inner = draw(1, 3), draw(1, 3)
    pads = [(int(a), int(b)) for a, b in rng.integers(0, 3, (n, 2))]
    x, k = f32(2, 2 * groups, *sizes, seed=seed), f32(3 * groups, 2, *window, seed=seed + 50)
    want = correlate(x, k, strides, pads, base, inner, groups)
    for lhs, rhs, out in LAYOUTS[n]:
        spatial = "".join(c for c in rhs if c not in "OI")
        got = lax.conv_general_dilated(
            place(x, lhs, spatial, "NC"),
            place(k, rhs, spatial, "OI"),
            strides,
            pads,
            base,
            inner,
            (lhs, rhs, out),
            groups,
        )
        close(got, place(want, out, spatial, "NC"), 1e-4)


@pytest.mark.parametrize("padding", ["SAME", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(
    ("size", "window", "stride", "dilation"), [(7, 3, 1, 1), (7, 3, 2, 1), (8, 4, 3, 1), (8, 2, 2, 3)]
)
def test_named_padding(padding: str, size: int, window: int, stride: int, dilation: int) -> None:
    covered = (window - 1) * dilation + 1
    count = -(-size // stride) if padding != "VALID" else (size - covered) // stride + 1
    total = max(0, (count - 1) * stride + covered - size) if padding != "VALID" else 0
    low = total // 2 if padding == "SAME" else total - total // 2
    x, k = f32(1, 1, size), f32(1, 1, window)
    want = correlate(x, k, [stride], [(low, total - low)], [1], [dilation], 1)
    assert want.shape[-1] == count
    close(lax.conv_general_dilated(x, k, (stride,), padding, rhs_dilation=(dilation,)), want)


def test_convolution_gradients_by_central_differences(reference: None) -> None:
    x, k, w = [f32(*s, seed=i).astype(np.float64) for i, s in enumerate([(1, 4, 5, 2), (2, 3, 2, 3), (1, 2, 3, 3)])]
    layout = ("NHWC", "HWIO", "NHWC")
    loss = lambda a, b: (lax.conv_general_dilated(a, b, (2, 2), ((0, 1), (1, 1)), dimension_numbers=layout) * w).sum()
    grads = fg.grad(loss, (0, 1))(fnp.asarray(x), fnp.asarray(k))
    for at, value in enumerate((x, k)):
        slopes = np.zeros_like(value)
        for i in np.ndindex(value.shape):
            ends = []
            for h in (1e-5, -1e-5):
                moved = [x.copy(), k.copy()]
                moved[at][i] += h
                ends.append(float(loss(fnp.asarray(moved[0]), fnp.asarray(moved[1]))))
            slopes[i] = (ends[0] - ends[1]) / 2e-5
        close(grads[at], slopes, 1e-7)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("size", "window", "stride"), [(4, 3, 2), (5, 2, 3), (4, 1, 2), (6, 4, 1)])
def test_transposed_convolution_is_the_gradient_of_a_convolution(
    padding: str, size: int, window: int, stride: int
) -> None:
    """For VALID (and SAME when the size is a multiple) it is the transpose of the forward convolution."""
    k = f32(window, 2, 3)
    y = f32(1, size, 3, seed=1)
    layout = ("NHC", "HIO", "NHC")
    length = size * stride if padding == "SAME" else (size - 1) * stride + max(window, stride)
    forward = lambda x: lax.conv_general_dilated(x, k, (stride,), padding, dimension_numbers=layout)
    want = fg.vjp(forward, np.zeros((1, length, 2), np.float32))[1](y)[0]
    close(lax.conv_transpose(y, k, (stride,), padding, transpose_kernel=True), want, 1e-4)


def test_patches_times_the_kernel_are_the_convolution() -> None:
    x, k = f32(2, 3, 6, 5), f32(4, 3, 2, 3)
    patches = np.asarray(lax.conv_general_dilated_patches(x, (2, 3), (1, 2), "VALID"))
    assert patches.shape == (2, 18, 5, 2)
    want = lax.conv(x, k, (1, 2), "VALID")
    close(np.einsum("npij,op->noij", patches, k.reshape(4, 18)), want, 1e-4)


def test_group_counts_and_layout_errors() -> None:
    with pytest.raises(ShapeError, match="channels"):
        lax.conv(f32(1, 3, 4), f32(2, 2, 2), (1,), "VALID")
    with pytest.raises(ValueError, match="layout"):
        lax.conv_general_dilated(f32(1, 3, 4), f32(2, 3, 2), (1,), "VALID", dimension_numbers=("NCH", "OIW", "NCH"))
    with pytest.raises(ValueError, match="SAME"):
        lax.conv(f32(1, 3, 4), f32(2, 3, 2), (1,), "WIDE")
    with pytest.raises(ShapeError, match="entries"):
        lax.conv(f32(1, 3, 4), f32(2, 3, 2), (1, 1), [(0, 0)])


# -- windows -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("op", "fn", "start"), [(lax.add, np.sum, 0.0), (lax.max, np.max, -np.inf), (lax.min, np.min, np.inf)]
)
@pytest.mark.parametrize("padding", ["VALID", "SAME", ((0, 0), (1, 2))])
def test_reduce_window(op: Any, fn: Any, start: float, padding: Any) -> None:
    x = f32(3, 7)
    pads = {"VALID": (0, 0), "SAME": (1, 1)}.get(padding, (1, 2)) if isinstance(padding, str) else (1, 2)
    full = np.pad(x, ((0, 0), pads), constant_values=start)
    count = (full.shape[1] - 3) // 2 + 1
    want = np.stack([fn(full[:, 2 * i : 2 * i + 3], axis=1) for i in range(count)], 1)
    close(lax.reduce_window(x, start, op, (1, 3), (1, 2), padding), want)
    shifted = lax.reduce_window(x, 0.25, op, (1, 3), (1, 2), padding)
    combine = {np.sum: np.add, np.max: np.maximum, np.min: np.minimum}[fn]
    close(shifted, combine(want, np.float32(0.25)))


@pytest.mark.parametrize(
    ("error", "text", "more"),
    [
        (ShapeError, "window_dimensions must have one size for each of the 2 axes", (2,)),
        (ShapeError, "window_dimensions must have one size for each of the 2 axes", ((2,),)),
        (ShapeError, "window_strides must have one size", ((2, 2), (1,), "SAME")),
        (ShapeError, "base_dilation must have one size", ((2, 2), None, "VALID", 2)),
        (ShapeError, "a pair for each axis", ((2, 2), None, 3)),
        (TypeError, "window_dimensions must be an integer", ((2.5, 2),)),
    ],
)
def test_windows_that_do_not_fit(error: type[Exception], text: str, more: Any) -> None:
    with pytest.raises(error, match=f"reduce_window: .*{text}"):
        lax.reduce_window(f32(3, 7), 0.0, lax.add, *more)


# -- slices ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("start", [-9, -2, 0, 3, 9])
def test_dynamic_slices_move_to_fit(start: int) -> None:
    x = f32(6, 3)
    at = min(max(start + 6 if start < 0 else start, 0), 4)
    sliced = fg.jit(lambda i: lax.dynamic_slice_in_dim(x, i, 2))(start)
    close(sliced, x[at : at + 2])
    close(lax.dynamic_slice(x, (start, 1), (2, 2)), x[at : at + 2, 1:3])
    want = x.copy()
    want[at : at + 2] = 7
    close(fg.jit(lambda i: lax.dynamic_update_slice_in_dim(x, np.full((2, 3), 7, np.float32), i, 0))(start), want)
    row = min(max(start + 6 if start < 0 else start, 0), 5)
    close(lax.dynamic_index_in_dim(x, fnp.asarray(start), keepdims=False), x[row])
    want = x.copy()
    want[row] = 5
    close(lax.dynamic_update_index_in_dim(x, np.full(3, 5, np.float32), fnp.asarray(start), 0), want)


def test_static_slices() -> None:
    x = f32(5, 4)
    close(lax.slice(x, (1, 0), (5, 3), (2, 1)), x[1:5:2, :3])
    close(lax.slice_in_dim(x, -3, None, axis=1), x[:, -3:])
    close(lax.index_in_dim(x, -1, 1, False), x[:, -1])
    close(
        lax.pad(x, 9.0, [(1, 0, 1), (-1, 2, 0)])[::2],
        np.pad(np.insert(x, range(1, 5), 9, 0), ((1, 0), (0, 2)), constant_values=9)[::2, 1:],
    )
    assert [p.shape for p in lax.split(x, (2, 3))] == [(2, 4), (3, 4)]
    with pytest.raises(IndexError):
        lax.index_in_dim(x, 5)
    with pytest.raises(ShapeError):
        lax.slice(x, (0, 0), (6, 4))


# -- order -------------------------------------------------------------------------------------------------------
def test_top_k_takes_the_first_of_equals() -> None:
    x = np.array([[3, 1, 3, 2], [0, 0, 0, 5]], np.float32)
    values, at = lax.top_k(x, 3)
    np.testing.assert_array_equal(values, [[3, 3, 2], [5, 0, 0]])
    np.testing.assert_array_equal(at, [[0, 2, 3], [3, 0, 1]])
    np.testing.assert_array_equal(lax.top_k(np.array([1, np.nan, 2], np.float32), 2)[1], [1, 2])
    grad = fg.grad(lambda a: (lax.top_k(a, 2)[0] * np.array([1.0, 10.0], np.float32)).sum())(x)
    np.testing.assert_array_equal(grad, [[1, 0, 10, 0], [10, 0, 0, 1]])
    with pytest.raises(ShapeError):
        lax.top_k(x, 5)


def test_sort_by_several_keys() -> None:
    rng = np.random.default_rng(0)
    a, b, c = [rng.integers(0, 3, 20).astype(np.int32) for _ in range(3)]
    order = np.lexsort([b, a])
    for got, want in zip(lax.sort((a, b, c), num_keys=2), (a, b, c), strict=True):
        np.testing.assert_array_equal(got, want[order])
    keys, values = lax.sort_key_val(a, b)
    np.testing.assert_array_equal(values, b[np.argsort(a, kind="stable")])
    np.testing.assert_array_equal(keys, np.sort(a))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
def test_running_results(name: str, reverse: bool) -> None:
    x = f32(3, 5)
    fn = {
        "cumsum": np.add,
        "cumprod": np.multiply,
        "cummax": np.maximum,
        "cummin": np.minimum,
        "cumlogsumexp": np.logaddexp,
    }[name]
    want = fn.accumulate(x[:, ::-1] if reverse else x, 1)
    close(getattr(lax, name)(x, 1, reverse), want[:, ::-1] if reverse else want)


# -- elementwise -------------------------------------------------------------------------------------------------
def test_operands_must_agree() -> None:
    with pytest.raises(DTypeError, match="one dtype"):
        lax.add(fnp.ones(2), fnp.ones(2, dtype=int))
    with pytest.raises(ShapeError, match="one shape"):
        lax.mul(fnp.ones(2), fnp.ones(3))
    np.testing.assert_array_equal(lax.add(fnp.ones(2), 1.0), [2, 2])


def test_select_n_round_and_bits() -> None:
    cases = [fnp.asarray([1, 2, 3]), fnp.asarray([4, 5, 6]), fnp.asarray([7, 8, 9])]
    np.testing.assert_array_equal(lax.select_n(fnp.asarray([2, 0, 1]), *cases), [7, 2, 6])
    np.testing.assert_array_equal(lax.select_n(fnp.asarray([True, False, True]), *cases[:2]), [4, 2, 6])
    x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 2.4], np.float32)
    np.testing.assert_array_equal(lax.round(x), [1, 2, 3, -1, -3, 2])
    np.testing.assert_array_equal(lax.round(x, 1), np.rint(x))
    bits = np.array([1, -8, 2**31 - 1], np.int32)
    np.testing.assert_array_equal(lax.shift_right_logical(bits, 1), (bits.view(np.uint32) >> 1).view(np.int32))
    np.testing.assert_array_equal(lax.population_count(bits), [1, 29, 31])
    np.testing.assert_array_equal(lax.clz(bits), [31, 0, 1])
    back = lax.bitcast_convert_type(lax.bitcast_convert_type(x, fnp.uint32), fnp.float32)
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(lax.reduce_precision(fnp.asarray([1.0 + 2**-9]), 8, 7), [1.0])


def test_stop_gradient_goes_through_trees() -> None:
    grads = fg.grad(lambda q: q["a"] * lax.stop_gradient(q)["b"][0])({"a": 2.0, "b": (3.0,)})
    assert float(grads["a"]) == 3.0 and float(grads["b"][0]) == 0.0


def test_reductions() -> None:
    x = f32(2, 3)
    close(lax.reduce(x, np.float32(1.0), lax.add, (0,)), x.sum(0) + 1)
    close(lax.reduce(x, -np.inf, lax.max, (0, 1)), x.max())
    close(lax.reduce(np.zeros((0, 2), np.float32), -7.0, lax.max, (0,)), np.full(2, -7.0))
    close(lax.reduce_prod(x, (1,)), x.prod(1))
    assert lax.argmax(x, 1).tolist() == x.argmax(1).tolist()
    with pytest.raises(NotImplementedError, match="computation"):
        lax.reduce(x, 0.0, lambda a, b: a - b, (0,))


def test_dot_general_and_batches() -> None:
    x, y = f32(5, 2, 3), f32(5, 4, 3)
    close(lax.dot_general(x, y, (((2,), (2,)), ((0,), (0,)))), np.einsum("bij,bkj->bik", x, y))
    close(lax.batch_matmul(x, np.swapaxes(y, 1, 2)), x @ np.swapaxes(y, 1, 2))
    close(lax.dot(x[0], y[0, 0]), x[0] @ y[0, 0])
    assert lax.broadcasted_iota(fnp.int32, (2, 3), 1).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert lax.collapse(x, 0, 2).shape == (10, 3) and lax.expand_dims(x, (0, 4)).shape == (1, 5, 2, 3, 1)
