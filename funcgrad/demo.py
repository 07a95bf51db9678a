"""Train a classifier of handwritten digits: ``python -m funcgrad.demo [--device cpu] [--seed 0] [--out
funcgrad-demo.png]``.

The data are scikit-learn's 1,797 real 8x8 images.  The whole train step (forward, backward, Adam) is captured once by
``jit`` and runs as one graph on the device; the state stays there and is updated in place.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import matplotlib
import matplotlib.pyplot
import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import optim

SIZES = (64, 128, 64, 10)
BATCH = 64
TRAIN = 1437  # the rest, 360 images, are held out


def load(seed: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Return shuffled train images, train labels, held-out images, held-out labels; pixels in [0, 1]."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    x = (digits.data[order] / 16).astype(np.float32)
    y = digits.target[order].astype(np.int32)
    return x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:]


def init(key: Any) -> list[dict[str, Any]]:
    """Return the weights (normal, scaled by sqrt(2 / inputs)) and biases (zero) of each layer."""
    keys = fg.random.split(key, len(SIZES) - 1)
    layers = []
    for k, n, m in zip(keys, SIZES[:-1], SIZES[1:], strict=True):
        layers.append({"w": fg.random.normal(k, (n, m)) * np.sqrt(2 / n), "b": fnp.zeros(m)})
    return layers


def logits(params: list[dict[str, Any]], x: Any) -> Any:
    """Return the ten scores of each image."""
    for layer in params[:-1]:
        x = fg.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_fn(params: list[dict[str, Any]], x: Any, y: Any) -> Any:
    """Return the mean cross entropy."""
    return fg.losses.softmax_cross_entropy_with_integer_labels(logits(params, x), y).mean()


def make_step(optimizer: Any) -> Any:
    """Return the captured train step: (params, state, x, y) -> (params, state, loss)."""

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss, grads = fg.value_and_grad(loss_fn)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss

    return fg.jit(step, donate_argnums=(0, 1))


def batches(n: int, epochs: int, seed: int) -> Any:
    """Yield the indices of shuffled minibatches; a last short one is left out."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(n)
        for i in range(0, n - BATCH + 1, BATCH):
            yield order[i : i + BATCH]


def train(seed: int, epochs: int) -> dict[str, Any]:
    """Train; return what was measured and the held-out predictions."""
    x, y, x_test, y_test = load(seed)
    params = init(fg.random.key(seed))
    optimizer = optim.adam(2e-3)
    state = optimizer.init(params)
    step, losses = make_step(optimizer), []
    plan = list(batches(len(x), epochs, seed))
    start = time.perf_counter()
    for i, rows in enumerate(bar := tqdm(plan, desc="training", unit="step")):
        params, state, loss = step(params, state, x[rows], y[rows])
        losses.append(float(loss))
        if i == 0:
            first, start = time.perf_counter() - start, time.perf_counter()
        if i % 50 == 0:
            bar.set_postfix(loss=f"{losses[-1]:.4f}")
    seconds = time.perf_counter() - start
    predicted = np.asarray(fg.jit(logits)(params, x_test)).argmax(-1)
    return {
        "losses": losses,
        "first_step_s": first,
        "steps_per_s": (len(plan) - 1) / seconds,
        "accuracy": float((predicted == y_test).mean()),
        "images": x_test,
        "labels": y_test,
        "predicted": predicted,
        "traces": step.stats.traces,
    }


def picture(result: dict[str, Any], path: str) -> None:
    """Save the loss curve and a grid of held-out digits with what was predicted, mistakes in red."""
    matplotlib.use("Agg")
    figure = matplotlib.pyplot.figure(figsize=(11, 4.6), layout="constrained")
    panels: Any = figure.subfigures(1, 2, width_ratios=(1, 1.1))
    left, right = panels
    axes = left.subplots()
    axes.semilogy(result["losses"], color="tab:blue", linewidth=0.6, alpha=0.6, label="each step")
    smooth = np.convolve(result["losses"], np.ones(22) / 22, "valid")
    axes.semilogy(np.arange(len(smooth)) + 21, smooth, color="tab:orange", label="mean of 22 steps (one epoch)")
    axes.set(xlabel="step", ylabel="cross entropy", title=f"training loss; held-out accuracy {result['accuracy']:.1%}")
    axes.legend()
    wrong = np.flatnonzero(result["predicted"] != result["labels"])
    shown = np.concatenate([wrong, np.flatnonzero(result["predicted"] == result["labels"])])[:40]
    for cell, i in zip(right.subplots(5, 8).flat, shown, strict=True):
        cell.imshow(result["images"][i].reshape(8, 8), cmap="gray_r")
        right_answer = result["predicted"][i] == result["labels"][i]
        text = f"{result['predicted'][i]}" if right_answer else f"{result['predicted'][i]} (is {result['labels'][i]})"
        cell.set_title(text, fontsize=8, color="black" if right_answer else "tab:red", pad=2)
        cell.axis("off")
    right.suptitle("held-out digits and predictions, mistakes first")
    figure.savefig(path, dpi=110)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the demo and print what it did."""
    parser = argparse.ArgumentParser(
        prog="python -m funcgrad.demo", description="Train a classifier of handwritten digits."
    )
    parser.add_argument("--device", default="cpu", help="cpu, numpy or vulkan:0")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the weights and the minibatches")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", default="funcgrad-demo.png", help="where to save the picture")
    options = parser.parse_args(argv)
    with fg.default_device(options.device) as device:
        result = train(options.seed, options.epochs)
    picture(result, options.out)
    print(f"device              {device.name}")
    print(f"data                {TRAIN} images to train on, {len(result['labels'])} held out (seed {options.seed})")
    print(f"time to first step  {result['first_step_s'] * 1e3:.0f} ms (trace, differentiate, compile, run)")
    print(f"steps per second    {result['steps_per_s']:,.0f} of {BATCH} images, traced {result['traces']} time")
    print(f"held-out accuracy   {result['accuracy']:.2%}")
    print(f"picture             {options.out}")
    return result


if __name__ == "__main__":
    main()
