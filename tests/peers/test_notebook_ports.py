"""Notebook 8 shows programs for JAX and PyTorch, what they printed, and their ports: the originals print that."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NOTEBOOK = Path(__file__).parent.parent.parent / "notebooks" / "08_coming_from.ipynb"
CELLS = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
TEXT = {kind: ["".join(c["source"]) for c in CELLS if c["cell_type"] == kind] for kind in ("markdown", "code")}


def original(library: str) -> str:
    """The program on the page that imports a library."""
    programs = [p for text in TEXT["markdown"] for p in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    [program] = [p for p in programs if f"import {library}\n" in p]
    return program


def numbers(name: str) -> list[float]:
    """A list of numbers that the notebook compares with."""
    [found] = re.findall(rf"^{name} = (\[.*?\])", "\n".join(TEXT["code"]), re.MULTILINE | re.DOTALL)
    assert [round(v, 8) for v in json.loads(found)] == json.loads(found)
    return json.loads(found)


def printed(library: str) -> list[list[float]]:
    """The numbers that the page says the program printed, line by line."""
    [text] = [t for t in TEXT["markdown"] if f"import {library}\n" in t]
    lines = [line for line in text.splitlines() if line.startswith("    [")]
    return [[float(v) for v in re.findall(r"[\d.]+", line)] for line in lines]


def test_the_jax_program_prints_what_the_page_says() -> None:
    pytest.importorskip("jax")
    names: dict[str, Any] = {}
    exec(compile(original("jax"), "notebook 8", "exec"), names)
    first, last = np.asarray(names["found"][:, 0]), np.asarray(names["found"][:, -1])
    np.testing.assert_allclose(first, numbers("JAX_FIRST"), rtol=1e-6)
    np.testing.assert_allclose(last, numbers("JAX_LAST"), rtol=1e-2)
    assert printed("jax") == [numbers("JAX_FIRST"), numbers("JAX_LAST")]


def test_the_port_of_the_jax_program_is_the_same_text() -> None:
    swaps = {
        "import jax\n": "import funcgrad as jax\n",
        "import jax.numpy as jnp\n": "import funcgrad.numpy as jnp\n",
        "import optax\n": "import funcgrad.optim as optax\n",
        "sizes[1:])": "sizes[1:], strict=False)",
    }
    want = original("jax")
    for old, new in swaps.items():
        want = want.replace(old, new)
    want = want[: want.index("\n\nparams, found = ")]
    assert any(source.startswith(want.rstrip()) for source in TEXT["code"])


def test_the_torch_program_prints_what_the_page_says() -> None:
    pytest.importorskip("torch")
    names: dict[str, Any] = {}
    exec(compile(original("torch"), "notebook 8", "exec"), names)
    np.testing.assert_allclose([names["found"][i] for i in (0, 1, 10, 50, 399)], numbers("TORCH"), rtol=1e-2)
    assert printed("torch") == [numbers("TORCH")]
