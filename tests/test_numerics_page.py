"""docs/numerics.md says what the code does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import dtypes, nn

PAGE = (Path(__file__).parent.parent / "docs" / "numerics.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    lines = PAGE.split(f"## {heading}\n")[1].splitlines()
    rows = [line for line in lines if line.startswith("|")]
    return [[cell.strip().strip("*") for cell in row.strip("|").split("|")] for row in rows]


def test_promotion_table() -> None:
    head, _, *rows = table("Promotion")
    for name, *found in rows[: len(head) - 1]:
        for other, result in zip(head[1:], found, strict=True):
            first, second, wanted = [dtypes.as_dtype(n) for n in (name, other, result)]
            assert dtypes.promote(first, second) == wanted, (name, other)
            if dtypes.float64 not in (first, second):
                x, y = fnp.ones(2, dtype=first), fnp.ones(2, dtype=second)
                assert fnp.add(x, y).dtype == wanted if name != "bool" or other != "bool" else True


DERIVATIVES: list[tuple[str, Callable[[], Any], Any]] = [
    ("relu", lambda: fg.grad(nn.relu)(0.0), 0),
    ("abs", lambda: fg.grad(fnp.abs)(0.0), 0),
    ("sign", lambda: fg.grad(fnp.sign)(0.0), 0),
    ("hypot", lambda: fnp.stack(fg.grad(fnp.hypot, (0, 1))(0.0, 0.0)), 0),
    ("arctan2", lambda: fnp.stack(fg.grad(fnp.arctan2, (0, 1))(0.0, 0.0)), 0),
    ("maximum", lambda: fnp.stack(fg.grad(fnp.maximum, (0, 1))(1.0, 1.0)), 0.5),
    ("minimum", lambda: fnp.stack(fg.grad(fnp.minimum, (0, 1))(1.0, 1.0)), 0.5),
    ("max", lambda: fg.grad(fnp.max)(fnp.asarray([2.0, 2.0, 1.0])), [0.5, 0.5, 0]),
    ("min", lambda: fg.grad(fnp.min)(fnp.asarray([1.0, 2.0, 1.0])), [0.5, 0, 0.5]),
    (
        "clip",
        lambda: fg.vmap(fg.grad(lambda v: fnp.clip(v, 0.0, 1.0)))(fnp.asarray([-1, 0, 0.5, 1, 2])),
        [0, 0, 1, 0, 0],
    ),
    ("sqrt", lambda: fg.grad(fnp.sqrt)(0.0), np.inf),
    ("linalg.norm", lambda: fg.grad(fnp.linalg.norm)(fnp.zeros(2)), 0),
    ("safe_norm", lambda: fg.grad(fnp.safe_norm)(fnp.zeros(2)), 0),
    ("logsumexp", lambda: fg.grad(nn.logsumexp)(fnp.full(2, -fnp.inf)), 0),
    ("sort", lambda: fg.grad(lambda v: fnp.sort(v) @ fnp.asarray([0.0, 1.0, 2.0]))(fnp.ones(3)), [0, 1, 2]),
]


@pytest.mark.parametrize(("name", "derivative", "want"), DERIVATIVES, ids=[d[0] for d in DERIVATIVES])
def test_derivative(name: str, derivative: Callable[[], Any], want: Any, device: str) -> None:
    assert f"`{name}`" in PAGE
    got = np.asarray(derivative())
    np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape))


def test_masked_softmax(device: str) -> None:
    mask = fnp.asarray([[False, False], [True, False]])
    f = lambda x: nn.softmax(x, where=mask)
    x = fnp.asarray([[1.0, 2.0], [3.0, np.nan]])
    np.testing.assert_array_equal(f(x), [[0, 0], [1, 0]])
    np.testing.assert_array_equal(fg.grad(lambda v: (f(v) * v[0]).sum())(fnp.ones((2, 2)))[0], [1, 0])


def test_integers(device: str) -> None:
    assert int(fnp.asarray(7) // 0) == -1 and int(fnp.asarray(7) % 0) == 7
    assert int(fnp.asarray(7, dtype="uint32") // 0) == 2**32 - 1
    assert int(fnp.asarray(2**31 - 1) + 1) == -(2**31)
    with pytest.raises(OverflowError):
        fnp.asarray(2**31)


def test_indices(device: str) -> None:
    x = fnp.asarray([0.0, 1.0, 2.0])
    assert [float(fg.jit(lambda i: x[i])(fnp.asarray(i))) for i in (7, -9)] == [2, 0]
    np.testing.assert_array_equal(fg.jit(lambda i: x.at[i].set(9.0))(fnp.asarray(7)), x)
    assert float(fnp.take(x, 7, mode="clip")) == 2 and np.isnan(float(fnp.take(x, 7, mode="fill")))
    with pytest.raises(IndexError):
        x[7]
