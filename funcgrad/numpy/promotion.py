"""What all functions of the numpy surface share: promotion, broadcasting, axes, and how an argument becomes an operand.

Python scalars take the dtype of the array beside them (no weak types): ``x * 2.0`` is float16 for a float16 x.  An
integer array beside a Python float, and an integer array given to a function of floats, become float32.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.array import SCALARS, as_value, convert_to
from funcgrad.errors import AxisError, DTypeError, ShapeError, message
from funcgrad.ir import Literal
from funcgrad.primitive import apply
from funcgrad.prims import layout
from funcgrad.runtime import device as _device
from funcgrad.trace import Value

__all__ = ["broadcast_shapes"]

Shape = tuple[int, ...]
Axis = int | Sequence[int] | None


# -- operands ----------------------------------------------------------------------------------------------------
def _is_python_scalar(x: Any) -> bool:
    return isinstance(x, SCALARS) and not isinstance(x, np.generic)


def promote_args(name: str, *xs: Any) -> list[Any]:
    """Return the operands in their common dtype; Python scalars become literals of it."""
    values = [x if _is_python_scalar(x) else operand(name, x) for x in xs]
    arrays = [v.aval.dtype for v in values if not isinstance(v, SCALARS)]
    dtype = dtypes.promote(*arrays) if arrays else None
    for v in values:
        if isinstance(v, SCALARS):
            wanted = scalar_dtype(v, dtype)
            dtype = wanted if dtype is None else dtypes.promote(dtype, wanted)
    return [_literal(name, v, dtype) if isinstance(v, SCALARS) else cast(v, dtype) for v in values]


def operand(name: str, x: Any) -> Any:
    """Return a value or literal for an argument; an error names the function."""
    if isinstance(x, (Value, Literal)):
        return x
    if x is None or isinstance(x, (str, bytes, dict, set)):
        raise DTypeError(
            message(name, "numbers or an array are required", type(x).__name__, "convert it to numbers first")
        )
    if isinstance(x, (list, tuple)) and _holds_tracer(x):
        return stack_nested(name, x)
    return Literal(x, scalar_dtype(x)) if _is_python_scalar(x) else as_value(x)


def _holds_tracer(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(_holds_tracer(v) for v in x)
    return isinstance(x, Value)


def stack_nested(name: str, x: Any) -> Any:
    """Return one array for nested lists that hold values."""
    if not isinstance(x, (list, tuple)):
        return dense(operand(name, x))
    if not x:
        return as_value(np.zeros(0, np.float32))
    rows = promote_args(name, *[stack_nested(name, v) for v in x])
    shape = rows[0].aval.shape
    if any(r.aval.shape != shape for r in rows):
        got = ", ".join(str(r.aval.shape) for r in rows)
        raise ShapeError(message(name, "nested lists must have one shape", got))
    return layout.concatenate([layout.reshape(dense(r), (1, *shape)) for r in rows], 0)


def scalar_dtype(value: Any, other: Any = None) -> Any:
    """Return the dtype of a Python scalar beside an operand of dtype ``other``; new floats have the default dtype."""
    found = dtypes.scalar_dtype(value, other)
    return default_float() if isinstance(value, float) and found != other else found


def operand_as(name: str, x: Any, dtype: Any) -> Any:
    """Return a value or literal of a dtype for an argument; a Python number is rounded once."""
    return Literal(x, dtype) if _is_python_scalar(x) else cast(operand(name, x), dtype)


def array_as(name: str, x: Any, dtype: Any) -> Any:
    """Return an argument as an array of a dtype."""
    return dense(operand_as(name, x, dtype))


def array_of(name: str, x: Any) -> Any:
    """Return an argument as an array value."""
    return x if isinstance(x, Value) else dense(operand(name, x))


def _literal(name: str, value: Any, dtype: Any) -> Literal:
    if dtype in dtypes.INTS and isinstance(value, int):
        info = np.iinfo(dtype)
        if not info.min <= value <= info.max:
            raise OverflowError(message(name, f"a Python integer must fit {dtypes.NAMES[dtype]}", str(value)))
    return Literal(value, dtype)


def cast(x: Any, dtype: Any) -> Any:
    """Return a value or literal in a dtype."""
    if x.aval.dtype == dtype:
        return x
    return Literal(x.item(), dtype) if isinstance(x, Literal) else convert_to(x, dtype)


def dense(x: Any) -> Any:
    """Return an array for a literal, so that results are arrays."""
    return apply("copy", x) if isinstance(x, Literal) else x


def filled(shape: Sequence[int], value: Any, dtype: Any) -> Any:
    """Return an array of one number."""
    literal = Literal(value, dtype)
    return layout.broadcast(literal, shape, ()) if shape else apply("copy", literal)


def is_bool(x: Any) -> bool:
    """Return whether a value is of dtype bool."""
    return bool(x.aval.dtype == dtypes.bool_)


def is_floating(x: Any) -> bool:
    """Return whether a value is of a float dtype."""
    return x.aval.dtype in dtypes.FLOATS


def same_kind_pair(x: Any, y: Any) -> tuple[Any, Any] | None:
    """Two operands that need no promotion, or None: arrays of one type, or a float array beside a Python number."""
    if isinstance(x, Value):
        if isinstance(y, Value):
            return (x, y) if x.aval is y.aval else None
        if (type(y) is float or type(y) is int) and x.aval.dtype in dtypes.FLOATS:
            return x, Literal(y, x.aval.dtype)
    elif (type(x) is float or type(x) is int) and isinstance(y, Value) and y.aval.dtype in dtypes.FLOATS:
        return Literal(x, y.aval.dtype), y
    return None


def binary(name: str, prim: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """Promote, broadcast, apply."""
    pair = same_kind_pair(x, y)
    if pair is None:
        a, b = broadcast_args(name, *promote_args(name, x, y))
        return prim(a, b)
    return prim(*pair)


def floating(name: str, *xs: Any) -> list[Any]:
    """Promote to a float dtype."""
    args = promote_args(name, *xs)
    dtype = args[0].aval.dtype
    return args if dtype in dtypes.FLOATS else [cast(a, default_float()) for a in args]


def floating_arrays(name: str, *xs: Any) -> list[Any]:
    """Promote to a float dtype; scalars become arrays."""
    return [dense(a) for a in floating(name, *xs)]


def numbers(name: str, *xs: Any) -> list[Any]:
    """Promote; bools become int32."""
    args = promote_args(name, *xs)
    return [cast(a, dtypes.int32) for a in args] if is_bool(args[0]) else args


def default_float() -> Any:
    """Return the dtype of new floats: float32, float64 on a device that has it."""
    return dtypes.float64 if _device.default().float64 else dtypes.float32


def result_dtype(dtype: Any, default: Any) -> Any:
    """Return the dtype for a ``dtype=`` argument; float64 only where the default device has it."""
    if dtype is None:
        return default
    if dtype is float:
        return default_float()
    d = dtypes.as_dtype(dtype)
    return dtypes.float32 if d == dtypes.float64 and not _device.default().float64 else d


# -- shapes ------------------------------------------------------------------------------------------------------
def broadcast_shapes(*shapes: Any, name: str = "broadcast_shapes") -> Shape:
    """Return the shape that numpy's rules give for operands of these shapes.

    >>> fnp.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    given = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    rank = max(map(len, given), default=0)
    out = []
    for column in zip(*[(1,) * (rank - len(s)) + s for s in given], strict=True):
        sizes = {n for n in column if n != 1}
        if len(sizes) > 1:
            got = " and ".join(map(str, given))
            way_out = "reshape, or index with None to add an axis"
            raise ShapeError(message(name, "shapes must be equal or 1 on each axis, from the last", got, way_out))
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def expand_to(x: Any, shape: Shape) -> Any:
    """Broadcast a value to a shape that its own is known to fit."""
    if x.aval.shape == shape:
        return x
    lead = len(shape) - x.aval.ndim
    return layout.broadcast(x, shape, tuple(range(lead, len(shape))))


