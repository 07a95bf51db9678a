"""Optimizers against float64 numpy written from the papers' formulas, over 100 steps on a random tree."""

from __future__ import annotations

import numpy as np
import optim_reference as reference
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import optim, tree

STEPS = 100
RATE = 0.01
SHAPES = ((4, 3), (3,), (), (2, 3, 2))


def make_params():
    r = np.random.default_rng(0)
    return [r.normal(0, 1, shape).astype(np.float32) for shape in SHAPES]


def make_grads(steps=STEPS):
    r = np.random.default_rng(1)
    scales = np.exp(r.normal(0, 1, steps))
    return [[(s * r.normal(0, 1, shape)).astype(np.float32) for shape in SHAPES] for s in scales]


def run(opt, params, grads):
    """Updates of every leaf at every step, with the update jitted; checks the types of the state on the way."""
    params = [fnp.asarray(p) for p in params]
    state = opt.init(params)
    types = signature(state)

    @fg.jit
    def step(params, state, grads):
        updates, state = opt.update(grads, state, params)
        return optim.apply_updates(params, updates), state, updates

    trail = []
    for row in grads:
        params, state, updates = step(params, state, [fnp.asarray(g) for g in row])
        assert signature(state) == types
        trail.append([np.asarray(u) for u in updates])
    return trail


def signature(values):
    return tree.structure(values), [(x.shape, str(x.dtype)) for x in tree.leaves(values)]


def assert_close(trail, truth, tol):
    for leaf in range(len(truth[0])):
        got, want = (np.stack([row[leaf] for row in rows]) for rows in (trail, truth))
        np.testing.assert_allclose(got, want, rtol=0, atol=tol * np.max(np.abs(want)))


# name, options of ours, reference, its options
CASES = [
    ("sgd", {"momentum": 0.9}, reference.momentum, {"mu": 0.9}),
    ("sgd", {}, reference.momentum, {"mu": 0.0}),
    ("sgd", {"momentum": 0.8, "nesterov": True}, reference.momentum, {"mu": 0.8, "nesterov": True}),
    ("adam", {}, reference.adam, {}),
    ("adam", {"b1": 0.8, "b2": 0.95, "eps": 1e-3}, reference.adam, {"b1": 0.8, "b2": 0.95, "eps": 1e-3}),
    ("adamw", {"weight_decay": 0.1}, reference.adam, {"decay": 0.1}),
    ("adamw", {}, reference.adam, {"decay": 1e-4}),
    ("nadam", {}, reference.adam, {"nesterov": True}),
    ("nadamw", {"weight_decay": 0.1}, reference.adam, {"nesterov": True, "decay": 0.1}),
    ("amsgrad", {}, reference.amsgrad, {}),
    ("adamax", {}, reference.adamax, {}),
    ("radam", {}, reference.radam, {}),
    ("radam", {"b2": 0.9, "threshold": 4.5}, reference.radam, {"b2": 0.9, "threshold": 4.5}),
    ("adabelief", {}, reference.adabelief, {}),
    ("yogi", {}, reference.yogi, {}),
    ("rmsprop", {}, reference.rmsprop, {}),
    ("rmsprop", {"momentum": 0.9, "eps_in_sqrt": False}, reference.rmsprop, {"mu": 0.9, "inside": False}),
    ("rmsprop", {"centered": True, "eps": 0.1}, reference.rmsprop, {"centered": True, "eps": 0.1}),
    ("adagrad", {}, reference.adagrad, {}),
    ("adadelta", {}, reference.adadelta, {}),
    ("adafactor", {}, reference.adafactor, {}),
    ("adafactor", {"min_dim_size_to_factor": 3}, reference.adafactor, {"least": 3}),
    ("lamb", {"weight_decay": 0.1}, reference.lamb, {"decay": 0.1}),
    ("lars", {}, reference.lars, {}),
    ("lion", {}, reference.lion, {}),
    ("novograd", {"weight_decay": 0.1}, reference.novograd, {"decay": 0.1}),
    ("adan", {}, reference.adan, {}),
    ("muon", {}, reference.muon, {}),
    ("schedule_free_sgd", {}, reference.schedule_free_sgd, {}),
]


@pytest.mark.parametrize(
    ("name", "options", "truth", "settings"), [pytest.param(*case, id=f"{case[0]}-{i}") for i, case in enumerate(CASES)]
)
def test_optimizer_follows_its_paper(name, options, truth, settings):
    params, grads = make_params(), make_grads()
    if name == "adafactor":  # the reference factors matrices only
        params, grads = params[:3], [row[:3] for row in grads]
    trail = run(getattr(optim, name)(RATE, **options), params, grads)
    # Muon's polynomial multiplies rounding along weak directions by up to 3.4 in each of five steps; LAMB divides by a
    # norm whose rounding all elements share; schedule-free averages are recovered from the parameters
    tol = {"muon": 1e-3, "lamb": 2e-5, "schedule_free_sgd": 2e-5}.get(name, 5e-6)
    assert_close(trail, reference.run(truth, params, grads, lr=RATE, **settings), tol)


