"""Whole programs on a Vulkan device: long loops, layouts, order, what many compilations leave behind, threads."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax
from funcgrad.errors import DeviceError
from funcgrad.runtime import device
from funcgrad.runtime.vulkan import executable
from funcgrad.testing import random_function

try:
    VULKAN: Any = fg.devices("vulkan")[0]
except DeviceError as error:
    pytest.skip(str(error).splitlines()[0], allow_module_level=True)

pytestmark = [pytest.mark.ggml, pytest.mark.vulkan]
MANY = 70_001  # more steps of a loop than Mesa's software driver takes


def on_device(fun: Callable[..., Any], *args: Any) -> np.ndarray[Any, Any]:
    return np.asarray(fg.jit(fun, device=VULKAN)(*args))


# ---- loops of one invocation ----


@pytest.mark.parametrize(("name", "rows"), [("add", 3), ("set", 3), ("max", 3), ("set", 80_000)])
def test_more_updates_than_a_kernel_may_loop_over(name: str, rows: int) -> None:
    """Those of one row are applied in order by one invocation, in a small operand and in a large one."""
    rng = np.random.default_rng(0)
    index = np.where(rng.random(MANY) < 0.99, 1, rng.integers(0, rows, MANY)).astype(np.int32)
    for dtype in (np.int32, np.float32)[: 2 if rows == 3 else 1]:
        values = rng.integers(-3, 4, MANY).astype(dtype)
        values[-1] = 17
        want = np.zeros(rows, dtype)
        if name == "set":
            want[index] = values  # the last one wins
        else:
            {"add": np.add, "max": np.maximum}[name].at(want, index, values)
        got = on_device(lambda i, v: getattr(fnp.zeros(rows, v.dtype).at[i], name)(v), index, values)
        np.testing.assert_array_equal(got, want)


def test_a_product_that_sums_more_than_a_kernel_may_loop_over() -> None:
    rng = np.random.default_rng(1)
    x, y = [rng.integers(-1, 2, (2, 1_100_000)).astype(np.float32) for _ in range(2)]
    np.testing.assert_array_equal(on_device(lambda x, y: x @ y.T, x, y), x.astype(np.float64) @ y.T)


def test_a_reduction_longer_than_a_kernel_may_loop_over() -> None:
    """Enough results to keep the device busy, so that each would be one invocation's."""
    n = 540_000
    got = on_device(lambda x: fnp.sum(fnp.broadcast_to(x, (n, 256)), 0), np.arange(256) % 2 == 0)
    np.testing.assert_array_equal(got, np.arange(1, 257) % 2 * n)


# ---- layouts ----


