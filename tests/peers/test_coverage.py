"""docs/coverage.md is complete and current: each public name of JAX is here or has a reason; nine of ten are here."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from jax_names import MAIN, PAGE, TABLES, Table, counted, page, public

every = pytest.mark.parametrize("table", TABLES, ids=[t.title for t in TABLES])
# Another version of JAX has other names; the page says of which version it speaks.
same_version = pytest.mark.skipif(
    f"JAX {jax.__version__}:" not in PAGE.read_text(), reason="docs/coverage.md is about another version of JAX"
)


@same_version
@every
def test_every_name_is_here_or_has_a_reason(table: Table) -> None:
    absent = {n for n in public(table.theirs) if not hasattr(table.ours, n)}
    assert sorted(absent - set(table.instead) - set(table.missing)) == []


@every
def test_reasons_are_about_what_is_not_here(table: Table) -> None:
    assert sorted(n for n in (*table.instead, *table.missing) if hasattr(table.ours, n)) == []
    assert not set(table.instead) & set(table.missing)
    assert sorted(n for n in table.here if not hasattr(table.ours, n)) == []


@same_version
@pytest.mark.parametrize("table", MAIN, ids=[t.title for t in MAIN])
def test_nine_of_ten_names_that_make_sense_are_here(table: Table) -> None:
    total, here, instead = counted(table)
    assert here + instead >= 0.97 * total
    assert here >= (0.65 if table.title == "jax" else 0.9) * total


def test_nine_of_ten_in_all() -> None:
    counts = [counted(t) for t in MAIN]
    assert sum(c[1] for c in counts) >= 0.9 * sum(c[0] for c in counts)


@same_version
def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page()


@every
def test_parameters_of_what_is_here_are_jaxs(table: Table) -> None:
    """The leading positional parameters have JAX's names or are positional only, so that calls carry over."""
    wrong = []
    for name in public(table.theirs):
        theirs, ours = getattr(table.theirs, name), getattr(table.ours, name, None)
        if ours is None or isinstance(theirs, type) or not callable(theirs) or not callable(ours):
            continue
        try:
            a, b = inspect.signature(theirs).parameters.values(), inspect.signature(ours).parameters.values()
        except (TypeError, ValueError):
            continue
        if any(p.kind is p.VAR_POSITIONAL for p in (*a, *b)):
            continue
        wanted = [p for p in a if p.kind is not p.KEYWORD_ONLY and p.default is p.empty]
        found = [p for p in b if p.kind is not p.KEYWORD_ONLY]
        if len(found) < len(wanted):
            wrong.append(f"{name}: {len(found)} for {len(wanted)}")
    assert wrong == []
