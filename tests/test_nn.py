"""Modules: exact values, filters, freezing, sharing, names and errors."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from compare import close

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import io, lax, nn, optim, random
from funcgrad.errors import ShapeError, TreeError

R = np.random.default_rng(0)


# -- the softmax family ------------------------------------------------------------------------------------------
def test_rows_that_are_masked_out_are_zero_with_finite_gradients(device: str) -> None:
    x = fnp.asarray(R.normal(0, 50, (3, 4)).astype("f"))
    where = np.array([[True, False, True, True], [False] * 4, [True, False, False, False]])
    wide = np.where(where, np.asarray(x, float), -np.inf)
    with np.errstate(all="ignore"):
        want = np.nan_to_num(np.exp(wide - wide.max(1, keepdims=True)))
        want = np.nan_to_num(want / want.sum(1, keepdims=True))
    close(nn.softmax(x, where=where), want)
    weights = R.normal(size=(3, 4)).astype("f")
    g = fg.grad(lambda x: (nn.softmax(x, where=where) * weights).sum())(x)
    close(g, want * (weights - (want * weights).sum(1, keepdims=True)), 2e-5)
    assert np.asarray(nn.log_softmax(x, where=where))[1].tolist() == [-np.inf] * 4
    for f in (nn.log_softmax, nn.softmax):
        total = fg.grad(lambda x, f=f: fnp.sum(fnp.where(where, f(x, where=where), 0.0)))(x)
        assert np.isfinite(np.asarray(total)).all()
    lse = nn.logsumexp(x, axis=1, where=where)
    assert np.asarray(lse)[1] == -np.inf
    g = fg.grad(lambda x: fnp.sum(fnp.where(where.any(1), nn.logsumexp(x, axis=1, where=where), 0.0)))(x)
    close(g, want, 1e-5)


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4, 1e30])
def test_softmax_of_extreme_logits(offset: float, device: str) -> None:
    x = np.float32([0.0, 1.0, -1.0, 2.0]) * (1 if abs(offset) < 1e5 else 1e25) + np.float32(offset)
    wide = x.astype(float) - x.astype(float).max()
    want = np.exp(wide) / np.exp(wide).sum()
    close(nn.softmax(fnp.asarray(x)), want)
    close(fnp.exp(nn.log_softmax(fnp.asarray(x))), want)
    assert np.isfinite(np.asarray(fg.grad(lambda x: nn.softmax(x)[0])(fnp.asarray(x)))).all()


# -- dropout -----------------------------------------------------------------------------------------------------
def test_dropout_keeps_the_mean_and_needs_a_key(device: str) -> None:
    x = fnp.ones((200, 200))
    y = np.asarray(nn.Dropout(0.25)(x, key=random.key(0)))
    np.testing.assert_allclose(np.unique(y), [0.0, 1 / 0.75], rtol=1e-6)
    assert (y == 0).mean() == pytest.approx(0.25, abs=0.01)
    assert np.array_equal(y, nn.Dropout(0.25)(x, key=random.key(0)))
    assert nn.Dropout(0.0)(x) is x and nn.Dropout(0.5)(x, deterministic=True) is x
    with pytest.raises(ValueError, match=r"a key is required[\s\S]*deterministic"):
        nn.Dropout(0.5)(x)
    for rate in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="rate"):
            nn.Dropout(rate)


def test_sequential_gives_keys_to_what_takes_them() -> None:
    inner = nn.Sequential([nn.Dropout(0.5), nn.Linear(8, 8, key=random.key(0)), nn.relu])
    net = nn.Sequential([nn.Linear(4, 8, key=random.key(1)), inner, nn.Dropout(0.5)])
    x = fnp.ones((2, 4))
    a, b = net(x, key=random.key(2)), net(x, key=random.key(3))
    assert not np.array_equal(a, b) and np.array_equal(a, net(x, key=random.key(2)))
    plain = net(x, deterministic=True)
    hand = nn.relu(net.layers[1].layers[1](net.layers[0](x)))
    assert np.array_equal(plain, hand)
    with pytest.raises(ValueError, match="key is required"):
        net(x)


# -- trees -------------------------------------------------------------------------------------------------------
def test_dataclasses_replace_sets_fields_of_a_module_with_its_own_init() -> None:
    dropout = nn.Dropout(0.5)
    mha = nn.MultiHeadAttention(8, 2, key=random.key(0), dropout=0.5)
    changed = dataclasses.replace(mha, heads=4, dropout=nn.Dropout(0.0))
    assert (changed.heads, changed.dropout.rate, mha.heads, mha.dropout.rate) == (4, 0.0, 2, 0.5)
    assert changed.query is mha.query and dataclasses.replace(dropout, rate=0.25).rate == 0.25
    assert type(changed) is nn.MultiHeadAttention and fg.tree.structure(changed) != fg.tree.structure(mha)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'heads'"):
        nn.MultiHeadAttention(8, key=random.key(0))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        dataclasses.replace(mha, nothing=1)

    @nn.module
    class Doubled:  # whose parameters are its fields: it makes them itself
        scale: Any

        def __init__(self, scale: Any):
            object.__setattr__(self, "scale", 2 * scale)

    assert dataclasses.replace(Doubled(1.0), scale=5.0).scale == 10.0


def test_modules_are_frozen_trees_that_print() -> None:
    layer = nn.Linear(2, 3, key=random.key(0), dtype="float32")
    with pytest.raises(AttributeError):
        layer.bias = None
    assert [fg.tree.keystr(p) for p, _ in fg.tree.leaves_with_path(layer)] == [".kernel", ".bias"]
    assert repr(layer) == "Linear(kernel=f32[2,3], bias=f32[3])"
    net = nn.Sequential([layer, nn.relu, functools.partial(nn.max_pool, window=2), nn.Dropout(0.5)])
    assert repr(net) == f"Sequential([{layer!r}, relu, partial(max_pool, window=2), Dropout(rate=0.5)])"
    assert nn.count_parameters(layer) == 9
    lines = nn.summary({"net": layer}).splitlines()
    assert lines[1].split() == ["['net'].kernel", "float32[2,", "3]", "6", "24"] and lines[-1].split() == [
        "total",
        "9",
        "36",
    ]


def test_vmap_makes_an_ensemble() -> None:
    make = fg.vmap(lambda key: nn.Linear(2, 3, key=key))
    layers = make(random.split(random.key(0), 4))
    x = fnp.ones((5, 2))
    ys = fg.vmap(lambda layer: layer(x))(layers)
    for i, key in enumerate(random.split(random.key(0), 4)):
        close(ys[i], nn.Linear(2, 3, key=key)(x))


def test_partition_and_combine_with_leaves_that_are_no_arrays() -> None:
    tree = {"net": nn.Linear(2, 3, key=random.key(0)), "name": "x", "act": nn.relu, "n": 3}
    params, rest = nn.partition(tree)

    def loss(params: Any) -> Any:
        whole = nn.combine(params, rest)
        return whole["act"](whole["net"](fnp.ones((1, 2)))).sum() * whole["n"]

    g = fg.jit(fg.grad(loss))(params)
    assert fg.tree.structure(g) == fg.tree.structure(params) and len(fg.tree.leaves(g)) == 2
    back = nn.combine(params, rest)
    assert fg.tree.structure(back) == fg.tree.structure(tree) and back["name"] == "x"


def test_partition_by_a_module_of_bools_and_by_path() -> None:
    k = random.split(random.key(0))
    model = nn.Sequential([nn.Linear(2, 3, key=k[0]), nn.relu, nn.Linear(3, 1, key=k[1])])
    flags = fg.tree.map_with_path(lambda p, _: fg.tree.keystr(p).startswith(".layers[0]"), model)
    assert callable(flags)  # a Sequential of bools is still called like one
    for keep in (flags, ".layers[0]"):
        first, rest = nn.partition(model, keep)
        kept, others = [[fg.tree.keystr(p) for p, _ in fg.tree.leaves_with_path(t)] for t in (first, rest)]
        assert kept == [".layers[0].kernel", ".layers[0].bias"]
        assert others == [".layers[2].kernel", ".layers[2].bias"]
        assert fg.tree.structure(nn.combine(first, rest)) == fg.tree.structure(model)
        assert "kernel=-" in repr(rest)
    with pytest.raises(TreeError, match=r"partition: the path must exist, got '.layers\[1\]'"):
        nn.partition(model, ".layers[1]")
    with pytest.raises(TreeError, match="partition"):
        nn.partition({"a": 1.0, "b": 2.0}, {"a": True})


def net() -> Any:
    k = random.split(random.key(0))
    return {"body": nn.Linear(3, 4, key=k[0]), "head": nn.Linear(4, 1, key=k[1])}


X, Y = R.normal(size=(8, 3)).astype("f"), R.normal(size=(8, 1)).astype("f")


def loss_of(model: Any, batch: Any) -> Any:
    return ((model["head"](fnp.tanh(model["body"](batch[0]))) - batch[1]) ** 2).mean()


@pytest.mark.ggml
def test_a_train_step_of_matrices_is_gradient_descent() -> None:
    model = net()
    ts = fg.make_train_step(loss_of, optim.sgd(0.1), max_grad_norm=100.0)
    state = ts.init(model)
    w = {k: [np.asarray(x, float) for x in fg.tree.leaves(v)] for k, v in model.items()}
    for _ in range(3):
        state, metrics = ts.step(state, (X, Y))
        (a, b), (c, d) = w["body"], w["head"]
        h = np.tanh(X @ a + b)
        r = 2 * (h @ c + d - Y) / len(X)
        back = r @ c.T * (1 - h**2)
        grads = {"body": [X.T @ back, back.sum(0)], "head": [h.T @ r, r.sum(0)]}
        norm = np.sqrt(sum((g**2).sum() for gs in grads.values() for g in gs))
        close(metrics["grad_norm"], norm, 1e-5)
        w = {k: [x - 0.1 * g for x, g in zip(w[k], grads[k], strict=True)] for k in w}
    for k in w:
        for ours, want in zip(fg.tree.leaves(state.params[k]), w[k], strict=True):
            close(ours, want, 1e-5)


@pytest.mark.ggml
def test_freezing_a_subtree_by_partition_and_by_the_optimizer() -> None:
    model = net()
    flags = {k: fg.tree.map(lambda _, k=k: k == "head", v) for k, v in model.items()}
    free, fixed = nn.partition(model, flags)
    by_parts = fg.make_train_step(lambda p, b: loss_of(nn.combine(p, fixed), b), optim.adam(0.1))
    state = by_parts.init(free)
    masked = optim.chain(optim.adam(0.1), optim.freeze(fg.tree.map(lambda f: not f, flags)))
    by_mask = fg.make_train_step(loss_of, masked)
    other = by_mask.init(model)
    for _ in range(4):
        state, _ = by_parts.step(state, (X, Y))
        other, _ = by_mask.step(other, (X, Y))
    whole = nn.combine(state.params, fixed)
    for k in model:
        for a, b, start in zip(*(fg.tree.leaves(t[k]) for t in (whole, other.params, model)), strict=True):
            close(a, b, 1e-6)
            assert np.array_equal(a, start) == (k == "body")


def test_sharing_a_leaf() -> None:
    """A table used at both ends is one leaf, whose gradient is the sum of both uses'."""
    ids = fnp.asarray([1, 2, 2])

    def tied(e: Any) -> Any:
        return (e.attend(fnp.tanh(e(ids))) ** 2).sum()

    def apart(a: Any, b: Any) -> Any:
        return (b.attend(fnp.tanh(a(ids))) ** 2).sum()

    e = nn.Embedding(5, 3, key=random.key(0))
    first, second = fg.grad(apart, argnums=(0, 1))(e, e)
    close(fg.grad(tied)(e).table, np.asarray(first.table) + np.asarray(second.table), 1e-5)
    model = {"embed": e, "head": nn.Linear(3, 5, key=random.key(1), use_bias=False)}

    def shared(model: Any) -> Any:
        model = nn.replace_at(model, "['head'].kernel", model["embed"].table.T)
        return (model["head"](fnp.tanh(model["embed"](ids))) ** 2).sum()

    g = fg.grad(shared)(model)
    close(g["embed"].table, fg.grad(tied)(e).table, 1e-5)
    assert not np.asarray(g["head"].kernel).any()


