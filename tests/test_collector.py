"""The garbage collector is off while a function is traced and compiled, and as before afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import funcgrad as fg
from funcgrad.transforms.collector import CollectorOff


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    before = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if before else gc.disable)()


def test_off_while_tracing_and_on_afterwards(device: str) -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append(gc.isenabled())
        return fg.jit(lambda y: seen.append(gc.isenabled()) or y * 2)(x) + 1

    assert float(fg.jit(f)(3.0)) == 7
    assert seen == [False, False] and gc.isenabled()


def test_on_again_after_an_error(device: str) -> None:
    @fg.jit
    def f(x: Any) -> Any:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        f(1.0)
    assert gc.isenabled()


def test_stays_off_where_the_user_switched_it_off(device: str) -> None:
    gc.disable()
    fg.jit(lambda x: x + 1)(1.0)
    assert not gc.isenabled()


def test_on_again_at_the_next_call_after_an_interrupt_that_left_it_off(device: str) -> None:
    CollectorOff().__enter__()  # the interrupt came before what was inside, so that nothing was left
    assert not gc.isenabled()
    fg.jit(lambda x: x + 1)(1.0)
    assert gc.isenabled()


def test_two_threads_that_trace_at_once(device: str) -> None:
    inside, finish = threading.Barrier(3), threading.Event()

    def work() -> None:
        def f(x: Any) -> Any:
            inside.wait(10)
            finish.wait(10)
            return x + 1

        with fg.default_device(device):
            fg.jit(f)(1.0)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    inside.wait(10)
    assert not gc.isenabled()
    finish.set()
    for t in threads:
        t.join()
    assert gc.isenabled()
