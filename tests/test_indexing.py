"""Indexing against numpy: every kind of index, reads and writes, gradients, bounds, and what Python gets to see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.errors import ConcretizationTypeError, ShapeError

pytestmark = pytest.mark.usefixtures("device")
OPS = {"set": None, "add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def random_part(rng: np.random.Generator, n: int, advanced: bool) -> Any:
    """One part of an index for an axis of size n."""
    kind = rng.integers(0, 6 if advanced else 3)
    if kind == 0:
        return int(rng.integers(-n, n))
    if kind in (1, 2):
        bounds = [None if rng.random() < 0.3 else int(rng.integers(-n - 2, n + 3)) for _ in range(2)]
        return slice(*bounds, [None, 1, 2, -1, -2][rng.integers(0, 5)])
    if kind == 5:
        return rng.random(n) < 0.5
    shape = [(), (2,), (3, 1), (1, 2), (3, 2)][rng.integers(0, 5)]
    return rng.integers(-n, n, shape)


def random_index(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """An index for an array, of a kind that numpy accepts."""
    while True:
        count = int(rng.integers(0, len(shape) + 1))
        parts = [random_part(rng, n, rng.random() < 0.6) for n in shape[:count]]
        if rng.random() < 0.3 and count < len(shape):
            tail = [random_part(rng, shape[-1], False)]
            parts = [*parts[: len(shape) - 1], Ellipsis, *tail]
        for _ in range(rng.integers(0, 2)):
            parts.insert(int(rng.integers(0, len(parts) + 1)), None)
        idx = tuple(parts)
        try:
            np.empty(shape)[idx]
        except IndexError:
            continue
        return idx


SHAPES = [(5,), (3, 4), (2, 3, 4), (2, 3, 2, 3)]
RANDOM = [(shape, seed) for shape in SHAPES for seed in range(30)]


def on_device(idx: Any) -> Any:
    """The integer arrays of an index as values on the device."""
    parts = idx if isinstance(idx, tuple) else (idx,)
    is_ints = lambda p: isinstance(p, np.ndarray) and p.dtype != bool
    return tuple([fnp.asarray(p.astype(np.int32)) if is_ints(p) else p for p in parts])


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    """Distinct numbers, exact in float32."""
    rng = np.random.default_rng(seed)
    return (rng.permutation(int(np.prod(shape))).reshape(shape) - 3).astype(np.float32)


@pytest.mark.parametrize(("shape", "seed"), RANDOM)
def test_read(shape: tuple[int, ...], seed: int) -> None:
    idx = random_index(np.random.default_rng(seed), shape)
    x = numbers(shape, seed)
    for given in (idx, on_device(idx)):
        got = fnp.asarray(x)[given]
        np.testing.assert_array_equal(got, x[idx], err_msg=str(idx))
        assert got.shape == x[idx].shape, idx


@pytest.mark.parametrize(("shape", "seed"), RANDOM)
@pytest.mark.parametrize("op", OPS)
def test_write(shape: tuple[int, ...], seed: int, op: str) -> None:
    rng = np.random.default_rng(seed)
    idx = random_index(rng, shape)
    x = numbers(shape, seed)
    target = x[idx].shape
    values = [2.0]
    order = np.arange(x.size).reshape(shape)[idx].reshape(-1)
    if len(set(order.tolist())) == order.size or op != "set":
        values.append(numbers((*target, 1), seed + 1)[..., 0] if target else 3.0)
        values.append(numbers((1, *target[1:]), seed + 2) if target else -1.0)
    for v in values:
        want = x.copy()
        if op == "set":
            want[idx] = v
        else:
            OPS[op].at(want, idx, v)  # type: ignore[attr-defined]
        for given in (idx, on_device(idx)):
            got = getattr(fnp.asarray(x).at[given], op)(v if isinstance(v, float) else fnp.asarray(v))
            np.testing.assert_array_equal(got, want, err_msg=f"{op} at {idx}")


@pytest.mark.parametrize(("shape", "seed"), RANDOM[::3])
def test_gradients_of_read_and_write(shape: tuple[int, ...], seed: int) -> None:
    """A read's cotangent lands where it was read, as often; a write's goes to the values, the rest to the array."""
    rng = np.random.default_rng(seed)
    idx = random_index(rng, shape)
    x = numbers(shape, seed)
    weights = rng.normal(size=x[idx].shape).astype(np.float32)
    want = np.zeros_like(x)
    np.add.at(want, idx, weights)
    got = fg.grad(lambda a: (a[on_device(idx)] * weights).sum())(x)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    full = rng.normal(size=shape).astype(np.float32)
    by_x, by_v = fg.grad(lambda a, v: (a.at[on_device(idx)].add(v) * full).sum(), (0, 1))(x, np.zeros_like(weights))
    np.testing.assert_allclose(by_x, full, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(by_v, full[idx], rtol=1e-6, atol=1e-6)
    kept = full.copy()
    kept[idx] = 0
    by_x = fg.grad(lambda a: (a.at[on_device(idx)].set(1.0) * full).sum())(x)
    np.testing.assert_allclose(by_x, kept, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("shape", "seed"), RANDOM[::4])
def test_under_jit_and_vmap(shape: tuple[int, ...], seed: int) -> None:
    idx = random_index(np.random.default_rng(seed), shape)
    x = numbers((3, *shape), seed)
    np.testing.assert_array_equal(fg.jit(lambda a: a[idx])(x[0]), x[0][idx])
    np.testing.assert_array_equal(fg.vmap(lambda a: a[idx])(x), np.stack([row[idx] for row in x]))


# -- scalars that are values -------------------------------------------------------------------------------------
@pytest.mark.parametrize("at", [0, 2, -1, -3])
def test_traced_scalar(at: int) -> None:
    x = numbers((3, 4), 0)
    read = fg.jit(lambda a, i: (a[i], a[i, 1:3], a[:, i], a[i, ::-1], a[1, i], a[None, i, ..., 0]))
    got = read(x, at)
    want = x[at], x[at, 1:3], x[:, at], x[at, ::-1], x[1, at], x[None, at, ..., 0]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)
    changed = fg.jit(lambda a, i: a.at[i].set(7.0))(x, at)
    want_x = x.copy()
    want_x[at] = 7
    np.testing.assert_array_equal(changed, want_x)


def test_traced_slice_writes_rows() -> None:
    buffer, rows = np.zeros((6, 2), np.float32), numbers((3, 2), 1)
    write = fg.jit(lambda b, r, i, j: b.at[i:j].set(r))
    want = buffer.copy()
    want[2:5] = rows
    np.testing.assert_array_equal(write(buffer, rows, 2, 5), want)
    want = buffer.copy()
    want[4:6] = rows[:2]
    np.testing.assert_array_equal(write(buffer, rows, 4, 7), want)
    want = buffer.copy()
    want[1:2] = rows[:1]
    np.testing.assert_array_equal(write(buffer, rows, 1, 2), want)
    with pytest.raises(TypeError, match="dynamic_slice_in_dim"):
        fg.jit(lambda b, i: b[i : i + 2])(buffer, 1)


# -- bounds ------------------------------------------------------------------------------------------------------
def test_reads_out_of_range() -> None:
    x = fnp.asarray([1.0, 2.0, 3.0])
    for bad in (3, -4, [0, 5], np.array([[-9]])):
        with pytest.raises(IndexError, match="must be in"):
            x[bad]
    far = fnp.asarray([-9, -1, 0, 9])
    np.testing.assert_array_equal(x[far], [1, 3, 1, 3])
    np.testing.assert_array_equal(x[fnp.asarray(9)], 3)
    np.testing.assert_array_equal(x.at[far].get(mode="fill"), [np.nan, 3, 1, np.nan])
    np.testing.assert_array_equal(x.at[[0, 7]].get(mode="fill", fill_value=-1), [1, -1])
    np.testing.assert_array_equal(x.at[7].get(mode="fill", fill_value=-1), -1)
    np.testing.assert_array_equal(x.at[7].get(mode="clip"), 3)
    np.testing.assert_array_equal(x.at[far].get(mode="wrap"), [1, 3, 1, 1])
    y = fnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    both = (fnp.asarray([0, 5, 1]), fnp.asarray([1, 0, -7]))
    np.testing.assert_array_equal(y[both], [2, 3, 3])
    np.testing.assert_array_equal(y.at[both].get(mode="fill", fill_value=0), [2, 0, 0])


def test_writes_out_of_range_are_dropped() -> None:
    x = fnp.zeros(3)
    for far in ([0, 3, -4, -1], fnp.asarray([0, 3, -4, -1])):
        np.testing.assert_array_equal(x.at[far].set(1.0), [1, 0, 1])
        np.testing.assert_array_equal(x.at[far].add(1.0, mode="clip"), [2, 0, 2])
        np.testing.assert_array_equal(x.at[far].add(1.0, mode="wrap"), [2, 0, 2])
    np.testing.assert_array_equal(x.at[5].set(1.0), [0, 0, 0])
    np.testing.assert_array_equal(x.at[fnp.asarray(5)].set(1.0), [0, 0, 0])
    y = fnp.zeros((2, 2))
    np.testing.assert_array_equal(y.at[fnp.asarray([0, 2, 1]), fnp.asarray([1, 0, -5])].set(1.0), [[0, 1], [0, 0]])


def test_the_last_of_several_writes_wins_and_sums_add_up() -> None:
    x = fnp.zeros(2)
    np.testing.assert_array_equal(x.at[[0, 0]].set(fnp.asarray([1.0, 2.0])), [2, 0])
    np.testing.assert_array_equal(x.at[[0, 0]].add(fnp.asarray([1.0, 2.0])), [3, 0])
    np.testing.assert_array_equal((x + 1).at[[0, 0]].multiply(3.0), [9, 1])
    np.testing.assert_array_equal((x + 8).at[[0, 0]].divide(2.0), [2, 8])
    np.testing.assert_array_equal((x + 2).at[1].power(3.0), [2, 8])
    np.testing.assert_array_equal((x + 2).at[1].subtract(3.0), [2, -1])
    np.testing.assert_array_equal((x + 2).at[1:].apply(lambda v: v * v), [2, 4])


# -- masks -------------------------------------------------------------------------------------------------------
def test_mask_may_be_traced_when_values_do_not_depend_on_its_count() -> None:
    x = numbers((3, 4), 2)
    relu = fg.jit(lambda a: a.at[a < 0].set(0.0))
    np.testing.assert_array_equal(relu(x), np.maximum(x, 0))
    np.testing.assert_array_equal(fg.jit(lambda a: a.at[a[:, 0] > 0].add(1.0))(x), x + (x[:, :1] > 0))
    np.testing.assert_array_equal(fg.grad(lambda a: a.at[a < 0].set(0.0).sum())(x), (x >= 0).astype(np.float32))
    with pytest.raises(ConcretizationTypeError, match="nonzero"):
        fg.jit(lambda a: a[a < 0])(x)
    np.testing.assert_array_equal(fg.grad(lambda a: (a[a < 0] ** 2).sum())(x), np.where(x < 0, 2 * x, 0))


def test_scalar_masks() -> None:
    x = fnp.asarray([1.0, 2.0])
    assert x[True].shape == (1, 2) and x[False].shape == (0, 2)
    assert fnp.asarray(3.0)[True].shape == (1,) and fnp.asarray(3.0)[fnp.asarray(False)].shape == (0,)


# -- errors ------------------------------------------------------------------------------------------------------
def test_errors_say_what_to_do() -> None:
    x = fnp.zeros((2, 3))
    with pytest.raises(TypeError, match=r"at\[i\]\.set"):
        x[0] = 1.0
    with pytest.raises(IndexError, match="at most 2"):
        x[0, 0, 0]
    with pytest.raises(IndexError, match="one ellipsis"):
        x[..., ...]
    with pytest.raises(TypeError, match="cannot be an index"):
        x["a"]
    with pytest.raises(TypeError, match="cannot be an index"):
        x[1.0]
    with pytest.raises(TypeError, match="integers or bools"):
        x[fnp.asarray([1.0])]
    with pytest.raises(IndexError, match="must have shape"):
        x[np.ones(5, bool)]
    with pytest.raises(IndexError, match="broadcast"):
        x[[0, 1, 0], [1, 2]]
    with pytest.raises(ShapeError):
        x.at[0].set(fnp.zeros(2))
    with pytest.raises(ValueError, match="mode"):
        x.at[0].get(mode="nowhere")


# -- what Python sees --------------------------------------------------------------------------------------------
def test_values_as_python_objects() -> None:
    x = fnp.asarray([[1, 2], [3, 4]])
    assert len(x) == 2 and x.tolist() == [[1, 2], [3, 4]] and x[1, 0].item() == 3 and x.item(3) == 4
    assert int(x[0, 0]) == 1 and float(x[0, 1]) == 2.0 and bool(x[0, 0]) and [10, 20, 30][x[0, 1]] == 30
    assert list(range(x[1, 1])) == [0, 1, 2, 3] and f"{x[0, 0]:03d}" == "001" and f"{x[0] / 4}" == "[0.25 0.5 ]"
    assert [r.tolist() for r in x] == [[1, 2], [3, 4]] and 3 in x and 9 not in x
    assert x.T.shape == x.mT.shape == (2, 2) and x.nbytes == 16 and x.itemsize == 4
    with pytest.raises(TypeError, match="rank 0"):
        list(fnp.asarray(1))
    with pytest.raises(TypeError):
        len(fnp.asarray(1))
    with pytest.raises(ValueError, match="any"):
        bool(x)
    with pytest.raises(TypeError):
        hash(x)
    with pytest.raises(TypeError, match="exactly one element"):
        float(x)


def test_traced_values_refuse_what_needs_a_value() -> None:
    x = np.ones(2, np.float32)
    for use in (bool, int, float, np.asarray, lambda v: v.tolist(), lambda v: range(v.astype(int)), lambda v: v.item()):
        with pytest.raises(ConcretizationTypeError):
            fg.jit(lambda a, use=use: use(a[0]) * a)(x)
    assert fg.grad(lambda a: a.sum() * float(a[0]))(x).tolist() == [1.0, 1.0]


def test_numpy_and_dlpack_interchange() -> None:
    x = fnp.asarray([[1.0, 2.0]])
    left, right = np.array([[3.0], [4.0]], np.float32) * x, x * np.array([[3.0], [4.0]], np.float32)
    assert isinstance(left, fg.Array) and isinstance(right, fg.Array)
    np.testing.assert_array_equal(left, right)
    assert isinstance(np.float32(2) * x, fg.Array) and isinstance(2 * x, fg.Array)
    np.testing.assert_array_equal(np.exp(x), np.exp(np.asarray(x)))
    copy = np.from_dlpack(x, copy=True)
    copy[0, 0] = 9
    assert x[0, 0].item() == 1.0 and x.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(fnp.from_dlpack(np.arange(3, dtype=np.float32)), [0, 1, 2])
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "a"
    with pytest.raises(TypeError):
        x * [1.0, 2.0]


def test_arrays_and_traced_values_are_instances_of_ndarray() -> None:
    seen = []
    fg.jit(lambda a: seen.append(isinstance(a, fnp.ndarray)) or a)(np.ones(2, np.float32))
    assert seen == [True] and isinstance(fnp.ones(2), fnp.ndarray) and not isinstance(np.ones(2), fnp.ndarray)


def test_in_place_operators_rebind() -> None:
    x = y = fnp.asarray([1.0, 2.0])
    x += 1
    x *= 2
    np.testing.assert_array_equal(y, [1, 2])
    np.testing.assert_array_equal(x, [4, 6])
