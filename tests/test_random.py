"""Random numbers: Threefry against its known answers, laws of keys, ranges, moments, the same everywhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, random
from funcgrad.errors import DTypeError, ShapeError

pytestmark = pytest.mark.usefixtures("device")
N = 40_000
KEY = 2024


# -- an independent Threefry-2x32, from the paper ----------------------------------------------------------------
def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Twenty rounds on Python integers: add, rotate, exclusive or; a key word is injected every four rounds."""
    mask = 0xFFFFFFFF
    words = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA]
    a, b = (counter[0] + words[0]) & mask, (counter[1] + words[1]) & mask
    rotations = [(13, 15, 26, 6), (17, 29, 16, 24)]
    for block in range(5):
        for r in rotations[block % 2]:
            a = (a + b) & mask
            b = ((b << r) | (b >> (32 - r))) & mask
            b ^= a
        a = (a + words[(block + 1) % 3]) & mask
        b = (b + words[(block + 2) % 3] + block + 1) & mask
    return a, b


ANSWERS = [  # of the Random123 distribution: key, counter, result
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "want"), ANSWERS)
def test_known_answers(key: Any, counter: Any, want: Any) -> None:
    assert threefry(key, counter) == want
    words = [fnp.asarray(np.uint32(w)) for w in (*key, *counter)]
    from_library = [int(fg.prims.logic.threefry(*words, w)) for w in (0, 1)]
    assert tuple(from_library) == want


def test_bits_split_and_fold_in_are_threefry_of_positions() -> None:
    k = (0xDEADBEEF, 12345)
    key = random.wrap_key_data(np.array(k, np.uint32))
    pairs = [threefry(k, (0, i)) for i in range(24)]
    np.testing.assert_array_equal(
        np.asarray(random.bits(key, (4, 6))), np.array([a ^ b for a, b in pairs], np.uint32).reshape(4, 6)
    )
    np.testing.assert_array_equal(np.asarray(random.split(key, 24)), np.array(pairs, np.uint32))
    np.testing.assert_array_equal(np.asarray(random.split(key, (4, 6))), np.array(pairs, np.uint32).reshape(4, 6, 2))
    for data in (0, 7, 2**31, 2**32 - 1, -1):
        np.testing.assert_array_equal(
            np.asarray(random.fold_in(key, data)), np.array(threefry(k, (0, data & 0xFFFFFFFF)), np.uint32)
        )


def test_keys_hold_the_seed() -> None:
    for seed in (0, 7, 2**31, 2**32 - 1, -1, np.int64(5)):
        assert np.asarray(random.key(seed)).tolist() == [0, int(seed) & 0xFFFFFFFF]
    assert np.asarray(fg.jit(random.key)(7)).tolist() == [0, 7]
    assert np.asarray(random.PRNGKey(3)).tolist() == np.asarray(random.key_data(random.key(3))).tolist() == [0, 3]


