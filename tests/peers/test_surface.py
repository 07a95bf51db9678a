"""Functions of the surface under random shapes, dtypes, axes and transformations, against JAX.

The truth is JAX in float64.  An error may be four times that of JAX's own arithmetic in the dtype, or four roundings of
the largest number, whichever is more; dtypes of results must be JAX's.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import dtypes

OURS = SimpleNamespace(np=fnp, lax=fg.lax, nn=fg.nn, grad=fg.grad, jvp=fg.jvp, vmap=fg.vmap, jit=fg.jit)
THEIRS = SimpleNamespace(np=jnp, lax=jax.lax, nn=jax.nn, grad=jax.grad, jvp=jax.jvp, vmap=jax.vmap, jit=jax.jit)
ROUNDING = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
Rng = np.random.Generator
Program = Callable[[Any], Callable[..., Any]]


class Case(NamedTuple):
    """A function of arrays for either library, its arguments in float64 or integers, and their dtypes."""

    label: str
    function: Program
    values: list[Any]
    types: list[str]
    smooth: bool


# -- drawing -----------------------------------------------------------------------------------------------------
def shape_of(rng: Rng, low: int = 0, high: int = 4) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, 5, rng.integers(low, high)))


def broadcasting(rng: Rng, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts with another: axes of size 1, leading axes left out."""
    kept = [1 if rng.random() < 0.25 else n for n in shape]
    return tuple(kept[int(rng.integers(0, len(kept) + 1)) if rng.random() < 0.3 else 0 :])


def data(rng: Rng, shape: tuple[int, ...], kind: str, positive: bool = False) -> Any:
    """Numbers that every dtype of the kind holds exactly, without ties."""
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind in ("int32", "uint32"):
        return rng.integers(1 if positive or kind == "uint32" else -6, 7, shape).astype(kind)
    size = int(np.prod(shape))
    steps = rng.permutation(max(size, 40))[:size].reshape(shape) - (0 if positive else max(size, 40) // 2)
    return steps / 16 + (0.125 if positive else 0.03125)


FLOATS, NUMBERS = ["float32", "float16", "bfloat16"], ["float32", "float16", "bfloat16", "int32", "uint32"]
ANY = [*NUMBERS, "bool"]
# Name, where the operands lie, dtypes, and whether derivatives are compared.
BINARY = [
    *[(n, False, NUMBERS, True) for n in ("add", "subtract", "multiply", "maximum", "minimum")],
    *[(n, True, NUMBERS, True) for n in ("divide", "remainder", "fmod", "hypot")],
    *[(n, False, FLOATS, True) for n in ("arctan2", "logaddexp", "copysign")],
    *[(n, False, ANY, False) for n in ("equal", "not_equal", "less", "greater_equal", "logical_and", "logical_xor")],
    *[(n, True, ["int32", "uint32"], False) for n in ("floor_divide", "left_shift", "right_shift")],
    *[(n, False, ["int32", "uint32", "bool"], False) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")],
    ("power", True, ["float32"], True),
]
UNARY = [
    *[(n, False, FLOATS, True) for n in ("negative", "abs", "square", "sin", "cos", "tanh", "arctan", "arcsinh")],
    *[(n, False, ["float32"], True) for n in ("exp", "expm1", "sinh", "cosh")],
    ("sinc", False, ["float32"], False),  # its derivatives cancel: a single number's error in JAX is luck
    *[(n, True, FLOATS, True) for n in ("sqrt", "log", "log1p", "log2", "reciprocal", "cbrt")],
    *[(n, False, NUMBERS, False) for n in ("sign", "floor", "ceil", "isfinite", "signbit")],
]
REDUCTIONS = [
    *[(n, False, ["float32", "int32"], True) for n in ("sum", "mean", "max", "min", "prod")],
    *[(n, False, ["float32"], True) for n in ("var", "std", "ptp", "nansum", "median")],
    *[(n, False, NUMBERS, False) for n in ("argmax", "argmin", "any", "all", "count_nonzero")],
]
ALONG = [
    *[(n, False, ["float32"], True) for n in ("cumsum", "sort", "flip", "diff")],
    ("cumprod", True, ["float32"], True),
    ("argsort", False, NUMBERS, False),
]


def chosen(rng: Rng, rows: list[Any]) -> Any:
    return rows[int(rng.integers(len(rows)))]


def elementwise(rng: Rng) -> Case:
    two = rng.random() < 0.6
    name, positive, kinds, smooth = chosen(rng, BINARY if two else UNARY)
    shape = shape_of(rng)
    kinds_drawn = [str(rng.choice(kinds)) for _ in range(2 if two else 1)]
    if name in ("floor_divide", "left_shift", "right_shift", "fmod", "remainder", "copysign"):
        kinds_drawn = kinds_drawn[:1] * 2
    shapes = [shape, broadcasting(rng, shape)][: len(kinds_drawn)]
    values = [data(rng, s, k, positive) for s, k in zip(shapes, kinds_drawn, strict=True)]
    return Case(name, lambda m: getattr(m.np, name), values, kinds_drawn, smooth)


def reduction(rng: Rng) -> Case:
    along = rng.random() < 0.35
    name, positive, kinds, smooth = chosen(rng, ALONG if along else REDUCTIONS)
    shape, kind = shape_of(rng, 1), str(rng.choice(kinds))
    axis: Any = int(rng.integers(-len(shape), len(shape)))
    options: dict[str, Any] = {"axis": axis}
    if not along and name not in ("argmax", "argmin"):
        several = tuple(int(a) for a in rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)])
        options = {"axis": [None, axis, several][int(rng.integers(3))], "keepdims": bool(rng.random() < 0.5)}
    label = f"{name} {options}"
    return Case(
        label, lambda m: lambda x: getattr(m.np, name)(x, **options), [data(rng, shape, kind, positive)], [kind], smooth
    )


