"""Lowering and execution on the CPU against the primitives' numpy references.

Every primitive under every example, with operands that lie in memory in every way a view can; groups of fused
equations; control flow; donation; threads, forks, callbacks and running out of memory.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from test_primitives import CASES, every

from funcgrad import dtypes
from funcgrad.control.branch import Cond
from funcgrad.control.loops import Scan, While
from funcgrad.errors import DeviceError
from funcgrad.ir import Aval, Equation, Graph, Literal, Var
from funcgrad.primitive import Primitive, apply
from funcgrad.prims.layout import broadcast, iota, pad, reshape, reverse, slice_, transpose
from funcgrad.prims.order import Argsort, Sort
from funcgrad.prims.pointwise import add, maximum, mul, neg, sub
from funcgrad.runtime import device
from funcgrad.runtime.cpu import CpuDevice
from funcgrad.runtime.emit import Emitter
from funcgrad.runtime.execute import Executable
from funcgrad.testing.cases import Case
from funcgrad.trace import bind_all, trace

pytestmark = pytest.mark.ggml

F32, I32 = dtypes.float32, dtypes.int32
TOLERANCE = {dtypes.float32: (4e-6, 2e-6), dtypes.float16: (2e-3, 1e-3), dtypes.bfloat16: (1.6e-2, 1e-2)}


@pytest.fixture(scope="module")
def cpu() -> CpuDevice:
    found = device.get("cpu")
    assert isinstance(found, CpuDevice)
    return found


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


# -- host functions ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class HostCopy(Primitive):
    """Calls a Python function."""

    fn: Any
    out: Aval
    multiple = True

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        return (self.out,)

    def eval(self, *xs: Any) -> Any:
        return self.fn(*xs)

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.host(self.fn, xs, [self.out])


def test_host_functions_in_a_graph_and_in_a_loop(cpu: CpuDevice) -> None:
    prim = HostCopy(lambda x: [np.linalg.inv(x)], Aval((3, 3), F32))
    x = f32(3, 3) + 4 * np.eye(3, dtype=F32)
    check(cpu, lambda x: [neg(bind_all(prim, transpose(x, (1, 0)))[0])], x)
    body = record(lambda c: [mul(bind_all(prim, c)[0], 0.5)], x)
    check(cpu, lambda x: bind_all(Scan(body, 0, 1, 4), x), x)


def test_an_exception_in_a_host_function_comes_out_and_the_next_run_is_right(cpu: CpuDevice) -> None:
    calls = []

    def fn(x: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt("stop here")
        return [x]

    prim = HostCopy(fn, Aval((3,), F32))
    body = record(lambda c: [add(bind_all(prim, c)[0], 1.0)], f32(3))
    graph = record(lambda x: bind_all(Scan(body, 0, 1, 4), x), f32(3))
    exe = cpu.build(graph)
    with pytest.raises(KeyboardInterrupt, match="stop here"):
        exe.run([cpu.put(f32(3))])
    (out,) = exe.run([cpu.put(f32(3))])
    np.testing.assert_allclose(cpu.get(out, Aval((3,), F32)), f32(3) + 4, rtol=1e-6)


def test_a_host_function_must_keep_its_promise_and_not_call_its_own_executable(cpu: CpuDevice) -> None:
    wrong = record(lambda x: bind_all(HostCopy(lambda x: [x[:2]], Aval((3,), F32)), x), f32(3))
    with pytest.raises(ValueError, match=r"callback: the result must have shape \(3,\), got \(2,\)"):
        cpu.build(wrong).run([cpu.put(f32(3))])
    box: list[Executable] = []
    inner = HostCopy(lambda x: [cpu.get(box[0].run([cpu.put(x)])[0], Aval((3,), F32))], Aval((3,), F32))
    box.append(cpu.build(record(lambda x: bind_all(inner, x), f32(3))))
    with pytest.raises(DeviceError, match="own callback"):
        box[0].run([cpu.put(f32(3))])


# -- donation ----------------------------------------------------------------------------------------------------
def update(p: Any, m: Any, g: Any) -> list[Any]:
    new_m = add(mul(m, 0.9), g)
    return [sub(p, mul(new_m, 0.1)), new_m]


def test_donated_arguments_are_updated_in_place(cpu: CpuDevice) -> None:
    values = [f32(50, 40, seed=i) for i in range(3)]
    graph = record(update, *values)
    exe = cpu.build(graph, frozenset({0, 1}))
    buffers = [cpu.put(v) for v in values]
    addresses = [b.ptr for b in buffers]
    outs = exe.run(buffers)
    assert [b.ptr for b in outs] == addresses[:2]
    assert exe.donated == {0, 1} and exe.donation == {0: "", 1: ""}
    aval = graph.outputs[0].aval
    compare([cpu.get(b, aval) for b in outs], evaluate(graph, values))
    np.testing.assert_array_equal(cpu.get(buffers[2], aval), values[2])
    assert exe.plan.temp_bytes <= 2 * 8000 + 128


def shuffled(graph: Graph, rng: random.Random) -> Graph:
    """The same equations in another order that keeps writes before reads."""
    left, known, order = list(graph.eqns), set(graph.inputs), []
    while left:
        ready = [e for e in left if all(isinstance(a, Literal) or a in known for a in e.inputs)]
        pick = rng.choice(ready)
        left.remove(pick)
        known.update(pick.outputs)
        order.append(pick)
    return Graph(graph.inputs, order, graph.outputs)


@pytest.mark.parametrize("seed", range(60))
def test_donation_is_right_in_every_order(seed: int, cpu: CpuDevice) -> None:
    """Parameters that are read again after their update was computed, exchanged, returned as they are, reversed."""
    rng = random.Random(seed)

    def fun(p: Any, q: Any, r: Any, g: Any) -> Any:
        late = apply("reduce_sum", mul(p, q), axes=(0,))
        new_p = sub(p, mul(g, 0.1))
        new_q = add(mul(reverse(q, (0,)), 0.5), transpose(new_p, (1, 0)))
        row = apply("dynamic_update_slice", r, slice_(p, (0, 0), (1, 8), (1, 1)), Literal(2, I32), Literal(0, I32))
        return [new_q, new_p, row, late, add(p, q), g, p]

    values = [f32(8, 8, seed=seed + i) for i in range(4)]
    graph = shuffled(record(fun, *values), rng)
    donate = frozenset(rng.sample(range(4), rng.randint(1, 4)))
    exe = cpu.build(graph, donate)
    outs = exe.run([cpu.put(v) for v in values])
    compare([cpu.get(b, a.aval) for b, a in zip(outs, graph.outputs, strict=True)], evaluate(graph, values))
    assert set(exe.donation) == donate
    assert len({b.ptr for b in outs}) == len(outs)


def test_a_donated_buffer_that_numpy_looks_at_is_not_written(cpu: CpuDevice) -> None:
    x = f32(10)
    exe = cpu.build(record(lambda x: [add(x, 1.0)], x), frozenset({0}))
    aval = Aval((10,), F32)
    b = cpu.put(x)
    first = cpu.get(b, aval)
    second = cpu.get(b, aval)
    del first
    (out,) = exe.run([b])
    np.testing.assert_array_equal(second, x)
    np.testing.assert_array_equal(cpu.get(out, aval), x + 1)
    del second
    b = cpu.put(x)
    cpu.get(b, aval)
    gc.collect()
    (out,) = exe.run([b])
    assert out is b


def test_memory_that_belongs_to_numpy_is_not_written(cpu: CpuDevice) -> None:
    x = f32(11)[1:]  # four bytes off
    exe = cpu.build(record(lambda x: [add(x, 1.0)], x), frozenset({0}))
    b = cpu.wrap(x)
    assert b.ptr == x.__array_interface__["data"][0]
    before = x.copy()
    (out,) = exe.run([b])
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(cpu.get(out, Aval((10,), F32)), before + 1)


def test_one_buffer_given_twice_and_donated(cpu: CpuDevice) -> None:
    x = f32(10)
    exe = cpu.build(record(lambda x, y: [add(x, 1.0), mul(y, 2.0)], x, x), frozenset({0, 1}))
    b = cpu.put(x)
    one, two = exe.run([b, b])
    compare([cpu.get(one, Aval((10,), F32)), cpu.get(two, Aval((10,), F32))], [x + 1, x * 2])


# -- memory ------------------------------------------------------------------------------------------------------
def test_results_belong_to_the_caller_and_nothing_leaks(cpu: CpuDevice) -> None:
    x = f32(1000)
    exe = cpu.build(record(lambda x: [add(x, 1.0), apply("exp", x)], x))
    b = cpu.put(x)
    gc.collect()
    before = cpu.bytes_in_use
    kept = [exe.run([b]) for _ in range(5)]
    assert cpu.bytes_in_use == before + 5 * 2 * 4000
    np.testing.assert_array_equal(cpu.get(kept[0][0], Aval((1000,), F32)), x + 1)
    kept.clear()
    gc.collect()
    assert cpu.bytes_in_use == before


def test_the_plan_knows_what_a_run_takes(cpu: CpuDevice) -> None:
    """Seen from inside the run: a host function measures what is in use."""
    seen: list[int] = []

    def probe(x: Any) -> Any:
        seen.append(cpu.bytes_in_use)
        return [x]

    prim = HostCopy(probe, Aval((), F32))

    def fun(x: Any) -> Any:
        y = transpose(apply("exp", x), (1, 0))
        z = apply("dot_general", x, y, lhs_contract=(1,), rhs_contract=(1,), lhs_batch=(), rhs_batch=())
        return [add(z, y), bind_all(prim, apply("reduce_sum", z, axes=(0, 1)))[0]]

    x = f32(64, 64)
    exe = cpu.build(record(fun, x))
    gc.collect()
    before = cpu.bytes_in_use
    b = cpu.put(x)
    exe.run([b])
    assert seen[0] - before == exe.plan.peak_bytes
    assert exe.plan.argument_bytes == 16384 and exe.plan.output_bytes == 16388


def test_out_of_memory_is_an_error_with_the_numbers(cpu: CpuDevice) -> None:
    huge = Aval((2**15, 2**15), F32)
    graph = trace(lambda x: [broadcast(x, (300_000, 7000), ())], [Aval((), F32)]).graph
    assert huge.nbytes == 2**32
    many = Graph(graph.inputs, graph.eqns, graph.outputs * 3000)
    exe = cpu.build(many)
    before = cpu.bytes_in_use
    with pytest.raises(DeviceError, match=r"cpu: out of memory, got 25,\d+,\d+,\d+,\d+ bytes asked for"):
        exe.run([cpu.put(f32())])
    gc.collect()
    assert cpu.bytes_in_use == before


def test_a_sort_writes_only_what_is_read(cpu: CpuDevice) -> None:
    x = f32(50, 3)
    both = cpu.build(record(lambda x: [*bind_all(Sort(0), x), *bind_all(Argsort(0), x)], x))
    one = cpu.build(record(lambda x: bind_all(Argsort(0), x), x))
    assert [n.name for n in one.plan.nodes] == ["sort"] and one.plan.temp_bytes == 0
    got = [cpu.get(b, a.aval) for b, a in zip(both.run([cpu.put(x)]), both.plan.outputs, strict=True)]
    np.testing.assert_array_equal(got[0], np.sort(x, 0))
    np.testing.assert_array_equal(got[1], np.argsort(x, 0, kind="stable"))
    (only,) = one.run([cpu.put(x)])
    np.testing.assert_array_equal(cpu.get(only, Aval((50, 3), I32)), got[1])


def test_bytes_that_are_not_bools(cpu: CpuDevice) -> None:
    odd = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    graph = record(lambda b: [apply("eq", b, Literal(True, dtypes.bool_)), apply("convert", b, to=I32)], odd)
    exe = cpu.build(graph)
    for put in (cpu.put, cpu.wrap):
        got = [cpu.get(b, a.aval) for b, a in zip(exe.run([put(odd)]), graph.outputs, strict=True)]
        np.testing.assert_array_equal(got[0], [False, True, True, True])
        np.testing.assert_array_equal(got[1], [0, 1, 1, 1])


def test_a_profile_has_every_node(cpu: CpuDevice) -> None:
    x = f32(64, 64)
    exe = cpu.build(record(lambda x: [apply("exp", transpose(x, (1, 0))), add(x, 1.0)], x), frozenset({0}))
    b = cpu.put(x)
    rows = exe.profile([b], 3)
    assert [r.kind for r in rows] == ["map"] * exe.n_nodes and all(r.seconds > 0 for r in rows)
    np.testing.assert_array_equal(cpu.get(b, Aval((64, 64), F32)), x)


# -- threads and processes ---------------------------------------------------------------------------------------
def test_two_threads_run_one_executable_and_another(cpu: CpuDevice) -> None:
    x = f32(200, 200)
    exes = [cpu.build(record(lambda x, k=k: [apply("tanh", add(mul(x, k), 1.0))], x)) for k in (0.5, 2.0)]
    want = [np.tanh(x * np.float32(k) + np.float32(1)) for k in (0.5, 2.0)]
    errors: list[str] = []

    def work(k: int) -> None:
        for n in range(60):
            which = (k + n) % 2 if k < 2 else k % 2
            (out,) = exes[which].run([cpu.put(x)])
            if not np.allclose(cpu.get(out, Aval((200, 200), F32)), want[which], rtol=1e-5, atol=1e-6):
                errors.append(f"thread {k}, run {n}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def _child(exe: Executable, cpu: CpuDevice, x: Any, queue: Any) -> None:
    (out,) = exe.run([cpu.put(x)])
    queue.put(cpu.get(out, Aval(x.shape, F32)).copy())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_runs(cpu: CpuDevice) -> None:
    x = f32(300, 300)
    exe = cpu.build(record(lambda x: [apply("exp", x)], x))
    exe.run([cpu.put(x)])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(exe, cpu, x, queue))
    child.start()
    got = queue.get(timeout=60)
    child.join(timeout=60)
    assert child.exitcode == 0
    np.testing.assert_allclose(got, np.exp(x), rtol=2e-6)


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