def test_replacing_by_path() -> None:
    model = net()
    new = nn.replace_at(model, "['body'].bias", lambda b: b + 1)
    assert np.asarray(new["body"].bias).tolist() == [1.0] * 4 and new["body"].kernel is model["body"].kernel
    assert not np.asarray(nn.replace_at(model, "['body']", fnp.zeros_like)["body"].kernel).any()
    with pytest.raises(TreeError, match=r"must exist, got \"\['bod'\]\"[\s\S]*paths are"):
        nn.replace_at(model, "['bod']", 0.0)


def test_modules_are_saved_and_loaded_by_path(tmp_path: Any) -> None:
    model = net()
    io.save(tmp_path / "m", model)
    assert sorted(io.inspect(tmp_path / "m")) == ["body.bias", "body.kernel", "head.bias", "head.kernel"]
    other = fg.eval_shape(net)
    got = io.load(tmp_path / "m", like=other)
    assert float(loss_of(got, (X, Y))) == float(loss_of(model, (X, Y)))


# -- convolutions and errors -------------------------------------------------------------------------------------
def test_same_padding_and_strides(device: str) -> None:
    x = R.normal(size=(1, 9, 2)).astype("f")
    conv = nn.Conv1d(2, 3, 4, key=random.key(0), strides=2)
    k, padded = np.asarray(conv.kernel, float), np.pad(x.astype(float), ((0, 0), (1, 2), (0, 0)))
    want = np.stack([np.einsum("wi,wio->o", padded[0, i : i + 4], k) for i in range(0, 9, 2)])
    close(conv(fnp.asarray(x))[0], want, 1e-5)
    up = nn.ConvTranspose1d(2, 3, 4, key=random.key(0), strides=3)
    assert up(fnp.asarray(x)).shape == (1, 27, 3)


