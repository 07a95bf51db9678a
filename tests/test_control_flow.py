"""cond, switch, while_loop, fori_loop, map and associative_scan against Python in float64; devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compare import close_trees

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, tree
from funcgrad.control.branch import Cond
from funcgrad.control.loops import Scan, While
from funcgrad.errors import DTypeError, MissingRule

pytestmark = pytest.mark.usefixtures("reference")

RNG = np.random.default_rng(0)


def f64(x: Any) -> Any:
    return fnp.asarray(np.array(x, np.float64))


def slope(f: Callable[[float], float], x: float, h: float = 1e-5) -> float:
    return (f(x + h) - f(x - h)) / (2 * h)


# -- cond and switch -------------------------------------------------------------------------------------------------
def piecewise(pred: Any, x: Any, k: Any) -> Any:
    """Two branches that close over different values; k is closed over by one of them."""
    return lax.cond(pred, lambda x: (fnp.sin(x) * k, x), lambda x: (x * x, x * 2.0), x)


def py_piecewise(x: float, k: float) -> float:
    return np.sin(x) * k + x if x > 0 else x * x + x * 2.0


def both(x: Any, k: Any) -> Any:
    a, b = piecewise(x > 0, x, k)
    return a + b


@pytest.mark.parametrize("x", [0.7, -0.7])
def test_cond(x: float) -> None:
    """Values and derivatives by the operand and by what is closed over, outside jit and inside."""
    args = f64(x), f64(1.3)
    for wrap in (lambda f: f, fg.jit):
        close_trees(wrap(both)(*args), f64(py_piecewise(x, 1.3)))
        dx, dk = wrap(fg.grad(both, (0, 1)))(*args)
        np.testing.assert_allclose(float(dx), slope(lambda v: py_piecewise(v, 1.3), x), rtol=1e-8)
        np.testing.assert_allclose(float(dk), slope(lambda v: py_piecewise(x, v), 1.3), rtol=1e-8, atol=1e-12)
        second = -np.sin(x) * 1.3 if x > 0 else 2.0
        np.testing.assert_allclose(float(wrap(fg.grad(fg.grad(both)))(*args)), second, rtol=1e-10)
        np.testing.assert_allclose(float(wrap(fg.hessian(both))(*args)), second, rtol=1e-10)
        third = -np.cos(x) * 1.3 if x > 0 else 0.0
        np.testing.assert_allclose(float(wrap(fg.grad(fg.grad(fg.grad(both))))(*args)), third, rtol=1e-10)
        value, tangent = wrap(lambda *a: fg.jvp(both, a, (f64(1.0), f64(2.0))))(*args)
        close_trees(value, f64(py_piecewise(x, 1.3)))
        close_trees(tangent, dx + 2.0 * dk)


def test_cond_under_vmap_selects_exactly() -> None:
    """The branch not taken is NaN or infinite, in value and derivative, and leaves no trace."""

    def guarded(x: Any) -> Any:
        return lax.cond(x > 0, lambda x: fnp.log(x) + fnp.sqrt(x), lambda x: x * 3.0, x)

    xs = np.array([2.0, 0.0, -1.0, 4.0])
    with np.errstate(all="ignore"):
        close_trees(fg.vmap(guarded)(f64(xs)), f64(np.where(xs > 0, np.log(xs) + np.sqrt(xs), xs * 3)))
        want = np.where(xs > 0, 1 / xs + 0.5 / np.sqrt(xs), 3.0)
    close_trees(fg.vmap(fg.grad(guarded))(f64(xs)), f64(want))
    close_trees(fg.grad(lambda v: fg.vmap(guarded)(v).sum())(f64(xs)), f64(want))
    close_trees(fg.jvp(fg.vmap(guarded), (f64(xs),), (f64(np.ones(4)),))[1], f64(want))


def test_vmap_of_operands_keeps_the_branch() -> None:
    """With an unmapped predicate only one branch runs: a Cond stays, whose results agree on what is mapped."""

    def f(p: Any, x: Any, y: Any) -> Any:
        return lax.cond(p > 0, lambda x, y: (x, y), lambda x, y: (y, y), x, y)

    mapped = fg.vmap(f, (None, 0, None))
    xs, y = f64([1.0, 2.0]), f64(5.0)
    graph = fg.make_graph(mapped)(f64(1.0), xs, y)
    assert [e.prim.name for e in graph.eqns if e.prim.name in ("cond", "select")] == ["cond"]
    for p, want in ((1.0, [1.0, 2.0]), (-1.0, [5.0, 5.0])):
        close_trees(fg.jit(mapped)(f64(p), xs, y), (f64(want), f64([5.0, 5.0])))


def test_only_the_taken_branch_runs() -> None:
    """The other one would not end."""

    def forever(x: Any) -> Any:
        return lax.while_loop(lambda v: v > -1.0, lambda v: v + 1.0, x)

    f = lambda p, x: lax.cond(p, forever, lambda x: x * 2.0, x)
    close_trees(f(False, f64(1.0)), f64(2.0))
    close_trees(fg.jit(f)(fnp.asarray(False), f64(1.0)), f64(2.0))
    close_trees(fg.grad(lambda x: f(x < 0, x))(f64(1.0)), f64(2.0))


def test_cond_saves_only_its_operands() -> None:
    """Its gradient is a Cond of the branches' vjps on the same operands."""
    graph = fg.make_graph(fg.grad(lambda x, p: lax.cond(p, lambda x: fnp.sin(fnp.exp(x)), lambda x: x, x)))(
        f64(1.0), True
    )
    (cond,) = [e for e in graph.eqns if isinstance(e.prim, Cond)]  # the value itself is not needed
    assert [a.aval.shape for a in cond.inputs] == [(), (), ()]
    assert "cos" in {e.prim.name for e in cond.prim.branches[1].eqns}


