"""named_scope, closure_convert, custom_gradient, ensure_compile_time_eval, and what the environment says."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.errors import ShapeError


def test_scopes_name_operations_and_errors() -> None:
    def f(x: Any) -> Any:
        with fg.named_scope("outer"):
            y = x * 2.0
            with fg.named_scope("inner"):
                y = y + 1.0
        return y - 3.0

    places = [e.site.function for e in fg.make_graph(f)(fnp.ones(2)).eqns if e.site]
    assert places == ["outer/f", "outer/inner/f", "f"]
    with pytest.raises(ShapeError, match=r"\(outer/.*test_scopes"), fg.named_scope("outer"):
        fnp.ones(2) + fnp.ones(3)
    with pytest.raises(TypeError, match="a name is required"), fg.named_scope(""):
        pass
    named = fg.named_call(lambda x: fnp.sin(x), name="wave")
    assert fg.make_graph(fg.grad(named))(1.0).eqns[0].site.function.startswith("wave/")


def test_a_scope_ends_with_its_block_and_its_thread() -> None:
    seen: list[str] = []
    with pytest.raises(ZeroDivisionError), fg.named_scope("a"):
        worker = threading.Thread(target=lambda: seen.append(fg.make_graph(lambda x: -x)(1.0).eqns[0].site.function))
        worker.start()
        worker.join()
        1 / 0  # noqa: B018
    assert seen == ["<lambda>"]
    assert fg.make_graph(lambda x: -x)(1.0).eqns[0].site.function == "<lambda>"


def test_closure_convert(device: str) -> None:
    def loss(w: Any) -> Any:
        mask = fnp.asarray([1, 0, 1])
        f, closed = fg.closure_convert(lambda x: {"y": (w * x * mask).sum()}, fnp.zeros(3))
        assert len(closed) == 1
        return f(fnp.asarray([1.0, 2.0, 3.0]), *closed)["y"] + f(fnp.ones(3), *[10 * c for c in closed])["y"]

    w = fnp.asarray([2.0, 3.0, 4.0])
    np.testing.assert_allclose(loss(w), 2 + 12 + 10 * 6)
    np.testing.assert_allclose(fg.grad(loss)(w), [11.0, 0.0, 13.0])
    np.testing.assert_allclose(fg.jit(fg.grad(loss))(w), [11.0, 0.0, 13.0])
    f, closed = fg.closure_convert(lambda x: x * w, w)
    with pytest.raises(TypeError, match="structure"):
        f((w, w), *closed)


@pytest.mark.parametrize("through", ["eager", "jit", "vmap", "checkpoint"])
def test_custom_gradient(through: str, device: str) -> None:
    @fg.custom_gradient
    def f(x: Any, y: Any) -> Any:
        s = fnp.sin(x)
        return s * y, lambda ct: (ct * 100 * y, ct * s)

    wrap = {"eager": lambda g: g, "jit": fg.jit, "vmap": fg.vmap, "checkpoint": fg.checkpoint}[through]
    x, y = fnp.asarray([0.3, 0.4]), fnp.asarray([2.0, 5.0])
    gx, gy = fg.grad(lambda x, y: wrap(f)(x, y).sum(), (0, 1))(x, y)
    np.testing.assert_allclose(gx, [200.0, 500.0])
    np.testing.assert_allclose(gy, np.sin([0.3, 0.4]), rtol=1e-6)
    np.testing.assert_allclose(wrap(f)(x, y), np.sin([0.3, 0.4]) * [2, 5], rtol=1e-6)
    # The rule is differentiated in its turn: d(100 y ct)/dy = 100.
    mixed = fg.grad(lambda y: fg.grad(lambda x: f(x, y).sum())(x).sum())(y)
    np.testing.assert_allclose(mixed, [100.0, 100.0])


def test_known_values_are_computed_while_tracing(device: str) -> None:
    @fg.jit
    def f(x: Any) -> Any:
        with fg.ensure_compile_time_eval():
            n = int(fnp.arange(4).sum())
        return fnp.full(n, x)

    assert f(1.5).shape == (6,)


def test_environment(device: str) -> None:
    assert fg.default_backend() == device.partition(":")[0]
    found = [d.name for d in fg.local_devices()]
    assert found[0] == device and fg.local_device_count() == fg.device_count() == len(found)
    assert fg.typeof(fnp.zeros((2, 1), fnp.int32)).shape == (2, 1)
    assert isinstance(fg.local_devices()[0], fg.Device)
    fg.effects_barrier()
    text = fg.print_environment_info(return_string=True)
    assert f"numpy: {np.__version__}" in str(text) and device in str(text)
