"""Control flow against JAX in float64: one source text, run through both libraries, under every transformation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax

jax = pytest.importorskip("jax")

OURS = SimpleNamespace(
    grad=fg.grad,
    jvp=fg.jvp,
    vmap=fg.vmap,
    hessian=fg.hessian,
    jacfwd=fg.jacfwd,
    jit=fg.jit,
    remat=fg.checkpoint,
    np=fnp,
    lax=lax,
)
THEIRS = SimpleNamespace(
    grad=jax.grad,
    jvp=jax.jvp,
    vmap=jax.vmap,
    hessian=jax.hessian,
    jacfwd=jax.jacfwd,
    jit=jax.jit,
    remat=jax.checkpoint,
    np=jax.numpy,
    lax=jax.lax,
)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """Both libraries in float64, for this file only."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    with fg.default_device("numpy"):
        yield
    jax.config.update("jax_enable_x64", before)


# -- programs: (library) -> function of two arrays to a scalar --------------------------------------------------------
def decay(m: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            return {"a": c["a"] * m.np.tanh(v) + c["b"], "b": c["b"] * 0.9 + m.np.sin(c["a"])}, (c["a"], v * c["b"])

        c, (u, w) = m.lax.scan(step, {"a": y.sum(), "b": y[0]}, x)
        return c["a"] * c["b"] + (u * w).sum()

    return f


def backwards(m: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        c, ys = m.lax.scan(lambda c, v: (m.np.outer(c, v).sum(0) * 0.1 + v, c * v), y, m.np.outer(x, y), reverse=True)
        return (c * ys).sum()

    return f


def length_only(m: Any) -> Any:
    return lambda x, y: m.lax.scan(lambda c, _: (m.np.cos(c) * y.sum() + x, None), x, None, length=5)[0].sum()


def nested(m: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        def outer(c: Any, v: Any) -> Any:
            inner = lambda d, w: (d * 0.5 + m.np.sin(w * v * c), d * w)
            d, ws = m.lax.scan(inner, c, y)
            return d, ws.sum()

        c, ys = m.lax.scan(outer, 1.0, x)
        return c + (ys * ys).sum()

    return f


def remat(m: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        step = m.remat(lambda c, v: (m.np.sin(m.np.exp(c * 0.3) + v) * y, (c * y).sum()))
        c, ys = m.lax.scan(step, y, x)
        return c.sum() + (ys**2).sum()

    return f


def branches(m: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        p = m.lax.cond(x.sum() > 0, lambda a, b: m.np.sin(a) * b.sum(), lambda a, b: a * a + b[0], x, y)
        q = m.lax.cond(y[0] > 10, lambda: x * y.sum(), lambda: m.np.exp(x) - y.sum())
        return (p * q).sum()

    return f


def chosen(m: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        index = (x * 3).astype("int32")
        pick = lambda i, v: m.lax.switch(i, [m.np.sin, lambda v: v * v * y.sum(), m.np.exp, lambda v: y[0] * v], v)
        return m.vmap(pick)(index, x).sum() * pick(7, y.sum())

    return f


def branch_in_loop(m: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            return m.lax.cond(v > 0, lambda c: (m.np.sin(c) * v, c), lambda c: (c * y.sum(), c * v), c)

        c, ys = m.lax.scan(step, x.mean(), x)
        return c * ys.sum()

    return f


def power_series(m: Any) -> Any:
    return lambda x, y: m.lax.fori_loop(1, 7, lambda i, s: s + x**2 / i * m.np.sin(s * y.sum()), x).sum()


def rows(m: Any) -> Any:
    return lambda x, y: (m.lax.map(lambda v: m.np.sin(v * y).sum(), x) ** 2).sum()


def batched_rows(m: Any) -> Any:
    return lambda x, y: (m.lax.map(lambda v: m.np.sin(v * y).sum(), x, batch_size=2) ** 2).sum()


def prefixes(m: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        affine = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])
        up = m.lax.associative_scan(affine, (m.np.cos(x), x * y.sum()))
        down = m.lax.associative_scan(affine, (m.np.cos(x), x * y.sum()), reverse=True)
        return (up[0] * down[1] + up[1]).sum()

    return f


def lanes(m: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        def lane(v: Any) -> Any:
            p = m.np.exp(v) / m.lax.psum(m.np.exp(v), "i")
            others = m.lax.ppermute(p, "i", [(i, (i + 2) % 5) for i in range(5)])
            every = m.lax.all_gather(v * p, "i")
            return (p - m.lax.pmean(others, "i")) * m.lax.axis_index("i") + (every * y[0]).sum() * others

        return (m.vmap(lane, axis_name="i")(x) ** 2).sum()

    return f


LOOPS = [decay, backwards, length_only, nested, remat, power_series, rows, batched_rows, prefixes]
PROGRAMS = [*LOOPS, branches, chosen, branch_in_loop, lanes]
X, Y = np.array([0.3, -0.8, 1.1, 0.5, -0.2]), np.array([0.7, -0.4])
TX, TY = np.cos(np.arange(5.0)), np.array([0.2, 1.3])
TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "value": lambda m, f: f(X, Y),
    "jit": lambda m, f: m.jit(f)(X, Y),
    "grad": lambda m, f: m.grad(f, (0, 1))(X, Y),
    "jit grad": lambda m, f: m.jit(m.grad(f, (0, 1)))(X, Y),
    "jvp": lambda m, f: m.jvp(f, (X, Y), (TX, TY)),
    "hessian": lambda m, f: m.hessian(f, (0, 1))(X, Y),
    "grad of grad": lambda m, f: m.grad(lambda x, y: (m.grad(f, 1)(x, y) ** 2).sum(), (0, 1))(X, Y),
    "grad of jvp": lambda m, f: m.grad(lambda x, y: m.jvp(f, (x, y), (TX, TY))[1], (0, 1))(X, Y),
    "vmap": lambda m, f: m.vmap(f, (None, 0))(X, np.stack([Y, -Y, Y + 1])),
    "vmap of grad": lambda m, f: m.vmap(m.grad(f, (0, 1)))(np.stack([X, -X]), np.stack([Y, Y * 0.5])),
    "grad of vmap": lambda m, f: m.grad(lambda x, y: (m.vmap(f, (0, None))(x, y) ** 2).sum(), (0, 1))(
        np.stack([X, -X]), Y
    ),
    "third": lambda m, f: m.jacfwd(m.hessian(f, 1), 1)(X, Y),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_agrees(program: Any, transform: str) -> None:
    ours, theirs = (TRANSFORMS[transform](m, program(m)) for m in (OURS, THEIRS))
    got, want = fg.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("jit", [False, True])
def test_while_loops(jit: bool) -> None:
    """Values, forward mode and maps of a loop whose number of steps depends on the data."""

    def collatz(m: Any) -> Any:
        even = lambda n: n % 2 == 0
        step = lambda s: (m.np.where(even(s[0]), s[0] // 2, 3 * s[0] + 1), s[1] + 1, s[2] * m.np.sin(s[2] + 0.3))
        f = lambda n, x: m.lax.while_loop(lambda s: s[0] != 1, step, (n, 0, x))[1:]
        return m.jit(f) if jit else f

    n, x = np.array([1, 7, 12, 27], np.int32), np.array([0.5, 0.6, 0.7, 0.8])
    for run in (
        lambda m: [collatz(m)(int(k), v) for k, v in zip(n, x, strict=True)],
        lambda m: m.vmap(collatz(m))(n, x),
        lambda m: m.vmap(lambda k: collatz(m)(k, x[0]))(n),
        lambda m: m.vmap(lambda k, v: m.jvp(lambda u: collatz(m)(k, u)[1], (v,), (1.0,)))(n, x),
        lambda m: m.jacfwd(lambda v: m.vmap(collatz(m))(n, v)[1])(x),
    ):
        for a, b in zip(fg.tree.leaves(run(OURS)), jax.tree.leaves(run(THEIRS)), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10, atol=1e-300)


X3 = np.ones(3)
WRONG: dict[str, Callable[[Any], Any]] = {
    "carry type": lambda m: m.lax.scan(lambda c, x: (c * 1.5, x), np.int32(1), X3),
    "carry shape": lambda m: m.lax.scan(lambda c, x: (c.sum(), x), X3, X3),
    "carry structure": lambda m: m.lax.scan(lambda c, x: ((c,), x), 1.0, X3),
    "no pair": lambda m: m.lax.scan(lambda c, x: c, 1.0, X3),
    "lengths": lambda m: m.lax.scan(lambda c, x: (c, None), 0.0, (X3, np.ones(4))),
    "length and xs": lambda m: m.lax.scan(lambda c, x: (c, None), 0.0, X3, length=4),
    "no length": lambda m: m.lax.scan(lambda c, x: (c, None), 0.0),
    "scalar xs": lambda m: m.lax.scan(lambda c, x: (c, None), 0.0, 1.0),
    "predicate shape": lambda m: m.lax.cond(X3 > 0, lambda: 1, lambda: 2),
    "predicate text": lambda m: m.lax.cond("yes", lambda: 1, lambda: 2),
    "branch types": lambda m: m.lax.cond(True, lambda x: x, lambda x: x.sum(), X3),
    "branch structures": lambda m: m.lax.cond(True, lambda x: (x,), lambda x: x, X3),
    "branch no function": lambda m: m.lax.cond(True, 1, lambda: 2),
    "switch index": lambda m: m.lax.switch(1.5, [lambda: 1, lambda: 2]),
    "switch empty": lambda m: m.lax.switch(0, []),
    "condition type": lambda m: m.lax.while_loop(lambda v: v, lambda v: v, 1.0),
    "condition shape": lambda m: m.lax.while_loop(lambda v: v > 0, lambda v: v, X3),
    "while carry": lambda m: m.lax.while_loop(lambda v: v.sum() > 0, lambda v: v.sum(), X3),
    "unbound name": lambda m: m.lax.psum(m.np.ones(3), "i"),
    "python branch": lambda m: m.lax.scan(lambda c, x: (c if x > 0 else -c, None), 1.0, X3),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_derive_from_the_same_builtin(name: str) -> None:
    """A program that catches JAX's error catches ours."""
    with pytest.raises(Exception) as theirs:
        WRONG[name](THEIRS)
    builtin = next(t for t in (TypeError, ValueError, NameError) if isinstance(theirs.value, t))
    with pytest.raises(builtin):
        WRONG[name](OURS)
