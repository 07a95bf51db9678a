"""What the array API standard asks of dtypes, elementwise functions, creation and reading, on arrays of hypothesis.

The references are Python's own numbers and lists, or numpy.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.array_api import make_strategies_namespace

import funcgrad as fg
import funcgrad.numpy as fnp

xps = make_strategies_namespace(fnp)
DTYPES = {"bool": fnp.bool, "int32": fnp.int32, "float32": fnp.float32}
drawn = settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
SHAPES = xps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
FILLED = xps.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)


def elements(dtype: Any, **limits: Any) -> Any:
    """Values of a dtype, neither huge nor subnormal."""
    if dtype == fnp.bool:
        return st.booleans()
    if dtype == fnp.int32:
        return st.integers(limits.get("low", -1000), limits.get("high", 1000))
    low, high = float(limits.get("low", -1e3)), float(limits.get("high", 1e3))
    return st.floats(low, high, width=32, allow_subnormal=False).map(lambda v: v + 0.0)


@st.composite
def arrays(draw: Any, shape: Any = SHAPES, names: Any = tuple(DTYPES), **limits: Any) -> Any:
    """An array of one of the dtypes, and the same of numpy's."""
    dtype = DTYPES[draw(st.sampled_from(names))]
    x = draw(xps.arrays(dtype, shape if isinstance(shape, tuple) else draw(shape), elements=elements(dtype, **limits)))
    assert isinstance(x, fnp.ndarray) and x.dtype == dtype
    return x, np.array(x)


def same(got: Any, want: Any, dtype: Any = None, rtol: float = 1e-5) -> None:
    """The same shape, dtype and values."""
    want = np.asarray(want)
    assert isinstance(got, fnp.ndarray) and got.shape == want.shape
    assert got.dtype == (want.dtype if dtype is None else dtype)
    np.testing.assert_allclose(np.asarray(got), want, rtol=rtol, atol=1e-5 if got.dtype == np.float32 else 0)


# -- strategies, namespace ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", ["2021.12", "2022.12", "2023.12"])
def test_hypothesis_makes_strategies(version: str) -> None:
    space = make_strategies_namespace(fnp, api_version=version)  # type: ignore[arg-type]
    for dtype in DTYPES.values():
        strategy = space.arrays(dtype, (2, 3), elements=space.from_dtype(dtype))

        @settings(max_examples=5, database=None, derandomize=True)
        @given(strategy, st.just(dtype))
        def check(x: Any, dtype: Any) -> None:
            assert x.dtype == dtype and x.shape == (2, 3)

        check()


def test_limits_are_python_numbers() -> None:
    f, i = fnp.finfo(fnp.float32), fnp.iinfo(fnp.int32)
    assert all(type(getattr(f, n)) is float for n in ("eps", "max", "min", "smallest_normal", "tiny"))
    assert all(type(n) is int for n in (f.bits, i.bits, i.min, i.max))
    for dtype in ("float16", "float32", "bfloat16"):
        info = fnp.finfo(dtype)
        one = fnp.ones((), dtype=dtype)
        assert (one + info.eps).dtype == one.dtype and float(one + info.eps) > 1 and float(one + info.eps / 2) == 1
    assert fnp.finfo(fnp.ones(2)).max == fnp.finfo(fnp.float32).max == float(np.finfo(np.float32).max)
    assert "float32" in repr(f)


def test_python_complex_numbers_without_imaginary_part() -> None:
    assert fnp.asarray(0j).dtype == fnp.float32 and float(fnp.asarray(2.5 + 0j)) == 2.5
    with pytest.raises(TypeError, match="real numeric or bool"):
        fnp.asarray(1j)


def test_capabilities_and_dtypes_can_be_used() -> None:
    info = fnp.__array_namespace_info__()
    capabilities = info.capabilities()
    assert type(capabilities["boolean indexing"]) is type(capabilities["data-dependent shapes"]) is bool
    assert type(capabilities["max dimensions"]) is int
    kinds = ("bool", "signed integer", "unsigned integer", "real floating", "complex floating", "integral", "numeric")
    for kind, device in itertools.product((None, *kinds, ("bool", "integral")), (None, *info.devices())):
        for name, dtype in info.dtypes(kind=kind, device=device).items():
            assert fnp.empty(1, dtype=dtype, device=device).dtype == dtype
            assert name in ("bool", "int32", "uint32", "float32", "float64")
    assert all("indexing" in info.default_dtypes(device=d) for d in info.devices())


