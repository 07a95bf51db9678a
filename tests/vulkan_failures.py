"""A program: every call to Vulkan fails once, and what was made before is freed. test_vulkan_api.py starts it.

The loader that it finds is failing_vulkan.c, which fails the calls that it is told to.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from vulkan_device import Adder, Runtime
from vulkan_kernels import LOCAL, add_kernel

OUT_OF_DEVICE_MEMORY, INITIALIZATION_FAILED, DEVICE_LOST = -2, -3, -4
KINDS = range(10)  # what failing_vulkan.c counts: 0 device, 1 semaphore, 2 buffer, 3 memory, 4 shader module, ...
KEPT = (2, 3)  # buffers and their memory may stay for the next time

KERNEL = add_kernel()
shim = ctypes.CDLL("libvulkan.so.1")


def fail(calls: int, result: int, name: str = "", for_ever: bool = False) -> None:
    shim.failing_set(calls, result, name.encode(), int(for_ever))


def live() -> list[int]:
    return [shim.failing_live(kind) for kind in KINDS]


def failures_of_open(vk: Runtime) -> int:
    """Open a device with the first, second, third ... call failing."""
    vk.lib.fgv_open(0, vk.err, 512)
    for calls in range(1, 100):
        before = live()
        fail(calls, INITIALIZATION_FAILED)
        device = vk.lib.fgv_open(0, vk.err, 512)
        if shim.failing_left():
            assert device
            fail(0, 0)
            return calls - 1
        assert not device and "VK_ERROR_INITIALIZATION_FAILED" in vk.text(), vk.text()
        assert live() == before, (calls, before, live())
    raise AssertionError("opening never ended")


class Work:
    """Everything once; what is made is freed even where it fails, and the numbers are right where it does not."""

    def __init__(self, vk: Runtime) -> None:
        self.vk = vk
        self.addresses: list[int] = []
        self.made: list[tuple[Any, Any]] = []

    def __enter__(self) -> Work:
        return self

    def __exit__(self, *_: object) -> None:
        for free, thing in reversed(self.made):
            free(thing)
        self.vk.release(*self.addresses)

    def put(self, data: np.ndarray[Any, Any]) -> int:
        address = self.vk.alloc(data.nbytes)
        self.addresses.append(address)
        self.vk.write(address, data)
        return address

    def do(self) -> None:
        vk = self.vk
        a, b = np.arange(LOCAL, dtype=np.float32), np.full(LOCAL, 2, np.float32)
        large = np.arange(3 << 20, dtype=np.uint16)
        out, addend, far = self.put(a), self.put(b), self.put(large)
        table = self.put(np.array([out, addend, out], np.uint64))
        pipeline = vk.pipeline(KERNEL)
        self.made.append((vk.lib.fgv_pipeline_free, pipeline))
        commands = vk.commands([(pipeline, table, (1, 1, 1), True)] * 2)
        self.made.append((vk.lib.fgv_commands_free, commands))
        vk.wait(vk.submit(commands))
        assert vk.lib.fgv_copy(vk.device, addend, out, b.nbytes, vk.err, 512) == 0, vk.text()
        assert np.array_equal(vk.read(addend, LOCAL), a + 4)
        assert np.array_equal(vk.read(far, large.size, np.uint16), large)
        ns = vk.ffi.new("int64_t[2]")
        vk.checked(vk.lib.fgv_profile(vk.device, commands, ns, vk.err, 512))
        assert np.array_equal(vk.read(out, LOCAL), a + 4 + 2 * (a + 4))
        vk.write(out, a)  # left pending


def failures_of_work(vk: Runtime) -> int:
    """Run with the first, second, third ... call failing; once more without, each time."""
    with Work(vk) as work:
        work.do()
    for calls in range(1, 1000):
        vk.lib.fgv_trim(vk.device)
        before = live()
        fail(calls, INITIALIZATION_FAILED)
        try:
            with Work(vk) as work:
                work.do()
            failed = ""
        except RuntimeError as error:
            failed = str(error)
        left = shim.failing_left()
        fail(0, 0)
        with Work(vk) as work:
            work.do()
        vk.lib.fgv_trim(vk.device)
        after = live()
        assert all(x <= y for x, y in zip(after, before, strict=True)), (calls, failed, before, after)
        if left:
            assert not failed
            return calls - 1
        assert not failed or "VK_ERROR_INITIALIZATION_FAILED" in failed, failed
    raise AssertionError("the work never ended")


def memory_is_given_back(vk: Runtime) -> None:
    """When the driver has none left, what was kept goes back to it and is asked for again."""
    vk.lib.fgv_trim(vk.device)
    before = live()[3]
    kept = [vk.alloc(2 << 20), vk.alloc(2 << 20)]
    vk.release(*kept)
    assert live()[3] == before + 2
    fail(1, OUT_OF_DEVICE_MEMORY, "vkAllocateMemory")
    address = vk.alloc(5 << 20)  # fails once, then succeeds
    assert live()[3] == before + 1
    fail(1, OUT_OF_DEVICE_MEMORY, "vkAllocateMemory", for_ever=True)
    try:
        vk.alloc(7 << 20)
        raise AssertionError("it should have failed")
    except RuntimeError as error:
        assert str(error) == "out of memory"
    fail(0, 0)
    small = [vk.alloc(1 << 18) for _ in range(200)]  # several blocks
    assert live()[3] > before + 3
    vk.release(address, *small[:-1])
    vk.lib.fgv_trim(vk.device)
    assert live()[3] == before + 1
    vk.write(small[-1], np.ones(1 << 16, np.float32))
    assert np.array_equal(vk.read(small[-1], 1 << 16), np.ones(1 << 16))
    vk.release(small[-1])
    vk.lib.fgv_trim(vk.device)
    assert live()[3] == before


def a_lost_device(vk: Runtime, name: str) -> None:
    """After one call has said so, all others do, and nothing hangs."""
    vk.device = vk.checked(vk.lib.fgv_open(0, vk.err, 512))
    adder = Adder(vk, np.zeros(LOCAL, np.float32), np.ones(LOCAL, np.float32))
    commands = vk.commands([adder.dispatch])
    ticket = vk.submit(commands)
    fail(1, DEVICE_LOST, name)
    calls = {
        "submit": lambda: vk.submit(commands),
        "wait": lambda: vk.wait(ticket + 1),
        "read": lambda: vk.read(adder.out, LOCAL),
        "write": lambda: vk.write(adder.a, np.zeros(LOCAL, np.float32)),
        "alloc": lambda: vk.alloc(10),
        "pipeline": lambda: vk.pipeline(KERNEL),
        "commands": lambda: vk.commands([adder.dispatch]),
    }
    said = set()
    for _ in range(2):
        for what, call in calls.items():
            try:
                call()
            except RuntimeError as error:
                if str(error) == "device lost":
                    said.add(what)
        if not said:
            vk.lib.fgv_done(vk.device, ticket + 5)
    assert said == set(calls), (name, said)
    assert vk.lib.fgv_done(vk.device, ticket) == -1
    adder.free()
    vk.lib.fgv_commands_free(commands)


def main() -> None:
    vk = Runtime()
    print("open:", failures_of_open(vk), "calls")
    print("work:", failures_of_work(vk), "calls")
    memory_is_given_back(vk)
    for name in ("vkQueueSubmit", "vkWaitSemaphores", "vkGetSemaphoreCounterValue"):
        a_lost_device(vk, name)
    print("done")


if __name__ == "__main__":
    main()
