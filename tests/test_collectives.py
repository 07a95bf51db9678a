"""Collectives over a named axis of vmap against numpy: values, derivatives in every order, nesting, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import compare
import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax

pytestmark = pytest.mark.usefixtures("reference")


def close(got: Any, want: Any, tol: float = 1e-10) -> None:
    compare.close(got, want, tol)


X = np.random.default_rng(0).normal(size=(4, 3))
PERM = [(0, 2), (1, 0), (3, 3)]


def permuted(x: Any) -> Any:
    out = np.zeros_like(x)
    for s, d in PERM:
        out[d] = x[s]
    return out


# name -> (per lane with lax, all lanes with numpy)
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "psum": (lambda x: lax.psum(x, "i"), lambda x: np.broadcast_to(x.sum(0), x.shape)),
    "pmean": (lambda x: lax.pmean(x, "i"), lambda x: np.broadcast_to(x.mean(0), x.shape)),
    "pmax": (lambda x: lax.pmax(x, "i"), lambda x: np.broadcast_to(x.max(0), x.shape)),
    "pmin": (lambda x: lax.pmin(x, "i"), lambda x: np.broadcast_to(x.min(0), x.shape)),
    "all_gather": (lambda x: lax.all_gather(x, "i"), lambda x: np.broadcast_to(x, (4, 4, 3))),
    "all_gather axis 1": (lambda x: lax.all_gather(x, "i", axis=1), lambda x: np.broadcast_to(x.T, (4, 3, 4))),
    "all_gather tiled": (lambda x: lax.all_gather(x, "i", tiled=True), lambda x: np.broadcast_to(x.ravel(), (4, 12))),
    "ppermute": (lambda x: lax.ppermute(x, "i", PERM), permuted),
    "psum_scatter": (
        lambda x: lax.psum_scatter(lax.all_gather(x, "i") * x, "i"),
        lambda x: x * x.sum(0),
    ),
    "psum_scatter tiled": (
        lambda x: lax.psum_scatter(lax.all_gather(x, "i", tiled=True), "i", tiled=True),
        lambda x: 4 * x,
    ),
    "axis_index": (lambda x: x * lax.axis_index("i"), lambda x: x * np.arange(4.0)[:, None]),
    "softmax": (
        lambda x: fnp.exp(x - lax.pmax(x, "i")) / lax.psum(fnp.exp(x - lax.pmax(x, "i")), "i"),
        lambda x: np.exp(x) / np.exp(x).sum(0),
    ),
}
EVERY = pytest.mark.parametrize("name", CASES)


def weighted(out: Any) -> Any:
    """A scalar per lane set: every element counts differently, and not linearly."""
    w = np.cos(np.arange(out.size)).reshape(out.shape)
    return (out * w + 0.5 * out * out).sum()


def numeric(f: Callable[[Any], Any], x: Any, t: Any, h: float = 1e-6) -> Any:
    return (f(x + h * t) - f(x - h * t)) / (2 * h)


@EVERY
@pytest.mark.parametrize("jit", [False, True])
def test_values(name: str, jit: bool) -> None:
    lane, want = CASES[name]
    f = fg.vmap(lane, axis_name="i")
    close((fg.jit(f) if jit else f)(X), want(X))


@EVERY
def test_derivatives(name: str) -> None:
    """Gradient and directional derivative of the mapped function against central differences, and second order."""
    lane, want = CASES[name]
    t = np.random.default_rng(1).normal(size=X.shape)
    mapped = fg.vmap(lane, axis_name="i")
    loss = lambda x: weighted(mapped(x))
    slope = numeric(lambda x: weighted(want(x)), X, t)
    np.testing.assert_allclose(float((fg.grad(loss)(X) * t).sum()), slope, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(float(fg.jvp(loss, (X,), (t,))[1]), slope, rtol=1e-6, atol=1e-8)
    curve = numeric(lambda x: np.asarray(fg.grad(loss)(x)), X, t)
    close(fg.jvp(fg.grad(loss), (X,), (t,))[1], curve, 1e-6)
    close(fg.grad(lambda x: fg.jvp(loss, (x,), (t,))[1])(X), curve, 1e-6)


@EVERY
def test_gradient_inside_the_map(name: str) -> None:
    """The sum over all lanes of each lane's own loss: what a lane's value does to the others' losses counts."""
    lane, want = CASES[name]
    inside = fg.vmap(fg.grad(lambda x: (lane(x) ** 2).sum()), axis_name="i")(X)
    outside = fg.grad(lambda x: (fg.vmap(lane, axis_name="i")(x) ** 2).sum())(X)
    close(inside, outside)
    t = np.random.default_rng(2).normal(size=X.shape)
    close((inside * t).sum(), numeric(lambda x: (want(x) ** 2).sum(), X, t), 1e-6)


