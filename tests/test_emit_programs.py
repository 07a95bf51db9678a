"""Programs on the CPU: host functions, donation, memory, threads, forks."""

from __future__ import annotations

import gc
import multiprocessing
import random
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cpu_graphs import check, compare, evaluate, record
from test_emit import F32, I32, f32

from funcgrad import dtypes
from funcgrad.control.loops import Scan
from funcgrad.errors import DeviceError
from funcgrad.ir import Aval, Graph, Literal
from funcgrad.primitive import Primitive, apply
from funcgrad.prims.layout import broadcast, reverse, slice_, transpose
from funcgrad.prims.order import Argsort, Sort
from funcgrad.prims.pointwise import add, mul, neg, sub
from funcgrad.runtime.cpu import CpuDevice
from funcgrad.runtime.execute import Executable
from funcgrad.trace import bind_all, trace

pytestmark = pytest.mark.ggml


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