def contraction(rng: Rng) -> Case:
    sizes = {c: int(rng.integers(1, 4)) for c in "abcdef"}
    left = "".join(rng.permutation(list("abcd"))[: rng.integers(1, 5)])
    right = "".join(rng.permutation(list("cdef"))[: rng.integers(1, 5)])
    out = "".join(rng.permutation(sorted(set(left + right)))[: rng.integers(0, 4)])
    spec = f"{left},{right}->{out}"
    kinds = [str(rng.choice(["float32", "float32", "int32"]))] * 2
    values = [data(rng, tuple(sizes[c] for c in s), k) for s, k in zip((left, right), kinds, strict=True)]
    return Case(spec, lambda m: lambda x, y: m.np.einsum(spec, x, y), values, kinds, kinds[0] == "float32")


def movement(rng: Rng) -> Case:
    shape, kind = shape_of(rng, 1), str(rng.choice(ANY))
    n, d = len(shape), int(rng.integers(0, len(shape)))
    order = tuple(int(a) for a in rng.permutation(n))
    pads = [(int(a), int(b)) for a, b in rng.integers(0, 3, (n, 2))]
    at, mode = rng.integers(-shape[d], shape[d], 3), str(rng.choice(["constant", "edge", "wrap"]))
    key = tuple(slice(*sorted(map(int, rng.integers(0, s + 1, 2))), int(rng.integers(1, 3))) for s in shape)
    shift = int(rng.integers(-3, 4))
    choices: list[tuple[str, Program]] = [
        (f"transpose {order}", lambda m: lambda x: m.np.transpose(x, order)),
        (f"pad {pads} {mode}", lambda m: lambda x: m.np.pad(x, pads, mode=mode)),
        (f"take {at} {d}", lambda m: lambda x: m.np.take(x, m.np.asarray(at), axis=d)),
        (f"slice {key}", lambda m: lambda x: x[key]),
        (f"index {at}", lambda m: lambda x: m.np.moveaxis(x, d, 0)[m.np.asarray(at), ..., None]),
        (f"roll {shift} {d}", lambda m: lambda x: m.np.roll(x, shift, d)),
        (f"repeat {d}", lambda m: lambda x: m.np.repeat(x, 2, axis=d)),
        ("tile", lambda m: lambda x: m.np.tile(x, (2, 1, 2))),
        (f"concatenate {d}", lambda m: lambda x: m.np.concatenate([x, m.np.flip(x, d)], axis=d)),
        (f"stack {d}", lambda m: lambda x: m.np.stack([x, x, x], axis=d)),
        ("update", lambda m: lambda x: m.np.moveaxis(x, d, 0).at[m.np.asarray(at[:1])].set(x.ravel()[0])),
    ]
    label, function = choices[int(rng.integers(len(choices)))]
    return Case(label, function, [data(rng, shape, kind)], [kind], kind == "float32")


