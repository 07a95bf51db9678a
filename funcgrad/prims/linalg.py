"""Linear algebra on stacks of matrices: factors and solutions, by kernels of the CPU or on the host through LAPACK.

Matrices lie on the last two axes.  float32 data is computed in float64 and rounded once.  A matrix that the operation
cannot take (singular, not positive definite) gives NaN, as in JAX, and leaves the others of the stack alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import Arg, Primitive, accumulate, broadcast_leading, dataclass, example
from funcgrad.prims.contract import dot_general
from funcgrad.prims.layout import broadcast, expand, iota, reduce_sum, transpose
from funcgrad.prims.logic import compare
from funcgrad.prims.pointwise import add, mul, mul_nz, neg, select, sub
from funcgrad.trace import bind, bind_all

ACCEPTS = frozenset({dtypes.float32, dtypes.float64})


# -- matrices as values ------------------------------------------------------------------------------------------
def matmul(x: Any, y: Any) -> Any:
    """The matrix products of two stacks of one shape."""
    n = x.aval.ndim
    batch = tuple(range(n - 2))
    return dot_general(x, y, (n - 1,), (n - 2,), batch, batch)


def turned(x: Any) -> Any:
    """x with its matrices transposed."""
    n = x.aval.ndim
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def diagonal_mask(shape: Sequence[int], comparison: str = "eq") -> Any:
    """Where row compares to column in matrices of a shape: "eq" the diagonal, "gt" below it, "lt" above it."""
    n = len(shape)
    inner = shape[-2:]
    mask = compare(comparison, iota(inner, 0, dtypes.int32), iota(inner, 1, dtypes.int32))
    return broadcast(mask, shape, (n - 2, n - 1))


def keep(x: Any, *comparisons: str) -> Any:
    """x with zeros but where row compares to column by one of ``comparisons``."""
    zero = Literal(0, x.aval.dtype)
    out: Any = zero
    for c in comparisons:
        out = select(diagonal_mask(x.aval.shape, c), x, out)
    return out


def lower_half(x: Any) -> Any:
    """The lower triangle with half the diagonal."""
    return select(diagonal_mask(x.aval.shape), mul(x, 0.5), keep(x, "gt"))


def symmetric(x: Any) -> Any:
    """The symmetric part."""
    return mul(add(x, turned(x)), 0.5)


def as_diagonal(v: Any) -> Any:
    """Diagonal matrices of vectors on the last axis."""
    shape = (*v.aval.shape, v.aval.shape[-1])
    wide = broadcast(v, shape, range(v.aval.ndim))
    return select(diagonal_mask(shape), wide, Literal(0, v.aval.dtype))


def diagonal_of(x: Any) -> Any:
    """The diagonals of square matrices."""
    return reduce_sum(keep(x, "eq"), (x.aval.ndim - 1,))


def scale_columns(x: Any, v: Any) -> Any:
    """x times the diagonal matrix of v."""
    n = x.aval.ndim
    return mul_nz(x, broadcast(v, x.aval.shape, (*range(n - 2), n - 1)))


def scale_rows(v: Any, x: Any) -> Any:
    """The diagonal matrix of v times x."""
    n = x.aval.ndim
    return mul_nz(x, broadcast(v, x.aval.shape, range(n - 1)))


def minus_projection(x: Any, q: Any) -> Any:
    """x minus its projection onto the columns of q."""
    return sub(x, matmul(q, matmul(turned(q), x)))


# -- the base ----------------------------------------------------------------------------------------------------
def each_matrix(fn: Callable[..., Any], *xs: Any) -> Any:
    """Call a numpy function on stacks; where it fails, on one matrix after another, NaN for those that fail."""
    try:
        return fn(*xs)
    except np.linalg.LinAlgError:
        pass
    if xs[0].ndim == 2:
        one = fn(*[np.stack([np.eye(*x.shape[-2:], dtype=x.dtype)])[0] for x in xs])
        return tuple([np.full_like(o, np.nan) for o in one]) if isinstance(one, tuple) else np.full_like(one, np.nan)
    parts = [each_matrix(fn, *[x[i] for x in xs]) for i in range(xs[0].shape[0])]
    if isinstance(parts[0], tuple):
        return tuple([np.stack(p) for p in zip(*parts, strict=True)])
    return np.stack(parts)


def wide(x: Any) -> Any:
    """float32 data as float64."""
    return np.asarray(x, np.float64)


class MatrixPrimitive(Primitive):
    """An operation on stacks of matrices: leading axes are independent, so that batching adds one."""

    square = True

    def check(self, *avals: Aval) -> None:
        """Raise unless all operands are stacks of float32 or float64 matrices over the same leading axes."""
        for x in avals:
            if x.dtype not in ACCEPTS or x.dtype != avals[0].dtype:
                raise self.dtype_error("float32 is required", *avals, way_out="convert with astype(float)")
            if x.ndim < 2 or x.shape[:-2] != avals[0].shape[:-2]:
                raise self.shape_error("matrices with the same leading axes are required", *avals)
        if self.square and avals[0].shape[-1] != avals[0].shape[-2]:
            raise self.shape_error("square matrices are required", avals[0])

    def check_solution(self, a: Aval, b: Aval) -> Aval:
        """The type of x with a x = b."""
        self.check(a, b)
        if a.shape[-1] != b.shape[-2]:
            raise self.shape_error("the matrix must have as many rows as the right-hand side", a, b)
        return b

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        ys = [x if m else broadcast_leading(x, size) for m, x in zip(mapped, xs, strict=True)]
        outs = bind_all(self, *ys)
        return (outs, [True] * len(outs)) if self.multiple else (outs[0], True)

    def kernel(self) -> tuple[str, int] | None:
        """The name and the flags of the kernel that computes this where a device has one."""
        return None

    def lower(self, g: Any, *xs: Any) -> Any:
        avals, kernel, outs = self.infer_all(*[x.aval for x in xs]), self.kernel(), None
        if kernel is not None and hasattr(g, "matrix"):
            outs = g.matrix(*kernel, xs, avals)
        if outs is None:
            outs = g.host(self.evaluate, xs, avals)
        return outs if self.multiple else outs[0]


SPD = Arg("f32[3,3]", values=[[4, 1, 0.5], [0.8, 3, -0.2], [0.3, -0.4, 2]])
SPD_STACK = Arg("f32[2,2,2]", values=[[[4, 1], [0.5, 3]], [[2, -0.7], [0.1, 5]]])
GENERAL = Arg("f32[3,3]", values=[[1, 2, 0.5], [-0.8, 0.3, 2], [1.3, -0.4, -1]])
GENERAL_STACK = Arg("f32[2,2,2]", values=[[[1, -2], [0.5, 3]], [[2, 0.7], [-1.1, 0.5]]])
ONE = Arg("f32[1,1]", values=[[2.5]])


@dataclass(frozen=True)
class Cholesky(MatrixPrimitive):
    """The lower factor L of the symmetric part of a positive definite matrix, L L^T; NaN for any other.

    Derivatives: Murray, "Differentiation of the Cholesky decomposition", 2016.
    """

    name = "cholesky"
    examples = [example(SPD), example(SPD_STACK), example(ONE), example("f32[0,2,2]"), example("f32[2,0,0]")]

    def infer(self, *avals: Aval) -> Aval:
        self.check(*avals)
        return avals[0]

    def eval(self, *xs: Any) -> Any:
        a = wide(xs[0])
        if not a.size:
            return a
        return each_matrix(np.linalg.cholesky, (a + np.swapaxes(a, -1, -2)) / 2)

    def kernel(self) -> tuple[str, int]:
        return "cholesky", 0

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        def make() -> Any:
            inner = lower_half(matmul(turned(out), keep(ct, "gt", "eq")))
            left = triangular_solve(out, inner, transposed=True)
            return symmetric(turned(triangular_solve(out, turned(left), transposed=True)))

        return [make]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        half = triangular_solve(out, symmetric(ts[0]))
        return matmul(out, lower_half(triangular_solve(out, turned(half))))


@dataclass(frozen=True)
class TriangularSolve(MatrixPrimitive):
    """x with A x = b (or A^T x = b), A the lower or upper triangle of a, with ones on its diagonal if ``unit``."""

    lower_triangle: bool
    transposed: bool
    unit: bool
    name = "triangular_solve"
    examples = [
        example(SPD, "f32[3,2]", lower_triangle=lower, transposed=t, unit=unit)
        for lower, t, unit in ((True, False, False), (True, True, False), (False, False, True), (False, True, False))
    ] + [example(SPD_STACK, "f32[2,2,1]", lower_triangle=True, transposed=False, unit=False)]

    def infer(self, *avals: Aval) -> Aval:
        return self.check_solution(*avals)

    def eval(self, *xs: Any) -> Any:
        a, b = map(wide, xs)
        n = a.shape[-1]
        if self.transposed:
            a = np.swapaxes(a, -1, -2)
        forward = self.lower_triangle != self.transposed
        x = np.zeros(b.shape)
        for i in range(n) if forward else range(n - 1, -1, -1):
            done = slice(0, i) if forward else slice(i + 1, n)
            rest = b[..., i : i + 1, :] - np.matmul(a[..., i : i + 1, done], x[..., done, :])
            x[..., i : i + 1, :] = rest if self.unit else rest / a[..., i : i + 1, i : i + 1]
        return x

    def kernel(self) -> tuple[str, int]:
        return "triangular_solve", self.lower_triangle + 2 * self.transposed + 4 * self.unit

    def _triangle(self, x: Any) -> Any:
        return keep(x, "gt" if self.lower_triangle else "lt", *(() if self.unit else ("eq",)))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        a = xs[0]
        back = TriangularSolve(self.lower_triangle, not self.transposed, self.unit)

        def by_a() -> Any:
            by_b = bind(back, a, ct)
            pair = (out, turned(by_b)) if self.transposed else (by_b, turned(out))
            return neg(self._triangle(matmul(*pair)))

        return [by_a, lambda: bind(back, a, ct)]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        (ta, tb), total = ts, None
        if ta is not None:
            change = self._triangle(ta)
            total = neg(matmul(turned(change) if self.transposed else change, out))
        return bind(self, xs[0], accumulate(total, tb))


@dataclass(frozen=True)
class Solve(MatrixPrimitive):
    """x with a x = b for square a."""

    name = "solve"
    examples = [example(GENERAL, "f32[3,2]"), example(GENERAL_STACK, "f32[2,2,1]"), example(ONE, "f32[1,3]")]

    def infer(self, *avals: Aval) -> Aval:
        return self.check_solution(*avals)

    def eval(self, *xs: Any) -> Any:
        a, b = map(wide, xs)
        return each_matrix(np.linalg.solve, a, b) if b.size else np.zeros(b.shape)

    def kernel(self) -> tuple[str, int]:
        return "solve", 0

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        a = xs[0]
        return [
            lambda: neg(matmul(bind(self, turned(a), ct), turned(out))),
            lambda: bind(self, turned(a), ct),
        ]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        ta, tb = ts
        total = None if ta is None else neg(matmul(ta, out))
        return bind(self, xs[0], accumulate(total, tb))


# -- the operations as functions ---------------------------------------------------------------------------------
def triangular_solve(a: Any, b: Any, lower: bool = True, transposed: bool = False, unit: bool = False) -> Any:
    """x with A x = b (or A^T x = b) for a triangle A of a."""
    return bind(TriangularSolve(lower, transposed, unit), a, b)


def identity_like(a: Any) -> Any:
    """Identity matrices of the shape of a."""
    return select(diagonal_mask(a.aval.shape), Literal(1, a.aval.dtype), Literal(0, a.aval.dtype))


def inverse(a: Any) -> Any:
    """The inverses of square matrices."""
    return bind(Solve(), a, identity_like(a))


def column(v: Any) -> Any:
    """Vectors on the last axis as matrices of one column."""
    return expand(v, v.aval.ndim)
