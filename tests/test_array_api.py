"""The Python array API standard (2023.12) for the dtypes that exist here: names, parameters, dtypes, special cases."""

# ruff: noqa: SIM905 (words in a line read better than a list of strings)

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from array_api_names import BINARY, METHODS, SIGNATURES, UNARY

import funcgrad as fg
import funcgrad.numpy as fnp


def find(name: str, space: Any = fnp) -> Any:
    for part in name.split("."):
        space = getattr(space, part)
    return space


def check_parameters(function: Callable[..., Any], wanted: str, skip_self: bool = False) -> None:
    """Every parameter of the standard is accepted in the way that the standard allows to give it."""
    found = list(inspect.signature(function).parameters.values())[1 if skip_self else 0 :]
    by_name = {p.name: p for p in found}
    words = wanted.split()
    positional_only = words[: words.index("/")] if "/" in words else []
    keyword_only = words[words.index("*") + 1 :] if "*" in words else []
    names = [w for w in words if w not in "/*"]
    if names and names[0].startswith("*"):
        assert found[0].kind is inspect.Parameter.VAR_POSITIONAL
        assert all(n in by_name for n in names[1:])
        return
    assert len([p for p in found if p.kind is not inspect.Parameter.KEYWORD_ONLY]) >= len(positional_only)
    assert all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in found[: len(positional_only)])
    for name in keyword_only:
        assert by_name[name].kind in (by_name[name].KEYWORD_ONLY, by_name[name].POSITIONAL_OR_KEYWORD), name
    for at, name in enumerate(names):
        if name not in positional_only and name not in keyword_only:
            assert found[at].name == name and found[at].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    # What the standard does not name must have a default.
    extra = [p for p in found[len(positional_only) :] if p.name not in names]
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    assert all(p.default is not p.empty or p.kind in variadic for p in extra), extra


@pytest.mark.parametrize("name", SIGNATURES)
def test_function(name: str) -> None:
    check_parameters(find(name), SIGNATURES[name])


@pytest.mark.parametrize("name", METHODS)
def test_method(name: str) -> None:
    check_parameters(getattr(fnp.ndarray, name), METHODS[name], skip_self=True)


# -- the namespace describes itself ------------------------------------------------------------------------------
def test_namespace(device: str) -> None:
    x = fnp.ones(2)
    assert x.__array_namespace__() is fnp and x.__array_namespace__(api_version="2023.12") is fnp
    with pytest.raises(ValueError, match="from 2021"):
        x.__array_namespace__(api_version="1999.01")
    assert fnp.__array_api_version__ in ("2023.12", "2024.12")
    assert (fnp.pi, fnp.e, fnp.inf, fnp.newaxis) == (math.pi, math.e, math.inf, None) and math.isnan(fnp.nan)


def test_info(device: str) -> None:
    info = fnp.__array_namespace_info__()
    found, default = info.dtypes(), info.default_dtypes()
    assert {"bool", "int32", "uint32", "float32"} <= set(found)
    assert all(fnp.zeros(1, dtype=d).dtype == d for d in found.values())
    assert default["real floating"] == fnp.zeros(1).dtype == fnp.asarray(1.0).dtype
    assert default["integral"] == fnp.arange(2).dtype == fnp.asarray(1).dtype
    assert default["indexing"] == fnp.argmax(fnp.zeros(2)).dtype
    assert info.default_device() in info.devices() and fnp.zeros(1).device == info.default_device()
    assert {"boolean indexing", "data-dependent shapes", "max dimensions"} <= set(info.capabilities())
    floats = info.dtypes(kind="real floating")
    assert "float32" in floats and "int32" not in floats and not info.dtypes(kind="complex floating")
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "numeric", ("bool", "integral")):
        assert all(fnp.isdtype(d, kind) for d in info.dtypes(kind=kind).values())
    assert all(info.dtypes(device=d) for d in info.devices())


def test_finfo_and_iinfo() -> None:
    f, i = fnp.finfo(fnp.float32), fnp.iinfo(fnp.int32)
    assert (f.bits, float(f.eps), float(f.smallest_normal)) == (32, 2.0**-23, 2.0**-126)
    assert float(f.max) == -float(f.min) == (2 - 2.0**-23) * 2.0**127 and np.dtype(f.dtype) == np.float32
    assert (i.bits, i.min, i.max, np.dtype(i.dtype)) == (32, -(2**31), 2**31 - 1, np.int32)


