"""Minibatches: every row once, resumable, padded, prefetched."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import funcgrad.numpy as fnp
from funcgrad import data, default_device, losses, make_train_step, nn, optim, random, training, tree, value_and_grad
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


def test_an_iterator_prints_where_it_is() -> None:
    rows = data.batches(np.arange(10), 4, epochs=3)
    for _ in range(3):
        next(rows)
    assert repr(rows) == "Batches(10 rows, 2 batches of 4, at batch 1 of epoch 1 of 3)"
    assert repr(data.buckets([np.arange(3)], 2, [4], epochs=None)) == (
        "Buckets(1 rows, 1 batches of 2, at batch 0 of epoch 0)"
    )


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


# -- sequences of different lengths ------------------------------------------------------------------------------
def sentences(count: int, longest: int = 30) -> list[tuple[np.ndarray, np.int32]]:
    """Example i holds i + 1 throughout, and the label i."""
    lengths = np.random.default_rng(0).integers(1, longest + 1, count)
    return [(np.full(n, i + 1, np.int32), np.int32(i)) for i, n in enumerate(lengths)]


def test_buckets_give_every_example_once_in_the_smallest_size_that_holds_it() -> None:
    examples, sizes = sentences(101), [32, 8, 16]
    for epoch_items in (list(data.buckets(examples, 8, sizes)), list(data.buckets(examples, 8, sizes, shuffle=False))):
        seen = []
        for (ids, labels), mask in epoch_items:
            assert ids.shape == mask.shape and ids.shape[0] == 8 == len(labels) and ids.shape[1] in sizes
            for row, label, m in zip(ids, labels, mask, strict=True):
                if m.any():
                    want = examples[label][0]
                    assert ids.shape[1] == min(s for s in sizes if s >= len(want))
                    np.testing.assert_array_equal(row[m], want)
                    assert not row[~m].any() and m[: len(want)].all()
                    seen.append(int(label))
        assert sorted(seen) == list(range(101))
    assert len(data.buckets(examples, 8, sizes)) == len(epoch_items) <= 101 // 8 + 3


def test_buckets_drop_short_batches_and_shuffle_each_epoch_anew() -> None:
    examples = sentences(101)
    whole = list(data.buckets(examples, 8, [8, 16, 32], drop_last=True))
    assert all(mask.any(axis=1).all() for _, mask in whole)
    lengths = np.array([len(ids) for ids, _ in examples])
    counts = [np.sum(lengths <= 8), np.sum((lengths > 8) & (lengths <= 16)), np.sum(lengths > 16)]
    assert len(whole) == sum(n // 8 for n in counts)
    rows = data.buckets(examples, 8, [8, 16, 32], key=random.key(1), epochs=2)
    labels = [tuple(labels.tolist()) for (_, labels), _ in rows]
    n = len(rows)
    assert len(labels) == 2 * n and set(labels[:n]) != set(labels[n:])
    assert labels == [
        tuple(y.tolist()) for (_, y), _ in data.buckets(examples, 8, [8, 16, 32], key=random.key(1), epochs=2)
    ]


def test_buckets_resume_from_every_position() -> None:
    def make() -> data.Buckets:
        return data.buckets(sentences(40), 8, [16, 32], key=random.key(2), epochs=2)

    every = [mask for _, mask in make()]
    for k in range(len(every)):
        rows = make()
        for _ in range(k):
            next(rows)
        rest = [mask for _, mask in make().restore(rows.state())]
        assert len(rest) == len(every) - k and all(map(np.array_equal, rest, every[k:]))


def test_fit_takes_buckets_and_resumes_within_an_epoch(tmp_path: Path) -> None:
    ts = make_train_step(lambda w, b: fnp.mean((w * b[0][0] - 1.0) ** 2, where=b[1]), optim.sgd(1e-4), max_traces=2)

    def rows() -> data.Buckets:
        return data.buckets(sentences(40), 8, [16, 32], key=random.key(2))

    whole, _ = training.fit(ts, ts.init(fnp.ones(())), rows(), epochs=3, progress=False)
    path = tmp_path / "run"
    for steps in (4, None):
        limits = {"epochs": 3} if steps is None else {"steps": steps}
        found, _ = training.fit(ts, ts.init(fnp.ones(())), rows(), checkpoint=path, progress=False, **limits)
    assert float(found.params) == float(whole.params) != 1.0


def test_buckets_refuse_what_cannot_be() -> None:
    with pytest.raises(ShapeError, match=r"no example may be longer than 4, got 5 in example 1"):
        data.buckets([np.zeros(2), np.zeros(5)], 2, [4, 2])
    with pytest.raises(ValueError, match="dropped last batches leave nothing, got 2 examples, batch_size 4"):
        data.buckets([np.zeros(2), np.zeros(3)], 4, [4], drop_last=True)
    with pytest.raises(ValueError, match="examples and sizes are required, got 0 and 1"):
        data.buckets([], 2, [4])
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        data.buckets([np.zeros(2)], 0, [4])
    with pytest.raises(ShapeError, match=r"first axis, got \(\) in example 0"):
        data.buckets([np.float32(1.0)], 1, [4])
    with pytest.raises(ShapeError, match="differ in their first axis only"):
        data.bucket([(np.zeros(2), np.zeros(2)), (np.zeros(2), np.float64(1.0))], [2])


def test_a_text_classifier_learns_from_buckets_and_padding_does_not_matter() -> None:
    """Which of two marks comes first: attention, norms, the mean over places and the loss all have to mind the mask."""
    rng = np.random.default_rng(0)

    def example() -> tuple[np.ndarray, np.int32]:
        text = rng.integers(3, 12, rng.integers(3, 31)).astype(np.int32)
        i, j = rng.choice(len(text), 2, replace=False)
        text[i], text[j] = 1, 2
        return text, np.int32(i < j)

    examples, width = [example() for _ in range(1100)], 32
    a, b, c = random.split(random.key(0), 3)
    model = {
        "embed": nn.Embedding(12, width, key=a),
        "norm": nn.LayerNorm(width),
        "attention": nn.MultiHeadAttention(width, 4, key=b),
        "group": nn.GroupNorm(width, 4),
        "batch": nn.BatchNorm(width),
        "head": nn.Linear(width, 2, key=c),
    }

    def logits(p: Any, stats: Any, ids: Any, mask: Any, train: bool) -> Any:
        x = p["embed"](ids) + nn.sinusoidal_positions(ids.shape[1], width)
        x = x + p["attention"](p["norm"](x), mask=mask[:, None, None, :])
        x, stats = p["batch"](p["group"](x, mask=mask), stats, train=train, mask=mask)
        return p["head"](nn.masked_mean(nn.relu(x), mask[..., None], axis=1)), stats

    def loss_fn(p: Any, stats: Any, batch: Any) -> Any:
        (ids, label), mask = batch
        found, stats = logits(p, stats, ids, mask, True)
        each = losses.softmax_cross_entropy_with_integer_labels(found, label)
        return nn.masked_mean(each, mask.any(axis=1)), stats

    ts = make_train_step(loss_fn, optim.adam(3e-3), max_traces=2)
    state = ts.init(model, model_state=model["batch"].init_state())
    for batch in data.buckets(examples[:1000], 50, [16, 32], key=random.key(1), epochs=15):
        state, _ = ts.step(state, batch)
    assert ts.step.captured.stats.traces == 2
    (ids, label), mask = data.bucket(examples[1000:], [32])
    right = np.asarray(logits(state.params, state.model_state, ids, mask, False)[0].argmax(-1)) == label
    assert right.mean() > 0.9

    # More padding, more empty rows and other padding change nothing, neither the loss nor a gradient.
    slope = value_and_grad(lambda p, batch: loss_fn(p, model["batch"].init_state(), batch)[0])
    value, grads = slope(state.params, data.bucket(examples[:10], [32]))
    for size, rows, fill in ((48, 10, 11), (64, 16, 7)):
        other, other_grads = slope(state.params, data.bucket(examples[:10], [size], rows=rows, fill=fill))
        assert abs(float(other) - float(value)) < 1e-6
        for x, y in zip(tree.leaves(other_grads), tree.leaves(grads), strict=True):
            np.testing.assert_allclose(x, y, atol=2e-6)
