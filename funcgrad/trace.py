"""Tracing: running a Python function on tracers records its operations as a graph; replay runs a graph again.

One stack of builders per thread.  ``bind`` is the only way in: with no builder active it evaluates, with one active it
records.  A builder made by ``jit`` is abstract: its tracers have no values.  A builder made by ``grad`` or ``jvp`` on
concrete arguments is concrete: a tracer's value is computed when Python asks for it (``if x > 0``), and not before.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from funcgrad.errors import Site, UnexpectedTracerError, caller_site, message, origin
from funcgrad.ir import Atom, Aval, Equation, Graph, Literal, Var

if TYPE_CHECKING:
    from funcgrad.primitive import Primitive

__all__ = ["Builder", "Traced", "Tracer", "Value", "bind", "building", "current_builder", "replay", "trace"]


class Value:
    """What operations take and give: an ``Array`` or a ``Tracer``; ``operators`` adds operators and methods."""

    __slots__ = ("__weakref__",)
    aval: Aval

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        """The numpy dtype."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.aval.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size


class Tracer(Value):
    """Stands for a value inside a function that is being traced."""

    __slots__ = ("aval", "builder", "variable")

    def __init__(self, builder: Builder, var: Var):
        self.builder, self.variable, self.aval = builder, var, var.aval

    def concrete(self) -> Value | None:
        """The value, where it is known in Python; None under ``jit`` and for a mapped value."""
        return self.builder.concrete(self.variable)

    def __repr__(self) -> str:
        known = self.concrete()
        return f"Tracer({self.aval})" if known is None else f"Tracer({self.aval}, value={known})"


class _Local(threading.local):
    """Per thread: the builders from the outermost in, and the named axes."""

    def __init__(self) -> None:
        self.stack: list[Builder] = []
        self.axes: list[tuple[Any, int]] = []


_local = _Local()
Evaluator = Callable[["Primitive", Sequence[Any]], "list[Value]"]
Watcher = Callable[["Primitive", Sequence[Any], Sequence[Any]], None]
_evaluators: list[Evaluator] = []
_plain: list[Evaluator] = []  # the evaluator without the watcher around it


def set_evaluator(evaluate: Evaluator) -> None:
    """Install what runs one primitive on concrete values; called once, by the array layer."""
    _evaluators[:] = [evaluate]
    _plain[:] = [evaluate]


def watch_evaluations(watcher: Watcher) -> None:
    """From now on show a watcher the operands and results of each primitive that runs on concrete values; one watcher
    at a time."""

    def watched(prim: Primitive, xs: Sequence[Any]) -> list[Value]:
        outs = _plain[0](prim, xs)
        watcher(prim, xs, outs)
        return outs

    _evaluators[:] = [watched]


def evaluate(prim: Primitive, xs: Sequence[Any]) -> list[Value]:
    """Run one primitive on arrays and literals now."""
    return _evaluators[0](prim, xs)


def current_builder() -> Builder | None:
    """The innermost active builder of this thread, if any."""
    stack = _local.stack
    return stack[-1] if stack else None


def is_staging() -> bool:
    """Whether operations on concrete arrays are recorded: some active builder of this thread is abstract."""
    return any(b.abstract for b in _local.stack)


