"""Dtypes: conversion of host data, promotion, rounding to half precision, Python scalars."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import dtypes
from funcgrad.dtypes import bfloat16, bool_, float16, float32, float64, int32, uint32
from funcgrad.errors import DTypeError

ORDER = [bool_, uint32, int32, float16, bfloat16, float32, float64]


# -- names -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "want"),
    [
        (float, float32), (int, int32), (bool, bool_), ("float32", float32), ("float16", float16),
        ("bfloat16", bfloat16), ("float64", float64),
        (np.float64, float64), (np.float32, float32), (np.int64, int32), ("uint8", int32),
        (np.uint64, uint32), (">f4", float32),
        (">i8", int32), ("half", float16), (np.dtype("bool"), bool_), (fnp.bfloat16, bfloat16), (fnp.int32, int32),
    ],
)  # fmt: skip
def test_as_dtype(given: Any, want: Any) -> None:
    assert dtypes.as_dtype(given) == want


@pytest.mark.parametrize("given", ["complex64", np.complex128, "S3", "M8[s]", object, "nonsense", np.longdouble])
def test_dtypes_that_do_not_exist_here(given: Any) -> None:
    with pytest.raises(DTypeError, match="use float32, float16, bfloat16, int32, uint32 or bool"):
        dtypes.as_dtype(given)


def test_a_bfloat16_of_another_library_is_known_by_its_name() -> None:
    other = pytest.importorskip("ml_dtypes")
    assert dtypes.as_dtype(other.bfloat16) == bfloat16
    with fg.default_device("numpy"):
        x = fnp.asarray(np.array([1.0, 2.5], other.bfloat16), dtype="bfloat16")
    assert x.dtype == bfloat16
    np.testing.assert_array_equal(x.numpy(), [1.0, 2.5])


# -- promotion ---------------------------------------------------------------------------------------------------
def wanted(a: Any, b: Any) -> Any:
    """The module's table, written out: the higher of the two, and float32 for the two halves."""
    if {a, b} == {float16, bfloat16}:
        return float32
    return max(a, b, key=ORDER.index)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(ORDER, repeat=2)))
def test_promotion(a: Any, b: Any) -> None:
    assert dtypes.promote(a, b) == dtypes.promote(b, a) == wanted(a, b)
    with fg.default_device("numpy"):
        x, y = fnp.zeros(2, a), fnp.zeros(2, b)
        assert (x == y).dtype == bool_
        if a != bool_ or b != bool_:
            assert (x + y).dtype == (y * x).dtype == fg.jit(fnp.add)(x, y).dtype == wanted(a, b)


def test_promotion_is_associative_where_it_can_be() -> None:
    """Three at once are the same in any order; the two halves meet at float32, as soon as both are there."""
    for a, b, c in itertools.product(ORDER, repeat=3):
        assert len({dtypes.promote(*p) for p in itertools.permutations((a, b, c))}) == 1


@pytest.mark.parametrize("dtype", ORDER)
def test_python_scalars_take_the_arrays_dtype(dtype: Any) -> None:
    with fg.default_device("numpy"):
        x = fnp.ones(2, dtype)
        for scalar in (True, 3, 2.5):
            kind = float if isinstance(scalar, float) else int
            want = dtype
            if dtype == bool_:
                want = {bool: bool_, int: int32, float: float64}[type(scalar)]
            elif dtype in dtypes.INTS and kind is float:
                want = float64  # the default float of the numpy device
            if type(scalar) is bool and dtype == bool_:
                assert (x | scalar).dtype == bool_
                continue
            assert (x + scalar).dtype == (scalar * x).dtype == want, (dtype, scalar)
            assert fg.jit(lambda x, s=scalar: x + s)(x).dtype == want


