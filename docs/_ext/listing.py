"""The directive ``listing``: a module and names of it become a table with links, then each one's documentation.

    .. listing:: funcgrad.random

       key split fold_in
       newaxis: what has no docstring of its own is documented here

With the option ``same-as`` the names are aliases of another module's, and become links.  ``tests/test_docs.py`` reads
the same directives to tell which public names no page shows.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOGGER = logging.getLogger(__name__)
SELF_EXPLAINING = (int, float, bool, str, type(None), types.GenericAlias)


def resolve(module: str, name: str) -> Any:
    """Return what a listed name stands for; the listing's module may be an object with attributes, too."""
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        outer, _, inner = module.rpartition(".")
        return getattr(getattr(importlib.import_module(outer), inner), name)


def exists(module: str, name: str) -> bool:
    """Whether there is such a name."""
    try:
        resolve(module, name)
    except AttributeError:
        return False
    return True


def read(content: list[str]) -> dict[str, str]:
    """Return the names of a listing; a line ``name: text`` documents what has no docstring."""
    names: dict[str, str] = {}
    for line in content:
        name, colon, text = line.partition(": ")
        names.update({name.strip(): text.strip()} if colon else dict.fromkeys(line.split(), ""))
    return names


def data(name: str, found: Any, text: str) -> list[str]:
    """Return the lines that document a constant or an instance."""
    value = [f"   :value: {found!r}"] if isinstance(found, (int, float)) and not isinstance(found, bool) else []
    if not text and hasattr(found, "__name__"):
        text = f"numpy's ``{found.__name__}``."
    if not text and not isinstance(found, SELF_EXPLAINING):
        text = inspect.getdoc(found) or ""
    return [f".. py:data:: {name}", *value, "", *["   " + line for line in text.splitlines()], ""]


def entry(module: str, name: str, text: str) -> list[str]:
    """Return the lines that document one name."""
    found = resolve(module, name)
    if text or getattr(found, "__module__", "").partition(".")[0] not in ("funcgrad", ""):
        return data(name, found, text)
    if isinstance(found, type) and issubclass(found, BaseException):
        return [f".. autoexception:: {name}", ""]
    if isinstance(found, type):
        return [f".. autoclass:: {name}", "   :members:", ""]
    if not (callable(found) and hasattr(found, "__name__")):
        return data(name, found, text)
    if module not in sys.modules:
        head = f".. py:function:: {module.rpartition('.')[2]}.{name}{inspect.signature(found)}"
        return [head, "", *["   " + line for line in (inspect.getdoc(found) or "").splitlines()], ""]
    return [f".. autofunction:: {name}", ""]


def alias(module: str, name: str, where: str) -> str:
    """Return the line that links a name to the place where the same object is documented."""
    there, found = vars(importlib.import_module(where)), resolve(module, name)
    own = name if name in there else next(n for n, v in there.items() if v is found and n[0] != "_")
    return f"* ``{name}``: :obj:`{where}.{own}`"


class Listing(SphinxDirective):
    """See the module."""

    has_content = True
    required_arguments = 1
    option_spec = {"same-as": directives.unchanged, "inherited": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Return the table and the entries."""
        module, names = self.arguments[0], read(list(self.content))
        for name in [n for n in names if not exists(module, n)]:
            LOGGER.warning("%s has no %s", module, name, location=self.get_location())
            del names[name]
        if "same-as" in self.options:
            lines = [alias(module, name, self.options["same-as"]) for name in names]
            return self.parse_text_to_nodes("\n".join(lines))
        entries = [line for name, text in names.items() for line in entry(module, name, text)]
        if "inherited" in self.options:
            entries = [line.replace(":members:", ":members:\n   :inherited-members:") for line in entries]
        in_module = module in sys.modules
        lines = [f".. currentmodule:: {module if in_module else module.rpartition('.')[0]}", ""]
        if in_module and len(names) > 1:
            shown = [name for name, text in names.items() if not text]
            lines += [".. autosummary::", "   :nosignatures:", "", *[f"   {name}" for name in shown], ""]
        return self.parse_text_to_nodes("\n".join(lines + entries), allow_section_headings=True)


def setup(app: Any) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("listing", Listing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