BAD = [
    (lambda: nn.Linear(3, 2, key=random.key(0))(fnp.ones((2, 4))), "Linear: the last axis must have 3"),
    (lambda: nn.LayerNorm(3)(fnp.ones((2, 1))), "LayerNorm: the last axis must have 3"),
    (lambda: nn.RMSNorm(3)(fnp.ones((2, 1))), "RMSNorm: the last axis must have 3"),
    (lambda: nn.GroupNorm(4, 3), "groups must divide"),
    (lambda: nn.GroupNorm(4, 2)(fnp.ones((2, 3))), "a multiple of 2"),
    (lambda: nn.InstanceNorm(4)(fnp.ones((2, 4))), "InstanceNorm"),
    (lambda: nn.BatchNorm(4)(fnp.ones((2, 1)), None, train=True), "BatchNorm"),
    (lambda: nn.Conv1d(4, 4, 3, key=random.key(0))(fnp.ones((2, 8, 3))), "Conv1d: rank 3 with 4 channels"),
    (lambda: nn.Conv2d(4, 4, 3, key=random.key(0))(fnp.ones((8, 8, 4))), "Conv2d: rank 4"),
    (lambda: nn.Conv2d(4, 4, (3, 3, 3), key=random.key(0)), "one value or 2"),
    (lambda: nn.Conv2d(4, 6, 3, key=random.key(0), groups=4), "groups must divide both"),
    (lambda: nn.ConvTranspose1d(4, 6, 3, key=random.key(0))(fnp.ones((2, 8, 3))), "ConvTranspose1d: rank 3 with 4"),
    (lambda: nn.max_pool(fnp.ones((2, 8, 3)), (2, 2)), "max_pool"),
    (lambda: nn.max_pool(fnp.ones((2, 8, 3)), 2), "max_pool: the window must have one size per axis"),
    (lambda: nn.avg_pool(fnp.ones((2, 8, 3)), (2,), 2), "avg_pool: the strides must have one size per axis"),
    (lambda: nn.glu(fnp.ones((2, 3))), "glu"),
    (lambda: nn.scan_cell(nn.GRUCell(2, 3, key=random.key(0)), fnp.ones((4, 2))), "scan_cell"),
    (lambda: nn.initializers.he_normal()(random.key(0), (3,)), "at least two axes"),
    (lambda: nn.sinusoidal_positions(4, 3), "must be even"),
]


