"""Fixtures shared by the tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

import funcgrad as fg

# A shell starts what runs in the background with Ctrl-C ignored; the tests of interrupts need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["numpy", pytest.param("cpu", marks=pytest.mark.ggml)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test with each device as the default one."""
    with fg.default_device(request.param):
        yield request.param


@pytest.fixture
def reference() -> Iterator[None]:
    """Run the test on the numpy device, which computes in float64."""
    with fg.default_device("numpy"):
        yield
