"""The instructions of kernels for Vulkan devices: errors in ulp against float64 truth, special values, exact ones bit
for bit; on the device, and computed by numpy as on one whose division and square root are a few ulp off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("funcgrad.runtime._ggml")
import spirv_device
import test_kernels_map_math as cpu
from map_checks import (
    Apply,
    check_comparisons,
    check_conversions_to_integers,
    check_select,
    check_signed_integers,
    check_threefry,
    check_unsigned_integers,
)
from map_kernels import OPS, Array
from spirv_eager import Eager

from funcgrad.runtime.spirv.instructions import INSTRUCTIONS, NUMBERS
from funcgrad.runtime.spirv.kernel import Target
from funcgrad.runtime.spirv.pairs import Divisor, sqrt

# Where float32 pairs come less close than the CPU's float64, or a denormal result is rounded twice (0.76).
LIMITS = {"tan_f": 0.6, "atan_f": 0.75, "sinh_f": 0.65, "cosh_f": 0.6, "erfc_f": 0.76}
SMALLEST = 2.0**-125
VIEWS = {"f": np.float32, "i": np.int32, "u": np.uint32}


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def eager(target: Target) -> Apply:
    def apply(name: str, *xs: Array, dtype: Any = np.float32) -> Array:
        k, x = Eager(target), INSTRUCTIONS[NUMBERS[name]]
        made = x.make(*[k.made(v.view(VIEWS[t]), t) for v, t in zip(xs, x.sources, strict=True)])
        return np.asarray(made.id).view(dtype)

    return apply


WHERE = ["device", "device, corrected", "fused", "not fused"]


@pytest.fixture(params=WHERE)
def apply(request: Any) -> Apply:
    """One instruction on whole arrays: on the device; there as if its division were not exact; by numpy."""
    if request.param in ("fused", "not fused"):
        return eager(Target(fused=request.param == "fused"))
    target = spirv_device.device().target
    if request.param == "device, corrected":
        if not target.exact:
            pytest.skip("the device's own division is corrected anyway")
        target = target._replace(exact=False)

    def run(name: str, *xs: Array, dtype: Any = np.float32) -> Array:
        return spirv_device.apply(name, *xs, dtype=dtype, target=target)

    run.on_device = True  # type: ignore[attr-defined]
    return run


def denormals_count(apply: Apply) -> bool:
    """Whether denormal numbers are not taken for 0."""
    return not hasattr(apply, "on_device") or spirv_device.device().target.denorm


def check(apply: Apply, name: str, xs: tuple[Array, ...], got: Array, truth: Array, limit: float) -> None:
    error = cpu.errors(got, truth)
    if not denormals_count(apply):
        for x in (*xs, truth):
            error = np.where((np.abs(x) < SMALLEST) & (x != 0), 0, error)
    worst = int(np.argmax(error))
    at = [x[worst] for x in xs]
    assert error[worst] <= limit, f"{name}({at}) = {got[worst]!r}, not {truth[worst]!r}: {error[worst]} ulp"


def test_the_numbers_are_those_of_the_kernels() -> None:
    assert NUMBERS == OPS


@pytest.mark.parametrize("name", cpu.TRUTH)
def test_error_in_ulp(apply: Apply, name: str) -> None:
    f, limit = cpu.TRUTH[name]
    x = SAMPLE
    check(apply, name, (x,), apply(name, x), f(x.astype(np.float64)), LIMITS.get(name, limit))


PAIRS = cpu.pairs()
SAMPLE = np.concatenate([cpu.sample()[::3], cpu.special_values()])


@pytest.mark.parametrize("name", ["sin_f", "cos_f", "tan_f"])
def test_huge_angles(apply: Apply, name: str) -> None:
    x = np.exp(np.random.default_rng(0).uniform(np.log(1e4), np.log(3e38), 50000)).astype(np.float32)
    x[::2] *= -1
    f, limit = cpu.TRUTH[name]
    check(apply, name, (x,), apply(name, x), f(x.astype(np.float64)), LIMITS.get(name, limit))


def test_square_roots_of_all_mantissas() -> None:
    """An eighth of them, with an inverse square root that is up to 3 ulp off."""
    x = (np.arange(5, 1 << 24, 8, np.uint32) + np.uint32(0x3F800000)).view(np.float32)
    k = Eager(off=3)
    np.testing.assert_array_equal(sqrt(k.made(x, "f")).id, np.sqrt(x))


@pytest.mark.parametrize("fused", [False, True])
def test_quotients_by_one_number(fused: bool) -> None:
    """As for the rows of ROWS; denormal ones are rounded twice."""
    a, b = PAIRS
    k = Eager(Target(fused=fused))
    got, want = np.asarray(Divisor(k.made(b, "f")).divide(k.made(a, "f")).id), a / b
    normal = ~((np.abs(want) < SMALLEST) & (want != 0))
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    assert same[normal].all(), [(a[i], b[i], got[i], want[i]) for i in np.flatnonzero(normal & ~same)[:3]]
    assert (np.abs(got - want)[~normal] <= 2.0**-149).all()


def test_inverse_error_function(apply: Apply) -> None:
    small = np.ldexp(np.linspace(0.5, 1, 37), -np.arange(0, 148)[:, None]).ravel()
    near_one = 1 - np.ldexp(1.0, -np.arange(1, 25))
    x = np.concatenate([np.linspace(-1, 1, 8001), near_one, small, [0.0, 2.0, -1.5, np.nan, np.inf]])
    x = np.concatenate([x, -x]).astype(np.float32)
    check(apply, "erf_inv", (x,), apply("erf_inv_f", x), cpu.erf_inv(x.astype(np.float64)), 1.0)


@pytest.mark.parametrize(("name", "f"), [("lgamma_f", cpu.lgamma), ("digamma_f", cpu.digamma)])
def test_gamma_functions(apply: Apply, name: str, f: Callable[[float], float]) -> None:
    """Relative to the result, or absolute where it passes zero."""
    x = np.concatenate([cpu.sample()[::15], np.linspace(0.5, 3, 5001).astype(np.float32), cpu.special_values()])
    x = x[~((np.abs(x) > 1e36) & np.isfinite(x))]
    got, truth = apply(name, x), cpu.from_math(f)(x.astype(np.float64))
    near = np.abs(got.astype(np.float64) - truth) < 1e-7
    check(apply, name, (x,), np.where(near, truth.astype(np.float32), got), truth, 1.0)


@pytest.mark.parametrize(
    ("name", "f", "limit"),
    [("add_f", np.add, 0.5), ("sub_f", np.subtract, 0.5), ("mul_f", np.multiply, 0.5), ("div_f", np.divide, 0.5),
     ("pow_f", np.power, 0.76), ("atan2_f", np.arctan2, 0.75)],
)  # fmt: skip
def test_binary_error_in_ulp(apply: Apply, name: str, f: Callable[..., Array], limit: float) -> None:
    a, b = PAIRS
    check(apply, name, (a, b), apply(name, a, b), f(a.astype(np.float64), b.astype(np.float64)), limit)


@pytest.mark.parametrize(
    ("name", "f"),
    [("rem_f", np.fmod), ("nextafter_f", np.nextafter), ("max_f", np.maximum), ("min_f", np.minimum)],
)
def test_exact_binary(apply: Apply, name: str, f: Callable[..., Array]) -> None:
    a, b = PAIRS
    got, want = apply(name, a, b), f(a, b)
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    if name in ("max_f", "min_f"):  # numpy may give either zero
        zeros = (a == 0) & (b == 0)
        minus = np.signbit(a) & np.signbit(b) if name == "max_f" else np.signbit(a) | np.signbit(b)
        same = np.where(zeros, (got == 0) & (np.signbit(got) == minus), same)
    if not denormals_count(apply):
        for x in (a, b, want):
            same |= (np.abs(x) < SMALLEST) & ((x != 0) | (name == "nextafter_f"))
    wrong = np.flatnonzero(~same)[:3]
    assert same.all(), [(a[i], b[i], got[i], want[i]) for i in wrong]


def test_comparisons_and_predicates(apply: Apply) -> None:
    a, b = PAIRS
    if not denormals_count(apply):
        a, b = (np.where(np.abs(x) < SMALLEST, np.float32(0), x) for x in (a, b))
    check_comparisons(apply, a, b)


def test_conversions_to_integers_saturate(apply: Apply) -> None:
    check_conversions_to_integers(apply, PAIRS[0])


def test_signed_integers(apply: Apply) -> None:
    check_signed_integers(apply)


def test_unsigned_integers(apply: Apply) -> None:
    check_unsigned_integers(apply)


def test_select_and_what_leaves_zeros(apply: Apply) -> None:
    check_select(apply)
    a = np.array([0.0, 5.0, np.inf, np.nan, -0.0, 2.0, 0.0], np.float32)
    b = np.array([np.nan, 0.0, 0.0, 2.0, np.inf, 4.0, 0.0], np.float32)
    np.testing.assert_array_equal(apply("mul_nz_f", a, b), np.array([0, 0, 0, np.nan, 0, 8, 0], np.float32))
    np.testing.assert_array_equal(apply("div_nz_f", a, b), np.array([0, np.inf, np.inf, np.nan, 0, 0.5, 0], np.float32))


def test_two_operations_at_once_round_twice(apply: Apply) -> None:
    a, b, c = np.random.default_rng(3).normal(size=(3, 20000)).astype(np.float32)
    want = {"muladd_f": a * b + c, "mulsub_f": a * b - c, "submul_f": c - a * b, "mulmul_f": a * b * c}
    for name, expected in (want | {"addadd_f": a + b + c}).items():
        np.testing.assert_array_equal(apply(name, a, b, c), expected, name)


def test_threefry_known_answers(apply: Apply) -> None:
    check_threefry(apply)
