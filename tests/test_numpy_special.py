"""Special values against numpy in float32; promotion; every rank and empty arrays; and what the error messages say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad.errors import DTypeError, ShapeError

pytestmark = pytest.mark.usefixtures("device")
BIG = float(np.finfo(np.float32).max)
TINY = float(np.finfo(np.float32).tiny)
SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, -2.5, 3, TINY, -TINY, 1e-40, BIG, -BIG, 1e20, np.inf, -np.inf, np.nan], np.float32
)
UNARY = [
    "negative",
    "absolute",
    "sign",
    "square",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "isnan",
    "isfinite",
    "isinf",
    "signbit",
    "spacing",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "fmod",
    "power",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "arctan2",
    "hypot",
    "logaddexp",
    "copysign",
    "nextafter",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "heaviside",
]
# The extremes of these go through float32's subnormal range or beyond what a quotient can hold.
DENORMAL_FREE = ("log", "log2", "log10", "exp", "spacing", "nextafter")


def same(got: Any, want: Any, ulps: float, exact_zero_sign: bool = True) -> None:
    """NaN, infinities and zeros at the same places with the same signs; other numbers within some roundings."""
    got = np.asarray(got)
    assert got.shape == want.shape and got.dtype == want.dtype
    if want.dtype == bool:
        np.testing.assert_array_equal(got, want)
        return
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got) * np.sign(got), np.isinf(want) * np.sign(want))
    if exact_zero_sign:
        zero = (want == 0) & (got == 0)
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=ulps * 2.0**-23, atol=TINY)


@pytest.mark.parametrize("name", UNARY)
def test_special_values_of_one_operand(name: str) -> None:
    x = SPECIAL[np.abs(SPECIAL) != np.float32(1e-40)] if name in DENORMAL_FREE else SPECIAL
    if name in ("sin", "cos", "tan"):
        x = x[~(np.abs(x) > 1e10) | ~np.isfinite(x)]
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x)
    same(getattr(fnp, name)(fnp.asarray(x)), want, 4, name != "sign")  # the sign of a zero is a zero


@pytest.mark.parametrize("name", BINARY)
def test_special_values_of_two_operands(name: str) -> None:
    values = SPECIAL[np.abs(SPECIAL) != np.float32(1e-40)]
    x, y = [a.ravel() for a in np.meshgrid(values, values)]
    if name in ("remainder", "fmod", "floor_divide"):  # quotients beyond float32's whole numbers have no digits left
        with np.errstate(all="ignore"):
            near = ~(np.abs(x) > np.abs(y) * 1e6)
        ok = near | ~np.isfinite(x) | ~np.isfinite(y) | (y == 0)
        x, y = x[ok], y[ok]
    if name == "nextafter":
        ok = (x != 0) | (y == 0)
        x, y = x[ok], y[ok]
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x, y)
    signs = name not in ("remainder", "floor_divide", "maximum", "minimum", "fmax", "fmin", "heaviside", "logaddexp")
    same(getattr(fnp, name)(fnp.asarray(x), fnp.asarray(y)), want, 4, signs)


@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "floor_divide", "remainder", "fmod", "power", "maximum"]
)
def test_integers_at_their_limits(name: str) -> None:
    low, high = -(2**31), 2**31 - 1
    values = np.array([low, low + 1, -7, -2, -1, 0, 1, 2, 3, 7, high], np.int32)
    x, y = [a.ravel() for a in np.meshgrid(values, values)]
    if name == "power":
        x, y = x[(y >= 0) & (y < 40)], y[(y >= 0) & (y < 40)]
    if name in ("floor_divide", "remainder", "fmod"):
        ok = (y != 0) & ~((x == low) & (y == -1))
        x, y = x[ok], y[ok]
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x, y)
    np.testing.assert_array_equal(getattr(fnp, name)(fnp.asarray(x), fnp.asarray(y)), want)
    if name != "power":
        u, v = x.view(np.uint32), y.view(np.uint32)
        np.testing.assert_array_equal(getattr(fnp, name)(fnp.asarray(u), fnp.asarray(v)), getattr(np, name)(u, v))


# -- guarded idioms ----------------------------------------------------------------------------------------------
def test_where_guards_values_and_gradients() -> None:
    x = fnp.asarray([-1.0, 0.0, 4.0, np.inf, np.nan])
    safe_sqrt = lambda v: fnp.where(v > 0, fnp.sqrt(v), 0.0)
    safe_log = lambda v: fnp.where(v > 0, fnp.log(v), 0.0)
    np.testing.assert_allclose(fg.grad(lambda v: safe_sqrt(v)[:3].sum())(x), [0, 0, 0.25, 0, 0])
    np.testing.assert_allclose(fg.grad(lambda v: safe_log(v)[:3].sum())(x), [0, 0, 0.25, 0, 0])
    nan = fg.grad(lambda v: fnp.where(fnp.isnan(v), 0.0, v * v).sum())(x)
    np.testing.assert_allclose(nan[:3], [-2, 0, 8])
    assert float(nan[4]) == 0.0


def test_logsumexp_of_nothing_and_of_infinities() -> None:
    x = fnp.asarray([[-np.inf, -np.inf], [np.inf, 1.0], [1000.0, 1000.0], [0.0, -np.inf]])
    np.testing.assert_allclose(fnp.logsumexp(x, axis=1), [-np.inf, np.inf, 1000 + np.log(2), 0.0], rtol=1e-6)
    grad = np.asarray(fg.grad(lambda v: fnp.logsumexp(v, axis=1)[np.array([0, 2, 3])].sum())(x))
    np.testing.assert_allclose(grad, [[0, 0], [0, 0], [0.5, 0.5], [1, 0]])
    assert fnp.logsumexp(x[:0], axis=0).tolist() == [-np.inf, -np.inf]
    assert fnp.logsumexp(x, where=np.zeros((4, 2), bool)).item() == -np.inf


def test_gradient_conventions() -> None:
    one = lambda f, x: np.asarray(fg.grad(lambda v: f(v).sum())(fnp.asarray(x, fnp.float32)))
    np.testing.assert_array_equal(one(fnp.abs, [0.0, -2.0, 3.0]), [0, -1, 1])
    np.testing.assert_array_equal(one(lambda v: fnp.maximum(v, 1.0), [0.0, 1.0, 2.0]), [0, 0.5, 1])
    np.testing.assert_array_equal(one(lambda v: fnp.max(v), [3.0, 3.0, 2.0]), [0.5, 0.5, 0])
    np.testing.assert_array_equal(one(lambda v: fnp.clip(v, 0.0, 1.0), [-1.0, 0.0, 0.5, 1.0, 2.0]), [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(one(lambda v: fnp.prod(v), [0.0, 2.0, 3.0]), [6, 0, 0])
    np.testing.assert_array_equal(one(fnp.sqrt, [0.0, 4.0]), [np.inf, 0.25])
    bounds = fg.grad(lambda lo, hi: fnp.clip(fnp.asarray([-1.0, 0.5, 9.0]), lo, hi).sum(), (0, 1))(0.0, 1.0)
    assert [float(b) for b in bounds] == [1.0, 1.0]


# -- promotion ---------------------------------------------------------------------------------------------------
def test_promotion_of_arrays_and_python_numbers() -> None:
    b, i, u, h, f = [fnp.ones(2, d) for d in ("bool", "int32", "uint32", "float16", "float32")]
    bf = fnp.ones(2, "bfloat16")
    table = [
        (b + i, "int32"), (b + b, "bool"), (u + i, "int32"), (i + h, "float16"), (h + f, "float32"), (i / i, "float32"),
        (h * 2.5, "float16"), (i * 2, "int32"), (i * 2.5, "float32"), (b * 2, "int32"), (b * 1.5, "float32"),
        (u * 2, "uint32"), (h ** 2, "float16"), (fnp.exp(i), "float32"), (fnp.mean(i), "float32"), (i.sum(), "int32"),
        (b.sum(), "int32"), (h.mean(), "float16"), (fnp.where(b, h, 1.5), "float16"), (f / 3, "float32"),
    ]  # fmt: skip
    wide = fnp.zeros(1).dtype == np.float64
    for got, want in table:
        assert got.dtype == (np.float64 if wide and want == "float32" and got.dtype == np.float64 else np.dtype(want))
    assert fnp.result_type(bf, h) == np.float32 and fnp.result_type(bf, 2.0) == fnp.bfloat16
    assert (bf * 2).dtype == fnp.bfloat16 and (bf + f).dtype == np.float32
    with pytest.raises(OverflowError, match="fit int32"):
        i + 2**40
    with pytest.raises(OverflowError, match="fit uint32"):
        u - (-1)


def test_halves_accumulate_in_float32() -> None:
    h = fnp.ones(4096, "float16") * 0.1
    want = float(np.asarray(h).astype(np.float64).sum())
    assert abs(float(h.sum()) - want) < 0.2 and abs(float(h @ fnp.ones(4096, "float16")) - want) < 0.2
    big = fnp.full(100, 60000.0, "float16")
    assert float(big.mean()) == 60000.0 and float(big.var()) == 0.0


# -- shapes ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rank", range(9))
def test_every_rank(rank: int) -> None:
    shape = tuple([2, 1, 3, 2, 1, 2, 2, 1][:rank])
    x = np.random.default_rng(rank).normal(size=shape).astype(np.float32)
    a = fnp.asarray(x)
    close = lambda got, want: np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)
    close(fg.jit(lambda v: fnp.exp(v) + v * 2)(a), np.exp(x) + x * 2)
    close(a.sum(), x.sum())
    close(a.T, x.T)
    close(fnp.flip(a), np.flip(x))
    if rank:
        close(a.max(axis=-1), x.max(-1))
        close(fnp.sort(a, axis=0), np.sort(x, 0))
        close(fnp.cumsum(a, axis=rank // 2), np.cumsum(x, rank // 2))
        close(fnp.concatenate([a, a], rank - 1), np.concatenate([x, x], rank - 1))
        close(fnp.tensordot(a, a, ([0], [0])), np.tensordot(x, x, ([0], [0])))
        close(a[..., ::-1], x[..., ::-1])
        close(fg.grad(lambda v: (v * v).sum())(a), 2 * x)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    a = fnp.asarray(x)
    for f in (
        lambda m, v: m.exp(v),
        lambda m, v: m.sum(v, axis=0),
        lambda m, v: m.sum(v),
        lambda m, v: m.prod(v, axis=-1),
        lambda m, v: m.sort(v, axis=0),
        lambda m, v: m.cumsum(v, axis=0),
        lambda m, v: m.concatenate([v, v]),
        lambda m, v: m.reshape(v, (0, 5)),
        lambda m, v: m.transpose(v),
        lambda m, v: m.matmul(v, m.swapaxes(v, -1, -2)) if v.ndim > 1 else m.dot(v, v),
        lambda m, v: m.any(v, axis=-1),
        lambda m, v: m.roll(v, 1),
        lambda m, v: m.repeat(v, 2, axis=0),
        lambda m, v: m.pad(v, 1),
        lambda m, v: v[..., :0],
    ):
        np.testing.assert_array_equal(f(fnp, a), f(np, x))
    if shape[0] == 0:
        with pytest.raises(ShapeError, match="element"):
            fnp.max(a, axis=0) if len(shape) == 1 else fnp.argmax(a, axis=0) if shape[1:] != (0,) else fnp.max(a[:, :0])
    assert fg.grad(lambda v: (v * v).sum())(a).shape == shape


# -- messages ----------------------------------------------------------------------------------------------------
BAD: list[tuple[type[Exception], str, Any]] = [
    (ShapeError, r"add: shapes must be equal or 1.*\(2,\) and \(3,\)", lambda: fnp.ones(2) + fnp.ones(3)),
    (ShapeError, r"matmul: inner sizes must be equal \(3 and 2\)", lambda: fnp.ones((2, 3)) @ fnp.ones((2, 3))),
    (ShapeError, "matmul: .*scalars", lambda: fnp.ones(2) @ 3.0),
    (ShapeError, r"sum: axis must be in \[-2, 2\), got 2", lambda: fnp.ones((2, 3)).sum(2)),
    (ShapeError, "sum: axes must be distinct", lambda: fnp.ones((2, 3)).sum((0, -2))),
    (ShapeError, "reshape: 6 elements", lambda: fnp.ones((2, 3)).reshape(4, -1)),
    (ShapeError, "reshape: one dimension may be -1", lambda: fnp.ones(4).reshape(-1, -1)),
    (ShapeError, "squeeze: the axes must have size 1", lambda: fnp.squeeze(fnp.ones((2, 1)), 0)),
    (ShapeError, "stack: all arrays must have one shape", lambda: fnp.stack([fnp.ones(2), fnp.ones(3)])),
    (ShapeError, "concatenate: shapes must agree", lambda: fnp.concatenate([fnp.ones((2, 2)), fnp.ones((2, 3))])),
    (ShapeError, "split: .*array_split", lambda: fnp.split(fnp.ones(5), 2)),
    (ShapeError, "broadcast_to", lambda: fnp.broadcast_to(fnp.ones(3), (2, 2))),
    (ShapeError, "einsum: axes with one name", lambda: fnp.einsum("ij,jk", fnp.ones((2, 3)), fnp.ones((2, 3)))),
    (ValueError, "einsum: as many terms", lambda: fnp.einsum("ij,jk", fnp.ones((2, 3)))),
    (ShapeError, "einsum: .*ellipsis", lambda: fnp.einsum("i", fnp.ones((2, 3)))),
    (ValueError, "einsum: the result's names", lambda: fnp.einsum("ij->ik", fnp.ones((2, 3)))),
    (ValueError, "pad: the mode", lambda: fnp.pad(fnp.ones(2), 1, mode="mirror")),
    (ValueError, "where: either both or neither", lambda: fnp.where(fnp.ones(2), fnp.ones(2))),
    (ValueError, "power: integers to a negative power", lambda: fnp.asarray([2]) ** -1),
    (ValueError, "quantile: the method", lambda: fnp.quantile(fnp.ones(3), 0.5, method="weibull")),
    (ValueError, "max: where needs an initial value", lambda: fnp.max(fnp.ones(2), where=fnp.ones(2, bool))),
    (ValueError, "arange: the step", lambda: fnp.arange(0, 1, 0)),
    (OverflowError, "arange: the values must fit int32", lambda: fnp.arange(2**31 - 2, 2**31 + 3)),
    (NotImplementedError, "sum: out must be None", lambda: fnp.sum(fnp.ones(2), out=fnp.ones(()))),
    (DTypeError, "negative: numbers are required", lambda: -fnp.ones(2, bool)),
    (DTypeError, "subtract: numbers are required.*logical_xor|subtract", lambda: fnp.ones(2, bool) - fnp.ones(2, bool)),
    (DTypeError, "exp: numbers or an array are required, got str", lambda: fnp.exp("x")),
    (DTypeError, "bitwise|and: dtype must be one of", lambda: fnp.ones(2) & fnp.ones(2)),
    (DTypeError, "a real numeric or bool dtype", lambda: fnp.asarray([1j])),
    (ShapeError, "shapes|shape", lambda: fnp.asarray([fnp.ones(2), fnp.ones(3)])),
    (TypeError, "immutable", lambda: fnp.ones(2).__setitem__(0, 1.0)),
    (ValueError, "choose|indices must be in", lambda: fnp.choose(fnp.asarray([5]), [fnp.ones(1), fnp.ones(1)])),
]


@pytest.mark.parametrize(("error", "match", "call"), BAD, ids=[m for _, m, _ in BAD])
def test_messages_name_the_operation_and_the_requirement(error: type[Exception], match: str, call: Any) -> None:
    with pytest.raises(error, match=f"(?s){match}") as caught:
        call()
    assert "\n  at test_numpy_special.py:" in str(caught.value)


def test_bessel_function_over_its_range(reference: None) -> None:
    x = np.concatenate([np.linspace(-40, 40, 161), [14.999, 15.0, 15.001, 80.0, 500.0]])
    np.testing.assert_allclose(fnp.i0(fnp.asarray(x)), np.i0(x), rtol=3e-12)
    assert float(fnp.i0(fnp.asarray(np.inf))) == np.inf
    assert np.isnan(float(fnp.i0(fnp.asarray(np.nan))))
    second = fg.grad(fg.grad(lambda v: fnp.i0(v)))(fnp.asarray(0.0))
    assert float(second) == pytest.approx(0.5)