# -- the same everywhere -----------------------------------------------------------------------------------------
DRAWS: dict[str, Any] = {
    "bits": lambda k: random.bits(k, (5, 3)),
    "uniform": lambda k: random.uniform(k, (5, 3), minval=-1.0, maxval=2.0),
    "normal": lambda k: random.normal(k, (5, 3)),
    "truncated_normal": lambda k: random.truncated_normal(k, -1.0, 2.0, (5, 3)),
    "bernoulli": lambda k: random.bernoulli(k, 0.3, (5, 3)),
    "randint": lambda k: random.randint(k, (5, 3), -5, 100),
    "permutation": lambda k: random.permutation(k, 15),
    "categorical": lambda k: random.categorical(k, np.arange(5, dtype=np.float32), shape=(15,)),
    "choice": lambda k: random.choice(k, 30, (15,), replace=False),
    "gumbel": lambda k: random.gumbel(k, (5, 3)),
    "split": lambda k: random.split(k, 5),
    "fold_in": lambda k: random.fold_in(k, 9),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_key_draws_the_same_under_every_transformation(name: str) -> None:
    draw = DRAWS[name]
    keys = random.split(random.key(KEY), 3)
    plain = [np.asarray(draw(k)) for k in keys]
    for f in (fg.jit(draw), fg.checkpoint(draw), fg.jit(fg.checkpoint(draw)), lambda k: fg.vmap(draw)(k[None])[0]):
        for k, want in zip(keys, plain, strict=True):
            got = np.asarray(f(k))
            assert got.dtype == want.dtype
            if got.dtype.kind == "f":
                np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
            else:
                np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(np.asarray(fg.vmap(draw)(keys)), np.stack(plain), rtol=1e-6, atol=1e-6)
    scanned = lax.scan(lambda c, k: (c, draw(k)), 0.0, keys)[1]
    np.testing.assert_allclose(np.asarray(scanned), np.stack(plain), rtol=1e-6, atol=1e-6)
    assert not np.array_equal(plain[0], plain[1])


def test_uniform_is_made_of_23_bits() -> None:
    key = random.key(KEY)
    drawn = np.asarray(random.bits(key, (1000,))).astype(np.int64)
    np.testing.assert_array_equal(np.asarray(random.uniform(key, (1000,))), (drawn >> 9) / 2.0**23)


def test_normal_is_the_inverse_of_the_error_function() -> None:
    key = random.key(KEY)
    low = float(np.nextafter(np.float32(-1), np.float32(0)))
    u = np.asarray(random.uniform(key, (2000,), np.float32, low, 1.0)).astype(np.float64)
    z = np.asarray(random.normal(key, (2000,), np.float32)).astype(np.float64)
    back = np.array([math.erf(v / math.sqrt(2)) for v in z])
    # the slope of erf(z / sqrt 2) carries the rounding of z over to u
    slope = math.sqrt(2 / math.pi) * np.exp(-z * z / 2)
    assert np.all(np.abs(back - u) <= 4e-7 * np.abs(z) * slope + 1e-7)


# -- ranges and moments ------------------------------------------------------------------------------------------
EULER = 0.5772156649015329

# name: how to draw n, mean, variance
MOMENTS: dict[str, tuple[Any, float, float]] = {
    "uniform": (lambda k, n: random.uniform(k, (n,)), 1 / 2, 1 / 12),
    "uniform in a range": (lambda k, n: random.uniform(k, (n,), minval=-2.0, maxval=4.0), 1.0, 3.0),
    "normal": (lambda k, n: random.normal(k, (n,)), 0.0, 1.0),
    "bernoulli": (lambda k, n: random.bernoulli(k, 0.3, (n,)).astype(float), 0.3, 0.21),
    "randint": (lambda k, n: random.randint(k, (n,), -3, 4).astype(float), 0.0, 4.0),
    "gumbel": (lambda k, n: random.gumbel(k, (n,)), EULER, math.pi**2 / 6),
    "exponential": (lambda k, n: random.exponential(k, (n,)), 1.0, 1.0),
    "laplace": (lambda k, n: random.laplace(k, (n,)), 0.0, 2.0),
    "logistic": (lambda k, n: random.logistic(k, (n,)), 0.0, math.pi**2 / 3),
    "rademacher": (lambda k, n: random.rademacher(k, (n,)).astype(float), 0.0, 1.0),
    "lognormal": (lambda k, n: random.lognormal(k, 0.5, (n,)), math.exp(0.125), (math.exp(0.25) - 1) * math.exp(0.25)),
    "maxwell": (lambda k, n: random.maxwell(k, (n,)), 2 * math.sqrt(2 / math.pi), 3 - 8 / math.pi),
    "pareto": (lambda k, n: random.pareto(k, 6.0, (n,)), 6 / 5, 6 / (25 * 4)),
    "rayleigh": (lambda k, n: random.rayleigh(k, 2.0, (n,)), 2 * math.sqrt(math.pi / 2), 4 * (2 - math.pi / 2)),
    "weibull_min": (
        lambda k, n: random.weibull_min(k, 2.0, 3.0, (n,)),
        2 * math.gamma(4 / 3),
        4 * (math.gamma(5 / 3) - math.gamma(4 / 3) ** 2),
    ),
    "geometric": (lambda k, n: random.geometric(k, 0.25, (n,)).astype(float), 4.0, 12.0),
    "triangular": (lambda k, n: random.triangular(k, -1.0, 0.5, 2.0, (n,)), 0.5, (1 + 0.25 + 4 + 0.5 + 2 - 1) / 18),
    "categorical": (
        lambda k, n: random.categorical(k, np.log(np.float32([0.2, 0.3, 0.5])), shape=(n,)).astype(float),
        1.3,
        0.61,
    ),
    "choice by weights": (
        lambda k, n: random.choice(k, 3, (n,), p=np.float32([0.2, 0.3, 0.5])).astype(float),
        1.3,
        0.61,
    ),
    "choice": (lambda k, n: random.choice(k, np.float32([1, 5]), (n,)), 3.0, 4.0),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name: str) -> None:
    draw, mean, variance = MOMENTS[name]
    x = np.asarray(fg.jit(lambda k: draw(k, N))(random.key(KEY))).astype(np.float64)
    assert x.shape == (N,) and np.all(np.isfinite(x))
    # five standard errors; that of the variance from the sample's own fourth moment
    assert abs(x.mean() - mean) < 5 * math.sqrt(variance / N)
    spread = (x - mean) ** 2
    assert abs(spread.mean() - variance) < 5 * spread.std() / math.sqrt(N) + 1e-9


def test_cauchy_has_its_quartiles() -> None:
    x = np.asarray(random.cauchy(random.key(KEY), (N,)))
    np.testing.assert_allclose(np.quantile(x, [0.25, 0.5, 0.75]), [-1, 0, 1], atol=0.05)


def test_neighbours_are_uncorrelated() -> None:
    z = np.asarray(random.normal(random.key(KEY), (N,)))
    other = np.asarray(random.normal(random.split(random.key(KEY))[0], (N,)))
    for a, b in [(z[1:], z[:-1]), (z, other), (z[2:], z[:-2])]:
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(N)


def test_ranges() -> None:
    key = random.key(KEY)
    u = np.asarray(random.uniform(key, (N,)))
    assert u.min() >= 0 and u.max() < 1 and u.min() < 1e-3 and u.max() > 1 - 1e-3
    r = np.asarray(random.randint(key, (N,), -2, 3))
    assert set(r.tolist()) == {-2, -1, 0, 1, 2}
    assert set(np.asarray(random.randint(key, (100,), 5, 5)).tolist()) == {5}  # an empty range gives its lower end
    wide = np.asarray(random.randint(key, (N,), -(2**31), 2**31 - 1)).astype(np.int64)
    assert wide.min() < -(2**31) * 0.99 and wide.max() > 2**31 * 0.99
    t = np.asarray(random.truncated_normal(key, -0.5, 2.0, (N,)))
    assert t.min() > -0.5 and t.max() < 2.0
    assert (
        np.asarray(random.bernoulli(key, 0.0, (N,))).sum() == 0 and np.asarray(random.bernoulli(key, 1.0, (N,))).all()
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    key = random.key(KEY)
    for draw in (random.uniform, random.normal, random.gumbel, random.exponential):
        x = draw(key, (7, 2), dtype=dtype)
        assert str(x.dtype) == dtype or dtype == "bfloat16"
        assert x.shape == (7, 2)


# -- permutations and choices ------------------------------------------------------------------------------------
def test_permutations_are_permutations_and_uniform() -> None:
    keys = random.split(random.key(KEY), 6000)
    perms = np.asarray(fg.jit(fg.vmap(lambda k: random.permutation(k, 3)))(keys))
    np.testing.assert_array_equal(np.sort(perms, 1), np.tile([0, 1, 2], (6000, 1)))
    counts = np.unique(perms @ [9, 3, 1], return_counts=True)[1]
    assert len(counts) == 6 and np.all(np.abs(counts - 1000) < 5 * math.sqrt(1000))


def test_permutation_moves_whole_slices_or_each_vector() -> None:
    x = np.arange(20).reshape(5, 4)
    whole = np.asarray(random.permutation(random.key(KEY), x))
    assert sorted(map(tuple, whole.tolist())) == sorted(map(tuple, x.tolist())) and not np.array_equal(whole, x)
    columns = np.asarray(random.permutation(random.key(KEY), x, axis=1))
    assert sorted(map(tuple, columns.T.tolist())) == sorted(map(tuple, x.T.tolist()))
    each = np.asarray(random.permutation(random.key(KEY), x, axis=0, independent=True))
    np.testing.assert_array_equal(np.sort(each, 0), x)
    assert len({tuple(c % 4 for c in np.argsort(each[:, j])) for j in range(4)}) > 1


def test_choice_without_replacement() -> None:
    key = random.key(KEY)
    got = np.asarray(random.choice(key, 50, (50,), replace=False))
    np.testing.assert_array_equal(np.sort(got), np.arange(50))
    weights = np.float32([0.0, 0.5, 0.5, 0.0])
    assert set(np.asarray(random.choice(key, 4, (2,), replace=False, p=weights)).tolist()) == {1, 2}
    rows = np.asarray(random.choice(key, np.arange(12).reshape(4, 3), (2,), axis=1))
    assert rows.shape == (4, 2)


# -- matrices ----------------------------------------------------------------------------------------------------
def test_multivariate_normal_has_the_covariance() -> None:
    cov = np.array([[2.0, 0.6], [0.6, 1.0]], np.float32)
    x = np.asarray(random.multivariate_normal(random.key(KEY), np.float32([1, -1]), cov, (N,))).astype(np.float64)
    np.testing.assert_allclose(x.mean(0), [1, -1], atol=0.05)
    np.testing.assert_allclose(np.cov(x.T), cov, atol=0.06)


@pytest.mark.parametrize(("n", "m"), [(4, 4), (5, 3), (3, 5)])
def test_orthogonal(n: int, m: int) -> None:
    q = np.asarray(random.orthogonal(random.key(KEY), n, (2,), m=m)).astype(np.float64)
    assert q.shape == (2, n, m)
    for a in q:
        product = a @ a.T if n < m else a.T @ a
        np.testing.assert_allclose(product, np.eye(min(n, m)), atol=1e-5)


# -- derivatives, errors -----------------------------------------------------------------------------------------
def test_what_is_drawn_is_differentiable_in_its_parameters() -> None:
    key = random.key(KEY)
    z = np.asarray(random.normal(key, (100,)))
    mean, scale = fg.grad(lambda m, s: (m + s * random.normal(key, (100,))).sum(), argnums=(0, 1))(0.5, 2.0)
    np.testing.assert_allclose([float(mean), float(scale)], [100.0, z.sum()], rtol=1e-4)
    u = np.asarray(random.uniform(key, (50,)))
    low = fg.grad(lambda a: random.uniform(key, (50,), minval=a, maxval=2.0).sum())(0.5)
    np.testing.assert_allclose(float(low), (1 - u).sum(), rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda k: random.bits(3),
            DTypeError,
            r"random.bits: a key is a uint32 array of shape \(2,\), got i32\[\]\n  way out: make one with",
        ),
        (lambda k: random.normal(random.split(k), (2,)), DTypeError, r"got u32\[2,2\]\n  way out: .* vmap"),
        (lambda k: random.key(1.5), DTypeError, "random.key: an integer seed is required, got 1.5"),
        (lambda k: random.uniform(k, dtype=int), DTypeError, "random.uniform: a float dtype is required"),
        (
            lambda k: random.randint(k, (2,), 0, 5, dtype=float),
            DTypeError,
            "random.randint: an integer dtype is required",
        ),
        (lambda k: random.fold_in(k, 1.5), DTypeError, "random.fold_in: an integer scalar is required"),
        (lambda k: random.choice(k, 3, (4,), replace=False), ValueError, "random.choice: at most 3 distinct draws"),
        (
            lambda k: random.choice(k, 3, p=np.ones(4, np.float32)),
            ShapeError,
            r"random.choice: p must have shape \(3,\)",
        ),
        (
            lambda k: random.categorical(k, np.ones((2, 3), np.float32), shape=(5,)),
            ShapeError,
            r"shape must end in \(2,\)",
        ),
        (
            lambda k: random.pareto(k, np.ones(3, np.float32), (2,)),
            ShapeError,
            r"must broadcast to shape \(2,\), got \(3,\)|shapes must be equal",
        ),
        (
            lambda k: random.multivariate_normal(k, np.ones(3, np.float32), np.eye(2, dtype=np.float32)),
            ShapeError,
            r"mean must be",
        ),
        (lambda k: fg.jit(lambda n: random.normal(k, (n,)))(3), TypeError, "a value is required"),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(random.key(0))
