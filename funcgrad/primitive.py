"""A primitive is one class: its fields are static parameters, its methods are its rules, its examples are its tests.

Rules, all over values (arrays or tracers) so that their results are graphs again and nest to any order:

- ``infer(*avals)``            shape and dtype of the result, or an error
- ``eval(*arrays)``            the numpy reference
- ``vjp(ct, out, *xs)``        one cotangent per operand: a value, None for zero, or a function that makes it
- ``jvp(ts, out, *xs)``        the tangent; an operand without tangent has None in ``ts``
- ``batch(size, mapped, *xs)`` the same operation with a leading axis of ``size`` on the mapped operands
- ``lower(g, *xs)``            what the emitter ``g`` shall do

The families derive most of these: :class:`Pointwise` from one formula per operand, :class:`Linear` from its transpose,
:class:`Bilinear` from two transposes.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from typing_extensions import dataclass_transform

from funcgrad import dtypes
from funcgrad.errors import DTypeError, MissingRule, ShapeError, message
from funcgrad.ir import Aval, Graph, Literal
from funcgrad.trace import Value, bind

__all__ = ["Arg", "Bilinear", "Example", "Linear", "Pointwise", "Primitive", "REGISTRY", "apply", "operands"]

REGISTRY: dict[str, type[Primitive]] = {}
T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def dataclass(*, frozen: bool = True, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """``dataclasses.dataclass`` for primitives; most have no fields and need no code made for them at import.

    Two primitives without fields are equal when they are of one class.
    """

    def decorate(cls: type[T]) -> type[T]:
        own = [a for a in inspect.get_annotations(cls).values() if not str(a).startswith("ClassVar")]
        if own or getattr(cls, "__dataclass_fields__", None):
            return dataclasses.dataclass(frozen=frozen, eq=eq)(cls)
        if eq:
            cls.__eq__ = _same_class  # type: ignore[method-assign]
            cls.__hash__ = _hash_of_class  # type: ignore[method-assign]
        return cls

    return decorate


def _same_class(self: Any, other: object) -> bool:
    return type(self) is type(other)


def _hash_of_class(self: Any) -> int:
    return hash(type(self))


class Arg(NamedTuple):
    """One operand of an example: its type as text, and where its values come from.

    ``low`` and ``high`` bound random values; ``values`` gives them outright.
    """

    type: str
    low: float = -2.0
    high: float = 2.0
    values: Any = None

    @property
    def aval(self) -> Aval:
        """The operand's type."""
        return parse_aval(self.type)


class Example(NamedTuple):
    """Static parameters and operands under which every generic check runs; derivatives only where ``smooth``."""

    params: dict[str, Any]
    args: tuple[Arg, ...]
    smooth: bool = True


def example(*args: Arg | str, smooth: bool = True, **params: Any) -> Example:
    """Make an example; an operand given as text takes values in [-2, 2]."""
    return Example(params, tuple([Arg(a) if isinstance(a, str) else a for a in args]), smooth)


_LONG = {short: d for d, short in dtypes.SHORT.items()}


def parse_aval(text: str) -> Aval:
    """Return the type that a graph prints as ``text``.

    >>> parse_aval("f32[2,3]")
    f32[2,3]
    """
    short, _, dims = text.partition("[")
    return Aval(tuple(int(d) for d in dims.rstrip("]").split(",") if d), _LONG[short])


def operands(*xs: Any) -> tuple[Any, ...]:
    """Give Python scalars among the operands the dtype of the first value among them."""
    dtype = next((x.aval.dtype for x in xs if isinstance(x, (Value, Literal))), None)
    return tuple([x if isinstance(x, (Value, Literal)) else Literal(x, dtypes.scalar_dtype(x, dtype)) for x in xs])


def apply(name: str, *xs: Any, **params: Any) -> Any:
    """Apply the registered primitive ``name``; for rules that need an operation defined above them."""
    return bind(REGISTRY[name](**params), *operands(*xs))