class Builder:
    """Collects equations.  Values from outside become captured inputs, once each.

    ``known`` maps variables to concrete values, for those that Python may look at; ``abstract`` says that operations
    on constants alone are recorded as well.
    """

    def __init__(self, name: str = "", abstract: bool = True):
        self.name, self.abstract = name, abstract
        self.eqns: list[Equation] = []
        self.captured: dict[int, tuple[Var, Value]] = {}
        self.known: dict[Var, Value] = {}
        self._producer: dict[Var, Equation] = {}
        self.thread = threading.get_ident()
        self.site = caller_site()
        self.arguments: Callable[[], dict[Var, str]] = dict

    def input(self, aval: Aval, known: Value | None = None) -> Tracer:
        """Return a tracer for a new input variable."""
        var = Var(aval)
        if known is not None:
            self.known[var] = known
        return Tracer(self, var)

    def atom(self, x: Any) -> Atom:
        """Return the variable or literal that stands for ``x`` in this graph, captured when it comes from outside."""
        if type(x) is Tracer and x.builder is self:
            return x.variable
        if isinstance(x, Literal):
            return x
        found = self.captured.get(id(x))
        if found is not None:
            return found[0]
        if type(x) is Tracer:
            check_alive(x)
        elif not isinstance(x, Value):
            raise no_operand("an operation", x)
        var = Var(x.aval)
        self.captured[id(x)] = (var, x)
        if not (self.abstract and type(x) is Tracer):
            known = x.concrete() if type(x) is Tracer else x
            if known is not None:
                self.known[var] = known
        return var

    def tracer(self, atom: Atom) -> Any:
        """Return what operations take for an atom of this graph."""
        return atom if isinstance(atom, Literal) else Tracer(self, atom)

    def emit(self, prim: Primitive, args: Sequence[Any]) -> list[Any]:
        """Append one equation and return its outputs as tracers."""
        atoms = [self.atom(a) for a in args]
        outs = [Var(a) for a in prim.infer_all(*[a.aval for a in atoms])]
        self.eqns.append(Equation(prim, atoms, outs, origin.site or caller_site()))
        return [Tracer(self, v) for v in outs]

    def adopt(self, eqn: Equation) -> None:
        """Append an equation of another graph as it is, variables included."""
        self.eqns.append(eqn)

    def concrete(self, var: Var) -> Value | None:
        """Return the value of a variable if the known ones determine it, computing what it needs once."""
        if var not in self.known:
            if len(self._producer) < len(self.eqns):
                self._producer = {v: e for e in self.eqns for v in e.outputs}
            for eqn in self._needed(var):
                xs = [self._known_atom(a) for a in eqn.inputs]
                if any(x is None for x in xs) or getattr(eqn.prim, "collective", False):
                    return None
                with paused():
                    outs = evaluate(eqn.prim, xs)
                self.known.update(zip(eqn.outputs, outs, strict=True))
        return self.known.get(var)

    def _known_atom(self, atom: Atom) -> Any:
        x: Any = atom if isinstance(atom, Literal) else self.known.get(atom)
        while type(x) is Tracer:  # the argument of a transformation inside another one
            x = x.concrete()
        return x

    def _needed(self, var: Var) -> list[Equation]:
        """The equations that ``var`` depends on and that have no value yet, in order."""
        order: list[Equation] = []
        seen: set[int] = set()
        stack: list[tuple[Equation | None, bool]] = [(self._producer.get(var), False)]
        while stack:
            eqn, done = stack.pop()
            if eqn is None or (id(eqn) in seen and not done):
                continue
            if done:
                order.append(eqn)
                continue
            seen.add(id(eqn))
            stack.append((eqn, True))
            for a in eqn.inputs:
                if isinstance(a, Var) and a not in self.known:
                    stack.append((self._producer.get(a), False))
        return order

    def graph(self, inputs: Sequence[Var], outputs: Sequence[Atom]) -> Graph:
        """Close the graph: captured inputs first, then ``inputs``."""
        captured = [v for v, _ in self.captured.values()]
        return Graph([*captured, *inputs], self.eqns, outputs, self.name)


def check_alive(x: Tracer) -> None:
    """Raise UnexpectedTracerError unless the value's trace is going on in this thread."""
    if x.builder in _local.stack:
        return
    b = x.builder
    made = next((e.site for e in b.eqns if x.variable in e.outputs), b.site)
    if b.thread != threading.get_ident():
        why = "a traced value was used in another thread than the one that traces it"
    else:
        why = "a traced value was used after its function had been traced"
    where = f"{x.aval} of {b.name or 'a traced function'}, made at {made}"
    way_out = "return the value from the function instead of storing it outside"
    raise UnexpectedTracerError(message("leaked tracer", why, where, way_out))


def arguments_of(x: Tracer) -> list[str]:
    """Name the arguments of transformed functions that a traced value depends on and whose values are not known."""
    names: dict[str, None] = {}
    stack, seen = [(x.builder, x.variable)], set()
    while stack:
        builder, var = stack.pop()
        if var in seen:
            continue
        seen.add(var)
        outer = dict(builder.captured.values()) | builder.known
        known = outer.get(var)
        if isinstance(known, Tracer):
            stack.append((known.builder, known.variable))
        elif known is None:
            eqn = next((e for e in builder.eqns if var in e.outputs), None)
            stack += [(builder, a) for a in eqn.inputs if isinstance(a, Var)] if eqn is not None else []
            name = builder.arguments().get(var)
            names.update({name: None} if name else {})
    return sorted(names)


@contextmanager
def building(builder: Builder) -> Iterator[Builder]:
    """Make ``builder`` the innermost one of this thread."""
    stack = _local.stack
    depth = len(stack)
    stack.append(builder)
    try:
        yield builder
    finally:
        del stack[depth:]


@contextmanager
def paused() -> Iterator[None]:
    """No builder active: concrete evaluation in the middle of a trace."""
    saved, _local.stack = _local.stack, []
    try:
        yield
    finally:
        _local.stack = saved


@contextmanager
def at_site(site: Site | None) -> Iterator[None]:
    """Equations recorded meanwhile carry ``site``, and errors name it; None stands for the line that is running."""
    saved, origin.site = origin.site, site
    try:
        yield
    finally:
        origin.site = saved


@contextmanager
def named_axis(name: Any, size: int) -> Iterator[None]:
    """Make a ``vmap`` axis known by name to the collectives inside; None names nothing."""
    depth = len(_local.axes)
    if name is not None:
        _local.axes.append((name, size))
    try:
        yield
    finally:
        del _local.axes[depth:]


