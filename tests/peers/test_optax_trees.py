"""``optim.tree_utils``, ``optim.projections`` and the small functions: values and gradients are optax's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import optim, random

optax = pytest.importorskip("optax")
RNG = np.random.default_rng(0)
SHAPES = {"w": (3, 4), "b": (5,), "s": ()}
T, U = ({k: np.asarray(RNG.normal(size=s), np.float32) for k, s in SHAPES.items()} for _ in "TU")
SAME: dict[str, tuple[Any, ...]] = {
    "tree_div": (T, U),
    "tree_where": (np.asarray(True), T, U),
    "tree_clip": (T, -0.5, 0.7),
    "tree_full_like": (T, 3.0),
    "tree_cast_like": (T, {k: np.zeros(s, np.int32) for k, s in SHAPES.items()}),
    "tree_max": (T,),
    "tree_min": (T,),
    "tree_size": (T,),
    "tree_allclose": (T, T),
    "tree_batch_shape": (T, (2, 3)),
    "tree_update_moment": (T, U, 0.9, 2),
    "tree_update_moment_per_elem_norm": (T, U, 0.9, 3),
    "tree_update_infinity_moment": (T, U, 0.9, 1e-3),
    "tree_bias_correction": (T, 0.9, 3),
}


def equal(got: Any, want: Any, tol: float = 1e-6) -> None:
    for g, w in zip(fg.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.asarray(g).shape == np.asarray(w).shape and np.asarray(g).dtype == np.asarray(w).dtype
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=tol, atol=tol)


@pytest.mark.parametrize("name", SAME)
def test_tree_functions(name: str) -> None:
    args = SAME[name]
    as_ours = [fg.tree.map(lambda x: fnp.asarray(x) if isinstance(x, np.ndarray) else x, a) for a in args]
    got, want = getattr(optim.tree_utils, name)(*as_ours), getattr(optax.tree_utils, name)(*args)
    if name == "tree_size":
        assert got == want
    else:
        equal(got, want)
    assert getattr(optim.tree, name[5:]) is getattr(optim.tree_utils, name)


def test_different_trees_are_not_close_and_conditions_may_be_trees() -> None:
    assert not bool(optim.tree.allclose(T, U))
    condition = fg.tree.map(lambda x: x > 0, T)
    equal(optim.tree.where(condition, T, U), fg.tree.map(lambda c, x, y: np.where(c, x, y), condition, T, U))


def test_random_trees_are_optaxs() -> None:
    for sampler in ("normal", "uniform"):
        ours = optim.tree.random_like(random.PRNGKey(3), T, sampler=getattr(random, sampler))
        theirs = optax.tree_utils.tree_random_like(jax.random.PRNGKey(3), T, sampler=getattr(jax.random, sampler))
        equal(ours, theirs, 1e-5)
    keys = optim.tree.split_key_like(random.PRNGKey(3), T)
    equal(keys, optax.tree_utils.tree_split_key_like(jax.random.PRNGKey(3), T))


PROJECTIONS: dict[str, list[tuple[Any, ...]]] = {
    "projection_non_negative": [()],
    "projection_box": [(-0.3, 0.4)],
    "projection_hypercube": [(), (0.6,)],
    "projection_linf_ball": [(0.4,)],
    "projection_simplex": [(), (2.5,), (0.01,)],
    "projection_l1_sphere": [(), (30.0,)],
    "projection_l1_ball": [(), (300.0,)],
    "projection_l2_sphere": [(2.0,)],
    "projection_l2_ball": [(), (50.0,)],
    "projection_hyperplane": [(U, 0.7)],
    "projection_halfspace": [(U, 0.7), (U, 700.0)],
    "projection_vector": [(U,)],
}


def gradient(lib: Any, np_: Any, project: Any, args: tuple[Any, ...]) -> Any:
    """Of a weighted sum of sines of the projection."""
    return lib.grad(lambda x: sum((np_.sin(v) * U[k]).sum() for k, v in project(x, *args).items()))(T)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections(name: str) -> None:
    for args in PROJECTIONS[name]:
        ours, theirs = getattr(optim.projections, name), getattr(optax.projections, name)
        whole = args
        if name in ("projection_box", "projection_hypercube"):  # optax's bounds are trees
            bounds = args if name == "projection_box" else (0.0, *(args or (1.0,)))
            whole = tuple(fg.tree.map(lambda x, a=a: np.full_like(x, a), T) for a in bounds)
            theirs = optax.projections.projection_box  # optax's hypercube takes no trees
        equal(ours(T, *args), theirs(T, *whole), 1e-5)
        if name == "projection_box":
            equal(ours(T, *whole), theirs(T, *whole), 1e-5)
        equal(gradient(fg, fnp, ours, args), gradient(jax, jnp, theirs, whole), 2e-5)


def of_norm(lib: Any, top: Any, x: Any, options: dict[str, Any]) -> Any:
    """The norm and the gradient of its sum."""
    value = lambda v: lib.safe_norm(v, 0.5, **options)
    return value(x), top.grad(lambda v: value(v).sum())(x)


def test_small_functions() -> None:
    x = RNG.normal(size=(4, 3)).astype(np.float32)
    x[2] = 0
    for options in ({}, {"axis": 1}, {"axis": 1, "keepdims": True}):
        equal(of_norm(optim, fg, x, options), of_norm(optax, jax, x, options))
    for scale in (1.0, 1e-4):
        equal(optim.safe_root_mean_squares(x * scale, 0.1), optax.safe_root_mean_squares(x * scale, 0.1))
        g = lambda lib: lambda v: lib.safe_root_mean_squares(v, 0.1)
        equal(fg.grad(g(optim))(np.float32(scale) * x), jax.grad(g(optax))(np.float32(scale) * x))
    h = lambda lib, m: lambda v: m.sin(lib.scale_gradient(v, 0.25)).sum()
    equal(fg.grad(h(optim, fnp))(x), jax.grad(h(optax, jnp))(x))
    assert int(optim.safe_int32_increment(fnp.asarray(2**31 - 1, dtype=fnp.int32))) == 2**31 - 1
