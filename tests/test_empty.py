"""Arrays without elements: every pointwise primitive, and what has no empty example of its own, on every device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from test_primitives import CASES

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.ir import Graph
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.reverse import vjp_graph
from funcgrad.primitive import REGISTRY, Pointwise
from funcgrad.runtime import device as devices
from funcgrad.testing.cases import Case, record, run, wrt

SHAPE = (0, 3)
POINTWISE = {c.id: c for c in CASES if isinstance(c.prim, Pointwise) and any(a.shape for a in c.avals)}


def empty_operands(case: Case) -> list[np.ndarray[Any, Any]]:
    """The example's types without elements; scalars stay."""
    return [np.zeros(SHAPE, a.dtype) if a.shape else np.ones((), a.dtype) for a in case.avals]


def check(graph: Graph, values: Sequence[Any], name: str) -> None:
    """The device gives the types that the graph promises, and what the reference gives."""
    dev = devices.get(name)
    got = dev.compile(graph).run([dev.put(v) for v in values])
    for g, w, a in zip(got, run(graph, values), graph.out_avals, strict=True):
        host = dev.get(g, a)
        assert (host.shape, host.dtype) == (a.shape, a.dtype) == (w.shape, w.dtype)
        np.testing.assert_array_equal(host, w)


@pytest.mark.parametrize("case", POINTWISE.values(), ids=POINTWISE)
def test_pointwise_primitives(case: Case, device: str) -> None:
    values = empty_operands(case)
    graph = record(case.prim, values)
    assert graph.out_avals[0].shape == SHAPE
    check(graph, values, device)
    dev = devices.get(device)
    outs = dev.run_primitive(case.prim, [dev.put(v) for v in values], graph.in_avals, graph.out_avals)
    assert dev.get(outs[0], graph.out_avals[0]).shape == SHAPE
    batched, marks = batch_graph(graph, 2, [v.ndim > 0 for v in values])
    assert marks == (True,) and batched.out_avals[0].shape == (2, *SHAPE)
    check(batched, [np.zeros((2, *v.shape), v.dtype) if v.ndim else v for v in values], device)
    if case.smooth:
        backward = vjp_graph(graph, wrt(graph))
        cts = [np.zeros(a.shape, a.dtype) for a in backward.in_avals[len(values) :]]
        check(backward, [*values, *cts], device)


F = np.float32
OTHERS: dict[str, tuple[dict[str, Any], list[tuple[int, ...]]]] = {
    "broadcast": ({"shape": (2, 0, 3), "dims": (1, 2)}, [(0, 3)]),
    "cofactors": ({}, [(0, 2, 2)]),
    "pinv": ({}, [(0, 2, 3)]),
    "solve": ({}, [(0, 2, 2), (0, 2, 1)]),
    "triangular_solve": ({}, [(0, 2, 2), (0, 2, 1)]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_primitives(name: str, device: str) -> None:
    params, shapes = OTHERS[name]
    prim = next(c.prim for c in CASES if c.prim.name == name) if not params else REGISTRY[name](**params)
    values = [np.zeros(s, F) for s in shapes]
    graph = record(prim, values)
    check(graph, values, device)
    backward = vjp_graph(graph, wrt(graph))
    check(backward, [*values, *[np.zeros(a.shape, a.dtype) for a in backward.in_avals[len(values) :]]], device)


@pytest.mark.parametrize("jitted", [False, True])
def test_programs_on_nothing(jitted: bool, device: str) -> None:
    """Sums of nothing are 0, products of nothing 1, and gradients of nothing are nothing."""
    maybe = fg.jit if jitted else lambda f: f
    x, w = np.zeros((0, 3), F), np.ones((3, 2), F)
    value, (gx, gw) = maybe(fg.value_and_grad(lambda x, w: (fnp.tanh(x @ w) ** 2).sum(), argnums=(0, 1)))(x, w)
    assert float(value) == 0 and gx.shape == (0, 3)
    np.testing.assert_array_equal(np.asarray(gw), 0 * w)
    for f, want in [
        (lambda x: x.sum(0), np.zeros(3)),
        (lambda x: fnp.prod(x, axis=0), np.ones(3)),
        (lambda x: fnp.concatenate([x, fnp.ones((1, 3), F)]), np.ones((1, 3))),
        (lambda x: fnp.cumsum(x, 0), x),
        (lambda x: fnp.sort(x, 0), x),
        (lambda x: (x == x).all(), np.True_),
        (lambda x: (x == x).any(), np.False_),
        (lambda x: x.reshape(3, 0) @ fnp.ones((0, 4), F), np.zeros((3, 4))),
        (lambda x: fnp.pad(x, ((1, 1), (0, 0))), np.zeros((2, 3))),
        (lambda x: fg.lax.scan(lambda c, r: (c + r.sum(), r), 5.0, x)[0], np.float32(5)),
        (lambda x: fg.vmap(fnp.sum)(x), np.zeros(0)),
    ]:
        np.testing.assert_array_equal(np.asarray(maybe(f)(x)), want)
    for f in (fnp.max, fnp.min, fnp.argmax):
        with pytest.raises(ValueError, match=r"\(0, 3\)|0,3"):
            maybe(lambda x, f=f: f(x, axis=0))(x)
