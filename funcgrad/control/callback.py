"""Callback: a Python function called in the middle of a graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from funcgrad.ir import Aval
from funcgrad.primitive import Primitive, broadcast_leading, dataclass, map_all
from funcgrad.trace import bind_all

__all__ = ["Callback", "IOCallback", "PureCallback", "without_callbacks"]

_local = threading.local()


@contextmanager
def without_callbacks() -> Iterator[None]:
    """Inside, graphs that numpy evaluates make no callbacks: for looking again at what has happened already."""
    saved, _local.off = getattr(_local, "off", False), True
    try:
        yield
    finally:
        _local.off = saved


@dataclass(frozen=True, eq=False)
class Callback(Primitive):
    """Calls ``fun(*arrays)`` with numpy arrays, in the order of the program, whether or not anything is read.

    Under ``vmap`` it is called once per example.  It has no result and no derivative: tangents and cotangents pass it
    by.
    """

    fun: Callable[..., None]
    label: str = ""
    name = "callback"
    multiple = True
    effectful = True

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        return ()

    def eval(self, *xs: Any) -> Any:
        if not getattr(_local, "off", False):
            self.fun(*xs)
        return ()

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [None] * len(xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return ()

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        fun = self.fun

        def each(*arrays: Any) -> None:
            for i in range(size):
                fun(*[a[i] if m else a for a, m in zip(arrays, mapped, strict=True)])

        bind_all(Callback(each, self.label), *xs)
        return (), ()

    def lower(self, g: Any, *xs: Any) -> Any:
        def call(*arrays: Any) -> list[Any]:
            self.fun(*arrays)
            return []

        return g.host(call, xs, ())


@dataclass(frozen=True, eq=False)
class PureCallback(Primitive):
    """``fun(*arrays)`` as an operation with results of the given types; it may be called any number of times, or not at
    all."""

    fun: Callable[..., Sequence[Any]]
    avals: tuple[Aval, ...]
    method: str = "sequential"  # under vmap: once per example, or once for all ("broadcast_all", "expand_dims")
    name = "pure_callback"
    multiple = True

    def infer(self, *avals: Aval) -> tuple[Aval, ...]:
        return self.avals

    def eval(self, *xs: Any) -> Any:
        outs = [np.asarray(o) for o in self.fun(*xs)]
        for o, a in zip(outs, self.avals, strict=True):
            if o.shape != a.shape:
                raise self.shape_error(f"the result must have shape {a.shape}", o.shape)
        return outs

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        fun = self.fun
        avals = tuple([Aval((size, *a.shape), a.dtype) for a in self.avals])
        if self.method == "expand_dims":
            whole = [x if m else broadcast_leading(x, 1) for x, m in zip(xs, mapped, strict=True)]
            return bind_all(replace(self, avals=avals), *whole), [True] * len(avals)
        if self.method == "broadcast_all":
            return bind_all(replace(self, avals=avals), *map_all(size, mapped, xs)), [True] * len(avals)

        def each(*arrays: Any) -> Sequence[Any]:
            rows = [fun(*[a[i] for a in arrays]) for i in range(size)]
            return [np.stack(column) for column in zip(*rows, strict=True)]

        return bind_all(replace(self, fun=each, avals=avals), *map_all(size, mapped, xs)), [True] * len(avals)

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.host(self.fun, xs, self.avals)


@dataclass(frozen=True, eq=False)
class IOCallback(PureCallback):
    """A function with side effects as an operation with results: it is called once per run, in the program's order."""

    name = "io_callback"
    effectful = True

    def eval(self, *xs: Any) -> Any:
        if getattr(_local, "off", False):
            return [np.zeros(a.shape, a.dtype) for a in self.avals]
        return super().eval(*xs)
