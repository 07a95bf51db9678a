"""Run every notebook of this folder in a clean kernel and check it; ``--write`` keeps the outputs in the files.

    python notebooks/run.py                 # all of them, as make notebooks does
    python notebooks/run.py 02 05 --write   # two of them, and write their outputs

For each notebook, in a kernel of its own and an empty working directory:

1. Every cell runs, in order.  An exception, an assertion of the notebook, a warning or anything else on stderr is a
   failure, as are more than five minutes, a notebook without assertions, a path of the machine in an output, and more
   than a megabyte.
2. The cells tagged ``rerun`` run once more, the last first, and must not trace any function again.
3. Every cell runs a second time in the same kernel, except those tagged ``once``: nothing may depend on a fresh kernel.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from time import perf_counter
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).parent
LIMIT_SECONDS = 300
LIMIT_BYTES = 1_000_000
PATHS = re.compile(r"(?<![\w.:/-])/(?:home|root|tmp|usr|opt|var|work|mnt|Users|private|builds)/[\w.-]+")
ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")
COUNT_TRACES = "import funcgrad.debug as _debug; print(_debug.ledger().traces)"


class Failure(Exception):
    """A notebook that is not as it should be."""


def code_cells(notebook: Any, without: str = "") -> list[Any]:
    """The cells of code that have something in them, but for those with a tag."""
    tagged = [c for c in notebook.cells if without and without in c.metadata.get("tags", [])]
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip() and c not in tagged]


def texts(cell: Any) -> Iterator[str]:
    """What a cell's outputs say, pictures left out."""
    for out in cell.outputs:
        yield out.get("text", "")
        yield from [v for k, v in out.get("data", {}).items() if k.startswith("text/")]


def problems(notebook: Any) -> list[str]:
    """What is wrong with the outputs of a notebook that ran."""
    found = []
    for number, cell in enumerate(code_cells(notebook), 1):
        said = "\n".join(["".join(t) for t in texts(cell)])
        for pattern, what in ((PATHS, "a path"), (ADDRESS, "an address")):
            if match := pattern.search(said):
                found.append(f"cell {number} shows {what} of the machine: {match.group()}")
        for out in cell.outputs:
            if out.output_type == "error":
                found.append(f"cell {number} raised {out.ename}")
            if out.output_type == "stream" and out.name == "stderr":
                found.append(f"cell {number} wrote to stderr: {out.text.strip()[:400]}")
    if not any("assert" in c.source for c in code_cells(notebook)):
        found.append("no cell asserts what the notebook shows")
    size = len(nbformat.writes(notebook))
    if size > LIMIT_BYTES:
        found.append(f"{size:,} bytes with outputs, more than {LIMIT_BYTES:,}")
    return found


class Kernel:
    """A clean kernel, and what runs in it."""

    def __init__(self, directory: Path):
        (directory / "work").mkdir()
        self.client = NotebookClient(
            nbformat.v4.new_notebook(),
            timeout=LIMIT_SECONDS,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(directory / "work")}},
        )
        if os.name == "posix":  # a file rather than a port that others on the machine could reach
            manager = self.client.create_kernel_manager()
            manager.transport, manager.ip = "ipc", str(directory / "socket")

    def run(self, notebook: Any, cells: Sequence[Any], what: str) -> float:
        """Run cells of a notebook and return the seconds; Failure says which one failed, and how."""
        started = perf_counter()
        self.client.nb = notebook  # where the client puts a cell, and looks for displays to update
        for cell in cells:
            index = next(i for i, c in enumerate(notebook.cells) if c is cell)
            try:
                self.client.execute_cell(cell, index)
            except CellExecutionError as e:
                raise Failure(f"{what}: a cell failed:\n{cell.source}\n{e.ename}: {e.evalue}") from None
        return perf_counter() - started

    def traces(self) -> int:
        """How many functions were traced in the kernel so far."""
        probe = nbformat.v4.new_code_cell(COUNT_TRACES)
        self.run(nbformat.v4.new_notebook(cells=[probe]), [probe], "counting traces")
        return int(probe.outputs[0].text)


def execute(path: Path) -> tuple[Any, str]:
    """Run a notebook as this file's description says; return it with its outputs, and a line about its times."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    with tempfile.TemporaryDirectory() as directory:
        kernel = Kernel(Path(directory))
        with kernel.client.setup_kernel():
            for cell in code_cells(notebook):
                cell.outputs, cell.execution_count = [], None
            first = kernel.run(notebook, code_cells(notebook), "first run")
            if found := problems(notebook):
                raise Failure("; ".join(found))
            if first > LIMIT_SECONDS:
                raise Failure(f"took {first:.0f} s, more than {LIMIT_SECONDS}")
            copy = deepcopy(notebook)  # what runs again keeps its outputs to itself
            again = [c for c in code_cells(copy) if "rerun" in c.metadata.get("tags", [])]
            before = kernel.traces()
            kernel.run(copy, again[::-1], "running the cells tagged rerun again, the last first")
            if (traced := kernel.traces() - before) != 0:
                raise Failure(f"running the {len(again)} cells tagged rerun again traced {traced} functions")
            second = kernel.run(copy, code_cells(copy, without="once"), "second run in the same kernel")
    return notebook, f"{first:6.1f} s, again {second:6.1f} s; {len(again)} cells did not trace again"


def tidy(notebook: Any) -> Any:
    """Leave out what differs from machine to machine, and number the cells in order."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i:02d}"
        cell.metadata = {k: v for k, v in cell.metadata.items() if k == "tags" and v}
    for number, cell in enumerate(code_cells(notebook), 1):
        cell.execution_count = number
        for out in cell.outputs:
            if out.output_type == "execute_result":
                out.execution_count = number
    return notebook


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name; return the number of notebooks that failed."""
    parser = argparse.ArgumentParser(description="Run the notebooks in clean kernels and check them.")
    parser.add_argument("names", nargs="*", help="the start of a notebook's name, such as 02; default: all")
    parser.add_argument("--write", action="store_true", help="keep the outputs in the notebooks")
    options = parser.parse_args(arguments)
    paths = [p for p in sorted(HERE.glob("*.ipynb")) if not options.names or p.name.startswith(tuple(options.names))]
    if not paths:
        parser.error(f"no notebook starts with {' or '.join(options.names) or 'anything'}")
    os.environ.setdefault("FUNCGRAD_PLATFORMS", "cpu")  # the device that every machine has
    os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # keeps the kernel's debugger from writing to stderr
    failed, started = 0, perf_counter()
    for path in paths:
        try:
            notebook, line = execute(path)
        except Failure as e:
            failed += 1
            print(f"FAILED {path.name}: {e}", flush=True)
            continue
        print(f"passed {path.name}: {line}", flush=True)
        if options.write:
            nbformat.write(tidy(notebook), path)
    print(f"{len(paths) - failed} of {len(paths)} notebooks passed in {perf_counter() - started:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(main() > 0)
