"""Fitting: what checkpoints keep is chosen so that the planner's peak of a whole program is within a budget.

A program is traced once with everything kept.  If its plan does not fit, it is traced again with less: first with the
least that can be kept, then with as much more as fits, by bisection.  Each trial is planned as it would run.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from funcgrad.control.call import Checkpoint
from funcgrad.errors import MemoryBudgetError, message
from funcgrad.ir import Equation, Graph, Var, subgraphs
from funcgrad.passes.residuals import LEVELS, Offer, choices, pieces_by_estimate
from funcgrad.runtime import device as _device

__all__ = ["Fit", "budget_of", "deferred", "fit_program", "parse_bytes", "planned"]

T = TypeVar("T")
UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_state = threading.local()
EVERYTHING = "everything"  # what checkpoints keep while a jitted function is traced first


def parse_bytes(size: int | str) -> int:
    """A number of bytes from an integer or from text such as "512MiB" (powers of 1024) or "1.5GB" (powers of 1000)."""
    found: int | None = None
    if isinstance(size, str):
        m = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kmgt]?)(i?)(b?)\s*", size.lower())
        if m and not (m[3] and not m[2]):
            found = math.floor(float(m[1]) * (1024 if m[3] else 1000) ** UNITS[m[2]])
    elif not isinstance(size, bool) and hasattr(size, "__index__"):
        found = size.__index__()
    if found is None or found <= 0:
        way_out = 'use an integer, or a number with a unit: "512MiB", "1.5GiB", "800MB"'
        raise ValueError(message("checkpoint_policies.fit", "a positive number of bytes", repr(size), way_out))
    return found


class Trial:
    """One tracing with given choices; ``offers`` are what the checkpoints met could keep, in order."""

    def __init__(self, pieces: int = 0, kept: Sequence[tuple[int, int]] = ()):
        self.pieces, self.kept = pieces, set(kept)  # 0 pieces: everything
        self.offers: list[Offer] = []

    def choose(self, offer: Offer) -> set[Var]:
        """What the next checkpoint keeps."""
        number = len(self.offers)
        self.offers.append(offer)
        if not self.pieces:
            return {*offer.free, *offer.wanted}
        found = {*offer.free, *offer.cuts(self.pieces)[0]}
        for k, (_, _, vs) in enumerate(offer.groups()):
            if (number, k) in self.kept:
                found.update(vs)
        return found


class Fit:
    """The policy ``checkpoint_policies.fit(budget)``."""

    def __init__(self, budget: int):
        self.budget = budget

    def __call__(self, eqn: Equation) -> bool:
        """As a part of another policy: everything."""
        return True

    def __repr__(self) -> str:
        return f"fit({self.budget})"

    @property
    def state(self) -> Any:
        """What the choice depends on besides the graph."""
        mode = getattr(_state, "mode", None)
        return ("alone", _device.default()) if mode is None else mode

    def choose(
        self, values: Graph, residuals: Sequence[Var], make: Callable[[list[Var]], tuple[Graph, Graph]]
    ) -> list[Var]:
        """What to keep of ``residuals`` and other values; ``make`` gives the forward and backward graphs for that."""
        offer = Offer(values, residuals)
        mode = getattr(_state, "mode", None)
        if isinstance(mode, Trial):
            return self._ordered(offer, mode.choose(offer))
        everything = self._ordered(offer, {*offer.free, *offer.wanted})
        if mode == EVERYTHING:
            return everything

        def peak(trial: Trial) -> Outcome:
            saved = self._ordered(offer, trial.choose(offer))
            return Outcome(_peak_of_pair(*make(saved), saved), saved, trial.offers)

        found: list[Var] = search(peak, self.budget, values.name)
        return found

    @staticmethod
    def _ordered(offer: Offer, kept: set[Var]) -> list[Var]:
        return [v for v in offer.place if v in kept] + [v for v in offer.free if v not in offer.place]


def _peak_of_pair(forward: Graph, again: Graph, saved: list[Var]) -> int | None:
    """The planner's peak of a checkpoint's value and gradients as a program of their own."""
    grads = [Var(a.aval) for a in again.outputs]
    late = again.inputs[len(saved) :]
    backward = Equation(Checkpoint(again), again.inputs, grads)
    outputs = [*forward.outputs[: len(forward.outputs) - len(saved)], *grads]
    return planned(_device.default(), Graph(late, [*forward.eqns, backward], outputs))


def planned(device: Any, graph: Graph, donate: frozenset[int] = frozenset()) -> int | None:
    """The peak in bytes of a graph on a device; None where memory is not planned (numpy).

    A device other than the CPU is planned as the CPU.
    """
    plan = getattr(device if hasattr(device, "plan") else _device.get("cpu"), "plan", None)
    if device.name == "numpy" or plan is None:
        return None
    return int(plan(graph, donate).peak_bytes)


class Outcome(NamedTuple):
    """A trial's peak, what it made, and what its checkpoints could keep."""

    peak: int | None
    made: Any
    offers: list[Offer]


