"""jit on a Vulkan device: what is counted, what is refused, memory, threads, interrupts, and the choice of a device."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from interrupts import check_interrupts

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import debug, lax, optim, random
from funcgrad.errors import DeviceError
from funcgrad.placement import coverage

try:
    VULKAN: Any = fg.devices("vulkan")[0]
except DeviceError as error:
    pytest.skip(str(error).splitlines()[0], allow_module_level=True)

pytestmark = [pytest.mark.ggml, pytest.mark.vulkan]
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def spread(x: Any) -> Any:
    return fnp.linalg.cholesky(x.T @ x + fnp.eye(3))


# ---- what the CPU does ----


def test_strict_refuses_what_the_cpu_would_compute_and_names_it() -> None:
    f = fg.jit(spread, device=VULKAN, strict=True)
    with pytest.raises(
        DeviceError, match=r"strict=True: vulkan:0 must compute everything(.|\n)*cholesky \(f32\[3,3\]\)"
    ):
        f(X)
    np.testing.assert_allclose(np.asarray(fg.jit(fnp.tanh, device=VULKAN, strict=True)(X)), np.tanh(X), rtol=1e-6)


def test_strict_allows_callbacks() -> None:
    f = fg.jit(lambda x: _doubled(x) + 1.0, device=VULKAN, strict=True)
    np.testing.assert_array_equal(np.asarray(f(X)), X * np.float32(2) + np.float32(1))


def _doubled(x: Any) -> Any:
    return fg.pure_callback(lambda a: a * np.float32(2), fg.ShapeDtypeStruct(x.shape, x.dtype), x)


def test_fallbacks_are_counted_with_the_bytes_that_cross_the_bus() -> None:
    f = fg.jit(spread, device=VULKAN)
    f(X)
    assert f.stats.fallbacks == 1
    found = coverage(spread, X, device=VULKAN)
    [(key, nbytes)] = found.nbytes.items()
    assert key[0] == "cholesky" and nbytes == 2 * 9 * 4 and f"{nbytes:,} bytes over the bus" in str(found)

    def loop(x: Any) -> Any:
        return lax.scan(
            lambda c, _: (spread(fnp.ones((4, 3)) * c.sum()), None), fnp.eye(3) + x[:3] * 0.0, None, length=5
        )

    assert sum(coverage(loop, X, device=VULKAN).nbytes.values()) == 5 * 2 * 9 * 4


# ---- transfers ----


def test_a_step_is_one_upload_one_launch_and_one_download() -> None:
    ts = fg.make_train_step(lambda w, b: fnp.mean((b["x"] @ w - b["y"]) ** 2), optim.adam(0.1), device=VULKAN)
    batch = {"x": X, "y": np.ones(4, np.float32)}
    with fg.default_device(VULKAN):
        state = ts.init(np.zeros(3, np.float32))
    state, _ = ts.step(state, batch)
    state, _ = ts.step(state, batch)
    with debug.expect(uploads=1, launches=1, downloads=1):
        state, metrics = ts.step(state, batch)
        _ = float(metrics["loss"]), float(metrics["grad_norm"])


def test_small_results_of_a_call_are_read_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    f = fg.jit(lambda x: (fnp.sum(x), fnp.max(x), fnp.min(x), x * 2.0), device=VULKAN)
    outs = f(np.ones((64, 64), np.float32))
    reads: list[int] = []
    read = VULKAN.memory.read
    monkeypatch.setattr(VULKAN.memory, "read", lambda places, avals: reads.append(len(places)) or read(places, avals))
    assert [float(o) for o in outs[:3]] == [4096.0, 1.0, 1.0] and reads == [3]
    assert float(np.asarray(outs[3])[0, 0]) == 2.0 and reads == [3, 1]


def test_a_call_returns_before_the_device_is_done_and_reading_waits() -> None:
    f = fg.jit(lambda x: lax.fori_loop(0, 40, lambda _, y: fnp.tanh(y @ x), x), device=VULKAN)
    x = fg.device_put(np.eye(384, dtype=np.float32), VULKAN)
    fg.block_until_ready(f(x))
    assert VULKAN.memory.is_idle()
    result = f(x)
    assert not VULKAN.memory.is_idle()
    value = float(np.asarray(result)[0, 0])
    assert VULKAN.memory.is_idle()
    want = 1.0
    for _ in range(40):
        want = np.tanh(want)
    assert abs(value - want) < 1e-5


# ---- memory ----


def test_too_little_memory_is_an_error_before_the_run_with_the_plans_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    f = fg.jit(lambda x: fnp.tanh(x @ x) @ x, device=VULKAN, donate_argnums=0)
    x = fg.device_put(np.full((256, 256), 1 / 256, np.float32), VULKAN)
    compiled = f.lower(x).compile()
    peak = compiled.memory_analysis().peak_size_in_bytes
    assert peak >= 2 * 256 * 256 * 4
    monkeypatch.setattr(VULKAN.memory, "limit", VULKAN.memory.in_use + 1000)
    with pytest.raises(DeviceError, match=r"out of memory, got [\d,]+ bytes for a call(.|\n)*of workspace") as caught:
        f(x)
    assert f"{peak:,}" in str(caught.value) and "test_vulkan_jit.py" in str(caught.value)
    monkeypatch.undo()
    assert abs(float(np.asarray(f(x))[0, 0]) - np.tanh(1 / 256)) < 1e-6  # the refused call took nothing


@pytest.mark.parametrize("text", ["lots", "-5", "0"])
def test_a_limit_must_be_a_number(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from_environment = type(VULKAN.memory)
    monkeypatch.setenv("FUNCGRAD_VULKAN_MEMORY", text)
    with pytest.raises(DeviceError, match="FUNCGRAD_VULKAN_MEMORY: a positive number of bytes"):
        from_environment(0)


def test_a_limit_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUNCGRAD_VULKAN_MEMORY", "1000000")
    memory = type(VULKAN.memory)(0)
    held = memory.take(900_000)
    with pytest.raises(DeviceError, match=r"out of memory, got 200,000 bytes asked for, 900,000 in use"):
        memory.take(200_000)
    del held
    assert memory.take(200_000).nbytes == 200_000


# ---- values that must not depend on the device ----


def test_random_bits_are_the_cpus() -> None:
    def draws(key: Any) -> Any:
        a, b, c, d = random.split(key, 4)
        return (
            random.bits(a, (1001,)),
            random.uniform(b, (33, 7)),
            random.permutation(c, 257),
            random.choice(d, 50, (20,), replace=False),
            random.randint(a, (65,), -5, 1000),
            random.fold_in(key, 7),
        )

    both = [fg.jit(draws, device=d)(random.key(5)) for d in (VULKAN, "cpu")]
    for got, want in zip(*[fg.tree.leaves(b) for b in both], strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_float64_data_becomes_float32_and_arrays_of_other_devices_are_moved() -> None:
    there = fg.device_put(X, "cpu")
    got = fg.jit(lambda a, b, c: a + b + c, device=VULKAN)(X.astype(np.float64), there, 1)
    assert got.dtype == np.float32 and got.device is VULKAN
    np.testing.assert_allclose(np.asarray(got), X + X + 1, rtol=1e-6)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4, 2)])
def test_arrays_without_elements(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    f = fg.jit(lambda x: (x * 2.0, fnp.sum(x), x.reshape(-1), fnp.concatenate([x, x])), device=VULKAN)
    doubled, total, flat, twice = f(x)
    assert doubled.shape == shape and float(total) == 0.0 and flat.shape == (0,) and np.asarray(twice).size == 0


# ---- threads, interrupts, callbacks ----


def test_threads_share_a_function() -> None:
    f = fg.jit(lambda x: fnp.sum(fnp.tanh(x @ x.T) * 2.0, axis=1), device=VULKAN)
    inputs = [X * (i + 1) for i in range(6)]
    want = [(np.tanh(x.astype(np.float64) @ x.T) * 2).sum(1) for x in inputs]
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(40):
                k = (seed + i) % len(inputs)
                np.testing.assert_allclose(np.asarray(f(inputs[k])), want[k], rtol=1e-4, atol=1e-5)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not failures and not any(t.is_alive() for t in threads)


def test_a_callback_that_raises_leaves_donated_arrays_whole() -> None:
    def refuse(a: np.ndarray) -> np.ndarray:
        raise RuntimeError("no")

    def body(x: Any) -> Any:
        y = fg.pure_callback(refuse, fg.ShapeDtypeStruct((), np.float32), fnp.sum(x))
        return x * 2.0 + y

    x = fg.device_put(X, VULKAN)
    with pytest.raises(RuntimeError, match="no"):
        fg.jit(body, device=VULKAN, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(x), X)


INTERRUPTED = """
body = lambda s: {"a": s["a"] + 1.0, "b": s["b"] + 1.0}
loop = lambda s: fg.lax.while_loop(lambda s: s["b"][0] < 400.0, body, s)
step = fg.jit(loop, donate_argnums=0, device="vulkan:0")
make = lambda: {k: fg.device_put(np.zeros(n, np.float32), "vulkan:0") for k, n in (("a", 30000), ("b", 3))}
OLD, NEW = [0.0, 0.0], [400.0, 400.0]
"""


def test_an_interrupt_between_the_iterations_of_a_loop() -> None:
    check_interrupts(INTERRUPTED)


FORKED = """
import os, warnings
import numpy as np
import funcgrad as fg

