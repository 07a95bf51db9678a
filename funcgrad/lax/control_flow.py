"""Control flow by values: scan, cond, switch, while_loop, fori_loop, map, associative_scan; names follow JAX.

The functions given are traced once on abstract values.  What they close over becomes an operand, and has gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import dtypes, tree
from funcgrad.control.branch import Cond
from funcgrad.control.hoist import hoist
from funcgrad.control.loops import Scan, While, stacked
from funcgrad.errors import ConcretizationTypeError, DTypeError, ShapeError, TreeError, message
from funcgrad.ir import Aval, Graph, Literal, Var
from funcgrad.lax.plain import row_of, scan_in_python, stack_rows, while_in_python
from funcgrad.lax.prefix import associative_scan
from funcgrad.lax.staging import Step, flat_operands, known_int, scalar_operand, texts
from funcgrad.passes.batch import batch_graph
from funcgrad.passes.simplify import simplify
from funcgrad.prims.layout import broadcast, concatenate, iota, reshape, slice_along
from funcgrad.prims.pointwise import add, convert
from funcgrad.trace import Traced, bind_all, replay, trace
from funcgrad.transforms.flat import FlatFunction, materialize, name_of
from funcgrad.transforms.switches import jit_is_disabled

__all__ = ["associative_scan", "cond", "fori_loop", "map", "scan", "switch", "while_loop"]

_NONE = object()
UNROLL = 4  # loops of at most so many steps may be written out


# -- scan --------------------------------------------------------------------------------------------------------
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Return the final carry and the stacked outputs of ``carry, y = f(carry, x)`` for each row ``x`` of ``xs``.

    ``init`` is a tree of arrays, the carry before the first step; its structure, shapes and dtypes stay the same.
    ``xs`` is a tree of arrays whose axis 0, of one size, is stepped over, or None with ``length`` steps.  ``ys`` has
    an axis of that size in front. ``reverse`` steps from the last row to the first, and leaves ``ys`` in the order of
    ``xs``.  ``unroll`` of at least ``length`` writes a loop of at most 4 steps out; otherwise it changes nothing.

    ``f`` is traced once, so that the time to trace does not depend on ``length``.  Reverse mode saves per step what the
    gradient of ``f`` needs; ``scan(checkpoint(f), ...)`` saves the carry only.

    Raises TreeError or DTypeError (both TypeErrors) when the carry changes its structure or its types, ShapeError (a
    ValueError) when the sizes of axis 0 differ or nothing says how many steps there are.

    >>> lax.scan(lambda total, x: (total + x, total), 0.0, fnp.asarray([1.0, 2.0, 3.0]))
    (Array(6., dtype=float32), Array([0., 1., 3.], dtype=float32))
    """
    what = f"scan of {name_of(f)}"
    init_values, init_def = flat_operands(init, f"{what}: init")
    seqs, xs_def = flat_operands(xs, f"{what}: xs")
    n = _length(seqs, xs, length, what)

    def body(carry: Any, x: Any) -> tuple[Any, Any]:
        out = f(carry, x)
        if not (isinstance(out, (tuple, list)) and len(out) == 2):
            raise TreeError(message(what, "the body must return a pair (carry, y)", _brief(out)))
        return out[0], out[1]

    step = Step(body, init_def, xs_def, what)
    if n and jit_is_disabled():
        carry_out, ys = scan_in_python(step, init_values, seqs, n, reverse)
        return tree.unflatten(init_def, carry_out), tree.unflatten(step.out_tree, ys)
    traced, init_values = step.traced(init_values, [Aval(x.aval.shape[1:], x.aval.dtype) for x in seqs])
    outs = _run_scan(traced, init_values, seqs, n, reverse, unroll is True or unroll >= max(n, 1))
    k = len(init_values)
    return tree.unflatten(init_def, outs[:k]), tree.unflatten(step.out_tree, outs[k:])


def _brief(x: Any) -> str:
    return f"{type(x).__name__} of length {len(x)}" if isinstance(x, (tuple, list)) else type(x).__name__


