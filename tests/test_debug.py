"""Debugging compiled code: callbacks in order, NaNs found where they begin, transfers counted, residuals listed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import debug, lax, nn, optim
from funcgrad.errors import DeviceError, DonationError, NonFiniteError
from funcgrad.runtime import device as devices

pytestmark = pytest.mark.usefixtures("device")
X = np.array([1.0, 2.0, 3.0], np.float32)


# -- callbacks ---------------------------------------------------------------------------------------------------
def recorder() -> tuple[list[Any], Any]:
    seen: list[Any] = []
    return seen, lambda tag: lambda x: seen.append((tag, np.asarray(x).tolist()))


def test_callbacks_come_in_program_order() -> None:
    seen, note = recorder()

    def f(x: Any) -> Any:
        debug.callback(note("in"), x)
        y = x * 2.0
        debug.callback(note("out"), y)
        return y

    f(1.0)
    fg.jit(f)(1.0)
    fg.jit(fg.jit(f))(1.0)
    assert seen == [("in", 1.0), ("out", 2.0)] * 3


@pytest.mark.parametrize("jit", [False, True])
def test_callbacks_under_grad_and_vmap(jit: bool) -> None:
    seen, note = recorder()

    def f(x: Any) -> Any:
        y = x * x
        debug.callback(note("y"), y)
        return y

    wrap = fg.jit if jit else lambda g: g
    assert float(wrap(fg.grad(f))(3.0)) == 6.0
    assert seen == [("y", 9.0)]
    seen.clear()
    wrap(fg.vmap(f))(X)
    assert seen == [("y", 1.0), ("y", 4.0), ("y", 9.0)]
    seen.clear()
    np.testing.assert_allclose(wrap(fg.vmap(fg.grad(f)))(X), 2 * X)
    assert seen == [("y", 1.0), ("y", 4.0), ("y", 9.0)]
    seen.clear()
    assert float(wrap(lambda x: fg.jvp(f, (x,), (1.0,))[1])(3.0)) == 6.0
    assert seen == [("y", 9.0)]


@pytest.mark.parametrize("jit", [False, True])
def test_callbacks_in_loops_and_branches(jit: bool) -> None:
    seen, note = recorder()

    def step(c: Any, x: Any) -> Any:
        c = c + x
        debug.callback(note("sum"), c)
        return c, c

    wrap = fg.jit if jit else lambda g: g
    wrap(lambda xs: fg.lax.scan(step, 0.0, xs))(X)
    assert seen == [("sum", 1.0), ("sum", 3.0), ("sum", 6.0)]
    seen.clear()

    def branches(p: Any, x: Any) -> Any:
        def one(x: Any) -> Any:
            debug.callback(note("one"), x)
            return x

        def two(x: Any) -> Any:
            debug.callback(note("two"), x)
            return -x

        return fg.lax.cond(p, one, two, x)

    wrap(branches)(True, 1.0)
    wrap(branches)(False, 2.0)
    assert seen == [("one", 1.0), ("two", 2.0)]
    seen.clear()

    def body(c: Any) -> Any:
        debug.callback(note("c"), c)
        return c * 2.0

    wrap(lambda x: fg.lax.while_loop(lambda c: c < 5.0, body, x))(1.0)
    assert seen == [("c", 1.0), ("c", 2.0), ("c", 4.0)]


def test_print(capsys: Any) -> None:
    @fg.jit
    def f(x: Any) -> Any:
        debug.print("x = {}, twice {y:.1f}", x, y=2.0 * x)
        return x

    f(1.5)
    f(2.5)
    assert capsys.readouterr().out == "x = 1.5, twice 3.0\nx = 2.5, twice 5.0\n"


def test_an_exception_in_a_callback_reaches_the_caller() -> None:
    def stop(x: Any) -> None:
        raise KeyError("from the callback")

    def f(x: Any) -> Any:
        debug.callback(stop, x)
        return x

    with pytest.raises(KeyError, match="from the callback"):
        fg.jit(f)(1.0)


# -- NaNs --------------------------------------------------------------------------------------------------------
def bad_log(p: Any) -> Any:
    h = p["w"] * 2.0
    return fnp.log(h - 4.0).sum() + p["b"]  # log(-2), log(0), log(2)


PARAMS = {"w": X, "b": np.float32(1.0)}


def test_find_nonfinite_names_operation_line_ranges_and_path() -> None:
    found = debug.find_nonfinite(bad_log, PARAMS)
    assert found.operation == "log" and found.site.file == __file__ and "bad_log" in str(found.site)
    assert found.operands == ["f32[3] in [-2, 2]"]
    assert found.inputs == ["argument 0['w']"]  # the bias does not reach it
    assert "1 NaN" in found.outputs and "1 infinite" in found.outputs
    text = str(found)
    assert text.startswith("log made f32[3]") and "reached by: argument 0['w']" in text


@pytest.mark.parametrize(
    "wrap", [fg.jit, fg.checkpoint, lambda f: fg.jit(fg.checkpoint(f)), lambda f: fg.checkpoint(fg.jit(f))]
)
def test_find_nonfinite_looks_into_calls(wrap: Any) -> None:
    for f in (wrap(bad_log), lambda p: wrap(bad_log)(p) * 2.0, lambda p: fg.value_and_grad(wrap(bad_log))(p)):
        found = debug.find_nonfinite(f, PARAMS)
        assert found.operation == "log" and "bad_log" in str(found.site) and found.inputs == ["argument 0['w']"]


def test_find_nonfinite_in_a_gradient_only() -> None:
    found = debug.find_nonfinite(fg.grad(lambda x: fnp.sqrt(x).sum()), np.array([1.0, 0.0], np.float32))
    assert found is not None and "argument 0" in found.inputs  # sqrt(0) = 0 is finite, its derivative is not
    assert debug.find_nonfinite(lambda x: fnp.sqrt(x).sum(), np.array([1.0, 0.0], np.float32)) is None


def test_find_nonfinite_in_loops_and_branches() -> None:
    def step(c: Any, x: Any) -> Any:
        return c - x, fnp.log(c)

    found = debug.find_nonfinite(lambda p, xs: fg.lax.scan(step, p["c"], xs), {"c": np.float32(4.0)}, X)
    # carries 4, 3, 1: all logarithms are finite; with a fourth row the carry is -2
    assert found is None
    xs = np.array([1.0, 2.0, 3.0, 1.0], np.float32)
    found = debug.find_nonfinite(lambda p, xs: fg.lax.scan(step, p["c"], xs), {"c": np.float32(4.0)}, xs)
    assert found.operation == "log" and found.where == ", in iteration 3 of scan"
    assert found.inputs == ["argument 0['c']", "argument 1"] and found.operands == ["f32[] in [-2, -2]"]
    found = debug.find_nonfinite(lambda xs: fg.lax.scan(fg.checkpoint(step), 4.0, xs, reverse=True), xs)
    assert found.where == ", in iteration 1 of scan"  # from the last row: carries 4, 3, then log(0)

    def halve(c: Any) -> Any:
        return c - 1.0 + 0.0 * fnp.log(c)

    found = debug.find_nonfinite(lambda c: fg.lax.while_loop(lambda c: c > -3.0, halve, c), 2.0)
    assert found.operation == "log" and found.where == ", in iteration 2 of while"
    choose = fg.jit(lambda p, x: fg.lax.cond(p, fnp.log, lambda x: x, x))
    found = debug.find_nonfinite(choose, True, -1.0)
    assert found.operation == "log" and ", in branch" in found.where
    assert debug.find_nonfinite(choose, False, -1.0) is None
    deep = lambda x: fg.lax.scan(lambda c, r: (c, fg.lax.cond(r > 2.5, lambda r: fnp.log(-r), lambda r: r, r)), x, X)
    assert debug.find_nonfinite(deep, 1.0).where.startswith(", in iteration 2 of scan, in branch")


def test_find_nonfinite_of_a_bad_argument_and_of_callbacks() -> None:
    found = debug.find_nonfinite(lambda p: p["w"].sum(), {"w": np.array([1.0, np.nan, np.inf], np.float32)})
    assert found.operation == "argument 0['w'], as it was given"
    w = fnp.asarray(np.array([np.inf], np.float32))
    assert "closed-over array 0" in debug.find_nonfinite(lambda x: x * w, 1.0).operation
    seen: list[Any] = []

    def f(x: Any) -> Any:
        debug.callback(seen.append, x)
        return fnp.log(x)

    assert debug.find_nonfinite(f, -1.0).operation == "log" and seen == []

    def step(c: Any, x: Any) -> Any:
        return f(c) * 0.0 + c - x, x

    assert debug.find_nonfinite(lambda xs: fg.lax.scan(step, 2.5, xs), X).where == ", in iteration 2 of scan"
    assert seen == []
    bad = fg.jit(lambda xs: fg.lax.scan(step, 2.5, xs)[0])
    with debug.debug_nans(), pytest.raises(NonFiniteError, match="in iteration 2 of scan"):
        bad(X)
    assert len(seen) == 3  # by the run itself, and not by the search


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_nans_of_half_precision(dtype: str) -> None:
    x = fnp.asarray(np.array([1.0, -2.0], np.float32)).astype(dtype)
    f = lambda y: fnp.log(x * y * 2.0)
    found = debug.find_nonfinite(f, fnp.ones(2, dtype=dtype))
    assert found.operation == "log" and found.inputs == ["argument 0", "closed-over array 0"]
    assert "in [-4, 2]" in found.operands[0]
    with debug.debug_nans(), pytest.raises(NonFiniteError, match="log made"):
        fg.jit(f)(fnp.ones(2, dtype=dtype))
    ts = fg.make_train_step(lambda p, b: fnp.log(p @ b).sum(), optim.sgd(0.1), precision="bfloat16")
    with debug.debug_nans(), pytest.raises(NonFiniteError, match="log made"):
        ts.step(ts.init(np.ones((2, 3), np.float32)), -np.ones(3, np.float32))


def test_debug_nans_raises_with_the_origin() -> None:
    f = fg.jit(bad_log)
    assert not math.isfinite(float(f(PARAMS)))
    with debug.debug_nans():
        with pytest.raises(NonFiniteError) as caught:
            f(PARAMS)
        with debug.debug_nans(False):
            f(PARAMS)
        good = {"w": X + 2.0, "b": np.float32(1.0)}
        assert float(f(good)) == pytest.approx(np.log(2 * X.astype(np.float64)).sum() + 1.0, rel=1e-6)
    text = str(caught.value)
    for part in (
        "bad_log: results must be finite under debug_nans",
        "the root of the result",
        "because log made",
        "argument 0['w']",
    ):
        assert part in text
    f(PARAMS)  # and outside nothing is looked at


def test_debug_nans_leaves_donated_arguments_whole() -> None:
    step = fg.jit(lambda s, x: fg.tree.map(lambda a: a + fnp.log(x), s), donate_argnums=0)
    with debug.debug_nans():
        one = np.float32(1.0)
        state = step({"a": fnp.asarray(X)}, one)
        with pytest.raises(NonFiniteError, match=r"\['a'\] of the result"):
            step(state, -one)
        np.testing.assert_array_equal(np.asarray(state["a"]), X)
        new = step(state, one)
        with pytest.raises(DonationError):
            np.asarray(state["a"])
        np.testing.assert_array_equal(np.asarray(new["a"]), X)


def test_debug_nans_in_a_train_step() -> None:
    ts = fg.make_train_step(lambda p, b: fnp.sqrt(p - b).sum(), optim.sgd(0.1), on_nonfinite="skip")
    state = ts.init(X)
    with debug.debug_nans():
        state, _ = ts.step(state, np.zeros(3, np.float32))
        with pytest.raises(NonFiniteError, match="sqrt made"):
            ts.step(state, np.full(3, 2.5, np.float32))
    assert int(state.step) == 1


# -- finite trees ------------------------------------------------------------------------------------------------
def test_check_finite() -> None:
    tree = {
        "w": [fnp.asarray(X), np.array([1.0, np.nan, -np.inf], np.float32)],
        "n": np.int32(3),
        "big": np.float32(1e6),
    }
    rows = {r["path"]: r for r in debug.check_finite(tree, action="report", max_abs=1e3)}
    assert rows["['w'][0]"]["status"] == "ok" and rows["['w'][0]"]["max_abs"] == 3.0
    assert rows["['w'][1]"]["status"] == "nan+inf" and (rows["['w'][1]"]["nan"], rows["['w'][1]"]["inf"]) == (1, 1)
    assert rows["['big']"]["status"] == "large" and rows["['n']"]["status"] == "ok"
    with pytest.raises(NonFiniteError) as caught:
        debug.check_finite(tree)
    text = str(caught.value)
    assert "1 of 4 leaves are bad" in text
    header = next(line for line in text.splitlines() if line.startswith("path"))
    assert header.split() == ["path", "type", "nan", "inf", "max_abs", "status"]
    assert any(
        line.split()[0] == "['w'][1]" and line.split()[-1] == "nan+inf" for line in text.splitlines() if line.strip()
    )
    with pytest.warns(RuntimeWarning, match="2 of 4 leaves are bad"):
        debug.check_finite(tree, action="warn", max_abs=1e3)
    with pytest.raises(ValueError, match="action must be"):
        debug.check_finite(tree, action="ignore")


# -- the ledger --------------------------------------------------------------------------------------------------
def test_expect_counts_and_complains() -> None:
    f = fg.jit(lambda x, y: (x + y, x * y))
    x = fnp.asarray(X)
    f(x, X)
    with debug.expect(uploads=1, launches=1, downloads=0) as seen:
        out = f(x, X)
    assert seen.bytes_uploaded == X.nbytes
    with debug.expect(uploads=0, launches=0, downloads=1) as seen:
        np.asarray(out[0]), np.asarray(out[1]), np.asarray(out[1])
    assert seen.bytes_downloaded == 2 * X.nbytes
    with pytest.raises(AssertionError, match="1 launches, not 2"), debug.expect(launches=2):
        f(x, x)
    with debug.expect(uploads=0, launches=1):
        f(x, out[0])


def test_stats_are_complete() -> None:
    f = fg.jit(lambda x: fnp.sin(x).sum())
    for _ in range(3):
        float(f(X))
    s = f.stats
    assert (s.traces, s.calls, s.launches, s.uploads, s.downloads) == (1, 3, 3, 3, 3)
    assert s.bytes_uploaded == 3 * X.nbytes and s.bytes_downloaded == 3 * 4 and s.nodes >= 1
    assert s.host_time > 0 and s.device_time > 0


# -- residuals ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "floats", "bools"), [("tanh", 3, 0), ("sigmoid", 3, 0), ("relu", 2, 3), ("silu", 6, 0)]
)
def test_residuals_leave_out_what_is_made_again_in_passing(name: str, floats: int, bools: int) -> None:
    """Of tanh, 1 - t * t is made from t; of relu, nothing reads the last result, but bools are read of all three."""
    act, ws, x = getattr(nn, name), [fnp.ones((8, 8))] * 3, fnp.ones((64, 8))

    def f(ws: Any, x: Any) -> Any:
        for w in ws:
            x = act(x @ w)
        return x.sum()

    rows = [r for r in debug.saved_residuals(f, ws, x) if not r.source.startswith("argument")]
    assert sum(r.aval.nbytes for r in rows) == floats * x.nbytes + bools * x.size


def test_residuals_of_a_norm_are_no_broadcasts() -> None:
    layer = nn.LayerNorm(8)
    rows = debug.saved_residuals(lambda x: (layer(x) ** 3).sum(), fnp.ones((64, 8)))
    assert sum(r.aval.shape in ((64, 1), (64,)) for r in rows) >= 1  # the scale of a row, not of each element
    assert not any(r.source.startswith("broadcast") for r in rows)


def test_saved_residuals(capsys: Any) -> None:
    def f(p: Any, x: Any) -> Any:
        return fnp.sin(fnp.tanh(x @ p["w"])).sum()

    p, x = {"w": np.ones((3, 2), np.float32)}, np.ones((4, 3), np.float32)
    rows = debug.saved_residuals(f, p, x)
    assert any("test_debug.py" in r.source for r in rows)
    total = sum(r.aval.nbytes for r in rows)
    checkpointed = sum(r.aval.nbytes for r in debug.saved_residuals(fg.checkpoint(f), p, x))
    assert checkpointed == 4 * (3 * 2 + 4 * 3) and total != checkpointed  # the arguments alone
    debug.print_saved_residuals(f, p, x)
    assert f"{total:,} bytes" in capsys.readouterr().out


def test_coverage_without_a_gpu_is_that_of_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if fg.default_backend() == "vulkan":
        pytest.skip("the default device is one")

    def none_here() -> list[Any]:
        raise DeviceError("no Vulkan here")

    monkeypatch.setitem(devices._factories, "vulkan", none_here)
    monkeypatch.delitem(devices._made, "vulkan", raising=False)
    assert fg.coverage(lambda x: x * 2.0, X).device == fg.devices(fg.default_backend())[0].name
    with pytest.raises(DeviceError, match="no Vulkan here"):
        fg.coverage(lambda x: x * 2.0, X, device="vulkan:0")


def test_debug_nans_outside_jit() -> None:
    """An operation that makes a NaN raises; one that passes a NaN on, and infinities, do not; outside nothing does."""
    with fg.debug_nans():
        with pytest.raises(
            fg.errors.NonFiniteError, match=r"log: results must not be NaN under debug_nans, got f\d\d\[\]"
        ):
            fnp.log(-1.0)
        with pytest.raises(fg.errors.NonFiniteError, match="from"):
            fg.vmap(fnp.log)(fnp.asarray([1.0, -1.0]))
        assert np.isneginf(float(fnp.log(fnp.asarray(0.0))))
        assert np.isnan(float(fnp.sin(fnp.asarray(np.nan))))
    assert np.isnan(float(fnp.log(-1.0)))
    with fg.debug_nans(False):
        assert np.isnan(float(fnp.log(-1.0)))


# -- callbacks with results --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "method,shapes",
    [
        (None, [((2,), ())] * 3),
        ("sequential", [((2,), ())] * 3),
        ("broadcast_all", [((3, 2), (3,))]),
        ("expand_dims", [((3, 2), (1,))]),
    ],
)
def test_how_vmap_calls_a_pure_callback(method: Any, shapes: list[Any]) -> None:
    seen: list[Any] = []

    def scaled(x: Any, *, by: Any) -> Any:
        seen.append((x.shape, np.shape(by)))
        return np.asarray(x * np.asarray(by)[..., None], np.float32)

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    out = fg.ShapeDtypeStruct((2,), "float32")
    f = fg.jit(fg.vmap(lambda x: fg.pure_callback(scaled, out, x, by=2.0, vmap_method=method)))
    np.testing.assert_array_equal(np.asarray(f(x)), 2 * x)
    assert seen == shapes
    twice = fg.vmap(
        fg.vmap(lambda x, y: fg.pure_callback(scaled, out, x, by=y, vmap_method=method), (0, None)), (None, 0)
    )
    y = np.array([1.0, 5.0], np.float32)
    np.testing.assert_array_equal(np.asarray(twice(x, y)), y[:, None, None] * x)


def test_an_unknown_way_of_vmap_is_refused() -> None:
    with pytest.raises(
        ValueError, match="vmap_method must be one of sequential, broadcast_all, expand_dims, got 'fast'"
    ):
        fg.pure_callback(np.sin, fg.ShapeDtypeStruct((), "float32"), 1.0, vmap_method="fast")


def test_a_callback_with_side_effects_runs_once_and_in_order() -> None:
    log: list[Any] = []

    def note(x: Any) -> Any:
        log.append(float(x))
        return np.float32(len(log))

    out = fg.ShapeDtypeStruct((), "float32")

    def f(x: Any) -> Any:
        first = debug.io_callback(note, out, x)
        debug.io_callback(note, out, x)  # the same again, whose result nothing reads
        return lax.scan(lambda c, v: (c + debug.io_callback(note, out, v), None), first, fnp.asarray([7.0, 8.0]))[0]

    assert float(fg.jit(f)(5.0)) == 1 + 3 + 4 and log == [5.0, 5.0, 7.0, 8.0]
    log.clear()
    assert np.asarray(fg.vmap(lambda x: debug.io_callback(note, out, x))(fnp.asarray([1.0, 2.0]))).tolist() == [
        1.0,
        2.0,
    ]
    assert log == [1.0, 2.0]