# -- data types --------------------------------------------------------------------------------------------------
@given(arrays(), st.sampled_from([*DTYPES.values(), fnp.uint8]), st.booleans())
@drawn
def test_astype(pair: Any, dtype: Any, copy: bool) -> None:
    x, host = pair
    if dtype == fnp.uint8:  # a name for programs that use it
        assume(host.dtype == np.bool_)
        assert fnp.sum(fnp.astype(x, dtype)).item() == host.sum()
        return
    same(fnp.astype(x, dtype, copy=copy), host.astype(dtype), dtype)


@given(st.sampled_from(list(DTYPES)), st.sampled_from(list(DTYPES)), st.data())
@drawn
def test_can_cast_and_result_type(a: str, b: str, data: Any) -> None:
    x = fnp.zeros(data.draw(SHAPES), dtype=DTYPES[a])
    assert fnp.can_cast(DTYPES[a], DTYPES[a]) is True and type(fnp.can_cast(x, DTYPES[b])) is bool
    assert fnp.result_type(x, DTYPES[a]) == DTYPES[a] == fnp.result_type(x)
    scalar = {"bool": True, "int32": 1, "float32": 1.0}[a]
    assert fnp.result_type(x, scalar) == fnp.result_type(scalar, DTYPES[a]) == DTYPES[a]
    kinds = {"bool": "bool", "int32": "signed integer", "float32": "real floating"}
    assert fnp.isdtype(DTYPES[a], kinds[b]) is (a == b) and fnp.isdtype(DTYPES[a], (kinds[b], DTYPES[a])) is True


def test_result_type_of_nothing() -> None:
    with pytest.raises(ValueError):
        fnp.result_type()


@given(st.data())
@drawn
def test_broadcasting(data: Any) -> None:
    shapes = data.draw(xps.mutually_broadcastable_shapes(3, max_dims=4, max_side=3, min_side=0)).input_shapes
    xs = [data.draw(arrays(shape=s)) for s in shapes]
    for got, (x, _), want in zip(
        fnp.broadcast_arrays(*[x for x, _ in xs]), xs, np.broadcast_arrays(*[h for _, h in xs]), strict=True
    ):
        same(got, want, x.dtype)
    whole = np.broadcast_shapes(*shapes)
    same(fnp.broadcast_to(xs[0][0], whole), np.broadcast_to(xs[0][1], whole))


# -- elementwise -------------------------------------------------------------------------------------------------
def _int_power(a: Any, b: Any) -> Any:
    return a**b if b >= 0 else None


