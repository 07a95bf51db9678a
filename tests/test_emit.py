"""Lowering and execution on the CPU against the primitives' numpy references.

Every primitive under every example, with operands that lie in memory in every way a view can; groups of fused
equations; control flow; the eager path.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cpu_graphs import check, compare, evaluate, execute, record
from test_primitives import CASES, every

from funcgrad import dtypes
from funcgrad.control.branch import Cond
from funcgrad.control.loops import Scan, While
from funcgrad.ir import Aval, Equation, Graph, Literal, Var
from funcgrad.primitive import Primitive, apply
from funcgrad.prims.layout import broadcast, iota, pad, reshape, reverse, slice_, transpose
from funcgrad.prims.pointwise import add, maximum, mul, neg, sub
from funcgrad.runtime.cpu import CpuDevice
from funcgrad.runtime.emit import Emitter
from funcgrad.runtime.execute import Executable
from funcgrad.testing.cases import Case
from funcgrad.trace import bind_all

pytestmark = pytest.mark.ggml

F32, I32 = dtypes.float32, dtypes.int32


def f32(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).uniform(-2, 2, shape).astype(F32)


# -- every primitive, operands lying in every way ----------------------------------------------------------------
@every(CASES)
def test_primitive_equals_numpy(case: Case, cpu: CpuDevice) -> None:
    values = case.values()
    check(cpu, lambda *xs: bind_all(case.prim, *xs), *values)


def transposed(v: Any) -> tuple[Any, Callable[[Any], Any]]:
    """A base array, and what makes ``v`` of it as a view."""
    perm = tuple(range(v.ndim))[::-1]
    return np.ascontiguousarray(v.transpose(perm)).reshape(v.shape[::-1]), lambda x: transpose(x, perm)


def sliced(v: Any) -> tuple[Any, Callable[[Any], Any]]:
    base = np.zeros([2 * n + 1 for n in v.shape], v.dtype)
    inside = tuple([slice(1, 2 * n + 1, 2) for n in v.shape])
    base[inside] = v
    return base, lambda x: slice_(x, (1,) * v.ndim, [2 * n + 1 for n in v.shape], (2,) * v.ndim)


def reversed_(v: Any) -> tuple[Any, Callable[[Any], Any]]:
    axes = tuple(range(v.ndim))
    return np.ascontiguousarray(np.flip(v, axes)).reshape(v.shape), lambda x: reverse(x, axes)


def inside_a_row(v: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The operand at an odd offset behind something else."""
    base = np.zeros(v.size + 3, v.dtype)
    base[3:] = v.reshape(-1)
    return base, lambda x: reshape(slice_(x, (3,), (v.size + 3,), (1,)), v.shape)


LAYOUTS = {"transposed": transposed, "sliced": sliced, "reversed": reversed_, "offset": inside_a_row}


@pytest.mark.parametrize("layout", LAYOUTS)
@every([c for c in CASES if any(a.ndim for a in c.avals)])
def test_operands_may_be_views(case: Case, layout: str, cpu: CpuDevice) -> None:
    values = case.values()
    pairs = [LAYOUTS[layout](v) for v in values]
    bases = [b for b, _ in pairs]

    def fun(*xs: Any) -> Any:
        return bind_all(case.prim, *[make(x) for (_, make), x in zip(pairs, xs, strict=True)])

    graph = record(fun, *bases)
    compare(execute(cpu, graph, bases), case.prim.evaluate(*values))


@every([c for c in CASES if any(a.ndim for a in c.avals)])
def test_operands_may_be_broadcast(case: Case, cpu: CpuDevice) -> None:
    values = [v[:1] if v.ndim and v.shape[0] and dtypes.is_float(v.dtype) else v for v in case.values()]
    shapes = [a.shape for a in case.avals]

    def fun(*xs: Any) -> Any:
        ys = [x if x.shape == s else broadcast(x, s, tuple(range(len(s)))) for x, s in zip(xs, shapes, strict=True)]
        return bind_all(case.prim, *ys)

    check(cpu, fun, *values)


