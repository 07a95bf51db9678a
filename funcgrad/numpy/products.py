"""Matrix products and what is made of them: dot, tensordot, outer, kron, cross, convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.einsum import Term, contract_terms
from funcgrad.numpy.manipulation import moveaxis
from funcgrad.numpy.precision import resolve_precision
from funcgrad.numpy.promotion import axis_index, axis_tuple, broadcast_args, cast, dense, is_bool, promote_args, result_dtype
from funcgrad.prims import contract, layout, pointwise
from funcgrad.trace import Value


def _pair(name: str, a: Any, b: Any) -> list[Any]:
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
    x, y = _pair("matmul", a, b)
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
    _check_batch(x.aval.shape[: max(m - 2, 0)], y.aval.shape[: max(n - 2, 0)])
    out = [*batch, *["i"][: m - 1], *["j"][: n - 1]]
    return _product("matmul", [Term(x, tuple(left)), Term(y, tuple(right))], out, precision, preferred_element_type)


def _check_batch(a: Sequence[int], b: Sequence[int]) -> None:
    for n, k in zip(a[::-1], b[::-1], strict=False):
        if n != k and 1 not in (n, k):
            raise ShapeError(message("matmul", "leading axes must be equal or 1", f"{tuple(a)} and {tuple(b)}"))


def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product over the last axis of a and the second to last of b; other axes do not broadcast.

    >>> fnp.dot(fnp.asarray([1.0, 2.0]), fnp.asarray([3.0, 4.0]))
    Array(11., dtype=float32)
    """
    x, y = _pair("dot", a, b)
    if not x.aval.ndim or not y.aval.ndim:
        return pointwise.mul(x, y)
    return tensordot(x, y, ([-1], [-min(y.aval.ndim, 2)]), precision=precision, preferred_element_type=preferred_element_type)


def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product of the flattened arrays, summed.

    >>> fnp.vdot(fnp.ones((2, 2)), fnp.ones((2, 2)))
    Array(4., dtype=float32)
    """
    x, y = [layout.reshape(v, (v.aval.size,)) for v in _pair("vdot", a, b)]
    return dot(x, y, precision=precision, preferred_element_type=preferred_element_type)


def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product over the last axes of both.

    >>> fnp.inner(fnp.ones((2, 3)), fnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    x, y = _pair("inner", a, b)
    if not x.aval.ndim or not y.aval.ndim:
        return pointwise.mul(x, y)
    return tensordot(x, y, ([-1], [-1]), precision=precision, preferred_element_type=preferred_element_type)


def tensordot(a: Any, b: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product summed over pairs of axes: the last n of a and the first n of b, or two lists of axes.

    >>> fnp.tensordot(fnp.ones((2, 3, 4)), fnp.ones((3, 4, 5))).shape
    (2, 5)
    """
    x, y = _pair("tensordot", a, b)
    m, n = x.aval.ndim, y.aval.ndim
    if isinstance(axes, int):
        if axes > min(m, n) or axes < 0:
            raise ShapeError(message("tensordot", f"axes must be at most {min(m, n)}", str(axes)))
        left, right = tuple(range(m - axes, m)), tuple(range(axes))
    else:
        left, right = [axis_tuple("tensordot", d, v.aval.ndim, sort=False) for d, v in zip(axes, (x, y), strict=True)]
    if [x.aval.shape[d] for d in left] != [y.aval.shape[d] for d in right]:
        got = f"{x.aval.shape} at {left} and {y.aval.shape} at {right}"
        raise ShapeError(message("tensordot", "summed axes must have equal sizes", got))
    names = {d: ("sum", i) for i, d in enumerate(left)}
    others = {d: ("sum", i) for i, d in enumerate(right)}
    first = [names.get(d, ("left", d)) for d in range(m)]
    second = [others.get(d, ("right", d)) for d in range(n)]
    out = [v for v in (*first, *second) if v[0] != "sum"]
    return _product("tensordot", [Term(x, tuple(first)), Term(y, tuple(second))], out, precision, preferred_element_type)


