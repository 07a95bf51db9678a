"""The documentation site: `make docs` builds it, every warning an error, without a network."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from sphinx import addnodes
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent / "_ext")]

project = "funcgrad"
author = "The funcgrad authors"
copyright = "2026, " + author
release = re.findall(r'__version__ = "(.*)"', (ROOT / "funcgrad" / "__init__.py").read_text())[0]
version = release

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "myst_nb", "listing", "mathml"]
exclude_patterns = ["_ext", "**/.ipynb_checkpoints"]
nitpicky = False
suppress_warnings = ["mystnb.unknown_mime_type"]

# -- docstrings: reStructuredText, examples as doctests -----------------------------------------------------------
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autosummary_generate = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
add_module_names = False
toc_object_entries = False

# -- guides: Markdown; notebooks are shown as they were committed --------------------------------------------------
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_merge_streams = True

# -- the look: nothing is fetched from elsewhere, neither fonts nor scripts ----------------------------------------
html_theme = "furo"
html_title = f"funcgrad {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "friendly"
pygments_dark_style = "monokai"


def show_notebooks() -> None:
    """Put the notebooks where Sphinx sees them, a copy of each that has changed."""
    wanted = {p.name: p for p in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    here = Path(__file__).parent / "notebooks"
    here.mkdir(exist_ok=True)
    for page in here.glob("*.ipynb"):
        if page.name not in wanted:
            page.unlink()
    for name, notebook in wanted.items():
        if not (here / name).exists() or (here / name).read_bytes() != notebook.read_bytes():
            shutil.copyfile(notebook, here / name)


def links_to_files(app: Any, path: Path, parent: str, content: list[str]) -> None:
    """In a page from elsewhere in the repository, point links to pages here, and show other files as their names."""
    here = Path(__file__).parent
    folder = (here / path).resolve().parent

    def link(m: re.Match[str]) -> str:
        target = (folder / m[2]).resolve()
        if target.is_relative_to(here):
            return f"{m[1]}({'/' + target.relative_to(here).as_posix()})"
        return f"`{target.relative_to(ROOT.resolve()).as_posix()}`" if target.is_relative_to(ROOT.resolve()) else m[0]

    for i, text in enumerate(content):
        content[i] = re.sub(r"(?<!!)(\[[^\]]*\])\(((?!https?:|#)[^)\s]+)\)", link, text)


def skip_member(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what only a named tuple's machinery says about its fields."""
    doc = getattr(obj, "__doc__", None) or ""
    return True if doc.startswith("Alias for field number") else None


def shorter_signature(app: Any, what: str, name: str, obj: Any, options: Any, args: str | None, result: str) -> Any:
    """Leave out types that say nothing."""
    if args is not None:
        args = re.sub(r"(\w): (?:~?typing\.)?Any = ", r"\1=", args)
        args = re.sub(r"(\w): (?:~?typing\.)?Any(?=,|\))", r"\1", args)
    return args, None if result in ("Any", "~typing.Any", "typing.Any", "None") else result


def plain_builtins(app: Any, doctree: Any) -> None:
    """In a signature ``bool`` and ``float`` are Python's, not links to numpy's names here."""
    for node in list(doctree.findall(addnodes.pending_xref)):
        if node.get("refdomain") == "py" and node["reftarget"] in ("bool", "float", "int", "str"):
            node.replace_self(addnodes.desc_sig_name(node["reftarget"], node["reftarget"]))


def fetches_nothing(app: Any, exception: Exception | None) -> None:
    """Warn of pages that would fetch a script, a style or a picture from elsewhere."""
    resource = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(https?:[^\"]*)\"")
    for page in sorted(Path(app.outdir).rglob("*.html")):
        for url in resource.findall(page.read_text()):
            LOGGER.warning("%s fetches %s", page.name, url)


def setup(app: Any) -> None:
    """Connect what is above."""
    show_notebooks()
    app.connect("include-read", links_to_files)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-signature", shorter_signature)
    app.connect("doctree-read", plain_builtins)
    app.connect("build-finished", fetches_nothing)