@every([c for c in CASES if c.prim.infer_all(*c.avals)[0].ndim > 1])
def test_results_may_become_views(case: Case, cpu: CpuDevice) -> None:
    def fun(*xs: Any) -> Any:
        y = bind_all(case.prim, *xs)[0]
        back = transpose(y, tuple(range(y.ndim))[::-1])
        return [back, reverse(y, (0,)), reshape(back, (y.size,)), y]

    check(cpu, fun, *case.values())


def test_outputs_of_every_kind(cpu: CpuDevice) -> None:
    x, y = f32(3, 4), f32(4)

    def fun(x: Any, y: Any) -> Any:
        s = add(x, 1.0)
        return [
            x, x, s, s, transpose(x, (1, 0)), reshape(s, (12,)), Literal(2.5, F32), y, iota((2, 3), 1, F32),
            broadcast(y, (2, 4), (1,)), slice_(x, (1, 0), (2, 4), (1, 1)), broadcast(Literal(3, I32), (2,), ()),
        ]  # fmt: skip

    check(cpu, fun, x, y)


def test_a_graph_without_equations_or_operands(cpu: CpuDevice) -> None:
    check(cpu, lambda: [Literal(1.0, F32)])
    check(cpu, lambda x: [], f32(2))
    check(cpu, lambda x: [x], f32(0, 3))
    check(cpu, list)


@pytest.mark.parametrize("rank", range(9))
def test_any_rank(rank: int, cpu: CpuDevice) -> None:
    shape = (2, 3, 1, 2, 2, 1, 3, 2)[:rank]
    perm = tuple(range(rank))[::-1]

    def fun(x: Any, y: Any) -> Any:
        z = add(transpose(x, perm), y)
        dot = apply("dot_general", z, z, lhs_contract=perm[:2], rhs_contract=perm[:2], lhs_batch=(), rhs_batch=())
        return [z, apply("reduce_sum", z, axes=tuple(range(0, rank, 2))), dot]

    check(cpu, fun, f32(*shape), f32(*shape[::-1], seed=1))


@pytest.mark.parametrize("amount", [(0, 0), (2, 1), (-2, 3), (5, -2), (-2, -1), (-3, 2)])
def test_padding_of_large_and_small_arrays(amount: tuple[int, int], cpu: CpuDevice) -> None:
    for shape in ((3, 7), (200, 150)):
        for interior in (0, 2):
            low, high = (amount[0], 1), (amount[1], 0)
            check(cpu, lambda x, low=low, high=high, i=interior: [pad(x, 7.0, low, high, (i, 0))], f32(*shape))


def test_special_values_survive_views_and_copies(cpu: CpuDevice) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-42, 3.4e38], F32)
    (got,) = execute(cpu, record(lambda x: [reverse(x, (0,))], x), [x])
    np.testing.assert_array_equal(got.view(np.uint32)[1:], x[::-1].view(np.uint32)[1:])


# -- groups ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Group(Primitive):
    """What the fusing pass makes: a graph of pointwise equations that runs as one node."""

    graph: Graph
    multiple = True

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        return tuple([a.aval for a in self.graph.outputs])

    def eval(self, *xs: Any) -> Any:
        narrow = [dtypes.narrow(x, v.aval.dtype) for x, v in zip(xs, self.graph.inputs, strict=True)]
        return [dtypes.widen(o) for o in evaluate(self.graph, narrow)]


Group.name = "fused"  # set afterwards, so that it is not registered


def fused(cpu: CpuDevice, fun: Callable[..., Sequence[Any]], *values: Any) -> Executable:
    inner = record(fun, *values)
    ins = [Var(v.aval) for v in inner.inputs]
    outs = [Var(a.aval) for a in inner.outputs]
    graph = Graph(ins, [Equation(Group(inner), ins, outs)], outs)
    compare(execute(cpu, graph, values), evaluate(inner, values))
    return cpu.build(graph)