# -- rounding ----------------------------------------------------------------------------------------------------
def bfloat16_truth(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round to 8 significant bits, ties to even, by exact arithmetic in float64."""
    x = x.astype(np.float64)
    out = np.array(x)
    finite = np.isfinite(x) & (x != 0)
    _, exponent = np.frexp(x[finite])
    # bfloat16 has float32's exponents: subnormal steps of 2^-133
    step = np.exp2(np.maximum(exponent - 8, -133).astype(np.float64))
    rounded = np.round(x[finite] / step) * step
    out[finite] = np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, rounded), rounded)
    return out.astype(np.float32)


def test_bfloat16_rounds_to_even() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 100_000, dtype=np.uint32)
    ties = (rng.integers(0, 2**16, 1000, dtype=np.uint32) << 16) | np.uint32(0x8000)
    x = np.concatenate([bits, ties]).view(np.float32)
    x = x[np.isfinite(x)]
    np.testing.assert_array_equal(dtypes.widen(dtypes.narrow(x, bfloat16)), bfloat16_truth(x))


def test_bfloat16_keeps_special_values() -> None:
    x = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38], np.float32)
    got = dtypes.widen(dtypes.narrow(x, bfloat16))
    np.testing.assert_array_equal(got[:6], x[:6])
    np.testing.assert_array_equal(np.signbit(got), np.signbit(x))
    assert got[6] == np.inf and got[7] == -np.inf  # above the largest bfloat16 by more than half a step
    # a NaN whose upper half alone would be an infinity
    sneaky = np.array([0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(dtypes.widen(dtypes.narrow(sneaky, bfloat16)))[0]


@pytest.mark.parametrize("dtype", [float16, bfloat16])
def test_half_precision_arithmetic_rounds_once(dtype: Any) -> None:
    """float32 inside, one rounding of the result: also for products of many terms."""
    rng = np.random.default_rng(1)
    with fg.default_device("numpy"):
        x, y = [fnp.asarray(rng.normal(size=(64, 64)).astype(np.float32)).astype(dtype) for _ in range(2)]
        wide = [np.asarray(v.astype("float32")).astype(np.float64) for v in (x, y)]
        for got, want in [
            (x + y, wide[0] + wide[1]),
            (x * y, wide[0] * wide[1]),
            (x @ y, wide[0] @ wide[1]),
            (fnp.exp(x), np.exp(wide[0])),
        ]:
            assert got.dtype == dtype
            rounded = dtypes.widen(dtypes.narrow(want.astype(np.float32), dtype))
            step = np.abs(rounded) * (2.0**-10 if dtype == float16 else 2.0**-7)
            assert np.all(np.abs(got.numpy().astype(np.float32) - rounded) <= step)
            assert np.mean(got.numpy().astype(np.float32) == rounded) > 0.99


# -- devices -----------------------------------------------------------------------------------------------------
def test_float64_lives_on_the_reference_only(device: str) -> None:
    wide = np.ones(3) / 3
    want = float64 if device == "numpy" else float32
    for made in (
        fnp.asarray(wide),
        fnp.zeros(2, float64),
        fnp.ones(2).astype("float64"),
        fnp.asarray([0.1], dtype=np.float64),
        fg.device_put(wide, device),
    ):
        assert made.dtype == want
    assert fnp.asarray(0.5).dtype == want and fnp.asarray(3).dtype == int32 and fnp.asarray(True).dtype == bool_
    assert fg.grad(lambda x: x * x)(3.0).dtype == fg.jit(lambda x: x)(3.0).dtype == want
    assert fg.jit(lambda x: x)(wide).dtype == want
    assert fg.grad(lambda x: (x * x).sum())(wide).dtype == want


@pytest.mark.ggml
def test_arrays_moved_between_devices_keep_values_and_get_dtypes_of_the_device() -> None:
    with fg.default_device("numpy"):
        x = fnp.asarray(np.ones(3) / 3)
    moved = fg.device_put(x, "cpu")
    assert (x.dtype, moved.dtype, moved.device.name) == (float64, float32, "cpu")
    np.testing.assert_array_equal(np.asarray(moved), np.full(3, np.float32(1) / np.float32(3)))
    back = fg.device_put(moved, "numpy")
    assert back.dtype == float32 and back.device.name == "numpy"


def test_conversions_of_values(device: str) -> None:
    x = fnp.asarray(np.array([-1.7, -0.5, 0.0, 0.5, 2.5, 300.0], np.float32))
    np.testing.assert_array_equal(np.asarray(x.astype(int)), [-1, 0, 0, 0, 2, 300])
    np.testing.assert_array_equal(np.asarray(x.astype(bool)), [True, True, False, True, True, True])
    np.testing.assert_array_equal(np.asarray(x.astype("float16")), np.asarray(x).astype(np.float16))
    np.testing.assert_array_equal(np.asarray(fnp.asarray([True, False]).astype(float)), [1.0, 0.0])
    np.testing.assert_array_equal(np.asarray(fnp.asarray([-1, 5]).astype("uint32")), [2**32 - 1, 5])