@pytest.mark.parametrize(
    ("name", "options", "truth", "settings"),
    [pytest.param(*case, id=f"{case[0]}-{i}") for i, case in enumerate(CASES)],
)
def test_reference_device_keeps_float64(name, options, truth, settings):
    """The same in float64 on the reference device, to its rounding: no formula hides a float32 in the middle."""
    params, grads = make_params(), make_grads(30)
    if name == "adafactor":
        params, grads = params[:3], [row[:3] for row in grads]
    opt = getattr(optim, name)(RATE, **options)
    with fg.default_device("numpy"):
        values = [fnp.asarray(p, dtype=fnp.float64) for p in params]
        state, trail = opt.init(values), []
        for row in grads:
            updates, state = opt.update([fnp.asarray(g, dtype=fnp.float64) for g in row], state, values)
            values = optim.apply_updates(values, updates)
            trail.append([np.asarray(u) for u in updates])
    assert_close(trail, reference.run(truth, params, grads, lr=RATE, **settings), 1e-11)


def test_learning_rate_can_be_a_schedule_or_an_array():
    params, grads = make_params(), make_grads(20)
    rate = optim.linear(0.1, 0.01, 10)
    scheduled = run(optim.adam(rate), params, grads)
    plain = run(optim.adam(1.0), params, grads)
    for i, (a, b) in enumerate(zip(scheduled, plain, strict=True)):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, max(0.01, 0.1 - 0.009 * i) * y, rtol=1e-5)
    array = run(optim.adam(fnp.asarray(0.5)), params, grads)
    np.testing.assert_allclose(array[3][0], 0.5 * plain[3][0], rtol=1e-6)


def test_learning_rate_can_be_an_argument_of_a_jitted_step():
    @fg.jit
    def step(params, state, grads, rate):
        updates, state = optim.adam(rate).update(grads, state, params)
        return optim.apply_updates(params, updates), state

    params, grads = fnp.ones(3), fnp.asarray([1.0, -2.0, 3.0])
    for rate in (0.5, 0.25):
        new, _ = step(params, optim.adam(1.0).init(params), grads, fnp.asarray(rate))
        np.testing.assert_allclose(np.asarray(new), [1 - rate, 1 + rate, 1 - rate], rtol=1e-6)


def test_bias_correction_keeps_its_digits():
    """In float32 1 - 0.999 has four digits; the first update of Adam would be off by 6e-6."""
    grads = fnp.asarray([3.0], dtype=fnp.float32)
    opt = optim.scale_by_adam(b1=0.9999, b2=0.99999, eps=0.0)
    updates, _ = opt.update(grads, opt.init(grads))
    np.testing.assert_allclose(np.asarray(updates), [1.0], rtol=5e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lion", "lamb", "adafactor", "rmsprop"])
def test_half_precision_parameters_keep_their_dtype(name, dtype):
    dtype = getattr(fnp, dtype)
    params = {"w": fnp.ones((3, 2), dtype=dtype), "b": fnp.ones((2,), dtype=dtype)}
    opt = optim.chain(optim.clip_by_global_norm(1.0), getattr(optim, name)(fnp.asarray(0.5)))
    state = opt.init(params)
    updates, new_state = opt.update(params, state, params)
    assert signature(updates) == signature(params)
    assert signature(new_state) == signature(state)
    assert signature(optim.apply_updates(params, updates)) == signature(params)


def test_first_moment_in_another_dtype():
    params = {"w": fnp.ones((3, 2))}
    for opt in (
        optim.adam(0.1, mu_dtype=fnp.bfloat16),
        optim.lion(0.1, mu_dtype=fnp.bfloat16),
        optim.sgd(0.1, momentum=0.9, accumulator_dtype=fnp.bfloat16),
    ):
        state = opt.init(params)
        assert any(x.dtype == fnp.bfloat16 for x in tree.leaves(state))
        updates, new_state = opt.update(params, state, params)
        assert signature(new_state) == signature(state)
        assert updates["w"].dtype == fnp.float32


@pytest.mark.parametrize("name", ["adam", "sgd", "lion", "adafactor", "lbfgs", "muon"])
def test_empty_tree(name):
    opt = getattr(optim, name)(0.1) if name != "lbfgs" else optim.lbfgs(0.1, linesearch=None)
    updates, _ = opt.update({}, opt.init({}), {})
    assert updates == {}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("adam", {"learning_rate": -1.0}, "learning_rate must be in"),
        ("adam", {"learning_rate": float("nan")}, "learning_rate must be in"),
        ("adam", {"learning_rate": float("inf")}, "learning_rate must be in"),
        ("adam", {"b1": 1.0}, r"b1 must be in \[0, 1\), got 1.0"),
        ("adamw", {"b2": -0.1}, "b2 must be in"),
        ("adamw", {"eps": -1e-8}, "eps must be in"),
        ("adamw", {"weight_decay": -0.1}, "weight_decay must be in"),
        ("sgd", {"momentum": 1.5}, "decay must be in"),
        ("rmsprop", {"decay": 2.0}, "decay must be in"),
        ("adagrad", {"initial_accumulator_value": -1.0}, "initial_accumulator_value must be in"),
        ("adafactor", {"min_dim_size_to_factor": 0}, "must be at least 1"),
        ("adafactor", {"clipping_threshold": 0.0}, "threshold must be in"),
        ("radam", {"threshold": 3.0}, "threshold must be in"),
        ("lion", {"b1": 2.0}, "b1 must be in"),
        ("muon", {"ns_steps": 0}, "ns_steps must be at least 1"),
        ("muon", {"preconditioning": "none"}, "preconditioning must be one of"),
        ("muon", {"ns_coeffs": "x"}, "ns_coeffs must be one of"),
        ("schedule_free_sgd", {"b1": 0.0}, "b1 must be in"),
        ("lbfgs", {"memory_size": 0}, "memory_size must be at least 1"),
    ],
)
def test_bad_hyperparameters_are_value_errors(name, options, words):
    options = {"learning_rate": 0.1, **options}
    with pytest.raises(ValueError, match=words):
        opt = getattr(optim, name)(**options)
        params = {"w": fnp.ones((2, 2))}
        opt.update(params, opt.init(params), params)


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="learning_rate must be a number"):
        optim.adam("0.1")
    with pytest.raises(TypeError, match="call the factory first"):
        optim.chain(optim.adam)
    opt = optim.adamw(0.1)
    params = {"w": fnp.ones(2)}
    with pytest.raises(ValueError, match="needs the parameters"):
        opt.update(params, opt.init(params))
    with pytest.raises(ValueError, match="tree structure that init saw"):
        opt.update({"w": fnp.ones(2), "b": fnp.ones(2)}, opt.init(params), params)


