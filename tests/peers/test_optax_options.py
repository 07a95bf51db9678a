"""Options of the optimizers that test_optax leaves at their defaults, against optax."""

from __future__ import annotations

from typing import Any

import pytest

from funcgrad import dtypes, optim, tree

test_optax = pytest.importorskip("test_optax", reason="needs JAX and optax")
optax, RATE = test_optax.optax, test_optax.RATE

CASES: list[tuple[str, dict[str, Any]]] = [
    ("adafactor", {"decay_offset": -3, "min_dim_size_to_factor": 2}),
    ("adafactor", {"eps": 1e-10, "momentum": 0.5, "min_dim_size_to_factor": 2}),
    ("lars", {"trust_coefficient": 0.1, "eps": 1e-3, "momentum": 0.5}),
    ("fromage", {"min_norm": 0.5}),
    ("signum", {"nesterov": True}),
]
NARROW = ["adam", "adamw", "nadam", "nadamw", "lion", "amsgrad"]


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{'-'.join(o)}" for n, o in CASES])
def test_option(name: str, options: dict[str, Any]) -> None:
    try:
        theirs = getattr(optax, name)(RATE, **options)
    except TypeError:
        pytest.skip("this optax has no such option")
    test_optax.compare(getattr(optim, name)(RATE, **options), theirs)


def narrow(name: str, option: str, **options: Any) -> None:
    """A moment in bfloat16 is off by its rounding: by as much, from the float64 result, as optax's is."""
    make = lambda library, **more: getattr(library, name)(RATE, **options, **more)
    params = test_optax.make_params()
    exact, _, _ = test_optax.run_optax(make(optax), params, 30)
    theirs, _, _ = test_optax.run_optax(make(optax, **{option: "bfloat16"}), params, 30)
    ours, _, state = test_optax.run_ours(make(optim, **{option: "bfloat16"}), params, 30)
    allowed = 3 * test_optax.worst(theirs, exact) + 1e-5  # lion's signs may all be the same
    assert test_optax.worst(ours, exact) < allowed
    assert any(x.dtype == dtypes.bfloat16 for x in tree.leaves(state))


@pytest.mark.parametrize("name", NARROW)
def test_a_first_moment_in_bfloat16(name: str) -> None:
    narrow(name, "mu_dtype")


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_sgd_accumulates_in_bfloat16(options: dict[str, Any]) -> None:
    narrow("sgd", "accumulator_dtype", **options)
