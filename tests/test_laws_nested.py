"""Laws that hold for every program: transformations agree in every order and nesting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from test_laws import SEEDS, loss_of, near

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, tree
from funcgrad.testing import check_grads, random_function

pytestmark = pytest.mark.usefixtures("reference")


# -- transformations agree ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives_of_random_functions(seed: int) -> None:
    f, args, _ = random_function(seed, "smooth", size=12, dtype=np.float64)
    check_grads(loss_of(f), args, order=2, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_hessians_agree(seed: int) -> None:
    f, args, _ = random_function(seed, "smooth", size=10, dtype=np.float64)
    loss = loss_of(f)
    nums = (0, 1, 2)
    forward_reverse = fg.hessian(loss, nums)(*args)
    flat = [
        np.asarray(h).reshape(np.size(args[i]), np.size(args[j]))
        for i, row in enumerate(forward_reverse)
        for j, h in enumerate(row)
    ]
    blocks = np.block([flat[3 * i : 3 * i + 3] for i in range(3)])
    np.testing.assert_allclose(blocks, blocks.T, rtol=1e-10, atol=1e-10)
    near(fg.jacrev(fg.jacfwd(loss, nums), nums)(*args), forward_reverse)
    near(fg.jacrev(fg.jacrev(loss, nums), nums)(*args), forward_reverse)
    near(fg.jacfwd(fg.jacfwd(loss, nums), nums)(*args), forward_reverse)
    near(fg.jit(fg.hessian(fg.checkpoint(loss), nums))(*args), forward_reverse)


@pytest.mark.parametrize("seed", SEEDS)
def test_vmap_commutes_with_grad_and_jit(seed: int) -> None:
    f, args, _ = random_function(seed, "smooth", size=12, dtype=np.float64)
    loss = loss_of(f)
    rng = np.random.default_rng(seed)
    rows = [np.stack([a + 0.1 * rng.normal(size=np.shape(a)) for _ in range(3)]) for a in args]
    for axes in [(0, 0, 0), (0, None, 0), (None, None, 0)]:
        given = [r if ax == 0 else a for r, a, ax in zip(rows, args, axes, strict=True)]
        each = [[g[i] if ax == 0 else g for g, ax in zip(given, axes, strict=True)] for i in range(3)]
        grad = fg.grad(loss, argnums=(0, 1, 2))
        want = [np.stack(col) for col in zip(*[[np.asarray(g) for g in grad(*e)] for e in each], strict=True)]
        for h in (fg.vmap(grad, axes), fg.jit(fg.vmap(grad, axes)), fg.vmap(fg.jit(grad), axes)):
            near(list(h(*given)), want)
        values = [np.stack(col) for col in zip(*[[np.asarray(y) for y in f(*e)] for e in each], strict=True)]
        near(list(fg.jit(fg.vmap(f, axes))(*given)), values)
        total = fg.grad(lambda *xs, axes=axes: fg.vmap(loss, axes)(*xs).sum(), argnums=(0, 1, 2))(*given)
        summed = [w if ax == 0 else w.sum(0) for w, ax in zip(want, axes, strict=True)]
        near(list(total), summed)


# -- nesting -----------------------------------------------------------------------------------------------------
def mlp(p: Any, x: Any) -> Any:
    h = fnp.tanh(x @ p["w1"] + p["b1"])
    return ((h @ p["w2"]) ** 2).mean()


RNG = np.random.default_rng(0)
PARAMS = {"w1": RNG.normal(size=(3, 5)), "b1": RNG.normal(size=5), "w2": RNG.normal(size=(5, 2))}
BATCH = RNG.normal(size=(4, 3))


def closed_form() -> tuple[float, dict[str, Any]]:
    """The loss and its gradient written out by hand."""
    h = np.tanh(BATCH @ PARAMS["w1"] + PARAMS["b1"])
    y = h @ PARAMS["w2"]
    dy = 2 * y / y.size
    da = (dy @ PARAMS["w2"].T) * (1 - h * h)
    return float((y * y).mean()), {"w1": BATCH.T @ da, "b1": da.sum(0), "w2": h.T @ dy}


def zeros_like(t: Any) -> Any:
    return tree.map(lambda a: a * 0.0, t)


def replayed(f: Any) -> Any:
    """Through make_graph: the graph is traced, and evaluated by operations of the library."""

    def g(p: Any, x: Any) -> Any:
        graph = fg.make_graph(f)(p, x)
        assert not [e for e in graph.eqns if e.prim.name == "constant"]
        return fg.jit(f).lower(p, x).compile()(p, x)

    return g


def with_custom_rule(f: Any) -> Any:
    g = fg.custom_vjp(f)
    g.defvjp(lambda p, x: (f(p, x), (p, x)), lambda res, ct: fg.vjp(f, *res)[1](ct))
    return g


def with_custom_tangent(f: Any) -> Any:
    g = fg.custom_jvp(f)
    g.defjvp(lambda primals, tangents: fg.jvp(f, primals, tangents))
    return g


# Each gives a function of the same value and the same derivatives.
WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "jit": fg.jit,
    "checkpoint": fg.checkpoint,
    "value_and_grad": lambda f: lambda p, x: fg.value_and_grad(f)(p, x)[0],
    "vjp": lambda f: lambda p, x: fg.vjp(f, p, x)[0],
    "jvp": lambda f: lambda p, x: fg.jvp(f, (p, x), (zeros_like(p), x))[0],
    "linearize": lambda f: lambda p, x: fg.linearize(f, p, x)[0],
    "vmap": lambda f: lambda p, x: fg.vmap(f, in_axes=(None, 0))(p, x[None])[0],
    "vmap of params": lambda f: (
        lambda p, x: fg.vmap(f, in_axes=(0, None))(tree.map(lambda a: fnp.stack([a, a]), p), x).mean()
    ),
    "compiled": replayed,
    "scan": lambda f: lambda p, x: lax.scan(lambda c, y: (c + f(p, y), None), 0.0 * x.sum(), x[None])[0],
    "cond": lambda f: lambda p, x: lax.cond(x[0, 0] > -1e9, f, lambda p, x: f(p, x) * 0.0, p, x),
    "custom_vjp": with_custom_rule,
    "custom_jvp": with_custom_tangent,
    # Euler: <gradient of a linear function, argument> is its value
    "grad": lambda f: lambda p, x: fg.grad(lambda s: s * f(p, x))(fnp.asarray(1.0, dtype=np.float64)),
}
REVERSE_ONLY = {"custom_vjp"}
FORWARD = {"jvp", "linearize", "custom_jvp"}


def nestings() -> list[tuple[str, ...]]:
    """Every pair, and random ones of three and four."""
    rng = np.random.default_rng(1)
    names = list(WRAPPERS)
    found = list(itertools.product(names, repeat=2))
    found += [tuple(rng.choice(names, k)) for k in (3, 4) for _ in range(40)]
    return [n for n in found if not _forward_over_reverse_rule(n)]


def _forward_over_reverse_rule(names: Sequence[str]) -> bool:
    """A custom_vjp has no forward mode, so none may be outside of it (the first name is the innermost)."""
    return any(a in REVERSE_ONLY and FORWARD & set(names[i + 1 :]) for i, a in enumerate(names))


@pytest.mark.parametrize("names", nestings(), ids="-".join)
def test_nested_transformations_agree(names: tuple[str, ...]) -> None:
    f = mlp
    for name in names:
        f = WRAPPERS[name](f)
    value, grads = closed_form()
    got = fg.value_and_grad(f)(PARAMS, BATCH)
    near(got, (value, grads), 1e-10)
    near(fg.jit(f)(PARAMS, BATCH), value, 1e-10)


@pytest.mark.parametrize("names", nestings()[::7], ids="-".join)
def test_second_derivatives_of_nested_transformations_agree(names: tuple[str, ...]) -> None:
    def along(f: Any) -> Any:
        """The gradient of the squared norm of the gradient: 2 H g."""
        return fg.grad(lambda p: sum((a**2).sum() for a in tree.leaves(fg.grad(f)(p, BATCH))))(PARAMS)

    f = mlp
    for name in names:
        f = WRAPPERS[name](f)
    # H g by differences of the closed form
    _, g = closed_form()
    h = 1e-5
    shifted = []
    for s in (1, -1):
        saved = dict(PARAMS)
        try:
            PARAMS.update({k: saved[k] + s * h * g[k] for k in saved})
            shifted.append(closed_form()[1])
        finally:
            PARAMS.update(saved)
    want = {k: (shifted[0][k] - shifted[1][k]) / h for k in g}
    near(along(f), want, 1e-7)


# -- perturbations -----------------------------------------------------------------------------------------------
def test_perturbations_are_not_confused() -> None:
    grad, one = fg.grad, 1.0

    def d(f: Any) -> Any:
        return lambda x: fg.jvp(f, (x,), (1.0,))[1]

    for outer, inner in itertools.product([grad, d], repeat=2):
        # d/dx [x * d/dy (x + y)] = 1 and d/dx [x * d/dy (x y)] = 2 x
        near(outer(lambda x, i=inner: x * i(lambda y: x + y)(one))(one), np.float64(1.0))
        near(outer(lambda x, i=inner: x * i(lambda y: x * y)(2.0))(3.0), np.float64(6.0))
        near(outer(lambda x, i=inner: i(lambda y: x * y * y)(x))(3.0), np.float64(12.0))
        near(outer(lambda x, i=inner: i(i(lambda y: x**2 * y**3))(x))(2.0), np.float64(72.0))
        near(
            fg.jit(outer(lambda x, i=inner: fg.jit(i(lambda y: fg.checkpoint(lambda z: x * z * y)(y)))(x)))(3.0),
            np.float64(12.0),
        )
        near(fg.vmap(outer(lambda x, i=inner: x * i(lambda y: x * y)(2.0)))(np.array([1.0, 2.0])), np.array([2.0, 4.0]))
