"""Vulkan against the CPU on random programs: values, derivatives, vmap and donated arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.errors import DeviceError
from funcgrad.testing import random_function

try:
    VULKAN: Any = fg.devices("vulkan")[0]
except DeviceError as error:
    pytest.skip(str(error).splitlines()[0], allow_module_level=True)

pytestmark = [pytest.mark.ggml, pytest.mark.vulkan]


def on(device: Any, fun: Callable[..., Any], *args: Any, **options: Any) -> list[np.ndarray[Any, Any]]:
    with fg.default_device(device):
        return [np.asarray(v) for v in tree.leaves(fg.jit(fun, **options)(*args))]


def near(got: Any, want: Any, tolerance: float) -> None:
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


def loss_of(fun: Callable[..., Any]) -> Callable[..., Any]:
    def loss(*args: Any) -> Any:
        total: Any = 0.0
        for k, y in enumerate(map(fnp.asarray, fun(*args))):
            weights = np.cos(1.0 + k + np.arange(y.size)).reshape(y.shape).astype(np.float32)
            total = total + fnp.sum(weights * y + 0.1 * y * y)
        return total

    return loss


@pytest.mark.parametrize("seed", range(24))
def test_programs_that_do_not_round_agree_to_the_bit(seed: int) -> None:
    fun, args, _ = random_function(seed, "exact")
    for got, want in zip(on(VULKAN, fun, *args), on("numpy", fun, *args), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(16))
def test_smooth_programs_and_their_gradients(seed: int) -> None:
    fun, args, _ = random_function(seed, "smooth")
    wide = [a.astype(np.float64) for a in args]
    near(on(VULKAN, fun, *args), [w.astype(np.float32) for w in on("numpy", fun, *wide)], 1e-5)
    grads = fg.value_and_grad(loss_of(fun), (0, 1, 2))
    near(on(VULKAN, grads, *args), on("cpu", grads, *args), 1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_programs_of_a_batch_and_in_a_loop(seed: int) -> None:
    fun, args, _ = random_function(seed, "smooth", size=12)
    rows = [np.stack([a, 0.5 * a, -a]) for a in args]
    near(on(VULKAN, fg.vmap(fun), *rows), on("cpu", fg.vmap(fun), *rows), 1e-5)

    def loop(*xs: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            outs = fun(*[c + r for c, r in zip(carry, row, strict=True)])
            shift = fnp.tanh(sum(fnp.mean(o) for o in outs))
            return tuple([c * 0.5 + shift for c in carry]), outs[0]

        return fg.lax.scan(body, tuple([x[0] for x in xs]), tuple(xs))

    near(on(VULKAN, loop, *rows), on("cpu", loop, *rows), 1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_special_values(seed: int) -> None:
    """Where the results of float64 and of the CPU's float32 are both NaN, or both not, so is the device's."""
    fun, args, _ = random_function(seed, "special", size=12)
    with np.errstate(all="ignore"):
        got, want = on(VULKAN, fun, *args), on("cpu", fun, *args)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_donated_arguments(seed: int) -> None:
    fun, args, _ = random_function(seed, "exact", size=15)

    def step(*xs: Any) -> Any:
        outs = fun(*xs)
        return [fnp.minimum(fnp.maximum(x + fnp.sum(outs[0]), -9.0), 9.0) for x in reversed(xs)], outs

    want = on("cpu", step, *args)
    with fg.default_device(VULKAN):
        given = [fg.device_put(a) for a in args]
        got = fg.jit(step, donate_argnums=(0, 1, 2))(*given)
    for g, w in zip(tree.leaves(got), want, strict=True):
        np.testing.assert_array_equal(np.asarray(g), w)


NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, float("inf"), float("nan"))
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": fnp.maximum,
}


@pytest.mark.parametrize("name", WAYS)
def test_numbers_in_the_function_keep_zeros_infinities_and_nan(name: str) -> None:
    """A compiler of a driver may take liberties with constants: x * 0, x / 0, x + 0."""
    x = np.array([0.0, -0.0, 1.0, -2.5, 3e38, np.inf, -np.inf, np.nan], np.float32)
    way = WAYS[name]
    for number in NUMBERS:
        plain = np.maximum if name == "max" else way
        with np.errstate(all="ignore"):
            want = [plain(x, np.float32(number)), plain(np.float32(number), x)]
        got = on(VULKAN, lambda x, c=number: (way(x, c), way(c, x)), x)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)
            if name != "max":  # the larger of 0 and -0 may be either
                known = ~np.isnan(w)
                np.testing.assert_array_equal(np.signbit(g)[known], np.signbit(w)[known])
