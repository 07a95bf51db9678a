"""Mixed precision: which dtype parameters, computation and results have, and the scale of a float16 loss.

The half floats hold less: float16 has eleven bits and numbers from 6e-8 to 65504, bfloat16 has eight bits and the range
of float32.  Gradients below 6e-8 vanish in float16, so the loss is multiplied by a scale first, and the gradients are
divided by it afterwards, in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from funcgrad import dtypes, tree
from funcgrad import numpy as fnp
from funcgrad.array import as_value, asarray
from funcgrad.errors import message

__all__ = ["DynamicLossScale", "LossScaleState", "Policy", "StaticLossScale", "get_policy"]

FLOATS = "float32, bfloat16, float16"


def _float_dtype(what: str, dtype: Any) -> Any:
    try:
        found = dtypes.as_dtype(dtype)
    except (TypeError, ValueError):
        found = None
    if found is None or not dtypes.is_float(found):
        raise ValueError(
            message("Policy", f"{what} must be the name of a float dtype", repr(dtype), f"one of {FLOATS}")
        )
    return found


@dataclass(frozen=True, repr=False)
class Policy:
    """Dtypes of the parameters (and so of the optimizer's state), of the computation, and of a loss's further results.

    Leaves that are no floats stay as they are.  The fields become dtypes; ValueError for what is no float dtype.

    >>> policy = Policy(compute="bfloat16")
    >>> print(policy)
    params=float32,compute=bfloat16,output=float32
    >>> policy.cast_to_compute([fnp.ones(2), fnp.arange(2)])
    [Array([1., 1.], dtype=bfloat16), Array([0, 1], dtype=int32)]
    """

    params: Any = "float32"
    compute: Any = "float32"
    output: Any = "float32"

    def __post_init__(self) -> None:
        for name in ("params", "compute", "output"):
            object.__setattr__(self, name, _float_dtype(name, getattr(self, name)))

    def __str__(self) -> str:
        return ",".join([f"{name}={dtypes.NAMES[dtype]}" for name, dtype in vars(self).items()])

    def __repr__(self) -> str:
        return f"Policy({', '.join([f'{name}={dtypes.NAMES[dtype]!r}' for name, dtype in vars(self).items()])})"

    def cast_to_param(self, values: Any) -> Any:
        """The tree with its float leaves in the dtype of the parameters."""
        return cast_floats(values, self.params)

    def cast_to_compute(self, values: Any) -> Any:
        """The tree with its float leaves in the dtype of the computation."""
        return cast_floats(values, self.compute)

    def cast_to_output(self, values: Any) -> Any:
        """The tree with its float leaves in the dtype of results."""
        return cast_floats(values, self.output)


def cast_floats(values: Any, dtype: Any) -> Any:
    """A tree with its float leaves in one dtype; a leaf that has it already is the same array."""

    def cast(x: Any) -> Any:
        x = as_value(x)
        return x if not dtypes.is_float(x.aval.dtype) or x.aval.dtype == dtype else x.astype(dtype)

    return tree.map(cast, values)


def get_policy(precision: Any) -> Policy | None:
    """Return the policy that a name stands for: the dtype of the computation, or ``params=...,compute=...,output=...``.

    None is no policy: everything is computed in the dtypes that it has.

    >>> get_policy("bfloat16") == get_policy("params=float32,compute=bfloat16") == Policy(compute="bfloat16")
    True
    """
    if precision is None or isinstance(precision, Policy):
        return precision
    if not isinstance(precision, str) or "=" not in precision:
        return Policy(compute=precision)
    pairs = [part.strip().partition("=") for part in precision.split(",")]
    fields = {name.strip(): dtype.strip() for name, _, dtype in pairs}
    if len(fields) != len(pairs) or not set(fields) <= {"params", "compute", "output"}:
        requirement = "a policy is written params=...,compute=...,output=..., each at most once"
        raise ValueError(message("get_policy", requirement, repr(precision)))
    return Policy(**fields)


# -- the scale of the loss ---------------------------------------------------------------------------------------
class LossScaleState(NamedTuple):
    """The scale, a float32 scalar, and the finite steps since it last changed, an int32 scalar."""

    scale: Any
    growth_tracker: Any


@dataclass(frozen=True)
class DynamicLossScale:
    """A scale that is doubled after ``growth_interval`` finite steps in a row and halved after one that is not.

    What is not finite is skipped.  The arithmetic is that of ``torch.amp.GradScaler``, whose names the fields have, but
    that the scale stays at least ``min_scale``; with that at 1, and growth and backoff each other's reciprocals, it is
    also that of ``jmp.DynamicLossScale``.  Micikevicius et al. 2018, arXiv:1710.03740.

    >>> scaling = DynamicLossScale(init_scale=8.0, growth_interval=2)
    >>> state = scaling.init()
    >>> for finite in (True, True, False, True):
    ...     state = scaling.update(state, finite)
    ...     print(float(state.scale), int(state.growth_tracker))
    8.0 1
    16.0 0
    8.0 0
    8.0 1
    """

    init_scale: float = 2.0**15
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    min_scale: float = 1.0

    def __post_init__(self) -> None:
        within = {
            "init_scale": (self.min_scale <= self.init_scale < math.inf, "at least min_scale and finite"),
            "growth_factor": (1.0 < self.growth_factor < math.inf, "larger than 1"),
            "backoff_factor": (0.0 < self.backoff_factor < 1.0, "in (0, 1)"),
            "growth_interval": (self.growth_interval >= 1, "at least 1"),
            "min_scale": (0.0 < self.min_scale < math.inf, "positive and finite"),
        }
        for name, (good, wanted) in within.items():
            if not good:
                raise ValueError(message("DynamicLossScale", f"{name} must be {wanted}", repr(getattr(self, name))))

    def init(self) -> LossScaleState:
        """The state before the first step."""
        return LossScaleState(asarray(self.init_scale, dtypes.float32), asarray(0, dtypes.int32))

    def update(self, state: LossScaleState, finite: Any) -> LossScaleState:
        """The state after a step whose gradients were finite, or not."""
        scale, done = state.scale, state.growth_tracker + 1
        full = fnp.equal(done, self.growth_interval)
        grown = scale * self.growth_factor
        larger = fnp.where(full & fnp.isfinite(grown), grown, scale)
        smaller = fnp.maximum(scale * self.backoff_factor, self.min_scale)
        return LossScaleState(
            fnp.where(finite, larger, smaller), fnp.where(as_value(finite) & ~full, done, fnp.zeros_like(done))
        )

    def can_back_off(self, state: LossScaleState) -> Any:
        """Whether a smaller scale could make the next step's gradients finite."""
        return state.scale > self.min_scale


@dataclass(frozen=True)
class StaticLossScale:
    """A scale that stays.

    >>> float(StaticLossScale(128.0).init().scale)
    128.0
    """

    scale: float

    def __post_init__(self) -> None:
        if not 0.0 < self.scale < math.inf:
            raise ValueError(message("StaticLossScale", "scale must be positive and finite", repr(self.scale)))

    def init(self) -> LossScaleState:
        """The state, which no step changes."""
        return LossScaleState(asarray(self.scale, dtypes.float32), asarray(0, dtypes.int32))

    def update(self, state: LossScaleState, finite: Any) -> LossScaleState:
        """The same state."""
        return state

    def can_back_off(self, state: LossScaleState) -> Any:
        """Whether a smaller scale could help: there is none."""
        return fnp.zeros((), dtype=dtypes.bool_)


LossScale = DynamicLossScale | StaticLossScale
