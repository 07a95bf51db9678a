"""scan around and inside the other transformations: checkpoint policies, custom rules, jit, vmap, grad, random keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import close_trees
from test_scan import direction, dot, py_scan

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, tree

pytestmark = pytest.mark.usefixtures("reference")

XS = np.random.default_rng(0).normal(size=(4, 3)) * 0.5


def named(scan: Any) -> Any:
    """A body that keeps a named value only."""

    def step(c: Any, x: Any) -> Any:
        h = fg.checkpoint_name(fnp.exp(c * 0.3), "h")
        return fnp.sin(h) * x + c, h

    body = fg.checkpoint(step, policy=fg.checkpoint_policies.save_only_these_names("h"))
    return lambda c, xs: dot(scan(body, c, xs), (c, xs))


def whole(scan: Any) -> Any:
    """The scan itself is checkpointed."""
    f = fg.checkpoint(lambda c, xs: scan(lambda c, x: (fnp.sin(c) * x + c, c * x), c, xs))
    return lambda c, xs: dot(f(c, xs), (c, xs))


def custom(scan: Any) -> Any:
    """A custom rule in the body that is not the derivative: the rule must be used."""

    @fg.custom_vjp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (ct * (fnp.cos(x) + 0.5),))
    return lambda c, xs: dot(scan(lambda c, x: (f(c * x), c), c, xs), (c, xs))


def tangent_rule(scan: Any) -> Any:
    @fg.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return fnp.sin(x) * y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (tx, ty) = primals, tangents
        return f(x, y), tx * 2.0 * y + ty * fnp.sin(x) * x

    return lambda c, xs: dot(scan(lambda c, x: (f(c, x), c), c, xs), (c, xs))


def jitted(scan: Any) -> Any:
    f = fg.jit(lambda c, x: (fnp.sin(c) * x, {"y": c + x}))
    return lambda c, xs: dot([scan(f, c, xs)[0], scan(f, c, xs)[1]["y"]], (c, xs))


def descent(scan: Any) -> Any:
    """Steps of gradient descent: the outer gradient differentiates the inner one."""
    inner = lambda w, x: (fnp.sin(w * x) ** 2 + 0.1 * w**4).sum()
    return lambda c, xs: inner(scan(lambda w, x: (w - 0.1 * fg.grad(inner)(w, x), None), c, xs)[0], c)


def pushed(scan: Any) -> Any:
    """A directional derivative in the body."""
    f = lambda v: fnp.sin(v) * v
    return lambda c, xs: scan(lambda c, x: (fg.jvp(f, (c,), (x,))[1], None), c, xs)[0].sum()


def mapped(scan: Any) -> Any:
    """A map in the body, and a map over a scan's rows in it."""

    def step(c: Any, x: Any) -> Any:
        rows = fg.vmap(lambda v: fnp.sin(v) * c)(x)
        inner = fg.vmap(lambda v: scan(lambda d, w: (d * w + v, None), v, x)[0])(x)
        return rows.sum(axis=1) * 0.1 + inner, rows

    return lambda c, xs: dot(scan(step, c, xs), (c, scan(lambda _, x: (None, fnp.outer(x, c)), None, xs)[1]))


def solver(scan: Any) -> Any:
    """A function with a custom rule that itself runs scans, forward and back: an ODE with its adjoint."""

    @fg.custom_vjp
    def run(y: Any, xs: Any) -> Any:
        return scan(lambda y, x: (y + 0.1 * fnp.sin(y * x), None), y, xs)[0]

    def fwd(y: Any, xs: Any) -> Any:
        return scan(lambda y, x: (y + 0.1 * fnp.sin(y * x), y), y, xs)

    def bwd(saved: Any, ct: Any) -> Any:
        xs, ys = saved

        def back(ct: Any, row: Any) -> Any:
            x, y = row
            slope = 0.1 * fnp.cos(y * x) * ct
            return ct + slope * x, slope * y

        return scan(back, ct, (xs, ys), reverse=True)

    def run_fwd(y: Any, xs: Any) -> Any:
        end, ys = fwd(y, xs)
        return end, (xs, ys)

    run.defvjp(run_fwd, bwd)
    return lambda c, xs: (run(c, xs) ** 2).sum()


FIRST_ORDER = [custom, tangent_rule, solver]
PROGRAMS = [named, whole, jitted, descent, pushed, mapped, *FIRST_ORDER]
EVERY = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)


def arguments() -> list[Any]:
    return [fnp.asarray(np.array([0.4, -0.7, 1.1])), fnp.asarray(XS)]


