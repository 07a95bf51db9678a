"""The benchmarks' report: ratios by round, losses that differ, what was not run; and the order of the jobs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def report() -> Any:
    return load("benchmarks.report")


def load(name: str) -> Any:
    if not (ROOT / "benchmarks").is_dir():
        pytest.skip("the benchmarks are not here")
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT))


def line(peer: str, workload: str, metric: str, value: float, r: int = 0) -> dict[str, Any]:
    return {"peer": peer, "workload": workload, "metric": metric, "median": value, "round": r, "other_cpu": 0.25}


def test_a_ratio_compares_peers_of_one_round(report: Any) -> None:
    """Rounds at different speeds of the machine: 2/4, 20/25 and 3/10 of the fastest peer, not of medians."""
    times = {"funcgrad": (2, 20, 3), "jax": (4, 50, 10), "torch": (8, 25, 12)}
    lines = [line(p, "mlp-mnist", "step_ms", t, r) for p, ts in times.items() for r, t in enumerate(ts)]
    (row,) = [x for x in report.text(lines).splitlines() if x.startswith("| W2")]
    assert row.endswith("| 3 (2-20) | 10 (4-50) | 12 (8-25) | 0.5 (0.3-0.8) |")
    assert "0.50 (funcgrad is 2.00 times faster" in report.text(lines)


def test_more_is_better_for_rates(report: Any) -> None:
    lines = [line("funcgrad", "matmul-1024-NN", "gflops", 100), line("jax", "matmul-1024-NN", "gflops", 150)]
    assert "| 1.5 |" in report.text(lines)
    assert "more than 1.1 times slower: 1." in report.text(lines)


def test_the_faster_layout_counts(report: Any) -> None:
    lines = [line("funcgrad", "cnn-mnist", "step_ms", 10), line("torch", "cnn-mnist", "step_ms", 30)]
    lines.append(line("torch", "cnn-mnist-channels-last", "step_ms", 20))
    assert report.text(lines).splitlines()[4].endswith("| 10 | 20 | 0.5 |")


def test_losses_that_differ_are_told(report: Any) -> None:
    lines = [line(p, "lstm", "loss10", x) for p, x in (("funcgrad", 2.046170), ("jax", 2.046171), ("torch", 2.05))]
    assert "The losses of lstm differ" in report.text(lines)
    assert "agree (lstm)" in report.text(lines[:2])


def test_what_did_not_run_is_told(report: Any) -> None:
    lines = [
        line("funcgrad", "lstm", "step_ms", 1),
        {"peer": "torch", "workload": "W9", "skipped": "no time", "round": 0},
    ]
    assert report.text(lines).endswith("- torch, W9: no time")


def test_curves_and_memory(report: Any) -> None:
    lines = [line("funcgrad", "scaling-width", f"step@{n}", n / 1e6, r) for n in (64, 128) for r in (0, 1)]
    lines += [line("funcgrad", "grad-memory-ckpt4", "planned_mib", 197), line("jax", "first-step-12", "total_s", 29)]
    text = report.text(lines)
    assert "step, ms | 64 | 128 |" in text and "| funcgrad | 0.064 | 0.128 |" in text
    assert "| funcgrad | unrolled | planned |  |  | 197 |" in text
    assert "| JAX jit | unrolled | not run | 29 | not run |" in text


def test_every_round_begins_with_another_peer() -> None:
    main = load("benchmarks.__main__")
    peers = [main.Script(p, (f"{p}.py",), (p,)) for p in ("funcgrad", "jax", "torch")]
    parts = main.jobs(3, ["W1", "W7"], peers, 1)
    assert [[j.peer for j in part][:1] for part in parts[:3]] == [["funcgrad"], ["jax"], ["torch"]]
    assert [j.command for j in parts[3]] == [[f"{p}.py", "W7"] for p in ("funcgrad", "jax", "torch")]
    assert len(parts[4]) == 3 * len(load("benchmarks.report").FAMILIES)
