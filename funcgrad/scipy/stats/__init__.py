"""Densities and distribution functions with the names of ``jax.scipy.stats``; differentiable by every parameter.

>>> from funcgrad.scipy.stats import norm
>>> norm.logpdf(0.0), norm.cdf(fnp.asarray([0.0, 2.0]), loc=1.0, scale=2.0)
(Array(-0.9189385, dtype=float32), Array([0.3085375, 0.6914625], dtype=float32))
"""

from funcgrad.scipy.stats import distributions
from funcgrad.scipy.stats.distributions import *  # noqa: F403 (its __all__ says what is public)
from funcgrad.scipy.stats.vectors import dirichlet, multinomial, multivariate_normal

__all__ = ["dirichlet", "multinomial", "multivariate_normal"]
__all__ += distributions.__all__