@EVERY
def test_under_another_map(name: str) -> None:
    """A map without a name, or with another one, goes around or inside."""
    lane, want = CASES[name]
    xs = np.stack([X, X * 0.5 - 1.0])
    around = fg.vmap(fg.vmap(lane, axis_name="i"), axis_name="j")(xs)
    close(around, np.stack([want(x) for x in xs]))
    inside = fg.vmap(fg.vmap(lane), in_axes=1, axis_name="i")(xs)
    close(inside, np.stack([want(x) for x in xs], 1))


def test_several_names() -> None:
    xs = np.stack([X, X * 0.5 - 1.0])
    f = fg.vmap(
        fg.vmap(lambda x: (lax.psum(x, ("i", "j")), lax.pmean(x, "j"), lax.psum(1, ("i", "j"))), axis_name="i"),
        axis_name="j",
    )
    total, mean, count = f(xs)
    close(total, np.broadcast_to(xs.sum((0, 1)), xs.shape))
    close(mean, np.broadcast_to(xs.mean(0), xs.shape))
    close(count, np.full((2, 4), 8))


def test_values_that_are_the_same_in_all_lanes() -> None:
    c = np.array([1.0, 2.0])
    out = fg.vmap(
        lambda x: (lax.psum(c, "i"), lax.pmax(c, "i"), lax.all_gather(c, "i"), lax.ppermute(c, "i", PERM), x),
        axis_name="i",
    )(X)
    close(out[0], np.broadcast_to(4 * c, (4, 2)))
    close(out[1], np.broadcast_to(c, (4, 2)))
    close(out[2], np.broadcast_to(c, (4, 4, 2)))
    close(out[3], permuted(np.broadcast_to(c, (4, 2))))


def test_ties_share_the_gradient() -> None:
    x = np.array([1.0, 3.0, 3.0, 2.0])
    close(fg.grad(lambda v: fg.vmap(lambda u: lax.pmax(u, "i"), axis_name="i")(v).sum())(x), [0, 2, 2, 0])


def test_inside_loops_branches_and_gradients() -> None:
    """The axis is still known in a scan, a cond, a checkpoint, a jit and a gradient."""

    def lane(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return lax.psum(c, "i") / lax.psum(1, "i") + x * 0.1 * lax.axis_index("i"), None

        c, _ = lax.scan(step, x, None, length=6)
        return lax.cond(c.sum() > 0, lambda c: lax.psum(c, "i"), lambda c: c - lax.pmax(c, "i"), c)

    def reference(x: Any) -> Any:
        c = x
        for _ in range(6):
            c = c.mean(0) + x * 0.1 * np.arange(4)[:, None]
        return np.where((c.sum(1) > 0)[:, None], c.sum(0), c - c.max(0))

    t = np.random.default_rng(3).normal(size=X.shape)
    slope = numeric(lambda x: (reference(x) ** 2).sum(), X, t)

    def check(f: Any) -> None:
        mapped = fg.vmap(f, axis_name="i")
        close(mapped(X), reference(X))
        close((fg.grad(lambda x: (mapped(x) ** 2).sum())(X) * t).sum(), slope, 1e-6)
        close((fg.vmap(fg.grad(lambda x: (f(x) ** 2).sum()), axis_name="i")(X) * t).sum(), slope, 1e-6)

    check(lane)
    check(fg.checkpoint(lane))
    check(fg.jit(lane))


def test_trees_bools_and_integers() -> None:
    out = fg.vmap(lambda x: lax.psum({"n": x > 0, "k": x.astype("int32")}, "i"), axis_name="i")(X[:, 0])
    assert out["n"].dtype == np.int32 and out["k"].dtype == np.int32
    close(out["n"], np.full(4, (X[:, 0] > 0).sum()))
    assert fg.vmap(lambda x: lax.pmean(x, "i"), axis_name="i")(np.array([1, 2], np.int32)).dtype == np.float32


def test_no_python_branch_on_the_lane() -> None:
    with pytest.raises(fg.errors.TracerBoolConversionError):
        fg.vmap(lambda x: x if lax.axis_index("i") > 0 else -x, axis_name="i")(X)


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "outside": (lambda: lax.psum(fnp.asarray(1.0), "i"), NameError, "'i'.*there are: none"),
    "other name": (lambda: fg.vmap(lambda x: lax.pmean(x, "j"), axis_name="i")(X), NameError, "'j'; there are: 'i'"),
    "index outside": (lambda: lax.axis_index("i"), NameError, "'i'"),
    "perm twice": (
        lambda: fg.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (2, 1)]), axis_name="i")(X),
        ValueError,
        "distinct",
    ),
    "perm range": (
        lambda: fg.vmap(lambda x: lax.ppermute(x, "i", [(0, 9)]), axis_name="i")(X),
        ValueError,
        "between 0 and 3",
    ),
    "scatter size": (
        lambda: fg.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(X),
        ValueError,
        "the size 4 of 'i'",
    ),
    "gather axis": (
        lambda: fg.vmap(lambda x: lax.all_gather(x, "i", axis=5), axis_name="i")(X),
        ValueError,
        "axis must be",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call()
