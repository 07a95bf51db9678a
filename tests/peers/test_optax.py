"""Every optimizer, schedule and loss against optax, which is computed in float64 so that it is the truth.

Skipped only where JAX and optax are not installed.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import losses, optim, tree

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
contrib = pytest.importorskip("optax.contrib")

STEPS = 100


def make_params(seed=0):
    r = np.random.default_rng(seed)
    shapes = {"w": (7, 5), "b": (5,), "deep": {"kernel": (2, 3, 4), "gain": ()}}
    return tree.map(
        lambda shape: r.normal(0, 1, shape).astype(np.float32), shapes, is_leaf=lambda s: isinstance(s, tuple)
    )


def make_grads(params, step):
    """Gradients that do not depend on the parameters, so that two runs cannot drift apart through them."""
    r = np.random.default_rng(1000 + step)
    return jax.tree.map(lambda p: (r.normal(0, 1, p.shape) * np.exp(r.normal(0, 1))).astype(np.float32), params)


def run_ours(opt, params, steps=STEPS, extra=None):
    @fg.jit
    def step(params, state, grads, extra):
        updates, state = opt.update(grads, state, params, **extra)
        return optim.apply_updates(params, updates), state, updates

    params = tree.map(fnp.asarray, params)
    state, trail = opt.init(params), []
    for i in range(steps):
        grads = tree.map(fnp.asarray, make_grads(params, i))
        more = {} if extra is None else {k: fnp.asarray(np.float32(v)) for k, v in extra(i).items()}
        params, state, updates = step(params, state, grads, more)
        trail.append([np.asarray(u) for u in tree.leaves(updates)])
    return [np.asarray(p) for p in tree.leaves(params)], trail, state


def run_optax(opt, params, steps=STEPS, extra=None):
    with jax.enable_x64(True):

        @jax.jit
        def step(params, state, grads, extra):
            updates, state = opt.update(grads, state, params, **extra)
            return optax.apply_updates(params, updates), state, updates

        double = lambda t: jax.tree.map(lambda x: jax.numpy.asarray(x, "float64"), t)
        start, params = params, double(params)
        state, trail = opt.init(params), []
        for i in range(steps):
            more = {} if extra is None else {k: jax.numpy.asarray(v, "float64") for k, v in extra(i).items()}
            params, state, updates = step(params, state, double(make_grads(start, i)), more)
            trail.append([np.asarray(u) for u in jax.tree.leaves(updates)])
        return [np.asarray(p) for p in jax.tree.leaves(params)], trail, state


def worst(ours, theirs):
    """The largest error relative to the size of each leaf."""
    return max(
        float(np.max(np.abs(np.asarray(a, np.float64) - b)) / (np.sqrt(np.mean(np.square(b))) + 1e-30))
        for a, b in zip(ours, theirs, strict=True)
    )


def compare(ours, theirs, *, tol=5e-6, steps=STEPS, extra=None, params=None):
    """Final parameters and every update, each leaf's error relative to its largest update (or parameter)."""
    params = make_params() if params is None else params
    end, trail, _ = run_ours(ours, params, steps, extra)
    end64, trail64, _ = run_optax(theirs, params, steps, extra)
    assert worst(end, end64) < tol * 4
    for ours, theirs in zip(zip(*trail, strict=True), zip(*trail64, strict=True), strict=True):
        error = np.max([np.max(np.abs(a - b)) for a, b in zip(ours, theirs, strict=True)])
        assert error <= tol * np.max([np.max(np.abs(b)) for b in theirs])


MASK = {"w": True, "b": False, "deep": {"kernel": True, "gain": False}}
RATE = 0.01

