"""GGUF files: what they say, quantised blocks, and what is refused."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf_files import gguf, tensor, text

from funcgrad import dtypes, io
from funcgrad.errors import DTypeError, FileFormatError, ShapeError

R = np.random.default_rng(0)


def test_gguf_round_trip(tmp_path: Path) -> None:
    tree = {
        "w": np.float32(R.normal(size=(2, 3, 4))),
        "h": np.float16(R.normal(size=(3, 2))),
        "b": dtypes.narrow(R.normal(size=7), dtypes.bfloat16),
        "i": np.int32([[1, 2], [3, -4]]),
        "s": np.float32(3.5),
    }
    about = {"n": 3, "big": 2**40, "x": 0.5, "t": "text", "yes": True, "list": [1, 2], "words": ["a", "bc"], "no": []}
    io.save(tmp_path / "m.gguf", tree, about)
    got = io.load(tmp_path / "m.gguf")
    for name, a in tree.items():
        want = dtypes.widen(a) if a.dtype == dtypes.bfloat16 else a
        assert got[name].dtype == a.dtype
        np.testing.assert_array_equal(np.asarray(got[name]), want)
    found = io.metadata(tmp_path / "m.gguf")
    assert found.pop("general.architecture") == "funcgrad"
    assert {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.items()} == about
    assert io.inspect(tmp_path / "m.gguf")["w"] == ("F32", (2, 3, 4))


def test_gguf_alignment(tmp_path: Path) -> None:
    io.save(tmp_path / "m.gguf", {"a": np.float32([1]), "b": np.float32([2])}, {"general.alignment": 64})
    assert {k: float(v[0]) for k, v in io.load(tmp_path / "m.gguf").items()} == {"a": 1.0, "b": 2.0}
    with pytest.raises(ValueError, match="power of two"):
        io.save(tmp_path / "m.gguf", {"a": np.float32([1])}, {"general.alignment": 48})


def test_what_gguf_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(DTypeError, match=r"bool for m[\s\S]*safetensors"):
        io.save(tmp_path / "x.gguf", {"m": np.array([True])})
    with pytest.raises(ShapeError, match="at most 4 axes"):
        io.save(tmp_path / "x.gguf", {"m": np.zeros((1, 1, 1, 1, 2), np.float32)})
    with pytest.raises(ValueError, match="at most 63 bytes"):
        io.save(tmp_path / "x.gguf", {"m" * 64: np.zeros(1, np.float32)})
    with pytest.raises(TypeError, match="of one type"):
        io.save(tmp_path / "x.gguf", {"m": np.zeros(1, np.float32)}, {"k": [1, "a"]})
    with pytest.raises(TypeError, match="a str, bool"):
        io.save(tmp_path / "x.gguf", {"m": np.zeros(1, np.float32)}, {"k": {}})
    assert os.listdir(tmp_path) == []


PAD = b"\0" * 200
EVIL_GGUF = {
    "magic": b"GGUX" + PAD,
    "version": gguf(version=1) + PAD,
    "big-endian": b"GGUF" + struct.pack(">I", 3) + PAD,
    "tensor count": gguf(n_tensors=2**63),
    "metadata count": gguf(n_kv=2**64 - 1) + PAD,
    "key length": gguf(kv=struct.pack("<Q", 2**63), n_kv=1) + PAD,
    "string length": gguf(kv=text(b"k") + struct.pack("<IQ", 8, 2**40), n_kv=1) + PAD,
    "array length": gguf(kv=text(b"k") + struct.pack("<IIQ", 9, 10, 2**61), n_kv=1) + PAD,
    "array of strings": gguf(kv=text(b"k") + struct.pack("<IIQ", 9, 8, 2**40), n_kv=1) + PAD,
    "array of unknown": gguf(kv=text(b"k") + struct.pack("<IIQ", 9, 77, 1), n_kv=1) + PAD,
    "nested arrays": gguf(kv=text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100_000, n_kv=1) + PAD,
    "unknown type": gguf(kv=text(b"k") + struct.pack("<I", 13), n_kv=1) + PAD,
    "bool of 2": gguf(kv=text(b"k") + struct.pack("<IB", 7, 2), n_kv=1) + PAD,
    "key twice": gguf(kv=(text(b"k") + struct.pack("<Ii", 5, 1)) * 2, n_kv=2) + PAD,
    "key not utf-8": gguf(kv=text(b"\xff") + struct.pack("<Ii", 5, 1), n_kv=1) + PAD,
    "alignment 0": gguf(kv=text(b"general.alignment") + struct.pack("<II", 4, 0), n_kv=1) + PAD,
    "alignment text": gguf(kv=text(b"general.alignment") + struct.pack("<I", 8) + text(b"8"), n_kv=1) + PAD,
    "many dimensions": gguf(tensor(b"t", [1] * 5, 0, 0), 1) + PAD,
    "huge dimensions": gguf(tensor(b"t", [2**63] * 4, 0, 0), 1) + PAD,
    "overflow": gguf(tensor(b"t", [2**32, 2**32], 0, 0), 1) + PAD,
    "out of range": gguf(tensor(b"t", [1], 0, 2**40), 1) + PAD,
    "offset overflow": gguf(tensor(b"t", [1], 0, 2**64 - 32), 1) + PAD,
    "misaligned": gguf(tensor(b"t", [1], 0, 4), 1) + PAD,
    "part of a block": gguf(tensor(b"t", [33], 8, 0), 1) + PAD,
    "scalar block": gguf(tensor(b"t", [], 8, 0), 1) + PAD,
    "overlap": gguf(tensor(b"t", [9], 0, 0) + tensor(b"u", [1], 0, 32), 2) + PAD,
    "name twice": gguf(tensor(b"t", [1], 0, 0) + tensor(b"t", [1], 0, 32), 2) + PAD,
}


@pytest.mark.parametrize("name", EVIL_GGUF)
def test_hostile_gguf(name: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(EVIL_GGUF[name])
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match="load x: "):
            io.load(tmp_path / "x")
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_unknown_tensor_types_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(gguf(tensor(b"t", [1], 0, 0) + tensor(b"q", [256], 10, 32), 2) + PAD)
    assert list(io.load(tmp_path / "x", paths=["t"])) == ["t"]
    with pytest.raises(DTypeError, match="type 10"):
        io.load(tmp_path / "x")


@pytest.mark.parametrize("kind", [2, 3, 6, 7, 8])
def test_dequantised_by_the_definition(kind: int, tmp_path: Path) -> None:
    """Blocks of 32: scale, minimum and the bits of each element, one element at a time."""
    size = {2: 18, 3: 20, 6: 22, 7: 24, 8: 34}[kind]
    raw = bytearray(R.integers(0, 256, 4 * size, dtype=np.uint8).tobytes())
    want = []
    for b in range(4):
        raw[b * size : b * size + 2] = np.float16(R.normal()).tobytes()
        if kind in (3, 7):
            raw[b * size + 2 : b * size + 4] = np.float16(R.normal()).tobytes()
        block = bytes(raw[b * size : (b + 1) * size])
        d = float(np.frombuffer(block[:2], np.float16)[0])
        m = float(np.frombuffer(block[2:4], np.float16)[0]) if kind in (3, 7) else 0.0
        bits = int.from_bytes(block[-20:-16], "little") if kind in (6, 7) else 0
        for j in range(32):
            if kind == 8:
                want.append(d * int.from_bytes(block[2 + j : 3 + j], "little", signed=True))
                continue
            byte = block[-16:][j % 16]
            q = (byte & 15 if j < 16 else byte >> 4) + 16 * (bits >> j & 1)
            want.append(d * (q - {2: 8, 6: 16}.get(kind, 0)) + m)
    (tmp_path / "x").write_bytes(gguf(tensor(b"t", [64, 2], kind, 0), 1) + b"\0" * 0)
    head = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(head + bytes(-len(head) % 32) + raw)
    got = io.load(tmp_path / "x")["t"]
    assert got.shape == (2, 64) and got.dtype == np.float32
    np.testing.assert_allclose(np.asarray(got).ravel(), want, rtol=1e-6, atol=1e-6)
