"""Rules where central differences say nothing: ties, repeated indices, zeros, special values; and the messages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
import funcgrad.prims  # registers the primitives
from funcgrad import dtypes
from funcgrad.errors import DTypeError, MissingRule, ShapeError
from funcgrad.ir import Aval, Literal
from funcgrad.passes.forward import jvp_graph
from funcgrad.passes.reverse import vjp_graph
from funcgrad.primitive import REGISTRY, Primitive, parse_aval
from funcgrad.runtime.program import Program
from funcgrad.trace import bind, bind_all, trace


def make(name: str, **params: Any) -> Primitive:
    return REGISTRY[name](**params)


def run(graph: Any, values: Sequence[Any]) -> list[Any]:
    env = dict(zip(graph.inputs, values, strict=True))
    for eqn in graph.eqns:
        outs = eqn.prim.evaluate(*[a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs])
        env.update(zip(eqn.outputs, outs, strict=True))
    return [a.value if isinstance(a, Literal) else env[a] for a in graph.outputs]


def record(prim: Primitive, values: Sequence[Any]) -> Any:
    return trace(lambda *xs: bind_all(prim, *xs), [Aval(v.shape, v.dtype) for v in values]).graph


def gradients(prim: Primitive, ct: Any, *values: Any) -> list[Any]:
    """Cotangents of the float operands; checks on the way that forward mode gives the same inner products."""
    values = tuple(np.asarray(v, np.float64 if np.asarray(v).dtype.kind == "f" else np.int32) for v in values)
    graph = record(prim, values)
    on = [dtypes.is_float(v.dtype) for v in values]
    ct = np.asarray(ct, np.float64)
    [_, *grads] = run(vjp_graph(graph, on), [*values, ct])
    rng = np.random.default_rng(0)
    ts = [rng.normal(size=v.shape) for v, f in zip(values, on, strict=True) if f]
    [_, t] = run(jvp_graph(graph, on)[0], [*values, *ts])
    want = sum(float(np.sum(g * t)) for g, t in zip(grads, ts, strict=True))
    assert np.sum(ct * t) == pytest.approx(want, rel=1e-12, abs=1e-12)
    return grads


# -- ties and special values -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_extremum_shares_ties_and_ignores_the_rest(name: str) -> None:
    sign = 1 if name == "reduce_max" else -1
    x = sign * np.array([[1.0, 3, 3, 0], [2, 2, 2, 2]])
    [grad] = gradients(make(name, axes=(1,)), [6.0, -8.0], x)
    np.testing.assert_array_equal(grad, [[0, 3, 3, 0], [-2, -2, -2, -2]])
    [grad] = gradients(make(name, axes=(1,)), [np.inf], sign * np.array([[1.0, 3.0]]))
    np.testing.assert_array_equal(grad, [[0, np.inf]])


def test_halves_count_ties_exactly() -> None:
    x = np.zeros(3000, np.float16)
    graph = record(make("reduce_max", axes=(0,)), [x])
    _, grad = run(vjp_graph(graph, [True]), [x, np.float16(3000).reshape(())])
    np.testing.assert_array_equal(grad, np.ones(3000, np.float16))


@pytest.mark.parametrize(("name", "sign"), [("cummax", 1.0), ("cummin", -1.0)])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_extremum_shares_ties(name: str, sign: float, reverse: bool) -> None:
    """Each result's cotangent goes in equal parts to the elements so far that attain it."""
    rng = np.random.default_rng(1)
    x = sign * rng.integers(0, 4, 12).astype(np.float64)
    ct = rng.normal(size=12)
    want = np.zeros(12)
    for i in range(12):
        so_far = range(i, 12) if reverse else range(i + 1)
        best = max(sign * x[j] for j in so_far)
        ties = [j for j in so_far if sign * x[j] == best]
        want[ties] += ct[i] / len(ties)
    [grad] = gradients(make(name, axis=0, reverse=reverse), ct, x)
    np.testing.assert_allclose(grad, want, rtol=1e-12, atol=1e-14)


