"""Names for parts of a program, shown wherever an operation's source line is."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from funcgrad.errors import message, origin

__all__ = ["named_call", "named_scope"]


@contextlib.contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Name the operations recorded meanwhile: ``name/function`` instead of ``function`` beside their source lines.

    A context manager and a decorator.  Scopes nest.  The names appear in error messages, in graphs printed with their
    lines, and in reports of operations.

    >>> @fg.named_scope("attention")
    ... def f(x):
    ...     return x * 2.0
    >>> str(fg.make_graph(f)(1.0).eqns[0].site.function)
    'attention/f'
    """
    if not isinstance(name, str) or not name:
        raise TypeError(message("named_scope", "a name is required", repr(name)))
    before, origin.scope = origin.scope, f"{origin.scope}{name}/"
    try:
        yield
    finally:
        origin.scope = before


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """Return ``fun`` with its operations in a scope of its own name, or of another.

    >>> g = fg.named_call(lambda x: x * 2.0, name="double")
    >>> fg.make_graph(g)(1.0).eqns[0].site.function
    'double/<lambda>'
    """
    label = name or str(getattr(fun, "__name__", type(fun).__name__))

    @functools.wraps(fun)
    def named(*args: Any, **kwargs: Any) -> Any:
        with named_scope(label):
            return fun(*args, **kwargs)

    return named