DRAWS = {
    "elementwise": (elementwise, 90),
    "reduction": (reduction, 60),
    "contraction": (contraction, 30),
    "movement": (movement, 50),
}
CASES = [(kind, seed) for kind, (_, count) in DRAWS.items() for seed in range(count)]


# -- comparing ---------------------------------------------------------------------------------------------------
def cast(library: Any, values: list[Any], types: list[str]) -> list[Any]:
    return [
        library.asarray(v, dtype=getattr(library, t if t != "bool" else "bool_"))
        for v, t in zip(values, types, strict=True)
    ]


def double(values: list[Any]) -> list[Any]:
    return [jnp.asarray(v) for v in values]


def wide(x: Any) -> Any:
    a = np.asarray(x.astype("float32")) if str(x.dtype) in ("bfloat16", "float16") else np.asarray(x)
    return a.astype(np.float64) if a.dtype.kind == "f" else a


def name_of(dtype: Any) -> str:
    return "bfloat16" if dtype == dtypes.bfloat16 or str(dtype) == "bfloat16" else np.dtype(dtype).name


def within(got: Any, theirs: Any, truth: Any, rounding: float) -> None:
    got, theirs, truth = wide(got), wide(theirs), np.asarray(truth)
    assert got.shape == truth.shape
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, truth)
        return
    finite = np.isfinite(truth)
    scale = np.max(np.abs(truth[finite]), initial=0.0)
    own = np.max(np.abs(theirs[finite] - truth[finite]), initial=0.0)
    np.testing.assert_allclose(got, truth, rtol=0, atol=4 * max(float(own), rounding * float(scale)))


def drawn(kind: str, seed: int) -> Case:
    return DRAWS[kind][0](np.random.default_rng([seed, len(kind)]))


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_values_and_dtypes(kind: str, seed: int) -> None:
    case = drawn(kind, seed)
    theirs = case.function(THEIRS)(*cast(jnp, case.values, case.types))
    with jax.enable_x64(True):
        truth = np.asarray(case.function(THEIRS)(*double(case.values)))
    f, args = case.function(OURS), cast(fnp, case.values, case.types)
    rounding = max([ROUNDING[t] for t in [*case.types, name_of(theirs.dtype)] if t in ROUNDING], default=0.0)
    for run in (f, fg.jit(f)):
        got = run(*args)
        assert name_of(got.dtype) == name_of(theirs.dtype), case.label
        within(got, theirs, truth, rounding)
    mapped = fg.vmap(f)(*[fnp.stack([a, fnp.flip(a)]) for a in args])
    within(mapped[0], theirs, truth, rounding)
    within(mapped[1], f(*[fnp.flip(a) for a in args]), wide(f(*[fnp.flip(a) for a in args])), rounding)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_first_and_second_derivatives(kind: str, seed: int) -> None:
    """The gradient of a weighted sum, and the Hessian times a vector (forward over reverse), jitted and mapped."""
    case = drawn(kind, seed)
    if not case.smooth or set(case.types) != {"float32"}:
        pytest.skip("no derivative, or not in float32")
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=jax.eval_shape(case.function(THEIRS), *double(case.values)).shape)
    along = [rng.normal(size=v.shape) for v in case.values]

    def both(m: Any, convert: Callable[[Any], Any]) -> Callable[..., Any]:
        w = convert(weights)
        every = tuple(range(len(case.values)))
        slope = m.grad(lambda *xs: m.np.sum(case.function(m)(*xs) * w), every)
        return lambda xs, ts: m.jvp(slope, tuple(xs), tuple(ts))

    narrow = lambda library: lambda a: library.asarray(np.asarray(a, np.float32))
    theirs = jax.jit(both(THEIRS, narrow(jnp)))(*[[narrow(jnp)(v) for v in vs] for vs in (case.values, along)])
    with jax.enable_x64(True):
        exact = [[jnp.asarray(np.asarray(v, np.float32), jnp.float64) for v in vs] for vs in (case.values, along)]
        truth = jax.jit(both(THEIRS, lambda a: jnp.asarray(np.asarray(a, np.float32), jnp.float64)))(*exact)
    xs, ts = [[narrow(fnp)(v) for v in vs] for vs in (case.values, along)]
    got = fg.jit(both(OURS, narrow(fnp)))(xs, ts)
    for ours, jaxs, true in zip(*map(fg.tree.leaves, (got, theirs)), jax.tree.leaves(truth), strict=True):
        within(ours, jaxs, np.asarray(true), ROUNDING["float32"])
