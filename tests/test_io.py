"""save and load: round trips, atomicity, what does not fit, files that are wrong in every way."""

from __future__ import annotations

import json
import os
import random as python_random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import gguf, tensor

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import io, nn, optim, random
from funcgrad.errors import DTypeError, FileFormatError, TreeError

R = np.random.default_rng(0)


def same(a: Any, b: Any) -> None:
    assert a.shape == b.shape and a.dtype == b.dtype
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def model() -> Any:
    return {
        "net": nn.Sequential([nn.Linear(3, 4, key=random.key(0)), nn.LayerNorm(4)]),
        "half": fnp.asarray(R.normal(size=(2, 3)), "float16"),
        "brain": fnp.asarray(R.normal(size=(5,)), "bfloat16"),
        "ids": fnp.asarray([1, -2, 3]),
        "key": random.key(7),
        "mask": fnp.asarray([[True, False]]),
        "empty": fnp.zeros((0, 3)),
        "scalar": fnp.asarray(2.5),
    }


# -- round trips -------------------------------------------------------------------------------------------------
def test_every_dtype_comes_back_bit_for_bit(device: str, tmp_path: Path) -> None:
    tree = model()
    io.save(tmp_path / "m.safetensors", tree, {"note": "ünïcode"})
    back = io.load(tmp_path / "m.safetensors", like=tree)
    assert fg.tree.structure(back) == fg.tree.structure(tree)
    for a, b in zip(fg.tree.leaves(tree), fg.tree.leaves(back), strict=True):
        same(a, b)
    assert io.metadata(tmp_path / "m.safetensors") == {"note": "ünïcode"}
    assert io.inspect(tmp_path / "m.safetensors")["net.layers.0.kernel"] == (
        "F64" if device == "numpy" else "F32",
        (3, 4),
    )


@pytest.mark.ggml
def test_train_state_with_optimizer_and_key(tmp_path: Path) -> None:
    ts = fg.make_train_step(lambda w, b, key: (w * b).sum(), optim.adam(0.1), max_grad_norm=1.0)
    state = ts.init(fnp.asarray([1.0, 2.0]), key=random.key(3))
    state, _ = ts.step(state, fnp.asarray([3.0, 4.0]))
    io.save(tmp_path / "s", state)
    back = io.load(tmp_path / "s", like=state)
    for a, b in zip(fg.tree.leaves(state), fg.tree.leaves(back), strict=True):
        same(a, b)
    ts.step(back, fnp.asarray([3.0, 4.0]))


def test_numbers_and_numpy_leaves_come_back_as_they_were(tmp_path: Path) -> None:
    tree = {"f": 0.1, "i": 2**40, "b": True, "n": np.float64(0.3), "a": np.arange(3, dtype=np.int64), "s": np.int32(4)}
    io.save(tmp_path / "x", tree)
    back = io.load(tmp_path / "x", like=tree)
    assert {k: (type(v), np.asarray(v).tolist()) for k, v in back.items()} == {
        k: (type(v), np.asarray(v).tolist()) for k, v in tree.items()
    }


def test_a_lone_array_and_an_empty_tree(tmp_path: Path) -> None:
    io.save(tmp_path / "x", np.float32([1, 2]))
    assert list(io.load(tmp_path / "x")) == ["value"]
    same(io.load(tmp_path / "x", like=fnp.zeros(2, "float32")), np.float32([1, 2]))
    io.save(tmp_path / "y", {})
    assert io.load(tmp_path / "y") == {} and io.load(tmp_path / "y", like={}) == {}


def test_shape_dtype_structs_are_enough(tmp_path: Path) -> None:
    io.save(tmp_path / "x", {"w": np.ones((2, 3), np.float32)})
    like = fg.eval_shape(lambda: {"w": fnp.zeros((2, 3))})
    assert isinstance(io.load(tmp_path / "x", like=like)["w"], fg.Array)


def test_wide_data_becomes_what_a_device_holds(tmp_path: Path) -> None:
    arrays = {n: np.arange(3).astype(n) for n in ("float64", "int64", "int16", "int8", "uint8", "uint16", "uint64")}
    io.save(tmp_path / "x", arrays)
    with fg.default_device("cpu"):
        got = {k: str(v.dtype) for k, v in io.load(tmp_path / "x").items()}
    want = dict.fromkeys(arrays, "int32") | {"float64": "float32", "uint64": "uint32"}
    assert got == want
    io.save(tmp_path / "big", {"i": np.array([2**40])})
    with pytest.raises(OverflowError, match="int32"):
        io.load(tmp_path / "big")
    with pytest.raises(OverflowError, match="int32"):
        io.load(tmp_path / "big", like={"i": fnp.asarray([0])})


