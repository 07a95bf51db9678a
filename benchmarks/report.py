"""Tables and pictures of the benchmarks' lines."""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Line = dict[str, Any]


class Row(NamedTuple):
    """A row of the main table: where its numbers are, what they are, and whether more is better."""

    workload: str
    metric: str
    label: str
    unit: str
    more: bool = False


ROWS = [
    Row("mlp-small", "step_us", "W1 mlp-small, a step from Python", "us"),
    Row("mlp-small", "step_in_scan_us", "W1 a step inside a scan of steps", "us"),
    Row("mlp-mnist", "step_ms", "W2 mlp-mnist step", "ms"),
    Row("char-gpt", "step_ms", "W3 char-gpt step", "ms"),
    Row("cnn-mnist", "step_ms", "W4 cnn-mnist step", "ms"),
    Row("matmul-1024-NN", "gflops", "W5 product 1024 NN", "GFLOP/s", True),
    Row("matmul-1024-NT", "gflops", "W5 product 1024 NT", "GFLOP/s", True),
    Row("matmul-1024-TN", "gflops", "W5 product 1024 TN", "GFLOP/s", True),
    Row("elementwise", "forward_ms", "W6 elementwise forward", "ms"),
    Row("elementwise", "grad_ms", "W6 elementwise gradient", "ms"),
    Row("lstm", "step_ms", "W9 lstm step", "ms"),
    Row("attention", "forward_ms", "W10 attention forward", "ms"),
    Row("attention", "forward_plus_grad_ms", "W10 attention with gradient", "ms"),
]
PEERS = ["funcgrad", "jax", "torch", "torch-compile"]
TITLE = {"funcgrad": "funcgrad", "jax": "JAX jit", "torch": "PyTorch eager", "torch-compile": "torch.compile"}
COLOR = {"funcgrad": "#1b6ca8", "jax": "#d1742f", "torch": "#7a9e3a", "torch-compile": "#9a7bb0"}
# One workload in two memory layouts: the faster one counts.
VARIANTS = {"cnn-mnist-channels-last": "cnn-mnist"}
LOSS_TOLERANCE = {"mlp-mnist": 1e-3}
LAYERS = (4, 12, 24)
EVERY = {0: "none", 1: "every layer", 4: "every 4 layers"}
# what a scaling curve varies, and what is timed
FAMILIES = ("width", "depth", "batch", "equations", "leaves")
CURVES = {
    "width": ("width of 3 dense layers, batch 128", "step", "ms"),
    "depth": ("dense layers of 128, batch 64", "step", "ms"),
    "batch": ("batch, 3 dense layers of 256", "step", "ms"),
    "equations": ("equations on 256 elements", "call", "ms"),
    "leaves": ("leaves of 64 elements, an Adam step", "step", "ms"),
}
FIRST = {"depth": "first step, s", "equations": "first call, s"}

Rounds = dict[str, dict[int, list[float]]]  # by peer and round: one value for each variant


def values(lines: Iterable[Line], workload: str, metric: str) -> Rounds:
    """The medians of one row."""
    found: Rounds = {}
    for d in lines:
        if VARIANTS.get(d["workload"], d["workload"]) == workload and d.get("metric") == metric:
            found.setdefault(d["peer"], {}).setdefault(d["round"], []).append(d["median"])
    return found


def best(found: Rounds, more: bool) -> dict[str, dict[int, float]]:
    """The better of the variants, by peer and round."""
    pick = max if more else min
    return {p: {r: pick(v) for r, v in rounds.items()} for p, rounds in found.items()}


def ratios(by_peer: dict[str, dict[int, float]], more: bool) -> list[float]:
    """funcgrad's time over the fastest other's, in each round that has both."""
    out = []
    for r, own in by_peer.get("funcgrad", {}).items():
        others = [rounds[r] for p, rounds in by_peer.items() if p != "funcgrad" and r in rounds]
        if others:
            out.append(max(others) / own if more else own / min(others))
    return out


def number(x: float) -> str:
    """Three digits."""
    return f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def spread(xs: Sequence[float]) -> str:
    """The median and the range."""
    if not xs:
        return ""
    middle = number(statistics.median(xs))
    return middle if len(xs) == 1 else f"{middle} ({number(min(xs))}-{number(max(xs))})"


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def present(lines: Iterable[Line]) -> list[str]:
    """The peers that the lines are of."""
    found = {d["peer"] for d in lines if "metric" in d}
    return [p for p in PEERS if p in found]


