"""The guarded graph of kernels over ggml (funcgrad/runtime/csrc/graph.h), through the raw extension."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcgrad.runtime import kinds

_ggml = pytest.importorskip("funcgrad.runtime._ggml")
pytestmark = pytest.mark.ggml
ROOT = Path(__file__).resolve().parent.parent


class Graph:
    """A graph of MAP kernels (dst = a op b on float32 vectors) through the raw extension."""

    def __init__(self, size: int, room: int = 64) -> None:
        self.ffi, self.lib = _ggml.ffi, _ggml.lib
        self.size = size
        self.error = self.ffi.new("char[512]")
        self.handle = self.lib.fg_graph_new(room, self.error, 512)
        assert self.handle != self.ffi.NULL, self.message()
        self.kernels: list[Any] = []
        self.ops = {self.ffi.string(self.lib.fg_op_name(i)).decode(): i for i in range(self.lib.fg_n_ops())}

    def message(self) -> str:
        return str(self.ffi.string(self.error).decode())

    def tensor(self, size: int | None = None) -> int:
        return int(self.lib.fg_graph_tensor(self.handle, 0, self.size if size is None else size, self.error, 512))

    def kernel(self, op: str, a: int, b: int, out: int) -> Any:
        operand = [0, 0, 4]  # float32, offset, stride
        words = [1, self.size, 2, 1, 3, 1, a, *operand, b, *operand, 2, out, *operand, self.ops[op], 2, 0, 1, 0, 0]
        made = self.lib.fg_kernel_new(0, words, len(words), self.error, 512)
        assert made != self.ffi.NULL, self.message()
        self.kernels.append(made)
        return made

    def node(self, kernel: Any, operands: list[int], out: int) -> int:
        return int(self.lib.fg_graph_node(self.handle, kernel, operands, len(operands), out, self.error, 512))

    def place(self, tensor: int, array: np.ndarray) -> None:
        pointer = self.ffi.cast("void *", array.ctypes.data)
        assert self.lib.fg_graph_place(self.handle, tensor, pointer, self.error, 512) == 0, self.message()

    def bind(self, *tensors: int) -> None:
        code = self.lib.fg_graph_declare_bound(self.handle, list(tensors), len(tensors), self.error, 512)
        assert code == 0, self.message()

    def run(self, *arrays: np.ndarray | None) -> int:
        bound = [self.ffi.NULL if a is None else self.ffi.cast("void *", a.ctypes.data) for a in arrays]
        return int(self.lib.fg_graph_run(self.handle, self.ffi.new("void *[]", bound), self.error, 512))

    def close(self) -> None:
        self.lib.fg_graph_free(self.handle)
        for kernel in self.kernels:
            self.lib.fg_kernel_free(kernel)


@pytest.fixture
def graph() -> Any:
    made = Graph(8)
    yield made
    made.close()


def test_nodes_run_in_the_order_in_which_they_were_added(graph: Graph) -> None:
    x, y, z = graph.tensor(), graph.tensor(), graph.tensor()
    for op in ("mul_f", "add_f", "mul_f", "sub_f"):  # z := z op y, in place, after z := x + y
        if not graph.kernels:
            assert graph.node(graph.kernel("add_f", 0, 1, 2), [x, y, z], z) == 0
        assert graph.node(graph.kernel(op, 1, 0, 1), [y, z], z) == len(graph.kernels) - 1
    graph.bind(x, y, z)
    for seed in range(2):  # other memory each time
        a, b = np.random.default_rng(seed).normal(size=(2, 8)).astype(np.float32)
        out = np.zeros(8, np.float32)
        assert graph.run(a, b, out) == 0, graph.message()
        np.testing.assert_array_equal(out, ((a + b) * b + b) * b - b)
    assert graph.lib.fg_graph_n_nodes(graph.handle) == 5


def test_a_node_takes_more_operands_than_ggml_has_sources(graph: Graph) -> None:
    tensors = [graph.tensor() for _ in range(14)]
    arrays = [np.full(8, i, np.float32) for i in range(14)]
    assert graph.node(graph.kernel("sub_f", 12, 3, 13), tensors, tensors[13]) == 0
    for tensor, array in zip(tensors, arrays, strict=True):
        graph.place(tensor, array)
    assert graph.run() == 0, graph.message()
    np.testing.assert_array_equal(arrays[13], np.full(8, 9.0))
    np.testing.assert_array_equal(arrays[12], np.full(8, 12.0))


def test_bad_graphs_are_error_codes(graph: Graph) -> None:
    x, y = graph.tensor(), graph.tensor()
    kernel = graph.kernel("add_f", 0, 0, 1)
    assert graph.node(kernel, [x, 7], x) == -1 and "tensor must be in [0, 2), got 7" in graph.message()
    assert graph.node(kernel, [x, x], y) == -1 and "out must be one of the operands" in graph.message()
    empty = graph.tensor(0)
    assert graph.node(kernel, [x, empty], empty) == -1 and "must not be empty" in graph.message()
    assert graph.tensor(-1) == -1 and "n_elements must be 0 or more" in graph.message()
    assert graph.lib.fg_graph_tensor(graph.handle, 99, 8, graph.error, 512) == -1 and "dtype" in graph.message()
    assert graph.node(kernel, [x, y], y) == 0
    assert graph.run() == -1 and "tensor 0 is neither placed nor bound" in graph.message()
    graph.bind(x, y)
    assert graph.run(np.ones(8, np.float32), None) == -1 and "bound[1] must not be NULL" in graph.message()
    out = np.zeros(8, np.float32)
    assert graph.run(np.ones(8, np.float32), out) == 0 and out.sum() == 16


def test_a_full_graph_is_an_error_code() -> None:
    graph = Graph(8, room=2)
    x, y = graph.tensor(), graph.tensor()
    assert (x, y) == (0, 1)
    assert graph.tensor() == -1 and "room for 2" in graph.message()
    assert graph.node(graph.kernel("add_f", 0, 0, 1), [x, y], y) == -1 and "room for 2" in graph.message()
    graph.close()


def test_a_graph_is_not_entered_twice() -> None:
    ffi, lib = _ggml.ffi, _ggml.lib
    argument, error, inner = ffi.new("float *"), ffi.new("char[512]"), ffi.new("char[512]")
    bound = ffi.new("void *[]", [argument])
    tensor, host_node = [0, 1, 0, 0], [103, 1, 0, 0, 0, 2, 7, 0]  # the argument; HOST number 7, without pointers
    words = [1, 0, 0, 0, 1, *tensor, 1, *host_node]
    program = lib.fg_program_new(words, len(words), ffi.NULL, 0, error, 512)
    assert program != ffi.NULL, ffi.string(error)
    codes: list[int] = []

    @ffi.callback("int(int64_t, void *const *)")
    def enter_again(number: int, _: Any) -> int:
        assert number == 7
        codes.append(lib.fg_program_run(program, bound, inner, 512))
        return 0

    lib.fg_set_host(enter_again)
    try:
        for _ in range(2):  # the refusal leaves the graph usable
            assert lib.fg_program_run(program, bound, error, 512) == 0, ffi.string(error)
    finally:
        lib.fg_set_host(lib.fg_host_call)
        lib.fg_program_free(program)
    assert codes == [-1, -1] and b"already running" in ffi.string(inner)


LIMITED = """
import resource
from funcgrad.runtime._ggml import ffi, lib
error = ffi.new("char[512]")
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
assert lib.fg_graph_new(1 << 24, error, 512) == ffi.NULL  # 6 GB of tensors
assert b"GGML_ASSERT" in ffi.string(error), ffi.string(error)
g = lib.fg_graph_new(10, error, 512)
assert g != ffi.NULL and lib.fg_graph_tensor(g, 0, 4, error, 512) == 0
lib.fg_graph_free(g)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
def test_a_failed_assertion_in_ggml_is_an_error_code() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_blas_errors_are_sentences() -> None:
    graph = Graph(8)
    assert graph.lib.fg_load_blas(b"/nonexistent.so", graph.error, 512) == -1 and "nonexistent" in graph.message()
    assert graph.lib.fg_load_blas(b"libc.so.6", graph.error, 512) == -1 and "no cblas_sgemm" in graph.message()
    graph.close()


