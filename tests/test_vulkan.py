"""Vulkan devices: the registry's values, special values, control flow, a train step, memory, and what falls back.

Skipped without a device; FUNCGRAD_VULKAN_SOFTWARE=1 admits Mesa's software driver.  tests/test_primitives.py
runs every example, derivative and vmap on the device too.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import dtypes, optim
from funcgrad.errors import DeviceError
from funcgrad.ir import Aval, Equation, Graph, Var
from funcgrad.placement import compare, coverage
from funcgrad.primitive import REGISTRY
from funcgrad.runtime import device as devices

try:
    VULKAN: Any = fg.devices("vulkan")[0]
except DeviceError as error:
    pytest.skip(str(error).splitlines()[0], allow_module_level=True)

pytestmark = [pytest.mark.ggml, pytest.mark.vulkan]
INF, NAN = np.inf, np.nan
SPECIAL = np.array([0.0, 1.0, -1.0, 0.5, -2.5, 3e38, -3e38, INF, -INF, NAN, 1e-6, 30.0], np.float32)
UNARY = ("abs", "ceil", "exp", "expm1", "floor", "isfinite", "isnan", "log", "logistic", "neg", "rsqrt", "sign", "sqrt")
UNARY += ("square", "tanh", "trunc")
BINARY = ("add", "div", "div_nz", "eq", "ge", "gt", "le", "lt", "max", "min", "mul", "mul_nz", "ne", "sub")


def on_device(name: str, *xs: np.ndarray, **params: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """The result on the device, the numpy reference, and the executable."""
    prim = REGISTRY[name](**params)
    inputs = [Var(Aval(x.shape, x.dtype)) for x in xs]
    [out] = [Var(a) for a in prim.infer_all(*[v.aval for v in inputs])]
    exe = VULKAN.compile(Graph(inputs, [Equation(prim, inputs, [out])], [out]))
    [got] = exe.run([VULKAN.put(x) for x in xs])
    return VULKAN.get(got, out.aval), prim.evaluate(*xs)[0], exe


def close(got: np.ndarray, want: np.ndarray, tolerance: float = 1e-5) -> None:
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", UNARY)
def test_special_values_of_one_operand(name: str) -> None:
    got, want, exe = on_device(name, SPECIAL)
    assert not exe.fallbacks
    close(got, want)


@pytest.mark.parametrize("name", BINARY)
def test_special_values_of_two_operands(name: str) -> None:
    x, y = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))
    got, want, exe = on_device(name, x, y)
    assert not exe.fallbacks
    close(got, want)


def test_select_takes_special_values_and_nothing_of_what_is_not_selected() -> None:
    x, y = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))
    for mask in (np.arange(x.size) % 2 == 0, np.arange(x.size) % 3 == 0):
        got, want, exe = on_device("select", mask, x, y)
        assert not exe.fallbacks
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_of_equals_and_the_first_nan_win(name: str) -> None:
    x = np.array([[3, 7, 7, 1], [NAN, 7, NAN, 1], [-INF, -INF, -INF, -INF], [INF, 2, INF, -INF]], np.float32)
    got, want, exe = on_device(name, x, axis=1)
    assert not exe.fallbacks
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min", "reduce_sum"])
def test_reductions_of_special_values(name: str) -> None:
    x = np.array([[3, 7, 7, 1], [NAN, 7, 2, 1], [-INF] * 4, [INF, 2, INF, 5], [-3.4e38] * 4], np.float32)
    got, want, _ = on_device(name, x[:4] if name == "reduce_sum" else x, axes=(1,))
    close(got, want)


def test_tanh_keeps_small_numbers() -> None:
    x = np.array([1e-30, 1e-6, -1e-6, 1e-3], np.float32)
    got, _, _ = on_device("tanh", x)
    np.testing.assert_allclose(got, np.tanh(x.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_products_are_float32_accurate(scale: float) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) * np.float32(scale) for s in ((64, 1024), (1024, 48)))
    axes = {"lhs_contract": (1,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
    got, _, exe = on_device("dot_general", x, y, **axes)
    want = x.astype(np.float64) @ y.astype(np.float64)
    assert not exe.fallbacks
    assert np.abs(got - want).max() / np.abs(want).max() < 2e-6


def test_a_long_sum_is_made_in_two_stages() -> None:
    x = np.random.default_rng(0).standard_normal(1 << 18).astype(np.float32)
    got, _, _ = on_device("reduce_sum", x, axes=(0,))
    np.testing.assert_allclose(got, x.astype(np.float64).sum(), rtol=1e-5, atol=1e-3)


def test_integers_are_exact() -> None:
    x = np.array([1 << 30, (1 << 30) + 1, -5, 2**31 - 1], np.int32)
    f = fg.jit(lambda x: (x + 1, x == (1 << 30), x < 7, (x * 3) // 2), device=VULKAN)
    for got, want in zip(f(x), (x + np.int32(1), x == (1 << 30), x < 7, (x * np.int32(3)) // 2), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


def test_control_flow_is_driven_from_the_host() -> None:
    def f(x: Any) -> Any:
        carry, ys = fg.lax.scan(lambda c, row: (fnp.tanh(c + row), c * 2.0), x[0], x)
        grown = fg.lax.while_loop(lambda v: fnp.sum(v) < 50.0, lambda v: v * 1.5, carry + 2.0)
        return fg.lax.cond(fnp.sum(ys) > 0.0, lambda v: v + 1.0, lambda v: v - 1.0, grown)

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    close(np.asarray(fg.jit(f, device=VULKAN)(x)), np.asarray(fg.jit(f, device="numpy")(x)))


def init(rng: np.random.Generator, sizes: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    pairs = itertools.pairwise(sizes)
    return [
        (rng.standard_normal((a, b)).astype(np.float32) / np.float32(a**0.5), np.zeros(b, np.float32)) for a, b in pairs
    ]


def loss(params: Any, x: Any, y: Any) -> Any:
    for w, b in params[:-1]:
        x = fnp.maximum(x @ w + b, 0.0)
    w, b = params[-1]
    logits = x @ w + b
    top = fnp.max(logits, axis=1, keepdims=True)
    log_p = logits - top - fnp.log(fnp.sum(fnp.exp(logits - top), axis=1, keepdims=True))
    return -fnp.mean(fnp.sum(fnp.where(fnp.arange(10) == y[:, None], log_p, 0.0), axis=1))


def losses(device: Any) -> list[float]:
    rng = np.random.default_rng(0)
    optimizer = optim.adam(1e-2)
    params: Any = fg.tree.map(fg.device_put, init(rng, (16, 32, 10)))
    state = optimizer.init(params)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, grads = fg.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    run = fg.jit(step, donate_argnums=(0, 1))
    out = []
    for _ in range(6):
        x, y = rng.standard_normal((24, 16)).astype(np.float32), rng.integers(0, 10, 24).astype(np.int32)
        params, state, value = run(params, state, x, y)
        out.append(float(value))
    return out


def test_a_train_step_gives_the_losses_of_the_cpu() -> None:
    with fg.default_device(VULKAN):
        got = losses(VULKAN)
    with fg.default_device("cpu"):
        want = losses("cpu")
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert want[-1] != want[0]


def test_donated_arrays_are_gone_and_memory_is_used_again() -> None:
    with fg.default_device(VULKAN):
        f = fg.jit(lambda x: x * 2.0, donate_argnums=0)
        x = f(fg.device_put(np.ones((512, 512), np.float32)))
        fg.block_until_ready(x)
        before = VULKAN.bytes_in_use
        for _ in range(5):
            old, x = x, f(x)
        with pytest.raises(Exception, match="donated"):
            np.asarray(old)
        assert VULKAN.bytes_in_use <= before + (1 << 20)
        assert float(np.asarray(x)[0, 0]) == 64.0


def test_out_of_memory_is_an_error_and_the_process_goes_on() -> None:
    with pytest.raises(DeviceError, match="out of memory"):
        VULKAN.memory.take(1 << 46)
    got, want, _ = on_device("add", SPECIAL[:4], SPECIAL[:4])
    close(got, want)


def test_coverage_lists_what_the_cpu_does() -> None:
    x = np.ones((4, 3), np.float32)
    assert coverage(lambda x: fnp.tanh(x @ x.T), x, device=VULKAN).fallbacks == {}
    assert coverage(lambda x: fnp.sort(x * 2.0), x, device=VULKAN).fallbacks == {}
    found = coverage(lambda x: fnp.linalg.cholesky(x.T @ x + fnp.eye(3)), x, device=VULKAN)
    assert {name for name, _ in found.fallbacks} == {"cholesky"} and found.nodes


def test_coverage_is_that_of_a_gpu_by_default() -> None:
    assert coverage(lambda x: x * 2.0, 1.0).device == "vulkan:0"


def test_compare_finds_the_worst_of_each_operation(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    found = compare(lambda x: fnp.exp(x @ x.T), x, devices=("numpy", VULKAN))
    assert {d.primitive for d in found} >= {"exp", "dot_general"}
    assert all(d.error < 1e-5 for d in found)
    assert "dot_general" in capsys.readouterr().out


def test_names() -> None:
    assert VULKAN.name == "vulkan:0" and devices.get("vulkan:0") is VULKAN
    with pytest.raises(DeviceError):
        devices.get("vulkan:99")
    assert VULKAN.put(np.zeros(3, np.float16)).aval.dtype == dtypes.float16


def test_a_device_tells_what_it_is() -> None:
    assert VULKAN.platform == "vulkan" and VULKAN.device_kind
    assert repr(VULKAN) == f"Device('vulkan:0', {VULKAN.device_kind!r})"
    [host] = fg.devices("numpy")
    assert (host.platform, host.device_kind, repr(host)) == ("numpy", "numpy", "Device('numpy')")
