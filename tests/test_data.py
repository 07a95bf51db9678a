"""Minibatches: every row once, resumable, padded, prefetched."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from funcgrad import data, default_device, random
from funcgrad.errors import ShapeError


def test_every_row_comes_once_and_rows_stay_together() -> None:
    x, y = np.arange(23) * 2, np.arange(23)
    seen = []
    for b in data.batches({"x": x, "y": y}, 4, drop_last=False, key=random.key(3)):
        np.testing.assert_array_equal(b["x"], b["y"] * 2)
        seen += b["y"].tolist()
    assert sorted(seen) == list(range(23)) and seen != list(range(23))


def test_lengths_and_the_last_batch() -> None:
    x = np.arange(10)
    assert [len(b) for b in data.batches(x, 4)] == [4, 4] and len(data.batches(x, 4)) == 2
    assert [len(b) for b in data.batches(x, 4, drop_last=False)] == [4, 4, 2]
    padded = list(data.batches(x, 4, pad_last=True, shuffle=False))
    assert [b.tolist() for b, _ in padded][-1] == [8, 9, 9, 9]
    assert [m.sum() for _, m in padded] == [4, 4, 2]


def test_epochs_differ_and_a_key_means_the_same_order() -> None:
    it = data.batches(np.arange(50), 50, epochs=2, key=random.key(1))
    first, second = next(it), next(it)
    assert first.tolist() != second.tolist()
    again = data.batches(np.arange(50), 50, epochs=2, key=random.key(1))
    assert next(again).tolist() == first.tolist()
    assert next(data.batches(np.arange(50), 50, key=random.key(2))).tolist() != first.tolist()


def test_resume_from_every_position() -> None:
    def make() -> data.Batches:
        return data.batches(np.arange(11), 3, epochs=3, drop_last=False, key=random.key(5))

    whole = [b.tolist() for b in make()]
    for k in range(len(whole) + 1):
        it = make()
        for _ in range(k):
            next(it)
        state = it.state()
        assert [b.tolist() for b in make().restore(state)] == whole[k:]


def test_memory_mapped_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    got = np.concatenate(list(data.batches(x, 2, shuffle=False)))
    np.testing.assert_array_equal(got, np.arange(12.0).reshape(6, 2))


def test_bad_arguments() -> None:
    with pytest.raises(ShapeError, match=r"same first axis.*\(3,\), \(4,\)"):
        data.batches((np.zeros(3), np.zeros(4)), 2)
    with pytest.raises(ShapeError, match="same first axis"):
        data.batches(np.float32(1), 1)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        data.batches(np.zeros(3), 0)
    with pytest.raises(ValueError, match="leaves nothing"):
        data.batches(np.zeros(3), 4)
    with pytest.raises(ValueError, match="at least one array"):
        data.batches({}, 4)


def test_prefetch_gives_the_same_items_and_raises_what_the_source_raises() -> None:
    assert list(data.prefetch(range(100), 3)) == list(range(100))
    assert list(data.prefetch(lambda: iter("abc"))) == ["a", "b", "c"]

    def bad() -> object:
        yield 1
        raise KeyError("source")

    it = data.prefetch(bad())
    assert next(it) == 1
    with pytest.raises(KeyError, match="source"):
        next(it)


def test_leaving_early_ends_the_thread() -> None:
    before = threading.active_count()
    for item in data.prefetch(iter(int, 1), 2):
        assert item == 0
        break
    for _ in range(100):
        if threading.active_count() <= before:
            break
        threading.Event().wait(0.05)
    assert threading.active_count() <= before


def test_prefetch_makes_its_items_on_the_consumers_device() -> None:
    with default_device("numpy"):
        assert [x.device.name for x in data.prefetch(lambda: (random.key(i) for i in range(2)))] == ["numpy"] * 2
