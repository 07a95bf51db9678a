"""What a scan's gradient saves per step, computes again, computes once, and leaves out: the structure of the graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax
from funcgrad.control.loops import Scan
from funcgrad.ir import Aval, Graph, check_graph, subgraphs

pytestmark = pytest.mark.usefixtures("reference")


def scans(graph: Graph) -> list[Scan]:
    """The scans of a graph in the order in which they run, those in other graphs inside too."""
    found = []
    for eqn in graph.eqns:
        if isinstance(eqn.prim, Scan):
            found.append(eqn.prim)
        else:
            found += [s for g in subgraphs(eqn) for s in scans(g)]
    return found


def gradient_scans(f: Callable[..., Any], *args: Any) -> tuple[Scan, Scan]:
    """The scan forward and the scan back of a gradient."""
    leaves = tuple(range(len(args)))
    graph = fg.make_graph(lambda *a: fg.value_and_grad(f, leaves)(*a))(*args)
    forward, back = scans(graph)
    check_graph(graph)
    return forward, back


def saved(forward: Scan, rows: int = 0) -> list[Any]:
    """The types saved per step, behind ``rows`` outputs."""
    return list(forward.body.out_avals[forward.num_carry + rows :])


T = 1000
XS = fnp.asarray(np.ones((T, 8), np.float32), device="numpy")
H = fnp.asarray(np.ones(8, np.float32), device="numpy")
KERNEL = fnp.asarray(np.ones((8, 8), np.float32) / 8, device="numpy")


def test_a_linear_recurrence_saves_the_carry_only() -> None:
    """The gradient of h * a needs h; the rows of xs are there already."""
    forward, back = gradient_scans(lambda a, h, xs: lax.scan(lambda h, x: (h * a + x, None), h, xs)[0].sum(), H, H, XS)
    assert saved(forward) == [H.aval]
    assert back.reverse and back.length == T
    assert back.num_carry == 2  # the cotangent of h, and the sum for a


def test_rows_of_xs_are_not_saved_again() -> None:
    forward, back = gradient_scans(lambda a, xs: lax.scan(lambda h, x: (h + fnp.sum(x * a), None), 0.0, xs)[0], H, XS)
    assert saved(forward) == []
    assert XS.aval in [Aval((T, *a.shape), a.dtype) for a in back.body.in_avals]


def test_what_depends_on_consts_only_is_computed_once() -> None:
    """exp(w) leaves the loop, forward and backward."""

    def loss(w: Any, h: Any) -> Any:
        return lax.scan(lambda h, _: (fnp.tanh(fnp.exp(w) * h), None), h, None, length=T)[0].sum()

    graph = fg.make_graph(lambda *a: fg.grad(loss, (0, 1))(*a))(KERNEL, KERNEL)
    for s in scans(graph):
        assert "exp" not in {e.prim.name for e in s.body.eqns}
    assert [e.prim.name for e in graph.eqns].count("exp") == 1


def test_cheap_values_are_computed_again_and_broadcasts_are_not_saved() -> None:
    """A mask and a broadcast follow from the carry; the exponential is saved."""

    def loss(h: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            wide = fnp.broadcast_to(h.sum(), (64, 8))
            return fnp.where(h > 0, h * fnp.mean(wide), h * 3.0) + fnp.exp(h), None

        return lax.scan(step, h, None, length=T)[0].sum()

    forward, _ = gradient_scans(loss, H)
    assert sorted(map(str, saved(forward))) == ["f32[8]", "f32[8]", "f32[]"]


def test_a_checkpointed_body_saves_its_inputs_only() -> None:
    def step(h: Any, x: Any) -> Any:
        h = fnp.tanh(KERNEL @ fnp.sin(fnp.exp(h) + x))
        return h, None

    def loss(f: Any) -> Any:
        return lambda h, xs: lax.scan(f, h, xs)[0].sum()

    kept, _ = gradient_scans(loss(step), H, XS)
    remat, back = gradient_scans(loss(fg.checkpoint(step)), H, XS)
    assert saved(remat) == [H.aval]
    assert len(saved(kept)) == 3
    assert any(e.prim.name == "checkpoint" for e in back.body.eqns)


def test_results_without_cotangent_cost_nothing() -> None:
    """Only the outputs are used: no zeros for the final carry, none stacked for unused outputs."""

    def loss(h: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (h * x, (fnp.sin(h), fnp.cos(h))), h, xs)[1][0].sum()

    forward, back = gradient_scans(loss, H, XS)
    assert len(forward.body.out_avals) == 4 and saved(forward, 1) == [H.aval, H.aval]  # sin h, then h and cos h
    assert back.num_carry == 1
    assert len(back.body.in_avals) == back.num_carry + 4  # the rows of xs, h, cos h and the cotangent of sin h


def test_outputs_serve_as_residuals() -> None:
    """tanh's derivative follows from its value, which is an output already; only the carry before it is saved."""

    def loss(w: Any, h: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            h = fnp.tanh(w @ h)
            return h, h

        return lax.scan(step, h, None, length=T)[1].sum()

    forward, _ = gradient_scans(loss, KERNEL, H)
    assert saved(forward, 1) == [H.aval]


def test_no_gradient_for_what_has_no_path() -> None:
    """The gradient by a value that only decides is zero without any work in the loop."""

    def loss(a: Any, h: Any) -> Any:
        return lax.scan(lambda h, _: (fnp.where(a > 0, h, -h), None), h, None, length=T)[0].sum()

    _, back = gradient_scans(loss, H, H)
    assert back.num_carry == 1


def test_tracing_does_not_depend_on_the_length() -> None:
    def equations(n: int) -> int:
        xs = fnp.asarray(np.ones((n, 8), np.float32))
        return len(
            str(fg.make_graph(fg.grad(lambda h: lax.scan(lambda h, x: (fnp.tanh(h * x), h), h, xs)[0].sum()))(H))
        )

    assert abs(equations(10) - equations(1000)) < 100  # digits of the shapes


def test_bodies_are_reachable() -> None:
    graph = fg.make_graph(lambda x: lax.scan(lambda c, v: (c + v, None), np.float32(0), x)[0])(np.ones(8, np.float32))
    (eqn,) = [e for e in graph.eqns if e.prim.name == "scan"]
    assert [g.in_avals for g in subgraphs(eqn)] == [(Aval((), np.dtype("float32")),) * 2]


def test_half_precision_constants_are_summed_in_float32() -> None:
    """2048 + 1 is 2048 in float16: a sum of 4096 ones must not stop there."""
    w = fnp.asarray(1.0, dtype="float16")
    xs = fnp.asarray(np.ones(4096), dtype="float16")
    grad = fg.grad(lambda w: lax.scan(lambda c, x: (c, w * x), 0.0, xs)[1].astype("float32").sum())(w)
    assert float(grad) == 4096 and grad.dtype == np.float16


def test_results_that_nobody_reads_are_not_made() -> None:
    """Dead code is found inside: an unused output, the carry that only it needs, and the operands of both."""

    def f(a: Any, b: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return (c[0] + x * a, fnp.sin(c[1]) * b), fnp.exp(c[1])

        (total, _), _ = lax.scan(step, (a, b), xs)
        return total

    graph = fg.make_graph(f)(H, H, XS)
    (scan,) = scans(graph)
    assert [e.prim.name for e in scan.body.eqns] == ["mul", "add"]
    assert (scan.num_consts, scan.num_carry) == (1, 1)
    check_graph(graph)


@pytest.mark.ggml
def test_memory_as_the_planner_sees_it() -> None:
    """By default one row per saved value and step; with a checkpointed body the carry alone."""
    rows, width = 16, 32

    def loss(remat: bool) -> Any:
        def step(h: Any, x: Any) -> Any:
            return fnp.tanh(fnp.sin(fnp.exp(h) + x)), None

        f = fg.checkpoint(step) if remat else step
        return fg.jit(fg.value_and_grad(lambda h, xs: lax.scan(f, h, xs)[0].sum()))

    def compiled(remat: bool, steps: int) -> Any:
        shapes = [fg.ShapeDtypeStruct((rows, width), "float32"), fg.ShapeDtypeStruct((steps, rows, width), "float32")]
        return loss(remat).trace(*shapes).lower().compile()

    with fg.default_device("cpu"):
        one, n = rows * width * 4, 500
        plain, remat = (compiled(r, n).memory_analysis().temp_size_in_bytes for r in (False, True))
        assert 3 * n * one <= plain < 4 * n * one  # exp h, cos, and tanh
        assert n * one <= remat < 1.1 * n * one  # h


def test_linearize_runs_the_function_once() -> None:
    """The linear function reads what the forward scan saved; neither it nor a jitted part computes values again."""

    def f(h: Any, xs: Any) -> Any:
        h, ys = lax.scan(lambda h, x: (fnp.tanh(KERNEL @ h + fnp.exp(x)), h), h, xs)
        return fg.jit(lambda h, ys: fnp.sin(h) + ys.sum(0))(h, ys)

    _, linear = fg.linearize(f, H, XS)
    graph = fg.make_graph(linear)(H, XS)

    def names(g: Graph) -> set[str]:
        return {e.prim.name for e in g.eqns} | {n for e in g.eqns for s in subgraphs(e) for n in names(s)}

    assert not names(graph) & {"tanh", "exp", "sin", "cos"} and "scan" in names(graph)


# -- products of weights, behind the loop ------------------------------------------------------------------------
def rnn(w: Any, u: Any, h: Any, xs: Any) -> Any:
    """u is used twice in a step, and both times in a product."""
    return lax.scan(lambda h, x: (fnp.tanh(x @ u + h @ w + fnp.tanh(h @ u)), None), h, xs)[0].sum()


def rnn_gradients(w: Any, u: Any, h: Any, xs: Any) -> list[Any]:
    """By hand, in float64."""
    w, u, h, xs = [np.asarray(a, np.float64) for a in (w, u, h, xs)]
    kept = []
    for x in xs:
        inner = np.tanh(h @ u)
        kept.append((x, h, inner))
        h = np.tanh(x @ u + h @ w + inner)
        kept[-1] += (h,)
    ct, dw, du, dxs = np.ones_like(h), np.zeros_like(w), np.zeros_like(u), []
    for x, before, inner, after in kept[::-1]:
        g = ct * (1 - after**2)
        gi = g * (1 - inner**2)
        dw += before.T @ g
        du += x.T @ g + before.T @ gi
        dxs.append(g @ u.T)
        ct = g @ w.T + gi @ u.T
    return [dw, du, ct, np.stack(dxs[::-1])]


def rnn_operands(dtype: Any = np.float32) -> list[Any]:
    r = np.random.default_rng(0)
    shapes = ((8, 8), (8, 8), (4, 8), (30, 4, 8))
    return [fnp.asarray(r.normal(0, 0.3, s).astype(np.float32)).astype(dtype) for s in shapes]


def test_weights_gradients_are_products_behind_the_loop() -> None:
    _, back = gradient_scans(rnn, *rnn_operands())
    assert back.num_carry == 1
    shapes = [v.aval.shape for e in back.body.eqns if e.prim.name == "dot_general" for v in e.outputs]
    assert shapes and all(s == (4, 8) for s in shapes)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_weights_gradients_behind_the_loop_are_right(dtype: str) -> None:
    args = rnn_operands(dtype)
    got = fg.grad(rnn, argnums=(0, 1, 2, 3))(*args)
    tolerance = 1e-5 if dtype == "float32" else 0.05
    for a, b, x in zip(got, rnn_gradients(*[a.astype("float32") for a in args]), args, strict=True):
        assert a.dtype == x.dtype
        np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=tolerance, atol=tolerance * np.abs(b).max())


def test_second_derivatives_through_products_behind_the_loop() -> None:
    w, u, h, xs = rnn_operands()
    v = fnp.ones_like(w)
    f = lambda w: fg.grad(rnn)(w, u, h, xs)
    forward = fg.jvp(f, (w,), (v,))[1]
    reverse = fg.vjp(f, w)[1](v)[0]  # the Hessian is symmetric
    wide, e = np.asarray(w, np.float64), 1e-5
    central = (rnn_gradients(wide + e, u, h, xs)[0] - rnn_gradients(wide - e, u, h, xs)[0]) / (2 * e)
    np.testing.assert_allclose(forward, central, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(reverse, central, rtol=1e-3, atol=1e-3)


def test_large_products_stay_in_the_loop() -> None:
    """Each step's product is large already: its rows are not stacked for it."""
    w, x = fnp.ones((4, 4)), fnp.ones((10, 600, 4))
    loss = lambda w: lax.scan(lambda c, x: (c + fnp.tanh(x @ w).sum(), None), 0.0, x)[0]
    _, back = gradient_scans(loss, w)
    assert any(e.prim.name == "dot_general" for e in back.body.eqns)


def test_batched_weights_gradients_behind_the_loop() -> None:
    w, u, h, xs = rnn_operands()
    many = fnp.stack([w, w * 0.5, -w])
    got = fg.vmap(lambda w: fg.grad(rnn)(w, u, h, xs))(many)
    for k in range(3):
        want = rnn_gradients(many[k], u, h, xs)[0]
        np.testing.assert_allclose(got[k], want, rtol=1e-4, atol=1e-5)
