"""Optimizers, gradient transformations and schedules, under optax's names and with its protocol.

>>> import funcgrad.numpy as fnp
>>> opt = adam(1e-1)
>>> params = {"w": fnp.ones(3)}
>>> state = opt.init(params)
>>> updates, state = opt.update({"w": fnp.ones(3)}, state, params)
>>> params = apply_updates(params, updates)
>>> round(float(params["w"][0]), 4)
0.9
"""

# ruff: noqa: F403 (each module says in __all__ what is public)
from funcgrad import losses
from funcgrad.losses import *
from funcgrad.optim import (
    accumulators,
    aliases,
    averaging,
    base,
    clipping,
    combine,
    contrib,
    curves,
    cycles,
    factored,
    hyperparams,
    linesearch,
    moments,
    numerics,
    plateau,
    projections,
    scaling,
    schedules,
    tree,
    tree_utils,
    variants,
    wrappers,
)
from funcgrad.optim import lbfgs as _lbfgs  # the function takes the module's name
from funcgrad.optim import muon as _muon
from funcgrad.optim.accumulators import *
from funcgrad.optim.aliases import *
from funcgrad.optim.averaging import *
from funcgrad.optim.base import *
from funcgrad.optim.base import Optimizer, OptimizerExtraArgs
from funcgrad.optim.clipping import *
from funcgrad.optim.combine import *
from funcgrad.optim.curves import *
from funcgrad.optim.cycles import *
from funcgrad.optim.factored import *
from funcgrad.optim.hyperparams import *
from funcgrad.optim.lbfgs import *
from funcgrad.optim.linesearch import *
from funcgrad.optim.moments import *
from funcgrad.optim.muon import *
from funcgrad.optim.numerics import *
from funcgrad.optim.plateau import *
from funcgrad.optim.scaling import *
from funcgrad.optim.variants import *
from funcgrad.optim.wrappers import *

GradientTransformation = Optimizer
GradientTransformationExtraArgs = OptimizerExtraArgs

__all__ = ["GradientTransformation", "GradientTransformationExtraArgs"]
__all__ += ["contrib", "losses", "projections", "schedules", "tree", "tree_utils"]
__all__ += losses.__all__
__all__ += accumulators.__all__
__all__ += aliases.__all__
__all__ += averaging.__all__
__all__ += base.__all__
__all__ += clipping.__all__
__all__ += combine.__all__
__all__ += curves.__all__
__all__ += cycles.__all__
__all__ += factored.__all__
__all__ += hyperparams.__all__
__all__ += _lbfgs.__all__
__all__ += linesearch.__all__
__all__ += moments.__all__
__all__ += numerics.__all__
__all__ += _muon.__all__
__all__ += plateau.__all__
__all__ += scaling.__all__
__all__ += variants.__all__
__all__ += wrappers.__all__