def text(lines: Sequence[Line]) -> str:
    """Every table that the lines give."""
    parts = [
        circumstances(lines),
        main_table(lines),
        losses(lines),
        first_steps(lines),
        memory(lines),
        scaling(lines),
        skipped(lines),
    ]
    return "\n\n".join("\n".join(p) for p in parts if p)


def circumstances(lines: Sequence[Line]) -> list[str]:
    """Where and when, and how much of the machine others had."""
    out = [d["text"] for d in lines if d["workload"] == "machine"]
    others = [d["other_cpu"] for d in lines if d.get("other_cpu") is not None]
    if others:
        rounds = 1 + max(d["round"] for d in lines if "round" in d and not d["workload"].startswith("scaling"))
        out.append(
            f"{rounds} round{'s' * (rounds > 1)}; medians with their range over the rounds.  Other processes used "
            f"{statistics.median(others):.2f} cores while times were taken (the median; at most {max(others):.2f})."
        )
    return out


def main_table(lines: Sequence[Line]) -> list[str]:
    """Medians of the rounds with their range, and the geometric mean of the ratios to the fastest peer."""
    peers, rows, middles = present(lines), [], []
    for row in ROWS:
        by_peer = best(values(lines, row.workload, row.metric), row.more)
        if "funcgrad" not in by_peer:
            continue
        found = ratios(by_peer, row.more)
        middles += [statistics.median(found)] if found else []
        rows.append([row.label, row.unit, *[spread([*by_peer.get(p, {}).values()]) for p in peers], spread(found)])
    if not rows:
        return []
    out = grid(["workload", "unit", *[TITLE[p] for p in peers], "time / fastest peer"], rows)
    if middles:
        mean = math.exp(sum(map(math.log, middles)) / len(middles))
        times = f"{1 / mean:.2f} times faster" if mean < 1 else f"{mean:.2f} times slower"
        slower = sum(m > 1.1 for m in middles)
        out += [
            "",
            f"Geometric mean of the {len(middles)} ratios: {mean:.2f} (funcgrad is {times} than the fastest peer).",
        ]
        out += [f"Rows on which funcgrad is more than 1.1 times slower: {slower}."]
    return out


def losses(lines: Sequence[Line]) -> list[str]:
    """One line for each training workload whose losses after ten steps do not agree, or that all do."""
    names = list(
        dict.fromkeys(VARIANTS.get(d["workload"], d["workload"]) for d in lines if d.get("metric") == "loss10")
    )
    bad = []
    for name in names:
        by_peer = {p: [x for v in rs.values() for x in v] for p, rs in values(lines, name, "loss10").items()}
        every = [x for v in by_peer.values() for x in v]
        if max(every) - min(every) > LOSS_TOLERANCE.get(name, 2e-5) * abs(max(every)):
            bad.append(f"The losses of {name} differ: {by_peer}")
    return bad or ([f"The losses after ten steps agree ({', '.join(names)})."] if names else [])


def first_steps(lines: Sequence[Line]) -> list[str]:
    """W7: seconds until the first step is done."""
    rows = []
    for p in present(lines):
        for form, suffix in (("unrolled", ""), ("scan over the layers", "-scan")):
            found = [values(lines, f"first-step-{n}{suffix}", "total_s").get(p, {}) for n in LAYERS]
            if any(found):
                rows.append([TITLE[p], form, *[spread([x for v in f.values() for x in v]) or "not run" for f in found]])
    head = ["W7: first step, s", "form", *[f"{n} layers" for n in LAYERS]]
    return grid(head, rows) if rows else []


def memory(lines: Sequence[Line]) -> list[str]:
    """W8: what one gradient takes beside parameters and data, by the planner and by the process."""
    kinds = [("peak_rss_growth_mib", "the process grew by"), ("planned_mib", "planned")]
    rows = []
    for p in present(lines):
        for form, suffix in (("unrolled", ""), ("scan over the layers", "-scan")):
            for metric, label in kinds:
                found = [values(lines, f"grad-memory-ckpt{e}{suffix}", metric).get(p, {}) for e in EVERY]
                if any(found):
                    cells = [spread([x for v in f.values() for x in v]) for f in found]
                    rows.append([TITLE[p], form, label, *cells])
    return grid(["W8: peak of a gradient, MiB", "form", "by", *EVERY.values()], rows) if rows else []


