"""The safetensors format: eight bytes of header length, a JSON header, the tensors' bytes in C order.

The header maps each name to ``{"dtype", "shape", "data_offsets"}``, offsets from the end of the header; the entry
``__metadata__`` maps strings to strings.  All numbers are little-endian; the tensors fill the rest of the file without
gaps.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from funcgrad import dtypes
from funcgrad.io.entries import Entry, Source, bad, check_shape, check_spans, shown, unknown_dtype

__all__ = ["SafetensorsReader", "write_safetensors"]

MAX_HEADER = 100_000_000
METADATA = "__metadata__"
_BF16 = np.dtype([("bfloat16", "<u2")])
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": _BF16,
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
# Of the format, but held by no array of ours: such a tensor may be in a file as long as it is not asked for.
OTHER_BITS = {"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
_NAMES = {d: n for n, d in DTYPES.items()}


class SafetensorsReader:
    """The entries and the metadata of a file, all checked, and its tensors one at a time."""

    def __init__(self, path: str | os.PathLike[str], file: BinaryIO):
        self.source = Source(path, file)
        self.path = path
        (length,) = struct.unpack("<Q", self.source.take(8, "header length"))
        if length > MAX_HEADER:
            raise bad(path, f"the header must be of at most {MAX_HEADER} bytes", length)
        header = _parse(path, self.source.take(length, "header"))
        self.metadata = _metadata(path, header.pop(METADATA, {}))
        base = self.source.at
        self.entries = {name: _entry(path, name, fields, base) for name, fields in header.items()}
        spans = [(e.begin, e.end, name) for name, e in self.entries.items()]
        check_spans(path, spans, holes=False, first=base, last=self.source.size)

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """Return a tensor in a new array, in the dtype of the file."""
        entry = self.entries[name]
        dtype = DTYPES.get(entry.dtype)
        if dtype is None:
            raise unknown_dtype(self.path, name, entry.dtype, DTYPES)
        data = self.source.read_span(entry.begin, entry.end)
        if dtype == np.bool_:
            data = np.not_equal(data, 0)
        return np.asarray(data.view(dtype)).reshape(entry.shape)


def _parse(path: Any, text: bytes) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            raise bad(path, "a name may be in the header once", [n for n, _ in items][:8])
        return found

    def integer(digits: str) -> int:
        if len(digits) > 20:
            raise bad(path, "integers in the header must be of 64 bits", digits)
        return int(digits)

    if not text.startswith(b"{"):
        raise bad(path, "the header must begin with '{'", text[:16])
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=pairs, parse_int=integer)
    except UnicodeDecodeError as e:
        raise bad(path, "the header must be UTF-8", str(e)) from None
    except RecursionError:
        raise bad(path, "the header must be of three levels", "a deeper one") from None
    except json.JSONDecodeError as e:
        raise bad(path, "the header must be JSON", str(e)) from None
    assert isinstance(header, dict)  # it begins with "{"
    return header


def _metadata(path: Any, found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise bad(path, "the metadata must map strings to strings", found)
    return found


def _entry(path: Any, name: str, fields: Any, base: int) -> Entry:
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise bad(path, f"{shown(name)}: dtype, shape and data_offsets are required", fields)
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or (dtype not in DTYPES and dtype not in OTHER_BITS):
        raise bad(path, f"{shown(name)}: a dtype of the format is required", dtype)
    if not isinstance(shape, list):
        raise bad(path, f"{shown(name)}: the shape must be a list", shape)
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(n) is not int or n < 0 for n in offsets):
        raise bad(path, f"{shown(name)}: data_offsets must be two integers, none negative", offsets)
    bits = DTYPES[dtype].itemsize * 8 if dtype in DTYPES else OTHER_BITS[dtype]
    size = check_shape(path, name, shape)
    if size * bits != (offsets[1] - offsets[0]) * 8:
        got = f"{offsets[1] - offsets[0]} bytes for {dtype}{shown(shape)}"
        raise bad(path, f"{shown(name)}: the bytes must be those of the shape", got)
    return Entry(dtype, tuple(shape), base + offsets[0], base + offsets[1])


def write_safetensors(file: BinaryIO, arrays: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str]) -> None:
    """Write arrays of the format's dtypes by name.

    Wider elements come first and the header is filled up to a multiple of eight bytes, so that every tensor is aligned.
    """
    ordered = sorted(arrays, key=lambda n: (-arrays[n].dtype.itemsize, n))
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name in ordered:
        a = arrays[name]
        kind = "BF16" if a.dtype == dtypes.bfloat16 else _NAMES[a.dtype.newbyteorder("<")]
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for name in ordered:
        file.write(little_endian_bytes(arrays[name]))


def little_endian_bytes(a: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of an array in C order, the low byte of each element first."""
    plain = np.ascontiguousarray(a).reshape(-1)
    if plain.dtype.fields is None:
        plain = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
    return plain.view(np.uint8).data