def test_a_group_is_one_node(cpu: CpuDevice) -> None:
    def fun(x: Any, b: Any, s: Any) -> Any:
        z = add(mul(x, broadcast(b, x.shape, (1,))), s)
        y = maximum(z, 0.0)
        return [y, apply("gt", z, 0.0), apply("exp", neg(y)), apply("convert", z, to=I32)]

    exe = fused(cpu, fun, f32(5, 7), f32(7), f32())
    assert len(exe.plan.nodes) == 1


def test_a_group_moves_strides_and_computes_on_scalars(cpu: CpuDevice) -> None:
    def fun(x: Any, y: Any, s: Any) -> Any:
        t = broadcast(apply("exp", mul(s, 2.0)), (4, 3), ())
        return [add(mul(transpose(x, (1, 0)), reverse(y, (0,))), t), sub(slice_(y, (0, 0), (4, 3), (1, 1)), t)]

    assert len(fused(cpu, fun, f32(3, 4), f32(4, 3), f32()).plan.nodes) == 1


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_a_group_rounds_where_single_equations_do(dtype: Any, cpu: CpuDevice) -> None:
    x = dtypes.narrow(np.linspace(0.001, 3, 300), dtype)
    inner = record(lambda x: [mul(add(x, 1.0), 3.0), sub(mul(x, x), x)], x)
    ins, outs = [Var(inner.inputs[0].aval)], [Var(a.aval) for a in inner.outputs]
    group = Graph(ins, [Equation(Group(inner), ins, outs)], outs)
    for a, b, c in zip(execute(cpu, group, [x]), execute(cpu, inner, [x]), evaluate(inner, [x]), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize("seed", range(40))
def test_random_groups(seed: int, cpu: CpuDevice) -> None:
    rng = random.Random(seed)

    def fun(*xs: Any) -> Any:
        alive = list(xs)
        for _ in range(rng.randint(1, 60)):
            x, y = rng.choice(alive), rng.choice(alive)
            op = rng.choice(["add", "sub", "mul", "max", "min", "tanh", "mul_nz", "div_nz", "square", "select"])
            if op in ("tanh", "square"):
                made = apply("tanh", x) if op == "tanh" else apply("tanh", apply("square", x))
            elif op == "select":
                made = apply("select", apply("lt", x, y), x, mul(y, 0.5))
            elif op == "div_nz":
                made = apply("div_nz", x, add(apply("square", y), 1.0))
            else:
                made = apply("tanh", apply(op, x, y))
            alive.append(made)
        return alive[-3:]

    exe = fused(cpu, fun, f32(33, seed=1), f32(33, seed=2), f32(33, seed=3))
    assert len(exe.plan.nodes) == 1


# -- control flow ------------------------------------------------------------------------------------------------
def scan_of(fun: Callable[..., Any], n_const: int, n_carry: int, length: int, reverse: bool, *values: Any) -> Graph:
    """A graph of one scan: ``values`` are constants, carries, then stacked xs."""
    rows = [v[0] if i >= n_const + n_carry else v for i, v in enumerate(values)]
    body = record(fun, *rows)
    return record(lambda *xs: bind_all(Scan(body, n_const, n_carry, length, reverse), *xs), *values)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5, 6])
def test_scan(length: int, reverse: bool, cpu: CpuDevice) -> None:
    def body(w: Any, h: Any, n: Any, x: Any, y: Any) -> Any:
        dot = apply("dot_general", w, h, lhs_contract=(1,), rhs_contract=(0,), lhs_batch=(), rhs_batch=())
        new = apply("tanh", add(dot, x))
        return [new, add(n, 1), mul(new, y), n, h]

    values = (f32(4, 4), f32(4), np.int32(3).reshape(()), f32(length, 4), f32(length))
    graph = scan_of(body, 1, 2, length, reverse, *values)
    compare(execute(cpu, graph, values), evaluate(graph, values))


