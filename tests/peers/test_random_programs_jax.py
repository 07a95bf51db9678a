"""Random programs and their derivatives against JAX in float64: one source, two libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import funcgrad as fg  # noqa: E402
import funcgrad.testing.programs as testing  # noqa: E402
from funcgrad.testing import random_function  # noqa: E402

pytestmark = pytest.mark.usefixtures("reference")


@contextmanager
def written_with_jax(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the generator's functions call JAX."""
    with monkeypatch.context() as m, jax.enable_x64(True):
        m.setattr(testing, "fnp", jnp)
        m.setattr(testing, "jit", jax.jit)
        m.setattr(testing, "checkpoint", jax.checkpoint)
        yield


def loss_of(fun: Any, xp: Any) -> Any:
    def loss(*args: Any) -> Any:
        total: Any = 0.0
        for k, y in enumerate(fun(*args)):
            y = xp.asarray(y)
            weights = xp.asarray(np.cos(1.0 + k + np.arange(y.size)).reshape(y.shape))
            total = total + (weights * y + 0.1 * y * y).sum()
        return total

    return loss


def numpy_leaves(x: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(v) for v in jax.tree_util.tree_leaves(x)]


def near(got: Any, want: list[np.ndarray[Any, Any]], tolerance: float = 1e-9) -> None:
    leaves = fg.tree.leaves(got)
    assert len(leaves) == len(want)
    for g, w in zip(leaves, want, strict=True):
        assert np.shape(g) == w.shape
        np.testing.assert_allclose(np.asarray(g), w, rtol=tolerance, atol=tolerance)


NUMS = (0, 1, 2)


@pytest.mark.parametrize("seed", range(4))
def test_values_and_derivatives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    f, args, _ = random_function(seed, "smooth", size=15, dtype=np.float64)
    rows = [np.stack([a, 0.5 * a]) for a in args]
    ts = [0.3 * a + 0.1 for a in args]
    with written_with_jax(monkeypatch):
        loss = loss_of(f, jnp)

        @jax.jit  # one compilation instead of one per operation
        def everything(xs: Any, dirs: Any, lanes: Any) -> Any:
            pushed = jax.jvp(loss, xs, dirs)
            mapped = jax.vmap(jax.grad(loss, NUMS))(*lanes)
            return f(*xs), jax.value_and_grad(loss, NUMS)(*xs), pushed, mapped, jax.hessian(loss, NUMS)(*xs)

        want = everything(*[tuple(map(jnp.asarray, v)) for v in (args, ts, rows)])
        values, grads, pushed, mapped, hessian = map(numpy_leaves, want)
    ours = loss_of(f, fg.numpy)
    near(f(*args), values)
    near(fg.jit(fg.value_and_grad(ours, NUMS))(*args), grads)
    near(fg.jvp(ours, args, ts), pushed)
    near(fg.vmap(fg.grad(ours, NUMS))(*rows), mapped)
    near(fg.jit(fg.hessian(ours, NUMS))(*args), hessian)


@pytest.mark.parametrize("seed", range(8))
def test_values_where_nothing_rounds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    f, args, _ = random_function(seed, "exact", size=40, dtype=np.float32)
    with written_with_jax(monkeypatch):
        want = numpy_leaves(jax.jit(f)(*[jnp.asarray(a) for a in args]))
    for g in (f, fg.jit(f)):
        near(g(*args), want, 0.0)
