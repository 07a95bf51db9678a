"""The optimizers that optax keeps under ``optax.contrib``, so that such imports work here too.

>>> from funcgrad.optim import contrib
>>> contrib.muon is muon
True
"""

from funcgrad.optim.averaging import (
    ScheduleFreeState,
    schedule_free,
    schedule_free_adamw,
    schedule_free_eval_params,
    schedule_free_sgd,
)
from funcgrad.optim.muon import MuonDimensionNumbers, MuonState, muon, scale_by_muon
from funcgrad.optim.plateau import ReduceLROnPlateauState, reduce_on_plateau

__all__ = [
    "MuonDimensionNumbers",
    "MuonState",
    "ReduceLROnPlateauState",
    "ScheduleFreeState",
    "muon",
    "reduce_on_plateau",
    "scale_by_muon",
    "schedule_free",
    "schedule_free_adamw",
    "schedule_free_eval_params",
    "schedule_free_sgd",
]
