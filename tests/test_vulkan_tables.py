"""Addresses that come again on a Vulkan device find their table; there are not too many, and results stay right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.errors import DeviceError
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime.vulkan import executable
from funcgrad.runtime.vulkan.executable import TABLES

try:
    VULKAN: Any = fg.devices("vulkan")[0]
except DeviceError as error:
    pytest.skip(str(error).splitlines()[0], allow_module_level=True)

pytestmark = [pytest.mark.ggml, pytest.mark.vulkan]


def compiled() -> Any:
    graph = fg.make_graph(lambda x: fnp.sum(x * 3.0, 1) + 1.0)(np.ones((4, 3), np.float32))
    return VULKAN.compile(prepare(getattr(graph, "graph", graph)))


def arrays(count: int) -> list[Any]:
    return [fnp.asarray(np.full((4, 3), k, np.float32), device=VULKAN) for k in range(count)]


def tables(made: Any) -> int:
    """How many tables the one block of launches has."""
    (block,) = made._runner.blocks.values()
    return len(block._tables)


def check(made: Any, x: Any, k: int) -> Any:
    (out,) = made.run([x.storage])
    np.testing.assert_array_equal(out.on_host(), np.full(4, 9.0 * k + 1.0, np.float32))
    return out


def test_batches_that_come_again_find_their_table() -> None:
    f, xs = compiled(), arrays(10)
    for _ in range(3):
        for k, x in enumerate(xs):
            check(f, x, k)
    assert 10 <= tables(f) < TABLES.stop
    (block,) = f._runner.blocks.values()
    before = dict(block._tables)
    for k, x in enumerate(xs):
        check(f, x, k)
    assert all(block._tables[key] is before[key] for key in before)


def test_the_number_of_tables_is_limited() -> None:
    f, xs = compiled(), arrays(3 * TABLES.stop)
    for _ in range(2):
        for k, x in enumerate(xs):
            check(f, x, k)
    assert tables(f) == TABLES.stop - 1


def test_long_programs_keep_few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "RECORDED", 1)
    f, xs = compiled(), arrays(3 * TABLES.start)
    for _ in range(2):
        for k, x in enumerate(xs):
            check(f, x, k)
    assert tables(f) == TABLES.start
