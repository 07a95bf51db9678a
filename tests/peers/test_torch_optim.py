"""Clipping, schedules and losses that optax lacks or defines otherwise, against PyTorch in float64."""

from __future__ import annotations

import numpy as np
import pytest

import funcgrad.numpy as fnp
from funcgrad import losses, optim, tree

torch = pytest.importorskip("torch")

R = np.random.default_rng(0)


@pytest.mark.parametrize("limit", [0.1, 1.0, 100.0])
def test_clip_by_global_norm(limit):
    grads = [R.normal(0, 1, shape).astype("f") for shape in ((3, 4), (5,), ())]
    leaves = [torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for g in grads]
    for leaf, g in zip(leaves, grads, strict=True):
        leaf.grad = torch.tensor(g, dtype=torch.float64)
    norm = torch.nn.utils.clip_grad_norm_(leaves, limit)
    clipped, ours = optim.clip_with_norm(tree.map(fnp.asarray, grads), limit)
    assert float(ours) == pytest.approx(float(norm), rel=2e-6)
    for a, leaf in zip(clipped, leaves, strict=True):
        np.testing.assert_allclose(np.asarray(a), leaf.grad.numpy(), rtol=3e-6)


def rates(make, steps=60, momentum=0.0):
    """Learning rates (and momenta) of a PyTorch scheduler at steps 0, 1, ..."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=momentum)
    scheduler, out = make(optimizer), []
    for _ in range(steps):
        out.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]))
        optimizer.step()
        scheduler.step()
    return np.array(out)


S = torch.optim.lr_scheduler
PAIRS = {
    "step": (lambda o: S.StepLR(o, 7, 0.5), optim.step_decay(0.1, 7, 0.5)),
    "restarts": (
        lambda o: S.CosineAnnealingWarmRestarts(o, 6, 1, eta_min=0.01),
        optim.cosine_restarts(0.1, 6, 1.0, 0.1),
    ),
    "growing restarts": (
        lambda o: S.CosineAnnealingWarmRestarts(o, 6, 2, eta_min=0.01),
        optim.cosine_restarts(0.1, 6, 2.0, 0.1),
    ),
    **{
        f"cyclic {mode}": (
            lambda o, mode=mode: S.CyclicLR(o, 0.01, 0.1, 5, 8, mode, 0.97, cycle_momentum=False),
            optim.cyclic_schedule(0.01, 0.1, 5, 8, mode, 0.97),
        )
        for mode in ("triangular", "triangular2", "exp_range")
    },
    "exponential": (lambda o: S.ExponentialLR(o, 0.9), optim.exponential_decay(0.1, 1, 0.9)),
    "cosine": (lambda o: S.CosineAnnealingLR(o, 59, 0.01), optim.cosine_decay_schedule(0.1, 59, 0.1)),
}


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_schedule(name):
    theirs, ours = PAIRS[name]
    np.testing.assert_allclose([float(ours(t)) for t in range(60)], rates(theirs)[:, 0], rtol=5e-5, atol=1e-8)


OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True), optim.sgd(0.05, 0.9, True)),
    "adam": (lambda p: torch.optim.Adam(p, 0.01, (0.8, 0.99), 1e-6), optim.adam(0.01, 0.8, 0.99, 1e-6)),
    "adamw": (lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1), optim.adamw(0.01, weight_decay=0.1)),
    "adadelta": (lambda p: torch.optim.Adadelta(p, 0.5), optim.adadelta(0.5)),
    "rmsprop": (
        lambda p: torch.optim.RMSprop(p, 0.01, 0.9, 1e-6),
        optim.rmsprop(0.01, 0.9, 1e-6, eps_in_sqrt=False),
    ),
    "radam": (lambda p: torch.optim.RAdam(p, 0.01, (0.9, 0.95), 1e-12), optim.radam(0.01, 0.9, 0.95, 1e-12)),
    "adamax": (lambda p: torch.optim.Adamax(p, 0.01, eps=1e-8), optim.adamax(0.01)),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_optimizer(name):
    make, ours = OPTIMIZERS[name]
    start = R.normal(0, 1, (4, 3)).astype("f")
    theirs = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer, params = make([theirs]), fnp.asarray(start)
    state = ours.init(params)
    for i in range(100):
        grad = np.random.default_rng(i).normal(0, 1, (4, 3)).astype("f")
        theirs.grad = torch.tensor(grad, dtype=torch.float64)
        optimizer.step()
        updates, state = ours.update(fnp.asarray(grad), state, params)
        params = optim.apply_updates(params, updates)
    np.testing.assert_allclose(np.asarray(params), theirs.detach().numpy(), rtol=0, atol=2e-5)


def test_ctc_loss():
    frames, batch, classes = 12, 4, 5
    logits = R.normal(0, 2, (batch, frames, classes)).astype("f")
    labels = R.integers(1, classes, (batch, 4)).astype("i")
    lengths, sizes = np.array([12, 10, 9, 12]), np.array([4, 3, 1, 2])
    log_p = torch.log_softmax(torch.tensor(logits, dtype=torch.float64), -1).transpose(0, 1)
    theirs = torch.nn.functional.ctc_loss(
        log_p, torch.tensor(labels), torch.tensor(lengths), torch.tensor(sizes), reduction="none"
    )
    ours = losses.ctc_loss(
        fnp.asarray(logits),
        fnp.asarray((np.arange(frames) >= lengths[:, None]).astype("f")),
        fnp.asarray(labels),
        fnp.asarray((np.arange(4) >= sizes[:, None]).astype("f")),
    )
    np.testing.assert_allclose(np.asarray(ours), theirs.numpy(), rtol=1e-5)


def test_line_search_solver_reaches_the_same_minimum():
    def torch_loss(x):
        return torch.sum(10 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    x = torch.nn.Parameter(torch.tensor([-1.0, 0.5, 1.5, -0.5], dtype=torch.float64))
    solver = torch.optim.LBFGS([x], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

    def closure():
        solver.zero_grad()
        value = torch_loss(x)
        value.backward()
        return value

    solver.step(closure)

    def loss(x):
        return fnp.sum(10 * fnp.square(x[1:] - fnp.square(x[:-1])) + fnp.square(1 - x[:-1]))

    opt = optim.lbfgs()
    value_and_grad = optim.value_and_grad_from_state(loss)
    params = fnp.asarray([-1.0, 0.5, 1.5, -0.5])
    state = opt.init(params)
    for _ in range(40):
        value, grad = value_and_grad(params, state=state)
        updates, state = opt.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        params = optim.apply_updates(params, updates)
    np.testing.assert_allclose(np.asarray(params), x.detach().numpy(), atol=2e-3)
