"""Orthogonal factorisations of stacks of matrices, on the host through LAPACK: QR, eigenvalues, singular values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad.errors import MissingRule, message
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import Arg, accumulate, dataclass, example
from funcgrad.prims.layout import broadcast
from funcgrad.prims.linalg import (
    GENERAL,
    GENERAL_STACK,
    ONE,
    SPD,
    SPD_STACK,
    MatrixPrimitive,
    as_diagonal,
    diagonal_of,
    each_matrix,
    keep,
    matmul,
    minus_projection,
    scale_columns,
    scale_rows,
    symmetric,
    triangular_solve,
    turned,
    wide,
)
from funcgrad.prims.logic import compare
from funcgrad.prims.pointwise import add, div, div_nz, mul, mul_nz, select, square, sub

TALL = Arg("f32[3,2]", values=[[1, 2], [-0.8, 0.3], [1.3, -0.4]])
FLAT = Arg("f32[2,3]", values=[[1, 2, 0.4], [-0.8, 0.3, 1]])


def _sum(*terms: Any) -> Any:
    total = None
    for t in terms:
        total = accumulate(total, t)
    return total


# -- QR ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class QR(MatrixPrimitive):
    """Q with orthonormal columns and an upper triangle R with Q R = a, for matrices of full rank with rows >= columns.

    ``full`` gives a square Q, without derivatives unless a is square.  Derivatives: Walter and Lehmann, "Algorithmic
    differentiation of linear algebra functions", 2010.
    """

    full: bool
    name = "qr"
    multiple = True
    square = False
    examples = [
        *[example(a, full=False) for a in (TALL, GENERAL, GENERAL_STACK, ONE)],
        example(GENERAL, full=True),
        example(Arg("f32[0,3,2]"), full=False),
    ]

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        self.check(*avals)
        *lead, m, n = avals[0].shape
        k = m if self.full else min(m, n)
        return Aval((*lead, m, k), avals[0].dtype), Aval((*lead, k, n), avals[0].dtype)

    def eval(self, *xs: Any) -> Any:
        a = wide(xs[0])
        if not a.size:
            return [np.zeros(v.shape) for v in self.infer(Aval(a.shape, a.dtype))]
        return tuple(np.linalg.qr(a, "complete" if self.full else "reduced"))

    def _check_derivative(self, a: Any) -> None:
        m, n = a.aval.shape[-2:]
        if (self.full and m != n) or m < n:
            way_out = 'use mode="reduced"' if self.full else "factor the leading columns"
            raise MissingRule(
                message("qr", "has derivatives for rows >= columns and a reduced Q", str(a.aval), way_out)
            )

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        self._check_derivative(xs[0])
        (ct_q, ct_r), (q, r) = ct, out

        def make() -> Any:
            by_r = None if ct_r is None else matmul(r, turned(keep(ct_r, "lt", "eq")))
            by_q = None if ct_q is None else mul(matmul(turned(ct_q), q), -1.0)
            m = _sum(by_r, by_q)
            copied = add(keep(m, "gt", "eq"), turned(keep(m, "gt")))
            total = _sum(ct_q, matmul(q, copied))
            # times R^-T: the transpose of R^-1 times the transpose
            return turned(triangular_solve(r, turned(total), lower=False))

        return [make]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        self._check_derivative(xs[0])
        q, r = out
        x = turned(triangular_solve(r, turned(ts[0]), lower=False, transposed=True))
        inner = matmul(turned(q), x)
        below = keep(inner, "gt")
        turn = sub(below, turned(below))
        return [add(matmul(q, sub(turn, inner)), x), matmul(sub(inner, turn), r)]


# -- eigenvalues -------------------------------------------------------------------------------------------------
def _gaps(left: Any, right: Any) -> Any:
    """1 / (right_j - left_i), 0 where they are equal."""
    n = left.aval.ndim
    shape = (*left.aval.shape, left.aval.shape[-1])
    gap = sub(broadcast(right, shape, (*range(n - 1), n)), broadcast(left, shape, range(n)))
    same = compare("eq", gap, 0)
    return select(same, Literal(0, gap.aval.dtype), div(1.0, select(same, Literal(1, gap.aval.dtype), gap)))


@dataclass(frozen=True)
class Eigh(MatrixPrimitive):
    """Eigenvalues in ascending order, and eigenvectors as columns, of the symmetric part of a matrix.

    Vectors of one eigenvalue may turn among themselves; derivatives leave such turns out, which is exact for every
    function that does not depend on them.  Derivatives: Giles, "Collected matrix derivative results", 2008.
    """

    name = "eigh"
    multiple = True
    examples = [example(SPD), example(SPD_STACK), example(ONE), example("f32[0,2,2]")]

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        self.check(*avals)
        return Aval(avals[0].shape[:-1], avals[0].dtype), avals[0]

    def eval(self, *xs: Any) -> Any:
        a = wide(xs[0])
        if not a.size:
            return np.zeros(a.shape[:-1]), a
        return tuple(each_matrix(lambda x: tuple(np.linalg.eigh(x)), (a + np.swapaxes(a, -1, -2)) / 2))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        (ct_w, ct_v), (w, v) = ct, out

        def make() -> Any:
            by_w = None if ct_w is None else as_diagonal(ct_w)
            by_v = None if ct_v is None else mul_nz(_gaps(w, w), matmul(turned(v), ct_v))
            return symmetric(matmul(matmul(v, _sum(by_w, by_v)), turned(v)))

        return [make]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        w, v = out
        inner = matmul(matmul(turned(v), symmetric(ts[0])), v)
        return [diagonal_of(inner), matmul(v, mul_nz(_gaps(w, w), inner))]


# -- singular values ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SVD(MatrixPrimitive):
    """U, singular values in descending order, and V^T with U diag(s) V^T = a.

    ``full`` gives square U and V, without derivatives unless a is square.  Derivatives: Townsend, "Differentiating the
    singular value decomposition", 2016; turns among vectors of equal singular values are left out, as for eigenvectors.
    """

    full: bool
    name = "svd"
    multiple = True
    square = False
    examples = [
        *[example(a, full=False) for a in (TALL, FLAT, GENERAL, GENERAL_STACK, ONE)],
        example(GENERAL, full=True),
        example(Arg("f32[0,3,2]"), full=False),
    ]

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        self.check(*avals)
        *lead, m, n = avals[0].shape
        k = min(m, n)
        left, right = ((m, m), (n, n)) if self.full else ((m, k), (k, n))
        dtype = avals[0].dtype
        return Aval((*lead, *left), dtype), Aval((*lead, k), dtype), Aval((*lead, *right), dtype)

    def eval(self, *xs: Any) -> Any:
        a = wide(xs[0])
        if not a.size:
            return [np.zeros(v.shape) for v in self.infer(Aval(a.shape, a.dtype))]
        return each_matrix(lambda x: tuple(np.linalg.svd(x, full_matrices=self.full)), a)

    def _check_derivative(self, a: Any) -> None:
        m, n = a.aval.shape[-2:]
        if self.full and m != n:
            way_out = "use full_matrices=False"
            raise MissingRule(message("svd", "has derivatives for reduced U and V only", str(a.aval), way_out))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        self._check_derivative(xs[0])
        (ct_u, ct_s, ct_vt), (u, s, vt) = ct, out
        v = turned(vt)
        m, n = xs[0].aval.shape[-2:]
        gaps = _gaps(square(s), square(s))

        def skew(c: Any, q: Any) -> Any:
            inner = matmul(turned(q), c)
            return mul_nz(gaps, sub(inner, turned(inner)))

        def over_s(x: Any) -> Any:
            return div_nz(x, broadcast(s, x.aval.shape, (*range(x.aval.ndim - 2), x.aval.ndim - 1)))

        def make() -> Any:
            core = None if ct_s is None else as_diagonal(ct_s)
            if ct_u is not None:
                core = accumulate(core, scale_columns(skew(ct_u, u), s))
            ct_v = None if ct_vt is None else turned(ct_vt)
            if ct_v is not None:
                core = accumulate(core, scale_rows(s, skew(ct_v, v)))
            total = matmul(matmul(u, core), vt)
            if ct_u is not None and m > n:
                total = add(total, matmul(over_s(minus_projection(ct_u, u)), vt))
            if ct_v is not None and n > m:
                total = add(total, matmul(u, turned(over_s(minus_projection(ct_v, v)))))
            return total

        return [make]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        self._check_derivative(xs[0])
        u, s, vt = out
        v, t = turned(vt), ts[0]
        m, n = xs[0].aval.shape[-2:]
        inner = matmul(matmul(turned(u), t), v)
        gaps = _gaps(square(s), square(s))
        right, left = scale_columns(inner, s), scale_rows(s, inner)
        t_u = matmul(u, mul_nz(gaps, add(right, turned(right))))
        t_v = matmul(v, mul_nz(gaps, add(left, turned(left))))
        if m > n:
            rest = minus_projection(matmul(t, v), u)
            t_u = add(
                t_u, div_nz(rest, broadcast(s, rest.aval.shape, (*range(rest.aval.ndim - 2), rest.aval.ndim - 1)))
            )
        if n > m:
            rest = minus_projection(matmul(turned(t), u), v)
            t_v = add(
                t_v, div_nz(rest, broadcast(s, rest.aval.shape, (*range(rest.aval.ndim - 2), rest.aval.ndim - 1)))
            )
        return [t_u, diagonal_of(inner), turned(t_v)]
