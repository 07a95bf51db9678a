"""vmap, and Jacobians by it, against loops and closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import f32
from test_transforms import equal

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.errors import DTypeError, ShapeError, TreeError

pytestmark = pytest.mark.usefixtures("device")


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
