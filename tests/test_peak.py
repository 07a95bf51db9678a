"""The planner's peak against what is really taken: by the allocator, to the byte, and by the process."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.runtime import ggml

pytestmark = pytest.mark.ggml

F32 = np.float32


@pytest.fixture
def one_thread() -> Iterator[Any]:
    lib = ggml.load().lib
    lib.fg_set_threads(1)
    yield lib
    lib.fg_set_threads(0)


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(F32)


def attention(q: Any, k: Any, v: Any) -> Any:
    s = fnp.einsum("bhqd,bhkd->bhqk", q, k)
    return fnp.sum(fnp.sin(fg.nn.softmax(s) @ v))


def dense(ws: Sequence[Any], x: Any) -> Any:
    for w in ws:
        x = fg.nn.relu(x @ w)
    return (x * x).mean()


def over_layers(ws: Any, x: Any) -> Any:
    return (fg.lax.scan(lambda h, w: (fnp.tanh(h @ w), None), x, ws)[0] ** 2).sum()


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "tiles": (fg.grad(attention, argnums=(0, 1, 2)), lambda: tuple(normal(4, 8, 128, 16) for _ in range(3))),
    "dense": (fg.grad(dense), lambda: ([normal(64, 64) for _ in range(6)], normal(512, 64))),
    "sums over many": (lambda x, y: x.T @ y, lambda: (normal(40_000, 24), normal(40_000, 24))),
    "a long sort": (lambda x: fnp.sort(x) + 1, lambda: (normal(300_000),)),
    "columns": (lambda x: fnp.max(x, 0), lambda: (normal(4000, 3000),)),
    "scan": (fg.grad(over_layers), lambda: (normal(5, 64, 64) / 8, normal(256, 64))),
    "released": (fg.grad(dense), lambda: ([normal(1024, 1024) / 32 for _ in range(12)], normal(1024, 1024))),
    "checkpoint": (
        fg.grad(lambda ws, x: fg.checkpoint(dense)(ws[3:], fg.checkpoint(lambda a: fg.nn.relu(a @ ws[0]))(x))),
        lambda: ([normal(64, 64) for _ in range(6)], normal(512, 64)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_allocator_takes_what_was_planned(name: str, one_thread: Any) -> None:
    fun, make = CASES[name]
    with fg.default_device("cpu"):
        xs = fg.tree.map(fnp.asarray, make())
        compiled = fg.jit(fun).lower(*xs).compile()
        planned = compiled.memory_analysis()
        fg.block_until_ready(compiled(*xs))
        gc.collect()
        before = one_thread.fg_alloc_in_use()
        one_thread.fg_alloc_peak()
        result = compiled(*xs)
        fg.block_until_ready(result)
        grown = one_thread.fg_alloc_peak() - before
    assert grown == planned.peak_size_in_bytes - planned.argument_size_in_bytes


def test_results_are_right_when_workspace_goes_back_early(one_thread: Any) -> None:
    fun, make = CASES["released"]
    with fg.default_device("cpu"):
        xs = fg.tree.map(fnp.asarray, make())
        compiled = fg.jit(fun).lower(*xs).compile()
        assert compiled.executable.plan.events
        first = [np.array(a) for a in fg.tree.leaves(compiled(*xs))]
        kept = compiled(*xs)
        for _ in range(3):  # out of cached memory, some of it released
            fg.block_until_ready(compiled(*xs))
        again = [np.array(a) for a in fg.tree.leaves(kept)]
    want = fg.tree.leaves(gradients([np.asarray(w, np.float64) for w in make()[0]], make()[1].astype(np.float64)))
    for a, b, w in zip(first, again, want, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.linalg.norm(a - w) < 1e-2 * np.linalg.norm(w)  # a few units are on the other side of 0


def gradients(ws: Sequence[Any], x: Any) -> Any:
    """Of ``dense`` by hand."""
    hs = [x]
    for w in ws:
        hs.append(np.maximum(hs[-1] @ w, 0))
    ct, out = 2 * hs[-1] / hs[-1].size, []
    for w, h, r in zip(ws[::-1], hs[-2::-1], hs[::-1], strict=False):
        ct = np.where(r > 0, ct, 0)
        out.append(h.T @ ct)
        ct = ct @ w.T
    return out[::-1]


def test_some_kernels_take_memory_of_their_own(one_thread: Any) -> None:
    with fg.default_device("cpu"):
        xs = [fnp.asarray(normal(4, 8, 128, 16)) for _ in range(3)]
        plan = fg.jit(fg.grad(attention)).lower(*xs).compile().executable.plan
        assert plan.scratch_bytes >= 128 * 128 * 4  # a piece of the scores
        assert plan.peak_bytes == plan.argument_bytes + plan.output_bytes + plan.temp_bytes + plan.scratch_bytes
        one_thread.fg_set_threads(3)
        again = fg.jit(fg.grad(lambda *a: attention(*a))).lower(*xs).compile().executable.plan
        assert again.scratch_bytes == 3 * plan.scratch_bytes


PROCESS = """
import json
import numpy as np
import funcgrad as fg, funcgrad.numpy as fnp
def status(field):
    return next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith(field + ":"))
def loss(ws, x):
    for w in ws:
        x = fg.nn.relu(x @ w)
    return (x * x).mean()
with fg.default_device("cpu"):
    ws = [fnp.asarray(np.full((512, 512), 0.01, np.float32)) for _ in range(16)]
    x = fnp.asarray(np.ones((4096, 512), np.float32))
    small = fg.jit(fg.grad(loss))
    fg.block_until_ready(small(ws[:1], x[:64]))  # threads and the BLAS have started
    compiled = fg.jit(fg.grad(loss)).lower(ws, x).compile()
    sizes = compiled.memory_analysis()
    before = status("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
    fg.block_until_ready(compiled(ws, x))
    print(json.dumps([(status("VmHWM") - before) * 1024, sizes.peak_size_in_bytes - sizes.argument_size_in_bytes]))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's counters of resident memory")
def test_the_process_grows_by_what_was_planned() -> None:
    """150 MB planned; 5 % of room for pages that are not wholly used, and for the interpreter's own."""
    out = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, check=True).stdout
    grown, planned = json.loads(out)
    assert planned > 100e6
    assert 0.95 * planned < grown < 1.05 * planned
