"""Every primitive under every one of its examples: types, derivatives to second order, vmap, errors.

The truth is numpy in float64: central differences for derivatives, a loop for vmap.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import pkgutil
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import funcgrad
import funcgrad.prims
from funcgrad import dtypes
from funcgrad.errors import DTypeError, ShapeError
from funcgrad.ir import Aval, Graph, Literal, check_graph
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.forward import jvp_graph
from funcgrad.passes.reverse import vjp_graph
from funcgrad.primitive import REGISTRY, Arg, Example, Primitive
from funcgrad.runtime import device as devices
from funcgrad.trace import bind_all, trace

for found in pkgutil.iter_modules(funcgrad.prims.__path__):
    importlib.import_module(f"funcgrad.prims.{found.name}")

PRIMITIVES = {n: c for n, c in REGISTRY.items() if c.__module__.startswith("funcgrad.prims.")}
NO_EXAMPLES = sorted(n for n, c in PRIMITIVES.items() if not c.examples)
if NO_EXAMPLES:
    raise pytest.UsageError(f"primitives without examples: {', '.join(NO_EXAMPLES)}")


@dataclasses.dataclass(frozen=True)
class Case:
    """One primitive under one example."""

    prim: Primitive
    args: tuple[Arg, ...]
    smooth: bool
    id: str

    @property
    def avals(self) -> list[Aval]:
        return [a.aval for a in self.args]

    def values(self, wide: bool = False, variant: int = 0) -> list[np.ndarray[Any, Any]]:
        """The operands; float32 as float64 when ``wide``, another draw for each variant."""
        rng = np.random.default_rng([zlib.crc32(self.id.encode()), variant])
        return [draw(a, rng, wide, variant) for a in self.args]


def draw(arg: Arg, rng: np.random.Generator, wide: bool, variant: int) -> np.ndarray[Any, Any]:
    aval = arg.aval
    dtype = dtypes.float64 if wide and aval.dtype == dtypes.float32 else aval.dtype
    if arg.values is not None:
        given = np.roll(np.broadcast_to(np.asarray(arg.values), aval.shape), variant)
        return dtypes.narrow(given + variant if not aval.shape and aval.dtype in dtypes.INTS else given, dtype)
    if aval.dtype in dtypes.FLOATS:
        return dtypes.narrow(rng.uniform(arg.low, arg.high, aval.shape), dtype)
    if aval.dtype == dtypes.bool_:
        return rng.random(aval.shape) < 0.5
    low = max(arg.low, 0) if aval.dtype == dtypes.uint32 else arg.low
    return rng.integers(int(low), int(arg.high), aval.shape, endpoint=True).astype(dtype)


def make_case(name: str, i: int, ex: Example) -> Case:
    prim = PRIMITIVES[name](**ex.params)
    types = " ".join(str(a.aval) for a in ex.args)
    return Case(prim, ex.args, ex.smooth, f"{prim} {types} #{i}")


CASES = [make_case(n, i, e) for n, c in sorted(PRIMITIVES.items()) for i, e in enumerate(c.examples)]
SMOOTH = [c for c in CASES if c.smooth and c.args]
FLOAT = [c for c in CASES if any(a.dtype in dtypes.FLOATS for a in c.avals)]


def every(cases: Sequence[Case]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[c.id for c in cases])


# -- running -----------------------------------------------------------------------------------------------------
def run(graph: Graph, values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The oracle: each equation by numpy, checking types on the way."""
    env = dict(zip(graph.inputs, values, strict=True))
    for eqn in graph.eqns:
        xs = [a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs]
        outs = eqn.prim.evaluate(*xs)
        for v, o in zip(eqn.outputs, outs, strict=True):
            assert (o.shape, o.dtype) == (v.aval.shape, v.aval.dtype), eqn
            env[v] = o
    return [a.value if isinstance(a, Literal) else env[a] for a in graph.outputs]


def record(prim: Primitive, values: Sequence[np.ndarray[Any, Any]]) -> Graph:
    return trace(lambda *xs: bind_all(prim, *xs), [Aval(v.shape, v.dtype) for v in values]).graph


def wrt(graph: Graph) -> list[bool]:
    return [dtypes.is_float(v.aval.dtype) for v in graph.inputs]


def is_float(x: np.ndarray[Any, Any]) -> bool:
    return dtypes.is_float(x.dtype)


