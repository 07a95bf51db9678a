"""All schedules in one place, as in ``optax.schedules``.

>>> from funcgrad import optim
>>> optim.schedules.linear_schedule is optim.linear
True
"""

from funcgrad.optim.curves import (
    constant,
    constant_schedule,
    cosine_decay_schedule,
    exponential_decay,
    join_schedules,
    linear,
    linear_schedule,
    piecewise,
    piecewise_constant_schedule,
    piecewise_interpolate_schedule,
    polynomial,
    polynomial_schedule,
    sgdr_schedule,
    step_decay,
    warmup_constant,
    warmup_constant_schedule,
    warmup_cosine_decay_schedule,
    warmup_exponential_decay,
    warmup_exponential_decay_schedule,
)
from funcgrad.optim.cycles import (
    cosine_onecycle_schedule,
    cosine_restarts,
    cyclic_schedule,
    linear_onecycle_schedule,
)

__all__ = [
    "constant",
    "constant_schedule",
    "cosine_decay_schedule",
    "cosine_onecycle_schedule",
    "cosine_restarts",
    "cyclic_schedule",
    "exponential_decay",
    "join_schedules",
    "linear",
    "linear_onecycle_schedule",
    "linear_schedule",
    "piecewise",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "polynomial",
    "polynomial_schedule",
    "sgdr_schedule",
    "step_decay",
    "warmup_constant",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay",
    "warmup_exponential_decay_schedule",
]
