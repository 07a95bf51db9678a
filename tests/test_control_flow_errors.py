"""What control flow says when it is used wrongly: type, builtin parent, and a text that names the place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax
from funcgrad.errors import DTypeError, ShapeError, TreeError

pytestmark = pytest.mark.usefixtures("reference")


X3 = np.ones(3)
ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], type[Exception], str]] = {
    "carry type": (
        lambda: lax.scan(lambda c, x: ({"a": [c["a"][0], c["a"][1] * 1.5]}, x), {"a": [X3, np.int32(1)]}, X3),
        DTypeError,
        TypeError,
        r"scan of <lambda>: .*same types.*f\d\d\[\] for i32\[\] at carry\['a'\]\[1\]",
    ),
    "carry shape": (
        lambda: lax.scan(lambda c, x: (c.sum(), x), X3, X3),
        DTypeError,
        TypeError,
        r"f64\[\] for f64\[3\] at carry",
    ),
    "carry structure": (
        lambda: lax.scan(lambda c, x: ((c,), x), 1.0, X3),
        TreeError,
        TypeError,
        "carry that the body returns",
    ),
    "carry path": (
        lambda: lax.scan(lambda c, x: ({"a": (1.0,)}, x), {"a": (1.0, 2.0)}, X3),
        TreeError,
        TypeError,
        r"differ at \['a'\]: 2 children.*1 children",
    ),
    "no pair": (lambda: lax.scan(lambda c, x: c, 1.0, X3), TreeError, TypeError, r"pair \(carry, y\), got Tracer"),
    "lengths": (
        lambda: lax.scan(lambda c, x: (c, None), 0.0, {"a": X3, "b": np.ones((4, 2))}),
        ShapeError,
        ValueError,
        r"f64\[3\] at xs\['a'\], f64\[4,2\] at xs\['b'\]",
    ),
    "length and xs": (lambda: lax.scan(lambda c, x: (c, None), 0.0, X3, length=4), ShapeError, ValueError, "4 and 3"),
    "no length": (
        lambda: lax.scan(lambda c, x: (c, None), 0.0),
        ShapeError,
        ValueError,
        "how many steps.*\n.*give length",
    ),
    "negative length": (
        lambda: lax.scan(lambda c, x: (c, None), 0.0, length=-1),
        ShapeError,
        ValueError,
        "negative, got -1",
    ),
    "scalar xs": (
        lambda: lax.scan(lambda c, x: (c, None), 0.0, (X3, 1.0)),
        ShapeError,
        ValueError,
        r"scalar at xs \[1\]",
    ),
    "leaf": (lambda: lax.scan(lambda c, x: (c, None), {"n": "a"}, X3), TreeError, TypeError, r"str at \['n'\]"),
    "predicate shape": (
        lambda: lax.cond(X3 > 0, lambda: 1, lambda: 2),
        DTypeError,
        TypeError,
        r"must be a scalar, got bool\[3\]",
    ),
    "predicate tree": (
        lambda: lax.cond((True, False), lambda: 1, lambda: 2),
        DTypeError,
        TypeError,
        "must be a scalar",
    ),
    "predicate text": (lambda: lax.cond("yes", lambda: 1, lambda: 2), TreeError, TypeError, "str"),
    "branch types": (
        lambda: lax.cond(True, lambda x: {"a": x}, lambda x: {"a": x.sum()}, X3),
        DTypeError,
        TypeError,
        r"f64\[3\] and f64\[\] at \['a'\]",
    ),
    "branch structures": (
        lambda: lax.cond(True, lambda x: (x,), lambda x: x, X3),
        TreeError,
        TypeError,
        "same structure",
    ),
    "branch no function": (lambda: lax.cond(True, 1, lambda: 2), TypeError, TypeError, "must be functions, got int"),
    "switch index": (
        lambda: lax.switch(1.5, [lambda: 1, lambda: 2]),
        DTypeError,
        TypeError,
        "index must be an integer",
    ),
    "switch empty": (lambda: lax.switch(0, []), ValueError, ValueError, "at least one branch"),
    "condition type": (
        lambda: lax.while_loop(lambda v: v, lambda v: v, 1.0),
        DTypeError,
        TypeError,
        r"bool scalar, got f(32|64)\[\]",
    ),
    "condition shape": (
        lambda: lax.while_loop(lambda v: v > 0, lambda v: v, X3),
        DTypeError,
        TypeError,
        r"got bool\[3\]",
    ),
    "condition pair": (
        lambda: lax.while_loop(lambda v: (v > 0, v > 1), lambda v: v, 1.0),
        DTypeError,
        TypeError,
        "bool scalar",
    ),
    "while carry": (
        lambda: lax.while_loop(lambda v: v[0] > 0, lambda v: (v[0], v[1].sum()), (1.0, X3)),
        DTypeError,
        TypeError,
        r"carry\[1\]",
    ),
    "bounds": (lambda: lax.fori_loop(0.5, 3, lambda i, v: v, 1.0), DTypeError, TypeError, "bounds must be integers"),
    "batch size": (
        lambda: lax.map(lambda x: x, X3, batch_size=0),
        ShapeError,
        ValueError,
        "batch_size must be at least 1",
    ),
    "combine type": (
        lambda: lax.associative_scan(lambda a, b: a > b, X3),
        DTypeError,
        TypeError,
        "fn must return the types",
    ),
    "combine axis": (lambda: lax.associative_scan(lambda a, b: a, X3, axis=1), ShapeError, ValueError, "axis 1 of"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, kind, builtin, text = ERRORS[name]
    assert issubclass(kind, builtin)
    with pytest.raises(kind, match=text) as caught:
        call()
    if kind is not TypeError and kind is not ValueError:
        assert "test_control_flow_errors.py" in str(caught.value) or kind is TreeError


def test_python_cannot_branch_on_a_loop_value() -> None:
    with pytest.raises(fg.errors.TracerBoolConversionError, match=r"lax\.cond"):
        lax.scan(lambda c, x: (c if x > 0 else -c, None), 1.0, X3)


def test_a_value_must_not_leave_a_body() -> None:
    kept: list[Any] = []
    lax.scan(lambda c, x: (kept.append(x) or c, None), 1.0, X3)
    with pytest.raises(fg.errors.UnexpectedTracerError, match="return the value"):
        fnp.sin(kept[0])