def noise(like: Sequence[Any], seed: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [dtypes.narrow(rng.uniform(-1, 1, x.shape), x.dtype) for x in like]


def move(values: Sequence[Any], ts: Sequence[Any], h: float) -> list[Any]:
    """Step along tangents, given for the float operands only."""
    left = iter(ts)
    return [v + h * next(left) if is_float(v) else v for v in values]


def slope(f: Any, h: float = 2e-4) -> list[Any]:
    """The derivative of f at 0 by central differences of fourth order."""
    at = {k: f(k * h) for k in (-2, -1, 1, 2)}
    slopes = [(8 * (b - c) - (a - d)) / (12 * h) for a, b, c, d in zip(at[2], at[1], at[-1], at[-2], strict=True)]
    # NaN is what a read out of range gives: a constant.
    return [np.where(np.isnan(b) & np.isnan(c), 0, s) for s, b, c in zip(slopes, at[1], at[-1], strict=True)]


def dot(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    return float(sum(np.sum(x * y, dtype=np.float64) for x, y in zip(xs, ys, strict=True)))


def close(got: Any, want: Any, tolerance: float) -> None:
    got, want = dtypes.widen(np.asarray(got)), dtypes.widen(np.asarray(want))
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    finite = np.abs(want[np.isfinite(want)])
    scale = max(1.0, finite.max(initial=0.0))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


# -- types and values --------------------------------------------------------------------------------------------
@every(CASES)
def test_infer_is_what_eval_gives(case: Case) -> None:
    values = case.values()
    avals = case.prim.infer_all(*case.avals)
    with np.errstate(all="ignore"):
        raw = case.prim.eval(*[dtypes.widen(v) for v in values])
    outs = raw if case.prim.multiple else [raw]
    assert [np.shape(o) for o in outs] == [a.shape for a in avals]
    for o, a in zip(outs, avals, strict=True):
        kinds = "f" if a.dtype in dtypes.FLOATS else "b" if a.dtype == dtypes.bool_ else "iu"
        assert dtypes.widen(np.asarray(o)).dtype.kind in kinds
    graph = record(case.prim, values)
    check_graph(graph)
    for o, e in zip(run(graph, values), case.prim.evaluate(*values), strict=True):
        np.testing.assert_array_equal(dtypes.widen(o), dtypes.widen(e))


@every(SMOOTH)
def test_float32_agrees_with_float64(case: Case) -> None:
    values = case.values()
    wide = [v.astype(np.float64) if v.dtype == np.float32 else v for v in values]
    for got, want in zip(case.prim.evaluate(*values), case.prim.evaluate(*wide), strict=True):
        close(got, want.astype(got.dtype), 5e-6)


# -- derivatives -------------------------------------------------------------------------------------------------
@every(SMOOTH)
def test_jvp_is_the_central_difference(case: Case) -> None:
    values = case.values(wide=True)
    graph = record(case.prim, values)
    forward, _ = jvp_graph(graph, wrt(graph))
    check_graph(forward)
    ts = noise([v for v in values if is_float(v)], 1)
    n = len(graph.outputs)
    got = run(forward, [*values, *ts])[n:]
    want = slope(lambda h: [o for o in run(graph, move(values, ts, h)) if is_float(o)])
    for g, w in zip(got, want, strict=True):
        close(g, w, 1e-7)


@every(SMOOTH)
def test_vjp_is_the_transpose_of_jvp(case: Case) -> None:
    values = case.values(wide=True)
    graph = record(case.prim, values)
    forward, _ = jvp_graph(graph, wrt(graph))
    backward = vjp_graph(graph, wrt(graph))
    check_graph(backward)
    xs = [v for v in values if is_float(v)]
    ts, n = noise(xs, 2), len(graph.outputs)
    outs = run(forward, [*values, *ts])
    cts = noise([o for o in outs[:n] if is_float(o)], 3)
    grads = run(backward, [*values, *cts])[n:]
    assert [(g.shape, g.dtype) for g in grads] == [(x.shape, x.dtype) for x in xs]
    close(dot(grads, ts), dot(cts, outs[n:]), 1e-11)


@every(FLOAT)
def test_cotangents_have_the_operands_types(case: Case) -> None:
    """Also for half precision, where ``record`` and ``check_graph`` compare every type."""
    graph = record(case.prim, case.values())
    backward = vjp_graph(graph, wrt(graph))
    forward, _ = jvp_graph(graph, wrt(graph))
    check_graph(backward)
    check_graph(forward)
    n = len(graph.outputs)
    assert list(backward.out_avals[n:]) == [a for a in graph.in_avals if dtypes.is_float(a.dtype)]
    assert list(forward.out_avals[n:]) == [a for a in graph.out_avals if dtypes.is_float(a.dtype)]


def only(graph: Graph, outputs: Sequence[int]) -> Graph:
    return Graph(graph.inputs, graph.eqns, [graph.outputs[i] for i in outputs])


@every(SMOOTH)
def test_second_order_in_four_combinations(case: Case) -> None:
    """The derivative along s of <ct, J(x) t>, four ways and by central differences."""
    values = case.values(wide=True)
    graph = record(case.prim, values)
    on = wrt(graph)
    xs = [v for v in values if is_float(v)]
    ts, ss = noise(xs, 4), noise(xs, 5)
    n = len(graph.outputs)
    cts = noise([o for o in run(graph, values) if is_float(o)], 6)
    forward, _ = jvp_graph(graph, on)
    forward = only(forward, range(n, n + len(cts)))
    backward = only(vjp_graph(graph, on), range(n, n + len(xs)))
    by_t, by_ct = [*on, *[False] * len(xs)], [*on, *[False] * len(cts)]

    found = {}
    twice, _ = jvp_graph(forward, by_t)
    found["forward over forward"] = dot(cts, run(twice, [*values, *ts, *ss])[len(cts) :])
    twice, _ = jvp_graph(backward, by_ct)
    found["forward over reverse"] = dot(ts, run(twice, [*values, *cts, *ss])[len(xs) :])
    twice = vjp_graph(forward, by_t)
    found["reverse over forward"] = dot(ss, run(twice, [*values, *ts, *cts])[len(cts) :])
    twice = vjp_graph(backward, by_ct)
    check_graph(twice)
    found["reverse over reverse"] = dot(ss, run(twice, [*values, *cts, *ts])[len(xs) :])

    [want] = slope(lambda h: [dot(cts, run(forward, [*move(values, ss, h), *ts]))])
    scale = max(1.0, abs(want))
    for way, got in found.items():
        assert abs(got - want) <= 1e-7 * scale, (way, got, want)
    assert np.ptp(list(found.values())) <= 1e-10 * scale, found


# -- vmap --------------------------------------------------------------------------------------------------------
def choices(n: int) -> list[tuple[bool, ...]]:
    return [m for m in itertools.product([False, True], repeat=n) if any(m)]


def check_vmap(graph: Graph, draws: Sequence[Sequence[Any]], mapped: Sequence[bool]) -> None:
    """``draws`` are the operands for each index; where an operand is not mapped the first draw serves all."""
    size = len(draws)
    batched, marks = batch_graph(graph, size, mapped)
    check_graph(batched)
    first = draws[0]
    stacked = [np.stack([d[i] for d in draws]) if m else first[i] for i, m in enumerate(mapped)]
    outs = run(batched, stacked)
    for b in range(size):
        want = run(graph, [draws[b][i] if m else first[i] for i, m in enumerate(mapped)])
        for o, w, mark in zip(outs, want, marks, strict=True):
            close(
                o[b] if mark else o, w, 2e-6 if w.dtype == np.float32 else 2e-3 if w.dtype in dtypes.HALVES else 1e-10
            )


@every([c for c in CASES if c.args])
@pytest.mark.parametrize("size", [3, 1])
def test_vmap_is_a_loop(case: Case, size: int) -> None:
    draws = [case.values(variant=b) for b in range(size)]
    graph = record(case.prim, draws[0])
    for mapped in choices(len(case.args)):
        check_vmap(graph, draws, mapped)


@every(SMOOTH)
def test_vmap_of_derivatives_is_a_loop(case: Case) -> None:
    draws = [case.values(wide=True, variant=b) for b in range(3)]
    graph = record(case.prim, draws[0])
    on = wrt(graph)
    forward, _ = jvp_graph(graph, on)
    for derived in (vjp_graph(graph, on), forward):
        extra = len(derived.inputs) - len(graph.inputs)
        like = [np.zeros(v.aval.shape, v.aval.dtype) for v in derived.inputs[len(graph.inputs) :]]
        rows = [[*d, *noise(like, 7 + b)] for b, d in enumerate(draws)]
        n = len(case.args)
        check_vmap(derived, rows, [True] * (n + extra))
        check_vmap(derived, rows, [True] + [False] * (n + extra - 1))
        check_vmap(derived, rows, [False] * n + [True] * extra)


# -- devices -----------------------------------------------------------------------------------------------------
TOLERANCE = {dtypes.float32: 1e-5, dtypes.float16: 2e-3, dtypes.bfloat16: 2e-2}


def on_every_device() -> Any:
    found = devices.devices()
    params = [pytest.param(d, marks=[] if d.name == "numpy" else [pytest.mark.ggml], id=d.name) for d in found]
    return pytest.mark.parametrize("device", params)


def check_on_device(device: Any, graph: Graph, values: Sequence[Any]) -> None:
    want = run(graph, values)
    got = device.compile(graph).run([device.put(v) for v in values])
    for g, w, a in zip(got, want, graph.out_avals, strict=True):
        host = device.get(g, a)
        assert (host.shape, host.dtype) == (w.shape, w.dtype)
        close(host, w, TOLERANCE.get(a.dtype, 0))


@on_every_device()
@every(CASES)
def test_devices_agree_with_eval(case: Case, device: Any) -> None:
    values = case.values()
    graph = record(case.prim, values)
    check_on_device(device, graph, values)
    outs = device.run_primitive(case.prim, [device.put(v) for v in values], case.avals, graph.out_avals)
    for o, w in zip(outs, run(graph, values), strict=True):
        close(device.get(o, Aval(w.shape, w.dtype)), w, TOLERANCE.get(w.dtype, 0))


@on_every_device()
@every(SMOOTH)
def test_devices_agree_on_derivatives(case: Case, device: Any) -> None:
    values = case.values()
    graph = record(case.prim, values)
    for derived in (vjp_graph(graph, wrt(graph)), jvp_graph(graph, wrt(graph))[0]):
        extra = [np.zeros(v.aval.shape, v.aval.dtype) for v in derived.inputs[len(values) :]]
        check_on_device(device, derived, [*values, *noise(extra, 8)])


@on_every_device()
@every([c for c in CASES if c.args])
def test_devices_agree_under_vmap(case: Case, device: Any) -> None:
    draws = [case.values(variant=b) for b in range(2)]
    graph = record(case.prim, draws[0])
    for mapped in {(True,) * len(case.args), (True,) + (False,) * (len(case.args) - 1)}:
        batched, _ = batch_graph(graph, 2, mapped)
        xs = [np.stack([d[i] for d in draws]) if m else draws[0][i] for i, m in enumerate(mapped)]
        check_on_device(device, batched, xs)


# -- errors ------------------------------------------------------------------------------------------------------
def spoiled(aval: Aval) -> list[Aval]:
    """Other types than this one."""
    shapes = [
        (7, *aval.shape),
        (*aval.shape, 5),
        aval.shape[1:],
        tuple([d + 1 for d in aval.shape]),
        (0, *aval.shape[1:]),
    ]
    out = [Aval(s, aval.dtype) for s in shapes]
    return out + [Aval(aval.shape, d) for d in sorted(dtypes.ALL, key=str)]


def is_refused_or_right(prim: Primitive, avals: Sequence[Aval]) -> bool:
    """Whether these types are refused, by a ShapeError or DTypeError with a clear message; what is taken must run."""
    try:
        outs = prim.infer_all(*avals)
    except (ShapeError, DTypeError) as e:
        assert str(e).startswith((f"{prim.name}: ", "shape: "))
        assert ", got " in str(e)
        return True
    with np.errstate(all="ignore"):
        values = [np.zeros(a.shape, a.dtype) for a in avals]
        raw = prim.eval(*[dtypes.widen(v) for v in values])
    assert [np.shape(o) for o in (raw if prim.multiple else [raw])] == [a.shape for a in outs], (prim, avals)
    return False


TAKE_ALL = {"copy", "stop_gradient", "convert"}


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_wrong_types_are_refused(name: str) -> None:
    refused = 0
    cases = [c for c in CASES if c.prim.name == name and c.args]
    for case in cases:
        for i, aval in enumerate(case.avals):
            for other in spoiled(aval):
                refused += is_refused_or_right(case.prim, [*case.avals[:i], other, *case.avals[i + 1 :]])
    assert refused or name in TAKE_ALL or not cases


@every(CASES)
def test_wrong_parameters_are_refused(case: Case) -> None:
    refused = tried = 0
    for name, value in case.prim.params().items():
        others: list[Any] = []
        if isinstance(value, int) and not isinstance(value, bool) and name in ("axis", "groups", "batch_groups"):
            others = [99, -1]
        elif isinstance(value, tuple):
            others = [(*value, 99), (*value, -7), value[1:] if value else (3,)]
            others += [(99, *value[1:])] if value and isinstance(value[0], int) else []
        for other in others:
            prim = dataclasses.replace(case.prim, **{name: other})
            refused += is_refused_or_right(prim, case.avals)
            tried += 1
    assert refused or not tried


def test_every_primitive_can_be_lowered() -> None:
    missing = [n for n, c in PRIMITIVES.items() if c.lower is Primitive.lower]
    assert not missing
