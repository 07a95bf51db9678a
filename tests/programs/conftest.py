"""The programs run on every device in one process: each run traces its own functions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import funcgrad as fg


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Forget what was traced for another device, which would be a retrace and its warning."""
    fg.clear_caches()
    yield
