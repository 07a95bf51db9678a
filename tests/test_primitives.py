"""Every primitive under every one of its examples: types, derivatives to second order, vmap, errors.

The truth is numpy in float64: central differences for derivatives, a loop for vmap.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import funcgrad
import funcgrad.prims
from funcgrad import dtypes
from funcgrad.primitive import REGISTRY, Primitive
from funcgrad.prims import operations as ops
from funcgrad.runtime import device as devices
from funcgrad.testing import check_primitive, primitives
from funcgrad.testing.cases import Case, cases_of

for found in pkgutil.iter_modules(funcgrad.prims.__path__):
    importlib.import_module(f"funcgrad.prims.{found.name}")

PRIMITIVES = {n: c for n, c in REGISTRY.items() if c.__module__.startswith("funcgrad.prims.")}
NO_EXAMPLES = sorted(n for n, c in PRIMITIVES.items() if not c.examples)
if NO_EXAMPLES:
    raise pytest.UsageError(f"primitives without examples: {', '.join(NO_EXAMPLES)}")


CASES = [c for _, cls in sorted(PRIMITIVES.items()) for c in cases_of(cls)]
SMOOTH = [c for c in CASES if c.differentiable]
FLOAT = [c for c in CASES if c.has_floats]


def every(cases: Sequence[Case]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[c.id for c in cases])


# -- types, values, derivatives, vmap ----------------------------------------------------------------------------
@every(CASES)
def test_infer_is_what_eval_gives(case: Case) -> None:
    primitives.check_types(case)


@every(SMOOTH)
def test_float32_agrees_with_float64(case: Case) -> None:
    primitives.check_precision(case)


@every(SMOOTH)
def test_jvp_is_the_central_difference(case: Case) -> None:
    primitives.check_jvp(case)


@every(SMOOTH)
def test_vjp_is_the_transpose_of_jvp(case: Case) -> None:
    primitives.check_vjp(case)


@every(FLOAT)
def test_cotangents_have_the_operands_types(case: Case) -> None:
    primitives.check_cotangent_types(case)


@every(SMOOTH)
def test_second_order_in_four_combinations(case: Case) -> None:
    primitives.check_second_order(case)


@every([c for c in CASES if c.args])
@pytest.mark.parametrize("size", [3, 1])
def test_vmap_is_a_loop(case: Case, size: int) -> None:
    primitives.check_vmap(case, size)


@every(SMOOTH)
def test_vmap_of_derivatives_is_a_loop(case: Case) -> None:
    primitives.check_vmap_of_derivatives(case)


# -- devices -----------------------------------------------------------------------------------------------------
def on_every_device() -> Any:
    found = devices.devices()
    params = [pytest.param(d, marks=[] if d.name == "numpy" else [pytest.mark.ggml], id=d.name) for d in found]
    return pytest.mark.parametrize("device", params)


@on_every_device()
@every(CASES)
def test_devices_agree_with_eval(case: Case, device: Any) -> None:
    primitives.check_device(case, device)


@on_every_device()
@every(SMOOTH)
def test_devices_agree_on_derivatives(case: Case, device: Any) -> None:
    primitives.check_device_derivatives(case, device)


@on_every_device()
@every([c for c in CASES if c.args])
def test_devices_agree_under_vmap(case: Case, device: Any) -> None:
    primitives.check_device_vmap(case, device)


# -- errors ------------------------------------------------------------------------------------------------------
TAKE_ALL = {"copy", "stop_gradient", "convert"}


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_wrong_types_are_refused(name: str) -> None:
    cases = [c for c in CASES if c.prim.name == name and c.args]
    refused = sum([primitives.check_operands(c) for c in cases])
    assert refused or name in TAKE_ALL or not cases


@every(CASES)
def test_wrong_parameters_are_refused(case: Case) -> None:
    primitives.check_parameters(case)


def test_every_primitive_can_be_lowered() -> None:
    missing = [n for n, c in PRIMITIVES.items() if c.lower is Primitive.lower]
    assert not missing


# -- check_primitive: all of that at once, and that it can fail --------------------------------------------------
def test_check_primitive_reports_every_check() -> None:
    report = check_primitive(PRIMITIVES["tanh"], devices=["numpy"])
    assert [c.examples for c in report.checks] == [4, 3, 3, 3, 4, 3, 4, 3, 4, 4, 4, 3, 4]
    assert [c.device for c in report.checks] == [""] * 10 + ["numpy"] * 3
    assert str(report) == repr(report) and str(report).startswith("tanh: all checks passed\n")
    iota = check_primitive(PRIMITIVES["iota"], devices=["numpy"])  # without operands nothing else applies
    assert {c.name for c in iota.checks} == {
        "infer is what eval gives",
        "wrong parameters are refused",
        "lower agrees with eval",
    }


WRONG = {
    "infer is what eval gives": {"eval": lambda self, *xs: np.tanh(xs[0])[..., None]},
    "float32 agrees with float64": {
        "eval": lambda self, *xs: np.round(np.tanh(xs[0]), 3 if xs[0].itemsize < 8 else 99)
    },
    "jvp is the central difference": {"derivative": lambda self, out, x: ops.add(out, 1.0)},
    "vjp is the transpose of jvp": {"vjp": lambda self, ct, out, *xs: [ct]},
    "cotangents have the operands' types": {"vjp": lambda self, ct, out, *xs: [ops.convert(ct, dtypes.float32)]},
    "vmap is a loop": {"batch": lambda self, size, mapped, *xs: (ops.neg(xs[0]), True)},
    "lower agrees with eval": {"lower": lambda self, g, *xs: g.op("sin", xs[0])},
}


@pytest.mark.ggml
@pytest.mark.parametrize("check", WRONG)
def test_check_primitive_finds_what_is_wrong(check: str) -> None:
    base: Any = PRIMITIVES["tanh"]
    wrong: Any = type("Wrong", (base,), WRONG[check])
    if check.startswith("cotangents"):
        wrong.examples = [e for e in base.examples if not e.smooth]
    with pytest.raises(AssertionError, match=rf"tanh f.*: {re.escape(check)}"):
        check_primitive(wrong, devices=["cpu"])


def test_check_primitive_needs_examples() -> None:
    with pytest.raises(ValueError, match="examples is required, got Primitive"):
        check_primitive(Primitive)
