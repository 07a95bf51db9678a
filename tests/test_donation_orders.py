"""Donation is right in whatever order equations come: each read of a donated value precedes the write over it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import optim
from funcgrad.ir import Equation, Graph, Var
from funcgrad.passes.inline import inline
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime import device as devices

pytestmark = pytest.mark.ggml


def train(state: Any, x: Any) -> Any:
    """A step that reads the old values after the new ones are known, exchanges two of them, and returns one twice."""
    (w, b), opt_state, swapped = state
    optimizer = optim.adam(1e-2)
    loss, grads = fg.value_and_grad(lambda p: (fnp.tanh(x @ p[0] + p[1]) ** 2).sum())((w, b))
    updates, opt_state = optimizer.update(grads, opt_state, (w, b))
    new = optim.apply_updates((w, b), updates)
    moved = fnp.sqrt(sum(((n - o) ** 2).sum() for n, o in zip(new, (w, b), strict=True)))
    return ((new[0], new[1]), opt_state, (swapped[1], swapped[0] + new[1])), (loss, moved, w.sum(), new[1] * 2.0)


def rotate(state: Any, x: Any) -> Any:
    """All leaves of one type, each result another argument's: a cycle that no order can do in place."""
    a, b, c = state
    return (b + x, c * a, a), (a + b + c).sum()


def start() -> tuple[Any, Any]:
    r = np.random.default_rng(0)
    w, b = r.normal(size=(4, 4)).astype(np.float32), r.normal(size=4).astype(np.float32)
    params = (fnp.asarray(w), fnp.asarray(b))
    swapped = tuple([fnp.asarray(r.normal(size=4).astype(np.float32)) for _ in range(2)])
    return (params, optim.adam(1e-2).init(params), swapped), fnp.asarray(r.normal(size=(3, 4)).astype(np.float32))


def start_rotate() -> tuple[Any, Any]:
    r = np.random.default_rng(1)
    return tuple([fnp.asarray(r.normal(size=5).astype(np.float32)) for _ in range(3)]), fnp.asarray(np.float32(2.0))


def any_order(graph: Graph, rng: random.Random, late: set[Var]) -> Graph:
    """The graph with its equations in a random order that their operands allow.

    Equations that read one of ``late`` are put off while anything else can be run: writes come as early as they can.
    """
    known, waiting, out = set(graph.inputs), list(graph.eqns), []
    while waiting:
        ready = [e for e in waiting if all(a in known for a in e.inputs if isinstance(a, Var))]
        last = [e for e in ready if not any(a in late for a in e.inputs if isinstance(a, Var))]
        eqn: Equation = rng.choice(last or ready)
        waiting.remove(eqn)
        out.append(eqn)
        known.update(eqn.outputs)
    return Graph(graph.inputs, out, graph.outputs, graph.name)


@pytest.mark.parametrize(("fun", "make"), [(train, start), (rotate, start_rotate)])
@pytest.mark.parametrize("prepared", [True, False])
def test_random_and_adversarial_orders(fun: Any, make: Any, prepared: bool) -> None:
    with fg.default_device("cpu") as cpu:
        state, x = make()
        graph = fg.make_graph(fun)(state, x)
        graph = prepare(graph) if prepared else inline(graph)
        hosts = [np.array(v) for v in fg.tree.leaves((state, x))]
        n_donated = len(fg.tree.leaves(state))
        want = [np.asarray(v) for v in devices.get("numpy").compile(graph).run(hosts)]
        rng = random.Random(0)
        for trial in range(60):
            late = set(rng.sample(graph.inputs[:n_donated], rng.randint(0, n_donated))) if trial else set()
            shuffled = any_order(graph, rng, late)
            donate = (
                frozenset(rng.sample(range(n_donated), rng.randint(1, n_donated)))
                if trial % 3
                else frozenset(range(n_donated))
            )
            executable = cpu.build(shuffled, donate)
            assert executable.donated or fun is rotate
            for _ in range(2):  # the second run takes the short cuts of a state that is known
                outs = executable.run([cpu.put(h) for h in hosts])
                for got, expected, v in zip(outs, want, graph.outputs, strict=True):
                    np.testing.assert_allclose(cpu.get(got, v.aval), expected, rtol=2e-6, atol=2e-6)