def broadcast_args(name: str, *xs: Any) -> list[Any]:
    """Return the operands in one shape; scalars stay scalars beside arrays."""
    shapes = [x.aval.shape for x in xs]
    if len({s for s in shapes if s}) <= 1:
        return list(xs)
    shape = broadcast_shapes(*shapes, name=name)
    return [x if not s else expand_to(x, shape) for x, s in zip(xs, shapes, strict=True)]


def as_int(name: str, x: Any, what: str) -> int:
    """Return a Python integer for a size or an axis, or raise TypeError."""
    try:
        return operator.index(x)
    except TypeError as e:
        if isinstance(x, Value):
            raise
        raise TypeError(message(name, f"{what} must be an integer", repr(x))) from e


def axis_index(name: str, axis: Any, ndim: int) -> int:
    """Return an axis counted from 0; negative ones count from the end."""
    a = as_int(name, axis, "axis")
    if not -ndim <= a < ndim:
        requirement = f"axis must be in [{-ndim}, {ndim})" if ndim else "an array of rank 0 has no axis"
        raise AxisError(
            message(name, requirement, str(a), f"the array has {ndim} axes, counted from 0 or from the end by -1")
        )
    return a % ndim


def axis_tuple(name: str, axis: Any, ndim: int, sort: bool = True) -> Shape:
    """Return distinct axes counted from 0, all for None."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = [axis_index(name, a, ndim) for a in given]
    if len(set(axes)) != len(axes):
        raise ShapeError(message(name, "axes must be distinct", str(axis), "name each axis once"))
    return tuple(sorted(axes)) if sort else tuple(axes)


def shape_tuple(name: str, shape: Any) -> Shape:
    """Return a shape of non-negative integers for an integer or a sequence of them."""
    try:
        dims: Shape = (operator.index(shape),)
    except TypeError:
        if isinstance(shape, Value) and not shape.shape:
            raise
        if not hasattr(shape, "__iter__"):
            raise TypeError(message(name, "a shape must be integers", repr(shape))) from None
        dims = tuple([as_int(name, d, "each dimension") for d in shape])
    if any(d < 0 for d in dims):
        raise ShapeError(message(name, "dimensions must not be negative", str(dims), "-1 is for reshape only"))
    return dims


def kept_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    """Return the shape with 1 at the reduced axes."""
    return tuple([1 if d in axes else n for d, n in enumerate(shape)])
