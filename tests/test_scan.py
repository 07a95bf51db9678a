"""scan against plain Python loops in float64: values, every mix of transformations, nesting, a device.

The truth for values is numpy; for derivatives it is the same function written out as a Python loop (whose rules the
tests of primitives check), and central differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from compare import close_trees

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, tree

pytestmark = pytest.mark.usefixtures("reference")

RNG = np.random.default_rng(0)


def py_scan(f: Any, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False) -> Any:
    """lax.scan as its documentation says it, written out."""
    n = length if xs is None else tree.leaves(xs)[0].shape[0]
    carry, ys = init, [None] * n
    for i in range(n)[:: -1 if reverse else 1]:
        carry, ys[i] = f(carry, tree.map(lambda x, i=i: fnp.asarray(x)[i], xs))
    return carry, tree.map(lambda *rows: fnp.stack([fnp.asarray(r) for r in rows]), *ys)


def py_cond(pred: Any, true_fun: Any, false_fun: Any, *operands: Any) -> Any:
    return true_fun(*operands) if pred else false_fun(*operands)


def total(out: Any) -> Any:
    """A scalar that weighs every element of a result differently."""
    acc = 0.0
    for k, x in enumerate(tree.leaves(out)):
        if x.dtype == np.float64:
            weights = np.cos(1.0 + k + np.arange(x.size)).reshape(x.shape)
            acc = acc + (x * weights + 0.3 * x * x).sum()
    return acc


# -- scans: name -> (body given theta, init, xs, length) -------------------------------------------------------------
W = RNG.normal(size=(3, 3)) * 0.5


def rnn(theta: Any) -> Any:
    def f(h: Any, x: Any) -> Any:
        new = fnp.tanh(theta["w"] @ h["h"] + fnp.exp(theta["b"]) * x["u"]) + 0.1 * h["h"]
        return {"h": new, "n": h["n"] + 1}, (new * x["v"], h["n"])

    return f


def swapping(theta: Any) -> Any:
    """The second carry depends on theta from the first step, the first from the second, the third never."""
    return lambda c, x: ((c[1], c[0] * x + theta, c[2] * 0.5), fnp.sin(c[0]) * c[2])


def no_rows(theta: Any) -> Any:
    return lambda c, _: (fnp.sin(theta * c) + c * c * 0.1, None)


def no_carry(theta: Any) -> Any:
    return lambda _, x: (None, fnp.exp(theta * x) * theta)


def only_last(theta: Any) -> Any:
    """The last result depends on the last row only: the gradient of all others is zero."""
    return lambda c, x: (x * theta, c)


def normalised(theta: Any) -> Any:
    """A reduction and a broadcast inside, and a select."""

    def f(c: Any, x: Any) -> Any:
        z = fnp.exp(c * theta + x)
        p = z / z.sum()
        return fnp.where(p > 0.3, p * c, fnp.sin(c)), p

    return f


SCANS: dict[str, Any] = {
    "rnn": (
        rnn,
        {"w": W, "b": np.array(0.2)},
        {"h": np.array([0.1, -0.2, 0.3]), "n": 2},
        {"u": RNG.normal(size=(5, 3)), "v": RNG.normal(size=(5,))},
        None,
    ),
    "swapping": (swapping, np.array(0.7), (np.array(0.5), np.array(0.25), np.array(2.0)), RNG.normal(size=6), None),
    "no_rows": (no_rows, np.array(0.9), np.array([0.3, 0.6]), None, 4),
    "no_carry": (no_carry, np.array(0.4), None, RNG.normal(size=(4, 2)), None),
    "only_last": (only_last, np.array(1.5), np.array(0.1), RNG.normal(size=3), None),
    "normalised": (normalised, np.array(0.8), np.array([0.5, 0.2, -0.4]), RNG.normal(size=(4, 3)), None),
    "one_step": (no_rows, np.array(0.9), np.array([0.3]), None, 1),
}
ALL_SCANS = pytest.mark.parametrize("name", SCANS)


def pair(name: str, reverse: bool = False, **options: Any) -> tuple[Callable[..., Any], Callable[..., Any], list[Any]]:
    """The function of (theta, init, xs) with lax.scan, the same written out, and the arguments as trees of floats."""
    make, theta, init, xs, length = SCANS[name]

    def run(scan: Any, **options: Any) -> Any:
        return lambda th, c, x: scan(make(th), c, x, length, reverse=reverse, **options)

    args = tree.map(fnp.asarray, [theta, init, xs])
    return run(lax.scan, **options), run(py_scan), args


def floats(args: Any) -> tuple[list[Any], Callable[..., Any]]:
    """The float leaves, and how they go back among the others."""
    leaves, treedef = tree.flatten(args)
    where = [i for i, x in enumerate(leaves) if x.dtype == np.float64]

    def put(xs: Sequence[Any]) -> Any:
        full = list(leaves)
        for i, x in zip(where, xs, strict=True):
            full[i] = x
        return tree.unflatten(treedef, full)

    return [leaves[i] for i in where], put


def losses(name: str, reverse: bool = False, **options: Any) -> tuple[Any, Any, list[Any]]:
    fast, slow, args = pair(name, reverse, **options)
    xs, put = floats(args)
    return lambda *a: total(fast(*put(a))), lambda *a: total(slow(*put(a))), xs


def direction(xs: Sequence[Any], seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [fnp.asarray(rng.normal(size=x.shape)) for x in xs]


def dot(a: Sequence[Any], b: Sequence[Any]) -> Any:
    return sum((x * y).sum() for x, y in zip(a, b, strict=True))


@ALL_SCANS
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("jit", [False, True])
def test_scan_values(name: str, reverse: bool, jit: bool) -> None:
    fast, slow, args = pair(name, reverse)
    close_trees((fg.jit(fast) if jit else fast)(*args), slow(*args))


@ALL_SCANS
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("remat", [False, True])
def test_scan_gradients(name: str, reverse: bool, remat: bool) -> None:
    """By consts, initial carry and xs, with a checkpointed body and without, against the loop and differences."""
    make, theta, init, xs, length = SCANS[name]
    fast, slow, args = losses(name, reverse)
    if remat:
        leaves, put = floats(tree.map(fnp.asarray, [theta, init, xs]))
        assert len(leaves) == len(args)

        def fast(*a: Any) -> Any:
            th, c, x = put(a)
            return total(lax.scan(fg.checkpoint(make(th)), c, x, length, reverse=reverse))

    every = tuple(range(len(args)))
    got = fg.grad(fast, every)(*args)
    close_trees(got, fg.grad(slow, every)(*args))
    ts, h = direction(args, 1), 1e-5
    plus, minus = (float(fast(*[x + s * h * t for x, t in zip(args, ts, strict=True)])) for s in (1, -1))
    np.testing.assert_allclose(float(dot(got, ts)), (plus - minus) / (2 * h), rtol=1e-6, atol=1e-7)


@ALL_SCANS
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_forward_and_second_order(name: str, reverse: bool) -> None:
    fast, slow, args = losses(name, reverse)
    every = tuple(range(len(args)))
    t, u = direction(args, 2), direction(args, 3)

    def push(f: Any) -> Any:
        return lambda *a: fg.jvp(f, a, t)[1]

    def slope(f: Any) -> Any:
        return lambda *a: dot(fg.grad(f, every)(*a), u)

    close_trees(push(fast)(*args), push(slow)(*args))
    y, linear = fg.linearize(fast, *args)
    close_trees((y, linear(*t)), fg.jvp(slow, args, t))
    close_trees(push(slope(fast))(*args), push(slope(slow))(*args))  # forward over reverse
    close_trees(fg.grad(push(fast), every)(*args), fg.grad(push(slow), every)(*args))  # reverse over forward
    close_trees(fg.grad(slope(fast), every)(*args), fg.grad(slope(slow), every)(*args))  # reverse over reverse
    close_trees(push(push(fast))(*args), push(push(slow))(*args))  # forward over forward


@pytest.mark.parametrize("name", ["swapping", "no_rows", "normalised"])
def test_scan_third_order(name: str) -> None:
    fast, slow, args = losses(name)

    def third(f: Any) -> Any:
        return fg.grad(lambda a: total(fg.grad(lambda b: total(fg.grad(f)(b, *args[1:])))(a)))

    close_trees(third(fast)(args[0]), third(slow)(args[0]))


@pytest.mark.parametrize("name", ["swapping", "no_rows"])
def test_scan_hessian_under_jit(name: str) -> None:
    fast, slow, args = losses(name)
    every = tuple(range(len(args)))
    close_trees(fg.jit(fg.hessian(fast, every))(*args), fg.hessian(slow, every)(*args))


@ALL_SCANS
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_vmap(name: str, reverse: bool) -> None:
    """For every choice of mapped arguments: of the values, of the gradient, and the gradient of the map."""
    fast, slow, args = losses(name, reverse)
    every = tuple(range(len(args)))
    for mask in range(1, 2 ** len(args)):
        axes = [0 if mask >> i & 1 else None for i in every]
        batch = [fnp.stack([x, x * 1.25, x - 0.5]) if a == 0 else x for x, a in zip(args, axes, strict=True)]
        rows = [[x[i] if a == 0 else x for x, a in zip(batch, axes, strict=True)] for i in range(3)]
        close_trees(fg.vmap(fast, axes)(*batch), fnp.stack([slow(*r) for r in rows]))
        per_row = [fg.grad(slow, every)(*r) for r in rows]
        close_trees(fg.vmap(fg.grad(fast, every), axes)(*batch), tree.map(lambda *g: fnp.stack(g), *per_row))
    joint = fg.grad(lambda *b: fg.vmap(fast, axes)(*b).sum(), every)(*batch)
    sums = [fnp.stack(g) if a == 0 else sum(g) for g, a in zip(zip(*per_row, strict=True), axes, strict=True)]
    close_trees(joint, tuple(sums))


def test_scan_outputs_are_mapped_where_they_depend_on_it() -> None:
    """Carry and outputs of a mapped scan keep the steps behind the lanes."""
    xs = fnp.asarray(RNG.normal(size=(2, 3)))
    carry, ys = fg.vmap(lambda x: lax.scan(lambda c, v: (c + v, (c * v, 1.0)), 0.0, x))(xs)
    sums = np.cumsum(np.asarray(xs), 1)
    close_trees(carry, fnp.asarray(sums[:, -1]))
    close_trees(ys, (fnp.asarray((sums - xs) * np.asarray(xs)), fnp.asarray(np.ones((2, 3)))))


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("unroll", [1, 2, 8, True])
def test_scan_lengths_and_unrolling(length: int, unroll: Any) -> None:
    """Zero steps leave the carry; writing the loop out changes nothing."""

    def f(scan: Any, **k: Any) -> Any:
        return lambda c, x: scan(lambda c, x: (c * x, {"y": c + x}), c, x, **k)

    c, x = fnp.asarray(2.0, dtype=np.float64), fnp.asarray(RNG.normal(size=(length, 2)).sum(1))
    got = f(lax.scan, unroll=unroll)(c, x)
    want = f(py_scan)(c, x) if length else (c, {"y": fnp.asarray(np.zeros(0))})
    close_trees(got, want)
    grads = fg.grad(lambda c, x: total(f(lax.scan, unroll=unroll)(c, x)), (0, 1))(c, x)
    if length:
        close_trees(grads, fg.grad(lambda c, x: total(f(py_scan)(c, x)), (0, 1))(c, x))
    else:
        close_trees(grads, (fg.grad(total)(c), x))


def test_scan_python_scalars_take_the_type_of_the_carry() -> None:
    close_trees(lax.scan(lambda c, x: (c + x, None), 0, np.arange(3.0))[0], fnp.asarray(3.0, dtype=np.float64))
    close_trees(lax.scan(lambda c, x: (0, c), np.float64(1.5), np.arange(2.0)), (np.float64(0.0), np.array([1.5, 0.0])))


# -- nesting ---------------------------------------------------------------------------------------------------------
def nested(scan: Any, cond: Any) -> Any:
    """A scan in a scan, with a cond of each kind around and inside."""

    def f(theta: Any, c: Any, xs: Any) -> Any:
        def outer(c: Any, row: Any) -> Any:
            def inner(d: Any, x: Any) -> Any:
                d = cond(x > 0, lambda d: fnp.sin(d * theta) + x, lambda d: d * c, d)
                return d, d * x

            d, ys = scan(inner, c, row)
            return c * 0.5 + d, ys.sum()

        return cond(
            c > 0,
            lambda c: scan(outer, c, xs),
            lambda c: (c * theta, xs.sum(axis=1)),
            c,
        )

    return f


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nested(sign: float) -> None:
    def run(scan: Any, cond: Any) -> Any:
        return lambda *a: total(nested(scan, cond)(*a))

    fast, slow = run(lax.scan, lax.cond), run(py_scan, py_cond)
    args = [fnp.asarray(x) for x in (np.array(0.8), np.array(0.6 * sign), RNG.normal(size=(3, 4)))]
    t = direction(args, 4)
    close_trees(fast(*args), slow(*args))
    close_trees(fg.grad(fast, (0, 1, 2))(*args), fg.grad(slow, (0, 1, 2))(*args))
    close_trees(fg.jit(fg.grad(fast, (0, 1, 2)))(*args), fg.grad(slow, (0, 1, 2))(*args))
    close_trees(fg.jvp(fast, args, t), fg.jvp(slow, args, t))
    close_trees(fg.jit(fg.hessian(fast, (0, 1)))(*args), fg.hessian(slow, (0, 1))(*args))
    batch = [fnp.stack([x, -x, x * 0.5]) for x in args]
    rows = [fg.grad(slow, (0, 1, 2))(*[b[i] for b in batch]) for i in range(3)]
    close_trees(fg.vmap(fg.grad(fast, (0, 1, 2)))(*batch), tree.map(lambda *g: fnp.stack(g), *rows))


# -- on a device -----------------------------------------------------------------------------------------------------
def on_cpu(f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """f compiled for the CPU in float32."""
    with fg.default_device("cpu"):
        return tree.map(np.asarray, fg.jit(f)(*[fnp.asarray(np.asarray(x)) for x in args]))


def near(got: Any, want: Any) -> None:
    for x, y in zip(tree.leaves(got), tree.leaves(want), strict=True):
        y = np.asarray(y)
        assert x.shape == y.shape and x.dtype == (np.float32 if y.dtype == np.float64 else y.dtype)
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


@pytest.mark.ggml
@ALL_SCANS
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_on_cpu(name: str, reverse: bool) -> None:
    """Values, gradients, forward over reverse and maps of a compiled scan against float64."""
    fast, slow, every_arg = pair(name, reverse)
    args, put = floats(tree.map(np.asarray, every_arg))

    def loss32(*a: Any) -> Any:
        acc = 0.0
        for k, x in enumerate(tree.leaves(fast(*put(a)))):
            if fg.numpy.issubdtype(x.dtype, np.floating):
                acc = acc + (x * np.cos(1.0 + k + np.arange(x.size)).reshape(x.shape) + 0.3 * x * x).sum()
        return acc

    loss64 = losses(name, reverse)[1]
    every = tuple(range(len(args)))
    t = direction(args, 5)
    flat = lambda *a: fast(*put(a))
    near(on_cpu(flat, args), slow(*every_arg))
    near(on_cpu(fg.grad(loss32, every), args), fg.grad(loss64, every)(*args))
    hvp = lambda f: lambda *a: fg.jvp(fg.grad(f, every), a[: len(args)], a[len(args) :])[1]
    near(on_cpu(hvp(loss32), [*args, *t]), hvp(loss64)(*args, *t))
    batch = [fnp.stack([x, x * 1.25, x - 0.5]) for x in args]
    rows = [fg.grad(loss64, every)(*[x[i] for x in batch]) for i in range(3)]
    near(on_cpu(fg.vmap(fg.grad(loss32, every)), batch), tree.map(lambda *g: fnp.stack(g), *rows))