def search(run: Callable[[Trial], Outcome], budget: int, what: str) -> Any:
    """What ``run`` makes of the trial that keeps most of what fits; MemoryBudgetError when none does."""
    everything = run(Trial())
    if everything.peak is None or everything.peak <= budget:
        return everything.made
    levels = choices(everything.offers)
    best, pieces = everything, 0
    for number in pieces_by_estimate(everything.offers):
        found = run(Trial(number))
        if found.peak is not None and best.peak is not None and found.peak < best.peak:
            best, pieces = found, number
    if best.peak is None or best.peak > budget:
        raise _too_small(what, budget, best.peak or 0, everything.peak)
    low, high, guess = 0, LEVELS, 0
    share = (budget - best.peak) / max(everything.peak - best.peak, 1)  # the peak grows about evenly
    while high - low > 1:
        if not guess:
            guess = round(share * LEVELS)
        else:  # from there on in growing steps, then by halves
            guess = (low + high) // 2 if low and high < LEVELS else min(2 * low, low + 2) if low else high - 2
        guess = min(max(guess, low + 1), high - 1)
        found = run(Trial(pieces, levels[guess])) if levels[guess] != levels[low] else best
        if found.peak is not None and found.peak <= budget:
            low, best = guess, found
        else:
            high = guess
    return best.made


def _too_small(what: str, budget: int, least: int, most: int) -> MemoryBudgetError:
    got = f"a budget of {budget:,}: the least peak found is {least:,}, keeping everything takes {most:,}"
    way_out = (
        f"fit({least}), a smaller batch, donated arguments, or checkpoints around more of the function "
        "(arguments, results and gradients always count)"
    )
    return MemoryBudgetError(message(what, "the planner's peak in bytes must fit the budget", got, way_out))


# -- whole programs ----------------------------------------------------------------------------------------------
@contextmanager
def _in_mode(mode: Any) -> Iterator[None]:
    saved, _state.mode = getattr(_state, "mode", None), mode
    try:
        yield
    finally:
        _state.mode = saved


@contextmanager
def deferred() -> Iterator[None]:
    """Inside, checkpoints keep everything until the whole program is there; trials are left as they are."""
    with _in_mode(getattr(_state, "mode", None) or EVERYTHING):
        yield


def budget_of(graph: Graph) -> int | None:
    """The smallest budget of the checkpoints in a graph, None where there is none."""
    found = []
    for eqn in graph.eqns:
        if eqn.prim.multiple:
            policy = getattr(eqn.prim, "policy", None)
            inner = [policy.budget] if isinstance(policy, Fit) else [budget_of(g) for g in subgraphs(eqn)]
            found += [b for b in inner if b is not None]
    return min(found, default=None)


def fit_program(trace_again: Callable[[], T], peak: Callable[[T], int | None], budget: int, what: str) -> T:
    """Return what ``trace_again`` gives with as much kept as fits the budget."""

    def run(trial: Trial) -> Outcome:
        with _in_mode(trial):
            made = trace_again()
        return Outcome(peak(made), made, trial.offers)

    found: T = search(run, budget, what)
    return found
