"""Functions of ``jax.nn``, initialisers, and attention against JAX; layers against Flax."""

from __future__ import annotations

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import nn, random

jax = pytest.importorskip("jax")
jnp = jax.numpy

R = np.random.default_rng(0)
X = np.concatenate([R.normal(0, 2, 40), [0.0, 1e-3, -1e-3, 6.5, -6.5, 30.0, -30.0, 100.0, -100.0]]).astype("f")

POINTWISE = {
    "relu": {},
    "relu6": {},
    "sigmoid": {},
    "tanh": {},
    "silu": {},
    "swish": {},
    "gelu": {},
    "softplus": {},
    "log_sigmoid": {},
    "soft_sign": {},
    "elu": {},
    "celu": {},
    "selu": {},
    "leaky_relu": {},
    "hard_tanh": {},
    "hard_sigmoid": {},
    "hard_swish": {},
    "hard_silu": {},
    "mish": {},
    "squareplus": {},
    "identity": {},
    "sparse_plus": {},
    "sparse_sigmoid": {},
}
CASES = list(POINTWISE.items())
CASES += [
    ("gelu", {"approximate": False}),
    ("elu", {"alpha": 0.5}),
    ("celu", {"alpha": 2.0}),
    ("leaky_relu", {"negative_slope": 0.3}),
    ("squareplus", {"b": 0.5}),
]


def close(a, b, rtol=2e-6, atol=1e-6):
    np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_activations(name, kwargs, device):
    ours, theirs = (lambda x: getattr(nn, name)(x, **kwargs)), (lambda x: getattr(jax.nn, name)(x, **kwargs))
    x = X[X != 0] if name in ("relu6", "hard_tanh") else X
    close(ours(fnp.asarray(x)), theirs(x))
    close(fg.jit(ours)(fnp.asarray(x)), theirs(x))
    for a in (0, 1):
        f, g = ours, theirs
        for _ in range(a + 1):
            f, g = fg.grad(lambda x, f=f: f(x).sum()), jax.grad(lambda x, g=g: g(x).sum())
        kinks = x == 0 if a == 1 and name in ("celu", "soft_sign") else np.zeros(x.shape, bool)  # JAX's choice there
        ours_at, theirs_at = np.asarray(f(fnp.asarray(x))), np.asarray(g(x))
        close(ours_at[~kinks], theirs_at[~kinks], 1e-5, 1e-5)


@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "standardize", "logmeanexp"])
def test_reductions_of_jax_nn(name, axis, device):
    x = R.normal(0, 3, (3, 4, 5)).astype("f")
    weights = R.normal(size=(3, 4, 5)).astype("f")

    def of(lib, f):
        def g(x):
            y = f(x, axis=axis)
            w = weights if y.shape == weights.shape else 1.0
            return (y * w).sum()

        return f(lib.asarray(x), axis=axis), g

    a, f = of(fnp, getattr(nn, name))
    b, g = of(jnp, getattr(jax.nn, name))
    close(a, b, 1e-5)
    close(fg.grad(f)(fnp.asarray(x)), jax.grad(g)(x), 3e-5, 3e-6)


def test_masks_of_softmax(device):
    x = R.normal(0, 3, (4, 5)).astype("f")
    where = R.random((4, 5)) < 0.6
    where[0] = True
    where[1] = [True, False, False, False, False]
    a = nn.softmax(fnp.asarray(x), where=where)
    b = jax.nn.softmax(x, where=where)
    close(a, b)
    c = fg.grad(lambda x: (nn.softmax(x, where=where) ** 2).sum())(fnp.asarray(x))
    d = jax.grad(lambda x: (jax.nn.softmax(x, where=where) ** 2).sum())(x)
    close(c, d)


def test_one_hot_and_glu(device):
    ids = np.array([[0, 2], [5, -1]])
    close(nn.one_hot(ids, 3), jax.nn.one_hot(ids, 3))
    close(nn.one_hot(ids, 3, axis=0), jax.nn.one_hot(ids, 3, axis=0))
    x = R.normal(size=(4, 6)).astype("f")
    for axis in (0, 1):
        close(nn.glu(fnp.asarray(x), axis), jax.nn.glu(x, axis))


def test_log1mexp(device):
    x = np.float32([1e-6, 1e-3, 0.1, 0.6931, 0.7, 1.0, 5.0, 50.0])
    close(nn.log1mexp(fnp.asarray(x)), np.log(-np.expm1(-x.astype(float))), 2e-6)
    close(fg.grad(lambda x: nn.log1mexp(x).sum())(fnp.asarray(x)), 1 / np.expm1(x.astype(float)), 3e-6)