def _length(seqs: Sequence[Any], xs: Any, length: Any, what: str) -> int:
    """The number of steps: the one size of axis 0, which must agree with ``length``."""
    given = None if length is None else int(length)
    if given is not None and given < 0:
        raise ShapeError(message(what, "length must not be negative", str(given)))
    if any(not x.aval.shape for x in seqs):
        paths = [tree.keystr(p) or "the root" for p, _ in tree.leaves_with_path(xs)]
        scalar = next(p for p, x in zip(paths, seqs, strict=True) if not x.aval.shape)
        way_out = "close over what is the same in all steps"
        raise ShapeError(
            message(what, "every leaf of xs must have an axis to step over", f"a scalar at xs {scalar}", way_out)
        )
    sizes = list(dict.fromkeys(x.aval.shape[0] for x in seqs))
    if len(sizes) > 1:
        pairs = zip(tree.leaves_with_path(xs), seqs, strict=True)
        got = ", ".join(f"{x.aval} at xs{tree.keystr(p)}" for (p, _), x in pairs)
        raise ShapeError(message(what, "axis 0 of all leaves of xs must have one size", got))
    if given is not None and sizes and sizes[0] != given:
        raise ShapeError(message(what, "length must be the size of axis 0 of xs", f"{given} and {sizes[0]}"))
    if given is None and not sizes:
        raise ShapeError(message(what, "xs or length must say how many steps there are", "neither", "give length"))
    return sizes[0] if sizes else int(given or 0)


def _run_scan(
    traced: Traced, init: Sequence[Any], seqs: Sequence[Any], length: int, backwards: bool, unroll: bool
) -> list[Any]:
    """The final carry and the stacked outputs."""
    graph, consts, k = simplify(traced.graph), traced.captured, len(init)
    if not length:
        empty = [stacked(a, 0) for a in graph.out_avals[k:]]
        return [materialize(x) for x in (*init, *[broadcast(Literal(0, a.dtype), a.shape, ()) for a in empty])]
    before, body = hoist(graph, len(consts))
    consts = [*consts, *replay(before, consts)]
    if unroll and length <= UNROLL:
        return _unrolled(body, consts, init, seqs, length, backwards)
    return bind_all(Scan(body, len(consts), k, length, bool(backwards)), *consts, *init, *seqs)


def _unrolled(
    body: Graph, consts: Sequence[Any], init: Sequence[Any], seqs: Sequence[Any], length: int, backwards: bool
) -> list[Any]:
    carry, k = list(init), len(init)
    rows: list[list[Any]] = [[] for _ in range(length)]
    for i in range(length)[:: -1 if backwards else 1]:
        outs = replay(body, [*consts, *carry, *[row_of(x, i) for x in seqs]])
        carry, rows[i] = outs[:k], outs[k:]
    return [*[materialize(x) for x in carry], *stack_rows(rows)]


# -- cond --------------------------------------------------------------------------------------------------------
def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any, operand: Any = _NONE
) -> Any:
    """Return ``true_fun(*operands)`` if ``pred`` holds, else ``false_fun(*operands)``; only the one taken is computed.

    ``pred`` is a bool scalar, or a number that is compared with 0.  ``operands`` are trees of arrays; both functions
    must return the same structure, shapes and dtypes.  Under ``vmap`` with a mapped ``pred`` both are computed and
    each lane selects its own, exactly: the branch not taken contributes nothing, whatever it holds.  ``operand`` is
    another way to pass one operand.

    Raises DTypeError (a TypeError) for a predicate that is no scalar, and when the results differ in type; TreeError
    when they differ in structure.

    >>> lax.cond(fnp.asarray(3.0) > 2.0, lambda x: x + 1.0, lambda x: x * 2.0, 5.0)
    Array(6., dtype=float32)
    """
    what = "cond"
    value = scalar_operand(pred, "the predicate", what)
    if isinstance(value, Literal):
        index = Literal(int(value.item() != 0), dtypes.int32)
    else:
        index = convert(convert(value, dtypes.bool_), dtypes.int32)
    return _branch(index, [false_fun, true_fun], operands if operand is _NONE else (operand,), what)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any, operand: Any = _NONE) -> Any:
    """Return ``branches[index](*operands)``; the index is clamped to the branches there are.

    ``index`` is an integer scalar.  The rest is as in :func:`cond`.

    >>> lax.switch(7, [lambda x: x, lambda x: -x], 3.0)
    Array(-3., dtype=float32)
    """
    what = "switch"
    if not branches:
        raise ValueError(message(what, "there must be at least one branch", "none"))
    value = scalar_operand(index, "the index", what)
    if not dtypes.is_int(value.aval.dtype):
        raise DTypeError(message(what, "the index must be an integer", str(value.aval), "convert it with astype(int)"))
    if isinstance(value, Literal):
        value = Literal(min(max(value.item(), 0), len(branches) - 1), dtypes.int32)
    return _branch(convert(value, dtypes.int32), list(branches), operands if operand is _NONE else (operand,), what)