def test_cond_predicates_and_structures() -> None:
    take = lambda p: lax.cond(p, lambda: 1, lambda: 2)
    assert [int(take(p)) for p in (True, False, 3, 0, -0.5, np.bool_(True), fnp.asarray(0))] == [1, 2, 1, 2, 1, 1, 2]
    out = lax.cond(
        fnp.asarray(True), lambda t: {"a": t["x"], "b": None}, lambda t: {"a": t["y"], "b": None}, {"x": 1, "y": 2}
    )
    assert out["b"] is None and int(out["a"]) == 1
    assert int(lax.cond(True, lambda _: 1, lambda _: 2, operand=None)) == 1
    assert int(lax.switch(1, [lambda x: x, lambda x: x + 1], operand=3)) == 4


@pytest.mark.parametrize("i", [-5, 0, 1, 2, 9])
def test_switch_clamps(i: int) -> None:
    branches = [lambda x: x, lambda x: x * x, fnp.sin]
    chosen = [lambda x: x, lambda x: x * x, np.sin][min(max(i, 0), 2)]
    want = f64(chosen(0.6)), f64(slope(chosen, 0.6))
    for wrap in (lambda f: f, fg.jit):
        got = wrap(fg.value_and_grad(lambda x, i: lax.switch(i, branches, x)))(f64(0.6), fnp.asarray(i))
        close_trees(got, want, 1e-9)
    close_trees(lax.switch(i, branches, f64(0.6)), want[0])
    mapped = fg.vmap(lambda i, x: lax.switch(i, branches, x), (0, None))(fnp.asarray([i, 1]), f64(0.6))
    close_trees(mapped, f64([chosen(0.6), 0.36]))
    assert int(lax.switch(i, [lambda: 7])) == 7


# -- while and fori --------------------------------------------------------------------------------------------------
def newton(a: Any, x: Any) -> Any:
    """The square root of a by Newton's method; how many steps it takes depends on the values."""

    def step(state: Any) -> Any:
        n, x, _ = state
        return n + 1, 0.5 * (x + a / x), x

    n, x, _ = lax.while_loop(lambda s: (fnp.abs(s[1] - s[2]) > 1e-12) & (s[0] < 50), step, (0, x, x + 1.0))
    return n, x


