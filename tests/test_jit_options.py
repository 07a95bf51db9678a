"""jit: errors and recovery, threads, options, stages."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
from compare import close, f32
from test_jit import X

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.errors import CapturedConstantError, ShapeError, TreeError
from funcgrad.trace import replay

pytestmark = pytest.mark.usefixtures("device")


# -- errors and recovery -----------------------------------------------------------------------------------------
def test_an_exception_in_a_trace_leaves_no_trace() -> None:
    fail = [True]

    @fg.jit
    def f(x: Any) -> Any:
        y = x * 2
        if fail[0]:
            raise RuntimeError("from the user")
        return y

    for _ in range(2):
        with pytest.raises(RuntimeError, match="from the user"):
            f(X)
        with pytest.raises(RuntimeError, match="from the user"):
            fg.grad(lambda x: fg.vmap(f)(x).sum())(X)
        with pytest.raises(ShapeError):
            fg.jit(lambda x: x @ fnp.ones((7, 7)))(X)
        close(fnp.asarray(X) + 1, X + 1)
    fail[0] = False
    close(f(X), 2 * X)
    close(fg.grad(lambda x: f(x).sum())(X), np.full(3, 2.0))
    assert f.stats.traces == 1


def test_leaves_that_are_no_arrays() -> None:
    f = fg.jit(lambda p: p)
    with pytest.raises(
        TreeError, match=r"jit of <lambda>: every leaf must be a number or an array, got str at argument 0\['a'\]"
    ):
        f({"a": "text"})
    with pytest.raises(TreeError, match="every leaf of the result must be a number or an array, got object"):
        fg.jit(lambda x: {"y": object()})(X)
    f(X)
    with pytest.raises(TreeError, match="got object"):
        f(object())


def test_strict_mode_names_frozen_numbers() -> None:
    rate = 0.1

    def f(x: Any) -> Any:
        return x * rate

    close(fg.jit(f)(X), X * np.float32(0.1))
    with pytest.raises(
        CapturedConstantError, match=r"got rate = 0.1 at test_jit_options.py:\d+\n  way out: pass it as an argument"
    ):
        fg.jit(f, strict=True)(X)
    close(fg.jit(lambda x, r: x * r, strict=True)(X, 0.1), X * np.float32(0.1))
    report = fg.jit(f).explain()
    assert "rate = 0.1 at test_jit_options.py:" in report


# -- threads, options, stages ------------------------------------------------------------------------------------
def test_threads_share_a_function(device: str) -> None:
    traces = []

    @fg.jit
    def f(x: Any, k: Any) -> Any:
        traces.append(1)
        return fnp.sin(x) * k

    x = f32(1000)
    wrong: list[Any] = []

    def work(k: int) -> None:
        try:
            with fg.default_device(device):
                for i in range(20):
                    got = np.asarray(f(x, float(k * i)))
                    if not np.allclose(got, np.sin(x) * k * i, rtol=1e-5, atol=1e-5):
                        wrong.append((k, i))
                    if not np.allclose(
                        np.asarray(fg.grad(lambda y: f(y, 2.0).sum())(x)), 2 * np.cos(x), rtol=1e-5, atol=1e-5
                    ):
                        wrong.append("grad")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == [] and len(traces) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of fork beside threads
def test_a_forked_child_goes_on() -> None:
    if fg.default_backend() == "vulkan":
        pytest.skip("a forked child cannot use a device that its parent opened")
    f = fg.jit(lambda x: fnp.sin(x) @ x)
    x = f32(50)
    want = float(f(x))
    pid = os.fork()
    if pid == 0:  # the child: no exception may reach pytest
        try:
            good = float(f(x)) == want and float(fg.jit(lambda x: fnp.cos(x).sum())(x)) == float(fnp.cos(x).sum())
            good = good and np.allclose(np.asarray(fg.grad(lambda x: f(x))(x)), np.cos(x) * x + np.sin(x), atol=1e-5)
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert float(f(x)) == want


def test_disable_jit() -> None:
    seen = []

    @fg.jit
    def f(x: Any) -> Any:
        seen.append(x)
        return x * 2 if x.sum() > -1e9 else x  # Python may look at values when nothing is traced

    with fg.disable_jit():
        close(f(X), 2 * X)
        close(f(X), 2 * X)
        close(fg.grad(lambda x: f(x).sum())(X), np.full(3, 2.0))
    assert len(seen) == 3 and f.stats.traces == 0
    with pytest.raises(TypeError):
        f(X)


def test_stages(device: str) -> None:
    f = fg.jit(lambda p, x: {"y": p["w"] @ x, "s": x.sum()})
    spec = fg.ShapeDtypeStruct
    traced = f.trace({"w": spec((4, 3), "float32")}, x=spec((3,), "float32"))
    lowered = traced.lower()
    assert "dot_general" in lowered.as_text()
    compiled = lowered.compile()
    w = f32(4, 3)
    out = compiled({"w": w}, x=X)
    close(out["y"], w @ X)
    assert f.stats.traces == 1
    close(f({"w": w}, x=X)["y"], w @ X)
    assert f.stats.traces == 1
    with pytest.raises(TypeError, match=r"the shape of keyword x changed from f32\[3\] to f32\[2\]"):
        compiled({"w": w}, x=f32(2))
    # 2 * 4 * 3 for the product, 3 for the sum
    assert compiled.cost_analysis()["flops"] == 27.0
    close(fg.grad(lambda x: compiled({"w": w}, x=x)["s"])(X), np.ones(3))
    if device == "cpu":
        memory = compiled.memory_analysis()
        assert memory.argument_size_in_bytes == 4 * (12 + 3) and memory.output_size_in_bytes == 4 * (4 + 1)
        assert memory.peak_size_in_bytes >= memory.argument_size_in_bytes + memory.output_size_in_bytes
    assert f.lower({"w": w}, x=X).as_text() == lowered.as_text()


def test_the_compiled_listing_names_each_kernel_and_its_line(device: str) -> None:
    if device != "cpu":
        pytest.skip("the cpu device's listing")
    f = fg.jit(lambda w, x: fnp.tanh(fnp.tanh(x @ w) @ w.T))
    compiled = f.lower(np.ones((3, 2), np.float32), np.ones((4, 3), np.float32)).compile()
    lines = compiled.as_text().splitlines()
    assert [line.split()[0] for line in lines] == ["dot", "map", "dot", "map"]
    assert all("test_jit_options.py:" in line for line in lines)


def test_passes_keep_the_value_and_end_with_what_is_lowered() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(fg.checkpoint(lambda y: fnp.sin(y) * y)(x))

    x = np.linspace(0.0, 1.0, 5)
    lowered = fg.jit(fg.grad(fg.jit(f))).lower(x.astype(np.float32))
    passes = lowered.passes()
    assert passes["trace"] is lowered.traced.graph and str(passes["recompute"]) == lowered.as_text()
    names = {name: [e.prim.name for e in graph.eqns] for name, graph in passes.items()}
    assert names["trace"] == ["call"] and "call" not in names["open calls"] and "checkpoint" in names["open calls"]
    assert "checkpoint" not in names["inline"]
    for name, graph in passes.items():
        (found,) = replay(graph, [fnp.asarray(x.astype(np.float32))])
        np.testing.assert_allclose(np.asarray(found), np.cos(x) * x + np.sin(x), rtol=1e-6, atol=1e-7, err_msg=name)


def test_another_device_than_the_arrays() -> None:
    with fg.default_device("numpy"):
        wide = fnp.asarray(X.astype(np.float64))
        w = fnp.asarray(f32(3, seed=1))
    f = fg.jit(lambda x: x * w, device="numpy")
    got = f(wide)
    assert got.device.name == "numpy"
    close(got, X * np.asarray(w))
    assert fg.jit(lambda x: x + fnp.ones(3))(X).shape == (3,)


def test_jit_as_a_decorator_keeps_names() -> None:
    @fg.jit(static_argnames=("n",))
    def power(x: Any, n: int) -> Any:
        """x to the n."""
        return x**n

    assert power.__name__ == "power" and power.__doc__ == "x to the n."
    close(power(2.0, n=3), 8.0)
    assert repr(power) == "jit(power, 1 signatures)"