def test_not_contiguous_and_big_endian_data(tmp_path: Path) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    io.save(tmp_path / "x", {"t": a.T, "s": a[::2, ::-1], "e": a.astype(">f4"), "i": np.arange(3, dtype=">i4")})
    got = io.load(tmp_path / "x")
    for name, want in {"t": a.T, "s": a[::2, ::-1], "e": a, "i": np.arange(3)}.items():
        np.testing.assert_array_equal(np.asarray(got[name]), want)


def test_header_and_tensors_are_aligned(tmp_path: Path) -> None:
    io.save(tmp_path / "x", {"a": np.ones(3, bool), "b": np.ones(3, np.float64), "c": np.ones(1, np.float16)})
    raw = (tmp_path / "x").read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + n])
    assert n % 8 == 0
    for fields in header.values():
        size = {"BOOL": 1, "F64": 8, "F16": 2}[fields["dtype"]]
        assert (8 + n + fields["data_offsets"][0]) % size == 0


# -- a part of a file, and what does not fit ---------------------------------------------------------------------
def test_partial_load_by_path(tmp_path: Path) -> None:
    tree = {"enc": {"w": np.float32([1]), "b": np.float32([2])}, "encoder": np.float32([3]), "dec": np.float32([4])}
    io.save(tmp_path / "x", tree)
    assert sorted(io.load(tmp_path / "x", paths=["enc"])) == ["enc.b", "enc.w"]
    assert sorted(io.load(tmp_path / "x", paths=["enc.b", "dec"])) == ["dec", "enc.b"]
    like = fg.tree.map(fnp.zeros_like, tree)
    got = io.load(tmp_path / "x", like=like, paths=["enc"])
    assert fg.tree.map(lambda a: float(a[0]), got) == {"enc": {"w": 1.0, "b": 2.0}, "encoder": 0.0, "dec": 0.0}
    with pytest.raises(TreeError, match=r"must be in the file, got nothing, else"):
        io.load(tmp_path / "x", paths=["enc", "nothing", "else"])
    with pytest.raises(TypeError, match="sequence of names"):
        io.load(tmp_path / "x", paths="enc")


def test_every_mismatch_is_reported_at_once(tmp_path: Path) -> None:
    io.save(tmp_path / "x", {"w": np.ones((2, 3), np.float32), "h": np.ones(2, np.float16), "more": np.ones(1)})
    like = {"w": fnp.zeros((3, 2)), "h": fnp.zeros(2, "float32"), "gone": fnp.zeros(4)}
    with pytest.raises(TreeError) as e:
        io.load(tmp_path / "x", like=like)
    text = str(e.value)
    assert "4 leaves do not" in text
    assert "w: shape (2, 3) in the file, (3, 2) in like" in text
    assert "h: dtype F16 in the file, float32 in like" in text
    assert "gone: missing from the file" in text and "more: in the file, not in like" in text
    part = {"more": np.zeros(1)}
    assert io.load(tmp_path / "x", like=part, strict=False)["more"] == 1.0


def test_bad_trees_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    target = tmp_path / "x"
    with pytest.raises(TreeError, match=r"function at f; str at name"):
        io.save(target, {"name": "layer", "f": fnp.tanh, "w": fnp.zeros(2)})
    with pytest.raises(TreeError, match="are both"):
        io.save(target, {"a": {"b": fnp.zeros(1)}, "a.b": fnp.zeros(1)})
    with pytest.raises(TypeError, match="str to str"):
        io.save(target, {"w": fnp.zeros(1)}, {"epoch": 3})
    with pytest.raises(TreeError, match="__metadata__"):
        io.save(target, {"__metadata__": fnp.zeros(1)})
    assert os.listdir(tmp_path) == []


# -- atomicity ---------------------------------------------------------------------------------------------------
def test_a_failure_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "x"
    io.save(target, {"w": np.float32([1])})
    before = target.read_bytes()

    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        io.write_atomically(target, fail)
    assert target.read_bytes() == before and os.listdir(tmp_path) == ["x"]


def test_the_data_is_synced_before_the_name_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real_sync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), real_sync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), real_replace(a, b))[1])
    io.save(tmp_path / "x", {"w": np.float32([1])})
    assert calls == ["fsync", "replace", "fsync"]


def test_through_a_symbolic_link_and_umask(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    io.save(tmp_path / "real" / "x", np.float32([1]))
    (tmp_path / "link").symlink_to(tmp_path / "real" / "x")
    io.save(tmp_path / "link", np.float32([2]))
    assert (tmp_path / "link").is_symlink()
    assert float(io.load(tmp_path / "real" / "x")["value"][0]) == 2.0
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "real" / "x").stat().st_mode == (tmp_path / "plain").stat().st_mode