@pytest.mark.parametrize("jit", [False, True])
def test_while_loop(jit: bool) -> None:
    f = fg.jit(newton) if jit else newton
    n, root = f(f64(2.0), f64(1.0))
    assert n.dtype == np.int32 and 4 <= int(n) <= 8
    close_trees(root, f64(np.sqrt(2.0)))
    value, slope_ = fg.jvp(lambda a: newton(a, f64(1.0))[1], (f64(2.0),), (f64(1.0),))
    close_trees((value, slope_), (f64(np.sqrt(2.0)), f64(0.5 / np.sqrt(2.0))))
    close_trees(fg.jacfwd(fg.jacfwd(lambda a: newton(a, f64(1.0))[1]))(f64(2.0)), f64(-0.25 * 2.0**-1.5), 1e-8)


def test_while_loop_under_vmap() -> None:
    """Each lane stops by itself; a lane that is done keeps its values, and does not see what the others do."""
    a = np.array([2.0, 9.0, 1e6, 1.0])
    n, roots = fg.vmap(newton, (0, None))(f64(a), f64(1.0))
    alone = [newton(f64(v), f64(1.0)) for v in a]
    close_trees((n, roots), (fnp.stack([m for m, _ in alone]), fnp.stack([r for _, r in alone])))
    close_trees(roots, f64(np.sqrt(a)))
    assert len(set(np.asarray(n).tolist())) > 2
    slopes = fg.vmap(lambda v: fg.jvp(lambda a: newton(a, f64(1.0))[1], (v,), (f64(1.0),))[1])(f64(a))
    close_trees(slopes, f64(0.5 / np.sqrt(a)))


def test_a_finished_lane_may_overflow() -> None:
    """1 / (3 - n) is infinite one step after a lane's end."""
    run = lambda stop: lax.while_loop(
        lambda s: s[0] < stop, lambda s: (s[0] + 1, s[1] + 1.0 / (3.0 - s[0].astype("float64"))), (0, f64(0.0))
    )[1]
    sums = np.cumsum([1 / 3, 1 / 2, 1.0])
    close_trees(fg.vmap(run)(fnp.asarray([1, 2, 3])), f64(sums))


def test_while_loop_with_only_the_condition_mapped() -> None:
    counts = fg.vmap(lambda n: lax.while_loop(lambda c: c < n, lambda c: c + 2, 0))(fnp.asarray([3, 0, 10]))
    assert np.asarray(counts).tolist() == [4, 0, 10]


def test_while_loop_with_only_the_body_mapped() -> None:
    graph = fg.make_graph(
        fg.vmap(lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (0, x))[1])
    )(f64([2.0, 3.0]))
    (loop,) = [e.prim for e in graph.eqns if isinstance(e.prim, While)]
    assert [a.shape for a in loop.body.out_avals] == [(), (2,)]
    assert not any(e.prim.name == "select" for e in loop.body.eqns)


def test_reverse_mode_of_while_says_why_and_what_to_use() -> None:
    for f in (fg.grad, fg.jacrev):
        with pytest.raises(
            MissingRule, match=r"(?s)while_loop: has no reverse mode.*number of steps.*lax\.scan.*fori_loop.*checkpoint"
        ):
            f(lambda a: newton(a, f64(1.0))[1])(f64(2.0))
    with pytest.raises(MissingRule, match="no reverse mode"):
        fg.jit(fg.grad(lambda a: newton(a, f64(1.0))[1]))(f64(2.0))


def test_reverse_mode_past_a_while_that_does_not_matter() -> None:
    """Results that no cotangent reaches are fine: integers, and what is stopped."""

    def f(a: Any) -> Any:
        n, root = newton(a, f64(1.0))
        return a * n.astype("float64") * lax.stop_gradient(root)

    n, root = newton(f64(2.0), f64(1.0))
    close_trees(fg.grad(f)(f64(2.0)), f64(int(n) * float(root)))


