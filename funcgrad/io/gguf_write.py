"""The GGUF format, version 3: writing."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import DTypeError, ShapeError, message
from funcgrad.io.gguf import ALIGNMENT, ARRAY, BOOL, MAGIC, MAX_DIMENSIONS, PLAIN, SCALARS, STRING
from funcgrad.io.safetensors import little_endian_bytes

__all__ = ["write_gguf"]

MAX_NAME = 63  # ggml's own limit: 64 bytes with a final zero
_NUMBERS = {dtype: number for number, (_, dtype) in PLAIN.items()}
_KINDS = {np.dtype("<" + code): kind for kind, code in SCALARS.items()}
INT32, INT64, UINT64, FLOAT32, FLOAT64 = 5, 11, 10, 6, 12


def write_gguf(file: BinaryIO, arrays: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, Any]) -> None:
    """Write arrays of float32, float16, bfloat16, int32 (or float64, int64, int16, int8) by name, as they are.

    Metadata values are str, bool, int, float, numpy numbers and arrays, and lists of one of these; a Python int is an
    int32, or an int64 where it does not fit; a float is a float32.
    """
    entries = {"general.architecture": "funcgrad", **metadata}
    alignment = entries.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1):
        raise ValueError(message("save", "general.alignment must be a power of two, at least 8", repr(alignment)))
    entries = {k: np.uint32(v) if k == "general.alignment" else v for k, v in entries.items()}
    head = [MAGIC, struct.pack("<IQQ", 3, len(arrays), len(entries))]
    for key, value in entries.items():
        head.append(_text(key) + _value(key, value))
    at = 0
    for name, a in arrays.items():
        head.append(_description(name, a, at))
        at += a.nbytes + -a.nbytes % alignment
    text = b"".join(head)
    file.write(text + bytes(-len(text) % alignment))
    for a in arrays.values():
        file.write(little_endian_bytes(a))
        file.write(bytes(-a.nbytes % alignment))


def _description(name: str, a: np.ndarray[Any, Any], offset: int) -> bytes:
    if len(name.encode()) > MAX_NAME:
        raise ValueError(message("save", f"GGUF names are of at most {MAX_NAME} bytes", name, "use .safetensors"))
    if a.ndim > MAX_DIMENSIONS:
        got = f"{a.shape} for {name}"
        raise ShapeError(message("save", f"GGUF tensors have at most {MAX_DIMENSIONS} axes", got, "use .safetensors"))
    number = _NUMBERS.get(a.dtype if a.dtype == dtypes.bfloat16 else a.dtype.newbyteorder("<"))
    if number is None:
        got = f"{a.dtype} for {name}"
        way_out = "use .safetensors, or convert it to int32"
        raise DTypeError(
            message("save", f"a GGUF tensor is one of {', '.join(n for n, _ in PLAIN.values())}", got, way_out)
        )
    return _text(name) + struct.pack(f"<I{a.ndim}QIQ", a.ndim, *a.shape[::-1], number, offset)


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: Any) -> bytes:
    """A metadata value with its type."""
    kind = _kind(key, value)
    return struct.pack("<I", kind) + _payload(key, value, kind)


def _payload(key: str, value: Any, kind: int) -> bytes:
    if kind == STRING:
        return _text(value)
    if kind != ARRAY:
        return struct.pack("<" + SCALARS[kind], value)
    items = list(value)
    kinds = {_kind(key, v) for v in items} or {INT32}
    if kinds == {INT32, INT64}:
        kinds = {INT64}
    if len(kinds) != 1:
        raise TypeError(
            message("save", f"metadata {key}: the elements of a list must be of one type", repr(value)[:80])
        )
    inner = kinds.pop()
    parts = [_payload(key, v, inner) for v in items]
    return struct.pack("<IQ", inner, len(items)) + b"".join(parts)


def _kind(key: str, value: Any) -> int:
    """The number of the type that holds a value."""
    if isinstance(value, str):
        return STRING
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        return ARRAY
    if isinstance(value, (np.generic, np.ndarray)):
        found = _KINDS.get(value.dtype.newbyteorder("<"))
        if found is not None:
            return found
    elif isinstance(value, bool):
        return BOOL
    elif isinstance(value, int) and -(2**63) <= value < 2**64:
        return INT32 if -(2**31) <= value < 2**31 else INT64 if value < 2**63 else UINT64
    elif isinstance(value, float):
        return FLOAT32 if abs(value) <= 3.4e38 or value != value or abs(value) == float("inf") else FLOAT64
    raise TypeError(
        message("save", f"metadata {key}: a str, bool, int, float or a list of these is required", repr(value)[:80])
    )