# -- files of others ---------------------------------------------------------------------------------------------
def test_sharded_index_and_folder(tmp_path: Path) -> None:
    io.save(tmp_path / "model-00001-of-00002.safetensors", {"a.w": np.float32([1])})
    io.save(tmp_path / "model-00002-of-00002.safetensors", {"b.w": np.float32([2])})
    weights = {"a.w": "model-00001-of-00002.safetensors", "b.w": "model-00002-of-00002.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": weights}))
    for place in (index, tmp_path):
        assert {k: float(v[0]) for k, v in io.load(place).items()} == {"a.w": 1.0, "b.w": 2.0}
    got = io.load(tmp_path, like={"a": {"w": fnp.zeros(1)}, "b": {"w": fnp.zeros(1)}})
    assert float(got["b"]["w"][0]) == 2.0
    index.write_text(json.dumps({"weight_map": {**weights, "c": "model-00002-of-00002.safetensors"}}))
    with pytest.raises(FileFormatError, match=r"none of c in model-00002"):
        io.load(tmp_path)
    for evil in ("../x", "/etc/passwd", "..", "a/b", "a\\b", ""):
        index.write_text(json.dumps({"weight_map": {"a": evil}}))
        with pytest.raises(FileFormatError, match="beside it"):
            io.load(tmp_path)
    for text in ("[]", "{", '{"weight_map": 3}', "[" * 100000):
        index.write_text(text)
        with pytest.raises(FileFormatError, match="index must"):
            io.load(tmp_path)


def test_types_without_arrays_may_be_left_out(tmp_path: Path) -> None:
    header = {
        "f8": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]},
        "w": {"dtype": "F32", "shape": [], "data_offsets": [2, 6]},
    }
    raw_file(tmp_path / "x", header, b"\0\0" + struct.pack("<f", 1.5))
    assert float(io.load(tmp_path / "x", paths=["w"])["w"]) == 1.5
    with pytest.raises(DTypeError, match=r"F8_E4M3[\s\S]*paths="):
        io.load(tmp_path / "x")