CASES = {
    "sgd": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}],
    "adam": [{}, {"b1": 0.8, "b2": 0.95, "eps": 1e-3}, {"eps_root": 1e-4}, {"nesterov": True}, {"b1": 0.0}],
    "adamw": [{}, {"weight_decay": 0.1, "mask": MASK}, {"weight_decay": 0.1, "nesterov": True}],
    "nadam": [{}],
    "nadamw": [{}, {"weight_decay": 0.1}],
    "radam": [{}, {"b2": 0.9}, {"threshold": 4.5, "nesterov": True}],
    "rmsprop": [
        {},
        {"eps_in_sqrt": False, "decay": 0.8},
        {"centered": True, "eps": 1e-2},
        {"momentum": 0.9, "nesterov": True},
        {"bias_correction": True, "initial_scale": 0.1},
        {"centered": True, "bias_correction": True, "eps": 1e-2, "momentum": 0.5, "eps_in_sqrt": True},
    ],
    "adagrad": [{}, {"initial_accumulator_value": 0.0, "eps": 1e-5}],
    "adafactor": [
        {},
        {"min_dim_size_to_factor": 2},
        {"min_dim_size_to_factor": 3, "decay_rate": 0.5, "clipping_threshold": None},
        {"multiply_by_parameter_scale": False, "momentum": 0.9},
        {"weight_decay_rate": 1e-2, "factored": False, "weight_decay_mask": MASK},
    ],
    "lamb": [{}, {"weight_decay": 0.1, "mask": MASK, "eps_root": 1e-5}],
    "lars": [{}, {"weight_decay": 0.1, "weight_decay_mask": MASK, "trust_ratio_mask": MASK, "nesterov": True}],
    "lion": [{}, {"b1": 0.95, "b2": 0.98, "weight_decay": 0.1, "mask": MASK}],
    "adadelta": [{}, {"rho": 0.8, "eps": 1e-4, "weight_decay": 0.1, "weight_decay_mask": MASK}],
    "adamax": [{}, {"b1": 0.8, "b2": 0.9, "eps": 1e-3}],
    "adamaxw": [{}, {"weight_decay": 0.1, "mask": MASK}],
    "amsgrad": [{}, {"bias_correction_mu": False}, {"bias_correction_nu": False, "b2": 0.9, "eps_root": 1e-5}],
    "adabelief": [{}, {"eps": 1e-8, "eps_root": 1e-8}, {"nesterov": True}],
    "yogi": [{}, {"b1": 0.8, "b2": 0.99, "eps": 1e-2}],
    "novograd": [{}, {"weight_decay": 0.1, "b1": 0.95, "b2": 0.5}],
    "adan": [{}, {"weight_decay": 0.1, "mask": MASK, "b3": 0.95}],
    "sign_sgd": [{}],
    "signum": [{}, {"beta": 0.5}],
    "fromage": [{}],
    "optimistic_gradient_descent": [{}, {"alpha": 0.5, "beta": 0.8}],
}


@pytest.mark.parametrize(
    ("name", "options"), [pytest.param(n, o, id=f"{n}-{i}") for n, many in CASES.items() for i, o in enumerate(many)]
)
def test_optimizer(name, options):
    # a centred second moment is a difference of two nearly equal numbers
    tol = 1e-3 if options.get("centered") else 5e-6
    compare(getattr(optim, name)(RATE, **options), getattr(optax, name)(RATE, **options), tol=tol)


@pytest.mark.parametrize("name", sorted(CASES))
def test_optimizer_with_a_schedule(name):
    ours = getattr(optim, name)(optim.cosine_decay_schedule(0.05, 60, 0.1))
    compare(ours, getattr(optax, name)(optax.cosine_decay_schedule(0.05, 60, 0.1)))


@pytest.mark.parametrize("name", sorted(CASES))
def test_signature(name):
    """Argument names, order and defaults are optax's."""
    ours, theirs = (inspect.signature(getattr(m, name)).parameters for m in (optim, optax))
    assert list(ours) == list(theirs)
    for key in ours:
        if not key.startswith("dtype"):
            assert ours[key].default == theirs[key].default or key in ("key",), key


