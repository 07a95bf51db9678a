"""The kernels as compiled for lesser CPUs than this one: their tests once more, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("funcgrad.runtime._ggml")

pytestmark = [pytest.mark.ggml, pytest.mark.slow]

HERE = Path(__file__).parent
FILES = {
    "test_kernels_reduce.py": "not test_sum_of_a_constant",
    "test_kernels_dot.py": "test_dot or integers or with_a_blas or disturb or readable_memory",
    "test_kernels_index.py": "",
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("variant", ["base", "avx2"])
def test_lesser_variant(variant: str, file: str) -> None:
    """The variant is chosen when the first kernel is made, so it takes a new process."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file), "-k", FILES[file]]
    result = subprocess.run(
        command,
        cwd=HERE.parent,
        env={**os.environ, "FUNCGRAD_CPU": variant},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-1000:]
    assert " passed" in result.stdout
