"""Special functions, linear algebra and iterative solvers against scipy in float64; segments, images, trees, JAX's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jax_linalg
import jax.scipy.special as jax_special
import numpy as np
import pytest
import scipy.linalg
import scipy.special

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import image, lax, ops, tree_util
from funcgrad.scipy import linalg, special
from funcgrad.scipy.sparse import linalg as sparse

RNG = np.random.default_rng(1)
LINE = np.concatenate([np.linspace(-9, 9, 73), [1e-5, 0.0]])
POSITIVE = np.concatenate([np.linspace(0.05, 9, 73), [1e-5, 30.0]])
UNIT = np.concatenate([np.linspace(0.01, 0.99, 73), [1e-6, 1 - 1e-6]])
A, B = RNG.uniform(0.2, 9, 75), RNG.uniform(0.2, 9, 75)
SPECIAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("erf", "ndtr", "expit", "i0e", "i1", "i1e"), (LINE,)),
    "i0": (LINE[LINE != 0],),  # JAX's slope there is 1
    "erfc": (LINE[np.abs(LINE) < 8],),
    "log_ndtr": (np.minimum(LINE * 5, 5),),
    "erfinv": (2 * UNIT - 1,),
    "ndtri": (UNIT,),
    "logit": (UNIT,),
    **dict.fromkeys(("gammaln", "gamma", "digamma", "entr"), (POSITIVE,)),
    "gammasgn": (LINE + 0.013,),
    "beta": (A, B),
    "betaln": (A, B),
    "betainc": (A, B, UNIT),
    "gammainc": (A, B),
    "gammaincc": (A, B),
    "poch": (A, UNIT),
    "zeta": (A + 1.1, B),
    "xlogy": (np.where(A < 2, 0.0, A), B),
    "xlog1py": (np.where(A < 2, 0.0, A), B),
    "rel_entr": (A, B),
    "kl_div": (A, B),
    "boxcox": (A, np.where(UNIT < 0.3, 0.0, UNIT)),
    "boxcox1p": (A, np.where(UNIT < 0.3, 0.0, UNIT)),
}
CANCELLING = ("rel_entr", "kl_div", "betaln", "gamma", "beta", "poch", "betainc")
WITHOUT_JAX_GRADIENT = ("betainc", "gammasgn", "boxcox", "boxcox1p")  # not defined there, or NaN


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name: str) -> None:
    args = [np.float32(a) for a in SPECIAL[name]]
    want = getattr(scipy.special, name)(*[np.float64(a) for a in args])
    got = np.asarray(getattr(special, name)(*args))
    np.testing.assert_allclose(got, want, rtol=5e-5 if name in CANCELLING else 4e-6, atol=2e-5 * (name in CANCELLING))
    if name in WITHOUT_JAX_GRADIENT:
        return
    every = tuple(range(len(args)))
    ours = fg.grad(lambda *v: getattr(special, name)(*v).sum(), every)(*args)
    theirs = jax.grad(lambda *v: getattr(jax_special, name)(*v).sum(), every)(*args)
    for g, w in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=4e-4, atol=3e-5)


def test_whole_numbers() -> None:
    n = np.arange(-1, 10)
    np.testing.assert_array_equal(np.asarray(special.factorial(n)), scipy.special.factorial(n))
    np.testing.assert_array_equal(np.asarray(special.comb(9, n)), scipy.special.comb(9, n))
    got = special.comb(9, n, repetition=True)
    np.testing.assert_allclose(np.asarray(got)[1:], scipy.special.comb(9, n, repetition=True)[1:], rtol=1e-6)
    np.testing.assert_allclose(float(special.multigammaln(4.5, 3)), scipy.special.multigammaln(4.5, 3), rtol=1e-6)
    assert float(fg.grad(special.factorial)(3.0)) == pytest.approx(6 * scipy.special.digamma(4), rel=1e-5)


def test_softmax_over_all_axes() -> None:
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    for axis in (None, 0, (0, 1)):
        np.testing.assert_allclose(np.asarray(special.softmax(x, axis=axis)), scipy.special.softmax(x, axis), rtol=1e-5)
        got = np.asarray(special.log_softmax(x, axis=axis))
        np.testing.assert_allclose(got, scipy.special.log_softmax(x, axis), rtol=1e-5, atol=1e-6)


# -- linear algebra ----------------------------------------------------------------------------------------------
def spd(*lead: int) -> Any:
    half = RNG.normal(size=(*lead, 4, 4))
    return (half @ np.swapaxes(half, -1, -2) / 4 + np.eye(4)).astype(np.float32)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("trans", [0, 1, "T"])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(lower: bool, trans: Any, unit: bool) -> None:
    a, b = spd(), RNG.normal(size=(4, 3)).astype(np.float32)
    for rhs in (b, b[:, 0]):
        want = scipy.linalg.solve_triangular(a, rhs, trans, lower, unit)
        np.testing.assert_allclose(
            np.asarray(linalg.solve_triangular(a, rhs, trans, lower, unit)), want, rtol=1e-4, atol=1e-5
        )
    f = lambda lib: lambda a, b: (lib.solve_triangular(a, b, trans, lower, unit) ** 2).sum()
    for g, w in zip(fg.grad(f(linalg), (0, 1))(a, b), jax.grad(f(jax_linalg), (0, 1))(a, b), strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_factors(lower: bool) -> None:
    a, b = spd(), RNG.normal(size=4).astype(np.float32)
    np.testing.assert_allclose(np.asarray(linalg.cholesky(a, lower)), scipy.linalg.cholesky(a, lower), rtol=1e-4)
    factor = linalg.cho_factor(a, lower)
    np.testing.assert_allclose(np.asarray(linalg.cho_solve(factor, b)), np.linalg.solve(a, b), rtol=1e-3, atol=1e-5)
    f = lambda lib: lambda a, b: jnp_or(lib).sin(lib.cho_solve(lib.cho_factor(a, lower), b)).sum()
    ours, theirs = fg.jit(fg.grad(f(linalg), (0, 1)))(a, b), jax.grad(f(jax_linalg), (0, 1))(a, b)
    np.testing.assert_allclose(np.asarray(ours[1]), np.asarray(theirs[1]), rtol=1e-3, atol=1e-4)
    sym = [np.asarray(g[0]) + np.asarray(g[0]).T for g in (ours, theirs)]
    np.testing.assert_allclose(sym[0], sym[1], rtol=2e-3, atol=2e-3)


def jnp_or(lib: Any) -> Any:
    return fnp if lib is linalg else jnp


def test_systems_and_decompositions() -> None:
    a, b = spd(), RNG.normal(size=(4, 2)).astype(np.float32)
    for assume in ("gen", "pos", "sym"):
        got = linalg.solve(np.triu(a) if assume == "pos" else a, b, assume_a=assume)
        np.testing.assert_allclose(np.asarray(got), np.linalg.solve(a, b), rtol=1e-3, atol=1e-5)
    other = spd()
    w, v = linalg.eigh(a, other)
    np.testing.assert_allclose(np.asarray(w), scipy.linalg.eigh(a, other, eigvals_only=True), rtol=1e-4)
    np.testing.assert_allclose(a @ np.asarray(v), other @ np.asarray(v) * np.asarray(w), atol=1e-4)
    d, e = a.diagonal(), a.diagonal(1)
    want = scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True)
    np.testing.assert_allclose(np.asarray(linalg.eigh_tridiagonal(d, e, eigvals_only=True)), want, rtol=1e-4)
    general = RNG.normal(size=(5, 3)).astype(np.float32)
    for side in ("right", "left"):
        for g, t in zip(linalg.polar(general, side), scipy.linalg.polar(general, side), strict=True):
            np.testing.assert_allclose(np.asarray(g), t, rtol=1e-3, atol=1e-5)
    q, r = linalg.qr(general, mode="economic")
    np.testing.assert_allclose(np.asarray(q) @ np.asarray(r), general, atol=1e-5)


@pytest.mark.parametrize("size", [0.01, 1.0, 5.0, 40.0])
def test_matrix_exponential(size: float) -> None:
    x = RNG.normal(size=(2, 4, 4)).astype(np.float32)
    x = (x - np.swapaxes(x, -1, -2)) * np.float32(size)  # a rotation: as large as the identity
    want = np.stack([scipy.linalg.expm(m.astype(float)) for m in x])
    np.testing.assert_allclose(np.asarray(linalg.expm(x)), want, atol=3e-7 * max(10, 20 * size))
    with fg.default_device("numpy"):
        wide = np.asarray(linalg.expm(fnp.asarray(x, dtype="float64")))
    np.testing.assert_allclose(wide, want, atol=1e-11)
    if size <= 1:
        direction = RNG.normal(size=(4, 4)).astype(np.float32)
        _, t = fg.jvp(linalg.expm, (x[0],), (direction,))
        want = scipy.linalg.expm_frechet(x[0].astype(float), direction, compute_expm=False)
        np.testing.assert_allclose(np.asarray(t), want, rtol=1e-4, atol=1e-4)


def test_matrices_of_a_pattern() -> None:
    c, r = RNG.normal(size=4).astype(np.float32), RNG.normal(size=3).astype(np.float32)
    for f in ("toeplitz", "hankel"):
        np.testing.assert_array_equal(np.asarray(getattr(linalg, f)(c, r)), getattr(scipy.linalg, f)(c, r))
        np.testing.assert_array_equal(np.asarray(getattr(linalg, f)(c)), getattr(scipy.linalg, f)(c))
    np.testing.assert_array_equal(np.asarray(linalg.circulant(c)), scipy.linalg.circulant(c))
    np.testing.assert_allclose(np.asarray(linalg.hilbert(4)), scipy.linalg.hilbert(4), rtol=1e-6)
    blocks = (np.ones((1, 2), np.float32), c[None], np.eye(2, dtype=np.float32))
    np.testing.assert_array_equal(np.asarray(linalg.block_diag(*blocks)), scipy.linalg.block_diag(*blocks))


# -- implicit derivatives ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_iterative_solvers(name: str, preconditioned: bool) -> None:
    """The solution and its first and second derivatives are those of the direct solution, in float64."""
    a, b = spd(), RNG.normal(size=4).astype(np.float32)
    if name != "cg":
        a = a + np.triu(RNG.normal(size=(4, 4)), 1).astype(np.float32) * 0.3
    m = np.diag(1 / a.diagonal()) if preconditioned else None
    half = lambda v: fnp.sin(v).sum()

    def iterative(a: Any, b: Any) -> Any:
        return half(getattr(sparse, name)(lambda x: a @ x, b, tol=1e-7, M=m)[0])

    with fg.default_device("numpy"):
        wide = [fnp.asarray(v, dtype="float64") for v in (a, b)]
        direct = lambda a, b: half(fnp.linalg.solve(a, b))
        want = fg.grad(direct, (0, 1))(*wide)
        second = fg.hessian(direct, 1)(*wide)
        want, second = [np.asarray(w) for w in want], np.asarray(second)
    for f in (fg.grad(iterative, (0, 1)), fg.jit(fg.grad(iterative, (0, 1)))):
        for g, w in zip(f(a, b), want, strict=True):
            np.testing.assert_allclose(np.asarray(g), w, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.asarray(fg.hessian(iterative, 1)(a, b)), second, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(np.asarray(fg.jacrev(fg.grad(iterative, 1), 1)(a, b)), second, rtol=1e-2, atol=1e-3)
    many = np.stack([b, 2 * b])
    rows = [np.asarray(getattr(sparse, name)(a, row, tol=1e-7)[0]) for row in many]
    mapped = fg.vmap(lambda row: getattr(sparse, name)(a, row, tol=1e-7)[0])(many)
    np.testing.assert_allclose(np.asarray(mapped), rows, rtol=1e-4, atol=1e-5)


def test_a_system_of_trees_that_closes_over_parameters() -> None:
    def solve(params: Any) -> Any:
        matvec = lambda x: {"u": params["k"] * x["u"] + x["v"], "v": x["u"] + 3.0 * x["v"]}
        return sparse.cg(matvec, {"u": fnp.asarray([1.0, 2.0]), "v": fnp.asarray([0.0, 1.0])}, tol=1e-7)[0]

    def exact(k: float) -> Any:
        return np.linalg.solve(np.array([[k, 1.0], [1.0, 3.0]]), np.array([[1.0, 2.0], [0.0, 1.0]]))

    got = solve({"k": 4.0})
    np.testing.assert_allclose(np.stack([got["u"], got["v"]]), exact(4.0), rtol=1e-5)
    slope = (exact(4.0 + 1e-6).sum() - exact(4.0 - 1e-6).sum()) / 2e-6
    loss = lambda p: sum(x.sum() for x in fg.tree.leaves(solve(p)))
    assert float(fg.jit(fg.grad(loss))({"k": 4.0})["k"]) == pytest.approx(slope, rel=1e-4)


def test_root_of_a_cubic() -> None:
    def root(lib: Any, np_: Any) -> Any:
        def newton(f: Any, x: Any) -> Any:
            go_on = lambda s: (np_.abs(f(s)) > 1e-6).any()
            return lib.lax.while_loop(go_on, lambda s: s - f(s) / lib.jvp(f, (s,), (np_.ones_like(s),))[1], x)

        tangent = lambda g, y: y / g(np_.ones_like(y))
        return lambda a: lib.lax.custom_root(lambda x: x**3 + a * x - 2, np_.ones_like(a), newton, tangent)

    a = np.array([0.5, 1.0, 2.0], np.float32)
    ours, theirs = root(fg, fnp), root(jax, jnp)
    np.testing.assert_allclose(np.asarray(ours(a)), [np.roots([1, 0, v, -2]).real[-1] for v in a], rtol=1e-6)
    for f, g in (
        (fg.jacrev(ours), jax.jacrev(theirs)),
        (fg.jit(fg.jacfwd(fg.jacrev(ours))), jax.jacfwd(jax.jacrev(theirs))),
        (fg.vmap(fg.grad(ours)), jax.vmap(jax.grad(theirs))),
    ):
        np.testing.assert_allclose(np.asarray(f(a)), np.asarray(g(a)), rtol=1e-5, atol=1e-6)


def test_a_solve_without_transpose_says_what_to_pass() -> None:
    f = lambda a: lax.custom_linear_solve(lambda x: a * x, 1.0, lambda mv, b: b / mv(1.0))
    assert float(fg.jvp(f, (2.0,), (1.0,))[1]) == -0.25
    with pytest.raises(fg.errors.MissingRule, match="transpose_solve, or symmetric=True"):
        fg.grad(f)(2.0)
    with pytest.raises(fg.errors.TreeError, match="matvec must return what b is"):
        fg.jit(lambda b: lax.custom_linear_solve(lambda x: x[:1], b, lambda mv, b: b))(fnp.ones(2))


# -- segments, images, trees -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_max", "segment_min"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_segments(name: str, dtype: str) -> None:
    x = (RNG.normal(size=(9, 2)) * 4).astype(dtype)
    ids = np.array([0, 2, 2, 5, 0, -1, 7, 4, 2])
    for count in (6, None):
        good = ids if count else np.maximum(ids, 0)
        want = getattr(jax.ops, name)(x, good, num_segments=count)
        got = getattr(ops, name)(x, good, num_segments=count)
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)
        assert np.asarray(got).dtype == np.asarray(want).dtype
    if dtype == "float32":
        ours = fg.jit(fg.grad(lambda x: fnp.sin(fnp.clip(getattr(ops, name)(x, ids, 6), -9, 9)).sum()))(x)
        reduce = {"segment_sum": jnp.sum, "segment_prod": jnp.prod, "segment_max": jnp.max, "segment_min": jnp.min}[
            name
        ]
        own = {"segment_sum": 0.0, "segment_prod": 1.0, "segment_max": -jnp.inf, "segment_min": jnp.inf}[name]
        mine = (ids[:, None] == np.arange(6))[..., None]
        masked = lambda x: reduce(jnp.where(mine, x[:, None], own), axis=0)
        theirs = jax.grad(lambda x: jnp.sin(jnp.clip(masked(x), -9, 9)).sum())(x)
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-5, atol=1e-6)


def test_segment_errors_say_what_is_required() -> None:
    with pytest.raises(fg.errors.ConcretizationTypeError, match="num_segments=n is required"):
        fg.jit(ops.segment_sum)(fnp.ones(3), fnp.asarray([0, 1, 1]))
    with pytest.raises(fg.errors.ShapeError, match="leading axes"):
        ops.segment_sum(fnp.ones(3), fnp.asarray([0, 1]))
    with pytest.raises(fg.errors.DTypeError, match="must be integers"):
        ops.segment_sum(fnp.ones(3), fnp.ones(3))


SIZES = [((5, 7), (10, 14)), ((9, 6), (4, 3)), ((2, 6, 6, 3), (2, 5, 9, 3)), ((1, 4), (1, 1)), ((3, 5), (17, 2))]


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic", "lanczos3", "lanczos5"])
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("old,new", SIZES)
def test_resize(method: str, antialias: bool, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    x, ct = RNG.normal(size=old).astype(np.float32), RNG.normal(size=new).astype(np.float32)
    got = image.resize(x, new, method, antialias)
    np.testing.assert_allclose(np.asarray(got), np.asarray(jax.image.resize(x, new, method, antialias)), atol=2e-5)
    ours = fg.grad(lambda x: (image.resize(x, new, method, antialias) * ct).sum())(x)
    theirs = jax.grad(lambda x: (jax.image.resize(x, new, method, antialias) * ct).sum())(x)
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), atol=2e-5)


def test_scale_and_translate_has_gradients_by_both() -> None:
    x = RNG.normal(size=(6, 8)).astype(np.float32)

    def total(lib: Any) -> Any:
        return lambda s, t: (lib.image.scale_and_translate(x, (9, 7), (0, 1), s, t, "linear") ** 2).sum()

    for s, t in (([1.5, 0.7], [0.3, -1.0]), ([0.43, 0.57], [0.13, 0.21])):
        args = (np.float32(s), np.float32(t))
        assert float(total(fg)(*args)) == pytest.approx(float(total(jax)(*args)), rel=1e-5)
        for g, w in zip(fg.grad(total(fg), (0, 1))(*args), jax.grad(total(jax), (0, 1))(*args), strict=True):
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-4, atol=1e-4)


def test_image_errors_say_what_is_required() -> None:
    with pytest.raises(ValueError, match="method must be one of nearest"):
        image.resize(fnp.ones((2, 2)), (4, 4), "quadratic")
    with pytest.raises(fg.errors.ShapeError, match="one size per axis"):
        image.resize(fnp.ones((2, 2)), (4,), "linear")
    with pytest.raises(fg.errors.ShapeError, match="only spatial_dims may change"):
        image.scale_and_translate(fnp.ones((2, 2)), (4, 4), (0,), [2.0], [0.0], "linear")


@pytest.mark.parametrize("lib,top", [(tree_util, fg), (jax.tree_util, jax)], ids=["ours", "theirs"])
def test_trees_of_ones_own_class_with_keys(lib: Any, top: Any) -> None:
    @lib.register_pytree_with_keys_class
    class Layer:
        def __init__(self, w: Any, rate: float):
            self.w, self.rate = w, rate

        def tree_flatten_with_keys(self) -> Any:
            return ((lib.GetAttrKey("w"), self.w),), self.rate

        @classmethod
        def tree_unflatten(cls, rate: float, children: Any) -> Any:
            return cls(*children, rate)

    tree = {"a": [Layer(1.0, 0.5)], "b": 2.0}
    paths = [lib.keystr(p) for p, _ in lib.tree_leaves_with_path(tree)]
    simple = [lib.keystr(p, simple=True, separator="/") for p, _ in lib.tree_flatten_with_path(tree)[0]]
    assert (paths, simple) == (["['a'][0].w", "['b']"], ["a/0/w", "b"])
    out = top.jit(lambda t: lib.tree_map(lambda x: 2 * x, t))(tree)
    assert float(out["a"][0].w) == 2.0 and out["a"][0].rate == 0.5


@pytest.mark.parametrize("lib,top,np_", [(tree_util, fg, fnp), (jax.tree_util, jax, jnp)], ids=["ours", "theirs"])
def test_partial_is_data(lib: Any, top: Any, np_: Any) -> None:
    f = lib.Partial(lambda w, x, *, b: w @ x + b, np_.ones((2, 2)), b=np_.asarray(1.0))
    assert len(lib.tree_leaves(f)) == 2
    grads = top.grad(lambda f, x: f(x).sum())(f, np_.ones(2))
    assert float(grads.args[0].sum()) == 4.0 and float(grads.keywords["b"]) == 2.0


@pytest.mark.parametrize("lib,top", [(tree_util, fg), (jax.tree_util, jax)], ids=["ours", "theirs"])
def test_static_classes_and_structures(lib: Any, top: Any) -> None:
    @lib.register_static
    class Mode(str):
        __slots__ = ()

    assert lib.tree_leaves([1.0, Mode("train")]) == [1.0]
    assert lib.tree_map(lambda x: 2 * x, (1.0, Mode("train"))) == (2.0, "train")
    out = top.jit(lambda t: t[0] * (2.0 if t[1] == "train" else 3.0))((1.0, Mode("train")))
    assert float(out) == 2.0
    inner, outer = lib.tree_structure({"x": 0, "y": 0}), lib.tree_structure([0, 0])
    rows = [{"x": 1, "y": 2}, {"x": 3, "y": 4}]
    assert lib.tree_transpose(outer, inner, rows) == {"x": [1, 3], "y": [2, 4]} == lib.tree_transpose(outer, None, rows)
    assert lib.tree_broadcast({"a": 1}, {"a": [0, 0]}) == {"a": [1, 1]}
    assert lib.all_leaves([1, 2.0]) and not lib.all_leaves([1, (2,)])
    assert lib.treedef_is_leaf(lib.tree_structure(1)) and len(lib.treedef_children(outer)) == 2
