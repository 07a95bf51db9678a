"""Matrix products and what is made of them: dot, tensordot, outer, kron, cross, convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.contraction import Term, contract_terms
from funcgrad.numpy.manipulation import moveaxis
from funcgrad.numpy.precision import resolve_precision
from funcgrad.numpy.promotion import axis_tuple, broadcast_args, cast, dense, is_bool, promote_args, result_dtype
from funcgrad.prims import contract, layout, pointwise
from funcgrad.trace import Value

__all__ = ["cross", "dot", "inner", "kron", "matmul", "matvec", "outer", "tensordot", "vdot", "vecdot", "vecmat"]


def operand_pair(name: str, a: Any, b: Any) -> list[Any]:
    if isinstance(a, Value) and isinstance(b, Value) and a.aval.dtype == b.aval.dtype:
        return [a, b]
    return [dense(x) for x in promote_args(name, a, b)]


def _product(name: str, terms: Sequence[Term], out: Sequence[Any], precision: Any, preferred: Any = None) -> Any:
    chosen = resolve_precision(name, precision)
    boolean = is_bool(terms[0].value)
    if boolean:
        terms = [Term(cast(t.value, dtypes.int32), t.labels) for t in terms]
    value = contract_terms(terms, tuple(out), chosen)
    value = cast(value, dtypes.bool_) if boolean else value
    return value if preferred is None else cast(value, result_dtype(preferred, None))


def matmul(a: Any, b: Any, /, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the matrix product over the last axis of a and the second to last of b; axes before them broadcast.

    float16 and bfloat16 accumulate in float32.  ``precision`` is "float32", "tensorfloat32" or "float16".

    >>> fnp.matmul(fnp.asarray([[1.0, 2.0]]), fnp.asarray([3.0, 4.0]))
    Array([11.], dtype=float32)
    """
    x, y = operand_pair("matmul", a, b)
    m, n = x.aval.ndim, y.aval.ndim
    if not m or not n:
        got = f"{x.aval} and {y.aval}"
        raise ShapeError(message("matmul", "operands must have at least one axis", got, "use multiply for scalars"))
    inner = x.aval.shape[-1], y.aval.shape[max(n - 2, 0)]
    if inner[0] != inner[1]:
        got = f"{x.aval.shape} and {y.aval.shape}"
        way_out = "transpose one operand, or check the order of the operands"
        raise ShapeError(message("matmul", f"inner sizes must be equal ({inner[0]} and {inner[1]})", got, way_out))
    if m == 2 and n <= 2 and not is_bool(x) and preferred_element_type is None:
        return contract.dot_general(x, y, (1,), (0,), precision=resolve_precision("matmul", precision))
    left = [*range(m - 2, 0, -1), *["i"][: m - 1], "k"]
    right = [*range(n - 2, 0, -1), "k", *["j"][: n - 1]]
    batch = list(range(max(m, n) - 2, 0, -1))
    _check_batch(x.aval.shape, y.aval.shape)
    out = [*batch, *["i"][: m - 1], *["j"][: n - 1]]
    return _product("matmul", [Term(x, tuple(left)), Term(y, tuple(right))], out, precision, preferred_element_type)


def _check_batch(a: Sequence[int], b: Sequence[int]) -> None:
    for n, k in zip(a[-3::-1], b[-3::-1], strict=False):
        if n != k and 1 not in (n, k):
            got = f"{tuple(a)} and {tuple(b)}"
            raise ShapeError(
                message("matmul", "axes before the last two must be equal or 1", got, "reshape or transpose one")
            )


def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product over the last axis of a and the second to last of b; other axes do not broadcast.

    >>> fnp.dot(fnp.asarray([1.0, 2.0]), fnp.asarray([3.0, 4.0]))
    Array(11., dtype=float32)
    """
    x, y = operand_pair("dot", a, b)
    if not x.aval.ndim or not y.aval.ndim:
        return pointwise.mul(x, y)
    return tensordot(
        x, y, ([-1], [-min(y.aval.ndim, 2)]), precision=precision, preferred_element_type=preferred_element_type
    )


def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product of the flattened arrays, summed.

    >>> fnp.vdot(fnp.ones((2, 2)), fnp.ones((2, 2)))
    Array(4., dtype=float32)
    """
    x, y = [layout.reshape(v, (v.aval.size,)) for v in operand_pair("vdot", a, b)]
    return dot(x, y, precision=precision, preferred_element_type=preferred_element_type)


