"""Bad leaves, host data and rules: the exact error, the path of the leaf, the line, a way out."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from bad_calls import check
from test_bad_input import X, ones

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import errors, lax
from funcgrad.errors import (
    DeviceError,
    DTypeError,
    ShapeError,
    TreeError,
)

pytestmark = pytest.mark.usefixtures("device")


# -- leaves ------------------------------------------------------------------------------------------------------
class Thing:
    pass


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ("text", "str"),
        (b"bytes", "bytes"),
        (Thing(), "Thing"),
        (1j, "complex"),
        (np.str_("text"), "str_"),
        (len, "builtin_function_or_method"),
    ],
)
def test_leaves_that_are_no_numbers(bad: Any, kind: str) -> None:
    def f(p: Any) -> Any:
        return p["w"].sum()

    p = {"w": X, "list": [1.0, bad]}
    for what, g in [
        ("grad", fg.grad(f)),
        ("jit", fg.jit(f)),
        ("vmap", fg.vmap(f)),
        ("jacfwd", fg.jacfwd(f)),
        ("make_graph", fg.make_graph(f)),
    ]:
        check(
            lambda g=g: g(p),
            TreeError,
            f"{what} of f: every leaf must be a number or an array, got {kind} at argument 0['list'][1]",
        )  # type: ignore[misc]
    check(
        lambda: fg.jit(lambda x: {"y": (x, bad)})(X),
        TreeError,
        f"every leaf of the result must be a number or an array, got {kind} at ['y'][1] of the result",
    )


def test_none_is_a_tree_without_leaves_but_no_operand() -> None:
    assert fg.jit(lambda p: p)({"a": None, "b": 1.0})["a"] is None
    assert fg.grad(lambda p: p["b"] * 2.0)({"a": None, "b": 1.0})["a"] is None
    check(lambda: fnp.sin(None), DTypeError, "sin: numbers or an array are required, got NoneType")
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = fnp.asarray(X) + None


def test_losses_and_integers() -> None:
    check(
        lambda: fg.grad(lambda x: x)(X),
        ShapeError,
        "grad of <lambda>: the function must return a scalar, got f32[3]",
        "jacrev",
    )
    check(
        lambda: fg.grad(lambda x, n: x.sum() * n, argnums=1)(X, 3),
        DTypeError,
        "grad of <lambda>: differentiated leaves must be floats, got i32[] at argument 1",
        "astype",
    )
    check(lambda: fg.grad(3), TypeError, "grad: a function is required, got int", "grad(f)(x)")
    for transform in (fg.vmap, fg.jit, fg.checkpoint, fg.make_graph, fg.custom_vjp, fg.jacfwd, fg.value_and_grad):
        check(lambda t=transform: t(X), TypeError, "a function is required, got ndarray")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("call", "error", "part"),
    [
        (lambda: fg.tree.map(lambda a, b: a, {"a": 1}, {"b": 1}), TreeError, "tree.map: the trees differ at the root"),
        (
            lambda: fg.tree.map(lambda a, b: a, {"a": (1, 2)}, {"a": [1, 2]}),
            TreeError,
            "tree.map: the trees differ at ['a']: tuple there",
        ),
        (
            lambda: fg.jit(lambda p: p)({1: X, "a": X}),
            TreeError,
            "tree.flatten: the keys of a dict must be of one sortable type",
        ),
        (
            lambda: fg.vjp(lambda x: (x, x), X)[1](X),
            TreeError,
            "vjp of <lambda>: the trees differ at the root: tuple there",
        ),
        (
            lambda: lax.cond(True, lambda: (1.0,), lambda: [1.0]),
            TreeError,
            "cond: all branches must return the same structure",
        ),
        (lambda: lax.scan(lambda c, x: ((c, c), x), 1.0, X), TreeError, "scan of <lambda>: "),
        (lambda: lax.scan(lambda c, x: (c.astype(int), x), 1.0, X), DTypeError, "scan of <lambda>: "),
        (lambda: lax.while_loop(lambda c: c > 0, lambda c: (c, c), 1.0), TreeError, "while_loop of <lambda>: "),
        (
            lambda: lax.while_loop(lambda c: c, lambda c: c, ones()),
            DTypeError,
            "while_loop of <lambda>: cond_fun must return a bool scalar, got f32[]",
        ),
    ],
)
def test_trees_that_differ(call: Any, error: type[Exception], part: str) -> None:
    check(call, error, part)


# -- host data ---------------------------------------------------------------------------------------------------
BASE = np.arange(24, dtype=np.float32).reshape(4, 6)


def read_only(a: Any) -> Any:
    b = a.copy()
    b.flags.writeable = False
    return b


LAYOUTS = {
    "plain": BASE,
    "strided": BASE[::2, 1::2],
    "reversed": BASE[::-1, ::-1],
    "transposed": BASE.T,
    "fortran": np.asfortranarray(BASE),
    "read-only": read_only(BASE),
    "zero stride": np.broadcast_to(BASE[0], (5, 6)),
    "big-endian": BASE.astype(">f4"),
    "big-endian int": BASE.astype(">i4"),
    "float64": BASE.astype(np.float64),
    "big-endian float64": BASE.astype(">f8"),
    "float16": BASE.astype(np.float16),
    "int64": BASE.astype(np.int64) - 7,
    "int8": BASE.astype(np.int8) - 7,
    "int16": BASE.astype(np.int16) - 7,
    "uint8": BASE.astype(np.uint8),
    "uint16": BASE.astype(np.uint16),
    "uint32": BASE.astype(np.uint32),
    "uint64": BASE.astype(np.uint64),
    "bool": BASE > 7,
    "0-d": np.float32(3.5) * np.ones(()),
    "0-d int": np.array(7),
    "float scalar": np.float64(2.5),
    "int scalar": np.int16(-3),
    "bool scalar": np.bool_(True),
    "empty": BASE[:0],
    "rank 8": BASE.reshape(1, 2, 2, 1, 3, 1, 2, 1),
    "unaligned": np.frombuffer(b"\0" + BASE.tobytes(), np.uint8)[1:].view(np.float32),
    "structured field": np.array([(1, 2.0), (3, 4.0)], [("a", "i4"), ("b", "f4")])["b"],
    "masked": np.ma.masked_array(BASE, BASE > 100),
    "memory view": memoryview(BASE),
    "list": BASE.tolist(),
    "tuple of arrays": tuple(BASE),
    "list of scalars": [np.float32(1), 2, True],
}


@pytest.mark.parametrize("data", LAYOUTS.values(), ids=LAYOUTS)
def test_host_data_of_every_layout(data: Any, device: str) -> None:
    want = np.asarray(data)
    expected = {"f": np.float32, "i": np.int32, "u": np.int32, "b": np.bool_}[want.dtype.kind]
    expected = {"uint32": np.uint32, "uint64": np.uint32, "float16": np.float16}.get(want.dtype.name, expected)
    if device == "numpy" and want.dtype.name == "float64":
        expected = np.float64
    x = fnp.asarray(data)
    assert x.dtype == expected and x.shape == want.shape
    np.testing.assert_array_equal(np.asarray(x), want)
    if isinstance(data, (list, tuple)):
        return
    doubled = want if want.dtype.kind == "b" else want + want
    kinds = [lambda a: a, fg.jit(lambda a: a), fg.vmap(lambda a: a) if want.ndim else lambda a: fnp.asarray(a)]
    if not isinstance(data, memoryview):
        kinds += [
            lambda a: a | a if want.dtype.kind == "b" else fnp.add(a, a),
            fg.jit(lambda a: a | a if want.dtype.kind == "b" else a + a),
        ]
    for f in kinds[3:]:
        got = f(fnp.asarray(data)) if want.dtype.kind == "b" else f(data)
        assert got.dtype == expected
        np.testing.assert_array_equal(np.asarray(got), doubled)
    if not isinstance(data, memoryview):
        for f in kinds[1:3]:
            np.testing.assert_array_equal(np.asarray(f(data)), want)
            assert f(data).dtype == expected


def test_host_data_is_copied() -> None:
    host = BASE.copy()
    x, y = fnp.asarray(host), fg.jit(lambda a: a)(host)
    host[:] = -1
    np.testing.assert_array_equal(np.asarray(x), BASE)
    np.testing.assert_array_equal(np.asarray(y), BASE)
    view = np.asarray(x)
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 5


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (np.ones(2, complex), "asarray: a real numeric or bool dtype is required, got complex128"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "got datetime64[D]"),
        (np.array([1, None], dtype=object), "got object"),
        ([[1, 2], [3]], "asarray: array-like data is required, got list"),
        ("abc", "asarray: numbers are required, got str 'abc'"),
        (["a", "b"], "numbers are required"),
        (np.array(["a"]), "got <U1"),
        ({"a": 1}, "numbers are required, got dict"),
        (object(), "numbers are required, got object"),
    ],
)
def test_host_data_that_holds_no_numbers(data: Any, part: str) -> None:
    check(lambda: fnp.asarray(data), DTypeError, part)


@pytest.mark.parametrize(
    "bad",
    [
        1 << 31,
        -(1 << 31) - 1,
        10**30,
        [10**30, 1],
        np.array([1 << 40]),
        np.array([-(1 << 40)]),
        [1 << 33],
        np.uint64(1 << 40),
    ],
)
def test_integers_that_do_not_fit(bad: Any) -> None:
    check(lambda: fnp.asarray(bad), OverflowError, "integers must fit ")
    if not isinstance(bad, list):
        check(lambda: fg.jit(lambda x: x)(bad), OverflowError, "integers must fit ")
    with pytest.raises(OverflowError, match="must fit int32"):
        fnp.arange(3) + (1 << 40)
    np.testing.assert_array_equal(np.asarray(fnp.asarray([-(1 << 31), (1 << 31) - 1])), [-(1 << 31), (1 << 31) - 1])


def test_unknown_devices_and_dtypes() -> None:
    check(
        lambda: fg.default_device("cuda").__enter__(),
        DeviceError,
        "device: a name among numpy",
        "got 'cuda'",
        "fg.devices()",
    )
    check(
        lambda: fg.device_put(X, "numpy:99"), DeviceError, "there are 1 devices of numpy, got 'numpy:99'", way_out=False
    )
    check(lambda: fg.jit(lambda x: x, device="tpu")(X), DeviceError, "got 'tpu'", "fg.devices()")
    check(lambda: fnp.zeros(3, "complex64"), DTypeError, "got complex64")
    check(lambda: fnp.zeros(3, "nonsense"), DTypeError, "dtype: a numeric dtype is required, got 'nonsense'")
    check(lambda: fnp.asarray(X, dtype=Thing), DTypeError, "dtype")


@pytest.mark.parametrize("rank", range(9))
def test_every_rank(rank: int) -> None:
    shape = (2,) * rank
    host = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    f = fg.jit(
        lambda x: (fnp.exp(x).sum(), fnp.transpose(x * 2, tuple(range(x.ndim))[::-1]), x.reshape(-1), fnp.max(x))
    )
    total, turned, flat, top = f(host)
    np.testing.assert_allclose(np.asarray(total), np.exp(host.astype(np.float64)).sum(), rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(turned), np.asarray(host * 2).T)
    np.testing.assert_array_equal(np.asarray(flat), host.reshape(-1))
    assert float(top) == host.max()
    g = fg.grad(lambda x: (x * x).sum())(host)
    np.testing.assert_array_equal(np.asarray(g), 2 * host)


def test_every_error_derives_from_the_builtin_that_one_would_catch() -> None:
    for name in errors.__all__:
        cls = getattr(errors, name)
        assert issubclass(cls, errors.FuncgradError)
        if cls is not errors.FuncgradError:
            assert any(b.__module__ == "builtins" and b is not Exception for b in cls.__mro__[1:-3]), name


# -- errors in rules ---------------------------------------------------------------------------------------------
def test_an_error_in_a_rule_names_the_operations_own_line() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        z = lax.while_loop(lambda c: c < 10, lambda c: c * 2, y)
        return z + 1

    line = inspect.getsourcelines(f)[1] + 2
    for transformed in (fg.grad(f), fg.jit(fg.grad(f)), fg.grad(lambda x: fg.checkpoint(f)(x))):
        check(
            lambda t=transformed: t(1.0), errors.MissingRule, "while_loop: has no reverse mode", "lax.scan", line=line
        )  # type: ignore[misc]


def test_an_error_in_a_custom_rule_names_the_rules_line() -> None:
    @fg.custom_vjp
    def f(x: Any) -> Any:
        return x * 2

    def bwd(_: Any, ct: Any) -> Any:
        return (ct + ones(7),)

    f.defvjp(lambda x: (x, None), bwd)
    check(lambda: fg.grad(lambda x: f(x).sum())(X), ShapeError, "add: ", line=inspect.getsourcelines(bwd)[1] + 1)