def test_lbfgs_solves_a_quadratic_in_few_steps():
    """On an ill-conditioned quadratic in 6 unknowns; the answer is a linear system's."""
    r = np.random.default_rng(4)
    basis, _ = np.linalg.qr(r.normal(0, 1, (6, 6)))
    matrix, target = basis @ np.diag([1, 3, 10, 30, 100, 300]) @ basis.T, r.normal(0, 1, 6)
    a, b = fnp.asarray(matrix.astype(np.float32)), fnp.asarray(target.astype(np.float32))
    opt = optim.lbfgs()
    value_and_grad = optim.value_and_grad_from_state(lambda x: 0.5 * x @ (a @ x) - b @ x)

    @fg.jit
    def step(params, state):
        value, grad = value_and_grad(params, state=state)
        updates, state = opt.update(
            grad, state, params, value=value, grad=grad, value_fn=lambda x: 0.5 * x @ (a @ x) - b @ x
        )
        return optim.apply_updates(params, updates), state

    params = fnp.zeros(6)
    state = opt.init(params)
    types = signature(state)
    for _ in range(25):
        params, state = step(params, state)
    assert signature(state) == types
    np.testing.assert_allclose(np.asarray(params), np.linalg.solve(matrix, target), rtol=0, atol=2e-4)


def test_line_search_steps_satisfy_the_wolfe_conditions():
    def f(x):
        return fnp.sum(fnp.square(fnp.square(x) - 1.0)) + 0.3 * fnp.sum(fnp.sin(3.0 * x))

    def f64(x):
        return np.sum((x**2 - 1) ** 2) + 0.3 * np.sum(np.sin(3 * x))

    def g64(x):
        return 4 * x * (x**2 - 1) + 0.9 * np.cos(3 * x)

    opt = optim.chain(optim.scale(-1.0), optim.scale_by_zoom_linesearch(30, curv_rtol=0.5, approx_dec_rtol=None))
    for seed in range(5):
        x = np.random.default_rng(seed).normal(0, 2, 3).astype(np.float32)
        params = fnp.asarray(x)
        value, grad = fg.value_and_grad(f)(params)
        updates, _ = opt.update(grad, opt.init(params), params, value=value, grad=grad, value_fn=f)
        u = np.asarray(updates, np.float64)
        x = x.astype(np.float64)
        slope, after = g64(x) @ u, g64(x + u) @ u
        assert f64(x + u) <= f64(x) + 1e-4 * slope + 1e-5
        assert abs(after) <= 0.5 * abs(slope) + 1e-4


def test_line_search_refuses_unknown_arguments():
    x = fnp.ones(2)
    for search in (optim.scale_by_zoom_linesearch(5), optim.scale_by_backtracking_linesearch(5)):
        with pytest.raises(TypeError, match="parameters of value_fn"):
            search.update(x, search.init(x), x, value=1.0, grad=x, value_fn=lambda p: fnp.sum(p), batch=x)


def test_an_optimizer_prints_without_addresses() -> None:
    assert repr(optim.scale(2.0)).startswith("Optimizer(") and " at 0x" not in repr(optim.adam(0.1))
