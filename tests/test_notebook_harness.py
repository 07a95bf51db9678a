"""notebooks/run.py refuses what it says it refuses; needs what make notebooks installs, and runs there."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

SCRIPT = Path(__file__).parent.parent / "notebooks" / "run.py"
GOOD = ["import funcgrad as fg\nf = fg.jit(lambda x: x * 2.0)", "# rerun\nassert f(3.0) == 6.0", "print('six')"]
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="an installed copy has no notebooks")


@pytest.fixture(scope="module")
def harness() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUNCGRAD_PLATFORMS", "cpu")
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")


def written(path: Path, sources: list[str]) -> Path:
    """A notebook of these cells; one that starts with a comment of tags has these."""
    cells = [nbformat.v4.new_markdown_cell("# A notebook")]
    for source in sources:
        cells.append(nbformat.v4.new_code_cell(source))
        cells[-1].metadata["tags"] = [t for t in ("rerun", "once") if source.startswith(f"# {t}")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_a_good_notebook_passes_and_keeps_its_outputs(harness: dict[str, Any], tmp_path: Path) -> None:
    notebook, line = harness["execute"](written(tmp_path / "good.ipynb", GOOD))
    tidied = harness["tidy"](notebook)
    assert [c.source for c in tidied.cells[1:]] == GOOD and tidied.cells[0].cell_type == "markdown"
    assert tidied.cells[3].outputs[0].text == "six\n" and "1 cells did not trace again" in line
    assert [c.execution_count for c in tidied.cells[1:]] == [1, 2, 3]
    nbformat.validate(tidied)


BAD = {
    "an exception": (["assert 1 == 2"], "first run: a cell failed"),
    "a warning": (["assert True\nimport warnings\nwarnings.warn('careful')"], "wrote to stderr: .*careful"),
    "a path": (["assert True\nprint('/home/somebody/data')"], "shows a path of the machine: /home/somebody"),
    "an address": (["assert True\nobject()"], "shows an address"),
    "no assertion": (["print(1)"], "no cell asserts"),
    "a retrace": ([*GOOD, "# rerun\nfg.jit(lambda x: x + 1.0)(1.0)"], "tagged rerun again traced 1 functions"),
    "a use of a fresh kernel": (["assert 'x' not in globals()\nx = 1"], "second run in the same kernel: a cell failed"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_notebook_fails(harness: dict[str, Any], tmp_path: Path, what: str) -> None:
    sources, reason = BAD[what]
    with pytest.raises(harness["Failure"], match=reason):
        harness["execute"](written(tmp_path / "bad.ipynb", sources))


def test_a_cell_tagged_once_runs_once(harness: dict[str, Any], tmp_path: Path) -> None:
    harness["execute"](written(tmp_path / "once.ipynb", ["# once\nassert 'x' not in globals()\nx = 1"]))