def test_array_object(device: str) -> None:
    x = fnp.reshape(fnp.arange(6), (2, 3))
    assert (x.dtype, x.ndim, x.shape, x.size) == (np.int32, 2, (2, 3), 6)
    np.testing.assert_array_equal(x.mT, [[0, 3], [1, 4], [2, 5]])
    np.testing.assert_array_equal(x.T, x.mT)
    assert x.to_device(x.device).device == x.device
    assert (bool(fnp.asarray(2)), int(fnp.asarray(2.5)), float(fnp.asarray(True))) == (True, 2, 1.0)
    assert complex(fnp.asarray(1.5)) == 1.5 and list(range(9))[fnp.asarray(3)] == 3
    for conversion in (bool, int, float):
        with pytest.raises((TypeError, ValueError)):
            conversion(x)
    with pytest.raises(TypeError):
        fnp.asarray(1.5).__index__()
    np.testing.assert_array_equal(np.from_dlpack(x), x)
    np.testing.assert_array_equal(fnp.from_dlpack(np.arange(3, dtype=np.int32)), [0, 1, 2])
    with pytest.raises(BufferError, match="copy=False"):
        fnp.astype(x, "bfloat16").__dlpack__(copy=False)


# -- dtypes ------------------------------------------------------------------------------------------------------
DTYPES = {"bool": fnp.bool, "int32": fnp.int32, "uint32": fnp.uint32, "float32": fnp.float32}
NUMBERS = ("int32", "uint32", "float32")
BOOL_RESULT = {"equal", "greater", "greater_equal", "less", "less_equal", "not_equal", "isfinite", "isinf", "isnan"}
BOOL_RESULT |= {"logical_and", "logical_or", "logical_xor", "logical_not", "signbit"}
TAKES = {
    **dict.fromkeys("abs floor_divide greater greater_equal less less_equal maximum minimum".split(), NUMBERS),
    **dict.fromkeys("add multiply negative positive pow remainder sign square subtract".split(), NUMBERS),
    **dict.fromkeys("ceil floor round trunc isfinite isinf isnan".split(), NUMBERS),
    **dict.fromkeys(("equal", "not_equal"), ("bool", *NUMBERS)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), ("bool",)),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"), ("bool", "int32", "uint32")),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), ("int32", "uint32")),
}


def sample(dtype: str, seed: int, shape: tuple[int, ...] = (3, 4)) -> Any:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    values = rng.integers(1, 7, shape).astype(dtype)
    return values / np.float32(8) if dtype == "float32" else values


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_elementwise_dtypes(name: str, device: str) -> None:
    """Results have the operands' dtype, or are bool; a Python scalar takes the array's; broadcasting is numpy's."""
    function, count = getattr(fnp, name), len(SIGNATURES[name].split()) - 1
    for dtype in TAKES.get(name, ("float32",)):
        values = [sample(dtype, 0), sample(dtype, 1, (4,))][:count]
        if name == "acosh":
            values = [v + 1 for v in values]
        result = function(*map(fnp.asarray, values))
        same = np.bool_ if name in BOOL_RESULT else values[0].dtype
        if dtype != "float32" and name in ("ceil", "floor", "round", "trunc"):
            assert result.dtype == values[0].dtype
        assert result.dtype == same and result.shape == (3, 4)
        reference = getattr(np, {"pow": "power"}.get(name, name))
        with np.errstate(all="ignore"):
            want = reference(*[v.astype(np.float64) if dtype == "float32" else v for v in values])
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)
        if count == 2:
            scalar = values[1].ravel()[0].item()
            assert function(fnp.asarray(values[0]), scalar).dtype == same
            assert function(scalar, fnp.asarray(values[0])).dtype == same


@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("second", DTYPES)
def test_promotion(first: str, second: str) -> None:
    """The standard fixes pairs of one dtype and of one kind; result_type says what every operation does."""
    found = fnp.result_type(DTYPES[first], DTYPES[second])
    assert found == fnp.result_type(DTYPES[second], DTYPES[first])
    if first == second:
        assert found == DTYPES[first]
    x, y = fnp.ones(2, dtype=DTYPES[first]), fnp.ones(2, dtype=DTYPES[second])
    assert (
        fnp.result_type(x, y) == fnp.where(fnp.asarray([True, False]), x, y).dtype == fnp.concat([x, y]).dtype == found
    )
    assert fnp.result_type(x, DTYPES[second]) == found
    assert fnp.can_cast(DTYPES[first], found) and fnp.can_cast(DTYPES[second], found)
    assert fnp.astype(x, DTYPES[second]).dtype == DTYPES[second]


