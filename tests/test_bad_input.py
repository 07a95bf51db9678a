"""Bad input: the error's exact type, and a message that names operation, values, the user's own line and a way out."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import errors, lax
from funcgrad.errors import (
    AxisError,
    DeviceError,
    DTypeError,
    ShapeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    TreeError,
    UnexpectedTracerError,
)

pytestmark = pytest.mark.usefixtures("device")

X = np.arange(3, dtype=np.float32)


def ones(*shape: int) -> Any:
    return fnp.ones(shape, fnp.float32)


def check(
    call: Callable[[], Any], error: type[Exception], *parts: str, line: int | None = None, way_out: bool = True
) -> str:
    """Call, and look at the error: its type, what its message says, and that it points to this file."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error, type(caught.value)
    text = str(caught.value)
    for part in parts:
        assert part in text, text
    assert not way_out or "\n  way out: " in text, text
    place = re.search(r"\n  at (\S+):(\d+) \(\S+\)$", text)
    assert place is not None and place[1] == "test_bad_input.py", text
    first = inspect.getsourcelines(call)[1]
    last = first + len(inspect.getsourcelines(call)[0])
    assert int(place[2]) == line if line is not None else first <= int(place[2]) <= last, text
    return text


# -- traced values where Python needs numbers --------------------------------------------------------------------
def truth(x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


TRUTH_LINE = inspect.getsourcelines(truth)[1] + 1
WAYS = {
    TracerBoolConversionError: ("fg.numpy.where", "fg.lax.cond", "static_argnums"),
    TracerIntegerConversionError: ("static_argnums", "fori_loop"),
    TracerArrayConversionError: ("fg.numpy",),
}


@pytest.mark.parametrize(
    "transformed",
    [
        fg.jit(truth),
        fg.grad(lambda x: fg.jit(truth)(x).sum()),
        fg.jit(fg.grad(lambda x: truth(x).sum())),
        fg.checkpoint(fg.jit(truth)),
    ],
    ids=["jit", "grad of jit", "jit of grad", "checkpoint of jit"],
)
def test_if_on_a_traced_value(transformed: Any) -> None:
    text = check(
        lambda: transformed(X), TracerBoolConversionError, "bool: a value is required", "got bool[]", line=TRUTH_LINE
    )
    assert all(w in text for w in WAYS[TracerBoolConversionError])
    assert "depending on argument 0" in text


def test_if_on_a_mapped_value() -> None:
    check(
        lambda: fg.vmap(truth)(ones(2, 3)),
        TracerBoolConversionError,
        "traced in vmap of truth",
        "argument 0",
        line=TRUTH_LINE,
    )
    check(
        lambda: fg.vmap(lambda x, y: truth(y), in_axes=(None, 0))(X, ones(2, 3)),
        TracerBoolConversionError,
        "argument 1",
        line=TRUTH_LINE,
    )


def test_the_argument_is_named() -> None:
    f = fg.jit(lambda p, q, *, flag: p["w"] * 2 if (q + p["b"]).sum() > 0 and flag else 0)
    text = check(
        lambda: f({"w": X, "b": X}, X, flag=True),
        TracerBoolConversionError,
        "depending on argument 0['b'], argument 1",
        line=inspect.getsourcelines(f.fun)[1],
    )
    assert "['w']" not in text and "flag" not in text.split("way out")[0]
    g = fg.jit(lambda q, *, flag: q if flag else -q)
    check(
        lambda: g(X, flag=True),
        TracerBoolConversionError,
        "depending on keyword flag",
        line=inspect.getsourcelines(g.fun)[1],
    )


@pytest.mark.parametrize(
    ("fun", "error", "what"),
    [
        (lambda x: x[0] > 0 and x, TracerBoolConversionError, "bool"),
        (lambda x: not x[0], TracerBoolConversionError, "bool"),
        (lambda x: max(x[0], x[1]), TracerBoolConversionError, "bool"),
        (lambda x: x[0] in (1.0, 2.0), TracerBoolConversionError, "bool"),
        (lambda x: [0 for _ in iter(lambda: bool(x[0] > 0), False)], TracerBoolConversionError, "bool"),
        (lambda x: float(x[0]), TracerArrayConversionError, "float"),
        (lambda x: x[0].item(), TracerArrayConversionError, "item"),
        (lambda x: x.tolist(), TracerArrayConversionError, "tolist"),
        (lambda x: f"{x[0]:.3f}", TracerArrayConversionError, "item"),
        (lambda x: np.asarray(x), TracerArrayConversionError, "np.asarray"),
        (lambda x: np.sin(x), TracerArrayConversionError, "np.asarray"),
        (lambda x: np.stack([x, x]), TracerArrayConversionError, "np.asarray"),
        (lambda x: int(x[0]), TracerIntegerConversionError, "int"),
        (lambda x: list(range(x.astype(int)[0])), TracerIntegerConversionError, "index"),
        (lambda x: [1, 2, 3][x.astype(int)[0]], TracerIntegerConversionError, "index"),
        (lambda x: fnp.zeros((x.astype(int)[0], 2)), TracerIntegerConversionError, "a value is required"),
        (lambda x: x.reshape(x.astype(int)[0], -1), TracerIntegerConversionError, "a value is required"),
        (lambda x: x.reshape(x.astype(int)[0]), TracerIntegerConversionError, "a value is required"),
        (lambda x: fnp.zeros(x.astype(int)[0]), TracerIntegerConversionError, "a value is required"),
        (lambda x: lax.full(x.astype(int)[0], 1.0), TracerIntegerConversionError, "a value is required"),
        (lambda x: fnp.arange(x.astype(int)[0]), TracerIntegerConversionError, "a value is required"),
        (
            lambda x: x[: x.astype(int)[0]],
            TracerIntegerConversionError,
            "slice bounds must be integers known when tracing",
        ),
        (lambda x: x[x > 0], errors.ConcretizationTypeError, "a boolean index must be known when tracing"),
        (lambda x: fnp.nonzero(x), errors.ConcretizationTypeError, ""),
        (lambda x: fnp.unique(x), errors.ConcretizationTypeError, ""),
    ],
)
def test_traced_values_in_python(fun: Any, error: type[Exception], what: str) -> None:
    line = inspect.getsourcelines(fun)[1]
    text = check(lambda: fg.jit(fun)(X), error, what, line=line)
    assert all(w in text for w in WAYS.get(error, ())) or "slice" in text


# -- leaked tracers ----------------------------------------------------------------------------------------------
def leak(transform: Any) -> Any:
    """A value that outlives its trace."""
    box = []

    def f(x: Any) -> Any:
        box.append(x * 2)
        return x.sum()

    transform(f)(X)
    return box[0]


USES = {
    "operator": lambda t: t + 1,
    "function": lambda t: fnp.sin(t),
    "jit argument": lambda t: fg.jit(lambda y: y)(t),
    "jit closure": lambda t: fg.jit(lambda y: y + t)(X),
    "grad closure": lambda t: fg.grad(lambda y: (y * t).sum())(X),
    "vmap closure": lambda t: fg.vmap(lambda y: y * t)(X),
    "checkpoint": lambda t: fg.grad(lambda y: fg.checkpoint(lambda z: (z * t).sum())(y))(X),
    "bool": lambda t: bool(t[0] > 1),
    "np.asarray": lambda t: np.asarray(t),
    "item": lambda t: t[0].item(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("transform", [fg.jit, fg.make_graph], ids=["jit", "make_graph"])
def test_a_leaked_tracer_is_told(use: Any, transform: Any) -> None:
    leaked = leak(transform)
    line = inspect.getsourcelines(use)[1]
    text = check(
        lambda: use(leaked),
        UnexpectedTracerError,
        "was used after its function had been traced",
        "f32[3] of",
        line=line,
    )
    made = inspect.getsourcelines(leak)[1] + 5
    assert f"made at test_bad_input.py:{made} (f)" in text
    assert repr(leaked) == "Tracer(f32[3])"


def test_a_leaked_tracer_of_grad() -> None:
    leaked = leak(fg.grad)
    check(lambda: leaked + 1, UnexpectedTracerError, "was used after its function had been traced", "of grad of f")


@pytest.mark.parametrize("transform", [fg.jit, fg.grad], ids=["jit", "grad"])
def test_a_tracer_in_another_thread(transform: Any, device: str) -> None:
    caught: list[Exception] = []

    def f(x: Any) -> Any:
        def work() -> None:
            with fg.default_device(device):
                try:
                    caught.append(RuntimeError(str(x + 1)))
                except Exception as e:
                    caught.append(e)

        t = threading.Thread(target=work)
        t.start()
        t.join()
        return x.sum()

    transform(f)(X)
    assert type(caught[0]) is UnexpectedTracerError
    assert "was used in another thread than the one that traces it" in str(caught[0])
    assert "test_bad_input.py" in str(caught[0])


# -- shapes ------------------------------------------------------------------------------------------------------
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "maximum",
    "minimum",
    "equal",
    "less",
    "arctan2",
    "remainder",
    "floor_divide",
    "hypot",
    "logaddexp",
]


@pytest.mark.parametrize("name", BINARY)
def test_binary_shapes(name: str) -> None:
    f = getattr(fnp, name)
    name = f.__name__
    check(
        lambda: f(ones(2, 3), ones(4)),
        ShapeError,
        f"{name}: shapes must be equal or 1 on each axis",
        "got (2, 3) and (4,)",
    )
    check(lambda: fg.jit(f)(ones(3), ones(4)), ShapeError, f"{name}: ", "got (3,) and (4,)")


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: ones(2, 3) + ones(2), ("add: ", "(2, 3) and (2,)")),
        (lambda: ones(2, 3) @ ones(2, 3), ("matmul: inner sizes must be equal (3 and 2)", "got (2, 3) and (2, 3)")),
        (lambda: ones(3) @ ones(4), ("matmul: ", "(3,) and (4,)")),
        (lambda: ones(2, 3, 4) @ ones(3, 4, 5), ("matmul: ", "(2, 3, 4) and (3, 4, 5)")),
        (lambda: ones(2, 3) @ ones(), ("matmul: operands must have at least one axis",)),
        (lambda: fnp.dot(ones(2, 3), ones(2, 3)), ("must have equal sizes", "(2, 3)")),
        (lambda: fnp.vdot(ones(3), ones(4)), ("(3,)", "(4,)")),
        (lambda: fnp.inner(ones(3), ones(4)), ("(3,)", "(4,)")),
        (
            lambda: fnp.tensordot(ones(2, 3), ones(2, 3), 1),
            ("tensordot: summed axes must have equal sizes", "(2, 3) at (1,) and (2, 3) at (0,)"),
        ),
        (
            lambda: fnp.einsum("ij,jk->ik", ones(2, 3), ones(4, 5)),
            ("einsum: axes with one name must have one size", "3 and 4 for 'j'"),
        ),
        (lambda: fnp.einsum("ii", ones(2, 3)), ("einsum: ", "2 and 3 for 'i'")),
        (
            lambda: lax.dot_general(ones(2, 3), ones(4, 3), (((1,), (0,)), ((), ()))),
            ("dot_general: contracted axes must have equal sizes", "(2, 3) at (1,) and (4, 3) at (0,)"),
        ),
        (
            lambda: lax.dot_general(ones(2, 3), ones(4, 3), (((1,), (1,)), ((0,), (0,)))),
            ("dot_general: batch axes must have equal sizes",),
        ),
        (
            lambda: fnp.concatenate([ones(2, 3), ones(2, 4)]),
            ("concatenate: shapes must agree but on axis 0", "f32[2,3] and f32[2,4]"),
        ),
        (lambda: fnp.stack([ones(3), ones(4)]), ("stack: all arrays must have one shape", "(3,), (4,)")),
        (lambda: fnp.where(ones(3) > 0, ones(3), ones(4)), ("where: ", "(3,) and (3,) and (4,)")),
        (lambda: ones(6).reshape(4, 2), ("reshape: 6 elements must fill the new shape", "(6,) to (4, 2)")),
        (lambda: ones(6).reshape(4, -1), ("reshape: 6 elements must fill the new shape", "(6,) to (4, -1)")),
        (lambda: fnp.broadcast_to(ones(3), (2, 4)), ("broadcast_to: ", "(3,) and (2, 4)")),
        (lambda: fnp.sum(ones(2, 3), axis=2), ("sum: axis must be in [-2, 2), got 2",)),
        (lambda: ones(2, 3).max(axis=-3), ("max: axis must be in [-2, 2), got -3",)),
        (lambda: fnp.cumsum(ones(2, 3), axis=2), ("cumsum: axis must be in [-2, 2), got 2",)),
        (lambda: fnp.sort(ones(2, 3), axis=2), ("sort: axis must be in [-2, 2), got 2",)),
        (lambda: fnp.argmax(ones(2, 3), axis=2), ("argmax: axis must be in [-2, 2), got 2",)),
        (lambda: fnp.flip(ones(2, 3), axis=2), ("flip: axis must be in [-2, 2), got 2",)),
        (lambda: fnp.concatenate([ones(2, 3)], axis=2), ("concatenate: axis must be in [-2, 2), got 2",)),
        (lambda: fnp.squeeze(ones(2, 3), axis=0), ("squeeze",)),
        (lambda: fnp.expand_dims(ones(2, 3), axis=4), ("expand_dims: axis must be in [-3, 3), got 4",)),
        (lambda: fnp.take(ones(2, 3), fnp.arange(2), axis=2), ("take: axis must be in [-2, 2), got 2",)),
        (lambda: fnp.sum(ones(2, 3), axis=(0, 0)), ("sum: axes must be distinct, got (0, 0)",)),
        (lambda: fnp.transpose(ones(2, 3), (0, 0)), ("transpose: axes must be distinct, got (0, 0)",)),
        (lambda: fnp.zeros((-1, 2)), ("zeros: dimensions must not be negative, got (-1, 2)",)),
        (lambda: fnp.zeros((1,) * 17), ("rank must be at most 16", "17")),
        (lambda: fg.jvp(fnp.sin, (X,), (ones(2),)), ("jvp of sin: tangent: the type must be f32[3], got f32[2]",)),
    ],
)
def test_shapes(call: Any, parts: tuple[str, ...]) -> None:
    check(call, AxisError if any("axis must be in" in part for part in parts) else ShapeError, *parts)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fnp.zeros((1 << 16, 1 << 15)),
        lambda: fnp.broadcast_to(ones(1), (1 << 31,)),
        lambda: fnp.arange(1 << 31),
        lambda: fg.ShapeDtypeStruct((1 << 31,), "float32"),
        lambda: fg.eval_shape(
            fnp.outer, fg.ShapeDtypeStruct((1 << 16,), "float32"), fg.ShapeDtypeStruct((1 << 16,), "float32")
        ),
    ],
)
def test_two_billion_elements_are_refused(call: Any) -> None:
    with pytest.raises((ShapeError, OverflowError), match=r"fewer than 2\^31 elements|must fit int32"):
        call()


