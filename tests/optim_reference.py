"""Optimizers in float64 numpy, one leaf at a time, from the papers' formulas; the truth for test_optim.py.

Each reference is a generator function ``f(w, lr, **options)`` that is sent gradients and yields updates.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

Steps = Generator[Any, Any, None]


def momentum(w: Any, lr: float, mu: float, nesterov: bool = False) -> Steps:
    """Sutskever et al. 2013."""
    v = np.zeros_like(w)
    g = yield
    while True:
        v = g + mu * v
        g = yield -lr * (g + mu * v if nesterov else v)


def adam(w: Any, lr: float, b1=0.9, b2=0.999, eps=1e-8, decay=0.0, nesterov=False) -> Steps:
    """Kingma and Ba 2014, algorithm 1; Loshchilov and Hutter 2017 for the decay; Dozat 2016 for Nesterov."""
    m, v, t = np.zeros_like(w), np.zeros_like(w), 0
    g = yield
    while True:
        t += 1
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        mhat, vhat = m / (1 - b1**t), v / (1 - b2**t)
        if nesterov:
            mhat = b1 * m / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
        step = -lr * (mhat / (np.sqrt(vhat) + eps) + decay * w)
        w = w + step
        g = yield step


def amsgrad(w: Any, lr: float, b1=0.9, b2=0.999, eps=1e-8) -> Steps:
    """Reddi et al. 2018, with the bias corrections of Adam."""
    m, v, top, t = np.zeros_like(w), np.zeros_like(w), np.zeros_like(w), 0
    g = yield
    while True:
        t += 1
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        top = np.maximum(top, v / (1 - b2**t))
        g = yield -lr * m / (1 - b1**t) / (np.sqrt(top) + eps)


def adamax(w: Any, lr: float, b1=0.9, b2=0.999, eps=1e-8) -> Steps:
    """Kingma and Ba 2014, algorithm 2."""
    m, u, t = np.zeros_like(w), np.zeros_like(w), 0
    g = yield
    while True:
        t += 1
        m, u = b1 * m + (1 - b1) * g, np.maximum(b2 * u, np.abs(g) + eps)
        g = yield -lr / (1 - b1**t) * m / u


def radam(w: Any, lr: float, b1=0.9, b2=0.999, eps=1e-8, threshold=5.0) -> Steps:
    """Liu et al. 2019, algorithm 2."""
    m, v, t = np.zeros_like(w), np.zeros_like(w), 0
    full = 2 / (1 - b2) - 1
    g = yield
    while True:
        t += 1
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        mhat, rho = m / (1 - b1**t), full - 2 * t * b2**t / (1 - b2**t)
        if rho >= threshold:
            r = np.sqrt((rho - 4) * (rho - 2) * full / ((full - 4) * (full - 2) * rho))
            g = yield -lr * r * mhat / (np.sqrt(v / (1 - b2**t)) + eps)
        else:
            g = yield -lr * mhat


def adabelief(w: Any, lr: float, b1=0.9, b2=0.999, eps=1e-16) -> Steps:
    """Zhuang et al. 2020, algorithm 2."""
    m, s, t = np.zeros_like(w), np.zeros_like(w), 0
    g = yield
    while True:
        t += 1
        m = b1 * m + (1 - b1) * g
        s = b2 * s + (1 - b2) * (g - m) ** 2 + eps
        g = yield -lr * m / (1 - b1**t) / (np.sqrt(s / (1 - b2**t)) + eps)


def yogi(w: Any, lr: float, b1=0.9, b2=0.999, eps=1e-3) -> Steps:
    """Zaheer et al. 2018, algorithm 2, with both moments starting at 1e-6 and Adam's bias corrections."""
    m, v, t = np.full_like(w, 1e-6), np.full_like(w, 1e-6), 0
    g = yield
    while True:
        t += 1
        m = b1 * m + (1 - b1) * g
        v = v - (1 - b2) * np.sign(v - g**2) * g**2
        g = yield -lr * m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)


def rmsprop(w: Any, lr: float, decay=0.9, eps=1e-8, centered=False, mu=0.0, inside=True) -> Steps:
    """Hinton 2012; Graves 2013 for the centred form; momentum after the learning rate."""
    v, m, trace = np.zeros_like(w), np.zeros_like(w), np.zeros_like(w)
    g = yield
    while True:
        v, m = decay * v + (1 - decay) * g**2, decay * m + (1 - decay) * g
        spread = v - m**2 if centered else v
        trace = mu * trace - lr * g / (np.sqrt(spread + eps) if inside else np.sqrt(spread) + eps)
        g = yield trace


def adagrad(w: Any, lr: float, start=0.1, eps=1e-7) -> Steps:
    """Duchi et al. 2011, diagonal form."""
    total = np.full_like(w, start)
    g = yield
    while True:
        total = total + g**2
        g = yield -lr * g / np.sqrt(total + eps)


def adadelta(w: Any, lr: float, rho=0.9, eps=1e-6) -> Steps:
    """Zeiler 2012, algorithm 1."""
    eg, ex = np.zeros_like(w), np.zeros_like(w)
    g = yield
    while True:
        eg = rho * eg + (1 - rho) * g**2
        x = -np.sqrt(ex + eps) / np.sqrt(eg + eps) * g
        ex = rho * ex + (1 - rho) * x**2
        g = yield lr * x


