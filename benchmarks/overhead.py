"""Python per warm call of a jitted step: what a call costs beside the computation, by the number of donated leaves.

    python benchmarks/overhead.py

The step adds a scalar to each leaf of its donated state.  "call" is the whole call, "compute" the run of the graph inside it
(one call into C), "beside" the difference.  Minima over many repetitions.
"""

import time

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp

TARGETS = {20: 25.0, 300: 60.0}  # microseconds beside the computation


def best(run, repeat=300, inner=20):
    """The least mean time of ``inner`` runs, in microseconds."""
    least = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(inner):
            run()
        least = min(least, (time.perf_counter() - start) / inner)
    return least * 1e6


def measure(n, host):
    """One row: call, compute, and process time per call, with a scalar on the device or (``host``) on the host."""
    step = fg.jit(lambda state, x: [s + x for s in state], donate_argnums=0)
    box = [step([fnp.asarray(np.float32(i)) for i in range(n)], 1.0)]
    x = np.ones((), np.float32) if host else fnp.asarray(1.0)

    def call():
        box[0] = step(box[0], x)

    call()
    total = best(call)
    start, steps = time.process_time(), 5000
    for _ in range(steps):
        call()
    process = (time.process_time() - start) / steps * 1e6
    ex = step._last.executable
    compute = best(lambda: ex._call(ex._program, ex._bound, ex._err, 512))
    return total, compute, process


def main():
    print(f"{'leaves':>7} {'input':>7} {'call':>8} {'compute':>8} {'beside':>8} {'process':>8} {'target':>8}   (us)")
    for n in (1, 20, 300):
        for host in (False, True):
            total, compute, process = measure(n, host)
            row = f"{n:>7} {'host' if host else 'device':>7} {total:>8.1f} {compute:>8.1f} {total - compute:>8.1f}"
            print(f"{row} {process:>8.1f} {TARGETS.get(n, ''):>8}")


if __name__ == "__main__":
    with fg.default_device("cpu"):
        main()
