"""Iterative solvers of linear systems, with the names of ``jax.scipy.sparse.linalg``.

The operator is a matrix or a function of a tree of arrays; it may close over what has gradients.  Derivatives are
further solves (:func:`funcgrad.lax.custom_linear_solve`), so they cost no memory per iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from funcgrad import lax, tree
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, TreeError, message
from funcgrad.tree_util import Partial

__all__ = ["bicgstab", "cg", "gmres"]

Operator = Callable[[Any], Any]


def _operator(name: str, A: Any, b: Any) -> Operator:
    if callable(A):
        operator: Operator = A
        return operator
    matrix = fnp.asarray(A)
    shape = getattr(b, "shape", None)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or shape is None or shape[:1] != matrix.shape[:1]:
        requirement = "A must be a function or a square matrix of b's size"
        raise ShapeError(message(name, requirement, f"shapes {matrix.shape} and {shape}"))
    return Partial(fnp.matmul, matrix)


def _vdot(x: Any, y: Any) -> Any:
    return sum(fnp.vdot(u, v) for u, v in zip(tree.leaves(x), tree.leaves(y), strict=True))


def _plus(x: Any, scale: Any, y: Any) -> Any:
    """x + scale * y."""
    return tree.map(lambda u, v: u + scale * v, x, y)


def _minus(x: Any, y: Any) -> Any:
    return tree.map(lambda u, v: u - v, x, y)


def _ratio(x: Any, y: Any) -> Any:
    """x / y, and 0 where y is 0: a solver that has found the solution stays there."""
    return fnp.where(y == 0, 0.0, x / fnp.where(y == 0, 1.0, y))


def _prepared(name: str, A: Any, b: Any, x0: Any, maxiter: int | None, M: Any) -> tuple[Any, Any, Any, Operator, int]:
    b = tree.map(lambda v: fnp.asarray(v, dtype=fnp.result_type(v, fnp.float32)), b)
    start = tree.map(fnp.zeros_like, b) if x0 is None else tree.map(lambda v: lax.stop_gradient(fnp.asarray(v)), x0)
    if tree.structure(start) != tree.structure(b):
        raise TreeError(message(name, "x0 must have the structure of b", str(tree.structure(start))))
    if any(u.shape != v.shape for u, v in zip(tree.leaves(start), tree.leaves(b), strict=True)):
        raise ShapeError(message(name, "x0 must have the shapes of b", str([v.shape for v in tree.leaves(start)])))
    size = sum(v.size for v in tree.leaves(b))
    preconditioner = (lambda x: x) if M is None else _operator(name, M, b)
    return _operator(name, A, b), b, start, preconditioner, 10 * size if maxiter is None else int(maxiter)


def _limit(b: Any, tol: float, atol: float) -> Any:
    """The squared norm of the residual at which the solution is good enough."""
    return fnp.maximum(fnp.square(tol) * _vdot(b, b), fnp.square(atol))


def _cg(matvec: Operator, b: Any, start: Any, M: Operator, tol: float, atol: float, maxiter: int) -> Any:
    limit = _limit(b, tol, atol)
    r = _minus(b, matvec(start))
    z = M(r)
    state = (start, r, z, _vdot(r, z), 0)

    def go_on(s: Any) -> Any:
        return (_vdot(s[1], s[1]) > limit) & (s[4] < maxiter)

    def step(s: Any) -> Any:
        x, r, p, rz, k = s
        ap = matvec(p)
        alpha = _ratio(rz, _vdot(p, ap))
        r = _plus(r, -alpha, ap)
        z = M(r)
        new = _vdot(r, z)
        return _plus(x, alpha, p), r, _plus(z, _ratio(new, rz), p), new, k + 1

    return lax.while_loop(go_on, step, state)[0]


def _bicgstab(matvec: Operator, b: Any, start: Any, M: Operator, tol: float, atol: float, maxiter: int) -> Any:
    limit = _limit(b, tol, atol)
    r = _minus(b, matvec(start))
    shadow, one = r, fnp.ones_like(_vdot(r, r))
    state = (start, r, tree.map(fnp.zeros_like, r), tree.map(fnp.zeros_like, r), one, one, one, 0)

    def go_on(s: Any) -> Any:
        # A breakdown (rho or omega exactly 0) ends the loop with what has been found.
        return (_vdot(s[1], s[1]) > limit) & (s[7] < maxiter) & (s[4] != 0) & (s[6] != 0)

    def step(s: Any) -> Any:
        x, r, p, v, rho, alpha, omega, k = s
        new = _vdot(shadow, r)
        p = _plus(r, _ratio(new, rho) * _ratio(alpha, omega), _plus(p, -omega, v))
        p_hat = M(p)
        v = matvec(p_hat)
        alpha = _ratio(new, _vdot(shadow, v))
        half = _plus(r, -alpha, v)
        half_hat = M(half)
        t = matvec(half_hat)
        omega = _ratio(_vdot(t, half), _vdot(t, t))
        found = _vdot(half, half) < limit
        omega = fnp.where(found, fnp.where(omega == 0, 1.0, omega), omega)
        x = _plus(_plus(x, alpha, p_hat), fnp.where(found, 0.0, omega), half_hat)
        return x, _plus(half, fnp.where(found, 0.0, -omega), t), p, v, new, alpha, omega, k + 1

    return lax.while_loop(go_on, step, state)[0]


def _gmres(
    matvec: Operator, b: Any, start: Any, M: Operator, tol: float, atol: float, maxiter: int, restart: int
) -> Any:
    """Saad and Schultz (1986) with restarts: Arnoldi's basis, then the least squares of the small system."""
    limit = _limit(b, tol, atol)
    m = min(restart, sum(v.size for v in tree.leaves(b)))

    def against(basis: Any, v: Any) -> Any:
        """The products of all basis vectors with v."""
        pairs = zip(tree.leaves(basis), tree.leaves(v), strict=True)
        return sum(fnp.tensordot(q, u, axes=u.ndim) for q, u in pairs)

    def arnoldi(k: Any, s: Any) -> Any:
        basis, h = s
        v = M(matvec(tree.map(lambda q: q[k], basis)))
        total = fnp.zeros(m + 1, dtype=h.dtype)
        for _ in range(2):  # once more against rounding
            part = against(basis, v)
            v = tree.map(lambda u, q, c=part: u - fnp.tensordot(c, q, axes=1), v, basis)
            total = total + part
        norm = fnp.sqrt(_vdot(v, v))
        basis = tree.map(lambda q, u: q.at[k + 1].set(u * _ratio(1.0, norm)), basis, v)
        return basis, h.at[:, k].set(total.at[k + 1].set(norm))

    def cycle(s: Any) -> Any:
        x, _, count = s
        r = M(_minus(b, matvec(x)))
        norm = fnp.sqrt(_vdot(r, r))
        basis = tree.map(lambda u: fnp.zeros((m + 1, *u.shape), u.dtype).at[0].set(u * _ratio(1.0, norm)), r)
        basis, h = lax.fori_loop(0, m, arnoldi, (basis, fnp.zeros((m + 1, m), norm.dtype)))
        target = fnp.zeros(m + 1, norm.dtype).at[0].set(norm)
        y = fnp.linalg.lstsq(h, target)[0]
        x = tree.map(lambda u, q: u + fnp.tensordot(y, q[:m], axes=1), x, basis)
        rest = _minus(b, matvec(x))
        return x, _vdot(rest, rest), count + 1

    first = _minus(b, matvec(start))
    return lax.while_loop(lambda s: (s[1] > limit) & (s[2] < maxiter), cycle, (start, _vdot(first, first), 0))[0]


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """Return the solution of A x = b for a symmetric positive definite A by conjugate gradients, and None.

    A is a matrix or a function of a tree like b, and M the same for an approximate inverse (a preconditioner).  Stops
    where the residual's norm is at most ``max(tol * |b|, atol)``, or after ``maxiter`` steps (10 times b's size).
    Hestenes and Stiefel 1952.

    >>> from funcgrad.scipy.sparse.linalg import cg
    >>> cg(fnp.asarray([[4.0, 1.0], [1.0, 3.0]]), fnp.asarray([1.0, 2.0]))[0]
    Array([0.09090909, 0.6363636 ], dtype=float32)
    """
    matvec, b, start, m, limit = _prepared("cg", A, b, x0, maxiter, M)
    return lax.custom_linear_solve(matvec, b, lambda f, v: _cg(f, v, start, m, tol, atol, limit), symmetric=True), None


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """Return the solution of A x = b for any invertible A by stabilised biconjugate gradients, and None.

    Parameters are those of :func:`cg`.  Van der Vorst 1992.

    >>> from funcgrad.scipy.sparse.linalg import bicgstab
    >>> bicgstab(fnp.asarray([[4.0, 1.0], [0.0, 2.0]]), fnp.asarray([6.0, 4.0]))[0]
    Array([1.0000, 2.0000], dtype=float32)
    """
    matvec, b, start, m, limit = _prepared("bicgstab", A, b, x0, maxiter, M)

    def solve(f: Operator, v: Any) -> Any:
        return _bicgstab(f, v, start, m, tol, atol, limit)

    def back(f: Operator, v: Any) -> Any:
        # The preconditioner's transpose is unknown; without one the solver takes a few more steps.
        return _bicgstab(f, v, tree.map(fnp.zeros_like, v), lambda x: x, tol, atol, limit)

    return lax.custom_linear_solve(matvec, b, solve, back), None


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, None]:
    """Return the solution of A x = b for any invertible A by generalised minimal residuals, and None.

    Each of at most ``maxiter`` cycles takes ``restart`` products with A; other parameters are those of :func:`cg`, and
    ``solve_method`` is accepted for JAX's sake.  Saad and Schultz 1986.

    >>> from funcgrad.scipy.sparse.linalg import gmres
    >>> gmres(fnp.asarray([[4.0, 1.0], [0.0, 2.0]]), fnp.asarray([6.0, 4.0]))[0]
    Array([1.0000, 2.0000], dtype=float32)
    """
    matvec, b, start, m, limit = _prepared("gmres", A, b, x0, maxiter, M)
    if restart < 1:
        raise ValueError(message("gmres", "restart must be at least 1", str(restart)))

    def solve(f: Operator, v: Any) -> Any:
        return _gmres(f, v, start, m, tol, atol, limit, restart)

    def back(f: Operator, v: Any) -> Any:
        return _gmres(f, v, tree.map(fnp.zeros_like, v), lambda x: x, tol, atol, limit, restart)

    return lax.custom_linear_solve(matvec, b, solve, back), None
