"""What the functions of one float share: their bases by the form of the derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from funcgrad import dtypes
from funcgrad.primitive import Arg, Pointwise, example
from funcgrad.prims.operations import div_nz


def points(low: float = -2.0, high: float = 2.0, smooth: bool = True) -> list[Any]:
    shapes = ("f32[2,3]", "f32[]", "f32[0,3]")
    return [example(Arg(s, low, high), smooth=smooth) for s in shapes] + [
        example(Arg("f16[4]", low, high), smooth=False)
    ]


class Unary(Pointwise):
    """A function of one float; ``fn`` is its numpy reference and ``derivative(out, x)`` its derivative."""

    accepts = dtypes.FLOATS
    fn: ClassVar[Callable[..., Any]]

    def eval(self, *xs: Any) -> Any:
        return type(self).fn(xs[0])

    def derivative(self, out: Any, x: Any) -> Any:
        """The derivative at x, given out = f(x)."""
        raise self._missing("derivative")

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: self.derivative(out, xs[0])]


class Reciprocal(Unary):
    """A function whose derivative is 1 / ``denominator``: the cotangent is divided, 0 staying 0."""

    def denominator(self, out: Any, x: Any) -> Any:
        """What to divide by."""
        raise self._missing("denominator")

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [lambda: div_nz(ct, self.denominator(out, xs[0]))]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return div_nz(ts[0], self.denominator(out, xs[0]))


class Step(Unary):
    """A piecewise constant function: its derivative is 0."""

    accepts = dtypes.FLOATS

    def derivatives(self, out: Any, *xs: Any) -> Sequence[Any]:
        return [None]


def vectorize(fn: Callable[[float], float]) -> Callable[..., Any]:
    """A function of one number as one of arrays, computed in float64."""
    wide = np.vectorize(fn, otypes=[np.float64])

    def apply_fn(x: Any) -> Any:
        return wide(np.asarray(x, np.float64)).astype(x.dtype) if np.size(x) else np.zeros_like(x)

    return apply_fn
