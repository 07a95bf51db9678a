"""funcgrad and the peers that are installed, interleaved: python -m benchmarks [options] [W1 ... W10]

    (nothing)       W1 to W6, W9 and W10 in five rounds, then once the first step (W7), peak memory (W8) and the scaling curves
    --quick         some of it once, in under a minute
    --scaling       the scaling curves alone
    --report        make the tables and pictures of the last run again
    --publish       and keep them in benchmarks/results
    --rounds N      other than five
    --no-compile    leave torch.compile out

Every workload runs on each peer in turn, in a process of its own, and then all of it again; each round begins with another
peer.  A ratio compares two peers of one round; the table shows the median of the rounds.  Lines, tables and pictures go to
build/bench; the pictures need matplotlib.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from benchmarks import report

HERE = Path(__file__).resolve().parent
OUT = Path("build") / "bench"
TIMED = ["W1", "W2", "W3", "W4", "W5", "W6", "W9", "W10"]
ONCE = ["W7", "W8"]  # W7 takes minutes, W8 is exact
QUICK = ["W1", "W2", "W6", "W10"]
PATIENCE = 600  # seconds for one process


class Script(NamedTuple):
    """How one peer is run."""

    peer: str
    command: tuple[str, ...]
    scaling: tuple[str, ...] = ()  # arguments of scaling.py


def scripts(compiled: bool) -> list[Script]:
    """The peers that can run here; says which cannot."""
    found = [Script("funcgrad", ("fg_bench.py",), ("funcgrad",))]
    if importlib.util.find_spec("jax") and importlib.util.find_spec("optax"):
        found.append(Script("jax", ("jax_bench.py",), ("jax",)))
    else:
        print("# JAX is not installed and is left out: pip install jax optax", flush=True)
    if importlib.util.find_spec("torch"):
        found.append(Script("torch", ("torch_bench.py",), ("torch",)))
        if compiled:
            found.append(Script("torch-compile", ("torch_bench.py", "--compile")))
    else:
        print("# PyTorch is not installed and is left out: make peers-torch, or pip install torch", flush=True)
    return found


class Job(NamedTuple):
    """One process: the round it is of, whose it is, and its command."""

    round: int
    peer: str
    command: list[str]


class Runner:
    """Runs processes one after another and collects their lines."""

    def __init__(self, total: int, scale: float):
        self.total, self.done, self.start = total, 0, time.time()
        OUT.mkdir(parents=True, exist_ok=True)
        self.lines, self.part, self.log = OUT / "lines.json", OUT / "part.json", OUT / "log.txt"
        self.lines.write_text(json.dumps({"workload": "machine", "peer": "", "text": machine()}) + "\n")
        self.log.write_text("")
        env = dict(os.environ, BENCH_OUT=str(self.part.resolve()), BENCH_MEMORY_ONLY="1")
        env.setdefault("BENCH_WAIT", "2")
        env.setdefault("BENCH_SCALE", str(scale))
        env["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), env.get("PYTHONPATH", "")])
        env["TORCHINDUCTOR_CACHE_DIR"] = str((OUT / "inductor").resolve())
        self.env = env

    def run(self, job: Job) -> None:
        """One process; its lines are marked by the round, and progress is shown."""
        r, peer, command = job
        self.part.write_text("")
        start = time.time()
        # compile times are a result of W7 only; elsewhere a compiled kernel may be kept from round to round
        env = dict(self.env, TORCHINDUCTOR_FORCE_DISABLE_CACHES=str(int("W7" in command)))
        with self.log.open("a") as log:
            log.write(f"# {' '.join(command)}\n")
            log.flush()
            ended = _wait([sys.executable, str(HERE / command[0]), *command[1:]], env, log)
        made = [{**json.loads(x), "round": r} for x in self.part.read_text().splitlines()]
        if ended:
            made.append({"peer": peer, "workload": " ".join(command), "skipped": ended, "round": r})
        with self.lines.open("a") as f:
            f.writelines(json.dumps(line) + "\n" for line in made)
        self.done += 1
        spent = time.time() - self.start
        left = spent / self.done * (self.total - self.done)
        what = f"{peer} {' '.join(c for c in command[1:] if not c.startswith('--'))}"
        print(
            f"# {self.done}/{self.total} {what}, {time.time() - start:.0f} s; about {left / 60:.0f} min left",
            flush=True,
        )


def _wait(command: Sequence[str], env: dict[str, str], log: IO[str]) -> str:
    """Run a process in a session of its own and end whatever it leaves behind; why it failed, or nothing."""
    process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    why = ""
    try:
        code = process.wait(PATIENCE)
        why = f"ended with status {code}" if code else ""
    except subprocess.TimeoutExpired:
        why = f"took more than {PATIENCE} s"
    finally:
        with contextlib.suppress(ProcessLookupError):  # compilers of torch.compile stay, and would disturb the next one
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return why


def machine() -> str:
    """The day, the processor, and the versions of what is compared."""
    names = ("funcgrad", "numpy", "jax", "optax", "torch")
    versions = []
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{name} {importlib.metadata.version(name)}")
    model = platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return f"{day}, {cores} cores of {model}, Python {platform.python_version()}, {', '.join(versions)}."


def turned(found: list[Script], r: int) -> list[Script]:
    """The peers, beginning with another one in each round."""
    k = r % len(found)
    return found[k:] + found[:k]


def jobs(rounds: int, names: Sequence[str], found: list[Script], scaling: int) -> list[list[Job]]:
    """What to run, in order: round by round, then what runs once, then the scaling curves."""
    out = []
    for r in range(rounds):
        timed = [n for n in names if n not in ONCE]
        out.append([Job(r, s.peer, [*s.command, n]) for n in timed for s in turned(found, r) if _runs(s, n, r)])
    out.append([Job(0, s.peer, [*s.command, n]) for n in names if n in ONCE for s in found if _runs(s, n, 0)])
    scaled = [s for s in found if s.scaling]
    for r in range(scaling):
        families = report.FAMILIES
        out.append([Job(r, s.peer, ["scaling.py", *s.scaling, f]) for f in families for s in turned(scaled, r)])
    return out


def _runs(s: Script, name: str, r: int) -> bool:
    """torch.compile has nothing of its own to do in some workloads, and says of W9 why it is left out."""
    return s.peer != "torch-compile" or not (name in ("W5", "W8") or (name == "W9" and r > 0))


def run(parts: list[list[Job]], scale: float) -> None:
    """Run everything; lines.json gets each line, marked by its round, and the tables grow from part to part."""
    runner = Runner(sum(map(len, parts)), scale)
    for part in parts:
        for job in part:
            runner.run(job)
        write()
    runner.part.unlink()


def write() -> str:
    """Make the tables and pictures of what there is; return the text."""
    lines: list[dict[str, Any]] = [json.loads(x) for x in (OUT / "lines.json").read_text().splitlines()]
    text = report.text(lines)
    (OUT / "table.md").write_text(text + "\n")
    if importlib.util.find_spec("matplotlib"):
        report.bars(lines, OUT / "bars.png")
        report.curves(lines, OUT / "scaling.png")
    return text


def main(argv: list[str]) -> None:
    """Run and report."""
    quick, only_scaling = "--quick" in argv, "--scaling" in argv
    rounds = int(argv[argv.index("--rounds") + 1]) if "--rounds" in argv else 1 if quick else 5
    named = [a.upper() for a in argv if a[:1] in "wW" and a[1:].isdigit()]
    names = named or ([] if only_scaling else QUICK if quick else TIMED + ONCE)
    if "--report" not in argv:
        found = scripts(not quick and "--no-compile" not in argv)
        scaling = 2 if only_scaling else 0 if named or quick else 1
        if quick:
            os.environ.setdefault("BENCH_WAIT", "0")
        run(jobs(rounds, names, found, scaling), 0.1 if quick else 0.25)
    print("\n" + write())
    if "--publish" in argv:
        kept = HERE / "results"
        kept.mkdir(exist_ok=True)
        for name in ("table.md", "bars.png", "scaling.png"):
            if (OUT / name).exists():
                shutil.copyfile(OUT / name, kept / name)
    print(f"\nLines, tables and pictures: {OUT}")


if __name__ == "__main__":
    main(sys.argv[1:])
