"""Running graphs on the CPU device and on the primitives' numpy references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Graph, Literal
from funcgrad.runtime.cpu import CpuDevice
from funcgrad.trace import trace

TOLERANCE = {dtypes.float32: (4e-6, 2e-6), dtypes.float16: (2e-3, 1e-3), dtypes.bfloat16: (1.6e-2, 1e-2)}


def record(fun: Callable[..., Sequence[Any]], *values: Any) -> Graph:
    return trace(fun, [Aval(v.shape, v.dtype) for v in values]).graph


def evaluate(graph: Graph, values: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(graph.inputs, values, strict=True))
    for eqn in graph.eqns:
        xs = [a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs]
        env.update(zip(eqn.outputs, eqn.prim.evaluate(*xs), strict=True))
    return [a.value if isinstance(a, Literal) else env[a] for a in graph.outputs]


def execute(cpu: CpuDevice, graph: Graph, values: Sequence[Any], donate: frozenset[int] = frozenset()) -> list[Any]:
    exe = cpu.build(graph, donate)
    outs = exe.run([cpu.put(v) for v in values])
    return [cpu.get(b, a.aval) for b, a in zip(outs, graph.outputs, strict=True)]


def compiled(cpu: CpuDevice, graph: Graph, values: Sequence[Any]) -> list[Any]:
    """Through the whole pipeline, fusion included."""
    outs = cpu.compile(graph).run([cpu.wrap(v) for v in values])
    return [cpu.get(b, a.aval) for b, a in zip(outs, graph.outputs, strict=True)]


def compare(got: Sequence[Any], want: Sequence[Any]) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if g.dtype in TOLERANCE:
            rtol, atol = TOLERANCE[g.dtype]
            np.testing.assert_allclose(dtypes.widen(g), dtypes.widen(w), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(g, w)


def check(cpu: CpuDevice, fun: Callable[..., Sequence[Any]], *values: Any) -> None:
    graph = record(fun, *values)
    want = evaluate(graph, values)
    compare(execute(cpu, graph, values), want)
    compare(compiled(cpu, graph, values), want)
