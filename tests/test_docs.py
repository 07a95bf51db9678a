"""The reference pages list every public name and no other; every public name has a docstring."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import funcgrad as fg

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
LISTING = re.compile(r"^\.\. listing:: (\S+)\n((?: {3}\S.*\n|\n)*)", re.M)
# A public object without a docstring of its own needs a line of text in its listing.
SELF_EXPLAINING = (int, float, bool, str, type(None), types.GenericAlias)


def listed() -> dict[str, dict[str, str]]:
    """Name and text by module, of all the directives of all the pages."""
    found: dict[str, dict[str, str]] = {}
    for page in sorted(REFERENCE.rglob("*.rst")):
        for module, body in LISTING.findall(page.read_text() + "\n"):
            names = found.setdefault(module, {})
            for line in body.splitlines():
                name, colon, text = line.strip().partition(": ")
                if line.strip().startswith(":"):
                    continue
                names.update({name: text} if colon else dict.fromkeys(line.split(), ""))
    return found


def namespaces() -> dict[str, list[str]]:
    """The public names that are no modules, by module: what ``__all__`` reaches from the top, and ``testing``."""
    found: dict[str, list[str]] = {}
    todo = [fg, importlib.import_module("funcgrad.testing")]
    while todo:
        module = todo.pop()
        if module.__name__ in found:
            continue
        found[module.__name__] = names = []
        for name in getattr(module, "__all__", [n for n in vars(module) if n.startswith("tree_")]):
            value = getattr(module, name)
            if isinstance(value, types.ModuleType):
                todo.append(value)
            elif isinstance(value, types.SimpleNamespace):
                found[f"{module.__name__}.{name}"] = list(vars(value))
            else:
                names.append(name)
    return found


LISTED, PUBLIC = listed(), namespaces()


def resolve(module: str, name: str) -> Any:
    """The object of a name; a module may be an object with attributes, too."""
    value: Any = fg
    for part in module.split(".")[1:]:
        value = getattr(value, part, None) or importlib.import_module(f"{value.__name__}.{part}")
    return getattr(value, name)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_on_a_reference_page(module: str) -> None:
    missing = sorted(set(PUBLIC[module]) - set(LISTED.get(module, {})))
    assert not missing, f"add these to a `.. listing:: {module}` in docs/reference/: {' '.join(missing)}"


@pytest.mark.parametrize("module", LISTED)
def test_no_page_lists_what_is_not_there(module: str) -> None:
    for name in LISTED[module]:
        resolve(module, name)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_a_docstring(module: str) -> None:
    bare = []
    for name in PUBLIC[module]:
        value = resolve(module, name)
        own = "" if isinstance(value, SELF_EXPLAINING) else inspect.getdoc(value)
        if not (own or LISTED[module].get(name)):
            bare.append(name)
    assert not bare, f"{module}: no docstring, and no text in the listing: {bare}"


# Without matplotlib there is nothing to show.
WITHOUT_EXAMPLE = {"plot_memory"}


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_function_has_an_example(module: str) -> None:
    bare = []
    for name in PUBLIC[module]:
        value = resolve(module, name)
        own = str(getattr(value, "__module__", "")).startswith("funcgrad") and not isinstance(value, type)
        if own and callable(value) and ">>> " not in (inspect.getdoc(value) or "") and name not in WITHOUT_EXAMPLE:
            bare.append(name)
    assert not bare, f"{module}: no example in the docstring of {' '.join(bare)}"


@pytest.mark.parametrize("module", PUBLIC)
def test_docstrings_start_with_a_sentence(module: str) -> None:
    """The first paragraph, which the tables show, ends like a sentence."""
    odd = []
    for name in PUBLIC[module]:
        value = resolve(module, name)
        if not str(getattr(value, "__module__", "")).startswith("funcgrad") or isinstance(value, SELF_EXPLAINING):
            continue
        first = (inspect.getdoc(value) or "").split("\n\n")[0].rstrip()
        if first and first[-1] not in ".:)`":
            odd.append(name)
    assert not odd, f"{module}: {odd}"


def test_a_missing_name_would_be_seen() -> None:
    assert "grad" in PUBLIC["funcgrad"] and "grad" in LISTED["funcgrad"]
    assert len(PUBLIC["funcgrad.numpy"]) > 350 and "dots_saveable" in PUBLIC["funcgrad.checkpoint_policies"]


def test_public_names_are_themselves_in_every_order_of_imports() -> None:
    """A module of the name of a function would take its place in the package when it is imported."""
    program = (
        "import pkgutil, importlib, types, funcgrad as fg\n"
        "before = {n: getattr(fg, n) for n in fg.__all__}\n"
        "for m in pkgutil.iter_modules(fg.__path__):\n"
        "    if m.name not in ('__main__', 'demo'): importlib.import_module('funcgrad.' + m.name)\n"
        "assert all(getattr(fg, n) is v for n, v in before.items())\n"
        "names = [m.name for m in pkgutil.iter_modules(fg.__path__)]\n"
        "assert all(isinstance(before[n], types.ModuleType) for n in names if n in before)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=REFERENCE.parent.parent)
