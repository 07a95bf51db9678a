"""The Vulkan runtime of the extension (csrc/vk.h), with a kernel assembled by hand.

It runs where there is a Vulkan device; Mesa's software driver is one (Debian, Ubuntu: apt install mesa-vulkan-drivers).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vulkan_device import HEAP, LARGEST, N_LIMITS, Adder, Runtime, random
from vulkan_kernels import LOCAL, add_kernel


@pytest.fixture(scope="module")
def vk() -> Iterator[Runtime]:
    """A device; software counts here."""
    before = os.environ.get("FUNCGRAD_VULKAN_SOFTWARE")
    os.environ["FUNCGRAD_VULKAN_SOFTWARE"] = "1"
    try:
        yield Runtime()
    finally:
        if before is None:
            del os.environ["FUNCGRAD_VULKAN_SOFTWARE"]
        else:
            os.environ["FUNCGRAD_VULKAN_SOFTWARE"] = before


# ---- devices ----


def test_limits_are_what_vulkan_guarantees(vk: Runtime) -> None:
    limits = vk.limits()
    subgroup, invocations, shared = limits[:3]
    assert 1 <= limits[16] <= subgroup <= limits[17] <= 128
    assert invocations >= 128 and shared >= 16384 and min(limits[3:6]) >= 65535
    assert limits[HEAP] > 0 and 0 < limits[LARGEST] <= limits[HEAP] and limits[13] > 0 and limits[21] >= 128
    assert all(limits[i] in (0, 1) for i in (7, 8, 9, 10, 14, 15, 18, 19, 20, 22))
    assert vk.ffi.string(vk.lib.fgv_description(vk.device))
    few = vk.ffi.new("int64_t[2]", [-7, -7])
    assert vk.lib.fgv_limits(vk.device, few, 1) == N_LIMITS and few[1] == -7


def test_a_device_that_is_not_there(vk: Runtime) -> None:
    for index in (-1, 1000):
        assert not vk.lib.fgv_open(index, vk.err, 512)
        assert vk.text() == "no such device"


def test_software_devices_must_be_asked_for(vk: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    with_software = vk.lib.fgv_count(vk.err, 512)
    monkeypatch.delenv("FUNCGRAD_VULKAN_SOFTWARE")
    without = vk.lib.fgv_count(vk.err, 512)
    assert without <= with_software
    if vk.limits()[7]:
        assert without == 0 and "FUNCGRAD_VULKAN_SOFTWARE=1" in vk.text()
    monkeypatch.setenv("FUNCGRAD_VULKAN_SOFTWARE", "1")
    assert vk.lib.fgv_count(vk.err, 512) == with_software


# ---- memory ----


def test_write_and_read_at_odd_places(vk: Runtime) -> None:
    size = 100_003
    truth = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    address = vk.put(truth)
    rng = np.random.default_rng(2)
    for _ in range(200):
        n = int(rng.integers(1, 3000))
        at = int(rng.integers(0, size - n + 1))
        part = rng.integers(0, 256, n, np.uint8)
        vk.write(address + at, part)
        truth[at : at + n] = part
        at = int(rng.integers(0, size - n + 1))
        assert np.array_equal(vk.read(address + at, n, np.uint8), truth[at : at + n])
    assert np.array_equal(vk.read(address, size, np.uint8), truth)
    vk.release(address)


@pytest.mark.parametrize("n_bytes", [0, 1, 255, 4097, (1 << 20) + 1, 4 << 20, (32 << 20) + 5, 100_000_001])
def test_round_trip(vk: Runtime, n_bytes: int) -> None:
    data = np.random.default_rng(n_bytes).integers(0, 256, n_bytes, np.uint8)
    address = vk.put(data)
    assert address % 256 == 0
    assert np.array_equal(vk.read(address, n_bytes, np.uint8), data)
    vk.release(address)


def test_overlapping_writes_keep_their_order(vk: Runtime) -> None:
    address = vk.put(np.zeros(1000, np.uint8))
    truth = np.zeros(1000, np.uint8)
    rng = np.random.default_rng(3)
    for i in range(1000):  # more than one batch of pending copies
        n = int(rng.integers(1, 300))
        at = int(rng.integers(0, 1000 - n))
        vk.write(address + at, np.full(n, i % 251, np.uint8))
        truth[at : at + n] = i % 251
    assert np.array_equal(vk.read(address, 1000, np.uint8), truth)
    vk.release(address)


def test_host_memory_may_change_after_a_write(vk: Runtime) -> None:
    data = np.arange(1000, dtype=np.float32)
    address = vk.put(data)
    data[:] = -1
    assert np.array_equal(vk.read(address, 1000), np.arange(1000))
    vk.release(address)


def test_copies_on_the_device(vk: Runtime) -> None:
    data = random(3000)
    a, b = vk.put(data), vk.alloc(12000)
    assert vk.lib.fgv_copy(vk.device, b + 4, a, 11_996, vk.err, 512) == 0
    vk.write(a, np.zeros(3000, np.float32))  # after the copy
    assert vk.lib.fgv_copy(vk.device, b, a, 4, vk.err, 512) == 0
    assert np.array_equal(vk.read(b, 3000), np.concatenate([[np.float32(0)], data[:2999]]))
    assert vk.lib.fgv_copy(vk.device, a + 4, a, 8, vk.err, 512) < 0 and "overlaps itself" in vk.text()
    vk.release(a, b)


def test_many_reads_at_once(vk: Runtime) -> None:
    arrays = [random(n, n) for n in (1, 3, 1000, 3_000_000, 7, 2_500_000)]  # more than the staging memory holds
    addresses = [vk.put(a) for a in arrays]
    results = [np.empty_like(a) for a in arrays]
    new, n = vk.ffi.new, len(arrays)
    buffers = [vk.ffi.from_buffer(r) for r in results]
    sizes = new("int64_t[]", [a.nbytes for a in arrays])
    where, to = new("uint64_t[]", addresses), new("void *[]", buffers)
    assert vk.lib.fgv_read_many(vk.device, n, where, to, sizes, vk.err, 512) == 0
    for result, array in zip(results, arrays, strict=True):
        assert np.array_equal(result, array)
    assert vk.lib.fgv_read_many(vk.device, 0, where, to, sizes, vk.err, 512) == 0
    vk.release(*addresses)


def test_addresses_outside_of_allocations(vk: Runtime) -> None:
    address = vk.alloc(256)
    for bad in (0, 12345, address - 1, address + 256):
        with pytest.raises(RuntimeError, match="allocat"):
            vk.write(bad, np.zeros(2, np.uint8))
        with pytest.raises(RuntimeError, match="allocat"):
            vk.read(bad, 2, np.uint8)
    with pytest.raises(RuntimeError, match="one allocation"):
        vk.read(address + 200, 57, np.uint8)
    vk.release(address, address, 12345)  # the second time it is not there any more
    with pytest.raises(RuntimeError, match="allocat"):
        vk.write(address, np.zeros(1, np.uint8))


def test_live_allocations_do_not_overlap(vk: Runtime) -> None:
    rng = np.random.default_rng(4)
    live: dict[int, np.ndarray[Any, Any]] = {}
    for i in range(600):
        if live and rng.random() < 0.45:
            address = list(live)[int(rng.integers(len(live)))]
            assert np.array_equal(vk.read(address, live[address].size, np.uint8), live[address])
            vk.release(address)
            del live[address]
        data = np.full(int(2 ** rng.uniform(0, 21.5)), i % 256, np.uint8)
        address = vk.put(data)
        assert address not in live
        live[address] = data
    for address, data in live.items():
        assert np.array_equal(vk.read(address, data.size, np.uint8), data)
    vk.release(*live)


def test_released_memory_can_be_used_again(vk: Runtime) -> None:
    size = min(vk.limits()[LARGEST], vk.budget()) // 3
    before = vk.budget()
    for i in range(50):  # far more than there is, all told
        address = vk.alloc(size)
        vk.write(address + size - 1, np.array([i], np.uint8))
        assert vk.read(address + size - 1, 1, np.uint8)[0] == i
        vk.release(address)
    assert vk.budget() >= before - (1 << 20)


def test_out_of_memory_is_an_error_and_the_device_goes_on(vk: Runtime) -> None:
    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        vk.alloc(1 << 50)
    with pytest.raises(RuntimeError, match="negative"):
        vk.alloc(-1)
    size = vk.limits()[HEAP] // 5
    held = []
    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        for _ in range(6):
            held.append(vk.alloc(size))
    assert held
    vk.release(*held)
    other = vk.alloc(size + (size // 3))  # a size that fits nothing that was kept
    vk.release(other)
    data = random(1000)
    address = vk.put(data)
    assert np.array_equal(vk.read(address, 1000), data)
    vk.release(address)


# ---- kernels ----


def test_the_kernel_is_valid_spirv(tmp_path: Path) -> None:
    validator = shutil.which("spirv-val")
    if validator is None:
        pytest.skip("spirv-val is not installed (Debian, Ubuntu: apt install spirv-tools)")
    for dtype in ("float", "int"):
        path = tmp_path / "add.spv"
        path.write_bytes(add_kernel(dtype))
        done = subprocess.run([validator, "--target-env", "vulkan1.2", str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_add(vk: Runtime) -> None:
    a, b = random(LOCAL * 1000, 1), random(LOCAL * 1000, 2)
    adder = Adder(vk, a, b)
    commands = vk.commands([adder.dispatch])
    vk.wait(vk.submit(commands))
    assert np.array_equal(vk.read(adder.out, a.size), a + b)
    vk.lib.fgv_commands_free(commands)
    adder.free()


def test_replays_run_in_order(vk: Runtime) -> None:
    a, b = np.arange(LOCAL * 4, dtype=np.float32), np.full(LOCAL * 4, 3, np.float32)
    adder = Adder(vk, a, b, in_place=True)
    commands = vk.commands([adder.dispatch] * 5)
    tickets = [vk.submit(commands) for _ in range(1000)]
    assert tickets == sorted(set(tickets)) and tickets[0] > 0
    assert np.array_equal(vk.read(adder.out, a.size), a + 15_000)  # exact: integers below 2**24
    assert vk.lib.fgv_done(vk.device, tickets[-1]) == 1
    vk.lib.fgv_commands_free(commands)
    adder.free()


def test_writes_between_submissions_are_in_order(vk: Runtime) -> None:
    a = np.zeros(LOCAL, np.float32)
    adder = Adder(vk, a, a, in_place=True)
    commands = vk.commands([adder.dispatch])
    total = 0
    for i in range(300):
        vk.write(adder.b, np.full(LOCAL, i, np.float32))
        vk.submit(commands)
        total += i
        if i % 50 == 7:
            assert np.array_equal(vk.read(adder.out, LOCAL), np.full(LOCAL, total))
    assert np.array_equal(vk.read(adder.out, LOCAL), np.full(LOCAL, total))
    vk.lib.fgv_commands_free(commands)
    adder.free()


def test_submission_does_not_wait(vk: Runtime) -> None:
    n = LOCAL * 30_000
    adder = Adder(vk, np.zeros(n, np.float32), np.ones(n, np.float32), in_place=True)
    commands = vk.commands([adder.dispatch] * 40)
    vk.wait(vk.submit(commands))
    begin = time.perf_counter()
    for _ in range(5):
        ticket = vk.submit(commands)
    submitted = time.perf_counter()
    was_done = vk.lib.fgv_done(vk.device, ticket)
    vk.wait(ticket)
    done = time.perf_counter()
    assert submitted - begin < (done - begin) / 2
    assert was_done == 0 and vk.lib.fgv_done(vk.device, ticket) == 1
    assert np.array_equal(vk.read(adder.out, n), np.full(n, 240))
    vk.lib.fgv_commands_free(commands)
    adder.free()


def test_release_and_free_while_it_runs(vk: Runtime) -> None:
    n = LOCAL * 20_000
    a, b = random(n, 1), random(n, 2)
    adder = Adder(vk, a, b)
    commands = vk.commands([adder.dispatch] * 20)
    result = vk.alloc(n * 4)
    for _ in range(3):
        vk.submit(commands)
    assert vk.lib.fgv_copy(vk.device, result, adder.out, n * 4, vk.err, 512) == 0
    vk.lib.fgv_commands_free(commands)  # all of it while the device is at work
    adder.free()
    reused = [vk.put(np.full(n, 7, np.float32)) for _ in range(4)]  # the same memory, written later
    assert np.array_equal(vk.read(result, n), a + b)
    for address in reused:
        assert np.array_equal(vk.read(address, n), np.full(n, 7))
    vk.release(result, *reused)


def test_commands_keep_their_pipelines(vk: Runtime) -> None:
    a, b = random(LOCAL, 1), random(LOCAL, 2)
    adder = Adder(vk, a, b)
    commands = vk.commands([adder.dispatch])
    vk.lib.fgv_pipeline_free(adder.pipeline)
    vk.wait(vk.submit(commands))
    assert np.array_equal(vk.read(adder.out, LOCAL), a + b)
    vk.lib.fgv_commands_free(commands)
    vk.release(adder.a, adder.b, adder.out, adder.table)


def test_no_dispatches(vk: Runtime) -> None:
    commands = vk.commands([])
    vk.wait(vk.submit(commands))
    assert vk.lib.fgv_profile(vk.device, commands, vk.ffi.new("int64_t[1]"), vk.err, 512) == 0
    vk.lib.fgv_commands_free(commands)
    vk.lib.fgv_commands_free(vk.ffi.NULL)
    vk.lib.fgv_pipeline_free(vk.ffi.NULL)


def test_a_required_subgroup_size(vk: Runtime) -> None:
    least, most = vk.limits()[16:18]
    for size in (least, most):
        if size <= LOCAL:
            vk.lib.fgv_pipeline_free(vk.pipeline(add_kernel(), size))
    for size in (3, most * 2):
        with pytest.raises(RuntimeError, match="subgroups have"):
            vk.pipeline(add_kernel(), size)


def test_bad_kernels_are_refused(vk: Runtime) -> None:
    good = add_kernel()
    for bad, text in [
        (b"", "must begin with"),
        (b"\0" * 400, "must begin with"),
        (good[:16], "must begin with"),
        (good[:20], "entry point"),
        (good[:20] + b"\0\0\0\0" + good[24:], "beyond its end"),
        (good[:20] + b"\1\0\xff\xff" + good[24:], "beyond its end"),
        (good[:60], "beyond its end|entry point"),
        (add_kernel(name="other"), 'entry point "main"'),
        (add_kernel(name="mainly"), 'entry point "main"'),
    ]:
        with pytest.raises(RuntimeError, match=text):
            vk.pipeline(bad)


def test_bad_dispatches_are_refused(vk: Runtime) -> None:
    adder = Adder(vk, random(LOCAL), random(LOCAL))
    pipeline, table, _, _ = adder.dispatch
    most = vk.limits()[3]
    if most < 2**32 - 1:
        with pytest.raises(RuntimeError, match=f"dispatch 1 has {most + 1} groups"):
            vk.commands([adder.dispatch, (pipeline, table, (most + 1, 1, 1), False)])
    with pytest.raises(RuntimeError, match="dispatch 0 has no pipeline"):
        vk.commands([(vk.ffi.NULL, table, (1, 1, 1), False)])
    with pytest.raises(RuntimeError, match="no such ticket"):
        vk.wait(1 << 60)
    adder.free()


def test_two_threads(vk: Runtime) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            a, b = random(LOCAL * 8, seed), random(LOCAL * 8, seed + 100)
            truth = a.copy()
            err = vk.ffi.new("char[]", 512)
            for round_ in range(10):
                adder = Adder(vk, truth, b, in_place=True)
                commands = vk.commands([adder.dispatch, adder.dispatch])
                for _ in range(10):
                    ticket = vk.lib.fgv_submit(vk.device, commands, err, 512)
                    truth = (truth + b) + b
                    if round_ % 2:
                        assert vk.lib.fgv_wait(vk.device, ticket, err, 512) == 0
                assert np.array_equal(vk.read(adder.out, truth.size), truth)
                vk.lib.fgv_commands_free(commands)
                adder.free()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures and not any(t.is_alive() for t in threads)


def test_profile(vk: Runtime) -> None:
    small, large = LOCAL, LOCAL * 50_000
    one = Adder(vk, random(small), random(small))
    many = Adder(vk, np.zeros(large, np.float32), np.ones(large, np.float32), in_place=True)
    n = 1500  # more than one batch of timestamps
    dispatches = [many.dispatch if i == 1200 else one.dispatch for i in range(n)]
    commands = vk.commands(dispatches)
    ns = vk.ffi.new(f"int64_t[{n}]", [-1] * n)
    begin = time.perf_counter()
    assert vk.lib.fgv_profile(vk.device, commands, ns, vk.err, 512) == 0
    elapsed = (time.perf_counter() - begin) * 1e9
    times = np.array(list(ns))
    assert (times >= 0).all() and times.sum() <= elapsed
    assert times[1200] > 1.5 * np.median(times)
    assert np.array_equal(vk.read(many.out, large), np.ones(large))  # it ran once
    vk.lib.fgv_commands_free(commands)
    one.free()
    many.free()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_refused(vk: Runtime) -> None:
    address = vk.alloc(256)
    commands = vk.commands([])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused = 0
            for call in (lambda: vk.alloc(1), lambda: vk.read(address, 1), lambda: vk.submit(commands)):
                try:
                    call()
                except RuntimeError as error:
                    refused += "parent" in str(error)
            vk.release(address)
            vk.lib.fgv_commands_free(commands)
            code = 0 if refused == 3 and vk.lib.fgv_count(vk.err, 512) == -1 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    vk.wait(vk.submit(commands))
    vk.lib.fgv_commands_free(commands)
    vk.release(address)
