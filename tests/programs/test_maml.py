"""Model-agnostic meta-learning (Finn et al. 2017): the gradient of a loss after gradient steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, optim, random


def adapt(loss: Callable[..., Any], params: Any, task: Any, rate: float, steps: int) -> Any:
    """``steps`` of gradient descent on a task's support set."""

    def step(p: Any, _: Any) -> Any:
        g = fg.grad(loss)(p, task["x"], task["y"])
        return fg.tree.map(lambda a, b: a - rate * b, p, g), None

    return lax.scan(step, params, None, length=steps)[0]


def meta_loss(loss: Callable[..., Any], params: Any, tasks: Any, rate: float = 0.1, steps: int = 3) -> Any:
    """The mean loss on the query sets after adaptation to each task."""
    after = lambda task: loss(adapt(loss, params, task, rate, steps), task["qx"], task["qy"])
    return fg.vmap(after)(tasks).mean()


def linear_loss(w: Any, x: Any, y: Any) -> Any:
    return 0.5 * fnp.mean((x @ w - y) ** 2)


def network_loss(p: Any, x: Any, y: Any) -> Any:
    return 0.5 * fnp.mean((fnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] - y) ** 2)


@fg.jit
def meta_train(w: Any, tasks: Any) -> Any:
    tx = optim.sgd(0.5, momentum=0.9)

    def step(carry: Any, _: Any) -> Any:
        w, state = carry
        updates, state = tx.update(fg.grad(lambda v: meta_loss(linear_loss, v, tasks))(w), state, w)
        return (optim.apply_updates(w, updates), state), None

    return lax.scan(step, (w, tx.init(w)), None, length=300)[0][0]


def linear_tasks(count: int = 8, n: int = 10, d: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(count, d, 1)) + 2
    x, qx = rng.normal(size=(2, count, n, d))
    return {"x": x, "y": (x @ w)[..., 0], "qx": qx, "qy": (qx @ w)[..., 0] + 0.1 * rng.normal(size=(count, n))}


def closed_form(tasks: dict[str, Any], rate: float, steps: int) -> tuple[Any, Any]:
    """The meta-gradient is M w - v: adaptation is affine, w' = A w + c with A = (I - rate H)^steps."""
    total, right = 0.0, 0.0
    for x, y, qx, qy in zip(*[tasks[k].astype(np.float64) for k in ("x", "y", "qx", "qy")], strict=True):
        n, d = x.shape
        shrink = np.eye(d) - rate * x.T @ x / n
        a, c = np.eye(d), np.zeros(d)
        for _ in range(steps):
            a, c = shrink @ a, shrink @ c + rate * x.T @ y / n
        total = total + a.T @ qx.T @ qx @ a / n
        right = right + a.T @ qx.T @ (qy - qx @ c) / n
    return total / len(tasks["x"]), right / len(tasks["x"])


def test_linear_tasks_have_a_closed_form(device: str) -> None:
    tasks = linear_tasks()
    ours = fg.tree.map(fnp.asarray, tasks)
    m, v = closed_form(tasks, 0.1, 3)
    w = np.array([0.5, -1.0, 2.0])
    got = fg.jit(fg.grad(lambda p: meta_loss(linear_loss, p, ours)))(fnp.asarray(w))
    np.testing.assert_allclose(got, m @ w - v, rtol=1e-5, atol=1e-5)
    curvature = fg.hessian(lambda p: meta_loss(linear_loss, p, ours))(fnp.asarray(w))
    np.testing.assert_allclose(curvature, m, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(meta_train(fnp.zeros(3), ours), np.linalg.solve(m, v), rtol=1e-4, atol=1e-4)


def network_in_numpy(p: dict[str, Any], tasks: Any, rate: float, steps: int) -> float:
    """The meta-loss of the network with backpropagation by hand."""
    losses = []
    for x, y, qx, qy in zip(*[tasks[k].astype(np.float64) for k in ("x", "y", "qx", "qy")], strict=True):
        q = dict(p)
        for _ in range(steps):
            h = np.tanh(x @ q["w1"] + q["b1"])
            e = (h @ q["w2"] - y) / len(x)
            back = np.outer(e, q["w2"]) * (1 - h**2)
            g = {"w1": x.T @ back, "b1": back.sum(0), "w2": h.T @ e}
            q = {k: v - rate * g[k] for k, v in q.items()}
        losses.append(0.5 * np.mean((np.tanh(qx @ q["w1"] + q["b1"]) @ q["w2"] - qy) ** 2))
    return float(np.mean(losses))


def test_network_against_central_differences(device: str) -> None:
    tasks = linear_tasks(4)
    keys = random.split(random.key(0), 3)
    params = {
        "w1": random.normal(keys[0], (3, 5)),
        "b1": random.normal(keys[1], (5,)),
        "w2": random.normal(keys[2], (5,)),
    }
    f = lambda p: meta_loss(network_loss, p, fg.tree.map(fnp.asarray, tasks))
    value, grads = fg.jit(fg.value_and_grad(f))(params)
    host = {k: np.asarray(v, np.float64) for k, v in params.items()}
    np.testing.assert_allclose(value, network_in_numpy(host, tasks, 0.1, 3), rtol=1e-5)
    rng = np.random.default_rng(1)
    for name, p in host.items():
        along = rng.normal(size=p.shape)
        ends = [network_in_numpy({**host, name: p + h * along}, tasks, 0.1, 3) for h in (1e-5, -1e-5)]
        slope = np.sum(np.asarray(grads[name], np.float64) * along)
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-5, err_msg=name)
