"""jit: one trace per signature, results, closures, nesting."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
import pytest
from compare import close, f32

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, tree
from funcgrad.errors import RetraceError

pytestmark = pytest.mark.usefixtures("device")


X = f32(3)


def new_float() -> np.dtype[Any]:
    """The dtype of a float without one: float64 on the numpy device."""
    return np.dtype(fnp.asarray(0.5).dtype)


# -- traces ------------------------------------------------------------------------------------------------------
def test_one_trace_per_signature() -> None:
    seen = []

    @fg.jit
    def f(x: Any, y: Any) -> Any:
        seen.append(1)
        return x * y + 1

    for k in range(4):
        close(f(X + k, 2.0 * k), (X + k) * 2 * k + 1)  # numpy data and Python numbers of other values
        close(f(fnp.asarray(X), fnp.asarray(2.0)), X * 2 + 1)
    assert len(seen) == f.stats.traces == f.cache_size() == 1
    assert f.stats.calls == 8
    with pytest.warns(fg.RetraceWarning):
        f(f32(4), 2.0)
    f(f32(3, 1), 2.0)  # warns once
    assert len(seen) == f.cache_size() == 3
    f(X, 3.0)
    assert len(seen) == 3


def test_python_numbers_never_retrace_by_value() -> None:
    f = fg.jit(lambda lr, step, flag, x: fnp.where(flag, x * lr, x + step), max_traces=1)
    for lr, step, flag in [
        (0.1, 1, True),
        (0.2, 2, False),
        (np.inf, -7, True),
        (new_float().type(3), np.int32(4), np.bool_(True)),
    ]:
        close(f(lr, step, flag, X), X * np.float32(lr) if flag else X + step)
    assert f.stats.traces == 1


def test_keyword_order_and_positions() -> None:
    f = fg.jit(lambda a, b=1.0, *, c=2.0: a + 10 * b + 100 * c, max_traces=3)
    close(f(1.0, c=3.0, b=2.0), 321.0)
    close(f(1.0, b=2.0, c=3.0), 321.0)
    assert f.stats.traces == 1


def test_what_a_retrace_warning_says() -> None:
    @fg.jit
    def f(p: Any, *, n: Any) -> Any:
        return p["w"][0].sum() * n

    f({"w": [f32(2, 3)]}, n=1.0)
    with pytest.warns(fg.RetraceWarning) as caught:
        f({"w": [f32(2, 4)]}, n=1)
    text = str(caught[0].message)
    assert "f is traced again, because" in text
    assert "the shape of argument 0['w'][0] changed from f32[2,3] to f32[2,4]" in text
    assert f"the dtype of keyword n changed from f{8 * new_float().itemsize}[] to i32[]" in text
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (({"a": X}, 2), "the structure changed"),
        (([X, X], 2), "the structure changed"),
        (((X, X), 3), "static argument 1 changed from 2 to 3"),
        (((X, X), 2.0), "static argument 1 changed from 2 to 2.0"),
        (((X, X.astype(np.int32)), 2), "the dtype of argument 0[1] changed from f32[3] to i32[3]"),
    ],
)
def test_max_traces(args: Any, text: str) -> None:
    f = fg.jit(lambda t, n: tree.leaves(t)[0] * n, static_argnums=1, max_traces=1)
    f((X, X), 2)
    with pytest.raises(RetraceError, match="at most max_traces=1 traces are allowed") as caught:
        f(*args)
    assert text in str(caught.value) and "known:" in str(caught.value) and "new:" in str(caught.value)
    close(f((X, X), 2), 2 * X)


def test_a_bound_of_traces_is_quiet_within_it_and_brief_past_it() -> None:
    f = fg.jit(lambda params, x: sum(p.sum() for p in params.values()) + x.sum(), max_traces=2)
    params = {f"layer{i}": fnp.zeros((3, 4)) for i in range(40)}
    for n in (1, 2):
        f(params, fnp.zeros(n))  # warnings are errors here
    with pytest.raises(RetraceError, match=r"at most max_traces=2") as caught:
        f(params, fnp.zeros(3))
    text = str(caught.value)
    assert "the shape of argument 1 changed from" in text
    assert "new:   (dict of 40 arrays, f" in text and "layer" not in text


def test_static_arguments() -> None:
    seen = []

    def f(x: Any, n: int, *, kind: str = "sum") -> Any:
        seen.append((n, kind))
        for _ in range(n):
            x = x * 2
        return x.sum() if kind == "sum" else x

    for options in ({"static_argnums": 1, "static_argnames": "kind"}, {"static_argnames": ("n", "kind")}):
        seen.clear()
        g = fg.jit(f, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fg.RetraceWarning)
            close(g(X, 2), 4 * X.sum(), 1e-5)
            close(g(X, 3, kind="all"), 8 * X)
            close(g(X, n=3, kind="all"), 8 * X)
            close(g(X, 2), 4 * X.sum(), 1e-5)
        assert seen[:2] == [(2, "sum"), (3, "all")]
    with pytest.raises(
        ValueError, match=r"a static argument must be hashable, got list for 1\n  way out: pass a tuple"
    ):
        g2 = fg.jit(f, static_argnums=(1,))
        g2(X, [2])


def test_static_values_that_are_equal_but_differ_in_type() -> None:
    f = fg.jit(lambda x, n: x * n, static_argnums=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fg.RetraceWarning)
        assert f(2, 1).dtype == np.int32
        assert f(2, 1.0).dtype == new_float()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"static_argnums": 2}, r"static_argnums must name parameters, got 2 for a function of 2 positional"),
        ({"donate_argnames": "z"}, r"donate_argnames must name parameters, got 'z' of \['x', 'y'\]"),
        ({"static_argnums": 0, "donate_argnums": 0}, "static or donated, not both"),
        ({"static_argnames": "x", "donate_argnums": 0}, "static or donated, not both"),
    ],
)
def test_wrong_options(options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        fg.jit(lambda x, y: x, **options)
    with pytest.raises(TypeError, match="a function is required, got int"):
        fg.jit(3)


# -- results -----------------------------------------------------------------------------------------------------
def test_results_of_every_form() -> None:
    c = fnp.asarray(X)
    f = fg.jit(
        lambda x, y: {
            "in": x,
            "twice": (y, y),
            "literal": 3.0,
            "int": 4,
            "bool": True,
            "none": None,
            "closed": c,
            "np": X,
        }
    )
    out = f(X, 2.0)
    close(out["in"], X)
    close(out["twice"][0], 2.0)
    close(out["twice"][1], 2.0)
    assert float(out["literal"]) == 3.0 and int(out["int"]) == 4 and bool(out["bool"]) is True and out["none"] is None
    assert out["int"].dtype == np.int32 and out["bool"].dtype == np.bool_
    close(out["closed"], X)
    close(out["np"], X)
    assert fg.jit(lambda x: ())(X) == () and fg.jit(lambda: None)() is None
    assert fg.jit(lambda x: [])(X) == []
    assert float(fg.jit(lambda: 2.0)()) == 2.0


def test_results_belong_to_the_caller() -> None:
    f = fg.jit(lambda x: (x * 2, x))
    first, same = f(X)
    kept = np.array(first)
    host = X.copy()
    given = f(host)[1]
    host[:] = 7  # what was given by reference must not be seen through the result
    for k in range(5):
        f(X + k)
    np.testing.assert_array_equal(np.asarray(first), kept)
    np.testing.assert_array_equal(np.asarray(same), X)
    np.testing.assert_array_equal(np.asarray(given), X)


def test_a_jitted_function_feeds_itself() -> None:
    f = fg.jit(lambda x, s: (x * 0.5 + s, s + 1))
    x, s = fnp.asarray(X), 0
    want, k = X.copy(), 0
    for _ in range(5):
        x, s = f(x, s)
        want, k = want * np.float32(0.5) + k, k + 1
    close(x, want)
    assert int(s) == 5 and f.stats.traces == 1


# -- closures ----------------------------------------------------------------------------------------------------
def test_closed_over_arrays_are_inputs() -> None:
    w, host = fnp.asarray(X), f32(3, seed=1)
    f = fg.jit(lambda x: x * w + host)
    close(f(2.0), 2 * X + host)
    graph = f.trace(2.0).graph
    assert [str(v.aval) for v in graph.inputs] == ["f32[3]", "f32[3]", f"f{8 * new_float().itemsize}[]"]
    assert not any(e.prim.name == "constant" for e in graph.eqns)
    close(fg.grad(lambda x: f(x).sum())(2.0), X.sum(), 1e-5)


def test_closing_over_values_of_an_outer_trace() -> None:
    def outer(x: Any) -> Any:
        inner = fg.jit(lambda y: y * x)
        return inner(2.0) + inner(X).sum() + fg.jit(lambda: x)()

    want = 2.0 + X.sum() + 1
    close(fg.grad(outer)(3.0), want, 1e-5)
    close(fg.jit(fg.grad(outer))(3.0), want, 1e-5)
    close(fg.jvp(outer, (3.0,), (1.0,))[1], want, 1e-5)
    close(fg.vmap(outer)(X), X * want, 1e-5)
    close(fg.grad(fg.checkpoint(outer))(3.0), want, 1e-5)


def test_one_function_closing_over_several_outer_traces() -> None:
    box: dict[str, Any] = {}
    inner = fg.jit(lambda y: y * box["x"])

    def outer(x: Any) -> Any:
        box["x"] = x
        return inner(2.0)

    for k in (1.0, 2.0):
        close(fg.value_and_grad(outer)(k)[0], 2 * k)
        close(fg.value_and_grad(outer)(k)[1], 2.0)


# -- nesting -----------------------------------------------------------------------------------------------------
def test_nesting() -> None:
    def f(x: Any) -> Any:
        return (fnp.sin(x) * x).sum()

    d1, d2 = np.cos(X) * X + np.sin(X), 2 * np.cos(X) - X * np.sin(X)
    close(fg.jit(fg.jit(f))(X), (np.sin(X) * X).sum())
    close(fg.jit(fg.grad(f))(X), d1)
    close(fg.grad(fg.jit(f))(X), d1)
    close(fg.jit(fg.grad(fg.jit(f)))(X), d1)
    close(fg.vmap(fg.jit(fg.grad(fg.jit(f))))(X), d1)
    close(fg.jit(fg.vmap(fg.grad(fg.grad(fg.jit(f)))))(X), d2)
    close(np.diag(np.asarray(fg.jit(fg.hessian(f))(X))), d2)
    inner = fg.jit(lambda x: x * 2)
    outer = fg.jit(lambda x: inner(x) + inner(x + 1))
    close(outer(X), 4 * X + 2)
    assert inner.stats.traces == 1 and inner.stats.calls == 0


@pytest.mark.filterwarnings("ignore::funcgrad.RetraceWarning")
def test_a_trace_belongs_to_its_named_axes() -> None:
    share = fg.jit(lambda x: x / lax.psum(1.0, "i"))
    for n in (4, 8, 4):
        close(fg.vmap(share, axis_name="i")(np.ones(n, np.float32)), np.full(n, 1 / n))
    for outside in (lambda: share(1.0), lambda: fg.vmap(share, axis_name="j")(X)):
        with pytest.raises(NameError, match="'i'"):
            outside()
    assert share.stats.traces == 2
    # each of the three examples adds its own cotangent 1
    close(fg.vmap(fg.grad(lambda x: fg.jit(lambda y: lax.psum(y * y, "i"))(x)), axis_name="i")(X), 3 * 2 * X)


@pytest.mark.filterwarnings("ignore::funcgrad.RetraceWarning")
def test_a_trace_belongs_to_its_precision() -> None:
    product = fg.jit(lambda x: x @ x)
    x = f32(3, 3)
    product(x)
    with fg.default_matmul_precision("float16"):
        assert "precision=float16" in str(product.trace(x).graph)
        product(x)
    assert "precision=None" in str(product.trace(x).graph)
    assert product.stats.traces == 2


def test_methods_and_partials() -> None:
    class Model:
        def __init__(self, scale: float):
            self.scale = scale

        @fg.jit
        def no_self(x: Any) -> Any:
            return x

        def __hash__(self) -> int:
            return hash(self.scale)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Model) and self.scale == other.scale

        @fg.jit(static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * self.scale

    close(Model(2.0).apply(X), 2 * X)
    close(Model(2.0).apply(X), 2 * X)
    assert Model.apply.stats.traces == 1
    with pytest.warns(fg.RetraceWarning, match="static argument 0 changed"):
        close(Model(3.0).apply(X), 3 * X)


class HashInterrupted:
    """A static argument whose n-th hash is interrupted."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __hash__(self) -> int:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return 7


