"""Arrays are freed as soon as nobody needs them, without waiting for the garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def f(x: Any) -> Any:
    return (fnp.sin(x) * x).sum()


def branching(x: Any) -> Any:
    return f(x) if x.sum() > 0 else x.sum()


def with_custom_vjp(x: Any) -> Any:
    g = fg.custom_vjp(fnp.sin)
    g.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (ct * fnp.cos(x),))
    return g(x).sum()


def with_custom_jvp(x: Any) -> Any:
    g = fg.custom_jvp(fnp.sin)
    g.defjvp(lambda p, t: (fnp.sin(p[0]), t[0] * fnp.cos(p[0])))
    return g(x).sum()


def loop(x: Any) -> Any:
    return lax.scan(lambda c, v: (c * v + v, c), x[0] * 0, x)[0]


USES: dict[str, Callable[[Any], Any]] = {
    "eager": f,
    "grad": fg.grad(f),
    "grad with branches": fg.grad(branching),
    "grad of grad": lambda x: fg.grad(lambda y: fg.grad(f)(y).sum())(x),
    "jit": lambda x: fg.jit(f)(x),
    "grad of jit": lambda x: fg.grad(lambda y: fg.jit(f)(y))(x),
    "closure of jit": lambda x: fg.jit(lambda y: y * x)(2.0),
    "vmap": fg.vmap(fnp.sin),
    "vjp": lambda x: fg.vjp(f, x)[1](1.0),
    "jvp": lambda x: fg.jvp(f, (x,), (x,)),
    "linearize": lambda x: fg.linearize(f, x)[1](x),
    "checkpoint": fg.grad(fg.checkpoint(f)),
    "hessian": fg.hessian(f),
    "custom_vjp": fg.grad(with_custom_vjp),
    "custom_jvp": fg.grad(with_custom_jvp),
    "scan": loop,
    "grad of scan": fg.grad(loop),
    "make_graph": fg.make_graph(f),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_arguments_are_freed_after_a_call(use: Callable[[Any], Any]) -> None:
    x = fnp.asarray(np.arange(4, dtype=np.float32))
    alive = weakref.ref(x)
    result = use(x)
    del result, x
    assert alive() is None


def test_arguments_are_freed_after_an_error() -> None:
    x = fnp.asarray(np.arange(4, dtype=np.float32))
    alive = weakref.ref(x)
    with pytest.raises(ValueError, match="scalar"):
        fg.grad(lambda x: x * 2)(x)
    del x
    gc.collect()  # the exception's own frames
    assert alive() is None


@pytest.mark.parametrize("name", ["vjp", "linearize"])
def test_half_a_derivative_keeps_only_what_it_needs(name: str) -> None:
    """The later half of x + y needs no operand, that of sin(x) its derivative only."""
    x, y = [fnp.asarray(np.arange(4, dtype=np.float32)) for _ in range(2)]
    alive = weakref.ref(x), weakref.ref(y)
    _, later = getattr(fg, name)(lambda x, y: fnp.sin(x) + y, x, y)
    del x, y
    assert [a() is None for a in alive] == [True, True]
    one = np.ones(4, np.float32)
    got = later(one)[0] if name == "vjp" else later(one, 0 * one)
    np.testing.assert_allclose(np.asarray(got), np.cos(np.arange(4)), rtol=1e-6)
