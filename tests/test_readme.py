"""What the README says, runs."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
from funcgrad.primitive import REGISTRY
from funcgrad.trace import bind

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


@pytest.mark.ggml
def test_the_primitive_of_the_readme_passes_as_written() -> None:
    """The example class, with the checks that matter most."""
    source = next(b for b in BLOCKS if "class Softsign" in b)
    head = (
        "from dataclasses import dataclass\nimport numpy as np\nfrom funcgrad import dtypes\n"
        "from funcgrad.primitive import Pointwise, example\n"
        "from funcgrad.prims.pointwise import abs, add, integer_pow\n"
    )
    names: dict[str, Any] = {"__name__": "readme"}
    try:
        exec(compile(head + source, "README.md", "exec"), names)
        prim = names["Softsign"]()
        x = np.array([-2.0, -0.5, 0.0, 3.0])

        def apply(v: Any) -> Any:
            return bind(prim, v)

        with fg.default_device("numpy"):
            np.testing.assert_allclose(
                np.asarray(fg.vmap(fg.grad(apply))(fg.numpy.asarray(x))), (1 + np.abs(x)) ** -2.0
            )
        with fg.default_device("cpu"):
            got = np.asarray(fg.jit(apply)(fg.numpy.asarray(x)))
            np.testing.assert_allclose(got, x / (1 + np.abs(x)), rtol=1e-6)
    finally:
        REGISTRY.pop("softsign", None)
