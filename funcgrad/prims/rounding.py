"""Rounding to integers, and the sign: piecewise constant, so their derivative is 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.primitive import Arg, dataclass, example
from funcgrad.prims.unary import Step, points


@dataclass(frozen=True)
class Floor(Step):
    """The largest integer not above x."""

    name = "floor"
    fn = np.floor
    examples = points(smooth=False)


@dataclass(frozen=True)
class Ceil(Step):
    """The smallest integer not below x."""

    name = "ceil"
    fn = np.ceil
    examples = points(smooth=False)


@dataclass(frozen=True)
class Trunc(Step):
    """x rounded towards zero."""

    name = "trunc"
    fn = np.trunc
    examples = points(smooth=False)


@dataclass(frozen=True)
class Round(Step):
    """x rounded to the nearest integer, halves to even."""

    name = "round"
    fn = np.rint
    examples = [example(Arg("f32[6]", values=[0.5, 1.5, -0.5, 2.5, -2.6, 1e9]), smooth=False), *points(smooth=False)]


@dataclass(frozen=True)
class Sign(Step):
    """-1, 0 or 1; NaN stays NaN, and either zero gives +0 as in numpy."""

    name = "sign"
    accepts = dtypes.FLOATS | dtypes.INTS
    examples = [*points(smooth=False), example("i32[3]", smooth=False), example(Arg("u32[3]", 0, 2), smooth=False)]

    def eval(self, *xs: Any) -> Any:
        return np.sign(xs[0])
