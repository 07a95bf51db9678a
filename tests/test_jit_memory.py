"""jit: donation, what is freed and kept, what stays on the device, interrupts."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
from compare import close, f32
from interrupts import check_interrupts
from test_jit import X

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.errors import DonationError, RetraceError

pytestmark = pytest.mark.usefixtures("device")


# -- donation ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [{"donate_argnums": 0}, {"donate_argnums": (-2,)}, {"donate_argnames": "state"}])
def test_donated_arrays_are_gone(options: Any) -> None:
    @fg.jit(**options)
    def step(state: Any, x: Any) -> Any:
        return tree.map(lambda s: s + x, state)

    state, x = {"a": fnp.asarray(X), "b": [fnp.asarray(2 * X)]}, fnp.asarray(X)
    old = tree.leaves(state)
    for _ in range(3):
        state = step(state, x)
    close(state["a"], 4 * X)
    close(state["b"][0], 5 * X)
    close(x, X)
    for use in (
        lambda a: a + 1,
        np.asarray,
        lambda a: step({"a": a, "b": [a]}, x),
        lambda a: fg.grad(lambda v: (v * a).sum())(X),
    ):
        with pytest.raises(
            DonationError,
            match="its memory was donated, got a call of step\n  way out: use the array that the call returned",
        ) as caught:
            use(old[0])
        assert not caught.value.__context__ or caught.value.__suppress_context__  # nothing about how it was found
    assert old[0].is_deleted() and "donated" in repr(old[0])
    state = step(state, x)  # a failed call does no harm
    close(state["a"], 5 * X)


def test_donation_of_numpy_data_and_of_one_array_twice() -> None:
    f = fg.jit(lambda a, b: (a + b, a - b), donate_argnums=(0, 1))
    host = X.copy()
    plus, minus = f(host, host)
    close(plus, 2 * X)
    close(minus, 0 * X)
    np.testing.assert_array_equal(host, X)
    a = fnp.asarray(X)
    plus, minus = f(a, a)
    close(plus, 2 * X)
    close(minus, 0 * X)


def test_views_of_donated_memory_keep_their_values() -> None:
    f = fg.jit(lambda x: x * 2, donate_argnums=0)
    x = fnp.asarray(X)
    view = np.asarray(x)
    y = f(x)
    f(y)
    np.testing.assert_array_equal(view, X)


def test_donation_that_cannot_be_honoured_is_explained(device: str) -> None:
    if device == "numpy":
        pytest.skip("the reference plans no memory")
    f = fg.jit(lambda p: p["x"].sum(), donate_argnums=0)
    with pytest.warns(UserWarning, match=r"argument 0\['x'\]: no result has its type f32\[3\]"):
        close(f({"x": fnp.asarray(X)}), X.sum(), 1e-5)


# -- memory ------------------------------------------------------------------------------------------------------
def test_functions_and_captured_arrays_are_freed() -> None:
    class Tag:
        pass

    def make() -> Any:
        tag, w = Tag(), fnp.asarray(X)

        def f(x: Any) -> Any:
            assert tag
            return x * w

        return fg.jit(f), weakref.ref(tag), weakref.ref(w)

    f, tag, w = make()
    close(f(X), X * X)
    fg.grad(lambda x, f=f: f(x).sum())(X)
    gc.collect()
    assert tag() is not None and w() is not None
    del f
    gc.collect()
    assert tag() is None and w() is None


def test_the_cache_is_bounded_and_can_be_cleared(monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.modules["funcgrad.transforms.jit"], "MAX_ENTRIES", 4)
    f = fg.jit(lambda x: x + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fg.RetraceWarning)
        for n in range(1, 8):
            f(fnp.zeros(n, fnp.float32))
    assert f.cache_size() == 4
    f.clear_cache()
    assert f.cache_size() == 0
    close(f(X), X + 1)
    fg.clear_caches()
    assert f.cache_size() == 0
    close(f(X), X + 1)


# -- what stays on the device ------------------------------------------------------------------------------------
def test_an_array_of_another_device_is_sent_once(device: str) -> None:
    other = "cpu" if device == "numpy" else "numpy"
    if other == "cpu" and not [d for d in fg.devices() if d.name == "cpu"]:
        pytest.skip("needs the extension")
    x = fg.device_put(X, other)
    f = fg.jit(lambda x, y: x * y)
    with fg.debug.expect(uploads=1, launches=1) as seen:
        close(f(x, fnp.asarray(X)), X * X)
    assert seen.bytes_uploaded in (X.nbytes, 2 * X.nbytes)  # float64 on the numpy device
    with fg.debug.expect(uploads=0, launches=1):
        close(f(x, fnp.asarray(X)), X * X)
    copies = sys.modules["funcgrad.array"]._copies
    kept = len(copies)
    x.delete()
    assert len(copies) == kept - 1
    x = fg.device_put(X, other)
    f(x, fnp.asarray(X))
    assert len(copies) == kept
    del x
    gc.collect()
    assert len(copies) == kept - 1
    x = fg.device_put(X, other)
    g = fg.jit(lambda x: x + 1, donate_argnums=0)  # donated: the copy is the call's own
    for _ in range(2):
        close(g(fg.device_put(X, other)), X + 1)
    close(f(x, fnp.asarray(X)), X * X)


def test_host_leaves_may_become_resident_and_back(device: str) -> None:
    f = fg.jit(lambda s, b: (s + b["x"], b["n"]), max_traces=1)
    s = fnp.asarray(X)
    one, dtype = np.int32(3), np.asarray(s).dtype
    for x, uploads in [(X.astype(dtype), 1), (fnp.asarray(X), 1), (X.astype(dtype), 1)]:
        with fg.debug.expect(uploads=uploads):
            out, n = f(s, {"x": x, "n": one})
        close(out, 2 * X)
        assert int(n) == 3
    with fg.debug.expect(uploads=0):
        close(f(s, {"x": s, "n": n})[0], 2 * X)
    with pytest.raises(RetraceError):
        f(s, {"x": X[:2], "n": one})
    with pytest.raises(RetraceError):
        f(s, {"x": X.astype(np.int32), "n": one})
    gone = fnp.asarray(X)
    gone.delete()
    with pytest.raises(fg.errors.DeviceError, match="its memory was freed"):
        f(gone, {"x": X.astype(dtype), "n": one})


def test_the_cache_is_bounded_by_bytes(monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.modules["funcgrad.transforms.jit"], "MAX_BYTES", 3 * 4 * 10_000)
    big = [fnp.asarray(f32(10_000, seed=i)) for i in range(6)]
    f = fg.jit(lambda x, k: x + big[k], static_argnums=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fg.RetraceWarning)
        for k in range(6):
            close(f(f32(10_000), k), f32(10_000) + np.asarray(big[k]))
    assert 1 <= f.cache_size() <= 2 and f.stats.traces == 6
    f(f32(10_000), 5)
    assert f.stats.traces == 6  # the newest is kept, however large
    f(f32(10_000), 0)
    assert f.stats.traces == 7


def test_strict_makes_a_lost_donation_an_error(device: str) -> None:
    if device == "numpy":
        pytest.skip("the reference plans no memory")
    f = fg.jit(lambda p: p["x"].sum(), donate_argnums=0, strict=True)
    x = fnp.asarray(X)
    for _ in range(2):
        with pytest.raises(DonationError, match=r"argument 0\['x'\]: no result has its type f32\[3\]"):
            f({"x": x})
    close(x, X)  # and nothing was given away


def test_memory_by_line_before_anything_runs(device: str) -> None:
    if device == "numpy":
        pytest.skip("the reference plans no memory")

    def f(x: Any, w: Any) -> Any:
        h = fnp.tanh(x @ w)
        return (h @ w).sum()

    spec = fg.ShapeDtypeStruct
    compiled = fg.jit(fg.grad(f, argnums=1)).lower(spec((64, 32), "float32"), spec((32, 32), "float32")).compile()
    m = compiled.memory_analysis()
    assert m.argument_size_in_bytes == 4 * (64 * 32 + 32 * 32) and m.output_size_in_bytes == 4 * 32 * 32
    assert m.temp_size_in_bytes >= 4 * 64 * 32  # tanh's result is kept for the backward half
    text = compiled.memory_text()
    assert f"{m.peak_size_in_bytes:,} bytes" in text and "test_jit_memory.py" in text
    for line in (
        "8,192 bytes f32[64,32] argument 0",
        "4,096 bytes f32[32,32] argument 1",
        "4,096 bytes f32[32,32] the root of",
    ):
        assert line in text
    assert max(compiled.live_bytes()) <= m.peak_size_in_bytes
    by_line = compiled.costs()
    assert sum(c.flops for c in by_line) == compiled.cost_analysis()["flops"]
    assert any(c.site is not None and c.site.file == __file__ for c in by_line)


INTERRUPTED = """
step = fg.jit(lambda s: {"a": s["a"] @ s["a"] / 700.0, "b": s["b"] + 1}, donate_argnums=0)
make = lambda: {"a": fnp.asarray(np.ones((1000, 1000), np.float32)), "b": fnp.asarray(np.zeros(3, np.float32))}
OLD, NEW = [1.0, 0.0], [float(np.float32(1000) / np.float32(700)), 1.0]
"""


@pytest.mark.ggml
def test_an_interrupt_during_a_donating_call() -> None:
    check_interrupts(INTERRUPTED)
