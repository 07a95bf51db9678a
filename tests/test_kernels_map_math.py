"""The float32 functions of the MAP kernels: errors in ulp against float64 truth, and special values against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
from map_checks import check_comparisons, check_conversions_to_integers, check_select
from map_kernels import Array, apply

pytestmark = pytest.mark.ggml
Function = Callable[[Array], Array]


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


# ---- arguments ----


def sample() -> Array:
    """Every 16381st float32 of all of them, every binade's edges, and denser where the functions bend."""
    patterns = np.arange(0, 2**32, 16381, dtype=np.uint64).astype(np.uint32).view(np.float32)
    powers = np.ldexp(np.float32(1), np.arange(-149, 128))
    powers = np.concatenate([powers, np.nextafter(powers, np.float32(0)), np.nextafter(powers, np.float32(np.inf))])
    ranges = [(-1.5, 1.5), (0.9, 1.1), (-20, 20), (-110, 110), (-3e4, 3e4), (-1e8, 1e8)]
    dense = [np.linspace(low, high, 40001).astype(np.float32) for low, high in ranges]
    return np.concatenate([patterns, powers, -powers, special_values(), *dense])


def special_values() -> Array:
    thresholds = [88.72283, 88.722836, 89.4, 89.41598, 128.0, 127.99999, -87.33655, -103.97207, -103.97208, -104.0]
    thresholds += [-149.0, -149.5, -150.0, -150.1, 10.05, 10.06, 9.0109, 0.99999994, 1.0000001, -0.99999994, 67108864.0]
    plain = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 1e10, 1e20, 1e30]
    tiny = [3.4028235e38, 1e-45, -1e-45, 1.1754942e-38, 1.1754944e-38, -1.1754944e-38, np.inf, -np.inf, np.nan]
    return np.array([*thresholds, *plain, *tiny], np.float32)


# ---- float64 truth ----


def from_math(f: Callable[[float], float]) -> Function:
    return np.vectorize(f, otypes=[np.float64])


def logistic(x: Array) -> Array:
    z = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, z) / (1 + z)


def trigonometric(f: Callable[[float], float]) -> Function:
    """The C library's function reduces huge arguments exactly."""
    return from_math(lambda x: f(x) if math.isfinite(x) else math.nan)


def erf_inv(x: Array) -> Array:
    """Bisection on erfc, which keeps its digits near 1; the series for small arguments."""
    a = np.abs(x)
    complement = np.where(a < 1, 1 - a, 0.5)  # exact for float32 arguments
    low, high = np.zeros_like(a), np.full_like(a, 7.0)
    erfc = from_math(math.erfc)
    for _ in range(60):
        middle = (low + high) / 2
        below = erfc(middle) > complement
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    small = a * np.sqrt(np.pi) / 2 * (1 + np.pi * a * a / 12 + 7 * np.pi**2 * a**4 / 480)
    y = np.where(a < 1e-3, small, low)
    return np.copysign(np.where(a < 1, y, np.where(a == 1, np.inf, np.nan)), x)


def lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x) if not abs(x) >= 1e36 else math.inf  # 1e36 log(1e36) - 1e36 = 8.2e37; the limit is near 4e36


def digamma(x: float) -> float:
    """Recurrence up to 30, the asymptotic series, reflection."""
    if x == 0:
        return -math.copysign(math.inf, x)
    if math.isnan(x) or x == -math.inf or (x < 0 and x == math.floor(x)):
        return math.nan
    if x < 0:
        fraction = x - round(x)
        return digamma(1 - x) - math.pi / math.tan(math.pi * fraction)
    if x == math.inf:
        return x
    total = 0.0
    while x < 30:
        total -= 1 / x
        x += 1
    y = 1 / (x * x)
    return total + math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))


