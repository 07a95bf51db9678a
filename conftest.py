"""What every doctest may use without an import: np, fg and fnp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
import funcgrad.operators


@pytest.fixture(autouse=True)
def _namespace(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(np=np, fg=fg, fnp=fnp)


assert funcgrad.operators
