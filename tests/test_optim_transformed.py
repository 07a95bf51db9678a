"""Optimizers inside the transformations: donated, scanned over, mapped, differentiated; and an optax user's program."""

from __future__ import annotations

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
import funcgrad.optim as optax
from funcgrad import lax, optim, tree

OPTIMIZERS = {
    "sgd": lambda rate: optim.sgd(rate, momentum=0.9, nesterov=True),
    "adamw": lambda rate: optim.adamw(rate, weight_decay=0.1),
    "amsgrad": optim.amsgrad,
    "radam": optim.radam,
    "adan": optim.adan,
    "rmsprop": lambda rate: optim.rmsprop(rate, centered=True, eps=0.1, momentum=0.5, bias_correction=True),
    "adagrad": optim.adagrad,
    "adadelta": optim.adadelta,
    "adafactor": lambda rate: optim.adafactor(rate, min_dim_size_to_factor=2),
    "lamb": optim.lamb,
    "lion": optim.lion,
    "novograd": optim.novograd,
    "muon": optim.muon,
    "lbfgs": lambda rate: optim.lbfgs(rate, linesearch=None),
    "schedule_free": lambda rate: optim.schedule_free_adamw(rate),
    "optimistic": optim.optimistic_gradient_descent,
    "inject": lambda rate: optim.inject_hyperparams(optim.adam)(rate),
    "multi": lambda rate: optim.MultiSteps(optim.adam(rate), 2).gradient_transformation(),
    "finite": lambda rate: optim.apply_if_finite(optim.adam(rate), 2),
    "clipped": lambda rate: optim.chain(optim.clip_by_global_norm(0.5), optim.adam(rate)),
    "flat": lambda rate: optim.flatten(optim.adam(rate)),
    "schedule": lambda rate: optim.adam(optim.warmup_cosine_decay_schedule(0.0, rate, 2, 8)),
    "partition": lambda rate: optim.partition({"a": optim.adam(rate), "b": optim.set_to_zero()}, {"w": "a", "b": "b"}),
}


def make(seed=0):
    r = np.random.default_rng(seed)
    return {"w": fnp.asarray(r.normal(0, 1, (3, 4)).astype("f")), "b": fnp.asarray(r.normal(0, 1, 4).astype("f"))}


def loss(params, x):
    return fnp.mean(fnp.square(fnp.tanh(x @ params["w"] + params["b"]) - 0.5))


def batches(steps):
    return np.random.default_rng(9).normal(0, 1, (steps, 5, 3)).astype("f")


def one_step(opt):
    def step(params, state, x):
        updates, state = opt.update(fg.grad(loss)(params, x), state, params)
        return optim.apply_updates(params, updates), state

    return step


def plain(opt, steps):
    params = make()
    state, step = opt.init(params), one_step(opt)
    for x in batches(steps):
        params, state = step(params, state, fnp.asarray(x))
    return params, state


def assert_same(got, want, rtol=2e-5):
    assert tree.structure(got) == tree.structure(want)
    for a, b in zip(tree.leaves(got), tree.leaves(want), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=2e-6)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_donated_and_jitted(name):
    """The state is donated from its first value on, and one trace serves all steps (a second would warn)."""
    opt = OPTIMIZERS[name](0.05)
    step = fg.jit(one_step(opt), donate_argnums=(0, 1), max_traces=1)
    params = make()
    state = opt.init(params)
    for x in batches(6):
        params, state = step(params, state, fnp.asarray(x))
    assert_same((params, state), plain(opt, 6), 2e-3 if name == "muon" else 2e-5)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_scanned_over(name):
    """A loop carries the state, so its types must not change from one step to the next."""
    opt = OPTIMIZERS[name](0.05)
    step = one_step(opt)

    @fg.jit
    def train(params, xs):
        return lax.scan(lambda carry, x: (step(*carry, x), None), (params, opt.init(params)), xs)[0]

    assert_same(train(make(), fnp.asarray(batches(6))), plain(opt, 6), 2e-3 if name == "muon" else 2e-5)


@pytest.mark.parametrize("name", ["sgd", "adamw", "radam", "adafactor", "lion", "clipped", "multi", "inject"])
def test_mapped_over_an_ensemble(name):
    """Three models trained as one batch are three models trained apart."""
    opt = OPTIMIZERS[name](0.05)
    models = [make(seed) for seed in range(3)]
    stacked = tree.map(lambda *leaves: fnp.stack(leaves), *models)
    states = fg.vmap(opt.init)(stacked)
    step = fg.vmap(one_step(opt), in_axes=(0, 0, None))
    for x in batches(3):
        stacked, states = step(stacked, states, fnp.asarray(x))
    for i, params in enumerate(models):
        state = opt.init(params)
        for x in batches(3):
            params, state = one_step(opt)(params, state, fnp.asarray(x))
        assert_same(tree.map(lambda leaf, i=i: leaf[i], (stacked, states)), (params, state))


@pytest.mark.parametrize("name", ["sgd", "adamw", "rmsprop", "adagrad", "lamb", "clipped"])
def test_gradient_through_training(name):
    """The derivative of the final loss with respect to the learning rate equals a central difference."""

    def final(rate):
        opt = OPTIMIZERS[name](rate)
        params = make()
        state = opt.init(params)
        for x in batches(3):
            params, state = one_step(opt)(params, state, fnp.asarray(x))
        return loss(params, fnp.asarray(batches(1)[0]))

    rate, h = 0.1, 0.01
    slope = (float(final(fnp.asarray(rate + h))) - float(final(fnp.asarray(rate - h)))) / (2 * h)
    assert float(fg.grad(final)(fnp.asarray(rate))) == pytest.approx(slope, rel=2e-2, abs=2e-4)


def test_a_program_written_for_optax():
    """Only its imports differ: least squares, with what an optax program usually has."""
    r = np.random.default_rng(0)
    truth = np.array([1.0, -2.0, 0.5], np.float32)
    x = r.normal(0, 1, (64, 3)).astype("f")
    y = x @ truth

    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 20, 300)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate=schedule))
    params = {"w": fnp.zeros(3)}
    opt_state = optimizer.init(params)

    def loss_fn(params, x, y):
        return optax.l2_loss(x @ params["w"], y).mean()

    @fg.jit
    def train_step(params, opt_state, x, y):
        value, grads = fg.value_and_grad(loss_fn)(params, x, y)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    for _ in range(300):
        params, opt_state, value = train_step(params, opt_state, fnp.asarray(x), fnp.asarray(y))
    np.testing.assert_allclose(np.asarray(params["w"]), truth, atol=1e-3)
    assert float(value) < 1e-6
    assert int(optax.tree_utils.tree_get(opt_state[1], "mu")["w"].shape[0]) == 3
    assert float(optax.tree_utils.tree_l2_norm(params)) == pytest.approx(np.linalg.norm(truth), rel=1e-3)


def test_lbfgs_in_float64():
    matrix = np.diag([1.0, 10.0, 100.0])
    with fg.default_device("numpy"):
        a = fnp.asarray(matrix, dtype=fnp.float64)
        f = lambda x: 0.5 * x @ (a @ x) - fnp.sum(x)
        params = fnp.zeros(3, dtype=fnp.float64)
        opt = optim.lbfgs()
        state = opt.init(params)
        for _ in range(15):
            value, grad = fg.value_and_grad(f)(params)
            updates, state = opt.update(grad, state, params, value=value, grad=grad, value_fn=f)
            params = optim.apply_updates(params, updates)
    np.testing.assert_allclose(np.asarray(params), [1.0, 0.1, 0.01], rtol=1e-12)