@pytest.mark.parametrize("dtype", DTYPES)
def test_creation_dtypes(dtype: str, device: str) -> None:
    d = DTYPES[dtype]
    made = [fnp.zeros(2, dtype=d), fnp.ones((2,), dtype=d), fnp.empty(2, dtype=d), fnp.full(2, 1, dtype=d)]
    made += [fnp.eye(2, 3, k=1, dtype=d), fnp.asarray([0, 1], dtype=d), fnp.zeros_like(made[0])]
    made += [fnp.ones_like(made[0]), fnp.full_like(made[0], 1), fnp.empty_like(made[0], dtype=d)]
    if dtype != "bool":
        made += [fnp.arange(1, 5, 2, dtype=d)]
    if dtype == "float32":
        made += [fnp.linspace(0, 1, 3, dtype=d)]
    assert all(x.dtype == d for x in made)
    assert all(x.device == fnp.zeros(1).device for x in made)


@pytest.mark.parametrize("name", ["sum", "prod", "cumulative_sum", "cumulative_prod", "linalg.trace"])
def test_accumulation_dtypes(name: str, device: str) -> None:
    """Sums of integers have the default integer's width; of floats the float's."""
    function = find(name)
    shape = (2, 2) if name == "linalg.trace" else (4,)
    for dtype in ("int32", "uint32", "float32"):
        x = fnp.ones(shape, dtype=DTYPES[dtype])
        assert function(x).dtype == DTYPES[dtype]
        assert function(x, dtype=fnp.float32).dtype == np.float32


@pytest.mark.parametrize(
    "name", ["argmax", "argmin", "argsort", "searchsorted", "nonzero", "count_nonzero", "unique_all"]
)
def test_index_dtypes(name: str) -> None:
    x = fnp.asarray([3.0, 1.0, 2.0])
    out = getattr(fnp, name)(x, x) if name == "searchsorted" else getattr(fnp, name)(x)
    found = {"nonzero": lambda: out[0], "unique_all": lambda: out.inverse_indices}.get(name, lambda: out)()
    assert found.dtype == fnp.__array_namespace_info__().default_dtypes()["indexing"]


# -- reductions, sorting, sets -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "count_nonzero"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (), (1, -1, 0)])
def test_reductions(name: str, axis: Any, device: str) -> None:
    values = sample("float32", 0, (2, 3, 4)) - np.float32(0.25)
    for keep in (False, True):
        got = getattr(fnp, name)(fnp.asarray(values), axis=axis, keepdims=keep)
        want = getattr(np, name)(values, axis=axis, keepdims=keep)
        assert got.shape == want.shape and (got.dtype == want.dtype or name == "count_nonzero")
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_reductions_of_nothing(device: str) -> None:
    empty = fnp.zeros((0, 3))
    assert fnp.sum(empty).item() == 0 and fnp.prod(empty).item() == 1
    assert fnp.all(empty).item() is True and fnp.any(empty).item() is False
    np.testing.assert_array_equal(fnp.sum(empty, axis=0), [0, 0, 0])
    for name in ("max", "min", "argmax"):
        with pytest.raises(ValueError):
            getattr(fnp, name)(empty)
    for name in ("max", "min", "sum", "mean", "prod", "std", "var"):
        assert math.isnan(getattr(fnp, name)(fnp.asarray([1.0, math.nan])).item())


@pytest.mark.parametrize("correction", [0, 1, 0.5, 2])
def test_correction(correction: float, device: str) -> None:
    values = sample("float32", 0, (5, 6))
    centred = values.astype(np.float64) - values.astype(np.float64).mean(0)
    want = (centred**2).sum(0) / (5 - correction)
    np.testing.assert_allclose(fnp.var(fnp.asarray(values), axis=0, correction=correction), want, rtol=1e-5)
    np.testing.assert_allclose(fnp.std(fnp.asarray(values), axis=0, correction=correction), np.sqrt(want), rtol=1e-5)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_sorting(descending: bool, dtype: str, device: str) -> None:
    """A stable sort keeps equal elements in their order, descending too."""
    values = sample(dtype, 3, (4, 9))
    x = fnp.asarray(values)
    order = np.argsort(-values.astype(np.float64) if descending else values, axis=1, kind="stable")
    np.testing.assert_array_equal(fnp.argsort(x, axis=1, descending=descending, stable=True), order)
    np.testing.assert_array_equal(fnp.sort(x, axis=1, descending=descending), np.take_along_axis(values, order, 1))
    np.testing.assert_array_equal(fnp.sort(x, axis=0), np.sort(values, axis=0))