def _branch(index: Any, functions: Sequence[Any], operands: Any, what: str) -> Any:
    for f in functions:
        if not callable(f):
            raise TypeError(message(what, "branches must be functions", type(f).__name__))
    known = known_int(index)
    if known is not None and jit_is_disabled():
        return functions[min(max(known, 0), len(functions) - 1)](*operands)
    values, treedef = flat_operands(tuple(operands), f"{what}: operands")
    avals = [x.aval for x in values]
    flats = [FlatFunction(f, treedef, f"{what}: {name_of(f)}") for f in functions]
    traces = [trace(flat, avals, name=f"{what} {name_of(f)}") for flat, f in zip(flats, functions, strict=True)]
    _check_branches(flats, traces, what)
    if known is not None or len(functions) == 1:
        taken = traces[min(max(known or 0, 0), len(traces) - 1)]
        outs = replay(simplify(taken.graph), [*taken.captured, *values], taken.known)
    else:
        captured = {id(x): x for t in traces for x in t.captured}
        graphs = tuple([_with_captured(t, captured) for t in traces])
        outs = bind_all(Cond(graphs), index, *captured.values(), *values)
    return tree.unflatten(flats[0].out_tree, [materialize(o) for o in outs])


def _with_captured(traced: Traced, captured: dict[int, Any]) -> Graph:
    """The graph with the values that any branch captures as its first inputs."""
    graph, n = simplify(traced.graph), len(traced.captured)
    own = dict(zip([id(x) for x in traced.captured], graph.inputs, strict=False))
    first = [own[i] if i in own else Var(x.aval) for i, x in captured.items()]
    return Graph([*first, *graph.inputs[n:]], graph.eqns, graph.outputs, graph.name)


def _check_branches(flats: Sequence[FlatFunction], traces: Sequence[Traced], what: str) -> None:
    first, types = flats[0], traces[0].graph.out_avals
    for flat, traced in zip(flats[1:], traces[1:], strict=True):
        if flat.out_tree != first.out_tree:
            got = f"{flat.out_tree} from {name_of(flat.fun)} and {first.out_tree} from {name_of(first.fun)}"
            way_out = "compare with fg.tree.structure"
            raise TreeError(message(what, "all branches must return the same structure", got, way_out))
        if traced.graph.out_avals != types:
            paths = [tree.keystr(p) for p, _ in tree.leaves_with_path(tree.unflatten(first.out_tree, [0] * len(types)))]
            pairs = zip(paths, traced.graph.out_avals, types, strict=True)
            got = "; ".join(f"{a} and {b} at {p or 'the root'}" for p, a, b in pairs if a != b)
            raise DTypeError(message(what, "all branches must return the same types", got, "convert with astype"))