def factorial_sum(x: Any, n: Any) -> Any:
    return lax.fori_loop(1, n, lambda i, s: (s[0] * x / i, s[1] + s[0] * x / i), (f64(1.0), f64(1.0)))[1]


def test_fori_loop_is_the_exponential_series() -> None:
    """Static bounds: exp, and all its derivatives, in reverse mode too."""
    x = f64(0.5)
    close_trees(factorial_sum(x, 25), f64(np.exp(0.5)))
    close_trees(fg.grad(lambda x: factorial_sum(x, 25))(x), f64(np.exp(0.5)))
    close_trees(fg.jit(fg.grad(fg.grad(lambda x: factorial_sum(x, 25))))(x), f64(np.exp(0.5)))
    assert any(isinstance(e.prim, Scan) for e in fg.make_graph(lambda x: factorial_sum(x, 25))(x).eqns)


def test_fori_loop_with_traced_bounds() -> None:
    x = f64(0.5)
    graph = fg.make_graph(factorial_sum)(x, 25)
    assert any(isinstance(e.prim, While) for e in graph.eqns)
    close_trees(fg.jit(factorial_sum)(x, 25), f64(np.exp(0.5)))
    close_trees(fg.jvp(lambda x: fg.jit(factorial_sum)(x, 25), (x,), (f64(1.0),))[1], f64(np.exp(0.5)))
    close_trees(fg.grad(lambda x: factorial_sum(x, fnp.asarray(25)))(x), f64(np.exp(0.5)))  # concrete outside jit
    sums = fg.vmap(lambda n: lax.fori_loop(2, n, lambda i, s: s + i, 0))(fnp.asarray([1, 2, 5]))
    assert np.asarray(sums).tolist() == [0, 0, 2 + 3 + 4]


def test_fori_loop_without_steps() -> None:
    close_trees(lax.fori_loop(3, 3, lambda i, x: x / 0.0, f64(2.0)), f64(2.0))
    close_trees(lax.fori_loop(3, -2, lambda i, x: x / 0.0, f64(2.0)), f64(2.0))


def test_dead_results_of_loops_and_branches() -> None:
    """A carry that neither the condition nor a result needs, and a branch's unread results, are not computed."""

    def loop(a: Any, b: Any, k: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 9.0, lambda s: (s[0] * 2.0, s[1] + fnp.sin(k), s[2] + s[0]), (a, b, a))[
            2
        ]

    args = f64(1.0), f64(2.0), f64(3.0)
    graph = fg.make_graph(loop)(*args)
    (eqn,) = [e for e in graph.eqns if isinstance(e.prim, While)]
    assert len(eqn.inputs) == len(eqn.outputs) == 2
    close_trees(fg.jit(loop)(*args), f64(1.0 + 1 + 2 + 4 + 8))

    def branch(p: Any, a: Any, b: Any, k: Any) -> Any:
        return lax.cond(p, lambda a, b: (a, fnp.sin(b)), lambda a, b: (-a, k), a, b)[0]

    graph = fg.make_graph(branch)(True, *args)
    (eqn,) = [e for e in graph.eqns if isinstance(e.prim, Cond)]
    assert len(eqn.inputs) == 2 and not eqn.prim.branches[1].eqns
    close_trees(fg.jit(branch)(False, *args), f64(-1.0))


