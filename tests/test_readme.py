"""What the README says, runs."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

import funcgrad as fg

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.mark.ggml
def test_the_training_loop_learns() -> None:
    program = next(b for b in BLOCKS if "optimizer = " in b)
    out = io.StringIO()
    with fg.default_device("cpu"), contextlib.redirect_stdout(out):
        exec(compile(program, "README.md", "exec"), {})
    assert float(out.getvalue()) < 1e-2


def test_the_printed_graph_is_what_is_printed() -> None:
    block = next(b for b in BLOCKS if "fg.make_graph" in b)
    source, _, shown = block.partition("\n")
    names: dict[str, Any] = {"fg": fg, "fnp": fg.numpy}
    assert repr(eval(source.removeprefix(">>> "), names)) == shown.strip()
