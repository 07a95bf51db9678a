"""funcgrad and the peers that are installed, interleaved: python -m benchmarks [--quick] [--rounds N] [--compile] [W1 ...]

Every workload runs on each peer in turn, in a process of its own, and then all of it again.  The lines go to
build/bench/lines.json, the table to build/bench/table.md and the bars to build/bench/bars.png (with matplotlib).
A ratio compares two peers of one round; the table shows the median of the rounds.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUT = Path("build") / "bench"
WORKLOADS = ["W1", "W2", "W3", "W4", "W5", "W6", "W9", "W10"]
QUICK = ["W1", "W2", "W6"]
# name in the lines, metric, unit, whether more is better
ROWS = [
    ("mlp-small", "step_us", "us", False),
    ("mlp-small", "step_in_scan_us", "us", False),
    ("mlp-mnist", "step_ms", "ms", False),
    ("char-gpt", "step_ms", "ms", False),
    ("cnn-mnist", "step_ms", "ms", False),
    ("matmul-1024-NN", "gflops", "GFLOP/s", True),
    ("matmul-1024-NT", "gflops", "GFLOP/s", True),
    ("matmul-1024-TN", "gflops", "GFLOP/s", True),
    ("elementwise", "forward_ms", "ms", False),
    ("elementwise", "grad_ms", "ms", False),
    ("lstm", "step_ms", "ms", False),
    ("attention", "forward_ms", "ms", False),
    ("attention", "forward_plus_grad_ms", "ms", False),
]
# One workload in two memory layouts: the faster one counts.
VARIANTS = {"cnn-mnist-channels-last": "cnn-mnist"}
LOSS_TOLERANCE = {"mlp-mnist": 1e-3}

Key = tuple[str, str]
Rounds = dict[Key, dict[str, list[list[float]]]]


def scripts(compiled: bool) -> list[list[str]]:
    """The benchmark scripts that can run here."""
    found = [["fg_bench.py"]]
    if importlib.util.find_spec("jax"):
        found.append(["jax_bench.py"])
    if importlib.util.find_spec("torch"):
        found.append(["torch_bench.py"])
        if compiled:
            found.append(["torch_bench.py", "--compile"])
    return found


def run(rounds: int, names: Iterable[str], compiled: bool) -> None:
    """Append every round's lines to lines.json, each marked by its round."""
    OUT.mkdir(parents=True, exist_ok=True)
    lines = OUT / "lines.json"
    lines.write_text("")
    part = OUT / "part.json"
    env = dict(os.environ, BENCH_OUT=str(part.resolve()), BENCH_WAIT=os.environ.get("BENCH_WAIT", "10"))
    env["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), env.get("PYTHONPATH", "")])
    for r in range(rounds):
        for name in names:
            for script in scripts(compiled):
                part.write_text("")
                start = time.time()
                command = [sys.executable, str(HERE / script[0]), *script[1:], name]
                subprocess.run(command, env=env, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                made = [json.dumps({**json.loads(x), "round": r}) for x in part.read_text().splitlines()]
                with lines.open("a") as f:
                    f.writelines(line + "\n" for line in made)
                print(f"# round {r + 1}: {' '.join(script)} {name}, {time.time() - start:.0f} s", flush=True)
    part.unlink()


def load(path: Path) -> Rounds:
    """Medians by row, peer and round; a peer that ran twice in a round by variants has both."""
    rows: Rounds = {}
    for line in path.read_text().splitlines():
        d: dict[str, Any] = json.loads(line)
        name = VARIANTS.get(d["workload"], d["workload"])
        by_round = rows.setdefault((name, d["metric"]), {}).setdefault(d["peer"], [])
        while len(by_round) <= d["round"]:
            by_round.append([])
        by_round[d["round"]].append(d["median"])
    return rows


def best(values: list[float], more: bool) -> float:
    """The better of the variants of one round."""
    return max(values) if more else min(values)


def ratio(peers: dict[str, list[list[float]]], more: bool, rivals: Iterable[str]) -> float | None:
    """Median over the rounds of funcgrad's time over the fastest rival's; None where one is missing."""
    found = []
    for r, own in enumerate(peers.get("funcgrad", [])):
        others = [best(peers[p][r], more) for p in rivals if r < len(peers.get(p, [])) and peers[p][r]]
        if own and others:
            mine, rival = best(own, more), best(others, more)
            found.append(rival / mine if more else mine / rival)
    return statistics.median(found) if found else None


def cell(rounds: list[list[float]], more: bool) -> str:
    """Median of the rounds and their range."""
    values = [best(v, more) for v in rounds if v]
    if not values:
        return ""
    low, high = min(values), max(values)
    middle = f"{statistics.median(values):.3g}"
    return middle if len(values) == 1 else f"{middle} ({low:.3g}-{high:.3g})"


def table(rows: Rounds) -> str:
    """The Markdown table, the geometric mean and the check of the losses."""
    peers = list(dict.fromkeys(p for by_peer in rows.values() for p in by_peer))
    rivals = [p for p in peers if p != "funcgrad"]
    out = ["| workload | unit | " + " | ".join(peers) + " | time / fastest peer |", "|---" * (len(peers) + 3) + "|"]
    ratios = []
    for name, metric, unit, more in ROWS:
        by_peer = rows.get((name, metric))
        if not by_peer or "funcgrad" not in by_peer:
            continue
        found = ratio(by_peer, more, rivals)
        ratios += [found] if found else []
        cells = [cell(by_peer.get(p, []), more) for p in peers]
        label = f"{name} {metric.rsplit('_', 1)[0].replace('_', ' ')}" if metric != "gflops" else name
        out.append(f"| {label} | {unit} | " + " | ".join(cells) + f" | {found:.2f} |" if found else "|")
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        out += [
            "",
            f"Geometric mean of the {len(ratios)} ratios: {mean:.2f} (funcgrad is {1 / mean:.2f} times faster).",
        ]
    return "\n".join([*out, "", *losses(rows)])


def losses(rows: Rounds) -> list[str]:
    """One line for each training workload whose losses after ten steps do not agree, or that all do."""
    bad = []
    for (name, metric), by_peer in rows.items():
        values = {p: v for p, rs in by_peer.items() for r in rs for v in r} if metric == "loss10" else {}
        if values and max(values.values()) - min(values.values()) > LOSS_TOLERANCE.get(name, 2e-5) * max(
            values.values()
        ):
            bad.append(f"The losses of {name} differ: {values}")
    return bad or ["The losses after ten steps agree."]


def bars(rows: Rounds, path: Path) -> None:
    """Bars of each peer's time over the fastest one's."""
    if not importlib.util.find_spec("matplotlib"):
        return
    pyplot = importlib.import_module("matplotlib.pyplot")
    peers = list(dict.fromkeys(p for by_peer in rows.values() for p in by_peer))
    shown = [(n, m, more) for n, m, _, more in ROWS if "funcgrad" in rows.get((n, m), {})]
    figure, axes = pyplot.subplots(figsize=(10, 4.5))
    width = 0.8 / len(peers)
    for k, peer in enumerate(peers):
        xs, heights = [], []
        for i, (name, metric, more) in enumerate(shown):
            by_peer = rows[name, metric]
            middles = {p: statistics.median([best(v, more) for v in r if v]) for p, r in by_peer.items() if any(r)}
            if peer in middles:
                top = best(list(middles.values()), more)
                xs.append(i + k * width)
                heights.append(top / middles[peer] if more else middles[peer] / top)
        axes.bar(xs, heights, width, label=peer)
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(shown))])
    axes.set_xticklabels([f"{n}\n{m.rsplit('_', 1)[0]}" for n, m, _ in shown], rotation=40, ha="right", fontsize=7)
    axes.set_ylabel("time over the fastest")
    axes.set_ylim(0, 8)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=70)


def main(argv: list[str]) -> None:
    """Run and report."""
    quick = "--quick" in argv
    rounds = int(argv[argv.index("--rounds") + 1]) if "--rounds" in argv else 1 if quick else 5
    names = [a.upper() for a in argv if a[:1] in "wW" and a[1:].isdigit()] or (QUICK if quick else WORKLOADS)
    if quick:
        os.environ.setdefault("BENCH_SCALE", "0.1")
        os.environ.setdefault("BENCH_WAIT", "0")
    if "--report" not in argv:
        run(rounds, names, "--compile" in argv)
    rows = load(OUT / "lines.json")
    text = table(rows)
    (OUT / "table.md").write_text(text + "\n")
    bars(rows, OUT / "bars.png")
    print("\n" + text)


if __name__ == "__main__":
    main(sys.argv[1:])
