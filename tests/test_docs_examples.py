"""Every Python block of the documentation runs, and what it shows is what it prints."""

from __future__ import annotations

import doctest
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import funcgrad as fg
from funcgrad import errors, primitive

DOCS = Path(__file__).parent.parent / "docs"
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.M | re.S)
# What may stand in a page without being run: commands, output, files, and MyST's directives.
NOT_RUN = ("sh", "text", "html")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PAGES = sorted(p for p in DOCS.rglob("*.md") if "```python" in p.read_text())
CHECKER = doctest.OutputChecker()


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line of its first line."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text()
    return [Block(m[1].strip(), m[2], text[: m.start(2)].count("\n")) for m in FENCE.finditer(text)]


def run(block: Block, names: dict[str, Any], page: str) -> None:
    """Run a block: a session is compared with what it shows; a program just runs."""
    if ">>> " not in block.text:
        exec(compile("\n" * block.line + block.text, page, "exec", dont_inherit=True), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, page, page, block.line)
    runner, out = doctest.DocTestRunner(CHECKER, verbose=False, optionflags=FLAGS), io.StringIO()
    failed = runner.run(test, out=out.write, clear_globs=False).failed
    names.update(test.globs)
    assert not failed, out.getvalue()


@pytest.mark.ggml
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(DOCS).as_posix())
def test_the_examples_of_a_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(primitive, "REGISTRY", dict(primitive.REGISTRY))  # a page may define primitives
    names: dict[str, Any] = {"__name__": "page"}
    with fg.default_device("cpu"):
        for block in blocks(page):
            if block.language == "python":
                run(block, names, page.name)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: p.relative_to(DOCS).as_posix())
def test_blocks_are_run_or_say_what_they_are(page: Path) -> None:
    for block in blocks(page):
        assert block.language in ("python", *NOT_RUN) or block.language.startswith("{"), (page, block)


def test_a_wrong_output_is_seen() -> None:
    with pytest.raises(AssertionError, match="Expected"):
        run(Block("python", ">>> 1 + 1\n3\n", 0), {}, "page")
    with pytest.raises(ZeroDivisionError):
        run(Block("python", "1 / 0\n", 0), {}, "page")


# -- the page of errors ------------------------------------------------------------------------------------------
SECTIONS = dict(re.findall(r"^## `?(\w+)`?\n(.*?)(?=^## |\Z)", (DOCS / "errors.md").read_text(), re.M | re.S))


@pytest.mark.parametrize("name", [n for n in errors.__all__ if n not in ("FuncgradError",)])
def test_every_error_has_a_before_that_raises_and_an_after(name: str) -> None:
    section = SECTIONS[name]
    before, _, after = section.partition("After:")
    assert re.search(rf"Traceback \(most recent call last\):\n    \.\.\.\nfuncgrad\.errors\.{name}: ", before), name
    shown = [text for language, text in FENCE.findall(after) if language == "python"]
    assert shown and "Traceback" not in shown[0], name
