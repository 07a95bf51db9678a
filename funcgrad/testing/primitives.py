"""Every generic check of a primitive: types, derivatives to second order, vmap, devices, errors.

The truth is numpy: the primitive's ``eval`` in float64, central differences for derivatives, a loop for vmap.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import DTypeError, ShapeError, message
from funcgrad.ir import Aval, Graph, check_graph
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.forward import jvp_graph
from funcgrad.passes.reverse import vjp_graph
from funcgrad.primitive import Primitive
from funcgrad.runtime import device as _device
from funcgrad.testing.cases import Arrays, Case, cases_of, close, dot, is_float, move, noise, record, run, slope, wrt

__all__ = ["PrimitiveReport", "check_primitive"]

TOLERANCE = {dtypes.float32: 1e-5, dtypes.float16: 2e-3, dtypes.bfloat16: 2e-2}


# -- types and values --------------------------------------------------------------------------------------------
def check_types(case: Case) -> None:
    """``infer`` is what ``eval`` gives."""
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


def check_precision(case: Case) -> None:
    """``eval`` in float32 agrees with ``eval`` in float64."""
    values = case.values()
    wide = [v.astype(np.float64) if v.dtype == np.float32 else v for v in values]
    for got, want in zip(case.prim.evaluate(*values), case.prim.evaluate(*wide), strict=True):
        close(got, want.astype(got.dtype), 5e-6)


# -- derivatives -------------------------------------------------------------------------------------------------
def check_jvp(case: Case) -> None:
    """The jvp is the central difference, in float64."""
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


def check_vjp(case: Case) -> None:
    """The vjp is the transpose of the jvp: <ct, J t> = <J' ct, t>."""
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


def check_cotangent_types(case: Case) -> None:
    """Cotangents have the operands' types, also for half precision."""
    graph = record(case.prim, case.values())
    backward = vjp_graph(graph, wrt(graph))
    forward, _ = jvp_graph(graph, wrt(graph))
    check_graph(backward)
    check_graph(forward)
    n = len(graph.outputs)
    assert list(backward.out_avals[n:]) == [a for a in graph.in_avals if dtypes.is_float(a.dtype)]
    assert list(forward.out_avals[n:]) == [a for a in graph.out_avals if dtypes.is_float(a.dtype)]


def _only(graph: Graph, outputs: Sequence[int]) -> Graph:
    return Graph(graph.inputs, graph.eqns, [graph.outputs[i] for i in outputs])


def check_second_order(case: Case) -> None:
    """The derivative along s of <ct, J(x) t>, in the four combinations of the modes and by central differences."""
    values = case.values(wide=True)
    graph = record(case.prim, values)
    on = wrt(graph)
    xs = [v for v in values if is_float(v)]
    ts, ss = noise(xs, 4), noise(xs, 5)
    n = len(graph.outputs)
    cts = noise([o for o in run(graph, values) if is_float(o)], 6)
    forward, _ = jvp_graph(graph, on)
    forward = _only(forward, range(n, n + len(cts)))
    backward = _only(vjp_graph(graph, on), range(n, n + len(xs)))
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
    """Every way to map some of n operands."""
    return [m for m in itertools.product([False, True], repeat=n) if any(m)]


def compare_vmap(graph: Graph, draws: Sequence[Arrays], mapped: Sequence[bool]) -> None:
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


def check_vmap(case: Case, size: int = 3) -> None:
    """vmap is a loop, for every choice of mapped operands."""
    draws = [case.values(variant=b) for b in range(size)]
    graph = record(case.prim, draws[0])
    for mapped in choices(len(case.args)):
        compare_vmap(graph, draws, mapped)


def check_vmap_of_derivatives(case: Case) -> None:
    """vmap of the jvp and of the vjp is a loop."""
    draws = [case.values(wide=True, variant=b) for b in range(3)]
    graph = record(case.prim, draws[0])
    on = wrt(graph)
    forward, _ = jvp_graph(graph, on)
    for derived in (vjp_graph(graph, on), forward):
        extra = len(derived.inputs) - len(graph.inputs)
        like = [np.zeros(v.aval.shape, v.aval.dtype) for v in derived.inputs[len(graph.inputs) :]]
        rows = [[*d, *noise(like, 7 + b)] for b, d in enumerate(draws)]
        n = len(case.args)
        compare_vmap(derived, rows, [True] * (n + extra))
        compare_vmap(derived, rows, [True] + [False] * (n + extra - 1))
        compare_vmap(derived, rows, [False] * n + [True] * extra)