def test_window_maximum_goes_to_the_first() -> None:
    params = {"padding": ((0, 0), (0, 0)), "base_dilation": (1, 1), "window_dilation": (1, 1)}
    prim = make("reduce_window_max", window=(2, 2), strides=(2, 2), **params)
    [grad] = gradients(prim, [[5.0, 7.0]], [[1.0, 2, 3, 3], [2, 2, 3, 3]])
    np.testing.assert_array_equal(grad, [[0, 5, 7, 0], [0, 0, 0, 0]])


def test_argmax_argmin_take_the_first_and_nan() -> None:
    x = np.array([[1, 3, 3], [np.nan, 9, np.nan], [-np.inf, -np.inf, -np.inf]], np.float32)
    assert make("argmax", axis=1).evaluate(x)[0].tolist() == [1, 0, 0]
    assert make("argmin", axis=1).evaluate(x)[0].tolist() == [0, 0, 0]


def test_sort_is_stable_and_puts_nan_last() -> None:
    x = np.array([np.nan, 0.0, 2, -0.0, -np.inf, 2, np.nan, np.inf], np.float32)
    values, order = make("sort", axis=0).evaluate(x, np.arange(8, dtype=np.int32))
    assert order.tolist() == [4, 1, 3, 2, 5, 7, 0, 6]
    assert order.tolist() == make("argsort", axis=0).evaluate(x)[0].tolist()
    np.testing.assert_array_equal(values, x[order])


def test_running_logsumexp_is_stable() -> None:
    x = np.array([-np.inf, -np.inf, 1000.0, -1000, 1001])
    prim = make("cumlogsumexp", axis=0, reverse=False)
    [grad] = gradients(prim, [0.0, 0, 0, 0, 1], x)
    weights = np.exp(x - 1001)
    np.testing.assert_allclose(grad, weights / weights.sum(), rtol=1e-12)