@pytest.mark.parametrize("n", [32, 128])
@pytest.mark.parametrize("large", [False, True])
def test_products_of_rows_and_columns_that_repeat(n: int, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stride of an operand is 0 and the other 1; whole tiles are read as vectors, in tiles of a GPU too."""
    if large:
        monkeypatch.setattr(VULKAN.memory, "target", VULKAN.memory.target._replace(software=False))
    rng = np.random.default_rng(n)
    v, x = rng.integers(-3, 4, n).astype(np.float32), rng.integers(-3, 4, (n, n)).astype(np.float32)
    rows, columns = np.broadcast_to(v, (n, n)), np.broadcast_to(v[:, None], (n, n))

    def products(v: Any, x: Any) -> Any:
        a, b = fnp.broadcast_to(v, (n, n)), fnp.broadcast_to(v[:, None], (n, n))
        return a @ x, b @ x, x @ a, x @ b, a @ b, b @ a

    got = fg.jit(products, device=VULKAN)(v, x)
    want = rows @ x, columns @ x, x @ rows, x @ columns, rows @ columns, columns @ rows
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(g), w)


@pytest.mark.parametrize("shape", [(), (6,), (2, 3)])
def test_a_reshaped_result_in_the_memory_of_an_argument_has_its_own_shape(shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    for reshape in (lambda x: x[None], lambda x: x.reshape(x.size, 1)):
        got = fg.jit(reshape, device=VULKAN, donate_argnums=0)(fg.device_put(x, VULKAN))
        want = reshape(x)
        assert got.shape == np.asarray(got).shape == want.shape
        np.testing.assert_array_equal(np.asarray(got), want)


# ---- what may run side by side ----


class Backwards(executable._Block):
    """Launches between two barriers in the opposite order, each behind a barrier: a race gives a wrong result."""

    def __init__(self, launches: Any, pipelines: Any) -> None:
        super().__init__(launches, pipelines)
        w = self.whole
        level = np.cumsum(w.barrier != 0)
        order = np.lexsort((-np.arange(len(level)), level))
        ends = np.cumsum(w.sizes)
        rows = np.concatenate([np.arange(ends[i] - w.sizes[i], ends[i]) for i in order] or [order]).astype(int)
        by_launch = {k: np.ascontiguousarray(getattr(w, k)[order]) for k in ("kernels", "groups", "sizes", "nodes")}
        self.whole = w._replace(
            **by_launch, which=w.which[rows], offset=w.offset[rows], barrier=np.ones_like(w.barrier)
        )
        self.starts = np.cumsum(self.whole.sizes) - self.whole.sizes


@pytest.fixture
def backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "_Block", Backwards)


@pytest.mark.parametrize("seed", range(100, 116))
def test_kernels_that_need_not_wait_may_run_in_any_order(seed: int, backwards: None) -> None:
    """Random programs, alone and as a step whose state is donated."""
    fun, args, _ = random_function(seed, "exact", size=30)

    def step(*xs: Any) -> Any:
        outs = fun(*xs)
        turned = [x[::-1] if x.ndim else x for x in reversed(xs)]
        return [fnp.minimum(fnp.maximum(x + fnp.sum(outs[0]), -9.0), 9.0) for x in turned], outs

    want = fg.tree.leaves(fg.jit(step, device="cpu")(*args))
    for donated in ((), (0, 1, 2)):
        got = fg.jit(step, device=VULKAN, donate_argnums=donated)(*[fg.device_put(a, VULKAN) for a in args])
        for g, w in zip(fg.tree.leaves(got), want, strict=True):
            np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


@pytest.mark.parametrize("length", [1, 4, 9])
def test_loops_that_write_in_place_read_before_they_write(length: int, backwards: None) -> None:
    x = np.arange(24, dtype=np.float32).reshape(6, 4) % 5

    def step(i: Any, state: Any) -> Any:
        table, other, total = state
        row = table[i % 6]
        table = table.at[(i + 1) % 6].set(row * 2.0 - table[(i + 1) % 6])
        other, table = table + other[::-1], table.at[0].add(fnp.sort(other[i % 6]))
        return fnp.clip(table, -9, 9), fnp.clip(other, -9, 9), fnp.clip(total + row @ other.T, -9, 9)

    def run(x: Any) -> Any:
        return lax.fori_loop(0, length, step, (x, x[::-1] * 1.0, fnp.zeros(6)))

    want = fg.jit(run, device="numpy")(x)
    for donated in ((), (0,)):
        got = fg.jit(run, device=VULKAN, donate_argnums=donated)(fg.device_put(x, VULKAN))
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


# ---- what is left of functions that are gone ----


def test_kernels_of_functions_that_are_gone_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "LATEST", 4)
    fg.clear_caches()
    gc.collect()
    kept = fg.jit(lambda x: fnp.sin(x) * 3.25 - x, device=VULKAN)
    x = np.linspace(0, 1, 5, dtype=np.float32)
    first, before = np.asarray(kept(x)), len(VULKAN.pipelines)
    for k in range(12):
        on_device(lambda x, k=k: x * (1.5 + k) + 0.25, x)
    gc.collect()
    assert len(VULKAN.pipelines) <= before + 4
    np.testing.assert_array_equal(np.asarray(kept(x)), first)
    np.testing.assert_array_equal(np.asarray(kept(x + 1)), on_device(lambda x: fnp.sin(x) * 3.25 - x, x + 1))


def test_clear_caches_forgets_single_operations_too() -> None:
    x = fg.device_put(np.ones(5, np.float32), VULKAN)
    y = fnp.cosh(x) + x * 7.5
    fg.clear_caches()
    gc.collect()
    assert len(VULKAN.pipelines) == 0
    np.testing.assert_allclose(np.asarray(fnp.cosh(x) + x * 7.5), np.asarray(y))


# ---- threads ----


def test_devices_are_made_once_whoever_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[device.Device] = []

    def slow() -> list[device.Device]:
        time.sleep(0.05)
        made.append(device.NumpyDevice())
        return [made[-1]]

    monkeypatch.setitem(device._factories, "slow", slow)
    monkeypatch.setattr(device, "_made", dict(device._made))
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(fg.devices, "slow") for _ in range(4)]
    assert len(made) == 1 and all(f.result() == made for f in found)


def test_threads_compile_call_and_forget_at_once() -> None:
    """Functions and kernels may be forgotten while others compile and call them."""
    args = np.linspace(-1, 1, 12, dtype=np.float32), np.arange(12, dtype=np.float32)
    functions = [lambda x, y, k=k: fnp.sin(x * (k + 1.0)) * y - fnp.sum(x) for k in range(6)]
    shared = [fg.jit(f, device=VULKAN) for f in functions]
    want = [np.asarray(fg.jit(f, device="numpy")(*args)) for f in functions]

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(25):
            k = int(rng.integers(len(functions)))
            got = shared[k](*args) if rng.random() < 0.5 else fg.jit(functions[k], device=VULKAN)(*args)
            np.testing.assert_allclose(np.asarray(got), want[k], rtol=1e-5, atol=1e-5)
            if rng.random() < 0.2:
                fg.clear_caches()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, seed) for seed in range(4)]:
            done.result(120)
