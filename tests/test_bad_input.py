"""Bad input: the error's exact type, and a message that names operation, values, the user's own line and a way out."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest
from bad_calls import check

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import errors, lax
from funcgrad.errors import (
    AxisError,
    ShapeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)

pytestmark = pytest.mark.usefixtures("device")

X = np.arange(3, dtype=np.float32)


def ones(*shape: int) -> Any:
    return fnp.ones(shape, fnp.float32)


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
