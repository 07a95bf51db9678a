"""The examples of primitives as cases, and how their graphs are run by numpy and compared."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Graph, Literal
from funcgrad.primitive import Arg, Primitive
from funcgrad.trace import bind_all, trace

__all__ = ["Arrays", "Case", "cases_of", "close", "dot", "is_float", "move", "noise", "record", "run", "slope", "wrt"]

Arrays = Sequence[Any]


# -- examples ----------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Case:
    """One primitive under one of its examples."""

    prim: Primitive
    args: tuple[Arg, ...]
    smooth: bool
    id: str

    @property
    def avals(self) -> list[Aval]:
        """The operands' types."""
        return [a.aval for a in self.args]

    @property
    def differentiable(self) -> bool:
        """Whether derivatives are to be checked."""
        return self.smooth and bool(self.args)

    @property
    def has_floats(self) -> bool:
        """Whether an operand has a gradient."""
        return any(a.dtype in dtypes.FLOATS for a in self.avals)

    def values(self, wide: bool = False, variant: int = 0) -> list[np.ndarray[Any, Any]]:
        """The operands; float32 as float64 when ``wide``, another draw for each variant."""
        rng = np.random.default_rng([zlib.crc32(self.id.encode()), variant])
        return [_draw(a, rng, wide, variant) for a in self.args]


def cases_of(cls: type[Primitive]) -> list[Case]:
    """The examples of a primitive."""
    out = []
    for i, ex in enumerate(cls.examples):
        prim = cls(**ex.params)
        types = " ".join(str(a.aval) for a in ex.args)
        out.append(Case(prim, ex.args, ex.smooth, f"{prim} {types} #{i}"))
    return out


def _draw(arg: Arg, rng: np.random.Generator, wide: bool, variant: int) -> np.ndarray[Any, Any]:
    aval = arg.aval
    dtype = dtypes.float64 if wide and aval.dtype == dtypes.float32 else aval.dtype
    if arg.values is not None:
        given = np.roll(np.broadcast_to(np.asarray(arg.values), aval.shape), variant)
        return dtypes.narrow(given + variant if not aval.shape and aval.dtype in dtypes.INTS else given, dtype)
    if aval.dtype in dtypes.FLOATS:
        return dtypes.narrow(rng.uniform(arg.low, arg.high, aval.shape), dtype)
    if aval.dtype == dtypes.bool_:
        return rng.random(aval.shape) < 0.5
    low = max(arg.low, 0) if aval.dtype == dtypes.uint32 else arg.low
    return rng.integers(int(low), int(arg.high), aval.shape, endpoint=True).astype(dtype)


# -- running -----------------------------------------------------------------------------------------------------
def run(graph: Graph, values: Arrays) -> list[np.ndarray[Any, Any]]:
    """The oracle: each equation by numpy, checking types on the way."""
    env: dict[Any, Any] = dict(zip(graph.inputs, values, strict=True))
    for eqn in graph.eqns:
        xs = [a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs]
        outs = eqn.prim.evaluate(*xs)
        for v, o in zip(eqn.outputs, outs, strict=True):
            assert (o.shape, o.dtype) == (v.aval.shape, v.aval.dtype), eqn
            env[v] = o
    return [a.value if isinstance(a, Literal) else env[a] for a in graph.outputs]


def record(prim: Primitive, values: Arrays) -> Graph:
    """The graph of one operation."""
    return trace(lambda *xs: bind_all(prim, *xs), [Aval(v.shape, v.dtype) for v in values]).graph


def wrt(graph: Graph) -> list[bool]:
    """The inputs to differentiate: the floats."""
    return [dtypes.is_float(v.aval.dtype) for v in graph.inputs]


def is_float(x: np.ndarray[Any, Any]) -> bool:
    """Whether an array has a gradient."""
    return dtypes.is_float(x.dtype)


def noise(like: Arrays, seed: int) -> list[np.ndarray[Any, Any]]:
    """Random directions."""
    rng = np.random.default_rng(seed)
    return [dtypes.narrow(rng.uniform(-1, 1, x.shape), x.dtype) for x in like]


def move(values: Arrays, ts: Arrays, h: float) -> list[Any]:
    """Step along tangents, given for the float operands only."""
    left = iter(ts)
    return [v + h * next(left) if is_float(v) else v for v in values]


def slope(f: Callable[[float], Arrays], h: float = 2e-4) -> list[Any]:
    """The derivative of f at 0 by central differences of fourth order."""
    at = {k: f(k * h) for k in (-2, -1, 1, 2)}
    slopes = [(8 * (b - c) - (a - d)) / (12 * h) for a, b, c, d in zip(at[2], at[1], at[-1], at[-2], strict=True)]
    # NaN is what a read out of range gives: a constant.
    return [np.where(np.isnan(b) & np.isnan(c), 0, s) for s, b, c in zip(slopes, at[1], at[-1], strict=True)]


def dot(xs: Arrays, ys: Arrays) -> float:
    """The inner product of two lists of arrays."""
    return float(sum(np.sum(x * y, dtype=np.float64) for x, y in zip(xs, ys, strict=True)))


def close(got: Any, want: Any, tolerance: float) -> None:
    """Raise AssertionError unless two arrays agree; integers must be equal."""
    got, want = dtypes.widen(np.asarray(got)), dtypes.widen(np.asarray(want))
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    finite = np.abs(want[np.isfinite(want)])
    scale = max(1.0, finite.max(initial=0.0))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)
