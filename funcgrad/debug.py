"""Looking inside: printing and calling back from compiled code, finding NaNs, counting transfers, seeing what is
kept."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes, tree
from funcgrad.control.callback import Callback, IOCallback, PureCallback
from funcgrad.errors import NonFiniteError, message
from funcgrad.ir import Aval, Equation, Graph, Var
from funcgrad.passes.inline import inline
from funcgrad.passes.recompute import CHEAP, MOST
from funcgrad.passes.reverse import split, vjp_graph
from funcgrad.passes.simplify import simplify
from funcgrad.profiling import MemoryOverTime, OperationTime, Profile, memory_over_time, plot_memory, profile
from funcgrad.runtime.ledger import LEDGER, Counts
from funcgrad.trace import bind_all, trace
from funcgrad.transforms.flat import FlatFunction, argument_path, avals_of, name_of, values_of
from funcgrad.transforms.nonfinite import NonFinite, debug_nans, find_nonfinite

__all__ = [
    "MemoryOverTime",
    "NonFinite",
    "OperationTime",
    "Profile",
    "Residual",
    "callback",
    "check_finite",
    "debug_nans",
    "expect",
    "find_nonfinite",
    "io_callback",
    "ledger",
    "memory_over_time",
    "plot_memory",
    "print",
    "print_saved_residuals",
    "profile",
    "pure_callback",
    "saved_residuals",
]

_print = print
LAYOUTS = frozenset({"broadcast", "reshape", "transpose", "reverse", "slice"})  # views, which cost nothing


# -- calling back ------------------------------------------------------------------------------------------------
def callback(fun: Callable[..., Any], *args: Any, ordered: bool = True, **kwargs: Any) -> None:
    """Call ``fun(*args)`` with numpy arrays in place of traced leaves, in program order, also from compiled code.

    An exception in ``fun`` ends the call of the compiled function and reaches the caller.  ``ordered`` is there for JAX
    programs: callbacks always run in order.

    >>> seen = []
    >>> callback(lambda x: seen.append(float(x)), asarray(2.0))
    >>> seen
    [2.0]
    """
    values, treedef = values_of((args, kwargs), f"callback {name_of(fun)}")

    def call(*arrays: Any) -> None:
        xs, named = tree.unflatten(treedef, list(arrays))
        fun(*xs, **named)

    bind_all(Callback(call, name_of(fun)), *values)


def print(fmt: str, *args: Any, ordered: bool = True, **kwargs: Any) -> None:
    """Print ``fmt.format(*args, **kwargs)`` with the values that the arguments have when the code runs.

    >>> from funcgrad import debug
    >>> debug.print("loss {l:.2f}", l=asarray(0.123))
    loss 0.12
    """

    def show(*xs: Any, **named: Any) -> None:
        _print(fmt.format(*[_plain(x) for x in xs], **{k: _plain(v) for k, v in named.items()}))

    callback(show, *args, ordered=ordered, **kwargs)


def _plain(x: Any) -> Any:
    return x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else x


def pure_callback(
    fun: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: None = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Return ``fun(*args, **kwargs)``, a numpy function without side effects, as an operation; the results' types are
    declared.

    Under vmap it is called once per example ("sequential", the default), or once for all: with an axis in front of
    every argument ("broadcast_all"), of size 1 where an argument is not mapped ("expand_dims").

    >>> from funcgrad import ShapeDtypeStruct
    >>> pure_callback(lambda x: x + 1, ShapeDtypeStruct((2,), "float32"), asarray([1.0, 2.0]))
    Array([2., 3.], dtype=float32)
    """
    methods = ("sequential", "broadcast_all", "expand_dims")
    if vmap_method is not None and vmap_method not in methods:
        raise ValueError(
            message("pure_callback", f"vmap_method must be one of {', '.join(methods)}", repr(vmap_method))
        )
    return _called(PureCallback, fun, result_shape_dtypes, args, kwargs, vmap_method or "sequential")


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: None = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Return ``callback(*args, **kwargs)``, a numpy function with side effects, as an operation with declared results.

    It is called once per run, whether or not its results are read, always in the order of the program (``ordered`` is
    accepted for JAX's sake), and once per example under vmap.

    >>> from funcgrad import ShapeDtypeStruct, jit
    >>> log = []
    >>> note = lambda x: log.append(float(x)) or x + 1
    >>> jit(lambda x: io_callback(note, ShapeDtypeStruct((), "float32"), x))(2.0), log
    (Array(3., dtype=float32), [2.0])
    """
    return _called(IOCallback, callback, result_shape_dtypes, args, kwargs, "sequential")


def _called(kind: Any, fun: Callable[..., Any], declared: Any, args: Any, kwargs: Any, method: str) -> Any:
    what = f"{kind.name} {name_of(fun)}"
    values, treedef = values_of((args, kwargs), what)
    leaves, out_def = tree.flatten(declared)
    avals = tuple([Aval(s.shape, dtypes.as_dtype(s.dtype)) for s in leaves])

    def call(*arrays: Any) -> Sequence[Any]:
        given, named = tree.unflatten(treedef, list(arrays))
        return out_def.flatten_up_to(fun(*given, **named), what)

    return tree.unflatten(out_def, bind_all(kind(call, avals, method), *values))


# -- finite values -----------------------------------------------------------------------------------------------
def check_finite(tree_: Any, action: str = "raise", max_abs: float | None = None) -> list[dict[str, Any]]:
    """Check every float leaf for NaN, infinity and (with ``max_abs``) magnitude; return a row per leaf.

    ``action`` is what to do about a bad leaf: "raise" NonFiniteError, "warn", or only "report".  A row has path, type,
    nan, inf, max_abs, status.

    >>> check_finite({"w": asarray([1.0, 2.0])})[0]["status"]
    'ok'
    """
    if action not in ("raise", "warn", "report"):
        raise ValueError(message("check_finite", "action must be 'raise', 'warn' or 'report'", repr(action)))
    rows = [_finite_row(tree.keystr(p), np.asarray(x), max_abs) for p, x in tree.leaves_with_path(tree_)]
    bad = [r for r in rows if r["status"] != "ok"]
    if bad and action != "report":
        text = message("check_finite", f"{len(bad)} of {len(rows)} leaves are bad:\n{format_rows(bad)}\n")
        if action == "raise":
            raise NonFiniteError(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    return rows


def _finite_row(path: str, x: np.ndarray[Any, Any], max_abs: float | None) -> dict[str, Any]:
    wide = x.astype(np.float64) if x.dtype.kind == "f" else np.zeros(1)
    finite = wide[np.isfinite(wide)]
    nan, inf = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    status = "+".join([s for s, n in (("nan", nan), ("inf", inf)) if n])
    if not status:
        status = "large" if max_abs is not None and largest > max_abs else "ok"
    return {
        "path": path or "the root",
        "type": f"{x.dtype}{list(x.shape)}",
        "nan": nan,
        "inf": inf,
        "max_abs": largest,
        "status": status,
    }


def format_rows(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as an aligned table."""
    if not rows:
        return ""
    cells = [list(rows[0])] + [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in r.values()] for r in rows]
    widths = [max(len(c[i]) for c in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)


# -- counting ----------------------------------------------------------------------------------------------------
def ledger() -> Counts:
    """Return the transfers, launches and traces of this process so far.

    >>> before = ledger().launches
    >>> _ = fg.jit(lambda x: x + 1.0)(asarray(1.0))
    >>> ledger().launches - before
    1
    """
    return LEDGER.counts()


@contextmanager
def expect(
    *,
    uploads: int | None = None,
    downloads: int | None = None,
    launches: int | None = None,
    traces: int | None = None,
) -> Iterator[Counts]:
    """Raise AssertionError unless exactly so many uploads, downloads, launches and traces happen inside; None does not
    matter.

    >>> from funcgrad import jit
    >>> f, x = jit(lambda x: x + 1.0), asarray(1.0)
    >>> with expect(uploads=0, launches=1, traces=1):
    ...     y = f(x)
    >>> with expect(traces=0):
    ...     y = f(y)
    """
    before = LEDGER.counts()
    seen = Counts()
    yield seen
    found = LEDGER.counts() - before
    for name, value in asdict(found).items():
        setattr(seen, name, value)
    wanted = {"uploads": uploads, "downloads": downloads, "launches": launches, "traces": traces}
    wrong = [f"{getattr(found, k)} {k}, not {n}" for k, n in wanted.items() if n is not None and getattr(found, k) != n]
    if wrong:
        raise AssertionError(message("expect", "the ledger must show what was expected", "; ".join(wrong)))


# -- what is kept ------------------------------------------------------------------------------------------------
class Residual(NamedTuple):
    """A value that the forward half keeps for the backward half."""

    aval: Aval
    source: str

    def __str__(self) -> str:
        return f"{self.aval!s:<16} {self.aval.nbytes:>12,} bytes  {self.source}"


def saved_residuals(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Residual]:
    """Return what a gradient of ``fun(*args)`` keeps between its halves: arguments, and values by the line that made
    them.

    >>> [str(r.aval) for r in saved_residuals(lambda x: fnp.sin(x).sum(), asarray([1.0, 2.0]))]
    ['f32[2]']
    """
    what = f"saved_residuals of {name_of(fun)}"
    values, treedef = values_of((args, kwargs), what)
    flat = FlatFunction(lambda a, k: fun(*a, **k), treedef, what)
    traced = trace(flat, avals_of(values), values, name=what)
    graph = simplify(inline(traced.graph, only=("call",)))
    wrt = [dtypes.is_float(a.dtype) for a in graph.in_avals]
    joint = simplify(vjp_graph(graph, wrt))
    parts = split(joint, len(joint.inputs) - len(graph.inputs), len(graph.outputs))
    paths = [f"closed-over array {i}" for i in range(len(traced.captured))]
    paths += [argument_path(p) for p, _ in tree.leaves_with_path((args, kwargs))]
    names: dict[Any, str] = dict(zip(parts.early.inputs, paths, strict=True))
    for eqn in parts.early.eqns:
        names.update(dict.fromkeys(eqn.outputs, f"{eqn.prim.name} at {eqn.site}"))
    return [Residual(v.aval, names[v]) for v in _kept(parts.early, parts.crossing)]


def _kept(early: Graph, crossing: Sequence[Var]) -> list[Var]:
    """What crosses, but for what a compiled graph makes again from the rest in passing: 1 - t * t from t, say."""
    made = {v: e for e in early.eqns for v in e.outputs}
    kept = dict.fromkeys([_without_layout(v, made) for v in crossing])
    for v in [*kept][::-1]:
        del kept[v]
        if not _is_made_from(v, kept, made):
            kept[v] = None
    return [*kept][::-1]


def _without_layout(v: Var, made: dict[Var, Equation]) -> Var:
    """The value that v is a broadcast or another view of."""
    eqn = made.get(v)
    source = eqn.inputs[0] if eqn is not None and eqn.prim.name in LAYOUTS else None
    return _without_layout(source, made) if isinstance(source, Var) else v


def _is_made_from(v: Var, kept: dict[Var, None], made: dict[Var, Equation]) -> bool:
    """Whether a few cheap equations and layouts make v from what is kept."""
    stack, arithmetic = [v], 0
    while stack:
        eqn = made.get(stack.pop())
        if eqn is None or (eqn.prim.name not in CHEAP and eqn.prim.name not in LAYOUTS):
            return False
        arithmetic += eqn.prim.name in CHEAP
        if arithmetic > MOST:
            return False
        stack += [a for a in eqn.inputs if isinstance(a, Var) and a not in kept]
    return True


def print_saved_residuals(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print what a gradient keeps, with the total.

    >>> print_saved_residuals(lambda x: (x * x).sum(), asarray([1.0, 2.0]))
    f32[2]                      8 bytes  argument 0
    1 values, 8 bytes
    """
    rows = saved_residuals(fun, *args, **kwargs)
    for r in rows:
        _print(r)
    _print(f"{len(rows)} values, {sum(r.aval.nbytes for r in rows):,} bytes", file=sys.stdout)
