"""The notebooks as they are committed: well formed, with outputs, no errors, no paths.  `make notebooks` runs them."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import nbformat
import pytest

from funcgrad.errors import Site

FOLDER = Path(__file__).parent.parent / "notebooks"
FILES = sorted(FOLDER.glob("*.ipynb"))
PATHS = re.compile(r"(?<![\w.:/-])/(?:home|root|tmp|usr|opt|var|work|mnt|Users|private|builds)/[\w.-]+")

pytestmark = pytest.mark.skipif(not FILES, reason="an installed copy has no notebooks")


def code_cells(path: Path) -> list[Any]:
    """The cells of code that have something in them."""
    cells = nbformat.read(path, as_version=4).cells
    return [c for c in cells if c.cell_type == "code" and c.source.strip()]


def shown(cell: Any) -> str:
    """The text of a cell's outputs."""
    parts = [out.get("text", "") for out in cell.outputs]
    parts += [v for out in cell.outputs for k, v in out.get("data", {}).items() if k.startswith("text/")]
    return "\n".join(["".join(p) for p in parts])


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_well_formed(path: Path) -> None:
    nbformat.validate(json.loads(path.read_text("utf-8")))
    notebook = nbformat.read(path, as_version=4)
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    assert path.stat().st_size < 1_000_000
    tags = {t for c in notebook.cells for t in c.metadata.get("tags", [])}
    assert tags <= {"rerun", "once"} and "rerun" in tags


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_has_run_from_top_to_bottom(path: Path) -> None:
    cells = code_cells(path)
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))
    assert any(c.outputs for c in cells) and any("assert" in c.source for c in cells)
    kinds = [(out.output_type, out.get("name")) for c in cells for out in c.outputs]
    assert not any(kind == "error" or name == "stderr" for kind, name in kinds)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_shows_nothing_of_the_machine_it_ran_on(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    said = [c.source for c in notebook.cells] + [shown(c) for c in code_cells(path)]
    assert not [match.group() for text in said for match in PATHS.finditer(text)]
    assert not [text for text in said if re.search(r"\bat 0x[0-9a-f]{6,}", text)]
    assert set(notebook.metadata.language_info) == {"name"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    text = "\n".join([c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown"])
    targets = [t for t in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in t]
    assert not [t for t in targets if not (FOLDER / t).exists()]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_pictures_are_pictures(path: Path) -> None:
    data = [out.data["image/png"] for c in code_cells(path) for out in c.outputs if "image/png" in out.get("data", {})]
    assert data
    for text in data:
        png = base64.b64decode(text)
        width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
        assert png.startswith(b"\x89PNG") and 200 <= width <= 1600 and 100 <= height <= 1600


def test_code_is_clean() -> None:
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, str(FOLDER)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_messages_name_a_cell_as_the_notebook_does(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {"ipykernel_12/34567.py": ("Cell", "In[3]")}  # what IPython's compiler answers for its own files
    shell = types.SimpleNamespace(compile=types.SimpleNamespace(format_code_name=cells.get))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert str(Site("ipykernel_12/34567.py", 2, "loss")) == "In[3]:2 (loss)"
    assert str(Site("folder/model.py", 2, "loss")) == "model.py:2 (loss)"
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert str(Site("ipykernel_12/34567.py", 2, "loss")) == "34567.py:2 (loss)"