@dataclasses.dataclass(frozen=True, eq=False)
class Primitive:
    """Base of all primitives; see the module's docstring for the rules."""

    name: ClassVar[str] = ""
    multiple: ClassVar[bool] = False  # several outputs: rules then give and take tuples
    effectful: ClassVar[bool] = False  # kept even when no result is read
    examples: ClassVar[Sequence[Example]] = ()

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            REGISTRY[cls.name] = cls

    # -- rules ---------------------------------------------------------------------------------------------------
    def infer(self, *avals: Aval) -> Any:
        """Return the result's type (a tuple of types when ``multiple``), or raise ShapeError or DTypeError."""
        raise self._missing("infer")

    def eval(self, *xs: Any) -> Any:
        """Return the result by numpy."""
        raise self._missing("eval")

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        """Return one cotangent per operand."""
        raise self._missing("vjp")

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        """Return the tangent of the result."""
        raise self._missing("jvp")

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        """Return the results and whether each carries the leading axis."""
        raise self._missing("batch")

    def lower(self, g: Any, *xs: Any) -> Any:
        """Return what the emitter makes of this operation."""
        raise self._missing("lower")

    # -- shared --------------------------------------------------------------------------------------------------
    def _missing(self, rule: str) -> MissingRule:
        name = self.name or type(self).__name__
        return MissingRule(message(name, f"has no {rule} rule; define {type(self).__name__}.{rule}"))

    def infer_all(self, *avals: Aval) -> tuple[Aval, ...]:
        """Return the types of all results as a tuple."""
        out = self.infer(*avals)
        return out if isinstance(out, tuple) else (out,)

    def evaluate(self, *xs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """Run ``eval`` with half-precision data widened to float32 and results rounded to their dtypes."""
        avals = self.infer_all(*[Aval(x.shape, x.dtype) for x in xs])
        with np.errstate(all="ignore"):
            out = self.eval(*[dtypes.widen(x) for x in xs])
        outs = out if self.multiple else (out,)
        return [dtypes.narrow(np.asarray(o), a.dtype).reshape(a.shape) for o, a in zip(outs, avals, strict=True)]

    def params(self) -> dict[str, Any]:
        """The static parameters by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def __str__(self) -> str:
        shown = [f"{k}={_brief(v)}" for k, v in self.params().items() if not _has_graph(v)]
        return f"{self.name}({', '.join(shown)})" if shown else self.name

    def shape_error(self, requirement: str, *avals: Any, way_out: str = "") -> ShapeError:
        """An error that names this operation, the requirement and the operands."""
        return ShapeError(message(self.name, requirement, " and ".join(map(str, avals)), way_out))

    def dtype_error(self, requirement: str, *avals: Any, way_out: str = "") -> DTypeError:
        """An error that names this operation, the requirement and the operands."""
        return DTypeError(message(self.name, requirement, " and ".join(map(str, avals)), way_out))


def _has_graph(value: Any) -> bool:
    return isinstance(value, Graph) or (isinstance(value, tuple) and any(isinstance(v, Graph) for v in value))


def _brief(value: Any) -> str:
    return dtypes.NAMES[value] if isinstance(value, np.dtype) else str(value)


def accumulate(a: Any, b: Any) -> Any:
    """Add two cotangents or tangents, None being zero."""
    if a is None:
        return b
    return a if b is None else apply("add", a, b)


def broadcast_leading(x: Any, size: int) -> Any:
    """Repeat a value along a new leading axis."""
    shape = x.aval.shape
    return apply("broadcast", x, shape=(size, *shape), dims=tuple(range(1, len(shape) + 1)))


def map_all(size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> list[Any]:
    """Give every operand the leading axis."""
    return [x if m else broadcast_leading(x, size) for m, x in zip(mapped, xs, strict=True)]


# -- families ----------------------------------------------------------------------------------------------------
class Pointwise(Primitive):
    """Works element by element on operands of one shape; scalars stand beside arrays of any shape.

    ``derivatives(out, *xs)`` gives, per operand, the partial derivative: a value, a number, None for zero, or a
    function that makes it.  The diagonal Jacobian is its own transpose, so both modes follow.  A product with an
    unbounded derivative is ``mul_nz``: zero where either factor is zero, so that what was not selected contributes
    nothing.
    """

    op: ClassVar[str] = ""  # the emitter's name of the operation, by default the primitive's
    accepts: ClassVar[frozenset[Any]] = dtypes.ALL
    bounded: ClassVar[bool] = False  # derivatives are finite for all operands

    def infer(self, *avals: Aval) -> Aval:
        """Join the shapes, check the dtypes."""
        first = avals[0]
        for a in avals[1:]:
            if a.dtype != first.dtype:
                raise self.dtype_error("operands must have one dtype", *avals, way_out="convert with astype")
        if first.dtype not in self.accepts:
            names = ", ".join(sorted(dtypes.NAMES[d] for d in self.accepts))
            raise self.dtype_error(f"dtype must be one of {names}", first.dtype, way_out="convert with astype")
        return Aval(self.join(avals), self.result_dtype(first.dtype))

    def join(self, avals: Sequence[Aval]) -> tuple[int, ...]:
        """The one shape of the operands that are not scalars."""
        shape: tuple[int, ...] = ()
        for a in avals:
            if a.shape and a.shape != shape:
                if shape:
                    raise self.shape_error(
                        "operands must have one shape", *avals, way_out="broadcast or reshape one of them"
                    )
                shape = a.shape
        return shape

    def result_dtype(self, dtype: Any) -> Any:
        """The result's dtype for operands of ``dtype``."""
        return dtype

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        """Return the partial derivative for each operand."""
        raise self._missing("derivatives")

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        """Multiply the cotangent by each derivative; sum for a scalar operand."""

        def make(d: Any, x: Any) -> Callable[[], Any]:
            return lambda: sum_to_shape(self._product(ct, d), x.aval)

        return [None if d is None else make(d, x) for d, x in zip(self.derivatives(out, *xs), xs, strict=True)]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        """Add up tangent times derivative."""
        total = None
        for t, d in zip(ts, self.derivatives(out, *xs), strict=True):
            if t is not None and d is not None:
                total = accumulate(total, self._product(t, d))
        if total is not None and total.aval.shape != out.aval.shape:
            total = apply("broadcast", total, shape=out.aval.shape, dims=())
        return total

    def _product(self, t: Any, d: Any) -> Any:
        d = d() if callable(d) else d
        if isinstance(d, (int, float)):
            return t if d == 1 else apply("neg", t) if d == -1 else apply("mul", t, d)
        return apply("mul" if self.bounded else "mul_nz", t, d)

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        """Line up the operands behind the leading axis."""
        ranks = [x.aval.ndim - m for m, x in zip(mapped, xs, strict=True)]
        shape = next((x.aval.shape[m:] for m, r, x in zip(mapped, ranks, xs, strict=True) if r), ())
        full = (size, *shape)
        ys = []
        for m, x in zip(mapped, xs, strict=True):
            if x.aval.shape == full or (not m and not x.aval.shape):
                ys.append(x)
            elif m:
                ys.append(apply("broadcast", x, shape=full, dims=(0,)))
            else:
                ys.append(broadcast_leading(x, size))
        return bind(self, *ys), True

    def lower(self, g: Any, *xs: Any) -> Any:
        """One instruction of the emitter."""
        return g.op(self.op or self.name, *xs)


def sum_to_shape(ct: Any, aval: Aval) -> Any:
    """Sum a cotangent over all axes when the operand was a scalar."""
    if ct.aval.shape == aval.shape:
        return ct
    if aval.shape:  # the result was a scalar's product with an array-shaped derivative: cannot happen by infer
        raise AssertionError(f"cotangent {ct.aval} for an operand {aval}")
    return apply("reduce_sum", ct, axes=tuple(range(ct.aval.ndim)))


class Linear(Primitive):
    """Linear in the operands at ``linear`` (all by default) for fixed others; its jvp is the operation itself."""

    linear: ClassVar[tuple[int, ...]] = (0,)

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        """Return one cotangent per operand; of ``xs``, only types and operands that are not linear may be used."""
        raise self._missing("transpose")

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        """Apply the transpose."""
        return self.transpose(ct, *xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        """Apply the operation to the tangents."""
        linear = self.linear_operands(len(xs))
        args = []
        for i, (t, x) in enumerate(zip(ts, xs, strict=True)):
            args.append(x if i not in linear else zeros(x.aval) if t is None else t)
        return bind(self, *args)

    def linear_operands(self, n: int) -> Sequence[int]:
        """The positions of the linear operands among ``n``."""
        return self.linear


class Bilinear(Primitive):
    """Linear in each of its two operands: two transposes, and a jvp of two calls of itself."""

    def transpose_left(self, ct: Any, x: Any, y: Any) -> Any:
        """The cotangent of the first operand."""
        raise self._missing("transpose_left")

    def transpose_right(self, ct: Any, x: Any, y: Any) -> Any:
        """The cotangent of the second operand."""
        raise self._missing("transpose_right")

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        """Apply the two transposes, each when needed."""
        x, y = xs
        return [lambda: self.transpose_left(ct, x, y), lambda: self.transpose_right(ct, x, y)]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        """Differentiate one operand at a time."""
        (tx, ty), (x, y) = ts, xs
        left = None if tx is None else bind(self, tx, y)
        return accumulate(left, None if ty is None else bind(self, x, ty))


def zeros(aval: Aval) -> Any:
    """Zeros of a type."""
    zero = Literal(0, aval.dtype)
    return apply("broadcast", zero, shape=aval.shape, dims=()) if aval.shape else apply("copy", zero)