SYMBOLS: dict[str, tuple[str, Callable[..., Any], tuple[str, ...]]] = {
    "+": ("add", operator.add, ("int32", "float32")),
    "-": ("subtract", operator.sub, ("int32", "float32")),
    "*": ("multiply", operator.mul, ("int32", "float32")),
    "/": ("divide", lambda a, b: a / b if b else None, ("float32",)),
    "//": ("floor_divide", lambda a, b: a // b if b else None, ("int32",)),
    "%": ("remainder", lambda a, b: a % b if b else None, ("int32",)),
    "**": ("pow", _int_power, ("int32",)),
    "&": ("bitwise_and", operator.and_, ("bool", "int32")),
    "|": ("bitwise_or", operator.or_, ("bool", "int32")),
    "^": ("bitwise_xor", operator.xor, ("bool", "int32")),
    "<<": ("bitwise_left_shift", operator.lshift, ("int32",)),
    ">>": ("bitwise_right_shift", operator.rshift, ("int32",)),
    "<": ("less", operator.lt, ("int32", "float32")),
    "<=": ("less_equal", operator.le, ("int32", "float32")),
    ">": ("greater", operator.gt, ("int32", "float32")),
    ">=": ("greater_equal", operator.ge, ("int32", "float32")),
    "==": ("equal", operator.eq, ("bool", "int32", "float32")),
    "!=": ("not_equal", operator.ne, ("bool", "int32", "float32")),
}


@pytest.mark.parametrize("symbol", SYMBOLS)
@given(st.data())
@drawn
def test_operators(symbol: str, data: Any) -> None:
    """The function, the operator, both with a Python scalar on either side, and in place."""
    name, reference, names = SYMBOLS[symbol]
    dtype = data.draw(st.sampled_from(names))
    limits = {"low": 0, "high": 6} if symbol in ("**", "<<", ">>") else {}
    shapes = data.draw(xps.mutually_broadcastable_shapes(2, max_dims=3, max_side=3, min_side=1)).input_shapes
    (x, a), (y, b) = [data.draw(arrays(shape=s, names=(dtype,), **limits)) for s in shapes]
    scalar = data.draw(elements(DTYPES[dtype], **limits))
    comparison = symbol in ("<", "<=", ">", ">=", "==", "!=")
    expected = fnp.bool if comparison else DTYPES[dtype]

    def check(got: Any, left: Any, right: Any) -> None:
        left, right = np.broadcast_arrays(left, right)
        assert got.dtype == expected and got.shape == left.shape
        for value, p, q in zip(np.asarray(got).ravel(), left.ravel().tolist(), right.ravel().tolist(), strict=True):
            want = reference(p, q)
            if want is None:
                continue
            if not comparison and abs(want) > (2**31 - 1 if dtype == "int32" else 3e38):
                continue
            assert math.isclose(value, want, rel_tol=1e-5, abs_tol=1e-3) if dtype == "float32" else value == want

    function = getattr(fnp, name)
    check(function(x, y), a, b)
    check(function(x, scalar), a, scalar)
    check(function(scalar, y), scalar, b)
    check(eval(f"x {symbol} y"), a, b)
    check(eval(f"x {symbol} scalar"), a, scalar)
    check(eval(f"scalar {symbol} y"), scalar, b)
    if not comparison and np.broadcast_shapes(*shapes) == shapes[0]:
        for right, host in ((y, b), (scalar, scalar)):
            space = {"x": x, "right": right}
            exec(f"x {symbol}= right", space)
            check(space["x"], a, host)


CLOSED: dict[str, tuple[Callable[[float], float], float, float]] = {
    **{n: (getattr(math, n), -1e3, 1e3) for n in ("atan", "asinh", "tanh", "floor", "ceil", "trunc", "expm1")},
    **{n: (getattr(math, n), -1.0, 1.0) for n in ("acos", "asin", "atanh")},
    **{n: (getattr(math, n), -80.0, 80.0) for n in ("exp", "sinh", "cosh", "sin", "cos")},
    **{n: (getattr(math, n), 2.0**-20, 1e3) for n in ("log", "log2", "log10", "sqrt")},
    "log1p": (math.log1p, -0.75, 1e3),
    "acosh": (math.acosh, 1.0, 1e3),
    "tan": (math.tan, -1.5, 1.5),
    "abs": (abs, -1e3, 1e3),
    "negative": (operator.neg, -1e3, 1e3),
    "positive": (operator.pos, -1e3, 1e3),
    "square": (lambda v: v * v, -1e3, 1e3),
    "reciprocal": (lambda v: 1 / v, 2.0**-10, 1e3),
    "round": (lambda v: float(round(v)), -1e3, 1e3),
    "sign": (lambda v: float((v > 0) - (v < 0)), -1e3, 1e3),
}


@pytest.mark.parametrize("name", CLOSED)
@given(st.data())
@drawn
def test_functions_against_pythons_math(name: str, data: Any) -> None:
    reference, low, high = CLOSED[name]
    x, host = data.draw(arrays(names=("float32",), low=low, high=high))
    got = getattr(fnp, name)(x)
    assert got.dtype == fnp.float32 and got.shape == host.shape
    for value, v in zip(np.asarray(got).ravel().tolist(), host.ravel().tolist(), strict=True):
        try:
            want = reference(v)
        except (ValueError, OverflowError):  # atanh(1), expm1(1000)
            assert math.isinf(value)
            continue
        assert math.isclose(value, want, rel_tol=1e-5, abs_tol=1e-6) or (abs(want) > 3.4e38 and math.isinf(value))


@given(st.data())
@drawn
def test_clip_and_where(data: Any) -> None:
    name = data.draw(st.sampled_from(("int32", "float32")))
    shapes = data.draw(xps.mutually_broadcastable_shapes(3, max_dims=3, max_side=3, min_side=1)).input_shapes
    x, host = data.draw(arrays(shape=np.broadcast_shapes(*shapes), names=(name,)))
    low = data.draw(st.none() | elements(DTYPES[name]) | arrays(shape=shapes[1], names=(name,)))
    high = data.draw(st.none() | elements(DTYPES[name]) | arrays(shape=shapes[2], names=(name,)))
    (lo, lo_host), (hi, hi_host) = [v if isinstance(v, tuple) else (v, v) for v in (low, high)]
    assume(lo is None or hi is None or bool(np.all(lo_host <= hi_host)))
    want = host if lo is None and hi is None else np.clip(host, lo_host, hi_host)
    same(fnp.clip(x, lo, hi), want, DTYPES[name])
    same(fnp.clip(x, min=lo, max=hi), want, DTYPES[name])
    mask = host > 0
    same(fnp.where(fnp.asarray(mask), x, -x), np.where(mask, host, -host), DTYPES[name])
    same(fnp.where(fnp.asarray(mask), x, 3), np.where(mask, host, host.dtype.type(3)), DTYPES[name])


# -- creation ----------------------------------------------------------------------------------------------------
@given(st.integers(-50, 50), st.none() | st.integers(-50, 50), st.integers(-7, 7).filter(bool))
@drawn
def test_arange(start: int, stop: int | None, step: int) -> None:
    r = range(start) if stop is None else range(start, stop, step)
    for dtype in (None, fnp.int32, fnp.float32):
        got = fnp.arange(start, dtype=dtype) if stop is None else fnp.arange(start, stop, step, dtype=dtype)
        assert got.dtype == (dtype or fnp.int32) and np.asarray(got).tolist() == list(r)
    if stop is not None:
        same(fnp.arange(start, stop=stop, step=step / 2), np.arange(start, stop, step / 2), fnp.float32)


@given(st.integers(-100, 100), st.integers(-100, 100), st.integers(0, 9), st.booleans())
@drawn
def test_linspace(start: int, stop: int, num: int, endpoint: bool) -> None:
    got = fnp.linspace(start, stop, num, endpoint=endpoint)
    same(got, np.linspace(start, stop, num, endpoint=endpoint), fnp.float32)
    if num:
        assert float(got[0]) == start
    if num > 1 and endpoint:
        assert float(got[-1]) == stop
    if not endpoint:
        np.testing.assert_allclose(np.asarray(got), np.asarray(fnp.linspace(start, stop, num + 1))[:-1], atol=1e-4)


@given(st.integers(0, 4), st.none() | st.integers(0, 4), st.integers(-6, 6), st.sampled_from([None, *DTYPES.values()]))
@drawn
def test_eye_full_zeros_ones_empty(rows: int, columns: int | None, k: int, dtype: Any) -> None:
    same(fnp.eye(rows, columns, k=k, dtype=dtype), np.eye(rows, columns, k=k, dtype=dtype or np.float32))
    for shape in (rows, (rows,), (rows, columns or 0), ()):
        for name in ("zeros", "ones", "empty"):
            got = getattr(fnp, name)(shape, dtype=dtype)
            assert got.dtype == (dtype or fnp.float32) and got.shape == np.zeros(shape).shape
            assert name == "empty" or bool(fnp.all(got == (name == "ones")))
    for value, natural in ((True, fnp.bool), (k, fnp.int32), (k / 2, fnp.float32)):
        same(fnp.full((rows, 2), value), np.full((rows, 2), value, natural))
        x = fnp.full((2,), value)
        for name in ("zeros_like", "ones_like", "empty_like"):
            assert getattr(fnp, name)(x).dtype == natural
        same(fnp.full_like(x, value), np.full(2, value, natural))


@given(arrays(shape=FILLED), st.integers(-5, 5))
@drawn
def test_triangles_and_asarray(pair: Any, k: int) -> None:
    x, host = pair
    if host.ndim >= 2:
        same(fnp.tril(x, k=k), np.tril(host, k))
        same(fnp.triu(x, k=k), np.triu(host, k))
    same(fnp.asarray(host.tolist(), dtype=x.dtype), host)
    same(fnp.asarray(fnp.unstack(x)), host)
    same(fnp.asarray(x, copy=True), host)
    assert fnp.asarray(x, copy=False) is x


def test_meshgrid() -> None:
    xs = [np.arange(n, dtype=np.float32) for n in (2, 3, 1)]
    for indexing in ("xy", "ij"):
        for got, want in zip(
            fnp.meshgrid(*map(fnp.asarray, xs), indexing=indexing), np.meshgrid(*xs, indexing=indexing), strict=True
        ):
            same(got, want)
    assert fnp.meshgrid() == [] and fnp.meshgrid(fnp.asarray(xs[0]))[0].shape == (2,)


# -- reading -----------------------------------------------------------------------------------------------------
@given(arrays(), st.data())
@drawn
def test_indexing(pair: Any, data: Any) -> None:
    x, host = pair
    key = data.draw(xps.indices(shape=host.shape, allow_newaxis=True))
    same(x[key], host[key], x.dtype)


@given(arrays(), st.data())
@drawn
def test_masks(pair: Any, data: Any) -> None:
    """Of the array's leading axes; a mask without elements selects nothing."""
    x, host = pair
    shape = data.draw(
        st.sampled_from([host.shape[:n] for n in range(host.ndim + 1)]).map(list)
        | st.lists(st.integers(0, 4), max_size=4)
    )
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=math.prod(shape), max_size=math.prod(shape))), bool)
    mask = mask.reshape(shape)
    if len(shape) > host.ndim or any(m not in (n, 0) for m, n in zip(shape, host.shape, strict=False)):
        with pytest.raises(IndexError):
            x[fnp.asarray(mask)]
        return
    got = x[fnp.asarray(mask)]
    count = mask.sum() if shape else int(mask)
    assert got.shape == (count, *host.shape[len(shape) :]) and got.dtype == x.dtype
    if all(m == n for m, n in zip(shape, host.shape, strict=False)):
        same(got, host[mask])


