"""Every function of the numpy surface against numpy: values, jit, and derivatives by central differences."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from surface import BY_VALUE, SMOOTH, STEPS, Entry, entries, evaluate, names, operands, parts

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import dtypes

ALL = entries(SMOOTH) + entries(STEPS)


def every(table: list[tuple[str, Entry]]) -> Any:
    return pytest.mark.parametrize("entry", [e for _, e in table], ids=[i for i, _ in table])


def by_numpy(expression: str, values: dict[str, Any]) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return np.asarray(evaluate(expression, np, values))


def chosen(expression: str, dtype: Any) -> dict[str, Any]:
    """The operands that an expression names, floats in a dtype."""
    found = {n: operands()[n] for n in names(expression)}
    return {n: v.astype(dtype) if v.dtype == np.float64 else v for n, v in found.items()}


def on_device(values: dict[str, Any]) -> dict[str, Any]:
    return {n: fnp.asarray(v) for n, v in values.items()}


def close(got: Any, want: Any, tolerance: float, counts: bool = False) -> None:
    got = np.asarray(got)
    assert got.shape == want.shape
    if want.dtype.kind == "f":
        scale = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)
    else:
        assert got.dtype.kind == want.dtype.kind or counts
        np.testing.assert_array_equal(got, want)


@every(ALL)
def test_values_in_float64(entry: Entry, reference: None) -> None:
    ours, theirs = parts(entry)
    values = chosen(ours, np.float64)
    want = by_numpy(theirs, {**operands(), **values})
    close(evaluate(ours, fnp, on_device(values)), want, 1e-9, "histogram" in ours)  # JAX counts in floats


@pytest.mark.ggml
@every(ALL)
def test_values_in_float32(entry: Entry) -> None:
    ours, theirs = parts(entry)
    values = chosen(ours, np.float32)
    wide = {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in values.items()}
    want = by_numpy(theirs, {**operands(), **wide})
    with fg.default_device("cpu"):
        got = evaluate(ours, fnp, on_device(values))
        assert dtypes.as_dtype(got.dtype) == got.dtype and got.dtype != np.float64
        close(got, want, 3e-5, "histogram" in ours)


@pytest.mark.ggml
@every(ALL)
def test_jit_gives_the_same(entry: Entry) -> None:
    ours, _ = parts(entry)
    values = chosen(ours, np.float32)
    if not values or any(word in ours for word in BY_VALUE):
        pytest.skip("no operand, or a shape decided by values")
    with fg.default_device("cpu"):
        given = on_device(values)
        eager = np.asarray(evaluate(ours, fnp, given))
        jitted = fg.jit(lambda q: evaluate(ours, fnp, q))(given)
        assert jitted.dtype == (eager.dtype if isinstance(eager, np.ndarray) else None)
        close(jitted, eager, 1e-5)


@pytest.mark.ggml
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@every(ALL)
def test_halves(entry: Entry, dtype: str) -> None:
    """Everything runs in half precision, to its few digits; the reference starts from the rounded operands."""
    ours, theirs = parts(entry)
    values = chosen(ours, np.float32)
    with fg.default_device("cpu"):
        given = {n: fnp.asarray(v, dtype) if v.dtype == np.float32 else fnp.asarray(v) for n, v in values.items()}
        got = np.asarray(evaluate(ours, fnp, given))
        rounded = {
            n: np.asarray(given[n]).astype(np.float64) if v.dtype == np.float32 else v for n, v in values.items()
        }
    want = by_numpy(theirs, {**operands(), **rounded})
    assert got.shape == want.shape
    if want.dtype.kind == "f":
        finite = np.isfinite(want)
        scale = np.max(np.abs(want[finite]), initial=1.0)
        error = np.abs(got.astype(np.float64)[finite] - want[finite])
        assert np.max(error, initial=0.0) <= scale * (0.02 if dtype == "float16" else 0.15)


@every(entries(SMOOTH))
def test_gradient_is_the_central_difference(entry: Entry, reference: None) -> None:
    ours, theirs = parts(entry)
    values = chosen(ours, np.float64)
    fixed = {n: v for n, v in values.items() if v.dtype != np.float64}
    moving = {n: v for n, v in values.items() if v.dtype == np.float64}
    want_value = by_numpy(theirs, {**operands(), **values})
    weights = np.random.default_rng(1).normal(size=want_value.shape)

    def loss(q: dict[str, Any]) -> Any:
        return (evaluate(ours, fnp, {**on_device(fixed), **q}) * weights).sum()

    grads = fg.grad(loss)(moving)
    for name, v in moving.items():
        slopes = np.zeros(v.size)
        for at in range(v.size):
            ends = []
            for h in (2e-5, -2e-5):
                moved = v.copy()
                moved.reshape(-1)[at] += h
                ends.append(np.sum(weights * by_numpy(theirs, {**operands(), **values, name: moved})))
            slopes[at] = (ends[0] - ends[1]) / 4e-5
        got = np.asarray(grads[name])
        if name == "n":
            got, slopes = np.where(np.isnan(v), 0, got), np.where(np.isnan(v), 0, slopes.reshape(v.shape)).reshape(-1)
        close(got, slopes.reshape(v.shape), 2e-6)
