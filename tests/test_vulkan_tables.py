"""Addresses that come again have a table of their own on a Vulkan device, others share a few; results stay right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.errors import DeviceError
from funcgrad.passes.pipeline import prepare
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


def tables(executable: Any) -> int:
    """How many tables the one block of launches has."""
    (block,) = executable._runner.blocks.values()
    return len(block._tables)


def check(executable: Any, x: Any, k: int) -> Any:
    (out,) = executable.run([x.storage])
    np.testing.assert_array_equal(out.on_host(), np.full(4, 9.0 * k + 1.0, np.float32))
    return out


def test_batches_that_come_again_get_a_table_each() -> None:
    f, xs = compiled(), arrays(10)
    for _ in range(6):
        for k, x in enumerate(xs):
            check(f, x, k)
    assert tables(f) >= 10


def test_addresses_that_never_come_again_share_a_few_tables() -> None:
    f, xs = compiled(), arrays(100)
    for k, x in enumerate(xs):
        check(f, x, k)
    assert tables(f) == TABLES.start


def test_the_number_of_tables_is_limited() -> None:
    f, xs = compiled(), arrays(3 * TABLES.stop)
    for _ in range(4):
        for k, x in enumerate(xs[:40]):
            check(f, x, k)
    assert TABLES.start < tables(f) < TABLES.stop
    for k, x in enumerate(xs):
        check(f, x, k)