TRUTH: dict[str, tuple[Function, float]] = {
    "exp_f": (np.exp, 1.2), "exp2_f": (np.exp2, 1.2), "expm1_f": (np.expm1, 1.7), "log_f": (np.log, 1.2),
    "log2_f": (np.log2, 1.2), "log1p_f": (np.log1p, 1.7), "sqrt_f": (np.sqrt, 0.5),
    "rsqrt_f": (lambda x: 1 / np.sqrt(x), 1.7), "cbrt_f": (np.cbrt, 0.51), "sin_f": (trigonometric(math.sin), 1.8),
    "cos_f": (trigonometric(math.cos), 1.8), "tan_f": (trigonometric(math.tan), 0.51), "asin_f": (np.arcsin, 0.6),
    "acos_f": (np.arccos, 0.6), "atan_f": (np.arctan, 0.6), "sinh_f": (np.sinh, 0.51), "cosh_f": (np.cosh, 0.51),
    "tanh_f": (np.tanh, 1.6), "asinh_f": (np.arcsinh, 0.51), "acosh_f": (np.arccosh, 0.51),
    "atanh_f": (np.arctanh, 0.51), "logistic_f": (logistic, 1.7), "erf_f": (from_math(math.erf), 1.5),
    "erfc_f": (from_math(math.erfc), 0.51), "square_f": (np.square, 0.5), "recip_f": (lambda x: 1 / x, 0.5),
    "floor_f": (np.floor, 0), "ceil_f": (np.ceil, 0), "trunc_f": (np.trunc, 0), "round_f": (np.rint, 0),
    "sign_f": (np.sign, 0), "abs_f": (np.abs, 0), "neg_f": (np.negative, 0),
}  # fmt: skip


def errors(got: Array, truth: Array) -> Array:
    """Distance in ulp of the nearest float32; infinite where NaN, infinity or the sign of a zero differ."""
    rounded = truth.astype(np.float32)
    both = np.isfinite(got) & np.isfinite(rounded)
    spacing = np.spacing(np.where(both, np.abs(rounded), np.float32(1))).astype(np.float64)
    ulp = np.where(both, np.abs(got.astype(np.float64) - truth) / spacing, 0)
    overflow = (np.abs(truth) > 3.40281e38) & (np.abs(truth) < 3.40284e38)  # within an ulp or two of the limit
    same = both | overflow | (np.isnan(got) & np.isnan(rounded)) | (got == rounded)
    zeros = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded))
    return np.where(same & ~zeros, ulp, np.inf)


def check(name: str, x: Array, got: Array, truth: Array, limit: float) -> None:
    error = errors(got, truth)
    worst = int(np.argmax(error))
    assert error[worst] <= limit, f"{name}({x[worst]!r}) = {got[worst]!r}, not {truth[worst]!r}: {error[worst]} ulp"


@pytest.mark.parametrize("name", TRUTH)
def test_error_in_ulp(name: str) -> None:
    f, limit = TRUTH[name]
    x = sample()
    check(name, x, apply(name, x), f(x.astype(np.float64)), limit)


@pytest.mark.parametrize("name", ["sin_f", "cos_f", "tan_f"])
def test_huge_angles(name: str) -> None:
    x = np.exp(np.random.default_rng(0).uniform(np.log(1e5), np.log(3e38), 100000)).astype(np.float32)
    x[::2] *= -1
    check(name, x, apply(name, x), TRUTH[name][0](x.astype(np.float64)), TRUTH[name][1])


def test_inverse_error_function() -> None:
    small = np.ldexp(np.linspace(0.5, 1, 37), -np.arange(0, 148)[:, None]).ravel()
    near_one = 1 - np.ldexp(1.0, -np.arange(1, 25))
    x = np.concatenate([np.linspace(-1, 1, 20001), near_one, small, [0.0, 2.0, -1.5, np.nan, np.inf]])
    x = np.concatenate([x, -x]).astype(np.float32)
    check("erf_inv", x, apply("erf_inv_f", x), erf_inv(x.astype(np.float64)), 1.0)


