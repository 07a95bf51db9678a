"""Linear algebra: identities that define the results, stacks, failures, and derivatives where values say nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax
from funcgrad.errors import DTypeError, MissingRule, ShapeError
from funcgrad.numpy import linalg

pytestmark = pytest.mark.usefixtures("device")


def matrix(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def positive(n: int, seed: int = 0) -> Any:
    a = matrix(n, n, seed=seed)
    return a @ a.T / n + np.eye(n, dtype=np.float32)


def close(got: Any, want: Any, tolerance: float = 2e-5) -> None:
    assert np.shape(got) == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(1.0, np.max(np.abs(want), initial=0)))


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 4, 3), (2, 3, 1, 2, 2), (1, 1), (0, 3), (2, 0, 0)])
def test_factors_multiply_to_the_matrix(shape: tuple[int, ...]) -> None:
    a = matrix(*shape)
    eye = lambda n: np.broadcast_to(np.eye(n, dtype=np.float32), (*shape[:-2], n, n))
    m, n = shape[-2:]
    for mode, k in (("reduced", min(m, n)), ("complete", m)):
        q, r = linalg.qr(a, mode)
        assert q.shape == (*shape[:-2], m, k) and r.shape == (*shape[:-2], k, n)
        close(q @ r, a)
        close(q.mT @ q, eye(k))
        assert not np.tril(np.asarray(r), -1).any() if a.size else True
    for full in (False, True):
        u, s, vt = linalg.svd(a, full_matrices=full)
        k = min(m, n)
        assert u.shape == (*shape[:-2], m, m if full else k) and vt.shape == (*shape[:-2], n if full else k, n)
        close((u[..., :k] * s[..., None, :]) @ vt[..., :k, :], a)
        if not full:
            close(u.mT @ u, eye(k))
    if a.size:
        p = linalg.pinv(a)
        close(a @ p @ a, a)
        close(p @ a @ p, p, 1e-4)


@pytest.mark.parametrize("lead", [(), (3,), (2, 2)])
def test_square_matrices(lead: tuple[int, ...]) -> None:
    a = matrix(*lead, 4, 4) + 3 * np.eye(4, dtype=np.float32)
    s = a @ np.swapaxes(a, -1, -2)
    b = matrix(*lead, 4, 2, seed=1)
    close(a @ np.asarray(linalg.solve(a, b)), b)
    close(a @ np.asarray(linalg.inv(a)), np.broadcast_to(np.eye(4), a.shape), 1e-4)
    c = linalg.cholesky(s)
    close(c @ c.mT, s)
    close(linalg.cholesky(s, upper=True), c.mT)
    w, v = linalg.eigh(s)
    close(s @ np.asarray(v), v * w[..., None, :], 1e-4)
    assert (np.diff(w) >= 0).all()
    close(linalg.det(a), np.linalg.det(a.astype(np.float64)), 1e-4)
    sign, logdet = linalg.slogdet(a)
    close(sign * fnp.exp(logdet), np.linalg.det(a.astype(np.float64)), 1e-4)
    assert linalg.matrix_rank(a).tolist() == np.full(lead, 4).tolist()


def test_eigh_reads_the_triangle_that_is_asked_for() -> None:
    a = matrix(3, 3)
    lower = np.tril(a) + np.tril(a, -1).T
    close(linalg.eigh(a, "L", symmetrize_input=False)[0], np.linalg.eigvalsh(lower))
    close(linalg.eigh(a, "U", symmetrize_input=False)[0], np.linalg.eigvalsh(a, "U"))
    close(linalg.eigvalsh(a), np.linalg.eigvalsh((a + a.T) / 2))


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("left_side", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_solve(lower: bool, transpose_a: bool, left_side: bool, unit: bool) -> None:
    a = matrix(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)
    t = np.tril(a) if lower else np.triu(a)
    if unit:
        t[..., range(3), range(3)] = 1
    t = np.swapaxes(t, -1, -2) if transpose_a else t
    b = matrix(2, 3, 4, seed=1) if left_side else matrix(2, 4, 3, seed=1)
    options = {"left_side": left_side, "lower": lower, "transpose_a": transpose_a, "unit_diagonal": unit}
    x = np.asarray(lax.linalg.triangular_solve(a, b, **options))
    close(t @ x if left_side else x @ t, b)
    vector = lax.linalg.triangular_solve(a[0], b[0, :, 0] if left_side else b[0, 0], **options)
    close(vector, x[0, :, 0] if left_side else x[0, 0])


def test_a_matrix_that_fails_gives_nan_and_spares_the_others() -> None:
    good, singular, indefinite = np.eye(2), np.ones((2, 2)), np.diag([1.0, -1.0])
    stack = np.stack([good, indefinite, good]).astype(np.float32)
    factors = np.asarray(linalg.cholesky(stack))
    assert np.isnan(factors[1]).all() and (factors[[0, 2]] == np.eye(2)).all()
    inverses = np.asarray(linalg.inv(np.stack([good, singular]).astype(np.float32)))
    assert np.isnan(inverses[1]).all() and (inverses[0] == np.eye(2)).all()
    assert np.isnan(np.asarray(linalg.inv(np.full((2, 2), np.nan, np.float32)))).all()
    assert linalg.det(singular.astype(np.float32)).item() == 0
    assert linalg.slogdet(singular.astype(np.float32))[1].item() == -np.inf


# -- derivatives -------------------------------------------------------------------------------------------------
def test_determinant_of_a_singular_matrix_has_its_cofactors_as_gradient() -> None:
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]], np.float32)
    minors = [
        [np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) * (-1) ** (i + j) for j in range(3)] for i in range(3)
    ]
    close(fg.grad(linalg.det)(a), np.array(minors, np.float32), 1e-4)
    close(fg.grad(linalg.det)(np.zeros((1, 1), np.float32)), np.ones((1, 1)))


def test_repeated_eigenvalues_leave_invariant_functions_exact() -> None:
    """trace(exp(A)) has gradient exp(A), whatever the eigenvectors of a repeated eigenvalue are."""
    a = np.diag([2.0, 2.0, 1.0]).astype(np.float32)

    def through_vectors(x: Any) -> Any:
        w, v = linalg.eigh(x)
        return fnp.trace((v * fnp.exp(w)) @ v.T @ np.diag([1.0, 2.0, 3.0]).astype(np.float32))

    close(fg.grad(lambda x: fnp.exp(linalg.eigvalsh(x)).sum())(a), np.diag(np.exp(np.diag(a))))
    assert np.isfinite(np.asarray(fg.grad(through_vectors)(a))).all()
    close(fg.grad(lambda x: linalg.svd(x, compute_uv=False).sum())(np.eye(3, dtype=np.float32)), np.eye(3))


def test_hessian_of_the_log_determinant() -> None:
    """The second derivative of log det A along T is -tr(A^-1 T A^-1 T)."""
    a, t = positive(3), matrix(3, 3, seed=2)
    first = lambda x: fg.jvp(lambda y: linalg.slogdet(y)[1], (x,), (t,))[1]
    inverse = np.linalg.inv(a)
    close(fg.jvp(first, (a,), (t,))[1], -np.trace(inverse @ t @ inverse @ t), 1e-4)
    through_cholesky = lambda x: 2 * fnp.log(fnp.diagonal(linalg.cholesky(x))).sum()
    close(fg.grad(through_cholesky)(a), (inverse + inverse.T) / 2, 1e-4)
    s = (t + t.T) / 2
    second = fg.jvp(fg.grad(through_cholesky), (a,), (t,))[1]
    close(fnp.sum(second * t), -np.trace(inverse @ s @ inverse @ s), 1e-3)


def test_under_jit_and_vmap() -> None:
    a, b = np.stack([positive(3, s) for s in range(4)]), matrix(4, 3, seed=5)
    solve = fg.jit(fg.vmap(lambda m, v: linalg.solve(m, v) @ linalg.cholesky(m)))
    want = np.stack([np.linalg.solve(m, v) @ np.linalg.cholesky(m) for m, v in zip(a, b, strict=True)])
    close(solve(a, b), want, 1e-4)
    shared = fg.vmap(lambda v: linalg.solve(a[0], v))(b)
    close(shared, np.linalg.solve(a[0], b.T).T, 1e-4)


def test_halves_are_computed_in_float32() -> None:
    a = fnp.asarray(positive(3), "float16")
    assert linalg.inv(a).dtype == np.float16 and linalg.svd(a)[1].dtype == np.float16
    close(linalg.cholesky(a).astype(fnp.float32), np.linalg.cholesky(np.asarray(a).astype(np.float32)), 2e-3)


def test_least_squares() -> None:
    a, b = matrix(6, 3), matrix(6, 2, seed=1)
    x, residuals, rank, s = linalg.lstsq(a, b)
    want = np.linalg.lstsq(a, b, rcond=None)
    close(x, want[0], 1e-4)
    close(residuals, want[1], 1e-4)
    assert rank.item() == 3
    close(s, want[3])


def test_safe_norm_has_gradient_zero_at_zero() -> None:
    x = np.array([[0.0, 0.0], [3.0, 4.0]], np.float32)
    close(fg.grad(lambda v: fnp.safe_norm(v, axis=1).sum())(x), np.array([[0, 0], [0.6, 0.8]], np.float32))
    close(fnp.safe_norm(x, axis=1, min_norm=0.5), np.array([0.5, 5.0]))


def test_errors() -> None:
    with pytest.raises(ShapeError, match="square"):
        linalg.inv(matrix(2, 3))
    with pytest.raises(ShapeError, match="two axes"):
        linalg.svd(matrix(3))
    with pytest.raises(ShapeError, match="rows"):
        linalg.solve(matrix(3, 3), matrix(2, 2))
    with pytest.raises(ValueError, match="mode"):
        linalg.qr(matrix(2, 2), "economic")
    with pytest.raises(MissingRule, match="full_matrices=False"):
        fg.grad(lambda a: linalg.svd(a)[0].sum())(matrix(3, 2))
    with pytest.raises(ValueError, match="ord"):
        linalg.norm(matrix(3), "fro", axis=0)
    with pytest.raises(DTypeError):
        linalg.det("matrix")