MUON = [
    {},
    {"nesterov": False, "ns_steps": 3},
    {"weight_decay": 0.1, "adaptive": True},
    {"ns_coeffs": "dion", "consistent_rms": 0.2},
    {"preconditioning": "aol", "adam_learning_rate": 0.02, "adam_weight_decay": 0.1},
    {"preconditioning": "schatten"},
    {"preconditioning": "spectral"},
]


def muon_params():
    """Well conditioned matrices: the polynomial of the iteration magnifies rounding along weak directions."""
    r = np.random.default_rng(3)
    return {"w": r.normal(0, 1, (4, 6)).astype(np.float32), "v": np.eye(5, 3, dtype=np.float32), "b": np.ones(3, "f")}


@pytest.mark.parametrize("options", MUON, ids=[str(i) for i in range(len(MUON))])
def test_muon(options):
    compare(optim.muon(RATE, **options), contrib.muon(RATE, **options), params=muon_params(), tol=2e-3)


def test_muon_dimension_numbers():
    def numbers(module):
        return lambda params: {
            "w": module.MuonDimensionNumbers((0, 1), 2),
            "b": None,
            "e": module.MuonDimensionNumbers(2, 1),
        }

    r = np.random.default_rng(3)
    params = {k: r.normal(0, 1, s).astype(np.float32) for k, s in (("w", (2, 3, 4)), ("b", (4, 3)), ("e", (3, 4, 5)))}
    ours = optim.muon(RATE, muon_weight_dimension_numbers=numbers(optim))
    compare(ours, contrib.muon(RATE, muon_weight_dimension_numbers=numbers(contrib)), params=params, tol=2e-3)


SCHEDULE_FREE = [
    ("schedule_free_sgd", {"learning_rate": 0.1}),
    ("schedule_free_sgd", {"learning_rate": 0.1, "warmup_steps": 10, "weight_decay": 0.1, "b1": 0.8}),
    ("schedule_free_adamw", {"learning_rate": 0.01}),
    ("schedule_free_adamw", {"learning_rate": 0.01, "warmup_steps": 20, "weight_decay": 0.1, "weight_lr_power": 1.0}),
]


@pytest.mark.parametrize(("name", "options"), SCHEDULE_FREE)
def test_schedule_free(name, options):
    ours, theirs = getattr(optim, name)(**options), getattr(contrib, name)(**options)
    params = make_params()
    end, _, state = run_ours(ours, params)
    end64, _, state64 = run_optax(theirs, params)
    assert worst(end, end64) < 2e-5
    averaged = optim.schedule_free_eval_params(state, tree.unflatten(tree.structure(params), [*map(fnp.asarray, end)]))
    with jax.enable_x64(True):
        structure = jax.tree.structure(params)
        theirs64 = contrib.schedule_free_eval_params(state64, jax.tree.unflatten(structure, end64))
    assert worst(tree.leaves(averaged), [np.asarray(x) for x in jax.tree.leaves(theirs64)]) < 2e-5


