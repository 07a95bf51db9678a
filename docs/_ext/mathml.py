"""Formulas as MathML, which browsers draw themselves: no script and no font to fetch."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


def _mathml(self: Any, node: Any, display: str) -> str:
    source = node.astext()
    try:
        return str(convert(source, display=display))
    except Exception as e:
        LOGGER.warning("cannot read the formula %r: %s", source, e, location=node)
        return f"<code>{self.encode(source)}</code>"


def visit_inline(self: Any, node: Any) -> None:
    """Write a formula within a line."""
    self.body.append(_mathml(self, node, "inline"))
    raise nodes.SkipNode


def visit_block(self: Any, node: Any) -> None:
    """Write a formula on lines of its own."""
    self.body.append(f'<div class="math">{_mathml(self, node, "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Make this a renderer of formulas."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
