"""The graph: types, printing to the letter, and what check_graph refuses."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import dtypes
from funcgrad.control.call import Call
from funcgrad.errors import ShapeError
from funcgrad.ir import Aval, Equation, Graph, Literal, Var, check_graph, format_graph, subgraphs
from funcgrad.primitive import parse_aval
from funcgrad.prims.functions import Sin
from funcgrad.prims.layout import ReduceSum
from funcgrad.prims.pointwise import Add, Mul

F32 = dtypes.float32
pytestmark = pytest.mark.usefixtures("reference")


def f32(*shape: int) -> Aval:
    return Aval(shape, F32)


# -- types -------------------------------------------------------------------------------------------------------
def test_types_are_interned_and_print_as_they_parse() -> None:
    a = Aval((2, 3), F32)
    assert (
        a is Aval([2, 3], F32) and a == Aval((np.int64(2), 3), "float32") and hash(a) == hash(Aval((2, 3), "float32"))
    )
    assert (a.size, a.ndim, a.nbytes, len(a)) == (6, 2, 24, 2)
    assert a != Aval((3, 2), F32) and a != Aval((2, 3), dtypes.int32) and a != "f32[2,3]"
    for text in ["f32[2,3]", "f16[]", "bf16[4]", "f64[1,1,1]", "i32[0]", "u32[7]", "bool[2]"]:
        assert str(parse_aval(text)) == text
    assert pickle.loads(pickle.dumps(a)) is a and copy.deepcopy(a) is a
    assert Aval((2,), dtypes.bfloat16).nbytes == 4


def test_sizes_are_bounded() -> None:
    assert Aval((2**31 - 1,), dtypes.bool_).size == 2**31 - 1
    assert Aval((2**31, 0), F32).size == 0
    for shape, text in [
        ((2**31,), "fewer than 2"),
        ((-1,), "must not be negative"),
        ((1,) * 17, "rank must be at most 16"),
    ]:
        with pytest.raises(ShapeError, match=text):
            Aval(shape, F32)


def test_literals_are_equal_by_bits() -> None:
    assert Literal(1.0, F32) == Literal(np.float64(1.0), F32) and hash(Literal(1.0, F32)) == hash(Literal(1, F32))
    assert Literal(0.0, F32) != Literal(-0.0, F32)
    assert Literal(float("nan"), F32) == Literal(float("nan"), F32)
    assert Literal(1, dtypes.int32) != Literal(1.0, F32)
    assert Literal(1.01, dtypes.bfloat16).item() == 1.0078125
    assert Literal(True, dtypes.bool_).item() is True


# -- printing ----------------------------------------------------------------------------------------------------
def layer(x: Any, w: Any, b: Any) -> Any:
    h = fnp.tanh(x @ w + b)
    return h.sum(), 2


SPECS = [fg.ShapeDtypeStruct(s, "float32") for s in ((2, 3), (3, 4), (4,))]


def test_a_graph_prints_as_text() -> None:
    want = """\
{ a: f32[2,3], b: f32[3,4], c: f32[4] .
  d: f32[2,4] = dot_general(lhs_contract=(1,), rhs_contract=(0,), lhs_batch=(), rhs_batch=(), precision=None) a b
  e: f32[2,4] = broadcast(shape=(2, 4), dims=(1,)) c
  f: f32[2,4] = add d e
  g: f32[2,4] = tanh f
  h: f32[]    = reduce_sum(axes=(0, 1)) g
  return h, 2:i32[] }"""
    graph = fg.make_graph(layer)(*SPECS)
    assert str(graph) == format_graph(graph) == want
    assert repr(graph.eqns[-2]) == "a: f32[2,4] = tanh b"


def test_graphs_inside_graphs_and_source_lines() -> None:
    inner = fg.jit(lambda x: fnp.sin(x) * 2.0)
    graph = fg.make_graph(lambda x: inner(x) + 1.0)(np.float32(1))
    want = """\
{ a: f32[] .
  b: f32[] = call(label=<lambda>) a
    { a: f32[] .
      b: f32[] = sin a
      c: f32[] = mul b 2.0:f32[]
      return c }
  c: f32[] = add b 1.0:f32[]
  return c }"""
    assert str(graph) == want
    first = format_graph(graph, sites=True).splitlines()[1]
    line = test_graphs_inside_graphs_and_source_lines.__code__.co_firstlineno + 2
    assert first.endswith(f"# test_ir.py:{line} (<lambda>)")
    assert [len(list(subgraphs(e))) for e in graph.eqns] == [1, 0]
    assert graph.as_text(sites=True) == format_graph(graph, sites=True) and graph.as_text() == want
    places = [text.index("#") for text in graph.as_text(sites=True).splitlines() if "#" in text]
    assert len(places) == 4 and places[0] == places[3] and places[1] == places[2]


def test_a_graph_without_equations() -> None:
    graph = fg.make_graph(lambda x: (x, x, 3))(SPECS[2])
    assert str(graph) == "{ a: f32[4] .\n  return a, a, 3:i32[] }"
    assert str(fg.make_graph(lambda: None)()) == "{  .\n  return  }"


def test_many_variables_have_names_of_letters() -> None:
    def f(x: Any) -> Any:
        for _ in range(30):
            x = fnp.sin(x)
        return x

    lines = str(fg.make_graph(f)(np.float32(1))).splitlines()
    assert lines[26].split(":")[0].strip() == "aa" and lines[30].split(":")[0].strip() == "ae"


# -- what is refused ---------------------------------------------------------------------------------------------
def good() -> tuple[list[Var], list[Equation], list[Any]]:
    x, y, z = Var(f32(3)), Var(f32(3)), Var(f32())
    return [x], [Equation(Sin(), [x], [y]), Equation(ReduceSum((0,)), [y], [z])], [z]


def test_a_good_graph_passes() -> None:
    inputs, eqns, outs = good()
    check_graph(Graph(inputs, eqns, [*outs, Literal(1, F32), inputs[0]]))


def test_check_graph_refuses_each_kind_of_malformed_graph() -> None:
    inputs, eqns, outs = good()
    x, y = inputs[0], eqns[0].outputs[0]
    stray = Var(f32(3))
    wrong = Var(f32(4))
    inner_bad = Graph([x], [Equation(Sin(), [stray], [y])], [y])
    cases = {
        "an input is listed twice": Graph([x, x], eqns, outs),
        "reads a variable before it is written": Graph(inputs, eqns[::-1], outs),
        "sin reads a variable before it is written": Graph([], eqns, outs),
        "sin writes a variable twice": Graph(inputs, [eqns[0], eqns[0], eqns[1]], outs),
        "add writes a variable twice": Graph([x, y], [Equation(Add(), [x, x], [y])], [y]),
        "is not the type written": Graph(inputs, [Equation(Sin(), [x], [wrong])], [wrong]),
        "an output is never written": Graph(inputs, eqns, [stray]),
    }
    for text, graph in cases.items():
        with pytest.raises(AssertionError, match=text):
            check_graph(graph)
    with pytest.raises(AssertionError, match="sin reads a variable before it is written"):
        check_graph(Graph([wrong_free := Var(f32(3))], [Equation(Call(inner_bad), [wrong_free], [Var(f32(3))])], []))
    with pytest.raises(ShapeError, match="operands must have one shape"):
        check_graph(Graph([x, wrong], [Equation(Mul(), [x, wrong], [y])], [y]))
    with pytest.raises(AssertionError, match="is not the type written"):
        check_graph(Graph(inputs, [Equation(ReduceSum((0,)), [x], [Var(Aval((), dtypes.int32))])], []))
    with pytest.raises(AssertionError):
        check_graph(Graph(inputs, [Equation(Sin(), [x], [y, stray])], [y]))