def chains(m, c):
    """The same wrappers from either library."""
    labels = {"w": "a", "b": "b", "deep": {"kernel": "a", "gain": "c"}}
    return {
        "chain": m.chain(m.add_decayed_weights(0.1), m.trace(0.9), m.scale(-0.1)),
        "masked": m.chain(m.masked(m.adam(0.1), MASK), m.masked(m.sgd(0.1), lambda t: jax.tree.map(lambda x: True, t))),
        "prefix": m.chain(m.masked(m.adam(0.1), {"w": False, "b": True, "deep": True}), m.scale(0.5)),
        "partition": m.partition({"a": m.adam(0.1), "b": m.sgd(0.1, momentum=0.9), "c": m.set_to_zero()}, labels),
        "freeze": m.chain(m.adamw(0.1), m.freeze(MASK)),
        "ema": m.chain(m.ema(0.9), m.scale(-0.1)),
        "ema raw": m.chain(m.ema(0.9, debias=False), m.scale(-0.1)),
        "clip": m.chain(m.clip(0.3), m.sgd(0.1)),
        "block": m.chain(m.clip_by_block_rms(0.3), m.sgd(0.1)),
        "agc": m.chain(m.adaptive_grad_clip(0.1), m.sgd(0.1)),
        "zero_nans": m.chain(m.zero_nans(), m.sgd(0.1)),
        "apply_if_finite": m.apply_if_finite(m.adam(0.1), 3),
        "multi": m.MultiSteps(m.adamw(0.1, weight_decay=0.1), 4).gradient_transformation(),
        "multi sum": m.MultiSteps(m.adam(0.1), 3, use_grad_mean=False).gradient_transformation(),
        "multi schedule": m.MultiSteps(m.adam(0.1), lambda count: 1 + count // 5).gradient_transformation(),
        "inject": m.inject_hyperparams(m.adamw)(m.exponential_decay(0.1, 10, 0.5), weight_decay=0.1),
        "flatten": m.flatten(m.adam(0.1)),
        "stddev": m.chain(m.scale_by_stddev(0.9, eps=1.0), m.scale(-0.1)),
        "block norm": m.chain(m.scale_by_param_block_norm(), m.scale(-0.01)),
        "block rms": m.chain(m.scale_by_param_block_rms(), m.scale(-0.01)),
        "trust": m.chain(m.scale_by_trust_ratio(0.1, 0.5, 1e-3), m.scale(-0.01)),
        "decay schedule": m.chain(m.add_decayed_weights(m.linear_schedule(0.0, 1.0, 50)), m.sgd(0.1)),
        "centralize": m.chain(m.centralize(), m.sgd(0.1)),
        "normalize": m.chain(m.normalize_by_update_norm(2.0), m.sgd(0.1)),
        "nonnegative": m.chain(m.sgd(0.1), m.keep_params_nonnegative()),
        "named": m.named_chain(("first", m.trace(0.9)), ("then", m.scale(-0.1))),
        "conditional": m.conditionally_transform(m.sgd(0.1, momentum=0.9), lambda step: step % 3 == 0),
        "conditional mask": m.conditionally_mask(m.adam(0.1), lambda step: step % 3 != 0),
        "polyak": m.polyak_sgd(0.5, 0.3, 0.1, variant="sps+"),
        "lion smooth": m.chain(m.scale_by_lion(mode="smooth"), m.scale(-0.1)),
        "lion refined": m.chain(m.scale_by_lion(mode="refined"), m.scale(-0.1)),
        "plateau": m.chain(m.sgd(0.1), c.reduce_on_plateau(0.5, patience=3, cooldown=2, min_scale=0.1)),
        "plateau mean": m.chain(m.sgd(0.1), c.reduce_on_plateau(0.5, patience=2, accumulation_size=3, rtol=1e-2)),
    }


@pytest.mark.parametrize("name", sorted(chains(optax, contrib)))
def test_wrappers(name):
    values = np.random.default_rng(5).normal(1, 0.2, STEPS) + np.linspace(1, 0, STEPS)
    extra = (lambda i: {"value": values[i]}) if name.startswith(("plateau", "polyak")) else None
    compare(chains(optim, optim)[name], chains(optax, contrib)[name], extra=extra)


def test_lookahead():
    params = make_params()
    for reset in (False, True):
        ours = optim.lookahead(optim.adam(0.1), 5, 0.4, reset_state=reset)
        theirs = optax.lookahead(optax.adam(0.1), 5, 0.4, reset_state=reset)
        p = optim.LookaheadParams.init_synced(tree.map(fnp.asarray, params))
        q = optax.LookaheadParams.init_synced(params)
        s, t = ours.init(p), theirs.init(q)
        for i in range(30):
            grads = make_grads(params, i)
            u, s = ours.update(tree.map(fnp.asarray, grads), s, p)
            v, t = theirs.update(grads, t, q)
            p, q = optim.apply_updates(p, u), optax.apply_updates(q, v)
        assert worst(tree.leaves(p), [np.asarray(x) for x in jax.tree.leaves(q)]) < 1e-4


def test_per_example_clip():
    r = np.random.default_rng(0)
    grads = {"a": r.normal(0, 1, (8, 3)).astype("f"), "b": r.normal(0, 1, (8,)).astype("f")}
    ours, count = optim.per_example_global_norm_clip(tree.map(fnp.asarray, grads), 1.5)
    theirs, count64 = optax.per_example_global_norm_clip(grads, 1.5)
    assert int(count) == int(count64)
    assert worst(tree.leaves(ours), [np.asarray(x) for x in jax.tree.leaves(theirs)]) < 1e-5


def test_clip_by_global_norm_differs_by_its_epsilon_only():
    params, ours, theirs = make_params(), optim.clip_by_global_norm(1.0), optax.clip_by_global_norm(1.0)
    for i in range(20):
        grads = make_grads(params, i)
        u, _ = ours.update(tree.map(fnp.asarray, grads), ())
        v, _ = theirs.update(grads, ())
        assert worst(tree.leaves(u), [np.asarray(x) for x in jax.tree.leaves(v)]) < 3e-6


def schedules(m):
    cycle = {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 3, "decay_steps": 10, "end_value": 0.1}
    return {
        "constant": m.constant_schedule(0.3),
        "linear": m.linear_schedule(1.0, 0.1, 20, 5),
        "polynomial": m.polynomial_schedule(1.0, 0.1, 2.5, 20, 5),
        "exponential": m.exponential_decay(1.0, 7, 0.5),
        "exponential all": m.exponential_decay(1.0, 7, 0.5, 4, True, 0.2),
        "exponential up": m.exponential_decay(1.0, 7, 2.0, 4, False, 3.0),
        "piecewise": m.piecewise_constant_schedule(1.0, {5: 0.5, 20: 0.1}),
        "interpolate": m.piecewise_interpolate_schedule("linear", 1.0, {5: 2.0, 20: 0.1, 30: 0.0}),
        "interpolate cosine": m.piecewise_interpolate_schedule("cosine", 1.0, {5: 2.0, 20: 0.1}),
        "cosine": m.cosine_decay_schedule(1.0, 30, 0.1, 2.0),
        "cosine plain": m.cosine_decay_schedule(0.5, 30),
        "onecycle": m.cosine_onecycle_schedule(40, 2.0),
        "onecycle all": m.cosine_onecycle_schedule(40, 2.0, 0.2, 10.0, 100.0),
        "onecycle linear": m.linear_onecycle_schedule(40, 2.0),
        "onecycle linear all": m.linear_onecycle_schedule(40, 2.0, 0.2, 0.7, 10.0, 100.0),
        "warmup": m.warmup_constant_schedule(0.1, 1.0, 10),
        "warmup cosine": m.warmup_cosine_decay_schedule(0.1, 1.0, 10, 40, 0.05, 1.5),
        "warmup exponential": m.warmup_exponential_decay_schedule(0.0, 1.0, 5, 10, 0.5, 3, False, 0.1),
        "sgdr": m.sgdr_schedule([cycle, {**cycle, "decay_steps": 20}, cycle]),
        "join": m.join_schedules([m.constant_schedule(0.5), m.linear_schedule(1.0, 0.0, 10)], [7]),
    }


@pytest.mark.parametrize("name", sorted(schedules(optax)))
def test_schedule(name):
    ours, theirs = schedules(optim)[name], schedules(optax)[name]
    jitted = fg.jit(lambda t: fnp.asarray(ours(t), dtype=fnp.float32))
    for t in range(60):
        with jax.enable_x64(True):
            want = float(theirs(jax.numpy.asarray(t)))
        for got in (ours(t), ours(fnp.asarray(t)), ours(fnp.asarray(float(t))), jitted(fnp.asarray(t))):
            assert float(got) == pytest.approx(want, rel=3e-6, abs=1e-6), t


def loss_cases(m, a):
    r = np.random.default_rng(0)
    x, y = a(r.normal(0, 3, (6, 5))), a(r.normal(0, 3, (6, 5)))
    p = r.dirichlet(np.ones(5), 6)
    hard, ids = a(np.eye(5)[r.integers(0, 5, 6)]), r.integers(0, 5, 6).astype(np.int32)
    bits, mask = a(r.integers(0, 2, (6, 5))), r.random((6, 5)) > 0.4
    log_p, soft = a(np.log(r.dirichlet(np.ones(5), 6))), a(p)
    zeros = a(np.where(p < 0.1, 0.0, p))
    frames = np.zeros((3, 9), np.float32)
    frames[1, 6:] = 1
    words, ends = (
        np.array([[1, 2, 2], [3, 1, 0], [2, 0, 0]], np.int32),
        np.array([[0, 0, 0], [0, 0, 1], [0, 1, 1]], "f"),
    )
    logits, images = a(r.normal(0, 2, (3, 9, 4))), a(r.normal(0, 1, (2, 4, 4, 3)))
    segments = a(np.eye(3)[r.integers(0, 3, (2, 4, 4))])
    return {
        "squared_error": lambda: m.squared_error(x, y),
        "l2_loss": lambda: m.l2_loss(x, y),
        "l2_loss alone": lambda: m.l2_loss(x),
        "huber_loss": lambda: m.huber_loss(x, y, delta=1.5),
        "log_cosh": lambda: m.log_cosh(x, y),
        "cosine_similarity": lambda: m.cosine_similarity(x, y),
        "cosine_distance": lambda: m.cosine_distance(x, y, axis=0, epsilon=1e-6),
        "cosine_distance where": lambda: m.cosine_distance(x, y, where=mask),
        "softmax_cross_entropy": lambda: m.softmax_cross_entropy(x, soft),
        "softmax_cross_entropy axis": lambda: m.softmax_cross_entropy(x, soft, axis=0),
        "softmax_cross_entropy where": lambda: m.softmax_cross_entropy(x, soft, where=mask),
        "safe": lambda: m.safe_softmax_cross_entropy(x, hard),
        "integer": lambda: m.softmax_cross_entropy_with_integer_labels(x, ids),
        "integer axis": lambda: m.softmax_cross_entropy_with_integer_labels(x, ids[:5], axis=0),
        "integer axes": lambda: m.softmax_cross_entropy_with_integer_labels(images, ids[:3], axis=(1, 0, 2)),
        "integer where": lambda: m.softmax_cross_entropy_with_integer_labels(x, ids, where=mask),
        "sigmoid": lambda: m.sigmoid_binary_cross_entropy(x, bits),
        "focal": lambda: m.sigmoid_focal_loss(x, bits, alpha=0.3, gamma=1.5),
        "focal plain": lambda: m.sigmoid_focal_loss(x, soft),
        "hinge": lambda: m.hinge_loss(x, 2 * bits - 1),
        "perceptron": lambda: m.perceptron_loss(x, 2 * bits - 1),
        "multiclass hinge": lambda: m.multiclass_hinge_loss(x, ids),
        "poly": lambda: m.poly_loss_cross_entropy(x, soft, epsilon=1.5),
        "poly where": lambda: m.poly_loss_cross_entropy(x, soft, where=mask),
        "kl": lambda: m.kl_divergence(log_p, zeros),
        "kl where": lambda: m.kl_divergence(log_p, zeros, where=mask),
        "kl log": lambda: m.kl_divergence_with_log_targets(log_p, x),
        "kl generalized": lambda: m.generalized_kl_divergence(log_p, zeros),
        "smooth": lambda: m.smooth_labels(hard, 0.1),
        "smooth where": lambda: m.smooth_labels(hard, 0.1, where=mask),
        "triplet": lambda: m.triplet_margin_loss(x, y, soft, margin=0.5),
        "ntxent": lambda: m.ntxent(x, ids, temperature=0.5),
        "ctc": lambda: m.ctc_loss(logits, frames, words, ends),
        "ctc blank": lambda: m.ctc_loss(logits, frames, words % 3, ends, blank_id=3),
        "dice": lambda: m.dice_loss(images, segments),
        "dice all": lambda: m.dice_loss(
            images, segments, smooth=0.5, alpha=0.3, beta=0.7, reduction="sum", ignore_background=True
        ),
        "dice binary": lambda: m.binary_dice_loss(images[..., 0], segments[..., 0]),
    }


@pytest.mark.parametrize("name", sorted(loss_cases(optax.losses, np.asarray)))
def test_loss(name):
    ours = loss_cases(losses, lambda x: fnp.asarray(np.asarray(x, np.float32)))[name]()
    with jax.enable_x64(True):
        single = lambda x: jax.numpy.asarray(np.asarray(x, np.float32), "float64")
        theirs = np.asarray(loss_cases(optax.losses, single)[name]())
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=2e-5, atol=2e-6)