# -- map and associative_scan ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("batch_size", [None, 1, 2, 3, 7, 100])
def test_map(batch_size: int | None) -> None:
    """With rows left over, a result that does not depend on the row, and gradients by what is closed over."""
    xs, k = RNG.normal(size=(7, 2)), 0.3

    def f(k: Any, xs: Any) -> Any:
        return lax.map(lambda x: {"y": fnp.sin(x["x"] * k).sum(), "k": k * 2.0}, {"x": xs}, batch_size=batch_size)

    close_trees(f(f64(k), f64(xs)), {"k": f64(np.full(7, 2 * k)), "y": f64(np.sin(xs * k).sum(1))})
    grads = fg.grad(lambda *a: f(*a)["y"].sum(), (0, 1))(f64(k), f64(xs))
    close_trees(grads, (f64((np.cos(xs * k) * xs).sum()), f64(np.cos(xs * k) * k)))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_associative_scan(n: int, reverse: bool, axis: int) -> None:
    """Composition of affine maps, which does not commute, against a loop."""
    a, b = RNG.normal(size=(2, n, 2)) if axis == 0 else RNG.normal(size=(2, 2, n))

    def compose(f: Any, g: Any) -> Any:
        return f[0] * g[0], f[1] * g[0] + g[1]

    got = lax.associative_scan(compose, (f64(a), f64(b)), reverse=reverse, axis=axis)
    rows = [(x, y) for x, y in zip(np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0), strict=True)]
    rows = rows[::-1] if reverse else rows
    acc = rows[:1]
    for r in rows[1:]:
        acc.append(compose(acc[-1], r))
    acc = acc[::-1] if reverse else acc
    want = [np.stack([r[i] for r in acc], axis) if n else x for i, x in enumerate((a, b))]
    close_trees(got, tuple(f64(w) for w in want))


def test_associative_scan_is_differentiable_and_short() -> None:
    xs = RNG.normal(size=9)
    f = lambda v: (lax.associative_scan(lambda a, b: a * b, v) * f64(np.arange(9.0))).sum()
    numeric = [slope(lambda h, i=i: (np.cumprod(xs + h * np.eye(9)[i]) * np.arange(9.0)).sum(), 0.0) for i in range(9)]
    close_trees(fg.grad(f)(f64(xs)), f64(numeric), 1e-6)
    muls = [
        e
        for e in fg.make_graph(lambda v: lax.associative_scan(lambda a, b: a * b, v))(np.ones(1024)).eqns
        if e.prim.name == "mul"
    ]
    assert len(muls) <= 2 * 10


# -- on a device -----------------------------------------------------------------------------------------------------
DEVICE_CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "cond taken": (both, [0.7, 1.3]),
    "cond not taken": (both, [-0.7, 1.3]),
    "cond mapped": (lambda x: fg.vmap(lambda v: both(v, x.sum()))(x), [[0.5, -0.25, 1.0, -2.0]]),
    "cond of an endless loop": (
        lambda x: lax.cond(
            x > 1, lambda v: lax.while_loop(lambda u: u > 0, lambda u: u + 1.0, v), lambda v: v * 2.0, x
        ),
        [0.5],
    ),
    "cond gradient": (fg.grad(both, (0, 1)), [0.7, 1.3]),
    "cond gradient mapped": (lambda x: fg.vmap(fg.grad(lambda v: both(v, v)))(x), [[0.5, -0.25, 1.0, -2.0]]),
    "cond second order": (fg.hessian(both, (0, 1)), [0.7, 1.3]),
    "switch": (
        lambda x: [lax.switch(fnp.asarray(i), [fnp.sin, fnp.exp, lambda v: v * v], x) for i in (-1, 1, 5)],
        [[0.3, 2.0]],
    ),
    "while": (
        lambda x: lax.while_loop(lambda s: s[0] < 7, lambda s: (s[0] + 1, fnp.sin(s[1]) + 0.5), (0, x)),
        [[0.3, 2.0]],
    ),
    "while mapped": (
        lambda x: fg.vmap(lambda v: lax.while_loop(lambda s: s[1] < 3.0, lambda s: (s[0] + 1, s[1] * 1.5), (0, v)))(x),
        [[0.3, 2.0, 4.0]],
    ),
    "while forward": (
        lambda x: fg.jvp(lambda v: lax.while_loop(lambda s: s.sum() < 9.0, lambda s: s * s + 0.5, v), (x,), (x,)),
        [[0.3, 1.1]],
    ),
    "while without steps": (lambda x: lax.while_loop(lambda s: s[0] > 99, lambda s: -s, x), [[0.3, 2.0]]),
    "fori": (lambda x: lax.fori_loop(2, 9, lambda i, s: s + fnp.sin(x * i), x), [[0.3, 2.0]]),
    "fori traced": (lambda x: lax.fori_loop(2, x.astype("int32").sum(), lambda i, s: s + x * i, x), [[3.3, 2.0]]),
    "map": (lambda x: lax.map(lambda v: fnp.sin(v) * x.sum(), x, batch_size=2), [[0.3, 2.0, 1.0]]),
    "prefix products": (
        lambda x: lax.associative_scan(lambda a, b: a * b, x, reverse=True),
        [[0.3, 2.0, 1.0, 1.5, -0.5]],
    ),
    "scan of cond of scan": (
        lambda x: lax.scan(
            lambda c, v: lax.cond(
                v > 0, lambda c: lax.scan(lambda d, w: (d * w, d), c, x), lambda c: (c - 1.0, x * c), c
            ),
            2.0,
            x,
        ),
        [[0.3, -2.0, 1.0]],
    ),
    "gradient of scan of cond": (
        fg.grad(
            lambda x: lax.scan(
                lambda c, v: (lax.cond(v > 0, lambda c: fnp.sin(c) * v, lambda c: c * c, c), None), x[0], x
            )[0]
        ),
        [[0.3, -2.0, 1.0]],
    ),
}