# -- loops -------------------------------------------------------------------------------------------------------
def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """Return ``init_val`` after ``val = body_fun(val)`` as long as ``cond_fun(val)`` holds.

    ``init_val`` is a tree of arrays; its structure, shapes and dtypes stay the same.  ``cond_fun`` returns a bool
    scalar. Under ``vmap`` the loop runs until the last lane is done; the others keep their values.  Forward mode
    works; reverse mode raises MissingRule: use :func:`scan`, or :func:`fori_loop` with bounds that are Python
    integers.

    Raises DTypeError or TreeError (both TypeErrors) when the carry changes, or the condition is no bool scalar.

    >>> lax.while_loop(lambda x: x < 100.0, lambda x: x * 3.0, 1.0)
    Array(243., dtype=float32)
    """
    what = f"while_loop of {name_of(body_fun)}"
    if jit_is_disabled():
        try:
            return while_in_python(cond_fun, body_fun, init_val)
        except ConcretizationTypeError:
            pass  # a mapped or abstract condition: only a traced loop can decide it
    init, init_def = flat_operands(init_val, f"{what}: init_val")
    step = Step(lambda val, _: (body_fun(val), None), init_def, tree.structure(None), what)
    body, init = step.traced(init, [])
    test = FlatFunction(cond_fun, tree.structure((tree.unflatten(init_def, [0] * len(init)),)), f"{what}: cond_fun")
    condition = trace(test, [x.aval for x in init], name=name_of(cond_fun))
    if condition.graph.out_avals != (Aval((), dtypes.bool_),):
        got = texts(condition.graph.out_avals) or "nothing"
        raise DTypeError(
            message(what, "cond_fun must return a bool scalar", got, "compare, or reduce with .any() or .all()")
        )
    n, m = len(condition.captured), len(body.captured)
    before, graph = hoist(simplify(body.graph), m)
    consts = [*body.captured, *replay(before, body.captured)]
    prim = While(simplify(condition.graph), graph, n, len(consts))
    return tree.unflatten(init_def, bind_all(prim, *condition.captured, *consts, *init))


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *, unroll: Any = None) -> Any:
    """Return ``init_val`` after ``val = body_fun(i, val)`` for i from ``lower`` to ``upper - 1``.

    With bounds that are known when tracing this is a :func:`scan`, so that reverse mode works; else a
    :func:`while_loop`. ``i`` is an int32 scalar.  ``init_val`` and errors are as there.

    >>> lax.fori_loop(0, 4, lambda i, total: total + i, 10)
    Array(16, dtype=int32)
    """
    what = f"fori_loop of {name_of(body_fun)}"
    low, high = scalar_operand(lower, "lower", what), scalar_operand(upper, "upper", what)
    if not (dtypes.is_int(low.aval.dtype) and dtypes.is_int(high.aval.dtype)):
        raise DTypeError(message(what, "the bounds must be integers", f"{low.aval} and {high.aval}"))
    first, last = known_int(low), known_int(high)
    if first is None or last is None:
        start = convert(materialize(low), dtypes.int32)
        end = convert(materialize(high), dtypes.int32)
        step = lambda v: (add(v[0], 1), body_fun(v[0], v[1]))
        return while_loop(lambda v: v[0] < end, step, (start, init_val))[1]
    n = max(last - first, 0)
    steps = add(iota((n,), 0, dtypes.int32), first)
    return scan(lambda val, i: (body_fun(i, val), None), init_val, steps, unroll=unroll or 1)[0]


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """Return the results of ``f`` for each row of ``xs``, stacked; one row after another, in little memory.

    ``batch_size`` rows at a time are computed together, as by ``vmap``.

    >>> lax.map(lambda x: x * x, fnp.asarray([1.0, 2.0, 3.0]))
    Array([1., 4., 9.], dtype=float32)
    """
    if batch_size is None:
        return scan(lambda _, x: (None, f(x)), None, xs)[1]
    what = f"map of {name_of(f)}"
    seqs, treedef = flat_operands(xs, what)
    n = _length(seqs, xs, None, what)
    if batch_size < 1:
        raise ShapeError(message(what, "batch_size must be at least 1", str(batch_size)))
    size = min(batch_size, n) or 1
    flat = FlatFunction(f, tree.structure((tree.unflatten(treedef, [0] * len(seqs)),)), what)
    traced = trace(flat, [Aval(x.aval.shape[1:], x.aval.dtype) for x in seqs], name=what)
    full = n - n % size
    chunks = [_chunks(slice_along(x, 0, 0, full), size) for x in seqs]
    ys = scan(lambda _, x: (None, _batched(traced, x, size)), None, chunks, length=n // size)[1]
    outs = [reshape(y, (full, *y.aval.shape[2:])) for y in ys]
    if full < n:
        rest = _batched(traced, [slice_along(x, 0, full, n) for x in seqs], n - full)
        outs = [concatenate([a, b], 0) for a, b in zip(outs, rest, strict=True)]
    return tree.unflatten(flat.out_tree, outs)


def _chunks(x: Any, size: int) -> Any:
    shape = x.aval.shape
    return reshape(x, (shape[0] // size, size, *shape[1:]))


def _batched(traced: Traced, rows: Sequence[Any], size: int) -> list[Any]:
    """``size`` rows through a traced function at once."""
    marks = [False] * len(traced.captured) + [True] * len(rows)
    graph, out_marks = batch_graph(simplify(traced.graph), size, marks)
    outs = [materialize(o) for o in replay(graph, [*traced.captured, *rows])]
    pairs = zip(outs, out_marks, strict=True)
    return [o if m else broadcast(o, (size, *o.aval.shape), tuple(range(1, o.aval.ndim + 1))) for o, m in pairs]