def test_the_libraries_do_not_name_the_folder_of_their_build() -> None:
    for library in Path(_ggml.__file__).parent.glob("*.so"):
        assert str(ROOT).encode() not in library.read_bytes(), library.name


@pytest.mark.parametrize(
    ("header", "enum", "numbers"),
    [
        ("fg.h", "fg_kind", {n: v for n, v in vars(kinds).items() if isinstance(v, int) and v < kinds.MAP_REDUCE}),
        ("program.h", "fg_control", {n: v for n, v in vars(kinds).items() if isinstance(v, int) and v >= 100}),
        ("fg.h", "fg_reduce_op", {name.upper(): v for name, v in kinds.REDUCTIONS.items()}),
        ("fg.h", "fg_scatter_op", {name.upper(): v for name, v in kinds.SCATTERS.items()}),
    ],
)
def test_the_numbers_are_those_of_the_headers(header: str, enum: str, numbers: dict[str, int]) -> None:
    text = (ROOT / "funcgrad" / "runtime" / "csrc" / header).read_text()
    body = re.search(rf"enum {enum} \{{(.*?)\}}", text, re.DOTALL)
    assert body is not None
    named = re.findall(r"FG_(?:SCATTER_(?=\w+ = [1-4]))?(\w+) = (\d+)", body[1])
    assert {name: int(value) for name, value in named} == numbers
