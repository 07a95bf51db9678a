"""Minibatches: shuffled by key, resumable at any position, padded instead of retraced, fetched ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from funcgrad import random, tree
from funcgrad.array import asarray, default_device
from funcgrad.errors import ShapeError, message

__all__ = ["Batches", "Buckets", "batches", "bucket", "buckets", "prefetch"]

Last = Literal["drop", "keep", "pad"]


class Batches:
    """An iterator over minibatches of arrays, epoch after epoch; see :func:`batches`.

    ``state()`` gives its position as a tree of arrays, and ``restore(state)`` goes back to one: the batches that follow
    are the same.
    """

    def __init__(self, arrays: Any, batch_size: int, shuffle: bool, last: Last, key: Any, epochs: int | None):
        leaves, self._treedef = tree.flatten(arrays)
        if not leaves:
            raise ValueError(message("batches", "at least one array is required", "an empty tree"))
        self._leaves = [x if isinstance(x, np.ndarray) else np.asarray(x) for x in leaves]
        sizes = {len(x) if x.ndim else -1 for x in self._leaves}
        if len(sizes) != 1 or -1 in sizes:
            got = ", ".join(str(x.shape) for x in self._leaves)
            raise ShapeError(message("batches", "all arrays must have the same first axis", got))
        self.size = sizes.pop()
        if not batch_size >= 1:
            raise ValueError(message("batches", "batch_size must be at least 1", str(batch_size)))
        if last == "drop" and batch_size > self.size:
            way_out = "use a smaller batch_size, or drop_last=False"
            raise ValueError(
                message(
                    "batches",
                    "a dropped last batch leaves nothing",
                    f"{self.size} rows, batch_size {batch_size}",
                    way_out,
                )
            )
        self.batch_size, self.shuffle, self.last, self.epochs = batch_size, shuffle, last, epochs
        self._key = None if key is None else np.asarray(key)
        self.epoch, self.index = 0, 0
        self._order: tuple[int, np.ndarray[Any, Any]] | None = None

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        whole, rest = divmod(self.size, self.batch_size)
        return whole + (rest > 0 and self.last != "drop")

    def __iter__(self) -> Batches:
        return self

    def __repr__(self) -> str:
        epochs = "" if self.epochs is None else f" of {self.epochs}"
        where = f"at batch {self.index} of epoch {self.epoch}{epochs}"
        return f"{type(self).__name__}({self.size} rows, {len(self)} batches of {self.batch_size}, {where})"

    def __next__(self) -> Any:
        if self.index >= len(self):
            self.epoch, self.index = self.epoch + 1, 0
        if self.epochs is not None and self.epoch >= self.epochs:
            raise StopIteration
        start = self.index * self.batch_size
        rows = self._permutation()[start : start + self.batch_size]
        self.index += 1
        batch = tree.unflatten(self._treedef, [self._take(x, rows) for x in self._leaves])
        if self.last != "pad":
            return batch
        return batch, np.arange(self.batch_size) < len(rows)

    def _take(self, x: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if self.last == "pad" and len(rows) < self.batch_size:
            rows = np.concatenate([rows, np.full(self.batch_size - len(rows), rows[-1])])
        return np.ascontiguousarray(x[rows])

    def _permutation(self) -> np.ndarray[Any, Any]:
        """The order of the rows in this epoch: by the key and the epoch's number alone."""
        if self._order is None or self._order[0] != self.epoch:
            order = np.arange(self.size)
            if self.shuffle:
                order = np.asarray(random.permutation(random.fold_in(self._key, self.epoch), self.size))
            self._order = (self.epoch, order)
        return self._order[1]

    def state(self) -> dict[str, Any]:
        """Return the position: the epoch, the batch that comes next, and the key."""
        return {"epoch": np.int32(self.epoch), "index": np.int32(self.index), "key": self._key}

    def restore(self, state: dict[str, Any]) -> Batches:
        """Go to a position that ``state`` gave; return self."""
        self.epoch, self.index = int(state["epoch"]), int(state["index"])
        self._key = None if state["key"] is None else np.asarray(state["key"])
        self._order = None
        return self


def batches(
    arrays: Any,
    batch_size: int,
    *,
    shuffle: bool = True,
    drop_last: bool = True,
    pad_last: bool = False,
    key: Any = None,
    epochs: int | None = 1,
) -> Batches:
    """Return an iterator over minibatches of a tree of arrays that share their first axis.

    Arrays may be numpy's, memory-mapped ones, or funcgrad's.  ``shuffle`` needs a key (default: ``random.key(0)``);
    each epoch has an order of its own.  A short last batch is dropped, kept (``drop_last=False``), or with ``pad_last``
    filled up by repeating a row: then each item is ``(batch, mask)`` with a bool mask of the rows that count, so that a
    jitted step is not traced again.  ``epochs=None`` never ends.

    Raises ShapeError when the first axes differ.

    >>> [b.tolist() for b in batches(np.arange(5), 2, shuffle=False)]
    [[0, 1], [2, 3]]
    >>> [(b.tolist(), m.tolist()) for b, m in batches(np.arange(3), 2, shuffle=False, pad_last=True)]
    [([0, 1], [True, True]), ([2, 2], [True, False])]
    """
    last: Last = "pad" if pad_last else "drop" if drop_last else "keep"
    if shuffle and key is None:
        key = random.key(0)
    return Batches(arrays, batch_size, shuffle, last, key, epochs)


