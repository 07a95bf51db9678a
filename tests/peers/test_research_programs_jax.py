"""Research programs written for JAX, their imports changed and nothing else: the first steps are JAX's.

The programs in ``research/`` have ``init() -> state``, ``step(state, i) -> (state, metrics)``, some ``extra(state)``.
Later steps drift apart as two runs of JAX do whose parameters differ in the last bit.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import funcgrad as fg

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
PROGRAMS = sorted((Path(__file__).parent / "research").glob("*.py"))
STEPS = 3
IMPORTS = [
    (r"^import jax\.numpy as jnp$", "import funcgrad.numpy as jnp"),
    (r"^import jax\.(\S+) as", r"import funcgrad.\1 as"),
    (r"^import jax$", "import funcgrad as jax"),
    (r"^from jax\b", "from funcgrad"),
    (r"^import optax$", "import funcgrad.optim as optax"),
]


def results(path: Path, library: Any) -> list[list[Any]]:
    """The metrics of each step, then the state, then what is computed from it."""
    text = path.read_text()
    if library is fg:
        for pattern, new in IMPORTS:
            text = re.sub(pattern, new, text, flags=re.MULTILINE)
        assert not re.search(r"^\s*(import|from) (jax|optax)\b", text, re.MULTILINE)
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, str(path), "exec", dont_inherit=True), names)
    state, out = names["init"](), []
    for i in range(STEPS):
        state, metrics = names["step"](state, i)
        out.append(metrics)
    out += [state, names["extra"](state) if "extra" in names else []]
    return [[np.asarray(x) for x in library.tree.leaves(o)] for o in out]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_the_first_steps_are_jaxs(path: Path) -> None:
    for got, want in zip(results(path, fg), results(path, jax), strict=True):
        assert [(g.shape, g.dtype.kind) for g in got] == [(w.shape, w.dtype.kind) for w in want]
        for g, w in zip(got, want, strict=True):
            scale = np.abs(w[np.isfinite(w)].astype(float)).max(initial=0.0)
            np.testing.assert_allclose(g.astype(float), w.astype(float), rtol=1e-3, atol=2e-4 * max(scale, 1e-3))
