"""Files of safetensors, PyTorch and the gguf package, read and written both ways."""

from __future__ import annotations

import numpy as np
import pytest

import funcgrad.numpy as fnp
from funcgrad import dtypes, io

R = np.random.default_rng(0)
ARRAYS = {
    "a.w": R.normal(size=(3, 4)).astype("f"),
    "a.h": R.normal(size=(5,)).astype("float16"),
    "i": np.int32([[1, -2]]),
    "u": np.uint32([7]),
    "m": np.array([[True], [False]]),
    "d": np.float64(0.1),
    "e": np.zeros((0, 2), "f"),
}


def test_the_safetensors_package_reads_ours(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    io.save(tmp_path / "x", ARRAYS, {"k": "v"})
    got = safetensors.load_file(tmp_path / "x")
    assert set(got) == set(ARRAYS)
    for name, a in ARRAYS.items():
        assert got[name].dtype == a.dtype and got[name].shape == a.shape
        assert got[name].tobytes() == a.tobytes()
    with pytest.importorskip("safetensors").safe_open(str(tmp_path / "x"), "numpy") as f:
        assert f.metadata() == {"k": "v"}


def test_we_read_the_safetensors_package(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file({k: np.asarray(v) for k, v in ARRAYS.items()}, tmp_path / "x", {"k": "v"})
    got = io.load(tmp_path / "x", like=ARRAYS)
    for name, a in ARRAYS.items():
        assert np.asarray(got[name]).tobytes() == a.tobytes()
    assert io.metadata(tmp_path / "x") == {"k": "v"}


def test_pytorch_exports(tmp_path):
    torch = pytest.importorskip("torch")
    files = pytest.importorskip("safetensors.torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    state = {k: v.bfloat16() if k == "1.bias" else v for k, v in net.state_dict().items()}
    files.save_file(state, str(tmp_path / "x"))
    got = io.load(tmp_path / "x")
    assert list(got) and set(got) == set(state)
    for name, t in state.items():
        np.testing.assert_array_equal(np.asarray(got[name]), t.float().numpy())
    assert got["1.bias"].dtype == dtypes.bfloat16
    nested = io.load(tmp_path / "x", like=[{"weight": fnp.zeros((4, 3)), "bias": fnp.zeros(4)}], paths=["0"])
    np.testing.assert_array_equal(np.asarray(nested[0]["weight"]), state["0.weight"].numpy())


def test_pytorch_reads_our_bfloat16(tmp_path):
    torch = pytest.importorskip("torch")
    files = pytest.importorskip("safetensors.torch")
    x = R.normal(size=9).astype("f")
    io.save(tmp_path / "x", {"b": fnp.asarray(x, "bfloat16")})
    got = files.load_file(str(tmp_path / "x"))["b"]
    assert torch.equal(got, torch.tensor(x).bfloat16())


def test_the_gguf_package_reads_ours(tmp_path):
    gguf = pytest.importorskip("gguf")
    arrays = {"w": ARRAYS["a.w"], "h": ARRAYS["a.h"], "i": ARRAYS["i"], "t": R.normal(size=(2, 3, 4)).astype("f")}
    about = {"text": "x", "n": 3, "f": 0.5, "yes": True, "list": [1, 2], "words": ["a", "bc"], "general.alignment": 64}
    io.save(tmp_path / "x.gguf", arrays, about)
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    got = {t.name: t for t in reader.tensors}
    assert set(got) == set(arrays)
    for name, a in arrays.items():
        assert got[name].data.reshape(a.shape).tobytes() == a.tobytes()
        assert list(got[name].shape) == list(a.shape[::-1])
    found = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert found == {"general.architecture": "funcgrad", **about}


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32"])
def test_we_read_what_the_gguf_package_quantises(kind, tmp_path):
    gguf = pytest.importorskip("gguf")
    quants = pytest.importorskip("gguf.quants")
    kind = gguf.GGMLQuantizationType[kind]
    nbytes = gguf.GGML_QUANT_SIZES[kind][1]
    if kind.name.endswith("_K"):  # the package has no encoder for these: any bytes are a block
        raw = R.integers(0, 256, (3, 2 * nbytes), dtype=np.uint8)
        at = {"Q6_K": (208,)}.get(kind.name, (0, 2))
        for row, block, place in [(r, b, p) for r in range(3) for b in range(2) for p in at]:
            begin = block * nbytes + place
            raw[row, begin : begin + 2] = np.frombuffer(np.float16(R.normal()).tobytes(), np.uint8)
        want = quants.dequantize(raw, kind)
    else:
        x = R.normal(size=(3, 64)).astype("f")
        raw = quants.quantize(x, kind)
        want = quants.dequantize(raw, kind)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "test")
    writer.add_uint32("test.n", 5)
    writer.add_tensor("t", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    got = io.load(tmp_path / "x.gguf")["t"]
    assert got.shape == want.shape
    np.testing.assert_array_equal(np.asarray(got), want)
    assert io.metadata(tmp_path / "x.gguf")["test.n"] == 5
