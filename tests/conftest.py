"""Fixtures shared by the tests."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

import funcgrad as fg
from funcgrad.runtime import device as devices
from funcgrad.runtime import ggml
from funcgrad.runtime.cpu import CpuDevice

# A shell starts what runs in the background with Ctrl-C ignored; the tests of interrupts need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # of what -k and -m leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """FUNCGRAD_SAMPLE=n keeps every n-th case of each parametrised test, the first among them."""
    every = int(os.environ.get("FUNCGRAD_SAMPLE", "1"))
    if every > 1:
        seen: Counter[str] = Counter()
        kept, left = [], []
        for item in items:
            name = item.nodeid.partition("[")[0]
            (left if seen[name] % every else kept).append(item)
            seen[name] += 1
        config.hook.pytest_deselected(items=left)
        items[:] = kept


DEVICES = os.environ.get("FUNCGRAD_TEST_DEVICES", "numpy,cpu").split(",")


@pytest.fixture(params=[pytest.param(d, marks=[] if d == "numpy" else [pytest.mark.ggml]) for d in DEVICES])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test with each device as the default one; FUNCGRAD_TEST_DEVICES names others."""
    with fg.default_device(request.param):
        yield request.param


@pytest.fixture
def reference() -> Iterator[None]:
    """Run the test on the numpy device, which computes in float64."""
    with fg.default_device("numpy"):
        yield


@pytest.fixture(scope="module")
def cpu() -> CpuDevice:
    """The CPU device itself."""
    found = devices.get("cpu")
    assert isinstance(found, CpuDevice)
    return found


@pytest.fixture
def on_cpu() -> Iterator[None]:
    """Run the test on the CPU device, which plans memory."""
    with fg.default_device("cpu"):
        yield


@pytest.fixture
def restore_threads() -> Iterator[None]:
    """Leave the number of threads as it was."""
    lib = ggml.load().lib
    before = lib.fg_get_threads()
    yield
    lib.fg_set_threads(before)
