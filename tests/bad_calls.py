"""Calling what must fail, and looking at the error."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def check(
    call: Callable[[], Any], error: type[Exception], *parts: str, line: int | None = None, way_out: bool = True
) -> str:
    """Call, and look at the error: its type, what its message says, and that it points to the line of the call."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error, type(caught.value)
    text = str(caught.value)
    for part in parts:
        assert part in text, text
    assert not way_out or "\n  way out: " in text, text
    place = re.search(r"\n  at (\S+):(\d+) \(\S+\)$", text)
    assert place is not None and place[1] == Path(inspect.getfile(call)).name, text
    first = inspect.getsourcelines(call)[1]
    last = first + len(inspect.getsourcelines(call)[0])
    assert int(place[2]) == line if line is not None else first <= int(place[2]) <= last, text
    return text