@EVERY
@pytest.mark.parametrize("jit", [False, True])
def test_value_and_gradient(program: Any, jit: bool) -> None:
    fast, slow = fg.value_and_grad(program(lax.scan), (0, 1)), fg.value_and_grad(program(py_scan), (0, 1))
    close_trees((fg.jit(fast) if jit else fast)(*arguments()), slow(*arguments()))


@EVERY
def test_vmap_of_gradient(program: Any) -> None:
    batch = [fnp.stack([x, -x]) for x in arguments()]
    rows = [fg.grad(program(py_scan), (0, 1))(*[b[i] for b in batch]) for i in range(2)]
    close_trees(fg.vmap(fg.grad(program(lax.scan), (0, 1)))(*batch), tree.map(lambda *g: fnp.stack(g), *rows))


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in (custom, solver)], ids=lambda p: p.__name__)
def test_forward_mode(program: Any) -> None:
    args = arguments()
    t = direction(args, 1)
    close_trees(fg.jvp(program(lax.scan), args, t), fg.jvp(program(py_scan), args, t))


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in FIRST_ORDER], ids=lambda p: p.__name__)
def test_second_order(program: Any) -> None:
    args = arguments()
    t = direction(args, 2)
    for f in (
        lambda p: fg.jvp(fg.grad(p, (0, 1)), args, t)[1],
        lambda p: fg.grad(lambda *a: fg.jvp(p, a, t)[1], (0, 1))(*args),
        lambda p: fg.grad(lambda *a: dot(fg.grad(p, (0, 1))(*a), t), (0, 1))(*args),
    ):
        close_trees(f(program(lax.scan)), f(program(py_scan)))


def test_random_keys_in_a_loop() -> None:
    """The same key gives the same numbers in a compiled loop, its gradient, and written out."""
    key = fg.random.key(0)

    def walk(scan: Any) -> Any:
        def step(c: Any, k: Any) -> Any:
            return c + fg.random.normal(k, c.shape).astype(c.dtype) * c, None

        return lambda c: (scan(step, c, fg.random.split(key, 5))[0] ** 2).sum()

    c = arguments()[0]
    for f in (lambda g: g, fg.jit, fg.grad, lambda g: fg.jit(fg.grad(g))):
        close_trees(f(walk(lax.scan))(c), f(walk(py_scan))(c))


def constant_results(scan: Any) -> Any:
    """The carry and an output are Python numbers in every step."""
    return lambda k, xs: dot([*scan(lambda c, x: (0.0, (c * x * k, 1.0)), 2.0, xs)[1]], (1.0, 1.0))


def passed_on(scan: Any) -> Any:
    """Outputs that are the row, a value closed over, and the carry as it came."""

    def f(k: Any, xs: Any) -> Any:
        c, (x, k_again, before) = scan(lambda c, x: (c * x * k, (x, k, c)), k, xs)
        return c + (x * k_again * before).sum()

    return f


def replaced(scan: Any) -> Any:
    """The carry becomes a value closed over."""
    return lambda k, xs: scan(lambda c, x: (k * 1.0, c * c + x), 0.0 * k, xs)[1].sum()


def discrete(scan: Any) -> Any:
    """A bool and an integer in the carry decide which product is taken."""

    def step(c: Any, x: Any) -> Any:
        return (c[0] ^ True, c[1] + 1, fnp.where(c[0], c[2] * x, c[2] + x * c[1])), None

    return lambda k, xs: scan(step, (fnp.asarray(True), fnp.asarray(0), k), xs)[0][2]


def twice(scan: Any) -> Any:
    """One value is the new carry and two outputs."""

    def f(k: Any, xs: Any) -> Any:
        c, (a, b) = scan(lambda c, x: (c * k * x, (c * k * x, c * k * x)), k, xs)
        return c * a.sum() + fnp.sin(b).sum()

    return f


@pytest.mark.parametrize("program", [constant_results, passed_on, replaced, discrete, twice], ids=lambda p: p.__name__)
def test_corner_cases(program: Any) -> None:
    args = [fnp.asarray(np.array(1.3)), fnp.asarray(XS[0])]
    t = direction(args, 3)
    fast, slow = program(lax.scan), program(py_scan)
    close_trees(fast(*args), slow(*args))
    close_trees(fg.grad(fast, (0, 1))(*args), fg.grad(slow, (0, 1))(*args))
    close_trees(fg.jvp(fast, args, t), fg.jvp(slow, args, t))
    close_trees(fg.hessian(fast, (0, 1))(*args), fg.hessian(slow, (0, 1))(*args))
    batch = [fnp.stack([x, x * 0.5]) for x in args]
    rows = [fg.grad(slow, (0, 1))(*[b[i] for b in batch]) for i in range(2)]
    close_trees(fg.vmap(fg.grad(fast, (0, 1)))(*batch), tree.map(lambda *g: fnp.stack(g), *rows))
