"""Arrays to and from numpy without a copy, pickled, copied; donation never writes to memory that was lent."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import nn, random

pytestmark = [pytest.mark.ggml, pytest.mark.usefixtures("on_cpu")]
DTYPES = ["float32", "float16", "bfloat16", "int32", "uint32", "bool"]


def address(a: Any) -> int:
    return int(a.__array_interface__["data"][0])


def test_numpy_sees_the_memory_itself_read_only() -> None:
    x = fnp.arange(6.0).reshape(2, 3)
    a, b, c = np.asarray(x), np.asarray(x), np.from_dlpack(x)
    assert address(a) == address(b) == address(c)
    for view in (a, c):
        with pytest.raises(ValueError, match="read-only"):
            view[0, 0] = 9
    assert address(np.array(x)) != address(a) and address(np.from_dlpack(x, copy=True)) != address(a)
    writable = np.from_dlpack(x, copy=True)
    writable[0, 0] = 9
    assert float(x[0, 0]) == 0.0


def test_a_view_outlives_its_array() -> None:
    views = [np.from_dlpack(fnp.full((1000,), float(i))) for i in range(20)]
    gc.collect()
    for _ in range(20):
        fnp.zeros((1000,)) + 5.0  # would take freed memory
    assert [v[0] for v in views] == list(range(20))


@pytest.mark.parametrize("look", [np.asarray, np.from_dlpack])
def test_donation_leaves_lent_memory_alone(look: Any) -> None:
    x = fnp.ones(64)
    seen = look(x)
    y = fg.jit(lambda a: a + 1, donate_argnums=0)(x)
    assert seen.tolist() == [1.0] * 64 and y.tolist() == [2.0] * 64


def test_from_dlpack_shares_and_holds_the_memory() -> None:
    host = np.arange(6, dtype=np.float32)
    x = fnp.from_dlpack(host)
    assert address(np.asarray(x)) == address(host)
    y = fg.jit(lambda a: a * 2, donate_argnums=0)(x)  # the memory is not ours to give away
    assert host.tolist() == [0, 1, 2, 3, 4, 5] and y.tolist() == [0, 2, 4, 6, 8, 10]
    x = fnp.from_dlpack(np.full(1000, 7, np.int32))
    gc.collect()
    np.full(1000, 8, np.int32)
    assert x.tolist() == [7] * 1000
    assert address(np.asarray(fnp.from_dlpack(host, copy=True))) != address(host)


def test_from_dlpack_copies_what_cannot_be_shared() -> None:
    for host in (np.arange(3.0), np.arange(3), np.ones((3, 3), np.float32).T[::2], np.zeros((0, 2), np.float32)):
        np.testing.assert_array_equal(np.asarray(fnp.from_dlpack(host)), host)
        with pytest.raises(BufferError, match="from_dlpack"):
            fnp.from_dlpack(host, copy=False)
    assert fnp.from_dlpack(np.arange(3.0)).dtype == np.float32
    half = fnp.asarray([1.0, 2.0], "bfloat16")
    assert np.from_dlpack(half).tolist() == [1.0, 2.0]
    with pytest.raises(BufferError, match="copy=False"):
        half.__dlpack__(copy=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pickle_and_copies(dtype: str) -> None:
    x = fnp.asarray([[0.0, 1.0, 3.5]], dtype)
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert y.dtype == x.dtype and y.shape == x.shape
        assert np.asarray(y).tobytes() == np.asarray(x).tobytes()
        assert isinstance(y, fg.Array) and y.device is x.device


def test_modules_and_states_are_pickled() -> None:
    model = nn.Sequential([nn.Linear(2, 3, key=random.key(0)), fnp.tanh, nn.LayerNorm(3)])
    x = fnp.ones((1, 2))
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert fg.tree.structure(other) == fg.tree.structure(model)
        assert other(x).tolist() == model(x).tolist()


def test_a_deleted_array_is_not_exported() -> None:
    x = fnp.ones(3)
    x.delete()
    for use in (np.asarray, np.from_dlpack, pickle.dumps, copy.deepcopy):
        with pytest.raises(RuntimeError, match="freed"):
            use(x)  # type: ignore[operator]


def test_traced_values_are_not_exported() -> None:
    for use in (np.from_dlpack, np.asarray):
        with pytest.raises(TypeError):
            fg.jit(lambda x, use=use: use(x).sum())(fnp.ones(3))


def test_device_put_and_device_get_take_trees(device: str) -> None:
    tree = {"w": np.ones(2, np.float32), "b": [1.0, fnp.asarray(2)]}
    there = fg.device_put(tree, "numpy")
    assert fg.tree.structure(there) == fg.tree.structure(tree)
    assert {x.device.name for x in fg.tree.leaves(there)} == {"numpy"}
    back = fg.device_get(there)
    assert all(type(x) is np.ndarray for x in fg.tree.leaves(back))
    np.testing.assert_array_equal(back["b"][1], 2)
    back["w"][0] = 5.0  # the caller's own
    np.testing.assert_array_equal(there["w"], [1, 1])
