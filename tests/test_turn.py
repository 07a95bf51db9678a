"""Matrices that a loop multiplies by along their rows are transposed before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax
from funcgrad.control.loops import Scan
from funcgrad.ir import Graph, check_graph
from funcgrad.passes.turn import turned

W, H = (48, 64), (5, 64)


def rows(w: Any, h: Any, n: int = 20) -> Any:
    """The last axes of both are summed."""
    return lax.scan(
        lambda h, _: (fnp.tanh(fnp.pad(fnp.einsum("bk,nk->bn", h, w), ((0, 0), (0, 16)))), None), h, length=n
    )[0]


def columns(w: Any, h: Any) -> Any:
    return lax.scan(lambda h, _: (fnp.tanh(fnp.pad(h[:, :48] @ w, ((0, 0), (0, 0)))), None), h, length=20)[0]


def both(w: Any, h: Any) -> Any:
    """Summed along both axes in turn: nothing to gain."""
    return lax.scan(lambda h, _: (fnp.tanh(fnp.einsum("bk,nk->bn", h, w) @ w), None), h, length=20)[0]


def returned(w: Any, h: Any) -> Any:
    step = lambda h, _: (fnp.tanh(fnp.pad(fnp.einsum("bk,nk->bn", h, w), ((0, 0), (0, 16)))), w)
    return lax.scan(step, h, length=20)


def operands() -> tuple[Any, Any]:
    r = np.random.default_rng(0)
    return (r.normal(0, 0.2, W).astype(np.float32), r.normal(size=H).astype(np.float32))


def scan_of(f: Any) -> Scan:
    graph: Graph = fg.make_graph(f)(*operands())
    (found,) = [e.prim for e in graph.eqns if isinstance(e.prim, Scan)]
    return found


@pytest.mark.parametrize(("f", "turns"), [(rows, True), (columns, False), (both, False), (returned, False)])
def test_which_matrices_are_turned(f: Any, turns: bool) -> None:
    scan = scan_of(f)
    body, over = turned(scan.body, scan.num_consts)
    check_graph(body)
    assert bool(over) == turns
    assert all(body.inputs[i].aval.shape == scan.body.inputs[i].aval.shape[::-1] for i in over)


def test_many_rows_leave_a_matrix_as_it_is() -> None:
    graph = fg.make_graph(rows)(operands()[0], np.ones((65, 64), np.float32))
    (scan,) = [e.prim for e in graph.eqns if isinstance(e.prim, Scan)]
    assert turned(scan.body, scan.num_consts) == (scan.body, [])


@pytest.mark.ggml
@pytest.mark.parametrize("n", [3, 20])
def test_values_and_gradients(n: int) -> None:
    """Against float64 by hand; with fewer steps nothing is turned."""
    w, h = operands()
    with fg.default_device("cpu"):
        value, grad = fg.jit(fg.value_and_grad(lambda w: rows(w, h, n).sum()))(w)
    wide = w.astype(np.float64)
    steps = [h.astype(np.float64)]
    for _ in range(n):
        steps.append(np.pad(np.tanh(steps[-1] @ wide.T), ((0, 0), (0, 16))))
    np.testing.assert_allclose(value, steps[-1].sum(), rtol=1e-4, atol=1e-4)
    ct, total = np.ones(H), np.zeros(W)
    for before, after in zip(steps[-2::-1], steps[:0:-1], strict=True):
        g = (ct * (1 - after**2))[:, :48]
        total += g.T @ before
        ct = g @ wide
    np.testing.assert_allclose(grad, total, rtol=1e-3, atol=1e-4 * np.abs(total).max())