@pytest.mark.parametrize(("name", "f"), [("lgamma_f", lgamma), ("digamma_f", digamma)])
def test_gamma_functions(name: str, f: Callable[[float], float]) -> None:
    """Relative to the result, or absolute where it passes zero."""
    x = np.concatenate([sample()[::5], np.linspace(0.5, 3, 20001).astype(np.float32), special_values()])
    x = x[~((np.abs(x) > 1e36) & np.isfinite(x))]
    got, truth = apply(name, x), from_math(f)(x.astype(np.float64))
    error = errors(got, truth)
    absolute = np.abs(got.astype(np.float64) - truth)
    error = np.where(np.isfinite(absolute) & (absolute < 1e-7), 0, error)
    worst = int(np.argmax(error))
    assert error[worst] <= 1.0, f"{name}({x[worst]!r}) = {got[worst]!r}, not {truth[worst]!r}: {error[worst]} ulp"


# ---- two arguments ----


def pairs() -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    both = [0, 1, 2, 3, 1.5, 0.5, 1 / 3, 1e-45, 1e-38, 3.4028235e38, 16777215, 16777216, 33554432, np.inf]
    single = [np.nan, 8388609, -8388607, 4194305.5, 8388608.5, 127, 128, -149]
    edge = np.array([*both, *(-v for v in both), *single], np.float32)
    a, b = (m.ravel() for m in np.meshgrid(edge, edge))
    wild = rng.integers(0, 2**32, (2, 100000), dtype=np.uint32).view(np.float32)
    plain = rng.uniform(-20, 20, (2, 100000)).astype(np.float32)
    broad = np.exp(rng.uniform(-80, 80, 100000)).astype(np.float32)
    whole = rng.integers(-20, 20, 100000).astype(np.float32)
    x = np.concatenate([a, wild[0], plain[0], broad, -broad])
    return x, np.concatenate([b, wild[1], plain[1], plain[1], whole])


@pytest.mark.parametrize(
    ("name", "f", "limit"),
    [("add_f", np.add, 0.5), ("sub_f", np.subtract, 0.5), ("mul_f", np.multiply, 0.5), ("div_f", np.divide, 0.5),
     ("pow_f", np.power, 0.6), ("atan2_f", np.arctan2, 0.6)],
)  # fmt: skip
def test_binary_error_in_ulp(name: str, f: Callable[[Array, Array], Array], limit: float) -> None:
    a, b = pairs()
    check(name, a, apply(name, a, b), f(a.astype(np.float64), b.astype(np.float64)), limit)


@pytest.mark.parametrize(("name", "f"), [("rem_f", np.fmod), ("nextafter_f", np.nextafter)])
def test_exact_binary(name: str, f: Callable[[Array, Array], Array]) -> None:
    a, b = pairs()
    got, want = apply(name, a, b), f(a, b)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(got[number].view(np.uint32), want[number].view(np.uint32))
    assert np.all(np.isnan(got[~number]))


def test_extrema_propagate_nan_and_order_zeros() -> None:
    a, b = pairs()
    np.testing.assert_array_equal(apply("max_f", a, b), np.maximum(a, b))
    np.testing.assert_array_equal(apply("min_f", a, b), np.minimum(a, b))
    x, y = np.array([0.0, -0.0, 0.0, -0.0], np.float32), np.array([0.0, 0.0, -0.0, -0.0], np.float32)
    np.testing.assert_array_equal(np.signbit(apply("max_f", x, y)), [False, False, False, True])
    np.testing.assert_array_equal(np.signbit(apply("min_f", x, y)), [False, True, True, True])


def test_comparisons_and_predicates() -> None:
    check_comparisons(apply, *pairs())


def test_conversions_to_integers_saturate() -> None:
    check_conversions_to_integers(apply, pairs()[0])


def test_select_keeps_every_bit() -> None:
    check_select(apply)
