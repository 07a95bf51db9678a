"""Memory of the cpu device: freed at once, refused with the numbers when there is not enough."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.errors import DeviceError
from funcgrad.runtime import memory

pytestmark = pytest.mark.ggml
ROOM = 3_000_000


@pytest.fixture(autouse=True)
def cpu() -> Iterator[Any]:
    with fg.default_device("cpu") as device:
        yield device


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system with 3 MB left, looked at for every array of 1 KB and more."""
    monkeypatch.setattr(memory, "LARGE", 1000)
    monkeypatch.setattr(memory, "available", lambda: ROOM)


def test_the_system_is_asked() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = memory.available()
    if found is None:
        pytest.skip("the system does not say")
    assert 0 < found <= total


def test_the_control_group_limits(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:  1000 kB\nMemAvailable:  900 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", info)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.available() == 900 * 1024
    for name, text in {
        "memory.max": "500000\n",
        "memory.current": "400000\n",
        "memory.stat": "anon 1\ninactive_file 50000\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert memory.available() == 150_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available() == 900 * 1024
    info.unlink()
    assert memory.available() is None


@pytest.mark.usefixtures("little_room")
def test_capacity_beyond_free_memory_is_an_error_with_the_numbers() -> None:
    fits = np.ones((500, 1000), np.float32)
    table = fnp.asarray(fits)
    with pytest.raises(
        DeviceError, match=r"out of memory, got 4,000,000 bytes asked for, [\d,]+ in use, 3,000,000 available"
    ):
        fnp.asarray(np.ones((1000, 1000), np.float32))
    with pytest.raises(DeviceError, match="4,000,000 bytes asked for"):
        fg.jit(lambda x: fnp.zeros((1000, 1000), fnp.float32) + x)(1.0)
    grow = fg.jit(lambda t: (t + 1.0, fnp.concatenate([t, t]) * 2.0), donate_argnums=0)
    with pytest.raises(DeviceError, match=r"[\d,]+ bytes asked for"):
        grow(table)
    np.testing.assert_array_equal(np.asarray(table), fits)  # the refused call took nothing


def test_delete_frees_at_once(cpu: Any) -> None:
    before = cpu.bytes_in_use
    table = fnp.zeros((1000, 1000), fnp.float32)
    assert cpu.bytes_in_use - before >= 4_000_000
    other = table  # another reference does not keep the memory
    table.delete()
    assert cpu.bytes_in_use - before < 1000
    with pytest.raises(DeviceError, match="its memory was freed"):
        other + 1.0
    kept = fnp.zeros((1000, 1000), fnp.float32)
    view = np.asarray(kept)
    kept.delete()
    assert view.sum() == 0.0  # a numpy view keeps what it looks at


def test_host_indices_are_checked_and_device_indices_clamp() -> None:
    table = fnp.asarray(np.arange(10.0, dtype=np.float32))
    for bad in (np.array([10]), np.array([-11]), np.array([3, 99])):
        with pytest.raises(IndexError, match=r"\[-10, 10\)"):
            fnp.take(table, bad)
        with pytest.raises(IndexError, match=r"\[-10, 10\)"):
            table[bad]
        with pytest.raises(IndexError, match=r"\[-10, 10\)"):  # known when it is traced
            fg.jit(lambda t, i=bad: t[i])(table)
    for fraction in (np.array([1.5]), np.array([1.0])):
        with pytest.raises(TypeError, match="integers"):
            fnp.take(table, fraction)
        with pytest.raises(TypeError, match="integers"):
            table.at[fraction].set(1.0)
    read = fg.jit(lambda t, i: t[i])
    assert read(table, np.array([12, 3], np.int32)).tolist() == [9.0, 3.0]


def test_a_table_is_written_in_place_by_index() -> None:
    """Under donation ``.at[rows].set`` sends the rows and their numbers, copies nothing, and keeps the memory."""
    count, width = 1_000_000, 8
    write = fg.jit(lambda t, i, rows: t.at[i].set(rows), donate_argnums=0)
    table, host = fnp.zeros((count, width), fnp.float32), np.zeros((count, width), np.float32)
    rng = np.random.default_rng(0)
    for _ in range(5):
        at = rng.choice(count, 16, replace=False).astype(np.int32)
        rows = rng.normal(size=(16, width)).astype(np.float32)
        host[at] = rows
        place = table._storage.ptr
        with fg.debug.expect(uploads=1, launches=1, downloads=0) as seen:
            table = write(table, at, rows)
        assert seen.bytes_uploaded == at.nbytes + rows.nbytes and table._storage.ptr == place
    spec = fg.ShapeDtypeStruct
    plan = write.lower(spec((count, width), "float32"), spec((16,), "int32"), spec((16, width), "float32")).compile()
    sizes = plan.memory_analysis()
    assert sizes.temp_size_in_bytes < 100_000 and sizes.alias_size_in_bytes == host.nbytes
    np.testing.assert_array_equal(np.asarray(table), host)


FLOATS = [(d, v) for d in ("float32", "float16", "bfloat16") for v in (1.5, -3.0, float("inf"))]
WHOLE = [("int32", -(2**31)), ("int32", 7), ("uint32", 2**31 + 5), ("bool", True), ("bool", False)]


@pytest.mark.parametrize(("dtype", "value"), FLOATS + WHOLE)
def test_one_element_is_read_as_it_is(dtype: str, value: Any) -> None:
    x = fg.jit(lambda: fnp.full((1, 1), value, dtype=dtype))()
    assert float(x) == value and bool(x) == bool(value) and x.item() == value
    if abs(value) != float("inf"):
        assert int(x) == int(value)
    with fg.debug.expect(downloads=1) as seen:
        y = fg.jit(lambda: fnp.full((), value, dtype=dtype))()
        float(y), bool(y), float(y)
    assert seen.bytes_downloaded == y.nbytes