# -- products with zeros -----------------------------------------------------------------------------------------
def products(rows: Sequence[float]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """First and second derivatives of a product, from the definition."""
    n = range(len(rows))
    first = np.array([np.prod([rows[k] for k in n if k != i]) for i in n])
    second = np.array([[0 if i == j else np.prod([rows[k] for k in n if k not in (i, j)]) for j in n] for i in n])
    return first, second


@pytest.mark.parametrize("x", [[2.0, 3, 4], [0.0, 3, 4], [0.0, 3, 0, 5], [0.0, 0, 0]])
def test_product_derivatives_with_zeros(x: list[float]) -> None:
    first, second = products(x)
    v = np.array(x)
    graph = record(make("reduce_prod", axes=(0,)), [v])
    backward = vjp_graph(graph, [True])
    one = np.ones(())
    np.testing.assert_array_equal(run(backward, [v, one])[1], first)
    hessian = [run(jvp_graph(backward, [True, False])[0], [v, one, row])[-1] for row in np.eye(len(x))]
    np.testing.assert_array_equal(hessian, second)
    last = record(make("cumprod", axis=0, reverse=False), [v])
    pick = np.eye(len(x))[-1]
    np.testing.assert_array_equal(run(vjp_graph(last, [True]), [v, pick])[1], first)


# -- repeated indices --------------------------------------------------------------------------------------------
def test_set_gives_the_cotangent_to_the_last_writer() -> None:
    prim = make("scatter", op="set")
    index = np.array([1, 1, -1, 0, 1, 3])
    by_x, by_updates = gradients(prim, [5.0, 6, 7], np.zeros(3), index, np.arange(6.0))
    np.testing.assert_array_equal(by_x, [0, 0, 7])
    np.testing.assert_array_equal(by_updates, [0, 0, 0, 5, 6, 0])


@pytest.mark.parametrize(("op", "sign"), [("max", 1.0), ("min", -1.0)])
def test_scattered_extremum_shares_ties(op: str, sign: float) -> None:
    x, index = sign * np.array([2.0, 2, 0, 9]), np.array([0, 0, 1, 2, 2, 7, 3])
    updates = sign * np.array([2.0, 2, 1, 3, 3, 5, 8])
    by_x, by_updates = gradients(make("scatter", op=op), [6.0, 5, 4, 3], x, index, updates)
    np.testing.assert_array_equal(by_x, [2, 5, 0, 3])
    np.testing.assert_array_equal(by_updates, [2, 2, 0, 2, 2, 0, 0])


def test_scattered_product_with_zeros_and_repeats() -> None:
    x = np.array([2.0, 3, 5, 7])
    index = np.array([0, 0, 1, 1, 1, 2, 9])
    for updates in itertools.product([0.0, 2.0], repeat=7):
        u, ct = np.array(updates), np.array([1.0, -1, 2, 3])
        by_x, by_updates = gradients(make("scatter", op="mul"), ct, x, index, u)
        rows = [[k for k in range(7) if index[k] == r] for r in range(4)]
        np.testing.assert_array_equal(by_x, [c * np.prod(u[r]) for c, r in zip(ct, rows, strict=True)])
        want = np.zeros(7)
        for r, ks in enumerate(rows):
            want[ks] = ct[r] * x[r] * products(u[ks])[0]
        np.testing.assert_array_equal(by_updates, want)


def test_last_write_wins() -> None:
    index = np.array([2, 2, 5, -1, 2], np.int32)
    [out] = make("scatter", op="set").evaluate(np.zeros(3, np.float32), index, np.arange(5, dtype=np.float32))
    assert out.tolist() == [0, 0, 4]


def test_slices_are_moved_to_fit() -> None:
    x, far, low = np.arange(5), np.int32(9).reshape(()), np.int32(-9).reshape(())
    assert make("dynamic_slice", sizes=(2,)).evaluate(x.astype(np.int32), far)[0].tolist() == [3, 4]
    assert make("dynamic_slice", sizes=(2,)).evaluate(x.astype(np.int32), low)[0].tolist() == [0, 1]
    update = np.array([8, 9], np.int32)
    assert make("dynamic_update_slice").evaluate(x.astype(np.int32), update, far)[0].tolist() == [0, 1, 2, 8, 9]


# -- contractions ------------------------------------------------------------------------------------------------
def test_half_products_round_once() -> None:
    """In float16, 1 + 2^-11 is 1: rounding each partial sum would lose every small term."""
    x = np.concatenate([[1.0], np.full(1024, 2.0**-11)]).astype(np.float16)
    axes = {"lhs_contract": (0,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
    [out] = make("dot_general", **axes).evaluate(x, np.ones_like(x))
    assert out == np.float16(1.5)


def test_integer_products_wrap() -> None:
    axes = {"lhs_contract": (0,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
    x = np.array([2**31 - 1, 1], np.int32)
    [out] = make("dot_general", **axes).evaluate(x, np.array([2, 7], np.int32))
    assert out == np.int32(5)


def test_weight_gradients_need_no_transpose() -> None:
    """d/dW of x @ W and of x @ W.T, and d/dx, are one product each."""
    for y_shape, contract in (((3, 4), 0), ((4, 3), 1)):
        prim = make("dot_general", lhs_contract=(1,), rhs_contract=(contract,), lhs_batch=(), rhs_batch=())
        graph = record(prim, [np.zeros((2, 3)), np.zeros(y_shape)])
        names = [e.prim.name for e in vjp_graph(graph, [True, True]).eqns]
        assert names == ["dot_general"] * 3


# -- messages ----------------------------------------------------------------------------------------------------
MATMUL = {"lhs_contract": (1,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
CONV = {"strides": (1,), "padding": ((0, 0),), "lhs_dilation": (1,), "rhs_dilation": (1,)}


@pytest.mark.parametrize(
    ("name", "params", "types", "error", "parts"),
    [
        ("dot_general", MATMUL, ["f32[2,3]", "f32[4,5]"], ShapeError, ["(2, 3) at (1,) and (4, 5) at (0,)", "way out"]),
        ("dot_general", MATMUL, ["f32[2,3]", "f16[3,5]"], DTypeError, ["f32[2,3] and f16[3,5]", "astype"]),
        ("dot_general", MATMUL, ["bool[2,3]", "bool[3,5]"], DTypeError, ["numbers are required", "any/all"]),
        ("dot_general", MATMUL, ["f32[2]", "f32[2]"], ShapeError, ["axes must be distinct and below 1"]),
        (
            "conv",
            CONV,
            ["f32[1,8,3]", "f32[2,4,5]"],
            ShapeError,
            ["3 of f32[1,8,3] and 4 of f32[2,4,5]", "channels last"],
        ),
        ("conv", CONV, ["f32[8,3]", "f32[2,3]"], ShapeError, ["1 to 3 spatial axes"]),
        ("reduce_max", {"axes": (1,)}, ["f32[2,0]"], ShapeError, ["there must be an element to choose", "initial"]),
        ("argmax", {"axis": 0}, ["f32[0]"], ShapeError, ["there must be an element to choose"]),
        ("reduce_max", {"axes": (0,)}, ["bool[2]"], DTypeError, ["use any and all"]),
        ("reduce_any", {"axes": (0,)}, ["f32[2]"], DTypeError, ["bool is required", "compare first"]),
        ("take", {"axis": 0, "mode": "clip"}, ["f32[0]", "i32[2]"], ShapeError, ["an element to read", 'mode="fill"']),
        (
            "take",
            {"axis": 0, "mode": "clip"},
            ["f32[3]", "f32[2]"],
            DTypeError,
            ["indices must be int32", "astype(int)"],
        ),
        ("take", {"axis": 0, "mode": "wrap"}, ["f32[3]", "i32[2]"], ShapeError, ['"clip" or "fill"', "'wrap'"]),
        ("scatter", {"op": "add"}, ["f32[3,2]", "i32[4]", "f32[4]"], ShapeError, ["(n, *rest), (k,) and (k, *rest)"]),
        ("scatter", {"op": "div"}, ["f32[3]", "i32[4]", "f32[4]"], ShapeError, ["set, add, mul, min, max", "'div'"]),
        ("dynamic_slice", {"sizes": (4,)}, ["f32[3]", "i32[]"], ShapeError, ["must fit", "(4,) for f32[3]"]),
        ("sort", {"axis": 0}, ["f32[]"], ShapeError, ["axis must be one of 0 axes", "reshape"]),
        (
            "cumsum",
            {"axis": 2, "reverse": False},
            ["f32[3,2]"],
            ShapeError,
            ["axis must be one of 2 axes", "2 for f32[3,2]"],
        ),
    ],
)
def test_messages(name: str, params: Any, types: list[str], error: type[Exception], parts: list[str]) -> None:
    with pytest.raises(error) as caught:
        make(name, **params).infer(*map(parse_aval, types))
    text = str(caught.value)
    assert text.startswith(f"{name}: ")
    for part in parts:
        assert part in text


def test_reductions_of_nothing() -> None:
    empty = np.zeros((2, 0), np.float32)
    assert make("reduce_prod", axes=(1,)).evaluate(empty)[0].tolist() == [1, 1]
    assert make("reduce_any", axes=(1,)).evaluate(empty != 0)[0].tolist() == [False, False]
    assert make("reduce_all", axes=(1,)).evaluate(empty != 0)[0].tolist() == [True, True]
    assert make("reduce_max", axes=(0,)).evaluate(empty)[0].shape == (0,)
    assert make("argmax", axis=0).evaluate(empty)[0].shape == (0,)


@pytest.mark.ggml
def test_an_instruction_that_there_is_not() -> None:
    cls: Any = type("Unlowered", (REGISTRY["tanh"],), {"lower": lambda self, g, *xs: g.op("tannh", xs[0])})
    with fg.default_device("cpu"), pytest.raises(MissingRule, match="instruction for floats, got 'tannh'"):
        fg.jit(lambda x: bind(cls(), x))(fnp.ones(3))
    assert {"tanh", "select", "div_nz"} <= set(Program.names())


def test_a_class_without_a_name_is_called_by_its_own() -> None:
    unnamed: Any = type("Unnamed", (Primitive,), {})
    with pytest.raises(MissingRule, match=r"^Unnamed: has no infer rule; define Unnamed.infer"):
        bind(unnamed(), fnp.ones(3))


@pytest.mark.parametrize("wrong", [np.ones(3), 2.0, [1.0], None], ids=["numpy", "float", "list", "None"])
def test_bind_says_what_an_operand_must_be(wrong: Any) -> None:
    x, add = fnp.ones(3), make("add")
    for use in (lambda: bind(add, x, wrong), lambda: fg.jit(lambda y: bind(add, y, wrong))(x)):
        with pytest.raises(TypeError, match="operands of bind must be arrays of funcgrad's, got") as caught:
            use()
        assert type(wrong).__name__ in str(caught.value) and "asarray" in str(caught.value)