class Buckets(Batches):
    """An iterator over padded minibatches of sequences, epoch after epoch; see :func:`buckets`."""

    def __init__(
        self,
        examples: Sequence[Any],
        batch_size: int,
        sizes: Sequence[int],
        fill: float | int,
        shuffle: bool,
        last: Last,
        key: Any,
        epochs: int | None,
    ):
        if not examples or not sizes:
            raise ValueError(message("buckets", "examples and sizes are required", f"{len(examples)} and {len(sizes)}"))
        if not batch_size >= 1:
            raise ValueError(message("buckets", "batch_size must be at least 1", str(batch_size)))
        self._examples, self._sizes, self._fill = examples, sorted(set(sizes)), fill
        lengths = np.array([_length([np.asarray(x) for x in tree.leaves(e)], i) for i, e in enumerate(examples)])
        if lengths.max() > self._sizes[-1]:
            got, way_out = f"{lengths.max()} in example {lengths.argmax()}", "add a larger size, or cut the example"
            raise ShapeError(message("buckets", f"no example may be longer than {self._sizes[-1]}", got, way_out))
        self._bucket_of = np.searchsorted(self._sizes, lengths)
        self.size = len(examples)
        self.batch_size, self.shuffle, self.last, self.epochs = batch_size, shuffle, last, epochs
        self._key = None if key is None else np.asarray(key)
        self.epoch, self.index = 0, 0
        self._order = None
        self._plan: tuple[int, list[tuple[int, np.ndarray[Any, Any]]]] | None = None
        if not len(self):
            got, way_out = (
                f"{self.size} examples, batch_size {batch_size}",
                "use a smaller batch_size, or drop_last=False",
            )
            raise ValueError(message("buckets", "dropped last batches leave nothing", got, way_out))

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        counts = np.bincount(self._bucket_of)
        return int((counts // self.batch_size if self.last == "drop" else -(-counts // self.batch_size)).sum())

    def __next__(self) -> Any:
        if self.index >= len(self):
            self.epoch, self.index = self.epoch + 1, 0
        if self.epochs is not None and self.epoch >= self.epochs:
            raise StopIteration
        size, rows = self._batches_of_epoch()[self.index]
        self.index += 1
        return bucket([self._examples[i] for i in rows], [size], fill=self._fill, rows=self.batch_size)

    def restore(self, state: dict[str, Any]) -> Batches:
        self._plan = None
        return super().restore(state)

    def _batches_of_epoch(self) -> list[tuple[int, np.ndarray[Any, Any]]]:
        """The size and the rows of each batch of this epoch: by the key and the epoch's number alone."""
        if self._plan is None or self._plan[0] != self.epoch:
            order, found = self._permutation(), []
            for i, size in enumerate(self._sizes):
                rows = order[self._bucket_of[order] == i]
                whole = len(rows) - len(rows) % self.batch_size if self.last == "drop" else len(rows)
                found += [(size, rows[k : k + self.batch_size]) for k in range(0, whole, self.batch_size)]
            if self.shuffle:
                key = random.fold_in(random.fold_in(self._key, self.epoch), 1)
                found = [found[int(i)] for i in np.asarray(random.permutation(key, len(found)))]
            self._plan = (self.epoch, found)
        return self._plan[1]


def buckets(
    examples: Sequence[Any],
    batch_size: int,
    sizes: Sequence[int],
    *,
    fill: float | int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    key: Any = None,
    epochs: int | None = 1,
) -> Buckets:
    """Return an iterator over minibatches of sequences of different lengths, each padded to one of ``sizes``.

    An example is an array (length, ...) or a tree of them; scalars in it (a label, say) are not padded.  Each example
    is put among those of its size, the smallest that holds it, so that little is padded; each item is ``(batch, mask)``
    as :func:`bucket` gives it, always of ``batch_size`` rows, so that a jitted step is traced once for each size.  Rows
    that fill up a short last batch have a mask of False throughout: ``mask.any(axis=1)`` says which examples count.
    ``drop_last`` leaves out such batches.  Order, ``key``, ``epochs`` and the resumable position are as for
    :func:`batches`.

    Raises ShapeError when an example is longer than every size.

    >>> sentences = [np.array([1, 2, 3]), np.array([4]), np.array([5, 6, 7, 8, 9])]
    >>> [(x.shape, mask.sum(axis=1).tolist()) for x, mask in buckets(sentences, 2, [4, 8], shuffle=False)]
    [((2, 4), [3, 1]), ((2, 8), [5, 0])]
    """
    if shuffle and key is None:
        key = random.key(0)
    last: Last = "drop" if drop_last else "pad"
    return Buckets(examples, batch_size, sizes, fill, shuffle, last, key, epochs)


def bucket(
    examples: Sequence[Any], sizes: Sequence[int], *, fill: float | int = 0, rows: int | None = None
) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return sequences of different lengths as one batch, padded to one of ``sizes``, and the mask of what counts.

    Each example is an array (length, ...) or a tree of arrays of one length; scalars in it (a label, say) are not
    padded and become an array (examples,).  The batch has shape (examples, size, ...), where size is the smallest of
    ``sizes`` that holds the longest, and the mask is (examples, size), bool: a jitted function is traced once for each
    size that occurs.  With ``rows`` the batch is filled up to that many examples, too.  :func:`buckets` makes such
    batches epoch after epoch.
    The mask is what :func:`funcgrad.nn.masked_mean`, attention (as ``mask[:, None, None, :]``), the normalisations and
    :func:`funcgrad.nn.scan_cell` take.

    Raises ShapeError when an example is longer than every size, when there are more than ``rows``, or when the leaves
    of an example differ in length.

    >>> x, mask = bucket([np.array([1, 2, 3]), np.array([4])], [4, 8])
    >>> x.tolist(), mask.astype(int).tolist()
    ([[1, 2, 3, 0], [4, 0, 0, 0]], [[1, 1, 1, 0], [1, 0, 0, 0]])
    """
    if not examples or not sizes:
        raise ValueError(message("bucket", "examples and sizes are required", f"{len(examples)} and {len(sizes)}"))
    flat, treedef = tree.flatten(examples[0])
    leaves = [[np.asarray(x) for x in flat]]
    leaves += [[np.asarray(x) for x in treedef.flatten_up_to(e, "bucket")] for e in examples[1:]]
    lengths = [_length(xs, i) for i, xs in enumerate(leaves)]
    size = min([s for s in sizes if s >= max(lengths)], default=None)
    if size is None:
        way_out = "add a larger size, or cut the example"
        raise ShapeError(message("bucket", f"no example may be longer than {max(sizes)}", str(max(lengths)), way_out))
    count = len(examples) if rows is None else rows
    if count < len(examples):
        raise ShapeError(message("bucket", f"at most rows={rows} examples fit", str(len(examples))))
    mask = np.arange(size) < np.array([*lengths, *[0] * (count - len(examples))])[:, None]
    padded = [_padded(column, (count, size), fill) for column in zip(*leaves, strict=True)]
    return tree.unflatten(treedef, padded), mask


def _length(xs: Sequence[np.ndarray[Any, Any]], i: int) -> int:
    """The common length of an example's arrays."""
    found = {x.shape[0] for x in xs if x.ndim}
    if len(found) != 1:
        got = f"{', '.join(str(x.shape) for x in xs) or 'no arrays'} in example {i}"
        raise ShapeError(message("bucket", "the arrays of an example must share their first axis", got))
    return int(found.pop())


def _padded(column: Sequence[np.ndarray[Any, Any]], shape: tuple[int, int], fill: Any) -> np.ndarray[Any, Any]:
    """One array of the batch; the examples must agree in all but their lengths."""
    rest = {x.shape[1:] if x.ndim else None for x in column}
    if rest == {None}:  # one number for each example
        out = np.zeros(shape[:1], np.result_type(*{x.dtype for x in column}))
        out[: len(column)] = column
        return out
    if len(rest) != 1:
        raise ShapeError(
            message("bucket", "examples must differ in their first axis only", f"{sorted(map(str, rest))}")
        )
    out = np.full((*shape, *column[0].shape[1:]), fill, np.result_type(*{x.dtype for x in column}))
    for i, x in enumerate(column):
        out[i, : len(x)] = x
    return out


def prefetch(items: Iterable[Any] | Callable[[], Iterable[Any]], size: int = 2) -> Iterator[Any]:
    """Yield the items of an iterable (or of what a function returns), made ``size`` ahead in a thread of their own.

    An exception in the iterable is raised here; leaving the loop early ends the thread.

    >>> list(prefetch(iter([1, 2, 3])))
    [1, 2, 3]
    """
    if size < 1:
        raise ValueError(message("prefetch", "size must be at least 1", str(size)))
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(size)
    stop = threading.Event()
    device = asarray(0).device  # the consumer's default, which is the thread's own

    def put(kind: str, value: Any) -> bool:
        while not stop.is_set():
            try:
                ready.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            with default_device(device):
                for item in items() if callable(items) else items:
                    if not put("item", item):
                        return
            put("end", None)
        except BaseException as e:  # handed to the consumer, which raises it
            put("error", e)

    thread = threading.Thread(target=work, name="funcgrad-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "item":
                yield value
            elif kind == "error":
                raise value
            else:
                return
    finally:
        stop.set()
        thread.join(timeout=5)
