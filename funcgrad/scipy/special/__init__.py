"""Special functions with the names of ``jax.scipy.special``; integers count as float32, and all have derivatives."""

# ruff: noqa: F403 (each module says in __all__ what is public)
from funcgrad.numpy import i0, logsumexp
from funcgrad.scipy.special import entropies, gamma_functions, normal
from funcgrad.scipy.special.entropies import *
from funcgrad.scipy.special.gamma_functions import *
from funcgrad.scipy.special.normal import *

__all__ = ["i0", "logsumexp"]
__all__ += entropies.__all__
__all__ += gamma_functions.__all__
__all__ += normal.__all__