def test_searchsorted() -> None:
    edges, points = np.array([3.0, 1.0, 2.0, 2.0]), np.array([[0.5, 2.0], [2.5, 9.0]])
    order = np.argsort(edges)
    for side in ("left", "right"):
        got = fnp.searchsorted(fnp.asarray(edges), fnp.asarray(points), side=side, sorter=fnp.asarray(order))
        np.testing.assert_array_equal(got, np.searchsorted(edges, points, side=side, sorter=order))


def test_sets(device: str) -> None:
    """Every NaN is a value of its own, and 0 equals -0."""
    x = fnp.asarray([[2.0, math.nan, 1.0], [2.0, math.nan, -0.0]])
    values, indices, inverse, counts = fnp.unique_all(x)
    assert values.shape == indices.shape == counts.shape == (5,) and inverse.shape == x.shape
    np.testing.assert_array_equal(np.sort(np.asarray(values)), [0, 1, 2, math.nan, math.nan])
    np.testing.assert_array_equal(np.asarray(x).ravel()[np.asarray(indices)], values)
    np.testing.assert_array_equal(np.asarray(values)[np.asarray(inverse)], x)
    assert int(np.asarray(counts).sum()) == 6
    assert fnp.unique_values(fnp.asarray([0.0, -0.0])).shape == (1,)
    assert fnp.unique_counts(x).counts.shape == (5,) and fnp.unique_inverse(x).values.shape == (5,)


def test_cumulative_sum(device: str) -> None:
    values = sample("int32", 0)
    x = fnp.asarray(values)
    got = fnp.cumulative_sum(x, axis=1, include_initial=True)
    np.testing.assert_array_equal(got, np.concatenate([np.zeros((3, 1)), np.cumsum(values, 1)], 1))
    np.testing.assert_array_equal(fnp.cumulative_sum(x[0]), np.cumsum(values[0]))
    with pytest.raises(ValueError):
        fnp.cumulative_sum(x)  # an axis is required beyond one dimension


# -- special cases that the standard lists -----------------------------------------------------------------------
INF, NAN = math.inf, math.nan
SPECIAL: list[tuple[str, tuple[float, ...], float]] = [
    ("abs", (-0.0,), 0.0),
    ("acos", (2.0,), NAN),
    ("acosh", (0.5,), NAN),
    ("asin", (-0.0,), -0.0),
    ("atan", (INF,), math.pi / 2),
    ("atan2", (0.0, -0.0), math.pi),
    ("atan2", (-0.0, -0.0), -math.pi),
    ("atan2", (-0.0, 1.0), -0.0),
    ("atan2", (INF, -INF), 3 * math.pi / 4),
    ("atanh", (1.0,), INF),
    ("ceil", (-0.5,), -0.0),
    ("copysign", (1.0, -0.0), -1.0),
    ("cos", (INF,), NAN),
    ("cosh", (-INF,), INF),
    ("divide", (0.0, 0.0), NAN),
    ("divide", (1.0, -0.0), -INF),
    ("exp", (-INF,), 0.0),
    ("expm1", (-0.0,), -0.0),
    ("floor_divide", (1.0, INF), 0.0),
    ("floor_divide", (-1.0, INF), -1.0),
    ("floor_divide", (INF, 1.0), NAN),
    ("hypot", (INF, NAN), INF),
    ("log", (0.0,), -INF),
    ("log1p", (-1.0,), -INF),
    ("log1p", (-0.0,), -0.0),
    ("log2", (-1.0,), NAN),
    ("logaddexp", (-INF, -INF), -INF),
    ("maximum", (NAN, 1.0), NAN),
    ("minimum", (1.0, NAN), NAN),
    ("pow", (NAN, 0.0), 1.0),
    ("pow", (1.0, NAN), 1.0),
    ("pow", (-1.0, INF), 1.0),
    ("pow", (-0.0, -3.0), -INF),
    ("pow", (-INF, 3.0), -INF),
    ("pow", (-2.0, 0.5), NAN),
    ("remainder", (-0.0, 1.0), 0.0),
    ("remainder", (1.0, -INF), -INF),
    ("remainder", (-1.0, INF), INF),
    ("remainder", (1.0, 0.0), NAN),
    ("round", (2.5,), 2.0),
    ("round", (-0.4,), -0.0),
    ("sign", (NAN,), NAN),
    ("sinh", (-INF,), -INF),
    ("sqrt", (-0.0,), -0.0),
    ("sqrt", (-1.0,), NAN),
    ("tanh", (INF,), 1.0),
    ("trunc", (-0.9,), -0.0),
]


