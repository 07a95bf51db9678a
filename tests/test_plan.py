"""The planner: living buffers share no memory, donated arguments are written after their last read, sizes are exact.

Plans are checked by running them: every buffer's bytes in a simulated memory carry the name of what was last written
there.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.runtime import release
from funcgrad.runtime.plan import ALIGN, Buf, Node, Plan, make_plan
from funcgrad.runtime.release import RELEASE

SIZES = (16, 64, 100, 256, 1000)


def buf(n: int = 16, kind: str = "temp", index: int = -1) -> Buf:
    return Buf(Aval((n,), dtypes.float32), kind, index)


def inputs(*sizes: int) -> list[Buf]:
    return [buf(n, "input", i) for i, n in enumerate(sizes)]


def op(out: Buf, *xs: Buf, reuse: bool = True, copies: bool = False) -> Node:
    """A node that writes ``out`` from ``xs``, over any of them that has its size."""
    operands = list(dict.fromkeys((*xs, out)))
    to = operands.index(out)
    pairs = [(i, to) for i, x in enumerate(operands[:to]) if reuse and x.nbytes == out.nbytes]
    return Node(0, [], operands, [to], pairs, copies)


def copy(src: Buf, dst: Buf) -> Node:
    return op(dst, src, copies=True)


def run(plan: Plan) -> None:
    """Execute a plan on named memory; fail when a read finds anything but what its buffer was last given."""
    n_in = len(plan.inputs)
    memory: dict[Any, Any] = {}  # (bound number or "ws", byte): name of the value there
    value: dict[Buf, Any] = {}

    def places(b: Buf) -> list[tuple[Any, int]]:
        st = b.storage
        assert st is not None
        if st.bound >= 0:
            return [(st.bound, k) for k in range(0, b.nbytes, 4)]
        assert st.offset >= 0 and st.offset % ALIGN == 0 and st.offset + b.nbytes <= plan.temp_bytes
        return [("ws", st.offset + k) for k in range(0, b.nbytes, 4)]

    def read(b: Buf) -> None:
        for p in places(b):
            assert memory[p] == value[b], f"{b.kind} {b.index} was overwritten"

    def write(b: Buf, v: Any) -> None:
        value[b] = v
        memory.update(dict.fromkeys(places(b), v))

    for i, b in enumerate(plan.inputs):
        write(b, ("in", i))
    for n, node in enumerate(plan.nodes):
        written = [node.operands[w] for w in node.writes]
        for b in node.operands:
            if b in value:
                read(b)
        if node.elided:
            src, dst = node.operands
            assert src.storage is dst.storage
            write(dst, value[src])
            continue
        shared = {(id(node.operands[s]), id(node.operands[d])) for s, d in node.reuse}
        for d in written:
            for b in node.operands:
                if b is not d and set(places(b)) & set(places(d)):
                    assert (id(b), id(d)) in shared, "memory shared against the node's will"
                    assert places(b) == places(d)
        for d in written:
            write(d, n)
        for e in [e for e in plan.events if e.node == n]:
            if e.what == RELEASE:
                memory.update(dict.fromkeys([("ws", e.number + k) for k in range(0, e.nbytes, 4)], "released"))
            else:  # what is written earlier would not be counted
                assert plan.outputs[e.number] not in value or plan.outputs[e.number] in written
    for j, b in enumerate(plan.outputs):
        read(b)
        st = b.storage
        assert st is not None
        assert st.bound == plan.alias.get(j, n_in + j)
    for i, b in enumerate(plan.inputs):
        if i not in plan.alias.values():
            read(b)


def random_program(rng: random.Random) -> tuple[list[Node], list[Buf], list[Buf], frozenset[int]]:
    args = inputs(*[rng.choice(SIZES) for _ in range(rng.randint(1, 5))])
    alive: list[Buf] = list(args)
    nodes: list[Node] = []
    for _ in range(rng.randint(1, 40)):
        xs = rng.sample(alive, min(len(alive), rng.randint(1, 3)))
        size = rng.choice([x.nbytes // 4 for x in xs] + [rng.choice(SIZES)])
        out = buf(size)
        if rng.random() < 0.2:
            out = buf(xs[0].nbytes // 4)
            nodes.append(copy(xs[0], out))
        if rng.random() < 0.15:  # several writers of parts
            nodes.append(op(out, xs[0], reuse=False))
        nodes.append(op(out, *xs, reuse=rng.random() < 0.8))
        alive.append(out)
        if rng.random() < 0.3 and len(alive) > 4:
            alive.pop(rng.randrange(len(alive)))
    made = [b for b in alive if b.kind == "temp"]
    outs: list[Buf] = []
    donate = frozenset(i for i in range(len(args)) if rng.random() < 0.6)
    for j, b in enumerate(rng.sample(made, min(len(made), rng.randint(1, 5)))):
        b.kind, b.index = "output", j
        outs.append(b)
    if donate and rng.random() < 0.3:
        outs.append(args[min(donate)])
    return nodes, args, outs, donate


@pytest.mark.parametrize("slack", [0, 1 << 10, 1 << 20])
@pytest.mark.parametrize("seed", range(300))
def test_random_programs_never_read_what_was_overwritten(seed: int, slack: int) -> None:
    nodes, args, outs, donate = random_program(random.Random(seed))
    plan = make_plan(nodes, args, outs, donate, make_copy=copy, slack=slack)
    run(plan)
    assert set(plan.donation) == donate
    for i, why in plan.donation.items():
        assert (why == "") == (i in plan.alias.values())
    live = plan.live_at()
    floor = plan.argument_bytes + plan.output_bytes - plan.alias_bytes
    assert all(floor <= x <= plan.peak_bytes for x in live)


@pytest.mark.parametrize("seed", range(300))
def test_what_is_released_is_never_read_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "LEAST", 1)
    monkeypatch.setattr(release, "LEAST_GAIN", 0)
    nodes, args, outs, donate = random_program(random.Random(seed))
    plan = make_plan(nodes, args, outs, donate, make_copy=copy)
    most = plan.peak_bytes
    plan.events = release.released(plan)
    run(plan)
    assert max(plan.live_at(), default=0) <= plan.peak_bytes <= most
    ends = [e.number + e.nbytes for e in plan.events if e.what == RELEASE]
    assert all(e <= plan.temp_bytes for e in ends)
    assert sum(e.nbytes for e in plan.events if e.what == RELEASE) <= plan.temp_bytes


def test_layers_values_go_as_their_gradients_come() -> None:
    """Values of 4 MiB are needed once more, in reverse, each for a result of 4 MiB."""
    x, n = buf(1 << 20, "input", 0), 12
    values = [buf(1 << 20) for _ in range(n)]
    nodes = [op(v, x, reuse=False) for v in values]
    outs = [buf(1 << 20, "output", j) for j in range(n)]
    nodes += [op(o, v, reuse=False) for o, v in zip(outs, reversed(values), strict=True)]
    plan = make_plan(nodes, [x], outs)
    assert plan.peak_bytes == (1 + 2 * n) << 22
    plan.events = release.released(plan)
    assert plan.peak_bytes == (2 + n) << 22
    assert max(plan.live_at()) == plan.peak_bytes


def test_the_simulation_finds_a_wrong_plan() -> None:
    x, a, b = buf(16, "input", 0), buf(16), buf(16, "output", 0)
    nodes = [op(a, x, reuse=False), op(b, x, a, reuse=False)]
    plan = make_plan(nodes, [x], [b])
    run(plan)
    a.storage = x.storage  # the first node now overwrites an argument that the second still reads
    with pytest.raises(AssertionError, match=r"overwritten|against"):
        run(plan)


def test_a_chain_lives_in_its_result() -> None:
    x = buf(1000, "input", 0)
    chain = [buf(1000) for _ in range(9)] + [buf(1000, "output", 0)]
    nodes = [op(b, a) for a, b in zip([x, *chain], chain, strict=False)]
    plan = make_plan(nodes, [x], [chain[-1]])
    run(plan)
    assert plan.temp_bytes == 0
    assert plan.peak_bytes == 8000


def test_a_donated_argument_is_updated_in_place() -> None:
    p, g = inputs(256, 256)
    step, new = buf(256), buf(256, "output", 0)
    plan = make_plan([op(step, g), op(new, p, step)], [p, g], [new], frozenset({0}), make_copy=copy)
    run(plan)
    assert plan.alias == {0: 0} and plan.donation == {0: ""}
    assert new.storage is p.storage
    assert plan.peak_bytes == 3 * 1024


def test_a_late_read_sends_the_result_through_the_workspace() -> None:
    (p,) = inputs(256)
    new, late = buf(256, "output", 0), buf(64, "output", 1)
    nodes = [op(new, p), op(late, p, reuse=False)]
    plan = make_plan(nodes, [p], [new, late], frozenset({0}), make_copy=copy)
    run(plan)
    assert plan.alias == {0: 0} and plan.temp_bytes == 1024
    assert len(plan.nodes) == 3 and not plan.nodes[-1].elided


def test_a_node_that_may_not_share_memory_does_not_write_over_its_operand() -> None:
    (p,) = inputs(256)
    new = buf(256, "output", 0)
    plan = make_plan([op(new, p, reuse=False)], [p], [new], frozenset({0}), make_copy=copy)
    run(plan)
    assert len(plan.nodes) == 2


def test_donations_that_cannot_be_honoured_say_why() -> None:
    p, q, r = inputs(64, 64, 100)
    new = buf(64, "output", 0)
    plan = make_plan([op(new, p, q, r)], [p, q, r], [new], frozenset({0, 1, 2}), make_copy=copy)
    assert plan.donation[0] == ""
    assert "another donated argument" in plan.donation[1]
    assert "f32[100]" in plan.donation[2]


def test_a_donated_argument_returned_as_it_is_stays_where_it_is() -> None:
    (p,) = inputs(64)
    plan = make_plan([], [p], [p], frozenset({0}), make_copy=copy)
    run(plan)
    assert plan.alias == {0: 0} and not plan.nodes and plan.peak_bytes == 256


def test_a_copy_in_place_is_not_run() -> None:
    (x,) = inputs(64)
    t, out = buf(64), buf(64, "output", 0)
    update = Node(0, [], [out], [0])
    plan = make_plan([op(t, x), copy(t, out), update], [x], [out])
    run(plan)
    assert [n.elided for n in plan.nodes] == [False, True, False]


def test_nodes_that_nobody_needs_are_dropped() -> None:
    (x,) = inputs(64)
    dead, effect, out = buf(64), buf(64), buf(64, "output", 0)
    kept = op(effect, x)
    kept.keep = True
    plan = make_plan([op(dead, x), kept, op(out, x)], [x], [out])
    assert len(plan.nodes) == 2


def test_pairs_never_copy() -> None:
    a, b = inputs(64, 64)
    to_a, to_b = buf(64, "output", 0), buf(64, "output", 1)
    plan = make_plan([copy(b, to_a), copy(a, to_b)], [a, b], [to_a, to_b], pairs={0: 0, 1: 1})
    run(plan)
    assert plan.alias == {1: 1}  # the first would overwrite what the second reads
    assert len(plan.nodes) == 2


def test_memory_is_used_again() -> None:
    (x,) = inputs(1000)
    a, b, c = buf(1000), buf(1000), buf(16, "output", 0)
    nodes = [op(a, x), op(b, a, reuse=False), op(c, b, reuse=False)]
    d = buf(1000)
    plan = make_plan([*nodes[:2], op(d, b, reuse=False), op(c, d, reuse=False)], [x], [c])
    run(plan)
    assert plan.temp_bytes == 2 * 4032  # 4000 bytes, aligned
    assert max(plan.live_at()) == 4000 + 64 + 2 * 4000


def test_the_table_has_every_buffer() -> None:
    (x,) = inputs(64)
    t, out = buf(100), buf(64, "output", 0)
    plan = make_plan([op(t, x), op(out, t)], [x], [out])
    rows = {r.kind: r for r in plan.rows}
    assert (rows["input"].first, rows["input"].last) == (-1, 2)
    assert (rows["temp"].first, rows["temp"].last, rows["temp"].nbytes) == (0, 1, 400)
    assert rows["output"].first == 1
