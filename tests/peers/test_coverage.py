"""Which public names of jax.numpy, jax.numpy.linalg and jax.lax are here, and why the others are not.

Every name of JAX is here or has a reason in the tables, and what has a reason is not here.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import funcgrad.numpy as fnp
from funcgrad import lax

COMPLEX = "there are no complex numbers"
NARROW = "a dtype that no device here computes in"
SHARDING = "a concept of XLA's sharding and collectives"
RANDOM = "random bits come from fg.random"
TYPES = "a type that only annotates"
XLA = "a concept of XLA's compiler"
SPECIAL = "a special function without a kernel here"


def reason(why: str, names: str) -> dict[str, str]:
    """One reason for several names."""
    return dict.fromkeys(names.split(), why)


NUMPY = {
    **reason(COMPLEX, "ComplexWarning cdouble complex128 complex64 complex_ csingle sort_complex roots fft"),
    **reason("a concept of numpy's objects and text", "character flexible object_ ufunc frompyfunc"),
    **reason(NARROW, "float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz"),
    **reason(NARROW, "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"),
    **reason(NARROW, "int1 int2 int4 uint1 uint2 uint4 packbits unpackbits"),
    **reason("read with numpy, then asarray", "fromfile fromstring"),
    "place": "it writes in place; use where or .at[mask].set",
}
LINALG = reason(COMPLEX, "eig eigvals")
LAX = {
    **reason(COMPLEX, "complex fft FftType"),
    **reason(TYPES, "AccuracyMode DotAlgorithm DotAlgorithmPreset DotDimensionNumbers PrecisionLike Tolerance"),
    **reason(TYPES, "ConvGeneralDilatedDimensionNumbers RaggedDotDimensionNumbers RandomAlgorithm"),
    **reason(XLA, "after_all create_token composite dce_sink platform_dependent stage shape_as_value"),
    **reason(SHARDING, "all_to_all pbroadcast pcast precv psend pshuffle pswapaxes ragged_all_to_all"),
    **reason(SHARDING, "with_sharding_constraint"),
    **reason(SPECIAL, "bessel_i0e bessel_i1e betainc igamma igamma_grad_a igammac random_gamma_grad zeta"),
    **reason(RANDOM, "rng_bit_generator rng_uniform"),
    **reason("products of ragged or scaled blocks", "ragged_dot ragged_dot_general scaled_dot"),
    **reason("write the rule with custom_vjp or custom_jvp", "custom_linear_solve custom_root"),
    "conv_general_dilated_local": "convolution with unshared kernels; use patches and einsum",
    "conv_general_permutations": "a helper of JAX's own rules",
    "mulhi": "64-bit products",
}


def public(module: Any) -> list[str]:
    return [n for n in dir(module) if not n.startswith("_") and not n.endswith("_p")]


TABLES = [(jnp, fnp, NUMPY), (jnp.linalg, fnp.linalg, LINALG), (jax.lax, lax, LAX)]


@pytest.mark.parametrize(("theirs", "ours", "reasons"), TABLES, ids=["numpy", "linalg", "lax"])
def test_every_name_is_here_or_has_a_reason(theirs: Any, ours: Any, reasons: dict[str, str]) -> None:
    names = public(theirs)
    missing = {n for n in names if not hasattr(ours, n)}
    assert sorted(missing - set(reasons)) == []
    assert sorted(n for n in reasons if hasattr(ours, n)) == []


@pytest.mark.parametrize(("theirs", "ours", "reasons"), TABLES, ids=["numpy", "linalg", "lax"])
def test_nine_of_ten_of_what_makes_sense_is_here(theirs: Any, ours: Any, reasons: dict[str, str]) -> None:
    """Without complex numbers, narrow dtypes, sharding and XLA's own concepts."""
    elsewhere = {COMPLEX, NARROW, SHARDING, XLA, TYPES}
    wanted = [n for n in public(theirs) if reasons.get(n) not in elsewhere]
    assert sum(hasattr(ours, n) for n in wanted) >= 0.9 * len(wanted)
