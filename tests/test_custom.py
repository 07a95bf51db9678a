"""custom_vjp and custom_jvp: whose rule is used, with every other transformation; wrong rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import compare
import numpy as np
import pytest
from compare import f32

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import custom_batching
from funcgrad.errors import FuncgradError, MissingRule, ShapeError, TreeError

pytestmark = pytest.mark.usefixtures("device")


def close(got: Any, want: Any, tol: float = 3e-6) -> None:
    compare.close(got, want, tol)


def marked_sin() -> Any:
    """sin with the derivative 10 cos, so that one sees whose rule was used."""

    @fg.custom_vjp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (10.0 * fnp.cos(x) * ct,))
    return f


def marked_sin_jvp() -> Any:
    @fg.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        [x], [t] = primals, tangents
        return f(x), 10.0 * fnp.cos(x) * t

    return f


X = f32(4)
MAKE = pytest.mark.parametrize("make", [marked_sin, marked_sin_jvp])


@MAKE
def test_the_rule_is_used_everywhere(make: Any) -> None:
    f = make()
    d1, d2 = 10 * np.cos(X), -10 * np.sin(X)  # the second derivative is that of the rule
    close(f(X), np.sin(X))
    close(fg.jit(f)(X), np.sin(X))
    grad = fg.grad(lambda x: f(x).sum())
    close(grad(X), d1)
    close(fg.jit(grad)(X), d1)
    close(fg.grad(lambda x: fg.jit(f)(x).sum())(X), d1)
    close(fg.grad(lambda x: fg.checkpoint(f)(x).sum())(X), d1)
    close(fg.grad(lambda x: fg.vmap(f)(x).sum())(X), d1)
    close(fg.vmap(fg.grad(f))(X), d1)
    close(fg.vmap(fg.vmap(fg.grad(f)))(X.reshape(2, 2)), d1.reshape(2, 2))
    close(fg.vmap(fg.grad(fg.grad(f)))(X), d2)
    close(fg.vmap(fg.grad(fg.jit(fg.grad(fg.checkpoint(f)))))(X), d2)
    close(np.diag(np.asarray(fg.jacrev(f)(X))), d1)
    close(fg.vjp(f, X)[1](X)[0], d1 * X)
    assert fg.make_graph(f)(X).eqns[0].prim.name in ("custom_vjp", "custom_jvp")


def test_forward_mode() -> None:
    f = marked_sin_jvp()
    t = f32(4, seed=1)
    close(fg.jvp(f, (X,), (t,))[1], 10 * np.cos(X) * t)
    close(fg.linearize(f, X)[1](t), 10 * np.cos(X) * t)
    close(np.diag(np.asarray(fg.jacfwd(f)(X))), 10 * np.cos(X))
    close(fg.jvp(fg.jit(fg.vmap(f)), (X,), (t,))[1], 10 * np.cos(X) * t)
    close(np.diagonal(np.diagonal(np.asarray(fg.jacfwd(fg.jacrev(f))(X)))), -10 * np.sin(X))
    # jvp of the gradient of a custom_vjp differentiates the rule
    close(fg.jvp(fg.grad(lambda x: marked_sin()(x).sum()), (X,), (t,))[1], -10 * np.sin(X) * t)
    with pytest.raises(
        MissingRule, match=r"custom_vjp of f: has a reverse rule only; no forward mode\n  way out: use reverse mode"
    ):
        fg.jvp(marked_sin(), (X,), (t,))


def test_trees_residuals_and_none() -> None:
    @fg.custom_vjp
    def f(p: Any, n: Any, y: Any) -> Any:
        return {"out": p["a"] * y * n, "n": n}

    def fwd(p: Any, n: Any, y: Any) -> Any:
        return f(p, n, y), {"a": p["a"], "y": (y, None), "n": n}

    def bwd(res: Any, ct: Any) -> Any:
        assert set(ct) == {"out", "n"}
        return {"a": 7.0 * ct["out"] * res["y"][0] * res["n"], "unused": None}, None, None

    f.defvjp(fwd, bwd)
    p = {"a": f32(3), "unused": f32(2)}
    y = f32(3, seed=1)
    gp, gy = fg.grad(lambda p, y: f(p, 2, y)["out"].sum(), argnums=(0, 1))(p, y)
    close(gp["a"], 14 * y)
    close(gp["unused"], np.zeros(2))
    close(gy, np.zeros(3))
    value, pull = fg.vjp(f, p, 2, y)
    assert int(value["n"]) == 2
    close(pull({"out": y, "n": 0})[0]["a"], 14 * y * y)


def test_nondiff_argnums() -> None:
    @fg.custom_vjp
    def bare(x: Any) -> Any:
        return x

    def apply(fun: Any, x: Any, n: int) -> Any:
        return fun(x) * n

    f = fg.custom_vjp(apply, nondiff_argnums=(0, 2))
    f.defvjp(lambda fun, x, n: (fun(x) * n, x), lambda fun, n, x, ct: (fun(ct) * n + 100.0,))
    close(fg.grad(f, argnums=1)(lambda x: 2.0 * x, 3.0, 5), 110.0)
    j = fg.custom_jvp(apply, nondiff_argnums=(0, -1))
    j.defjvp(lambda fun, n, primals, tangents: (j(fun, primals[0], n), 3.0 * n * tangents[0]))
    close(fg.grad(j, argnums=1)(lambda x: 2.0 * x, 3.0, 5), 15.0)
    with pytest.raises(MissingRule, match=r"custom_vjp of bare: has no rule; call defvjp\(fwd, bwd\) first"):
        bare(1.0)


def test_defjvps() -> None:
    @fg.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defjvps(lambda t, out, x, y: 2.0 * t * y + 0.0 * out, None)
    value, tangent = fg.jvp(f, (3.0, 4.0), (1.0, 1.0))
    close(value, 12.0)
    close(tangent, 8.0)
    gx, gy = fg.grad(f, argnums=(0, 1))(3.0, 4.0)
    close(gx, 8.0)
    close(gy, 0.0)


def test_arguments_by_keyword_and_defaults_have_cotangents() -> None:
    @fg.custom_vjp
    def f(x: Any, y: Any = 2.0) -> Any:
        return x * y

    f.defvjp(lambda x, y: (x * y, (x, y)), lambda res, ct: (5.0 * ct, 6.0 * ct))
    close(fg.grad(lambda x, y: f(y=y, x=x), argnums=(0, 1))(3.0, 4.0)[1], 6.0)
    close(fg.grad(f)(3.0), 5.0)


def test_a_rule_that_calls_the_function_itself() -> None:
    """The derivative of exp by its own value: every order is exp."""

    @fg.custom_vjp
    def exp(x: Any) -> Any:
        return fnp.exp(x)

    exp.defvjp(lambda x: (exp(x), x), lambda x, ct: (ct * exp(x),))

    @fg.custom_jvp
    def exp_jvp(x: Any) -> Any:
        return fnp.exp(x)

    exp_jvp.defjvp(lambda p, t: (exp_jvp(*p), t[0] * exp_jvp(*p)))
    for f in (exp, exp_jvp):
        d = f
        for _ in range(4):
            close(d(0.5), np.exp(0.5))
            d = fg.grad(d)
        close(fg.jit(fg.vmap(fg.grad(fg.grad(f))))(X), np.exp(X))


def test_closed_over_values() -> None:
    scale = fnp.asarray(f32(4, seed=5))

    @fg.custom_vjp
    def f(x: Any) -> Any:
        return x * scale

    f.defvjp(lambda x: (x * scale, None), lambda _, ct: (ct * scale * 2,))
    for g in (
        fg.grad(lambda x: f(x).sum()),
        fg.jit(fg.grad(lambda x: f(x).sum())),
        fg.grad(fg.jit(lambda x: f(x).sum())),
    ):
        close(g(X), 2 * np.asarray(scale))
    # a value of an outer trace, not differentiated
    close(fg.jit(lambda s: fg.grad(lambda x: _scaled(s)(x).sum())(X))(f32(4, seed=6)), 2 * f32(4, seed=6))
    close(fg.vmap(lambda s: fg.grad(lambda x: _scaled(s)(x).sum())(X), in_axes=0)(f32(3, 4)), 2 * f32(3, 4))
    with pytest.raises(FuncgradError, match="closes over a value that is being differentiated"):
        fg.grad(lambda s: _scaled(s)(X).sum())(f32(4))
    j = fg.grad(lambda s: _scaled_jvp(s)(X).sum())
    with pytest.raises(FuncgradError, match="closes over a value that is being differentiated"):
        j(f32(4))


def _scaled(s: Any) -> Any:
    @fg.custom_vjp
    def f(x: Any) -> Any:
        return x * s

    f.defvjp(lambda x: (x * s, None), lambda _, ct: (ct * s * 2,))
    return f


def _scaled_jvp(s: Any) -> Any:
    @fg.custom_jvp
    def f(x: Any) -> Any:
        return x * s

    f.defjvp(lambda p, t: (p[0] * s, t[0] * s * 2))
    return f


def test_python_branches_inside() -> None:
    @fg.custom_vjp
    def f(x: Any) -> Any:
        return x * 2 if x > 0 else x * 3

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (fnp.where(x > 0, 20.0, 30.0) * ct,))
    close(fg.grad(f)(1.0), 20.0)
    close(fg.value_and_grad(f)(-1.0)[0], -3.0)


def test_clipped_gradient_in_a_scan_and_under_checkpoint() -> None:
    @fg.custom_vjp
    def clipped(x: Any) -> Any:
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, ct: (fnp.clip(ct, -1.0, 1.0),))

    def f(w: Any, wrap: Any) -> Any:
        body = wrap(lambda c, x: (clipped(c * w) + x, c))
        return 100.0 * fg.lax.scan(body, w * 0 + 1.0, f32(3))[0]

    # d/dc of clipped(c w) is clipped to w; by hand: each step passes min(1, ct) w back
    w = 0.5
    c, cs = 1.0, []
    for x in f32(3):
        cs.append(c)
        c = c * w + float(x)
    want, ct = 0.0, 100.0
    for c in reversed(cs):
        ct = min(1.0, ct)
        want += ct * c
        ct = ct * w
    for wrap in (lambda b: b, fg.checkpoint):
        close(fg.grad(lambda w, wrap=wrap: f(w, wrap))(w), want, 1e-5)


@pytest.mark.parametrize(
    ("fwd", "bwd", "error", "text"),
    [
        (
            lambda x: x,
            lambda r, ct: (ct,),
            TreeError,
            r"custom_vjp of f: fwd: a pair \(out, residuals\) is required, got Tracer",
        ),
        (
            lambda x: ((x, x), x),
            lambda r, ct: (ct,),
            TreeError,
            r"fwd must return \(out, residuals\) with out as the function's",
        ),
        (
            lambda x: (x.sum(), x),
            lambda r, ct: (ct,),
            TreeError,
            r"fwd must return \(out, residuals\) with out as the function's",
        ),
        (lambda x: (x, x), lambda r, ct: ct, TreeError, r"bwd: a tuple of 1 cotangents is required, got Tracer"),
        (
            lambda x: (x, x),
            lambda r, ct: (ct, ct),
            TreeError,
            r"bwd: a tuple of 1 cotangents is required, got 2 entries",
        ),
        (
            lambda x: (x, x),
            lambda r, ct: (ct.sum(),),
            ShapeError,
            r"bwd: a cotangent: the type must be f32\[4\], got f32\[\]",
        ),
        (lambda x: (x, x), lambda r, ct: ((ct,),), TreeError, r"bwd"),
        (
            lambda x: (x, "text"),
            lambda r, ct: (ct,),
            TreeError,
            r"fwd: every leaf of the result must be a number or an array",
        ),
    ],
)
def test_wrong_reverse_rules(fwd: Any, bwd: Any, error: type[Exception], text: str) -> None:
    @fg.custom_vjp
    def f(x: Any) -> Any:
        return x

    f.defvjp(fwd, bwd)
    with pytest.raises(error, match=text):
        fg.grad(lambda x: f(x).sum())(X)


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        (lambda p, t: p[0], TreeError, r"custom_jvp of f: rule: a pair \(out, tangent\) is required, got Tracer"),
        (lambda p, t: (p[0], (t[0],)), TreeError, "rule"),
        (lambda p, t: (p[0], t[0].sum()), ShapeError, r"rule: a tangent: the type must be f32\[4\], got f32\[\]"),
        (lambda p, t: (p[0].sum(), t[0]), ShapeError, "rule"),
    ],
)
def test_wrong_forward_rules(rule: Any, error: type[Exception], text: str) -> None:
    @fg.custom_jvp
    def f(x: Any) -> Any:
        return x

    f.defjvp(rule)
    with pytest.raises(error, match=text):
        fg.jvp(f, (X,), (X,))


def test_arguments_without_derivative_by_name() -> None:
    def make(**options: Any) -> Any:
        @partial(fg.custom_vjp, **options)
        def power(x: Any, n: int) -> Any:
            return x**n

        power.defvjp(lambda x, n: (x**n, x), lambda n, x, ct: (10.0 * ct * n * x ** (n - 1),))
        return power

    for options in (
        {"nondiff_argnums": 1},
        {"nondiff_argnames": "n"},
        {"nondiff_argnames": ("n",), "nondiff_argnums": (1,)},
    ):
        power = make(**options)
        assert float(fg.grad(power)(2.0, 3)) == 120.0 == float(fg.grad(lambda x, f=power: f(x, n=3))(2.0))
    with pytest.raises(ValueError, match="nondiff_argnames must be among the parameters x, n, got 'm'"):
        make(nondiff_argnames="m")
    with pytest.raises(NotImplementedError, match="symbolic_zeros must be False"):
        fg.custom_vjp(lambda x: x).defvjp(lambda x: (x, None), lambda _, ct: (ct,), symbolic_zeros=True)


# -- rules for vmap ----------------------------------------------------------------------------------------------
@pytest.mark.ggml
def test_the_rule_for_vmap_is_used_where_vmap_comes_first() -> None:
    seen: list[Any] = []

    @custom_batching.custom_vmap
    def f(tree: Any, y: Any) -> Any:
        return {"out": tree["x"] * y}

    @f.def_vmap
    def rule(size: int, in_batched: Any, tree: Any, y: Any) -> Any:
        seen.append((size, in_batched))
        return {"out": 10.0 * tree["x"] * y}, {"out": in_batched[0]["x"] or in_batched[1]}

    x, y = fnp.asarray([1.0, 2.0, 3.0]), fnp.asarray(5.0)
    assert float(f({"x": 2.0}, y)["out"]) == 10.0 == float(fg.jit(f)({"x": 2.0}, y)["out"])
    g = lambda x, y: f({"x": x}, y)["out"]
    for mapped in (fg.vmap(g, (0, None)), fg.jit(fg.vmap(g, (0, None)))):
        np.testing.assert_array_equal(np.asarray(mapped(x, y)), [50.0, 100.0, 150.0])
    assert seen[0] == (3, [{"x": True}, False])
    both = fg.vmap(fg.vmap(g, (0, None)), (None, 0))(x, fnp.asarray([1.0, 2.0]))
    np.testing.assert_array_equal(np.asarray(both), [[10.0, 20.0, 30.0], [20.0, 40.0, 60.0]])
    # The derivative of the function itself, and that of what the rule gives.
    np.testing.assert_array_equal(np.asarray(fg.vmap(fg.grad(g), (0, None))(x, y)), [5.0, 5.0, 5.0])
    np.testing.assert_array_equal(np.asarray(fg.grad(lambda x: fg.vmap(g, (0, None))(x, y).sum())(x)), [50.0] * 3)


def test_rules_for_vmap_are_checked() -> None:
    f = custom_batching.custom_vmap(lambda x: x)
    with pytest.raises(MissingRule, match="call def_vmap"):
        f(1.0)
    f.def_vmap(lambda size, marks, x: x)
    with pytest.raises(TreeError, match="a pair"):
        fg.vmap(f)(fnp.ones(3))
    f.def_vmap(lambda size, marks, x: ((x, x), True))
    with pytest.raises(TreeError, match="out must have the structure"):
        fg.vmap(f)(fnp.ones(3))
    f.def_vmap(lambda size, marks, x: (x.sum(), True))
    with pytest.raises(ShapeError, match="an axis of size 3 in front"):
        fg.vmap(f)(fnp.ones(3))


def test_one_example_after_another() -> None:
    calls: list[Any] = []

    @custom_batching.sequential_vmap
    def f(x: Any, y: Any) -> Any:
        fg.debug.callback(lambda v: calls.append(float(v)), x)
        return fnp.sin(x) * y, x + y

    x = np.array([0.1, 0.2, 0.3], np.float32)
    out, total = fg.jit(fg.vmap(f, (0, None)))(x, 2.0)
    np.testing.assert_allclose(np.asarray(out), 2 * np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(total), x + 2, rtol=1e-6)
    np.testing.assert_allclose(calls, x, rtol=1e-6)
    slope = fg.grad(lambda x: fg.vmap(f, (0, None))(x, 2.0)[0].sum())(x)
    np.testing.assert_allclose(np.asarray(slope), 2 * np.cos(x), rtol=1e-6)
