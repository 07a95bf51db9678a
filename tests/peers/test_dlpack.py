"""DLPack with PyTorch and JAX, both ways, without a copy on the CPU."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

NAMES = ["float32", "float16", "int32", "uint32", "bool"]


@pytest.fixture(autouse=True)
def _cpu():
    with fg.default_device("cpu"):
        yield


def address(x):
    return np.asarray(x).__array_interface__["data"][0]


@pytest.mark.parametrize("name", NAMES)
def test_to_pytorch_and_back(name):
    x = fnp.asarray([[0, 1, 2], [3, 4, 5]], name)
    t = torch.from_dlpack(x)
    assert t.data_ptr() == address(x) and str(t.dtype) == f"torch.{name}"
    assert t.tolist() == x.tolist()
    back = fnp.from_dlpack(t)
    assert address(back) == t.data_ptr() and back.tolist() == x.tolist() and back.dtype == x.dtype


@pytest.mark.parametrize("name", NAMES)
def test_to_jax_and_back(name):
    x = fnp.asarray(np.arange(64).reshape(8, 8), name)  # 64 bytes of alignment, which JAX needs to share
    j = jax.numpy.from_dlpack(x)
    assert j.tolist() == x.tolist() and j.dtype.name == name
    assert j.unsafe_buffer_pointer() == address(x)
    back = fnp.from_dlpack(j)
    assert address(back) == j.unsafe_buffer_pointer() and back.tolist() == x.tolist() and back.dtype == x.dtype


def test_the_memory_lives_as_long_as_its_user():
    tensors = [torch.from_dlpack(fnp.full((5000,), float(i))) for i in range(10)]
    arrays = [fnp.from_dlpack(torch.full((5000,), float(i))) for i in range(10)]
    mixed = [fnp.from_dlpack(jax.numpy.full((5000,), float(i))) for i in range(10)]
    gc.collect()
    for _ in range(10):
        fnp.zeros((5000,)) + 5.0
        torch.zeros(5000) + 5
    for i in range(10):
        assert tensors[i].unique().tolist() == [i]
        assert np.unique(np.asarray(arrays[i])).tolist() == [i] == np.unique(np.asarray(mixed[i])).tolist()


def test_donation_leaves_a_tensors_memory_alone():
    x = fnp.ones(64)
    t = torch.from_dlpack(x)
    y = fg.jit(lambda a: a + 1, donate_argnums=0)(x)
    assert t.tolist() == [1.0] * 64 and y.tolist() == [2.0] * 64


def test_strided_and_gradient_tensors():
    t = torch.arange(12.0).reshape(3, 4)
    assert fnp.from_dlpack(t.T).tolist() == t.T.tolist()
    assert fnp.asarray(t[:, 1]).tolist() == t[:, 1].tolist()
    with pytest.raises(Exception, match="grad"):
        fnp.from_dlpack(torch.ones(3, requires_grad=True))
    assert fnp.asarray(jax.numpy.arange(3)).tolist() == [0, 1, 2]
    half = torch.ones(3).bfloat16()
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        fnp.from_dlpack(half)  # numpy, through which it goes, has no bfloat16
