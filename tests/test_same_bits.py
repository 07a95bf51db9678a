"""Results are the same to the bit: with fusion and without, on any number of threads, from run to run and from process
to process; and what an import takes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_fusion import same
from test_primitives import PRIMITIVES

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.ir import Graph
from funcgrad.passes.pipeline import prepare
from funcgrad.passes.reverse import vjp_graph
from funcgrad.prims.pointwise import add, mul
from funcgrad.runtime import device, ggml
from funcgrad.testing.cases import Case, cases_of, record, wrt
from funcgrad.trace import replay, trace

F32 = np.float32
SMOOTH = [c for _, cls in sorted(PRIMITIVES.items()) for c in cases_of(cls) if c.differentiable]


def on_cpu(graph: Graph, values: Sequence[Any]) -> list[Any]:
    cpu: Any = device.get("cpu")
    outs = cpu.build(graph, frozenset()).run([cpu.put(v) for v in values])
    return [np.array(cpu.get(b, a.aval)) for b, a in zip(outs, graph.outputs, strict=True)]


# -- fusion on and off -------------------------------------------------------------------------------------------
@pytest.mark.ggml
@pytest.mark.parametrize("case", SMOOTH, ids=[c.id for c in SMOOTH])
def test_fusion_changes_no_bit_of_a_gradient(case: Case) -> None:
    """The primitive between other pointwise ones, so that there is something to fuse with; its gradient.

    But sums of rows, which add in another order.
    """
    values = case.values()
    inner = record(case.prim, values)

    def around(*xs: Any) -> Any:
        xs = tuple([mul(x, 1) if x.aval.dtype == F32 else x for x in xs])
        outs = replay(inner, xs)
        return [add(mul(o, o), o) if o.aval.dtype == F32 else o for o in outs]

    graph = trace(around, list(inner.in_avals)).graph
    derived = vjp_graph(graph, wrt(graph))
    rng = np.random.default_rng(0)
    cts = [rng.normal(size=v.aval.shape).astype(v.aval.dtype) for v in derived.inputs[len(values) :]]
    graphs = [prepare(derived, fused=f) for f in (True, False)]
    with_fusion, without = [on_cpu(g, [*values, *cts]) for g in graphs]
    if any(e.prim.name == "fused_rows" for e in graphs[0].eqns):
        for a, b in zip(with_fusion, without, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max(initial=0))
    else:
        same(with_fusion, without)


# -- threads, runs, processes ------------------------------------------------------------------------------------
def normal(*shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(sum(shape)).normal(size=shape) * scale).astype(F32)


def dense(p: Any, x: Any) -> Any:
    for w, b in p:
        x = fg.nn.relu(x @ w + b)
    return fg.nn.logsumexp(x, -1).mean()


def attention(p: Any, x: Any) -> Any:
    q, k, v = [(x @ w).reshape(4, 128, 4, 16) for w in p]
    s = fnp.einsum("bqhd,bkhd->bhqk", q, k)
    s = fnp.where(fnp.tril(fnp.ones((128, 128), bool)), s, -np.inf)
    return (fnp.einsum("bhqk,bkhd->bqhd", fg.nn.softmax(s), v) ** 2).sum()


def recurrent(p: Any, xs: Any) -> Any:
    w, u = p
    return (fg.lax.scan(lambda h, x: (fnp.tanh(x @ u + h @ w),) * 2, fnp.zeros((32, 64)), xs)[1] ** 2).mean()


def conv(p: Any, x: Any) -> Any:
    y = fg.lax.conv_general_dilated(x, p, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return fg.lax.reduce_window(fg.nn.gelu(y), -np.inf, fg.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").mean()


def orders(p: Any, x: Any) -> Any:
    return (
        (fnp.cumsum(fnp.sort(x * p, -1), 0) * fnp.argsort(x, 0)).mean()
        + fnp.max(x * p, 0).sum()
        + p[x.argmax(0) % 8].sum()
    )


MODELS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, Any]]]] = {
    "dense": (dense, lambda: ([(normal(300, 300, scale=0.1), normal(300)) for _ in range(3)], normal(500, 300))),
    "attention": (attention, lambda: ([normal(64, 64, scale=0.1) for _ in range(3)], normal(4, 128, 64))),
    "recurrent": (recurrent, lambda: ([normal(64, 64, scale=0.1), normal(16, 64)], normal(50, 32, 16))),
    "conv": (conv, lambda: (normal(3, 3, 3, 16), normal(8, 32, 32, 3))),
    "orders": (orders, lambda: (normal(2000), normal(300, 2000))),
}


def train(name: str) -> list[Any]:
    """Four Adam steps; parameters and losses."""
    loss, make = MODELS[name]
    with fg.default_device("cpu"):
        p, x = fg.tree.map(fnp.asarray, make())
        tx = fg.optim.chain(fg.optim.clip_by_global_norm(1.0), fg.optim.adam(1e-2))

        @fg.jit
        def step(p: Any, s: Any, x: Any) -> Any:
            value, g = fg.value_and_grad(loss)(p, x)
            u, s = tx.update(g, s, p)
            return fg.optim.apply_updates(p, u), s, value

        s, losses = tx.init(p), []
        for _ in range(4):
            p, s, value = step(p, s, x)
            losses.append(value)
        return [np.array(a) for a in fg.tree.leaves((p, losses))]


def digest(name: str) -> str:
    return hashlib.sha256(b"".join(a.tobytes() for a in train(name))).hexdigest()


@pytest.mark.ggml
@pytest.mark.parametrize("name", MODELS)
def test_bits_do_not_depend_on_the_number_of_threads(name: str) -> None:
    lib = ggml.load().lib
    try:
        found = []
        for n in (1, 2, 3, 7):
            lib.fg_set_threads(n)
            found.append(digest(name))
    finally:
        lib.fg_set_threads(0)
    assert len(set(found)) == 1


@pytest.mark.ggml
def test_bits_are_the_same_in_every_process() -> None:
    """The order of sets of strings and the addresses of objects differ between these."""
    code = "import test_same_bits as t; print(*[t.digest(n) for n in t.MODELS])"
    here = str(Path(__file__).parent)
    found = [digest(n) for n in MODELS]
    for seed in ("1", "2"):
        env = dict(
            os.environ, PYTHONHASHSEED=seed, PYTHONPATH=os.pathsep.join([here, str(Path(fg.__file__).parent.parent)])
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
        assert out.split() == found


# -- import ------------------------------------------------------------------------------------------------------
IMPORT = """
import sys
import funcgrad
status = open("/proc/self/status").read() if sys.platform == "linux" else ""
print(next((int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS:")), 0))
print(*[m for m in sys.modules if m.startswith("funcgrad.")])
"""


def test_an_import_is_small() -> None:
    """Less than 60 MB resident, and what most programs do not use is not there."""
    env = dict(os.environ, PYTHONPATH=str(Path(fg.__file__).parent.parent))
    out = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, env=env, check=True).stdout
    kib, names = out.splitlines()
    assert int(kib) * 1024 < 60e6
    late = {
        f"funcgrad.{n}" for n in ("nn", "optim", "random", "data", "io", "lax", "losses", "testing", "training", "demo")
    }
    assert not late & set(names.split())
    assert "funcgrad.transforms" in names.split()
