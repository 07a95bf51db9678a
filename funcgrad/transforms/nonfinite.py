"""Which operation made the first NaN or infinity: a graph is run again, one equation at a time, in numpy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes, tree
from funcgrad.control.callback import without_callbacks
from funcgrad.errors import NonFiniteError, Site, message
from funcgrad.ir import Aval, Equation, Graph, Literal
from funcgrad.passes.inline import inline
from funcgrad.trace import trace, watch_evaluations
from funcgrad.transforms.flat import FlatFunction, argument_path, avals_of, in_result, name_of, values_of

__all__ = ["NonFinite", "check_results", "checks_results", "debug_nans", "find_nonfinite"]

_local = threading.local()


@contextmanager
def debug_nans(enable: bool = True) -> Iterator[None]:
    """Inside, a result of a jitted function that is not finite raises NonFiniteError, which names its origin.

    Every call then copies its arguments first, so that the graph can be run again as :func:`find_nonfinite` does;
    donated arguments stay usable when the call fails.  It costs a copy and a look at each result.  Outside jit an
    operation that makes a NaN from operands without one raises as well.

    >>> from funcgrad import jit
    >>> with debug_nans():
    ...     jit(lambda x: fnp.log(x) * 2.0)(-1.0)
    Traceback (most recent call last):
        ...
    funcgrad.errors.NonFiniteError: <lambda>: results must be finite under debug_nans, got the root ... with 1 NaN
    ...
    """
    saved = checks_results()
    _local.on = enable
    watch_evaluations(_look)
    try:
        yield
    finally:
        _local.on = saved


def checks_results() -> bool:
    """Whether a ``debug_nans`` is in force in this thread."""
    return bool(getattr(_local, "on", False))


def _look(prim: Any, xs: Sequence[Any], outs: Sequence[Any]) -> None:
    """Raise NonFiniteError for a NaN that an operation outside jit made."""
    if not checks_results() or any(_has_nan(x) for x in xs) or not any(_has_nan(o) for o in outs):
        return
    operands = ", ".join(str(np.asarray(x.value if isinstance(x, Literal) else x)) for x in xs[:2] if x.aval.size <= 8)
    got = f"{', '.join(str(o.aval) for o in outs)} with NaN" + (f" from {operands}" if operands else "")
    raise NonFiniteError(message(prim.name, "results must not be NaN under debug_nans", got))


def _has_nan(x: Any) -> bool:
    if not dtypes.is_float(x.aval.dtype):
        return False
    return bool(np.isnan(dtypes.widen(np.asarray(x.value if isinstance(x, Literal) else x))).any())


class NonFinite(NamedTuple):
    """The first operation that made a NaN or an infinity from finite operands."""

    operation: str
    site: Site | None
    outputs: str
    operands: list[str]
    inputs: list[str]
    where: str

    def __str__(self) -> str:
        if not self.operands:
            return f"{self.operation}, is {self.outputs}"
        lines = [f"{self.operation} made {self.outputs}", f"  at {self.site}{self.where}"]
        lines += [f"  operand {i}: {text}" for i, text in enumerate(self.operands)]
        if self.inputs:
            lines.append(f"  reached by: {', '.join(self.inputs)}")
        return "\n".join(lines)


def find_nonfinite(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> NonFinite | None:
    """Return the first operation of ``fun(*args)`` whose result is not finite though its operands are, or None.

    Runs the graph, inside jit, checkpoint, loops and branches too, operation by operation in numpy; names the user's
    source line, the ranges of the operands, and the arguments (by tree path) that reach it.  An argument that is not
    finite itself is the answer.  Callbacks are not called again.

    >>> found = find_nonfinite(lambda x: fnp.log(x - 1.0).sum(), asarray([1.0, 2.0]))
    >>> found.operation, found.operands[0]
    ('log', 'f32[2] in [0, 1]')
    """
    what = f"find_nonfinite of {name_of(fun)}"
    values, treedef = values_of((args, kwargs), what, argument_path)
    flat = FlatFunction(lambda a, k: fun(*a, **k), treedef, what, argument_path)
    traced = trace(flat, avals_of(values), values, name=name_of(fun))
    names = [argument_path(p) for p, _ in tree.leaves_with_path((args, kwargs))]
    return find_in_graph(traced.graph, [np.asarray(x) for x in (*traced.captured, *values)], names)


def find_in_graph(graph: Graph, arrays: Sequence[Any], names: Sequence[str]) -> NonFinite | None:
    """``find_nonfinite`` of a graph; ``names`` are those of its last inputs, what comes before was closed over."""
    captured = len(arrays) - len(names)
    arrays = [
        dtypes.narrow(dtypes.widen(np.asarray(x)), v.aval.dtype) for x, v in zip(arrays, graph.inputs, strict=True)
    ]
    paths = [*[f"closed-over array {i}" for i in range(captured)], *names]
    for path, x in zip(paths, arrays, strict=True):
        if not finite(x):
            return NonFinite(f"{path}, as it was given", None, describe(x), [], [path], "")
    with without_callbacks():
        return _Finder(inline(graph), arrays, paths).run()


def check_results(name: str, results: Any, graph: Graph, arrays: Sequence[Any], names: Sequence[str]) -> None:
    """Raise NonFiniteError when a leaf of a call's results is not finite; ``arrays`` are what the graph was given."""
    bad = [(p, np.asarray(x)) for p, x in tree.leaves_with_path(results) if not finite(np.asarray(x))]
    if not bad:
        return
    got = "; ".join([f"{in_result(p)}: {describe(x)}" for p, x in bad[:4]]) + (" ..." if len(bad) > 4 else "")
    found = find_in_graph(graph, arrays, names)
    why = f"\n  because {found}" if found else "\n  because of rounding on the device: numpy's results are finite"
    raise NonFiniteError(message(name, "results must be finite under debug_nans", got) + why)