@pytest.mark.parametrize(("call", "text"), BAD, ids=[t for _, t in BAD])
def test_wrong_shapes(call: Any, text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        call()


def test_initialisers_have_their_variance() -> None:
    key, shape = random.key(0), (400, 300)
    init = nn.initializers
    for make, want in (
        (init.glorot_uniform(), 2 / 700), (init.glorot_normal(), 2 / 700), (init.lecun_normal(), 1 / 400),
        (init.lecun_uniform(), 1 / 400), (init.he_uniform(), 2 / 400), (init.he_normal(), 2 / 400),
        (init.normal(0.3), 0.09), (init.uniform(0.3), 0.09 / 12),
    ):  # fmt: skip
        assert np.asarray(make(key, shape), float).var() == pytest.approx(want, rel=0.02)
    q = np.asarray(init.orthogonal(2.0)(key, (30, 20)), float)
    close(q.T @ q, 4 * np.eye(20), 2e-5)


def test_lax_scan_takes_a_cell_as_its_body(device: str) -> None:
    cell = nn.GRUCell(2, 3, key=random.key(0))
    x = R.normal(size=(4, 5, 2)).astype("f")
    h, want = np.zeros((4, 3)), []
    wx, wh = np.asarray(cell.input_kernel, float), np.asarray(cell.hidden_kernel, float)
    for t in range(5):
        (a, b, c), (d, e, f) = np.split(x[:, t] @ wx, 3, -1), np.split(h @ wh, 3, -1)
        r, z = 1 / (1 + np.exp(-(a + d))), 1 / (1 + np.exp(-(b + e)))
        h = (1 - z) * np.tanh(c + r * f) + z * h
        want.append(h)
    last, ys = fg.jit(lambda cell, x: lax.scan(cell, cell.init_carry((4,)), x))(cell, fnp.asarray(np.swapaxes(x, 0, 1)))
    close(ys, want, 1e-5)
    close(last, h, 1e-5)