# -- indices -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "error", "part"),
    [
        (lambda: ones(3)[5], IndexError, "index: must be in [-3, 3) on axis 0, got 5"),
        (lambda: ones(2, 3)[0, -4], IndexError, "index: must be in [-3, 3) on axis 1, got -4"),
        (lambda: ones(3)[np.array([0, 7])], IndexError, "index: must be in [-3, 3) on axis 0, got 7"),
        (lambda: ones(3)[[0, -9]], IndexError, "index: must be in [-3, 3) on axis 0, got -9"),
        (lambda: ones(0)[0], IndexError, "index: must be in [0, 0) on axis 0, got 0"),
        (
            lambda: ones(3)[0, 0],
            IndexError,
            "index: at most 1 indices and one ellipsis are allowed, got 2 for shape (3,)",
        ),
        (lambda: ones(3)[1.5], TypeError, "index: this type cannot be an index, got float"),
        (lambda: ones(3)["a"], TypeError, "index: this type cannot be an index, got str"),
        (lambda: ones(3).__setitem__(0, 1.0), TypeError, "x[i] = v: arrays are immutable"),
        (lambda: len(ones()), TypeError, "len: an array of rank 0 has no length, got f32[]"),
        (lambda: list(ones()), TypeError, "iter: an array of rank 0 has no elements to iterate over, got f32[]"),
        (lambda: bool(ones(3)), ValueError, "bool: exactly one element is required, got f32[3]"),
        (lambda: int(ones(3)), TypeError, "int: exactly one element is required, got f32[3]"),
    ],
)
def test_indices_and_conversions(call: Any, error: type[Exception], part: str) -> None:
    check(call, error, part)


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
