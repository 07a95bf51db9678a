"""Derivatives and vmap against closed forms: arguments, trees, structure, Python control flow on values."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, tree
from funcgrad.errors import DTypeError, ShapeError, TreeError

pytestmark = pytest.mark.usefixtures("device")


def equal(got: Any, want: Any, tol: float = 2e-6) -> None:
    """The same structure, shapes and values; ``want`` is numpy data or Python numbers."""
    assert tree.structure(got) == tree.structure(want)
    for (path, g), w in zip(tree.leaves_with_path(got), tree.leaves(want), strict=True):
        assert np.shape(g) == np.shape(w), tree.keystr(path)
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=tol, atol=tol, err_msg=tree.keystr(path))


def f32(*shape: int, seed: int = 0) -> Any:
    """An array of the field's usual size of numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True)
class Layer:
    w: Any
    b: Any


# -- grad, value_and_grad ----------------------------------------------------------------------------------------
def test_grad_of_a_polynomial() -> None:
    equal(fg.grad(lambda x: 3 * x**2 - x)(2.0), 11.0)
    equal(fg.grad(fg.grad(lambda x: x**4))(2.0), 48.0)
    equal(fg.grad(fg.grad(fg.grad(lambda x: x**4)))(2.0), 48.0)


def test_argnums() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        return x * y**2 * z**3

    # df/dx = y^2 z^3, df/dy = 2 x y z^3, df/dz = 3 x y^2 z^2 at (2, 3, 5)
    equal(fg.grad(f)(2.0, 3.0, 5.0), 1125.0)
    equal(fg.grad(f, argnums=1)(2.0, 3.0, 5.0), 1500.0)
    equal(fg.grad(f, argnums=-1)(2.0, 3.0, 5.0), 1350.0)
    equal(fg.grad(f, argnums=(0, 2))(2.0, 3.0, 5.0), (1125.0, 1350.0))
    equal(fg.grad(f, argnums=[-1, 0])(2.0, 3.0, 5.0), (1350.0, 1125.0))
    equal(fg.grad(f, argnums=(1,))(2.0, 3.0, 5.0), (1500.0,))
    equal(fg.grad(f, argnums=())(2.0, 3.0, 5.0), ())


def test_argnums_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"argnums must name positional arguments of the call, got 2 with 1 pos"):
        fg.grad(lambda x: x, argnums=2)(1.0)
    with pytest.raises(TypeError, match="argnums"):
        fg.grad(lambda x: x, argnums="x")(1.0)  # type: ignore[arg-type]


def test_value_and_grad_with_aux_and_keywords() -> None:
    def f(x: Any, y: Any = 1.0, *, power: int, scale: Any) -> Any:
        return scale * (x**power).sum() * y, {"x": x, "n": 3, "tag": (y,)}

    x = f32(3)
    (value, aux), g = fg.value_and_grad(f, has_aux=True)(x, power=2, scale=5.0)
    equal(value, 5 * (x.astype(float) ** 2).sum())
    equal(aux, {"x": x, "n": 3, "tag": (1.0,)})
    equal(g, 10 * x)
    g, aux = fg.grad(f, has_aux=True)(x, 2.0, power=2, scale=5.0)
    equal(g, 20 * x)
    equal(aux["tag"], (2.0,))


def test_arguments_that_are_not_differentiated_may_be_anything() -> None:
    def f(x: Any, config: Any, name: str, values: Any, *, activation: Any) -> Any:
        assert name == "relu" and config["steps"] == 3
        return (activation(x) * values["w"]).sum()

    x = f32(3)
    g = fg.grad(f)(x, {"steps": 3, "obj": object()}, "relu", {"w": x, "note": None}, activation=fnp.square)
    equal(g, 2 * x * x)


def test_trees_of_every_kind_come_back() -> None:
    params = {"layers": [Layer(f32(2, 3), f32(3)), Pair(f32(3), (f32(1), None))], "scale": 2.0}

    def loss(p: Any) -> Any:
        a, b = p["layers"]
        return (a.w.sum() * a.b).sum() + (b.a * b.b[0] ** 2).sum() * p["scale"]

    g = fg.grad(loss)(params)
    layer, pair = params["layers"]
    want = {
        "layers": [
            Layer(np.full((2, 3), layer.b.sum()), np.full(3, layer.w.sum())),
            Pair(np.full(3, 2 * pair.b[0] ** 2), (2 * 2 * pair.b[0] * pair.a.sum(), None)),
        ],
        "scale": (pair.a * pair.b[0] ** 2).sum(),
    }
    equal(g, want, 1e-5)