def adafactor(w: Any, lr: float, least=128, decay_rate=0.8, clip=1.0) -> Steps:
    """Shazeer and Stern 2018, algorithms 4 and 5, for matrices and vectors, relative to the parameter's scale."""
    factored = w.ndim == 2 and min(w.shape) >= least
    row, col, full, t = 0.0, 0.0, 0.0, 0
    g = yield
    while True:
        t += 1
        b2, square = 1 - t**-decay_rate, g**2 + 1e-30
        if factored:
            row = b2 * row + (1 - b2) * square.mean(axis=1)
            col = b2 * col + (1 - b2) * square.mean(axis=0)
            v = np.outer(row, col) / row.mean()
        else:
            v = full = b2 * full + (1 - b2) * square
        u = g / np.sqrt(v)
        u = u / max(1.0, np.sqrt(np.mean(u**2)) / clip)
        step = -lr * max(1e-3, np.sqrt(np.mean(w**2))) * u
        w = w + step
        g = yield step


def lamb(w: Any, lr: float, b1=0.9, b2=0.999, eps=1e-6, decay=0.0) -> Steps:
    """You et al. 2019, algorithm 2."""
    m, v, t = np.zeros_like(w), np.zeros_like(w), 0
    g = yield
    while True:
        t += 1
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        u = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * w
        a, b = np.linalg.norm(w), np.linalg.norm(u)
        step = -lr * (a / b if a > 0 and b > 0 else 1.0) * u
        w = w + step
        g = yield step


def lars(w: Any, lr: float, coefficient=0.001, mu=0.9) -> Steps:
    """You et al. 2017, algorithm 1."""
    v = np.zeros_like(w)
    g = yield
    while True:
        a, b = np.linalg.norm(w), np.linalg.norm(g)
        v = mu * v - lr * (coefficient * a / b if a > 0 and b > 0 else 1.0) * g
        w = w + v
        g = yield v


def lion(w: Any, lr: float, b1=0.9, b2=0.99, decay=1e-3) -> Steps:
    """Chen et al. 2023, algorithm 2."""
    m = np.zeros_like(w)
    g = yield
    while True:
        step = -lr * (np.sign(b1 * m + (1 - b1) * g) + decay * w)
        m = b2 * m + (1 - b2) * g
        w = w + step
        g = yield step


def novograd(w: Any, lr: float, b1=0.9, b2=0.25, eps=1e-6, decay=0.0) -> Steps:
    """Ginsburg et al. 2019, algorithm 1."""
    m, v = 0.0, None
    g = yield
    while True:
        square = np.sum(g**2)
        v = square if v is None else b2 * v + (1 - b2) * square
        m = b1 * m + g / (np.sqrt(v) + eps) + decay * w
        step = -lr * m
        w = w + step
        g = yield step


def adan(w: Any, lr: float, b1=0.98, b2=0.92, b3=0.99, eps=1e-8, eps_root=1e-8) -> Steps:
    """Xie et al. 2022, algorithm 1, with bias corrections; its betas are one minus these."""
    m, v, n, last, t = np.zeros_like(w), np.zeros_like(w), np.zeros_like(w), None, 0
    g = yield
    while True:
        t += 1
        diff = np.zeros_like(g) if last is None else g - last
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * diff
        n = b3 * n + (1 - b3) * (g + (1 - b2) * diff) ** 2
        u = m / (1 - b1**t) + (1 - b2) * v / (1 - b2**t)
        last = g
        g = yield -lr * u / (np.sqrt(n / (1 - b3**t) + eps_root) + eps)


def muon(w: Any, lr: float, beta=0.95, steps=5) -> Steps:
    """Jordan et al. 2024 for matrices, Adam with Nesterov for the rest."""
    if w.ndim != 2:
        yield from adam(w, lr, nesterov=True)
        return
    m, t = np.zeros_like(w), 0
    g = yield
    while True:
        t += 1
        m = beta * m + (1 - beta) * g
        x = beta * m / (1 - beta ** (t + 1)) + (1 - beta) * g / (1 - beta**t)
        x = x / (np.linalg.norm(x) + 1e-8)
        for _ in range(steps):
            # the same odd polynomial of the singular values, by way of the decomposition
            left, s, right = np.linalg.svd(x, full_matrices=False)
            x = left @ np.diag(3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5) @ right
        g = yield -lr * np.sqrt(max(1.0, w.shape[1] / w.shape[0])) * x


def schedule_free_sgd(w: Any, lr: float, b1=0.9) -> Steps:
    """Defazio et al. 2024, equations 1 to 3, with a constant learning rate, so that the weights are 1 / t."""
    z, x, y, t = w, w, w, 0
    g = yield
    while True:
        t += 1
        z = z - lr * g
        x = (1 - 1 / t) * x + z / t
        new = (1 - b1) * z + b1 * x
        step, y = new - y, new
        g = yield step


def run(reference: Callable[..., Steps], params: list[Any], grads: list[list[Any]], **options: Any) -> list[list[Any]]:
    """Updates of every leaf at every step."""
    runs = [reference(np.asarray(w, np.float64), **options) for w in params]
    for steps in runs:
        next(steps)
    return [[steps.send(np.asarray(g, np.float64)) for steps, g in zip(runs, row, strict=True)] for row in grads]
