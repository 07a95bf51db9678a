"""Ctrl-C in the middle of calls that donate: what the caller holds is the old state or the new one, whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROUNDS = """
fg.block_until_ready(step(make()))
start = time.perf_counter()
fg.block_until_ready(step(make()))
half = (time.perf_counter() - start) / 2
main, count = threading.main_thread().ident, 0
for _ in range(10):
    state = make()
    timer = threading.Timer(half, lambda: signal.pthread_kill(main, signal.SIGINT))
    try:
        timer.start()
        state = step(state)
        timer.join()
    except KeyboardInterrupt:
        count += 1
    values = [float(np.asarray(v).ravel()[0]) for v in state.values()]
    assert values in (OLD, NEW), values
print("interrupted", count > 0)
"""
IMPORTS = "import signal, threading, time\nimport numpy as np\nimport funcgrad as fg\nimport funcgrad.numpy as fnp\n"


def check_interrupts(program: str) -> None:
    """``program`` defines ``step``, which donates its argument, a dictionary that ``make`` makes; and ``OLD`` and
    ``NEW``, the first elements of that dictionary's arrays before and after a step."""
    for _ in range(3):  # the signal may come where nothing is caught, which says nothing
        code = [sys.executable, "-c", IMPORTS + program + ROUNDS]
        done = subprocess.run(code, capture_output=True, text=True, timeout=120)
        assert "AssertionError" not in done.stderr and "DonationError" not in done.stderr, done.stderr
        if done.stdout.strip() == "interrupted True":
            return
    pytest.fail(f"no run came through: {done.stderr[-500:]}")