warnings.simplefilter("ignore")
f = fg.jit(lambda x: x * 2.0, device="vulkan:0")
f(np.ones(3, np.float32))
child = os.fork()
if child == 0:
    try:
        f(np.ones(3, np.float32))
    except fg.errors.DeviceError as error:
        os._exit(0 if "spawn" in str(error) and "lost" not in str(error) else 2)
    os._exit(1)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), float(np.asarray(f(np.ones(3, np.float32)))[0]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_gets_an_error_with_a_way_out_and_the_parent_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "child 0 2.0", done.stdout + done.stderr


# ---- device="auto" ----


def times(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float]) -> None:
    monkeypatch.setattr("funcgrad.transforms.choose._time", lambda fun, dev, *rest: seconds[dev.name])


@pytest.mark.parametrize(
    ("cpu", "gpu", "chosen"), [(1.0, 0.5, "vulkan:0"), (1.0, 0.97, "cpu"), (1.0, 1.0, "cpu"), (1.0, 2.0, "cpu")]
)
def test_auto_takes_the_fastest_and_the_earlier_of_equals(
    cpu: float, gpu: float, chosen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {d.name: gpu for d in fg.devices()} | {"cpu": cpu}
    times(monkeypatch, seconds)
    f = fg.jit(lambda x: x * 2.0, device="auto")
    assert f(X).device.name == chosen and f(X + 1).device.name == chosen
    said = capsys.readouterr().err
    assert said.count("funcgrad:") == 1 and f"is {chosen};" in said and "vulkan:0" in said


def test_auto_leaves_donated_arguments_to_the_call_that_counts(capsys: pytest.CaptureFixture[str]) -> None:
    f = fg.jit(lambda s, x: (s + x, fnp.sum(s)), device="auto", donate_argnums=0)
    state, total = f(fg.device_put(X), X)
    np.testing.assert_array_equal(np.asarray(state), X + X)
    np.testing.assert_allclose(float(total), X.sum(), atol=1e-6)
    assert f.stats.calls == f.stats.traces == 1 and "ms" in capsys.readouterr().err


def test_auto_does_not_try_functions_with_effects(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        debug.callback(lambda a: seen.append(float(a)), fnp.sum(x))
        return x * 2.0

    fg.block_until_ready(fg.jit(f, device="auto")(np.ones(3, np.float32)))
    assert seen == [3.0] and "effects" in capsys.readouterr().err


def test_auto_passes_over_a_device_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def timed(fun: Any, dev: Any, *rest: Any) -> float:
        if dev.name != "cpu":
            raise DeviceError("it was lost")
        return 1.0

    monkeypatch.setattr("funcgrad.transforms.choose._time", timed)
    assert fg.jit(lambda x: x * 2.0, device="auto")(X).device.name == "cpu"
    assert "vulkan:0 failed: it was lost" in capsys.readouterr().err


def test_a_train_step_chooses_its_device(capsys: pytest.CaptureFixture[str]) -> None:
    ts = fg.make_train_step(lambda w, b: fnp.mean((b @ w - 1.0) ** 2), optim.sgd(0.1), device="auto")
    state = ts.init(np.zeros(3, np.float32))
    losses = []
    for _ in range(3):
        state, metrics = ts.step(state, X)
        losses.append(float(metrics["loss"]))
    assert losses[0] == 1.0 and losses[0] > losses[1] > losses[2]
    assert capsys.readouterr().err.count("funcgrad:") == 1


def test_auto_is_no_device_for_arrays() -> None:
    with pytest.raises(DeviceError, match="for jit and make_train_step"):
        fg.device_put(X, "auto")