def finite(x: Any) -> bool:
    """Whether an array has no NaN and no infinity."""
    x = dtypes.widen(np.asarray(x))
    return x.dtype.kind != "f" or bool(np.isfinite(x).all())


def describe(x: Any) -> str:
    """An array's type, its range, and how many of its values are not finite."""
    x = np.asarray(x)
    aval, x = Aval(x.shape, x.dtype), dtypes.widen(x)
    if x.dtype.kind != "f" or not x.size:
        return str(aval)
    nan, inf = int(np.isnan(x).sum()), int(np.isinf(x).sum())
    good = x[np.isfinite(x)]
    text = f"{aval} in [{good.min():.6g}, {good.max():.6g}]" if good.size else f"{aval}"
    return text + "".join([f" with {n} {k}" for n, k in ((nan, "NaN"), (inf, "infinite")) if n])


class _Finder:
    """Runs a graph one equation at a time and stops at the first result that is not finite."""

    def __init__(self, graph: Graph, arrays: Sequence[Any], paths: Sequence[str]):
        self.graph = graph
        self.env: dict[Any, Any] = dict(zip(graph.inputs, arrays, strict=True))
        self.reach: dict[Any, frozenset[str]] = {
            v: frozenset({p} if p else ()) for v, p in zip(graph.inputs, paths, strict=True)
        }

    def run(self) -> NonFinite | None:
        """Go through the equations."""
        for eqn in self.graph.eqns:
            xs = [a.value if isinstance(a, Literal) else self.env[a] for a in eqn.inputs]
            sources = frozenset().union(*[self.reach.get(a, frozenset()) for a in eqn.inputs])
            steps = getattr(eqn.prim, "iterations", None)
            if steps is not None and all(map(finite, xs)):
                found = self._inside(steps(*xs))
                if found is not None:
                    return found._replace(inputs=sorted(sources))
            outs = eqn.prim.evaluate(*xs)
            if not all(map(finite, outs)) and all(map(finite, xs)):
                return self._report(eqn, xs, outs, sorted(sources))
            self.env.update(zip(eqn.outputs, outs, strict=True))
            self.reach.update(dict.fromkeys(eqn.outputs, sources))
        return None

    def _report(self, eqn: Equation, xs: Sequence[Any], outs: Sequence[Any], sources: list[str]) -> NonFinite:
        bad = next(o for o in outs if not finite(o))
        return NonFinite(eqn.prim.name, eqn.site, describe(bad), [describe(x) for x in xs], sources, "")

    def _inside(self, steps: Iterator[tuple[str, Graph, Sequence[Any]]]) -> NonFinite | None:
        """Look into a loop step by step, or into the branch that was taken."""
        for where, graph, arrays in steps:
            found = _Finder(inline(graph), arrays, [""] * len(arrays)).run()
            if found is not None:
                return found._replace(where=f", in {where}{found.where}")
        return None
