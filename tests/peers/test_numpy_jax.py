"""The numpy surface through JAX: values, dtypes, first and second derivatives, vmap.

Each must lie within four times the error of JAX's own float32 (or of a rounding of the largest number), measured
against JAX in float64.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp

sys.path.insert(0, str(Path(__file__).parents[1]))
from surface import BY_VALUE, SMOOTH, STEPS, Entry, entries, evaluate, names, operands, parts

EPS = float(np.finfo(np.float32).eps)
# What JAX does differently on purpose, or lacks.
ONLY_OURS = ("safe_norm", "logsumexp", "polyfit(r, v, 1, w=w)", "astype(np.float64)")


def chosen(expression: str, seed: int = 0) -> dict[str, Any]:
    """The operands that an expression names, in float32."""
    values = operands(seed)
    found = {n: values[n] for n in names(expression)}
    return {n: v.astype(np.float32) if v.dtype == np.float64 else v for n, v in found.items()}


def wide(values: dict[str, Any]) -> dict[str, Any]:
    return {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in values.items()}


def in_float64(f: Any, *args: Any) -> Any:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, f(*args))


def within(got: Any, jax32: Any, reference: Any) -> None:
    got, jax32 = np.asarray(got), np.asarray(jax32)
    assert got.shape == reference.shape
    if reference.dtype.kind != "f":
        np.testing.assert_array_equal(got, reference)
        return
    finite = np.isfinite(reference)
    scale = max(np.max(np.abs(reference[finite]), initial=0.0), 1e-3)
    theirs = np.max(np.abs(jax32[finite] - reference[finite]), initial=0.0)
    np.testing.assert_allclose(got, reference, rtol=0, atol=4 * max(float(theirs), EPS * float(scale)))


def entry_cases(table: dict[str, list[Entry]], every: int = 1) -> Any:
    """The entries that JAX has, or every third of them where compiling takes JAX long."""
    found = [(i, e) for i, e in entries(table) if not any(word in parts(e)[0] for word in ONLY_OURS)][::every]
    return pytest.mark.parametrize("entry", [e for _, e in found], ids=[i for i, _ in found])


def fast(f: Any, expression: str) -> Any:
    """Compiled once, where it can be: JAX compiles every operation by itself otherwise."""
    return f if any(word in expression for word in BY_VALUE) else jax.jit(f)


def run_jax(expression: str, values: dict[str, Any]) -> Any:
    given = {n: jnp.asarray(v) for n, v in values.items()}
    try:
        return fast(lambda q: evaluate(expression, jnp, q), expression)(given)
    except (NotImplementedError, AttributeError, TypeError) as e:
        pytest.skip(f"not in JAX: {str(e)[:60]}")


@entry_cases({**{f"smooth {k}": v for k, v in SMOOTH.items()}, **{f"steps {k}": v for k, v in STEPS.items()}})
def test_values_and_dtypes(entry: Entry) -> None:
    expression = parts(entry)[0]
    values = chosen(expression)
    theirs = run_jax(expression, values)
    reference = in_float64(run_jax, expression, wide(values))
    ours = evaluate(expression, fnp, {n: fnp.asarray(v) for n, v in values.items()})
    assert np.dtype(ours.dtype) == np.dtype(theirs.dtype)
    within(ours, theirs, reference)


def losses(expression: str, values: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The weighted sum of the results as a function of the float operands, for both libraries."""
    if "np.unique" in expression:
        pytest.skip("JAX computes it in numpy: its gradient is 0")
    moving = {n: v for n, v in values.items() if v.dtype.kind == "f" and n != "n"}
    fixed = {n: v for n, v in values.items() if n not in moving}
    shape = np.shape(run_jax(expression, values))
    weights = np.random.default_rng(1).normal(size=shape).astype(np.float32)

    def loss(library: Any, q: dict[str, Any]) -> Any:
        full = {**{n: library.asarray(v) for n, v in fixed.items()}, **q}
        return library.sum(evaluate(expression, library, full) * weights)

    return (lambda q: loss(fnp, q)), (lambda q: loss(jnp, q)), moving


@entry_cases(SMOOTH)
def test_gradients(entry: Entry) -> None:
    expression = parts(entry)[0]
    ours, theirs, moving = losses(expression, chosen(expression))
    if not moving:
        pytest.skip("no float operand")
    want = fast(jax.grad(theirs), expression)({n: jnp.asarray(v) for n, v in moving.items()})
    with jax.enable_x64(True):
        reference = fast(jax.grad(theirs), expression)(
            {n: jnp.asarray(v.astype(np.float64)) for n, v in moving.items()}
        )
    got = (fg.grad(ours) if fast(ours, expression) is ours else fg.jit(fg.grad(ours)))(moving)
    for n in moving:
        within(got[n], want[n], np.asarray(reference[n]))


@entry_cases(SMOOTH, 3)
def test_second_derivatives(entry: Entry) -> None:
    """The Hessian times a vector, forward over reverse."""
    expression = parts(entry)[0]
    ours, theirs, moving = losses(expression, chosen(expression))
    if not moving:
        pytest.skip("no float operand")
    rng = np.random.default_rng(2)
    t = {n: rng.normal(size=v.shape).astype(np.float32) for n, v in moving.items()}

    by_jax = fast(lambda q, s: jax.jvp(jax.grad(theirs), (q,), (s,))[1], expression)

    want = by_jax({n: jnp.asarray(v) for n, v in moving.items()}, {n: jnp.asarray(v) for n, v in t.items()})
    with jax.enable_x64(True):
        args = [{n: jnp.asarray(v.astype(np.float64)) for n, v in d.items()} for d in (moving, t)]
        reference = by_jax(*args)
    got = fg.jvp(fg.grad(ours), (moving,), (t,))[1]
    for n in moving:
        within(got[n], want[n], np.asarray(reference[n]))


@entry_cases(SMOOTH, 3)
def test_vmap(entry: Entry) -> None:
    """Mapped over one operand, the others shared."""
    expression = parts(entry)[0]
    if any(word in expression for word in BY_VALUE):
        pytest.skip("a shape decided by values")
    values = chosen(expression)
    _, _, moving = losses(expression, values)
    if not moving:
        pytest.skip("no float operand")
    for name in moving:
        rows = np.stack([chosen(expression, seed)[name] for seed in range(3)])

        def run(row: Any, name: str = name) -> Any:
            return evaluate(expression, fnp, {**{n: fnp.asarray(v) for n, v in values.items()}, name: row})

        want = np.stack([np.asarray(run_jax(expression, {**values, name: r})) for r in rows])
        reference = np.stack([in_float64(run_jax, expression, wide({**values, name: r})) for r in rows])
        within(fg.vmap(run)(rows), want, reference)