def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product over the last axes of both.

    >>> fnp.inner(fnp.ones((2, 3)), fnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    x, y = operand_pair("inner", a, b)
    if not x.aval.ndim or not y.aval.ndim:
        return pointwise.mul(x, y)
    return tensordot(x, y, ([-1], [-1]), precision=precision, preferred_element_type=preferred_element_type)


def tensordot(a: Any, b: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product summed over pairs of axes: the last n of a and the first n of b, or two lists of axes.

    >>> fnp.tensordot(fnp.ones((2, 3, 4)), fnp.ones((3, 4, 5))).shape
    (2, 5)
    """
    x, y = operand_pair("tensordot", a, b)
    m, n = x.aval.ndim, y.aval.ndim
    if isinstance(axes, int):
        if axes > min(m, n) or axes < 0:
            raise ShapeError(message("tensordot", f"axes must be at most {min(m, n)}", str(axes)))
        left, right = tuple(range(m - axes, m)), tuple(range(axes))
    else:
        left, right = [axis_tuple("tensordot", d, v.aval.ndim, sort=False) for d, v in zip(axes, (x, y), strict=True)]
    if [x.aval.shape[d] for d in left] != [y.aval.shape[d] for d in right]:
        got = f"{x.aval.shape} at {left} and {y.aval.shape} at {right}"
        raise ShapeError(
            message("tensordot", "summed axes must have equal sizes", got, "transpose one operand, or give axes=")
        )
    names = {d: ("sum", i) for i, d in enumerate(left)}
    others = {d: ("sum", i) for i, d in enumerate(right)}
    first = [names.get(d, ("left", d)) for d in range(m)]
    second = [others.get(d, ("right", d)) for d in range(n)]
    out = [v for v in (*first, *second) if v[0] != "sum"]
    return _product(
        "tensordot", [Term(x, tuple(first)), Term(y, tuple(second))], out, precision, preferred_element_type
    )


def outer(a: Any, b: Any, out: None = None) -> Any:
    """Return the products of all elements of a with all elements of b.

    >>> fnp.outer(fnp.asarray([1, 2]), fnp.asarray([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    x, y = [layout.reshape(v, (v.aval.size,)) for v in operand_pair("outer", a, b)]
    return tensordot(x, y, 0)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product along an axis, summed; the other axes broadcast.

    >>> fnp.vecdot(fnp.ones((2, 3)), fnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    x, y = [moveaxis(v, axis, -1) for v in operand_pair("vecdot", x1, x2)]
    if x.aval.shape[-1] != y.aval.shape[-1]:
        raise ShapeError(message("vecdot", "the axes must have equal sizes", f"{x.aval} and {y.aval}"))
    names = [[*range(v.aval.ndim - 1, 0, -1), "k"] for v in (x, y)]
    out = range(max(x.aval.ndim, y.aval.ndim) - 1, 0, -1)
    terms = [Term(v, tuple(n)) for v, n in zip((x, y), names, strict=True)]
    return _product("vecdot", terms, list(out), precision, preferred_element_type)


def matvec(x1: Any, x2: Any, /) -> Any:
    """Return the products of matrices and vectors; leading axes broadcast.

    >>> fnp.matvec(fnp.ones((2, 3)), fnp.ones((4, 3))).shape
    (4, 2)
    """
    x, y = operand_pair("matvec", x1, x2)
    return matmul(x, layout.expand(y, y.aval.ndim))[..., 0]


def vecmat(x1: Any, x2: Any, /) -> Any:
    """Return the products of vectors and matrices; leading axes broadcast.

    >>> fnp.vecmat(fnp.ones((4, 2)), fnp.ones((2, 3))).shape
    (4, 3)
    """
    x, y = operand_pair("vecmat", x1, x2)
    return matmul(layout.expand(x, x.aval.ndim - 1), y)[..., 0, :]


def kron(a: Any, b: Any) -> Any:
    """Return the Kronecker product: each element of a times the whole of b.

    >>> fnp.kron(fnp.asarray([1, 2]), fnp.asarray([1, 1]))
    Array([1, 1, 2, 2], dtype=int32)
    """
    x, y = operand_pair("kron", a, b)
    n = max(x.aval.ndim, y.aval.ndim)
    p, q = [(*(1,) * (n - v.aval.ndim), *v.aval.shape) for v in (x, y)]
    full = [k for pair in zip(p, q, strict=True) for k in pair]
    x = layout.broadcast(layout.reshape(x, p), full, range(0, 2 * n, 2)) if n else x
    y = layout.broadcast(layout.reshape(y, q), full, range(1, 2 * n, 2)) if n else y
    return layout.reshape(pointwise.mul(x, y), [i * j for i, j in zip(p, q, strict=True)])


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """Return the cross product of vectors of 2 or 3 components along an axis.

    >>> fnp.cross(fnp.asarray([1, 0, 0]), fnp.asarray([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = [moveaxis(v, d, -1) for v, d in zip(operand_pair("cross", a, b), (axisa, axisb), strict=True)]
    sizes = x.aval.shape[-1], y.aval.shape[-1]
    if any(n not in (2, 3) for n in sizes):
        raise ShapeError(message("cross", "vectors of 2 or 3 components are required", f"{x.aval} and {y.aval}"))
    u, v = [[_component(w, i) for i in range(w.aval.shape[-1])] for w in (x, y)]

    def difference(i: int, j: int) -> Any:
        """u[i] v[j] - u[j] v[i]; a missing component is 0."""
        parts = [
            pointwise.mul(*broadcast_args("cross", u[p], v[q])) if max(p - len(u), q - len(v)) < 0 else None
            for p, q in ((i, j), (j, i))
        ]
        if parts[1] is None:
            return parts[0]
        return pointwise.neg(parts[1]) if parts[0] is None else pointwise.sub(*parts)

    z = difference(0, 1)
    if sizes == (2, 2):
        return z
    components = broadcast_args("cross", difference(1, 2), difference(2, 0), z)
    out = layout.concatenate([layout.expand(c, c.aval.ndim) for c in components], components[0].aval.ndim)
    return moveaxis(out, -1, axisc)


def _component(x: Any, i: int) -> Any:
    return layout.reshape(layout.slice_along(x, x.aval.ndim - 1, i, i + 1), x.aval.shape[:-1])
