"""The GGUF format, versions 2 and 3, little-endian: reading.

A file is the magic "GGUF", the version, the numbers of tensors and of metadata entries, the entries (key, type, value),
the tensors' descriptions (name, dimensions with the fastest first, type, offset), and their data, aligned to
``general.alignment``.
"""

from __future__ import annotations

import os
import struct
from typing import Any, BinaryIO

import numpy as np

from funcgrad.io.blocks import BLOCKS
from funcgrad.io.entries import Entry, Source, bad, check_shape, check_spans, shown, unknown_dtype

__all__ = ["PLAIN", "SCALARS", "GGUFReader"]

MAGIC = b"GGUF"
ALIGNMENT = 32
MAX_DIMENSIONS = 4
# Metadata: number of the type, and how struct reads it; 8 is a string, 9 an array.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY, BOOL = 8, 9, 7
MAX_NESTING = 8
# Tensors that are not quantised: number of the type, its name, and the dtype of its elements.
PLAIN: dict[int, tuple[str, np.dtype[Any]]] = {
    0: ("F32", np.dtype("<f4")),
    1: ("F16", np.dtype("<f2")),
    24: ("I8", np.dtype("i1")),
    25: ("I16", np.dtype("<i2")),
    26: ("I32", np.dtype("<i4")),
    27: ("I64", np.dtype("<i8")),
    28: ("F64", np.dtype("<f8")),
    30: ("BF16", np.dtype([("bfloat16", "<u2")])),
}
NUMBERS = {name: number for number, (name, _) in PLAIN.items()} | {b.name: n for n, b in BLOCKS.items()}


class GGUFReader:
    """The entries and the metadata of a file, all checked, and its tensors one at a time, dequantised."""

    def __init__(self, path: str | os.PathLike[str], file: BinaryIO):
        self.path = path
        self.source = source = Source(path, file)
        if source.take(4, "magic") != MAGIC:
            raise bad(path, "the file must begin with GGUF")
        version = self._number("I", "version")
        if version not in (2, 3):
            what = "a big-endian file" if version in (2 << 24, 3 << 24) else f"version {version}"
            raise bad(path, "GGUF version 2 or 3, little-endian, is required", what)
        n_tensors, n_entries = self._number("Q", "tensor count"), self._number("Q", "metadata count")
        source.room_for(n_entries, 13, "metadata entries")
        self.metadata: dict[str, Any] = {}
        for _ in range(n_entries):
            key = self._text("metadata key")
            if key in self.metadata:
                raise bad(path, "a metadata key may be there once", key)
            self.metadata[key] = self._value(self._number("I", "metadata type"), key, 0)
        source.room_for(n_tensors, 24, "tensors")
        found = [self._description() for _ in range(n_tensors)]
        self.entries = self._placed(found)

    # -- the pieces of the header --------------------------------------------------------------------------------
    def _number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self.source.take(struct.calcsize(code), what))[0]

    def _text(self, what: str) -> str:
        raw = self.source.take(self._number("Q", f"{what} length"), what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as e:
            raise bad(self.path, f"a {what} must be UTF-8", str(e)) from None

    def _value(self, kind: int, key: str, depth: int) -> Any:
        if kind == STRING:  # tokenizers hold pieces of characters: bytes that are no UTF-8 are kept
            raw = self.source.take(self._number("Q", "string length"), f"metadata {shown(key)}")
            return raw.decode("utf-8", "surrogateescape")
        if kind == ARRAY:
            return self._array(key, depth)
        if kind not in SCALARS:
            raise bad(self.path, f"metadata {shown(key)}: a known type is required", kind)
        value = self._number("B" if kind == BOOL else SCALARS[kind], f"metadata {shown(key)}")
        if kind == BOOL and value > 1:
            raise bad(self.path, f"metadata {shown(key)}: a bool must be 0 or 1", value)
        return bool(value) if kind == BOOL else value

    def _array(self, key: str, depth: int) -> Any:
        kind, count = self._number("I", "array type"), self._number("Q", "array length")
        what = f"elements of metadata {shown(key)}"
        if kind in SCALARS:
            width = struct.calcsize(SCALARS[kind])
            self.source.room_for(count, width, what)
            raw = self.source.take(count * width, what)
            return np.frombuffer(raw, np.uint8) != 0 if kind == BOOL else np.frombuffer(raw, "<" + SCALARS[kind])
        if kind not in (STRING, ARRAY) or depth >= MAX_NESTING:
            raise bad(self.path, f"metadata {shown(key)}: an array of a known type is required", kind)
        self.source.room_for(count, 8 if kind == STRING else 12, what)
        return [self._value(kind, key, depth + 1) for _ in range(count)]

    def _description(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape (slowest axis first), type and offset of a tensor."""
        name = self._text("tensor name")
        rank = self._number("I", "number of dimensions")
        if rank > MAX_DIMENSIONS:
            raise bad(self.path, f"{shown(name)}: at most {MAX_DIMENSIONS} dimensions are possible", rank)
        shape = tuple([self._number("Q", "dimension") for _ in range(rank)][::-1])
        check_shape(self.path, name, shape)
        return name, shape, self._number("I", "tensor type"), self._number("Q", "tensor offset")

    # -- the data ------------------------------------------------------------------------------------------------
    def _placed(self, found: list[tuple[str, tuple[int, ...], int, int]]) -> dict[str, Entry]:
        """The entries by name; every tensor of a known type is within the file and overlaps no other."""
        alignment = self.metadata.get("general.alignment", ALIGNMENT)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise bad(self.path, "general.alignment must be a power of two", alignment)
        base = self.source.at + -self.source.at % alignment
        entries: dict[str, Entry] = {}
        for name, shape, kind, offset in found:
            if name in entries:
                raise bad(self.path, "a tensor's name may be there once", name)
            if offset % alignment:
                raise bad(self.path, f"{shown(name)}: the offset must be a multiple of {alignment}", offset)
            begin = base + offset
            entries[name] = Entry(_type_name(kind), shape, begin, begin + self._nbytes(name, shape, kind))
        spans = [(e.begin, e.end, n) for n, e in entries.items() if e.end > e.begin]
        check_spans(self.path, spans, holes=True, first=base, last=self.source.size)
        return entries

    def _nbytes(self, name: str, shape: tuple[int, ...], kind: int) -> int:
        size = check_shape(self.path, name, shape)
        if kind in PLAIN:
            return size * PLAIN[kind][1].itemsize
        if kind not in BLOCKS:
            return 0  # not readable, and said so when it is asked for
        block = BLOCKS[kind]
        if not shape or shape[-1] % block.elements:
            got = f"{block.name}{shown(shape)}"
            raise bad(self.path, f"{shown(name)}: rows must be whole blocks of {block.elements}", got)
        return size // block.elements * block.nbytes

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """Return a tensor in a new array; quantised ones in float32."""
        entry = self.entries[name]
        kind = NUMBERS.get(entry.dtype)
        if kind is None:
            raise unknown_dtype(self.path, name, entry.dtype, NUMBERS)
        data = self.source.read_span(entry.begin, entry.end)
        if kind in PLAIN:
            return data.view(PLAIN[kind][1]).reshape(entry.shape)
        with np.errstate(all="ignore"):  # scales that overflow or are not numbers give what they give
            return BLOCKS[kind].decode(data.reshape(-1, BLOCKS[kind].nbytes)).reshape(entry.shape)


def _type_name(kind: int) -> str:
    if kind in PLAIN:
        return PLAIN[kind][0]
    return BLOCKS[kind].name if kind in BLOCKS else f"type {kind}"