@pytest.mark.parametrize(("name", "given", "want"), SPECIAL, ids=lambda v: str(v))
def test_special_case(name: str, given: tuple[float, ...], want: float, device: str) -> None:
    args = [fnp.asarray([v] * 9) for v in given]
    for function in (getattr(fnp, name), fg.jit(getattr(fnp, name))):
        got = np.asarray(function(*args))
        np.testing.assert_allclose(got, want, rtol=1e-6)
        if want == 0:
            assert np.all(np.signbit(got) == np.signbit(want))


GRID = np.array([0.0, -0.0, 0.5, -0.5, 1, -1, 2, -2, 3, -3, INF, -INF, NAN], np.float32)
# The standard leaves open which zero these give.
ANY_ZERO = ("maximum", "minimum", "sign", "floor_divide")


@pytest.mark.parametrize("name", [n for n in [*UNARY, *BINARY] if "float32" in TAKES.get(n, ("float32",))])
def test_every_pair_of_special_values(name: str, device: str) -> None:
    """numpy follows the standard's lists of special cases; signs of zeros included."""
    grids = np.meshgrid(*[GRID] * (len(SIGNATURES[name].split()) - 1))
    with np.errstate(all="ignore"):
        want = getattr(np, {"pow": "power"}.get(name, name))(*grids)
    args = [fnp.asarray(g, dtype=fnp.float32) for g in grids]
    for function in (getattr(fnp, name), fg.jit(getattr(fnp, name))):
        got = np.asarray(function(*args))
        np.testing.assert_allclose(got, want, rtol=1e-6)
        if got.dtype.kind == "f" and name not in ANY_ZERO:
            zero = want == 0
            np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


# -- indexing and linear algebra ---------------------------------------------------------------------------------
def test_indexing(device: str) -> None:
    values = np.arange(60).reshape(3, 4, 5)
    x = fnp.asarray(values)
    for key in [
        0,
        -1,
        slice(None, None, -1),
        slice(1, 9),
        ...,
        (..., 0),
        (1, slice(3, 0, -2)),
        (None, 0, ..., None),
        (),
    ]:
        np.testing.assert_array_equal(x[key], values[key])
    mask = values % 3 == 0
    np.testing.assert_array_equal(x[fnp.asarray(mask)], values[mask])
    np.testing.assert_array_equal(x[fnp.asarray([0, 2]), 1], values[[0, 2], 1])
    for bad in (3, (0, 0, 0, 0), (..., ...)):
        with pytest.raises(IndexError):
            x[bad]
    with pytest.raises(TypeError, match="at"):
        x[0] = 1
    x += 1
    np.testing.assert_array_equal(x, values + 1)


def test_linear_algebra_results_are_named(device: str) -> None:
    a = fnp.asarray([[2.0, 1.0], [1.0, 3.0]])
    assert fnp.linalg.eigh(a)._fields == ("eigenvalues", "eigenvectors")
    assert fnp.linalg.qr(a)._fields == ("Q", "R")
    assert fnp.linalg.slogdet(a)._fields == ("sign", "logabsdet")
    assert fnp.linalg.svd(a)._fields == ("U", "S", "Vh")
    np.testing.assert_allclose(fnp.linalg.cholesky(a, upper=True), np.linalg.cholesky(np.asarray(a)).T, rtol=1e-6)
    np.testing.assert_allclose(fnp.linalg.matrix_norm(a, ord="nuc"), np.linalg.norm(np.asarray(a), "nuc"), rtol=1e-6)
    np.testing.assert_allclose(fnp.linalg.vector_norm(a, axis=(0, 1), ord=3), (8 + 1 + 1 + 27) ** (1 / 3), rtol=1e-6)
    np.testing.assert_allclose(
        fnp.linalg.cross(a[0, :1] * fnp.asarray([1.0, 0, 0]), fnp.asarray([0.0, 1, 0])), [0, 0, 2]
    )