def outer(a: Any, b: Any, out: None = None) -> Any:
    """Return the products of all elements of a with all elements of b.

    >>> fnp.outer(fnp.asarray([1, 2]), fnp.asarray([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    x, y = [layout.reshape(v, (v.aval.size,)) for v in _pair("outer", a, b)]
    return tensordot(x, y, 0)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product along an axis, summed; the other axes broadcast.

    >>> fnp.vecdot(fnp.ones((2, 3)), fnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    x, y = [moveaxis(v, axis, -1) for v in _pair("vecdot", x1, x2)]
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
    x, y = _pair("matvec", x1, x2)
    return matmul(x, layout.expand(y, y.aval.ndim))[..., 0]


def vecmat(x1: Any, x2: Any, /) -> Any:
    """Return the products of vectors and matrices; leading axes broadcast.

    >>> fnp.vecmat(fnp.ones((4, 2)), fnp.ones((2, 3))).shape
    (4, 3)
    """
    x, y = _pair("vecmat", x1, x2)
    return matmul(layout.expand(x, x.aval.ndim - 1), y)[..., 0, :]


def kron(a: Any, b: Any) -> Any:
    """Return the Kronecker product: each element of a times the whole of b.

    >>> fnp.kron(fnp.asarray([1, 2]), fnp.asarray([1, 1]))
    Array([1, 1, 2, 2], dtype=int32)
    """
    x, y = _pair("kron", a, b)
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
    x, y = [moveaxis(v, d, -1) for v, d in zip(_pair("cross", a, b), (axisa, axisb), strict=True)]
    sizes = x.aval.shape[-1], y.aval.shape[-1]
    if any(n not in (2, 3) for n in sizes):
        raise ShapeError(message("cross", "vectors of 2 or 3 components are required", f"{x.aval} and {y.aval}"))
    u, v = [[_component(w, i) for i in range(w.aval.shape[-1])] for w in (x, y)]

    def difference(i: int, j: int) -> Any:
        """u[i] v[j] - u[j] v[i]; a missing component is 0."""
        parts = [pointwise.mul(*broadcast_args("cross", u[p], v[q])) if max(p - len(u), q - len(v)) < 0 else None for p, q in ((i, j), (j, i))]
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


# -- convolution -------------------------------------------------------------------------------------------------
def _convolve(name: str, x: Any, kernel: Any, mode: str, precision: Any) -> Any:
    """Sliding products of x with a kernel that is no longer than x, as numpy's modes cut them."""
    n, k = x.aval.size, kernel.aval.size
    if mode not in ("full", "same", "valid"):
        raise ValueError(message(name, 'mode must be "full", "same" or "valid"', repr(mode)))
    pads = {"full": (k - 1, k - 1), "valid": (0, 0), "same": (k // 2, k - 1 - k // 2)}
    boolean = is_bool(x)
    if boolean:
        x, kernel = cast(x, dtypes.int32), cast(kernel, dtypes.int32)
    prim = contract.Conv((1,), (pads[mode],), (1,), (1,))
    resolve_precision(name, precision)
    out = contract.conv(layout.reshape(x, (1, n, 1)), layout.reshape(kernel, (k, 1, 1)), prim)
    out = layout.reshape(out, (out.aval.size,))
    return cast(out, dtypes.bool_) if boolean else out


def _vectors(name: str, a: Any, v: Any) -> list[Any]:
    xs = _pair(name, a, v)
    if any(x.aval.ndim != 1 or not x.aval.size for x in xs):
        raise ShapeError(message(name, "two vectors with elements are required", f"{xs[0].aval} and {xs[1].aval}"))
    return xs


def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the convolution of two vectors: "full", "same" (as long as the longer) or "valid" (complete overlap).

    >>> fnp.convolve(fnp.asarray([1.0, 2.0]), fnp.asarray([1.0, 1.0]))
    Array([1., 3., 2.], dtype=float32)
    """
    x, kernel = _vectors("convolve", a, v)
    if x.aval.size < kernel.aval.size:
        x, kernel = kernel, x
    out = _convolve("convolve", x, layout.reverse(kernel, (0,)), mode, precision)
    return out if preferred_element_type is None else cast(out, result_dtype(preferred_element_type, None))


def correlate(a: Any, v: Any, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the sliding products of a with v: the element for shift k is sum(a[n + k] * v[n]).

    >>> fnp.correlate(fnp.asarray([1.0, 2.0, 3.0]), fnp.asarray([0.0, 1.0]))
    Array([2., 3.], dtype=float32)
    """
    x, kernel = _vectors("correlate", a, v)
    swap = x.aval.size < kernel.aval.size
    out = _convolve("correlate", kernel, x, mode, precision) if swap else _convolve("correlate", x, kernel, mode, precision)
    out = layout.reverse(out, (0,)) if swap else out
    return out if preferred_element_type is None else cast(out, result_dtype(preferred_element_type, None))


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    """Return the sum along a diagonal of two axes.

    >>> fnp.trace(fnp.asarray([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    d = diagonal(a, offset, axis1, axis2)
    d = cast(d, result_dtype(dtype, dtypes.int32 if is_bool(d) else d.aval.dtype))
    return layout.reduce_sum(d, (d.aval.ndim - 1,))


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the elements on a diagonal of two axes, along a new last axis.

    >>> fnp.diagonal(fnp.asarray([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    (x,) = [dense(v) for v in promote_args("diagonal", a)]
    ndim = x.aval.ndim
    if ndim < 2:
        raise ShapeError(message("diagonal", "at least two axes are required", str(x.aval)))
    i, j = axis_index("diagonal", axis1, ndim), axis_index("diagonal", axis2, ndim)
    if i == j:
        raise ShapeError(message("diagonal", "the axes must be different", f"{axis1} and {axis2}"))
    rest = [d for d in range(ndim) if d not in (i, j)]
    x = layout.transpose(x, (*rest, i, j))
    *lead, m, n = x.aval.shape
    size = max(0, min(m + min(offset, 0), n - max(offset, 0)))
    if not size:
        return layout.reshape(layout.slice_along(layout.reshape(x, (*lead, m * n)), len(lead), 0, 0), (*lead, 0))
    start = offset if offset >= 0 else -offset * n
    flat = layout.reshape(x, (*lead, m * n))
    low, high = [0] * len(lead) + [start], [*lead, start + (size - 1) * (n + 1) + 1]
    return layout.slice_(flat, low, high, [1] * len(lead) + [n + 1])


def diag(v: Any, k: int = 0) -> Any:
    """Return a matrix with a vector on diagonal k, or that diagonal of a matrix.

    >>> fnp.diag(fnp.asarray([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    (x,) = [dense(w) for w in promote_args("diag", v)]
    if x.aval.ndim == 2:
        return diagonal(x, k)
    if x.aval.ndim != 1:
        raise ShapeError(message("diag", "a vector or a matrix is required", str(x.aval)))
    n = x.aval.size
    if not n:
        side = abs(k)
        return layout.broadcast(cast(dense(promote_args("diag", 0)[0]), x.aval.dtype), (side, side), ())
    # n elements with n gaps between neighbours fill the diagonal of an n by n matrix, row by row.
    square = layout.reshape(layout.pad(x, 0, (0,), (0,), (n,)), (n, n))
    return layout.pad(square, 0, (max(-k, 0), max(k, 0)), (max(k, 0), max(-k, 0)), (0, 0))


def diagflat(v: Any, k: int = 0) -> Any:
    """Return a matrix with the flattened array on diagonal k.

    >>> fnp.diagflat(fnp.asarray([[1, 2]]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    (x,) = [dense(w) for w in promote_args("diagflat", v)]
    return diag(layout.reshape(x, (math.prod(x.aval.shape),)), k)
