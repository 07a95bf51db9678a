"""What every doctest may use without an import: np, fg, fnp, lax and the transformations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax


@pytest.fixture(autouse=True)
def _namespace(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(np=np, fg=fg, fnp=fnp, lax=lax, asarray=fnp.asarray)
    doctest_namespace.update({f.__name__: f for f in (fg.checkpoint, fg.grad, fg.jit, fg.vmap)})