# -- initialisers ------------------------------------------------------------------------------------------------
I, J = nn.initializers, jax.nn.initializers
SHAPES = [(3, 5), (64, 32), (3, 3, 4, 6)]
INITS = {
    "zeros": lambda m: m.zeros,
    "ones": lambda m: m.ones,
    "constant": lambda m: m.constant(0.3),
    "uniform": lambda m: m.uniform(0.2),
    "normal": lambda m: m.normal(0.2),
    "truncated_normal": lambda m: m.truncated_normal(0.2),
    "truncated_normal limits": lambda m: m.truncated_normal(0.2, lower=-1.0, upper=3.0),
    **{
        n: (lambda m, n=n: getattr(m, n)())
        for n in [
            "glorot_uniform",
            "glorot_normal",
            "lecun_uniform",
            "lecun_normal",
            "he_uniform",
            "he_normal",
            "xavier_uniform",
            "xavier_normal",
            "kaiming_uniform",
            "kaiming_normal",
        ]
    },
    "variance fan_out": lambda m: m.variance_scaling(2.0, "fan_out", "normal"),
    "variance axes": lambda m: m.variance_scaling(1.5, "fan_avg", "uniform", in_axis=-1, out_axis=-2),
    "variance geometric": lambda m: m.variance_scaling(1.5, "fan_geo_avg", "truncated_normal"),
    "variance batch": lambda m: m.variance_scaling(1.5, "fan_in", "uniform", 0, 1, batch_axis=()),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", INITS)
def test_initialisers_are_jaxs(name, shape):
    ours = np.asarray(INITS[name](I)(random.key(3), shape))
    theirs = np.asarray(INITS[name](J)(jax.random.key(3), shape))
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    if "normal" in name or "variance" in name:  # the inverse error function differs in its last bits
        close(ours, theirs, 4e-6, 1e-7)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1.2e-7, atol=0)


@pytest.mark.parametrize(("shape", "axis"), [((4, 4), -1), ((6, 3), -1), ((3, 6), -1), ((2, 3, 4), 0)])
def test_orthogonal_is_jaxs(shape, axis):
    ours = np.asarray(I.orthogonal(1.5, axis)(random.key(3), shape))
    theirs = np.asarray(J.orthogonal(1.5, axis)(jax.random.key(3), shape))
    close(ours, theirs, 1e-5, 1e-5)


def test_delta_orthogonal_is_jaxs():
    ours = np.asarray(I.delta_orthogonal(1.5)(random.key(3), (3, 3, 4, 6)))
    close(ours, J.delta_orthogonal(1.5)(jax.random.key(3), (3, 3, 4, 6)), 1e-5, 1e-5)


# -- attention ---------------------------------------------------------------------------------------------------
ATTENTION = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.7},
    "bias": {"bias": R.normal(size=(2, 4, 5, 7)).astype("f")},
    "mask": {"mask": np.arange(7)[None, None, None] < np.array([3, 7])[:, None, None, None]},
    "causal and mask": {"is_causal": True, "mask": np.arange(7) != 1},
    "lengths": {"key_value_seq_lengths": np.int32([3, 7]), "query_seq_lengths": np.int32([5, 2])},
    "window": {"local_window_size": (2, 1)},
}


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name, kv_heads, device):
    kwargs = ATTENTION[name]
    q = R.normal(size=(2, 5, 4, 6)).astype("f")
    k, v = R.normal(size=(2, 2, 7, kv_heads, 6)).astype("f")
    w = R.normal(size=(2, 5, 4, 6)).astype("f")
    if name == "lengths":
        w[1, 2:] = 0  # beyond a query's length JAX's rows are means, ours are zeros

    def of(f):
        return lambda q, k, v: (f(q, k, v, **kwargs) * w).sum()

    a, b = (
        nn.dot_product_attention(*map(fnp.asarray, (q, k, v)), **kwargs),
        jax.nn.dot_product_attention(q, k, v, **kwargs),
    )
    close(a * w, b * w, 1e-5, 2e-6)
    ours = fg.grad(of(nn.dot_product_attention), argnums=(0, 1, 2))(*map(fnp.asarray, (q, k, v)))
    theirs = jax.grad(of(jax.nn.dot_product_attention), argnums=(0, 1, 2))(q, k, v)
    for x, y in zip(ours, theirs, strict=True):
        close(x, y, 1e-5, 1e-5)
