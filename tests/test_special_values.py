"""NaN, infinities, zeros of both signs and subnormal numbers through every primitive, as numpy has them.

The primitives' references are numpy's functions; on other devices the same inputs must give the same NaNs, the same
infinities and the same finite values.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from test_primitives import CASES, every

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import dtypes
from funcgrad.ir import Graph
from funcgrad.passes.reverse import vjp_graph
from funcgrad.primitive import Pointwise
from funcgrad.runtime import device as devices
from funcgrad.testing.cases import Case, record, run

SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 1.0, -2.0], np.float32)
# LAPACK on the host gives NaN where it likes.
HOST = {"cofactors", "det", "slogdet", "cholesky", "pinv", "qr", "svd", "eigh", "solve", "triangular_solve"}
FLOATS = [c for c in CASES if any(a.dtype in dtypes.FLOATS and a.size for a in c.avals) and c.prim.name not in HOST]


def special_operands(case: Case, share: float, seed: int) -> list[np.ndarray[Any, Any]]:
    """An example's operands with special values among the floats."""
    rng = np.random.default_rng(seed)
    out = []
    for v in case.values():
        if v.dtype in dtypes.FLOATS:
            wide = dtypes.widen(v)
            where = rng.random(wide.shape) < share
            v = dtypes.narrow(np.where(where, rng.choice(SPECIAL, wide.shape), wide), v.dtype)
        out.append(v)
    return out


def same(got: Any, want: Any, dtype: Any) -> None:
    got, want = dtypes.widen(np.asarray(got)), dtypes.widen(np.asarray(want))
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    tolerance = {dtypes.float32: 1e-5, dtypes.float16: 2e-3, dtypes.bfloat16: 2e-2}[dtype]
    scale = max(1.0, np.abs(want[np.isfinite(want)]).max(initial=0.0))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def compare_on_cpu(graph: Graph, values: Any) -> None:
    cpu = devices.get("cpu")
    want = run(graph, values)
    got = cpu.compile(graph).run([cpu.put(v) for v in values])
    for g, w, a in zip(got, want, graph.out_avals, strict=True):
        same(cpu.get(g, a), w, a.dtype)


@pytest.mark.ggml
@pytest.mark.parametrize("share", [0.3, 1.0])
@every(FLOATS)
def test_devices_agree_on_special_values(case: Case, share: float) -> None:
    values = special_operands(case, share, 1)
    compare_on_cpu(record(case.prim, values), values)


@pytest.mark.ggml
@every([c for c in FLOATS if c.smooth and isinstance(c.prim, Pointwise)])
def test_devices_agree_on_derivatives_at_special_values(case: Case) -> None:
    values = special_operands(case, 0.5, 2)
    graph = record(case.prim, values)
    backward = vjp_graph(graph, [v.dtype in dtypes.FLOATS for v in values])
    rng = np.random.default_rng(3)
    cts = [rng.choice(np.float32([0.0, 1.0, -0.5]), a.shape) for a in graph.out_avals]
    compare_on_cpu(backward, [*values, *cts])


# -- against numpy itself ----------------------------------------------------------------------------------------
UNARY = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "sqrt",
    "cbrt",
    "square",
    "sin",
    "cos",
    "tan",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "sign",
    "abs",
    "negative",
    "reciprocal",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "arctan2",
    "power",
    "fmod",
    "copysign",
    "hypot",
    "logaddexp",
    "nextafter",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
]


def as_numpy(got: Any, want: np.ndarray[Any, Any], signed: bool = True) -> None:
    got = np.asarray(got)
    if want.dtype.kind == "b":
        np.testing.assert_array_equal(got, want)
        return
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-44)
    zero = (want == 0) & signed
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number_are_numpys(name: str, jitted: bool, device: str) -> None:
    f = getattr(fnp, name)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(SPECIAL)
    as_numpy((fg.jit(f) if jitted else f)(SPECIAL), want)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers_are_numpys(name: str, jitted: bool, device: str) -> None:
    f = getattr(fnp, name)
    x, y = np.array(list(itertools.product(SPECIAL, SPECIAL)), np.float32).T.copy()
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x, y)
    # which of two zeros is the larger depends on numpy's own build
    as_numpy((fg.jit(f) if jitted else f)(x, y), want, name not in ("maximum", "minimum", "fmax", "fmin"))


@pytest.mark.parametrize(
    "name", ["sum", "prod", "max", "min", "argmax", "argmin", "mean", "cumsum", "sort", "argsort", "any", "all"]
)
def test_reductions_are_numpys(name: str, device: str) -> None:
    rows = [
        [1, np.nan, 3],
        [np.inf, 1, 2],
        [np.inf, -np.inf, 0],
        [-np.inf, -np.inf, -np.inf],
        [-0.0, 0.0, -0.0],
        [np.nan, np.nan, np.nan],
    ]
    x = np.float32(rows)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x, axis=1)
    for f in (getattr(fnp, name), fg.jit(lambda v, axis: getattr(fnp, name)(v, axis), static_argnums=1)):
        np.testing.assert_allclose(np.asarray(f(x, 1)), want, rtol=1e-6)


def test_products_carry_nan_and_infinity(device: str) -> None:
    x = np.float32([[1, 2], [np.nan, 0], [np.inf, 1], [np.inf, 0]])
    y = np.float32([[1, 0], [0, 1]])
    with np.errstate(all="ignore"):
        want = x @ y
    for f in (fnp.matmul, fg.jit(fnp.matmul)):
        np.testing.assert_array_equal(np.asarray(f(x, y)), want)


@pytest.mark.parametrize("case", [c for c in CASES if c.prim.name in HOST and c.args], ids=lambda c: c.id)
def test_matrices_with_nan_give_no_exception(case: Case, device: str) -> None:
    dev = devices.get(device)
    values = special_operands(case, 1.0, 4)
    outs = dev.run_primitive(case.prim, [dev.put(v) for v in values], case.avals, case.prim.infer_all(*case.avals))
    assert [np.shape(dev.get(o, a)) for o, a in zip(outs, case.prim.infer_all(*case.avals), strict=True)]