def test_leaves_without_influence_get_zeros_of_their_own_type() -> None:
    g = fg.grad(lambda p: p["a"] * 2.0)({"a": 1.0, "b": f32(2, 3), "c": np.ones(2, np.float16)})
    equal(g, {"a": 2.0, "b": np.zeros((2, 3)), "c": np.zeros(2)})
    assert g["c"].dtype == np.float16


def test_integer_leaves() -> None:
    def f(p: Any) -> Any:
        return p["x"] * p["n"] ** 2

    with pytest.raises(
        DTypeError, match=r"grad of f: differentiated leaves must be floats, got i32\[\] at argument 0\['n'\]"
    ):
        fg.grad(f)({"x": 2.0, "n": 3})
    g = fg.grad(f, allow_int=True)({"x": 2.0, "n": 3})
    equal(g, {"x": 9.0, "n": 0})
    with pytest.raises(DTypeError, match="must be floats, got bool"):
        fg.grad(lambda x: 1.0 * x)(True)


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (lambda x: x, ShapeError, r"the function must return a scalar, got f32\[3\]"),
        (lambda x: x.sum() > 0, DTypeError, r"the function must return a float, got bool\[\]"),
        (lambda x: (x.sum(), x), TreeError, r"the function must return a scalar, got tuple"),
        (lambda x: None, TreeError, r"the function must return a scalar, got NoneType"),
        (lambda x: "loss", TreeError, r"the function must return a scalar, got str"),
    ],
)
def test_losses_that_are_none(result: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        fg.grad(result)(f32(3))


def test_has_aux_needs_a_pair() -> None:
    for transformed in (fg.grad(lambda x: x, has_aux=True), fg.value_and_grad(lambda x: (x, x, x), has_aux=True)):
        with pytest.raises(TreeError, match=r"has_aux=True needs a pair \(value, aux\)"):
            transformed(1.0)


def test_auxiliary_results_may_hold_anything() -> None:
    marker = object()

    def f(x: Any) -> Any:
        return (x * x).sum(), {"name": "run", "obj": [marker, None], "x": x, "n": 3}

    x = f32(3)
    for aux in (
        fg.grad(f, has_aux=True)(x)[1],
        fg.value_and_grad(f, has_aux=True)(x)[0][1],
        fg.vjp(f, x, has_aux=True)[2],
        fg.jvp(f, (x,), (x,), has_aux=True)[2],
        fg.linearize(f, x, has_aux=True)[2],
        fg.jacrev(f, has_aux=True)(x)[1],
    ):
        assert aux["name"] == "run" and aux["obj"] == [marker, None]
        equal((aux["x"], aux["n"]), (x, 3))
    with pytest.raises(TreeError, match="every leaf of the result must be a number or an array, got str"):
        fg.jit(fg.grad(f, has_aux=True))(x)


def test_a_constant_loss_has_gradient_zero() -> None:
    equal(fg.grad(lambda x: 3.0)(f32(2)), np.zeros(2))
    equal(fg.grad(lambda x: fnp.asarray(3.0))(1.0), 0.0)
    equal(fg.value_and_grad(lambda x: np.float32(3))(1.0), (3.0, 0.0))


# -- vjp, jvp, linearize -----------------------------------------------------------------------------------------
def test_vjp_with_trees_and_aux() -> None:
    def f(x: Any, y: Any) -> Any:
        return {"p": x["a"] * y, "s": (x["a"].sum(), y)}, {"aux": y.sum()}

    a, y = f32(3), f32(3, seed=1)
    value, pull, aux = fg.vjp(f, {"a": a}, y, has_aux=True)
    equal(value, {"p": a * y, "s": (a.sum(), y)})
    equal(aux, {"aux": y.sum()})
    ct = {"p": f32(3, seed=2), "s": (2.0, f32(3, seed=3))}
    gx, gy = pull(ct)
    equal(gx, {"a": ct["p"] * y + 2})
    equal(gy, ct["p"] * a + ct["s"][1])
    equal(pull(tree.map(lambda c: 2 * c, ct))[1], 2 * (ct["p"] * a + ct["s"][1]))


def test_vjp_of_integers() -> None:
    value, pull = fg.vjp(lambda n, x: (n + 1, x * n), 3, 2.0)
    equal(value, (4, 6.0))
    equal(pull((0, 5.0)), (0, 15.0))
    equal(pull((None, 5.0)), (0, 15.0))


def test_vjp_wants_the_cotangent_of_the_result() -> None:
    _, pull = fg.vjp(lambda x: {"y": x}, f32(3))
    with pytest.raises(TreeError, match="trees differ"):
        pull(f32(3))
    with pytest.raises(ShapeError, match=r"cotangent: the type must be f32\[3\], got f32\[2\]"):
        pull({"y": f32(2)})
    with pytest.raises(TreeError):
        pull({"z": f32(3)})


def test_jvp_with_trees_and_aux() -> None:
    def f(x: Any, n: Any) -> Any:
        return {"y": x["a"] ** 2 * n}, n + 1

    a, t = f32(3), f32(3, seed=1)
    value, tangent, aux = fg.jvp(f, ({"a": a}, 3), ({"a": t}, 0), has_aux=True)
    equal((value, tangent, aux), ({"y": 3 * a * a}, {"y": 6 * a * t}, 4))


def test_jvp_checks_its_arguments() -> None:
    with pytest.raises(TypeError, match="primals and tangents must be tuples or lists"):
        fg.jvp(fnp.sin, 1.0, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"tangent: the type must be f32\[3\], got f32\[2\]"):
        fg.jvp(fnp.sin, (f32(3),), (f32(2),))
    with pytest.raises(TreeError, match="trees differ"):
        fg.jvp(fnp.sin, (f32(3),), (f32(3), f32(3)))


def test_linearize_runs_the_function_once() -> None:
    calls = []

    def f(x: Any, n: Any) -> Any:
        calls.append(1)
        return fnp.sin(x) * n, (x.sum(), n)

    x = f32(4)
    value, push, aux = fg.linearize(f, x, 2, has_aux=True)
    equal(value, 2 * np.sin(x))
    equal(aux, (x.sum(), 2))
    for seed in (1, 2):
        t = f32(4, seed=seed)
        equal(push(t, 0), 2 * np.cos(x) * t)
    assert len(calls) == 1


def test_linear_transpose() -> None:
    m, ct = f32(2, 3), f32(2, seed=1)
    equal(fg.linear_transpose(lambda x: m @ x, f32(3, seed=2))(ct), (m.T @ ct,))
    spec = fg.ShapeDtypeStruct((3,), "float32")
    equal(fg.linear_transpose(lambda p: m @ p["x"], {"x": spec})(ct), ({"x": m.T @ ct},))


# -- Jacobians ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("jac", [fg.jacfwd, fg.jacrev, fg.jacobian])
def test_jacobian_of_trees(jac: Any) -> None:
    m, v = f32(2, 3), f32(3, seed=1)

    def f(p: Any, s: Any) -> Any:
        return {"mv": p["m"] @ p["v"] * s, "sq": (p["v"] ** 2,)}

    got = jac(f)({"m": m, "v": v}, 2.0)
    d_m = np.einsum("ai,j->aij", np.eye(2), v) * 2
    want = {
        "mv": {"m": d_m, "v": 2 * m},
        "sq": ({"m": np.zeros((3, 2, 3)), "v": np.diag(2 * v)},),
    }
    equal(got, want)
    got = jac(f, argnums=(1, 0))({"m": m, "v": v}, 2.0)
    equal(got["mv"], (m @ v, want["mv"]))


@pytest.mark.parametrize("jac", [fg.jacfwd, fg.jacrev])
def test_jacobian_with_aux_and_several_axes(jac: Any) -> None:
    x = f32(2, 3)
    got, aux = jac(lambda x: (fnp.outer(x[0], x[1]), x.sum()), has_aux=True)(x)
    want = np.zeros((3, 3, 2, 3))
    for i in range(3):
        for j in range(3):
            want[i, j, 0, i] += x[1, j]
            want[i, j, 1, j] += x[0, i]
    equal(got, want)
    equal(aux, x.sum())
    with pytest.raises(DTypeError, match="must be floats"):
        jac(lambda n: n * 1.0)(3)


def test_hessian_against_a_closed_form() -> None:
    # f = x'Ax/2 + sum(y^3) x_0: the blocks are sym(A), 6 y x_0 on the diagonal, 3 y^2 in the first row
    a, x, y = f32(3, 3), f32(3, seed=1), f32(2, seed=2)

    def f(p: Any) -> Any:
        return p["x"] @ a @ p["x"] / 2 + (p["y"] ** 3).sum() * p["x"][0]

    mixed = np.zeros((3, 2))
    mixed[0] = 3 * y**2
    want = {
        "x": {"x": (a + a.T) / 2, "y": mixed},
        "y": {"x": mixed.T, "y": np.diag(6 * y * x[0])},
    }
    for hess in (
        fg.hessian,
        lambda f: fg.jacrev(fg.jacfwd(f)),
        lambda f: fg.jacrev(fg.grad(f)),
        lambda f: fg.jacfwd(fg.jacfwd(f)),
    ):
        equal(hess(f)({"x": x, "y": y}), want, 1e-5)


def test_hessian_with_argnums() -> None:
    got = fg.hessian(lambda x, y: x**2 * y**3, argnums=(0, 1))(2.0, 3.0)
    equal(got, ((54.0, 108.0), (108.0, 72.0)))


# -- vmap --------------------------------------------------------------------------------------------------------
def test_vmap_axes() -> None:
    x, y = f32(4, 2), f32(3, 4, seed=1)
    got = fg.vmap(lambda a, b: a[0] * b + a[1], in_axes=(0, 1))(x, y)
    want = np.stack([x[i, 0] * y[:, i] + x[i, 1] for i in range(4)])
    equal(got, want)
    equal(fg.vmap(lambda a, b: a[0] * b + a[1], in_axes=(0, -1), out_axes=-1)(x, y), want.T)
    equal(fg.vmap(lambda a, b: a[0] * b + a[1], in_axes=[-2, 1], out_axes=1)(x, y), want.T)
    equal(fg.vmap(lambda a, b: a @ b, in_axes=(None, 1))(y.T, y), np.stack([y.T @ y[:, i] for i in range(4)]))


def test_vmap_axes_of_trees() -> None:
    p = {"w": f32(4, 3), "b": f32(3, 4, seed=1), "c": f32(3, seed=2)}
    axes = {"w": 0, "b": 1, "c": None}
    got = fg.vmap(
        lambda p, s: {"y": (p["w"] * p["b"] + p["c"]) * s, "n": (p["c"],)},
        in_axes=(axes, None),
        out_axes={"y": 1, "n": None},
    )(p, 2.0)
    want = (p["w"] * p["b"].T + p["c"]) * 2
    equal(got, {"y": want.T, "n": (p["c"],)})
    equal(fg.vmap(lambda t: t[0] + t[1], in_axes=((0, None),))((f32(4), 1.0)), f32(4) + 1)
    equal(fg.vmap(lambda t: t[0] * t[1], in_axes=0)((f32(4), f32(4))), f32(4) ** 2)


def test_vmap_of_keywords_and_unmapped_results() -> None:
    equal(fg.vmap(lambda x, *, y: x * y)(f32(4), y=f32(4, seed=1)), f32(4) * f32(4, seed=1))
    equal(fg.vmap(lambda x: 3.0)(f32(4)), np.full(4, 3.0))
    equal(fg.vmap(lambda x, y: y, in_axes=(0, None))(f32(4), f32(2)), np.tile(f32(2), (4, 1)))
    equal(fg.vmap(lambda: fnp.arange(2.0), axis_size=3)(), np.tile(np.arange(2.0), (3, 1)))
    equal(fg.vmap(lambda x: x, in_axes=None, axis_size=2)(5.0), np.full(2, 5.0))


def test_nested_vmap_is_an_outer_product() -> None:
    x, y = f32(3), f32(4, seed=1)
    inner = fg.vmap(lambda a, b: a * b, in_axes=(None, 0))
    equal(fg.vmap(inner, in_axes=(0, None))(x, y), np.outer(x, y))
    equal(fg.vmap(fg.vmap(fg.vmap(fnp.sum)))(f32(2, 3, 4, 5)), f32(2, 3, 4, 5).sum(-1), 1e-5)


def test_vmap_over_nothing() -> None:
    empty = np.zeros((0, 3), np.float32)
    equal(fg.vmap(lambda x: x.sum() * 2)(empty), np.zeros(0))
    equal(fg.vmap(lambda x: x @ x, in_axes=0)(np.zeros((4, 0), np.float32)), np.zeros(4))
    equal(fg.vmap(fg.grad(lambda x: (x**2).sum()))(empty), empty)


def test_vmap_of_gradients_per_example() -> None:
    w, x = f32(3), f32(5, 3, seed=1)
    got = fg.vmap(fg.grad(lambda w, x: fnp.tanh(w @ x)), in_axes=(None, 0))(w, x)
    equal(got, (1 - np.tanh(x @ w) ** 2)[:, None] * x)
    got = fg.grad(lambda w: fg.vmap(lambda x: fnp.tanh(w @ x))(x).sum())(w)
    equal(got, ((1 - np.tanh(x @ w) ** 2)[:, None] * x).sum(0), 1e-5)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: fg.vmap(fnp.sin, in_axes=1)(f32(3)),
            ShapeError,
            r"the mapped axis must exist, got axis 1 of f32\[3\]",
        ),
        (lambda: fg.vmap(fnp.sin)(np.float32(1)), ShapeError, r"the mapped axis must exist, got axis 0 of f32\[\]"),
        (lambda: fg.vmap(fnp.add)(f32(3), f32(4)), ShapeError, r"one size, got f32\[3\] on axis 0, f32\[4\] on axis 0"),
        (lambda: fg.vmap(fnp.sin, in_axes=(None,))(f32(3)), ShapeError, "give axis_size"),
        (lambda: fg.vmap(fnp.sin, axis_size=4)(f32(3)), ShapeError, "one size"),
        (lambda: fg.vmap(fnp.add, in_axes=(0,))(f32(3), f32(3)), ValueError, "one entry per argument"),
        (lambda: fg.vmap(fnp.sin, out_axes=None)(f32(3)), ValueError, "does not depend on mapped values"),
        (lambda: fg.vmap(fnp.sin, out_axes=1)(f32(3)), ShapeError, "out_axes must be an axis of the result"),
        (lambda: fg.vmap(fnp.sin, in_axes="x")(f32(3)), TypeError, "integers or None"),
        (lambda: fg.vmap(lambda p: p["a"], in_axes=({"b": 0},))({"a": f32(3)}), TreeError, "trees differ"),
    ],
)
def test_vmap_errors(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


# -- values in Python --------------------------------------------------------------------------------------------
def piecewise(x: Any) -> Any:
    """x^2 above 1, else 3 x: Python decides."""
    return x * x if x > 1 else 3.0 * x


@pytest.mark.parametrize(("x", "slope"), [(2.0, 4.0), (0.5, 3.0)])
def test_python_branches_on_values(x: float, slope: float) -> None:
    equal(fg.grad(piecewise)(x), slope)
    equal(fg.jvp(piecewise, (x,), (1.0,))[1], slope)
    equal(fg.vjp(piecewise, x)[1](1.0), (slope,))
    equal(fg.linearize(piecewise, x)[1](1.0), slope)
    equal(fg.jacfwd(piecewise)(x), slope)
    equal(fg.grad(fg.checkpoint(piecewise))(x), slope)
    equal(fg.grad(fg.grad(lambda x: piecewise(x) ** 2))(x), 12 * x * x if x > 1 else 18.0)
    equal(fg.vmap(lambda c, y: y * piecewise(c), in_axes=(None, 0))(x, f32(3)), f32(3) * piecewise(x))
    equal(fg.vmap(fg.grad(lambda c, y: (y * piecewise(c)).sum()), in_axes=(None, 0))(x, f32(3)), f32(3) * slope)


def test_python_loops_on_values() -> None:
    def f(x: Any) -> Any:
        n = 0
        while float(x) < 100 and n < int(fnp.asarray(10)):
            x, n = x * x, n + 1
        assert f"{x:.0f}" == "256" and x.item() == 256.0
        return x

    equal(fg.value_and_grad(f)(2.0), (256.0, 1024.0))


def test_values_inside_reach_numpy() -> None:
    seen = []

    def f(x: Any) -> Any:
        y = x * 2
        seen.append(np.asarray(y))
        return y.sum()

    equal(fg.grad(f)(f32(3)), np.full(3, 2.0))
    np.testing.assert_array_equal(seen[0], 2 * f32(3))


# -- stop_gradient, make_graph, eval_shape -----------------------------------------------------------------------
def test_nothing_depends_by_way_of_a_stop_gradient() -> None:
    """A while loop has no reverse mode, and needs none behind a stop_gradient: d/dx x^2 w(x) = 2 x w(x)."""

    def f(x: Any) -> Any:
        w = lax.while_loop(lambda s: s < 10.0, lambda s: s * 2.0, lax.stop_gradient(x))
        return x * x * w

    assert float(fg.grad(f)(3.0)) == float(fg.jit(fg.grad(f))(3.0)) == 2 * 3.0 * 12.0
    np.testing.assert_array_equal(np.asarray(fg.vmap(fg.grad(f))(np.array([3.0, 1.0], np.float32))), [72.0, 32.0])
    with pytest.raises(NotImplementedError, match="no reverse mode"):
        fg.grad(lambda x: lax.while_loop(lambda s: s < 10.0, lambda s: s * 2.0, x))(3.0)


def test_stop_gradient() -> None:
    equal(fg.grad(lambda x: x * lax.stop_gradient(x))(3.0), 3.0)
    equal(fg.jvp(lambda x: x * lax.stop_gradient(x), (3.0,), (1.0,)), (9.0, 3.0))
    x = f32(3)
    # the straight-through estimator: rounded forward, identity backward
    value, g = fg.value_and_grad(lambda x: (x + lax.stop_gradient(fnp.round(x) - x)).sum())(x)
    equal(value, np.round(x).sum())
    equal(g, np.ones(3))
    equal(fg.grad(lambda p: (p["a"] * lax.stop_gradient(p)["b"]).sum())({"a": x, "b": x}), {"a": x, "b": 0 * x})


def test_make_graph_and_eval_shape() -> None:
    spec = fg.ShapeDtypeStruct((2, 3), "float32")
    graph, out = fg.make_graph(lambda p, k: {"y": p["x"] @ p["x"].T, "n": k}, static_argnums=1, return_shape=True)(
        {"x": spec}, 3
    )
    assert out == {"y": fg.ShapeDtypeStruct((2, 2), "float32"), "n": fg.ShapeDtypeStruct((), "int32")}
    assert [str(v.aval) for v in graph.inputs] == ["f32[2,3]"]
    assert fg.make_jaxpr is fg.make_graph
    assert fg.eval_shape(fg.grad(lambda x: (x**2).sum()), spec) == spec
    big = fg.ShapeDtypeStruct((30000, 30000), "float32")
    assert fg.eval_shape(lambda x: x @ x, big) == big


def test_closed_over_arrays_are_the_first_inputs_of_a_graph() -> None:
    w = fnp.asarray(f32(3))
    graph = fg.make_graph(lambda x: (x * w + w).sum())(np.float32(1))
    assert [str(v.aval) for v in graph.inputs] == ["f32[3]", "f32[]"]


def test_transformations_keep_names_and_documentation() -> None:
    def loss(x: Any) -> Any:
        """The loss."""
        return x

    for made in (
        fg.grad(loss),
        fg.vmap(loss),
        fg.jit(loss),
        fg.checkpoint(loss),
        fg.value_and_grad(loss),
        fg.jacfwd(loss),
    ):
        assert made.__doc__ == "The loss." and made.__wrapped__ is loss
