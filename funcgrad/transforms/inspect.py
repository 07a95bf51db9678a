"""Looking without running: make_graph, eval_shape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import tree
from funcgrad.ir import Aval, Graph
from funcgrad.passes.simplify import dead_code
from funcgrad.trace import trace
from funcgrad.transforms.flat import FlatFunction, abstract_leaves, argument_path, label, name_of, without_static

__all__ = ["ShapeDtypeStruct", "eval_shape", "make_graph", "make_jaxpr"]

ShapeDtypeStruct = Aval


def make_graph(
    fun: Callable[..., Any], static_argnums: int | Sequence[int] = (), return_shape: bool = False
) -> Callable[..., Any]:
    """Return a function that gives the graph of ``fun`` for its arguments, without running it.

    Arguments may be arrays or ``ShapeDtypeStruct``s.  Closed-over arrays are the graph's first inputs.  With
    ``return_shape`` returns the pair (graph, types of the result).

    >>> make_graph(lambda x: x * 2.0)(1.0)
    { a: f32[] .
      b: f32[] = mul a 2.0:f32[]
      return b }
    """
    what = label("make_graph", fun)

    @functools.wraps(fun)
    def graph_of(*args: Any, **kwargs: Any) -> Any:
        dynamic, put = without_static(args, static_argnums, what)
        avals, treedef = abstract_leaves((dynamic, kwargs), what, argument_path)
        flat = FlatFunction(lambda xs, kw: fun(*put(xs), **kw), treedef, what, argument_path)
        graph: Graph = dead_code(trace(flat, avals, name=name_of(fun)).graph)
        return (graph, tree.unflatten(flat.out_tree, list(graph.out_avals))) if return_shape else graph

    return graph_of


make_jaxpr = make_graph


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the types of ``fun(*args)`` without computing it, as a tree of ``ShapeDtypeStruct``.

    >>> eval_shape(lambda x: x @ x.T, ShapeDtypeStruct((2, 3), "float32"))
    f32[2,2]
    """
    return make_graph(fun, return_shape=True)(*args, **kwargs)[1]