# -- hostile files -----------------------------------------------------------------------------------------------
def raw_file(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(shape: Any = (1,), offsets: Any = (0, 4), dtype: Any = "F32", **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


F4 = b"\0" * 4
HOSTILE: dict[str, tuple[Any, bytes, int | None]] = {
    "no header": (b"", b"", 2**63),
    "huge header length": ({"a": entry()}, F4, 2**64 - 1),
    "header past the end": ({"a": entry()}, b"", 10_000),
    "long header": ({}, b"", 100_000_001),
    "not json": (b"{nonsense", b"", None),
    "not an object": (b"[1, 2]", b"", None),
    "blank first": (b" {}", b"", None),
    "not utf-8": (b'{"\xff": 1}', b"", None),
    "deep": (b'{"a":' + b"[" * 100_000, b"", None),
    "deep closed": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"", None),
    "long integer": (b'{"a":{"dtype":"F32","shape":[' + b"9" * 50_000 + b'],"data_offsets":[0,4]}}', F4, None),
    "twice": (
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        F4,
        None,
    ),
    "negative shape": ({"a": entry([-1])}, F4, None),
    "two negative": ({"a": entry([-1, -1])}, F4, None),
    "float shape": ({"a": entry([1.0])}, F4, None),
    "bool shape": ({"a": entry([True])}, F4, None),
    "shape no list": ({"a": entry(1)}, F4, None),
    "huge shape": ({"a": entry([2**62, 2**62])}, F4, None),
    "huge empty shape": ({"a": entry([0, 2**62, 2**62], [0, 0])}, b"", None),
    "overflowing shape": ({"a": entry([2**32, 2**32], [0, 0])}, b"", None),
    "long shape": ({"a": entry([1] * 65)}, F4, None),
    "negative offsets": ({"a": entry([1], [-4, 0])}, F4, None),
    "backward offsets": ({"a": entry([1], [4, 0])}, F4, None),
    "out of range": ({"a": entry([1], [4, 8])}, F4, None),
    "wrong size": ({"a": entry([2], [0, 4])}, F4, None),
    "overlap": ({"a": entry(), "b": entry()}, F4, None),
    "gap": ({"a": entry(), "b": entry([1], [8, 12])}, F4 * 3, None),
    "tail": ({"a": entry()}, F4 * 2, None),
    "empty outside": ({"a": entry(), "b": entry([0], [99, 99])}, F4, None),
    "unknown dtype": ({"a": entry(dtype="F33")}, F4, None),
    "dtype no text": ({"a": entry(dtype=["F32"])}, F4, None),
    "field missing": ({"a": {"dtype": "F32", "shape": [1]}}, F4, None),
    "field extra": ({"a": entry(more=1)}, F4, None),
    "no fields": ({"a": 3}, F4, None),
    "three offsets": ({"a": entry([1], [0, 4, 4])}, F4, None),
    "metadata": ({"__metadata__": {"a": 1}, "a": entry()}, F4, None),
    "metadata no object": ({"__metadata__": "a", "a": entry()}, F4, None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_safetensors(name: str, tmp_path: Path) -> None:
    header, data, length = HOSTILE[name]
    path = raw_file(tmp_path / "x", header, data, length)
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match="load x: "):
            io.load(path)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000 + 32 * path.stat().st_size
    finally:
        tracemalloc.stop()


def test_truncated_anywhere(tmp_path: Path) -> None:
    io.save(tmp_path / "x", {"a": np.arange(3, dtype=np.float32), "b": np.ones((2, 2))}, {"k": "v"})
    io.save(tmp_path / "x.gguf", {"a": np.arange(3, dtype=np.float32), "b": np.ones((2, 2))}, {"k": [1, 2]})
    for source in ("x", "x.gguf"):
        raw = (tmp_path / source).read_bytes()
        end = len(raw) if source == "x" else len(raw) - 31  # the padding after the last tensor may be gone
        for n in range(end):
            (tmp_path / "cut").write_bytes(raw[:n])
            with pytest.raises(FileFormatError):
                io.load(tmp_path / "cut")


# -- mutations ---------------------------------------------------------------------------------------------------
INTERESTING = (0, 1, 2, 3, 7, 8, 9, 31, 32, 127, 255, 2**16, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1)


def mutated(raw: bytes, rng: python_random.Random) -> bytes:
    """The file with one to four damages: bytes changed, numbers replaced, pieces cut, doubled or put in."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        at, kind = rng.randrange(len(data) or 1), rng.randrange(7)
        if kind == 0:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[at : at + 8] = struct.pack("<Q", rng.choice(INTERESTING))
        elif kind == 3:
            data[at : at + 4] = struct.pack("<I", rng.choice(INTERESTING) & 0xFFFFFFFF)
        elif kind == 4:
            del data[at : at + rng.randint(1, 16)]
        elif kind == 5:
            data[at:at] = data[at : at + rng.randint(1, 32)]
        else:
            data[at:at] = str(rng.choice(INTERESTING)).encode()
    return bytes(data)


def originals(folder: Path) -> dict[str, bytes]:
    arrays = {"a.w": np.ones((3, 4), np.float32), "a.b": np.arange(4, dtype=np.int32), "h": np.ones(5, np.float16)}
    io.save(folder / "x.safetensors", {**arrays, "m": np.array([True])}, {"note": "text", "n": "3"})
    io.save(folder / "x.gguf", arrays, {"n": 3, "t": "text", "list": [1, 2, 3], "words": ["a", "bc"], "f": 0.5})
    blocks = gguf(tensor(b"q", [64, 2], 8, 0) + tensor(b"p", [32], 2, 160), 2)
    raw = blocks + bytes(-len(blocks) % 32) + R.integers(0, 256, 192, dtype=np.uint8).tobytes()
    return {
        "x.safetensors": (folder / "x.safetensors").read_bytes(),
        "x.gguf": (folder / "x.gguf").read_bytes(),
        "q.gguf": raw,
    }


@pytest.mark.parametrize(("name", "count"), [("x.safetensors", 5000), ("x.gguf", 3500), ("q.gguf", 1500)])
def test_mutated_files(name: str, count: int, tmp_path: Path) -> None:
    """Each loads, or raises what load says it raises, and takes little more memory than the file is large."""
    raw = originals(tmp_path)[name]
    rng = python_random.Random(name)
    target = tmp_path / "mutant"
    outcomes: dict[str, int] = {}
    worst = 0
    tracemalloc.start()
    try:
        with fg.default_device("numpy"):
            for i in range(count):
                target.write_bytes(mutated(raw, rng))
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                try:
                    io.load(target)
                    kind = "loaded"
                except (FileFormatError, DTypeError, OverflowError) as e:
                    kind = type(e).__name__
                    assert i > 50 or len(str(e)) < 2000
                outcomes[kind] = outcomes.get(kind, 0) + 1
                worst = max(worst, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert outcomes["FileFormatError"] > count / 4 and outcomes["loaded"] > 0, outcomes
    assert worst < 400_000, worst  # the files are of about a kilobyte; error messages and json take the rest