def rosenbrock(np_, params):
    x = params["x"]
    valley = np_.sum(10.0 * np_.square(x[1:] - np_.square(x[:-1])) + np_.square(1.0 - x[:-1]))
    return valley + np_.sum(np_.square(params["y"] - 0.5)) + 0.1 * np_.sum(params["y"] ** 4)


def run_search(m, np_, grad, opt, steps):
    """Values after each step, and the sizes of the steps."""
    params = {"x": np_.asarray([-1.0, 0.5, 1.5, -0.5]), "y": np_.asarray([[1.0, 2.0]])}
    value_fn = lambda p: rosenbrock(np_, p)
    state, values, sizes = opt.init(params), [], []
    for _ in range(steps):
        value, slope = grad(value_fn)(params)
        updates, state = opt.update(slope, state, params, value=value, grad=slope, value_fn=value_fn)
        params = m.apply_updates(params, updates)
        values.append(float(value))
        sizes.append(float(state[-1].learning_rate) if hasattr(state[-1], "learning_rate") else 1.0)
    return np.array(values), np.array(sizes)


SEARCHES = {
    "lbfgs": lambda m: m.lbfgs(),
    "lbfgs all": lambda m: m.lbfgs(memory_size=3, scale_init_precond=False),
    "lbfgs without": lambda m: m.lbfgs(0.1, linesearch=None),
    "zoom": lambda m: m.chain(m.scale(-1.0), m.scale_by_zoom_linesearch(15)),
    "zoom bounded": lambda m: m.chain(
        m.scale(-1.0), m.scale_by_zoom_linesearch(15, max_learning_rate=0.02, curv_rtol=0.1, approx_dec_rtol=None)
    ),
    "zoom short": lambda m: m.chain(m.scale(-0.01), m.scale_by_zoom_linesearch(2, initial_guess_strategy="one")),
    "backtracking": lambda m: m.chain(m.sgd(1.0), m.scale_by_backtracking_linesearch(20)),
    "backtracking all": lambda m: m.chain(
        m.sgd(0.02), m.scale_by_backtracking_linesearch(3, 0.1, 0.5, 2.0, 0.5, store_grad=True)
    ),
}


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_line_search(name):
    """The first steps are the same; later ones differ, since the function magnifies every rounding."""
    ours, sizes = run_search(optim, fnp, fg.value_and_grad, SEARCHES[name](optim), 10)
    with jax.enable_x64(True):
        theirs, sizes64 = run_search(optax, jax.numpy, jax.value_and_grad, SEARCHES[name](optax), 10)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    np.testing.assert_allclose(sizes, sizes64, rtol=1e-3)