# -- devices -----------------------------------------------------------------------------------------------------
def compare_on_device(device: Any, graph: Graph, values: Arrays) -> None:
    """A graph on a device against numpy."""
    want = run(graph, values)
    got = device.compile(graph).run([device.put(v) for v in values])
    for g, w, a in zip(got, want, graph.out_avals, strict=True):
        host = device.get(g, a)
        assert (host.shape, host.dtype) == (w.shape, w.dtype)
        close(host, w, TOLERANCE.get(a.dtype, 0))


def check_device(case: Case, device: Any) -> None:
    """``lower`` agrees with ``eval``, compiled and on its own."""
    values = case.values()
    graph = record(case.prim, values)
    compare_on_device(device, graph, values)
    outs = device.run_primitive(case.prim, [device.put(v) for v in values], case.avals, graph.out_avals)
    for o, w in zip(outs, run(graph, values), strict=True):
        close(device.get(o, Aval(w.shape, w.dtype)), w, TOLERANCE.get(w.dtype, 0))


def check_device_derivatives(case: Case, device: Any) -> None:
    """Both derivatives on the device agree with numpy."""
    values = case.values()
    graph = record(case.prim, values)
    for derived in (vjp_graph(graph, wrt(graph)), jvp_graph(graph, wrt(graph))[0]):
        extra = [np.zeros(v.aval.shape, v.aval.dtype) for v in derived.inputs[len(values) :]]
        compare_on_device(device, derived, [*values, *noise(extra, 8)])


def check_device_vmap(case: Case, device: Any) -> None:
    """vmap on the device agrees with numpy."""
    draws = [case.values(variant=b) for b in range(2)]
    graph = record(case.prim, draws[0])
    for mapped in {(True,) * len(case.args), (True,) + (False,) * (len(case.args) - 1)}:
        batched, _ = batch_graph(graph, 2, mapped)
        xs = [np.stack([d[i] for d in draws]) if m else draws[0][i] for i, m in enumerate(mapped)]
        compare_on_device(device, batched, xs)


# -- errors ------------------------------------------------------------------------------------------------------
def _spoiled(aval: Aval) -> list[Aval]:
    """Other types than this one."""
    longer = tuple([d + 1 for d in aval.shape])
    shapes = [(7, *aval.shape), (*aval.shape, 5), aval.shape[1:], longer, (0, *aval.shape[1:])]
    out = [Aval(s, aval.dtype) for s in shapes]
    return out + [Aval(aval.shape, d) for d in sorted(dtypes.ALL, key=str)]


def _is_refused_or_right(prim: Primitive, avals: Sequence[Aval]) -> bool:
    """Whether these types are refused, by a ShapeError or DTypeError with a clear message; what is taken must run."""
    try:
        outs = prim.infer_all(*avals)
    except (ShapeError, DTypeError) as e:
        assert str(e).startswith((f"{prim.name}: ", "shape: ")), e
        assert ", got " in str(e), e
        return True
    with np.errstate(all="ignore"):
        values = [np.zeros(a.shape, a.dtype) for a in avals]
        raw = prim.eval(*[dtypes.widen(v) for v in values])
    assert [np.shape(o) for o in (raw if prim.multiple else [raw])] == [a.shape for a in outs], (prim, avals)
    return False


def check_operands(case: Case) -> int:
    """Wrong types, one operand at a time, are refused by clear messages; what is not refused must be right.

    Returns how many were refused.
    """
    refused = 0
    for i, aval in enumerate(case.avals):
        for other in _spoiled(aval):
            refused += _is_refused_or_right(case.prim, [*case.avals[:i], other, *case.avals[i + 1 :]])
    return refused


