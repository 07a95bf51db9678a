"""Derivatives against closed forms: arguments, trees, structure, Python control flow on values."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from compare import f32

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


@pytest.mark.parametrize("transformation", [fg.grad, fg.value_and_grad, fg.jacfwd, fg.jacrev, fg.hessian])
def test_derivatives_are_real(transformation: Any) -> None:
    transformation(lambda x: x, holomorphic=False)
    with pytest.raises(NotImplementedError, match="holomorphic must be False: there are no complex numbers"):
        transformation(lambda x: x, holomorphic=True)


def test_names_of_jax_that_are_not_here_say_what_to_do() -> None:
    for name, way_out in (("config", "no global switches"), ("pmap", "vmap with an axis name")):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'\n  way out: {way_out}"):
            getattr(fg, name)
    with pytest.raises(AttributeError, match=r"no attribute 'fft'\n  way out: there are no complex numbers"):
        _ = fnp.fft
    for module in (fg, fnp):
        with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
            _ = module.nonsense