@given(arrays(shape=FILLED), st.data())
@drawn
def test_take(pair: Any, data: Any) -> None:
    x, host = pair
    axis = data.draw(st.integers(-host.ndim, host.ndim - 1))
    n = host.shape[axis]
    places = data.draw(st.lists(st.integers(-n, n - 1), min_size=0, max_size=5))
    indices = np.array(places, np.int32)
    same(fnp.take(x, fnp.asarray(indices), axis=axis), np.take(host, indices, axis))
    if host.ndim == 1:
        same(fnp.take(x, fnp.asarray(indices)), np.take(host, indices))
    order = np.argsort(host, axis)
    same(fnp.take_along_axis(x, fnp.asarray(order), axis=axis), np.take_along_axis(host, order, axis))


@given(arrays())
@drawn
def test_conversions(pair: Any) -> None:
    x, host = pair
    if host.ndim == 0:
        kind = {"b": bool, "i": int, "f": float}[host.dtype.kind]
        for convert in (bool, int, float, complex):
            got = convert(x)
            assert type(got) is convert and got == convert(host)
        assert type(kind(x)) is kind
        if kind is int:
            assert operator.index(x) == int(host)
    for keywords in ({}, {"copy": True}, {"max_version": (1, 0)}, {"max_version": (0, 8)}, {"dl_device": (1, 0)}):
        assert x.__dlpack__(**keywords) is not None
    assert x.__dlpack_device__() == (1, 0)
    for keywords in ({}, {"copy": True}, {"device": x.device}):
        same(fnp.from_dlpack(x, **keywords), host)
    for device in fg.devices():
        moved = x.to_device(device)
        assert moved.device == device and moved.shape == x.shape
        np.testing.assert_array_equal(np.asarray(moved), host)
