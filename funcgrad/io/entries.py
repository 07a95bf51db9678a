"""What the file formats share: entries, reading within a file's size, and checks of shapes and places."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from funcgrad.errors import DTypeError, FileFormatError, message

__all__ = ["Entry", "Source", "bad", "check_shape", "check_spans", "shown", "unknown_dtype"]

MAX_RANK = 32  # numpy's limit before its version 2
MAX_SIZE = 2**59  # elements of eight bytes then fit numpy, also when a size is 0


class Entry(NamedTuple):
    """A tensor in a file: its dtype as the format names it, its shape, and where its bytes are in the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def bad(path: Any, requirement: str, got: Any = "") -> FileFormatError:
    """The error for a file that does not follow its format."""
    return FileFormatError(message(f"load {os.path.basename(os.fspath(path))}", requirement, shown(got)))


def unknown_dtype(path: Any, name: str, dtype: str, known: Iterable[str]) -> DTypeError:
    """The error for a tensor of a dtype that cannot be read."""
    requirement = f"{shown(name)}: one of {', '.join(known)} is required"
    what = f"load {os.path.basename(os.fspath(path))}"
    return DTypeError(message(what, requirement, dtype, "leave it out with paths="))


def shown(x: Any) -> str:
    """A value from a file, short enough for a message and in printable characters."""
    text = x if isinstance(x, str) and x.isprintable() else ascii(x)
    return text if len(text) <= 80 else text[:77] + "..."


class Source:
    """A file open for reading: every read is within the file's size, so that no length in it can ask for too much."""

    def __init__(self, path: Any, file: BinaryIO):
        self.path, self.file = path, file
        self.size = os.fstat(file.fileno()).st_size
        self.at = 0

    def take(self, n: int, what: str) -> bytes:
        """Return the next ``n`` bytes."""
        if n > self.size - self.at:
            raise bad(
                self.path, f"the file must hold {n} bytes of {what} at byte {self.at}", f"{self.size} bytes in all"
            )
        data = self.file.read(n)
        if len(data) != n:
            raise bad(self.path, f"the file must hold {n} bytes of {what} at byte {self.at}", "a file that got shorter")
        self.at += n
        return data

    def room_for(self, count: int, width: int, what: str) -> None:
        """Raise unless ``count`` items of at least ``width`` bytes can follow."""
        if count * width > self.size - self.at:
            got = f"{count} at byte {self.at} of {self.size}"
            raise bad(self.path, f"the number of {what} must fit in the file", got)

    def read_span(self, begin: int, end: int) -> np.ndarray[Any, Any]:
        """Return bytes of the file as a new array; the span was checked against the file's size before."""
        out = np.empty(end - begin, np.uint8)
        self.file.seek(begin)
        if self.file.readinto(out.data) != len(out):  # type: ignore[attr-defined]
            raise bad(self.path, f"bytes {begin} to {end} must be in the file", "a file that got shorter")
        return out


def check_shape(path: Any, name: str, shape: Sequence[Any]) -> int:
    """Return the number of elements; raise for a shape that no array can have."""
    if len(shape) > MAX_RANK or any(type(n) is not int or n < 0 for n in shape):
        raise bad(path, f"{shown(name)}: a shape is up to {MAX_RANK} integers, none negative", shape)
    if math.prod([max(n, 1) for n in shape]) >= MAX_SIZE:
        raise bad(path, f"{shown(name)}: a shape must be of fewer than 2**59 elements", shape)
    return math.prod(shape)


def check_spans(path: Any, spans: Iterable[tuple[int, int, str]], holes: bool, first: int, last: int) -> None:
    """Raise when spans of bytes overlap or leave [first, last), and, unless ``holes``, when they do not fill it."""
    at = first
    for begin, end, name in sorted(spans):
        if begin == end and first <= begin <= last:
            continue
        if begin < at or (begin > at and not holes) or not begin < end <= last:
            got = f"bytes {begin - first} to {end - first} of {last - first}, after byte {at - first}"
            raise bad(
                path, f"{shown(name)}: data must be in the file, without overlap{'' if holes else ' or gap'}", got
            )
        at = end
    if at != last and not holes:
        raise bad(path, "every byte of the data must belong to a tensor", f"{last - at} bytes at the end that do not")
