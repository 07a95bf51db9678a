"""Determinants and pseudo-inverses of stacks of matrices, by a kernel of the CPU or on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad.ir import Aval
from funcgrad.primitive import Arg, dataclass, example
from funcgrad.prims.layout import broadcast, reduce_sum
from funcgrad.prims.linalg import (
    GENERAL,
    GENERAL_STACK,
    ONE,
    MatrixPrimitive,
    each_matrix,
    inverse,
    matmul,
    turned,
    wide,
)
from funcgrad.prims.pointwise import add, mul, neg, sub
from funcgrad.trace import bind


# -- determinants ------------------------------------------------------------------------------------------------
def _over_matrices(v: Any, x: Any) -> Any:
    """One number for each matrix, repeated over x."""
    return broadcast(v, x.aval.shape, range(v.aval.ndim))


def _inner(x: Any, y: Any) -> Any:
    """The sum of products of the elements of each matrix."""
    n = x.aval.ndim
    return reduce_sum(mul(x, y), (n - 2, n - 1))


@dataclass(frozen=True)
class Det(MatrixPrimitive):
    """The determinant; its derivative is the matrix of cofactors, exact for singular matrices too."""

    name = "det"
    examples = [example(GENERAL), example(GENERAL_STACK), example(ONE), example("f32[2,0,0]")]

    def infer(self, *avals: Aval) -> Aval:
        self.check(*avals)
        return Aval(avals[0].shape[:-2], avals[0].dtype)

    def eval(self, *xs: Any) -> Any:
        return np.linalg.det(wide(xs[0]))

    def kernel(self) -> tuple[str, int]:
        return "det", 0

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: mul(_over_matrices(ct, xs[0]), bind(Cofactors(), xs[0]))]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return _inner(bind(Cofactors(), xs[0]), ts[0])


@dataclass(frozen=True)
class Cofactors(MatrixPrimitive):
    """det(A) A^-T, from a singular value decomposition, so that it exists for singular A; its derivative needs A^-1."""

    name = "cofactors"
    examples = [example(GENERAL), example(GENERAL_STACK), example(ONE)]

    def infer(self, *avals: Aval) -> Aval:
        self.check(*avals)
        return avals[0]

    def eval(self, *xs: Any) -> Any:
        a = wide(xs[0])
        if not a.size:
            return a
        u, s, vt = each_matrix(np.linalg.svd, a)
        others = np.repeat(s[..., None, :], s.shape[-1], axis=-2)
        index = np.arange(s.shape[-1])
        others[..., index, index] = 1
        sign = np.linalg.det(u) * np.linalg.det(vt)
        return sign[..., None, None] * np.matmul(u * np.prod(others, -1)[..., None, :], vt)

    def _change(self, out: Any, a: Any, t: Any) -> Any:
        """tr(A^-1 t) cof - A^-T t^T cof, which is its own transpose as a map of t."""
        inverse_t = turned(inverse(a))
        trace = _over_matrices(_inner(inverse_t, t), out)
        return sub(mul(trace, out), matmul(matmul(inverse_t, turned(t)), out))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: self._change(out, xs[0], ct)]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return self._change(out, xs[0], ts[0])


@dataclass(frozen=True)
class SlogDet(MatrixPrimitive):
    """The sign of the determinant and the logarithm of its absolute value."""

    name = "slogdet"
    multiple = True
    examples = [example(GENERAL), example(GENERAL_STACK), example(ONE), example("f32[2,0,0]")]

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        self.check(*avals)
        return (Aval(avals[0].shape[:-2], avals[0].dtype),) * 2

    def eval(self, *xs: Any) -> Any:
        return tuple(np.linalg.slogdet(wide(xs[0])))

    def kernel(self) -> tuple[str, int]:
        return "slogdet", 0

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        if ct[1] is None:
            return [None]
        return [lambda: mul(_over_matrices(ct[1], xs[0]), turned(inverse(xs[0])))]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return [None, _inner(turned(inverse(xs[0])), ts[0])]


@dataclass(frozen=True)
class Pinv(MatrixPrimitive):
    """The Moore-Penrose inverse; singular values up to ``rtol`` times the largest count as 0.

    The derivative holds where the rank is constant: Golub and Pereyra, "The differentiation of pseudo-inverses and
    nonlinear least squares problems whose variables separate", 1973, equation 4.12.
    """

    rtol: float
    name = "pinv"
    square = False
    examples = [
        example(Arg("f32[3,2]", values=[[1, 2], [-0.8, 0.3], [1.3, -0.4]]), rtol=1e-6),
        example(Arg("f32[2,3]", values=[[1, 2, 0.4], [-0.8, 0.3, 1]]), rtol=1e-6),
        example(GENERAL_STACK, rtol=1e-6),
    ]

    def infer(self, *avals: Aval) -> Aval:
        self.check(*avals)
        *lead, m, n = avals[0].shape
        return Aval((*lead, n, m), avals[0].dtype)

    def eval(self, *xs: Any) -> Any:
        a = wide(xs[0])
        if not a.size:
            return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]))
        return each_matrix(lambda x: np.linalg.pinv(x, rcond=self.rtol), a)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        def make() -> Any:
            a, p, c = xs[0], out, ct
            pt, cteed = turned(p), turned(c)
            first = neg(matmul(matmul(pt, c), pt))
            left = matmul(matmul(cteed, p), pt)
            second = sub(left, matmul(a, matmul(p, left)))
            right = matmul(matmul(pt, p), cteed)
            third = sub(right, matmul(matmul(right, p), a))
            return add(first, add(second, third))

        return [make]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        a, p, t = xs[0], out, ts[0]
        pt, tt = turned(p), turned(t)
        first = neg(matmul(matmul(p, t), p))
        left = matmul(matmul(p, pt), tt)
        second = sub(left, matmul(matmul(left, a), p))
        right = matmul(matmul(tt, pt), p)
        third = sub(right, matmul(p, matmul(a, right)))
        return add(first, add(second, third))