def named_axes() -> tuple[tuple[Any, int], ...]:
    """The named axes of the enclosing ``vmap``s, outermost first, with their sizes."""
    return tuple(_local.axes)


def axis_size(name: Any) -> int:
    """Return the size of a named axis; NameError when no enclosing ``vmap`` names it."""
    for known, size in reversed(_local.axes):
        if known == name:
            return int(size)
    names = ", ".join(repr(n) for n, _ in _local.axes) or "none"
    raise NameError(
        message("collective", "the axis must be named by an enclosing vmap", f"{name!r}; there are: {names}")
    )


def no_operand(what: str, x: Any) -> TypeError:
    """The error for an operand that is neither an array of funcgrad's nor a literal."""
    way_out = "convert it with funcgrad.numpy.asarray"
    return TypeError(message(what, "operands of bind must be arrays of funcgrad's", type(x).__name__, way_out))


def bind_all(prim: Primitive, *args: Any) -> list[Any]:
    """Apply a primitive to values and literals; return all its outputs."""
    stack = _local.stack
    if stack and (stack[-1].abstract or any(type(a) is Tracer for a in args) or is_staging()):
        return stack[-1].emit(prim, args)
    if stack and getattr(prim, "collective", False):
        return stack[-1].emit(prim, args)
    for a in args:
        if type(a) is Tracer:
            check_alive(a)
    return evaluate(prim, args)


def bind(prim: Primitive, *args: Any) -> Any:
    """Apply a primitive of one output to values and literals; TypeError for numpy's arrays and Python's numbers."""
    return bind_all(prim, *args)[0]


class Traced(NamedTuple):
    """What tracing gives: the graph (captured inputs first), the captured values, the known values of variables."""

    graph: Graph
    captured: list[Value]
    known: dict[Var, Value]


def trace(
    fun: Callable[..., Sequence[Any]],
    avals: Sequence[Aval],
    values: Sequence[Value | None] | None = None,
    name: str = "",
    closed: Sequence[Value] = (),
) -> Traced:
    """Record ``fun``, a function of flat values that returns flat values or literals.

    ``values`` are the concrete arguments where Python may look at them; without any the trace is abstract.  ``closed``
    are values that it may close over though their own trace has ended; they become the first captured inputs.
    """
    builder = Builder(name, abstract=values is None)
    builder.captured = {id(v): (Var(v.aval), v) for v in closed}
    values = values or [None] * len(avals)
    with building(builder):
        inputs = [builder.input(a, v) for a, v in zip(avals, values, strict=True)]
        builder.arguments = functools.partial(_label, [t.variable for t in inputs], fun)
        outs = fun(*inputs)
        atoms = [builder.atom(o) for o in outs]
    graph = builder.graph([t.variable for t in inputs], atoms)
    return Traced(graph, [x for _, x in builder.captured.values()], builder.known)


def _label(inputs: Sequence[Var], fun: Any) -> dict[Var, str]:
    """The names of a function's arguments, where it knows them.  Holds no tracers: they would keep each other alive."""
    names: Callable[[], list[str]] = getattr(fun, "argument_names", list)
    return dict(zip(inputs, names(), strict=False))


def replay(graph: Graph, args: Sequence[Any], known: dict[Var, Value] | None = None) -> list[Any]:
    """Run the equations of a graph on values: evaluates when no builder is active, records otherwise.

    ``known`` are values of some of its variables that need not be computed again.
    """
    env: dict[Var, Any] = dict(known) if known and not _local.stack else {}
    env.update(zip(graph.inputs, args, strict=True))
    last = last_uses(graph)
    for i, eqn in enumerate(graph.eqns):
        if not eqn.outputs or not all(v in env for v in eqn.outputs):
            xs = [a if isinstance(a, Literal) else env[a] for a in eqn.inputs]
            saved, origin.site = origin.site, eqn.site
            try:
                outs = bind_all(eqn.prim, *xs)
            finally:
                origin.site = saved
            env.update(zip(eqn.outputs, outs, strict=True))
        for v in last.get(i, ()):
            env.pop(v, None)
    return [a if isinstance(a, Literal) else env[a] for a in graph.outputs]


def last_uses(graph: Graph) -> dict[int, list[Var]]:
    """For each equation the variables that nobody reads after it; memoised on the graph."""
    found = graph.memo.get("last_uses")
    if found is None:
        last: dict[Var, int] = dict.fromkeys(graph.inputs, -1)
        for i, eqn in enumerate(graph.eqns):
            for a in (*eqn.inputs, *eqn.outputs):
                if isinstance(a, Var):
                    last[a] = i
        keep = {a for a in graph.outputs if isinstance(a, Var)}
        found = {}
        for v, i in last.items():
            if v not in keep:
                found.setdefault(i, []).append(v)
        graph.memo["last_uses"] = found
    return found
