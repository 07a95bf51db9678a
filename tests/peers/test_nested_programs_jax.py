"""Deeply nested transformations, written once and run through JAX and through funcgrad on its default device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, tree

jax = pytest.importorskip("jax")
ad_checkpoint = pytest.importorskip("jax.ad_checkpoint")

SHARED = (
    "grad jvp vmap jit checkpoint checkpoint_policies custom_vjp custom_jvp hessian jacfwd jacrev linearize "
    "linear_transpose nn"
)
OURS = SimpleNamespace(np=fnp, lax=lax, name=fg.checkpoint_name, **{n: getattr(fg, n) for n in SHARED.split()})
THEIRS = SimpleNamespace(
    np=jax.numpy,
    lax=jax.lax,
    name=ad_checkpoint.checkpoint_name,
    **{n: getattr(jax, n) for n in SHARED.split()},
)
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {}
Draw = Callable[..., Any]


def program(f: Callable[[Any, Draw], Any]) -> Callable[[Any, Draw], Any]:
    PROGRAMS[f.__name__] = f
    return f


@program
def third_order(m: Any, f32: Draw) -> Any:
    def f(x: Any) -> Any:
        return m.np.sum(m.np.tanh(x) * m.np.exp(-x * x))

    def g(x: Any, t: Any) -> Any:
        inner = m.vmap(m.grad(lambda z: m.np.sin(z) * z * z))
        return m.jvp(inner, (x,), (t,))[1].sum()

    x, t = f32(5), f32(5)
    return (
        m.grad(g)(x, t),
        m.jit(m.grad(lambda x: m.jvp(m.grad(f), (x,), (t,))[1] @ x))(x),
        m.vmap(m.hessian(lambda z: m.np.sin(z) ** 3))(x),
        m.jacfwd(m.jacrev(m.jacfwd(f)))(x),
    )


@program
def scan_in_cond_in_vmap(m: Any, f32: Draw) -> Any:
    def yes(x: Any) -> Any:
        return m.lax.scan(lambda c, _: (m.np.sin(c) * 1.1, c.sum()), x, None, length=4)

    def f(p: Any, x: Any) -> Any:
        return m.lax.cond(p, yes, lambda x: (x * 2.0, m.np.zeros(4, m.np.float32)), x)

    xs, ps = f32(6, 3), np.array([True, False, True, True, False, False])

    def loss(xs: Any) -> Any:
        return sum((a**2).sum() for a in m.vmap(f)(ps, xs))

    return m.vmap(f)(ps, xs), m.grad(loss)(xs), m.jit(m.grad(loss))(xs), m.jvp(loss, (xs,), (xs,))


@program
def checkpoint_in_scan_in_vmap(m: Any, f32: Draw) -> Any:
    weights, xs = f32(3, 3), f32(4, 5, 3)
    policies = m.checkpoint_policies

    def run(policy: Any) -> Any:
        def loss(w: Any, x: Any) -> Any:
            def body(c: Any, x: Any) -> Any:
                h = m.name(m.np.tanh(c @ w + x), "h")
                return m.np.sin(h), (h * c).sum()

            c, ys = m.lax.scan(m.checkpoint(body, policy=policy), m.np.zeros(3, m.np.float32), x)
            return (c**2).sum() + ys.sum()

        return m.jit(m.vmap(m.grad(loss, argnums=(0, 1)), in_axes=(None, 0)))(weights, xs)

    named = policies.save_only_these_names("h")
    return [run(p) for p in (None, policies.dots_saveable, named, policies.everything_saveable)]


@program
def custom_vjp_with_nondiff_in_scan_in_vmap(m: Any, f32: Draw) -> Any:
    @partial(m.custom_vjp, nondiff_argnums=(0, 2))
    def clipped(scale: float, x: Any, n: int) -> Any:
        return x * n

    def backward(scale: float, n: int, res: Any, ct: Any) -> Any:
        return (m.np.clip(ct * scale + res * n, -1, 1),)

    clipped.defvjp(lambda scale, x, n: (x * n, x), backward)

    def f(x: Any) -> Any:
        c, ys = m.lax.scan(lambda c, t: (clipped(0.5, c + t, 2), m.np.cos(c)), x, m.np.arange(3.0))
        return (c * c).sum() + ys.sum()

    x = f32(4, 2)
    return m.vmap(m.grad(f))(x), m.jit(m.vmap(m.grad(f)))(x)


@program
def associative_scans(m: Any, f32: Draw) -> Any:
    def op(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    def loss(a: Any, b: Any, reverse: bool = False) -> Any:
        return (m.lax.associative_scan(op, (a, b), reverse=reverse)[1] ** 2).sum()

    a, b = f32(7, 2), f32(7, 2)
    return (
        m.grad(loss, argnums=(0, 1))(a, b),
        m.grad(partial(loss, reverse=True), argnums=(0, 1))(a, b),
        m.grad(lambda a: m.lax.associative_scan(m.np.maximum, a, axis=1).sum())(a),
        m.vmap(m.grad(lambda a: m.lax.associative_scan(m.np.multiply, a).sum()))(a),
        m.jit(m.hessian(lambda a: loss(a, a)))(a[:3]),
    )


@program
def updates_at_repeated_indices(m: Any, f32: Draw) -> Any:
    x, v, i, a = m.np.asarray(f32(5)), f32(4), np.array([1, 1, 3, 0]), m.np.asarray(f32(4, 3))
    rows, columns = np.array([0, 0, 2]), np.array([1, 1, 2])
    return [
        m.grad(lambda x, v: (x.at[i].add(v) ** 2).sum(), argnums=(0, 1))(x, v),
        m.grad(lambda x, v: (x.at[i].min(v) ** 2).sum(), argnums=(0, 1))(x, v),
        m.grad(lambda x, v: (x.at[i].max(v) ** 2).sum(), argnums=(0, 1))(x, v),
        x.at[i].multiply(v),
        m.grad(lambda a, v: (a.at[rows, columns].add(v) ** 3).sum(), argnums=(0, 1))(a, v[:3]),
        m.vmap(lambda j: x.at[j].set(9.0))(i),
        m.grad(lambda x: (x.at[1:4:2].set(x[:2]) * x).sum())(x),
        m.grad(lambda x: x.at[i].get(mode="fill", fill_value=0.0).sum())(x),
        m.jit(m.grad(lambda x, i: (x[i] ** 2).sum()))(x, i),
        m.vmap(m.grad(lambda r, i: (r.at[i].multiply(3.0) * r).sum()))(a, np.array([0, 1, 2, 1])),
    ]


@program
def odd_einsums(m: Any, f32: Draw) -> Any:
    a, b, c, d = f32(3, 4), f32(4, 5), f32(3, 3), f32(2, 3, 4)
    cases: list[tuple[str, tuple[Any, ...]]] = [
        ("ij,jk->ki", (a, b)),
        ("ii->i", (c,)),
        ("ii", (c,)),
        ("ij,ij", (a, a)),
        ("...ij,jk->...ik", (d, b)),
        ("i...->...", (d,)),
        ("ijk,ij->k", (d, d[:, :, 0])),
        ("ij,jk,kl->il", (c, a, b)),
        ("iij->j", (f32(3, 3, 2),)),
        ("ij,kl->", (a, b)),
        ("bij,bjk", (d, f32(2, 4, 2))),
        ("...,...->...", (a, a)),
        (",ij->ij", (np.float32(2), a)),
    ]
    out: list[Any] = []
    for text, operands in cases:

        def f(*x: Any, text: str = text) -> Any:
            return m.np.sum(m.np.sin(m.np.einsum(text, *x)))

        out += [m.np.einsum(text, *operands), m.grad(f, argnums=tuple(range(len(operands))))(*operands)]
    return [*out, m.np.einsum(a, [0, 1], b, [1, 2], [2, 0])]


@program
def windows(m: Any, f32: Draw) -> Any:
    x, out = f32(1, 9, 8, 2), []
    shapes: list[dict[str, Any]] = [
        {"window_dimensions": (1, 2, 3, 1), "window_strides": (1, 2, 1, 1), "padding": "VALID"},
        {"window_dimensions": (1, 2, 3, 1), "window_strides": (1, 1, 2, 1), "padding": "SAME"},
        {
            "window_dimensions": (1, 3, 2, 1),
            "window_strides": (1, 1, 1, 1),
            "padding": ((0, 0), (1, 2), (0, 1), (0, 0)),
            "window_dilation": (1, 2, 3, 1),
        },
    ]
    for op, init in ((m.lax.max, -np.inf), (m.lax.add, 0.0)):
        for options in shapes:

            def f(x: Any, op: Any = op, init: float = init, options: Any = options) -> Any:
                return m.lax.reduce_window(x, init, op, **options)

            out.append(f(x))
            if init == 0 or "window_dilation" not in options:  # JAX has no gradient of a dilated maximum
                out += [m.grad(lambda x, f=f: (f(x) ** 2).sum())(x), m.jvp(f, (x,), (x * 2,))]
    return out


@program
def dilated_and_grouped_convolutions(m: Any, f32: Draw) -> Any:
    x, k, grouped = f32(1, 9, 8, 2), f32(3, 3, 2, 4), f32(3, 3, 1, 4)
    out: list[Any] = []
    for kernel, options in (
        (k, {"window_strides": (1, 2), "padding": "SAME", "rhs_dilation": (2, 1)}),
        (k, {"window_strides": (2, 1), "padding": ((1, 2), (0, 1)), "lhs_dilation": (1, 2)}),
        (grouped, {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 2}),
    ):

        def f(x: Any, k: Any, options: Any = options) -> Any:
            return m.lax.conv_general_dilated(x, k, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)

        out += [f(x, kernel), m.grad(lambda x, k, f=f: (f(x, k) ** 2).sum(), argnums=(0, 1))(x, kernel)]
        out.append(m.vmap(f, in_axes=(0, None))(np.stack([x, x + 1]), kernel))
    return out


@program
def while_loops(m: Any, f32: Draw) -> Any:
    """Reverse mode goes around a while loop of values behind a stop_gradient."""

    def newton(a: Any) -> Any:
        return m.lax.while_loop(lambda s: m.np.abs(s * s - a) > 1e-3, lambda s: 0.5 * (s + a / s), a)

    def f(x: Any) -> Any:
        def body(c: Any, t: Any) -> Any:
            grown = m.lax.while_loop(
                lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 1.01), (0, m.lax.stop_gradient(c))
            )[1]
            return m.np.sin(c) * grown.sum() * 0.1 + t, c.max()

        c, ys = m.lax.scan(body, x, m.np.arange(4.0))
        return c.sum() + ys.sum()

    def turns(x: Any) -> Any:
        return m.lax.fori_loop(0, 5, lambda i, c: m.np.sin(c) + i * 0.1 * x, x)

    a, x = np.array([2.0, 3.0, 10.0], np.float32), f32(3)
    bounds = np.array([1, 3, 0])
    return (
        m.vmap(newton)(a),
        m.jvp(newton, (a[0],), (np.float32(1),)),
        m.grad(f)(x),
        m.jit(m.vmap(m.grad(f)))(f32(5, 3)),
        m.jvp(f, (x,), (x,)),
        m.vmap(m.grad(turns))(a),
        m.jit(m.grad(m.grad(turns)))(a[0]),
        m.vmap(lambda n, x: m.lax.fori_loop(0, n, lambda i, c: c * 1.5 + i, x))(bounds, a),
    )


@program
def custom_rules_of_second_order(m: Any, f32: Draw) -> Any:
    @m.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return m.np.sin(x) * y

    f.defvjp(
        lambda x, y: (f(x, y), (m.np.cos(x), m.np.sin(x), y)),
        lambda r, g: (r[0] * g * r[2], r[1] * g),
    )

    @m.custom_jvp
    def softplus(x: Any) -> Any:
        return m.np.log1p(m.np.exp(x))

    softplus.defjvp(lambda p, t: (softplus(p[0]), t[0] / (1 + m.np.exp(-p[0]))))
    x, y, v = np.float32(0.7), np.float32(1.3), f32(4)
    value, linear = m.linearize(lambda v: m.vmap(softplus)(v) * v, v)
    return (
        m.grad(m.grad(f))(x, y),
        m.grad(m.grad(f, argnums=1), argnums=0)(x, y),
        m.jit(m.jacrev(m.grad(f, argnums=(0, 1)), argnums=(0, 1)))(x, y),
        m.grad(m.grad(lambda z: softplus(z) * z))(x),
        value,
        linear(v),
        m.linear_transpose(lambda v: m.np.cumsum(v[::-1]) * 2.0, v)(v),
    )


@program
def branches_of_traced_index(m: Any, f32: Draw) -> Any:
    x = f32(4)
    branches = [lambda x: m.np.sin(x).sum(), lambda x: (x**3).sum(), lambda x: m.np.cumsum(x).prod()]

    def g(i: Any, x: Any) -> Any:
        return m.lax.switch(i, branches, x)

    def h(x: Any) -> Any:
        def body(c: Any, t: Any) -> Any:
            c = m.lax.cond(t % 2 == 0, lambda c: m.np.sin(c), lambda c: c * c, c)
            return c, (c, t)

        return m.lax.scan(body, x, m.np.arange(6), reverse=True)

    return (
        [m.grad(g, argnums=1)(i, x) for i in (-1, 0, 1, 2, 7)],
        m.vmap(m.grad(g, argnums=1), in_axes=(0, None))(np.array([0, 1, 2, 5]), x),
        m.jacfwd(lambda x: h(x)[0])(x * 0.5),
        m.jacrev(lambda x: h(x)[1][0].sum(0))(x * 0.5),
        m.hessian(lambda x: h(x)[0].sum())(x * 0.5),
    )


@program
def checkpoints_in_checkpoints(m: Any, f32: Draw) -> Any:
    inner = m.checkpoint(lambda y: m.np.sin(y) * y)
    f = m.checkpoint(lambda x: m.np.tanh(inner(x)).sum())
    x = f32(4)
    return (
        m.hessian(f)(x),
        m.jacfwd(m.grad(f))(x),
        m.vmap(m.hessian(f))(f32(2, 4)),
        m.jvp(m.grad(f), (x,), (x,)),
        m.grad(lambda x: m.grad(f)(x) @ x)(x),
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    results = []
    for library, leaves in ((THEIRS, jax.tree_util.tree_leaves), (OURS, tree.leaves)):
        rng = np.random.default_rng(1)
        made = PROGRAMS[name](library, lambda *shape, rng=rng: rng.normal(size=shape).astype(np.float32))
        results.append([np.asarray(x) for x in leaves(made)])
    theirs, ours = results
    assert len(theirs) == len(ours)
    for want, got in zip(theirs, ours, strict=True):
        assert want.shape == got.shape
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
