"""Loading the extension: what happens without it, threads, BLAS, and the cost of importing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MISSING = """
import sys
sys.modules["funcgrad.runtime._ggml"] = None  # an import of it fails
import numpy as np
import funcgrad as fg
from funcgrad.errors import DeviceError
from funcgrad.runtime import device
with fg.default_device("numpy"):
    assert float(fg.grad(lambda x: x * x)(3.0)) == 6.0
assert [d.name for d in device.devices()] == ["numpy"]
try:
    device.get("cpu")
except DeviceError as e:
    print(e)
"""


def run(program: str, **env: str) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, **env}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=full, timeout=120)


def test_without_the_extension_numpy_works_and_the_error_says_how_to_build() -> None:
    done = run(MISSING)
    assert done.returncode == 0, done.stderr
    assert "cpu: the compiled extension is required" in done.stdout
    assert "python build_ffi.py" in done.stdout


def test_importing_loads_no_extension() -> None:
    done = run("import sys, funcgrad; print(sorted(m for m in sys.modules if 'cffi' in m or m.endswith('_ggml')))")
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.ggml
@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_can_be_chosen(threads: int) -> None:
    program = "from funcgrad.runtime import ggml; print(ggml.load().threads)"
    assert run(program, FUNCGRAD_NUM_THREADS=str(threads)).stdout.strip() == str(threads)


@pytest.mark.ggml
@pytest.mark.parametrize("text", ["0", "many", "-2", "1000"])
def test_a_number_of_threads_that_is_none_is_an_error(text: str) -> None:
    done = run("from funcgrad.runtime import device; device.get('cpu')", FUNCGRAD_NUM_THREADS=text)
    assert done.returncode != 0
    assert f"FUNCGRAD_NUM_THREADS must be a number from 1 to 256, got '{text}'" in done.stderr


@pytest.mark.ggml
def test_no_more_threads_than_cores() -> None:
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    program = "from funcgrad.runtime import ggml; print(ggml.load().threads)"
    assert 1 <= int(run(program, FUNCGRAD_NUM_THREADS="").stdout) <= len(allowed)
    if hasattr(os, "sched_setaffinity"):
        bound = f"import os; os.sched_setaffinity(0, {{{allowed[0]}}})\n{program}"
        assert run(bound, FUNCGRAD_NUM_THREADS="").stdout.strip() == "1"


@pytest.mark.ggml
def test_products_are_right_with_and_without_a_blas() -> None:
    program = """
import sys, importlib.util
if sys.argv[1:] == ["none"]:
    found = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *a: None if name == "scipy_openblas32" else found(name, *a)
import numpy as np
import funcgrad as fg
from funcgrad.runtime import ggml
x = np.random.default_rng(0).normal(size=(300, 200)).astype(np.float32)
y = np.random.default_rng(1).normal(size=(200, 250)).astype(np.float32)
got = np.asarray(fg.numpy.matmul(fg.device_put(x), fg.device_put(y)))
want = x.astype(np.float64) @ y
assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()
print(ggml.load().blas)
"""
    with_blas = run(program)
    assert with_blas.returncode == 0, with_blas.stderr
    without = subprocess.run(
        [sys.executable, "-c", program, "none"], capture_output=True, text=True, env=os.environ, timeout=120
    )
    assert without.returncode == 0, without.stderr
    assert without.stdout.startswith("none:")