def check_parameters(case: Case) -> None:
    """Wrong static parameters are refused, by clear messages."""
    refused = tried = 0
    for name, value in case.prim.params().items():
        others: list[Any] = []
        if isinstance(value, int) and not isinstance(value, bool) and name in ("axis", "groups", "batch_groups"):
            others = [99, -1]
        elif isinstance(value, tuple):
            others = [(*value, 99), (*value, -7), value[1:] if value else (3,)]
            others += [(99, *value[1:])] if value and isinstance(value[0], int) else []
        for other in others:
            prim: Any = dataclasses.replace(case.prim, **{name: other})
            refused += _is_refused_or_right(prim, case.avals)
            tried += 1
    assert refused or not tried, "no wrong parameter was refused"


# -- all of them -------------------------------------------------------------------------------------------------
class Check(NamedTuple):
    """One line of a report: what was checked, on which device, under how many examples."""

    name: str
    device: str
    examples: int


@dataclasses.dataclass(frozen=True)
class PrimitiveReport:
    """What :func:`check_primitive` checked."""

    primitive: str
    checks: Sequence[Check]

    def __str__(self) -> str:
        width = max([len(c.name) for c in self.checks], default=0)
        lines = [f"  {c.name:<{width}}  {c.device:<9}  {c.examples:>3} examples" for c in self.checks]
        return "\n".join([f"{self.primitive}: all checks passed", *lines])

    def __repr__(self) -> str:
        return str(self)


Checks = dict[str, tuple[Callable[..., Any], Callable[[Case], bool]]]
BY_NUMPY: Checks = {
    "infer is what eval gives": (check_types, lambda c: True),
    "float32 agrees with float64": (check_precision, lambda c: c.differentiable),
    "jvp is the central difference": (check_jvp, lambda c: c.differentiable),
    "vjp is the transpose of jvp": (check_vjp, lambda c: c.differentiable),
    "cotangents have the operands' types": (check_cotangent_types, lambda c: c.has_floats),
    "second order, four ways": (check_second_order, lambda c: c.differentiable),
    "vmap is a loop": (check_vmap, lambda c: bool(c.args)),
    "vmap of derivatives is a loop": (check_vmap_of_derivatives, lambda c: c.differentiable),
    "wrong operands are refused": (check_operands, lambda c: bool(c.args)),
    "wrong parameters are refused": (check_parameters, lambda c: True),
}
ON_DEVICE: Checks = {
    "lower agrees with eval": (check_device, lambda c: True),
    "derivatives agree": (check_device_derivatives, lambda c: c.differentiable),
    "vmap agrees": (check_device_vmap, lambda c: bool(c.args)),
}


def check_primitive(cls: type[Primitive], devices: Sequence[str] | None = None) -> PrimitiveReport:
    """Run every generic check of a primitive under each of its examples; return what was checked.

    ``devices`` are names, all that are present by default.  Checked are: types; float32 against float64; forward mode
    against central differences in float64; reverse mode against forward mode; second order in all four combinations;
    vmap against a loop; the device against ``eval``; and that wrong types and parameters are refused with a message.

    Raises AssertionError, which names the check and the example; ValueError when the class has no examples.

    >>> from funcgrad.primitive import REGISTRY
    >>> check_primitive(REGISTRY["sin"], devices=["numpy"]).checks[2]
    Check(name='jvp is the central difference', device='', examples=3)
    """
    cases = cases_of(cls)
    if not cases:
        way_out = "give the class a list 'examples'"
        raise ValueError(message("check_primitive", "a primitive with examples is required", cls.__name__, way_out))
    found = [_run_check(name, check, cases, "", ()) for name, check in BY_NUMPY.items()]
    for d in _device.devices() if devices is None else [_device.get(n) for n in devices]:
        found += [_run_check(name, check, cases, d.name, (d,)) for name, check in ON_DEVICE.items()]
    return PrimitiveReport(cls.name, [c for c in found if c.examples])


def _run_check(
    name: str,
    check: tuple[Callable[..., Any], Callable[[Case], bool]],
    cases: Sequence[Case],
    device: str,
    more: tuple[Any, ...],
) -> Check:
    fn, applies = check
    chosen = [c for c in cases if applies(c)]
    for case in chosen:
        try:
            fn(case, *more)
        except Exception as e:
            where = f" on {device}" if device else ""
            raise AssertionError(f"check_primitive: {case.id}: {name}{where}: {e}") from e
    return Check(name, device, len(chosen))
