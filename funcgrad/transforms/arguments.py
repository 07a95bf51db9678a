"""Arguments chosen by position or by name, as ``jit`` takes them for what is static and what is donated."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad.errors import message

__all__ = ["Chosen"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Chosen:
    """Parameters of a function, by position and by name: whichever way a call passes one, it is found.

    Raises ValueError for a position or a name that the function does not have.

    >>> chosen = Chosen(lambda x, n: x, 1, (), "static", "jit of f")
    >>> chosen.positions(2), chosen.names
    ({1}, frozenset({'n'}))
    """

    def __init__(
        self, fun: Callable[..., Any], nums: int | Sequence[int], names: str | Sequence[str], option: str, what: str
    ):
        self.nums = (nums,) if isinstance(nums, int) else tuple(nums or ())
        self.names = frozenset((names,) if isinstance(names, str) else names or ())
        try:
            parameters = list(inspect.signature(fun).parameters.values())
        except (TypeError, ValueError):  # some builtins have no signature
            return
        kinds = {p.kind for p in parameters}
        positional = [p.name for p in parameters if p.kind in _POSITIONAL]
        open_ended = inspect.Parameter.VAR_POSITIONAL in kinds
        for n in self.nums:
            if not open_ended and not -len(positional) <= n < len(positional):
                got = f"{n} for a function of {len(positional)} positional parameters"
                raise ValueError(message(what, f"{option}_argnums must name parameters", got))
        known = {p.name for p in parameters if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
        for name in self.names:
            if name not in known and inspect.Parameter.VAR_KEYWORD not in kinds:
                raise ValueError(
                    message(what, f"{option}_argnames must name parameters", f"{name!r} of {sorted(known)}")
                )
        by_num = {
            positional[n] for n in self.nums if -len(positional) <= n < len(positional) and not (n < 0 and open_ended)
        }
        by_name = [positional.index(n) for n in self.names if n in positional]
        if not open_ended:
            self.nums = tuple([n % len(positional) for n in self.nums])
        self.nums = tuple(dict.fromkeys([*self.nums, *by_name]))
        self.names |= by_num

    def __bool__(self) -> bool:
        return bool(self.nums or self.names)

    def positions(self, count: int) -> set[int]:
        """The chosen ones among ``count`` positional arguments."""
        return {n % count for n in self.nums if -count <= n < count}