@pytest.mark.ggml
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", DEVICE_CASES)
def test_on_cpu(name: str, jit: bool) -> None:
    """Eager and compiled for the CPU in float32, against the numpy device in float64."""
    f, args = DEVICE_CASES[name]
    want = f(*[f64(a) for a in args])
    with fg.default_device("cpu"):
        got = (fg.jit(f) if jit else f)(*[fnp.asarray(a, dtype="float32") for a in args])
        got = tree.map(np.asarray, got)
    assert tree.structure(got) == tree.structure(want)
    for a, b in zip(tree.leaves(got), tree.leaves(want), strict=True):
        b = np.asarray(b)
        assert a.shape == b.shape and a.dtype == (np.float32 if b.dtype == np.float64 else b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


# -- without jit -----------------------------------------------------------------------------------------------------
def test_disable_jit_runs_loops_in_python() -> None:
    """Bodies see values in the order of the steps; results, gradients and errors are the same."""
    seen: list[float] = []

    def step(c: Any, x: Any) -> Any:
        seen.append(float(x))
        return (c * x if x > 0 else c - x), {"c": c}

    def f(xs: Any) -> Any:
        c, ys = lax.scan(step, 1.0, xs, reverse=True)
        d = lax.while_loop(lambda v: v < 5.0, lambda v: v * 2.0 if v > 1.0 else v + 1.5, c)
        e = lax.cond(d > 1, lambda v: v * float(v), lambda v: 1 / 0, d)
        return e + lax.fori_loop(0, 3, lambda i, s: s + int(i) * xs[0], 0.0) + ys["c"].sum()

    xs = f64([0.5, -2.0, 3.0])
    with fg.disable_jit():
        close_trees(lax.scan(lambda c, x: (c * x, c), 1, xs), (f64(-3.0), f64([1.0, 0.5, -1.0])))
        value, slope_ = fg.value_and_grad(f)(xs)
        close_trees(fg.vmap(lambda x: lax.while_loop(lambda v: v < 5.0, lambda v: v * 2.0, x))(xs[2:]), f64([6.0]))
        with pytest.raises(DTypeError, match="same types"):
            lax.scan(lambda c, x: (c * 1.5, x), fnp.asarray(1), xs)
    assert seen == [3.0, -2.0, 0.5]
    # c: 1, 3, 5, 2.5; the loop doubles 2.5 once; 5 * 5 with the factor held; + 3 xs[0] + (1 + 3 + 5)
    close_trees(value, f64(5.0 * 5.0 + 1.5 + 9.0))
    # d(10 c3 + 3 x0 + c1 + c2), c3 = (c1 - x1) x0, c2 = c1 - x1, c1 = x2
    close_trees(slope_, f64([10.0 * 5.0 + 3.0, -10.0 * 0.5 - 1.0, 10.0 * 0.5 + 1.0 + 1.0]))
