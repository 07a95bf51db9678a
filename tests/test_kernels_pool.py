"""The thread pool and the allocator under the C kernels."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from map_kernels import Kernel, ffi, lib

pytestmark = [pytest.mark.ggml, pytest.mark.usefixtures("restore_threads")]


def test_default_is_at_most_the_cores_of_the_process() -> None:
    lib.fg_set_threads(0)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert 1 <= lib.fg_get_threads() <= cores
    lib.fg_set_threads(3)
    assert lib.fg_get_threads() == 3


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_task_runs_once(threads: int) -> None:
    lib.fg_set_threads(threads)
    counts = np.zeros(1000, np.int64)

    @ffi.callback("void(void *, int64_t)")
    def count(_: Any, task: int) -> None:
        counts[task] += 1

    for n in (0, 1, 2, 3, 100, 1000):
        counts[:] = 0
        lib.fg_run_begin()
        lib.fg_parallel_for(n, count, ffi.NULL)
        lib.fg_run_end()
        np.testing.assert_array_equal(counts, np.arange(1000) < n)


def exponential(n: int = 200001) -> tuple[np.ndarray[Any, Any], Kernel]:
    x = np.linspace(-5, 5, n).astype(np.float32)
    out = np.empty_like(x)
    return out, Kernel((n,), [x], [(1, out)], [("exp_f", 1, 0)], 2)


def test_two_callers_at_once() -> None:
    lib.fg_set_threads(3)
    want, kernel = exponential()
    kernel.run()
    results = [exponential() for _ in range(4)]

    def repeat(kernel: Kernel) -> None:
        for _ in range(30):
            kernel.run()

    threads = [threading.Thread(target=repeat, args=(k,)) for _, k in results]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for out, _ in results:
        np.testing.assert_array_equal(out, want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_its_own_workers() -> None:
    lib.fg_set_threads(3)
    want, kernel = exponential()
    kernel.run()
    pid = os.fork()
    if pid == 0:
        out, child = exponential()
        child.run()
        os._exit(0 if np.array_equal(out, want) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    kernel.run()


def test_allocations_are_aligned_counted_and_kept() -> None:
    before = lib.fg_alloc_in_use()
    sizes = [0, 1, 63, 64, 65, 1000, 4097, 10**6, 2 * 10**6, 9 * 10**6]
    blocks = [lib.fg_alloc(n) for n in sizes]
    for p, n in zip(blocks, sizes, strict=True):
        assert int(ffi.cast("uintptr_t", p)) % 64 == 0
        ffi.buffer(p, n)[:] = b"\xff" * n
    assert lib.fg_alloc_in_use() == before + sum(sizes)
    for p in blocks:
        lib.fg_free(p)
        lib.fg_free(p)  # a second time does nothing
    lib.fg_free(ffi.NULL)
    assert lib.fg_alloc_in_use() == before
    assert lib.fg_alloc_cached() > 0
    again = lib.fg_alloc(9 * 10**6)
    assert again == blocks[-1]  # the same pages, already there
    lib.fg_free(again)
    lib.fg_alloc_trim()
    assert lib.fg_alloc_cached() == 0


def test_cache_is_bounded_by_what_was_in_use() -> None:
    lib.fg_alloc_trim()
    for megabytes in range(1, 40):
        lib.fg_free(lib.fg_alloc(megabytes << 20))  # no two of one size
    assert lib.fg_alloc_cached() <= 64 << 20
    lib.fg_alloc_trim()


@pytest.mark.parametrize("n", [-1, -(2**63), 2**46 + 1, 2**63 - 1])
def test_impossible_sizes_give_null(n: int) -> None:
    assert lib.fg_alloc(n) == ffi.NULL