def test_scan_carries_of_every_kind(cpu: CpuDevice) -> None:
    """Updated in place, passed through, exchanged, read after the write, a literal."""

    def body(c: Any, a: Any, b: Any, e: Any, f: Any, g: Any, x: Any) -> Any:
        new = add(a, x)
        return [new, b, f, e, Literal(1.5, F32), add(a, new), add(c, e)]

    values = (f32(3), f32(3), f32(3), f32(3), f32(3), f32(), f32(4, 3))
    graph = scan_of(body, 1, 5, 4, False, *values)
    compare(execute(cpu, graph, values), evaluate(graph, values))
    compare(execute(cpu, graph, values, frozenset(range(7))), evaluate(graph, values))


def test_scan_over_views_nothing_and_no_steps(cpu: CpuDevice) -> None:
    body = record(lambda c, x: [add(c, apply("reduce_sum", x, axes=(0,))), mul(x, 2.0)], f32(), f32(3))

    def fun(c: Any, x: Any) -> Any:
        return bind_all(Scan(body, 0, 1, 4), c, transpose(x, (1, 0)))

    check(cpu, fun, f32(), f32(3, 4))
    empty = record(lambda c, x: [c, x], f32(), f32(0))
    check(cpu, lambda c, x: bind_all(Scan(empty, 0, 1, 3), c, x), f32(), f32(3, 0))
    check(cpu, lambda c, x: bind_all(Scan(body, 0, 1, 0), c, x), f32(), f32(0, 3))


def test_nested_scans(cpu: CpuDevice) -> None:
    inner = record(lambda k, c, x: [add(mul(c, k), x), c], f32(), f32(2), f32(2))
    outer = record(lambda k, c, x: bind_all(Scan(inner, 1, 1, 3), k, c, x), f32(), f32(2), f32(3, 2))
    check(cpu, lambda k, c, x: bind_all(Scan(outer, 1, 1, 4), k, c, x), f32(), f32(2), f32(4, 3, 2))


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_cond(index: int, cpu: CpuDevice) -> None:
    x, y = f32(5), f32(5, seed=1)
    branches = (
        record(lambda x, y: [add(x, y), x], x, y),
        record(lambda x, y: [neg(y), y], x, y),
        record(lambda x, y: [apply("exp", mul(x, y)), broadcast(Literal(1, F32), (5,), ())], x, y),
    )
    check(cpu, lambda i, x, y: bind_all(Cond(branches), i, x, y), np.int32(index).reshape(()), x, y)


@pytest.mark.parametrize("start", [0, 1, 4, 5, 100])
def test_while(start: int, cpu: CpuDevice) -> None:
    i, x, w = np.int32(start).reshape(()), f32(3), f32(3)
    cond = record(lambda n, i, x, y: [apply("lt", i, n)], i, i, x, x)
    body = record(lambda w, i, x, y: [add(i, 1), add(mul(y, w), 1.0), x], w, i, x, x)
    limit = np.int32(5).reshape(())
    check(cpu, lambda n, w, i, x, y: bind_all(While(cond, body, 1, 1), n, w, i, x, y), limit, w, i, x, f32(3, seed=2))


# -- the eager path ----------------------------------------------------------------------------------------------
def test_one_primitive_at_a_time_does_not_compile_for_each_literal(cpu: CpuDevice) -> None:
    prim = apply.__globals__["REGISTRY"]["add"]()
    aval = Aval((3,), F32)
    x = cpu.put(f32(3))
    cpu.clear_cache()
    for k in range(5):
        (out,) = cpu.run_primitive(prim, [x, Literal(float(k), F32)], [aval, Aval((), F32)], [aval])
        np.testing.assert_array_equal(cpu.get(out, aval), f32(3) + np.float32(k))
    assert len(cpu._eager) == 1


def test_emission_is_linear(cpu: CpuDevice) -> None:
    """Twenty thousand equations lower and plan; each is one node."""

    def fun(x: Any) -> Any:
        for k in range(10_000):
            x = add(mul(x, 0.5), float(k % 7))
        return [x]

    x = f32(8)
    graph = record(fun, x)
    plan = Emitter().lower(graph)
    assert len(plan.nodes) == 20_000 and plan.temp_bytes == 0
