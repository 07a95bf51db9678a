"""Random numbers from explicit keys: the same key gives the same numbers on every device, under jit, vmap and
checkpoint.

A key is a uint32 array of shape (2,).  Bits are Threefry-2x32 (Salmon et al., SC 2011) of the key and the element's
64-bit position, its two output words combined by exclusive or: equal, bit for bit, to JAX's with
``jax_threefry_partitionable=True``, its default.
"""

from funcgrad.random.counts import binomial, multinomial, poisson
from funcgrad.random.distributions import (
    cauchy,
    exponential,
    geometric,
    laplace,
    logistic,
    lognormal,
    maxwell,
    multivariate_normal,
    orthogonal,
    pareto,
    rademacher,
    rayleigh,
    triangular,
    weibull_min,
)
from funcgrad.random.draws import (
    bernoulli,
    categorical,
    choice,
    gumbel,
    normal,
    permutation,
    randint,
    truncated_normal,
    uniform,
)
from funcgrad.random.gamma import (
    ball,
    beta,
    chisquare,
    dirichlet,
    double_sided_maxwell,
    f,
    gamma,
    generalized_normal,
    loggamma,
    t,
    wald,
)
from funcgrad.random.keys import PRNGKey, bits, clone, fold_in, key, key_data, key_impl, split, wrap_key_data

__all__ = [
    "PRNGKey",
    "ball",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "clone",
    "dirichlet",
    "double_sided_maxwell",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "key",
    "key_data",
    "key_impl",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "maxwell",
    "multinomial",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull_min",
    "wrap_key_data",
]