@pytest.mark.parametrize("n", range(1, 9))
def test_an_interrupt_while_the_cache_compares_keys_leaves_it_whole(n: int) -> None:
    key = HashInterrupted(n)
    f = fg.jit(lambda key, x: x * 2.0, static_argnums=0)
    while key.left > 0:
        with contextlib.suppress(KeyboardInterrupt):
            f(key, 1.0)
    assert [float(f(key, x)) for x in (1.0, 2.0)] == [2.0, 4.0]


@pytest.mark.parametrize("n", [40, 300])
def test_a_program_may_read_few_of_many_arguments(n: int) -> None:
    """A program that does next to nothing, on more operands than it has words: of a call, a branch and a loop."""
    xs = [np.full(3, k, np.float32) for k in range(n)]
    assert float(fg.jit(lambda *xs: xs[2])(*xs)[0]) == 2.0
    assert float(fg.jit(lambda p, *xs: lax.cond(p, lambda *a: a[3], lambda *a: sum(a), *xs))(True, *xs)[0]) == 3.0
    state = fg.jit(lambda *xs: lax.scan(lambda c, _: (c[::-1], None), xs, None, length=3)[0])(*xs)
    assert [float(v[0]) for v in state] == list(range(n))[::-1]
    steps = fg.jit(lambda *xs: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, *s[1:]), (0, *xs)))(*xs)
    assert [float(v[0]) for v in steps[1:]] == list(range(n)) and int(steps[0]) == 2
