"""All schedules in one place, as in ``optax.schedules``.

>>> from funcgrad import optim
>>> optim.schedules.linear_schedule is optim.linear
True
"""

# ruff: noqa: F403 (each module says in __all__ what is public)
from funcgrad.optim import curves, cycles
from funcgrad.optim.curves import *
from funcgrad.optim.cycles import *

__all__: list[str] = []
__all__ += curves.__all__
__all__ += cycles.__all__