def points(lines: Iterable[Line], family: str, what: str) -> dict[str, dict[int, float]]:
    """A curve for each peer: the best of the rounds."""
    found: dict[str, dict[int, float]] = {}
    for d in lines:
        name, _, x = d.get("metric", "").partition("@")
        if d["workload"] == f"scaling-{family}" and name == what:
            curve = found.setdefault(d["peer"], {})
            curve[int(x)] = min(d["median"], curve.get(int(x), math.inf))
    return {p: dict(sorted(found[p].items())) for p in PEERS if p in found}


def scaling(lines: Sequence[Line]) -> list[str]:
    """The curves as tables."""
    out: list[str] = []
    for family in FAMILIES:
        axis, what, unit = CURVES[family]
        wanted = [(what, f"{what}, {unit}", 1e3)] + ([("first", FIRST[family], 1.0)] if family in FIRST else [])
        for metric, label, factor in wanted:
            curves = points(lines, family, metric)
            xs = sorted({x for c in curves.values() for x in c})
            if xs:
                rows = [[TITLE[p], *[number(c[x] * factor) if x in c else "" for x in xs]] for p, c in curves.items()]
                out += [*grid([f"{axis}: {label}", *map(str, xs)], rows), ""]
    return out[:-1]


def skipped(lines: Sequence[Line]) -> list[str]:
    """What did not run, and why."""
    found = dict.fromkeys(f"{d['peer']}, {d['workload']}: {d['skipped']}" for d in lines if "skipped" in d)
    return ["Not run:", "", *[f"- {x}" for x in found]] if found else []


# -- pictures ----------------------------------------------------------------------------------------------------
def bars(lines: Sequence[Line], path: Path) -> None:
    """Bars of each peer's time over the fastest one's, in the medians."""
    shown = [r for r in ROWS if "funcgrad" in values(lines, r.workload, r.metric)]
    if not shown:
        return
    pyplot = importlib.import_module("matplotlib.pyplot")
    peers = present(lines)
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.48 * len(shown)))
    height = 0.8 / len(peers)
    for k, peer in enumerate(peers):
        ys, widths = [], []
        for i, row in enumerate(shown):
            by_peer = best(values(lines, row.workload, row.metric), row.more)
            middles = {p: statistics.median(rounds.values()) for p, rounds in by_peer.items()}
            if peer in middles:
                fastest = max(middles.values()) if row.more else min(middles.values())
                ys.append(i + (k - (len(peers) - 1) / 2) * height)
                widths.append(fastest / middles[peer] if row.more else middles[peer] / fastest)
        drawn = axes.barh(ys, widths, height, label=TITLE[peer], color=COLOR[peer])
        axes.bar_label(drawn, [f"{w:.1f}" if w >= 1.05 else "1" for w in widths], fontsize=6, padding=2)
    axes.axvline(1, color="black", linewidth=0.6)
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    axes.minorticks_off()
    axes.set_yticks(range(len(shown)), [r.label for r in shown], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("time over the fastest, less is better")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=len(peers), frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def curves(lines: Sequence[Line], path: Path) -> None:
    """One panel for each curve."""
    panels = []
    for f in FAMILIES:
        panels.append((f, CURVES[f][1], f"{CURVES[f][1]}, ms", 1e3))
        panels += [(f, "first", FIRST[f], 1.0)] if f in FIRST else []
    panels = [p for p in panels if points(lines, p[0], p[1])]
    if not panels:
        return
    pyplot = importlib.import_module("matplotlib.pyplot")
    columns = min(len(panels), 4)
    shape = -(-len(panels) // columns), columns
    figure, axes = pyplot.subplots(*shape, figsize=(3.4 * columns, 2.9 * shape[0]), squeeze=False)
    for ax, (family, what, label, factor) in zip(axes.flat, panels, strict=False):
        for peer, curve in points(lines, family, what).items():
            xs, ys = list(curve), [y * factor for y in curve.values()]
            ax.loglog(xs, ys, marker="o", markersize=3, linewidth=1.3, label=TITLE[peer], color=COLOR[peer])
        ticks = sorted({x for c in points(lines, family, what).values() for x in c})
        ax.set_xticks(ticks, [str(t) for t in ticks])
        ax.minorticks_off()
        ax.set_xlabel(CURVES[family][0], fontsize=8)
        ax.set_ylabel(label, fontsize=8)
        ax.tick_params(labelsize=7)
        ax.grid(True, which="major", linewidth=0.3)
    for ax in list(axes.flat)[len(panels) :]:
        ax.axis("off")
    axes.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
