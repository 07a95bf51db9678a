"""Every layer under every transformation: numerical derivatives in float64, vmap against a loop, checkpoint, halves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import nn, random
from funcgrad.testing import check_grads

KEY = np.asarray(random.key(0))  # of no device
R = np.random.default_rng(0)


def batch_norm(dtype: Any) -> Any:
    bn = nn.BatchNorm(4, dtype=dtype)
    return bn, lambda bn, x: bn(x, bn.init_state(), train=True)[0]


def plain(layer: Any) -> tuple[Any, Any]:
    return layer, lambda layer, x: layer(x)


LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda d: plain(nn.Linear(4, 3, key=KEY, dtype=d)), (5, 4)),
    "layer norm": (lambda d: plain(nn.LayerNorm(4, dtype=d)), (3, 4)),
    "rms norm": (lambda d: plain(nn.RMSNorm(4, dtype=d)), (3, 4)),
    "group norm": (lambda d: plain(nn.GroupNorm(4, 2, dtype=d)), (2, 3, 4)),
    "instance norm": (lambda d: plain(nn.InstanceNorm(4, dtype=d)), (2, 3, 4)),
    "batch norm": (batch_norm, (6, 4)),
    "conv1d": (lambda d: plain(nn.Conv1d(4, 3, 3, key=KEY, strides=2, dtype=d)), (2, 5, 4)),
    "conv2d": (lambda d: plain(nn.Conv2d(4, 4, 3, key=KEY, groups=2, dilation=2, dtype=d)), (1, 4, 5, 4)),
    "conv3d": (lambda d: plain(nn.Conv3d(2, 2, 2, key=KEY, dtype=d)), (1, 3, 2, 3, 2)),
    "conv transpose": (lambda d: plain(nn.ConvTranspose1d(4, 3, 3, key=KEY, strides=2, dtype=d)), (2, 4, 4)),
    "attention": (
        lambda d: (nn.MultiHeadAttention(4, 2, key=KEY, dtype=d), lambda a, x: a(x, is_causal=True)),
        (2, 3, 4),
    ),
    "rotary attention": (
        lambda d: plain(nn.MultiHeadAttention(4, 2, key=KEY, rope=100.0, dtype=d)),
        (2, 3, 4),
    ),
    "gru": (lambda d: (nn.GRUCell(4, 3, key=KEY, dtype=d), lambda c, x: nn.scan_cell(c, x)[1]), (2, 4, 4)),
    "lstm": (lambda d: (nn.LSTMCell(4, 3, key=KEY, dtype=d), lambda c, x: nn.scan_cell(c, x)[1]), (2, 4, 4)),
    "rope": (lambda d: (None, lambda _, x: nn.rope(x)), (2, 3, 1, 4)),
    "avg pool": (lambda d: (None, lambda _, x: nn.avg_pool(x, (2,), (1,), "SAME", False)), (2, 4, 3)),
    "max pool": (lambda d: (None, lambda _, x: nn.max_pool(x, (2,))), (2, 4, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_derivatives_by_differences(name: str, reference: None) -> None:
    make, shape = LAYERS[name]
    layer, call = make("float64")
    x = fnp.asarray(R.normal(size=shape))
    check_grads(lambda layer, x: fnp.sin(call(layer, x)), (layer, x), order=2)


@pytest.mark.parametrize("name", LAYERS)
def test_vmap_is_a_loop_and_checkpoint_changes_nothing(name: str, device: str) -> None:
    make, shape = LAYERS[name]
    layer, call = make("float32")
    xs = fnp.asarray(R.normal(size=(3, *shape)).astype("f"))

    def total(layer: Any, x: Any) -> Any:
        return (call(layer, x) ** 2).sum()

    got = fg.jit(fg.vmap(lambda x: call(layer, x)))(xs)
    for i in range(3):
        np.testing.assert_allclose(np.asarray(got[i]), np.asarray(call(layer, xs[i])), rtol=2e-5, atol=2e-6)
    want = [fg.grad(total, argnums=1)(layer, xs[i]) for i in range(3)]
    each = fg.vmap(fg.grad(total, argnums=1), in_axes=(None, 0))(layer, xs)
    kept = fg.jit(fg.grad(fg.checkpoint(total), argnums=1))(layer, xs[0])
    np.testing.assert_allclose(np.asarray(kept), np.asarray(want[0]), rtol=2e-5, atol=1e-5)
    for a, b in zip(each, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", LAYERS)
def test_half_precision_is_near_float32(name: str, dtype: str, device: str) -> None:
    make, shape = LAYERS[name]
    (half, call), (full, _) = make(dtype), make("float32")
    x = fnp.asarray(R.normal(size=shape), dtype)

    def total(layer: Any, x: Any) -> Any:
        return (fnp.astype(call(layer, x), "float32") ** 2).mean()

    y, g = fg.jit(lambda m, x: (call(m, x), fg.grad(total, argnums=1)(m, x)))(half, x)
    assert g.dtype == x.dtype and (name == "rope" or y.dtype == x.dtype)
    want, want_g = call(full, fnp.astype(x, "float32")), fg.grad(total, argnums=1)(full, fnp.astype(x, "float32"))
    tol = 0.02 if dtype == "float16" else 0.15
    np.testing.assert_allclose(np.asarray(y, "f"), np.asarray(want), atol=tol, rtol=tol)
    np.testing.assert_allclose(np.asarray(g, "f"), np.asarray(want_g), atol=tol, rtol=tol)
